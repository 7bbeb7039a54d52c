"""Cluster, Machine and the lists: what they show of objects as the manager writes them."""

from __future__ import annotations

import html
import io
import re
import shlex
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from tests.unit.dashboard.conftest import Dashboard, a_cluster, add_cluster, add_tenant

from windrow.app.describe.events import EventView
from windrow.app.describe.views import read_cluster, read_machine
from windrow.cli.context import CliContext
from windrow.cli.main import command_parsers
from windrow.clusters.api.kinds import MACHINE
from windrow.clusters.api.names import CLUSTER_NAME
from windrow.dashboard.pages.hosts import place_machines
from windrow.dashboard.pages.machine import facts_of
from windrow.dashboard.pages.timeline import MAX_ROWS, WIDTH, draw_timeline
from windrow.drivers.api import NODE_DRIVER
from windrow.kubernetes.resources import EVENT

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


def at(seconds: int) -> str:
    return f"{NOON + timedelta(seconds=seconds):%Y-%m-%dT%H:%M:%SZ}"


def a_machine(
    name: str, host: str = "", roles: tuple[str, ...] = ("worker",), **status: Any
) -> dict[str, Any]:
    spec = {"clusterName": "prod", "clusterUID": "u", "pool": "servers", "options": {}, "credential": "a:b"}
    return {
        "metadata": {
            "name": name,
            "namespace": "fleet-default",
            "creationTimestamp": at(0),
            "labels": {CLUSTER_NAME: "prod"},
        },
        "spec": {**spec, "roles": list(roles), "version": "v1.34.7+rke2r1"},
        "status": {"host": host, **status},
    }


def became(type: str, seconds: int, status: str = "True") -> dict[str, str]:
    return {"type": type, "status": status, "lastTransitionTime": at(seconds)}


LIVED = [became("InfrastructureReady", 25), became("Joined", 50), became("Ready", 75, "False")]


def an_event(name: str, seconds: int, kind: str = "Machine", type: str = "Normal") -> EventView:
    when = NOON + timedelta(seconds=seconds)
    return EventView("u", type, "Reason", "message", kind, name, "fleet-default", 1, when, when)


# --- timeline ---------------------------------------------------------------------------------------------------------


def test_a_machine_is_drawn_from_its_making_to_now():
    drawn = draw_timeline("prod", [a_machine("m", conditions=LIVED)], [], NOON + timedelta(seconds=100))

    assert drawn is not None
    bars = [(bar.stage, bar.x, bar.width) for bar in drawn.rows[1].bars]
    assert bars == [("creating", 0, 250), ("joining", 250, 250), ("ready", 500, 250), ("broken", 750, 250)]
    assert (
        drawn.rows[1].told
        == "12:00:00 VM is made; 12:00:25 boots and joins; 12:00:50 ready; 12:01:15 not ready"
    )


def test_a_machine_that_never_joined_is_not_broken_but_on_its_way():
    raw = a_machine("m", conditions=[became("InfrastructureReady", 25), became("Ready", 0, "False")])
    drawn = draw_timeline("prod", [raw], [], NOON + timedelta(seconds=100))

    assert drawn is not None
    assert [bar.stage for bar in drawn.rows[1].bars] == ["creating", "joining"]


def test_a_machine_that_is_gone_is_drawn_as_its_events_tell():
    events = [an_event("old", 10), an_event("old", 60, type="Warning"), an_event("prod", 5, "Cluster")]
    drawn = draw_timeline("prod", [a_machine("m")], events, NOON + timedelta(seconds=100))

    assert drawn is not None
    cluster, _, gone = drawn.rows
    assert [mark.x for mark in cluster.marks] == [50]
    assert [(bar.stage, bar.x, bar.width) for bar in gone.bars] == [("gone", 100, 500)]
    assert [mark.is_warning for mark in gone.marks] == [False, True]


@pytest.mark.parametrize(
    "status", [{}, {"conditions": "none"}, {"conditions": [{"type": "Joined", "status": 1}]}]
)
def test_stamps_that_are_none_draw_what_is_left(status: dict[str, Any]):
    drawn = draw_timeline("prod", [a_machine("m", **status)], [], NOON)

    assert drawn is not None
    assert [bar.stage for bar in drawn.rows[1].bars] == ["creating"]


def test_clocks_that_differ_draw_nothing_outside_the_picture():
    """A stamp of the guest's that lies ahead, and a manager's clock that was set back."""
    raw = a_machine("m", conditions=[became("InfrastructureReady", 9000), became("Joined", -9000)])
    drawn = draw_timeline("prod", [raw], [an_event("m", 5000)], NOON - timedelta(seconds=50))

    assert drawn is not None
    for row in drawn.rows:
        assert all(0 <= bar.x <= WIDTH and bar.width <= WIDTH for bar in row.bars)
        assert all(0 <= mark.x <= WIDTH for mark in row.marks)


def test_a_timeline_of_ten_thousand_machines_is_bounded_and_says_so():
    drawn = draw_timeline("prod", [a_machine(f"m-{n}") for n in range(10_000)], [], NOON)

    assert drawn is not None
    assert (len(drawn.rows), drawn.left_out) == (MAX_ROWS + 1, 10_000 - MAX_ROWS)


def test_without_any_date_there_is_no_timeline():
    assert draw_timeline("prod", [], [], NOON) is None


# --- hosts ------------------------------------------------------------------------------------------------------------


def test_machines_stand_on_their_hosts_and_two_etcd_members_on_one_are_seen():
    roles = ("etcd", "control-plane")
    raws = [
        a_machine("a", "host-1", roles),
        a_machine("b", "host-1", roles, hostMaintenance={"because": "maintenance mode"}),
        a_machine("c", "host-0"),
        a_machine("d"),
    ]
    hosts = place_machines(read_cluster(a_cluster("prod"), map(read_machine, raws)), raws)

    assert [(one.name, [machine.name for machine in one.machines]) for one in hosts] == [
        ("host-0", ["c"]),
        ("host-1", ["a", "b"]),
        ("", ["d"]),
    ]
    assert (hosts[1].etcd, hosts[1].maintenance) == (2, "maintenance mode")
    assert [machine.roles for machine in hosts[1].machines] == ["ec", "ec"]


# --- pages ------------------------------------------------------------------------------------------------------------


async def add_machine(dashboard: Dashboard, raw: dict[str, Any]) -> None:
    api = dashboard.api.local()
    await api.create(MACHINE, raw)
    await api.patch(
        MACHINE.ref(raw["metadata"]["name"], "fleet-default"), {"status": raw["status"]}, "status"
    )


async def test_a_cluster_shows_why_where_since_when_and_what_happens_next(dashboard: Dashboard):
    waiting = {"for": "Machine prod-a to join", "since": at(-180), "next": "the workers join"}
    raw = a_cluster("prod", phase="Provisioning", waiting=waiting, endpoint={"api": "https://10.0.0.1:6443"})
    await add_cluster(dashboard.api, raw)
    await add_machine(dashboard, a_machine("prod-a", "host-1", conditions=LIVED))
    event = {"metadata": {"name": "e", "namespace": "fleet-default"}, "reason": "CreateMachine", "message": "Created",
             "involvedObject": {"kind": "Machine", "name": "prod-a", "namespace": "fleet-default"}, "lastTimestamp": at(-60)}  # fmt: skip
    await dashboard.api.local().create(EVENT, event)

    page = (await (await dashboard.signed_in()).get("/clusters/fleet-default/prod")).body.decode()

    for part in (
        "waits for Machine prod-a to join, since <time",
        "https://10.0.0.1:6443",
        'href="/machines/fleet-default/prod-a"',
        "<h3>host-1",
        'class="joining"',
        "CreateMachine",
        "windrow why fleet-default/prod",
        "What is to change",
    ):
        assert part in page, part


async def test_a_machine_shows_its_record_without_its_driver_config(dashboard: Dashboard):
    secret = {"driverConfig": {"VMNamespace": "vms", "UserData": "s3cret", "SSHPassword": "s3cret"}}
    await add_machine(dashboard, a_machine("prod-a", "host-1", addresses=["10.0.0.7", "fd00::7"], **secret))

    page = (await (await dashboard.signed_in()).get("/machines/fleet-default/prod-a")).body.decode()

    assert "<dt>Addresses</dt><dd>10.0.0.7, fd00::7</dd>" in page
    assert "<dt>VM namespace</dt><dd>vms</dd>" in page
    assert "s3cret" not in page


def test_a_record_of_odd_values_shows_those_that_are_text():
    raw = a_machine("m", addresses={"a": 1}, version=["x" * 1000] * 50, nodeRef="n", restartCount=0)

    facts = dict(facts_of(raw))
    assert not facts.keys() & {"Addresses", "Node", "Restarts since it was ready"}
    assert len(facts["Version that runs"]) == 400


async def test_another_tenants_machine_is_refused(dashboard: Dashboard):
    await add_tenant(dashboard.api, "team-a", user="ann")
    await add_machine(dashboard, a_machine("prod-a"))
    browser = await dashboard.signed_in("ann", ())

    assert (await browser.get("/machines/fleet-default/prod-a")).status == 403
    for path in ("/activity", "/credentials"):
        assert (await browser.get(path)).status == 403


async def test_a_tenant_without_the_right_to_read_events_sees_the_rest(dashboard: Dashboard):
    from windrow.kubernetes.resources import ROLE, ROLE_BINDING

    await add_tenant(dashboard.api, "team-a", user="bob")
    await add_cluster(dashboard.api, a_cluster("prod", "team-a"))
    api = dashboard.api.local()
    rules = [
        {"apiGroups": ["provisioning.cattle.io", "windrow.io"], "resources": ["*"], "verbs": ["get", "list"]}
    ]
    await api.create(ROLE, {"metadata": {"name": "few"}, "rules": rules}, "team-a")
    ref = {"apiGroup": ROLE.group, "kind": "Role", "name": "few"}
    subjects = [{"apiGroup": ROLE.group, "kind": "User", "name": "ann"}]
    await api.create(
        ROLE_BINDING, {"metadata": {"name": "few"}, "roleRef": ref, "subjects": subjects}, "team-a"
    )

    page = await (await dashboard.signed_in("ann", ())).get("/clusters/team-a/prod")

    assert page.status == 200
    assert b"None, or none that you may read." in page.body


async def test_credentials_that_end_soon_or_are_refused_stand_out(dashboard: Dashboard):
    refused = [{"type": "CredentialValid", "status": "False", "reason": "Rejected", "message": "401"}]
    valid = [{"type": "CredentialValid", "status": "True", "reason": "Valid"}]
    await add_cluster(dashboard.api, a_cluster("a", conditions=valid, certificatesExpiryDate=at(20 * 86400)))
    await add_cluster(
        dashboard.api, a_cluster("b", conditions=refused, certificatesExpiryDate=at(300 * 86400))
    )

    page = (await (await dashboard.signed_in()).get("/credentials")).body.decode()

    assert page.index("/fleet-default/b") < page.index("/fleet-default/a")
    assert re.search(r'class="health bad">2026-01-21<', page)
    assert re.search(r'class="health bad">Rejected<', page)


async def test_a_password_in_the_address_of_a_node_driver_is_not_shown(dashboard: Dashboard):
    driver = {"metadata": {"name": "d"}, "spec": {"active": True, "url": "https://user:s3cret@example.com/d"}}
    await dashboard.api.local().create(NODE_DRIVER, driver)

    page = (await (await dashboard.signed_in()).get("/node-drivers")).body

    assert b"example.com/d" in page
    assert b"s3cret" not in page


async def test_activity_shows_the_latest_first(dashboard: Dashboard):
    for number in range(3):
        event = {"metadata": {"name": f"e-{number}", "namespace": "default"}, "reason": f"R{number}", "lastTimestamp": at(number),
                 "involvedObject": {"kind": "Machine", "name": "m", "namespace": "default"}}  # fmt: skip
        await dashboard.api.local().create(EVENT, event)

    page = (await (await dashboard.signed_in()).get("/activity")).body.decode()

    assert page.index("R2") < page.index("R1") < page.index("R0")


# --- the same in a terminal -------------------------------------------------------------------------------------------


async def test_each_command_of_ours_that_a_page_prints_is_one(dashboard: Dashboard, tmp_path: Path):
    await add_cluster(dashboard.api, a_cluster("prod"))
    await add_machine(dashboard, a_machine("prod-a"))
    browser = await dashboard.signed_in()
    said = io.StringIO()
    context = CliContext({}, tmp_path, io.StringIO(), said, said, lambda: NOON)
    parsers = {name: parser for name, _, parser in command_parsers(context)}
    printed: set[str] = set()
    for path in (
        *(
            f"{path}{scope}"
            for path in ("/clusters", "/activity", "/credentials", "/harvesters")
            for scope in ("", "?namespace=fleet-default")
        ),
        "/node-drivers",
        "/clusters/fleet-default/prod",
        "/machines/fleet-default/prod-a",
    ):
        answer = await browser.get(path)
        assert answer.status == 200, path
        page = answer.body.decode()
        printed |= {html.unescape(one) for one in re.findall(r"<li><code>(windrow [^<]*)</code>", page)}

    assert {"windrow events -A", "windrow events -n fleet-default", "windrow status -A"} <= printed
    for command in printed:
        _, name, *words = shlex.split(command)
        try:
            parsers[name].parse_args(words)
        except SystemExit:
            raise AssertionError(f"{command}: {said.getvalue()}") from None
