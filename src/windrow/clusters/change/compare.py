"""What changed of a machine, field by field: the fields that it was made with, or was last updated to, and those that are
wanted now. Never rendered objects, so that an upgrade of Windrow changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from windrow.clusters.api.cluster import Pool
from windrow.clusters.api.machine import Machine
from windrow.clusters.api.manifest.pools import ROLE_FIELDS
from windrow.clusters.api.manifest.supported_fields import Change, Concerned, OnChange
from windrow.clusters.change.fields import (
    GLOBAL_CONFIG,
    POOL,
    TURNS,
    OptionRules,
    on_change_of_field,
    on_change_of_key,
    on_change_of_option,
)
from windrow.clusters.change.revisions import (
    Revision,
    digest_field,
    is_digest,
    record_value,
    split_field,
)
from windrow.machines.port import HARVESTER, Problem


@dataclass(frozen=True, slots=True)
class FieldChange:
    """One field that has another value than before; None is none. Values are as they may be recorded and shown.

    `path` is that of the Cluster, or of the machine config with its kind and name before it: `HarvesterConfig nc: cpuCount`.
    """

    path: str
    old: Any
    new: Any
    change: Change
    because: str
    concerns: Concerned = "all"


# -- configuration -----------------------------------------------------------------------------------------------


def compare_fields(
    recorded: Revision, wanted: Mapping[str, Any], distribution: str
) -> tuple[FieldChange, ...]:
    """The changes between a revision and the fields that are wanted (`revisions.list_fields`), by path."""
    changes: list[FieldChange] = []
    left = dict(recorded)
    for path, field in wanted.items():
        were = {at: left.pop(at) for at in list(left) if at == path or at.startswith(f"{path}.")}
        changes += _compare_field(path, were, field, distribution)
    changes += [_change(at, value, None, distribution) for at, value in left.items()]
    return tuple(sorted(changes, key=lambda one: one.path))


def _compare_field(path: str, were: Revision, field: Any, distribution: str) -> Iterator[FieldChange]:
    if isinstance(field, Mapping) and is_digest(were.get(path)):
        if were[path] != (now := digest_field(field)):
            yield _change(path, were[path], now, distribution)
        return
    are = split_field(path, field)
    for at in dict.fromkeys((*were, *are)):
        old, new = were.get(at), record_value(at, are[at]) if at in are else None
        if old != new:
            yield _change(at, old, new, distribution)


def _change(path: str, old: Any, new: Any, distribution: str) -> FieldChange:
    row = on_change_of_field(path)
    if path.startswith(f"{GLOBAL_CONFIG}."):
        key = path.removeprefix(f"{GLOBAL_CONFIG}.").partition(".")[0]
        row = on_change_of_key(key, old, new, distribution)
    return FieldChange(path, old, new, row.change, row.because, row.concerns)


# -- what a Machine records itself -------------------------------------------------------------------------------


def compare_options(machine: Machine, pool: Pool, rules: OptionRules) -> tuple[FieldChange, ...]:
    """The options of the machine's driver that its pool has otherwise now; none while the machine config is absent."""
    if pool.options is None or machine.options == pool.options:
        return ()
    rules = _choose_rules(pool, rules)
    refused = list_refused_options(machine, pool, rules)
    known = rules.find_changes(machine.options, pool.options)
    faulty = {one.field.rpartition(": ")[2] for one in refused}
    changes = []
    for name in sorted(machine.options.keys() | pool.options.keys()):
        old, new = machine.options.get(name), pool.options.get(name)
        if old != new and (name in known or name in faulty or name not in rules.fields):
            row = on_change_of_option(name, known.get(name))
            if refused and (name in faulty or row.change in TURNS):
                row = OnChange("refused", refused[0].message)
            changes.append(_record(f"{pool.kind} {pool.config_name}: {name}", name, old, new, row))
    return tuple(changes)


def list_refused_options(machine: Machine, pool: Pool, rules: OptionRules) -> tuple[Problem, ...]:
    """Why the machine cannot have the options of its pool. None of them is given to it then: they are given together."""
    if pool.options is None or machine.options == pool.options:
        return ()
    found = _choose_rules(pool, rules).find_refusals(machine.options, pool.options)
    of = f"{pool.kind} {pool.config_name}"
    return tuple(replace(one, field=f"{of}: {one.field}") for one in found)


def _choose_rules(pool: Pool, rules: OptionRules) -> OptionRules:
    return rules if pool.driver == HARVESTER else OptionRules()


def _record(path: str, name: str, old: Any, new: Any, row: OnChange) -> FieldChange:
    were, are = (None if one is None else _shown(name, one) for one in (old, new))
    return FieldChange(path, were, are, row.change, row.because, row.concerns)


def _shown(name: str, value: Any) -> Any:
    """User data may hold passwords in any form."""
    return digest_field(value) if name == "userData" else record_value(name, value)


def compare_pool(machine: Machine, pool: Pool) -> Iterator[FieldChange]:
    """What the pool says of the machine's Node, and of the machine: a Machine of an earlier release does not record labels
    and taints, and then nothing is known of those."""
    if machine.labels is not None:
        for key in sorted(machine.labels.keys() | pool.labels.keys()):
            old, new = machine.labels.get(key), pool.labels.get(key)
            if old != new:
                yield _of_pool(pool, f"labels.{key}", old, new)
    if machine.taints is not None and set(machine.taints) != set(pool.taints):
        yield _of_pool(pool, "taints", list(machine.taints) or None, list(pool.taints) or None)
    for key, role in ROLE_FIELDS:
        if (role in machine.roles) != (role in pool.roles):
            yield _of_pool(pool, key, role in machine.roles, role in pool.roles)
    if machine.credential != pool.credential:
        yield _of_pool(pool, "cloudCredentialSecretName", machine.credential, pool.credential)
    if machine.driver != pool.driver and pool.driver:
        yield _of_pool(pool, "machineConfigRef.kind", machine.driver, pool.driver)


def _of_pool(pool: Pool, field: str, old: Any, new: Any) -> FieldChange:
    row = on_change_of_field(f"{POOL}.{field}")
    return FieldChange(f"{POOL[:-2]}[{pool.name}].{field}", old, new, row.change, row.because, row.concerns)
