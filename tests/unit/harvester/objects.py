"""Raw objects as a Harvester would show them; tests change what differs."""

from __future__ import annotations

from typing import Any

Raw = dict[str, Any]


def a_raw_image(**status: Any) -> Raw:
    return {
        "metadata": {"name": "image-1", "namespace": "default"},
        "spec": {"displayName": "jammy.img", "url": "https://example.org/jammy.img"},
        "status": {
            "progress": 100,
            "size": 1000,
            "virtualSize": 10 * 2**30,
            "storageClassName": "lh-image-1",
            "conditions": [{"type": "Imported", "status": "True", "reason": "Imported"}],
            **status,
        },
    }


def a_raw_vmi(*interfaces: Raw, **status: Any) -> Raw:
    return {
        "metadata": {
            "name": "vm",
            "namespace": "default",
            "uid": "vmi-1",
            "annotations": {"topology.kubernetes.io/zone": "z1", "topology.kubernetes.io/region": "r1"},
            "ownerReferences": [{"kind": "VirtualMachine", "name": "vm", "uid": "vm-1", "controller": True}],
        },
        "spec": {"domain": {"devices": {"interfaces": [{"name": "nic-0"}, {"name": "nic-1"}]}}},
        "status": {"phase": "Running", "nodeName": "host-1", "interfaces": list(interfaces), **status},
    }
