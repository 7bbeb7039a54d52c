"""Turns of machines when something else happens meanwhile: Jobs of former turns, a server that is lost, one that a user replaces."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from tests.stories.cluster_rig import SERVERS, a_pool, machines_of, until
from tests.stories.test_cluster_life import Story, a_story, lose
from tests.stories.test_k3s import an_rke_config
from tests.stories.test_updates import BUDGET, NEXT, booted, set_kubelet_args, set_version, until_up_to_date
from tests.support.clock import run_driven

from windrow.bootstrap.charts import HELM_CHART
from windrow.bootstrap.install.update_job import MACHINE_LABEL
from windrow.clusters.api.kinds import MACHINE
from windrow.clusters.api.names import REPLACE_NOW, RETRY_UPDATE, UPDATE_IMAGE
from windrow.clusters.plan.updates import failures
from windrow.kubernetes.objects import annotations_of, labels_of, name_of, nested, new_object
from windrow.kubernetes.resources import DEPLOYMENT, JOB, POD, SECRET


async def list_left(story: Story) -> list[str]:
    """What there is of updates in the guest."""
    guest = await story.stage.guest_client()
    listed = [
        (kind.kind, raw) for kind in (JOB, SECRET, POD) for raw in await guest.list(kind, "kube-system")
    ]
    return [f"{kind} {name_of(raw)}" for kind, raw in listed if MACHINE_LABEL in labels_of(raw)]


async def steps_of(story: Story) -> dict[str, str]:
    machines = await machines_of(story.sim, story.ref)
    found = {name_of(raw): nested(raw, "status", "update", "step") for raw in machines}
    return {name: step for name, step in found.items() if step}


async def until_step(story: Story, step: str) -> str:
    """The name of the first machine whose turn is there."""
    end = story.sim.clock.now() + timedelta(minutes=30)
    while True:
        named = [name for name, found in (await steps_of(story)).items() if found == step]
        if named:
            return named[0]
        assert story.sim.clock.now() < end, f"no turn came to {step}"
        await story.sim.advance(seconds=0.5)


@pytest.mark.long
def test_the_pending_job_of_a_failed_turn_is_gone_before_the_next_turn_and_so_is_its_secret() -> None:
    async def story() -> None:
        async with a_story(a_pool("servers", 1, SERVERS), a_pool("workers", 1)) as it:
            await it.stage.wait_for_settled()
            it.sim.harvester.network.internet.is_reachable = False
            annotated = {"metadata": {"annotations": {UPDATE_IMAGE: "site.example.org/tools:1"}}}
            await it.sim.management_client.patch(it.ref, annotated)
            await set_kubelet_args(it, "max-pods=99")
            await until(it.stage, "its update to be mended")
            annotated = {"metadata": {"annotations": {UPDATE_IMAGE: None}}}
            await it.sim.management_client.patch(it.ref, annotated)
            await set_kubelet_args(it, "max-pods=98")
            await until_up_to_date(it)
            it.sim.harvester.network.internet.is_reachable = True
            await it.sim.advance(minutes=5)

            assert await list_left(it) == []
            for node in await it.stage.list_nodes():
                assert "max-pods=98" in annotations_of(node)["rke2.io/node-args"]

    run_driven(story())


@pytest.mark.long
def test_a_job_whose_pod_never_ran_is_gone_before_its_turn_is_called_failed_and_restarts_nothing_later() -> (
    None
):
    async def story() -> None:
        async with a_story(a_pool("servers", 1, SERVERS), a_pool("workers", 1)) as it:
            await it.stage.wait_for_settled()
            before = [booted(node) for node in await it.stage.list_nodes()]
            it.sim.harvester.network.internet.is_reachable = False
            annotated = {"metadata": {"annotations": {UPDATE_IMAGE: "site.example.org/tools:1"}}}
            await it.sim.management_client.patch(it.ref, annotated)
            await set_kubelet_args(it, "max-pods=99")
            raw = await until(it.stage, "its update to be mended")
            assert await list_left(it) == []
            assert "ImagePull" in str(raw["status"])
            it.sim.harvester.network.internet.is_reachable = True
            await it.sim.advance(minutes=20)
            assert [booted(node) for node in await it.stage.list_nodes()] == before

            (failed,) = [one for one in await machines_of(it.sim, it.ref) if nested(one, "status", "update")]
            retried = {"metadata": {"annotations": {RETRY_UPDATE: ""}}}
            await it.sim.management_client.patch(MACHINE.ref(name_of(failed), it.ref.namespace), retried)
            await until_up_to_date(it)
            assert await list_left(it) == []
            for node in await it.stage.list_nodes():
                assert "max-pods=99" in annotations_of(node)["rke2.io/node-args"]

    run_driven(story())


@pytest.mark.long
def test_what_is_asked_for_again_is_applied_again(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story() -> None:
        async with a_story(a_pool("servers", 1, SERVERS), a_pool("workers", 1)) as it:
            await it.stage.wait_for_settled()
            # Stands for a Node that is away for ten minutes after its service was restarted.
            monkeypatch.setattr(failures, "NODE_TIMEOUT", timedelta(seconds=1))
            await set_kubelet_args(it, "max-pods=99")
            while not any(
                nested(raw, "status", "update", "failure") for raw in await machines_of(it.sim, it.ref)
            ):
                await it.sim.advance(seconds=0.5)
            await set_kubelet_args(it)  # the way back
            await it.sim.advance(seconds=0.5)
            monkeypatch.setattr(failures, "NODE_TIMEOUT", timedelta(minutes=10))
            await until_up_to_date(it)
            await set_kubelet_args(it, "max-pods=99")
            await until_up_to_date(it)

            for node in await it.stage.list_nodes():
                assert "max-pods=99" in annotations_of(node)["rke2.io/node-args"], name_of(node)

    run_driven(story())


async def run_shop(story: Story) -> None:
    """Pods whose budget lets none go."""
    guest, labels = await story.stage.guest_client(), {"app": "shop"}
    pod: dict[str, Any] = {
        "tolerations": [{"operator": "Exists"}],
        "containers": [{"name": "c", "image": "shop:1"}],
    }
    spec: dict[str, Any] = {
        "replicas": 6,
        "selector": {"matchLabels": labels},
        "template": {"metadata": {"labels": labels}, "spec": pod},
    }
    await guest.create(DEPLOYMENT, new_object(DEPLOYMENT, "shop", "default", spec=spec))
    budget = {"minAvailable": 6, "selector": {"matchLabels": labels}}
    await guest.create(BUDGET, new_object(BUDGET, "shop", "default", spec=budget))
    await story.sim.advance(seconds=60)


@pytest.mark.long
def test_a_server_lost_during_the_drain_of_another_is_replaced_before_that_one_restarts() -> None:
    async def story() -> None:
        pools = (a_pool("servers", 3, SERVERS),)
        drained = {"controlPlaneDrainOptions": {"enabled": True, "timeout": 120, "ignoreErrors": True}}
        config = {"cni": "calico", "cloud-provider-name": "harvester"}
        rke = an_rke_config(*pools, config=config, upgradeStrategy=drained)
        async with a_story(*pools, rkeConfig=rke) as it:
            await it.stage.wait_for_settled()
            await run_shop(it)
            await set_version(it, NEXT)
            in_turn = await until_step(it, "Drain")
            await it.sim.advance(seconds=60)
            machines = await machines_of(it.sim, it.ref)
            lost = next(raw for raw in machines if name_of(raw) != in_turn)
            await lose(it, lost)
            assert await until_step(it, "Apply") == in_turn
            left = [name_of(raw) for raw in await machines_of(it.sim, it.ref)]
            assert name_of(lost) not in left
            assert len(left) == 3

    run_driven(story())


@pytest.mark.long
def test_a_server_that_a_user_has_replaced_stays_while_another_one_restarts() -> None:
    async def story() -> None:
        async with a_story(a_pool("servers", 3, SERVERS)) as it:
            await it.stage.wait_for_settled()
            await set_version(it, NEXT)
            in_turn = await until_step(it, "Apply")
            machines = await machines_of(it.sim, it.ref)
            asked = next(name_of(raw) for raw in machines if name_of(raw) != in_turn)
            annotated = {"metadata": {"annotations": {REPLACE_NOW: ""}}}
            await it.sim.management_client.patch(MACHINE.ref(asked, it.ref.namespace), annotated)
            while in_turn in await steps_of(it):
                machines = await machines_of(it.sim, it.ref)
                assert asked in [
                    name_of(raw) for raw in machines if not raw["metadata"].get("deletionTimestamp")
                ]
                await it.sim.advance(seconds=1)
            await until_up_to_date(it)
            assert asked not in [name_of(raw) for raw in await machines_of(it.sim, it.ref)]

    run_driven(story())


@pytest.mark.long
def test_chart_values_of_k3s_are_applied_where_the_init_server_was_replaced() -> None:
    async def story() -> None:
        pool = a_pool("servers", 3, SERVERS)

        def rke(replicas: int) -> dict[str, Any]:
            values = {"harvester-csi-driver": {"replicasCount": replicas}}
            return an_rke_config(pool, config={"disable": ["traefik", "local-storage"]}, chartValues=values)

        async with a_story(pool, kubernetesVersion="v1.34.7+k3s1", rkeConfig=rke(2)) as it:
            await it.stage.wait_for_settled()
            machines = await machines_of(it.sim, it.ref)
            (first,) = [raw for raw in machines if nested(raw, "spec", "initServer")]
            await lose(it, first)
            await it.stage.wait_for_settled(without=name_of(first))
            change = {"spec": {"rkeConfig": {"chartValues": rke(1)["chartValues"]}}}
            await it.sim.management_client.patch(it.ref, change)
            await until_up_to_date(it)
            await it.sim.advance(seconds=60)

            guest = await it.stage.guest_client()
            chart = await guest.get(HELM_CHART.ref("harvester-csi-driver", "kube-system"))
            assert "replicasCount: 1" in chart["spec"]["valuesContent"]

    run_driven(story())
