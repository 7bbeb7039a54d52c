"""The control plane endpoint: what is asked for and refused, what is fixed, and what the plan makes of it."""

from __future__ import annotations

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
from tests.unit.clusters.test_cluster import a_raw_cluster, errors, read, warnings

from windrow.clusters.api.cluster import Cluster, Pool
from windrow.clusters.api.endpoint import ControlPlaneEndpoint, read_recorded_endpoint, render_endpoint
from windrow.clusters.api.names import ENDPOINT_ADDRESS, ENDPOINT_MODE, JOIN_SERVER_EXISTS
from windrow.clusters.api.status import RecordedStatus
from windrow.clusters.bootstrap_data import sample_bootstrap_spec
from windrow.clusters.plan.actions import CreateMachine, DeleteMachine, ProvisionVM, PublishKubeconfig
from windrow.clusters.plan.endpoint import has_lost_join_server, list_api_servers
from windrow.clusters.plan.planner import Plan
from windrow.clusters.state import ClusterState, GuestState, MachineState
from windrow.clusters.status import derive_machine
from windrow.kubernetes.conditions import find_condition

MODE, ADDRESS = (f"metadata.annotations[{key}]" for key in (ENDPOINT_MODE, ENDPOINT_ADDRESS))
SERVERS, WORKERS = a_pool("servers", 3, SERVER), a_pool("workers", 2)
VIP = ControlPlaneEndpoint("address", "10.0.0.100")
JOIN, API = "https://10.0.0.100:9345", "https://10.0.0.100:6443"


def asking(**annotations: Any) -> dict[str, Any]:
    """A Cluster with `mode`, `address` as its annotations."""
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
        ({"mode": "address", "address": "0.0.0.0"}, ADDRESS, "which every machine has for itself"),
        ({"mode": "address", "address": "fe80::1"}, ADDRESS, "which every machine has for itself"),
        ({"address": "10.0.0.9"}, ADDRESS, "is set, and windrow.io/endpoint-mode is not set"),
        ({"mode": "firstServer", "address": "10.0.0.9"}, ADDRESS, "is set, and windrow.io/endpoint-mode is firstServer"),
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


@pytest.mark.parametrize("endpoint", [ControlPlaneEndpoint(), VIP])
def test_what_is_recorded_is_read_back(endpoint: ControlPlaneEndpoint) -> None:
    assert read_recorded_endpoint({"controlPlaneEndpoint": render_endpoint(endpoint)}) == endpoint


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


def test_while_the_guest_does_not_answer_a_lost_server_is_told_and_nothing_replaced() -> None:
    late = joiner(conditions=stalled_since(30))

    found = diagnoses_of(look(a_cluster(SERVERS, WORKERS), [late], guest=silent()), late)["w7"]

    assert (found.phase, found.health) == ("Stalled", "waiting")


def test_a_machine_that_was_not_requested_yet_is_recorded_anew_with_another_server() -> None:
    plan = planned(a_cluster(SERVERS, WORKERS), [*some("s", 3, SERVERS), unordered(joiner())])

    assert [action.machine for action in of_kind(plan, DeleteMachine)] == ["w7"]  # type: ignore[union-attr]
    assert of_kind(plan, ProvisionVM) == []


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
