"""Stories of a rotation of the server token, and what becomes of one that cannot be."""

from __future__ import annotations

from datetime import timedelta

import pytest
from tests.stories.cluster_rig import SERVERS, Transcript, a_pool, machines_of, until
from tests.stories.test_cluster_life import Story, a_story
from tests.stories.test_etcd_snapshots import ask
from tests.stories.test_updates import check_story
from tests.support.clock import run_driven

from windrow.clusters.api.kinds import CLUSTER, MACHINE
from windrow.clusters.api.names import RETRY_UPDATE, secrets_name
from windrow.core.formats.json import dumps
from windrow.core.text import encode_base64
from windrow.harvester.resources import VM_ACTIONS
from windrow.kubernetes.objects import Raw, annotations_of, name_of, nested, secret_texts
from windrow.kubernetes.requests import put_subresource
from windrow.kubernetes.resources import EVENT, JOB, SECRET


async def phase(it: Story, *wanted: str, generation: int = 1) -> Raw:
    """The status of the Cluster once the rotation of this generation is at one of these phases."""
    end = it.sim.clock.now() + timedelta(minutes=90)
    while True:
        status = (await it.stage.get_cluster()).get("status") or {}
        done = nested(status, "rotateToken", "generation", default=0)
        if done == generation and status.get("rotateTokenPhase") in wanted:
            return status
        assert it.sim.clock.now() < end, f"{status.get('rotateTokenPhase')}: {status.get('waiting')}"
        await it.sim.advance(seconds=1)


async def tokens(it: Story) -> dict[str, str]:
    """What the Secret of the cluster holds of its server token."""
    ref = SECRET.ref(secrets_name(it.ref.name), it.ref.namespace)
    held = secret_texts(await it.sim.management_client.get(ref))
    return {key: text for key, text in held.items() if key.startswith("server-password")}


async def check_nothing_tells(it: Story, passwords: set[str]) -> None:
    """The tokens are in the Secret of the cluster, and on its servers: not in what others may read, nor left in its guest."""
    management, guest = it.sim.management_client, await it.stage.guest_client()
    shown = [await management.list(kind, it.ref.namespace) for kind in (CLUSTER, MACHINE, EVENT)]
    shown += [await guest.list(kind, "kube-system") for kind in (JOB, EVENT)]
    left = [
        raw for raw in await guest.list(SECRET, "kube-system") if name_of(raw).startswith("windrow-update")
    ]
    assert left == []
    text = dumps(shown).decode() + "\n".join(it.transcript.lines)
    assert not [one for one in passwords if one in text or encode_base64(one) in text]


@pytest.mark.long
@pytest.mark.parametrize(("distribution", "version"), [("rke2", "v1.34.7+rke2r1"), ("k3s", "v1.34.7+k3s1")])
def test_the_token_is_rotated_every_server_restarts_once_and_machines_join_with_the_new_one(
    distribution: str, version: str
) -> None:
    async def story() -> Transcript:
        pools = (a_pool("servers", 3, SERVERS), a_pool("workers", 1))
        async with a_story(*pools, kubernetesVersion=version) as it:
            await it.stage.wait_for_settled()
            before = (await tokens(it))["server-password"]
            it.transcript.lines.clear()
            it.transcript.say("a user raises rotateToken.generation to 1")
            await ask(it, rotateToken={"generation": 1})
            status = await phase(it, "Done", "Failed")
            assert status["rotateTokenPhase"] == "Done", status["rotateTokenRun"]
            await it.stage.wait_for_settled()
            now = await tokens(it)
            assert now["server-password"] != before
            assert now["server-passwords-former"].split() == [before]
            assert "server-password-next" not in now
            for raw in await machines_of(it.sim, it.ref):
                wanted = status["rotateTokenRun"]["id"] if raw["spec"]["pool"] == "servers" else None
                assert nested(raw, "status", "restarted") == wanted
            told = list(it.transcript.lines)
            # The same manifest again rotates nothing; a server more joins.
            await ask(it, rotateToken={"generation": 1})
            path = "/spec/rkeConfig/machinePools/0/quantity"
            change = [{"op": "replace", "path": path, "value": 4}]
            await it.sim.management_client.json_patch(it.ref, change)
            await it.sim.advance(minutes=5)
            await it.stage.wait_for_settled()
            assert len(await it.stage.list_nodes()) == 5
            assert await tokens(it) == now
            await check_nothing_tells(it, {before, now["server-password"]})
            it.transcript.lines = told
            return it.transcript

    check_story(f"rotate-token-{distribution}", story)


@pytest.mark.long
def test_the_token_is_rotated_where_the_control_plane_has_no_etcd() -> None:
    """Its server asks one with etcd at its start, which has to take the new token by then."""

    async def story() -> None:
        pools = a_pool("etcd", 1, "etcd"), a_pool("api", 1, "control-plane"), a_pool("workers", 1)
        async with a_story(*pools) as it:
            await it.stage.wait_for_settled()
            await ask(it, rotateToken={"generation": 1})
            status = await phase(it, "Done", "Failed")
            assert status["rotateTokenPhase"] == "Done", status["rotateTokenRun"]
            await it.stage.wait_for_settled()
            assert all(is_ready(raw) for raw in await machines_of(it.sim, it.ref))

    run_driven(story())


async def await_first_restart(it: Story) -> None:
    """Until the turn of the first server has begun, none of which has restarted."""
    await phase(it, "PostRotateRestart")
    while True:
        updates = [nested(raw, "status", "update", default={}) for raw in await machines_of(it.sim, it.ref)]
        if any(update.get("change") == "service restart" for update in updates):
            return
        await it.sim.advance(milliseconds=100)


def is_ready(machine: Raw) -> bool:
    conditions = nested(machine, "status", "conditions", default=[])
    return {"Ready": "True"}.items() <= {one["type"]: one["status"] for one in conditions}.items()


@pytest.mark.long
@pytest.mark.parametrize(("distribution", "version"), [("rke2", "v1.34.7+rke2r1"), ("k3s", "v1.34.7+k3s1")])
def test_all_machines_that_lose_power_during_a_rotation_come_back_by_themselves(
    distribution: str, version: str
) -> None:
    async def story() -> Transcript:
        pools = (a_pool("servers", 3, SERVERS), a_pool("workers", 1))
        async with a_story(*pools, kubernetesVersion=version) as it:
            await it.stage.wait_for_settled()
            before = {name_of(raw) for raw in await machines_of(it.sim, it.ref)}
            await ask(it, rotateToken={"generation": 1})
            await await_first_restart(it)
            it.transcript.lines.clear()
            it.transcript.say("all VMs restart, as after a power cut")
            for name in sorted(before):
                await it.sim.harvester_client.call(
                    put_subresource(VM_ACTIONS.ref(name, "default"), "restart")
                )
            await it.sim.advance(minutes=10)
            machines = await machines_of(it.sim, it.ref)
            assert {name_of(raw) for raw in machines if is_ready(raw)} == before
            # The power may have gone while a Job restarted a service: that turn is for a person to look at.
            for raw in machines:
                if nested(raw, "status", "update", "failure", default=None):
                    it.transcript.say("the turn that was cut off is tried again")
                    change = {"metadata": {"annotations": {RETRY_UPDATE: ""}}}
                    await it.sim.management_client.patch(MACHINE.ref(name_of(raw), it.ref.namespace), change)
            status = await phase(it, "Done", "Failed")
            assert status["rotateTokenPhase"] == "Done", status["rotateTokenRun"]
            assert {name_of(raw) for raw in await machines_of(it.sim, it.ref)} == before
            return it.transcript

    check_story(f"rotate-token-power-cut-{distribution}", story)


async def roll_back(it: Story, held: dict[str, str]) -> None:
    """The Secret is as in a backup of the manager from before the rotation."""
    now = await tokens(it)
    data = {key: encode_base64(held[key]) if key in held else None for key in now}
    await it.sim.management_client.patch(
        SECRET.ref(secrets_name(it.ref.name), it.ref.namespace), {"data": data}
    )


async def roll_back_a_rotation(it: Story) -> dict[str, str]:
    """The token is rotated, and the manager's Secret is as before; what it held then is returned."""
    await it.stage.wait_for_settled()
    before = await tokens(it)
    await ask(it, rotateToken={"generation": 1})
    await phase(it, "Done")
    await it.stage.wait_for_settled()
    now = await tokens(it)
    await roll_back(it, before)
    return now


def test_a_manager_that_was_restored_from_before_the_rotation_says_that_its_token_is_rejected() -> None:
    async def story() -> None:
        async with a_story(a_pool("servers", 1, SERVERS)) as it:
            now = await roll_back_a_rotation(it)
            await ask(it, rotateToken={"generation": 2})
            status = await phase(it, "Failed", "Done", generation=2)
            message = status["rotateTokenRun"]["message"]
            assert "rejects the server token of the cluster" in message
            assert "put the server token that the servers have into the Secret of the cluster" in message

            kept = await tokens(it)
            assert kept["server-password-next"]
            await roll_back(it, {"server-password": now["server-password"]})
            await ask(it, rotateToken={"generation": 3})
            await phase(it, "Done", generation=3)

    run_driven(story())


def test_a_manager_with_the_token_of_before_a_rotation_writes_it_onto_no_server() -> None:
    async def story() -> None:
        async with a_story(a_pool("servers", 1, SERVERS)) as it:
            now = await roll_back_a_rotation(it)
            await ask(it, machineGlobalConfig={"kubelet-arg": ["max-pods=99"]})
            await until(it.stage, "server-password in the Secret of the cluster to be corrected")
            await it.sim.advance(minutes=10)
            (node,) = await it.stage.list_nodes()
            assert not nested(node, "spec", "unschedulable")
            (machine,) = await machines_of(it.sim, it.ref)
            assert is_ready(machine)
            assert nested(machine, "status", "update") is None
            console = it.sim.harvester.console("default", name_of(machine))
            assert not any("encrypted with different token" in line for line in console)

            await roll_back(it, {"server-password": now["server-password"]})
            await it.sim.advance(minutes=15)
            (node,) = await it.stage.list_nodes()
            assert "max-pods=99" in annotations_of(node)["rke2.io/node-args"]

    run_driven(story())


def test_a_paused_cluster_keeps_its_token_until_it_is_resumed(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("DEBUG", "windrow")

    async def story() -> None:
        async with a_story(a_pool("servers", 1, SERVERS)) as it:
            await it.stage.wait_for_settled()
            before = await tokens(it)
            await it.sim.management_client.patch(it.ref, {"spec": {"paused": True}})
            await ask(it, rotateToken={"generation": 1})
            await it.sim.advance(minutes=5)
            assert await tokens(it) == before
            await it.sim.management_client.patch(it.ref, {"spec": {"paused": False}})
            await phase(it, "Done")
            after = await tokens(it)
            assert after["server-password"] != before["server-password"]
            logged = caplog.text
            assert "windrow.clusters" in logged
            assert not [one for one in (*before.values(), after["server-password"]) if one in logged]

    run_driven(story())
