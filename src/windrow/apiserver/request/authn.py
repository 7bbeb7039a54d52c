"""Authentication: client certificate, bearer token, impersonation (reference/05 §7.5)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import datetime
from urllib.parse import unquote

from windrow.apiserver import apierrors
from windrow.apiserver.request.info import ANONYMOUS, RequestInfo, UserInfo, header, headers
from windrow.core import pki
from windrow.core.clock import Clock
from windrow.kubernetes.handler import Peer
from windrow.kubernetes.requests import Request
from windrow.kubernetes.resources import AUTHN

StaticToken = tuple[str, tuple[str, ...], datetime | None]
"""User, groups, and the instant of expiry (None: never)."""

TokenAuthenticator = Callable[[str], Awaitable[UserInfo | None]]
"""The user of a bearer token; None for a token of another kind."""

AUTHENTICATED = "system:authenticated"


def _groups(*groups: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys((*groups, AUTHENTICATED)))


def user_from_certificate(certificate: str, now: datetime) -> UserInfo | None:
    """The user that a client certificate names; None when it is not valid now. Its chain was verified by TLS."""
    subject = pki.read_certificate(certificate)
    if not subject.common_name or not subject.not_before <= now <= subject.not_after:
        return None
    return UserInfo(subject.common_name, _groups(*subject.organizations))


class Authenticator:
    """Tries client certificate, static tokens, then each of `token_authenticators`. `tokens` may change at any time."""

    def __init__(self, clock: Clock, *, anonymous: bool = False) -> None:
        self.tokens: dict[str, StaticToken] = {}
        self.token_authenticators: list[TokenAuthenticator] = []
        self.anonymous = anonymous
        self._clock = clock

    async def authenticate(self, request: Request, peer: Peer) -> UserInfo:
        """Raises 401 for an invalid credential, and for none at all unless `anonymous`."""
        scheme, _, token = header(request, "Authorization").partition(" ")
        if scheme.lower() == "bearer" and token.strip():
            found = await self.authenticate_token(token.strip())
            if found is None:
                raise apierrors.unauthorized()
            return found
        if peer.certificate:
            by_certificate = user_from_certificate(peer.certificate, self._clock.now())
            if by_certificate is not None:
                return by_certificate
        if self.anonymous:
            return ANONYMOUS
        raise apierrors.unauthorized()

    async def authenticate_token(self, token: str) -> UserInfo | None:
        static = self.tokens.get(token)
        if static is not None:
            user, groups, expires = static
            if expires is not None and self._clock.now() >= expires:
                return None
            return UserInfo(user, _groups(*groups))
        for recognise in self.token_authenticators:
            found = await recognise(token)
            if found is not None:
                return found
        return None


def impersonation_checks(wanted: UserInfo, groups: list[str]) -> list[RequestInfo]:
    """The resources on which the caller needs the verb `impersonate`."""
    parts = wanted.username.split(":")
    if len(parts) == 4 and wanted.username.startswith("system:serviceaccount:"):
        user = RequestInfo("", "", "v1", "serviceaccounts", parts[2], parts[3])
    else:
        user = RequestInfo("", "", "v1", "users", "", wanted.username)
    checks = [user, *(RequestInfo("", "", "v1", "groups", "", group) for group in groups)]
    if wanted.uid:
        checks.append(RequestInfo("", AUTHN, "v1", "uids", "", wanted.uid))
    for key, values in wanted.extra.items():
        checks += [RequestInfo("", AUTHN, "v1", "userextras", "", value, key) for value in values]
    return checks


def read_impersonation(request: Request) -> UserInfo | None:
    """The user of the Impersonate headers, or None. Raises for groups, a uid or extras without a user."""
    user, groups = header(request, "Impersonate-User"), headers(request, "Impersonate-Group")
    uid, extra = header(request, "Impersonate-Uid"), _impersonated_extra(request)
    if not user:
        if groups or uid or extra:
            raise apierrors.status_error(
                500, "Internal error occurred: requested impersonation without impersonating a user"
            )
        return None
    if user.startswith("system:serviceaccount:") and not groups:
        namespace = user.split(":")[2]
        groups = ["system:serviceaccounts", f"system:serviceaccounts:{namespace}"]
    if user == ANONYMOUS.username:
        return UserInfo(user, tuple(groups) or ANONYMOUS.groups, uid, extra)
    return UserInfo(user, _groups(*groups), uid, extra)


_EXTRA = "impersonate-extra-"


def _impersonated_extra(request: Request) -> dict[str, tuple[str, ...]]:
    """The Impersonate-Extra-KEY headers, by the lower-case, unescaped key."""
    found: dict[str, tuple[str, ...]] = {}
    for name, value in request.headers:
        if name.lower().startswith(_EXTRA):
            key = unquote(name.lower().removeprefix(_EXTRA))
            found[key] = (*found.get(key, ()), value)
    return found
