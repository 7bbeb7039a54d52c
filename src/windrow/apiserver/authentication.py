"""Who calls: client certificate, bearer token, impersonation (reference/05 §7.5)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import datetime

from windrow.apiserver import statuses
from windrow.apiserver.calls import ANONYMOUS, Caller, Target, header, headers
from windrow.apiserver.doors import Peer
from windrow.core import pki
from windrow.core.clock import Clock
from windrow.kubernetes.requests import Request

StaticToken = tuple[str, tuple[str, ...], datetime | None]
"""User, groups, and the instant from which the token is refused (None: never)."""

Recognise = Callable[[str], Awaitable[Caller | None]]
"""The caller that a bearer token stands for."""

AUTHENTICATED = "system:authenticated"


def _groups(*groups: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys((*groups, AUTHENTICATED)))


def read_certificate(certificate: str, now: datetime) -> Caller | None:
    """The user that a client certificate names; None when it is not valid now. Its CA was checked at the door."""
    subject = pki.read_certificate(certificate)
    if not subject.common_name or not subject.not_before <= now <= subject.not_after:
        return None
    return Caller(subject.common_name, _groups(*subject.organizations))


class Authenticator:
    """Asks certificate, static tokens and then each of `recognisers`. `tokens` may change at any time."""

    def __init__(self, clock: Clock, *, anonymous: bool = False) -> None:
        self.tokens: dict[str, StaticToken] = {}
        self.recognisers: list[Recognise] = []
        self.anonymous = anonymous
        self._clock = clock
        self._certificates: dict[str, Caller] = {}

    async def caller(self, request: Request, peer: Peer) -> Caller:
        """Raises 401 for a bad credential, and for none at all unless anonymous callers are welcome."""
        scheme, _, token = header(request, "Authorization").partition(" ")
        if scheme.lower() == "bearer" and token.strip():
            found = await self.by_token(token.strip())
            if found is None:
                raise statuses.unauthorized()
            return found
        if peer.certificate:
            by_certificate = read_certificate(peer.certificate, self._clock.now())
            if by_certificate is not None:
                return by_certificate
        if self.anonymous:
            return ANONYMOUS
        raise statuses.unauthorized()

    async def by_token(self, token: str) -> Caller | None:
        static = self.tokens.get(token)
        if static is not None:
            user, groups, expires = static
            if expires is not None and self._clock.now() >= expires:
                return None
            return Caller(user, _groups(*groups))
        for recognise in self.recognisers:
            found = await recognise(token)
            if found is not None:
                return found
        return None


def impersonated(wanted: Caller, groups: list[str]) -> list[Target]:
    """What the caller must be allowed to `impersonate`."""
    parts = wanted.user.split(":")
    if len(parts) == 4 and wanted.user.startswith("system:serviceaccount:"):
        user = Target("", "", "v1", "serviceaccounts", parts[2], parts[3])
    else:
        user = Target("", "", "v1", "users", "", wanted.user)
    return [user, *(Target("", "", "v1", "groups", "", group) for group in groups)]


def read_impersonation(request: Request) -> Caller | None:
    """The user that the caller wants to be, or None. 400 for groups without a user."""
    user, groups = header(request, "Impersonate-User"), headers(request, "Impersonate-Group")
    if not user:
        if groups or header(request, "Impersonate-Uid"):
            raise statuses.fail(
                500, "Internal error occurred: requested impersonation without impersonating a user"
            )
        return None
    if user.startswith("system:serviceaccount:") and not groups:
        namespace = user.split(":")[2]
        groups = ["system:serviceaccounts", f"system:serviceaccounts:{namespace}"]
    if user == ANONYMOUS.user:
        return Caller(user, tuple(groups) or ANONYMOUS.groups)
    return Caller(user, _groups(*groups), header(request, "Impersonate-Uid"))
