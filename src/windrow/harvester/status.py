"""What is to be seen of a machine: one reading for all who look, and its form on the wire to a host of ours.

The JSON keys are a promise to hosts of other releases: unknown ones are passed over, missing ones mean "not known".
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args

from windrow.core.json import NotJson, dumps, loads
from windrow.harvester.hosts import Host
from windrow.harvester.vm_state import VmState, read_state
from windrow.harvester.vmis import Vmi
from windrow.harvester.vms import Vm

# The states in which a guest works, and only in which its addresses lead to it.
_GUEST_RUNS: frozenset[VmState] = frozenset({"running", "migrating"})
_STATES = frozenset({"", *get_args(VmState)})


@dataclass(frozen=True, slots=True)
class VmStatus:
    """A machine as Harvester shows it. `because` are the words about its state, or about its absence."""

    presence: Literal["present", "missing"]
    vm_uid: str = ""
    state: VmState | Literal[""] = ""
    addresses: tuple[str, ...] = ()
    host: str = ""
    host_ready: bool | None = None  # None: the host cannot be seen with this credential
    agent_connected: bool | None = None  # None: no guest works that could have an agent
    zone: str = ""
    region: str = ""
    because: str = ""
    is_complete: bool = True  # False while something that it needs to start has still to be made


class InvalidVmStatus(ValueError):
    """What somebody shows of a machine makes no sense."""


def read_vm_status(vm: Vm, vmi: Vmi | None, host: Host | None = None) -> VmStatus:
    """A machine whose VM exists, with its instance and that one's host where there are any to be seen."""
    state = read_state(vm, vmi)
    if vmi is None:
        return VmStatus("present", vm.uid, state.state, because=state.because)
    is_up = state.state in _GUEST_RUNS
    return VmStatus(
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
    )


def dump_vm_status(status: VmStatus) -> bytes:
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
        }
    )


def load_vm_status(raw: bytes) -> VmStatus:
    """What `dump_sight` wrote, in this release or another. Raises InvalidVmStatus."""
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
    return VmStatus(
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
    )


def _text(fields: Mapping[str, Any], key: str) -> str:
    return str(fields.get(key) or "")


def _bool(fields: Mapping[str, Any], key: str) -> bool | None:
    value = fields.get(key)
    if value is not None and not isinstance(value, bool):
        raise InvalidVmStatus(f"{key} is {value!r}, not true, false or null")
    return value
