"""The control plane endpoint: what is asked for and refused, what is fixed, and what the plan makes of it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import pytest
from tests.unit.clusters.builders import (
    NOON,
    SERVER,
    a_cluster,
    a_machine,
    a_newborn,
    a_pool,
    condition,
    diagnoses_of,
    leaving,
    look,
    minutes,
    missing,
    nodeless,
    of_kind,
    planned,
    record_of,
    sighted,
    silent,
    some,
    stopped,
    unknown,
    unordered,
    unready,
)
from tests.unit.clusters.test_cluster import a_raw_cluster, a_raw_pool, errors, read, warnings

from windrow.bootstrap import k3s, rke2
from windrow.bootstrap.layout import Layout
from windrow.bootstrap.spec import Role
from windrow.clusters.api.addresses import IPAddress
from windrow.clusters.api.cluster import Cluster, Pool
from windrow.clusters.api.endpoint import (
    BalancerLocation,
    ControlPlaneEndpoint,
    EndpointBalancer,
    read_recorded_endpoint,
    render_endpoint,
)
from windrow.clusters.api.manifest.reading import read_cluster
from windrow.clusters.api.names import (
    ENDPOINT_ADDRESS,
    ENDPOINT_IP_POOL,
    ENDPOINT_JOIN_ADDRESS,
    ENDPOINT_MODE,
    JOIN_SERVER_EXISTS,
)
from windrow.clusters.api.status import RecordedStatus
from windrow.clusters.bootstrap_data import sample_bootstrap_spec
from windrow.clusters.endpoint_balancer import ObservedBalancer, balancer_name, render_balancer
from windrow.clusters.plan.actions import (
    CreateLoadBalancer,
    CreateMachine,
    DeleteEndpoint,
    DeleteMachine,
    ProvisionVM,
    PublishKubeconfig,
    RecordEndpointHost,
    RecordLoadBalancers,
    RemoveFinalizer,
    UpdateLoadBalancer,
)
from windrow.clusters.plan.endpoint import (
    JoinServer,
    find_join_server,
    find_join_server_of,
    find_other_join_server,
    find_stable_api_url,
    find_stable_join_url,
    has_lost_join_server,
    list_api_servers,
    list_join_urls,
)
from windrow.clusters.plan.endpoint_balancers import RECHECK, list_servers
from windrow.clusters.plan.planner import Plan, plan_cluster
from windrow.clusters.state import ClusterState, GuestState, MachineState
from windrow.clusters.status import derive_cluster, derive_machine
from windrow.kubernetes.conditions import find_condition

KEYS = (ENDPOINT_MODE, ENDPOINT_ADDRESS, ENDPOINT_JOIN_ADDRESS, ENDPOINT_IP_POOL)
MODE, ADDRESS, JOIN_ADDRESS, IP_POOL = (f"metadata.annotations[{key}]" for key in KEYS)
SERVERS, WORKERS = a_pool("servers", 3, SERVER), a_pool("workers", 2)
VIP = ControlPlaneEndpoint("address", "10.0.0.100")
LOCATION = BalancerLocation("default", "ns:cc", "harvester-uid")
BALANCED = ControlPlaneEndpoint(
    "loadBalancer",
    "10.1.0.10",
    "10.1.0.11",
    "endpoints",
    (EndpointBalancer("api", "prod-api-x"), EndpointBalancer("join", "prod-join-x")),
    LOCATION,
)
JOIN, API = "https://10.0.0.100:9345", "https://10.0.0.100:6443"


def asking(**annotations: Any) -> dict[str, Any]:
    """A Cluster with `mode`, `address` and the like as its annotations."""
    given = {f"windrow.io/endpoint-{key}": value for key, value in annotations.items()}
    return a_raw_cluster(metadata={"annotations": given})


def begun(raw: dict[str, Any], **status: Any) -> dict[str, Any]:
    return raw | {"status": {"initServer": {"name": "s1", "uid": "uid-s1"}, **status}}


def with_vip(cluster: Cluster) -> Cluster:
    recorded = replace(cluster.recorded, endpoint=VIP)
    return replace(cluster, control_plane_endpoint=VIP, recorded=recorded)


def first(**rest: Any) -> MachineState:
    return record_of(nodeless(a_machine("s1", SERVERS)), is_init_server=True, join_server="", **rest)


STARTED = RecordedStatus(init_server_uid="uid-s1", init_server_name="s1", version="v1.35.1+rke2r1")


# -- what is asked for -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("address", ["10.0.0.100", "fd00::100", "api.prod.example", "api"])
def test_an_address_or_a_name_is_in_the_certificates_of_every_server(address: str) -> None:
    reading = read(asking(mode="address", address=address))

    spec = sample_bootstrap_spec(reading.cluster, reading.cluster.pools[0], reading.cluster.version)

    assert reading.problems == ()
    assert reading.cluster.control_plane_endpoint == ControlPlaneEndpoint("address", address)
    assert spec.tls_san == (address,)


@pytest.mark.parametrize(
    ("given", "field", "words"),
    [
        ({"mode": "vip"}, MODE, "is 'vip'"),
        ({"mode": "x" * 1000}, MODE, "is 'xxxx"),
        ({"mode": "address"}, ADDRESS, "is not set, and windrow.io/endpoint-mode is address"),
        ({"mode": "address", "address": "10.0.0"}, ADDRESS, "which is no address or name"),
        ({"mode": "address", "address": "10.0.0.300"}, ADDRESS, "which is no address or name"),
        ({"mode": "address", "address": "https://api.example"}, ADDRESS, "which is no address or name"),
        ({"mode": "address", "address": "10.0.0.9:6443"}, ADDRESS, "which is no address or name"),
        ({"mode": "address", "address": "localhost"}, ADDRESS, "which is no address or name"),
        ({"mode": "address", "address": "127.0.0.1"}, ADDRESS, "which every machine has for itself"),
        ({"mode": "address", "address": "::ffff:127.0.0.1"}, ADDRESS, "an IPv4 address written as IPv6"),
        ({"mode": "address", "address": "::ffff:10.0.0.5"}, ADDRESS, "an IPv4 address written as IPv6"),
        ({"mode": "address", "address": "0.0.0.0"}, ADDRESS, "which every machine has for itself"),
        ({"mode": "address", "address": "fe80::1"}, ADDRESS, "which every machine has for itself"),
        ({"address": "10.0.0.9"}, ADDRESS, "is set, and windrow.io/endpoint-mode is not set"),
        ({"mode": "firstServer", "address": "10.0.0.9"}, ADDRESS, "is set, and windrow.io/endpoint-mode is firstServer"),
        ({"mode": "loadBalancer"}, IP_POOL, "is not set, and windrow.io/endpoint-mode is loadBalancer"),
        ({"mode": "loadBalancer", "ip-pool": "a/b"}, IP_POOL, "which is no name of an IPPool"),
        ({"mode": "loadBalancer", "ip-pool": "p", "address": "10.0.0.9"}, ADDRESS, "windrow.io/endpoint-mode is loadBalancer"),
        ({"mode": "address", "address": "10.0.0.9", "ip-pool": "p"}, IP_POOL, "windrow.io/endpoint-mode is address"),
        ({"mode": "address", "address": "10.0.0.9", "join-address": "10.0.0.9:1"}, JOIN_ADDRESS, "which is no address or name"),
        ({"join-address": "10.0.0.9"}, JOIN_ADDRESS, "windrow.io/endpoint-mode is not set"),
    ],
)  # fmt: skip
def test_a_contradictory_or_missing_part_is_refused_with_its_field(
    given: dict[str, str], field: str, words: str
) -> None:
    (told,) = errors(read(asking(**given)))

    assert (told.field, told.message[: len(field)]) == (field, field)
    assert words in told.message


def test_an_endpoint_is_fixed_once_the_init_server_is_elected() -> None:
    late = read(begun(asking(mode="address", address="10.0.0.100")))
    moved = read(begun(asking(mode="address", address="10.0.0.9"), controlPlaneEndpoint=render_endpoint(VIP)))
    faulty = read(begun(asking(mode="vip"), controlPlaneEndpoint=render_endpoint(VIP)))
    same = read(begun(asking(mode="address", address=VIP.host), controlPlaneEndpoint=render_endpoint(VIP)))

    assert late.cluster.control_plane_endpoint == ControlPlaneEndpoint()
    assert moved.cluster.control_plane_endpoint == faulty.cluster.control_plane_endpoint == VIP
    assert same.problems == ()
    assert [errors(one) for one in (late, moved, faulty)] == [[], [], []]
    sentences = [warnings(one) for one in (late, moved, faulty)]
    assert "the cluster keeps endpoint firstServer, with which its machines were made" in sentences[0]
    assert (
        "ask for endpoint address 10.0.0.9, and the cluster keeps endpoint address 10.0.0.100" in sentences[1]
    )
    assert "is 'vip', and the cluster keeps endpoint address 10.0.0.100" in sentences[2]


@pytest.mark.parametrize(
    "endpoint", [ControlPlaneEndpoint(), VIP, BALANCED, replace(BALANCED, host="", join_host="")]
)
def test_what_is_recorded_is_read_back(endpoint: ControlPlaneEndpoint) -> None:
    assert read_recorded_endpoint({"controlPlaneEndpoint": render_endpoint(endpoint)}) == endpoint


def test_load_balancers_are_on_the_harvester_of_the_cluster_where_none_was_recorded_with_them() -> None:
    unread = replace(BALANCED, location=replace(LOCATION, harvester=""))
    status = {"controlPlaneEndpoint": render_endpoint(unread), "harvesterUID": "ca-0"}

    assert read_recorded_endpoint(status) == replace(BALANCED, location=replace(LOCATION, harvester="ca-0"))


def test_a_cluster_from_before_modes_were_recorded_has_none_but_its_servers() -> None:
    assert read_recorded_endpoint({"initialized": True}) == ControlPlaneEndpoint()
    assert read_recorded_endpoint({}) is None


# -- what the plan makes of it -----------------------------------------------------------------------------------


def test_behind_an_endpoint_machines_join_before_the_init_server_has_an_address() -> None:
    cluster = with_vip(a_newborn(SERVERS, WORKERS))
    cluster = replace(cluster, recorded=replace(STARTED, endpoint=VIP))

    plan = planned(cluster, [unordered(first())], guest=silent())

    created = of_kind(plan, CreateMachine)
    assert len(created) == 4
    assert {action.join_server for action in created if isinstance(action, CreateMachine)} == {JOIN}


def test_no_machine_joins_before_the_init_server_is_elected_or_while_no_server_is_ready() -> None:
    newborn = with_vip(a_newborn(SERVERS, WORKERS))
    running = with_vip(a_cluster(SERVERS, WORKERS))
    servers = some("s", 3, SERVERS)

    assert len(of_kind(planned(newborn, guest=GuestState()), CreateMachine)) == 1
    assert of_kind(planned(running, map(unready, servers[:2]), guest=silent()), CreateMachine) == []


def test_machines_behind_an_endpoint_go_with_the_init_server_that_they_may_have_joined() -> None:
    cluster = replace(with_vip(a_newborn(SERVERS)), recorded=replace(STARTED, endpoint=VIP))
    joiner = record_of(nodeless(a_machine("s2", SERVERS)), join_server=JOIN)

    lost = planned(cluster, [leaving(missing(first())), joiner], guest=silent())
    well = planned(cluster, [first(), joiner], guest=silent())

    assert [action.machine for action in of_kind(lost, DeleteMachine)] == ["s2"]  # type: ignore[union-attr]
    assert of_kind(well, DeleteMachine) == []


def test_the_kubeconfig_names_the_endpoint_whichever_server_answers() -> None:
    cluster, servers = with_vip(a_cluster(SERVERS)), some("s", 3, SERVERS)

    new = planned(cluster, servers, guest=GuestState("reachable"))
    later = planned(cluster, servers[1:], guest=GuestState("reachable", published_server=API))

    assert [action.server for action in of_kind(new, PublishKubeconfig)] == [API]  # type: ignore[union-attr]
    assert of_kind(later, PublishKubeconfig) == []


def test_the_manager_asks_servers_first_and_the_endpoint_where_none_is_known() -> None:
    cluster = with_vip(a_cluster(SERVERS))
    newborn = with_vip(a_newborn(SERVERS))

    assert list_api_servers(look(cluster, some("s", 1, SERVERS))) == ("https://10.0.0.1:6443", API)
    assert list_api_servers(look(cluster, [])) == (API,)
    assert list_api_servers(look(newborn, [])) == ()


# -- a server that machines join through is lost -----------------------------------------------------------------

LOST = "https://10.0.0.9:9345"


def joiner(pool: Pool = WORKERS, **record: Any) -> MachineState:
    return record_of(nodeless(a_machine("w7", pool)), join_server=LOST, **record)


def stalled_since(age: float) -> tuple[dict[str, Any], ...]:
    return (condition(JOIN_SERVER_EXISTS, "False", NOON - minutes(age)),)


def test_a_machine_whose_server_to_join_through_is_lost_is_told_and_replaced_early() -> None:
    servers = some("s", 3, SERVERS)

    def find(**record: Any) -> tuple[str, str]:
        late = joiner(**record)
        found = diagnoses_of(look(a_cluster(SERVERS, WORKERS), [*servers, late]), late)["w7"]
        assert f"to join through {LOST}, an address that no server has any more" in found.waiting_for
        return found.phase, found.health

    assert find() == ("Stalled", "waiting")
    assert find(conditions=stalled_since(2.9)) == ("Stalled", "waiting")
    assert find(conditions=stalled_since(3)) == ("Stalled", "unhealthy")
    assert find(created=NOON - minutes(11)) == ("Stalled", "unhealthy")


def test_a_lost_server_is_a_reason_for_a_replacement_also_where_a_start_may_take_for_ever() -> None:
    patient = replace(WORKERS, startup_timeout=None)
    late = joiner(patient, conditions=stalled_since(3))

    plan = planned(a_cluster(SERVERS, patient), [*some("s", 3, SERVERS), late])

    assert [action.machine for action in of_kind(plan, DeleteMachine)] == ["w7"]  # type: ignore[union-attr]


@pytest.mark.parametrize(
    "server",
    [
        stopped(record_of(a_machine("s9", SERVERS), status={"addresses": ["10.0.0.9"]})),
        unknown(record_of(nodeless(a_machine("s9", SERVERS)), status={"addresses": ["10.0.0.9"]})),
        leaving(a_machine("s9", SERVERS)),
    ],
    ids=["stopped", "not observed", "leaving"],
)
def test_a_server_that_may_answer_again_is_not_lost(server: MachineState) -> None:
    assert not has_lost_join_server(joiner(), look(a_cluster(SERVERS, WORKERS), [server]))


@pytest.mark.parametrize(
    "server",
    [missing(a_machine("s9", SERVERS)), sighted(nodeless(a_machine("s9", SERVERS)), addresses=("10.0.0.8",)), a_machine("w9", WORKERS)],
    ids=["its VM is gone", "it has another address", "a worker has it"],
)  # fmt: skip
def test_a_server_that_cannot_answer_there_is_lost(server: MachineState) -> None:
    assert has_lost_join_server(joiner(), look(a_cluster(SERVERS, WORKERS), [server]))


@pytest.mark.parametrize(
    ("age", "lost"), [(5, False), (1, False), (0.5, True)], ids=["older", "as old", "younger"]
)
def test_a_server_of_which_no_address_is_known_may_be_the_one_where_it_is_older(
    age: float, lost: bool
) -> None:
    """The manager was killed before it had recorded the address, and has not observed the VM again."""
    server = unknown(record_of(nodeless(a_machine("s9", SERVERS)), created=NOON - minutes(age)))
    late = joiner(created=NOON - minutes(1))

    assert has_lost_join_server(late, look(a_cluster(SERVERS, WORKERS), [server])) is lost


SHOWN = a_machine("s9", SERVERS)
WITHOUT_NODE = replace(record_of(SHOWN, status={"addresses": ["10.0.0.7"]}), node=None)


@pytest.mark.parametrize(
    ("server", "known"),
    [
        (SHOWN, {9}),
        (leaving(SHOWN), {9}),
        (sighted(SHOWN, addresses=("10.0.0.8",)), {8, 9}),
        (unknown(SHOWN), {9}),
        (WITHOUT_NODE, {9}),
        (sighted(WITHOUT_NODE, addresses=(), state="stopped"), {7}),
        (replace(WITHOUT_NODE, vm=None), {7}),
        (missing(SHOWN), set()),
        (leaving(missing(SHOWN)), set()),
        (record_of(SHOWN, version="latest"), set()),
    ],
    ids=["its VM and Node", "leaving", "two", "its Node", "its VM", "stopped", "recorded", "gone", "gone for good", "no release"],
)  # fmt: skip
def test_a_server_is_known_by_what_its_vm_or_else_its_record_says_and_by_its_node(
    server: MachineState, known: set[int]
) -> None:
    assert set(list_join_urls(server)) == {f"https://10.0.0.{number}:9345" for number in known}


def test_machines_join_the_oldest_ready_server_that_has_an_address_and_no_worker() -> None:
    servers = [record_of(one, created=NOON - minutes(40)) for one in some("s", 2, SERVERS)]
    without = sighted(servers[0], addresses=())
    without = replace(without, node=replace(without.node, addresses=()) if without.node else None)
    worker = a_machine("w7", WORKERS)  # the oldest of all

    state = look(a_cluster(SERVERS, WORKERS), [worker, without, servers[1]])

    assert find_join_server(state) == "https://10.0.0.2:9345"


def test_machines_join_a_server_that_stays_where_its_pool_is_scaled_down() -> None:
    """A worker that was given the oldest of three, the first to go, waited for it until it was replaced."""

    def joined(quantity: int, servers: Sequence[MachineState]) -> str:
        return find_join_server(look(a_cluster(a_pool("servers", quantity, SERVER), WORKERS), servers))

    servers = some("s", 3, SERVERS)
    marked = [servers[0], servers[1], record_of(servers[2], delete_first=True)]
    starting = [servers[0], servers[1], nodeless(servers[2])]

    assert [joined(quantity, servers) for quantity in (3, 2, 1, 0)] == [
        f"https://10.0.0.{number}:9345" for number in (1, 2, 3, 1)
    ]
    sick = [servers[0], servers[1], unready(servers[2])]
    assert joined(2, sick) == "https://10.0.0.1:9345"
    # The VM of the third goes down, which its Node does not show yet, so it is the next to go, and the first stays.
    assert joined(2, [*servers[:2], sighted(servers[2], state="stopping")]) == "https://10.0.0.1:9345"
    assert joined(2, servers[::-1]) == "https://10.0.0.2:9345"
    # The third is joining through the first, so the first is not the next to go.
    assert [joined(2, marked), joined(2, starting), joined(1, starting)] == [
        f"https://10.0.0.{number}:9345" for number in (1, 1, 1)
    ]


def test_a_machine_that_was_not_requested_yet_is_not_given_a_server_that_leaves() -> None:
    one, two = some("s", 2, SERVERS)
    waiting = unordered(record_of(joiner(), join_server="https://10.0.0.1:9345"))

    def decided(late: MachineState, *servers: MachineState) -> tuple[list[str], list[str], list[str]]:
        plan = planned(a_cluster(a_pool("servers", 1, SERVER), WORKERS), [*servers, late])
        return (
            [action.machine for action in of_kind(plan, ProvisionVM) if isinstance(action, ProvisionVM)],
            [one.because for one in of_kind(plan, DeleteMachine) if getattr(one, "machine", "") == late.name],
            [wait.what for wait in plan.waits if "which it was to join through" in wait.what],
        )

    told = "it would join through https://10.0.0.1:9345, and Machine s1 is being deleted"
    wait = "a server to become Ready (Machine s1, which it was to join through, is being deleted)"
    assert decided(waiting, leaving(one), two) == ([], [told], [])
    assert decided(waiting, one) == (["w7"], [], [])
    assert decided(waiting, leaving(one)) == (["w7"], [], [])  # it serves until another has joined
    assert one.node is not None
    removed = replace(leaving(one), node=replace(one.node, etcd_removal_requested=True))
    assert decided(waiting, removed, nodeless(two)) == ([], [], [wait])


def test_a_machine_that_is_adopted_is_recorded_whatever_became_of_the_server_it_is_recorded_with() -> None:
    """Its VM runs, and has joined: deleted, its Machine would give back the addresses of that VM."""
    one, two = some("s", 2, SERVERS)
    waiting = unordered(record_of(joiner(), join_server="https://10.0.0.1:9345"))
    adopted = record_of(waiting, object_uid="made-later")
    itself = record_of(waiting, object_uid=waiting.record.uid)
    assert one.node is not None
    removed = replace(leaving(one), node=replace(one.node, etcd_removal_requested=True))

    def decided(late: MachineState, *servers: MachineState) -> list[str]:
        plan = planned(a_cluster(a_pool("servers", 1, SERVER), WORKERS), [*servers, late])
        assert not [
            action for action in of_kind(plan, DeleteMachine) if getattr(action, "machine", "") == "w7"
        ]
        return [action.machine for action in of_kind(plan, ProvisionVM) if isinstance(action, ProvisionVM)]

    for servers in ((leaving(one), two), (removed, nodeless(two)), (missing(one), two), (two,)):
        assert decided(adopted, *servers) == ["w7"]
    assert decided(itself, removed, nodeless(two)) == []


def test_the_server_that_is_waited_for_is_a_server() -> None:
    claimed = IPAddress(
        "a", "uid-a", "10.0.0.9", 24, "default/vlan", "hv", "", "", "cluster-uid", is_of_node=True
    )
    server, worker = (
        replace(missing(a_machine(name, pool)), addresses=(claimed,))
        for name, pool in (("s9", SERVERS), ("w9", WORKERS))
    )

    def found(machine: MachineState) -> JoinServer:
        return find_join_server_of(joiner(), look(a_cluster(SERVERS, WORKERS), [machine]))

    assert (found(server), found(worker)) == (JoinServer("gone", server), JoinServer("lost"))


def test_while_the_guest_does_not_answer_a_lost_server_is_told_and_nothing_replaced() -> None:
    late = joiner(conditions=stalled_since(30))

    found = diagnoses_of(look(a_cluster(SERVERS, WORKERS), [late], guest=silent()), late)["w7"]

    assert (found.phase, found.health) == ("Stalled", "waiting")


def test_a_machine_that_was_not_requested_yet_is_recorded_anew_with_another_server() -> None:
    plan = planned(a_cluster(SERVERS, WORKERS), [*some("s", 3, SERVERS), unordered(joiner())])

    assert [action.machine for action in of_kind(plan, DeleteMachine)] == ["w7"]  # type: ignore[union-attr]
    assert of_kind(plan, ProvisionVM) == []


def test_no_machine_is_given_a_server_whose_vm_is_gone_though_its_node_is_still_ready() -> None:
    """It would be recorded, found to have lost its server, and deleted again, until the Node is not Ready."""
    first, second = some("s", 2, SERVERS)
    gone = replace(missing(first), node=first.node)

    def given(*servers: MachineState, **recorded: Any) -> set[str]:
        cluster = a_cluster(SERVERS, WORKERS)
        cluster = replace(cluster, recorded=replace(cluster.recorded, **recorded))
        plan = planned(cluster, servers)
        return {
            action.join_server for action in of_kind(plan, CreateMachine) if isinstance(action, CreateMachine)
        }

    assert given(gone, second) == {"https://10.0.0.2:9345"}
    assert given(leaving(gone)) == given(gone) == given(gone, provisioned=False) == set()


def test_when_the_server_was_lost_is_kept_until_the_machine_joins() -> None:
    state = look(
        a_cluster(SERVERS, WORKERS), [*some("s", 1, SERVERS), late := joiner(conditions=stalled_since(2))]
    )
    joined = record_of(a_machine("w7", WORKERS), join_server=LOST, conditions=stalled_since(2))
    after = look(a_cluster(SERVERS, WORKERS), [joined])

    def dated(machine: MachineState, state: ClusterState) -> tuple[str, Any]:
        status = derive_machine(machine, state, Plan(diagnoses=diagnoses_of(state, machine)), {})
        found = find_condition(status["conditions"], JOIN_SERVER_EXISTS)
        assert found is not None
        return found.status, found.since

    assert dated(late, state) == ("False", NOON - minutes(2))
    assert dated(joined, after) == ("True", NOON)
    # Neither a restart of its VM nor its own end brings the server back.
    for other in (sighted(late, state="starting"), leaving(late)):
        assert dated(other, state) == ("False", NOON - minutes(2))
    found = look(a_cluster(SERVERS, WORKERS), [sighted(state.machines[0], addresses=("10.0.0.9",)), late])
    assert dated(late, found) == ("True", NOON)


# -- load balancers ----------------------------------------------------------------------------------------------

ONE = ControlPlaneEndpoint(
    "loadBalancer",
    "10.1.0.10",
    pool="endpoints",
    balancers=(EndpointBalancer("api", "prod-api-x"),),
    location=LOCATION,
)


def balanced(
    endpoint: ControlPlaneEndpoint, machines: Iterable[MachineState] = (), **rest: Any
) -> ClusterState:
    cluster = rest.pop("cluster", None) or a_cluster(SERVERS, WORKERS)
    recorded = replace(cluster.recorded, endpoint=endpoint if endpoint.location else None)
    cluster = replace(cluster, control_plane_endpoint=endpoint, recorded=recorded)
    return look(cluster, machines, **rest)


def a_balancer(name: str = "prod-api-x", **changes: Any) -> ObservedBalancer:
    found = ObservedBalancer("default", name, f"uid-{name}", "cluster-uid", "10.1.0.10", ("s1", "s2", "s3"))
    return replace(found, **changes)


def shown(*balancers: ObservedBalancer) -> dict[str, ObservedBalancer]:
    return {one.name: one for one in balancers}


def test_load_balancers_are_recorded_before_they_are_made_and_before_any_machine() -> None:
    asked = ControlPlaneEndpoint("loadBalancer", pool="endpoints")
    pending = replace(ONE, host="")

    first = plan_cluster(balanced(asked, cluster=a_newborn(SERVERS), guest=GuestState()))
    second = plan_cluster(balanced(pending, cluster=a_newborn(SERVERS), guest=GuestState(), balancers={}))

    (record,) = first.actions
    assert isinstance(record, RecordLoadBalancers)
    assert (record.namespace, record.credential, record.pool) == ("default", "ns:cc", "endpoints")
    assert [one.purpose for one in record.balancers] == ["api"]
    (made,) = second.actions
    assert isinstance(made, CreateLoadBalancer)
    assert (made.balancer, made.servers) == (pending.balancers[0], ())


def test_servers_that_are_divided_have_a_load_balancer_for_joining_too() -> None:
    divided = a_newborn(
        a_pool("etcd", 3, frozenset({Role.ETCD})), a_pool("control", 2, frozenset({Role.CONTROL_PLANE}))
    )

    (record,) = plan_cluster(
        balanced(ControlPlaneEndpoint("loadBalancer", pool="p"), cluster=divided, guest=GuestState())
    ).actions

    assert isinstance(record, RecordLoadBalancers)
    assert [one.purpose for one in record.balancers] == ["api", "join"]


def test_no_machine_is_made_before_each_load_balancer_has_its_address() -> None:
    pending = replace(BALANCED, join_host="")
    newborn = {"cluster": a_newborn(SERVERS), "guest": GuestState()}
    api = a_balancer(servers=())
    waiting = a_balancer("prod-join-x", address="", servers=(), problem="no IP addresses available")

    waits = plan_cluster(balanced(pending, balancers=shown(api, waiting), **newborn))
    ready = plan_cluster(
        balanced(
            pending,
            balancers=shown(api, a_balancer("prod-join-x", address="10.1.0.11", servers=())),
            **newborn,
        )
    )

    assert waits.actions == ()
    assert "to get an address of IPPool endpoints (no IP addresses available)" in waits.waits[0].what
    assert ready.actions == (
        RecordEndpointHost("LoadBalancer default/prod-join-x has this address", "join", "10.1.0.11"),
    )


def test_machines_behind_two_addresses_join_by_the_second_and_people_use_the_first() -> None:
    state = balanced(BALANCED, some("s", 3, SERVERS))

    assert find_stable_join_url(state) == "https://10.1.0.11:9345"
    assert find_stable_api_url(state) == "https://10.1.0.10:6443"
    assert state.cluster.endpoint_hosts == ("10.1.0.10", "10.1.0.11")


def test_a_load_balancer_follows_its_servers_by_name() -> None:
    servers = some("s", 3, SERVERS)
    changed = [
        servers[0],
        leaving(servers[1]),
        missing(servers[2]),
        unordered(a_machine("s4", SERVERS)),
        *some("w", 2, WORKERS),
    ]

    def behind(machines: list[MachineState]) -> list[tuple[str, ...]]:
        plan = plan_cluster(balanced(ONE, machines, balancers=shown(a_balancer())))
        return [action.servers for action in plan.actions if isinstance(action, UpdateLoadBalancer)]

    assert behind([*servers, *some("w", 2, WORKERS)]) == []
    assert behind(changed) == [("s1", "s4")]


def test_behind_divided_load_balancers_are_api_servers_and_members_of_etcd() -> None:
    etcd, control = (
        a_pool("etcd", 1, frozenset({Role.ETCD})),
        a_pool("control", 1, frozenset({Role.CONTROL_PLANE})),
    )
    machines = [a_machine("e1", etcd), a_machine("c1", control), a_machine("w1", WORKERS)]

    state = balanced(BALANCED, machines)

    assert list_servers("api", state) == ("c1",)
    assert list_servers("join", state) == ("e1",)


def test_a_load_balancer_of_another_is_neither_changed_nor_deleted() -> None:
    foreign = a_balancer(cluster_uid="", servers=("web",))
    pending = replace(ONE, host="")
    ending = a_cluster(SERVERS, deletion_timestamp=NOON)

    waits = plan_cluster(
        balanced(pending, cluster=a_newborn(SERVERS), guest=GuestState(), balancers=shown(foreign))
    )
    end = plan_cluster(balanced(ONE, cluster=ending, balancers=shown(foreign)))

    assert waits.actions == ()
    assert "it is not this cluster's" in waits.waits[0].what
    assert of_kind(end, DeleteEndpoint) == []
    assert of_kind(end, RemoveFinalizer)


def test_load_balancers_are_deleted_after_the_machines_and_before_the_secrets() -> None:
    ending = a_cluster(SERVERS, deletion_timestamp=NOON)
    late = {"cluster": ending, "balancers_may_be_made_until": NOON + minutes(1)}

    def kinds(*machines: MachineState, **rest: Any) -> list[str]:
        return [action.reason for action in plan_cluster(balanced(ONE, machines, **rest)).actions]

    assert "DeleteEndpoint" not in kinds(
        leaving(a_machine("s1", SERVERS)), cluster=ending, balancers=shown(a_balancer())
    )
    assert kinds(cluster=ending, balancers=shown(a_balancer())) == ["DeleteEndpoint"]
    assert kinds(cluster=ending, balancers=shown(a_balancer(is_deleting=True))) == []
    assert kinds(cluster=ending, balancers=None) == []
    assert kinds(balancers={}, **late) == []  # a request to create it may be carried out yet
    assert kinds(cluster=ending, balancers={}) == ["DeleteSecrets", "RemoveFinalizer"]


@pytest.mark.parametrize(
    ("found", "reason", "words"),
    [
        ({}, "NotFound", "LoadBalancer default/prod-api-x is not found"),
        (shown(a_balancer(cluster_uid="other")), "NotOwned", "is not this cluster's"),
        (shown(a_balancer(address="10.1.0.12")), "AddressChanged", "free 10.1.0.10 in IPPool endpoints"),
        (shown(a_balancer(problem="no running backend servers")), "NotReady", "no running backend servers"),
        (shown(a_balancer()), "", ""),
    ],
)
def test_what_is_wrong_with_a_load_balancer_is_a_condition_and_a_warning(
    found: dict[str, ObservedBalancer], reason: str, words: str
) -> None:
    state = balanced(ONE, some("s", 3, SERVERS), balancers=found)

    status = derive_cluster(state, plan_cluster(state), None)

    condition = find_condition(status["conditions"], "EndpointReady")
    assert condition is not None
    assert (condition.status, condition.reason) == (("False", reason) if reason else ("True", "Ready"))
    assert words in condition.message
    assert any(words in warning for warning in status["warnings"] or ()) is bool(reason)


def rendered(endpoint: ControlPlaneEndpoint, place: int, layout: Layout) -> tuple[list[int], int]:
    cluster = replace(a_cluster(SERVERS), control_plane_endpoint=endpoint)
    raw = render_balancer(cluster, endpoint.balancers[place], "default", ("s1",), layout)
    spec = raw["spec"]
    assert (spec["workloadType"], spec["ipam"], spec["ipPool"]) == ("vm", "pool", endpoint.pool)
    assert spec["backendServerSelector"] == {"harvesterhci.io/vmName": ["s1"]}
    assert raw["metadata"]["annotations"] == {"windrow.io/cluster-uid": "cluster-uid"}
    assert all(one["backendPort"] == one["port"] and one["protocol"] == "TCP" for one in spec["listeners"])
    return [one["port"] for one in spec["listeners"]], spec["healthCheck"]["port"]


def test_rke2_joins_on_9345_and_k3s_on_the_port_of_the_api() -> None:
    assert rendered(ONE, 0, rke2.LAYOUT) == ([6443, 9345], 6443)
    assert rendered(ONE, 0, k3s.LAYOUT) == ([6443], 6443)
    assert rendered(BALANCED, 0, rke2.LAYOUT) == ([6443], 6443)
    assert rendered(BALANCED, 1, rke2.LAYOUT) == ([9345], 9345)
    assert rendered(BALANCED, 1, k3s.LAYOUT) == ([6443], 6443)


def test_clusters_of_one_name_have_load_balancers_of_two() -> None:
    one, other = a_cluster(), replace(a_cluster(), uid="other-uid")

    assert balancer_name(one, "api") != balancer_name(other, "api")
    assert balancer_name(replace(one, name="51"), "api").startswith("a51-api-")


def test_divided_servers_of_k3s_need_an_address_of_their_own_for_joining() -> None:
    pools = (
        a_raw_pool("etcd", controlPlaneRole=False, workerRole=False),
        a_raw_pool("control", etcdRole=False, workerRole=False),
    )

    def told(version: str, **more: str) -> list[str]:
        raw = a_raw_cluster(*pools, kubernetesVersion=version)
        given = {"mode": "address", "address": "10.0.0.100", **more}
        raw["metadata"]["annotations"] = {f"windrow.io/endpoint-{key}": value for key, value in given.items()}
        return [one.field for one in errors(read(raw))]

    assert told("v1.35.1+k3s1") == [JOIN_ADDRESS]
    assert told("v1.35.1+k3s1", **{"join-address": "10.0.0.101"}) == []
    assert told("v1.35.1+k3s1", mode="loadBalancer", address="", **{"ip-pool": "endpoints"}) == []
    assert told("v1.35.1+rke2r1") == []


def test_machines_of_another_driver_are_behind_no_load_balancer_of_harvester() -> None:
    raw = a_raw_cluster(a_raw_pool(machineConfigRef={"kind": "FakeConfig", "name": "nc"}))
    raw["metadata"]["annotations"] = {ENDPOINT_MODE: "loadBalancer", ENDPOINT_IP_POOL: "endpoints"}
    config = {"kind": "FakeConfig", "metadata": {"name": "nc", "namespace": "fleet-default"}}

    found = read_cluster(raw, [config], lambda kind: "fake")

    assert [one.field for one in errors(found)] == [MODE]


def test_a_machine_that_is_late_behind_an_endpoint_is_told_to_check_that() -> None:
    late = record_of(nodeless(a_machine("w7", WORKERS)), join_server=JOIN, created=NOON - minutes(6))
    state = look(with_vip(a_cluster(SERVERS, WORKERS)), [*some("s", 3, SERVERS), late])

    found = diagnoses_of(state, late)["w7"]

    assert f"check that {JOIN} leads to the servers; its console: windrow machine console" in found.next
    assert f"check that {JOIN}" not in diagnoses_of(replace(state, now=NOON - minutes(4)), late)["w7"].next


def test_while_harvester_does_not_show_load_balancers_nothing_is_made_and_it_is_asked_again() -> None:
    pending = replace(ONE, host="")
    newborn = {"cluster": a_newborn(SERVERS), "guest": GuestState(), "balancers": None}

    waits = plan_cluster(balanced(pending, balancers_unknown="connection refused", **newborn))
    ends = plan_cluster(balanced(ONE, cluster=a_cluster(SERVERS, deletion_timestamp=NOON), balancers=None))

    assert waits.actions == ends.actions == ()
    assert "Harvester to show LoadBalancer default/prod-api-x (connection refused)" in waits.waits[0].what
    assert [plan.waits[0].until for plan in (waits, ends)] == [NOON + RECHECK, NOON + RECHECK]
    assert plan_cluster(balanced(ONE, some("s", 3, SERVERS), balancers=None)).waits == ()


def test_no_machine_joins_the_init_server_that_leaves_before_it_has_started() -> None:
    cluster = replace(with_vip(a_newborn(SERVERS)), recorded=replace(STARTED, endpoint=VIP))

    plan = planned(cluster, [leaving(first())], guest=silent())

    assert of_kind(plan, CreateMachine) == []


def test_the_api_is_looked_for_at_ready_servers_first_and_at_those_that_leave_last() -> None:
    one, two, three = some("s", 3, SERVERS)

    found = list_api_servers(look(a_cluster(SERVERS), [leaving(one), unready(two), three]))

    assert found == tuple(f"https://10.0.0.{number}:6443" for number in (3, 2, 1))


def test_no_machine_joins_through_a_member_whose_removal_from_etcd_has_begun() -> None:
    """It serves until others have joined: until its deletion is requested of etcd or of Harvester."""
    stays, goes = some("s", 2, SERVERS)
    lost = missing(goes)

    def joins(server: MachineState) -> str:
        return find_join_server(look(a_cluster(SERVERS), [server, lost]))

    assert joins(leaving(stays)) == "https://10.0.0.1:9345"
    assert joins(replace(leaving(stays), deletion_requested=NOON)) == ""
    assert stays.node is not None
    removed = replace(stays, node=replace(stays.node, etcd_removal_requested=True))
    assert joins(leaving(removed)) == ""


def test_a_cluster_without_a_credential_has_its_load_balancers_made_with_that_of_its_servers() -> None:
    asked = ControlPlaneEndpoint("loadBalancer", pool="endpoints")
    servers = replace(SERVERS, credential="ns:servers")
    newborn = replace(a_newborn(replace(WORKERS, credential="ns:workers"), servers), credential="")

    (record,) = plan_cluster(balanced(asked, cluster=newborn, guest=GuestState())).actions

    assert isinstance(record, RecordLoadBalancers)
    assert record.credential == "ns:servers"


def test_the_endpoint_of_a_cluster_that_has_not_begun_is_of_the_version_that_it_asks_for() -> None:
    newborn = a_newborn(SERVERS)
    asked = replace(newborn, control_plane_endpoint=ControlPlaneEndpoint("address", "10.0.0.9"))

    assert find_stable_api_url(look(asked)) == "https://10.0.0.9:6443"
    assert find_stable_join_url(look(asked)) == "https://10.0.0.9:9345"
    assert find_stable_join_url(look(replace(asked, version="v1.35.1+k3s1"))) == "https://10.0.0.9:6443"
    assert find_stable_api_url(look(newborn)) == find_stable_join_url(look(newborn)) == ""


CONTROL = a_pool("control", 2, frozenset({Role.CONTROL_PLANE}))


def test_a_server_whose_join_server_is_lost_is_told_another_one_and_rather_one_with_etcd() -> None:
    controls, members = some("c", 2, CONTROL), some("s", 2, SERVERS)

    def other(*machines: MachineState) -> str:
        return find_other_join_server(machines[0], look(a_cluster(SERVERS, CONTROL), machines))

    assert other(*controls, *members) == f"https://{members[0].address}:9345"
    assert other(*controls) == f"https://{controls[1].address}:9345"
    assert other(controls[0]) == "", "not itself"
    assert other(controls[0], unready(members[0]), missing(members[1])) == ""
    assert other(controls[0], *some("w", 2, WORKERS)) == "", "no worker is joined through"
