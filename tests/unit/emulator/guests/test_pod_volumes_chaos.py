"""Pods deleted, machines that die and return, a driver that fails now and then, in any order: a volume of one node is never
staged on two that run, nor attached to two; in the end every pod has its volume, and nothing is left of those that are gone."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest
from tests.support.clock import run_driven

from windrow.core.rng import Rng
from windrow.emulator.guest_cluster.csi.port import CsiFailed
from windrow.kubernetes.errors import KubeError
from windrow.kubernetes.objects import Raw, is_deleting, name_of, nested
from windrow.kubernetes.resources import POD, STATEFUL_SET, VOLUME_ATTACHMENT

from .test_pod_volumes import DRIVER, Driver, a_driver, bind, wait_gone
from .test_stateful_sets import DB, a_stateful_set

WORKERS = ("w1", "w2")
PODS = ["db-0", "db-1"]
STEPS = 12
PAUSES = (0.3, 2.0, 30.0, 400.0)


class FlakyDriver:
    """Fails every seventh call or so, and notes on which machines that run each volume is staged."""

    def __init__(self, driver: Driver, rng: Rng) -> None:
        self.driver, self._rng = driver, rng
        self.staged: dict[str, set[str]] = {}
        for node in WORKERS:
            driver.cluster.csi.register(
                node, DRIVER, lambda method, request, node=node: self.call(node, method, request)
            )

    async def call(self, node: str, method: str, request: Raw) -> Raw:
        if method != "NodeGetCapabilities" and self._rng.below(7) == 0:
            raise CsiFailed("INTERNAL", "now and then")
        reply = await self.driver.call(node, method, request)
        on = self.staged.setdefault(request.get("volume_id", ""), set())
        if method == "NodeStageVolume":
            on.add(node)
        elif method == "NodeUnstageVolume":
            on.discard(node)
        assert len(on) <= 1, f"{request['volume_id']} is staged on {sorted(on)}"
        return reply

    def lose(self, node: str) -> None:
        for on in self.staged.values():
            on.discard(node)


async def something(flaky: FlakyDriver, rng: Rng, dark: set[str]) -> None:
    rig = flaky.driver.rig
    match rng.below(5):
        case 0 | 1:
            with suppress(KubeError):
                grace = 0 if rng.below(2) and not dark else None
                ref = POD.ref(PODS[rng.below(2)], "default")
                await flaky.driver.cluster.client().delete(ref, grace_s=grace)
        case 2 if not dark:
            dark.add(WORKERS[rng.below(2)])
            for node in dark:
                await rig.testbed.cut_power(node)
                flaky.lose(node)
        case 3 if dark:
            rig.testbed.power_on(dark.pop())
    await rig.testbed.sleep(PAUSES[rng.below(len(PAUSES))])


async def holds_now(flaky: FlakyDriver) -> None:
    """What is true at any moment."""
    found = await flaky.driver.rig.kubectl.list(VOLUME_ATTACHMENT)
    volumes = [nested(raw, "spec", "source", "persistentVolumeName") for raw in found]
    assert len(volumes) == len(set(volumes)), volumes


async def all_run(flaky: FlakyDriver) -> bool:
    rig = flaky.driver.rig
    is_settled = not any(is_deleting(pod) for pod in await rig.pods())
    return is_settled and sorted(name_of(pod) for pod in await rig.ready()) == PODS


@pytest.mark.long
@pytest.mark.parametrize("seed", range(3))
def test_a_volume_is_where_its_pod_is_whatever_happens(seed: int) -> None:
    async def scenario() -> None:
        rng, dark = Rng(seed), set[str]()
        async with a_driver(*WORKERS) as driver:
            rig, flaky = driver.rig, FlakyDriver(driver, rng)
            await rig.create(STATEFUL_SET, a_stateful_set(2, podManagementPolicy="Parallel"))
            await rig.testbed.sleep(1)
            for name in PODS:
                await bind(rig, f"data-{name}")
            for _ in range(STEPS):
                await something(flaky, rng, dark)
                await holds_now(flaky)
            for node in dark:
                rig.testbed.power_on(node)
            await rig.testbed.wait_for(lambda: all_run(flaky), within=2500)
            await rig.kubectl.patch(DB, {"spec": {"replicas": 0}})
            await wait_gone(rig, POD)
            await wait_gone(rig, VOLUME_ATTACHMENT)
            await rig.testbed.sleep(5)
            left: dict[str, Any] = {node: (await rig.kubectl.node(node))["status"] for node in WORKERS}

            assert not any("volumesInUse" in status for status in left.values())
            assert not any("volumesAttached" in status for status in left.values())

    run_driven(scenario())
