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
from windrow.csi.harvester.disks import DiskChange
from windrow.csi.harvester.vm_queue import ATTEMPTS, ChangedVm, PlugVolumes, VmQueue
from windrow.csi.volumes import NodeNotFound
from windrow.harvester.resources import VM
from windrow.kubernetes.errors import AdmissionDenied, Conflict, Invalid, KubeError, NotFound
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


def queue_of(rig: VolumesRig, plug: PlugVolumes) -> VmQueue:
    class Local:
        async def send(self, request: Request) -> Reply:
            return await rig.line.send(request)

    return VmQueue(Client(Local()), "default", plug, rig.harvester.clock.base, Rng(1))  # type: ignore[arg-type]


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
