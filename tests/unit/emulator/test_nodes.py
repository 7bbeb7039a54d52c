"""What the control plane believes of a host that lost power, and when: reference 05 §2.5 F."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from windrow.emulator.delays import Delays, ScaledClock
from windrow.emulator.host.nodes import (
    HEALTHY,
    HostHealth,
    HostSpec,
    conditions_for,
    host_health_at,
    render_node,
    taints_for,
)
from windrow.emulator.release import NEWEST_RELEASE
from windrow.kubernetes.conditions import find_condition

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


class FrozenClock:
    def now(self):
        return NOON

    async def sleep_until(self, instant):
        raise AssertionError("a judgement waits for nothing")


def health_after(seconds, time_scale=1.0, release=NEWEST_RELEASE):
    return host_health_at(
        timedelta(), timedelta(seconds=seconds), ScaledClock(FrozenClock(), time_scale), Delays(), release
    )


@pytest.mark.parametrize(
    ("seconds", "wanted", "next_look"),
    [
        (0, HEALTHY, 45),
        (44, HEALTHY, 45),
        (45, HostHealth(ready=False), 60),
        (60, HostHealth(ready=False, draining=True), 240),
        (240, HostHealth(False, True, True), 245),
        (245, HostHealth(False, True, True, True), None),
    ],
)
def test_host_health_changes_in_the_stated_steps(seconds, wanted, next_look):
    health, look = health_after(seconds)

    assert health == wanted
    assert look == (timedelta(seconds=next_look) if next_look else None)


def test_the_time_scale_divides_every_step():
    assert health_after(24.5, time_scale=10)[0].cleared
    assert not health_after(24.4, time_scale=10)[0].cleared


def test_a_host_with_power_is_fine():
    assert host_health_at(None, timedelta(), ScaledClock(FrozenClock()), Delays(), NEWEST_RELEASE) == (
        HEALTHY,
        None,
    )


def test_taints_of_other_controllers_are_kept():
    own = {"key": "gpu", "effect": "NoSchedule"}
    lost = taints_for(HostHealth(False, True, True), [own])

    assert [taint["key"] for taint in lost] == [
        "gpu",
        "node.kubernetes.io/unreachable",
        "node.kubernetes.io/unreachable",
        "kubevirt.io/drain",
        "node.kubernetes.io/out-of-service",
    ]
    assert [own] == taints_for(HEALTHY, lost)


def test_the_ready_condition_of_a_lost_host_is_unknown():
    node = render_node(HostSpec("h", zone="z"), NOON, "v1.8.2")
    conditions = conditions_for(HostHealth(ready=False), node["status"]["conditions"], NOON)

    ready = find_condition(conditions, "Ready")
    assert (ready.status, ready.message) == ("Unknown", "Kubelet stopped posting node status.")


def test_drained_appears_and_is_removed():
    node = render_node(HostSpec("h"), NOON, "v1.8.2")
    draining = conditions_for(HostHealth(False, True), node["status"]["conditions"], NOON)
    drained = conditions_for(HostHealth(False, True, True), draining, NOON)

    assert find_condition(draining, "Drained").reason == "HarvesterNodeIsDraining"
    assert find_condition(drained, "Drained").reason == "HarvesterNodeIsDrained"
    assert find_condition(conditions_for(HEALTHY, drained, NOON), "Drained") is None


def test_a_host_without_zone_has_no_zone_label():
    labels = render_node(HostSpec("h", networks=("mgmt", "storage")), NOON, "v1.8.2")["metadata"]["labels"]

    assert "topology.kubernetes.io/zone" not in labels
    assert labels["network.harvesterhci.io/storage"] == "true"
