"""A change of each field of a Cluster and of each option of the node driver means what its row says.

Each is made in a manifest, with one value, and planned for machines that were made without it. docs/reference/changes.md
names these tests.
"""

from __future__ import annotations

import re
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.field_values import FIELDS, GLOBAL, OPTION_VALUES
from tests.unit.clusters.builders import NOON

from windrow.app.manifest_checks.changes import assume_state
from windrow.app.plan import ClusterPlan, make_plan
from windrow.clusters.api.machine import read_machine, render_machine
from windrow.clusters.api.manifest.reading import read_cluster
from windrow.clusters.api.manifest.supported_fields import CLUSTER_FIELDS, HARVESTER_CONFIG_FIELDS
from windrow.clusters.bootstrap_data import find_config_hashes
from windrow.clusters.change.compare import compare_fields
from windrow.clusters.change.fields import POOL, on_change_of_field, on_change_of_option
from windrow.clusters.change.revisions import list_fields, list_revisions, render_revision
from windrow.kubernetes.objects import Raw
from windrow.nodedriver.options import OPTIONS

VERSION = "v1.35.1+rke2r1"
DISK = {"disks": [{"imageName": "default/leap", "size": 40, "bootOrder": 1}]}

CONFIG: Raw = {
    "apiVersion": "rke-machine-config.cattle.io/v1",
    "kind": "HarvesterConfig",
    "metadata": {"name": "nc", "namespace": "fleet-default"},
    "cpuCount": "2",
    "memorySize": "4",
    "diskInfo": DISK,
    "networkInfo": {"interfaces": [{"networkName": "default/vlan"}]},
    "sshUser": "ubuntu",
}
OTHER_DRIVER: Raw = {**CONFIG, "kind": "DigitaloceanConfig"}


def a_cluster() -> Raw:
    reference = {"kind": "HarvesterConfig", "name": "nc"}
    pools = [
        {"name": "servers", "quantity": 3, "etcdRole": True, "controlPlaneRole": True},
        {"name": "workers", "quantity": 1, "workerRole": True},
    ]
    return {
        "apiVersion": "provisioning.cattle.io/v1",
        "kind": "Cluster",
        "metadata": {"name": "prod", "namespace": "fleet-default", "uid": "cluster-uid"},
        "spec": {
            "kubernetesVersion": VERSION,
            "cloudCredentialSecretName": "fleet-default:cc",
            "localClusterAuthEndpoint": {"enabled": True, "fqdn": "cluster.example.org"},
            "rkeConfig": {
                "machineGlobalConfig": GLOBAL,
                "machinePools": [{**pool, "machineConfigRef": reference} for pool in pools],
            },
        },
        "status": {
            "version": VERSION,
            "initialized": True,
            "immutableConfig": {"machineGlobalConfig": GLOBAL, "dataDirectory": ""},
        },
    }


def resolve_driver(kind: str) -> str:
    return kind.removesuffix("Config").lower()


def plan_edit(before: Raw, after: Raw, config: Raw = CONFIG) -> ClusterPlan:
    """The plan of `after` for the machines of `before`, with all that this release records of them."""
    reading = read_cluster(before, [CONFIG], resolve_driver)
    assert [one for one in reading.problems if one.severity == "error"] == []
    cluster = reading.cluster
    hashes = find_config_hashes(cluster, VERSION)
    revisions = list_revisions(assume_state(cluster, (), (), NOON))
    records = []
    for pool in cluster.pools:
        for number in range(pool.quantity):
            raw = render_machine(
                cluster,
                pool,
                f"prod-{pool.name}-{number}",
                version=VERSION,
                config_hash=hashes[pool.name],
                join_server="",
                is_init_server=False,
            )
            stamp = {"creationTimestamp": "2026-01-01T00:00:00Z", "uid": f"uid-{pool.name}-{number}"}
            records.append(read_machine({**raw, "metadata": {**raw["metadata"], **stamp}}))
    after = {**after, "status": {**after["status"], "revisions": revisions}}
    return make_plan(after, [config, OTHER_DRIVER], resolve_driver, records, NOON, before=before)


def list_classes(plan: ClusterPlan) -> set[str]:
    fields = [field for machine in plan.pending.machines for field in machine.fields]
    found: set[str] = {
        field.change for field in (*fields, *plan.pending.cluster, *plan.settings, *plan.requests)
    }
    return found | ({"refused"} if plan.pending.refused else set())


def set_at(raw: Raw, path: str, value: Any) -> Raw:
    """A copy with `value` at `path`; `[]` is the pool of workers."""
    made = deepcopy(raw)
    here: Any = made
    *above, last = path.split(".")
    for step in above:
        here = here["machinePools"][1] if step == "machinePools[]" else here.setdefault(step, {})
    here[last] = value
    return made


# That a pool has other machines, or another size, is told by its counts; and of these no machine can be made.
NO_MACHINE = ("machineOS", "machineConfigRef.namespace", "machineConfigRef.name")
WITHOUT_CLASS = {f"{POOL}.name", f"{POOL}.quantity", *(f"{POOL}.{field}" for field in NO_MACHINE)}
VALUES = {path: value for path, value in FIELDS.items() if path not in WITHOUT_CLASS} | {
    "spec.rkeConfig.etcdSnapshotRestore": {"name": "x", "generation": 1},
    f"{POOL}.machineConfigRef.kind": "DigitaloceanConfig",
}


def test_every_row_is_proved():
    assert CLUSTER_FIELDS.changes.keys() == VALUES.keys() | WITHOUT_CLASS


@pytest.mark.parametrize("path", VALUES)
def test_a_change_of_a_field_means_what_its_row_says(path: str):
    before = a_cluster()

    plan = plan_edit(before, set_at(before, path, VALUES[path]))

    assert list_classes(plan) == {on_change_of_field(path).change}


@pytest.mark.parametrize("path", VALUES)
def test_a_field_that_was_taken_back_leaves_nothing(path: str):
    before = a_cluster()
    after = set_at(before, path, VALUES[path])

    assert not plan_edit(before, set_at(after, path, _value_at(before, path))).has_changes


def _value_at(raw: Raw, path: str) -> Any:
    here: Any = raw
    for step in path.split("."):
        here = here["machinePools"][1] if step == "machinePools[]" else (here or {}).get(step)
    return here


def test_machines_of_a_pool_with_another_name_or_size_are_created_and_deleted():
    before = a_cluster()

    def pools(path: str) -> dict[str, int]:
        plan = plan_edit(before, set_at(before, path, FIELDS[path]))
        assert plan.pending.is_empty
        return {one.pool: one.count for one in plan.pools}

    assert pools(f"{POOL}.name") == {"agents": 1, "workers": -1}
    assert pools(f"{POOL}.quantity") == {"workers": 1}


@pytest.mark.parametrize("field", NO_MACHINE)
def test_a_pool_that_no_machine_can_be_made_for_is_an_error(field: str):
    path = f"{POOL}.{field}"
    reading = read_cluster(set_at(a_cluster(), path, FIELDS[path]), [CONFIG], resolve_driver)

    assert any(one.severity == "error" and "machinePools[1]" in one.field for one in reading.problems)


# -- options -----------------------------------------------------------------------------------------------------

BY_FIELD = {option.field: option for option in OPTIONS}


def test_every_option_that_works_is_proved():
    works = {path for path in HARVESTER_CONFIG_FIELDS.works if path in BY_FIELD}

    assert works | {"addressPools"} == OPTION_VALUES.keys()


@pytest.mark.parametrize("name", OPTION_VALUES)
def test_a_change_of_an_option_means_what_its_row_says(name: str):
    before, value = a_cluster(), OPTION_VALUES[name]

    plan = plan_edit(before, before, {**CONFIG, name: value})

    change = BY_FIELD[name].change if name in BY_FIELD else None
    assert list_classes(plan) == {on_change_of_option(name, change).change}
    assert {field.path for one in plan.pending.machines for field in one.fields} == {
        f"HarvesterConfig nc: {name}"
    }


# -- whatever the values -----------------------------------------------------------------------------------------

_KEYS = st.sampled_from(["selinux", "kubelet-arg", "profile", "debug", "x.y", "tls-san", "agent-token"])
_SCALARS = st.one_of(st.none(), st.booleans(), st.integers(-5, 5), st.text(max_size=6), st.just("x" * 2000))
_DEEP = st.recursive(
    _SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_KEYS, inner, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(_KEYS, _DEEP, max_size=4), st.dictionaries(_KEYS, _DEEP, max_size=4))
@settings(max_examples=100, deadline=None)
def test_a_configuration_compared_with_itself_has_no_changes(config: Any, values: Any):
    raw = set_at(a_cluster(), "spec.rkeConfig.machineGlobalConfig", config)
    raw = set_at(raw, "spec.rkeConfig.chartValues", values)
    cluster = read_cluster(raw, [CONFIG], resolve_driver).cluster
    fields = list_fields(cluster, cluster.pools[0])

    for short in (False, True):
        assert compare_fields(render_revision(fields, short=short), fields, "rke2") == ()


@given(st.lists(st.sampled_from(sorted(VALUES)), min_size=2, max_size=4, unique=True))
@settings(max_examples=25, deadline=None)
def test_several_edits_at_once_mean_what_each_of_them_means(paths: list[str]):
    """No field of a path is within that of another."""
    paths = [one for one in paths if not any(other != one and one.startswith(f"{other}.") for other in paths)]
    before = after = a_cluster()
    for path in paths:
        after = set_at(after, path, VALUES[path])

    found = list_classes(plan_edit(before, after))

    assert (
        found == {on_change_of_field(path).change for path in paths}
        or f"{POOL}.machineConfigRef.kind" in paths
    )


def test_the_page_of_changes_names_tests_that_exist():
    text = (Path(__file__).parents[3] / "docs/reference/changes.md").read_text()
    named = set(re.findall(r"`([\w/]+\.py)::(\w+)", text))

    assert len(named) == 3
    for path, name in named:
        assert f"def {name}(" in (Path(__file__).parents[2] / path).read_text()
