from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from windrow.cloudprovider.names import (
    INSTANCE_TYPE,
    INSTANCE_TYPE_BETA,
    LIFECYCLE_CONTROLLER,
    NODE_CONTROLLER,
    REGION,
    REGION_BETA,
    SHUTDOWN,
    ZONE,
    ZONE_BETA,
)
from windrow.cloudprovider.nodes.execute import render_patches
from windrow.cloudprovider.nodes.identity import OtherCloud, VmFound, VmMissing, VmUnknown
from windrow.cloudprovider.nodes.planning import (
    AddTaint,
    DeleteNode,
    EmitEvent,
    NodeState,
    Plan,
    RecordAnnotation,
    RemoveTaint,
    SetAddresses,
    SetLabels,
    SetProviderId,
    plan_node,
)
from windrow.cloudprovider.nodes.readings import (
    Address,
    GuestNode,
    GuestVm,
    Instance,
    Interface,
    Taint,
    read_instance,
    read_node,
)
from windrow.cloudprovider.options import Options
from windrow.kubernetes.taints import UNINITIALIZED

VM = GuestVm("w1", "vm-uid")
RUNNING = Instance(
    "w1",
    "vmi-uid",
    phase="Running",
    has_agent=True,
    zone="z1",
    region="r1",
    networks=(("nic-1", "default/vlan1"),),
    interfaces=(Interface("nic-1", "enp1s0", ("10.0.0.1",)),),
)
FRESH = Taint(UNINITIALIZED, "NoSchedule", "true")
ROLE = Taint("node-role.kubernetes.io/etcd", "NoExecute", "true")
OFF = Taint(SHUTDOWN, "NoSchedule")
TOPOLOGY = {ZONE: "z1", ZONE_BETA: "z1", REGION: "r1", REGION_BETA: "r1"}
ADDRESSES = (Address("InternalIP", "10.0.0.1"), Address("Hostname", "w1"))
INITIAL = GuestNode("w1", "node-uid", "7", taints=(FRESH, ROLE), provided_ip="10.0.0.1")
SETTLED = GuestNode(
    "w1",
    "node-uid",
    "7",
    provider_id="harvester://vm-uid",
    is_ready=True,
    taints=(ROLE,),
    topology=TOPOLOGY,
    topology_record={"zone": "z1", "region": "r1"},
    provided_ip="10.0.0.1",
    addresses=ADDRESSES,
)


FOUND = VmFound(VM)


def plan(node, identity=FOUND, instance=RUNNING, is_gone=False, **options):
    return plan_node(NodeState(node, identity, instance, is_gone), Options(**options))


def labels_after(node, found):
    changed = {key: value for one in found.changes if isinstance(one, SetLabels) for key, value in one.labels}
    return {key: value for key, value in {**node.topology, **changed}.items() if value is not None}


def kinds(found):
    return [type(change) for change in found.changes]


# --- initialisation ---------------------------------------------------------------------------------------------------


def test_a_fresh_node_gets_everything_in_one_write_and_its_addresses_and_an_event():
    found = plan(INITIAL)

    assert kinds(found) == [SetProviderId, SetLabels, RecordAnnotation, RemoveTaint, SetAddresses, EmitEvent]
    assert render_patches(INITIAL, found.changes)[0] == {
        "metadata": {
            "resourceVersion": "7",
            "labels": TOPOLOGY,
            "annotations": {"windrow.io/topology": '{"zone":"z1","region":"r1"}'},
        },
        "spec": {
            "providerID": "harvester://vm-uid",
            "taints": [{"key": ROLE.key, "value": "true", "effect": "NoExecute"}],
        },
    }
    assert render_patches(SETTLED, found.changes)[1] == {
        "status": {
            "addresses": [
                {"type": "InternalIP", "address": "10.0.0.1"},
                {"type": "Hostname", "address": "w1"},
            ]
        }
    }
    announced = found.changes[-1]
    assert (announced.reason, announced.message) == ("Synced", "Node synced successfully")


def test_every_change_knows_its_reason():
    assert all(change.because for change in plan(INITIAL).changes)


def test_a_provider_id_that_stands_is_never_written_again():
    assert SetProviderId not in kinds(plan(replace(INITIAL, provider_id="harvester://vm-uid")))


def test_a_host_without_topology_gives_no_labels():
    assert SetLabels not in kinds(plan(INITIAL, instance=replace(RUNNING, zone="", region="")))


@pytest.mark.parametrize("zone", ["a b", "-a", "z" * 64, "ü"])
def test_a_zone_that_is_no_label_value_is_passed_over(zone):
    """The API server would refuse the patch that takes the taint of an uninitialised node away."""
    annotations = {ZONE: zone, REGION: "r1"}
    found = read_instance({"metadata": {"name": "vm", "namespace": "default", "annotations": annotations}})

    assert (found.zone, found.region) == ("", "r1")


def test_the_last_taint_leaves_no_empty_list():
    node = replace(INITIAL, taints=(FRESH,))

    assert render_patches(node, plan(node).changes)[0]["spec"]["taints"] is None


def test_the_taint_goes_whatever_its_value_and_effect():
    node = replace(
        INITIAL, taints=(Taint(UNINITIALIZED, "PreferNoSchedule"), Taint(UNINITIALIZED, "NoExecute", "x"))
    )

    assert render_patches(node, plan(node).changes)[0]["spec"]["taints"] is None


@pytest.mark.parametrize(
    ("instance", "words"),
    [
        (replace(RUNNING, interfaces=()), "its guest agent has not reported an address"),
        (replace(RUNNING, interfaces=(), has_agent=False), "is qemu-guest-agent installed and running?"),
        (
            replace(RUNNING, interfaces=(Interface("nic-1", "enp1s0", ("10.0.0.9",)),)),
            "its VM reports 10.0.0.9",
        ),
        (None, "VirtualMachine w1 has no VirtualMachineInstance yet"),
    ],
)
def test_a_node_whose_kubelet_address_is_not_confirmed_waits_and_says_why(instance, words):
    found = plan(INITIAL, instance=instance)

    assert found.changes == ()
    assert words in found.waits_for


def test_a_kubelet_address_that_cannot_be_read_keeps_the_taint_and_says_what_to_correct():
    found = plan(replace(INITIAL, provided_ip="ten"))

    assert found.changes == ()
    assert 'failed to parse node IP "ten"' in found.waits_for
    assert "--node-ip" in found.waits_for


def test_a_node_without_a_kubelet_address_does_not_wait_for_the_agent():
    node = replace(INITIAL, provided_ip="")

    found = plan(node, instance=replace(RUNNING, interfaces=()))

    assert RemoveTaint in kinds(found)
    assert render_patches(SETTLED, found.changes)[1] == {
        "status": {"addresses": [{"type": "Hostname", "address": "w1"}]}
    }


def test_the_first_write_does_not_empty_the_addresses_of_a_node_that_shows_some():
    node = replace(INITIAL, provided_ip="", addresses=ADDRESSES)

    found = plan(node, instance=replace(RUNNING, interfaces=()))

    assert RemoveTaint in kinds(found)
    assert SetAddresses not in kinds(found)


@pytest.mark.parametrize(
    ("identity", "words"),
    [(VmUnknown("not known"), "not known"), (VmMissing("old"), "no VirtualMachine has the uid old")],
)
def test_a_fresh_node_without_a_vm_waits(identity, words):
    found = plan(INITIAL, identity, None)

    assert found.changes == ()
    assert words in found.waits_for


# --- upkeep -----------------------------------------------------------------------------------------------------------


def test_a_node_as_it_should_be_is_left_alone():
    assert plan(SETTLED).changes == ()


def test_a_vm_that_migrated_to_another_zone_takes_its_node_along():
    found = plan(SETTLED, instance=replace(RUNNING, zone="z2"))

    assert render_patches(SETTLED, found.changes)[0] == {
        "metadata": {
            "resourceVersion": "7",
            "labels": {ZONE: "z2", ZONE_BETA: "z2"},
            "annotations": {"windrow.io/topology": '{"zone":"z2","region":"r1"}'},
        }
    }


@pytest.mark.parametrize(
    "instance",
    [
        replace(RUNNING, zone="z2", is_migrating=True),
        replace(RUNNING, interfaces=()),
        replace(RUNNING, interfaces=(Interface("nic-1", "enp1s0", ("10.0.0.9",)),)),
        None,
    ],
    ids=["under way", "no report", "a report without the kubelet's address", "no instance"],
)
def test_nothing_is_taken_away_for_want_of_a_report(instance):
    assert plan(SETTLED, instance=instance).changes == ()


def test_a_new_address_is_shown():
    more = replace(RUNNING, interfaces=(Interface("nic-1", "enp1s0", ("10.0.0.1", "10.0.0.2")),))

    assert kinds(plan(SETTLED, instance=more)) == [SetAddresses]


def test_no_address_is_shown_before_it_is_known_which_are_those_of_services():
    more = replace(RUNNING, zone="z2", interfaces=(Interface("nic-1", "enp1s0", ("10.0.0.1", "10.0.0.2")),))
    early = NodeState(SETTLED, FOUND, more, virtual=None)
    late = replace(early, virtual=frozenset())

    assert [kinds(plan_node(seen, Options())) for seen in (early, late)] == [
        [SetLabels, RecordAnnotation],
        [SetLabels, RecordAnnotation, SetAddresses],
    ]


def test_a_zone_that_a_user_chose_stays_where_the_host_has_none():
    node = replace(SETTLED, topology={ZONE: "mine", ZONE_BETA: "other"}, topology_record=None)

    assert plan(node, instance=replace(RUNNING, zone="", region="")).changes == ()


def test_old_topology_keys_bring_the_present_ones():
    node = replace(SETTLED, topology={ZONE_BETA: "z1"}, topology_record=None)

    found = plan(node, instance=replace(RUNNING, zone="", region=""))

    assert found.changes[0].labels == ((ZONE, "z1"),)


def test_an_old_instance_type_brings_the_present_one_and_none_is_invented():
    node = replace(SETTLED, topology={**TOPOLOGY, INSTANCE_TYPE_BETA: "large"})

    assert plan(node).changes[0].labels == ((INSTANCE_TYPE, "large"),)
    assert INSTANCE_TYPE not in labels_after(INITIAL, plan(INITIAL))


def test_topology_that_the_host_has_no_longer_is_taken_away_under_both_keys():
    found = plan(SETTLED, instance=replace(RUNNING, zone="", region=""))

    assert render_patches(SETTLED, found.changes)[0] == {
        "metadata": {
            "resourceVersion": "7",
            "labels": dict.fromkeys((ZONE, ZONE_BETA, REGION, REGION_BETA)),
            "annotations": {"windrow.io/topology": None},
        }
    }


def test_zone_and_region_are_each_others_strangers():
    found = plan(SETTLED, instance=replace(RUNNING, zone=""))

    assert labels_after(SETTLED, found) == {REGION: "r1", REGION_BETA: "r1"}
    assert RecordAnnotation('{"region":"r1"}', "the topology of the VM's host has changed") in found.changes


def test_a_label_that_a_user_changed_stays_when_the_host_has_no_zone_any_more():
    node = replace(SETTLED, topology={**TOPOLOGY, ZONE: "mine"})

    found = plan(node, instance=replace(RUNNING, zone=""))

    assert labels_after(node, found) == {ZONE: "mine", REGION: "r1", REGION_BETA: "r1"}


def test_labels_of_the_go_program_are_adopted_by_a_record_and_not_written_again():
    found = plan(replace(SETTLED, topology_record=None))

    assert kinds(found) == [RecordAnnotation]


def test_a_record_that_cannot_be_read_takes_no_label_away():
    node = replace(SETTLED, topology_record={})

    assert plan(node, instance=replace(RUNNING, zone="", region="")).changes == ()


def test_an_instance_that_has_just_started_is_given_time_before_labels_go():
    bare = replace(RUNNING, zone="", region="")
    early = NodeState(SETTLED, FOUND, bare, known_for=timedelta(seconds=10))
    late = replace(early, known_for=timedelta(seconds=30))

    assert plan_node(early, Options()) == Plan(requeue_after=timedelta(seconds=20))
    assert kinds(plan_node(late, Options())) == [SetLabels, RecordAnnotation]


def test_a_migration_under_way_changes_nothing():
    moving = replace(RUNNING, zone="z2", is_migrating=True)

    assert plan(SETTLED, instance=moving) == Plan()


def test_without_the_vmi_controller_topology_is_set_once():
    assert plan(SETTLED, instance=replace(RUNNING, zone="z2"), disable_vmi_controller=True).changes == ()


# --- lifecycle --------------------------------------------------------------------------------------------------------

NOT_READY = replace(SETTLED, is_ready=False)


@pytest.mark.parametrize(
    ("node", "identity", "instance", "is_gone", "wanted"),
    [
        (SETTLED, VmFound(VM), RUNNING, False, []),
        (replace(SETTLED, taints=(OFF,)), VmFound(VM), RUNNING, False, [RemoveTaint]),
        (NOT_READY, VmFound(VM), RUNNING, False, []),
        (NOT_READY, VmFound(VM), None, False, [AddTaint]),
        (NOT_READY, VmFound(VM), replace(RUNNING, phase="Succeeded"), False, [AddTaint]),
        (replace(NOT_READY, taints=(OFF,)), VmFound(VM), None, False, []),
        (NOT_READY, VmMissing("vm-uid"), None, False, []),
        (NOT_READY, VmMissing("vm-uid"), None, True, [EmitEvent, DeleteNode]),
        (SETTLED, VmMissing("vm-uid"), None, True, []),
        (NOT_READY, VmUnknown("?"), None, True, []),
        (NOT_READY, OtherCloud("k3s://w1"), None, True, []),
        (replace(NOT_READY, is_deleting=True), VmMissing("vm-uid"), None, True, []),
    ],
)
def test_what_the_state_of_a_vm_means_for_its_node(node, identity, instance, is_gone, wanted):
    assert kinds(plan(node, identity, instance, is_gone)) == wanted


@pytest.mark.parametrize(
    ("minutes", "wanted"),
    [(None, [EmitEvent, DeleteNode]), (0, []), (5.99, []), (6, [EmitEvent, DeleteNode])],
)
def test_a_node_out_of_service_stays_for_six_minutes_so_that_its_volumes_are_released(minutes, wanted):
    tainted_for = None if minutes is None else timedelta(minutes=minutes)
    state = NodeState(NOT_READY, VmMissing("vm-uid"), is_gone=True, out_of_service_for=tainted_for)

    assert kinds(plan_node(state, Options())) == wanted


def test_since_when_a_node_is_out_of_service_is_read_and_survives_a_change_of_its_taints():
    taint = {
        "key": "node.kubernetes.io/out-of-service",
        "value": "nodeshutdown",
        "effect": "NoExecute",
        "timeAdded": "2026-01-01T12:00:00Z",
    }
    node = read_node({"metadata": {"name": "w1", "uid": "u"}, "spec": {"taints": [taint]}})
    undated = {"key": taint["key"], "effect": "NoExecute"}

    patch, _ = render_patches(node, [AddTaint(OFF, "VM w1 is off")])

    assert node.out_of_service_since == datetime(2026, 1, 1, 12, tzinfo=UTC)
    assert patch["spec"]["taints"][0] == taint
    assert read_node({"metadata": {"name": "w1"}, "spec": {"taints": [undated]}}).out_of_service_since is None


def test_a_booting_vm_is_not_called_shut_down():
    assert plan(NOT_READY, instance=replace(RUNNING, phase="Scheduling", interfaces=())).changes == ()


def test_controllers_that_are_switched_off_do_nothing():
    only_life = plan(INITIAL, controllers=frozenset({LIFECYCLE_CONTROLLER}))
    only_nodes = plan(NOT_READY, VmMissing("x"), None, True, controllers=frozenset({NODE_CONTROLLER}))

    assert (only_life.changes, only_nodes.changes) == ((), ())
