"""What cannot work is told once, on the service, in words that an operator can act on; and nothing else happens.

Each case runs the whole program. One event: what was wanted, what was found, what to do. The service is left as its
user wrote it, and after its deletion nothing is left at Harvester.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
from tests.support.clock import run_driven

from windrow.emulator.guest_cluster.charts import CLOUD_CONFIG
from windrow.kubernetes.objects import Raw, annotations_of, labels_of, name_of, nested
from windrow.kubernetes.resources import EVENT, NODE, SERVICE

from .service_rig import (
    ADDRESSES,
    CLUSTER,
    IPAM,
    PRIMARY,
    ServiceRig,
    a_cloud_config,
    a_service,
    a_service_rig,
)

Setup = Callable[[ServiceRig], Awaitable[Any]]


async def nothing(rig: ServiceRig) -> None:
    await rig.make_pool("10.1.0.10-12")


async def no_pool(rig: ServiceRig) -> None:
    return None


async def foreign_pool(rig: ServiceRig) -> None:
    await rig.make_pool("10.1.0.10-12", cluster="other", namespace="elsewhere")


async def empty_pool(rig: ServiceRig) -> None:
    """Its only address is its gateway."""
    await rig.make_pool("10.1.0.1")


async def full_pool(rig: ServiceRig) -> None:
    await rig.make_pool("10.1.0.10")
    await rig.serve("first")
    await rig.served("first")


async def a_primary(rig: ServiceRig) -> None:
    await rig.make_pool("10.1.0.10-12")
    await rig.serve("first", ports=[80, ("UDP", 53)])
    await rig.served("first")


async def a_chain(rig: ServiceRig) -> None:
    await a_primary(rig)
    await rig.serve("second", ipam="", ports=[443], primary="first")
    await rig.served("second")


async def a_primary_elsewhere(rig: ServiceRig) -> None:
    await rig.make_pool("10.1.0.10-12")
    await rig.serve("first", "team")
    await rig.served("first", "team")


async def no_macvlan(rig: ServiceRig) -> None:
    rig.announcer.has_macvlan = False


async def macvlan_probed(rig: ServiceRig) -> None:
    """As the machine tells it of a node where kube-vip runs."""
    rig.announcer.has_macvlan = False
    labels = {"node-role.kubernetes.io/control-plane": "true", "windrow.io/macvlan": "missing"}
    (node,) = await rig.guest.list(NODE)
    await rig.guest.patch(NODE.ref(name_of(node)), {"metadata": {"labels": labels}})


async def no_lease(rig: ServiceRig) -> None:
    rig.announcer.answers_dhcp = False


async def expired(rig: ServiceRig) -> None:
    await rig.make_pool("10.1.0.10-12")
    rig.host.api.tokens.clear()


async def another_namespace(rig: ServiceRig) -> None:
    await rig.make_pool("10.1.0.10-12")
    rig.files[CLOUD_CONFIG] = a_cloud_config("host-token", "elsewhere")


@dataclass(frozen=True)
class Case:
    """A service, what it meets, and words of the one event about it."""

    words: tuple[str, ...]
    service: dict[str, Any] = field(default_factory=dict)
    setup: Setup = nothing
    cluster: str = CLUSTER
    flags: tuple[str, ...] = ()
    before_start: bool = False  # the setup comes before the program


CASES: dict[str, Case] = {
    "unknown ipam": Case(("static", "pool", "dhcp", IPAM), {"ipam": "static"}),
    "no pool": Case(("no matched IPPool", "Cluster:demo"), setup=no_pool),
    "a pool of others": Case(("no matched IPPool", "Cluster:demo"), setup=foreign_pool),
    "empty pool": Case(("no IP addresses available",), setup=empty_pool),
    "full pool": Case(("no IP addresses available", "10.1.0.10-10.1.0.10"), setup=full_pool),
    "primary missing": Case(("default/absent", PRIMARY), {"primary": "absent", "ipam": ""}),
    "primary is itself": Case(("default/web",), {"primary": "web", "ipam": ""}),
    "primary is a secondary": Case(("default/second",), {"primary": "second", "ipam": ""}, a_chain),
    # What other namespaces have is no tenant's business.
    "primary elsewhere": Case(
        ("default/first does not exist", "primary-service"),
        {"primary": "first", "ipam": ""},
        a_primary_elsewhere,
    ),
    "port taken": Case(
        ("80", "TCP", "default/first"), {"primary": "first", "ipam": "", "ports": [80]}, a_primary
    ),
    "network not found": Case(("default/nowhere", "default/vlan50"), {"network": "default/nowhere"}),
    "guest without macvlan": Case(("macvlan", "DHCP"), {"ipam": "dhcp"}, no_macvlan),
    "a node that says it has no macvlan": Case(
        ("kernel of Node", "windrow.io/macvlan=missing", "kernel-default-base", "DHCP"),
        {"ipam": "dhcp"},
        macvlan_probed,
    ),
    "no lease": Case(("macvlan", "DHCP"), {"ipam": "dhcp"}, no_lease),
    "credential expired": Case(("token", "192.168.100.10"), setup=expired),
    "credential expired from the start": Case(("token", "192.168.100.10"), setup=expired, before_start=True),
    "credential of another namespace": Case(
        ("elsewhere", "forbidden"), setup=another_namespace, before_start=True
    ),
    "no cluster name": Case(
        ("cluster name is empty", "--cluster-name"), flags=("--cluster-name=",), cluster=""
    ),
}


async def _run_case(case: Case) -> tuple[list[Raw], Raw, Raw, list[Raw], Raw | None, list[Raw]]:
    async with a_service_rig(1) as rig:
        if case.before_start:
            await case.setup(rig)
        rig.start("--leader-elect=false", *case.flags, cluster=case.cluster)
        await rig.pass_time(5)
        if not case.before_start:
            await case.setup(rig)
        await rig.pass_time(5)
        wrote = await rig.guest.create(SERVICE, a_service(**case.service))
        await rig.pass_time(1200)
        stands = await rig.service()
        assert stands is not None
        uid = stands["metadata"]["uid"]
        told = [raw for raw in await rig.guest.list(EVENT) if nested(raw, "involvedObject", "uid") == uid]
        held = await rig.balancers()
        await _mend(rig)
        await rig.delete()
        await rig.pass_time(400)
        left = [
            raw
            for raw in await rig.balancers()
            if labels_of(raw).get("cloudprovider.harvesterhci.io/serviceName") == "web"
        ]
        return told, wrote, stands, held, await rig.service(), left


async def _mend(rig: ServiceRig) -> None:
    """Without a connection to Harvester nothing can be cleaned up: the credential is corrected."""
    rig.host.api.tokens["renewed"] = ("system:serviceaccount:default:demo", (), None)
    rig.files[CLOUD_CONFIG] = a_cloud_config("renewed")
    await rig.pass_time(180)


@pytest.mark.parametrize("name", CASES)
def test_one_event_says_what_is_wrong_and_nothing_else_happens(name: str) -> None:
    case = CASES[name]
    told, wrote, stands, _held, after, left = run_driven(_run_case(case))

    warnings = [raw for raw in told if raw["type"] == "Warning"]
    sentences = [f"{raw['reason']} x{raw.get('count', 1)}: {raw['message']}" for raw in told]
    assert len(warnings) == 1, sentences
    assert warnings[0].get("count", 1) == 1, sentences
    for word in case.words:
        assert word in warnings[0]["message"], warnings[0]["message"]
    assert stands["spec"] == wrote["spec"]
    # kube-vip need not wait for its address, unless a lease is asked for.
    assert annotations_of(stands)[ADDRESSES] == ("0.0.0.0" if case.service.get("ipam") == "dhcp" else "")
    passed_over = {"kube-vip.io/ignore", "windrow.io/awaits-address"}
    if case.service.get("ipam") != "dhcp":
        assert passed_over < annotations_of(stands).keys()
    ours = {ADDRESSES, "kube-vip.io/serviceInterface", *passed_over}
    assert {key: value for key, value in annotations_of(stands).items() if key not in ours} == annotations_of(
        wrote
    )
    assert labels_of(stands) == labels_of(wrote)
    assert not nested(stands, "status", "loadBalancer", "ingress")
    assert after is None
    assert left == []


def test_a_cluster_without_a_name_is_warned_once_and_served_all_the_same() -> None:
    """The chart leaves the flag out where no name is given; then the framework's own default counts."""

    async def story() -> tuple[str, list[str]]:
        async with a_service_rig(1) as rig:
            await rig.make_pool("10.1.0.10-12")
            rig.start("--leader-elect=false", cluster="")
            await rig.serve()
            address = await rig.served()
            await rig.pass_time(600)
            events = await rig.guest.list(EVENT)
            return address, [raw["message"] for raw in events if raw["type"] == "Warning"]

    address, [warning] = run_driven(story())

    assert address == "10.1.0.10"
    assert "--cluster-name" in warning
