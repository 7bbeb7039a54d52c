"""Strategic merge patch: lists are merged by the merge keys of the schema."""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable
from typing import Any

from windrow.apiserver import apierrors
from windrow.apiserver.types.schema import Schema, identity_of, items_schema, merge_key, property_schema

PATCH, RETAIN = "$patch", "$retainKeys"
SET_ELEMENT_ORDER, DELETE_FROM_PRIMITIVE_LIST = "$setElementOrder/", "$deleteFromPrimitiveList/"


def apply_strategic_patch(schema: Schema, target: Any, patch: Any) -> Any:
    """`target` with `patch` merged in by the merge keys of `schema`. Inputs are not changed, parts are shared."""
    return _merge_map(schema, target if isinstance(target, dict) else {}, patch)


def _merge_map(schema: Schema, target: dict[str, Any], patch: dict[str, Any]) -> dict[str, Any]:
    match patch.get(PATCH):
        case "replace":
            return {name: value for name, value in patch.items() if name != PATCH}
        case "delete":
            return {}
        case None | "merge":
            pass
        case other:
            raise apierrors.bad_request(f"unknown patch type found: {other}")
    result = dict(target)
    retain = patch.get(RETAIN)
    if retain is not None:
        result = {name: value for name, value in result.items() if name in retain}
    for name, value in patch.items():
        if name in (PATCH, RETAIN) or name.startswith(SET_ELEMENT_ORDER):
            continue
        if name.startswith(DELETE_FROM_PRIMITIVE_LIST):
            field = name.removeprefix(DELETE_FROM_PRIMITIVE_LIST)
            result[field] = [one for one in result.get(field) or () if one not in value]
        elif value is None:
            result.pop(name, None)
        else:
            result[name] = _merge_value(property_schema(schema, name), result.get(name), value)
    for name, order in patch.items():
        if name.startswith(SET_ELEMENT_ORDER):
            field = name.removeprefix(SET_ELEMENT_ORDER)
            key = merge_key(property_schema(schema, field)) or ""
            if isinstance(result.get(field), list):
                result[field] = _ordered(key, result[field], target.get(field) or [], order)
    return result


def _merge_value(schema: Schema, old: Any, new: Any) -> Any:
    if isinstance(new, dict):
        return _merge_map(schema, old if isinstance(old, dict) else {}, new)
    if isinstance(new, list):
        return _merge_list(schema, old if isinstance(old, list) else [], new)
    return new


def _merge_list(schema: Schema, old: list[Any], new: list[Any]) -> list[Any]:
    key = merge_key(schema)
    replaces = any(isinstance(item, dict) and item.get(PATCH) == "replace" for item in new)
    if key is None or replaces:
        return [item for item in new if not (isinstance(item, dict) and PATCH in item)]
    if key == "" or not all(isinstance(item, dict) for item in new):
        known = {identity_of(item) for item in old}
        return _ordered("", [*old, *(item for item in new if identity_of(item) not in known)], old, new)
    result: list[Any] = list(old)
    places: dict[Hashable, list[int]] = {}
    for at, one in enumerate(old):
        places.setdefault(identity_of(one.get(key)), []).append(at)
    for item in new:
        if key not in item:
            raise apierrors.bad_request(f"map: {item} does not contain declared merge key: {key}")
        identity = identity_of(item[key])
        if item.get(PATCH) == "delete":
            for at in places.pop(identity, ()):
                result[at] = _DELETED
        elif identity not in places:
            places[identity] = [len(result)]
            result.append(_merge_map(items_schema(schema), {}, item))
        else:
            at = places[identity][0]
            result[at] = _merge_map(items_schema(schema), result[at], item)
    return _ordered(key, [one for one in result if one is not _DELETED], old, new)


_DELETED = object()


def _identity(key: str, item: Any) -> Hashable:
    return identity_of(item.get(key) if key and isinstance(item, dict) else item)


def _positions(key: str, items: list[Any]) -> dict[Hashable, int]:
    """The position of the first item of each identity."""
    found: dict[Hashable, int] = {}
    for at, one in enumerate(items):
        found.setdefault(_identity(key, one), at)
    return found


def _ordered(key: str, items: list[Any], before: list[Any], order: list[Any]) -> list[Any]:
    """Items of `order` in its order; other items keep their position relative to their former neighbours."""
    wanted, former = _positions(key, order), _positions(key, before)
    identified = [(_identity(key, one), one) for one in items]
    named = deque(
        sorted((pair for pair in identified if pair[0] in wanted), key=lambda pair: wanted[pair[0]])
    )
    others = deque(pair for pair in identified if pair[0] not in wanted)
    merged: list[Any] = []
    while named and others:
        first, second = named[0][0], others[0][0]
        goes_first = first not in former or second not in former or former[first] < former[second]
        merged.append((named if goes_first else others).popleft()[1])
    return [*merged, *(one for _, one in named), *(one for _, one in others)]
