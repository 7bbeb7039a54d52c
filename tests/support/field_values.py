"""Another value of each field that changes something, for tests of what a change means and of what it does.

Each is one that a cluster on the emulator can have. A field that is new needs its row here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from windrow.clusters.change.fields import POOL

CERTIFICATE = "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n"
MANIFEST = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: site, namespace: default}\ndata: {a: b}\n"
FILE = {
    "secret": {"name": "site-files", "items": [{"key": "motd", "path": "/etc/motd"}]},
}
DISK = {"imageName": "default/jammy", "size": 40, "bootOrder": 1}
ADDRESS_POOL = {
    "network": "default/vlan-60",
    "addresses": ["192.168.50.100-192.168.50.109"],
    "prefix": 24,
    "gateway": "192.168.50.1",
    "nameservers": ["192.168.50.1"],
}
GLOBAL = {"cni": "calico", "cloud-provider-name": "harvester"}

# Another value of each field of a Cluster; `[]` is its second pool, of workers.
FIELDS: Mapping[str, Any] = {
    "spec.agentEnvVars": [{"name": "NO_PROXY", "value": "10.0.0.0/8"}],
    "spec.cloudCredentialSecretName": "cattle-global-data:cc-other",
    "spec.defaultPodSecurityAdmissionConfigurationTemplateName": "rancher-privileged",
    "spec.kubernetesVersion": "v1.35.4+rke2r1",
    "spec.localClusterAuthEndpoint": {"enabled": True, "fqdn": "api.example.org"},
    "spec.localClusterAuthEndpoint.caCerts": CERTIFICATE,
    "spec.paused": True,
    "spec.rkeConfig.additionalManifest": MANIFEST,
    "spec.rkeConfig.chartValues": {"harvester-csi-driver": {"replicas": 2}},
    "spec.rkeConfig.dataDirectories.k8sDistro": "/data",
    "spec.rkeConfig.etcd": {"snapshotRetention": 7},
    "spec.rkeConfig.etcdSnapshotCreate": {"generation": 1},
    "spec.rkeConfig.machineGlobalConfig": {**GLOBAL, "kubelet-arg": ["max-pods=99"]},
    "spec.rkeConfig.machineSelectorConfig": [{"config": {"debug": True}}],
    "spec.rkeConfig.machineSelectorFiles": [{"fileSources": [FILE]}],
    "spec.rkeConfig.machinePoolDefaults.hostnameLengthLimit": 40,
    "spec.rkeConfig.networking.stackPreference": "ipv4",
    "spec.rkeConfig.provisionGeneration": 1,
    "spec.rkeConfig.registries": {"mirrors": {"docker.io": {"endpoint": ["https://mirror.example"]}}},
    "spec.rkeConfig.rotateCertificates": {"generation": 1},
    "spec.rkeConfig.rotateEncryptionKeys": {"generation": 1},
    "spec.rkeConfig.rotateToken": {"generation": 1},
    "spec.rkeConfig.upgradeStrategy": {"workerConcurrency": "2"},
    f"{POOL}.cloudCredentialSecretName": "cattle-global-data:cc-third",
    f"{POOL}.controlPlaneRole": True,
    f"{POOL}.etcdRole": True,
    f"{POOL}.workerRole": False,
    f"{POOL}.drainBeforeDelete": True,
    f"{POOL}.drainBeforeDeleteTimeout": "5m",
    f"{POOL}.hostnameLengthLimit": 40,
    f"{POOL}.labels": {"tier": "web"},
    f"{POOL}.machineDeploymentAnnotations": {"a": "b"},
    f"{POOL}.machineDeploymentLabels": {"a": "b"},
    f"{POOL}.machineConfigRef.name": "nc-others",
    f"{POOL}.machineConfigRef.namespace": "other",
    f"{POOL}.machineOS": "windows",
    f"{POOL}.maxUnhealthy": "50%",
    f"{POOL}.name": "agents",
    f"{POOL}.nodeStartupTimeout": "20m",
    f"{POOL}.paused": True,
    f"{POOL}.quantity": 2,
    f"{POOL}.rollingUpdate": {"maxSurge": "2"},
    f"{POOL}.taints": [{"key": "a", "value": "b", "effect": "PreferNoSchedule"}],
    f"{POOL}.unhealthyNodeTimeout": "6m",
    f"{POOL}.unhealthyRange": "[1-2]",
}

# Another value of each option of the node driver that works.
OPTION_VALUES: Mapping[str, Any] = {
    "cpuCount": "4",
    "memorySize": "8",
    "vmAffinity": {"nodeAffinity": {}},
    "cpuPinning": True,
    "isolateEmulatorThread": True,
    "reservedMemorySize": "256",
    "cpuModel": "host-model",
    "diskInfo": {"disks": [{**DISK, "imageName": "default/noble"}]},
    "networkInfo": {"interfaces": [{"networkName": "default/vlan-60"}]},
    "diskSize": "39",
    "diskBus": "sata",
    "imageName": "default/noble",
    "networkName": "default/vlan-60",
    "networkModel": "e1000",
    "sshUser": "opensuse",
    "sshPassword": "hunter2",
    "keyPairName": "default/mine",
    "userData": "#cloud-config\npackages: [vim]\n",
    "networkData": "version: 2\nethernets: {enp1s0: {dhcp4: true}}\n",
    "enableEfi": True,
    "enableSecureBoot": True,
    "enableTpm": True,
    "vgpuInfo": {"vGPURequests": [{"name": "a", "deviceName": "nvidia.com/A2-4Q"}]},
    "addressPools": [ADDRESS_POOL],
    "vmNamespace": "other",
}
