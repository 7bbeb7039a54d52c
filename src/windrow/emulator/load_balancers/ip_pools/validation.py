"""Mutation and validation of IPPools as in Harvester's webhook (reference 02 §4.6)."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from windrow.emulator import names as cluster_names
from windrow.emulator.host.networks import BadNetwork, read_config
from windrow.emulator.load_balancers import names
from windrow.emulator.load_balancers.ip_pools.ranges import (
    AddressRange,
    BadRange,
    read_ranges,
    render_go_struct,
    render_go_structs,
)
from windrow.emulator.load_balancers.ip_pools.selection import (
    Requirement,
    Scope,
    is_global,
    matches,
    network_of,
    priority_of,
    scopes_of,
)
from windrow.kubernetes.objects import Raw, labels_of, name_of, nested

IN_USE = "can't delete pool before releasing all the allocated IP"


class BadPool(ValueError):
    """The pool is refused; the message is the webhook's, without its head."""


def split_network(pool: Mapping[str, Any]) -> tuple[str, str] | None:
    """Namespace and name of the pool's network; None where it names none. Raises BadPool."""
    text = network_of(pool)
    if not text:
        return None
    namespace, slash, name = text.partition("/")
    if not slash or "/" in name:
        raise BadPool(f"invalid network {text}")
    return namespace, name


def label_pool(pool: Raw, network: Raw | None) -> None:
    """Set the labels `vid` and `global-ip-pool`. Raises BadPool. May be repeated."""
    labels = pool["metadata"].get("labels") or {}
    pool["metadata"]["labels"] = labels
    labels[names.VLAN] = str(_vlan(network))
    labels[names.GLOBAL_POOL] = "true" if is_global(pool) else "false"


def _vlan(network: Raw | None) -> int:
    if network is None:
        return 0
    text = labels_of(network).get(cluster_names.VLAN_ID)
    if text is not None:
        try:
            return int(text)
        except ValueError:
            raise BadPool(f"invalid vlan {text}") from None
    try:
        return int(read_config(network).get("vlan") or 0)
    except BadNetwork as error:
        raise BadPool(str(error)) from error


def check_pool(pool: Raw, others: Iterable[Raw], *, is_update: bool) -> None:
    """Raises BadPool when the pool may not be as it is. `others` are all pools and may include this one."""
    others = [one for one in others if name_of(one) != name_of(pool)]
    ranges = nested(pool, "spec", "ranges", default=[])
    if not ranges:
        raise BadPool("range can't be empty")
    try:
        ranges = read_ranges(ranges)
        taken = [read_ranges(nested(one, "spec", "ranges", default=[])) for one in others]
    except BadRange as error:
        raise BadPool(str(error)) from error
    _check_overlaps(ranges, taken)
    if is_update:
        _check_allocated(ranges, nested(pool, "status", "allocated", default={}))
    _check_selector(pool, others)


def _check_overlaps(ranges: Sequence[AddressRange], taken: Iterable[Sequence[AddressRange]]) -> None:
    for place, one in enumerate(ranges):
        for other in ranges[place + 1 :]:
            if one.overlaps(other):
                raise BadPool(
                    f"there are overlaps between range {render_go_struct(one)} and {render_go_struct(other)}"
                )
    if any(one.overlaps(other) for others in taken for one in ranges for other in others):
        raise BadPool(f"the ranges {render_go_structs(ranges)} overlap with other pools")


def _check_allocated(ranges: Sequence[AddressRange], allocated: Mapping[str, str]) -> None:
    for text in allocated:
        try:
            address = ipaddress.ip_address(text)
        except ValueError:
            raise BadPool(f"invalid ip string {text}") from None
        if not any(range_.contains(address) for range_ in ranges):
            raise BadPool(f"allocated IP {text} is excluded")


def _check_selector(pool: Raw, others: Sequence[Raw]) -> None:
    if is_global(pool):
        for other in others:
            if labels_of(other).get(names.GLOBAL_POOL) == "true":
                raise BadPool(f"there is already a global IP pool: {name_of(other)}")
        return
    network, scopes = network_of(pool), scopes_of(pool)
    for place, scope in enumerate(scopes):
        if matches(network, scopes[place + 1 :], _requirement(network, scope)):
            raise BadPool(f"selector {_render_selector(pool)} is invalid: scope overlaps")
    for other in others:
        if not is_global(other):
            _check_against(pool, other)


def _check_against(pool: Raw, other: Raw) -> None:
    priority = priority_of(other)
    if priority and priority == priority_of(pool):
        raise BadPool(f"the priority can't be the same as the pool {name_of(other)}")
    if priority or priority_of(pool):
        return
    for scope in scopes_of(pool):
        if matches(network_of(other), scopes_of(other), _requirement(network_of(pool), scope)):
            raise BadPool(
                f"scope selector is same as the pool {name_of(other)} with priority 0 Project {scope[0]} "
                f"Namespace {scope[1]} GuestCluster {scope[2]}, set a different priority or scope"
            )


def _requirement(network: str, scope: Scope) -> Requirement:
    return Requirement(network, *scope)


def _render_selector(pool: Raw) -> str:
    """As Go prints the structure."""
    scopes = " ".join(
        f"{{Project:{project} Namespace:{namespace} GuestCluster:{cluster}}}"
        for project, namespace, cluster in scopes_of(pool)
    )
    return f"{{Priority:{priority_of(pool)} Network:{network_of(pool)} Scope:[{scopes}]}}"
