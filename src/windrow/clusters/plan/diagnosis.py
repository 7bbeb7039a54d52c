"""Diagnosis of one machine by its Node in the guest and its VM on Harvester: the one that the plan and the status share.

`RULES`, at the end, is the truth table, first match wins; `None` matches everything:

    Node      Ready (its guest API server answers and says so), NotReady (was Ready before), NeverReady
    VM        unknown, missing, stopped (or failed), changing (starting, stopping, migrating ...), running
    host      failed, ok (or not visible with this credential)

A finding names what to do next; how long it is waited for first depends on the pool's timeouts. Only our own times
count: since when a Node is not Ready is recorded in the Machine, so that a guest with a wrong clock, or a restart of
the controller, changes nothing. While the guest API server does not answer, only what may always be repeated is done:
starting a VM.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Literal

from windrow.clusters.api.cluster import STARTUP_TIMEOUT, Pool
from windrow.clusters.api.names import HOST_READY, JOIN_SERVER_EXISTS, REMEDIATION, REPLACE_NOW
from windrow.clusters.plan.actions import first_clause
from windrow.clusters.plan.addresses import describe_shortage
from windrow.clusters.plan.endpoint import find_stable_join_url, has_lost_join_server
from windrow.clusters.plan.hosts.hold import find_hold
from windrow.clusters.state import (
    INITIALIZING,
    STALLED,
    STOPPED_STATES,
    ClusterState,
    MachineState,
    once_per_state,
    unreachable_reason,
)
from windrow.core.formats.duration import human_duration

HOST_FAILURE_TIMEOUT = timedelta(minutes=15)
# kube-scheduler's words for a pod whose volumes are on another node.
CANNOT_MOVE = "volume node affinity conflict"
# Harvester's words for a VM that it halts.
OVER_QUOTA = "insufficient resources due to resource quota"
START_TIMEOUT = timedelta(minutes=2)
# A controller that was away probes the init server's API for as long before it has the machine replaced.
API_PROBE_PERIOD = timedelta(minutes=2)
# A machine that had reached the server before it was lost becomes a Node within this time; any other never will.
JOIN_SERVER_LOST_TIMEOUT = timedelta(minutes=3)

NodeReadiness = Literal["Ready", "NotReady", "NeverReady"]
VmCondition = Literal["unknown", "missing", "stopped", "changing", "running"]
HostCondition = Literal["failed", "ok"]


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """The state of one machine: its phase, what it waits for, and whether remediation must act.

    `health` is "stopped" where its VM must be started and "unhealthy" where the machine must be replaced, for the
    reason `because`. A wait ends by itself at `until`.
    """

    phase: str
    health: Literal["healthy", "waiting", "stopped", "unhealthy"] = "waiting"
    waiting_for: str = ""
    next: str = ""
    because: str = ""
    until: datetime | None = None


Diagnoses = Mapping[str, Diagnosis]  # by the name of the machine


def diagnose_all(state: ClusterState) -> Diagnoses:
    return {machine.name: diagnose(machine, state) for machine in state.machines}


def diagnose(machine: MachineState, state: ClusterState) -> Diagnosis:
    """The diagnosis of a machine, whether it is being deleted, not created yet, booting or running."""
    pool = state.cluster.find_pool(machine.pool) or Pool(machine.pool)
    if machine.is_deleting:
        found = _waiting("Deleting", f"Machine {machine.name} to be deleted", "its finalizer is removed")
    elif not machine.record.was_created:
        what = describe_shortage(machine, state) or f"Harvester to accept {machine.vm_ref}"
        found = _waiting("Pending", what, "it boots and joins the cluster")
    else:
        rule = find_rule(_node_readiness(machine, state), _vm_condition(machine), _host_condition(machine))
        found = rule.diagnose(machine, pool, state)
        found = _with_hold(found, machine, state)
        if machine.record.replace_now and found.health != "unhealthy" and _may_be_replaced(machine, state):
            because = f"annotation {REPLACE_NOW} asks for a replacement"
            found = replace(
                found, health="unhealthy", because=because, next="the machine is replaced", until=None
            )
        if found.health in ("stopped", "unhealthy") and (disabled := remediation_disabled(machine, state)):
            found = replace(
                found,
                health="waiting",
                waiting_for=f"{found.because}; {disabled}",
                next="remediation resumes once that is changed",
                until=None,
            )
    return found


def _with_hold(found: Diagnosis, machine: MachineState, state: ClusterState) -> Diagnosis:
    """A machine whose host on Harvester is in maintenance is left alone for a while."""
    if found.health == "healthy":
        return found
    hold = find_hold(machine, found.health, state)
    if hold is None:
        return found
    what = f"{found.waiting_for}; {hold.because}"
    if found.health == "waiting":
        return replace(found, waiting_for=what)
    then = "its VM is started once the host is back" if found.health == "stopped" else "remediation resumes"
    return replace(found, health="waiting", waiting_for=what, next=then, until=hold.until)


def _may_be_replaced(machine: MachineState, state: ClusterState) -> bool:
    """Whether enough is known to replace a machine on request: its VM's state, and that of a cluster that has started."""
    return machine.presence != "unknown" and (state.guest.is_reachable or not state.recorded.initialized)


def remediation_disabled(machine: MachineState, state: ClusterState) -> str:
    """Why no VM is started and no machine replaced; "" where that is allowed."""
    pool = state.cluster.find_pool(machine.pool) or Pool(machine.pool)
    if state.cluster.remediation_disabled:
        return f"annotation {REMEDIATION} disables remediation"
    return f"machine pool {pool.name} is paused" if pool.paused else ""


def _waiting(phase: str, waiting_for: str, next: str, until: datetime | None = None) -> Diagnosis:
    return Diagnosis(phase, "waiting", waiting_for, next, until=until)


def _unhealthy(phase: str, because: str, waiting_for: str = "") -> Diagnosis:
    return Diagnosis(phase, "unhealthy", waiting_for or because, "the machine is replaced", because)


# -- the table's columns -----------------------------------------------------------------------------------------


def _node_readiness(machine: MachineState, state: ClusterState) -> NodeReadiness:
    if machine.is_ready and state.guest.is_reachable:
        return "Ready"
    return "NotReady" if machine.record.was_ready else "NeverReady"


def _vm_condition(machine: MachineState) -> VmCondition:
    if machine.vm is None or machine.presence == "unknown":
        return "unknown"
    if machine.presence == "missing":
        return "missing"
    if machine.vm.state in STOPPED_STATES:
        return "stopped"
    return "running" if machine.vm.state in ("running", "") else "changing"


def _host_condition(machine: MachineState) -> HostCondition:
    return "failed" if machine.vm is not None and machine.vm.host_ready is False else "ok"


# -- the table's findings ----------------------------------------------------------------------------------------


def _stale_node(machine: MachineState, pool: Pool, state: ClusterState) -> Diagnosis:
    """Ready, although its VM does not run: kubelet's last report, which stays without an etcd that takes another."""
    missing = machine.presence == "missing"
    if not missing and (why := state.why_no_quorum()):
        start = _stopped(machine, pool, state)
        return replace(start, because=f"{start.because}; {why}") if start.because else start
    found = "not found" if missing else f"is {machine.vm.state}" if machine.vm else ""
    return _waiting(
        _phase_of_vm(machine),
        f"Node {machine.node_name} to become NotReady ({machine.vm_ref} {found})",
        "the machine is replaced" if missing else next_step_of_vm(machine),
    )


def _changing(machine: MachineState, pool: Pool, state: ClusterState) -> Diagnosis:
    if not machine.record.was_ready and machine.vm and machine.vm.state in ("provisioning", "starting"):
        return _boot_step(machine, state)
    if machine.record.was_ready and machine.vm and CANNOT_MOVE in machine.vm.because:
        return _not_ready(
            machine,
            state,
            max(HOST_FAILURE_TIMEOUT, pool.unhealthy_timeout),
            f"{_vm_to_run(machine)}; its disks are on a host that is not available",
            f"its Node is not Ready, and the disks of {machine.vm_ref} are on a host that is not available",
        )
    return _waiting(_phase_of_vm(machine), _vm_to_run(machine), next_step_of_vm(machine))


def _healthy(machine: MachineState, pool: Pool, state: ClusterState) -> Diagnosis:
    if state.is_initialized(machine):
        found = Diagnosis("Ready", "healthy")
    else:
        what = f"Node {machine.node_name} to get its role label"
        if machine.node is not None and state.lacks_cloud_provider(machine.node):
            what = f"the cloud provider to initialize Node {machine.node_name}"
        found = replace(_waiting(INITIALIZING, what, "it takes workloads"), health="healthy")
        if state.recorded.initialized and _is_alone_uninitialized(machine, state):
            failure = "the cloud provider did not initialize its Node"
            found = _within_startup_timeout(
                found, machine, pool, state, _uninitialized_since(machine, state), failure
            )
    return found


def _uninitialized_since(machine: MachineState, state: ClusterState) -> datetime:
    """Since when it has waited for the cloud provider: a Node of any age may be registered anew."""
    recorded = machine.record.find_condition("Ready")
    if recorded is None or recorded.reason != INITIALIZING or recorded.since is None:
        return state.now
    return max(recorded.since, joinable_since(machine, state))


def _is_alone_uninitialized(machine: MachineState, state: ClusterState) -> bool:
    """A machine that was stopped in its first boot may be so for ever: cloud-init does not repeat the step that was
    interrupted, such as the installation of the guest agent. Where no other machine is initialized, it is not its fault."""
    if machine.node is None or not state.lacks_cloud_provider(machine.node):
        return False
    return _has_initialized(state)


@once_per_state
def _has_initialized(state: ClusterState) -> bool:
    return any(map(state.is_initialized, state.machines))


def _unknown(machine: MachineState, pool: Pool, state: ClusterState) -> Diagnosis:
    """A machine whose VM is unknown is never replaced."""
    if machine.vm is None and not machine.record.has_joined:
        return _boot_step(machine, state)  # Harvester has accepted it a moment ago
    why = machine.vm.because if machine.vm else "not observed yet"
    return _waiting(
        "Unknown",
        f"Harvester to report the state of {machine.vm_ref} ({why})",
        "health check (state unknown)",
    )


def _missing(machine: MachineState, pool: Pool, state: ClusterState) -> Diagnosis:
    because = f"{machine.vm_ref} not found"
    if state.guest.is_reachable or not state.recorded.initialized:
        return _unhealthy("Missing", because)
    members = state.etcd_members
    lost = sum(1 for member in members if member.presence == "missing")
    if machine.is_etcd and lost > (len(members) - 1) // 2:
        gone = f"the VirtualMachines of {lost} of {len(members)} members are not found"
        what = f"etcd to have a quorum again ({gone}; {loss_hint(machine, state)})"
        return _waiting("Missing", what, "the machine is replaced")
    return _waiting("Missing", f"{_guest_api(state)}; {because}", "the machine is replaced")


def loss_hint(machine: MachineState, state: ClusterState) -> str:
    """What a person can do about an etcd member that is down and without which etcd has no quorum."""
    give_up = f"windrow delete {state.cluster.namespace}/{state.cluster.name}, then apply the manifest again"
    first = f"see its console with windrow machine console {machine.record.namespace}/{machine.name}"
    if machine.presence == "missing":
        first = f"restore {machine.vm_ref} on Harvester"
    cluster = f"{state.cluster.namespace}/{state.cluster.name}"
    running = (one for one in state.etcd_members if one is not machine and not one.is_down)
    # Only a server with an API of its own can be reset, see operations.in_place.
    if left := [one for one in running if one.record.is_control_plane and state.why_no_quorum()]:
        member = left[0].name if len(left) == 1 else "MACHINE"
        command = f"windrow restore {cluster} --lost-quorum --member {member}"
        return f"{first}, or go on with the data of a member that runs: {command}"
    if snapshot := _newest_in_s3(state):
        return f"{first}, or the newest etcd snapshot in S3: windrow restore {cluster} {snapshot}"
    return f"{first}, or go on without its data: {give_up}"


def _newest_in_s3(state: ClusterState) -> str:
    """The name of a snapshot that a new first server can restore, "" for none."""
    fit = [
        one
        for one in state.snapshots
        if one.file.s3 is not None and one.file.is_ready and one.file.created and one.openable != "False"
    ]
    return max(fit, key=lambda one: (str(one.file.created), one.name)).name if fit else ""


def _stopped(machine: MachineState, pool: Pool, state: ClusterState) -> Diagnosis:
    record, phase = machine.record, _phase_of_vm(machine)
    vm_state = machine.vm.state if machine.vm else ""
    start = Diagnosis(phase, "stopped", _vm_to_run(machine), "its Node becomes Ready again")
    if record.last_restart is None or record.restart_count == 0:
        return replace(
            start, because=f"{machine.vm_ref} is {vm_state}; a restart is quicker than a replacement"
        )
    until = record.last_restart + START_TIMEOUT
    if state.now < until:
        return _waiting(
            phase,
            f"{machine.vm_ref} to start (now {vm_state})",
            "the machine is replaced if it stays stopped",
            until,
        )
    because = f"{machine.vm_ref} is {vm_state} again after a restart"
    if machine.vm and OVER_QUOTA in machine.vm.because:
        # A replacement would be halted as well; a start is refused until there is room.
        return replace(start, because=f"{machine.vm_ref} was halted over its namespace's quota")
    if is_last_etcd_member(machine, state):
        return replace(start, because=because)
    if state.guest.is_reachable or not state.recorded.initialized:
        return _unhealthy(phase, because)
    return _waiting(phase, f"{_guest_api(state)}; {because}", "the machine is replaced")


def _starting_up(machine: MachineState, pool: Pool, state: ClusterState) -> Diagnosis:
    boot = _boot_step(machine, state)
    init = state.init_server
    if state.recorded.initialized:
        if machine.node is None and has_lost_join_server(machine, state):
            return _stalled(machine, pool, state)
        if not state.guest.is_reachable:
            return replace(boot, waiting_for=_guest_api(state), next="health check") if machine.node else boot
        return _within_startup_timeout(boot, machine, pool, state, joinable_since(machine, state))
    if init is None or machine.name != init.name:
        return replace(
            boot, next=f"it joins once Machine {state.recorded.init_server_name} has started the cluster"
        )
    if state.guest.state == "unknown" and machine.address:
        # It may have started the cluster while no controller was running.
        return boot
    found = _within_startup_timeout(boot, machine, pool, state, _provisioned_since(machine, state))
    probed_since = state.guest.probed_since
    if (
        found.health == "unhealthy"
        and probed_since is not None
        and state.now < probed_since + API_PROBE_PERIOD
    ):
        until = probed_since + API_PROBE_PERIOD
        return replace(boot, next="the machine is replaced if its API server does not answer", until=until)
    return found


def _stalled(machine: MachineState, pool: Pool, state: ClusterState) -> Diagnosis:
    """It cannot be told another server: what it was given is read once, at its first boot. One that had reached the server
    in time still joins, and removing it in between could leave an etcd member without a machine."""
    join_server = machine.record.join_server
    what = f"{machine.vm_ref} to join through {join_server}, an address that no server has any more"
    recorded = machine.record.find_condition(JOIN_SERVER_EXISTS)
    since = recorded.since if recorded is not None and recorded.status == "False" else None
    until = (since or state.now) + JOIN_SERVER_LOST_TIMEOUT
    if pool.startup_timeout is not None:
        until = min(until, joinable_since(machine, state) + pool.startup_timeout)
    if state.now >= until and state.guest.is_reachable:
        return _unhealthy(
            STALLED, f"its server to join through, {join_server}, is lost, and its Node did not come", what
        )
    return _waiting(STALLED, what, "the machine is replaced", until if state.guest.is_reachable else None)


def _boot_step(machine: MachineState, state: ClusterState) -> Diagnosis:
    """What a machine that was never Ready has yet to reach.

    Each sentence without Node stays true until the machine is Ready, since the status keeps it for a while, see
    `is_boot_step`.
    """
    node = machine.node
    if node is not None:
        why = first_clause(node.ready_message)
        return _waiting("Joining", f"Node {node.name} to become Ready ({why})", "it takes workloads")
    if not machine.address:
        vm = machine.vm
        why = first_clause(vm.because) if vm and vm.because else ""
        if not why and vm and not vm.agent_connected:
            why = "guest agent not connected"
        return _waiting(
            "Provisioning",
            f"{machine.vm_ref} to report an IP address{f' ({why})' if why else ''}",
            "it joins the cluster",
        )
    if machine.record.is_init_server and not state.recorded.initialized:
        what, then = "to start the cluster", "the other machines join"
    else:
        what, then = "to join the cluster", "it takes workloads"
    return _waiting("Provisioning", f"{machine.vm_ref} ({machine.address}) {what}", then)


def joinable_since(machine: MachineState, state: ClusterState) -> datetime:
    """Since when it could have joined: the creation of its VM, or the start of the cluster if that came later."""
    provisioned, started = _provisioned_since(machine, state), state.recorded.initialized_since
    return max(provisioned, started) if started else provisioned


def _provisioned_since(machine: MachineState, state: ClusterState) -> datetime:
    """Since when its VM has existed for certain. A Machine may be much older: no manager ran, or Harvester was away."""
    if not machine.record.was_created:
        return machine.record.created
    return machine.record.provisioned or state.now


def _within_startup_timeout(
    boot: Diagnosis,
    machine: MachineState,
    pool: Pool,
    state: ClusterState,
    since: datetime,
    failure: str = "its Node did not become Ready",
) -> Diagnosis:
    timeout = pool.startup_timeout
    console = f"its console: windrow machine console {machine.record.namespace}/{machine.name}"
    if machine.node is None and not machine.address and _vm_condition(machine) == "running":
        console = f"{_likely_causes(machine, state)}; {console}"
        failure = f"{failure}, and {machine.vm_ref} reported no IP address,"
    elif machine.node is None and machine.record.join_server == find_stable_join_url(state) != "":
        console = f"check that {machine.record.join_server} leads to the servers; {console}"
    if timeout is None:
        late = since + STARTUP_TIMEOUT / 2
        return (
            replace(boot, until=late) if state.now < late else replace(boot, next=f"{boot.next}; {console}")
        )
    if machine.record.last_restart is not None:
        since = max(since, machine.record.last_restart)
    if state.now >= since + timeout:
        because = f"{failure} within {human_duration(timeout)}"
        return replace(boot, health="unhealthy", because=because, next="the machine is replaced")
    if state.now < since + timeout / 2:
        return replace(boot, until=since + timeout / 2)  # so far it is on time
    return replace(
        boot,
        next=f"the machine is replaced if that takes longer than {human_duration(timeout)}; {console}",
        until=since + timeout,
    )


@once_per_state
def _count_with_address(state: ClusterState) -> Counter[str]:
    """How many machines have an address, by pool."""
    return Counter(machine.pool for machine in state.machines if machine.address)


def _likely_causes(machine: MachineState, state: ClusterState) -> str:
    """Why a VM that runs may report no address, likeliest first: where others of its pool have one, image, user data and
    VLAN work."""
    with_address = _count_with_address(state)[machine.pool]  # this one has none
    agent = "qemu-guest-agent is not in its image and cannot be installed"
    dhcp = "nothing leases addresses on its network (no DHCP server, or the VLAN does not reach it)"
    if with_address:
        dhcp = f"the DHCP range of its network is used up ({with_address} others of the pool have an address)"
    connected = machine.vm is not None and machine.vm.agent_connected
    network_data = "its network data configures another NIC, or no address"
    causes = [dhcp, network_data] if connected else [dhcp, agent] if with_address else [agent, dhcp]
    return "likely causes: " + ", ".join(f"({place}) {cause}" for place, cause in enumerate(causes, 1))


def _failed_host(machine: MachineState, pool: Pool, state: ClusterState) -> Diagnosis:
    host = machine.vm.host if machine.vm else ""
    return _not_ready(
        machine,
        state,
        max(HOST_FAILURE_TIMEOUT, pool.unhealthy_timeout),
        f"Harvester to move {machine.vm_ref} off host {host} (host NotReady)",
        f"its Node is not Ready since host {host} failed",
    )


def _unready_node(machine: MachineState, pool: Pool, state: ClusterState) -> Diagnosis:
    why = first_clause(machine.node.ready_message) if machine.node else "the Node was deleted"
    timeout = pool.unhealthy_timeout
    host = machine.record.find_condition(HOST_READY)
    if host is not None and host.status == "False":
        # Its host failed since its Node was Ready: by now Harvester has started it elsewhere, and it boots.
        timeout = max(HOST_FAILURE_TIMEOUT, timeout)
    return _not_ready(
        machine,
        state,
        timeout,
        f"Node {machine.node_name} to become Ready again ({why})",
        f"its Node was not Ready for {human_duration(timeout)} ({why})",
    )


def _not_ready(
    machine: MachineState, state: ClusterState, timeout: timedelta, waiting_for: str, because: str
) -> Diagnosis:
    if not state.guest.is_reachable:
        phase = "Unknown" if machine.node is None else "NotReady"
        return _waiting(phase, _guest_api(state), f"health check of Machine {machine.name}")
    until = _unready_since(machine, state) + timeout
    if state.now >= until:
        return _unhealthy("NotReady", because, waiting_for)
    return _waiting("NotReady", waiting_for, "the machine is replaced", until)


def _unready_since(machine: MachineState, state: ClusterState) -> datetime:
    """When its Node was first found not Ready, or its VM restarted since."""
    found = machine.record.find_condition("Ready")
    since = state.now
    # While a machine was being initialized its Node was Ready, though the machine was not.
    if found is not None and found.status == "False" and found.since and found.reason != INITIALIZING:
        since = found.since
    return max(since, machine.record.last_restart) if machine.record.last_restart else since


# -- the table ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Rule:
    """One row of the truth table."""

    node: NodeReadiness | None
    vm: VmCondition | None
    host: HostCondition | None
    diagnose: Callable[[MachineState, Pool, ClusterState], Diagnosis]


RULES: tuple[Rule, ...] = (
    Rule("Ready", "missing", None, _stale_node),
    Rule("Ready", "stopped", None, _stale_node),
    Rule("Ready", None, None, _healthy),
    Rule(None, "unknown", None, _unknown),
    Rule(None, "missing", None, _missing),
    Rule(None, "stopped", None, _stopped),
    Rule(None, "changing", None, _changing),
    Rule("NeverReady", "running", None, _starting_up),
    Rule("NotReady", "running", "failed", _failed_host),
    Rule("NotReady", "running", "ok", _unready_node),
)


def find_rule(node: NodeReadiness, vm: VmCondition, host: HostCondition) -> Rule:
    """The row that applies; there is one for every combination."""
    return next(
        rule
        for rule in RULES
        if rule.node in (None, node) and rule.vm in (None, vm) and rule.host in (None, host)
    )


# -- words -------------------------------------------------------------------------------------------------------

_PHASES = {
    "provisioning": "Provisioning",
    "starting": "Starting",
    "stopping": "Stopping",
    "stopped": "Stopped",
    "failed": "Failed",
    "migrating": "Migrating",
    "deleting": "Deleting",
}
_NEXT_STEPS = {
    "provisioning": "it boots",
    "stopping": "it is started again",
    "stopped": "it is started again",
    "failed": "it is started again",
    "deleting": "the machine is replaced",
}


def _phase_of_vm(machine: MachineState) -> str:
    if machine.presence == "missing":
        return "Missing"
    vm_state = machine.vm.state if machine.vm else ""
    if vm_state == "starting" and not machine.record.was_ready:
        return "Provisioning"
    return _PHASES.get(vm_state, "NotReady")


def next_step_of_vm(machine: MachineState) -> str:
    """What comes after the VM's present state."""
    usual = "its Node becomes Ready again" if machine.record.was_ready else "it joins the cluster"
    return _NEXT_STEPS.get(machine.vm.state, usual) if machine.vm else usual


def _vm_to_run(machine: MachineState) -> str:
    vm = machine.vm
    why = f"; {first_clause(vm.because)}" if vm and vm.because else ""
    return f"{machine.vm_ref} to run (now {vm.state if vm else 'unknown'}{why})"


def _guest_api(state: ClusterState) -> str:
    return f"the guest API server ({unreachable_reason(state.guest)})"


def is_last_etcd_member(machine: MachineState, state: ClusterState) -> bool:
    """Whether it is the only etcd member that is left; such a machine is never replaced."""
    alone = [member.name for member in state.etcd_members] == [machine.name]
    return alone and machine.is_etcd and machine.record.was_ready
