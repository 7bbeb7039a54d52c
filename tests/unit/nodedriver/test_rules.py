from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from windrow.harvester.problems import Problem
from windrow.kubernetes.objects import Raw
from windrow.nodedriver.affinity import PREFERRED, REQUIRED
from windrow.nodedriver.config import Configuration, read_fields
from windrow.nodedriver.validate.rules import find_problems

GOOD: dict[str, Any] = {
    "diskInfo": {"disks": [{"imageName": "i", "size": 40}]},
    "networkInfo": {"interfaces": [{"networkName": "n"}]},
}


def problems_of(name: str = "c1-pool1-abcde-fghij", **fields: Any) -> list[Problem]:
    configuration, unread = read_fields({**GOOD, **fields})
    return [*unread, *find_problems(replace(configuration, machine_name=name))]


def disks(*specs: dict[str, Any]) -> dict[str, Any]:
    return {"disks": list(specs)}


def nics(*specs: dict[str, Any]) -> dict[str, Any]:
    return {"interfaces": list(specs)}


def _preferred_node(weight: object) -> Raw:
    return {"nodeAffinity": {PREFERRED: [{"weight": weight, "preference": {}}]}}


def _pods(term: Raw) -> Raw:
    return {"podAntiAffinity": {REQUIRED: [term]}}


def _nodes(*requirements: Raw) -> Raw:
    return {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": [{"matchExpressions": list(requirements)}]}}}


def test_a_sound_machine_has_no_problems() -> None:
    assert problems_of() == []


def test_a_sound_machine_of_the_older_form_has_none_either() -> None:
    assert problems_of(diskInfo="", networkInfo="", imageName="i", diskSize="10", networkName="n") == []


@pytest.mark.parametrize(
    ("field", "value", "told"),
    [
        ("imageName", "j", "imageName is j, and has no effect beside diskInfo"),
        ("networkName", "m", "networkName is m, and has no effect beside networkInfo"),
        ("imageName", "i", ""),
        ("networkName", "n", ""),
    ],
)
def test_what_a_list_hides_of_the_older_form_is_a_warning(field: str, value: str, told: str) -> None:
    found = problems_of(**{field: value})

    assert [(one.message, one.field, one.severity) for one in found] == [(told, field, "warning")] * bool(
        told
    )


@pytest.mark.parametrize(
    ("fields", "field", "message"),
    [
        ({"cpuCount": "0"}, "cpuCount", "cpuCount is 0"),
        ({"memorySize": "0"}, "memorySize", "memorySize is 0 GiB"),
        ({"reservedMemorySize": "4096"}, "reservedMemorySize", "nothing is left"),
        ({"enableSecureBoot": True}, "enableSecureBoot", "without enableEfi"),
        ({"isolateEmulatorThread": True}, "isolateEmulatorThread", "needs dedicated CPUs"),
        (
            {"diskInfo": disks({"size": 1})},
            "diskInfo",
            "disk-0 in diskInfo has neither an imageName nor a storageClassName",
        ),
        (
            {"diskInfo": disks({"imageName": "i"})},
            "diskInfo",
            "disk-0 in diskInfo has no size",
        ),
        (
            {"diskInfo": disks({"imageName": "i", "size": -1})},
            "diskInfo",
            "disk-0 in diskInfo has no size",
        ),
        ({"diskInfo": disks()}, "diskInfo", "lists no disk"),
        ({"diskInfo": {}}, "diskInfo", "lists no disk"),
        ({"diskInfo": disks({"imageName": "i", "size": 1, "bus": "ide"})}, "diskInfo", "the bus of disk-0"),
        (
            {"diskInfo": disks({"imageName": "i", "size": 1, "type": "floppy"})},
            "diskInfo",
            "the type of disk-0",
        ),
        (
            {"diskInfo": disks({"imageName": "i", "size": 1, "type": "cd-rom", "bus": "virtio"})},
            "diskInfo",
            "the bus of disk-0",
        ),
        (
            {"diskInfo": disks(*[{"imageName": "i", "size": 1, "bootOrder": 1}] * 2)},
            "diskInfo",
            "bootOrder 1 is given to 2 disks",
        ),
        (
            {"diskInfo": disks({"imageName": "i", "size": 1, "bootOrder": -1})},
            "diskInfo",
            "bootOrder -1 is below 1",
        ),
        ({"diskInfo": "", "diskSize": "1"}, "diskInfo", "diskInfo and imageName are not set"),
        ({"diskInfo": "", "imageName": "i"}, "diskInfo", "diskInfo and diskSize are not set"),
        ({"diskInfo": "", "imageName": "i", "diskSize": "-5"}, "diskSize", "the disk size is -5 GiB"),
        ({"networkInfo": ""}, "networkInfo", "networkInfo is not set"),
        ({"networkInfo": nics()}, "networkInfo", "lists no interface"),
        ({"networkInfo": nics({})}, "networkInfo", "interface 0 in networkInfo has no networkName"),
        (
            {"networkInfo": nics({"networkName": "n", "macAddress": "xx"})},
            "networkInfo",
            "not a MAC address",
        ),
        (
            {"networkInfo": nics({"networkName": "n", "type": "sriov"})},
            "networkInfo",
            "the type of interface 0",
        ),
        (
            {"networkInfo": nics({"networkName": "n", "type": "masquerade"})},
            "networkInfo",
            "the type of interface 0 is masquerade",
        ),
        (
            {
                "diskInfo": disks(
                    {"imageName": "i", "size": 1},
                    {"imageName": "i", "size": 1, "type": "cd-rom", "bus": "scsi", "hotPlugAble": True},
                )
            },
            "diskInfo",
            "disk-1 is a cd-rom on scsi that can be hot-plugged",
        ),
        ({"memorySize": "1", "reservedMemorySize": "1020"}, "reservedMemorySize", "4 MiB are left"),
        (
            {"networkInfo": nics({"networkName": "n", "model": "fast"})},
            "networkInfo",
            "the model of interface 0",
        ),
        (
            {"networkInfo": nics({"networkName": "a/b/c"})},
            "networkInfo",
            "networkInfo has the name 'a/b/c'",
        ),
        ({"diskInfo": disks({"imageName": "/i", "size": 1})}, "diskInfo", "diskInfo has the name"),
        ({"keyPairName": "a/b/c"}, "keyPairName", "keyPairName has the name"),
        ({"vgpuInfo": {"vGPURequests": [{"name": "a"}]}}, "vgpuInfo", "has no deviceName"),
        ({"vmAffinity": {"nodeAfinity": {}}}, "vmAffinity", "have no effect: nodeAfinity"),
        ({"vmAffinity": "[1]"}, "vmAffinity", "not an affinity object"),
        ({"vmAffinity": {"nodeAffinity": []}}, "vmAffinity", "is not an object"),
        ({"vmAffinity": _preferred_node(weight=0)}, "vmAffinity", "weight of vmAffinity is 0"),
        (
            {"vmAffinity": _preferred_node(weight="1")},
            "vmAffinity",
            "weight of vmAffinity is not a whole number",
        ),
        ({"vmAffinity": _pods({})}, "vmAffinity", "[0].topologyKey of vmAffinity is missing"),
        ({"vmAffinity": _pods({"topologykey": "a b"})}, "vmAffinity", "topologyKey of vmAffinity is 'a b'"),
        (
            {"vmAffinity": _nodes({"key": "a", "operator": "Is"})},
            "vmAffinity",
            "operator of vmAffinity is 'Is'",
        ),
        ({"vmAffinity": _nodes({"operator": "Exists"})}, "vmAffinity", "key of vmAffinity is missing"),
        (
            {"vmAffinity": _nodes({"key": "a", "operator": "In"})},
            "vmAffinity",
            "is empty with the operator In",
        ),
        ({"vmAffinity": _nodes({"key": "a", "operator": "Gt"})}, "vmAffinity", "has 0 entries with Gt"),
        ({"vmAffinity": _nodes()}, "vmAffinity", "has no matchExpressions, and no effect"),
        (
            {"vmAffinity": {"nodeAffinity": {REQUIRED: {}}}},
            "vmAffinity",
            "nodeSelectorTerms of vmAffinity is empty",
        ),
        ({"networkData": "config: []"}, "networkData", "missing section: version"),
        ({"userData": "#!/bin/sh\n"}, "userData", "is a script"),
        ({"userData": "hostname: [a]\nruncmd: x"}, "userData", "runcmd is a list"),
        ({"vmNamespace": "Not_A_Name"}, "vmNamespace", "not a namespace name"),
    ],
)
def test_each_fault_is_told_with_field_and_cure(fields: dict[str, Any], field: str, message: str) -> None:
    configuration, unread = read_fields({**GOOD, **fields})
    bootstrap = "#cloud-config\nruncmd:\n- install\n"
    found = [*unread, *find_problems(replace(configuration, machine_name="m"), bootstrap)]
    assert [problem.field for problem in found] == [field]
    assert message in found[0].message
    assert found[0].hint


@pytest.mark.parametrize("name", ["", "A", "a..b", ".a", "-a", "a-", "a_b", "x" * 64])
def test_a_name_that_fits_no_host_is_refused(name: str) -> None:
    assert {problem.field for problem in problems_of(name)} == {"name"}


def test_a_name_with_dots_is_warned_about() -> None:
    """KubeVirt v1.7.0 admits it (its rule is about spec.hostname), and names the guest after the first part."""
    (problem,) = problems_of("web.example")
    assert (problem.field, problem.severity) == ("name", "warning")
    assert "host name web," in problem.message


@pytest.mark.parametrize("name", ["a", "51", "51-pool1-wfw6m-x2x2x", "x" * 63])
def test_a_name_that_fits_is_not(name: str) -> None:
    assert problems_of(name) == []


@pytest.mark.parametrize(
    "fields",
    [
        {"diskInfo": "{broken"},
        {"diskInfo": {"disks": [{"imageName": "i", "size": "big"}]}},
        {"networkInfo": "[", "networkName": ""},
        {"cpuCount": "four"},
        {"diskInfo": "", "imageName": "", "diskSize": ""},
        {"userData": "aGVsbG8"},
    ],
)
def test_one_mistake_is_told_once(fields: dict[str, Any]) -> None:
    configuration, unread = read_fields({**GOOD, **fields})
    told = {problem.field for problem in unread}
    found = find_problems(replace(configuration, machine_name="m"), unreadable=told)
    assert len([*unread, *found]) == 1


def test_what_the_go_driver_says_stands_beside_the_field_by_which_people_know_it() -> None:
    [problem] = problems_of(networkInfo="")
    assert problem.go == "must specify harvester network name"
    assert problem.message == "networkInfo is not set"


def test_a_class_beside_an_image_is_warned_about() -> None:
    [problem] = problems_of(diskInfo=disks({"imageName": "i", "storageClassName": "c", "size": 1}))
    assert problem.severity == "warning"


@pytest.mark.parametrize("affinity", ["null", " null ", "bnVsbA==", "{}", '{"podAffinity":null}'])
def test_an_affinity_of_nothing_is_no_fault(affinity: str) -> None:
    assert problems_of(vmAffinity=affinity) == []


def test_only_a_driver_that_logs_in_needs_the_private_key() -> None:
    configuration, _ = read_fields({**GOOD, "keyPairName": "k"})
    named = Configuration(
        machine_name="m",
        key_pair_name="k",
        disk_info=configuration.disk_info,
        network_info=configuration.network_info,
    )
    assert find_problems(named) == []
    [problem] = find_problems(named, needs_private_key=True)
    assert problem.go == "must specify the ssh private key path of the harvester key pair"
    assert find_problems(replace(named, ssh_private_key_path="/key"), needs_private_key=True) == []
    assert find_problems(replace(named, key_pair_name=""), needs_private_key=True) == []


def test_everything_is_told_at_once() -> None:
    told = problems_of("UPPER", cpuCount="0", memorySize="0", enableSecureBoot=True, userData="- a")
    assert [problem.field for problem in told] == [
        "name",
        "cpuCount",
        "memorySize",
        "enableSecureBoot",
        "userData",
    ]


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"memorySize": "16384"}, "memorySize is 16384 GiB, which is 16 TiB"),
        (
            {"diskInfo": disks({"imageName": "i", "size": 102400})},
            "in diskInfo is 102400 GiB, which is 100 TiB",
        ),
        (
            {"diskInfo": "", "imageName": "i", "diskSize": "102400"},
            "diskSize is 102400 GiB, which is 100 TiB",
        ),
    ],
)
def test_a_size_that_was_meant_in_mib_is_warned_of(fields: dict[str, Any], words: str) -> None:
    (told,) = problems_of(**fields)

    assert words in told.message
    assert told.severity == "warning"
    assert "Mi, if MiB is meant" in told.hint


def test_large_sizes_and_quantities_are_taken_as_they_are() -> None:
    assert problems_of(memorySize="4096", diskInfo=disks({"imageName": "i", "size": 65536})) == []
    assert problems_of(memorySize="16384Mi") == []


@pytest.mark.parametrize(("cpus", "memory", "fields"), [(1, 2, ["cpuCount", "memorySize"]), (2, 4, [])])
def test_a_node_smaller_than_it_should_be_is_a_warning_for_a_cluster_alone(
    cpus: int, memory: int, fields: list[str]
) -> None:
    configuration, _ = read_fields({**GOOD, "cpuCount": cpus, "memorySize": memory})
    configuration = replace(configuration, machine_name="c1-pool1-abcde-fghij")

    found = find_problems(configuration, must_boot=True)

    assert [(one.field, one.severity) for one in found] == [(field, "warning") for field in fields]
    assert find_problems(configuration) == []
