"""Client of the supervisor of a server: etcd snapshots, encryption keys and the server token, without SSH.

Each server answers on port 9345 (RKE2) or 6443 (K3s), to the server token that the manager holds since the cluster
began (reference/10-day2 §2.2, §2.8). A snapshot is made by the member that is asked, so each server is asked by an
address of its own, never through a load balancer.

What went wrong is one of four errors, each with what to do next. None of them says that a request was not carried out, but
`ServerUnreachable` with `was_sent` false: a snapshot that was asked for is looked for before it is asked for again. What
a server says is told without the secrets of the request (`core.formats.masking`).
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from windrow.bootstrap.layout import Layout
from windrow.bootstrap.spec import ClusterSecrets
from windrow.bootstrap.tokens import SERVER_USER
from windrow.client.transport import Transport
from windrow.clusters.api.operations.snapshot import SnapshotFile, read_snapshot_file
from windrow.core.errors import UserError
from windrow.core.formats.bounds import abbreviate
from windrow.core.formats.fastjson import loads
from windrow.core.formats.json import NotJson, dumps
from windrow.core.formats.masking import SecretMask
from windrow.core.text import encode_base64
from windrow.kubernetes.errors import KubeError, OutcomeUnknown, Unreachable
from windrow.kubernetes.kubeconfig import ClientConfig
from windrow.kubernetes.requests import JSON, Reply, Request

Connect = Callable[[ClientConfig], Transport]

# The identity of these requests in error messages.
USER = "windrow-supervisor"
# A snapshot is copied to S3 before the answer comes; all else is answered at once.
SAVE_TIMEOUT_S = 85.0
TIMEOUT_S = 20.0
MAX_ANSWER_BYTES = 4 * 2**20
MAX_LISTED = 2000
MAX_QUOTED = 300


class SupervisorError(UserError):
    """A request to a supervisor failed."""


class EndpointNotServed(SupervisorError):
    """The release of this server does not have the endpoint."""


class TokenRejected(SupervisorError):
    """The server has another server token than the manager."""


class ServerUnreachable(SupervisorError):
    """No answer. With `was_sent` the request may have been carried out."""

    def __init__(self, message: str, hint: str, *, was_sent: bool) -> None:
        super().__init__(message, hint)
        self.was_sent = was_sent


class RequestRefused(SupervisorError):
    """The server answered that it cannot, with its own words."""


@dataclass(frozen=True, slots=True)
class SnapshotResult:
    """What a request has created and deleted, by the names of the snapshots."""

    created: tuple[str, ...] = ()
    deleted: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class EncryptionStatus:
    """How far a rotation of encryption keys is. `enabled` is None where Secrets were never encrypted."""

    stage: str = ""
    enabled: bool | None = None
    hashes_match: bool = False
    hash_error: str = ""
    active_key: str = ""


class Supervisor:
    """The supervisor of one server, as the owner of the server token. No request is repeated here."""

    def __init__(
        self, secrets: ClusterSecrets, layout: Layout, address: str, connect: Connect, proxy: str = ""
    ) -> None:
        """`connect` is as for an API server: TLS is verified with the CA of the cluster."""
        self.url = layout.join_url(address)
        self._layout = layout
        access = ClientConfig(server=self.url, ca=secrets.server_ca.certificate, proxy_url=proxy, user=USER)
        self._transport = connect(access)
        # While it is rotated a server has the token with which it was started: the present one, the next, or that of before.
        passwords = (
            *secrets.server_passwords[:1],
            secrets.next_server_password,
            *secrets.former_server_passwords[:1],
        )
        self._passwords = [one for one in passwords if one]
        self._credentials = [encode_base64(f"{SERVER_USER}:{one}") for one in self._passwords]

    async def aclose(self) -> None:
        await self._transport.aclose()

    async def list_snapshots(self, s3: Mapping[str, Any] | None = None) -> tuple[SnapshotFile, ...]:
        """The snapshots that this member has on its disk, and with `s3` (as `render_s3` has it) those that are there."""
        body: dict[str, Any] = {"operation": "list"} | ({"s3": dict(s3)} if s3 else {})
        raw = await self._call("list of snapshots", "POST", "/db/snapshot", body)
        items = raw.get("items")
        if not isinstance(items, list | None):
            raise self._not_understood("list of snapshots")
        files = filter(None, map(_read_file, (items or ())[:MAX_LISTED]))
        mask = self._mask_of(body).mask
        return tuple(replace(one, error=mask(one.error)) if one.error else one for one in files)

    async def save_snapshot(self, name: str, s3: Mapping[str, Any] | None = None) -> SnapshotResult:
        """Make a snapshot whose name begins with `name`, with `s3` (as `render_s3` has it) in S3 too. Older releases take
        nothing of S3 from their own configuration here."""
        body = {"operation": "save", "name": [name]} | ({"s3": dict(s3)} if s3 else {})
        return _read_result(await self._call("snapshot", "POST", "/db/snapshot", body, SAVE_TIMEOUT_S))

    async def delete_snapshot(self, name: str, s3: Mapping[str, Any] | None = None) -> SnapshotResult:
        """Delete the snapshot of this whole name on this member's disk, or with `s3` there. That there is none is no error."""
        body = {"operation": "delete", "name": [name]} | ({"s3": dict(s3)} if s3 else {})
        return _read_result(await self._call("deletion of a snapshot", "POST", "/db/snapshot", body))

    async def read_encryption_status(self) -> EncryptionStatus:
        raw = await self._call("encryption status", "GET", self._path("encrypt/status"))
        problem = self._mask_of({}).mask(str(raw.get("hasherror") or ""))
        enabled = raw.get("enable")
        return EncryptionStatus(
            stage=str(raw.get("stage") or ""),
            enabled=enabled if isinstance(enabled, bool) else None,
            hashes_match=raw.get("hashmatch") is True,
            hash_error=abbreviate(problem) if problem else "",
            active_key=str(raw.get("activekey") or "")[:MAX_QUOTED],
        )

    async def set_encryption_stage(self, stage: str) -> None:
        """Begin a stage of a rotation of encryption keys: `rotate_keys` does all of them."""
        await self._call(
            "rotation of encryption keys",
            "PUT",
            self._path("encrypt/config"),
            {"stage": stage, "force": False, "skip": False},
            SAVE_TIMEOUT_S,
        )

    async def check_token(self) -> None:
        """Raises TokenRejected unless the server takes the present token: none of before, and not the next one."""
        path = self._path("encrypt/status")
        await self._call_as(self._credentials[0], "check of the server token", "GET", path, None, TIMEOUT_S)

    async def rotate_token(self, new_password: str) -> None:
        """Give the cluster another server token. The request is made with the present one."""
        await self._call("new server token", "PUT", self._path("token"), {"newToken": new_password})

    # -- the exchange --------------------------------------------------------------------------------------------------

    def _path(self, name: str) -> str:
        return f"/v1-{self._layout.name}/{name}"

    async def _call(
        self,
        what: str,
        method: str,
        path: str,
        body: Mapping[str, Any] | None = None,
        timeout_s: float = TIMEOUT_S,
    ) -> dict[str, Any]:
        """The object in the answer, {} for an empty one. Raises SupervisorError."""
        *others, last = self._credentials
        for credential in others:
            with contextlib.suppress(TokenRejected):  # nothing was carried out
                return await self._call_as(credential, what, method, path, body, timeout_s)
        return await self._call_as(last, what, method, path, body, timeout_s)

    async def _call_as(
        self,
        credential: str,
        what: str,
        method: str,
        path: str,
        body: Mapping[str, Any] | None,
        timeout_s: float,
    ) -> dict[str, Any]:
        mask = self._mask_of(body or {})
        request = Request(
            method,
            path,
            body=None if body is None else dumps(body),
            content_type="" if body is None else JSON,
            headers=(("Authorization", f"Basic {credential}"),),
        )
        try:
            async with asyncio.timeout(timeout_s):
                reply = await self._transport.send(request)
        except Unreachable as error:
            raise self._unreachable(what, mask.mask(str(error)), was_sent=False) from error
        except OutcomeUnknown as error:
            raise self._unreachable(what, mask.mask(str(error)), was_sent=True) from error
        except TimeoutError as error:
            raise self._unreachable(what, f"no answer within {timeout_s:.0f} s", was_sent=True) from error
        except KubeError as error:
            raise self._refused(what, mask.mask(str(error))) from error
        self._require_success(what, path, reply, mask)
        return self._decode(what, reply)

    def _require_success(self, what: str, path: str, reply: Reply, mask: SecretMask) -> None:
        if reply.status < 300:
            return
        said = _quote(reply, mask)
        if reply.status in (401, 403):
            raise TokenRejected(
                f"{self.url} rejects the server token of the cluster ({what}): {said}",
                "put the server token that the servers have into the Secret of the cluster, as server-password",
            )
        if reply.status in (404, 405):
            raise EndpointNotServed(
                f"{self.url} does not serve {path} ({what}): its release of {self._layout.title} is too old for it, or has no "
                "embedded etcd",
                f"update the cluster to a newer release of {self._layout.title}",
            )
        raise self._refused(what, f"{reply.status}: {said}")

    def _mask_of(self, body: Mapping[str, Any]) -> SecretMask:
        """The mask of the secrets of a request."""
        s3 = body.get("s3") or {}
        own = [
            str(of.get(key) or "") for of, key in ((body, "newToken"), (s3, "accessKey"), (s3, "secretKey"))
        ]
        return SecretMask([*self._passwords, *own])

    def _decode(self, what: str, reply: Reply) -> dict[str, Any]:
        if len(reply.body) > MAX_ANSWER_BYTES:
            raise self._refused(what, f"an answer of {len(reply.body)} bytes")
        if not reply.body.strip():
            return {}
        try:
            raw = loads(reply.body)
        except NotJson:
            raw = None
        if not isinstance(raw, dict):
            raise self._not_understood(what)
        return raw

    def _unreachable(self, what: str, why: str, *, was_sent: bool) -> ServerUnreachable:
        return ServerUnreachable(
            f"{self.url} was not reached ({what}): {why[:MAX_QUOTED]}",
            "let the manager reach this port of each server, directly or through the proxy of its kubeconfig",
            was_sent=was_sent,
        )

    def _refused(self, what: str, why: str) -> RequestRefused:
        return RequestRefused(
            f"{self.url} refuses ({what}): {why[:MAX_QUOTED]}", "see the log of the service there"
        )

    def _not_understood(self, what: str) -> RequestRefused:
        return self._refused(what, "an answer that is no JSON object; is another program listening there?")


# What the command line of the distributions sends where nothing else is said; no time at all would be none.
_S3_TIMEOUT, _S3_ENDPOINT = "5m0s", "s3.amazonaws.com"
_S3_KEYS = ("bucket", "folder", "region", "accessKey", "secretKey", "retention", "skipSSLVerify")


def render_s3(s3: Mapping[str, Any]) -> dict[str, Any]:
    """`etcd.s3` of a Cluster, its keys read, as requests to a supervisor have it; {} without a bucket."""
    if not s3.get("bucket"):
        return {}
    body = {key: s3[key] for key in _S3_KEYS if s3.get(key) not in (None, "")}
    body |= {"endpoint": s3.get("endpoint") or _S3_ENDPOINT, "timeout": _S3_TIMEOUT}
    if authority := str(s3.get("endpointCA") or ""):
        is_pem = authority.lstrip().startswith("-----BEGIN")
        body["endpointCA"] = encode_base64(authority) if is_pem else authority
    return body


def _read_file(raw: Any) -> SnapshotFile | None:
    """None for what is no ETCDSnapshotFile: the answer is that of whatever listens there."""
    try:
        return read_snapshot_file(raw)
    except (ValueError, TypeError, LookupError, AttributeError):
        return None


def _read_result(raw: Mapping[str, Any]) -> SnapshotResult:
    return SnapshotResult(_names(raw.get("created")), _names(raw.get("deleted")))


def _names(value: Any) -> tuple[str, ...]:
    return tuple(str(one)[:MAX_QUOTED] for one in value[:MAX_LISTED]) if isinstance(value, list) else ()


def _quote(reply: Reply, mask: SecretMask) -> str:
    """What the server said, without the frame of a Status, and without secrets."""
    text = reply.body[: 4 * MAX_QUOTED].decode("utf-8", "replace").strip()
    try:
        raw = loads(reply.body) if len(reply.body) <= MAX_ANSWER_BYTES else None
    except NotJson:
        raw = None
    if isinstance(raw, dict) and isinstance(raw.get("message"), str):
        text = raw["message"]
    return mask.mask(" ".join(text.split()))[:MAX_QUOTED] or "no reason given"
