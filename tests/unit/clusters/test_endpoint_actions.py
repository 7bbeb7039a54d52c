"""What is done on Harvester for the load balancers of a control plane endpoint, and recorded before and after."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from dataclasses import dataclass, replace
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from tests.support.clock import LoopClock, run_driven
from tests.support.simulation import simulation
from tests.unit.clusters.builders import SERVER, a_cluster, a_pool, look
from tests.unit.clusters.test_cluster import a_raw_cluster

from windrow.client.client import Client
from windrow.client.transport import Transport, TransportMiddleware
from windrow.clusters.api.endpoint import (
    BalancerLocation,
    ControlPlaneEndpoint,
    EndpointBalancer,
    read_recorded_endpoint,
)
from windrow.clusters.api.kinds import CLUSTER
from windrow.clusters.api.names import CREDENTIAL_KEY
from windrow.clusters.api.secrets import CredentialError, SecretData
from windrow.clusters.context import ProcessState, ReconcileContext, StalePlan
from windrow.clusters.endpoint_balancer import ObservedBalancer, key_of_balancers, read_balancer
from windrow.clusters.execute.endpoint_actions import EndpointActions
from windrow.clusters.plan import actions as do
from windrow.clusters.sources.harvesters import HarvesterClients
from windrow.clusters.state import ClusterState
from windrow.harvester.names import VM_NAME
from windrow.harvester.resources import IP_POOL, LOAD_BALANCER
from windrow.harvester.unanswered import LATEST
from windrow.kubernetes.errors import Conflict, OutcomeUnknown
from windrow.kubernetes.kubeconfig import ClientConfig, render_kubeconfig
from windrow.kubernetes.objects import Raw, nested, new_object
from windrow.kubernetes.requests import Reply, Request
from windrow.kubernetes.resources import NAMESPACE, SECRET

API = EndpointBalancer("api", "prod-api-x")
KEY = key_of_balancers("u")
RANGES = [{"subnet": "10.1.0.0/24", "rangeStart": "10.1.0.10", "rangeEnd": "10.1.0.19"}]


class Silent(TransportMiddleware):
    """Creations have no answer, and Namespaces may not be read."""

    async def send(self, request: Request) -> Reply:
        if request.method == "POST":
            raise OutcomeUnknown("the connection was closed")
        if "/namespaces/kube-system" in request.path:
            return Reply(403, b'{"kind": "Status", "reason": "Forbidden", "code": 403}')
        return await self._inner.send(request)


@dataclass
class Site:
    """`state` is that of a Cluster whose load balancer is to be made."""

    actions: EndpointActions
    process: ProcessState
    state: ClusterState
    harvester: Client
    management: Client
    uid: str
    clock: LoopClock

    async def recorded(self) -> ControlPlaneEndpoint:
        raw = await self.management.get(CLUSTER.ref("prod", "fleet-default"))
        found = read_recorded_endpoint(raw["status"])
        assert found is not None
        return found

    async def balancers(self) -> list[Raw]:
        return await self.harvester.list(LOAD_BALANCER)

    async def made(self, *servers: str) -> ObservedBalancer:
        await self.actions.create_load_balancer(
            do.CreateLoadBalancer("machines need it", API, servers), self.state
        )
        (raw,) = await self.balancers()
        return read_balancer(raw)


def on_a_site(story: Callable[[Site], Coroutine[Any, Any, None]], is_silent: bool = False) -> None:
    async def main() -> None:
        async with simulation(with_manager=False) as sim:
            harvester, management = sim.harvester_client, sim.management_client
            raw = await management.create(CLUSTER, a_raw_cluster())
            await harvester.create(IP_POOL, new_object(IP_POOL, "endpoints", spec={"ranges": RANGES}))
            uid = (await harvester.get(NAMESPACE.ref("kube-system")))["metadata"]["uid"]
            data = {CREDENTIAL_KEY: render_kubeconfig(ClientConfig("https://10.0.0.1:6443", token="t"), "hv")}
            may = SecretData("ns", "cc", allowed_namespaces=frozenset({"fleet-default"}), data=data)
            secrets: Any = {SECRET.ref("cc", "ns"): may}
            transport: Transport = harvester.transport
            clients = HarvesterClients(secrets, lambda access: Silent(transport) if is_silent else transport)
            cache: Any = SimpleNamespace(mutated=lambda raw: None)
            unused: Any = None
            process = ProcessState()
            process.unanswered.begin(sim.clock.monotonic())
            context = ReconcileContext(
                management, cache, cache, secrets, sim.clock, unused, unused, process_state=process
            )
            location = BalancerLocation("default", "ns:cc", "" if is_silent else uid)
            endpoint = ControlPlaneEndpoint("loadBalancer", "", "", "endpoints", (API,), location)
            cluster = a_cluster(a_pool("servers", 3, SERVER), control_plane_endpoint=endpoint, raw=raw)
            state = look(replace(cluster, uid="u"))
            await story(
                Site(EndpointActions(context, clients), process, state, harvester, management, uid, sim.clock)
            )

    run_driven(main())


RECORD = do.RecordLoadBalancers("it is asked for", "default", "ns:cc", "endpoints", (API,))


def test_what_is_going_to_be_made_is_recorded_with_the_harvester_that_it_is_on() -> None:
    async def story(site: Site) -> None:
        await site.actions.record_load_balancers(RECORD, site.state)

        wanted = replace(
            site.state.cluster.control_plane_endpoint, location=BalancerLocation("default", "ns:cc", site.uid)
        )
        assert await site.recorded() == wanted
        raw = await site.management.get(CLUSTER.ref("prod", "fleet-default"))
        assert raw["status"]["harvesterUID"] == site.uid
        # No other manager can have requested it before it was recorded.
        assert site.process.unanswered.find_end(KEY, was_observed=False) is None

    on_a_site(story)


def test_a_harvester_that_may_not_be_read_is_not_recorded() -> None:
    async def story(site: Site) -> None:
        await site.actions.record_load_balancers(RECORD, site.state)

        raw = await site.management.get(CLUSTER.ref("prod", "fleet-default"))
        assert "harvesterUID" not in raw["status"]
        assert nested(raw, "status", "controlPlaneEndpoint", "location", "harvester", default="") == ""

    on_a_site(story, is_silent=True)


def test_nothing_is_recorded_or_made_on_another_harvester() -> None:
    async def story(site: Site) -> None:
        endpoint = site.state.cluster.control_plane_endpoint
        moved = replace(endpoint, location=BalancerLocation("default", "ns:cc", "another"))
        cluster = replace(site.state.cluster, control_plane_endpoint=moved)
        elsewhere = replace(site.state, cluster=cluster)
        recorded = replace(cluster, recorded=replace(cluster.recorded, harvester_uid="another"))

        with pytest.raises(CredentialError):
            await site.actions.record_load_balancers(RECORD, replace(site.state, cluster=recorded))
        with pytest.raises(CredentialError):
            await site.actions.create_load_balancer(do.CreateLoadBalancer("", API, ()), elsewhere)
        assert await site.balancers() == []

    on_a_site(story)


def test_a_load_balancer_is_made_once_and_follows_its_servers() -> None:
    async def story(site: Site) -> None:
        balancer = await site.made("s1")
        assert (balancer.cluster_uid, balancer.servers) == ("u", ("s1",))
        assert site.process.unanswered.find_end(KEY, was_observed=True) == LATEST
        with pytest.raises(StalePlan):
            await site.made("s1")

        await site.actions.update_load_balancer(do.UpdateLoadBalancer("", balancer, ("s1", "s2")), site.state)
        (raw,) = await site.balancers()
        assert nested(raw, "spec", "backendServerSelector", VM_NAME) == ["s1", "s2"]
        with pytest.raises(StalePlan):  # what was decided about another state
            await site.actions.update_load_balancer(do.UpdateLoadBalancer("", balancer, ()), site.state)
        await site.actions.update_load_balancer(do.UpdateLoadBalancer("", read_balancer(raw), ()), site.state)
        (raw,) = await site.balancers()
        assert not raw["spec"].get("backendServerSelector")

    on_a_site(story)


def test_a_load_balancer_is_deleted_where_it_still_is_that_one() -> None:
    async def story(site: Site) -> None:
        balancer = await site.made("s1")
        delete = do.DeleteEndpoint("its Cluster is deleted", balancer)

        await site.actions.delete_endpoint(delete, site.state)
        assert await site.balancers() == []
        await site.actions.delete_endpoint(delete, site.state)
        with pytest.raises(StalePlan):
            await site.actions.update_load_balancer(do.UpdateLoadBalancer("", balancer, ()), site.state)

        await site.made("s1")
        with pytest.raises(Conflict):
            await site.actions.delete_endpoint(delete, site.state)
        assert len(await site.balancers()) == 1

    on_a_site(story)


def test_a_creation_without_an_answer_may_be_carried_out_for_a_while() -> None:
    async def story(site: Site) -> None:
        site.process.unanswered.on_recorded(KEY)
        await site.clock.sleep_until(site.clock.now() + timedelta(minutes=5))
        with pytest.raises(OutcomeUnknown):
            await site.made("s1")

        assert site.process.unanswered.find_end(KEY, was_observed=True) == timedelta(minutes=5) + LATEST

    on_a_site(story, is_silent=True)


@pytest.mark.parametrize(("purpose", "hosts"), [("api", ("10.1.0.10", "")), ("join", ("", "10.1.0.10"))])
def test_the_address_is_recorded_for_what_it_is_for(purpose: Any, hosts: tuple[str, str]) -> None:
    async def story(site: Site) -> None:
        await site.actions.record_load_balancers(RECORD, site.state)
        raw = await site.management.get(CLUSTER.ref("prod", "fleet-default"))
        state = replace(site.state, cluster=replace(site.state.cluster, raw=raw))
        await site.actions.record_endpoint_host(do.RecordEndpointHost("", purpose, "10.1.0.10"), state)

        found = await site.recorded()
        assert (found.host, found.join_host) == hosts
        assert found.balancers == (API,)

    on_a_site(story)


def test_without_a_recorded_place_nothing_is_done() -> None:
    async def story(site: Site) -> None:
        balancer = await site.made("s1")
        endpoint = replace(site.state.cluster.control_plane_endpoint, location=None)
        state = replace(site.state, cluster=replace(site.state.cluster, control_plane_endpoint=endpoint))

        with pytest.raises(StalePlan):
            await site.actions.create_load_balancer(do.CreateLoadBalancer("", API, ()), state)
        with pytest.raises(StalePlan):
            await site.actions.delete_endpoint(do.DeleteEndpoint("", balancer), state)
        assert len(await site.balancers()) == 1

    on_a_site(story)
