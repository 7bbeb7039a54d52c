"""Inventory of user-created objects on a Harvester: shows what a deleted cluster has left behind."""

from __future__ import annotations

from windrow.apiserver.server import ApiServer
from windrow.emulator import kinds
from windrow.emulator.system import NAMESPACES
from windrow.kubernetes.objects import Raw, name_of, namespace_of, nested
from windrow.kubernetes.resources import (
    CLUSTER_ROLE_BINDING,
    CONFIG_MAP,
    PVC,
    ROLE,
    ROLE_BINDING,
    SECRET,
    SERVICE_ACCOUNT,
    ApiResource,
)

# Kind, namespace ("" for cluster-wide), name; for an allocated address: "Address", IPPool, address.
Item = tuple[str, str, str]

COUNTED: tuple[ApiResource, ...] = (
    kinds.VM,
    kinds.VMI,
    kinds.MIGRATION,
    PVC,
    SECRET,
    CONFIG_MAP,
    SERVICE_ACCOUNT,
    ROLE,
    ROLE_BINDING,
    CLUSTER_ROLE_BINDING,
    kinds.IMAGE,
    kinds.KEY_PAIR,
    kinds.NAD,
    kinds.LOAD_BALANCER,
    kinds.IP_POOL,
)

# Created by the system in every namespace.
_OWN = frozenset({("ServiceAccount", "default"), ("ConfigMap", "kube-root-ca.crt")})
_SYSTEM = frozenset({*NAMESPACES, "kube-system", "kube-public", "kube-node-lease"}) - {"harvester-public"}


async def inventory(api: ApiServer) -> frozenset[Item]:
    """Every object that users and their programs created, and every allocated address of an IPPool; no Events."""
    client = api.local()
    found: set[Item] = set()
    for kind in COUNTED:
        found |= {_item(kind, raw) for raw in await client.list(kind) if _is_users(kind, raw)}
    for pool in await client.list(kinds.IP_POOL):
        found |= {
            ("Address", name_of(pool), address) for address in nested(pool, "status", "allocated") or ()
        }
    return frozenset(found)


def _item(kind: ApiResource, raw: Raw) -> Item:
    return kind.kind, namespace_of(raw), name_of(raw)


def _is_users(kind: ApiResource, raw: Raw) -> bool:
    own = (kind.kind, name_of(raw)) in _OWN or name_of(raw).startswith(
        ("system:", "cluster-admin", "harvester-authenticated")
    )
    return namespace_of(raw) not in _SYSTEM and not own
