"""The pre-create check: everything that can be known before anything is made, all problems at once."""

from __future__ import annotations

from collections.abc import Sequence

from windrow.nodedriver.configuration import Configuration
from windrow.nodedriver.lookups import judge, look_up, needed_to_run
from windrow.nodedriver.problems import Problem
from windrow.nodedriver.steps import Talk


def check(configurations: Sequence[Configuration]) -> Talk[list[Problem]]:
    """Look up what all configurations refer to, each thing once, and tell every problem once.

    What is wrong in a configuration itself is `rules.find_problems`; this adds what only Harvester knows.
    """
    found = yield from look_up([ref for each in configurations for ref in needed_to_run(each)])
    problems = [problem for each in configurations for problem in judge(each, found)]
    return list(dict.fromkeys(problems))
