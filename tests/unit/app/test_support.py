"""Support bundles and the pages below /debug: what is in them, and that no secret is."""

from __future__ import annotations

import asyncio
import io
import json
import logging
import random
import stat
import string
import tarfile
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from tests.support.clock import LoopClock

from windrow.apiserver.server import ApiServer
from windrow.apiserver.storage.memory import MemoryStore
from windrow.app.cluster_roles import METRICS_READER, install_cluster_roles
from windrow.app.embedded import install_crds, management_api
from windrow.app.metrics.page import serve_metrics
from windrow.app.support import bundle as bundles
from windrow.app.support.bundle import Bundle, Wanted, collect, write_bundle
from windrow.app.support.debug_pages import serve_debug
from windrow.app.support.log_buffer import LogBuffer, recording_logs
from windrow.app.support.redaction import LAST_APPLIED, REDACTED, Redactor, secret_values
from windrow.client.client import Client
from windrow.clusters.api.kinds import CLUSTER, HARVESTER_CONFIG, MACHINE
from windrow.clusters.metrics.manager import ManagerMetrics
from windrow.core.formats.json import dumps
from windrow.core.rng import Rng
from windrow.core.text import encode_base64
from windrow.kubernetes.handler import Peer
from windrow.kubernetes.objects import Raw, new_object
from windrow.kubernetes.requests import Request
from windrow.kubernetes.resources import CLUSTER_ROLE_BINDING, EVENT, NAMESPACE, ROLE_BINDING, SECRET

NOW = datetime(2026, 1, 1, 12, 0, tzinfo=UTC)
# Each stands in one place only, so that a leak names its source.
PLANTED = {
    "kubeconfig token": "kubeconfig-u-7f3k2:x9w8v7u6t5s4r3q2p1",
    "client key": "MIIEvQIBADANBgkqhkiG9w0BAQEFAASCBKcwggSjAgEAAoIBAQC7",
    "node token": "K10c4fe0d9b8a7766554433221100ffeeddccbbaa99::server:9e8d7c6b5a",
    "S3 key": "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY",
    "registry password": "p@ss w0rd!Zq7 x",
    "short password": "hunt3",
    "user data password": "Sup3rS3cretUserData",
    "manifest password": "inline-manifest-pw-1",
    "proxy password": "pr0xypass99",
    "chart value": "chart-value-pw-77",
    "last applied": "last-applied-pw-55",
    "console password": "c0nsole-root-pw",
    "event token": "eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiJ4In0.c2lnbmF0dXJl",
    "log password": "l0gged-passw0rd-3",
    "managed field": "managed-pw-31",
    "driver config": "driverconfig-pw-12",
}
NAMESPACE_OF_ALL = "fleet-default"
SERVER = "https://harvester.example:6443"


def a_kubeconfig() -> str:
    return (
        "apiVersion: v1\nkind: Config\nclusters:\n- name: local\n  cluster:\n"
        f"    server: {SERVER}\nusers:\n- name: local\n  user:\n"
        f'    token: "{PLANTED["kubeconfig token"]}"\n    client-key-data: {PLANTED["client key"]}\n'
    )


def a_secret(name: str, **values: str) -> Raw:
    return new_object(SECRET, name, NAMESPACE_OF_ALL) | {
        "data": {key.replace("_", "-"): encode_base64(value) for key, value in values.items()}
    }


def secrets() -> list[Raw]:
    return [
        a_secret("cc-harvester", **{"harvestercredentialConfig-kubeconfigContent": a_kubeconfig()}),
        a_secret("prod-windrow-secrets", server_token=PLANTED["node token"]),
        a_secret("s3", accessKey="AKIAIOSFODNN7EXAMPLE", secretKey=PLANTED["S3 key"]),
        a_secret("registry", username="robot", password=PLANTED["registry password"]),
        a_secret("short", password=PLANTED["short password"]),
    ]


def a_cluster() -> Raw:
    rke = {
        "machinePools": [{"name": "w", "machineConfigRef": {"kind": "HarvesterConfig", "name": "nc-w"}}],
        "additionalManifest": f"kind: Secret\nstringData:\n  x: {PLANTED['manifest password']}\n",
        "chartValues": {"rke2-calico": {"adminPassword": PLANTED["chart value"]}},
        "registries": {"configs": {"r.example": {"authConfigSecretName": "registry"}}},
    }
    spec = {
        "cloudCredentialSecretName": f"{NAMESPACE_OF_ALL}:cc-harvester",
        "kubernetesVersion": "v1.34.7+rke2r1",
        "agentEnvVars": [
            {"name": "HTTPS_PROXY", "value": f"http://me:{PLANTED['proxy password']}@proxy.example:3128"}
        ],
        "rkeConfig": rke,
    }
    raw = new_object(CLUSTER, "prod", NAMESPACE_OF_ALL, spec=spec)
    raw["metadata"]["annotations"] = {
        LAST_APPLIED: dumps({"data": PLANTED["last applied"]}).decode(),
        "a": "kept",
    }
    return raw


def a_config() -> Raw:
    user_data = f"#cloud-config\nchpasswd:\n  list: root:{PLANTED['user data password']}\n"
    raw = new_object(HARVESTER_CONFIG, "nc-w", NAMESPACE_OF_ALL)
    return {**raw, "cpuCount": "2", "userData": encode_base64(user_data), "sshUser": "ubuntu"}


def a_machine(name: str = "prod-w-1") -> Raw:
    spec = {
        "clusterName": "prod",
        "clusterUID": "u",
        "pool": "w",
        "roles": ["worker"],
        "options": {"cpuCount": "2"},
        "credential": f"{NAMESPACE_OF_ALL}:cc-harvester",
        "version": "v1.34.7+rke2r1",
    }
    return new_object(MACHINE, name, NAMESPACE_OF_ALL, spec=spec)


def an_event() -> Raw:
    about = {"kind": "Machine", "namespace": NAMESPACE_OF_ALL, "name": "prod-w-1"}
    message = f"refused: Authorization: Bearer {PLANTED['event token']} for {PLANTED['kubeconfig token']}"
    raw = new_object(EVENT, "prod.1", NAMESPACE_OF_ALL)
    return {**raw, "involvedObject": about, "reason": "Refused", "type": "Warning", "message": message}


@pytest.fixture
async def api() -> ApiServer:
    server = management_api(MemoryStore(), LoopClock(), Rng(1))
    await install_crds(Client(server.local()))
    await install_cluster_roles(Client(server.local()))
    admin = server.local()
    for raw in secrets():
        await admin.create(SECRET, raw)
    await admin.create(CLUSTER, a_cluster())
    await admin.create(HARVESTER_CONFIG, a_config())
    await admin.create(MACHINE, a_machine())
    driver = {"CloudConfig": f"password: {PLANTED['driver config']}", "VMName": "prod-w-1"}
    await admin.patch(
        MACHINE.ref("prod-w-1", NAMESPACE_OF_ALL),
        {"status": {"driverConfig": driver, "phase": "Ready"}},
        "status",
    )
    await admin.create(EVENT, an_event())
    metrics = ManagerMetrics(LoopClock())
    serve_metrics(server, metrics.registry)
    logs = LogBuffer()
    record = logging.LogRecord("windrow", 30, "", 0, f"password={PLANTED['log password']}", (), None)
    logs.emit(record)
    serve_debug(server, metrics, logs, {"proxy": False})
    return server


async def console(raw: Raw, lines: int) -> Sequence[str]:
    return [
        "login: root",
        f"Password: {PLANTED['console password']}",
        f"joining with {PLANTED['node token']}",
    ]


async def plan(raw: Raw) -> dict[str, Any]:
    field = "spec.rkeConfig.machinePools[w].userData"
    return {"fields": [{"field": field, "to": f"list: root:{PLANTED['user data password']}"}]}


async def a_bundle(api: ApiServer, **wanted: Any) -> Bundle:
    client = Client(api.local(*wanted.pop("user", ())))
    return await collect(client, Wanted(**wanted), {"windrow": "1"}, console, plan, NOW)


def unpack(bundle: Bundle, folder: Path) -> str:
    """Everything in the archive, names too."""
    path = folder / "x.tar.gz"
    write_bundle(path, bundle, NOW)
    with tarfile.open(path) as archive:
        texts = [f"{one.name}\n{_read(archive, one)}" for one in archive.getmembers()]
    return "\n".join(texts)


def _read(archive: tarfile.TarFile, member: tarfile.TarInfo) -> str:
    file = archive.extractfile(member)
    assert file is not None
    return io.TextIOWrapper(file).read()


def leaks(text: str) -> list[str]:
    """The planted secrets in the text: whole, as base64, or the longest word of it."""
    found = []
    for place, value in PLANTED.items():
        longest = max(value.replace("::", " ").replace(".", " ").split(), key=len)
        found += [place for form in (value, encode_base64(value), longest) if form in text]
    return sorted(set(found))


async def test_no_secret_is_in_a_bundle_wherever_it_was(api: ApiServer, tmp_path: Path):
    text = unpack(await a_bundle(api), tmp_path)

    assert leaks(text) == []
    assert text.count(REDACTED) > 10


async def test_the_check_for_leaks_finds_a_leak(api: ApiServer):
    clear = "\n".join(dumps(raw).decode() for raw in [*secrets(), a_cluster(), a_config(), an_event()])

    assert len(leaks(clear)) > 8


async def test_a_bundle_has_what_helps(api: ApiServer, tmp_path: Path):
    bundle = await a_bundle(api)

    for name in (
        "versions.json",
        "events.txt",
        "metrics.txt",
        "problems.txt",
        "debug/state.json",
        "debug/logs.ndjson",
        f"objects/clusters/{NAMESPACE_OF_ALL}/prod.yaml",
        f"objects/machines/{NAMESPACE_OF_ALL}/prod-w-1.yaml",
        f"objects/secrets/{NAMESPACE_OF_ALL}/s3.yaml",
        f"consoles/{NAMESPACE_OF_ALL}/prod-w-1.txt",
        f"plans/{NAMESPACE_OF_ALL}/prod.yaml",
    ):
        assert name in bundle.files, name
    secret = bundle.files[f"objects/secrets/{NAMESPACE_OF_ALL}/s3.yaml"].decode()
    assert f"secretKey: {REDACTED}" in secret
    cluster = bundle.files[f"objects/clusters/{NAMESPACE_OF_ALL}/prod.yaml"].decode()
    assert "kubernetesVersion: v1.34.7+rke2r1" in cluster
    assert "cloudCredentialSecretName: fleet-default:cc-harvester" in cluster
    assert "authConfigSecretName: registry" in cluster
    assert "a: kept" in cluster
    assert "Refused Machine fleet-default/prod-w-1: refused" in bundle.files["events.txt"].decode()
    assert bundle.files["problems.txt"] == b"none\n"


async def test_a_bundle_of_one_cluster_has_nothing_of_others(api: ApiServer, tmp_path: Path):
    admin = api.local()
    other = a_machine("prod-eu-w-1")
    other["spec"]["clusterName"] = "prod-eu"
    await admin.create(MACHINE, other)
    await admin.create(CLUSTER, new_object(CLUSTER, "prod-eu", NAMESPACE_OF_ALL, spec=a_cluster()["spec"]))
    await admin.create(SECRET, a_secret("prod-eu-windrow-secrets", server_token="another"))
    for kind, name in (("Machine", "prod-eu-w-1"), ("Machine", "prod-eu-gone"), ("Cluster", "production")):
        about = {"kind": kind, "namespace": NAMESPACE_OF_ALL, "name": name}
        raw = new_object(EVENT, f"{name}.1", NAMESPACE_OF_ALL)
        await admin.create(EVENT, {**raw, "involvedObject": about, "reason": "Another", "message": "m"})
    cluster = await Client(admin).get(CLUSTER.ref("prod", NAMESPACE_OF_ALL))

    bundle = await a_bundle(api, cluster=cluster)

    assert f"objects/clusters/{NAMESPACE_OF_ALL}/prod.yaml" in bundle.files
    assert f"objects/secrets/{NAMESPACE_OF_ALL}/prod-windrow-secrets.yaml" in bundle.files
    assert not any("prod-eu" in name for name in bundle.files)
    events = bundle.files["events.txt"].decode()
    assert "Refused Machine fleet-default/prod-w-1" in events
    assert "Another" not in events
    assert not any(name.startswith("objects/secrets") and "registry" in name for name in bundle.files)
    assert leaks(unpack(bundle, tmp_path)) == []


async def test_what_a_user_may_not_read_is_named_and_ends_nothing(api: ApiServer, tmp_path: Path):
    await api.local().create(NAMESPACE, {"metadata": {"name": "team-a"}})
    subjects = [{"apiGroup": ROLE_BINDING.group, "kind": "User", "name": "tenant"}]
    role = {"apiGroup": ROLE_BINDING.group, "kind": "ClusterRole", "name": "view"}
    raw = {"metadata": {"name": "v"}, "roleRef": role, "subjects": subjects}
    await api.local().create(ROLE_BINDING, raw, NAMESPACE_OF_ALL)

    bundle = await a_bundle(api, namespace=NAMESPACE_OF_ALL, user=("tenant", ()))

    assert f"objects/clusters/{NAMESPACE_OF_ALL}/prod.yaml" in bundle.files
    assert not any(name.startswith(("objects/secrets", "metrics", "debug")) for name in bundle.files)
    problems = bundle.files["problems.txt"].decode()
    assert 'secrets in fleet-default: secrets is forbidden: User "tenant"' in problems
    assert "/debug/logs: HTTP 403: " in problems
    assert 'User "tenant" cannot get path "/debug/logs"' in problems
    # The Secrets are not known here, so that only places and forms tell.
    assert leaks(unpack(bundle, tmp_path)) == []


def test_the_file_is_private_and_its_paths_stay_in_one_folder(tmp_path: Path):
    bundle = Bundle()
    bundle.add(bundles._path_of(MACHINE, {"metadata": {"namespace": "..", "name": "../../etc/passwd"}}), "x")
    path = tmp_path / "b.tar.gz"

    write_bundle(path, bundle, NOW)

    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    with tarfile.open(path) as archive:
        (name,) = archive.getnames()
    assert name == "b/objects/machines/_/_.._etc_passwd.yaml"


def test_a_bundle_is_bounded_and_says_what_it_left_out(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(bundles, "MAX_FILE_BYTES", 100)
    monkeypatch.setattr(bundles, "MAX_BYTES", 250)
    bundle = Bundle()
    for number in range(5):
        bundle.add(f"f{number}", f"{'x' * 1000}{number}")

    assert bundle.size <= 250
    assert bundle.files["f1"].endswith(b"1")
    assert len([one for one in bundle.problems if "left out" in one]) == 3


@pytest.mark.parametrize(
    "text",
    [
        "token: abc123",
        'password="abc123"',
        "AWS_SECRET_ACCESS_KEY=abc123",
        "https://me:abc123@example.org",
        "Authorization: Bearer abc123",
        "-----BEGIN RSA PRIVATE KEY-----\nabc123\n-----END RSA PRIVATE KEY-----",
        "-----BEGIN RSA PRIVATE KEY-----\nabc123",
    ],
)
def test_the_form_of_a_text_tells_a_secret_that_is_not_known(text: str):
    assert "abc123" not in Redactor().text(text)


@pytest.mark.parametrize(
    "text",
    [
        "waiting for VirtualMachine default/prod-workers-x7k2p to report an IP address since 3m; then the node joins",
        "Secret fleet-default/cc-harvester has no key",
        "https://harvester.example:6443/apis",
    ],
)
def test_a_sentence_without_secrets_stays_as_it_is(text: str):
    assert Redactor(secret_values(secrets())).text(text) == text


def test_a_known_secret_is_taken_out_of_any_text():
    rng = random.Random(3)
    letters = string.ascii_letters + string.digits + "+/_-.:!@#$%^&*() ="
    for _ in range(300):
        secret = "".join(rng.choices(letters, k=rng.randrange(6, 60))).strip()
        redactor = Redactor(secret_values([a_secret("s", password=secret)]))
        for text in (f"refused: {secret}", f"x={secret}&y", f'"{secret}"', f"({encode_base64(secret)})"):
            assert secret not in redactor.text(text), secret
            assert encode_base64(secret) not in redactor.text(text), secret


def test_no_length_of_a_secret_can_be_told():
    short = Redactor().object(a_secret("s", password="a" * 4))
    long = Redactor().object(a_secret("s", password="a" * 4000))

    assert short == long


def test_an_object_that_is_nested_without_end_is_cut():
    raw: dict[str, Any] = {"kind": "Cluster", "metadata": {}}
    inner = raw
    for _ in range(500):
        inner["spec"] = inner = {}

    assert REDACTED in str(Redactor().object(raw))


# -- /debug


async def ask(api: ApiServer, path: str, token: str, method: str = "GET"):
    headers = (("Authorization", f"Bearer {token}"),)
    return await api.send(Request(method, path, headers=headers), Peer())


async def test_the_pages_below_debug_are_for_administrators(api: ApiServer):
    for user, role in (("prometheus", METRICS_READER), ("root", "cluster-admin")):
        api.tokens[user] = (user, (), None)
        subjects = [{"apiGroup": ROLE_BINDING.group, "kind": "User", "name": user}]
        reference = {"apiGroup": ROLE_BINDING.group, "kind": "ClusterRole", "name": role}
        raw = {"metadata": {"name": user}, "roleRef": reference, "subjects": subjects}
        await api.local().create(CLUSTER_ROLE_BINDING, raw)

    for path in ("/debug/state", "/debug/logs", "/debug"):
        assert (await ask(api, path, "prometheus")).status == 403
    assert (await ask(api, "/debug/state", "root")).status == 200
    assert (await ask(api, "/debug/logs", "root")).status == 200
    assert (await ask(api, "/debug/else", "root")).status == 404
    assert (await ask(api, "/debug/state", "root", "POST")).status == 405


async def test_the_state_says_what_waits_where(api: ApiServer):
    async def sleeper() -> None:
        await asyncio.Event().wait()

    task = asyncio.create_task(sleeper(), name="watch things")
    await asyncio.sleep(0)
    api.tokens["root"] = ("root", ("system:masters",), None)

    text = (await ask(api, "/debug/state", "root")).body.decode()

    task.cancel()
    assert '"task":"watch things"' in text
    assert '"workQueue":0' in text
    assert str(Path(__file__).parent) not in text


def test_the_latest_lines_of_the_log_are_kept_and_no_more():
    buffer = LogBuffer(max_bytes=2000)
    for number in range(100):
        buffer.emit(logging.LogRecord("a", 30, "", 0, f"line {number}", (), None))

    assert len(buffer.text()) <= 2000
    assert "line 99" in buffer.text()
    assert '"line 1"' not in buffer.text()


def test_the_log_is_recorded_while_a_manager_runs():
    with recording_logs() as buffer:
        logging.getLogger("windrow.x").warning("one")
    logging.getLogger("windrow.x").warning("two")

    assert "one" in buffer.text()
    assert "two" not in buffer.text()


AWS = "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"


@pytest.mark.parametrize(
    "form",
    [
        f"backups/{AWS}/orchard",
        f"k={AWS}-1",
        f"x{AWS}y",
        f"{AWS[:20]}\n{AWS[20:]}",
        f"{AWS[:20]}\\n{AWS[20:]}",
        quote(AWS, safe=""),
        quote(AWS, safe="").replace("%2F", "%2f"),
        encode_base64(f"user:{AWS}"),
        encode_base64(f"someone:{AWS}"),
    ],
)
def test_a_value_of_a_secret_is_taken_out_wherever_it_stands_and_however_it_is_written(form: str) -> None:
    redactor = Redactor(secret_values([a_secret("s", key=AWS)]))
    told = redactor.text(f"before {form} after")
    assert REDACTED in told
    assert all(part not in told for part in ("K7MDENG", "FEMI", encode_base64("EXAMPLEK")[:8]))
    assert told.startswith("before ")
    assert told.endswith(" after")


@pytest.mark.parametrize(
    "secret", ["x7Kp-9aQ_zz81LmN4", "p\u00e4ssw\u00f6rd77x", "correct horse battery 7", 'pa"ss\\word9']
)
def test_a_value_of_any_letters_is_taken_out_of_json_and_of_words(secret: str) -> None:
    redactor = Redactor(secret_values([a_secret("s", key=secret)]))
    assert redactor.text(f"pool-{secret}/x") == f"pool-{REDACTED}/x"
    assert redactor.text(json.dumps({"a": f"-{secret}-"})) == json.dumps({"a": f"-{REDACTED}-"})


def test_what_a_text_costs_does_not_grow_with_the_secrets() -> None:
    """Else it takes minutes, which the limit of a test ends."""
    redactor = Redactor({"a" * 1000, *(f"{'a' * 60}{number:05}" for number in range(2000))})
    assert redactor.text("ab" * 50_000 + "a" * 7) == "ab" * 50_000 + "a" * 7
    assert redactor.text("a" * 1000) == REDACTED
