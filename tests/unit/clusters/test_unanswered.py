"""Until when a creation that was requested and not answered may still be carried out, and what a deletion makes of it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import replace
from datetime import timedelta
from typing import cast

import pytest
from tests.unit.clusters.builders import (
    NOON,
    a_cluster,
    a_machine,
    a_pool,
    leaving,
    minutes,
    missing,
    of_kind,
    planned,
    subjects,
)

from windrow.client.middleware.unanswered import UnansweredCreations
from windrow.client.transport import Transport
from windrow.clusters.api.status import GuestServiceAccount, RecordedStatus
from windrow.clusters.plan.actions import (
    DeleteServiceAccount,
    DeleteVM,
    RemoveFinalizer,
    RemoveMachineFinalizer,
)
from windrow.clusters.state import MachineState
from windrow.harvester.unanswered import LATEST, UnansweredRequests
from windrow.kubernetes.errors import KubeError, OutcomeUnknown, Unreachable
from windrow.kubernetes.requests import Reply, Request

WORKERS = a_pool("workers", 1)
START = timedelta(hours=1)


def led() -> UnansweredRequests:
    requests = UnansweredRequests()
    requests.begin(START)
    return requests


def test_what_an_earlier_process_requested_and_never_saw_may_be_made_for_a_while_after_this_one_began() -> (
    None
):
    assert led().find_end("uid", was_observed=False) == START + LATEST
    assert led().find_end("uid", was_observed=True) is None


def test_what_this_process_recorded_and_had_answered_is_over() -> None:
    requests = led()
    requests.on_recorded("uid")
    requests.on_request("uid")

    assert requests.find_end("uid", was_observed=False) is None


def test_what_is_requested_again_may_be_made_by_the_earlier_request_though_it_was_seen() -> None:
    requests = led()
    requests.on_request("uid")

    assert requests.find_end("uid", was_observed=True) == START + LATEST


def test_a_request_that_ended_without_an_answer_counts_from_its_end() -> None:
    requests, end = led(), START + timedelta(hours=2)
    requests.on_recorded("uid")
    requests.on_unanswered("uid", end)
    requests.on_request("uid")

    assert requests.find_end("uid", was_observed=True) == end + LATEST
    requests.forget("uid")
    assert requests.find_end("uid", was_observed=True) is None


def test_who_leads_again_knows_nothing_of_what_was_requested_before() -> None:
    requests = led()
    requests.on_recorded("uid")
    requests.begin(START * 2)

    assert requests.find_end("uid", was_observed=False) == START * 2 + LATEST


class Answering:
    def __init__(self, *results: KubeError | Reply) -> None:
        self._results = iter(results)

    async def send(self, request: Request) -> Reply:
        result = next(self._results)
        if isinstance(result, KubeError):
            raise result
        return result


def sent(requests: Iterable[Request], *results: KubeError | Reply) -> bool:
    creations = UnansweredCreations(cast(Transport, Answering(*results)), "virtualmachines")

    async def send_all() -> None:
        for request in requests:
            try:
                await creations.send(request)
            except KubeError:
                continue

    asyncio.run(send_all())
    return creations.found


CREATE = Request("POST", "/apis/kubevirt.io/v1/namespaces/default/virtualmachines")
OTHERS = [Request("GET", CREATE.path), Request("POST", "/api/v1/namespaces/default/secrets")]
DENIED = Reply(500, b'{"kind":"Status","message":"admission webhook \\"x\\" denied the request: no"}')


@pytest.mark.parametrize(
    ("result", "may_follow"),
    [
        (OutcomeUnknown("no answer"), True),
        (Reply(504), True),
        (Reply(500), True),
        (Unreachable("refused"), False),
        (Reply(201), False),
        (Reply(403), False),
        (Reply(409), False),
        (Reply(503), False),
        (DENIED, False),
    ],
)
def test_a_creation_without_a_certain_answer_may_follow(result: KubeError | Reply, may_follow: bool) -> None:
    assert sent([CREATE], result) is may_follow
    assert (
        sent([CREATE, CREATE], result, Reply(409)) is may_follow
    )  # the other answer is not that of the first
    assert not sent(OTHERS, result, result)


def test_a_creation_that_is_not_waited_for_may_follow() -> None:
    class Silent:
        async def send(self, request: Request) -> Reply:
            return await asyncio.Future()

    async def story() -> bool:
        creations = UnansweredCreations(cast(Transport, Silent()))
        sending = asyncio.ensure_future(creations.send(CREATE))
        await asyncio.sleep(0)
        sending.cancel()
        await asyncio.gather(sending, return_exceptions=True)
        return creations.found

    assert asyncio.run(story())


def requested(ended: float, asked: float | None) -> MachineState:
    """A machine that is being deleted, without a VM; the minutes before NOON."""
    machine = missing(leaving(a_machine("w1", WORKERS)))
    record = replace(machine.record, driver_config={"MachineName": "w1"}, node="")
    return replace(
        machine,
        record=record,
        node=None,
        may_be_made_until=NOON - minutes(ended),
        deletion_requested=None if asked is None else NOON - minutes(asked),
    )


@pytest.mark.parametrize("whole_cluster", [True, False])
@pytest.mark.parametrize(
    ("ended", "asked", "actions"),
    [
        (-1, 0.5, []),  # it may come yet
        (-1, None, [DeleteVM]),  # its disks are looked for at once
        (0, 0.5, [DeleteVM]),  # none can come; one may have come since
        (1, 0.5, [RemoveMachineFinalizer]),
        (0.5, 0.5, [RemoveMachineFinalizer]),
        (1, None, [DeleteVM]),
    ],
)
def test_a_machine_never_seen_goes_after_a_look_at_which_no_request_for_it_was_under_way(
    whole_cluster: bool, ended: float, asked: float | None, actions: list[type]
) -> None:
    cluster = a_cluster(replace(WORKERS, quantity=0), deletion_timestamp=NOON if whole_cluster else None)

    plan = planned(cluster, [requested(ended, asked)])

    assert [type(action) for action in plan.actions if action.subject] == actions
    sentence = "any request to create VirtualMachine default/w1 to expire (no answer to one is known, so Harvester may carry it out yet)"
    waits = [wait for wait in plan.waits if wait.what == sentence]
    assert [wait.until for wait in waits] == ([NOON - minutes(ended)] if ended < 0 else [])


@pytest.mark.parametrize(("ended", "deleted"), [(-1, False), (0, True), (None, True)])
def test_the_service_account_goes_once_none_can_be_made_any_more(ended: float | None, deleted: bool) -> None:
    recorded = RecordedStatus(service_account=GuestServiceAccount("default", "prod", "ns:cc"))
    end = None if ended is None else NOON - minutes(ended)

    plan = planned(a_cluster(deletion_timestamp=NOON, recorded=recorded), account_may_be_made_until=end)

    assert bool(of_kind(plan, DeleteServiceAccount)) is deleted
    assert bool(of_kind(plan, RemoveFinalizer)) is deleted
    assert any("ServiceAccount default/prod to expire" in wait.what for wait in plan.waits) is not deleted
    assert not subjects(plan, DeleteVM)
