"""Services and servers created and deleted in any order: an address is on one node and of one Service, and reachable."""

from __future__ import annotations

from contextlib import suppress

import pytest
from tests.support.clock import run_driven

from windrow.core.rng import Rng
from windrow.emulator.load_balancers.services import ENDPOINT_SLICE, REQUESTED_ADDRESS
from windrow.kubernetes.objects import annotations_of, name_of, nested
from windrow.kubernetes.resources import SERVICE

from .test_kube_vip import ADDRESSES, BEFORE_1_2, EACH, Raw, Rig, a_pod, a_rig, change_slice, with_values

SERVERS = ("one", "two", "three")
SERVICES = ("a", "b", "c", "d")
STEPS = 60


async def something(rig: Rig, rng: Rng, dark: set[str]) -> None:
    name, server = SERVICES[rng.below(4)], SERVERS[rng.below(3)]
    asked = ("0.0.0.0", f"10.0.0.{200 + rng.below(20)}")[rng.below(2)]
    there = [a_pod(f"{name}-{number}", node="nowhere") for number in range(rng.below(3))]
    patch = {"metadata": {"annotations": {ADDRESSES: asked}}}
    match rng.below(7):
        case 0 | 1:
            await rig.serve(name, asked)
            far = change_slice(a_pod(f"{name}-0", node="nowhere"))
            await rig.kubectl.patch(ENDPOINT_SLICE.ref(f"{name}-abcde", "default"), far)
        case 2:
            await rig.kubectl.delete(SERVICE.ref(name, "default"))
            await rig.kubectl.delete(ENDPOINT_SLICE.ref(f"{name}-abcde", "default"))
        case 3:
            await rig.kubectl.patch(SERVICE.ref(name, "default"), patch)
        case 4:
            await rig.kubectl.patch(ENDPOINT_SLICE.ref(f"{name}-abcde", "default"), change_slice(*there))
        case 5 if not dark:
            dark.add(server)
            await rig.testbed.cut_power(server)
        case 6 if dark:
            rig.testbed.power_on(dark.pop())


async def use_living_api(rig: Rig, dark: set[str]) -> None:
    for place, name in enumerate(SERVERS):
        if name not in dark and rig.testbed.network.find(f"10.0.0.{11 + place}", 6443):
            rig.kubectl.address = f"10.0.0.{11 + place}"


def where(rig: Rig, address: str, dark: set[str]) -> list[str]:
    """The servers with power that have the address, as their agents report it."""
    reports = {name: rig.testbed.hosts[name].report for name in SERVERS if name not in dark}
    return [
        name
        for name, report in reports.items()
        if report is not None and any(address in held for held in report.addresses.values())
    ]


async def holds(rig: Rig, dark: set[str], *, one_leader: bool) -> None:
    services = await rig.kubectl.list(SERVICE, "default")
    slices = await rig.kubectl.list(ENDPOINT_SLICE, "default")
    backed = {name_of(one)[:1] for one in slices if one.get("endpoints")}
    leases = list(rig.testbed.leases.values())
    assert len(leases) == len(set(leases))
    leased = [raw for raw in services if is_dhcp(raw) and (one_leader or name_of(raw) in backed)]
    by_dhcp = [nested(raw, "status", "loadBalancer", "ingress", 0, "ip") for raw in leased]
    assert len(by_dhcp) == len(set(by_dhcp))
    for raw in services:
        address = nested(raw, "status", "loadBalancer", "ingress", 0, "ip")
        if address is None or not (one_leader or name_of(raw) in backed):
            continue  # 1.2 and later announces none without endpoints
        host, found = annotations_of(raw)["kube-vip.io/vipHost"], where(rig, address, dark)
        # With svc_election, Services that share one address may have it on several nodes, as with the real kube-vip.
        assert found == [host] if one_leader or is_dhcp(raw) else host in found, name_of(raw)
        if is_dhcp(raw):
            assert annotations_of(raw)[REQUESTED_ADDRESS] == address
            assert address in leases
    # Two Services may request one address: then the first has the listener, and no other ever.
    for place, port in rig.testbed.network.listeners():
        if port == 80:
            pod = await rig.ask(place)()
            shown = {
                name_of(raw): nested(raw, "status", "loadBalancer", "ingress", 0, "ip", default="")
                for raw in services
            }
            assert shown[pod[:1]] == place


def is_dhcp(service: dict) -> bool:  # type: ignore[type-arg]
    return annotations_of(service).get(ADDRESSES) == "0.0.0.0"


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("values", [BEFORE_1_2, EACH], ids=["one leader", "a leader for each"])
def test_an_address_is_with_one_node_and_one_service_whatever_happens(values: Raw, seed: int):
    async def scenario() -> None:
        async with a_rig(*SERVERS, **with_values(values)) as rig:
            rng, dark = Rng(f"vip {seed}"), set[str]()
            for _ in range(STEPS):
                await use_living_api(rig, dark)
                with suppress(AssertionError):  # a refusal is a valid reply
                    await something(rig, rng, dark)
                # Long enough for a leader to be replaced and for its services, one after the other.
                await rig.testbed.sleep(50 + rng.uniform(0, 5))
                await use_living_api(rig, dark)
                await holds(rig, dark, one_leader=values is not EACH)

    run_driven(scenario())
