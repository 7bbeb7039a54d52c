"""Error messages about a connection: the server, the credential, the reason and a hint.

All transports use these, so that an error reads the same over sockets and in process.
"""

from __future__ import annotations

from dataclasses import replace

from windrow.core.formats.json import dumps
from windrow.kubernetes.errors import Forbidden, Unauthorized, error_for
from windrow.kubernetes.kubeconfig import ClientConfig
from windrow.kubernetes.requests import Reply

_OTHER_NAME_HINT = "use a name or address that the certificate is for, or set tls-server-name in the kubeconfig to one of them"
# By the words of OpenSSL and of `core.pki`; the first match wins.
_HINTS = (
    ("expired", "renew the server's certificate, or correct the clock of this machine"),
    ("not yet valid", "correct the clock of this machine or of the server"),
    ("not valid before", "correct the clock of this machine or of the server"),
    ("mismatch", _OTHER_NAME_HINT),
    ("not valid for", _OTHER_NAME_HINT),
    ("not for", _OTHER_NAME_HINT),
)
_WRONG_CA_HINT = "put the CA that signed it into certificate-authority-data of the kubeconfig"


def server_of(config: ClientConfig) -> str:
    """The server's URL, with the proxy where there is one (without the proxy's password)."""
    if not config.proxy_url:
        return config.server
    return f"{config.server} through the proxy {config.proxy_url.rpartition('@')[2].removeprefix('http://')}"


def unreachable(config: ClientConfig, why: str, hint: str) -> str:
    return f"cannot reach {server_of(config)} ({config.credential}): {why}; {hint}"


def outcome_unknown(config: ClientConfig, method: str, path: str, why: str) -> str:
    text = f"{server_of(config)} did not answer {method} {path} ({config.credential}): {why}"
    return text if method == "GET" else f"{text}; it may or may not have been carried out"


def certificate_error(config: ClientConfig, why: str) -> str:
    hint = next((hint for pattern, hint in _HINTS if pattern in why), _WRONG_CA_HINT)
    return f"the certificate of {server_of(config)} is not trusted: {why}; {hint}"


def insecure_warning(config: ClientConfig) -> str:
    return (
        f"the certificate of {server_of(config)} is NOT verified, because the kubeconfig says insecure-skip-tls-verify; "
        "put its CA into certificate-authority-data instead"
    )


def client_certificate_rejected(config: ClientConfig, why: str) -> str:
    return f"{server_of(config)} refused {config.credential} in the TLS handshake ({why}); ask for a new kubeconfig"


def explain(reply: Reply, config: ClientConfig) -> Reply:
    """`reply`, whose message also names server and credential where it is a 401 or a refusal of rights."""
    if reply.status not in (401, 403):
        return reply
    error = error_for(reply)
    if isinstance(error, Unauthorized):
        message = (
            f"{server_of(config)} does not accept {config.credential}: {error.message}; "
            "it is wrong, expired or revoked: ask for a new kubeconfig"
        )
    elif isinstance(error, Forbidden) and " cannot " in error.message:
        message = (
            f"{error.message}; {config.server} accepts {config.credential}, which lacks this right: grant it"
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
