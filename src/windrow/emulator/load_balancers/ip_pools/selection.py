"""Choice of the IPPool for a LoadBalancer without `spec.ipPool` (reference 02 §4.5)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from windrow.emulator.load_balancers import names
from windrow.kubernetes.objects import Raw, annotations_of, labels_of, namespace_of, nested


@dataclass(frozen=True, slots=True)
class Requirement:
    """What the pool's selector must match."""

    network: str
    project: str
    namespace: str
    cluster: str

    def __str__(self) -> str:
        """As Go prints it in the Ready condition."""
        return (
            f"&{{Network:{self.network} Project:{self.project} Namespace:{self.namespace} "
            f"Cluster:{self.cluster}}}"
        )


def requirement_of(balancer: Raw) -> Requirement:
    annotations = annotations_of(balancer)
    return Requirement(
        annotations.get(names.NETWORK, ""),
        annotations.get(names.PROJECT, ""),
        annotations.get(names.NAMESPACE) or namespace_of(balancer),
        annotations.get(names.CLUSTER, ""),
    )


def is_global(pool: Mapping[str, Any]) -> bool:
    """Whether the pool's one scope is all wildcards."""
    scopes = scopes_of(pool)
    return len(scopes) == 1 and scopes[0] == (names.ANY, names.ANY, names.ANY)


Scope = tuple[str, str, str]  # project, namespace, guest cluster


def scopes_of(pool: Mapping[str, Any]) -> list[Scope]:
    found: list[Mapping[str, str]] = nested(pool, "spec", "selector", "scope", default=[])
    return [
        (one.get("project") or "", one.get("namespace") or "", one.get("guestCluster") or "") for one in found
    ]


def network_of(pool: Mapping[str, Any]) -> str:
    return str(nested(pool, "spec", "selector", "network", default=""))


def priority_of(pool: Mapping[str, Any]) -> int:
    return int(nested(pool, "spec", "selector", "priority", default=0))


def matches(network: str, scopes: Iterable[Scope], wanted: Requirement, *, loosely: bool = False) -> bool:
    """Whether a selector of this network and these scopes matches `wanted`. Without scopes it matches nothing."""
    return network == wanted.network and any(_covers(scope, wanted, loosely) for scope in scopes)


def _covers(scope: Scope, wanted: Requirement, loosely: bool) -> bool:
    project, namespace, cluster = scope
    return (
        _equal(project, wanted.project, loosely)
        and _equal(namespace, wanted.namespace, False)
        and _equal(cluster, wanted.cluster, loosely)
    )


def _equal(scope: str, wanted: str, loosely: bool) -> bool:
    return names.ANY in (scope, wanted) or scope == wanted or (loosely and not scope)


def select_pool(pools: Iterable[Raw], wanted: Requirement, *, loosely: bool = False) -> Raw | None:
    """The matching pool of the highest priority, the last of equals; else the global pool, whatever its network."""
    chosen: Raw | None = None
    fallback: Raw | None = None
    for pool in pools:
        if labels_of(pool).get(names.GLOBAL_POOL) == "true":
            fallback = pool
        elif matches(network_of(pool), scopes_of(pool), wanted, loosely=loosely) and (
            chosen is None or priority_of(pool) >= priority_of(chosen)
        ):
            chosen = pool
    return chosen if chosen is not None else fallback
