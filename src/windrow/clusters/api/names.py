"""Names on the wire that the cluster manager reads or writes, with where each comes from.

`windrow.io/cluster-uid` and `windrow.io/machine-uid`, which say whose an outside object is, live in
`harvester.names`, because the node driver writes them too.
"""

from __future__ import annotations

OWN_DOMAIN = "windrow.io"

# Ours, on Cluster and Machine.
CLUSTER_FINALIZER = "windrow.io/cluster"
MACHINE_FINALIZER = "windrow.io/machine"
IN_USE_FINALIZER = "windrow.io/in-use"  # on credential Secrets and HarvesterConfigs
STRATEGY = "windrow.io/strategy"  # annotation on a Cluster; "replace": machines are replaced where they could be changed in place
CANARY = "windrow.io/canary"  # annotation on a Cluster: a number of machines, after which changes wait to be resumed
REMEDIATION = "windrow.io/remediation"  # annotation on a Cluster; "off" turns remediation off

RENEW_CERTIFICATES = "windrow.io/renew-certificates"  # annotation on a Cluster; "off": not by itself

# Ours, on a Cluster: how its machines and people reach it, see `api/endpoint.py`.
ENDPOINT_MODE = "windrow.io/endpoint-mode"
ENDPOINT_ADDRESS = "windrow.io/endpoint-address"
ENDPOINT_JOIN_ADDRESS = "windrow.io/endpoint-join-address"
ENDPOINT_IP_POOL = "windrow.io/endpoint-ip-pool"

# Reason of a Machine's condition BootstrapDataScrubbed where its driver cannot take the secrets out.
SCRUB_NOT_SUPPORTED = "NotSupported"

# Condition of a Machine that was told to join through a server which is lost. Its date counts for remediation.
JOIN_SERVER_EXISTS = "JoinServerExists"

# Condition of a Machine whose host on Harvester failed while its Node was not Ready; True again once the Node is.
HOST_READY = "HostReady"

# Condition of a Machine: whether the kernel of its Node has the module by which services get addresses by DHCP.
MACVLAN_AVAILABLE = "MacvlanAvailable"

# Ours, on guest Nodes.
APPLIED_REVISION = "windrow.io/applied-revision"
RESTORED_GENERATION = (
    "windrow.io/restored-generation"  # of Namespace kube-system of a guest: CLUSTER-UID/GENERATION
)
# It was cordoned for a turn or a host in maintenance, and is uncordoned afterwards as long as it has this.
CORDONED = "windrow.io/cordoned"

# Ours, on a Cluster: the image of the Job that changes a machine in place, where the sandbox image is not to be used.
UPDATE_IMAGE = "windrow.io/update-image"
# Ours, on a Deployment in the guest whose rollout stalled: its revision, and how many of its old pods were deleted for that.
STALLED_ROLLOUT = "windrow.io/stalled-rollout"
# Ours, on a Machine whose turn has failed: to be tried again.
RETRY_UPDATE = "windrow.io/retry-update"

# Ours, on a Secret: the namespaces whose Clusters may use it, with commas between; "*" allows all. Its own is always
# allowed.
ALLOWED_NAMESPACES = "windrow.io/allowed-namespaces"

# Rancher's, on Secrets and ConfigMaps: the Clusters beside them that may use them in `machineSelectorFiles`, with commas.
AUTHORIZED_CLUSTERS = "rke.cattle.io/object-authorized-for-clusters"

# Cluster API's and Rancher's, kept so that their users' habits work (reference/04 §1.4, §1.9).
DELETE_FIRST = "cluster.x-k8s.io/delete-machine"
REPLACE_NOW = "cluster.x-k8s.io/remediate-machine"
# On a Cluster, "true": volumes of the guest stay on Harvester when it is deleted. Rancher's (reference/03 §6.2).
SKIP_CLEANUP = "harvesterhci.io/skipHarvesterMachineProvisionCleanup"
MACHINE_REQUESTS = frozenset({DELETE_FIRST, REPLACE_NOW})  # annotations of one Machine
CLUSTER_NAME = "cluster.x-k8s.io/cluster-name"
RKE_CLUSTER_NAME = "rke.cattle.io/cluster-name"
POOL_NAME = "rke.cattle.io/rke-machine-pool-name"
ETCD_ROLE = "rke.cattle.io/etcd-role"
CONTROL_PLANE_ROLE = "rke.cattle.io/control-plane-role"
WORKER_ROLE = "rke.cattle.io/worker-role"
NODE_OS = "cattle.io/os"
# On guest Nodes: the uid of the Machine that this node is. Set by kubelet from the bootstrap's node-label.
NODE_MACHINE = "rke.cattle.io/machine"

# Kubernetes'.
MIRROR_POD = "kubernetes.io/config.mirror"
# Of the taint out-of-service: by it the manager knows which it has set, and may remove.
OUT_OF_SERVICE_VALUE = "nodeshutdown-by-windrow"

ETCD_VOTER = "EtcdIsVoter"  # a Node condition of RKE2 and K3s

# Keys of Secrets that users write.
CREDENTIAL_KEY = "harvestercredentialConfig-kubeconfigContent"
GUEST_CREDENTIAL_KEY = "credential"  # in the Secret that `cloud-provider-config: secret://…` names
KUBECONFIG_KEY = "value"


def secrets_name(cluster: str) -> str:
    """The Secret with the certificate authorities and tokens of a cluster."""
    return f"{cluster}-windrow-secrets"


def kubeconfig_name(cluster: str) -> str:
    """The Secret with the admin kubeconfig, where Rancher and Cluster API put it too."""
    return f"{cluster}-kubeconfig"
