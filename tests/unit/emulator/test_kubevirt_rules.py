"""KubeVirt's refusals of virtual machines, word by word (v1.7.0, as Harvester 1.8 configures it)."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest

from windrow.emulator.admission.denials import refused_by_kubevirt
from windrow.emulator.admission.kubevirt.admitter import find_vm_causes
from windrow.emulator.admission.kubevirt.causes import Cause
from windrow.kubernetes.objects import Raw, nested

from .objects import a_vm

DEVICES = "spec.template.spec.domain.devices"
DISK = f"{DEVICES}.disks[0]"
NIC = f"{DEVICES}.interfaces[0]"
SPEC = "spec.template.spec"
DOMAIN = f"{SPEC}.domain"
AGAIN = f"{DEVICES}.disks.domain.devices.disks[0]"


def changed(path: str, value: Any) -> Raw:
    """A sound VM with one field of its template's spec changed; a list's element by its number, `+` adds one."""
    vm = a_vm()
    here: Any = vm["spec"]["template"]["spec"]
    *steps, last = path.split(".")
    for step in steps:
        here = here[int(step)] if isinstance(here, list) else here.setdefault(step, {})
    if last == "+":
        here.append(copy.deepcopy(value))
    elif isinstance(here, list):
        here[int(last)] = value
    elif value is None:
        here.pop(last, None)
    else:
        here[last] = value
    return vm


def causes_of(vm: Raw, old: Raw | None = None) -> list[tuple[str, str]]:
    return [(cause.message, cause.field) for cause in find_vm_causes(vm, old)]


def test_a_sound_vm_has_no_causes() -> None:
    assert causes_of(a_vm()) == []


CASES: dict[str, tuple[str, Any, str, str]] = {
    # --- disks and volumes
    "no boot order 0": ("domain.devices.disks.0.bootOrder", 0, f"{DISK} must have a boot order > 0, if supplied", f"{DISK}.bootOrder"),
    "IDE": ("domain.devices.disks.0.disk", {"bus": "ide"}, "IDE bus is not supported", f"{DISK}.disk.bus"),
    "an unknown bus": (
        "domain.devices.disks.0.disk", {"bus": "SATA"},
        f"{DISK} is set with an unrecognized bus SATA, must be one of: [virtio scsi sata usb]", f"{DISK}.disk.bus",
    ),
    "a CD-ROM on virtio": (
        "domain.devices.disks.0", {"name": "disk-0", "cdrom": {"bus": "virtio"}},
        "Bus type virtio is invalid for CD-ROM device", f"{DISK}.cdrom.bus",
    ),
    "a read-only SATA disk": (
        "domain.devices.disks.0.disk", {"bus": "sata", "readonly": True},
        "sata hard-disks do not support read-only.", f"{DISK}.disk.bus",
    ),
    "two targets": (
        "domain.devices.disks.0.lun", {}, f"{DISK} can only have a single target type defined", DISK,
    ),
    "a cache": ("domain.devices.disks.0.cache", "writearound", f"{DISK}.cache has invalid value writearound", f"{DISK}.cache"),
    "an IO mode": (
        "domain.devices.disks.0.io", "fast",
        f"Disk IO mode for {DEVICES}.disks is not supported. Supported modes are: native, threads.", f"{AGAIN}.io",
    ),
    "a serial number": (
        "domain.devices.disks.0.serial", "a b",
        f"{DISK} must be made up of the following characters [A-Za-z0-9_.+-], if specified", f"{DISK}.serial",
    ),
    "an error policy": (
        "domain.devices.disks.0.errorPolicy", "pray", f'{DISK}.errorPolicy has invalid value "pray"', f"{DISK}.errorPolicy",
    ),
    "a disk without volume": (
        "domain.devices.disks.+", {"name": "lost"}, f"{DEVICES}.disks[1].Name 'lost' not found.", f"{DEVICES}.disks[1].name",
    ),
    "a volume without source": (
        "volumes.0", {"name": "disk-0"}, f"{SPEC}.volumes[0] must have exactly one source type set", f"{SPEC}.volumes[0]",
    ),
    "a host disk": (
        "volumes.0", {"name": "disk-0", "hostDisk": {"path": "/a", "type": "Disk"}}, "HostDisk feature gate is not enabled",
        f"{SPEC}.volumes[0]",
    ),
    "an I/O thread off virtio": (
        "domain.devices.disks.0", {"name": "disk-0", "disk": {"bus": "scsi"}, "dedicatedIOThread": True},
        "IOThreads are not supported for disks on a scsi bus", AGAIN,
    ),
    # --- networks
    "a model": (
        "domain.devices.interfaces.0.model", "fast", f"interface {NIC}.name uses model fast that is not supported.", f"{NIC}.model",
    ),
    "a MAC address": (
        "domain.devices.interfaces.0.macAddress", "zz", f"interface {NIC}.name has malformed MAC address (zz).", f"{NIC}.macAddress",
    ),
    "a long MAC address": (
        "domain.devices.interfaces.0.macAddress", "02:00:00:00:00:01:02:03",
        f"interface {NIC}.name has too long MAC address (02:00:00:00:00:01:02:03).", f"{NIC}.macAddress",
    ),
    "masquerade on multus": (
        "domain.devices.interfaces.0", {"name": "nic-0", "masquerade": {}},
        "Masquerade interface only implemented with pod network", f"{NIC}.name",
    ),
    "a network without interface": (
        "networks.+", {"name": "more", "multus": {"networkName": "ns/net"}}, f"{SPEC}.networks[1].name 'more' not found.",
        f"{SPEC}.networks[1].name",
    ),
    "an interface without network": (
        "domain.devices.interfaces.+", {"name": "more", "bridge": {}}, f"{DEVICES}.interfaces[1].name 'more' not found.",
        f"{DEVICES}.interfaces[1].name",
    ),
    "a network without source": ("networks.0", {"name": "nic-0"}, "should have a network type", f"{SPEC}.networks[0]"),
    "a state": (
        "domain.devices.interfaces.0.state", "odd", "logical nic-0 interface state value is unsupported: odd", f"{NIC}.state",
    ),
    # --- CPU, memory, machine
    "an isolated emulator thread": (
        "domain.cpu", {"cores": 4, "isolateEmulatorThread": True},
        "IsolateEmulatorThread should be only set in combination with DedicatedCPUPlacement", f"{DOMAIN}.cpu.isolateEmulatorThread",
    ),
    "a machine": (
        "domain.machine", {"type": "pc"}, f"{DOMAIN}.machine.type is not supported: pc (allowed values: [q35* pc-q35*])",
        f"{DOMAIN}.machine.type",
    ),
    "secure boot without SMM": (
        "domain.firmware", {"bootloader": {"efi": {}}},
        f"{DOMAIN} has EFI SecureBoot enabled. SecureBoot requires SMM, which is currently disabled.", DOMAIN,
    ),
    "a request above the limit": (
        "domain.resources", {"limits": {"cpu": "1", "memory": "1Gi"}, "requests": {"memory": "2048Mi"}},
        f"{DOMAIN}.resources.requests.memory '2Gi' is greater than {DOMAIN}.resources.limits.memory '1Gi'",
        f"{DOMAIN}.resources.requests.memory",
    ),
    "a CPU feature's policy": (
        "domain.cpu", {"cores": 4, "features": [{"name": "vmx", "policy": "maybe"}]},
        "CPU feature vmx uses policy maybe that is not supported.", f"{DOMAIN}.cpu.features[0].policy",
    ),
    # --- the rest
    "dots in the hostname": ("hostname", "a.b", f"{SPEC}.hostname does not conform to the kubernetes DNS_LABEL rules : must not contain dots", f"{SPEC}.hostname"),
    "a long hostname": (
        "hostname", "a" * 64,
        f"{SPEC}.hostname does not conform to the kubernetes DNS_LABEL rules : must be no more than 63 characters", f"{SPEC}.hostname",
    ),
    "an eviction strategy": ("evictionStrategy", "Run", f"{SPEC}.evictionStrategy is set with an unrecognized option: Run", f"{SPEC}.evictionStrategy"),
    "an input": ("domain.devices.inputs", [{"name": "a", "type": "mouse", "bus": "usb"}], "Input device can have only tablet type.", f"{DEVICES}.inputs[0].type"),
    "a probe of the pod network": (
        "readinessProbe", {"tcpSocket": {"port": 22}}, f"{SPEC}.readinessProbe.tcpSocket is only allowed if the Pod Network is attached",
        f"{SPEC}.readinessProbe.tcpSocket",
    ),
    "a weight of affinity": (
        "affinity", {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 0, "preference": {}}]}},
        f"{SPEC}.nodeAffinity.preferredDuringSchedulingIgnoredDuringExecution[0].weight: Invalid value: 0: must be in the range 1-100",
        f"{SPEC}.nodeAffinity.preferredDuringSchedulingIgnoredDuringExecution[0].weight",
    ),
    "an operator of affinity": (
        "affinity",
        {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {
            "nodeSelectorTerms": [{"matchExpressions": [{"key": "zone", "operator": "Is", "values": ["1"]}]}]}}},
        f"{SPEC}.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms[0].matchExpressions[0].operator: "
        'Invalid value: "Is": not a valid selector operator',
        f"{SPEC}.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms[0].matchExpressions[0].operator",
    ),
    "a GPU without device": ("domain.devices.gpus", [{"name": "a"}], "vmi.spec.domain.devices.gpus contains GPUs without deviceName", f"{SPEC}.spec.domain.devices.gpus"),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_a_field_is_refused_with_kubevirts_words(case: str) -> None:
    path, value, message, field = CASES[case]
    assert causes_of(changed(path, value)) == [(message, field)]


def two_disks(*changes: Callable[[Raw], None]) -> Raw:
    vm = a_vm()
    spec = vm["spec"]["template"]["spec"]
    spec["domain"]["devices"]["disks"].append({"name": "disk-1", "disk": {"bus": "virtio"}})
    spec["volumes"].append({"name": "disk-1", "persistentVolumeClaim": {"claimName": "b"}})
    for change in changes:
        change(spec)
    return vm


def test_a_boot_order_is_given_once() -> None:
    def same(spec: Raw) -> None:
        for disk in spec["domain"]["devices"]["disks"]:
            disk["bootOrder"] = 1

    field = f"{DEVICES}.disks[1].bootOrder"
    assert causes_of(two_disks(same)) == [
        (f"Boot order for {field} already set for a different device.", field)
    ]


def test_disks_and_volumes_have_names_of_their_own() -> None:
    def same(spec: Raw) -> None:
        spec["domain"]["devices"]["disks"][1]["name"] = "disk-0"
        spec["volumes"][1]["name"] = "disk-0"

    assert causes_of(two_disks(same)) == [
        (
            f"{DEVICES}.disks[1] and {DEVICES}.disks[0] must not have the same Name.",
            f"{DEVICES}.disks[1].name",
        ),
        (f"{SPEC}.volumes[1] and {SPEC}.volumes[0] must not have the same Name.", f"{SPEC}.volumes[1].name"),
    ]


def test_two_interfaces_on_one_network_and_two_networks_of_one_name_are_refused() -> None:
    vm = a_vm()
    spec = vm["spec"]["template"]["spec"]
    spec["networks"] *= 2
    spec["domain"]["devices"]["interfaces"] *= 2
    assert causes_of(vm) == [
        (
            'Network with name "nic-0" already exists, every network must have a unique name',
            f"{SPEC}.networks[1].name",
        ),
        ("Only one interface can be connected to one specific network", f"{DEVICES}.interfaces[1].name"),
    ]


CLOUD_INIT = f"{SPEC}.volumes[1].cloudInitNoCloud"


@pytest.mark.parametrize(
    ("source", "messages"),
    [
        ({"userData": "#cloud-config"}, []),
        ({"secretRef": {"name": "a"}, "networkDataSecretRef": {"name": "a"}}, []),
        ({}, [f"{CLOUD_INIT} must have at least one userdatasource or one networkdatasource set."]),
        (
            {"userData": "a", "secretRef": {"name": "a"}},
            [f"{CLOUD_INIT} must have only one userdatasource set."],
        ),
        (
            {"networkData": "a", "networkDataBase64": "YQ=="},
            [f"{CLOUD_INIT} must have only one networkdata source set."],
        ),
        (
            {"userDataBase64": "?"},
            [f"{CLOUD_INIT}.userDataBase64.cloudInitNoCloud.userDataBase64 is not a valid base64 value."],
        ),
        (
            {"userDataBase64": "YWFh" * 700},
            [f"{CLOUD_INIT} userdata exceeds 2048 byte limit. Should use UserDataSecretRef for larger data."],
        ),
        (
            {"networkData": "x" * 2049},
            [
                f"{CLOUD_INIT} networkdata exceeds 2048 byte limit. Should use NetworkDataSecretRef for larger data."
            ],
        ),
    ],
)
def test_cloud_init_has_one_source_for_each_document(source: Raw, messages: list[str]) -> None:
    vm = changed("volumes.+", {"name": "cloudinitdisk", "cloudInitNoCloud": source})
    assert [message for message, _ in causes_of(vm)] == messages


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({"runStrategy": "Sometimes"}, "Invalid RunStrategy (Sometimes)"),
        ({}, "RunStrategy must be specified"),
        (
            {"runStrategy": "Always", "running": True},
            "Running and RunStrategy are mutually exclusive. Note that Running is deprecated, please use RunStrategy instead",
        ),
    ],
)
def test_a_vm_has_one_run_strategy(spec: Raw, message: str) -> None:
    vm = a_vm()
    vm["spec"] = {"template": vm["spec"]["template"], **spec}
    assert [found for found, _ in causes_of(vm)] == [message]


def test_sockets_beyond_the_maximum_are_told_twice() -> None:
    vm = changed("domain.cpu", {"cores": 1, "sockets": 2, "threads": 1, "maxSockets": 1})
    why = "Number of sockets in CPU topology is greater than the maximum sockets allowed"
    assert causes_of(vm) == [(why, f"{DOMAIN}.cpu.sockets")] * 2


@pytest.mark.parametrize(
    ("cpu", "resources", "messages"),
    [
        ({"cores": 4}, {"cpu": "4", "memory": "1Gi"}, []),
        (
            {"cores": 4},
            {"cpu": "1500m", "memory": "1Gi"},
            [
                "provided resources CPU requests must be an interger",
                "provided resources CPU limits must be an interger",
                f"{DOMAIN}.resources.requests.cpu or {DOMAIN}.resources.limits.cpu must not be provided at the same time "
                f"with {DOMAIN}.cpu.cores when DedicatedCPUPlacement is true ",
            ],
        ),
        (
            {"cores": 1, "threads": 4},
            {"cpu": "4", "memory": "1Gi"},
            [
                f"Not more than two threads must be provided at {DOMAIN}.cpu.threads (got 4) when DedicatedCPUPlacement is true"
            ],
        ),
    ],
)
def test_pinned_cpus_are_whole_and_as_many_as_the_topology(
    cpu: Raw, resources: Raw, messages: list[str]
) -> None:
    vm = changed("domain.cpu", {**cpu, "dedicatedCpuPlacement": True})
    vm["spec"]["template"]["spec"]["domain"]["resources"] = {"limits": resources, "requests": resources}
    assert [message for message, _ in causes_of(vm)] == messages


def test_a_vm_that_is_being_deleted_is_not_judged() -> None:
    vm = changed("hostname", "A.b")
    vm["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    assert causes_of(vm) == []


def test_the_first_ten_causes_are_told_and_the_others_counted() -> None:
    denial = refused_by_kubevirt([Cause(str(number), "spec") for number in range(12)])
    assert denial.message.endswith("0, 1, 2, 3, 4, 5, 6, 7, 8, 9, and 2 more validation errors")
    assert len(denial.details["causes"]) == 10
    assert denial.status == 422


@pytest.mark.parametrize(
    "path",
    [
        "domain", "domain.cpu", "domain.devices", "domain.devices.disks", "domain.devices.disks.0", "domain.memory",
        "domain.resources", "domain.firmware", "domain.machine", "networks", "volumes", "volumes.0", "affinity", "hostname",
        "dnsConfig", "accessCredentials", "domain.devices.interfaces.0",
    ],
)  # fmt: skip
@pytest.mark.parametrize("value", [7, "x", [], [None], {"a": 1}, True])
def test_a_value_of_another_shape_does_not_break_the_rules(path: str, value: Any) -> None:
    vm = changed(path, value)
    assert isinstance(find_vm_causes(vm, None), list)
    assert nested(vm, "spec", "template", "spec") is not None
