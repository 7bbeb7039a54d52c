"""The kinds of object that a Harvester serves beyond those of plain Kubernetes."""

from __future__ import annotations

from windrow.kubernetes.resources import ApiResource

VM = ApiResource("kubevirt.io", "v1", "VirtualMachine", "virtualmachines")
VMI = ApiResource("kubevirt.io", "v1", "VirtualMachineInstance", "virtualmachineinstances")

# Start, stop, restart and their like are verbs of a group of its own: PUT <ref>/start.
VM_ACTIONS = ApiResource("subresources.kubevirt.io", "v1", "VirtualMachine", "virtualmachines")
VMI_ACTIONS = ApiResource(
    "subresources.kubevirt.io", "v1", "VirtualMachineInstance", "virtualmachineinstances"
)

IMAGE = ApiResource("harvesterhci.io", "v1beta1", "VirtualMachineImage", "virtualmachineimages")
KEY_PAIR = ApiResource("harvesterhci.io", "v1beta1", "KeyPair", "keypairs")
NETWORK = ApiResource(
    "k8s.cni.cncf.io", "v1", "NetworkAttachmentDefinition", "network-attachment-definitions"
)
SETTING = ApiResource("harvesterhci.io", "v1beta1", "Setting", "settings", namespaced=False)
LOAD_BALANCER = ApiResource("loadbalancer.harvesterhci.io", "v1beta1", "LoadBalancer", "loadbalancers")
IP_POOL = ApiResource("loadbalancer.harvesterhci.io", "v1beta1", "IPPool", "ippools", namespaced=False)

# Served where the CSI snapshotter is installed, which Harvester brings.
VOLUME_SNAPSHOT = ApiResource("snapshot.storage.k8s.io", "v1", "VolumeSnapshot", "volumesnapshots")
VOLUME_SNAPSHOT_CONTENT = ApiResource(
    "snapshot.storage.k8s.io", "v1", "VolumeSnapshotContent", "volumesnapshotcontents"
)

# Served from Harvester 1.8 on: backups of volumes on the backup target, and restores from them.
REMOTE_BACKUP = ApiResource("harvesterhci.io", "v1beta1", "VolumeRemoteBackup", "volumeremotebackups")
REMOTE_RESTORE = ApiResource("harvesterhci.io", "v1beta1", "VolumeRemoteRestore", "volumeremoterestores")

# Served from Harvester 1.4 on, in harvester-system: a volume that several machines mount over the network.
NETWORK_FILESYSTEM = ApiResource("harvesterhci.io", "v1beta1", "NetworkFilesystem", "networkfilesystems")

# Harvester's own upgrades, in harvester-system.
UPGRADE = ApiResource("harvesterhci.io", "v1beta1", "Upgrade", "upgrades")
