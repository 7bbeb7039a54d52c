"""The screen of `windrow plan`: machines that change alike under what changes of them, in the order of their turns.

fleet-default/prod  v1.35.1+rke2r1, v1.35.2+rke2r1 desired
5 of 5 machines have a turn.

service restart  3 machines of pool servers
  spec.kubernetesVersion  v1.35.1+rke2r1 → v1.35.2+rke2r1
    the service starts anew from another binary
  disrupts: its API server and etcd member restart; its pods go on
  ORDER  MACHINE
      1  prod-servers-x5x7z-9k2lp
…
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from windrow.cli.output.lines import StyledLine, Tone, elide_middle, line, wrap, wrap_around_command
from windrow.clusters.change.compare import FieldChange
from windrow.clusters.change.describe import (
    ChangeGroup,
    count_machines,
    format_values,
    group_alike,
    render_field,
    render_problem,
)
from windrow.clusters.change.fields import NOT_YET, NOT_YET_HINT

if TYPE_CHECKING:
    from windrow.app.plan import ClusterPlan, PoolPlan
    from windrow.clusters.change.pending import MachineChange

_CONCERNED = {"all": "every machine, for a request", "servers": "every server, for a request"}
_TONES: dict[str, Tone] = {"refused": "bad", "replace": "busy", "VM restart": "busy", "none": "quiet"}


def render_plan(plan: ClusterPlan, width: int, *, is_first: bool = True) -> list[StyledLine]:
    """The plan of one Cluster, no line wider than `width` but for a name that is."""
    lines = [line()] * (not is_first)
    lines.append(line((f"{plan.namespace}/{plan.name}", "strong"), f"  {_format_version(plan)}"))
    lines += _paragraph(_summarize(plan), "", width)
    lines += _paragraph(plan.begins_with, "", width) if plan.begins_with else []
    if plan.pending.snapshot_first:
        lines += _paragraph("An etcd snapshot is made before the first turn.", "", width)
    lines += _paragraph(f"held: {plan.held}", "", width, "busy") if plan.held else []
    lines += [line((part, "bad")) for part in wrap_around_command(plan.failed, width)] if plan.failed else []
    for group in group_alike(plan.pending):
        lines += [line(), *_render_group(group, width)]
    if plan.pending.cluster:
        lines += [line(), _head("live", "objects of the cluster")]
        lines += _render_fields(plan.pending.cluster, width)
        lines += _not_yet("live", width)
    if plan.pools:
        lines += [line(), *(_render_pool(one) for one in plan.pools)]
    for request in plan.requests:
        of = _CONCERNED.get(request.concerns, request.concerns)
        lines += [line(), _head(request.change, of), *_render_fields([request], width)]
    if plan.settings:
        lines += [line(), _head("none", "no machine that exists is touched")]
        lines += _render_fields(plan.settings, width)
    for problem in plan.pending.refused:
        lines += [line(), *_paragraph(f"refused: {problem.message}", "", width, "bad")]
        lines += [line(part) for part in wrap(problem.hint, width, first="→ ", rest="  ")]
    return lines


def _format_version(plan: ClusterPlan) -> str:
    if plan.desired_version in ("", plan.version):
        return plan.version
    return f"{plan.version}{', ' * bool(plan.version)}{plan.desired_version} desired"


def _summarize(plan: ClusterPlan) -> str:
    if plan.is_new:
        return (
            f"It does not exist yet; {count_machines(sum(one.count for one in plan.pools))} would be created."
        )
    if not plan.has_changes:
        return f"Nothing to do: its {count_machines(plan.machines)} {'is' if plan.machines == 1 else 'are'} as asked."
    turns = len(plan.pending.turns)
    has = "has a turn" if turns < 2 else "have a turn"
    return f"{turns or 'None'} of {count_machines(plan.machines)} {has}{' beside those for requests' * bool(plan.requests)}."


def _head(change: str, of: str) -> StyledLine:
    return line((change, _TONES.get(change, "strong")), f"  {of}")


def _render_group(group: ChangeGroup, width: int) -> list[StyledLine]:
    lines = [_head(group.change, f"{count_machines(len(group.machines))} of pool {group.pools[0]}")]
    if all(one.old is None and one.new is None for one in group.fields):
        lines += _paragraph(group.because, "  ", width)
    else:
        lines += _render_fields(group.fields, width)
    if group.steps:
        lines += _paragraph(f"steps: {', '.join(group.steps)}", "  ", width)
    if group.disrupts:
        lines += _paragraph(f"disrupts: {group.disrupts}", "  ", width)
    if group.change == "refused":
        return lines  # why, and what to do, is told once, below
    return [*lines, *_not_yet(group.change, width), *_render_machines(group.machines, width)]


def _not_yet(change: str, width: int) -> list[StyledLine]:
    return _paragraph(f"not yet: {NOT_YET_HINT}", "  ", width, "busy") if change in NOT_YET else []


def _render_machines(machines: Sequence[MachineChange], width: int) -> list[StyledLine]:
    names = [elide_middle(one.machine, width - 9) for one in machines]
    orders = [str(one.order) if one.order else "-" for one in machines]
    rows = [line(f"  {order:>5}  {name}") for order, name in zip(orders, names, strict=True)]
    return [line(("  ORDER  MACHINE", "quiet")), *rows]


def _render_fields(fields: Iterable[FieldChange], width: int) -> list[StyledLine]:
    lines: list[StyledLine] = []
    known = ""
    for one in fields:
        values = " → ".join(format_values(one, width // 2 - 6))
        path = elide_middle(one.path, width - 2)
        if len(path) + len(values) + 4 <= width:
            lines.append(line(f"  {path}  {values}"))
        else:
            lines += [line(f"  {path}"), line(f"    {values}")]
        if one.because != known and one.change != "refused":
            lines += _paragraph(one.because, "    ", width, "quiet")
            known = one.because
    return lines


def _render_pool(pool: PoolPlan) -> StyledLine:
    word = "created" if pool.count > 0 else "deleted"
    of = f"{count_machines(abs(pool.count))} of pool {pool.pool}"
    return line((word, "strong"), f"  {of}{f' ({pool.roles})' * bool(pool.roles)}")


def _paragraph(text: str, indent: str, width: int, tone: Tone = "") -> list[StyledLine]:
    return [line((part, tone)) for part in wrap(text, width, first=indent, rest=indent)]


# -- for programs ------------------------------------------------------------------------------------------------


def as_object(plan: ClusterPlan) -> dict[str, Any]:
    """The plan in the form of an object, for `-o`, machine by machine. The kind is not served by any API."""
    pending = plan.pending
    return {
        "apiVersion": "windrow.io/v1alpha1",
        "kind": "ChangePlan",
        "metadata": {"namespace": plan.namespace, "name": plan.name},
        "exists": not plan.is_new,
        "version": plan.version,
        "desiredVersion": plan.desired_version,
        "held": plan.held,
        "failed": plan.failed,
        "machines": [_machine_object(one) for one in pending.machines],
        "cluster": [render_field(one) for one in pending.cluster],
        "requests": [render_field(one) | {"concerns": one.concerns} for one in plan.requests],
        "settings": [render_field(one) for one in plan.settings],
        "created": [{"pool": one.pool, "machines": one.count} for one in plan.pools if one.count > 0],
        "deleted": [{"pool": one.pool, "machines": -one.count} for one in plan.pools if one.count < 0],
        "refused": [render_problem(one) for one in pending.refused],
    }


def _machine_object(one: MachineChange) -> dict[str, Any]:
    return {
        "machine": one.machine,
        "pool": one.pool,
        "change": one.change,
        "order": one.order,
        "because": one.because,
        "steps": list(one.steps),
        "disrupts": one.disrupts,
        "carriedOut": one.change not in NOT_YET,
        "fields": [render_field(field) for field in one.fields],
    }
