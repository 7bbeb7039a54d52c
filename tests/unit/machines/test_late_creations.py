"""A VM that Harvester makes after the request of a foreign driver has ended without an answer, and after its removal."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest
from tests.contract.harvester_rig import HarvesterRig
from tests.stories.harvester_rig import (
    IMAGE,
    a_harvester,
    a_vm,
    eventually,
    has_address,
    is_gone,
    order,
    shows,
)
from tests.support.clock import run_driven

from windrow.core.rng import Rng
from windrow.emulator import kinds
from windrow.emulator.harvester import Harvester
from windrow.harvester.identity import owner_annotations
from windrow.harvester.names import GUEST_CLUSTER, MACHINE_UID
from windrow.kubernetes.errors import AlreadyExists
from windrow.kubernetes.objects import annotations_of, nested, uid_of
from windrow.kubernetes.resources import SECRET
from windrow.machines.dispatch import DriverDispatch
from windrow.machines.harvester.machines import HarvesterMachines
from windrow.machines.plugin.machines import PluginMachines
from windrow.machines.plugin.ownership import SEEN_UID_KEY
from windrow.machines.plugin.poller import PollIntervals
from windrow.machines.plugin.process.client import DriverError, Plugin
from windrow.machines.plugin.tracked_machine import load_tracked_machine
from windrow.machines.port import DriverConfig, InfrastructureUnknown, MachineRefused, MachineSpec
from windrow.machines.status_store import StatusStore
from windrow.protocols import dockermachine as wire

NAME = "c1-pool1-abcde-fghij"
SPEC = MachineSpec(
    NAME, "m-1", "c1", "cluster-1", "fleet-default:cc", {"vmNamespace": "default"}, "#cloud-config\n"
)
FLAGS = tuple(
    wire.Flag("string", f"harvester-{name}", "", "", "")
    for name in ("cloud-config", "cluster-name", "vm-namespace")
)


class Gateway:
    """What lies between the driver and Harvester: it may end the driver's connection at each creation of a VM, and pass
    the request on `late_s` afterwards."""

    def __init__(self, harvester: Harvester) -> None:
        self.harvester, self.api = harvester, harvester.api.local()
        self.late_s: float | None = None
        self.answers_after_s = 0.0
        self.slow_s = 0.0  # before the VM is made
        self.repeats = False
        self.made_again: dict[str, Any] = {}
        self.disk: dict[str, Any] = {"storage_class": "longhorn-jammy"}  # which does not exist, so no VM runs
        self.posts: list[asyncio.Task[Any]] = []
        self.unreadable_uid = ""
        self.reported: int | None = None  # the state that the driver reports in any case

    async def create_vm(self, raw: dict[str, Any]) -> dict[str, Any]:
        if self.repeats:
            await self.api.create(kinds.VM, raw)
            raise DriverError(
                "Create", f'virtualmachines.kubevirt.io "{raw["metadata"]["name"]}" already exists'
            )
        await asyncio.sleep(self.slow_s)
        if self.late_s is None:
            return dict(await self.api.create(kinds.VM, raw))
        self.posts.append(asyncio.create_task(self._pass_on(raw, self.late_s + self.answers_after_s)))
        await asyncio.sleep(self.answers_after_s)
        text = 'Post "https://192.0.2.1/apis/kubevirt.io/v1/namespaces/default/virtualmachines": read tcp: connection reset by peer'
        raise DriverError("Create", text)

    async def _pass_on(self, raw: dict[str, Any], after_s: float) -> None:
        await asyncio.sleep(after_s)
        with suppress(AlreadyExists):  # an earlier one was carried out
            await self.api.create(kinds.VM, raw)


class GoDriver:
    """A plugin that acts on Harvester as the Go driver does: it annotates nothing, and its Secret follows the VM."""

    pid = 1

    def __init__(self, gateway: Gateway, config: bytes | None) -> None:
        self._gateway, self._api = gateway, gateway.api
        self._config: dict[str, Any] = json.loads(config) if config else {}

    async def get_extensions(self) -> frozenset[str]:
        return frozenset()

    async def get_flags(self) -> tuple[wire.Flag, ...]:
        return FLAGS

    async def set_flags(self, values: Mapping[str, Any]) -> None:
        self._config |= {
            "ClusterName": values["harvester-cluster-name"],
            "VMNamespace": values["harvester-vm-namespace"],
        }

    async def set_config(self, raw: bytes) -> None:
        self._config |= json.loads(raw)

    async def get_driver_config(self) -> dict[str, Any]:
        go_keys = ("MachineName", "VMNamespace", "ClusterName")
        return {key: self._config[key] for key in go_keys if key in self._config}

    @property
    def _name(self) -> str:
        return str(self._config["MachineName"])

    async def call(self, method: str, value: Any = None) -> Any:
        return await cast(Callable[[], Awaitable[Any]], getattr(self, f"_{method}"))()

    async def _PreCreateCheck(self) -> None:
        if await self._api.find(kinds.VM.ref(self._name, "default")) is not None:
            raise DriverError("PreCreateCheck", f"machine {self._name} already exists in namespace default")

    async def _Create(self) -> None:
        labels = {GUEST_CLUSTER: self._config["ClusterName"]}
        raw = a_vm(self._name, secret=f"{self._name}-cloudinit", labels=labels, **self._gateway.disk)
        made = await self._gateway.create_vm(raw)
        owner = {
            "apiVersion": "kubevirt.io/v1",
            "kind": "VirtualMachine",
            "name": self._name,
            "uid": uid_of(made),
        }
        metadata = {"name": f"{self._name}-cloudinit", "namespace": "default", "ownerReferences": [owner]}
        await self._api.create(SECRET, {"metadata": metadata, "data": {"userdata": "I2Nsb3VkLWNvbmZpZwo="}})

    async def _GetState(self) -> int:
        if await self._api.find(kinds.VM.ref(self._name, "default")) is None:
            raise DriverError("GetState", f'virtualmachines.kubevirt.io "{self._name}" not found')
        if uid_of(await self._api.get(kinds.VM.ref(self._name, "default"))) == self._gateway.unreadable_uid:
            raise DriverError("GetState", "the VM has no template")
        if self._gateway.reported is not None:
            return self._gateway.reported
        vmi = await self._api.find(kinds.VMI.ref(self._name, "default"))
        if vmi is None:
            return wire.STOPPED
        return wire.RUNNING if nested(vmi, "status", "phase") == "Running" else wire.STARTING

    async def _GetIP(self) -> str:
        vmi = await self._api.get(kinds.VMI.ref(self._name, "default"))
        return str(nested(vmi, "status", "interfaces", 0, "ipAddress") or "")

    async def _Remove(self) -> None:
        ref = kinds.VM.ref(self._name, "default")
        if await self._api.find(ref) is not None:
            await self._api.delete(ref)
            await eventually(self._gateway.harvester, ref, is_gone)
            if raw := self._gateway.made_again.pop("raw", None):
                await self._api.create(kinds.VM, raw)
            await eventually(
                self._gateway.harvester, ref, is_gone
            )  # it waits for the name, as it knows no uid


class Site:
    """An emulated Harvester, the gateway before it, and hosts with the driver in one process."""

    def __init__(self, harvester: Harvester, folder: Path) -> None:
        self.rig, self.gateway, self._folder = HarvesterRig(harvester), Gateway(harvester), folder
        self.api, self.clock = harvester.api.local(), harvester.clock.base

    @asynccontextmanager
    async def host(self, state: str = "state") -> AsyncIterator[PluginMachines]:
        async def no_fields(driver: str, credential: str) -> Mapping[str, str]:
            raise AssertionError

        machines = PluginMachines(
            lambda _: Path("/driver"),
            self.rig.credential,
            no_fields,
            self._folder / state,
            self.clock,
            Rng(5),
            env={},
            connect=self.rig.dial,
            intervals=PollIntervals(create_accept_s=5, other_accept_s=3),
        )
        async with asyncio.TaskGroup() as tasks:
            running = tasks.create_task(machines.run())
            yield machines
            running.cancel()

    async def vm(self) -> Mapping[str, Any] | None:
        return await self.api.find(kinds.VM.ref(NAME, "default"))

    async def arrived(self) -> None:
        """Every creation that was held has reached Harvester."""
        await asyncio.gather(*self.gateway.posts)

    async def create(
        self, machines: PluginMachines, planned: DriverConfig, *, tries: int = 8
    ) -> DriverConfig:
        """The machine is asked for until it is there, as by a manager."""
        for _ in range(tries):
            try:
                return await machines.ensure(SPEC, planned)
            except (InfrastructureUnknown, MachineRefused):
                await asyncio.sleep(5)
        raise AssertionError("it is not created")

    async def remove(self, machines: PluginMachines, config: DriverConfig) -> None:
        await machines.remove(config, frozenset())
        for _ in range(600):
            status = machines.statuses().get("m-1")
            if status is None or status.presence == "missing":
                return
            await asyncio.sleep(1)
        raise AssertionError("it is not removed")


Story = Callable[[Site], Awaitable[None]]


@pytest.fixture
def play(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[Story], None]:
    def run(story: Story) -> None:
        async def staged() -> None:
            async with a_harvester() as harvester:
                site = Site(harvester, tmp_path)

                @asynccontextmanager
                async def open_driver(
                    path: Path, *_: Any, config: bytes | None, **__: Any
                ) -> AsyncIterator[Plugin]:
                    yield cast(Plugin, GoDriver(site.gateway, config))

                monkeypatch.setattr("windrow.machines.plugin.launcher.open_plugin", open_driver)
                await story(site)

        run_driven(staged())

    return run


async def begin_late(site: Site, machines: PluginMachines, late_s: float = 20) -> DriverConfig:
    """A creation was requested and not answered; it is carried out `late_s` later."""
    planned = await machines.plan(SPEC)
    site.gateway.late_s = late_s
    with pytest.raises(InfrastructureUnknown, match="could not reach the infrastructure") as raised:
        await machines.ensure(SPEC, planned)
    assert raised.value.may_be_made
    return planned


@pytest.mark.parametrize(("tries", "restarted"), [(1, False), (2, True)])
def test_a_vm_that_was_made_late_is_deleted_with_its_machine(play: Any, tries: int, restarted: bool) -> None:
    async def story(site: Site) -> None:
        async with site.host() as machines:
            planned = await begin_late(site, machines)
            for _ in range(1, tries):
                with pytest.raises(InfrastructureUnknown):
                    await machines.ensure(SPEC, planned)
            await site.arrived()
            if not restarted:
                await site.remove(machines, planned)
        if restarted:
            async with site.host() as machines:
                await site.remove(machines, planned)
        assert await site.vm() is None

    play(story)


def test_a_vm_that_was_made_late_is_made_anew_since_its_driver_wrote_no_secret_for_it(play: Any) -> None:
    async def story(site: Site) -> None:
        async with site.host() as machines:
            planned = await begin_late(site, machines)
            with pytest.raises(InfrastructureUnknown):
                await machines.ensure(SPEC, planned)  # finds nothing yet, and is not answered either
            await site.arrived()
            late = await site.vm()
            site.gateway.late_s = None

            config = await site.create(machines, planned)

            made = await site.vm()
            assert late is not None
            assert made is not None
            assert config[SEEN_UID_KEY] == uid_of(made) != uid_of(late)
            assert await site.api.find(SECRET.ref(f"{NAME}-cloudinit", "default")) is not None

    play(story)


def test_a_vm_that_was_made_after_a_removal_found_none_is_deleted_by_the_next_one(play: Any) -> None:
    async def story(site: Site) -> None:
        async with site.host() as machines:
            planned = await begin_late(site, machines)
            await site.remove(machines, planned)
            await site.arrived()
            assert await site.vm() is not None

            await machines.remove(planned, frozenset())
            assert await site.vm() is None

    play(story)


def test_a_driver_that_repeats_its_request_finds_its_own_vm(play: Any) -> None:
    """The first request was carried out, its answer was lost, and the second one in the same Create is told so."""

    async def story(site: Site) -> None:
        async with site.host() as machines:
            planned = await machines.plan(SPEC)
            site.gateway.repeats = True
            with pytest.raises(MachineRefused, match="already exists"):
                await machines.ensure(SPEC, planned)
            site.gateway.repeats = False

            config = await site.create(machines, planned)
            made = await site.vm()
            assert made is not None
            assert config[SEEN_UID_KEY] == uid_of(made)
            await site.remove(machines, config)
            assert await site.vm() is None

    play(story)


@pytest.mark.parametrize("during_the_removal", [False, True])
def test_a_vm_that_is_made_late_beside_one_that_was_answered_goes_with_the_machine(
    play: Any, during_the_removal: bool
) -> None:
    async def story(site: Site) -> None:
        async with site.host() as machines:
            planned = await begin_late(site, machines, late_s=3600)
            site.gateway.late_s = None
            config = await site.create(machines, planned)
            made = await site.vm()
            assert made is not None
            assert config[SEEN_UID_KEY] == uid_of(made)

            again = a_vm(NAME, labels={GUEST_CLUSTER: "c1"})
            if during_the_removal:
                site.gateway.made_again["raw"] = again
                with pytest.raises(InfrastructureUnknown, match="was made again while its driver removed it"):
                    await machines.remove(config, frozenset())
            else:
                await site.remove(machines, config)
                await site.api.create(kinds.VM, again)
        async with site.host() as machines:
            await site.remove(machines, config)
            assert await site.vm() is None

    play(story)


@pytest.mark.parametrize("deleted", [False, True])
def test_a_vm_that_is_made_again_while_its_driver_removes_it_holds_nothing_up(
    play: Any, deleted: bool
) -> None:
    async def story(site: Site) -> None:
        async with site.host() as machines:
            planned = await begin_late(site, machines)
            await site.arrived()
            site.gateway.made_again["raw"] = a_vm(NAME, labels={GUEST_CLUSTER: "c1"})
            site.gateway.late_s = None
            async with asyncio.timeout(120):
                if deleted:
                    with pytest.raises(
                        InfrastructureUnknown, match="was made again while its driver removed it"
                    ):
                        await machines.remove(planned, frozenset())
                    await site.remove(machines, planned)
                    assert await site.vm() is None
                else:
                    config = await site.create(machines, planned)
                    made = await site.vm()
                    assert made is not None
                    assert config[SEEN_UID_KEY] == uid_of(made)

    play(story)


def test_a_deletion_does_not_wait_for_what_precedes_a_creation(play: Any) -> None:
    """The driver is not called for a new VM before it has removed the late one."""

    async def story(site: Site) -> None:
        async with site.host() as machines:
            planned = await begin_late(site, machines)
            await site.arrived()
            ref = kinds.VM.ref(NAME, "default")
            await site.api.patch(ref, {"metadata": {"finalizers": ["example.com/hold"]}})
            site.gateway.late_s = None
            creating = asyncio.create_task(machines.ensure(SPEC, planned))
            await asyncio.sleep(2)
            assert nested(await site.vm(), "metadata", "deletionTimestamp")

            await machines.remove(planned, frozenset())
            with pytest.raises(InfrastructureUnknown, match="was cancelled") as raised:
                await creating
            assert not raised.value.may_be_made
            await site.api.patch(ref, {"metadata": {"finalizers": []}})
            await site.remove(machines, planned)
            assert await site.vm() is None

    play(story)


@pytest.mark.parametrize(
    ("metadata", "came_late"),
    [
        ({"labels": {GUEST_CLUSTER: "c2"}}, False),
        ({"labels": {GUEST_CLUSTER: "c2"}}, True),
        ({"labels": {GUEST_CLUSTER: "c1"}, **owner_annotations("cluster-2", "m-1")}, True),
    ],
)
def test_a_vm_of_another_under_the_name_is_neither_adopted_nor_deleted(
    play: Any, metadata: dict[str, Any], came_late: bool
) -> None:
    async def story(site: Site) -> None:
        async with site.host() as machines:
            planned = await begin_late(site, machines, late_s=5) if came_late else await machines.plan(SPEC)
            another = await site.api.create(kinds.VM, a_vm(NAME, storage_class="longhorn-jammy", **metadata))
            await site.arrived()
            site.gateway.late_s = None
            for _ in range(2):
                with pytest.raises(MachineRefused, match="already exists in namespace default"):
                    await machines.ensure(SPEC, planned)
            await site.remove(machines, planned)

        found = await site.vm()
        assert found is not None
        assert (uid_of(found), nested(found, "metadata", "deletionTimestamp")) == (uid_of(another), None)

    play(story)


def test_a_removal_says_that_the_creation_it_waited_for_was_not_answered(play: Any) -> None:
    """Its caller has stopped waiting for that creation, and learns only so that the VM may come after the removal."""

    async def story(site: Site) -> None:
        site.gateway.answers_after_s = 20
        async with site.host() as machines:
            site.gateway.late_s = 10
            planned = await machines.plan(SPEC)
            with pytest.raises(InfrastructureUnknown, match="is not visible yet"):
                await machines.ensure(SPEC, planned)
            await machines.remove(planned, frozenset())  # it goes on, and its end is not waited for
            await asyncio.sleep(20)
            assert machines.statuses().get("m-1") is None

            with pytest.raises(InfrastructureUnknown, match="which may be made yet") as raised:
                await machines.remove(planned, frozenset())
            assert raised.value.may_be_made
            await site.remove(machines, planned)
            await site.arrived()
            await machines.remove(planned, frozenset())
            assert await site.vm() is None

    play(story)


async def make_a_vm_that_works(site: Site) -> DriverConfig:
    """The plan of its machine, which a restored state still has."""
    image = await site.api.get(kinds.IMAGE.ref("jammy", "default"))
    site.gateway.disk = {"storage_class": image["status"]["storageClassName"], "image": IMAGE}
    async with site.host() as machines:
        planned = await machines.plan(SPEC)
        await site.create(machines, planned)
    await eventually(site.gateway.harvester, kinds.VMI.ref(NAME, "default"), has_address)
    return planned


def test_a_vm_that_runs_is_adopted_also_where_its_secret_is_gone(play: Any) -> None:
    """It has read the Secret when it started; the plan is of a restored state."""

    async def story(site: Site) -> None:
        planned = await make_a_vm_that_works(site)
        before = await site.vm()
        await site.api.delete(SECRET.ref(f"{NAME}-cloudinit", "default"))

        async with site.host("restored") as machines:
            config = await site.create(machines, planned)

        after = await site.vm()
        assert before is not None
        assert after is not None
        assert config[SEEN_UID_KEY] == uid_of(after) == uid_of(before)

    play(story)


def test_a_vm_whose_state_its_driver_cannot_read_and_that_cannot_start_is_made_anew(play: Any) -> None:
    async def story(site: Site) -> None:
        async with site.host() as machines:
            planned = await machines.plan(SPEC)
            await site.create(machines, planned)
        before = await site.vm()
        assert before is not None
        await site.api.delete(SECRET.ref(f"{NAME}-cloudinit", "default"))
        site.gateway.unreadable_uid = uid_of(before)

        async with site.host("restored") as machines:
            config = await site.create(machines, planned)

        after = await site.vm()
        assert after is not None
        assert config[SEEN_UID_KEY] == uid_of(after) != uid_of(before)

    play(story)


@pytest.mark.parametrize("unreadable", [False, True])
def test_a_stopped_vm_that_has_worked_is_not_made_anew_where_its_secret_is_gone(
    play: Any, unreadable: bool
) -> None:
    async def story(site: Site) -> None:
        planned = await make_a_vm_that_works(site)
        before = await site.vm()
        assert before is not None
        await order(site.gateway.harvester, "stop", NAME)
        await eventually(site.gateway.harvester, kinds.VM.ref(NAME, "default"), shows("Stopped"))
        await site.api.delete(SECRET.ref(f"{NAME}-cloudinit", "default"))
        site.gateway.unreadable_uid = uid_of(before) if unreadable else ""

        async with site.host("restored") as machines:
            for _ in range(2):
                with pytest.raises(InfrastructureUnknown) as raised:
                    await machines.ensure(SPEC, planned)
            after = await site.vm()
            assert after is not None
            assert (uid_of(after), nested(after, "metadata", "deletionTimestamp")) == (uid_of(before), None)

        expected = f"VirtualMachine default/{NAME} exists and does not run, and Secret {NAME}-cloudinit, which it starts with, does not exist"
        if not unreadable:
            assert expected in str(raised.value)
        assert "it has run, for it bears the annotation harvesterhci.io/mac-address" in str(raised.value)
        assert f"create Secret {NAME}-cloudinit" in raised.value.hint or unreadable
        assert f"delete VirtualMachine default/{NAME}" in raised.value.hint

    play(story)


def test_a_vm_that_has_worked_and_failed_is_adopted(play: Any) -> None:
    async def story(site: Site) -> None:
        planned = await make_a_vm_that_works(site)
        before = await site.vm()
        site.gateway.reported = wire.ERROR

        async with site.host("restored") as machines:
            config = await site.create(machines, planned)

        after = await site.vm()
        assert before is not None
        assert after is not None
        assert config[SEEN_UID_KEY] == uid_of(after) == uid_of(before)

    play(story)


# -- Windrow's own driver takes its place back while the program that had it creates a machine


@asynccontextmanager
async def a_dispatch(
    site: Site, machines: PluginMachines, in_place: set[str]
) -> AsyncIterator[tuple[DriverDispatch, HarvesterMachines]]:
    store = cast(StatusStore, machines.statuses())
    own = HarvesterMachines(site.rig.credential, site.rig.dial, site.clock, Rng(7), store=store)
    async with asyncio.TaskGroup() as tasks:
        running = tasks.create_task(own.run())
        yield DriverDispatch({"harvester": own}, machines, store, in_place.__contains__), own
        running.cancel()


@pytest.mark.parametrize("restarted", [False, True])
def test_a_machine_is_handed_back_only_when_its_create_has_ended(play: Any, restarted: bool) -> None:
    """Else two programs make one VM, and neither knows whose it is."""

    async def story(site: Site) -> None:
        in_place = {"harvester"}
        async with site.host() as machines, a_dispatch(site, machines, in_place) as (dispatch, own):
            planned = await dispatch.plan(SPEC)
            site.gateway.slow_s = 30
            with pytest.raises(InfrastructureUnknown, match="is creating machine"):
                await dispatch.ensure(SPEC, planned)
            in_place.clear()
            dispatch.hand_back("harvester")
            with pytest.raises(InfrastructureUnknown, match="is creating machine"):
                await dispatch.ensure(SPEC, planned)
            assert await site.vm() is None
            await asyncio.sleep(60)

            if restarted:  # and what was created is not recorded
                dispatch = DriverDispatch(
                    {"harvester": own},
                    machines,
                    cast(StatusStore, machines.statuses()),
                    in_place.__contains__,
                )
            with pytest.raises(InfrastructureUnknown, match="was created by a docker-machine driver"):
                await dispatch.remove(planned, frozenset())
            made = await dispatch.ensure(SPEC, planned)
            assert made["WindrowVMUID"] == "harvester:m-1"
            assert MACHINE_UID not in annotations_of(await site.vm() or {})
            status = machines.statuses().get("m-1")
            assert status is not None
            assert "was created by a docker-machine driver" in status.because

    play(story)


@pytest.mark.parametrize("recorded", [False, True])
def test_nothing_of_a_machine_that_was_handed_back_stays_at_the_plugin_host(
    play: Any, tmp_path: Path, recorded: bool
) -> None:
    async def story(site: Site) -> None:
        in_place, folder = {"harvester"}, tmp_path / "state" / "m-1"
        async with site.host() as machines, a_dispatch(site, machines, in_place) as (dispatch, _):
            made = await dispatch.ensure(SPEC, await dispatch.plan(SPEC))
            in_place.clear()
            dispatch.hand_back("harvester")
            assert folder.exists()  # its config may not be recorded yet
            if recorded:
                dispatch.track(made)
                assert not folder.exists()
            await site.api.delete(kinds.VM.ref(NAME, "default"))
            await asyncio.sleep(60)
            await dispatch.remove(made, frozenset())
            assert not folder.exists()

    play(story)


def test_a_machine_whose_creation_windrows_own_program_began_goes_on_with_windrows_own_adapter(
    play: Any, tmp_path: Path
) -> None:
    async def story(site: Site) -> None:
        in_place = {"harvester"}
        async with site.host() as machines, a_dispatch(site, machines, in_place) as (dispatch, _):
            options = {
                "vmNamespace": "default",
                "diskInfo": '{"disks":[{"imageName":"default/jammy","bootOrder":1,"size":40}]}',
                "networkInfo": '{"interfaces":[{"networkName":"default/vlan50"}]}',
            }
            spec = replace(SPEC, options=options)
            begun = dict(await dispatch.plan(spec))
            load_tracked_machine(tmp_path / "state", begun).save(begun, create_started=True)
            in_place.clear()

            made = await dispatch.ensure(spec, begun)
            assert annotations_of(await site.vm() or {})[MACHINE_UID] == "m-1"
            assert made["WindrowVMUID"] == uid_of(await site.vm() or {})

    play(story)
