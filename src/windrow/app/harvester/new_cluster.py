"""A new cluster from a few answers: its manifest, as a person would write it for Rancher.

One server has all roles. Several have etcd and the control plane, and workers run beside them; without workers, servers
take workloads, too.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from windrow.clusters.api.kinds import CLUSTER, HARVESTER_CONFIG
from windrow.clusters.api.names import ENDPOINT_IP_POOL, ENDPOINT_MODE
from windrow.core.formats.json import dumps
from windrow.kubernetes.objects import Raw, new_object

Distribution = Literal["rke2", "k3s"]

DEFAULT_VERSIONS: dict[str, str] = {"rke2": "v1.34.7+rke2r1", "k3s": "v1.34.7+k3s1"}
DEFAULT_SERVERS = 3

# The user that each maker of cloud images creates, by a word of the image's name.
_USERS = {
    "ubuntu": "ubuntu", "jammy": "ubuntu", "noble": "ubuntu", "debian": "debian", "bookworm": "debian",
    "leap": "opensuse", "opensuse": "opensuse", "tumbleweed": "opensuse", "sles": "sles", "rocky": "rocky",
    "alma": "almalinux", "centos": "cloud-user", "rhel": "cloud-user", "fedora": "fedora",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class NewCluster:
    """What is asked about a new cluster. Sizes are GiB; `image` and `network` are `NAMESPACE/NAME` on Harvester."""

    name: str
    namespace: str
    credential: str  # NAMESPACE:NAME of its Secret
    image: str
    network: str
    ssh_user: str
    distribution: Distribution = "rke2"
    version: str = ""
    servers: int = DEFAULT_SERVERS
    workers: int | None = None
    cpu: int = 4
    memory: int = 8
    disk: int = 40
    vm_namespace: str = "default"
    endpoint_pool: str = ""


def default_workers(servers: int) -> int:
    """How many workers stand beside so many servers."""
    return 0 if servers == 1 else 2


def guess_user(image: str) -> str:
    """The user whom an image of that name has; "" where the name says nothing."""
    words = image.lower()
    return next((user for word, user in _USERS.items() if word in words), "")


def render_manifest(asked: NewCluster) -> list[Raw]:
    """The HarvesterConfigs and the Cluster."""
    workers = default_workers(asked.servers) if asked.workers is None else asked.workers
    pools = {"servers": asked.servers, **({"workers": workers} if workers else {})}
    configs = [_config(asked, pool) for pool in pools]
    roles = {
        "servers": {"etcdRole": True, "controlPlaneRole": True, **({} if workers else {"workerRole": True})},
        "workers": {"workerRole": True},
    }
    machine_pools = [
        {
            "name": pool,
            "quantity": quantity,
            **roles[pool],
            "drainBeforeDelete": True,
            "machineConfigRef": {"kind": HARVESTER_CONFIG.kind, "name": _config_name(asked, pool)},
        }
        for pool, quantity in pools.items()
    ]
    spec = {
        "cloudCredentialSecretName": asked.credential,
        "kubernetesVersion": asked.version or DEFAULT_VERSIONS[asked.distribution],
        "rkeConfig": {"machineGlobalConfig": _global_config(asked), "machinePools": machine_pools},
    }
    endpoint = {ENDPOINT_MODE: "loadBalancer", ENDPOINT_IP_POOL: asked.endpoint_pool}
    cluster = new_object(
        CLUSTER, asked.name, asked.namespace, annotations=endpoint if asked.endpoint_pool else None, spec=spec
    )
    return [*configs, cluster]


def _global_config(asked: NewCluster) -> Raw:
    if asked.distribution == "k3s":  # which gets Harvester's cloud provider unasked
        return {"disable": ["traefik", "local-storage"]}
    return {"cni": "calico", "cloud-provider-name": "harvester"}


def _config_name(asked: NewCluster, pool: str) -> str:
    return f"nc-{asked.name}-{pool}"


def _config(asked: NewCluster, pool: str) -> Raw:
    disks = {"disks": [{"imageName": asked.image, "size": asked.disk, "bootOrder": 1}]}
    interfaces = {"interfaces": [{"networkName": asked.network}]}
    return new_object(
        HARVESTER_CONFIG,
        _config_name(asked, pool),
        asked.namespace,
        vmNamespace=asked.vm_namespace,
        cpuCount=str(asked.cpu),
        memorySize=str(asked.memory),
        diskInfo=dumps(disks).decode(),
        networkInfo=dumps(interfaces).decode(),
        sshUser=asked.ssh_user,
    )
