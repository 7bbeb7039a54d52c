"""A bootstrap that is wrong in one place does not join, and the machine's console has the reason."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.clock import NOON, run_driven

from windrow.core import pki
from windrow.emulator.guest_cluster.distribution.pki import BadAuthorities, load_authorities
from windrow.emulator.guest_os.delays import GuestDelays
from windrow.emulator.guest_os.hardware import Disk, Hardware
from windrow.emulator.guest_os.operating_system import GuestOS

from .testbed import VERSION, ClusterFixture, Kubectl, MachineTestbed, a_testbed

Document = Callable[[ClusterFixture], str]


def flipped(text: str, place: int = -1) -> str:
    """`text` with one bit of one of its characters turned."""
    place %= len(text)
    return text[:place] + chr(ord(text[place]) ^ 1) + text[place + 1 :]


def one_wrong(text: str, wrong: str, right: str) -> str:
    assert text.count(right) >= 1, f"the document has no {right!r}"
    return text.replace(right, wrong, 1)


# What is wrong in a worker's user data, and a part of the reason.
WORKERS: dict[str, tuple[Document, str]] = {
    "password of the token": (
        lambda c: c.worker("worker", token=flipped(c.agent_token())),
        "401 Unauthorized",
    ),
    "hash of the token": (
        lambda c: c.worker("worker", token=flipped(c.agent_token(), 5)),
        "token CA hash does not match the Cluster CA certificate hash",
    ),
    "length of the hash": (
        lambda c: c.worker("worker", token="K10" + c.agent_token()[4:]),
        "invalid token CA hash length",
    ),
    "form of the token": (
        lambda c: c.worker("worker", token=f"K10{c.hash}::nonsense"),
        "invalid token format",
    ),
    "token of another cluster": (
        lambda c: c.worker("worker", token=ClusterFixture("other").agent_token()),
        "token CA hash does not match",
    ),
    "address of the server": (
        lambda c: c.worker("worker", "https://10.0.0.91:9345"),
        "dial tcp 10.0.0.91:9345: connect: no route to host",
    ),
    "port of the server": (
        lambda c: c.worker("worker", "https://10.0.0.11:9344"),
        "dial tcp 10.0.0.11:9344: connect: connection refused",
    ),
    "API instead of supervisor": (
        lambda c: c.worker("worker", "https://10.0.0.11:6443"),
        "failed to get CA certs: https://10.0.0.11:6443/cacerts: 401 Unauthorized",
    ),
    "scheme of the server": (
        lambda c: c.worker("worker", "http://10.0.0.11:9345"),
        "only https:// URLs are supported",
    ),
    "a name that does not resolve": (
        lambda c: c.worker("worker", "https://servers.example:9345"),
        "lookup servers.example: no such host",
    ),
    "key of the token": (
        lambda c: one_wrong(c.worker("worker"), "tokeo: K10", "token: K10"),
        "--token is required",
    ),
    "key of the server": (
        lambda c: one_wrong(c.worker("worker"), "servds: https", "server: https"),
        "--server is required",
    ),
    "no token at all": (lambda c: c.worker("worker", token=""), "--token is required"),
    "indentation inside config.yaml": (
        lambda c: one_wrong(c.worker("worker"), "      server: https", "    server: https"),
        "failed to parse /etc/rancher/rke2/config.yaml: yaml",
    ),
    "indentation of the document": (
        lambda c: one_wrong(c.worker("worker"), "\n content: |", "\n  content: |"),
        "Failed loading yaml blob",
    ),
    "header of the document": (
        lambda c: one_wrong(c.worker("worker"), "#cloud-confih", "#cloud-config"),
        "Unhandled non-multipart (text/x-not-multipart) userdata",
    ),
    "a release that does not exist": (
        lambda c: one_wrong(
            c.worker("worker"), "INSTALL_RKE2_VERSION=v1.35.1+rje2r1", f"INSTALL_RKE2_VERSION={VERSION}"
        ),
        "no RKE2 release is called 'v1.35.1+rje2r1'",
    ),
    "a type that does not exist": (
        lambda c: one_wrong(c.worker("worker"), "INSTALL_RKE2_TYPE=ageot", "INSTALL_RKE2_TYPE=agent"),
        "INSTALL_RKE2_TYPE is 'ageot'",
    ),
    "name of the service": (
        lambda c: one_wrong(c.worker("worker"), "rke2-agenu.service", "rke2-agent.service"),
        "Unit file rke2-agenu.service does not exist",
    ),
    "a label that a kubelet may not set": (
        lambda c: c.worker("worker", node_label=["node-role.kubernetes.io/worker=true"]),
        "[node-role.kubernetes.io/worker]",
    ),
    "a taint without effect": (
        lambda c: c.worker("worker", node_taint=["dedicated=db"]),
        "invalid taint spec: 'dedicated=db'",
    ),
    "an address that is not the machine's": (
        lambda c: c.worker("worker", node_ip="10.0.0.99"),
        "node IP 10.0.0.99 not found in the host's network interfaces",
    ),
    "a credential file that is not there": (
        lambda c: c.worker("worker", cloud_provider_name="harvester", cloud_provider_config="/etc/nope"),
        "open /etc/nope: no such file or directory",
    ),
    "a release newer than the servers'": (
        lambda c: one_wrong(
            c.worker("worker"), "INSTALL_RKE2_VERSION=v1.36.0+rke2r1", f"INSTALL_RKE2_VERSION={VERSION}"
        ),
        "kubelet v1.36.0+rke2r1 is newer than the cluster's kube-apiserver v1.35.1+rke2r1",
    ),
}

# What is wrong in a second server's document.
SERVERS: dict[str, tuple[Document, str]] = {
    "password of the token": (
        lambda c: c.server("worker", token=flipped(c.server_token())),
        "/v1-rke2/server-bootstrap: 401 Unauthorized",
    ),
    "agent's token for a server": (
        lambda c: c.server("worker", token=c.agent_token()),
        "401 Unauthorized",
    ),
    "hash of the token": (
        lambda c: c.server("worker", token=flipped(c.server_token(), 40)),
        "token CA hash does not match",
    ),
    "address of the server": (
        lambda c: c.server("worker", "https://10.0.0.91:9345"),
        "no route to host",
    ),
    "another agent token": (
        lambda c: c.server("worker", agent_token="other"),
        "critical configuration value mismatch between servers: agent-token",
    ),
    "another cluster CIDR": (
        lambda c: c.server("worker", cluster_cidr="10.52.0.0/16"),
        "critical configuration value mismatch between servers: cluster-cidr (10.52.0.0/16 here, 10.42.0.0/16 there)",
    ),
    "a network plug-in that does not exist": (
        lambda c: c.server("worker", cni="calicp"),
        "Invalid value calicp for --cni flag",
    ),
    "key of the server": (
        lambda c: one_wrong(c.server("worker"), "servds: https", "server: https"),
        "this first server has no CA files",
    ),
    "no server, so no authorities either": (
        lambda c: one_wrong(c.server("worker"), "# no server", "server: https://10.0.0.11:9345"),
        "this first server has no CA files",
    ),
    "external address beside the cloud provider": (
        lambda c: c.server("worker", cloud_provider_name="harvester", node_external_ip="10.0.0.12"),
        "can't set node-external-ip while using cloud provider harvester",
    ),
}


@pytest.mark.parametrize("what", WORKERS)
def test_a_worker_that_is_wrong_in_one_place_does_not_join(what: str):
    _does_not_join(*WORKERS[what])


@pytest.mark.parametrize("what", SERVERS)
def test_a_server_that_is_wrong_in_one_place_does_not_join(what: str):
    _does_not_join(*SERVERS[what])


def _does_not_join(document: Document, reason: str) -> None:
    async def scenario() -> None:
        async with a_testbed() as testbed:
            cluster = ClusterFixture()
            kubectl = Kubectl(testbed, cluster)
            testbed.power_on("one", cluster.first())
            await testbed.wait_for(lambda: _are_ready(kubectl, {"one"}))

            host = testbed.power_on("worker", document(cluster))
            await testbed.sleep(300)

            assert await kubectl.ready() == {"one"}
            assert host.logged(reason), testbed.console("worker")

    run_driven(scenario())


def test_the_same_worker_joins_when_nothing_is_wrong():
    async def scenario() -> None:
        async with a_testbed() as testbed:
            cluster = ClusterFixture()
            kubectl = Kubectl(testbed, cluster)
            testbed.power_on("one", cluster.first())
            await testbed.wait_for(lambda: _are_ready(kubectl, {"one"}))

            testbed.power_on("worker", cluster.worker("worker"))

            assert await testbed.wait_for(lambda: _are_ready(kubectl, {"one", "worker"})) < 90

    run_driven(scenario())


FIRST: dict[str, tuple[Document, str]] = {
    "authority of another cluster under the token": (
        lambda c: c.first(files=_files(ClusterFixture("other"), "server-ca")),
        "token CA hash does not match the Cluster CA certificate hash",
    ),
    "key of another authority": (
        lambda c: c.first(files={f"{TLS}/client-ca.key": ClusterFixture("other").client_ca[1]}),
        "server/tls/client-ca.key: tls: private key does not match public key",
    ),
    "a certificate that is no authority": (
        lambda c: c.first(
            files=dict(zip((f"{TLS}/client-ca.crt", f"{TLS}/client-ca.key"), c.admin, strict=True))
        ),
        "client-ca.crt is not a CA certificate",
    ),
    "half a pair": (
        lambda c: one_wrong(c.first(), "server/tls/client-cb.key", "server/tls/client-ca.key"),
        "client-ca.key: no such file or directory",
    ),
    "something that is no certificate": (
        lambda c: c.first(files={f"{TLS}/etcd/peer-ca.crt": "nothing"}),
        "etcd/peer-ca.crt: data does not contain any valid certificates",
    ),
}
TLS = "/var/lib/rancher/rke2/server/tls"


def _files(cluster: ClusterFixture, stem: str) -> dict[str, str]:
    return {path: text for path, text in cluster.authorities().items() if f"/{stem}." in path}


@pytest.mark.parametrize("what", FIRST)
def test_a_first_server_with_wrong_authorities_serves_nothing(what: str):
    document, reason = FIRST[what]

    async def scenario() -> None:
        async with a_testbed() as testbed:
            host = testbed.power_on("one", document(ClusterFixture()))
            await testbed.sleep(300)

            assert testbed.network.listeners() == {}
            assert host.logged(reason), testbed.console("one")

    run_driven(scenario())


async def _are_ready(kubectl: Kubectl, names: set[str]) -> bool:
    return await kubectl.ready() >= names


# One bit anywhere in what carries meaning of a PEM file: its base64 lines.
CLUSTER = ClusterFixture()
PEMS = CLUSTER.authorities(TLS)


@settings(max_examples=100)
@given(path=st.sampled_from(sorted(PEMS)), choice=st.floats(0, 1, exclude_max=True), bit=st.integers(0, 5))
def test_a_changed_bit_in_the_delivered_ca_files_is_refused(path: str, choice: float, bit: int):
    pem = PEMS[path]
    places = [
        place
        for place, character in enumerate(pem)
        if character.isalnum() and not _line_at(pem, place).startswith("-----")
    ]
    place = places[int(choice * len(places))]
    turned = pem[:place] + _turned(pem[place], bit) + pem[place + 1 :]

    async def complaint() -> str:
        guest = _box({**PEMS, path: turned})
        try:
            load_authorities(guest, "rke2", TLS, NOON)
        except BadAuthorities as error:
            return str(error)
        return ""

    message = run_driven(complaint())

    # The last character of base64 has bits that mean nothing.
    stem = path.rsplit(".", 1)[0].rsplit("/", 1)[-1]
    assert stem in message or _meaning(turned) == _meaning(pem), f"character {place} of {path}: {message!r}"


def _line_at(text: str, place: int) -> str:
    start = text.rfind("\n", 0, place) + 1
    return text[start : text.find("\n", place)]


_ALPHABET = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"


def _turned(character: str, bit: int) -> str:
    return _ALPHABET[_ALPHABET.index(character) ^ (1 << bit)]


def _meaning(pem: str) -> Any:
    try:
        return pki.der(pem) if "CERTIFICATE" in pem else pki.public_key_of(pem)
    except pki.NotCertificate:
        return None


def _box(files: dict[str, str]) -> GuestOS:
    hardware = Hardware("default", "m", "uid", "uid", "", "", (), Disk())
    guest = GuestOS(hardware, MachineTestbed().offline_host("m"), GuestDelays(), _no_tasks)
    for path, text in files.items():
        guest.write(path, text.encode())
    return guest


def _no_tasks(work: Any, name: str) -> Any:
    raise AssertionError(f"nothing should start, found {name}")
