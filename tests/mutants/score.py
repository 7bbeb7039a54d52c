"""The report of a run: its survivors, its score, and whether that is enough."""

from __future__ import annotations

from collections.abc import Sequence

from tests.mutants.runner import Outcome
from tests.mutants.targets import is_strict

LEAST_PERCENT = 90


def report(outcomes: Sequence[Outcome]) -> tuple[str, int]:
    """The text to print, and the exit code. What was not judged fails nothing: a slow machine is no hole in the tests."""
    if not outcomes:
        return "no mutants: nothing was judged, for these lines have none", 0
    killed = sum(one.outcome == "killed" for one in outcomes)
    survivors = sorted((one for one in outcomes if one.outcome == "survived"), key=lambda one: one.mutant.key)
    judged = killed + len(survivors)
    strict = [one for one in survivors if is_strict(one.mutant.path)]
    percent = 100 * killed / judged if judged else 0.0
    undecided = [one for one in outcomes if one.outcome == "undecided"]
    is_short = False
    lines = [describe(one) for one in (*survivors, *undecided)]
    share = f" ({percent:.0f} %)" if judged else ""
    by_types = sum(one.by_types for one in outcomes)
    by_tests = f"{100 * (killed - by_types) / judged:.0f} % by tests alone" if judged else ""
    refused = f", {by_types} of them by mypy alone ({by_tests})" if by_types else ""
    lines.append(f"{judged} mutants ran: {killed} killed{share}{refused}, {len(survivors)} survived")
    if len(outcomes) > judged:
        lines.append(
            f"{len(outcomes) - judged} were not judged: the time was up, or a test could not be asked ({len(undecided)} "
            "survived the others)"
        )
    if not judged:
        lines.append("nothing was judged: give it more time (--seconds), or fewer mutants (--count)")
    elif is_short := percent < LEAST_PERCENT:
        lines.append(f"wanted {LEAST_PERCENT} % killed: write tests that notice these changes")
    if strict:
        lines.append(
            f"{len(strict)} survived in files that delete, release or grant: each needs a test, or a reason in "
            "tests/mutants/accepted.toml"
        )
    return "\n".join(lines), int(is_short or bool(strict))


def describe(outcome: Outcome) -> str:
    asked = f"{outcome.tests} of the {outcome.of} tests that reach it" if outcome.of else "no test reaches it"
    strict = " (may let none live)" if is_strict(outcome.mutant.path) else ""
    word = "SURVIVED" if outcome.outcome == "survived" else "UNDECIDED, survived what was asked:"
    return f"{word} {outcome.mutant}{strict}\n    {asked}"
