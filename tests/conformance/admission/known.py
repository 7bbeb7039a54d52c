"""What is known to differ: a list that only becomes shorter, and a list of differences that are meant, with reasons.

`known-differences.txt` has a line `SORT KEY` per case that the emulator still answers otherwise, in one release at least: a
case that is answered alike in all, or that differs in another way, must be taken out or corrected (`python -m
tests.conformance.admission --renew` removes, and never adds). `accepted-differences.txt` has a line `KEY | reason` per case
that stays as it is (`accepted.py`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from tests.conformance.admission.accepted import read_accepted
from tests.conformance.admission.comparing import Difference
from tests.conformance.admission.suite import Result

HERE = Path(__file__).parent
KNOWN = HERE / "known-differences.txt"

# Of 5,000 mutations of each release: none may differ.
MUTATIONS, MUTATIONS_THAT_DIFFER = 5000, 0
COMBINATIONS = 1000


def _lines(path: Path) -> list[str]:
    return [line for line in path.read_text().splitlines() if line and not line.startswith("#")]


def read_known() -> dict[str, str]:
    """The sort of difference by the key of the case."""
    return {key: sort for sort, _, key in (line.partition(" ") for line in _lines(KNOWN))}


def find_unexpected(
    results: Iterable[Result], known: Mapping[str, str], accepted: Mapping[str, str]
) -> list[Difference]:
    """The differences that neither list has."""
    differences = (result.difference for result in results)
    return [
        one
        for one in differences
        if one and not (one.is_wording or one.key in accepted or known.get(one.key) == one.sort)
    ]


def find_stale(results: Iterable[Result], listed: Iterable[str]) -> list[str]:
    """The lines of a list that are no longer true, by the results of all releases."""
    found = list(results)
    asked = {one.question.key for one in found}
    differing = {one.question.key for one in found if one.difference and not one.difference.is_wording}
    return [
        f"{key} {'is answered alike now' if key in asked else 'is no case'}: take its line out"
        for key in listed
        if key not in differing
    ]


def renew(results: Iterable[Result], *, add: bool = False) -> None:
    """Take out of the list what all releases that were asked answer alike now; `add` for the first list of new cases."""
    head = [line for line in KNOWN.read_text().splitlines() if line.startswith("#")]
    known, accepted = read_known(), read_accepted()
    now: dict[str, Difference | None] = {}
    for one in results:
        now[one.question.key] = one.difference or now.get(one.question.key)
    kept = {key: sort for key, sort in known.items() if key not in now}
    for key, difference in now.items():
        if difference and not difference.is_wording and key not in accepted and (add or key in known):
            kept[key] = difference.sort
    KNOWN.write_text("\n".join([*head, *(f"{sort} {key}" for key, sort in kept.items()), ""]))


def closing_line(release: str, results: Iterable[Result]) -> str:
    """`v1.8.2: N equal, M accepted, K unexpected`, and how many of these K the list of known differences has."""
    known, accepted = read_known(), read_accepted()
    found = list(results)
    differing = [one for one in found if one.difference is not None]
    meant = [
        one
        for one in differing
        if one.difference and (one.difference.is_wording or one.question.key in accepted)
    ]
    listed = len(differing) - len(meant) - len(find_unexpected(differing, known, accepted))
    counts = f"{len(found) - len(differing)} equal, {len(meant)} accepted, {len(differing) - len(meant)} unexpected"
    return f"{release}: {counts}" + (f" ({listed} of them known)" if listed else "")
