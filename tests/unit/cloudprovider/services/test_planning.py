"""What is planned for a service, as a table of values: nothing runs here."""

from dataclasses import replace
from datetime import timedelta

import pytest

from windrow.cloudprovider import names
from windrow.cloudprovider.services.actions import (
    DELETED,
    DELETING,
    ENSURED,
    ENSURING,
    NOTHING,
    Amend,
    ClearStatus,
    Confirm,
    LetGo,
    Mark,
    Release,
    Reserve,
    Tell,
)
from windrow.cloudprovider.services.balancer_readings import HARVESTERS_FINALIZER, Balancer, Owner
from windrow.cloudprovider.services.own_address import HICCUPS
from windrow.cloudprovider.services.planning import plan_service
from windrow.cloudprovider.services.seeing import Pause, Policy, Seen, Unseen
from windrow.cloudprovider.services.service_readings import Interfaces, Service
from windrow.cloudprovider.services.sharing import Alone, CannotShare, Shares
from windrow.testing.clock import NOON

POLICY = Policy("demo", "host-ns")
WEB = Service(
    "default",
    "web",
    "uid-1",
    version="1",
    is_balanced=True,
    finalizers=(names.FINALIZER,),
    ports=(("TCP", 80),),
)
NAME = POLICY.name_for(WEB)
LB = Balancer(
    "host-ns",
    NAME,
    "lb-uid",
    version="1",
    owner=Owner("demo", "default", "web"),
    ipam="pool",
    given_pool="pool",
    given=("10.1.0.10",),
    address="10.1.0.10",
    annotations={names.LB_CLUSTER: "demo", names.FIXED_NETWORK: ""},
)
TOLD = replace(WEB, addresses="10.1.0.10", ingress=("10.1.0.10",))
FRONT = replace(TOLD, name="front", uid="uid-2", ports=(("TCP", 81),))
SECOND = replace(TOLD, primary="front", primary_label="default.front", ports=(("TCP", 80),))
ENDS = {"is_deleting": True}


def plan(service=TOLD, **seen):
    return plan_service(Seen(service, NOON, sharing=seen.pop("sharing", Alone()), **seen), POLICY)


def kinds(found):
    return [action if isinstance(action, Tell) else type(action) for action in found.actions]


@pytest.mark.parametrize(
    ("service", "seen", "actions"),
    [
        # An address of its own.
        (replace(WEB, finalizers=()), {}, [Mark, Reserve, ENSURING]),
        (WEB, {}, [Reserve, ENSURING]),
        (WEB, {"balancer": replace(LB, given=(), address="")}, []),
        (WEB, {"balancer": replace(LB, address="")}, [Mark, ENSURED]),
        (TOLD, {"balancer": replace(LB, address="")}, [Amend]),
        (TOLD, {"balancer": LB}, []),
        (replace(TOLD, primary_label=""), {"balancer": LB}, []),  # as the Go program leaves it
        (replace(TOLD, finalizers=("other",)), {"balancer": LB}, [Mark]),
        (replace(TOLD, ingress=("10.9.9.9",)), {"balancer": LB}, []),
        (replace(TOLD, primary_label="default.old"), {"balancer": LB}, [Mark]),
        (TOLD, {"balancer": replace(LB, given=("10.1.0.11",))}, [Mark, ENSURED]),
        (TOLD, {"balancer": replace(LB, is_deleting=True, finalizers=(HARVESTERS_FINALIZER, "other"))}, []),
        (TOLD, {"balancer": replace(LB, is_deleting=True, finalizers=("other",))}, [ClearStatus, Mark]),
        (WEB, {"host": Unseen("down")}, []),
        (WEB, {"host": Unseen()}, []),
        (TOLD, {"balancer": LB, "host": Unseen("down")}, []),
        (TOLD, {"balancer": replace(LB, address=""), "host": Unseen("down")}, []),
        (replace(TOLD, pool="other"), {"balancer": LB}, [ClearStatus, Mark, Amend]),
        (replace(TOLD, pool="other"), {"balancer": LB, "host": Unseen("down")}, []),
        (replace(TOLD, pool="pool"), {"balancer": LB}, [Amend]),  # where it is from already
        (replace(TOLD, pool="other"), {"balancer": replace(LB, pool="other")}, [ClearStatus, Mark]),
        (replace(TOLD, pool="other", ipam="dhcp"), {"balancer": replace(LB, ipam="dhcp")}, []),
        # Somebody else's address.
        (replace(SECOND, finalizers=(), primary_label=None, addresses=None), {"sharing": Shares(FRONT)}, [ENSURING, Mark, ENSURED]),
        (SECOND, {"sharing": Shares(FRONT)}, []),
        (SECOND, {"sharing": Shares(FRONT), "balancer": LB}, [Release]),
        (SECOND, {"sharing": Shares(replace(FRONT, ingress=("10.1.0.20",))), "balancer": LB}, [Mark, ENSURED]),
        (
            replace(SECOND, addresses="10.1.0.20", ingress=("10.1.0.20",)),
            {"sharing": Shares(replace(FRONT, ingress=("10.1.0.20",))), "balancer": LB},
            [Release],
        ),
        (SECOND, {"sharing": Shares(FRONT), "balancer": LB, "host": Unseen("down")}, []),
        (SECOND, {"sharing": Shares(replace(FRONT, ingress=("10.1.0.20",)))}, [Mark, ENSURED]),
        (SECOND, {"sharing": Shares(replace(FRONT, ingress=()))}, []),
        (replace(SECOND, interface="enp1s0"), {"sharing": Shares(FRONT)}, [Mark]),
        # None any more.
        (replace(TOLD, **ENDS), {"balancer": LB}, [Release, DELETING]),
        (replace(TOLD, **ENDS), {"balancer": replace(LB, is_deleting=True)}, []),
        (replace(TOLD, **ENDS), {}, [LetGo, DELETED]),
        # Somebody else's finalizer keeps it, and kube-vip with it.
        (replace(TOLD, finalizers=(*TOLD.finalizers, "other"), **ENDS), {"balancer": LB}, [Mark, ClearStatus, Release, DELETING]),
        (replace(TOLD, finalizers=(*TOLD.finalizers, "other"), **ENDS), {}, [ClearStatus, LetGo, DELETED]),
        (replace(TOLD, **ENDS), {"host": Unseen("down")}, []),
        (replace(TOLD, **ENDS), {"balancer": LB, "host": Unseen("down")}, []),
        (replace(TOLD, **ENDS), {"balancer": LB, "users": (SECOND,)}, []),
        (replace(TOLD, finalizers=(), **ENDS), {}, []),
        (replace(TOLD, finalizers=(), **ENDS), {"balancer": LB}, [Release, DELETING]),
        (replace(TOLD, is_balanced=False), {"balancer": LB}, [Mark, Release, DELETING]),
        (replace(TOLD, is_balanced=False), {}, [ClearStatus, LetGo, DELETED]),
        (replace(TOLD, is_balanced=False, finalizers=()), {}, []),
        (replace(TOLD, balancer_class="acme"), {}, []),
        (replace(TOLD, balancer_class="acme"), {"balancer": LB}, [Mark, Release, DELETING]),
        (replace(TOLD, balancer_class="acme", **ENDS), {}, [LetGo, DELETED]),
        (TOLD, {"balancer": LB, "is_over": True}, [Release, DELETING]),
        (TOLD, {"is_over": True}, []),
    ],
)  # fmt: skip
def test_a_plan_holds_what_can_be_done_now(service, seen, actions):
    assert kinds(plan(service, **seen)) == actions


@pytest.mark.parametrize(
    ("service", "seen", "words"),
    [
        (replace(TOLD, ipam="dhcp"), {"balancer": LB}, "cannot be changed from pool to dhcp"),
        (replace(TOLD, network="a/b"), {"balancer": LB}, "is not same as the load balancer's (none)"),
        (replace(TOLD, ipam="both"), {"balancer": LB}, "'both'"),
        (TOLD, {"balancer": replace(LB, owner=Owner("x", "default", "web"))}, "neither used nor deleted"),
        (TOLD, {"balancer": replace(LB, owner=Owner())}, "is of no service"),
        (TOLD, {"sharing": CannotShare("no"), "balancer": LB}, "no"),
        (SECOND, {"sharing": Shares(FRONT), "users": (FRONT,)}, "share its own"),
        (replace(WEB, network="a/b"), {"interfaces": Interfaces({"a/c": "enp1s0"})}, "not found in NAD mapping"),
        (replace(WEB, network="a/b"), {"interfaces": Interfaces()}, "is empty"),
        (WEB, {"host": Unseen("down")}, "failed to ensure load balancer: down"),
        (replace(TOLD, **ENDS), {"host": Unseen("down")}, "failed to delete load balancer: down"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_a_problem_and_nothing_is_touched(service, seen, words):
    found = plan(service, **seen)

    assert words in found.problem
    assert found.actions == ()


NO_LONGER = replace(LB, given=(), refusal="the pool is full")
ITS_OWN = replace(
    LB, given=(), refusal=f"10.1.0.10 has been allocated to {NAME}, duplicate allocation is not allowed"
)


def refused_for(seconds):
    """It has been looked at whether a refusal lasts."""
    return Pause(HICCUPS, NOON - timedelta(seconds=seconds))


@pytest.mark.parametrize(
    ("service", "seen", "actions"),
    [
        (replace(TOLD, ipam="both"), {}, [Confirm, ClearStatus, Mark]),
        (replace(TOLD, ipam="both", ingress=()), {}, [Confirm, Mark]),
        (replace(TOLD, ipam="both", addresses=None), {}, []),
        (TOLD, {"sharing": CannotShare("no")}, [Confirm, ClearStatus, Mark]),
        (TOLD, {"balancer": NO_LONGER, "pause": refused_for(2)}, [ClearStatus, Mark]),
        (replace(TOLD, ipam="both"), {"balancer": NO_LONGER}, [ClearStatus, Mark]),
        # Harvester mends it by itself.
        (TOLD, {"balancer": NO_LONGER}, []),
        (TOLD, {"balancer": NO_LONGER, "pause": refused_for(1)}, []),
        (TOLD, {"balancer": ITS_OWN, "pause": refused_for(60)}, []),
        (replace(TOLD, ipam="both"), {"balancer": ITS_OWN}, []),
        # A new one is on its way, or nobody knows, or it was never ours.
        (TOLD, {}, [Reserve, ENSURING]),
        (TOLD, {"balancer": replace(LB, given=())}, []),
        (replace(TOLD, ipam="both"), {"host": Unseen("down")}, []),
        (replace(TOLD, ipam="both", finalizers=()), {}, []),
        (replace(TOLD, primary_label="default.front"), {"sharing": CannotShare("no")}, []),
    ],
)
def test_an_address_that_is_not_reserved_any_more_is_withdrawn(service, seen, actions):
    assert kinds(plan(service, **seen)) == actions


def test_a_refusal_of_an_address_that_it_had_is_told_when_it_lasts():
    first = plan(TOLD, balancer=ITS_OWN)
    later = plan(TOLD, balancer=ITS_OWN, pause=refused_for(2))

    assert (first.problem, first.until) == ("", NOON + timedelta(seconds=2))
    assert "duplicate allocation" in later.problem
    assert later.waits_for == first.waits_for  # the clock does not start anew
    assert plan(WEB, balancer=NO_LONGER).problem  # one that had none is told at once


@pytest.mark.parametrize(
    ("balancer", "actions"),
    [
        (LB, [Mark]),
        (replace(LB, is_deleting=True, finalizers=(HARVESTERS_FINALIZER,)), []),
        (replace(LB, owner=Owner("demo", "default", "other")), []),
        (NO_LONGER, []),
    ],
)
def test_an_address_that_was_taken_away_is_given_back_whatever_is_wrong_with_the_service(balancer, actions):
    assert kinds(plan(replace(WEB, ipam="both"), balancer=balancer)) == actions


SHARER = replace(SECOND, ports=(("TCP", 81),))  # a port that FRONT has
MOVED = replace(FRONT, addresses="10.1.0.20", ingress=("10.1.0.20",))
HOMELESS = replace(FRONT, addresses=None, ingress=())
FULL_UP = replace(
    LB, given=(), address="", refusal="no IP addresses available in range set: 10.1.0.1-10.1.0.1"
)


@pytest.mark.parametrize(
    ("service", "seen", "actions", "address"),
    [
        # It follows, whatever it wishes.
        (SHARER, {"sharing": Shares(MOVED), "holder": MOVED}, [Mark], "10.1.0.20"),
        (replace(SHARER, addresses=None, ingress=()), {"sharing": Shares(MOVED), "holder": MOVED}, [Mark], "10.1.0.20"),
        (replace(SECOND, primary="no"), {"sharing": CannotShare("no"), "holder": MOVED}, [Mark], "10.1.0.20"),
        (replace(SECOND, primary=""), {"balancer": FULL_UP, "holder": MOVED}, [Mark], "10.1.0.20"),
        (SHARER, {"sharing": Shares(FRONT), "holder": FRONT}, [], None),
        (SHARER, {"sharing": Shares(HOMELESS), "holder": HOMELESS}, [], None),
        (SHARER, {"sharing": Shares(HOMELESS), "holder": HOMELESS, "is_held": False}, [ClearStatus, Mark], None),
        (SECOND, {"sharing": Shares(HOMELESS), "holder": HOMELESS, "is_held": False}, [ClearStatus, Mark], None),
        # Who has only written the label gets nothing by it.
        (replace(SECOND, primary="no", addresses=None, ingress=()), {"sharing": CannotShare("no"), "holder": MOVED}, [], None),
        # It is the one who keeps the address that it waits for.
        (replace(SECOND, primary=""), {"balancer": FULL_UP, "holder": replace(FRONT, **ENDS)}, [ClearStatus, Mark], None),
        (replace(SECOND, primary=""), {"balancer": FULL_UP, "holder": FRONT}, [], None),
        # Harvester gave another one while it cannot be told why.
        (replace(TOLD, ipam="both"), {"balancer": replace(LB, given=("10.1.0.30",))}, [Mark], "10.1.0.30"),
        (replace(TOLD, ipam="both"), {"balancer": replace(LB, pool="other")}, [ClearStatus, Mark], None),
        (replace(TOLD, ipam="both"), {"balancer": replace(LB, owner=Owner(), given=("10.1.0.30",))}, [], None),
    ],
)  # fmt: skip
def test_what_is_shown_is_what_is_reserved(service, seen, actions, address):
    found = plan(service, **seen)

    assert kinds(found) == actions
    if actions:
        assert found.actions[-1].annotations == {names.VIP_ADDRESSES: address}


@pytest.mark.parametrize("service", [replace(TOLD, ipam="both"), replace(SECOND, primary_label=None)])
def test_what_is_refused_stays_protected_while_it_has_a_load_balancer(service):
    bare = replace(service, finalizers=("other",))
    seen = {"sharing": CannotShare("no")} if service.primary else {}

    assert plan(bare, balancer=LB, **seen).actions[0].protects
    assert plan(bare, balancer=replace(LB, owner=Owner()), **seen).actions == ()
    assert plan(bare, **seen).actions == ()


def test_an_address_of_somebody_else_is_not_recorded_as_in_use():
    service = replace(TOLD, ipam="dhcp", addresses="0.0.0.0", ingress=("192.168.0.9",))
    balancer = replace(LB, ipam="dhcp", given=("0.0.0.0",), address="")

    assert [one.address for one in plan(service, balancer=balancer).actions] == ["192.168.0.9"]
    shares = plan(replace(service, primary_label="default.front"), balancer=balancer).actions
    assert not [one for one in shares if isinstance(one, Amend)]


def test_who_has_an_address_waits_for_no_leftover():
    stray = replace(LB, name="demo-default-web-00000000", given=("10.1.0.11",))
    pause = Pause("strays", NOON - timedelta(seconds=60))

    assert plan(WEB, strays=(stray,)).waits_for == "strays"
    assert kinds(plan(WEB, strays=(stray,), pause=pause)) == [Reserve, ENSURING]
    assert kinds(plan(WEB, balancer=replace(LB, address=""), strays=(stray,))) == [Mark, ENSURED, Release]
    assert plan(TOLD, balancer=LB, strays=(replace(stray, is_deleting=True),)) == NOTHING


def test_nothing_is_said_while_harvester_is_only_being_listed():
    assert plan(WEB, host=Unseen()).problem == ""


def test_a_settled_service_has_nothing_to_wait_for():
    assert plan(TOLD, balancer=LB) == NOTHING
    assert plan(SECOND, sharing=Shares(FRONT)) == NOTHING


@pytest.mark.parametrize(
    ("what", "service", "seen", "words"),
    [
        ("allocation", WEB, {"balancer": replace(LB, given=())}, "is the load balancer controller"),
        ("announcement", replace(TOLD, ingress=()), {"balancer": LB}, "kube-vip does not announce"),
        (
            "announcement",
            replace(TOLD, ipam="dhcp", addresses="0.0.0.0", ingress=()),
            {"balancer": replace(LB, ipam="dhcp", given=("0.0.0.0",))},
            "macvlan",
        ),
        ("primary", replace(SECOND, primary_label=None), {"sharing": Shares(replace(FRONT, ingress=()))}, "no ingress IP"),
        ("removal", replace(TOLD, **ENDS), {"balancer": replace(LB, is_deleting=True)}, "still there"),
        ("users", replace(TOLD, **ENDS), {"users": (SECOND,)}, "still used by other services [default/web]"),
        ("a primary", SECOND, {"sharing": CannotShare("it goes", may_pass=True)}, "it goes"),
    ],
)  # fmt: skip
def test_what_takes_long_is_complained_about_after_a_minute(what, service, seen, words):
    first = plan(service, **seen)
    late = plan(service, pause=Pause(what, NOON - timedelta(seconds=60)), **seen)
    other = plan(service, pause=Pause("another thing", NOON - timedelta(seconds=60)), **seen)

    patience = 3 if what in ("users", "a primary") else 60
    assert (first.waits_for, first.problem, first.until) == (what, "", NOON + timedelta(seconds=patience))
    assert words in late.problem
    assert other == first


def test_the_address_is_told_with_the_interface_and_without_an_old_share():
    service = replace(WEB, network="a/b", primary_label="default.old")
    balancer = replace(LB, annotations={**LB.annotations, names.FIXED_NETWORK: "a/b"})
    mark = plan(service, balancer=balancer, interfaces=Interfaces({"a/b": "enp2s0"})).actions[0]

    assert mark.annotations == {names.VIP_ADDRESSES: "10.1.0.10", names.VIP_INTERFACE: "enp2s0"}
    assert mark.labels == {names.PRIMARY_SERVICE: None}


def test_a_secondary_is_written_in_one_patch():
    service = replace(
        SECOND, finalizers=(), primary_label=None, addresses=None, interface="enp1s0", has_ipam=True
    )
    mark = plan(
        service, sharing=Shares(replace(FRONT, network="a/b", ingress=("10.1.0.10", "fd00::1")))
    ).actions[1]

    assert mark.protects
    assert mark.annotations == {
        names.VIP_ADDRESSES: "10.1.0.10,fd00::1",
        names.NETWORK: "a/b",
        names.VIP_INTERFACE: None,
        names.IPAM: None,
    }
    assert mark.labels == {names.PRIMARY_SERVICE: "default.front"}


def test_a_secondary_that_shares_already_follows_its_primary_to_another_network():
    service = replace(SECOND, network="a/old")
    found = plan(service, sharing=Shares(replace(FRONT, network="a/new")), primary_network="a/new")

    assert found.actions[0].annotations == {names.NETWORK: "a/new"}


def test_what_is_no_load_balancer_any_more_keeps_no_trace_but_of_another_class_those_of_kube_vip():
    service = replace(TOLD, interface="enp1s0", traces=("kube-vip.io/vipHost",), primary_label="default.x")
    gone = plan(replace(service, is_balanced=False), balancer=LB).actions[0]
    handed_over = plan(replace(service, balancer_class="acme"), balancer=LB).actions[0]

    ours = {names.VIP_ADDRESSES: None, names.VIP_INTERFACE: None}
    assert gone.annotations == {**ours, "kube-vip.io/vipHost": None}
    assert handed_over.annotations == ours
    assert gone.labels == handed_over.labels == {names.PRIMARY_SERVICE: None}


def test_the_finalizer_goes_only_when_harvester_says_that_the_load_balancer_is_gone():
    own, shared = (plan(replace(one, **ENDS)).actions[0] for one in (TOLD, SECOND))

    assert own.unless == NAME
    assert shared.unless == POLICY.name_for(SECOND)


def test_the_mode_that_a_secondary_loses_is_told_at_the_same_time():
    mark, tell = plan(replace(SECOND, ipam="dhcp", has_ipam=True), sharing=Shares(FRONT)).actions

    assert mark.annotations == {names.IPAM: None}
    assert (tell.type, tell.reason) == ("Normal", "IgnoredAnnotations")
    assert names.IPAM in tell.message
    assert "'dhcp'" in tell.message
    assert "default/front" in tell.message


REFUSED = replace(LB, given=(), given_pool="", address="")
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
    found = plan(service, balancer=replace(REFUSED, pool=asked, refusal=refusal))

    assert bool(found.problem) == is_told
    assert found.actions == ()


@pytest.mark.parametrize(
    ("before", "wanted", "refusal", "amended"),
    [
        ("nowhere", "other", NO_POOL, "other"),
        ("nowhere", "", NO_POOL, ""),
        ("small", "", FULL, ""),
        # Somebody chose it on Harvester, and it is not refused.
        ("special", "", "no matched IPPool with requirement &{}", None),
        ("special", "", "", None),
        ("", "other", FULL, "other"),
    ],
)
def test_another_pool_is_asked_for_while_there_is_no_address(before, wanted, refusal, amended):
    balancer = replace(REFUSED, pool=before, refusal=refusal)
    found = plan(replace(WEB, pool=wanted), balancer=balancer)
    pools = [one.pool for one in found.actions if isinstance(one, Amend)]

    assert pools == ([] if amended is None else [amended])
    assert not (pools and found.problem)


def test_a_service_with_an_address_keeps_it_when_it_names_no_pool_any_more():
    assert plan(TOLD, balancer=replace(LB, pool="pool", refusal=NO_POOL)) == NOTHING


def test_the_same_answer_counts_again_when_it_stands_for_a_minute():
    asked = plan(WEB, balancer=replace(REFUSED, pool="nowhere", refusal=NO_POOL))
    balancer = replace(REFUSED, pool="", refusal=NO_POOL)
    soon = plan(WEB, balancer=balancer, pause=Pause(asked.waits_for, NOON - timedelta(seconds=59)))
    late = plan(WEB, balancer=balancer, pause=Pause(asked.waits_for, NOON - timedelta(seconds=60)))
    other = plan(WEB, balancer=replace(balancer, refusal=FULL), pause=Pause(asked.waits_for, NOON))

    assert (asked.problem, soon.problem) == ("", "")
    assert NO_POOL in late.problem
    assert FULL in other.problem


@pytest.mark.parametrize("service", [replace(TOLD, ipam="dhcp", addresses="0.0.0.0")])
def test_a_pool_means_nothing_in_mode_dhcp_and_that_is_told_when_it_is_new(service):
    balancer = replace(LB, ipam="dhcp", given=("0.0.0.0",))
    seen = {"balancer": balancer, "has_new_wish": True}
    told = plan(replace(service, pool="special"), **seen).actions

    assert [one.reason for one in told] == ["AddressNotAsWished"]
    assert "special" in told[0].message
    assert "dhcp" in told[0].message
    assert plan(service, **seen).actions == ()
    assert plan(replace(service, pool="special"), balancer=balancer).actions == ()


def test_what_a_user_can_do_about_a_full_pool_comes_before_what_harvester_says():
    problem = plan(WEB, balancer=replace(REFUSED, refusal=FULL)).problem

    assert problem.index("widen its range") < 120
    assert problem.endswith(f"(ip is not allocated, mode: pool, message: {FULL})")
    assert len(problem) - len(FULL) < 320


def test_a_network_that_the_service_never_had_is_to_be_removed_again():
    problem = plan(replace(TOLD, network="a/b"), balancer=LB).problem

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

    assert plan(TOLD, balancer=replace(LB, annotations=said)) == NOTHING


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
    found = plan(replace(TOLD, network=network, interface="x"), balancer=replace(LB, annotations=before))

    assert [one.annotations for one in found.actions] == ([] if wanted is None else [wanted])


def test_every_action_says_why():
    tables = [
        plan(WEB),
        plan(replace(TOLD, pool="x"), balancer=LB),
        plan(replace(TOLD, is_balanced=False), balancer=LB),
    ]

    assert all(one.because for found in tables for one in found.actions if not isinstance(one, Tell))


def test_what_a_service_before_it_left_behind_goes_also_from_one_that_cannot_be_served():
    stray = replace(LB, name="demo-default-web-00000000", given=("10.1.0.11",))
    found = plan(replace(WEB, ipam="both"), strays=(stray,))
    shown = plan(
        replace(WEB, ipam="both"),
        strays=(stray,),
        users=(replace(FRONT, addresses="10.1.0.9, 10.1.0.11"),),  # with a space: somebody has edited it
    )

    assert "'both'" in found.problem
    assert [one.balancer for one in found.actions] == [stray]
    assert shown.actions == ()
