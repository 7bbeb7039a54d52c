"""Which addresses the observer finds taken, and which two machines want: claims, VMs and load balancers beside each other."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from tests.support.clock import run_driven
from tests.unit.clusters.builders import NOON, a_machine, a_pool, look, of_kind, sighted, some, unordered
from tests.unit.clusters.test_addresses import NETWORK, SERVERS, TEN, WORKERS, a_claim, the_cluster
from tests.unit.clusters.test_held_addresses import an_orphan

from windrow.clusters.api.kinds import CLUSTER
from windrow.clusters.observe.addresses import AddressObserver
from windrow.clusters.observe.credentials import credentials_of
from windrow.clusters.plan.actions import ClaimAddresses, ProvisionVM
from windrow.clusters.plan.addresses import describe_shortage
from windrow.clusters.plan.planner import plan_cluster
from windrow.clusters.sources.address_scopes import digest_of
from windrow.clusters.state import AddressScope, ClusterState
from windrow.clusters.vm_addresses import NetworkAddress
from windrow.kubernetes.kubeconfig import ClientConfig

ADDRESS, OF_A_BALANCER, FREE = "10.9.0.15", "10.9.0.16", "10.9.0.17"
NAMED = a_pool("named", 1, address_pools=(replace(TEN, ip_pool="lan"),))
PLAIN = replace(a_pool("plain", 1, address_pools=(TEN,)), credential="ns:other")
W7 = an_orphan("w7")
ACCESS = ClientConfig("https://10.0.0.1:6443")
CLAIMS = [a_claim(ADDRESS, "late"), a_claim(OF_A_BALANCER, "late")]


def observed(
    *machines: Any,
    identity: str = "hv",
    pools: Any = (NAMED, PLAIN),
    own: Any = (),
    unrecorded: Any = (),
    shown: Any = W7,
    holder: str = "default/web",
    claims: Any = tuple(CLAIMS),
) -> ClusterState:
    """Of a cluster whose pools have one network; its VM w7 has another's address, and so has a load balancer."""
    found = {claim.address: claim for claim in claims}
    parts: Any = {
        "prober": SimpleNamespace(
            hides_identity=lambda one: False,
            find_identity=lambda one: identity,
            find_last_identity=lambda one: identity,
        ),
        "objects": SimpleNamespace(
            list_shown_vms=lambda uid: [an_orphan("w1"), an_orphan("w9")],
            list_addressed=lambda wanted: [shown] if wanted("ns:cc", ACCESS) else [],
            has_tried_addresses=lambda credentials, namespace: set(credentials) == {"ns:cc", "ns:other"},
            find_ip_pools=lambda credential, namespace: (
                {"lan": SimpleNamespace(allocated=((OF_A_BALANCER, holder),))}
                if credential == "ns:cc"
                else None
            ),
        ),
        "addresses": SimpleNamespace(
            list_taken=lambda network, harvester: frozenset(found),
            find=lambda network, harvester, address: found.get(address),
        ),
    }
    listed = parts["objects"].list_addressed
    asked: list[object] = []
    parts["objects"].list_addressed = lambda wanted: asked.append(wanted) or listed(wanted)
    cluster = replace(the_cluster(), pools=(SERVERS, *pools))
    state = look(
        cluster,
        [*some("s", 1, SERVERS), *machines],
        unrecorded=unrecorded,
        claims=tuple(own),
        address_scope=AddressScope("hv", frozenset({digest_of(ACCESS)}), digest_of(ACCESS)),
    )
    unused: Any = None
    observer = AddressObserver(**parts, scopes=unused, list_allowed=credentials_of)
    vms = observer.list_vms(state)
    result = observer.with_unrecorded(observer.with_addresses(state, vms), vms)
    assert len(asked) <= 1, "all VMs of the Harvester are gone through once"
    return result


def test_an_address_that_a_machine_reports_and_another_has_claimed_is_contested() -> None:
    running = sighted(a_machine("w3", PLAIN), addresses=(ADDRESS, FREE))
    its_own = sighted(a_machine("late", PLAIN), addresses=(ADDRESS,))
    found = observed(running, replace(a_machine("w2", PLAIN), vm=None), its_own)

    assert [(one.vm, one.claim.address) for one in found.contested] == [
        ("LoadBalancer default/web", OF_A_BALANCER),
        (running.vm_ref, ADDRESS),
    ]
    assert found.taken == {NETWORK: frozenset({ADDRESS, OF_A_BALANCER})}


def test_what_vms_and_load_balancers_have_is_held_and_a_vm_is_found_for_the_machine_that_lacks_one() -> None:
    machine = sighted(a_machine("w1", PLAIN), addresses=())
    found = observed(machine)

    assert (machine.vm_ref, ADDRESS) in [(one.vm, one.claim.address) for one in found.contested]
    assert {text: one.vm for text, one in found.held[NETWORK].items()} == {
        ADDRESS: "VirtualMachine default/w7",
        OF_A_BALANCER: "LoadBalancer default/web",
    }
    assert [one.found_vm.name for one in found.machines if one.found_vm is not None] == ["w1"]
    assert found.is_held_known


def test_while_a_credential_leads_elsewhere_what_vms_have_is_not_known() -> None:
    found = observed(sighted(a_machine("w1", PLAIN), addresses=()), identity="another")

    assert not found.is_held_known
    assert set(found.held[NETWORK]) == {OF_A_BALANCER}


def test_load_balancers_have_nothing_of_a_range_that_is_of_no_ip_pool() -> None:
    found = observed(sighted(a_machine("w3", PLAIN), addresses=()), pools=(PLAIN,))

    assert found.contested == ()
    assert set(found.held[NETWORK]) == {ADDRESS}


def test_a_vm_of_another_with_the_address_of_a_machine_is_contested_though_nothing_records_it() -> None:
    claim = replace(a_claim(ADDRESS, "w3"), harvester="hv")
    made = replace(sighted(a_machine("w3", PLAIN), addresses=(ADDRESS,)), addresses=(claim,))
    found = observed(made, own=(claim,), pools=(PLAIN,))

    assert [(one.vm, one.claim) for one in found.contested] == [("VirtualMachine default/w7", claim)]
    its_own = replace(claim, machine_uid="uid-w7")
    assert observed(made, own=(its_own,), pools=(PLAIN,)).contested == ()
    elsewhere = replace(claim, harvester="another")
    assert observed(made, own=(elsewhere,), pools=(PLAIN,)).contested == ()


def test_what_vms_have_is_read_for_a_machine_whose_vm_was_not_made_yet() -> None:
    claim = replace(a_claim(ADDRESS, "w3"), harvester="hv")
    waiting = replace(unordered(a_machine("w3", PLAIN)), addresses=(claim,))
    found = observed(waiting, own=(claim,), pools=(PLAIN,))

    assert found.held[NETWORK][ADDRESS].vm == "VirtualMachine default/w7"
    assert found.contested == ()  # it waits, and has nothing yet
    shown = replace(unordered(a_machine("w1", PLAIN)), addresses=(replace(claim, machine_uid="uid-w1"),))
    assert observed(shown, pools=(PLAIN,)).machines[-1].found_vm is not None


def test_a_vm_that_no_machine_records_has_what_it_reports_beside_what_it_is_told_to_have() -> None:
    vm = replace(an_orphan("w7"), addresses=(NetworkAddress(NETWORK, FREE),))
    found = observed(unordered(a_machine("w1", PLAIN)), unrecorded=(vm,), pools=(PLAIN,))

    assert found.unrecorded is not None
    assert [one.addresses for one in found.unrecorded] == [(*vm.addresses, *an_orphan("w7").addresses)]
    assert [(one.vm, one.claim.address) for one in found.contested] == [
        ("VirtualMachine default/w7", ADDRESS)
    ]
    plain = observed(unrecorded=(vm,), pools=(a_pool("dhcp", 1),))
    assert (plain.unrecorded, plain.contested) == ((vm,), ())


def test_a_vm_of_the_name_of_a_machine_is_its_own_whatever_uid_it_carries() -> None:
    own = replace(a_machine("w7", PLAIN), vm=None)
    adopted = replace(own, record=replace(own.record, uid="uid-of-before"))
    claim = replace(a_claim(ADDRESS), machine_uid="uid-of-before")

    assert observed(adopted, own=(claim,), pools=(PLAIN,)).contested == ()
    gone = observed(own=(claim,), pools=(PLAIN,))
    assert [one.claim for one in gone.contested] == [claim]  # whose Machine does not exist any more


def test_what_is_reported_for_a_machine_that_was_not_made_is_of_no_vm_of_its_own() -> None:
    unmade = sighted(a_machine("w3", PLAIN), addresses=(ADDRESS,))
    unmade = replace(unmade, record=replace(unmade.record, driver_config=None))

    assert observed(unmade, pools=(PLAIN,)).contested == ()


def test_what_is_in_another_namespace_is_not_named() -> None:
    """Who reads the status may not read that namespace; the IPAddress is named, for who may."""
    foreign = replace(an_orphan("w7"), namespace="team")
    claim = replace(a_claim(ADDRESS, "w3"), harvester="hv")
    waiting = replace(unordered(a_machine("w3", PLAIN)), addresses=(claim,))
    found = observed(waiting, own=(claim,), shown=foreign, holder="team/web")
    assert {one.vm for one in found.held[NETWORK].values()} == {
        "a VirtualMachine of another namespace",
        "a LoadBalancer of another namespace",
    }

    made = replace(sighted(a_machine("w3", PLAIN), addresses=(ADDRESS,)), addresses=(claim,))
    (contested,) = observed(made, own=(claim,), shown=foreign, pools=(PLAIN,)).contested
    assert str(contested).startswith("a VirtualMachine of another namespace has ")


def test_the_machine_of_another_namespace_is_not_named() -> None:
    running = sighted(a_machine("w3", PLAIN), addresses=(ADDRESS,))
    found = observed(running, claims=[replace(claim, machine="team/late") for claim in CLAIMS])
    assert all(str(one).endswith("gives to a Machine of another namespace") for one in found.contested)
    assert found.contested


def scoped(
    *machines: Any, identity: str = "hv", allowed: Any = ("ns:cc",), claims: Any = (), **cluster: Any
) -> tuple[ClusterState, list[object]]:
    """Of a cluster as the observer finds it, and which Clusters it had forgotten."""
    forgotten: list[object] = []

    async def find(*_: Any) -> AddressScope:
        return AddressScope("hv", frozenset({"s"}), "s")

    parts: Any = {
        "prober": SimpleNamespace(
            hides_identity=lambda one: False,
            find_identity=lambda one: identity,
            find_last_identity=lambda one: identity,
        ),
        "objects": SimpleNamespace(
            list_shown_vms=lambda uid: [],
            list_addressed=lambda wanted: [],
            has_tried_addresses=lambda credentials, namespace: identity == "hv" or not credentials,
            find_ip_pools=lambda credential, namespace: None,
        ),
        "addresses": SimpleNamespace(
            list_taken=lambda network, harvester: frozenset(),
            find=lambda network, harvester, address: None,
            of_cluster=lambda uid: tuple(claims),
        ),
        "scopes": SimpleNamespace(find=find, forget=forgotten.append),
    }
    observer = AddressObserver(**parts, list_allowed=lambda _: list(allowed))

    async def observe() -> ClusterState:
        begun = replace(the_cluster(), **cluster)
        state = look(begun, [*some("s", 1, SERVERS), *machines], address_scope=None, is_held_known=False)
        state = await observer.with_scope(state)
        return observer.with_addresses(state, observer.list_vms(state))

    return run_driven(observe()), forgotten


def test_without_a_credential_that_may_be_used_nothing_is_claimed_and_no_vm_is_made() -> None:
    """The Secret is another namespace's, or its consent was withdrawn: the uid alone admits to no scope."""
    machine = unordered(a_machine("w1", WORKERS))
    has = replace(machine, addresses=(a_claim(ADDRESS, "w1"),))
    for one in (machine, has):
        state, _ = scoped(one, allowed=())
        assert (state.claims_on, state.is_held_known) == ("", False)
        plan = plan_cluster(state)
        assert of_kind(plan, ClaimAddresses, ProvisionVM) == []
        told = describe_shortage(one, state)
        assert told == (
            "a credential that may be used from namespace fleet-default (credential Secret ns/cc may not)"
        )
    state, _ = scoped(machine)
    (action,) = of_kind(plan_cluster(state), ClaimAddresses)
    assert {one.server for one in action.addresses} == {"s"}  # type: ignore[union-attr]


def test_a_scope_without_a_server_admits_to_no_claim() -> None:
    state = look(the_cluster(), address_scope=AddressScope("hv"))
    assert state.claims_on == ""


@pytest.mark.parametrize(
    ("identity", "told"),
    [
        ("", "Harvester to answer a probe with credential Secret ns/cc, which shows its identity"),
        (
            "other",
            "credential Secret ns/cc to lead to Harvester hv, on which the cluster is (it leads to Harvester other)",
        ),
    ],
)
def test_a_machine_that_waits_for_its_scope_says_what_for(identity: str, told: str) -> None:
    machine = unordered(a_machine("w1", WORKERS))
    state, _ = scoped(machine, identity=identity)
    assert describe_shortage(machine, state) == told
    assert not state.is_held_known
    assert describe_shortage(a_machine("w2", a_pool("dhcp", 1)), state) == ""


def test_the_deletion_of_a_cluster_waits_for_no_comparison_of_servers() -> None:
    state, _ = scoped(deletion_timestamp=NOON, claims=[a_claim(ADDRESS)])
    assert state.address_scope is None
    assert state.claims == (a_claim(ADDRESS),)
    assert scoped()[0].address_scope is not None


def test_a_cluster_is_a_member_of_its_scope_until_its_last_address_is_released() -> None:
    plain = (SERVERS, a_pool("workers", 1))
    begun = the_cluster()
    assert scoped(pools=plain)[1] == [CLUSTER.ref(begun.name, begun.namespace)]
    assert scoped(pools=plain, claims=[a_claim(ADDRESS)])[1] == []
    assert scoped()[1] == []


@pytest.mark.parametrize(
    ("scope", "identity", "is_shown"),
    [
        (None, "hv", True),
        (AddressScope("hv", frozenset({digest_of(ACCESS)}), ""), "hv", True),
        (AddressScope("hv", frozenset({"another"}), "another"), "hv", False),
        (None, "another", False),
    ],
)
def test_vms_count_that_a_credential_shows_through_a_server_of_the_scope(
    scope: AddressScope | None, identity: str, is_shown: bool
) -> None:
    unused: Any = None
    parts: Any = {
        "prober": SimpleNamespace(find_last_identity=lambda one: identity),
        "objects": SimpleNamespace(list_addressed=lambda wanted: [W7] if wanted("ns:cc", ACCESS) else []),
    }
    observer = AddressObserver(**parts, addresses=unused, scopes=unused, list_allowed=credentials_of)

    found = observer.list_vms(look(the_cluster(), address_scope=scope)).by_name

    assert list(found) == [(W7.namespace, W7.name)] * is_shown
