"""Where machines join and where the API server is, in endpoint mode `firstServer`.

There is no stable endpoint in this mode: during bootstrap all machines join through the init server, later through any
server that is Ready. Each Machine records which one it was.
"""

from __future__ import annotations

from windrow.bootstrap.spec import Role
from windrow.clusters.state import ClusterState, MachineState

ENDPOINT_MODE = "firstServer"
SUPERVISOR_PORT = 9345
API_PORT = 6443


def url(address: str, port: int) -> str:
    host = f"[{address}]" if ":" in address else address
    return f"https://{host}:{port}"


def find_join_server(state: ClusterState) -> str:
    """The `server:` for a machine that is recorded now; "" when no server can be joined yet."""
    ready = [m for m in state.active if m.record.is_server and m.is_ready and m.address]
    if ready:
        return url(min(ready, key=_age).address, SUPERVISOR_PORT)
    first = state.init_server
    if first is None or first.is_deleting or not first.address or state.recorded.provisioned:
        return ""
    return url(first.address, SUPERVISOR_PORT)


def list_api_servers(state: ClusterState) -> tuple[str, ...]:
    """Where the guest API may be reached, the likeliest place first."""
    servers = [m for m in state.machines if Role.CONTROL_PLANE in m.record.roles and m.address]
    servers.sort(key=lambda m: (m.is_deleting, not m.is_ready, _age(m)))
    return tuple(url(m.address, API_PORT) for m in servers)


def _age(machine: MachineState) -> tuple[object, str]:
    return machine.record.created, machine.name
