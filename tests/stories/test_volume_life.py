"""The life of a volume on the emulated Harvester, told: bound, plugged in, expanded, snapshotted, restored, deleted."""

from __future__ import annotations

from collections.abc import Callable

from tests.support.clock import run_driven

from windrow.emulator import kinds
from windrow.emulator.harvester import Harvester
from windrow.kubernetes.objects import Raw, nested
from windrow.kubernetes.requests import merge_patch
from windrow.kubernetes.resources import PVC, VOLUME_ATTACHMENT

from .cluster_rig import compare
from .harvester_rig import NAMESPACE, a_harvester, boot, vmi_ref
from .test_hotplug import a_claim, add_declared, ask, volume
from .test_snapshots import SNAPSHOT, a_snapshot, from_snapshot

COPY = PVC.ref("copy", NAMESPACE)
DATA = PVC.ref("data", NAMESPACE)


def describe_claim(claim: Raw | None) -> str:
    if claim is None:
        return "absent"
    found = nested(claim, "status", "conditions", default=[])
    waits = "".join(f", {one['type']}" for one in found)
    return f"{claim['status']['phase']} {nested(claim, 'status', 'capacity', 'storage', default='-')}{waits}"


async def observe(harvester: Harvester) -> dict[str, str]:
    """What a client sees of the volume and of all that is made of it."""
    client = harvester.api.local()
    data, snapshot = await client.find(DATA), await client.find(SNAPSHOT)
    name = nested(data, "spec", "volumeName", default="")
    longhorn = await client.find(kinds.LONGHORN_VOLUME.ref(name, "longhorn-system")) if name else None
    hosts = [
        one["spec"]["nodeName"]
        for one in await client.list(VOLUME_ATTACHMENT)
        if name and one["spec"]["source"]["persistentVolumeName"] == name
    ]
    ready, size = (nested(snapshot, "status", field, default="-") for field in ("readyToUse", "restoreSize"))
    return {
        "claim data": describe_claim(data),
        "in the machine": volume(await client.get(vmi_ref()), "data").get("phase", "absent"),
        "attached to": ", ".join(hosts) or "no host",
        "volumes.longhorn.io": nested(longhorn, "status", "state", default="absent"),
        "snapshot s": "absent" if snapshot is None else f"ready {ready}, size {size}",
        "claim copy": describe_claim(await client.find(COPY)),
    }


def test_the_life_of_a_volume_is_told():
    async def story():
        async with a_harvester() as harvester:
            client = harvester.api.local()
            await boot(harvester)
            lines: list[str] = []
            last: dict[str, str] = {}

            async def narrate(what: str, holds: Callable[[dict[str, str]], bool]) -> None:
                nonlocal last
                lines.append(f"== {what}")
                start = harvester.clock.monotonic()
                while True:
                    found = await observe(harvester)
                    at = (harvester.clock.monotonic() - start).total_seconds()
                    lines.extend(
                        f"{at:5.1f}s  {key}: {text}" for key, text in found.items() if last.get(key) != text
                    )
                    last = found
                    if holds(found):
                        return
                    assert at < 60, found
                    await harvester.clock.sleep(0.1)

            await client.create(PVC, a_claim("data"))
            await narrate("a claim is created", lambda one: one["claim data"] == "Bound 5Gi")
            await add_declared(harvester, "data")
            await narrate(
                "it is added to a running VM",
                lambda one: one["in the machine"] == "Ready" and one["volumes.longhorn.io"] == "attached",
            )
            await client.send(merge_patch(DATA, {"spec": {"resources": {"requests": {"storage": "8Gi"}}}}))
            await narrate("it is to grow", lambda one: one["claim data"] == "Bound 8Gi")
            await client.create(kinds.SNAPSHOT, a_snapshot())
            await narrate("a snapshot is taken of it", lambda one: "True" in one["snapshot s"])
            await client.create(PVC, a_claim("copy", "8Gi", dataSource=from_snapshot()))
            await narrate("a claim is made from the snapshot", lambda one: one["claim copy"] == "Bound 8Gi")
            await ask(harvester, "removevolume", {"name": "data"})
            await narrate(
                "the volume is removed from the VM", lambda one: one["volumes.longhorn.io"] == "detached"
            )
            await client.delete(DATA)
            await narrate("the claim is deleted", lambda one: one["claim data"] == "absent")
            return lines

    compare("volume-life", run_driven(story()))
