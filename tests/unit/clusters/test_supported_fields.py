"""Every field of the real kinds works, is told to have no effect, or is refused."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest

from windrow.app.check import check
from windrow.app.preload import read_preload
from windrow.clusters.api.fields import ProblemCollector
from windrow.clusters.api.kinds import crds
from windrow.clusters.api.manifest.annotations import ANNOTATIONS
from windrow.clusters.api.manifest.supported_fields import (
    CLUSTER_FIELDS,
    HARVESTER_CONFIG_FIELDS,
    FieldTable,
    is_set,
)
from windrow.clusters.api.rancher_import import strip_server_fields
from windrow.clusters.api.references import list_grants
from windrow.clusters.protection import list_needed
from windrow.core.formats.yaml import load
from windrow.drivers.api import read_machine_config_kinds
from windrow.nodedriver.schema import harvester_config_crd

TESTS = Path(__file__).parents[2]
REAL = TESTS.parents[1] / "shared" / "crds" / "provisioning.cattle.io_clusters.yaml"
TABLES = {"Cluster": CLUSTER_FIELDS, "HarvesterConfig": HARVESTER_CONFIG_FIELDS}


def schema_of(crd: Mapping[str, Any]) -> Mapping[str, Any]:
    found: Mapping[str, Any] = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    return found


def our_schemas() -> dict[str, Mapping[str, Any]]:
    spec = schema_of(crds()[0])["properties"]["spec"]
    return {"Cluster": {"properties": {"spec": spec}}, "HarvesterConfig": schema_of(harvester_config_crd())}


def fields_below(schema: Mapping[str, Any], path: str = "") -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Every field, at every level, with its schema."""
    for name, inner in (schema.get("properties") or {}).items():
        here = f"{path}.{name}" if path else name
        yield here, inner
        yield from fields_below(inner, here)
        yield from fields_below(inner.get("items") or {}, f"{here}[]")
        keyed = inner.get("additionalProperties")
        yield from fields_below(keyed if isinstance(keyed, dict) else {}, f"{here}.*")


def leaves(schema: Mapping[str, Any]) -> list[str]:
    paths = [path for path, _ in fields_below(schema)]
    return [path for path in paths if not any(other.startswith((f"{path}.", f"{path}[]")) for other in paths)]


def rows(table: FieldTable) -> list[str]:
    return [*table.works, *table.no_effect, *table.refused]


@pytest.mark.skipif(not REAL.exists(), reason="the real definitions are not here")
def test_every_field_of_ranchers_cluster_has_its_row():
    spec = {"properties": {"spec": schema_of(load(REAL.read_text()))["properties"]["spec"]}}

    assert [path for path in leaves(spec) if CLUSTER_FIELDS.find(path) is None] == []
    extra = set(rows(CLUSTER_FIELDS)) - {path for path, _ in fields_below(spec)}
    own = {"spec.rkeConfig.rotateToken", "spec.rkeConfig.etcdSnapshotRestore.clusterResetMember"}
    own |= {"spec.rkeConfig.etcdSnapshotRestore.from"}
    assert extra <= {*ABOVE_FIELDS, "spec.paused", *own}


# Rows that stand for the fields of each key of a map.
ABOVE_FIELDS = {"spec.rkeConfig.registries.configs.*"}


@pytest.mark.parametrize("kind", TABLES)
def test_every_field_that_the_management_api_takes_has_its_row_and_every_row_its_field(kind):
    schema, table = our_schemas()[kind], TABLES[kind]

    assert [path for path in leaves(schema) if table.find(path) is None] == []
    assert set(rows(table)) - {path for path, _ in fields_below(schema)} <= ABOVE_FIELDS
    assert len(rows(table)) == len(set(rows(table)))


def test_every_annotation_that_a_user_writes_is_listed_by_the_kind_of_its_object():
    assert {kind: sorted(found) for kind, found in ANNOTATIONS.items()} == {
        "Cluster": [
            "windrow.io/canary",
            "windrow.io/endpoint-address",
            "windrow.io/endpoint-ip-pool",
            "windrow.io/endpoint-join-address",
            "windrow.io/endpoint-mode",
            "windrow.io/remediation",
            "windrow.io/renew-certificates",
            "windrow.io/strategy",
        ],
        "Machine": ["cluster.x-k8s.io/delete-machine", "cluster.x-k8s.io/remediate-machine"],
        "Secret": ["rke.cattle.io/object-authorized-for-clusters", "windrow.io/allowed-namespaces"],
    }


OF_ANNOTATIONS = {one.test for found in ANNOTATIONS.values() for one in found.values()}


@pytest.mark.parametrize(
    "test", sorted({test for table in TABLES.values() for test in table.works.values()} | OF_ANNOTATIONS)
)
def test_the_test_of_a_field_that_works_exists(test):
    path, _, name = test.partition("::")

    assert re.search(rf"^(async )?def {name}\(", (TESTS / path).read_text(), re.MULTILINE)


def a_value(schema: Mapping[str, Any]) -> Any:
    """Something that the schema admits, and that says something."""
    if schema.get("properties"):
        return {name: a_value(inner) for name, inner in schema["properties"].items()}
    match schema.get("type"):
        case "array":
            return [a_value(schema.get("items") or {})]
        case "integer":
            return 12
        case "boolean":
            return True
        case "object":
            return {"key": "value"}
        case _:
            return "12"


def set_at(raw: dict[str, Any], path: str, value: Any) -> None:
    *above, last = path.split(".")
    here: Any = raw
    for step in above:
        name = step.removesuffix("[]")
        here = here.setdefault(name, [{}] if step.endswith("[]") else {})
        here = here[0] if step.endswith("[]") else here
    here[last] = value


def a_manifest(paths: Mapping[str, list[str]]) -> list[dict[str, Any]]:
    """A Cluster of one machine and its HarvesterConfig, with a value at each of these paths."""
    head = {"metadata": {"name": "prod", "namespace": "fleet-default"}}
    pool = {"name": "pool1", "quantity": 1, "etcdRole": True, "controlPlaneRole": True, "workerRole": True}
    pool |= {"machineConfigRef": {"kind": "HarvesterConfig", "name": "nc"}, "taints": [{"key": "dedicated"}]}
    raw = {"apiVersion": "provisioning.cattle.io/v1", "kind": "Cluster", **head}
    raw["spec"] = {
        "cloudCredentialSecretName": "fleet-default:cc",
        "kubernetesVersion": "v1.35.1+rke2r1",
        "rkeConfig": {
            "machineGlobalConfig": {"cloud-provider-name": "harvester"},
            "machinePools": [pool],
        },
    }
    config = {"apiVersion": "rke-machine-config.cattle.io/v1", "kind": "HarvesterConfig"}
    config |= {"metadata": {"name": "nc", "namespace": "fleet-default"}, "sshUser": "ubuntu"}
    config |= {
        "diskInfo": {"disks": [{"imageName": "default/image", "size": 40}]},
        "networkInfo": {"interfaces": [{"networkName": "default/vlan"}]},
    }
    schemas = {kind: dict(fields_below(schema)) for kind, schema in our_schemas().items()}
    for path in paths.get("Cluster", ()):
        set_at(raw, path, a_value(schemas["Cluster"][path]))
    for path in paths.get("HarvesterConfig", ()):
        set_at(config, path, a_value(schemas["HarvesterConfig"][path]))
    return [raw, config]


async def test_check_prints_one_line_for_each_field_without_effect_that_a_manifest_sets():
    ignored = {kind: list(table.no_effect) for kind, table in TABLES.items()}

    (result,) = await check(a_manifest(ignored))

    told = [one for one in result.problems if "has no effect" in one.message]
    # Both kinds of source in one entry, for the sake of this test.
    assert [one.field for one in result.errors] == ["spec.rkeConfig.machineSelectorFiles[0].fileSources[0]"]
    assert sorted(one.field.replace("[0]", "[]") for one in told) == sorted(
        path for paths in ignored.values() for path in paths
    )
    reasons = {**CLUSTER_FIELDS.no_effect, **HARVESTER_CONFIG_FIELDS.no_effect}
    assert all(reasons[one.field.replace("[0]", "[]")] in one.message for one in told)


async def test_a_manifest_that_sets_none_of_them_is_told_nothing():
    (result,) = await check(a_manifest({}))

    assert result.problems == ()


@pytest.mark.parametrize("path", CLUSTER_FIELDS.refused)
async def test_a_field_that_is_refused_is_an_error_of_its_path(path):
    (result,) = await check(a_manifest({"Cluster": [path]}))

    assert [one.field for one in result.errors] == [path]


@pytest.mark.parametrize(
    ("value", "says"),
    [
        ({}, False),
        ({"a": ""}, False),
        ({"a": "", "b": "x"}, True),
        ([], False),
        ([""], False),
        (["", "x"], True),
        ([{"a": None}, {"a": False}], False),
        (0, False),
        (1, True),
    ],
)
def test_a_value_says_something_where_anything_of_it_does(value: Any, says: bool):
    assert is_set(value) is says


def test_the_listed_fields_below_another_are_those_of_each_list():
    table = FieldTable(
        {"a.b": "t", "b.a": "t"}, {"a.c": "why", "b": "why"}, {"a.d": ("why", "hint"), "c": ("", "")}
    )

    assert table.list_below("a.") == ["a.b", "a.c", "a.d"]


def test_values_that_say_nothing_and_usual_ones_are_not_warned_of():
    table = FieldTable({}, {"a.b[].c": "why", "d": "why"}, usual={"d": "22"})
    problems = ProblemCollector()

    table.check({"a": {"b": [{"c": ""}, {"c": {"e": [None, 0]}}, "x"]}, "d": 22}, problems)
    assert problems.found == []

    table.check({"a": {"b": [{"c": 0}, {"c": {"e": [1]}}]}, "d": "23"}, problems)
    assert [one.field for one in problems.found] == ["a.b[1].c", "d"]


def test_of_a_huge_list_a_bounded_number_of_items_is_looked_into():
    problems = ProblemCollector()

    FieldTable({}, {"a[].b": "why"}).check({"a": [{"b": 1}] * 100_000}, problems)

    assert len(problems.found) == 100


def bad_values() -> list[tuple[str, Any]]:
    """For each field of a Cluster a value of another type."""
    found = []
    for path, schema in fields_below(our_schemas()["Cluster"]):
        match schema.get("type"):
            case "string" | "boolean" | "array":
                found.append((path, {"a": 1}))
            case "integer" | "object" if path not in ("spec",):
                found.append((path, "text"))
    return found


async def test_a_value_of_another_type_is_refused_with_its_path():
    silent = []
    for path, value in bad_values():
        documents = a_manifest({})
        set_at(documents[0], path, value)
        result, *_ = await check(documents)
        if path not in {re.sub(r"\[\d+\]", "[]", one.field) for one in result.errors}:
            silent.append(path)

    assert silent == []


async def test_all_faults_of_a_manifest_are_told_at_once():
    documents = a_manifest({})
    for path, value in {
        "spec.enableNetworkPolicy": "yes",
        "spec.rkeConfig.machinePools[].quantity": "three",
        "spec.rkeConfig.upgradeStrategy.workerConcurrency": 5,
        "spec.rkeConfig.etcd.snapshotRetention": "5",
        "spec.networkConfig": {},
    }.items():
        set_at(documents[0], path, value)

    (result,) = await check(documents)

    assert sorted(one.field for one in result.errors) == [
        "spec.enableNetworkPolicy",
        "spec.networkConfig",
        "spec.rkeConfig.etcd.snapshotRetention",
        "spec.rkeConfig.machinePools[0].quantity",
        "spec.rkeConfig.upgradeStrategy.workerConcurrency",
    ]


@pytest.mark.parametrize("value", ["text", 5, [], [5], ["text"], {"a": [1]}])
def test_what_reads_a_manifest_before_its_types_are_checked_takes_any_value(value: Any):
    for path, _ in bad_values():
        documents = a_manifest({})
        set_at(documents[0], path, value)
        documents[0]["metadata"]["finalizers"] = ["windrow.io/cluster"]
        stripped, _ = strip_server_fields(deepcopy(documents))
        list_grants(stripped)
        list_needed(documents[0])
        read_machine_config_kinds(documents[0])
        read_preload(documents)
