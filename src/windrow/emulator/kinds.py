"""The kinds that a Harvester cluster serves beyond the built-in ones.

The emulator has its own table on purpose: products have theirs in `harvester.kinds`, and a mistake in one of the
two results in a 404.
"""

from __future__ import annotations

from windrow.kubernetes.resources import ApiResource

VM = ApiResource("kubevirt.io", "v1", "VirtualMachine", "virtualmachines")
VMI = ApiResource("kubevirt.io", "v1", "VirtualMachineInstance", "virtualmachineinstances")
MIGRATION = ApiResource(
    "kubevirt.io", "v1", "VirtualMachineInstanceMigration", "virtualmachineinstancemigrations"
)
KUBEVIRT = ApiResource("kubevirt.io", "v1", "KubeVirt", "kubevirts")

# The aggregated API whose "objects" are the VMs above and whose subresources are start, stop, restart, …
VM_SUBRESOURCES = ApiResource("subresources.kubevirt.io", "v1", "VirtualMachine", "virtualmachines")
VMI_SUBRESOURCES = ApiResource(
    "subresources.kubevirt.io", "v1", "VirtualMachineInstance", "virtualmachineinstances"
)

IMAGE = ApiResource("harvesterhci.io", "v1beta1", "VirtualMachineImage", "virtualmachineimages")
KEY_PAIR = ApiResource("harvesterhci.io", "v1beta1", "KeyPair", "keypairs")
SETTING = ApiResource("harvesterhci.io", "v1beta1", "Setting", "settings", namespaced=False)
UPGRADE = ApiResource("harvesterhci.io", "v1beta1", "Upgrade", "upgrades")
SNAPSHOT_QUOTA = ApiResource("harvesterhci.io", "v1beta1", "ResourceQuota", "resourcequotas")
TEMPLATE = ApiResource("harvesterhci.io", "v1beta1", "VirtualMachineTemplate", "virtualmachinetemplates")
TEMPLATE_VERSION = ApiResource(
    "harvesterhci.io", "v1beta1", "VirtualMachineTemplateVersion", "virtualmachinetemplateversions"
)

NAD = ApiResource("k8s.cni.cncf.io", "v1", "NetworkAttachmentDefinition", "network-attachment-definitions")
CLUSTER_NETWORK = ApiResource(
    "network.harvesterhci.io", "v1beta1", "ClusterNetwork", "clusternetworks", namespaced=False
)

PV = ApiResource("", "v1", "PersistentVolume", "persistentvolumes", namespaced=False)
LONGHORN_VOLUME = ApiResource("longhorn.io", "v1beta2", "Volume", "volumes")

SNAPSHOT = ApiResource("snapshot.storage.k8s.io", "v1", "VolumeSnapshot", "volumesnapshots")
SNAPSHOT_CONTENT = ApiResource(
    "snapshot.storage.k8s.io", "v1", "VolumeSnapshotContent", "volumesnapshotcontents", namespaced=False
)
REMOTE_BACKUP = ApiResource("harvesterhci.io", "v1beta1", "VolumeRemoteBackup", "volumeremotebackups")
REMOTE_RESTORE = ApiResource("harvesterhci.io", "v1beta1", "VolumeRemoteRestore", "volumeremoterestores")
VM_BACKUP = ApiResource("harvesterhci.io", "v1beta1", "VirtualMachineBackup", "virtualmachinebackups")
VM_RESTORE = ApiResource("harvesterhci.io", "v1beta1", "VirtualMachineRestore", "virtualmachinerestores")
NETWORK_FILE_SYSTEM = ApiResource("harvesterhci.io", "v1beta1", "NetworkFilesystem", "networkfilesystems")
SNAPSHOT_CLASS = ApiResource(
    "snapshot.storage.k8s.io", "v1", "VolumeSnapshotClass", "volumesnapshotclasses", namespaced=False
)

LOAD_BALANCER = ApiResource("loadbalancer.harvesterhci.io", "v1beta1", "LoadBalancer", "loadbalancers")
IP_POOL = ApiResource("loadbalancer.harvesterhci.io", "v1beta1", "IPPool", "ippools", namespaced=False)

QUOTA = ApiResource("", "v1", "ResourceQuota", "resourcequotas")
