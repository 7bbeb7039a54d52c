"""Addresses of machines: what an address pool may be, what is claimed of it, and when it is released."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from random import Random
from typing import Any

import pytest
from tests.support.address_claims import claim_all

from windrow.apiserver.storage.memory import MemoryStore
from windrow.app.clock import SystemClock
from windrow.app.embedded import management_api
from windrow.client.client import Client
from windrow.client.informer import Informer
from windrow.clusters.api.addresses import (
    AddressPool,
    IPAddress,
    address_name,
    read_address_pools,
    read_ip_address,
    render_ip_address,
    subtract,
)
from windrow.clusters.api.fields import ProblemCollector
from windrow.clusters.api.kinds import IP_ADDRESS
from windrow.clusters.api.status import RecordedStatus
from windrow.clusters.orphans import Orphans, OrphanVm
from windrow.clusters.plan.actions import (
    ClaimAddresses,
    DeleteMachine,
    KeepVMs,
    ProvisionVM,
    RecordHarvester,
    ReleaseAddresses,
    ReleaseUnusedAddresses,
    RemoveFinalizer,
    RemoveMachineFinalizer,
)
from windrow.clusters.plan.addresses import choose_address, describe_shortage, list_node_ips
from windrow.clusters.plan.endpoint import has_lost_join_server
from windrow.clusters.plan.planner import plan_cluster
from windrow.clusters.sources.addresses import AddressBook
from windrow.clusters.state import AddressScope, MachineState
from windrow.core.formats.cidr import Range
from windrow.core.rng import Rng
from windrow.kubernetes.objects import new_object
from windrow.kubernetes.resources import NAMESPACE

from .builders import (
    NOON,
    SERVER,
    a_cluster,
    a_machine,
    a_pool,
    leaving,
    look,
    missing,
    nodeless,
    of_kind,
    record_of,
    sighted,
    silent,
    some,
    subjects,
    unknown,
    unordered,
)

NETWORK = "default/vlan-50"


def an_address_pool(*ranges: str, **rest: Any) -> AddressPool:
    first = Range.parse(ranges[0]).first
    return AddressPool(
        NETWORK,
        tuple(map(Range.parse, ranges)),
        24 if first.version == 4 else 64,
        is_of_node=True,
        written=ranges[0],
        **rest,
    )


TEN = an_address_pool("10.9.0.10-10.9.0.19", gateway="10.9.0.1", place="addressPools[0]")
SERVERS = a_pool("servers", 1, SERVER)
WORKERS = a_pool("workers", 3, address_pools=(TEN,))
RECORDED = RecordedStatus(
    init_server_uid="uid-s1",
    init_server_name="s1",
    initialized=True,
    provisioned=True,
    version="v1.35.1+rke2r1",
    harvester_uid="hv",
)


def the_cluster(**changes: Any) -> Any:
    return a_cluster(SERVERS, WORKERS, recorded=replace(RECORDED, **changes))


def a_claim(address: str, machine: str = "w1", harvester: str = "hv") -> IPAddress:
    return IPAddress(
        name=address_name(harvester, NETWORK, address),
        uid=f"claim-{address}",
        address=address,
        prefix=24 if "." in address else 64,
        network=NETWORK,
        harvester=harvester,
        machine=f"fleet-default/{machine}",
        machine_uid=f"uid-{machine}",
        cluster_uid="cluster-uid",
        is_of_node=True,
    )


# -- what is claimed ---------------------------------------------------------------------------------------------


def test_an_address_is_claimed_before_the_vm_is_made():
    new = unordered(a_machine("w1", WORKERS))
    machines = [*some("s", 1, SERVERS), new]

    before = plan_cluster(look(the_cluster(), machines))
    (claim,) = of_kind(before, ClaimAddresses)
    assert isinstance(claim, ClaimAddresses)
    assert not of_kind(before, ProvisionVM)

    after = plan_cluster(
        look(the_cluster(), [machines[0], replace(new, addresses=claim.addresses)], claims=claim.addresses)
    )
    assert subjects(after, ProvisionVM) == ["w1"]
    assert not of_kind(after, ClaimAddresses, ReleaseUnusedAddresses)


def test_machines_of_one_plan_get_different_addresses():
    new = [unordered(a_machine(f"w{number}", WORKERS)) for number in (1, 2, 3)]

    plan = plan_cluster(look(the_cluster(), [*some("s", 1, SERVERS), *new]))

    claimed = [one.address for action in of_kind(plan, ClaimAddresses) for one in action.addresses]  # type: ignore[union-attr]
    assert len(set(claimed)) == 3
    assert all(address.startswith("10.9.0.1") for address in claimed)


def test_where_all_are_taken_the_machine_waits_and_says_so_and_others_go_on():
    taken = {NETWORK: frozenset(f"10.9.0.{number}" for number in range(10, 19))}
    new = [unordered(a_machine(f"w{number}", WORKERS)) for number in (1, 2)]

    plan = plan_cluster(look(the_cluster(), [*some("s", 1, SERVERS), *new], taken=taken))
    assert subjects(plan, ClaimAddresses) == ["w1"]

    full = {NETWORK: taken[NETWORK] | {"10.9.0.19"}}
    state = look(
        the_cluster(),
        [*some("s", 1, SERVERS), replace(new[0], addresses=(a_claim("10.9.0.19"),)), new[1]],
        taken=full,
    )
    plan = plan_cluster(state)

    assert subjects(plan, ProvisionVM) == ["w1"]
    assert plan.diagnoses["w2"].waiting_for == (
        f"an address of network {NETWORK} to be released (all 10 of 10.9.0.10-10.9.0.19 are claimed, or VMs have them; "
        "widen addressPools[0] of HarvesterConfig fleet-default/nc-workers, or delete machines that have one)"
    )


def test_nothing_is_claimed_before_it_is_recorded_which_harvester_the_network_is_on():
    new = [unordered(a_machine(f"w{number}", WORKERS)) for number in (1, 2)]

    plan = plan_cluster(look(the_cluster(harvester_uid=""), [*some("s", 1, SERVERS), *new]))

    assert of_kind(plan, RecordHarvester, ClaimAddresses, ProvisionVM) == [
        RecordHarvester("addresses are claimed on it", "ns:cc")
    ]


def test_nothing_is_claimed_on_a_harvester_that_is_known_by_its_ca_only():
    """Two credentials of one Harvester may have two texts of one CA, so that two names would be of one address."""
    by_ca = the_cluster(harvester_uid="ca-1")
    new = unordered(a_machine("w1", WORKERS))
    running = sighted(a_machine("w2", WORKERS), addresses=("10.9.0.15",))
    machines = [*some("s", 1, SERVERS), new, running]

    plan = plan_cluster(look(by_ca, machines, harvester_hidden_from="ns:cc"))
    assert not of_kind(plan, RecordHarvester, ClaimAddresses, ProvisionVM)
    assert plan.diagnoses["w1"].waiting_for == (
        "Harvester to be known by the uid of its Namespace kube-system, under which addresses are claimed (let the user of "
        "credential Secret ns/cc get that Namespace)"
    )
    assert describe_shortage(running, look(by_ca, machines, harvester_hidden_from="ns:cc")) == ""
    # By now it may be read.
    plan = plan_cluster(look(by_ca, machines))
    assert of_kind(plan, RecordHarvester, ClaimAddresses, ProvisionVM) == [
        RecordHarvester("addresses are claimed on it", "ns:cc")
    ]


def test_what_is_claimed_on_another_harvester_takes_nothing_here():
    clock, rng = SystemClock(), Rng(7)
    api = management_api(MemoryStore(), clock, rng).local()
    book = AddressBook(Informer(api, IP_ADDRESS, "", read_ip_address, clock, rng))
    book.put(a_claim("10.9.0.15", harvester="ca-1"))
    book.put(a_claim("10.9.0.16"))

    assert book.list_taken(NETWORK, "hv") == {"10.9.0.16"}


def test_of_a_machine_that_was_requested_nothing_more_is_claimed_though_the_config_has_changed():
    old = record_of(a_machine("w1", WORKERS), driver_config={"MachineName": "w1"})

    plan = plan_cluster(look(the_cluster(), [*some("s", 1, SERVERS), old]))

    assert not of_kind(plan, ClaimAddresses)
    assert subjects(plan, ProvisionVM) == ["w1"]


def test_what_a_vm_reports_and_a_restored_state_has_lost_is_claimed_again():
    running = sighted(a_machine("w1", WORKERS), addresses=("10.9.0.15", "10.9.0.200"))
    machines = [*some("s", 1, SERVERS), running]

    (claim,) = of_kind(plan_cluster(look(the_cluster(), machines)), ClaimAddresses)
    assert isinstance(claim, ClaimAddresses)
    assert [(one.address, one.machine_uid) for one in claim.addresses] == [("10.9.0.15", "uid-w1")]

    # Of what it announces for Services nothing is its own.
    vip = sighted(replace(running, addresses=claim.addresses), addresses=("10.9.0.15", "10.9.0.19"))
    assert not of_kind(plan_cluster(look(the_cluster(), [machines[0], vip])), ClaimAddresses)
    again = look(
        the_cluster(), [machines[0], replace(running, addresses=claim.addresses)], claims=claim.addresses
    )
    assert not of_kind(plan_cluster(again), ClaimAddresses, ReleaseUnusedAddresses)


def test_a_server_whose_vm_does_not_report_its_claimed_address_is_not_lost():
    servers = replace(SERVERS, address_pools=(TEN,))
    server = replace(a_machine("s1", servers), addresses=(a_claim("10.9.0.15", "s1"),))
    quiet = sighted(replace(server, node=None), addresses=("fd00:9::15",))
    late = unordered(record_of(a_machine("w1", WORKERS), join_server="https://10.9.0.15:9345"))
    without = replace(quiet, addresses=())

    assert not has_lost_join_server(late, look(the_cluster(), [quiet, late]))
    assert has_lost_join_server(late, look(the_cluster(), [without, late]))


CLAIMING = replace(SERVERS, address_pools=(TEN,))
BOOTING = replace(RECORDED, initialized=False, provisioned=False)
LATE = unordered(record_of(a_machine("w1", WORKERS), join_server="https://10.9.0.15:9345"))


def a_booting_server(**vm: Any) -> MachineState:
    """An init server that has claimed 10.9.0.15, and whose VM was made."""
    made = record_of(nodeless(a_machine("s1", CLAIMING)), is_init_server=True, join_server="")
    return sighted(replace(made, addresses=(a_claim("10.9.0.15", "s1"),)), **{"addresses": (), **vm})


@pytest.mark.parametrize(
    "server",
    [
        replace(a_booting_server(), vm=None),
        unknown(a_booting_server()),
        a_booting_server(state="starting"),
        a_booting_server(state="stopped"),
        a_booting_server(addresses=("fd00:9::15",)),
        a_booting_server(addresses=("10.9.0.15",)),
        missing(a_booting_server()),
    ],
    ids=["not seen", "unknown", "starting", "stopped", "reports another", "reports it", "gone"],
)
def test_no_machine_is_deleted_that_joins_through_an_address_that_a_living_server_has_claimed(
    server: MachineState,
):
    late = replace(LATE, addresses=(a_claim("10.9.0.11", "w1"),))
    pools = (CLAIMING, replace(WORKERS, quantity=1))
    for recorded in (BOOTING, replace(BOOTING, initialized=True), RECORDED):
        state = look(
            a_cluster(*pools, recorded=recorded),
            [server, late],
            guest=silent(),
            claims=(*server.addresses, *late.addresses),
        )
        plan = plan_cluster(state)

        assert [one for one in of_kind(plan, DeleteMachine) if one.subject == "w1"] == []
        assert subjects(plan, ProvisionVM) == ([] if server.presence == "missing" else ["w1"])
        assert not has_lost_join_server(late, state)
        assert has_lost_join_server(late, look(state.cluster, [leaving(missing(server)), late]))


def test_a_machine_waits_where_the_vm_of_its_server_is_gone_and_the_server_is_not_deleted_yet():
    server = missing(a_booting_server())
    late = replace(LATE, addresses=(a_claim("10.9.0.11", "w1"),))

    plan = plan_cluster(look(the_cluster(), [server, late]))

    assert "Machine s1 to be replaced" in next(wait.what for wait in plan.waits if wait.machine == "w1")


def test_what_was_requested_goes_on_though_the_vm_of_its_server_is_gone():
    """Its VM may be there already, with that server in its cloud-init."""
    server = missing(a_booting_server())
    late = record_of(LATE, driver_config={"MachineName": "w1"})

    plan = plan_cluster(look(the_cluster(), [server, late]))

    assert subjects(plan, ProvisionVM) == ["w1"]


def test_before_the_cluster_has_started_machines_stay_while_the_init_server_reports_no_address():
    server = replace(a_booting_server(state="starting"), addresses=())
    cluster = a_cluster(SERVERS, a_pool("workers", 1), recorded=BOOTING)

    plan = plan_cluster(look(cluster, [server, LATE], guest=silent()))

    assert not of_kind(plan, DeleteMachine)


def test_before_the_cluster_has_started_machines_stay_while_the_init_server_reports_more_addresses():
    """The first address that a VM reports may be another later; the server still has the one that was told."""
    server = a_booting_server(addresses=("10.0.0.77", "10.9.0.15"))
    plan = plan_cluster(
        look(
            a_cluster(SERVERS, a_pool("workers", 1), recorded=BOOTING),
            [replace(server, addresses=()), LATE],
            guest=silent(),
        )
    )

    assert not of_kind(plan, DeleteMachine)
    assert subjects(plan, ProvisionVM) == ["w1"]


def test_an_address_that_is_claimed_anew_stays_known_when_its_former_record_is_gone():
    clock, rng = SystemClock(), Rng(7)
    api = management_api(MemoryStore(), clock, rng).local()
    book = AddressBook(Informer(api, IP_ADDRESS, "", read_ip_address, clock, rng))
    before, after = a_claim("10.9.0.15"), replace(a_claim("10.9.0.15", "w2"), uid="another")
    book.put(before)
    book.put(after)

    book.remove(before)  # which a watch shows late
    assert book.of_machine("uid-w2") == (after,)
    assert book.of_machine("uid-w1") == ()

    book.remove(after)
    book.remove(after)
    assert book.list_taken(NETWORK, "hv") == frozenset()


def test_an_address_that_a_vm_reports_is_not_given_to_another_machine_which_says_what_it_waits_for():
    only = an_address_pool("10.9.0.15", place="addressPools[0]")
    pool = replace(WORKERS, address_pools=(only,))
    stranger = sighted(a_machine("s1", SERVERS), addresses=("10.9.0.15",))
    cluster = a_cluster(SERVERS, pool, recorded=RECORDED)

    plan = plan_cluster(look(cluster, [stranger, unordered(a_machine("w1", pool))]))

    assert not of_kind(plan, ClaimAddresses, ProvisionVM)
    assert plan.diagnoses["w1"].waiting_for == (
        f"an address of network {NETWORK} to be released (all 1 of 10.9.0.15 are claimed, or VMs have them; "
        "widen addressPools[0] of HarvesterConfig fleet-default/nc-workers, or delete machines that have one)"
    )


def test_a_machine_that_waits_for_an_ip_pool_names_it_and_not_the_manifest():
    only = an_address_pool("10.9.0.15", place="addressPools[0]", ip_pool="machines")
    pool = replace(WORKERS, address_pools=(replace(only, written="IPPool machines"),))
    stranger = sighted(a_machine("s1", SERVERS), addresses=("10.9.0.15",))
    cluster = a_cluster(SERVERS, pool, recorded=RECORDED)

    plan = plan_cluster(look(cluster, [stranger, unordered(a_machine("w1", pool))]))

    assert plan.diagnoses["w1"].waiting_for == (
        f"an address of network {NETWORK} to be released (all 1 of IPPool machines are claimed, or VMs have them; "
        "widen IPPool machines on Harvester, or delete machines that have one)"
    )


# -- what is released --------------------------------------------------------------------------------------------


def test_an_address_is_released_after_the_vm_is_gone_and_before_the_machine_is():
    leaves = leaving(replace(a_machine("w1", WORKERS), addresses=(a_claim("10.9.0.15"),)))
    server = some("s", 1, SERVERS)
    claims = leaves.addresses

    plan = plan_cluster(look(the_cluster(), [*server, leaves], claims=claims))
    assert not of_kind(plan, ReleaseAddresses, ReleaseUnusedAddresses)

    gone = replace(missing(leaves), node=None, deletion_requested=leaves.record.deletion_timestamp)
    plan = plan_cluster(look(the_cluster(), [*server, gone], claims=claims))
    of_w1 = [action for action in plan.actions if action.subject == "w1"]
    kinds = [type(action) for action in of_w1]
    assert kinds.index(ReleaseAddresses) < kinds.index(RemoveMachineFinalizer)


@pytest.mark.parametrize("ends", [False, True])
@pytest.mark.parametrize("requested", [False, True])
def test_whatever_becomes_of_the_cluster_an_address_is_released_before_its_machine(requested, ends):
    leaves = leaving(replace(a_machine("w1", WORKERS), addresses=(a_claim("10.9.0.15"),)))
    gone = replace(missing(leaves), node=None, deletion_requested=NOON) if requested else unordered(leaves)
    cluster = replace(the_cluster(), deletion_timestamp=NOON) if ends else the_cluster()
    servers = [] if ends else some("s", 1, SERVERS)

    plan = plan_cluster(look(cluster, [*servers, gone], claims=leaves.addresses))

    kinds = [type(action) for action in plan.actions if action.subject == "w1"]
    assert kinds.index(ReleaseAddresses) < kinds.index(RemoveMachineFinalizer)


def test_an_address_whose_machine_does_not_exist_is_released_unless_a_vm_has_its_uid():
    claims = (a_claim("10.9.0.15", "w7"),)
    machines = [*some("s", 1, SERVERS), *some("w", 3, WORKERS)]

    assert of_kind(plan_cluster(look(the_cluster(), machines, claims=claims)), ReleaseUnusedAddresses)
    vm = OrphanVm("default", "prod-workers-abcde-w7", "vm-7", "uid-w7", cluster_uid="cluster-uid")
    for unrecorded in ((vm,), None):
        state = look(the_cluster(), machines, claims=claims, unrecorded=unrecorded)
        assert not of_kind(plan_cluster(state), ReleaseUnusedAddresses)


def test_at_the_end_of_a_cluster_the_addresses_of_a_vm_that_is_kept_stay_claimed():
    claims = (a_claim("10.9.0.15", "w7"), a_claim("10.9.0.16", "w8"))
    vm = OrphanVm(
        "default", "prod-w7", "vm-7", "uid-w7", cluster_uid="cluster-uid", unproven="it may be a clone"
    )
    ending = replace(the_cluster(), deletion_timestamp=NOON)

    plan = plan_cluster(look(ending, claims=claims, orphans=Orphans(vms=(vm,))))

    assert of_kind(plan, KeepVMs, RemoveFinalizer)
    (action,) = of_kind(plan, ReleaseUnusedAddresses)
    assert isinstance(action, ReleaseUnusedAddresses)
    assert action.addresses == (claims[1],)


@pytest.mark.parametrize("seed", range(20))
def test_clusters_that_plan_on_old_views_never_share_an_address_and_leak_none(seed: int):
    """Random machines come and go, of two clusters; each plans on a view that may be older. The store takes one object of a
    name, as an API server does."""
    rng = Random(seed)
    store: dict[str, IPAddress] = {}
    clusters = {
        uid: replace(a_cluster(SERVERS, replace(WORKERS, quantity=8), recorded=RECORDED), uid=uid)
        for uid in ("one", "two")
    }
    machines: dict[str, dict[str, Any]] = {uid: {} for uid in clusters}
    view: dict[str, IPAddress] = {}
    for step in range(120):
        if rng.random() < 0.6:
            view = dict(store)
        uid = rng.choice(sorted(clusters))
        own = machines[uid]
        if len(own) < 8 and rng.random() < 0.6:
            name = f"{uid}{step}"
            own[name] = unordered(a_machine(name, WORKERS))
            own[name] = record_of(own[name], cluster_uid=uid)
        elif own:
            name = rng.choice(sorted(own))
            gone = replace(missing(leaving(own[name])), deletion_requested=leaving(own[name]).record.created)
            own[name] = record_of(gone, driver_config={"MachineName": name}, node="")
        held = {
            name: replace(one, addresses=tuple(c for c in store.values() if c.machine_uid == one.record.uid))
            for name, one in own.items()
        }
        claims = tuple(claim for claim in store.values() if claim.cluster_uid == uid)
        taken = {NETWORK: frozenset(claim.address for claim in view.values())}
        plan = plan_cluster(
            look(clusters[uid], [*some("s", 1, SERVERS), *held.values()], claims=claims, taken=taken)
        )
        for action in plan.actions:
            match action:
                case ClaimAddresses(addresses=(claim,)):
                    store.setdefault(claim.name, claim)
                case ReleaseAddresses(addresses=released) | ReleaseUnusedAddresses(addresses=released):
                    for claim in released:
                        assert store.pop(claim.name).machine_uid == claim.machine_uid
                case ProvisionVM(machine=name):
                    own[name] = record_of(
                        own[name], driver_config={"MachineName": name, "WindrowVMUID": name}
                    )
                case RemoveMachineFinalizer(machine=name):
                    del own[name]
                case _:
                    pass
        made = {m.record.uid for every in machines.values() for m in every.values() if m.record.was_created}
        holders = [claim.machine_uid for claim in store.values()]
        assert len(holders) == len(set(holders)), f"seed {seed}"
        assert made <= set(holders), f"seed {seed}: a VM without a record"
        known = {m.record.uid for every in machines.values() for m in every.values()}
        assert set(holders) <= known, f"seed {seed}: a leak"


# -- the choice --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(30))
def test_a_free_address_is_found_exactly_where_there_is_one(seed: int):
    rng = Random(seed)
    ranges = subtract(
        [Range.parse(f"10.9.0.{a}-10.9.0.{a + rng.randrange(20)}") for a in rng.sample(range(200), 3)],
        [Range.parse(f"10.9.0.{rng.randrange(220)}") for _ in range(4)],
    )
    pool = AddressPool(NETWORK, ranges, 24)
    every = [str(address) for one in ranges for address in one]
    assert len(every) == len(set(every)) == pool.size
    taken: set[str] = set(rng.sample(every, rng.randrange(len(every))))
    while address := choose_address(pool, taken, str(rng.random())):
        assert str(address) in every
        assert str(address) not in taken
        taken.add(str(address))
    assert taken == set(every)


def test_a_range_as_large_as_ipv6_has_costs_nothing():
    pool = an_address_pool("fd00:9::/64")
    assert pool.size == 2**64
    address = choose_address(pool, set(), "uid")
    assert address is not None
    other = choose_address(pool, {str(address)}, "uid")
    assert other in pool.ranges[0]
    assert other != address


def test_the_record_is_read_as_it_was_written():
    claim = replace(a_claim("fd00:9::7"), gateway="fd00:9::1", nameservers=("fd00:9::53",), uid="")
    raw = render_ip_address(claim)
    assert read_ip_address(raw) == claim
    assert raw["metadata"]["annotations"] == {
        "windrow.io/cluster-uid": "cluster-uid",
        "windrow.io/machine-uid": "uid-w1",
    }
    assert claim.name == f"{address_name('hv', NETWORK, 'fd00:9::7')}"
    assert claim.name.endswith("-fd00-0009-0000-0000-0000-0000-0000-0007")
    assert read_ip_address({"metadata": {"name": "x"}, "spec": {"address": "no"}}) is None


def test_the_node_has_the_addresses_of_the_first_pools_network_in_the_order_of_the_clusters_families():
    second = AddressPool("default/storage", (Range.parse("10.8.0.0/24"),), 24)
    six = an_address_pool("fd00:9::10-fd00:9::20")
    pool = replace(WORKERS, address_pools=(TEN, six, second))
    claims = (
        replace(a_claim("10.8.0.5"), network="default/storage", is_of_node=False),
        a_claim("10.9.0.15"),
        a_claim("fd00:9::15"),
    )
    machine = replace(a_machine("w1", pool), addresses=claims)
    cluster = a_cluster(SERVERS, pool)
    assert list_node_ips(machine, cluster) == ("10.9.0.15",)
    assert list_node_ips(machine, replace(cluster, families=(6, 4))) == ("fd00:9::15", "10.9.0.15")
    assert machine.address == "10.9.0.15"
    assert replace(machine, family=6).address == "fd00:9::15"


# -- what a user may write ---------------------------------------------------------------------------------------

GOOD = {
    "network": "vlan-50",
    "addresses": ["10.9.0.0/26", "10.9.0.100-10.9.0.110"],
    "excludedAddresses": ["10.9.0.1-10.9.0.9"],
    "prefix": 24,
    "gateway": "10.9.0.1",
    "nameservers": ["10.9.0.2"],
}


def read(*pools: Any, **options: Any) -> tuple[tuple[AddressPool, ...], list[str]]:
    problems = ProblemCollector()
    found = read_address_pools({"addressPools": list(pools), **options}, "default", problems)
    return found, [f"{one.field}: {one.message}" for one in problems.found]


def test_a_pool_has_what_its_subnet_lets_hosts_have():
    (pool,), problems = read(GOOD)
    assert problems == []
    assert pool.network == NETWORK
    assert pool.is_of_node
    assert list(map(str, pool.ranges)) == ["10.9.0.10-10.9.0.63", "10.9.0.100-10.9.0.110"]
    assert (pool.prefix, pool.gateway, pool.nameservers) == (24, "10.9.0.1", ("10.9.0.2",))
    whole, _ = read({"network": "n", "addresses": ["10.9.0.0/30"], "prefix": 30})
    assert list(map(str, whole[0].ranges)) == ["10.9.0.1-10.9.0.2"]


@pytest.mark.parametrize(
    ("subnet", "left"),
    [
        ("10.9.0.0/31", "10.9.0.0-10.9.0.1"),
        ("10.9.0.7/32", "10.9.0.7"),
        ("fd00:9::/127", "fd00:9::-fd00:9::1"),
    ],
)
def test_of_a_subnet_of_two_addresses_or_one_hosts_may_have_all(subnet: str, left: str):
    (pool,), problems = read({"network": "n", "addresses": [subnet], "prefix": int(subnet.split("/")[1])})

    assert problems == []
    assert list(map(str, pool.ranges)) == [left]


def test_a_pool_has_64_ranges_at_most():
    ranges = [f"10.9.0.{number}" for number in range(2, 130, 2)]
    pool = {"network": "n", "addresses": ranges, "prefix": 24}

    assert len(read(pool)[0][0].ranges) == 64
    found, problems = read({**pool, "addresses": [*ranges, "10.9.0.200"]})
    assert (found, problems[0].partition(": ")[2]) == ((), "addressPools[0].addresses has 65 entries")


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        ({"network": ""}, "addressPools[0].network: addressPools[0].network is not set"),
        ({"addresses": []}, "addressPools[0].addresses: addressPools[0].addresses is empty"),
        ({"addresses": ["10.9.0.9-10.9.0.1"]}, "neither an address nor a range"),
        ({"addresses": ["10.9.0.5", "fd00::5"]}, "has IPv4 and IPv6 addresses"),
        ({"addresses": ["10.8.0.5"]}, "addressPools[0].gateway is 10.9.0.1, which is not in 10.8.0.0/24"),
        ({"addresses": ["10.9.0.10-10.9.1.10"]}, "has 10.9.0.10-10.9.1.10, which is not in 10.9.0.0/24"),
        ({"prefix": None}, "addressPools[0].prefix is not set"),
        ({"prefix": 33}, "addressPools[0].prefix is 33"),
        ({"gateway": "router"}, "addressPools[0].gateway has 'router', which is no address"),
        ({"gateway": "10.9.0.20"}, "addressPools[0].addresses has 10.9.0.20, which is the gateway"),
        ({"excludedAddresses": ["10.9.0.0/24"]}, "has no address that a machine can have"),
        ({"nameservers": ["dns"]}, "addressPools[0].nameservers has 'dns', which is no address"),
        ({"addresses": ["10.9.0.5"] * 65}, "addressPools[0].addresses has 65 entries"),
        ({"addresses": "10.9.0.5"}, "addressPools[0].addresses is '10.9.0.5', which is not a list"),
        (
            {"addresses": ["127.0.0.9"]},
            "addresses has 127.0.0.9, of 127.0.0.0-127.255.255.255, of which every host has its own",
        ),
        ({"addresses": ["169.254.7.7"]}, "which are link-local"),
        ({"addresses": ["223.255.255.250-224.0.0.9"]}, "which are for multicast, or reserved"),
        ({"addresses": ["0.0.0.7"]}, "which no host may have"),
        ({"addresses": ["fe80::10-fe80::20"], "prefix": 64}, "which are link-local"),
        ({"addresses": ["ff02::10"], "prefix": 64}, "which are for multicast"),
        ({"addresses": ["::1"], "prefix": 64}, "of which every host has its own, or none"),
        (
            {"addresses": ["::ffff:10.9.0.5"]},
            "has '::ffff:10.9.0.5', which is neither an address nor a range",
        ),
        ({"addresses": ["::ffff:10.9.0.0/120"]}, "which is neither an address nor a range"),
        ({"nameservers": ["::ffff:10.9.0.2"]}, "nameservers has '::ffff:10.9.0.2', which is no address"),
    ],
)
def test_a_pool_with_a_fault_is_refused_with_the_path_of_the_field(change: dict[str, Any], fault: str):
    found, problems = read({**GOOD, **change})
    assert found == ()
    assert any(fault in one for one in problems), problems


def test_two_entries_of_one_family_and_network_two_gateways_and_network_data_are_refused():
    _, problems = read(GOOD, GOOD)
    assert any("are both IPv4 addresses of network default/vlan-50" in one for one in problems)
    _, problems = read(GOOD, {**GOOD, "network": "other"})
    assert any("both have an IPv4 gateway" in one for one in problems)
    _, problems = read(GOOD, networkData="version: 2")
    assert any("networkData and addressPools are both set" in one for one in problems)


def test_clusters_of_two_managers_that_claim_a_whole_range_at_once_have_each_address_once():
    result = asyncio.run(claim_all(8, 8))
    assert len(result.claimed) == 64
    assert (result.faults, result.left) == (0, 0)


def test_addresses_are_claimed_in_the_scope_that_was_found_and_not_before() -> None:
    machines = [*some("s", 1, SERVERS), unordered(a_machine("w1", WORKERS))]
    state = look(the_cluster(), machines)
    server = "https://10.0.0.1"
    scoped = replace(state, address_scope=AddressScope("hv@x", frozenset({server}), server))
    claimed = [one for action in of_kind(plan_cluster(scoped), ClaimAddresses) for one in action.addresses]  # type: ignore[union-attr]
    assert {(one.harvester, one.server) for one in claimed} == {("hv@x", server)}
    assert [one.name for one in claimed] == [address_name("hv@x", NETWORK, one.address) for one in claimed]

    waits = replace(state, address_scope=AddressScope(""))
    assert of_kind(plan_cluster(waits), ClaimAddresses) == []
    assert describe_shortage(machines[1], waits).startswith("proof that the server of ")
    assert "is Harvester hv, on which Clusters of another namespace" in describe_shortage(machines[1], waits)
    # What it has already stays its own.
    its_own = replace(machines[1], addresses=(a_claim("10.9.0.11"),))
    assert describe_shortage(its_own, waits) == ""


@pytest.mark.parametrize(
    "spec",
    [{}, dict.fromkeys(("prefix", "network", "harvester", "claimRef", "gateway", "nameservers", "server"))],
)
def test_of_a_record_that_says_little_the_rest_is_unset(spec: dict[str, Any]):
    raw = {"metadata": {"name": "x"}, "spec": {"address": "fd00:9::0A", **spec}}

    assert read_ip_address(raw) == IPAddress(
        name="x",
        uid="",
        address="fd00:9::a",
        prefix=0,
        network="",
        harvester="",
        machine="/",
        machine_uid="",
        cluster_uid="",
        is_of_node=False,
    )


def test_the_book_forgets_what_is_deleted():
    async def story() -> list[tuple[str, ...]]:
        clock, rng = SystemClock(), Rng(7)
        server = management_api(MemoryStore(), clock, rng)
        await server.prepare()
        client = Client(server.local())
        await client.create(NAMESPACE, new_object(NAMESPACE, "fleet-default"))
        book = AddressBook(Informer(server.local(), IP_ADDRESS, "", read_ip_address, clock, rng))
        changed = asyncio.Event()

        async def seen() -> tuple[str, ...]:
            await asyncio.wait_for(changed.wait(), 10)
            changed.clear()
            return tuple(one.address for one in book.of_machine("uid-w1"))

        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(book.informer.run())]
            tasks += [group.create_task(book.run(lambda before, after: changed.set()))]
            made = await client.create(IP_ADDRESS, render_ip_address(a_claim("10.9.0.15")))
            found = [await seen()]
            await client.delete(IP_ADDRESS.ref(made["metadata"]["name"]), uid=made["metadata"]["uid"])
            found.append(await seen())
            for task in tasks:
                task.cancel()
        return found

    assert asyncio.run(story()) == [("10.9.0.15",), ()]
