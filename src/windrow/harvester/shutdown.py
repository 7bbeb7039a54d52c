"""The proof that nothing of a VM runs any more, so that nothing there can write to a disk. Pure.

A VirtualMachine or VirtualMachineInstance that is not found does not suffice: the instance may have been deleted by force while
its launcher pod runs on, on a host that does not answer. The pod's object stays until its host says that it has ended. An
instance that has ended is as good as none: what starts again is another one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from windrow.kubernetes.objects import name_of, namespace_of, nested

# A label of launcher pods, by virt-controller: the name of the VM.
LAUNCHER_VM = "vm.kubevirt.io/name"
_ENDED = ("Succeeded", "Failed")


@dataclass(frozen=True, slots=True)
class Shutdown:
    """What live reads of a VM that seems not to run have found. `is_proven`: nothing of it can run, or write to a disk.

    `because` is the clause of a sentence: what proves it, or what does not.
    """

    is_proven: bool
    because: str


def launcher_selector(vm: str) -> str:
    """The selector of the pods in which the VM of this name runs."""
    return f"{LAUNCHER_VM}={vm}"


def read_shutdown(
    vm_ref: str,
    vm: Mapping[str, Any] | None,
    vmi: Mapping[str, Any] | None,
    launchers: Sequence[Mapping[str, Any]],
) -> Shutdown:
    """The proof for the VM that sentences call `vm_ref`, by the objects that were found."""
    phase = "" if vmi is None else str(nested(vmi, "status", "phase", default="Pending"))
    if vmi is not None and phase not in _ENDED:
        return Shutdown(False, f"VirtualMachineInstance {namespace_of(vmi)}/{name_of(vmi)} is {phase}")
    for pod in launchers:
        phase = nested(pod, "status", "phase", default="Pending")
        if phase not in _ENDED:
            return Shutdown(False, f"Pod {namespace_of(pod)}/{name_of(pod)} is {phase}")
    found = (
        "is not found" if vm is None else f"has {'ended' if vmi is not None else 'no VirtualMachineInstance'}"
    )
    return Shutdown(True, f"{vm_ref} {found}, and no launcher pod of it runs")
