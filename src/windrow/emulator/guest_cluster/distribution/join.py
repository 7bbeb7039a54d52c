"""Client side of joining a cluster through a server's supervisor: CA bundle, hash, TLS, credential, in that order.

Error texts are those of RKE2 and K3s; every request goes through the simulated network.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any
from urllib.parse import urlsplit

from windrow.core import pki
from windrow.core.formats.json import loads
from windrow.core.text import encode_base64
from windrow.emulator.guest_cluster.distribution.distribution import Distribution
from windrow.emulator.guest_cluster.distribution.tokens import Token, hash_authorities
from windrow.emulator.guest_os.operating_system import GuestOS
from windrow.kubernetes.errors import KubeError
from windrow.kubernetes.handler import Handler, Peer
from windrow.kubernetes.requests import Reply, Request

NODE_PASSWORD = "/etc/rancher/node/password"


class JoinFailed(Exception):
    """The server is unreachable or rejects the request; the process may try again."""


class JoinRejected(JoinFailed):
    """The server's CA does not match the token's hash, or the server URL is malformed; not retried."""


@dataclass(frozen=True, slots=True)
class JoinReply:
    """The supervisor's reply to a joining machine."""

    cluster: str
    critical: Mapping[str, str] = field(default_factory=dict)
    files: Mapping[str, str] = field(default_factory=dict, repr=False)


async def join_server(guest: GuestOS, distribution: Distribution, url: str, token: Token) -> JoinReply:
    """The bootstrap data for a further server. Raises JoinFailed."""
    prefix = "starting kubernetes: preparing server: "
    try:
        if token.bootstrap:
            raise JoinRejected("failed to normalize server token; a bootstrap token cannot join a server")
        handler = await _connect(guest, distribution, url, token)
        path, credential = distribution.supervisor_path, _basic("server", token)
        bootstrap = await _request(guest, handler, url, path("server-bootstrap"), credential)
        config = await _request(guest, handler, url, path("config"), credential)
    except JoinFailed as error:
        raise type(error)(prefix + str(error)) from error
    return JoinReply(bootstrap["cluster"], config["critical"], bootstrap["files"])


async def join_agent(
    guest: GuestOS, distribution: Distribution, url: str, token: Token, node: str
) -> JoinReply:
    """The configuration for an agent whose node password is accepted. Raises JoinFailed."""
    try:
        handler = await _connect(guest, distribution, url, token)
    except JoinFailed as error:
        raise type(error)(f"Failed to validate connection to cluster at {url}: {error}") from error
    prefix = "Waiting to retrieve agent configuration; server is not ready: "
    try:
        path = distribution.supervisor_path("config")
        config = await _request(guest, handler, url, path, _basic("node", token))
    except JoinFailed as error:
        raise JoinFailed(f"{prefix}failed to retrieve configuration from server: {error}") from error
    headers = (
        *_basic("node", token),
        (distribution.node_header("Name"), node),
        (distribution.node_header("Password"), node_password(guest)),
    )
    path = distribution.supervisor_path("serving-kubelet.crt")
    reply = await _send(guest, handler, url, path, headers)
    if reply.status == HTTPStatus.FORBIDDEN:
        raise JoinFailed(
            f"{prefix}Node password rejected, duplicate hostname or contents of '{NODE_PASSWORD}' may not match server "
            "node-passwd entry, try enabling a unique node name with the --with-node-id flag"
        )
    if reply.status != HTTPStatus.OK:
        raise JoinFailed(f"{prefix}{_describe_reply(url, path, reply)}")
    return JoinReply(config["cluster"], config["critical"])


def node_password(guest: GuestOS) -> str:
    """The node password of this disk, created at the first call."""
    found = guest.read(NODE_PASSWORD)
    if found is None:
        found = guest.host.rng.uid().replace("-", "").encode()
        guest.write(NODE_PASSWORD, found, 0o600)
    return found.decode()


async def _connect(guest: GuestOS, distribution: Distribution, url: str, token: Token) -> Handler:
    """The handler behind `url`, after the CA bundle, the token's hash and the certificate were verified."""
    parts = urlsplit(url)
    if parts.scheme != "https" or not parts.hostname:
        raise JoinRejected(f"only https:// URLs are supported, invalid scheme: {url}")
    try:
        port = parts.port or 443
    except ValueError as error:
        raise JoinRejected(f"Invalid server url, failed to parse: {url}") from error
    where = f"https://{parts.netloc}/cacerts"
    handler = _dial(guest, parts.hostname, port, where)
    try:
        reply = await _send(guest, handler, url, "/cacerts")
    except JoinFailed as error:
        raise JoinFailed(f"failed to get CA certs: {error}") from error
    if reply.status != HTTPStatus.OK:
        raise JoinFailed(f"failed to get CA certs: {_describe_reply(url, '/cacerts', reply)}")
    bundle = reply.body.decode("utf-8", "replace")
    identity = handler.identity()
    try:
        reason = (
            "server gave HTTP response to HTTPS client"
            if identity is None
            else pki.verify_server(identity.chain, bundle, parts.hostname, guest.now())
        )
        found = hash_authorities(bundle)
    except pki.NotCertificate as error:
        raise JoinFailed(f"CA cert validation failed: {error}") from error
    if reason is not None:
        raise JoinFailed(
            f'CA cert validation failed: Get "{where}": tls: failed to verify certificate: x509: {reason}'
        )
    if token.ca_hash and token.ca_hash != found:
        raise JoinRejected(
            f"token CA hash does not match the Cluster CA certificate hash: {token.ca_hash} != {found}"
        )
    if not token.ca_hash:
        guest.log(
            distribution.name,
            "level=warning: Cluster CA certificate is not trusted by the host CA bundle, but the token does not "
            "include a CA hash",
        )
    return handler


def _dial(guest: GuestOS, host: str, port: int, url: str) -> Handler:
    network = guest.host.network
    handler = network.find(host, port)
    if handler is not None and guest.address:
        return handler
    start = f'failed to get CA certs: Get "{url}": dial tcp'
    if not guest.address:
        raise JoinFailed(f"{start} {host}:{port}: connect: network is unreachable")
    if network.has_host(host):
        raise JoinFailed(f"{start} {host}:{port}: connect: connection refused")
    if not host.replace(".", "").isdigit() and ":" not in host:
        raise JoinFailed(f"{start}: lookup {host}: no such host")
    raise JoinFailed(f"{start} {host}:{port}: connect: no route to host (no machine has that address)")


async def _send(
    guest: GuestOS, handler: Handler, url: str, path: str, headers: tuple[tuple[str, str], ...] = ()
) -> Reply:
    """The reply. Raises JoinFailed where what is behind a load balancer does not answer."""
    try:
        return await handler.send(Request("GET", path, headers=headers), Peer(address=guest.address))
    except KubeError as error:
        parts = urlsplit(url)
        where = f"https://{parts.netloc}{path}"
        raise JoinFailed(f'Get "{where}": dial tcp {parts.netloc}: connect: connection refused') from error


async def _request(
    guest: GuestOS, handler: Handler, url: str, path: str, headers: tuple[tuple[str, str], ...]
) -> Any:
    reply = await _send(guest, handler, url, path, headers)
    if reply.status != HTTPStatus.OK:
        raise JoinFailed(_describe_reply(url, path, reply))
    return loads(reply.body)


def _describe_reply(url: str, path: str, reply: Reply) -> str:
    parts = urlsplit(url)
    text = f"https://{parts.netloc}{path}: {reply.status} {HTTPStatus(reply.status).phrase}"
    if reply.status == HTTPStatus.BAD_REQUEST:
        return _read_message(reply.body) or text
    if reply.status == HTTPStatus.UNAUTHORIZED:
        text += " (the server does not accept this token's password)"
    return text


def _read_message(body: bytes) -> str:
    """The message of a Status."""
    try:
        found = loads(body)
    except ValueError:
        return ""
    return str(found.get("message") or "") if isinstance(found, dict) else ""


def _basic(user: str, token: Token) -> tuple[tuple[str, str], ...]:
    """The Authorization header of a token. The user name is fixed, not the token's."""
    if token.bootstrap:
        return (("Authorization", f"Bearer {token.bootstrap}"),)
    pair = encode_base64(f"{user}:{token.password}")
    return (("Authorization", f"Basic {pair}"),)
