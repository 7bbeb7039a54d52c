"""The steps of a rotation of the server token: when each is taken, and how it is executed, also where it is cut off."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

import pytest
from tests.support.clock import LoopClock, run_driven
from tests.unit.clusters.builders import (
    NOON,
    SECRETS,
    SERVER,
    a_cluster,
    a_machine,
    a_pool,
    look,
    record_of,
    some,
)
from tests.unit.clusters.supervisors import Supervisors

from windrow.apiserver.storage.memory import MemoryStore
from windrow.app.embedded import management_api
from windrow.bootstrap import DISTRIBUTIONS
from windrow.bootstrap.spec import Role
from windrow.client.client import Client
from windrow.client.informer import Informer
from windrow.client.mutation_cache import MutationCache
from windrow.clusters.api.endpoint import ControlPlaneEndpoint, EndpointMode
from windrow.clusters.api.kinds import CLUSTER
from windrow.clusters.api.operations.recorded import Operations, RecordedOperations
from windrow.clusters.api.operations.rotations import RecordedKeyRotation, RecordedTokenRotation
from windrow.clusters.api.operations.snapshot import token_hash
from windrow.clusters.api.secrets import SecretData, read_secret_data, read_secrets, render_secrets
from windrow.clusters.api.status import read_recorded_status
from windrow.clusters.context import ReconcileContext, StalePlan
from windrow.clusters.execute.rotations.token import TokenRotation
from windrow.clusters.plan import bootstrap
from windrow.clusters.plan.actions import ProvisionVM
from windrow.clusters.plan.operations import actions as do
from windrow.clusters.plan.operations import rotation, token_rotation
from windrow.clusters.plan.updates import gates
from windrow.clusters.sources.servers.supervisor import Supervisor
from windrow.clusters.state import ClusterState, GuestState
from windrow.core.rng import Rng
from windrow.kubernetes.errors import OutcomeUnknown
from windrow.kubernetes.objects import new_object, secret_texts, uid_of
from windrow.kubernetes.requests import Reply
from windrow.kubernetes.resources import NAMESPACE, SECRET

SERVERS, WORKERS = a_pool("servers", 3, SERVER), a_pool("workers", 1)
REF, HELD = CLUSTER.ref("prod", "fleet-default"), SECRET.ref("prod-windrow-secrets", "fleet-default")
JOIN = "https://10.0.0.1:9345"
BEGIN, GIVE = do.BeginTokenRotation("asked", 1, "s1"), do.RotateToken("it is known", "s1")


# -- when each is taken ----------------------------------------------------------------------------------------------


def a_state(recorded: RecordedTokenRotation | None = None, **rest: Any) -> ClusterState:
    asked = Operations(rotate_token=rest.pop("asked", 1))
    cluster = a_cluster(SERVERS, WORKERS, operations=asked, **rest.pop("cluster", {}))
    operations = RecordedOperations(token=recorded or RecordedTokenRotation(), **rest.pop("operations", {}))
    status = replace(cluster.recorded, initialized=True, provisioned=True, operations=operations)
    machines = rest.pop("machines", [*some("s", 3, SERVERS), *some("w", 1, WORKERS)])
    return look(replace(cluster, recorded=status), machines, **rest)


def planned(state: ClusterState) -> list[type]:
    return [type(one) for one in rotation.plan(state).actions]


def waits(state: ClusterState) -> list[str]:
    assert planned(state) == []
    return [one.what for one in rotation.plan(state).waits]


def at(phase: Any, **rest: Any) -> RecordedTokenRotation:
    return RecordedTokenRotation(1, phase, "s1", "token-1-7", since=NOON - timedelta(minutes=1), **rest)


def test_it_begins_with_the_oldest_server() -> None:
    old = record_of(a_machine("z9", SERVERS), created=NOON - timedelta(days=9))
    state = a_state(machines=[*some("s", 2, SERVERS), old])
    assert rotation.plan(state).actions == [do.BeginTokenRotation("rotateToken.generation is 1", 1, "z9")]
    assert planned(a_state(asked=0)) == []
    assert planned(a_state(at("Done"))) == []
    assert planned(a_state(at("Failed"))) == []
    assert planned(a_state(at("Failed"), asked=2)) == [do.BeginTokenRotation]


def test_it_waits_for_servers_that_are_away_since_they_would_not_start_again() -> None:
    servers = some("s", 3, SERVERS)
    assert servers[1].node is not None
    away = replace(servers[1], node=replace(servers[1].node, ready=False))
    assert waits(a_state(machines=[servers[0], away, servers[2]])) == ["all servers to be Ready (s2)"]
    newcomer = record_of(servers[2], conditions=())
    assert waits(a_state(machines=[*servers[:2], newcomer])) == ["all servers to be Ready (s3)"]
    silent = GuestState("unreachable", "no answer")
    assert waits(a_state(guest=silent)) == ["a server to be Ready, and the guest API to answer"]
    no_server = a_state(machines=some("w", 1, WORKERS))
    assert waits(no_server) == ["a server to be Ready, and the guest API to answer"]
    assert waits(a_state(cluster={"paused": True})) == ["spec.paused to be unset"]


APART = a_pool("etcd", 1, frozenset({Role.ETCD})), a_pool("api", 2, frozenset({Role.CONTROL_PLANE}))


@pytest.mark.parametrize(
    ("mode", "join_host", "both", "begins"),
    [
        ("loadBalancer", "", False, False),
        ("loadBalancer", "10.0.0.101", False, True),  # which leads to servers with etcd, too
        ("loadBalancer", "", True, True),
        ("address", "", False, True),  # what is behind it is its user's
        ("firstServer", "", False, True),  # they join through the one with etcd
    ],
)
def test_servers_that_could_only_ask_each_other_keep_their_token(
    mode: EndpointMode, join_host: str, both: bool, begins: bool
) -> None:
    endpoint = ControlPlaneEndpoint(mode, "10.0.0.100", join_host=join_host)
    machines = [*some("e", 1, APART[0]), *some("c", 2, APART[1]), *(some("s", 1, SERVERS) if both else [])]
    state = a_state(machines=machines, cluster={"control_plane_endpoint": endpoint})
    (action,) = rotation.plan(state).actions
    assert isinstance(action, do.BeginTokenRotation if begins else do.FailTokenRotation)
    if not begins:
        assert action.because.startswith(
            "Machine c1 has no etcd and joins through 10.0.0.100, which leads to"
        )
        assert action.because.endswith("; nothing was touched")


def test_servers_with_etcd_restart_before_those_that_ask_them() -> None:
    etcd, api, worker = (
        a_machine(name, pool) for name, pool in (("e", APART[0]), ("c", APART[1]), ("w", WORKERS))
    )
    restarting = a_state(at("PostRotateRestart"), machines=[etcd, api, worker])
    ordered = sorted((worker, api, etcd), key=lambda one: gates.tier_of(one, restarting))
    assert [one.name for one in ordered] == ["e", "c", "w"]
    calm = a_state(machines=[etcd, api, worker])
    assert [one.name for one in sorted((worker, api, etcd), key=lambda one: gates.tier_of(one, calm))] == [
        "c",
        "e",
        "w",
    ]


def test_rotations_come_one_after_the_other() -> None:
    keys = RecordedKeyRotation(1, "PostRotateRestart", "s1", "1-7", since=NOON)
    state = a_state(operations={"rotation": keys})
    assert do.BeginTokenRotation not in planned(state)
    assert planned(a_state(at("Prepare"))) == [do.RecordNextToken]


@pytest.mark.parametrize(
    ("phase", "holds"), [("Prepare", True), ("Rotate", True), ("PostRotateRestart", False)]
)
def test_no_turn_begins_before_the_configuration_has_the_new_token(phase: str, holds: bool) -> None:
    assert rotation.holds_turns(a_state(at(phase))) is holds


@pytest.mark.parametrize("phase", ["Prepare", "Rotate", "PostRotateRestart"])
def test_no_server_is_made_with_a_token_that_is_about_to_open_nothing(phase: Any) -> None:
    unmade = {"provisioned": None, "driver_config": None, "status": {}, "conditions": (), "join_server": JOIN}
    machines = [
        replace(record_of(a_machine(name, pool), **unmade), vm=None, node=None)
        for name, pool in (("s4", SERVERS), ("w2", WORKERS))
    ]
    state = a_state(at(phase), machines=[*some("s", 3, SERVERS), *machines])
    partial = bootstrap.plan(state)
    made = {one.machine for one in partial.actions if isinstance(one, ProvisionVM)}
    held = {one.machine for one in partial.waits if "new server token" in one.what}
    assert (made, held) == (({"s4", "w2"}, set()) if phase == "PostRotateRestart" else ({"w2"}, {"s4"}))


def test_a_server_that_does_not_take_it_is_asked_again_and_given_up_after_half_an_hour() -> None:
    later = NOON + token_rotation.TIMEOUT
    assert planned(a_state(at("Rotate"))) == [do.RotateToken]
    retry = at("Rotate", message="no", retry_at=NOON + timedelta(seconds=9))
    assert waits(a_state(retry)) == ["Machine s1 to take the new server token (no)"]
    assert planned(a_state(replace(retry, retry_at=NOON))) == [do.RotateToken]
    assert planned(a_state(at("Rotate"), now=later)) == [do.RotateToken]  # the manager was away
    tried = at("Rotate", message="no", retry_at=later)
    assert planned(a_state(tried, now=later)) == [do.FailTokenRotation]
    (failed,) = rotation.plan(a_state(at("Rotate"), machines=some("w", 1, WORKERS))).actions
    assert failed.because.startswith("Machine s1, which is given the new token, is gone; ")
    assert "goes on with that token" in failed.because


def test_it_is_over_once_every_server_has_restarted() -> None:
    assert waits(a_state(at("PostRotateRestart"))) == [
        "3 servers to have the new token on their disks (s1, s2, s3)"
    ]
    done = {"restarted": "token-1-7"}
    servers = [record_of(one, status={**one.record.status, **done}) for one in some("s", 3, SERVERS)]
    assert planned(a_state(at("PostRotateRestart"), machines=servers)) == [do.FinishTokenRotation]
    newcomer = record_of(servers[0], status={}, created=NOON)
    assert planned(a_state(at("PostRotateRestart"), machines=[newcomer, *servers[1:]])) == [
        do.FinishTokenRotation
    ]


# -- how it is executed ----------------------------------------------------------------------------------------------


@dataclass
class Site:
    """The management API with the Cluster and its Secret, and the actions upon them."""

    api: Client
    actions: TokenRotation
    supervisors: Supervisors
    secrets: MutationCache[SecretData]
    clock: LoopClock

    async def state(self) -> ClusterState:
        raw = await self.api.get(REF)
        recorded = replace(read_recorded_status(raw.get("status") or {}), initialized=True)
        cluster = replace(a_cluster(SERVERS, recorded=recorded, raw=raw), uid=uid_of(raw))
        secrets = read_secrets(self.secrets.get(HELD), uid_of(raw))
        assert secrets is not None
        return look(cluster, some("s", 1, SERVERS), now=self.clock.now(), secrets=secrets)

    async def status(self) -> Any:
        return (await self.api.get(REF)).get("status") or {}

    async def held(self) -> dict[str, str]:
        texts = secret_texts(await self.api.get(HELD))
        return {key: text for key, text in texts.items() if key.startswith("server-password")}

    async def until_rotate(self) -> str:
        """The password that is going to be, once it is recorded."""
        await self.actions.begin(BEGIN, await self.state())
        await self.actions.record_next(await self.state())
        return (await self.held())["server-password-next"]

    def given(self) -> list[Any]:
        return [body for _, path, body in self.supervisors.asked if path == "PUT /v1-rke2/token"]


def on_a_site(story: Callable[[Site], Awaitable[None]]) -> None:
    async def run() -> None:
        clock = LoopClock(NOON)
        server = management_api(MemoryStore(), clock, Rng(1))
        await server.prepare()
        api = Client(server.local())
        await api.create(NAMESPACE, new_object(NAMESPACE, "fleet-default"))
        spec = {"kubernetesVersion": "v1.35.1+rke2r1"}
        raw = await api.create(CLUSTER, new_object(CLUSTER, "prod", "fleet-default", spec=spec))
        cluster = replace(a_cluster(SERVERS, raw=raw), uid=uid_of(raw))
        secrets = MutationCache(
            Informer(server.local(), SECRET, "", read_secret_data, clock, Rng(2)),
            lambda one: one.resource_version,
            clock,
        )
        secrets.mutated(await api.create(SECRET, render_secrets(cluster, SECRETS)))
        clusters = MutationCache(
            Informer(server.local(), CLUSTER, "", lambda raw: raw, clock, Rng(2)), lambda raw: "", clock
        )
        unused: Any = None
        context = ReconcileContext(api, clusters, unused, secrets, clock, Rng(2), unused)
        supervisors = Supervisors()

        def supervisor(machine: Any, state: ClusterState) -> Supervisor:
            assert state.secrets is not None
            layout = DISTRIBUTIONS["rke2"].LAYOUT
            return Supervisor(state.secrets, layout, machine.address, supervisors.connect)

        await story(Site(api, TokenRotation(context, supervisor), supervisors, secrets, clock))

    run_driven(run())


def test_a_token_is_recorded_then_given_then_the_present_one() -> None:
    async def story(site: Site) -> None:
        upcoming = await site.until_rotate()
        assert len(upcoming) == 64
        assert site.supervisors.asked == []
        await site.actions.rotate(GIVE, await site.state())
        assert site.given() == [{"newToken": upcoming}]
        assert await site.held() == {
            "server-password": upcoming,
            "server-passwords-former": "server",
            "server-password-rotation": (await site.status())["rotateTokenRun"]["id"],
        }
        assert (await site.status())["rotateTokenPhase"] == "PostRotateRestart"

    on_a_site(story)


def test_one_that_was_cut_off_goes_on_with_the_same_token() -> None:
    async def story(site: Site) -> None:
        upcoming = await site.until_rotate()
        await site.actions.record_next(await site.state())
        assert (await site.held())["server-password-next"] == upcoming
        site.supervisors.answers = [RuntimeError("killed")]
        with pytest.raises(RuntimeError):
            await site.actions.rotate(GIVE, await site.state())
        assert (await site.held())["server-password"] == "server"

        before = await site.state()
        await site.actions.rotate(GIVE, before)
        assert site.given() == [{"newToken": upcoming}] * 2
        # Killed after the Secret was written, and before the phase was.
        change = {"status": {"rotateTokenPhase": "Rotate"}}
        await site.api.patch(REF, change, "status")
        await site.actions.rotate(GIVE, await site.state())
        assert len(site.given()) == 2
        assert (await site.status())["rotateTokenPhase"] == "PostRotateRestart"
        assert (await site.held())["server-password"] == upcoming

    on_a_site(story)


def test_another_manager_that_has_seen_the_same_does_nothing() -> None:
    async def story(site: Site) -> None:
        seen = await site.state()
        await site.actions.begin(BEGIN, seen)
        with pytest.raises(StalePlan):
            await site.actions.begin(BEGIN, seen)
        before = await site.state()
        await site.api.patch(HELD, {"metadata": {"labels": {"by": "another"}}})
        with pytest.raises(StalePlan):
            await site.actions.record_next(before)
        assert "server-password-next" not in await site.held()

    on_a_site(story)


@pytest.mark.parametrize(
    "answer", [Reply(500, b"no quorum"), Reply(200, b"[]"), OutcomeUnknown("connection reset")]
)
def test_what_may_have_been_carried_out_is_tried_again_and_its_token_kept(answer: Any) -> None:
    async def story(site: Site) -> None:
        upcoming = await site.until_rotate()
        site.supervisors.answers = [answer if isinstance(answer, Exception) else lambda _: answer]
        await site.actions.rotate(GIVE, await site.state())
        status = await site.status()
        assert status["rotateTokenPhase"] == "Rotate"
        assert status["rotateTokenRun"]["retryAt"] == "2026-01-01T12:00:15Z"
        assert status["rotateTokenRun"]["message"]
        assert upcoming not in str(status)
        assert await site.held() == {"server-password": "server", "server-password-next": upcoming}

    on_a_site(story)


def test_a_release_that_does_not_rotate_says_so_and_nothing_is_touched() -> None:
    async def story(site: Site) -> None:
        await site.until_rotate()
        site.supervisors.answers = [lambda _: Reply(404, b"404 page not found")]
        await site.actions.rotate(GIVE, await site.state())
        status = await site.status()
        assert status["rotateTokenPhase"] == "Failed"
        assert "does not serve /v1-rke2/token" in status["rotateTokenRun"]["message"]
        assert status["rotateTokenRun"]["message"].endswith("; nothing was touched")
        assert await site.held() == {"server-password": "server"}

    on_a_site(story)


def test_servers_with_a_token_that_is_not_known_say_so() -> None:
    async def story(site: Site) -> None:
        upcoming = await site.until_rotate()
        site.supervisors.answers = [lambda _: Reply(401, b"not authorized")] * 2
        await site.actions.rotate(GIVE, await site.state())
        status = await site.status()
        assert status["rotateTokenPhase"] == "Failed"
        assert "rejects the server token of the cluster" in status["rotateTokenRun"]["message"]
        assert (await site.held())["server-password-next"] == upcoming

    on_a_site(story)


def test_a_secret_that_was_restored_meanwhile_ends_the_rotation() -> None:
    async def story(site: Site) -> None:
        await site.until_rotate()
        raw = await site.api.patch(HELD, {"data": {"server-password-next": None}})
        site.secrets.mutated(raw)
        await site.actions.rotate(GIVE, await site.state())
        status = await site.status()
        assert status["rotateTokenPhase"] == "Failed"
        assert "does not hold the new token any more" in status["rotateTokenRun"]["message"]
        assert site.given() == []

    on_a_site(story)


def test_for_a_snapshot_of_then_the_cluster_goes_back_to_the_token_of_then() -> None:
    async def story(site: Site) -> None:
        upcoming = await site.until_rotate()
        await site.actions.rotate(GIVE, await site.state())
        for digest in ("", "ffff", token_hash(upcoming)):
            await site.actions.go_back(digest, await site.state())
            assert (await site.held())["server-password"] == upcoming
        await site.actions.go_back(token_hash("server"), await site.state())
        held = await site.held()
        assert held["server-password"] == "server"
        assert held["server-passwords-former"] == upcoming

    on_a_site(story)


def test_the_end_and_a_failure_are_recorded() -> None:
    async def story(site: Site) -> None:
        await site.until_rotate()
        await site.actions.record.set_phase("Done", await site.state())
        assert (await site.status())["rotateTokenPhase"] == "Done"
        await site.actions.record.fail("x" * 2000, await site.state())
        status = await site.status()
        assert (status["rotateTokenPhase"], len(status["rotateTokenRun"]["message"])) == ("Failed", 800)

    on_a_site(story)
