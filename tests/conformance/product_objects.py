"""What the cloud provider and bootstrap write, made of random inputs by their own code, to be judged by a real kube-apiserver.

A case is what a user may write: an input that the real API server refuses is none. Of the kinds that are no built-in ones the API
server judges what it judges of every custom resource, and the schema where WINDROW_DEFINITIONS names a folder of the real
definitions (loadbalancer.harvesterhci.io, helm.cattle.io).
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from windrow.bootstrap.charts import HELM_CHART_CONFIG, chart_configs, credential_secret, harvester_values
from windrow.bootstrap.guest_account import GuestAccount
from windrow.bootstrap.k3s.charts import HARVESTER_CHARTS, HELM_CHART, helm_chart
from windrow.bootstrap.spec import GuestCredential
from windrow.bootstrap.support_matrix.matrix import shipped_matrix
from windrow.client.client import Client
from windrow.client.events import EventNote, EventRecorder
from windrow.client.leader_election import LeaderElector
from windrow.cloudprovider.names import LEASE_NAME
from windrow.cloudprovider.nodes.execute import render_patches
from windrow.cloudprovider.nodes.identity import VmFound
from windrow.cloudprovider.nodes.network_map import ensure_network_map
from windrow.cloudprovider.nodes.planning import NodeState, plan_node
from windrow.cloudprovider.nodes.readings import read_instance, read_node, read_vm
from windrow.cloudprovider.options import Options
from windrow.cloudprovider.services.actions import (
    ClearStatus,
    CreateLoadBalancer,
    EmitEvent,
    PatchService,
    Plan,
    RemoveFinalizer,
    UpdateLoadBalancer,
)
from windrow.cloudprovider.services.execute import (
    render_cleared_status,
    render_load_balancer,
    render_load_balancer_update,
    render_service_patch,
)
from windrow.cloudprovider.services.planning import plan_service
from windrow.cloudprovider.services.readings import Service, load_balancer_reader, read_service
from windrow.cloudprovider.services.sharing import CannotShare, OwnAddress, SharedAddress, Sharing
from windrow.cloudprovider.services.state import ClusterSettings, ServiceState, Unavailable
from windrow.clusters.api.manifest.reading import read_cluster
from windrow.core.formats.version import Version
from windrow.core.rng import Rng
from windrow.harvester.resources import LOAD_BALANCER
from windrow.kubernetes.errors import KubeError, NotFound
from windrow.kubernetes.objects import Raw, name_of, new_object, uid_of
from windrow.kubernetes.requests import Request
from windrow.kubernetes.resources import NODE, SECRET, SERVICE, ApiResource, ObjectRef

NAMESPACES = ("default", "shop", "n" * 63)
NOW = datetime(2026, 1, 1, tzinfo=UTC)
SERVICE_KEYS = ("ipam", "network", "project", "namespace", "primary-service")


@dataclass
class Review:
    """What became of all cases: objects that the real API server took or refused, and what our own checks refused before."""

    judged: int = 0
    no_cases: int = 0  # inputs that the API server itself refuses
    refused: list[str] = field(default_factory=list)
    ours: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        return (
            f"{self.judged} requests judged, {len(self.refused)} refused by the API server; {len(self.ours)} cases refused "
            f"by our own checks; {self.no_cases} inputs were none"
        )


class Reviewer:
    """A client whose writes the API server only judges (`dryRun=All`), apart from those that make the world of a case."""

    def __init__(self, world: Client, transport: Any) -> None:
        self.world, self._transport = world, transport
        self.found = Review()
        self.case = ""

    async def send(self, request: Request) -> Any:
        """As a transport: what an EventRecorder writes is only judged, too."""
        if request.is_read:
            return await self._transport.send(request)
        reply = await self._transport.send(replace(request, query=(*request.query, ("dryRun", "All"))))
        self.found.judged += 1
        if reply.status >= 400:
            self.found.refused.append(
                f"{self.case}: {request.method} {request.path}: {reply.body.decode()[:600]}"
            )
        return reply

    async def create(self, kind: ApiResource, raw: Raw) -> None:
        await self._try(Client(self).create(kind, raw))

    async def patch(self, ref: ObjectRef, change: Raw, subresource: str = "") -> None:
        await self._try(Client(self).patch(ref, change, subresource))

    async def update(self, kind: ApiResource, raw: Raw) -> None:
        await self._try(Client(self).update(kind, raw))

    async def _try(self, write: Any) -> None:
        with suppress(KubeError):  # kept by `send`
            await write


# --- Services and their load balancers ----------------------------------------------------------------------------

LONG = "x" * 140_000
DRAWN: Mapping[str, tuple[str | None, ...]] = {
    "ipam": (None, "pool", "dhcp", "", "static"),
    "network": (None, "default/vlan50", "vlan50", "a b", "ü/ö", "n" * 300, LONG),
    "project": (None, "c-m-x:p-y", "a b", "p" * 300, LONG),
    "namespace": (None, "default", "A_b", "n" * 300, LONG),
    "primary-service": (None, None, "front", "shop/front", "a/b/c", "/", " "),
}
POOLS = (None, "pool", "Pool_1", "a/b", "p" * 300, LONG, " ")
NAMES = ("web", "w" * 63, "w", "web-1")
CLUSTERS = ("demo", "kubernetes", "c" * 63, "c" * 64, "9x", "a.b", "A_b", "x y", "", "-a", "ü")
MANAGEMENT = ("", "default/mgmt", "a b", "m" * 300)
INTERFACES = (None, {}, {"default/vlan50": "enp1s0"}, {"default/vlan50": "i" * 300}, Unavailable("no map"))


def _draw(rng: random.Random, values: tuple[Any, ...], oddness: float) -> Any:
    return rng.choice(values) if rng.random() < oddness else values[0]


def a_service(rng: random.Random) -> Raw:
    oddness = rng.choice((0.1, 0.3, 0.7))
    said = {f"cloudprovider.harvesterhci.io/{key}": _draw(rng, DRAWN[key], oddness) for key in SERVICE_KEYS}
    said["windrow.io/ip-pool"] = _draw(rng, POOLS, oddness)
    said["kube-vip.io/ignore"] = _draw(rng, (None, "true", "x"), oddness)
    said["kube-vip.io/loadbalancerIPs"] = _draw(rng, (None, "", "10.9.9.9", "a,b"), oddness)
    spec = {
        "type": "LoadBalancer",
        "ports": [{"name": "http", "port": 80, "protocol": _draw(rng, ("TCP", "UDP", "SCTP"), oddness)}],
        "loadBalancerIP": _draw(rng, (None, "10.1.0.10", "0.0.0.0", "here"), oddness),
        "loadBalancerClass": _draw(rng, (None, None, "kube-vip.io/kube-vip-class"), oddness),
        "externalTrafficPolicy": _draw(rng, (None, "Local", "Cluster"), oddness),
    }
    raw = new_object(
        SERVICE,
        _draw(rng, NAMES, oddness),
        _draw(rng, NAMESPACES, oddness),
        annotations={key: value for key, value in said.items() if value is not None},
        spec={key: value for key, value in spec.items() if value is not None},
    )
    if rng.random() < oddness / 2:
        raw["metadata"]["finalizers"] = ["service.kubernetes.io/load-balancer-cleanup"]
    return raw


async def review_service(reviewer: Reviewer, rng: random.Random) -> None:
    """A Service from its creation to its removal, each plan as the reconciler would execute it."""
    try:
        raw = await reviewer.world.create(SERVICE, a_service(rng))
    except KubeError:
        reviewer.found.no_cases += 1
        return
    try:
        await _review_life(reviewer, rng, raw)
    finally:
        bare = {"metadata": {"finalizers": None}}
        ref = SERVICE.ref(name_of(raw), raw["metadata"]["namespace"])
        await reviewer.world.patch(ref, bare)
        await reviewer.world.delete(ref)


def _sharing(rng: random.Random) -> Sharing:
    longest = Service("n" * 63, "p" * 63, "u", is_load_balancer=True, ingress=("10.1.0.9",))
    short = replace(longest, namespace="shop", name="front", network="default/vlan50")
    return rng.choice(
        (OwnAddress(), OwnAddress(), CannotShare("no"), SharedAddress(longest), SharedAddress(short))
    )


async def _review_life(reviewer: Reviewer, rng: random.Random, raw: Raw) -> None:
    service = read_service(raw)
    settings = ClusterSettings(
        rng.choice(CLUSTERS[:3]) if rng.random() < 0.7 else rng.choice(CLUSTERS),
        "host",
        rng.choice(MANAGEMENT),
        rng.random() < 0.3,
    )
    interfaces = rng.choice(INTERFACES)
    sharing = _sharing(rng)
    start = ServiceState(service, NOW, settings, sharing=sharing, interfaces=interfaces)
    plan = plan_service(start)
    await _review_plan(reviewer, start, plan)
    if plan.problem:
        reviewer.found.ours.append(f"{reviewer.case}: {plan.problem[:300]}")
    if not any(isinstance(one, CreateLoadBalancer) for one in plan.actions):
        return
    try:
        made = await reviewer.world.create(LOAD_BALANCER, render_load_balancer(service, settings, "guest"))
    except KubeError:
        return  # `_review_plan` has kept why
    read = load_balancer_reader(settings.cluster)
    status = {"allocatedAddress": {"ip": rng.choice(("10.1.0.10", "0.0.0.0")), "ipPool": "pool"}}
    balancer = read({**made, "status": status})
    address = balancer.allocated[0]
    shown = replace(service, addresses=address, ingress=("10.1.0.10",), vip_keys=("kube-vip.io/vipHost",))
    away = {
        "sharing": SharedAddress(replace(service, namespace="n" * 63, name="p" * 63, ingress=("10.1.0.9",)))
    }
    for one, more in (
        (service, {}),
        (replace(service, addresses="", awaits_address=True), {}),
        (shown, {}),
        (replace(shown, pool="other"), {}),
        (replace(shown, addresses="10.1.0.77"), {}),
        (shown, away),
        (replace(shown, is_load_balancer=False), {}),
        (replace(shown, is_load_balancer=False, vip_keys=()), {}),
        (replace(shown, is_deleting=True), {}),
    ):
        state = replace(start, service=one, load_balancer=balancer, **{"sharing": OwnAddress(), **more})
        await _review_plan(reviewer, state, plan_service(state))
    gone = replace(
        start,
        service=replace(
            shown, is_load_balancer=False, finalizers=("tests.windrow.io/a", *service.finalizers)
        ),
    )
    await _review_plan(reviewer, gone, plan_service(gone))
    await reviewer.world.delete(LOAD_BALANCER.ref(balancer.name, "host"))


async def _review_plan(reviewer: Reviewer, state: ServiceState, plan: Plan) -> None:
    """Each request of the plan by itself."""
    service, recorder = state.service, _recorder(reviewer, "service-controller")
    problems = [
        EmitEvent("SyncLoadBalancerFailed", f"Error syncing load balancer: {plan.problem}", "Warning")
    ]
    for action in (*plan.actions, *(problems if plan.problem else ())):
        match action:
            case PatchService() | RemoveFinalizer():
                await reviewer.patch(service.ref, render_service_patch(service, action))
            case ClearStatus():
                await reviewer.patch(service.ref, render_cleared_status(service), "status")
            case CreateLoadBalancer(is_second=is_second):
                raw = render_load_balancer(service, state.settings, "guest", is_second=is_second)
                await reviewer.create(LOAD_BALANCER, raw)
            case UpdateLoadBalancer():
                await reviewer.update(LOAD_BALANCER, render_load_balancer_update(action, "guest"))
            case EmitEvent(reason=reason, message=message, type=type):
                await recorder.write(EventNote(service.ref, service.uid, reason, message, type))
            case _:
                pass


def _recorder(reviewer: Reviewer, component: str) -> EventRecorder:
    return EventRecorder(Client(reviewer), component, _Noon(), Rng(1))


class _Noon:
    """A clock that shows noon."""

    def now(self) -> datetime:
        return NOW

    def monotonic(self) -> timedelta:
        return timedelta(0)

    async def sleep_until(self, instant: datetime) -> None:
        raise AssertionError("nothing waits here")


# --- nodes --------------------------------------------------------------------------------------------------------

ZONES = ("zone1", "", "a b", "z" * 64, "ü", "-a", "z" * 63)
ADDRESSES = ("192.168.50.10", "fd00::10", "10.42.0.1")
NODE_NAMES = ("n-1", "n" * 63, "n" * 253, f"{'n' * 60}.example.org")


async def review_node(reviewer: Reviewer, rng: random.Random) -> None:
    name = rng.choice(NODE_NAMES)
    taint = {"key": "node.cloudprovider.kubernetes.io/uninitialized", "value": "true", "effect": "NoSchedule"}
    raw = await reviewer.world.create(NODE, new_object(NODE, name, spec={"taints": [taint]}))
    try:
        status = {
            "addresses": [{"type": "Hostname", "address": name[:63]}],
            "conditions": [{"type": "Ready", "status": rng.choice(("True", "False"))}],
        }
        raw = await reviewer.world.patch(NODE.ref(name), {"status": status}, "status")
        topology = {
            "topology.kubernetes.io/zone": rng.choice(ZONES),
            "topology.kubernetes.io/region": rng.choice(ZONES),
        }
        vm = {"metadata": {"name": name, "namespace": "default", "uid": uid_of(raw)}}
        vmi = {
            "metadata": {
                **vm["metadata"],
                "annotations": {key: value for key, value in topology.items() if value},
            },
            "status": {
                "phase": rng.choice(("Running", "Succeeded")),
                "interfaces": [{"name": "nic", "ipAddress": ADDRESSES[0], "ipAddresses": list(ADDRESSES)}],
            },
        }
        state = NodeState(read_node(raw), VmFound(read_vm(vm)), read_instance(vmi))
        plan = plan_node(state, Options())
        patch, status = render_patches(state.node, plan.changes)
        if patch:
            await reviewer.patch(NODE.ref(name), patch)
        if status:
            await reviewer.patch(NODE.ref(name), status, "status")
        if plan.waits_for:
            reviewer.found.ours.append(f"{reviewer.case}: {plan.waits_for[:200]}")
        await _recorder(reviewer, "cloud-node-controller").write(
            EventNote(NODE.ref(name), uid_of(raw), "Synced", "Node synced successfully")
        )
    finally:
        await reviewer.world.delete(NODE.ref(name))


# --- what a provider keeps for itself -----------------------------------------------------------------------------

IDENTITIES = ("pod-1_abcde", "h" * 253 + "_abcde", "ü_1", "a b")


async def review_provider(reviewer: Reviewer, rng: random.Random) -> None:
    """Its Lease, and the map of networks and interfaces."""
    elector = LeaderElector(
        reviewer.world, "kube-system", LEASE_NAME, rng.choice(IDENTITIES), _Noon(), Rng(1)
    )
    with suppress(NotFound):
        await reviewer.world.delete(
            elector.ref
        )  # of a provider that was killed: by this clock it never expires
    await elector.run(_nothing)  # a refusal would wait, and nothing does here
    reviewer.found.judged += 2
    await reviewer.world.delete(elector.ref)
    networks = {network: f"enp{place}s0" for place, network in enumerate(map(str, DRAWN["network"][1:]))}
    kept = rng.sample(sorted(networks), rng.randrange(len(networks)))
    await ensure_network_map(Client(reviewer), {network: networks[network] for network in kept})


async def _nothing() -> None:
    pass


# --- clusters -----------------------------------------------------------------------------------------------------

CHARTS: tuple[Any, ...] = (
    {"rke2-calico": {"installation": {"calicoNetwork": {"mtu": 1400}}}},
    {},
    {"rke2-cilium": {"a": "x" * 1_100_000}},
    {"Rke2_Calico": {}},
    {"": {"a": 1}},
    {"a/b": {"a": 1}},
    {"c" * 254: {}},
    {"rke2-canal": "text"},
    {"rke2-canal": None},
    {"rke2-canal": [1]},
    {"harvester-cloud-provider": {"global": {"cattle": {"clusterName": "other"}}}},
    {"harvester-cloud-provider": {"global": "x"}, "harvester-csi-driver": {"cloudConfig": 1}},
)
CLUSTER_NAMES = ("prod", "p" * 30, "9prod", "Prod", "a.b", "p" * 64, "p" * 260)
VERSIONS = ("v1.35.1+rke2r1", "v1.34.10+rke2r1", "v1.33.13+rke2r2", "v1.29.1+rke2r1", "v1.21.5+rke2r1")


def a_cluster(rng: random.Random) -> tuple[Raw, Raw]:
    oddness = rng.choice((0.1, 0.4))
    config = {
        "apiVersion": "rke-machine-config.cattle.io/v1",
        "kind": "HarvesterConfig",
        "metadata": {"name": "nc", "namespace": "fleet-default"},
        "vmNamespace": _draw(rng, (*NAMESPACES, "N_1"), oddness),
    }
    pool = {
        "name": _draw(rng, ("servers", "s", "Servers", "a_b"), oddness),
        "quantity": 1,
        "etcdRole": True,
        "controlPlaneRole": True,
        "workerRole": True,
        "machineConfigRef": {"kind": "HarvesterConfig", "name": "nc"},
    }
    rke = {"machinePools": [pool], "chartValues": _draw(rng, CHARTS, oddness)}
    raw = {
        "apiVersion": "provisioning.cattle.io/v1",
        "kind": "Cluster",
        "metadata": {"name": _draw(rng, CLUSTER_NAMES, oddness), "namespace": "fleet-default", "uid": "u"},
        "spec": {
            "cloudCredentialSecretName": "cattle-global-data:cc",
            "kubernetesVersion": _draw(rng, VERSIONS, oddness),
            "rkeConfig": rke,
        },
    }
    return raw, config


async def review_cluster(reviewer: Reviewer, rng: random.Random) -> None:
    """The guest's account on Harvester, and the manifests of its first server."""
    raw, config = a_cluster(rng)
    reading = read_cluster(raw, [config])
    problems = [problem for problem in reading.problems if problem.severity == "error"]
    if problems:
        reviewer.found.ours.append(f"{reviewer.case}: {str(problems[0])[:300]}")
        return
    cluster = reading.cluster
    for kind, one in GuestAccount(cluster.name, cluster.pools[0].vm_namespace, "c-uid").render_objects():
        await reviewer.create(kind, one)
    values = harvester_values(
        cluster.chart_values,
        cluster=cluster.name,
        credential_file="/var/lib/rancher/rke2/etc/config-files/cloud-provider-config",
        charts=shipped_matrix().find_charts(Version.parse(cluster.version)),
    )
    for one in chart_configs(values):
        await reviewer.create(HELM_CHART_CONFIG, one)
    for name in HARVESTER_CHARTS:
        await reviewer.create(HELM_CHART, helm_chart(name, values.get(name) or {}))
    await reviewer.create(
        SECRET, credential_secret(GuestCredential(rng.choice(("apiVersion: v1", "k" * 10_000))))
    )


REVIEWS = {
    "service": review_service,
    "node": review_node,
    "provider": review_provider,
    "cluster": review_cluster,
}


async def review_random(world: Client, transport: Any, what: str, seeds: Iterable[int]) -> Review:
    reviewer = Reviewer(world, transport)
    for seed in seeds:
        reviewer.case = f"{what} {seed}"
        await REVIEWS[what](reviewer, random.Random(reviewer.case))
    return reviewer.found
