"""The JSON Schemas for editors accept what a manifest may say, and mark what it may not."""

from __future__ import annotations

import json
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft7Validator

from windrow.app.embedded import management_crds
from windrow.core.formats.json_schema import file_name, kind_schema, translate
from windrow.demo.manifests import shipped

FOLDER = Path(__file__).resolve().parents[3] / "docs" / "reference" / "schemas"
SCHEMAS = {crd["spec"]["names"]["kind"]: kind_schema(crd) for crd in management_crds()}
MANIFESTS = [raw for name in ("rke2", "k3s") for raw in shipped(name) if raw["kind"] in SCHEMAS]


def faults(raw: dict[str, Any]) -> list[str]:
    return [one.message for one in Draft7Validator(SCHEMAS[raw["kind"]]).iter_errors(raw)]


@pytest.mark.parametrize("crd", management_crds(), ids=lambda crd: crd["spec"]["names"]["kind"])
def test_each_kind_has_a_schema_that_is_one_and_stands_in_the_docs(crd: dict[str, Any]):
    schema = kind_schema(crd)

    Draft7Validator.check_schema(schema)
    assert json.loads((FOLDER / file_name(crd)).read_text()) == schema


@pytest.mark.parametrize("raw", MANIFESTS, ids=lambda raw: raw["metadata"]["name"])
def test_the_shipped_manifests_are_valid(raw: dict[str, Any]):
    assert faults(raw) == []


@pytest.mark.parametrize(
    ("path", "value", "words"),
    [
        (("spec", "kubernetesVersionn"), "v1", "kubernetesVersionn"),
        (("spec", "rkeConfig", "machinePools", 0, "quantety"), 3, "quantety"),
        (("spec", "rkeConfig", "machinePools", 0, "quantity"), "three", "three"),
        (("spec", "kubernetesVersion"), 1.34, "1.34"),
        (("apiVersion",), "v1", "provisioning.cattle.io/v1"),
        (("metadata",), {}, "name"),
    ],
)
def test_what_is_misspelt_or_of_another_type_is_marked(path: tuple[Any, ...], value: Any, words: str):
    raw = deepcopy(next(one for one in MANIFESTS if one["kind"] == "Cluster"))
    here = raw
    for step in path[:-1]:
        here = here[step]
    here[path[-1]] = value

    assert any(words in one for one in faults(raw))


def test_all_names_a_file_for_each_kind():
    named = {one["$ref"] for one in json.loads((FOLDER / "all.json").read_text())["oneOf"]}

    assert named == {file_name(crd) for crd in management_crds()}
    assert {path.name for path in FOLDER.iterdir()} == {*named, "all.json"}


@pytest.mark.parametrize(
    ("openapi", "schema"),
    [
        ({"type": "integer", "format": "int32"}, {"type": "integer"}),
        ({"type": "string", "format": "date-time"}, {"type": "string", "format": "date-time"}),
        ({"x-kubernetes-int-or-string": True}, {"type": ["integer", "string"]}),
        ({"type": "string", "nullable": True}, {"type": ["string", "null"]}),
        (
            {"type": "object", "properties": {"a": {"type": "string"}}, "x-kubernetes-preserve-unknown-fields": True},
            {"type": "object", "properties": {"a": {"type": "string"}}},
        ),
        (
            {"type": "object", "properties": {"a": {"type": "string"}}},
            {"type": "object", "properties": {"a": {"type": "string"}}, "additionalProperties": False},
        ),
        (
            {"type": "object", "additionalProperties": {"type": "string", "nullable": True}},
            {"type": "object", "additionalProperties": {"type": ["string", "null"]}},
        ),
        ({"type": "object"}, {"type": "object"}),
    ],
)  # fmt: skip
def test_what_only_kubernetes_knows_is_translated_or_left_out(
    openapi: dict[str, Any], schema: dict[str, Any]
):
    assert translate(openapi) == schema
