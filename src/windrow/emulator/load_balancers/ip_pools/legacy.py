"""Pools from before there were pools: the ConfigMap `kube-system/kubevip`, converted once at start (reference 02 §4.4).

Its keys are `cidr-<name>` and `range-<name>`, `name` being a namespace or `global`; the values are comma lists. What
services of a namespace had is in a ConfigMap of the same name there, and becomes the history of the pool.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Mapping, Sequence

from windrow.core.json import NotJson, loads
from windrow.emulator import kinds
from windrow.emulator.kit.client import AdminClient
from windrow.emulator.load_balancers import names
from windrow.emulator.load_balancers.ip_pools.ranges import AddressRange, BadRange, read_ranges
from windrow.kubernetes.objects import Raw, annotations_of, name_of, namespace_of, new_object
from windrow.kubernetes.resources import CONFIG_MAP

NAME, NAMESPACE, GLOBAL, SERVICES = "kubevip", "kube-system", "global", "kubevip-services"


async def convert(client: AdminClient) -> None:
    """Make the pools and mark the ConfigMap. May be repeated; without the ConfigMap there is nothing to do."""
    ref = CONFIG_MAP.ref(NAME, NAMESPACE)
    found = await client.find(ref)
    if found is None or annotations_of(found).get(names.CONVERTED) == "true":
        return
    maps, _ = await client.list_page(CONFIG_MAP)
    for pool in render_pools(found.get("data") or {}, [one for one in maps if name_of(one) == NAME]):
        await client.ensure(kinds.IP_POOL, pool)

    def mark(raw: Raw) -> None:
        raw["metadata"].setdefault("annotations", {})[names.CONVERTED] = "true"

    await client.mutate(ref, mark)


def render_pools(data: Mapping[str, str], maps: Iterable[Raw]) -> list[Raw]:
    """The pools that the ConfigMap's data stand for; `maps` are the ConfigMaps that say who had which address."""
    pools: dict[str, Raw] = {}
    for key, value in sorted(data.items(), key=lambda pair: not pair[0].endswith(f"-{GLOBAL}")):
        form, _, name = key.partition("-")
        ranges = _read_ranges(form, value)
        if name and ranges:
            pools[name] = _render(name, ranges)
    for one in maps:
        _remember(one, pools)
    return list(pools.values())


def _read_ranges(form: str, value: str) -> list[Raw]:
    """None of them where the form is unknown or one part cannot be read."""
    try:
        if form == "cidr":
            return [{"subnet": str(ipaddress.ip_network(part, strict=False))} for part in value.split(",")]
        if form == "range":
            return [_read_range(part) for part in value.split(",")]
    except ValueError:
        pass
    return []


def _read_range(text: str) -> Raw:
    start, _, end = text.partition("-")
    first, last = ipaddress.IPv4Address(start), ipaddress.IPv4Address(end)
    # The smallest network that holds both ends.
    prefix = 32 - (int(first) ^ int(last)).bit_length()
    subnet = ipaddress.IPv4Network((first, min(prefix, 31)), strict=False)
    return {"rangeStart": start, "rangeEnd": end, "subnet": str(subnet)}


def _render(name: str, ranges: list[Raw]) -> Raw:
    namespace = names.ANY if name == GLOBAL else name
    scope = {"project": names.ANY, "namespace": namespace, "guestCluster": names.ANY}
    status = {"total": 0, "available": 0, "lastAllocated": "", "allocatedHistory": {}}
    return new_object(
        kinds.IP_POOL, name, spec={"ranges": ranges, "selector": {"scope": [scope]}}, status=status
    )


def _remember(config: Raw, pools: Mapping[str, Raw]) -> None:
    """Addresses of one namespace's services, into its own pool or the global one."""
    try:
        services = loads((config.get("data") or {}).get(SERVICES, "{}")).get("services") or ()
    except (NotJson, AttributeError):
        return
    for service in services:
        address, where = str(service.get("vip", "")), namespace_of(config)
        for name in (where, GLOBAL):
            if name in pools and _holds(_spans(pools[name]), address):
                pools[name]["status"]["allocatedHistory"][address] = f"{where}/{service.get('serviceName')}"
                break


def _spans(pool: Raw) -> Sequence[AddressRange]:
    try:
        return read_ranges(pool["spec"]["ranges"])
    except BadRange:
        return ()


def _holds(ranges: Sequence[AddressRange], address: str) -> bool:
    try:
        found = ipaddress.ip_address(address)
    except ValueError:
        return False
    return any(range_.contains(found) for range_ in ranges)
