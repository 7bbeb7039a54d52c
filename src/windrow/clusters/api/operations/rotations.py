"""How far rotations have got: of encryption keys, of certificates, and of the server token.

Encryption keys and certificates are Rancher's fields (reference/10-day2 §2.4). `rotateToken` is Windrow's own, since Rancher
has none: its fields are named as those of encryption keys.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal, get_args

from windrow.kubernetes.objects import time_of

MAX_GENERATION = 2**31 - 1
MAX_SERVICES = 32
RotationPhase = Literal["", "Prepare", "Rotate", "PostRotateRestart", "Done", "Failed"]

# The services that have certificates, in the words of `certificate rotate` (reference/10-day2 §2.7).
AGENT_SERVICES = ("kubelet", "kube-proxy", "rke2-controller", "k3s-controller")
CERTIFICATE_SERVICES = (
    "admin",
    "api-server",
    "auth-proxy",
    "cloud-controller",
    "controller-manager",
    "etcd",
    "scheduler",
    "rke2-server",
    "k3s-server",
    *AGENT_SERVICES,
)


@dataclass(frozen=True, slots=True)
class RecordedRotation:
    """A rotation as far as it is recorded: `leader` is the Machine whose server is asked."""

    generation: int = 0
    phase: RotationPhase = ""
    leader: str = ""
    id: str = ""
    message: str = ""
    since: datetime | None = None  # the phase
    retry_at: datetime | None = None

    @property
    def is_under_way(self) -> bool:
        return self.holds_turns or self.phase == "PostRotateRestart"

    @property
    def holds_turns(self) -> bool:
        """Whether no turn may begin: what is rotated is about to change, or changing."""
        return self.phase in ("Prepare", "Rotate")


@dataclass(frozen=True, slots=True)
class RecordedKeyRotation(RecordedRotation):
    """`status.rotateEncryptionKeys*`: `active_key` is the one before the rotation."""

    active_key: str = ""
    snapshot: str = ""


@dataclass(frozen=True, slots=True)
class RecordedRenewal:
    """`status.certificateRotation*`: `generation` was carried out; the one under way is that of `id`, "" where there is none.

    What is said of it stays after its end. With `makes_keys` there are new keys, for `services` or, without one, for all; else what is near its end is renewed.
    """

    generation: int = 0
    wanted: int = 0
    id: str = ""
    since: datetime | None = None
    makes_keys: bool = False
    services: tuple[str, ...] = ()
    expiry: datetime | None = None  # of the certificate for which the last one began by itself
    # Which was warned of last, and how many days before its end.
    warned_of: datetime | None = None
    warned_days: int = 0


@dataclass(frozen=True, slots=True)
class RecordedTokenRotation(RecordedRotation):
    """`status.rotateToken*`: the leader's server is given the new token."""


def read_key_rotation(status: Mapping[str, Any]) -> RecordedKeyRotation:
    run = read_mapping(status, "rotateEncryptionKeysRun")
    return RecordedKeyRotation(
        **_read_rotation(status, "rotateEncryptionKeys"),
        active_key=str(run.get("activeKey") or ""),
        snapshot=str(run.get("snapshot") or ""),
    )


def read_renewal(status: Mapping[str, Any]) -> RecordedRenewal:
    run = read_mapping(status, "certificateRotationRun")
    services, warned = run.get("services"), read_mapping(status, "certificatesWarned")
    return RecordedRenewal(
        generation=read_number(status.get("certificateRotationGeneration")),
        wanted=read_number(run.get("generation")),
        id=str(run.get("id") or ""),
        since=time_of(run, "since"),
        makes_keys=run.get("newKeys") is True,
        services=tuple(map(str, services[:MAX_SERVICES])) if isinstance(services, list) else (),
        expiry=time_of(run, "expiryDate"),
        warned_of=time_of(warned, "expiryDate"),
        warned_days=read_number(warned.get("days")),
    )


def read_token_rotation(status: Mapping[str, Any]) -> RecordedTokenRotation:
    return RecordedTokenRotation(**_read_rotation(status, "rotateToken"))


def _read_rotation(status: Mapping[str, Any], field: str) -> dict[str, Any]:
    """What every RecordedRotation has, under the names that begin with `field`."""
    run = read_mapping(status, f"{field}Run")
    return {
        "generation": read_number(read_mapping(status, field).get("generation")),
        "phase": _read_phase(status.get(f"{field}Phase")),
        "leader": str(status.get(f"{field}Leader") or ""),
        "id": str(run.get("id") or ""),
        "message": str(run.get("message") or ""),
        "since": time_of(run, "since"),
        "retry_at": time_of(run, "retryAt"),
    }


def _read_phase(value: object) -> RotationPhase:
    return next((one for one in get_args(RotationPhase) if one == value), "")


def read_mapping(raw: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    found = raw.get(key)
    return found if isinstance(found, dict) else {}


def read_number(value: object) -> int:
    return value if isinstance(value, int) and 0 <= value <= MAX_GENERATION else 0
