"""The disk of the manager's store is full for longer than any step may take, in the middle of a change."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from tests.stories.cluster_rig import SERVERS, Transcript, a_cluster, a_pool, machines_of, post, stock
from tests.stories.observed_changes import find_done, take_inventory, watch_consoles
from tests.stories.test_updates import NEXT
from tests.support.clock import run_driven
from tests.support.simulation import simulation

from windrow.apiserver.apierrors import internal
from windrow.apiserver.storage.memory import MemoryStore
from windrow.apiserver.storage.port import Change
from windrow.clusters.api.kinds import HARVESTER_CONFIG
from windrow.kubernetes.errors import KubeError
from windrow.kubernetes.objects import Raw, nested

UPGRADE = {"kubernetesVersion": NEXT}
ROTATE = {"rkeConfig": {"rotateEncryptionKeys": {"generation": 1}}}


class Disk:
    """Where the store of the manager is; those of Harvester and of guests, which are elsewhere, are never full."""

    is_full = False
    store: object = None

    def persist(self, store: MemoryStore, change: Change) -> None:
        if self.is_full and store is self.store:
            raise internal("the store cannot be written: database or disk is full")


def is_asked_for(updates: list[Raw], cluster: Raw) -> bool:
    return True


def is_at(step: str) -> Callable[[list[Raw], Raw], bool]:
    return lambda updates, cluster: any(update["step"] == step for update in updates)


def is_rotated(updates: list[Raw], cluster: Raw) -> bool:
    return nested(cluster, "status", "rotateEncryptionKeysPhase") == "Rotate"


NIGHTLY = pytest.mark.nightly


@pytest.mark.long
@pytest.mark.parametrize(
    ("spec", "options", "begins", "server", "worker"),
    [
        pytest.param(
            UPGRADE, {}, is_asked_for, "service restart", "service restart", marks=NIGHTLY, id="begin"
        ),
        pytest.param(UPGRADE, {}, is_at("Apply"), "service restart", "service restart", id="apply"),
        pytest.param({}, {"memorySize": "8"}, is_at("Stop"), "", "VM restart", id="stop"),
        pytest.param({}, {"memorySize": "8"}, is_at("Start"), "", "VM restart", marks=NIGHTLY, id="start"),
        pytest.param(ROTATE, {}, is_rotated, "service restart", "", marks=NIGHTLY, id="rotate"),
    ],
)
def test_each_machine_is_changed_once_though_the_disk_is_full_for_long(
    spec: Any,
    options: Any,
    begins: Callable[[list[Raw], Raw], bool],
    server: str,
    worker: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    disk = Disk()
    monkeypatch.setattr(MemoryStore, "_persist", lambda store, change: disk.persist(store, change))

    async def story() -> None:
        documents = a_cluster(a_pool("servers", 1, SERVERS), a_pool("workers", 1))
        async with simulation(seed=3, with_manager=False) as sim:
            consoles, disk.store = watch_consoles(sim), sim.api.store
            await stock(sim, documents)
            sim.start_manager(Transcript(sim.api.local()))
            ref = await post(sim, documents)
            stage = sim.cluster(ref.name, ref.namespace)
            await stage.wait_for_settled()
            before = await take_inventory(sim, stage, consoles)
            await sim.management_client.patch(HARVESTER_CONFIG.ref("nc-workers", ref.namespace), options)
            await sim.management_client.patch(ref, {"spec": spec})

            async def turns() -> list[Raw]:
                found = [nested(raw, "status", "update") for raw in await machines_of(sim, ref)]
                assert not [update for update in found if update and update.get("failure")]
                return [update for update in found if update]

            end = sim.clock.now() + timedelta(hours=1)
            while not begins(await turns(), await stage.get_cluster()):
                await sim.advance(seconds=0.2)
                assert sim.clock.now() < end
            disk.is_full = True
            with pytest.raises(KubeError):
                await sim.management_client.patch(ref, {"metadata": {"annotations": {"note": "x"}}})
            await sim.advance(minutes=35)
            disk.is_full = False
            rest = 0
            while rest < 60:
                rest = 0 if await turns() else rest + 1
                await sim.advance(seconds=2)
                assert sim.clock.now() < end + timedelta(hours=1)
            await stage.wait_for_settled()
            status = (await stage.get_cluster())["status"]
            assert status["version"] == (NEXT if spec is UPGRADE else "v1.34.7+rke2r1")
            assert status.get("rotateEncryptionKeysPhase") in (None, "Done")
            done = find_done(before, await take_inventory(sim, stage, consoles), consoles)
            for name, one in done.items():
                wanted = server if name in before.servers else worker
                assert one.times == (Counter({wanted: 1}) if wanted else Counter()), name

    run_driven(story())
