"""The live state of a machine: reads without waiting."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from windrow.harvester.cloud_init_secret import secret_ref
from windrow.harvester.references import Host, read_host
from windrow.harvester.resources import VMI
from windrow.harvester.status import MachineStatus, read_vm_status
from windrow.harvester.vmis import Vmi, read_vmi
from windrow.harvester.vms import read_vm
from windrow.kubernetes import requests
from windrow.kubernetes.errors import KubeError, NotFound, is_not_found
from windrow.kubernetes.resources import NODE, ObjectRef
from windrow.nodedriver.config import Configuration
from windrow.nodedriver.effects import Call, Gather, Operation
from windrow.nodedriver.errors import Refused
from windrow.nodedriver.vm.ownership import owner_of, ownership_unknown


@dataclass(frozen=True, slots=True)
class VmObservation:
    """A VM that exists, and the uid of its instance ("" for none)."""

    status: MachineStatus
    vmi_uid: str = ""
    raw_vm: Mapping[str, Any] = field(default_factory=dict, compare=False, repr=False)


def find_object(ref: ObjectRef, because: str) -> Operation[Any]:
    """The object as it is now, None where the API server answers that there is none."""
    try:
        return (yield Call(requests.get(ref), because))
    except NotFound as error:
        if not is_not_found(error, ref.name):
            raise
        return None


def observe_vm(ref: ObjectRef) -> Operation[VmObservation | None]:
    """The VM as it is now, whichever machine owns it; None where it does not exist. Raises every other error."""
    vmi_ref = VMI.ref(ref.name, ref.namespace)
    answers = yield Gather((requests.get(ref), requests.get(vmi_ref)), f"read VM and VMI {ref.name}")
    vm, vmi = (_object_or_none(answer, ref.name) for answer in answers)
    if vm is None:
        return None
    instance = _instance(vmi)
    return VmObservation(
        read_vm_status(read_vm(vm), instance), instance.uid if instance is not None else "", vm
    )


def get_status(configuration: Configuration) -> Operation[MachineStatus]:
    """The machine's status. Raises Refused where the owner of the VM is unknown, and every inconclusive error."""
    name, namespace = configuration.machine_name, configuration.vm_namespace
    secret = secret_ref(namespace, name)
    wanted = [configuration.ref, VMI.ref(name, namespace)]
    if not configuration.vm_uid:  # creation is not finished, and the Secret may be missing
        wanted.append(secret)
    raw, raw_vmi, *raw_secret = yield Gather(tuple(map(requests.get, wanted)), f"read the status of {name}")
    vm = _object_or_none(raw, name)
    owner = owner_of(configuration, vm) if vm is not None else "another"
    if owner == "another":
        because = (
            f"VirtualMachine {namespace}/{name} {'not found' if vm is None else 'has another owner now'}"
        )
        return MachineStatus(configuration.machine_uid, name, "missing", because=because)
    if owner == "unknown":
        raise Refused(ownership_unknown(configuration, vm))
    instance = _instance(_object_or_none(raw_vmi, name))
    host = yield from _host(instance)
    is_complete = not any(is_not_found(each, secret.name) for each in raw_secret)
    return replace(read_vm_status(read_vm(vm), instance, host), is_complete=is_complete)


def _object_or_none(answer: Any, name: str) -> Any:
    """The object, None where the API server answered that there is none."""
    if is_not_found(answer, name):
        return None
    if isinstance(answer, KubeError):
        raise answer
    return answer


def _instance(raw_vmi: Any) -> Vmi | None:
    return read_vmi(raw_vmi) if raw_vmi is not None else None


def _host(vmi: Vmi | None) -> Operation[Host | None]:
    """The host, where the credential may see hosts."""
    if vmi is None or not vmi.host:
        return None
    (raw,) = yield Gather((requests.get(NODE.ref(vmi.host)),), f"read host {vmi.host}")
    return None if isinstance(raw, KubeError) else read_host(raw)
