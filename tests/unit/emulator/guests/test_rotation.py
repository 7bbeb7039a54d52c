"""Keys, tokens and certificates of a guest cluster, made anew."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.support.clock import run_driven

from windrow.core.formats.json import dumps, loads
from windrow.emulator.guest_cluster.datastore.snapshot_file import ETCD_SNAPSHOT_FILE
from windrow.kubernetes.objects import annotations_of
from windrow.kubernetes.resources import NODE

from . import test_k3s
from .k3s_fixture import K3sFixture
from .supervisor_client import SupervisorClient
from .test_cluster_life import are_ready, three_servers
from .test_cluster_reset import RESET, START, STOP, a_cluster, maps, run
from .test_etcd_snapshots import SNAPSHOTS, config_map, make
from .testbed import ClusterFixture, Kubectl, MachineTestbed, a_testbed

HASH = "rke2.io/encryption-config-hash"
CONFIG = "/var/lib/rancher/rke2/server/cred/encryption-config.json"


async def status(supervisor: SupervisorClient, program: str = "rke2") -> Any:
    reply = await supervisor.send("GET", f"/v1-{program}/encrypt/status")
    assert reply.status == 200, reply.body
    return loads(reply.body)


async def configure(supervisor: SupervisorClient, code: int = 200, **body: Any) -> str:
    reply = await supervisor.send("PUT", "/v1-rke2/encrypt/config", dumps(body))
    assert reply.status == code, reply.body
    return reply.body.decode()


async def restart_all(testbed: MachineTestbed, kubectl: Kubectl) -> None:
    for name in ("one", "two", "three"):
        await run(testbed, name, "systemctl restart rke2-server.service")
        await testbed.wait_for(lambda: are_ready(kubectl, {"one", "two", "three"}))


# -- encryption


def test_rke2_encrypts_secrets_from_the_start():
    async def scenario() -> None:
        async with a_testbed() as testbed:
            kubectl, supervisor = await a_cluster(testbed)

            assert await status(supervisor) == {
                "stage": "start",
                "activekey": "AES-CBC aescbckey",
                "enable": True,
                "hashmatch": True,
            }
            assert annotations_of(await kubectl.node("one"))[HASH].startswith("start-")
            assert testbed.disks["one"].files[CONFIG].mode == 0o600

    run_driven(scenario())


@pytest.mark.parametrize("is_on", [True, False])
def test_k3s_encrypts_secrets_where_it_is_told_to(is_on: bool):
    async def scenario() -> None:
        async with a_testbed() as testbed:
            cluster = K3sFixture()
            kubectl = Kubectl(testbed, cluster)
            testbed.power_on("one", cluster.first(**({"secrets-encryption": True} if is_on else {})))
            await testbed.wait_for(lambda: test_k3s.are_ready(kubectl, "one"))
            supervisor = SupervisorClient(testbed, cluster, port=6443)

            found = await status(supervisor, "k3s")

            assert found.get("enable") is (True if is_on else None)
            assert found["stage"] == ("start" if is_on else "")
            reply = await supervisor.send("PUT", "/v1-k3s/encrypt/config", dumps({"stage": "rotate_keys"}))
            assert reply.status == (200 if is_on else 400)

    run_driven(scenario())


def test_keys_are_rotated_at_once_and_match_after_a_restart_of_every_server():
    async def scenario() -> None:
        async with a_testbed() as testbed:
            cluster = ClusterFixture()
            kubectl = await three_servers(testbed, cluster)
            supervisor = SupervisorClient(testbed, cluster)

            rotation = asyncio.ensure_future(configure(supervisor, stage="rotate_keys"))
            await testbed.sleep(5)
            assert (await status(supervisor))["stage"] == "reencrypt_active"
            await configure(supervisor, 400, stage="rotate_keys")
            await rotation

            found = await status(supervisor)
            assert found["stage"] == "reencrypt_finished"
            assert found["activekey"].startswith("AES-CBC aescbckey-2026-")
            assert "inactivekeys" not in found
            assert found["hasherror"] == "hash does not match between one and three"
            assert "hashmatch" not in found
            await configure(supervisor, 400, stage="rotate_keys")
            assert testbed.hosts["one"].logged("hash does not match between one and three")

            await restart_all(testbed, kubectl)
            assert (await status(supervisor))["hashmatch"] is True
            await configure(supervisor, stage="rotate_keys")

    run_driven(scenario())


def test_the_classic_stages_want_a_restart_of_every_server_between_them():
    async def scenario() -> None:
        async with a_testbed() as testbed:
            cluster = ClusterFixture()
            kubectl = await three_servers(testbed, cluster)
            supervisor = SupervisorClient(testbed, cluster)
            await configure(supervisor, 400, stage="rotate")
            assert testbed.hosts["one"].logged("incorrect stage: start found on node one")

            await configure(supervisor, stage="prepare")
            found = await status(supervisor)
            assert (found["stage"], found["activekey"]) == ("prepare", "AES-CBC aescbckey")
            assert found["inactivekeys"][0].startswith("AES-CBC aescbckey-2026-")
            await configure(supervisor, 400, stage="rotate")
            await restart_all(testbed, kubectl)

            await configure(supervisor, stage="rotate")
            assert (await status(supervisor))["inactivekeys"] == ["AES-CBC aescbckey"]
            await restart_all(testbed, kubectl)

            await configure(supervisor, stage="reencrypt_active")
            assert (await status(supervisor))["stage"] == "reencrypt_active"
            await testbed.sleep(60)
            found = await status(supervisor)
            assert found["stage"] == "reencrypt_finished"
            assert "inactivekeys" not in found
            await restart_all(testbed, kubectl)
            assert (await status(supervisor))["hashmatch"] is True

    run_driven(scenario())


def test_a_server_that_ends_in_a_rotation_leaves_the_keys_as_they_were():
    async def scenario() -> None:
        async with a_testbed() as testbed:
            kubectl, supervisor = await a_cluster(testbed)
            rotation = asyncio.ensure_future(configure(supervisor, stage="rotate_keys"))
            await testbed.sleep(5)

            await run(testbed, "one", STOP)
            await rotation
            await run(testbed, "one", START)
            await testbed.wait_for(lambda: are_ready(kubectl, {"one"}))
            await testbed.sleep(10)  # its Node is written by the kubelet

            found = await status(supervisor)
            assert (found["stage"], found["activekey"]) == ("start", "AES-CBC aescbckey")

    run_driven(scenario())


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b"", 400),
        (b"[]", 400),
        (b'{"stage": 1}', 400),
        (b'{"stage": "burn"}', 400),
        (b"[" * 100_000, 400),
        (b'{"a": "' + b"x" * (300 << 10) + b'"}', 400),
        (b"{}", 200),
    ],
)
def test_bad_requests_change_no_key(body: bytes, code: int):
    async def scenario() -> None:
        async with a_testbed() as testbed:
            _, supervisor = await a_cluster(testbed)
            before = await status(supervisor)

            assert (await supervisor.send("PUT", "/v1-rke2/encrypt/config", body)).status == code

            assert await status(supervisor) == before
            assert (await supervisor.send("GET", "/v1-rke2/encrypt/config")).status == 405

    run_driven(scenario())


@pytest.mark.parametrize("path", ["encrypt/status", "encrypt/config", "token"])
@pytest.mark.parametrize(("user", "password", "code"), [("node", "4gent", 403), ("server", "wrong", 401)])
def test_nodes_and_strangers_rotate_nothing(path: str, user: str, password: str, code: int):
    async def scenario() -> None:
        async with a_testbed() as testbed:
            _, supervisor = await a_cluster(testbed)
            other = SupervisorClient(testbed, supervisor.cluster, user=user, password=password)
            reply = await other.send("PUT", f"/v1-rke2/{path}", b'{"stage": "rotate_keys", "newToken": "x"}')
            assert reply.status == code

    run_driven(scenario())


def test_a_restored_snapshot_brings_its_keys_along():
    async def scenario() -> None:
        async with a_testbed() as testbed:
            kubectl, supervisor = await a_cluster(testbed)
            name = await supervisor.save()
            before = await status(supervisor)
            await configure(supervisor, stage="rotate_keys")

            await run(testbed, "one", STOP, f"{RESET} --cluster-reset-restore-path={SNAPSHOTS}/{name}", START)
            await testbed.wait_for(lambda: are_ready(kubectl, {"one"}))

            assert await status(supervisor) == before

    run_driven(scenario())


def test_the_command_shows_and_rotates_the_keys():
    async def scenario() -> None:
        async with a_testbed() as testbed:
            await a_cluster(testbed)

            code, text = await run(testbed, "one", "rke2 secrets-encrypt rotate-keys")
            assert (code, text) == (0, "keys rotated, reencryption finished\n")
            code, text = await run(testbed, "one", "rke2 secrets-encrypt status")
            assert code == 0
            assert "Current Rotation Stage: reencrypt_finished" in text
            assert "Server Encryption Hashes: All hashes match" in text
            assert (await run(testbed, "one", "rke2 secrets-encrypt rotate"))[0] == 1

    run_driven(scenario())


# -- the server token


async def rotate(supervisor: SupervisorClient, token: str, code: int = 200) -> None:
    reply = await supervisor.send("PUT", "/v1-rke2/token", dumps({"newToken": token}))
    assert reply.status == code, reply.body


async def accepts(supervisor: SupervisorClient, password: str) -> bool:
    other = SupervisorClient(supervisor.testbed, supervisor.cluster, supervisor.address, password=password)
    return (await other.send("GET", "/db/info")).status == 200


def test_a_new_token_opens_a_server_once_it_has_started_with_it():
    async def scenario() -> None:
        async with a_testbed() as testbed:
            kubectl, supervisor = await a_cluster(testbed)

            await rotate(supervisor, "n3w")

            assert await accepts(supervisor, "s3rver")
            assert not await accepts(supervisor, "n3w")
            written = testbed.disks["one"].files["/var/lib/rancher/rke2/server/token"].content.decode()
            assert written == f"K10{supervisor.cluster.hash}::server:n3w\n"

            await run(testbed, "one", "systemctl restart --no-block rke2-server.service")
            await testbed.sleep(60)
            assert testbed.hosts["one"].logged("encrypted with different token")

            config = testbed.disks["one"].files["/etc/rancher/rke2/config.yaml"]
            config.content = config.content.replace(b"server:s3rver", b"server:n3w")
            await run(testbed, "one", "systemctl restart rke2-server.service")
            await testbed.wait_for(lambda: are_ready(kubectl, {"one"}))
            assert await accepts(supervisor, "n3w")
            assert not await accepts(supervisor, "s3rver")

    run_driven(scenario())


def test_other_servers_take_the_old_token_until_they_start_again():
    async def scenario() -> None:
        async with a_testbed() as testbed:
            cluster = ClusterFixture()
            await three_servers(testbed, cluster)
            await rotate(SupervisorClient(testbed, cluster), "n3w")

            assert await accepts(SupervisorClient(testbed, cluster, "10.0.0.12"), "s3rver")

    run_driven(scenario())


def test_a_snapshot_opens_with_the_token_of_its_time():
    async def scenario() -> None:
        async with a_testbed() as testbed:
            kubectl, supervisor = await a_cluster(testbed)
            await make(kubectl, config_map("kept"))
            before = await supervisor.save("before")
            await rotate(supervisor, "n3w")
            after = await supervisor.save("after")
            shown = await kubectl.list(ETCD_SNAPSHOT_FILE)
            assert len({annotations_of(raw)["etcd.rke2.cattle.io/snapshot-token-hash"] for raw in shown}) == 2
            await run(testbed, "one", STOP)

            path = f"{RESET} --cluster-reset-restore-path={SNAPSHOTS}"
            assert (await run(testbed, "one", f"{path}/{after} --token=s3rver"))[0] == 1
            assert (await run(testbed, "one", f"{path}/{after} --token=n3w"))[0] == 0
            assert (await run(testbed, "one", f"{path}/{before} --token=n3w"))[0] == 1
            assert (await run(testbed, "one", f"{path}/{before}"))[0] == 0
            await run(testbed, "one", START)
            await testbed.wait_for(lambda: are_ready(kubectl, {"one"}))
            assert await maps(kubectl) == {"kept"}

    run_driven(scenario())


def test_an_empty_token_becomes_a_random_one():
    async def scenario() -> None:
        async with a_testbed() as testbed:
            _, supervisor = await a_cluster(testbed)
            await rotate(supervisor, "")
            written = testbed.disks["one"].files["/var/lib/rancher/rke2/server/token"].content.decode()
            assert len(written.strip().rpartition(":")[2]) == 32

    run_driven(scenario())


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b"", 400),
        (b"{}", 500),
        (b'{"newToken": null}', 500),
        (b'{"newToken": 1}', 500),
        (b'{"newToken": "K10abc::server:x"}', 500),
        (b'{"newToken": "abcdef.0123456789abcdef"}', 500),
        (dumps({"newToken": "x" * 5000}), 500),
    ],
)
def test_a_bad_token_changes_nothing(body: bytes, code: int):
    async def scenario() -> None:
        async with a_testbed() as testbed:
            _, supervisor = await a_cluster(testbed)
            path = "/var/lib/rancher/rke2/server/token"
            before = testbed.disks["one"].files[path].content

            assert (await supervisor.send("PUT", "/v1-rke2/token", body)).status == code

            assert testbed.disks["one"].files[path].content == before
            assert (await supervisor.send("GET", "/v1-rke2/token")).status == 405

    run_driven(scenario())


def test_earlier_releases_rotate_no_token():
    async def scenario() -> None:
        async with a_testbed() as testbed:
            cluster = ClusterFixture()
            kubectl = Kubectl(testbed, cluster)
            testbed.power_on("one", cluster.first().replace("v1.35.1+rke2r1", "v1.28.3+rke2r1"))
            await testbed.wait_for(lambda: are_ready(kubectl, {"one"}))
            reply = await SupervisorClient(testbed, cluster).send("PUT", "/v1-rke2/token", b"{}")
            assert reply.status == 404

    run_driven(scenario())


# -- certificates


def test_certificates_are_rotated_while_the_service_is_stopped():
    async def scenario() -> None:
        async with a_testbed() as testbed:
            kubectl, _ = await a_cluster(testbed)
            door = testbed.network.find("10.0.0.11", 6443)
            assert door is not None
            assert (before := door.identity()) is not None

            code, text = await run(testbed, "one", STOP, "rke2 certificate rotate")

            assert code == 0
            assert "Rotating certificates for api-server" in text
            assert "please restart rke2 server or agent to rotate certificates" in text
            files = testbed.disks["one"].files
            backups = [one for one in files if one.startswith("/var/lib/rancher/rke2/server/tls-")]
            assert any(one.endswith("/server-ca.crt") for one in backups)
            assert "/var/lib/rancher/rke2/server/tls/dynamic-cert-regenerate" in files
            await run(testbed, "one", START)
            await testbed.wait_for(lambda: are_ready(kubectl, {"one"}))
            door = testbed.network.find("10.0.0.11", 6443)
            assert door is not None
            assert (after := door.identity()) is not None
            assert after.key != before.key
            assert "/var/lib/rancher/rke2/server/tls/dynamic-cert-regenerate" not in files

    run_driven(scenario())


def test_certificates_of_named_services_alone():
    async def scenario() -> None:
        async with a_testbed() as testbed:
            await a_cluster(testbed)

            code, text = await run(testbed, "one", "rke2 certificate rotate -s kubelet,kube-proxy")
            assert (code, text.count("Rotating certificates for")) == (0, 2)
            code, text = await run(testbed, "one", "rke2 certificate rotate --service nginx")
            assert (code, "service nginx is not recognized" in text) == (1, True)
            assert (await run(testbed, "one", "rke2 certificate burn"))[0] == 1

    run_driven(scenario())


def test_a_node_keeps_the_hash_of_its_keys_over_a_restart():
    async def scenario() -> None:
        async with a_testbed() as testbed:
            kubectl, _ = await a_cluster(testbed)
            before = annotations_of(await kubectl.get(NODE.ref("one")))[HASH]
            await run(testbed, "one", "systemctl restart rke2-server.service")
            await testbed.wait_for(lambda: are_ready(kubectl, {"one"}))
            assert annotations_of(await kubectl.get(NODE.ref("one")))[HASH] == before

    run_driven(scenario())
