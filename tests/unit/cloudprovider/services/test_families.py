"""The families of a Service's addresses, row by row: nothing runs here."""

from dataclasses import replace
from datetime import timedelta

import pytest
from tests.support.clock import NOON
from tests.unit.cloudprovider.services.test_planning import BARE, FRONT, LB, POLICY, TOLD, WEB, kinds, plan

from windrow.cloudprovider import names
from windrow.cloudprovider.names import is_load_balancer_name
from windrow.cloudprovider.options import Options
from windrow.cloudprovider.services.actions import (
    DELETED,
    DELETING,
    ENSURED,
    ENSURING,
    ClearStatus,
    ConfirmDeleted,
    CreateLoadBalancer,
    DeleteLoadBalancer,
    EmitEvent,
    PatchService,
    RemoveFinalizer,
    UpdateLoadBalancer,
)
from windrow.cloudprovider.services.execute import render_load_balancer
from windrow.cloudprovider.services.families import SECOND
from windrow.cloudprovider.services.readings import HARVESTER_FINALIZER, Owner, read_service
from windrow.cloudprovider.services.sharing import SharedAddress
from windrow.cloudprovider.services.state import Unavailable, WaitState
from windrow.cloudprovider.sweep import plan_sweep

BOTH = ("IPv4", "IPv6")
V4, V6 = "10.1.0.10", "fd00::10"
POOLS = {"families": BOTH, "pool": "four", "second_pool": "six"}
NEW = replace(WEB, **POOLS)
SHOWN = replace(TOLD, **POOLS, addresses=f"{V4},{V6}", ingress=(V4, V6), vip_keys=("kube-vip.io/vipHost",))
ONE = replace(SHOWN, addresses=V4, ingress=(V4,))
FIRST = replace(LB, pool="four", allocated_pool="four")
NEXT = replace(
    FIRST,
    name=POLICY.second_name_for(WEB),
    uid="lb-6",
    pool="six",
    allocated_pool="six",
    allocated=(V6,),
    address=V6,
)
WANTS = replace(NEXT, allocated=(), allocated_pool="", address="")
FULL = replace(
    WANTS, refusal="fail to get ip from pool six, error: no IP addresses available in range set: x"
)
STRICT = {"requires_both": True}
WAITED = WaitState(SECOND, NOON - timedelta(seconds=90))


def addresses_of(found):
    return [
        one.annotations.get(names.VIP_ADDRESSES) for one in found.actions if isinstance(one, PatchService)
    ]


def remarks_of(found):
    return [one.message for one in found.actions if isinstance(one, EmitEvent) and one.type == "Warning"]


@pytest.mark.parametrize(
    ("service", "state", "actions", "addresses", "waits_for", "problem"),
    [
        # Both pools have an address: both are announced, at once.
        (NEW, {}, [CreateLoadBalancer], [], SECOND, ""),
        (NEW, {"second": WANTS}, [], [], SECOND, ""),
        (NEW, {"second": NEXT}, [PatchService, ENSURED], [f"{V4},{V6}"], "announcement", ""),
        (replace(NEW, families=("IPv6", "IPv4")), {"second": NEXT}, [PatchService, ENSURED], [f"{V6},{V4}"], "announcement", ""),
        (SHOWN, {"second": NEXT}, [], [], "", ""),
        (replace(SHOWN, ingress=(V4,)), {"second": NEXT}, [], [], "announcement", ""),
        (SHOWN, {"second": replace(NEXT, address="")}, [UpdateLoadBalancer], [], "", ""),
        (NEW, {"load_balancer": replace(FIRST, allocated=(V4, V6))}, [PatchService, ENSURED], [f"{V4},{V6}"], "announcement", ""),
        # One is missing. Preferred: after a refusal, or a minute, it goes on with the other. Required: it waits for both.
        (NEW, {"second": FULL}, [PatchService, ENSURED, EmitEvent], [V4], "announcement", ""),
        (NEW, {"second": WANTS, "wait": WAITED}, [PatchService, ENSURED, EmitEvent], [V4], "announcement", ""),
        (replace(NEW, **STRICT), {"second": FULL}, [], [], SECOND, "is none from pool six"),
        (replace(NEW, **STRICT), {"second": WANTS}, [], [], SECOND, ""),
        (replace(NEW, **STRICT), {"second": WANTS, "wait": WAITED}, [], [], SECOND, "pool six has not given one"),
        (replace(NEW, **STRICT), {"wait": WAITED}, [CreateLoadBalancer], [], SECOND, "pool six has not given one"),
        (replace(NEW, **STRICT), {"second": replace(NEXT, is_deleting=True), "wait": WAITED}, [], [], SECOND, "pool six has not given one"),
        (replace(NEW, **STRICT), {"second": NEXT}, [PatchService, ENSURED], [f"{V4},{V6}"], "announcement", ""),
        (replace(NEW, second_pool=""), {}, [PatchService, ENSURED, EmitEvent], [V4], "announcement", ""),
        (replace(NEW, second_pool="", **STRICT), {}, [], [], SECOND, "name a pool of each family"),
        (NEW, {"second": replace(NEXT, allocated=("10.2.0.9",))}, [PatchService, ENSURED, EmitEvent], [V4], "announcement", ""),
        (NEW, {"second": replace(NEXT, owner=Owner())}, [PatchService, ENSURED, EmitEvent], [V4], "announcement", ""),
        # What is announced stays, and does not grow: kube-vip would take it off.
        (ONE, {"second": NEXT}, [], [], "", ""),
        (replace(ONE, **STRICT), {"second": FULL}, [], [], "", "is none from pool six"),
        (replace(ONE, **STRICT), {"second": NEXT}, [], [], "", "is reserved for it, too"),
        (replace(ONE, addresses=None), {"second": NEXT}, [PatchService, ENSURED, EmitEvent], [f"{V4},{V6}"], "announcement", ""),
        (replace(ONE, vip_keys=()), {"second": NEXT}, [PatchService, ENSURED], [f"{V4},{V6}"], "announcement", ""),
        # Its LoadBalancer was deleted on Harvester: the same address comes again. Refused, it is another service's.
        (SHOWN, {}, [CreateLoadBalancer], [], "", ""),
        (SHOWN, {"second": replace(NEXT, is_deleting=True)}, [PatchService, ENSURED, EmitEvent, EmitEvent], [V4], "", ""),
        (SHOWN, {"second": replace(NEXT, is_deleting=True, finalizers=(HARVESTER_FINALIZER,))}, [], [], "", ""),
        (SHOWN, {"second": WANTS}, [], [], "", ""),
        (SHOWN, {"second": FULL}, [PatchService, ENSURED, EmitEvent, EmitEvent], [V4], "", ""),
        (SHOWN, {"second": replace(FULL, refusal="duplicate allocation is not allowed")}, [], [], "", ""),
        (replace(SHOWN, primary_label="default.front"), {}, [PatchService, ENSURED, EmitEvent, EmitEvent, CreateLoadBalancer], [V4], "", ""),
        # Another pool: the announcement ends before the address goes back.
        (replace(SHOWN, second_pool="else"), {"second": NEXT}, [PatchService, ENSURED, EmitEvent, EmitEvent, UpdateLoadBalancer], [V4], "", ""),
        # No second address is asked for any more.
        (replace(SHOWN, families=("IPv4",)), {"second": NEXT}, [PatchService, ENSURED, EmitEvent, EmitEvent], [V4], "", ""),
        (replace(ONE, families=("IPv4",)), {"second": NEXT}, [DeleteLoadBalancer], [], "", ""),
        (replace(ONE, families=("IPv4",), ingress=(V4, V6)), {"second": NEXT}, [], [], "", ""),
        (replace(ONE, second_pool=""), {"second": NEXT}, [DeleteLoadBalancer], [], "", ""),
        (replace(ONE, second_pool=""), {"second": replace(NEXT, is_deleting=True)}, [], [], "", ""),
        (replace(ONE, second_pool=""), {"second": replace(NEXT, owner=Owner())}, [], [], "", ""),
        # One family, and an address of the other.
        (replace(WEB, families=("IPv6",)), {}, [], [], SECOND, "nothing would be forwarded"),
        (replace(WEB, families=("IPv6",)), {"second": NEXT}, [DeleteLoadBalancer], [], SECOND, "nothing would be forwarded"),
        (replace(TOLD, families=("IPv6",)), {}, [], [], "", ""),  # announced by an earlier version
        (replace(WEB, families=("IPv6",)), {"load_balancer": replace(NEXT, name=FIRST.name, pool="", address="")}, [PatchService, ENSURED], [V6], "announcement", ""),
        # By DHCP there is IPv4.
        (replace(WEB, families=BOTH, ipam="dhcp"), {"load_balancer": replace(LB, ipam="dhcp", allocated=("0.0.0.0",))}, [PatchService, ENSURED, EmitEvent], ["0.0.0.0"], "announcement", ""),
        (replace(WEB, families=BOTH, ipam="dhcp", **STRICT), {"load_balancer": replace(LB, ipam="dhcp", allocated=("0.0.0.0",))}, [], [], SECOND, "by DHCP for IPv4 only"),
        (replace(WEB, families=("IPv6",), ipam="dhcp"), {"load_balancer": None}, [], [], "", "by DHCP for IPv4 only"),
        # While Harvester is away nothing is asked of it.
        (NEW, {"host": Unavailable("down")}, [], [], SECOND, ""),
        (ONE, {"second": None, "host": Unavailable("down")}, [], [], "", ""),
        (replace(ONE, families=("IPv4",)), {"second": NEXT, "host": Unavailable("down")}, [], [], "", ""),
        # Orphans first.
        (NEW, {"orphans": (replace(NEXT, name="demo-default-web-00000000", allocated=("fd00::9",)),)}, [DeleteLoadBalancer], [], SECOND, ""),
    ],
)  # fmt: skip
def test_what_is_announced_for_each_choice_of_families(
    service, state, actions, addresses, waits_for, problem
):
    found = plan(service, **{"load_balancer": FIRST, **state})
    assert [
        EmitEvent if isinstance(one, EmitEvent) and one != ENSURED else one for one in kinds(found)
    ] == actions
    assert addresses_of(found) == addresses
    assert found.waits_for == waits_for
    assert problem in found.problem
    assert bool(problem) == bool(found.problem)


@pytest.mark.parametrize(
    ("service", "state", "words"),
    [
        (NEW, {"second": FULL}, ("PreferDualStack asks for an address of IPv4 and IPv6", "pool six", "widen its range", "rollout restart")),
        (replace(NEW, second_pool=""), {}, (f"gave {V4} (IPv4)", f"{names.IP_POOL}: POOL,POOL")),
        (NEW, {"second": replace(NEXT, allocated=("10.2.0.9",))}, ("pools four and six gave", "10.2.0.9 (IPv4)")),
        (NEW, {"second": replace(NEXT, owner=Owner("demo", "default", "db"))}, ("is of service default/db",)),
        (replace(WEB, families=BOTH, ipam="dhcp"), {"load_balancer": replace(LB, ipam="dhcp", allocated=("0.0.0.0",))}, ("IPv4 only", "mode pool")),
        (replace(NEW, families=("IPv4",)), {}, ("names two pools", "pool six is not asked")),
    ],
)  # fmt: skip
def test_an_event_says_which_address_there_is_not_and_why(service, state, words):
    [message] = remarks_of(plan(service, **{"load_balancer": FIRST, **state}))
    assert all(word in message for word in words), message


@pytest.mark.parametrize(("asked", "count"), [(V6, 0), (V4, 0), ("10.1.0.99", 1)])
def test_an_address_that_was_asked_for_may_be_either_of_the_two(asked, count):
    service = replace(NEW, requested_address=asked)
    assert len(remarks_of(plan(service, load_balancer=FIRST, second=NEXT))) == count


def test_what_came_later_is_told_when_the_service_asks_anew():
    [message] = remarks_of(plan(ONE, load_balancer=FIRST, second=NEXT, has_new_request=True))
    assert f"{V6} is reserved" in message
    assert "annotate service web kube-vip.io/loadbalancerIPs- &&" in message


@pytest.mark.parametrize(
    ("pools", "fault"),
    [("a,b,c", "names 3 pools"), (",b", "no pool before its comma"), ("a, a", "the pool a twice")],
)
def test_a_list_of_pools_that_cannot_be_meant_is_refused_before_anything_is_made(pools, fault):
    service = read_service(
        {
            "metadata": {
                "name": "web",
                "namespace": "default",
                "uid": "u",
                "annotations": {names.IP_POOL: pools},
            },
            "spec": {"type": "LoadBalancer", "ipFamilies": ["IPv4", "IPv6"]},
        }
    )
    found = plan(service)
    assert fault in found.problem
    assert CreateLoadBalancer not in kinds(found)


@pytest.mark.parametrize(
    ("text", "pools"), [("", ("", "")), ("a", ("a", "")), ("a,", ("a", "")), (" a , b ", ("a", "b"))]
)
def test_pools_and_families_are_read(text, pools):
    raw = {
        "metadata": {"name": "web", "namespace": "default", "annotations": {names.IP_POOL: text}},
        "spec": {"ipFamilies": ["IPv6", "IPv4"], "ipFamilyPolicy": "RequireDualStack"},
    }
    found = read_service(raw)
    assert (found.pool, found.second_pool) == pools
    assert (found.families, found.requires_both) == (("IPv6", "IPv4"), True)
    assert found.requested == ("", *pools, "IPv6", "IPv4")
    assert not read_service({**raw, "spec": {"ipFamilyPolicy": "PreferDualStack"}}).requires_both


@pytest.mark.parametrize(
    ("service", "state", "actions"),
    [
        (replace(SHOWN, is_deleting=True), {"load_balancer": FIRST, "second": NEXT}, [PatchService, DeleteLoadBalancer, DeleteLoadBalancer, DELETING]),
        (replace(NEW, is_deleting=True), {"second": NEXT}, [DeleteLoadBalancer, DELETING]),
        (replace(NEW, is_deleting=True), {"second": replace(NEXT, is_deleting=True)}, []),
        (replace(NEW, is_deleting=True), {"load_balancer": FIRST, "second": replace(NEXT, is_deleting=True)}, [DeleteLoadBalancer, DELETING]),
        (replace(NEW, is_deleting=True), {"orphans": (replace(NEXT, name="demo-default-web-00000000"),)}, [DeleteLoadBalancer]),
        (replace(NEW, is_deleting=True), {}, [ConfirmDeleted, RemoveFinalizer, DELETED]),
        (replace(NEW, is_deleting=True), {"load_balancer": replace(FIRST, owner=Owner()), "second": replace(NEXT, owner=Owner())}, [ConfirmDeleted, RemoveFinalizer, DELETED]),
        (replace(NEW, is_deleting=True), {"load_balancer": replace(FIRST, owner=Owner()), "may_be_made_until": NOON + timedelta(seconds=9)}, []),
        (replace(WEB, is_deleting=True), {"load_balancer": replace(FIRST, owner=Owner()), "may_be_made_until": NOON + timedelta(seconds=9)}, [RemoveFinalizer, DELETED]),
        (replace(WEB, is_deleting=True), {"may_be_made_until": NOON + timedelta(seconds=9)}, []),
        (replace(NEW, is_deleting=True), {"load_balancer": replace(FIRST, owner=Owner()), "second": replace(NEXT, owner=Owner()), "may_be_made_until": NOON + timedelta(seconds=9)}, [ConfirmDeleted, RemoveFinalizer, DELETED]),
        (replace(NEW, is_deleting=True), {"load_balancer": replace(FIRST, is_deleting=True), "second": NEXT}, [DeleteLoadBalancer, DELETING]),
        (replace(WEB, is_deleting=True), {"load_balancer": None, "orphans": (replace(FIRST, name="demo-default-web-00000000"),)}, [DeleteLoadBalancer]),
        (replace(NEW, finalizers=()), {"is_gone": True, "second": NEXT}, [DeleteLoadBalancer, DELETING]),
    ],
)  # fmt: skip
def test_a_deleted_service_gives_both_back_and_its_finalizer_goes_last(service, state, actions):
    found = plan(service, **state)
    assert kinds(found) == actions
    gone = {one.balancer.name for one in found.actions if isinstance(one, DeleteLoadBalancer)}
    assert len(gone) == actions.count(DeleteLoadBalancer)


def test_both_addresses_stay_reserved_while_kube_vip_answers_for_a_service_of_another_type():
    found = plan(
        replace(SHOWN, is_load_balancer=False),
        load_balancer=FIRST,
        second=NEXT,
        wait=WaitState("kube-vip", NOON - timedelta(minutes=1)),
    )
    assert f"{V4}, {V6} stays reserved" in found.problem
    assert DeleteLoadBalancer not in kinds(found)


def test_a_service_that_shares_an_address_gives_both_of_its_own_back():
    front = replace(FRONT, ingress=("10.1.0.20", "fd00::20"))
    service = replace(
        SHOWN,
        primary="front",
        primary_label="default.front",
        addresses="10.1.0.20,fd00::20",
        ingress=front.ingress,
    )
    found = plan(service, sharing=SharedAddress(front), load_balancer=FIRST, second=NEXT)
    assert kinds(found) == [DeleteLoadBalancer, DeleteLoadBalancer]


@pytest.mark.parametrize(
    ("families", "shown", "actions", "problem"),
    [
        (("IPv6",), (V4,), [], "cannot share the address of default/front, 10.1.0.10 (IPv4)"),
        (("IPv6",), (V4, V6), [ENSURING, PatchService, ENSURED], ""),
        (("IPv4",), (V4,), [ENSURING, PatchService, ENSURED], ""),
        ((), (V4,), [ENSURING, PatchService, ENSURED], ""),
        (("IPv6",), (), [], ""),  # there is none yet
    ],
)
def test_an_address_of_another_family_is_not_shared(families, shown, actions, problem):
    service = replace(WEB, families=families, primary="front", finalizers=())
    found = plan(service, sharing=SharedAddress(replace(FRONT, ingress=shown)))
    assert kinds(found) == actions
    assert problem in found.problem
    assert bool(problem) == bool(found.problem)


def test_a_service_that_shares_an_address_of_another_family_already_keeps_it():
    service = replace(TOLD, families=("IPv6",), primary="front", primary_label="default.front")
    found = plan(service, sharing=SharedAddress(FRONT))
    assert (found.problem, addresses_of(found)) == ("", [])


OLD = {"addresses": "10.1.0.99", "ingress": ("10.1.0.99",)}


@pytest.mark.parametrize(
    ("service", "state", "problem"),
    [
        (replace(TOLD, families=("IPv6",), **OLD), {}, "nothing would be forwarded"),
        (replace(SHOWN, **OLD, **STRICT), {"second": FULL}, "is none from pool six"),
        (replace(SHOWN, **OLD), {"second": WANTS}, ""),
        (replace(TOLD, families=("IPv6",), ipam="no such", **OLD), {}, "no such"),
    ],
    ids=["other family", "both required", "second awaited", "another problem"],
)
def test_an_address_that_harvester_has_given_back_is_taken_off_also_where_the_new_one_cannot_be_announced(
    service, state, problem
):
    """It may be another service's by now: the LoadBalancer was given another one while this program was away."""
    found = plan(service, **{"load_balancer": FIRST, **state})
    assert problem in found.problem
    assert addresses_of(found) == [names.NO_ADDRESS]
    assert any(isinstance(one, ClearStatus) for one in found.actions)
    done = replace(service, addresses=names.NO_ADDRESS, ingress=())
    assert addresses_of(plan(done, **{"load_balancer": FIRST, **state})) == []


def test_while_harvester_is_away_nothing_is_taken_off():
    service = replace(TOLD, families=("IPv6",), **OLD)
    assert addresses_of(plan(service, load_balancer=FIRST, host=Unavailable("down"))) == []


def test_a_problem_of_the_service_leaves_both_announced():
    service = replace(SHOWN, ipam="static")
    assert addresses_of(plan(service, load_balancer=FIRST, second=NEXT)) == []
    assert addresses_of(plan(replace(service, addresses=V4), load_balancer=FIRST, second=NEXT)) == []


def test_a_service_of_another_family_is_told_no_address_by_way_of_another_problem():
    service = replace(BARE, families=("IPv6",), ipam="static", finalizers=(names.FINALIZER,))
    assert [one for one in addresses_of(plan(service, load_balancer=FIRST)) if one] == []


def test_the_second_load_balancer_has_a_name_of_its_own_and_is_no_orphan():
    name = POLICY.second_name_for(WEB)
    assert name != POLICY.name_for(WEB)
    assert is_load_balancer_name(name, "demo", "default", "web")
    guest = replace(WEB, name="kubernetes", uid="guest")
    marked = replace(
        NEXT, raw={"spec": {"workloadType": "cluster"}}, annotations={"windrow.io/guest-uid": "guest"}
    )
    options = Options(cluster_name="demo")
    assert plan_sweep((guest, WEB), (marked,), options) == ()
    assert [one.balancer for one in plan_sweep((guest,), (marked,), options)] == [marked]
    assert [one.because for one in plan_sweep((guest, replace(WEB, uid="uid-9")), (marked,), options)] != []


def test_the_second_one_is_created_under_its_name_from_its_pool():
    [create] = plan(NEW, load_balancer=FIRST).actions
    assert (create.name, create.is_second) == (POLICY.second_name_for(WEB), True)
    made = render_load_balancer(NEW, POLICY, is_second=True)
    assert (made["metadata"]["name"], made["spec"]["ipPool"]) == (create.name, "six")
    assert render_load_balancer(NEW, POLICY)["spec"]["ipPool"] == "four"


def test_nothing_is_written_for_another_controllers_service_that_has_nothing_of_ours():
    service = replace(BARE, is_load_balancer=False, load_balancer_class="acme")
    assert plan(service).actions == ()
    assert kinds(plan(replace(service, addresses=V4))) == [PatchService]


def test_ensuring_is_told_once_for_both():
    assert ENSURING not in plan(NEW, load_balancer=FIRST).actions
