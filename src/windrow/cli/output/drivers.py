"""The screens of `windrow driver`: the state of each NodeDriver in a word, and the message of its condition."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from windrow.cli.output.lines import StyledLine, Tone, line, wrap, wrap_problems
from windrow.cli.output.tables import render_table
from windrow.kubernetes.conditions import Condition, find_condition
from windrow.kubernetes.objects import is_deleting, name_of, nested

NOT_OBSERVED = "the manager has not observed it yet"
CONDITIONS = ("Downloaded", "Installed", "Sandboxed", "Active")
_TONES: dict[str, Tone] = {"active": "good", "failed": "bad", "inactive": "quiet", "working": "busy"}
# An active driver of which a newer version is not in use yet.
_STILL_ACTIVE = {"UpdateFailed": "active, failed", "Updating": "active, working"}


@dataclass(frozen=True, slots=True)
class DriverView:
    """One NodeDriver. `is_observed`: whether the conditions are about the present spec."""

    name: str
    url: str
    checksum: str
    description: str
    builtin: bool
    wanted: bool
    deleting: bool
    driver: str
    kind: str
    conditions: tuple[Condition, ...]
    is_observed: bool

    def find(self, type: str) -> Condition | None:
        return next((one for one in self.conditions if one.type == type), None)

    @property
    def state(self) -> str:
        """active, inactive, working, failed, deleting or pending. Two words: an older version is still active."""
        active = self.find("Active")
        if self.deleting:
            return "deleting"
        if active is None:
            return "pending"
        if active.status == "True":
            return _STILL_ACTIVE.get(active.reason, "active")
        if active.status == "Unknown":
            return "working"
        return "inactive" if active.reason == "Deactivated" else "failed"

    @property
    def message(self) -> str:
        active = self.find("Active")
        return active.message if active is not None else NOT_OBSERVED


def read_view(raw: Mapping[str, Any]) -> DriverView:
    spec, status = nested(raw, "spec", default={}), nested(raw, "status", default={})
    found = [find_condition(status.get("conditions"), type) for type in CONDITIONS]
    return DriverView(
        name=name_of(raw),
        url=str(spec.get("url") or ""),
        checksum=str(spec.get("checksum") or ""),
        description=str(spec.get("description") or ""),
        builtin=spec.get("builtin") is True,
        wanted=spec.get("active") is True,
        deleting=is_deleting(raw),
        driver=str(status.get("driverName") or ""),
        kind=str(status.get("configKind") or ""),
        conditions=tuple(one for one in found if one is not None),
        is_observed=status.get("observedGeneration") == raw["metadata"].get("generation"),
    )


def render_drivers(drivers: Sequence[DriverView], width: int = 80) -> list[str]:
    """`windrow driver list`."""
    rows = [(one.name, one.kind or "-", one.state, one.message) for one in drivers]
    lines = render_table(("NAME", "KIND", "STATE", "MESSAGE"), rows, width)
    short = [one.name for one, row in zip(drivers, lines[1:], strict=True) if not row.endswith(one.message)]
    if short:
        lines.append(
            f"→ See the whole message: windrow driver show {short[0] if len(short) == 1 else 'NAME'}"
        )
    return lines


def render_driver(driver: DriverView, width: int = 80) -> list[StyledLine]:
    """`windrow driver show`."""
    facts = [
        ("Kind", driver.kind or "not known yet"),
        ("Driver", driver.driver or "not known yet"),
        ("Source", "built in" if driver.builtin and driver.url == "local://" else driver.url),
        ("SHA-256", driver.checksum),
        ("Description", driver.description),
    ]
    head = line((driver.name, "strong"), "  ", (driver.state, _TONES.get(driver.state, "")))
    lines = [head]
    for label, value in facts:
        if value:
            lines += _labelled(label, wrap(value, width - 14))
    for one in driver.conditions:
        tone: Tone = "good" if one.status == "True" else "bad" if one.status == "False" else "busy"
        if one.reason == "Deactivated":
            tone = "quiet"
        lines += _labelled(one.type, wrap_problems(one.message, width - 14), tone)
    return lines


def _labelled(label: str, texts: Sequence[str], tone: Tone = "") -> list[StyledLine]:
    heads = [f"  {label:<10}  ", *[" " * 14] * (len(texts) - 1)]
    return [line(head, (text, tone)) for head, text in zip(heads, texts, strict=False)]
