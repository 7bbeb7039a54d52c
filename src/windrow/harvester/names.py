"""Every label and annotation of Harvester that Windrow reads or writes, with its history; and Windrow's own.

Other programs act on these keys (Harvester's controllers and screens, Rancher's clean-up, the cloud provider), so
the spelling is a contract. Keys that start with `windrow.io/` are read by Windrow only.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping
from typing import Literal

# On VMs and on their templates. Only template labels reach the VMI and its pod, so both carry all of them.
CREATOR = "harvesterhci.io/creator"
# Harvester copies host topology to a VMI, and the cloud provider watches it, only when the creator has this value.
CREATOR_NODE_DRIVER = "docker-machine-driver-harvester"
VM_NAME = "harvesterhci.io/vmName"
# Since driver v0.6.6 with an affinity, since v1.0.3 always. The anti-affinity of a pool selects on it.
MACHINE_SET = "harvesterhci.io/machineSetName"
# Since driver v1.0.2. Must equal the cloud provider's --cluster-name, or Harvester's clean-up finds nothing.
GUEST_CLUSTER = "guestcluster.harvesterhci.io/name"
# Since driver v1.0.3; it keeps the machine set's random part (`pool1-abcde`).
NODE_POOL = "nodepool.harvesterhci.io/name"

# On VMs.
CLAIM_TEMPLATES = "harvesterhci.io/volumeClaimTemplates"
RESERVED_MEMORY = "harvesterhci.io/reservedMemory"
REMOVED_CLAIMS = "harvesterhci.io/removedPersistentVolumeClaims"
# Written by the cluster manager when the whole cluster goes; honoured since driver v0.7.2, and by Harvester's
# load balancer controller since v1.8.0.
REMOVE_ALL_CLAIMS = "harvesterhci.io/removeAllPersistentVolumeClaims"
HALTED_BY_QUOTA = "harvesterhci.io/insufficient-resource-quota"
# Set by Harvester when an instance of the VM runs, and kept.
MAC_ADDRESSES = "harvesterhci.io/mac-address"
# Set by Harvester on a VM that it made or rewrote from a backup, and kept.
LAST_RESTORE = "restore.harvesterhci.io/last-restore-uid"

# On VM templates.
SSH_NAMES = "harvesterhci.io/sshNames"
WAIT_FOR_LEASE = "harvesterhci.io/waitForLeaseInterfaceNames"

# On claims.
IMAGE_ID = "harvesterhci.io/imageId"
# Which VMs have the claim among their volumes, as JSON; kept by Harvester.
OWNED_BY = "harvesterhci.io/owned-by"

# On images. Set by Harvester's UI; may be missing or empty.
IMAGE_TYPE = "harvesterhci.io/image-type"

# On networks.
NETWORK_READY = "network.harvesterhci.io/ready"
CLUSTER_NETWORK = "network.harvesterhci.io/clusternetwork"
# On a network: its subnet and gateway, as JSON. By its user, or by a helper job that asked DHCP.
NETWORK_ROUTE = "network.harvesterhci.io/route"
STORAGE_NETWORK = "storage-network.settings.harvesterhci.io"

# On storage classes.
# In which modes claims of a class can be made, as JSON: `{"Block":["ReadWriteMany"]}`; Harvester wants it on classes
# that are not Longhorn's.
CLAIM_MODES = "cdi.harvesterhci.io/storageProfileVolumeModeAccessModes"

# On host nodes as labels, and on VMIs of our creator as annotations with the same keys.
ZONE = "topology.kubernetes.io/zone"
REGION = "topology.kubernetes.io/region"

# On load balancers that a guest's cloud provider creates: the labels of cluster and Service.
LB_OF_CLUSTER = "cloudprovider.harvesterhci.io/cluster"
LB_OF_NAMESPACE = "cloudprovider.harvesterhci.io/serviceNamespace"
LB_OF_SERVICE = "cloudprovider.harvesterhci.io/serviceName"
# On IPPools: of the one that every load balancer may have an address of. Set by Harvester's webhook.
GLOBAL_IP_POOL = "loadbalancer.harvesterhci.io/global-ip-pool"
# Ours, an annotation: the guest cluster that had it made, whatever that is called. It is the uid of the guest's own
# service `default/kubernetes`: every cluster has it, a restored one keeps it, and reading it needs no
# right.
GUEST_UID = "windrow.io/guest-uid"

# Ours, a label of what a CSI driver has made, with the driver's name as its value. Windrow's lists and its report of orphans
# select on it, and a claim that has it and GUEST_UID is proven to be that guest's.
MADE_BY_CSI = "windrow.io/csi-driver"
# The name of the CSI driver, the Go one and ours, in StorageClasses, PersistentVolumes and VolumeAttachments.
CSI_DRIVER = "driver.harvesterhci.io"

# Windrow's own: the owner of an object. On VMs, VM templates, claim templates and cloud-init Secrets, as annotations.
CLUSTER_UID = "windrow.io/cluster-uid"
MACHINE_UID = "windrow.io/machine-uid"
# On what `windrow addon` makes: a label, and an annotation with NAMESPACE/NAME of the ServiceAccount whose object it is.
MADE_BY = "windrow.io/made-by"
ADDON_ACCOUNT = "windrow.io/addon-account"
# An annotation on VMs: the fingerprint of the SSH key in the machine's record, which every driver keeps.
SSH_KEY = "windrow.io/ssh-key"

# A label of guest Nodes: whether the kernel has the module, as the machine saw it at its last boot
# (`bootstrap.install.kernel_probe`). Without it, or with another value, nothing is known.
MacvlanState = Literal["available", "missing", ""]
MACVLAN = "windrow.io/macvlan"
MACVLAN_AVAILABLE: MacvlanState = "available"
MACVLAN_MISSING: MacvlanState = "missing"

_LABEL_VALUE = re.compile(r"([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?")


def is_label_value(text: str) -> bool:
    """Whether an API server takes `text` as a label value; the empty text is one."""
    return _LABEL_VALUE.fullmatch(text) is not None


def label_value(value: str) -> str:
    """`value` where it is a legal label value, else a short hash of it: `hash_FR_ghQ_z`.

    The driver does so for the machine set since v0.7.2; we do it for the cluster and pool labels too, which it
    sends as they are and has refused.
    """
    if is_label_value(value):
        return value
    digest = 0x811C9DC5  # FNV-1a, 32 bits
    for byte in value.encode():
        digest = (digest ^ byte) * 0x01000193 & 0xFFFFFFFF
    text = base64.urlsafe_b64encode(digest.to_bytes(4, "big")).decode().rstrip("=")
    return f"hash_{text}_z"


def machine_set_label(namespace: str, machine: str) -> str:
    """The value of MACHINE_SET: namespace and machine name without the two random parts at its end.

    A name with fewer than two dashes has no such parts and stays whole; the Go driver would drop the name, or the
    namespace as well, and so put unrelated machines into one set.
    """
    parts = machine.split("-")
    stem = "-".join(parts[:-2]) if len(parts) > 2 else machine
    return label_value(f"{namespace}-{stem}")


def pool_label(cluster: str, machine: str) -> str:
    """The value of NODE_POOL: the machine name without the cluster in front and the last part behind."""
    stem = machine.rpartition("-")[0] or machine
    return label_value(stem.removeprefix(cluster).lstrip("-"))


def read_macvlan(labels: Mapping[str, str]) -> MacvlanState:
    """Whether the kernel of a Node has `macvlan`; "" where that is not known."""
    match labels.get(MACVLAN):
        case "available":
            return MACVLAN_AVAILABLE
        case "missing":
            return MACVLAN_MISSING
        case _:
            return ""
