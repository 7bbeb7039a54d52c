"""What is made, replaced and deleted of a cluster on Harvester beside its VMs: the guest's ServiceAccount, what the guest had made."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from dataclasses import dataclass, replace
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from tests.support.clock import LoopClock, run_driven
from tests.unit.clusters.builders import NOON, SERVER, a_cluster, a_pool, look
from tests.unit.clusters.test_cluster import a_raw_cluster

from windrow.apiserver.server import ApiServer
from windrow.apiserver.storage.memory import MemoryStore
from windrow.app.embedded import management_api
from windrow.bootstrap.guest_account import GuestAccount
from windrow.bootstrap.pki import new_cluster_secrets
from windrow.client.client import Client
from windrow.client.informer import Informer
from windrow.client.mutation_cache import MutationCache
from windrow.clusters.api.kinds import CLUSTER, MACHINE
from windrow.clusters.api.names import secrets_name
from windrow.clusters.api.secrets import GUEST_KUBECONFIG
from windrow.clusters.api.status import GuestServiceAccount, RecordedStatus, ReservedName
from windrow.clusters.context import ProcessState, ReconcileContext, StalePlan
from windrow.clusters.execute.cluster_actions import ClusterActions
from windrow.clusters.orphans import MachineClaim, OrphanVm
from windrow.clusters.plan import actions as do
from windrow.clusters.sources.volumes.guest_volumes import VolumeClaim
from windrow.clusters.state import ClusterState
from windrow.core.clock import format_time
from windrow.core.pki import read_certificate
from windrow.core.rng import Rng
from windrow.core.text import encode_base64
from windrow.harvester.names import CLUSTER_UID
from windrow.harvester.unanswered import LATEST
from windrow.kubernetes.errors import Conflict, OutcomeUnknown
from windrow.kubernetes.kubeconfig import ClientConfig, parse_kubeconfig
from windrow.kubernetes.objects import Raw, is_deleting, name_of, nested, new_object, secret_texts
from windrow.kubernetes.requests import Reply, Request
from windrow.kubernetes.resources import CONFIG_MAP, NAMESPACE, PVC, SECRET

REF = CLUSTER.ref("prod", "fleet-default")
KEPT = SECRET.ref(secrets_name("prod"), "fleet-default")
CREATE, RECREATE = (
    do.CreateServiceAccount("the guest needs one"),
    do.RecreateServiceAccount("lost", ("s1", "s2")),
)
DELETE = do.DeleteServiceAccount("the Cluster is deleted")
POOL = a_pool("servers", 3, SERVER)
SIGNER = new_cluster_secrets(NOON).server_ca.certificate
UNUSED: Any = None


@dataclass
class Site:
    """A management API with the Cluster and its Secret, and a Harvester."""

    actions: ClusterActions
    management: Client
    harvester: Client
    process: ProcessState
    clock: LoopClock
    state: ClusterState
    asked: list[Any]  # the places to which a connection was opened, verified

    @property
    def account(self) -> GuestAccount:
        return GuestAccount("prod", "default", self.state.cluster.uid)

    async def status(self) -> Raw:
        return dict(nested(await self.management.get(REF), "status", default={}))

    async def made(self) -> list[bool]:
        """Of each object of the account whether it is there."""
        return [await self.harvester.find(ref) is not None for ref in self.account.refs]

    async def kept(self) -> str | None:
        return secret_texts(await self.management.get(KEPT)).get(GUEST_KUBECONFIG)

    async def issue_token(self) -> None:
        """As Harvester's token controller does."""
        data = {"token": encode_base64("t0ken"), "ca.crt": encode_base64(SIGNER)}
        await self.harvester.patch(self.account.token, {"data": data})

    def with_account(self, **recorded: Any) -> ClusterState:
        account = GuestServiceAccount("default", "prod", "ns:cc", **recorded)
        status = replace(self.state.recorded, service_account=account)
        return replace(self.state, cluster=replace(self.state.cluster, recorded=status))


def on_a_site(story: Callable[[Site], Coroutine[Any, Any, None]]) -> None:
    async def main() -> None:
        clock = LoopClock(NOON)
        server = management_api(MemoryStore(), clock, Rng(1))
        await server.prepare()
        api = Client(server.local())
        await api.create(NAMESPACE, new_object(NAMESPACE, "fleet-default"))
        raw = await api.create(CLUSTER, a_raw_cluster())
        await api.create(SECRET, new_object(SECRET, KEPT.name, KEPT.namespace))
        there = ApiServer(MemoryStore(), clock, Rng(2))
        await there.prepare()
        harvester = Client(there.local())

        def cache(kind: Any) -> Any:
            informer = Informer(server.local(), kind, "", lambda one: one, clock, Rng(3))
            return MutationCache(informer, lambda one: one["metadata"]["resourceVersion"], clock)

        asked: list[Any] = []

        async def verified(account: Any, namespace: str) -> Client:
            asked.append(account)
            return harvester

        clients: Any = SimpleNamespace(
            get_verified_client=verified,
            get_client=lambda credential, namespace: harvester,
            get_config=lambda credential, namespace: ClientConfig("https://10.9.9.9:6443"),
            find_proxy=lambda credential, namespace: "",
        )
        process = ProcessState()
        context = ReconcileContext(
            api, cache(CLUSTER), cache(MACHINE), cache(SECRET), clock, Rng(4), UNUSED, process_state=process
        )
        guests: Any = SimpleNamespace(find=lambda uid: None, close=lambda uid: None)
        cluster = replace(a_cluster(POOL, raw=raw), uid=raw["metadata"]["uid"])
        actions = ClusterActions(context, clients, guests)
        await story(Site(actions, api, harvester, process, clock, look(cluster), asked))

    run_driven(main())


# -- the guest's ServiceAccount


def test_the_account_of_a_guest_is_made_once_and_its_kubeconfig_kept_when_its_token_is_issued() -> None:
    async def story(site: Site) -> None:
        await site.actions.create_service_account(CREATE, site.state)
        assert (await site.made(), await site.kept()) == ([True] * 4, None)
        uids = [(await site.harvester.get(ref))["metadata"]["uid"] for ref in site.account.refs]

        await site.issue_token()
        await site.actions.create_service_account(CREATE, site.with_account())
        assert [(await site.harvester.get(ref))["metadata"]["uid"] for ref in site.account.refs] == uids
        access = parse_kubeconfig(await site.kept() or "")
        assert (access.server, access.token, access.namespace) == (
            "https://10.9.9.9:6443",
            "t0ken",
            "default",
        )

    on_a_site(story)


def test_a_guest_reaches_harvester_by_its_vip_where_that_can_be_read() -> None:
    async def story(site: Site) -> None:
        await site.harvester.create(NAMESPACE, new_object(NAMESPACE, "harvester-system"))
        vip = new_object(CONFIG_MAP, "vip", "harvester-system", data={"ip": "10.0.0.100"})
        await site.harvester.create(CONFIG_MAP, vip)
        await site.actions.create_service_account(CREATE, site.state)
        await site.issue_token()
        await site.actions.create_service_account(CREATE, site.state)

        assert parse_kubeconfig(await site.kept() or "").server == "https://10.0.0.100:6443"

    on_a_site(story)


def test_what_others_have_deleted_of_an_account_is_made_again() -> None:
    async def story(site: Site) -> None:
        for ref in site.account.refs:
            await site.actions.create_service_account(CREATE, site.state)
            await site.harvester.delete(ref)
            await site.actions.create_service_account(CREATE, site.state)
            assert await site.made() == [True] * 4, ref

    on_a_site(story)


def test_an_account_of_another_cluster_of_the_name_is_not_used_and_has_the_preflight_repeated() -> None:
    async def story(site: Site) -> None:
        theirs = replace(site.account, cluster_uid="another")
        kind, raw = theirs.render_objects()[1]
        await site.harvester.create(kind, raw)

        with pytest.raises(StalePlan):
            await site.actions.create_service_account(CREATE, site.state)

        assert site.process.account_taken == {site.state.cluster.uid}
        assert await site.made() == [True, True, False, False]
        assert await site.kept() is None

    on_a_site(story)


class LosesAnswers:
    """A Harvester whose answers to creations are lost."""

    def __init__(self, site: Site) -> None:
        self._transport = site.harvester.transport

    async def send(self, request: Request) -> Reply:
        reply = await self._transport.send(request)
        if request.method == "POST":
            raise OutcomeUnknown("the connection was lost")
        return reply


def test_an_account_whose_creation_was_not_answered_may_come_later() -> None:
    async def story(site: Site) -> None:
        unanswered, uid = site.process.unanswered, site.state.cluster.uid
        transport: Any = LosesAnswers(site)

        async def verified(account: Any, namespace: str) -> Client:
            return Client(transport)

        site.actions._harvesters.get_verified_client = verified  # type: ignore[method-assign]
        unanswered.on_recorded(uid)
        assert unanswered.find_end(uid, was_observed=False) is None
        with pytest.raises(OutcomeUnknown):
            await site.actions.create_service_account(CREATE, site.state)

        assert unanswered.find_end(uid, was_observed=False) == site.clock.monotonic() + LATEST

    on_a_site(story)


def test_an_account_is_made_again_by_deleting_its_own_token_and_forgetting_the_kubeconfig() -> None:
    async def story(site: Site) -> None:
        await site.actions.create_service_account(CREATE, site.state)
        await site.issue_token()
        await site.actions.create_service_account(CREATE, site.state)
        assert await site.kept()

        await site.actions.recreate_service_account(RECREATE, site.with_account())

        assert (await site.made(), await site.kept()) == ([True, False, True, True], None)
        assert (await site.status())["guestServiceAccount"]["earlierToken"] == ["s1", "s2"]

        theirs = {"metadata": {"annotations": {CLUSTER_UID: "another"}}}
        await site.actions.create_service_account(CREATE, site.state)
        await site.harvester.patch(site.account.token, theirs)
        await site.actions.recreate_service_account(RECREATE, site.with_account())
        assert await site.made() == [True] * 4

        with pytest.raises(StalePlan):
            await site.actions.recreate_service_account(RECREATE, site.state)

    on_a_site(story)


def test_at_its_end_what_is_its_own_of_an_account_is_deleted() -> None:
    async def story(site: Site) -> None:
        await site.actions.create_service_account(CREATE, site.state)
        theirs = site.account.refs[2]
        await site.harvester.patch(theirs, {"metadata": {"annotations": {CLUSTER_UID: "another"}}})

        await site.actions.delete_service_account(DELETE, site.state)
        assert await site.made() == [True] * 4, "none is recorded"
        for _ in range(2):  # it may be repeated
            await site.actions.delete_service_account(DELETE, site.with_account())
            assert await site.made() == [False, False, True, False]

    on_a_site(story)


def test_before_an_account_is_made_it_is_recorded_where_and_on_which_harvester() -> None:
    async def story(site: Site) -> None:
        identity = (await site.harvester.get(NAMESPACE.ref("kube-system")))["metadata"]["uid"]
        action = do.RecordServiceAccount("the guest needs one", "default", "prod", "ns:cc")
        await site.actions.record_service_account(action, site.state)

        status = await site.status()
        assert status["guestServiceAccount"] == {
            "namespace": "default",
            "serviceAccount": "prod",
            "credential": "ns:cc",
            "harvester": identity,
        }
        assert status["harvesterUID"] == identity
        assert site.asked == [GuestServiceAccount("default", "prod", "ns:cc", site.state.harvester_uid)]

    on_a_site(story)


@pytest.mark.parametrize("is_same", [True, False])
def test_the_harvester_of_a_cluster_is_recorded_where_the_credential_leads_to_it(is_same: bool) -> None:
    async def story(site: Site) -> None:
        identity = (await site.harvester.get(NAMESPACE.ref("kube-system")))["metadata"]["uid"]
        recorded = replace(site.state.recorded, harvester_uid=identity if is_same else "another")
        state = replace(site.state, cluster=replace(site.state.cluster, recorded=recorded))
        action = do.RecordHarvester("only its fingerprint is known", "ns:cc")
        if not is_same:
            with pytest.raises(StalePlan):
                await site.actions.record_harvester(action, state)
        else:
            await site.actions.record_harvester(action, state)

        assert (await site.status()).get("harvesterUID") == (identity if is_same else None)

    on_a_site(story)


# -- the names of machines, and their records


def test_names_are_reserved_beside_those_that_are_and_none_twice() -> None:
    async def story(site: Site) -> None:
        before = (ReservedName("servers", "servers-one"),)
        recorded = replace(site.state.recorded, creating=before)
        cluster = replace(site.state.cluster, recorded=recorded)
        state = look(cluster, reserved=False)
        await site.actions.reserve_machine_names(
            do.ReserveMachineNames("three are missing", (("servers", 3),)), state
        )

        creating = (await site.status())["creating"]
        assert creating[0] == {"pool": "servers", "name": "servers-one"}
        assert [one["pool"] for one in creating] == ["servers"] * 4
        assert len({one["name"] for one in creating}) == 4
        with pytest.raises(StalePlan):
            await site.actions.reserve_machine_names(
                do.ReserveMachineNames("one is missing", (("gone", 1),)), state
            )

    on_a_site(story)


def test_a_machine_that_an_unanswered_attempt_has_made_is_not_made_twice_and_one_that_has_the_name_is_not_adopted() -> (
    None
):
    async def story(site: Site) -> None:
        create = do.CreateMachine("one is missing", "servers", "s1", "https://10.0.0.1:9345")
        vm = OrphanVm("default", "s1", "vm-1", "uid-s1")
        adopt = do.AdoptVM("it is its own", vm, "servers", "https://10.0.0.1:9345")
        ref = MACHINE.ref("s1", "fleet-default")
        await site.actions.create_machine(create, site.state)
        uid = (await site.management.get(ref))["metadata"]["uid"]
        await site.actions.create_machine(create, site.state)
        with pytest.raises(StalePlan):
            await site.actions.adopt_vm(adopt, site.state)
        assert (await site.management.get(ref))["metadata"]["uid"] == uid
        assert nested(await site.management.get(ref), "spec", "joinServer") == "https://10.0.0.1:9345"
        assert site.actions._context.machines.get(ref) is not None, "it is known before the watch shows it"

        adopt = replace(adopt, vm=replace(vm, name="s2", machine_uid="uid-s2"))
        await site.actions.adopt_vm(adopt, site.state)
        adopted = await site.management.get(MACHINE.ref("s2", "fleet-default"))
        assert nested(adopted, "spec", "machineUID") == "uid-s2"
        assert nested(adopted, "spec", "joinServer") == "https://10.0.0.1:9345"
        assert site.actions._context.machines.get(MACHINE.ref("s2", "fleet-default")) is not None
        for action in (replace(create, pool="gone"), replace(adopt, pool="gone")):
            with pytest.raises(StalePlan):
                await (
                    site.actions.create_machine(action, site.state)
                    if isinstance(action, do.CreateMachine)
                    else site.actions.adopt_vm(action, site.state)
                )

    on_a_site(story)


# -- at the end of a cluster


def test_only_the_very_claims_that_were_decided_about_are_deleted() -> None:
    async def story(site: Site) -> None:
        claims: dict[str, str] = {}
        for name in ("disk", "volume", "namesake"):
            raw = await site.harvester.create(PVC, a_claim(name))
            claims[name] = raw["metadata"]["uid"]
        state = site.with_account()
        machine = MachineClaim("default", "disk", "uid-s1", "u", uid=claims["disk"])
        await site.actions.delete_unrecorded_claims(
            do.DeleteUnrecordedClaims("no VM uses it", (machine,)), state
        )
        volume = VolumeClaim("default", "volume", claims["volume"])
        await site.actions.delete_volumes(do.DeleteVolumes("it asks for it", (volume,)), state)
        other = replace(volume, name="namesake", uid="another")
        with pytest.raises(Conflict):
            await site.actions.delete_volumes(do.DeleteVolumes("it asks for it", (other,)), state)

        found = [await site.harvester.get(PVC.ref(name, "default")) for name in claims]
        assert [name_of(raw) for raw in found if not is_deleting(raw)] == ["namesake"]

    on_a_site(story)


def a_claim(name: str) -> Raw:
    spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    return new_object(PVC, name, "default", spec=spec)


def test_where_it_is_not_known_where_a_cluster_was_nothing_is_deleted() -> None:
    async def story(site: Site) -> None:
        newborn = replace(site.state, cluster=replace(site.state.cluster, recorded=RecordedStatus()))
        for attempt in (
            site.actions.delete_unrecorded_claims(do.DeleteUnrecordedClaims("no VM uses it", ()), newborn),
            site.actions.delete_volumes(do.DeleteVolumes("it asks for it", ()), newborn),
            site.actions.delete_load_balancers(do.DeleteLoadBalancers("no Service", ()), newborn),
        ):
            with pytest.raises(StalePlan):
                await attempt
        assert site.asked == []

    on_a_site(story)


def test_the_kubeconfig_for_people_lasts_a_year_and_is_renewed_after_two_thirds_of_it() -> None:
    async def story(site: Site) -> None:
        publish = do.PublishKubeconfig("it answers", "https://10.0.0.1:6443")
        with pytest.raises(StalePlan):
            await site.actions.publish_kubeconfig(publish, replace(site.state, secrets=None))
        state = replace(site.state, secrets=new_cluster_secrets(NOON))
        await site.actions.publish_kubeconfig(publish, state)

        texts = secret_texts(await site.management.get(SECRET.ref("prod-kubeconfig", "fleet-default")))
        assert texts["renew-after"] == format_time(NOON + timedelta(days=245))
        access = parse_kubeconfig(texts["value"])
        assert read_certificate(access.certificate).not_after == NOON + timedelta(days=365)

    on_a_site(story)
