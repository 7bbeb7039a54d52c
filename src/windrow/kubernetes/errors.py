"""The errors of requests to an API server: one class per HTTP status and reason, and two for the connection.

`error_for` translates a reply; transports translate socket errors. The two of the connection differ in what may follow:

* `Unreachable`: the request was not sent, so it may be repeated.
* `OutcomeUnknown`: the request may have been carried out, so a write is repeated only after a read.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from windrow.core.formats.json import NotJson, Raw, loads
from windrow.kubernetes.requests import Reply

# What a server may send in one answer or event: a tenant chooses the server of a cloud credential. A page of 500 VMs has
# some 400,000 values. Commas and brackets in texts are counted too.
MAX_VALUES = 2_000_000
# Objects and lists among them. They cost most, and decoding holds all threads: this many take a second. A page of 2,000
# VMs has less than half of it.
MAX_CONTAINERS = 1_000_000
# The body of a refusal is a small Status; a larger one is quoted, not decoded.
MAX_STATUS_BYTES = 2**20
MAX_RETRY_AFTER_S = 3600.0


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
        if not (isinstance(value, int | float) and value > 0):  # nor NaN
            return None
        return float(min(value, MAX_RETRY_AFTER_S))


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


class InvalidReply(OutcomeUnknown, ServerError):
    """An answer of success that is not of the API's shape: whatever sent it, it shows neither what is nor what was done."""


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


_UNKNOWN_KIND = "could not find the requested resource"


def is_not_found(error: object, name: str) -> bool:
    """Whether the server answered that the object `name` does not exist.

    A 404 that does not name the object (an unknown kind, a proxy's own page) proves nothing.
    """
    return isinstance(error, NotFound) and error.details.get("name") == name


def names_no_object(error: object) -> bool:
    """Whether it is a 404 that names no object: the server does not have the kind, or is no API server."""
    return isinstance(error, NotFound) and not error.details.get("name")


def is_unknown_kind(error: object) -> bool:
    """Whether an API server answered that it does not have the kind: a Status of reason NotFound that names no object, in the words
    that each has for that."""
    return isinstance(error, NotFound) and names_no_object(error) and _UNKNOWN_KIND in error.message


def is_namespace_terminating(error: KubeError) -> bool:
    """Whether a creation was refused because its namespace is being deleted."""
    causes = error.details.get("causes")
    reasons = (
        [cause.get("reason") for cause in causes if isinstance(cause, dict)]
        if isinstance(causes, list)
        else []
    )
    return "NamespaceTerminating" in reasons


def error_from_status(status: dict[str, Any]) -> KubeError:
    """The error that a Status object stands for."""
    found = status.get("code")
    code = found if isinstance(found, int) and found else 500
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
        body = loads(reply.body) if len(reply.body) <= MAX_STATUS_BYTES else None
    except NotJson:
        body = None
    if isinstance(body, dict) and body.get("kind") == "Status":
        error = error_from_status({"code": reply.status, **body})
    else:
        text = reply.body[:500].decode("utf-8", "replace").strip()
        error_type = _BY_STATUS.get(reply.status, ServerError)
        error = error_type(text or f"the server answered {reply.status}", status=reply.status)
    after = reply.headers.get("Retry-After")
    if after and re.fullmatch("[0-9]{1,9}", after):
        error.details.setdefault("retryAfterSeconds", int(after))
    return error


def decode_reply(reply: Reply, loads: Callable[[bytes], Any] = loads) -> Raw:
    """The object in `reply`; {} for an empty body. Raises the KubeError of an error reply, and InvalidReply for what no API
    server answers. Services pass `core.fastjson.loads`."""
    error = error_for(reply)
    if error is not None:
        raise error
    if 300 <= reply.status < 400:
        target = reply.headers.get("Location", "elsewhere")
        raise InvalidReply(
            f"wanted an API server, found a redirect to {target}; is this the address of a web page?",
            status=reply.status,
        )
    if not reply.body:
        return {}
    require_few_values(reply.body)
    try:
        raw = loads(reply.body)
    except NotJson as problem:
        raise InvalidReply(
            f"wanted a JSON object, found {reply.body[:80]!r}; is this address an API server?",
            status=reply.status,
        ) from problem
    if not isinstance(raw, dict):
        raise InvalidReply(f"wanted a JSON object, found a {type(raw).__name__}", status=reply.status)
    if raw.get("metadata") is not None:
        require_metadata(raw, "the answer")
    return raw


def require_few_values(body: bytes, where: str = "an answer", share: int = 1) -> None:
    """Raises InvalidReply, before they are made, for JSON of more than MAX_VALUES values or MAX_CONTAINERS of them, or of a
    share of these. What is in the texts of a share does not count: tenants write them."""
    for what, limit, marks in (
        ("values", MAX_VALUES, (b",",)),
        ("objects and lists", MAX_CONTAINERS, (b"[", b"{")),
    ):
        most = limit // share
        if len(body) <= most or sum(map(body.count, marks)) <= most:
            continue
        if share == 1 or sum(map(_without_texts(body, 4 * most).count, marks)) > most:
            raise InvalidReply(
                f"wanted at most {most} {what} in {where}, found more in {len(body)} bytes; is this address an API server?",
                status=502,
            )


_TEXT = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"?', re.DOTALL)


def _without_texts(body: bytes, most: int) -> bytes:
    """JSON without its texts, at most so many of them; more than an object within bounds has are not looked for."""
    return b"".join(_TEXT.split(body, most))


_METADATA_TEXTS = (
    "name",
    "namespace",
    "uid",
    "resourceVersion",
    "continue",
    "creationTimestamp",
    "deletionTimestamp",
)


def require_metadata(raw: Any, where: str, *required: str) -> None:
    """Raises InvalidReply unless `raw` is an object with the metadata that every reader relies on: names, uids, versions and
    times are texts, those in `required` not empty; labels and annotations are maps of texts."""
    if not isinstance(raw, dict):
        raise _wrong_shape(where, "an object", raw)
    metadata = raw.get("metadata")
    if not isinstance(metadata, dict):
        raise _wrong_shape(f"{where}.metadata", "an object", metadata)
    for key in _METADATA_TEXTS:
        value = metadata.get(key)
        if not (isinstance(value, str) or value is None) or (key in required and not value):
            raise _wrong_shape(f"{where}.metadata.{key}", "text", value)
    for key in ("labels", "annotations"):
        value = metadata.get(key)
        if value is None:
            continue
        if not isinstance(value, dict):
            raise _wrong_shape(f"{where}.metadata.{key}", "a map of texts", value)
        for name, text in value.items():
            if not isinstance(text, str):
                raise _wrong_shape(f"{where}.metadata.{key}[{name[:80]!r}]", "text", text)
    for key, item_type, wanted in (("finalizers", str, "texts"), ("ownerReferences", dict, "objects")):
        value = metadata.get(key)
        if value is not None and not (
            isinstance(value, list) and all(isinstance(item, item_type) for item in value)
        ):
            raise _wrong_shape(f"{where}.metadata.{key}", f"a list of {wanted}", value)


def _wrong_shape(where: str, wanted: str, found: Any) -> InvalidReply:
    what = {type(None): "nothing", str: "an empty text", dict: "an object"}.get(
        type(found), f"a {type(found).__name__}"
    )
    return InvalidReply(f"wanted {wanted} in {where}, found {what}; is this address an API server?")


def list_items(raw: Raw) -> list[Raw]:
    """The items of a list as it was decoded; [] where they are null. Raises InvalidReply for anything but a list of objects."""
    items = require_list(raw)
    for number, item in enumerate(items):
        require_metadata(item, f"items[{number}]", "name")
    return items


def require_list(raw: Raw) -> list[Any]:
    """The items of a list, whatever they are; [] where they are null.

    Raises InvalidReply for anything but a list: read as an empty one, it would tell that every object is deleted.
    """
    kind = str(raw.get("kind") or "")
    items = raw.get("items", ...)
    found = f"a {kind}" if kind else "an object"
    missing = [
        *(() if isinstance(raw.get("metadata"), dict) else ("metadata",)),
        *(() if items is None or isinstance(items, list) else ("items",)),
    ]
    if missing:
        raise InvalidReply(f"wanted a list, found {found} without {' and '.join(missing)}")
    if kind and not kind.endswith("List"):
        raise InvalidReply(f"wanted a list, found {found}")
    return items or []
