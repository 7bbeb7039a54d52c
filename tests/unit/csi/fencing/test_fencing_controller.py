"""What the CSI driver's fencing reads before it taints a Node, what it says while it waits, and what it writes."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from tests.support.clock import NOON

from windrow.controller.outcomes import Outcome, Settled, Waiting
from windrow.core.rng import Rng
from windrow.csi.fencing.controller import RECHECK, RECHECK_WITHOUT_VOLUME, NodeFencing
from windrow.csi.names import DRIVER
from windrow.csi.nodes import NodeVm
from windrow.harvester.resources import VM, VMI
from windrow.kubernetes.errors import Conflict
from windrow.kubernetes.resources import (
    NODE,
    PERSISTENT_VOLUME,
    POD,
    PVC,
    VOLUME_ATTACHMENT,
    ApiResource,
    ObjectRef,
)

KEY, VALUE = "node.kubernetes.io/out-of-service", "nodeshutdown-by-harvester-csi-driver"
OURS = {"key": KEY, "value": VALUE, "effect": "NoExecute", "timeAdded": "2026-01-01T12:00:00Z"}
THEIRS = {**OURS, "value": "nodeshutdown"}
PROVEN = "VirtualMachine hosts/vm-a is not found, and no launcher pod of it runs"


class Api:
    """An API with these objects, which keeps what is written."""

    def __init__(self, *objects: tuple[ApiResource, dict[str, Any]]) -> None:
        self.objects = {self._ref(kind, raw): raw for kind, raw in objects}
        self.written: list[Mapping[str, Any]] = []
        self.error: Exception | None = None
        self.asked: list[str] = []

    @staticmethod
    def _ref(kind: ApiResource, raw: Mapping[str, Any]) -> ObjectRef:
        return kind.ref(raw["metadata"]["name"], raw["metadata"].get("namespace", ""))

    async def find(self, ref: ObjectRef) -> Any:
        self.asked.append(f"{ref.kind.kind} {ref.name}")
        return self.objects.get(ref)

    async def list(self, kind: ApiResource, namespace: str = "", labels: str = "") -> list[Any]:
        self.asked.append(f"{kind.kind}s of {labels or 'all'}")
        return [raw for ref, raw in self.objects.items() if ref.kind == kind and ref.namespace == namespace]

    async def update(self, kind: ApiResource, raw: Mapping[str, Any]) -> None:
        if self.error:
            raise self.error
        self.written.append(raw)


def a_node(*taints: dict[str, str], ready: bool = False, provider: str = "") -> Any:
    return NODE, {
        "metadata": {"name": "n1", "uid": "u1", "resourceVersion": "7"},
        "spec": {"providerID": provider, "taints": list(taints)},
        "status": {"conditions": [{"type": "Ready", "status": str(ready)}]},
    }


def an_attachment(name: str = "att", attacher: str = DRIVER, node: str = "n1", volume: str = "pv-1") -> Any:
    source = {"persistentVolumeName": volume} if volume else {}
    spec = {"attacher": attacher, "nodeName": node, "source": source}
    return VOLUME_ATTACHMENT, {"metadata": {"name": name}, "spec": spec}


def a_volume(handle: str = "claim-1") -> Any:
    return PERSISTENT_VOLUME, {"metadata": {"name": "pv-1"}, "spec": {"csi": {"volumeHandle": handle}}}


def a_claim(*attached_to: str) -> Any:
    records = {f"attach.csi.windrow.io/{vm}": "2026-01-01T11:00:00Z p" for vm in attached_to}
    return PVC, {"metadata": {"name": "claim-1", "namespace": "hosts", "annotations": records}}


def a_vm(uid: str = "uid-a") -> Any:
    return VM, {"metadata": {"name": "vm-a", "namespace": "hosts", "uid": uid}}


def an_instance(phase: str, owner: str = "uid-a") -> Any:
    head = {"name": "vm-a", "namespace": "hosts", "ownerReferences": [{"uid": owner}]}
    return VMI, {"metadata": head, "status": {"phase": phase}}


def a_launcher(phase: str) -> Any:
    labels = {"harvesterhci.io/vmName": "vm-a"}
    return POD, {
        "metadata": {"name": "launcher", "namespace": "hosts", "labels": labels},
        "status": {"phase": phase},
    }


class Rig:
    def __init__(self, guest: Api, host: Api, known: NodeVm | None) -> None:
        self.guest, self.host, self.known = guest, host, known
        self.now = NOON
        self.logged: list[str] = []
        log: Any = SimpleNamespace(info=self._log, warning=self._log)
        clock: Any = SimpleNamespace(now=lambda: self.now)
        unused: Any = None
        self.fencing = NodeFencing(unused, unused, "hosts", self, clock, Rng(1), log)
        self.fencing._guest, self.fencing._host = guest, host  # type: ignore[assignment]

    def _log(self, text: str, *arguments: object) -> None:
        self.logged.append(text % arguments)

    async def find_vm(self, node_id: str) -> NodeVm | None:
        return self.known

    async def reconcile(self) -> Outcome:
        return await self.fencing._reconcile("n1")

    @property
    def taints(self) -> list[Any]:
        """Those that were written last."""
        found: list[Any] = self.guest.written[-1]["spec"]["taints"]
        return found


KNOWN = NodeVm("vm-a", "uid-a", "providerID")
ATTACHED = (an_attachment(), a_volume())


def a_rig(*guest: Any, host: Any = (), known: NodeVm | None = KNOWN) -> Rig:
    return Rig(Api(*guest), Api(*host), known)


async def test_a_node_is_tainted_whose_vm_is_gone_while_it_has_a_volume() -> None:
    rig = a_rig(a_node(), *ATTACHED, host=[a_claim()])

    assert await rig.reconcile() == Settled()
    assert rig.taints == [OURS]
    assert rig.guest.written[0]["metadata"]["resourceVersion"] == "7"
    assert rig.logged == [f"Node n1 tainted as out of service: {PROVEN}"]
    assert "Pods of kubevirt.io=virt-launcher" in rig.host.asked


@pytest.mark.parametrize(
    ("guest", "host"),
    [
        ([], [a_claim()]),
        ([an_attachment(attacher="other"), a_volume()], [a_claim()]),
        ([an_attachment(node="n2"), a_volume()], [a_claim()]),
        ([an_attachment(volume=""), a_volume()], [a_claim()]),
        ([an_attachment()], [a_claim()]),
        ([an_attachment(), a_volume("")], [a_claim()]),
        ([an_attachment(), a_volume()], []),
    ],
    ids=["none", "another driver's", "of another Node", "inline", "no volume", "no handle", "no claim"],
)
async def test_a_node_without_a_volume_of_this_driver_is_asked_about_seldom(guest: Any, host: Any) -> None:
    rig = a_rig(a_node(), *guest, host=host)

    because = "not tainted: no volume of this driver is attached to it"
    assert await rig.reconcile() == Waiting(
        f"Node n1, {because}", NOON, "it is asked again", NOON + RECHECK_WITHOUT_VOLUME
    )
    assert (rig.guest.written, rig.logged) == ([], [f"Node n1 is {because}"])


async def test_of_several_attachments_one_of_this_driver_on_this_node_is_enough() -> None:
    rig = a_rig(a_node(), an_attachment("a", node="n2"), *ATTACHED, host=[a_claim()])

    assert await rig.reconcile() == Settled()


@pytest.mark.parametrize(
    ("known", "host", "because"),
    [
        (KNOWN, [an_instance("Running")], "VirtualMachineInstance hosts/vm-a is Running"),
        (KNOWN, [a_vm(), an_instance("Paused")], "VirtualMachineInstance hosts/vm-a is Paused"),
        (KNOWN, [a_launcher("Running")], "Pod hosts/launcher is Running"),
        (
            KNOWN,
            [a_vm("uid-b")],
            "VirtualMachine vm-a is another one by now (uid uid-b, not uid-a)",
        ),
        (None, [], "it is not known which VirtualMachine it runs in"),
        (
            NodeVm("vm-a", "uid-a", "hardware"),
            [],
            "it is told by its hardware alone that it runs in VirtualMachine vm-a",
        ),
    ],
)
async def test_a_node_whose_vm_may_run_is_asked_about_again_in_ten_seconds(
    known: NodeVm | None, host: Any, because: str
) -> None:
    rig = a_rig(a_node(), *ATTACHED, host=[a_claim(), *host], known=known)

    found = await rig.reconcile()

    assert isinstance(found, Waiting)
    assert (found.what, found.until) == (f"Node n1, not tainted: {because}", NOON + RECHECK)
    assert rig.guest.written == []


async def test_a_vm_that_its_volume_was_attached_to_is_that_of_the_node() -> None:
    rig = a_rig(a_node(), *ATTACHED, host=[a_claim("vm-a")], known=NodeVm("vm-a", "uid-a", "hardware"))

    await rig.reconcile()
    assert rig.taints == [OURS]


async def test_what_is_waited_for_is_logged_once_and_dated_by_its_beginning() -> None:
    rig = a_rig(a_node(), *ATTACHED, host=[a_claim(), an_instance("Running")])
    first = await rig.reconcile()
    rig.now += timedelta(minutes=1)
    again = await rig.reconcile()
    assert isinstance(first, Waiting)
    assert isinstance(again, Waiting)
    assert (first.since, again.since, again.until) == (NOON, NOON, rig.now + RECHECK)
    assert len(rig.logged) == 1

    rig.host.objects.update(Api(an_instance("Failed"), a_launcher("Running")).objects)
    other = await rig.reconcile()
    assert isinstance(other, Waiting)
    assert (other.since, len(rig.logged)) == (rig.now, 2)


async def test_a_node_that_is_ready_again_loses_the_taint_of_this_driver_when_its_vm_runs() -> None:
    rig = a_rig(a_node(OURS, THEIRS, ready=True), host=[an_instance("Running")])

    assert await rig.reconcile() == Settled()
    assert rig.taints == [THEIRS]
    assert rig.logged == ["Node n1 is in service again: its VM runs and it is Ready"]


@pytest.mark.parametrize(
    ("known", "host", "because"),
    [
        (KNOWN, [], "VirtualMachine hosts/vm-a does not run"),
        (KNOWN, [an_instance("Running", owner="uid-b")], "VirtualMachine hosts/vm-a does not run"),
        (None, [an_instance("Running")], "it is not known which VirtualMachine it runs in"),
    ],
)
async def test_a_node_whose_vm_does_not_run_stays_out_of_service(
    known: NodeVm | None, host: Any, because: str
) -> None:
    rig = a_rig(a_node(OURS, ready=True), host=host, known=known)

    found = await rig.reconcile()

    assert isinstance(found, Waiting)
    assert (found.what, found.until) == (
        f"Node n1, out of service yet: {because}",
        NOON + RECHECK,
    )
    assert rig.guest.written == []


@pytest.mark.parametrize(
    ("node", "said"),
    [
        (a_node(provider="aws:///i-1"), ["Node n1 is never tainted: its providerID is aws:///i-1"]),
        (a_node(provider="aws:///i-1", ready=True), []),
        (a_node(ready=True), []),
        (a_node(THEIRS), []),
        (a_node(OURS), []),
    ],
)
async def test_nothing_is_asked_of_a_node_that_is_well_another_clouds_or_out_of_service(
    node: Any, said: list[str]
) -> None:
    rig = a_rig(node, *ATTACHED, host=[a_claim()])

    for _ in range(2):
        assert await rig.reconcile() == Settled()
    assert (rig.guest.written, rig.host.asked, rig.logged) == ([], [], said)


async def test_what_was_said_of_a_node_is_said_again_after_it_was_well_or_gone() -> None:
    rig = a_rig(a_node(), *ATTACHED, host=[a_claim(), an_instance("Running")])
    for between in (a_node(ready=True), None):
        await rig.reconcile()
        before = rig.guest.objects.pop(NODE.ref("n1"))
        if between is not None:
            rig.guest.objects[NODE.ref("n1")] = between[1]
        assert await rig.reconcile() == Settled()
        rig.guest.objects[NODE.ref("n1")] = before
    await rig.reconcile()

    assert len(rig.logged) == 3


async def test_what_was_said_of_a_node_is_said_again_after_it_was_tainted() -> None:
    rig = a_rig(a_node(), *ATTACHED, host=[a_claim(), an_instance("Running")])
    before, instance = rig.guest.objects[NODE.ref("n1")], VMI.ref("vm-a", "hosts")
    first = await rig.reconcile()
    running = rig.host.objects.pop(instance)
    await rig.reconcile()
    assert rig.taints == [OURS]
    rig.now += timedelta(minutes=1)
    rig.guest.objects[NODE.ref("n1")], rig.host.objects[instance] = before, running

    again = await rig.reconcile()

    assert isinstance(first, Waiting)
    assert isinstance(again, Waiting)
    assert (again.what, again.since) == (first.what, rig.now)
    assert rig.logged[0] == rig.logged[-1]


async def test_a_node_that_has_changed_behind_the_proof_is_not_said_to_be_tainted() -> None:
    rig = a_rig(a_node(), *ATTACHED, host=[a_claim()])
    rig.guest.error = Conflict("changed")

    with pytest.raises(Conflict):
        await rig.reconcile()
    assert rig.logged == []
