"""Plans carried out, one call for each action, every one of them conditional on what the plan had seen.

In the guest this needs: services get, patch; services/status patch; events create, patch.
On Harvester, in one namespace: loadbalancers get, create, update, delete.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NoReturn

from windrow.client.client import Client
from windrow.client.recording import Told
from windrow.cloudprovider.services.actions import (
    DELETED,
    DELETING,
    ENSURED,
    ENSURING,
    Action,
    Amend,
    ClearStatus,
    Confirm,
    LetGo,
    Mark,
    Release,
    Reserve,
    Tell,
)
from windrow.cloudprovider.services.ahead import Ahead
from windrow.cloudprovider.services.balancer_readings import Balancer, balancer_reader
from windrow.cloudprovider.services.rendering import (
    is_amended,
    render_amended,
    render_balancer,
    render_cleared_status,
    render_letting_go,
    render_mark,
)
from windrow.cloudprovider.services.seeing import Policy, Seen
from windrow.cloudprovider.services.service_readings import Service, read_service
from windrow.cloudprovider.services.telling import Teller
from windrow.harvester.kinds import LOAD_BALANCER
from windrow.kube.errors import Conflict, Exists, KubeError, NotFound, says_gone
from windrow.kube.objects import Raw, is_deleting
from windrow.kube.refs import Ref

FAILED = "SyncLoadBalancerFailed"
# Events that say how a service fares; others are remarks.
STATES = frozenset((FAILED, *(one.reason for one in (ENSURING, ENSURED, DELETING, DELETED))))


class Stale(Exception):
    """Something has changed since the plan was made: make a new one. Nothing is wrong."""


class HostFailed(Exception):
    """Harvester did not do it. `error` says why; `leftover` is the load balancer of an earlier service that stays."""

    def __init__(self, error: KubeError, leftover: str = "") -> None:
        super().__init__(error.message)
        self.error = error
        self.leftover = leftover


class Carrier:
    """Carries actions out, and remembers their answers in `services` and `balancers`."""

    def __init__(
        self,
        guest: Client,
        host: Client,
        teller: Teller,
        policy: Policy,
        services: Ahead[Service],
        balancers: Ahead[Balancer],
        guest_uid: Callable[[], str] = lambda: "",
    ) -> None:
        self._guest = guest
        self._host = host
        self._teller = teller
        self._policy = policy
        self._services = services
        self._balancers = balancers
        self._guest_uid = guest_uid
        self._read_balancer = balancer_reader(policy.cluster)
        # Changes that Harvester answered with something else: they would be sent again at every look.
        self._futile: dict[Ref, tuple[object, ...]] = {}
        # How a service (with its UID) was last said to fare.
        self.last_words: dict[Ref, tuple[str, str]] = {}

    async def carry_out(self, seen: Seen, actions: Iterable[Action]) -> None:
        """Raises Stale, HostFailed, or the KubeError of the guest; actions before that one are done."""
        service = seen.service
        for action in actions:
            match action:
                case Mark():
                    service = await self._patch(service, render_mark(service, action))
                case ClearStatus():
                    service = await self._patch(service, render_cleared_status(service), "status")
                case Confirm(name=name):
                    await self._ensure_gone(LOAD_BALANCER.ref(name, self._policy.namespace), service)
                case LetGo():
                    await self._let_go(service, action)
                case Reserve():
                    await self._reserve(service, action)
                case Amend():
                    await self._amend(action)
                case Release():
                    await self._release(seen, service, action.balancer)
                case Tell():
                    self.tell(service, action)

    def tell(self, service: Service, tell: Tell) -> None:
        """An event on the service, soon."""
        if tell.reason in STATES:
            self.last_words[service.ref] = service.uid, tell.reason
        self._teller.tell(Told(service.ref, service.uid, tell.reason, tell.message, tell.type))

    # --- the guest ------------------------------------------------------------------------------------------------

    async def _patch(self, service: Service, patch: Raw, subresource: str = "") -> Service:
        try:
            answer = read_service(await self._guest.patch(service.ref, patch, subresource))
        except (Conflict, NotFound) as error:
            raise Stale from error
        self._services.wrote(service.ref, service, answer)
        return answer

    async def _let_go(self, service: Service, let_go: LetGo) -> None:
        await self._ensure_gone(LOAD_BALANCER.ref(let_go.unless, self._policy.namespace), service)
        try:
            raw = await self._guest.patch(service.ref, render_letting_go(service, let_go))
        except NotFound:
            raw = None
        except Conflict as error:
            raise Stale from error
        # With the last finalizer a deleted object goes; the answer is the object as it was.
        is_gone = raw is None or (service.is_deleting and not raw["metadata"].get("finalizers"))
        self._services.wrote(service.ref, service, None if is_gone or raw is None else read_service(raw))

    async def _ensure_gone(self, ref: Ref, service: Service) -> None:
        """Ask Harvester itself: our watch may lag behind our own creation."""
        raw = await self._find_balancer(ref)
        if raw is None:
            return
        balancer = self._read_balancer(raw)
        if balancer.owner == self._policy.owner_for(service):
            self._balancers.wrote(ref, None, balancer)
            raise Stale

    # --- Harvester ------------------------------------------------------------------------------------------------

    async def _reserve(self, service: Service, reserve: Reserve) -> None:
        ref = LOAD_BALANCER.ref(reserve.name, self._policy.namespace)
        try:
            raw = await self._host.create(
                LOAD_BALANCER, render_balancer(service, self._policy, self._guest_uid())
            )
        except Exists as error:
            # Our watch lags behind: an answer of ours was lost, or somebody else has the name.
            found = await self._find_balancer(ref)
            if found is not None:
                self._balancers.wrote(ref, None, self._read_balancer(found))
            raise Stale from error
        except KubeError as error:
            raise HostFailed(error) from error
        self._balancers.wrote(ref, None, self._read_balancer(raw))

    async def _find_balancer(self, ref: Ref) -> Raw | None:
        try:
            return await self._host.find(ref)
        except KubeError as error:
            raise HostFailed(error) from error

    async def _amend(self, amend: Amend) -> None:
        balancer = amend.balancer
        content = (balancer.uid, tuple(sorted(amend.annotations.items())), amend.pool, amend.address)
        if self._futile.get(balancer.ref) == content:
            return
        try:
            raw = await self._host.update(LOAD_BALANCER, render_amended(amend, self._guest_uid()))
        except Conflict as error:
            raise Stale from error
        except KubeError as error:
            self._raise_unless_gone(balancer, error)
        answer = self._read_balancer(raw)
        self._balancers.wrote(balancer.ref, balancer, answer)
        if not is_amended(amend, answer.annotations, answer.pool, answer.address):
            self._futile[balancer.ref] = content

    async def _release(self, seen: Seen, service: Service, balancer: Balancer) -> None:
        if not service.is_deleting:  # from which there is no way back
            await self._look_again(seen, service)
        try:
            raw = await self._host.delete(balancer.ref, uid=balancer.uid)
        except Conflict as error:
            raise Stale from error
        except NotFound as error:
            self._raise_unless_gone(balancer, error)
        except KubeError as error:
            is_own = balancer.name == self._policy.name_for(service)
            raise HostFailed(error, "" if is_own else balancer.name) from error
        self._futile.pop(balancer.ref, None)
        stays = raw.get("kind") == LOAD_BALANCER.kind and is_deleting(raw)
        self._balancers.wrote(balancer.ref, balancer, self._read_balancer(raw) if stays else None)

    async def _look_again(self, seen: Seen, service: Service) -> None:
        """Whether the service is still what the plan rests on, as its API server says now."""
        raw = await self._guest.find(service.ref)
        if raw is None or seen.is_over:
            if raw is None:
                return
            raise Stale
        if read_service(raw).version != service.version:
            raise Stale

    def _raise_unless_gone(self, balancer: Balancer, error: KubeError) -> NoReturn:
        if not says_gone(error, balancer.name):
            raise HostFailed(error) from error
        self._futile.pop(balancer.ref, None)
        self._balancers.wrote(balancer.ref, balancer, None)
        raise Stale from error
