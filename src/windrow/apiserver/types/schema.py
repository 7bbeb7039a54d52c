"""Structural schemas, for built-in types and custom resources alike: an OpenAPI v3 object as CRDs carry it.

It is used for four things: defaulting, pruning, validation, and the merge keys of strategic patches. Built-in types use
fragments with `x-kubernetes-preserve-unknown-fields`, since only the parts that matter are written down; custom
resources bring their own, whole.
"""

from __future__ import annotations

import operator
import re
from base64 import b64decode
from collections.abc import Callable, Hashable, Mapping
from datetime import date, datetime
from ipaddress import IPv4Address, IPv6Address, ip_network
from typing import Any

from windrow.apiserver.apierrors import Cause, format_value, required, too_many
from windrow.core.formats.fastjson import dumps as encode
from windrow.core.formats.fastjson import loads
from windrow.core.formats.regex import BadPattern, TextTooLong, matches

Schema = Mapping[str, Any]

PRESERVE = "x-kubernetes-preserve-unknown-fields"
EMBEDDED = "x-kubernetes-embedded-resource"
INT_OR_STRING = "x-kubernetes-int-or-string"
LIST_TYPE = "x-kubernetes-list-type"
LIST_KEYS = "x-kubernetes-list-map-keys"
MAP_TYPE = "x-kubernetes-map-type"
VALIDATIONS = "x-kubernetes-validations"
PATCH_STRATEGY = "x-kubernetes-patch-strategy"
PATCH_KEY = "x-kubernetes-patch-merge-key"

OPEN_SCHEMA: Schema = {"type": "object", PRESERVE: True}
_ROOT = frozenset({"apiVersion", "kind", "metadata"})


def join_path(path: str, step: str | int) -> str:
    """`path` one step deeper, as field errors write it: `spec.list[0].name`."""
    if isinstance(step, int):
        return f"{path}[{step}]"
    return f"{path}.{step}" if path else step


def identity_of(value: Any) -> Hashable:
    """A hashable form of a JSON value, equal to that of each equal value and of no other.

    Lists of many items are searched by it: to compare each with each took minutes for one object of the largest size.
    """
    if isinstance(value, dict):
        return "object", frozenset((name, identity_of(inner)) for name, inner in value.items())
    if isinstance(value, list):
        return "array", tuple(identity_of(item) for item in value)
    return ("boolean", value) if isinstance(value, bool) else value


def _copy(value: Any) -> Any:
    return loads(encode(value)) if isinstance(value, (dict, list)) else value


# --- unknown fields -------------------------------------------------------------------------------------------------


def prune(schema: Schema, value: Any, path: str = "", *, root: bool = True) -> list[str]:
    """Prune from `value`, in place, every field that `schema` does not specify; returns their paths."""
    if isinstance(value, dict):
        return _prune_object(schema, value, path, root=root)
    if isinstance(value, list):
        items = schema.get("items")
        if items is None:
            return []
        dropped: list[str] = []
        for index, item in enumerate(value):
            dropped += prune(items, item, join_path(path, index), root=False)
        return dropped
    return []


def _prune_object(schema: Schema, value: dict[str, Any], path: str, *, root: bool) -> list[str]:
    known = schema.get("properties") or {}
    extra = schema.get("additionalProperties")
    keeps = schema.get(PRESERVE) or extra is True
    resource = root or schema.get(EMBEDDED)
    dropped: list[str] = []
    for name in list(value):
        if resource and name in _ROOT:
            continue
        if name in known:
            dropped += prune(known[name], value[name], join_path(path, name), root=False)
        elif isinstance(extra, Mapping):
            dropped += prune(extra, value[name], join_path(path, name), root=False)
        elif not keeps:
            del value[name]
            dropped.append(join_path(path, name))
    return dropped


def drop_nulls(value: Any) -> None:
    """Remove null fields, in place: to a type written in Go a null is an absent field."""
    if isinstance(value, dict):
        for name in [name for name, inner in value.items() if inner is None]:
            del value[name]
        for inner in value.values():
            drop_nulls(inner)
    elif isinstance(value, list):
        for item in value:
            drop_nulls(item)


def drop_unset(schema: Schema, value: Any) -> None:
    """Remove from a custom resource, in place, the nulls of fields that are not nullable and have no default."""
    if isinstance(value, list):
        for item in value:
            drop_unset(schema.get("items") or {}, item)
    if not isinstance(value, dict):
        return
    known = schema.get("properties") or {}
    extra = schema.get("additionalProperties")
    for name in list(value):
        inner = known.get(name, extra)
        if not isinstance(inner, Mapping):
            continue
        if value[name] is None and not inner.get("nullable") and "default" not in inner:
            del value[name]
        else:
            drop_unset(inner, value[name])


# --- defaults -------------------------------------------------------------------------------------------------------


def apply_defaults(schema: Schema, value: Any) -> None:
    """Fill in, in place, the defaults that `schema` states for missing fields of objects that are there."""
    if not _has_defaults(schema):
        return
    if isinstance(value, list):
        for item in value:
            apply_defaults(schema.get("items") or {}, item)
    if not isinstance(value, dict):
        return
    known = schema.get("properties") or {}
    for name, inner in known.items():
        if "default" in inner and (name not in value or (value[name] is None and not inner.get("nullable"))):
            value[name] = _copy(inner["default"])
        if name in value:
            apply_defaults(inner, value[name])
    extra = schema.get("additionalProperties")
    if isinstance(extra, Mapping):
        for name in value:
            if name not in known:
                apply_defaults(extra, value[name])


_defaulting: dict[int, tuple[Schema, bool]] = {}


def _has_defaults(schema: Schema) -> bool:
    # Most branches of a schema have no default; the cache saves walking them for each object.
    known = _defaulting.get(id(schema))
    if known is not None and known[0] is schema:
        return known[1]
    inner = [*(schema.get("properties") or {}).values()]
    inner += [
        part
        for part in (schema.get("items"), schema.get("additionalProperties"))
        if isinstance(part, Mapping)
    ]
    found = any("default" in part or _has_defaults(part) for part in inner)
    _defaulting[id(schema)] = (schema, found)
    return found


# --- rules ----------------------------------------------------------------------------------------------------------


def _invalid(path: str, value: Any, text: str, reason: str = "FieldValueInvalid") -> Cause:
    return Cause(path, reason, f"Invalid value: {format_value(value)}: {path} in body {text}")


_TYPES: dict[str, Callable[[Any], bool]] = {
    "object": lambda value: isinstance(value, dict),
    "array": lambda value: isinstance(value, list),
    "string": lambda value: isinstance(value, str),
    "boolean": lambda value: isinstance(value, bool),
    "integer": lambda value: (
        (
            (isinstance(value, int) and not isinstance(value, bool))
            or (isinstance(value, float) and value.is_integer())
        )
        and -(2**63) <= value < 2**63
    ),  # as Go reads it; beyond that it is a number
    "number": lambda value: isinstance(value, (int, float)) and not isinstance(value, bool),
}


def _type_name(value: Any) -> str:
    for name in ("object", "array", "string", "boolean", "integer", "number"):
        if _TYPES[name](value):
            return name
    return "null"


def validate(schema: Schema, value: Any, path: str = "") -> list[Cause]:
    """Every validation error of `value` by `schema`, with its path."""
    if value is None and (schema.get("nullable") or not schema.get("type")):
        return []
    if schema.get(INT_OR_STRING) and not (isinstance(value, str) or _TYPES["integer"](value)):
        return [_type_error(path, value, "integer,string")]
    wanted = schema.get("type")
    causes: list[Cause] = []
    is_mistyped = wanted is not None and wanted != "" and not _TYPES[wanted](value)
    if is_mistyped:
        causes.append(_type_error(path, value, str(wanted)))
    elif isinstance(value, dict):
        causes += _validate_object(schema, value, path)
    elif isinstance(value, list):
        causes += _validate_list(schema, value, path)
    elif isinstance(value, str):
        causes += _validate_text(schema, value, path)
    elif isinstance(value, (int, float)) and not isinstance(value, bool):
        causes += _validate_number(schema, value, path)
    if "enum" in schema and value is not None and value not in schema["enum"]:
        offered = ", ".join(format_value(str(one) if isinstance(one, int) else one) for one in schema["enum"])
        text = f"Unsupported value: {format_value(value)}: supported values: {offered}"
        causes.append(Cause(path, "FieldValueNotSupported", text))
    return causes if is_mistyped else causes + _combined(schema, value, path)


def validate_update(schema: Schema, value: Any, old: Any) -> list[Cause]:
    """`validate`, without errors of what `value` has unchanged from `old` (CRDValidationRatcheting of kube-apiserver).

    A bound that a newer CRD states would else hold up every later write of an object that is beyond it, also the one by which
    its finalizer is removed. Items of lists have no identity here: a list that has changed is checked whole.
    """
    causes = validate(schema, value)
    if not causes:
        return causes
    is_same, unchanged = _find_unchanged(_as_read(schema, value), _as_read(schema, old), "")
    within = tuple(f"{path}{separator}" for path in unchanged for separator in ".[")
    return [
        cause
        for cause in causes
        if not (is_same or cause.field in unchanged or cause.field.startswith(within))
    ]


def validate_immutable(schema: Schema, value: Any, old: Any, path: str = "") -> list[Cause]:
    """The errors of values that have changed although their schema has the rule `self == oldSelf`, and of fields that have come
    or gone although it has `has(self.f) == has(oldSelf.f)`.

    Of the CEL rules these are evaluated; `list_unevaluated_rules` names all others. As kube-apiserver does, a
    value that is new or gone is not compared, nor one within a list.
    """
    causes: list[Cause] = []
    if any(map(_is_immutability, schema.get(VALIDATIONS) or ())) and not _is_equal(schema, value, old):
        rule = next(filter(_is_immutability, schema[VALIDATIONS]))
        text = rule.get("message") or f"failed rule: {rule['rule']}"
        causes.append(Cause(path, "FieldValueInvalid", f'Invalid value: "{_type_name(value)}": {text}'))
    if isinstance(value, dict) and isinstance(old, dict):
        for rule in schema.get(VALIDATIONS) or ():
            name = _find_lasting_field(rule)
            if name and (name in value) != (name in old):
                text = rule.get("message") or f"failed rule: {rule['rule']}"
                causes.append(Cause(path, "FieldValueInvalid", f'Invalid value: "object": {text}'))
        for name, inner in value.items():
            if name in old and (known := property_schema(schema, name)):
                causes += validate_immutable(known, inner, old[name], join_path(path, name))
    return causes


def list_unevaluated_rules(schema: Schema, path: str = "", *, is_in_list: bool = False) -> list[str]:
    """The CEL rules that nothing here enforces, each with its path."""
    found = [
        f"{join_path(path, VALIDATIONS)}[{index}].rule: {rule.get('rule')}"
        for index, rule in enumerate(schema.get(VALIDATIONS) or ())
        if is_in_list or not (_is_immutability(rule) or _find_lasting_field(rule))
    ]
    for name, inner in (schema.get("properties") or {}).items():
        found += list_unevaluated_rules(inner, join_path(path, name), is_in_list=is_in_list)
    for name in ("items", "additionalProperties"):
        if isinstance(inner := schema.get(name), Mapping):
            in_list = is_in_list or name == "items"
            found += list_unevaluated_rules(inner, join_path(path, name), is_in_list=in_list)
    return found


def _is_immutability(rule: Any) -> bool:
    """Whether the rule says that the value never changes, in a form that needs no CEL."""
    return (
        isinstance(rule, Mapping)
        and rule.get("rule") == "self == oldSelf"
        and not set(rule) - {"rule", "message"}
    )


_LASTING = re.compile(r"has\(self\.(\w+)\) == has\(oldSelf\.\1\)")


def _find_lasting_field(rule: Any) -> str:
    """The field that by this rule neither comes nor goes; "" for another rule."""
    if not isinstance(rule, Mapping) or set(rule) - {"rule", "message"}:
        return ""
    found = _LASTING.fullmatch(str(rule.get("rule")))
    return found[1] if found else ""


def _is_equal(schema: Schema, value: Any, old: Any) -> bool:
    return identity_of(value) == identity_of(old) or (
        identity_of(_as_read(schema, value)) == identity_of(_as_read(schema, old))
    )


def _as_read(schema: Schema, stored: Any) -> Any:
    """A copy without unknown fields, and with defaults."""
    value = _copy(stored)
    prune(schema, value)
    apply_defaults(schema, value)
    return value


def _find_unchanged(new: Any, old: Any, path: str) -> tuple[bool, list[str]]:
    """Whether nothing has changed, and the paths of the largest parts that have not."""
    if not (isinstance(new, dict) and isinstance(old, dict)):
        # By what is stored: to Python, True is 1.
        is_same = type(new) is type(old) and encode(new) == encode(old)
        return is_same, [path] if is_same else []
    all_same, found = len(new) == len(old), []
    for name, inner in new.items():
        is_same, paths = (
            _find_unchanged(inner, old[name], join_path(path, name)) if name in old else (False, [])
        )
        all_same &= is_same
        if "." not in name and "[" not in name:  # its path may be that of another field
            found += paths
    return all_same, [path] if all_same else found


def _type_error(path: str, value: Any, wanted: str) -> Cause:
    found = _type_name(value)
    text = f'Invalid value: "{found}": {path} in body must be of type {wanted}: "{found}"'
    return Cause(path, "FieldValueTypeInvalid", text)


def _validate_object(schema: Schema, value: dict[str, Any], path: str) -> list[Cause]:
    known = schema.get("properties") or {}
    wanted = [*(schema.get("required") or ()), *(("apiVersion", "kind") if schema.get(EMBEDDED) else ())]
    missing = [name for name in dict.fromkeys(wanted) if _is_missing(known.get(name) or {}, value, name)]
    causes = [required(join_path(path, name)) for name in missing]
    extra = schema.get("additionalProperties")
    for name, inner in value.items():
        if name in missing:
            continue
        if name in known:
            causes += validate(known[name], inner, join_path(path, name))
        elif isinstance(extra, Mapping):
            causes += validate(extra, inner, join_path(path, name))
    return causes + _validate_count(schema, len(value), path, "Properties")


def _is_missing(schema: Schema, value: dict[str, Any], name: str) -> bool:
    return name not in value or (
        value[name] is None and bool(schema.get("type")) and not schema.get("nullable")
    )


def _validate_list(schema: Schema, value: list[Any], path: str) -> list[Cause]:
    causes: list[Cause] = []
    items = schema.get("items")
    if items is not None:
        for index, item in enumerate(value):
            causes += validate(items, item, join_path(path, index))
    causes += _validate_count(schema, len(value), path, "Items")
    match schema.get(LIST_TYPE):
        case "map":
            names = schema.get(LIST_KEYS) or []
            keys = {
                index: {name: item.get(name) for name in names}
                for index, item in enumerate(value)
                if isinstance(item, dict)
            }
            causes += _duplicates(keys, path)
        case "set":
            causes += _duplicates(dict(enumerate(value)), path)
    return causes


def _validate_count(schema: Schema, count: int, path: str, of: str) -> list[Cause]:
    causes: list[Cause] = []
    least, most = schema.get(f"min{of}"), schema.get(f"max{of}")
    if least is not None and count < least:
        causes.append(_invalid(path, count, f"should have at least {least} {of.lower()}"))
    if most is not None and count > most:
        causes.append(too_many(path, count, most))
    return causes


def _duplicates(keys: Mapping[int, Any], path: str) -> list[Cause]:
    """A cause for each item, by its index, whose key an item before it has."""
    seen: dict[Hashable, int] = {}
    causes: list[Cause] = []
    for index, key in keys.items():
        identity = identity_of(key)
        seen[identity] = seen.get(identity, 0) + 1
        if seen[identity] == 2:  # kube-apiserver names a value once, however often it is repeated
            text = f"Duplicate value: {format_value(key)}"
            causes.append(Cause(join_path(path, index), "FieldValueDuplicate", text))
    return causes


def _is_date(text: str) -> bool:
    return len(text) == 10 and _parses(date.fromisoformat, text)


def _parses(parse: Callable[[str], object], text: str) -> bool:
    try:
        parse(text)
    except ValueError:
        return False
    return True


def _is_base64(text: str) -> bool:
    return _parses(lambda one: b64decode(one.encode(), validate=True), text)


def _is_time(text: str) -> bool:
    try:
        return datetime.fromisoformat(text).tzinfo is not None
    except ValueError:
        return False


_IS_UUID = re.compile(r"(?i)[0-9a-f]{8}(-?[0-9a-f]{4}){3}-?[0-9a-f]{12}\Z")
# Formats that are checked; kube-apiserver knows more, and ignores those that it does not know.
_FORMATS: dict[str, Callable[[str], bool]] = {
    "date-time": _is_time,
    "date": _is_date,
    "byte": _is_base64,
    "ipv4": lambda text: _parses(IPv4Address, text),
    "ipv6": lambda text: _parses(IPv6Address, text),
    "cidr": lambda text: "/" in text and _parses(lambda one: ip_network(one, strict=False), text),
    "uuid": lambda text: _IS_UUID.match(text) is not None,
}


def _validate_pattern(pattern: str, value: str, path: str) -> list[Cause]:
    try:
        return [] if matches(pattern, value) else [_invalid(path, value, f"should match '{pattern}'")]
    except TextTooLong as error:
        return [Cause(path, "FieldValueTooLong", f"Too long: {error}: '{pattern}'")]
    except BadPattern:
        return []  # not checked


def _validate_text(schema: Schema, value: str, path: str) -> list[Cause]:
    causes: list[Cause] = []
    least, most = schema.get("minLength"), schema.get("maxLength")
    if least is not None and len(value) < least:
        causes.append(_invalid(path, value, f"should be at least {least} chars long"))
    if most is not None and len(value) > most:
        text = f"Too long: may not be more than {most} bytes"
        causes.append(Cause(path, "FieldValueTooLong", text))
    if pattern := schema.get("pattern"):
        causes += _validate_pattern(pattern, value, path)
    form = schema.get("format")
    if (is_right := _FORMATS.get(form or "")) and not is_right(value):
        causes.append(_invalid(path, value, f"must be of type {form}: {format_value(value)}"))
    return causes


def _validate_number(schema: Schema, value: float, path: str) -> list[Cause]:
    causes: list[Cause] = []
    for which, beyond, bound in (("Minimum", operator.lt, "greater"), ("Maximum", operator.gt, "less")):
        limit, is_exclusive = schema.get(which.lower()), schema.get(f"exclusive{which}")
        if limit is not None and (beyond(value, limit) or (value == limit and is_exclusive)):
            inclusive = "" if is_exclusive else " or equal to"
            causes.append(_invalid(path, value, f"should be {bound} than{inclusive} {limit}"))
    step = schema.get("multipleOf")
    if step and value % step:
        causes.append(_invalid(path, value, f"should be a multiple of {step}"))
    return causes


def _combined(schema: Schema, value: Any, path: str) -> list[Cause]:
    causes = [cause for part in schema.get("allOf") or () for cause in validate(part, value, path)]
    any_of, one_of, none_of = schema.get("anyOf"), schema.get("oneOf"), schema.get("not")
    if any_of and all(validate(part, value, path) for part in any_of):
        causes.append(_uncombined(path, "must validate at least one schema (anyOf)"))
        causes += validate(any_of[0], value, path)
    if one_of and (valid := sum(not validate(part, value, path) for part in one_of)) != 1:
        found = f"Found {valid} valid alternatives" if valid else "Found none valid"
        causes.append(_uncombined(path, f"must validate one and only one schema (oneOf). {found}"))
        causes += [] if valid else validate(one_of[0], value, path)
    if none_of and not validate(none_of, value, path):
        causes.append(_uncombined(path, "must not validate the schema (not)"))
    return causes


def _uncombined(path: str, text: str) -> Cause:
    # kube-apiserver names the field in the text only.
    return Cause("<nil>", "FieldValueInvalid", f'Invalid value: "": "{path}" {text}')


# --- merging --------------------------------------------------------------------------------------------------------


def property_schema(schema: Schema, name: str) -> Schema:
    """The schema of field `name` of an object; empty where nothing is known of it."""
    known = schema.get("properties") or {}
    if name in known:
        found: Schema = known[name]
        return found
    extra = schema.get("additionalProperties")
    return extra if isinstance(extra, Mapping) else {}


def items_schema(schema: Schema) -> Schema:
    items = schema.get("items")
    return items if isinstance(items, Mapping) else {}


def list_keys(schema: Schema) -> tuple[str, ...]:
    """The keys of a list of type `map`; empty for every other list."""
    if schema.get(LIST_TYPE) == "map":
        return tuple(schema.get(LIST_KEYS) or ())
    return ()


def is_set(schema: Schema) -> bool:
    return schema.get(LIST_TYPE) == "set"


def merge_key(schema: Schema) -> str | None:
    """The key by which a strategic patch merges this list; "" for a list of scalars; None: it is replaced."""
    if "merge" not in str(schema.get(PATCH_STRATEGY, "")).split(","):
        return None
    return str(schema.get(PATCH_KEY, ""))
