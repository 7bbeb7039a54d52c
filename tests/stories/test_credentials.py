"""A credential that opens nothing is told at once, while nothing is asked of it yet; and nothing is replaced."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import pytest
from tests.stories.cluster_rig import SERVERS, a_cluster, a_pool, machines_of, post, scale, stock, until
from tests.support.clock import run_driven
from tests.support.simulation import VIP, Simulation, simulation

from windrow.kubernetes.conditions import find_condition
from windrow.kubernetes.objects import name_of, nested
from windrow.kubernetes.resources import EVENT, SECRET

NOWHERE = "https://192.168.100.99:6443"


async def put(sim: Simulation, kubeconfig: str) -> None:
    change = {"stringData": {"harvestercredentialConfig-kubeconfigContent": kubeconfig}}
    await sim.management_client.patch(SECRET.ref("cc-harvester", "cattle-global-data"), change)


def a_nonsense_token(sim: Simulation) -> str:
    token = sim.harvester.new_token()
    sim.harvester.credentials.revoke(token)
    return sim.harvester.token_kubeconfig(token, VIP)


CASES: dict[str, tuple[Callable[[Simulation], str], str, str]] = {
    "a nonsense token": (a_nonsense_token, "False", VIP),
    "no kubeconfig at all": (lambda sim: "nonsense", "False", "cattle-global-data/cc-harvester"),
    "an unreachable Harvester": (lambda sim: sim.harvester.admin_kubeconfig(NOWHERE), "Unknown", NOWHERE),
}


@pytest.mark.parametrize("case", CASES)
def test_a_credential_is_tried_as_soon_as_its_secret_changes(case: str) -> None:
    kubeconfig, truth, named = CASES[case]

    async def story() -> None:
        documents = a_cluster(a_pool("servers", 1, SERVERS), a_pool("workers", 1))
        async with simulation(seed=3) as sim:
            await stock(sim, documents)
            ref = await post(sim, documents)
            await sim.cluster(ref.name, ref.namespace).wait_for_settled()
            before = [name_of(raw) for raw in await machines_of(sim, ref)]

            await put(sim, kubeconfig(sim))
            await sim.advance(seconds=15)

            status = (await sim.management_client.get(ref))["status"]
            valid = find_condition(status["conditions"], "CredentialValid")
            assert valid is not None
            assert valid.status == truth
            waiting = status["waiting"]["for"]
            assert waiting.startswith(("a valid Harvester credential: ", "Harvester to be reachable: "))
            for sentence in (valid.message, waiting):
                assert named in sentence
                assert "cc-harvester" in sentence
            events = await sim.management_client.list(EVENT, ref.namespace)
            assert [e for e in events if e["type"] == "Warning" and named in e["message"]]

            await put(sim, sim.harvester.admin_kubeconfig(VIP))
            await sim.advance(seconds=30)

            status = (await sim.management_client.get(ref))["status"]
            valid = find_condition(status["conditions"], "CredentialValid")
            assert valid is not None
            assert valid.status == "True"
            assert nested(status, "waiting") is None
            assert [name_of(raw) for raw in await machines_of(sim, ref)] == before

    run_driven(story())


@pytest.mark.parametrize("is_busy", [True, False])
def test_a_token_that_harvester_revokes_is_reported_with_the_first_rejected_request_or_in_a_minute(
    is_busy: bool,
) -> None:
    async def story() -> None:
        documents = a_cluster(a_pool("servers", 1, SERVERS))
        async with simulation(seed=3) as sim:
            token = sim.harvester.new_token()
            await stock(sim, documents, kubeconfig=sim.harvester.token_kubeconfig(token, VIP))
            ref = await post(sim, documents)
            stage = sim.cluster(ref.name, ref.namespace)
            await stage.wait_for_settled()

            sim.harvester.credentials.revoke(token)
            if is_busy:  # a request is rejected
                await scale(sim, ref, 0, 2)
            within = timedelta(seconds=10 if is_busy else 75)
            cluster = await until(stage, "a valid Harvester credential", within=within)

            valid = find_condition(cluster["status"]["conditions"], "CredentialValid")
            assert valid is not None
            assert (valid.status, valid.reason) == ("False", "Rejected")

    run_driven(story())
