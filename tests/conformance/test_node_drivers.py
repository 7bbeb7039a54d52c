"""The catalogue with the Go driver for Harvester, whose binary WINDROW_GO_NODE_DRIVER names."""

from __future__ import annotations

import asyncio
import os
import platform
import sys
from pathlib import Path

import pytest
from tests.conformance.node_driver_versions import version_of
from tests.unit.drivers.files import sha256

from windrow.apiserver.storage.memory import MemoryStore
from windrow.app.clock import SystemClock
from windrow.app.embedded import install_crds, management_api
from windrow.app.loop import running
from windrow.app.machines import read_create_flags
from windrow.client.client import Client
from windrow.client.downloads import Downloader
from windrow.core.rng import Rng
from windrow.drivers.api import NODE_DRIVER, find_refusal
from windrow.drivers.archive import Platform
from windrow.drivers.controller import NodeDriverController
from windrow.drivers.store import DriverStore
from windrow.kubernetes.conditions import find_condition
from windrow.kubernetes.objects import new_object
from windrow.kubernetes.resources import CRD
from windrow.machines.plugin.process.sandbox import Sandbox
from windrow.nodedriver.schema import harvester_config_crd
from windrow.protocols.dockermachine import Flag

BINARY = os.environ.get("WINDROW_GO_NODE_DRIVER", "")
pytestmark = pytest.mark.skipif(not BINARY, reason="WINDROW_GO_NODE_DRIVER names no binary of the Go driver")


async def ask_flags(path: Path) -> tuple[Flag, ...]:
    return await read_create_flags(path, "gopher", {}, Sandbox((path,)))


def properties(crd: dict) -> dict:
    return crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]


async def test_its_flags_give_the_kind_that_we_have_for_it(tmp_path: Path):
    data = Path(BINARY).read_bytes()  # noqa: ASYNC240 - nothing else goes on
    (tmp_path / "docker-machine-driver-gopher").write_bytes(data)
    clock, rng = SystemClock(), Rng(1)
    api = management_api(MemoryStore(), clock, rng)
    client = Client(api.local())
    catalogue = NodeDriverController(
        client,
        DriverStore(tmp_path / "drivers", Platform(sys.platform, platform.machine())),
        Downloader().fetch,
        ask_flags,
        clock,
        rng,
        files_allowed=True,
        run_blocking=asyncio.to_thread,
    )
    async with running(api.run):
        await install_crds(client)
        async with running(catalogue.run), asyncio.timeout(90):
            url = (tmp_path / "docker-machine-driver-gopher").as_uri()
            spec = {"url": url, "checksum": sha256(data), "active": True}
            await client.create(NODE_DRIVER, new_object(NODE_DRIVER, "gopher", spec=spec))
            while find_refusal("GopherConfig", catalogue.drivers) is not None:
                raw = await client.get(NODE_DRIVER.ref("gopher"))
                active = find_condition((raw.get("status") or {}).get("conditions"), "Active")
                assert active is None or active.status != "False", active.message
                await asyncio.sleep(0.1)
            theirs = properties(await client.get(CRD.ref("gopherconfigs.rke-machine-config.cattle.io")))

    ours = properties(harvester_config_crd())
    version = version_of(Path(BINARY))
    added = {"addressPools"}  # of the cluster manager; a foreign driver's machines have addresses by DHCP
    assert list(theirs) == [name for name in ours if name not in version.fields | added]
    defaults = {
        "vmNamespace": "default",
        "cpuCount": "2",
        "memorySize": "4",
        "diskSize": "0",
        "sshUser": "root",
        "sshPort": "22",
        "reservedMemorySize": "-1",
    }
    assert {name: one["default"] for name, one in theirs.items() if "default" in one} == {
        name: text for name, text in defaults.items() if name not in version.fields
    }
