"""Service account tokens: issued and authenticated by the server itself.

They have the form of a real one (three dot-separated parts, the claims in the middle), signed with a key that lives
in the store beside the objects, so they outlive a restart. A token is refused once its ServiceAccount, or the Secret,
Pod or Node that it is bound to, is deleted, after its expiry, and by whom it was not issued for (its audiences).
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import secrets
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

from windrow.apiserver.context import ServerContext
from windrow.apiserver.request.info import UserInfo
from windrow.apiserver.storage.port import RevisionMismatch
from windrow.core.formats.fastjson import dumps, loads
from windrow.core.formats.json import NotJson
from windrow.kubernetes.objects import uid_of
from windrow.kubernetes.resources import NODE, POD, SECRET, SERVICE_ACCOUNT, ApiResource

Raw = dict[str, Any]

ISSUER = "https://kubernetes.default.svc.cluster.local"
SIGNING_KEY = "internal/keys/token-signing"  # no type has this group, so no request reaches it

BOUND_KINDS = {"Pod": POD, "Secret": SECRET, "Node": NODE}
_BOUND_CLAIMS = {POD: "pod", SECRET: "secret", NODE: "node"}


def _encode(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def _decode(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))


class ServiceAccountTokens:
    def __init__(self, context: ServerContext) -> None:
        self._context = context
        self._key: bytes | None = None

    async def key(self) -> bytes:
        """The signing key; generated on first use."""
        if self._key is None:
            entry = await self._context.store.find(SIGNING_KEY)
            if entry is None:
                raw = {"metadata": {"name": "token-signing"}, "data": secrets.token_hex(32)}
                try:
                    entry = await self._context.store.commit(SIGNING_KEY, raw, None)
                except RevisionMismatch as stale:
                    entry = stale.current
            assert entry is not None
            self._key = bytes.fromhex(entry.raw["data"])
        return self._key

    async def issue(
        self,
        account: Raw,
        *,
        expires: datetime | None = None,
        secret: Raw | None = None,
        bound: tuple[ApiResource, Raw] | None = None,
        audiences: Sequence[str] = (ISSUER,),
    ) -> str:
        """A token for a ServiceAccount object; without `expires` it does not expire, as those in Secrets.

        `bound` is the object, of one of BOUND_KINDS, that it ends with.
        """
        head = account["metadata"]
        inner: Raw = {
            "namespace": head["namespace"],
            "serviceaccount": {"name": head["name"], "uid": head["uid"]},
        }
        if secret is not None:
            bound = SECRET, secret
        if bound is not None:
            kind, raw = bound
            inner[_BOUND_CLAIMS[kind]] = {"name": raw["metadata"]["name"], "uid": raw["metadata"]["uid"]}
        now = int(self._context.clock.now().timestamp())
        claims: Raw = {"aud": list(audiences), "iat": now, "nbf": now, "iss": ISSUER}
        claims["jti"] = self._context.rng.uid()
        if expires is not None:
            claims["exp"] = int(expires.timestamp())
        claims["kubernetes.io"] = inner
        claims["sub"] = f"system:serviceaccount:{head['namespace']}:{head['name']}"
        text = f"{_encode(dumps({'alg': 'HS256', 'typ': 'JWT'}))}.{_encode(dumps(claims))}"
        return f"{text}.{_encode(await self._sign(text))}"

    async def _sign(self, text: str) -> bytes:
        return hmac.new(await self.key(), text.encode(), hashlib.sha256).digest()

    async def authenticate(self, token: str) -> UserInfo | None:
        """The user of the token; None when it was not issued here and for this API, or is no longer valid."""
        found = await self.review(token, (ISSUER,))
        return found[0] if found else None

    async def review(self, token: str, audiences: Sequence[str]) -> tuple[UserInfo, tuple[str, ...]] | None:
        """The user of the token, and those of `audiences` that it was issued for; None where there is none."""
        text, _, signature = token.rpartition(".")
        try:
            if not hmac.compare_digest(_decode(signature), await self._sign(text)):
                return None
            claims = loads(_decode(text.partition(".")[2]))
        except (ValueError, NotJson):
            return None
        expires = claims.get("exp")
        if expires is not None and self._context.clock.now().timestamp() >= expires:
            return None
        common = tuple(one for one in audiences if one in claims["aud"])
        user = await self._account(claims["kubernetes.io"]) if common else None
        # An earlier version let the object that a token is bound to replace the account, but never the subject.
        return (user, common) if user is not None and user.username == claims["sub"] else None

    async def _account(self, inner: Raw) -> UserInfo | None:
        namespace, account = inner["namespace"], inner["serviceaccount"]
        named = {SERVICE_ACCOUNT: account, **{kind: inner.get(key) for kind, key in _BOUND_CLAIMS.items()}}
        for kind, one in named.items():
            if not one:
                continue
            entry = await self._context.find(kind, one["name"], namespace if kind.namespaced else "")
            if entry is None or uid_of(entry.raw) != one["uid"]:
                return None
        return service_account_user(namespace, account["name"], account["uid"])


def service_account_user(namespace: str, name: str, uid: str = "") -> UserInfo:
    """The UserInfo of a service account."""
    groups = ("system:serviceaccounts", f"system:serviceaccounts:{namespace}", "system:authenticated")
    return UserInfo(f"system:serviceaccount:{namespace}:{name}", groups, uid)


MIN_LIFETIME = timedelta(minutes=10)
DEFAULT_LIFETIME = timedelta(hours=1)
