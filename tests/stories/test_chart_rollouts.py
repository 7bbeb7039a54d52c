"""Upgrades onto the charts of a release: rollouts that do not end by themselves, and what holds a helm Job."""

from __future__ import annotations

from datetime import timedelta

from tests.stories.cluster_rig import ALL, Transcript, a_pool, until
from tests.stories.test_cluster_life import a_story
from tests.stories.test_k3s import an_rke_config
from tests.stories.test_updates import NEXT, check_story, set_version, until_version
from tests.support.clock import run_driven

from windrow.bootstrap.charts import HELM_CHART_CONFIG
from windrow.clusters.api.names import STALLED_ROLLOUT
from windrow.kubernetes.conditions import find_condition
from windrow.kubernetes.objects import annotations_of, name_of, nested
from windrow.kubernetes.resources import DEPLOYMENT, POD

PROVIDER = DEPLOYMENT.ref("harvester-cloud-provider", "kube-system")


def test_a_rollout_that_would_stall_on_one_node_is_let_go_on() -> None:
    async def story() -> Transcript:
        async with a_story(a_pool("all", 1, ALL), kubernetesVersion="v1.27.1+rke2r1") as it:
            await it.stage.wait_for_settled()
            it.transcript.restart()
            await set_version(it, "v1.27.3+rke2r1")
            await until_version(it, "v1.27.3+rke2r1")
            guest = await it.stage.guest_client()
            status = (await guest.get(PROVIDER))["status"]
            assert (status["updatedReplicas"], status["availableReplicas"], status["replicas"]) == (1, 1, 1)
            return it.transcript

    check_story("upgrade-onto-a-stalling-chart", story)


def test_an_old_pod_goes_where_its_successor_still_finds_no_node() -> None:
    """Two replicas on one node: that the rollout may be one pod short does not help, since it is already."""

    async def story() -> Transcript:
        pool = a_pool("all", 1, ALL)
        config = {"cni": "calico", "cloud-provider-name": "harvester"}
        rke = an_rke_config(
            pool, config=config, chartValues={"harvester-cloud-provider": {"replicasCount": 2}}
        )
        async with a_story(pool, kubernetesVersion="v1.27.1+rke2r1", rkeConfig=rke) as it:
            await it.stage.wait_for_settled()
            it.transcript.restart()
            await set_version(it, "v1.27.3+rke2r1")
            await until_version(it, "v1.27.3+rke2r1")
            guest = await it.stage.guest_client()
            provider = await guest.get(PROVIDER)
            assert provider["status"]["availableReplicas"] == 1
            assert annotations_of(provider)[STALLED_ROLLOUT].endswith("/1")
            (pod,) = [
                raw
                for raw in await guest.list(POD, "kube-system")
                if name_of(raw).startswith(PROVIDER.name) and nested(raw, "spec", "nodeName")
            ]
            image = nested(pod, "spec", "containers", 0, "image")
            assert image == nested(provider, "spec", "template", "spec", "containers", 0, "image")
            return it.transcript

    check_story("upgrade-onto-a-stalling-chart-of-two", story)


def test_what_holds_a_helm_job_is_said_and_the_upgrade_ends_without_it() -> None:
    async def story() -> None:
        async with a_story(a_pool("all", 1, ALL)) as it:
            await it.stage.wait_for_settled()
            guest = await it.stage.guest_client()
            config = HELM_CHART_CONFIG.ref("harvester-csi-driver", "kube-system")
            await guest.patch(config, {"spec": {"valuesContent": "{"}})
            await set_version(it, NEXT)
            raw = await until(it.stage, "helm-install-harvester-csi-driver to complete", timedelta(hours=1))
            assert "CrashLoopBackOff: Error: failed to parse" in str(raw["status"])
            rolling = find_condition(nested(raw, "status", "conditions"), "RollingOut")
            assert rolling is not None
            assert nested(raw, "status", "version") != NEXT
            await until_version(it, NEXT)

    run_driven(story())
