"""The kinds that a Harvester cluster serves beyond the built-in ones.

The emulator has its own table on purpose: products have theirs in `harvester.kinds`, and a slip in one of the two
shows as a 404.
"""

from __future__ import annotations

from windrow.kube.refs import Kind

VM = Kind("kubevirt.io", "v1", "VirtualMachine", "virtualmachines")
VMI = Kind("kubevirt.io", "v1", "VirtualMachineInstance", "virtualmachineinstances")
MIGRATION = Kind("kubevirt.io", "v1", "VirtualMachineInstanceMigration", "virtualmachineinstancemigrations")
KUBEVIRT = Kind("kubevirt.io", "v1", "KubeVirt", "kubevirts")

# The aggregated API whose "objects" are the VMs above and whose subresources are orders.
VM_ORDERS = Kind("subresources.kubevirt.io", "v1", "VirtualMachine", "virtualmachines")
VMI_ORDERS = Kind("subresources.kubevirt.io", "v1", "VirtualMachineInstance", "virtualmachineinstances")

IMAGE = Kind("harvesterhci.io", "v1beta1", "VirtualMachineImage", "virtualmachineimages")
KEY_PAIR = Kind("harvesterhci.io", "v1beta1", "KeyPair", "keypairs")
SETTING = Kind("harvesterhci.io", "v1beta1", "Setting", "settings", namespaced=False)
SNAPSHOT_QUOTA = Kind("harvesterhci.io", "v1beta1", "ResourceQuota", "resourcequotas")
TEMPLATE = Kind("harvesterhci.io", "v1beta1", "VirtualMachineTemplate", "virtualmachinetemplates")
TEMPLATE_VERSION = Kind(
    "harvesterhci.io", "v1beta1", "VirtualMachineTemplateVersion", "virtualmachinetemplateversions"
)

NAD = Kind("k8s.cni.cncf.io", "v1", "NetworkAttachmentDefinition", "network-attachment-definitions")
CLUSTER_NETWORK = Kind(
    "network.harvesterhci.io", "v1beta1", "ClusterNetwork", "clusternetworks", namespaced=False
)

LOAD_BALANCER = Kind("loadbalancer.harvesterhci.io", "v1beta1", "LoadBalancer", "loadbalancers")
IP_POOL = Kind("loadbalancer.harvesterhci.io", "v1beta1", "IPPool", "ippools", namespaced=False)

QUOTA = Kind("", "v1", "ResourceQuota", "resourcequotas")
