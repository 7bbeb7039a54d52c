"""Denials of webhooks: their messages and status codes (reference 05 §3.1)."""

from __future__ import annotations

from windrow.kubernetes.errors import AdmissionDenied, KubeError
from windrow.kubernetes.objects import Raw

VALIDATOR = "validator.harvesterhci.io"
MUTATOR = "mutator.harvesterhci.io"
KUBEVIRT_VALIDATOR = "virtualmachine-validator.kubevirt.io"


def invalid(message: str, field: str, webhook: str = VALIDATOR) -> KubeError:
    """422 with one cause and, as Harvester does, without the object's name."""
    cause: Raw = {"reason": "FieldValueInvalid", "message": message, "field": field}
    return _denied(webhook, message, 422, "Invalid", {"causes": [cause]})


def bad_request(message: str, webhook: str = VALIDATOR) -> KubeError:
    return _denied(webhook, message, 400, "BadRequest")


def conflict(message: str, webhook: str = VALIDATOR) -> KubeError:
    return _denied(webhook, message, 409, "Conflict")


def not_allowed(message: str, webhook: str = VALIDATOR) -> KubeError:
    return _denied(webhook, message, 405, "MethodNotAllowed")


def internal(message: str, webhook: str = VALIDATOR) -> KubeError:
    """Any other Go error: 500, although a retry of the same request is denied again."""
    return _denied(webhook, message, 500, "InternalError")


def _denied(webhook: str, message: str, code: int, reason: str, details: Raw | None = None) -> KubeError:
    text = f'admission webhook "{webhook}" denied the request: {message}'
    return AdmissionDenied(text, status=code, reason=reason, details=details)
