"""Plans carried out, one call for each action, every one of them conditional on what the plan had seen.

In the guest this needs: services get, patch; services/status patch; events create, patch.
On Harvester, in one namespace: loadbalancers get, create, update, delete.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NoReturn

from windrow.client.client import Client
from windrow.client.events import EventNote
from windrow.cloudprovider.services.actions import (
    DELETED,
    DELETING,
    ENSURED,
    ENSURING,
    Action,
    ClearStatus,
    ConfirmDeleted,
    CreateLoadBalancer,
    DeleteLoadBalancer,
    EmitEvent,
    PatchService,
    RemoveFinalizer,
    UpdateLoadBalancer,
)
from windrow.cloudprovider.services.ahead import Ahead
from windrow.cloudprovider.services.event_queue import EventQueue
from windrow.cloudprovider.services.readings import LoadBalancer, Service, load_balancer_reader, read_service
from windrow.cloudprovider.services.render import (
    is_updated,
    render_cleared_status,
    render_finalizer_removal,
    render_load_balancer,
    render_load_balancer_update,
    render_service_patch,
)
from windrow.cloudprovider.services.state import ClusterSettings, ServiceState
from windrow.harvester.resources import LOAD_BALANCER
from windrow.kubernetes.errors import AlreadyExists, Conflict, KubeError, NotFound, is_not_found
from windrow.kubernetes.objects import Raw, is_deleting
from windrow.kubernetes.resources import ObjectRef

FAILED = "SyncLoadBalancerFailed"
# Events that say how a service fares; others are remarks.
STATE_REASONS = frozenset((FAILED, *(one.reason for one in (ENSURING, ENSURED, DELETING, DELETED))))


class Stale(Exception):
    """Something has changed since the plan was made: make a new one. Nothing is wrong."""


class HostFailed(Exception):
    """Harvester did not do it. `error` says why; `leftover` is the load balancer of an earlier service that stays."""

    def __init__(self, error: KubeError, orphan: str = "") -> None:
        super().__init__(error.message)
        self.error = error
        self.orphan = orphan


class Executor:
    """Carries actions out, and remembers their answers in `services` and `balancers`."""

    def __init__(
        self,
        guest: Client,
        host: Client,
        event_queue: EventQueue,
        settings: ClusterSettings,
        services: Ahead[Service],
        balancers: Ahead[LoadBalancer],
        guest_uid: Callable[[], str] = lambda: "",
    ) -> None:
        self._guest = guest
        self._host = host
        self._event_queue = event_queue
        self._settings = settings
        self._services = services
        self._balancers = balancers
        self._guest_uid = guest_uid
        self._read_load_balancer = load_balancer_reader(settings.cluster)
        # Changes that Harvester answered with something else: they would be sent again at every look.
        self._ineffective: dict[ObjectRef, tuple[object, ...]] = {}
        # How a service (with its UID) was last said to fare.
        self.last_event: dict[ObjectRef, tuple[str, str]] = {}

    async def execute(self, state: ServiceState, actions: Iterable[Action]) -> None:
        """Raises Stale, HostFailed, or the KubeError of the guest; actions before that one are done."""
        service = state.service
        for action in actions:
            match action:
                case PatchService():
                    service = await self._patch(service, render_service_patch(service, action))
                case ClearStatus():
                    service = await self._patch(service, render_cleared_status(service), "status")
                case ConfirmDeleted(name=name):
                    await self._confirm_deleted(LOAD_BALANCER.ref(name, self._settings.namespace), service)
                case RemoveFinalizer():
                    await self._remove_finalizer(service, action)
                case CreateLoadBalancer():
                    await self._create_load_balancer(service, action)
                case UpdateLoadBalancer():
                    await self._update_load_balancer(action)
                case DeleteLoadBalancer():
                    await self._delete_load_balancer(state, service, action.balancer)
                case EmitEvent():
                    self.emit_event(service, action)

    def emit_event(self, service: Service, event: EmitEvent) -> None:
        """An event on the service, soon."""
        if event.reason in STATE_REASONS:
            self.last_event[service.ref] = service.uid, event.reason
        self._event_queue.put(EventNote(service.ref, service.uid, event.reason, event.message, event.type))

    # --- the guest ------------------------------------------------------------------------------------------------

    async def _patch(self, service: Service, patch: Raw, subresource: str = "") -> Service:
        try:
            answer = read_service(await self._guest.patch(service.ref, patch, subresource))
        except (Conflict, NotFound) as error:
            raise Stale from error
        self._services.wrote(service.ref, service, answer)
        return answer

    async def _remove_finalizer(self, service: Service, action: RemoveFinalizer) -> None:
        await self._confirm_deleted(
            LOAD_BALANCER.ref(action.load_balancer, self._settings.namespace), service
        )
        try:
            raw = await self._guest.patch(service.ref, render_finalizer_removal(service, action))
        except NotFound:
            raw = None
        except Conflict as error:
            raise Stale from error
        # With the last finalizer a deleted object goes; the answer is the object as it was.
        is_gone = raw is None or (service.is_deleting and not raw["metadata"].get("finalizers"))
        self._services.wrote(service.ref, service, None if is_gone or raw is None else read_service(raw))

    async def _confirm_deleted(self, ref: ObjectRef, service: Service) -> None:
        """Ask Harvester itself: our watch may lag behind our own creation."""
        raw = await self._find_load_balancer(ref)
        if raw is None:
            return
        balancer = self._read_load_balancer(raw)
        if balancer.owner == self._settings.owner_for(service):
            self._balancers.wrote(ref, None, balancer)
            raise Stale

    # --- Harvester ------------------------------------------------------------------------------------------------

    async def _create_load_balancer(self, service: Service, action: CreateLoadBalancer) -> None:
        ref = LOAD_BALANCER.ref(action.name, self._settings.namespace)
        try:
            raw = await self._host.create(
                LOAD_BALANCER, render_load_balancer(service, self._settings, self._guest_uid())
            )
        except AlreadyExists as error:
            # Our watch lags behind: an answer of ours was lost, or somebody else has the name.
            found = await self._find_load_balancer(ref)
            if found is not None:
                self._balancers.wrote(ref, None, self._read_load_balancer(found))
            raise Stale from error
        except KubeError as error:
            raise HostFailed(error) from error
        self._balancers.wrote(ref, None, self._read_load_balancer(raw))

    async def _find_load_balancer(self, ref: ObjectRef) -> Raw | None:
        try:
            return await self._host.find(ref)
        except KubeError as error:
            raise HostFailed(error) from error

    async def _update_load_balancer(self, action: UpdateLoadBalancer) -> None:
        balancer = action.balancer
        content = (balancer.uid, tuple(sorted(action.annotations.items())), action.pool, action.address)
        if self._ineffective.get(balancer.ref) == content:
            return
        try:
            raw = await self._host.update(
                LOAD_BALANCER, render_load_balancer_update(action, self._guest_uid())
            )
        except Conflict as error:
            raise Stale from error
        except KubeError as error:
            self._raise_unless_gone(balancer, error)
        answer = self._read_load_balancer(raw)
        self._balancers.wrote(balancer.ref, balancer, answer)
        if not is_updated(action, answer.annotations, answer.pool, answer.address):
            self._ineffective[balancer.ref] = content

    async def _delete_load_balancer(
        self, state: ServiceState, service: Service, balancer: LoadBalancer
    ) -> None:
        if not service.is_deleting:  # from which there is no way back
            await self._check_current(state, service)
        try:
            raw = await self._host.delete(balancer.ref, uid=balancer.uid)
        except Conflict as error:
            raise Stale from error
        except NotFound as error:
            self._raise_unless_gone(balancer, error)
        except KubeError as error:
            is_own = balancer.name == self._settings.name_for(service)
            raise HostFailed(error, "" if is_own else balancer.name) from error
        self._ineffective.pop(balancer.ref, None)
        stays = raw.get("kind") == LOAD_BALANCER.kind and is_deleting(raw)
        self._balancers.wrote(balancer.ref, balancer, self._read_load_balancer(raw) if stays else None)

    async def _check_current(self, state: ServiceState, service: Service) -> None:
        """Whether the service is still what the plan rests on, as its API server says now."""
        raw = await self._guest.find(service.ref)
        if raw is None or state.is_gone:
            if raw is None:
                return
            raise Stale
        if read_service(raw).version != service.version:
            raise Stale

    def _raise_unless_gone(self, balancer: LoadBalancer, error: KubeError) -> NoReturn:
        if not is_not_found(error, balancer.name):
            raise HostFailed(error) from error
        self._ineffective.pop(balancer.ref, None)
        self._balancers.wrote(balancer.ref, balancer, None)
        raise Stale from error
