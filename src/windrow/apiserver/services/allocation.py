"""What a server gives to Services: cluster addresses with their families, node ports, the port of health checks.

Values are chosen by the Service's uid, not by chance, so that they are spread as a real server spreads them and a
seeded story stays the same story.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from windrow.apiserver import apierrors
from windrow.apiserver.admission import AdmissionRequest
from windrow.apiserver.apierrors import Cause, invalid_value
from windrow.apiserver.context import ServerContext
from windrow.apiserver.services import defaults
from windrow.apiserver.services.range_allocator import Owner, RangeAllocator
from windrow.apiserver.services.validation import validate_service
from windrow.apiserver.types import schema
from windrow.apiserver.types.registry import ResourceType
from windrow.kubernetes.errors import KubeError
from windrow.kubernetes.resources import SERVICE

Raw = dict[str, Any]
Network = ipaddress.IPv4Network | ipaddress.IPv6Network
_MAX_ADDRESSES = 1 << 16  # addresses of one range that are ever given
_TAKEN = "provided {} is already allocated"


@dataclass(frozen=True, slots=True)
class ServiceRanges:
    """One address range per family, the cluster's own family first, and the ports that nodes keep for Services."""

    addresses: tuple[str, ...] = ("10.43.0.0/16",)
    node_ports: tuple[int, int] = (30000, 32767)


class ServiceAllocator:
    """An admission hook, to be the last one: gives every Service what its type has, once."""

    def __init__(self, context: ServerContext, ranges: ServiceRanges) -> None:
        self._context = context
        networks: list[Network] = [ipaddress.ip_network(one, strict=False) for one in ranges.addresses]
        self._networks = {f"IPv{one.version}": one for one in networks}
        self._addresses = {family: self._range_of(network) for family, network in self._networks.items()}
        first, last = ranges.node_ports
        kept = min(128, max(16, (last - first + 1) // 32)) if last - first >= 16 else 0
        self._ports = RangeAllocator(first, last, kept, self._holds_port)
        self._is_loaded = False

    def _range_of(self, network: Network) -> RangeAllocator:
        """The first address is the API's own Service; network and broadcast are nobody's."""
        base = int(network.network_address)
        last = base + min(network.num_addresses, _MAX_ADDRESSES) - (2 if network.version == 4 else 1)
        kept = min(256, max(16, network.num_addresses // 16)) if network.num_addresses > 16 else 0
        return RangeAllocator(base + 2, last, max(kept - 2, 0), self._holds_address)

    async def admit(self, operation: AdmissionRequest) -> None:
        """Raises the 422 for a value that is taken or outside of its range."""
        raw, old = operation.object, operation.old_object
        if operation.kind != SERVICE or operation.subresource or raw is None or "spec" not in raw:
            return
        if schema.validate(self._type.schema, raw):
            return  # the server's own check, which comes next, says what is wrong
        await self._load()
        spec, before = raw["spec"], (old or {}).get("spec") or {}
        defaults.apply_defaults(spec)
        if old is None:
            if spec.get("clusterIP") and not spec.get("clusterIPs"):
                spec["clusterIPs"] = [spec["clusterIP"]]
        else:
            defaults.drop_type_dependent_fields(spec, before)
            defaults.patch_allocated_values(spec, before)
        if validate_service(raw, old):
            return
        given = _ServiceWrite(raw, before, operation.dry_run, Owner(self._key(raw), raw["metadata"]["uid"]))
        self._resolve_families(given)
        await self._allocate_addresses(given)
        await self._allocate_node_ports(given)
        await self._allocate_health_check_port(given)

    # -- addresses

    def _resolve_families(self, given: _ServiceWrite) -> None:
        spec = given.spec
        if not defaults.has_addresses(spec):
            return
        lone = defaults.is_headless(spec) and not spec.get("selector")
        policy = spec.setdefault("ipFamilyPolicy", "RequireDualStack" if lone else "SingleStack")
        families = list(spec.get("ipFamilies") or ())
        addresses = [one for one in spec.get("clusterIPs") or () if one != defaults.HEADLESS]
        if policy == "SingleStack":
            families, addresses = self._drop_second_family(given, families, addresses)
        families += [_family_of(one) for one in addresses[len(families) :]]
        faults = [] if lone else self._family_faults(policy, families)
        if faults:
            raise given.refusal(faults)
        families = families or [next(iter(self._networks))]
        if policy != "SingleStack" and len(families) == 1 and (lone or len(self._networks) == 2):
            families.append("IPv6" if families[0] == "IPv4" else "IPv4")
        spec["ipFamilies"] = families

    def _drop_second_family(
        self, given: _ServiceWrite, families: list[str], addresses: list[str]
    ) -> tuple[list[str], list[str]]:
        """One family is enough for this policy: what the Service had of a second one goes, unless it was asked for."""
        spec, old = given.spec, given.before
        text = "must be 'RequireDualStack' or 'PreferDualStack' when multiple {} are specified"
        if len(addresses) > 1:
            if addresses != old.get("clusterIPs"):
                raise given.refusal(
                    [invalid_value("spec.ipFamilyPolicy", "SingleStack", text.format("cluster IPs"))]
                )
            addresses = spec["clusterIPs"] = addresses[:1]
        if len(families) > 1:
            if families != old.get("ipFamilies"):
                raise given.refusal(
                    [invalid_value("spec.ipFamilyPolicy", "SingleStack", text.format("IP families"))]
                )
            families = families[:1]
        return families, addresses

    def _family_faults(self, policy: str, families: Sequence[str]) -> list[Cause]:
        faults = []
        if policy == "RequireDualStack" and len(self._networks) < 2:
            text = "this cluster is not configured for dual-stack services"
            faults.append(invalid_value("spec.ipFamilyPolicy", policy, text))
        for index, family in enumerate(families):
            if family not in self._networks:
                text = "not configured on this cluster"
                faults.append(invalid_value(f"spec.ipFamilies[{index}]", family, text))
        return faults

    async def _allocate_addresses(self, given: _ServiceWrite) -> None:
        spec = given.spec
        if not defaults.has_addresses(spec) or defaults.is_headless(spec):
            return
        wished = list(spec.get("clusterIPs") or ())
        kept = given.before.get("clusterIPs") or ()
        found: list[str] = []
        for index, family in enumerate(spec["ipFamilies"]):
            wish = wished[index] if index < len(wished) else ""
            if wish and wish in kept:
                found.append(wish)
            else:
                found.append(await self._allocate_address(given, family, wish, wished))
        spec["clusterIPs"], spec["clusterIP"] = found, found[0]

    async def _allocate_address(self, given: _ServiceWrite, family: str, wish: str, wished: list[str]) -> str:
        taken = self._addresses[family]
        if not wish:
            number = await taken.find_free(given.owner, f"{given.owner.uid} {family}")
            if number is None:
                raise apierrors.internal(
                    f'failed to allocate a serviceIP for Service "{given.name}": range is full'
                )
        else:
            number = int(ipaddress.ip_address(wish))
            why = ""
            if number not in taken:
                why = "the provided network does not match the current range"
            elif not await taken.is_free(number, given.owner):
                why = _TAKEN.format("IP")
            if why:
                text = f"failed to allocate IP {wish}: {why}"
                raise given.refusal([invalid_value("spec.clusterIPs", wished, text)])
        if not given.dry_run:
            taken.record(number, given.owner)
        return str(ipaddress.ip_address(number))

    # -- ports

    async def _allocate_node_ports(self, given: _ServiceWrite) -> None:
        spec = given.spec
        if not defaults.may_have_node_ports(spec):
            return
        own = set(defaults.node_ports_of(given.before))
        same: dict[int, int] = {}  # a port number that two protocols share has one node port
        if not given.before:
            same = {one["port"]: one["nodePort"] for one in reversed(spec["ports"]) if one.get("nodePort")}
        for index, port in enumerate(spec["ports"]):
            wish = port.get("nodePort")
            if wish:
                if wish not in own:
                    await self._reserve_node_port(given, wish, f"spec.ports[{index}].nodePort")
            elif defaults.gets_node_ports(spec):
                port["nodePort"] = same.get(port["port"]) or await self._allocate_node_port(given, index)
                if not given.before:
                    same[port["port"]] = port["nodePort"]
            own.update(defaults.node_ports_of(spec))

    async def _reserve_node_port(self, given: _ServiceWrite, wish: int, field: str) -> None:
        why = ""
        if wish not in self._ports:
            why = f"provided port is not in the valid range. The range of valid ports is {self._ports.first}-{self._ports.last}"
        elif not await self._ports.is_free(wish, given.owner):
            why = _TAKEN.format("port")
        if why:
            raise given.refusal([invalid_value(field, wish, why)])
        self._record_node_port(given, wish)

    async def _allocate_node_port(self, given: _ServiceWrite, index: int) -> int:
        number = await self._ports.find_free(given.owner, f"{given.owner.uid} {index}")
        if number is None:
            raise apierrors.internal("failed to allocate a nodePort: range is full")
        self._record_node_port(given, number)
        return number

    def _record_node_port(self, given: _ServiceWrite, number: int) -> None:
        if not given.dry_run:
            self._ports.record(number, given.owner)

    async def _allocate_health_check_port(self, given: _ServiceWrite) -> None:
        spec = given.spec
        if not defaults.needs_health_port(spec) or defaults.needs_health_port(given.before):
            return
        wish = spec.get("healthCheckNodePort")
        if not wish:
            spec["healthCheckNodePort"] = await self._allocate_node_port(given, -1)
            return
        if wish not in self._ports or not await self._ports.is_free(wish, given.owner):
            why = f"failed to allocate requested HealthCheck NodePort {wish}: {_TAKEN.format('port')}"
            raise apierrors.internal(why)
        self._record_node_port(given, wish)

    # -- what is taken

    @property
    def _type(self) -> ResourceType:
        found = self._context.registry.find_kind(SERVICE)
        assert found is not None
        return found

    def _key(self, raw: Raw) -> str:
        return self._type.key(raw["metadata"].get("namespace", ""), raw["metadata"]["name"])

    async def _load(self) -> None:
        """Once: what the Services in the store have."""
        if self._is_loaded:
            return
        for entry in (await self._context.store.range(self._type.prefix())).entries:
            owner = Owner(entry.key, entry.raw["metadata"]["uid"])
            for text in _addresses_of(entry.raw):
                self._addresses[_family_of(text)].record(int(ipaddress.ip_address(text)), owner)
            for number in _ports_of(entry.raw):
                self._ports.record(number, owner)
        self._is_loaded = True

    async def _find_service(self, owner: Owner) -> Raw:
        """The owner as it is now; nothing where it is gone."""
        entry = await self._context.store.find(owner.key)
        return entry.raw if entry is not None and entry.raw["metadata"]["uid"] == owner.uid else {}

    async def _holds_address(self, owner: Owner, number: int) -> bool:
        found = await self._find_service(owner)
        return any(int(ipaddress.ip_address(one)) == number for one in _addresses_of(found))

    async def _holds_port(self, owner: Owner, number: int) -> bool:
        return number in _ports_of(await self._find_service(owner))


@dataclass(frozen=True, slots=True)
class _ServiceWrite:
    """One Service that is about to be written."""

    raw: Raw
    before: Raw  # its spec until now, empty for a new one
    dry_run: bool
    owner: Owner

    @property
    def spec(self) -> Raw:
        found: Raw = self.raw["spec"]
        return found

    @property
    def name(self) -> str:
        return str(self.raw["metadata"]["name"])

    def refusal(self, causes: Sequence[Cause]) -> KubeError:
        return apierrors.invalid(SERVICE, self.name, causes)


def _family_of(address: str) -> str:
    return f"IPv{ipaddress.ip_address(address).version}"


def _addresses_of(raw: Raw) -> list[str]:
    found = (raw.get("spec") or {}).get("clusterIPs") or ()
    return [one for one in found if one != defaults.HEADLESS]


def _ports_of(raw: Raw) -> list[int]:
    spec = raw.get("spec") or {}
    health = spec.get("healthCheckNodePort")
    return [*defaults.node_ports_of(spec), *([health] if health else [])]
