"""Volumes, images, StorageClasses and Secrets: creations, changes, deletions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from tests.conformance.admission.asking import Question
from tests.conformance.admission.cases.edits import REMOVE, Edits, edited
from tests.conformance.admission.world import (
    ClusterDump,
    a_secret,
    a_storage_class,
    a_volume,
    an_image,
    encryption,
)

from windrow.emulator import kinds
from windrow.kubernetes import resources

SIZE = "spec.resources.requests.storage"
CLASS = "spec.storageClassName"
GOLDEN = "A/harvesterhci.io/goldenImage"
IMAGE_ID = "A/harvesterhci.io/imageId"
DEFAULT = "A/storageclass.kubernetes.io/is-default-class"
LABEL = "L/harvesterhci.io/imageDisplayName"
IMAGE_CLASS = "A/harvesterhci.io/storageClassName"

NEW_VOLUMES: Mapping[str, Edits] = {
    "as it is": {},
    "generated name": {"metadata.name": REMOVE, "metadata.generateName": "pvc-"},
    "name with capitals": {"metadata.name": "Claim"},
    "name of 254": {"metadata.name": "c" * 254},
    "no class": {CLASS: REMOVE},
    "empty class": {CLASS: ""},
    "unknown class": {CLASS: "missing"},
    "bad class name": {CLASS: "No Class"},
    "longhorn-static": {CLASS: "longhorn-static"},
    "longhorn-static with volume": {CLASS: "longhorn-static", "spec.volumeName": "pv-1"},
    "vmstate": {CLASS: "vmstate-persistence"},
    "vmstate with volume": {CLASS: "vmstate-persistence", "spec.volumeName": "pv-1"},
    "encrypted class": {CLASS: "encrypted"},
    "size zero": {SIZE: "0"},
    "size negative": {SIZE: "-1Gi"},
    "size a word": {SIZE: "much"},
    "size a number": {SIZE: 10737418240},
    "size fractional": {SIZE: "1.5Gi"},
    "no size": {"spec.resources": {}},
    "no resources": {"spec.resources": REMOVE},
    "limits below requests": {"spec.resources.limits": {"storage": "1Gi"}},
    "other resource": {"spec.resources.requests": {"cpu": "1"}},
    "no modes": {"spec.accessModes": []},
    "modes absent": {"spec.accessModes": REMOVE},
    "mode once": {"spec.accessModes": ["ReadWriteOnce"]},
    "mode pod": {"spec.accessModes": ["ReadWriteOncePod"]},
    "mode pod and once": {"spec.accessModes": ["ReadWriteOncePod", "ReadWriteOnce"]},
    "mode unknown": {"spec.accessModes": ["ReadNever"]},
    "modes twice": {"spec.accessModes": ["ReadWriteMany", "ReadWriteMany"]},
    "volume mode filesystem": {"spec.volumeMode": "Filesystem"},
    "volume mode absent": {"spec.volumeMode": REMOVE},
    "volume mode unknown": {"spec.volumeMode": "Blob"},
    "selector": {"spec.selector": {"matchLabels": {"a": "b"}}},
    "selector bad": {"spec.selector": {"matchExpressions": [{"key": "a", "operator": "Near"}]}},
    "data source": {"spec.dataSource": {"kind": "PersistentVolumeClaim", "name": "free"}},
    "data source of a snapshot": {
        "spec.dataSource": {"apiGroup": "snapshot.storage.k8s.io", "kind": "VolumeSnapshot", "name": "s"}
    },
    "data source of a bad group": {"spec.dataSource": {"kind": "Pod", "name": "free"}},
    "data source without name": {"spec.dataSource": {"kind": "PersistentVolumeClaim"}},
    "volume": {"spec.volumeName": "pv-1"},
    "image": {IMAGE_ID: "default/jammy"},
    "image missing": {IMAGE_ID: "default/gone"},
    "image without namespace": {IMAGE_ID: "jammy"},
    "image and foreign class": {IMAGE_ID: "default/jammy", CLASS: "fast"},
    "golden": {GOLDEN: "true"},
    "label bad": {"L/a": "b c"},
    "annotation bad": {"A/a b": "c"},
    "unknown field": {"spec.nonsense": 1},
    "status": {"status": {"phase": "Bound"}},
    "finalizer bad": {"metadata.finalizers": ["no good"]},
    "unknown namespace": {"metadata.namespace": "nowhere"},
    "quota of storage": {"metadata.namespace": "tenant", SIZE: "60Gi"},
    "within quota": {"metadata.namespace": "tenant", SIZE: "5Gi"},
}

VOLUME_CHANGES: Mapping[str, Edits] = {
    "nothing": {},
    "label": {"L/a": "b"},
    "annotation": {"A/a": "b"},
    "bigger": {SIZE: "20Gi"},
    "smaller": {SIZE: "5Gi"},
    "size zero": {SIZE: "0"},
    "size negative": {SIZE: "-5Gi"},
    "size a word": {SIZE: "more"},
    "class": {CLASS: "fast"},
    "class removed": {CLASS: REMOVE},
    "modes": {"spec.accessModes": ["ReadWriteOnce"]},
    "volume mode": {"spec.volumeMode": "Filesystem"},
    "volume": {"spec.volumeName": "another"},
    "golden added": {GOLDEN: "true"},
    "golden removed": {GOLDEN: REMOVE},
    "golden false": {GOLDEN: "false"},
    "image": {IMAGE_ID: "default/jammy"},
    "data source": {"spec.dataSource": {"kind": "PersistentVolumeClaim", "name": "source"}},
    "finalizers": {"metadata.finalizers": []},
}

NEW_IMAGES: Mapping[str, Edits] = {
    "as it is": {},
    "generated name": {"metadata.name": REMOVE, "metadata.generateName": "image-"},
    "no display name": {"spec.displayName": REMOVE},
    "empty display name": {"spec.displayName": ""},
    "display name taken": {"spec.displayName": "jammy"},
    "display name taken elsewhere": {"spec.displayName": "noble"},
    "display name with spaces": {"spec.displayName": "Ubuntu 24.04"},
    "display name of 63": {"spec.displayName": "d" * 63},
    "display name of 64": {"spec.displayName": "d" * 64},
    "display name that begins with a dash": {"spec.displayName": "-d"},
    "no source": {"spec.sourceType": REMOVE},
    "source unknown": {"spec.sourceType": "carrier-pigeon"},
    "no url": {"spec.url": REMOVE},
    "ftp": {"spec.url": "ftp://images.example/a.img"},
    "url a word": {"spec.url": "image"},
    "url without host": {"spec.url": "https:///a.img"},
    "url with spaces": {"spec.url": "https://images.example/a b.img"},
    "file url": {"spec.url": "file:///a.img"},
    "url of an upload": {"spec.sourceType": "upload"},
    "upload": {"spec.sourceType": "upload", "spec.url": REMOVE},
    "checksum": {"spec.checksum": "a" * 128},
    "checksum short": {"spec.checksum": "abc"},
    "retry": {"spec.retry": 5},
    "retry negative": {"spec.retry": -1},
    "export": {
        "spec.sourceType": "export-from-volume", "spec.url": REMOVE, "spec.pvcName": "free", "spec.pvcNamespace": "default",
    },
    "export with url": {"spec.sourceType": "export-from-volume", "spec.pvcName": "free", "spec.pvcNamespace": "default"},
    "export without claim": {"spec.sourceType": "export-from-volume", "spec.url": REMOVE},
    "export without namespace": {"spec.sourceType": "export-from-volume", "spec.url": REMOVE, "spec.pvcName": "free"},
    "export of a missing claim": {
        "spec.sourceType": "export-from-volume", "spec.url": REMOVE, "spec.pvcName": "gone", "spec.pvcNamespace": "default",
    },
    "export into an encrypted class": {
        "spec.sourceType": "export-from-volume", "spec.url": REMOVE, "spec.pvcName": "free", "spec.pvcNamespace": "default",
        IMAGE_CLASS: "encrypted",
    },
    "clone": {
        "spec.sourceType": "clone", "spec.url": REMOVE,
        "spec.securityParameters": {"cryptoOperation": "encrypt", "sourceImageName": "jammy", "sourceImageNamespace": "default"},
        IMAGE_CLASS: "encrypted",
    },
    "clone without parameters": {"spec.sourceType": "clone", "spec.url": REMOVE},
    "clone of a missing image": {
        "spec.sourceType": "clone", "spec.url": REMOVE,
        "spec.securityParameters": {"cryptoOperation": "encrypt", "sourceImageName": "gone", "sourceImageNamespace": "default"},
        IMAGE_CLASS: "encrypted",
    },
    "clone without encryption": {
        "spec.sourceType": "clone", "spec.url": REMOVE,
        "spec.securityParameters": {"cryptoOperation": "encrypt", "sourceImageName": "jammy", "sourceImageNamespace": "default"},
        IMAGE_CLASS: "fast",
    },
    "clone of an unknown operation": {
        "spec.sourceType": "clone", "spec.url": REMOVE,
        "spec.securityParameters": {"cryptoOperation": "scramble", "sourceImageName": "jammy", "sourceImageNamespace": "default"},
    },
    "decryption of a plain image": {
        "spec.sourceType": "clone", "spec.url": REMOVE,
        "spec.securityParameters": {"cryptoOperation": "decrypt", "sourceImageName": "jammy", "sourceImageNamespace": "default"},
    },
    "security of a download": {
        "spec.securityParameters": {"cryptoOperation": "encrypt", "sourceImageName": "jammy", "sourceImageNamespace": "default"},
    },
    "class": {IMAGE_CLASS: "fast"},
    "class unknown": {IMAGE_CLASS: "missing"},
    "class encrypted": {IMAGE_CLASS: "encrypted"},
    "target class": {"spec.targetStorageClassName": "fast"},
    "target class unknown": {"spec.targetStorageClassName": "missing"},
    "parameters": {"spec.storageClassParameters": {"numberOfReplicas": "1"}},
    "backend cdi": {"spec.backend": "cdi"},
    "backend cdi with class": {"spec.backend": "cdi", "spec.targetStorageClassName": "fast"},
    "backend backingimage": {"spec.backend": "backingimage"},
    "backend unknown": {"spec.backend": "tape"},
    "label": {LABEL: "another"},
    "no spec": {"spec": REMOVE},
    "unknown field": {"spec.nonsense": True},
}  # fmt: skip

IMAGE_CHANGES: Mapping[str, Edits] = {
    "nothing": {},
    "display name": {"spec.displayName": "other"},
    "display name of another": {"spec.displayName": "exported"},
    "description": {"A/field.cattle.io/description": "mine"},
    "url": {"spec.url": "https://images.example/other.img"},
    "source": {"spec.sourceType": "upload", "spec.url": REMOVE},
    "claim": {"spec.pvcName": "free"},
    "claim namespace": {"spec.pvcNamespace": "tenant"},
    "checksum": {"spec.checksum": "a" * 128},
    "retry": {"spec.retry": 7},
    "parameters": {"spec.storageClassParameters": {"numberOfReplicas": "1"}},
    "security": {"spec.securityParameters": {"cryptoOperation": "encrypt", "sourceImageName": "a", "sourceImageNamespace": "b"}},
    "backend": {"spec.backend": "cdi"},
    "target class": {"spec.targetStorageClassName": "fast"},
    "label": {LABEL: "another"},
    "class": {IMAGE_CLASS: "fast"},
}  # fmt: skip

REPLICAS = "parameters.numberOfReplicas"
NEW_CLASSES: Mapping[str, Edits] = {
    "as it is": {},
    "default": {DEFAULT: "true"},
    "beta default": {"A/storageclass.beta.kubernetes.io/is-default-class": "true"},
    "not default": {DEFAULT: "false"},
    "reserved": {"A/harvesterhci.io/is-reserved-storageclass": "true"},
    "strict-local of three": {"parameters.dataLocality": "strict-local"},
    "strict-local of one": {"parameters.dataLocality": "strict-local", REPLICAS: "1"},
    "strict-local of one, not migratable": {
        "parameters.dataLocality": "strict-local",
        REPLICAS: "1",
        "parameters.migratable": "false",
    },
    "replicas a word": {REPLICAS: "many"},
    "replicas zero": {REPLICAS: "0"},
    "no parameters": {"parameters": REMOVE},
    "encrypted": {"parameters": encryption("encryption")},
    "encrypted with a missing secret": {"parameters": encryption("gone")},
    "encrypted with an incomplete secret": {"parameters": encryption("weak")},
    "encrypted without secret": {"parameters.encrypted": "true"},
    "encrypted with two secrets": {
        "parameters": {**encryption("encryption"), "csi.storage.k8s.io/node-stage-secret-name": "unused"}
    },
    "encrypted false": {"parameters.encrypted": "false"},
    "encrypted a word": {"parameters.encrypted": "yes"},
    "data engine v2": {"parameters.dataEngine": "v2"},
    "lvm": {"provisioner": "lvm.driver.harvesterhci.io", "parameters": {"type": "striped", "vgName": "vg"}},
    "lvm without group": {"provisioner": "lvm.driver.harvesterhci.io", "parameters": {"type": "striped"}},
    "other provisioner": {"provisioner": "nfs.example", "parameters": {}},
    "no provisioner": {"provisioner": ""},
    "reclaim unknown": {"reclaimPolicy": "Keep"},
    "retain": {"reclaimPolicy": "Retain"},
    "binding late": {"volumeBindingMode": "WaitForFirstConsumer"},
    "binding unknown": {"volumeBindingMode": "Never"},
    "mount options": {"mountOptions": ["ro"]},
    "topologies": {"allowedTopologies": [{"matchLabelExpressions": [{"key": "zone", "values": ["1"]}]}]},
    "empty parameter": {"parameters.": "a"},
    "name with capitals": {"metadata.name": "Class"},
    "cdi annotation": {"A/cdi.harvesterhci.io/filesystemOverhead": "0.1"},
    "cdi annotation a word": {"A/cdi.harvesterhci.io/filesystemOverhead": "some"},
    "cdi modes": {"A/cdi.harvesterhci.io/storageProfileVolumeModeAccessModes": '{"Block":["ReadWriteOnce"]}'},
    "cdi modes not JSON": {"A/cdi.harvesterhci.io/storageProfileVolumeModeAccessModes": "{"},
    "cdi clone strategy": {"A/cdi.harvesterhci.io/cloneStrategy": "snapshot"},
    "cdi clone strategy unknown": {"A/cdi.harvesterhci.io/cloneStrategy": "photocopy"},
}

CLASS_CHANGES: Mapping[str, Edits] = {
    "nothing": {},
    "label": {"L/a": "b"},
    "default": {DEFAULT: "true"},
    "not default": {DEFAULT: "false"},
    "default removed": {DEFAULT: REMOVE},
    "parameters": {REPLICAS: "1"},
    "provisioner": {"provisioner": "other"},
    "reclaim": {"reclaimPolicy": "Retain"},
    "binding": {"volumeBindingMode": "WaitForFirstConsumer"},
    "expansion": {"allowVolumeExpansion": False},
    "reserved removed": {"A/harvesterhci.io/is-reserved-storageclass": REMOVE},
}

NEW_SECRETS: Mapping[str, Edits] = {
    "as it is": {},
    "type": {"type": "kubernetes.io/tls"},
    "tls": {"type": "kubernetes.io/tls", "stringData": {"tls.crt": "a", "tls.key": "b"}},
    "docker": {"type": "kubernetes.io/dockerconfigjson", "stringData": {".dockerconfigjson": "{}"}},
    "docker not JSON": {"type": "kubernetes.io/dockerconfigjson", "stringData": {".dockerconfigjson": "{"}},
    "key bad": {"stringData": {"a b": "c"}},
    "not base64": {"data": {"a": "%%%"}},
    "immutable": {"immutable": True},
    "basic": {"type": "kubernetes.io/basic-auth", "stringData": {"username": "a"}},
    "basic empty": {"type": "kubernetes.io/basic-auth", "stringData": {"a": "b"}},
    "ssh": {"type": "kubernetes.io/ssh-auth", "stringData": {"a": "b"}},
    "token": {"type": "kubernetes.io/service-account-token"},
    "large": {"stringData": {"a": "x" * 1048577}},
}


def _changes(
    world: ClusterDump, group: str, kind: resources.ApiResource, names: str, table: Mapping[str, Edits]
) -> Iterator[Question]:
    for name in names.split():
        old = world.get(kind, name)
        for case, edits in table.items():
            yield Question(f"update {name}: {case}", group, kind, edited(old, edits), old)
        yield Question(f"delete {name}", group, kind, None, old)


def questions(world: ClusterDump) -> Iterator[Question]:
    for group, kind, base, table in (
        ("claim", resources.PVC, a_volume("new"), NEW_VOLUMES),
        ("image", kinds.IMAGE, an_image("new"), NEW_IMAGES),
        ("class", resources.STORAGE_CLASS, a_storage_class("new"), NEW_CLASSES),
        ("secret", resources.SECRET, a_secret("new"), NEW_SECRETS),
    ):
        for case, edits in table.items():
            yield Question(f"create: {case}", group, kind, edited(base, edits))
    yield from _changes(
        world, "claim", resources.PVC, "free golden running-disk-0 stopped-disk-0", VOLUME_CHANGES
    )
    yield from _changes(world, "image", kinds.IMAGE, "jammy exported", IMAGE_CHANGES)
    classes = "fast harvester-longhorn vmstate-persistence longhorn-static encrypted"
    yield from _changes(world, "class", resources.STORAGE_CLASS, classes, CLASS_CHANGES)
    for name in ("unused", "encryption"):
        old = world.get(resources.SECRET, name)
        yield Question(f"update {name}: label", "secret", resources.SECRET, edited(old, {"L/a": "b"}), old)
        yield Question(
            f"update {name}: type", "secret", resources.SECRET, edited(old, {"type": "other"}), old
        )
        yield Question(f"delete {name}", "secret", resources.SECRET, None, old)
