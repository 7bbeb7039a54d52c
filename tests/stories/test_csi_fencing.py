"""The CSI driver taints a Node whose VM was shut down, where a volume of it is attached to the Node, and no other."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import pytest
from tests.support.clock import run_driven

from windrow.apiserver.server import ApiServer
from windrow.apiserver.storage.memory import MemoryStore
from windrow.client.client import Client
from windrow.core.clock import sleep
from windrow.core.rng import Rng
from windrow.csi.fencing.controller import NodeFencing
from windrow.csi.harvester.nodes import GuestNodes
from windrow.csi.harvester.state import HarvesterState
from windrow.emulator.harvester import Harvester
from windrow.harvester.resources import VM
from windrow.kubernetes.objects import Raw, new_object, uid_of
from windrow.kubernetes.resources import (
    LEASE,
    NODE,
    PERSISTENT_VOLUME,
    POD,
    PVC,
    VOLUME_ATTACHMENT,
    ObjectRef,
)

from .harvester_rig import NAMESPACE, a_harvester, boot, eventually, is_gone, order, vm_ref, vmi_ref

DRIVER = "driver.harvesterhci.io"
VOLUME = "pvc-6f7c7c8e-0b3f-4b5e-9a43-1f0c8a6f0001"
KEY, VALUE = "node.kubernetes.io/out-of-service", "nodeshutdown-by-harvester-csi-driver"


class Rig:
    """A Harvester with VM node-1 and a claim, and a guest with Node node-1, to which that volume is attached."""

    fencing: Any

    def __init__(self, harvester: Harvester, guest: Client) -> None:
        self.harvester, self.guest = harvester, guest
        self.host = harvester.api.local()

    async def begin(
        self,
        *,
        claim: bool = True,
        attacher: str = DRIVER,
        attached_to: str = "node-1",
        provider_id: str | None = None,
        vm_name: str = "node-1",
        recorded: str = "",
        has_hardware: bool = False,
    ) -> None:
        self.vm = vm_name
        await boot(self.harvester, name=vm_name)
        if claim:
            resources = {"requests": {"storage": "1Gi"}}
            spec: Raw = {"accessModes": ["ReadWriteMany"], "volumeMode": "Block", "resources": resources}
            records = {f"attach.csi.windrow.io/{recorded}": "2026-01-01T12:00:00Z p1"} if recorded else {}
            await self.host.create(PVC, new_object(PVC, VOLUME, NAMESPACE, annotations=records, spec=spec))
        vm = await self.host.get(vm_ref(vm_name))
        provider_id = f"harvester://{uid_of(vm)}" if provider_id is None else provider_id
        node = new_object(NODE, "node-1", spec={"providerID": provider_id, "taints": []})
        if has_hardware:
            uuid = (await self.host.get(vmi_ref(vm_name)))["spec"]["domain"]["firmware"]["uuid"]
            node["status"] = {"nodeInfo": {"systemUUID": uuid}}
        await self.guest.create(NODE, node)
        await self.be_ready(True)
        source: Raw = {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"]}
        source["csi"] = {"driver": DRIVER, "volumeHandle": VOLUME}
        await self.guest.create(PERSISTENT_VOLUME, new_object(PERSISTENT_VOLUME, VOLUME, spec=source))
        spec = {"attacher": attacher, "nodeName": attached_to, "source": {"persistentVolumeName": VOLUME}}
        await self.guest.create(VOLUME_ATTACHMENT, new_object(VOLUME_ATTACHMENT, "csi-1", spec=spec))

    async def be_ready(self, ready: bool) -> None:
        condition = {"type": "Ready", "status": str(ready)}
        await self.guest.patch(NODE.ref("node-1"), {"status": {"conditions": [condition]}}, "status")

    async def node(self) -> Raw:
        return await self.guest.get(NODE.ref("node-1"))

    async def is_tainted(self) -> bool:
        return any(one["key"] == KEY for one in (await self.node())["spec"].get("taints") or ())

    async def rest(self, seconds: float = 45) -> None:
        await sleep(self.harvester.clock.base, timedelta(seconds=seconds))

    async def delete_vm(self) -> None:
        await self.host.delete(vm_ref(self.vm))
        await eventually(self.harvester, vmi_ref(self.vm), is_gone)

    async def stop_vm(self) -> None:
        await order(self.harvester, "stop", self.vm)
        await eventually(self.harvester, vmi_ref(self.vm), is_gone)


@asynccontextmanager
async def a_rig(*, without_vm: bool = False, **options: Any) -> AsyncIterator[Rig]:
    async with a_harvester() as harvester:
        clock = harvester.clock.base
        guest = ApiServer(MemoryStore(), clock, Rng(3), name="guest")
        rig = Rig(harvester, Client(guest.local()))
        async with asyncio.TaskGroup() as tasks:
            running = tasks.create_task(guest.run())
            await rig.begin(**options)
            if without_vm:
                await rig.delete_vm()
            log = logging.getLogger("x")
            state = HarvesterState(harvester.api.local(), NAMESPACE, clock, Rng(5))
            nodes = GuestNodes(guest.local(), state, clock, Rng(6), log)
            fencing = NodeFencing(guest.local(), harvester.api.local(), NAMESPACE, nodes, clock, Rng(4), log)
            rig.fencing = fencing
            driver = [tasks.create_task(one.run()) for one in (state, nodes, fencing)]
            await rig.rest(5)
            yield rig
            for task in (*driver, running):
                task.cancel()


def outcome(story: Callable[[Rig], Awaitable[Any]], **options: Any) -> Any:
    async def run() -> Any:
        async with a_rig(**options) as rig:
            return await story(rig)

    return run_driven(run())


def test_a_node_whose_vm_is_deleted_is_tainted_once_it_is_not_ready() -> None:
    async def story(rig: Rig) -> Any:
        await rig.delete_vm()
        await rig.rest()
        early = await rig.is_tainted()
        await rig.be_ready(False)
        await rig.rest(2)
        node = await rig.node()
        lease = await rig.guest.get(LEASE.ref("harvester-csi-node-monitor", "kube-system"))
        return early, node["spec"]["taints"], bool(lease["spec"]["holderIdentity"])

    early, taints, is_held = outcome(story)

    assert not early
    assert [(one["key"], one["value"], one["effect"]) for one in taints] == [(KEY, VALUE, "NoExecute")]
    assert is_held


def test_a_node_whose_vm_is_stopped_is_tainted_and_is_in_service_again_when_it_is_back() -> None:
    async def story(rig: Rig) -> Any:
        await order(rig.harvester, "stop", "node-1")
        await eventually(rig.harvester, vmi_ref("node-1"), is_gone)
        await rig.be_ready(False)
        await rig.rest(15)
        tainted = await rig.is_tainted()
        await order(rig.harvester, "start", "node-1")
        await rig.rest(60)
        starting = await rig.is_tainted()
        await rig.be_ready(True)
        await rig.rest(15)
        return tainted, starting, await rig.is_tainted()

    assert outcome(story) == (True, True, False)


def test_a_node_that_is_not_ready_while_its_vm_runs_is_not_tainted() -> None:
    async def story(rig: Rig) -> bool:
        await rig.be_ready(False)
        await rig.rest()
        return await rig.is_tainted()

    assert outcome(story) is False


@pytest.mark.parametrize(
    "labels",
    [{"vm.kubevirt.io/name": "node-1"}, {"vm.kubevirt.io/name": "web", "harvesterhci.io/vmName": "node-1"}],
    ids=["named-as-the-vm", "named-as-the-guest"],
)
def test_a_launcher_pod_that_outlives_its_instance_is_waited_for(labels: dict[str, str]) -> None:
    async def story(rig: Rig) -> Any:
        spec = {"containers": [{"name": "compute", "image": "launcher"}]}
        marks = {**labels, "kubevirt.io": "virt-launcher"}
        await rig.host.create(POD, new_object(POD, "left", NAMESPACE, labels=marks, spec=spec))
        await rig.delete_vm()
        await rig.be_ready(False)
        await rig.rest()
        before = await rig.is_tainted()
        await rig.host.delete(POD.ref("left", NAMESPACE))
        await rig.rest(15)
        return before, await rig.is_tainted()

    assert outcome(story) == (False, True)


@pytest.mark.parametrize(
    "options",
    [
        {"claim": False},
        {"attacher": "another"},
        {"attached_to": "node-2"},
        {"provider_id": "aws:///i-1"},
    ],
    ids=["no-such-claim-here", "volume-of-another-driver", "volume-elsewhere", "node-of-another-cloud"],
)
def test_a_vm_that_is_not_found_proves_nothing_without_a_volume_of_its_own_there(options: Any) -> None:
    async def story(rig: Rig) -> bool:
        await rig.delete_vm()
        await rig.be_ready(False)
        await rig.rest()
        return await rig.is_tainted()

    assert outcome(story, **options) is False


def test_a_stopped_vm_of_the_name_with_another_uid_is_another_s() -> None:
    async def story(rig: Rig) -> bool:
        await order(rig.harvester, "stop", "node-1")
        await eventually(rig.harvester, vmi_ref("node-1"), is_gone)
        await rig.be_ready(False)
        await rig.rest()
        assert await rig.host.find(VM.ref("node-1", NAMESPACE)) is not None
        return await rig.is_tainted()

    assert outcome(story, provider_id="harvester://another") is False


@pytest.mark.parametrize("value", ["", "nodeshutdown", "nodeshutdown-by-windrow"])
def test_a_taint_of_another_client_stays_whatever_a_kubelet_writes_beside_it(value: str) -> None:
    async def story(rig: Rig) -> bool:
        taint = {"key": KEY, "value": value, "effect": "NoExecute"}
        by = {"windrow.io/out-of-service-by": "harvester-csi-driver"}
        await rig.guest.patch(
            NODE.ref("node-1"), {"metadata": {"annotations": by}, "spec": {"taints": [taint]}}
        )
        await rig.rest()
        return await rig.is_tainted()

    assert outcome(story) is True


@pytest.mark.parametrize(
    "options",
    [{"vm_name": "prod-1"}, {"vm_name": "prod-1", "provider_id": "", "has_hardware": True}],
    ids=["by its providerID", "by its hardware"],
)
def test_a_node_whose_vm_has_another_name_and_runs_is_not_tainted(options: Any) -> None:
    async def story(rig: Rig) -> Any:
        await rig.be_ready(False)
        await rig.rest()
        return (await rig.host.get(vmi_ref("prod-1")))["status"]["phase"], await rig.is_tainted()

    assert outcome(story, **options) == ("Running", False)


@pytest.mark.parametrize("has_provider_id", [True, False])
def test_a_node_whose_vm_has_another_name_is_tainted_while_that_is_stopped(has_provider_id: bool) -> None:
    options: Any = {} if has_provider_id else {"provider_id": "", "has_hardware": True, "recorded": "prod-1"}

    async def story(rig: Rig) -> Any:
        await rig.stop_vm()
        await rig.be_ready(False)
        await rig.rest(15)
        tainted = await rig.is_tainted()
        await order(rig.harvester, "start", "prod-1")
        await rig.rest(60)
        await rig.be_ready(True)
        await rig.rest(15)
        return tainted, await rig.is_tainted()

    assert outcome(story, vm_name="prod-1", **options) == (True, False)


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"without_vm": True}, "it is not known which VirtualMachine it runs in"),
        (
            {"provider_id": "", "has_hardware": True},
            "it is told by its hardware alone that it runs in VirtualMachine node-1",
        ),
        (
            {"provider_id": "", "has_hardware": True, "recorded": "node-2"},
            "it is told by its hardware alone that it runs in VirtualMachine node-1",
        ),
        ({"provider_id": ""}, "it is told by its name alone that it runs in VirtualMachine node-1"),
        ({"claim": False}, "no volume of this driver is attached to it"),
    ],
)
def test_a_node_whose_vm_is_gone_and_was_not_known_for_certain_is_not_tainted_and_the_log_says_why_once(
    options: Any, why: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)

    async def story(rig: Rig) -> Any:
        if not options.get("without_vm"):
            await rig.delete_vm()
        await rig.be_ready(False)
        await rig.rest(70)
        return await rig.is_tainted()

    assert outcome(story, **options) is False
    told = [line for line in caplog.messages if line.startswith("Node node-1")]
    assert told == [f"Node node-1 is not tainted: {why}"]


def test_a_vm_made_again_under_the_name_says_nothing_of_the_one_before() -> None:
    async def story(rig: Rig) -> Any:
        await rig.delete_vm()
        await boot(rig.harvester, name="node-1")
        await rig.stop_vm()
        await rig.be_ready(False)
        await rig.rest()
        return await rig.is_tainted()

    assert outcome(story) is False


def test_a_node_of_another_cloud_is_told_of_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)

    async def story(rig: Rig) -> None:
        await rig.be_ready(False)
        await rig.rest()

    outcome(story, provider_id="rke2://node-1")
    assert "Node node-1 is never tainted: its providerID is rke2://node-1" in caplog.messages


def test_a_node_that_is_ready_by_the_time_of_the_proof_is_not_tainted() -> None:
    async def story(rig: Rig) -> Any:
        await rig.stop_vm()
        find = rig.fencing._host.find

        async def ready_meanwhile(ref: ObjectRef) -> Raw | None:
            await rig.be_ready(True)
            rig.fencing._host.find = find
            return await find(ref)

        rig.fencing._host.find = ready_meanwhile
        await rig.be_ready(False)
        await rig.rest(15)
        return await rig.is_tainted()

    assert outcome(story) is False


def test_a_node_that_reports_before_its_vm_runs_stays_out_of_service_until_it_does(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)

    async def story(rig: Rig) -> Any:
        await order(rig.harvester, "stop", "node-1")
        await eventually(rig.harvester, vmi_ref("node-1"), is_gone)
        await rig.be_ready(False)
        await rig.rest(15)
        await rig.be_ready(True)
        await rig.rest(2)
        without = await rig.is_tainted()
        await order(rig.harvester, "start", "node-1")
        await eventually(rig.harvester, vmi_ref("node-1"), lambda raw: raw is not None)
        await rig.be_ready(False)
        await rig.be_ready(True)
        await rig.rest(0.5)
        starting = await rig.is_tainted()
        await rig.rest(90)
        return without, starting, await rig.is_tainted()

    assert outcome(story) == (True, True, False)
    told = [line for line in caplog.messages if line.startswith("Node node-1")]
    assert told == [
        "Node node-1 tainted as out of service: VirtualMachine default/node-1 has no VirtualMachineInstance, and no "
        "launcher pod of it runs",
        "Node node-1 is out of service yet: VirtualMachine default/node-1 does not run",
        "Node node-1 is in service again: its VM runs and it is Ready",
    ]
