"""`windrow plan`: what a manifest, or a Cluster as it stands, changes of machines that exist. Nothing is written.

The plan is made by the function that the cluster manager plans with (`clusters.change.pending`), of what the management API
has recorded: Clusters, Machines and machine configs. No Harvester and no guest is asked.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from windrow.app.check import SEE_PLAN, CheckResult, check_change, read_existing, read_machines
from windrow.app.manifest_checks.changes import assume_state
from windrow.app.manifest_checks.unknown_fields import place_fields
from windrow.client.client import Client
from windrow.clusters.api.cluster import Pool
from windrow.clusters.api.kinds import CLUSTER, ETCD_SNAPSHOT, machine_config
from windrow.clusters.api.machine import Machine, format_roles
from windrow.clusters.api.manifest.machine_config import ResolveDriver, kind_of
from windrow.clusters.api.manifest.reading import read_cluster
from windrow.clusters.api.operations.snapshot import ETCDSnapshot, read_snapshot
from windrow.clusters.change.compare import FieldChange
from windrow.clusters.change.fields import NOT_YET_HINT, POOL, is_request, on_change_of_field
from windrow.clusters.change.pending import PendingChanges, pending_changes
from windrow.clusters.change.revisions import record_value
from windrow.clusters.change.rollout import find_replicas, why_changes_wait
from windrow.clusters.state import ClusterState
from windrow.clusters.updates.status import ROLLING_OUT, UPDATE_FAILED
from windrow.kubernetes.conditions import find_condition
from windrow.kubernetes.errors import Forbidden, NotFound
from windrow.kubernetes.objects import Raw, is_deleting, name_of, namespace_of, nested, uid_of
from windrow.kubernetes.resources import ObjectRef
from windrow.machines.port import Problem

FIELD_MANAGER = "windrow-apply"
_POOLS = POOL.removesuffix("[]")


@dataclass(frozen=True, slots=True)
class PoolPlan:
    """How many machines of one pool are created, or where that is below 0, deleted."""

    pool: str
    roles: str
    count: int


@dataclass(frozen=True, slots=True)
class ClusterPlan:
    """What becomes of one Cluster. `version` is the one that runs, "" before it has one; `settings` are fields of the manifest
    that change and touch no machine that exists; `pools` those that become larger or smaller."""

    namespace: str
    name: str
    is_new: bool
    version: str
    desired_version: str
    machines: int
    pending: PendingChanges
    pools: tuple[PoolPlan, ...]
    settings: tuple[FieldChange, ...] = ()
    requests: tuple[FieldChange, ...] = ()  # what is carried out once, and for which machines have turns
    held: str = ""  # why the turns wait until a person says so, and the command for it
    failed: str = ""  # the update that failed, for which all others wait, and how it is tried again
    begins_with: str = ""  # the snapshot of which other Cluster, and what it shares with that

    @property
    def has_changes(self) -> bool:
        return self.is_new or not self.pending.is_empty or bool(self.pools or self.settings or self.requests)


# -- a Cluster as it stands --------------------------------------------------------------------------------------


async def plan_existing(raw: Raw, api: Client, now: datetime) -> ClusterPlan:
    """What the manager is about to do with a Cluster of the management API."""
    configs, driver_for_kind = await read_existing(api, [raw])
    machines, snapshots = await read_machines(api, [raw]), await _read_snapshots(api, raw)
    return make_plan(raw, configs, driver_for_kind, machines, now, snapshots=snapshots)


async def _read_snapshots(api: Client, cluster: Raw) -> tuple[ETCDSnapshot, ...]:
    """Those of the Cluster, as far as this account may read them: a refused downgrade names one."""
    try:
        found = map(read_snapshot, await api.list(ETCD_SNAPSHOT, namespace_of(cluster)))
    except (Forbidden, NotFound):
        return ()
    return tuple(one for one in found if one.cluster_uid == uid_of(cluster) and not one.is_deleting)


# -- a manifest --------------------------------------------------------------------------------------------------


async def check_manifest(documents: Sequence[Raw], api: Client) -> list[CheckResult]:
    """Every problem of the manifest, as `apply` finds them: with an error, nothing of it would be applied."""
    return await check_change(documents, api)


def list_warnings(results: Sequence[CheckResult], plans: Sequence[ClusterPlan]) -> list[Problem]:
    """The warnings of the check that no plan says itself: each once."""
    refused = {problem.message for one in plans for problem in one.pending.refused}
    found = (problem for one in results for problem in one.problems)
    others = (one for one in found if one.hint not in (SEE_PLAN, NOT_YET_HINT) and one.message not in refused)
    return list(dict.fromkeys(others))


async def plan_manifest(documents: Sequence[Raw], api: Client, now: datetime) -> list[ClusterPlan]:
    """What would become of the Clusters that `documents` have, or whose machine configs they have, were they applied: the server
    is asked for the objects that it would make of them."""
    applied = [await _dry_run(raw, api) for raw in documents if _is_planned(raw)]
    clusters = [raw for raw in applied if raw["kind"] == CLUSTER.kind]
    named = {(namespace_of(raw), name_of(raw)) for raw in clusters}
    configs = {(kind_of(raw), namespace_of(raw), name_of(raw)): raw for raw in applied if raw not in clusters}
    users = [raw for raw in await _list_users(configs, api) if (namespace_of(raw), name_of(raw)) not in named]
    existing, driver_for_kind = await read_existing(api, [*clusters, *users])
    known = {(kind_of(raw), namespace_of(raw), name_of(raw)): raw for raw in existing} | configs
    plans = []
    for raw in [*clusters, *users]:
        before = await api.find(_ref(raw))
        before = None if before is None or is_deleting(before) else before
        machines = await read_machines(api, [before] if before else [])
        placed = [place_fields(one) for one in known.values()]
        plans.append(
            make_plan(raw, placed, driver_for_kind, machines, now, before=before, is_new=before is None)
        )
    return plans


def _is_planned(raw: Raw) -> bool:
    return raw["kind"] == CLUSTER.kind or str(raw["apiVersion"]).startswith("rke-machine-config.cattle.io/")


def _ref(raw: Raw) -> ObjectRef:
    kind = CLUSTER if raw["kind"] == CLUSTER.kind else machine_config(str(raw["kind"]))
    return kind.ref(name_of(raw), namespace_of(raw) or "default")


async def _dry_run(raw: Raw, api: Client) -> Raw:
    """The object as the server would have it; as it is written where its namespace does not exist yet."""
    try:
        return await api.apply(_ref(raw), raw, FIELD_MANAGER, force=True, dry_run=True)
    except NotFound:
        return raw


async def _list_users(configs: Mapping[tuple[str, str, str], Raw], api: Client) -> list[Raw]:
    """The Clusters with a pool that names one of the machine configs."""
    namespaces = sorted({namespace for _, namespace, _ in configs})
    found = [raw for namespace in namespaces for raw in await api.list(CLUSTER, namespace)]
    return [raw for raw in found if not is_deleting(raw) and _names_one(raw, configs)]


def _names_one(raw: Raw, configs: Mapping[tuple[str, str, str], Raw]) -> bool:
    references = (nested(pool, "machineConfigRef", default={}) for pool in _pools_of(raw))
    return any((kind_of(one), namespace_of(raw), str(one.get("name"))) in configs for one in references)


# -- either ------------------------------------------------------------------------------------------------------


def make_plan(
    raw: Raw,
    configs: Sequence[Raw],
    driver_for_kind: ResolveDriver,
    machines: Sequence[Machine],
    now: datetime,
    *,
    before: Raw | None = None,
    is_new: bool = False,
    snapshots: tuple[ETCDSnapshot, ...] = (),
) -> ClusterPlan:
    """The plan of a Cluster as `raw` asks, for these machines; `before` is its object as it stands, where that is another."""
    reading = read_cluster(raw, configs, driver_for_kind)
    cluster = reading.cluster
    state = replace(assume_state(cluster, reading.problems, machines, now), snapshots=snapshots)
    pending = pending_changes(state)
    told = {field.path for one in pending.machines for field in one.fields}
    others = () if before is None else tuple(_list_others(before, raw, told))
    have = Counter(machine.pool for machine in state.active)
    pools = [
        PoolPlan(pool.name, format_roles(pool.roles), _count_missing(pool, have[pool.name], state))
        for pool in cluster.pools
    ]
    pools += [
        PoolPlan(name, "", -count) for name, count in sorted(have.items()) if cluster.find_pool(name) is None
    ]
    return ClusterPlan(
        cluster.namespace,
        cluster.name,
        is_new,
        cluster.recorded.version,
        cluster.version,
        len(state.active),
        pending,
        tuple(one for one in pools if one.count),
        tuple(one for one in others if not is_request(one.path)),
        tuple(one for one in others if is_request(one.path)),
        why_changes_wait(state) if not is_new else "",
        _find_failed(raw),
        _describe_beginning(state),
    )


def _describe_beginning(state: ClusterState) -> str:
    request = state.cluster.operations.restore
    if request is None or request.source is None or state.recorded.initialized:
        return ""
    return (
        f"It begins with snapshot {request.name} of Cluster {request.source.cluster}, whose certificate authorities, keys of "
        "service accounts and server token it has: a kubeconfig of that one opens it. Its volumes stay that one's."
    )


def _count_missing(pool: Pool, have: int, state: ClusterState) -> int:
    """How many machines of the pool are created, or where that is below 0, deleted. Those that a rollout has created beyond the
    quantity are none: they take the places of others."""
    missing = pool.quantity - have
    return min(0, find_replicas(pool, state) - have) if missing < 0 else missing


def _find_failed(raw: Raw) -> str:
    found = find_condition(nested(raw, "status", "conditions", default=()), ROLLING_OUT)
    return found.message if found is not None and found.reason == UPDATE_FAILED else ""


def _list_others(before: Raw, after: Raw, told: set[str]) -> Iterator[FieldChange]:
    """The fields of the spec that differ and are none of a machine's, by path; the size of a pool is told by itself, and the
    fields of one that is new."""
    were, are = dict(_list_values(before)), dict(_list_values(after))
    pools = {str(pool.get("name")) for pool in _pools_of(before)} & {
        str(pool.get("name")) for pool in _pools_of(after)
    }
    for path in sorted(were.keys() | are.keys()):
        pool = path[len(_POOLS) + 1 :].partition("]")[0] if path.startswith(f"{_POOLS}[") else None
        if were.get(path) == are.get(path) or path in told or path.endswith("].quantity"):
            continue
        if pool is not None and pool not in pools:
            continue
        field = path if pool is None else path.replace(f"[{pool}]", "[]", 1)
        row = on_change_of_field(field)
        if row.change in ("none", "new machines only") or is_request(field):
            old, new = (
                None if one is None else record_value(path, one) for one in (were.get(path), are.get(path))
            )
            yield FieldChange(path, old, new, row.change, row.because, row.concerns)


def _list_values(raw: Raw) -> Iterator[tuple[str, Any]]:
    spec = {key: value for key, value in (raw.get("spec") or {}).items() if key != "rkeConfig"}
    rke = dict(nested(raw, "spec", "rkeConfig", default={}))
    rke.pop("machinePools", None)
    yield from _split("spec", spec)
    yield from _split("spec.rkeConfig", rke)
    for pool in _pools_of(raw):
        yield from _split(f"{_POOLS}[{pool.get('name')}]", pool)


def _split(path: str, value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, Mapping) and value:
        for key, inner in value.items():
            yield from _split(f"{path}.{key}", inner)
    elif value not in (None, "", {}, []):
        yield path, value


def _pools_of(raw: Raw) -> list[Mapping[str, Any]]:
    pools = nested(raw, "spec", "rkeConfig", "machinePools", default=[])
    return [pool for pool in pools or () if isinstance(pool, Mapping)]
