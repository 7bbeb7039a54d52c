"""An edit of a VM that exists: exactly what the options changed, in one request, and only on the machine's own VM."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from tests.unit.nodedriver.api_double import ApiDouble, refusal
from tests.unit.nodedriver.test_vm_operations import FOREIGN, REF

from windrow.core.formats.json import dumps, loads
from windrow.harvester.names import CLAIM_TEMPLATES, RESERVED_MEMORY
from windrow.harvester.vms import build_vm
from windrow.kubernetes.errors import Conflict
from windrow.kubernetes.objects import annotations_of
from windrow.kubernetes.resources import STORAGE_CLASS
from windrow.nodedriver.config import Configuration
from windrow.nodedriver.devices import DiskSpec, NicSpec
from windrow.nodedriver.errors import Refused
from windrow.nodedriver.vm.edit import are_grown, edit, with_edits
from windrow.nodedriver.vm.plan import plan_vm, planned_claims

ROOT, DATA = DiskSpec("image", size_gib=40), DiskSpec("", "fast", 10)
BASE = Configuration(
    machine_name="m",
    vm_namespace="ns",
    cluster_name="c",
    machine_uid="m-1",
    cluster_uid="c-1",
    disk_info=(ROOT, DATA),
    network_info=(NicSpec("net"),),
)
FIRST, SECOND = planned_claims(BASE)


@pytest.fixture(params=["blocking", "asyncio"])
def way(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def an_api(configuration: Configuration = BASE) -> ApiDouble:
    """A Harvester with the machine's VM, and the two classes of its disks, of which `slow` does not grow."""
    api = ApiDouble((REF, build_vm(plan_vm(configuration, {"image": "lh"}))))
    for name, grows in (("lh", True), ("fast", True), ("slow", False)):
        api.put(STORAGE_CLASS.ref(name), {"provisioner": "x", "allowVolumeExpansion": grows})
    api.requests.clear()
    return api


def edited(api: ApiDouble, way: str, before: Configuration = BASE, **changes: Any) -> Configuration:
    after = with_edits(before, replace(before, **changes))
    made: Configuration = api.run_both_ways(lambda: edit(before, after), way)
    return made


def template(api: ApiDouble) -> Any:
    return api.objects[REF.path]["spec"]["template"]["spec"]


def sizes(api: ApiDouble) -> dict[str, str]:
    claims = loads(annotations_of(api.objects[REF.path])[CLAIM_TEMPLATES])
    return {claim["metadata"]["name"]: claim["spec"]["resources"]["requests"]["storage"] for claim in claims}


def test_more_memory_is_one_patch_of_the_limit_and_what_a_person_set_otherwise_stays(way: str) -> None:
    api = an_api()
    template(api)["domain"]["cpu"]["sockets"] = 2
    template(api)["domain"]["memory"] = {"guest": "3996Mi"}
    made = edited(api, way, memory_size="8Gi")
    assert made == replace(BASE, memory_size="8Gi")
    domain = template(api)["domain"]
    assert domain["resources"]["limits"] == {"cpu": "2", "memory": "8Gi"}
    assert (domain["cpu"]["sockets"], domain["memory"]) == (2, {"guest": "3996Mi"})
    assert api.requests == ["GET virtualmachines/m", "PATCH virtualmachines/m"]


def test_cpus_change_with_their_limit_and_pinning_comes_and_goes(way: str) -> None:
    api = an_api()
    pinned = edited(api, way, cpu=6, cpu_pinning=True, isolate_emulator_thread=True)
    cpu = template(api)["domain"]["cpu"]
    assert (cpu["cores"], cpu["dedicatedCpuPlacement"], cpu["isolateEmulatorThread"]) == (6, True, True)
    assert template(api)["domain"]["resources"]["limits"]["cpu"] == "6"
    edited(api, way, pinned, cpu_pinning=False, isolate_emulator_thread=False)
    assert template(api)["domain"]["cpu"] == {"cores": 6, "sockets": 1, "threads": 1}


def test_reserved_memory_is_an_annotation_of_the_vm(way: str) -> None:
    api = an_api()
    reserved = edited(api, way, reserved_memory_size="512Mi")
    assert annotations_of(api.objects[REF.path])[RESERVED_MEMORY] == "512Mi"
    edited(api, way, reserved, reserved_memory_size="")
    assert RESERVED_MEMORY not in annotations_of(api.objects[REF.path])


def test_another_affinity_takes_the_place_of_the_spread_over_hosts(way: str) -> None:
    api = an_api()
    term = {"nodeSelectorTerms": [{"matchExpressions": [{"key": "zone", "operator": "Exists"}]}]}
    wanted = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": term}}
    near = edited(api, way, vm_affinity=dumps(wanted).decode())
    assert template(api)["affinity"] == wanted
    edited(api, way, near, vm_affinity="")
    assert list(template(api)["affinity"]) == ["podAntiAffinity"]


def test_a_larger_disk_is_the_size_of_its_claim_template_and_of_no_other(way: str) -> None:
    api = an_api()
    larger = (ROOT, replace(DATA, size_gib=20))
    made = edited(api, way, disk_info=larger)
    assert sizes(api) == {FIRST: "40Gi", SECOND: "20Gi"}
    assert made.disk_info == larger
    assert api.requests == [
        "GET virtualmachines/m",
        "GET storageclasses/fast",
        "PATCH virtualmachines/m",
    ]
    edited(api, way, disk_info=larger)
    assert api.requests[3:] == ["GET virtualmachines/m"]


def test_a_claim_that_is_larger_already_is_left_alone(way: str) -> None:
    api = an_api(replace(BASE, disk_info=(ROOT, replace(DATA, size_gib=50))))
    edited(api, way, disk_info=(ROOT, replace(DATA, size_gib=20)))
    assert sizes(api)[SECOND] == "50Gi"


@pytest.mark.parametrize("missing", [False, True])
def test_a_disk_whose_class_does_not_grow_is_refused_and_nothing_else_is_changed(
    way: str, missing: bool
) -> None:
    slow = replace(BASE, disk_info=(ROOT, replace(DATA, storage_class="slow")))
    api = an_api(slow)
    if missing:
        api.drop(STORAGE_CLASS.ref("slow"))
    larger = (ROOT, replace(DATA, storage_class="slow", size_gib=20))
    with pytest.raises(Refused, match="StorageClass slow does not allow its volumes to grow"):
        edited(api, way, slow, cpu=8, disk_info=larger)
    assert sizes(api)[SECOND] == "10Gi"
    assert template(api)["domain"]["cpu"]["cores"] == 2


def test_a_claim_without_a_template_cannot_grow(way: str) -> None:
    api = an_api()
    annotations_of(api.objects[REF.path])
    api.objects[REF.path]["metadata"]["annotations"][CLAIM_TEMPLATES] = "[]"
    with pytest.raises(Refused, match=f"claim {SECOND} is not among"):
        edited(api, way, disk_info=(ROOT, replace(DATA, size_gib=20)))


def test_a_vm_that_is_as_wanted_is_not_patched(way: str) -> None:
    api = an_api()
    assert edited(api, way) == BASE
    assert api.requests == ["GET virtualmachines/m"]


def test_a_vm_that_is_gone_or_of_another_machine_is_not_edited(way: str) -> None:
    with pytest.raises(Refused, match="VirtualMachine ns/m not found"):
        edited(ApiDouble(), way, cpu=4)
    api = an_api()
    api.objects[REF.path]["metadata"] |= FOREIGN
    with pytest.raises(Refused):
        edited(api, way, cpu=4)
    assert template(api)["domain"]["cpu"]["cores"] == 2


def test_the_patch_names_the_vm_that_was_read(way: str) -> None:
    api = an_api()
    sent: list[Any] = []
    serve = api.serve

    def remember(request: Any) -> Any:
        sent.append(loads(request.body) if request.method == "PATCH" else None)
        return serve(request)

    api.serve = remember  # type: ignore[method-assign]
    read = dict(api.objects[REF.path]["metadata"])
    edited(api, way, cpu=4)
    assert {key: sent[-1]["metadata"][key] for key in ("uid", "resourceVersion")} == {
        key: read[key] for key in ("uid", "resourceVersion")
    }


def test_what_harvester_rejects_is_refused_and_what_it_may_take_later_is_not(way: str) -> None:
    api = an_api()
    text = 'admission webhook "validator.harvesterhci.io" denied the request: too large'
    api.answer("PATCH", "virtualmachines/m", refusal(422, "Invalid", text))
    with pytest.raises(Refused, match="too large"):
        edited(api, way, cpu=400)
    api.answer("PATCH", "virtualmachines/m", refusal(409, "Conflict", "the object has been modified"))
    with pytest.raises(Conflict):
        edited(api, way, cpu=4)


@pytest.mark.parametrize(
    ("after", "grown"),
    [
        ((ROOT, DATA), False),
        ((ROOT, replace(DATA, size_gib=11)), True),
        ((ROOT, replace(DATA, size_gib=9)), False),
        ((replace(ROOT, size_gib=41), replace(DATA, size_gib=9)), False),
        ((ROOT,), False),
        ((ROOT, DATA, DATA), False),
        ((ROOT, replace(DATA, size_gib=11, storage_class="other")), False),
        ((replace(ROOT, image="other", size_gib=41), DATA), False),
    ],
)
def test_disks_are_grown_where_they_are_the_same_and_none_is_smaller(
    after: tuple[DiskSpec, ...], grown: bool
) -> None:
    assert are_grown((ROOT, DATA), after) is grown


def test_what_an_edit_cannot_give_stays_as_it_was() -> None:
    wanted = replace(
        BASE, cpu=8, enable_efi=True, network_info=(NicSpec("other"),), disk_info=(replace(ROOT, size_gib=1),)
    )
    assert with_edits(BASE, wanted) == replace(BASE, cpu=8)
