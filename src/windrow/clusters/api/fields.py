"""Reading what users wrote, field by field, collecting every fault on the way instead of stopping at the first."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from windrow.core.formats.bounds import MAX_LENGTH, abbreviate, is_too_long
from windrow.core.formats.duration import NotDuration, parse_duration
from windrow.harvester.problems import Severity
from windrow.kubernetes.selectors import BadLabelSelector, read_label_selector
from windrow.machines.port import Problem


@dataclass(slots=True)
class ProblemCollector:
    """The problems found so far."""

    found: list[Problem] = field(default_factory=list)

    def add(self, field: str, message: str, hint: str, severity: Severity = "error") -> None:
        self.found.append(Problem(message, hint, field, severity))

    def has(self, field: str) -> bool:
        return any(problem.field == field for problem in self.found)

    def has_below(self, path: str, key: str) -> bool:
        """Whether an item of the list at `path` has one in its field `key`."""
        return any(
            problem.field.startswith(f"{path}[") and problem.field.endswith(f"].{key}")
            for problem in self.found
        )


_TYPE_NAMES: dict[type, str] = {
    str: "text",
    bool: "true or false",
    int: "a whole number",
    dict: "a mapping",
    list: "a list",
}


# How people and older YAML write what is true and what is false.
_FLAGS = {"true": "true", "yes": "true", "on": "true", "false": "false", "no": "false", "off": "false"}


def _hint_for(value: Any, wanted: type) -> str:
    """What to write in place of a value of another type: its own, where the text holds one."""
    text = value.strip() if isinstance(value, str) and len(value) <= MAX_LENGTH else ""
    if wanted is int and text.isascii() and text.isdigit():
        return f"write {int(text)}, without quotes"
    if wanted is bool and text.lower() in _FLAGS:
        return f"write {_FLAGS[text.lower()]}, without quotes"
    if wanted is list and text:
        return f"write [{text}]"
    return f"write {_TYPE_NAMES[wanted]} there"


@dataclass(frozen=True, slots=True)
class Fields:
    """One mapping in a manifest. A field of the wrong shape is a fault and then counts as unset."""

    raw: Mapping[str, Any]
    path: str
    problems: ProblemCollector

    def _read(self, key: str, wanted: type) -> Any:
        value = self.raw.get(key)
        # bool is an int to Python, but not to people.
        if value is None or (isinstance(value, wanted) and (wanted is bool or not isinstance(value, bool))):
            return value
        self.refuse(
            key,
            f"is {abbreviate(value)}, which is not {_TYPE_NAMES[wanted]}",
            _hint_for(value, wanted),
        )
        return None

    def at(self, key: str) -> str:
        return f"{self.path}.{key}" if self.path else key

    def refuse(self, key: str, fault: str, hint: str) -> None:
        """Add the error that the field `key` has this fault: `is 'x'`."""
        self.problems.add(self.at(key), f"{self.at(key)} {fault}", hint)

    def text(self, key: str) -> str:
        return self._read(key, str) or ""

    def short_text(self, key: str) -> str:
        """A text of at most 64 characters; a longer one is a fault, so that it is neither matched nor converted."""
        text = self.text(key)
        if is_too_long(text):
            self.refuse(key, f"is {abbreviate(text)}", f"write {MAX_LENGTH} characters at most")
            return ""
        return text

    def flag(self, key: str) -> bool:
        return bool(self._read(key, bool))

    def count(self, key: str, default: int, maximum: int) -> int:
        """A whole number from 0 to `maximum`."""
        value = self._read(key, int)
        if value is None:
            return default
        if not 0 <= value <= maximum:
            self.refuse(key, f"is {abbreviate(value)}", f"write 0 or more, and {maximum} at most")
            return default
        return int(value)

    def duration(self, key: str, default: timedelta | None) -> timedelta | None:
        """A span of time as Go writes it; `default` where it is unset or of no length."""
        text = self.short_text(key)
        if not text:
            return default
        try:
            duration = parse_duration(text)
        except NotDuration:
            duration = timedelta(seconds=-1)
        if duration < timedelta():
            self.refuse(key, f"is {text!r}, which is not a span of time", "write for example 300s or 5m")
            return default
        return duration or default

    def mapping(self, key: str) -> dict[str, Any]:
        return self._read(key, dict) or {}

    def child(self, key: str) -> Fields:
        return Fields(self.mapping(key), self.at(key), self.problems)

    def items(self, key: str, maximum: int | None = None) -> Iterator[Fields]:
        """The mappings of a list; of one of more than `maximum` entries none is read."""
        values = self._read(key, list) or ()
        if maximum is not None and len(values) > maximum:
            self.refuse(key, f"has {len(values)} entries", f"write {maximum} at most")
            return
        for place, value in enumerate(values):
            if isinstance(value, dict):
                yield Fields(value, f"{self.at(key)}[{place}]", self.problems)
            else:
                fault = f"is {abbreviate(value)}, which is not a mapping"
                self.refuse(f"{key}[{place}]", fault, "write a mapping there")

    def texts(self, key: str) -> list[str]:
        """The texts of a list."""
        values = self._read(key, list) or []
        for place, value in enumerate(values):
            if not isinstance(value, str):
                self.refuse(
                    f"{key}[{place}]", f"is {abbreviate(value)}, which is not text", "write text there"
                )
        return [value for value in values if isinstance(value, str)]

    def strings(self, key: str) -> dict[str, str]:
        """A mapping from text to text, as labels are."""
        return {str(name): "" if value is None else str(value) for name, value in self.mapping(key).items()}

    def selector(self, key: str) -> bool:
        """Whether the label selector says what it selects; one that cannot be read is a fault."""
        try:
            read_label_selector(self.raw.get(key))
        except BadLabelSelector as bad:
            self.refuse(".".join(filter(None, (key, bad.field))), bad.fault, bad.hint)
            return False
        return True

    def warn(self, key: str, fault: str, hint: str) -> None:
        """`fault` follows the path to the field."""
        self.problems.add(self.at(key), f"{self.at(key)} {fault}", hint, "warning")
