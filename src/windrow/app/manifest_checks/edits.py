"""What an edit of a Cluster brings about, and what of it is refused: as `windrow plan` says it of a manifest."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from windrow.app.check import check, read_existing, read_machines
from windrow.app.plan import ClusterPlan, list_warnings, plan_existing
from windrow.client.client import Client
from windrow.core.errors import UserError
from windrow.kubernetes.errors import KubeError
from windrow.kubernetes.objects import Raw
from windrow.machines.port import Problem


@dataclass(frozen=True, slots=True)
class Forecast:
    """The plan, or in `hidden` why there is none. `refused` and `warnings` are those that the edit brings: what was refused
    before it does not forbid another edit. What is refused stands in the plan, or in `errors`."""

    plan: ClusterPlan | None = None
    hidden: str = ""
    refused: tuple[Problem, ...] = ()
    errors: tuple[Problem, ...] = ()
    warnings: tuple[Problem, ...] = ()


async def foresee(before: Raw, after: Raw, api: Client, now: datetime) -> Forecast:
    """What becomes of the Cluster `before` with the spec of `after`. Nothing is written; no Harvester is asked."""
    try:
        plan = await plan_existing(after, api, now)
        was_refused = (await plan_existing(before, api, now)).pending.refused
        was = await _list_problems(before, before, plan, api)
        problems = [one for one in await _list_problems(before, after, plan, api) if one not in was]
    except (UserError, KubeError) as error:
        return Forecast(hidden=error.message)
    errors = tuple(one for one in problems if one.severity == "error")
    return Forecast(
        plan,
        refused=(*(one for one in plan.pending.refused if one not in was_refused), *errors),
        errors=errors,
        warnings=tuple(one for one in problems if one.severity != "error"),
    )


async def _list_problems(before: Raw, after: Raw, plan: ClusterPlan, api: Client) -> list[Problem]:
    """Those of the spec, and of its versions, that the plan does not say itself."""
    configs, driver_for_kind = await read_existing(api, [after])
    machines = await read_machines(api, [before])
    results = await check(
        [after], configs, running=[before], existing=machines, driver_for_kind=driver_for_kind
    )
    return list_warnings(results, [plan])
