from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest
from tests.unit.clusters.builders import (
    ALL_ROLES,
    NOON,
    SERVER,
    a_cluster,
    a_machine,
    a_newborn,
    a_pool,
    leaving,
    look,
    missing,
    nodeless,
    of_kind,
    planned,
    record_of,
    sighted,
    silent,
    some,
    stopped,
    subjects,
    unordered,
)

from windrow.bootstrap.node_config import WORKER_LABEL
from windrow.bootstrap.spec import Role
from windrow.clusters.api.cluster import Cluster, Pool
from windrow.clusters.api.names import SCRUB_NOT_SUPPORTED
from windrow.clusters.api.status import GuestServiceAccount, RecordedStatus
from windrow.clusters.orphans import OrphanVm
from windrow.clusters.plan.actions import (
    AddFinalizer,
    CreateMachine,
    CreateSecrets,
    CreateServiceAccount,
    DeleteMachine,
    ElectInitServer,
    LabelNode,
    MarkInitialized,
    ProvisionVM,
    PublishKubeconfig,
    RecordGuestUID,
    RecordServiceAccount,
    ScrubBootstrapData,
    StartVM,
)
from windrow.clusters.plan.bootstrap import is_prepared
from windrow.clusters.state import GuestCredentialState, GuestState, MachineState
from windrow.kubernetes.conditions import Condition, set_condition
from windrow.machines.port import Problem

SERVERS = a_pool("servers", 3, SERVER)
WORKERS = a_pool("workers", 2)
UNASKED = GuestState()


def a_first(**rest: object) -> MachineState:
    return record_of(nodeless(a_machine("s1", SERVERS)), is_init_server=True, join_server="", **rest)


def test_a_new_cluster_is_claimed_and_given_secrets_before_any_machine_is_recorded():
    plan = planned(
        replace(a_newborn(SERVERS), has_finalizer=False), secrets=None, preflight=(), guest=UNASKED
    )

    assert [type(action) for action in plan.actions] == [AddFinalizer, CreateSecrets]


def test_nothing_at_all_is_made_while_the_preflight_finds_an_error():
    wrong = Problem("image default/image-1 is an ISO", "use a cloud image")

    plan = planned(
        replace(a_newborn(SERVERS), has_finalizer=False), secrets=None, preflight=(wrong,), guest=UNASKED
    )

    assert plan.actions == ()
    assert plan.refused == (wrong,)


def test_a_warning_of_the_preflight_stops_nothing():
    odd = Problem("agent not asked for", "add it", severity="warning")

    plan = planned(a_newborn(SERVERS), preflight=(odd,), guest=UNASKED)

    assert of_kind(plan, CreateMachine)


def test_the_account_for_the_guest_is_recorded_before_it_is_made():
    cluster = a_newborn(SERVERS, cloud_provider="harvester")

    plan = planned(cluster, guest_credential=GuestCredentialState("missing"), guest=UNASKED)

    assert [type(action) for action in plan.actions] == [RecordServiceAccount, CreateServiceAccount]
    assert (plan.actions[0].namespace, plan.actions[0].service_account) == ("default", "prod")


def test_one_first_server_is_recorded_and_nothing_else():
    plan = planned(a_newborn(SERVERS, WORKERS), guest=UNASKED)

    assert plan.actions == (
        CreateMachine("it is going to start the cluster", "servers", "servers-new0", is_init_server=True),
    )


def test_the_init_server_has_an_api_server_where_a_pool_with_etcd_has_both():
    """It alone brings the guest's credential, and the charts of K3s: one with etcd alone could not."""
    plan = planned(a_newborn(a_pool("etcd", 1, frozenset({Role.ETCD})), SERVERS))

    assert [action.pool for action in of_kind(plan, CreateMachine)] == ["servers"]


@pytest.mark.parametrize("unusable", [{"quantity": 0}, {"options": None}])
def test_the_init_server_is_of_a_pool_that_can_have_one(unusable):
    plan = planned(a_newborn(replace(a_pool("first", 1, SERVER), **unusable), SERVERS))

    assert [action.pool for action in of_kind(plan, CreateMachine)] == ["servers"]


def test_the_init_server_has_etcd_alone_where_no_pool_has_both():
    pools = a_pool("control", 1, frozenset({Role.CONTROL_PLANE})), a_pool("etcd", 3, frozenset({Role.ETCD}))

    assert [action.pool for action in of_kind(planned(a_newborn(*pools)), CreateMachine)] == ["etcd"]


def test_the_first_server_comes_from_the_pool_with_etcd_even_when_it_is_not_the_first_pool():
    plan = planned(a_newborn(WORKERS, SERVERS), guest=UNASKED)

    assert [action.pool for action in of_kind(plan, CreateMachine)] == ["servers"]


def test_a_recorded_candidate_is_elected_before_it_is_ordered():
    plan = planned(a_newborn(SERVERS), [unordered(a_first())], guest=UNASKED)

    assert plan.actions == (ElectInitServer("it starts the cluster", "s1", "uid-s1"),)


def test_of_two_candidates_one_is_elected_and_neither_is_ordered():
    two = [
        unordered(a_first()),
        unordered(record_of(a_machine("s2", SERVERS), is_init_server=True, join_server="")),
    ]

    plan = planned(a_newborn(SERVERS), two, guest=UNASKED)

    assert subjects(plan, ElectInitServer) == ["s1"]
    assert not of_kind(plan, ProvisionVM, CreateMachine)


def elected(**rest: object) -> RecordedStatus:
    return RecordedStatus(init_server_uid="uid-s1", init_server_name="s1", version="v1.35.1+rke2r1", **rest)  # type: ignore[arg-type]


def test_the_elected_machine_is_ordered():
    cluster = replace(a_newborn(SERVERS), recorded=elected())

    plan = planned(cluster, [unordered(a_first())], guest=UNASKED)

    assert plan.actions == (ProvisionVM("it was elected to start the cluster", "s1"),)


def test_a_candidate_that_lost_the_election_is_given_up_and_never_ordered():
    cluster = replace(a_newborn(SERVERS), recorded=elected())
    two = [
        unordered(a_first()),
        unordered(record_of(a_machine("s2", SERVERS), is_init_server=True, join_server="")),
    ]

    plan = planned(cluster, two, guest=UNASKED)

    assert subjects(plan, ProvisionVM) == ["s1"]
    assert subjects(plan, DeleteMachine) == ["s2"]


def test_joiners_wait_until_the_first_server_reports_its_address():
    cluster = replace(a_newborn(SERVERS, WORKERS), recorded=elected())

    plan = planned(cluster, [sighted(a_first(), addresses=(), state="starting")], guest=UNASKED)

    assert not of_kind(plan, CreateMachine)
    assert "init server s1 to report an IP address" in [wait.what for wait in plan.waits]


def test_all_joiners_are_recorded_with_the_first_servers_address_once_it_is_known():
    cluster = replace(a_newborn(SERVERS, WORKERS), recorded=elected())

    plan = planned(cluster, [a_first()], guest=UNASKED)

    assert [
        (action.pool, action.join_server, action.is_init_server) for action in of_kind(plan, CreateMachine)
    ] == [
        ("servers", "https://10.0.0.1:9345", False),
        ("servers", "https://10.0.0.1:9345", False),
        ("workers", "https://10.0.0.1:9345", False),
        ("workers", "https://10.0.0.1:9345", False),
    ]


def test_an_ipv6_address_is_bracketed_in_the_url():
    cluster = replace(a_newborn(SERVERS), recorded=elected())

    plan = planned(cluster, [sighted(a_first(), addresses=("fd00::5",))], guest=UNASKED)

    assert of_kind(plan, CreateMachine)[0].join_server == "https://[fd00::5]:9345"


def test_an_answering_api_makes_the_cluster_initialized_and_publishes_a_kubeconfig():
    cluster = replace(a_newborn(a_pool("servers", 1, SERVER)), recorded=elected())

    plan = planned(cluster, [a_first()], guest=GuestState("reachable"))

    assert of_kind(plan, MarkInitialized)
    assert of_kind(plan, PublishKubeconfig)[0].server == "https://10.0.0.1:6443"


def test_a_guest_that_did_not_tell_its_uid_is_asked_later_when_it_answers():
    cluster = a_cluster(a_pool("servers", 1, SERVER))

    def asked(answer, *, needs_guest_uid):
        return bool(
            of_kind(
                planned(cluster, [a_first()], guest=GuestState(answer), needs_guest_uid=needs_guest_uid),
                RecordGuestUID,
            )
        )

    assert asked("reachable", needs_guest_uid=True)
    assert not asked("reachable", needs_guest_uid=False)
    assert not asked("unreachable", needs_guest_uid=True)


def test_a_first_server_lost_before_the_start_is_made_anew_only_when_it_is_gone():
    cluster = replace(a_newborn(SERVERS), recorded=elected())

    lost = planned(cluster, [missing(a_first())], guest=UNASKED)
    going = planned(cluster, [leaving(missing(a_first()))], guest=UNASKED)
    gone = planned(cluster, [], guest=UNASKED)

    assert subjects(lost, DeleteMachine) == ["s1"]
    assert not of_kind(going, CreateMachine)
    assert of_kind(gone, CreateMachine)[0].because == "init server s1 was lost before the cluster had started"


def test_the_new_first_server_is_elected_instead_of_the_lost_one():
    cluster = replace(a_newborn(SERVERS), recorded=elected())
    new = unordered(record_of(a_machine("s4", SERVERS), is_init_server=True, join_server=""))

    plan = planned(cluster, [new], guest=UNASKED)

    assert of_kind(plan, ElectInitServer)[0].previous_uid == "uid-s1"


CHANGES = ("service-cidr is '10.1.0.0/16', and the init server began with '10.43.0.0/16'", "cni is 'none', …")


def an_edited(*pools: Pool) -> Cluster:
    """One that was elected its init server, and was edited before that has answered."""
    return replace(a_newborn(*pools or (SERVERS,)), recorded=elected(), init_server_changes=CHANGES)


@pytest.mark.parametrize(
    ("first", "guest"),
    [
        (sighted(a_first(), addresses=("10.0.0.7",)), silent()),
        (sighted(a_first()), silent()),
        (sighted(a_first(), addresses=()), UNASKED),  # without an address there is nothing to probe
        (missing(a_first()), UNASKED),
        (unordered(a_first()), UNASKED),
        (unordered(a_first()), silent()),
    ],
)
def test_an_init_server_that_has_not_answered_is_deleted_when_the_cluster_is_to_begin_with_another_configuration(
    first, guest
):
    plan = planned(an_edited(), [first], guest=guest)

    because = f"the cluster has not started, and {' and '.join(CHANGES)}"
    assert of_kind(plan, DeleteMachine) == [DeleteMachine(because, "s1")]
    assert not of_kind(plan, ProvisionVM)


@pytest.mark.parametrize(
    "first",
    [
        sighted(a_first(), addresses=("10.0.0.7",)),  # its API server was not probed yet
        replace(a_first(), vm=None),  # its VM cannot be observed
    ],
)
def test_an_init_server_that_may_have_started_the_cluster_stays(first):
    plan = planned(an_edited(), [first], guest=UNASKED)

    assert not of_kind(plan, DeleteMachine)
    assert "the API server of Machine s1 to be probed" in [wait.what for wait in plan.waits]


def test_a_cluster_whose_api_server_answers_has_started_whatever_is_asked_for_meanwhile():
    first = sighted(a_first(), addresses=("10.0.0.7",))
    joiner = unordered(a_machine("w1", WORKERS))

    plan = planned(an_edited(SERVERS, WORKERS), [first, joiner], guest=GuestState("reachable"))

    assert of_kind(plan, MarkInitialized)
    assert not of_kind(plan, DeleteMachine, ProvisionVM)


def test_the_next_init_server_waits_until_the_outdated_one_is_gone_and_joiners_are_deleted_with_it():
    first = leaving(sighted(a_first(), addresses=("10.0.0.7",)))
    joiner = nodeless(a_machine("w1", WORKERS))

    going = planned(an_edited(SERVERS, WORKERS), [first, joiner], guest=silent())
    gone = planned(an_edited(SERVERS, WORKERS), [], guest=UNASKED)

    assert subjects(going, DeleteMachine) == ["w1"]
    assert not of_kind(going, CreateMachine)
    assert [action.is_init_server for action in of_kind(gone, CreateMachine)] == [True]


def test_a_cluster_is_not_started_by_an_init_server_that_is_being_deleted():
    """Its API server may answer until its VM is gone; without another init server nothing could join any more."""
    first = sighted(a_first(), addresses=("10.0.0.7",))
    cluster = replace(a_newborn(SERVERS), recorded=elected())

    assert of_kind(planned(cluster, [first], guest=GuestState("reachable")), MarkInitialized)
    assert not of_kind(planned(cluster, [leaving(first)], guest=GuestState("reachable")), MarkInitialized)


def test_joiners_of_a_lost_first_server_are_given_up_with_it():
    cluster = replace(a_newborn(a_pool("servers", 1, SERVER), a_pool("workers", 1)), recorded=elected())
    first = sighted(a_first(), addresses=("10.0.0.7",))

    plan = planned(cluster, [first, nodeless(a_machine("w1", WORKERS))], guest=UNASKED)

    assert subjects(plan, DeleteMachine) == ["w1"]


def test_a_cluster_that_has_started_never_gets_a_second_first_server():
    cluster = a_cluster(a_pool("servers", 1, SERVER))

    plan = planned(cluster, [], guest=silent())

    assert not of_kind(plan, CreateMachine)


def test_a_worker_is_labelled_because_kubelet_may_not_do_it_itself():
    (labelled,) = of_kind(planned(a_cluster(WORKERS), [without_labels(a_machine("w1", WORKERS))]), LabelNode)

    assert (labelled.node, labelled.labels) == ("w1", {WORKER_LABEL: "true"})


def without_labels(machine):
    return replace(machine, node=replace(machine.node, labels=frozenset()))


def test_a_guest_that_does_not_answer_holds_back_the_labels_of_its_nodes_and_not_what_is_written_on_harvester():
    bare = without_labels(record_of(a_machine("w1", WORKERS), conditions=()))

    plan = planned(a_cluster(WORKERS), [bare], guest=silent())

    assert not of_kind(plan, LabelNode)
    assert subjects(plan, ScrubBootstrapData) == ["w1"]


def test_labels_of_the_pool_that_kubelet_may_not_set_are_set_once_by_the_manager():
    pool = a_pool("db", 1, SERVER, labels={"node-role.kubernetes.io/db": "", "tier": "gold"})
    bare = without_labels(a_machine("s1", pool))

    (labelled,) = of_kind(planned(a_cluster(pool), [bare]), LabelNode)
    assert labelled.labels == {"node-role.kubernetes.io/db": ""}

    done = replace(bare, node=replace(bare.node, labels=frozenset(labelled.labels)))
    assert not of_kind(planned(a_cluster(pool), [done]), LabelNode)


def test_the_vm_of_the_only_server_is_started_also_where_its_node_has_no_labels_yet():
    pool = a_pool("servers", 1, SERVER, labels={"node-role.kubernetes.io/db": ""})

    plan = planned(a_cluster(pool), [stopped(without_labels(a_machine("s1", pool)))], guest=silent())

    assert [type(action) for action in plan.actions] == [StartVM]


def test_secrets_are_scrubbed_once_when_the_node_is_ready():
    worker = a_machine("w1", WORKERS)

    fresh = planned(a_cluster(a_pool("workers", 1)), [record_of(worker, conditions=())])
    done = planned(a_cluster(a_pool("workers", 1)), [worker])

    assert subjects(fresh, ScrubBootstrapData) == ["w1"]
    assert not of_kind(done, ScrubBootstrapData)


def test_secrets_that_could_not_be_scrubbed_are_scrubbed_again():
    failed = Condition("BootstrapDataScrubbed", "False", "Failed", "Harvester did not answer")
    worker = record_of(a_machine("w1", WORKERS), conditions=tuple(set_condition((), failed, NOON)))

    assert subjects(planned(a_cluster(a_pool("workers", 1)), [worker]), ScrubBootstrapData) == ["w1"]


def test_a_driver_that_cannot_scrub_is_not_asked_again_and_again():
    cannot = Condition("BootstrapDataScrubbed", "False", SCRUB_NOT_SUPPORTED, "driver noop cannot")
    worker = record_of(a_machine("w1", WORKERS), conditions=tuple(set_condition((), cannot, NOON)))

    assert not of_kind(planned(a_cluster(a_pool("workers", 1)), [worker]), ScrubBootstrapData)


def test_a_healthy_cluster_needs_nothing():
    pools = a_pool("servers", 3, ALL_ROLES), WORKERS
    machines = [a_machine(f"s{n}", pools[0]) for n in (1, 2, 3)] + [
        a_machine(f"w{n}", WORKERS) for n in (4, 5)
    ]

    plan = planned(a_cluster(*pools), machines)

    assert (plan.actions, plan.held, plan.waits) == ((), (), ())


def test_no_machine_is_recorded_before_the_guest_has_its_credential():
    assert not is_prepared(
        look(a_newborn(SERVERS), guest_credential=GuestCredentialState("pending"), now=NOON)
    )


def test_authorities_that_were_lost_are_never_made_anew_for_machines_that_trust_the_old_ones():
    for cluster in (a_cluster(SERVERS), replace(a_newborn(SERVERS), recorded=elected())):
        plan = planned(
            cluster,
            some("s", 3, SERVERS),
            secrets=None,
            guest_credential=GuestCredentialState("pending"),
            guest=silent(),
        )

        assert plan.actions == ()
        assert "Secret fleet-default/prod-windrow-secrets to be restored" in plan.waits[0].what


def test_no_second_init_server_is_elected_while_the_first_may_still_run():
    servers = a_pool("servers", 3, SERVER)
    lost, next_one = leaving(a_first()), record_of(nodeless(a_machine("s2", servers)), is_init_server=True)
    cluster = replace(a_newborn(servers), recorded=elected())

    waits = planned(cluster, [lost, next_one], guest=silent())
    free = planned(cluster, [next_one], guest=silent())

    assert subjects(waits, ElectInitServer) == []
    assert [wait.what for wait in waits.waits if not wait.machine][:1] == [
        f"Machine {lost.name} to be deleted"
    ]
    assert subjects(free, ElectInitServer) == ["s2"]


def test_a_cluster_whose_vms_exist_already_is_not_started_a_second_time():
    vms = tuple(OrphanVm("default", name, f"vm-{name}", f"uid-{name}") for name in ("a", "b"))

    plan = planned(a_newborn(a_pool("servers", 1, SERVER)), unrecorded=vms, guest=silent())

    assert not of_kind(plan, CreateMachine)
    assert any(
        "a and 1 more to be deleted, or a later backup to be restored" in one.what for one in plan.waits
    )


def test_a_token_that_is_not_issued_yet_is_asked_for_again_after_a_second():
    account = GuestServiceAccount("default", "prod", "ns:cc")
    cluster = replace(
        a_newborn(a_pool("servers", 1, SERVER)), recorded=RecordedStatus(service_account=account)
    )

    plan = planned(cluster, guest=UNASKED, guest_credential=GuestCredentialState("pending"))

    (wait,) = [one for one in plan.waits if "token" in one.what]
    assert wait.what == "Harvester to issue a token for ServiceAccount default/prod"
    assert (wait.then, wait.until) == ("the init server is created", NOON + timedelta(seconds=1))
    assert of_kind(plan, CreateServiceAccount)
    assert not of_kind(plan, RecordServiceAccount, CreateMachine)
