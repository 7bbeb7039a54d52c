"""What proves that an object on Harvester was made for a Cluster, and what is deleted, waited for and kept at its end."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from tests.unit.clusters.builders import (
    NOON,
    SERVER,
    a_cluster,
    a_newborn,
    a_pool,
    leaving,
    look,
    missing,
    of_kind,
    planned,
    some,
)

from windrow.clusters.api.machine import machine_name_stem
from windrow.clusters.api.status import GuestServiceAccount, RecordedStatus
from windrow.clusters.orphans import (
    MachineClaim,
    Orphans,
    OrphanVm,
    is_claim_of,
    location_of,
    prove_claim,
    prove_vm,
    read_cluster_vm,
    read_machine_claim,
    read_orphan_vm,
    same_name_selectors,
    without_claims_of,
)
from windrow.clusters.plan.actions import (
    AdoptVM,
    DeleteUnrecordedClaims,
    DeleteUnrecordedVMs,
    DeleteVM,
    KeepClaims,
    KeepVMs,
    RemoveFinalizer,
)
from windrow.clusters.plan.unrecorded import (
    decide,
    describe_claims,
    describe_held,
    may_have_unrecorded_etcd_member,
)
from windrow.harvester.cloud_init_secret import build_secret
from windrow.harvester.identity import owner_annotations
from windrow.harvester.names import CREATOR, GUEST_CLUSTER, OWNED_BY, VM_NAME
from windrow.harvester.volumes import claim_name

SERVERS = a_pool("servers", 3, SERVER)
WORKERS = a_pool("workers", 2)
CLUSTER = a_cluster(SERVERS, WORKERS)
NAME = f"{machine_name_stem(CLUSTER, 'workers')}x7k2p"
VM = OrphanVm("default", NAME, "vm-1", "machine-1", cluster_uid="cluster-uid")


def a_raw(name: str = NAME, cluster: str = "cluster-uid", machine: str = "machine-1", **head: Any) -> Any:
    annotations = owner_annotations(cluster, machine)
    labels = {VM_NAME: NAME}
    head = {"namespace": "default", "uid": "vm-1", "annotations": annotations, "labels": labels, **head}
    return {"metadata": {"name": name, **head}}


# -- proofs


def test_a_vm_with_both_uids_and_its_own_name_in_its_label_is_read() -> None:
    assert read_orphan_vm(a_raw(), CLUSTER) == VM
    assert read_orphan_vm(a_raw(deletionTimestamp="2026-01-01T12:00:00Z"), CLUSTER) == replace(
        VM, is_deleting=True
    )


@pytest.mark.parametrize(
    "raw", [a_raw(cluster="another"), a_raw(cluster=""), a_raw(machine=""), a_raw(annotations=None)]
)
def test_a_vm_without_the_uids_of_this_cluster_and_of_a_machine_is_none_of_its(raw: Any) -> None:
    assert read_orphan_vm(raw, CLUSTER) is None


def test_a_vm_of_any_cluster_has_the_uids_of_a_cluster_and_of_a_machine() -> None:
    found = read_cluster_vm(a_raw(cluster="another"))
    assert found is not None
    assert found.cluster_uid == "another"
    assert read_cluster_vm(a_raw(cluster="")) is None
    assert read_cluster_vm(a_raw(machine="")) is None


@pytest.mark.parametrize("labels", [{VM_NAME: "another"}, {}])
def test_a_vm_whose_label_names_another_is_unproven(labels: dict[str, str]) -> None:
    vm = read_orphan_vm(a_raw(labels=labels), CLUSTER)
    assert vm is not None
    assert "may be a copy of that VM" in vm.unproven
    assert prove_vm(vm, CLUSTER, secret_of(vm.uid)) == vm
    assert prove_vm(vm, CLUSTER, None) == vm


OWN_CLAIM = claim_name(NAME, "disk-0", "machine-1")


def secret_of(vm_uid: str) -> Any:
    return build_secret("default", NAME, vm_uid, user_data="")


@pytest.mark.parametrize(
    ("vm", "secret", "lacks"),
    [
        (VM, secret_of("vm-1"), ""),
        (VM, secret_of("vm-2"), f"Secret {NAME}-cloudinit belongs to another VM, so it may be a copy"),
        (VM, None, f"Secret {NAME}-cloudinit cannot be read, so it may be a copy"),
        (replace(VM, claims=(OWN_CLAIM,)), None, ""),
        (replace(VM, claims=(OWN_CLAIM, "data")), None, f"Secret {NAME}-cloudinit cannot be read"),
        (replace(VM, claims=(f"{NAME}-disk-0-copy1",)), None, f"Secret {NAME}-cloudinit cannot be read"),
        (replace(VM, claims=(OWN_CLAIM,), machine_uid="machine-2"), None, f"Secret {NAME}-cloudinit cannot"),
        (
            replace(VM, claims=(OWN_CLAIM,)),
            secret_of("vm-2"),
            f"Secret {NAME}-cloudinit belongs to another VM",
        ),
        (replace(VM, is_deleting=True, claims=(OWN_CLAIM, "data")), None, ""),
        (replace(VM, is_deleting=True, claims=("data",)), None, f"Secret {NAME}-cloudinit cannot be read"),
        (replace(VM, is_deleting=True), secret_of("vm-1"), ""),
        (replace(VM, name="precious"), secret_of("vm-1"), "Cluster prod gives no machine such a name"),
        (replace(VM, name="precious", is_deleting=True), None, "Cluster prod gives no machine such a name"),
    ],
)
def test_a_vm_is_proven_by_its_name_and_its_secret_or_where_there_is_none_by_its_disks(
    vm: OrphanVm, secret: Any, lacks: str
) -> None:
    proven = prove_vm(vm, CLUSTER, secret)
    assert proven.unproven.startswith(lacks)
    assert replace(proven, unproven="") == vm
    assert bool(proven.unproven) == bool(lacks)


DISK = OWN_CLAIM
CLAIM = MachineClaim("default", DISK, "machine-1", "cluster-uid", uid="claim-1")


def test_a_vm_is_read_with_the_claims_among_its_volumes() -> None:
    volumes = [
        {"name": "disk-0", "persistentVolumeClaim": {"claimName": DISK}},
        {"name": "cloudinitdisk", "cloudInitNoCloud": {"secretRef": {"name": "x"}}},
    ]
    raw = {**a_raw(), "spec": {"template": {"spec": {"volumes": volumes}}}}

    assert read_orphan_vm(raw, CLUSTER) == replace(VM, claims=(DISK,))
    volumes.append({"name": "odd", "persistentVolumeClaim": {"hotpluggable": True}})
    assert read_orphan_vm(raw, CLUSTER) == replace(VM, claims=(DISK, ""))


def test_a_claim_among_the_volumes_of_a_vm_is_used_before_harvester_says_so() -> None:
    another = replace(CLAIM, name="another")
    elsewhere = replace(CLAIM, namespace="elsewhere")

    assert without_claims_of([replace(VM, claims=(DISK,))], [CLAIM, another, elsewhere]) == [
        another,
        elsewhere,
    ]


def test_a_claim_with_both_uids_is_read_with_what_holds_it() -> None:
    raw = a_raw(DISK, uid="claim-1", deletionTimestamp="2026-01-01T12:00:00Z", finalizers=["x/y"])
    assert read_machine_claim(raw) == replace(CLAIM, is_deleting=True, finalizers=("x/y",))
    assert str(read_machine_claim(raw)) == f"PersistentVolumeClaim default/{DISK} (finalizers: x/y)"
    assert read_machine_claim(a_raw(DISK, uid="claim-1")) == CLAIM
    used = {OWNED_BY: '[{"schema":"kubevirt.io.virtualmachine","refs":["default/other"]}]'}
    in_use = a_raw(DISK, uid="claim-1", annotations={**owner_annotations("cluster-uid", "machine-1"), **used})
    assert read_machine_claim(in_use) == replace(CLAIM, is_used=True)
    assert CLAIM.ref.path == f"/api/v1/namespaces/default/persistentvolumeclaims/{DISK}"
    assert VM.ref.path == f"/apis/kubevirt.io/v1/namespaces/default/virtualmachines/{NAME}"
    assert str(CLAIM) == f"PersistentVolumeClaim default/{DISK}"
    assert read_machine_claim(a_raw(DISK, cluster="")) is None
    assert read_machine_claim(a_raw(DISK, machine="")) is None


@pytest.mark.parametrize(
    ("claim", "is_proven"),
    [
        (CLAIM, True),
        (replace(CLAIM, machine_uid="machine-2"), False),
        (replace(CLAIM, name=f"{DISK}-copy"), False),
        (replace(CLAIM, name=claim_name("precious", "disk-0", "machine-1")), False),
        (replace(CLAIM, name=claim_name(NAME, "data", "machine-1")), True),
        # No server of Kubernetes has such a name; one of a tenant's own may say so, and is not searched through.
        (replace(CLAIM, name=claim_name(NAME, "d" * 230, "machine-1")), False),
        (
            replace(
                CLAIM,
                name=claim_name(NAME, "d" * (253 - len(claim_name(NAME, "", "machine-1"))), "machine-1"),
            ),
            True,
        ),
        (replace(CLAIM, name="-" * 1_000_000), False),
    ],
)
def test_a_claim_is_proven_by_its_name(claim: MachineClaim, is_proven: bool) -> None:
    proven = prove_claim(claim, CLUSTER)
    assert (proven.unproven == "") is is_proven
    assert replace(proven, unproven="") == claim


@pytest.mark.parametrize(
    ("claim", "machine", "uid", "is_its"),
    [
        (CLAIM, NAME, "machine-1", True),
        (CLAIM, NAME, "machine-2", False),
        (CLAIM, "another", "machine-1", False),
        (replace(CLAIM, name=f"{DISK}-copy"), NAME, "machine-1", False),
        (replace(CLAIM, machine_uid="machine-2"), NAME, "machine-1", False),  # by its name alone
    ],
)
def test_a_claim_is_a_machines_by_its_uid_and_its_name(
    claim: MachineClaim, machine: str, uid: str, is_its: bool
) -> None:
    assert is_claim_of(claim, machine, uid) is is_its


def test_vms_of_clusters_of_one_name_have_its_label_or_are_from_before_there_was_one() -> None:
    assert same_name_selectors("prod") == (
        f"{GUEST_CLUSTER}=prod",
        f"{CREATOR}=docker-machine-driver-harvester,!{GUEST_CLUSTER}",
    )


# -- where to look

BEGUN = RecordedStatus(init_server_uid="uid-s1", harvester_uid="harvester-1")
ACCOUNT = GuestServiceAccount("default", "prod", "ns:cc")


@pytest.mark.parametrize(
    ("cluster", "found"),
    [
        (a_cluster(WORKERS, recorded=BEGUN), replace(ACCOUNT, harvester="harvester-1")),
        (
            a_cluster(WORKERS, recorded=replace(BEGUN, init_server_uid="", initialized=True)),
            replace(ACCOUNT, harvester="harvester-1"),
        ),
        (
            a_cluster(WORKERS, recorded=replace(BEGUN, service_account=replace(ACCOUNT, harvester="own"))),
            replace(ACCOUNT, harvester="own"),
        ),
        (
            a_cluster(WORKERS, replace(SERVERS, driver="digitalocean"), recorded=BEGUN),
            replace(ACCOUNT, harvester="harvester-1"),
        ),
        (a_cluster(replace(SERVERS, driver="digitalocean"), recorded=BEGUN), None),
        (a_newborn(WORKERS), None),
        (a_cluster(replace(WORKERS, options=None), recorded=BEGUN), None),
        (replace(a_cluster(WORKERS, recorded=BEGUN), credential="cc"), None),
    ],
)
def test_the_vms_of_a_cluster_are_looked_for_once_machines_were_created(cluster: Any, found: Any) -> None:
    assert location_of(cluster) == found


# -- the end of a Cluster


def ended(**left: Any) -> Any:
    return planned(replace(CLUSTER, deletion_timestamp=NOON), orphans=Orphans(**left))


def test_proven_vms_are_deleted_at_the_end_and_waited_for() -> None:
    gone = replace(VM, name=f"{NAME}2", is_deleting=True)

    plan = ended(vms=(VM, gone))

    (delete,) = of_kind(plan, DeleteUnrecordedVMs)
    assert isinstance(delete, DeleteUnrecordedVMs)
    assert delete.vms == (VM,)
    assert delete.because == (
        f"VirtualMachine default/{NAME} and 1 more carries the uid of the deleted Cluster, and no Machine records it"
    )
    assert not of_kind(plan, RemoveFinalizer)
    assert [type(action) for action in ended(vms=(gone,)).actions] == []
    assert ended(vms=(gone,)).waits[0].what.startswith(f"VirtualMachine default/{NAME}2 to be deleted")


def test_vms_without_proof_are_kept_and_not_waited_for() -> None:
    plan = ended(vms=(replace(VM, unproven="it may be a copy"),))

    assert not of_kind(plan, DeleteUnrecordedVMs)
    (kept,) = of_kind(plan, KeepVMs)
    assert kept.because == (
        f"VirtualMachine default/{NAME} with its disks, since it may be a copy; if it is not needed, delete it by "
        f"hand, there: kubectl --kubeconfig HARVESTER.yaml -n default delete virtualmachines.kubevirt.io {NAME}"
    )
    assert of_kind(plan, RemoveFinalizer)


def test_disks_follow_the_vms_and_those_without_proof_are_kept() -> None:
    unproven = replace(CLAIM, name="copy", unproven="it may be a copy")

    assert not of_kind(ended(vms=(VM,), disks=(CLAIM,)), DeleteUnrecordedClaims)
    plan = ended(disks=(CLAIM, unproven))
    (delete,) = of_kind(plan, DeleteUnrecordedClaims)
    assert isinstance(delete, DeleteUnrecordedClaims)
    assert delete.claims == (CLAIM,)
    assert not of_kind(plan, KeepClaims, RemoveFinalizer)
    plan = ended(disks=(unproven,))
    assert not of_kind(plan, DeleteUnrecordedClaims)
    assert [action.because.partition(";")[0] for action in of_kind(plan, KeepClaims)] == [
        "PersistentVolumeClaim default/copy, since it may be a copy"
    ]
    assert of_kind(plan, RemoveFinalizer)


def test_claims_that_terminate_hold_up_the_end_and_are_named() -> None:
    plan = ended(claims=("PersistentVolumeClaim default/a (finalizers: x)", "b", "c"))

    assert plan.waits[0].what == "PersistentVolumeClaim default/a (finalizers: x) to be deleted (and 2 more)"
    assert not of_kind(plan, RemoveFinalizer)
    assert ended(claims=("a",)).waits[0].what == "a to be deleted"
    assert ended(disks=(CLAIM,)).waits[0].what == f"PersistentVolumeClaim default/{DISK} to be deleted"
    two = ended(disks=(CLAIM, replace(CLAIM, name="b")))
    assert two.waits[0].what == f"PersistentVolumeClaim default/{DISK} to be deleted (and 1 more)"


@pytest.mark.parametrize("left", [{"vms": (VM,)}, {"disks": (CLAIM,)}, {"claims": ("a",)}])
def test_what_is_waited_for_at_the_end_is_looked_at_again_after_five_seconds(left: dict[str, Any]) -> None:
    assert [wait.until for wait in ended(**left).waits] == [NOON + timedelta(seconds=5)]


def test_a_machine_whose_finalizer_is_removed_already_is_left_alone() -> None:
    (released,) = some("w", 1, WORKERS)
    released = leaving(replace(released, record=replace(released.record, has_finalizer=False)))

    assert of_kind(planned(replace(CLUSTER, deletion_timestamp=NOON), [released]), DeleteVM) == []
    assert of_kind(planned(CLUSTER, [*some("s", 3, SERVERS), released]), DeleteVM) == []


# -- VMs that no Machine of a living Cluster records


def held_because(cluster: Any, machines: Any = None, vm: OrphanVm = VM) -> str:
    state = look(cluster, some("s", 3, SERVERS) if machines is None else machines, unrecorded=(vm,))
    decision = decide(state)
    assert not decision.adopted
    assert not of_kind(planned(cluster, state.machines, unrecorded=(vm,)), AdoptVM)
    return describe_held(decision.held)


def test_a_vm_is_held_where_its_pool_is_paused_or_has_no_config_of_harvester() -> None:
    assert "machine pool workers is paused" in held_because(a_cluster(SERVERS, replace(WORKERS, paused=True)))
    words = "pool workers has no machine config of Harvester"
    assert words in held_because(a_cluster(SERVERS, replace(WORKERS, options=None)))
    assert words in held_because(a_cluster(SERVERS, replace(WORKERS, driver="digitalocean")))


def test_a_vm_is_held_where_no_server_is_known_unless_it_is_the_init_server_itself() -> None:
    unstarted = a_cluster(SERVERS, WORKERS, recorded=RecordedStatus(init_server_uid="machine-s"))
    server = replace(VM, name=f"{machine_name_stem(CLUSTER, 'servers')}aaaaa")

    words = "the cluster has no server with an address; restore a later backup"
    assert words in held_because(unstarted, [], server)
    init = replace(server, machine_uid="machine-s")
    assert decide(look(unstarted, [], unrecorded=(init,))).adopted[0][0] == init


def test_each_pool_adopts_its_own_vms() -> None:
    more = a_pool("more", 1)
    of_more = replace(VM, name=f"{machine_name_stem(CLUSTER, 'more')}aaaaa", uid="vm-2")
    decision = decide(
        look(a_cluster(SERVERS, WORKERS, more), some("s", 3, SERVERS), unrecorded=(of_more, VM))
    )

    assert (decision.adopted_by(WORKERS), decision.adopted_by(more)) == ((VM,), (of_more,))


def test_the_first_of_many_held_vms_is_named_with_the_way_to_delete_it() -> None:
    vms = tuple(replace(VM, name=f"copy-{number}", uid=f"u{number}") for number in range(5))
    text = describe_held(decide(look(CLUSTER, some("s", 3, SERVERS), unrecorded=vms)).held)

    assert "copy-2" in text
    assert "copy-3" not in text
    assert "; and 2 more; to be rid of one, delete it on Harvester: " in text
    assert text.endswith(
        "kubectl --kubeconfig HARVESTER.yaml -n default delete virtualmachines.kubevirt.io copy-0"
    )
    three = describe_held(decide(look(CLUSTER, some("s", 3, SERVERS), unrecorded=vms[:3])).held)
    assert "more" not in three


def test_a_vm_of_a_removed_pool_may_be_an_etcd_member_and_one_of_workers_may_not() -> None:
    def suspect(vm: OrphanVm, *pools: Any) -> str:
        machines = [*some("s", 2, SERVERS), missing(some("s", 3, SERVERS)[2])]
        return may_have_unrecorded_etcd_member(look(a_cluster(*pools), machines, unrecorded=(vm,)))

    assert suspect(VM, SERVERS) == f"VirtualMachine default/{NAME}"
    assert suspect(VM, SERVERS, WORKERS) == ""
    assert may_have_unrecorded_etcd_member(look(CLUSTER, unrecorded=None)) == ""


def test_three_of_many_disks_are_named_with_the_way_to_delete_the_first() -> None:
    claims = tuple(replace(CLAIM, name=f"disk-{number}") for number in range(5))

    assert describe_claims(claims[:3]).startswith(
        "PersistentVolumeClaims default/disk-0, default/disk-1, default/disk-2 carry the uid of this Cluster"
    )
    assert "default/disk-2 and 2 more carry" in describe_claims(claims)
    assert "; they are deleted with the Cluster; " in describe_claims(claims)
    assert describe_claims(claims).endswith(
        "kubectl --kubeconfig HARVESTER.yaml -n default delete persistentvolumeclaims disk-0"
    )


def test_a_disk_without_proof_is_said_to_stay_when_the_cluster_is_deleted() -> None:
    copy = replace(CLAIM, name="copy", unproven="it may be a copy")

    alone = describe_claims((copy,))
    assert "are deleted with the Cluster" not in alone
    assert "; they stay when the Cluster is deleted, since it may be a copy; " in alone
    assert alone.endswith("kubectl --kubeconfig HARVESTER.yaml -n default delete persistentvolumeclaims copy")
    own, others = describe_claims((CLAIM, copy)).split("; PersistentVolumeClaims default/copy carry ")
    assert own.startswith(f"PersistentVolumeClaims default/{DISK} carry ")
    assert "are deleted with the Cluster" in own
    assert "they stay" in others
