"""What is known of services and load balancers at this instant, put together for one service's plan.

Caches hold what watches brought; in front of them stands what our own writes answered. Beside them is the memory of
this process: of services that went without waiting for us, and of the UIDs that a name had before.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta

from windrow.client.informer import Informer
from windrow.cloudprovider import names
from windrow.cloudprovider.names import is_load_balancer_name, sharing_label
from windrow.cloudprovider.services.ahead import Ahead
from windrow.cloudprovider.services.describe import explain_error
from windrow.cloudprovider.services.readings import Interfaces, LoadBalancer, Owner, Service
from windrow.cloudprovider.services.sharing import (
    SharedAddress,
    SharingIndex,
    find_sharing,
    primary_of,
    users_of,
)
from windrow.cloudprovider.services.state import ClusterSettings, ServiceState, Unavailable, WaitState
from windrow.core.clock import Clock
from windrow.harvester.resources import LOAD_BALANCER
from windrow.kubernetes.errors import Forbidden, Unauthorized
from windrow.kubernetes.resources import CONFIG_MAP, SERVICE, ObjectRef

# A broken watch is mostly back in a moment, and no news.
WATCH_GRACE = timedelta(seconds=5)
# A watch that was too old to go on is no problem, and nobody tells the end of the list that follows.
RELIST_WAIT = timedelta(seconds=1)
INTERFACES = CONFIG_MAP.ref(names.NETWORK_MAP_NAME, names.NETWORK_MAP_NAMESPACE)


class ServiceIndex:
    """Three caches, two sets of answers, and a memory."""

    def __init__(
        self,
        services: Informer[Service],
        balancers: Informer[LoadBalancer],
        interfaces: Informer[Interfaces],
        settings: ClusterSettings,
        names_cluster: bool,
        clock: Clock,
    ) -> None:
        self.services = services
        self.balancers = balancers
        self.interfaces = interfaces
        self.service_answers: Ahead[Service] = Ahead(clock)
        self.balancer_answers: Ahead[LoadBalancer] = Ahead(clock)
        self._settings = settings
        self._names_cluster = names_cluster
        self._clock = clock
        self._sharing = SharingIndex()
        # Load balancers of our cluster by the service that their labels name.
        self._owned: dict[ObjectRef, dict[ObjectRef, None]] = {}
        # Who looks at a load balancer of this name.
        self._service_of: dict[ObjectRef, ObjectRef] = {}
        # Services as they were last seen with something to clean up, and names of load balancers of earlier UIDs.
        self._known: dict[ObjectRef, Service] = {}
        self._former_names: dict[ObjectRef, dict[ObjectRef, None]] = {}
        self._removed_keys: dict[ObjectRef, tuple[str, ...]] = {}
        self._requests: dict[ObjectRef, tuple[str, str]] = {}

    @property
    def guest_uid(self) -> str:
        """What tells this guest cluster from others of its name; "" while its own service is not seen."""
        own = self.services.get(SERVICE.ref(*names.GUEST_SERVICE))
        return own.uid if own is not None else ""

    # --- news -------------------------------------------------------------------------------------------------------

    def on_service_change(self, before: Service | None, after: Service | None) -> Iterator[ObjectRef]:
        """Take in the change; the services that it is news for."""
        self._sharing.update(before, after)
        for service in (before, after):
            if service is None or not self._is_relevant(service):
                continue
            yield service.ref
            yield from self._sharing.members(service.namespace, service.name)
            yield from self._sharing.related(service)
            yield from self._primaries_of(service)

    def _is_relevant(self, service: Service) -> bool:
        return (
            service.is_load_balancer
            or service.has_finalizer
            or bool(service.primary_label)
            or service.ref in self._known
            or service.ref in self._owned
        )

    def _primaries_of(self, service: Service) -> Iterator[ObjectRef]:
        """Whose address it has, or wants."""
        named = primary_of(service) if service.primary else None
        if named is not None:
            yield SERVICE.ref(named[1], named[0])
        if service.primary_label:
            namespace, _, name = service.primary_label.partition(".")
            yield SERVICE.ref(name, namespace)
            # A label that was too long does not give the name away: everyone who waits for its users is asked.
            if "_" in service.primary_label:
                yield from self._known

    def on_load_balancer_change(
        self, before: LoadBalancer | None, after: LoadBalancer | None
    ) -> Iterator[ObjectRef]:
        """Take in the change; the services that it is news for."""
        for balancer in (before, after):
            if balancer is None:
                continue
            if balancer.ref in self._service_of:
                yield self._service_of[balancer.ref]
            if balancer.owner.cluster == self._settings.cluster:
                yield _owner_of(balancer)
                yield from self._sharing.members(balancer.owner.namespace, balancer.owner.service)
        if before is not None and (after is None or before.owner != after.owner):
            self._remove_owned(before)
        if after is not None and after.owner.cluster == self._settings.cluster:
            self._owned.setdefault(_owner_of(after), {})[after.ref] = None

    def _remove_owned(self, balancer: LoadBalancer) -> None:
        owned = self._owned.get(_owner_of(balancer))
        if owned is not None:
            owned.pop(balancer.ref, None)
            if not owned:
                del self._owned[_owner_of(balancer)]

    def relevant_services(self) -> Iterator[ObjectRef]:
        """Everyone whom it may concern that a side is known again."""
        for ref, service in self.services.items():
            if self._is_relevant(service):
                yield ref
        yield from [ref for ref in self._known if self.services.get(ref) is None]

    # --- one service --------------------------------------------------------------------------------------------------

    def observe(self, ref: ObjectRef, pause: WaitState) -> ServiceState | None:
        """All that the plan for this service needs; None when there is nobody to plan for."""
        now = self._clock.now()
        service = self.find_service(ref)
        is_over = service is None
        if service is None:
            service = self._known.get(ref)
            if service is None:
                return None
        self._remember(ref, service)
        own = LOAD_BALANCER.ref(self._settings.name_for(service), self._settings.namespace)
        self._service_of[own] = ref
        sharing = find_sharing(service, self._find, self._find_same_name)
        primary = sharing.primary if isinstance(sharing, SharedAddress) else None
        holder = self._holder_of(service, primary)
        balancer, strays = self.find_load_balancer(own), self._find_orphans(ref, own)
        held = {address for one in (balancer, *strays) if one is not None for address in one.reserved}
        return ServiceState(
            service=service,
            now=now,
            load_balancer=balancer,
            orphans=strays,
            sharing=sharing,
            sharers=self._sharers_of(primary) if primary is not None else (),
            users=users_of(service, self._sharers_of(service), held),
            primary_network=self._network_of(primary) if primary is not None else "",
            holder=holder,
            is_reserved=holder is None or bool(holder.ingress) or self._is_reserved(service),
            host=self._host_availability(now),
            interfaces=self._read_interfaces(now) if service.network else None,
            wait=pause,
            is_gone=is_over,
            new_removed_keys=self._find_new_removed_keys(ref, service),
            has_new_request=self._requests.get(ref, service.requested) != service.requested,
        )

    def mark_executed(self, state: ServiceState) -> None:
        """What was wished is told by now, where it is to be told at all."""
        self._requests[state.service.ref] = state.service.requested

    def forget(self, ref: ObjectRef) -> None:
        """The service is gone, and nothing is left of it."""
        for memory in (self._known, self._former_names, self._removed_keys, self._requests):
            memory.pop(ref, None)
        self._service_of = {own: home for own, home in self._service_of.items() if home != ref}

    def find_service(self, ref: ObjectRef) -> Service | None:
        return self.service_answers.latest(ref, self.services.get(ref))

    def find_load_balancer(self, ref: ObjectRef) -> LoadBalancer | None:
        return self.balancer_answers.latest(ref, self.balancers.get(ref))

    def _find(self, namespace: str, name: str) -> Service | None:
        return self.find_service(SERVICE.ref(name, namespace))

    def _find_same_name(self, name: str) -> list[str]:
        return sorted(
            one.title for one in self.services.values() if one.name == name and one.wants_load_balancer
        )

    def _remember(self, ref: ObjectRef, service: Service) -> None:
        before = self._known.get(ref)
        if before is not None and before.uid != service.uid:
            former = LOAD_BALANCER.ref(self._settings.name_for(before), self._settings.namespace)
            self._former_names.setdefault(ref, {})[former] = None
            self._service_of[former] = ref
        if service.has_finalizer or (before is not None and before.uid == service.uid):
            self._known[ref] = service
        elif before is not None:
            del self._known[ref]

    def _find_orphans(self, ref: ObjectRef, own: ObjectRef) -> tuple[LoadBalancer, ...]:
        """Load balancers of services that had this name before.

        Those whose UIDs this process has seen; and those with the mark of this guest that are labelled for a service
        of this name and are called so. Labels alone prove nothing: another cluster of our name may share the
        namespace, and have a service of the same name.
        """
        owner, found = Owner(self._settings.cluster, ref.namespace, ref.name), []
        former = self._former_names.get(ref, {})
        for one in {**former, **self._owned.get(ref, {})}:
            balancer = self.find_load_balancer(one) if one != own else None
            if balancer is None or balancer.owner != owner:
                continue
            if one in former or self._is_marked_orphan(balancer):
                found.append(balancer)
        return tuple(found)

    def _is_marked_orphan(self, balancer: LoadBalancer) -> bool:
        owner, mark = balancer.owner, balancer.annotations.get(names.GUEST_MARK)
        is_called_so = is_load_balancer_name(balancer.name, owner.cluster, owner.namespace, owner.service)
        return self._names_cluster and is_called_so and bool(mark) and mark == self.guest_uid

    def _sharers_of(self, primary: Service) -> tuple[Service, ...]:
        found = (self.find_service(ref) for ref in self._sharing.members(primary.namespace, primary.name))
        return tuple(one for one in found if one is not None)

    def _holder_of(self, service: Service, primary: Service | None) -> Service | None:
        if not service.primary_label:
            return None
        if primary is not None and service.primary_label == sharing_label(primary.namespace, primary.name):
            return primary
        namespace, _, name = service.primary_label.partition(".")  # one that was cut finds nobody
        return self._find(namespace, name)

    def _is_reserved(self, service: Service) -> bool:
        """Whether a load balancer, of whatever service, keeps what it shows. Asked of few services, seldom."""
        shown = service.shown
        if not shown or not self.balancers.is_watching:
            return True
        balancers = (self.find_load_balancer(ref) for ref, _ in self.balancers.items())
        return any(
            shown & set(one.reserved)
            for one in balancers
            if one is not None and not (one.changes_pool or one.has_released_address)
        )

    def _network_of(self, primary: Service) -> str:
        own = LOAD_BALANCER.ref(self._settings.name_for(primary), self._settings.namespace)
        balancer = self.find_load_balancer(own)
        made_for = balancer.annotations.get(names.FIXED_NETWORK) if balancer is not None else None
        return primary.network if made_for is None else made_for

    def _find_new_removed_keys(self, ref: ObjectRef, service: Service) -> tuple[str, ...]:
        known = self._removed_keys.get(ref)
        if known == service.removed_keys or (known is None and not service.removed_keys):
            return ()
        self._removed_keys[ref] = service.removed_keys
        return tuple(key for key in service.removed_keys if key not in known) if known is not None else ()

    # --- what is not known --------------------------------------------------------------------------------------------

    def _host_availability(self, now: datetime) -> Unavailable | None:
        if self.balancers.is_watching:
            return None
        problem, since = self.balancers.error, self.balancers.error_since
        if problem is None or since is None:
            return Unavailable(until=now + RELIST_WAIT)
        if isinstance(problem, (Unauthorized, Forbidden)) or now - since >= WATCH_GRACE:
            return Unavailable(explain_error(problem, self._settings.namespace))
        return Unavailable(until=since + WATCH_GRACE)

    def _read_interfaces(self, now: datetime) -> Interfaces | Unavailable | None:
        if self.interfaces.is_watching:
            return self.interfaces.get(INTERFACES)
        problem, since = self.interfaces.error, self.interfaces.error_since
        if problem is None or since is None or now - since < WATCH_GRACE:
            return Unavailable(until=now + RELIST_WAIT)
        return Unavailable(
            f"ConfigMap {INTERFACES.namespace}/{INTERFACES.name} cannot be read: {problem.message}"
        )


def _owner_of(balancer: LoadBalancer) -> ObjectRef:
    return SERVICE.ref(balancer.owner.service, balancer.owner.namespace)
