"""Subresources of built-in types that are verbs of their own: token, eviction, binding, finalize."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

from windrow.apiserver import core as kernel
from windrow.apiserver import statuses
from windrow.apiserver.calls import Call
from windrow.apiserver.core import Core, Outcome, Plain, Single
from windrow.apiserver.store import Stale
from windrow.apiserver.tokens import SHORTEST, USUAL, Tokens
from windrow.apiserver.types import Type
from windrow.apiserver.verbs.delete import delete
from windrow.apiserver.writing import ATTEMPTS
from windrow.core.clock import format_time
from windrow.kubernetes.resources import ApiResource
from windrow.kubernetes.selectors import read_label_selector

Raw = dict[str, Any]

TOKEN_REQUEST = ApiResource("authentication.k8s.io", "v1", "TokenRequest", "tokenrequests")


async def token(core: Core, type: Type, call: Call) -> Outcome:
    """POST serviceaccounts/<n>/token: a token that expires."""
    account = await kernel.get(core, type, call.target)
    body = call.body if isinstance(call.body, dict) else {}
    spec = body.get("spec") or {}
    span = timedelta(seconds=int(spec.get("expirationSeconds") or USUAL.total_seconds()))
    if span < SHORTEST:
        text = "may not specify a duration less than 10 minutes"
        causes = [statuses.invalid_value("spec.expirationSeconds", int(span.total_seconds()), text)]
        raise statuses.invalid(TOKEN_REQUEST, "", causes)
    expires = core.clock.now() + span
    minted = await Tokens(core).mint(account.raw, expires=expires, bound=spec.get("boundObjectRef"))
    made = {
        "kind": "TokenRequest",
        "apiVersion": TOKEN_REQUEST.api_version,
        "metadata": {
            "name": call.target.name,
            "namespace": call.target.namespace,
            "creationTimestamp": core.stamp(),
        },
        "spec": {**spec, "expirationSeconds": int(span.total_seconds())},
        "status": {"token": minted, "expirationTimestamp": format_time(expires)},
    }
    return Plain(made, 201)


async def eviction(core: Core, type: Type, call: Call) -> Outcome:
    """POST pods/<n>/eviction: a delete that disruption budgets may hold up with 429."""
    pod = await kernel.get(core, type, call.target)
    await _check_budgets(core, pod.raw)
    options = (call.body or {}).get("deleteOptions") or {}
    call.body_options = {**options, **({"dryRun": "All"} if call.dry_run else {})}
    await delete(core, type, call)
    success = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201}
    return Plain(success, 201)


async def _check_budgets(core: Core, pod: Raw) -> None:
    budgets = core.registry.find_resource("policy", "poddisruptionbudgets")
    if budgets is None:
        return
    labels = pod["metadata"].get("labels") or {}
    for entry in (await core.store.range(budgets.prefix(pod["metadata"]["namespace"]))).entries:
        selector = (entry.raw.get("spec") or {}).get("selector")
        allowed = (entry.raw.get("status") or {}).get("disruptionsAllowed", 0)
        if selector is not None and read_label_selector(selector).matches(labels) and allowed < 1:
            name = entry.raw["metadata"]["name"]
            cause = {
                "reason": "DisruptionBudget",
                "message": f"The disruption budget {name} does not allow it",
            }
            raise statuses.fail(
                429,
                "Cannot evict pod as it would violate the pod's disruption budget.",
                details={"causes": [cause], "retryAfterSeconds": 10},
            )


async def binding(core: Core, type: Type, call: Call) -> Outcome:
    """POST pods/<n>/binding: the scheduler's word on where a pod runs."""
    node = ((call.body or {}).get("target") or {}).get("name", "")
    for _ in range(ATTEMPTS):
        pod = await kernel.get(core, type, call.target)
        spec = pod.raw.get("spec") or {}
        if spec.get("nodeName"):
            why = f'pod {call.target.name} is already assigned to node "{spec["nodeName"]}"'
            raise statuses.conflict(type.kind, call.target.name, why)
        placed = {**pod.raw, "spec": {**spec, "nodeName": node}, "status": _scheduled(core, pod.raw)}
        try:
            await core.store.commit(pod.key, placed, pod.rev)
        except Stale:
            continue
        return Plain(
            {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201}, 201
        )
    raise statuses.modified(type.kind, call.target.name)


def _scheduled(core: Core, pod: Raw) -> Raw:
    status = pod.get("status") or {}
    rest = [one for one in status.get("conditions") or () if one["type"] != "PodScheduled"]
    said = {
        "type": "PodScheduled",
        "status": "True",
        "lastProbeTime": None,
        "lastTransitionTime": core.stamp(),
    }
    return {**status, "conditions": [*rest, said]}


async def finalize(core: Core, type: Type, call: Call) -> Outcome:
    """PUT namespaces/<n>/finalize: only `spec.finalizers`; the last one gone ends a deleted namespace."""
    wanted = ((call.body or {}).get("spec") or {}).get("finalizers") or []
    for _ in range(ATTEMPTS):
        entry = await kernel.get(core, type, call.target)
        spec = {**(entry.raw.get("spec") or {}), "finalizers": wanted}
        if not wanted:
            del spec["finalizers"]
        raw = {**entry.raw, "spec": spec}
        head = raw["metadata"]
        gone = head.get("deletionTimestamp") and not wanted and not head.get("finalizers")
        try:
            return Single(type, await core.store.commit(entry.key, None if gone else raw, entry.rev))
        except Stale:
            continue
    raise statuses.modified(type.kind, call.target.name)


Handler = Callable[[Core, Type, Call], Awaitable[Outcome]]

HANDLERS: dict[tuple[str, str, str], Handler] = {
    ("serviceaccounts", "token", "create"): token,
    ("pods", "eviction", "create"): eviction,
    ("pods", "binding", "create"): binding,
    ("namespaces", "finalize", "update"): finalize,
}
