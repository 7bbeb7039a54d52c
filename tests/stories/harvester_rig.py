"""A simulated Harvester on a driven clock, and the objects that its clients create."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

from tests.blank_machine import BlankMachine
from tests.support.clock import LoopClock

from windrow.core.formats.json import dumps
from windrow.core.rng import Rng
from windrow.emulator import kinds
from windrow.emulator.guest_os.hardware import Hardware, HostInterface
from windrow.emulator.harvester import Harvester
from windrow.emulator.preload import Image, VmNetwork
from windrow.kubernetes.objects import Raw, nested
from windrow.kubernetes.requests import put_subresource
from windrow.kubernetes.resources import ObjectRef

NAMESPACE = "default"
IMAGE = "default/jammy"
NETWORK = "default/vlan50"


def blank(hardware: Hardware, host: HostInterface) -> BlankMachine:
    return BlankMachine(hardware, host, agent=True)


@asynccontextmanager
async def a_harvester(
    seed: int = 7, *, machine: Callable[[Hardware, HostInterface], Any] = blank, **rest: Any
) -> AsyncIterator[Harvester]:
    """A Harvester with preloaded image and network, until the block ends."""
    harvester = Harvester(LoopClock(), Rng(seed), machine_factory=machine, **rest)
    async with asyncio.TaskGroup() as tasks:
        running = tasks.create_task(harvester.run())
        await harvester.preload(
            images=[Image(IMAGE)], networks=[VmNetwork(NETWORK, vlan=50, cidr="192.168.50.0/24")]
        )
        yield harvester
        running.cancel()


def a_vm(
    name: str = "m-1",
    *,
    storage_class: str = "harvester-longhorn",
    image: str = "",
    strategy: str = "RerunOnFailure",
    memory: str = "4Gi",
    cores: int = 2,
    network: str = NETWORK,
    user_data: str = "#cloud-config\n",
    secret: str = "",
    labels: dict[str, str] | None = None,
    **annotations: str,
) -> Raw:
    """A VM as the node driver posts one, with one disk and one card."""
    claim = f"{name}-disk-0-abcde"
    labels = {
        "harvesterhci.io/creator": "docker-machine-driver-harvester",
        "harvesterhci.io/vmName": name,
        **(labels or {}),
    }
    source: Raw = {"secretRef": {"name": secret}} if secret else {"userData": user_data}
    template = {
        "metadata": {"name": claim, "annotations": {"harvesterhci.io/imageId": image} if image else {}},
        "spec": {
            "accessModes": ["ReadWriteMany"],
            "resources": {"requests": {"storage": "40Gi"}},
            "storageClassName": storage_class,
            "volumeMode": "Block",
        },
    }
    spec: Raw = {
        "domain": {
            "cpu": {"cores": cores, "sockets": 1, "threads": 1},
            "resources": {"limits": {"cpu": str(cores), "memory": memory}},
            "devices": {
                "disks": [
                    {"name": "cloudinitdisk", "disk": {"bus": "virtio"}},
                    {"name": "disk-0", "disk": {"bus": "virtio"}, "bootOrder": 1},
                ],
                "interfaces": [{"name": "nic-0", "model": "virtio", "bridge": {}}],
            },
        },
        "networks": [{"name": "nic-0", "multus": {"networkName": network}}],
        "volumes": [
            {"name": "cloudinitdisk", "cloudInitNoCloud": source},
            {"name": "disk-0", "persistentVolumeClaim": {"claimName": claim}},
        ],
    }
    return {
        "apiVersion": "kubevirt.io/v1",
        "kind": "VirtualMachine",
        "metadata": {
            "name": name,
            "namespace": NAMESPACE,
            "labels": labels,
            "annotations": {
                "harvesterhci.io/volumeClaimTemplates": dumps([template]).decode(),
                **annotations,
            },
        },
        "spec": {"runStrategy": strategy, "template": {"metadata": {"labels": labels}, "spec": spec}},
    }


def vm_ref(name: str = "m-1") -> ObjectRef:
    return kinds.VM.ref(name, NAMESPACE)


def vmi_ref(name: str = "m-1") -> ObjectRef:
    return kinds.VMI.ref(name, NAMESPACE)


async def eventually(
    harvester: Harvester, ref: ObjectRef, holds: Callable[[Raw | None], Any], within_s: float = 600
) -> Raw | None:
    """The object once `holds` of it (None: it is gone). Fails when simulated time runs out."""
    line, clock = harvester.api.local(), harvester.clock.base
    end = clock.now() + timedelta(seconds=within_s)
    while True:
        found = await line.find(ref)
        if holds(found):
            return found
        assert clock.now() < end, f"{ref} never got there; last seen: {found}"
        await clock.sleep_until(clock.now() + timedelta(seconds=0.5))


async def post(harvester: Harvester, **vm: Any) -> Raw:
    """Create `a_vm` whose disk is made from the stocked image."""
    line = harvester.api.local()
    image = await line.get(kinds.IMAGE.ref("jammy", NAMESPACE))
    vm.setdefault("image", IMAGE)
    vm.setdefault("storage_class", image["status"]["storageClassName"])
    return await line.create(kinds.VM, a_vm(**vm))


async def boot(harvester: Harvester, **vm: Any) -> Raw:
    """`post`, and wait for the machine's address; the instance."""
    name = (await post(harvester, **vm))["metadata"]["name"]
    found = await eventually(harvester, vmi_ref(name), has_address)
    assert found is not None
    return found


def shows(status: str) -> Callable[[Raw | None], bool]:
    return lambda vm: nested(vm, "status", "printableStatus") == status


def has_address(vmi: Raw | None) -> bool:
    return bool(nested(vmi, "status", "interfaces", 0, "ipAddress"))


def is_gone(raw: Raw | None) -> bool:
    return raw is None


async def order(harvester: Harvester, verb: str, name: str = "m-1", **options: Any) -> int:
    """Send a subresource order and return the answer's status."""
    ref = kinds.VM_SUBRESOURCES.ref(name, NAMESPACE)
    reply = await harvester.api.local().send(put_subresource(ref, verb, options or None))
    return reply.status
