"""Carrying out: each action is one small method. All may be repeated; none decides anything.

Order of writes is the promise of this file: what is going to be made outside is written down before it is made, and
what was learned is written down before it is used.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from windrow.bootstrap.access import GuestAccount, find_credential
from windrow.bootstrap.authorities import new_cluster_secrets
from windrow.bootstrap.intent import BadIntent
from windrow.bootstrap.minting import mint_access
from windrow.client.client import Client
from windrow.clusters import actions as do
from windrow.clusters import names
from windrow.clusters.actions import Action
from windrow.clusters.guests import Guests, Link
from windrow.clusters.intents import build_intent, build_spec, find_distribution, find_revision
from windrow.clusters.journal import Journal
from windrow.clusters.kinds import CLUSTER, MACHINE
from windrow.clusters.ledger import Ledger
from windrow.clusters.observe import Harvesters, Memo
from windrow.clusters.plan import Plan
from windrow.clusters.records import Machine, render_machine
from windrow.clusters.registries import RegistrySecretMissing, resolve_registries
from windrow.clusters.sealed import (
    GUEST_KUBECONFIG,
    CredentialMissing,
    Sealed,
    encoded,
    render_kubeconfig_secret,
    render_secrets,
)
from windrow.clusters.seen import MachineSeen, Seen, Trouble
from windrow.clusters.status import held_sentence
from windrow.harvester.names import CLUSTER_UID
from windrow.kube import requests
from windrow.kube.conditions import Condition, find_condition, set_condition
from windrow.kube.errors import Conflict, Exists, KubeError, NotAllowed, NotFound, Throttled, Unanswered
from windrow.kube.kubeconfig import render_kubeconfig
from windrow.kube.objects import Raw, annotations_of, dig, finalizers_of, uid_of, version_of
from windrow.kube.refs import CONFIG_MAP, NODE, POD, SECRET, Ref
from windrow.machines.port import InfrastructureUnknown, MachineRefused, Machines, Power, planned_memory
from windrow.values.chance import Chance
from windrow.values.clock import Clock, stamp

log = logging.getLogger(__name__)

# The kubeconfig for people, and after what time it is made anew.
PEOPLE_FOR = timedelta(days=365)
RENEW_AFTER = timedelta(days=245)
VIP = CONFIG_MAP.ref("vip", "harvester-system")
API_PORT = 6443
MOST_AT_ONCE = 8
_QUIET = (do.GrantAccess, do.Evict, do.Claim, do.RecordAccount)  # no event: too many, or of no interest


class Lost(Exception):
    """A compare-and-swap was lost: somebody else decided meanwhile. The next look shows it."""


class Carrier:
    """Carries out plans for one manager."""

    def __init__(
        self,
        api: Client,
        clusters: Ledger[Raw],
        machines: Ledger[Machine],
        secrets: Ledger[Sealed],
        infrastructure: Machines,
        harvesters: Harvesters,
        guests: Guests,
        clock: Clock,
        chance: Chance,
        memo: Memo,
        proxy: str = "",
    ) -> None:
        self._api = api
        self._clusters = clusters
        self._machines = machines
        self._secrets = secrets
        self._infrastructure = infrastructure
        self._harvesters = harvesters
        self._guests = guests
        self._clock = clock
        self._chance = chance
        self._memo = memo
        self._proxy = proxy
        self._journal = Journal(api, clock, chance)
        self._verbs: dict[type[Action], Callable[[Any, Seen], Awaitable[None]]] = {
            do.Claim: self._claim,
            do.MakeSecrets: self._make_secrets,
            do.RecordAccount: self._record_account,
            do.GrantAccess: self._grant_access,
            do.Enlist: self._enlist,
            do.Elect: self._elect,
            do.Initialize: self._initialize,
            do.Publish: self._publish,
            do.RevokeAccess: self._revoke_access,
            do.ForgetSecrets: self._forget_secrets,
            do.LetGo: self._let_go,
            do.Order: self._order,
            do.Start: self._start,
            do.Label: self._label,
            do.Scrub: self._scrub,
            do.Retire: self._retire,
            do.Cordon: self._cordon,
            do.Evict: self._evict,
            do.LeaveEtcd: self._leave_etcd,
            do.Remove: self._remove,
            do.ForgetNode: self._forget_node,
            do.Release: self._release,
        }

    async def carry_out(self, plan: Plan, seen: Seen) -> dict[str, Trouble]:
        """Do what is planned; what broke is returned by subject. One subject's trouble does not stop the others."""
        troubles: dict[str, Trouble] = {}
        await self._lane("", [action for action in plan.actions if not action.subject], seen, troubles)
        rest: dict[str, list[Action]] = {}
        for action in plan.actions:
            if action.subject:
                rest.setdefault(action.subject, []).append(action)
        free = asyncio.Semaphore(MOST_AT_ONCE)

        async def one(subject: str, lane: list[Action]) -> None:
            async with free:
                await self._lane(subject, lane, seen, troubles)

        async with asyncio.TaskGroup() as group:
            for subject, lane in rest.items():
                group.create_task(one(subject, lane))
        return troubles

    async def _lane(self, subject: str, lane: list[Action], seen: Seen, troubles: dict[str, Trouble]) -> None:
        for action in lane:
            log.info("%s/%s: %s", seen.cluster.namespace, seen.cluster.name, action)
            try:
                await self._verbs[type(action)](action, seen)
            except Lost:
                return
            except Exception as error:
                troubles[subject] = self._trouble(action, error)
                return
            await self._tell(action, seen)

    def _trouble(self, action: Action, error: Exception) -> Trouble:
        now = self._clock.now()
        match error:
            case InfrastructureUnknown() | CredentialMissing() | RegistrySecretMissing() | BadIntent():
                return Trouble(error.fact, error.cure, now)
            case MachineRefused():
                first, *rest = error.problems
                more = f" (and {len(rest)} more)" if rest else ""
                return Trouble(f"{first.fact}{more}", first.cure, now)
            case KubeError():
                log.warning("%s: %s", action, error)
                return Trouble(f"{action.reason} failed: {error}", "it is tried again", now)
            case _:
                log.exception("%s", action, exc_info=error)
                return Trouble(
                    f"{action.reason} failed: {error!r}", "this is a defect; please report it", now
                )

    async def _tell(self, action: Action, seen: Seen) -> None:
        if isinstance(action, _QUIET):
            return
        machine = self._find(action, seen)
        if isinstance(action, do.Remove) and machine is not None and machine.removal_ordered is not None:
            return  # the order is repeated
        if machine is not None and machine.record.raw:
            await self._journal.note(MACHINE, machine.record.raw, action.reason, action.because)
        subject = f"{action.subject}: " if action.subject else ""
        await self._journal.note(CLUSTER, seen.cluster.raw, action.reason, f"{subject}{action.because}")

    async def tell_held(self, plan: Plan, seen: Seen) -> None:
        """An event for each repair that is newly held; the condition tells of those that were held before."""
        before = find_condition(seen.standing.raw.get("conditions"), "RepairAllowed")
        for held in plan.held:
            sentence = held_sentence(held)
            if held.disruption.kind != "replace" or (before is not None and sentence in before.message):
                continue
            machine = next(
                (machine for machine in seen.machines if machine.name == held.disruption.machine), None
            )
            if machine is not None and machine.record.raw:
                await self._journal.note(MACHINE, machine.record.raw, "RepairHeld", held.because, "Warning")
            await self._journal.note(CLUSTER, seen.cluster.raw, "RepairHeld", sentence, "Warning")

    # -- small things --------------------------------------------------------------------------------------------

    @staticmethod
    def _find(action: Action, seen: Seen) -> MachineSeen | None:
        return next((machine for machine in seen.machines if machine.name == action.subject), None)

    def _get(self, action: Action, seen: Seen) -> MachineSeen:
        machine = self._find(action, seen)
        if machine is None:
            raise Lost
        return machine

    def _ref(self, seen: Seen) -> Ref:
        return CLUSTER.ref(seen.cluster.name, seen.cluster.namespace)

    async def _write_status(self, seen: Seen, change: Raw) -> None:
        self._clusters.wrote(await self._api.patch(self._ref(seen), {"status": change}, "status"))

    async def write_cluster_status(self, seen: Seen, change: Raw) -> None:
        """Merge `change` into the Cluster's status."""
        if change:
            await self._write_status(seen, change)

    async def write_machine_status(self, machine: Machine, change: Raw) -> None:
        """Merge `change` into the Machine's status. A record that is gone needs none."""
        if not change:
            return
        try:
            raw = await self._api.patch(machine.ref, {"status": change}, "status")
        except NotFound:
            return
        self._machines.wrote(raw)

    def _link(self, seen: Seen) -> Link:
        link = self._guests.find(seen.cluster.uid)
        if link is None:
            raise Lost
        return link

    async def _change_node(self, seen: Seen, node: str, change: Raw) -> None:
        link = self._link(seen)
        link.nodes.wrote(await link.client.patch(NODE.ref(node), change))

    async def _change_finalizers(self, ref: Ref, uid: str, *, add: str = "", drop: str = "") -> Raw | None:
        """With the object as it is now, since others may add theirs meanwhile. None when it is gone."""
        raw = await self._api.find(ref)
        if raw is None or uid_of(raw) != uid:
            return None
        before = finalizers_of(raw)
        after = [name for name in before if name != drop] + ([add] if add and add not in before else [])
        if after == before:
            return raw
        return await self._api.patch(
            ref, {"metadata": {"finalizers": after, "resourceVersion": version_of(raw)}}
        )

    # -- the cluster ---------------------------------------------------------------------------------------------

    async def _claim(self, action: do.Claim, seen: Seen) -> None:
        raw = await self._change_finalizers(self._ref(seen), seen.cluster.uid, add=names.CLUSTER_FINALIZER)
        if raw is None:
            raise Lost
        self._clusters.wrote(raw)

    async def _make_secrets(self, action: do.MakeSecrets, seen: Seen) -> None:
        raw = render_secrets(seen.cluster, new_cluster_secrets(self._clock.now()))
        await self._create_owned(raw, seen)

    async def _create_owned(self, raw: Raw, seen: Seen) -> None:
        """Create a Secret of ours. One of the same name that belonged to a namesake before us is removed first."""
        ref = SECRET.ref(raw["metadata"]["name"], seen.cluster.namespace)
        try:
            self._secrets.wrote(await self._api.create(SECRET, raw))
        except Exists:
            found = await self._api.get(ref)
            owner = annotations_of(found).get(CLUSTER_UID)
            if owner == seen.cluster.uid:
                self._secrets.wrote(found)
                return
            if not owner:
                raise CredentialMissing(
                    f"a Secret {ref.namespace}/{ref.name} exists that is not ours", "rename or remove it"
                ) from None
            await self._api.delete(ref, uid=uid_of(found))
            self._secrets.wrote(await self._api.create(SECRET, raw))

    async def _record_account(self, action: do.RecordAccount, seen: Seen) -> None:
        account = {
            "namespace": action.namespace,
            "serviceAccount": action.account,
            "credential": action.credential,
        }
        await self._write_status(seen, {"guestAccess": account})

    async def _grant_access(self, action: do.GrantAccess, seen: Seen) -> None:
        recorded = seen.standing.account
        namespace = recorded.namespace if recorded else seen.cluster.vm_namespace
        credential = recorded.credential if recorded else seen.cluster.credential
        name = recorded.name if recorded else seen.cluster.name
        account = GuestAccount(name, namespace, seen.cluster.uid)
        client = self._harvesters.get_client(credential)
        last = await client.find(account.refs[-1])
        if last is None or not account.is_mine(
            last
        ):  # they are made in order, so the last one stands for all
            await _make_account(client, account)
        server = await self._guest_server(client, credential)
        text = find_credential(await client.get(account.token), server, namespace)
        if text is not None:
            ref = SECRET.ref(names.secrets_name(seen.cluster.name), seen.cluster.namespace)
            self._secrets.wrote(await self._api.patch(ref, {"data": {GUEST_KUBECONFIG: encoded(text)}}))

    async def _guest_server(self, client: Client, credential: str) -> str:
        """Harvester as guests reach it: its VIP, else the address that we use ourselves. Never by our proxy."""
        try:
            found = await client.find(VIP)
        except KubeError as error:
            log.info("the VIP of Harvester cannot be read (%s); guests get the credential's address", error)
            found = None
        address = dig(found, "data", "ip", default="") if found else ""
        return f"https://{address}:{API_PORT}" if address else self._harvesters.get_access(credential).server

    async def _enlist(self, action: do.Enlist, seen: Seen) -> None:
        pool = seen.cluster.find_pool(action.pool)
        if pool is None:
            raise Lost
        version = seen.standing.version or seen.cluster.version
        for _ in range(5):
            name = self._new_name(seen, action.pool)
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
                made = await self._api.create(MACHINE, raw)
            except Exists:
                continue
            except Unanswered:
                # It may stand there all the same; a second one would be one too many.
                await self._machines.refresh(
                    self._api, seen.cluster.namespace, f"{names.CLUSTER_NAME}={seen.cluster.name}"
                )
                raise
            self._machines.wrote(made)
            return
        raise Lost

    def _new_name(self, seen: Seen, pool: str) -> str:
        """`<cluster>-<pool>-<5>-<5>`; the first five are the pool's, the same for all its machines."""
        stem = Chance(f"{seen.cluster.uid}/{pool}").suffix()
        return f"{seen.cluster.name}-{pool}-{stem}-{self._chance.suffix()}"

    async def _elect(self, action: do.Elect, seen: Seen) -> None:
        raw = await self._api.find(self._ref(seen))
        if raw is None or uid_of(raw) != seen.cluster.uid:
            raise Lost
        holder = dig(raw, "status", "firstServer", "uid", default="")
        if holder != action.instead_of or dig(raw, "status", "initialized", default=False):
            self._clusters.wrote(raw)
            raise Lost
        change = {
            "metadata": {"resourceVersion": version_of(raw)},
            "status": {
                "firstServer": {"name": action.machine, "uid": action.uid},
                "version": self._get(action, seen).record.version,
            },
        }
        try:
            self._clusters.wrote(await self._api.patch(self._ref(seen), change, "status"))
        except Conflict as error:
            raise Lost from error

    async def _initialize(self, action: do.Initialize, seen: Seen) -> None:
        await self._write_status(seen, {"initialized": True})

    async def _publish(self, action: do.Publish, seen: Seen) -> None:
        if seen.secrets is None:
            raise Lost
        proxy = self.find_proxy(seen)
        now = self._clock.now()
        access = mint_access(seen.secrets, action.server, now, PEOPLE_FOR, proxy, "windrow-admin")
        text = render_kubeconfig(access, seen.cluster.name)
        raw = render_kubeconfig_secret(seen.cluster, text, action.server, now + RENEW_AFTER)
        ref = SECRET.ref(names.kubeconfig_name(seen.cluster.name), seen.cluster.namespace)
        try:
            self._secrets.wrote(await self._api.create(SECRET, raw))
        except Exists:
            found = await self._api.get(ref)
            if not annotations_of(found).get(CLUSTER_UID):
                raise CredentialMissing(
                    f"a Secret {ref.namespace}/{ref.name} exists that is not ours", "rename or remove it"
                ) from None
            change = {"metadata": {"annotations": raw["metadata"]["annotations"]}, "data": raw["data"]}
            self._secrets.wrote(await self._api.patch(ref, change))

    def find_proxy(self, seen: Seen) -> str:
        """The proxy through which machines on this Harvester are reached, "" for none."""
        if self._proxy:
            return self._proxy
        try:
            return self._harvesters.get_access(seen.cluster.credential).proxy_url
        except CredentialMissing:
            return ""

    async def _revoke_access(self, action: do.RevokeAccess, seen: Seen) -> None:
        recorded = seen.standing.account
        if recorded is None:
            return
        account = GuestAccount(recorded.name, recorded.namespace, seen.cluster.uid)
        client = self._harvesters.get_client(recorded.credential)
        for ref in reversed(account.refs):
            found = await client.find(ref)
            if found is not None and account.is_mine(found):
                await _delete(client, ref, uid_of(found))

    async def _forget_secrets(self, action: do.ForgetSecrets, seen: Seen) -> None:
        for name in (names.kubeconfig_name(seen.cluster.name), names.secrets_name(seen.cluster.name)):
            ref = SECRET.ref(name, seen.cluster.namespace)
            found = await self._api.find(ref)
            if found is not None and annotations_of(found).get(CLUSTER_UID) == seen.cluster.uid:
                await _delete(self._api, ref, uid_of(found))

    async def _let_go(self, action: do.LetGo, seen: Seen) -> None:
        self._guests.close(seen.cluster.uid)
        raw = await self._change_finalizers(self._ref(seen), seen.cluster.uid, drop=names.CLUSTER_FINALIZER)
        if raw is not None:
            self._clusters.wrote(raw)

    # -- one machine ---------------------------------------------------------------------------------------------

    async def _order(self, action: do.Order, seen: Seen) -> None:
        machine = self._get(action, seen).record
        spec = build_spec(seen.cluster, machine, await self._document(machine, seen))
        if machine.memory is None:
            await self.write_machine_status(machine, {"memory": dict(planned_memory(spec))})
        memory = await self._infrastructure.ensure(spec, machine.memory)
        await self.write_machine_status(machine, {"memory": dict(memory)})

    async def _document(self, machine: Machine, seen: Seen) -> str:
        pool = seen.cluster.find_pool(machine.pool)
        if pool is None or seen.secrets is None:
            raise Lost
        registries = await resolve_registries(self._api, seen.cluster.namespace, seen.cluster.registries)
        cluster = replace(seen.cluster, registries=registries)
        intent = build_intent(cluster, pool, machine, seen.secrets, seen.access.credential)
        return find_distribution(machine.version).render(intent)

    async def _start(self, action: do.Start, seen: Seen) -> None:
        machine = self._get(action, seen).record
        change = {"starts": machine.starts + 1, "lastStart": stamp(self._clock.now())}
        await self.write_machine_status(machine, change)
        await self._infrastructure.power(machine.memory or {}, Power.ON)

    async def _label(self, action: do.Label, seen: Seen) -> None:
        record = self._get(action, seen).record
        labels = {names.NODE_ROLE_WORKER: "true"} if names.WORKER_ROLE in _role_labels(record) else {}
        change = {"labels": labels, "annotations": {names.APPLIED_REVISION: record.revision or "unknown"}}
        await self._change_node(seen, action.node, {"metadata": change})

    async def _scrub(self, action: do.Scrub, seen: Seen) -> None:
        machine = self._get(action, seen).record
        document = find_distribution(machine.version).scrub(await self._document(machine, seen))
        memory = await self._infrastructure.rewrite(machine.memory or {}, document)
        done = Condition("Scrubbed", "True", "Joined", "what it reads at its next start holds no secrets")
        conditions = set_condition(machine.conditions, done, self._clock.now())
        await self.write_machine_status(machine, {"conditions": conditions, "memory": dict(memory)})

    async def _retire(self, action: do.Retire, seen: Seen) -> None:
        machine = self._get(action, seen).record
        try:
            raw = await self._api.delete(machine.ref, uid=machine.uid)
        except (NotFound, Conflict):
            return
        if raw.get("kind") == MACHINE.kind:
            self._machines.wrote(raw)

    async def _cordon(self, action: do.Cordon, seen: Seen) -> None:
        await self._change_node(seen, action.node, {"spec": {"unschedulable": True}})

    async def _evict(self, action: do.Evict, seen: Seen) -> None:
        client = self._link(seen).client
        for namespace, name in action.pods:
            ref = POD.ref(name, namespace)
            body = {
                "apiVersion": "policy/v1",
                "kind": "Eviction",
                "metadata": {"name": name, "namespace": namespace},
            }
            try:
                await client.call(requests.create_sub(ref, "eviction", body))
            except (NotFound, Throttled):
                continue  # gone already, or held by a disruption budget: it is asked again
            except NotAllowed:
                await _delete(client, ref)

    async def _leave_etcd(self, action: do.LeaveEtcd, seen: Seen) -> None:
        change = {"metadata": {"annotations": {names.ETCD_REMOVE: "true"}}}
        await self._change_node(seen, action.node, change)

    async def _remove(self, action: do.Remove, seen: Seen) -> None:
        machine = self._get(action, seen).record
        if machine.memory is None:
            return
        self._infrastructure.watch_over(machine.memory)
        await self._infrastructure.remove(machine.memory, frozenset())
        self._memo.removals[machine.uid] = self._clock.now()

    async def _forget_node(self, action: do.ForgetNode, seen: Seen) -> None:
        client = self._link(seen).client
        await _delete(client, NODE.ref(action.node))
        await _delete(client, SECRET.ref(names.password_secret(action.node), "kube-system"))

    async def _release(self, action: do.Release, seen: Seen) -> None:
        machine = self._get(action, seen).record
        raw = await self._change_finalizers(machine.ref, machine.uid, drop=names.MACHINE_FINALIZER)
        if raw is not None:
            self._machines.wrote(raw)
        self._memo.removals.pop(machine.uid, None)


def _role_labels(machine: Machine) -> set[str]:
    return {names.WORKER_ROLE for role in machine.roles if role.value == "worker"}


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


async def _delete(client: Client, ref: Ref, uid: str = "") -> None:
    try:
        await client.delete(ref, uid=uid)
    except (NotFound, Conflict):
        return


def trouble_lasts(before: Trouble | None, now: Trouble) -> Trouble:
    """The same trouble keeps its date."""
    if before is not None and (before.fact, before.cure) == (now.fact, now.cure):
        return before
    return now


def earliest(*instants: datetime | None) -> datetime | None:
    return min((instant for instant in instants if instant is not None), default=None)
