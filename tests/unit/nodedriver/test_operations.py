"""What a host of docker-machine orders, over a whole emulated Harvester, counted and interrupted."""

from __future__ import annotations

import base64
import itertools
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.stories.harvester_rig import a_vm
from tests.unit.nodedriver.api_double import ApiDouble
from tests.unit.nodedriver.api_double import refusal as answer
from tests.unit.nodedriver.harvester_rig import NAME, Crash, HarvesterRig, a_machine, a_rig

from windrow.core.formats.json import dumps
from windrow.core.rng import Rng
from windrow.harvester.identity import ssh_key_digest
from windrow.harvester.names import (
    CLUSTER_UID,
    CREATOR,
    GUEST_CLUSTER,
    MACHINE_UID,
    REMOVE_ALL_CLAIMS,
    REMOVED_CLAIMS,
    SSH_KEY,
    VM_NAME,
)
from windrow.harvester.resources import IMAGE, VM, VMI
from windrow.kubernetes.errors import KubeError, OutcomeUnknown, ServerError, Unreachable
from windrow.kubernetes.objects import annotations_of, uid_of
from windrow.kubernetes.resources import PVC, SECRET
from windrow.nodedriver.config import Configuration
from windrow.nodedriver.config_json import dump, load
from windrow.nodedriver.effects import WaitHopeless, WaitTimeout
from windrow.nodedriver.errors import MachineNotFound, NotRunning, Refused
from windrow.nodedriver.flags import with_machine_uid
from windrow.nodedriver.go_errors import error_text
from windrow.nodedriver.operations import (
    create_and_wait,
    get_ip,
    get_ipv6,
    get_state,
    get_url,
    kill_and_wait,
    pre_create_check,
    restart_and_wait,
    start_and_wait,
    stop_and_wait,
)
from windrow.nodedriver.vm.remove import remove_and_wait
from windrow.protocols.dockermachine import ERROR, RUNNING, STARTING, STOPPED, STOPPING

REF = VM.ref(NAME, "default")
VMI_REF = VMI.ref(NAME, "default")
BOOTSTRAP = "#cloud-config\nruncmd: [install]\n"


@pytest.fixture
def rig() -> Iterator[HarvesterRig]:
    with a_rig() as rig:
        yield rig


def created_machine(rig: HarvesterRig, configuration: Configuration | None = None) -> Configuration:
    made: Configuration = rig.run(create_and_wait(configuration or a_machine(), BOOTSTRAP))
    return made


def refusal(rig: HarvesterRig, operation: Any) -> str:
    with pytest.raises(Refused) as refused:
        rig.run(operation)
    return error_text(refused.value, "X")


# --- how much is asked ---------------------------------------------------------------------------------------------


def test_check_and_creation_ask_six_times(rig: HarvesterRig) -> None:
    machine = a_machine()
    checked, calls = rig.run_logged(pre_create_check(machine))
    made, more = rig.run_logged(create_and_wait(machine, BOOTSTRAP, checked))

    assert calls + more == [
        f"GET virtualmachines/{NAME}",
        "GET virtualmachineimages/jammy",
        "GET network-attachment-definitions/vlan50",
        "POST default/virtualmachines",
        "POST default/secrets",
        f"WATCH virtualmachineinstances/{NAME}",
    ]
    assert made.ip_address.startswith("192.168.50.")
    assert made.vm_uid == uid_of(rig.get(REF))


def test_each_further_object_is_asked_for_once(rig: HarvesterRig) -> None:
    disks = [
        {"imageName": "default/jammy", "size": 40},
        {"imageName": "default/jammy", "size": 50},
        {"storageClassName": "harvester-longhorn", "size": 10},
    ]
    nics = [{"networkName": "default/vlan50"}, {"networkName": "vlan50"}]
    machine = a_machine(
        disk_info=dumps({"disks": disks}).decode(), network_info=dumps({"interfaces": nics}).decode()
    )
    checked, calls = rig.run_logged(pre_create_check(machine))
    _, more = rig.run_logged(create_and_wait(machine, BOOTSTRAP, checked))
    assert len(calls + more) == 7


def test_a_creation_without_a_check_before_it_looks_its_image_up_itself(rig: HarvesterRig) -> None:
    _, calls = rig.run_logged(create_and_wait(a_machine(), BOOTSTRAP))
    assert calls[0] == "GET virtualmachineimages/jammy"
    assert len(calls) == 4


def test_a_removal_asks_three_times(rig: HarvesterRig) -> None:
    made = created_machine(rig)
    _, calls = rig.run_logged(remove_and_wait(made))
    assert calls == [
        f"PATCH virtualmachines/{NAME}",
        f"DELETE virtualmachines/{NAME}",
        f"WATCH virtualmachines/{NAME}",
    ]
    assert rig.orphans() == []


@pytest.mark.parametrize("ask", [get_state, get_ip, get_url])
def test_a_question_asks_twice(rig: HarvesterRig, ask: Any) -> None:
    made = created_machine(rig)
    assert len(rig.run_logged(ask(made))[1]) == 2


def test_starts_and_stops_ask_three_times_and_a_restart_four(rig: HarvesterRig) -> None:
    made = created_machine(rig)
    asked = [
        len(rig.run_logged(operation(made))[1])
        for operation in (stop_and_wait, start_and_wait, restart_and_wait, kill_and_wait, start_and_wait)
    ]
    assert asked == [3, 3, 4, 3, 3]


# --- a machine's life ----------------------------------------------------------------------------------------------


def test_states_and_addresses_through_a_machine_s_life(rig: HarvesterRig) -> None:
    made = created_machine(rig)
    assert rig.run(get_state(made)) == RUNNING
    assert rig.run(get_ip(made)) == made.ip_address
    assert rig.run(get_url(made)) == f"tcp://{made.ip_address}:2376"

    rig.run(stop_and_wait(made))
    assert rig.run(get_state(made)) == STOPPED
    with pytest.raises(NotRunning, match=r"^Host is not running$"):
        rig.run(get_ip(made))

    assert rig.run(start_and_wait(made)).ip_address == made.ip_address
    rig.run(remove_and_wait(made))
    with pytest.raises(MachineNotFound) as gone:
        rig.run(get_state(made))
    assert error_text(gone.value, "GetState") == f'virtualmachines.kubevirt.io "{NAME}" not found'


def test_what_is_so_already_is_done(rig: HarvesterRig) -> None:
    made = created_machine(rig)
    rig.run(start_and_wait(made))
    rig.run(stop_and_wait(made))
    rig.run(stop_and_wait(made))
    rig.run(kill_and_wait(made))
    rig.run(restart_and_wait(made))
    assert rig.run(get_state(made)) == RUNNING


def test_a_restart_ends_with_another_instance(rig: HarvesterRig) -> None:
    made = created_machine(rig)
    before = uid_of(rig.get(VMI_REF))
    rig.run(restart_and_wait(made))
    assert uid_of(rig.get(VMI_REF)) != before


def test_a_guest_that_powered_itself_off_is_stopped_and_can_be_stopped_and_started() -> None:
    with a_rig() as rig:
        made = created_machine(rig)
        rig.guests[-1].end("poweroff")
        rig.pause(30)
        assert rig.run(get_state(made)) == STOPPED
        rig.run(stop_and_wait(made))
        rig.run(start_and_wait(made))
        assert rig.run(get_state(made)) == RUNNING


def test_a_hanging_guest_is_killed_at_once() -> None:
    with a_rig(hangs=True) as rig:
        made = created_machine(rig)
        before = rig.now()
        rig.run(kill_and_wait(made))
        assert rig.now() - before < timedelta(seconds=20)
        assert rig.run(get_state(made)) == STOPPED


def test_a_machine_without_an_agent_is_waited_for_and_the_reason_told() -> None:
    with a_rig(agent=False) as rig:
        with pytest.raises(WaitTimeout) as late:
            rig.run(create_and_wait(a_machine(), BOOTSTRAP))
        assert error_text(late.value, "Create") == (
            "too many retries waiting for get machine's ip.  Last error: "
            "it runs, and no address is reported: its guest agent has not answered yet"
        )
        with pytest.raises(Exception, match="has no address yet"):
            rig.run(get_ip(a_machine()))
        rig.run(remove_and_wait(a_machine()))
        assert rig.orphans() == []


def test_what_is_made_is_known_before_it_has_an_address() -> None:
    with a_rig(agent=False) as rig:
        kept: list[Configuration] = []
        with pytest.raises(WaitTimeout):
            rig.run(create_and_wait(a_machine(), BOOTSTRAP, save=kept.append))
        assert [made.vm_uid for made in kept] == [uid_of(rig.get(REF))]


def test_a_machine_that_is_removed_by_another_user_during_its_creation_is_not_waited_for(
    rig: HarvesterRig,
) -> None:
    rig.after[4] = lambda: rig.delete(REF)
    machine = a_machine()
    rig.run(pre_create_check(machine))
    with pytest.raises(WaitHopeless, match=r"removing the VM|the VM is gone"):
        rig.run(create_and_wait(machine, BOOTSTRAP))


# --- configurations and hosts --------------------------------------------------------------------------------------


def test_a_machine_outlives_the_process_in_what_its_host_keeps(rig: HarvesterRig) -> None:
    made = created_machine(rig)
    kept = load(dump(made), Configuration())
    assert kept == made
    rig.run(remove_and_wait(kept))
    assert rig.orphans() == []


def test_what_the_host_kept_before_a_creation_that_failed_suffices_to_remove_it(rig: HarvesterRig) -> None:
    machine = a_machine()
    created_machine(rig, machine)
    assert rig.names(VM) == [NAME]
    _, calls = rig.run_logged(remove_and_wait(machine))
    assert calls[0] == f"GET virtualmachines/{NAME}"
    assert rig.orphans() == []


def test_user_data_carries_no_agent_and_the_key_that_the_plugin_made(rig: HarvesterRig) -> None:
    created_machine(rig, replace(a_machine(), ssh_public_key="ssh-rsa AAAA\n"))
    secret = rig.get(SECRET.ref(f"{NAME}-cloudinit", "default"))
    document = base64.b64decode(secret["data"]["userdata"]).decode()
    assert document == "#cloud-config\nruncmd:\n- install\nssh_authorized_keys:\n- ssh-rsa AAAA\n"


# --- interruptions -------------------------------------------------------------------------------------------------


def interrupted(rig: HarvesterRig, operation: Any, step: int, when: str) -> None:
    def die() -> None:
        raise Crash

    getattr(rig, when)[len(rig.requests) + step] = die
    with pytest.raises(Crash):
        rig.run(operation)


def checked_creation(machine: Configuration) -> Any:
    checked = yield from pre_create_check(machine, BOOTSTRAP)
    return (yield from create_and_wait(machine, BOOTSTRAP, checked))


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("step", range(6))
def test_after_a_crash_anywhere_the_next_creation_continues(rig: HarvesterRig, step: int, when: str) -> None:
    machine = a_machine()
    interrupted(rig, checked_creation(machine), step, when)
    made = rig.run(checked_creation(machine))

    assert rig.names(VM) == [NAME]
    assert rig.names(PVC) == list(made.claims)
    assert rig.run(get_ip(made)) == made.ip_address


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("step", range(6))
def test_after_a_crash_anywhere_a_removal_leaves_nothing(rig: HarvesterRig, step: int, when: str) -> None:
    machine = a_machine()
    interrupted(rig, checked_creation(machine), step, when)
    rig.run(remove_and_wait(machine))
    assert rig.orphans() == []


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("step", range(3))
def test_a_removal_that_was_cut_off_is_finished_by_the_next(rig: HarvesterRig, step: int, when: str) -> None:
    made = created_machine(rig)
    interrupted(rig, remove_and_wait(made), step, when)
    rig.run(remove_and_wait(made))
    assert rig.orphans() == []


@pytest.mark.parametrize("step", [3, 4])
def test_an_answer_that_was_lost_on_the_way_back_changes_nothing(rig: HarvesterRig, step: int) -> None:
    def lose() -> None:
        raise OutcomeUnknown("connection reset")

    rig.after[step] = lose
    made = rig.run(checked_creation(a_machine()))
    assert rig.names(VM) == [NAME]
    assert rig.run(get_state(made)) == RUNNING


FAULTS: dict[str, tuple[str, Callable[[], BaseException]]] = {
    "dies before": ("before", Crash),
    "dies after": ("after", Crash),
    "not sent": ("before", lambda: Unreachable("connection refused")),
    "answer lost": ("after", lambda: OutcomeUnknown("connection reset")),
    "server fails": ("before", lambda: ServerError("etcdserver: request timed out", status=500)),
}


def retry_until_done(rig: HarvesterRig, order_: Callable[[], Any], faults: list[str]) -> Any:
    """Give an order until it succeeds, while the first requests fare as `faults` say."""

    def failing(error: Callable[[], BaseException]) -> Callable[[], None]:
        def fail() -> None:
            raise error()

        return fail

    for step, fault in enumerate(faults):
        if fault in FAULTS:
            when, error = FAULTS[fault]
            getattr(rig, when)[len(rig.requests) + step] = failing(error)
    for _ in range(len(faults) + 1):
        with suppress(Crash, KubeError):
            done = rig.run(order_())
            rig.before.clear()  # what it did not need as many requests for
            rig.after.clear()
            return done
    raise AssertionError("it never succeeds")


fates = st.lists(st.sampled_from(["fine", *FAULTS]), max_size=12)


@pytest.mark.parametrize("examples", [15, pytest.param(100, marks=pytest.mark.long)])
def test_whatever_happens_on_the_way_one_machine_comes_to_be_and_nothing_stays(examples: int) -> None:
    @settings(max_examples=examples)
    @given(fates, fates)
    def check(create_requests: list[str], remove_requests: list[str]) -> None:
        with a_rig() as rig:
            rig.create(VM, a_vm("neighbour"))
            machine = a_machine()
            made = retry_until_done(rig, lambda: checked_creation(machine), create_requests)
            assert rig.names(VM) == [NAME, "neighbour"]
            assert sum(name.startswith(NAME) for name in rig.names(PVC)) == 1
            assert f"{NAME}-cloudinit" in rig.names(SECRET)
            assert rig.run(get_state(made)) == RUNNING

            retry_until_done(rig, lambda: remove_and_wait(made), remove_requests)
            assert [name for name in rig.orphans() if "neighbour" not in name] == []
            assert "neighbour" in rig.names(VM)

    check()


# --- whose VM it is ------------------------------------------------------------------------------------------------

OWN_OR_NOT: list[Callable[[Configuration], Any]] = [
    start_and_wait,
    stop_and_wait,
    kill_and_wait,
    restart_and_wait,
    get_state,
    get_ip,
]


def go_written(made: Configuration) -> Configuration:
    """The configuration as the Go driver would have written it."""
    return replace(made, machine_uid="", vm_uid="", claims=(), cluster_uid="")


def test_a_name_that_is_taken_is_told_in_go_s_words(rig: HarvesterRig) -> None:
    rig.create(VM, a_vm(NAME))
    assert (
        refusal(rig, pre_create_check(a_machine())) == f"machine {NAME} already exists in namespace default"
    )
    assert (
        refusal(rig, create_and_wait(a_machine(), BOOTSTRAP))
        == f"machine {NAME} already exists in namespace default"
    )
    assert rig.names(SECRET) == []


def test_a_check_goes_on_where_this_very_machine_was_begun(rig: HarvesterRig) -> None:
    machine = a_machine()
    created_machine(rig, machine)
    rig.run(pre_create_check(machine))
    assert "already exists" in refusal(rig, pre_create_check(a_machine(seed=2)))


@pytest.mark.parametrize("operation", OWN_OR_NOT)
def test_no_order_touches_the_vm_of_another_machine(rig: HarvesterRig, operation: Any) -> None:
    created_machine(rig)
    begun = len(rig.requests)
    text = refusal(rig, operation(a_machine(seed=2)))
    assert "is not this machine's" in text
    assert "not found" not in text
    assert all(call.startswith("GET") for call in rig.requests[begun:])


@pytest.mark.parametrize("owner", ["another machine", "another user"])
def test_a_removal_leaves_the_vm_of_another_alone_and_is_done(rig: HarvesterRig, owner: str) -> None:
    if owner == "another user":
        rig.create(VM, a_vm(NAME))
    else:
        created_machine(rig)
    before = rig.get(REF)["spec"], rig.names(PVC), rig.names(SECRET)
    rig.run(remove_and_wait(a_machine(seed=2)))
    assert (rig.get(REF)["spec"], rig.names(PVC), rig.names(SECRET)) == before
    assert REMOVED_CLAIMS not in annotations_of(rig.get(REF))


def test_a_machine_that_is_gone_is_removed_also_where_nothing_else_may_be_read() -> None:
    api = ApiDouble()
    api.answer("GET", f"{NAME}-cloudinit", answer(403, "Forbidden", "may not"))
    api.run(remove_and_wait(a_machine()))
    assert any("may not be read" in note for note in api.log_lines)


def test_a_vm_that_lost_its_marks_is_not_removed_and_the_cure_told(rig: HarvesterRig) -> None:
    made = created_machine(rig)
    rig.patch(REF, {"metadata": {"annotations": {MACHINE_UID: None}}})
    assert "but not its owner annotations" in refusal(rig, remove_and_wait(made))
    assert REMOVED_CLAIMS not in annotations_of(rig.get(REF))


def test_a_vm_made_anew_from_a_backup_is_still_the_machine_s(rig: HarvesterRig) -> None:
    made = created_machine(rig)
    rig.run(remove_and_wait(replace(made, vm_uid="that-of-the-vm-before-the-restore")))
    assert rig.orphans() == []


def test_a_machine_of_the_go_driver_is_known_by_its_labels_and_removed_with_its_disks(
    rig: HarvesterRig,
) -> None:
    made = created_machine(rig)
    rig.patch(REF, {"metadata": {"annotations": {MACHINE_UID: None}}})
    ours = go_written(made)
    assert rig.run(get_state(ours)) == RUNNING
    _, calls = rig.run_logged(remove_and_wait(ours))
    assert len(calls) == 4
    assert rig.orphans() == []


def by_go(rig: HarvesterRig, made: Configuration, step: str) -> Configuration:
    """The step by the Go driver, which annotates nothing and saves its own keys only."""
    if step == "create":
        rig.patch(REF, {"metadata": {"annotations": {MACHINE_UID: None}}})
    return go_written(made)


@pytest.mark.parametrize("who", list(itertools.product(("go", "ours"), repeat=3)), ids="-".join)
def test_a_machine_lives_on_whichever_driver_has_it(rig: HarvesterRig, who: tuple[str, ...]) -> None:
    """Each order of two drivers over a machine's life: who creates it, who stops it, who starts it; ours removes it."""
    made = created_machine(rig, a_machine(cluster_name="c1"))
    made = by_go(rig, made, "create") if who[0] == "go" else made
    rig.run(stop_and_wait(made))
    assert rig.run(get_state(made)) == STOPPED
    made = by_go(rig, made, "stop") if who[1] == "go" else made
    made = rig.run(start_and_wait(made))
    made = by_go(rig, made, "start") if who[2] == "go" else made
    assert rig.run(get_ip(made)) == made.ip_address
    assert rig.run(get_state(made)) == RUNNING

    rig.run(remove_and_wait(made))
    assert rig.orphans() == []


def test_a_record_that_the_go_driver_rewrote_does_not_cost_the_machine(rig: HarvesterRig) -> None:
    made = go_written(created_machine(rig))
    assert rig.run(get_state(made)) == RUNNING
    rig.run(remove_and_wait(made))
    assert rig.orphans() == []


KEYS = ("ssh-rsa QUFB old", "ssh-rsa QkJC new")


def test_a_record_without_uid_is_of_the_machine_whose_ssh_key_it_has(rig: HarvesterRig) -> None:
    made = created_machine(rig, replace(a_machine(), ssh_public_key=KEYS[1]))
    assert annotations_of(rig.get(REF))[SSH_KEY] == ssh_key_digest("ssh-rsa QkJC another comment\n")
    kept = go_written(made)
    assert kept.ssh_public_key == KEYS[1]
    rig.run(stop_and_wait(kept))
    rig.run(remove_and_wait(kept))
    assert rig.orphans() == []


def test_a_record_without_uid_of_an_earlier_machine_of_the_name_leaves_the_vm_alone(
    rig: HarvesterRig,
) -> None:
    """Same name, namespace and cluster: only the key that its host made tells the two apart."""
    created_machine(rig, replace(a_machine(), ssh_public_key=KEYS[1]))
    earlier = go_written(replace(a_machine(), ssh_public_key=KEYS[0], ip_address="192.168.50.9"))
    for operation in (get_state, stop_and_wait):
        text = refusal(rig, operation(earlier))
        assert "exists and is not this machine's" in text
    rig.run(remove_and_wait(earlier))
    assert rig.names(VM) == [NAME]
    assert REMOVED_CLAIMS not in annotations_of(rig.get(REF))


def test_a_vm_without_the_digest_is_known_by_name_and_cluster_as_before(rig: HarvesterRig) -> None:
    made = created_machine(rig, replace(a_machine(), ssh_public_key=KEYS[1]))
    rig.patch(REF, {"metadata": {"annotations": {SSH_KEY: None}}})
    rig.run(remove_and_wait(go_written(made)))
    assert rig.orphans() == []


def test_a_volume_that_was_plugged_into_a_machine_survives_a_record_without_uid(rig: HarvesterRig) -> None:
    made = created_machine(rig)
    a_claim(rig, "data", "c1")
    volumes = rig.get(REF)["spec"]["template"]["spec"]["volumes"]
    rig.patch(
        REF,
        {
            "spec": {
                "template": {
                    "spec": {
                        "volumes": [
                            *volumes,
                            {"name": "data", "persistentVolumeClaim": {"claimName": "data"}},
                        ]
                    }
                }
            }
        },
    )
    rig.run(remove_and_wait(go_written(made)))
    assert rig.orphans() == ["data"]


@pytest.mark.parametrize(
    "change",
    [
        {"annotations": {CLUSTER_UID: "c-1"}},
        {"labels": {GUEST_CLUSTER: "another"}},
        {"labels": {VM_NAME: "another"}},
        {"labels": {CREATOR: None}},
    ],
    ids=["a cluster manager's", "another cluster's", "another name", "no label"],
)
def test_a_record_without_uid_proves_nothing_about_a_vm_that_differs(
    rig: HarvesterRig, change: dict[str, Any]
) -> None:
    made = created_machine(rig, a_machine(cluster_name="c1"))
    rig.patch(REF, {"metadata": change})
    for operation in (remove_and_wait, stop_and_wait, get_state):
        refusal(rig, operation(go_written(made)))
    assert rig.names(VM) == [NAME]
    assert REMOVED_CLAIMS not in annotations_of(rig.get(REF))


def test_a_vm_that_may_or_may_not_be_the_go_driver_s_is_left_alone_and_named(rig: HarvesterRig) -> None:
    foreign = a_vm(NAME)
    foreign["metadata"]["labels"] = {"harvesterhci.io/creator": "harvester"}
    rig.create(VM, foreign)
    text = refusal(rig, remove_and_wait(go_written(a_machine())))
    assert "lacks the label harvesterhci.io/creator" in text
    assert rig.names(VM) == [NAME]


# --- disks ---------------------------------------------------------------------------------------------------------


def test_a_disk_that_was_moved_to_another_vm_survives_its_first_machine(rig: HarvesterRig) -> None:
    made = created_machine(rig)
    annotation: list[str] = []
    spec = rig.get(REF)["spec"]
    volumes = [volume for volume in spec["template"]["spec"]["volumes"] if volume["name"] != "disk-0"]
    disks = [
        disk for disk in spec["template"]["spec"]["domain"]["devices"]["disks"] if disk["name"] != "disk-0"
    ]
    rig.patch(
        REF, {"spec": {"template": {"spec": {"volumes": volumes, "domain": {"devices": {"disks": disks}}}}}}
    )
    rig.before[len(rig.requests) + 2] = lambda: annotation.append(
        annotations_of(rig.get(REF)).get(REMOVED_CLAIMS, "")
    )
    _, calls = rig.run_logged(remove_and_wait(made))
    assert len(calls) == 4
    assert annotation == [""]
    assert rig.orphans() == list(made.claims)


def test_a_volume_that_was_plugged_into_a_machine_of_the_go_driver_survives_it(rig: HarvesterRig) -> None:
    made = created_machine(rig)
    a_claim(rig, "data", "c1")
    volumes = rig.get(REF)["spec"]["template"]["spec"]["volumes"]
    plugged = {"name": "data", "persistentVolumeClaim": {"claimName": "data", "hotpluggable": True}}
    rig.patch(
        REF,
        {
            "metadata": {"annotations": {MACHINE_UID: None}},
            "spec": {"template": {"spec": {"volumes": [*volumes, plugged]}}},
        },
    )
    rig.run(remove_and_wait(go_written(made)))
    assert rig.orphans() == ["data"]


def a_claim(rig: HarvesterRig, name: str, cluster: str) -> None:
    rig.create(
        PVC,
        {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": {
                "name": name,
                "namespace": "default",
                "labels": {"guestcluster.harvesterhci.io/name": cluster},
            },
            "spec": {
                "accessModes": ["ReadWriteMany"],
                "resources": {"requests": {"storage": "1Gi"}},
                "storageClassName": "harvester-longhorn",
                "volumeMode": "Block",
            },
        },
    )


def test_the_volumes_of_a_cluster_that_goes_go_with_its_machines(rig: HarvesterRig) -> None:
    made = created_machine(rig)
    a_claim(rig, "of-the-cluster", "c1")
    a_claim(rig, "of-another", "c2")
    rig.patch(REF, {"metadata": {"annotations": {REMOVE_ALL_CLAIMS: "true"}}})
    _, calls = rig.run_logged(remove_and_wait(made))
    assert len(calls) == 5
    assert rig.orphans() == ["of-another"]


def test_without_a_cluster_name_no_volume_of_others_goes(rig: HarvesterRig) -> None:
    made = created_machine(rig, a_machine(cluster_name=""))
    a_claim(rig, "unmarked", "")
    rig.patch(REF, {"metadata": {"annotations": {REMOVE_ALL_CLAIMS: "true"}}})
    rig.run(remove_and_wait(made))
    assert rig.orphans() == ["unmarked"]


# --- names ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["m", "a-b", "c1"])
def test_a_name_with_few_dashes_makes_a_machine_too(rig: HarvesterRig, name: str) -> None:
    made = created_machine(rig, a_machine(name))
    labels = rig.get(made.ref)["metadata"]["labels"]
    assert labels["harvesterhci.io/machineSetName"] == f"default-{name}"
    assert rig.run(get_state(made)) == RUNNING


# --- checks --------------------------------------------------------------------------------------------------------


def test_everything_that_is_wrong_is_told_at_once_the_taken_name_first(rig: HarvesterRig) -> None:
    rig.create(VM, a_vm(NAME))
    rig.delete(IMAGE.ref("jammy", "default"))
    rig.pause(5)  # Harvester's controller has a finalizer on it
    text = refusal(rig, pre_create_check(a_machine()))
    assert text.startswith(f"machine {NAME} already exists in namespace default; image default/jammy ")


def test_faults_in_user_data_and_bootstrap_are_told_before_anything_is_asked(rig: HarvesterRig) -> None:
    text = refusal(rig, pre_create_check(a_machine(), "- a list\n"))
    assert "not found" not in text
    assert rig.requests == []


def test_a_machine_is_starting_until_it_runs(rig: HarvesterRig) -> None:
    machine = a_machine()
    interrupted(rig, create_and_wait(machine, BOOTSTRAP), 3, "before")
    assert rig.run(get_state(machine)) == STARTING


@pytest.mark.parametrize("status", [401, 403, 500])
def test_an_unclear_answer_is_not_taken_for_a_free_name(status: int) -> None:
    api = ApiDouble()
    api.answer("GET", f"virtualmachines/{NAME}", answer(status, "", "no"))
    with pytest.raises(KubeError):
        api.run(pre_create_check(a_machine()))


@pytest.mark.parametrize(
    ("vm", "vmi", "number"),
    [
        ({"printableStatus": "Provisioning"}, None, STARTING),
        ({"printableStatus": "Starting"}, {"phase": "Pending"}, STARTING),
        ({"printableStatus": "Running"}, {"phase": "Running"}, RUNNING),
        ({"printableStatus": "Migrating"}, {"phase": "Running", "migrationState": {}}, RUNNING),
        ({"printableStatus": "Stopping"}, {"phase": "Running"}, STOPPING),
        ({"printableStatus": "Stopped"}, {"phase": "Succeeded"}, STOPPED),
        ({"printableStatus": "Stopped"}, None, STOPPED),
        ({"printableStatus": "Stopped", "runStrategy": ""}, None, STOPPED),  # KubeVirt before 1.3
        ({"printableStatus": "CrashLoopBackOff"}, None, ERROR),
    ],
)
def test_every_state_has_docker_machine_s_number(vm: Any, vmi: Any, number: int) -> None:
    machine = a_machine()
    mark = {"annotations": {MACHINE_UID: machine.machine_uid}}
    status = {"runStrategy": "RerunOnFailure", **vm}
    api = ApiDouble((REF, {"metadata": mark, "spec": {"runStrategy": "RerunOnFailure"}, "status": status}))
    if vmi:
        api.put(VMI_REF, {"status": vmi})
    assert api.run(get_state(machine)) == number


SIX = {"phase": "Running", "interfaces": [{"name": "nic-0", "ipAddresses": ["fe80::1", "fd00::5"]}]}
BOTH = {"phase": "Running", "interfaces": [{"name": "nic-0", "ipAddresses": ["fd00::5", "10.0.0.5"]}]}


@pytest.mark.parametrize(
    ("status", "ip", "url"),
    [(SIX, "fd00::5", "tcp://[fd00::5]:2376"), (BOTH, "10.0.0.5", "tcp://10.0.0.5:2376")],
)
def test_ipv4_comes_first_and_ipv6_will_do(status: Any, ip: str, url: str) -> None:
    machine = a_machine()
    mark = {"annotations": {MACHINE_UID: machine.machine_uid}}
    api = ApiDouble((REF, {"metadata": mark}), (VMI_REF, {"status": status}))
    assert api.run(get_ip(machine)) == ip
    assert api.run(get_ipv6(machine)) == "fd00::5"
    assert api.run(get_url(machine)) == url


def test_a_machine_without_ipv6_says_so_in_go_s_words(rig: HarvesterRig) -> None:
    made = created_machine(rig)
    assert refusal(rig, get_ipv6(made)) == "IPv6 address is not set"


def test_a_uid_is_given_once() -> None:
    machine = a_machine()
    assert machine.machine_uid
    assert with_machine_uid(machine, Rng(9)) == machine
