"""Typed views of VirtualMachines and VirtualMachineInstances: the fields that the controllers decide by."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from windrow.apiserver.types.go_syntax import kind_of, syntax_error
from windrow.core.clock import parse_time
from windrow.core.formats.json import NotJson, loads
from windrow.emulator import names
from windrow.kubernetes.conditions import find_condition
from windrow.kubernetes.objects import Raw, annotations_of, is_deleting, nested, uid_of

FINAL = frozenset({"Succeeded", "Failed"})


@dataclass(frozen=True, slots=True)
class Request:
    """One entry of `status.stateChangeRequests`."""

    action: str
    uid: str = ""


@dataclass(frozen=True, slots=True)
class Vm:
    deleting: bool
    strategy: str
    acted_on: str  # status.runStrategy: the strategy that was last acted on
    requests: tuple[Request, ...]
    retry_at: datetime | None  # end of the start-failure back-off
    failures: int
    counted_failure: str  # uid of the instance that the last failure was counted for


@dataclass(frozen=True, slots=True)
class Instance:
    uid: str
    phase: str
    deleting: bool
    has_run: bool

    @property
    def is_final(self) -> bool:
        return self.phase in FINAL


def read_strategy(raw: Mapping[str, Any]) -> str:
    """The run strategy of the spec; the deprecated `running` is read too."""
    asked = nested(raw, "spec", "runStrategy")
    if asked:
        return str(asked)
    return "Always" if nested(raw, "spec", "running") else "Halted"


def read_vm(raw: Mapping[str, Any]) -> Vm:
    retry = nested(raw, "status", "startFailure", "retryAfterTimestamp")
    return Vm(
        deleting=is_deleting(raw),
        strategy=read_strategy(raw),
        acted_on=nested(raw, "status", "runStrategy", default=""),
        requests=tuple(
            Request(one.get("action", ""), one.get("uid") or "")
            for one in nested(raw, "status", "stateChangeRequests", default=[])
        ),
        retry_at=parse_time(retry) if retry else None,
        failures=nested(raw, "status", "startFailure", "consecutiveFailCount", default=0),
        counted_failure=nested(raw, "status", "startFailure", "lastFailedVMIUID", default=""),
    )


def read_instance(raw: Mapping[str, Any] | None) -> Instance | None:
    if raw is None:
        return None
    return Instance(
        uid=uid_of(raw),
        phase=phase_of(raw),
        deleting=is_deleting(raw),
        has_run=entered(raw, "Running") is not None,
    )


def phase_of(vmi: Mapping[str, Any]) -> str:
    return str(nested(vmi, "status", "phase", default=""))


def entered(vmi: Mapping[str, Any], phase: str) -> datetime | None:
    """When the instance entered `phase` for the last time; None when it never did."""
    for step in reversed(nested(vmi, "status", "phaseTransitionTimestamps", default=[])):
        if step.get("phase") == phase:
            return parse_time(step["phaseTransitionTimestamp"])
    return None


def claims_of(template_spec: Mapping[str, Any]) -> list[str]:
    """Names of the claims that a VM template or instance spec mounts, in order."""
    names = (
        nested(volume, "persistentVolumeClaim", "claimName") for volume in template_spec.get("volumes") or ()
    )
    return [name for name in names if name]


def is_hotpluggable(volume: Mapping[str, Any]) -> bool:
    """Whether the volume is plugged into a running machine, and may be unplugged."""
    sources = (volume.get(kind) for kind in ("persistentVolumeClaim", "dataVolume"))
    return any(isinstance(source, dict) and source.get("hotpluggable") is True for source in sources)


def fixed_claims_of(template_spec: Mapping[str, Any]) -> list[str]:
    """Names of the claims that the launcher pod itself mounts: all but those that are hot-plugged."""
    fixed = [one for one in template_spec.get("volumes") or () if not is_hotpluggable(one)]
    return claims_of({"volumes": fixed})


def claims_in_use(vmi: Mapping[str, Any]) -> list[str]:
    """Names of the claims that an instance has, or that are not unplugged from it yet."""
    leaving = (
        nested(one, "persistentVolumeClaimInfo", "claimName")
        for one in nested(vmi, "status", "volumeStatus", default=[])
    )
    return [*claims_of(vmi.get("spec") or {}), *(name for name in leaving if name)]


def host_devices_of(template_spec: Mapping[str, Any]) -> list[tuple[str, str]]:
    """The GPUs and host devices that it asks for: "GPU" or "HostDevice", and the resource's name."""
    devices = nested(template_spec, "domain", "devices", default={})
    return [
        (kind, str(one.get("deviceName") or ""))
        for key, kind in (("gpus", "GPU"), ("hostDevices", "HostDevice"))
        for one in devices.get(key) or ()
    ]


def networks_of(template_spec: Mapping[str, Any], namespace: str) -> dict[str, str]:
    """Network name to `namespace/nad`, "" for the pod network."""
    made = {}
    for network in template_spec.get("networks") or ():
        target = nested(network, "multus", "networkName", default="")
        if target and "/" not in target:
            target = f"{namespace}/{target}"
        made[network["name"]] = target
    return made


def grace_of(vmi: Mapping[str, Any]) -> timedelta:
    return timedelta(seconds=nested(vmi, "spec", "terminationGracePeriodSeconds", default=30))


def is_connected(vmi: Mapping[str, Any]) -> bool:
    return find_condition(nested(vmi, "status", "conditions"), "AgentConnected") is not None


class BadTemplates(ValueError):
    """The annotation volumeClaimTemplates cannot be read."""


def read_claim_templates(vm: Mapping[str, Any]) -> list[Raw]:
    """The PVC objects that the annotation asks for. Raises BadTemplates."""
    text = annotations_of(vm).get(names.CLAIM_TEMPLATES)
    if not text:
        return []
    try:
        found = loads(text)
    except NotJson as error:
        raise BadTemplates(syntax_error(text)) from error
    if found is None:
        return []
    if not isinstance(found, list):
        into = "Go value of type []util.VolumeClaimTemplateEntry"
        raise BadTemplates(f"json: cannot unmarshal {kind_of(found)} into {into}")
    if wrong := [one for one in found if not isinstance(one, dict)]:
        into = "Go value of type util.VolumeClaimTemplateEntry"
        raise BadTemplates(f"json: cannot unmarshal {kind_of(wrong[0])} into {into}")
    if not all(nested(one, "metadata", "name") for one in found):
        raise BadTemplates("PVC name is required")
    return found
