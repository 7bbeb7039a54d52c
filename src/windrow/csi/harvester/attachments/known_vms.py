"""VMs as they were last seen: by the watch, or in an answer to a patch of the driver's own, whichever is newer.

A volume is added to a VM without reading it again. That the VM is still as it was last seen is a condition of the patch; where it is
not, the patch fails, and the VM is read.
"""

from __future__ import annotations

from collections.abc import Callable

from windrow.csi.harvester.disks import VmDisks, read_vm
from windrow.kubernetes.objects import Raw, version_number


class KnownVms:
    """`watched` finds the VM of a name as the watch has told of it."""

    def __init__(self, watched: Callable[[str], VmDisks | None]) -> None:
        self._watched = watched
        # Of VMs that were patched, until the watch tells of that.
        self._answers: dict[str, VmDisks] = {}

    def on_answer(self, raw_vm: Raw) -> None:
        """A patch was answered with the VM as it is since."""
        vm = read_vm(raw_vm)
        self._answers[vm.vm] = vm

    def find(self, name: str) -> VmDisks | None:
        """The VM; None where nothing is known of it."""
        watched, answer = self._watched(name), self._answers.get(name)
        if answer is None:
            return watched
        if watched is None or version_number(watched.resource_version) >= version_number(
            answer.resource_version
        ):
            del self._answers[name]
            return watched
        return answer
