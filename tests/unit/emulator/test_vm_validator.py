"""Refusals of virtual machines, word by word: reference 05 §3.2."""

from __future__ import annotations

import copy

import pytest

from windrow.core.rng import Rng
from windrow.emulator import kinds
from windrow.emulator.admission.vm_mutator import mutate_vm
from windrow.emulator.admission.vm_validator import check_vm
from windrow.emulator.release import NEWEST_RELEASE
from windrow.kubernetes.errors import AdmissionDenied, KubeError, error_from_status
from windrow.kubernetes.objects import new_object

from .objects import a_claim, a_template, a_vm, listers_of, with_templates

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
    mutate_vm(vm, None, listers_of(), Rng(1), NEWEST_RELEASE)

    assert check_vm(vm, None, listers_of()) is None


@pytest.mark.parametrize(
    ("annotation", "why"),
    [
        ('[{"metadata":{}}]', "PVC name is required"),
        ("[{", "unexpected end of JSON input"),
    ],
)
def test_unreadable_claim_templates_are_refused_with_the_shipped_spelling(annotation, why):
    vm = a_vm()
    vm["metadata"]["annotations"]["harvesterhci.io/volumeClaimTemplates"] = annotation

    assert (f"the volumeClaimTemplates annotaion is invalid: {why}", 422) == refused(vm)


def test_a_claim_serves_one_vm_only():
    other = a_vm("m-2")
    other["spec"]["template"]["spec"]["volumes"][0]["persistentVolumeClaim"]["claimName"] = "m-1-disk-0"
    claim = a_claim("m-1-disk-0")

    text = "PVC ns/m-1-disk-0 is already used by other VM, please use a shareable RWX volume."
    assert (text, 422) == refused(a_vm(), None, other, claim)

    other["spec"]["template"]["spec"]["domain"]["devices"]["disks"][0]["shareable"] = True
    assert check_vm(a_vm(), None, listers_of(other, claim)) is None


def test_a_claim_of_a_class_that_several_hosts_write_is_shared():
    other = a_vm("m-2")
    other["spec"]["template"]["spec"]["volumes"][0]["persistentVolumeClaim"]["claimName"] = "m-1-disk-0"
    claim = a_claim("m-1-disk-0")
    claim["spec"]["accessModes"] = ["ReadWriteMany"]
    claim["metadata"]["annotations"] = {"volume.kubernetes.io/storage-provisioner": "nfs.csi.k8s.io"}
    assert check_vm(a_vm(), None, listers_of(other, claim)) is None

    claim["metadata"]["annotations"] = {"volume.kubernetes.io/storage-provisioner": "driver.longhorn.io"}
    assert refused(a_vm(), None, other, claim)[1] == 422


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


def test_a_mac_is_unique_on_its_cluster_network():
    here, there = a_vm(), a_vm("m-2")
    for vm in (here, there):
        vm["spec"]["template"]["spec"]["domain"]["devices"]["interfaces"][0]["macAddress"] = (
            "02:00:00:00:00:01"
        )

    text = "duplicate mac address present for vm m-1 for cluster network mgmt"
    assert (text, 500) == refused(here, None, there)


def test_an_unknown_maintenance_mode_is_refused():
    vm = a_vm()
    vm["metadata"]["labels"]["harvesterhci.io/maintain-mode-strategy"] = "Pray"

    assert refused(vm) == ("invalid maintenance mode strategy: Pray", 422)


def test_an_empty_cd_rom_needs_sata():
    vm = a_vm()
    disks = vm["spec"]["template"]["spec"]["domain"]["devices"]["disks"]
    disks.append({"name": "empty", "cdrom": {"bus": "scsi"}})
    assert refused(vm) == ("empty cd-rom device should connect via SATA bus", 500)

    disks[-1]["cdrom"]["bus"] = "sata"
    assert check_vm(vm, None, listers_of()) is None


def test_a_volume_keeps_its_class_and_does_not_shrink():
    old = with_templates(a_vm(), a_template())

    text, code = refused(with_templates(a_vm(), a_template(size="10Gi")), old)
    assert (text, code) == ("m-1-disk-0 PVC requests storage can't be less than previous value", 422)

    text, code = refused(with_templates(a_vm(), a_template(storage_class="longhorn")), old)
    assert text == (
        "storage class names for the volumes in the harvesterhci.io/volumeClaimTemplates annotation cannot be "
        "changed; new name longhorn in volume m-1-disk-0;"
    )
    assert code == 500


def test_a_volume_grows_only_where_its_claim_can_be_expanded():
    old = with_templates(a_vm(), a_template())
    new = with_templates(a_vm(), a_template(size="50Gi"))
    for vm, template in ((old, a_template()), (new, a_template(size="50Gi"))):
        template["metadata"]["namespace"] = "ns"
        with_templates(vm, template)
    assert refused(new, old) == ('persistentvolumeclaims "m-1-disk-0" not found', 500)

    claim = a_claim("m-1-disk-0")
    claim["spec"]["storageClassName"] = "fast"
    assert check_vm(new, old, listers_of(old, claim)) is None

    claim["metadata"]["annotations"] = {
        "volume.kubernetes.io/storage-provisioner": "lvm.driver.harvesterhci.io"
    }
    why = "PVC_EXPAND: pvc ns/m-1-disk-0 is not online expandable with its provider"
    assert refused(new, old, old, claim) == (why, 422)


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"targetVolume": "gone"}, "VM must be running to set targetVolume for volume migration"),
        ({"targetVolume": "gone", "status": "Running"}, "targetVolume PVC ns/gone not found"),
        (
            {"targetVolume": "small", "status": "Running"},
            "targetVolume small size (1Gi) must not be less than source volume m-1-disk-0 size (40Gi)",
        ),
        ({"targetVolume": "gone", "name": "other"}, "PVC other is not attached to the VM"),
    ],
)
def test_a_volume_moves_while_the_vm_runs_and_to_a_claim_of_its_size(change, text):
    template = {**a_template(change.get("name", "m-1-disk-0")), "targetVolume": change["targetVolume"]}
    vm = with_templates(a_vm(), template)
    vm["status"] = {"printableStatus": change.get("status", "Stopped")}
    small = a_claim("small")
    small["spec"] = {"resources": {"requests": {"storage": "1Gi"}}}

    assert refused(vm, a_vm(), small) == (text, 422)


def test_reserved_memory_and_guest_memory_fit_together():
    vm = a_vm()
    vm["metadata"]["annotations"]["harvesterhci.io/reservedMemory"] = "1Gi"
    vm["spec"]["template"]["spec"]["domain"]["memory"] = {"guest": "8Gi"}

    sizes = f"guest memory {8 << 30} plus reservedMemory {1 << 30}"
    assert refused(vm) == (f"{sizes} cannot be greater than limits.memory {8 << 30}", 422)


def test_a_network_without_a_namespace_is_looked_for_in_default():
    vm = a_vm(networks=[{"name": "nic-0", "multus": {"networkName": "net"}}])

    assert refused(vm) == ('network-attachment-definitions.k8s.cni.cncf.io "net" not found', 500)


def test_a_refusal_reads_as_a_denial_whatever_its_code():
    refusal = denial_of(a_vm(terminationGracePeriodSeconds=-1))

    read = error_from_status({"code": refusal.status, "message": refusal.message, "reason": refusal.reason})

    assert isinstance(read, AdmissionDenied)


def test_a_422_has_one_cause_and_no_name():
    refusal = denial_of(a_vm(terminationGracePeriodSeconds=-1))

    assert [cause["reason"] for cause in refusal.details["causes"]] == ["FieldValueInvalid"]
    assert "name" not in refusal.details


def test_an_unchanged_vm_still_passes_on_update():
    vm = with_templates(a_vm(), a_template())
    mutate_vm(vm, None, listers_of(), Rng(1), NEWEST_RELEASE)

    assert check_vm(copy.deepcopy(vm), vm, listers_of(vm)) is None


def test_a_vm_may_have_dots_and_more_than_63_characters_in_its_name_and_not_in_its_hostname():
    assert check_vm(a_vm("web.example"), None, listers_of()) is None
    assert check_vm(a_vm("m" * 64), None, listers_of()) is None
    text, _ = refused(a_vm(hostname="web.example"))
    assert text.startswith(
        "spec.template.spec.hostname does not conform to the kubernetes DNS_LABEL rules : "
    )


def _quota(**hard):
    labels = {"resourcequota.management.cattle.io/default-resource-quota": "true"}
    return new_object(kinds.QUOTA, "q", "ns", labels=labels, spec={"hard": hard})


def test_storage_over_quota_is_refused_at_once():
    vm = with_templates(a_vm(), a_template(size="40Gi"))
    quota = _quota(**{"requests.storage": "30Gi"})

    assert refused(vm, None, quota) == ("storage insufficient resources due to resource quota", 500)
    assert check_vm(vm, vm, listers_of(quota)) is None


def test_cpu_over_quota_passes_at_create_and_is_refused_while_the_vm_is_down_and_is_to_run():
    quota = _quota(**{"limits.cpu": "2"})
    assert check_vm(a_vm(), None, listers_of(quota)) is None

    vm = a_vm()
    vm["status"] = {"printableStatus": "Stopped"}
    assert refused(vm, a_vm(), quota) == ("cpu insufficient resources due to resource quota", 500)

    vm["spec"]["runStrategy"] = "Halted"
    assert check_vm(vm, a_vm(), listers_of(quota)) is None


def test_a_vm_on_which_kubevirts_webhook_panics_is_not_made():
    vm = a_vm()
    domain = vm["spec"]["template"]["spec"]["domain"]
    domain["memory"] = {"guest": "1Gi", "hugepages": {"pageSize": "0"}}

    with pytest.raises(
        KubeError, match=r'failed calling webhook "virtualmachine-validator.kubevirt.io".*EOF'
    ):
        check_vm(vm, None, listers_of())


def test_a_vm_on_which_harvesters_webhook_panics_is_not_made():
    vm = a_vm()
    vm["spec"]["template"]["spec"]["domain"]["memory"] = {}

    with pytest.raises(KubeError, match=r'failed calling webhook "validator.harvesterhci.io".*EOF'):
        check_vm(vm, None, listers_of())
