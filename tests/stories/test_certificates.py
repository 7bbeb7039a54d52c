"""Stories of certificates that come to their end: warned of, renewed by themselves, and by no clock again and again."""

from __future__ import annotations

from datetime import timedelta

import pytest
from tests.stories.cluster_rig import SERVERS, Transcript, a_pool, machines_of
from tests.stories.test_clock_jumps import a_managed_cluster
from tests.stories.test_cluster_life import Story, a_story
from tests.stories.test_key_rotation import messages, serving_certificates
from tests.stories.test_updates import check_story
from tests.support.clock import run_driven

from windrow.clusters.api.names import RENEW_CERTIFICATES
from windrow.kubernetes.objects import nested, time_of
from windrow.kubernetes.resources import EVENT


async def sleep(it: Story, days: float) -> None:
    """The manager is away for so many days, by every clock of the site."""
    await it.sim.kill_manager()
    it.sim.clock.set_wall(timedelta(days=days))
    await it.sim.advance(seconds=5)
    it.sim.start_manager(it.transcript)
    await it.stage.wait_for_settled()


async def expiry(it: Story) -> timedelta:
    """How far the first certificate of the cluster is from its end, as its status says."""
    end = time_of(await it.stage.get_cluster(), "status", "certificatesExpiryDate")
    assert end is not None
    return end - it.sim.clock.now()


async def requests(it: Story) -> set[str]:
    machines = await machines_of(it.sim, it.ref)
    return {str(nested(raw, "status", "restarted", default="")) for raw in machines}


@pytest.mark.parametrize(("distribution", "version"), [("rke2", "v1.34.7+rke2r1"), ("k3s", "v1.34.7+k3s1")])
def test_certificates_are_warned_of_and_renewed_by_themselves(distribution: str, version: str) -> None:
    async def story() -> Transcript:
        pools = (a_pool("servers", 1, SERVERS), a_pool("workers", 1))
        async with a_story(*pools, kubernetesVersion=version) as it:
            await it.stage.wait_for_settled()
            assert timedelta(days=364) < await expiry(it) < timedelta(days=366)
            before = await serving_certificates(it)
            it.transcript.lines.clear()
            it.transcript.say("ten months later")
            await sleep(it, 306)
            end = it.sim.clock.now() + timedelta(minutes=30)
            while await expiry(it) < timedelta(days=300):
                assert it.sim.clock.now() < end
                await it.sim.advance(seconds=5)
            await it.sim.advance(minutes=10)
            (request,) = await requests(it)
            assert request.startswith("renewal-")
            assert not await serving_certificates(it) & before
            assert timedelta(days=364) < await expiry(it) < timedelta(days=366)
            assert "end on" in messages(await it.stage.get_cluster())["CertificatesValid"]
            return it.transcript

    check_story(f"certificates-end-{distribution}", story)


async def warnings(it: Story) -> list[str]:
    """What the events say of certificates that end."""
    events = await it.sim.management_client.list(EVENT, it.ref.namespace)
    found = [raw for raw in events if raw.get("reason") == "CertificatesExpire"]
    return [str(raw.get("message") or raw.get("note")) for raw in found]


def test_where_renewal_is_turned_off_it_is_warned_at_60_30_and_7_days_and_nothing_restarts() -> None:
    async def story() -> None:
        async with a_story(a_pool("servers", 1, SERVERS)) as it:
            await it.stage.wait_for_settled()
            change = {"metadata": {"annotations": {RENEW_CERTIFICATES: "off"}}}
            await it.sim.management_client.patch(it.ref, change)
            for days, count in ((300, 0), (6, 1), (30, 2), (22, 3)):
                await sleep(it, days)
                await it.sim.advance(minutes=5)
                assert len(await warnings(it)) == count
            assert "turns their renewal off" in (await warnings(it))[-1]
            cluster = await it.stage.get_cluster()
            said = next(one for one in cluster["status"]["conditions"] if one["type"] == "CertificatesValid")
            assert (said["status"], said["reason"]) == ("False", "ExpireSoon")
            assert any("turns their renewal off" in one for one in cluster["status"]["warnings"])
            assert await requests(it) == {""}

            gone = {"metadata": {"annotations": {RENEW_CERTIFICATES: None}}}
            await it.sim.management_client.patch(it.ref, gone)
            await it.sim.advance(minutes=10)
            assert await expiry(it) > timedelta(days=364)

    run_driven(story())


def test_a_paused_cluster_is_warned_of_and_renewed_once_it_is_resumed() -> None:
    async def story() -> None:
        async with a_story(a_pool("servers", 1, SERVERS)) as it:
            await it.stage.wait_for_settled()
            await it.sim.management_client.patch(it.ref, {"spec": {"paused": True}})
            await sleep(it, 310)
            await it.sim.advance(minutes=5)
            assert "windrow resume goes on" in messages(await it.stage.get_cluster())["CertificatesValid"]
            assert await requests(it) == {""}
            await it.sim.management_client.patch(it.ref, {"spec": {"paused": False}})
            await it.sim.advance(minutes=10)
            assert await expiry(it) > timedelta(days=364)

    run_driven(story())


@pytest.mark.long
@pytest.mark.parametrize("days", [330, -330])
def test_a_clock_of_the_manager_that_jumps_restarts_no_machine_twice(days: int) -> None:
    async def story() -> None:
        async with a_managed_cluster(a_pool("servers", 1, SERVERS), a_pool("workers", 1)) as managed:
            await managed.stage.wait_for_settled()
            for jump in (days, -days, days, -days):
                managed.set_wall(jump * 86_400)
                note = {"metadata": {"annotations": {"note": str(managed.sim.clock.now())}}}
                await managed.sim.management_client.patch(managed.ref, note)
                await managed.sim.advance(minutes=20)
            await managed.stage.wait_for_settled()
            made = {key: n for key, n in managed.sim.request_counts.items() if key.endswith("POST jobs")}
            assert sum(made.values()) <= 2, made

    run_driven(story())
