"""Addresses that VMs have, whether an IPAddress records them or not: what is claimed of them, for which machine."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from tests.support.clock import LoopClock, run_driven
from tests.unit.client.test_informer import Server

from windrow.clusters.api.kinds import CLUSTER
from windrow.clusters.api.machine import machine_name_stem
from windrow.clusters.api.secrets import CredentialError
from windrow.clusters.controller import _has_lost_address
from windrow.clusters.orphans import OrphanVm, ReportingVm
from windrow.clusters.plan.actions import (
    AdoptVM,
    ClaimAddresses,
    ProvisionVM,
    ReleaseAddresses,
    ReleaseUnusedAddresses,
)
from windrow.clusters.plan.addresses import list_missing
from windrow.clusters.plan.planner import Plan, plan_cluster
from windrow.clusters.sources.credentials import CredentialProber
from windrow.clusters.sources.harvester_objects import AccountObject, HarvesterObjects
from windrow.clusters.state import ContestedAddress, HeldAddress
from windrow.clusters.status import address_condition, derive_cluster
from windrow.clusters.vm_addresses import NetworkAddress
from windrow.core.formats.json import dumps
from windrow.core.rng import Rng
from windrow.kubernetes.conditions import set_condition
from windrow.kubernetes.kubeconfig import ClientConfig
from windrow.kubernetes.requests import Reply

from .builders import NOON, look, of_kind, record_of, sighted, some, subjects, unordered
from .test_addresses import NETWORK, SERVERS, WORKERS, a_claim, a_machine, an_address_pool, the_cluster

ADDRESS = "10.9.0.15"
ONE = replace(WORKERS, address_pools=(an_address_pool(ADDRESS, place="addressPools[0]"),))


LOST = f"{machine_name_stem(the_cluster(), 'workers')}w7"


def an_orphan(name: str = LOST, **rest: Any) -> OrphanVm:
    given = {"addresses": (NetworkAddress(NETWORK, ADDRESS),), "cluster_uid": "cluster-uid", **rest}
    return OrphanVm("default", name, f"vm-{name}", f"uid-{name}", **given)


def held(*addresses: str, network: str = NETWORK) -> Any:
    vms = {one: HeldAddress(one, f"VirtualMachine team/x{one[-1]}", f"uid-{one}") for one in addresses}
    return {network: vms}


def claims(plan: Plan) -> list[tuple[str, str, str]]:
    found = [one for action in of_kind(plan, ClaimAddresses) for one in action.addresses]  # type: ignore[union-attr]
    return [(one.machine, one.machine_uid, one.address) for one in found]


def plan_for(pool: Any, *machines: Any, quantity: int | None = None, **state: Any) -> Plan:
    cluster = replace(the_cluster(), pools=(SERVERS, replace(pool, quantity=quantity or len(machines))))
    return plan_cluster(look(cluster, [*some("s", 1, SERVERS), *machines], **state))


# -- nothing that a VM has is given to another -------------------------------------------------------------------


def test_an_address_that_any_vm_of_harvester_has_is_not_claimed_and_that_vm_is_named():
    plan = plan_for(ONE, unordered(a_machine("w1", ONE)), held=held(ADDRESS))

    assert claims(plan) == []
    assert subjects(plan, ProvisionVM) == []
    assert plan.diagnoses["w1"].waiting_for == (
        f"an address of network {NETWORK} to be released (all 1 of {ADDRESS} are claimed, or VMs have them without an IPAddress: "
        f"VirtualMachine team/x5 has {ADDRESS}; widen addressPools[0] of HarvesterConfig fleet-default/nc-workers, or delete "
        "machines that have one)"
    )


def test_of_many_vms_three_are_named_and_those_with_a_record_are_not():
    pool = replace(WORKERS, address_pools=(an_address_pool("10.9.0.10-10.9.0.15"),))
    taken = {NETWORK: frozenset({"10.9.0.10"})}
    addresses = [f"10.9.0.1{number}" for number in range(6)]
    plan = plan_for(pool, unordered(a_machine("w1", pool)), held=held(*addresses, "10.9.0.200"), taken=taken)

    told = plan.diagnoses["w1"].waiting_for
    assert (
        "without an IPAddress: VirtualMachine team/x1 has 10.9.0.11, VirtualMachine team/x2 has 10.9.0.12, VirtualMachine team/x3 "
        "has 10.9.0.13 and 2 more; widen"
    ) in told


def test_three_vms_are_named_without_more():
    pool = replace(WORKERS, address_pools=(an_address_pool("10.9.0.11-10.9.0.13"),))
    plan = plan_for(pool, unordered(a_machine("w1", pool)), held=held("10.9.0.11", "10.9.0.12", "10.9.0.13"))
    assert "VirtualMachine team/x3 has 10.9.0.13; widen" in plan.diagnoses["w1"].waiting_for


def test_an_address_that_a_vm_has_on_another_network_takes_nothing():
    plan = plan_for(ONE, unordered(a_machine("w1", ONE)), held=held(ADDRESS, network="default/other"))
    assert [address for _, _, address in claims(plan)] == [ADDRESS]


def test_before_the_vms_of_harvester_were_listed_nothing_is_claimed():
    machine = unordered(a_machine("w1", ONE))
    plan = plan_for(ONE, machine, is_held_known=False)

    assert claims(plan) == []
    assert subjects(plan, ProvisionVM) == []
    assert plan.diagnoses["w1"].waiting_for.startswith("the first list of VirtualMachines from Harvester")

    # Nor is the VM of one that has its address: that claim may be older than the VM of another.
    has = replace(machine, addresses=(a_claim(ADDRESS),))
    plan = plan_for(ONE, has, is_held_known=False, claims=has.addresses)
    assert subjects(plan, ProvisionVM) == []
    assert plan.diagnoses["w1"].waiting_for.startswith("the first list of VirtualMachines from Harvester")
    hidden = plan_for(ONE, has, is_held_known=False, harvester_hidden_from="ns:cc", claims=has.addresses)
    assert hidden.diagnoses["w1"].waiting_for.startswith("Harvester to be known by the uid")

    plan = plan_for(ONE, has, claims=has.addresses)
    assert subjects(plan, ProvisionVM) == ["w1"]
    assert "first list" not in plan.diagnoses["w1"].waiting_for


# -- a claim that is older than the VM of another ----------------------------------------------------------------


def taken_by_others(pool: Any, **record: Any) -> Plan:
    """Of a machine without a VM whose address, which is claimed for it, a VM of another has."""
    machine = replace(record_of(unordered(a_machine("w1", pool)), **record), addresses=(a_claim(ADDRESS),))
    taken = {NETWORK: frozenset({ADDRESS})}
    return plan_for(pool, machine, claims=machine.addresses, taken=taken, held=held(ADDRESS))


def test_no_vm_is_made_with_a_claimed_address_that_the_vm_of_another_has():
    """As a claim of a backup, whose VM was never made: meanwhile another was given that address."""
    plan = taken_by_others(ONE)

    assert subjects(plan, ProvisionVM) == []
    assert not of_kind(plan, ReleaseAddresses, ClaimAddresses)
    assert plan.diagnoses["w1"].waiting_for == (
        f"VirtualMachine team/x5 to give up {ADDRESS} of network {NETWORK} ({a_claim(ADDRESS)} gives it to this machine, whose VM is "
        "not made while another has it; delete one of the two, or widen addressPools of HarvesterConfig fleet-default/nc-workers)"
    )


def test_where_its_range_has_another_the_machine_gives_up_the_address_and_claims_that():
    pool = replace(WORKERS, address_pools=(an_address_pool("10.9.0.15-10.9.0.16"),))
    plan = taken_by_others(pool)

    assert subjects(plan, ProvisionVM) == []
    (release,) = of_kind(plan, ReleaseAddresses)
    assert isinstance(release, ReleaseAddresses)
    assert release.addresses == (a_claim(ADDRESS),)
    assert release.because == f"VirtualMachine team/x5 has {ADDRESS}"
    assert [address for _, _, address in claims(plan)] == ["10.9.0.16"]
    assert "to give up" not in plan.diagnoses["w1"].waiting_for

    # What its driver was told stays: its VM may be there before anything shows it.
    told = taken_by_others(pool, driver_config={"MachineName": "w1"})
    assert not of_kind(told, ProvisionVM, ReleaseAddresses, ClaimAddresses)
    assert "VirtualMachine team/x5 to give up 10.9.0.15" in told.diagnoses["w1"].waiting_for


@pytest.mark.parametrize("holder", [("VirtualMachine team/x5", "uid-w1"), ("VirtualMachine default/w1", "")])
def test_its_own_vm_takes_no_address_from_a_machine(holder: tuple[str, str]):
    machine = replace(unordered(a_machine("w1", ONE)), addresses=(a_claim(ADDRESS),))
    by = {NETWORK: {ADDRESS: HeldAddress(ADDRESS, *holder)}}
    assert subjects(plan_for(ONE, machine, claims=machine.addresses, held=by), ProvisionVM) == ["w1"]
    others = {NETWORK: {ADDRESS: HeldAddress(ADDRESS, "VirtualMachine team/x5", "uid-5")}}
    found = replace(machine, found_vm=an_orphan())
    assert subjects(plan_for(ONE, found, claims=found.addresses, held=others), ProvisionVM) == ["w1"]


# -- a VM that no Machine records --------------------------------------------------------------------------------


def test_the_address_of_a_vm_that_no_machine_records_is_claimed_for_it_and_stays_as_long_as_the_vm():
    vm = an_orphan()
    server = {"quantity": 1, "unrecorded": (vm,)}
    plan = plan_for(ONE, a_machine("w1", ONE), **server)
    assert claims(plan) == [(f"fleet-default/{vm.name}", vm.machine_uid, ADDRESS)]
    assert of_kind(plan, ClaimAddresses)[0].because == f"{vm} has {ADDRESS}, and nothing records it"

    claim = of_kind(plan, ClaimAddresses)[0].addresses[0]  # type: ignore[union-attr]
    plan = plan_for(ONE, a_machine("w1", ONE), claims=(claim,), **server)
    assert not of_kind(plan, ClaimAddresses, ReleaseUnusedAddresses)
    plan = plan_for(ONE, a_machine("w1", ONE), claims=(claim,), quantity=1)
    assert of_kind(plan, ReleaseUnusedAddresses)


@pytest.mark.parametrize(
    ("vm", "taken"),
    [
        (an_orphan(), {NETWORK: frozenset({ADDRESS})}),
        (an_orphan(addresses=(NetworkAddress("default/other", ADDRESS),)), {}),
        (an_orphan(addresses=(NetworkAddress(NETWORK, "10.9.0.99"),)), {}),
        (an_orphan("prod-gone-abcde-w7"), {}),
    ],
    ids=["another's", "other network", "outside of the range", "no pool"],
)
def test_nothing_is_claimed_for_a_vm_without_an_address_of_its_pool_or_where_another_has_it(
    vm: OrphanVm, taken: Any
):
    plan = plan_for(ONE, a_machine("w1", ONE), quantity=1, unrecorded=(vm,), taken=taken)
    assert claims(plan) == []


def test_nothing_is_claimed_for_it_on_a_harvester_that_is_known_by_its_ca_only():
    cluster = replace(the_cluster(harvester_uid="ca-1"), pools=(SERVERS, replace(ONE, quantity=1)))
    machines = [*some("s", 1, SERVERS), a_machine("w1", ONE)]
    assert claims(plan_cluster(look(cluster, machines, unrecorded=(an_orphan(),)))) == []


def test_the_address_that_a_vm_is_told_to_have_comes_before_those_that_it_reports():
    running = sighted(a_machine("w1", WORKERS), addresses=("10.9.0.11", ADDRESS))
    told = replace(running, found_vm=an_orphan())
    assert [address for _, _, address in claims(plan_for(WORKERS, told))] == [ADDRESS]

    # Where another has that, the rest is no machine's: it may be what the VM announces for Services.
    assert claims(plan_for(WORKERS, told, taken={NETWORK: frozenset({ADDRESS})})) == []
    # Without network data that can be read, the first that it reports is its own.
    assert [address for _, _, address in claims(plan_for(WORKERS, running))] == ["10.9.0.11"]


def test_an_address_that_a_vm_has_no_more_wakes_those_that_wait():
    vm, other = an_orphan(), NetworkAddress(NETWORK, "10.9.0.16")
    reporting = ReportingVm("team", "w7", "", "", (other,))
    assert _has_lost_address(vm, None)
    assert _has_lost_address(vm, replace(vm, addresses=(other,)))
    assert _has_lost_address(reporting, None)
    assert not _has_lost_address(None, vm)
    assert not _has_lost_address(vm, replace(vm, addresses=(*vm.addresses, other)))
    assert not _has_lost_address(AccountObject("a", "b"), None)


# -- adoption ----------------------------------------------------------------------------------------------------


def test_a_vm_that_is_adopted_has_its_own_address_claimed_before_anything_else():
    adopted = replace(unordered(a_machine("w1", WORKERS)), found_vm=an_orphan())
    plan = plan_for(WORKERS, adopted, held=held(ADDRESS))
    assert claims(plan) == [("fleet-default/w1", "uid-w1", ADDRESS)]
    assert subjects(plan, ProvisionVM) == []

    (claim,) = of_kind(plan, ClaimAddresses)[0].addresses  # type: ignore[union-attr]
    plan = plan_for(WORKERS, replace(adopted, addresses=(claim,)), claims=(claim,))
    assert subjects(plan, ProvisionVM) == ["w1"]


def test_a_vm_that_is_adopted_does_not_wait_for_an_address_that_another_has():
    adopted = replace(unordered(a_machine("w1", ONE)), found_vm=an_orphan())
    plan = plan_for(ONE, adopted, taken={NETWORK: frozenset({ADDRESS})}, is_held_known=False)
    assert claims(plan) == []
    assert subjects(plan, ProvisionVM) == ["w1"]
    assert list_missing(adopted, ONE) == ()


def test_a_machine_whose_vm_exists_and_has_no_address_gets_none():
    adopted = replace(unordered(a_machine("w1", ONE)), found_vm=an_orphan(addresses=()))
    plan = plan_for(ONE, adopted)
    assert claims(plan) == []
    assert subjects(plan, ProvisionVM) == ["w1"]


def test_one_more_machine_adopts_the_vm_and_takes_no_second_address():
    plan = plan_for(ONE, a_machine("w1", ONE), quantity=2, unrecorded=(an_orphan(),))
    assert of_kind(plan, AdoptVM)
    assert len(claims(plan)) == 1


# -- what the watches over Harvester show ------------------------------------------------------------------------

LISTED = {
    "metadata": {
        "name": "w7",
        "namespace": "team",
        "resourceVersion": "7",
        "annotations": {"windrow.io/machine-uid": "uid-w7", "windrow.io/cluster-uid": "elsewhere"},
    },
    "spec": {"networks": [{"name": "nic-0", "multus": {"networkName": "default/vlan-50"}}]},
    "status": {"interfaces": [{"name": "nic-0", "ipAddress": ADDRESS}]},
}
LIST = Reply(200, dumps({"metadata": {"resourceVersion": "7"}, "items": [LISTED]}))
ACCESS = ClientConfig("https://10.0.0.1:6443")
FORBIDDEN = Reply(403, dumps({"kind": "Status", "reason": "Forbidden", "message": "no"}))


def test_addresses_are_known_once_harvester_has_listed_its_vms_or_refused_to():
    servers = {"sees:cc": Server(), "may-not:cc": Server()}
    servers["sees:cc"].answer, servers["may-not:cc"].answer = LIST, FORBIDDEN
    synced: list[str] = []
    found: list[Any] = []

    def get_client(credential: str, _: str) -> Any:
        if credential not in servers:
            raise CredentialError("there is no such Secret", "create it")
        return SimpleNamespace(transport=servers[credential])

    async def whole() -> None:
        clients: Any = SimpleNamespace(get_client=get_client, get_config=lambda *_: ACCESS)
        objects = HarvesterObjects(clients, LoopClock(), Rng(1), lambda before, after: None, synced.append)
        names = ("sees:cc", "may-not:cc", "lost:cc")

        def known() -> list[bool]:
            return [objects.has_tried_addresses([name], "ns") for name in names]

        async with asyncio.TaskGroup() as group:
            cluster = CLUSTER.ref("prod", "ns")
            objects.watch_addresses(group, cluster, frozenset(names))
            assert known() == [False, False, False]
            await asyncio.sleep(5)
            assert known() == [True, True, False]
            assert not objects.has_tried_addresses(names, "ns")  # of the last one nothing was read
            assert not objects.has_tried_addresses(["sees:cc"], "another")
            found.extend(objects.list_addressed(lambda credential, _: credential == "sees:cc"))
            assert list(objects.list_addressed(lambda credential, _: credential != "sees:cc")) == []
            assert [vm.name for vm in objects.list_shown_vms("elsewhere")] == ["w7"]
            assert list(objects.list_shown_vms("cluster-uid")) == []
            objects.watch_addresses(group, cluster, frozenset())
            assert known() == [False, False, False]

    run_driven(whole())
    address = NetworkAddress("default/vlan-50", ADDRESS)
    assert found == [ReportingVm("team", "w7", "uid-w7", "elsewhere", (address,))]
    assert set(synced) == {"sees:cc", "may-not:cc"}


EMPTY = Reply(200, dumps({"metadata": {"resourceVersion": "9"}, "items": []}))
UNAUTHORIZED = Reply(401, dumps({"kind": "Status", "reason": "Unauthorized", "message": "no"}))


class Site:
    """HarvesterObjects with one credential, whose server and kubeconfig change."""

    def __init__(self) -> None:
        self.server: Any = Server()
        self.server.answer = LIST
        self.access = ACCESS
        self.error: Exception | None = None
        self.changes: list[Any] = []
        clients: Any = SimpleNamespace(
            get_client=lambda *_: SimpleNamespace(transport=self.server), get_config=self.get_config
        )
        self.objects = HarvesterObjects(
            clients, LoopClock(), Rng(1), lambda *change: self.changes.append(change), lambda credential: None
        )

    def get_config(self, *_: str) -> ClientConfig:
        if self.error is not None:
            raise self.error
        return self.access

    def watch(self, group: asyncio.TaskGroup, *credentials: str) -> None:
        self.objects.watch_addresses(group, CLUSTER.ref("prod", "ns"), frozenset(credentials))

    async def restart(self) -> None:
        self.changes.clear()
        self.objects.restart("sees:cc")
        await asyncio.sleep(5)

    @property
    def shown(self) -> list[tuple[str, str]]:
        """VMs with the server of the kubeconfig that they were shown through."""
        servers = ("https://10.0.0.1:6443", "https://10.0.0.2:6443")
        return [
            (vm.name, server[-6])
            for server in servers
            for vm in self.objects.list_addressed(lambda _, access, wanted=server: access.server == wanted)
            if isinstance(vm, ReportingVm)
        ]

    @property
    def gone(self) -> list[str]:
        return [
            before.name for before, after in self.changes if isinstance(before, ReportingVm) and not after
        ]


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (UNAUTHORIZED, None),
        (FORBIDDEN, None),
        (LIST, CredentialError("there is no such Secret", "create it")),
    ],
    ids=["401", "403", "no Secret"],
)
def test_what_a_credential_showed_that_does_not_work_any_more_is_unknown_and_not_gone(
    answer: Reply, error: Exception | None
) -> None:
    async def whole() -> None:
        site = Site()
        async with asyncio.TaskGroup() as group:
            site.watch(group, "sees:cc")
            await asyncio.sleep(5)
            site.server.answer, site.error = answer, error
            await site.restart()
            assert (site.shown, site.gone) == ([("w7", "1")], [])
            # It works again: what is there still was not reported, and what is not is.
            site.server.answer, site.error = LIST, None
            await site.restart()
            assert (site.shown, site.gone) == ([("w7", "1")], [])
            site.server.answer = EMPTY
            await site.restart()
            assert site.shown == []
            assert set(site.gone) == {"w7"}
            site.watch(group)

    run_driven(whole())


def test_until_another_server_has_listed_its_vms_those_of_the_first_are_known_as_of_the_first() -> None:
    async def whole() -> None:
        site = Site()
        async with asyncio.TaskGroup() as group:
            site.watch(group, "sees:cc")
            await asyncio.sleep(5)
            site.access, site.server.answer = ClientConfig("https://10.0.0.2:6443"), UNAUTHORIZED
            await site.restart()
            assert (site.shown, site.gone) == ([("w7", "1")], [])
            site.server.answer = LIST
            await site.restart()
            assert site.shown == [("w7", "2")]
            site.watch(group)

    run_driven(whole())


def test_what_no_cluster_asks_for_is_reported_as_gone_to_who_waits_for_its_address() -> None:
    async def whole() -> None:
        for answer in (LIST, UNAUTHORIZED):
            site = Site()
            async with asyncio.TaskGroup() as group:
                site.watch(group, "sees:cc")
                await asyncio.sleep(5)
                site.server.answer = answer
                await site.restart()
                assert site.gone == []
                site.watch(group)
                assert set(site.gone) == {"w7"}
                assert site.shown == []

    run_driven(whole())


def test_the_identity_that_a_credential_showed_last_is_known_while_it_does_not_work() -> None:
    async def whole() -> None:
        server: Any = Server()
        server.answer = Reply(200, dumps({"metadata": {"name": "kube-system", "uid": "hv"}}))
        prober = CredentialProber(lambda _: ACCESS, lambda _: server, LoopClock(), lambda _: None)
        async with asyncio.TaskGroup() as group:
            cluster = CLUSTER.ref("prod", "ns")
            prober.watch(group, cluster, ["sees:cc"])
            assert prober.find_last_identity("sees:cc") == ""
            await asyncio.sleep(1)
            for answer in (UNAUTHORIZED, FORBIDDEN):
                server.answer = answer
                prober.probe_again("sees:cc")
                await asyncio.sleep(1)
                assert prober.find_identity("sees:cc") != "hv"
                assert prober.find_last_identity("sees:cc") == "hv"
            prober.watch(group, cluster, [])
            assert prober.find_last_identity("sees:cc") == ""

    run_driven(whole())


# -- what the status says ----------------------------------------------------------------------------------------


def test_two_machines_with_one_address_are_both_named_until_one_is_gone():
    claim = replace(a_claim(ADDRESS, "late"), machine="team/late")
    contested = ContestedAddress("VirtualMachine default/w7", "uid-w7", claim)
    state = look(the_cluster(), some("s", 1, SERVERS), contested=(contested,))
    condition = address_condition(state)
    assert condition is not None
    assert (condition.type, condition.status, condition.reason) == (
        "AddressesUnique",
        "False",
        "AddressContested",
    )
    assert condition.message == (
        f"an address is given twice: VirtualMachine default/w7 has {ADDRESS}, which {claim} gives to Machine team/late; "
        "delete one of the two, a machine with its VM"
    )
    told = derive_cluster(state, Plan(), None)["warnings"]
    assert told == [condition.message]
    five = address_condition(replace(state, contested=(contested,) * 5))
    assert five is not None
    assert five.message.count("VirtualMachine") == 3
    assert "; and 2 more; delete" in five.message

    # It is True only where it was False, once the VMs are known.
    quiet = look(the_cluster(), some("s", 1, SERVERS))
    assert address_condition(quiet) is None
    recorded = replace(quiet.cluster.recorded, raw={"conditions": set_condition(None, condition, NOON)})
    later = replace(quiet, cluster=replace(quiet.cluster, recorded=recorded))
    told = address_condition(later)
    assert told is not None
    assert told.status == "True"
    assert address_condition(replace(later, unrecorded=None)) is None
    assert address_condition(replace(later, is_held_known=False)) is None
    leaving = replace(later, cluster=replace(later.cluster, deletion_timestamp=NOON))
    assert address_condition(leaving) is None
