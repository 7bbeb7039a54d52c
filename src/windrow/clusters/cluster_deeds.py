"""Deeds about a Cluster as a whole, one function for each action. All may be repeated; none decides anything."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

from windrow.bootstrap.access import GuestAccount, find_credential
from windrow.bootstrap.authorities import new_cluster_secrets
from windrow.bootstrap.minting import mint_access
from windrow.client.client import Client
from windrow.clusters import actions as do
from windrow.clusters import names
from windrow.clusters.actions import Action
from windrow.clusters.desk import Desk, Lost, cluster_ref, delete_if_there, get_machine
from windrow.clusters.intents import find_revision
from windrow.clusters.kinds import MACHINE
from windrow.clusters.leftovers import find_home
from windrow.clusters.records import render_machine
from windrow.clusters.sealed import (
    GUEST_KUBECONFIG,
    CredentialMissing,
    encoded,
    render_kubeconfig_secret,
    render_secrets,
)
from windrow.clusters.seen import Seen
from windrow.harvester.identity import IDENTITY, read_identity
from windrow.harvester.names import CLUSTER_UID
from windrow.kube.errors import Conflict, Exists, Forbidden, KubeError, Unanswered
from windrow.kube.kubeconfig import render_kubeconfig
from windrow.kube.objects import Raw, annotations_of, dig, uid_of, version_of
from windrow.kube.refs import CONFIG_MAP, SECRET, SERVICE
from windrow.values.chance import Chance

log = logging.getLogger(__name__)

Deed = Callable[[Desk, Any, Seen], Awaitable[None]]

# The kubeconfig for people, and after what time it is made anew.
PEOPLE_FOR = timedelta(days=365)
RENEW_AFTER = timedelta(days=245)
VIP = CONFIG_MAP.ref("vip", "harvester-system")
API_PORT = 6443
GUEST_SERVICE = SERVICE.ref("kubernetes", "default")


async def claim(desk: Desk, action: do.Claim, seen: Seen) -> None:
    raw = await desk.change_finalizers(cluster_ref(seen), seen.cluster.uid, add=names.CLUSTER_FINALIZER)
    if raw is None:
        raise Lost
    desk.clusters.wrote(raw)


async def make_secrets(desk: Desk, action: do.MakeSecrets, seen: Seen) -> None:
    raw = render_secrets(seen.cluster, new_cluster_secrets(desk.clock.now()))
    await _create_owned(desk, raw, seen)


async def _create_owned(desk: Desk, raw: Raw, seen: Seen) -> None:
    """Create a Secret of ours. One of the same name that belonged to a namesake before us is removed first."""
    ref = SECRET.ref(raw["metadata"]["name"], seen.cluster.namespace)
    try:
        desk.secrets.wrote(await desk.api.create(SECRET, raw))
    except Exists:
        found = await desk.api.get(ref)
        owner = annotations_of(found).get(CLUSTER_UID)
        if owner == seen.cluster.uid:
            desk.secrets.wrote(found)
            return
        if not owner:
            raise CredentialMissing(
                f"a Secret {ref.namespace}/{ref.name} exists that is not ours", "rename or remove it"
            ) from None
        await desk.api.delete(ref, uid=uid_of(found))
        desk.secrets.wrote(await desk.api.create(SECRET, raw))


async def record_account(desk: Desk, action: do.RecordAccount, seen: Seen) -> None:
    account = {
        "namespace": action.namespace,
        "serviceAccount": action.account,
        "credential": action.credential,
        "harvester": await _ask_identity(desk.harvesters.get_client(action.credential)),
    }
    await desk.write_cluster_status(seen, {"guestAccess": account})


async def _ask_identity(client: Client) -> str:
    try:
        return read_identity(await client.get(IDENTITY))
    except Forbidden:
        return ""


async def grant_access(desk: Desk, action: do.GrantAccess, seen: Seen) -> None:
    recorded = seen.standing.account
    namespace = recorded.namespace if recorded else seen.cluster.vm_namespace
    credential = recorded.credential if recorded else seen.cluster.credential
    name = recorded.name if recorded else seen.cluster.name
    account = GuestAccount(name, namespace, seen.cluster.uid)
    client = await desk.harvesters.reach(recorded) if recorded else desk.harvesters.get_client(credential)
    last = await client.find(account.refs[-1])
    if last is None or not account.is_mine(last):  # they are made in order, so the last one stands for all
        await _make_account(client, account)
    server = await _guest_server(desk, client, credential)
    text = find_credential(await client.get(account.token), server, namespace)
    if text is not None:
        ref = SECRET.ref(names.secrets_name(seen.cluster.name), seen.cluster.namespace)
        desk.secrets.wrote(await desk.api.patch(ref, {"data": {GUEST_KUBECONFIG: encoded(text)}}))


async def _guest_server(desk: Desk, client: Client, credential: str) -> str:
    """Harvester as guests reach it: its VIP, else the address that we use ourselves. Never by our proxy."""
    try:
        found = await client.find(VIP)
    except KubeError as error:
        log.info("the VIP of Harvester cannot be read (%s); guests get the credential's address", error)
        found = None
    address = dig(found, "data", "ip", default="") if found else ""
    return f"https://{address}:{API_PORT}" if address else desk.harvesters.get_access(credential).server


async def enlist(desk: Desk, action: do.Enlist, seen: Seen) -> None:
    pool = seen.cluster.find_pool(action.pool)
    if pool is None:
        raise Lost
    version = seen.standing.version or seen.cluster.version
    for _ in range(5):
        name = _new_name(desk, seen, action.pool)
        raw = render_machine(
            seen.cluster,
            pool,
            name,
            version=version,
            revision=find_revision(seen.cluster, pool, version),
            server=action.server,
            first=action.first,
        )
        try:
            made = await desk.api.create(MACHINE, raw)
        except Exists:
            continue
        except Unanswered:
            # It may stand there all the same; a second one would be one too many.
            await desk.machines.refresh(
                desk.api, seen.cluster.namespace, f"{names.CLUSTER_NAME}={seen.cluster.name}"
            )
            raise
        desk.machines.wrote(made)
        return
    raise Lost


def _new_name(desk: Desk, seen: Seen, pool: str) -> str:
    """`<cluster>-<pool>-<5>-<5>`; the first five are the pool's, the same for all its machines."""
    stem = Chance(f"{seen.cluster.uid}/{pool}").suffix()
    return f"{seen.cluster.name}-{pool}-{stem}-{desk.chance.suffix()}"


async def elect(desk: Desk, action: do.Elect, seen: Seen) -> None:
    raw = await desk.api.find(cluster_ref(seen))
    if raw is None or uid_of(raw) != seen.cluster.uid:
        raise Lost
    holder = dig(raw, "status", "firstServer", "uid", default="")
    if holder != action.instead_of or dig(raw, "status", "initialized", default=False):
        desk.clusters.wrote(raw)
        raise Lost
    change = {
        "metadata": {"resourceVersion": version_of(raw)},
        "status": {
            "firstServer": {"name": action.machine, "uid": action.uid},
            "version": get_machine(action.machine, seen).record.version,
        },
    }
    try:
        desk.clusters.wrote(await desk.api.patch(cluster_ref(seen), change, "status"))
    except Conflict as error:
        raise Lost from error


async def initialize(desk: Desk, action: do.Initialize, seen: Seen) -> None:
    uid = await _find_guest_uid(desk, seen)
    await desk.write_cluster_status(seen, {"initialized": True, **({"guestUID": uid} if uid else {})})


async def meet_guest(desk: Desk, action: do.MeetGuest, seen: Seen) -> None:
    desk.memo.met[seen.cluster.uid] = desk.clock.now()  # also where it fails: it is asked again, but seldom
    if uid := await _find_guest_uid(desk, seen):
        await desk.write_cluster_status(seen, {"guestUID": uid})


async def _find_guest_uid(desk: Desk, seen: Seen) -> str:
    """By what the guest's cloud provider marks its load balancers. It is of use, but nothing waits for it."""
    try:
        raw = await desk.link(seen).client.find(GUEST_SERVICE)
    except (KubeError, Lost) as error:
        log.info("the uid of guest %s is not known: %s", seen.cluster.name, error)
        return ""
    return uid_of(raw) if raw else ""


async def publish(desk: Desk, action: do.Publish, seen: Seen) -> None:
    if seen.secrets is None:
        raise Lost
    proxy = find_proxy(desk, seen)
    now = desk.clock.now()
    access = mint_access(seen.secrets, action.server, now, PEOPLE_FOR, proxy, "windrow-admin")
    text = render_kubeconfig(access, seen.cluster.name)
    raw = render_kubeconfig_secret(seen.cluster, text, action.server, now + RENEW_AFTER)
    ref = SECRET.ref(names.kubeconfig_name(seen.cluster.name), seen.cluster.namespace)
    try:
        desk.secrets.wrote(await desk.api.create(SECRET, raw))
    except Exists:
        found = await desk.api.get(ref)
        if not annotations_of(found).get(CLUSTER_UID):
            raise CredentialMissing(
                f"a Secret {ref.namespace}/{ref.name} exists that is not ours", "rename or remove it"
            ) from None
        change = {"metadata": {"annotations": raw["metadata"]["annotations"]}, "data": raw["data"]}
        desk.secrets.wrote(await desk.api.patch(ref, change))


def find_proxy(desk: Desk, seen: Seen) -> str:
    """The proxy through which machines on this Harvester are reached, "" for none."""
    if desk.proxy:
        return desk.proxy
    try:
        return desk.harvesters.get_access(seen.cluster.credential).proxy_url
    except CredentialMissing:
        return ""


async def revoke_access(desk: Desk, action: do.RevokeAccess, seen: Seen) -> None:
    recorded = seen.standing.account
    if recorded is None:
        return
    account = GuestAccount(recorded.name, recorded.namespace, seen.cluster.uid)
    client = await desk.harvesters.reach(recorded)
    for ref in reversed(account.refs):
        found = await client.find(ref)
        if found is not None and account.is_mine(found):
            await delete_if_there(client, ref, uid_of(found))


async def delete_balancers(desk: Desk, action: do.DeleteBalancers, seen: Seen) -> None:
    home = find_home(seen.cluster)
    if home is None:
        raise Lost
    client = await desk.harvesters.reach(home)
    for ref, uid in action.balancers:
        await delete_if_there(client, ref, uid)


async def keep_balancers(desk: Desk, action: do.KeepBalancers, seen: Seen) -> None:
    """To tell of it is all."""
    log.warning("%s/%s: %s", seen.cluster.namespace, seen.cluster.name, action.because)


async def forget_secrets(desk: Desk, action: do.ForgetSecrets, seen: Seen) -> None:
    for name in (names.kubeconfig_name(seen.cluster.name), names.secrets_name(seen.cluster.name)):
        ref = SECRET.ref(name, seen.cluster.namespace)
        found = await desk.api.find(ref)
        if found is not None and annotations_of(found).get(CLUSTER_UID) == seen.cluster.uid:
            await delete_if_there(desk.api, ref, uid_of(found))


async def let_go(desk: Desk, action: do.RemoveFinalizer, seen: Seen) -> None:
    desk.guests.close(seen.cluster.uid)
    raw = await desk.change_finalizers(cluster_ref(seen), seen.cluster.uid, drop=names.CLUSTER_FINALIZER)
    if raw is not None:
        desk.clusters.wrote(raw)


async def _make_account(client: Client, account: GuestAccount) -> None:
    for kind, raw in account.render_objects():
        try:
            await client.create(kind, raw)
        except Exists:
            found = await client.get(kind.ref(raw["metadata"]["name"], raw["metadata"].get("namespace", "")))
            if not account.is_mine(found):
                raise CredentialMissing(
                    f"{kind.kind} {raw['metadata']['name']} on Harvester belongs to somebody else",
                    "rename the cluster, or choose another vmNamespace",
                ) from None


DEEDS: dict[type[Action], Deed] = {
    do.Claim: claim,
    do.MakeSecrets: make_secrets,
    do.RecordAccount: record_account,
    do.GrantAccess: grant_access,
    do.Enlist: enlist,
    do.Elect: elect,
    do.Initialize: initialize,
    do.MeetGuest: meet_guest,
    do.Publish: publish,
    do.RevokeAccess: revoke_access,
    do.DeleteBalancers: delete_balancers,
    do.KeepBalancers: keep_balancers,
    do.ForgetSecrets: forget_secrets,
    do.RemoveFinalizer: let_go,
}
