"""Snapshots in a bucket: uploaded, listed, pruned and deleted, and what a service says that refuses."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from tests.support.clock import run_driven

from windrow.core import pki
from windrow.core.text import encode_base64
from windrow.emulator.guest_cluster.datastore.snapshot_file import ETCD_SNAPSHOT_FILE
from windrow.emulator.kit.aws_signature import sign
from windrow.emulator.storage.object_store import ObjectStore
from windrow.kubernetes import requests
from windrow.kubernetes.handler import Peer
from windrow.kubernetes.objects import annotations_of, labels_of, name_of
from windrow.kubernetes.requests import Reply, Request
from windrow.kubernetes.resources import SECRET

from .supervisor_client import SupervisorClient
from .test_cluster_life import are_ready
from .test_etcd_snapshots import config_map, make
from .testbed import NOON, ClusterFixture, Kubectl, MachineTestbed, a_testbed

HOST = "10.0.0.200"
Scene = Callable[[MachineTestbed, Kubectl, SupervisorClient, ObjectStore], Awaitable[None]]


def settings_for(store: ObjectStore, **more: Any) -> dict[str, Any]:
    """The `s3` of a request."""
    return {
        "endpoint": f"{HOST}:9000",
        "endpointCA": b64encode(store.ca.encode()).decode(),
        "bucket": "etcd",
        "region": "us-east-1",
        "accessKey": "snapshots",
        "secretKey": "simulated",
        **more,
    }


def flags_for(store: ObjectStore) -> dict[str, Any]:
    """The same as a server's configuration."""
    said = settings_for(store)
    return {
        "etcd-s3": True,
        "etcd-s3-endpoint": said["endpoint"],
        "etcd-s3-endpoint-ca": said["endpointCA"],
        "etcd-s3-bucket": said["bucket"],
        "etcd-s3-access-key": said["accessKey"],
        "etcd-s3-secret-key": said["secretKey"],
        "etcd-s3-folder": "prod",
    }


def in_site(scene: Scene, configure: Callable[[ObjectStore], dict[str, Any]] = lambda _: {}) -> None:
    """Play a scene with a server, one, and an object store that has the bucket etcd."""

    async def scenario() -> None:
        async with a_testbed() as testbed:
            store = ObjectStore(testbed.clock, ["etcd"])
            store.listen(testbed.network, HOST)
            cluster = ClusterFixture()
            kubectl = Kubectl(testbed, cluster)
            testbed.power_on("one", cluster.first(**configure(store)))
            await testbed.wait_for(lambda: are_ready(kubectl, {"one"}))
            await scene(testbed, kubectl, SupervisorClient(testbed, cluster), store)

    run_driven(scenario())


async def make_secret(kubectl: Kubectl, **data: str) -> None:
    encoded = {f"etcd-s3-{key.replace('_', '-')}": encode_base64(value) for key, value in data.items()}
    raw = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": "bucket"},
        "type": "etcd.k3s.cattle.io/s3-config-secret",
        "data": encoded,
    }
    await kubectl.send(requests.create(SECRET, raw, "kube-system"))


def test_a_snapshot_with_s3_is_on_the_disk_and_in_the_bucket():
    async def scene(
        testbed: MachineTestbed, kubectl: Kubectl, supervisor: SupervisorClient, store: ObjectStore
    ) -> None:
        await make(kubectl, config_map("rke2-etcd-snapshot-extra-metadata", note="x"), "kube-system")

        made = await supervisor.ask("save", name=["mine"], s3=settings_for(store, folder="prod"))

        name = made["created"][0]
        assert made["created"] == [name, name]
        assert set(store.buckets["etcd"]) == {f"prod/{name}", f"prod/.metadata/{name}"}
        path = f"/var/lib/rancher/rke2/server/db/snapshots/{name}"
        assert store.buckets["etcd"][f"prod/{name}"].content == testbed.disks["one"].files[path].content
        shown = {name_of(raw).partition("-")[0]: raw for raw in await kubectl.list(ETCD_SNAPSHOT_FILE)}
        assert shown["s3"]["spec"] == {
            "snapshotName": name,
            "nodeName": "one",
            "location": f"s3://etcd/prod/{name}",
            "metadata": {"note": "x"},
            "s3": {
                "endpoint": f"{HOST}:9000",
                "endpointCA": b64encode(store.ca.encode()).decode(),
                "bucket": "etcd",
                "region": "us-east-1",
                "prefix": "prod",
            },
        }
        assert labels_of(shown["s3"])["etcd.rke2.cattle.io/snapshot-storage-node"] == "s3"
        assert annotations_of(shown["s3"]) == annotations_of(shown["local"])

    in_site(scene)


def test_a_list_with_s3_has_what_is_in_the_bucket_too():
    async def scene(
        testbed: MachineTestbed, kubectl: Kubectl, supervisor: SupervisorClient, store: ObjectStore
    ) -> None:
        name = await supervisor.save("mine", s3=settings_for(store))
        assert await supervisor.names() == [name]

        found = await supervisor.ask("list", s3=settings_for(store))

        assert sorted(raw["metadata"]["name"] for raw in found["items"]) == [f"local-{name}", f"s3-{name}"]

    in_site(scene)


def test_scheduled_snapshots_go_to_the_bucket_of_the_configuration_and_are_pruned_there():
    async def scene(
        testbed: MachineTestbed, kubectl: Kubectl, supervisor: SupervisorClient, store: ObjectStore
    ) -> None:
        await testbed.sleep(3600)

        assert len(store.buckets["etcd"]) == 2
        assert all(key.startswith("prod/etcd-snapshot-one-") for key in store.buckets["etcd"])
        places = [name_of(raw).partition("-")[0] for raw in await kubectl.list(ETCD_SNAPSHOT_FILE)]
        assert sorted(places) == ["local", "local", "s3", "s3"]
        # A request's own settings alone count.
        assert len((await supervisor.ask("save"))["created"]) == 1

    in_site(
        scene,
        lambda store: {
            **flags_for(store),
            "etcd-snapshot-schedule-cron": "*/15 * * * *",
            "etcd-snapshot-retention": 2,
        },
    )


def test_a_snapshot_is_deleted_in_the_bucket_when_the_request_names_it():
    async def scene(
        testbed: MachineTestbed, kubectl: Kubectl, supervisor: SupervisorClient, store: ObjectStore
    ) -> None:
        name = await supervisor.save("mine", s3=settings_for(store))

        assert await supervisor.ask("delete", name=[name]) == {"deleted": [name]}
        assert list(store.buckets["etcd"]) == [name]
        assert await supervisor.ask("delete", name=[name], s3=settings_for(store)) == {"deleted": [name]}
        assert store.buckets["etcd"] == {}

    in_site(scene)


def test_pruning_in_the_bucket_is_of_all_nodes_together():
    async def scene(
        testbed: MachineTestbed, kubectl: Kubectl, supervisor: SupervisorClient, store: ObjectStore
    ) -> None:
        for _ in range(3):
            await supervisor.save("mine", s3=settings_for(store))

        answer = await supervisor.ask("prune", name=["mine"], s3=settings_for(store, retention=1))

        assert len(answer["deleted"]) == 2
        assert len(store.buckets["etcd"]) == 1

    in_site(scene)


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"accessKey": "other"}, "failed to test for existence of bucket etcd: Access Denied."),
        ({"secretKey": "wrong"}, "failed to test for existence of bucket etcd: Access Denied."),
        ({"bucket": "none"}, "bucket none does not exist"),
        ({"bucket": ""}, "s3 bucket name was not set"),
        (
            {"endpointCA": ""},
            "tls: failed to verify certificate: x509: certificate signed by unknown authority",
        ),
        ({"endpointCA": "!"}, "no such file or directory"),
        ({"endpoint": "10.0.0.11:9345"}, "x509"),
        ({"endpoint": "10.0.0.11:9345", "skipSSLVerify": True}, "does not exist"),
        ({"endpoint": "10.0.0.200:²"}, "no such host"),
        ({"endpoint": "[fd00::1]:9000"}, "connect: no route to host"),
        ({"endpoint": f"{HOST}:9001"}, "connect: connection refused"),
        ({"endpoint": "10.0.0.201:9000"}, "connect: no route to host"),
        ({"endpoint": "s3.example.org"}, "dial tcp: lookup s3.example.org: no such host"),
    ],
)
def test_a_bucket_that_cannot_be_used_is_told_before_anything_is_made(more: dict[str, Any], message: str):
    async def scene(
        testbed: MachineTestbed, kubectl: Kubectl, supervisor: SupervisorClient, store: ObjectStore
    ) -> None:
        for operation in ("save", "list", "prune", "delete"):
            refusal = await supervisor.ask(operation, 400, s3=settings_for(store, **more))
            assert refusal["message"].startswith("failed to initialize S3 client: ")
            assert message in refusal["message"]
        assert await supervisor.names() == []

    in_site(scene)


def test_verification_may_be_skipped_and_plain_http_used():
    async def scene(
        testbed: MachineTestbed, kubectl: Kubectl, supervisor: SupervisorClient, store: ObjectStore
    ) -> None:
        assert await supervisor.save(s3=settings_for(store, endpointCA="", skipSSLVerify=True))
        assert await supervisor.save(s3=settings_for(store, endpointCA="", insecure=True))

    in_site(scene)


def test_a_refusing_service_is_asked_again_and_its_failure_shown():
    async def scene(
        testbed: MachineTestbed, kubectl: Kubectl, supervisor: SupervisorClient, store: ObjectStore
    ) -> None:
        store.refusal = 503

        refusal = await supervisor.ask("save", 400, s3=settings_for(store))
        assert "Please reduce your request rate." in refusal["message"]

        await testbed.sleep(1000)  # a scheduled one is made all the same
        shown = {name_of(raw).partition("-")[0]: raw for raw in await kubectl.list(ETCD_SNAPSHOT_FILE)}
        assert shown["local"]["status"]["readyToUse"] is True
        assert shown["s3"]["status"]["readyToUse"] is False
        assert "failed to initialize S3 client" in shown["s3"]["status"]["error"]["message"]

    in_site(scene, lambda store: {**flags_for(store), "etcd-snapshot-schedule-cron": "*/10 * * * *"})


def test_the_config_secret_is_read_at_each_operation():
    async def scene(
        testbed: MachineTestbed, kubectl: Kubectl, supervisor: SupervisorClient, store: ObjectStore
    ) -> None:
        by_secret = {"configSecret": "bucket"}
        refusal = await supervisor.ask("save", 400, s3=by_secret)
        assert refusal["message"] == (
            'failed to initialize S3 client: failed to get config from etcd-s3-config-secret "bucket": '
            'failed to get etcd S3 config secret: secrets "bucket" not found'
        )
        await make(kubectl, config_map("authorities", ca=store.ca), "kube-system")
        said = {"endpoint": f"{HOST}:9000", "bucket": "etcd", "endpoint_ca_name": "authorities"}
        await make_secret(kubectl, **said, access_key="snapshots", secret_key="simulated", folder="by-secret")

        name = await supervisor.save(s3=by_secret)

        assert list(store.buckets["etcd"]) == [f"by-secret/{name}"]
        store.secret_key = "rotated"
        await supervisor.ask("save", 400, s3=by_secret)
        change = {"data": {"etcd-s3-secret-key": encode_base64("rotated")}}
        await kubectl.patch(SECRET.ref("bucket", "kube-system"), change)
        assert await supervisor.save(s3=by_secret)

    in_site(scene)


def test_the_config_secret_is_ignored_beside_other_settings():
    async def scene(
        testbed: MachineTestbed, kubectl: Kubectl, supervisor: SupervisorClient, store: ObjectStore
    ) -> None:
        assert await supervisor.save(s3=settings_for(store, configSecret="none"))
        assert testbed.hosts["one"].logged('Ignoring s3 configuration from etcd-s3-config-secret "none"')

    in_site(scene)


class OddService:
    """Answers a list as no service of S3 does."""

    def identity(self) -> None:
        return None

    async def send(self, request: Request, peer: Peer) -> Reply:
        return Reply(200, b"<Contents><Key>x</Key><Size>many</Size></Contents>")


def test_an_odd_answer_of_a_service_is_an_error():
    async def scene(
        testbed: MachineTestbed, kubectl: Kubectl, supervisor: SupervisorClient, store: ObjectStore
    ) -> None:
        testbed.network.listen("10.0.0.202", 80, OddService())  # type: ignore[arg-type]
        s3 = settings_for(store, endpoint="10.0.0.202", insecure=True)

        await supervisor.ask("list", 500, s3=s3)

        assert testbed.hosts["one"].logged("XML syntax error")

    in_site(scene)


# -- the service


class Door:
    """Signed requests to a store."""

    def __init__(self, store: ObjectStore) -> None:
        self.store = store
        self.stamp = "20260101T120000Z"

    async def send(
        self, method: str, path: str, query: tuple[tuple[str, str], ...] = (), body: bytes = b""
    ) -> tuple[int, str]:
        headers = {"host": "x", "x-amz-date": self.stamp, "x-amz-content-sha256": "UNSIGNED-PAYLOAD"}
        signature = sign(method, path, query, headers, "us-east-1", "simulated")
        scope = f"Credential=snapshots/{self.stamp[:8]}/us-east-1/s3/aws4_request"
        names = ";".join(sorted(headers))
        signed = f"AWS4-HMAC-SHA256 {scope}, SignedHeaders={names}, Signature={signature}"
        pairs = (*headers.items(), ("Authorization", signed))
        reply = await self.store.send(Request(method, path, query, body, headers=pairs), Peer())
        return reply.status, reply.body.decode("utf-8", "replace")


def in_store(scene: Callable[[ObjectStore, Door], Awaitable[None]]) -> None:
    async def scenario() -> None:
        async with a_testbed() as testbed:
            store = ObjectStore(testbed.clock, ["etcd"])
            await scene(store, Door(store))

    run_driven(scenario())


def test_the_signature_is_that_of_the_example_in_awss_documentation():
    query = ()
    headers = {
        "host": "examplebucket.s3.amazonaws.com",
        "range": "bytes=0-9",
        "x-amz-content-sha256": "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
        "x-amz-date": "20130524T000000Z",
    }
    key = "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"

    found = sign("GET", "/test.txt", query, headers, "us-east-1", key)

    assert found == "f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41"


def test_objects_are_kept_listed_in_pages_and_deleted():
    async def scene(store: ObjectStore, door: Door) -> None:
        for number in range(1002):
            assert (await door.send("PUT", f"/etcd/a/{number:04d}", body=b"x"))[0] == 200
        status, text = await door.send("GET", "/etcd/", (("list-type", "2"), ("prefix", "a/")))
        assert (status, text.count("<Key>")) == (200, 1000)
        assert "<NextContinuationToken>a/0999</NextContinuationToken>" in text
        query = (("continuation-token", "a/0999"), ("list-type", "2"), ("prefix", "a/"))
        assert (await door.send("GET", "/etcd/", query))[1].count("<Key>") == 2
        assert (await door.send("DELETE", "/etcd/a/0000"))[0] == 204
        assert (await door.send("GET", "/etcd/a/0000"))[0] == 404
        assert await door.send("GET", "/etcd/a/0001") == (200, "x")

    in_store(scene)


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/other/", 404),
        ("GET", "/etcd/" + "k" * 2000, 404),
        ("PUT", "/etcd/" + "k" * 2000, 400),
        ("POST", "/etcd/a", 405),
        ("DELETE", "/etcd/", 405),
        ("GET", "/", 404),
        ("PUT", "/etcd/../../x", 200),
    ],
)
def test_what_the_service_does_not_do_is_refused(method: str, path: str, status: int):
    async def scene(store: ObjectStore, door: Door) -> None:
        assert (await door.send(method, path, body=b"x"))[0] == status
        assert set(store.buckets) == {"etcd"}

    in_store(scene)


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"access_key": "other"}, "InvalidAccessKeyId"),
        ({"secret_key": "other"}, "SignatureDoesNotMatch"),
        ({"region": "eu-west-1"}, "AuthorizationHeaderMalformed"),
    ],
)
def test_another_key_or_region_is_refused(change: dict[str, str], code: str):
    async def scene(store: ObjectStore, door: Door) -> None:
        for name, value in change.items():
            setattr(store, name, value)

        _, text = await door.send("GET", "/etcd/", (("list-type", "2"),))

        assert f"<Code>{code}</Code>" in text

    in_store(scene)


@pytest.mark.parametrize("stamp", ["20260101T130000Z", "yesterday"])
def test_a_request_of_another_time_is_refused(stamp: str):
    async def scene(store: ObjectStore, door: Door) -> None:
        door.stamp = stamp
        assert (await door.send("GET", "/etcd/a"))[0] == 403

    in_store(scene)


def test_a_request_without_signature_is_refused():
    async def scene(store: ObjectStore, door: Door) -> None:
        reply = await store.send(Request("GET", "/etcd/a"), Peer())
        assert b"<Code>AccessDenied</Code>" in reply.body

    in_store(scene)


def test_a_name_has_a_certificate_of_the_stores_authority():
    async def scene(store: ObjectStore, door: Door) -> None:
        async with a_testbed() as testbed:
            store.listen(testbed.network, "s3.example.org", 443)
            identity = store.identity()
            assert identity is not None
            assert pki.verify_server(identity.chain, store.ca, "s3.example.org", NOON) is None
            store.listen(testbed.network, "10.0.0.201", 80, tls=False)

    in_store(scene)
