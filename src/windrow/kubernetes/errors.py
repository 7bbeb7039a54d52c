"""The errors of requests to an API server: one class per HTTP status and reason, and two for the connection.

`error_for` translates a reply; transports translate socket errors. The two of the connection differ in what may follow:

* `Unreachable`: the request was not sent, so it may be repeated.
* `OutcomeUnknown`: the request may have been carried out, so a write is repeated only after a read.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from windrow.core.formats.json import NotJson, Raw, loads
from windrow.kubernetes.requests import Reply


class KubeError(Exception):
    """Any failure of a request. `message` is the server's own text where it sent one."""

    def __init__(
        self, message: str, *, status: int = 0, reason: str = "", details: dict[str, Any] | None = None
    ):
        super().__init__(message)
        self.message = message
        self.status = status
        self.reason = reason
        self.details = details or {}

    @property
    def retry_after_s(self) -> float | None:
        value = self.details.get("retryAfterSeconds")
        return float(value) if value else None


class BadRequest(KubeError):
    """400: the request is malformed."""


class Unauthorized(KubeError):
    """401: the credential is missing, expired or revoked."""


class Forbidden(KubeError):
    """403: the credential is known but may not do this."""


class NotFound(KubeError):
    """404: no such object (or no such kind)."""


class MethodNotAllowed(KubeError):
    """405: the server does not offer this method here."""


class AlreadyExists(KubeError):
    """409 AlreadyExists."""


class Conflict(KubeError):
    """409: the object changed meanwhile, a precondition failed, or its state forbids the action."""


class Expired(KubeError):
    """410: the resource version or continue token is too old; list again."""


class UnsupportedMediaType(KubeError):
    """406 or 415: a media type that the server does not support."""


class Invalid(KubeError):
    """422: the object breaks a rule of its schema."""


class AdmissionDenied(KubeError):
    """An admission webhook denied the request (any status). Not repeated unchanged."""


class TooManyRequests(KubeError):
    """429: too many requests; `retry_after_s` says when to try again."""


class ServerError(KubeError):
    """5xx that is not an admission denial."""


class Unreachable(KubeError):
    """Never sent: name not resolved, connection refused, TLS not trusted. May be repeated."""


class CertificateError(Unreachable):
    """The server's certificate is not trusted: another CA, another name, or expired."""


class OutcomeUnknown(KubeError):
    """Sent, but not answered: the request may have been carried out. Read before repeating a write."""


_BY_STATUS: dict[int, type[KubeError]] = {
    400: BadRequest,
    401: Unauthorized,
    403: Forbidden,
    404: NotFound,
    405: MethodNotAllowed,
    406: UnsupportedMediaType,
    409: Conflict,
    410: Expired,
    413: BadRequest,
    415: UnsupportedMediaType,
    422: Invalid,
    429: TooManyRequests,
}


def is_not_found(error: object, name: str) -> bool:
    """Whether the server answered that the object `name` does not exist.

    A 404 that does not name the object (an unknown kind, a proxy's own page) proves nothing.
    """
    return isinstance(error, NotFound) and error.details.get("name") == name


def error_from_status(status: dict[str, Any]) -> KubeError:
    """The error that a Status object stands for."""
    code = int(status.get("code") or 500)
    message = str(status.get("message") or f"the server answered {code}")
    reason = str(status.get("reason") or "")
    details = status.get("details")
    error_type: type[KubeError] = _BY_STATUS.get(code, ServerError)
    if reason == "AlreadyExists":
        error_type = AlreadyExists
    if message.startswith('admission webhook "') and "denied the request" in message:
        error_type = AdmissionDenied  # also with code 500: reference/05 §3.1
    return error_type(
        message, status=code, reason=reason, details=details if isinstance(details, dict) else None
    )


def error_for(reply: Reply) -> KubeError | None:
    """The error in `reply`, or None when it is a success."""
    if reply.status < 400:
        return None
    try:
        body = loads(reply.body)
    except NotJson:
        body = None
    if isinstance(body, dict) and body.get("kind") == "Status":
        error = error_from_status({"code": reply.status, **body})
    else:
        text = reply.body[:500].decode("utf-8", "replace").strip()
        error_type = _BY_STATUS.get(reply.status, ServerError)
        error = error_type(text or f"the server answered {reply.status}", status=reply.status)
    after = reply.headers.get("Retry-After")
    if after and after.isdigit():
        error.details.setdefault("retryAfterSeconds", int(after))
    return error


def decode_reply(reply: Reply, loads: Callable[[bytes], Any] = loads) -> Raw:
    """The object in `reply`; {} for an empty body. Raises the KubeError of an error reply, and ServerError for what no API
    server answers. Services pass `core.fastjson.loads`."""
    error = error_for(reply)
    if error is not None:
        raise error
    if 300 <= reply.status < 400:
        target = reply.headers.get("Location", "elsewhere")
        raise ServerError(
            f"wanted an API server, found a redirect to {target}; is this the address of a web page?",
            status=reply.status,
        )
    if not reply.body:
        return {}
    try:
        raw = loads(reply.body)
    except NotJson as problem:
        raise ServerError(
            f"wanted a JSON object, found {reply.body[:80]!r}; is this address an API server?",
            status=reply.status,
        ) from problem
    if not isinstance(raw, dict):
        raise ServerError(f"wanted a JSON object, found a {type(raw).__name__}", status=reply.status)
    return raw


def list_items(raw: Raw) -> list[Raw]:
    """The items of a list as it was decoded; [] where they are null.

    Raises ServerError for anything but a list: read as an empty one, it would tell that every object is deleted.
    """
    kind = str(raw.get("kind") or "")
    items = raw.get("items", ...)
    found = f"a {kind}" if kind else "an object"
    missing = [
        *(() if isinstance(raw.get("metadata"), dict) else ("metadata",)),
        *(() if items is None or isinstance(items, list) else ("items",)),
    ]
    if missing:
        raise ServerError(f"wanted a list, found {found} without {' and '.join(missing)}")
    if kind and not kind.endswith("List"):
        raise ServerError(f"wanted a list, found {found}")
    return items or []
