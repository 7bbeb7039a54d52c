"""`windrow snapshot`: what it asks for, and what it shows."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from tests.unit.cli.conftest import Manager, Windrow

from windrow.app.clock import SystemClock
from windrow.cli.commands.snapshot import (
    describe_size,
    raise_generation,
    render_snapshots,
    render_wide,
)
from windrow.client.informer import make_watcher, watching
from windrow.clusters.api.kinds import CLUSTER, ETCD_SNAPSHOT, MACHINE
from windrow.clusters.api.operations.generations import next_generation
from windrow.kubernetes.objects import new_object
from windrow.kubernetes.patches import PatchFailed, apply_json_patch

ORCHARD = CLUSTER.ref("orchard", "fleet-default")


def a_snapshot(name: str = "orchard-local-one", cluster: str = "orchard", /, **file: Any) -> dict[str, Any]:
    said = {
        "name": "one",
        "nodeName": "orchard-servers-1",
        "size": 5 * 2**20,
        "createdAt": "2026-01-01T10:00:00Z",
        "status": "successful",
        **file,
    }
    return new_object(
        ETCD_SNAPSHOT,
        name,
        "fleet-default",
        spec={"clusterName": cluster},
        snapshotFile=said,
        status={"openable": "True", "storage": "s3" if "s3" in file else "local"},
    )


def put(manager: Manager, *raws: dict[str, Any]) -> None:
    async def create(api: Any) -> None:
        for raw in raws:
            await api.create(ETCD_SNAPSHOT, raw)

    manager.do(create)


def status(manager: Manager, change: dict[str, Any]) -> None:
    async def patch(api: Any) -> None:
        await api.patch(ORCHARD, {"status": change}, "status")

    manager.do(patch)


def asked(manager: Manager) -> Any:
    async def get(api: Any) -> Any:
        return (await api.get(ORCHARD))["spec"]["rkeConfig"].get("etcdSnapshotCreate")

    return manager.do(get)


def test_each_snapshot_raises_the_generation(windrow: Windrow, manager: Manager) -> None:
    assert windrow("apply", "-f", "cluster.yaml").code == 0

    assert windrow("snapshot", "create", "orchard").out == "fleet-default/orchard: snapshot 1 is asked for\n"
    assert windrow("snapshot", "create", "orchard").out == "fleet-default/orchard: snapshot 2 is asked for\n"
    assert asked(manager) == {"generation": 2}


def a_run(phase: str, **rest: Any) -> dict[str, Any]:
    return {
        "etcdSnapshotCreate": {"generation": 2},
        "etcdSnapshotCreatePhase": phase,
        "etcdSnapshotCreateRun": rest,
    }


@pytest.mark.parametrize("phase", ["Started", "Finished"])
def test_what_was_carried_out_before_is_not_what_is_waited_for(
    windrow: Windrow, manager: Manager, phase: str
) -> None:
    windrow("apply", "-f", "cluster.yaml")
    status(manager, a_run(phase))

    assert windrow("snapshot", "create", "orchard", "--timeout", "1s").code == 6
    assert asked(manager) == {"generation": 3}


def wait_for(manager: Manager, windrow: Windrow, change: dict[str, Any]) -> Any:
    """`create --wait`, whose generation is carried out so."""
    windrow("apply", "-f", "cluster.yaml")

    async def play(api: Any) -> None:
        clusters = make_watcher(api, CLUSTER, lambda raw: raw["spec"]["rkeConfig"], SystemClock())
        async with watching(clusters) as changed:
            while "etcdSnapshotCreate" not in (clusters.get(ORCHARD) or {}):
                changed.clear()
                await changed.wait()
        await api.patch(ORCHARD, {"status": change}, "status")

    with ThreadPoolExecutor(1) as pool:
        playing = pool.submit(manager.do, play)
        answer = windrow("snapshot", "create", "orchard", "--timeout", "20s")
        playing.result()
    return answer


def test_with_wait_the_names_are_printed_that_a_restore_takes(windrow: Windrow, manager: Manager) -> None:
    windrow("apply", "-f", "cluster.yaml")
    put(
        manager,
        a_snapshot("orchard-local-one", name="one"),
        a_snapshot("orchard-s3-one", name="one", s3={"bucket": "b"}),
        a_snapshot("orchard-local-two", name="two"),
        a_snapshot("other-local-one", "other", name="one"),
    )
    answer = wait_for(manager, windrow, a_run("Finished", nodes={"s1": {"snapshot": "one"}}))

    assert (answer.code, answer.out.splitlines()[1:]) == (0, ["s1: orchard-local-one", "s1: orchard-s3-one"])


def test_with_wait_what_is_not_recorded_yet_is_told_so(
    windrow: Windrow, manager: Manager, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("windrow.cli.commands.snapshot.LISTED_WITHIN", timedelta(milliseconds=100))
    answer = wait_for(manager, windrow, a_run("Finished", nodes={"s1": {"snapshot": "on-demand-1"}}))

    told = "s1: made; windrow snapshot list names it once it is recorded"
    assert (answer.code, answer.out.splitlines()[-1]) == (0, told)


def test_with_wait_a_failure_is_told_with_what_to_do(windrow: Windrow, manager: Manager) -> None:
    answer = wait_for(manager, windrow, a_run("Failed", message="Machine s1: no disk; raise it"))

    assert (answer.code, answer.err) == (
        1,
        "Snapshot 1 of Cluster fleet-default/orchard failed: Machine s1: no disk.\n→ Raise it\n",
    )


def test_snapshots_are_listed_with_place_size_age_and_whether_they_open() -> None:
    now = datetime(2026, 1, 1, 12, tzinfo=UTC)
    failed = a_snapshot("b", status="failed", message="no bucket", s3={"bucket": "backups"}, size=0)
    failed["status"]["openable"] = "False"

    assert render_snapshots([a_snapshot("a"), failed], now) == [
        "CLUSTER  AGE   SIZE   OPENABLE  STORAGE",
        "  SNAPSHOT",
        "orchard  120m  5 MiB  yes       local:orchard-servers-1",
        "  a",
        "orchard  120m  0 B    no        s3:backups",
        "  b",
        "  failed: no bucket",
    ]
    assert render_snapshots([], now) == []
    assert render_wide([failed], now)[1] == "orchard  120m  0 B   no        s3:backups  failed: no bucket  b"
    assert render_wide([], now) == []


NAME = "orchard-s3-on-demand-1-1795472796-orchard-servers-7mwlf-lvlcg-1795472796-d4b528-d11befaef2"


def test_no_line_is_wider_than_80_columns_but_for_a_name_and_that_is_whole() -> None:
    raw = a_snapshot(NAME, nodeName="orchard-servers-7mwlf-lvlcg-" + "x" * 63)

    lines = render_snapshots([raw], datetime(2026, 1, 1, 12, tzinfo=UTC))

    assert [line for line in lines if len(line) > 80] == [f"  {NAME}"]


def test_the_names_alone_can_be_given_to_another_command(windrow: Windrow, manager: Manager) -> None:
    windrow("apply", "-f", "cluster.yaml")
    assert windrow("snapshot", "list", "-o", "name").out == ""
    put(manager, a_snapshot(), a_snapshot(NAME))

    assert NAME in windrow("snapshot", "list", "orchard", "-o", "name").out.splitlines()
    assert len(windrow("snapshot", "list", "orchard", "-o", "wide").out.splitlines()) == 3
    template = "jsonpath={.items[*].metadata.name}"
    assert NAME in windrow("snapshot", "list", "orchard", "-o", template).out.split()
    assert windrow("snapshot", "list", "-o", "short").code == 2


def test_a_restore_is_confirmed_in_lines_of_80_columns(windrow: Windrow, manager: Manager) -> None:
    windrow("apply", "-f", "cluster.yaml")
    put(manager, a_snapshot(NAME))

    out = windrow("snapshot", "restore", "orchard", NAME).out

    assert out.split() == f"fleet-default/orchard: the restore of {NAME} is asked for".split()
    assert [line.strip() for line in out.splitlines() if len(line) > 80] == [NAME]


@pytest.mark.parametrize(
    ("size", "text"),
    [(None, "0 B"), (1023, "1023 B"), (1024, "1 KiB"), (3 * 2**20, "3 MiB"), (2**31, "2.0 GiB")],
)
def test_sizes_are_for_people(size: Any, text: str) -> None:
    assert describe_size(size) == text


def test_the_list_is_of_one_cluster_or_of_all(windrow: Windrow, manager: Manager) -> None:
    windrow("apply", "-f", "cluster.yaml")
    assert windrow("snapshot", "list").out == "No snapshots.\n"
    put(manager, a_snapshot(), a_snapshot("other-local-one", "other"))

    assert windrow("snapshot", "list").out.count("-local-one") == 2
    assert "other" not in windrow("snapshot", "list", "orchard").out
    assert '"kind": "List"' in windrow("snapshot", "list", "-o", "json").out


def test_a_snapshot_is_deleted_by_its_object(windrow: Windrow, manager: Manager) -> None:
    windrow("apply", "-f", "cluster.yaml")
    put(manager, a_snapshot(), a_snapshot("other-local-one", "other"))

    assert windrow("snapshot", "delete", "orchard", "orchard-local-one").code == 0
    answer = windrow("snapshot", "delete", "orchard", "orchard-local-one")
    assert (answer.code, answer.err) == (
        4,
        "fleet-default/orchard has no snapshot 'orchard-local-one'.\n"
        "→ List them: windrow snapshot list fleet-default/orchard\n",
    )
    assert windrow("snapshot", "delete", "orchard", "other-local-one").code == 4


def test_a_generation_that_someone_else_has_raised_meanwhile_is_not_overwritten() -> None:
    cluster = {"spec": {"rkeConfig": {"etcdSnapshotCreate": {"generation": 1}}}}
    steps = raise_generation(cluster, "etcdSnapshotCreate", {"generation": 2})

    assert apply_json_patch(cluster, steps)["spec"]["rkeConfig"]["etcdSnapshotCreate"] == {"generation": 2}
    with pytest.raises(PatchFailed):
        apply_json_patch({"spec": {"rkeConfig": {"etcdSnapshotCreate": {"generation": 2}}}}, steps)


@pytest.mark.parametrize(("spec", "done", "following"), [(None, None, 1), (1, None, 2), (1, 4, 5), (5, 4, 6)])
def test_the_generation_is_above_what_was_asked_for_and_what_was_done(
    spec: int | None, done: int | None, following: int
) -> None:
    key = "etcdSnapshotCreate"
    cluster: dict[str, Any] = {"spec": {"rkeConfig": {}}, "status": {}}
    if spec is not None:
        cluster["spec"]["rkeConfig"][key] = {"generation": spec}
    if done is not None:
        cluster["status"][key] = {"generation": done}
    assert next_generation(cluster, key) == following


def restored(manager: Manager) -> Any:
    async def get(api: Any) -> Any:
        return (await api.get(ORCHARD))["spec"]["rkeConfig"].get("etcdSnapshotRestore")

    return manager.do(get)


@pytest.mark.parametrize("command", [("snapshot", "restore"), ("restore",)])
def test_a_restore_names_a_snapshot_of_the_cluster(
    windrow: Windrow, manager: Manager, command: tuple[str, ...]
) -> None:
    windrow("apply", "-f", "cluster.yaml")
    put(manager, a_snapshot(), a_snapshot("other-local-one", "other"))

    assert windrow(*command, "orchard", "other-local-one").code == 4
    assert restored(manager) is None
    answer = windrow(*command, "orchard", "orchard-local-one", "--config", "all")
    assert (answer.code, answer.out) == (
        0,
        "fleet-default/orchard: the restore of orchard-local-one is asked for\n",
    )
    assert restored(manager) == {
        "name": "orchard-local-one",
        "generation": 1,
        "restoreRKEConfig": "all",
    }


@pytest.mark.parametrize(
    ("phase", "said", "code", "words"),
    [
        ("Finished", {}, 0, "is restored: snapshot one; look"),
        ("Failed", {}, 1, "was not restored: snapshot one."),
        ("Shutdown", {"refused": "no such thing; name another"}, 1, "restore of before: no such thing."),
        ("Finished", {"refused": "no such thing; name another"}, 1, "restore of before: no such thing."),
    ],
)
def test_with_wait_a_restore_ends_with_its_phase_or_is_refused(
    windrow: Windrow, manager: Manager, phase: str, said: dict[str, str], code: int, words: str
) -> None:
    windrow("apply", "-f", "cluster.yaml")
    put(manager, a_snapshot())

    async def play(api: Any) -> None:
        clusters = make_watcher(api, CLUSTER, lambda raw: raw["spec"]["rkeConfig"], SystemClock())
        async with watching(clusters) as changed:
            while "etcdSnapshotRestore" not in (clusters.get(ORCHARD) or {}):
                changed.clear()
                await changed.wait()
        about = {"message": "snapshot one; look", **said}
        run = {"etcdSnapshotRestorePhase": phase, "etcdSnapshotRestoreRun": about}
        await api.patch(ORCHARD, {"status": {"etcdSnapshotRestore": {"generation": 1}, **run}}, "status")

    with ThreadPoolExecutor(1) as pool:
        playing = pool.submit(manager.do, play)
        answer = windrow("restore", "orchard", "orchard-local-one", "--timeout", "20s")
        playing.result()

    assert answer.code == code
    assert words in answer.out + answer.err
    assert (f"orchard: {phase}" in answer.err) is not bool(said)


def a_member(
    name: str, phase: str = "Running", cluster: str = "orchard", role: str = "etcd"
) -> dict[str, Any]:
    spec = {"clusterName": cluster, "clusterUID": "u", "pool": "servers", "roles": [role]}
    spec = {**spec, "options": {}, "credential": "a:b", "version": "v1.35.1+rke2r1"}
    return new_object(MACHINE, name, "fleet-default", spec=spec, status={"phase": phase})


def put_members(manager: Manager, *raws: dict[str, Any]) -> None:
    async def create(api: Any) -> None:
        for raw in raws:
            made = await api.create(MACHINE, {key: raw[key] for key in raw if key != "status"})
            ref = MACHINE.ref(made["metadata"]["name"], "fleet-default")
            await api.patch(ref, {"status": raw["status"]}, "status")

    manager.do(create)


@pytest.mark.parametrize("command", [("restore",), ("snapshot", "restore")])
def test_after_a_lost_quorum_the_member_that_is_left_is_named(
    windrow: Windrow, manager: Manager, command: tuple[str, ...]
) -> None:
    windrow("apply", "-f", "cluster.yaml")
    put_members(
        manager,
        a_member("s1", "Missing"),
        a_member("s2"),
        a_member("w1", role="worker"),
        a_member("other", cluster="other"),
    )

    answer = windrow(*command, "orchard", "--lost-quorum")

    assert (answer.code, answer.out) == (
        0,
        "fleet-default/orchard: to go on with the data of Machine s2 is asked for\n",
    )
    assert restored(manager) == {"clusterResetMember": "s2", "generation": 1}


def test_of_several_members_the_user_names_one(windrow: Windrow, manager: Manager) -> None:
    windrow("apply", "-f", "cluster.yaml")
    put_members(manager, a_member("s1"), a_member("s2"))

    answer = windrow("restore", "orchard", "--lost-quorum")
    assert (answer.code, restored(manager)) == (2, None)
    assert "2 Machines of fleet-default/orchard may have data of etcd: s1, s2." in answer.err
    assert windrow("restore", "orchard", "--lost-quorum", "--member", "s2").code == 0
    assert windrow("restore", "orchard", "one", "--lost-quorum").code == 2
    assert windrow("snapshot", "restore", "orchard").code == 2
