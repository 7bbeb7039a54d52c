"""`spec.rkeConfig.upgradeStrategy`: how many machines change at once, and how their Nodes are drained before."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta

from windrow.clusters.api.fields import Fields
from windrow.clusters.api.updates.int_or_percent import IntOrPercent, read_int_or_percent

# What Rancher reads a timeout of 0 as (reference/04 §2.6).
DRAIN_TIMEOUT = timedelta(seconds=600)
MAX_SECONDS = 7 * 24 * 3600


ONE_AT_A_TIME = IntOrPercent(None, 1)


@dataclass(frozen=True, slots=True)
class DrainOptions:
    """Rancher's, with the meaning of `kubectl drain`, as far as they are acted on. `delete_empty_dir_data` is None where it is not
    set; `grace_period` in seconds, None for each pod's own."""

    enabled: bool = False
    timeout: timedelta = DRAIN_TIMEOUT
    ignore_errors: bool = False
    disable_eviction: bool = False
    force: bool = False  # pods without a controller leave, too
    delete_empty_dir_data: bool | None = None
    grace_period: int | None = None


@dataclass(frozen=True, slots=True)
class UpgradeStrategy:
    control_plane: IntOrPercent = ONE_AT_A_TIME
    workers: IntOrPercent = ONE_AT_A_TIME
    control_plane_drain: DrainOptions = field(default_factory=DrainOptions)
    worker_drain: DrainOptions = field(default_factory=DrainOptions)


def read_upgrade_strategy(rke: Fields) -> UpgradeStrategy:
    fields = rke.child("upgradeStrategy")
    return UpgradeStrategy(
        _read_concurrency(fields, "controlPlaneConcurrency"),
        _read_concurrency(fields, "workerConcurrency"),
        _read_drain(fields.child("controlPlaneDrainOptions")),
        _read_drain(fields.child("workerDrainOptions")),
    )


def _read_concurrency(fields: Fields, key: str) -> IntOrPercent:
    hint = "write a number, 0 for all at once, or a percentage such as 10%"
    found = read_int_or_percent(fields, key, hint)
    if found is None:
        return ONE_AT_A_TIME
    if found.percent is not None and not 1 <= found.percent <= 100:
        fields.refuse(key, f"is '{found}'", hint)
        return ONE_AT_A_TIME
    return found


def _is_set(fields: Fields, key: str) -> bool:
    return fields.raw.get(key) is not None


def _read_grace_period(fields: Fields) -> int | None:
    """Negative is each pod's own, as Rancher has it."""
    value = fields.raw.get("gracePeriod")
    if isinstance(value, int) and not isinstance(value, bool) and value < 0:
        return None
    return fields.count("gracePeriod", 0, MAX_SECONDS) if _is_set(fields, "gracePeriod") else None


def _read_drain(fields: Fields) -> DrainOptions:
    seconds = fields.count("timeout", 0, MAX_SECONDS)
    return DrainOptions(
        enabled=fields.flag("enabled"),
        timeout=timedelta(seconds=seconds) if seconds else DRAIN_TIMEOUT,
        ignore_errors=fields.flag("ignoreErrors"),
        disable_eviction=fields.flag("disableEviction"),
        force=fields.flag("force"),
        delete_empty_dir_data=fields.flag("deleteEmptyDirData")
        if _is_set(fields, "deleteEmptyDirData")
        else None,
        grace_period=_read_grace_period(fields),
    )
