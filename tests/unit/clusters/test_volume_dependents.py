"""What was made of a guest's volumes on Harvester: what goes with them, what stays, and what counts as a use."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from tests.unit.clusters.builders import NOON, SERVER, a_cluster, a_pool, of_kind, planned

from windrow.clusters.api.guest_volumes import GuestVolumes
from windrow.clusters.orphans import Orphans
from windrow.clusters.plan.actions import DeleteVolumes, KeepClaims, KeepVolumes, RemoveFinalizer
from windrow.clusters.sources.volumes.dependents import Dependent, read_snapshot_handles
from windrow.clusters.sources.volumes.guest_volumes import UNMARKED, Guest, VolumeClaim
from windrow.clusters.sources.volumes.on_harvester import HostVolumes, list_guest_volumes, list_host_volumes
from windrow.harvester.resources import (
    NETWORK_FILESYSTEM,
    REMOTE_BACKUP,
    VM,
    VMI,
    VOLUME_SNAPSHOT,
    VOLUME_SNAPSHOT_CONTENT,
)
from windrow.kubernetes.errors import Forbidden, NotFound, Unreachable
from windrow.kubernetes.resources import PERSISTENT_VOLUME, ApiResource

DRIVER = "driver.harvesterhci.io"
GUEST = Guest("g", NOON)
RECORDED = GuestVolumes(("pvc-1",), ("pvc-2",), ("snap-1", "backup:default/backup-1"))


# --- what the guest says ----------------------------------------------------------------------------------------------


def a_content(handle: Any, policy: str = "Delete", driver: str = DRIVER, source: str = "volumeHandle") -> Any:
    return {
        "spec": {"driver": driver, "deletionPolicy": policy, "source": {source: "x"}},
        "status": {"snapshotHandle": handle},
    }


def test_snapshots_that_a_snapshotter_made_and_whose_policy_is_delete_are_to_be_deleted() -> None:
    found = read_snapshot_handles(
        [
            a_content("snap-2"),
            a_content("snap-1"),
            a_content("backup:default/b"),
            a_content("kept", "Retain"),
            a_content("by-hand", source="snapshotHandle"),
            a_content("of-another", driver="other"),
            {"spec": {"driver": DRIVER, "deletionPolicy": "Delete", "source": {"volumeHandle": "x"}}},
        ]
    )

    assert found == ["backup:default/b", "snap-1", "snap-2"]


@pytest.mark.parametrize(
    "handle",
    [
        "",
        "Upper",
        "a/b",
        "../x",
        "backup:",
        "backup:b",
        "backup:a/",
        "backup:/b",
        "backup:a/b/c",
        7,
        None,
        ["a"],
    ],
)
def test_a_handle_that_can_be_the_name_of_no_snapshot_is_not_recorded(handle: Any) -> None:
    assert read_snapshot_handles([a_content(handle)]) == []


# --- what is on Harvester ---------------------------------------------------------------------------------------------


def an_object(name: str, namespace: str = "default", guest: str = "g", **spec: Any) -> dict[str, Any]:
    return {
        "metadata": {
            "name": name,
            "namespace": namespace,
            "uid": f"uid-{name}",
            "labels": {"windrow.io/csi-driver": DRIVER} if guest else {},
            "annotations": {"windrow.io/guest-uid": guest} if guest else {},
            "creationTimestamp": "2026-01-01T12:00:00Z",
        },
        "spec": spec,
    }


def a_claim(name: str, volume: str = "", guest: str = "g", shared: bool = False) -> dict[str, Any]:
    modes = (
        {"volumeMode": "Filesystem", "accessModes": ["ReadWriteMany"]} if shared else {"volumeMode": "Block"}
    )
    return an_object(name, guest=guest, volumeName=volume or f"pv-{name}", **modes)


def a_snapshot(name: str, claim: str, guest: str = "g") -> dict[str, Any]:
    return an_object(name, guest=guest, source={"persistentVolumeClaimName": claim})


def an_export(name: str, state: str = "Enabled", guest: str = "g") -> dict[str, Any]:
    return an_object(name, "harvester-system", guest, desiredState=state)


class Api:
    """Has these objects; of a kind that has an error nothing can be listed."""

    def __init__(self, found: Mapping[ApiResource, Any]) -> None:
        self.found = found
        self.listed: list[str] = []

    async def list(self, kind: ApiResource, namespace: str = "") -> list[Any]:
        self.listed.append(kind.plural)
        answer = self.found.get(kind, [])
        if isinstance(answer, Exception):
            raise answer
        return [one for one in answer if not namespace or one["metadata"]["namespace"] == namespace]


def volumes_of(
    *claims: Any, recorded: GuestVolumes | None = RECORDED, guest: Guest = GUEST, **found: Any
) -> HostVolumes:
    kinds = {
        "vms": VM,
        "vmis": VMI,
        "snapshots": VOLUME_SNAPSHOT,
        "backups": REMOTE_BACKUP,
        "exports": NETWORK_FILESYSTEM,
    }
    api: Any = Api({kinds[key]: value for key, value in found.items()})
    return asyncio.run(list_host_volumes(api, claims, "default", recorded, guest))


def told(found: HostVolumes) -> list[tuple[str, str, bool, str]]:
    return [(str(one), one.claim, one.goes_with_claim, one.unproven) for one in found.dependents]


def test_snapshots_and_backups_that_are_marked_or_recorded_are_the_guest_s() -> None:
    found = volumes_of(
        a_claim("pvc-1"),
        snapshots=[
            a_snapshot("snap-1", "pvc-1"),
            a_snapshot("snap-2", "pvc-1"),
            a_snapshot("snap-3", "gone"),
            a_snapshot("stranger", "pvc-1", guest=""),
            a_snapshot("of-another", "pvc-1", guest="h"),
        ],
        backups=[
            an_object("backup-1", source="pvc-1"),
            an_object("backup-2", guest="", source="pvc-1"),
        ],
    )

    assert told(found) == [
        ("VolumeRemoteBackup default/backup-1", "pvc-1", True, ""),
        ("VolumeSnapshot default/snap-1", "pvc-1", True, ""),
        ("VolumeSnapshot default/snap-2", "pvc-1", False, ""),
        ("VolumeSnapshot default/snap-3", "", False, ""),
    ]
    assert found.unknown == ""


@pytest.mark.parametrize(
    ("guest", "made_for", "why"),
    [
        (GUEST, "", UNMARKED),
        (GUEST, "h", "another guest cluster had it made"),
        (Guest("", NOON), "h", "it is not known which guest cluster this one was"),
        (Guest("g", NOON, "Cluster a/b"), "g", "Cluster a/b has a guest of the same uid"),
        (Guest("g", None), "g", "it is older than the Cluster"),
    ],
)
def test_the_guest_s_word_alone_proves_nothing_of_a_snapshot(guest: Guest, made_for: str, why: str) -> None:
    (found,) = volumes_of(
        a_claim("pvc-1"), snapshots=[a_snapshot("snap-1", "pvc-1", made_for)], guest=guest
    ).dependents

    assert found.unproven.startswith(why)


def test_exports_that_our_driver_made_go_with_their_claims() -> None:
    found = volumes_of(
        a_claim("pvc-1", shared=True),
        a_claim("pvc-3", guest=""),
        exports=[
            an_export("pv-pvc-1"),
            an_export("pv-pvc-3"),
            an_export("pv-gone"),
            an_export("pv-stranger", guest=""),
            an_export("pv-of-another", guest="h"),
        ],
    )

    assert told(found) == [
        ("NetworkFilesystem harvester-system/pv-gone", "", True, ""),
        ("NetworkFilesystem harvester-system/pv-pvc-1", "pvc-1", True, ""),
        ("NetworkFilesystem harvester-system/pv-pvc-3", "pvc-3", True, ""),
    ]
    assert found.claims[0].users == ()


@pytest.mark.parametrize(
    ("state", "guest", "users"),
    [
        ("Enabled", "", ("NetworkFilesystem harvester-system/pv-pvc-1",)),
        ("Enabled", "h", ("NetworkFilesystem harvester-system/pv-pvc-1",)),
        ("Disabled", "", ()),
        ("Enabled", "g", ()),
    ],
)
def test_an_export_that_others_have_turned_on_uses_the_claim(
    state: str, guest: str, users: tuple[str, ...]
) -> None:
    found = volumes_of(a_claim("pvc-1", shared=True), exports=[an_export("pv-pvc-1", state, guest)])

    assert found.claims[0].users == users


def test_vms_and_their_instances_use_a_claim_that_is_to_be_deleted() -> None:
    volumes = [{"name": "a", "persistentVolumeClaim": {"claimName": "pvc-1"}}]
    vm = an_object("bob", guest="", template={"spec": {"volumes": volumes}})
    instance = an_object("eve", guest="", volumes=volumes)

    (found,) = volumes_of(a_claim("pvc-1"), vms=[vm], vmis=[instance]).claims

    assert found.users == ("VirtualMachine default/bob", "VirtualMachineInstance default/eve")
    with pytest.raises(Forbidden):
        volumes_of(a_claim("pvc-1"), vmis=Forbidden("no"))


def test_a_volume_whose_exports_may_not_be_listed_is_known_to_be_used_by_no_one_only_where_it_is_a_disk() -> (
    None
):
    found = volumes_of(a_claim("pvc-1", shared=True), a_claim("pvc-2"), exports=Forbidden("no such right"))

    assert [one.unknown for one in found.claims] == [
        "whether a NetworkFilesystem exports it (no such right)",
        "",
    ]
    assert found.unknown == "no such right"


def test_a_claim_has_the_snapshots_of_it_also_those_of_others() -> None:
    (first, second) = volumes_of(
        a_claim("pvc-1"),
        a_claim("pvc-2"),
        snapshots=[
            a_snapshot("snap-1", "pvc-1"),
            a_snapshot("of-another", "pvc-1", guest="h"),
            a_snapshot("by-hand", "pvc-1", guest=""),
            an_object("of-a-content", guest="", source={"volumeSnapshotContentName": "pvc-1"}),
        ],
        backups=[an_object("backup-1", source="pvc-2")],
    ).claims

    assert first.snapshots == ("by-hand", "of-another", "snap-1")
    assert second.snapshots == ()


def test_where_snapshots_may_not_be_listed_it_is_not_known_which_claims_they_need() -> None:
    snapshots = Forbidden("no such right")
    found = volumes_of(a_claim("pvc-1"), snapshots=snapshots)

    assert [one.unknown for one in found.claims] == ["whether a VolumeSnapshot of it stays (no such right)"]
    assert found.unknown == "no such right"
    both = volumes_of(a_claim("pvc-1", shared=True), snapshots=snapshots, exports=Forbidden("nor this"))
    assert both.claims[0].unknown == "whether a NetworkFilesystem exports it (nor this)"
    assert both.unknown == "nor this; no such right"


def test_where_backups_may_not_be_listed_the_claims_go_since_those_are_stored_elsewhere() -> None:
    found = volumes_of(a_claim("pvc-1"), backups=Forbidden("no such right"))

    assert (found.claims[0].unknown, found.unknown) == ("", "no such right")


def test_a_harvester_without_snapshots_or_exports_has_none() -> None:
    absent = NotFound("the server could not find the requested resource")
    found = volumes_of(a_claim("pvc-1", shared=True), exports=absent, snapshots=absent, backups=absent)

    assert (found.dependents, found.unknown, found.claims[0].unknown) == ((), "", "")


def test_nothing_is_listed_for_a_guest_of_which_nothing_is_known() -> None:
    api: Any = Api({})

    assert asyncio.run(list_host_volumes(api, [], "default", None, Guest("", NOON))) == HostVolumes()
    assert api.listed == []


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        ({}, GuestVolumes()),
        ({PERSISTENT_VOLUME: Unreachable("refused")}, None),
        ({VOLUME_SNAPSHOT_CONTENT: NotFound("no such kind")}, GuestVolumes()),
    ],
)
def test_a_guest_that_has_no_snapshots_says_so_of_its_volumes_alone(found: Any, expected: Any) -> None:
    api: Any = Api(found)

    assert asyncio.run(list_guest_volumes(api)) == expected


def test_the_handles_of_snapshots_are_listed_with_the_volumes() -> None:
    api: Any = Api({VOLUME_SNAPSHOT_CONTENT: [a_content("snap-1")]})

    assert asyncio.run(list_guest_volumes(api)) == GuestVolumes(snapshots=("snap-1",))


# --- what goes, and what stays ----------------------------------------------------------------------------------------


def made_of(
    claim: str = "pvc-1", kind: ApiResource = VOLUME_SNAPSHOT, goes: bool = True, **rest: Any
) -> Dependent:
    namespace = "harvester-system" if kind == NETWORK_FILESYSTEM else "default"
    return Dependent(kind.ref("snap-1", namespace), "u", claim, goes, **rest)


CLAIM = VolumeClaim("default", "pvc-1", "uid-pvc-1", "Delete")


def ended(
    *dependents: Dependent,
    claim: VolumeClaim | None = CLAIM,
    unknown: str = "",
    recorded: GuestVolumes = RECORDED,
    **rest: Any,
) -> Any:
    cluster = a_cluster(a_pool("servers", 1, SERVER), deletion_timestamp=NOON, **rest)
    cluster = replace(cluster, recorded=replace(cluster.recorded, volumes=recorded, guest_uid="g"))
    volumes = (claim,) if claim else ()
    orphans = Orphans(volumes=volumes, volume_dependents=dependents, volume_dependents_unknown=unknown)
    return planned(cluster, [], orphans=orphans)


@pytest.mark.parametrize("kind", [VOLUME_SNAPSHOT, REMOTE_BACKUP, NETWORK_FILESYSTEM])
def test_what_was_made_of_a_volume_that_goes_is_deleted_before_it(kind: ApiResource) -> None:
    dependent = made_of(kind=kind)

    (first,) = of_kind(ended(dependent), DeleteVolumes)
    (then,) = of_kind(ended(replace(dependent, is_deleting=True)), DeleteVolumes)

    assert first.claims == (dependent,)  # type: ignore[attr-defined]
    assert first.because.endswith("it is made of a volume that goes")
    assert then.claims == (CLAIM,)  # type: ignore[attr-defined]
    plan = ended(replace(dependent, is_deleting=True), claim=None)
    assert plan.waits[0].what == f"{dependent} to be deleted"
    assert of_kind(plan, RemoveFinalizer, DeleteVolumes) == []


@pytest.mark.parametrize(
    ("kept", "claim", "why"),
    [
        (made_of(goes=False), replace(CLAIM, policy="Retain"), "no VolumeSnapshotContent of the guest said"),
        (made_of(), replace(CLAIM, policy="Retain"), "the volume that they were made of stays"),
        (made_of(claim=""), None, "the volume that they were made of stays, or went before"),
        (made_of(unproven=UNMARKED), None, UNMARKED),
        (
            made_of(kind=NETWORK_FILESYSTEM),
            replace(CLAIM, policy="Retain"),
            "the volume that they were made of",
        ),
    ],
)
def test_any_other_is_kept_and_named_with_the_way_to_delete_it(
    kept: Dependent, claim: VolumeClaim | None, why: str
) -> None:
    plan = ended(kept, claim=claim)

    texts = [one.because for one in of_kind(plan, KeepVolumes) if str(kept) in one.because]
    assert len(texts) == 1
    assert texts[0].startswith(f"{kept}, since {why}")
    assert texts[0].endswith(f"delete {kept.ref.kind.group_resource} snap-1")
    assert of_kind(plan, DeleteVolumes) == []
    assert of_kind(plan, RemoveFinalizer) != []


@pytest.mark.parametrize(
    "dependents",
    [
        (),
        (made_of(goes=False),),
        (made_of(unproven=UNMARKED),),
        (made_of(goes=False, is_deleting=True),),
        (made_of(kind=REMOTE_BACKUP),),
    ],
)
def test_a_claim_with_a_snapshot_that_stays_is_kept_and_named(dependents: tuple[Dependent, ...]) -> None:
    plan = ended(*dependents, claim=replace(CLAIM, snapshots=("snap-1",)))

    assert of_kind(plan, DeleteVolumes) == []
    (told,) = of_kind(plan, KeepClaims)
    assert told.because.startswith(
        "PersistentVolumeClaim default/pvc-1, since VolumeSnapshot default/snap-1 of it stays, and may be stored in its volume"
    )
    assert of_kind(plan, RemoveFinalizer) != []


def test_a_claim_goes_with_its_snapshots_only_where_all_of_them_go() -> None:
    goes = made_of()
    claim = replace(CLAIM, snapshots=("snap-1",))
    (first,) = of_kind(ended(goes, claim=claim), DeleteVolumes)
    (then,) = of_kind(ended(replace(goes, is_deleting=True), claim=claim), DeleteVolumes)
    assert first.claims == (goes,)  # type: ignore[attr-defined]
    assert then.claims == (claim,)  # type: ignore[attr-defined]

    plan = ended(goes, claim=replace(CLAIM, snapshots=("snap-1", "by-hand")))
    assert of_kind(plan, DeleteVolumes) == []
    (told,) = of_kind(plan, KeepClaims)
    assert "VolumeSnapshot default/by-hand of it stays" in told.because
    (kept,) = of_kind(plan, KeepVolumes)
    assert f"{goes}, since the volume that they were made of stays" in kept.because


def test_a_claim_that_is_being_deleted_already_is_waited_for_whatever_was_made_of_it() -> None:
    plan = ended(claim=replace(CLAIM, snapshots=("by-hand",), is_deleting=True))

    assert plan.waits[0].what == "PersistentVolumeClaim default/pvc-1 to be deleted"
    assert of_kind(plan, RemoveFinalizer, KeepClaims) == []


def test_an_export_whose_claim_is_gone_is_deleted_and_one_of_another_guest_is_named_without_a_command() -> (
    None
):
    alone = made_of(claim="", kind=NETWORK_FILESYSTEM)
    (action,) = of_kind(ended(alone, claim=None), DeleteVolumes)
    assert action.claims == (alone,)  # type: ignore[attr-defined]

    others = made_of(unproven="another guest cluster had it made")
    (told,) = of_kind(ended(others, claim=None), KeepVolumes)
    assert told.because == "VolumeSnapshot default/snap-1, since another guest cluster had it made"


def test_an_opted_out_cluster_keeps_its_snapshots_and_exports() -> None:
    plan = ended(made_of(), made_of(kind=NETWORK_FILESYSTEM), keeps_volumes=True)

    assert of_kind(plan, DeleteVolumes) == []
    assert len([one for one in of_kind(plan, KeepVolumes) if "keeps all volumes" in one.because]) == 2


def test_that_they_could_not_be_listed_is_told() -> None:
    (told,) = of_kind(ended(claim=None, unknown="no such right"), KeepVolumes)

    assert told.because == "what was made of its volumes may stay, since it cannot be listed: no such right"


def test_where_the_guest_named_nothing_to_delete_nothing_is_told_of_what_could_not_be_listed() -> None:
    retained = GuestVolumes((), ("pvc-2",))

    assert of_kind(ended(claim=None, unknown="no such right", recorded=retained), KeepVolumes) == []
    snapshots = GuestVolumes(snapshots=("snap-1",))
    assert len(of_kind(ended(claim=None, unknown="no such right", recorded=snapshots), KeepVolumes)) == 1
