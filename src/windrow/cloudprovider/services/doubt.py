"""What is not done for a service while it is not known whether this namespace on Harvester is ours. Pure."""

from __future__ import annotations

from collections.abc import Callable

from windrow.cloudprovider.services.actions import Plan, Tell
from windrow.cloudprovider.services.seeing import Seen, Unseen

PLACE = "the namespace of our VMs"


def hold_back(seen: Seen, plan: Plan, find_doubt: Callable[[], Unseen | None]) -> Plan:
    """The plan, or the doubt in its place.

    A service that has its load balancer here proves more than any doubt. One that has none here may have it elsewhere:
    it is not given another one, nor loses its address, nor goes for good.
    """
    if seen.balancer is not None or all(isinstance(one, Tell) for one in plan.actions):
        return plan
    doubt = find_doubt()
    if doubt is None:
        return plan
    problem = f"nothing is done about its load balancer: {doubt.problem}" if doubt.problem else ""
    return Plan(problem=problem, waits_for=PLACE, until=doubt.until)
