"""The LoadBalancers of a cluster whose control plane endpoint is one: recorded, made, kept in step with its servers, and
deleted after the last machine.

Nothing is made for the cluster before each has its address: that is in the certificate of the first server. A cluster
whose servers are divided has two, since etcd alone answers only where machines join, and an API server alone cannot
tell a member of etcd which members there are.
"""

from __future__ import annotations

from datetime import timedelta

from windrow.clusters.api.endpoint import EndpointBalancer, Purpose
from windrow.clusters.endpoint_balancer import ObservedBalancer, list_balancers
from windrow.clusters.plan.actions import (
    CreateLoadBalancer,
    DeleteEndpoint,
    PartialPlan,
    RecordEndpointHost,
    RecordLoadBalancers,
    UpdateLoadBalancer,
)
from windrow.clusters.state import ClusterState
from windrow.harvester.unanswered import describe_expiry, plan_end
from windrow.kubernetes.kubectl import ON_HARVESTER, render_delete
from windrow.machines.port import HARVESTER

RECHECK = timedelta(seconds=10)  # of what no watch shows
INIT_SERVER = "the init server is created"


def plan(state: ClusterState) -> PartialPlan:
    """What is missing, and what is not as it should be."""
    partial = PartialPlan()
    cluster, endpoint = state.cluster, state.cluster.control_plane_endpoint
    if endpoint.mode != "loadBalancer" or state.has_failed_preflight:
        return partial
    if endpoint.location is None:
        why = f"machines join through it, with an address of IPPool {endpoint.pool}"
        credential = cluster.credential or next(pool.credential for pool in cluster.pools if pool.is_server)
        partial.actions.append(
            RecordLoadBalancers(why, cluster.vm_namespace, credential, endpoint.pool, list_balancers(cluster))
        )
        return partial
    if state.balancers is None:
        if endpoint.is_pending:
            why = f" ({state.balancers_unknown})" if state.balancers_unknown else ""
            what = f"Harvester to show LoadBalancer {endpoint.location.namespace}/{endpoint.balancers[0].name}{why}"
            partial.wait(what, INIT_SERVER, until=state.now + RECHECK)
        return partial
    for balancer in endpoint.balancers:
        _ensure(balancer, state.balancers.get(balancer.name), state, partial)
    return partial


def _ensure(
    balancer: EndpointBalancer, found: ObservedBalancer | None, state: ClusterState, partial: PartialPlan
) -> None:
    endpoint, servers = state.cluster.control_plane_endpoint, list_servers(balancer.purpose, state)
    host = endpoint.host_of(balancer.purpose)
    then = "its machines are reached by it again" if host else INIT_SERVER
    if found is None:
        why = "it was deleted on Harvester" if host else f"its address is taken from IPPool {endpoint.pool}"
        partial.actions.append(CreateLoadBalancer(why, balancer, servers))
        return
    if found.cluster_uid != state.cluster.uid:
        by_hand = render_delete(found.ref, kubeconfig=ON_HARVESTER)
        what = f"{found} to be deleted (it is not this cluster's; if it is not needed: {by_hand})"
        partial.wait(what, then, until=state.now + RECHECK)
        return
    if found.is_deleting:
        partial.wait(f"{found} to be deleted", "it is created again")
        return
    if found.servers != servers:
        why = f"servers are {', '.join(servers) or 'none'}"
        partial.actions.append(UpdateLoadBalancer(why, found, servers))
    if host:
        return
    if found.address:
        why = f"{found} has this address"
        partial.actions.append(RecordEndpointHost(why, balancer.purpose, found.address))
    else:
        why = f" ({found.problem})" if found.problem else ""
        partial.wait(f"{found} to get an address of IPPool {endpoint.pool}{why}", then)


def list_servers(purpose: Purpose, state: ClusterState) -> tuple[str, ...]:
    """The names of the VMs behind it. One that leaves is left out as long as others stay."""
    servers = [
        machine
        for machine in state.machines
        if (machine.record.is_control_plane if purpose == "api" else machine.record.is_etcd)
        and machine.record.driver == HARVESTER
        and machine.presence != "missing"
    ]
    staying = [machine for machine in servers if not machine.is_deleting]
    return tuple(sorted(machine.name for machine in staying or servers))


def describe_problem(state: ClusterState) -> tuple[str, str]:
    """CamelCase reason and sentence for what is wrong with them now; "" for nothing. `state.balancers` is known."""
    endpoint = state.cluster.control_plane_endpoint
    namespace = endpoint.location.namespace if endpoint.location else ""
    for balancer in endpoint.balancers:
        found = (state.balancers or {}).get(balancer.name)
        host = endpoint.host_of(balancer.purpose)
        if found is None:
            return "NotFound", f"LoadBalancer {namespace}/{balancer.name} is not found; it is created again"
        if found.cluster_uid != state.cluster.uid:
            by_hand = render_delete(found.ref, kubeconfig=ON_HARVESTER)
            return "NotOwned", f"{found} is not this cluster's; if it is not needed: {by_hand}"
        if found.address and found.address != host:
            return (
                "AddressChanged",
                f"{found} has address {found.address}, and the cluster was created with {host}: machines cannot join and "
                f"kubeconfigs do not work until it has that again; free {host} in IPPool {endpoint.pool}, then delete {found}",
            )
        if found.problem:
            return "NotReady", f"{found}: {found.problem}"
    return "", ""


def plan_deletion(state: ClusterState) -> PartialPlan:
    """Delete them, with the addresses that they hold, once nothing else of the cluster is left that is reached by them."""
    partial = PartialPlan()
    endpoint = state.cluster.control_plane_endpoint
    location, then = endpoint.location, "the ServiceAccount on Harvester and the Secrets are deleted"
    if location is None:
        return partial
    names = [f"LoadBalancer {location.namespace}/{one.name}" for one in endpoint.balancers]
    if state.balancers is None:
        why = f" ({state.balancers_unknown})" if state.balancers_unknown else ""
        partial.wait(f"Harvester to show {names[0]}{why}", "it is deleted", until=state.now + RECHECK)
        return partial
    own = [one for one in state.balancers.values() if one.cluster_uid == state.cluster.uid]
    for found in own:
        if not found.is_deleting:
            partial.actions.append(DeleteEndpoint("the Cluster is deleted", found))
    if own:
        partial.wait(f"{own[0]} to be deleted", then, until=state.now + RECHECK)
    elif plan_end(state.balancers_may_be_made_until, state.now) == "wait":
        partial.wait(describe_expiry(names[0]), then, until=state.balancers_may_be_made_until)
    return partial
