"""Networks, key pairs, storage classes, and what a failed request means."""

from __future__ import annotations

import pytest

from windrow.harvester.cloud_init_secret import build_secret, read_cloud_init_secret
from windrow.harvester.connection import connection_problem, is_inconclusive
from windrow.harvester.references import read_key_pair, read_network
from windrow.harvester.volumes import read_storage_class
from windrow.kubernetes.errors import (
    CertificateError,
    Forbidden,
    KubeError,
    NotFound,
    OutcomeUnknown,
    ServerError,
    Unauthorized,
    Unreachable,
)


def test_a_network_tells_its_cluster_network_and_purpose() -> None:
    network = read_network(
        {
            "metadata": {
                "name": "net-1",
                "namespace": "default",
                "labels": {
                    "network.harvesterhci.io/type": "L2VlanNetwork",
                    "network.harvesterhci.io/clusternetwork": "mgmt",
                    "network.harvesterhci.io/ready": "true",
                },
                "annotations": {"storage-network.settings.harvesterhci.io": "true"},
            },
            "spec": {"config": '{"type":"bridge","vlan":100}'},
        }
    )
    assert network.cluster_network == "mgmt"
    assert network.is_ready is True
    assert network.is_for_storage


def test_a_network_of_which_nothing_is_said_is_neither_ready_nor_not() -> None:
    network = read_network({"metadata": {"name": "n"}, "spec": {"config": "not json"}})
    assert network.is_ready is None


def test_a_key_pair_counts_once_validated() -> None:
    raw = {"metadata": {"name": "k"}, "spec": {"publicKey": "ssh-ed25519 A"}}
    assert not read_key_pair(raw).is_validated
    raw["status"] = {"conditions": [{"type": "validated", "status": "True"}]}
    assert read_key_pair(raw).is_validated


def test_harvesters_own_storage_classes_are_known() -> None:
    assert not read_storage_class({"metadata": {"name": "harvester-longhorn"}}).is_reserved
    assert read_storage_class({"metadata": {"name": "longhorn-static"}}).is_reserved


def test_a_cloud_init_secret_is_read_back() -> None:
    raw = build_secret("ns1", "vm", "u-1", user_data="#cloud-config\n", network_data="version: 1\n")
    secret = read_cloud_init_secret(raw)
    assert raw["metadata"]["name"] == "vm-cloudinit"
    assert (secret.owner_uid, secret.user_data, secret.network_data) == (
        "u-1",
        "#cloud-config\n",
        "version: 1\n",
    )


@pytest.mark.parametrize(
    ("error", "word"),
    [
        (Unauthorized("token expired", status=401), "401"),
        (Forbidden("no", status=403), "403"),
        (CertificateError("self-signed"), "not signed"),
        (Unreachable("connection refused"), "cannot be reached"),
        (OutcomeUnknown("timed out"), "did not answer"),
        (ServerError("boom", status=500), "failed"),
        (NotFound("the server could not find the requested resource", status=404), "the kinds of Harvester"),
        (NotFound("no such page", status=404), "failed"),
    ],
)
def test_a_failure_names_server_credential_and_cure(error: KubeError, word: str) -> None:
    message, hint = connection_problem(error, "https://harvester:6443", "ns:cc")
    assert word in message
    assert "https://harvester:6443" in message
    assert "credential Secret ns/cc" in message
    assert error.message in message
    assert hint


def test_only_an_answer_about_the_object_allows_conclusions() -> None:
    assert is_inconclusive(Unauthorized("x", status=401))
    assert is_inconclusive(Unreachable("x"))
    assert is_inconclusive(ServerError("x", status=503))
    assert not is_inconclusive(NotFound("x", status=404))
    assert not is_inconclusive(Forbidden("x", status=403))
