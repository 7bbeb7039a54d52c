"""Delegated authentication and authorization: may the bearer of a token get a page of this program?

Creates `tokenreviews.authentication.k8s.io` and `subjectaccessreviews.authorization.k8s.io`, cluster-wide: the rights
of the ClusterRole `system:auth-delegator`. The user who reads the page needs
`nonResourceURLs: ["/metrics"], verbs: ["get"]`.

Tokens that were authorized before are reviewed by a client of their own, with a rate limit that unknown tokens cannot
use up. At most 20 requests with unknown tokens wait at once; more are answered with 429.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from datetime import timedelta
from typing import Any

from windrow.client.client import Client
from windrow.core.clock import Clock
from windrow.kubernetes.objects import nested
from windrow.kubernetes.resources import SUBJECT_ACCESS_REVIEW, TOKEN_REVIEW, ApiResource

# As long as Kubernetes' own components cache a review.
CACHE_TTL = timedelta(seconds=10)
MAX_CACHED = 256
# Tokens that were authorized before, and requests with other tokens that may wait at once.
MAX_AUTHORIZED, MAX_PENDING = 64, 20
ANONYMOUS = {"username": "system:anonymous", "groups": ["system:unauthenticated"]}

AuthorizationDecision = tuple[int, str]  # (status code of the answer, reason)
_CacheKey = tuple[str, str, str]  # (hash of the token, verb, path)


class TokenReviewer:
    """Decisions are cached for ten seconds; a review that fails raises its KubeError."""

    def __init__(self, client: Client, clock: Clock, unknown_client: Client | None = None) -> None:
        """`unknown_client` reviews tokens that were not authorized before; without it, `client` does."""
        self._client = client
        self._unknown_client = unknown_client or client
        self._clock = clock
        self._pending = 0
        self._denied: OrderedDict[_CacheKey, tuple[timedelta, AuthorizationDecision]] = OrderedDict()
        # A cache of its own, so that many unknown tokens do not evict them.
        self._authorized: OrderedDict[_CacheKey, timedelta] = OrderedDict()

    async def authorize(self, token: str, verb: str, path: str) -> AuthorizationDecision:
        """(200, ""), or 401, 403 or 429 with the reason, for the bearer of `token` ("": anonymous)."""
        now = self._clock.monotonic()
        key = (hashlib.sha256(token.encode()).hexdigest(), verb, path)
        if key in self._authorized:
            if now - self._authorized[key] < CACHE_TTL:
                return 200, ""
            decision = await self._review(self._client, token, verb, path)
        else:
            cached = self._denied.get(key)
            if cached is not None and now - cached[0] < CACHE_TTL:
                return cached[1]
            if self._pending >= MAX_PENDING:
                return 429, "too many requests with unknown tokens; try again later"
            decision = await self._review_unknown(token, verb, path)
        self._cache(key, now, decision)
        return decision

    def _cache(self, key: _CacheKey, now: timedelta, decision: AuthorizationDecision) -> None:
        self._authorized.pop(key, None)
        self._denied.pop(key, None)
        if decision[0] == 200:
            self._authorized[key] = now
        else:
            self._denied[key] = now, decision
        while len(self._authorized) > MAX_AUTHORIZED:
            self._authorized.popitem(last=False)
        while len(self._denied) > MAX_CACHED:
            self._denied.popitem(last=False)

    async def _review_unknown(self, token: str, verb: str, path: str) -> AuthorizationDecision:
        self._pending += 1
        try:
            return await self._review(self._unknown_client, token, verb, path)
        finally:
            self._pending -= 1

    async def _review(self, client: Client, token: str, verb: str, path: str) -> AuthorizationDecision:
        user = await _user(client, token) if token else ANONYMOUS
        if user is None:
            return 401, "Unauthorized"
        spec = {
            "nonResourceAttributes": {"path": path, "verb": verb},
            "user": user.get("username", ""),
            "groups": user.get("groups") or [],
            "uid": user.get("uid", ""),
            "extra": user.get("extra") or {},
        }
        review = await client.create(SUBJECT_ACCESS_REVIEW, _review_object(SUBJECT_ACCESS_REVIEW, spec))
        if nested(review, "status", "allowed") is True:
            return 200, ""
        return 403, f'forbidden: User "{user.get("username", "")}" cannot {verb} path "{path}"'


async def _user(client: Client, token: str) -> dict[str, Any] | None:
    review = await client.create(TOKEN_REVIEW, _review_object(TOKEN_REVIEW, {"token": token}))
    if nested(review, "status", "authenticated") is not True:
        return None
    user: dict[str, Any] = nested(review, "status", "user", default={})
    return user


def _review_object(kind: ApiResource, spec: dict[str, Any]) -> dict[str, Any]:
    return {
        "apiVersion": kind.api_version,
        "kind": kind.kind,
        "metadata": {},
        "spec": {key: value for key, value in spec.items() if value},
    }
