"""Every operation, run both ways: by the blocking runner on one watch, and by the asyncio runner on shared caches."""

from __future__ import annotations

from base64 import b64decode
from dataclasses import replace
from typing import Any

import pytest
from tests.unit.nodedriver.api_double import ApiDouble, refusal

from windrow.core.formats.json import dumps, loads
from windrow.harvester.identity import owner_annotations
from windrow.harvester.names import REMOVED_CLAIMS
from windrow.harvester.references import SERVER_VERSION
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
from windrow.kubernetes.objects import annotations_of
from windrow.kubernetes.requests import Reply, Request
from windrow.kubernetes.resources import NAMESPACE, NODE, PVC, SECRET, STORAGE_CLASS, ObjectRef
from windrow.nodedriver.config import Configuration
from windrow.nodedriver.devices import DeviceSpec, DiskSpec, NicSpec
from windrow.nodedriver.effects import WaitTimeout
from windrow.nodedriver.errors import Busy, Refused
from windrow.nodedriver.validate.references import check
from windrow.nodedriver.vm import conditions, power
from windrow.nodedriver.vm.create import ensure_created, replace_user_data
from windrow.nodedriver.vm.observe import get_status, observe_vm
from windrow.nodedriver.vm.plan import planned_claims
from windrow.nodedriver.vm.remove import remove

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


def an_api() -> ApiDouble:
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


FOREIGN = {"annotations": owner_annotations("c-1", "other")}


def change_hands(api: ApiDouble, ref: ObjectRef, after: str) -> None:
    """Once the object was read or changed, it is deleted, and another machine makes one of its name."""
    serve = api.serve

    def serve_and_swap(request: Request) -> Reply:
        reply = serve(request)
        if request.method == after and request.path == ref.path:
            api.serve = serve  # type: ignore[method-assign]
            api.put(ref, {"metadata": FOREIGN})
        return reply

    api.serve = serve_and_swap  # type: ignore[method-assign]


def ordered(api: ApiDouble, way: str, configuration: Configuration = BASE) -> Configuration:
    made: Configuration = api.run_both_ways(lambda: ensure_created(configuration, BOOTSTRAP), way)
    return made


# --- order ---------------------------------------------------------------------------------------------------------


def test_an_order_reads_the_image_and_makes_vm_and_secret(way: str) -> None:
    api = an_api()
    made = ordered(api, way)
    assert api.requests == ["GET virtualmachineimages/image", "POST ns/virtualmachines", "POST ns/secrets"]
    assert made.vm_uid == api.objects[REF.path]["metadata"]["uid"]
    assert made.claims == planned_claims(BASE)
    owner = api.objects[SECRET_REF.path]["metadata"]["ownerReferences"][0]
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
        ("", "#" * 2048, {"userdata"}),
        ("", "#" * 2049, {"userdata", "networkdata"}),
        ("#cloud-config\nx: " + "x" * 2049, "", {"userdata"}),
        ("#cloud-config\nx: " + "x" * 2049, "version: 2\n", {"userdata"}),
    ],
)
def test_the_secret_holds_network_data_only_where_that_is_long(
    way: str, user_data: str, network_data: str, keys: set[str]
) -> None:
    api = an_api()
    ordered(api, way, replace(BASE, user_data=user_data, network_data=network_data))
    assert set(api.objects[SECRET_REF.path]["data"]) == keys
    [cloud_init] = [
        volume["cloudInitNoCloud"]
        for volume in api.objects[REF.path]["spec"]["template"]["spec"]["volumes"]
        if "cloudInitNoCloud" in volume
    ]
    assert ("networkDataSecretRef" in cloud_init) == ("networkdata" in keys)
    assert cloud_init.get("networkData", "") == ("" if "networkdata" in keys else network_data)


def test_a_machine_s_user_data_installs_the_guest_agent_unless_told_otherwise(way: str) -> None:
    def user_data(**agent: bool) -> str:
        api = an_api()
        api.run_both_ways(lambda: ensure_created(BASE, BOOTSTRAP, **agent), way)
        return b64decode(api.objects[SECRET_REF.path]["data"]["userdata"]).decode()

    assert "qemu-guest-agent" in user_data()
    assert "qemu-guest-agent" not in user_data(agent=False)


def test_a_repeated_order_finds_what_is_there(way: str) -> None:
    api = an_api()
    first = ordered(api, way)
    before = dict(api.objects)
    assert ordered(api, way) == first
    assert api.objects == before


def test_an_empty_disk_is_claimed_as_its_class_allows(way: str) -> None:
    modes = {"Filesystem": ["ReadWriteOnce"]}
    annotation = {"cdi.harvesterhci.io/storageProfileVolumeModeAccessModes": dumps(modes).decode()}
    api = ApiDouble((STORAGE_CLASS.ref("lvm"), {"metadata": {"annotations": annotation}}))
    ordered(api, way, replace(BASE, disk_info=(DiskSpec("", "lvm", 10),)))
    assert api.requests == ["GET storageclasses/lvm", "POST ns/virtualmachines", "POST ns/secrets"]
    [claim] = claim_templates(api)
    assert (claim["spec"]["accessModes"], claim["spec"]["volumeMode"]) == (["ReadWriteOnce"], "Filesystem")


def test_a_disk_from_an_image_outside_longhorn_is_claimed_as_its_class_allows(way: str) -> None:
    modes = {"Block": ["ReadWriteOnce"]}
    annotation = {"cdi.harvesterhci.io/storageProfileVolumeModeAccessModes": dumps(modes).decode()}
    api = an_api()
    api.put(IMAGE.ref("image", "ns"), {**READY, "spec": {**READY["spec"], "backend": "cdi"}})
    api.put(STORAGE_CLASS.ref("lh"), {"metadata": {"annotations": annotation}})
    ordered(api, way)
    assert api.requests[:2] == ["GET virtualmachineimages/image", "GET storageclasses/lh"]
    assert claim_templates(api)[0]["spec"]["accessModes"] == ["ReadWriteOnce"]


def test_a_class_that_may_not_be_read_is_taken_to_be_as_longhorn_s(way: str) -> None:
    api = ApiDouble()
    api.answer("GET", "lvm", refusal(403, "Forbidden", "may not"))
    ordered(api, way, replace(BASE, disk_info=(DiskSpec("", "lvm", 10),)))
    assert claim_templates(api)[0]["spec"]["accessModes"] == ["ReadWriteMany"]


WITH_VGPU = replace(BASE, vgpu_info=(DeviceSpec("gpu1", "nvidia.com/A2"),))


def devices(api: ApiDouble) -> dict[str, Any]:
    """What is given of the host's devices."""
    found = api.objects[REF.path]["spec"]["template"]["spec"]["domain"]["devices"]
    return {key: value for key, value in found.items() if key in ("gpus", "hostDevices")}


@pytest.mark.parametrize(
    ("version", "written"),
    [
        ("v1.3.2", "gpus"),
        ("v1.7.1", "gpus"),
        ("v1.8.0-rc2", "hostDevices"),
        ("v1.8.2", "hostDevices"),
        ("v1.8-head", "hostDevices"),
        ("v1.9.0-rc6", "gpus"),
        ("v1.80.0", "gpus"),
        ("master-3d63c2af-head", "gpus"),
    ],
)
def test_vgpus_are_written_as_the_builder_of_this_harvester_release_writes_them(
    version: str, written: str, way: str
) -> None:
    api = an_api()
    api.put(SERVER_VERSION, {"value": version})
    ordered(api, way, WITH_VGPU)
    assert api.requests[:2] == ["GET virtualmachineimages/image", "GET settings/server-version"]
    assert devices(api) == {written: [{"name": "gpu1", "deviceName": "nvidia.com/A2"}]}


def test_a_machine_without_vgpus_does_not_ask_for_harvester_s_version(way: str) -> None:
    api = an_api()
    ordered(api, way, replace(BASE, vgpu_info=()))
    assert "GET settings/server-version" not in api.requests
    assert devices(api) == {}


def test_a_harvester_whose_version_may_not_be_read_is_taken_for_v1_8_with_a_warning(way: str) -> None:
    api = an_api()
    api.answer("GET", "server-version", *[refusal(403, "Forbidden", "may not")] * 2)
    *_, problem = api.run_both_ways(lambda: check([WITH_VGPU]), way)
    assert (problem.field, problem.severity) == ("vgpuInfo", "warning")
    assert "setting server-version may not be read with this credential: may not" in problem.message
    ordered(api, way, WITH_VGPU)
    assert devices(api).keys() == {"hostDevices"}


def claim_templates(api: ApiDouble) -> Any:
    annotations = api.objects[REF.path]["metadata"]["annotations"]
    return loads(annotations["harvesterhci.io/volumeClaimTemplates"])


def test_a_key_pair_gives_its_public_key(way: str) -> None:
    api = an_api()
    ready = {
        "spec": {"publicKey": "ssh-k"},
        "status": {"conditions": [{"type": "validated", "status": "True"}]},
    }
    api.put(KEY_PAIR.ref("k", "ns"), ready)
    assert ordered(api, way, replace(BASE, key_pair_name="k")).ssh_public_key == "ssh-k"


def test_a_vm_that_harvester_denies_leaves_nothing(way: str) -> None:
    api = an_api()
    text = 'admission webhook "validator.harvesterhci.io" denied the request: cpu insufficient'
    api.answer("POST", "virtualmachines", refusal(500, "InternalError", text))
    with pytest.raises(Refused, match="refuses VM ns/m: cpu insufficient") as refused:
        ordered(api, way)
    assert refused.value.problems[0].hint
    assert REF.path not in api.objects
    assert "POST ns/secrets" not in api.requests


@pytest.mark.parametrize(("code", "reason"), [(400, "BadRequest"), (422, "Invalid")])
def test_a_vm_that_harvester_cannot_read_or_finds_invalid_refuses_the_machine(
    way: str, code: int, reason: str
) -> None:
    api = an_api()
    api.answer("POST", "virtualmachines", refusal(code, reason, "spec.template is no such thing"))
    with pytest.raises(Refused, match=r"refuses VM ns/m: spec\.template is no such thing"):
        ordered(api, way)


def test_a_quota_that_is_used_up_refuses_the_machine(way: str) -> None:
    api = an_api()
    text = 'virtualmachines.kubevirt.io "m" is forbidden: exceeded quota: q, requested: count/vms=1'
    api.answer("POST", "virtualmachines", refusal(403, "Forbidden", text))
    with pytest.raises(Refused, match=r"refuses VM ns/m: .*exceeded quota: q"):
        ordered(api, way)
    assert "POST ns/secrets" not in api.requests


def test_a_namespace_that_does_not_exist_refuses_the_machine(way: str) -> None:
    api = an_api()
    api.answer("POST", "virtualmachines", refusal(404, "NotFound", 'namespaces "ns" not found'))
    with pytest.raises(Refused, match='namespaces "ns"'):
        ordered(api, way)


@pytest.mark.parametrize(
    "error", [ServerError("boom", status=500), Unreachable("no route"), Forbidden("rights", status=403)]
)
def test_what_says_nothing_about_the_machine_comes_through(way: str, error: KubeError) -> None:
    api = an_api()
    api.answer("POST", "virtualmachines", error)
    with pytest.raises(type(error)):
        ordered(api, way)


def test_a_lost_answer_is_looked_up(way: str) -> None:
    api = an_api()
    ordered(api, way)
    api.answer("POST", "virtualmachines", OutcomeUnknown("reset"))
    api.answer("POST", "secrets", OutcomeUnknown("reset"))
    assert ordered(api, way).vm_uid == api.objects[REF.path]["metadata"]["uid"]


def test_a_lost_answer_that_was_a_lost_request_comes_through(way: str) -> None:
    api = an_api()
    api.answer("POST", "virtualmachines", OutcomeUnknown("reset"))
    with pytest.raises(OutcomeUnknown):
        ordered(api, way)


def test_a_secret_whose_creation_was_lost_is_made_by_the_next_order(way: str) -> None:
    """Without its Secret the VM does not start, so it does not count as made."""
    api = an_api()
    api.answer("POST", "secrets", OutcomeUnknown("reset"))
    with pytest.raises(OutcomeUnknown):
        ordered(api, way)
    assert SECRET_REF.path not in api.objects
    made = ordered(api, way)
    assert api.objects[SECRET_REF.path]["metadata"]["ownerReferences"][0]["uid"] == made.vm_uid


def test_the_vm_of_another_is_not_taken(way: str) -> None:
    api = an_api()
    api.put(REF, {"metadata": {"annotations": owner_annotations("c-1", "other")}})
    before = dict(api.objects)
    with pytest.raises(Refused, match="a VM ns/m exists and is not this machine's"):
        ordered(api, way)
    assert api.objects == before


def test_the_secret_of_another_is_not_taken_and_the_vm_goes_again(way: str) -> None:
    api = an_api()
    api.put(SECRET_REF, {"data": {}})
    before = dict(api.objects)
    with pytest.raises(Refused, match="a Secret ns/m-cloudinit exists"):
        ordered(api, way)
    assert api.objects == before
    assert any("deleting VM m: its cloud-init Secret was refused" in note for note in api.log_lines)


def test_a_secret_that_harvester_refuses_takes_the_vm_back(way: str) -> None:
    api = an_api()
    api.answer("POST", "secrets", refusal(403, "Forbidden", "exceeded quota: count/secrets"))
    with pytest.raises(Refused, match="refuses Secret ns/m-cloudinit: exceeded quota"):
        ordered(api, way)
    assert REF.path not in api.objects


def test_a_secret_that_could_not_be_made_yet_leaves_the_vm_for_the_next_order(way: str) -> None:
    api = an_api()
    api.answer("POST", "secrets", refusal(403, "Forbidden", "may not create secrets"))
    with pytest.raises(Forbidden):
        ordered(api, way)
    assert REF.path in api.objects


def test_a_secret_of_an_earlier_vm_makes_room(way: str) -> None:
    api = an_api()
    ordered(api, way)
    api.drop(REF)
    made = ordered(api, way)
    assert api.objects[SECRET_REF.path]["metadata"]["ownerReferences"][0]["uid"] == made.vm_uid


def test_a_secret_that_changes_hands_after_it_was_read_is_not_deleted(way: str) -> None:
    api = an_api()
    ordered(api, way)
    api.drop(REF)
    change_hands(api, SECRET_REF, after="GET")
    with pytest.raises(Conflict):
        ordered(api, way)
    assert annotations_of(api.objects[SECRET_REF.path]) == FOREIGN["annotations"]


def test_an_image_that_vanished_after_the_vm_was_made_does_not_stop_its_secret(way: str) -> None:
    api = an_api()
    ordered(api, way)
    api.drop(SECRET_REF)
    api.drop(IMAGE.ref("image", "ns"))
    ordered(api, way)
    assert SECRET_REF.path in api.objects


def test_an_image_that_is_not_there_refuses_the_machine(way: str) -> None:
    with pytest.raises(Refused, match="image ns/image does not exist"):
        ordered(ApiDouble(), way)


# --- check ---------------------------------------------------------------------------------------------------------


def test_a_check_asks_for_each_thing_once(way: str) -> None:
    api = an_api()
    many = [replace(BASE, machine_name=f"m-{place}") for place in range(5)]
    assert api.run_both_ways(lambda: check(many), way) == []
    assert sorted(api.requests) == [
        "GET network-attachment-definitions/net",
        "GET virtualmachineimages/image",
    ]


def test_a_check_tells_everything_that_is_wrong(way: str) -> None:
    api = ApiDouble(
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
    problems = api.run_both_ways(lambda: check([asked]), way)
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
    api = an_api()
    api.put(IMAGE.ref("image", "ns"), {**READY, "spec": {"displayName": "jammy"}})
    [problem] = api.run_both_ways(lambda: check([BASE]), way)
    assert problem.severity == "warning"
    assert "may be a cloud image or an installer disc" in problem.message


def test_a_network_whose_hosts_are_not_ready_is_told(way: str) -> None:
    api = an_api()
    labels = {"network.harvesterhci.io/ready": "false", "network.harvesterhci.io/clusternetwork": "vlans"}
    api.put(NETWORK.ref("net", "ns"), {"metadata": {"labels": labels}})
    [problem] = api.run_both_ways(lambda: check([BASE]), way)
    assert problem.message == "network ns/net is not ready: its cluster network vlans is not"


def test_a_check_without_rights_tells_which(way: str) -> None:
    api = an_api()
    api.answer("GET", "image", refusal(403, "Forbidden", "may not"))
    api.answer("GET", "net", refusal(403, "Forbidden", "may not"))
    api.answer("GET", "namespaces/ns", refusal(403, "Forbidden", "may not"))
    problems = api.run_both_ways(lambda: check([BASE]), way)
    assert [(problem.field, problem.severity) for problem in problems] == [
        ("diskInfo", "error"),
        ("networkInfo", "warning"),
    ]


def test_a_namespace_that_no_object_shows_is_asked_for(way: str) -> None:
    api = an_api()
    shown = replace(BASE, disk_info=(), network_info=(NicSpec("ns/net"),))
    absent, there = replace(shown, vm_namespace="absent"), replace(shown, vm_namespace="there")
    api.put(NAMESPACE.ref("there"), {"metadata": {"name": "there"}})
    asked = [shown, absent, there, absent]
    [problem] = api.run_both_ways(lambda: check(asked, "https://there.example"), way)
    assert problem.message == 'namespace "absent" does not exist on Harvester https://there.example'
    assert (problem.field, problem.severity) == ("vmNamespace", "error")
    assert "GET namespaces/ns" not in api.requests

    api.answer("GET", "namespaces/there", Unreachable("no route"))
    with pytest.raises(Unreachable):
        api.run_both_ways(lambda: check([there]), way)


def nodes_of(*offers: tuple[dict[str, Any], tuple[str, ...]]) -> dict[str, Any]:
    """The list of hosts with these devices and CPU models."""
    nodes = []
    for devices, models in offers:
        labels = {f"cpu-model.node.kubevirt.io/{model}": "true" for model in models}
        labels |= {
            "cpu-model.node.kubevirt.io/Denied": "false",
            "cpu-model-migration.node.kubevirt.io/Old": "true",
        }
        nodes.append({"metadata": {"labels": labels}, "status": {"allocatable": {"cpu": "8", **devices}}})
    return {"items": nodes}


def told_of_hosts(answer: Any, *configurations: Configuration) -> list[tuple[str, str, str]]:
    api = an_api()
    api.answer(
        "GET", "/nodes", answer if isinstance(answer, Reply | Exception) else Reply(200, dumps(answer))
    )
    found = api.run(check(configurations))
    return [(one.severity, one.field, one.message) for one in found if "no host" in one.message]


GPU = nodes_of(
    ({"nvidia.com/A2": "1"}, ("Skylake",)), ({"intel.com/USB": "2", "amd.com/off": "0"}, ("Haswell",))
)


@pytest.mark.parametrize(
    ("devices", "model", "words"),
    [
        (("nvidia.com/A2", "intel.com/USB"), "Haswell", []),
        ((), "", []),
        (("amd.com/off",), "", ["a device amd.com/off (vgpuInfo.vGPURequests[0].deviceName)"]),
        (("nvidia.com/A2", "nvidia.com/A9"), "", ["a device nvidia.com/A9 (vgpuInfo.vGPURequests[1].deviceName)"]),
        (("",), "", []),
        ((), "host-passthrough", []),
        ((), "Old", ["the CPU model Old (cpuModel)"]),
        ((), "Denied", ["the CPU model Denied (cpuModel)"]),
        (("gone.com/x",), "Gone", ["a device gone.com/x", "the CPU model Gone"]),
    ],
)  # fmt: skip
def test_a_device_and_a_cpu_model_that_no_host_has_are_warned_of(
    devices: tuple[str, ...], model: str, words: list[str]
) -> None:
    requests = tuple(DeviceSpec("", name) for name in devices)
    asked = replace(BASE, vgpu_info=requests or None, cpu_model=model)
    found = told_of_hosts(GPU, asked, asked)

    assert len(found) == len(words)
    for (severity, field, message), part in zip(found, words, strict=True):
        assert severity == "warning"
        assert field == ("vgpuInfo" if "device" in part else "cpuModel")
        assert part in message


@pytest.mark.parametrize(
    "answer",
    [
        refusal(403, "Forbidden", "may not"),
        {"items": []},
        {"items": [{"metadata": {"labels": 5}, "status": {"allocatable": []}}]},
        nodes_of(({}, ())) | {"items": [{"metadata": {}}]},
    ],
    ids=["may not be listed", "none", "nonsense", "without labels"],
)
def test_where_nothing_is_known_of_the_cpu_models_of_hosts_none_is_missed(answer: Any) -> None:
    assert told_of_hosts(answer, replace(BASE, cpu_model="Haswell")) == []


def test_hosts_are_asked_for_only_where_something_is_asked_of_them(way: str) -> None:
    api = an_api()
    api.run_both_ways(lambda: check([replace(BASE, cpu_model="host-model", vgpu_info=())]), way)
    assert "GET v1/nodes" not in api.requests
    api.answer("GET", "/nodes", Unreachable("no route"))
    with pytest.raises(Unreachable):
        api.run_both_ways(lambda: check([replace(BASE, cpu_model="Haswell")]), way)


def test_a_check_that_could_not_be_made_is_not_a_finding(way: str) -> None:
    api = an_api()
    api.answer("GET", "net", Unreachable("no route"))
    with pytest.raises(Unreachable):
        api.run_both_ways(lambda: check([BASE]), way)


def test_a_disk_smaller_than_its_image_is_told(way: str) -> None:
    api = an_api()
    big = {**READY, "status": {**READY["status"], "virtualSize": 50 * 2**30 + 1}}
    api.put(IMAGE.ref("image", "ns"), big)
    [problem] = [
        found for found in api.run_both_ways(lambda: check([BASE]), way) if found.severity == "error"
    ]
    assert "disk-0 has 40 GiB" in problem.message
    assert "needs 51 GiB" in problem.message


# --- remove --------------------------------------------------------------------------------------------------------


def removed(api: ApiDouble, way: str, configuration: Configuration, *volumes: str) -> bool:
    gone: bool = api.run_both_ways(lambda: remove(configuration, frozenset(volumes)), way)
    return gone


def test_a_removal_names_its_own_disks_and_deletes_the_vm(way: str) -> None:
    api = ApiDouble((REF, a_vm("own", "csi", "ui")))
    patches: list[Any] = []
    serve = api.serve

    def noting(request: Any) -> Reply:
        if request.method == "PATCH":
            patches.append(loads(request.body))
        return serve(request)

    api.serve = noting  # type: ignore[method-assign]
    assert removed(api, way, replace(BASE, claims=("own", "moved")), "named") is False
    assert api.requests == ["GET virtualmachines/m", "PATCH virtualmachines/m", "DELETE virtualmachines/m"]
    assert patches[0]["metadata"]["annotations"] == {REMOVED_CLAIMS: "named,own"}
    assert REF.path not in api.objects


def test_a_current_reading_may_stand_for_the_first_look(way: str) -> None:
    api = ApiDouble((REF, a_vm("own", "csi")))
    known = read_vm(api.objects[REF.path])
    asked = replace(BASE, claims=("own",))
    assert api.run_both_ways(lambda: remove(asked, frozenset(), known), way) is False
    assert api.requests == ["PATCH virtualmachines/m", "DELETE virtualmachines/m"]


def test_a_reading_does_not_do_where_the_own_disks_are_not_recorded(way: str) -> None:
    api = ApiDouble((REF, a_vm("own")))
    known = read_vm(api.objects[REF.path])
    api.run_both_ways(lambda: remove(BASE, frozenset(), known), way)
    assert api.requests[0] == "GET virtualmachines/m"


def test_a_removal_that_is_under_way_is_left_alone(way: str) -> None:
    vm = a_vm(
        "own", deletionTimestamp="x", annotations={**owner_annotations("c-1", "m-1"), REMOVED_CLAIMS: "own"}
    )
    api = ApiDouble((REF, vm))
    removed(api, way, replace(BASE, claims=("own",)))
    assert api.requests == ["GET virtualmachines/m"]


def test_a_deletion_by_another_user_still_takes_the_disks_along(way: str) -> None:
    api = ApiDouble((REF, a_vm("own", deletionTimestamp="x")))
    removed(api, way, replace(BASE, claims=("own",)))
    assert api.requests == ["GET virtualmachines/m", "PATCH virtualmachines/m"]


def test_the_vm_of_another_is_not_removed(way: str) -> None:
    api = ApiDouble((REF, a_vm("own", annotations=owner_annotations("c-1", "other"))))
    before = dict(api.objects)
    assert removed(api, way, BASE) is True
    assert api.objects == before


def test_what_a_lost_vm_left_behind_goes_if_it_is_marked(way: str) -> None:
    api = ApiDouble(
        (SECRET_REF, {"metadata": OURS}),
        (PVC.ref("own", "ns"), {"metadata": OURS}),
        (PVC.ref("unmarked", "ns"), {}),
        (PVC.ref("named", "ns"), {}),
        (PVC.ref("foreign", "ns"), {"metadata": OURS}),
    )
    assert removed(api, way, replace(BASE, claims=("own", "unmarked")), "named") is True
    assert sorted(ref.rpartition("/")[2] for ref in api.objects) == ["foreign", "unmarked"]


def test_a_leftover_that_harvester_keeps_is_named_and_not_insisted_on(way: str) -> None:
    api = ApiDouble((PVC.ref("own", "ns"), {"metadata": OURS}))
    denial = 'admission webhook "validator.harvesterhci.io" denied the request: attached to VM: ns/other'
    api.answer("DELETE", "own", refusal(409, "Conflict", denial))
    assert removed(api, way, replace(BASE, claims=("own",))) is True
    assert api.log_lines == [f"PersistentVolumeClaim ns/own stays: {denial}"]


def test_a_leftover_that_changed_since_it_was_read_is_not_given_up(way: str) -> None:
    api = ApiDouble((PVC.ref("own", "ns"), {"metadata": OURS}))
    api.answer("DELETE", "own", refusal(409, "Conflict", "Operation cannot be fulfilled on it"))
    assert removed(api, way, replace(BASE, claims=("own",))) is True
    assert api.objects == {}


def test_a_vm_that_changes_between_every_read_and_write_is_given_up_in_the_end(way: str) -> None:
    api = ApiDouble((REF, a_vm("own")))
    conflict = refusal(409, "Conflict", "the object has been modified")
    serve = api.serve
    api.serve = lambda request: conflict if request.method == "DELETE" else serve(request)  # type: ignore[method-assign]
    with pytest.raises(Conflict):
        removed(api, way, BASE)
    assert REF.path in api.objects


def test_a_vm_that_took_the_name_meanwhile_is_not_hit(way: str) -> None:
    api = ApiDouble((REF, a_vm("own")))

    def swap(found: ApiDouble) -> Reply:
        found.put(REF, {"metadata": {"annotations": owner_annotations("c-1", "other")}})
        return refusal(409, "Conflict", "the UID in the precondition does not match")

    serve = api.serve
    api.serve = lambda request: swap(api) if request.method == "DELETE" else serve(request)  # type: ignore[method-assign]
    assert removed(api, way, replace(BASE, claims=("own",))) is True
    assert api.objects[REF.path]["metadata"]["annotations"] == owner_annotations("c-1", "other")


@pytest.mark.parametrize("claims", [(), ("own",)])
def test_a_vm_that_changes_hands_after_it_was_annotated_is_not_deleted(
    way: str, claims: tuple[str, ...]
) -> None:
    api = ApiDouble((REF, a_vm("own")))
    known = read_vm(api.objects[REF.path])
    change_hands(api, REF, after="PATCH")
    asked = replace(BASE, claims=claims)
    operation = lambda: remove(asked, frozenset({"named"}), known)  # noqa: E731
    assert api.run_both_ways(operation, way) is True
    assert annotations_of(api.objects[REF.path]) == FOREIGN["annotations"]


@pytest.mark.parametrize("ref", [SECRET_REF, PVC.ref("own", "ns")], ids=["Secret", "claim"])
def test_an_orphan_that_changes_hands_after_it_was_read_is_not_deleted(way: str, ref: ObjectRef) -> None:
    api = ApiDouble((ref, {"metadata": OURS}))
    change_hands(api, ref, after="GET")
    assert removed(api, way, replace(BASE, claims=("own",))) is True
    assert annotations_of(api.objects[ref.path]) == FOREIGN["annotations"]


def test_an_answer_that_is_no_answer_removes_nothing(way: str) -> None:
    api = ApiDouble((PVC.ref("own", "ns"), {"metadata": OURS}))
    api.answer("GET", "m", refusal(403, "Forbidden", "may not"))
    with pytest.raises(Forbidden):
        removed(api, way, replace(BASE, claims=("own",)))
    assert len(api.objects) == 1


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
    api = ApiDouble((REF, a_vm()))
    for last in ("start", "stop"):
        wrapped = f'Operation cannot be fulfilled on virtualmachine.kubevirt.io "m": {text}'
        api.answer("PUT", last, refusal(409, "Conflict", wrapped))
    api.run_both_ways(lambda: verb(REF), way)
    assert len(api.requests) == 1


def test_a_start_while_another_order_runs_has_to_wait(way: str) -> None:
    api = ApiDouble((REF, a_vm()))
    text = "Internal error occurred: unable to complete request: stop/start already underway"
    api.answer("PUT", "start", refusal(500, "InternalError", text))
    with pytest.raises(Busy, match="has to wait"):
        api.run_both_ways(lambda: power.start(REF), way)


@pytest.mark.parametrize("verb", ["start", "restart"])
def test_a_start_without_quota_is_refused(way: str, verb: str) -> None:
    api = ApiDouble((REF, a_vm()))
    text = 'admission webhook "validator.harvesterhci.io" denied the request: memory insufficient'
    api.answer("PUT", verb, refusal(500, "InternalError", text))
    with pytest.raises(Refused, match="memory insufficient"):
        api.run_both_ways(lambda: getattr(power, verb)(REF), way)


@pytest.mark.parametrize(
    "text", ["RunStategy Halted does not support manual restart requests", "VM is not running: Halted"]
)
def test_a_restart_of_a_vm_that_is_down_is_a_start(way: str, text: str) -> None:
    api = ApiDouble((REF, a_vm()))
    api.answer("PUT", "restart", refusal(409, "Conflict", text))
    api.answer("PUT", "start", Reply(202))
    api.run_both_ways(lambda: power.restart(REF), way)
    assert api.requests == ["PUT m/restart", "PUT m/start"]


def test_a_conflict_that_means_something_else_comes_through(way: str) -> None:
    api = ApiDouble((REF, a_vm()))
    for verb in ("start", "stop", "restart"):
        api.answer("PUT", verb, refusal(409, "Conflict", "something new"))
    for operation in (power.start, power.stop, power.restart):
        with pytest.raises(KubeError, match="something new"):
            api.run_both_ways(lambda operation=operation: operation(REF), way)


# --- waiting -------------------------------------------------------------------------------------------------------


def phase(name: str, *addresses: str) -> Any:
    nics = [{"name": "nic-0", "ipAddress": address} for address in addresses]
    return lambda api: api.put(VMI_REF, {"status": {"phase": name, "interfaces": nics}})


def test_an_address_is_waited_for_through_every_stage() -> None:
    api = ApiDouble((REF, a_vm()))
    api.then(phase("Pending"), phase("Scheduled"), phase("Running"), phase("Running", "10.0.0.5"))
    assert api.run(conditions.wait_for_address(REF)) == ("10.0.0.5",)


def test_a_wait_that_is_over_costs_no_time() -> None:
    api = ApiDouble((REF, a_vm()))
    phase("Running", "10.0.0.5")(api)
    before = api.now
    assert api.run(conditions.wait_for_address(REF)) == ("10.0.0.5",)
    assert api.now == before


def test_a_wait_in_vain_ends_in_time_with_the_last_reason() -> None:
    api = ApiDouble((REF, a_vm()))
    api.then(phase("Running"))
    with pytest.raises(WaitTimeout, match="no address is reported: its guest agent has not answered"):
        api.run(conditions.wait_for_address(REF))


def test_a_stop_is_waited_for() -> None:
    api = ApiDouble((REF, a_vm()))
    phase("Running")(api)

    def down(found: ApiDouble) -> None:
        stopped = a_vm()
        stopped["status"]["printableStatus"] = "Stopped"
        found.put(REF, stopped)
        found.drop(VMI_REF)

    api.then(down)
    api.run(conditions.wait_for_stopped(REF))
    assert api.scheduled == []


def test_a_start_is_waited_for() -> None:
    api = ApiDouble((REF, a_vm()))
    api.then(phase("Scheduled"), phase("Running", "10.0.0.5"))
    assert api.run(conditions.wait_for_address(REF)) == ("10.0.0.5",)
    assert api.scheduled == []


def test_the_end_of_a_removal_is_waited_for() -> None:
    api = ApiDouble((REF, a_vm()))
    api.then(lambda found: found.put(REF, a_vm(deletionTimestamp="x")), lambda found: found.drop(REF))
    api.run(conditions.wait_for_removal(REF))
    assert api.scheduled == []


def test_a_restart_is_waited_for_until_another_instance_runs() -> None:
    api = ApiDouble((REF, a_vm()))
    phase("Running", "10.0.0.5")(api)
    old = api.objects[VMI_REF.path]["metadata"]["uid"]
    api.then(lambda found: found.drop(VMI_REF), phase("Scheduled"), phase("Running", "10.0.0.6"))
    found = api.run(conditions.wait_for_address(REF, except_instance=old))
    assert found == ("10.0.0.6",)


# --- observe -------------------------------------------------------------------------------------------------------


def test_a_look_tells_state_and_addresses_in_two_calls(way: str) -> None:
    api = ApiDouble((REF, a_vm()))
    phase("Running", "10.0.0.5")(api)
    look = api.run_both_ways(lambda: observe_vm(REF), way)
    assert (look.status.state, look.status.addresses) == ("running", ("10.0.0.5",))
    assert look.vmi_uid == api.objects[VMI_REF.path]["metadata"]["uid"]
    assert len(api.requests) == 2


def test_a_vm_without_an_instance_is_looked_at_too(way: str) -> None:
    stopped = a_vm()
    stopped["status"]["printableStatus"] = "Stopped"
    look = ApiDouble((REF, stopped)).run_both_ways(lambda: observe_vm(REF), way)
    assert (look.status.state, look.vmi_uid, look.status.addresses) == ("stopped", "", ())


def test_an_instance_that_does_not_run_has_no_addresses(way: str) -> None:
    api = ApiDouble((REF, a_vm()))
    phase("Scheduled", "10.0.0.5")(api)
    assert api.run_both_ways(lambda: observe_vm(REF), way).status.addresses == ()


def test_only_a_404_means_that_there_is_no_vm(way: str) -> None:
    assert ApiDouble().run_both_ways(lambda: observe_vm(REF), way) is None
    for last in ("virtualmachines/m", "virtualmachineinstances/m"):
        api = ApiDouble((REF, a_vm()))
        api.answer("GET", last, refusal(403, "Forbidden", "may not"))
        with pytest.raises(Forbidden):
            api.run_both_ways(lambda api=api: observe_vm(REF), way)


def test_a_machine_is_seen_with_its_host_and_what_it_still_lacks(way: str) -> None:
    ready = {"status": {"conditions": [{"type": "Ready", "status": "True"}]}}
    api = ApiDouble((REF, a_vm()), (NODE.ref("host-1"), ready))
    nic = {"name": "nic-0", "ipAddress": "10.0.0.5"}
    api.put(VMI_REF, {"status": {"phase": "Running", "nodeName": "host-1", "interfaces": [nic]}})
    status = api.run_both_ways(lambda: get_status(BASE), way)
    assert (status.state, status.addresses) == ("running", ("10.0.0.5",))
    assert (status.host, status.host_ready, status.is_complete) == ("host-1", True, False)

    api.put(SECRET_REF, {"metadata": OURS})
    assert api.run_both_ways(lambda: get_status(BASE), way).is_complete


@pytest.mark.parametrize(
    ("status", "asked"),
    [
        (None, []),
        ({"phase": "Pending"}, []),
        ({"phase": "Running", "nodeName": "host-1"}, ["GET nodes/host-1"]),
    ],
)
def test_a_host_is_read_where_there_is_one_and_may_be_forbidden(
    way: str, status: dict[str, Any] | None, asked: list[str]
) -> None:
    api = ApiDouble((REF, a_vm()))
    if status is not None:
        api.put(VMI_REF, {"status": status})
    api.answer("GET", "nodes/host-1", refusal(403, "Forbidden", "may not"))
    found = api.run_both_ways(lambda: get_status(BASE), way)
    assert found.host_ready is None
    assert [request for request in api.requests if "nodes" in request] == asked


def test_a_vm_of_another_is_seen_as_the_absence_of_this_machine_and_an_unmarked_one_as_nothing(
    way: str,
) -> None:
    api = ApiDouble((REF, {"spec": {}}))
    assert api.run_both_ways(lambda: get_status(BASE), way).presence == "missing"
    with pytest.raises(Refused, match="but not its owner annotations"):
        api.run_both_ways(lambda: get_status(replace(BASE, vm_uid="uid-1")), way)


# --- rewrite -------------------------------------------------------------------------------------------------------


def test_a_rewrite_replaces_the_document_and_keeps_network_data(way: str) -> None:
    api = an_api()
    made = ordered(api, way, replace(BASE, network_data="#" * 3000, ssh_password="pw"))
    before = api.objects[SECRET_REF.path]["data"]
    api.requests.clear()
    api.run_both_ways(lambda: replace_user_data(made, "#cloud-config\n"), way)
    after = api.objects[SECRET_REF.path]["data"]
    assert after["networkdata"] == before["networkdata"]
    assert after["userdata"] != before["userdata"]
    api.run_both_ways(lambda: replace_user_data(made, "#cloud-config\n"), way)
    assert [entry.partition(" ")[0] for entry in api.requests] == ["GET", "PATCH", "GET"]


def test_a_rewrite_of_the_secret_of_another_is_refused(way: str) -> None:
    api = ApiDouble((SECRET_REF, {"data": {"userdata": ""}}))
    with pytest.raises(Refused, match="no cloud-init Secret"):
        api.run_both_ways(lambda: replace_user_data(BASE, "#cloud-config\n"), way)
    with pytest.raises(Refused):
        ApiDouble().run_both_ways(lambda: replace_user_data(BASE, "#cloud-config\n"), way)


def test_an_unknown_answer_is_not_taken_for_an_object(way: str) -> None:
    api = an_api()
    api.answer("POST", "virtualmachines", Reply(200, b"<html>"))
    with pytest.raises(KubeError, match="wanted a JSON object"):
        ordered(api, way)


def test_nothing_is_concluded_from_a_missing_kind(way: str) -> None:
    api = ApiDouble((REF, a_vm()))
    api.answer("PUT", "start", refusal(404, "NotFound", 'virtualmachine.kubevirt.io "m" not found'))
    with pytest.raises((Refused, NotFound)):
        api.run_both_ways(lambda: power.start(REF), way)


def test_the_disks_of_a_vm_that_went_after_the_reading_go_too(way: str) -> None:
    api = ApiDouble((REF, a_vm("own")), (PVC.ref("own", "ns"), {"metadata": OURS}))
    known = read_vm(api.objects[REF.path])
    api.drop(REF)
    assert api.run_both_ways(lambda: remove(replace(BASE, claims=("own",)), frozenset(), known), way) is True
    assert not api.objects


def test_a_vm_that_lost_its_marks_is_neither_removed_nor_taken_for_gone(way: str) -> None:
    api = ApiDouble((REF, {}), (PVC.ref("own", "ns"), {"metadata": OURS}))
    own = replace(BASE, vm_uid=api.objects[REF.path]["metadata"]["uid"], claims=("own",))
    before = dict(api.objects)
    with pytest.raises(Refused, match="but not its owner annotations; set windrow"):
        removed(api, way, own)
    assert api.objects == before


PAGE = Reply(404, b"404 page not found", "text/plain")


@pytest.mark.parametrize(
    ("method", "last"),
    [("GET", "virtualmachineimages/image"), ("POST", "virtualmachines"), ("POST", "secrets")],
)
def test_a_404_of_something_in_between_refuses_nothing(way: str, method: str, last: str) -> None:
    api = an_api()
    api.answer(method, last, PAGE)
    with pytest.raises(NotFound, match="page not found"):
        ordered(api, way)
    assert ordered(api, way).vm_uid


def test_a_404_of_something_in_between_stops_no_machine(way: str) -> None:
    api = ApiDouble((REF, a_vm()))
    for operation in (lambda: observe_vm(REF), lambda: get_status(BASE)):
        api.answer("GET", "virtualmachineinstances/m", PAGE)
        with pytest.raises(NotFound, match="page not found"):
            api.run_both_ways(operation, way)


@pytest.mark.parametrize("operation", [lambda: remove(BASE, frozenset()), lambda: observe_vm(REF)])
def test_a_404_that_does_not_name_the_vm_is_not_its_end(way: str, operation: Any) -> None:
    api = ApiDouble((REF, a_vm("own")), (SECRET_REF, {"metadata": OURS}))
    api.answer("GET", "m", Reply(404, b"404 page not found", "text/plain"))
    before = dict(api.objects)
    with pytest.raises(NotFound, match="page not found"):
        api.run_both_ways(operation, way)
    assert api.objects == before
