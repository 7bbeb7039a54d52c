"""The emulator's kube-vip in the scenes that the real one is judged by, for both ranges of versions."""

from __future__ import annotations

import asyncio

import pytest
from tests.conformance.kube_vip_scenes import NEW, OLD, SCENES, KubeVipRig, Observed, Scene
from tests.support.clock import run_driven

from windrow.kubernetes.objects import Raw
from windrow.kubernetes.resources import ApiResource, ObjectRef

from .test_kube_vip import Rig, a_rig, with_values

TAGS = {OLD: "v1.1.2", NEW: "v1.2.3"}


class EmulatedRig(KubeVipRig):
    def __init__(self, rig: Rig, nodes: tuple[str, ...]) -> None:
        self._rig, self._nodes = rig, set(nodes)
        self._off: set[str] = set()

    async def create(self, kind: ApiResource, raw: Raw) -> None:
        await self._rig.create(kind, raw)

    async def patch(self, ref: ObjectRef, patch: Raw, subresource: str = "") -> None:
        await self._rig.kubectl.patch(ref, patch, subresource)

    async def delete(self, ref: ObjectRef) -> None:
        await self._rig.kubectl.delete(ref)

    async def get(self, ref: ObjectRef) -> Raw:
        return await self._rig.kubectl.get(ref)

    async def sleep(self, seconds: float) -> None:
        await self._rig.testbed.sleep(seconds)

    def now(self) -> float:
        return asyncio.get_running_loop().time()

    def holders(self, address: str) -> set[str]:
        reports = {name: self._rig.testbed.hosts[name].report for name in self._nodes - self._off}
        return {
            name
            for name, report in reports.items()
            if report is not None and any(address in held for held in report.addresses.values())
        }

    async def end_leader(self) -> None:
        (leader,) = self.holders(self.address(200))
        self._rig.kubectl.address = "10.0.0.13" if leader != "three" else "10.0.0.12"
        self._off.add(leader)
        await self._rig.testbed.cut_power(leader)


async def _run(scene: Scene, versions: str) -> Observed:
    values = {"image": {"tag": TAGS[versions]}, "env": {"svc_election": str(scene.election).lower()}}
    async with a_rig(*scene.nodes, **with_values(values)) as rig:
        await rig.testbed.sleep(5)  # kube-vip's pod starts
        rig.testbed.dhcp = scene.has_dhcp
        return await scene.act(EmulatedRig(rig, scene.nodes))


@pytest.mark.parametrize("versions", [NEW, OLD])
@pytest.mark.parametrize("name", SCENES)
def test_the_emulated_kube_vip_acts_as_the_real_one(name: str, versions: str) -> None:
    assert run_driven(_run(SCENES[name], versions)) == SCENES[name].expected[versions]
