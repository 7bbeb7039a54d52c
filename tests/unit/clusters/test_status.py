from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

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
    minutes,
    missing,
    nodeless,
    record_of,
    sighted,
    silent,
    some,
    stopped,
    unknown,
    unordered,
    unready,
)

from windrow.app.manifest_checks.changes import OPTION_RULES
from windrow.clusters.api.status import GuestServiceAccount, ReservedName
from windrow.clusters.api.updates.turn import VM_RESTART, MachineUpdate, render_machine_update
from windrow.clusters.plan.actions import Wait
from windrow.clusters.plan.planner import plan_cluster
from windrow.clusters.state import (
    ActionFailure,
    ClusterState,
    MachineState,
    ManagerLease,
    unreachable_reason,
)
from windrow.clusters.status import (
    derive_cluster,
    derive_machine,
    derive_withdrawal,
    find_wait,
    is_boot_step,
    lease_condition,
)
from windrow.clusters.surplus import Progress, find_progress
from windrow.core.clock import format_time
from windrow.kubernetes.conditions import find_condition
from windrow.machines.port import Problem

SERVERS = a_pool("servers", 3, SERVER)
WORKERS = a_pool("workers", 2)


def seen_with(*workers: MachineState, **rest: Any) -> ClusterState:
    machines = [*workers, *some("w", 2, WORKERS)[len(workers) :]]
    return look(a_cluster(SERVERS, WORKERS), [*some("s", 3, SERVERS), *machines], **rest)


def status(seen: ClusterState, **troubles: ActionFailure) -> dict[str, Any]:
    plan = plan_cluster(seen)
    return derive_cluster(seen, plan, find_wait(seen, plan, troubles))


def machine_status(machine: MachineState, **rest: Any) -> dict[str, Any]:
    seen = seen_with(machine, **rest)
    return derive_machine(machine, seen, plan_cluster(seen), {})


def condition(status: dict[str, Any], type: str) -> tuple[str, str, str]:
    found = find_condition(status["conditions"], type)
    assert found is not None
    return found.status, found.reason, found.message


W1 = a_machine("w1", WORKERS)


def test_a_whole_cluster_is_ready_and_waits_for_nothing():
    found = status(seen_with())

    assert (found["ready"], found["phase"], found["waiting"]) == (True, "Ready", None)
    assert [found[f"{one}{kind}"] for kind in ("Servers", "Workers") for one in ("ready", "desired")] == [
        3,
        3,
        2,
        2,
    ]
    assert condition(found, "Ready")[0] == "True"
    assert condition(found, "Accepted") == ("True", "Valid", "")


def test_a_missing_worker_makes_the_cluster_not_ready_and_is_named():
    found = status(seen_with(missing(W1)))

    assert condition(found, "Ready")[:2] == ("False", "Degraded")
    assert (found["phase"], found["readyWorkers"], found["desiredWorkers"]) == ("Degraded", 1, 2)


def test_a_silent_guest_makes_readiness_unknown_not_false():
    found = status(seen_with(guest=silent("connection refused")))

    assert condition(found, "Ready") == ("Unknown", "APIServerUnreachable", "connection refused")


def test_a_refused_cluster_names_all_problems_in_its_condition_and_the_first_as_its_wait():
    problems = (
        Problem("no etcd", "give the role"),
        Problem("no credential; the Secret is gone", "set it; or create it"),
    )
    seen = look(a_newborn(SERVERS), problems=problems)

    found = status(seen)

    assert found["phase"] == "Refused"
    assert condition(found, "Accepted") == (
        "False",
        "Invalid",
        "no etcd; give the role\nno credential, the Secret is gone; set it; or create it",
    )
    assert (
        found["waiting"]["for"]
        == "the spec or Harvester to be corrected: no etcd; give the role (and 1 more)"
    )


def test_what_a_node_says_of_its_kernel_stays_a_condition_of_its_machine():
    well = a_machine("w1", WORKERS)
    assert well.node is not None
    assert find_condition(machine_status(well)["conditions"], "MacvlanAvailable") is None

    there = replace(well, node=replace(well.node, macvlan="available"))
    assert condition(machine_status(there), "MacvlanAvailable") == ("True", "ModuleAvailable", "")

    lacks = replace(well, node=replace(well.node, macvlan="missing"))
    truth, reason, message = condition(machine_status(lacks), "MacvlanAvailable")
    assert (truth, reason) == ("False", "ModuleMissing")
    assert message.startswith(
        "the kernel of Node w1 has no module macvlan, without which kube-vip gets no address by DHCP"
    )
    assert "linux-modules-extra" in message

    # Without the label, and with a value that says nothing, nothing is known; without a Node, what was known stays.
    told = tuple(machine_status(lacks)["conditions"])
    forgets = replace(well, record=replace(well.record, conditions=told))
    assert find_condition(machine_status(forgets)["conditions"], "MacvlanAvailable") is None
    away = machine_status(replace(forgets, node=None))["conditions"]
    assert find_condition(away, "MacvlanAvailable") is not None


@pytest.mark.parametrize(
    ("severities", "shown"),
    [
        (None, None),
        ((), ("True", "Supported", "its versions are in the support matrix")),
        (("warning",), ("True", "SupportedWithWarnings", "too new; read another matrix")),
        (("warning", "error"), ("False", "NotSupported", "too new; read another matrix\ntoo new; read another matrix")),
    ],
)  # fmt: skip
def test_versions_that_do_not_fit_any_more_are_a_condition_and_where_refused_a_warning(severities, shown):
    problems = severities and tuple(
        Problem("too new", "read another matrix", "spec.kubernetesVersion", severity)
        for severity in severities
    )
    found = status(seen_with(version_problems=() if severities == () else problems))

    condition = find_condition(found["conditions"], "VersionsSupported")
    assert shown == (condition and (condition.status, condition.reason, condition.message))
    is_refused = shown is not None and shown[0] == "False"
    assert (shown is not None and shown[2] in (found["warnings"] or ())) == is_refused


def test_what_has_no_effect_stands_in_a_condition_and_among_the_warnings():
    told = Problem("spec.enableNetworkPolicy has no effect: it is so", "leave it", severity="warning")

    found = status(look(a_cluster(SERVERS), problems=(told,)))

    assert condition(found, "Accepted") == ("True", "ValidWithWarnings", str(told))
    assert found["warnings"] == [str(told)]


def test_what_the_preflight_found_stands_in_a_condition_of_its_own():
    seen = look(a_newborn(SERVERS), preflight=(Problem("image i is an ISO", "use a cloud image"),))

    assert condition(status(seen), "PreflightPassed") == (
        "False",
        "Failed",
        "image i is an ISO; use a cloud image",
    )


def test_warnings_are_listed():
    seen = look(a_cluster(SERVERS), problems=(Problem("odd", "even it", severity="warning"),))

    assert status(seen)["warnings"] == ["odd; even it"]


def test_the_date_of_a_wait_stays_while_the_same_thing_is_waited_for():
    seen = seen_with(unready(W1, NOON - minutes(1)))
    first = status(seen)
    again = replace(
        seen, now=NOON + minutes(1), cluster=replace(seen.cluster, recorded=replace(seen.recorded, raw=first))
    )

    assert status(again)["waiting"] == first["waiting"]


def test_trouble_is_what_a_cluster_waits_for():
    trouble = ActionFailure("401 from Harvester", "renew the token")

    assert (
        status(seen_with(), **{"": trouble})["waiting"]["for"]
        == "another attempt (401 from Harvester; renew the token)"
    )


def test_a_skipped_replacement_of_the_last_member_is_a_condition():
    pool = a_pool("pool1", 1, ALL_ROLES)
    seen = look(a_cluster(pool), [stopped(a_machine("s1", pool))], guest=silent())

    assert condition(status(seen), "RemediationAllowed") == (
        "False",
        "LastEtcdMember",
        "s1: replacement skipped: last etcd member",
    )


def test_a_version_changed_after_bootstrap_is_told_with_both_values():
    seen = look(a_cluster(SERVERS, version_wish="v1.36.0+rke2r1"), some("s", 3, SERVERS))

    state, reason, message = condition(status(seen), "UpToDate")

    assert (state, reason) == ("False", "OutOfDate")
    told = "service restart of 3 machines of pool servers: spec.kubernetesVersion v1.35.1+rke2r1 → v1.36.0+rke2r1"
    assert message == told


def test_roles_changed_after_bootstrap_are_named_and_in_the_warnings():
    pool = replace(SERVERS, roles=ALL_ROLES)
    seen = look(a_cluster(pool), [*some("s", 2, SERVERS), a_machine("s3", pool)])

    told = (
        "2 machines of pool servers: spec.rkeConfig.machinePools[servers].workerRole false → true is refused, as the condition "
        "Accepted says"
    )
    assert condition(status(seen), "UpToDate") == ("False", "OutOfDate", told)
    assert status(seen)["warnings"] == [told]
    assert status(look(a_cluster(SERVERS), some("s", 3, SERVERS)))["warnings"] is None


def test_options_changed_after_bootstrap_are_named_with_both_values():
    pool = replace(WORKERS, options={**(WORKERS.options or {}), "cpuCount": "8"})
    seen = look(
        a_cluster(SERVERS, pool), [*some("s", 3, SERVERS), *some("w", 2, WORKERS)], option_rules=OPTION_RULES
    )

    told = "VM restart of 2 machines of pool workers: HarvesterConfig nc-workers: cpuCount 2 → 8"
    assert told in condition(status(seen), "UpToDate")[2]


def test_what_new_machines_alone_get_is_told_and_nothing_waits_for_it():
    pool = replace(WORKERS, options={**(WORKERS.options or {}), "vmNamespace": "other"})
    seen = look(a_cluster(SERVERS, pool), [a_machine("w1", WORKERS)], option_rules=OPTION_RULES)

    state, reason, message = condition(status(seen), "UpToDate")

    assert (state, reason) == ("True", "NewMachinesOnly")
    assert "vmNamespace default → other" in message


def test_a_cluster_is_not_up_to_date_before_its_last_turn_is_over():
    update = MachineUpdate("1-1", VM_RESTART, W1.record.version, "", "Start", NOON)
    in_turn = record_of(W1, status={"update": render_machine_update(update)})
    found = status(seen_with(in_turn))

    assert condition(found, "UpToDate") == ("False", "RollingOut", "not over yet: the turn of w1")
    assert found["pendingChanges"] is None
    assert found["warnings"] is None
    assert condition(status(seen_with()), "UpToDate") == ("True", "UpToDate", "")


def test_a_cluster_is_not_up_to_date_before_the_last_machine_that_is_replaced_is_gone():
    pool = replace(WORKERS, options={**(WORKERS.options or {}), "imageName": "default/other"})

    def found(old: MachineState, **rest: Any) -> tuple[str, str, str]:
        cluster = a_cluster(SERVERS, pool, **rest)
        machines = [*some("s", 3, SERVERS), *some("w", 2, pool), leaving(old)]
        return condition(status(look(cluster, machines, option_rules=OPTION_RULES)), "UpToDate")

    told = "being deleted since they are replaced: w3"
    assert found(a_machine("w3", WORKERS)) == ("False", "RollingOut", told)
    assert found(a_machine("w3", pool))[0] == "True", "it goes, and is as all others are"
    assert found(a_machine("w3", WORKERS), deletion_timestamp=NOON)[0] == "True"


def test_a_cluster_is_not_up_to_date_before_its_upgrade_has_ended():
    new = "v1.36.0+rke2r1"
    machines = [record_of(one, version=new) for one in some("s", 3, SERVERS)]

    told = f"not over yet: the upgrade to {new}, which waits for the charts of the release"
    assert condition(status(look(a_cluster(SERVERS, version_wish=new), machines)), "UpToDate") == (
        "False",
        "RollingOut",
        told,
    )


def test_pending_changes_are_in_the_status_while_there_are_any():
    cluster, machines = a_cluster(SERVERS, version_wish="v1.36.0+rke2r1"), some("s", 3, SERVERS)

    found = status(look(cluster, machines))["pendingChanges"]

    assert (found["summary"], found["turns"]) == ("3 service restart", 3)
    (group,) = found["groups"]
    assert group["machines"] == ["s2", "s3", "s1"]
    assert not {"moreFields", "moreGroups"} & {key for one in (found, group) for key in one}
    assert group["fields"] == [
        {
            "field": "spec.kubernetesVersion",
            "change": "service restart",
            "old": "v1.35.1+rke2r1",
            "new": "v1.36.0+rke2r1",
            "because": "the service starts anew from another binary",
        }
    ]
    assert status(look(a_cluster(SERVERS), machines))["pendingChanges"] is None


def test_pending_changes_of_very_many_machines_pools_and_fields_do_not_break_the_status():
    """An object of etcd has 1.5 MB, and that of a Cluster has more than this."""
    pools = [replace(WORKERS, name=f"pool{number}", config_name="c" * 200) for number in range(100)]
    options = {f"option{number}": "x" * 990 for number in range(1000)}
    asked = [replace(pool, options={**options, "one": pool.name}) for pool in pools]
    machines = [a_machine(f"{pool.name}-{number}", pool) for pool in pools for number in range(10)]

    found = status(look(a_cluster(*asked), machines))

    pending = found["pendingChanges"]
    assert len(json.dumps(pending)) < 200_000
    assert (len(pending["groups"]), pending["moreGroups"], pending["turns"]) == (20, 80, 1000)
    assert pending["groups"][0]["moreFields"] > 900
    assert len(condition(found, "UpToDate")[2]) < 30_000


def test_a_machine_shows_the_version_that_its_kubelet_runs():
    machine = a_machine("s1", SERVERS)
    assert machine.node is not None
    runs = replace(machine, node=replace(machine.node, kubelet_version="v1.35.0+rke2r1"))
    known = record_of(machine, status={"version": "v1.34.9+rke2r1"})

    def derive(one: MachineState) -> dict[str, Any]:
        state = look(a_cluster(SERVERS), [one])
        return derive_machine(one, state, plan_cluster(state), {})

    assert derive(runs)["version"] == "v1.35.0+rke2r1"
    assert derive(known)["version"] == "v1.34.9+rke2r1"


def test_a_cluster_is_provisioned_once_it_was_ready_and_not_before():
    seen = seen_with()
    fresh = replace(
        seen, cluster=replace(seen.cluster, recorded=replace(seen.cluster.recorded, provisioned=False))
    )
    sick = replace(fresh, machines=tuple(unready(one) for one in fresh.machines))

    assert condition(status(fresh), "Provisioned")[0] == "True"
    assert condition(status(sick), "Provisioned")[0] == "False"


def test_that_a_cluster_was_provisioned_is_remembered():
    sick = seen_with(missing(W1))

    assert condition(status(sick), "Provisioned")[0] == "True"


def test_a_tripped_breaker_is_recorded_and_its_release_dated():
    pool = a_pool("workers", 2, max_unhealthy=replace(WORKERS.max_unhealthy, percent=None, count=0))
    seen = look(a_cluster(pool), [unready(a_machine("w1", pool)), a_machine("w2", pool)])
    tripped = status(seen)["pools"][0]["breaker"]
    recorded = replace(seen.recorded, breakers=replace_breakers(tripped))
    released = status(look(a_cluster(pool, recorded=recorded), some("w", 2, pool)))["pools"][0]["breaker"]

    assert tripped == {"tripped": True}
    assert released == {"tripped": False, "released": format_time(NOON)}


def replace_breakers(raw: dict[str, Any]) -> Any:
    from windrow.clusters.api.status import read_recorded_status

    return read_recorded_status({"pools": [{"name": "workers", "breaker": raw}]}).breakers


# -- machines


def test_a_machine_that_is_well_is_ready_and_waits_for_nothing():
    found = machine_status(W1)

    assert (found["phase"], found["waiting"]) == ("Ready", None)
    assert condition(found, "Ready")[0] == "True"
    assert (found["nodeRef"], found["providerID"]) == ({"name": "w1", "uid": "node-w1"}, "harvester://vm-w1")


def phase(machine: MachineState, **rest: Any) -> tuple[str, str]:
    found = machine_status(machine, **rest)
    return found["phase"], found["waiting"]["for"]


def test_each_step_of_a_machine_has_its_phase_and_its_sentence():
    newcomer = nodeless(W1)

    assert phase(unordered(W1)) == ("Pending", "Harvester to accept VirtualMachine default/w1")
    assert phase(sighted(newcomer, state="provisioning", addresses=(), because="claims are unbound")) == (
        "Provisioning",
        "VirtualMachine default/w1 to report an IP address (claims are unbound)",
    )
    assert phase(sighted(newcomer, addresses=(), because="no agent"))[0] == "Provisioning"
    assert phase(newcomer) == ("Provisioning", "VirtualMachine default/w1 (10.0.0.1) to join the cluster")
    assert phase(unknown(unready(W1), "401"))[0] == "Unknown"
    assert phase(missing(W1))[0] == "Missing"
    assert phase(stopped(W1))[0] == "Stopped"
    assert phase(unready(W1))[0] == "NotReady"


def test_sentences_of_a_booting_machine_stay_true_until_the_next_status_that_is_written_at_once():
    created, starting = replace(nodeless(W1), vm=None), sighted(nodeless(W1), state="starting", addresses=())
    init = record_of(nodeless(W1), is_init_server=True)

    for machine in (created, starting):
        assert phase(machine)[0] == "Provisioning"
        assert phase(machine)[1].startswith("VirtualMachine default/w1 to report an IP address")
    seen = look(a_newborn(SERVERS), [init])
    wait = derive_machine(init, seen, plan_cluster(seen), {})["waiting"]
    assert wait["for"] == "VirtualMachine default/w1 (10.0.0.1) to start the cluster"


BOOTING = {"phase": "Provisioning"}
ADDRESSED = {"phase": "Provisioning", "addresses": ["10.0.0.1"]}

# The status before and after, and whether the change may wait.
BOOT_STEPS = {
    "the first status": ({}, BOOTING, False),
    "it starts": (BOOTING, BOOTING | {"host": "host-1"}, True),
    "the first address": (BOOTING, ADDRESSED, False),
    "its Node": (ADDRESSED, ADDRESSED | {"phase": "Joining"}, True),
    "its Node is Ready, not initialized": (ADDRESSED, ADDRESSED | {"phase": "Initializing"}, True),
    "Ready": (ADDRESSED, ADDRESSED | {"phase": "Ready"}, False),
    "its VM stops": (ADDRESSED, ADDRESSED | {"phase": "Stopped"}, False),
}


@pytest.mark.parametrize(("before", "wanted", "may_wait"), BOOT_STEPS.values(), ids=BOOT_STEPS)
def test_the_first_address_and_ready_are_written_at_once_and_what_lies_between_later(
    before, wanted, may_wait
):
    assert is_boot_step(nodeless(W1), before, wanted) is may_wait
    assert not is_boot_step(leaving(nodeless(W1)), before, wanted)


def test_a_ready_node_without_a_provider_id_waits_for_the_cloud_provider():
    assert W1.node is not None
    raw = replace(W1, node=replace(W1.node, provider_id="", uninitialized=True))
    seen = look(a_cluster(WORKERS, cloud_provider="harvester"), [raw, a_machine("w2", WORKERS)])

    found = derive_machine(raw, seen, plan_cluster(seen), {})

    assert (found["phase"], found["waiting"]["for"]) == (
        "Initializing",
        "the cloud provider to initialize Node w1",
    )


def test_a_node_still_shown_as_ready_does_not_hide_that_its_vm_is_gone():
    found = machine_status(replace(missing(W1), node=W1.node))

    assert condition(found, "Ready")[0] == "False"
    assert found["waiting"]["for"] == "Node w1 to become NotReady (VirtualMachine default/w1 not found)"


def test_a_machine_has_joined_once_its_node_was_ready_and_not_before():
    fresh = record_of(W1, conditions=())

    assert find_condition(machine_status(unready(fresh))["conditions"], "Joined") is None
    joined = find_condition(machine_status(fresh)["conditions"], "Joined")
    assert joined is not None
    assert joined.status == "True"


def test_a_machine_shows_the_host_of_its_vm():
    assert machine_status(sighted(W1, host="host-1"))["host"] == "host-1"


def test_the_first_ready_is_remembered_and_earlier_starts_forgiven():
    found = machine_status(record_of(W1, conditions=(), restart_count=2))

    assert condition(found, "Joined")[0] == "True"
    assert found["restartCount"] == 0


def test_the_last_known_address_stays_while_the_agent_is_silent():
    quiet = record_of(sighted(W1, addresses=()), status={"addresses": ["10.0.0.1"]})

    assert machine_status(quiet)["addresses"] == ["10.0.0.1"]


def test_a_trouble_with_the_order_is_part_of_the_sentence():
    raw = unordered(W1)
    seen = seen_with(raw)
    trouble = ActionFailure("the quota is used up", "raise it")

    found = derive_machine(raw, seen, plan_cluster(seen), {"w1": trouble})

    assert (
        found["waiting"]["for"]
        == "Harvester to accept VirtualMachine default/w1 (the quota is used up; raise it)"
    )


def test_long_words_of_others_are_cut():
    words = "container runtime network not ready: NetworkReady=false reason:NetworkPluginNotReady message:Network plugin returns error"
    assert W1.node is not None
    sick = unready(W1)
    assert sick.node is not None
    sick = replace(sick, node=replace(sick.node, ready_message=words))

    assert (
        machine_status(sick)["waiting"]["for"]
        == "Node w1 to become Ready again (container runtime network not ready)"
    )


def test_a_machine_is_dated_anew_when_its_node_falls_ill_while_it_was_initialised():
    waited = {
        "type": "Ready",
        "status": "False",
        "reason": "Initializing",
        "lastTransitionTime": format_time(NOON - minutes(9)),
    }
    found = find_condition(
        machine_status(record_of(unready(W1), conditions=(*W1.record.conditions, waited)))["conditions"],
        "Ready",
    )

    assert found is not None
    assert (found.reason, found.last_transition_time) == ("NotReady", format_time(NOON))


def test_a_failure_that_harvester_has_no_part_in_is_not_told_as_harvesters():
    pull = "Secret fleet-default/pull"
    trouble = ActionFailure(
        f"registry r takes its credentials from {pull}, which does not exist",
        "create it beside the Cluster",
        f"{pull} to be corrected",
    )
    ordered = unordered(a_machine("w1", WORKERS))
    state = look(a_cluster(SERVERS, WORKERS), [*some("s", 3, SERVERS), ordered])

    waiting = derive_machine(ordered, state, plan_cluster(state), {"w1": trouble})["waiting"]

    assert waiting["for"] == (
        f"{pull} to be corrected (registry r takes its credentials from {pull}, which does not exist; create it beside the "
        "Cluster)"
    )


def test_a_watch_that_is_behind_is_a_warning_until_it_has_caught_up():
    never = status(seen_with())
    behind = status(seen_with(stale_watch="VirtualMachine default/s2 is missing on Harvester"))

    assert find_condition(never["conditions"], "WatchesCurrent") is None
    truth, reason, message = condition(behind, "WatchesCurrent")
    assert (truth, reason) == ("False", "WatchBehind")
    assert message.startswith(
        "VirtualMachine default/s2 is missing on Harvester; a silent watch is opened anew"
    )
    assert message in behind["warnings"]

    seen = seen_with()
    recorded = replace(seen.recorded, raw={"conditions": behind["conditions"]})
    later = status(replace(seen, cluster=replace(seen.cluster, recorded=recorded)))
    assert condition(later, "WatchesCurrent") == (
        "True",
        "Current",
        "the watches show what Harvester says",
    )
    assert not later["warnings"]


def recorded_ready(seen: ClusterState, ready: bool) -> ClusterState:
    recorded = replace(seen.cluster.recorded, raw={"ready": ready})
    return replace(seen, cluster=replace(seen.cluster, recorded=recorded))


def test_ready_is_withdrawn_only_where_it_is_written_and_a_vm_is_down():
    def withdrawn(seen: ClusterState, ready: bool = True) -> dict[str, Any]:
        seen = recorded_ready(seen, ready)
        return derive_withdrawal(seen, plan_cluster(seen))

    down = seen_with(stopped(W1))

    assert withdrawn(seen_with()) == {}
    assert withdrawn(down, ready=False) == {}
    assert withdrawn(seen_with(leaving(stopped(W1)))) == {}
    found = withdrawn(down)
    assert (found["ready"], found["phase"]) == (False, "Degraded")
    assert "VirtualMachine default/w1" in found["waiting"]["for"]
    assert condition(found, "Ready") == ("False", "Degraded", f"waiting for {found['waiting']['for']}")


def test_starts_are_forgiven_only_where_there_were_any():
    assert "restartCount" not in machine_status(W1)
    assert machine_status(record_of(W1, restart_count=1))["restartCount"] == 0
    assert "restartCount" not in machine_status(record_of(stopped(W1), restart_count=1))


@pytest.mark.parametrize(
    ("is_paused", "then"),
    [
        (False, "the missing machines are created"),
        (True, "it is completed once the pool is not paused any more"),
    ],
)
def test_a_pool_whose_machines_are_not_made_yet_is_waited_for(is_paused: bool, then: str):
    pool = replace(WORKERS, paused=is_paused)
    seen = look(a_cluster(SERVERS, pool), [*some("s", 3, SERVERS), W1])
    idle = replace(plan_cluster(seen), actions=(), waits=())

    assert find_wait(seen, idle, {}) == Wait(
        "machine pool workers to be complete: 1 of 2 machines are Ready", then
    )
    whole = seen_with()
    assert find_wait(whole, plan_cluster(whole), {}) is None
    fresh = look(a_newborn(pool))
    assert find_wait(fresh, idle, {}) is None
    going = replace(seen, cluster=replace(seen.cluster, deletion_timestamp=NOON))
    assert find_wait(going, idle, {}) is None


@pytest.mark.parametrize(
    ("ends", "machines", "elected", "first"),
    [
        (False, [unready(W1)], True, "of the machine"),
        (False, [], True, "of the cluster"),
        (False, [unready(W1)], False, "of the cluster"),
        (True, [unready(W1)], True, "of the cluster"),
        (True, [leaving(unready(W1))], True, "of the machine"),
    ],
)
def test_what_a_machine_waits_for_is_told_before_what_the_cluster_does_unless_that_ends(
    ends: bool, machines: list[Any], elected: bool, first: str
):
    cluster = a_cluster(SERVERS, WORKERS, deletion_timestamp=NOON if ends else None)
    recorded = replace(cluster.recorded, init_server_uid="uid-s1" if elected else "")
    seen = look(replace(cluster, recorded=recorded), [*some("s", 3, SERVERS), *machines])
    waits = (Wait("of the cluster", "it goes on"), Wait("of the machine", "it goes on", "w1"))

    found = find_wait(seen, replace(plan_cluster(seen), actions=(), waits=waits), {})

    assert found is not None
    assert (found.what == "of the cluster") is (first == "of the cluster")


def test_machines_with_a_void_token_are_named_until_they_are_replaced():
    def told(*earlier: str) -> Any:
        account = GuestServiceAccount("default", "prod", "ns:cc", earlier_token=earlier)
        seen = seen_with()
        recorded = replace(seen.cluster.recorded, service_account=account)
        found = status(replace(seen, cluster=replace(seen.cluster, recorded=recorded)))
        return find_condition(found["conditions"], "GuestCredentialValid")

    void, replaced = told("w2", "w1", "gone"), told("gone")

    assert (void.status, void.reason) == ("False", "TokenVoid")
    assert "these Machines hold its earlier token" in void.message
    assert ": w1, w2; have them replaced" in void.message
    assert (replaced.status, replaced.reason) == ("True", "Valid")
    assert told() is None


def test_names_that_are_reserved_stand_in_the_status_until_their_machines_are_made():
    seen = look(a_cluster(SERVERS, WORKERS), some("s", 3, SERVERS), reserved=False)
    recorded = replace(seen.cluster.recorded, creating=(ReservedName("workers", "prod-workers-a"),))
    reserving = replace(seen, cluster=replace(seen.cluster, recorded=recorded))

    assert status(seen)["creating"] is None
    assert status(reserving)["creating"] == [{"pool": "workers", "name": "prod-workers-a"}]


def test_a_lease_that_another_held_is_told_until_it_is_held_again():
    def told(lease: ManagerLease, had: bool) -> tuple[str, str] | None:
        before = [{"type": "LeaseHeld", "status": "False", "reason": "AnotherManager"}]
        seen = seen_with(lease=lease)
        recorded = replace(seen.cluster.recorded, raw={"conditions": before if had else []})
        found = lease_condition(replace(seen, cluster=replace(seen.cluster, recorded=recorded)))
        return found and (found.status, found.reason)

    taken = ManagerLease("taken", "default/windrow-1", "another")
    assert told(taken, had=False) == told(taken, had=True) == ("False", "AnotherManager")
    assert told(ManagerLease("held"), had=True) == ("True", "Held")
    assert told(ManagerLease("held"), had=False) is None
    assert told(ManagerLease("pending"), had=True) is None
    unguarded = ManagerLease("unguarded", "default/windrow-1", because="forbidden")
    assert told(unguarded, had=False) == ("Unknown", "NotAllowed")


def test_a_cluster_is_not_ready_before_it_has_started_whatever_its_machines_are():
    seen = look(a_newborn(WORKERS), some("w", 2, WORKERS))

    assert condition(status(seen), "Ready")[:2] == ("False", "InProgress")


def test_a_guest_that_is_silent_for_no_known_reason_is_told_so():
    assert unreachable_reason(silent("refused")) == "refused"
    assert unreachable_reason(silent("")) == "the guest API does not answer"


def test_what_is_at_the_left_of_joining_is_that_no_node_ever_was():
    fresh = nodeless(W1)
    node_gone = replace(W1, node=None)
    never_ready = record_of(unready(W1), conditions=())

    def progress(machine: MachineState) -> Progress:
        return find_progress(machine, seen_with(machine))

    assert progress(fresh) == Progress.NOT_JOINED
    assert progress(node_gone) == progress(never_ready) == progress(unready(W1)) == Progress.NOT_READY
