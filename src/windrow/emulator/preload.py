"""Preloaded objects: namespaces, images, networks and key pairs that exist before a client connects.

Each object is given by name alone (`namespace/name`), or as a value with more fields.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal

from windrow.core.errors import UserError
from windrow.emulator import kinds, names
from windrow.emulator.host import images
from windrow.emulator.host.networks import Lan, render_network
from windrow.kubernetes.objects import Raw, new_object
from windrow.kubernetes.resources import NAMESPACE, ApiResource

FIRST_THIRD_OCTET = 50
MAX_LANS = 200

# A key without a known private half: for key pairs of which a manifest gives only the name.
PLACEHOLDER_KEY = (
    "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIGQw7+mTNoVY2dZFkT0u4hvnPMxs2h0kmqP8yH3n0l6V placeholder@windrow"
)


@dataclass(frozen=True, slots=True)
class Image:
    """A VirtualMachineImage. `import_outcome` is that of its download; `done` is imported already."""

    name: str  # namespace/name
    display_name: str = ""
    url: str = ""
    has_agent: bool = False  # has qemu-guest-agent in it
    missing_modules: tuple[str, ...] = ()  # kernel modules, as minimal kernels lack macvlan
    import_outcome: Literal["done", "", "fails", "stuck"] = "done"

    def render(self) -> Raw:
        namespace, short = _split(self.name)
        url = self.url or f"https://cloud-images.example/{short}.qcow2"
        annotations = {images.HAS_AGENT: "true" if self.has_agent else "false"}
        if self.missing_modules:
            annotations[images.MISSING_MODULES] = ",".join(self.missing_modules)
        if self.import_outcome:
            annotations[images.IMPORT_OUTCOME] = self.import_outcome
        return new_object(
            kinds.IMAGE,
            short,
            namespace,
            labels={names.IMAGE_TYPE: "iso" if url.lower().endswith(".iso") else "raw_qcow2"},
            annotations=annotations,
            spec={"displayName": self.display_name or short, "sourceType": "download", "url": url},
        )


@dataclass(frozen=True, slots=True)
class VmNetwork:
    """A VM network. Without `cidr` it gets a private /24 of its own."""

    name: str  # namespace/name
    vlan: int = 0
    cidr: str = ""
    gateway: str = ""
    cluster_network: str = "mgmt"
    ipv6_prefix: str = ""  # that its router advertises


@dataclass(frozen=True, slots=True)
class KeyPair:
    name: str  # namespace/name
    public_key: str = PLACEHOLDER_KEY


@dataclass(slots=True)
class LanAllocator:
    """Private ranges of networks without one: 192.168.50.0/24 and up, one per VLAN."""

    given: dict[tuple[str, int], str] = field(default_factory=dict)

    def cidr(self, network: VmNetwork) -> str:
        key = (network.cluster_network, network.vlan)
        if network.cidr:
            self.given.setdefault(key, network.cidr)
        if key not in self.given:
            taken = set(self.given.values())
            free = (f"192.168.{FIRST_THIRD_OCTET + step}.0/24" for step in range(MAX_LANS))
            self.given[key] = next(cidr for cidr in free if cidr not in taken)
        return self.given[key]


POOL_SUBNET, FIRST_OF_POOLS, POOL_SIZE = "192.168.100.0/24", 100, 10
MAX_IP_POOLS = 15  # for the last address of the subnet is its broadcast address


def render_ip_pool(name: str, place: int) -> Raw:
    """An IPPool of the management network, for LoadBalancers that name it: without a scope it is chosen for no other. Pools of
    two places have no address in common. Raises UserError where the network has no more."""
    if place >= MAX_IP_POOLS:
        raise UserError(
            f"IPPool {name} is number {place + 1}, and the management network of the emulated Harvester has addresses for "
            f"{MAX_IP_POOLS} pools",
            f"Let the manifests name {MAX_IP_POOLS} IPPools at most, or create it with ranges of your own.",
        )
    first = FIRST_OF_POOLS + POOL_SIZE * place
    network = POOL_SUBNET.rpartition(".")[0]
    ends = {"rangeStart": f"{network}.{first}", "rangeEnd": f"{network}.{first + POOL_SIZE - 1}"}
    return new_object(kinds.IP_POOL, name, spec={"ranges": [{"subnet": POOL_SUBNET, **ends}], "selector": {}})


def _split(name: str) -> tuple[str, str]:
    """Namespace and name of `namespace/name`; the namespace is `default` where there is none."""
    namespace, _, short = name.rpartition("/")
    return namespace or "default", short


def render_preload(
    *,
    images: Iterable[Image | str] = (),
    networks: Iterable[VmNetwork | str] = (),
    namespaces: Iterable[str] = (),
    key_pairs: Iterable[KeyPair | str] = (),
    lans: LanAllocator,
) -> list[tuple[ApiResource, Raw]]:
    """The objects to create, in order, with their namespaces."""
    made: list[tuple[ApiResource, Raw]] = []
    for image in images:
        made.append((kinds.IMAGE, (Image(image) if isinstance(image, str) else image).render()))
    for one in networks:
        network = VmNetwork(one) if isinstance(one, str) else one
        lan = Lan(lans.cidr(network), network.gateway, network.ipv6_prefix)
        raw = render_network(*_split(network.name), network.vlan, lan, network.cluster_network)
        made.append((kinds.NAD, raw))
    for key in key_pairs:
        pair = KeyPair(key) if isinstance(key, str) else key
        namespace, short = _split(pair.name)
        raw = new_object(kinds.KEY_PAIR, short, namespace, spec={"publicKey": pair.public_key})
        made.append((kinds.KEY_PAIR, raw))
    spaces = {*namespaces, *(raw["metadata"]["namespace"] for _, raw in made)}
    return [*((NAMESPACE, new_object(NAMESPACE, name)) for name in sorted(spaces)), *made]
