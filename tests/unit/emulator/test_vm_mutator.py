"""What the API gives a VM that its client did not send: reference 05 §2.1.1, rule by rule."""

from __future__ import annotations

import copy
import re

import pytest

from windrow.core.rng import Rng
from windrow.emulator.admission.vm_mutator import mutate_vm
from windrow.emulator.kit.macs import new_mac
from windrow.emulator.release import NEWEST_RELEASE
from windrow.emulator.vms.virtual_machines import render_instance
from windrow.kubernetes.errors import AdmissionDenied, KubeError
from windrow.kubernetes.objects import nested

from .objects import a_vm, listers_of


def mutated(vm, old=None, listers=None, release=NEWEST_RELEASE):
    mutate_vm(vm, old, listers or listers_of(), Rng(1), release)
    return vm


def spec_of(vm):
    return vm["spec"]["template"]["spec"]


@pytest.mark.parametrize(("overcommit_cpu", "cpu"), [(1000, "400m"), (1600, "250m")])
def test_requests_follow_the_limits_and_the_overcommit_setting(overcommit_cpu, cpu):
    vm = mutated(a_vm(), listers=listers_of(overcommit_cpu=overcommit_cpu))

    assert {"cpu": cpu, "memory": "5461Mi"} == spec_of(vm)["domain"]["resources"]["requests"]


def test_guest_memory_is_the_limit_while_the_ratio_is_set():
    assert nested(spec_of(mutated(a_vm())), "domain", "memory", "guest") == "8Gi"


def test_without_the_ratio_guest_memory_leaves_room():
    vm = mutated(a_vm(), listers=listers_of(ratio=""))
    assert nested(spec_of(vm), "domain", "memory", "guest") == "8092Mi"

    reserving = a_vm()
    reserving["metadata"]["annotations"]["harvesterhci.io/reservedMemory"] = "256Mi"
    assert (
        nested(spec_of(mutated(reserving, listers=listers_of(ratio=""))), "domain", "memory", "guest")
        == "7936Mi"
    )


def test_too_little_guest_memory_is_refused():
    vm = a_vm()
    spec_of(vm)["domain"]["resources"]["limits"]["memory"] = "105Mi"

    with pytest.raises(AdmissionDenied) as refusal:
        mutated(vm, listers=listers_of(ratio=""))

    sizes = f"original: {105 << 20}, final: {5 << 20}"
    text = f"guest memory is under the minimum requirement (10 Mi), {sizes}"
    assert f'admission webhook "mutator.harvesterhci.io" denied the request: {text}' == refusal.value.message
    assert refusal.value.status == 500


def test_the_cpu_topology_is_completed():
    assert spec_of(mutated(a_vm()))["domain"]["cpu"] == {
        "cores": 4,
        "sockets": 1,
        "threads": 1,
        "maxSockets": 1,
    }


def test_node_affinity_follows_the_cluster_networks():
    stale = {"key": "network.harvesterhci.io/old", "operator": "In", "values": ["true"]}
    own = {"key": "disktype", "operator": "In", "values": ["ssd"]}
    required = "requiredDuringSchedulingIgnoredDuringExecution"
    affinity = {"nodeAffinity": {required: {"nodeSelectorTerms": [{"matchExpressions": [stale, own]}]}}}

    vm = mutated(a_vm(affinity=affinity))

    wanted = {"key": "network.harvesterhci.io/mgmt", "operator": "In", "values": ["true"]}
    terms = nested(spec_of(vm), "affinity", "nodeAffinity", required, "nodeSelectorTerms")
    assert [{"matchExpressions": [own, wanted]}] == terms


def test_a_network_name_of_three_parts_is_refused():
    vm = a_vm(networks=[{"name": "nic-0", "multus": {"networkName": "a/b/c"}}])

    with pytest.raises(AdmissionDenied, match="invalid network name a/b/c"):
        mutated(vm)


def test_the_grace_period_defaults_to_the_setting():
    assert spec_of(mutated(a_vm()))["terminationGracePeriodSeconds"] == 120
    assert spec_of(mutated(a_vm(terminationGracePeriodSeconds=5)))["terminationGracePeriodSeconds"] == 5


def test_interfaces_get_a_local_address_and_keep_a_given_one():
    vm = a_vm()
    spec_of(vm)["domain"]["devices"]["interfaces"].append(
        {"name": "nic-1", "macAddress": "00:16:3e:00:00:01"}
    )

    first, second = spec_of(mutated(vm))["domain"]["devices"]["interfaces"]

    assert second["macAddress"] == "00:16:3e:00:00:01"
    assert re.fullmatch(r"[0-9a-f]{2}(:[0-9a-f]{2}){5}", first["macAddress"])
    assert int(first["macAddress"][:2], 16) & 0b11 == 0b10


def test_an_address_that_was_observed_is_left_to_the_instance():
    vm = a_vm()
    vm["metadata"]["annotations"]["harvesterhci.io/mac-address"] = '{"nic-0":"02:00:00:00:00:07"}'

    assert "macAddress" not in spec_of(mutated(vm, a_vm()))["domain"]["devices"]["interfaces"][0]
    vm["metadata"]["uid"] = "u"
    instance = render_instance(vm)
    assert instance["spec"]["domain"]["devices"]["interfaces"][0]["macAddress"] == "02:00:00:00:00:07"


def test_an_annotation_reserves_memory_whatever_the_ratio():
    vm = a_vm()
    vm["metadata"]["annotations"]["harvesterhci.io/reservedMemory"] = "256Mi"

    assert nested(spec_of(mutated(vm)), "domain", "memory", "guest") == "7936Mi"


@pytest.mark.parametrize(
    ("change", "requests"),
    [
        ({"cpu": {"cores": 4, "dedicatedCpuPlacement": True}}, {"cpu": "4", "memory": "8Gi"}),
        ({"devices": {"hostDevices": [{"name": "a", "deviceName": "b"}]}}, {"cpu": "400m", "memory": "8Gi"}),
        ({"devices": {"gpus": [{"name": "a", "deviceName": "b"}]}}, {"cpu": "400m", "memory": "8Gi"}),
    ],
)
def test_pinned_cpus_and_devices_are_not_overcommitted(change, requests):
    vm = a_vm()
    spec_of(vm)["domain"] |= change

    assert spec_of(mutated(vm))["domain"]["resources"]["requests"] == requests


def test_pinned_cpus_want_a_node_that_manages_them():
    vm = a_vm(networks=[])
    spec_of(vm)["domain"]["cpu"]["dedicatedCpuPlacement"] = True

    [term] = nested(
        spec_of(mutated(vm)),
        "affinity",
        "nodeAffinity",
        "requiredDuringSchedulingIgnoredDuringExecution",
        "nodeSelectorTerms",
    )
    assert term == {"matchExpressions": [{"key": "cpumanager", "operator": "In", "values": ["true"]}]}


def test_a_limit_without_a_topology_cannot_be_patched():
    vm = a_vm()
    del spec_of(vm)["domain"]["cpu"]

    with pytest.raises(KubeError) as refusal:
        mutated(vm)

    path = "/spec/template/spec/domain/cpu/maxSockets"
    why = f"replace operation does not apply: doc is missing path: {path}: missing value"
    assert (refusal.value.message, refusal.value.status) == (f"Internal error occurred: {why}", 500)


def test_an_unknown_network_is_an_internal_error():
    vm = a_vm(networks=[{"name": "nic-0", "multus": {"networkName": "gone"}}])

    with pytest.raises(AdmissionDenied, match='"gone" not found') as refusal:
        mutated(vm)
    assert refusal.value.status == 500


@pytest.mark.parametrize("limits", ["4", "4.0"])
def test_an_update_that_changes_no_limit_keeps_guest_memory_and_requests(limits):
    old = mutated(a_vm())
    new = copy.deepcopy(old)
    spec_of(new)["domain"]["memory"]["guest"] = "2Gi"
    spec_of(new)["domain"]["resources"]["limits"]["cpu"] = limits

    domain = spec_of(mutated(new, old))["domain"]
    assert domain["memory"] == {"guest": "2Gi"}

    spec_of(new)["domain"]["resources"]["limits"]["cpu"] = "5"
    assert spec_of(mutated(new, old))["domain"]["memory"] == {"guest": "8Gi"}


def test_a_vm_that_is_started_by_the_deprecated_field_keeps_it():
    old = a_vm()
    old["spec"]["runStrategy"] = "Halted"
    new = a_vm()
    new["spec"] = {"running": True, "template": new["spec"]["template"]}

    assert mutated(new, old)["spec"]["running"] is True
    assert "runStrategy" not in new["spec"]


def test_a_vm_that_is_being_deleted_is_not_changed():
    vm = a_vm()
    vm["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"

    assert mutated(copy.deepcopy(vm), a_vm()) == vm


def test_what_forklift_imports_gets_the_limits_of_its_topology():
    vm = a_vm()
    vm["metadata"]["labels"] = {"migration": "1", "plan": "2", "vmID": "3"}
    domain = spec_of(vm)["domain"]
    domain |= {"cpu": {"cores": 2, "sockets": 2}, "memory": {"guest": "3Gi"}, "resources": {}}

    assert spec_of(mutated(vm))["domain"]["resources"]["limits"] == {"cpu": "4", "memory": "3Gi"}


def test_macs_are_local_and_unicast_whatever_the_seed():
    assert all(int(new_mac(Rng(seed))[:2], 16) & 0b11 == 0b10 for seed in range(200))


@pytest.mark.parametrize(("remembered", "wanted"), [("Always", "Always"), ("", "RerunOnFailure")])
def test_a_halted_vm_starts_under_the_strategy_it_had(remembered, wanted):
    old = a_vm()
    old["spec"]["runStrategy"] = "Halted"
    new = copy.deepcopy(old)
    new["spec"]["runStrategy"] = "Manual"
    if remembered:
        new["metadata"]["annotations"]["harvesterhci.io/vmRunStrategy"] = remembered

    assert mutated(new, old)["spec"]["runStrategy"] == wanted


def test_a_second_round_changes_nothing():
    once = mutated(a_vm())

    assert once == mutated(copy.deepcopy(once), copy.deepcopy(once))


@pytest.mark.parametrize(
    ("path", "value", "why"),
    [
        (("cpu", "cores"), "4", "string into Go struct field {}cpu.cores of type uint32"),
        (("cpu", "sockets"), -1, "number -1 into Go struct field {}cpu.sockets of type uint32"),
        (("machine", "type"), 7, "number into Go struct field {}machine.type of type string"),
    ],
)
def test_a_value_of_another_type_is_met_by_go(path, value, why):
    vm = a_vm()
    spec_of(vm)["domain"].setdefault(path[0], {})[path[1]] = value

    with pytest.raises(AdmissionDenied) as refusal:
        mutated(vm)

    struct = "VirtualMachineInstanceTemplateSpec.spec.template.spec.domain."
    assert refusal.value.message.endswith(f"json: cannot unmarshal {why.format(struct)}")


def test_quantities_are_written_back_as_kubernetes_does():
    vm = a_vm()
    spec_of(vm)["domain"]["resources"]["limits"] = {"cpu": 2, "memory": "1.5Gi"}
    assert spec_of(mutated(vm))["domain"]["resources"]["limits"] == {"cpu": "2", "memory": "1536Mi"}

    spec_of(vm)["domain"]["resources"]["limits"]["memory"] = "much"
    with pytest.raises(AdmissionDenied, match="quantities must match the regular expression"):
        mutated(vm)


def test_an_affinity_is_written_with_the_fields_that_kubernetes_requires():
    vm = a_vm()
    spec_of(vm)["affinity"] = {
        "podAffinity": {
            "preferredDuringSchedulingIgnoredDuringExecution": [{"podAffinityTerm": {}, "weight": 1}]
        }
    }

    mutated(vm)

    term = nested(spec_of(vm), "affinity", "podAffinity", "preferredDuringSchedulingIgnoredDuringExecution")[
        0
    ]
    assert term == {"podAffinityTerm": {"topologyKey": ""}, "weight": 1}


def test_a_node_selector_without_an_operator_is_refused_by_kubevirts_schema():
    vm = a_vm()
    term = {"matchExpressions": [{"key": "zone"}]}
    spec_of(vm)["affinity"] = {
        "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}
    }

    with pytest.raises(AdmissionDenied, match="operator in body should be one of"):
        mutated(vm)


def test_a_request_of_cpu_runs_over_as_its_64_bits_do():
    vm = a_vm()
    spec_of(vm)["domain"]["resources"]["limits"]["cpu"] = 2**53
    assert nested(spec_of(mutated(vm)), "domain", "resources", "requests", "cpu").startswith("-")
