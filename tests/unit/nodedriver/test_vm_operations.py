"""Every talk, run both ways: by the blocking runner on one watch, and by the asyncio runner on shared caches."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from tests.unit.nodedriver.api_double import ApiDouble, refusal

from windrow.core.json import dumps, loads
from windrow.harvester.identity import owner_annotations
from windrow.harvester.names import REMOVED_CLAIMS
from windrow.harvester.resources import IMAGE, KEY_PAIR, NETWORK, VMI
from windrow.harvester.vms import read_vm
from windrow.kubernetes.errors import (
    Conflict,
    Forbidden,
    KubeError,
    NotFound,
    OutcomeUnknown,
    ServerError,
    Unreachable,
)
from windrow.kubernetes.requests import Reply
from windrow.kubernetes.resources import NODE, PVC, SECRET, STORAGE_CLASS
from windrow.nodedriver.config import Configuration
from windrow.nodedriver.devices import DiskSpec, NicSpec
from windrow.nodedriver.effects import WaitTimeout
from windrow.nodedriver.errors import Busy, Refused
from windrow.nodedriver.validate.check import check
from windrow.nodedriver.vm import conditions, power
from windrow.nodedriver.vm.create import ensure_created
from windrow.nodedriver.vm.observe import get_status, observe_vm
from windrow.nodedriver.vm.plan import planned_claims
from windrow.nodedriver.vm.remove import remove
from windrow.nodedriver.vm.replace_user_data import replace_user_data

BASE = Configuration(
    machine_name="m",
    vm_namespace="ns",
    cluster_name="c",
    machine_uid="m-1",
    cluster_uid="c-1",
    disk_info=(DiskSpec("image", size_gib=40),),
    network_info=(NicSpec("net"),),
)
REF = BASE.ref
VMI_REF = VMI.ref("m", "ns")
SECRET_REF = SECRET.ref("m-cloudinit", "ns")
BOOTSTRAP = "#cloud-config\nruncmd: [install]\n"
OURS = {"annotations": owner_annotations("c-1", "m-1")}
READY = {
    "spec": {"displayName": "jammy.img"},
    "status": {
        "progress": 100,
        "storageClassName": "lh",
        "conditions": [{"type": "Imported", "status": "True"}],
    },
}


@pytest.fixture(params=["blocking", "asyncio"])
def way(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def a_shelf() -> ApiDouble:
    return ApiDouble(
        (IMAGE.ref("image", "ns"), READY), (NETWORK.ref("net", "ns"), {"spec": {"config": "{}"}})
    )


def a_vm(*claims: str, **metadata: Any) -> dict[str, Any]:
    volumes = [{"name": claim, "persistentVolumeClaim": {"claimName": claim}} for claim in claims]
    return {
        "metadata": {**OURS, **metadata},
        "spec": {"runStrategy": "RerunOnFailure", "template": {"spec": {"volumes": volumes}}},
        "status": {"runStrategy": "RerunOnFailure", "printableStatus": "Running"},
    }


def ordered(shelf: ApiDouble, way: str, configuration: Configuration = BASE) -> Configuration:
    made: Configuration = shelf.run_both_ways(lambda: ensure_created(configuration, BOOTSTRAP), way)
    return made


# --- order ---------------------------------------------------------------------------------------------------------


def test_an_order_reads_the_image_and_makes_vm_and_secret(way: str) -> None:
    shelf = a_shelf()
    made = ordered(shelf, way)
    assert shelf.requests == ["GET virtualmachineimages/image", "POST ns/virtualmachines", "POST ns/secrets"]
    assert made.vm_uid == shelf.objects[REF.path]["metadata"]["uid"]
    assert made.claims == planned_claims(BASE)
    owner = shelf.objects[SECRET_REF.path]["metadata"]["ownerReferences"][0]
    assert owner == {
        "apiVersion": "kubevirt.io/v1",
        "kind": "VirtualMachine",
        "name": "m",
        "uid": made.vm_uid,
    }


@pytest.mark.parametrize(
    ("user_data", "network_data", "keys"),
    [
        ("", "", {"userdata"}),
        ("", "version: 2\n", {"userdata"}),
        ("", "#" * 2049, {"userdata", "networkdata"}),
        ("#cloud-config\nx: " + "x" * 2049, "", {"userdata"}),
        ("#cloud-config\nx: " + "x" * 2049, "version: 2\n", {"userdata"}),
    ],
)
def test_the_secret_holds_network_data_only_where_that_is_long(
    way: str, user_data: str, network_data: str, keys: set[str]
) -> None:
    shelf = a_shelf()
    ordered(shelf, way, replace(BASE, user_data=user_data, network_data=network_data))
    assert set(shelf.objects[SECRET_REF.path]["data"]) == keys
    [cloud_init] = [
        volume["cloudInitNoCloud"]
        for volume in shelf.objects[REF.path]["spec"]["template"]["spec"]["volumes"]
        if "cloudInitNoCloud" in volume
    ]
    assert ("networkDataSecretRef" in cloud_init) == ("networkdata" in keys)
    assert cloud_init.get("networkData", "") == ("" if "networkdata" in keys else network_data)


def test_a_repeated_order_finds_what_is_there(way: str) -> None:
    shelf = a_shelf()
    first = ordered(shelf, way)
    before = dict(shelf.objects)
    assert ordered(shelf, way) == first
    assert shelf.objects == before


def test_an_empty_disk_is_claimed_as_its_class_allows(way: str) -> None:
    modes = {"Filesystem": ["ReadWriteOnce"]}
    annotation = {"cdi.harvesterhci.io/storageProfileVolumeModeAccessModes": dumps(modes).decode()}
    shelf = ApiDouble((STORAGE_CLASS.ref("lvm"), {"metadata": {"annotations": annotation}}))
    ordered(shelf, way, replace(BASE, disk_info=(DiskSpec("", "lvm", 10),)))
    assert shelf.requests == ["GET storageclasses/lvm", "POST ns/virtualmachines", "POST ns/secrets"]
    [claim] = claim_templates(shelf)
    assert (claim["spec"]["accessModes"], claim["spec"]["volumeMode"]) == (["ReadWriteOnce"], "Filesystem")


def test_a_disk_from_an_image_outside_longhorn_is_claimed_as_its_class_allows(way: str) -> None:
    modes = {"Block": ["ReadWriteOnce"]}
    annotation = {"cdi.harvesterhci.io/storageProfileVolumeModeAccessModes": dumps(modes).decode()}
    shelf = a_shelf()
    shelf.put(IMAGE.ref("image", "ns"), {**READY, "spec": {**READY["spec"], "backend": "cdi"}})
    shelf.put(STORAGE_CLASS.ref("lh"), {"metadata": {"annotations": annotation}})
    ordered(shelf, way)
    assert shelf.requests[:2] == ["GET virtualmachineimages/image", "GET storageclasses/lh"]
    assert claim_templates(shelf)[0]["spec"]["accessModes"] == ["ReadWriteOnce"]


def test_a_class_that_may_not_be_read_is_taken_to_be_as_longhorn_s(way: str) -> None:
    shelf = ApiDouble()
    shelf.answer("GET", "lvm", refusal(403, "Forbidden", "may not"))
    ordered(shelf, way, replace(BASE, disk_info=(DiskSpec("", "lvm", 10),)))
    assert claim_templates(shelf)[0]["spec"]["accessModes"] == ["ReadWriteMany"]


def claim_templates(shelf: ApiDouble) -> Any:
    annotations = shelf.objects[REF.path]["metadata"]["annotations"]
    return loads(annotations["harvesterhci.io/volumeClaimTemplates"])


def test_a_key_pair_gives_its_public_key(way: str) -> None:
    shelf = a_shelf()
    ready = {
        "spec": {"publicKey": "ssh-k"},
        "status": {"conditions": [{"type": "validated", "status": "True"}]},
    }
    shelf.put(KEY_PAIR.ref("k", "ns"), ready)
    assert ordered(shelf, way, replace(BASE, key_pair_name="k")).ssh_public_key == "ssh-k"


def test_a_vm_that_harvester_denies_leaves_nothing(way: str) -> None:
    shelf = a_shelf()
    text = 'admission webhook "validator.harvesterhci.io" denied the request: cpu insufficient'
    shelf.answer("POST", "virtualmachines", refusal(500, "InternalError", text))
    with pytest.raises(Refused, match="refuses VM ns/m: cpu insufficient") as refused:
        ordered(shelf, way)
    assert refused.value.problems[0].hint
    assert REF.path not in shelf.objects
    assert "POST ns/secrets" not in shelf.requests


def test_a_quota_that_is_used_up_refuses_the_machine(way: str) -> None:
    shelf = a_shelf()
    text = 'virtualmachines.kubevirt.io "m" is forbidden: exceeded quota: q, requested: count/vms=1'
    shelf.answer("POST", "virtualmachines", refusal(403, "Forbidden", text))
    with pytest.raises(Refused, match=r"refuses VM ns/m: .*exceeded quota: q"):
        ordered(shelf, way)
    assert "POST ns/secrets" not in shelf.requests


def test_a_namespace_that_does_not_exist_refuses_the_machine(way: str) -> None:
    shelf = a_shelf()
    shelf.answer("POST", "virtualmachines", refusal(404, "NotFound", 'namespaces "ns" not found'))
    with pytest.raises(Refused, match='namespaces "ns"'):
        ordered(shelf, way)


@pytest.mark.parametrize(
    "error", [ServerError("boom", status=500), Unreachable("no route"), Forbidden("rights", status=403)]
)
def test_what_says_nothing_about_the_machine_comes_through(way: str, error: KubeError) -> None:
    shelf = a_shelf()
    shelf.answer("POST", "virtualmachines", error)
    with pytest.raises(type(error)):
        ordered(shelf, way)


def test_a_lost_answer_is_looked_up(way: str) -> None:
    shelf = a_shelf()
    ordered(shelf, way)
    shelf.answer("POST", "virtualmachines", OutcomeUnknown("reset"))
    shelf.answer("POST", "secrets", OutcomeUnknown("reset"))
    assert ordered(shelf, way).vm_uid == shelf.objects[REF.path]["metadata"]["uid"]


def test_a_lost_answer_that_was_a_lost_request_comes_through(way: str) -> None:
    shelf = a_shelf()
    shelf.answer("POST", "virtualmachines", OutcomeUnknown("reset"))
    with pytest.raises(OutcomeUnknown):
        ordered(shelf, way)


def test_the_vm_of_another_is_not_taken(way: str) -> None:
    shelf = a_shelf()
    shelf.put(REF, {"metadata": {"annotations": owner_annotations("c-1", "other")}})
    before = dict(shelf.objects)
    with pytest.raises(Refused, match="a VM ns/m exists and is not this machine's"):
        ordered(shelf, way)
    assert shelf.objects == before


def test_the_secret_of_another_is_not_taken_and_the_vm_goes_again(way: str) -> None:
    shelf = a_shelf()
    shelf.put(SECRET_REF, {"data": {}})
    before = dict(shelf.objects)
    with pytest.raises(Refused, match="a Secret ns/m-cloudinit exists"):
        ordered(shelf, way)
    assert shelf.objects == before
    assert any("deleting VM m: its cloud-init Secret was refused" in note for note in shelf.log_lines)


def test_a_secret_that_harvester_refuses_takes_the_vm_back(way: str) -> None:
    shelf = a_shelf()
    shelf.answer("POST", "secrets", refusal(403, "Forbidden", "exceeded quota: count/secrets"))
    with pytest.raises(Refused, match="refuses Secret ns/m-cloudinit: exceeded quota"):
        ordered(shelf, way)
    assert REF.path not in shelf.objects


def test_a_secret_that_could_not_be_made_yet_leaves_the_vm_for_the_next_order(way: str) -> None:
    shelf = a_shelf()
    shelf.answer("POST", "secrets", refusal(403, "Forbidden", "may not create secrets"))
    with pytest.raises(Forbidden):
        ordered(shelf, way)
    assert REF.path in shelf.objects


def test_a_secret_of_an_earlier_vm_makes_room(way: str) -> None:
    shelf = a_shelf()
    ordered(shelf, way)
    shelf.drop(REF)
    made = ordered(shelf, way)
    assert shelf.objects[SECRET_REF.path]["metadata"]["ownerReferences"][0]["uid"] == made.vm_uid


def test_an_image_that_vanished_after_the_vm_was_made_does_not_stop_its_secret(way: str) -> None:
    shelf = a_shelf()
    ordered(shelf, way)
    shelf.drop(SECRET_REF)
    shelf.drop(IMAGE.ref("image", "ns"))
    ordered(shelf, way)
    assert SECRET_REF.path in shelf.objects


def test_an_image_that_is_not_there_refuses_the_machine(way: str) -> None:
    with pytest.raises(Refused, match="image ns/image does not exist"):
        ordered(ApiDouble(), way)


# --- check ---------------------------------------------------------------------------------------------------------


def test_a_check_asks_for_each_thing_once(way: str) -> None:
    shelf = a_shelf()
    many = [replace(BASE, machine_name=f"m-{place}") for place in range(5)]
    assert shelf.run_both_ways(lambda: check(many), way) == []
    assert sorted(shelf.requests) == [
        "GET network-attachment-definitions/net",
        "GET virtualmachineimages/image",
    ]


def test_a_check_tells_everything_that_is_wrong(way: str) -> None:
    shelf = ApiDouble(
        (
            IMAGE.ref("image", "ns"),
            {"metadata": {"labels": {"harvesterhci.io/image-type": "iso"}}, "spec": {"displayName": "x"}},
        ),
        (STORAGE_CLASS.ref("vmstate-persistence"), {}),
        (
            NETWORK.ref("net", "ns"),
            {"metadata": {"annotations": {"storage-network.settings.harvesterhci.io": "true"}}},
        ),
        (KEY_PAIR.ref("k", "ns"), {}),
    )
    asked = replace(
        BASE,
        key_pair_name="k",
        disk_info=(
            DiskSpec("image", size_gib=1),
            DiskSpec("", "vmstate-persistence", 1),
            DiskSpec("", "absent", 1),
        ),
        network_info=(NicSpec("net"), NicSpec("other/nowhere")),
    )
    problems = shelf.run_both_ways(lambda: check([asked]), way)
    messages = [problem.message for problem in problems]
    assert messages == [
        "image ns/image (x) is not ready: 0 % imported",
        "image ns/image (x) is an installer disc (ISO), from which no machine boots by itself",
        "keypair ns/k is not validated",
        "storage class vmstate-persistence is Harvester's own",
        "storage class absent does not exist",
        "network ns/net is Harvester's storage network",
        "network other/nowhere does not exist",
    ]
    assert all(problem.hint and problem.field for problem in problems)


def test_a_check_warns_where_nothing_tells_what_an_image_is(way: str) -> None:
    shelf = a_shelf()
    shelf.put(IMAGE.ref("image", "ns"), {**READY, "spec": {"displayName": "jammy"}})
    [problem] = shelf.run_both_ways(lambda: check([BASE]), way)
    assert problem.severity == "warning"
    assert "may be a cloud image or an installer disc" in problem.message


def test_a_network_whose_hosts_are_not_ready_is_told(way: str) -> None:
    shelf = a_shelf()
    labels = {"network.harvesterhci.io/ready": "false", "network.harvesterhci.io/clusternetwork": "vlans"}
    shelf.put(NETWORK.ref("net", "ns"), {"metadata": {"labels": labels}})
    [problem] = shelf.run_both_ways(lambda: check([BASE]), way)
    assert problem.message == "network ns/net is not ready: its cluster network vlans is not"


def test_a_check_without_rights_tells_which(way: str) -> None:
    shelf = a_shelf()
    shelf.answer("GET", "image", refusal(403, "Forbidden", "may not"))
    shelf.answer("GET", "net", refusal(403, "Forbidden", "may not"))
    problems = shelf.run_both_ways(lambda: check([BASE]), way)
    assert [(problem.field, problem.severity) for problem in problems] == [
        ("diskInfo", "error"),
        ("networkInfo", "warning"),
    ]


def test_a_check_that_could_not_be_made_is_not_a_finding(way: str) -> None:
    shelf = a_shelf()
    shelf.answer("GET", "net", Unreachable("no route"))
    with pytest.raises(Unreachable):
        shelf.run_both_ways(lambda: check([BASE]), way)


def test_a_disk_smaller_than_its_image_is_told(way: str) -> None:
    shelf = a_shelf()
    big = {**READY, "status": {**READY["status"], "virtualSize": 50 * 2**30 + 1}}
    shelf.put(IMAGE.ref("image", "ns"), big)
    [problem] = [
        found for found in shelf.run_both_ways(lambda: check([BASE]), way) if found.severity == "error"
    ]
    assert "disk-0 has 40 GiB" in problem.message
    assert "needs 51 GiB" in problem.message


# --- remove --------------------------------------------------------------------------------------------------------


def removed(shelf: ApiDouble, way: str, configuration: Configuration, *volumes: str) -> bool:
    gone: bool = shelf.run_both_ways(lambda: remove(configuration, frozenset(volumes)), way)
    return gone


def test_a_removal_names_its_own_disks_and_deletes_the_vm(way: str) -> None:
    shelf = ApiDouble((REF, a_vm("own", "csi", "ui")))
    patches: list[Any] = []
    serve = shelf.serve

    def noting(request: Any) -> Reply:
        if request.method == "PATCH":
            patches.append(loads(request.body))
        return serve(request)

    shelf.serve = noting  # type: ignore[method-assign]
    assert removed(shelf, way, replace(BASE, claims=("own", "moved")), "named") is False
    assert shelf.requests == ["GET virtualmachines/m", "PATCH virtualmachines/m", "DELETE virtualmachines/m"]
    assert patches[0]["metadata"]["annotations"] == {REMOVED_CLAIMS: "named,own"}
    assert REF.path not in shelf.objects


def test_a_current_reading_may_stand_for_the_first_look(way: str) -> None:
    shelf = ApiDouble((REF, a_vm("own", "csi")))
    known = read_vm(shelf.objects[REF.path])
    asked = replace(BASE, claims=("own",))
    assert shelf.run_both_ways(lambda: remove(asked, frozenset(), known), way) is False
    assert shelf.requests == ["PATCH virtualmachines/m", "DELETE virtualmachines/m"]


def test_a_reading_does_not_do_where_the_own_disks_are_not_recorded(way: str) -> None:
    shelf = ApiDouble((REF, a_vm("own")))
    known = read_vm(shelf.objects[REF.path])
    shelf.run_both_ways(lambda: remove(BASE, frozenset(), known), way)
    assert shelf.requests[0] == "GET virtualmachines/m"


def test_a_removal_that_is_under_way_is_left_alone(way: str) -> None:
    vm = a_vm(
        "own", deletionTimestamp="x", annotations={**owner_annotations("c-1", "m-1"), REMOVED_CLAIMS: "own"}
    )
    shelf = ApiDouble((REF, vm))
    removed(shelf, way, replace(BASE, claims=("own",)))
    assert shelf.requests == ["GET virtualmachines/m"]


def test_a_deletion_by_another_user_still_takes_the_disks_along(way: str) -> None:
    shelf = ApiDouble((REF, a_vm("own", deletionTimestamp="x")))
    removed(shelf, way, replace(BASE, claims=("own",)))
    assert shelf.requests == ["GET virtualmachines/m", "PATCH virtualmachines/m"]


def test_the_vm_of_another_is_not_removed(way: str) -> None:
    shelf = ApiDouble((REF, a_vm("own", annotations=owner_annotations("c-1", "other"))))
    before = dict(shelf.objects)
    assert removed(shelf, way, BASE) is True
    assert shelf.objects == before


def test_what_a_lost_vm_left_behind_goes_if_it_is_marked(way: str) -> None:
    shelf = ApiDouble(
        (SECRET_REF, {"metadata": OURS}),
        (PVC.ref("own", "ns"), {"metadata": OURS}),
        (PVC.ref("unmarked", "ns"), {}),
        (PVC.ref("named", "ns"), {}),
        (PVC.ref("stranger", "ns"), {"metadata": OURS}),
    )
    assert removed(shelf, way, replace(BASE, claims=("own", "unmarked")), "named") is True
    assert sorted(ref.rpartition("/")[2] for ref in shelf.objects) == ["stranger", "unmarked"]


def test_a_leftover_that_harvester_keeps_is_named_and_not_insisted_on(way: str) -> None:
    shelf = ApiDouble((PVC.ref("own", "ns"), {"metadata": OURS}))
    denial = 'admission webhook "validator.harvesterhci.io" denied the request: attached to VM: ns/other'
    shelf.answer("DELETE", "own", refusal(409, "Conflict", denial))
    assert removed(shelf, way, replace(BASE, claims=("own",))) is True
    assert shelf.log_lines == [f"PersistentVolumeClaim ns/own stays: {denial}"]


def test_a_leftover_that_changed_since_it_was_read_is_not_given_up(way: str) -> None:
    shelf = ApiDouble((PVC.ref("own", "ns"), {"metadata": OURS}))
    shelf.answer("DELETE", "own", refusal(409, "Conflict", "Operation cannot be fulfilled on it"))
    with pytest.raises(Conflict):
        removed(shelf, way, replace(BASE, claims=("own",)))
    assert removed(shelf, way, replace(BASE, claims=("own",))) is True
    assert shelf.objects == {}


def test_a_vm_that_took_the_name_meanwhile_is_not_hit(way: str) -> None:
    shelf = ApiDouble((REF, a_vm("own")))

    def swap(found: ApiDouble) -> Reply:
        found.put(REF, {"metadata": {"annotations": owner_annotations("c-1", "other")}})
        return refusal(409, "Conflict", "the UID in the precondition does not match")

    serve = shelf.serve
    shelf.serve = lambda request: swap(shelf) if request.method == "DELETE" else serve(request)  # type: ignore[method-assign]
    assert removed(shelf, way, replace(BASE, claims=("own",))) is True
    assert shelf.objects[REF.path]["metadata"]["annotations"] == owner_annotations("c-1", "other")


def test_an_answer_that_is_no_answer_removes_nothing(way: str) -> None:
    shelf = ApiDouble((PVC.ref("own", "ns"), {"metadata": OURS}))
    shelf.answer("GET", "m", refusal(403, "Forbidden", "may not"))
    with pytest.raises(Forbidden):
        removed(shelf, way, replace(BASE, claims=("own",)))
    assert len(shelf.objects) == 1


# --- power ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("verb", "text"),
    [
        (power.start, "VM is already running"),
        (power.start, "Always does not support manual start requests"),
        (power.start, "RerunOnFailure does not support starting VM from failed state"),
        (power.stop, "VM is not running"),
        (power.stop, "Halted only supports manual stop requests with a shorter graceperiod"),
        (power.kill, "VM is not running"),
    ],
)
def test_what_is_so_already_is_a_success(way: str, verb: Any, text: str) -> None:
    shelf = ApiDouble((REF, a_vm()))
    for last in ("start", "stop"):
        wrapped = f'Operation cannot be fulfilled on virtualmachine.kubevirt.io "m": {text}'
        shelf.answer("PUT", last, refusal(409, "Conflict", wrapped))
    shelf.run_both_ways(lambda: verb(REF), way)
    assert len(shelf.requests) == 1


def test_a_start_while_another_order_runs_has_to_wait(way: str) -> None:
    shelf = ApiDouble((REF, a_vm()))
    text = "Internal error occurred: unable to complete request: stop/start already underway"
    shelf.answer("PUT", "start", refusal(500, "InternalError", text))
    with pytest.raises(Busy, match="has to wait"):
        shelf.run_both_ways(lambda: power.start(REF), way)


@pytest.mark.parametrize("verb", ["start", "restart"])
def test_a_start_without_quota_is_refused(way: str, verb: str) -> None:
    shelf = ApiDouble((REF, a_vm()))
    text = 'admission webhook "validator.harvesterhci.io" denied the request: memory insufficient'
    shelf.answer("PUT", verb, refusal(500, "InternalError", text))
    with pytest.raises(Refused, match="memory insufficient"):
        shelf.run_both_ways(lambda: getattr(power, verb)(REF), way)


@pytest.mark.parametrize(
    "text", ["RunStategy Halted does not support manual restart requests", "VM is not running: Halted"]
)
def test_a_restart_of_a_vm_that_is_down_is_a_start(way: str, text: str) -> None:
    shelf = ApiDouble((REF, a_vm()))
    shelf.answer("PUT", "restart", refusal(409, "Conflict", text))
    shelf.answer("PUT", "start", Reply(202))
    shelf.run_both_ways(lambda: power.restart(REF), way)
    assert shelf.requests == ["PUT m/restart", "PUT m/start"]


def test_a_conflict_that_means_something_else_comes_through(way: str) -> None:
    shelf = ApiDouble((REF, a_vm()))
    for verb in ("start", "stop", "restart"):
        shelf.answer("PUT", verb, refusal(409, "Conflict", "something new"))
    for talk in (power.start, power.stop, power.restart):
        with pytest.raises(KubeError, match="something new"):
            shelf.run_both_ways(lambda talk=talk: talk(REF), way)


# --- waiting -------------------------------------------------------------------------------------------------------


def phase(name: str, *addresses: str) -> Any:
    cards = [{"name": "nic-0", "ipAddress": address} for address in addresses]
    return lambda shelf: shelf.put(VMI_REF, {"status": {"phase": name, "interfaces": cards}})


def test_an_address_is_waited_for_through_every_stage() -> None:
    shelf = ApiDouble((REF, a_vm()))
    shelf.then(phase("Pending"), phase("Scheduled"), phase("Running"), phase("Running", "10.0.0.5"))
    assert shelf.run(conditions.wait_for_address(REF)) == ("10.0.0.5",)


def test_a_wait_that_is_over_costs_no_time() -> None:
    shelf = ApiDouble((REF, a_vm()))
    phase("Running", "10.0.0.5")(shelf)
    before = shelf.now
    assert shelf.run(conditions.wait_for_address(REF)) == ("10.0.0.5",)
    assert shelf.now == before


def test_a_wait_in_vain_ends_in_time_with_the_last_reason() -> None:
    shelf = ApiDouble((REF, a_vm()))
    shelf.then(phase("Running"))
    with pytest.raises(WaitTimeout, match="no address is reported: its guest agent has not answered"):
        shelf.run(conditions.wait_for_address(REF, timedelta(minutes=2)))


def test_a_stop_is_waited_for() -> None:
    shelf = ApiDouble((REF, a_vm()))
    phase("Running")(shelf)

    def down(found: ApiDouble) -> None:
        stopped = a_vm()
        stopped["status"]["printableStatus"] = "Stopped"
        found.put(REF, stopped)
        found.drop(VMI_REF)

    shelf.then(down)
    shelf.run(conditions.wait_for_stopped(REF))
    assert shelf.scheduled == []


def test_a_start_is_waited_for() -> None:
    shelf = ApiDouble((REF, a_vm()))
    shelf.then(phase("Scheduled"), phase("Running", "10.0.0.5"))
    assert shelf.run(conditions.wait_for_address(REF)) == ("10.0.0.5",)
    assert shelf.scheduled == []


def test_the_end_of_a_removal_is_waited_for() -> None:
    shelf = ApiDouble((REF, a_vm()))
    shelf.then(lambda found: found.put(REF, a_vm(deletionTimestamp="x")), lambda found: found.drop(REF))
    shelf.run(conditions.wait_for_removal(REF))
    assert shelf.scheduled == []


def test_a_restart_is_waited_for_until_another_instance_runs() -> None:
    shelf = ApiDouble((REF, a_vm()))
    phase("Running", "10.0.0.5")(shelf)
    old = shelf.objects[VMI_REF.path]["metadata"]["uid"]
    shelf.then(lambda found: found.drop(VMI_REF), phase("Scheduled"), phase("Running", "10.0.0.6"))
    found = shelf.run(conditions.wait_for_address(REF, except_instance=old))
    assert found == ("10.0.0.6",)


# --- observe -------------------------------------------------------------------------------------------------------


def test_a_look_tells_state_and_addresses_in_two_calls(way: str) -> None:
    shelf = ApiDouble((REF, a_vm()))
    phase("Running", "10.0.0.5")(shelf)
    look = shelf.run_both_ways(lambda: observe_vm(REF), way)
    assert (look.status.state, look.status.addresses) == ("running", ("10.0.0.5",))
    assert look.vmi_uid == shelf.objects[VMI_REF.path]["metadata"]["uid"]
    assert len(shelf.requests) == 2


def test_a_vm_without_an_instance_is_looked_at_too(way: str) -> None:
    stopped = a_vm()
    stopped["status"]["printableStatus"] = "Stopped"
    look = ApiDouble((REF, stopped)).run_both_ways(lambda: observe_vm(REF), way)
    assert (look.status.state, look.vmi_uid, look.status.addresses) == ("stopped", "", ())


def test_an_instance_that_does_not_run_has_no_addresses(way: str) -> None:
    shelf = ApiDouble((REF, a_vm()))
    phase("Scheduled", "10.0.0.5")(shelf)
    assert shelf.run_both_ways(lambda: observe_vm(REF), way).status.addresses == ()


def test_only_a_404_means_that_there_is_no_vm(way: str) -> None:
    assert ApiDouble().run_both_ways(lambda: observe_vm(REF), way) is None
    for last in ("virtualmachines/m", "virtualmachineinstances/m"):
        shelf = ApiDouble((REF, a_vm()))
        shelf.answer("GET", last, refusal(403, "Forbidden", "may not"))
        with pytest.raises(Forbidden):
            shelf.run_both_ways(lambda shelf=shelf: observe_vm(REF), way)


def test_a_machine_is_seen_with_its_host_and_what_it_still_lacks(way: str) -> None:
    ready = {"status": {"conditions": [{"type": "Ready", "status": "True"}]}}
    shelf = ApiDouble((REF, a_vm()), (NODE.ref("host-1"), ready))
    card = {"name": "nic-0", "ipAddress": "10.0.0.5"}
    shelf.put(VMI_REF, {"status": {"phase": "Running", "nodeName": "host-1", "interfaces": [card]}})
    sight = shelf.run_both_ways(lambda: get_status(BASE), way)
    assert (sight.state, sight.addresses) == ("running", ("10.0.0.5",))
    assert (sight.host, sight.host_ready, sight.is_complete) == ("host-1", True, False)

    shelf.put(SECRET_REF, {"metadata": OURS})
    assert shelf.run_both_ways(lambda: get_status(BASE), way).is_complete


def test_a_vm_of_another_is_seen_as_the_absence_of_this_machine_and_an_unmarked_one_as_nothing(
    way: str,
) -> None:
    shelf = ApiDouble((REF, {"spec": {}}))
    assert shelf.run_both_ways(lambda: get_status(BASE), way).presence == "missing"
    with pytest.raises(Refused, match="but not its owner annotations"):
        shelf.run_both_ways(lambda: get_status(replace(BASE, vm_uid="uid-1")), way)


# --- rewrite -------------------------------------------------------------------------------------------------------


def test_a_rewrite_replaces_the_document_and_keeps_network_data(way: str) -> None:
    shelf = a_shelf()
    made = ordered(shelf, way, replace(BASE, network_data="#" * 3000, ssh_password="pw"))
    before = shelf.objects[SECRET_REF.path]["data"]
    shelf.requests.clear()
    shelf.run_both_ways(lambda: replace_user_data(made, "#cloud-config\n"), way)
    after = shelf.objects[SECRET_REF.path]["data"]
    assert after["networkdata"] == before["networkdata"]
    assert after["userdata"] != before["userdata"]
    shelf.run_both_ways(lambda: replace_user_data(made, "#cloud-config\n"), way)
    assert [entry.partition(" ")[0] for entry in shelf.requests] == ["GET", "PATCH", "GET"]


def test_a_rewrite_of_the_secret_of_another_is_refused(way: str) -> None:
    shelf = ApiDouble((SECRET_REF, {"data": {"userdata": ""}}))
    with pytest.raises(Refused, match="no cloud-init Secret"):
        shelf.run_both_ways(lambda: replace_user_data(BASE, "#cloud-config\n"), way)
    with pytest.raises(Refused):
        ApiDouble().run_both_ways(lambda: replace_user_data(BASE, "#cloud-config\n"), way)


def test_an_unknown_answer_is_not_taken_for_an_object(way: str) -> None:
    shelf = a_shelf()
    shelf.answer("POST", "virtualmachines", Reply(200, b"<html>"))
    with pytest.raises(KubeError, match="not JSON"):
        ordered(shelf, way)


def test_nothing_is_concluded_from_a_missing_kind(way: str) -> None:
    shelf = ApiDouble((REF, a_vm()))
    shelf.answer("PUT", "start", refusal(404, "NotFound", 'virtualmachine.kubevirt.io "m" not found'))
    with pytest.raises((Refused, NotFound)):
        shelf.run_both_ways(lambda: power.start(REF), way)


def test_the_disks_of_a_vm_that_went_after_the_reading_go_too(way: str) -> None:
    shelf = ApiDouble((REF, a_vm("own")), (PVC.ref("own", "ns"), {"metadata": OURS}))
    known = read_vm(shelf.objects[REF.path])
    shelf.drop(REF)
    assert (
        shelf.run_both_ways(lambda: remove(replace(BASE, claims=("own",)), frozenset(), known), way) is True
    )
    assert not shelf.objects


def test_a_vm_that_lost_its_marks_is_neither_removed_nor_taken_for_gone(way: str) -> None:
    shelf = ApiDouble((REF, {}), (PVC.ref("own", "ns"), {"metadata": OURS}))
    own = replace(BASE, vm_uid=shelf.objects[REF.path]["metadata"]["uid"], claims=("own",))
    before = dict(shelf.objects)
    with pytest.raises(Refused, match="but not its owner annotations; set windrow"):
        removed(shelf, way, own)
    assert shelf.objects == before


PAGE = Reply(404, b"404 page not found", "text/plain")


@pytest.mark.parametrize(
    ("method", "last"),
    [("GET", "virtualmachineimages/image"), ("POST", "virtualmachines"), ("POST", "secrets")],
)
def test_a_404_of_something_in_between_refuses_nothing(way: str, method: str, last: str) -> None:
    shelf = a_shelf()
    shelf.answer(method, last, PAGE)
    with pytest.raises(NotFound, match="page not found"):
        ordered(shelf, way)
    assert ordered(shelf, way).vm_uid


def test_a_404_of_something_in_between_stops_no_machine(way: str) -> None:
    shelf = ApiDouble((REF, a_vm()))
    for talk in (lambda: observe_vm(REF), lambda: get_status(BASE)):
        shelf.answer("GET", "virtualmachineinstances/m", PAGE)
        with pytest.raises(NotFound, match="page not found"):
            shelf.run_both_ways(talk, way)


@pytest.mark.parametrize("talk", [lambda: remove(BASE, frozenset()), lambda: observe_vm(REF)])
def test_a_404_that_does_not_name_the_vm_is_not_its_end(way: str, talk: Any) -> None:
    shelf = ApiDouble((REF, a_vm("own")), (SECRET_REF, {"metadata": OURS}))
    shelf.answer("GET", "m", Reply(404, b"404 page not found", "text/plain"))
    before = dict(shelf.objects)
    with pytest.raises(NotFound, match="page not found"):
        shelf.run_both_ways(talk, way)
    assert shelf.objects == before
