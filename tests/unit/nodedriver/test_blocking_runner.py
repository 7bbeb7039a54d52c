"""What the blocking runner does beyond the operations: one watch where all goes well, and every way a watch can end."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any
from unittest.mock import patch

import pytest
from tests.unit.nodedriver.api_double import ApiDouble

from windrow.harvester.resources import VM, VMI
from windrow.kubernetes.errors import (
    CertificateError,
    Expired,
    Forbidden,
    KubeError,
    OutcomeUnknown,
    ServerError,
    Unauthorized,
    Unreachable,
)
from windrow.kubernetes.requests import Reply, Request, WatchEvent
from windrow.nodedriver.blocking_runner import MAX_WATCH_S, RETRY_DELAY_S
from windrow.nodedriver.effects import WaitHopeless, WaitTimeout
from windrow.nodedriver.vm import conditions

REF = VM.ref("m", "ns")
VMI_REF = VMI.ref("m", "ns")
SPEC = {"runStrategy": "RerunOnFailure"}
UP = {"phase": "Running", "interfaces": [{"name": "nic-0", "ipAddress": "10.0.0.5"}]}


def instance(phase: str, **status: Any) -> Any:
    return lambda api: api.put(VMI_REF, {"status": {"phase": phase, **status}})


running = instance(**UP)


class Scripted(ApiDouble):
    """A api whose first watches follow a script: each entry is the events of one watch, or how it fails."""

    def __init__(self, *watches: list[WatchEvent] | Exception) -> None:
        super().__init__((REF, {"spec": SPEC, "status": {"runStrategy": "RerunOnFailure"}}))
        self.watches = list(watches)
        self.asked: list[Request] = []

    def watch(self, request: Request) -> Iterator[WatchEvent | None]:
        self.asked.append(request)
        if len(self.asked) > len(self.watches):
            running(self)
            yield from super().watch(request)
            return
        script = self.watches[len(self.asked) - 1]
        if isinstance(script, Exception):
            raise script
        yield from script
        self.now += timedelta(seconds=int(request.query_parameter("timeoutSeconds") or 0))


def wait(api: ApiDouble, within: timedelta = timedelta(minutes=10)) -> Any:
    with patch.object(conditions, "WITHIN", within):
        return api.run(conditions.wait_for_address(REF))


def a_vm(status: str, **more: Any) -> Any:
    return {"spec": SPEC, "status": {"runStrategy": "RerunOnFailure", "printableStatus": status} | more}


def test_a_wait_costs_one_watch_and_nothing_else() -> None:
    api = ApiDouble((REF, {"spec": SPEC}))
    api.then(instance("Pending"), instance("Scheduled"), instance("Running"), running)

    assert wait(api) == ("10.0.0.5",)
    assert api.requests == ["WATCH virtualmachineinstances/m"]


def test_what_is_there_already_is_told_by_the_watch_itself() -> None:
    api = ApiDouble((REF, {"spec": SPEC}), (VMI_REF, {"status": UP}))
    before = api.now

    assert wait(api) == ("10.0.0.5",)
    assert (api.requests, api.now) == (["WATCH virtualmachineinstances/m"], before)


def test_a_stop_is_watched_at_the_vm_whose_instance_may_be_gone_before_anybody_looks() -> None:
    for strategy in ("RerunOnFailure", ""):  # KubeVirt before 1.3 does not tell it
        api = ApiDouble((REF, a_vm("Stopped", runStrategy=strategy)))

        api.run(conditions.wait_for_stopped(REF))
        assert api.requests == ["WATCH virtualmachines/m"]


def test_a_guest_that_powered_itself_off_counts_as_stopped_although_its_instance_stays() -> None:
    api = ApiDouble((REF, a_vm("Stopped", created=True)), (VMI_REF, {"status": {"phase": "Succeeded"}}))

    api.run(conditions.wait_for_stopped(REF))
    assert api.requests == ["WATCH virtualmachines/m", "GET virtualmachineinstances/m"]


def test_no_event_is_lost_between_an_order_and_its_watch() -> None:
    api = ApiDouble((REF, {"spec": SPEC}))
    version = api.objects[REF.path]["metadata"]["resourceVersion"]
    api.drop(REF)

    api.run(conditions.wait_for_removal(REF, "uid-1", version))
    assert api.requests == ["WATCH virtualmachines/m"]


def test_another_vm_under_the_name_is_the_end_of_the_first() -> None:
    api = ApiDouble((REF, {"spec": SPEC}))

    api.run(conditions.wait_for_removal(REF, "uid-of-the-first"))
    assert REF.path in api.objects


def test_a_watch_that_ends_is_followed_by_a_look_and_another() -> None:
    api = Scripted([], [])
    assert wait(api) == ("10.0.0.5",)
    assert api.requests.count("GET virtualmachineinstances/m") == 2


@pytest.mark.parametrize(
    "failure",
    [
        Expired("too old", status=410),
        Unreachable("no route"),
        OutcomeUnknown("reset"),
        ServerError("starting up", status=503),
    ],
)
def test_a_failure_that_passes_costs_a_look_and_another_watch(failure: KubeError) -> None:
    assert wait(Scripted(failure, [])) == ("10.0.0.5",)


def test_a_watch_that_is_too_old_is_begun_anew() -> None:
    error = {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old"}
    api = Scripted([WatchEvent("ERROR", error)])
    assert wait(api) == ("10.0.0.5",)


class Compacted(ApiDouble):
    """A server whose history begins after the object's last change, as with one that restarted: each watch behind it fails."""

    def watch(self, request: Request) -> Iterator[WatchEvent | None]:
        if request.query_parameter("resourceVersion"):
            self.requests.append("WATCH, refused")
            raise Expired("too old", status=410)
        yield from super().watch(request)
        self.now += timedelta(seconds=int(request.query_parameter("timeoutSeconds") or 0))


def test_an_object_older_than_the_server_s_history_is_watched_without_a_version() -> None:
    """Its version would be refused again and again, as fast as the server answers."""
    api = Compacted((REF, {"spec": SPEC}), (VMI_REF, {"status": {"phase": "Scheduling"}}))

    with pytest.raises(WaitTimeout):
        wait(api, timedelta(minutes=30))
    assert len(api.requests) < 30


def test_a_bookmark_is_no_news() -> None:
    api = Scripted([WatchEvent("BOOKMARK", {"metadata": {"resourceVersion": "9"}})])
    before = api.now
    wait(api)
    assert api.now - before == timedelta(seconds=MAX_WATCH_S)


def test_a_watch_is_for_one_object_and_never_longer_than_the_wait() -> None:
    api = Scripted()
    wait(api, timedelta(seconds=7))
    [request] = api.asked
    assert request.path.endswith("/namespaces/ns/virtualmachineinstances")
    assert request.query_parameter("fieldSelector") == "metadata.name=m"
    assert request.query_parameter("timeoutSeconds") == "7"
    assert request.query_parameter("resourceVersion") is None


def test_a_wait_ends_when_its_time_is_over_and_tells_the_last_reason() -> None:
    api = ApiDouble((REF, {"spec": SPEC}))
    api.then(
        instance("Scheduling", conditions=[{"type": "PodScheduled", "status": "False", "message": "full"}])
    )
    with pytest.raises(WaitTimeout, match="full") as late:
        wait(api, timedelta(seconds=90))
    assert late.value.stage == "machine to be Running."


def test_each_stage_has_the_whole_time() -> None:
    api = ApiDouble((REF, {"spec": SPEC}))
    api.then(*[instance("Scheduling")] * 80, *[instance("Running")] * 80, running)
    assert wait(api, timedelta(seconds=90)) == ("10.0.0.5",)


def test_a_stage_that_comes_back_has_no_new_time() -> None:
    api = ApiDouble((REF, {"spec": SPEC}))
    api.then(*[instance("Scheduling"), instance("Running")] * 200)
    before = api.now
    with pytest.raises(WaitTimeout):
        wait(api, timedelta(seconds=90))
    assert api.now - before <= timedelta(seconds=92)


def test_the_vm_is_asked_only_when_there_is_no_instance_for_a_while() -> None:
    api = ApiDouble((REF, a_vm("WaitingForVolumeBinding")))
    with pytest.raises(WaitTimeout, match="provisioning: its disks are not bound yet"):
        wait(api, timedelta(seconds=60))
    assert api.requests.count("GET virtualmachines/m") == 3


def test_a_vm_that_is_removed_meanwhile_is_not_waited_for() -> None:
    api = ApiDouble((REF, {"metadata": {"deletionTimestamp": "x"}, "spec": SPEC}))
    before = api.now
    with pytest.raises(WaitHopeless, match="Harvester is removing the VM"):
        wait(api)
    assert api.now - before < timedelta(seconds=30)


def test_a_vm_that_is_not_there_any_more_is_not_waited_for() -> None:
    api = ApiDouble()
    before = api.now
    with pytest.raises(WaitHopeless, match="the VM is gone"):
        wait(api)
    assert api.now - before < timedelta(seconds=30)


def test_a_vm_that_crashes_at_every_start_is_given_up_with_the_cause() -> None:
    api = ApiDouble((REF, a_vm("CrashLoopBackOff")))
    api.then(instance("Failed", reason="GuestPanicked"), lambda found: found.drop(VMI_REF))
    before = api.now
    with pytest.raises(WaitHopeless, match="crashes at every start"):
        wait(api)
    assert timedelta(seconds=60) <= api.now - before < timedelta(seconds=120)


def test_a_crash_that_heals_is_forgiven() -> None:
    api = ApiDouble((REF, a_vm("CrashLoopBackOff")))
    api.then(instance("Failed"), lambda found: found.drop(VMI_REF), running)
    assert wait(api) == ("10.0.0.5",)


def test_a_vm_for_which_there_is_no_room_is_given_up_after_some_minutes() -> None:
    api = ApiDouble((REF, a_vm("ErrorUnschedulable")))
    said = "0/3 nodes are available: 3 Insufficient memory"
    api.then(
        instance("Scheduling", conditions=[{"type": "PodScheduled", "status": "False", "message": said}])
    )
    before = api.now
    with pytest.raises(WaitHopeless, match="Insufficient memory"):
        wait(api)
    assert api.now - before < timedelta(minutes=5)


@pytest.mark.parametrize("refusal_", [Unauthorized("who?", status=401), CertificateError("not that CA")])
def test_a_refusal_that_stays_ends_the_wait_at_once(refusal_: KubeError) -> None:
    api = Scripted(refusal_)
    before = api.now
    with pytest.raises(type(refusal_)):
        wait(api)
    assert api.now == before


@pytest.mark.parametrize("at_once", [True, False])
def test_who_may_not_watch_looks_every_few_seconds(at_once: bool) -> None:
    api = Scripted(Forbidden("may not watch", status=403))
    if at_once:
        refused = api.watch
        api.watch = lambda request: iter(list(refused(request)))  # type: ignore[method-assign]
    api.then(running)
    api.pause = lambda seconds: (
        ApiDouble.pause(api, seconds),
        api.scheduled and api.scheduled.pop(0)(api),
    )  # type: ignore[method-assign,assign]
    before = api.now
    assert wait(api) == ("10.0.0.5",)
    assert api.now - before <= timedelta(seconds=2 * RETRY_DELAY_S)


def test_an_unreachable_harvester_is_the_reason_when_time_is_over() -> None:
    api = Scripted(*[Unreachable("no route to host")] * 100)
    api.answer("GET", "virtualmachineinstances/m", *[Unreachable("no route to host")] * 100)
    with pytest.raises(WaitTimeout, match="no route to host"):
        wait(api, timedelta(seconds=90))


def test_a_page_of_a_proxy_is_not_taken_for_the_absence_of_the_vm() -> None:
    api = Scripted([])
    api.answer("GET", "virtualmachines/m", Reply(404, b"default backend - 404", "text/plain"))
    api.then(lambda found: found.drop(REF))
    api.run(conditions.wait_for_removal(REF))
    assert len(api.asked) == 2  # it went on watching, and heard of the end
