"""Labels, annotations, finalizers and fixed names of Harvester and KubeVirt, of the emulator.

Facts: reference 05 §2.1, §4 and §5. Not shared with `windrow.harvester` on purpose (see `kinds`).
"""

from __future__ import annotations

SYSTEM_NAMESPACE = "harvester-system"
VIP_CONFIG_MAP = "vip"
HARVESTER_DEPLOYMENT = "harvester"
INGRESS_SERVICE, TRAEFIK_SERVICE = "ingress-expose", "rke2-traefik"

# On virtual machines.
CLAIM_TEMPLATES = "harvesterhci.io/volumeClaimTemplates"
REMOVED_CLAIMS = "harvesterhci.io/removedPersistentVolumeClaims"
REMOVE_ALL_CLAIMS = "harvesterhci.io/removeAllPersistentVolumeClaims"
RUN_STRATEGY = "harvesterhci.io/vmRunStrategy"
RESERVED_MEMORY = "harvesterhci.io/reservedMemory"
MAC_ADDRESSES = "harvesterhci.io/mac-address"
HOTPLUG = "harvesterhci.io/enableCPUAndMemoryHotplug"
VM_IMPORT = "migration.harvesterhci.io/imported"
QUOTA_HALT = "harvesterhci.io/insufficient-resource-quota"
MAINTAIN_MODE = "harvesterhci.io/maintain-mode-strategy"
MAINTAIN_HOST = "harvesterhci.io/maintain-mode-strategy-node-name"
TOUCHED = "harvesterhci.io/timestamp"

# Storage of one host: its volumes stay where they were made.
LOCAL_PROVISIONERS = ("lvm.driver.harvesterhci.io", "kubernetes.io/no-provisioner", "rancher.io/local-path")

# On claims; Kubernetes' own, the first older than `storageClassName`.
SELECTED_NODE = "volume.kubernetes.io/selected-node"
PROVISIONERS = ("volume.beta.kubernetes.io/storage-provisioner", "volume.kubernetes.io/storage-provisioner")
BETA_CLASS = "volume.beta.kubernetes.io/storage-class"

CREATOR = "harvesterhci.io/creator"
NODE_DRIVER = "docker-machine-driver-harvester"

# On instances.
NODE_NAME = "kubevirt.io/nodeName"
MIGRATION_UID = "harvesterhci.io/migrationUID"
MIGRATION_STATE = "harvesterhci.io/migrationState"
REGION = "topology.kubernetes.io/region"
ZONE = "topology.kubernetes.io/zone"
HOSTNAME = "kubernetes.io/hostname"
TOPOLOGY = (ZONE, REGION, HOSTNAME)

# On volumes and images.
IMAGE_ID = "harvesterhci.io/imageId"
VOLUME_FOR_VM = "harvesterhci.io/volumeForVirtualMachine"
GOLDEN_IMAGE = "harvesterhci.io/goldenImage"
IMAGE_CLASS = "harvesterhci.io/storageClassName"
UPGRADE_IMAGE = "harvesterhci.io/os-upgrade-image"
IMAGE_DISPLAY_NAME = "harvesterhci.io/imageDisplayName"
IMAGE_TYPE = "harvesterhci.io/image-type"
DEFAULT_CLASS = "storageclass.kubernetes.io/is-default-class"
BETA_DEFAULT_CLASS = "storageclass.beta.kubernetes.io/is-default-class"

# On networks and hosts.
NETWORK_PREFIX = "network.harvesterhci.io"
CLUSTER_NETWORK = "network.harvesterhci.io/clusternetwork"
VLAN_ID = "network.harvesterhci.io/vlan-id"
NETWORK_TYPE = "network.harvesterhci.io/type"
NETWORK_READY = "network.harvesterhci.io/ready"
NETWORK_ROUTE = "network.harvesterhci.io/route"
CPU_MANAGER = "cpumanager"
CPU_MODEL_PREFIX = "cpu-model.node.kubevirt.io"
SCHEDULABLE = "kubevirt.io/schedulable"
HEARTBEAT = "kubevirt.io/heartbeat"
POWER = "emulator.windrow.io/power"  # ours: "off" cuts the power of the host
IPV6_PREFIX = "emulator.windrow.io/ipv6-prefix"  # ours: what the router of a VM network advertises
DRAIN_REQUESTED = "harvesterhci.io/drain-requested"
DRAIN_FORCED = "harvesterhci.io/drain-forced"
MAINTAIN_STATUS = "harvesterhci.io/maintain-status"

# Finalizers.
CLEANUP_FINALIZER = "wrangler.cattle.io/VMController.CleanupPVCAndSnapshot"
BACKEND_FINALIZER = "wrangler.cattle.io/VMController.ReconcileBackendStorageClone"
LB_FINALIZER = "wrangler.cattle.io/harvester-lb-vm-controller"
VM_FINALIZER = "kubevirt.io/virtualMachineControllerFinalize"
VMI_FINALIZER = "kubevirt.io/foregroundDeleteVirtualMachine"
FOREGROUND = "foregroundDeletion"

# Components of the control plane, as `reportingComponent` of events.
VIRT_CONTROLLER = "virtualmachine-controller"
VIRT_HANDLER = "virt-handler"
HARVESTER_CONTROLLER = "harvester-vm-controller"

# Rancher's quota of a namespace.
DEFAULT_QUOTA = "resourcequota.management.cattle.io/default-resource-quota"
