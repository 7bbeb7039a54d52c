"""How an address is given back, as values: of a service that is deleted, of one that shared, of earlier ones of its name."""

from dataclasses import replace

import pytest
from tests.support.clock import NOON
from tests.unit.cloudprovider.services.test_planning import (
    ENDS,
    FRONT,
    LB,
    POLICY,
    SECOND,
    TOLD,
    WEB,
    kinds,
    plan,
)

from windrow.cloudprovider import names
from windrow.cloudprovider.services.actions import (
    DELETED,
    DELETING,
    ClearStatus,
    DeleteLoadBalancer,
    EmitEvent,
    PatchService,
    RemoveFinalizer,
)
from windrow.cloudprovider.services.readings import HARVESTER_FINALIZER, Owner
from windrow.cloudprovider.services.removal import deletable_orphans, plan_withdrawal, withdraw
from windrow.cloudprovider.services.state import ServiceState, Unavailable

OTHERS = (*TOLD.finalizers, "other")
ORPHAN = replace(LB, name="demo-default-web-00000000", allocated=("10.1.0.11",))
REFUSED = replace(LB, allocated=(), address="", refusal="the pool is full")
LEAVES = {"service": replace(SECOND, primary=""), "holder": replace(FRONT, **ENDS), "load_balancer": REFUSED}


def test_a_service_leaves_the_address_of_a_holder_that_waits_for_it():
    clear, patch = plan_withdrawal(ServiceState(now=NOON, settings=POLICY, **LEAVES))

    assert isinstance(clear, ClearStatus)
    assert patch.annotations == {names.VIP_ADDRESSES: ""}
    assert patch.labels == {names.PRIMARY_SERVICE: None}


@pytest.mark.parametrize("addresses", ["", None])
def test_a_service_that_shows_nothing_yet_leaves_too(addresses):
    shows_nothing = replace(SECOND, primary="", addresses=addresses, ingress=())
    (patch,) = plan_withdrawal(ServiceState(now=NOON, settings=POLICY, **LEAVES | {"service": shows_nothing}))

    assert patch.labels == {names.PRIMARY_SERVICE: None}


@pytest.mark.parametrize(
    "change",
    [
        {"holder": FRONT},
        {"service": SECOND},  # it asks for that address still
        {"load_balancer": None},
        {"load_balancer": replace(REFUSED, refusal="")},  # Harvester has not answered yet
        {"load_balancer": replace(REFUSED, allocated=("10.1.0.12",))},
        # Its holder has the address, whether or not Harvester says whose it is.
        {"holder": FRONT, "is_reserved": False},
    ],
)
def test_a_service_that_is_not_waited_for_keeps_the_address_that_it_shows(change):
    assert plan_withdrawal(ServiceState(now=NOON, settings=POLICY, **LEAVES | change)) == ()


def test_a_list_without_an_address_is_emptied():
    (patch,) = withdraw(replace(WEB, addresses=" ,"), "it has none")

    assert patch.annotations == {names.VIP_ADDRESSES: ""}
    assert withdraw(replace(WEB, addresses=None), "it has none") == ()


@pytest.mark.parametrize(
    ("service", "state", "actions"),
    [
        # Nothing can be written to a service that is gone, whatever kept it.
        (replace(TOLD, finalizers=OTHERS, **ENDS), {"load_balancer": LB, "is_gone": True}, [DeleteLoadBalancer, DELETING]),
        # Who else has a finalizer matters to one that is being deleted alone.
        (replace(TOLD, is_load_balancer=False, finalizers=OTHERS), {"load_balancer": LB}, [PatchService, DeleteLoadBalancer, DELETING]),
        # Nothing is to be cleared that is not there.
        (replace(WEB, finalizers=OTHERS, **ENDS), {"load_balancer": LB}, [DeleteLoadBalancer, DELETING]),
        (replace(WEB, is_load_balancer=False), {}, [RemoveFinalizer, DELETED]),
        (replace(SECOND, is_load_balancer=False, addresses=None, ingress=()), {"load_balancer": LB}, [PatchService, DeleteLoadBalancer, DELETING]),
        # kube-vip answers for an address that is free already, or that was never reserved.
        (replace(TOLD, is_load_balancer=False, vip_keys=("kube-vip.io/vipHost",)), {"load_balancer": REFUSED}, [PatchService, DeleteLoadBalancer, DELETING]),
        (replace(TOLD, is_load_balancer=False, vip_keys=("kube-vip.io/vipHost",)), {}, [ClearStatus, RemoveFinalizer, DELETED]),
        # The finalizer is another controller's then.
        (replace(SECOND, load_balancer_class="acme"), {}, [PatchService]),
        (replace(SECOND, load_balancer_class="acme", addresses=None), {}, [PatchService]),
    ],
)  # fmt: skip
def test_what_a_service_keeps_depends_on_who_else_keeps_it(service, state, actions):
    assert kinds(plan(service, **state)) == actions


def test_what_another_finalizer_keeps_is_rid_of_all_that_we_and_kube_vip_wrote():
    written = replace(TOLD, interface="enp1s0", vip_keys=("kube-vip.io/vipHost",))
    kept, changed = replace(written, finalizers=OTHERS, **ENDS), replace(written, is_load_balancer=False)
    theirs = {names.VIP_INTERFACE: None, "kube-vip.io/vipHost": None}

    assert plan(kept, load_balancer=LB).actions[0].annotations == {names.VIP_ADDRESSES: "", **theirs}
    assert plan(changed).actions[1].annotations == {names.VIP_ADDRESSES: None, **theirs}


def test_a_secondary_that_ends_names_the_lease_of_its_primary_no_more():
    ends = replace(SECOND, is_load_balancer=False, lease="kube-vip-default-front")
    shared, own = plan(ends).actions[1], plan(replace(ends, primary_label=None)).actions[1]

    assert shared.annotations == {names.VIP_ADDRESSES: None, names.VIP_LEASE: None}
    assert own.annotations == {names.VIP_ADDRESSES: None}  # a user has written it


def test_a_load_balancer_of_another_cluster_name_is_deleted_by_hand_on_harvester():
    other = replace(LB, name="former-default-web-1", owner=Owner("former", "default", "web"))
    ended = plan(replace(WEB, **ENDS), other_name=other).actions
    (left,) = (one for one in ended if isinstance(one, EmitEvent) and one.reason == "LoadBalancerLeft")

    assert (
        "kubectl --kubeconfig HARVESTER.yaml -n host-ns delete loadbalancers.loadbalancer.harvesterhci.io "
        "former-default-web-1"
    ) in left.message


def test_nothing_is_deleted_while_harvester_cannot_be_asked():
    found = plan(replace(WEB, ipam="both"), orphans=(ORPHAN,), host=Unavailable("down"))

    assert found.actions == ()


def test_an_orphan_that_is_being_deleted_is_one_though_its_address_is_shown():
    shows = replace(FRONT, addresses="10.1.0.11")
    going = replace(ORPHAN, is_deleting=True)
    state = ServiceState(WEB, NOON, POLICY, orphans=(ORPHAN, going), users=(shows,))

    assert deletable_orphans(state) == (going,)


def test_an_address_that_is_reserved_no_more_goes_also_where_the_one_that_is_cannot_be_announced():
    service = replace(TOLD, families=("IPv6",), addresses="fd00::9", ingress=())
    state = ServiceState(now=NOON, settings=POLICY, service=service, load_balancer=LB)

    (patch,) = plan_withdrawal(state)
    assert patch == PatchService(
        "Harvester gave it another address, which cannot be announced now",
        {names.VIP_ADDRESSES: names.NO_ADDRESS},
    )
    assert (
        plan_withdrawal(
            replace(state, load_balancer=replace(LB, is_deleting=True, finalizers=(HARVESTER_FINALIZER,)))
        )
        == ()
    )
    assert plan_withdrawal(replace(state, service=replace(service, addresses=names.NO_ADDRESS))) == ()
