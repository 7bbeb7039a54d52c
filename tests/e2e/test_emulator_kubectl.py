"""kubectl as a client of the emulated Harvester."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from tests.blank_machine import BlankMachine

from windrow.app.clock import SystemClock
from windrow.core.formats.json import dumps
from windrow.core.rng import Rng
from windrow.emulator.harvester import Harvester
from windrow.emulator.preload import Image, VmNetwork
from windrow.emulator.proxy import serve

pytestmark = pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not installed")

VM = {
    "apiVersion": "kubevirt.io/v1",
    "kind": "VirtualMachine",
    "metadata": {
        "name": "m-1",
        "namespace": "default",
        "annotations": {
            "harvesterhci.io/volumeClaimTemplates": dumps(
                [
                    {
                        "metadata": {
                            "name": "m-1-disk",
                            "annotations": {"harvesterhci.io/imageId": "default/jammy"},
                        },
                        "spec": {
                            "accessModes": ["ReadWriteMany"],
                            "volumeMode": "Block",
                            "resources": {"requests": {"storage": "10Gi"}},
                        },
                    }
                ]
            ).decode()
        },
    },
    "spec": {
        "runStrategy": "RerunOnFailure",
        "template": {
            "spec": {
                "domain": {
                    "cpu": {"cores": 2},
                    "resources": {"limits": {"cpu": "2", "memory": "4Gi"}},
                    "devices": {
                        "disks": [{"name": "disk", "disk": {"bus": "virtio"}}],
                        "interfaces": [{"name": "nic", "bridge": {}}],
                    },
                },
                "networks": [{"name": "nic", "multus": {"networkName": "default/lan"}}],
                "volumes": [{"name": "disk", "persistentVolumeClaim": {"claimName": "m-1-disk"}}],
            }
        },
    },
}


class Kubectl:
    """kubectl with a home of its own, so that no earlier discovery is remembered."""

    def __init__(self, home: Path, kubeconfig: str) -> None:
        (home / "kubeconfig").write_text(kubeconfig)
        self._env = {"PATH": os.environ["PATH"], "HOME": str(home), "KUBECONFIG": str(home / "kubeconfig")}

    async def __call__(self, *arguments: str, given: str = "") -> tuple[int, str]:
        process = await asyncio.create_subprocess_exec(
            "kubectl",
            *arguments,
            env=self._env,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        out, _ = await process.communicate(given.encode())
        return process.returncode or 0, out.decode()


@asynccontextmanager
async def emulated_harvester(home: Path) -> AsyncIterator[Kubectl]:
    harvester = Harvester(
        SystemClock(),
        Rng(3),
        machine_factory=lambda hardware, wires: BlankMachine(hardware, wires, agent=True),
        time_scale=100,
    )
    async with asyncio.TaskGroup() as tasks:
        running = tasks.create_task(harvester.run())
        async with serve(harvester) as served:
            await harvester.preload(images=[Image("default/jammy")], networks=[VmNetwork("default/lan")])
            yield Kubectl(home, served.kubeconfig)
        running.cancel()


async def test_a_machine_is_applied_seen_described_restarted_and_deleted(tmp_path: Path) -> None:
    async with emulated_harvester(tmp_path) as kubectl:
        assert await kubectl("apply", "-f", "-", given=dumps(VM).decode()) == (
            0,
            "virtualmachine.kubevirt.io/m-1 created\n",
        )
        ready = ("wait", "vm/m-1", "--for=condition=Ready", "--timeout=30s")
        assert (await kubectl(*ready))[0] == 0
        assert (await kubectl("wait", "vmi/m-1", "--for=condition=AgentConnected", "--timeout=30s"))[0] == 0

        _, vms = await kubectl("get", "vms")
        assert vms.splitlines()[0].split() == ["NAME", "AGE", "STATUS", "READY"]
        assert vms.splitlines()[1].split()[2:] == ["Running", "True"]
        _, vmis = await kubectl("get", "vmi", "-o", "wide")
        assert vmis.splitlines()[0].split() == [
            "NAME",
            "AGE",
            "PHASE",
            "IP",
            "NODENAME",
            "READY",
            "LIVE-MIGRATABLE",
            "PAUSED",
        ]
        assert vmis.splitlines()[1].split()[2:4] == ["Running", "192.168.50.20"]
        _, described = await kubectl("describe", "vm", "m-1")
        assert "Started the virtual machine by creating the new virtual machine instance m-1" in described
        shape = ("get", "vm", "m-1", "-o", "jsonpath={.metadata.generation}{.spec}")
        _, before = await kubectl(*shape)
        assert (await kubectl("apply", "-f", "-", given=dumps(VM).decode()))[0] == 0
        _, again = await kubectl(*shape)
        # An observed address is left to the instance where the template has none.
        assert [text.count("macAddress") for text in (before, again)] == [1, 0]
        assert (await kubectl("apply", "-f", "-", given=dumps(VM).decode()))[0] == 0
        assert (await kubectl(*shape))[1] == again

        assert (await kubectl("delete", "vm", "m-1", "--timeout=60s"))[0] == 0
        _, left = await kubectl("get", "vm,vmi,pods")
        assert left.strip() == "No resources found in default namespace."
        _, claims = await kubectl("get", "pvc", "-o", "name")
        assert claims == "persistentvolumeclaim/m-1-disk\n"


async def test_a_refusal_reaches_the_person_in_harvesters_words(tmp_path: Path) -> None:
    broken = {**VM, "spec": {**VM["spec"], "template": {"spec": {"domain": {"devices": {}}}}}}
    async with emulated_harvester(tmp_path) as kubectl:
        code, said = await kubectl("create", "-f", "-", given=dumps(broken).decode())

    assert code == 1
    # kubectl prints the causes of a 422 that carries no name, as Harvester's do.
    assert said.startswith("The request is invalid: ")
    assert "either memory.guest or resources.limits.memory must be set" in said


async def test_the_orders_are_discovered(tmp_path: Path) -> None:
    async with emulated_harvester(tmp_path) as kubectl:
        _, listed = await kubectl("get", "--raw", "/apis/subresources.kubevirt.io/v1alpha3")
        _, versions = await kubectl("api-versions")
        _, may = await kubectl("auth", "can-i", "update", "virtualmachines.subresources.kubevirt.io/start")

    assert '"virtualmachines/start"' in listed
    assert {"subresources.kubevirt.io/v1", "subresources.kubevirt.io/v1alpha3"} <= set(versions.split())
    assert may.strip().endswith("yes")
