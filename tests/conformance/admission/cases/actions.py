"""Actions on VirtualMachines and their instances: start, stop, restart, migrate, volumes added and removed, softreboot."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from tests.conformance.admission.asking import Question
from tests.conformance.admission.world import ClusterDump

from windrow.emulator import kinds
from windrow.kubernetes.objects import Raw

# Options, by the action; each is sent as a dry run.
POWER: Mapping[str, Mapping[str, Raw | None]] = {
    "start": {"plain": {}, "paused": {"paused": True}, "paused a text": {"paused": "yes"}},
    "stop": {
        "plain": {},
        "grace 0": {"gracePeriod": 0},
        "grace 5": {"gracePeriod": 5},
        "grace of an hour": {"gracePeriod": 3600},
        "grace a text": {"gracePeriod": "5"},
        "grace a fraction": {"gracePeriod": 1.5},
    },
    "restart": {
        "plain": {},
        "grace 0": {"gracePeriodSeconds": 0},
        "grace 5": {"gracePeriodSeconds": 5},
        "grace negative": {"gracePeriodSeconds": -1},
        "grace a text": {"gracePeriodSeconds": "0"},
    },
    "migrate": {
        "plain": {},
        "node selector": {"addedNodeSelector": {"a": "b"}},
        "node selector a text": {"addedNodeSelector": "a"},
    },
}


def _volume(name: str, claim: str, bus: str = "scsi", **more: Any) -> Raw:
    return {
        "name": name,
        "disk": {"disk": {"bus": bus}},
        "volumeSource": {"persistentVolumeClaim": {"claimName": claim}},
        **more,
    }


def _without(raw: Raw, key: str) -> Raw:
    return {name: value for name, value in raw.items() if name != key}


def _volumes(vm: str) -> Mapping[str, Mapping[str, Raw | None]]:
    added = _volume("extra", "free")
    return {
        "addvolume": {
            "plain": added,
            "no options": {},
            "no name": _without(added, "name"),
            "no disk": _without(added, "disk"),
            "no source": _without(added, "volumeSource"),
            "name of another": _volume("disk-0", "free"),
            "claim of another disk": _volume("extra", f"{vm}-disk-0"),
            "claim of another machine": _volume("extra", "running-disk-0" if vm != "running" else "stopped-disk-0"),
            "claim missing": _volume("extra", "gone"),
            "bus virtio": _volume("extra", "free", "virtio"),
            "bus sata": _volume("extra", "free", "sata"),
            "bus usb": _volume("extra", "free", "usb"),
            "bus unknown": _volume("extra", "free", "warp"),
            "lun": {**added, "disk": {"lun": {"bus": "scsi"}}},
            "cd-rom": {**added, "disk": {"cdrom": {"bus": "sata"}}},
            "data volume": {**added, "volumeSource": {"dataVolume": {"name": "free"}}},
            "serial": {**added, "disk": {"disk": {"bus": "scsi"}, "serial": "abc"}},
            "boot order": {**added, "disk": {"disk": {"bus": "scsi"}, "bootOrder": 1}},
            "name a number": {**added, "name": 1},
        },
        "removevolume": {
            "no options": {},
            "plain": {"name": "disk-0"},
            "cloud-init": {"name": "cloudinitdisk"},
            "missing": {"name": "gone"},
            "name a number": {"name": 1},
        },
    }  # fmt: skip


def questions(world: ClusterDump) -> Iterator[Question]:
    machines = [world.get(kinds.VM, name) for name in ("running", "stopped", "manual", "always", "once")]
    missing = {
        "apiVersion": "kubevirt.io/v1",
        "kind": "VirtualMachine",
        "metadata": {"name": "gone", "namespace": "default"},
    }
    for vm in (*machines, missing):
        name = vm["metadata"]["name"]
        for action, table in {**POWER, **_volumes(name)}.items():
            for case, options in table.items():
                yield Question(
                    f"{action} {name}: {case}", "action", kinds.VM_SUBRESOURCES, options, vm, action
                )
    for name in ("running", "gone"):
        vmi = {
            **missing,
            "kind": "VirtualMachineInstance",
            "metadata": {"name": name, "namespace": "default"},
        }
        for action, case, options in (
            ("addvolume", "plain", _volume("extra", "free")),
            ("removevolume", "plain", {"name": "disk-0"}),
        ):
            question = f"{action} instance {name}: {case}"
            yield Question(question, "action", kinds.VMI_SUBRESOURCES, options, vmi, action)
