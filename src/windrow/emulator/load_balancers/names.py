"""Labels, annotations, finalizers and webhook names of `harvester-load-balancer` (reference 02 §3.2, §4)."""

from __future__ import annotations

from windrow.emulator import kinds

_GROUP = kinds.LOAD_BALANCER.group
_PROVIDER = "cloudprovider.harvesterhci.io"

# Annotations of a LoadBalancer: what its address is for.
NETWORK = f"{_GROUP}/network"
PROJECT = f"{_GROUP}/project"
NAMESPACE = f"{_GROUP}/namespace"
CLUSTER = f"{_GROUP}/cluster"
MANAGEMENT_NETWORK = f"{_PROVIDER}/managementNetwork"

# Which guest cluster a LoadBalancer serves (label), and which one a VM is of (label).
BALANCER_CLUSTER = f"{_PROVIDER}/cluster"
MACHINE_CLUSTER = "guestcluster.harvesterhci.io/name"
DEFAULT_CLUSTER = "kubernetes"

PROJECT_OF_NAMESPACE = "field.cattle.io/projectId"

# On pools.
VLAN = f"{_GROUP}/vid"
GLOBAL_POOL = f"{_GROUP}/global-ip-pool"
RELEASE_MANUALLY = f"{_GROUP}/manuallyReleaseIP"

# On the Service and EndpointSlice of a LoadBalancer of VMs.
SERVICE_OF_BALANCER = f"{_GROUP}/servicelb"

BALANCER_FINALIZER = "wrangler.cattle.io/harvester-lb-controller"
POOL_FINALIZER = "wrangler.cattle.io/harvester-ipam-controller"

VALIDATOR = "validator.harvester-system.harvester-load-balancer-webhook"
MUTATOR = "mutator.harvester-system.harvester-load-balancer-webhook"

ANY = "*"
