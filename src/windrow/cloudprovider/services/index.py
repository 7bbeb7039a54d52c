"""The observed state of each service, from the informers, our own writes, and what this process remembers.

The informers are overlaid with the answers of our own writes. A ServiceRecord holds what else one reconcile leaves for
the next: of services that were deleted before their load balancer, of the uids that a name had before.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial
from operator import attrgetter
from typing import Any, Generic, TypeVar

from windrow.client.informer import Informer
from windrow.client.mutation_cache import MutationCache
from windrow.cloudprovider import names
from windrow.cloudprovider.context import ControllerContext
from windrow.cloudprovider.names import is_load_balancer_name, sharing_label
from windrow.cloudprovider.services.problems import explain_error
from windrow.cloudprovider.services.readings import (
    Interfaces,
    LoadBalancer,
    Owner,
    Service,
    is_of_service,
    load_balancer_reader,
    read_interfaces,
    read_service,
)
from windrow.cloudprovider.services.sharing import (
    SharedAddress,
    find_sharing,
    primary_of,
    sharing_groups,
    users_of,
)
from windrow.cloudprovider.services.state import ClusterSettings, ServiceState, Unavailable, WaitState
from windrow.harvester import names as harvester_names
from windrow.harvester.resources import LOAD_BALANCER
from windrow.harvester.unanswered import UnansweredRequests
from windrow.kubernetes.errors import Forbidden, KubeError, Unauthorized
from windrow.kubernetes.resources import CONFIG_MAP, SERVICE, ObjectRef

# A broken watch mostly resumes soon, and is not reported before.
WATCH_GRACE = timedelta(seconds=5)
# While an informer lists again there is no error, and no event when the list is complete.
RELIST_WAIT = timedelta(seconds=1)
INTERFACES = CONFIG_MAP.ref(names.NETWORK_MAP_NAME, names.NETWORK_MAP_NAMESPACE)
_NETWORK_MAP = f"ConfigMap {INTERFACES.namespace}/{INTERFACES.name}"


# A write that the watch has not delivered by then is not trusted any more.
MUTATION_TTL = timedelta(seconds=5)


def second_key(uid: str) -> str:
    """Under which the creation for its second family is recorded as requested."""
    return f"{uid}/second"


@dataclass(slots=True)
class ServiceRecord:
    """What one reconcile of a service leaves for the next; lost at a restart."""

    # What the last plan waited for, and since when by the monotonic clock.
    waits_for: str = ""
    waits_since: timedelta = timedelta()
    # The service as it was last observed with something to clean up, and the load balancer names of earlier uids.
    last: Service | None = None
    former: dict[ObjectRef, None] = field(default_factory=dict)
    seen: str = ""  # the uid for which a load balancer was observed
    seen_second: str = ""  # the same of the one for its second family
    # Annotations without effect and requests for an address that it had at its last reconcile.
    ignored_annotations: tuple[str, ...] | None = None
    requested: tuple[str, ...] | None = None
    # Problems that were reported, by uid and text, and when (monotonic); the last event (with the uid) that tells its state.
    reported: dict[tuple[str, str], timedelta] = field(default_factory=dict)
    last_event: tuple[str, str] = ("", "")
    # `ready`, `waiting` or `refused`; plans in a row that were stale; an update that Harvester ignored.
    state: str = ""
    stale: int = 0
    ineffective: tuple[object, ...] = ()


V = TypeVar("V", Service, LoadBalancer)


class Index(Generic[V]):
    """The refs of objects by the keys that `keys` finds in them (client-go's Indexer)."""

    def __init__(self, keys: Callable[[V], Collection[Hashable]]) -> None:
        self._keys: Callable[[V], Collection[Hashable]] = keys
        self._refs: dict[Hashable, dict[ObjectRef, None]] = {}

    def update(self, before: V | None, after: V | None) -> None:
        kept = self._keys(after) if after is not None else ()
        if before is not None:
            for key in self._keys(before):
                if key not in kept:
                    refs = self._refs.get(key, {})
                    refs.pop(before.ref, None)
                    if not refs:
                        self._refs.pop(key, None)
        if after is not None:
            for key in kept:
                self._refs.setdefault(key, {})[after.ref] = None

    def get(self, key: Hashable) -> tuple[ObjectRef, ...]:
        return tuple(self._refs.get(key, ()))


class ServiceIndex:
    """The services and load balancers of one cluster, and the records of this process about them."""

    def __init__(
        self,
        context: ControllerContext,
        settings: ClusterSettings,
        on_watch_error: Callable[[KubeError | None], None],
        list_without_macvlan: Callable[[], tuple[str, ...]],
    ) -> None:
        self._list_without_macvlan = list_without_macvlan
        informer = partial(context.informer, on_error=on_watch_error)
        self._services: Informer[Service] = informer(context.guest, SERVICE, "", read_service)
        self._load_balancers: Informer[LoadBalancer] = informer(
            context.host, LOAD_BALANCER, settings.namespace, load_balancer_reader(settings.cluster)
        )
        self.interfaces: Informer[Interfaces] = informer(
            context.guest,
            CONFIG_MAP,
            INTERFACES.namespace,
            read_interfaces,
            fields=f"metadata.name={INTERFACES.name}",
        )
        self._clock = context.clock
        self.services = MutationCache(self._services, attrgetter("version"), self._clock, MUTATION_TTL)
        self.load_balancers = MutationCache(
            self._load_balancers, attrgetter("version"), self._clock, MUTATION_TTL
        )
        self.records: dict[ObjectRef, ServiceRecord] = {}
        self.settings = settings
        self._has_cluster_name = context.options.has_cluster_name
        # Services by the address that they share, or want to; load balancers by the service that their labels name.
        self._sharing: Index[Service] = Index(sharing_groups)
        self._owned: Index[LoadBalancer] = Index(self._owners)
        # Load balancers of other cluster names, by the service that their labels name.
        self._foreign: Index[LoadBalancer] = Index(self._foreign_owners)
        # The service that a load balancer name is derived from.
        self._service_of: dict[ObjectRef, ObjectRef] = {}
        # What was requested and not answered, by the uid of the service; until now, an earlier process led.
        self.unanswered = UnansweredRequests()
        self.unanswered.begin(self._clock.monotonic())

    @property
    def guest_uid(self) -> str:
        """The uid that tells this guest cluster from others of its name; "" while its service is not known."""
        own = self._services.get(SERVICE.ref(*names.GUEST_SERVICE))
        return own.uid if own is not None else ""

    def record(self, ref: ObjectRef) -> ServiceRecord:
        return self.records.setdefault(ref, ServiceRecord())

    # --- changes -> services to reconcile ---------------------------------------------------------------------------

    def on_service_change(self, before: Service | None, after: Service | None) -> Iterator[ObjectRef]:
        """Update the index; the services that the change concerns."""
        self._sharing.update(before, after)
        if before is not None and (after is None or after.uid != before.uid):
            self.unanswered.forget(before.uid)
            self.unanswered.forget(second_key(before.uid))
        for service in (before, after):
            if service is None or not self._is_relevant(service):
                continue
            yield service.ref
            for group in (sharing_label(service.namespace, service.name), *sharing_groups(service)):
                yield from self._sharing.get(group)
            yield from self._primaries_of(service)

    def _is_relevant(self, service: Service) -> bool:
        return (
            service.is_load_balancer
            or service.has_finalizer
            or bool(service.primary_label)
            or service.awaits_address
            or (service.ref in self.records and self.records[service.ref].last is not None)
            or bool(self._owned.get(service.ref))
        )

    def _primaries_of(self, service: Service) -> Iterator[ObjectRef]:
        """The services whose address it has, or wants."""
        named = primary_of(service) if service.primary else None
        if named is not None:
            yield SERVICE.ref(named[1], named[0])
        if service.primary_label:
            namespace, _, name = service.primary_label.partition(".")
            yield SERVICE.ref(name, namespace)
            # A label that was cut does not name the primary: every service that may wait for its users is concerned.
            if "_" in service.primary_label:
                yield from (ref for ref, record in self.records.items() if record.last is not None)

    def on_load_balancer_change(
        self, before: LoadBalancer | None, after: LoadBalancer | None
    ) -> Iterator[ObjectRef]:
        """Update the index; the services that the change concerns."""
        for balancer in (before, after):
            if balancer is None:
                continue
            if balancer.ref in self._service_of:
                yield self._service_of[balancer.ref]
            yield from (one for one in self._foreign_owners(balancer) if one in self.records)
            for owner in self._owners(balancer):
                yield owner
                yield from self._sharing.get(sharing_label(owner.namespace, owner.name))
        self._owned.update(before, after)
        self._foreign.update(before, after)

    def _owners(self, balancer: LoadBalancer) -> list[ObjectRef]:
        """The service of our cluster that its labels name, if they name one."""
        owner = balancer.owner
        is_ours = owner.cluster == self.settings.cluster
        return [SERVICE.ref(owner.service, owner.namespace)] if is_ours else []

    def _foreign_owners(self, balancer: LoadBalancer) -> list[ObjectRef]:
        """The service that its labels name, under another cluster name than ours."""
        owner = balancer.owner
        is_foreign = owner.cluster != self.settings.cluster and bool(owner.cluster and owner.service)
        return [SERVICE.ref(owner.service, owner.namespace)] if is_foreign else []

    def relevant_services(self) -> Iterator[ObjectRef]:
        """All services that have, want or had a load balancer."""
        for ref, service in self._services.items():
            if self._is_relevant(service):
                yield ref
        yield from [ref for ref, one in self.records.items() if one.last and self._services.get(ref) is None]

    # --- one service --------------------------------------------------------------------------------------------------

    def observe(self, ref: ObjectRef) -> ServiceState | None:
        """The state that the plan for this service needs; None when there is nothing to plan for. Reads only."""
        now, record = self._clock.now(), self.records.get(ref) or ServiceRecord()
        found = self.services.get(ref)
        service = found or record.last
        if service is None:
            return None
        own, other = self._load_balancer_refs(service)
        sharing = find_sharing(service, self._find, partial(self._find_same_name, service.namespace))
        primary = sharing.primary if isinstance(sharing, SharedAddress) else None
        holder = self._holder_of(service, primary)
        balancer, second = self.load_balancers.get(own), self.load_balancers.get(other)
        orphans = self._find_orphans(self._former_names(record, service), ref, (own, other))
        held = (balancer, second, *orphans)
        reserved = {address for one in held if one is not None for address in one.reserved}
        # At the first reconcile annotations without effect are not new.
        before = (
            record.ignored_annotations
            if record.ignored_annotations is not None
            else service.ignored_annotations
        )
        return ServiceState(
            service=service,
            now=now,
            settings=self.settings,
            load_balancer=balancer,
            second=second,
            orphans=orphans,
            other_name=self._find_other_name(service),
            sharing=sharing,
            sharers=self._sharers_of(primary) if primary is not None else (),
            users=users_of(service, self._sharers_of(service), reserved),
            primary_network=self._network_of(primary) if primary is not None else "",
            holder=holder,
            is_reserved=holder is None or bool(holder.ingress) or self._is_reserved(service),
            host=self._find_outage(
                self._load_balancers, now, partial(explain_error, namespace=own.namespace)
            ),
            interfaces=self._read_interfaces(now) if service.network else None,
            wait=self._read_wait(record, now),
            may_be_made_until=self._find_creation_end(record, service),
            is_gone=found is None,
            new_ignored_annotations=tuple(key for key in service.ignored_annotations if key not in before),
            without_macvlan=self._list_without_macvlan() if service.mode == "dhcp" else (),
            has_new_request=record.requested not in (None, service.requested),
        )

    def remember(self, state: ServiceState) -> None:
        """Keep what later observations need, and enqueue the service when a load balancer of its names changes."""
        service, ref = state.service, state.service.ref
        record = self.record(ref)
        record.former = self._former_names(record, service)
        for name in (*self._load_balancer_refs(service), *record.former):
            self._service_of[name] = ref
        keeps = service.has_finalizer or (record.last is not None and record.last.uid == service.uid)
        record.last = service if keeps else None
        if state.owns_load_balancer:
            record.seen = service.uid
        if state.owns_second:
            record.seen_second = service.uid

    def _find_creation_end(self, record: ServiceRecord, service: Service) -> datetime | None:
        """Only a load balancer that this process observed was seen; one of before may be gone, and requested again."""
        ends = [self.unanswered.find_end(service.uid, was_observed=record.seen == service.uid)]
        if service.second_pool:
            was_observed = record.seen_second == service.uid
            ends.append(self.unanswered.find_end(second_key(service.uid), was_observed=was_observed))
        end = max((one for one in ends if one is not None), default=None)
        return None if end is None else self._clock.now() - (self._clock.monotonic() - end)

    def _load_balancer_ref(self, service: Service) -> ObjectRef:
        return LOAD_BALANCER.ref(self.settings.name_for(service), self.settings.namespace)

    def _load_balancer_refs(self, service: Service) -> tuple[ObjectRef, ObjectRef]:
        """Of its load balancer, and of the one for its second family."""
        second = LOAD_BALANCER.ref(self.settings.second_name_for(service), self.settings.namespace)
        return self._load_balancer_ref(service), second

    def _former_names(self, record: ServiceRecord, service: Service) -> dict[ObjectRef, None]:
        """The load balancer names of earlier services of this name."""
        if record.last is None or record.last.uid == service.uid:
            return record.former
        return {**record.former, **dict.fromkeys(self._load_balancer_refs(record.last))}

    def mark_executed(self, state: ServiceState) -> None:
        """The plan for what the service requests was executed, with the events about its annotations."""
        record = self.record(state.service.ref)
        record.requested, record.ignored_annotations = (
            state.service.requested,
            state.service.ignored_annotations,
        )

    def forget(self, ref: ObjectRef) -> None:
        """Drop the record of a service that is deleted, with its load balancer."""
        self.records.pop(ref, None)
        self._service_of = {name: service for name, service in self._service_of.items() if service != ref}

    def _find(self, namespace: str, name: str) -> Service | None:
        return self.services.get(SERVICE.ref(name, namespace))

    def _find_same_name(self, namespace: str, name: str) -> list[str]:
        """In the service's own namespace only: its owner may not be allowed to know of services in others."""
        one = self._find(namespace, name)
        return [one.title] if one is not None and one.wants_load_balancer else []

    def _find_orphans(
        self, former: Mapping[ObjectRef, None], ref: ObjectRef, own: Collection[ObjectRef]
    ) -> tuple[LoadBalancer, ...]:
        """Load balancers of earlier services of this name.

        Those whose uids this process has observed; and those with the uid of this guest in an annotation, which are
        labelled for a service of this name and have the name for one. Labels alone prove nothing: another cluster of
        our name may share the namespace, and have a service of the same name.
        """
        owner = Owner(self.settings.cluster, ref.namespace, ref.name)
        known = dict.fromkeys((*former, *self._owned.get(ref)))
        candidates = (self.load_balancers.get(name) for name in known if name not in own)
        return tuple(
            one
            for one in candidates
            if one is not None and one.owner == owner and (one.ref in former or self._is_marked_orphan(one))
        )

    def _find_other_name(self, service: Service) -> LoadBalancer | None:
        """The load balancer that was created for this very service, by uid, under another cluster name. Of several
        the one with an address that the service shows."""
        found = [
            one
            for ref in self._foreign.get(service.ref)
            if (one := self.load_balancers.get(ref)) is not None and is_of_service(one, service)
        ]
        shown = service.shown - names.DHCP_PLACEHOLDERS
        return min(found, key=lambda one: (not shown & set(one.reserved), one.name), default=None)

    def _is_marked_orphan(self, balancer: LoadBalancer) -> bool:
        owner, mark = balancer.owner, balancer.annotations.get(harvester_names.GUEST_UID)
        has_name = is_load_balancer_name(balancer.name, owner.cluster, owner.namespace, owner.service)
        return self._has_cluster_name and has_name and bool(mark) and mark == self.guest_uid

    def _sharers_of(self, primary: Service) -> tuple[Service, ...]:
        found = (
            self.services.get(ref)
            for ref in self._sharing.get(sharing_label(primary.namespace, primary.name))
        )
        return tuple(one for one in found if one is not None)

    def _holder_of(self, service: Service, primary: Service | None) -> Service | None:
        if not service.primary_label:
            return None
        if primary is not None and service.primary_label == sharing_label(primary.namespace, primary.name):
            return primary
        namespace, _, name = service.primary_label.partition(".")  # one that was cut finds none
        return self._find(namespace, name)

    def _is_reserved(self, service: Service) -> bool:
        """Whether a load balancer, of any service, reserves an address that the service shows."""
        shown = service.shown
        if not shown or not self._load_balancers.is_watching:
            return True
        return any(
            shown & set(one.reserved)
            for one in self.load_balancers.values()
            if not (one.changes_pool or one.has_released_address)
        )

    def _network_of(self, primary: Service) -> str:
        balancer = self.load_balancers.get(self._load_balancer_ref(primary))
        made_for = balancer.annotations.get(names.FIXED_NETWORK) if balancer is not None else None
        return primary.network if made_for is None else made_for

    # --- informers that are not watching ----------------------------------------------------------------------------

    def _read_wait(self, record: ServiceRecord, now: datetime) -> WaitState:
        """The wait with its beginning as the wall clock of `now` would have shown it, however it was set meanwhile."""
        return WaitState(record.waits_for, now - (self._clock.monotonic() - record.waits_since))

    def _read_interfaces(self, now: datetime) -> Interfaces | Unavailable | None:
        unavailable = self._find_outage(
            self.interfaces, now, lambda error: f"{_NETWORK_MAP} cannot be read: {error.message}"
        )
        return self.interfaces.get(INTERFACES) if unavailable is None else unavailable

    def _find_outage(
        self, informer: Informer[Any], now: datetime, explain: Callable[[KubeError], str]
    ) -> Unavailable | None:
        """Why the informer may lack objects; None while it is watching."""
        if informer.is_watching:
            return None
        error, since = informer.error, informer.error_since
        if error is None or since is None:
            return Unavailable(until=now + RELIST_WAIT)
        left = WATCH_GRACE - (self._clock.monotonic() - since)
        if isinstance(error, (Unauthorized, Forbidden)) or left <= timedelta():
            return Unavailable(explain(error))
        return Unavailable(until=now + left)
