"""Errors of a connection to Harvester as message and hint for an operator, and whether they prove anything."""

from __future__ import annotations

from windrow.kubernetes.errors import (
    CertificateError,
    Forbidden,
    InvalidReply,
    KubeError,
    OutcomeUnknown,
    TooManyRequests,
    Unauthorized,
    Unreachable,
    is_unknown_kind,
)

# First match wins, so subclasses come before their parents.
_SENTENCES: tuple[tuple[type[KubeError], str, str], ...] = (
    (
        Unauthorized,
        "Harvester {server} does not accept {credential} (401): {message}",
        "put a valid kubeconfig there; the old one is expired or revoked",
    ),
    (
        Forbidden,
        "Harvester {server} forbids this to {credential} (403): {message}",
        "give its user that right on Harvester",
    ),
    (
        CertificateError,
        "the certificate of Harvester {server} is not signed by the CA in {credential}: {message}",
        "put Harvester's current CA into the kubeconfig",
    ),
    (
        Unreachable,
        "Harvester {server} ({credential}) cannot be reached: {message}",
        "check the address in the kubeconfig, and the network between",
    ),
    (
        InvalidReply,
        "Harvester {server} ({credential}) answers what no Kubernetes API does: {message}",
        "write the URL of Harvester's own API into the kubeconfig; it may lead to a web page or a proxy's",
    ),
    (
        OutcomeUnknown,
        "Harvester {server} ({credential}) did not answer: {message}",
        "nothing to do if it is temporary; the request is repeated",
    ),
    (
        TooManyRequests,
        "Harvester {server} ({credential}) asks to slow down: {message}",
        "nothing to do; the request is repeated later",
    ),
)
# A 404 that names no object: the API server does not have the kind.
_OTHER_SERVER = (
    "{server} ({credential}) does not have the kinds of Harvester: {message}",
    "name a kubeconfig of Harvester, not of another Kubernetes or of a guest cluster",
)
_OTHERWISE = (
    "Harvester {server} ({credential}) failed: {message}",
    "nothing to do if it is temporary; else check Harvester's own API",
)


def describe_credential(credential: str) -> str:
    """The credential `namespace:name`, as manifests write it, in the words of kubectl; what is no credential Secret as it is."""
    if ":" not in credential:
        return credential
    return f"credential Secret {credential.replace(':', '/')}"


def connection_problem(error: KubeError, server: str, credential: str) -> tuple[str, str]:
    """Message and hint for an error of the connection or its credential. Both name the server and the credential Secret."""
    named = describe_credential(credential)
    fitting = (texts for kind, *texts in _SENTENCES if isinstance(error, kind))
    message, hint = next(fitting, _OTHER_SERVER if is_unknown_kind(error) else _OTHERWISE)
    if server in error.message:  # the transport has named server and cause; only the Secret is missing
        return f"{named}: {error.message.partition('; ')[0]}", hint
    return message.format(server=server, credential=named, message=error.message), hint


def is_inconclusive(error: KubeError) -> bool:
    """Whether the error leaves the state on Harvester unknown: nothing may be concluded from it."""
    return (
        isinstance(error, Unauthorized | Unreachable | OutcomeUnknown | TooManyRequests)
        or error.status >= 500
    )
