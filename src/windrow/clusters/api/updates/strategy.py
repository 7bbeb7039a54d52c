"""`spec.rkeConfig.upgradeStrategy`: how many machines change at once, and how their Nodes are drained before."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from datetime import timedelta

from windrow.clusters.api.fields import Fields

# What Rancher reads a timeout of 0 as (reference/04 §2.6).
DRAIN_TIMEOUT = timedelta(seconds=600)
MAX_SECONDS = 7 * 24 * 3600


@dataclass(frozen=True, slots=True)
class Concurrency:
    """How many machines of a tier change at once: a number or a percentage of them; 0 is all."""

    count: int = 1
    percent: int | None = None

    def resolve(self, total: int) -> int:
        """The number it means for `total` machines: at least one."""
        if self.percent is not None:
            return max(1, total * self.percent // 100)
        return self.count or max(1, total)

    def __str__(self) -> str:
        return f"{self.percent}%" if self.percent is not None else str(self.count)


@dataclass(frozen=True, slots=True)
class DrainOptions:
    """Rancher's, as far as they are acted on."""

    enabled: bool = False
    timeout: timedelta = DRAIN_TIMEOUT
    ignore_errors: bool = False
    disable_eviction: bool = False


@dataclass(frozen=True, slots=True)
class UpgradeStrategy:
    control_plane: Concurrency = field(default_factory=Concurrency)
    workers: Concurrency = field(default_factory=Concurrency)
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


_CONCURRENCY = re.compile(r"(?P<percent>[1-9][0-9]?|100)%|(?P<count>0|[1-9][0-9]{0,3})")


def _read_concurrency(fields: Fields, key: str) -> Concurrency:
    text = fields.short_text(key)
    if not text:
        return Concurrency()
    found = _CONCURRENCY.fullmatch(text)
    if found is None:
        fields.refuse(key, f"is {text!r}", "write a number, 0 for all at once, or a percentage such as 10%")
        return Concurrency()
    if found["percent"]:
        return Concurrency(percent=int(found["percent"]))
    return Concurrency(int(found["count"]))


def _read_drain(fields: Fields) -> DrainOptions:
    seconds = fields.count("timeout", 0, MAX_SECONDS)
    return DrainOptions(
        enabled=fields.flag("enabled"),
        timeout=timedelta(seconds=seconds) if seconds else DRAIN_TIMEOUT,
        ignore_errors=fields.flag("ignoreErrors"),
        disable_eviction=fields.flag("disableEviction"),
    )
