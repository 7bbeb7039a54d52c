"""The executor: one request for each action, each conditional on the state that the plan was made from, and what the
requests hold.

Rights in the guest: services get, patch; services/status patch; events create, patch. On Harvester, in one namespace:
loadbalancers get, create, update, delete.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NoReturn, assert_never

from windrow.client.client import Client
from windrow.client.events import EventNote, EventRecorder
from windrow.client.middleware.unanswered import UnansweredCreations
from windrow.cloudprovider import names
from windrow.cloudprovider.context import ControllerContext
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
from windrow.cloudprovider.services.index import ServiceIndex, second_key
from windrow.cloudprovider.services.readings import LoadBalancer, Service, read_service
from windrow.cloudprovider.services.state import ClusterSettings, ServiceState
from windrow.harvester import names as harvester_names
from windrow.harvester.resources import LOAD_BALANCER
from windrow.kubernetes.errors import AlreadyExists, Conflict, KubeError, NotFound, is_not_found
from windrow.kubernetes.objects import Raw, is_deleting, new_object

FAILED = "SyncLoadBalancerFailed"
# Events that tell the state of a service; others are remarks.
STATE_REASONS = frozenset((FAILED, *(one.reason for one in (ENSURING, ENSURED, DELETING, DELETED))))


def render_load_balancer(
    service: Service, settings: ClusterSettings, guest_uid: str = "", *, is_second: bool = False
) -> Raw:
    """The LoadBalancer of `service`, as it is created, with the uid of the guest if that is known."""
    pool = service.second_pool if is_second else service.pool
    annotations = {
        names.LB_NETWORK: service.network,
        names.LB_PROJECT: service.project,
        names.LB_NAMESPACE: service.project_namespace,
        names.LB_CLUSTER: settings.cluster,
        names.FIXED_NETWORK: service.network,
    }
    if settings.management_network:
        annotations[names.MANAGEMENT_NETWORK] = settings.management_network
    if guest_uid:
        annotations[harvester_names.GUEST_UID] = guest_uid
    spec: Raw = {"ipam": service.mode, "workloadType": "cluster"}
    if pool and not service.uses_dhcp:
        spec["ipPool"] = pool
    return new_object(
        LOAD_BALANCER,
        settings.second_name_for(service) if is_second else settings.name_for(service),
        settings.namespace,
        labels={
            harvester_names.LB_OF_CLUSTER: settings.cluster,
            harvester_names.LB_OF_NAMESPACE: service.namespace,
            harvester_names.LB_OF_SERVICE: service.name,
        },
        annotations=annotations,
        spec=spec,
    )


def render_load_balancer_update(action: UpdateLoadBalancer, guest_uid: str = "") -> Raw:
    """The whole LoadBalancer with the changes, and all other fields as they were read.

    One without a mark, as the Go program makes them, gets that of the guest along with the changes.
    """
    raw: Raw = dict(action.balancer.raw)
    metadata = dict(raw["metadata"])
    mark = {harvester_names.GUEST_UID: guest_uid} if guest_uid else {}
    if action.annotations or mark:
        metadata["annotations"] = {**mark, **_merged(metadata.get("annotations") or {}, action.annotations)}
    raw["metadata"] = metadata
    if action.pool is not None:
        spec = {key: value for key, value in (raw.get("spec") or {}).items() if key != "ipPool"}
        raw["spec"] = {**spec, "ipPool": action.pool} if action.pool else spec
    if action.address is not None:
        raw["status"] = {**(raw.get("status") or {}), "address": action.address}
    return raw


def is_updated(action: UpdateLoadBalancer, balancer: LoadBalancer) -> bool:
    """Whether Harvester kept the changes; its webhook may have overwritten them."""
    return (
        all(balancer.annotations.get(key) == value for key, value in action.annotations.items())
        and action.pool in (None, balancer.pool)
        and action.address in (None, balancer.address)
    )


def _merged(before: Mapping[str, str], changes: Mapping[str, str | None]) -> dict[str, str]:
    merged = {**before, **changes}
    return {key: value for key, value in merged.items() if value is not None}


def render_service_patch(service: Service, action: PatchService | RemoveFinalizer) -> Raw:
    """A merge patch, which conflicts where the service has changed: a list of finalizers is replaced as a whole."""
    metadata: Raw = {"resourceVersion": service.version}
    if action.annotations:
        metadata["annotations"] = dict(action.annotations)
    if action.labels:
        metadata["labels"] = dict(action.labels)
    if isinstance(action, RemoveFinalizer):
        metadata["finalizers"] = [one for one in service.finalizers if one != names.FINALIZER] or None
    elif action.add_finalizer:
        metadata["finalizers"] = [*service.finalizers, names.FINALIZER]
    return {"metadata": metadata}


def render_cleared_status(service: Service) -> Raw:
    return {
        "metadata": {"resourceVersion": service.version},
        "status": {"loadBalancer": {"ingress": None}},
    }


class Stale(Exception):
    """The objects have changed since the plan was made: reconcile again."""


class HostFailed(Exception):
    """A request to Harvester failed. `orphan` is the load balancer of an earlier service that it was about."""

    def __init__(self, error: KubeError, orphan: str = "") -> None:
        super().__init__(error.message)
        self.error = error
        self.orphan = orphan


class Executor:
    """Executes actions, and keeps the answers in the mutation caches of `index`."""

    def __init__(self, context: ControllerContext, recorder: EventRecorder, index: ServiceIndex) -> None:
        self._guest, self._host = Client(context.guest), Client(context.host)
        self._clock = context.clock
        self._recorder = recorder
        self._index, self._settings = index, index.settings
        self._services, self._load_balancers = index.services, index.load_balancers

    async def execute(self, state: ServiceState, actions: Iterable[Action]) -> None:
        """Raises Stale, HostFailed, or the KubeError of the guest; the actions before are done."""
        service = state.service
        for action in actions:
            match action:
                case PatchService():
                    service = await self._patch(service, render_service_patch(service, action))
                    if action.add_finalizer:
                        for key in (service.uid, second_key(service.uid)):
                            self._index.unanswered.on_recorded(key)
                case ClearStatus():
                    service = await self._patch(service, render_cleared_status(service), "status")
                case ConfirmDeleted(name=name):
                    await self._confirm_deleted(name, service)
                case RemoveFinalizer():
                    await self._remove_finalizer(service, action)
                case CreateLoadBalancer():
                    await self._create_load_balancer(service, action)
                case UpdateLoadBalancer():
                    await self._update_load_balancer(service, action)
                case DeleteLoadBalancer():
                    await self._delete_load_balancer(state, service, action.balancer)
                case EmitEvent():
                    self.emit_event(service, action)
                case _:
                    assert_never(action)

    def emit_event(self, service: Service, event: EmitEvent) -> None:
        """Queue an event on the service."""
        if event.reason in STATE_REASONS:
            self._index.record(service.ref).last_event = service.uid, event.reason
        self._recorder.record(EventNote(service.ref, service.uid, event.reason, event.message, event.type))

    # --- the guest ------------------------------------------------------------------------------------------------

    async def _patch(self, service: Service, patch: Raw, subresource: str = "") -> Service:
        try:
            raw = await self._guest.patch(service.ref, patch, subresource)
        except (Conflict, NotFound) as error:
            raise Stale from error
        self._services.mutated(raw)
        return read_service(raw)

    async def _remove_finalizer(self, service: Service, action: RemoveFinalizer) -> None:
        await self._confirm_deleted(action.load_balancer, service)
        try:
            raw = await self._guest.patch(service.ref, render_service_patch(service, action))
            self._services.mutated(raw)
        except NotFound:
            self._services.deleted(service.ref, service.version)
        except Conflict as error:
            raise Stale from error

    async def _confirm_deleted(self, name: str, service: Service) -> None:
        """Raises Stale when Harvester has the load balancer, asked live: the watch may lag behind our own creation."""
        found = await self._find_load_balancer(name)
        if found is not None and found.owner == self._settings.owner_for(service):
            raise Stale

    # --- Harvester ------------------------------------------------------------------------------------------------

    async def _create_load_balancer(self, service: Service, action: CreateLoadBalancer) -> None:
        second = action.is_second
        load_balancer = render_load_balancer(service, self._settings, self._index.guest_uid, is_second=second)
        unanswered, creations = self._index.unanswered, UnansweredCreations(self._host.transport)
        key = second_key(service.uid) if second else service.uid
        unanswered.on_request(key)
        try:
            raw = await Client(creations).create(LOAD_BALANCER, load_balancer)
        except AlreadyExists as error:
            # The watch lags behind: the answer to our create was lost, or the object belongs to another owner.
            await self._find_load_balancer(action.name)
            raise Stale from error
        except KubeError as error:
            raise HostFailed(error) from error
        finally:
            if creations.found:
                unanswered.on_unanswered(key, self._clock.monotonic())
        self._load_balancers.mutated(raw)

    async def _find_load_balancer(self, name: str) -> LoadBalancer | None:
        """The load balancer as Harvester has it now, which is kept in the mutation cache."""
        try:
            raw = await self._host.find(LOAD_BALANCER.ref(name, self._settings.namespace))
        except KubeError as error:
            raise HostFailed(error) from error
        return self._load_balancers.mutated(raw) if raw is not None else None

    async def _update_load_balancer(self, service: Service, action: UpdateLoadBalancer) -> None:
        balancer, record = action.balancer, self._index.record(service.ref)
        content = (balancer.uid, tuple(sorted(action.annotations.items())), action.pool, action.address)
        if record.ineffective == content:
            return
        update = render_load_balancer_update(action, self._index.guest_uid)
        try:
            raw = await self._host.update(LOAD_BALANCER, update)
        except Conflict as error:
            raise Stale from error
        except KubeError as error:
            self._raise_unless_gone(balancer, error)
        updated = self._load_balancers.mutated(raw)
        record.ineffective = () if updated is not None and is_updated(action, updated) else content

    async def _delete_load_balancer(
        self, state: ServiceState, service: Service, balancer: LoadBalancer
    ) -> None:
        if not service.is_deleting:  # a deletion of the service cannot be taken back, other changes can
            await self._check_current(state, service)
        try:
            raw = await self._host.delete(balancer.ref, uid=balancer.uid)
        except Conflict as error:
            raise Stale from error
        except NotFound as error:
            self._raise_unless_gone(balancer, error)
        except KubeError as error:
            own = (self._settings.name_for(service), self._settings.second_name_for(service))
            is_own = balancer.name in own
            raise HostFailed(error, "" if is_own else balancer.name) from error
        if raw.get("kind") == LOAD_BALANCER.kind and is_deleting(raw):
            self._load_balancers.mutated(raw)
        else:
            self._load_balancers.deleted(balancer.ref, balancer.version)

    async def _check_current(self, state: ServiceState, service: Service) -> None:
        """Raises Stale unless the service is still the one that the plan was made from, asked live."""
        raw = await self._guest.find(service.ref)
        if raw is not None and (state.is_gone or read_service(raw).version != service.version):
            raise Stale

    def _raise_unless_gone(self, balancer: LoadBalancer, error: KubeError) -> NoReturn:
        if not is_not_found(error, balancer.name):
            raise HostFailed(error) from error
        self._load_balancers.deleted(balancer.ref, balancer.version)
        raise Stale from error
