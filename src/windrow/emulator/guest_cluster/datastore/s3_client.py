"""The S3 client of a server: requests through the simulated network, signed as AWS does (Signature Version 4).

Error texts are those of minio-go, the library of the real servers.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from xml.sax.saxutils import unescape

from windrow.core import pki
from windrow.core.clock import parse_time
from windrow.core.formats.cidr import is_address
from windrow.emulator.guest_cluster.datastore.s3_settings import BadS3Settings, S3Settings
from windrow.emulator.guest_os.operating_system import GuestOS
from windrow.emulator.kit.aws_signature import UNSIGNED, sign
from windrow.emulator.kit.network import bracketed
from windrow.kubernetes.errors import KubeError
from windrow.kubernetes.handler import Handler, Peer
from windrow.kubernetes.requests import Reply, Request

_MOST_PAGES = 100
_LONGEST_PORT = 6  # digits
_TRIES = 10  # of a request that the service refuses with 5xx
_FIRST_WAIT_S, _LONGEST_WAIT_S = 0.2, 1.0
_MESSAGES = {  # what an answer without body means
    403: "Access Denied.",
    404: "The specified key does not exist.",
    503: "Please reduce your request rate.",
}


class S3Failed(Exception):
    """The operation failed; the message is the library's."""


class NoSuchKey(S3Failed):
    """There is no object of that name."""


@dataclass(frozen=True, slots=True)
class StoredObject:
    """What a bucket's list says of one object."""

    key: str
    size: int
    modified: datetime


class S3Client:
    """One bucket at one endpoint."""

    def __init__(self, guest: GuestOS, settings: S3Settings) -> None:
        self.guest = guest
        self.settings = settings
        scheme = "http" if settings.insecure else "https"
        self._host, self._port = _split_endpoint(settings.endpoint, 80 if settings.insecure else 443)
        self._url = f"{scheme}://{settings.endpoint}"

    async def check_bucket(self) -> None:
        """Raises S3Failed unless the bucket is there and may be used, BadS3Settings for what cannot be tried."""
        bucket = self.settings.bucket
        if not bucket:
            raise S3Failed("s3 bucket name was not set")
        try:
            reply = await self._send("HEAD", "")
        except S3Failed as error:
            raise S3Failed(f"failed to test for existence of bucket {bucket}: {error}") from error
        if reply.status == 404:
            raise S3Failed(f"bucket {bucket} does not exist")
        if reply.status != 200:
            raise S3Failed(f"failed to test for existence of bucket {bucket}: {_describe(reply)}")

    async def put(self, key: str, content: bytes, metadata: Mapping[str, str]) -> None:
        """Raises S3Failed."""
        headers = tuple((f"X-Amz-Meta-{name}", value) for name, value in metadata.items())
        _check(await self._send("PUT", key, body=content, headers=headers))

    async def get(self, key: str) -> bytes:
        """Raises S3Failed; NoSuchKey without such an object."""
        return _check(await self._send("GET", key)).body

    async def find_metadata(self, key: str) -> dict[str, str]:
        """The user's metadata of an object, by lower-case name. Raises S3Failed."""
        reply = _check(await self._send("HEAD", key))
        prefix = "x-amz-meta-"
        headers = {name.lower(): value for name, value in reply.headers.items()}
        return {name[len(prefix) :]: value for name, value in headers.items() if name.startswith(prefix)}

    async def delete(self, key: str) -> None:
        """Raises S3Failed. An object that is not there is no failure."""
        _check(await self._send("DELETE", key))

    async def list(self, prefix: str) -> list[StoredObject]:
        """The objects whose key begins so, by key. Raises S3Failed."""
        found: list[StoredObject] = []
        token = ""
        for _ in range(_MOST_PAGES):
            query = {"list-type": "2", "prefix": prefix} | ({"continuation-token": token} if token else {})
            text = _check(await self._send("GET", "", query=query)).body.decode("utf-8", "replace")
            found += map(_read_entry, re.findall(r"<Contents>(.*?)</Contents>", text, re.DOTALL))
            token = _element(text, "NextContinuationToken")
            if not token:
                break
        return found

    async def _send(
        self,
        method: str,
        key: str,
        *,
        query: Mapping[str, str] | None = None,
        body: bytes = b"",
        headers: tuple[tuple[str, str], ...] = (),
    ) -> Reply:
        wait = _FIRST_WAIT_S
        for _ in range(_TRIES - 1):
            reply = await self._send_once(method, key, query or {}, body, headers)
            if reply.status < 500:
                return reply
            await self.guest.sleep(wait)
            wait = min(wait * 2, _LONGEST_WAIT_S)
        return await self._send_once(method, key, query or {}, body, headers)

    async def _send_once(
        self,
        method: str,
        key: str,
        query: Mapping[str, str],
        body: bytes,
        headers: tuple[tuple[str, str], ...],
    ) -> Reply:
        path = f"/{self.settings.bucket}/{key}"
        handler = self._connect(f'{method.capitalize()} "{self._url}{path}"')
        pairs = tuple(sorted(query.items()))
        signed = self._sign(method, path, pairs, headers)
        request = Request(method, path, pairs, body or None, "application/octet-stream", headers=signed)
        try:
            return await handler.send(request, Peer(address=self.guest.address))
        except KubeError as error:
            raise S3Failed(f'{method.capitalize()} "{self._url}{path}": {error}') from error

    # -- connection

    def _connect(self, request: str) -> Handler:
        where = f"{bracketed(self._host)}:{self._port}"
        network = self.guest.host.network
        handler = network.find(self._host, self._port)
        if not self.guest.address:
            raise S3Failed(f"{request}: dial tcp {where}: connect: network is unreachable")
        if handler is None:
            if not is_address(self._host) and not network.has_host(self._host):
                raise S3Failed(f"{request}: dial tcp: lookup {self._host}: no such host")
            why = "connection refused" if network.has_host(self._host) else "no route to host"
            raise S3Failed(f"{request}: dial tcp {where}: connect: {why}")
        if not self.settings.insecure and not self.settings.skip_ssl_verify:
            self._verify(handler, request)
        return handler

    def _verify(self, handler: Handler, request: str) -> None:
        identity = handler.identity()
        if identity is None:
            raise S3Failed(f"{request}: http: server gave HTTP response to HTTPS client")
        bundle = read_bundle(self.guest, self.settings.endpoint_ca)
        try:
            why = (
                pki.verify_server(identity.chain, bundle, self._host, self.guest.now())
                if bundle
                else "certificate signed by unknown authority"  # no public authority signs simulated addresses
            )
        except pki.NotCertificate as error:
            why = str(error)
        if why is not None:
            raise S3Failed(f"{request}: tls: failed to verify certificate: x509: {why}")

    def _sign(
        self, method: str, path: str, query: tuple[tuple[str, str], ...], headers: tuple[tuple[str, str], ...]
    ) -> tuple[tuple[str, str], ...]:
        stamp = self.guest.now().strftime("%Y%m%dT%H%M%SZ")
        signed = {"host": self.settings.endpoint, "x-amz-content-sha256": UNSIGNED, "x-amz-date": stamp}
        signed |= {name.lower(): value for name, value in headers}
        if self.settings.session_token:
            signed["x-amz-security-token"] = self.settings.session_token
        signature = sign(method, path, query, signed, self.settings.region, self.settings.secret_key)
        scope = f"{stamp[:8]}/{self.settings.region}/s3/aws4_request"
        credential = f"AWS4-HMAC-SHA256 Credential={self.settings.access_key}/{scope}"
        authorization = f"{credential}, SignedHeaders={';'.join(sorted(signed))}, Signature={signature}"
        return (*((name, value) for name, value in signed.items()), ("Authorization", authorization))


def read_bundle(guest: GuestOS, text: str) -> str:
    """The certificates of `endpoint-ca`: each word a path on the disk, or a bundle in base64. Raises BadS3Settings."""
    bundles = []
    for word in text.split():
        if (content := guest.read(word) if word.startswith("/") else None) is None:
            try:
                content = base64.b64decode(word, validate=True)
            except binascii.Error as error:
                raise BadS3Settings(f"open {word[:60]}: no such file or directory") from error
        bundles.append(content.decode("utf-8", "replace").strip() + "\n")
    return "".join(bundles)


def _read_entry(text: str) -> StoredObject:
    """Raises S3Failed for what no service of S3 answers."""
    try:
        return StoredObject(
            _element(text, "Key"), int(_element(text, "Size")), parse_time(_element(text, "LastModified"))
        )
    except (ValueError, OverflowError) as error:
        raise S3Failed(f"XML syntax error: {error}") from error


def _split_endpoint(text: str, port: int) -> tuple[str, int]:
    host, colon, number = text.rpartition(":")
    is_port = number.isascii() and number.isdigit() and len(number) < _LONGEST_PORT
    if not colon or not is_port or (":" in host and not host.endswith("]")):
        return text.strip("[]"), port
    return host.strip("[]"), int(number)


def _check(reply: Reply) -> Reply:
    if reply.status == 404 and _element(_text(reply), "Code") != "NoSuchBucket":
        raise NoSuchKey(_describe(reply))
    if reply.status >= 300:
        raise S3Failed(_describe(reply))
    return reply


def _describe(reply: Reply) -> str:
    return _element(_text(reply), "Message") or _MESSAGES.get(reply.status, f"{reply.status}")


def _text(reply: Reply) -> str:
    return reply.body[:4096].decode("utf-8", "replace")


def _element(text: str, name: str) -> str:
    found = re.search(rf"<{name}>(.*?)</{name}>", text, re.DOTALL)
    return unescape(found[1]) if found else ""
