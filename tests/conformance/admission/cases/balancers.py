"""LoadBalancers and IPPools: creations and changes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import product

from tests.conformance.admission.asking import Question
from tests.conformance.admission.cases.edits import REMOVE, Edits, edited
from tests.conformance.admission.world import ClusterDump, a_balancer, a_pool
from tests.unit.clusters.builders import a_cluster

from windrow.bootstrap import k3s, rke2
from windrow.cloudprovider.services.execute import render_load_balancer
from windrow.cloudprovider.services.readings import Service
from windrow.cloudprovider.services.state import ClusterSettings
from windrow.clusters.api.endpoint import ControlPlaneEndpoint, EndpointBalancer
from windrow.clusters.endpoint_balancer import balancer_name, render_balancer, render_servers
from windrow.emulator import kinds
from windrow.kubernetes.objects import Raw

LISTENERS = "spec.listeners"
CHECK = "spec.healthCheck"
NEW_BALANCERS: Mapping[str, Edits] = {
    "as it is": {},
    "generated name": {"metadata.name": REMOVE, "metadata.generateName": "lb-"},
    "no listeners": {LISTENERS: []},
    "listeners null": {LISTENERS: None},
    "two listeners of a name": {f"{LISTENERS}.+": {"name": "http", "port": 81, "backendPort": 81, "protocol": "TCP"}},
    "two listeners of a port": {f"{LISTENERS}.+": {"name": "b", "port": 80, "backendPort": 81, "protocol": "TCP"}},
    "two listeners of a back-end port": {f"{LISTENERS}.+": {"name": "b", "port": 81, "backendPort": 8080, "protocol": "TCP"}},
    "a port of two protocols": {f"{LISTENERS}.+": {"name": "b", "port": 80, "backendPort": 8080, "protocol": "UDP"}},
    "protocol unknown": {f"{LISTENERS}.0.protocol": "SCTP"},
    "protocol absent": {f"{LISTENERS}.0.protocol": REMOVE},
    "port 0": {f"{LISTENERS}.0.port": 0},
    "port negative": {f"{LISTENERS}.0.port": -1},
    "port 65535": {f"{LISTENERS}.0.port": 65535},
    "port 65536": {f"{LISTENERS}.0.port": 65536},
    "port a text": {f"{LISTENERS}.0.port": "80"},
    "port absent": {f"{LISTENERS}.0.port": REMOVE},
    "back-end port 0": {f"{LISTENERS}.0.backendPort": 0},
    "back-end port 70000": {f"{LISTENERS}.0.backendPort": 70000},
    "name of a listener absent": {f"{LISTENERS}.0.name": REMOVE},
    "pool": {"spec.ipam": "pool", "spec.ipPool": "office"},
    "pool missing": {"spec.ipam": "pool", "spec.ipPool": "gone"},
    "dhcp": {"spec.ipam": "dhcp"},
    "dhcp with a pool": {"spec.ipam": "dhcp", "spec.ipPool": "office"},
    "ipam unknown": {"spec.ipam": "static"},
    "ipam absent": {"spec.ipam": REMOVE},
    "workload of a cluster": {"spec.workloadType": "cluster"},
    "workload unknown": {"spec.workloadType": "pod"},
    "workload absent": {"spec.workloadType": REMOVE},
    "of a cluster, named": {"spec.workloadType": "cluster", "A/cloudprovider.harvesterhci.io/cluster": "c1"},
    "of a cluster, no listeners": {"spec.workloadType": "cluster", LISTENERS: []},
    "selector absent": {"spec.backendServerSelector": REMOVE},
    "selector of no value": {"spec.backendServerSelector": {"app": []}},
    "selector a text": {"spec.backendServerSelector": "app"},
    "check": {CHECK: {"port": 8080}},
    "check of port 0": {CHECK: {"port": 0}},
    "check of another port": {CHECK: {"port": 81}},
    "check of a UDP port": {f"{LISTENERS}.0.protocol": "UDP", CHECK: {"port": 8080}},
    "check with numbers": {CHECK: {"port": 8080, "successThreshold": 2, "failureThreshold": 3, "periodSeconds": 4, "timeoutSeconds": 5}},
    "check with zeros": {CHECK: {"port": 8080, "successThreshold": 0, "periodSeconds": 0}},
    "check with a negative number": {CHECK: {"port": 8080, "failureThreshold": -1}},
    "check without port": {CHECK: {"periodSeconds": -4}},
    "address asked for": {"spec.address": "10.1.0.5"},
    "unknown field": {"spec.nonsense": 1},
    "description": {"spec.description": "of mine"},
    "no spec": {"spec": REMOVE},
    "label bad": {"L/a": "b c"},
    "name with capitals": {"metadata.name": "Web"},
    "namespace missing": {"metadata.namespace": "nowhere"},
}  # fmt: skip
BALANCER_CHANGES: Mapping[str, Edits] = {
    "nothing": {},
    "label": {"L/a": "b"},
    "pool to dhcp": {"spec.ipam": "dhcp"},
    "pool to none": {"spec.ipam": REMOVE},
    "workload": {"spec.workloadType": "cluster"},
    "another pool": {"spec.ipPool": "other"},
    "port": {f"{LISTENERS}.0.port": 81},
    "no listeners": {LISTENERS: []},
    "check": {CHECK: {"port": 8080}},
}
RANGES = "spec.ranges"
SELECTOR = "spec.selector"
NEW_POOLS: Mapping[str, Edits] = {
    "as it is": {},
    "no ranges": {RANGES: []},
    "ranges absent": {RANGES: REMOVE},
    "range without start": {RANGES: [{"subnet": "10.2.0.0/24", "gateway": "10.2.0.1"}]},
    "start alone": {RANGES: [{"subnet": "10.2.0.0/24", "rangeStart": "10.2.0.50"}]},
    "end alone": {RANGES: [{"subnet": "10.2.0.0/24", "rangeEnd": "10.2.0.50"}]},
    "reversed": {RANGES: [{"subnet": "10.2.0.0/24", "rangeStart": "10.2.0.50", "rangeEnd": "10.2.0.40"}]},
    "outside": {RANGES: [{"subnet": "10.2.0.0/24", "rangeStart": "10.3.0.50", "rangeEnd": "10.3.0.60"}]},
    "subnet absent": {RANGES: [{"rangeStart": "10.2.0.50"}]},
    "subnet a word": {RANGES: [{"subnet": "office"}]},
    "subnet an address": {RANGES: [{"subnet": "10.2.0.0"}]},
    "subnet of one": {RANGES: [{"subnet": "10.2.0.5/32"}]},
    "subnet of two": {RANGES: [{"subnet": "10.2.0.4/31"}]},
    "subnet with bits of a host": {RANGES: [{"subnet": "10.2.0.7/24"}]},
    "subnet of IPv6": {RANGES: [{"subnet": "fd00::/64"}]},
    "gateway outside": {RANGES: [{"subnet": "10.2.0.0/24", "gateway": "10.3.0.1"}]},
    "gateway a word": {RANGES: [{"subnet": "10.2.0.0/24", "gateway": "there"}]},
    "gateway within": {RANGES: [{"subnet": "10.2.0.0/24", "gateway": "10.2.0.45", "rangeStart": "10.2.0.40", "rangeEnd": "10.2.0.50"}]},
    "two ranges": {f"{RANGES}.+": {"subnet": "10.4.0.0/24"}},
    "two ranges that overlap": {f"{RANGES}.+": {"subnet": "10.2.0.0/24"}},
    "overlaps another pool": {RANGES: [{"subnet": "10.1.0.0/24"}]},
    "start a word": {RANGES: [{"subnet": "10.2.0.0/24", "rangeStart": "first"}]},
    "global": {SELECTOR: {}},
    "selector absent": {SELECTOR: REMOVE},
    "network": {f"{SELECTOR}.network": "default/vlan50"},
    "network missing": {f"{SELECTOR}.network": "default/gone"},
    "network without namespace": {f"{SELECTOR}.network": "vlan50"},
    "scopes of any": {f"{SELECTOR}.scope": [{"project": "*", "namespace": "*", "guestCluster": "*"}]},
    "scopes that overlap": {f"{SELECTOR}.scope": [{"namespace": "tenant"}, {"namespace": "tenant", "guestCluster": "*"}]},
    "scope of another pool": {f"{SELECTOR}.scope": [{"namespace": "default"}]},
    "scope of another pool, other priority": {f"{SELECTOR}.scope": [{"namespace": "default"}], f"{SELECTOR}.priority": 7},
    "priority": {f"{SELECTOR}.priority": 5},
    "priority negative": {f"{SELECTOR}.priority": -1},
    "priority a text": {f"{SELECTOR}.priority": "5"},
    "label bad": {"L/a": "b c"},
    "no spec": {"spec": REMOVE},
    "unknown field": {"spec.nonsense": 1},
}  # fmt: skip
POOL_CHANGES: Mapping[str, Edits] = {
    "nothing": {},
    "label": {"L/a": "b"},
    "description": {"spec.description": "b"},
    "range grown": {f"{RANGES}.+": {"subnet": "10.5.0.0/24"}},
    "range shrunk": {
        RANGES: [{"subnet": "10.1.0.0/24", "rangeStart": "10.1.0.200", "rangeEnd": "10.1.0.210"}]
    },
    "no ranges": {RANGES: []},
    "scope": {f"{SELECTOR}.scope": [{"namespace": "tenant"}]},
    "network": {f"{SELECTOR}.network": "default/vlan50"},
}


OURS = "the products"
SERVERS = [f"prod-servers-{number}" for number in (1, 2, 3)]


def _endpoints() -> Iterator[tuple[str, Raw]]:
    """The LoadBalancers of endpoints, in every shape: RKE2 and K3s, servers of all roles and divided, without servers and with."""
    cluster = a_cluster()
    for shape, purposes in (("one", ("api",)), ("divided", ("api", "join"))):
        balancers = tuple(EndpointBalancer(purpose, balancer_name(cluster, purpose)) for purpose in purposes)
        endpoint = ControlPlaneEndpoint("loadBalancer", pool="office", balancers=balancers)
        asked = replace(cluster, control_plane_endpoint=endpoint)
        for distribution, layout in (("rke2", rke2.LAYOUT), ("k3s", k3s.LAYOUT)):
            for one, servers in product(balancers, ((), SERVERS[:1], SERVERS)):
                case = f"endpoint of {distribution}, {shape}, {one.purpose}, {len(servers)} servers"
                yield case, render_balancer(asked, one, "default", servers, layout)


def _of_services() -> Iterator[tuple[str, Raw]]:
    """Those of Services: of both modes, with and without pool and network, and the one for a second family."""
    service, settings = (
        Service("default", "web", "uid-1"),
        ClusterSettings("demo", "default", "default/vlan50"),
    )
    for case, change, is_second in (
        ("any pool", {}, False),
        ("a pool", {"pool": "office", "network": "default/vlan50"}, False),
        ("dhcp", {"ipam": "dhcp"}, False),
        ("a second pool", {"pool": "office", "second_pool": "six", "families": ("IPv4", "IPv6")}, True),
    ):
        made = replace(service, **change)
        yield f"service, {case}", render_load_balancer(made, settings, "guest-uid", is_second=is_second)


def our_questions() -> Iterator[Question]:
    """What our products write: created, and for an endpoint updated as its servers come and go."""
    for case, raw in (*_endpoints(), *_of_services()):
        yield Question(f"{OURS}: create: {case}", "load balancer", kinds.LOAD_BALANCER, raw)


def _our_updates(old: Raw) -> Iterator[Question]:
    for servers in (SERVERS[:1], SERVERS):
        new = edited(old, {"spec.backendServerSelector": render_servers(servers)})
        yield Question(
            f"{OURS}: update: {len(servers)} servers", "load balancer", kinds.LOAD_BALANCER, new, old
        )


def questions(world: ClusterDump) -> Iterator[Question]:
    yield from our_questions()
    yield from _our_updates(world.get(kinds.LOAD_BALANCER, "web"))
    for group, kind, base, table in (
        ("load balancer", kinds.LOAD_BALANCER, a_balancer("new"), NEW_BALANCERS),
        ("pool", kinds.IP_POOL, a_pool("new", "10.2.0.0/24", "tenant"), NEW_POOLS),
    ):
        for case, edits in table.items():
            yield Question(f"create: {case}", group, kind, edited(base, edits))
    for group, kind, name, changes in (
        ("load balancer", kinds.LOAD_BALANCER, "web", BALANCER_CHANGES),
        ("pool", kinds.IP_POOL, "office", POOL_CHANGES),
    ):
        old = world.get(kind, name)
        for case, edits in changes.items():
            yield Question(f"update {name}: {case}", group, kind, edited(old, edits), old)
        yield Question(f"delete {name}", group, kind, None, old)
