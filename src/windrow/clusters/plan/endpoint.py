"""Where machines join and where the API server is.

With a control plane endpoint machines join through that, and kubeconfigs name it. In mode `firstServer` there is none:
during bootstrap all machines join through the init server, later through any server that is Ready. Each Machine records
the `server` that it was given; nothing can change it on a machine that runs.
"""

from __future__ import annotations

from windrow.bootstrap import Distribution
from windrow.bootstrap.layout import Layout
from windrow.bootstrap.spec import InvalidBootstrapSpec
from windrow.clusters.bootstrap_data import find_distribution, find_layout
from windrow.clusters.state import ClusterState, MachineState


def join_url(server: MachineState) -> str:
    """The `server:` of machines that join through this one; "" while it has no address, or is of no known release."""
    distribution = _distribution_of(server)
    return distribution.LAYOUT.join_url(server.address) if server.address and distribution else ""


def find_stable_join_url(state: ClusterState) -> str:
    """The `server:` of all machines, where there is a control plane endpoint; else ""."""
    endpoint = state.cluster.control_plane_endpoint
    host = endpoint.join_host or endpoint.host
    return _layout(state).join_url(host) if host else ""


def find_stable_api_url(state: ClusterState) -> str:
    """The URL of the guest API at the control plane endpoint; "" where there is none."""
    host = state.cluster.control_plane_endpoint.host
    return _layout(state).api_url(host) if host else ""


def _layout(state: ClusterState) -> Layout:
    return find_layout(state.recorded.version or state.cluster.version)


def find_join_server(state: ClusterState) -> str:
    """The `server:` for a machine that is recorded now; "" when no server can be joined yet."""
    stable = find_stable_join_url(state)
    for servers in (_list_wanted(state), state.active, _staying_members(state)):
        if ready := [m for m in servers if m.record.is_server and m.is_ready and _can_be_joined(m)]:
            return stable or join_url(min(ready, key=_age))
    first = state.init_server
    if first is None or first.is_deleting or first.presence == "missing" or state.recorded.provisioned:
        return ""
    return stable or join_url(first)  # which is tried until the init server answers there


def _list_wanted(state: ClusterState) -> list[MachineState]:
    """The active machines without those that are the next to be scaled down, which a machine that boots now may not find there."""
    surplus: set[str] = set()
    needed = list_joined_through(state)
    for pool in state.cluster.pools:
        active = sorted(
            state.of_pool(pool),
            key=lambda m: (not m.record.delete_first, m.is_ready, m.name in needed, _age(m)),
        )
        surplus |= {machine.name for machine in active[: max(0, len(active) - pool.quantity)]}
    return [machine for machine in state.active if machine.name not in surplus]


def list_joined_through(state: ClusterState) -> frozenset[str]:
    """The servers that machines were told to join through and have not yet: without theirs they never do."""
    joining = {m.record.join_server for m in state.active if m.node is None and not m.record.has_joined}
    told = joining - {find_stable_join_url(state)}
    return frozenset(m.name for m in state.active if m.record.is_server and told & {*list_join_urls(m)})


def find_join_server_of_adopted(state: ClusterState) -> str:
    """The `server:` to record for a VM that exists: it joined before, so a server need not be Ready; "" where none is known."""
    servers = (m for m in state.machines if m.record.is_server and join_url(m))
    known = find_stable_join_url(state) or find_join_server(state)
    return known or next(map(join_url, sorted(servers, key=_age)), "")


def _staying_members(state: ClusterState) -> list[MachineState]:
    """Etcd members that are being deleted, and serve until others have joined: their removal from etcd was not requested."""
    if not state.recorded.initialized:
        return []
    members = (m for m in state.deleting if state.is_etcd_member(m) and m.deletion_requested is None)
    return [m for m in members if m.node is not None and not m.node.etcd_removal_requested]


def list_api_servers(state: ClusterState) -> tuple[str, ...]:
    """Where the guest API may be reached, the likeliest place first."""
    servers = [m for m in state.machines if m.record.is_control_plane and m.address]
    servers.sort(key=lambda m: (m.is_deleting, not m.is_ready, _age(m)))
    known = ((m, _distribution_of(m)) for m in servers)
    urls = tuple(distribution.LAYOUT.api_url(m.address) for m, distribution in known if distribution)
    # The servers themselves first: of them it is known which do not run, of what is behind an endpoint it is not.
    stable = find_stable_api_url(state)
    return tuple(dict.fromkeys((*urls, stable))) if stable and (urls or state.recorded.initialized) else urls


def has_lost_join_server(machine: MachineState, state: ClusterState) -> bool:
    """Whether no server has, or can have again, the address that the machine was told to join through.

    The address of a server that is stopped, or whose VM cannot be observed now, is the last one known.
    """
    join_server = machine.record.join_server
    if not join_server or join_server == find_stable_join_url(state):
        return False
    return not any(
        join_server in urls or (not urls and _may_have_been_known(server, machine))
        for server in state.machines
        if server.record.is_server
        for urls in (list_join_urls(server),)
    )


def _may_have_been_known(server: MachineState, joiner: MachineState) -> bool:
    """Whether a server without a known address may have had one when the joiner was recorded: after a restart of the manager
    that did not come to record it, nothing is known of it until its VM is observed."""
    return server.presence != "missing" and server.record.created <= joiner.record.created


def find_gone_join_server(machine: MachineState, state: ClusterState) -> MachineState | None:
    """The server whose address the machine was told to join through, where its VM is gone and its Machine is not deleted yet."""
    join_server = machine.record.join_server
    gone = (m for m in state.active if m.record.is_server and m.presence == "missing")
    return next((server for server in gone if join_server in list_join_urls(server)), None)


def find_leaving_join_server(machine: MachineState, state: ClusterState) -> MachineState | None:
    """The server that the machine was told to join through, where its Machine is being deleted and no other has that address."""
    join_server = machine.record.join_server
    if not join_server or join_server == find_stable_join_url(state):
        return None
    servers = [m for m in state.machines if m.record.is_server and join_server in list_join_urls(m)]
    return servers[0] if servers and all(server.is_deleting for server in servers) else None


def list_join_urls(server: MachineState) -> list[str]:
    """Each `server:` under which this one is, or was last, known: what `join_url` says now, and said before, among them.

    What was claimed for it is its own until its Machine is deleted, whether or not its VM is there, or reports it.
    """
    distribution = _distribution_of(server)
    if distribution is None or (server.is_deleting and server.presence == "missing"):
        return []
    known = list(server.claimed_addresses)
    if server.presence != "missing":
        shown = server.vm.addresses if server.vm else ()
        known += [*(shown or server.record.last_addresses), *(server.node.addresses if server.node else ())]
    return [distribution.LAYOUT.join_url(address) for address in known]


def _can_be_joined(server: MachineState) -> bool:
    """Its Node is shown as Ready for a while after its VM has gone."""
    return server.presence != "missing" and bool(join_url(server))


def _distribution_of(machine: MachineState) -> Distribution | None:
    """None where the Machine's `spec.version` names no release: one broken Machine must not stop its Cluster."""
    try:
        return find_distribution(machine.record.version)
    except InvalidBootstrapSpec:
        return None


def _age(machine: MachineState) -> tuple[object, str]:
    return machine.record.created, machine.name
