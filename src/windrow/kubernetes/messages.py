"""Refusals and broken connections, told with the server, the credential and the next move.

All transports use these, so that a person reads the same sentence whichever way the request went.
"""

from __future__ import annotations

from dataclasses import replace

from windrow.core.json import dumps
from windrow.kubernetes.errors import Forbidden, Unauthorized, error_for
from windrow.kubernetes.kubeconfig import ClientConfig
from windrow.kubernetes.requests import Reply

_OTHER_NAME_HINT = "use a name or address that the certificate is for, or set tls-server-name in the kubeconfig to one of them"
# What OpenSSL, and `formats.x509`, say; first match wins.
_HINTS = (
    ("expired", "renew the server's certificate, or correct the clock of this machine"),
    ("not yet valid", "correct the clock of this machine or of the server"),
    ("not valid before", "correct the clock of this machine or of the server"),
    ("mismatch", _OTHER_NAME_HINT),
    ("not valid for", _OTHER_NAME_HINT),
    ("not for", _OTHER_NAME_HINT),
)
_WRONG_CA_HINT = "put the CA that signed it into certificate-authority-data of the kubeconfig"


def server_of(access: ClientConfig) -> str:
    """The server as sentences name it, with the proxy where there is one (but never the proxy's password)."""
    if not access.proxy_url:
        return access.server
    return f"{access.server} through the proxy {access.proxy_url.rpartition('@')[2].removeprefix('http://')}"


def unreachable(access: ClientConfig, why: str, hint: str) -> str:
    return f"cannot reach {server_of(access)} ({access.credential}): {why}; {hint}"


def outcome_unknown(access: ClientConfig, method: str, path: str, why: str) -> str:
    return (
        f"{server_of(access)} did not answer {method} {path} ({access.credential}): {why}; "
        "it may or may not have been carried out"
    )


def certificate_error(access: ClientConfig, why: str) -> str:
    hint = next((hint for pattern, hint in _HINTS if pattern in why), _WRONG_CA_HINT)
    return f"the certificate of {server_of(access)} is not trusted: {why}; {hint}"


def insecure_warning(access: ClientConfig) -> str:
    return (
        f"the certificate of {server_of(access)} is NOT verified, because the kubeconfig says insecure-skip-tls-verify; "
        "put its CA into certificate-authority-data instead"
    )


def client_certificate_rejected(access: ClientConfig, why: str) -> str:
    return f"{server_of(access)} refused {access.credential} in the TLS handshake ({why}); ask for a new kubeconfig"


def explain(reply: Reply, access: ClientConfig) -> Reply:
    """`reply`, whose message also names server and credential where it is a 401 or a refusal of rights."""
    if reply.status not in (401, 403):
        return reply
    error = error_for(reply)
    if isinstance(error, Unauthorized):
        message = (
            f"{server_of(access)} does not accept {access.credential}: {error.message}; "
            "it is wrong, expired or revoked: ask for a new kubeconfig"
        )
    elif isinstance(error, Forbidden) and " cannot " in error.message:
        message = (
            f"{error.message}; {access.server} knows {access.credential}, which lacks this right: grant it"
        )
    else:
        return reply
    status = {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": message,
        "reason": error.reason or type(error).__name__,
        "details": error.details,
        "code": reply.status,
    }
    return replace(reply, body=dumps(status), content_type="application/json")
