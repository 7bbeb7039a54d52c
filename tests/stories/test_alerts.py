"""Every alert of deploy/monitoring fires once on the emulator, and ends; nothing else fires meanwhile."""

from __future__ import annotations

import asyncio
import json
import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import pytest
from tests.stories.cluster_rig import ALL, SERVERS, a_pool, gone, machines_of
from tests.stories.test_certificates import sleep
from tests.stories.test_cluster_life import Story, a_story, set_heartbeats
from tests.stories.test_credentials import put
from tests.support.clock import run_driven
from tests.support.prometheus import Scrapes, check_alerts, check_expressions, needs_promtool
from tests.support.simulation import VIP

from windrow.client.client import Client
from windrow.client.leader_election import LeaderElector, LeadershipLost
from windrow.client.transport import TransportMiddleware
from windrow.clusters.api.names import RENEW_CERTIFICATES
from windrow.core.formats.yaml import load
from windrow.core.rng import Rng
from windrow.emulator.faults import INTERNAL_ERROR, UNAVAILABLE, Fault, denied
from windrow.kubernetes.errors import Unreachable
from windrow.kubernetes.objects import name_of
from windrow.kubernetes.requests import Reply, Request, WatchEvent

MONITORING = Path(__file__).parents[2] / "deploy" / "monitoring"
RULES = MONITORING / "alerts.yaml"
VMS = frozenset({"virtualmachines"})


async def scrape(it: Story, scrapes: Scrapes, minutes: int, *, down: bool = False) -> None:
    """Scrape the manager once a minute."""
    for _ in range(minutes):
        await it.sim.advance(minutes=1)
        scrapes.add(None if down else it.sim.metrics.registry.render())


async def not_provisioned(it: Story, scrapes: Scrapes) -> None:
    fault = it.sim.harvester.faults.add(Fault(INTERNAL_ERROR, verbs=frozenset({"create"}), plurals=VMS))
    await scrape(it, scrapes, 75)
    it.sim.harvester.faults.end(fault)
    await it.stage.wait_for_settled()


async def harvester_away(it: Story, scrapes: Scrapes) -> None:
    await it.stage.wait_for_settled()
    await scrape(it, scrapes, 15)
    fault = it.sim.harvester.faults.add(Fault(UNAVAILABLE))
    it.sim.harvester.faults.cut_watches()
    await scrape(it, scrapes, 40)
    it.sim.harvester.faults.end(fault)


async def breaker(it: Story, scrapes: Scrapes) -> None:
    await it.stage.wait_for_settled()
    silent = {name_of(raw) for raw in (await machines_of(it.sim, it.ref, "workers"))[:3]}
    await set_heartbeats(it.sim, silent, beating=False)
    await scrape(it, scrapes, 30)
    await set_heartbeats(it.sim, silent, beating=True)


async def last_etcd_member(it: Story, scrapes: Scrapes) -> None:
    await it.stage.wait_for_settled()
    (server,) = [name_of(raw) for raw in await machines_of(it.sim, it.ref, "servers")]
    await set_heartbeats(it.sim, {server}, beating=False)
    await scrape(it, scrapes, 45)
    await set_heartbeats(it.sim, {server}, beating=True)


async def credential_rejected(it: Story, scrapes: Scrapes) -> None:
    await it.stage.wait_for_settled()
    token = it.sim.harvester.new_token()
    await put(it.sim, it.sim.harvester.token_kubeconfig(token, VIP))
    it.sim.harvester.credentials.revoke(token)
    await scrape(it, scrapes, 8)
    await put(it.sim, it.sim.harvester.admin_kubeconfig(VIP))


async def ends(it: Story, scrapes: Scrapes) -> None:
    await it.stage.wait_for_settled()
    await it.sim.management_client.patch(it.ref, {"metadata": {"annotations": {RENEW_CERTIFICATES: "off"}}})
    await sleep(it, 350)
    scrapes.origin = it.sim.clock.now()
    await scrape(it, scrapes, 8)
    await put(it.sim, it.sim.harvester.admin_kubeconfig(VIP))
    await it.sim.management_client.patch(it.ref, {"metadata": {"annotations": {RENEW_CERTIFICATES: None}}})


async def deletion_stuck(it: Story, scrapes: Scrapes) -> None:
    await it.stage.wait_for_settled()
    refusal = denied("the VM is in use")
    fault = it.sim.harvester.faults.add(Fault(refusal, verbs=frozenset({"delete"}), plurals=VMS))
    await it.sim.management_client.delete(it.ref)
    await scrape(it, scrapes, 75)
    it.sim.harvester.faults.end(fault)
    await gone(it.sim, it.ref)


async def manager_killed(it: Story, scrapes: Scrapes) -> None:
    await it.stage.wait_for_settled()
    await scrape(it, scrapes, 3)
    await it.sim.kill_manager()
    await scrape(it, scrapes, 8, down=True)
    it.sim.start_manager(it.transcript)


class Cut(TransportMiddleware):
    """A transport whose requests are not sent while `is_cut`; watches that are open run to their end."""

    is_cut = False

    def _require_connection(self) -> None:
        if self.is_cut:
            raise Unreachable("the connection was cut")

    async def send(self, request: Request) -> Reply:
        self._require_connection()
        return await super().send(request)

    def stream(self, request: Request) -> AbstractAsyncContextManager[AsyncIterator[WatchEvent]]:
        self._require_connection()
        return super().stream(request)


async def api_away(it: Story, scrapes: Scrapes) -> None:
    await it.stage.wait_for_settled()
    await it.sim.kill_manager()
    cut = Cut(it.transcript)
    it.sim.start_manager(cut)
    await scrape(it, scrapes, 5)
    cut.is_cut = True
    await scrape(it, scrapes, 25)
    cut.is_cut = False


async def no_leader(it: Story, scrapes: Scrapes) -> None:
    await it.stage.wait_for_settled()
    cut = Cut(it.sim.api.local())
    electors: list[LeaderElector] = []

    async def compete() -> None:
        while True:
            electors.append(LeaderElector(Client(cut), "kube-system", "m", "one", it.sim.clock, Rng(1)))
            try:
                await electors[-1].run(asyncio.Event().wait)
            except LeadershipLost:
                continue

    it.sim.metrics.register_leader("windrow-manager", lambda: electors[-1].is_leader)
    task = asyncio.create_task(compete())
    await scrape(it, scrapes, 3)
    cut.is_cut = True
    await scrape(it, scrapes, 8)
    cut.is_cut = False
    await scrape(it, scrapes, 3)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    it.sim.metrics.register_leader("windrow-manager", lambda: True)


Scene = Callable[[Story, Scrapes], Awaitable[None]]
ONE_SERVER = (a_pool("servers", 1, SERVERS),)
SCENES: dict[str, tuple[Scene, tuple[Any, ...], set[str]]] = {
    "not provisioned": (
        not_provisioned,
        ONE_SERVER,
        {"WindrowClusterNotProvisioned", "WindrowReconcileErrors"},
    ),
    "Harvester away": (harvester_away, ONE_SERVER, {"WindrowRequestsFailing"}),
    "breaker": (
        breaker,
        (*ONE_SERVER, a_pool("workers", 5)),
        {"WindrowBreakerTripped", "WindrowClusterNotReady"},
    ),
    "last etcd member": (
        last_etcd_member,
        (a_pool("servers", 1, ALL),),
        {"WindrowEtcdHeld", "WindrowClusterNotReady"},
    ),
    "credential rejected": (credential_rejected, ONE_SERVER, {"WindrowCredentialRejected"}),
    "ends": (ends, ONE_SERVER, {"WindrowCertificatesExpire", "WindrowCredentialExpires"}),
    "deletion stuck": (deletion_stuck, ONE_SERVER, {"WindrowClusterDeletionStuck", "WindrowReconcileErrors"}),
    "manager killed": (manager_killed, ONE_SERVER, {"WindrowDown"}),
    "API away": (api_away, ONE_SERVER, {"WindrowNotWatching", "WindrowRequestsFailing"}),
    "no leader": (no_leader, ONE_SERVER, {"WindrowNoLeader"}),
}


def play(name: str) -> Scrapes:
    """The scrapes of a scene, and of some time after it."""
    scene, pools, _ = SCENES[name]

    async def story() -> Scrapes:
        async with a_story(*pools) as it:
            scrapes = Scrapes(it.sim.clock.now())
            await scene(it, scrapes)
            await scrape(it, scrapes, 25)
            return scrapes

    return run_driven(story())


@needs_promtool
@pytest.mark.long
@pytest.mark.parametrize("name", SCENES)
def test_an_alert_fires_for_its_cause_and_ends_with_it(name: str, tmp_path: Path) -> None:
    check_alerts(play(name), SCENES[name][2], RULES, tmp_path)


def test_every_alert_has_its_scene_and_its_section_in_the_guide() -> None:
    rules = [rule for group in load(RULES.read_text())["groups"] for rule in group["rules"]]
    names = {rule["alert"] for rule in rules}
    guide = (MONITORING.parents[1] / "docs" / "how-to" / "alerts.md").read_text()

    assert names == set().union(*(fired for _, _, fired in SCENES.values()))
    for rule in rules:
        assert rule["annotations"]["runbook_url"] == f"docs/how-to/alerts.md#{rule['alert'].lower()}"
        assert f"\n## {rule['alert']}\n" in guide


def test_an_alert_on_what_is_held_names_the_cluster() -> None:
    rules = [rule for group in load(RULES.read_text())["groups"] for rule in group["rules"]]
    (held,) = (rule for rule in rules if "windrow_disruptions_held" in rule["expr"])

    assert "{{ $labels.namespace }}/{{ $labels.cluster }}" in held["annotations"]["summary"]


@needs_promtool
def test_the_rules_pass_the_check_of_prometheus() -> None:
    done = subprocess.run(["promtool", "check", "rules", str(RULES)], capture_output=True, text=True)

    assert done.returncode == 0, done.stdout + done.stderr


@needs_promtool
@pytest.mark.long
def test_every_query_of_the_board_has_an_answer_in_real_metrics(tmp_path: Path) -> None:
    board = json.loads((MONITORING / "grafana.json").read_text())
    queries = [target["expr"] for panel in board["panels"] for target in panel.get("targets", ())]
    wanted = {}
    for query in queries:
        expr = query.replace("$namespace", ".*").replace("$cluster", ".*").replace("$__rate_interval", "10m")
        wanted[f"(count({expr}) or vector(0)) > bool 0"] = 1

    assert len(wanted) == len(queries) > 15
    check_expressions(play("breaker"), wanted, RULES, tmp_path, at=28)  # while it has tripped
