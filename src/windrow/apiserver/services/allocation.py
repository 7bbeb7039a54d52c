"""Allocation for Services: cluster IPs by family, node ports, and health check node ports.

Values are hashed from the Service's uid, so that they are spread as kube-apiserver spreads them and the same seed gives
the same values.
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
from windrow.apiserver.services.range_allocator import Owner, RangeAllocator
from windrow.apiserver.types import schema, service_defaults
from windrow.apiserver.types.registry import ResourceType
from windrow.apiserver.types.service_validation import validate_service
from windrow.kubernetes.errors import KubeError
from windrow.kubernetes.resources import SERVICE

Raw = dict[str, Any]
Network = ipaddress.IPv4Network | ipaddress.IPv6Network
_MAX_ADDRESSES = 1 << 16  # addresses of a range that are allocated at most
_TAKEN = "provided {} is already allocated"


@dataclass(frozen=True, slots=True)
class ServiceRanges:
    """One address range per family, the primary family first, and the node port range."""

    addresses: tuple[str, ...] = ("10.43.0.0/16",)
    node_ports: tuple[int, int] = (30000, 32767)


def render_kubernetes_service(ranges: ServiceRanges) -> dict[str, Any]:
    """Service default/kubernetes, on the first address of the range, as kube-apiserver creates it at start."""
    network = ipaddress.ip_network(ranges.addresses[0], strict=False)
    address = str(network.network_address + 1)
    return {
        "metadata": {
            "name": "kubernetes",
            "namespace": "default",
            "labels": {"component": "apiserver", "provider": "kubernetes"},
        },
        "spec": {
            "type": "ClusterIP",
            "clusterIP": address,
            "clusterIPs": [address],
            "internalTrafficPolicy": "Cluster",
            "ipFamilies": [f"IPv{network.version}"],
            "ipFamilyPolicy": "SingleStack",
            "ports": [{"name": "https", "port": 443, "protocol": "TCP", "targetPort": 6443}],
            "sessionAffinity": "None",
        },
    }


class ServiceAllocator:
    """A validating hook, the last one: allocates what the Service's type requires, once."""

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
        """The first address belongs to Service default/kubernetes; network and broadcast address are not allocated."""
        base = int(network.network_address)
        last = base + min(network.num_addresses, _MAX_ADDRESSES) - (2 if network.version == 4 else 1)
        kept = min(256, max(16, network.num_addresses // 16)) if network.num_addresses > 16 else 0
        return RangeAllocator(base + 2, last, max(kept - 2, 0), self._holds_address)

    async def admit(self, operation: AdmissionRequest) -> None:
        """Raises 422 for a value that is taken or out of range."""
        raw, old = operation.object, operation.old_object
        if operation.kind != SERVICE or operation.subresource or raw is None or "spec" not in raw:
            return
        if schema.validate(self._type.schema, raw):
            return  # reported by the schema validation that follows
        await self._load()
        spec, before = raw["spec"], (old or {}).get("spec") or {}
        service_defaults.apply_defaults(spec)
        if old is None:
            if spec.get("clusterIP") and not spec.get("clusterIPs"):
                spec["clusterIPs"] = [spec["clusterIP"]]
        else:
            service_defaults.drop_type_dependent_fields(spec, before)
            service_defaults.patch_allocated_values(spec, before)
        if validate_service(raw, old):
            return
        write = _ServiceWrite(raw, before, operation.dry_run, Owner(self._key(raw), raw["metadata"]["uid"]))
        self._resolve_families(write)
        await self._allocate_addresses(write)
        await self._allocate_node_ports(write)
        await self._allocate_health_check_port(write)

    # -- addresses

    def _resolve_families(self, write: _ServiceWrite) -> None:
        spec = write.spec
        if not service_defaults.has_addresses(spec):
            return
        lone = service_defaults.is_headless(spec) and not spec.get("selector")
        policy = spec.setdefault("ipFamilyPolicy", "RequireDualStack" if lone else "SingleStack")
        families = list(spec.get("ipFamilies") or ())
        addresses = [one for one in spec.get("clusterIPs") or () if one != service_defaults.HEADLESS]
        if policy == "SingleStack":
            families, addresses = self._drop_second_family(write, families, addresses)
        families += [_family_of(one) for one in addresses[len(families) :]]
        faults = [] if lone else self._family_faults(policy, families)
        if faults:
            raise write.refusal(faults)
        families = families or [next(iter(self._networks))]
        if policy != "SingleStack" and len(families) == 1 and (lone or len(self._networks) == 2):
            families.append("IPv6" if families[0] == "IPv4" else "IPv4")
        spec["ipFamilies"] = families

    def _drop_second_family(
        self, write: _ServiceWrite, families: list[str], addresses: list[str]
    ) -> tuple[list[str], list[str]]:
        """SingleStack: drops the second family that the Service had; refuses one that this request adds."""
        spec, old = write.spec, write.before
        for what, given, field in (
            ("cluster IPs", addresses, "clusterIPs"),
            ("IP families", families, "ipFamilies"),
        ):
            if len(given) > 1 and given != old.get(field):
                text = f"must be 'RequireDualStack' or 'PreferDualStack' when multiple {what} are specified"
                raise write.refusal([invalid_value("spec.ipFamilyPolicy", "SingleStack", text)])
        if len(addresses) > 1:
            spec["clusterIPs"] = addresses[:1]
        return families[:1], addresses[:1]

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

    async def _allocate_addresses(self, write: _ServiceWrite) -> None:
        spec = write.spec
        if not service_defaults.has_addresses(spec) or service_defaults.is_headless(spec):
            return
        requested_addresses = list(spec.get("clusterIPs") or ())
        kept = write.before.get("clusterIPs") or ()
        found: list[str] = []
        for index, family in enumerate(spec["ipFamilies"]):
            requested = requested_addresses[index] if index < len(requested_addresses) else ""
            if requested and requested in kept:
                found.append(requested)
            else:
                found.append(await self._allocate_address(write, family, requested, requested_addresses))
        spec["clusterIPs"], spec["clusterIP"] = found, found[0]

    async def _allocate_address(
        self, write: _ServiceWrite, family: str, requested: str, requested_addresses: list[str]
    ) -> str:
        allocator = self._addresses[family]
        if not requested:
            number = await allocator.find_free(write.owner, f"{write.owner.uid} {family}")
            if number is None:
                raise apierrors.internal(
                    f'failed to allocate a serviceIP for Service "{write.name}": range is full'
                )
        else:
            number = int(ipaddress.ip_address(requested))
            why = ""
            if number not in allocator:
                why = "the provided network does not match the current range"
            elif not await allocator.is_free(number, write.owner):
                why = _TAKEN.format("IP")
            if why:
                text = f"failed to allocate IP {requested}: {why}"
                raise write.refusal([invalid_value("spec.clusterIPs", requested_addresses, text)])
        if not write.dry_run:
            allocator.record(number, write.owner)
        return str(ipaddress.ip_address(number))

    # -- ports

    async def _allocate_node_ports(self, write: _ServiceWrite) -> None:
        spec = write.spec
        if not service_defaults.may_have_node_ports(spec):
            return
        own = set(service_defaults.node_ports_of(write.before))
        same: dict[int, int] = {}  # port numbers shared by two protocols share a node port
        if not write.before:
            same = {one["port"]: one["nodePort"] for one in reversed(spec["ports"]) if one.get("nodePort")}
        for index, port in enumerate(spec["ports"]):
            requested = port.get("nodePort")
            if requested:
                if requested not in own:
                    await self._reserve_node_port(write, requested, f"spec.ports[{index}].nodePort")
            elif service_defaults.gets_node_ports(spec):
                port["nodePort"] = same.get(port["port"]) or await self._allocate_node_port(write, index)
                if not write.before:
                    same[port["port"]] = port["nodePort"]
            own.update(service_defaults.node_ports_of(spec))

    async def _reserve_node_port(self, write: _ServiceWrite, requested: int, field: str) -> None:
        why = ""
        if requested not in self._ports:
            why = f"provided port is not in the valid range. The range of valid ports is {self._ports.first}-{self._ports.last}"
        elif not await self._ports.is_free(requested, write.owner):
            why = _TAKEN.format("port")
        if why:
            raise write.refusal([invalid_value(field, requested, why)])
        self._record_node_port(write, requested)

    async def _allocate_node_port(self, write: _ServiceWrite, index: int) -> int:
        number = await self._ports.find_free(write.owner, f"{write.owner.uid} {index}")
        if number is None:
            raise apierrors.internal("failed to allocate a nodePort: range is full")
        self._record_node_port(write, number)
        return number

    def _record_node_port(self, write: _ServiceWrite, number: int) -> None:
        if not write.dry_run:
            self._ports.record(number, write.owner)

    async def _allocate_health_check_port(self, write: _ServiceWrite) -> None:
        spec = write.spec
        if not service_defaults.needs_health_port(spec) or service_defaults.needs_health_port(write.before):
            return
        requested = spec.get("healthCheckNodePort")
        if not requested:
            spec["healthCheckNodePort"] = await self._allocate_node_port(write, -1)
            return
        if requested not in self._ports or not await self._ports.is_free(requested, write.owner):
            why = f"failed to allocate requested HealthCheck NodePort {requested}: {_TAKEN.format('port')}"
            raise apierrors.internal(why)
        self._record_node_port(write, requested)

    # -- what is taken

    @property
    def _type(self) -> ResourceType:
        found = self._context.registry.find_kind(SERVICE)
        assert found is not None
        return found

    def _key(self, raw: Raw) -> str:
        return self._type.key(raw["metadata"].get("namespace", ""), raw["metadata"]["name"])

    async def _load(self) -> None:
        """Once: record what the Services in the store hold."""
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
        """The Service as stored now; empty when it is deleted."""
        entry = await self._context.store.find(owner.key)
        return entry.raw if entry is not None and entry.raw["metadata"]["uid"] == owner.uid else {}

    async def _holds_address(self, owner: Owner, number: int) -> bool:
        found = await self._find_service(owner)
        return any(int(ipaddress.ip_address(one)) == number for one in _addresses_of(found))

    async def _holds_port(self, owner: Owner, number: int) -> bool:
        return number in _ports_of(await self._find_service(owner))


@dataclass(frozen=True, slots=True)
class _ServiceWrite:
    """One create or update of a Service."""

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
    return [one for one in found if one != service_defaults.HEADLESS]


def _ports_of(raw: Raw) -> list[int]:
    spec = raw.get("spec") or {}
    health = spec.get("healthCheckNodePort")
    return [*service_defaults.node_ports_of(spec), *([health] if health else [])]
