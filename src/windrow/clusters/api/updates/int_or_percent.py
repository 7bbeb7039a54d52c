"""A number of machines or a percentage of them, as Kubernetes' IntOrString: what it means, and how it is read."""

from __future__ import annotations

import re
from dataclasses import dataclass

from windrow.clusters.api.fields import Fields

_TEXT = re.compile(r"(?P<percent>[0-9]{1,3})\s*%|(?P<count>[0-9]{1,9})")


@dataclass(frozen=True, slots=True)
class IntOrPercent:
    """How many of a pool or tier: a number, or a percentage of it; `minimum` is that of a range."""

    percent: int | None = 40
    count: int = 0
    minimum: int = 0

    def resolve(self, total: int) -> int:
        """The number it means for `total` machines, rounded down, but at least one for a percentage."""
        return self.count if self.percent is None else max(1, self.resolve_down(total))

    def resolve_up(self, total: int) -> int:
        """As `resolve`, rounded up and 0 for 0 %: as Kubernetes reads maxSurge."""
        return self.count if self.percent is None else -(-total * self.percent // 100)

    def resolve_down(self, total: int) -> int:
        """As `resolve`, but 0 where a percentage is less than one: as Kubernetes reads maxUnavailable."""
        return self.count if self.percent is None else total * self.percent // 100

    def resolve_concurrency(self, total: int) -> int:
        """As `resolve`, but 0 is all: as Rancher reads the concurrencies of `upgradeStrategy`. At least one."""
        return self.resolve(total) or max(1, total)

    def __str__(self) -> str:
        return f"{self.percent}%" if self.percent is not None else str(self.count)


def read_int_or_percent(
    fields: Fields, key: str, hint: str = "write a number or a percentage, such as 40%"
) -> IntOrPercent | None:
    """None where it is not set, or refused with the hint."""
    text = fields.short_text(key)
    if not text:
        return None
    found = _TEXT.fullmatch(text)
    if found is None:
        fields.refuse(key, f"is {text!r}", hint)
        return None
    return IntOrPercent(None, int(found["count"])) if found["count"] else IntOrPercent(int(found["percent"]))
