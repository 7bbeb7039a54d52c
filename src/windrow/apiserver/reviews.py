"""Access and token reviews: evaluated on create, never stored."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Protocol

from windrow.apiserver import apierrors
from windrow.apiserver.context import JsonResult
from windrow.apiserver.request.info import ApiCall, RequestInfo, UserInfo
from windrow.apiserver.types.registry import ResourceType
from windrow.apiserver.verbs.metadata import read_object
from windrow.kubernetes.resources import (
    AUTHN,
    AUTHZ,
    LOCAL_SUBJECT_ACCESS_REVIEW,
    SELF_SUBJECT_ACCESS_REVIEW,
)

Raw = dict[str, Any]


class Authorizer(Protocol):
    """What reviews need of the server."""

    async def allows(self, user: UserInfo, verb: str, info: RequestInfo) -> bool: ...

    async def rules(self, user: UserInfo, namespace: str) -> list[Raw]: ...

    async def review_token(
        self, token: str, audiences: Sequence[str]
    ) -> tuple[UserInfo, tuple[str, ...]] | None: ...


def _user(user: UserInfo) -> Raw:
    made: Raw = {"username": user.username, "groups": list(user.groups)}
    if user.uid:
        made["uid"] = user.uid
    if user.extra:
        made["extra"] = {key: list(values) for key, values in user.extra.items()}
    return made


def _access_attributes(spec: Raw) -> tuple[str, RequestInfo]:
    if path := spec.get("nonResourceAttributes"):
        return path.get("verb", ""), RequestInfo(path.get("path", ""))
    asked = spec.get("resourceAttributes") or {}
    names = ("group", "version", "resource", "namespace", "name", "subresource")
    return asked.get("verb", ""), RequestInfo("", *(asked.get(name, "") for name in names))


async def _evaluate(guard: Authorizer, user: UserInfo, spec: Raw) -> Raw:
    verb, info = _access_attributes(spec)
    return {"allowed": await guard.allows(user, verb, info)}


async def _self_access(guard: Authorizer, call: ApiCall, spec: Raw) -> Raw:
    if not spec.get("resourceAttributes") and not spec.get("nonResourceAttributes"):
        causes = [
            apierrors.invalid_value(
                "spec.resourceAttributes",
                None,
                "exactly one of nonResourceAttributes or resourceAttributes must be specified",
            )
        ]
        raise apierrors.invalid(SELF_SUBJECT_ACCESS_REVIEW, "", causes)
    return await _evaluate(guard, call.user, spec)


async def _subject_access(guard: Authorizer, call: ApiCall, spec: Raw) -> Raw:
    return await _evaluate(guard, UserInfo(spec.get("user", ""), tuple(spec.get("groups") or ())), spec)


async def _local_subject_access(guard: Authorizer, call: ApiCall, spec: Raw) -> Raw:
    if (spec.get("resourceAttributes") or {}).get("namespace") != call.info.namespace:
        cause = apierrors.invalid_value(
            "spec.resourceAttributes.namespace",
            (spec.get("resourceAttributes") or {}).get("namespace"),
            "must match metadata.namespace",
        )
        raise apierrors.invalid(LOCAL_SUBJECT_ACCESS_REVIEW, "", [cause])
    return await _subject_access(guard, call, spec)


async def _self_rules(guard: Authorizer, call: ApiCall, spec: Raw) -> Raw:
    rules = await guard.rules(call.user, spec.get("namespace", ""))
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


async def _self(guard: Authorizer, call: ApiCall, spec: Raw) -> Raw:
    return {"userInfo": _user(call.user)}


async def _token(guard: Authorizer, call: ApiCall, spec: Raw) -> Raw:
    asked = tuple(map(str, spec.get("audiences") or ()))
    found = await guard.review_token(spec.get("token", ""), asked)
    if found is None:
        return {"user": {}, "error": "invalid bearer token"}
    user, audiences = found
    return {
        "authenticated": True,
        "user": _user(user),
        **({"audiences": list(audiences)} if asked else {}),
    }


Review = Callable[[Authorizer, ApiCall, Raw], Awaitable[Raw]]

REVIEWS: dict[str, Review] = {
    f"selfsubjectaccessreviews.{AUTHZ}": _self_access,
    f"subjectaccessreviews.{AUTHZ}": _subject_access,
    f"localsubjectaccessreviews.{AUTHZ}": _local_subject_access,
    f"selfsubjectrulesreviews.{AUTHZ}": _self_rules,
    f"selfsubjectreviews.{AUTHN}": _self,
    f"tokenreviews.{AUTHN}": _token,
}


async def review(guard: Authorizer, type: ResourceType, call: ApiCall) -> JsonResult:
    """The object as sent, with the result in its status."""
    body = read_object(type.kind, call.body)
    status = await REVIEWS[type.kind.group_resource](guard, call, body.get("spec") or {})
    head = {"creationTimestamp": None, **(body.get("metadata") or {})}
    made = {"kind": type.kind.kind, "apiVersion": type.kind.api_version, "metadata": head}
    if "spec" in body:
        made["spec"] = body["spec"]
    return JsonResult({**made, "status": status}, 201)
