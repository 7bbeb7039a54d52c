"""The screen of `windrow check`: each problem as a message and a hint, errors first."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from windrow.cli.output.lines import StyledLine, Tone, line, to_text, wrap
from windrow.harvester.problems import Problem

if TYPE_CHECKING:
    from windrow.app.check import CheckResult, Comparison
    from windrow.cli.context import CliContext

_HEADS: dict[str, tuple[str, Tone]] = {"error": ("error    ", "bad"), "warning": ("warning  ", "busy")}

_RESULTS: dict[str, tuple[str, Tone]] = {
    "fits": ("fits     ", "good"),
    "warning": ("warning  ", "busy"),
    "refused": ("refused  ", "bad"),
    "not compared": ("unknown  ", "quiet"),
}


def _problem(problem: Problem, width: int) -> list[StyledLine]:
    return _block(_HEADS[problem.severity], problem.message, problem.hint, width)


def _block(label: tuple[str, Tone], message: str, hint: str, width: int) -> list[StyledLine]:
    """A sentence behind its label, and its hint below it."""
    head, tone = label
    room = width - len(head)
    messages = wrap(message, room)
    hints = wrap(hint, room, first="→ ", rest="  ") if hint else []
    indent = " " * len(head)
    first = [line((head, tone), messages[0])] if messages else []
    return [*first, *(line(indent, part) for part in [*messages[1:], *hints])]


def _render_compared(compared: Sequence[Comparison], compared_with: str, width: int) -> list[StyledLine]:
    title = f"Compared with the support matrix of {compared_with}:"
    lines = [line((part, "quiet")) for part in wrap(title, width)]
    for one in compared:
        lines += _block(_RESULTS[one.result], one.sentence, one.hint, width)
    return lines


def _count(number: int, word: str) -> str:
    return f"{number} {word}{'' if number == 1 else 's'}"


def render_problems(problems: Sequence[Problem], width: int = 80) -> list[StyledLine]:
    """Each problem as a message and a hint, errors first."""
    errors = [one for one in problems if one.severity == "error"]
    warnings = [one for one in problems if one.severity == "warning"]
    return [part for problem in [*errors, *warnings] for part in _problem(problem, width)]


def print_problems(results: Sequence[CheckResult], context: CliContext) -> bool:
    """Print every problem on standard error. Returns whether there is no error among them."""
    problems = list(dict.fromkeys(problem for one in results for problem in one.problems))
    for text in to_text(render_problems(problems, context.width)):
        context.print_note(text)
    return not any(one.errors for one in results)


def render_check_result(
    name: str,
    problems: Sequence[Problem],
    not_asked: str = "",
    width: int = 80,
    unchecked_kinds: Sequence[str] = (),
    compared: Sequence[Comparison] = (),
    compared_with: str = "",
) -> list[StyledLine]:
    """One cluster's problems under its name and their count, then what of its versions was compared, with the result on
    each and the cure. `unchecked_kinds` are not Harvester's to check."""
    errors = sum(one.severity == "error" for one in problems)
    warnings = len(problems) - errors
    summary = f"{_count(errors, 'error')}, {_count(warnings, 'warning')}" if problems else "no problem"
    if unchecked_kinds and not problems:
        summary = "no problem in what was checked"
    head = line((name, "strong"), f"  {summary}")
    sentences = {one.sentence for one in compared}
    lines = [head, *render_problems([one for one in problems if one.message not in sentences], width)]
    lines += _render_compared(compared, compared_with, width) if compared else []
    if not_asked:
        lines += [line((part, "quiet")) for part in wrap(f"Not checked on Harvester: {not_asked}.", width)]
        lines.append(line(("→ Add --harvester FILE, or start windrow serve.", "quiet")))
    for kind in unchecked_kinds:
        text = f"Not checked: {kind}; its machines are created by another driver."
        lines += [line((part, "quiet")) for part in wrap(text, width)]
    return lines
