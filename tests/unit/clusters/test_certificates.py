"""When certificates end as far as is known, when that is warned of, and when services restart for it."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from tests.unit.clusters.builders import NOON, a_cluster, a_machine, a_pool, look, record_of

from windrow.bootstrap.spec import Role
from windrow.clusters.api.manifest.reading import read_cluster
from windrow.clusters.api.operations.recorded import RecordedOperations, read_recorded_operations
from windrow.clusters.api.operations.rotations import CERTIFICATE_SERVICES, RecordedRenewal
from windrow.clusters.plan.actions import PartialPlan
from windrow.clusters.plan.operations import certificates
from windrow.clusters.plan.operations.actions import BeginRenewal, WarnOfCertificates
from windrow.clusters.plan.operations.restarts import RestartRequest
from windrow.clusters.state import ClusterState, GuestState
from windrow.clusters.status import credential_condition
from windrow.core.clock import format_time

DAY = timedelta(days=1)
SERVERS = a_pool("servers", 1, frozenset({Role.ETCD, Role.CONTROL_PLANE}))
WORKERS = a_pool("workers", 1)
URL = "https://10.0.0.1:6443"


def a_state(
    *,
    left: timedelta | None = None,
    shown: datetime | None = None,
    renewal: RecordedRenewal | None = None,
    **rest: Any,
) -> ClusterState:
    """A server and a worker; of the server is recorded that its certificates end so long from now."""
    cluster = a_cluster(SERVERS, WORKERS, **rest.pop("cluster", {}))
    recorded = replace(
        cluster.recorded,
        initialized=True,
        provisioned=True,
        operations=RecordedOperations(renewal=renewal or RecordedRenewal()),
    )
    server, worker = a_machine("s1", SERVERS), a_machine("w1", WORKERS)
    if left is not None:
        status = {**server.record.status, "certificatesExpiryDate": format_time(NOON + left)}
        server = record_of(server, status=status)
    ends = {} if shown is None else {f"https://{server.address}:6443": shown}
    guest = GuestState("reachable", published_server=URL, certificate_ends=ends)
    return look(replace(cluster, recorded=recorded), [server, worker], guest=guest, **rest)


def plan(state: ClusterState) -> PartialPlan:
    partial = PartialPlan()
    certificates.watch_ends(state, partial)
    return partial


def end_of_server(state: ClusterState) -> datetime | None:
    return certificates.find_end(state.machines[0], state)


def test_what_no_server_has_shown_ends_a_year_after_the_machine_was_made() -> None:
    state = a_state()
    machine = state.machines[1]
    assert certificates.find_end(machine, state) == machine.record.created + timedelta(days=365)
    newcomer = replace(record_of(machine, conditions=()), node=None)
    assert certificates.find_end(newcomer, state) is None


@pytest.mark.parametrize(
    ("shown", "wanted"),
    [
        (NOON + 300 * DAY, NOON + 300 * DAY),
        (NOON + 100 * DAY + timedelta(hours=23), NOON + 100 * DAY),
        (NOON + 100 * DAY - timedelta(hours=23), NOON + 100 * DAY),
        (datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC), datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC)),
        (datetime(1, 1, 1, tzinfo=UTC), datetime(1, 1, 1, tzinfo=UTC)),
    ],
)
def test_what_a_server_shows_counts_unless_it_differs_by_hours(shown: datetime, wanted: datetime) -> None:
    state = a_state(left=100 * DAY, shown=shown)
    assert end_of_server(state) == wanted
    plan(state)  # no date is too early or too late to be reckoned with


def test_a_restart_renews_what_is_near_its_end_and_all_of_a_worker() -> None:
    server, worker = a_state().machines

    def after(machine: Any, left: timedelta, is_new: bool = False) -> timedelta:
        return certificates.find_next_end(machine, NOON + left, NOON, is_new=is_new) - NOON

    assert after(server, 90 * DAY) == 365 * DAY
    assert after(server, 91 * DAY) == 91 * DAY
    assert after(server, 91 * DAY, is_new=True) == 365 * DAY
    assert after(worker, 300 * DAY) == 365 * DAY
    assert after(server, -10 * DAY) == 365 * DAY


def test_the_machine_that_ends_first_counts() -> None:
    first = certificates.find_first_end(a_state(left=70 * DAY))
    assert first is not None
    assert (first[0].name, first[1]) == ("s1", NOON + 70 * DAY)
    assert certificates.find_first_end(look(a_cluster(SERVERS))) is None


def test_more_than_60_days_before_the_end_nothing_is_done() -> None:
    state = a_state(left=60 * DAY + timedelta(seconds=1))
    assert plan(state).actions == []
    assert certificates.certificates_condition(state) is None


@pytest.mark.parametrize(
    ("left", "days"), [(60, 60), (31, 60), (30, 30), (8, 30), (7, 7), (1, 7), (0, 0), (-9, 0)]
)
def test_it_is_warned_once_at_each_step_and_begun_to_renew(left: int, days: int) -> None:
    end = NOON + left * DAY
    warning, begin = plan(a_state(left=left * DAY)).actions
    assert isinstance(warning, WarnOfCertificates)
    assert (warning.days, warning.expiry) == (days, end)
    assert begin == BeginRenewal(begin.because, 0, False, (), end)
    assert ("ended on" if left <= 0 else "end on") in warning.because

    told = RecordedRenewal(warned_of=end, warned_days=days)
    assert [type(one) for one in plan(a_state(left=left * DAY, renewal=told)).actions] == [BeginRenewal]
    more = RecordedRenewal(warned_of=end, warned_days=days + 1)
    assert len(plan(a_state(left=left * DAY, renewal=more)).actions) == 2


def test_the_next_certificate_is_warned_of_again_and_one_that_flickers_is_not() -> None:
    def warned(before: timedelta) -> bool:
        told = RecordedRenewal(warned_of=NOON + 10 * DAY - before, warned_days=0)
        return any(
            isinstance(one, WarnOfCertificates) for one in plan(a_state(left=10 * DAY, renewal=told)).actions
        )

    assert warned(31 * DAY)
    assert not warned(30 * DAY)
    assert not warned(-200 * DAY)


@pytest.mark.parametrize(
    ("expiry", "since", "again"),
    [
        (None, None, True),
        (10 * DAY, -300 * DAY, False),  # the same end
        (10 * DAY + timedelta(hours=23), -300 * DAY, False),
        (11 * DAY, -300 * DAY, True),
        (200 * DAY, -29 * DAY, False),  # only lately
        (200 * DAY, 29 * DAY, False),  # by a clock that was set back
        (200 * DAY, -30 * DAY, True),
        (200 * DAY, None, True),
    ],
)
def test_nothing_restarts_twice_for_one_end_nor_twice_in_a_month(
    expiry: timedelta | None, since: timedelta | None, again: bool
) -> None:
    recorded = RecordedRenewal(
        expiry=None if expiry is None else NOON + expiry,
        since=None if since is None else NOON + since,
        warned_of=NOON + 10 * DAY,
    )
    state = a_state(left=10 * DAY, renewal=recorded)
    assert bool(plan(state).actions) is again
    condition = certificates.certificates_condition(state)
    assert condition is not None
    assert ("did not renew them" in condition.message) is not again


def test_renewal_by_itself_is_turned_off_by_an_annotation() -> None:
    state = a_state(left=10 * DAY, cluster={"renewal_disabled": True})
    assert [type(one) for one in plan(state).actions] == [WarnOfCertificates]
    condition = certificates.certificates_condition(state)
    assert condition is not None
    assert (condition.status, condition.reason) == ("False", "ExpireSoon")
    assert "windrow.io/renew-certificates turns their renewal off" in condition.message

    def read(value: str | None) -> Any:
        annotations = {} if value is None else {"windrow.io/renew-certificates": value}
        metadata = {"name": "prod", "namespace": "fleet-default", "uid": "u", "annotations": annotations}
        return read_cluster({"metadata": metadata, "spec": {}}, {}, lambda _: None)

    assert [read(one).cluster.renewal_disabled for one in (None, "", "on", "true", "off", "FALSE ")] == [
        *[False] * 4,
        True,
        True,
    ]
    (said,) = [str(one) for one in read("never").problems if "renew-certificates" in str(one)]
    assert "certificates are renewed by themselves" in said


def test_it_waits_while_it_is_held_and_says_for_what() -> None:
    partial = plan(a_state(left=10 * DAY, cluster={"paused": True}))
    assert [type(one) for one in partial.actions] == [WarnOfCertificates]
    assert partial.waits[0].what == "spec.paused to be unset"
    assert "services restart, which renews certificates that end on 2026-01-11" in partial.waits[0].then


@pytest.mark.parametrize(
    ("left", "renewal", "wanted"),
    [
        (10, RecordedRenewal(), ("False", "ExpireSoon")),
        (60, RecordedRenewal(warned_of=NOON), ("False", "ExpireSoon")),
        (0, RecordedRenewal(), ("False", "Expired")),
        (10, RecordedRenewal(id="renewal-0-1"), ("True", "Renewing")),
        (300, RecordedRenewal(warned_of=NOON), ("True", "Valid")),
    ],
)
def test_the_condition_says_how_it_stands(
    left: int, renewal: RecordedRenewal, wanted: tuple[str, str]
) -> None:
    condition = certificates.certificates_condition(a_state(left=left * DAY, renewal=renewal))
    assert condition is not None
    assert (condition.status, condition.reason) == wanted


def test_what_is_recorded_of_a_renewal_is_read_and_what_someone_else_wrote_is_none() -> None:
    status = {
        "certificateRotationRun": {"expiryDate": "2026-01-02T03:04:05Z", "newKeys": "yes", "services": "all"},
        "certificatesWarned": {"expiryDate": "2026-01-02T03:04:05Z", "days": 30},
    }
    found = read_recorded_operations(status).renewal
    assert found.expiry == found.warned_of == datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
    assert (found.warned_days, found.makes_keys, found.services) == (30, False, ())
    assert read_recorded_operations({"certificatesWarned": 3}).renewal == RecordedRenewal()


@pytest.mark.parametrize(("left", "reason"), [(61, "Valid"), (60, "ExpiresSoon"), (-1, "ExpiresSoon")])
def test_a_client_certificate_for_harvester_that_ends_soon_is_told(left: int, reason: str) -> None:
    end = NOON + left * DAY
    state = replace(a_state(), credential_problems=(), credential_end=("fleet-default:cc-one", end))
    condition = credential_condition(state)
    assert condition is not None
    assert (condition.status, condition.reason) == ("True", reason)
    assert ("Secret fleet-default/cc-one" in condition.message) is (reason == "ExpiresSoon")


def test_what_holds_the_renewal_is_told() -> None:
    def said(**cluster: Any) -> str:
        condition = certificates.certificates_condition(a_state(left=10 * DAY, cluster=cluster))
        assert condition is not None
        return condition.message

    assert "spec.paused holds their renewal" in said(paused=True)
    assert said().endswith("; services restart one after the other, which renews them")


def test_the_services_that_have_certificates_are_those_of_the_distributions() -> None:
    of_servers = "admin api-server auth-proxy cloud-controller controller-manager etcd scheduler rke2-server k3s-server"
    of_all = "kubelet kube-proxy rke2-controller k3s-controller"
    assert (*of_servers.split(), *of_all.split()) == CERTIFICATE_SERVICES
    request = RestartRequest("id", "", None, services=CERTIFICATE_SERVICES)
    server, worker = a_state().machines
    assert request.list_services(worker, "rke2") == ("kubelet", "kube-proxy", "rke2-controller")
    assert request.list_services(worker, "k3s") == ("kubelet", "kube-proxy", "k3s-controller")
    assert "rke2-server" in request.list_services(server, "rke2")
    assert "k3s-server" not in request.list_services(server, "rke2")
