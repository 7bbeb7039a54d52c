"""What is to be seen of a machine: one reading for all who look, and its form on the wire to a host of ours.

The JSON keys are a promise to hosts of other releases: unknown ones are passed over, missing ones mean "not known".
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args

from windrow.core.json import NotJson, dumps, loads
from windrow.harvester.hosts import Host
from windrow.harvester.instances import Vmi
from windrow.harvester.vms import Vm
from windrow.nodedriver.state import State, judge_state

# The states in which a guest works, and only in which its addresses lead to it.
_UP: frozenset[State] = frozenset({"running", "migrating"})
_STATES = frozenset({"", *get_args(State)})


@dataclass(frozen=True, slots=True)
class Sight:
    """A machine as Harvester shows it. `because` are the words about its state, or about its absence."""

    presence: Literal["present", "missing"]
    vm_uid: str = ""
    state: State | Literal[""] = ""
    addresses: tuple[str, ...] = ()
    host: str = ""
    host_ready: bool | None = None  # None: the host cannot be seen with this credential
    agent_connected: bool | None = None  # None: no guest works that could have an agent
    zone: str = ""
    region: str = ""
    because: str = ""
    is_complete: bool = True  # False while something that it needs to start has still to be made


class BadSight(ValueError):
    """What somebody shows of a machine makes no sense."""


def see(vm: Vm, vmi: Vmi | None, host: Host | None = None) -> Sight:
    """A machine whose VM exists, with its instance and that one's host where there are any to be seen."""
    shown = judge_state(vm, vmi)
    if vmi is None:
        return Sight("present", vm.uid, shown.state, because=shown.because)
    is_up = shown.state in _UP
    return Sight(
        presence="present",
        vm_uid=vm.uid,
        state=shown.state,
        addresses=vmi.addresses if is_up else (),
        host=vmi.host,
        host_ready=host.is_ready if host is not None else None,
        agent_connected=vmi.agent_connected if is_up else None,
        zone=vmi.zone or (host.zone if host is not None else ""),
        region=vmi.region or (host.region if host is not None else ""),
        because=shown.because,
    )


def dump_sight(sight: Sight) -> bytes:
    """The answer to WindrowGetVmStatus."""
    return dumps(
        {
            "presence": sight.presence,
            "vmUID": sight.vm_uid,
            "state": sight.state,
            "addresses": list(sight.addresses),
            "host": sight.host,
            "hostReady": sight.host_ready,
            "agentConnected": sight.agent_connected,
            "zone": sight.zone,
            "region": sight.region,
            "because": sight.because,
            "complete": sight.is_complete,
        }
    )


def load_sight(raw: bytes) -> Sight:
    """What `dump_sight` wrote, in this release or another. Raises BadSight."""
    try:
        told = loads(raw)
    except NotJson as error:
        raise BadSight(f"it is not JSON: {error}") from error
    if not isinstance(told, dict):
        raise BadSight(f"it is {type(told).__name__}, not an object")
    presence: Any = told.get("presence")
    state: Any = told.get("state") or ""
    addresses: Any = told.get("addresses") or ()
    if presence not in ("present", "missing") or str(state) not in _STATES:
        raise BadSight(f"it is {presence!r} and {state!r}")
    if not isinstance(addresses, list | tuple):
        raise BadSight(f"its addresses are {addresses!r}")
    return Sight(
        presence=presence,
        vm_uid=_text(told, "vmUID"),
        state=state,
        addresses=tuple(map(str, addresses)),
        host=_text(told, "host"),
        host_ready=_truth(told, "hostReady"),
        agent_connected=_truth(told, "agentConnected"),
        zone=_text(told, "zone"),
        region=_text(told, "region"),
        because=_text(told, "because"),
        is_complete=told.get("complete") is not False,
    )


def _text(told: Mapping[str, Any], key: str) -> str:
    return str(told.get(key) or "")


def _truth(told: Mapping[str, Any], key: str) -> bool | None:
    value = told.get(key)
    if value is not None and not isinstance(value, bool):
        raise BadSight(f"{key} is {value!r}, not true, false or null")
    return value
