"""Whom an API server takes a bearer token for, and whether it lets them see a page of ours.

Asks for `tokenreviews.authentication.k8s.io` and `subjectaccessreviews.authorization.k8s.io` (verb create, both of
them cluster-wide): the rights of the ClusterRole `system:auth-delegator`. Whoever reads the page needs
`nonResourceURLs: ["/metrics"], verbs: ["get"]`.

Whoever was let in before is asked about by a way of its own, which strangers cannot fill; of those, only so many wait
at once, and more are sent away. A stranger with the right still comes through once the crowd is gone.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from datetime import datetime, timedelta
from typing import Any

from windrow.client.client import Client
from windrow.kube.objects import dig
from windrow.kube.refs import Kind
from windrow.values.clock import Clock

TOKEN_REVIEW = Kind("authentication.k8s.io", "v1", "TokenReview", "tokenreviews", namespaced=False)
ACCESS_REVIEW = Kind(
    "authorization.k8s.io", "v1", "SubjectAccessReview", "subjectaccessreviews", namespaced=False
)
# As long as Kubernetes' own components rely on an answer.
KEPT = timedelta(seconds=10)
REMEMBERED = 256
# Those that were let in before, and the strangers that may wait at once.
KNOWN, STRANGERS = 64, 20
ANONYMOUS = {"username": "system:anonymous", "groups": ["system:unauthenticated"]}

HealthCheckResult = tuple[int, str]
Key = tuple[str, str, str]  # (hash of the token, verb, path)


class Reviews:
    """Answers are kept for ten seconds; questions that nobody can answer raise the KubeError."""

    def __init__(self, client: Client, clock: Clock, strangers: Client | None = None) -> None:
        """`strangers` asks about tokens that were not let in before; without it, `client` does."""
        self._client = client
        self._strangers = strangers or client
        self._clock = clock
        self._waiting = 0
        self._kept: OrderedDict[Key, tuple[datetime, HealthCheckResult]] = OrderedDict()
        # Apart, so that no crowd of strangers drives them out.
        self._known: OrderedDict[Key, datetime] = OrderedDict()

    async def allow(self, token: str, verb: str, path: str) -> HealthCheckResult:
        """(200, ""), or 401, 403 or 429 with the reason, for whoever shows `token` ("": nobody in particular)."""
        now = self._clock.now()
        key = (hashlib.sha256(token.encode()).hexdigest(), verb, path)
        if key in self._known:
            if now - self._known[key] < KEPT:
                return 200, ""
            verdict = await self._judge(self._client, token, verb, path)
        else:
            kept = self._kept.get(key)
            if kept is not None and now - kept[0] < KEPT:
                return kept[1]
            if self._waiting >= STRANGERS:
                return 429, "too many strangers ask at once; try again later"
            verdict = await self._judge_stranger(token, verb, path)
        self._remember(key, now, verdict)
        return verdict

    def _remember(self, key: Key, now: datetime, verdict: HealthCheckResult) -> None:
        self._known.pop(key, None)
        self._kept.pop(key, None)
        if verdict[0] == 200:
            self._known[key] = now
        else:
            self._kept[key] = now, verdict
        while len(self._known) > KNOWN:
            self._known.popitem(last=False)
        while len(self._kept) > REMEMBERED:
            self._kept.popitem(last=False)

    async def _judge_stranger(self, token: str, verb: str, path: str) -> HealthCheckResult:
        self._waiting += 1
        try:
            return await self._judge(self._strangers, token, verb, path)
        finally:
            self._waiting -= 1

    async def _judge(self, client: Client, token: str, verb: str, path: str) -> HealthCheckResult:
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
        said = await client.create(ACCESS_REVIEW, _question(ACCESS_REVIEW, spec))
        if dig(said, "status", "allowed") is True:
            return 200, ""
        return 403, f'forbidden: User "{user.get("username", "")}" cannot {verb} path "{path}"'


async def _user(client: Client, token: str) -> dict[str, Any] | None:
    said = await client.create(TOKEN_REVIEW, _question(TOKEN_REVIEW, {"token": token}))
    if dig(said, "status", "authenticated") is not True:
        return None
    user: dict[str, Any] = dig(said, "status", "user", default={})
    return user


def _question(kind: Kind, spec: dict[str, Any]) -> dict[str, Any]:
    return {
        "apiVersion": kind.api_version,
        "kind": kind.kind,
        "metadata": {},
        "spec": {key: value for key, value in spec.items() if value},
    }
