"""Status of a VirtualMachine, derived from the VM and its instance. Pure.

`printableStatus` is an ordered table (reference 05 §2.2): the first row that holds wins.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from typing import Any

from windrow.core.clock import format_time
from windrow.emulator.kit.vm_readings import FINAL, phase_of, read_instance, read_strategy, read_vm
from windrow.emulator.vms.run_strategies import open_requests
from windrow.kubernetes.conditions import Condition, find_condition, set_condition
from windrow.kubernetes.objects import Raw, is_deleting, nested

Vm = Mapping[str, Any]
Vmi = Mapping[str, Any] | None


def _has(vmi: Vmi, type: str, status: str, reason: str = "") -> bool:
    found = find_condition(nested(vmi, "status", "conditions"), type)
    return found is not None and found.status == status and reason in ("", found.reason)


def _is_alive(vmi: Vmi) -> bool:
    return vmi is not None and phase_of(vmi) not in FINAL


def _is_stopping(vm: Vm, vmi: Vmi) -> bool:
    if vmi is None or not _is_alive(vmi):
        return False
    requests = open_requests(read_vm(vm), read_instance(vmi))
    return (
        is_deleting(vmi) or bool(requests and requests[0].action == "Stop") or read_strategy(vm) == "Halted"
    )


def _is_migrating(vmi: Vmi) -> bool:
    state = nested(vmi, "status", "migrationState")
    return _is_alive(vmi) and state is not None and not state.get("completed")


def _is_starting(vmi: Vmi) -> bool:
    return vmi is not None and phase_of(vmi) in ("", "Pending", "Scheduling", "Scheduled")


PRINTABLE: tuple[tuple[str, Callable[[Vm, Vmi, datetime], bool]], ...] = (
    ("Terminating", lambda vm, vmi, now: is_deleting(vm)),
    ("Stopping", lambda vm, vmi, now: _is_stopping(vm, vmi)),
    ("Migrating", lambda vm, vmi, now: _is_migrating(vmi)),
    ("Paused", lambda vm, vmi, now: _is_alive(vmi) and _has(vmi, "Paused", "True")),
    ("Running", lambda vm, vmi, now: vmi is not None and phase_of(vmi) == "Running"),
    ("ErrorPvcNotFound", lambda vm, vmi, now: _is_starting(vmi) and _has(vmi, "Synchronized", "False", "FailedPvcNotFound")),
    ("ErrorUnschedulable", lambda vm, vmi, now: _is_starting(vmi) and _has(vmi, "PodScheduled", "False", "Unschedulable")),
    ("Starting", lambda vm, vmi, now: _is_starting(vmi)),
    ("CrashLoopBackOff", lambda vm, vmi, now: not _is_alive(vmi) and (at := read_vm(vm).retry_at) is not None and now < at),
    ("Stopped", lambda vm, vmi, now: not _is_alive(vmi)),
)  # fmt: skip


def printable_status(vm: Vm, vmi: Vmi, now: datetime) -> str:
    return next((name for name, holds in PRINTABLE if holds(vm, vmi, now)), "Unknown")


def _ready(vmi: Vmi) -> Condition:
    if vmi is None:
        return Condition("Ready", "False", "VMINotExists", "VMI does not exist")
    found = find_condition(nested(vmi, "status", "conditions"), "Ready")
    if found is None:
        return Condition("Ready", "False", "VMIConditionMissing", "VMI is missing the Ready condition")
    return found


# The VM's own; everything else among its conditions is a copy of the instance's.
_OWN_CONDITIONS = frozenset({"Ready", "Failure", "RestartRequired", "ManualRecoveryRequired"})


def derive_status(vm: Vm, vmi: Vmi, now: datetime, failure: Condition | None = None) -> Raw:
    """The whole status of `vm`. Keeps what other stages own: startFailure, status.runStrategy, requests that are
    not done."""
    before: Raw = dict(vm.get("status") or {})
    own = [raw for raw in before.get("conditions") or () if raw["type"] in _OWN_CONDITIONS]
    conditions = set_condition([raw for raw in own if raw["type"] == "Ready"], _ready(vmi), now)
    instance_conditions = nested(vmi, "status", "conditions", default=[])
    conditions += [raw for raw in instance_conditions if raw["type"] not in _OWN_CONDITIONS]
    if _needs_restart(vm, vmi):
        kept = [raw for raw in own if raw["type"] == "RestartRequired"]
        conditions += set_condition(kept, _RESTART, now)
    if failure is not None:
        kept = [raw for raw in before.get("conditions") or () if raw["type"] == "Failure"]
        conditions += set_condition(kept, failure, now)
    left = open_requests(read_vm(vm), read_instance(vmi))
    generation = nested(vm, "metadata", "generation", default=1)
    made: Raw = {
        **before,
        "conditions": render_conditions(conditions),
        "created": vmi is not None,
        "ready": _is_alive(vmi) and _ready(vmi).status == "True",
        "printableStatus": printable_status(vm, vmi, now),
        "desiredGeneration": generation,
        "observedGeneration": generation,
        "volumeSnapshotStatuses": [
            _render_snapshot_status(one)
            for one in nested(vm, "spec", "template", "spec", "volumes", default=[])
        ],
        "stateChangeRequests": [
            raw
            for raw in before.get("stateChangeRequests") or ()
            if any((one.action, one.uid) == (raw.get("action"), raw.get("uid") or "") for one in left)
        ],
    }
    for key in ("created", "ready", "stateChangeRequests", "volumeSnapshotStatuses"):
        if not made[key]:
            del made[key]
    return made


def render_conditions(conditions: Iterable[Mapping[str, Any]]) -> list[Raw]:
    """Conditions as KubeVirt writes them: with lastProbeTime, without an empty reason or message."""
    return [
        {"lastProbeTime": None}
        | {key: value for key, value in one.items() if value or key not in ("reason", "message")}
        for one in conditions
    ]


_RESTART = Condition(
    "RestartRequired",
    "True",
    "RestartRequired",
    "a non-live-updatable field was changed in the template spec",
)
# What a running instance may differ in: shortened by a stop order, or plugged while it runs.
_LIVE_FIELDS = ("terminationGracePeriodSeconds", "volumes", "affinity", "nodeSelector", "tolerations")


def _needs_restart(vm: Vm, vmi: Vmi) -> bool:
    if vmi is None or not _is_alive(vmi) or is_deleting(vmi):
        return False
    return _non_live_fields(nested(vm, "spec", "template", "spec", default={})) != _non_live_fields(
        vmi.get("spec") or {}
    )


def _non_live_fields(spec: Mapping[str, Any]) -> Raw:
    made = {key: value for key, value in spec.items() if key not in _LIVE_FIELDS}
    domain = dict(made.get("domain") or {})
    domain["devices"] = {key: value for key, value in (domain.get("devices") or {}).items() if key != "disks"}
    return {**made, "domain": domain}


def _render_snapshot_status(volume: Raw) -> Raw:
    name = volume.get("name", "")
    if "persistentVolumeClaim" in volume:
        return {"name": name, "enabled": True}
    reason = f"Snapshot is not supported for this volumeSource type [{name}]"
    return {"name": name, "enabled": False, "reason": reason}


def set_phase(raw: Raw, phase: str, now: datetime) -> None:
    """Set the phase of an instance or migration, with its transition timestamp."""
    status = raw.setdefault("status", {})
    status["phase"] = phase
    entered = {"phase": phase, "phaseTransitionTimestamp": format_time(now)}
    status["phaseTransitionTimestamps"] = [*(status.get("phaseTransitionTimestamps") or ()), entered]
