"""The rig of the service stories is what it says: its small Harvester gives addresses as the whole one does."""

from __future__ import annotations

from typing import Any

import pytest
from tests.support.clock import run_driven

from windrow.emulator import kinds
from windrow.kubernetes.objects import Raw, new_object

from .service_chaos import live
from .service_invariants import load_balancer_name
from .service_rig import PROVIDER, a_service_rig

UID = "d4b50d98-39ec-4d88-8098-36579de5db4a"


def a_balancer(name: str) -> Raw:
    labels = {f"{PROVIDER}/cluster": "demo"}
    spec = {"ipam": "pool", "workloadType": "cluster"}
    return new_object(kinds.LOAD_BALANCER, name, "default", labels=labels, spec=spec)


def test_the_small_harvester_gives_addresses_as_the_whole_one_does() -> None:
    async def story(whole: bool) -> list[Any]:
        async with a_service_rig(1, whole=whole) as rig:
            await rig.make_pool("10.1.0.10-11")
            for name in ("one", "two", "three"):
                await rig.pass_time(1)
                await rig.at_host.create(kinds.LOAD_BALANCER, a_balancer(name))
            await rig.pass_time(1)
            await rig.at_host.delete(kinds.LOAD_BALANCER.ref("one", "default"))
            await rig.pass_time(60)
            found = [raw["status"] for raw in await rig.balancers()]
            found += [raw["status"] for raw in await rig.at_host.list(kinds.IP_POOL)]
            return [{key: value for key, value in one.items() if key != "conditions"} for one in found]

    small, whole = run_driven(story(False)), run_driven(story(True))

    assert small == whole
    assert small[0]["allocatedAddress"]["ip"] == "10.1.0.10"  # of "three", once "one" had given it back


@pytest.mark.parametrize(
    ("cluster", "namespace", "service", "name"),
    [
        ("test", "default", "abcd", "test-default-abcd-7198d990"),
        ("1test", "default", "abcd", "a1test-default-abcd-725d6700"),
        ("", "default", "web", "a-default-web-0ffc2fd1"),
        (
            "test",
            "default-default",
            "kube-system-rke2-ingress-nginx-controller",
            "test-default-default-kube-system-rke2-ingress-nginx-con5cd57013",
        ),
        (
            "kubernetes",
            "default-default",
            "kube-system-rke2-ingress-nginx-controller",
            "kubernetes-default-default-kube-system-rke2-ingress-ngi9255419d",
        ),
    ],
)
def test_names_are_worked_out_as_the_go_program_does(
    cluster: str, namespace: str, service: str, name: str
) -> None:
    assert load_balancer_name(cluster, namespace, service, UID) == name


def test_a_seed_tells_the_same_life_each_time() -> None:
    assert live(5) == live(5)


def test_the_invariants_notice_a_program_that_does_nothing() -> None:
    """A check that cannot fail is a defect: services without a load balancer are reported."""

    async def story() -> list[str]:
        from .service_invariants import find_faults, look

        async with a_service_rig(1) as rig:
            await rig.make_pool("10.1.0.10-11")
            await rig.serve()
            await rig.at_host.create(kinds.LOAD_BALANCER, a_balancer("leaked"))
            await rig.pass_time(5)
            return find_faults(await look(rig))

    faults = run_driven(story())

    assert any("has no load balancer" in fault for fault in faults)
    assert any("belongs to no service" in fault for fault in faults)
