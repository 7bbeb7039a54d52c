"""The one notion of a schema."""

from __future__ import annotations

from typing import Any

import pytest

from windrow.apiserver.types.schema import apply_defaults, prune, validate, validate_update

SPEC = {
    "type": "object",
    "properties": {
        "spec": {
            "type": "object",
            "required": ["name"],
            "properties": {
                "name": {"type": "string", "minLength": 2, "maxLength": 4, "pattern": "^[a-z]+$"},
                "count": {"type": "integer", "minimum": 1, "maximum": 9},
                "mode": {"type": "string", "enum": ["a", "b"]},
                "size": {"x-kubernetes-int-or-string": True},
                "list": {
                    "type": "array",
                    "items": {"type": "object", "properties": {"x": {"type": "string"}}},
                },
                "when": {"type": "string", "format": "date-time"},
                "open": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
                "map": {"type": "object", "additionalProperties": {"type": "integer"}},
                "maybe": {"type": "string", "nullable": True},
                "keyed": {
                    "type": "array",
                    "x-kubernetes-list-type": "map",
                    "x-kubernetes-list-map-keys": ["k"],
                    "items": {"type": "object", "properties": {"k": {"type": "string"}}},
                },
            },
        }
    },
}


def spec(**fields: Any) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "K",
        "metadata": {"name": "n", "labels": {}},
        "spec": {"name": "ab", **fields},
    }


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"name": "a"}, 'spec.name: Invalid value: "a": spec.name in body should be at least 2 chars long'),
        ({"name": "abcde"}, "spec.name: Too long: may not be more than 4 bytes"),
        ({"name": "A1"}, "spec.name: Invalid value: \"A1\": spec.name in body should match '^[a-z]+$'"),
        (
            {"count": 0},
            "spec.count: Invalid value: 0: spec.count in body should be greater than or equal to 1",
        ),
        (
            {"count": 10},
            "spec.count: Invalid value: 10: spec.count in body should be less than or equal to 9",
        ),
        (
            {"count": "1"},
            'spec.count: Invalid value: "string": spec.count in body must be of type integer: "string"',
        ),
        ({"mode": "c"}, 'spec.mode: Unsupported value: "c": supported values: "a", "b"'),
        (
            {"list": [{"x": "1"}, {"x": 2}]},
            'spec.list[1].x: Invalid value: "integer": spec.list[1].x in body must be of type string: "integer"',
        ),
        (
            {"when": "soon"},
            'spec.when: Invalid value: "soon": spec.when in body must be of type date-time: "soon"',
        ),
        ({"keyed": [{"k": "x"}, {"k": "x"}]}, 'spec.keyed[1]: Duplicate value: {"k":"x"}'),
        (
            {"map": {"x": "y"}},
            'spec.map.x: Invalid value: "string": spec.map.x in body must be of type integer: "string"',
        ),
        (
            {"mode": None},
            'spec.mode: Invalid value: "null": spec.mode in body must be of type string: "null"',
        ),
    ],
)
def test_a_validation_error_has_its_path(fields: dict[str, Any], message: str) -> None:
    assert [str(cause) for cause in validate(SPEC, spec(**fields))] == [message]


def test_a_missing_field_is_required() -> None:
    assert [str(cause) for cause in validate(SPEC, {"spec": {}})] == ["spec.name: Required value"]


@pytest.mark.parametrize("value", [5, "50%"])
def test_a_number_or_a_text_fits_int_or_string(value: Any) -> None:
    assert validate(SPEC, spec(size=value)) == []


def test_null_fits_what_is_nullable() -> None:
    assert validate(SPEC, spec(maybe=None)) == []


def test_unknown_fields_are_dropped_and_named() -> None:
    raw = spec(extra=1, list=[{"x": "1", "y": 2}], open={"anything": {"goes": 1}})

    dropped = prune(SPEC, raw)

    assert sorted(dropped) == ["spec.extra", "spec.list[0].y"]
    assert raw == spec(list=[{"x": "1"}], open={"anything": {"goes": 1}})


def test_defaults_fill_objects_that_are_there_and_make_none() -> None:
    schema = {
        "type": "object",
        "properties": {
            "spec": {"type": "object", "properties": {"color": {"type": "string", "default": "red"}}},
            "status": {"type": "object", "properties": {"phase": {"type": "string", "default": "New"}}},
        },
    }
    raw: dict[str, Any] = {"spec": {}}

    apply_defaults(schema, raw)

    assert raw == {"spec": {"color": "red"}}


def test_a_default_is_never_shared_between_objects() -> None:
    schema = {"type": "object", "properties": {"list": {"type": "array", "default": []}}}
    first: dict[str, Any] = {}
    second: dict[str, Any] = {}
    apply_defaults(schema, first)
    first["list"].append(1)

    apply_defaults(schema, second)

    assert second == {"list": []}


def test_a_text_that_is_too_long_for_its_pattern_is_invalid() -> None:
    pytest.importorskip("re2")
    schema = {"type": "string", "pattern": "(?:.{0,100}a){8}b$"}

    (cause,) = validate(schema, "a" * 131_072, "spec.name")

    assert cause.reason == "FieldValueTooLong"
    assert "131072 characters are too many" in str(cause)


def test_a_pattern_that_cannot_be_read_is_not_checked() -> None:
    assert validate({"type": "string", "pattern": "a("}, "b", "spec.name") == []


BEYOND = {
    "name": "toolong",
    "count": 99,
    "list": [{"x": 1}],
    "keyed": [{"k": "a"}, {"k": "a"}],
    "map": {"a": "b"},
}


def test_values_that_are_beyond_a_bound_already_are_no_errors_while_they_stay():
    old = {"metadata": {"finalizers": ["x"]}, "spec": BEYOND}

    assert validate(SPEC, old) != []
    assert validate_update(SPEC, {"metadata": {}, "spec": BEYOND}, old) == []
    assert validate_update(SPEC, {"spec": {**BEYOND, "maybe": "other"}}, old) == []


@pytest.mark.parametrize(
    ("change", "fields"),
    [
        ({"count": 98}, ["spec.count"]),
        ({"list": [{"x": 1}, {"x": "ok"}]}, ["spec.list[0].x"]),
        ({"map": {"a": "b", "c": "d"}}, ["spec.map.c"]),
        ({"map": {"a": {}}}, ["spec.map.a"]),
        ({"name": None}, ["spec.name"]),
        ({"when": "never"}, ["spec.when"]),
    ],
    ids=range(6),
)
def test_what_changes_is_checked_though_the_object_was_beyond_a_bound(change, fields):
    causes = validate_update(SPEC, {"spec": {**BEYOND, **change}}, {"spec": BEYOND})

    assert [cause.field for cause in causes] == fields


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ({"map": {"a": 1}}, {"map": {"a": True}}),
        ({"open": {}, "map.a": "x"}, {"map": {"a": "x"}, "map.a": "x"}),
    ],
    ids=["True is not 1", "a key with a dot is no path"],
)
def test_only_the_same_value_of_the_same_field_is_unchanged(old, new):
    schema = {**SPEC["properties"]["spec"], "required": [], "x-kubernetes-preserve-unknown-fields": True}
    whole = {"type": "object", "properties": {"spec": schema}}

    assert [cause.field for cause in validate_update(whole, {"spec": new}, {"spec": old})] == ["spec.map.a"]
