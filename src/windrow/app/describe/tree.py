"""The object tree of a cluster: Cluster, pools, Machines, each with its state and what there is to say about it.

A reason that an object above gives is not repeated below it. Waits keep their dates as they are, so that equal objects
make equal trees: who shows one says how long ago that is.
"""

from __future__ import annotations

from collections.abc import Set
from dataclasses import dataclass, replace
from typing import Literal

from windrow.app.describe.sentences import (
    cluster_state,
    format_version,
    machine_state,
    reasons_of,
    without_known_reason,
)
from windrow.app.describe.views import ClusterView, MachineView, PoolView, Wait
from windrow.harvester.problems import split_problems

Health = Literal["good", "busy", "bad", "quiet"]

_HEALTH: dict[str, Health] = {
    "ready": "good",
    "failed": "bad",
    "missing": "bad",
    "not ready": "bad",
    "refused": "bad",
    "stopped": "bad",
    "unknown": "bad",
    "deleting": "quiet",
}


@dataclass(frozen=True, slots=True)
class Remark:
    """One sentence about an object.

    `problem`: what is wrong. `refusal`: what of the spec is refused, with the hint. `held`: what is held back. `warning`:
    what a person has to know or decide; it may end with a command. `wait`: `wait` has what for, since when and what comes
    next, and `message` is empty.
    """

    kind: Literal["problem", "refusal", "held", "warning", "wait"]
    message: str = ""
    hint: str = ""
    wait: Wait | None = None


@dataclass(frozen=True, slots=True)
class TreeNode:
    """A Cluster, a pool of it, or a Machine. `facts` stand beside its state: version, address, roles."""

    kind: Literal["Cluster", "MachinePool", "Machine"]
    name: str
    namespace: str
    state: str
    health: Health
    facts: tuple[str, ...] = ()
    marks: tuple[tuple[str, Health], ...] = ()  # what besides its state is out of the ordinary
    remarks: tuple[Remark, ...] = ()
    children: tuple[TreeNode, ...] = ()


def cluster_tree(cluster: ClusterView) -> TreeNode:
    """The tree of one cluster."""
    state = cluster_state(cluster)
    known = reasons_of(cluster.problem) | reasons_of(cluster.wait.what if cluster.wait else "")
    return TreeNode(
        kind="Cluster",
        name=cluster.name,
        namespace=cluster.namespace,
        state=state,
        health=_HEALTH.get(state, "busy"),
        facts=tuple(filter(None, [format_version(cluster)])),
        remarks=_remarks_of_cluster(cluster, known),
        children=tuple(_pool_node(pool, cluster, known) for pool in cluster.pools),
    )


def _remarks_of_cluster(cluster: ClusterView, known: Set[str]) -> tuple[Remark, ...]:
    # A refusal lists every problem; the wait would repeat the first.
    wait = None if cluster.refused and (cluster.problem or cluster.refused_change) else cluster.wait
    found: list[Remark] = []
    if cluster.refused and cluster.problem:
        found += _refusals(cluster.problem)
    elif not cluster.ready or cluster.deleting or wait is not None:
        found += _details(wait, cluster.problem)
    if cluster.refused_change:
        found.append(Remark("problem", "the manifest is refused; the cluster stays as it was:"))
        found += _refusals(cluster.refused_change)
    if blocked := cluster.remediation_blocked:
        machine, _, reason = blocked.partition(": ")
        said = machine if wait is not None and reason in known else blocked
        found.append(Remark("held", f"remediation is paused: {said}"))
    return (*found, *(Remark("warning", warning) for warning in cluster.warnings))


def _refusals(text: str) -> list[Remark]:
    return [Remark("refusal", message, hint) for message, hint in split_problems(text)]


def _details(wait: Wait | None, problem: str) -> list[Remark]:
    found = [Remark("problem", problem)] if problem else []
    return [*found, Remark("wait", wait=wait)] if wait is not None else found


def _pool_node(pool: PoolView, cluster: ClusterView, known: Set[str]) -> TreeNode:
    full = pool.ready >= pool.wanted
    versions = {machine.version for machine in cluster.machines} - {""}
    return TreeNode(
        kind="MachinePool",
        name=pool.name,
        namespace=cluster.namespace,
        state=f"{pool.ready} of {pool.wanted} ready" if pool.wanted else "no machines wanted",
        health="good" if full else "busy",
        facts=(", ".join(pool.roles),) if pool.roles else (),
        marks=(("paused", "busy"),) if pool.paused else (),
        children=tuple(
            _machine_node(machine, known, versions_differ=len(versions) > 1) for machine in pool.machines
        ),
    )


def _machine_node(machine: MachineView, known: Set[str], *, versions_differ: bool) -> TreeNode:
    state = machine_state(machine)
    version = machine.version if machine.is_outdated or versions_differ else ""
    node = TreeNode(
        kind="Machine",
        name=machine.name,
        namespace=machine.namespace,
        state=state,
        health=_HEALTH.get(state, "busy"),
        facts=tuple(filter(None, [machine.address, version])),
        marks=(("update failed", "bad"),) if machine.has_failed_update else (),
    )
    if machine.ready and not machine.deleting:
        return node
    wait = machine.wait and replace(machine.wait, what=without_known_reason(machine.wait.what, known))
    problem = without_known_reason(machine.problem, known)
    return replace(node, remarks=tuple(_details(wait, problem)))
