"""The steps of a snapshot, executed on a management API with supervisors that answer as they are told."""

from __future__ import annotations

import asyncio
import gc
from base64 import b64encode
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import Any

import pytest
from tests.support.clock import LoopClock, run_driven
from tests.unit.clusters.builders import NOON, SERVER, a_cluster, a_pool, look, some
from tests.unit.clusters.supervisors import Supervisors, a_file

from windrow.apiserver.storage.memory import MemoryStore
from windrow.app.embedded import management_api
from windrow.client.client import Client
from windrow.client.informer import Informer
from windrow.client.mutation_cache import MutationCache
from windrow.clusters.api.kinds import CLUSTER, ETCD_SNAPSHOT
from windrow.clusters.api.operations.recorded import RestoreRequest
from windrow.clusters.api.operations.snapshot import (
    SPEC_KEY,
    ETCDSnapshot,
    decode_spec,
    encode_spec,
    read_snapshot,
    read_snapshot_file,
    spec_digest,
)
from windrow.clusters.api.status import read_recorded_status
from windrow.clusters.change.carried_spec import carried_spec
from windrow.clusters.context import ReconcileContext, StalePlan
from windrow.clusters.execute.operations import OperationActions
from windrow.clusters.execute.servers.requests import LongRequests
from windrow.clusters.execute.servers.supervisors import Supervisors as ServerSupervisors
from windrow.clusters.plan.actions import OperationAction
from windrow.clusters.plan.operations import actions as do
from windrow.clusters.plan.operations import snapshots as planner
from windrow.clusters.state import ClusterState
from windrow.core.formats.json import dumps
from windrow.core.rng import Rng
from windrow.kubernetes.errors import Forbidden, OutcomeUnknown, Unreachable
from windrow.kubernetes.objects import Raw, new_object, uid_of
from windrow.kubernetes.requests import Reply
from windrow.kubernetes.resources import CONFIG_MAP, NAMESPACE, SECRET

SERVERS = a_pool("servers", 1, SERVER)
REF = CLUSTER.ref("prod", "fleet-default")
GONE = "the guest is gone"
ONE, TWO = "prod-local-one-44aaf299e0", "prod-local-two-98a16b90c8"  # of its files


@dataclass
class Site:
    """The management API with the Cluster, and the actions upon it."""

    api: Client
    guest: Client
    actions: OperationActions
    supervisors: Supervisors
    clock: LoopClock
    snapshots: MutationCache[ETCDSnapshot]
    closed: list[str]
    requests: LongRequests
    owner: asyncio.Task[None]

    async def stop(self) -> None:
        """The manager ends."""
        self.owner.cancel()
        await asyncio.wait([self.owner])

    async def state(self, **rest: Any) -> ClusterState:
        raw = await self.api.get(REF)
        recorded = replace(read_recorded_status(raw.get("status") or {}), initialized=True)
        etcd = raw["spec"]["rkeConfig"].get("etcd") or {}
        cluster = replace(a_cluster(SERVERS, recorded=recorded, raw=raw, etcd=etcd), uid=uid_of(raw))
        snapshots = [read_snapshot(one) for one in await self.api.list(ETCD_SNAPSHOT)]
        return look(cluster, some("s", 1, SERVERS), now=self.clock.now(), snapshots=tuple(snapshots), **rest)

    async def execute(self, action: OperationAction, **rest: Any) -> dict[str, Any]:
        """The status of the Cluster after the action, and after the request that it has begun."""
        await self.actions.execute(action, await self.state(**rest))
        await self.requests.wait()
        return dict((await self.api.get(REF)).get("status") or {})


def on_a_site(story: Callable[[Site], Awaitable[None]]) -> None:
    async def run() -> None:
        clock = LoopClock(NOON)
        server = management_api(MemoryStore(), clock, Rng(1))
        await server.prepare()
        api = Client(server.local())
        await api.create(NAMESPACE, new_object(NAMESPACE, "fleet-default"))
        spec = {"kubernetesVersion": "v1.35.1+rke2r1", "rkeConfig": {"chartValues": {"a": 1}}}
        await api.create(CLUSTER, new_object(CLUSTER, "prod", "fleet-default", spec=spec))
        unused: Any = None
        clusters = MutationCache(
            Informer(server.local(), CLUSTER, "", lambda raw: raw, clock, Rng(2)), lambda raw: "", clock
        )
        snapshots: MutationCache[ETCDSnapshot] = MutationCache(
            Informer(server.local(), ETCD_SNAPSHOT, "", read_snapshot, clock, Rng(2)),
            lambda one: one.resource_version,
            clock,
        )
        secrets: Any = {}
        context = ReconcileContext(api, clusters, unused, secrets, clock, Rng(2), unused)
        supervisors = Supervisors()

        closed: list[str] = []

        class Guests:
            def find(self, uid: str) -> Any:
                return None if GONE in closed else type("Connection", (), {"client": api})

            def close(self, uid: str) -> None:
                closed.append(uid)

        class Harvesters:
            def find_proxy(self, credential: str, namespace: str) -> str:
                return ""

        guests: Any = Guests()
        harvesters: Any = Harvesters()
        asked = ServerSupervisors(harvesters, supervisors.connect)
        requests = LongRequests(context.process_state.requests, lambda uid: None)
        actions = OperationActions(context, guests, asked, requests, snapshots, unused, unused)
        owner = asyncio.create_task(requests.run())
        await asyncio.sleep(0)
        try:
            await story(Site(api, api, actions, supervisors, clock, snapshots, closed, requests, owner))
        finally:
            owner.cancel()
            await asyncio.wait([owner])

    run_driven(run())


async def begun(site: Site) -> None:
    await site.execute(do.BeginSnapshot("asked", 1, "on-demand-1-7", ("s1",)))


def save(tries: int = 1) -> do.SaveSnapshot:
    return do.SaveSnapshot("asked", "s1", tries, "on-demand-1-7")


def node_of(status: dict[str, Any]) -> dict[str, Any]:
    return dict(status["etcdSnapshotCreateRun"]["nodes"]["s1"])


def test_a_snapshot_is_recorded_before_it_is_begun_and_finished_with_what_was_made() -> None:
    async def story(site: Site) -> None:
        status = await site.execute(do.BeginSnapshot("asked", 1, "on-demand-1-7", ("s1",)))
        assert status["etcdSnapshotCreate"] == {"generation": 1}
        assert status["etcdSnapshotCreatePhase"] == "Started"
        assert site.supervisors.asked == []

        status = await site.execute(save())
        assert node_of(status) == {"tries": 1, "snapshot": "on-demand-1-7-s1-1767268800"}

        status = await site.execute(do.FinishSnapshot("made", 1))
        assert status["etcdSnapshotCreatePhase"] == "Finished"

    on_a_site(story)


def test_the_try_is_recorded_before_the_request() -> None:
    async def story(site: Site) -> None:
        await begun(site)
        site.supervisors.answers = [RuntimeError("killed")]
        assert node_of(await site.execute(save())) == {"tries": 1}

    on_a_site(story)


def test_a_snapshot_that_takes_long_holds_no_reconcile_and_is_asked_for_once() -> None:
    async def story(site: Site) -> None:
        await begun(site)
        held = site.supervisors.held = asyncio.Event()
        await site.actions.execute(save(), await site.state())
        await asyncio.sleep(0)
        await site.actions.execute(save(), await site.state())  # by a plan of before
        await asyncio.sleep(0)
        under_way = frozenset({planner.request_name("s1")})
        plan = planner.plan(await site.state(requests=under_way))
        assert plan.actions == []
        assert [wait.what for wait in plan.waits] == ["Machine s1 to make an etcd snapshot"]

        held.set()
        await site.requests.wait()
        status = (await site.api.get(REF))["status"]
        assert node_of(status) == {"tries": 1, "snapshot": "on-demand-1-7-s1-1767268800"}
        assert len(site.supervisors.asked) == 1

    on_a_site(story)


LONG_REQUESTS = (
    save(),
    do.SaveUpgradeSnapshot("asked", "s1", "v1.35.1+rke2r1", "pre-upgrade-1", 1),
    do.SaveRotationSnapshot("asked", "s1", "pre-rotate-1"),
)


@pytest.mark.parametrize("action", LONG_REQUESTS, ids=lambda action: action.reason)
def test_a_request_that_is_under_way_already_leaves_no_connection_open(action: OperationAction) -> None:
    async def story(site: Site) -> None:
        await begun(site)
        held = site.supervisors.held = asyncio.Event()
        for _ in range(2):
            await site.actions.execute(action, await site.state())
            await asyncio.sleep(0)
        assert site.supervisors.open == 1
        held.set()
        await site.requests.wait()
        assert site.supervisors.open == 0

    on_a_site(story)


@pytest.mark.parametrize("action", LONG_REQUESTS, ids=lambda action: action.reason)
def test_a_request_that_never_begins_leaves_no_connection_open(action: OperationAction) -> None:
    async def story(site: Site) -> None:
        await begun(site)
        await site.stop()
        with pytest.raises(StalePlan):
            await site.actions.execute(action, await site.state())
        assert site.supervisors.open == 0

    on_a_site(story)


def test_a_request_without_answer_that_was_carried_out_is_not_repeated() -> None:
    async def story(site: Site) -> None:
        await begun(site)
        site.supervisors.answers = [OutcomeUnknown("connection reset")]
        status = await site.execute(save())
        assert node_of(status)["retryAt"] == "2026-01-01T12:00:10Z"
        assert "final" in node_of(status)
        assert node_of(status)["final"] is False
        site.supervisors.files = [
            a_file("on-demand-1-7-s2-9", node="s2"),
            a_file("on-demand-1-7-s1-8", status={"error": {"message": "no space"}}),
            a_file("on-demand-1-7-s1-9"),
        ]

        status = await site.execute(save(2))

        assert node_of(status) == {"tries": 2, "snapshot": "on-demand-1-7-s1-9", "final": False}
        assert [body["operation"] for _, _, body in site.supervisors.asked] == ["save", "list"]

    on_a_site(story)


def test_a_second_try_makes_the_snapshot_where_the_first_made_none() -> None:
    async def story(site: Site) -> None:
        await begun(site)
        status = await site.execute(save(2))
        assert node_of(status)["snapshot"] == "on-demand-1-7-s1-1767268800"
        assert [body["operation"] for _, _, body in site.supervisors.asked] == ["list", "save"]

    on_a_site(story)


@pytest.mark.parametrize(
    ("tries", "answer", "final", "wait_s"),
    [
        (1, Reply(500, b"no space left"), False, 10),
        (2, Reply(500, b"no space left"), False, 60),
        (3, Reply(500, b"no space left"), True, 60),
        (1, Reply(404, b"404 page not found"), True, 10),
        (1, Reply(401, b"Unauthorized"), True, 10),
    ],
)
def test_what_a_later_try_cannot_change_is_not_tried_again(
    tries: int, answer: Reply, final: bool, wait_s: int
) -> None:
    async def story(site: Site) -> None:
        await begun(site)
        site.supervisors.answers = [lambda request: answer]
        node = node_of(await site.execute(save(tries)))
        assert (node["tries"], node["final"]) == (tries, final)
        assert node["message"].startswith("https://10.0.0.1:9345 ")
        planned = planner.plan(await site.state(snapshot_files=None))
        if final:
            assert isinstance(planned.actions[0], do.FailSnapshot)
        else:
            (wait,) = planned.waits
            assert wait.until is not None
            assert (wait.until - NOON).total_seconds() == wait_s

    on_a_site(story)


def test_a_machine_that_is_gone_makes_none() -> None:
    async def story(site: Site) -> None:
        await begun(site)
        status = await site.execute(do.SaveSnapshot("asked", "s9", 1, "on-demand-1-7"))
        assert status["etcdSnapshotCreateRun"]["nodes"]["s9"] == {
            "message": "the Machine is gone",
            "final": True,
        }

    on_a_site(story)


def test_a_later_generation_forgets_the_machines_of_the_one_before() -> None:
    async def story(site: Site) -> None:
        await begun(site)
        await site.execute(do.FailSnapshot("no disk", 1))
        status = await site.execute(do.BeginSnapshot("asked", 2, "on-demand-2-7", ("s2",)))
        assert status["etcdSnapshotCreateRun"] == {"name": "on-demand-2-7", "nodes": {"s2": {"tries": 0}}}

    on_a_site(story)


def test_a_later_generation_asks_the_machines_again_that_have_made_one() -> None:
    async def story(site: Site) -> None:
        await begun(site)
        await site.execute(save())
        await site.execute(do.FinishSnapshot("made", 1))
        status = await site.execute(do.BeginSnapshot("asked", 2, "on-demand-2-7", ("s1",)))
        assert node_of(status) == {"tries": 0}

    on_a_site(story)


def test_a_failure_is_recorded_with_its_reason() -> None:
    async def story(site: Site) -> None:
        await begun(site)
        status = await site.execute(do.FailSnapshot("no disk", 1))
        assert status["etcdSnapshotCreatePhase"] == "Failed"
        assert status["etcdSnapshotCreateRun"]["message"] == "no disk"

    on_a_site(story)


def test_of_two_managers_one_begins_a_snapshot() -> None:
    async def story(site: Site) -> None:
        state = await site.state()
        await begun(site)
        with pytest.raises(StalePlan):
            await site.actions.execute(do.BeginSnapshot("asked", 1, "on-demand-1-8", ("s1",)), state)

    on_a_site(story)


def test_with_s3_the_request_has_the_keys_of_the_cloud_credential() -> None:
    async def story(site: Site) -> None:
        keys = {"s3credentialConfig-accessKey": "YQ==", "s3credentialConfig-secretKey": "cw=="}
        await site.api.create(SECRET, new_object(SECRET, "cc-s3", "fleet-default", data=keys))
        s3 = {"bucket": "backups", "cloudCredentialName": "fleet-default:cc-s3"}
        await site.api.patch(REF, {"spec": {"rkeConfig": {"etcd": {"s3": s3}}}})
        await begun(site)
        await site.execute(save())

        sent = site.supervisors.asked[0][2]["s3"]
        assert (sent["bucket"], sent["accessKey"], sent["secretKey"]) == ("backups", "a", "s")
        assert "cloudCredentialName" not in sent

    on_a_site(story)


def file_of(name: str, **rest: Any) -> Any:
    return read_snapshot_file(a_file(name, **rest))


async def listed(site: Site) -> list[Raw]:
    return await site.api.list(ETCD_SNAPSHOT)


def test_the_objects_follow_what_the_guest_lists() -> None:
    async def story(site: Site) -> None:
        one, two = file_of("one"), file_of("two")
        await site.execute(do.RecordSnapshots("listed", (one, two), ()))
        await site.execute(do.RecordSnapshots("listed", (replace(one, size=7),), ()))
        sizes = {raw["metadata"]["name"]: raw["snapshotFile"]["size"] for raw in await listed(site)}
        assert sizes == {ONE: 7, TWO: 1056}
        gone = next(one for one in (await site.state()).snapshots if one.name == ONE)
        await site.execute(do.RecordSnapshots("listed", (), (gone,)))
        await site.execute(do.RecordSnapshots("listed", (), (gone,)))  # again, as after a restart
        assert [raw["metadata"]["name"] for raw in await listed(site)] == [TWO]

    on_a_site(story)


@pytest.mark.filterwarnings("error::pytest.PytestUnraisableExceptionWarning", "error::RuntimeWarning")
def test_a_manager_that_ends_as_it_records_snapshots_leaves_no_write_half_begun() -> None:
    async def story(site: Site) -> None:
        state, record = await site.state(), do.RecordSnapshots("listed", (file_of("one"),), ())
        recording = asyncio.create_task(site.actions.execute(record, state))
        await asyncio.sleep(0)  # its writes are tasks now, and none of them has begun
        recording.cancel()
        await asyncio.wait([recording])
        gc.collect()
        assert await listed(site) == []

    on_a_site(story)


def test_what_a_file_says_no_more_is_taken_out_of_its_object() -> None:
    async def story(site: Site) -> None:
        failed = file_of("one", status={"error": {"message": "no bucket"}}, spec={"s3": {"bucket": "b"}})
        await site.execute(do.RecordSnapshots("listed", (failed,), ()))
        made = replace(file_of("one"), token_hash="abc")
        await site.execute(do.RecordSnapshots("listed", (made,), ()))
        await site.execute(do.RecordSnapshots("listed", (made,), ()))
        (raw,) = await listed(site)
        assert not raw["snapshotFile"].keys() & {"message", "s3"}
        assert planner.plan(await site.state(snapshot_files=(made,))).actions[1:] == []

    on_a_site(story)


def test_the_spec_that_a_file_carried_stays_in_its_object_when_the_guest_does_not_say_it_any_more() -> None:
    async def story(site: Site) -> None:
        carried = {SPEC_KEY: encode_spec({"kubernetesVersion": "v1.34.7+rke2r1"})}
        made = file_of("one", spec={"s3": {"bucket": "b"}, "metadata": carried})
        await site.execute(do.RecordSnapshots("listed", (made,), ()))
        relisted = replace(made, metadata={}, size=7)
        await site.execute(do.RecordSnapshots("listed", (relisted,), ()))
        (raw,) = await listed(site)
        assert raw["snapshotFile"]["size"] == 7
        assert decode_spec(raw["snapshotFile"]["metadata"])["kubernetesVersion"] == "v1.34.7+rke2r1"
        assert planner.plan(await site.state(snapshot_files=(relisted,))).actions[1:] == []

        await site.execute(do.RecordSnapshots("listed", (relisted.without_metadata("too large"),), ()))
        (raw,) = await listed(site)
        assert "metadata" not in raw["snapshotFile"]

    on_a_site(story)


RESTORED = "windrow.io/restored-generation"


def test_a_restore_that_is_under_way_is_taken_over_whatever_the_guest_has_on_record() -> None:
    async def story(site: Site) -> None:
        uid = (await site.state()).cluster.uid
        await write_restored(site, f"{uid}/3")
        under_way = {"etcdSnapshotRestore": {"generation": 1}, "etcdSnapshotRestorePhase": "Shutdown"}
        await site.api.patch(REF, {"status": under_way}, "status")
        status = await site.execute(do.BeginRestore("asked", RestoreRequest("nothing", 2), ()))
        assert (status["etcdSnapshotRestorePhase"], status["etcdSnapshotRestore"]["generation"]) == (
            "Shutdown",
            2,
        )
        assert "does not exist" in status["etcdSnapshotRestoreRun"]["refused"]

    on_a_site(story)


async def write_restored(site: Site, text: str) -> None:
    ref = NAMESPACE.ref("kube-system")
    await site.guest.patch(ref, {"metadata": {"annotations": {RESTORED: text}}})


@pytest.mark.parametrize(
    ("text", "is_begun"),
    [
        ("{uid}/3", False),
        ("{uid}/4", False),
        ("{uid}/2", True),
        ("other/3", True),  # of the original of a copy
        ("{uid}/-3", True),
        ("{uid}/999999999999999999999", True),
        ("{uid}/", True),
        ("", True),
    ],
)
def test_a_restore_that_the_guest_has_on_record_is_not_carried_out_once_more(
    text: str, is_begun: bool
) -> None:
    async def story(site: Site) -> None:
        uid = (await site.state()).cluster.uid
        await write_restored(site, text.format(uid=uid))
        begin = do.BeginRestore("asked", RestoreRequest("nothing", 3), ())
        status = await site.execute(begin)
        assert status["etcdSnapshotRestore"]["generation"] == 3
        # Nothing is called so, which is found where it is begun.
        assert status["etcdSnapshotRestorePhase"] == ("Failed" if is_begun else "Finished")
        if not is_begun:
            done = text.rpartition("/")[2]
            message = status["etcdSnapshotRestoreRun"]["message"]
            assert f"was restored by generation {done} before" in message
            assert f"write generation {int(done) + 1} to restore it once more" in message

    on_a_site(story)


def test_the_end_of_a_restore_is_recorded_in_the_guest_and_one_without_an_answer_ends_it_too() -> None:
    async def story(site: Site) -> None:
        status = await site.execute(do.FinishRestore("snapshot one", 3))
        assert status["etcdSnapshotRestorePhase"] == "Finished"
        uid = (await site.state()).cluster.uid
        found = await site.guest.get(NAMESPACE.ref("kube-system"))
        assert found["metadata"]["annotations"][RESTORED] == f"{uid}/3"

        await site.api.patch(REF, {"status": {"etcdSnapshotRestorePhase": "RestartCluster"}}, "status")
        site.closed.append(GONE)
        status = await site.execute(do.FinishRestore("snapshot one", 4))
        assert status["etcdSnapshotRestorePhase"] == "Finished"

    on_a_site(story)


def failures_of(status: dict[str, Any]) -> dict[str, Any]:
    return dict(status.get("etcdSnapshotFailures") or {})


def test_an_object_of_another_cluster_is_not_touched_and_that_is_told() -> None:
    async def story(site: Site) -> None:
        taken = new_object(
            ETCD_SNAPSHOT, ONE, "fleet-default", annotations={"a": "b"}, spec={"clusterName": "x"}
        )
        before = await site.api.create(ETCD_SNAPSHOT, taken)
        record = do.RecordSnapshots("listed", (file_of("one"), file_of("two")), ())
        status = await site.execute(record)
        assert await site.api.get(ETCD_SNAPSHOT.ref(ONE, "fleet-default")) == before
        assert {raw["metadata"]["name"] for raw in await listed(site)} == {ONE, TWO}
        assert failures_of(status) == {
            ONE: {
                "message": f"ETCDSnapshot fleet-default/{ONE} is not of this Cluster; delete it, or name it otherwise",
                "tries": 1,
                "retryAt": "2026-01-01T12:00:30Z",
            }
        }
        await site.api.delete(ETCD_SNAPSHOT.ref(ONE, "fleet-default"))
        assert failures_of(await site.execute(record)) == {}

    on_a_site(story)


def test_a_deletion_that_a_server_refuses_is_recorded_and_tried_ever_later() -> None:
    async def story(site: Site) -> None:
        await site.execute(do.RecordSnapshots("listed", (file_of("one"),), ()))
        (held,) = (await site.state()).snapshots
        for tries, due in ((1, "12:00:30"), (2, "12:01:00"), (3, "12:02:00")):
            site.supervisors.answers = [lambda request: Reply(500, b"S3 does not answer")]
            status = await site.execute(do.DeleteSnapshot("deleted", held, "s1"))
            said = failures_of(status)[ONE]
            assert (said["tries"], said["retryAt"]) == (tries, f"2026-01-01T{due}Z")
            assert "S3 does not answer" in said["message"]
        long = {"etcdSnapshotFailures": {ONE: {"tries": 5000}}}
        await site.api.patch(REF, {"status": long}, "status")
        site.supervisors.answers = [OutcomeUnknown("connection reset")]
        status = await site.execute(do.DeleteSnapshot("deleted", held, "s1"))
        assert failures_of(status)[ONE]["retryAt"] == "2026-01-01T12:30:00Z"
        assert failures_of(await site.execute(do.DeleteSnapshot("deleted", held, "s1"))) == {}

    on_a_site(story)


def test_failures_that_are_over_are_forgotten() -> None:
    async def story(site: Site) -> None:
        await site.api.patch(
            REF, {"status": {"etcdSnapshotFailures": {"a": {"tries": 1}, "b": {}}}}, "status"
        )
        assert failures_of(await site.execute(do.RecordSnapshots("x", (), (), ("a",)))) == {"b": {}}

    on_a_site(story)


def test_what_the_guest_refuses_of_a_config_map_is_a_failure_of_that_alone(monkeypatch: Any) -> None:
    async def refuse(*_: Any) -> Any:
        raise Forbidden('admission webhook "validate.example.org" denied the request')

    async def story(site: Site) -> None:
        with monkeypatch.context() as patched:
            patched.setattr(site.guest, "create", refuse)
            status = await site.execute(do.WriteSnapshotMetadata("changed", "d"))
        assert "denied" in failures_of(status)[planner.METADATA]["message"]
        assert "etcdSnapshotMetadata" not in status
        assert failures_of(await site.execute(do.WriteSnapshotMetadata("changed", "d"))) == {}

    on_a_site(story)


def test_a_deleted_object_stays_until_its_file_is_gone() -> None:
    async def story(site: Site) -> None:
        await site.execute(do.RecordSnapshots("listed", (file_of("one"),), ()))
        await site.api.delete(ETCD_SNAPSHOT.ref(ONE, "fleet-default"))
        (held,) = (await site.state()).snapshots
        assert held.is_deleting
        await site.execute(do.DeleteSnapshot("deleted", held, "s1"))
        assert site.supervisors.asked[-1][2] == {"operation": "delete", "name": ["one"]}
        assert len(await listed(site)) == 1
        await site.execute(do.RecordSnapshots("listed", (), (held,)))
        assert await listed(site) == []

    on_a_site(story)


def test_objects_of_a_deleted_cluster_lose_their_finalizer_and_stay_for_garbage_collection() -> None:
    async def story(site: Site) -> None:
        await site.execute(do.RecordSnapshots("listed", (file_of("one"),), ()))
        await site.execute(do.ReleaseSnapshots("deleted", (await site.state()).snapshots))
        (raw,) = await listed(site)
        assert "finalizers" not in raw["metadata"] or raw["metadata"]["finalizers"] == []

    on_a_site(story)


def test_the_guest_is_given_the_spec_and_that_is_recorded_afterwards() -> None:
    async def story(site: Site) -> None:
        for digest in ("d1", "d2"):
            status = await site.execute(do.WriteSnapshotMetadata("changed", digest))
            assert status["etcdSnapshotMetadata"] == {"digest": digest}
        raw = await site.guest.get(CONFIG_MAP.ref("rke2-etcd-snapshot-extra-metadata", "kube-system"))
        assert list(raw["data"]) == ["provisioning-cluster-spec"]
        # The spec is known again by its digest, also when others were written since.
        first = spec_digest(carried_spec((await site.api.get(REF))["spec"]))
        assert status["etcdSnapshotSpecs"] == [first]
        old = [f"{n}" for n in range(199)]
        await site.api.patch(REF, {"status": {"etcdSnapshotSpecs": [first, *old]}}, "status")
        assert (await site.execute(do.WriteSnapshotMetadata("x", "d")))["etcdSnapshotSpecs"] == [*old, first]
        await site.api.patch(REF, {"spec": {"paused": True}})
        status = await site.execute(do.WriteSnapshotMetadata("x", "d"))
        assert len(status["etcdSnapshotSpecs"]) == 200
        assert status["etcdSnapshotSpecs"][0] == "1"

    on_a_site(story)


def test_the_guest_is_given_no_credentials() -> None:
    async def story(site: Site) -> None:
        env = [{"name": "HTTPS_PROXY", "value": "http://user:s3cr3t@proxy:3128"}]
        await site.api.patch(REF, {"spec": {"agentEnvVars": env}})
        await site.execute(do.WriteSnapshotMetadata("changed", "d"))
        raw = await site.guest.get(CONFIG_MAP.ref("rke2-etcd-snapshot-extra-metadata", "kube-system"))
        metadata = b64encode(dumps(raw["data"])).decode()
        assert "s3cr3t" not in str(decode_spec(metadata))

    on_a_site(story)


def test_the_guest_is_given_the_keys_of_s3_and_others_when_they_change() -> None:
    async def story(site: Site) -> None:
        await restorable(site)
        ref = SECRET.ref("rke2-etcd-snapshot-s3-config", "kube-system")
        status = await site.execute(do.WriteS3Secret("changed", "d1"))
        assert status["etcdSnapshotS3"] == {"digest": "d1"}
        first = (await site.guest.get(ref))["data"]
        assert first["etcd-s3-secret-key"] == "cw=="
        await site.api.patch(
            SECRET.ref("cc-s3", "fleet-default"), {"data": {"s3credentialConfig-secretKey": "eA=="}}
        )
        await site.api.patch(REF, {"spec": {"rkeConfig": {"etcd": {"s3": {"region": "eu"}}}}})
        await site.execute(do.WriteS3Secret("changed", "d2"))
        second = (await site.guest.get(ref))["data"]
        assert second == {**first, "etcd-s3-secret-key": "eA==", "etcd-s3-region": "ZXU="}
        await site.api.patch(REF, {"spec": {"rkeConfig": {"etcd": {"s3": {"region": None}}}}})
        await site.execute(do.WriteS3Secret("changed", "d3"))
        assert "etcd-s3-region" not in (await site.guest.get(ref))["data"]

    on_a_site(story)


def test_an_action_that_is_no_step_is_a_defect() -> None:
    async def story(site: Site) -> None:
        with pytest.raises(TypeError):
            await site.execute(OperationAction("x"))

    on_a_site(story)


# -- restore ---------------------------------------------------------------------------------------------------------

REQUEST = RestoreRequest(ONE, 1)
THEN = {"kubernetesVersion": "v1.34.1+rke2r1", "rkeConfig": {}}


async def restorable(site: Site, **rest: Any) -> None:
    """An object in S3, and a Cluster whose snapshots go there."""
    metadata = {"provisioning-cluster-spec": encode_spec(THEN)}
    file = file_of("one", spec={"s3": {"bucket": "backups", "prefix": "f"}, "metadata": metadata})
    await site.execute(do.RecordSnapshots("listed", (file,), ()))
    await site.api.patch(REF, {"status": {"etcdSnapshotSpecs": [spec_digest(THEN)]}}, "status")
    keys = {"s3credentialConfig-accessKey": "YQ==", "s3credentialConfig-secretKey": "cw=="}
    await site.api.create(SECRET, new_object(SECRET, "cc-s3", "fleet-default", data=keys))
    s3 = {"bucket": "backups", "cloudCredentialName": "fleet-default:cc-s3"}
    await site.api.patch(REF, {"spec": {"rkeConfig": {"etcd": {"s3": s3}}}})
    site.supervisors.files = [a_file(name, spec={"s3": {"bucket": "backups"}}) for name in ("one", "two")]


@pytest.mark.parametrize(
    ("files", "answer", "words"),
    [
        ([], None, "the file of ETCDSnapshot fleet-default/{name} is not in S3 any more"),
        ([a_file("one")], None, "is not in S3 any more"),  # on a disk only
        (
            [a_file("one", spec={"s3": {}}, status={"size": "1055"})],
            None,
            "has 1055 bytes, and had 1056: it was cut off",
        ),
        (
            [a_file("one", spec={"s3": {}}, status={"size": "544"})],
            None,
            "has 544 bytes, and had 1056: it was cut off",
        ),
        ([], lambda request: Reply(400, b'{"message": "Access Denied"}'), "Machine s1 cannot read S3"),
    ],
)
def test_a_server_that_does_not_find_the_file_whole_keeps_it_from_being_restored(
    files: list[dict[str, Any]], answer: Any, words: str
) -> None:
    async def story(site: Site) -> None:
        await restorable(site)
        site.supervisors.files = files
        site.supervisors.answers = [answer] * 3 if answer else []
        status = await site.execute(begin())
        assert status["etcdSnapshotRestorePhase"] == "Failed"
        message = status["etcdSnapshotRestoreRun"]["message"]
        assert words.format(name=ONE) in message
        assert "nothing was touched" in message
        assert site.supervisors.asked[-1][2]["s3"]["bucket"] == "backups"

    on_a_site(story)


def test_a_server_that_does_not_answer_keeps_nothing_from_being_restored() -> None:
    async def story(site: Site) -> None:
        await restorable(site)
        site.supervisors.answers = [Unreachable("connection refused")] * 3
        assert (await site.execute(begin()))["etcdSnapshotRestorePhase"] == "Started"

    on_a_site(story)


def begin(request: RestoreRequest = REQUEST) -> do.BeginRestore:
    return do.BeginRestore("asked", request, ("uid-s1",))


def test_a_restore_is_recorded_with_its_file_its_place_and_what_it_replaces() -> None:
    async def story(site: Site) -> None:
        await restorable(site)
        status = await site.execute(begin())
        assert status["etcdSnapshotRestore"] == {
            "name": ONE,
            "generation": 1,
            "restoreRKEConfig": "none",
        }
        assert status["etcdSnapshotRestorePhase"] == "Started"
        assert status["etcdSnapshotRestoreRun"] == {
            "id": f"1-{int(NOON.timestamp())}",
            "file": "one",
            "s3": {},
            "replaced": ["uid-s1"],
            "since": "2026-01-01T12:00:00Z",
        }

    on_a_site(story)


def test_a_snapshot_is_read_where_the_cluster_says_and_never_where_its_guest_says() -> None:
    async def story(site: Site) -> None:
        await restorable(site)
        evil = {"bucket": "backups", "endpoint": "evil.example:443", "skipSSLVerify": True}
        await site.execute(do.RecordSnapshots("listed", (file_of("two", spec={"s3": evil}),), ()))
        await site.api.patch(
            REF, {"status": {"etcdSnapshotRestoreRun": {"s3": {"bucket": "before"}}}}, "status"
        )
        status = await site.execute(begin(RestoreRequest(TWO, 1)))
        assert status["etcdSnapshotRestorePhase"] == "Started"
        assert not status["etcdSnapshotRestoreRun"].get("s3")

    on_a_site(story)


def test_what_cannot_be_restored_fails_before_anything_is_touched() -> None:
    async def story(site: Site) -> None:
        status = await site.execute(begin(RestoreRequest(TWO, 1)))
        assert status["etcdSnapshotRestorePhase"] == "Failed"
        assert status["etcdSnapshotRestoreRun"]["message"].startswith(
            f"ETCDSnapshot fleet-default/{TWO} does not exist; "
        )
        assert "initialized" not in status

    on_a_site(story)


@pytest.mark.parametrize("member", ["uid-s1", None])
def test_a_generation_that_is_refused_while_another_is_carried_out_leaves_that_as_it_is(
    member: str | None,
) -> None:
    async def story(site: Site) -> None:
        await restorable(site)
        await site.execute(begin())
        run = {"member": member, "path": "/a", "replaced": ["uid-s2"], "message": "m"}
        change = {"etcdSnapshotRestorePhase": "Shutdown", "etcdSnapshotRestoreRun": run}
        await site.api.patch(REF, {"status": change}, "status")
        before = (await site.api.get(REF))["status"]

        after = await site.execute(begin(RestoreRequest(TWO, 2)))

        refused = after["etcdSnapshotRestoreRun"].pop("refused")
        assert refused.startswith(f"ETCDSnapshot fleet-default/{TWO} does not exist; ")
        assert after.pop("etcdSnapshotRestore") == before.pop("etcdSnapshotRestore") | {"generation": 2}
        assert after == before
        # The next one that is fit takes its place.
        status = await site.execute(begin(RestoreRequest(ONE, 3)))
        assert status["etcdSnapshotRestorePhase"] == "Started"
        assert not status["etcdSnapshotRestoreRun"].keys() & {"refused", "member"}

    on_a_site(story)


def test_without_the_keys_of_s3_nothing_is_restored() -> None:
    async def story(site: Site) -> None:
        await restorable(site)
        await site.api.patch(
            REF, {"spec": {"rkeConfig": {"etcd": {"s3": {"cloudCredentialName": "fleet-default:no"}}}}}
        )
        status = await site.execute(begin())
        assert status["etcdSnapshotRestorePhase"] == "Failed"
        assert "fleet-default/no" in status["etcdSnapshotRestoreRun"]["message"]
        await site.api.patch(REF, {"spec": {"rkeConfig": {"etcd": None}}})
        status = await site.execute(begin(RestoreRequest(ONE, 2)))
        assert status["etcdSnapshotRestoreRun"]["message"].startswith("spec.rkeConfig.etcd.s3 is not set; ")

    on_a_site(story)


def test_the_spec_of_then_is_written_before_the_machines_go_and_a_repetition_changes_nothing() -> None:
    async def story(site: Site) -> None:
        await restorable(site)
        await site.execute(begin(replace(REQUEST, config="kubernetesVersion")))
        with pytest.raises(StalePlan):
            await site.execute(do.RestoreSpec("asked"))
        spec = (await site.api.get(REF))["spec"]
        assert spec["kubernetesVersion"] == "v1.34.1+rke2r1"
        assert spec["rkeConfig"]["chartValues"] == {"a": 1}
        status = await site.execute(do.RestoreSpec("asked"))
        assert status["etcdSnapshotRestorePhase"] == "Shutdown"
        assert (await site.api.get(REF))["spec"] == spec

    on_a_site(story)


def test_all_of_the_spec_takes_out_what_was_not_there_then() -> None:
    async def story(site: Site) -> None:
        await restorable(site)
        await site.execute(begin(replace(REQUEST, config="all")))
        with pytest.raises(StalePlan):
            await site.execute(do.RestoreSpec("asked"))
        assert (await site.api.get(REF))["spec"]["rkeConfig"] == {}

    on_a_site(story)


def test_a_spec_that_cannot_be_read_any_more_ends_the_restore_while_nothing_is_touched() -> None:
    async def story(site: Site) -> None:
        await restorable(site)
        await site.execute(begin(replace(REQUEST, config="all")))
        (held,) = (await site.state()).snapshots
        await site.execute(do.RecordSnapshots("listed", (), (held,)))
        status = await site.execute(do.RestoreSpec("asked"))
        assert status["etcdSnapshotRestorePhase"] == "Failed"
        assert "nothing was touched" in status["etcdSnapshotRestoreRun"]["message"]

    on_a_site(story)


def test_without_a_spec_to_write_the_machines_go_at_once_also_when_the_object_is_gone() -> None:
    async def story(site: Site) -> None:
        await restorable(site)
        await site.execute(begin())
        (held,) = (await site.state()).snapshots
        await site.execute(do.RecordSnapshots("listed", (), (held,)))
        assert (await site.execute(do.RestoreSpec("asked")))["etcdSnapshotRestorePhase"] == "Shutdown"

    on_a_site(story)


@pytest.mark.parametrize(("config", "version"), [("none", "v1.33.1+rke2r1"), ("all", "v1.35.1+rke2r1")])
def test_the_cluster_begins_anew_in_one_write_with_the_version_that_was_asked_for(
    config: Any, version: str
) -> None:
    async def story(site: Site) -> None:
        await restorable(site)
        await site.execute(begin(replace(REQUEST, config=config)))
        before = {
            "initialized": True,
            "initServer": {"name": "s1", "uid": "uid-s1"},
            "version": "v1.33.1+rke2r1",
            "guestUID": "guest",
            "immutableConfig": {"x": 1},
        }
        await site.api.patch(REF, {"status": before}, "status")
        status = await site.execute(do.StartRestore("gone"))
        assert status["etcdSnapshotRestorePhase"] == "Restore"
        assert not status.keys() & {"initialized", "initServer", "immutableConfig", "creating"}
        assert (status["version"], status["guestUID"]) == (version, "guest")
        assert site.closed == [(await site.state()).cluster.uid]

    on_a_site(story)


def test_the_end_is_recorded_with_what_was_restored() -> None:
    async def story(site: Site) -> None:
        status = await site.execute(do.AdvanceRestore("ready", "PostRestoreNodeCleanup"))
        assert status["etcdSnapshotRestorePhase"] == "PostRestoreNodeCleanup"
        assert "message" not in status["etcdSnapshotRestoreRun"]
        status = await site.execute(do.FinishRestore("snapshot one", 1))
        assert status["etcdSnapshotRestorePhase"] == "Finished"
        assert status["etcdSnapshotRestoreRun"]["message"] == "snapshot one"

    on_a_site(story)


async def with_s3(site: Site, **s3: Any) -> None:
    keys = {"s3credentialConfig-accessKey": "YQ==", "s3credentialConfig-secretKey": "cw=="}
    await site.api.create(SECRET, new_object(SECRET, "cc-s3", "fleet-default", data=keys))
    s3 = {"cloudCredentialName": "fleet-default:cc-s3", **s3}
    await site.api.patch(REF, {"spec": {"rkeConfig": {"etcd": {"s3": s3}}}})


async def delete_of(site: Site, **said: Any) -> dict[str, Any]:
    """The failures after the deletion of a snapshot that the guest says to be there in S3."""
    await site.execute(do.RecordSnapshots("listed", (file_of("one", spec={"s3": said}),), ()))
    (snapshot,) = (await site.state()).snapshots
    return failures_of(await site.execute(do.DeleteSnapshot("deleted", snapshot, "s1")))


def test_a_snapshot_in_s3_is_deleted_where_the_spec_of_its_cluster_says() -> None:
    async def story(site: Site) -> None:
        await with_s3(site, bucket="backups", endpoint="s3.site:9000", folder="prod/")
        place = {"bucket": "backups", "endpoint": "s3.site:9000", "prefix": "prod", "skipSSLVerify": True}
        assert await delete_of(site, **place) == {}
        (sent,) = [body for _, _, body in site.supervisors.asked if body["operation"] == "delete"]
        assert (sent["s3"]["endpoint"], sent["s3"]["secretKey"]) == ("s3.site:9000", "s")
        assert not sent["s3"].get("skipSSLVerify")  # the guest says so, not the spec

    on_a_site(story)


@pytest.mark.parametrize(
    ("said", "words"),
    [
        (
            {"bucket": "backups", "endpoint": "evil.example.org", "prefix": "prod"},
            "endpoint evil.example.org",
        ),
        ({"bucket": "others", "endpoint": "s3.site:9000", "prefix": "prod"}, "bucket others"),
        ({"bucket": "backups", "endpoint": "s3.site:9000"}, "folder (none)"),
        ({"bucket": "backups", "prefix": "prod"}, "endpoint s3.amazonaws.com"),
    ],
)
def test_no_key_is_sent_to_a_place_that_only_the_guest_names(said: dict[str, Any], words: str) -> None:
    async def story(site: Site) -> None:
        await with_s3(site, bucket="backups", endpoint="s3.site:9000", folder="prod")
        (failure,) = (await delete_of(site, **said)).values()
        assert f"is in {words} of S3, which is not where spec.rkeConfig.etcd.s3 has" in failure["message"]
        assert "not deleted" in failure["message"]
        assert [body for _, _, body in site.supervisors.asked if body.get("operation") == "delete"] == []

    on_a_site(story)


def test_a_snapshot_in_s3_of_a_cluster_without_s3_is_not_deleted() -> None:
    async def story(site: Site) -> None:
        (failure,) = (await delete_of(site, bucket="backups")).values()
        assert "is in bucket backups of S3" in failure["message"]
        assert site.supervisors.asked == []

    on_a_site(story)
