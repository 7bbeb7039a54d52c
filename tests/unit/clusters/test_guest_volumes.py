"""Which volumes of a guest cluster are deleted with it: what is recorded, what is found on Harvester, and what is kept."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from tests.unit.clusters.builders import (
    NOON,
    SERVER,
    a_cluster,
    a_machine,
    a_newborn,
    a_pool,
    leaving,
    minutes,
    of_kind,
    planned,
    silent,
)

from windrow.clusters.api.guest_volumes import GuestVolumes, read_recorded_volumes, render_recorded_volumes
from windrow.clusters.orphans import Orphans
from windrow.clusters.plan.actions import (
    DeleteMachine,
    DeleteVolumes,
    KeepClaims,
    KeepVolumes,
    RecordVolumes,
    RemoveFinalizer,
)
from windrow.clusters.plan.volumes.reclaim import RECHECK
from windrow.clusters.sources.guest_volumes import (
    MAX_RECORDED,
    VolumeClaim,
    read_guest_volumes,
    read_volume_claims,
)
from windrow.clusters.state import GuestState

DRIVER = "driver.harvesterhci.io"
SERVERS = a_pool("servers", 1, SERVER)
FOUND = GuestVolumes(("pvc-1",), ("pvc-2",))


def a_volume(handle: str, policy: str = "Delete", by: str = DRIVER, driver: str = DRIVER) -> dict[str, Any]:
    return {
        "metadata": {"name": handle, "annotations": {"pv.kubernetes.io/provisioned-by": by} if by else {}},
        "spec": {
            "csi": {"driver": driver, "volumeHandle": handle},
            "persistentVolumeReclaimPolicy": policy,
        },
    }


# --- readings --------------------------------------------------------------------------------------------------------


def test_only_a_provisioned_volume_of_the_driver_whose_policy_is_delete_is_to_be_deleted() -> None:
    found = read_guest_volumes(
        [
            a_volume("b"),
            a_volume("a"),
            a_volume("kept", "Retain"),
            a_volume("recycled", "Recycle"),
            a_volume("by-hand", by=""),
            a_volume("of-another-provisioner", by="other"),
            a_volume("of-another-driver", driver="other", by="other"),
            a_volume(""),
            {"metadata": {"name": "local"}, "spec": {"local": {"path": "/x"}}},
        ]
    )

    assert found == GuestVolumes(("a", "b"), ("by-hand", "kept", "of-another-provisioner", "recycled"))


def test_a_claim_of_two_volumes_is_kept_where_one_of_them_is_retained() -> None:
    for volumes in ([a_volume("a"), a_volume("a", "Retain")], [a_volume("a", "Retain"), a_volume("a")]):
        assert read_guest_volumes(volumes) == GuestVolumes((), ("a",))


def test_a_status_has_room_for_so_many_and_those_to_keep_come_first() -> None:
    many = [a_volume(f"d{number:05}") for number in range(MAX_RECORDED)]

    found = read_guest_volumes([*many, a_volume("kept", "Retain")])

    assert (len(found.delete), found.retain) == (MAX_RECORDED - 1, ("kept",))


def test_what_is_recorded_is_read_back() -> None:
    assert read_recorded_volumes({"volumes": render_recorded_volumes(FOUND)}) == FOUND
    assert read_recorded_volumes({"volumes": {}}) == GuestVolumes()
    assert read_recorded_volumes({}) is None
    assert read_recorded_volumes({"volumes": "pasted"}) is None


def a_claim(
    name: str, guest: str = "", machine: str = "", label: bool = False, **metadata: Any
) -> dict[str, Any]:
    annotations = {"windrow.io/guest-uid": guest} if guest else {}
    annotations |= {"windrow.io/machine-uid": machine} if machine else {}
    labels = {"windrow.io/csi-driver": DRIVER} if label else {}
    return {
        "metadata": {
            "name": name,
            "namespace": "default",
            "uid": f"uid-{name}",
            "labels": labels,
            "annotations": annotations,
            **metadata,
        }
    }


def a_vm(name: str, *claims: str, **metadata: Any) -> dict[str, Any]:
    volumes = [{"name": one, "persistentVolumeClaim": {"claimName": one}} for one in claims]
    return {
        "metadata": {"name": name, "namespace": "default", **metadata},
        "spec": {"template": {"spec": {"volumes": volumes}}},
    }


def test_the_claims_that_are_recorded_or_marked_are_the_volumes_of_the_guest() -> None:
    claims = [
        a_claim("pvc-2"),
        a_claim("pvc-1", guest="g", label=True),
        a_claim("marked", guest="g", label=True),
        a_claim("unlabelled", guest="g"),
        a_claim("of-another", guest="h", label=True),
        a_claim("stranger"),
    ]

    found = read_volume_claims(claims, [], FOUND, "g")

    assert [(one.name, one.policy) for one in found] == [
        ("marked", ""),
        ("pvc-1", "Delete"),
        ("pvc-2", "Retain"),
    ]
    anonymous = a_claim("anonymous", label=True)  # made where the driver could not read which guest it serves
    assert read_volume_claims([*claims, anonymous], [], None, "") == ()


def test_a_disk_of_a_machine_is_no_volume_whatever_the_guest_says_of_it() -> None:
    assert read_volume_claims([a_claim("pvc-1", machine="m")], [], FOUND, "g") == ()


def test_a_claim_is_used_by_the_vms_that_have_it_among_their_volumes_and_do_not_go() -> None:
    vms = [
        a_vm("a", "pvc-1", "x"),
        a_vm("b", "pvc-1"),
        a_vm("gone", "pvc-2", deletionTimestamp="2026-01-01T12:00:00Z"),
    ]

    first, second = read_volume_claims([a_claim("pvc-1"), a_claim("pvc-2")], vms, FOUND, "")

    assert first.users == ("default/a", "default/b")
    assert second.users == ()


def test_a_claim_that_goes_is_named_with_what_holds_it() -> None:
    held = a_claim(
        "pvc-1", deletionTimestamp="2026-01-01T12:00:00Z", finalizers=["kubernetes.io/pvc-protection"]
    )
    (going,) = read_volume_claims([held], [], FOUND, "")
    (there,) = read_volume_claims(
        [a_claim("pvc-1", finalizers=["kubernetes.io/pvc-protection"])], [], FOUND, ""
    )

    assert str(going) == "PersistentVolumeClaim default/pvc-1 (finalizers: kubernetes.io/pvc-protection)"
    assert str(there) == "PersistentVolumeClaim default/pvc-1"


# --- before the machines go ------------------------------------------------------------------------------------------


def deleted_cluster(recorded: GuestVolumes | None = None, since: Any = NOON, **rest: Any) -> Any:
    cluster = a_cluster(SERVERS, deletion_timestamp=since, **rest)
    return replace(cluster, recorded=replace(cluster.recorded, volumes=recorded, guest_uid="g"))


def test_the_volumes_are_recorded_before_a_machine_is_deleted() -> None:
    plan = planned(deleted_cluster(), [a_machine("s1", SERVERS)], guest_volumes=FOUND)

    assert plan.actions == (RecordVolumes("1 of its volumes are to be deleted and 1 to be kept", FOUND),)
    assert [wait.until for wait in plan.waits] == [NOON + RECHECK]


def test_machines_are_deleted_once_the_volumes_are_recorded() -> None:
    plan = planned(deleted_cluster(FOUND), [a_machine("s1", SERVERS)], guest_volumes=FOUND)

    assert [type(one) for one in plan.actions] == [DeleteMachine]


@pytest.mark.parametrize("guest", [silent("connection refused"), GuestState(because="connection refused")])
def test_a_guest_that_does_not_answer_is_waited_for_a_minute(guest: GuestState) -> None:
    machine = a_machine("s1", SERVERS)

    before = planned(deleted_cluster(since=NOON - minutes(0.99)), [machine], guest=guest)
    after = planned(deleted_cluster(since=NOON - minutes(1)), [machine], guest=guest)

    assert before.actions == ()
    (wait,) = before.waits
    assert wait.what == "the guest API server to list PersistentVolumes (connection refused)"
    assert wait.until == NOON + minutes(0.01)
    assert [type(one) for one in after.actions] == [DeleteMachine]


@pytest.mark.parametrize(
    ("cluster", "machines"),
    [
        (a_newborn(SERVERS, deletion_timestamp=NOON), [a_machine("s1", SERVERS)]),
        (deleted_cluster(keeps_volumes=True), [a_machine("s1", SERVERS)]),
        (deleted_cluster(), [leaving(a_machine("s1", SERVERS))]),
        (deleted_cluster(), [a_machine("w1", a_pool())]),
    ],
    ids=["never-ran", "opted-out", "server-goes", "no-server"],
)
def test_a_guest_is_not_waited_for_where_it_has_nothing_to_say(cluster: Any, machines: Any) -> None:
    plan = planned(cluster, machines, guest=silent())

    assert not any("PersistentVolumes" in wait.what for wait in plan.waits)


# --- when they are gone ----------------------------------------------------------------------------------------------


def claim(name: str = "pvc-1", policy: str = "Delete", **rest: Any) -> VolumeClaim:
    return VolumeClaim("default", name, f"uid-{name}", policy, **rest)


def ended(*claims: VolumeClaim, **rest: Any) -> Any:
    return planned(deleted_cluster(FOUND, **rest), [], orphans=Orphans(volumes=claims))


def test_a_claim_to_delete_is_deleted_by_name_and_uid_and_waited_for() -> None:
    marked = claim("pvc-3", guest_uid="g")

    plan = ended(claim(), marked)

    (action,) = of_kind(plan, DeleteVolumes)
    assert action.claims == (claim(), marked)  # type: ignore[union-attr]
    assert action.because == (
        "the Cluster is deleted, and the reclaim policy of PersistentVolumeClaims default/pvc-1, default/pvc-3 is Delete"
    )
    assert plan.waits[0].what == "PersistentVolumeClaim default/pvc-1 to be deleted (and 1 more)"
    assert of_kind(plan, RemoveFinalizer) == []


def test_one_that_goes_is_waited_for_and_not_deleted_again() -> None:
    plan = ended(claim(is_deleting=True, users=("default/rescue",)))

    assert plan.actions == ()
    assert plan.waits[0].what == "PersistentVolumeClaim default/pvc-1 to be deleted"
    assert plan.waits[0].until == NOON + RECHECK


def test_so_many_are_deleted_at_once() -> None:
    (action,) = of_kind(ended(*(claim(f"pvc-{number}") for number in range(70))), DeleteVolumes)

    assert len(action.claims) == 64  # type: ignore[union-attr]
    assert "default/pvc-0, default/pvc-1, default/pvc-2 and 61 more is Delete" in action.because


@pytest.mark.parametrize(
    ("kept", "kind", "why"),
    [
        (claim(policy="Retain"), KeepVolumes, "have the reclaim policy Retain, or were made by hand"),
        (claim(policy=""), KeepClaims, "the guest did not say that it is to be deleted"),
        (claim(guest_uid="h"), KeepClaims, "another guest cluster had it made"),
        (claim(users=("default/rescue",)), KeepClaims, "VirtualMachine default/rescue uses it"),
    ],
)
def test_any_other_is_kept_and_named_with_the_reason_when_the_rest_is_gone(
    kept: Any, kind: Any, why: str
) -> None:
    plan = ended(kept)

    assert of_kind(plan, DeleteVolumes) == []
    (told,) = of_kind(plan, KeepVolumes, KeepClaims)
    assert type(told) is kind
    assert told.because.startswith("PersistentVolumeClaim default/pvc-1, since ")
    assert why in told.because
    assert told.because.endswith("-n default delete persistentvolumeclaims pvc-1")
    assert of_kind(plan, RemoveFinalizer) != []
    assert of_kind(ended(kept, claim("pvc-9")), KeepVolumes, KeepClaims) == []


def test_an_opted_out_cluster_keeps_also_what_is_recorded_to_be_deleted() -> None:
    plan = ended(claim(), keeps_volumes=True)

    assert of_kind(plan, DeleteVolumes) == []
    assert "skipHarvesterMachineProvisionCleanup keeps all volumes" in of_kind(plan, KeepClaims)[0].because
