"""Where machines join and where the API server is, in endpoint mode `firstServer`.

There is no stable endpoint in this mode: during bootstrap all machines join through the init server, later through any
server that is Ready. Each Machine records which one it was.
"""

from __future__ import annotations

from windrow.clusters.bootstrap_data import find_distribution
from windrow.clusters.state import ClusterState, MachineState

ENDPOINT_MODE = "firstServer"


def join_url(server: MachineState) -> str:
    """The `server:` of machines that join through this one; "" while it has no address."""
    return find_distribution(server.record.version).join_url(server.address) if server.address else ""


def find_join_server(state: ClusterState) -> str:
    """The `server:` for a machine that is recorded now; "" when no server can be joined yet."""
    ready = [m for m in state.active if m.record.is_server and m.is_ready and m.address]
    if ready:
        return join_url(min(ready, key=_age))
    first = state.init_server
    return "" if first is None or first.is_deleting or state.recorded.provisioned else join_url(first)


def list_api_servers(state: ClusterState) -> tuple[str, ...]:
    """Where the guest API may be reached, the likeliest place first."""
    servers = [m for m in state.machines if m.record.is_control_plane and m.address]
    servers.sort(key=lambda m: (m.is_deleting, not m.is_ready, _age(m)))
    return tuple(find_distribution(m.record.version).api_url(m.address) for m in servers)


def _age(machine: MachineState) -> tuple[object, str]:
    return machine.record.created, machine.name
