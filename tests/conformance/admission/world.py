"""The cluster in which requests are judged: an emulated Harvester with machines, volumes and networks in several states.

Nothing changes while requests are put: each is a dry run, on the emulator and on the reference program alike.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from tests.blank_machine import BlankMachine
from tests.support.clock import LoopClock

from windrow.core.formats.json import dumps
from windrow.core.rng import Rng
from windrow.emulator import kinds
from windrow.emulator.harvester import Harvester
from windrow.emulator.preload import Image, KeyPair, VmNetwork
from windrow.kubernetes import resources
from windrow.kubernetes.objects import Raw
from windrow.kubernetes.resources import ApiResource

Key = tuple[str, str, str]  # kind, namespace ("" for kinds without), name

# What the caches of the webhooks are filled with.
DUMPED: tuple[ApiResource, ...] = (
    kinds.VM,
    kinds.VMI,
    kinds.MIGRATION,
    kinds.KUBEVIRT,
    kinds.IMAGE,
    kinds.KEY_PAIR,
    kinds.SETTING,
    kinds.SNAPSHOT_QUOTA,
    kinds.TEMPLATE,
    kinds.TEMPLATE_VERSION,
    kinds.NAD,
    kinds.CLUSTER_NETWORK,
    kinds.LOAD_BALANCER,
    kinds.IP_POOL,
    kinds.QUOTA,
    resources.NAMESPACE,
    resources.NODE,
    resources.PVC,
    resources.SECRET,
    resources.STORAGE_CLASS,
)


@dataclass(frozen=True, slots=True)
class ClusterDump:
    """The objects of the cluster and its CustomResourceDefinitions, as the reference program takes them."""

    objects: dict[Key, Raw]
    definitions: tuple[Raw, ...]

    def get(self, kind: ApiResource, name: str, namespace: str = "default") -> Raw:
        return self.objects[kind.kind, namespace if kind.namespaced else "", name]


def a_claim_template(name: str, storage_class: str = "harvester-longhorn", **metadata: Any) -> Raw:
    return {
        "metadata": {"name": name, **metadata},
        "spec": {
            "accessModes": ["ReadWriteMany"],
            "resources": {"requests": {"storage": "10Gi"}},
            "storageClassName": storage_class,
            "volumeMode": "Block",
        },
    }


def a_vm(name: str, *templates: Raw, strategy: str = "RerunOnFailure", **spec: Any) -> Raw:
    """A valid VM as the node driver makes them: a disk, a card, cloud-init; `spec` replaces fields of the template."""
    claim = f"{name}-disk-0"
    templates = templates or (a_claim_template(claim),)
    labels = {"harvesterhci.io/creator": "docker-machine-driver-harvester", "harvesterhci.io/vmName": name}
    return {
        "apiVersion": "kubevirt.io/v1",
        "kind": "VirtualMachine",
        "metadata": {
            "name": name,
            "namespace": "default",
            "labels": labels,
            "annotations": {"harvesterhci.io/volumeClaimTemplates": dumps(list(templates)).decode()},
        },
        "spec": {
            "runStrategy": strategy,
            "template": {
                "metadata": {"labels": labels},
                "spec": {
                    "domain": {
                        "cpu": {"cores": 2, "sockets": 1, "threads": 1},
                        "resources": {"limits": {"cpu": "2", "memory": "4Gi"}},
                        "devices": {
                            "disks": [
                                {"name": "disk-0", "disk": {"bus": "virtio"}, "bootOrder": 1},
                                {"name": "cloudinitdisk", "disk": {"bus": "virtio"}},
                            ],
                            "interfaces": [{"name": "nic-0", "model": "virtio", "bridge": {}}],
                        },
                    },
                    "networks": [{"name": "nic-0", "multus": {"networkName": "default/vlan50"}}],
                    "volumes": [
                        {"name": "disk-0", "persistentVolumeClaim": {"claimName": claim}},
                        {"name": "cloudinitdisk", "cloudInitNoCloud": {"userData": "#cloud-config\n"}},
                    ],
                    **spec,
                },
            },
        },
    }


def template_vm() -> Raw:
    """The VM in a template version."""
    vm = a_vm("web")
    return {"metadata": {"annotations": vm["metadata"]["annotations"]}, "spec": vm["spec"]}


def a_volume(
    name: str, namespace: str = "default", annotations: dict[str, str] | None = None, **spec: Any
) -> Raw:
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": name, "namespace": namespace, "annotations": annotations or {}},
        "spec": {**a_claim_template(name)["spec"], **spec},
    }


def a_secret(name: str, **data: str) -> Raw:
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": name, "namespace": "default"},
        "stringData": data or {"userdata": "#cloud-config\n"},
    }


CRYPTO = {
    "CRYPTO_KEY_CIPHER": "aes-xts-plain64",
    "CRYPTO_KEY_HASH": "sha256",
    "CRYPTO_KEY_PROVIDER": "secret",
    "CRYPTO_KEY_SIZE": "256",
    "CRYPTO_KEY_VALUE": "a passphrase",
    "CRYPTO_PBKDF": "argon2i",
}


def an_object(kind: ApiResource, name: str, spec: Any, namespace: str = "default") -> Raw:
    metadata = {"name": name, "namespace": namespace} if kind.namespaced else {"name": name}
    return {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": metadata, "spec": spec}


def an_image(name: str, **spec: Any) -> Raw:
    url = (
        {}
        if "sourceType" in spec
        else {"sourceType": "download", "url": f"https://images.example/{name}.img"}
    )
    return an_object(kinds.IMAGE, name, {"displayName": name, **url, **spec})


def a_storage_class(name: str, **fields: Any) -> Raw:
    return {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {"name": name},
        "provisioner": "driver.longhorn.io",
        "parameters": {"migratable": "true", "numberOfReplicas": "3", "staleReplicaTimeout": "30"},
        "reclaimPolicy": "Delete",
        "volumeBindingMode": "Immediate",
        "allowVolumeExpansion": True,
        **fields,
    }


def encryption(secret: str, namespace: str = "default") -> dict[str, str]:
    """The parameters of an encrypted StorageClass."""
    roles = ("provisioner", "node-publish", "node-stage")
    return {
        "encrypted": "true",
        "migratable": "true",
        "numberOfReplicas": "3",
        "staleReplicaTimeout": "30",
        **{f"csi.storage.k8s.io/{role}-secret-name": secret for role in roles},
        **{f"csi.storage.k8s.io/{role}-secret-namespace": namespace for role in roles},
    }


def a_network(name: str, vlan: int, type: str = "L2VlanNetwork", **config: Any) -> Raw:
    given = {
        "cniVersion": "0.3.1",
        "name": name,
        "type": "bridge",
        "bridge": "mgmt-br",
        "promiscMode": True,
        **({"vlan": vlan} if vlan else {}),
        "ipam": {},
        **config,
    }
    raw = an_object(kinds.NAD, name, {"config": dumps(given).decode()})
    raw["metadata"]["labels"] = {
        "network.harvesterhci.io/clusternetwork": "mgmt",
        "network.harvesterhci.io/type": type,
        **({"network.harvesterhci.io/vlan-id": str(vlan)} if vlan else {}),
    }
    return raw


_VOLUMES: dict[str, Any] = {
    "golden": {"annotations": {"harvesterhci.io/goldenImage": "true"}},
    "static": {"storageClassName": "longhorn-static", "volumeName": "pv-static"},
}


# That the emulator knows when they are there.
_SETTINGS = {
    "support-bundle-expiration": "30",
    "support-bundle-node-collection-timeout": "30",
    "support-bundle-file-name": "",
    "auto-rotate-rke2-certs": '{"enable":false,"expiringInHours":240}',
    "ssl-parameters": "{}",
    "ntp-servers": "",
}


def _contents() -> Iterable[tuple[ApiResource, Raw]]:
    """Beyond what `preload` makes: machines and volumes in the states that rules ask about."""
    for name in ("fast-default", "expandable"):
        yield resources.STORAGE_CLASS, a_storage_class(name)
    yield kinds.VM, a_vm("running")
    for name, strategy in (
        ("stopped", "Halted"),
        ("manual", "Manual"),
        ("always", "Always"),
        ("once", "Once"),
    ):
        yield kinds.VM, a_vm(name, strategy=strategy)
    for name in ("free", "source", "golden", "static"):
        yield resources.PVC, a_volume(name, **_VOLUMES.get(name, {}))
    for name in ("cloud-init", "unused"):
        yield resources.SECRET, a_secret(name)
    yield resources.SECRET, a_secret("encryption", **CRYPTO)
    # Of several fields that miss, the real validator names any.
    weak = {key: text for key, text in CRYPTO.items() if key != "CRYPTO_KEY_SIZE"}
    yield resources.SECRET, a_secret("weak", **weak)
    yield resources.STORAGE_CLASS, a_storage_class("encrypted", parameters=encryption("encryption"))
    yield (
        kinds.IMAGE,
        an_image("exported", sourceType="export-from-volume", pvcName="source", pvcNamespace="default"),
    )
    for name, default in _SETTINGS.items():
        metadata = {"metadata": {"name": name}, "default": default}
        yield kinds.SETTING, {"apiVersion": kinds.SETTING.api_version, "kind": "Setting", **metadata}
    yield kinds.TEMPLATE, an_object(kinds.TEMPLATE, "web", {"description": "web"})
    yield (
        kinds.TEMPLATE_VERSION,
        an_object(kinds.TEMPLATE_VERSION, "web-1", {"templateId": "default/web", "vm": template_vm()}),
    )
    hard = {
        "limits.cpu": "4",
        "limits.memory": "8Gi",
        "requests.storage": "50Gi",
        "persistentvolumeclaims": "2",
    }
    yield kinds.QUOTA, {**an_object(kinds.QUOTA, "default-quota", {"hard": hard}, "tenant")}
    counts = {
        "secrets": "0", "count/secrets": "5", "count/keypairs.harvesterhci.io": "0", "pods": "3", "services": "1",
        "count/virtualmachines.kubevirt.io": "0", "persistentvolumeclaims": "0",
    }  # fmt: skip
    yield kinds.QUOTA, an_object(kinds.QUOTA, "counts", {"hard": counts}, "limited")
    yield kinds.IP_POOL, a_pool("office", "10.1.0.0/24", "default")
    yield kinds.LOAD_BALANCER, a_balancer("web")
    yield kinds.NAD, a_network("idle", 70)
    yield kinds.NAD, a_network("untagged", 0, type="UntaggedNetwork")
    routed = a_network("routed", 71)
    route = (
        '{"mode":"auto","cidr":"10.71.0.0/24","gateway":"10.71.0.1","serverIPAddr":"","connectivity":"true"}'
    )
    routed["metadata"]["annotations"] = {"network.harvesterhci.io/route": route}
    yield kinds.NAD, routed


def a_balancer(name: str, **spec: Any) -> Raw:
    listener = {"name": "http", "port": 80, "backendPort": 8080, "protocol": "TCP"}
    given = {"ipam": "pool", "ipPool": "office", "workloadType": "vm", "listeners": [listener]}
    return an_object(kinds.LOAD_BALANCER, name, {**given, "backendServerSelector": {"app": ["web"]}, **spec})


def a_pool(name: str, subnet: str, namespace: str) -> Raw:
    selector = {"scope": [{"project": "*", "namespace": namespace, "guestCluster": "*"}]}
    return an_object(kinds.IP_POOL, name, {"ranges": [{"subnet": subnet}], "selector": selector})


@asynccontextmanager
async def a_harvester(release: str) -> AsyncIterator[Harvester]:
    """An emulated Harvester of the release, with all that `_contents` lists, at rest, until the block ends."""
    harvester = Harvester(
        LoopClock(),
        Rng(11),
        machine_factory=lambda hardware, host: BlankMachine(hardware, host, agent=True),
        version=release,
    )
    async with asyncio.TaskGroup() as tasks:
        running = tasks.create_task(harvester.run())
        await harvester.preload(
            images=[Image("default/jammy"), Image("harvester-public/noble")],
            networks=[VmNetwork("default/vlan50", vlan=50), VmNetwork("tenant/vlan60", vlan=60)],
            key_pairs=[KeyPair("default/key")],
            namespaces=["tenant", "limited"],
            storage_classes=["fast"],
        )
        client = harvester.api.local()
        for kind, raw in _contents():
            if raw["metadata"]["name"] == "static":  # older than the rule that refuses it
                hooks = getattr(harvester.api, "validation", harvester.api.admission)
                rules, hooks[:] = list(hooks), []
                await client.create(kind, raw)
                hooks[:] = rules
                continue
            await client.create(kind, raw)
            await asyncio.sleep(1)  # caches follow
        await asyncio.sleep(300)  # of the driven clock: machines boot, volumes are bound
        yield harvester
        running.cancel()


async def dump(harvester: Harvester, definitions: tuple[Raw, ...] = ()) -> ClusterDump:
    client = harvester.api.local()
    objects: dict[Key, Raw] = {}
    for kind in DUMPED:
        for raw in await client.list(kind):
            typed = {"apiVersion": kind.api_version, "kind": kind.kind, **raw}
            metadata = typed["metadata"]
            objects[kind.kind, metadata.get("namespace", ""), metadata["name"]] = typed
    return ClusterDump({**objects, ("KubeVirt", "harvester-system", "kubevirt"): KUBEVIRT}, definitions)


# As Harvester's chart and its settings' controllers write it, and KubeVirt's operator.
KUBEVIRT: Raw = {
    "apiVersion": "kubevirt.io/v1",
    "kind": "KubeVirt",
    "metadata": {"name": "kubevirt", "namespace": "harvester-system", "uid": "1", "resourceVersion": "1"},
    "spec": {
        "configuration": {
            "vmStateStorageClass": "vmstate-persistence",
            "developerConfiguration": {
                "featureGates": [
                    "CPUManager",
                    "DeclarativeHotplugVolumes",
                    "ExpandDisks",
                    "EnableVirtioFsConfigVolumes",
                    "HostDevices",
                ]
            },
            "vmRolloutStrategy": "LiveUpdate",
            "additionalGuestMemoryOverheadRatio": "1.5",
            "network": {
                "defaultNetworkInterface": "bridge",
                "permitSlirpInterface": True,
                "permitBridgeInterfaceOnPodNetwork": True,
                "binding": {"managedtap": {"domainAttachmentType": "managedTap"}},
            },
        },
        "workloadUpdateStrategy": {"workloadUpdateMethods": ["LiveMigrate"]},
    },
    "status": {"phase": "Deployed", "defaultArchitecture": "amd64", "observedKubeVirtVersion": "1.7.0"},
}
