from __future__ import annotations

from pathlib import Path

import pytest

from windrow.clusters.api.rancher_import import grant_references, strip_server_fields
from windrow.core.formats.yaml import load_all

REAL = Path(__file__).parents[4] / "shared" / "manifests" / "rancher-rke2-one-node.yaml"


def a_dump(**metadata):
    return {
        "apiVersion": "v1",
        "kind": "Thing",
        "metadata": {"name": "a", "namespace": "n", **metadata},
        "data": {"x": 1},
    }


def test_what_the_other_server_wrote_is_left_out_and_named():
    dump = {
        **a_dump(uid="u", resourceVersion="5", generation=3, managedFields=[{}], creationTimestamp="t"),
        "status": {"ready": True},
    }

    (kept,), (note,) = strip_server_fields([dump])

    assert kept == a_dump()
    assert note.startswith("Thing n/a: left out uid, resourceVersion")
    assert "status" in note


def test_owner_references_go_because_their_uids_are_not_here():
    (kept,), (note,) = strip_server_fields(
        [a_dump(ownerReferences=[{"kind": "Cluster", "name": "51", "uid": "u"}])]
    )

    assert "ownerReferences" not in kept["metadata"]
    assert "the owner Cluster 51, whose uid is not here" in note


def test_ranchers_finalizers_go_and_others_stay():
    (kept,), (note,) = strip_server_fields([a_dump(finalizers=["wrangler.cattle.io/x", "example.com/mine"])])

    assert kept["metadata"]["finalizers"] == ["example.com/mine"]
    assert "finalizer wrangler.cattle.io/x" in note


def test_the_users_annotations_stay():
    (kept,), _ = strip_server_fields(
        [a_dump(annotations={"field.cattle.io/creatorId": "u", "windrow.io/remediation": "off"})]
    )

    assert kept["metadata"]["annotations"] == {"windrow.io/remediation": "off"}


def test_a_clean_object_is_left_as_it_is_and_nothing_is_said():
    assert strip_server_fields([a_dump()]) == ([a_dump()], [])


def test_a_list_is_taken_apart():
    kept, _ = strip_server_fields(
        [{"apiVersion": "v1", "kind": "List", "items": [a_dump(), a_dump(name="b")]}]
    )

    assert [raw["metadata"]["name"] for raw in kept] == ["a", "b"]


def test_the_given_object_is_not_changed():
    dump = a_dump(uid="u")
    strip_server_fields([dump])

    assert dump["metadata"]["uid"] == "u"


def test_an_object_that_has_only_a_generate_name_keeps_it():
    (kept,), _ = strip_server_fields([{"kind": "Thing", "metadata": {"generateName": "a-"}}])

    assert kept["metadata"] == {"generateName": "a-"}


def test_cleaning_twice_changes_nothing_more():
    once, _ = strip_server_fields([a_dump(uid="u", finalizers=["wrangler.cattle.io/x"])])

    assert strip_server_fields(once) == (once, [])


@pytest.mark.skipif(not REAL.exists(), reason="the real manifests are not here")
def test_a_real_dump_keeps_its_spec_and_loses_its_bookkeeping():
    before = load_all(REAL.read_text())
    after, notes = strip_server_fields(before)

    assert [raw.get("spec") for raw in after] == [raw.get("spec") for raw in before]
    assert all(set(raw["metadata"]) <= {"name", "namespace", "annotations"} for raw in after)
    assert len(notes) == 2


ALLOWED = "windrow.io/allowed-namespaces"
IMPORTED_CLUSTER = {
    "kind": "Cluster",
    "metadata": {"name": "prod", "namespace": "fleet-default"},
    "spec": {"cloudCredentialSecretName": "cattle-global-data:cc-1"},
}


def a_credential(**annotations):
    metadata = {"name": "cc-1", "namespace": "cattle-global-data", "annotations": annotations}
    return {"kind": "Secret", "metadata": metadata}


def test_a_secret_beside_its_cluster_allows_the_clusters_namespace():
    secret = a_credential(**{ALLOWED: "team-a", "note": "kept"})

    (note,) = grant_references([IMPORTED_CLUSTER, secret])

    assert secret["metadata"]["annotations"] == {ALLOWED: "fleet-default,team-a", "note": "kept"}
    assert note == "Secret cattle-global-data/cc-1: allowed its use from namespace fleet-default"


@pytest.mark.parametrize("allowed", ["*", "fleet-default", "team-a, fleet-default"])
def test_what_is_allowed_already_stays_as_it_is(allowed):
    secret = a_credential(**{ALLOWED: allowed})

    assert grant_references([IMPORTED_CLUSTER, secret]) == []
    assert secret == a_credential(**{ALLOWED: allowed})


def test_for_a_secret_that_is_not_given_the_command_is_named():
    (note,) = grant_references([IMPORTED_CLUSTER])

    assert note.endswith(
        "kubectl -n cattle-global-data annotate --overwrite secret cc-1 windrow.io/allowed-namespaces=fleet-default "
        "(a list with commas; keep the namespaces that it has)"
    )
