"""When a wait for a VM is over, when its VM is read for the reason, and when waiting is hopeless."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from windrow.harvester.resources import VM, VMI
from windrow.harvester.vmis import Vmi, read_vmi
from windrow.harvester.vms import Vm, read_vm
from windrow.nodedriver.effects import NotYet, WaitFor
from windrow.nodedriver.vm.conditions import wait_for_address, wait_for_removal, wait_for_stopped

REF, VMI_REF = VM.ref("m", "ns"), VMI.ref("m", "ns")


def a_vm(status: str = "Running", *, strategy: str = "RerunOnFailure", **more: Any) -> Vm:
    metadata = {"name": "m", "namespace": "ns", "uid": "vm-1", **more.pop("metadata", {})}
    return read_vm(
        {
            "metadata": metadata,
            "spec": {"runStrategy": strategy},
            "status": {"printableStatus": status, "runStrategy": strategy, **more},
        }
    )


def a_vmi(phase: str, *addresses: str, uid: str = "vmi-1", **more: Any) -> Vmi:
    cards = [{"name": "nic-0", "ipAddress": address} for address in addresses]
    return read_vmi(
        {
            "metadata": {"name": "m", "namespace": "ns", "uid": uid, **more.pop("metadata", {})},
            "status": {"phase": phase, "interfaces": cards, **more},
        }
    )


UNSCHEDULABLE = {
    "conditions": [
        {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "no room"}
    ]
}
CONNECTED = {"conditions": [{"type": "AgentConnected", "status": "True"}]}


def asked(wait: Any, *objects: tuple[Any, Any]) -> Any:
    """What the wait makes of these objects; those that are not named have not been read."""
    effect = next(wait)
    assert isinstance(effect, WaitFor)
    return effect.predicate(dict(objects))


# -- an address


@pytest.mark.parametrize(
    ("vmi", "reason", "read_after_s"),
    [
        (None, "it has no instance yet", 15),
        (a_vmi("Pending"), "it is starting", None),
        (a_vmi("Scheduling", **UNSCHEDULABLE), "it is starting: no room", 15),
        (a_vmi("Failed"), "it is failed: its domain crashed", 0),
        (a_vmi("Succeeded"), "it is stopped: its guest has powered off", 0),
        (a_vmi("Running", metadata={"deletionTimestamp": "x"}), "it is stopping", 0),
        (a_vmi("Running"), "it runs, and no address is reported: its guest agent has not answered yet", None),
        (a_vmi("Running", **CONNECTED), "it runs, and no address is reported by its guest agent yet", None),
    ],
)
def test_the_vm_is_read_for_the_reason_where_the_instance_alone_does_not_tell_it(
    vmi: Vmi | None, reason: str, read_after_s: float | None
) -> None:
    found = asked(wait_for_address(REF), (VMI_REF, vmi))

    assert (found.reason, found.read_after_s, found.give_up_after_s) == (reason, read_after_s, None)


def test_a_running_instance_with_an_address_is_enough() -> None:
    running = a_vmi("Running", "10.0.0.5")

    assert asked(wait_for_address(REF), (VMI_REF, running)) == ("10.0.0.5",)
    assert asked(wait_for_address(REF), (VMI_REF, running), (REF, a_vm())) == ("10.0.0.5",)
    assert asked(wait_for_address(REF, except_instance="vmi-0"), (VMI_REF, running)) == ("10.0.0.5",)


def test_after_a_restart_the_instance_from_before_it_does_not_count() -> None:
    found = asked(
        wait_for_address(REF, except_instance="vmi-1", stage="restart"),
        (VMI_REF, a_vmi("Running", "10.0.0.5")),
    )

    assert (found.reason, found.stage) == ("its old instance is still there", "restart")


@pytest.mark.parametrize(
    ("vm", "vmi", "give_up_after_s"),
    [
        (None, None, 0),
        (a_vm(metadata={"deletionTimestamp": "x"}), a_vmi("Running"), 0),
        (a_vm("CrashLoopBackOff"), None, 60),
        (a_vm("DataVolumeError"), None, 60),
        (a_vm("ErrImagePull"), a_vmi("Scheduling"), 60),
        (a_vm("ErrorUnschedulable"), a_vmi("Scheduling"), 180),
        (a_vm("Provisioning"), None, None),
        (a_vm("Starting"), a_vmi("Pending"), None),
    ],
)
def test_waiting_for_an_address_is_given_up_by_what_the_vm_tells(
    vm: Vm | None, vmi: Vmi | None, give_up_after_s: float | None
) -> None:
    found = asked(wait_for_address(REF), (VMI_REF, vmi), (REF, vm))

    assert isinstance(found, NotYet)
    assert found.give_up_after_s == give_up_after_s
    assert found.read_after_s == (None if vm is None else 15)


# -- a stop


@pytest.mark.parametrize(
    ("objects", "over"),
    [
        ([(REF, None)], True),
        ([], "no event has come yet"),
        ([(REF, a_vm("Stopped"))], True),
        # The last event of the instance is not here yet.
        ([(REF, a_vm("Stopped")), (VMI_REF, a_vmi("Running"))], True),
        ([(REF, a_vm("Stopped", created=True))], "its instance is still there"),
        ([(REF, a_vm("Running"))], "its instance is still there"),
        ([(REF, a_vm("Stopped", stateChangeRequests=[{"action": "Start"}]))], "it is starting"),
        ([(REF, a_vm("Running", created=True)), (VMI_REF, a_vmi("Running", "10.0.0.5"))], "it is running"),
        ([(REF, a_vm("Succeeded", created=True)), (VMI_REF, a_vmi("Succeeded"))], True),
        ([(REF, a_vm("CrashLoopBackOff")), (VMI_REF, None)], True),
        (
            [(REF, a_vm("Running", strategy="Manual", created=True)), (VMI_REF, a_vmi("Failed"))],
            "it is failed",
        ),
    ],
)
def test_a_vm_is_stopped_when_no_guest_runs_in_it_and_none_will(
    objects: list[tuple[Any, Any]], over: bool | str
) -> None:
    found = asked(wait_for_stopped(REF), *objects)

    if isinstance(over, str):
        assert found.reason.startswith(over)
    else:
        assert found is over


def test_its_instance_is_read_soon_where_the_vm_says_that_it_is_stopped_already() -> None:
    def read_after(vm: Vm) -> float | None:
        found: NotYet = asked(wait_for_stopped(REF), (REF, vm))
        return found.read_after_s

    assert read_after(a_vm("Stopped", created=True)) == read_after(a_vm("Succeeded", created=True)) == 3
    assert read_after(a_vm("Stopping", created=True)) == 15


def test_a_start_is_watched_at_the_instance_and_a_stop_at_the_vm_and_the_other_can_be_read() -> None:
    """For as long as the Go driver waits."""
    start, stop, removal = (
        next(wait_for_address(REF)),
        next(wait_for_stopped(REF)),
        next(wait_for_removal(REF)),
    )

    assert isinstance(start, WaitFor)
    assert isinstance(stop, WaitFor)
    assert isinstance(removal, WaitFor)
    assert (start.refs, stop.refs, removal.refs) == ((VMI_REF, REF), (REF, VMI_REF), (REF,))
    assert {start.within, stop.within, removal.within} == {timedelta(minutes=10)}


# -- a removal


@pytest.mark.parametrize(
    ("uid", "objects", "over"),
    [
        ("vm-1", [], False),
        ("vm-1", [(REF, None)], True),
        ("vm-1", [(REF, a_vm())], False),
        ("vm-0", [(REF, a_vm())], True),
        ("", [(REF, a_vm())], False),
        ("", [(REF, None)], True),
    ],
)
def test_a_vm_is_removed_when_it_is_gone_or_another_has_its_name(
    uid: str, objects: list[tuple[Any, Any]], over: bool
) -> None:
    found = asked(wait_for_removal(REF, uid), *objects)

    assert found is True if over else isinstance(found, NotYet)
