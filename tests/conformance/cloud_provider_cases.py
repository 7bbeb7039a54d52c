"""What two cloud providers are given, to be compared: Services of every shape, and what happens to nodes.

A case plays in a namespace of its own (services) or with nodes of its own, in phases that all cases go through
together: `first`, then, when all is quiet, `then`, and again `late`. What keeps a provider busy for ever or blocks
it for long belongs into `late`, so that the other cases' quiet can be seen.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from tests.conformance.cloud_provider_rig import (
    NETWORK,
    OTHER_NETWORK,
    PREFIX,
    Guest,
    Host,
    has_taint,
)

from windrow.emulator.guest_os.hardware import AgentReport
from windrow.kubernetes.objects import Raw, new_object
from windrow.kubernetes.resources import NODE, SERVICE

IPAM, PRIMARY, LB_NETWORK = f"{PREFIX}/ipam", f"{PREFIX}/primary-service", f"{PREFIX}/network"
POOL_FIRST, POOL_LAST = "192.168.50.100", "192.168.50.190"
# One of the machines' networks has a pool of one address, and one has none.
SMALL_NETWORK, BARE_NETWORK = OTHER_NETWORK, "default/vlan70"
HERE = "<namespace>"  # in annotations: the namespace of the case


@dataclass(frozen=True, slots=True)
class CaseContext:
    """Where a case plays."""

    host: Host
    guest: Guest
    namespace: str = "default"

    async def make(self, *services: Raw) -> None:
        for raw in services:
            placed = json.loads(json.dumps(raw).replace(HERE, self.namespace))
            placed["metadata"]["namespace"] = self.namespace
            await self.guest.make_service(placed)

    async def annotate(self, name: str, **said: str | None) -> None:
        """Annotations by their constants' short names; None removes one."""
        keys = {"ipam": IPAM, "primary": PRIMARY, "network": LB_NETWORK}
        change = {keys[key]: value for key, value in said.items()}
        await self.change(name, {"metadata": {"annotations": change}})

    async def change(self, name: str, change: Mapping[str, Any]) -> None:
        await self.guest.api.patch(SERVICE.ref(name, self.namespace), change)

    async def delete(self, name: str) -> None:
        await self.guest.delete(SERVICE.ref(name, self.namespace))


Play = Callable[[CaseContext], Awaitable[None]]


async def nothing(world: CaseContext) -> None:
    return


@dataclass(frozen=True, slots=True)
class Case:
    """`turns`: the services of which a provider says something in the first phase."""

    first: Play = nothing
    then: Play = nothing
    late: Play = nothing
    turns: tuple[str, ...] = ()
    fails: bool = False
    late_turns: tuple[str, ...] = ()


def service(name: str = "web", *ports: Any, annotations: Mapping[str, str] | None = None, **spec: Any) -> Raw:
    """A Service of type LoadBalancer, TCP on port 80 unless told otherwise."""
    listed = [_port(one) for one in ports or (80,)]
    made = new_object(
        SERVICE, name, annotations=annotations, spec={"type": "LoadBalancer", "ports": listed} | spec
    )
    made["metadata"].pop("namespace", None)
    return made


def _port(one: Any) -> Raw:
    number, protocol = one if isinstance(one, tuple) else (one, "TCP")
    return {
        "name": f"{protocol.lower()}-{number}",
        "port": number,
        "protocol": protocol,
        "targetPort": number,
    }


def makes(*services: Raw) -> Play:
    async def play(world: CaseContext) -> None:
        await world.make(*services)

    return play


def one(*ports: Any, annotations: Mapping[str, str] | None = None, fails: bool = False, **spec: Any) -> Case:
    """One service called `web`."""
    return Case(makes(service("web", *ports, annotations=annotations, **spec)), turns=("web",), fails=fails)


def one_annotated_later(annotations: Mapping[str, str]) -> Case:
    return Case(late=makes(service(annotations=annotations)), late_turns=("web",), fails=True)


def changed(change: Callable[[CaseContext], Awaitable[None]], **first: Any) -> Case:
    """One service called `web`, which is changed once it has its address."""
    return Case(makes(service("web", **first)), change, turns=("web",))


def shared(second: Raw, *, fails: bool = False, primary: Raw | None = None) -> Case:
    """A primary called `web`, and a second service once the first has its address."""
    return Case(makes(primary or service()), makes(second), turns=("web",), fails=fails)


def secondary(of: str, *ports: Any, name: str = "more", **annotations: str) -> Raw:
    return service(name, *(ports or (81,)), annotations={PRIMARY: of, **annotations})


SERVICES: Mapping[str, Case] = {
    "plain": one(),
    "pool": one(annotations={IPAM: "pool"}),
    "dhcp": one(annotations={IPAM: "dhcp"}),
    "network": one(annotations={LB_NETWORK: NETWORK}),
    "dhcp on a network": one(annotations={IPAM: "dhcp", LB_NETWORK: NETWORK}),
    "project and namespace": one(annotations={f"{PREFIX}/project": "p-1", f"{PREFIX}/namespace": "n-1"}),
    "several ports": one(80, 443, (53, "UDP"), (53, "TCP")),
    "local traffic": one(externalTrafficPolicy="Local"),
    "sticky": one(sessionAffinity="ClientIP", loadBalancerSourceRanges=["10.0.0.0/8"]),
    "wished address": one(loadBalancerIP="192.168.50.150"),
    "no node ports": one(allocateLoadBalancerNodePorts=False),
    "dual stack": one(ipFamilyPolicy="PreferDualStack"),
    "old health check": one(
        annotations={f"{PREFIX}/healthcheck-port": "8080", f"{PREFIX}/description": "old"}
    ),
    "foreign class": Case(makes(service(loadBalancerClass="example.org/other"))),
    "kube-vip's class": Case(makes(service(loadBalancerClass="kube-vip.io/kube-vip-class"))),
    "ignored by kube-vip": one(annotations={"kube-vip.io/ignore": "true"}),
    "long name": Case(
        makes(service("a-service-whose-name-is-so-long-that-it-must-be-cut")),
        turns=("a-service-whose-name-is-so-long-that-it-must-be-cut",),
    ),
    "labelled": Case(
        makes(
            {
                **service(),
                "metadata": {"name": "web", "labels": {"a": "b"}, "finalizers": ["example.org/mine"]},
            }
        ),
        turns=("web",),
    ),
    # -- changes
    "ports change": changed(lambda world: world.change("web", {"spec": {"ports": [_port(8080)]}})),
    "type change": changed(lambda world: world.change("web", {"spec": {"type": "ClusterIP"}})),
    "type change of dhcp": changed(
        lambda world: world.change("web", {"spec": {"type": "ClusterIP"}}), annotations={IPAM: "dhcp"}
    ),
    "pool becomes dhcp": changed(lambda world: world.annotate("web", ipam="dhcp")),
    "network changes": changed(lambda world: world.annotate("web", network=NETWORK)),
    "deletion": changed(lambda world: world.delete("web")),
    "deletion of dhcp": changed(lambda world: world.delete("web"), annotations={IPAM: "dhcp"}),
    "deletion where kube-vip ignores it": changed(
        lambda world: world.delete("web"), annotations={"kube-vip.io/ignore": "true"}
    ),
    # -- one address for several
    "shared": shared(secondary(f"{HERE}/web")),
    "shared by dhcp": shared(secondary(f"{HERE}/web"), primary=service(annotations={IPAM: "dhcp"})),
    "shared on a network": shared(
        secondary(f"{HERE}/web"), primary=service(annotations={LB_NETWORK: NETWORK})
    ),
    "shared by bare name": shared(secondary("web")),
    "shared on the same port": shared(secondary(f"{HERE}/web", 80)),
    "shared on a port of another protocol": shared(secondary(f"{HERE}/web", (80, "UDP"))),
    "shared with ipam": shared(secondary(f"{HERE}/web", **{IPAM: "pool"})),
    "secondary of itself": shared(secondary(f"{HERE}/more"), fails=True),
    "secondary without primary": shared(secondary(f"{HERE}/missing"), fails=True),
    "empty primary": shared(secondary(""), fails=True),
}


async def _secondary_then_primary(world: CaseContext) -> None:
    await world.annotate("more", primary=None)


async def _delete_primary(world: CaseContext) -> None:
    await world.delete("web")


async def _delete_secondary(world: CaseContext) -> None:
    await world.delete("more")


async def _become_secondary(world: CaseContext) -> None:
    await world.annotate("more", primary=f"{world.namespace}/web")


LATE: Mapping[str, Case] = {
    "secondary becomes primary": Case(
        makes(service()), makes(secondary(f"{HERE}/web")), _secondary_then_primary, ("web",)
    ),
    "primary becomes secondary": Case(
        makes(service(), service("more", 81)), _become_secondary, turns=("web", "more")
    ),
    "primary of others is deleted": Case(
        makes(service()), makes(secondary(f"{HERE}/web")), _delete_primary, ("web",), fails=True
    ),
    "secondary is deleted": Case(
        makes(service()), makes(secondary(f"{HERE}/web")), _delete_secondary, ("web",)
    ),
    "secondary of a secondary": Case(
        makes(service()),
        makes(secondary(f"{HERE}/web")),
        makes(secondary(f"{HERE}/more", 82, name="third")),
        ("web",),
        late_turns=("third",),
        fails=True,
    ),
    # -- what cannot be
    "unknown ipam": one_annotated_later({IPAM: "magic"}),
    "unknown network": one_annotated_later({LB_NETWORK: "default/nowhere"}),
    "network without a pool": one_annotated_later({LB_NETWORK: BARE_NETWORK}),
    "full pool": Case(
        makes(service(annotations={LB_NETWORK: SMALL_NETWORK})),
        late=makes(service("more", annotations={LB_NETWORK: SMALL_NETWORK})),
        turns=("web",),
        late_turns=("more",),
        fails=True,
    ),
}

ALL_SERVICES: Mapping[str, Case] = {**SERVICES, **LATE}


# --- nodes --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class NodeCase:
    """A VM with these networks whose agent reports so, and the node in it; then what happens."""

    networks: tuple[str, ...] = (NETWORK,)
    addresses: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    hostname: str = ""
    provided: str = ""
    annotations: Mapping[str, str] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)
    vm: bool = True
    stays: bool = False  # uninitialised
    then: Callable[[CaseContext, str], Awaitable[None]] | None = None

    def report(self, node: str) -> AgentReport:
        return AgentReport(self.hostname or node, self.addresses)


async def _silent(world: CaseContext, name: str) -> None:
    await world.guest.set_ready(name, "Unknown")


async def _vm_gone(world: CaseContext, name: str) -> None:
    await world.host.remove_vm(name)
    await _silent(world, name)


async def _vm_stopped(world: CaseContext, name: str) -> None:
    await world.host.order("stop", name)
    await world.host.until_stopped(name)
    await _silent(world, name)


async def _vm_back(world: CaseContext, name: str) -> None:
    """Stopped until the taint is there, then started again."""
    await _vm_stopped(world, name)
    await world.guest.node_where(name, lambda raw: has_taint(raw, SHUTDOWN_TAINT), "tainted")
    await world.host.order("start", name)
    await world.host.until_told(name)
    await world.guest.set_ready(name, "True")


async def _vm_anew(world: CaseContext, name: str) -> None:
    await world.host.remove_vm(name)
    await world.host.make_vm(name)
    await _silent(world, name)


async def _migrated(world: CaseContext, name: str) -> None:
    await world.host.migrate(name)


async def _initialised_by_hand(world: CaseContext, name: str) -> None:
    """A node of another cloud provider, or of none."""
    await world.guest.api.patch(NODE.ref(name), {"spec": {"taints": None}})
    await _silent(world, name)


SHUTDOWN_TAINT = "node.cloudprovider.kubernetes.io/shutdown"
A, B, SIX = "10.9.0.1", "10.9.0.2", "fd00::9"
ONE_CARD = {"nic-0": (A,)}
TWO_CARDS = {"nic-0": (A,), "nic-1": (B,)}

NODES: Mapping[str, NodeCase] = {
    "provided address": NodeCase(addresses=ONE_CARD, provided=A),
    "no provided address": NodeCase(addresses=ONE_CARD),
    "provided both families": NodeCase(addresses={"nic-0": (A, SIX)}, provided=f"{A},{SIX}"),
    "both families": NodeCase(addresses={"nic-0": (A, SIX)}),
    "another provided address": NodeCase(addresses=ONE_CARD, provided="10.9.0.99", stays=True),
    "several cards": NodeCase((NETWORK, OTHER_NETWORK), TWO_CARDS),
    "several cards with provided address": NodeCase((NETWORK, OTHER_NETWORK), TWO_CARDS, provided=A),
    "several cards and the second's provided": NodeCase(
        (NETWORK, OTHER_NETWORK), TWO_CARDS, provided=B, stays=True
    ),
    "several addresses": NodeCase(addresses={"nic-0": (A, B, "169.254.1.1", "fe80::1", SIX)}, provided=A),
    "several addresses and none provided": NodeCase(addresses={"nic-0": (A, B, "fe80::1", SIX)}),
    "hidden addresses": NodeCase(
        addresses={"nic-0": (A, B)},
        provided=A,
        annotations={f"{PREFIX}/additional-internal-ips": f'["{B}"]'},
    ),
    "own zone": NodeCase(addresses=ONE_CARD, labels={"topology.kubernetes.io/zone": "my-zone"}),
    "no VM": NodeCase(vm=False, stays=True),
    # -- what happens to nodes
    "VM gone": NodeCase(addresses=ONE_CARD, provided=A, then=_vm_gone),
    "VM stopped": NodeCase(addresses=ONE_CARD, provided=A, then=_vm_stopped),
    "VM stopped and started": NodeCase(addresses=ONE_CARD, provided=A, then=_vm_back),
    "VM made anew": NodeCase(addresses=ONE_CARD, provided=A, then=_vm_anew),
    "silent but the VM runs": NodeCase(addresses=ONE_CARD, provided=A, then=_silent),
    "silent and never had a VM": NodeCase(vm=False, stays=True, then=_initialised_by_hand),
    "migrated": NodeCase(addresses=ONE_CARD, provided=A, then=_migrated),
}

# Flags under which some nodes are tried again, each by a program of its own.
FLAGGED = ("provided address", "both families", "several cards", "several addresses")
FLAGS: Mapping[str, tuple[str, ...]] = {
    "--management-network": (f"--management-network={OTHER_NETWORK}",),
    "--node-ip-cidr": ("--node-ip-cidr=10.9.0.2/32,fd00::/64",),
    "--node-exclude-ip-ranges": (f"--node-ip-cidr={A}", "--node-exclude-ip-ranges=10.9.0.2,fd00::/64"),
    "--disable-annotation-alpha-provided-ip-addr": ("--disable-annotation-alpha-provided-ip-addr",),
    "--disable-vmi-controller": ("--disable-vmi-controller",),
}
