"""The screen of `windrow check`: each problem as a message and a hint, errors first."""

from __future__ import annotations

from collections.abc import Sequence

from windrow.cli.output.lines import StyledLine, Tone, line, wrap
from windrow.harvester.problems import Problem

_HEADS: dict[str, tuple[str, Tone]] = {"error": ("error    ", "bad"), "warning": ("warning  ", "busy")}


def _problem(problem: Problem, width: int) -> list[StyledLine]:
    head, tone = _HEADS[problem.severity]
    room = width - len(head)
    messages = wrap(problem.message, room)
    hints = wrap(problem.hint, room, first="→ ", rest="  ")
    indent = " " * len(head)
    first = [line((head, tone), messages[0])] if messages else []
    return [*first, *(line(indent, part) for part in [*messages[1:], *hints])]


def _count(number: int, word: str) -> str:
    return f"{number} {word}{'' if number == 1 else 's'}"


def render_problems(problems: Sequence[Problem], width: int = 80) -> list[StyledLine]:
    """Each problem as a message and a hint, errors first."""
    errors = [one for one in problems if one.severity == "error"]
    warnings = [one for one in problems if one.severity == "warning"]
    return [part for problem in [*errors, *warnings] for part in _problem(problem, width)]


def render_check_result(
    name: str,
    problems: Sequence[Problem],
    not_asked: str = "",
    width: int = 80,
    unchecked_kinds: Sequence[str] = (),
) -> list[StyledLine]:
    """One cluster's problems under its name and their count. `unchecked_kinds` are not Harvester's to check."""
    errors = sum(one.severity == "error" for one in problems)
    warnings = len(problems) - errors
    summary = f"{_count(errors, 'error')}, {_count(warnings, 'warning')}" if problems else "no problem"
    if unchecked_kinds and not problems:
        summary = "no problem in what was checked"
    head = line((name, "strong"), f"  {summary}")
    lines = [head, *render_problems(problems, width)]
    if not_asked:
        lines += [line((part, "quiet")) for part in wrap(f"Not checked on Harvester: {not_asked}.", width)]
        lines.append(line(("→ Add --harvester FILE, or start windrow serve.", "quiet")))
    for kind in unchecked_kinds:
        text = f"Not checked: {kind}; its machines are created by another driver."
        lines += [line((part, "quiet")) for part in wrap(text, width)]
    return lines
