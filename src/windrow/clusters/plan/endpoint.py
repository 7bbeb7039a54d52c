"""Where machines join and where the API server is.

With a control plane endpoint machines join through that, and kubeconfigs name it. In mode `firstServer` there is none:
during bootstrap all machines join through the init server, later through any server that is Ready. Each Machine records
the `server` that it was given; nothing can change it on a machine that runs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from windrow.bootstrap import Distribution
from windrow.bootstrap.layout import Layout
from windrow.bootstrap.spec import InvalidBootstrapSpec
from windrow.clusters.bootstrap_data import find_distribution, find_layout
from windrow.clusters.change.rollout import find_replicas
from windrow.clusters.state import ClusterState, MachineState, once_per_state
from windrow.clusters.surplus import choose_machines_to_delete


def join_url(server: MachineState) -> str:
    """The `server:` of machines that join through this one; "" while it has no address, or is of no known release."""
    distribution = _distribution_of(server)
    return distribution.LAYOUT.join_url(server.address) if server.address and distribution else ""


@once_per_state
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


@once_per_state
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


def find_other_join_server(machine: MachineState, state: ClusterState) -> str:
    """The `server:` for a machine that exists and whose own join server is lost: another Ready server, one with etcd if there
    is one; "" where none is."""
    others = [m for m in state.active if m is not machine and m.record.is_server and m.is_ready]
    found = [m for m in others if _can_be_joined(m)]
    if not found:
        return ""
    return join_url(min(found, key=lambda m: (not state.is_etcd_member(m), _age(m))))


def _list_wanted(state: ClusterState) -> list[MachineState]:
    """The active machines without those that are the next to be scaled down, which a machine that boots now may not find there."""
    surplus: set[str] = set()
    needed = list_joined_through(state)
    for pool in state.cluster.pools:
        active = state.of_pool(pool)
        leaving = choose_machines_to_delete(active, len(active) - find_replicas(pool, state), state, needed)
        surplus |= {machine.name for machine in leaving}
    return [machine for machine in state.active if machine.name not in surplus]


@once_per_state
def list_joined_through(state: ClusterState) -> frozenset[str]:
    """The servers that machines were told to join through and have not yet: without theirs they never do."""
    joining = {m.record.join_server for m in state.active if m.node is None and not m.record.has_joined}
    told = joining - {find_stable_join_url(state)}
    servers = (server for url in told for server in _servers_by_join_url(state).get(url, ()))
    return frozenset(server.name for server in servers if not server.is_deleting)


def find_join_server_of_adopted(state: ClusterState) -> str:
    """The `server:` to record for a VM that exists: it joined before, so a server need not be Ready; "" where none is known."""
    servers = (m for m in state.servers if join_url(m))
    known = find_stable_join_url(state) or find_join_server(state)
    return known or next(map(join_url, sorted(servers, key=_age)), "")


def _staying_members(state: ClusterState) -> list[MachineState]:
    """Etcd members that are being deleted, and serve until others have joined: their removal from etcd was not requested."""
    if not state.recorded.initialized:
        return []
    members = (m for m in state.deleting if state.is_etcd_member(m) and m.deletion_requested is None)
    return [m for m in members if m.node is not None and not m.node.etcd_removal_requested]


def find_api_url(machine: MachineState) -> str:
    """The URL of the API server on the machine itself, "" while it has no address."""
    distribution = _distribution_of(machine)
    return distribution.LAYOUT.api_url(machine.address) if distribution and machine.address else ""


def list_api_servers(state: ClusterState) -> tuple[str, ...]:
    """Where the guest API may be reached, the likeliest place first."""
    servers = [m for m in state.servers if m.record.is_control_plane and m.address]
    servers.sort(key=lambda m: (m.is_deleting, not m.is_ready, _age(m)))
    known = ((m, _distribution_of(m)) for m in servers)
    urls = tuple(distribution.LAYOUT.api_url(m.address) for m, distribution in known if distribution)
    # The servers themselves first: of them it is known which do not run, of what is behind an endpoint it is not.
    stable = find_stable_api_url(state)
    return tuple(dict.fromkeys((*urls, stable))) if stable and (urls or state.recorded.initialized) else urls


@dataclass(frozen=True, slots=True)
class JoinServer:
    """The server that a machine was told to join through, and what has become of it.

    endpoint: it was told none, or the control plane endpoint. present: a server has, or can have again, that address; that
    of one which is stopped, or whose VM cannot be observed now, is the last one known. gone: the VM of `server` is, and its
    Machine is not deleted yet. leaving: the Machine of `server` is being deleted, and no other has the address. unknown: one
    without a known address may have had it. lost: no server has it, nor can have it again.
    """

    state: Literal["endpoint", "present", "gone", "leaving", "unknown", "lost"]
    server: MachineState | None = None


def find_join_server_of(machine: MachineState, state: ClusterState) -> JoinServer:
    """What has become of the server that the machine was told to join through."""
    join_server = machine.record.join_server
    if not join_server or join_server == find_stable_join_url(state):
        return JoinServer("endpoint")
    servers = _servers_by_join_url(state).get(join_server, ())
    staying = [server for server in servers if not server.is_deleting]
    if gone := next((server for server in staying if server.presence == "missing"), None):
        return JoinServer("gone", gone)
    if staying:
        return JoinServer("present", staying[0])
    if servers:
        return JoinServer("leaving", servers[0])
    without_address = _list_without_address(state)
    is_unknown = any(_may_have_been_known(server, machine) for server in without_address)
    return JoinServer("unknown" if is_unknown else "lost")


def has_lost_join_server(machine: MachineState, state: ClusterState) -> bool:
    """Whether no server has, or can have again, the address that the machine was told to join through."""
    return find_join_server_of(machine, state).state == "lost"


@once_per_state
def _servers_by_join_url(state: ClusterState) -> Mapping[str, Sequence[MachineState]]:
    found: dict[str, list[MachineState]] = {}
    for server in state.servers:
        for url in dict.fromkeys(list_join_urls(server)):
            found.setdefault(url, []).append(server)
    return found


@once_per_state
def _list_without_address(state: ClusterState) -> Sequence[MachineState]:
    return [server for server in state.servers if not list_join_urls(server)]


def _may_have_been_known(server: MachineState, joiner: MachineState) -> bool:
    """Whether a server without a known address may have had one when the joiner was recorded: after a restart of the manager
    that did not come to record it, nothing is known of it until its VM is observed."""
    return server.presence != "missing" and server.record.created <= joiner.record.created


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
