"""`status.update` of a Machine: the change that is being carried out on it, recorded before anything is done.

It is there while the machine has its turn, and stays where its turn failed. `id` is a digest of what is wanted, so that the
same is not begun twice; the name of the Job in the guest is recorded with the turn.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

from windrow.core.clock import format_time
from windrow.kubernetes.objects import nested, time_of

# In their order. "Preflight": a Job asks the machine whether it can take another release; "Drain": the Node is cordoned, and
# drained where that is asked for; "Apply": a Job writes the files on it and restarts the service, and the Node shows what it
# runs then; "Withdraw": that Job is late and goes before the turn fails; "Stop" and "Start" of a VM that is edited in between.
UpdateStep = Literal["Preflight", "Drain", "Apply", "Withdraw", "Stop", "Start"]
STEPS: tuple[UpdateStep, ...] = ("Preflight", "Drain", "Apply", "Withdraw", "Stop", "Start")
SERVICE_RESTART, LIVE, VM_RESTART = "service restart", "live", "VM restart"


@dataclass(frozen=True, slots=True)
class UpdateFailure:
    """Why a turn has failed, with the step and, where a program said something, its last lines."""

    step: str
    message: str
    hint: str = ""
    since: datetime | None = None


@dataclass(frozen=True, slots=True)
class MachineUpdate:
    """The turn of one machine. `attempt` counts those with the same `id`; `cordoned` says that the Node was schedulable
    before, so that it is again afterwards. `boot` is the Node's boot ID before its VM was restarted, `refused` why the VM was not
    edited, or why its Job is withdrawn."""

    id: str
    change: str
    version: str
    config_hash: str
    step: str
    since: datetime | None = None
    step_since: datetime | None = None
    job: str = ""
    attempt: int = 1
    cordoned: bool = False
    boot: str = ""
    refused: str = ""
    restart: str = ""  # the id of the request that it follows, where nothing of it is changed
    failure: UpdateFailure | None = None

    @property
    def is_in_place(self) -> bool:
        """Whether the machine stays: it is carried out by a Job in the guest, or by a restart of its VM."""
        return self.change in (SERVICE_RESTART, LIVE, VM_RESTART)

    @property
    def is_preparing(self) -> bool:
        """Whether nothing that the machine runs was changed or stopped yet."""
        return self.step in ("Preflight", "Drain")

    @property
    def preflight_job(self) -> str:
        """The name of the Job of its step Preflight."""
        return f"{self.job}-preflight"

    @property
    def restarts_by_request(self) -> bool:
        """Whether its service restarts though nothing of it is changed."""
        return bool(self.restart) and self.change == SERVICE_RESTART


def update_id(change: str, version: str, config_hash: str, options: str = "") -> str:
    """The digest of what is wanted; `options` are those of a VM that is restarted for them, as one text, or the
    request to restart a service."""
    parts = (change, version, config_hash, options) if options else (change, version, config_hash)
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:12]


def job_name(machine_uid: str, id: str, attempt: int, since: datetime) -> str:
    """The name of the Job in the guest: that of one turn, which is recorded before there is the Job. `since` is when the turn
    began: what is asked for again has another Job."""
    digest = hashlib.sha256(f"{machine_uid}/{id}/{attempt}/{format_time(since)}".encode()).hexdigest()
    return f"windrow-update-{digest[:12]}"


def read_machine_update(status: Mapping[str, Any]) -> MachineUpdate | None:
    """What is recorded in a Machine's status."""
    raw = status.get("update")
    if not isinstance(raw, Mapping) or not raw.get("id"):
        return None
    return MachineUpdate(
        id=str(raw["id"]),
        change=str(raw.get("change") or ""),
        version=str(raw.get("version") or ""),
        config_hash=str(raw.get("configHash") or ""),
        step=str(raw.get("step") or ""),
        since=time_of(raw, "since"),
        step_since=time_of(raw, "stepSince"),
        job=str(raw.get("job") or ""),
        attempt=int(raw.get("attempt") or 1),
        cordoned=raw.get("cordoned") is True,
        boot=str(raw.get("boot") or ""),
        refused=str(raw.get("refused") or ""),
        restart=str(raw.get("restart") or ""),
        failure=_read_failure(raw.get("failure")),
    )


def _read_failure(raw: Any) -> UpdateFailure | None:
    if not isinstance(raw, Mapping):
        return None
    return UpdateFailure(
        nested(raw, "step", default=""),
        nested(raw, "message", default=""),
        nested(raw, "hint", default=""),
        time_of(raw, "since"),
    )


def render_machine_update(update: MachineUpdate) -> dict[str, Any]:
    """The whole value of `status.update`, for a merge patch: what is not set is removed."""
    failure = update.failure
    return {
        "id": update.id,
        "change": update.change,
        "version": update.version,
        "configHash": update.config_hash,
        "step": update.step,
        "since": _stamp(update.since),
        "stepSince": _stamp(update.step_since),
        "job": update.job or None,
        "attempt": update.attempt,
        "cordoned": update.cordoned,
        "boot": update.boot or None,
        "refused": update.refused or None,
        "restart": update.restart or None,
        "failure": None
        if failure is None
        else {
            "step": failure.step,
            "message": failure.message,
            "hint": failure.hint or None,
            "since": _stamp(failure.since),
        },
    }


def _stamp(instant: datetime | None) -> str | None:
    return None if instant is None else format_time(instant)


@dataclass(frozen=True, slots=True)
class UpgradeSnapshot:
    """`status.upgradeSnapshot` of a Cluster: the etcd snapshot that was made before an upgrade, or why there is none."""

    version: str = ""  # that was gone to
    generation: int = 0  # of the Cluster
    name: str = ""
    message: str = ""
    retry_at: datetime | None = None  # None: it is not asked for again


def read_upgrade_snapshot(status: Mapping[str, Any]) -> UpgradeSnapshot:
    raw = status.get("upgradeSnapshot")
    if not isinstance(raw, Mapping):
        return UpgradeSnapshot()
    return UpgradeSnapshot(
        str(raw.get("version") or ""),
        int(raw.get("generation") or 0),
        str(raw.get("name") or ""),
        str(raw.get("message") or ""),
        time_of(raw, "retryAt"),
    )
