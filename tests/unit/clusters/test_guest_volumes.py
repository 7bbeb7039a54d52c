"""Which volumes of a guest cluster are deleted with it: what is recorded, what is found on Harvester, and what is kept."""

from __future__ import annotations

import json
import uuid
from dataclasses import replace
from datetime import timedelta
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
    look,
    minutes,
    of_kind,
    planned,
    silent,
)

from windrow.clusters.api.guest_volumes import (
    GuestVolumes,
    describe_deletion,
    read_recorded_volumes,
    render_recorded_volumes,
)
from windrow.clusters.orphans import Orphans
from windrow.clusters.plan.actions import (
    DeleteMachine,
    DeleteVolumes,
    KeepClaims,
    KeepVolumes,
    RecordVolumes,
    RemoveFinalizer,
)
from windrow.clusters.plan.volumes.reclaim import RECHECK, must_ask
from windrow.clusters.sources.volumes.guest_volumes import (
    MAX_RECORDED,
    MAX_RECORDED_BYTES,
    UNMARKED,
    Guest,
    VolumeClaim,
    read_guest_volumes,
    read_volume_claims,
)
from windrow.clusters.state import GuestState

DRIVER = "driver.harvesterhci.io"
SERVERS = a_pool("servers", 1, SERVER)
FOUND = GuestVolumes(("pvc-1",), ("pvc-2",))
GUEST = Guest("g", NOON)
MADE_BY_GO = "pvc-6f7c7c8e-0b3f-4b5e-9a43-000000000001"


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


@pytest.mark.parametrize(
    "handle",
    [
        "x" * 1000,
        "Upper",
        "two words",
        "../secrets",
        "a" * 254,
        "-a",
        "a..b",
        {"name": "pvc-1"},
        ["pvc-1"],
        7,
        None,
    ],
)
@pytest.mark.parametrize("policy", ["Delete", "Retain"])
def test_a_handle_that_can_be_the_name_of_no_claim_is_not_recorded(handle: Any, policy: str) -> None:
    volume = a_volume("pvc-1", policy)
    volume["spec"]["csi"]["volumeHandle"] = handle

    assert read_guest_volumes([volume]) == GuestVolumes()


def test_the_record_is_bounded_in_bytes_and_those_to_keep_come_first() -> None:
    longest = [a_volume(f"{'a.' * 120}{number:05}") for number in range(MAX_RECORDED)]

    found = read_guest_volumes([*longest, a_volume("kept", "Retain")])
    size = len(json.dumps(render_recorded_volumes(found, "c/t", NOON), separators=(",", ":")))

    assert MAX_RECORDED_BYTES - 300 < size < MAX_RECORDED_BYTES + 100
    assert found.retain == ("kept",)
    named_by_a_provisioner = [a_volume(f"pvc-{uuid.UUID(int=number)}") for number in range(MAX_RECORDED)]
    assert len(read_guest_volumes(named_by_a_provisioner).delete) == MAX_RECORDED


def test_a_record_of_volumes_to_keep_that_is_full_has_none_to_delete() -> None:
    retained = [a_volume(f"k{number:05}", "Retain") for number in range(MAX_RECORDED + 1)]

    found = read_guest_volumes([a_volume("a"), *retained])

    assert (found.delete, len(found.retain)) == ((), MAX_RECORDED)


def test_what_is_recorded_is_read_back() -> None:
    deletion = describe_deletion({"metadata": {"uid": "c", "deletionTimestamp": "2026-01-01T12:00:00Z"}})
    status = {"volumes": render_recorded_volumes(FOUND, deletion, NOON)}
    assert deletion == "c/2026-01-01T12:00:00Z"
    read = read_recorded_volumes(status, deletion)
    assert read == FOUND
    assert read is not None
    assert read.at == NOON
    with_snapshots = replace(FOUND, snapshots=("snap-1",))
    again = {"volumes": render_recorded_volumes(with_snapshots, deletion, NOON) | {"at": "yesterday"}}
    assert read_recorded_volumes(again, deletion) == with_snapshots
    assert read_recorded_volumes({"volumes": {"deletion": deletion}}, deletion) == GuestVolumes()
    assert read_recorded_volumes({}, deletion) is None
    assert read_recorded_volumes({"volumes": "pasted"}, deletion) is None


@pytest.mark.parametrize("deletion", ["", "d/2026-01-01T12:00:00Z", "c/2026-01-01T12:00:01Z"])
def test_what_was_recorded_for_another_deletion_is_not_used(deletion: str) -> None:
    recorded = render_recorded_volumes(FOUND, "c/2026-01-01T12:00:00Z", NOON)

    assert read_recorded_volumes({"volumes": recorded}, deletion) is None
    assert read_recorded_volumes({"volumes": {**recorded, "deletion": ""}}, deletion) is None


def test_a_cluster_that_is_not_deleted_has_no_deletion() -> None:
    assert describe_deletion({"metadata": {"uid": "c"}}) == ""


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
            "creationTimestamp": "2026-01-01T12:00:00Z",
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

    found = read_volume_claims(claims, [], FOUND, GUEST)

    assert [(one.name, one.policy) for one in found] == [
        ("marked", ""),
        ("pvc-1", "Delete"),
        ("pvc-2", "Retain"),
    ]
    anonymous = a_claim("anonymous", label=True)  # made where the driver could not read which guest it serves
    assert read_volume_claims([*claims, anonymous], [], None, Guest("", NOON)) == ()


@pytest.mark.parametrize(
    ("mode", "access", "can"),
    [
        ("Filesystem", ["ReadWriteMany"], True),
        ("Filesystem", ["ReadWriteOnce", "ReadWriteMany"], True),
        ("Filesystem", ["ReadWriteOnce"], False),
        ("Block", ["ReadWriteMany"], False),
        ("Block", ["ReadWriteOnce"], False),
    ],
)
def test_a_claim_can_be_shared_that_many_machines_write_as_a_filesystem(
    mode: str, access: list[str], can: bool
) -> None:
    raw = a_claim("pvc-1", guest="g", label=True) | {"spec": {"volumeMode": mode, "accessModes": access}}
    (found,) = read_volume_claims([raw], [], FOUND, GUEST)
    assert found.can_be_shared is can


def test_a_disk_of_a_machine_is_no_volume_whatever_the_guest_says_of_it() -> None:
    assert read_volume_claims([a_claim("pvc-1", machine="m")], [], FOUND, GUEST) == ()


def test_a_claim_is_used_by_the_vms_that_have_it_among_their_volumes_and_do_not_go() -> None:
    vms = [
        a_vm("a", "pvc-1", "x"),
        a_vm("b", "pvc-1"),
        a_vm("gone", "pvc-2", deletionTimestamp="2026-01-01T12:00:00Z"),
    ]

    first, second = read_volume_claims([a_claim("pvc-1"), a_claim("pvc-2")], vms, FOUND, GUEST)

    assert first.users == ("VirtualMachine default/a", "VirtualMachine default/b")
    assert second.users == ()


def test_a_data_volume_of_a_vm_is_its_claim() -> None:
    vm = a_vm("bob", "x")
    vm["spec"]["template"]["spec"]["volumes"].append({"name": "data", "dataVolume": {"name": "pvc-1"}})

    (one,) = read_volume_claims([a_claim("pvc-1")], [vm], FOUND, GUEST)

    assert one.users == ("VirtualMachine default/bob",)


def test_an_instance_whose_vm_has_let_the_claim_go_uses_it_yet() -> None:
    metadata = {"name": "bob", "namespace": "default"}
    volumes = [
        {"name": "a", "persistentVolumeClaim": {"claimName": "pvc-1"}},
        {"name": "b", "dataVolume": {"name": "pvc-2"}},
    ]
    instance = {"metadata": metadata, "spec": {"volumes": volumes}}
    going = {"metadata": {**metadata, "deletionTimestamp": "2026-01-01T12:00:00Z"}, "spec": instance["spec"]}

    for users, expected in ([instance], ("VirtualMachineInstance default/bob",)), ([going], ()):
        found = read_volume_claims([a_claim("pvc-1"), a_claim("pvc-2")], users, FOUND, GUEST)
        assert [one.users for one in found] == [expected] * 2


def test_a_claim_that_goes_is_named_with_what_holds_it() -> None:
    held = a_claim(
        "pvc-1", deletionTimestamp="2026-01-01T12:00:00Z", finalizers=["kubernetes.io/pvc-protection"]
    )
    (going,) = read_volume_claims([held], [], FOUND, GUEST)
    (there,) = read_volume_claims(
        [a_claim("pvc-1", finalizers=["kubernetes.io/pvc-protection"])], [], FOUND, GUEST
    )

    assert str(going) == "PersistentVolumeClaim default/pvc-1 (finalizers: kubernetes.io/pvc-protection)"
    assert str(there) == "PersistentVolumeClaim default/pvc-1"


def doubt(raw: dict[str, Any], guest: Guest = GUEST, policy: str = "Delete") -> str:
    recorded = GuestVolumes(**{policy.lower(): (raw["metadata"]["name"],)})
    (one,) = read_volume_claims([raw], [], recorded, guest)
    assert one.policy == policy
    return one.unproven


@pytest.mark.parametrize(
    "raw",
    [
        a_claim("db", guest="g", label=True),
        a_claim(MADE_BY_GO, guest="g", label=True),
        a_claim(MADE_BY_GO, guest="g"),  # a person vouches for it
        a_claim("db", guest="g", label=True, creationTimestamp="2026-01-01T12:00:01Z"),
    ],
    ids=["ours", "ours-pvc", "vouched", "younger"],
)
def test_the_marks_on_harvester_prove_that_a_claim_was_made_for_this_guest(raw: Any) -> None:
    assert doubt(raw) == ""


@pytest.mark.parametrize(
    ("raw", "guest", "why"),
    [
        (a_claim("admin-backup-disk"), GUEST, "no CSI driver made it"),
        (a_claim("admin-backup-disk", guest="g"), GUEST, "no CSI driver made it"),
        (a_claim("x", labels={"windrow.io/csi-driver": "other"}), GUEST, "no CSI driver made it"),
        (a_claim(f"x{MADE_BY_GO}"), GUEST, "no CSI driver made it"),
        (a_claim(f"{MADE_BY_GO}0"), GUEST, "no CSI driver made it"),
        (a_claim(MADE_BY_GO), GUEST, UNMARKED),
        (a_claim("db", label=True), GUEST, UNMARKED),
        (a_claim("db", guest="h", label=True), GUEST, "another guest cluster had it made"),
        (a_claim(MADE_BY_GO, guest="h"), GUEST, "another guest cluster had it made"),
        (
            a_claim("db", guest="h", label=True),
            Guest("", NOON),
            "it is not known which guest cluster this one was",
        ),
        (
            a_claim("db", guest="g", label=True),
            Guest("g", NOON, "Cluster a/b"),
            "Cluster a/b has a guest of the same uid, so one is a copy of the other",
        ),
        (
            a_claim(
                "db",
                guest="g",
                label=True,
                ownerReferences=[
                    {"kind": "Other", "name": "o"},
                    {"kind": "VolumeRemoteRestore", "name": "r"},
                ],
            ),
            GUEST,
            "VolumeRemoteRestore default/r would make it again; deleting that one deletes it",
        ),
        *(
            (raw, guest, "it is older than the Cluster, so this guest is a copy of the one that had it made")
            for raw, guest in [
                (a_claim("db", guest="g", label=True, creationTimestamp="2026-01-01T11:59:59Z"), GUEST),
                (a_claim("db", guest="g", label=True, creationTimestamp=None), GUEST),
                (a_claim("db", guest="g", label=True), Guest("g", None)),
            ]
        ),
    ],
)
def test_the_word_of_a_guest_alone_proves_nothing(raw: Any, guest: Guest, why: str) -> None:
    """Its PersistentVolumes may be copies of another cluster's, or be written by its administrator."""
    assert doubt(raw, guest) == why
    assert doubt(raw, guest, "Retain") == why


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


@pytest.mark.parametrize("recorded", [None, replace(FOUND, at=NOON - minutes(500))])
def test_a_manager_that_starts_after_the_deletion_gives_the_guest_a_minute_too(recorded: Any) -> None:
    cluster, machine = deleted_cluster(recorded, since=NOON - minutes(500)), a_machine("s1", SERVERS)

    before = planned(cluster, [machine], guest=silent(), volumes_asked_for=timedelta(seconds=59))
    after = planned(cluster, [machine], guest=silent(), volumes_asked_for=timedelta(seconds=60))

    assert before.actions == ()
    assert [wait.until for wait in before.waits] == [NOON + timedelta(seconds=1)]
    assert "list PersistentVolumes" in before.waits[0].what
    assert [type(one) for one in after.actions] == [DeleteMachine if recorded is None else RecordVolumes]


LATER = GuestVolumes((), ("pvc-1", "pvc-2"))


def asked_again(recorded_at: Any, found: GuestVolumes | None) -> Any:
    cluster = deleted_cluster(replace(FOUND, at=recorded_at), since=NOON - minutes(500))
    return planned(cluster, [a_machine("s1", SERVERS)], guest_volumes=found)


@pytest.mark.parametrize("at", [NOON - minutes(0.99), NOON - minutes(1), None])
def test_a_policy_that_was_changed_after_the_record_is_recorded_before_a_machine_is_deleted(at: Any) -> None:
    plan = asked_again(at, LATER)
    is_fresh = at is not None and at > NOON - minutes(1)

    assert plan.actions[0] == RecordVolumes("0 of its volumes are to be deleted and 2 to be kept", LATER)
    assert [type(one) for one in plan.actions[1:]] == ([DeleteMachine] if is_fresh else [])


@pytest.mark.parametrize("at", [NOON - minutes(500), NOON, None])
def test_what_the_guest_says_again_counts_however_old_the_record_is(at: Any) -> None:
    assert [type(one) for one in asked_again(at, FOUND).actions] == [DeleteMachine]


def test_a_record_of_the_last_minute_counts_where_the_guest_says_nothing_any_more() -> None:
    assert [type(one) for one in asked_again(NOON - minutes(0.99), None).actions] == [DeleteMachine]


@pytest.mark.parametrize("at", [NOON - minutes(1), None])
def test_an_older_record_that_the_guest_does_not_repeat_has_nothing_deleted(at: Any) -> None:
    plan = asked_again(at, None)

    why = "the guest API server does not repeat that volumes are to be deleted, so all are kept"
    assert plan.actions == (RecordVolumes(why, GuestVolumes((), ("pvc-2",))),)
    assert plan.waits != ()


@pytest.mark.parametrize(
    ("cluster", "machines", "asks"),
    [
        (deleted_cluster(), [a_machine("s1", SERVERS)], True),
        (deleted_cluster(FOUND), [a_machine("s1", SERVERS), leaving(a_machine("s2", SERVERS))], True),
        (deleted_cluster(FOUND), [leaving(a_machine("s1", SERVERS))], False),
        (deleted_cluster(FOUND), [a_machine("w1", a_pool())], False),
        (deleted_cluster(FOUND, keeps_volumes=True), [a_machine("s1", SERVERS)], False),
        (deleted_cluster(FOUND, since=None), [a_machine("s1", SERVERS)], False),
    ],
    ids=["first", "again", "server-goes", "no-server", "opted-out", "not-deleted"],
)
def test_a_guest_is_asked_until_its_last_server_is_deleted(cluster: Any, machines: Any, asks: bool) -> None:
    assert must_ask(look(cluster, machines)) is asks


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
    marked = claim("pvc-3")

    plan = ended(claim(), marked)

    (action,) = of_kind(plan, DeleteVolumes)
    assert action.claims == (claim(), marked)  # type: ignore[union-attr]
    assert action.because == (
        "the Cluster is deleted, and the reclaim policy of PersistentVolumeClaims default/pvc-1, default/pvc-3 is Delete"
    )
    assert plan.waits[0].what == "PersistentVolumeClaim default/pvc-1 to be deleted (and 1 more)"
    assert of_kind(plan, RemoveFinalizer) == []


def test_one_that_goes_is_waited_for_and_not_deleted_again() -> None:
    plan = ended(claim(is_deleting=True, users=("VirtualMachine default/rescue",), unknown="x"))

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
        (claim(unproven=UNMARKED), KeepClaims, UNMARKED),
        (claim(policy="Retain", unproven=UNMARKED), KeepVolumes, "have the reclaim policy Retain"),
        (
            claim(users=("VirtualMachine default/rescue",)),
            KeepClaims,
            "VirtualMachine default/rescue uses it",
        ),
        (
            claim(unknown="whether a NetworkFilesystem exports it (forbidden)"),
            KeepClaims,
            "it is not known whether a NetworkFilesystem exports it (forbidden)",
        ),
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


@pytest.mark.parametrize("policy", ["Delete", "Retain", ""])
@pytest.mark.parametrize("rest", [{}, {"keeps_volumes": True}], ids=["asked-for", "opted-out"])
def test_a_claim_that_is_another_s_is_named_without_a_command_to_delete_it(policy: str, rest: Any) -> None:
    plan = ended(claim(policy=policy, unproven="no CSI driver made it"), **rest)

    assert of_kind(plan, DeleteVolumes, KeepVolumes) == []
    (told,) = of_kind(plan, KeepClaims)
    assert told.because.startswith("PersistentVolumeClaim default/pvc-1, since ")
    assert "kubectl" not in told.because
    assert rest or told.because.endswith("since no CSI driver made it")


def test_a_claim_without_a_mark_is_to_be_deleted_by_hand_once_it_is_known_to_be_no_other_s() -> None:
    (told,) = of_kind(ended(claim(unproven=UNMARKED)), KeepClaims)

    assert (
        "; if no other guest has it in a PersistentVolume, delete it by hand, there: kubectl" in told.because
    )


def test_all_that_is_kept_is_named_in_events_of_so_many_and_what_is_beyond_is_counted() -> None:
    some = [replace(claim(f"pvc-{uuid.UUID(int=number)}"), unproven=UNMARKED) for number in range(13)]

    told = [one.because for one in of_kind(ended(*some), KeepClaims)]

    assert len(told) == 3
    assert all(sum(one.name in text for text in told) == 1 for one in some)
    assert all(text.count(" more") == 0 and len(text) < 1024 for text in told)
    many = of_kind(ended(*(claim(f"pvc-{number}", unproven=UNMARKED) for number in range(50))), KeepClaims)
    assert len(many) == 9
    assert many[-1].because == f"2 more PersistentVolumeClaims, since {UNMARKED}"
    one_more = [claim(f"pvc-{number}", unproven=UNMARKED) for number in range(49)]
    assert (
        of_kind(ended(*one_more), KeepClaims)[-1].because
        == f"1 more PersistentVolumeClaims, since {UNMARKED}"
    )
    assert (
        len(of_kind(ended(*(claim(f"p-{number}", unproven=UNMARKED) for number in range(48))), KeepClaims))
        == 8
    )


def test_an_opted_out_cluster_keeps_also_what_is_recorded_to_be_deleted() -> None:
    plan = ended(claim(), keeps_volumes=True)

    assert of_kind(plan, DeleteVolumes) == []
    assert "skipHarvesterMachineProvisionCleanup keeps all volumes" in of_kind(plan, KeepClaims)[0].because


def test_a_guest_whose_uid_is_not_known_has_marked_nothing() -> None:
    empty = a_claim("db", label=True, annotations={"windrow.io/guest-uid": ""})

    assert read_volume_claims([empty], [], None, Guest("", NOON)) == ()
