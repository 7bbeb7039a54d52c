"""The queue of changes of a VM's disks: when a patch is planned anew, and when it is not."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest
from tests.contract.volumes_rig import VolumesRig, volumes_rig
from tests.stories.harvester_rig import eventually, is_gone
from tests.support.clock import run_driven

from windrow.client.client import Client
from windrow.core.formats.json import Raw
from windrow.core.rng import Rng
from windrow.csi.errors import Aborted, CsiError, FailedPrecondition, Internal
from windrow.csi.harvester.attachments.known_vms import KnownVms
from windrow.csi.harvester.disks import DiskChange, VmDisks, read_vm
from windrow.csi.harvester.vm_queue import ATTEMPTS, Additions, ChangedVm, PlugVolumes, VmQueue
from windrow.csi.volumes import NodeNotFound, Unfinished
from windrow.harvester.resources import VM
from windrow.kubernetes.errors import AdmissionDenied, Conflict, Invalid, KubeError, NotFound, OutcomeUnknown
from windrow.kubernetes.objects import resource_version_of
from windrow.kubernetes.requests import Reply, Request


class Plug:
    """Takes what it is asked for, but for the errors that it is to raise first, and volumes that it never takes."""

    def __init__(self, *errors: KubeError, never: str = "") -> None:
        self.errors, self.never = list(errors), never
        self.taken: list[list[str]] = []

    async def __call__(self, raw_vm: Raw, changes: Sequence[DiskChange]) -> None:
        volumes = [one.volume_id for one in changes]
        self.taken.append(volumes)
        if self.never in volumes:
            raise AdmissionDenied(f"{self.never} is denied")
        if self.errors:
            raise self.errors.pop(0)


def attach(volume_id: str) -> DiskChange:
    return DiskChange(volume_id, "attach")


def change(plug: Plug, *changes: DiskChange, vm: str = "node-1") -> list[CsiError | None]:
    """How each of the changes, all made at once, ends."""

    async def made() -> list[CsiError | None]:
        async with volumes_rig() as rig:
            queue = queue_of(rig, plug)
            found = await asyncio.gather(*(queue.change(vm, one) for one in changes), return_exceptions=True)
            assert all(isinstance(one, ChangedVm | CsiError) for one in found), found
            return [one if isinstance(one, CsiError) else None for one in found]

    return run_driven(made())


def queue_of(rig: VolumesRig, plug: PlugVolumes, additions: Additions | None = None) -> VmQueue:
    class Local:
        async def send(self, request: Request) -> Reply:
            return await rig.line.send(request)

    clock = rig.harvester.clock.base
    return VmQueue(Client(Local()), "default", plug, clock, Rng(1), additions)  # type: ignore[arg-type]


TEST_FAILED = (
    "the server rejected our request due to an error in our request",
    "testing path /spec/template value failed",
    "test failed at '/spec'",
)


@pytest.mark.parametrize("error", [Conflict("changed"), *map(Invalid, TEST_FAILED)])
def test_a_patch_of_a_vm_that_was_changed_is_planned_anew(error: KubeError):
    plug = Plug(*[error] * (ATTEMPTS - 1))

    assert change(plug, attach("a")) == [None]
    assert plug.taken == [["a"]] * ATTEMPTS


def test_a_vm_that_is_deleted_between_the_read_and_the_patch_is_not_found():
    async def made() -> None:
        async with volumes_rig() as rig:

            async def delete_first(raw_vm: Raw, changes: Sequence[DiskChange]) -> None:
                await rig.line.delete(VM.ref("node-1", "default"))
                await eventually(rig.harvester, VM.ref("node-1", "default"), is_gone)
                raise NotFound('virtualmachines.kubevirt.io "node-1" not found')

            with pytest.raises(NodeNotFound):
                await queue_of(rig, delete_first).change("node-1", attach("a"))
            await queue_of(rig, delete_first).change("node-1", DiskChange("a", "detach"))

    run_driven(made())


@pytest.mark.parametrize("error", [Conflict("changed"), Invalid("testing path /metadata/generation failed")])
def test_a_vm_that_changes_again_and_again_is_given_up(error: KubeError):
    plug = Plug(*[error] * ATTEMPTS)
    (found,) = change(plug, attach("a"))

    assert isinstance(found, Aborted)
    assert len(plug.taken) == ATTEMPTS


@pytest.mark.parametrize(
    ("error", "kind"), [(AdmissionDenied("no"), FailedPrecondition), (Invalid("no"), Internal)]
)
def test_a_refusal_is_not_repeated(error: KubeError, kind: type[CsiError]):
    plug = Plug(error)
    (found,) = change(plug, attach("a"))

    assert type(found) is kind
    assert plug.taken == [["a"]]


def test_the_volumes_of_a_refused_patch_are_tried_one_by_one():
    plug = Plug(never="b")
    found = change(plug, attach("a"), attach("b"))

    assert found[0] is None
    assert type(found[1]) is FailedPrecondition
    assert plug.taken == [["a", "b"], ["a"], ["b"]]


def test_what_is_as_wanted_is_not_sent():
    plug = Plug()

    assert change(plug, DiskChange("a", "detach")) == [None]
    assert plug.taken == []


def test_a_vm_that_is_not_there_has_no_disks_to_give_up_and_takes_none():
    plug = Plug()

    assert change(plug, DiskChange("a", "detach"), vm="none") == [None]
    (found,) = change(plug, attach("a"), vm="none")
    assert type(found) is NodeNotFound
    assert plug.taken == []


def test_where_a_request_is_answered_without_the_vm_it_is_read_again_and_nothing_waits_on():
    async def made() -> None:
        async with volumes_rig() as rig:
            queue = queue_of(rig, Plug())
            first, second = await asyncio.gather(
                *(queue.change("node-1", attach(volume)) for volume in ("a", "b"))
            )
            raw = await rig.line.get(VM.ref("node-1", "default"))

            assert first == ChangedVm(resource_version_of(raw), frozenset({"a", "b"}))
            assert second == first
            assert (dict(queue._waiting), dict(queue._turns)) == ({}, {})

    run_driven(made())


class Known:
    """Knows node-1 as it is, and takes additions to it, but for the errors that it is to raise first."""

    def __init__(self, *errors: KubeError, takes: bool = True) -> None:
        self.errors, self.takes = list(errors), takes
        self.added: list[list[str]] = []

    async def __call__(self, vm: VmDisks, added: Sequence[DiskChange]) -> Raw | None:
        self.added.append([one.volume_id for one in added])
        if self.errors:
            raise self.errors.pop(0)
        return {"metadata": {"name": vm.vm, "resourceVersion": "77"}} if self.takes else None


def add(known: Known, plug: Plug, *changes: DiskChange) -> list[ChangedVm | BaseException]:
    async def made() -> list[ChangedVm | BaseException]:
        async with volumes_rig() as rig:
            raw = await rig.line.get(VM.ref("node-1", "default"))
            seen = KnownVms(lambda name: read_vm(raw) if name == "node-1" else None)
            queue = queue_of(rig, plug, Additions(seen, known))
            return await asyncio.gather(
                *(queue.change("node-1", one) for one in changes), return_exceptions=True
            )

    return run_driven(made())


def test_volumes_are_added_to_a_vm_that_is_known_without_reading_it():
    known, plug = Known(), Plug()

    assert add(known, plug, attach("a"), attach("b")) == [ChangedVm("77", frozenset({"a", "b"}))] * 2
    assert (known.added, plug.taken) == ([["a", "b"]], [])


@pytest.mark.parametrize(
    "known",
    [Known(Conflict("changed")), Known(Invalid(TEST_FAILED[0])), Known(NotFound("gone")), Known(takes=False)],
    ids=["conflict", "test failed", "gone", "no patches"],
)
def test_a_vm_that_is_another_than_was_known_is_read(known: Known):
    plug = Plug()
    (found,) = add(known, plug, attach("a"))

    assert isinstance(found, ChangedVm)
    assert (known.added, plug.taken) == ([["a"]], [["a"]])


def test_an_addition_that_is_refused_is_not_repeated_after_a_read():
    plug = Plug()
    (found,) = add(Known(AdmissionDenied("no")), plug, attach("a"))

    assert type(found) is FailedPrecondition
    assert plug.taken == []


def test_a_removal_beside_an_addition_is_planned_on_a_read():
    known, plug = Known(), Plug()
    add(known, plug, attach("a"), DiskChange("b", "detach"))

    assert (known.added, plug.taken) == ([], [["a"]])


def test_an_addition_without_an_answer_may_undo_a_detachment():
    known = Known(OutcomeUnknown("no answer within 30 s"))

    async def made() -> None:
        async with volumes_rig() as rig:
            raw = await rig.line.get(VM.ref("node-1", "default"))
            queue = queue_of(rig, Plug(), Additions(KnownVms(lambda _: read_vm(raw)), known))
            with pytest.raises(CsiError):
                await queue.change("node-1", attach("a"))
            with pytest.raises(Unfinished, match="had no answer"):
                await queue.change("node-1", DiskChange("a", "detach"))

    run_driven(made())
