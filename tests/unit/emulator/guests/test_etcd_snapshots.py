"""Snapshots of a guest's etcd: on demand through the supervisor, by schedule, as objects of the API."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from tests.support.clock import run_driven

from windrow.core.formats.json import dumps, loads
from windrow.emulator.guest_cluster.datastore.snapshot_content import decode_snapshot, decompress
from windrow.emulator.guest_cluster.datastore.snapshot_file import ETCD_SNAPSHOT_FILE
from windrow.kubernetes import requests
from windrow.kubernetes.objects import annotations_of, labels_of, name_of
from windrow.kubernetes.resources import CONFIG_MAP, NODE

from . import test_k3s
from .k3s_fixture import K3sFixture
from .supervisor_client import SupervisorClient
from .test_cluster_life import are_ready, three_servers
from .testbed import ClusterFixture, Kubectl, MachineTestbed, a_testbed

SNAPSHOTS = "/var/lib/rancher/rke2/server/db/snapshots"
Scene = Callable[[MachineTestbed, Kubectl, SupervisorClient], Awaitable[None]]


def in_cluster(scene: Scene, **config: Any) -> None:
    """Play a scene in a cluster of one server, one, at 10.0.0.11."""

    async def scenario() -> None:
        async with a_testbed() as testbed:
            cluster = ClusterFixture()
            kubectl = Kubectl(testbed, cluster)
            testbed.power_on("one", cluster.first(**config))
            await testbed.wait_for(lambda: are_ready(kubectl, {"one"}))
            await scene(testbed, kubectl, SupervisorClient(testbed, cluster))

    run_driven(scenario())


def config_map(name: str, **data: str) -> Any:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data}


async def make(kubectl: Kubectl, raw: Any, namespace: str = "default") -> None:
    await kubectl.send(requests.create(CONFIG_MAP, raw, namespace))


def test_a_snapshot_is_a_file_on_the_members_disk_and_an_object_of_the_api():
    async def scene(testbed: MachineTestbed, kubectl: Kubectl, supervisor: SupervisorClient) -> None:
        name = await supervisor.save("on-demand-g1")

        stamp = name.removeprefix("on-demand-g1-one-")
        assert stamp.isdigit()
        file = testbed.disks["one"].files[f"{SNAPSHOTS}/{name}"]
        assert file.mode == 0o600
        (raw,) = await kubectl.list(ETCD_SNAPSHOT_FILE)
        assert raw["spec"] == {
            "snapshotName": name,
            "nodeName": "one",
            "location": f"file://{SNAPSHOTS}/{name}",
        }
        assert raw["status"]["readyToUse"] is True
        assert raw["status"]["size"] == str(len(file.content))
        assert name_of(raw).startswith(f"local-{name}-")
        assert labels_of(raw)["etcd.rke2.cattle.io/snapshot-storage-node"] == "one"
        assert raw["metadata"]["finalizers"] == ["wrangler.cattle.io/managed-etcd-snapshots-controller"]

    in_cluster(scene)


def test_the_token_hash_of_a_snapshot_is_that_of_the_servers_password():
    async def scene(testbed: MachineTestbed, kubectl: Kubectl, supervisor: SupervisorClient) -> None:
        await supervisor.save()

        (raw,) = await kubectl.list(ETCD_SNAPSHOT_FILE)
        # echo -n s3rver | sha256sum | cut -c1-12
        assert annotations_of(raw) == {"etcd.rke2.cattle.io/snapshot-token-hash": "ca5aeeb42285"}

    in_cluster(scene)


def test_a_snapshot_has_the_objects_of_its_moment():
    async def scene(testbed: MachineTestbed, kubectl: Kubectl, supervisor: SupervisorClient) -> None:
        await make(kubectl, config_map("before", note="a\u2028b"))
        name = await supervisor.save()
        await make(kubectl, config_map("after"))

        found = decode_snapshot(testbed.disks["one"].files[f"{SNAPSHOTS}/{name}"].content)

        maps = {raw["metadata"]["name"]: raw for raw in found.objects.values() if raw["kind"] == "ConfigMap"}
        assert maps["before"]["data"] == {"note": "a\u2028b"}
        assert "after" not in maps
        assert found.version == "v1.35.1+rke2r1"
        assert found.bootstrap["files"]["server-ca.crt"] == supervisor.cluster.server_ca[0]

    in_cluster(scene)


def test_a_list_has_what_lies_on_the_members_disk():
    async def scene(testbed: MachineTestbed, kubectl: Kubectl, supervisor: SupervisorClient) -> None:
        assert await supervisor.ask("list") == {
            "kind": "List",
            "apiVersion": "v1",
            "metadata": {},
            "items": None,
        }
        name = await supervisor.save("mine")

        (raw,) = (await supervisor.ask("list"))["items"]

        assert (raw["apiVersion"], raw["kind"]) == ("k3s.cattle.io/v1", "ETCDSnapshotFile")
        assert raw["metadata"]["name"] == f"local-{name}"
        assert raw["spec"]["snapshotName"] == name

    in_cluster(scene)


def test_saving_keeps_as_many_of_a_name_as_the_retention_says():
    async def scene(testbed: MachineTestbed, kubectl: Kubectl, supervisor: SupervisorClient) -> None:
        other = await supervisor.save("other")
        made = [await supervisor.save("mine") for _ in range(2)]

        last = await supervisor.ask("save", name=["mine"])

        assert last["deleted"] == [made[0]]
        await testbed.sleep(1)
        assert await supervisor.names() == sorted([other, made[1], last["created"][0]])
        shown = {raw["spec"]["snapshotName"] for raw in await kubectl.list(ETCD_SNAPSHOT_FILE)}
        assert shown == {other, made[1], last["created"][0]}

    in_cluster(scene, etcd_snapshot_retention=2)


def test_pruning_deletes_all_but_the_newest_of_a_name():
    async def scene(testbed: MachineTestbed, kubectl: Kubectl, supervisor: SupervisorClient) -> None:
        made = [await supervisor.save("mine") for _ in range(3)]

        answer = await supervisor.ask("prune", name=["mine"], retention=1)

        assert sorted(answer["deleted"]) == made[:2]
        assert await supervisor.names() == made[2:]
        assert "deleted" not in await supervisor.ask("prune", name=["mine"], retention=0)

    in_cluster(scene)


def test_a_deleted_snapshot_is_gone_from_the_disk_and_from_the_api():
    async def scene(testbed: MachineTestbed, kubectl: Kubectl, supervisor: SupervisorClient) -> None:
        await make(
            kubectl, config_map("rke2-etcd-snapshot-extra-metadata", note="x"), namespace="kube-system"
        )
        name = await supervisor.save()

        assert await supervisor.ask("delete", name=[name, "never-made"]) == {"deleted": [name]}

        await testbed.sleep(2)
        assert await supervisor.names() == []
        assert await kubectl.list(ETCD_SNAPSHOT_FILE) == []
        assert not [path for path in testbed.disks["one"].files if "/db/" in path and name in path]
        entries = await kubectl.get(CONFIG_MAP.ref("rke2-etcd-snapshots", "kube-system"))
        assert not entries.get("data")

    in_cluster(scene)


def test_the_object_of_a_file_that_is_still_there_comes_back():
    async def scene(testbed: MachineTestbed, kubectl: Kubectl, supervisor: SupervisorClient) -> None:
        name = await supervisor.save()
        (raw,) = await kubectl.list(ETCD_SNAPSHOT_FILE)

        await kubectl.delete(ETCD_SNAPSHOT_FILE.ref(name_of(raw)))
        await testbed.sleep(2)
        assert await kubectl.list(ETCD_SNAPSHOT_FILE) == []

        await testbed.sleep(600)
        (again,) = await kubectl.list(ETCD_SNAPSHOT_FILE)
        assert again["spec"]["snapshotName"] == name
        assert await supervisor.names() == [name]

    in_cluster(scene)


def test_extra_metadata_goes_with_each_snapshot():
    async def scene(testbed: MachineTestbed, kubectl: Kubectl, supervisor: SupervisorClient) -> None:
        metadata = config_map("rke2-etcd-snapshot-extra-metadata", **{"provisioning-cluster-spec": "H4sI"})
        await make(kubectl, metadata, namespace="kube-system")

        name = await supervisor.save()
        await testbed.sleep(2)

        (raw,) = await kubectl.list(ETCD_SNAPSHOT_FILE)
        assert raw["spec"]["metadata"] == {"provisioning-cluster-spec": "H4sI"}
        (listed,) = (await supervisor.ask("list"))["items"]
        assert listed["spec"]["metadata"] == {"provisioning-cluster-spec": "H4sI"}
        entries = await kubectl.get(CONFIG_MAP.ref("rke2-etcd-snapshots", "kube-system"))
        entry = loads(entries["data"][f"local-{name}"])
        assert (entry["name"], entry["status"], entry["nodeName"]) == (name, "successful", "one")

    in_cluster(scene)


def test_a_compressed_snapshot_is_a_zip_archive():
    async def scene(testbed: MachineTestbed, kubectl: Kubectl, supervisor: SupervisorClient) -> None:
        name = await supervisor.save(compress=True)

        assert name.endswith(".zip")
        content = testbed.disks["one"].files[f"{SNAPSHOTS}/{name}"].content
        assert decode_snapshot(decompress(content)).version == "v1.35.1+rke2r1"

    in_cluster(scene)


def test_each_server_snapshots_by_its_schedule():
    async def scenario() -> None:
        async with a_testbed() as testbed:
            cluster = ClusterFixture()
            kubectl = Kubectl(testbed, cluster)
            config = {"etcd-snapshot-schedule-cron": "*/30 * * * *", "etcd-snapshot-retention": 2}
            testbed.power_on("one", cluster.first(**config))
            await testbed.wait_for(lambda: are_ready(kubectl, {"one"}))
            testbed.power_on("two", cluster.server("two", **config))
            await testbed.wait_for(lambda: are_ready(kubectl, {"one", "two"}))

            await testbed.sleep(2 * 3600 - 300)  # it is noon, and minutes later

            for node, address in (("one", "10.0.0.11"), ("two", "10.0.0.12")):
                names = await SupervisorClient(testbed, cluster, address).names()
                stamps = [int(name.removeprefix(f"etcd-snapshot-{node}-")) % 1800 for name in names]
                assert len(stamps) == 2
                assert all(0 <= stamp <= 6 for stamp in stamps)
            shown = await kubectl.list(ETCD_SNAPSHOT_FILE)
            assert sorted(raw["spec"]["nodeName"] for raw in shown) == ["one", "one", "two", "two"]
            stamp = "etcd.rke2.cattle.io/local-snapshots-timestamp"
            assert stamp in annotations_of(await kubectl.get(NODE.ref("one")))

    run_driven(scenario())


@pytest.mark.parametrize(
    "config",
    [
        {"etcd_disable_snapshots": True, "etcd_snapshot_schedule_cron": "* * * * *"},
        {"etcd_snapshot_schedule_cron": "every day"},
    ],
)
def test_without_a_schedule_there_are_snapshots_on_demand_only(config: Any):
    async def scene(testbed: MachineTestbed, kubectl: Kubectl, supervisor: SupervisorClient) -> None:
        await testbed.sleep(1000)
        assert await supervisor.names() == []
        assert await supervisor.save("by-hand")

    in_cluster(scene, **config)


def test_snapshots_of_a_member_that_has_left_are_shown_no_more():
    async def scenario() -> None:
        async with a_testbed() as testbed:
            cluster = ClusterFixture()
            kubectl = await three_servers(testbed, cluster)
            await SupervisorClient(testbed, cluster, "10.0.0.13").save("lost")
            await testbed.cut_power("three")
            await kubectl.delete(NODE.ref("three"))

            await testbed.sleep(650)

            assert await kubectl.list(ETCD_SNAPSHOT_FILE) == []

    run_driven(scenario())


def test_a_learner_and_a_member_without_quorum_make_none():
    async def scenario() -> None:
        async with a_testbed() as testbed:
            cluster = ClusterFixture()
            await three_servers(testbed, cluster)
            (state,) = testbed.clusters.values()
            member = state.etcd.find_by_node("three")
            assert member is not None

            member.learner = True
            await SupervisorClient(testbed, cluster, "10.0.0.13").ask("save", 500)
            assert testbed.hosts["three"].logged("not supported for learner")

            member.learner = False
            await testbed.cut_power("one")
            await testbed.cut_power("two")
            await SupervisorClient(testbed, cluster, "10.0.0.13").ask("save", 500)

    run_driven(scenario())


def test_a_second_snapshot_while_one_is_made_is_refused():
    async def scene(testbed: MachineTestbed, kubectl: Kubectl, supervisor: SupervisorClient) -> None:
        first = asyncio.ensure_future(supervisor.ask("save"))
        await testbed.sleep(0.1)

        refusal = await supervisor.ask("save", 500)

        assert refusal["message"].startswith("Internal error occurred: etcd-snapshot error ID ")
        assert testbed.hosts["one"].logged("snapshot save already in progress")
        assert (await first)["created"]

    in_cluster(scene)


@pytest.mark.parametrize(
    ("user", "password", "authorization", "status"),
    [
        ("server", "wrong", None, 401),
        ("server", "4gent", None, 401),
        ("admin", "s3rver", None, 401),
        ("node", "4gent", None, 403),
        ("node", "s3rver", None, 403),
        ("", "", "", 403),
        ("", "", "Bearer abcdef.0123456789abcdef", 401),
        ("", "", "Basic \x00\xff", 401),
        ("", "", "Basic", 401),
    ],
)
def test_only_the_servers_password_opens_what_is_for_servers(
    user: str, password: str, authorization: str | None, status: int
):
    async def scene(testbed: MachineTestbed, kubectl: Kubectl, supervisor: SupervisorClient) -> None:
        other = SupervisorClient(testbed, supervisor.cluster, user=user, password=password)
        for method, path in (("POST", "/db/snapshot"), ("GET", "/db/info")):
            reply = await other.send(method, path, dumps({"operation": "list"}), authorization)
            assert reply.status == status
            assert loads(reply.body)["message"] == {401: "not authorized", 403: "forbidden"}[status]

    in_cluster(scene)


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"", 500),
        (b"{", 500),
        (b"[]", 500),
        (b"null", 500),
        (b'{"operation": "save", "name": "x"}', 500),
        (b'{"operation": "save", "name": [1]}', 500),
        (b'{"operation": 1}', 500),
        (b'{"operation": "save", "retention": "1"}', 500),
        (b'{"operation": "save", "retention": true}', 500),
        (b'{"operation": "save", "compress": 1}', 500),
        (b'{"operation": "save", "dir": "/nowhere"}', 500),
        (b'{"operation": "save", "dir": "../.."}', 500),
        (b'{"operation": "save", "dir": "/etc/hostname"}', 500),
        (b'{"operation": "save", "s3": []}', 500),
        (b'{"operation": "save", "s3": {"bucket": 1}}', 500),
        (b'{"operation": "save", "s3": {"insecure": "yes"}}', 500),
        (b'{"operation": "save", "s3": {"retention": "5"}}', 500),
        (b"[" * 100_000, 500),
        (b'{"a":' * 300 + b"1" + b"}" * 300, 500),
        (b'{"operation": "' + b"x" * (300 << 10) + b'"}', 500),
        (dumps({"operation": "delete", "name": ["x"] * 2000}), 500),
        (dumps({"operation": "list", "more": [0] * 20_000}), 500),
        (b"{}", 400),
        (b'{"operation": "restore"}', 400),
        (b'{"operation": "delete", "name": ["../../etc/passwd"]}', 400),
        (b'{"operation": "delete", "name": [".."]}', 400),
        (b'{"operation": "delete", "name": [""]}', 400),
        (b'{"operation": "save", "name": ["../../../../etc/cron.d/x"]}', 400),
        (b'{"operation": "save", "name": ["a\\u0000b"]}', 400),
        (dumps({"operation": "save", "name": ["x" * 300]}), 400),
        (b'{"operation": "save", "s3": {}}', 400),
    ],
)
def test_bad_requests_are_refused_and_change_nothing(body: bytes, status: int):
    async def scene(testbed: MachineTestbed, kubectl: Kubectl, supervisor: SupervisorClient) -> None:
        before = set(testbed.disks["one"].files)

        reply = await supervisor.send("POST", "/db/snapshot", body)

        assert reply.status == status
        assert loads(reply.body)["kind"] == "Status"
        assert set(testbed.disks["one"].files) == before
        assert await supervisor.save()

    in_cluster(scene)


def test_another_method_is_an_error():
    async def scene(testbed: MachineTestbed, kubectl: Kubectl, supervisor: SupervisorClient) -> None:
        assert (await supervisor.send("GET", "/db/snapshot")).status == 500

    in_cluster(scene)


def test_snapshots_in_another_directory_that_is_there():
    async def scene(testbed: MachineTestbed, kubectl: Kubectl, supervisor: SupervisorClient) -> None:
        name = await supervisor.save(dir="/srv")

        assert f"/srv/{name}" in testbed.disks["one"].files
        assert await supervisor.names() == []
        assert await supervisor.names(dir="/srv") == [name]

    in_cluster(scene)


def test_a_full_disk_fails_the_snapshot_and_says_so():
    async def scene(testbed: MachineTestbed, kubectl: Kubectl, supervisor: SupervisorClient) -> None:
        guest = testbed.machines["one"].guest  # type: ignore[attr-defined]
        guest.write("/var/filler", bytes(128 << 20))

        await supervisor.ask("save", 500)

        (raw,) = await kubectl.list(ETCD_SNAPSHOT_FILE)
        assert raw["status"]["readyToUse"] is False
        assert raw["status"]["error"]["message"] == "no space left on device"

    in_cluster(scene)


@pytest.mark.parametrize("retention", ["²", "9" * 5000, "many", "-1"])
def test_an_odd_retention_is_the_default(retention: str):
    async def scene(testbed: MachineTestbed, kubectl: Kubectl, supervisor: SupervisorClient) -> None:
        for _ in range(6):
            await supervisor.save()
        assert len(await supervisor.names()) == 5

    in_cluster(scene, etcd_snapshot_retention=retention)


def test_a_disk_has_five_hundred_snapshots_at_most():
    async def scene(testbed: MachineTestbed, kubectl: Kubectl, supervisor: SupervisorClient) -> None:
        guest = testbed.machines["one"].guest  # type: ignore[attr-defined]
        for number in range(500):
            guest.write(f"{SNAPSHOTS}/old-one-{number}", b"")

        await supervisor.ask("save", 500, name=["new"])

        assert testbed.hosts["one"].logged("no space left on device")

    in_cluster(scene, etcd_disable_snapshots=True)


def test_what_a_user_writes_into_an_object_ends_no_controller():
    async def scene(testbed: MachineTestbed, kubectl: Kubectl, supervisor: SupervisorClient) -> None:
        await supervisor.save("first")
        (raw,) = await kubectl.list(ETCD_SNAPSHOT_FILE)
        change = {"spec": {"metadata": {"a": "b"}}, "status": {"creationTime": None, "size": 10**17}}
        await kubectl.patch(ETCD_SNAPSHOT_FILE.ref(name_of(raw)), change)
        await testbed.sleep(5)

        name = await supervisor.save("second")
        assert await supervisor.ask("delete", name=[name]) == {"deleted": [name]}
        await testbed.sleep(5)
        assert len(await kubectl.list(ETCD_SNAPSHOT_FILE)) == 1

    in_cluster(scene)


def test_members_are_told_to_servers():
    async def scene(testbed: MachineTestbed, kubectl: Kubectl, supervisor: SupervisorClient) -> None:
        reply = await supervisor.send("GET", "/db/info")

        (member,) = loads(reply.body)["members"]
        assert member["name"].startswith("one-")
        assert member["peerURLs"] == ["https://10.0.0.11:2380"]

    in_cluster(scene)


@pytest.mark.parametrize(
    ("version", "is_there"),
    [("v1.28.11", False), ("v1.28.12", True), ("v1.30.1", False), ("v1.30.2", True), ("v1.27.16", False)],
)
def test_earlier_releases_have_no_endpoint_for_snapshots(version: str, is_there: bool):
    async def scenario() -> None:
        async with a_testbed() as testbed:
            cluster = ClusterFixture()
            kubectl = Kubectl(testbed, cluster)
            user_data = cluster.first().replace("v1.35.1+rke2r1", f"{version}+rke2r1")
            testbed.power_on("one", user_data)
            await testbed.wait_for(lambda: are_ready(kubectl, {"one"}))
            supervisor = SupervisorClient(testbed, cluster)

            reply = await supervisor.send("POST", "/db/snapshot", dumps({"operation": "list"}))

            assert reply.status == (200 if is_there else 404)

    run_driven(scenario())


def test_before_there_were_objects_the_config_map_says_it_all():
    async def scenario() -> None:
        async with a_testbed() as testbed:
            cluster = ClusterFixture()
            kubectl = Kubectl(testbed, cluster)
            user_data = cluster.first(etcd_snapshot_schedule_cron="@every 10m")
            testbed.power_on("one", user_data.replace("v1.35.1+rke2r1", "v1.27.6+rke2r1"))
            await testbed.wait_for(lambda: are_ready(kubectl, {"one"}))

            await testbed.sleep(700)

            entries = await kubectl.get(CONFIG_MAP.ref("rke2-etcd-snapshots", "kube-system"))
            assert [loads(entry)["nodeName"] for entry in entries["data"].values()] == ["one"]

    run_driven(scenario())


@pytest.mark.parametrize("has_etcd", [True, False])
def test_k3s_has_snapshots_with_etcd_and_none_with_sqlite(has_etcd: bool):
    async def scenario() -> None:
        async with a_testbed() as testbed:
            cluster = K3sFixture()
            kubectl = Kubectl(testbed, cluster)
            testbed.power_on("one", cluster.first(cluster_init=has_etcd))
            await testbed.wait_for(lambda: test_k3s.are_ready(kubectl, "one"))
            supervisor = SupervisorClient(testbed, cluster, port=6443)

            reply = await supervisor.send("POST", "/db/snapshot", dumps({"operation": "save"}))

            assert reply.status == (200 if has_etcd else 404)
            if has_etcd:
                (raw,) = await kubectl.list(ETCD_SNAPSHOT_FILE)
                assert labels_of(raw) == {"etcd.k3s.cattle.io/snapshot-storage-node": "one"}

    run_driven(scenario())
