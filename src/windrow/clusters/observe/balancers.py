"""Observation of the LoadBalancers of a Cluster's endpoint."""

from __future__ import annotations

import asyncio
from dataclasses import replace

from windrow.clusters.api.secrets import CredentialError
from windrow.clusters.context import ReconcileContext
from windrow.clusters.endpoint_balancer import key_of_balancers, read_balancer
from windrow.clusters.observe.credentials import CredentialObserver
from windrow.clusters.plan import endpoint_balancers
from windrow.clusters.sources.harvester_objects import HarvesterObjects
from windrow.clusters.sources.harvesters import HarvesterClients
from windrow.clusters.state import ClusterState, Place
from windrow.harvester.resources import LOAD_BALANCER
from windrow.kubernetes.errors import KubeError


class BalancerObserver:
    """Reads, without side effects."""

    def __init__(
        self,
        context: ReconcileContext,
        harvesters: HarvesterClients,
        objects: HarvesterObjects,
        credentials: CredentialObserver,
    ) -> None:
        self._context, self._harvesters = context, harvesters
        self._objects, self._credentials = objects, credentials

    def list_places(self, state: ClusterState) -> frozenset[Place]:
        """Where they are; nowhere for a credential that the namespace may not use."""
        location = state.cluster.control_plane_endpoint.location
        if location is None or self._credentials.find_refusal(location.credential, state.cluster) is not None:
            return frozenset()
        return frozenset({Place(location.credential, location.namespace, state.cluster.namespace)})

    async def with_balancers(self, state: ClusterState) -> ClusterState:
        """What the watch shows; read again where something would follow from it, or before the watch is open."""
        endpoint, uid = state.cluster.control_plane_endpoint, state.cluster.uid
        if endpoint.location is None:
            return state
        unanswered = self._context.process_state.unanswered
        end = unanswered.find_end(key_of_balancers(uid), was_observed=not endpoint.is_pending)
        state = replace(state, balancers_may_be_made_until=self._context.by_wall_clock(end))
        is_ending = state.cluster.deletion_timestamp is not None
        if is_ending and state.machines:
            return state  # they go after the machines
        places = self.list_places(state)
        shown = [one for place in places for one in self._objects.list_balancers(uid, place) or ()]
        is_shown = all(self._objects.list_balancers(uid, place) is not None for place in places)
        state = replace(state, balancers={one.name: one for one in shown} if is_shown and places else None)
        if state.balancers is None and not (endpoint.is_pending or is_ending):
            return state
        follows = endpoint_balancers.plan(state)
        if state.balancers is not None and not (is_ending or follows.actions or follows.waits):
            return state
        try:
            client = await self._harvesters.get_verified_client(endpoint.location, state.cluster.namespace)
            refs = [LOAD_BALANCER.ref(one.name, endpoint.location.namespace) for one in endpoint.balancers]
            found = await asyncio.gather(*map(client.find, refs))
        except (CredentialError, KubeError) as error:
            return replace(state, balancers=None, balancers_unknown=str(error))
        read = (read_balancer(raw) for raw in found if raw is not None)
        return replace(state, balancers={one.name: one for one in read})
