"""Denials of webhooks: their messages and status codes (reference 05 §3.1)."""

from __future__ import annotations

from windrow.apiserver.apierrors import UNKNOWN
from windrow.emulator.admission.kubevirt.causes import MOST_TOLD, Cause, join_messages
from windrow.emulator.kit.go_types import decoding_fault
from windrow.kubernetes.errors import AdmissionDenied, KubeError
from windrow.kubernetes.objects import Raw

VALIDATOR = "validator.harvesterhci.io"
MUTATOR = "mutator.harvesterhci.io"
KUBEVIRT_VALIDATOR = "virtualmachine-validator.kubevirt.io"
KUBEVIRT_MUTATOR = "virtualmachines-mutator.kubevirt.io"


def invalid(message: str, field: str, webhook: str = VALIDATOR) -> KubeError:
    """422 with one cause and, as Harvester does, without the object's name."""
    return _denied(webhook, message, 422, "Invalid", {"causes": [Cause(message, field).render()]})


def bad_request(message: str, webhook: str = VALIDATOR) -> KubeError:
    return _denied(webhook, message, 400, "BadRequest")


def bad_go_error(message: str, webhook: str) -> KubeError:
    """What KubeVirt makes of a Go error: 400 without a reason."""
    return _denied(webhook, message, 400, UNKNOWN)


def conflict(message: str, webhook: str = VALIDATOR) -> KubeError:
    return _denied(webhook, message, 409, "Conflict")


def not_allowed(message: str, webhook: str = VALIDATOR) -> KubeError:
    return _denied(webhook, message, 405, "MethodNotAllowed")


def internal(message: str, webhook: str = VALIDATOR) -> KubeError:
    """Any other Go error: 500, although a retry of the same request is denied again."""
    return _denied(webhook, message, 500, "InternalError")


def internal_error(message: str, webhook: str) -> KubeError:
    """What apimachinery makes of a Go error, which it repeats as a cause."""
    details = {"causes": [{"message": message}]}
    return _denied(webhook, f"Internal error occurred: {message}", 500, "InternalError", details)


def check_decodes(kind: str, raw: Raw, webhook: str = MUTATOR) -> None:
    """Denies an object that Harvester's own types do not take."""
    if why := decoding_fault(kind, raw):
        raise internal(why, webhook)


def refused_by_kubevirt(causes: list[Cause], webhook: str = KUBEVIRT_VALIDATOR) -> KubeError:
    """422 with all causes, of which the first ten are told."""
    details = {"causes": [cause.render() for cause in causes[:MOST_TOLD]]}
    return _denied(webhook, join_messages(causes), 422, "Invalid", details)


def patch_failed(path: str) -> KubeError:
    """A mutator's patch replaces a field below one that is missing: the API server cannot apply it."""
    why = f"replace operation does not apply: doc is missing path: {path}: missing value"
    details = {"causes": [{"message": why}]}
    return KubeError(f"Internal error occurred: {why}", status=500, reason="InternalError", details=details)


def webhook_failed(webhook: str) -> KubeError:
    """A webhook that panics closes the connection; where its policy is to fail, the request fails."""
    why = f'failed calling webhook "{webhook}": failed to call webhook: EOF'
    details = {"causes": [{"message": why}]}
    return KubeError(f"Internal error occurred: {why}", status=500, reason="InternalError", details=details)


def _denied(webhook: str, message: str, code: int, reason: str, details: Raw | None = None) -> KubeError:
    text = f'admission webhook "{webhook}" denied the request: {message}'
    return AdmissionDenied(text, status=code, reason=reason, details=details)
