"""The supervisors of a cluster's servers, as the actions of a reconcile ask them."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from windrow.clusters.bootstrap_data import find_layout
from windrow.clusters.context import StalePlan
from windrow.clusters.sources.harvesters import HarvesterClients
from windrow.clusters.sources.servers.supervisor import Connect, Supervisor, SupervisorError, TokenRejected
from windrow.clusters.state import ClusterState, MachineState


class Supervisors:
    """A client for each request: nothing is kept open between two."""

    def __init__(self, harvesters: HarvesterClients, connect: Connect) -> None:
        self._harvesters, self._connect = harvesters, connect

    def open(self, machine: MachineState, state: ClusterState) -> Supervisor:
        """The supervisor of the machine, which the caller closes. Raises StalePlan where it cannot be asked."""
        return self.prepare(machine, state)()

    def prepare(self, machine: MachineState, state: ClusterState) -> Callable[[], Supervisor]:
        """What opens the supervisor of the machine, for a request that may never begin. Raises StalePlan where it cannot be asked."""
        if state.secrets is None or not machine.address:
            raise StalePlan
        proxy = self._harvesters.find_proxy(state.cluster.credential, state.cluster.namespace)
        layout = find_layout(machine.record.version)
        return partial(Supervisor, state.secrets, layout, machine.address, self._connect, proxy)

    async def require_present_token(self, machine: MachineState, state: ClusterState) -> None:
        """Raises TokenRejected where a server has another server token than the Secret of the cluster, which may be of a backup: with
        that in its configuration it would not start again. A server that does not answer, or whose release cannot be asked,
        has rejected nothing. While the token is rotated a server takes the one with which it was started."""
        if not machine.record.is_server or state.recorded.operations.token.is_under_way:
            return
        if state.secrets is None or not machine.address:
            return
        supervisor = self.open(machine, state)
        try:
            await supervisor.check_token()
        except TokenRejected:
            raise
        except SupervisorError:
            return
        finally:
            await supervisor.aclose()
