"""Which requests may be repeated without reading first what became of them.

| Result                                   | read     | write                                 |
|------------------------------------------|----------|---------------------------------------|
| Unreachable (never sent)                 | again    | again                                 |
| CertificateError                         | raised   | raised: it will not change            |
| OutcomeUnknown                           | again    | raised: read before repeating         |
| 429, 503 (not carried out)               | again    | again, but not a refused eviction     |
| other 5xx with Retry-After               | again    | again: the server allows it           |
| other 5xx                                | again    | returned: it may have been carried out |
| a denial by an admission webhook, any status | returned | returned: it will not change      |
"""

from __future__ import annotations

from windrow.kubernetes.errors import (
    AdmissionDenied,
    CertificateError,
    KubeError,
    OutcomeUnknown,
    ServerError,
    Unreachable,
    error_for,
)
from windrow.kubernetes.requests import Reply, Request


def is_retryable(error: KubeError, request: Request) -> bool:
    """Whether `request` may be sent again although `error` came instead of an answer."""
    if isinstance(error, CertificateError):
        return False
    return isinstance(error, Unreachable) or (isinstance(error, OutcomeUnknown) and request.is_read)


def is_retryable_reply(request: Request, reply: Reply) -> bool:
    """Whether `request` may be sent again although the server answered with `reply`."""
    if reply.status != 429 and reply.status < 500:
        return False
    if isinstance(error_for(reply), AdmissionDenied):
        return False
    if reply.status == 429:
        # An eviction that a PodDisruptionBudget blocks answers 429, too, and does so again at once.
        return not request.path.endswith("/eviction")
    return request.is_read or reply.status == 503 or retry_after_s(reply) > 0


def may_still_be_carried_out(result: KubeError | Reply) -> bool:
    """Whether a write with this result may be carried out later than its sender knows."""
    error = error_for(result) if isinstance(result, Reply) else result
    if isinstance(error, OutcomeUnknown):
        return True
    return isinstance(error, ServerError) and error.status >= 500 and error.status != 503


def retry_after_s(reply: Reply) -> float:
    """The Retry-After of the reply in seconds, 0 where it has none."""
    error = error_for(reply)
    asked = error.retry_after_s if error is not None else None
    return asked or 0.0
