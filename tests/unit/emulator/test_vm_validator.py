"""Refusals of virtual machines, word by word: reference 05 §3.2."""

from __future__ import annotations

import copy

import pytest

from windrow.core.rng import Rng
from windrow.emulator.admission.vm_mutator import mutate_vm
from windrow.emulator.admission.vm_validator import check_vm
from windrow.kubernetes.errors import AdmissionDenied, error_from_status

from .objects import a_claim, a_template, a_vm, an_image, listers_of, with_templates

HARVESTER = 'admission webhook "validator.harvesterhci.io" denied the request: '
KUBEVIRT = 'admission webhook "virtualmachine-validator.kubevirt.io" denied the request: '


def denial_of(vm, old=None, *objects):
    with pytest.raises(AdmissionDenied) as denial:
        check_vm(vm, old, listers_of(*objects))
    return denial.value


def refused(vm, old=None, *objects):
    """The text of the refusal without its prefix, and its code."""
    refusal = denial_of(vm, old, *objects)
    assert refusal.message.startswith((HARVESTER, KUBEVIRT))
    return refusal.message.removeprefix(HARVESTER).removeprefix(KUBEVIRT), refusal.status


def test_a_sound_vm_passes():
    vm = with_templates(a_vm(), a_template())
    mutate_vm(vm, None, listers_of(), Rng(1))

    assert check_vm(vm, None, listers_of()) is None


@pytest.mark.parametrize(
    ("annotation", "why"),
    [
        ('[{"metadata":{}}]', "PVC name is required"),
        ("[{", "Expecting property name enclosed in double quotes: line 1 column 3 (char 2)"),
    ],
)
def test_unreadable_claim_templates_are_refused_with_the_shipped_spelling(annotation, why):
    vm = a_vm()
    vm["metadata"]["annotations"]["harvesterhci.io/volumeClaimTemplates"] = annotation

    assert (f"the volumeClaimTemplates annotaion is invalid: {why}", 422) == refused(vm)


def test_a_claim_serves_one_vm_only():
    other = a_vm("m-2")
    other["spec"]["template"]["spec"]["volumes"][0]["persistentVolumeClaim"]["claimName"] = "m-1-disk-0"

    text = "PVC ns/m-1-disk-0 is already used by other VM, please use a shareable RWX volume."
    assert (text, 422) == refused(a_vm(), None, other)


def test_a_golden_image_is_no_disk():
    golden = a_claim("m-1-disk-0")
    golden["metadata"]["annotations"] = {"harvesterhci.io/goldenImage": "true"}

    text = "PVC ns/m-1-disk-0 is a golden image, it can't be used as a volume in VM"
    assert (text, 422) == refused(a_vm(), None, golden)


def test_grace_is_not_negative():
    text = "Termination grace period can't be negative"
    assert (text, 422) == refused(a_vm(terminationGracePeriodSeconds=-1))


def test_memory_is_required():
    vm = a_vm()
    vm["spec"]["template"]["spec"]["domain"]["resources"] = {}

    assert refused(vm) == ("either memory.guest or resources.limits.memory must be set", 422)


@pytest.mark.parametrize(
    ("reserved", "text"),
    [
        ("8Gi", "reservedMemory cannot be equal or greater than limits.memory"),
        ("-1Mi", "reservedMemory cannot be less than 0"),
    ],
)
def test_reserved_memory_fits(reserved, text):
    vm = a_vm()
    vm["metadata"]["annotations"]["harvesterhci.io/reservedMemory"] = reserved

    assert (text, 422) == refused(vm)


def test_a_missing_class_is_an_internal_error_at_create():
    vm = with_templates(a_vm(), a_template(storage_class=""))

    text, code = refused(vm)

    assert text.startswith("failed to get storage class : ")
    assert code == 500


def test_a_missing_class_is_invalid_at_update():
    old = with_templates(a_vm(), a_template())
    new = with_templates(a_vm(), a_template(), a_template("more", storage_class="gone"))

    assert refused(new, old) == ("storage class gone does not exist", 422)


def test_the_class_of_another_image_is_refused():
    vm = with_templates(a_vm(), a_template(image="ns/wanted"))

    text, code = refused(vm, None, an_image("wanted", "lh-1"), an_image("other", "fast"))

    assert text.startswith(
        'imageId "ns/wanted" in volume template does not match backing image of storage class "fast"'
    )
    assert code == 422


def test_a_mac_is_unique_on_its_cluster_network():
    here, there = a_vm(), a_vm("m-2")
    for vm in (here, there):
        vm["spec"]["template"]["spec"]["domain"]["devices"]["interfaces"][0]["macAddress"] = (
            "02:00:00:00:00:01"
        )

    text = "duplicate mac address present for vm ns/m-2 for cluster network mgmt"
    assert (text, 500) == refused(here, None, there)


def test_an_unknown_maintenance_mode_is_refused():
    vm = a_vm()
    vm["metadata"]["labels"]["harvesterhci.io/maintain-mode-strategy"] = "Pray"

    assert refused(vm) == ("invalid maintenance mode strategy: Pray", 422)


def test_an_empty_cd_rom_needs_sata():
    vm = a_vm()
    disks = vm["spec"]["template"]["spec"]["domain"]["devices"]["disks"]
    disks.append({"name": "empty", "cdrom": {"bus": "scsi"}})
    assert refused(vm) == ("empty cd-rom device should connect via SATA bus", 422)

    disks[-1]["cdrom"]["bus"] = "sata"
    assert check_vm(vm, None, listers_of()) is None


def test_a_volume_keeps_its_class_and_does_not_shrink():
    old = with_templates(a_vm(), a_template())

    text, code = refused(with_templates(a_vm(), a_template(size="10Gi")), old)
    assert (text, code) == ("m-1-disk-0 PVC requests storage can't be less than previous value", 422)

    text, code = refused(with_templates(a_vm(), a_template(storage_class="longhorn")), old)
    assert text.startswith(
        "storage class names for the volumes in the harvesterhci.io/volumeClaimTemplates annotation"
    )
    assert code == 500


@pytest.mark.parametrize(
    ("key", "hint"), [("userData", "UserDataSecretRef"), ("networkData", "NetworkDataSecretRef")]
)
def test_inline_cloud_init_over_2048_bytes_is_refused(key, hint):
    vm = a_vm()
    volumes = vm["spec"]["template"]["spec"]["volumes"]
    volumes.append({"name": "cloudinitdisk", "cloudInitNoCloud": {key: "x" * 2048}})
    assert check_vm(vm, None, listers_of()) is None

    volumes[-1]["cloudInitNoCloud"][key] += "x"
    text, code = refused(vm)
    assert text.endswith(f"exceeds 2048 byte limit. Should use {hint} for larger data.")
    assert code == 422


def test_a_disk_without_volume_and_a_card_without_network_are_refused():
    lost = a_vm(volumes=[])
    assert "domain.devices.disks[0].name 'disk-0' not found." in refused(lost)[0]

    loose = a_vm(networks=[])
    assert "domain.devices.interfaces[0].name 'nic-0' not found." in refused(loose)[0]


def test_the_run_strategy_is_one_of_kubevirts():
    vm = a_vm()
    vm["spec"]["runStrategy"] = "Sometimes"
    assert refused(vm) == ("Invalid RunStrategy (Sometimes)", 422)

    del vm["spec"]["runStrategy"]
    assert refused(vm) == ("One of Running or RunStrategy must be specified", 422)


def test_a_refusal_reads_as_a_denial_whatever_its_code():
    refusal = denial_of(with_templates(a_vm(), a_template(storage_class="gone")))

    read = error_from_status({"code": refusal.status, "message": refusal.message, "reason": refusal.reason})

    assert isinstance(read, AdmissionDenied)


def test_a_422_has_one_cause_and_no_name():
    refusal = denial_of(a_vm(terminationGracePeriodSeconds=-1))

    assert [cause["reason"] for cause in refusal.details["causes"]] == ["FieldValueInvalid"]
    assert "name" not in refusal.details


def test_an_unchanged_vm_still_passes_on_update():
    vm = with_templates(a_vm(), a_template())
    mutate_vm(vm, None, listers_of(), Rng(1))

    assert check_vm(copy.deepcopy(vm), vm, listers_of(vm)) is None


def test_a_vm_may_have_dots_in_its_name_and_not_in_its_hostname():
    assert check_vm(a_vm("web.example"), None, listers_of()) is None
    text, _ = refused(a_vm(hostname="web.example"))
    assert text.startswith(
        "spec.template.spec.hostname does not conform to the kubernetes DNS_LABEL rules : "
    )
