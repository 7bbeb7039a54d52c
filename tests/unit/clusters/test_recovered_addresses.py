"""Addresses that are claimed again for the VMs that have them: of machines whose pool is gone, requested or adopted ones."""

from __future__ import annotations

from dataclasses import replace

from windrow.clusters.orphans import ReportingVm, with_configured_addresses
from windrow.clusters.plan.actions import ProvisionVM
from windrow.clusters.plan.addresses import describe_shortage, list_missing
from windrow.clusters.plan.planner import plan_cluster
from windrow.harvester.cloud_init_secret import build_secret

from .builders import look, record_of, sighted, some, subjects, unordered
from .test_addresses import NETWORK, SERVERS, WORKERS, a_claim, a_machine, the_cluster
from .test_held_addresses import ADDRESS, ONE, an_orphan, claims, plan_for

NETWORK_DATA = f"""\
version: 2
ethernets:
  nic-0:
    match: {{macaddress: "02:aa:00:00:00:01"}}
    addresses: [{ADDRESS}/24]
"""
RAW = {
    "metadata": {"namespace": "default", "name": "w7"},
    "spec": {
        "template": {
            "spec": {
                "domain": {"devices": {"interfaces": [{"name": "nic-0", "macAddress": "02:aa:00:00:00:01"}]}},
                "networks": [{"name": "nic-0", "multus": {"networkName": NETWORK}}],
                "volumes": [{"name": "cloudinitdisk", "cloudInitNoCloud": {}}],
            }
        }
    },
}


def test_what_a_vm_is_told_in_its_secret_counts_and_without_one_what_it_is_told_itself() -> None:
    vm = an_orphan(addresses=())
    secret = build_secret("default", "w7", "vm-w7", user_data="", network_data=NETWORK_DATA)

    found = with_configured_addresses(vm, RAW, secret)

    assert (found.name, found.addresses) == (vm.name, ((NETWORK, ADDRESS),))
    assert with_configured_addresses(vm, RAW, None).addresses == ()


def test_of_a_machine_whose_pool_is_gone_nothing_is_claimed() -> None:
    running = sighted(a_machine("w1", ONE), addresses=(ADDRESS,))
    adopted = replace(unordered(a_machine("w2", ONE)), found_vm=an_orphan())
    cluster = replace(the_cluster(), pools=(SERVERS,))

    plan = plan_cluster(look(cluster, [*some("s", 1, SERVERS), running, adopted]))

    assert claims(plan) == []
    assert list_missing(unordered(a_machine("w3", ONE)), None) == ()


def test_what_was_requested_is_requested_again_before_anything_is_claimed_for_the_vm_that_it_has() -> None:
    requested = record_of(unordered(a_machine("w1", ONE)), driver_config={"MachineName": "w1"})

    plan = plan_for(ONE, replace(requested, found_vm=an_orphan()))

    assert (claims(plan), subjects(plan, ProvisionVM)) == ([], ["w1"])


def test_a_vm_is_adopted_though_it_is_not_certain_on_which_harvester_its_address_is() -> None:
    adopted = replace(unordered(a_machine("w1", ONE)), found_vm=an_orphan())
    cluster = replace(the_cluster(harvester_uid="ca-1"), pools=(SERVERS, ONE))

    plan = plan_cluster(look(cluster, [*some("s", 1, SERVERS), adopted]))

    assert (claims(plan), subjects(plan, ProvisionVM)) == ([], ["w1"])


def test_of_what_a_vm_reports_the_first_that_no_other_machine_has_is_its_own() -> None:
    running = sighted(a_machine("w1", WORKERS), addresses=("10.9.0.11", "10.9.0.12", "10.9.0.13"))

    plan = plan_for(WORKERS, running, taken={NETWORK: frozenset({"10.9.0.11"})})

    assert [address for _, _, address in claims(plan)] == ["10.9.0.12"]


def test_a_machine_that_has_its_address_waits_for_the_list_of_vms_until_its_own_is_there() -> None:
    machine = replace(unordered(a_machine("w1", ONE)), addresses=(a_claim(ADDRESS),))
    state = look(replace(the_cluster(), pools=(SERVERS, ONE)), [machine], is_held_known=False)

    assert describe_shortage(machine, state).startswith("the first list of VirtualMachines")
    assert describe_shortage(replace(machine, found_vm=an_orphan()), state) == ""


def test_vms_that_hold_addresses_are_named_by_kind_and_namespace() -> None:
    assert str(ReportingVm("team", "w7", "", "", ())) == "VirtualMachine team/w7"
