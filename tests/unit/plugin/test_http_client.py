"""The plugin's HTTP over real sockets on loopback."""

from __future__ import annotations

import socket
import ssl
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives import serialization
from tests.unit.plugin.http_servers import Last, a_server, answer, chunked

from windrow.core import pki
from windrow.core.formats.json import dumps
from windrow.core.rng import SystemRng
from windrow.kubernetes import requests
from windrow.kubernetes.errors import (
    CertificateError,
    Forbidden,
    KubeError,
    OutcomeUnknown,
    ServerError,
    Unauthorized,
    Unreachable,
    error_for,
)
from windrow.kubernetes.kubeconfig import ClientConfig, ExecConfig
from windrow.kubernetes.resources import SECRET
from windrow.plugin.environment import LocalFiles, ProcessEnv
from windrow.plugin.http import client as http_client
from windrow.plugin.http import tls
from windrow.plugin.http.client import HttpClient

GET = requests.get(SECRET.ref("a", "default"))
POST = requests.create(SECRET, {"metadata": {"name": "a", "namespace": "default"}})
WATCH = requests.watch(SECRET, "default", timeout_s=5)


def an_http(
    server: int | str, access: ClientConfig | None = None, folders: Sequence[str] = (), **env: str
) -> HttpClient:
    url = server if isinstance(server, str) else f"http://127.0.0.1:{server}"
    slept: list[float] = []
    process = ProcessEnv(
        argv=(),
        env=env,
        now=lambda: datetime.now(UTC),
        monotonic=time.monotonic,
        sleep=slept.append,
        rng=SystemRng(),
        log=print,
        files=LocalFiles(SystemRng()),
    )
    made = HttpClient(replace(access or ClientConfig("", token="t0ken"), server=url), process, folders)
    made.slept = slept  # type: ignore[attr-defined]
    return made


def in_turn(*replies: bytes | None) -> Callable[[bytes], bytes | None]:
    """One reply after the other, the last one for ever."""
    left = list(replies)
    return lambda request: left.pop(0) if len(left) > 1 else left[0]


def status(code: int, message: str = "no", **headers: str) -> bytes:
    return answer(dumps({"kind": "Status", "code": code, "message": message}), code, **headers)


# --- requests and connections


def test_a_request_carries_host_token_and_length():
    with a_server(lambda request: answer()) as server:
        an_http(server.port).send(POST)

    head, _, body = server.requests[0].partition(b"\r\n\r\n")
    assert head.split(b"\r\n")[0] == b"POST /api/v1/namespaces/default/secrets HTTP/1.1"
    lines = set(head.decode().split("\r\n"))
    assert {
        f"Host: 127.0.0.1:{server.port}",
        "Authorization: Bearer t0ken",
        "Content-Type: application/json",
    } <= lines
    assert body == POST.body


def test_one_connection_carries_many_requests():
    with a_server(lambda request: answer()) as server:
        client = an_http(server.port)
        for _ in range(5):
            assert client.send(GET).status == 200

    assert server.connections == 1


@pytest.mark.parametrize(
    "reply", [answer(Connection="close"), b"HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\n{}"]
)
def test_a_connection_is_not_used_again_against_the_servers_word(reply: bytes):
    with a_server(lambda request: reply) as server:
        client = an_http(server.port)
        client.send(GET)
        client.send(GET)

    assert server.connections == 2


def test_a_write_on_a_connection_that_breaks_is_not_sent_again():
    with a_server(in_turn(answer(), None, answer())) as server:
        client = an_http(server.port)
        client.send(GET)
        with pytest.raises(OutcomeUnknown):
            client.send(POST)
        assert client.send(POST).status == 200
    assert len(server.requests) == 3


def test_a_connection_that_the_server_closed_meanwhile_carries_no_write():
    with a_server(lambda request: answer()) as server:
        client = an_http(server.port)
        client.send(GET)
        client._pool.idle[0].socket.shutdown(socket.SHUT_RD)  # as if the server had hung up
        assert client.send(POST).status == 200

    assert (len(server.requests), server.connections) == (2, 2)


def test_a_path_beyond_the_servers_root_is_kept():
    with a_server(lambda request: answer()) as server:
        an_http(f"http://127.0.0.1:{server.port}/k8s/clusters/local").send(GET)

    assert server.requests[0].startswith(b"GET /k8s/clusters/local/api/v1/namespaces/default/secrets/a ")


def test_a_server_may_be_an_ipv6_literal():
    with a_server(lambda request: answer(), family=socket.AF_INET6) as server:
        an_http(f"http://[::1]:{server.port}").send(GET)

    assert f"Host: [::1]:{server.port}".encode() in server.requests[0]


# --- repeating


@pytest.mark.parametrize(
    ("request_", "replies", "asked", "end"),
    [
        (GET, [None, answer()], 2, 200),
        (GET, [status(500), answer()], 2, 200),
        (GET, [status(500)], 4, 500),
        (GET, [None], 4, OutcomeUnknown),
        (GET, [status(404)], 1, 404),
        (POST, [None, answer()], 1, OutcomeUnknown),
        (POST, [Last(b"HTTP/1.1 201 Cre"), answer()], 1, OutcomeUnknown),
        (POST, [Last(b"SSH-2.0-x\r\n")], 1, OutcomeUnknown),
        (POST, [status(500), answer()], 1, 500),
        (POST, [status(503), answer()], 2, 200),
        (POST, [status(429, Retry_After="2"), answer()], 2, 200),
        (GET, [status(429, Retry_After="200"), answer()], 1, 429),
        (POST, [status(500, 'admission webhook "v" denied the request: no')], 1, 500),
    ],
)
def test_only_what_cannot_have_happened_twice_is_repeated(
    request_: requests.Request, replies: list[bytes | None], asked: int, end: object
):
    with a_server(in_turn(*replies)) as server:
        try:
            found: object = an_http(server.port).send(request_).status
        except KubeError as error:
            found = type(error)

    assert (len(server.requests), found) == (asked, end)


def test_a_server_that_refuses_the_connection_is_tried_again_also_for_a_write():
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
    client = an_http(port)

    with pytest.raises(Unreachable, match=f"cannot reach http://127.0.0.1:{port} .*connection refused"):
        client.send(POST)

    assert len(client.slept) == http_client.ATTEMPTS - 1  # type: ignore[attr-defined]


def test_pauses_grow_and_obey_the_server():
    with a_server(in_turn(status(503), status(503, Retry_After="3"), answer())) as server:
        client = an_http(server.port)
        client.send(GET)

    first, second = client.slept  # type: ignore[attr-defined]
    assert 0.25 <= first < 0.4
    assert 3 <= second < 4.6


def test_a_silent_server_is_given_up(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(http_client, "RESPONSE_TIMEOUT_S", 0.1)
    with (
        socket.create_server(("127.0.0.1", 0)) as silent,
        pytest.raises(OutcomeUnknown, match="no answer in time; it may or may not have been carried out"),
    ):
        an_http(silent.getsockname()[1]).send(POST)


# --- refusals


def test_a_refused_token_is_told_with_server_and_credential_and_without_itself():
    with a_server(lambda request: status(401, "Unauthorized")) as server:
        reply = an_http(server.port, ClientConfig("", token="t0ken", user="ada")).send(GET)

    error = error_for(reply)
    assert isinstance(error, Unauthorized)
    assert f"http://127.0.0.1:{server.port} does not accept the token of user 'ada'" in error.message
    assert "t0ken" not in error.message


def test_a_token_in_a_file_is_read_anew_for_each_request(tmp_path: Path):
    file = tmp_path / "token"
    access = ClientConfig("", token_file=str(file))
    with a_server(lambda request: answer()) as server:
        client = an_http(server.port, access)
        for token in ("one\n", "two\n"):
            file.write_text(token)
            client.send(GET)
        file.unlink()
        with pytest.raises(Unreachable, match=r"token file .* cannot be read"):
            client.send(GET)

    assert [b"Bearer one\r\n" in server.requests[0], b"Bearer two\r\n" in server.requests[1]] == [True, True]


def test_a_token_with_a_line_break_is_refused_before_it_is_sent():
    with a_server(lambda request: answer()) as server, pytest.raises(Unreachable, match="'Authorization'"):
        an_http(server.port, ClientConfig("", token="a\r\nX: y")).send(GET)
    assert not server.requests


def test_a_token_does_not_travel_in_clear_text():
    with pytest.raises(CertificateError, match="clear text"):
        an_http("http://192.0.2.1").send(GET)


def test_a_kubeconfig_that_runs_a_program_is_refused_by_its_name():
    with pytest.raises(Unreachable, match=r"'aws'.*does not run"):
        an_http("https://h.example", ClientConfig("", exec=ExecConfig("aws")))


@pytest.mark.parametrize("method", ["send", "watch"])
def test_a_server_that_sends_elsewhere_is_not_followed(method: str):
    with (
        a_server(lambda request: answer(b"", 302, Location="https://elsewhere/")) as server,
        pytest.raises(ServerError, match="302 and sends to https://elsewhere/; name the API server itself"),
    ):
        getattr(an_http(server.port), method)(WATCH)
    assert len(server.requests) == 1


# --- watches


def line(kind: str, name: str) -> bytes:
    return dumps({"type": kind, "object": {"metadata": {"name": name}}}) + b"\n"


def test_a_watch_gives_whole_events_however_they_are_cut_and_ends_with_the_server():
    text = line("ADDED", "a") + line("MODIFIED", "b")
    with a_server(lambda request: chunked(text[:7], text[7:60], text[60:])) as server:
        events = list(an_http(server.port).watch(WATCH))

    assert [(event.type, event.object["metadata"]["name"]) for event in events] == [
        ("ADDED", "a"),
        ("MODIFIED", "b"),
    ]


@pytest.mark.parametrize(
    "text",
    [
        chunked(line("ADDED", "a"), line("ADDED", "b")[:9]),
        Last(chunked(line("ADDED", "a"), end=False)),
        chunked(line("ADDED", "a"), b"no json\n"),
        chunked(line("ADDED", "a"), b"[]\n"),
    ],
)
def test_a_watch_that_breaks_says_so_after_what_was_whole(text: bytes):
    with a_server(lambda request: text) as server:
        events = an_http(server.port).watch(WATCH)
        assert next(events).type == "ADDED"
        with pytest.raises(OutcomeUnknown):
            next(events)


def test_a_silent_watch_lets_its_reader_look_at_the_clock(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(http_client, "READ_TICK_S", 0.01)
    with a_server(lambda request: chunked(line("ADDED", "a"), end=False)) as server:
        events = an_http(server.port).watch(WATCH)
        assert next(events) is not None
        assert [next(events), next(events)] == [None, None]


def test_a_body_beyond_the_limit_is_not_taken(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(http_client, "MAX_BODY_SIZE", 10)
    with (
        a_server(lambda request: answer(b"x" * 11)) as server,
        pytest.raises(OutcomeUnknown, match="more than 10 bytes"),
    ):
        an_http(server.port).send(POST)


def test_a_refused_watch_raises_the_refusal():
    with a_server(lambda request: status(403, "no watch for you")) as server, pytest.raises(Forbidden):
        an_http(server.port).watch(WATCH)


def test_a_watch_is_asked_for_again_where_the_server_failed():
    with a_server(in_turn(status(500), chunked(line("ADDED", "a")))) as server:
        assert len(list(an_http(server.port).watch(WATCH))) == 1
    with a_server(lambda request: status(500)) as server, pytest.raises(ServerError):
        an_http(server.port).watch(WATCH)


def test_a_watch_that_is_dropped_frees_its_connection():
    with a_server(lambda request: chunked(line("ADDED", "a"), end=False)) as server:
        client = an_http(server.port)
        events = client.watch(WATCH)
        next(events)
        events.close()  # type: ignore[attr-defined]
        assert not client._pool.idle


# --- TLS

NOW = datetime.now(UTC)
DAY = timedelta(days=1)
CA, CA_KEY = pki.new_ca("test-ca", NOW, 10)


def a_context(folder: Path, client_ca: str = "", **names: Any) -> ssl.SSLContext:
    certificate, key = pki.issue_certificate(
        CA, CA_KEY, common_name="server", server=True, client=False, now=NOW, lifetime=DAY, **names
    )
    file = folder / "server.pem"
    file.write_text(key + certificate)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(file)
    if client_ca:
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(cadata=client_ca)
    return context


def tls_access(**rest: Any) -> ClientConfig:
    return ClientConfig("", ca=CA, token="t", **rest)


def test_a_private_authority_is_trusted_for_its_names(tmp_path: Path):
    with a_server(lambda request: answer(), a_context(tmp_path, ips=("127.0.0.1",))) as server:
        assert an_http(f"https://127.0.0.1:{server.port}", tls_access()).send(GET).status == 200


@pytest.mark.parametrize("name", ["", ".x", "a" * 300, "härvester"])
def test_a_name_that_no_server_can_have_is_told(name: str):
    with a_server(lambda request: None) as server, pytest.raises(Unreachable):
        an_http(f"https://127.0.0.1:{server.port}", tls_access(tls_server_name=name or ".")).send(GET)


def test_an_ipv6_server_is_verified_by_its_address(tmp_path: Path):
    context = a_context(tmp_path, ips=("::1",))
    with a_server(lambda request: answer(), context, family=socket.AF_INET6) as server:
        assert an_http(f"https://[::1]:{server.port}", tls_access()).send(GET).status == 200


def test_the_kubeconfig_may_name_another_name_to_expect(tmp_path: Path):
    with a_server(lambda request: answer(), a_context(tmp_path, dns=("harvester",))) as server:
        url = f"https://127.0.0.1:{server.port}"
        assert an_http(url, tls_access(tls_server_name="harvester")).send(GET).status == 200
        with pytest.raises(CertificateError, match="tls-server-name"):
            an_http(url, tls_access()).send(GET)
        assert an_http(url, ClientConfig("", insecure=True)).send(GET).status == 200


def test_another_authority_is_not_trusted_and_not_tried_again(tmp_path: Path):
    other, _ = pki.new_ca("other-ca", NOW, 10)
    with (
        a_server(lambda request: answer(), a_context(tmp_path, ips=("127.0.0.1",))) as server,
        pytest.raises(CertificateError, match="certificate-authority-data"),
    ):
        an_http(f"https://127.0.0.1:{server.port}", ClientConfig("", ca=other, token="t")).send(GET)
    assert server.connections == 1


def test_a_server_without_tls_is_told_from_one_that_is_down():
    with a_server(lambda request: answer()) as server, pytest.raises(Unreachable, match="no TLS there"):
        an_http(f"https://127.0.0.1:{server.port}", tls_access()).send(GET)


@pytest.mark.parametrize("broken", ["-----BEGIN CERTIFICATE-----\nx\n-----END CERTIFICATE-----\n", "é"])
def test_an_authority_that_is_no_certificate_is_told(broken: str):
    with (
        a_server(lambda request: None) as server,
        pytest.raises(Unreachable, match="copy certificate-authority-data"),
    ):
        an_http(f"https://127.0.0.1:{server.port}", ClientConfig("", ca=broken, token="t")).send(GET)


@pytest.fixture(params=["memory", "folder"])
def place(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """With and without a /proc that shows files in memory."""
    folder = tmp_path / "store"
    folder.mkdir()
    if request.param == "folder":
        monkeypatch.setattr(tls, "_memory_file", lambda content: None)
    return folder


def test_a_client_certificate_is_shown_and_leaves_no_file(place: Path, tmp_path: Path):
    certificate, key = pki.issue_certificate(
        CA, CA_KEY, common_name="ada", server=False, client=True, now=NOW, lifetime=DAY
    )
    context = a_context(tmp_path, client_ca=CA, ips=("127.0.0.1",))
    access = ClientConfig("", ca=CA, certificate=certificate, key=key)
    with a_server(lambda request: answer(), context) as server:
        url = f"https://127.0.0.1:{server.port}"
        client = an_http(url, access, folders=("/nonexistent", str(place)))
        assert client.send(GET).status == 200
        assert list(place.iterdir()) == []
        with pytest.raises(Unauthorized, match="in the TLS handshake"):
            an_http(url, ClientConfig("", ca=CA, token="t")).send(GET)


def test_a_key_that_can_be_put_nowhere_is_told(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(tls, "_memory_file", lambda content: None)
    certificate, key = pki.issue_certificate(
        CA, CA_KEY, common_name="ada", server=False, client=True, now=NOW, lifetime=DAY
    )
    access = ClientConfig("", ca=CA, certificate=certificate, key=key)
    with (
        a_server(lambda request: None) as server,
        pytest.raises(Unreachable, match="use a kubeconfig with a token"),
    ):
        an_http(f"https://127.0.0.1:{server.port}", access, folders=("/nonexistent",)).send(GET)


def test_a_key_with_a_password_is_refused_without_a_prompt():
    certificate, key = pki.issue_certificate(
        CA, CA_KEY, common_name="ada", server=False, client=True, now=NOW, lifetime=DAY
    )
    locked = (
        serialization.load_pem_private_key(key.encode(), None)
        .private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.BestAvailableEncryption(b"secret"),
        )
        .decode()
    )
    access = ClientConfig("", ca=CA, certificate=certificate, key=locked)
    with a_server(lambda request: None) as server, pytest.raises(Unreachable, match="client-key-data"):
        an_http(f"https://127.0.0.1:{server.port}", access).send(GET)


def test_where_the_kubeconfig_has_no_authority_the_machines_are_used(tmp_path: Path):
    bundle, folder = tmp_path / "bundle.pem", tmp_path / "certificates"
    folder.mkdir()
    (folder / "readme").write_text("no certificate")
    bundle.write_text(CA)
    other, _ = pki.new_ca("other-ca", NOW, 10)
    (tmp_path / "other.pem").write_text(other)
    access = ClientConfig("", token="t")
    with a_server(lambda request: answer(), a_context(tmp_path, ips=("127.0.0.1",))) as server:
        url = f"https://127.0.0.1:{server.port}"
        assert an_http(url, access, SSL_CERT_FILE=str(bundle)).send(GET).status == 200
        env = {"SSL_CERT_FILE": str(tmp_path / "other.pem"), "SSL_CERT_DIR": f"/nonexistent:{folder}"}
        with pytest.raises(CertificateError):
            an_http(url, access, **env).send(GET)
        (folder / "plain-name.pem").write_text(CA)
        assert an_http(url, access, **env).send(GET).status == 200


# --- proxies


def test_a_proxy_tunnels_tls_and_sees_no_token(tmp_path: Path):
    with (
        a_server(lambda request: answer(), a_context(tmp_path, dns=("harvester.example",))) as server,
        a_tunnel(server.port) as proxy,
    ):
        url = "https://harvester.example"
        access = tls_access(proxy_url=f"http://me:pw@127.0.0.1:{proxy.port}")
        assert an_http(url, access).send(GET).status == 200
        env = {"HTTPS_PROXY": f"127.0.0.1:{proxy.port}"}
        assert an_http(url, tls_access(), **env).send(GET).status == 200

    first, second = proxy.requests
    assert first.startswith(b"CONNECT harvester.example:443 HTTP/1.1\r\nHost: harvester.example:443\r\n")
    assert b"Proxy-Authorization: Basic bWU6cHc=" in first
    assert b"Proxy-Authorization" not in second
    assert all(b"Bearer" not in request for request in proxy.requests)
    assert b"Proxy-Authorization" not in server.requests[0]


def test_a_proxy_that_refuses_is_told_with_its_words():
    with (
        a_server(lambda request: b"HTTP/1.1 403 not there\r\n\r\n") as proxy,
        pytest.raises(Unreachable, match="the proxy answered 403 not there"),
    ):
        an_http("https://h.example", tls_access(proxy_url=f"http://127.0.0.1:{proxy.port}")).send(GET)


def test_a_proxy_gets_whole_addresses_of_servers_without_tls():
    with a_server(lambda request: answer()) as proxy:
        access = ClientConfig("", proxy_url=f"http://127.0.0.1:{proxy.port}")
        an_http("http://h.example:8080", access).send(GET)

    assert proxy.requests[0].startswith(
        b"GET http://h.example:8080/api/v1/namespaces/default/secrets/a HTTP/1.1"
    )


def a_tunnel(port: int) -> Any:
    """A proxy whose every tunnel leads to `port`."""
    from contextlib import contextmanager, suppress
    from threading import Thread

    from tests.unit.plugin.http_servers import Received, read_request

    @contextmanager
    def run() -> Any:
        listener = socket.create_server(("127.0.0.1", 0))
        seen = Received(listener.getsockname()[1])

        def accept() -> None:
            with suppress(OSError):
                while True:
                    connection, _ = listener.accept()
                    seen.requests.append(read_request(connection))
                    beyond = socket.create_connection(("127.0.0.1", port))
                    connection.sendall(b"HTTP/1.1 200 Connection established\r\n\r\n")
                    Thread(target=pump, args=(connection, beyond), daemon=True).start()
                    Thread(target=pump, args=(beyond, connection), daemon=True).start()

        def pump(source: socket.socket, sink: socket.socket) -> None:
            with suppress(OSError):
                while block := source.recv(65536):
                    sink.sendall(block)
                sink.shutdown(socket.SHUT_WR)

        Thread(target=accept, daemon=True).start()
        try:
            yield seen
        finally:
            listener.close()

    return run()
