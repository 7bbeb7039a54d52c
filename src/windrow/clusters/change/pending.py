"""The plan of changes: what of each machine is not as its Cluster asks now, what that means for it, and in which order.

One value for all: `windrow plan` prints it, `status.pendingChanges` holds it, the planner takes the turns from it, so that
what is predicted is what is done. Pure: made of one observed state.

Order of turns: servers with API server and etcd member, the one through which machines join last; then those with API server
alone; then etcd members alone; then workers. So no kubelet is newer than an API server that it talks to (reference/10 §1.3).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from windrow.clusters.api.cluster import Pool
from windrow.clusters.api.immutable_config import is_restored
from windrow.clusters.api.machine import Machine, format_roles
from windrow.clusters.api.manifest.distribution import find_distribution_name
from windrow.clusters.api.manifest.supported_fields import Change, OnChange
from windrow.clusters.api.names import STRATEGY
from windrow.clusters.api.updates.strategy import DrainOptions
from windrow.clusters.api.version_steps import VERSION, check_step, is_newer
from windrow.clusters.change.compare import (
    FieldChange,
    compare_fields,
    compare_options,
    compare_pool,
    list_refused_options,
)
from windrow.clusters.change.fields import POOL, TURNS, concerns, on_change_of_field, strongest
from windrow.clusters.change.revisions import find_present_hash, list_fields
from windrow.clusters.change.surge import check_replacement
from windrow.clusters.change.way_back import name_way_back
from windrow.clusters.state import ClusterState, MachineState, once_per_state
from windrow.core.text import join_some
from windrow.machines.port import Problem

CONFIGURATION = "spec.rkeConfig"
MAX_NAMED = 3  # fields in a sentence
_UNRECORDED = (
    "its configuration differs, and in which fields is not known: a release that made it did not record them; it stays as it is "
    "until a field changes, or it is replaced"
)


@dataclass(frozen=True, slots=True)
class MachineChange:
    """What of one machine is not as its Cluster asks now.

    `change` is the most disruptive of its fields; `order` counts the turns from 1, and is 0 of a machine that has none.
    `disrupts` says what its turn takes away meanwhile, `steps` what is done in it, one after the other. `version` and `config_hash` are what its Machine records after it, the
    latter "" where it is not known.
    """

    machine: str
    pool: str
    change: Change
    fields: tuple[FieldChange, ...]
    because: str
    disrupts: str = ""
    steps: tuple[str, ...] = ()
    order: int = 0
    version: str = ""
    config_hash: str = ""

    @property
    def changed(self) -> str:
        """The fields that ask for its `change`, for a sentence."""
        paths = [one.path for one in self.fields if one.change == self.change]
        return join_some(paths, MAX_NAMED)


@dataclass(frozen=True, slots=True)
class PendingChanges:
    """`machines` in the order in which turns are taken, those without turn last; `cluster` are changes of objects of the guest,
    `refused` what is not carried out whatever is waited for. With `snapshot_first` an etcd snapshot is made before the first turn."""

    machines: tuple[MachineChange, ...] = ()
    cluster: tuple[FieldChange, ...] = ()
    refused: tuple[Problem, ...] = ()
    snapshot_first: bool = False

    @property
    def is_empty(self) -> bool:
        return not (self.machines or self.cluster or self.refused)

    @property
    def turns(self) -> tuple[MachineChange, ...]:
        return tuple(one for one in self.machines if one.order)

    def find(self, machine: str) -> MachineChange | None:
        return next((one for one in self.machines if one.machine == machine), None)


@once_per_state
def pending_changes(state: ClusterState) -> PendingChanges:
    """What is to be changed of the Cluster's machines; nothing before it runs, and while it is deleted."""
    if not state.recorded.version or state.cluster.deletion_timestamp is not None:
        return PendingChanges()
    comparison = _Comparison(state)
    machines = [comparison.of_machine(machine) for machine in state.active]
    return PendingChanges(
        _in_order([one for one in machines if one is not None], state),
        comparison.of_cluster(),
        tuple(comparison.list_refused()),
        _has_snapshot_first(machines, state),
    )


def _has_snapshot_first(machines: Iterable[MachineChange | None], state: ClusterState) -> bool:
    """Whether the first machine is about to change to another version, which an etcd snapshot leads back from."""
    changing = any(
        field.path == VERSION and one.change in TURNS for one in machines if one for field in one.fields
    )
    has_begun = any(one.record.version == state.cluster.version for one in state.active)
    return changing and not has_begun and not state.cluster.etcd.get("disableSnapshots")


@once_per_state
def list_outdated_deleting(state: ClusterState) -> tuple[str, ...]:
    """The machines that are being deleted and are not as the Cluster asks: they are replaced, and not gone yet. None while the
    Cluster is deleted."""
    if not (state.deleting and state.recorded.version) or state.cluster.deletion_timestamp is not None:
        return ()
    comparison = _Comparison(state)
    changes = [comparison.of_machine(machine) for machine in state.deleting]
    return tuple(one.machine for one in changes if one is not None and one.change in TURNS)


class _Comparison:
    """The comparison of one state. Machines that were made alike are compared once."""

    def __init__(self, state: ClusterState) -> None:
        self._state = state
        self._distribution = find_distribution_name(state.recorded.version)
        self._refused = _find_refused_version(state)
        self._fields: dict[str, Mapping[str, object]] = {}  # that are wanted, by pool
        self._configurations: dict[tuple[str, str], tuple[FieldChange, ...]] = {}  # by pool and hash
        self._alike: dict[tuple[object, ...], list[tuple[Machine, tuple[FieldChange, ...]]]] = {}
        self._irreplaceable: dict[str, Problem] = {}  # by pool

    def of_machine(self, machine: MachineState) -> MachineChange | None:
        record, pool = machine.record, self._state.cluster.find_pool(machine.pool)
        if pool is None:
            return None  # the machine is deleted
        fields = self._list_changes(record, pool)
        if not fields:
            return None
        fields = _replacing(fields) if self._state.cluster.replaces else fields
        fields = self._refuse_replacement(fields, pool)
        change = strongest(frozenset(one.change for one in fields))
        return MachineChange(
            machine.name,
            pool.name,
            change,
            fields,
            "; ".join(dict.fromkeys(one.because for one in fields if one.change == change)),
            version=record.version if self._refused else self._state.cluster.version,
            config_hash=self._find_hash(record),
        )

    def _refuse_replacement(self, fields: tuple[FieldChange, ...], pool: Pool) -> tuple[FieldChange, ...]:
        problem = check_replacement(pool, self._state.cluster.pools)
        if problem is None or not any(one.change == "replace" for one in fields):
            return fields
        self._irreplaceable[pool.name] = problem
        return tuple(
            replace(one, change="refused", because=problem.message) if one.change == "replace" else one
            for one in fields
        )

    def of_cluster(self) -> tuple[FieldChange, ...]:
        """Compared with what was applied last; before anything was, with what the oldest API server was made with."""
        first = next((one.record for one in self._state.active if one.record.is_control_plane), None)
        pool = self._state.cluster.find_pool(first.pool) if first is not None else None
        if first is None or pool is None:
            return ()
        applied = self._state.recorded.applied_revision or first.config_hash
        return tuple(one for one in self._compare(pool, applied) if one.concerns == "cluster")

    def list_refused(self) -> Iterator[Problem]:
        if self._refused is not None:
            yield self._refused
        for problem in self._state.problems:
            if problem.severity == "error" and is_restored(problem.field):
                yield problem
        yield from _list_refused_roles(self._state)
        yield from self._list_refused_options()
        yield from self._irreplaceable.values()

    def _list_refused_options(self) -> Iterator[Problem]:
        """Each once, in whichever machines it is found."""
        found: dict[Problem, None] = {}
        for key, alike in self._alike.items():
            pool = self._state.cluster.find_pool(str(key[0]))
            for record, fields in alike:
                if pool is not None and any(one.change == "refused" for one in fields):
                    found |= dict.fromkeys(list_refused_options(record, pool, self._state.option_rules))
        yield from found

    def _list_changes(self, record: Machine, pool: Pool) -> tuple[FieldChange, ...]:
        key = (
            record.pool,
            record.version,
            record.config_hash,
            record.roles,
            record.credential,
            record.driver,
        )
        alike = self._alike.setdefault(key, [])
        for one, fields in alike:
            if (one.options, one.labels, one.taints) == (record.options, record.labels, record.taints):
                return fields
        found = (
            *self._compare_version(record),
            *(one for one in self._compare_configuration(record, pool) if concerns(one.concerns, record)),
            *compare_options(record, pool, self._state.option_rules),
            *compare_pool(record, pool),
        )
        alike.append((record, found))
        return found

    def _compare_version(self, record: Machine) -> Iterator[FieldChange]:
        wanted = self._state.cluster.version
        if not wanted or not record.version or wanted == record.version:
            return
        row = on_change_of_field(VERSION)
        if self._refused is not None:
            row = OnChange("refused", self._refused.message)
        yield FieldChange(VERSION, record.version, wanted, row.change, row.because)

    def _compare_configuration(self, record: Machine, pool: Pool) -> tuple[FieldChange, ...]:
        if not record.config_hash or record.config_hash in self._list_hashes(pool.name):
            return ()
        if record.config_hash in self._state.recorded.revisions:
            return self._compare(pool, record.config_hash)
        # A hash that nothing is recorded of can be compared with one of the same version alone.
        known = self._state.config_hashes.get(pool.name)
        if not known or record.version != self._state.recorded.version or record.roles != pool.roles:
            return ()
        return (FieldChange(CONFIGURATION, None, None, "none", _UNRECORDED),)

    def _compare(self, pool: Pool, digest: str) -> tuple[FieldChange, ...]:
        recorded = self._state.recorded.revisions.get(digest)
        if recorded is None or digest in self._list_hashes(pool.name):
            return ()
        key = (pool.name, digest)
        if key not in self._configurations:
            if pool.name not in self._fields:
                self._fields[pool.name] = list_fields(self._state.cluster, pool)
            self._configurations[key] = compare_fields(recorded, self._fields[pool.name], self._distribution)
        return self._configurations[key]

    def _list_hashes(self, pool: str) -> tuple[str | None, ...]:
        """Those of the configuration that is wanted, with any version that machines have or are to have."""
        left = (hashes.get(pool) for hashes in self._state.left_hashes.values())
        return self._state.config_hashes.get(pool), self._state.wanted_hashes.get(pool), *left

    def _find_hash(self, record: Machine) -> str:
        """The hash that the machine has after its turn; "" where it is not known."""
        version = self._state.cluster.version
        if self._refused is not None or version == self._state.recorded.version:
            version = record.version
        return find_present_hash(record.pool, version, self._state)


def _replacing(fields: tuple[FieldChange, ...]) -> tuple[FieldChange, ...]:
    """The changes of a Cluster that has its machines replaced. A version is changed in place all the same: a new machine is made
    with the one that the cluster runs."""
    why = f"annotation {STRATEGY} asks for it"
    return tuple(
        replace(one, change="replace", because=why)
        if one.change in ("service restart", "VM restart") and one.path != VERSION
        else one
        for one in fields
    )


def _find_refused_version(state: ClusterState) -> Problem | None:
    """Why machines do not go to the version that is asked for."""
    running = [state.recorded.version, *map(_find_running_version, state.active)]
    if {state.cluster.version} >= set(filter(None, running)):
        return None
    of_spec = (one for one in state.problems if one.field == VERSION and one.severity == "error")
    refused = next(of_spec, None) or check_step(state.cluster.version, running)
    return name_way_back(refused, state) if refused is not None else None


def _find_running_version(machine: MachineState) -> str:
    """As it is recorded; what its Node shows where that is newer, and it has no turn: then the record is older."""
    record, node = machine.record, machine.node
    shown = node.kubelet_version if node is not None and record.update is None else ""
    return shown if is_newer(shown, record.version) else record.version


def _list_refused_roles(state: ClusterState) -> Iterator[Problem]:
    for pool in state.cluster.pools:
        others = [one.record for one in state.of_pool(pool) if one.record.roles != pool.roles]
        if not others:
            continue
        had, has = format_roles(others[0].roles), format_roles(pool.roles)
        told = "1 machine of it has" if len(others) == 1 else f"{len(others)} machines of it have"
        yield Problem(
            f"pool {pool.name} has the roles {has or 'none'}, and {told} {had}: what a machine is to its cluster is decided when "
            "it joins",
            f"give pool {pool.name} its roles again, add a pool with {has or 'the others'}, and remove this one once the machines "
            "of that are Ready",
            f"{POOL[:-2]}[{pool.name}]",
        )


# -- order -------------------------------------------------------------------------------------------------------


def _in_order(changes: Iterable[MachineChange], state: ClusterState) -> tuple[MachineChange, ...]:
    joined = _find_joined(state)
    records = {machine.name: machine.record for machine in state.active}

    def key(one: MachineChange) -> tuple[object, ...]:
        record = records[one.machine]
        return one.change not in TURNS, find_tier(record), one.machine == joined, record.created, one.machine

    ordered = sorted(changes, key=key)
    api_servers = sum(record.is_control_plane for record in records.values())
    return tuple(
        replace(
            one,
            order=place,
            disrupts=_disrupts(one, records[one.machine], api_servers, state),
            steps=_list_steps(one, records[one.machine], state),
        )
        if one.change in TURNS
        else one
        for place, one in enumerate(ordered, 1)
    )


def find_tier(record: Machine) -> int:
    """Of whose turn comes first."""
    if record.is_control_plane:
        return 0 if record.is_etcd else 1
    return 2 if record.is_etcd else 3


def _find_joined(state: ClusterState) -> str:
    """The server through which machines join, which is the oldest one: what joins meanwhile finds it there the longest. Not by
    whether it is Ready, which it is not in its turn: the order would change."""
    servers = [one for one in state.active if one.record.is_server]
    return min(servers, key=lambda one: (one.record.created, one.name)).name if servers else ""


MOVE = "its pods move, those without a controller are deleted"
MOVE_OWNED = "its pods move, those without a controller stay and go on"


def _disrupts(one: MachineChange, record: Machine, api_servers: int, state: ClusterState) -> str:
    """What the turn of a machine takes away meanwhile."""
    force = _drain_options(record, state).force
    pods = (MOVE if force else MOVE_OWNED) if _is_drained(one, record, state) else "its pods go on"
    if one.change == "service restart" and not record.is_server:
        return f"its kubelet restarts; {pods}"
    if one.change == "service restart":
        parts = ["API server"] * record.is_control_plane + ["etcd member"] * record.is_etcd
        only = "; it is the only API server, so that the API of the cluster is away meanwhile"
        alone = only if record.is_control_plane and api_servers == 1 else ""
        return f"its {' and '.join(parts)} restart{'s' * (len(parts) == 1)}; {pods}{alone}"
    if one.change == "VM restart":
        where = "its pods move, or stop meanwhile where no other Node takes them"
        bare = (
            "a drain deletes those without a controller"
            if force
            else "those without a controller come back with it"
        )
        return f"its VM stops and starts; {where}; {bare}"
    return f"its VM is deleted once another machine has joined; {MOVE}"


PREFLIGHT = "preflight (free disk and images, asked on the node)"


def _list_steps(one: MachineChange, record: Machine, state: ClusterState) -> tuple[str, ...]:
    """What is done in its turn, as far as it does not go by itself. A lone Node is neither cordoned nor drained."""
    others = len(state.active) > 1
    if one.change == "VM restart":
        return *("cordon", "drain") * others, "stop the VM", "edit it", "start it", *("uncordon",) * others
    if one.change != "service restart" or all(field.path != VERSION for field in one.fields):
        return ()
    around = ("cordon",) * others + ("drain",) * _is_drained(one, record, state)
    return PREFLIGHT, *around, "install the release", "restart the service", *("uncordon",) * others


def _is_drained(one: MachineChange, record: Machine, state: ClusterState) -> bool:
    """Whether the drain options ask for it, which they do for another version alone."""
    others = len(state.active) > 1
    is_enabled = _drain_options(record, state).enabled
    return is_enabled and others and any(field.path == VERSION for field in one.fields)


def _drain_options(record: Machine, state: ClusterState) -> DrainOptions:
    strategy = state.cluster.upgrade_strategy
    return strategy.control_plane_drain if record.is_server else strategy.worker_drain
