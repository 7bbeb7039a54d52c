"""Which hosts of a Harvester are in maintenance, and what becomes of VMs there."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from windrow.harvester.hosts.maintenance import (
    MAX_HOSTS,
    MAX_WORD,
    HarvesterUpgrade,
    HostMaintenance,
    HostState,
    list_maintenance,
    read_host_state,
    read_upgrade,
    why_shut_down,
)

FREE = HostState("b", is_ready=True, is_unschedulable=False, has_maintenance_mode=False)


def a_host(name: str = "a", *, ready: bool = True, cordoned: bool = False, mode: bool = False) -> HostState:
    return HostState(name, ready, cordoned, mode)


def an_upgrade(is_over: bool = False, version: str = "v1.9.0", **states: str) -> HarvesterUpgrade:
    return HarvesterUpgrade("hvst", version, is_over, tuple(states.items()))


def found(*hosts: HostState, upgrade: HarvesterUpgrade | None = None) -> dict[str, str]:
    upgrades = [] if upgrade is None else [upgrade]
    return {name: str(one) for name, one in list_maintenance(hosts, upgrades).items()}


BY_UPGRADE = {"a": "host a is in maintenance (upgrade of Harvester to v1.9.0)"}


@pytest.mark.parametrize(
    "state", ["Pre-draining", "Pre-drained", "Draining", "Post-draining", "Waiting Reboot", "new"]
)
def test_a_host_is_in_maintenance_from_the_state_in_which_its_vms_leave_it(state: str) -> None:
    assert found(a_host(), FREE, upgrade=an_upgrade(a=state)) == BY_UPGRADE


@pytest.mark.parametrize("state", ["Images preloading", "Images preloaded", "Succeeded"])
def test_a_host_that_only_loads_images_or_is_done_is_not(state: str) -> None:
    assert found(a_host(cordoned=True), FREE, upgrade=an_upgrade(a=state)) == {}


@pytest.mark.parametrize("states", [{}, {"a": "Failed"}])
def test_a_host_of_which_an_upgrade_says_nothing_or_failed_is_while_it_is_cordoned(
    states: dict[str, str],
) -> None:
    assert found(a_host(cordoned=True), FREE, upgrade=an_upgrade(**states)) == BY_UPGRADE
    assert found(a_host(), FREE, upgrade=an_upgrade(**states)) == {}


def test_an_upgrade_of_the_past_without_an_end_does_not_count_beside_the_latest() -> None:
    old = replace(an_upgrade(version="v1.7.0"), name="a-old")
    latest = replace(an_upgrade(a="Succeeded"), is_latest=True)

    assert list(list_maintenance([a_host(cordoned=True), FREE], [old])) == ["a"]
    assert list_maintenance([a_host(cordoned=True), FREE], [old, latest]) == {}
    labels = {"harvesterhci.io/latestUpgrade": "true"}
    assert read_upgrade({"metadata": {"name": "u", "labels": labels}}).is_latest
    assert not read_upgrade({"metadata": {"name": "u"}}).is_latest


def test_after_the_upgrade_a_cordon_alone_is_no_maintenance() -> None:
    assert found(a_host(cordoned=True), FREE, upgrade=an_upgrade(is_over=True, a="Post-draining")) == {}
    assert found(a_host(cordoned=True), FREE) == {}


def test_maintenance_mode_needs_no_upgrade_and_one_without_version_is_told_without() -> None:
    assert found(a_host(mode=True), FREE) == {"a": "host a is in maintenance (maintenance mode)"}
    without = an_upgrade(version="", a="Draining")
    assert found(a_host(), FREE, upgrade=without) == {"a": "host a is in maintenance (upgrade of Harvester)"}


@pytest.mark.parametrize(
    ("other", "takes"),
    [
        (FREE, True),
        (a_host("b", ready=False), False),
        (a_host("b", cordoned=True), False),
        (a_host("b", mode=True), False),
    ],
)
def test_vms_can_go_to_a_host_that_is_ready_and_schedulable(other: HostState, takes: bool) -> None:
    made = list_maintenance([a_host(mode=True), other], [])

    assert made["a"].has_other_host is takes


def node(**rest: Any) -> dict[str, Any]:
    ready = {"conditions": [{"type": "Ready", "status": "True"}]}
    return {
        "metadata": {"name": "a", "annotations": rest.pop("annotations", {})},
        "spec": rest,
        "status": ready,
    }


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        (node(), a_host()),
        (node(unschedulable=True), a_host(cordoned=True)),
        (node(annotations={"harvesterhci.io/drain-requested": "true"}), a_host(mode=True)),
        (node(annotations={"harvesterhci.io/maintain-status": "completed"}), a_host(mode=True)),
        (node(annotations={"harvesterhci.io/maintain-status": ""}), a_host()),
        (node(taints=[{"key": "kubevirt.io/drain", "effect": "NoSchedule"}]), a_host(mode=True)),
        (node(taints=[{"key": "other", "effect": "NoSchedule"}]), a_host()),
        ({"metadata": {"name": "a"}}, a_host(ready=False)),
    ],
)
def test_a_node_shows_maintenance_mode_by_annotations_and_by_kubevirts_taint(
    raw: Any, expected: HostState
) -> None:
    assert read_host_state(raw) == expected


@pytest.mark.parametrize(
    ("conditions", "ready"),
    [
        ([{"type": "Ready", "status": "Unknown"}], False),
        ([{"type": "Ready", "status": "True"}, {"type": "Drained", "status": "True"}], True),
    ],
)
def test_the_taint_of_a_host_that_has_failed_is_no_maintenance(conditions: Any, ready: bool) -> None:
    raw = node(taints=[{"key": "kubevirt.io/drain", "effect": "NoSchedule"}])

    assert read_host_state({**raw, "status": {"conditions": conditions}}) == a_host(ready=ready)
    raw["metadata"]["annotations"] = {"harvesterhci.io/maintain-status": "completed"}
    assert read_host_state({**raw, "status": {"conditions": conditions}}) == a_host(ready=ready, mode=True)


@pytest.mark.parametrize(
    ("status", "over"), [("Unknown", False), ("True", True), ("False", True), (None, False)]
)
def test_an_upgrade_is_over_when_it_is_completed_or_failed(status: str | None, over: bool) -> None:
    conditions = [] if status is None else [{"type": "Completed", "status": status}]
    raw = {"metadata": {"name": "u"}, "spec": {"version": "v1"}, "status": {"conditions": conditions}}

    assert read_upgrade(raw) == HarvesterUpgrade("u", "v1", over)
    assert read_upgrade({"metadata": {"name": "u", "deletionTimestamp": "2026-01-01T00:00:00Z"}}).is_over


def test_of_an_upgrade_no_more_is_kept_than_a_harvester_has_hosts_and_a_state_has_letters() -> None:
    states: dict[str, Any] = {f"h{number}": {"state": "x" * 500} for number in range(MAX_HOSTS + 5)}
    raw = {"metadata": {"name": "u"}, "spec": {"version": "v" * 500}, "status": {"nodeStatuses": states}}

    read = read_upgrade(raw)

    assert len(read.states) == MAX_HOSTS
    assert (len(read.version), len(read.states[0][1])) == (MAX_WORD, MAX_WORD)
    assert read_upgrade({"metadata": {"name": "u"}, "status": {"nodeStatuses": {"a": "odd"}}}).states == ()
    assert read_upgrade({"metadata": {"name": "u"}, "status": {"nodeStatuses": ["odd"]}}).states == ()


MODE, UPGRADE = HostMaintenance("a", "maintenance mode", True), HostMaintenance("a", "upgrade", True, True)


@pytest.mark.parametrize(
    ("maintenance", "migratable", "strategy", "why"),
    [
        (UPGRADE, True, "", ""),
        (UPGRADE, None, "", ""),
        (UPGRADE, False, "", "it cannot be migrated"),
        (UPGRADE, True, "Shutdown", ""),  # the label is about maintenance mode
        (MODE, True, "Shutdown", "its label harvesterhci.io/maintain-mode-strategy is Shutdown"),
        (MODE, True, "Migrate", ""),
        (HostMaintenance("a", "upgrade", False, True), True, "", "no other host takes it"),
    ],
)
def test_a_vm_is_shut_down_where_it_cannot_migrate_or_is_not_to(
    maintenance: HostMaintenance, migratable: bool | None, strategy: str, why: str
) -> None:
    assert why_shut_down(maintenance, migratable, strategy) == why
