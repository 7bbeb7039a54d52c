"""What holds for every plan, whatever was seen."""

from dataclasses import replace
from datetime import timedelta

from hypothesis import given, settings
from hypothesis import strategies as st

from windrow.cloudprovider import names
from windrow.cloudprovider.services.actions import Amend, ClearStatus, LetGo, Mark, Release, Reserve, Tell
from windrow.cloudprovider.services.balancer_readings import Balancer, Owner
from windrow.cloudprovider.services.planning import plan_service
from windrow.cloudprovider.services.seeing import Pause, Policy, Seen, Unseen
from windrow.cloudprovider.services.service_readings import Interfaces, Service
from windrow.cloudprovider.services.sharing import Alone, CannotShare, Shares
from windrow.testing.clock import NOON

POLICIES = [
    Policy(name, "host-ns", network) for name in ("demo", "kubernetes", "") for network in ("", "a/b")
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
        is_balanced=st.booleans() | st.just(True),
        balancer_class=st.sampled_from(["", "", "", "acme"]),
        is_deleting=st.sampled_from([False, False, True]),
        finalizers=st.sampled_from([(), (names.FINALIZER,), ("other", names.FINALIZER), ("other",)]),
        ports=st.sampled_from([(("TCP", 80),), (("TCP", 81),), (("UDP", 80),)]),
        wanted_address=st.sampled_from(["", "10.1.0.99"]),
        ingress=SOME_IPS,
        ipam=st.sampled_from(["", "pool", "dhcp", "static"]),
        network=st.sampled_from(["", "a/b", "a/c"]),
        pool=st.sampled_from(["", "special"]),
        addresses=st.none() | SOME_IPS.map(",".join),
        interface=st.sampled_from([None, "enp1s0"]),
        primary_label=st.sampled_from([None, "", "default.front"]),
        has_ipam=st.booleans(),
        traces=st.sampled_from([(), names.VIP_TRACES]),
        ignores_vip=st.booleans(),
    )


def a_balancer(policy, service, *, name=""):
    own = policy.owner_for(service)
    return st.builds(
        Balancer,
        namespace=st.just("host-ns"),
        name=st.just(name or policy.name_for(service)),
        uid=st.just(f"lb-{name}"),
        version=st.just("1"),
        owner=st.sampled_from([own, own, own, Owner("theirs", "default", "web"), Owner()]),
        is_deleting=st.sampled_from([False, False, True]),
        ipam=st.sampled_from(["pool", "dhcp"]),
        pool=st.sampled_from(["", "special"]),
        given=SOME_IPS,
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
    stray = a_balancer(policy, service, name="demo-default-web-00000000").map(
        lambda one: replace(one, owner=policy.owner_for(service))
    )
    front = draw(a_service("front"))
    waits = ("", "allocation", "announcement", "removal", "strays", "primary")
    return policy, Seen(
        service,
        NOON,
        balancer=draw(st.none() | a_balancer(policy, service)),
        strays=tuple(draw(st.lists(stray, max_size=1))),
        sharing=draw(st.sampled_from([Alone(), Alone(), Shares(front), CannotShare("no")])),
        sharers=draw(st.sampled_from([(), (service,)])),
        users=tuple(draw(st.lists(a_service("user"), max_size=1))),
        primary_network=draw(st.sampled_from(["", "a/b"])),
        host=draw(st.sampled_from([None, None, None, Unseen(), Unseen("down")])),
        interfaces=draw(st.sampled_from([None, Interfaces({"a/b": "enp2s0"}), Interfaces(), Unseen()])),
        pause=Pause(draw(st.sampled_from(waits)), NOON - timedelta(seconds=draw(st.sampled_from([1, 90])))),
        is_over=draw(st.sampled_from([False, False, False, True])),
    )


@settings(max_examples=1500)
@given(worlds())
def test_no_plan_does_harm(world):
    policy, seen = world
    plan = plan_service(seen, policy)
    service, done = seen.service, {type(one) for one in plan.actions}
    on_host = done & {Reserve, Amend, Release}

    assert not (on_host or LetGo in done) or seen.host is None, "Harvester is not written to on hearsay"
    assert not {Reserve, Release} <= done, "nothing is made and deleted at once"
    assert not {Reserve, LetGo} <= done
    going = [one.balancer for one in plan.actions if isinstance(one, Release)]
    assert len(going) == len(set(map(id, going))), "nothing is deleted twice"
    for one in plan.actions:
        match one:
            case Release(balancer=balancer):
                assert balancer.owner == policy.owner_for(service), "somebody else's"
                assert not balancer.is_deleting
            case Amend(balancer=balancer):
                assert balancer.owner == policy.owner_for(service), "somebody else's"
                assert one.annotations or one.pool or one.address
            case Reserve():
                assert seen.balancer is None
                assert service.wants_balancer
                assert policy.cluster
                assert service.is_protected or plan.actions[0] == Mark(plan.actions[0].because, protects=True)
            case LetGo():
                assert seen.balancer is None or seen.balancer.owner != policy.owner_for(service)
                assert not seen.strays
                assert not seen.users
                assert service.is_protected
            case Mark():
                assert one.annotations or one.labels or one.protects
                assert not one.protects or (service.wants_balancer and not service.is_protected)
                assert not seen.is_over
            case ClearStatus():
                assert service.ingress
                # A living balanced service loses its address only where Harvester reserves none for it.
                own = seen.balancer if seen.balancer is not None and seen.balancer.given else None
                moved = [one for one in plan.actions if isinstance(one, Amend) and one.pool]
                reserved = not (own is None or own.has_released or own.moves or moved)
                assert service.is_deleting or not service.is_balanced or service.primary_label or not reserved
            case Tell():
                pass
    if service.is_deleting and not seen.is_over:
        assert not done & {Reserve, Amend}, "what ends gets nothing new"
    if seen.users and not service.wants_balancer:
        assert not done - {Tell, Mark}, "others have this address"
