"""MachineStatus: the observed status of a machine, read from its VirtualMachine and VirtualMachineInstance, and its JSON form.

`read_state` maps KubeVirt's status to one word. `Stopped` needs care: a VM that is new, or that failed and is being
started again, shows it for a moment too. The JSON keys are a contract with hosts of other releases: unknown keys are
ignored, missing ones mean "not known".
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal, get_args

from windrow.core.formats.json import NotJson, dumps, loads
from windrow.harvester.references import Host
from windrow.harvester.vmis import Vmi
from windrow.harvester.vms import Vm

VmState = Literal[
    "provisioning", "starting", "running", "stopping", "stopped", "failed", "migrating", "deleting"
]


@dataclass(frozen=True, slots=True)
class ObservedState:
    """A state, and KubeVirt's message about it where there is one."""

    state: VmState
    because: str = ""


_RESTARTING = frozenset({"Always", "RerunOnFailure"})
_EARLY_PHASES = frozenset({"", "Pending", "Scheduling", "Scheduled", "WaitingForSync"})
_PROVISIONING = {
    "Provisioning": "its disks are being filled",
    "WaitingForVolumeBinding": "its disks are not bound yet",
    "ErrorPvcNotFound": "a disk does not exist yet",
    "ErrorUnschedulable": "no host has room for it",
    "ErrImagePull": "the launcher image cannot be pulled",
    "ImagePullBackOff": "the launcher image cannot be pulled",
    "DataVolumeError": "a disk failed to be filled",
}


def read_state(vm: Vm, vmi: Vmi | None) -> ObservedState:
    """The state of a VM that exists, with its instance if there is one."""
    if vm.is_deleting:
        return ObservedState("deleting", "Harvester is removing the VM")
    if vm.halted_by_quota:
        return ObservedState("failed", f"Harvester has halted the VM: {vm.halted_by_quota}")
    if vmi is not None and vmi.is_deleting:
        return ObservedState("stopping")
    if vmi is None or vmi.phase == "Succeeded":
        return _without_instance(vm)
    if vmi.phase == "Failed":
        return _failed(vm, vmi)
    if vmi.phase in _EARLY_PHASES:
        return _early(vm, vmi)
    if vmi.is_migrating:
        return ObservedState("migrating", "the VM is moving to another host")
    if vm.status == "Stopping":
        return ObservedState("stopping")
    return ObservedState("running", _pending_while_running(vmi))


def read_instance_state(vmi: Vmi) -> ObservedState:
    """The state as far as the VMI alone shows it; whether another VMI follows is in the VM."""
    if vmi.is_deleting:
        return ObservedState("stopping")
    if vmi.phase == "Succeeded":
        return ObservedState("stopped", "its guest has powered off")
    if vmi.phase == "Failed":
        return ObservedState("failed", vmi.reason or "its domain crashed")
    if vmi.phase in _EARLY_PHASES:
        return ObservedState("starting", vmi.pending_reason)
    if vmi.is_migrating:
        return ObservedState("migrating", "the VM is moving to another host")
    return ObservedState("running", _pending_while_running(vmi))


def _without_instance(vm: Vm) -> ObservedState:
    if vm.status in _PROVISIONING:
        return ObservedState("provisioning", vm.failure or _PROVISIONING[vm.status])
    if vm.status == "CrashLoopBackOff":
        return ObservedState(
            "failed", f"the VM crashes at every start; the next try is at {vm.retry_at or 'a later time'}"
        )
    if vm.failure:
        return ObservedState("failed", vm.failure)
    if vm.run_strategy == "Halted":
        return ObservedState("stopped")
    if not vm.status or vm.observed_run_strategy != vm.run_strategy:
        return ObservedState("provisioning", "Harvester has not started the VM yet")
    if vm.start_requested or vm.status == "Starting" or vm.run_strategy == "Always":
        return ObservedState("starting")
    if vm.status == "Stopping":
        return ObservedState("stopping")
    return ObservedState("stopped")


def _failed(vm: Vm, vmi: Vmi) -> ObservedState:
    reason = vmi.reason or "its domain crashed"
    if vm.run_strategy in _RESTARTING:
        return ObservedState("starting", f"the VM failed ({reason}) and is being started again")
    return ObservedState("failed", reason)


def _early(vm: Vm, vmi: Vmi) -> ObservedState:
    if vm.status in _PROVISIONING:
        return ObservedState("provisioning", vmi.pending_reason or _PROVISIONING[vm.status])
    return ObservedState("starting", vmi.pending_reason)


def _pending_while_running(vmi: Vmi) -> str:
    if vmi.is_paused:
        return "the VM is paused"
    if vmi.addresses:
        return ""
    if not vmi.agent_connected:
        return "its guest agent has not answered yet"
    return "its guest agent reports no address yet"


# The states in which a guest runs; only then its addresses are valid.
_GUEST_RUNS: frozenset[VmState] = frozenset({"running", "migrating"})
_STATES = frozenset({"", *get_args(VmState)})


@dataclass(frozen=True, slots=True)
class MachineStatus:
    """The observed status of one machine at its infrastructure; `machine_uid` is that of the Machine object.

    `presence` is "missing" only after a live request: the built-in driver's GET answered 404 on the Harvester whose
    identity the config records, or another driver's error text says so. Everything else that is not certain is
    "unknown", and unknown never replaces or deletes (design §2.5).
    """

    machine_uid: str
    name: str
    presence: Literal["present", "missing", "unknown"]
    vm_uid: str = ""
    state: VmState | Literal[""] = ""
    addresses: tuple[str, ...] = ()
    host: str = ""
    host_ready: bool | None = None  # None: the credential may not get the host's Node
    agent_connected: bool | None = None  # None: no guest runs that could have an agent
    zone: str = ""
    region: str = ""
    because: str = ""  # the infrastructure's own message about the state, or why it is unknown
    is_complete: bool = True  # False while a resource that it needs to start is not created yet
    since: datetime | None = None  # since when presence and state have been the same
    is_migratable: bool | None = None  # None: it does not run, or Harvester does not say
    maintenance_strategy: str = ""  # what its label says of maintenance mode of its host


class InvalidVmStatus(ValueError):
    """A plugin returned a status that is malformed."""


def read_vm_status(vm: Vm, vmi: Vmi | None, host: Host | None = None) -> MachineStatus:
    """The status of the machine of an existing VM, by its instance and the instance's host where they can be read."""
    state = read_state(vm, vmi)
    if vmi is None:
        return MachineStatus(
            vm.machine_uid, vm.ref.name, "present", vm.uid, state.state, because=state.because
        )
    is_up = state.state in _GUEST_RUNS
    return MachineStatus(
        machine_uid=vm.machine_uid,
        name=vm.ref.name,
        presence="present",
        vm_uid=vm.uid,
        state=state.state,
        addresses=vmi.addresses if is_up else (),
        host=vmi.host,
        host_ready=host.is_ready if host is not None else None,
        agent_connected=vmi.agent_connected if is_up else None,
        zone=vmi.zone or (host.zone if host is not None else ""),
        region=vmi.region or (host.region if host is not None else ""),
        because=state.because,
        is_migratable=vmi.is_migratable,
        maintenance_strategy=vmi.maintenance_strategy,
    )


def dump_vm_status(status: MachineStatus) -> bytes:
    """The answer to WindrowGetVmStatus."""
    return dumps(
        {
            "presence": status.presence,
            "vmUID": status.vm_uid,
            "state": status.state,
            "addresses": list(status.addresses),
            "host": status.host,
            "hostReady": status.host_ready,
            "agentConnected": status.agent_connected,
            "zone": status.zone,
            "region": status.region,
            "because": status.because,
            "complete": status.is_complete,
            "migratable": status.is_migratable,
            "maintenanceStrategy": status.maintenance_strategy,
        }
    )


def load_vm_status(raw: bytes, machine_uid: str, name: str) -> MachineStatus:
    """The status of this machine that `dump_vm_status` wrote, in any release. Raises InvalidVmStatus."""
    try:
        fields = loads(raw)
    except NotJson as error:
        raise InvalidVmStatus(f"it is not JSON: {error}") from error
    if not isinstance(fields, dict):
        raise InvalidVmStatus(f"it is {type(fields).__name__}, not an object")
    presence: Any = fields.get("presence")
    state: Any = fields.get("state") or ""
    addresses: Any = fields.get("addresses") or ()
    if presence not in ("present", "missing") or str(state) not in _STATES:
        raise InvalidVmStatus(f"it is {presence!r} and {state!r}")
    if not isinstance(addresses, list | tuple):
        raise InvalidVmStatus(f"its addresses are {addresses!r}")
    return MachineStatus(
        machine_uid=machine_uid,
        name=name,
        presence=presence,
        vm_uid=_text(fields, "vmUID"),
        state=state,
        addresses=tuple(map(str, addresses)),
        host=_text(fields, "host"),
        host_ready=_bool(fields, "hostReady"),
        agent_connected=_bool(fields, "agentConnected"),
        zone=_text(fields, "zone"),
        region=_text(fields, "region"),
        because=_text(fields, "because"),
        is_complete=fields.get("complete") is not False,
        is_migratable=_bool(fields, "migratable"),
        maintenance_strategy=_text(fields, "maintenanceStrategy"),
    )


def _text(fields: Mapping[str, Any], key: str) -> str:
    return str(fields.get(key) or "")


def _bool(fields: Mapping[str, Any], key: str) -> bool | None:
    value = fields.get(key)
    if value is not None and not isinstance(value, bool):
        raise InvalidVmStatus(f"{key} is {value!r}, not true, false or null")
    return value
