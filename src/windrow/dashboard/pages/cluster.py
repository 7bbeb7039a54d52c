"""Cluster: why it is not Ready, its hosts, the tree of waits, its timeline, what is to change, conditions and events."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from windrow.app.describe.causes import explain_cluster
from windrow.app.describe.conditions import condition_health, condition_of, condition_since, list_conditions
from windrow.app.describe.events import EventView, list_events, select_events
from windrow.app.describe.tree import cluster_tree
from windrow.app.describe.views import read_cluster, read_machine
from windrow.app.plan import ClusterPlan, plan_existing
from windrow.client.client import Client
from windrow.clusters.api.kinds import CLUSTER, MACHINE
from windrow.clusters.api.names import CLUSTER_NAME
from windrow.clusters.change.describe import group_alike
from windrow.core.errors import UserError
from windrow.dashboard.pages.hosts import place_machines
from windrow.dashboard.pages.page import Page, PageContext
from windrow.dashboard.pages.timeline import STAGES, draw_timeline
from windrow.kubernetes.errors import Forbidden, KubeError
from windrow.kubernetes.objects import Raw, name_of, nested
from windrow.kubernetes.resources import EVENT

MAX_EVENTS = 50


async def cluster(context: PageContext) -> Page:
    """One cluster, by namespace and name."""
    namespace, name = context.names
    raw = await context.api.get(CLUSTER.ref(name, namespace))
    # By its label, which each Machine has: a namespace may hold those of a thousand clusters.
    machines = await context.api.list(MACHINE, namespace, labels=f"{CLUSTER_NAME}={name}")
    events = await read_events(context.api, raw, machines)
    view = read_cluster(raw, map(read_machine, machines))
    plan, hidden = await _read_plan(context, raw)
    endpoint = nested(raw, "status", "endpoint", "api", default="")
    values = {
        "tree": cluster_tree(view),
        "created": view.created,
        "endpoint": endpoint if isinstance(endpoint, str) else "",
        "paused": nested(raw, "spec", "paused", default=False) is True,
        "sizes": {pool.name: pool.wanted for pool in view.pools},
        "desired_version": view.desired_version,
        "chain": explain_cluster(raw, machines),
        "hosts": place_machines(view, machines),
        "timeline": draw_timeline(name, machines, events, context.now),
        "stages": STAGES,
        "plan": plan,
        "groups": group_alike(plan.pending) if plan is not None else (),
        "plan_hidden": hidden,
        "conditions": [(one, condition_health(one), condition_since(one)) for one in list_conditions(raw)],
        "events": events[: -MAX_EVENTS - 1 : -1],
    }
    return Page("cluster.html", name, values, "clusters", "cluster", namespace, _commands(namespace, name))


def _commands(namespace: str, name: str) -> tuple[str, ...]:
    full, quoted = shlex.quote(f"{namespace}/{name}"), shlex.quote(name)
    return (
        f"windrow status {full} --watch",
        f"windrow why {full}",
        f"windrow plan {full}",
        f"windrow events {full}",
        f"kubectl describe cluster.provisioning.cattle.io {quoted} -n {shlex.quote(namespace)}",
    )


async def read_events(api: Client, raw: Raw, machines: Sequence[Raw]) -> tuple[EventView, ...]:
    """The events of the cluster and its machines, the latest last; none where they may not be read."""
    namespace = str(raw["metadata"].get("namespace", ""))
    try:
        found = list_events(await api.list(EVENT, namespace))
    except Forbidden:
        return ()
    living = {name_of(one) for one in machines}
    prefix = f"{name_of(raw)}-"
    # Of a machine that is gone, its name tells the cluster, and another's may begin alike: only then all are read.
    is_unclear = any(
        one.kind == "Machine" and one.name.startswith(prefix) and one.name not in living for one in found
    )
    return select_events(found, raw, await api.list(CLUSTER, namespace) if is_unclear else [raw], machines)


def _is_up_to_date(raw: Raw) -> bool:
    """Whether the manager has said of the spec as it stands that nothing is to change."""
    found = condition_of(raw, "UpToDate")
    is_observed = nested(raw, "status", "observedGeneration") == nested(raw, "metadata", "generation")
    return found is not None and found.status == "True" and is_observed


async def _read_plan(context: PageContext, raw: Raw) -> tuple[ClusterPlan | None, str]:
    """What is to change, or why that cannot be told; neither where nothing is."""
    if _is_up_to_date(raw):
        return None, ""
    try:
        return await plan_existing(raw, context.api, context.now), ""
    except UserError as error:
        return None, error.message
    except KubeError as error:
        return None, error.message
