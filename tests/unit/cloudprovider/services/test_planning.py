"""What is planned for a service, as a table of values: nothing runs here."""

from dataclasses import replace
from datetime import timedelta

import pytest
from tests.support.clock import NOON

from windrow.cloudprovider import names
from windrow.cloudprovider.services import problems
from windrow.cloudprovider.services.actions import (
    DELETED,
    DELETING,
    ENSURED,
    ENSURING,
    NO_ACTION,
    ClearStatus,
    ConfirmDeleted,
    CreateLoadBalancer,
    DeleteLoadBalancer,
    EmitEvent,
    PatchService,
    Plan,
    RemoveFinalizer,
    UpdateLoadBalancer,
)
from windrow.cloudprovider.services.controller import _name_state
from windrow.cloudprovider.services.own_address import REFUSAL_RECHECK
from windrow.cloudprovider.services.planning import plan_service
from windrow.cloudprovider.services.readings import (
    HARVESTER_FINALIZER,
    Interfaces,
    LoadBalancer,
    Owner,
    Service,
)
from windrow.cloudprovider.services.sharing import CannotShare, OwnAddress, SharedAddress
from windrow.cloudprovider.services.state import ClusterSettings, ServiceState, Unavailable, WaitState

POLICY = ClusterSettings("demo", "host-ns")
WEB = Service(
    "default",
    "web",
    "uid-1",
    version="1",
    is_load_balancer=True,
    finalizers=(names.FINALIZER,),
    ports=(("TCP", 80),),
    addresses="",
)
BARE = replace(WEB, addresses=None)
NAME = POLICY.name_for(WEB)
LB = LoadBalancer(
    "host-ns",
    NAME,
    "lb-uid",
    version="1",
    owner=Owner("demo", "default", "web"),
    ipam="pool",
    allocated_pool="pool",
    allocated=("10.1.0.10",),
    address="10.1.0.10",
    annotations={names.LB_CLUSTER: "demo", names.FIXED_NETWORK: ""},
)
TOLD = replace(WEB, addresses="10.1.0.10", ingress=("10.1.0.10",))
FRONT = replace(TOLD, name="front", uid="uid-2", ports=(("TCP", 81),))
SECOND = replace(TOLD, primary="front", primary_label="default.front", ports=(("TCP", 80),))
ENDS = {"is_deleting": True}


def plan(service=TOLD, **state):
    return plan_service(
        ServiceState(service, NOON, POLICY, sharing=state.pop("sharing", OwnAddress()), **state)
    )


def kinds(found):
    return [action if isinstance(action, EmitEvent) else type(action) for action in found.actions]


@pytest.mark.parametrize(
    ("service", "state", "actions"),
    [
        # An address of its own.
        (replace(WEB, finalizers=()), {}, [PatchService, CreateLoadBalancer, ENSURING]),
        (WEB, {}, [CreateLoadBalancer, ENSURING]),
        # kube-vip would wait for the address of a service that has none, and serve no other meanwhile.
        (BARE, {}, [PatchService, CreateLoadBalancer, ENSURING]),
        (BARE, {"host": Unavailable("down")}, [PatchService]),
        (replace(BARE, ipam="static"), {}, [PatchService]),
        (replace(BARE, primary="front"), {"sharing": CannotShare("no")}, [PatchService]),
        (replace(BARE, primary="front"), {"sharing": SharedAddress(replace(FRONT, ingress=()))}, [PatchService]),
        (replace(BARE, requested_address="10.1.0.10"), {}, [CreateLoadBalancer, ENSURING]),  # announced already
        (replace(BARE, ingress=("10.1.0.10",)), {}, [CreateLoadBalancer, ENSURING]),
        (replace(BARE, ignores_vip=True), {}, [CreateLoadBalancer, ENSURING]),
        (WEB, {"load_balancer": replace(LB, allocated=(), address="")}, []),
        (WEB, {"load_balancer": replace(LB, address="")}, [PatchService, ENSURED]),
        (TOLD, {"load_balancer": replace(LB, address="")}, [UpdateLoadBalancer]),
        (TOLD, {"load_balancer": LB}, []),
        (replace(TOLD, primary_label=""), {"load_balancer": LB}, []),  # as the Go program leaves it
        (replace(TOLD, finalizers=("other",)), {"load_balancer": LB}, [PatchService]),
        (replace(TOLD, ingress=("10.9.9.9",)), {"load_balancer": LB}, []),
        (replace(TOLD, primary_label="default.old"), {"load_balancer": LB}, [PatchService]),
        (TOLD, {"load_balancer": replace(LB, allocated=("10.1.0.11",))}, [PatchService, ENSURED]),
        (TOLD, {"load_balancer": replace(LB, is_deleting=True, finalizers=(HARVESTER_FINALIZER, "other"))}, []),
        (TOLD, {"load_balancer": replace(LB, is_deleting=True, finalizers=("other",))}, [ClearStatus, PatchService]),
        (WEB, {"host": Unavailable("down")}, []),
        (WEB, {"host": Unavailable()}, []),
        (TOLD, {"load_balancer": LB, "host": Unavailable("down")}, []),
        (TOLD, {"load_balancer": replace(LB, address=""), "host": Unavailable("down")}, []),
        (replace(TOLD, pool="other"), {"load_balancer": LB}, [ClearStatus, PatchService, UpdateLoadBalancer]),
        (replace(TOLD, pool="other"), {"load_balancer": LB, "host": Unavailable("down")}, []),
        (replace(TOLD, pool="pool"), {"load_balancer": LB}, [UpdateLoadBalancer]),  # where it is from already
        (replace(TOLD, pool="other"), {"load_balancer": replace(LB, pool="other")}, [ClearStatus, PatchService]),
        (replace(TOLD, pool="other", ipam="dhcp"), {"load_balancer": replace(LB, ipam="dhcp")}, []),
        # The address of another service.
        (replace(SECOND, finalizers=(), primary_label=None, addresses=None), {"sharing": SharedAddress(FRONT)}, [ENSURING, PatchService, ENSURED]),
        (SECOND, {"sharing": SharedAddress(FRONT)}, []),
        (SECOND, {"sharing": SharedAddress(FRONT), "load_balancer": LB}, [DeleteLoadBalancer]),
        (SECOND, {"sharing": SharedAddress(replace(FRONT, ingress=("10.1.0.20",))), "load_balancer": LB}, [PatchService, ENSURED]),
        (
            replace(SECOND, addresses="10.1.0.20", ingress=("10.1.0.20",)),
            {"sharing": SharedAddress(replace(FRONT, ingress=("10.1.0.20",))), "load_balancer": LB},
            [DeleteLoadBalancer],
        ),
        (SECOND, {"sharing": SharedAddress(FRONT), "load_balancer": LB, "host": Unavailable("down")}, []),
        (SECOND, {"sharing": SharedAddress(replace(FRONT, ingress=("10.1.0.20",)))}, [PatchService, ENSURED]),
        (SECOND, {"sharing": SharedAddress(replace(FRONT, ingress=()))}, []),
        (replace(SECOND, interface="enp1s0"), {"sharing": SharedAddress(FRONT)}, [PatchService]),
        # None any more.
        (replace(TOLD, **ENDS), {"load_balancer": LB}, [PatchService, DeleteLoadBalancer, DELETING]),
        (replace(WEB, **ENDS), {"load_balancer": LB}, [DeleteLoadBalancer, DELETING]),
        (replace(TOLD, **ENDS), {"load_balancer": replace(LB, is_deleting=True)}, [PatchService]),
        (replace(WEB, **ENDS), {"load_balancer": replace(LB, is_deleting=True)}, []),
        (replace(TOLD, **ENDS), {}, [RemoveFinalizer, DELETED]),
        # Another finalizer keeps it, and kube-vip with it.
        (replace(TOLD, finalizers=(*TOLD.finalizers, "other"), **ENDS), {"load_balancer": LB}, [PatchService, ClearStatus, DeleteLoadBalancer, DELETING]),
        (replace(TOLD, finalizers=(*TOLD.finalizers, "other"), **ENDS), {}, [ClearStatus, RemoveFinalizer, DELETED]),
        (replace(TOLD, **ENDS), {"host": Unavailable("down")}, []),
        (replace(TOLD, **ENDS), {"load_balancer": LB, "host": Unavailable("down")}, []),
        (replace(TOLD, **ENDS), {"load_balancer": LB, "users": (SECOND,)}, []),
        (replace(TOLD, finalizers=(), **ENDS), {}, []),
        (replace(TOLD, finalizers=(), **ENDS), {"load_balancer": LB}, [PatchService, DeleteLoadBalancer, DELETING]),
        (replace(TOLD, is_load_balancer=False), {"load_balancer": LB}, [PatchService, DeleteLoadBalancer, DELETING]),
        # kube-vip goes on answering for it.
        (replace(TOLD, is_load_balancer=False, ingress=(), vip_keys=("kube-vip.io/vipHost",)), {"load_balancer": LB}, []),
        (replace(TOLD, is_load_balancer=False, vip_keys=("kube-vip.io/vipHost",), **ENDS), {"load_balancer": LB}, [DeleteLoadBalancer, DELETING]),
        (replace(TOLD, is_load_balancer=False), {}, [ClearStatus, RemoveFinalizer, DELETED]),
        (replace(TOLD, is_load_balancer=False, finalizers=()), {}, []),
        (replace(TOLD, load_balancer_class="acme"), {}, []),
        (replace(TOLD, load_balancer_class="acme"), {"load_balancer": LB}, [PatchService, DeleteLoadBalancer, DELETING]),
        (replace(TOLD, load_balancer_class="acme", **ENDS), {}, [RemoveFinalizer, DELETED]),
        (TOLD, {"load_balancer": LB, "is_gone": True}, [DeleteLoadBalancer, DELETING]),
        (TOLD, {"is_gone": True}, []),
    ],
)  # fmt: skip
def test_a_plan_holds_what_can_be_done_now(service, state, actions):
    assert kinds(plan(service, **state)) == actions


AWAITING = replace(WEB, addresses="", awaits_address=True)
PASSED_OVER = {names.VIP_IGNORE: "true", names.AWAITS_ADDRESS: "true"}
ANNOUNCEABLE = {names.VIP_IGNORE: None, names.AWAITS_ADDRESS: None}


@pytest.mark.parametrize(
    ("service", "state", "annotations"),
    [
        (BARE, {}, {names.VIP_ADDRESSES: "", **PASSED_OVER}),
        (replace(BARE, awaits_address=True), {}, {names.VIP_ADDRESSES: "", **PASSED_OVER}),
        # kube-vip may have an address of it on a node, and has to look at the change.
        (replace(BARE, vip_keys=("kube-vip.io/vipHost",)), {}, {names.VIP_ADDRESSES: ""}),
        (AWAITING, {"load_balancer": LB}, {names.VIP_ADDRESSES: "10.1.0.10", **ANNOUNCEABLE}),
        (replace(AWAITING, primary="front"), {"sharing": SharedAddress(FRONT)}, {names.VIP_ADDRESSES: "10.1.0.10", **ANNOUNCEABLE}),
        (replace(AWAITING, addresses="10.1.0.10"), {"load_balancer": LB}, ANNOUNCEABLE),  # the Go program gave it one
        (replace(AWAITING, is_load_balancer=False, finalizers=()), {"load_balancer": LB}, {names.VIP_ADDRESSES: None, **ANNOUNCEABLE}),
        (replace(AWAITING, is_load_balancer=False, finalizers=()), {}, {names.VIP_ADDRESSES: None, **ANNOUNCEABLE}),
        (replace(AWAITING, load_balancer_class="kube-vip.io/kube-vip-class", finalizers=()), {}, {names.VIP_ADDRESSES: None, **ANNOUNCEABLE}),
        (replace(AWAITING, is_load_balancer=False), {}, {names.VIP_ADDRESSES: None, **ANNOUNCEABLE}),
    ],
)  # fmt: skip
def test_kube_vip_passes_a_service_over_until_its_address_is_there(service, state, annotations):
    patch = next(
        one for one in plan(service, **state).actions if isinstance(one, PatchService | RemoveFinalizer)
    )

    assert patch.annotations == annotations


def test_what_kube_vip_is_to_look_at_is_written_with_what_else_is_to_be_written():
    (patch,) = plan(replace(AWAITING, addresses="10.1.0.10", finalizers=("other",)), load_balancer=LB).actions

    assert patch.add_finalizer
    assert patch.annotations == ANNOUNCEABLE


def test_nothing_is_written_twice_while_a_service_awaits_its_address():
    assert plan(AWAITING, load_balancer=replace(LB, allocated=(), address="")).actions == ()


@pytest.mark.parametrize(
    ("service", "state", "words"),
    [
        (replace(TOLD, ipam="dhcp"), {"load_balancer": LB}, "cannot be changed from pool to dhcp"),
        (replace(TOLD, network="a/b"), {"load_balancer": LB}, "is not same as the load balancer's (none)"),
        (replace(TOLD, ipam="both"), {"load_balancer": LB}, "'both'"),
        (replace(WEB, network="n" * 318), {}, "annotation cloudprovider.harvesterhci.io/network has 318 characters"),
        (replace(WEB, pool="p" * 400), {}, "annotation windrow.io/ip-pool has 400 characters"),
        (TOLD, {"load_balancer": replace(LB, owner=Owner("x", "default", "web"))}, "neither used nor deleted"),
        (TOLD, {"load_balancer": replace(LB, owner=Owner())}, "is of no service"),
        (TOLD, {"sharing": CannotShare("no"), "load_balancer": LB}, "no"),
        (SECOND, {"sharing": SharedAddress(FRONT), "users": (FRONT,)}, "share its own"),
        (replace(WEB, network="a/b"), {"interfaces": Interfaces({"a/c": "enp1s0"})}, "not found in NAD mapping"),
        (replace(WEB, network="a/b"), {"interfaces": Interfaces()}, "is empty"),
        (WEB, {"host": Unavailable("down")}, "failed to ensure load balancer: down"),
        (replace(TOLD, **ENDS), {"host": Unavailable("down")}, "failed to delete load balancer: down"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_a_problem_and_nothing_is_touched(service, state, words):
    found = plan(service, **state)

    assert words in found.problem
    assert found.actions == ()


NO_LONGER = replace(LB, allocated=(), refusal="the pool is full")
ITS_OWN = replace(
    LB, allocated=(), refusal=f"10.1.0.10 has been allocated to {NAME}, duplicate allocation is not allowed"
)


def refused_for(seconds):
    """It has been looked at whether a refusal lasts."""
    return WaitState(REFUSAL_RECHECK, NOON - timedelta(seconds=seconds))


@pytest.mark.parametrize(
    ("service", "state", "actions"),
    [
        (replace(TOLD, ipam="both"), {}, [ConfirmDeleted, ClearStatus, PatchService]),
        (replace(TOLD, ipam="both", ingress=()), {}, [ConfirmDeleted, PatchService]),
        # Without the annotation kube-vip takes the status for the request.
        (replace(TOLD, ipam="both", addresses=None), {}, [ConfirmDeleted, ClearStatus, PatchService]),
        (replace(TOLD, ipam="both", addresses=""), {}, []),
        (TOLD, {"sharing": CannotShare("no")}, [ConfirmDeleted, ClearStatus, PatchService]),
        (TOLD, {"load_balancer": NO_LONGER, "wait": refused_for(2)}, [ClearStatus, PatchService]),
        (replace(TOLD, ipam="both"), {"load_balancer": NO_LONGER}, [ClearStatus, PatchService]),
        # Harvester mends it by itself.
        (TOLD, {"load_balancer": NO_LONGER}, []),
        (TOLD, {"load_balancer": NO_LONGER, "wait": refused_for(1)}, []),
        (TOLD, {"load_balancer": ITS_OWN, "wait": refused_for(60)}, []),
        (replace(TOLD, ipam="both"), {"load_balancer": ITS_OWN}, []),
        # A new one is on its way, or its state is not known, or it was never ours.
        (TOLD, {}, [CreateLoadBalancer, ENSURING]),
        (TOLD, {"load_balancer": replace(LB, allocated=())}, []),
        (replace(TOLD, ipam="both"), {"host": Unavailable("down")}, []),
        (replace(TOLD, ipam="both", finalizers=()), {}, []),
        (replace(TOLD, primary_label="default.front"), {"sharing": CannotShare("no")}, []),
    ],
)
def test_an_address_that_is_not_reserved_any_more_is_withdrawn(service, state, actions):
    assert kinds(plan(service, **state)) == actions


def test_a_refusal_of_an_address_that_it_had_is_told_when_it_lasts():
    first = plan(TOLD, load_balancer=ITS_OWN)
    later = plan(TOLD, load_balancer=ITS_OWN, wait=refused_for(2))

    assert (first.problem, first.until) == ("", NOON + timedelta(seconds=2))
    assert "duplicate allocation" in later.problem
    assert later.waits_for == first.waits_for  # the clock does not start anew
    assert plan(WEB, load_balancer=NO_LONGER).problem  # one that had none is told at once


@pytest.mark.parametrize(
    ("load_balancer", "actions"),
    [
        (LB, [PatchService]),
        (replace(LB, is_deleting=True, finalizers=(HARVESTER_FINALIZER,)), []),
        (replace(LB, owner=Owner("demo", "default", "other")), []),
        (NO_LONGER, []),
    ],
)
def test_an_address_that_was_taken_away_is_given_back_whatever_is_wrong_with_the_service(
    load_balancer, actions
):
    assert kinds(plan(replace(WEB, ipam="both"), load_balancer=load_balancer)) == actions


SHARER = replace(SECOND, ports=(("TCP", 81),))  # a port that FRONT has
MOVED = replace(FRONT, addresses="10.1.0.20", ingress=("10.1.0.20",))
HOMELESS = replace(FRONT, addresses=None, ingress=())
FULL_UP = replace(
    LB, allocated=(), address="", refusal="no IP addresses available in range set: 10.1.0.1-10.1.0.1"
)


@pytest.mark.parametrize(
    ("service", "state", "actions", "address"),
    [
        # It follows, whatever it wishes.
        (SHARER, {"sharing": SharedAddress(MOVED), "holder": MOVED}, [PatchService], "10.1.0.20"),
        (replace(SHARER, addresses=None, ingress=()), {"sharing": SharedAddress(MOVED), "holder": MOVED}, [PatchService], "10.1.0.20"),
        (replace(SECOND, primary="no"), {"sharing": CannotShare("no"), "holder": MOVED}, [PatchService], "10.1.0.20"),
        (replace(SECOND, primary=""), {"load_balancer": FULL_UP, "holder": MOVED}, [PatchService], "10.1.0.20"),
        (SHARER, {"sharing": SharedAddress(FRONT), "holder": FRONT}, [], None),
        (SHARER, {"sharing": SharedAddress(HOMELESS), "holder": HOMELESS}, [], None),
        (SHARER, {"sharing": SharedAddress(HOMELESS), "holder": HOMELESS, "is_reserved": False}, [ClearStatus, PatchService], ""),
        (SECOND, {"sharing": SharedAddress(HOMELESS), "holder": HOMELESS, "is_reserved": False}, [ClearStatus, PatchService], ""),
        # Who has only written the label gets nothing by it.
        (replace(SECOND, primary="no", addresses="", ingress=()), {"sharing": CannotShare("no"), "holder": MOVED}, [], None),
        # It is the one who keeps the address that it waits for.
        (replace(SECOND, primary=""), {"load_balancer": FULL_UP, "holder": replace(FRONT, **ENDS)}, [ClearStatus, PatchService], ""),
        (replace(SECOND, primary=""), {"load_balancer": FULL_UP, "holder": FRONT}, [], None),
        # Harvester gave another one while it cannot be told why.
        (replace(TOLD, ipam="both"), {"load_balancer": replace(LB, allocated=("10.1.0.30",))}, [PatchService], "10.1.0.30"),
        (replace(TOLD, ipam="both"), {"load_balancer": replace(LB, pool="other")}, [ClearStatus, PatchService], ""),
        (replace(TOLD, ipam="both"), {"load_balancer": replace(LB, owner=Owner(), allocated=("10.1.0.30",))}, [], None),
    ],
)  # fmt: skip
def test_what_is_shown_is_what_is_reserved(service, state, actions, address):
    found = plan(service, **state)

    assert kinds(found) == actions
    if actions:
        assert found.actions[-1].annotations == {names.VIP_ADDRESSES: address}


@pytest.mark.parametrize("service", [replace(TOLD, ipam="both"), replace(SECOND, primary_label=None)])
def test_what_is_refused_stays_protected_while_it_has_a_load_balancer(service):
    bare = replace(service, finalizers=("other",))
    state = {"sharing": CannotShare("no")} if service.primary else {}

    assert plan(bare, load_balancer=LB, **state).actions[0].add_finalizer
    assert plan(bare, load_balancer=replace(LB, owner=Owner()), **state).actions == ()
    assert plan(bare, **state).actions == ()


def test_an_address_of_another_service_is_not_recorded_as_in_use():
    service = replace(TOLD, ipam="dhcp", addresses="0.0.0.0", ingress=("192.168.0.9",))
    load_balancer = replace(LB, ipam="dhcp", allocated=("0.0.0.0",), address="")

    assert [one.address for one in plan(service, load_balancer=load_balancer).actions] == ["192.168.0.9"]
    shares = plan(replace(service, primary_label="default.front"), load_balancer=load_balancer).actions
    assert not [one for one in shares if isinstance(one, UpdateLoadBalancer)]


def test_with_an_election_per_service_a_secondary_names_the_lease_of_its_primary():
    elects = replace(POLICY, has_elections=True)

    def patches(service, settings=elects, **state):
        found = plan_service(ServiceState(service, NOON, settings, **state)).actions
        return {
            key: value
            for one in found
            if isinstance(one, PatchService)
            for key, value in one.annotations.items()
        }

    lease = "default/kubevip-front"
    shared, own = {"sharing": SharedAddress(FRONT)}, {"sharing": OwnAddress(), "load_balancer": LB}
    assert patches(SECOND, **shared) == {names.VIP_LEASE: lease}
    assert patches(replace(SECOND, lease=lease), **shared) == {}
    assert patches(SECOND, POLICY, **shared) == {}
    assert patches(replace(SECOND, primary="", lease=lease), **own) == {names.VIP_LEASE: None}


def test_with_an_election_per_service_local_traffic_and_a_shared_address_exclude_each_other():
    elects = replace(POLICY, has_elections=True)
    wants = replace(SECOND, primary_label=None, addresses="", ingress=(), has_local_policy=True)
    state = ServiceState(wants, NOON, elects, sharing=SharedAddress(FRONT))

    assert "externalTrafficPolicy Local" in plan_service(state).problem
    assert not plan_service(replace(state, settings=POLICY)).problem


@pytest.mark.parametrize(
    ("service", "is_told"),
    [
        (replace(WEB, vip_keys=("kube-vip.io/vipHost",)), True),  # withdrawn before
        (replace(TOLD, addresses="10.1.0.9", vip_keys=("kube-vip.io/vipHost",)), True),
        (WEB, False),
        (replace(WEB, vip_keys=("kube-vip.io/vipHost",), ignores_vip=True), False),
    ],
)
def test_another_address_than_the_announced_one_is_told_with_the_cure(service, is_told):
    told = [one.message for one in plan(service, load_balancer=LB).actions if isinstance(one, EmitEvent)]

    assert any("kubectl -n kube-system rollout restart daemonset kube-vip" in one for one in told) == is_told


def test_who_has_an_address_waits_for_no_leftover():
    orphan = replace(LB, name="demo-default-web-00000000", allocated=("10.1.0.11",))
    wait = WaitState("orphans", NOON - timedelta(seconds=60))

    assert plan(WEB, orphans=(orphan,)).waits_for == "orphans"
    assert kinds(plan(WEB, orphans=(orphan,), wait=wait)) == [CreateLoadBalancer, ENSURING]
    assert kinds(plan(WEB, load_balancer=replace(LB, address=""), orphans=(orphan,))) == [
        PatchService,
        ENSURED,
        DeleteLoadBalancer,
    ]
    assert plan(TOLD, load_balancer=LB, orphans=(replace(orphan, is_deleting=True),)) == NO_ACTION


def test_nothing_is_said_while_harvester_is_only_being_listed():
    assert plan(WEB, host=Unavailable()).problem == ""


def test_a_settled_service_has_nothing_to_wait_for():
    assert plan(TOLD, load_balancer=LB) == NO_ACTION
    assert plan(SECOND, sharing=SharedAddress(FRONT)) == NO_ACTION


@pytest.mark.parametrize(
    ("what", "service", "state", "words"),
    [
        ("allocation", WEB, {"load_balancer": replace(LB, allocated=())}, "is the load balancer controller"),
        ("announcement", replace(TOLD, ingress=()), {"load_balancer": LB}, "kube-vip does not announce"),
        (
            "announcement",
            replace(TOLD, ipam="dhcp", addresses="0.0.0.0", ingress=()),
            {"load_balancer": replace(LB, ipam="dhcp", allocated=("0.0.0.0",))},
            "macvlan",
        ),
        ("primary", replace(SECOND, primary_label=None), {"sharing": SharedAddress(replace(FRONT, ingress=()))}, "no ingress IP"),
        ("removal", replace(TOLD, **ENDS), {"load_balancer": replace(LB, is_deleting=True)}, "still there"),
        ("users", replace(TOLD, **ENDS), {"users": (SECOND,)}, "still used by other services [default/web]"),
        ("a primary", SECOND, {"sharing": CannotShare("it goes", is_transient=True)}, "it goes"),
    ],
)  # fmt: skip
def test_what_takes_long_is_complained_about_after_a_minute(what, service, state, words):
    first = plan(service, **state)
    late = plan(service, wait=WaitState(what, NOON - timedelta(seconds=60)), **state)
    other = plan(service, wait=WaitState("another thing", NOON - timedelta(seconds=60)), **state)

    patience = 3 if what in ("users", "a primary") else 60
    assert (first.waits_for, first.problem, first.until) == (what, "", NOON + timedelta(seconds=patience))
    assert words in late.problem
    assert other == first


@pytest.mark.parametrize(
    ("nodes", "words"),
    [
        ((), "the nodes' kernel lacks the module macvlan, as minimal"),
        (("one",), "the kernel of Node one has no module macvlan (label windrow.io/macvlan=missing)"),
        (("a", "b", "c"), "the kernel of Node a, b, c has no"),
        (("a", "b", "c", "d", "e"), "the kernel of Node a, b, c and 2 more has no"),
    ],
)
def test_the_nodes_that_are_known_to_lack_macvlan_are_named_first(nodes, words):
    service = replace(TOLD, ipam="dhcp", addresses="0.0.0.0", ingress=(), network="default/vlan")
    late = plan(
        service,
        load_balancer=replace(LB, ipam="dhcp", allocated=("0.0.0.0",), annotations={}),
        without_macvlan=nodes,
        wait=WaitState("announcement", NOON - timedelta(seconds=60)),
    )

    assert words in late.problem
    assert "no DHCP server answers on the network default/vlan" in late.problem
    assert late.problem.index("macvlan") < late.problem.index("DHCP server") or not nodes


def test_the_address_is_told_with_the_interface_and_without_an_old_share():
    service = replace(WEB, network="a/b", primary_label="default.old")
    load_balancer = replace(LB, annotations={**LB.annotations, names.FIXED_NETWORK: "a/b"})
    mark = plan(service, load_balancer=load_balancer, interfaces=Interfaces({"a/b": "enp2s0"})).actions[0]

    assert mark.annotations == {names.VIP_ADDRESSES: "10.1.0.10", names.VIP_INTERFACE: "enp2s0"}
    assert mark.labels == {names.PRIMARY_SERVICE: None}


def test_a_secondary_is_written_in_one_patch():
    service = replace(
        SECOND, finalizers=(), primary_label=None, addresses=None, interface="enp1s0", has_ipam=True
    )
    mark = plan(
        service, sharing=SharedAddress(replace(FRONT, network="a/b", ingress=("10.1.0.10", "fd00::1")))
    ).actions[1]

    assert mark.add_finalizer
    assert mark.annotations == {
        names.VIP_ADDRESSES: "10.1.0.10,fd00::1",
        names.NETWORK: "a/b",
        names.VIP_INTERFACE: None,
        names.IPAM: None,
    }
    assert mark.labels == {names.PRIMARY_SERVICE: "default.front"}


def test_a_secondary_that_shares_already_follows_its_primary_to_another_network():
    service = replace(SECOND, network="a/old")
    found = plan(service, sharing=SharedAddress(replace(FRONT, network="a/new")), primary_network="a/new")

    assert found.actions[0].annotations == {names.NETWORK: "a/new"}


def test_what_is_no_load_balancer_any_more_keeps_no_trace_but_of_another_class_those_of_kube_vip():
    service = replace(TOLD, interface="enp1s0", vip_keys=("kube-vip.io/vipHost",), primary_label="default.x")
    gone = plan(replace(service, is_load_balancer=False, vip_keys=()), load_balancer=LB).actions[0]
    handed_over = plan(replace(service, load_balancer_class="acme"), load_balancer=LB).actions[0]

    ours = {names.VIP_ADDRESSES: None, names.VIP_INTERFACE: None}
    assert gone.annotations == ours
    assert handed_over.annotations == ours
    assert gone.labels == handed_over.labels == {names.PRIMARY_SERVICE: None}


def test_the_finalizer_goes_only_when_harvester_says_that_the_load_balancer_is_gone():
    own, shared = (plan(replace(one, **ENDS)).actions[0] for one in (TOLD, SECOND))

    assert own.load_balancer == NAME
    assert shared.load_balancer == POLICY.name_for(SECOND)


def test_the_mode_that_a_secondary_loses_is_told_at_the_same_time():
    mark, tell = plan(replace(SECOND, ipam="dhcp", has_ipam=True), sharing=SharedAddress(FRONT)).actions

    assert mark.annotations == {names.IPAM: None}
    assert (tell.type, tell.reason) == ("Normal", "IgnoredAnnotations")
    assert names.IPAM in tell.message
    assert "'dhcp'" in tell.message
    assert "default/front" in tell.message


REFUSED = replace(LB, allocated=(), allocated_pool="", address="")
NO_POOL = "fail to get allocator nowhere"
FULL = "fail to get ip from pool small, error: no IP addresses available in range set: 10.1.0.1-10.1.0.1"


@pytest.mark.parametrize(
    ("asked", "refusal", "is_told"),
    [
        ("other", NO_POOL, False),
        ("nowhere", NO_POOL, True),
        ("other", FULL, False),
        ("small", FULL, True),
        ("other", "no matched IPPool with requirement &{}", False),
        ("other", "something new", True),
        ("", NO_POOL, True),
        ("", FULL, True),
        ("", "no matched IPPool with requirement &{}", True),
    ],
)
def test_a_refusal_of_another_pool_than_the_one_asked_for_is_old_news(asked, refusal, is_told):
    service = replace(WEB, pool=asked)
    found = plan(service, load_balancer=replace(REFUSED, pool=asked, refusal=refusal))

    assert bool(found.problem) == is_told
    assert found.actions == ()


@pytest.mark.parametrize(
    ("before", "wanted", "refusal", "amended"),
    [
        ("nowhere", "other", NO_POOL, "other"),
        ("nowhere", "", NO_POOL, ""),
        ("small", "", FULL, ""),
        # An administrator chose it on Harvester, and it is not refused.
        ("special", "", "no matched IPPool with requirement &{}", None),
        ("special", "", "", None),
        ("", "other", FULL, "other"),
    ],
)
def test_another_pool_is_asked_for_while_there_is_no_address(before, wanted, refusal, amended):
    load_balancer = replace(REFUSED, pool=before, refusal=refusal)
    found = plan(replace(WEB, pool=wanted), load_balancer=load_balancer)
    pools = [one.pool for one in found.actions if isinstance(one, UpdateLoadBalancer)]

    assert pools == ([] if amended is None else [amended])
    assert not (pools and found.problem)


def test_a_service_with_an_address_keeps_it_when_it_names_no_pool_any_more():
    assert plan(TOLD, load_balancer=replace(LB, pool="pool", refusal=NO_POOL)) == NO_ACTION


def test_the_same_answer_counts_again_when_it_stands_for_a_minute():
    asked = plan(WEB, load_balancer=replace(REFUSED, pool="nowhere", refusal=NO_POOL))
    load_balancer = replace(REFUSED, pool="", refusal=NO_POOL)
    soon = plan(
        WEB, load_balancer=load_balancer, wait=WaitState(asked.waits_for, NOON - timedelta(seconds=59))
    )
    late = plan(
        WEB, load_balancer=load_balancer, wait=WaitState(asked.waits_for, NOON - timedelta(seconds=60))
    )
    other = plan(
        WEB, load_balancer=replace(load_balancer, refusal=FULL), wait=WaitState(asked.waits_for, NOON)
    )

    assert (asked.problem, soon.problem) == ("", "")
    assert NO_POOL in late.problem
    assert FULL in other.problem


@pytest.mark.parametrize("service", [replace(TOLD, ipam="dhcp", addresses="0.0.0.0")])
def test_a_pool_means_nothing_in_mode_dhcp_and_that_is_told_when_it_is_new(service):
    load_balancer = replace(LB, ipam="dhcp", allocated=("0.0.0.0",))
    state = {"load_balancer": load_balancer, "has_new_request": True}
    told = plan(replace(service, pool="special"), **state).actions

    assert [one.reason for one in told] == ["AddressNotAsRequested"]
    assert "special" in told[0].message
    assert "dhcp" in told[0].message
    assert plan(service, **state).actions == ()
    assert plan(replace(service, pool="special"), load_balancer=load_balancer).actions == ()


def test_what_a_user_can_do_about_a_full_pool_comes_before_what_harvester_says():
    problem = plan(WEB, load_balancer=replace(REFUSED, refusal=FULL)).problem

    assert problem.index("widen its range") < 120
    assert problem.endswith(f"(ip is not allocated, mode: pool, message: {FULL})")
    assert len(problem) - len(FULL) < 320


def test_a_network_that_the_service_never_had_is_to_be_removed_again():
    problem = plan(replace(TOLD, network="a/b"), load_balancer=LB).problem

    assert f"remove the annotation {names.NETWORK}" in problem
    assert "''" not in problem


@pytest.mark.parametrize(
    ("network", "known", "words"),
    [
        ("vlan", ("a/vlan", "b/other"), "its namespace is missing; write a/vlan into"),
        ("vlan", ("a/vlan", "b/vlan"), "its namespace is missing; write a/vlan or b/vlan into"),
        ("vlan", ("a/vlan2",), "not every VM of the cluster has it"),
        ("c/vlan", ("a/vlan",), "not every VM of the cluster has it"),
    ],
)
def test_a_network_without_its_namespace_is_told_which_one(network, known, words):
    interfaces = Interfaces(dict.fromkeys(known, "enp1s0"))
    problem = plan(replace(WEB, network=network), interfaces=interfaces).problem

    assert f"network {network} not found in NAD mapping for service default/web" in problem
    assert words in problem


def test_what_harvester_knows_better_is_not_compared():
    said = {**LB.annotations, names.LB_NETWORK: "x/y", names.LB_PROJECT: "p", names.LB_NAMESPACE: "host-ns"}

    assert plan(TOLD, load_balancer=replace(LB, annotations=said)) == NO_ACTION


@pytest.mark.parametrize(
    ("before", "network", "wanted"),
    [
        ({names.LB_CLUSTER: "demo"}, "a/b", {names.FIXED_NETWORK: "a/b"}),
        ({names.LB_CLUSTER: "demo"}, "", None),
        ({names.FIXED_NETWORK: ""}, "", {names.LB_CLUSTER: "demo"}),
        ({names.LB_CLUSTER: "demo", names.MANAGEMENT_NETWORK: "x/y"}, "", {names.MANAGEMENT_NETWORK: None}),
    ],
)
def test_a_load_balancer_of_an_older_release_is_brought_up_to_date(before, network, wanted):
    found = plan(replace(TOLD, network=network, interface="x"), load_balancer=replace(LB, annotations=before))

    assert [one.annotations for one in found.actions] == ([] if wanted is None else [wanted])


def test_every_action_says_why():
    tables = [
        plan(WEB),
        plan(replace(TOLD, pool="x"), load_balancer=LB),
        plan(replace(TOLD, is_load_balancer=False), load_balancer=LB),
    ]

    assert all(one.because for found in tables for one in found.actions if not isinstance(one, EmitEvent))


def test_what_a_service_before_it_left_behind_goes_also_from_one_that_cannot_be_served():
    orphan = replace(LB, name="demo-default-web-00000000", allocated=("10.1.0.11",))
    found = plan(replace(WEB, ipam="both"), orphans=(orphan,))
    shown = plan(
        replace(WEB, ipam="both"),
        orphans=(orphan,),
        users=(replace(FRONT, addresses="10.1.0.9, 10.1.0.11"),),  # with a space: a user has edited it
    )

    assert "'both'" in found.problem
    assert [one.balancer for one in found.actions] == [orphan]
    assert shown.actions == ()


def test_a_service_that_is_announced_and_gets_the_address_of_another_is_told_how_it_moves():
    announced = replace(SECOND, vip_keys=(names.VIP_ADDRESSES,))
    moved = SharedAddress(replace(FRONT, ingress=("10.1.0.20",)))

    found = [one.reason for one in plan(announced, sharing=moved).actions if isinstance(one, EmitEvent)]

    assert found == [ENSURED.reason, "AddressChanged"]


def test_its_own_load_balancer_stays_while_an_address_that_it_allocated_is_in_use():
    """kube-vip announces it still; the address that the load balancer shows may be another already."""
    own = replace(LB, allocated=("10.1.0.30",), address="")
    in_use = replace(SECOND, ingress=("10.1.0.30",))

    assert DeleteLoadBalancer not in kinds(plan(in_use, sharing=SharedAddress(FRONT), load_balancer=own))
    assert DeleteLoadBalancer in kinds(plan(SECOND, sharing=SharedAddress(FRONT), load_balancer=own))


@pytest.mark.parametrize(
    ("service", "plan", "name"),
    [
        (replace(WEB, is_load_balancer=False, finalizers=()), Plan(), ""),
        (replace(WEB, is_load_balancer=False), Plan(), "ready"),
        (WEB, Plan(), "ready"),
        (WEB, Plan((), "no pool", "a pool"), "refused"),
        (WEB, Plan(waits_for="a pool"), "waiting"),
        (WEB, Plan((ENSURING,)), "waiting"),
    ],
)
def test_the_state_that_metrics_count(service, plan, name):
    assert _name_state(ServiceState(service, NOON, POLICY), plan) == name


def test_an_address_that_is_reserved_for_a_service_stays_though_its_families_forbid_to_announce_it():
    """Of the Go program, which compares no families; another address than the reserved one is taken off."""
    six = replace(BARE, families=("IPv6",), ingress=("10.1.0.10",))
    balancer = replace(LB, address="10.1.0.10")

    assert kinds(plan(six, load_balancer=balancer)) == []
    assert ClearStatus in kinds(plan(replace(six, ingress=("10.1.0.11",)), load_balancer=balancer))


@pytest.mark.parametrize(
    ("refusal", "hint"),
    [
        ("no matched IPPool with requirement", "widen the scope of a pool or create one"),
        ("fail to get allocator special", "there is no IP pool of this name on Harvester"),
        ("no IP addresses available in range set", "all addresses of the IP pool are taken"),
        ("no available IP", "all addresses of the IP pool are taken"),
        ("requested IP address 10.1.0.9 is not available", "cannot be had again"),
        ("requested ip 10.1.0.9", "cannot be had again"),
        ("10.1.0.9 not in range set", "cannot be had again"),
        ("duplicate allocation is not allowed", "Harvester before 1.5 does not recover from this"),
        ("the moon is full", "ask Harvester's administrator"),
    ],
)
def test_why_harvester_allocates_no_address_has_a_hint(refusal, hint):
    refused = replace(LB, refusal=refusal)

    found = problems.explain_refusal(replace(WEB, pool="special"), refused, "special")
    assert hint in found
    assert found.endswith(f"(ip is not allocated, mode: pool, pool: special, message: {refusal})")
    assert ", pool:" not in problems.explain_refusal(WEB, refused, "")


@pytest.mark.parametrize(
    ("changes", "interfaces", "said"),
    [
        ({}, Interfaces({}), ""),  # it asks for no network
        ({"network": "default/vlan1"}, None, ""),
        ({"network": "default/vlan1", "interface": "enp7s0"}, Interfaces({}), ""),
        ({"network": "default/vlan1"}, Unavailable("it cannot be read"), "it cannot be read"),
        ({"network": "default/vlan1"}, Interfaces({}), "is empty"),
        ({"network": "default/vlan1"}, Interfaces({"default/vlan2": "enp7s0"}), "default/vlan2"),
    ],
)
def test_a_network_has_an_interface_for_kube_vip_or_the_service_says_which_have(changes, interfaces, said):
    state = ServiceState(replace(WEB, **changes), NOON, POLICY, sharing=OwnAddress(), interfaces=interfaces)

    found = problems.find_problem(state)
    assert (said in found) if said else found == ""
