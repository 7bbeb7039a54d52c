"""Execution of the actions on the LoadBalancers of a cluster's control plane endpoint."""

from __future__ import annotations

from dataclasses import replace

from windrow.client.client import Client
from windrow.client.middleware.unanswered import UnansweredCreations
from windrow.clusters.api.endpoint import BalancerLocation, ControlPlaneEndpoint, render_endpoint
from windrow.clusters.bootstrap_data import find_layout
from windrow.clusters.context import ReconcileContext, StalePlan, delete_if_exists
from windrow.clusters.endpoint_balancer import key_of_balancers, render_balancer, render_servers
from windrow.clusters.plan import actions as do
from windrow.clusters.sources.harvesters import HarvesterClients, find_harvester_uid
from windrow.clusters.state import ClusterState
from windrow.harvester.resources import LOAD_BALANCER
from windrow.kubernetes.errors import AlreadyExists, Conflict, NotFound


class EndpointActions:
    """One method for each action. All may be repeated; none decides anything."""

    def __init__(self, context: ReconcileContext, harvesters: HarvesterClients) -> None:
        self._context, self._harvesters = context, harvesters

    async def record_load_balancers(self, action: do.RecordLoadBalancers, state: ClusterState) -> None:
        planned = BalancerLocation(action.namespace, action.credential, state.harvester_uid)
        client = await self._harvesters.get_verified_client(planned, state.cluster.namespace)
        identity = state.harvester_uid or await find_harvester_uid(client)
        location = replace(planned, harvester=identity)
        endpoint = ControlPlaneEndpoint(
            "loadBalancer", pool=action.pool, balancers=action.balancers, location=location
        )
        change: dict[str, object] = {"controlPlaneEndpoint": render_endpoint(endpoint)}
        if identity:
            change["harvesterUID"] = identity
        await self._context.patch_observed_cluster(state, change)
        self._context.process_state.unanswered.on_recorded(key_of_balancers(state.cluster.uid))

    async def create_load_balancer(self, action: do.CreateLoadBalancer, state: ClusterState) -> None:
        location = state.cluster.control_plane_endpoint.location
        if location is None:
            raise StalePlan
        client = await self._harvesters.get_verified_client(location, state.cluster.namespace)
        layout = find_layout(state.recorded.version or state.cluster.version)
        raw = render_balancer(state.cluster, action.balancer, location.namespace, action.servers, layout)
        unanswered, key = self._context.process_state.unanswered, key_of_balancers(state.cluster.uid)
        unanswered.on_request(key)
        creations = UnansweredCreations(client.transport)
        try:
            await Client(creations).create(LOAD_BALANCER, raw)
        except AlreadyExists as error:
            raise StalePlan from error  # whose it is the next observation shows
        finally:
            if creations.found:
                unanswered.on_unanswered(key, self._context.clock.monotonic())

    async def record_endpoint_host(self, action: do.RecordEndpointHost, state: ClusterState) -> None:
        field = "host" if action.purpose == "api" else "joinHost"
        await self._context.patch_observed_cluster(state, {"controlPlaneEndpoint": {field: action.host}})

    async def update_load_balancer(self, action: do.UpdateLoadBalancer, state: ClusterState) -> None:
        client = await self._client(state)
        change = {
            "metadata": {"resourceVersion": action.balancer.resource_version},
            "spec": {"backendServerSelector": render_servers(action.servers) if action.servers else None},
        }
        try:
            await client.patch(action.balancer.ref, change)
        except (Conflict, NotFound) as error:
            raise StalePlan from error

    async def delete_endpoint(self, action: do.DeleteEndpoint, state: ClusterState) -> None:
        await delete_if_exists(await self._client(state), action.balancer.ref, action.balancer.uid)

    async def _client(self, state: ClusterState) -> Client:
        location = state.cluster.control_plane_endpoint.location
        if location is None:
            raise StalePlan
        return await self._harvesters.get_verified_client(location, state.cluster.namespace)
