"""Whom an API server takes a bearer token for, and whether it lets them see a page of ours.

Asks for `tokenreviews.authentication.k8s.io` and `subjectaccessreviews.authorization.k8s.io` (verb create, both of
them cluster-wide): the rights of the ClusterRole `system:auth-delegator`. Whoever reads the page needs
`nonResourceURLs: ["/metrics"], verbs: ["get"]`.
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
ANONYMOUS = {"username": "system:anonymous", "groups": ["system:unauthenticated"]}

Verdict = tuple[int, str]


class Reviews:
    """Answers are kept for ten seconds; questions that nobody can answer raise the KubeError."""

    def __init__(self, client: Client, clock: Clock) -> None:
        self._client = client
        self._clock = clock
        self._kept: OrderedDict[tuple[str, str, str], tuple[datetime, Verdict]] = OrderedDict()

    async def allow(self, token: str, verb: str, path: str) -> Verdict:
        """(200, ""), or 401 or 403 with the reason, for whoever shows `token` ("": nobody in particular)."""
        now = self._clock.now()
        key = (hashlib.sha256(token.encode()).hexdigest(), verb, path)
        kept = self._kept.get(key)
        if kept is not None and now - kept[0] < KEPT:
            return kept[1]
        verdict = await self._judge(token, verb, path)
        self._kept[key] = (now, verdict)
        if len(self._kept) > REMEMBERED:
            self._kept.popitem(last=False)
        return verdict

    async def _judge(self, token: str, verb: str, path: str) -> Verdict:
        user = await self._user(token) if token else ANONYMOUS
        if user is None:
            return 401, "Unauthorized"
        spec = {
            "nonResourceAttributes": {"path": path, "verb": verb},
            "user": user.get("username", ""),
            "groups": user.get("groups") or [],
            "uid": user.get("uid", ""),
            "extra": user.get("extra") or {},
        }
        said = await self._client.create(ACCESS_REVIEW, _question(ACCESS_REVIEW, spec))
        if dig(said, "status", "allowed") is True:
            return 200, ""
        return 403, f'forbidden: User "{user.get("username", "")}" cannot {verb} path "{path}"'

    async def _user(self, token: str) -> dict[str, Any] | None:
        said = await self._client.create(TOKEN_REVIEW, _question(TOKEN_REVIEW, {"token": token}))
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
