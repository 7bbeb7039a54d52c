"""What a guest writes into its list of etcd snapshots, and what its servers refuse, holds up nothing else of its cluster."""

from __future__ import annotations

from typing import Any

import pytest
from tests.stories.cluster_rig import SERVERS, a_pool, machines_of
from tests.stories.test_cluster_life import a_story
from tests.stories.test_etcd_snapshots import ask, phase, snapshots_of
from tests.support.clock import run_driven

from windrow.clusters.api.kinds import ETCD_SNAPSHOT
from windrow.clusters.api.operations.snapshot import SNAPSHOT_FILE
from windrow.clusters.sources.servers import supervisor
from windrow.kubernetes.objects import name_of, nested, new_object


@pytest.mark.long
def test_the_cluster_is_scaled_while_a_server_refuses_a_deletion_and_the_guest_lists_nonsense(
    monkeypatch: Any,
) -> None:
    async def refuse(self: Any, name: str, s3: Any = None) -> Any:
        raise supervisor.RequestRefused("https://server:9345 refuses: 500: S3 does not answer", "see the log")

    monkeypatch.setattr(supervisor.Supervisor, "delete_snapshot", refuse)

    async def story() -> None:
        async with a_story(a_pool("servers", 1, SERVERS), a_pool("workers", 1)) as it:
            await it.stage.wait_for_settled()
            guest = await it.stage.guest_client()
            odd: dict[str, Any] = {
                "snapshotName": "odd",
                "nodeName": "s3",
                "location": "s3://x",
                "s3": {"bucket": ["no", "text"]},
            }
            await ask(it, etcdSnapshotCreate={"generation": 1})
            await phase(it, "Create", "Finished")
            await it.sim.advance(seconds=30)
            labels = {"etcd.rke2.cattle.io/snapshot-storage-node": "s3"}
            await guest.create(SNAPSHOT_FILE, new_object(SNAPSHOT_FILE, "odd", labels=labels, spec=odd))
            await it.sim.advance(seconds=30)
            found = {nested(raw, "spec", "snapshotFileName"): raw for raw in await snapshots_of(it)}
            assert found.pop("odd")["status"]["storage"] == "s3"
            (mine,) = found.values()
            await it.sim.management_client.delete(ETCD_SNAPSHOT.ref(name_of(mine), it.ref.namespace))

            pools = (await it.stage.get_cluster())["spec"]["rkeConfig"]["machinePools"]
            changed = [{**pool, "quantity": 2} if pool["name"] == "workers" else pool for pool in pools]
            await it.sim.management_client.patch(it.ref, {"spec": {"rkeConfig": {"machinePools": changed}}})
            await it.sim.advance(minutes=15)

            assert len(await machines_of(it.sim, it.ref, "workers")) == 2
            status = (await it.stage.get_cluster())["status"]
            (failure,) = status["etcdSnapshotFailures"].values()
            assert "S3 does not answer" in failure["message"]
            assert 3 <= failure["tries"] <= 8
            assert name_of(mine) in status["waiting"]["for"]

    run_driven(story())
