"""The kinds of object that a Harvester serves beyond those of plain Kubernetes."""

from __future__ import annotations

from windrow.kube.refs import Kind

VM = Kind("kubevirt.io", "v1", "VirtualMachine", "virtualmachines")
VMI = Kind("kubevirt.io", "v1", "VirtualMachineInstance", "virtualmachineinstances")
MIGRATION = Kind("kubevirt.io", "v1", "VirtualMachineInstanceMigration", "virtualmachineinstancemigrations")

# Start, stop, restart and their like are verbs of a group of its own: PUT <ref>/start.
VM_ACTIONS = Kind("subresources.kubevirt.io", "v1", "VirtualMachine", "virtualmachines")
VMI_ACTIONS = Kind("subresources.kubevirt.io", "v1", "VirtualMachineInstance", "virtualmachineinstances")

IMAGE = Kind("harvesterhci.io", "v1beta1", "VirtualMachineImage", "virtualmachineimages")
KEY_PAIR = Kind("harvesterhci.io", "v1beta1", "KeyPair", "keypairs")
SETTING = Kind("harvesterhci.io", "v1beta1", "Setting", "settings", namespaced=False)
NETWORK = Kind("k8s.cni.cncf.io", "v1", "NetworkAttachmentDefinition", "network-attachment-definitions")
LOAD_BALANCER = Kind("loadbalancer.harvesterhci.io", "v1beta1", "LoadBalancer", "loadbalancers")
IP_POOL = Kind("loadbalancer.harvesterhci.io", "v1beta1", "IPPool", "ippools", namespaced=False)
