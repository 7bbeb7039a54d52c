"""`windrow restore NEW SNAPSHOT --from ORIGINAL`: what it writes."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.cli.conftest import Manager, Windrow
from tests.unit.cli.test_snapshot import ORCHARD, a_snapshot, put

from windrow.cli.copies import render_copy
from windrow.clusters.api.kinds import CLUSTER
from windrow.clusters.api.names import AUTHORIZED_CLUSTERS
from windrow.kubernetes.objects import annotations_of, new_object
from windrow.kubernetes.resources import SECRET

PLACE = {"bucket": "backups", "folder": "orchard", "cloudCredentialName": "cc-s3"}
SECRET_REF = SECRET.ref("orchard-windrow-secrets", "fleet-default")
ASKED = {"name": "one", "from": {"clusterName": "orchard", "s3": PLACE}}


def prepare(windrow: Windrow, manager: Manager, s3: dict[str, Any] | None = PLACE) -> None:
    windrow("apply", "-f", "cluster.yaml")
    put(manager, a_snapshot("orchard-s3-one", s3=PLACE), a_snapshot("orchard-local-two", name="two"))

    async def write(api: Any) -> None:
        secret = new_object(SECRET, SECRET_REF.name, "fleet-default", annotations={AUTHORIZED_CLUSTERS: "a"})
        await api.create(SECRET, secret)
        await api.patch(ORCHARD, {"spec": {"rkeConfig": {"etcd": {"s3": s3}}}})

    manager.do(write)


def read(manager: Manager, ref: Any) -> Any:
    async def get(api: Any) -> Any:
        return await api.find(ref)

    return manager.do(get)


@pytest.mark.parametrize("snapshot", ["orchard-s3-one", "one"])
def test_a_cluster_that_does_not_exist_is_created_with_the_spec_of_the_original(
    windrow: Windrow, manager: Manager, snapshot: str
) -> None:
    prepare(windrow, manager)

    answer = windrow("restore", "twin", snapshot, "--from", "orchard")

    assert answer.out == f"fleet-default/twin is created, and begins with {snapshot} of orchard\n"
    twin, orchard = read(manager, CLUSTER.ref("twin", "fleet-default")), read(manager, ORCHARD)
    assert twin["spec"]["rkeConfig"]["etcdSnapshotRestore"] == {**ASKED, "generation": 1}
    assert "s3" not in twin["spec"]["rkeConfig"].get("etcd", {})
    assert twin["spec"]["rkeConfig"]["machinePools"] == orchard["spec"]["rkeConfig"]["machinePools"]
    assert annotations_of(read(manager, SECRET_REF))[AUTHORIZED_CLUSTERS] == "a,twin"


def test_one_that_exists_is_asked_for_it(windrow: Windrow, manager: Manager) -> None:
    prepare(windrow, manager)

    async def create(api: Any) -> None:
        await api.create(CLUSTER, new_object(CLUSTER, "twin", "fleet-default", spec={"rkeConfig": {}}))

    manager.do(create)

    answer = windrow("snapshot", "restore", "twin", "orchard-s3-one", "--from", "orchard")

    assert answer.out == "fleet-default/twin is asked to begin with orchard-s3-one of orchard\n"
    twin = read(manager, CLUSTER.ref("twin", "fleet-default"))
    assert twin["spec"] == {"rkeConfig": {"etcdSnapshotRestore": {**ASKED, "generation": 1}}}


@pytest.mark.parametrize(
    ("name", "snapshot", "more", "words"),
    [
        ("orchard", "one", (), "The new Cluster cannot be called 'orchard'."),
        ("Twin", "one", (), "The new Cluster cannot be called 'Twin'."),
        ("twin", "nothing", (), "fleet-default/orchard has no snapshot 'nothing'."),
        ("twin", "two", (), "Snapshot two is on the disk of a server, and a new Cluster reads it from S3."),
        ("twin", "one", ("--config", "all"), "--from takes a snapshot, and no --lost-quorum or --config."),
        ("twin", "", (), "A snapshot or --lost-quorum is wanted."),
    ],
)
def test_what_cannot_be_copied_is_said_before_anything_is_written(
    windrow: Windrow, manager: Manager, name: str, snapshot: str, more: tuple[str, ...], words: str
) -> None:
    prepare(windrow, manager)

    answer = windrow("restore", name, *([snapshot] if snapshot else []), "--from", "orchard", *more)

    assert answer.code != 0
    assert words in answer.err
    assert read(manager, CLUSTER.ref("twin", "fleet-default")) is None
    assert annotations_of(read(manager, SECRET_REF))[AUTHORIZED_CLUSTERS] == "a"


def test_an_original_without_s3_has_nothing_that_a_new_cluster_could_read(
    windrow: Windrow, manager: Manager
) -> None:
    prepare(windrow, manager, s3=None)
    answer = windrow("restore", "twin", "one", "--from", "orchard")
    assert "fleet-default/orchard has no credential for S3 in spec.rkeConfig.etcd.s3." in answer.err


def test_without_the_secret_of_the_original_nothing_opens_it(windrow: Windrow, manager: Manager) -> None:
    prepare(windrow, manager)

    async def delete(api: Any) -> None:
        await api.delete(SECRET_REF)

    manager.do(delete)
    answer = windrow("restore", "twin", "one", "--from", "orchard")
    assert "does not exist, and what it held opens the snapshot." in answer.err


def test_a_copy_has_neither_the_operations_nor_the_names_of_its_original() -> None:
    values = {"harvester-cloud-provider": {"global": {"cattle": {"clusterName": "orchard", "a": 1}}}, "x": {}}
    rke = {"etcd": {"s3": PLACE}, "rotateToken": {"generation": 3}, "chartValues": values}
    rke |= {"machineGlobalConfig": {"etcd-s3-folder": "orchard"}, "machineSelectorConfig": []}
    spec = {"rkeConfig": rke, "localClusterAuthEndpoint": {"enabled": True}, "kubernetesVersion": "v"}
    original = new_object(CLUSTER, "orchard", "fleet-default", spec=spec)

    assert render_copy(original, "twin", ASKED)["spec"] == {
        "kubernetesVersion": "v",
        "rkeConfig": {
            "chartValues": {"harvester-cloud-provider": {"global": {"cattle": {"a": 1}}}, "x": {}},
            "etcdSnapshotRestore": {**ASKED, "generation": 1},
        },
    }


def test_the_plan_says_what_a_copy_shares_with_its_original(windrow: Windrow, manager: Manager) -> None:
    prepare(windrow, manager)
    windrow("restore", "twin", "one", "--from", "orchard")

    answer = windrow("plan", "twin")

    told = " ".join(answer.out.split())
    assert "It begins with snapshot one of Cluster orchard, whose certificate authorities, keys of" in told
    assert "a kubeconfig of that one opens it" in told
    assert "It begins with" not in windrow("plan", "orchard").out
