"""Status: derived once, at the end, from the observed state and the plan.

Conditions, events, CLI and dashboard print the same sentences, and all of them are made here or come from the plan.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from windrow.clusters.api import names
from windrow.clusters.api.cluster import Pool
from windrow.clusters.api.machine import INFRASTRUCTURE_READY, format_roles
from windrow.clusters.change.describe import render_pending
from windrow.clusters.change.pending import pending_changes
from windrow.clusters.change.revisions import list_revisions
from windrow.clusters.change.rollout import list_canaries
from windrow.clusters.plan.actions import HeldDisruption, Wait
from windrow.clusters.plan.diagnosis import Diagnosis
from windrow.clusters.plan.disruptions import HOLDS_ALL_DATA, LAST_ETCD_MEMBER, is_tripped
from windrow.clusters.plan.endpoint import (
    find_join_server,
    find_join_server_of,
    find_stable_api_url,
    has_lost_join_server,
    list_api_servers,
)
from windrow.clusters.plan.endpoint_balancers import describe_problem
from windrow.clusters.plan.names import list_reserved
from windrow.clusters.plan.operations import restore
from windrow.clusters.plan.operations.certificates import (
    CERTIFICATES_VALID,
    describe_credential_end,
    find_end,
    find_first_end,
)
from windrow.clusters.plan.operations.conditions import (
    SNAPSHOT_CREATED,
    SNAPSHOT_RESTORED,
    operation_conditions,
)
from windrow.clusters.plan.planner import Plan
from windrow.clusters.plan.unrecorded import MAX_NAMED, decide, describe_claims, describe_held
from windrow.clusters.plan.updates.gates import has_turn
from windrow.clusters.state import (
    INITIALIZING,
    STALLED,
    ActionFailure,
    ClusterState,
    MachineState,
    Node,
    unreachable_reason,
)
from windrow.clusters.updates.host_conditions import HOSTS_AVAILABLE, hosts_condition, with_host_available
from windrow.clusters.updates.status import (
    ROLLING_OUT,
    UP_TO_DATE,
    UPDATING,
    is_api_away_for_update,
    rolling_out_condition,
    up_to_date_condition,
    with_updating,
)
from windrow.core.clock import format_time
from windrow.core.text import join_some
from windrow.harvester.names import MACVLAN_AVAILABLE
from windrow.harvester.problems import MACVLAN_CURE, join_problems
from windrow.kubernetes.conditions import Condition, ConditionStatus, find_condition, set_condition
from windrow.kubernetes.kubectl import render_kubectl

WATCHES_CURRENT = "WatchesCurrent"
WATCH_HINT = (
    "a silent watch is opened anew within two minutes; where it stays so, look at the proxy or load balancer between this "
    "manager and Harvester, which must pass on each event at once"
)

Failures = Mapping[str, ActionFailure]  # by machine name; "" is the cluster's own

# -- one machine -------------------------------------------------------------------------------------------------


def derive_machine(
    machine: MachineState, state: ClusterState, plan: Plan, failures: Failures
) -> dict[str, Any]:
    """The derived fields of a Machine's status. `driverConfig`, `restartCount` and `lastRestartTime` belong to actions."""
    before = machine.record.status
    diagnosis = plan.diagnoses[machine.name]
    wait = find_machine_wait(machine, plan, failures)
    status: dict[str, Any] = {
        "phase": diagnosis.phase,
        "roles": format_roles(machine.record.roles),
        "conditions": _machine_conditions(diagnosis, wait, machine, state),
        "waiting": _render_wait(wait, before, state),
    }
    vm, node = machine.vm, machine.node
    if vm is not None and vm.presence == "present":
        # An address that is not reported for a while (no agent) is still the last one known.
        claimed = [claim.address for claim in machine.addresses]
        status["addresses"] = list(vm.addresses) or before.get("addresses") or claimed
        status["host"] = vm.host
    if node is not None:
        status["nodeRef"] = {"name": node.name, "uid": node.uid}
        status["version"] = node.kubelet_version or before.get("version")
        status["providerID"] = node.provider_id
    if (end := find_end(machine, state)) is not None:
        status["certificatesExpiryDate"] = format_time(end)
    if machine.is_ready and machine.record.restart_count:
        status["restartCount"] = 0
    return status


def list_status_inputs(
    machine: MachineState, state: ClusterState, plan: Plan, failures: Failures
) -> tuple[object, ...]:
    """What `derive_machine` derives from: while that is equal, so is the status, but for the date of what changes in it."""
    return (
        machine,
        plan.diagnoses[machine.name],
        find_machine_wait(machine, plan, failures),
        state.guest.is_reachable,
        find_join_server_of(machine, state).state,
        find_end(machine, state),
    )


# The phases that a booting machine passes through while all is well.
_BOOT_PHASES = ("Provisioning", "Joining", INITIALIZING)


def is_boot_step(machine: MachineState, before: Mapping[str, Any], wanted: Mapping[str, Any]) -> bool:
    """Whether the status `wanted` of a booting machine brings neither its first address nor Ready, nor any trouble."""
    if machine.is_deleting or not {before.get("phase"), wanted["phase"]} <= set(_BOOT_PHASES):
        return False
    return bool(before.get("addresses")) or not wanted.get("addresses")


# What only an action knows. The rest is observed again after a crash, the Node and its providerID included: nothing
# concludes from a `nodeRef` that is not there, see `ClusterState.is_etcd_member`.
_LEARNED_FIELDS = ("driverConfig", "restartCount", "lastRestartTime")


def is_learned(change: Mapping[str, Any]) -> bool:
    """Whether the change of a Machine's status holds what a crash must not lose, so that it is never held back."""
    return any(change.get(key) for key in _LEARNED_FIELDS)


def _machine_conditions(
    diagnosis: Diagnosis, wait: Wait | None, machine: MachineState, state: ClusterState
) -> list[dict[str, Any]]:
    ready = _machine_ready(diagnosis, wait, machine, state)
    conditions: list[Mapping[str, Any]] = list(machine.record.conditions)
    before = machine.record.find_condition("Ready")
    if before is not None and before.reason == INITIALIZING != ready.reason:
        # Both are "False", but only now its Node is not Ready; remediation counts from the date.
        conditions = [raw for raw in conditions if raw.get("type") != "Ready"]
    if machine.record.was_created and machine.record.provisioned is None:
        created = Condition(INFRASTRUCTURE_READY, "True", "Provisioned", "its VM was created")
        conditions = [*set_condition(conditions, created, state.now)]
    made = set_condition(conditions, ready, state.now)
    if machine.is_ready and not machine.record.was_ready:
        joined = Condition("Joined", "True", "NodeReady", "its Node was Ready for the first time")
        made = set_condition(made, joined, state.now)
    if diagnosis.phase == STALLED:
        lost = Condition(
            names.JOIN_SERVER_EXISTS, "False", "ServerLost", "no server has the address that it joins through"
        )
        made = set_condition(made, lost, state.now)
    elif machine.record.find_condition(names.JOIN_SERVER_EXISTS) is not None and (
        machine.node is not None or not has_lost_join_server(machine, state)
    ):
        reason = "ServerExists" if machine.node is None else "Joined"
        made = set_condition(made, Condition(names.JOIN_SERVER_EXISTS, "True", reason, ""), state.now)
    if machine.vm is not None and machine.vm.host_ready is False and not machine.is_ready:
        failed = Condition(names.HOST_READY, "False", "HostNotReady", f"host {machine.vm.host} is not Ready")
        made = set_condition(made, failed, state.now)
    elif machine.is_ready and machine.record.find_condition(names.HOST_READY) is not None:
        made = set_condition(made, Condition(names.HOST_READY, "True", "HostReady", ""), state.now)
    if machine.node is not None and machine.node.macvlan:
        made = set_condition(made, _macvlan_condition(machine.node), state.now)
    elif machine.node is not None:  # its label says nothing, or is gone
        made = [raw for raw in made if raw.get("type") != names.MACVLAN_AVAILABLE]
    return with_updating(with_host_available(made, machine, state), machine, wait, state)


def _macvlan_condition(node: Node) -> Condition:
    if node.macvlan == MACVLAN_AVAILABLE:
        return Condition(names.MACVLAN_AVAILABLE, "True", "ModuleAvailable", "")
    return Condition(
        names.MACVLAN_AVAILABLE,
        "False",
        "ModuleMissing",
        f"the kernel of Node {node.name} has no module macvlan, without which kube-vip gets no address by DHCP; {MACVLAN_CURE}",
    )


def _machine_ready(
    diagnosis: Diagnosis, wait: Wait | None, machine: MachineState, state: ClusterState
) -> Condition:
    if diagnosis.phase == "Ready":
        return Condition("Ready", "True", "Ready", "")
    truth: ConditionStatus = "False"
    if diagnosis.phase == "Unknown" or (machine.record.has_joined and not state.guest.is_reachable):
        truth = "Unknown"
    return Condition("Ready", truth, diagnosis.phase, f"waiting for {wait.what}" if wait else "")


def find_machine_wait(machine: MachineState, plan: Plan, failures: Failures) -> Wait | None:
    """What one machine waits for: another attempt, permission for a disruption, else what its diagnosis says."""
    name, diagnosis, failure = machine.name, plan.diagnoses[machine.name], failures.get(machine.name)
    turn = None if machine.record.update is None or machine.is_deleting else plan.waits_by_machine.get(name)
    if failure is None and turn is not None:
        return turn
    if diagnosis.phase == "Ready" and not _concerns_ready(failure, machine):
        return None
    if failure is not None:
        what = "another attempt" if machine.record.was_created else diagnosis.waiting_for
        what = failure.waits_for or what
        return Wait(f"{what} ({failure.message}; {failure.hint})", diagnosis.next, name)
    held = plan.held_by_machine.get(name)
    if name in plan.started:
        note = f" ({held.because})" if held else ""
        return Wait(f"{machine.vm_ref} to start{note}", "its Node becomes Ready again", name)
    if held is not None:
        return Wait(_held_wait(held), _held_next_step(held), name)
    if machine.is_deleting:
        planned = plan.waits_by_machine.get(name)
        if planned is not None:
            return replace(planned, then=planned.then or diagnosis.next)
    return Wait(diagnosis.waiting_for, diagnosis.next, name)


def _held_wait(held: HeldDisruption) -> str:
    if held.because == LAST_ETCD_MEMBER:
        return f"Machine {held.disruption.machine} to recover ({held})"
    if held.because.startswith(HOLDS_ALL_DATA):
        return f"another etcd member to join before Machine {held.disruption.machine} is deleted ({held.because})"
    return f"Machine {held.disruption.machine} to be allowed to go ({held.because})"


def held_sentence(held: HeldDisruption) -> str:
    """What events say of a disruption that may not happen now; conditions add what a person can do."""
    return f"{held.disruption.machine}: {held.because}"


def _held_next_step(held: HeldDisruption) -> str:
    match held.disruption.kind:
        case "replace" if held.because == LAST_ETCD_MEMBER:
            return "its Node becomes Ready again"
        case "replace":
            return "the machine is replaced"
        case "scale-down" | "roll":
            return "the machine is deleted"
        case "remove-member":
            last = held.because.startswith(HOLDS_ALL_DATA)
            return "the machine is deleted" if last else "its etcd member is removed"
        case "update":
            return "it is updated"


def _render_wait(wait: Wait | None, before: Mapping[str, Any], state: ClusterState) -> dict[str, Any] | None:
    """The wait as the status has it; its date stays while the same thing is waited for."""
    if wait is None:
        return None
    old = before.get("waiting") or {}
    since = old.get("since") if old.get("for") == wait.what else None
    return {"for": wait.what, "since": since or format_time(state.now), "next": wait.then}


# Every pool has its machines, and those that are too many may not go yet.
SCALING_DOWN = "ScalingDown"

# -- the cluster -------------------------------------------------------------------------------------------------


# What a person has to decide or know while the cluster runs; a list of conditions is not read.
_WARNING_CONDITIONS = (
    "VersionsSupported",
    "LeaseHeld",
    "VMsRecorded",
    "AddressesUnique",
    "GuestCredentialValid",
    "EndpointReady",
    WATCHES_CURRENT,
    SNAPSHOT_CREATED,
    SNAPSHOT_RESTORED,
    CERTIFICATES_VALID,
    UP_TO_DATE,
    ROLLING_OUT,
    HOSTS_AVAILABLE,
)


def _is_under_way(condition: Condition) -> bool:
    """Whether it is False for a change that goes on by itself, of which there is nothing to decide."""
    return (condition.type, condition.reason) == (UP_TO_DATE, ROLLING_OUT)


def derive_cluster(state: ClusterState, plan: Plan, wait: Wait | None) -> dict[str, Any]:
    """The derived fields of a Cluster's status. The fields of `RecordedStatus` belong to actions."""
    before = state.recorded.raw
    ready = _ready_condition(state, plan, wait)
    conditions, found = before.get("conditions"), _conditions(state, plan, ready)
    for condition in found:
        conditions = set_condition(conditions, condition, state.now)
    warnings = [str(problem) for problem in state.problems if problem.severity == "warning"]
    warnings += [
        one.message
        for one in found
        if one.type in _WARNING_CONDITIONS
        and one.status == "False"
        and one.message
        and not _is_under_way(one)
    ]
    if ending := describe_credential_end(state):
        warnings.append(ending)
    return {
        "observedGeneration": state.cluster.generation,
        "observedMachineConfigs": dict(state.cluster.config_generations) or None,
        "ready": ready.status == "True",
        "phase": _phase(state, plan, ready),
        **_count_machines(state),
        "pools": [_pool_summary(pool, state) for pool in state.cluster.pools],
        "endpoint": _endpoint(state),
        "certificatesExpiryDate": format_time(first[1]) if (first := find_first_end(state)) else None,
        "clientSecretName": names.kubeconfig_name(state.cluster.name)
        if state.guest.published_server
        else None,
        "warnings": warnings or None,
        "waiting": _render_wait(wait, before, state),
        "revisions": list_revisions(state) or None,
        "canaries": sorted(list_canaries(state)) or None,
        "pendingChanges": render_pending(pending_changes(state)),
        "creating": [{"pool": one.pool, "name": one.name} for one in list_reserved(state)] or None,
        "conditions": conditions,
    }


def derive_withdrawal(state: ClusterState, plan: Plan) -> dict[str, Any]:
    """What an earlier process wrote and is certainly not so any more, before every source has answered this one: Ready,
    where Harvester shows that the VM of a machine does not run; {} where there is nothing to withdraw."""
    before = state.recorded.raw
    down = [machine for machine in _by_importance(state) if machine.is_down and not machine.is_deleting]
    if not down or before.get("ready") is not True:
        return {}
    wait = find_machine_wait(down[0], plan, {})
    ready = Condition("Ready", "False", "Degraded", f"waiting for {wait.what}" if wait else "")
    return {
        "ready": False,
        "phase": "Degraded",
        "waiting": _render_wait(wait, before, state),
        "conditions": set_condition(before.get("conditions"), ready, state.now),
    }


def _endpoint(state: ClusterState) -> dict[str, str]:
    apis = list_api_servers(state)
    shown = {
        "server": find_join_server(state),
        "api": find_stable_api_url(state) or state.guest.published_server or (apis[0] if apis else ""),
    }
    return {
        "mode": state.cluster.control_plane_endpoint.mode,
        **{key: value for key, value in shown.items() if value},
    }


def _concerns_ready(failure: ActionFailure | None, machine: MachineState) -> bool:
    """Whether a machine that is Ready waits for what has failed: its turn, or what only a user corrects."""
    return failure is not None and (machine.record.update is not None or bool(failure.waits_for))


def find_wait(state: ClusterState, plan: Plan, failures: Failures) -> Wait | None:
    """The one thing that the cluster waits for now: the most general first, then its servers, then its workers."""
    if plan.refused:
        message = plan.refused[0]
        more = f" (and {len(plan.refused) - 1} more)" if len(plan.refused) > 1 else ""
        return Wait(f"the spec or Harvester to be corrected: {message}{more}", "the cluster is built")
    if state.credential_problems:
        problem = state.credential_problems[0]
        return Wait(
            f"{'a valid Harvester credential' if problem.is_rejected else 'Harvester to be reachable'}: {problem}",
            _after_credential_fixed(state),
        )
    if state.lease.state == "taken" and plan.waits:
        return plan.waits[0]
    if failure := failures.get(""):
        what = failure.waits_for or "another attempt"
        return Wait(f"{what} ({failure.message}; {failure.hint})", "reconciliation resumes")
    waits = [
        wait for machine in _by_importance(state) if (wait := find_machine_wait(machine, plan, failures))
    ]
    general = [wait for wait in plan.waits if not wait.machine]
    # What machines wait for is more precise than that a pool is incomplete.
    # Of a Cluster that is deleted the machines wait for the same until they are deleted, too.
    is_ending = state.cluster.deletion_timestamp is not None and not state.deleting
    is_ending = is_ending or restore.is_exclusive(state)
    if general and (is_ending or not (waits and state.recorded.init_server_uid)):
        return general[0]
    if waits:
        more = f" (and {len(waits) - 1} more)" if len(waits) > 1 else ""
        return Wait(f"{waits[0].what}{more}", waits[0].then)
    return general[0] if general else _wait_of_pools(state) or _wait_of_scale_down(plan)


def _after_credential_fixed(state: ClusterState) -> str:
    if state.cluster.deletion_timestamp is not None:
        return "its VMs are deleted" if state.machines else "what remains of it on Harvester is deleted"
    return "reconciliation resumes; until then no machine is replaced"


def _wait_of_pools(state: ClusterState) -> Wait | None:
    """That of a pool whose missing machines have no Machine yet."""
    if not state.recorded.initialized or state.cluster.deletion_timestamp is not None:
        return None
    for pool in state.cluster.pools:
        ready = _count_initialized(pool, state)
        if ready < pool.quantity:
            return Wait(
                f"machine pool {pool.name} to be complete: {ready} of {pool.quantity} machines are Ready",
                "it is completed once the pool is not paused any more"
                if pool.paused
                else "the missing machines are created",
            )
    return None


def _wait_of_scale_down(plan: Plan) -> Wait | None:
    """That of a machine which is Ready and too many."""
    held = next((held for held in plan.held if held.disruption.kind not in ("replace", "update")), None)
    return Wait(_held_wait(held), _held_next_step(held)) if held else None


def _by_importance(state: ClusterState) -> list[MachineState]:
    first = state.recorded.init_server_uid
    return sorted(
        state.machines,
        key=lambda m: (
            m.record.uid != first,
            not m.record.is_server,
            m.is_deleting,
            m.record.created,
            m.name,
        ),
    )


def _list_errors(state: ClusterState) -> list[str]:
    """What is refused, with the way that a pending change names where both have the same fault."""
    found = [one for one in state.problems if one.severity == "error"]
    by_message = {one.message: one for one in (*found, *pending_changes(state).refused)}
    return [str(one) for one in by_message.values()]


def _conditions(state: ClusterState, plan: Plan, ready: Condition) -> list[Condition]:
    accepted = Condition("Accepted", "True", "Valid")
    if errors := _list_errors(state):
        accepted = Condition("Accepted", "False", "Invalid", join_problems(errors))
    elif state.problems:
        warnings = join_problems(state.problems)
        accepted = Condition("Accepted", "True", "ValidWithWarnings", warnings)
    answered = "the guest API server has not answered yet"
    initialized = Condition("Initialized", "False", "WaitingForAPIServer", answered)
    if state.recorded.initialized:
        answered = "the guest API server has answered"
        initialized = Condition("Initialized", "True", "APIServerReachable", answered)
    provisioned = Condition("Provisioned", "False", "InProgress", ready.message)
    if state.recorded.provisioned or ready.status == "True":
        provisioned = Condition("Provisioned", "True", "Complete", "every machine has been Ready")
    checked = filter(
        None,
        (
            _preflight_condition(state),
            credential_condition(state),
            _guest_credential_condition(state),
            unrecorded_condition(state),
            address_condition(state),
            lease_condition(state),
            _watch_condition(state),
            _endpoint_condition(state),
            _versions_condition(state),
            rolling_out_condition(state, plan.waits),
            hosts_condition(state),
        ),
    )
    pending = up_to_date_condition(state)
    asked = operation_conditions(state)
    return [
        accepted,
        *checked,
        *asked,
        initialized,
        provisioned,
        pending,
        _remediation_condition(state, plan),
        ready,
    ]


def _preflight_condition(state: ClusterState) -> Condition | None:
    if state.preflight is None:
        return None  # the condition stays
    if state.preflight:
        sentences = join_problems(state.preflight)
        if any(problem.severity == "error" for problem in state.preflight):
            return Condition("PreflightPassed", "False", "Failed", sentences)
        return Condition("PreflightPassed", "True", "PassedWithWarnings", sentences)
    return Condition("PreflightPassed", "True", "Passed", "Harvester has what the machines need")


def credential_condition(state: ClusterState) -> Condition | None:
    """Whether Harvester accepts the cluster's credentials; None while they were not probed."""
    if state.credential_problems is None:
        return None  # the condition stays
    if not state.credential_problems:
        accepted = "Harvester accepts the credential"
        if ending := describe_credential_end(state):
            return Condition("CredentialValid", "True", "ExpiresSoon", f"{accepted}; {ending}")
        return Condition("CredentialValid", "True", "Valid", accepted)
    sentences = join_problems(state.credential_problems)
    if not all(problem.is_allowed for problem in state.credential_problems):
        return Condition("CredentialValid", "False", "NotAllowed", sentences)
    if state.is_on_another_harvester:
        return Condition("CredentialValid", "False", "AnotherHarvester", sentences)
    if any(problem.is_rejected for problem in state.credential_problems):
        return Condition("CredentialValid", "False", "Rejected", sentences)
    return Condition("CredentialValid", "Unknown", "Unverified", sentences)


def unrecorded_condition(state: ClusterState) -> Condition | None:
    """Whether a Machine records each VM of the cluster; None where there was never one without, or that is unknown."""
    held, claims = decide(state).held, state.unrecorded_claims
    if held or claims:
        sentences = [describe_held(held)] if held else []
        sentences += [describe_claims(claims)] if claims else []
        reason = "UnrecordedVMs" if held else "UnrecordedDisks"
        return Condition("VMsRecorded", "False", reason, "; ".join(sentences))
    before = find_condition(state.recorded.raw.get("conditions"), "VMsRecorded")
    if before is None or state.unrecorded is None or state.cluster.deletion_timestamp is not None:
        return None  # the condition stays
    return Condition("VMsRecorded", "True", "Recorded", "a Machine records each VM of the cluster")


def address_condition(state: ClusterState) -> Condition | None:
    """Whether no VM of the cluster has an address that an IPAddress gives to another machine; None where none ever had."""
    if state.contested:
        named = join_some(state.contested, MAX_NAMED, "; ")
        message = f"an address is given twice: {named}; delete one of the two, a machine with its VM"
        return Condition("AddressesUnique", "False", "AddressContested", message)
    before = find_condition(state.recorded.raw.get("conditions"), "AddressesUnique")
    is_known = state.unrecorded is not None and state.is_held_known
    if before is None or not is_known or state.cluster.deletion_timestamp is not None:
        return None  # the condition stays
    return Condition(
        "AddressesUnique", "True", "Unique", "no VM of the cluster has an address of another machine"
    )


def lease_condition(state: ClusterState) -> Condition | None:
    """Whether no other manager holds the Lease on Harvester; None where none ever did, or that is unknown."""
    lease = state.lease
    if lease.state == "taken":
        return Condition(
            "LeaseHeld",
            "False",
            "AnotherManager",
            f"{lease} on Harvester is held by manager {lease.holder}, which has a copy of this manager's state, so this one "
            "creates, changes and deletes nothing; stop the one that is not to go on: this manager continues within four "
            "minutes after the other has stopped",
        )
    if lease.state == "unguarded" and lease.because:
        return Condition(
            "LeaseHeld",
            "Unknown",
            "NotAllowed",
            f"{lease} on Harvester would keep a manager with a copy of this one's state from acting, and its credential may not "
            f"use it ({lease.because}); let its user get, create and update leases.coordination.k8s.io in that namespace",
        )
    before = find_condition(state.recorded.raw.get("conditions"), "LeaseHeld")
    if before is None or lease.state != "held":
        return None  # the condition stays
    return Condition("LeaseHeld", "True", "Held", "this manager holds its Lease on Harvester")


def _watch_condition(state: ClusterState) -> Condition | None:
    """Whether the watches of Harvester show what it says when it is asked; None where they have always done so."""
    if state.stale_watch:
        return Condition(WATCHES_CURRENT, "False", "WatchBehind", f"{state.stale_watch}; {WATCH_HINT}")
    if find_condition(state.recorded.raw.get("conditions"), WATCHES_CURRENT) is None:
        return None
    return Condition(WATCHES_CURRENT, "True", "Current", "the watches show what Harvester says")


def _endpoint_condition(state: ClusterState) -> Condition | None:
    """Whether the LoadBalancer of the endpoint passes on to servers; None where there is none, or that is unknown."""
    if state.balancers is None or not state.recorded.initialized or state.cluster.deletion_timestamp:
        return None  # the condition stays
    reason, problem = describe_problem(state)
    if problem:
        return Condition("EndpointReady", "False", reason, problem)
    return Condition("EndpointReady", "True", "Ready", "its LoadBalancer passes on to its servers")


def _versions_condition(state: ClusterState) -> Condition | None:
    """Whether the versions of a cluster that runs still go together; before, the preflight says so."""
    found = state.version_problems
    if found is None:
        return None  # the condition stays
    if any(problem.severity == "error" for problem in found):
        return Condition("VersionsSupported", "False", "NotSupported", join_problems(found))
    if found:
        return Condition("VersionsSupported", "True", "SupportedWithWarnings", join_problems(found))
    return Condition("VersionsSupported", "True", "Supported", "its versions are in the support matrix")


def _guest_credential_condition(state: ClusterState) -> Condition | None:
    """Whether its machines hold the present token of the guest's ServiceAccount; None while it was never created again."""
    account = state.recorded.service_account
    if account is None or not account.earlier_token:
        return None
    holders = [machine.name for machine in state.active if machine.name in account.earlier_token]
    if not holders:
        return Condition("GuestCredentialValid", "True", "Valid", "each machine holds the present token")
    command = f"annotate machine {holders[0]} {names.REPLACE_NOW}="
    return Condition(
        "GuestCredentialValid",
        "False",
        "TokenVoid",
        f"ServiceAccount {account} was deleted on Harvester and created again; these Machines hold its earlier token, with "
        f"which cloud provider and CSI driver cannot reach Harvester: {', '.join(holders)}; have them replaced one after "
        f"the other: {render_kubectl(command, state.cluster.namespace)}",
    )


def _remediation_condition(state: ClusterState, plan: Plan) -> Condition:
    if state.cluster.remediation_disabled:
        return Condition(
            "RemediationAllowed",
            "False",
            "Disabled",
            f"annotation {names.REMEDIATION} disables remediation",
        )
    held = [held for held in plan.held if held.disruption.kind == "replace"]
    if not held:
        return Condition("RemediationAllowed", "True", "Allowed")
    reason = "LastEtcdMember" if held[0].because == LAST_ETCD_MEMBER else "Restricted"
    sentences = "; ".join(f"{one.disruption.machine}: {one}" for one in held)
    return Condition("RemediationAllowed", "False", reason, sentences)


def _ready_condition(state: ClusterState, plan: Plan, wait: Wait | None) -> Condition:
    sentence = f"waiting for {wait.what}" if wait else ""
    if state.cluster.deletion_timestamp is not None:
        return Condition("Ready", "False", "Deleting", sentence)
    if plan.refused and not state.recorded.initialized:
        return Condition("Ready", "False", "Refused", join_problems(plan.refused))
    if state.recorded.initialized and not state.guest.is_reachable:
        if state.credential_problems:
            return Condition("Ready", "Unknown", "InfrastructureUnreachable", sentence)
        if is_api_away_for_update(state):
            return Condition("Ready", "False", UPDATING, sentence)
        return Condition("Ready", "Unknown", "APIServerUnreachable", unreachable_reason(state.guest))
    if state.recorded.initialized and all_ready(state):
        if any(held.disruption.kind not in ("replace", "update") for held in plan.held):
            return Condition("Ready", "False", SCALING_DOWN, sentence)
        return Condition("Ready", "True", "MachinesReady", "every machine is Ready")
    return Condition("Ready", "False", "Degraded" if state.recorded.provisioned else "InProgress", sentence)


def all_ready(state: ClusterState) -> bool:
    """Whether every pool has all the machines it asks for, each of them complete."""
    return bool(state.cluster.pools) and all(
        _count_initialized(pool, state) >= pool.quantity for pool in state.cluster.pools
    )


def _count_initialized(pool: Pool, state: ClusterState) -> int:
    return sum(1 for machine in state.of_pool(pool) if state.is_initialized(machine))


def _phase(state: ClusterState, plan: Plan, ready: Condition) -> str:
    if state.cluster.deletion_timestamp is not None:
        return "Deleting"
    if plan.refused:
        return "Refused"
    if ready.status == "True":
        return "Ready"
    if ready.reason == SCALING_DOWN:
        return SCALING_DOWN
    if any(has_turn(machine) for machine in state.active):
        return UPDATING
    if state.recorded.provisioned:
        return "Degraded"
    if state.recorded.initialized:
        return "Joining"
    return "Provisioning" if state.recorded.init_server_uid else "Pending"


def _count_machines(state: ClusterState) -> dict[str, int]:
    """`readyServers`, `desiredServers`, `readyWorkers`, `desiredWorkers`."""
    counts: dict[str, int] = {}
    for name, servers in (("Servers", True), ("Workers", False)):
        pools = [pool for pool in state.cluster.pools if pool.is_server is servers]
        counts[f"ready{name}"] = sum(_count_initialized(pool, state) for pool in pools)
        counts[f"desired{name}"] = sum(pool.quantity for pool in pools)
    return counts


def _pool_summary(pool: Pool, state: ClusterState) -> dict[str, Any]:
    summary: dict[str, Any] = {
        "name": pool.name,
        "desired": pool.quantity,
        "current": len(state.of_pool(pool)),
        "ready": _count_initialized(pool, state),
    }
    if breaker := _render_breaker(pool, state):
        summary["breaker"] = breaker
    return summary


def _render_breaker(pool: Pool, state: ClusterState) -> dict[str, Any]:
    """The breaker of a pool that has tripped, and since when it is released."""
    before = state.recorded.breakers.get(pool.name)
    if state.recorded.initialized and state.guest.is_reachable and is_tripped(pool, state):
        return {"tripped": True}
    if before is None:
        return {}
    if not state.guest.is_reachable and before.released is None:
        return {"tripped": True}  # nothing is known that would release it
    return {"tripped": False, "released": format_time(before.released or state.now)}
