"""The emulator's admission beside that of Harvester and KubeVirt: the same verdict, code, text and object for each request.

The reference program runs the webhooks of a Harvester release in an API server's order (`program/`). Where the emulator is
known to differ, `known-differences.txt` says so, and that file only becomes shorter. `python -m tests.conformance.admission`
prints the differences.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable

import pytest
from tests.conformance.admission.known import check, closing_line, read_accepted, read_known
from tests.conformance.admission.suite import GROUPS, Judged, Report, Result, run
from tests.support.clock import DrivenLoop

pytestmark = pytest.mark.go

# The whole takes minutes: python -m tests.conformance.admission --count --mutations 5000 --products 1000
SAMPLE, MANY_MUTATIONS = 200, 1000
FEW_COMBINATIONS, MANY_COMBINATIONS = 100, 300
# Of MANY_MUTATIONS, counted; to be lowered with the list of known differences, and 0 in the end.
MUTATIONS_THAT_DIFFER = 70


@pytest.fixture(scope="module")
def report(reference_program: Callable[[str], str]) -> Report:
    """One start of the reference program, since that takes seconds."""
    program = reference_program("admission")
    with asyncio.Runner(loop_factory=DrivenLoop) as runner:
        return runner.run(run(program, mutations=SAMPLE, combinations=FEW_COMBINATIONS))


def _assert_as_listed(results: Iterable[Result], belongs: Callable[[str], bool]) -> None:
    found = list(results)
    known = {key: sort for key, sort in read_known().items() if belongs(key)}
    accepted = {key: reason for key, reason in read_accepted().items() if belongs(key)}
    faults = check(found, known, accepted)
    assert not faults, "\n\n".join([*faults, closing_line(found)])


def _is_mutation(key: str) -> bool:
    return ": mutation " in key


def test_at_least_800_requests_of_every_kind_are_compared(report: Report) -> None:
    keys = Counter(result.question.key for result in report.cases)
    assert len(keys) >= 800
    assert keys.most_common(1)[0][1] == 1
    assert {result.question.group for result in report.cases} == set(GROUPS)


@pytest.mark.parametrize("group", GROUPS)
def test_requests_are_answered_as_by_the_real_webhooks_but_for_known_differences(
    group: str, report: Report
) -> None:
    _assert_as_listed(
        (result for result in report.cases if result.question.group == group),
        lambda key: key.startswith(f"{group}: ") and not _is_mutation(key),
    )


def test_mutations_of_valid_requests_are_answered_alike_but_for_known_differences(report: Report) -> None:
    _assert_as_listed(report.mutations, _is_mutation)


def test_at_most_20_differences_are_accepted_each_with_a_reason() -> None:
    accepted = read_accepted()
    assert len(accepted) <= 20
    assert all(accepted.values())


def _refused(products: Iterable[Judged]) -> list[str]:
    return [str(judged) for judged in products if judged.is_refused]


def test_what_the_node_driver_makes_is_accepted_by_the_real_webhooks(report: Report) -> None:
    assert _refused(report.products) == []
    assert sum(bool(judged.answers) for judged in report.products) > FEW_COMBINATIONS / 5


def test_an_affinity_that_kubevirt_refuses_is_refused_by_our_checks_first(report: Report) -> None:
    assert _refused(report.affinities) == []
    assert sum(bool(judged.made.problems) for judged in report.affinities) > 50
    assert sum(bool(judged.answers) for judged in report.affinities) > 40


@pytest.mark.long
@pytest.mark.timeout(300)
def test_a_thousand_mutations_and_three_hundred_combinations(reference_program: Callable[[str], str]) -> None:
    program = reference_program("admission")
    with asyncio.Runner(loop_factory=DrivenLoop) as runner:
        whole = runner.run(run(program, mutations=MANY_MUTATIONS, combinations=MANY_COMBINATIONS))

    differing = sum(result.difference is not None for result in whole.mutations)
    assert differing <= MUTATIONS_THAT_DIFFER, f"{differing} differ"
    assert _refused(whole.products) == []
    assert sum(bool(judged.made.problems) for judged in whole.products) > 100
