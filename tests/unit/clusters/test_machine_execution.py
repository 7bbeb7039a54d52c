"""What the actions on one Machine write: in the management API, in the guest, and to the infrastructure."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from tests.support.clock import LoopClock, run_driven
from tests.support.fake_machines import HARVESTER as IN_MEMORY
from tests.support.fake_machines import MemoryMachines
from tests.unit.clusters.builders import NOON, SERVER, a_cluster, a_pool, look
from tests.unit.clusters.test_cluster import a_raw_cluster

from windrow.apiserver.server import ApiServer
from windrow.apiserver.storage.memory import MemoryStore
from windrow.app.embedded import management_api
from windrow.bootstrap.pki import new_cluster_secrets
from windrow.client.client import Client
from windrow.client.informer import Informer
from windrow.client.mutation_cache import MutationCache
from windrow.clusters.api.kinds import CLUSTER, MACHINE
from windrow.clusters.api.machine import read_machine, render_machine
from windrow.clusters.api.names import CREDENTIAL_KEY, MACHINE_FINALIZER
from windrow.clusters.api.secrets import SecretData
from windrow.clusters.api.status import GuestServiceAccount, RecordedStatus
from windrow.clusters.context import ProcessState, ReconcileContext, StalePlan
from windrow.clusters.execute.machine_actions import MachineActions
from windrow.clusters.orphans import OrphanVm
from windrow.clusters.plan import actions as do
from windrow.clusters.state import ClusterState, MachineState
from windrow.core.clock import format_time
from windrow.core.rng import Rng
from windrow.core.stamps import ObservedStamps
from windrow.harvester.unanswered import LATEST
from windrow.kubernetes.errors import MethodNotAllowed, NotFound, TooManyRequests
from windrow.kubernetes.objects import Raw, annotations_of, finalizers_of, name_of, nested, new_object
from windrow.kubernetes.requests import Request
from windrow.kubernetes.resources import NAMESPACE, NODE, POD, SECRET, ObjectRef
from windrow.machines.port import InfrastructureUnknown, MachineRefused, ReplaceUserDataUnsupported

POOL = a_pool("servers", 1, SERVER)
REF = MACHINE.ref("s1", "fleet-default")
CREDENTIAL = SecretData(
    "ns", "cc", allowed_namespaces=frozenset({"fleet-default"}), data={CREDENTIAL_KEY: "kubeconfig"}
)
UNUSED: Any = None
PROVISION, START = do.ProvisionVM("it is due", "s1"), do.StartVM("it is stopped", "s1")
SCRUB, DELETE = do.ScrubBootstrapData("it has joined", "s1"), do.DeleteMachine("it is lost", "s1")
DELETE_VM = do.DeleteVM("its Machine is deleted", "s1")


class Guest:
    """A guest's API. `refused` answers each eviction of the pod of that name."""

    def __init__(self, client: Client) -> None:
        self.client = self
        self._client = client
        self.refused: dict[str, Exception] = {}
        self.evicted: list[Mapping[str, Any]] = []

    async def find(self, ref: ObjectRef) -> Any:
        return await self._client.find(ref)

    async def delete(self, ref: ObjectRef, uid: str = "", grace_s: int | None = None) -> Any:
        return await self._client.delete(ref, uid=uid, grace_s=grace_s)

    async def patch_node(self, name: str, change: Mapping[str, Any]) -> None:
        await self._client.patch(NODE.ref(name), change)

    async def call(self, request: Request) -> None:
        name = request.path.split("/")[-2]
        self.evicted.append({"path": request.path, "body": request.body})
        if error := self.refused.get(name):
            raise error


@dataclass
class Site:
    actions: MachineActions
    management: Client
    machines: MemoryMachines
    guest_api: Client
    guest: Guest
    process: ProcessState
    clock: LoopClock
    cluster: Any

    async def look(self, **recorded: Any) -> ClusterState:
        """The state with the Machine as it is now, with what is yet to be written."""
        record = read_machine(await self.management.get(REF))
        unwritten = self.process.machine_statuses.get(record.uid, {})
        if unwritten:
            record = replace(record, driver_config=unwritten.get("driverConfig", record.driver_config))
        machine = MachineState(record, None)
        state = look(self.cluster, [machine], reserved=False, secrets=SECRETS)
        if not recorded:
            return state
        return replace(state, cluster=replace(state.cluster, recorded=replace(state.recorded, **recorded)))

    async def provision(self) -> ClusterState:
        await self.actions.provision_vm(PROVISION, await self.look())
        return await self.look()

    async def status(self) -> Raw:
        return dict((await self.management.get(REF)).get("status") or {})

    @property
    def unwritten(self) -> dict[str, Any]:
        (found,) = self.process.machine_statuses.values()
        return found


SECRETS = new_cluster_secrets(NOON)
KEY_LINE = SECRETS.server_ca.key.splitlines()[1]


def on_a_site(story: Callable[[Site], Coroutine[Any, Any, None]]) -> None:
    async def main() -> None:
        clock = LoopClock(NOON)
        server = management_api(MemoryStore(), clock, Rng(1))
        await server.prepare()
        api = Client(server.local())
        await api.create(NAMESPACE, new_object(NAMESPACE, "fleet-default"))
        raw = await api.create(CLUSTER, a_raw_cluster())
        cluster = replace(
            a_cluster(POOL, raw=raw, recorded=RecordedStatus(version="v1.35.1+rke2r1")),
            uid=raw["metadata"]["uid"],
        )
        made = render_machine(
            cluster,
            POOL,
            "s1",
            version="v1.35.1+rke2r1",
            config_hash="1",
            join_server="",
            is_init_server=True,
        )
        await api.create(MACHINE, made)
        there = ApiServer(MemoryStore(), clock, Rng(2))
        await there.prepare()
        guest_api = Client(there.local())
        guest = Guest(guest_api)

        def cache(kind: Any, read: Any, version: Any) -> Any:
            return MutationCache(Informer(server.local(), kind, "", read, clock, Rng(3)), version, clock)

        process = ProcessState()
        secrets: Any = {SECRET.ref("cc", "ns"): CREDENTIAL}
        context = ReconcileContext(
            api,
            cache(CLUSTER, lambda one: one, lambda one: one["metadata"]["resourceVersion"]),
            cache(MACHINE, read_machine, lambda one: one.resource_version),
            secrets,
            clock,
            Rng(4),
            ObservedStamps(clock),
            process_state=process,
        )
        machines = MemoryMachines(clock)
        guests: Any = SimpleNamespace(find=lambda uid: guest)
        actions = MachineActions(context, machines, guests)
        await story(Site(actions, api, machines, guest_api, guest, process, clock, cluster))

    run_driven(main())


# -- its VM


def test_what_a_vm_is_made_from_is_recorded_before_it_is_made_and_its_uid_is_learned() -> None:
    async def story(site: Site) -> None:
        site.machines.fail("ensure", InfrastructureUnknown("no answer", "wait"))
        with pytest.raises(InfrastructureUnknown):
            await site.provision()
        recorded = (await site.status())["driverConfig"]
        assert (recorded["MachineName"], recorded.get("WindrowVMUID")) == ("s1", None)
        cluster = await site.management.get(CLUSTER.ref("prod", "fleet-default"))
        assert nested(cluster, "status", "harvesterUID") == IN_MEMORY
        assert site.process.machine_statuses.get(read_machine(await site.management.get(REF)).uid, {}) == {}

        await site.provision()
        assert [call.verb for call in site.machines.calls] == ["plan", "ensure", "ensure"]
        assert site.unwritten["driverConfig"]["WindrowVMUID"]
        assert site.machines.vm_names() == ["s1"]

    on_a_site(story)


def test_a_harvester_that_is_recorded_is_not_recorded_again() -> None:
    async def story(site: Site) -> None:
        site.cluster = replace(site.cluster, recorded=replace(site.cluster.recorded, harvester_uid=IN_MEMORY))
        await site.provision()

        cluster = await site.management.get(CLUSTER.ref("prod", "fleet-default"))
        assert nested(cluster, "status", "harvesterUID") is None

    on_a_site(story)


@pytest.mark.parametrize("may_be_made", [True, False])
def test_a_vm_whose_creation_was_not_answered_may_come_later(may_be_made: bool) -> None:
    async def story(site: Site) -> None:
        unknown = InfrastructureUnknown("no answer", "wait")
        unknown.may_be_made = may_be_made
        site.machines.fail("ensure", unknown)
        await asyncio.sleep(60)
        with pytest.raises(InfrastructureUnknown):
            await site.provision()

        uid = read_machine(await site.management.get(REF)).uid
        end = site.process.unanswered.find_end(uid, was_observed=False)
        assert end == (site.clock.monotonic() + LATEST if may_be_made else None)

    on_a_site(story)


def test_what_an_earlier_process_has_recorded_may_have_been_requested_by_it() -> None:
    async def story(site: Site) -> None:
        site.machines.fail("ensure", InfrastructureUnknown("no answer", "wait"))
        with pytest.raises(InfrastructureUnknown):
            await site.provision()
        site.process.unanswered.begin(site.clock.monotonic())
        await site.provision()

        uid = read_machine(await site.management.get(REF)).uid
        assert site.process.unanswered.find_end(uid, was_observed=False) == site.clock.monotonic() + LATEST

    on_a_site(story)


def test_without_its_pool_or_the_secrets_of_the_cluster_no_vm_is_made() -> None:
    async def story(site: Site) -> None:
        state = await site.look()
        for lacking in (
            replace(state, secrets=None),
            replace(state, cluster=replace(state.cluster, pools=())),
        ):
            with pytest.raises(StalePlan):
                await site.actions.provision_vm(PROVISION, lacking)
        assert site.machines.calls == []

    on_a_site(story)


def test_a_restart_counts_once_it_was_accepted() -> None:
    async def story(site: Site) -> None:
        state = await site.provision()
        site.machines.fail("power", MachineRefused([]))
        with pytest.raises(MachineRefused):
            await site.actions.start_vm(START, state)
        assert "restartCount" not in await site.status()

        site.machines.stop("s1")
        await asyncio.sleep(60)
        await site.actions.start_vm(START, state)
        status = await site.status()
        assert (status["restartCount"], status["lastRestartTime"]) == (
            1,
            format_time(NOON + timedelta(minutes=1)),
        )
        assert site.machines.calls[-1].detail == "on"

        counted = await site.look()
        await site.actions.start_vm(START, counted)
        assert (await site.status())["restartCount"] == 2

    on_a_site(story)


def test_a_machine_is_scrubbed_of_what_it_was_made_with() -> None:
    async def story(site: Site) -> None:
        state = await site.provision()
        before = site.machines.cloud_config("s1")
        await site.actions.scrub_bootstrap_data(SCRUB, state)

        after = site.machines.cloud_config("s1")
        assert KEY_LINE in before
        assert KEY_LINE not in after
        (condition,) = site.unwritten["conditions"]
        assert (condition["type"], condition["status"]) == ("BootstrapDataScrubbed", "True")
        assert site.unwritten["driverConfig"]["WindrowVMUID"]

    on_a_site(story)


def test_a_machine_whose_driver_cannot_scrub_it_says_so_and_is_not_scrubbed() -> None:
    async def story(site: Site) -> None:
        state = await site.provision()
        site.machines.fail("replace_user_data", ReplaceUserDataUnsupported("it cannot", "guard it"))
        with pytest.raises(StalePlan):
            await site.actions.scrub_bootstrap_data(SCRUB, state)

        (condition,) = site.unwritten["conditions"]
        assert (condition["status"], condition["reason"]) == ("False", "NotSupported")
        assert "it cannot" in condition["message"]

    on_a_site(story)


def test_a_vm_is_removed_and_when_that_was_requested_is_kept() -> None:
    async def story(site: Site) -> None:
        await site.actions.delete_vm(DELETE_VM, await site.look())
        assert site.machines.calls == [], "nothing was ever requested for it"

        state = await site.provision()
        unknown = InfrastructureUnknown("no answer", "wait")
        unknown.may_be_made = True
        site.machines.fail("remove", unknown)
        with pytest.raises(InfrastructureUnknown):
            await site.actions.delete_vm(DELETE_VM, state)
        uid = state.machines[0].record.uid
        assert site.process.unanswered.find_end(uid, was_observed=False) == site.clock.monotonic() + LATEST
        assert site.process.deletion_requested == {}

        await asyncio.sleep(60)
        await site.actions.delete_vm(DELETE_VM, state)
        assert site.process.deletion_requested == {uid: timedelta(minutes=1)}
        assert site.machines.vm_names() == []

    on_a_site(story)


def test_vms_that_no_machine_records_are_removed_as_those_of_this_cluster_on_its_harvester() -> None:
    async def story(site: Site) -> None:
        action = do.DeleteUnrecordedVMs("no Machine", (OrphanVm("default", "w9", "vm-9", "uid-9"),))
        with pytest.raises(StalePlan):
            await site.actions.delete_unrecorded_vms(action, await site.look())
        assert site.machines.calls == []

        account = GuestServiceAccount("default", "prod", "ns:cc", IN_MEMORY)
        begun = await site.look(initialized=True, service_account=account)
        await site.actions.delete_unrecorded_vms(action, begun)
        assert [(call.verb, call.machine) for call in site.machines.calls] == [("remove", "w9")]

        elsewhere = replace(account, harvester="another")
        with pytest.raises(InfrastructureUnknown):
            await site.actions.delete_unrecorded_vms(
                action, await site.look(initialized=True, service_account=elsewhere)
            )

    on_a_site(story)


# -- its Machine


def test_a_machine_is_deleted_as_it_was_when_that_was_decided() -> None:
    async def story(site: Site) -> None:
        state = await site.look()
        await site.management.patch(REF, {"status": {"phase": "Ready"}}, "status")
        with pytest.raises(StalePlan):
            await site.actions.delete_machine(DELETE, state)
        found = await site.management.get(REF)
        assert nested(found, "metadata", "deletionTimestamp") is None
        shown = site.actions._context.machines.get(REF)
        assert shown is not None
        assert shown.resource_version == found["metadata"]["resourceVersion"]

        await site.actions.delete_machine(DELETE, await site.look())
        shown = site.actions._context.machines.get(REF)
        assert shown is not None
        assert shown.deletion_timestamp == NOON

    on_a_site(story)


def test_at_its_end_the_finalizer_of_a_machine_is_removed_and_one_that_is_gone_needs_nothing() -> None:
    async def story(site: Site) -> None:
        state = await site.look()
        uid = state.machines[0].record.uid
        await site.management.patch(REF, {"metadata": {"finalizers": [MACHINE_FINALIZER, "theirs/f"]}})
        await site.management.delete(REF)
        site.process.deletion_requested[uid] = timedelta()
        site.process.node_deleted.add(uid)
        action = do.RemoveMachineFinalizer("nothing is left", "s1")

        await site.actions.remove_machine_finalizer(action, state)
        assert finalizers_of(await site.management.get(REF)) == ["theirs/f"]
        assert (site.process.deletion_requested, site.process.node_deleted) == ({}, set())
        shown = site.actions._context.machines.get(REF)
        assert shown is not None

        await site.management.patch(REF, {"metadata": {"finalizers": None}})
        await site.actions.remove_machine_finalizer(action, state)
        await site.actions.delete_machine(DELETE, state)
        assert await site.management.find(REF) is None

    on_a_site(story)


# -- its Node


def test_a_node_is_cordoned_and_its_etcd_member_marked_for_removal() -> None:
    async def story(site: Site) -> None:
        await site.guest_api.create(NODE, new_object(NODE, "s1"))
        state = await site.look()
        await site.actions.cordon_node(do.CordonNode("it goes", "s1", "s1"), state)
        await site.actions.remove_etcd_member(do.RemoveEtcdMember("it goes", "s1", "s1"), state)

        node = await site.guest_api.get(NODE.ref("s1"))
        assert node["spec"]["unschedulable"] is True
        assert annotations_of(node)["etcd.rke2.cattle.io/remove"] == "true"

    on_a_site(story)


def test_each_pod_of_a_node_is_evicted_whatever_is_said_of_the_others() -> None:
    async def story(site: Site) -> None:
        for name in ("a", "b", "c", "d"):
            raw = new_object(POD, name, "default", spec={"containers": [{"name": "c", "image": "i"}]})
            await site.guest_api.create(POD, raw)
        site.guest.refused = {
            "a": NotFound("gone"),
            "b": TooManyRequests("budget"),
            "c": MethodNotAllowed("no evictions here"),
        }
        pods = tuple(("default", name) for name in ("a", "b", "c", "d"))
        await site.actions.evict_pods(do.EvictPods("it goes", "s1", pods), await site.look())

        assert [one["path"] for one in site.guest.evicted] == [
            f"/api/v1/namespaces/default/pods/{name}/eviction" for name in ("a", "b", "c", "d")
        ]
        left = [name_of(raw) for raw in await site.guest_api.list(POD, "default")]
        assert left == ["a", "b", "d"], "where none is served, a pod is deleted"

    on_a_site(story)


@pytest.mark.parametrize(("seconds", "options"), [(None, None), (0, 0), (30, 30)])
def test_a_pod_is_evicted_with_the_grace_period_that_is_asked_for(
    seconds: int | None, options: int | None
) -> None:
    async def story(site: Site) -> None:
        raw = new_object(POD, "a", "default", spec={"containers": [{"name": "c", "image": "i"}]})
        await site.guest_api.create(POD, raw)
        action = do.EvictPods("it goes", "s1", (("default", "a"),), grace_period=seconds)
        await site.actions.evict_pods(action, await site.look())
        (evicted,) = site.guest.evicted
        assert nested(json.loads(evicted["body"]), "deleteOptions", "gracePeriodSeconds") == options

    on_a_site(story)


def test_a_node_goes_with_its_password() -> None:
    async def story(site: Site) -> None:
        secret = SECRET.ref("s1.node-password.rke2", "kube-system")
        state = await site.look()
        uid = state.machines[0].record.uid
        for action in (
            do.DeleteNode("its VM is gone", "s1", "s1"),
            do.DeleteNodePassword("its VM is gone", "s1"),
        ):
            await site.guest_api.create(NODE, new_object(NODE, "s1"))
            await site.guest_api.create(SECRET, new_object(SECRET, secret.name, secret.namespace))
            site.process.node_deleted.clear()
            if isinstance(action, do.DeleteNode):
                await site.actions.delete_node(action, state)
                await site.actions.delete_node(action, state)  # it may be repeated
                assert await site.guest_api.find(NODE.ref("s1")) is None
            else:
                await site.actions.delete_node_password(action, state)
                assert await site.guest_api.find(NODE.ref("s1")) is not None
            assert await site.guest_api.find(secret) is None
            assert site.process.node_deleted == {uid}

    on_a_site(story)
