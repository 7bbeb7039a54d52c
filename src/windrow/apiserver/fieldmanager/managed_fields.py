"""Field ownership for server-side apply: `managedFields` as kube-apiserver writes them.

A set of fields is a nested dict in the FieldsV1 form: `f:name` is a field, `k:{…}` an item of a keyed list, `v:…` an
item of a set, `.` the item itself; an empty dict ends a path. What the schema does not describe is merged as Go does
for untyped data: objects field by field, lists as one value.

Managers are recorded from the first apply on. Objects without one carry no `managedFields`, which saves a third of
their size; at the first apply their fields are owned by `before-first-apply`, as on kube-apiserver.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from windrow.apiserver.types.schema import (
    MAP_TYPE,
    Schema,
    identity_of,
    is_set,
    items_schema,
    list_keys,
    property_schema,
)
from windrow.core.formats.json import dumps, loads

Raw = dict[str, Any]
Fields = dict[str, Any]
Path = tuple[str, ...]

BEFORE_FIRST_APPLY = "before-first-apply"
SELF = "."
_NOT_OWNED = {
    (),
    ("f:apiVersion",),
    ("f:kind",),
    *(
        ("f:metadata", f"f:{name}")
        for name in (
            "name",
            "namespace",
            "creationTimestamp",
            "selfLink",
            "uid",
            "resourceVersion",
            "generation",
            "managedFields",
            "deletionTimestamp",
            "deletionGracePeriodSeconds",
            "generateName",
        )
    ),
}


def _list_map_key(item: Any, keys: tuple[str, ...], schema: Schema) -> str:
    known = items_schema(schema)
    values = {key: item.get(key, property_schema(known, key).get("default")) for key in sorted(keys)}
    return "k:" + dumps({key: value for key, value in values.items() if value is not None}).decode()


def _children(schema: Schema, value: Any) -> list[tuple[str, Schema, Any]] | None:
    """The children of `value` that are owned separately; None for an atomic value."""
    if isinstance(value, dict) and schema.get(MAP_TYPE) != "atomic":
        return [(f"f:{name}", property_schema(schema, name), part) for name, part in value.items()]
    if isinstance(value, list):
        keys = list_keys(schema)
        if keys and all(isinstance(item, dict) for item in value):
            return [(_list_map_key(item, keys, schema), items_schema(schema), item) for item in value]
        if is_set(schema):
            return [("v:" + dumps(item).decode(), {}, item) for item in value]
    return None


def paths_of(schema: Schema, value: Any, path: Path = ()) -> dict[Path, Any]:
    """Every owned path in `value`, with the value there. Items of keyed lists also have a path of their own."""
    parts = _children(schema, value)
    if path and path in _NOT_OWNED:
        return {}
    if not parts:
        return {path: value} if path else {}
    found: dict[Path, Any] = {}
    for step, known, part in parts:
        if step.startswith("k:"):
            found[(*path, step, SELF)] = None
            for name, inner, below in _children(known, part) or ():
                found.update(paths_of(inner, below, (*path, step, name)))
        elif step.startswith("v:"):
            found[(*path, step)] = part
        else:
            found.update(paths_of(known, part, (*path, step)))
    return found


def to_fields(paths: Iterator[Path] | set[Path] | frozenset[Path]) -> Fields:
    made: Fields = {}
    for path in sorted(paths):
        here = made
        for step in path:
            here = here.setdefault(step, {})
    return made


def from_fields(fields: Fields, path: Path = ()) -> set[Path]:
    if not fields:
        return {path} if path else set()
    return {one for step, inner in fields.items() for one in from_fields(inner, (*path, step))}


@dataclass(slots=True)
class Manager:
    """One field manager and the paths it owns."""

    name: str
    operation: str
    api_version: str
    subresource: str = ""
    time: str = ""
    paths: set[Path] = field(default_factory=set)

    @property
    def identity(self) -> tuple[str, str, str]:
        return self.name, self.operation, self.subresource

    def raw(self) -> Raw:
        made = {
            "manager": self.name,
            "operation": self.operation,
            "apiVersion": self.api_version,
            "time": self.time,
            "fieldsType": "FieldsV1",
            "fieldsV1": to_fields(self.paths),
        }
        return {**made, "subresource": self.subresource} if self.subresource else made


def read_managers(raw: Raw) -> list[Manager]:
    return [
        Manager(
            one.get("manager", ""),
            one.get("operation", "Update"),
            one.get("apiVersion", ""),
            one.get("subresource", ""),
            one.get("time", ""),
            from_fields(one.get("fieldsV1") or {}),
        )
        for one in raw["metadata"].get("managedFields") or ()
    ]


def write_managers(raw: Raw, managers: list[Manager]) -> None:
    """Set managedFields to the managers that own a path, in place."""
    kept = [one.raw() for one in managers if one.paths]
    raw["metadata"].pop("managedFields", None)
    if kept:
        raw["metadata"]["managedFields"] = kept


def record_update(schema: Schema, old: Raw, new: Raw, writer: Manager) -> None:
    """After an update: changed fields are owned by its manager. In place on `new`."""
    managers = read_managers(old)
    if not managers:
        return
    before, after = paths_of(schema, old), paths_of(schema, new)
    changed = {path for path, value in after.items() if path not in before or before[path] != value}
    if not changed and not before.keys() - after.keys():
        new["metadata"]["managedFields"] = old["metadata"]["managedFields"]
        return
    mine = next((one for one in managers if one.identity == writer.identity), None)
    if mine is None:
        mine = writer
        managers.append(mine)
    for one in managers:
        one.paths &= after.keys()
        if one is not mine:
            one.paths -= changed
    if changed:
        mine.paths |= changed
        mine.time = writer.time
    write_managers(new, managers)


@dataclass(frozen=True, slots=True)
class ApplyConflict:
    """A field that another manager owns with another value."""

    manager: Manager
    path: Path

    @property
    def field_path(self) -> str:
        """`.spec.list[name="x"].field`, as the server's message writes it."""
        text = ""
        for step in self.path:
            if step.startswith("f:"):
                text += f".{step[2:]}"
            elif step.startswith("k:"):
                pairs = loads(step[2:]).items()
                text += "[" + ",".join(f"{key}={dumps(value).decode()}" for key, value in pairs) + "]"
            elif step.startswith("v:"):
                text += f"[={step[2:]}]"
        return text


def plan_apply(
    schema: Schema, live: Raw, applied: Raw, writer: Manager, *, force: bool
) -> tuple[Raw, list[ApplyConflict]]:
    """The object after `writer` applies `applied` to `live`, and the conflicts that prevent it unless forced."""
    managers = read_managers(live)
    present = paths_of(schema, live)
    if not managers and present:
        managers = [
            Manager(BEFORE_FIRST_APPLY, "Update", writer.api_version, time=writer.time, paths=set(present))
        ]
    wanted = paths_of(schema, applied)
    mine = next((one for one in managers if one.identity == writer.identity), None)
    others = [one for one in managers if one is not mine]
    differing = {path for path, value in wanted.items() if path in present and present[path] != value}
    conflicts = [ApplyConflict(one, path) for one in others for path in sorted(differing & one.paths)]
    if conflicts and not force:
        return live, conflicts
    merged = _merge(schema, live, applied)
    dropped = (mine.paths if mine else set()) - wanted.keys()
    for one in others:
        one.paths -= differing
        dropped -= one.paths
    merged = _remove_paths(schema, merged, _whole_items(dropped, wanted.keys(), others), ())
    unchanged = mine is not None and mine.paths == set(wanted) and not differing
    writer.paths = set(wanted)
    writer.time = mine.time if mine is not None and unchanged else writer.time
    merged["metadata"] = dict(merged["metadata"])
    after = paths_of(schema, merged)
    for one in others:
        one.paths &= after.keys()
    write_managers(merged, [writer if one is mine else one for one in managers] + ([] if mine else [writer]))
    return merged, []


def _whole_items(dropped: set[Path], wanted: Any, others: list[Manager]) -> set[Path]:
    """What is removed as a whole: neither a field that is a map now, with fields that are applied or that another manager owns,
    nor a list item with such fields."""
    owned = [path for one in others for path in one.paths] + list(wanted)
    inside = {path[:length] for path in owned for length in range(len(path) + 1)}
    whole = {path[:-1] for path in dropped if path[-1] == SELF} - inside
    return {path for path in dropped - inside if path[-1] != SELF} | whole


def _merge(schema: Schema, live: Any, applied: Any) -> Any:
    if isinstance(applied, dict) and isinstance(live, dict) and schema.get(MAP_TYPE) != "atomic":
        result = dict(live)
        for name, value in applied.items():
            known = property_schema(schema, name)
            result[name] = _merge(known, live[name], value) if name in live else value
        return result
    if isinstance(applied, list) and isinstance(live, list):
        keys = list_keys(schema)
        if keys:
            return _merge_items(schema, keys, live, applied)
        if is_set(schema):
            present = {identity_of(item) for item in live}
            return [*live, *(item for item in applied if identity_of(item) not in present)]
    return applied


def _merge_items(schema: Schema, keys: tuple[str, ...], live: list[Any], applied: list[Any]) -> list[Any]:
    result = list(live)
    places = {
        _list_map_key(item, keys, schema): at for at, item in enumerate(result) if isinstance(item, dict)
    }
    for item in applied:
        place = places.get(_list_map_key(item, keys, schema))
        if place is None:
            result.append(item)
        else:
            result[place] = _merge(items_schema(schema), result[place], item)
    return result


def _remove_paths(schema: Schema, value: Any, dropped: set[Path], path: Path) -> Any:
    """`value` without the paths `dropped`; an object that becomes empty is removed, too."""
    relevant = {one for one in dropped if one[: len(path)] == path}
    parts = _children(schema, value)
    if not relevant or parts is None:
        return value
    kept = []
    for step, known, part in parts:
        here = (*path, step)
        if here in relevant:
            continue
        below = _remove_paths(known, part, relevant, here)
        if below == {} and part != {}:
            continue
        kept.append((step, below))
    if isinstance(value, dict):
        return {step[2:]: below for step, below in kept}
    return [below for _, below in kept]
