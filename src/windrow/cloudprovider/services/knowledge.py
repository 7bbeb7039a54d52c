"""What is known of services and load balancers at this instant, put together for one service's plan.

Caches hold what watches brought; in front of them stands what our own writes answered. Beside them is the memory of
this process: of services that went without waiting for us, and of the UIDs that a name had before.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta

from windrow.client.watching import WatchedCache
from windrow.cloudprovider import names
from windrow.cloudprovider.services.ahead import Ahead
from windrow.cloudprovider.services.balancer_names import is_balancer_name, sharing_label
from windrow.cloudprovider.services.balancer_readings import Balancer, Owner
from windrow.cloudprovider.services.seeing import Pause, Policy, Seen, Unseen
from windrow.cloudprovider.services.service_readings import Interfaces, Service
from windrow.cloudprovider.services.sharing import Sharers, Shares, find_sharing, primary_of, users_of
from windrow.cloudprovider.services.words import explain_error
from windrow.harvester.kinds import LOAD_BALANCER
from windrow.kube.errors import Forbidden, Unauthorized
from windrow.kube.refs import CONFIG_MAP, SERVICE, Ref
from windrow.values.clock import Clock

# A broken watch is mostly back in a moment, and no news.
MOMENT = timedelta(seconds=5)
# A watch that was too old to go on is no problem, and nobody tells the end of the list that follows.
LISTING = timedelta(seconds=1)
INTERFACES = CONFIG_MAP.ref(names.NETWORK_MAP_NAME, names.NETWORK_MAP_NAMESPACE)


class Knowledge:
    """Three caches, two sets of answers, and a memory."""

    def __init__(
        self,
        services: WatchedCache[Service],
        balancers: WatchedCache[Balancer],
        interfaces: WatchedCache[Interfaces],
        policy: Policy,
        names_cluster: bool,
        clock: Clock,
    ) -> None:
        self.services = services
        self.balancers = balancers
        self.interfaces = interfaces
        self.service_answers: Ahead[Service] = Ahead(clock)
        self.balancer_answers: Ahead[Balancer] = Ahead(clock)
        self._policy = policy
        self._names_cluster = names_cluster
        self._clock = clock
        self._sharers = Sharers()
        # Load balancers of our cluster by the service that their labels name.
        self._owned: dict[Ref, dict[Ref, None]] = {}
        # Who looks at a load balancer of this name.
        self._homes: dict[Ref, Ref] = {}
        # Services as they were last seen with something to clean up, and names of load balancers of earlier UIDs.
        self._remembered: dict[Ref, Service] = {}
        self._former: dict[Ref, dict[Ref, None]] = {}
        self._old_keys: dict[Ref, tuple[str, ...]] = {}
        self._wishes: dict[Ref, tuple[str, str]] = {}

    @property
    def guest_uid(self) -> str:
        """What tells this guest cluster from others of its name; "" while its own service is not seen."""
        own = self.services.get(SERVICE.ref(*names.GUEST_SERVICE))
        return own.uid if own is not None else ""

    # --- news -------------------------------------------------------------------------------------------------------

    def take_service(self, before: Service | None, after: Service | None) -> Iterator[Ref]:
        """Take in the change; the services that it is news for."""
        self._sharers.take(before, after)
        for service in (before, after):
            if service is None or not self._matters(service):
                continue
            yield service.ref
            yield from self._sharers.of(service.namespace, service.name)
            yield from self._sharers.beside(service)
            yield from self._primaries_of(service)

    def _matters(self, service: Service) -> bool:
        return (
            service.is_balanced
            or service.is_protected
            or bool(service.primary_label)
            or service.ref in self._remembered
            or service.ref in self._owned
        )

    def _primaries_of(self, service: Service) -> Iterator[Ref]:
        """Whose address it has, or wants."""
        named = primary_of(service) if service.primary else None
        if named is not None:
            yield SERVICE.ref(named[1], named[0])
        if service.primary_label:
            namespace, _, name = service.primary_label.partition(".")
            yield SERVICE.ref(name, namespace)
            # A label that was too long does not give the name away: everyone who waits for its users is asked.
            if "_" in service.primary_label:
                yield from self._remembered

    def take_balancer(self, before: Balancer | None, after: Balancer | None) -> Iterator[Ref]:
        """Take in the change; the services that it is news for."""
        for balancer in (before, after):
            if balancer is None:
                continue
            if balancer.ref in self._homes:
                yield self._homes[balancer.ref]
            if balancer.owner.cluster == self._policy.cluster:
                yield _owner_of(balancer)
                yield from self._sharers.of(balancer.owner.namespace, balancer.owner.service)
        if before is not None and (after is None or before.owner != after.owner):
            self._disown(before)
        if after is not None and after.owner.cluster == self._policy.cluster:
            self._owned.setdefault(_owner_of(after), {})[after.ref] = None

    def _disown(self, balancer: Balancer) -> None:
        owned = self._owned.get(_owner_of(balancer))
        if owned is not None:
            owned.pop(balancer.ref, None)
            if not owned:
                del self._owned[_owner_of(balancer)]

    def all_services(self) -> Iterator[Ref]:
        """Everyone whom it may concern that a side is known again."""
        for ref, service in self.services.items():
            if self._matters(service):
                yield ref
        yield from [ref for ref in self._remembered if self.services.get(ref) is None]

    # --- one service --------------------------------------------------------------------------------------------------

    def observe(self, ref: Ref, pause: Pause) -> Seen | None:
        """All that the plan for this service needs; None when there is nobody to plan for."""
        now = self._clock.now()
        service = self.find_service(ref)
        is_over = service is None
        if service is None:
            service = self._remembered.get(ref)
            if service is None:
                return None
        self._remember(ref, service)
        own = LOAD_BALANCER.ref(self._policy.name_for(service), self._policy.namespace)
        self._homes[own] = ref
        sharing = find_sharing(service, self._find, self._namesakes)
        primary = sharing.primary if isinstance(sharing, Shares) else None
        holder = self._holder_of(service, primary)
        balancer, strays = self.find_balancer(own), self._strays(ref, own)
        held = {address for one in (balancer, *strays) if one is not None for address in one.held}
        return Seen(
            service=service,
            now=now,
            balancer=balancer,
            strays=strays,
            sharing=sharing,
            sharers=self._sharers_of(primary) if primary is not None else (),
            users=users_of(service, self._sharers_of(service), held),
            primary_network=self._network_of(primary) if primary is not None else "",
            holder=holder,
            is_held=holder is None or bool(holder.ingress) or self._is_held(service),
            host=self._host(now),
            interfaces=self._interfaces(now) if service.network else None,
            pause=pause,
            is_over=is_over,
            new_old_keys=self._new_old_keys(ref, service),
            has_new_wish=self._wishes.get(ref, service.wishes) != service.wishes,
        )

    def has_carried_out(self, seen: Seen) -> None:
        """What was wished is told by now, where it is to be told at all."""
        self._wishes[seen.service.ref] = seen.service.wishes

    def forget(self, ref: Ref) -> None:
        """The service is gone, and nothing is left of it."""
        for memory in (self._remembered, self._former, self._old_keys, self._wishes):
            memory.pop(ref, None)
        self._homes = {own: home for own, home in self._homes.items() if home != ref}

    def find_service(self, ref: Ref) -> Service | None:
        return self.service_answers.latest(ref, self.services.get(ref))

    def find_balancer(self, ref: Ref) -> Balancer | None:
        return self.balancer_answers.latest(ref, self.balancers.get(ref))

    def _find(self, namespace: str, name: str) -> Service | None:
        return self.find_service(SERVICE.ref(name, namespace))

    def _namesakes(self, name: str) -> list[str]:
        return sorted(one.title for one in self.services.values() if one.name == name and one.wants_balancer)

    def _remember(self, ref: Ref, service: Service) -> None:
        before = self._remembered.get(ref)
        if before is not None and before.uid != service.uid:
            former = LOAD_BALANCER.ref(self._policy.name_for(before), self._policy.namespace)
            self._former.setdefault(ref, {})[former] = None
            self._homes[former] = ref
        if service.is_protected or (before is not None and before.uid == service.uid):
            self._remembered[ref] = service
        elif before is not None:
            del self._remembered[ref]

    def _strays(self, ref: Ref, own: Ref) -> tuple[Balancer, ...]:
        """Load balancers of services that had this name before.

        Those whose UIDs this process has seen; and those with the mark of this guest that are labelled for a service
        of this name and are called so. Labels alone prove nothing: another cluster of our name may share the
        namespace, and have a service of the same name.
        """
        owner, found = Owner(self._policy.cluster, ref.namespace, ref.name), []
        former = self._former.get(ref, {})
        for one in {**former, **self._owned.get(ref, {})}:
            balancer = self.find_balancer(one) if one != own else None
            if balancer is None or balancer.owner != owner:
                continue
            if one in former or self._is_marked_leftover(balancer):
                found.append(balancer)
        return tuple(found)

    def _is_marked_leftover(self, balancer: Balancer) -> bool:
        owner, mark = balancer.owner, balancer.annotations.get(names.GUEST_MARK)
        is_called_so = is_balancer_name(balancer.name, owner.cluster, owner.namespace, owner.service)
        return self._names_cluster and is_called_so and bool(mark) and mark == self.guest_uid

    def _sharers_of(self, primary: Service) -> tuple[Service, ...]:
        found = (self.find_service(ref) for ref in self._sharers.of(primary.namespace, primary.name))
        return tuple(one for one in found if one is not None)

    def _holder_of(self, service: Service, primary: Service | None) -> Service | None:
        if not service.primary_label:
            return None
        if primary is not None and service.primary_label == sharing_label(primary.namespace, primary.name):
            return primary
        namespace, _, name = service.primary_label.partition(".")  # one that was cut finds nobody
        return self._find(namespace, name)

    def _is_held(self, service: Service) -> bool:
        """Whether a load balancer, of whatever service, keeps what it shows. Asked of few services, seldom."""
        shown = service.shown
        if not shown or not self.balancers.is_synced:
            return True
        balancers = (self.find_balancer(ref) for ref, _ in self.balancers.items())
        return any(
            shown & set(one.held)
            for one in balancers
            if one is not None and not (one.moves or one.has_released)
        )

    def _network_of(self, primary: Service) -> str:
        own = LOAD_BALANCER.ref(self._policy.name_for(primary), self._policy.namespace)
        balancer = self.find_balancer(own)
        made_for = balancer.annotations.get(names.FIXED_NETWORK) if balancer is not None else None
        return primary.network if made_for is None else made_for

    def _new_old_keys(self, ref: Ref, service: Service) -> tuple[str, ...]:
        known = self._old_keys.get(ref)
        if known == service.old_keys or (known is None and not service.old_keys):
            return ()
        self._old_keys[ref] = service.old_keys
        return tuple(key for key in service.old_keys if key not in known) if known is not None else ()

    # --- what is not known --------------------------------------------------------------------------------------------

    def _host(self, now: datetime) -> Unseen | None:
        if self.balancers.is_synced:
            return None
        problem, since = self.balancers.problem, self.balancers.problem_since
        if problem is None or since is None:
            return Unseen(until=now + LISTING)
        if isinstance(problem, (Unauthorized, Forbidden)) or now - since >= MOMENT:
            return Unseen(explain_error(problem, self._policy.namespace))
        return Unseen(until=since + MOMENT)

    def _interfaces(self, now: datetime) -> Interfaces | Unseen | None:
        if self.interfaces.is_synced:
            return self.interfaces.get(INTERFACES)
        problem, since = self.interfaces.problem, self.interfaces.problem_since
        if problem is None or since is None or now - since < MOMENT:
            return Unseen(until=now + LISTING)
        return Unseen(f"ConfigMap {INTERFACES.namespace}/{INTERFACES.name} cannot be read: {problem.message}")


def _owner_of(balancer: Balancer) -> Ref:
    return SERVICE.ref(balancer.owner.service, balancer.owner.namespace)
