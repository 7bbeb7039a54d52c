"""Objects for tests of validators, mutators and schedulers."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import Any

from windrow.core.formats.json import dumps
from windrow.emulator import kinds
from windrow.emulator.host.networks import Lan, render_network
from windrow.emulator.kit.listers import (
    WATCHED_KINDS,
    Key,
    Listers,
    claims_of_vm,
    claims_of_vmi,
    key_of,
    macs_of_vm,
)
from windrow.emulator.system import SETTINGS, render_storage_class
from windrow.kubernetes.objects import Raw, new_object
from windrow.kubernetes.resources import PVC


def a_vm(name: str = "m-1", **spec: Any) -> Raw:
    """A valid VM with one disk and one NIC; `spec` replaces fields of the template's spec."""
    return {
        "apiVersion": "kubevirt.io/v1",
        "kind": "VirtualMachine",
        "metadata": {"name": name, "namespace": "ns", "annotations": {}, "labels": {}},
        "spec": {
            "runStrategy": "RerunOnFailure",
            "template": {
                "metadata": {},
                "spec": {
                    "domain": {
                        "cpu": {"cores": 4},
                        "resources": {"limits": {"cpu": "4", "memory": "8Gi"}},
                        "devices": {
                            "disks": [{"name": "disk-0", "disk": {"bus": "virtio"}}],
                            "interfaces": [{"name": "nic-0", "bridge": {}}],
                        },
                    },
                    "networks": [{"name": "nic-0", "multus": {"networkName": "ns/net"}}],
                    "volumes": [{"name": "disk-0", "persistentVolumeClaim": {"claimName": f"{name}-disk-0"}}],
                    **spec,
                },
            },
        },
    }


def with_templates(vm: Raw, *claims: Raw) -> Raw:
    vm["metadata"]["annotations"]["harvesterhci.io/volumeClaimTemplates"] = dumps(list(claims)).decode()
    return vm


def a_template(
    name: str = "m-1-disk-0", storage_class: str = "fast", size: str = "40Gi", image: str = ""
) -> Raw:
    annotations = {"harvesterhci.io/imageId": image} if image else {}
    return {
        "metadata": {"name": name, "annotations": annotations},
        "spec": {"storageClassName": storage_class, "resources": {"requests": {"storage": size}}},
    }


def a_claim(name: str, **rest: Any) -> Raw:
    return new_object(PVC, name, "ns", spec={}, **rest)


def an_image(name: str, storage_class: str = "", namespace: str = "ns", **spec: Any) -> Raw:
    plain = {"displayName": name, "sourceType": "download", "url": f"https://example.org/{name}.qcow2"}
    status = {"storageClassName": storage_class} if storage_class else {}
    return new_object(kinds.IMAGE, name, namespace, spec={**plain, **spec}, status=status)


def listers_of(*objects: Raw, ratio: str = "1.5", overcommit_cpu: int = 1000) -> Listers:
    """The default settings, class `fast`, network `ns/net` on cluster network `mgmt`, and `objects`."""
    settings = []
    for name, default in SETTINGS.items():
        raw = new_object(kinds.SETTING, name, value="", default=default)
        if name == "additional-guest-memory-overhead-ratio":
            raw["default"] = ratio
        if name == "overcommit-config":
            raw["default"] = f'{{"cpu":{overcommit_cpu},"memory":150,"storage":100}}'
        settings.append(raw)
    network = render_network("ns", "net", 50, Lan("192.168.50.0/24"))
    return static_listers([*settings, render_storage_class("fast"), network, *objects])


def static_listers(objects: Iterable[Raw]) -> Listers:
    """Listers over exactly `objects`."""
    maps = {(kind.api_version, kind.kind): name for name, kind in WATCHED_KINDS}
    found: dict[str, dict[Key, Raw]] = defaultdict(dict)
    for raw in objects:
        found[maps[raw["apiVersion"], raw["kind"]]][key_of(raw)] = raw
    return Listers(
        **found,
        vms_by_claim=_index(found["vms"].values(), claims_of_vm),
        vms_by_mac=_index(found["vms"].values(), macs_of_vm),
        vmis_by_claim=_index(found["instances"].values(), claims_of_vmi),
    )


def _index(vms: Iterable[Raw], keys: Callable[[Raw], list[Key]]) -> dict[Key, set[Key]]:
    made: dict[Key, set[Key]] = defaultdict(set)
    for vm in vms:
        for key in keys(vm):
            made[key].add(key_of(vm))
    return made
