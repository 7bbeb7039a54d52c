"""Refusals and broken connections, told with the server, the credential and the next move.

All transports use these, so that a person reads the same sentence whichever way the request went.
"""

from __future__ import annotations

from dataclasses import replace

from windrow.formats.json import dumps
from windrow.kube.errors import Forbidden, Unauthorized, error_for
from windrow.kube.kubeconfig import Access
from windrow.kube.requests import Reply

_OTHER_NAME = "use a name or address that the certificate is for, or set tls-server-name in the kubeconfig to one of them"
# What OpenSSL, and `formats.x509`, say; first match wins.
_CURES = (
    ("expired", "renew the server's certificate, or correct the clock of this machine"),
    ("not yet valid", "correct the clock of this machine or of the server"),
    ("not valid before", "correct the clock of this machine or of the server"),
    ("mismatch", _OTHER_NAME),
    ("not valid for", _OTHER_NAME),
    ("not for", _OTHER_NAME),
)
_WRONG_CA = "put the CA that signed it into certificate-authority-data of the kubeconfig"


def where(access: Access) -> str:
    """The server as sentences name it, with the proxy where there is one (but never the proxy's password)."""
    if not access.proxy_url:
        return access.server
    return f"{access.server} through the proxy {access.proxy_url.rpartition('@')[2].removeprefix('http://')}"


def unreachable(access: Access, why: str, cure: str) -> str:
    return f"cannot reach {where(access)} ({access.credential}): {why}; {cure}"


def unanswered(access: Access, method: str, path: str, why: str) -> str:
    return (
        f"{where(access)} did not answer {method} {path} ({access.credential}): {why}; "
        "it may or may not have been carried out"
    )


def not_trusted(access: Access, why: str) -> str:
    cure = next((cure for sign, cure in _CURES if sign in why), _WRONG_CA)
    return f"the certificate of {where(access)} is not trusted: {why}; {cure}"


def not_verified(access: Access) -> str:
    return (
        f"the certificate of {where(access)} is NOT verified, because the kubeconfig says insecure-skip-tls-verify; "
        "put its CA into certificate-authority-data instead"
    )


def certificate_refused(access: Access, why: str) -> str:
    return (
        f"{where(access)} refused {access.credential} in the TLS handshake ({why}); ask for a new kubeconfig"
    )


def explained(reply: Reply, access: Access) -> Reply:
    """`reply`, whose message also names server and credential where it is a 401 or a refusal of rights."""
    if reply.status not in (401, 403):
        return reply
    error = error_for(reply)
    if isinstance(error, Unauthorized):
        message = (
            f"{where(access)} does not accept {access.credential}: {error.message}; "
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
