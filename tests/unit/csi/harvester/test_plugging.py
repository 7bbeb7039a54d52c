"""In which of two ways a Harvester is asked to change the disks of a VM."""

from __future__ import annotations

import asyncio
import logging
from datetime import timedelta
from typing import Any

import pytest
from tests.support.clock import LoopClock, run_driven

from windrow.client.client import Client
from windrow.core.clock import sleep
from windrow.core.formats.json import dumps, loads
from windrow.csi.harvester.disks import DiskChange, read_vm
from windrow.csi.harvester.plugging import Plugin, takes_patches
from windrow.kubernetes.errors import Forbidden
from windrow.kubernetes.requests import Reply, Request

VM: dict[str, Any] = {
    "metadata": {"name": "node-1", "resourceVersion": "7"},
    "spec": {"template": {"spec": {"volumes": [], "domain": {"devices": {"disks": []}}}}},
}
ATTACH = DiskChange("pvc-1", "attach")


class Host:
    """Answers for the setting server-version, and takes every change; patches only where it does not `forbid` them."""

    def __init__(self, setting: dict[str, str], forbids: str = "") -> None:
        self.setting, self.forbids = setting, forbids
        self.calls: list[str] = []
        self.bodies: list[Any] = []

    async def send(self, request: Request) -> Reply:
        self.calls.append(f"{request.method} {request.path.rpartition('/')[2]}")
        if request.method == "GET":
            return Reply(200, dumps({"metadata": {"name": "server-version"}, **self.setting}))
        if request.method == "PATCH" and self.forbids:
            status = {"kind": "Status", "code": 403, "reason": "Forbidden", "message": self.forbids}
            return Reply(403, dumps(status))
        self.bodies.append(loads(request.body or b"{}"))
        return Reply(200, dumps({"metadata": {"name": "node-1", "resourceVersion": "8"}}))


def calls(host: Host, *pauses_s: float) -> list[str]:
    """The requests of an attachment, and of one more after each pause."""

    async def story() -> None:
        clock = LoopClock()
        plugin = Plugin(Client(host), "default", clock, logging.getLogger("x"))  # type: ignore[arg-type]
        for pause_s in (0, *pauses_s):
            await sleep(clock, timedelta(seconds=pause_s))
            await plugin(VM, [ATTACH])

    run_driven(story())
    return host.calls


@pytest.mark.parametrize(
    ("version", "is_patched"),
    [
        ("v1.8.0", True),
        ("v1.8.2", True),
        ("v1.10.0", True),
        ("v2.0.0", True),
        ("v1.7.9", False),
        ("v1.4.1", False),
        ("v0.9.0", False),
        ("master-0a1b2c3d-head", True),
        ("", True),
    ],
)
def test_disks_are_patched_from_harvester_1_8_on(version: str, is_patched: bool) -> None:
    assert takes_patches(version) is is_patched


@pytest.mark.parametrize(
    ("setting", "call"),
    [
        ({"value": "v1.8.2", "default": "v1.7.0"}, "PATCH node-1"),
        ({"value": "", "default": "v1.7.0"}, "PUT addvolume"),
        ({"default": "v1.7.0"}, "PUT addvolume"),
        ({"value": "v1.7.1", "default": "v1.8.0"}, "PUT addvolume"),
        ({}, "PATCH node-1"),
    ],
)
def test_the_version_is_the_value_of_the_setting_or_its_default(setting: dict[str, str], call: str) -> None:
    assert calls(Host(setting)) == ["GET server-version", call]


def test_the_version_is_asked_for_again_after_ten_minutes() -> None:
    found = calls(Host({"value": "v1.8.2"}), 599, 2)

    assert found == [
        "GET server-version",
        "PATCH node-1",
        "PATCH node-1",
        "GET server-version",
        "PATCH node-1",
    ]


def test_where_patches_are_forbidden_the_subresource_is_used_for_ten_minutes() -> None:
    found = calls(Host({"value": "v1.8.2"}, "no right to patch"), 599, 2)

    forbidden = ["PATCH node-1", "PUT addvolume"]
    assert found == ["GET server-version", *forbidden, "PUT addvolume", "GET server-version", *forbidden]


def test_a_quota_is_a_refusal_of_the_volume_and_not_of_the_patch() -> None:
    host = Host({"value": "v1.8.2"}, "exceeded quota: pods")

    with pytest.raises(Exception, match="exceeded quota"):
        calls(host)

    assert host.calls == ["GET server-version", "PATCH node-1"]


def test_each_change_is_a_request_of_its_own_to_the_subresources() -> None:
    host = Host({"value": "v1.7.1"})

    async def story() -> Any:
        plugin = Plugin(Client(host), "default", LoopClock(), logging.getLogger("x"))  # type: ignore[arg-type]
        made = await plugin(
            VM, [DiskChange("pvc-2", "detach"), DiskChange("pvc-1", "attach", read_only=True)]
        )
        await plugin.remove_from_instance("node-1", "pvc-3")
        await asyncio.sleep(0)
        return made

    assert run_driven(story()) is None
    removed, added, unplugged = host.bodies
    assert host.calls == ["GET server-version", "PUT removevolume", "PUT addvolume", "PUT removevolume"]
    assert (removed, unplugged) == ({"name": "pvc-2"}, {"name": "pvc-3"})
    assert added["name"] == added["disk"]["name"] == "pvc-1"
    assert added["disk"]["disk"] == {"bus": "scsi", "readonly": True}
    assert added["volumeSource"] == {"persistentVolumeClaim": {"claimName": "pvc-1", "hotpluggable": True}}


def add(host: Host) -> bool:
    """Add a volume to a VM that is known; whether Harvester was asked to."""

    async def story() -> Any:
        plugin = Plugin(Client(host), "default", LoopClock(), logging.getLogger("x"))  # type: ignore[arg-type]
        return await plugin.add(read_vm(VM), [ATTACH])

    return run_driven(story()) is not None


def test_a_volume_is_added_to_a_known_vm_by_a_patch_alone():
    host, older = Host({"value": "v1.8.0"}), Host({"value": "v1.7.1"})
    forbidding = Host({"value": "v1.8.0"}, forbids="may not patch")

    assert add(host)
    assert host.calls == ["GET server-version", "PATCH node-1"]
    assert not add(older)
    assert older.calls == ["GET server-version"]
    assert not add(forbidding)
    assert forbidding.calls == ["GET server-version", "PATCH node-1"]


def test_a_quota_that_is_exceeded_is_no_missing_right():
    with pytest.raises(Forbidden, match="exceeded quota"):
        add(Host({"value": "v1.8.0"}, forbids="exceeded quota: q"))
