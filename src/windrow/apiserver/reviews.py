"""Questions put as objects: may I, who am I, whose token is this. Nothing is stored."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Protocol

from windrow.apiserver import statuses
from windrow.apiserver.calls import Call, Caller, Target
from windrow.apiserver.core import Plain
from windrow.apiserver.types import Type
from windrow.kubernetes.resources import SELF_SUBJECT_ACCESS_REVIEW, ApiResource

Raw = dict[str, Any]
AUTHN, AUTHZ = "authentication.k8s.io", "authorization.k8s.io"


class Guard(Protocol):
    """What reviews ask of the server."""

    async def allows(self, caller: Caller, verb: str, target: Target) -> bool: ...

    async def rules(self, caller: Caller, namespace: str) -> list[Raw]: ...

    async def by_token(self, token: str) -> Caller | None: ...


def _user(caller: Caller) -> Raw:
    made: Raw = {"username": caller.user, "groups": list(caller.groups)}
    if caller.uid:
        made["uid"] = caller.uid
    if caller.extra:
        made["extra"] = {key: list(values) for key, values in caller.extra.items()}
    return made


def _question(spec: Raw) -> tuple[str, Target]:
    resource, path = spec.get("resourceAttributes"), spec.get("nonResourceAttributes")
    if path:
        return path.get("verb", ""), Target(path.get("path", ""))
    asked = resource or {}
    target = Target(
        "",
        asked.get("group", ""),
        asked.get("version", ""),
        asked.get("resource", ""),
        asked.get("namespace", ""),
        asked.get("name", ""),
        asked.get("subresource", ""),
    )
    return asked.get("verb", ""), target


async def _judged(guard: Guard, caller: Caller, spec: Raw) -> Raw:
    verb, target = _question(spec)
    if await guard.allows(caller, verb, target):
        return {"allowed": True}
    return {"allowed": False}


async def _self_access(guard: Guard, call: Call, spec: Raw) -> Raw:
    if not spec.get("resourceAttributes") and not spec.get("nonResourceAttributes"):
        causes = [
            statuses.invalid_value(
                "spec.resourceAttributes",
                None,
                "exactly one of nonResourceAttributes or resourceAttributes must be specified",
            )
        ]
        raise statuses.invalid(SELF_SUBJECT_ACCESS_REVIEW, "", causes)
    return await _judged(guard, call.caller, spec)


async def _subject_access(guard: Guard, call: Call, spec: Raw) -> Raw:
    return await _judged(guard, Caller(spec.get("user", ""), tuple(spec.get("groups") or ())), spec)


async def _self_rules(guard: Guard, call: Call, spec: Raw) -> Raw:
    rules = await guard.rules(call.caller, spec.get("namespace", ""))
    return {
        "incomplete": False,
        "nonResourceRules": [
            {"nonResourceURLs": rule["nonResourceURLs"], "verbs": rule.get("verbs") or []}
            for rule in rules
            if rule.get("nonResourceURLs")
        ],
        "resourceRules": [
            {
                name: rule[name]
                for name in ("apiGroups", "resources", "resourceNames", "verbs")
                if rule.get(name)
            }
            for rule in rules
            if rule.get("resources")
        ],
    }


async def _self(guard: Guard, call: Call, spec: Raw) -> Raw:
    return {"userInfo": _user(call.caller)}


async def _token(guard: Guard, call: Call, spec: Raw) -> Raw:
    caller = await guard.by_token(spec.get("token", ""))
    if caller is None:
        return {"user": {}, "error": "invalid bearer token"}
    return {"authenticated": True, "user": _user(caller)}


Review = Callable[[Guard, Call, Raw], Awaitable[Raw]]

REVIEWS: dict[str, Review] = {
    f"selfsubjectaccessreviews.{AUTHZ}": _self_access,
    f"subjectaccessreviews.{AUTHZ}": _subject_access,
    f"localsubjectaccessreviews.{AUTHZ}": _subject_access,
    f"selfsubjectrulesreviews.{AUTHZ}": _self_rules,
    f"selfsubjectreviews.{AUTHN}": _self,
    f"tokenreviews.{AUTHN}": _token,
}

TYPES: tuple[Type, ...] = tuple(
    Type(kind, verbs=("create",))
    for kind in (
        SELF_SUBJECT_ACCESS_REVIEW,
        ApiResource(AUTHZ, "v1", "SubjectAccessReview", "subjectaccessreviews", namespaced=False),
        ApiResource(AUTHZ, "v1", "LocalSubjectAccessReview", "localsubjectaccessreviews"),
        ApiResource(AUTHZ, "v1", "SelfSubjectRulesReview", "selfsubjectrulesreviews", namespaced=False),
        ApiResource(AUTHN, "v1", "SelfSubjectReview", "selfsubjectreviews", namespaced=False),
        ApiResource(AUTHN, "v1", "TokenReview", "tokenreviews", namespaced=False),
    )
)


async def review(guard: Guard, type: Type, call: Call) -> Plain:
    """The object as sent, with the answer in its status."""
    body = call.body if isinstance(call.body, dict) else {}
    status = await REVIEWS[type.kind.group_resource](guard, call, body.get("spec") or {})
    head = {"creationTimestamp": None, **(body.get("metadata") or {})}
    made = {"kind": type.kind.kind, "apiVersion": type.kind.api_version, "metadata": head}
    if "spec" in body:
        made["spec"] = body["spec"]
    return Plain({**made, "status": status}, 201)
