"""What holds for every plan, whatever was seen."""

from dataclasses import replace
from datetime import timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.clock import NOON

from windrow.cloudprovider import names
from windrow.cloudprovider.services.actions import (
    ClearStatus,
    CreateLoadBalancer,
    DeleteLoadBalancer,
    EmitEvent,
    PatchService,
    RemoveFinalizer,
    UpdateLoadBalancer,
)
from windrow.cloudprovider.services.planning import plan_service
from windrow.cloudprovider.services.readings import Interfaces, LoadBalancer, Owner, Service
from windrow.cloudprovider.services.sharing import CannotShare, OwnAddress, SharedAddress
from windrow.cloudprovider.services.state import ClusterSettings, ServiceState, Unavailable, WaitState

POLICIES = [
    ClusterSettings(name, "host-ns", network)
    for name in ("demo", "kubernetes", "")
    for network in ("", "a/b")
]
IPS = st.sampled_from(["10.1.0.10", "10.1.0.11", "0.0.0.0", "fd00::1"])
SOME_IPS = st.lists(IPS, max_size=2, unique=True).map(tuple)


def a_service(name="web"):
    return st.builds(
        Service,
        namespace=st.just("default"),
        name=st.just(name),
        uid=st.just(f"uid-{name}"),
        version=st.just("1"),
        is_load_balancer=st.booleans() | st.just(True),
        load_balancer_class=st.sampled_from(["", "", "", "acme"]),
        is_deleting=st.sampled_from([False, False, True]),
        finalizers=st.sampled_from([(), (names.FINALIZER,), ("other", names.FINALIZER), ("other",)]),
        ports=st.sampled_from([(("TCP", 80),), (("TCP", 81),), (("UDP", 80),)]),
        requested_address=st.sampled_from(["", "10.1.0.99"]),
        ingress=SOME_IPS,
        ipam=st.sampled_from(["", "pool", "dhcp", "static"]),
        network=st.sampled_from(["", "a/b", "a/c"]),
        pool=st.sampled_from(["", "special"]),
        second_pool=st.sampled_from(["", "six"]),
        families=st.sampled_from([(), ("IPv4",), ("IPv6",), ("IPv4", "IPv6"), ("IPv6", "IPv4")]),
        requires_both=st.booleans(),
        addresses=st.none() | SOME_IPS.map(",".join),
        interface=st.sampled_from([None, "enp1s0"]),
        primary_label=st.sampled_from([None, "", "default.front"]),
        has_ipam=st.booleans(),
        vip_keys=st.sampled_from([(), names.VIP_STATUS_KEYS]),
        ignores_vip=st.booleans(),
        awaits_address=st.booleans(),
    )


def a_balancer(policy, service, *, name=""):
    own = policy.owner_for(service)
    return st.builds(
        LoadBalancer,
        namespace=st.just("host-ns"),
        name=st.just(name or policy.name_for(service)),
        uid=st.just(f"lb-{name}"),
        version=st.just("1"),
        owner=st.sampled_from([own, own, own, Owner("theirs", "default", "web"), Owner()]),
        is_deleting=st.sampled_from([False, False, True]),
        ipam=st.sampled_from(["pool", "dhcp"]),
        pool=st.sampled_from(["", "special"]),
        allocated=SOME_IPS,
        address=st.sampled_from(["", "10.1.0.10"]),
        annotations=st.dictionaries(
            st.sampled_from([names.LB_CLUSTER, names.FIXED_NETWORK, names.MANAGEMENT_NETWORK]),
            st.sampled_from(["", "demo", "a/b"]),
        ),
        refusal=st.sampled_from(["", "no matched IPPool with requirement"]),
    )


@st.composite
def worlds(draw):
    policy, service = draw(st.sampled_from(POLICIES)), draw(a_service())
    orphan = a_balancer(policy, service, name="demo-default-web-00000000").map(
        lambda one: replace(one, owner=policy.owner_for(service))
    )
    front = draw(a_service("front"))
    waits = ("", "allocation", "announcement", "removal", "orphans", "primary")
    return policy, ServiceState(
        service,
        NOON,
        policy,
        load_balancer=draw(st.none() | a_balancer(policy, service)),
        second=draw(st.none() | a_balancer(policy, service, name=policy.second_name_for(service))),
        orphans=tuple(draw(st.lists(orphan, max_size=1))),
        sharing=draw(st.sampled_from([OwnAddress(), OwnAddress(), SharedAddress(front), CannotShare("no")])),
        sharers=draw(st.sampled_from([(), (service,)])),
        users=tuple(draw(st.lists(a_service("user"), max_size=1))),
        primary_network=draw(st.sampled_from(["", "a/b"])),
        host=draw(st.sampled_from([None, None, None, Unavailable(), Unavailable("down")])),
        interfaces=draw(st.sampled_from([None, Interfaces({"a/b": "enp2s0"}), Interfaces(), Unavailable()])),
        wait=WaitState(
            draw(st.sampled_from(waits)), NOON - timedelta(seconds=draw(st.sampled_from([1, 90])))
        ),
        is_gone=draw(st.sampled_from([False, False, False, True])),
    )


@pytest.mark.parametrize("examples", [60, pytest.param(600, marks=pytest.mark.long)])
def test_no_plan_does_harm(examples):
    settings(max_examples=examples)(given(worlds())(check_plan))()


def check_plan(world):
    policy, seen = world
    plan = plan_service(seen)
    service, done = seen.service, {type(one) for one in plan.actions}
    on_host = done & {CreateLoadBalancer, UpdateLoadBalancer, DeleteLoadBalancer}

    assert not (on_host or RemoveFinalizer in done) or seen.host is None, (
        "Harvester is not written to on hearsay"
    )
    assert not {CreateLoadBalancer, DeleteLoadBalancer} <= done, "nothing is made and deleted at once"
    assert not {CreateLoadBalancer, RemoveFinalizer} <= done
    going = [one.balancer for one in plan.actions if isinstance(one, DeleteLoadBalancer)]
    assert len(going) == len(set(map(id, going))), "nothing is deleted twice"
    for one in plan.actions:
        match one:
            case DeleteLoadBalancer(balancer=balancer):
                assert balancer.owner == policy.owner_for(service), "of another owner"
                assert not balancer.is_deleting
            case UpdateLoadBalancer(balancer=balancer):
                assert balancer.owner == policy.owner_for(service), "of another owner"
                assert one.annotations or one.pool or one.address
            case CreateLoadBalancer(is_second=is_second):
                assert (seen.second if is_second else seen.load_balancer) is None
                assert not is_second or (len(service.families) == 2 and service.second_pool)
                assert service.wants_load_balancer
                assert policy.cluster
                first = next(one for one in plan.actions if not isinstance(one, EmitEvent))
                assert service.has_finalizer or (isinstance(first, PatchService) and first.add_finalizer)
            case RemoveFinalizer():
                assert not seen.owns_load_balancer
                assert not seen.owns_second
                assert not seen.orphans
                assert not seen.users
                assert service.has_finalizer
            case PatchService():
                assert one.annotations or one.labels or one.add_finalizer
                assert not one.add_finalizer or (service.wants_load_balancer and not service.has_finalizer)
                assert not seen.is_gone
            case ClearStatus():
                assert service.ingress
                # A living balanced service loses its address only where Harvester reserves none for it.
                own = (
                    seen.load_balancer
                    if seen.load_balancer is not None and seen.load_balancer.allocated
                    else None
                )
                shown = own is not None and set(service.ingress) & set(own.allocated)
                moved = [one for one in plan.actions if isinstance(one, UpdateLoadBalancer) and one.pool]
                reserved = shown and not (
                    own is None or own.has_released_address or own.changes_pool or moved
                )
                assert (
                    service.is_deleting
                    or not service.is_load_balancer
                    or service.primary_label
                    or not reserved
                )
            case EmitEvent():
                pass
    patched = {
        key: value
        for one in plan.actions
        if isinstance(one, PatchService | RemoveFinalizer)
        for key, value in one.annotations.items()
    }
    if service.wants_load_balancer and not seen.is_gone:
        assert patched.get(names.VIP_ADDRESSES, "") is not None, (
            "kube-vip keeps an address whose annotation is removed"
        )
    if service.stalls_kube_vip and not service.is_deleting and not seen.is_gone:
        assert names.VIP_ADDRESSES in patched or seen.held_under_other_name, (
            "it would stall every other service"
        )
    if patched.get(names.VIP_IGNORE):
        assert not service.may_be_announced, "kube-vip takes nothing off that it is to ignore"
        assert not patched[names.VIP_ADDRESSES]
    if service.awaits_address and patched.get(names.VIP_ADDRESSES):
        assert patched[names.VIP_IGNORE] is patched[names.AWAITS_ADDRESS] is None, "kube-vip would ignore it"
    if service.is_deleting and not seen.is_gone:
        assert not done & {CreateLoadBalancer, UpdateLoadBalancer}, "what ends gets nothing new"
    if seen.users and not service.wants_load_balancer:
        assert not done - {EmitEvent, PatchService}, "others have this address"
