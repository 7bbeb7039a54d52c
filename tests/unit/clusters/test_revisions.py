"""What a configuration hash stands for is recorded before a Machine has it, bounded, and without credentials."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from typing import Any

import pytest
from tests.unit.clusters.builders import (
    SERVER,
    a_cluster,
    a_machine,
    a_pool,
    look,
    of_kind,
    planned,
    record_of,
)

from windrow.clusters.change.revisions import list_fields, list_revisions, render_revision
from windrow.clusters.plan.actions import CreateMachine, ReserveMachineNames

SERVERS = a_pool("servers", 1, SERVER)
WORKERS = a_pool("workers", 2)


def recorded_of(pool: Any = WORKERS, **spec: Any) -> dict[str, Any]:
    cluster = a_cluster(pool, **spec)
    return render_revision(list_fields(cluster, pool))


def with_revisions(cluster: Any, **revisions: Any) -> Any:
    return replace(cluster, recorded=replace(cluster.recorded, revisions=revisions))


def test_a_revision_has_the_users_fields_by_path():
    assert recorded_of(
        global_config={"cni": "cilium"},
        selector_config=({"config": {"selinux": True}},),
        chart_values={"rke2-cilium": {"hubble": {"enabled": True}, "mtu": 1400}},
        etcd={"snapshotRetention": 7, "snapshotScheduleCron": ""},
        registries={"mirrors": {"docker.io": {"endpoint": ["https://mirror"]}}},
        environment={"HTTP_PROXY": "http://proxy:3128"},
        additional_manifest="kind: Namespace",
        pod_security="rancher-restricted",
    ) == {
        "spec.rkeConfig.machineGlobalConfig.cni": "cilium",
        "spec.rkeConfig.machineGlobalConfig.selinux": True,
        "spec.rkeConfig.chartValues.rke2-cilium.hubble.enabled": True,
        "spec.rkeConfig.chartValues.rke2-cilium.mtu": 1400,
        "spec.rkeConfig.etcd.snapshotRetention": 7,
        "spec.rkeConfig.registries.mirrors.docker.io.endpoint": ["https://mirror"],
        "spec.agentEnvVars.HTTP_PROXY": "http://proxy:3128",
        "spec.rkeConfig.additionalManifest": "kind: Namespace",
        "spec.defaultPodSecurityAdmissionConfigurationTemplateName": "rancher-restricted",
    }


def test_a_long_value_is_recorded_by_length_and_digest():
    (value,) = recorded_of(additional_manifest="x" * 1001).values()

    assert value == {"length": 1001, "sha256": hashlib.sha256(b"x" * 1001).hexdigest()[:16]}


def test_very_many_values_of_a_field_are_recorded_as_one():
    many = {"rke2-cilium": {f"key{number}": number for number in range(1000)}}

    revision = recorded_of(chart_values=many)

    assert revision.keys() == {"spec.rkeConfig.chartValues"}


CANARY = "hunter2-canary"


@pytest.mark.parametrize(
    "spec",
    [
        {"global_config": {"datastore-endpoint": f"postgres://u:{CANARY}@db"}},
        {"global_config": {"agent-token": CANARY}},
        {"global_config": {"cloud-provider-config": f"apiVersion: v1\ntoken: {CANARY}"}},
        {"global_config": {"kube-apiserver-arg": [f"oidc-client-secret={CANARY}"]}},
        {"chart_values": {"rke2-x": {"adminPassword": CANARY}}},
        {"chart_values": {"rke2-x": {"auth": {"token": CANARY}}}},
        {"environment": {"HTTPS_PROXY": f"http://me:{CANARY}@proxy"}},
        {"environment": {"API_KEY": CANARY}},
        {"etcd": {"s3": {"accessKey": CANARY, "secretKey": CANARY, "bucket": "b"}}},
        {"additional_manifest": f"kind: Secret\nstringData:\n  password: {CANARY}\n"},
    ],
)
def test_no_credential_is_recorded(spec):
    text = json.dumps(recorded_of(**spec))

    assert CANARY not in text


@pytest.mark.parametrize(
    ("spec", "value"),
    [
        ({"global_config": {"secrets-encryption": True}}, True),
        ({"etcd": {"s3": {"cloudCredentialName": "cc-s3"}}}, "cc-s3"),
        ({"registries": {"configs": {"a": {"authConfigSecretName": "auth"}}}}, "auth"),
    ],
)
def test_names_and_switches_are_no_credentials(spec, value):
    assert list(recorded_of(**spec).values()) == [value]


# -- in the status -----------------------------------------------------------------------------------------------


def test_revisions_in_use_stay_and_others_go():
    machines = [record_of(a_machine("w1", WORKERS), config_hash="old")]
    cluster = with_revisions(a_cluster(WORKERS), old={"a": 1}, new={"b": 2}, gone={"c": 3})

    state = look(cluster, machines, config_hashes={"workers": "new"})

    assert list_revisions(state) == {"old": {"a": 1}, "new": {"b": 2}}


def test_the_revision_of_an_update_that_is_under_way_stays():
    machine = record_of(
        a_machine("w1", WORKERS), config_hash="old", status={"update": {"configHash": "next"}}
    )
    cluster = with_revisions(a_cluster(WORKERS), old={"a": 1}, next={"b": 2})

    assert list_revisions(look(cluster, [machine])).keys() == {"old", "next"}


def test_a_hash_that_an_earlier_release_did_not_record_is_recorded_while_a_pool_has_it():
    machine = record_of(a_machine("w1", WORKERS), config_hash="h")
    cluster = a_cluster(WORKERS, global_config={"selinux": True})

    same = list_revisions(look(cluster, [machine], config_hashes={"workers": "h"}))
    other = list_revisions(look(cluster, [machine], config_hashes={"workers": "h2"}))

    assert same == {"h": {"spec.rkeConfig.machineGlobalConfig.selinux": True}}
    assert other.keys() == {"h2"}


def test_a_hundred_pools_of_a_thousand_fields_do_not_break_the_status():
    config = {f"key-{number}": "x" * 900 for number in range(1000)}
    pools = [a_pool(f"pool{number}") for number in range(100)]
    hashes = {pool.name: f"hash-{pool.name}" for pool in pools}
    state = look(a_cluster(*pools, global_config=config), config_hashes=hashes)

    assert len(json.dumps(list_revisions(state))) < 400_000


def test_a_revision_is_recorded_before_a_machine_is_created_with_it():
    cluster = with_revisions(a_cluster(SERVERS, WORKERS), h0={})
    servers = [a_machine("s1", SERVERS)]

    before = planned(cluster, servers, config_hashes={"servers": "h0", "workers": "h1"})
    after = planned(
        with_revisions(cluster, h0={}, h1={}), servers, config_hashes={"servers": "h0", "workers": "h1"}
    )

    assert of_kind(before, ReserveMachineNames)
    assert not of_kind(before, CreateMachine)
    assert of_kind(after, CreateMachine)
    assert not of_kind(after, ReserveMachineNames)


def test_the_keys_of_s3_are_left_out_whole():
    s3 = {"accessKey": "AKIA", "secretKey": "x", "bucket": "b"}

    assert recorded_of(etcd={"s3": s3}) == {"spec.rkeConfig.etcd.s3.bucket": "b"}


def test_what_is_below_eight_levels_is_one_value_and_an_empty_map_is_itself():
    deep: Any = {"end": 1}
    for _ in range(9):
        deep = {"a": deep}

    ((path, _),) = recorded_of(chart_values=deep).items()

    assert path == "spec.rkeConfig.chartValues" + ".a" * 8
    assert recorded_of(registries={"mirrors": {"a": {}}}) == {"spec.rkeConfig.registries.mirrors.a": {}}


@pytest.mark.parametrize("given", [5, None, ["x"], {}])
def test_an_update_without_a_hash_in_text_names_no_revision(given):
    machine = record_of(a_machine("w1", WORKERS), config_hash="old", status={"update": {"configHash": given}})
    cluster = with_revisions(a_cluster(WORKERS), old={"a": 1})

    assert list_revisions(look(cluster, [machine])) == {"old": {"a": 1}}
