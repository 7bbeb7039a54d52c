"""Every name that the cloud provider shares with kubelet, the cloud framework and Harvester, with its meaning."""

from __future__ import annotations

# Taints. Kubelets started with an external cloud provider register with the first one.
UNINITIALISED = "node.cloudprovider.kubernetes.io/uninitialized"
SHUTDOWN = "node.cloudprovider.kubernetes.io/shutdown"

# Annotations on guest nodes. The kubelet writes the first from --node-ip: one address, or two of both families.
PROVIDED_NODE_IP = "alpha.kubernetes.io/provided-node-ip"
# A JSON list of addresses that belong to the node but are nobody's business outside (virtual addresses, …).
ADDITIONAL_INTERNAL_IPS = "cloudprovider.harvesterhci.io/additional-internal-ips"

# Topology, under the present key and the one before Kubernetes 1.17. Both are written.
ZONE = "topology.kubernetes.io/zone"
ZONE_BETA = "failure-domain.beta.kubernetes.io/zone"
REGION = "topology.kubernetes.io/region"
REGION_BETA = "failure-domain.beta.kubernetes.io/region"
TOPOLOGY = (ZONE, ZONE_BETA, REGION, REGION_BETA)

# Events: their sources are those of the framework's controllers.
NODE_CONTROLLER = "cloud-node-controller"
LIFECYCLE_CONTROLLER = "cloud-node-lifecycle-controller"

# One Lease for all cloud controllers of a cluster, so that the Go program and this one never run side by side.
LEASE_NAME = "cloud-controller-manager"
LEASE_NAMESPACE = "kube-system"

# Which host network is which interface in every guest; read by Rancher's screens and by the load balancer part.
NETWORK_MAP_NAMESPACE = "kube-system"
NETWORK_MAP_NAME = "harvester-nad-mapping"
NETWORK_MAP_KEY = "interface-nad-mapping"

# What the framework calls a cluster that was not given a name: then labels cannot tell clusters apart.
UNNAMED = "kubernetes"
