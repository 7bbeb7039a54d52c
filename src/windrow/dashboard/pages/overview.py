"""Overview: every cluster with its health, the versions that run and are wanted, and what it waits for since when."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from windrow.app.describe.sentences import cluster_state
from windrow.app.describe.tree import Health, cluster_tree
from windrow.app.describe.views import ClusterView, Wait, read_cluster
from windrow.clusters.api.kinds import CLUSTER
from windrow.dashboard.pages.page import Page, PageContext

ROWS = 100
MAX_SEARCH_LENGTH = 100
# What needs a person stands above what is under way, and that above what is as it should be.
_RANKS: dict[Health, int] = {"bad": 0, "busy": 1, "quiet": 2, "good": 3}
FILTERS = {"": "all", "bad": "wrong", "busy": "under way", "good": "ready"}


@dataclass(frozen=True, slots=True)
class ClusterRow:
    """One cluster of the list."""

    namespace: str
    name: str
    state: str
    health: Health
    version: str
    desired_version: str
    machines: int
    problem: str
    wait: Wait | None
    created: datetime | None


def row_of(cluster: ClusterView) -> ClusterRow:
    """The row of a cluster. What its wait says is not said again as its problem."""
    state = cluster_state(cluster)
    problem = cluster.refused_change or cluster.problem
    shows_wait = not cluster.ready or cluster.deleting or not cluster.is_observed or cluster.wait is not None
    return ClusterRow(
        cluster.namespace,
        cluster.name,
        state,
        "bad" if cluster.refused_change else cluster_tree(replace(cluster, pools=())).health,
        cluster.version,
        cluster.desired_version,
        sum(pool.wanted for pool in cluster.pools),
        problem,
        cluster.wait if shows_wait and not cluster.refused else None,
        cluster.created,
    )


def choose(rows: Sequence[ClusterRow], search: str, health: str) -> list[ClusterRow]:
    """The rows that match, the worst first."""
    wanted = search.strip().lower()
    found = [
        row
        for row in rows
        if (not health or row.health == health) and wanted in f"{row.namespace}/{row.name}".lower()
    ]
    return sorted(found, key=lambda row: (_RANKS[row.health], row.namespace, row.name))


def page_number(text: str, rows: int) -> int:
    """The page that `text` asks for, from 1 on; the nearest that exists."""
    last = max(-(-rows // ROWS), 1)
    return min(max(int(text), 1), last) if text.isascii() and text.isdigit() and len(text) < 7 else 1


async def overview(context: PageContext) -> Page:
    """The clusters of a namespace, or of all."""
    namespace = context.namespace
    rows = [row_of(read_cluster(raw, ())) for raw in await context.api.list(CLUSTER, namespace)]
    search = context.query.get("q", "")[:MAX_SEARCH_LENGTH]
    health = context.query.get("health", "")
    chosen = choose(rows, search, health if health in FILTERS else "")
    number = page_number(context.query.get("page", ""), len(chosen))
    counts = {name: sum(row.health == name for row in rows) for name in FILTERS if name}
    values = {
        "rows": chosen[(number - 1) * ROWS : number * ROWS],
        "total": len(rows),
        "found": len(chosen),
        "counts": {**counts, "": len(rows)},
        "filters": FILTERS,
        "search": search,
        "health": health,
        "namespace": namespace,
        "number": number,
        "pages": max(-(-len(chosen) // ROWS), 1),
    }
    commands = (
        f"windrow status {context.scope}",
        f"kubectl get clusters.provisioning.cattle.io {context.scope}",
    )
    return Page("overview.html", "Clusters", values, "clusters", "overview", namespace, commands)
