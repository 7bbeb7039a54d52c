"""The proof that nothing of a VM runs any more, so that nothing there can write to a disk. Pure.

A VirtualMachine or VirtualMachineInstance that is not found does not suffice: the instance may have been deleted by force while
its launcher pod runs on, on a host that does not answer. The pod's object stays until its host says that it has ended. An
instance that has ended is as good as none: what starts again is another one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from windrow.harvester.names import VM_NAME
from windrow.kubernetes.objects import annotations_of, labels_of, name_of, namespace_of, nested, objects_at

# The selector of all launcher pods. Which VM one is of no label tells for certain, see `select_launchers`.
LAUNCHERS = "kubevirt.io=virt-launcher"
_NAME_LABELS = (VM_NAME, "vm.kubevirt.io/name")
_DOMAIN = "kubevirt.io/domain"
_ENDED = ("Succeeded", "Failed")


@dataclass(frozen=True, slots=True)
class Shutdown:
    """What live reads of a VM that seems not to run have found. `is_proven`: nothing of it can run, or write to a disk.

    `because` is the clause of a sentence: what proves it, or what does not.
    """

    is_proven: bool
    because: str


def select_launchers(vm: str, pods: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Those of the namespace's launcher pods in which the VM of this name may run: all that anything says so of.

    virt-controller writes the host name of the guest, not the VM's name, into the label `vm.kubevirt.io/name`, and the label of
    Harvester is there only where the VM's template has it. The owner and the annotation always have the name.
    """
    return [pod for pod in pods if vm in _vms_of(pod)]


def _vms_of(pod: Mapping[str, Any]) -> set[object]:
    owners = (
        owner.get("name")
        for owner in objects_at(pod, "metadata", "ownerReferences")
        if owner.get("kind") == "VirtualMachineInstance"
    )
    labels = labels_of(pod)
    return {*owners, annotations_of(pod).get(_DOMAIN), *(labels.get(key) for key in _NAME_LABELS)}


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
