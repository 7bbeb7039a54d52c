"""What a how-to tells a person to do on a machine, done."""

from __future__ import annotations

import pytest
from tests.stories.cluster_rig import SERVERS, a_pool, machines_of
from tests.stories.test_cluster_life import a_story
from tests.stories.test_etcd_snapshots import ask
from tests.stories.test_in_place_restores import guest_of
from tests.stories.test_token_rotation import is_ready, phase, tokens
from tests.support.clock import run_driven

from windrow.clusters.api.kinds import MACHINE
from windrow.clusters.api.names import RETRY_UPDATE
from windrow.harvester.resources import VM_ACTIONS
from windrow.kubernetes.objects import name_of, nested, uid_of
from windrow.kubernetes.requests import put_subresource

CONFIG = "/etc/rancher/rke2/config.yaml.d/50-rancher.yaml"


@pytest.mark.long
def test_a_lone_server_that_restarts_before_it_has_the_new_token_is_mended_as_the_how_to_says() -> None:
    async def story() -> None:
        async with a_story(a_pool("servers", 1, SERVERS)) as it:
            await it.stage.wait_for_settled()
            (server,) = await machines_of(it.sim, it.ref)
            before = (await tokens(it))["server-password"]
            await ask(it, rotateToken={"generation": 1})
            while (await tokens(it)).get("server-password") == before:
                await it.sim.advance(milliseconds=50)
            now = (await tokens(it))["server-password"]
            restart = put_subresource(
                VM_ACTIONS.ref(name_of(server), "default"), "restart", {"gracePeriodSeconds": 0}
            )
            await it.sim.harvester_client.call(restart)
            await it.sim.advance(minutes=5)
            console = it.sim.harvester.console("default", name_of(server))
            assert any("encrypted with different token" in line for line in console)
            (kept,) = await machines_of(it.sim, it.ref)
            assert (uid_of(kept), is_ready(kept)) == (uid_of(server), False)

            guest = guest_of(it, server)
            written = (guest.read(CONFIG) or b"").decode()
            assert before in written
            guest.write(CONFIG, written.replace(before, now).encode(), 0o600)
            await it.sim.advance(minutes=5)
            (mended,) = await machines_of(it.sim, it.ref)
            assert is_ready(mended)
            # The power went while its Job ran.
            if nested(mended, "status", "update", "failure", default=None):
                again = {"metadata": {"annotations": {RETRY_UPDATE: ""}}}
                await it.sim.management_client.patch(MACHINE.ref(name_of(server), it.ref.namespace), again)
            status = await phase(it, "Done", "Failed")
            assert status["rotateTokenPhase"] == "Done", status["rotateTokenRun"]

    run_driven(story())
