"""Volumes of a guest cluster from their claims on: side-cars that call Windrow's CSI driver, which asks Harvester."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest
from tests.support.clock import run_driven

from windrow.emulator.guest_cluster.csi.kinds import PV, SNAPSHOT
from windrow.emulator.guest_os.hardware import File
from windrow.emulator.guest_os.machine import GuestMachine
from windrow.kubernetes.objects import Raw, name_of, nested, new_object
from windrow.kubernetes.resources import EVENT, PVC, STORAGE_CLASS, VOLUME_ATTACHMENT

from .cluster_rig import compare
from .guest_storage_rig import GuestStorage, a_guest

GIB = 2**30
STAGING, TARGET = "/var/lib/kubelet/plugins/staged", "/var/lib/kubelet/pods/data/mount"


class Narrator:
    """Writes down what is different in the guest and on Harvester after each step, and when it was so."""

    def __init__(self, guest: GuestStorage) -> None:
        self.guest, self.lines = guest, list[str]()
        self._last: dict[str, str] = {}
        self._began = guest.clock.monotonic()

    def log(self, text: str) -> None:
        passed = (self.guest.clock.monotonic() - self._began).total_seconds()
        self.lines.append(f"{passed:6.1f}s  {text}")

    async def step(self, what: str, work: Awaitable[object], until: Callable[[], object]) -> None:
        self.lines.append(f"== {what}")
        await work
        await self.guest.until(until, what)
        found = await self.guest.observe()
        for key in sorted({*found, *self._last}):
            if found.get(key) != self._last.get(key):
                self.log(f"{key}: {found.get(key, 'absent')}")
        self._last = found


async def publish(guest: GuestStorage, claim: str, node: str) -> None:
    """What the kubelet does for a pod with the volume."""
    volume = await guest.volume_of(claim)
    attachment = await guest.client.get(VOLUME_ATTACHMENT.ref(f"csi-{claim}-{node}"))
    request = {
        "volume_id": volume["spec"]["csi"]["volumeHandle"],
        "publish_context": nested(attachment, "status", "attachmentMetadata", default={}),
        "staging_target_path": STAGING,
        "volume_capability": {
            "mount": {"fs_type": volume["spec"]["csi"]["fsType"]},
            "access_mode": {"mode": "SINGLE_NODE_MULTI_WRITER"},
        },
        "volume_context": volume["spec"]["csi"]["volumeAttributes"],
    }
    call = guest.node(node)
    await call("NodeStageVolume", request)
    await call("NodePublishVolume", {**request, "target_path": TARGET})


async def unpublish(guest: GuestStorage, claim: str, node: str) -> None:
    handle, call = (await guest.volume_of(claim))["spec"]["csi"]["volumeHandle"], guest.node(node)
    await call("NodeUnpublishVolume", {"volume_id": handle, "target_path": TARGET})
    await call("NodeUnstageVolume", {"volume_id": handle, "staging_target_path": STAGING})


def files_of(guest: GuestStorage, node: str) -> dict[str, File]:
    """The files that a pod with the volume sees."""
    running = guest.harvester.hypervisor.running_machines()
    machine = next(one.machine for one in running if one.key == ("default", node))
    assert isinstance(machine, GuestMachine)
    assert machine.guest is not None
    mounted = machine.guest.storage.mounts.find(TARGET)
    assert mounted is not None
    return mounted.disk.files


async def expand(guest: GuestStorage, claim: str, size: str) -> None:
    asked = {"spec": {"resources": {"requests": {"storage": size}}}}
    await guest.client.patch(PVC.ref(claim, "default"), asked)


async def is_pending_on_node(guest: GuestStorage, claim: str) -> bool:
    found = await guest.client.get(PVC.ref(claim, "default"))
    conditions = nested(found, "status", "conditions", default=[])
    return any(one["type"] == "FileSystemResizePending" for one in conditions)


async def take_snapshot(guest: GuestStorage, name: str, claim: str) -> None:
    spec = {"source": {"persistentVolumeClaimName": claim}}
    await guest.client.create(SNAPSHOT, new_object(SNAPSHOT, name, "default", spec=spec), "default")


async def is_snapshot_ready(guest: GuestStorage, name: str) -> bool:
    found = await guest.client.get(SNAPSHOT.ref(name, "default"))
    return bool(nested(found, "status", "readyToUse", default=False))


async def is_nothing_left(guest: GuestStorage, *claims: str) -> bool:
    found = await guest.observe()
    return not any(f"<{claim}>" in text for claim in claims for pair in found.items() for text in pair)


def test_a_claim_is_provisioned_attached_expanded_copied_and_deleted():
    async def story() -> list[str]:
        async with a_guest() as guest:
            await guest.boot("one")
            await guest.wait_for_driver("one")
            told, client = Narrator(guest), guest.client
            await told.step("a claim", guest.claim("data"), lambda: guest.is_bound("data"))
            await told.step("attached", guest.attach("data", "one"), lambda: guest.is_attached("data", "one"))
            await publish(guest, "data", "one")
            files_of(guest, "one")["/hello"] = File(b"world")
            await told.step(
                "expanded", expand(guest, "data", "2Gi"), lambda: is_pending_on_node(guest, "data")
            )
            handle = (await guest.volume_of("data"))["spec"]["csi"]["volumeHandle"]
            grown = await guest.node("one")("NodeExpandVolume", {"volume_id": handle, "volume_path": TARGET})
            told.log(f"the node says {grown['capacity_bytes'] / GIB} GiB")
            stats = await guest.node("one")(
                "NodeGetVolumeStats", {"volume_id": handle, "volume_path": TARGET}
            )
            told.log(
                f"the filesystem has {stats['usage'][0]['total'] / GIB} GiB, {stats['usage'][0]['used']} bytes used"
            )
            await told.step(
                "a snapshot",
                take_snapshot(guest, "before", "data"),
                lambda: is_snapshot_ready(guest, "before"),
            )
            source: Raw = {"apiGroup": SNAPSHOT.group, "kind": "VolumeSnapshot", "name": "before"}
            restore = guest.claim("restored", "2Gi", dataSource=source)
            await told.step("restored", restore, lambda: guest.is_bound("restored"))
            clone = guest.claim("cloned", "2Gi", dataSource={"kind": "PersistentVolumeClaim", "name": "data"})
            await told.step("cloned", clone, lambda: guest.is_bound("cloned"))
            await unpublish(guest, "data", "one")
            await told.step("detached", guest.detach("data", "one"), lambda: is_gone(guest, "csi-data-one"))
            for claim in ("restored", "cloned"):
                told.log(f"{claim} holds {await read_on(guest, claim, 'one')}")
            snapshot = client.delete(SNAPSHOT.ref("before", "default"))
            await told.step("the snapshot deleted", snapshot, lambda: no_snapshot(guest))
            for claim in ("data", "restored", "cloned"):
                await client.delete(PVC.ref(claim, "default"))
            names = ("data", "restored", "cloned")
            await told.step("the claims deleted", pass_time(), lambda: is_nothing_left(guest, *names))
            return told.lines

    compare("guest-volumes", run_driven(story()))


async def read_on(guest: GuestStorage, claim: str, node: str) -> str:
    """What is in the volume, read by a pod on the node."""
    await guest.attach(claim, node)
    await guest.until(lambda: guest.is_attached(claim, node), claim)
    await publish(guest, claim, node)
    found = files_of(guest, node)["/hello"].content.decode()
    await unpublish(guest, claim, node)
    await guest.detach(claim, node)
    return found


async def pass_time() -> None:
    pass


async def is_gone(guest: GuestStorage, attachment: str) -> bool:
    return await guest.client.find(VOLUME_ATTACHMENT.ref(attachment)) is None


async def no_snapshot(guest: GuestStorage) -> bool:
    return not await guest.client.list(SNAPSHOT, "default")


@pytest.mark.long
def test_the_data_of_a_volume_follow_it_to_another_node():
    async def story() -> None:
        async with a_guest() as guest:
            address = await guest.boot("one")
            await guest.boot("two", address)
            await guest.wait_for_driver("one", "two")
            await guest.claim("data")
            await guest.until(lambda: guest.is_bound("data"), "bound")
            await guest.attach("data", "one")
            await guest.until(lambda: guest.is_attached("data", "one"), "attached")
            await publish(guest, "data", "one")
            files_of(guest, "one")["/hello"] = File(b"world")
            await unpublish(guest, "data", "one")
            await guest.detach("data", "one")
            await guest.attach("data", "two")
            await guest.until(lambda: guest.is_attached("data", "two"), "attached to the other node")
            await publish(guest, "data", "two")
            assert files_of(guest, "two")["/hello"].content == b"world"
            assert (await guest.observe())["VM one"] == "no volume"

    run_driven(story())


def test_a_claim_that_is_deleted_while_its_volume_is_made_leaves_nothing():
    async def story() -> None:
        async with a_guest() as guest:
            await guest.boot("one")
            await guest.wait_for_driver("one")
            await guest.claim("data")
            await guest.until(lambda: is_asked_for(guest), "the provisioner has asked Harvester")
            await guest.client.delete(PVC.ref("data", "default"))
            await guest.until(lambda: is_nothing_left(guest, "data"), "nothing left")
            assert not await guest.client.list(PV)
            names = [name_of(raw) for raw in await guest.host.list(PVC, "default")]
            assert not [name for name in names if name.startswith("pvc-")]

    run_driven(story())


async def is_asked_for(guest: GuestStorage) -> bool:
    return any(name_of(raw).startswith("pvc-") for raw in await guest.host.list(PVC, "default"))


def test_a_volume_of_a_class_that_retains_stays_released():
    async def story() -> None:
        async with a_guest() as guest:
            await guest.boot("one")
            await guest.wait_for_driver("one")
            kept = new_object(
                STORAGE_CLASS, "kept", provisioner="driver.harvesterhci.io", reclaimPolicy="Retain"
            )
            await guest.client.create(STORAGE_CLASS, kept)
            await guest.claim("data", storageClassName="kept")
            await guest.until(lambda: guest.is_bound("data"), "bound")
            volume = name_of(await guest.volume_of("data"))
            await guest.client.delete(PVC.ref("data", "default"))
            await guest.until(lambda: is_released(guest, volume), "released")
            assert await guest.host.find(PVC.ref(volume, "default")) is not None

    run_driven(story())


async def is_released(guest: GuestStorage, volume: str) -> bool:
    found = await guest.client.get(PV.ref(volume))
    return bool(nested(found, "status", "phase") == "Released")


def test_the_node_of_a_claim_that_waits_for_its_consumer_is_chosen_first():
    async def story() -> None:
        async with a_guest() as guest:
            await guest.boot("one")
            await guest.wait_for_driver("one")
            late = new_object(
                STORAGE_CLASS,
                "late",
                provisioner="driver.harvesterhci.io",
                volumeBindingMode="WaitForFirstConsumer",
            )
            await guest.client.create(STORAGE_CLASS, late)
            await guest.claim("data", storageClassName="late")
            await guest.until(lambda: has_event(guest, "WaitForFirstConsumer"), "an event")
            assert await guest.phase("data") == "Pending"
            marks = {"metadata": {"annotations": {"volume.kubernetes.io/selected-node": "one"}}}
            await guest.client.patch(PVC.ref("data", "default"), marks)
            await guest.until(lambda: guest.is_bound("data"), "bound")

    run_driven(story())


async def has_event(guest: GuestStorage, reason: str) -> bool:
    return any(raw["reason"] == reason for raw in await guest.client.list(EVENT, "default"))
