"""Valid objects as others write them: Terraform's harvester provider and the products in Go, and Harvester's UI.

Of their sources, the shapes alone: Go writes `status` and `creationTimestamp` of what it makes, and each field that may not be
left out; the UI writes what its form holds, empty texts and objects too.
"""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Iterator, Mapping
from typing import Any

from tests.conformance.admission.asking import Question
from tests.conformance.admission.world import ClusterDump

from windrow.emulator import kinds
from windrow.kubernetes import resources
from windrow.kubernetes.objects import Raw
from windrow.kubernetes.resources import ApiResource

TERRAFORM, GO, UI = "Terraform", "a product in Go", "the UI"
WRITERS = (TERRAFORM, GO, UI)

ED25519 = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIHf7o0hAfHdkxDnWuEmNhJZu9nMxM8K7LdKeLgqIN8yX"
USER_DATA = "#cloud-config\npackages:\n  - qemu-guest-agent\nruncmd:\n  - [systemctl, enable, --now, qemu-guest-agent]\n"
NETWORK_DATA = "version: 2\nethernets:\n  enp1s0:\n    dhcp4: true\n"
CLASS = "harvester-longhorn"

Made = tuple[str, str, ApiResource, Raw]  # the case, its group, the kind, the object


def is_written_by(writer: str, question: Question) -> bool:
    return question.name.startswith(f"{writer}: ")


def questions(world: ClusterDump) -> Iterator[Question]:
    image_class = str(world.get(kinds.IMAGE, "jammy")["status"]["storageClassName"])
    for writer, made in (
        (TERRAFORM, [*_terraform_vms(image_class), *_terraform_others(image_class)]),
        (GO, [*_driver_vms(image_class), *_other_products()]),
        (UI, [*_ui_vms(image_class), *_ui_others(image_class)]),
    ):
        for case, group, kind, raw in made:
            typed = {"apiVersion": kind.api_version, "kind": kind.kind, **raw}
            yield Question(f"{writer}: {case}", group, kind, typed)


def _merged(base: Raw, change: Mapping[str, Any]) -> Raw:
    """Objects are merged, everything else is replaced."""
    made = dict(base)
    for key, value in change.items():
        before = made.get(key)
        is_object = isinstance(before, dict) and isinstance(value, Mapping)
        made[key] = _merged(before, value) if is_object and isinstance(before, dict) else value
    return made


# --- Go --------------------------------------------------------------------------------------------------------------


def _go_metadata(name: str, namespace: str = "default", **fields: Any) -> Raw:
    placed = {"namespace": namespace} if namespace else {}
    return {"name": name, **placed, "creationTimestamp": None, **fields}


def _go_claim(name: str, storage_class: str, image: str = "", **spec: Any) -> Raw:
    annotations = {"harvesterhci.io/imageId": image} if image else {}
    usual = {
        "accessModes": ["ReadWriteMany"],
        "resources": {"requests": {"storage": "10Gi"}},
        "storageClassName": storage_class,
        "volumeMode": "Block",
    }
    metadata = {"name": name, "creationTimestamp": None}
    return {
        "metadata": {**metadata, "annotations": annotations} if annotations else metadata,
        "spec": {**usual, **spec},
        "status": {},
    }


ROOT, CLOUD_INIT = (
    {"name": "disk-0", "bootOrder": 1, "disk": {"bus": "virtio"}},
    {"name": "cloudinitdisk", "disk": {"bus": "virtio"}},
)
ANTI_AFFINITY = {
    "podAntiAffinity": {
        "preferredDuringSchedulingIgnoredDuringExecution": [
            {
                "weight": 100,
                "podAffinityTerm": {
                    "labelSelector": {
                        "matchExpressions": [{"key": "harvesterhci.io/creator", "operator": "Exists"}]
                    },
                    "topologyKey": "kubernetes.io/hostname",
                },
            }
        ]
    }
}


def _go_vm(
    creator: str,
    image_class: str,
    *,
    name: str = "web-01",
    domain: Mapping[str, Any] | None = None,
    spec: Mapping[str, Any] | None = None,
    metadata: Mapping[str, Any] | None = None,
    more: tuple[tuple[Raw, Raw | None, Raw | None], ...] = (),
    cpus: int = 2,
    memory: str = "4Gi",
    strategy: str = "RerunOnFailure",
) -> Raw:
    """As Harvester's VM builder makes it. `more`: disks, each with its volume and its claim."""
    claim = f"{name}-disk-0-abcde"
    volumes = [
        {"name": "disk-0", "persistentVolumeClaim": {"claimName": claim}},
        *(volume for _, volume, _ in more if volume),
        {"name": "cloudinitdisk", "cloudInitNoCloud": {"userData": USER_DATA, "networkData": NETWORK_DATA}},
    ]
    claims = [_go_claim(claim, image_class, "default/jammy"), *(one for _, _, one in more if one)]
    labels = {"harvesterhci.io/creator": creator}
    template = {
        "domain": _merged(
            {
                "cpu": {"cores": cpus, "sockets": 1, "threads": 1},
                "devices": {
                    "disks": [ROOT, *(disk for disk, _, _ in more), CLOUD_INIT],
                    "interfaces": [{"name": "nic-0", "model": "virtio", "bridge": {}}],
                },
                "resources": {"limits": {"cpu": str(cpus), "memory": memory}},
            },
            domain or {},
        ),
        "affinity": ANTI_AFFINITY,
        "evictionStrategy": "LiveMigrateIfPossible",
        "networks": [{"name": "nic-0", "multus": {"networkName": "default/vlan50"}}],
        "volumes": volumes,
    }
    written = {
        "harvesterhci.io/sshNames": "[]",
        "harvesterhci.io/waitForLeaseInterfaceNames": "[]",
    }
    annotations = {
        "harvesterhci.io/volumeClaimTemplates": json.dumps(claims, separators=(",", ":")),
    }
    return {
        "metadata": _merged(_go_metadata(name, labels=labels, annotations=annotations), metadata or {}),
        "spec": {
            "runStrategy": strategy,
            "template": {
                "metadata": {
                    "creationTimestamp": None,
                    "labels": {**labels, "harvesterhci.io/vmName": name},
                    "annotations": written,
                },
                "spec": _merged(template, spec or {}),
            },
        },
        "status": {},
    }


def _claimed(disk: Raw, claim: str, storage_class: str = CLASS, **volume: Any) -> tuple[Raw, Raw, Raw]:
    source = {"claimName": claim, **volume}
    return (
        disk,
        {"name": disk["name"], "persistentVolumeClaim": source},
        _go_claim(claim, storage_class),
    )


def _volumes(*sources: Raw) -> Raw:
    """The volume of the first disk, and these."""
    first = {"name": "disk-0", "persistentVolumeClaim": {"claimName": "web-01-disk-0-abcde"}}
    return {"volumes": [first, *sources]}


def _cloud_init(kind: str, **source: Any) -> Raw:
    return {"name": "cloudinitdisk", kind: source}


EMPTY_CDROM: tuple[Raw, None, None] = ({"name": "cd", "cdrom": {"bus": "sata"}}, None, None)
DATA: Raw = {"name": "data", "disk": {"bus": "virtio"}}
CDROM: Raw = {"name": "cd", "bootOrder": 2, "cdrom": {"bus": "sata"}}
SCSI: Raw = {"name": "hot", "disk": {"bus": "scsi"}}
CONTAINER: tuple[Raw, Raw, None] = (
    {"name": "drivers", "cdrom": {"bus": "sata"}},
    {"name": "drivers", "containerDisk": {"image": "registry.example/virtio:1", "imagePullPolicy": "IfNotPresent"}},
    None,
)  # fmt: skip
EFI = {"firmware": {"bootloader": {"efi": {"secureBoot": False}}}}
SECURE = {
    "firmware": {"bootloader": {"efi": {"secureBoot": True}}},
    "features": {"smm": {"enabled": True}},
}
TABLET = {"inputs": [{"name": "tablet", "type": "tablet", "bus": "usb"}]}
POD: Raw = {"networks": [{"name": "nic-0", "pod": {}}]}
MASQUERADE: Raw = {"devices": {"interfaces": [{"name": "nic-0", "model": "virtio", "masquerade": {}}]}}
TWO_CARDS: Raw = {
    "devices": {
        "interfaces": [
            {"name": "nic-0", "model": "virtio", "macAddress": "52:54:00:6d:0a:0b", "bridge": {}, "bootOrder": 2},
            {"name": "nic-1", "model": "e1000", "bridge": {}},
        ]
    }
}  # fmt: skip
TWO_NETWORKS: Raw = {
    "networks": [
        {"name": "nic-0", "multus": {"networkName": "default/vlan50"}},
        {"name": "nic-1", "multus": {"networkName": "default/idle"}},
    ]
}


def _terraform_vms(image_class: str) -> Iterator[Made]:
    def vm(**change: Any) -> Raw:
        return _go_vm("terraform-provider-harvester", image_class, **change)

    secret = {"name": "cloud-init"}
    cases: Mapping[str, Raw] = {
        "a machine": vm(),
        "one that is stopped": vm(strategy="Halted"),
        "always": vm(strategy="Always"),
        "by hand": vm(strategy="Manual"),
        "one core and the least memory": vm(cpus=1, memory="1Gi"),
        "described, with tags": vm(
            metadata={
                "labels": {"tag.harvesterhci.io/ssh-user": "ubuntu", "team": "x"},
                "annotations": {"field.cattle.io/description": "the first"},
            }
        ),
        "reserved memory": vm(metadata={"annotations": {"harvesterhci.io/reservedMemory": "256Mi"}}),
        "requests": vm(domain={"resources": {"requests": {"cpu": "500m", "memory": "1Gi"}}}),
        "EFI": vm(domain=EFI),
        "secure boot": vm(domain=SECURE),
        "machine type": vm(domain={"machine": {"type": "q35"}}),
        "CPU model": vm(domain={"cpu": {"model": "host-passthrough"}}),
        "pinned": vm(domain={"cpu": {"dedicatedCpuPlacement": True}}),
        "pinned and isolated": vm(
            domain={"cpu": {"dedicatedCpuPlacement": True, "isolateEmulatorThread": True}}
        ),
        "TPM and a tablet": vm(domain={"devices": {"tpm": {}, **TABLET}}),
        "host name": vm(spec={"hostname": "web-01"}),
        "node selector": vm(spec={"nodeSelector": {"zone": "a"}}),
        "management network": vm(domain=MASQUERADE, spec=POD),
        "two cards": vm(domain=TWO_CARDS, spec=TWO_NETWORKS),
        "a second disk": vm(more=(_claimed(DATA, "web-01-data"),)),
        "a hot-plugged disk": vm(more=(_claimed(SCSI, "web-01-hot", hotpluggable=True),)),
        "a CD-ROM of an image": vm(more=(_claimed(CDROM, "web-01-cd", image_class),)),
        "an empty CD-ROM": vm(more=(EMPTY_CDROM,)),
        "a volume that exists": vm(
            more=((DATA, {"name": "data", "persistentVolumeClaim": {"claimName": "free"}}, None),)
        ),
        "a container disk": vm(more=(CONTAINER,)),
        "write-back": vm(more=(_claimed({**DATA, "cache": "writeback"}, "web-01-data"),)),
        "cloud-init of a Secret": vm(
            spec=_volumes(
                _cloud_init("cloudInitNoCloud", secretRef=secret, networkDataSecretRef=secret),
            )
        ),
        "cloud-init in base64": vm(
            spec=_volumes(
                _cloud_init("cloudInitNoCloud", userDataBase64=b64encode(USER_DATA.encode()).decode())
            )
        ),
        "a config drive": vm(spec=_volumes(_cloud_init("cloudInitConfigDrive", userData=USER_DATA))),
    }
    for case, raw in cases.items():
        yield case, "vm", kinds.VM, raw


def _terraform_others(image_class: str) -> Iterator[Made]:
    described = {
        "labels": {"tag.harvesterhci.io/a": "b"},
        "annotations": {"field.cattle.io/description": "c"},
    }

    def claim(**change: Any) -> Raw:
        made = _go_claim("tf-volume", CLASS)
        made["metadata"] = {**_go_metadata("tf-volume"), "labels": {}, "annotations": {}}
        return _merged(made, change)

    def image(**spec: Any) -> Raw:
        usual = {
            **dict.fromkeys(("pvcName", "pvcNamespace", "url", "checksum"), ""),
            "backend": "backingimage",
            "displayName": "tf-image",
            "sourceType": "download",
            "storageClassParameters": None,
            "retry": 0,
        }
        return {
            "metadata": _go_metadata(
                "tf-image", annotations={"harvesterhci.io/storageClassName": CLASS}, labels={}
            ),
            "spec": {**usual, **spec},
            "status": {"failed": 0},
        }

    url = "https://images.example/jammy.img"
    for case, raw in {
        "a volume": claim(),
        "a described volume": claim(metadata=described),
        "a volume of an image": claim(
            metadata={"annotations": {"harvesterhci.io/imageId": "default/jammy"}},
            spec={"storageClassName": image_class},
        ),
        "a file system": claim(spec={"volumeMode": "Filesystem", "accessModes": ["ReadWriteOnce"]}),
    }.items():
        yield case, "claim", resources.PVC, raw
    for case, raw in {
        "an image": image(url=url),
        "an image with a checksum": image(url=url, checksum="a" * 128),
        "an image to upload": image(sourceType="upload"),
        "an image of a volume": image(
            sourceType="export-from-volume", pvcName="free", pvcNamespace="default"
        ),
    }.items():
        yield case, "image", kinds.IMAGE, raw
    for case, public in (("a key pair", f"{ED25519} me@home"), ("a key pair of a file", f"{ED25519}\n")):
        raw = {"metadata": _go_metadata("tf-key", **described), "spec": {"publicKey": public}, "status": {}}
        yield case, "key pair", kinds.KEY_PAIR, raw
    data = {"userdata": b64encode(USER_DATA.encode()).decode(), "networkdata": ""}
    yield (
        "a cloud-init Secret",
        "secret",
        resources.SECRET,
        {"metadata": _go_metadata("tf-cloud-init", labels={}, annotations={}), "data": data},
    )
    parameters = {"migratable": "true", "numberOfReplicas": "2", "staleReplicaTimeout": "30"}
    for case, change in (
        ("a class", {}),
        ("a class that waits", {"volumeBindingMode": "WaitForFirstConsumer", "reclaimPolicy": "Retain"}),
        (
            "a class on tagged disks",
            {"parameters": {**parameters, "diskSelector": "ssd", "nodeSelector": "a"}},
        ),
    ):
        raw = {
            "metadata": _go_metadata("tf-class", "", labels={}, annotations={}),
            "provisioner": "driver.longhorn.io",
            "parameters": parameters,
            "reclaimPolicy": "Delete",
            "volumeBindingMode": "Immediate",
            "allowVolumeExpansion": True,
            **change,
        }
        yield case, "class", resources.STORAGE_CLASS, raw
    for case, vlan, route in (
        ("a network", 81, '{"mode":"auto"}'),
        ("a network by hand", 82, '{"mode":"manual","cidr":"10.82.0.0/24","gateway":"10.82.0.1"}'),
        ("a network with a DHCP server", 83, '{"mode":"auto","serverIPAddr":"10.83.0.1"}'),
        ("an untagged network", 0, '{"mode":"auto"}'),
    ):
        config = '{"cniVersion":"0.3.1","name":"tf-net","type":"bridge","bridge":"mgmt-br","promiscMode":true,"vlan":%d,"ipam":{}}'
        metadata = _go_metadata(
            "tf-net",
            labels={"network.harvesterhci.io/clusternetwork": "mgmt"},
            annotations={"network.harvesterhci.io/route": route},
        )
        yield case, "network", kinds.NAD, {"metadata": metadata, "spec": {"config": config % vlan}}
    yield from _terraform_balancers()


def _balancer(name: str, spec: Raw, **metadata: Any) -> Raw:
    return {"metadata": _go_metadata(name, **metadata), "spec": spec, "status": {"allocatedAddress": {}}}


def _terraform_balancers() -> Iterator[Made]:
    listeners = [{"name": "https", "port": 443, "protocol": "TCP", "backendPort": 8443}]
    usual: Raw = {"workloadType": "vm", "ipam": "dhcp", "listeners": listeners}
    check = {
        "port": 8443, "successThreshold": 1, "failureThreshold": 3, "periodSeconds": 10, "timeoutSeconds": 5,
    }  # fmt: skip
    for case, change in (
        ("a load balancer", {}),
        ("a load balancer of a pool", {"ipam": "pool", "ipPool": "office"}),
        ("a described load balancer", {"description": "the first"}),
        ("a load balancer of machines", {"backendServerSelector": {"app": ["web", "api"], "tier": ["a"]}}),
        ("a load balancer with a check", {"healthCheck": check}),
        ("a load balancer of a cluster", {"workloadType": "cluster"}),
    ):
        yield (
            case,
            "load balancer",
            kinds.LOAD_BALANCER,
            _balancer("tf-lb", {**usual, **change}, labels={}, annotations={}),
        )
    status = {"total": 0, "available": 0, "lastAllocated": ""}
    whole = {"subnet": "10.20.0.0/24"}
    scope = {"project": "", "namespace": "tenant", "guestCluster": ""}
    for case, ranges, selector in (
        ("a pool", [whole], {}),
        (
            "a pool of a part",
            [{**whole, "rangeStart": "10.20.0.10", "rangeEnd": "10.20.0.20", "gateway": "10.20.0.1"}],
            {"network": "default/vlan50"},
        ),
        ("a pool of two ranges", [whole, {"subnet": "10.21.0.0/28"}], {"priority": 9, "scope": [scope]}),
    ):
        raw = {
            "metadata": _go_metadata("tf-pool", "", labels={}, annotations={}),
            "spec": {"description": "", "ranges": ranges, "selector": selector},
            "status": status,
        }
        yield case, "pool", kinds.IP_POOL, raw


def _driver_vms(image_class: str) -> Iterator[Made]:
    """Of docker-machine-driver-harvester."""
    secret = {"name": "web-01-cloudinit"}
    by_secret = _volumes(_cloud_init("cloudInitNoCloud", secretRef=secret, networkDataSecretRef=secret))

    def vm(**change: Any) -> Raw:
        labels = {"guestcluster.harvesterhci.io/name": "c1"}
        made = _go_vm("docker-machine-driver-harvester", image_class, **{"spec": by_secret, **change})
        return _merged(
            made, {"metadata": {"labels": labels}, "spec": {"template": {"metadata": {"labels": labels}}}}
        )

    def device(name: str) -> Raw:
        return {"devices": {"gpus": [{"name": name, "deviceName": "nvidia.com/A2"}]}}

    def affinity(**affinity: Any) -> Raw:
        return {**by_secret, "affinity": affinity}

    required = "requiredDuringSchedulingIgnoredDuringExecution"
    term = {"labelSelector": {"matchLabels": {"a": "b"}}, "topologyKey": "kubernetes.io/hostname"}
    expression = {"key": "zone", "operator": "In", "values": ["a", "b"]}
    cases: Mapping[str, Raw] = {
        "a machine": vm(),
        "a small machine": vm(cpus=1, memory="1Gi"),
        "a large machine": vm(cpus=64, memory="256Gi"),
        "user data in the machine": vm(spec=_volumes(_cloud_init("cloudInitNoCloud", userData=USER_DATA))),
        "network data in the machine": vm(
            spec=_volumes(_cloud_init("cloudInitNoCloud", secretRef=secret, networkData=NETWORK_DATA))
        ),
        "reserved memory": vm(metadata={"annotations": {"harvesterhci.io/reservedMemory": "512Mi"}}),
        "EFI": vm(domain=EFI),
        "secure boot": vm(domain=SECURE),
        "TPM": vm(domain={"devices": {"tpm": {}}}),
        "pinned": vm(domain={"cpu": {"dedicatedCpuPlacement": True}}),
        "pinned and isolated": vm(
            domain={"cpu": {"dedicatedCpuPlacement": True, "isolateEmulatorThread": True}}
        ),
        "CPU model": vm(domain={"cpu": {"model": "host-model"}}),
        "vGPU": vm(domain=device("gpu-0")),
        "two cards": vm(domain=TWO_CARDS, spec={**by_secret, **TWO_NETWORKS}),
        "two disks": vm(more=(_claimed(DATA, "web-01-disk-1"),), spec={}),
        "a disk on sata": vm(more=(_claimed({"name": "b", "disk": {"bus": "sata"}}, "web-01-b"),), spec={}),
        "a hot-plugged disk": vm(more=(_claimed(SCSI, "web-01-hot", hotpluggable=True),), spec={}),
        "a CD-ROM": vm(more=(_claimed(CDROM, "web-01-cd", image_class),), spec={}),
        "anti-affinity": vm(spec=affinity(podAntiAffinity={required: [term]})),
        "affinity to pods": vm(spec=affinity(podAffinity={required: [{**term, "namespaces": ["default"]}]})),
        "affinity to nodes": vm(
            spec=affinity(
                nodeAffinity={required: {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}}
            )
        ),
        "a long name": vm(name="c" * 50 + "-pool-abcde"),
    }
    for case, raw in cases.items():
        yield case, "vm", kinds.VM, raw


def _other_products() -> Iterator[Made]:
    """Of the driver, of the cloud provider, of the CSI driver."""
    owner = {"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine", "name": "running", "uid": "1"}
    data = {key: b64encode(text.encode()).decode() for key, text in (("userdata", USER_DATA), ("networkdata", NETWORK_DATA))}  # fmt: skip
    metadata = _go_metadata("running-cloudinit", ownerReferences=[owner])
    yield "a cloud-init Secret", "secret", resources.SECRET, {"metadata": metadata, "data": data}
    for case, change in (
        ("a volume", {}),
        ("a volume of another class", {"storageClassName": "fast"}),
        ("a large volume", {"resources": {"requests": {"storage": "1099511627776"}}}),
        ("a volume of odd size", {"resources": {"requests": {"storage": "1073741825"}}}),
        ("a volume of a file system", {"volumeMode": "Filesystem"}),
        ("a volume for one", {"accessModes": ["ReadWriteOnce"]}),
        ("a volume without a class", {"storageClassName": None}),
    ):
        claim = _go_claim("pvc-3f1e9a52-0d0b-4c55-9f0e-6a5d8f2f6d11", CLASS, **change)
        claim["metadata"]["namespace"] = "default"
        yield case, "claim", resources.PVC, claim
    key = {"metadata": _go_metadata("rancher"), "spec": {"publicKey": f"{ED25519} c1"}, "status": {}}
    yield "a key pair", "key pair", kinds.KEY_PAIR, key
    labels = {
        "cloudprovider.harvesterhci.io/cluster": "c1",
        "cloudprovider.harvesterhci.io/serviceName": "web",
        "cloudprovider.harvesterhci.io/serviceNamespace": "default",
    }
    annotations = {"loadbalancer.harvesterhci.io/cluster": "c1"}
    for case, spec in (
        ("a load balancer by DHCP", {"workloadType": "cluster", "ipam": "dhcp"}),
        ("a load balancer of any pool", {"workloadType": "cluster", "ipam": "pool"}),
        ("a load balancer of a pool", {"workloadType": "cluster", "ipam": "pool", "ipPool": "office"}),
        (
            "a described load balancer",
            {"workloadType": "cluster", "ipam": "pool", "description": "default/web"},
        ),
    ):
        made = _balancer("c1-default-web-12345678", spec, labels=labels, annotations=annotations)
        yield case, "load balancer", kinds.LOAD_BALANCER, made


# --- the UI -----------------------------------------------------------------------------------------------------------


def _ui_row(
    name: str,
    order: int,
    *,
    source: Raw | None = None,
    storage_class: str = CLASS,
    image: str | None = None,
    is_cdrom: bool = False,
    bus: str = "virtio",
) -> tuple[Raw, Raw | None, Raw | None]:
    """A disk of the form: the device, its volume, the claim that is made for it."""
    device: Raw = {"name": name, "cdrom" if is_cdrom else "disk": {"bus": bus}, "bootOrder": order}
    if source is not None:
        return device, {"name": name, **source} if source else None, None
    claim: Raw = {
        "metadata": {"name": f"web-{name}-abcde"},
        "spec": {
            "accessModes": ["ReadWriteMany"],
            "resources": {"requests": {"storage": "10Gi"}},
            "volumeMode": "Block",
            "storageClassName": storage_class,
        },
    }
    if image is not None:
        claim["metadata"]["annotations"] = {"harvesterhci.io/imageId": image}
    volume = {"name": name, "persistentVolumeClaim": {"claimName": claim["metadata"]["name"]}}
    return device, volume, claim


def _ui_vm(
    image_class: str,
    *,
    rows: tuple[tuple[Raw, Raw | None, Raw | None], ...] = (),
    cloud_init: Raw | None = None,
    domain: Mapping[str, Any] | None = None,
    spec: Mapping[str, Any] | None = None,
    metadata: Mapping[str, Any] | None = None,
    strategy: str = "RerunOnFailure",
    name: str = "web",
) -> Raw:
    disks = (_ui_row("disk-0", 1, storage_class=image_class, image="default/jammy"), *rows)
    given = (
        {"userData": USER_DATA, "networkDataSecretRef": {"name": "web-abcde"}}
        if cloud_init is None
        else cloud_init
    )
    seeded: list[Raw] = [{"name": "cloudinitdisk", "cloudInitNoCloud": given}] if given else []
    claims = [claim for _, _, claim in disks if claim]
    template = {
        "domain": _merged(
            {
                "machine": {"type": ""},
                "cpu": {"cores": 2, "sockets": 1, "threads": 1},
                "devices": {
                    **TABLET,
                    "interfaces": [{"bridge": {}, "model": "virtio", "name": "default"}],
                    "disks": [*(disk for disk, _, _ in disks), *([CLOUD_INIT] if given else [])],
                },
                "resources": {"limits": {"memory": "4Gi", "cpu": "2"}},
                "features": {"acpi": {"enabled": True}},
            },
            domain or {},
        ),
        "evictionStrategy": "LiveMigrateIfPossible",
        "hostname": "web",
        "networks": [{"name": "default", "multus": {"networkName": "default/vlan50"}}],
        "volumes": [*(volume for _, volume, _ in disks if volume), *seeded],
        "affinity": {},
        "terminationGracePeriodSeconds": 120,
    }
    annotations = {
        "harvesterhci.io/volumeClaimTemplates": json.dumps(claims, separators=(",", ":")),
        "network.harvesterhci.io/ips": "[]",
    }
    labels = {"harvesterhci.io/creator": "harvester", "harvesterhci.io/os": "ubuntu"}
    return {
        "metadata": _merged(
            {"name": name, "namespace": "default", "annotations": annotations, "labels": labels},
            metadata or {},
        ),
        "spec": {
            "runStrategy": strategy,
            "template": {
                "metadata": {
                    "annotations": {"harvesterhci.io/sshNames": "[]"},
                    "labels": {"harvesterhci.io/vmName": name},
                },
                "spec": _merged(template, spec or {}),
            },
        },
    }


# CPUs and memory that can be added to a running machine.
HOTPLUG: Raw = {
    "cpu": {"sockets": 2, "cores": 1, "maxSockets": 4},
    "memory": {"guest": "4Gi", "maxGuest": "8Gi"},
    "resources": {"limits": {"cpu": "4", "memory": "8Gi"}},
}
BY_PREFIX = {
    "podAntiAffinity": {
        "preferredDuringSchedulingIgnoredDuringExecution": [
            {
                "weight": 1,
                "podAffinityTerm": {
                    "topologyKey": "kubernetes.io/hostname",
                    "labelSelector": {"matchLabels": {"harvesterhci.io/vmNamePrefix": "web"}},
                },
            }
        ]
    }
}


def _guest_agent(kind: str, **users: Any) -> Raw:
    credential = {
        "source": {"secret": {"secretName": "cloud-init"}},
        "propagationMethod": {"qemuGuestAgent": users},
    }
    return {"accessCredentials": [{kind: credential}]}


def _ui_vms(image_class: str) -> Iterator[Made]:
    def vm(**change: Any) -> Raw:
        return _ui_vm(image_class, **change)

    secret = {"name": "web-abcde"}
    cases: Mapping[str, Raw] = {
        "a machine": vm(),
        "one that is stopped": vm(strategy="Halted"),
        "by hand": vm(strategy="Manual"),
        "data in a Secret": vm(cloud_init={"secretRef": secret, "networkDataSecretRef": secret}),
        "data in clear text": vm(cloud_init={"userData": USER_DATA, "networkData": NETWORK_DATA}),
        "Windows": vm(
            cloud_init={},
            metadata={"labels": {"harvesterhci.io/os": "windows"}},
            rows=(_ui_row("virtio", 2, source={"containerDisk": {"image": "registry.suse.com/vmdp:1"}}, is_cdrom=True, bus="sata"),),
        ),
        "an empty disk": vm(rows=(_ui_row("data", 2),)),
        "an empty CD-ROM": vm(rows=(_ui_row("cd", 2, source={}, is_cdrom=True, bus="sata"),)),
        "a CD-ROM": vm(
            rows=(_ui_row("cd", 2, storage_class=image_class, image="default/jammy", is_cdrom=True, bus="sata"),)
        ),
        "a volume that exists": vm(
            rows=(_ui_row("old", 2, source={"persistentVolumeClaim": {"claimName": "free"}}),)
        ),
        "a hot-plugged volume": vm(
            rows=(_ui_row("old", 2, source={"persistentVolumeClaim": {"claimName": "free", "hotpluggable": True}}, bus="scsi"),)
        ),
        "management network": vm(
            domain={"devices": {"interfaces": [{"masquerade": {}, "model": "virtio", "name": "default"}]}},
            spec={"networks": [{"name": "default", "pod": {}}]},
        ),
        "a fixed address": vm(
            domain={
                "devices": {
                    "interfaces": [
                        {"bridge": {}, "macAddress": "5a:00:00:00:00:01", "model": "e1000e", "name": "default"}
                    ]
                }
            }
        ),
        "machine type": vm(domain={"machine": {"type": "pc-q35-rhel9.6.0"}}),
        "EFI": vm(domain=EFI),
        "EFI that persists": vm(
            domain={"firmware": {"bootloader": {"efi": {"secureBoot": False, "persistent": True}}}}
        ),
        "secure boot": vm(domain=SECURE),
        "TPM that persists": vm(domain={"devices": {"tpm": {"persistent": True}}}),
        "pinned": vm(domain={"cpu": {"dedicatedCpuPlacement": True}}),
        "CPU model": vm(domain={"cpu": {"model": "host-model"}}),
        "hot-plugged CPUs and memory": vm(
            domain=HOTPLUG, metadata={"annotations": {"harvesterhci.io/enableCPUAndMemoryHotplug": "true"}}
        ),
        "reserved memory": vm(metadata={"annotations": {"harvesterhci.io/reservedMemory": "256Mi"}}),
        "maintenance": vm(metadata={"labels": {"harvesterhci.io/maintain-mode-strategy": "ShutdownAndRestartAfterEnable"}}),
        "one of several": vm(spec={"affinity": BY_PREFIX}, name="web-01"),
        "on one host": vm(spec={"nodeSelector": {"kubernetes.io/hostname": "harvester-0"}}),
        "a password": vm(spec=_guest_agent("userPassword")),
        "keys of users": vm(spec=_guest_agent("sshPublicKey", users=["root", "ubuntu"])),
    }  # fmt: skip
    for case, raw in cases.items():
        yield case, "vm", kinds.VM, raw


def _ui_others(image_class: str) -> Iterator[Made]:
    def claim(**change: Any) -> Raw:
        spec = {
            "accessModes": ["ReadWriteMany"],
            "volumeMode": "Block",
            "storageClassName": CLASS,
            "resources": {"requests": {"storage": "10Gi"}},
        }
        return _merged({"metadata": {"name": "ui-volume", "namespace": "default"}, "spec": spec}, change)

    def image(annotations: Raw | None = None, **spec: Any) -> Raw:
        suffix = {"harvesterhci.io/os-type": "ubuntu", "harvesterhci.io/image-type": "raw_qcow2"}
        metadata = {
            "generateName": "image-",
            "namespace": "default",
            "labels": suffix,
            "annotations": {"harvesterhci.io/storageClassName": CLASS, **(annotations or {})},
        }
        usual = {"sourceType": "download", "displayName": "jammy-ui.img", "backend": "backingimage"}
        return {"metadata": metadata, "spec": {**usual, **spec}}

    url = "https://images.example/jammy-ui.img"
    clone = {"sourceImageName": "jammy", "sourceImageNamespace": "default", "cryptoOperation": "encrypt"}
    for case, raw in {
        "a volume": claim(),
        "a described volume": claim(metadata={"annotations": {"field.cattle.io/description": "mine"}}),
        "a volume of an image": claim(
            metadata={"annotations": {"harvesterhci.io/imageId": "default/jammy"}},
            spec={"storageClassName": image_class},
        ),
        "a file system": claim(spec={"volumeMode": "Filesystem"}),
    }.items():
        yield case, "claim", resources.PVC, raw
    for case, raw in {
        "an image": image(url=url),
        "an image with a checksum": image(url=url, checksum="a" * 128),
        "an image to upload": image({"harvesterhci.io/imageName": "jammy.img"}, sourceType="upload", url=""),
        "an encrypted image": image(
            {"harvesterhci.io/storageClassName": "encrypted"},
            sourceType="clone",
            url="",
            securityParameters=clone,
        ),
    }.items():
        yield case, "image", kinds.IMAGE, raw
    key = {
        "metadata": {"name": "ui-key", "namespace": "default"},
        "spec": {"publicKey": f"{ED25519} me@home\n"},
    }
    yield "a key pair", "key pair", kinds.KEY_PAIR, key
    for case, vm in (
        ("a template version", _ui_vm(image_class)),
        ("a template version with disks", _ui_vm(image_class, rows=(_ui_row("data", 2),))),
        ("a template version of Windows", _ui_vm(image_class, cloud_init={}, domain=SECURE)),
        ("a template version to hot-plug", _ui_vm(image_class, domain=HOTPLUG)),
    ):
        metadata = {"annotations": vm["metadata"]["annotations"], "labels": {"harvesterhci.io/os": "ubuntu"}}
        yield (
            case,
            "template version",
            kinds.TEMPLATE_VERSION,
            {
                "metadata": {
                    "generateName": "web-",
                    "namespace": "default",
                    "annotations": {"template-version.harvesterhci.io/customName": "abcde12345"},
                },
                "spec": {
                    "templateId": "default/web",
                    "imageId": "default/jammy",
                    "keyPairIds": [],
                    "vm": {"metadata": metadata, "spec": vm["spec"]},
                },
            },
        )
    for case, raw in _ui_networks().items():
        yield case, "network", kinds.NAD, raw
    for case, group, kind, spec in _ui_balancers():
        metadata = {"name": "ui-one", "namespace": "default"} if kind.namespaced else {"name": "ui-one"}
        yield case, group, kind, {"metadata": metadata, "spec": spec}


def _ui_networks() -> Mapping[str, Raw]:
    def network(route: Raw, **config: Any) -> Raw:
        given = {
            "cniVersion": "0.3.1",
            "name": "ui-net",
            "type": "bridge",
            "bridge": "mgmt-br",
            "promiscMode": True,
        }
        written = {"mode": "auto", "serverIPAddr": "", "cidr": "", "gateway": "", **route}
        return {
            "metadata": {
                "name": "ui-net",
                "namespace": "default",
                "annotations": {"network.harvesterhci.io/route": json.dumps(written, separators=(",", ":"))},
            },
            "spec": {"config": json.dumps({**given, "ipam": {}, **config}, separators=(",", ":"))},
        }  # fmt: skip

    by_hand = {"mode": "manual", "cidr": "10.84.0.0/24", "gateway": "10.84.0.1"}
    return {
        "a network": network({}, vlan=84),
        "a network by hand": network(by_hand, vlan=84),
        "an untagged network": network({}),
        "a trunk": network({}, vlan=0, vlanTrunk=[{"minID": 10, "maxID": 20}, {"minID": 30, "maxID": 30}]),
    }


def _ui_balancers() -> Iterator[tuple[str, str, ApiResource, Raw]]:
    listener = {"name": "web", "port": 80, "protocol": "TCP", "backendPort": 8080}
    usual = {"workloadType": "vm", "ipam": "dhcp", "healthCheck": {}, "backendServerSelector": {}}
    check = {
        "port": 8080, "successThreshold": 1, "failureThreshold": 3, "periodSeconds": 5, "timeoutSeconds": 3,
    }  # fmt: skip
    for case, change in (
        ("a load balancer", {}),
        ("a load balancer of a pool", {"ipam": "pool", "ipPool": "office"}),
        ("a load balancer of any pool", {"ipam": "pool", "ipPool": ""}),
        ("a load balancer of machines", {"backendServerSelector": {"app": ["web"]}, "healthCheck": check}),
    ):
        yield case, "load balancer", kinds.LOAD_BALANCER, {**usual, "listeners": [listener], **change}
    whole = {"subnet": "10.30.0.0/24", "gateway": "10.30.0.1"}
    scope = {"project": "*", "namespace": "tenant", "guestCluster": "*"}
    for case, selector in (
        ("a pool", {"network": ""}),
        ("a pool of a network", {"network": "default/vlan50", "scope": [scope], "priority": 5}),
    ):
        yield case, "pool", kinds.IP_POOL, {"ranges": [whole], "selector": selector}
