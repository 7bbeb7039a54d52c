"""Two answers to one request, compared: verdict, code, text, causes, the object that would be stored."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from tests.conformance.admission.asking import Answer, Denial, Question

from windrow.kubernetes.objects import Raw

Sort = Literal["accepted", "refused", "denial", "object", "failure"]

# What differs from request to request, and is no part of a verdict.
VOLATILE = ("uid", "creationTimestamp", "resourceVersion", "generation", "managedFields", "selfLink")
MISSING = "(absent)"


@dataclass(frozen=True, slots=True)
class Difference:
    """`sort` is what the emulator does wrongly: accepts, refuses, denies with other words, stores another object."""

    key: str
    sort: Sort
    real: str
    emulated: str
    is_wording: bool = False  # the same, but for words that are accepted

    def __str__(self) -> str:
        return f"{self.key}\n    {self.sort}\n    real:     {self.real}\n    emulated: {self.emulated}"


def _denial_text(denials: tuple[Denial, ...]) -> str:
    return (
        " | ".join(f"{one.code} {one.reason} {one.text} {one.causes}".strip() for one in denials) or "allowed"
    )


def find_difference(question: Question, real: Answer, emulated: Answer) -> Difference | None:
    """None where the answers are equal. Of several real denials a client sees any, so any of them is right."""

    def differ(sort: Sort, left: str, right: str) -> Difference:
        return Difference(question.key, sort, left, right)

    if real.failure:
        return differ("failure", real.failure, _denial_text(emulated.denials))
    if real.is_allowed != emulated.is_allowed:
        sort: Sort = "refused" if real.is_allowed else "accepted"
        return differ(sort, _denial_text(real.denials), _denial_text(emulated.denials))
    if not real.is_allowed:
        if _told(emulated.denials[0], question) in {_told(one, question) for one in real.denials}:
            return None
        said = _told(emulated.denials[0].reworded(), question)
        same = said in {_told(one.reworded(), question) for one in real.denials}
        return Difference(
            question.key,
            "denial",
            _denial_text(real.denials),
            _denial_text(emulated.denials),
            is_wording=same,
        )
    left, right = _flat(_stable(real.object, question)), _flat(_stable(emulated.object, question))
    if left == right:
        return None
    paths = [path for path in sorted({*left, *right}) if left.get(path, MISSING) != right.get(path, MISSING)]
    return differ(
        "object",
        "; ".join(f"{path}={left.get(path, MISSING)}" for path in paths),
        "; ".join(f"{path}={right.get(path, MISSING)}" for path in paths),
    )


def _in_order(denial: Denial, question: Question) -> Denial:
    """The faults of labels and of a definition's schema come in the order of a Go map, which is none; the causes tell them all."""
    head, invalid, faults = denial.text.partition(" is invalid: ")
    if (
        not denial.causes
        or not faults.startswith("[")
        or not question.kind.group.endswith(("harvesterhci.io", "kubevirt.io", "k8s.cni.cncf.io"))
    ):
        return denial
    causes = sorted(json.loads(denial.causes), key=lambda cause: json.dumps(cause, sort_keys=True))
    return replace(denial, text=head + invalid, causes=json.dumps(causes, sort_keys=True))


def _told(denial: Denial, question: Question) -> Denial:
    """Without what is drawn: the last five signs of a generated name."""
    denial = _in_order(denial, question)
    metadata = (question.object or {}).get("metadata", {})
    beginning = metadata.get("generateName")
    if metadata.get("name") or not isinstance(beginning, str) or not beginning:
        return denial
    drawn = re.compile(f"{re.escape(beginning)}[a-z0-9]{{5}}(?![a-z0-9])")
    text, causes = (drawn.sub("(generated)", one) for one in (denial.text, denial.causes))
    return replace(denial, text=text, causes=causes)


def _stable(raw: Raw | None, question: Question) -> Any:
    """The object without what differs from request to request: drawn addresses and numbers, the time."""
    if raw is None:
        return None
    copied = json.loads(json.dumps(raw))
    for name in VOLATILE:
        copied["metadata"].pop(name, None)
    if not (question.object or {}).get("metadata", {}).get("name"):
        copied = json.loads(json.dumps(copied).replace(copied["metadata"]["name"], "(generated)"))
    spec = ((copied.get("spec") or {}).get("template") or {}).get("spec") or {}
    domain = spec.get("domain") or {}
    given = json.dumps(question.object)
    for card in (domain.get("devices") or {}).get("interfaces") or ():
        if card.get("macAddress") and card["macAddress"] not in given:
            card["macAddress"] = "(drawn)"
    firmware = domain.get("firmware") or {}
    for name in ("uuid", "serial"):
        if firmware.get(name) and firmware[name] not in given:
            firmware[name] = "(drawn)"
    return copied


def _flat(value: Any, path: str = "") -> Mapping[str, str]:
    return dict(_leaves(value, path))


def _leaves(value: Any, path: str) -> Iterator[tuple[str, str]]:
    """Every leaf by its path; null and the empty object are nothing: Go writes them or not by a field's type."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from _leaves(inner, f"{path}.{key}")
        if not value and path.endswith("]"):
            yield path, "{}"
    elif isinstance(value, list):
        for place, inner in enumerate(value):
            yield from _leaves(inner, f"{path}[{place}]")
    elif value is not None:
        yield path, json.dumps(value)
