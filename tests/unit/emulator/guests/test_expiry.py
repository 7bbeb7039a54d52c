"""Certificates of nodes near their end: warned of, renewed by a start, expired."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest
from tests.support.clock import NOON, run_driven

from windrow.core import pki
from windrow.core.formats.version import Version
from windrow.emulator.guest_cluster.rotation.expiry import ExpiryMonitor, renewal_window
from windrow.kubernetes.resources import EVENT

from .test_releases import run_on
from .test_workloads import Rig, a_rig
from .testbed import VERSION

DAY = timedelta(days=1)


def served_until(rig: Rig) -> datetime:
    """The end of the certificate with which the server serves."""
    door = rig.testbed.network.find("10.0.0.11", 6443)
    assert door is not None
    identity = door.identity()
    assert identity is not None
    return pki.read_certificate(identity.chain).not_after


def jump(rig: Rig, days: float) -> None:
    rig.testbed.clock.set_wall(timedelta(days=days))


async def restart(rig: Rig, name: str = "one", service: str = "rke2-server") -> None:
    code, out = await run_on(rig.testbed, name, f"systemctl restart {service}")
    assert code == 0, out


def test_a_start_keeps_the_certificate_until_it_is_near_its_end():
    async def scenario() -> None:
        async with a_rig() as rig:
            first = served_until(rig)
            jump(rig, 240)
            await restart(rig)
            kept = served_until(rig)
            jump(rig, 10)
            await restart(rig)

            assert timedelta(days=364) < first - NOON < timedelta(days=366)
            assert kept == first
            assert served_until(rig) - first > timedelta(days=200)

    run_driven(scenario())


def test_another_name_and_a_rotation_renew_it_at_the_next_start():
    async def scenario() -> None:
        async with a_rig() as rig:
            first = served_until(rig)
            jump(rig, 1)
            await run_on(
                rig.testbed, "one", "echo 'tls-san: [api.site]' > /etc/rancher/rke2/config.yaml.d/50.yaml"
            )
            await restart(rig)
            named = served_until(rig)
            jump(rig, 1)
            code, out = await run_on(rig.testbed, "one", "rke2 certificate rotate")
            await restart(rig)

            assert code == 0, out
            assert timedelta(days=0.9) < named - first < timedelta(days=1.1)
            assert served_until(rig) - named > timedelta(days=0.9)

    run_driven(scenario())


def test_the_node_has_an_event_a_day_while_its_certificates_are_near_their_end():
    async def scenario() -> list[str]:
        async with a_rig() as rig:
            await rig.testbed.sleep(20)
            jump(rig, 250)
            await rig.testbed.sleep(60)
            jump(rig, 1)
            await rig.testbed.sleep(60)
            (guest_cluster,) = rig.testbed.clusters.values()
            events = await guest_cluster.client().list(EVENT)
            found = [raw for raw in events if raw["reason"] == "CertificateExpirationWarning"]
            assert all(one["involvedObject"]["name"] == "one" and one["type"] == "Warning" for one in found)
            return [one["message"] for one in found]

    messages = run_driven(scenario())

    assert len(messages) == 2
    assert messages[0].startswith(
        "Node certificates require attention - restart rke2 on this node to trigger automatic rotation: "
    )
    assert (
        "kubelet/client-kubelet.crt: certificate CN=system:node:one,O=system:nodes will expire within 120 days at 2027"
        in messages[0]
    )


def test_after_its_end_the_api_refuses_and_the_node_is_lost_until_a_restart():
    async def scenario() -> None:
        async with a_rig("w1") as rig:
            jump(rig, 366)
            await rig.testbed.sleep(30)
            (guest_cluster,) = rig.testbed.clusters.values()
            expired = served_until(rig) < rig.testbed.clock.now()
            alive = {name: one.alive for name, one in guest_cluster.heartbeats.items()}
            await restart(rig)
            await restart(rig, "w1", "rke2-agent")
            await rig.testbed.sleep(60)

            assert expired
            assert alive == {"one": False, "w1": False}
            assert served_until(rig) > rig.testbed.clock.now()
            assert all(one.alive for one in guest_cluster.heartbeats.values())

    run_driven(scenario())


@pytest.mark.parametrize(
    ("release", "days"),
    [
        ("v1.29.15+rke2r1", 90),
        ("v1.30.12+rke2r1", 90),
        ("v1.30.13+rke2r1", 120),
        ("v1.33.0+k3s1", 90),
        ("v1.33.1+k3s1", 120),
        ("v1.34.0+rke2r1", 120),
    ],
)
def test_how_long_before_its_end_a_release_renews(release: str, days: int):
    assert renewal_window(Version.parse(release)) == timedelta(days=days)


def test_what_is_told_of_a_certificate():
    ends = {"kubelet/client-kubelet.crt:CN=a": NOON + 10 * DAY, "etcd/x.crt:CN=b": NOON + 300 * DAY}
    monitor = ExpiryMonitor(Version.parse(VERSION), ends, NOON + 10 * DAY)

    assert monitor.warn("k3s", NOON - 200 * DAY) == ""
    text = monitor.warn("k3s", NOON)
    assert text.endswith(
        "kubelet/client-kubelet.crt: certificate CN=a will expire within 120 days at 2026-01-11T12:00:00Z"
    )
    assert monitor.warn("k3s", NOON + DAY / 2) == ""
    assert "expired at 2026-01-11T12:00:00Z" in monitor.warn("k3s", NOON + 11 * DAY)
    assert not monitor.is_kubelet_expired(NOON + 9 * DAY)
    assert monitor.is_kubelet_expired(NOON + 10 * DAY)
