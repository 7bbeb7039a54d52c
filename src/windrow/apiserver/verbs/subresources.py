"""Subresources of built-in types that are verbs of their own: token, eviction, binding, finalize."""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

from windrow.apiserver import apierrors
from windrow.apiserver.context import JsonResult, ObjectResult, Result, ServerContext, get_entry
from windrow.apiserver.request.info import ApiCall
from windrow.apiserver.service_account_tokens import (
    BOUND_KINDS,
    DEFAULT_LIFETIME,
    ISSUER,
    MIN_LIFETIME,
    ServiceAccountTokens,
)
from windrow.apiserver.storage.port import Entry, RevisionMismatch
from windrow.apiserver.types import schema
from windrow.apiserver.types.registry import ResourceType
from windrow.apiserver.types.validation import finalizer_errors
from windrow.apiserver.verbs import metadata
from windrow.apiserver.verbs.delete import delete, read_delete_options
from windrow.apiserver.verbs.rest_storage import retry_on_conflict
from windrow.core.clock import format_time
from windrow.kubernetes.errors import KubeError
from windrow.kubernetes.resources import NAMESPACE, ApiResource
from windrow.kubernetes.selectors import read_label_selector

Raw = dict[str, Any]

TOKEN_REQUEST = ApiResource("authentication.k8s.io", "v1", "TokenRequest", "tokenrequests")
EVICTION = ApiResource("policy", "v1", "Eviction", "evictions")
BINDING = ApiResource("", "v1", "Binding", "bindings")
_TYPE_META = ("apiVersion", "kind")  # of DeleteOptions within an Eviction: not looked at
_STRING: schema.Schema = {"type": "string", "nullable": True}
TOKEN_REQUEST_SCHEMA: schema.Schema = {
    "type": "object",
    "properties": {
        "audiences": {"type": "array", "nullable": True, "items": {"type": "string"}},
        "expirationSeconds": {"type": "integer", "nullable": True, "maximum": 2**32},
        "boundObjectRef": {
            "type": "object",
            "nullable": True,
            "required": ["kind", "name"],
            "properties": {
                "apiVersion": _STRING,
                # The claims of a token have other meanings for other kinds.
                "kind": {"type": "string", "enum": ["Pod", "Secret", "Node"]},
                "name": {"type": "string", "minLength": 1},
                "uid": _STRING,
            },
        },
    },
}


async def token(context: ServerContext, type: ResourceType, call: ApiCall) -> Result:
    """POST serviceaccounts/<n>/token: issues a token that expires."""
    account = await get_entry(context, type, call.info)
    spec = metadata.read_object(TOKEN_REQUEST, call.body).get("spec") or {}
    if causes := schema.validate(TOKEN_REQUEST_SCHEMA, spec, "spec"):
        raise apierrors.invalid(TOKEN_REQUEST, "", causes)
    span = timedelta(seconds=int(spec.get("expirationSeconds") or DEFAULT_LIFETIME.total_seconds()))
    if span < MIN_LIFETIME:
        text = "may not specify a duration less than 10 minutes"
        causes = [apierrors.invalid_value("spec.expirationSeconds", int(span.total_seconds()), text)]
        raise apierrors.invalid(TOKEN_REQUEST, "", causes)
    expires = context.clock.now() + span
    ref = spec.get("boundObjectRef")
    bound = await _find_bound(context, account.raw, ref) if ref else None
    audiences = [str(one) for one in spec.get("audiences") or (ISSUER,)]
    minted = await ServiceAccountTokens(context).issue(
        account.raw, expires=expires, bound=bound, audiences=audiences
    )
    made = {
        "kind": "TokenRequest",
        "apiVersion": TOKEN_REQUEST.api_version,
        "metadata": {
            "name": call.info.name,
            "namespace": call.info.namespace,
            "creationTimestamp": context.timestamp(),
        },
        "spec": {**spec, "audiences": audiences, "expirationSeconds": int(span.total_seconds())},
        "status": {"token": minted, "expirationTimestamp": format_time(expires)},
    }
    return JsonResult(made, 201)


async def _find_bound(context: ServerContext, account: Raw, ref: Raw) -> tuple[ApiResource, Raw]:
    """The object that a token is to end with. Raises 400 for other kinds, 404 and 409 where it is not there."""
    version, kind_name, name = (str(ref.get(key) or "") for key in ("apiVersion", "kind", "name"))
    group, _, bare = version.rpartition("/")
    kind = BOUND_KINDS.get(kind_name)
    if kind is None or group or bare not in ("", "v1"):
        raise apierrors.bad_request(f"cannot bind token to object of type {group}/{bare}, Kind={kind_name}")
    head = account["metadata"]
    entry = await context.find(kind, name, head["namespace"] if kind.namespaced else "")
    if entry is None:
        raise apierrors.not_found(kind, name)
    runs_as = (entry.raw.get("spec") or {}).get("serviceAccountName") or "default"
    if kind_name == "Pod" and runs_as != head["name"]:
        why = "to pod running with different serviceaccount name."
        raise apierrors.bad_request(f'cannot bind token for serviceaccount "{head["name"]}" {why}')
    wanted, found = ref.get("uid"), entry.raw["metadata"]["uid"]
    if wanted and wanted != found:
        why = (
            f"the UID in the bound object reference ({wanted}) does not match the UID in record. "
            "The object might have been deleted and then recreated"
        )
        raise apierrors.conflict(kind, name, why)
    return kind, entry.raw


async def eviction(context: ServerContext, type: ResourceType, call: ApiCall) -> Result:
    """POST pods/<n>/eviction: a delete, refused with 429 by a PodDisruptionBudget."""
    body = metadata.read_object(EVICTION, call.body)
    metadata.check_place(EVICTION, body, call.info.name, call.info.namespace)
    call.delete_options = {
        name: value for name, value in (body.get("deleteOptions") or {}).items() if name not in _TYPE_META
    }
    read_delete_options(call)
    pod = await get_entry(context, type, call.info)
    if not _ignores_budgets(pod.raw):
        await _take_disruption(context, pod.raw, dry_run=bool(call.dry_run))
    await delete(context, type, call)
    return JsonResult(apierrors.success_status(code=201), 201)


def _ignores_budgets(pod: Raw) -> bool:
    """Whether the pod serves no client: it has ended, has not begun, or is deleted already."""
    phase = (pod.get("status") or {}).get("phase")
    return phase in ("Succeeded", "Failed", "Pending") or bool(pod["metadata"].get("deletionTimestamp"))


async def _take_disruption(context: ServerContext, pod: Raw, *, dry_run: bool) -> None:
    """Have the eviction counted by the pod's PodDisruptionBudget. Raises what forbids it."""
    type = context.registry.find_resource("policy", "poddisruptionbudgets")
    while type is not None:
        found = await _find_budget(context, type, pod)
        if found is None or _is_unhealthy_and_free(pod, found.raw):
            return
        _check_budget(found.raw)
        if dry_run:
            return
        status = _disrupted(found.raw, pod["metadata"]["name"], context.timestamp())
        with contextlib.suppress(RevisionMismatch):
            await context.store.commit(found.key, {**found.raw, "status": status}, found.rev)
            return


async def _find_budget(context: ServerContext, type: ResourceType, pod: Raw) -> Entry | None:
    labels = pod["metadata"].get("labels") or {}
    matching = [
        entry
        for entry in (await context.store.range(type.prefix(pod["metadata"]["namespace"]))).entries
        if (selector := (entry.raw.get("spec") or {}).get("selector")) is not None
        and read_label_selector(selector).matches(labels)
    ]
    if len(matching) > 1:
        why = (
            "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support."
        )
        raise apierrors.status_error(500, why)
    return matching[0] if matching else None


def _is_unhealthy_and_free(pod: Raw, budget: Raw) -> bool:
    """Whether the pod is not Ready and may go without being counted."""
    conditions = (pod.get("status") or {}).get("conditions") or ()
    if any(one["type"] == "Ready" and one["status"] == "True" for one in conditions):
        return False
    if (budget.get("spec") or {}).get("unhealthyPodEvictionPolicy") == "AlwaysAllow":
        return True
    status = budget.get("status") or {}
    desired = status.get("desiredHealthy", 0)
    return bool(desired > 0 and status.get("currentHealthy", 0) >= desired)


def _check_budget(budget: Raw) -> None:
    """Raises 429 where the budget spares none, or its controller has not seen it yet."""
    name, status = budget["metadata"]["name"], budget.get("status") or {}
    if status.get("observedGeneration", 0) < budget["metadata"].get("generation", 1):
        raise _too_many(f"The disruption budget {name} is still being processed by the server.", 10)
    if len(status.get("disruptedPods") or ()) > _MAX_DISRUPTED:
        why = "DisruptedPods map too big - too many evictions not confirmed by PDB controller"
        raise apierrors.status_error(403, f'poddisruptionbudgets.policy "{name}" is forbidden: {why}')
    if status.get("disruptionsAllowed", 0) < 1:
        desired, healthy = status.get("desiredHealthy", 0), status.get("currentHealthy", 0)
        raise _too_many(
            f"The disruption budget {name} needs {desired} healthy pods and has {healthy} currently"
        )


_MAX_DISRUPTED = 2000


def _too_many(why: str, retry_after_s: int = 0) -> KubeError:
    details: Raw = {"causes": [{"reason": "DisruptionBudget", "message": why}]}
    details |= {"retryAfterSeconds": retry_after_s} if retry_after_s else {}
    text = "Cannot evict pod as it would violate the pod's disruption budget."
    return apierrors.status_error(429, text, details=details)


def _disrupted(budget: Raw, pod: str, at: str) -> Raw:
    """The status with one disruption less."""
    status = dict(budget["status"])
    status["disruptionsAllowed"] -= 1
    status["disruptedPods"] = {**(status.get("disruptedPods") or {}), pod: at}
    if not status["disruptionsAllowed"]:
        status["conditions"] = [
            {**one, "status": "False", "reason": "InsufficientPods", "lastTransitionTime": at}
            if one["type"] == "DisruptionAllowed"
            else one
            for one in status.get("conditions") or ()
        ]
    return status


async def binding(context: ServerContext, type: ResourceType, call: ApiCall) -> Result:
    """POST pods/<n>/binding: sets the node of a pod."""
    body = metadata.read_object(BINDING, call.body)
    metadata.check_place(BINDING, body, call.info.name, call.info.namespace)
    target = body.get("target") or {}
    if target.get("kind", "") not in ("", "Node"):
        cause = apierrors.not_supported("target.kind", target["kind"], ("Node", "<empty>"))
        raise apierrors.invalid(BINDING, call.info.name, [cause])
    node = target.get("name", "")
    if not node:
        raise apierrors.invalid(BINDING, call.info.name, [apierrors.required("target.name")])

    async def write(pod: Entry) -> JsonResult:
        spec = pod.raw.get("spec") or {}
        if spec.get("nodeName"):
            why = f'pod {call.info.name} is already assigned to node "{spec["nodeName"]}"'
            raise apierrors.conflict(type.kind, call.info.name, why)
        placed = {**pod.raw, "spec": {**spec, "nodeName": node}, "status": _scheduled(context, pod.raw)}
        if not call.dry_run:
            await context.store.commit(pod.key, placed, pod.rev)
        return JsonResult(apierrors.success_status(code=201), 201)

    return await retry_on_conflict(context, type, call.info, write)


def _scheduled(context: ServerContext, pod: Raw) -> Raw:
    status = pod.get("status") or {}
    rest = [one for one in status.get("conditions") or () if one["type"] != "PodScheduled"]
    scheduled = {
        "type": "PodScheduled",
        "status": "True",
        "lastProbeTime": None,
        "lastTransitionTime": context.timestamp(),
    }
    return {**status, "conditions": [*rest, scheduled]}


async def finalize(context: ServerContext, type: ResourceType, call: ApiCall) -> Result:
    """PUT namespaces/<n>/finalize: only `spec.finalizers`; a deleted namespace without finalizers is removed."""
    body = metadata.read_object(NAMESPACE, call.body)
    name = (body.get("metadata") or {}).get("name", "")
    if not name:
        why = f"the name of the object ({call.info.name} based on URL) was undeterminable: name must be provided"
        raise apierrors.bad_request(why)
    if name != call.info.name:
        raise apierrors.bad_request(
            f"the name of the object ({name}) does not match the name on the URL ({call.info.name})"
        )
    wanted = (body.get("spec") or {}).get("finalizers") or []
    if causes := finalizer_errors("spec.finalizers", wanted):
        raise apierrors.invalid(NAMESPACE, name, causes)

    sent = (body.get("metadata") or {}).get("resourceVersion")

    async def write(entry: Entry) -> ObjectResult:
        if sent and sent != str(entry.rev):
            raise apierrors.modified(NAMESPACE, name)
        spec = {**(entry.raw.get("spec") or {}), "finalizers": wanted}
        if not wanted:
            del spec["finalizers"]
        raw = {**entry.raw, "spec": spec}
        if call.dry_run:
            return ObjectResult(type, Entry(entry.key, entry.rev, raw))
        head = raw["metadata"]
        remove = head.get("deletionTimestamp") and not wanted and not head.get("finalizers")
        return ObjectResult(type, await context.store.commit(entry.key, None if remove else raw, entry.rev))

    return await retry_on_conflict(context, type, call.info, write)


SubresourceVerb = Callable[[ServerContext, ResourceType, ApiCall], Awaitable[Result]]

SUBRESOURCE_VERBS: dict[tuple[str, str, str], SubresourceVerb] = {
    ("serviceaccounts", "token", "create"): token,
    ("pods", "eviction", "create"): eviction,
    ("pods", "binding", "create"): binding,
    ("namespaces", "finalize", "update"): finalize,
}
