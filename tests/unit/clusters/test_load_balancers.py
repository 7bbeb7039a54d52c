from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from tests.unit.clusters.builders import (
    NOON,
    WORKER,
    a_cluster,
    a_machine,
    a_pool,
    leaving,
    look,
    minutes,
    of_kind,
    planned,
)

from windrow.clusters.api.status import GuestServiceAccount, RecordedStatus
from windrow.clusters.orphans import (
    OrphanLoadBalancer,
    Orphans,
    belongs_to_same_name_cluster,
    guest_account_of,
    load_balancer_selector,
    read_orphan_load_balancer,
)
from windrow.clusters.plan.actions import (
    DeleteLoadBalancers,
    DeleteSecrets,
    DeleteServiceAccount,
    KeepLoadBalancers,
    RemoveFinalizer,
)
from windrow.clusters.plan.load_balancers import reason_to_keep
from windrow.harvester.resources import LOAD_BALANCER

ACCOUNT = GuestServiceAccount("default", "prod", "ns:cc")
PROVISIONED = RecordedStatus(
    init_server_uid="uid-s1", initialized=True, service_account=ACCOUNT, guest_uid="guest-1"
)
FOUNDED = NOON - minutes(60)
WEB = OrphanLoadBalancer(
    "default",
    "prod-default-web-0a1b2c3d",
    "uid-web",
    "10.0.0.90",
    guest_uid="guest-1",
    created=FOUNDED + minutes(9),
)
MAIL = OrphanLoadBalancer(
    "default", "prod-default-mail-0a1b2c3d", "uid-mail", "10.0.0.91", created=FOUNDED + minutes(9)
)
HELD = replace(WEB, deletion_timestamp=NOON, finalizers=("wrangler.cattle.io/harvester-lb-controller",))
END = [DeleteServiceAccount, DeleteSecrets, RemoveFinalizer]


def ended(*balancers, name="prod", recorded=PROVISIONED, machines=(), founded=FOUNDED, **left):
    cluster = replace(
        a_cluster(a_pool(), recorded=recorded, created=founded, deletion_timestamp=NOON), name=name
    )
    return planned(cluster, machines, orphans=Orphans(tuple(balancers), **left))


def kinds_of(plan):
    return [type(action) for action in plan.actions]


def a_raw(labels=None, **spec):
    labels = {"cloudprovider.harvesterhci.io/cluster": "prod"} if labels is None else labels
    return {
        "metadata": {
            "name": "prod-default-web-0a1b2c3d",
            "namespace": "default",
            "uid": "u",
            "creationTimestamp": "2026-03-01T11:00:00Z",
            "labels": labels,
        },
        "spec": {"workloadType": "cluster", **spec},
    }


def a_vm(name, labels=None, annotations=None):
    metadata = {
        "name": name,
        "namespace": "default",
        "labels": labels or {},
        "annotations": annotations or {},
    }
    return {"metadata": metadata}


# -- the plan ----------------------------------------------------------------------------------------------------


def test_load_balancers_go_by_their_uid_before_the_account_does():
    plan = ended(WEB, MAIL)

    (action,) = plan.actions
    assert isinstance(action, DeleteLoadBalancers)
    assert action.load_balancers == ((WEB.ref, "uid-web"), (MAIL.ref, "uid-mail"))
    assert "default/prod-default-web-0a1b2c3d (10.0.0.90)" in action.because
    assert plan.waits[0].then == "the ServiceAccount on Harvester and the Secrets are deleted"


def test_no_load_balancer_is_touched_while_a_machine_is_left():
    plan = ended(WEB, machines=[leaving(a_machine("w1", a_pool(roles=WORKER)))])

    assert not of_kind(plan, DeleteLoadBalancers, DeleteServiceAccount)


def test_the_account_stays_until_the_last_load_balancer_is_gone():
    plan = ended(HELD)

    assert plan.actions == ()
    assert plan.waits[0].what == (
        "LoadBalancer default/prod-default-web-0a1b2c3d (10.0.0.90) to be deleted "
        "(finalizers: wrangler.cattle.io/harvester-lb-controller)"
    )


def test_one_that_hangs_is_named_among_many():
    plan = ended(MAIL, HELD)

    assert plan.waits[0].what.startswith(f"2 LoadBalancers to be deleted, among them {HELD} (")


def test_what_hangs_for_long_is_asked_for_less_often():
    soon, later = (
        ended(HELD).waits[0].until,
        ended(replace(HELD, deletion_timestamp=NOON - minutes(5))).waits[0].until,
    )

    assert soon == NOON + timedelta(seconds=1)
    assert later == NOON + timedelta(seconds=10)


@pytest.mark.parametrize(("since_s", "again_s"), [(9, 1), (10, 10), (11, 10)])
def test_the_one_that_hangs_longest_says_when_all_are_looked_at_again(since_s, again_s):
    slow = replace(HELD, name="slow", deletion_timestamp=NOON - timedelta(seconds=since_s))

    for balancers in ((slow, HELD), (HELD, slow)):
        assert ended(*balancers).waits[0].until == NOON + timedelta(seconds=again_s)


@pytest.mark.parametrize(
    ("other", "named"),
    [
        (replace(HELD, name="a"), "a"),
        (replace(HELD, name="z"), HELD.name),
        (replace(HELD, name="z", deletion_timestamp=NOON - minutes(1)), "z"),
        (replace(HELD, name="a", deletion_timestamp=NOON + minutes(1)), HELD.name),
    ],
)
def test_of_many_the_one_is_named_that_hangs_longest_or_the_first_by_name(other, named):
    for balancers in ((HELD, other), (other, HELD)):
        assert f"among them default/{named} " in ended(*balancers).waits[0].what


def test_at_most_64_load_balancers_are_deleted_at_a_time():
    many = [replace(WEB, name=f"lb-{number}", uid=f"uid-{number}") for number in range(65)]

    (action,) = ended(*many).actions
    assert [uid for _, uid in action.load_balancers] == [f"uid-{number}" for number in range(64)]


def test_nothing_is_deleted_by_a_list_that_harvester_did_not_finish():
    assert ended(WEB, unknown="connection refused").actions == ()


@pytest.mark.parametrize(
    ("balancers", "listed"),
    [
        ((WEB,), f"no Service needs LoadBalancer {WEB} any more"),
        ((WEB, MAIL), f"no Service needs LoadBalancers {WEB}, {MAIL} any more"),
    ],
)
def test_the_reason_lists_the_load_balancers(balancers, listed):
    assert ended(*balancers).actions[0].because.endswith(listed)


@pytest.mark.parametrize(
    ("vms", "said"),
    [
        (("default/a",), "since VM default/a belongs"),
        (("default/a", "default/b"), "since VM default/a (and 1 more) belongs"),
        (("default/a", "default/b", "default/c"), "since VM default/a (and 2 more) belongs"),
    ],
)
def test_the_machines_of_a_namesake_are_counted(vms, said):
    (kept,) = of_kind(ended(WEB, same_name_vms=vms), KeepLoadBalancers)
    assert said in kept.because


def test_nothing_left_ends_the_cluster():
    assert kinds_of(ended()) == END


def test_a_harvester_that_cannot_be_asked_holds_up_the_end_and_says_why():
    plan = ended(unknown="connection refused")

    assert plan.actions == ()
    assert "connection refused" in plan.waits[0].what
    assert plan.waits[0].until == NOON + timedelta(seconds=10)


def test_load_balancers_stay_where_machines_of_a_namesake_live():
    plan = ended(WEB, same_name_vms=("default/prod-pool1-x",))

    assert kinds_of(plan) == [DeleteServiceAccount, KeepLoadBalancers, DeleteSecrets, RemoveFinalizer]
    assert "default/prod-pool1-x belongs to another cluster called prod" in str(plan.actions[1])
    assert WEB.name in plan.actions[1].because


def test_the_mark_of_another_guest_keeps_only_its_own():
    theirs = replace(WEB, guest_uid="guest-2")

    first, then = ended(theirs, MAIL), ended(theirs)

    assert [action.load_balancers for action in first.actions] == [((MAIL.ref, "uid-mail"),)]
    assert kinds_of(then) == [DeleteServiceAccount, KeepLoadBalancers, DeleteSecrets, RemoveFinalizer]


def test_a_marked_one_stays_where_the_uid_of_our_guest_is_unknown():
    unmet = replace(PROVISIONED, guest_uid="")

    first, then = ended(WEB, MAIL, recorded=unmet), ended(WEB, recorded=unmet)

    assert [action.load_balancers for action in first.actions] == [((MAIL.ref, "uid-mail"),)]
    assert kinds_of(then) == [DeleteServiceAccount, KeepLoadBalancers, DeleteSecrets, RemoveFinalizer]
    assert "the uid of this one is not recorded" in then.actions[1].because


@pytest.mark.parametrize("one", [WEB, MAIL])
@pytest.mark.parametrize(
    ("created", "founded", "goes"),
    [
        (FOUNDED - minutes(60), FOUNDED, False),
        (FOUNDED, FOUNDED, False),
        (FOUNDED + minutes(2), FOUNDED, True),
        (None, FOUNDED, False),
        (FOUNDED + minutes(2), None, False),
    ],
)
def test_only_what_is_surely_younger_than_the_cluster_is_the_cluster_s(one, created, founded, goes):
    plan = ended(replace(one, created=created), founded=founded)

    assert bool(of_kind(plan, DeleteLoadBalancers)) is goes
    assert bool(of_kind(plan, KeepLoadBalancers)) is not goes


def test_a_clock_that_is_a_little_ahead_makes_only_what_bears_our_mark_ours():
    soon = FOUNDED + minutes(1)

    plan = ended(replace(WEB, created=soon), replace(MAIL, created=soon))

    assert [action.load_balancers for action in plan.actions] == [((WEB.ref, "uid-web"),)]


def test_one_that_stays_for_its_age_is_told_with_that():
    old = replace(MAIL, created=FOUNDED - minutes(60))

    (told,) = of_kind(ended(old), KeepLoadBalancers)

    assert "default/prod-default-mail-0a1b2c3d (10.0.0.91), since it was created before" in told.because
    assert "delete loadbalancers.loadbalancer.harvesterhci.io prod-default-mail-0a1b2c3d" in told.because


@pytest.mark.parametrize("name", ["kubernetes", ""])
def test_a_name_that_nameless_clusters_have_proves_nothing(name):
    assert not of_kind(ended(WEB, name=name), DeleteLoadBalancers)
    assert of_kind(ended(WEB, name=name), KeepLoadBalancers)


def test_one_that_is_kept_and_being_deleted_by_others_is_not_waited_for():
    assert RemoveFinalizer in kinds_of(ended(HELD, same_name_vms=("default/prod-pool1-x",)))


# -- where to look, and what counts ------------------------------------------------------------------------------


def test_the_account_says_where_load_balancers_are():
    assert guest_account_of(a_cluster(a_pool(), recorded=PROVISIONED)) == ACCOUNT


@pytest.mark.parametrize("recorded", [RecordedStatus(), RecordedStatus(service_account=ACCOUNT)])
def test_a_cluster_that_never_had_a_machine_is_not_asked_about(recorded):
    assert guest_account_of(a_cluster(a_pool(), recorded=recorded)) is None


def test_a_cluster_without_its_init_server_is_asked_about_and_one_whose_name_is_no_label_is_not():
    started = a_cluster(a_pool(), recorded=RecordedStatus(initialized=True, service_account=ACCOUNT))

    assert guest_account_of(started) == ACCOUNT
    assert guest_account_of(replace(started, name="x" * 64)) is None


def test_a_load_balancer_belongs_to_the_cluster_while_nothing_else_was_listed():
    cluster = a_cluster(a_pool(), recorded=PROVISIONED, created=FOUNDED)

    assert reason_to_keep(WEB, look(cluster, orphans=None)) == ""
    assert load_balancer_selector("prod") == "cloudprovider.harvesterhci.io/cluster=prod"
    assert WEB.ref == LOAD_BALANCER.ref("prod-default-web-0a1b2c3d", "default")


def test_a_given_credential_means_the_namespace_of_the_machines():
    cluster = a_cluster(a_pool(), cloud_config_secret="fleet-default:given")

    assert guest_account_of(cluster) == GuestServiceAccount("default", "prod", "ns:cc")


def test_a_given_credential_leads_nowhere_without_a_pool_on_harvester():
    elsewhere, unknown = a_pool("elsewhere", driver="noop"), a_pool("unknown", options=None)

    def found(*pools):
        return guest_account_of(a_cluster(*pools, cloud_config_secret="fleet-default:given")) is not None

    assert not found(elsewhere, unknown)
    assert found(elsewhere, a_pool())


def test_without_cloud_provider_there_is_nothing_to_look_for():
    assert guest_account_of(a_cluster(a_pool())) is None


def test_a_guest_service_s_load_balancer_is_read():
    found = read_orphan_load_balancer(a_raw(), "prod", "default")

    assert found is not None
    assert (found.name, found.uid) == ("prod-default-web-0a1b2c3d", "u")
    assert found.created == datetime(2026, 3, 1, 11, tzinfo=UTC)


@pytest.mark.parametrize(
    "raw",
    [
        a_raw(workloadType="vm"),
        a_raw(workloadType=""),
        a_raw(labels={}),
        a_raw(labels={"cloudprovider.harvesterhci.io/cluster": "prod2"}),
        a_raw(labels={"cloudprovider.harvesterhci.io/cluster": ""}),
    ],
)
def test_any_other_load_balancer_does_not_exist_for_us(raw):
    assert read_orphan_load_balancer(raw, "prod", "default") is None


def test_a_load_balancer_without_a_status_has_no_address():
    found = read_orphan_load_balancer(a_raw(), "prod", "default")

    assert found is not None
    assert (found.address, found.guest_uid, found.finalizers) == ("", "", ())


@pytest.mark.parametrize(
    ("status", "address"),
    [
        ({"allocatedAddress": {"ip": "10.0.0.1"}, "address": "10.0.0.2"}, "10.0.0.1"),
        ({"address": "10.0.0.2"}, "10.0.0.2"),
    ],
)
def test_the_address_of_a_load_balancer_is_the_allocated_one_or_the_shown_one(status, address):
    found = read_orphan_load_balancer({**a_raw(), "status": status}, "prod", "default")

    assert found is not None
    assert found.address == address


def test_of_many_load_balancers_three_are_named():
    def because(count):
        some = [replace(WEB, name=f"web-{number}", address="") for number in range(count)]
        return of_kind(ended(*some), DeleteLoadBalancers)[0].because

    assert "default/web-0, default/web-1, default/web-2 any more" in because(3)
    assert "default/web-0, default/web-1, default/web-2 and 1 more any more" in because(4)


def test_finalizers_are_named_of_one_that_is_being_deleted_only():
    waiting = ended(replace(HELD, deletion_timestamp=None)).waits[0].what

    assert "finalizers" not in waiting
    assert ended(HELD).waits[0].what.endswith("(finalizers: wrangler.cattle.io/harvester-lb-controller)")
    assert "finalizers" not in ended(replace(HELD, finalizers=())).waits[0].what


def test_another_namespace_s_load_balancer_does_not_exist_for_us():
    assert read_orphan_load_balancer(a_raw(), "prod", "tenant-b") is None


@pytest.mark.parametrize(
    ("vm", "is_one"),
    [
        (a_vm("x", {"guestcluster.harvesterhci.io/name": "prod"}), True),
        (a_vm("prod-pool1-abc"), True),
        (a_vm("production-1"), False),
        (a_vm("prod-1", {"guestcluster.harvesterhci.io/name": "prod-1"}), False),
        (
            a_vm(
                "x", {"guestcluster.harvesterhci.io/name": "prod"}, {"windrow.io/cluster-uid": "cluster-uid"}
            ),
            False,
        ),
        (a_vm("x", {"guestcluster.harvesterhci.io/name": "prod"}, {"windrow.io/cluster-uid": "other"}), True),
    ],
)
def test_a_namesake_s_machine_is_known_by_label_or_by_name(vm, is_one):
    assert belongs_to_same_name_cluster(vm, a_cluster()) is is_one


def test_what_is_kept_is_named_with_the_command_that_deletes_it_on_harvester():
    some = [replace(WEB, name=f"web-{number}", address="", guest_uid="another") for number in range(4)]
    (kept,) = of_kind(ended(*some), KeepLoadBalancers)

    assert (
        "kubectl --kubeconfig HARVESTER.yaml -n default delete loadbalancers.loadbalancer.harvesterhci.io web-0 web-1 web-2"
    ) in kept.because
    assert "web-3" not in kept.because
