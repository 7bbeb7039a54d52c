"""ObjectStore: a small S3 service of the site, at an address of the simulated network.

Enough of S3 for servers that keep snapshots in a bucket: objects are put, read, listed and deleted by requests signed with
its key (Signature Version 4, path style). It refuses as AWS and MinIO do: another key, another secret, another region, a
bucket that is not there; and with `refusal` set, everything, with that status. It is in memory, and bounded.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import AsyncIterator, Iterable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from xml.sax.saxutils import escape

from windrow.core import pki
from windrow.core.clock import Clock
from windrow.core.formats.cidr import is_address
from windrow.emulator.kit.aws_signature import sign
from windrow.emulator.kit.network import Network
from windrow.kubernetes.errors import NotFound
from windrow.kubernetes.handler import Peer, TlsIdentity
from windrow.kubernetes.requests import Reply, Request, WatchEvent

PORT = 9000
MAX_OBJECTS = 10_000
MAX_BYTES = 512 << 20  # of all objects together
_MAX_KEY = 1024
_PAGE = 1000
_SKEW = timedelta(minutes=15)
_DAYS = 3650
_XML = "application/xml"
_AUTHORIZATION = re.compile(
    r"AWS4-HMAC-SHA256 Credential=(?P<key>[^/,]*)/(?P<date>\d{8})/(?P<region>[^/,]*)/s3/aws4_request,\s*"
    r"SignedHeaders=(?P<headers>[a-z0-9;-]{1,500}),\s*Signature=(?P<signature>[0-9a-f]{64})"
)
_METADATA = "x-amz-meta-"


class Refused(Exception):
    """The service refuses a request, with a status, a code and a message of S3."""

    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(message)
        self.status, self.code = status, code


@dataclass(frozen=True, slots=True)
class BucketObject:
    """One object. `metadata` is what the client said of it, by header name."""

    content: bytes = field(repr=False)
    modified: datetime
    metadata: dict[str, str] = field(default_factory=dict)

    @property
    def etag(self) -> str:
        return f'"{hashlib.md5(self.content, usedforsecurity=False).hexdigest()}"'


class ObjectStore:
    """The service. `buckets` are its objects by bucket and key; they may be changed at any time, as may the keys."""

    def __init__(
        self,
        clock: Clock,
        buckets: Iterable[str] = (),
        *,
        access_key: str = "snapshots",
        secret_key: str = "simulated",
        region: str = "us-east-1",
    ) -> None:
        self.clock = clock
        self.buckets: dict[str, dict[str, BucketObject]] = {name: {} for name in buckets}
        self.access_key = access_key
        self.secret_key = secret_key
        self.region = region
        self.refusal = 0  # the status with which every request is refused, 0 for none
        self.ca, self._ca_key = pki.new_ca("object-store-ca", clock.now(), _DAYS)
        self._identity: TlsIdentity | None = None

    def listen(self, network: Network, host: str, port: int = PORT, *, tls: bool = True) -> None:
        """Serve at an address or a name, by default with a certificate of `ca`. Raises ValueError where another service is."""
        if tls:
            chain, key = pki.issue_certificate(
                self.ca,
                self._ca_key,
                common_name=host,
                dns=() if is_address(host) else (host,),
                ips=(host,) if is_address(host) else (),
                server=True,
                now=self.clock.now(),
                lifetime=timedelta(days=_DAYS),
            )
            self._identity = TlsIdentity(chain + self.ca, key)
        network.claim(host)
        network.listen(host, port, self)

    # -- Handler

    def identity(self) -> TlsIdentity | None:
        return self._identity

    async def send(self, request: Request, peer: Peer) -> Reply:
        try:
            return self._reply(request)
        except Refused as refusal:
            if request.method == "HEAD":
                return Reply(refusal.status, b"", _XML)
            text = f"<Error><Code>{refusal.code}</Code><Message>{escape(str(refusal))}</Message></Error>"
            return Reply(refusal.status, _document(text), _XML)

    def stream(self, request: Request, peer: Peer) -> AbstractAsyncContextManager[AsyncIterator[WatchEvent]]:
        raise NotFound("an object store has nothing to watch", status=404)

    # -- requests

    def _reply(self, request: Request) -> Reply:
        if self.refusal:
            raise Refused(
                self.refusal, "InternalError", "We encountered an internal error, please try again."
            )
        self._authenticate(request)
        bucket, _, key = request.path.lstrip("/").partition("/")
        objects = self.buckets.get(bucket)
        if objects is None:
            raise Refused(404, "NoSuchBucket", "The specified bucket does not exist")
        if not key:
            return self._reply_for_bucket(request, bucket, objects)
        match request.method:
            case "PUT":
                return self._put(request, key, objects)
            case "GET" | "HEAD":
                found = objects.get(key)
                if found is None:
                    raise Refused(404, "NoSuchKey", "The specified key does not exist.")
                body = found.content if request.method == "GET" else b""
                headers = {"ETag": found.etag, "X-Object-Size": str(len(found.content)), **found.metadata}
                return Reply(200, body, "application/octet-stream", headers)
            case "DELETE":
                objects.pop(key, None)
                return Reply(204)
        raise _not_allowed()

    def _authenticate(self, request: Request) -> None:
        headers = {name.lower(): value for name, value in request.headers}
        found = _AUTHORIZATION.fullmatch(headers.get("authorization", ""))
        if found is None:
            raise Refused(403, "AccessDenied", "Access Denied.")
        if found["key"] != self.access_key:
            why = "The Access Key Id you provided does not exist in our records."
            raise Refused(403, "InvalidAccessKeyId", why)
        if found["region"] != self.region:
            why = f"The authorization header is malformed; the region '{found['region']}' is wrong; expecting '{self.region}'"
            raise Refused(400, "AuthorizationHeaderMalformed", why)
        signed = {name: headers.get(name, "") for name in found["headers"].split(";")}
        self._check_date(signed.get("x-amz-date", ""))
        own = sign(request.method, request.path, request.query, signed, self.region, self.secret_key)
        if not hmac.compare_digest(own, found["signature"]):
            why = "The request signature we calculated does not match the signature you provided. Check your key and signing method."
            raise Refused(403, "SignatureDoesNotMatch", why)

    def _check_date(self, text: str) -> None:
        try:
            stamp = datetime.strptime(text, "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC)
        except ValueError as error:
            raise Refused(403, "AccessDenied", "AWS authentication requires a valid Date") from error
        if abs(stamp - self.clock.now()) > _SKEW:
            why = "The difference between the request time and the server's time is too large."
            raise Refused(403, "RequestTimeTooSkewed", why)

    def _put(self, request: Request, key: str, objects: dict[str, BucketObject]) -> Reply:
        content = request.body or b""
        if len(key) > _MAX_KEY:
            raise Refused(400, "KeyTooLongError", "Your key is too long")
        held = [one for bucket in self.buckets.values() for one in bucket.values()]
        if len(held) >= MAX_OBJECTS or sum(len(one.content) for one in held) + len(content) > MAX_BYTES:
            raise Refused(
                507, "XMinioStorageFull", "Storage backend has reached its minimum free drive threshold."
            )
        metadata = {name: value for name, value in request.headers if name.lower().startswith(_METADATA)}
        made = objects[key] = BucketObject(content, self.clock.now(), metadata)
        return Reply(200, b"", _XML, {"ETag": made.etag})

    def _reply_for_bucket(self, request: Request, bucket: str, objects: dict[str, BucketObject]) -> Reply:
        if request.method == "HEAD":
            return Reply(200, b"", _XML)
        if request.method != "GET" or request.query_parameter("list-type") != "2":
            raise _not_allowed()
        prefix = request.query_parameter("prefix") or ""
        after = request.query_parameter("continuation-token") or ""
        keys = [key for key in sorted(objects) if key.startswith(prefix) and key > after]
        page = keys[:_PAGE]
        text = "".join(_render_entry(key, objects[key]) for key in page)
        if len(keys) > _PAGE:
            text += f"<NextContinuationToken>{escape(page[-1])}</NextContinuationToken>"
        head = f"<Name>{escape(bucket)}</Name><Prefix>{escape(prefix)}</Prefix>"
        return Reply(200, _document(f"<ListBucketResult>{head}{text}</ListBucketResult>"), _XML)


def _render_entry(key: str, found: BucketObject) -> str:
    modified = found.modified.strftime("%Y-%m-%dT%H:%M:%S.000Z")
    size = len(found.content)
    return (
        f"<Contents><Key>{escape(key)}</Key><LastModified>{modified}</LastModified>"
        f"<ETag>{escape(found.etag)}</ETag><Size>{size}</Size></Contents>"
    )


def _document(text: str) -> bytes:
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{text}'.encode()


def _not_allowed() -> Refused:
    return Refused(405, "MethodNotAllowed", "The specified method is not allowed against this resource.")
