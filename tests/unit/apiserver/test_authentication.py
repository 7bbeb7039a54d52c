"""Authentication by certificate and token (reference/05 §7.5)."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from windrow.apiserver.server import ApiServer
from windrow.core import pki
from windrow.core.formats.fastjson import loads
from windrow.kubernetes.handler import Peer
from windrow.kubernetes.requests import Request

WHOAMI = "/apis/authentication.k8s.io/v1/selfsubjectreviews"


async def whoami(server: ApiServer, certificate: str = "", token: str = "") -> Any:
    headers = (("Authorization", f"Bearer {token}"),) if token else ()
    reply = await server.send(Request("POST", WHOAMI, body=b"{}", headers=headers), Peer(certificate))
    answer = loads(reply.body)
    return answer["status"]["userInfo"] if reply.status == 201 else (reply.status, answer["message"])


@pytest.fixture
def certificate(clock: Any) -> str:
    ca, key = pki.new_ca("ca", clock.now(), 10)
    made, _ = pki.issue_certificate(
        ca, key, common_name="carol", organizations=["ops", "dev"], server=False, client=True,
        now=clock.now(), lifetime=timedelta(hours=1),
    )  # fmt: skip
    return made


async def test_a_certificate_names_user_and_groups(server: ApiServer, certificate: str) -> None:
    found = await whoami(server, certificate)

    assert found["username"] == "carol"
    assert sorted(found["groups"]) == ["dev", "ops", "system:authenticated"]


async def test_a_certificate_counts_while_it_is_valid(
    server: ApiServer, certificate: str, clock: Any
) -> None:
    clock.instant += timedelta(hours=2)

    assert await whoami(server, certificate) == (401, "Unauthorized")


async def test_a_static_token_counts_until_it_is_taken_away_or_expires(server: ApiServer, clock: Any) -> None:
    server.tokens["good"] = ("alice", ("team",), clock.now() + timedelta(minutes=5))

    first = await whoami(server, token="good")
    clock.instant += timedelta(minutes=5)
    late = await whoami(server, token="good")
    server.tokens["good"] = ("alice", (), None)
    again = await whoami(server, token="good")
    del server.tokens["good"]

    assert first == {"username": "alice", "groups": ["team", "system:authenticated"]}
    assert late == (401, "Unauthorized")
    assert again["username"] == "alice"
    assert await whoami(server, token="good") == (401, "Unauthorized")


async def test_a_request_without_a_credential_is_anonymous_or_401(server: ApiServer) -> None:
    assert await whoami(server) == (401, "Unauthorized")


async def test_a_bad_token_is_not_saved_by_a_good_certificate(server: ApiServer, certificate: str) -> None:
    assert await whoami(server, certificate, token="bad") == (401, "Unauthorized")


async def test_where_strangers_are_welcome_they_are_anonymous(a_server: Callable[..., ApiServer]) -> None:
    server = a_server(anonymous=True, authorize="rbac")

    reply = await server.send(Request("GET", "/version"), Peer())
    refused = await server.send(Request("GET", "/api/v1/nodes"), Peer())

    assert reply.status == 200
    assert refused.status == 403
    assert b'User \\"system:anonymous\\" cannot list resource' in refused.body
