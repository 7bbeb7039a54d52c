"""What is not done for a service while it is not known whether this namespace on Harvester is ours. Pure."""

from __future__ import annotations

from collections.abc import Callable

from windrow.cloudprovider.services.actions import EmitEvent, Plan
from windrow.cloudprovider.services.state import ServiceState, Unavailable

NAMESPACE = "the namespace of our VMs"


def apply_namespace_gate(
    state: ServiceState, plan: Plan, find_problem: Callable[[], Unavailable | None]
) -> Plan:
    """The plan, or the doubt in its place.

    A service that has its load balancer here proves more than any doubt. One that has none here may have it elsewhere:
    it is not given another one, nor loses its address, nor goes for good.
    """
    if state.load_balancer is not None or all(isinstance(one, EmitEvent) for one in plan.actions):
        return plan
    unavailable = find_problem()
    if unavailable is None:
        return plan
    problem = f"nothing is done about its load balancer: {unavailable.problem}" if unavailable.problem else ""
    return Plan(problem=problem, waits_for=NAMESPACE, until=unavailable.until)
