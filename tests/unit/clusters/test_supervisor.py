"""The client of a server's supervisor: what it sends, and which error tells what went wrong."""

from __future__ import annotations

import asyncio
import base64
from dataclasses import replace
from typing import Any
from urllib.parse import quote

import pytest
from tests.support.clock import run_driven
from tests.unit.clusters.builders import SECRETS
from tests.unit.clusters.supervisors import Supervisors, a_file

from windrow.bootstrap import DISTRIBUTIONS
from windrow.clusters.sources.servers import supervisor as source
from windrow.clusters.sources.servers.supervisor import (
    EncryptionStatus,
    EndpointNotServed,
    RequestRefused,
    ServerUnreachable,
    SnapshotResult,
    Supervisor,
    SupervisorError,
    TokenRejected,
    render_s3,
)
from windrow.core.formats.json import dumps
from windrow.core.formats.masking import SecretMask
from windrow.kubernetes.errors import OutcomeUnknown, ServerError, Unreachable
from windrow.kubernetes.requests import Reply

RKE2, K3S = DISTRIBUTIONS["rke2"].LAYOUT, DISTRIBUTIONS["k3s"].LAYOUT


def client(of: Supervisors, layout: Any = RKE2, address: str = "10.0.0.1") -> Supervisor:
    return Supervisor(SECRETS, layout, address, of.connect, "http://proxy:3128")


def test_each_server_is_asked_by_its_own_address_with_the_server_token_and_the_ca_of_the_cluster():
    of = Supervisors()

    assert asyncio.run(client(of).save_snapshot("on-demand")) == SnapshotResult(("on-demand-s1-1767268800",))
    assert of.asked == [
        ("https://10.0.0.1:9345", "POST /db/snapshot", {"operation": "save", "name": ["on-demand"]})
    ]
    assert of.credentials == ["server:server"]
    (config,) = of.configs
    assert (config.ca, config.proxy_url, config.insecure) == ("certificate", "http://proxy:3128", False)


def test_a_server_is_asked_with_the_token_that_it_has_while_that_is_rotated():
    of = Supervisors()
    secrets = replace(SECRETS, next_server_password="next", former_server_passwords=("then", "long ago"))
    both = Supervisor(secrets, RKE2, "10.0.0.1", of.connect)
    of.answers = [lambda _: Reply(401, b"not authorized"), lambda _: Reply(403, b"forbidden")]

    asyncio.run(both.rotate_token("next"))
    assert of.credentials == ["server:server", "server:next", "server:then"]

    of.answers = [lambda _: Reply(401, b"not authorized")] * 3
    with pytest.raises(TokenRejected):
        asyncio.run(both.rotate_token("next"))
    of.answers, of.credentials[:] = [lambda _: Reply(500, b"no")], []
    with pytest.raises(RequestRefused):
        asyncio.run(both.rotate_token("next"))
    assert of.credentials == ["server:server"]  # what was not rejected may have been carried out


@pytest.mark.parametrize(
    ("layout", "address", "url", "path"),
    [
        (K3S, "10.0.0.2", "https://10.0.0.2:6443", "/v1-k3s/encrypt/status"),
        (RKE2, "fd00::2", "https://[fd00::2]:9345", "/v1-rke2/encrypt/status"),
    ],
)
def test_port_and_paths_are_those_of_the_distribution(layout, address, url, path):
    of = Supervisors()

    asyncio.run(client(of, layout, address).read_encryption_status())

    assert of.asked == [(url, f"GET {path}", None)]


def test_the_list_has_what_can_be_read_and_nothing_else():
    of = Supervisors()
    of.files = [
        a_file("one"),
        {"spec": {}},
        {"metadata": {}},
        "text",
        a_file("two", status={"creationTime": "never"}),
        a_file("three", annotations={"etcd.rke2.cattle.io/snapshot-token-hash": "b3eacd33433b"}),
    ]

    found = asyncio.run(client(of).list_snapshots())

    assert [(one.snapshot, one.node, one.size, one.token_hash) for one in found] == [
        ("one", "s1", 1056, ""),
        ("three", "s1", 1056, "b3eacd33433b"),
    ]


@pytest.mark.parametrize(
    ("answer", "error", "words"),
    [
        (Reply(401, b"Unauthorized"), TokenRejected, "rejects the server token"),
        (Reply(403, dumps({"kind": "Status", "message": "forbidden"})), TokenRejected, "forbidden"),
        (Reply(404, b"404 page not found\n"), EndpointNotServed, "too old for it"),
        (Reply(405, b""), EndpointNotServed, "/db/snapshot"),
        (
            Reply(400, dumps({"kind": "Status", "message": "failed to initialize S3 client: no\nbucket"})),
            RequestRefused,
            "400: failed to initialize S3 client: no bucket",
        ),
        (Reply(500, b""), RequestRefused, "500: no reason given"),
        (Reply(302, b""), RequestRefused, "302"),
        (Reply(200, b"<html>"), RequestRefused, "no JSON object"),
        (Reply(200, b"[]"), RequestRefused, "no JSON object"),
        (Reply(200, b"x" * (source.MAX_ANSWER_BYTES + 1)), RequestRefused, "an answer of"),
    ],
)
def test_each_answer_that_is_none_has_its_error_with_the_servers_words(answer, error, words):
    of = Supervisors()
    of.answers = [lambda request: answer]

    with pytest.raises(SupervisorError, match=r"https://10\.0\.0\.1:9345") as caught:
        asyncio.run(client(of).list_snapshots())

    assert type(caught.value) is error
    assert words in caught.value.message
    assert caught.value.hint


NEW_TOKEN, KEY = "c0ffee/beef<+>" * 2, "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY"
QUOTES: dict[str, Any] = {
    "as it was sent": lambda sent: sent,
    "as JSON in JSON": lambda sent: dumps({"message": sent.decode()}),
    "as base64": base64.b64encode,
    "as base64 behind a byte": lambda sent: base64.b64encode(b"x" + sent),
    "as base64 behind two": lambda sent: base64.urlsafe_b64encode(b"xx" + sent),
    "as a URL has it": lambda sent: quote(sent.decode()).encode(),
    "cut": lambda sent: sent[:-20],
    "as Go escapes it": lambda sent: sent.replace(b"<", b"\\u003c").replace(b">", b"\\u003e"),
}


@pytest.mark.parametrize("status", [400, 401, 500])
@pytest.mark.parametrize("quoted", QUOTES)
def test_a_refusal_that_quotes_the_request_is_told_without_its_secrets(quoted: str, status: int):
    of = Supervisors()
    said = QUOTES[quoted]

    def refuse(request: Any) -> Reply:
        return Reply(status, b"cannot: " + said(request.body))

    supervisor = client(of)
    for secret, asked in (
        (NEW_TOKEN, lambda: supervisor.rotate_token(NEW_TOKEN)),
        (KEY, lambda: supervisor.save_snapshot("x", {"secretKey": KEY, "accessKey": "AKIAIOSFODNN7EXAMPLE"})),
    ):
        of.answers = [refuse]
        with pytest.raises(SupervisorError) as caught:
            asyncio.run(asked())
        found = caught.value.message
        assert "***" in found
        for form in (secret, dumps(secret).decode()[1:-1], quote(secret), "AKIAIOSFODNN7EXAMPLE"):
            assert not any(form[at : at + 8] in found for at in range(len(form) - 7)), found
        for lead in range(3):
            form = base64.b64encode(b"\0" * lead + secret.encode()).decode()[4:-4]
            assert not any(form[at : at + 8] in found for at in range(len(form) - 7)), found


def test_the_credential_of_a_request_is_told_neither_by_an_error_nor_by_an_answer():
    secrets = replace(SECRETS, server_password="the-present-one")
    of = Supervisors()
    supervisor = Supervisor(secrets, RKE2, "10.0.0.1", of.connect)
    header = base64.b64encode(b"server:the-present-one").decode()
    for error in (
        ServerError(f"bad: {header}"),
        Unreachable(f"x the-present-one {header}"),
        OutcomeUnknown(header),
    ):
        of.answers = [error]
        with pytest.raises(SupervisorError) as caught:
            asyncio.run(supervisor.list_snapshots())
        assert "present" not in caught.value.message
        assert header[10:] not in caught.value.message
    of.answers = [lambda _: Reply(200, dumps({"hasherror": "no the-present-one"}))]
    assert "present" not in asyncio.run(supervisor.read_encryption_status()).hash_error
    of.answers = [
        lambda _: Reply(200, dumps({"items": [a_file("x", status={"error": {"message": f"no {KEY}"}})]}))
    ]
    (file,) = asyncio.run(supervisor.list_snapshots({"secretKey": KEY}))
    assert file.error == "no ***"


def test_what_is_masked_is_bounded():
    mask = SecretMask(["a-secret-of-words", ""])
    assert mask.mask("") == ""
    assert mask.mask("no a-secret-of-words, at all") == "no ***, at all"
    assert mask.mask("x" * 99_999) == "x" * 4096
    assert SecretMask([]).mask("words") == "words"
    assert SecretMask(["abc"]).mask("xabcx") == "x***x"


@pytest.mark.parametrize("items", [{"a": 1}, "text", 3])
def test_a_list_that_is_none_is_refused(items):
    of = Supervisors()
    of.answers = [lambda request: Reply(200, dumps({"items": items}))]

    with pytest.raises(RequestRefused):
        asyncio.run(client(of).list_snapshots())


@pytest.mark.parametrize(
    ("error", "was_sent"),
    [(Unreachable("connection refused"), False), (OutcomeUnknown("connection reset"), True)],
)
def test_whether_a_request_without_an_answer_may_have_been_carried_out_is_known(error, was_sent):
    of = Supervisors()
    of.answers = [error]

    with pytest.raises(ServerUnreachable, match="was not reached") as caught:
        asyncio.run(client(of).save_snapshot("x"))

    assert caught.value.was_sent is was_sent


def test_an_answer_that_cannot_be_read_is_a_refusal():
    of = Supervisors()
    of.answers = [ServerError("sends an answer of more than 64 MiB")]

    with pytest.raises(RequestRefused, match="64 MiB"):
        asyncio.run(client(of).list_snapshots())


def test_a_server_that_does_not_answer_is_given_up_in_time():
    class Silent:
        def __init__(self, config: Any) -> None:
            pass

        async def send(self, request: Any) -> Reply:
            await asyncio.Event().wait()
            raise AssertionError

        async def aclose(self) -> None:
            pass

    async def ask() -> None:
        loop = asyncio.get_running_loop()
        silent: Any = Silent
        supervisor = Supervisor(SECRETS, RKE2, "10.0.0.1", silent)
        for call, limit in (
            (supervisor.list_snapshots(), source.TIMEOUT_S),
            (supervisor.save_snapshot("x"), source.SAVE_TIMEOUT_S),
        ):
            begun = loop.time()
            with pytest.raises(ServerUnreachable, match=f"within {limit:.0f} s") as caught:
                await call
            assert caught.value.was_sent
            assert loop.time() - begun == pytest.approx(limit)

    run_driven(ask())


def test_the_status_of_encryption_is_read_and_a_stage_and_a_token_are_put():
    of = Supervisors()
    said = {"stage": "reencrypt_finished", "activekey": "AES-CBC k", "enable": True, "hashmatch": True}
    of.answers = [lambda request: Reply(200, dumps(said))]

    async def ask() -> EncryptionStatus:
        supervisor = client(of)
        status = await supervisor.read_encryption_status()
        await supervisor.set_encryption_stage("rotate_keys")
        await supervisor.rotate_token("new")
        return status

    assert asyncio.run(ask()) == EncryptionStatus("reencrypt_finished", True, True, "", "AES-CBC k")
    assert [(what, body) for _, what, body in of.asked[1:]] == [
        ("PUT /v1-rke2/encrypt/config", {"stage": "rotate_keys", "force": False, "skip": False}),
        ("PUT /v1-rke2/token", {"newToken": "new"}),
    ]


def test_where_secrets_were_never_encrypted_the_status_says_so():
    assert asyncio.run(client(Supervisors()).read_encryption_status()) == EncryptionStatus()


def test_s3_is_sent_with_a_time_and_an_endpoint_since_none_would_be_no_time_at_all():
    assert render_s3(
        {"bucket": "b", "accessKey": "a", "secretKey": "s", "folder": "", "endpointCA": "Q0E="}
    ) == {
        "bucket": "b",
        "accessKey": "a",
        "secretKey": "s",
        "endpoint": "s3.amazonaws.com",
        "timeout": "5m0s",
        "endpointCA": "Q0E=",
    }
    assert render_s3({"endpoint": "s3.site"}) == {}
    pem = render_s3({"bucket": "b", "endpoint": "s3.site", "endpointCA": "-----BEGIN CERTIFICATE-----"})
    assert (pem["endpoint"], pem["endpointCA"]) == ("s3.site", "LS0tLS1CRUdJTiBDRVJUSUZJQ0FURS0tLS0t")


def test_a_snapshot_and_its_deletion_in_s3_are_asked_for_with_the_bucket():
    of = Supervisors()

    async def ask() -> None:
        await client(of).save_snapshot("x", {"bucket": "b"})
        await client(of).delete_snapshot("x-1", {"bucket": "b"})
        await client(of).delete_snapshot("x-1")

    asyncio.run(ask())

    assert [body.get("s3") for _, _, body in of.asked] == [{"bucket": "b"}, {"bucket": "b"}, None]


def test_a_secret_is_masked_as_it_is_and_eight_characters_of_it_as_well():
    assert SecretMask(['abc"defg']).mask('said abc"defg again') == "said *** again"
    assert SecretMask(["0123456789abcdef"]).mask("cut: 3456789a|") == "cut: ***|"
    assert SecretMask(["0123456789abcdef"]).mask("cut: 3456789|") == "cut: 3456789|"
