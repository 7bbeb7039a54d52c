"""The one notion of a schema."""

from __future__ import annotations

from typing import Any

import pytest

from windrow.apiserver.types.schema import apply_defaults, drop_unset, prune, validate, validate_update

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


def test_a_null_that_may_not_be_one_is_a_field_that_is_not_there() -> None:
    raw = spec(
        name=None, maybe=None, open={"anything": None}, map={"a": None, "b": 1}, list=[None, {"x": None}]
    )

    drop_unset(SPEC, raw)

    without_name = {"maybe": None, "open": {"anything": None}, "map": {"b": 1}, "list": [None, {}]}
    assert raw["spec"] == without_name


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


# Verdicts and texts of kube-apiserver 1.34, each with the schema of one field.
KEYWORDS: list[tuple[dict[str, Any], Any, list[str]]] = [
    ({"type": "array", "items": {"type": "integer"}, "maxItems": 2}, [1, 2, 3], ["a: Too many: 3: must have at most 2 items"]),
    ({"type": "object", "maxProperties": 1}, {"x": 1, "y": 2}, ["a: Too many: 2: must have at most 1 items"]),
    ({"type": "string", "maxLength": 3}, "äöüß", ["a: Too long: may not be more than 3 bytes"]),
    ({"type": "array", "items": {"type": "string"}, "x-kubernetes-list-type": "set"}, ["x", "x", "x", "y", "y"], ['a[1]: Duplicate value: "x"', 'a[4]: Duplicate value: "y"']),
    ({"type": "integer"}, 2**63, ['a: Invalid value: "number": a in body must be of type integer: "number"']),
    ({"type": "integer"}, 1e30, ['a: Invalid value: "number": a in body must be of type integer: "number"']),
    ({"type": "integer", "enum": [1, 2]}, 3, ['a: Unsupported value: 3: supported values: "1", "2"']),
    ({"type": "string", "format": "date"}, "2020-13-01", ['a: Invalid value: "2020-13-01": a in body must be of type date: "2020-13-01"']),
    ({"type": "string", "format": "ipv4"}, "::1", ['a: Invalid value: "::1": a in body must be of type ipv4: "::1"']),
    ({"type": "string", "format": "ipv6"}, "1.2.3.4", ['a: Invalid value: "1.2.3.4": a in body must be of type ipv6: "1.2.3.4"']),
    ({"type": "string", "format": "cidr"}, "1.2.3.4/33", ['a: Invalid value: "1.2.3.4/33": a in body must be of type cidr: "1.2.3.4/33"']),
    ({"type": "string", "format": "byte"}, "YQ", ['a: Invalid value: "YQ": a in body must be of type byte: "YQ"']),
    ({"type": "string", "format": "uuid"}, "x", ['a: Invalid value: "x": a in body must be of type uuid: "x"']),
    ({"x-kubernetes-int-or-string": True, "pattern": "^[0-9]+$"}, "x", ["a: Invalid value: \"x\": a in body should match '^[0-9]+$'"]),
    ({"type": "object", "x-kubernetes-embedded-resource": True}, {"kind": "X"}, ["a.apiVersion: Required value"]),
    ({"oneOf": [{"required": ["x"]}, {"required": ["y"]}]}, {"x": 1, "y": 1}, ['<nil>: Invalid value: "": "a" must validate one and only one schema (oneOf). Found 2 valid alternatives']),
    ({"oneOf": [{"required": ["x"]}, {"required": ["y"]}]}, {}, ['<nil>: Invalid value: "": "a" must validate one and only one schema (oneOf). Found none valid', "a.x: Required value"]),
    ({"anyOf": [{"required": ["x"]}, {"required": ["y"]}]}, {}, ['<nil>: Invalid value: "": "a" must validate at least one schema (anyOf)', "a.x: Required value"]),
    ({"not": {"required": ["x"]}}, {"x": 1}, ['<nil>: Invalid value: "": "a" must not validate the schema (not)']),
]  # fmt: skip


@pytest.mark.parametrize(("schema", "value", "texts"), KEYWORDS)
def test_each_keyword_is_enforced_with_the_text_of_kube_apiserver(
    schema: dict[str, Any], value: Any, texts: list[str]
) -> None:
    assert [str(cause) for cause in validate(schema, value, "a")] == texts


@pytest.mark.parametrize(
    ("form", "text"),
    [("date", "2020-01-01"), ("ipv4", "1.2.3.4"), ("ipv6", "::1"), ("cidr", "1.2.3.4/3"), ("byte", "YQ=="), ("uuid", "11111111-1111-1111-1111-111111111111"), ("unheard-of", "x")],
)  # fmt: skip
def test_a_text_of_its_format_is_valid(form: str, text: str) -> None:
    assert validate({"type": "string", "format": form}, text) == []
