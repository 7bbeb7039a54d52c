"""Cluster: its tree of pools and machines with what each waits for, its conditions, and its machines."""

from __future__ import annotations

import shlex

from windrow.app.describe.conditions import condition_health, list_conditions
from windrow.app.describe.tree import cluster_tree
from windrow.app.describe.views import read_cluster, read_machine
from windrow.clusters.api.kinds import CLUSTER, MACHINE
from windrow.dashboard.pages.page import Page, PageContext


async def cluster(context: PageContext) -> Page:
    """One cluster, by namespace and name."""
    namespace, name = context.names
    raw = await context.api.get(CLUSTER.ref(name, namespace))
    machines = [read_machine(one) for one in await context.api.list(MACHINE, namespace)]
    view = read_cluster(raw, machines)
    values = {
        "view": view,
        "tree": cluster_tree(view),
        "conditions": [(one, condition_health(one)) for one in list_conditions(raw)],
    }
    quoted = shlex.quote(f"{namespace}/{name}")
    commands = (
        f"windrow status {quoted}",
        f"kubectl describe cluster.provisioning.cattle.io {shlex.quote(name)} -n {shlex.quote(namespace)}",
    )
    return Page("cluster.html", name, values, "clusters", "cluster", namespace, commands)
