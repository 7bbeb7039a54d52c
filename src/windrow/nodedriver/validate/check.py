"""The pre-create check: everything that can be known before anything is made, all problems at once."""

from __future__ import annotations

from collections.abc import Sequence

from windrow.harvester.problems import Problem
from windrow.nodedriver.config import Configuration
from windrow.nodedriver.effects import Operation
from windrow.nodedriver.validate.references import all_references, check_references, read_references


def check(configurations: Sequence[Configuration]) -> Operation[list[Problem]]:
    """Read every object that the configurations refer to, once each, and report every problem once.

    `rules.find_problems` checks a configuration by itself; this checks it against Harvester.
    """
    found = yield from read_references([ref for each in configurations for ref in all_references(each)])
    problems = [problem for each in configurations for problem in check_references(each, found)]
    return list(dict.fromkeys(problems))
