"""What is known to differ: a list that only becomes shorter, and a list of differences that are meant, with reasons.

`known-differences.txt` has a line `SORT KEY` per case that the emulator still answers otherwise: a case that has become equal,
or that differs in another way, must be taken out or corrected (`python -m tests.conformance.admission --renew` removes, and
never adds). `accepted-differences.txt` has a line `KEY | reason` per case that stays as it is.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from tests.conformance.admission.suite import Result

HERE = Path(__file__).parent
KNOWN = HERE / "known-differences.txt"
ACCEPTED = HERE / "accepted-differences.txt"


def _lines(path: Path) -> list[str]:
    return [line for line in path.read_text().splitlines() if line and not line.startswith("#")]


def read_known() -> dict[str, str]:
    """The sort of difference by the key of the case."""
    return {key: sort for sort, _, key in (line.partition(" ") for line in _lines(KNOWN))}


def read_accepted() -> dict[str, str]:
    """The reason by the key of the case."""
    return {
        key.strip(): reason.strip() for key, _, reason in (line.partition(" | ") for line in _lines(ACCEPTED))
    }


def check(results: Iterable[Result], known: Mapping[str, str], accepted: Mapping[str, str]) -> list[str]:
    """What the lists do not say: new differences, other ones, and lines that are no longer true."""
    faults = []
    for result in results:
        key, difference = result.question.key, result.difference
        if difference is None:
            if key in known or key in accepted:
                faults.append(f"{key}\n    is answered alike now: take its line out")
        elif key not in accepted and known.get(key) != difference.sort:
            faults.append(str(difference))
    asked = {result.question.key for result in results}
    faults += [f"{key}\n    is no case: take its line out" for key in known if key not in asked]
    return faults


def renew(results: Iterable[Result], *, add: bool = False) -> None:
    """Take out of the list what is answered alike now; `add` for the first list of new cases."""
    head = [line for line in KNOWN.read_text().splitlines() if line.startswith("#")]
    known = read_known()
    now = {one.question.key: one.difference for one in results}
    kept = {key: sort for key, sort in known.items() if key not in now}
    accepted = read_accepted()
    for key, difference in now.items():
        if difference is not None and key not in accepted and (add or key in known):
            kept[key] = difference.sort
    KNOWN.write_text("\n".join([*head, *(f"{sort} {key}" for key, sort in kept.items()), ""]))


def closing_line(results: Iterable[Result]) -> str:
    """`N equal, M accepted, K known to differ, U unexpected`"""
    known, accepted = read_known(), read_accepted()
    counts = dict.fromkeys(("equal", "accepted", "known to differ", "unexpected"), 0)
    for result in results:
        key, difference = result.question.key, result.difference
        if difference is None:
            counts["equal"] += 1
        elif key in accepted:
            counts["accepted"] += 1
        else:
            counts["known to differ" if known.get(key) == difference.sort else "unexpected"] += 1
    return ", ".join(f"{count} {what}" for what, count in counts.items())
