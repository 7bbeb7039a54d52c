"""Names that the cloud provider shares with kubelet, the cloud framework and Harvester; names of LoadBalancers. Pure.

A LoadBalancer's name holds the UID of its service, as a checksum: a service that is recreated gets another one. All
parts are the Go program's, letter by letter, so that either program finds what the other one made.
"""

from __future__ import annotations

import re
from zlib import crc32

from windrow.harvester.names import is_label_value

# A taint.
SHUTDOWN = "node.cloudprovider.kubernetes.io/shutdown"

# Annotations on guest nodes. The kubelet writes the first from --node-ip: one address, or two of both families.
PROVIDED_NODE_IP = "alpha.kubernetes.io/provided-node-ip"
# A JSON list of addresses that belong to the node but are not shown as addresses of the node (virtual addresses, …).
ADDITIONAL_INTERNAL_IPS = "cloudprovider.harvesterhci.io/additional-internal-ips"

# A label of guest nodes with a control plane; the chart has kube-vip run there.
CONTROL_PLANE = "node-role.kubernetes.io/control-plane"

# Topology, under the present key and the one before Kubernetes 1.17. Both are written.
ZONE = "topology.kubernetes.io/zone"
ZONE_BETA = "failure-domain.beta.kubernetes.io/zone"
REGION = "topology.kubernetes.io/region"
REGION_BETA = "failure-domain.beta.kubernetes.io/region"
TOPOLOGY = (ZONE, ZONE_BETA, REGION, REGION_BETA)

# Harvester knows no instance types; a user's old key brings the present one, as in the Go program.
INSTANCE_TYPE = "node.kubernetes.io/instance-type"
INSTANCE_TYPE_BETA = "beta.kubernetes.io/instance-type"

# Old key -> present key. The present one is added where only the old one stands.
SUCCESSORS = ((ZONE_BETA, ZONE), (REGION_BETA, REGION), (INSTANCE_TYPE_BETA, INSTANCE_TYPE))

# On guest nodes: which topology we wrote there, as a JSON object of `zone` and `region`. What stands in the record
# came from the host and goes when the host has it no longer; a label that is not in it is a user's.
TOPOLOGY_RECORD = "windrow.io/topology"

# The framework's controllers, as `--controllers` names them; the first two are sources of events, too.
NODE_CONTROLLER = "cloud-node-controller"
LIFECYCLE_CONTROLLER = "cloud-node-lifecycle-controller"
SERVICE_CONTROLLER = "service-lb-controller"
ROUTE_CONTROLLER = "node-route-controller"
CONTROLLERS = (NODE_CONTROLLER, LIFECYCLE_CONTROLLER, SERVICE_CONTROLLER, ROUTE_CONTROLLER)

# One Lease for all cloud controllers of a cluster, so that the Go program and this one never run side by side.
LEASE_NAME = "cloud-controller-manager"
LEASE_NAMESPACE = "kube-system"

# Which host network is which interface in every guest; read by Rancher's screens and by the load balancer part.
NETWORK_MAP_NAMESPACE = "kube-system"
NETWORK_MAP_NAME = "harvester-nad-mapping"
NETWORK_MAP_KEY = "interface-nad-mapping"

# What the framework calls a cluster that was not given a name: then labels cannot tell clusters apart.
DEFAULT_CLUSTER_NAME = "kubernetes"

# --- services ---

# The finalizer and the event source of the framework's service controller.
FINALIZER = "service.kubernetes.io/load-balancer-cleanup"
SERVICE_EVENTS = "service-controller"

# On guest services, by the user. IPAM is `pool` (also when absent) or `dhcp`; NETWORK and PRIMARY_SERVICE are
# `namespace/name`, where a bare PRIMARY_SERVICE is in the service's own namespace.
IPAM = "cloudprovider.harvesterhci.io/ipam"
NETWORK = "cloudprovider.harvesterhci.io/network"
PROJECT = "cloudprovider.harvesterhci.io/project"
NAMESPACE = "cloudprovider.harvesterhci.io/namespace"
PRIMARY_SERVICE = "cloudprovider.harvesterhci.io/primary-service"  # as a label, ours, on secondaries
# Ours: the pool on Harvester that the address shall come from; its own pool of one address makes an address fixed.
IP_POOL = "windrow.io/ip-pool"
# Had an effect in the Go program before v0.2.0 only.
REMOVED_SERVICE_KEYS = (
    "cloudprovider.harvesterhci.io/healthcheck-port",
    "cloudprovider.harvesterhci.io/healthcheck-success-threshold",
    "cloudprovider.harvesterhci.io/healthcheck-failure-threshold",
    "cloudprovider.harvesterhci.io/healthcheck-periodseconds",
    "cloudprovider.harvesterhci.io/healthcheck-timeoutseconds",
    "cloudprovider.harvesterhci.io/description",
)

# The prefixes of which all annotations of a Service are known here, and those that it may have.
SERVICE_PREFIXES = ("cloudprovider.harvesterhci.io/", "windrow.io/")
SERVICE_KEYS = (IPAM, NETWORK, PROJECT, NAMESPACE, PRIMARY_SERVICE, IP_POOL)

# On guest services, by us for kube-vip: which addresses to announce, separated by commas, and on which interface.
VIP_ADDRESSES = "kube-vip.io/loadbalancerIPs"
# The value of VIP_ADDRESSES while a service has no address. It takes the addresses off the node within a second, where a
# removed annotation leaves them there; and a service that carries it from the start makes no other wait, where kube-vip
# 1.2 and later stops for 30 s at each service that has neither annotation nor status.
NO_ADDRESS = ""
# Beside that value on a service that was never announced: VIP_IGNORE is ours, and goes when the address comes. kube-vip
# learns of a new service, waits until it has an address, and only then reads the changes that led to it; the empty value
# among them would look like an address taken away. What carries VIP_IGNORE it passes over.
AWAITS_ADDRESS = "windrow.io/awaits-address"
VIP_INTERFACE = "kube-vip.io/serviceInterface"
# On secondaries, where kube-vip elects a leader for each service: the lease that decides, that of the primary, so that one
# node has the address. Of kube-vip: `kubevip-<service>` beside the service.
VIP_LEASE = "kube-vip.io/leaseName"
# What makes kube-vip ask DHCP.
DHCP_PLACEHOLDER = "0.0.0.0"
# Of both families; never addresses of a service.
DHCP_PLACEHOLDERS = frozenset({DHCP_PLACEHOLDER, "::"})
# By the user, or by us with AWAITS_ADDRESS: kube-vip leaves the service alone.
VIP_IGNORE = "kube-vip.io/ignore"
# By kube-vip: where an address is now, and its lease. They mean nothing once the service is no load balancer.
VIP_STATUS_KEYS = ("kube-vip.io/vipHost", "kube-vip.io/hwaddr", "kube-vip.io/requestedIP")

# On load balancers on Harvester. The first four are what pools are chosen by; Harvester's webhook overwrites the first
# three with what it knows better. FIXED_NETWORK holds what the service asked for at first (since Go v0.2.7).
LB_NETWORK = "loadbalancer.harvesterhci.io/network"
LB_PROJECT = "loadbalancer.harvesterhci.io/project"
LB_NAMESPACE = "loadbalancer.harvesterhci.io/namespace"
LB_CLUSTER = "loadbalancer.harvesterhci.io/cluster"
FIXED_NETWORK = "cloudprovider.harvesterhci.io/lb-network"
MANAGEMENT_NETWORK = "cloudprovider.harvesterhci.io/managementNetwork"
# Their labels, and the annotation GUEST_UID with the uid of the guest's own service GUEST_SERVICE: `harvester.names`.
GUEST_SERVICE = ("kubernetes", "default")


def vip_lease(namespace: str, service: str) -> str:
    """The lease of a service's election, as VIP_LEASE names it."""
    return f"{namespace}/kubevip-{service}"


MAX_LENGTH = 63
CHECKSUM_LENGTH = 8
_LABEL = re.compile(r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?")
_CHECKSUM = re.compile(r"[0-9a-f]{8}")


def load_balancer_name(cluster: str, namespace: str, service: str, uid: str) -> str:
    """The name of the LoadBalancer that the service with this `uid` has on Harvester; at most 63 characters."""
    base = _base(cluster, namespace, service)
    return f"{base[: MAX_LENGTH - CHECKSUM_LENGTH]}{crc32((base + uid).encode()):08x}"


def second_load_balancer_name(cluster: str, namespace: str, service: str, uid: str) -> str:
    """The name of the LoadBalancer for the address of its second family; the Go program makes none."""
    return load_balancer_name(cluster, namespace, service, f"{uid}/second")


def is_load_balancer_name(name: str, cluster: str, namespace: str, service: str) -> bool:
    """Whether `name` was made by `load_balancer_name`, or for its second family, for this service, with whatever UID."""
    stem = _base(cluster, namespace, service)[: MAX_LENGTH - CHECKSUM_LENGTH]
    return name.startswith(stem) and _CHECKSUM.fullmatch(name[len(stem) :]) is not None


def _base(cluster: str, namespace: str, service: str) -> str:
    start = cluster if _LABEL.fullmatch(cluster) else f"a{cluster}"
    return f"{start}-{namespace}-{service}-"


def sharing_label(namespace: str, service: str) -> str:
    """What secondaries of this primary have as the value of their label.

    The Go program's `<namespace>.<name>` where that is a legal value. It may be too long for one; then it is cut and
    ends with a checksum behind an underscore, which no Go value has.
    """
    plain = f"{namespace}.{service}"
    if is_label_value(plain):
        return plain
    return f"{plain[: MAX_LENGTH - CHECKSUM_LENGTH - 1]}_{crc32(plain.encode()):08x}"
