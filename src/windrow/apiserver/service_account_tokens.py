"""Service account tokens: issued and authenticated by the server itself.

They have the form of a real one (three dot-separated parts, the claims in the middle), signed with a key that lives
in the store beside the objects, so they outlive a restart. A token is refused once its ServiceAccount or its Secret is
deleted, or after its expiry.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import secrets
from datetime import datetime, timedelta
from typing import Any

from windrow.apiserver.context import ServerContext
from windrow.apiserver.request.info import UserInfo
from windrow.apiserver.storage.port import RevisionMismatch
from windrow.core.formats.fastjson import dumps, loads
from windrow.core.formats.json import NotJson
from windrow.kubernetes.objects import uid_of
from windrow.kubernetes.resources import SECRET, SERVICE_ACCOUNT

Raw = dict[str, Any]

ISSUER = "https://kubernetes.default.svc.cluster.local"
SIGNING_KEY = "internal/keys/token-signing"  # no type has this group, so no request reaches it


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
        bound: Raw | None = None,
    ) -> str:
        """A token for a ServiceAccount object; without `expires` it does not expire, as those in Secrets."""
        head = account["metadata"]
        inner: Raw = {
            "namespace": head["namespace"],
            "serviceaccount": {"name": head["name"], "uid": head["uid"]},
        }
        if secret is not None:
            inner["secret"] = {"name": secret["metadata"]["name"], "uid": secret["metadata"]["uid"]}
        if bound:
            inner[bound["kind"].lower()] = {"name": bound["name"], "uid": bound.get("uid", "")}
        now = int(self._context.clock.now().timestamp())
        claims: Raw = {"aud": [ISSUER], "iat": now, "nbf": now, "iss": ISSUER, "jti": self._context.rng.uid()}
        if expires is not None:
            claims["exp"] = int(expires.timestamp())
        claims["kubernetes.io"] = inner
        claims["sub"] = f"system:serviceaccount:{head['namespace']}:{head['name']}"
        text = f"{_encode(dumps({'alg': 'HS256', 'typ': 'JWT'}))}.{_encode(dumps(claims))}"
        return f"{text}.{_encode(await self._sign(text))}"

    async def _sign(self, text: str) -> bytes:
        return hmac.new(await self.key(), text.encode(), hashlib.sha256).digest()

    async def authenticate(self, token: str) -> UserInfo | None:
        """The user of the token; None when it was not issued here, or is no longer valid."""
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
        return await self._account(claims["kubernetes.io"])

    async def _account(self, inner: Raw) -> UserInfo | None:
        namespace, account = inner["namespace"], inner["serviceaccount"]
        for kind, named in ((SERVICE_ACCOUNT, account), (SECRET, inner.get("secret"))):
            entry = await self._context.find(kind, named["name"], namespace) if named else None
            if named and (entry is None or uid_of(entry.raw) != named["uid"]):
                return None
        return service_account_user(namespace, account["name"], account["uid"])


def service_account_user(namespace: str, name: str, uid: str = "") -> UserInfo:
    """The UserInfo of a service account."""
    groups = ("system:serviceaccounts", f"system:serviceaccounts:{namespace}", "system:authenticated")
    return UserInfo(f"system:serviceaccount:{namespace}:{name}", groups, uid)


MIN_LIFETIME = timedelta(minutes=10)
DEFAULT_LIFETIME = timedelta(hours=1)
