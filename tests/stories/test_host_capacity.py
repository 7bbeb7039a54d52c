"""Volumes for which the hosts of the emulated Harvester have no room: what Longhorn, Kubernetes and KubeVirt make of them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

from tests.support.clock import run_driven

from windrow.core.clock import sleep
from windrow.emulator import kinds
from windrow.emulator.harvester import Harvester
from windrow.emulator.host.nodes import HostSpec
from windrow.kubernetes.objects import Raw, annotations_of, is_deleting, nested
from windrow.kubernetes.resources import EVENT, PVC

from .harvester_rig import NAMESPACE, a_harvester, boot, eventually, is_gone, post, shows, vm_ref, vmi_ref
from .test_host_volumes import is_bound, longhorn_of, resize, volume_of
from .test_hotplug import a_claim, add_declared, is_ready, volume

DATA = PVC.ref("data", NAMESPACE)
ERROR = "longhorn.io/volume-scheduling-error"
NO_SPACE = "precheck new replica failed: insufficient storage"
# Each has room for the disk of one machine, 40Gi, and for 20Gi more.
TWO_HOSTS = [HostSpec(f"host-{number}", storage="60Gi") for number in (1, 2)]


def on_small_hosts(story: Callable[[Harvester], Awaitable[None]], **rest: Any) -> None:
    async def run() -> None:
        async with a_harvester(**{"hosts": TWO_HOSTS, **rest}) as harvester:
            await story(harvester)

    run_driven(run())


async def claim_data(harvester: Harvester, size: str) -> tuple[Raw, Raw]:
    """A bound claim, and Longhorn's own object of its volume."""
    await harvester.api.local().create(PVC, a_claim("data", size))
    claim = await eventually(harvester, DATA, is_bound, 30)
    assert claim is not None
    found = await eventually(
        harvester, longhorn_of(claim), lambda raw: nested(raw, "status", "conditions"), 10
    )
    assert found is not None
    return claim, found


def has_space(raw: Raw | None) -> bool:
    return ERROR not in annotations_of(raw or {})


def test_a_volume_larger_than_the_hosts_is_bound_and_cannot_be_plugged_in():
    async def story(harvester: Harvester) -> None:
        await boot(harvester)
        claim, longhorn = await claim_data(harvester, "100Ti")
        made = await harvester.api.local().get(volume_of(claim))
        assert annotations_of(made)[ERROR] == NO_SPACE
        (condition,) = longhorn["status"]["conditions"]
        assert condition == {
            "type": "Scheduled",
            "status": "False",
            "reason": "ReplicaSchedulingFailure",
            "message": NO_SPACE,
        }
        assert (longhorn["status"]["state"], longhorn["status"]["robustness"]) == ("detached", "unknown")

        await add_declared(harvester, "data")
        await sleep(harvester.clock.base, timedelta(minutes=2))
        vmi = await harvester.api.local().get(vmi_ref())
        assert volume(vmi, "data")["phase"] == "AttachedToNode", "its pod waits for the volume"

    on_small_hosts(story)


def test_a_machine_whose_disk_has_no_room_waits_and_starts_once_there_is_room():
    async def story(harvester: Harvester) -> None:
        line = harvester.api.local()
        claim, _ = await claim_data(harvester, "30Gi")
        await post(harvester)
        await sleep(harvester.clock.base, timedelta(minutes=2))
        vmi = await line.get(vmi_ref())
        assert nested(vmi, "status", "phase") == "Scheduling"
        disk = await line.get(PVC.ref("m-1-disk-0-abcde", NAMESPACE))
        name = disk["spec"]["volumeName"]
        texts = [
            raw["message"]
            for raw in await line.list(EVENT, NAMESPACE)
            if raw["reason"] == "FailedAttachVolume"
        ]
        assert texts == [
            f'AttachVolume.Attach failed for volume "{name}" : rpc error: code = Aborted desc = volume {name} is not ready '
            "for workloads"
        ]
        assert not has_space(await line.get(kinds.PV.ref(name)))

        await line.delete(DATA)
        await eventually(harvester, volume_of(claim), is_gone, 30)
        await eventually(harvester, kinds.PV.ref(name), has_space, 60)
        await eventually(harvester, vm_ref(), shows("Running"), 120)

    on_small_hosts(story)


def test_the_overcommit_of_storage_makes_room():
    async def story(harvester: Harvester) -> None:
        _, longhorn = await claim_data(harvester, "100Gi")
        assert longhorn["status"]["conditions"][0]["status"] == "False"
        setting = kinds.SETTING.ref("overcommit-config")
        await harvester.api.local().patch(setting, {"value": '{"cpu":1000,"memory":150,"storage":200}'})
        await eventually(
            harvester,
            longhorn_of(await harvester.api.local().get(DATA)),
            lambda raw: nested(raw, "status", "conditions", 0, "status") == "True",
            60,
        )

    on_small_hosts(story)


def test_a_volume_with_fewer_replicas_than_its_class_asks_for_is_attached_and_degraded():
    async def story(harvester: Harvester) -> None:
        await boot(harvester)
        claim, _ = await claim_data(harvester, "10Gi")
        await add_declared(harvester, "data")
        await eventually(harvester, vmi_ref(), is_ready("data"), 60)
        found = await eventually(
            harvester, longhorn_of(claim), lambda raw: nested(raw, "status", "state") == "attached", 10
        )
        assert nested(found, "status", "robustness") == "degraded", "two hosts have two replicas of three"

    on_small_hosts(story)


def test_a_claim_does_not_grow_beyond_what_the_hosts_of_its_replicas_have():
    async def story(harvester: Harvester) -> None:
        await claim_data(harvester, "10Gi")
        await resize(harvester, "70Gi")
        failed = await eventually(
            harvester, DATA, lambda raw: len(nested(raw, "status", "conditions", default=[])) == 2, 10
        )
        assert failed is not None
        resizing, error = failed["status"]["conditions"]
        assert (resizing["type"], error["type"]) == ("Resizing", "ControllerResizeError")
        assert "cannot schedule 64424509440 more bytes to the disk of host-1" in error["message"]
        assert failed["status"]["capacity"] == {"storage": "10Gi"}

        setting = kinds.SETTING.ref("overcommit-config")
        await harvester.api.local().patch(setting, {"value": '{"cpu":1000,"memory":150,"storage":200}'})
        grown = await eventually(
            harvester, DATA, lambda raw: nested(raw, "status", "capacity", "storage") == "70Gi", 60
        )
        assert grown is not None
        assert "conditions" not in grown["status"]
        assert not is_deleting(grown)

    on_small_hosts(story)


def test_what_a_deleted_volume_had_is_free_again():
    async def story(harvester: Harvester) -> None:
        for _ in range(3):
            claim, longhorn = await claim_data(harvester, "50Gi")
            assert longhorn["status"]["conditions"][0]["status"] == "True"
            await harvester.api.local().delete(DATA)
            await eventually(harvester, volume_of(claim), is_gone, 30)

    on_small_hosts(story)
