"""Typed readings of guest Services, of the network map, and of LoadBalancers on Harvester: what the plans need, no more."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from windrow.cloudprovider import names
from windrow.cloudprovider.names import load_balancer_name
from windrow.core.formats.json import loads_or_none
from windrow.harvester import names as harvester_names
from windrow.harvester.resources import LOAD_BALANCER
from windrow.kubernetes.conditions import find_condition
from windrow.kubernetes.objects import (
    Raw,
    annotations_of,
    finalizers_of,
    is_deleting,
    labels_of,
    name_of,
    namespace_of,
    nested,
    objects_at,
    resource_version_of,
    text_at,
    uid_of,
)
from windrow.kubernetes.resources import SERVICE, ObjectRef

Port = tuple[str, int]  # protocol, number


@dataclass(frozen=True, slots=True)
class Service:
    """A service of the guest cluster. Empty texts stand for what is absent.

    Each write rests on `version`, so a change of anything makes another reading.
    """

    namespace: str
    name: str
    uid: str
    version: str = ""
    created: str = ""
    is_load_balancer: bool = False  # type LoadBalancer
    load_balancer_class: str = ""
    has_local_policy: bool = False  # externalTrafficPolicy Local
    is_deleting: bool = False
    finalizers: tuple[str, ...] = ()
    ports: tuple[Port, ...] = ()
    requested_address: str = ""  # spec.loadBalancerIP
    families: tuple[str, ...] = ()  # spec.ipFamilies: `IPv4`, `IPv6`, or both, the primary one first
    requires_both: bool = False  # ipFamilyPolicy RequireDualStack
    ingress: tuple[str, ...] = ()

    # Annotations by users.
    ipam: str = ""
    network: str = ""
    project: str = ""
    project_namespace: str = ""
    primary: str = ""
    pool: str = ""
    second_pool: str = ""  # for the address of the other family
    more_pools: tuple[str, ...] = ()  # beyond these two, which nothing is done with
    ignored_annotations: tuple[str, ...] = ()  # without effect: of versions before 0.2, or known to none
    ignores_vip: bool = False

    # What we wrote before, None where it is absent, and what kube-vip wrote.
    addresses: str | None = None
    awaits_address: bool = False  # kube-vip passes it over, by our annotation
    interface: str | None = None
    lease: str | None = None  # of kube-vip's election
    primary_label: str | None = None  # as it is written
    has_ipam: bool = False
    vip_keys: tuple[str, ...] = ()

    @property
    def ref(self) -> ObjectRef:
        return SERVICE.ref(self.name, self.namespace)

    @property
    def title(self) -> str:
        return f"{self.namespace}/{self.name}"

    @property
    def wants_load_balancer(self) -> bool:
        return self.is_load_balancer and not self.load_balancer_class

    @property
    def has_finalizer(self) -> bool:
        """Whether it stays until its load balancer is gone."""
        return names.FINALIZER in self.finalizers

    @property
    def assigned(self) -> frozenset[str]:
        """The addresses in the annotation for kube-vip; also where a user has edited the list."""
        return frozenset(one.strip() for one in (self.addresses or "").split(",")) - {""}

    @property
    def shown(self) -> frozenset[str]:
        """Those, and the ones that it has."""
        return self.assigned.union(self.ingress)

    @property
    def may_be_announced(self) -> bool:
        """Whether kube-vip announces an address for it now, or did."""
        return bool(self.ingress or self.assigned or self.vip_keys)

    @property
    def stalls_kube_vip(self) -> bool:
        """Whether kube-vip 1.2 and later waits for an address of it, and serves no other service meanwhile."""
        has_address = self.addresses is not None or self.ingress or self.requested_address
        return self.wants_load_balancer and not (has_address or self.ignores_vip)

    @property
    def mode(self) -> str:
        """Where its address comes from: `pool` where it does not say."""
        return self.ipam or "pool"

    @property
    def uses_dhcp(self) -> bool:
        return self.mode == "dhcp"

    @property
    def requested(self) -> tuple[str, ...]:
        """The address, the pools and the families that it asks for."""
        return self.requested_address, self.pool, self.second_pool, *self.families


def family_of(address: str) -> str:
    """The family of an address, in the words of `spec.ipFamilies`."""
    return "IPv6" if ":" in address else "IPv4"


MAX_IDLE_KEYS = 20  # each is compared with all that are known, and named in an event


# Before the name of an annotation that is written as a label, where annotations are listed.
AS_LABEL = "label "


def _list_ignored_annotations(annotations: Mapping[str, str], labels: Mapping[str, str]) -> tuple[str, ...]:
    """The annotations that look like the cloud provider's, and have no effect; those that are labels begin with AS_LABEL."""
    known = (*names.SERVICE_KEYS, names.AWAITS_ADDRESS)
    removed = [key for key in names.REMOVED_SERVICE_KEYS if key in annotations]
    unknown = sorted(
        key
        for key in map(str, annotations)
        if key.startswith(names.SERVICE_PREFIXES) and key not in (*known, *removed)
    )
    # The label of secondaries, with the primary's name, is ours.
    as_labels = [
        f"{AS_LABEL}{key}" for key in names.SERVICE_KEYS if key in labels and key != names.PRIMARY_SERVICE
    ]
    return (*removed, *unknown[:MAX_IDLE_KEYS], *as_labels)


def read_service(raw: Mapping[str, Any]) -> Service:
    annotations, labels = annotations_of(raw), labels_of(raw)
    pool, *more_pools = (one.strip() for one in annotations.get(names.IP_POOL, "").split(","))
    ports = objects_at(raw, "spec", "ports")
    ingress = objects_at(raw, "status", "loadBalancer", "ingress")
    return Service(
        namespace=namespace_of(raw),
        name=name_of(raw),
        uid=uid_of(raw),
        version=resource_version_of(raw),
        created=text_at(raw, "metadata", "creationTimestamp"),
        is_load_balancer=text_at(raw, "spec", "type") == "LoadBalancer",
        load_balancer_class=text_at(raw, "spec", "loadBalancerClass"),
        has_local_policy=text_at(raw, "spec", "externalTrafficPolicy") == "Local",
        is_deleting=is_deleting(raw),
        finalizers=tuple(finalizers_of(raw)),
        ports=tuple((text_at(one, "protocol") or "TCP", int(one["port"])) for one in ports),
        requested_address=text_at(raw, "spec", "loadBalancerIP"),
        families=tuple(one for one in nested(raw, "spec", "ipFamilies", default=()) if isinstance(one, str)),
        requires_both=text_at(raw, "spec", "ipFamilyPolicy") == "RequireDualStack",
        ingress=tuple(address for one in ingress if (address := text_at(one, "ip"))),
        ipam=annotations.get(names.IPAM, ""),
        network=annotations.get(names.NETWORK, ""),
        project=annotations.get(names.PROJECT, ""),
        project_namespace=annotations.get(names.NAMESPACE, ""),
        primary=annotations.get(names.PRIMARY_SERVICE, "").strip(),
        pool=pool,
        second_pool=more_pools[0] if more_pools else "",
        more_pools=tuple(more_pools[1:]),
        ignored_annotations=_list_ignored_annotations(annotations, labels),
        ignores_vip=annotations.get(names.VIP_IGNORE) == "true" and names.AWAITS_ADDRESS not in annotations,
        awaits_address=names.AWAITS_ADDRESS in annotations,
        addresses=annotations.get(names.VIP_ADDRESSES),
        interface=annotations.get(names.VIP_INTERFACE),
        lease=annotations.get(names.VIP_LEASE),
        primary_label=labels.get(names.PRIMARY_SERVICE),
        has_ipam=names.IPAM in annotations,
        vip_keys=tuple(key for key in names.VIP_STATUS_KEYS if key in annotations),
    )


# Network -> its interface in every node; empty while no network is the same everywhere.
Interfaces = dict[str, str]


def read_interfaces(raw: Mapping[str, Any]) -> Interfaces:
    """The network map in the ConfigMap; empty where it cannot be understood."""
    found = loads_or_none(nested(raw, "data", names.NETWORK_MAP_KEY, default="") or "{}")
    entries = found.items() if isinstance(found, dict) else ()
    return {key: value for key, value in entries if isinstance(value, str) and value}


# How Harvester names the pool that it asked, where it did (reference 02 §4.3, §4.4).
_POOL_IN_REFUSAL = re.compile(r"fail to get allocator ([^\s,;]+)|from pool ([^\s,;]+)")
HARVESTER_FINALIZER = "wrangler.cattle.io/harvester-lb-controller"
_DUPLICATE_ALLOCATION = "duplicate allocation"
_NO_POOL_CHOSEN = "no matched IPPool"


@dataclass(frozen=True, slots=True)
class Owner:
    """Whose load balancer it is, as its labels say."""

    cluster: str = ""
    namespace: str = ""
    service: str = ""

    def __str__(self) -> str:
        if not any((self.cluster, self.namespace, self.service)):
            return "no service (it has no such labels)"
        return f"service {self.namespace}/{self.service} of cluster {self.cluster!r}"


@dataclass(frozen=True, slots=True)
class LoadBalancer:
    """A LoadBalancer of Harvester. Empty texts stand for what is absent; the address is its own when it exists."""

    namespace: str
    name: str
    uid: str
    version: str = ""
    owner: Owner = Owner()
    is_deleting: bool = False
    finalizers: tuple[str, ...] = ()
    ipam: str = ""
    pool: str = ""  # the one asked for
    allocated_pool: str = ""  # the one the address is from
    allocated: tuple[str, ...] = ()  # the addresses reserved for it
    address: str = ""  # the one recorded as in use
    annotations: Mapping[str, str] = field(default_factory=dict)
    refusal: str = ""  # why it is not Ready
    # The whole object, for there is no patching on Harvester: what is not ours must go back as it came.
    raw: Mapping[str, Any] = field(default_factory=dict, compare=False, repr=False)

    @property
    def ref(self) -> ObjectRef:
        return LOAD_BALANCER.ref(self.name, self.namespace)

    @property
    def mode(self) -> str:
        """Where its address comes from. Harvester takes an absent word for `pool`."""
        return self.ipam or "pool"

    @property
    def reserved(self) -> tuple[str, ...]:
        """The addresses that no other load balancer has: those allocated to it; by DHCP the recorded one, for what is given then
        only says who is to be asked."""
        return (self.address,) if self.mode == "dhcp" and self.address else self.allocated

    @property
    def has_released_address(self) -> bool:
        """Whether it is going, and its address is free already: Harvester keeps it until then, others keep it longer."""
        return self.is_deleting and HARVESTER_FINALIZER not in self.finalizers

    @property
    def changes_pool(self) -> bool:
        """Whether Harvester is about to take its address back, because another pool is asked for."""
        return bool(self.allocated and self.pool and self.allocated_pool) and self.pool != self.allocated_pool

    @property
    def refusing_pool(self) -> str:
        """The pool that the refusal is about; "" where it names none."""
        found = _POOL_IN_REFUSAL.search(self.refusal)
        return "" if found is None else found[1] or found[2]

    @property
    def is_reallocating(self) -> bool:
        """Whether it is refused an address only because the pool holds one for it: it is recorded again by itself."""
        return _DUPLICATE_ALLOCATION in self.refusal

    @property
    def is_refusal_outdated(self) -> bool:
        """Whether it answers an earlier question: another pool is asked for by now."""
        if not self.pool:
            return False
        return self.refusing_pool not in ("", self.pool) or _NO_POOL_CHOSEN in self.refusal


def load_balancer_reader(cluster: str) -> Callable[[Raw], LoadBalancer]:
    """Reads load balancers for `cluster`; of those of others the whole object is not kept."""

    def read(raw: Raw) -> LoadBalancer:
        labels = labels_of(raw)
        owner = Owner(
            labels.get(harvester_names.LB_OF_CLUSTER, ""),
            labels.get(harvester_names.LB_OF_NAMESPACE, ""),
            labels.get(harvester_names.LB_OF_SERVICE, ""),
        )
        allocated = text_at(raw, "status", "allocatedAddress", "ip")
        ready = find_condition(nested(raw, "status", "conditions"), "Ready")
        is_ours = owner.cluster == cluster
        return LoadBalancer(
            namespace=namespace_of(raw),
            name=name_of(raw),
            uid=uid_of(raw),
            version=resource_version_of(raw),
            owner=owner,
            is_deleting=is_deleting(raw),
            finalizers=tuple(finalizers_of(raw)),
            ipam=text_at(raw, "spec", "ipam"),
            pool=text_at(raw, "spec", "ipPool"),
            allocated_pool=text_at(raw, "status", "allocatedAddress", "ipPool"),
            allocated=tuple(one.strip() for one in allocated.split(",") if one.strip()),
            address=text_at(raw, "status", "address"),
            annotations=annotations_of(raw) if is_ours else _guest_mark(raw),
            refusal=ready.message if ready is not None and ready.status == "False" else "",
            raw=_without_managed_fields(raw) if is_ours else {},
        )

    return read


def is_of_service(balancer: LoadBalancer, service: Service) -> bool:
    """Whether labels and name are those for this service, by uid, under whatever cluster name."""
    owner = balancer.owner
    return (owner.namespace, owner.service) == (service.namespace, service.name) and (
        balancer.name == load_balancer_name(owner.cluster, service.namespace, service.name, service.uid)
    )


def _guest_mark(raw: Raw) -> Mapping[str, str]:
    """The annotation that says which guest it was created for, under whatever cluster name."""
    mark = annotations_of(raw).get(harvester_names.GUEST_UID)
    return {harvester_names.GUEST_UID: mark} if mark else {}


def _without_managed_fields(raw: Raw) -> Raw:
    """The object without `managedFields`, which the server keeps by itself; they are half of its size."""
    metadata = {key: value for key, value in raw["metadata"].items() if key != "managedFields"}
    return {**raw, "metadata": metadata}
