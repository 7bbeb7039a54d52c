"""API errors with the messages of kube-apiserver (reference/05 §7.7), and `Status` objects."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from windrow.core.formats.fastjson import dumps
from windrow.kubernetes.errors import KubeError, error_from_status
from windrow.kubernetes.requests import Reply
from windrow.kubernetes.resources import ApiResource

Raw = dict[str, Any]

REASONS = {
    400: "BadRequest",
    401: "Unauthorized",
    403: "Forbidden",
    404: "NotFound",
    405: "MethodNotAllowed",
    406: "NotAcceptable",
    409: "Conflict",
    410: "Expired",
    413: "RequestEntityTooLarge",
    415: "UnsupportedMediaType",
    422: "Invalid",
    429: "TooManyRequests",
    500: "InternalError",
    503: "ServiceUnavailable",
    504: "Timeout",
}
UNKNOWN = "Unknown"  # as a reason: the Status has none


@dataclass(frozen=True, slots=True)
class Cause:
    """One field error. `detail` follows the field in the message: `Required value: …`."""

    field: str
    reason: str
    detail: str

    def __str__(self) -> str:
        return f"{self.field}: {self.detail}"

    def raw(self) -> Raw:
        return {"reason": self.reason, "message": self.detail, "field": self.field}


def status_error(code: int, message: str, *, reason: str = "", details: Raw | None = None) -> KubeError:
    """The KubeError for any code; the class follows from the code as it would at a client."""
    status: Raw = {"code": code, "message": message, "reason": reason or REASONS.get(code, UNKNOWN)}
    if details:
        status["details"] = details
    return error_from_status(status)


def _details(kind: ApiResource, name: str) -> Raw:
    details = {"name": name, "group": kind.group, "kind": kind.plural}
    return {key: value for key, value in details.items() if value}


def bad_request(message: str) -> KubeError:
    return status_error(400, message)


def unauthorized() -> KubeError:
    return status_error(401, "Unauthorized")


def forbidden(kind: ApiResource, name: str, why: str, causes: Sequence[Raw] = ()) -> KubeError:
    details = _details(kind, name)
    if causes:
        details["causes"] = list(causes)
    named = f' "{name}"' if name else ""
    return status_error(403, f"{kind.group_resource}{named} is forbidden: {why}", details=details)


def not_found(kind: ApiResource, name: str) -> KubeError:
    return status_error(404, f'{kind.group_resource} "{name}" not found', details=_details(kind, name))


def path_not_found() -> KubeError:
    return status_error(404, "the server could not find the requested resource")


def method_not_allowed() -> KubeError:
    return status_error(405, "the server does not allow this method on the requested resource")


def no_containers(subresource: str) -> KubeError:
    """The 501 for what leads into a container of a Pod."""
    message = f"pods/{subresource} is not implemented: no container of this API can be entered"
    return status_error(501, message, reason="NotImplemented")


def already_exists(kind: ApiResource, name: str, *, deleting: bool = False) -> KubeError:
    start = "object is being deleted: " if deleting else ""
    return status_error(
        409,
        f'{start}{kind.group_resource} "{name}" already exists',
        reason="AlreadyExists",
        details=_details(kind, name),
    )


def conflict(kind: ApiResource, name: str, why: str) -> KubeError:
    message = f'Operation cannot be fulfilled on {kind.group_resource} "{name}": {why}'
    return status_error(409, message, details=_details(kind, name))


def modified(kind: ApiResource, name: str) -> KubeError:
    why = "the object has been modified; please apply your changes to the latest version and try again"
    return conflict(kind, name, why)


def expired(asked: int, oldest: int) -> KubeError:
    return status_error(410, f"too old resource version: {asked} ({oldest})")


def invalid(kind: ApiResource, name: str, causes: Sequence[Cause]) -> KubeError:
    texts = list(dict.fromkeys(str(cause) for cause in causes))  # a fault found twice is told once
    listed = texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]"
    qualified = f"{kind.kind}.{kind.group}" if kind.group else kind.kind
    details: Raw = {"name": name, "group": kind.group, "kind": kind.kind}
    details = {key: value for key, value in details.items() if value}
    details["causes"] = [cause.raw() for cause in causes]
    return status_error(422, f'{qualified} "{name}" is invalid: {listed}', details=details)


def invalid_options(kind: str, cause: Cause) -> KubeError:
    """The 422 for a parameter: `ListOptions`, `CreateOptions`, …"""
    details = {"group": "meta.k8s.io", "kind": kind, "causes": [cause.raw()]}
    return status_error(422, f'{kind}.meta.k8s.io "" is invalid: {cause}', details=details)


def not_supported(field: str, value: Any, offered: Sequence[str]) -> Cause:
    listed = ", ".join(format_value(one) for one in offered)
    text = f"Unsupported value: {format_value(value)}: supported values: {listed}"
    return Cause(field, "FieldValueNotSupported", text)


def rejected_patch() -> KubeError:
    """422 for a JSON patch that cannot be applied; kube-apiserver drops the reason, too."""
    return status_error(422, "the server rejected our request due to an error in our request")


def unsupported_media(accepted: Sequence[str]) -> KubeError:
    listed = ", ".join(accepted)
    return status_error(
        415, f"the body of the request was in an unknown format - accepted media types include: {listed}"
    )


def not_acceptable(accepted: Sequence[str]) -> KubeError:
    return status_error(406, f"only the following media types are accepted: {', '.join(accepted)}")


def internal(why: str) -> KubeError:
    return status_error(500, f"Internal error occurred: {why}")


def request_too_large() -> KubeError:
    """etcd's refusal of an object above --max-request-bytes; kube-apiserver passes it on without a reason."""
    return status_error(500, "etcdserver: request is too large", reason=UNKNOWN)


def resource_version_too_large(asked: int, current: int) -> KubeError:
    cause = {"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}
    return status_error(
        504,
        f"Timeout: Too large resource version: {asked}, current: {current}",
        details={"causes": [cause], "retryAfterSeconds": 1},
    )


def required(field: str, text: str = "") -> Cause:
    return Cause(field, "FieldValueRequired", f"Required value{': ' if text else ''}{text}")


def invalid_value(field: str, value: Any, text: str) -> Cause:
    return Cause(field, "FieldValueInvalid", f"Invalid value: {format_value(value)}: {text}")


def duplicate(field: str, value: Any) -> Cause:
    return Cause(field, "FieldValueDuplicate", f"Duplicate value: {format_value(value)}")


def too_many(field: str, count: int, most: int) -> Cause:
    return Cause(field, "FieldValueTooMany", f"Too many: {count}: must have at most {most} items")


def forbidden_value(field: str, text: str) -> Cause:
    return Cause(field, "FieldValueForbidden", f"Forbidden: {text}")


def format_value(value: Any) -> str:
    """A value as field errors print it."""
    return dumps(value).decode()


def status_of(error: KubeError) -> Raw:
    """The Status object of `error`."""
    code = error.status or 500
    status: Raw = {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": error.message,
        "reason": error.reason or REASONS.get(code, UNKNOWN),
    }
    if status["reason"] == UNKNOWN:
        del status["reason"]
    details = dict(error.details)
    if "continue" in details:  # the fresh continue token of an expired list goes into metadata
        status["metadata"] = {"continue": details.pop("continue")}
    if details or code in (403, 405, 406, 415, 422):
        status["details"] = details
    status["code"] = code
    return status


def success_status(**fields: Any) -> Raw:
    return {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", **fields}


def deleted_status(kind: ApiResource, name: str, uid: str) -> Raw:
    return success_status(details={**_details(kind, name), "uid": uid})


def error_reply(error: KubeError) -> Reply:
    headers = {}
    if error.retry_after_s and error.status in (429, 500, 503, 504):
        headers["Retry-After"] = str(max(1, int(error.retry_after_s)))
    return Reply(error.status or 500, dumps(status_of(error)), headers=headers)
