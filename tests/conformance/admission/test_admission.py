"""The emulator's admission beside that of Harvester and KubeVirt: the same verdict, code, text and object for each request.

The reference programs run the webhooks of a Harvester release in an API server's order (`program/`); the emulator is started
as that release. Where it is known to differ, `known-differences.txt` says so, and that file only becomes shorter. The whole,
with thousands of mutations, takes minutes: `make admission`, in CI a section of its own.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable

import pytest
from tests.conformance.admission.accepted import read_accepted, read_lines
from tests.conformance.admission.cases.balancers import OURS
from tests.conformance.admission.cases.writers import WRITERS, is_written_by
from tests.conformance.admission.known import closing_line, find_stale, find_unexpected, read_known
from tests.conformance.admission.others import LOAD_BALANCER, is_given
from tests.conformance.admission.suite import GROUPS, RELEASES, Judged, Question, Report, Result, run
from tests.support.clock import DrivenLoop

pytestmark = pytest.mark.go

MUTATIONS, COMBINATIONS = 200, 100
NEWEST, OLDER = RELEASES


def _report(
    reference_program: Callable[[str], str],
    release: str,
    mutations: int,
    combinations: int = 0,
    wanted: Callable[[Question], bool] = lambda question: True,
) -> Report:
    program = reference_program(f"admission-{release}")
    with asyncio.Runner(loop_factory=DrivenLoop) as runner:
        return runner.run(
            run(program, release, mutations=mutations, combinations=combinations, wanted=wanted)
        )


@pytest.fixture(scope="module")
def report(reference_program: Callable[[str], str]) -> Report:
    """One start of the reference program, since that takes seconds."""
    return _report(reference_program, NEWEST, MUTATIONS, COMBINATIONS)


def _assert_expected(release: str, results: Iterable[Result]) -> None:
    found = list(results)
    unexpected = find_unexpected(found, read_known(), read_accepted())
    assert not unexpected, "\n\n".join([*map(str, unexpected), closing_line(release, found)])


def test_at_least_800_requests_of_every_kind_are_compared(report: Report) -> None:
    keys = Counter(result.question.key for result in report.cases)
    assert len(keys) >= 800
    assert keys.most_common(1)[0][1] == 1
    assert {result.question.group for result in report.cases} == set(GROUPS)


@pytest.mark.parametrize("writer", WRITERS)
def test_what_others_write_is_accepted_by_the_real_webhooks(writer: str, report: Report) -> None:
    written = [one for one in report.cases if is_written_by(writer, one.question)]
    assert len(written) >= 30
    assert [one.question.key for one in written if not one.real.is_allowed] == []


@pytest.mark.skipif(not is_given(LOAD_BALANCER), reason=f"{LOAD_BALANCER} names no webhook of load balancers")
def test_the_load_balancers_of_our_products_are_accepted_by_the_real_webhook(
    reference_program: Callable[[str], str],
) -> None:
    """Those of each shape of an endpoint, and of Services; created, and updated with other servers."""
    ours = _report(reference_program, NEWEST, 0, wanted=lambda question: question.name.startswith(OURS)).cases
    assert len(ours) == 24
    assert [(one.question.key, one.real) for one in ours if not one.real.is_allowed] == []


@pytest.mark.parametrize("group", GROUPS)
def test_requests_are_answered_as_by_the_real_webhooks_but_for_known_differences(
    group: str, report: Report
) -> None:
    _assert_expected(NEWEST, (result for result in report.cases if result.question.group == group))


def test_mutations_of_valid_requests_are_answered_alike_but_for_known_differences(report: Report) -> None:
    _assert_expected(NEWEST, report.mutations)


def test_images_are_answered_as_by_the_release_before(reference_program: Callable[[str], str]) -> None:
    """The webhooks of both releases differ in images only; `make admission` asks everything of both."""
    images = _report(reference_program, OLDER, 0, wanted=lambda question: question.group == "image")
    _assert_expected(OLDER, images.cases)
    assert len(images.cases) > 50


def test_lists_of_differences_have_no_line_that_is_no_longer_true(report: Report) -> None:
    results = [*report.cases, *report.mutations]
    assert find_stale(results, read_known()) == []
    assert find_stale(results, read_accepted()) == []


def test_at_most_20_differences_are_accepted_each_with_a_reason() -> None:
    assert len(read_lines()) <= 20
    assert all(reason for _, reason in read_lines())


def _refused(products: Iterable[Judged]) -> list[str]:
    return [str(judged) for judged in products if judged.is_refused]


def test_what_the_node_driver_makes_is_accepted_by_the_real_webhooks(report: Report) -> None:
    assert _refused(report.products) == []
    assert sum(bool(judged.answers) for judged in report.products) > COMBINATIONS / 5


def test_an_affinity_that_kubevirt_refuses_is_refused_by_our_checks_first(report: Report) -> None:
    assert _refused(report.affinities) == []
    assert sum(bool(judged.made.problems) for judged in report.affinities) > 50
    assert sum(bool(judged.answers) for judged in report.affinities) > 40
