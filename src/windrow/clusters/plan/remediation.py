"""Repair: judge each machine by two witnesses, the guest's Node and Harvester's VM, and ask to replace what is lost.

| Node      | VM                      | Host  | verdict                                                     |
|-----------|-------------------------|-------|-------------------------------------------------------------|
| Ready     | any                     | any   | well                                                        |
| not Ready | unknown                 | —     | wait: unknown is not gone                                   |
| not Ready | missing                 | —     | lost, at once                                               |
| not Ready | stopped or failed       | any   | start it; lost if it stands still again, or does not return |
| not Ready | on its way up or moving | any   | wait                                                        |
| not Ready | running                 | fails | wait for Harvester to move it; lost after a longer time     |
| not Ready | running                 | fine  | lost after the pool's unhealthyNodeTimeout                  |
| never yet | running                 | —     | lost after the pool's nodeStartupTimeout                    |

"Not Ready" needs the guest API: while it is silent nothing is judged but what may always be started again. Only the
times are ours: since when a node is not Ready stands in our own record, so that a guest with a wrong clock, or a
restart of the manager, changes nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Literal

from windrow.clusters.api.cluster import Pool
from windrow.clusters.plan.actions import DeleteMachine, StartVM, Wait, first_clause
from windrow.clusters.plan.partial_plan import Disruption, PartialPlan, PlanBuilder
from windrow.clusters.state import (
    INITIALIZING,
    STOPPED_STATES,
    ClusterState,
    MachineState,
    unreachable_reason,
)

HOST_FAILURE_TIMEOUT = timedelta(minutes=15)
START_TIMEOUT = timedelta(minutes=2)
API_PROBE_PERIOD = timedelta(
    minutes=2
)  # a manager that was away asks a first server for as long before it gives it up
_TRANSIENT_STATES = frozenset({"provisioning", "starting", "stopping", "migrating", "deleting"})


@dataclass(frozen=True, slots=True)
class HealthCheckResult:
    """What is to be done about one machine. `until` is when a wait ends by itself; without `then` all goes well."""

    kind: Literal["well", "wait", "start", "lost"]
    because: str = ""
    then: str = ""
    until: datetime | None = None


HEALTHY = HealthCheckResult("well")


def plan(state: ClusterState) -> PartialPlan:
    builder = PlanBuilder()
    for machine in state.active:
        pool = state.cluster.find_pool(machine.pool)
        if pool is None or not machine.record.was_created:
            continue
        result = check_health(machine, pool, state)
        if result.kind in ("start", "lost") and (held := _remediation_disabled(pool, state)):
            result = HealthCheckResult(
                "wait", f"{result.because}; {held}", "it is repaired once that is changed"
            )
        match result.kind:
            case "well":
                continue
            case "wait":
                builder.waits.append(Wait(result.because, result.then, machine.name, result.until))
            case "start":
                builder.actions.append(StartVM(result.because, machine.name))
            case "lost":
                pass
        # For the last member it is asked although the answer is known, so that the status says what will not happen.
        # Of one that nobody can see there is nothing to say but that.
        if result.kind == "lost" or (machine.presence != "unknown" and _is_last_etcd_member(machine, state)):
            builder.disruptions.append(_replacement(machine, result.because))
    return builder.build()


def _replacement(machine: MachineState, because: str) -> Disruption:
    return Disruption("replace", machine.name, DeleteMachine(because, machine.name))


def _remediation_disabled(pool: Pool, state: ClusterState) -> str:
    if not state.cluster.remediation:
        return "repair is turned off by annotation"
    return f"pool {pool.name} is paused" if pool.paused else ""


def _is_last_etcd_member(machine: MachineState, state: ClusterState) -> bool:
    alone = [member.name for member in state.etcd_members] == [machine.name]
    return alone and machine.is_etcd and machine.record.was_ready


def check_health(machine: MachineState, pool: Pool, state: ClusterState) -> HealthCheckResult:
    """The verdict on one machine that stays and was ordered."""
    if machine.is_ready and state.guest.is_reachable:
        return _check_ready(machine)
    vm = machine.vm
    if vm is None or vm.presence == "unknown":
        why = vm.because if vm else "it has not been looked at yet"
        return HealthCheckResult(
            "wait", f"Harvester to show {machine.name} ({why})", "it is judged; unknown is not gone"
        )
    if vm.presence == "missing":
        return _check_missing(machine, state)
    if vm.state in STOPPED_STATES:
        return _check_stopped(machine, state)
    if vm.state in _TRANSIENT_STATES:
        return HealthCheckResult(
            "wait",
            f"{machine.name}, which is {vm.state} on Harvester{_in_parentheses(vm.because)}",
            next_step_of_state(machine),
        )
    return _check_running(machine, pool, state)


def next_step_of_state(machine: MachineState) -> str:
    """What comes after the state that Harvester shows."""
    usual = "its node becomes Ready again" if machine.record.was_ready else "it joins the cluster"
    return _NEXT_STEPS.get(machine.vm.state, usual) if machine.vm else usual


_NEXT_STEPS = {
    "provisioning": "it boots",
    "stopping": "it is started again",
    "stopped": "it is started again",
    "failed": "it is started again",
    "deleting": "it is replaced",
}


def _in_parentheses(because: str) -> str:
    return f" ({first_clause(because)})" if because else ""


def _check_ready(machine: MachineState) -> HealthCheckResult:
    if machine.is_down:
        state = "gone" if machine.vm is None or machine.presence == "missing" else machine.vm.state
        return HealthCheckResult(
            "wait", f"node {machine.name} to be seen as lost, whose VM is {state}", "it is judged"
        )
    if machine.record.replace_now:
        return HealthCheckResult("lost", "its annotation asks for a replacement")
    return HEALTHY


def _check_missing(machine: MachineState, state: ClusterState) -> HealthCheckResult:
    if state.guest.is_reachable or not state.recorded.initialized:
        return HealthCheckResult("lost", "its VM is gone from Harvester")
    return HealthCheckResult(
        "wait",
        f"the guest API, to judge {machine.name}, whose VM is gone from Harvester ({unreachable_reason(state.guest)})",
        "the machine is replaced",
    )


def _check_stopped(machine: MachineState, state: ClusterState) -> HealthCheckResult:
    record, vm_state = machine.record, machine.vm.state if machine.vm else ""
    if record.last_restart is None or record.restart_count == 0:
        return HealthCheckResult("start", f"its VM is {vm_state}; starting is quicker than replacing")
    until = record.last_restart + START_TIMEOUT
    if state.now < until:
        return HealthCheckResult(
            "wait", f"{machine.name} to start, as was ordered", "it is replaced if it stands still", until
        )
    why = f"its VM is {vm_state} again after it was started"
    if _is_last_etcd_member(machine, state):
        return HealthCheckResult("start", why)
    if state.guest.is_reachable or not state.recorded.initialized:
        return HealthCheckResult("lost", why)
    return HealthCheckResult(
        "wait", f"the guest API ({unreachable_reason(state.guest)})", f"{machine.name} is judged: {why}"
    )


def _check_running(machine: MachineState, pool: Pool, state: ClusterState) -> HealthCheckResult:
    if not state.recorded.initialized:
        return _check_init_server(machine, pool, state)
    if not state.guest.is_reachable:
        return HealthCheckResult(
            "wait", f"the guest API ({unreachable_reason(state.guest)})", f"{machine.name} is judged"
        )
    if not machine.record.was_ready:
        return _check_joining(machine, pool, state)
    vm = machine.vm
    if vm is not None and vm.host_ready is False:
        until = _unready_since(machine, state) + max(HOST_FAILURE_TIMEOUT, pool.unhealthy_timeout)
        what = f"Harvester to move {machine.name} off host {vm.host}, which fails"
        why = f"not Ready since its host {vm.host} failed"
    else:
        until = _unready_since(machine, state) + pool.unhealthy_timeout
        reason = machine.node.ready_message if machine.node else "its Node was deleted"
        what = f"node {machine.name} to be Ready again{_in_parentheses(reason)}"
        why = f"its node has not been Ready for {_minutes(pool.unhealthy_timeout)}{_in_parentheses(reason)}"
    if state.now >= until:
        return HealthCheckResult("lost", why)
    return HealthCheckResult("wait", what, "the machine is replaced", until)


def _check_init_server(machine: MachineState, pool: Pool, state: ClusterState) -> HealthCheckResult:
    """Before the cluster has started, only the first server can be late; the others wait for it."""
    first = state.init_server
    if first is None or machine.name != first.name:
        return HealthCheckResult(
            "wait",
            f"the first server {state.recorded.init_server_name} to start the cluster",
            f"{machine.name} joins",
        )
    what = f"{machine.name} to start the cluster"
    if state.guest.state == "unasked" and machine.address:
        # It may have started the cluster while no manager was there to see it.
        return HealthCheckResult("wait", what, "it is judged once its API has been asked")
    result = _check_startup(machine, pool, state, what, machine.record.created)
    asked = state.guest.probed_since
    if result.kind == "lost" and asked is not None and state.now < asked + API_PROBE_PERIOD:
        return HealthCheckResult(
            "wait", what, "the machine is replaced if its API stays silent", asked + API_PROBE_PERIOD
        )
    return result


def _check_joining(machine: MachineState, pool: Pool, state: ClusterState) -> HealthCheckResult:
    started = next(
        (
            c.get("lastTransitionTime")
            for c in state.recorded.raw.get("conditions") or ()
            if c.get("type") == "Initialized"
        ),
        None,
    )
    since = (
        max(machine.record.created, datetime.fromisoformat(started)) if started else machine.record.created
    )
    what = f"{machine.name} to join as a node"
    if machine.node is not None:
        what = f"node {machine.name} to be Ready{_in_parentheses(machine.node.ready_message)}"
    return _check_startup(machine, pool, state, what, since)


def _check_startup(
    machine: MachineState, pool: Pool, state: ClusterState, what: str, since: datetime
) -> HealthCheckResult:
    if pool.startup_timeout is None:
        return HealthCheckResult("wait", what, "it goes on")
    if machine.record.last_restart is not None:
        since = max(since, machine.record.last_restart)
    until = since + pool.startup_timeout
    if state.now >= until:
        return HealthCheckResult(
            "lost", f"it did not become a Ready node within {_minutes(pool.startup_timeout)}"
        )
    half = since + pool.startup_timeout / 2
    if state.now < half:
        return HealthCheckResult("wait", what, "", half)  # what comes next is that it goes well
    return HealthCheckResult(
        "wait",
        what,
        f"the machine is replaced if that takes longer than {_minutes(pool.startup_timeout)}",
        until,
    )


def _unready_since(machine: MachineState, state: ClusterState) -> datetime:
    """When we first saw that its node is not Ready, or started it again since."""
    found = machine.record.find_condition("Ready")
    since = state.now
    # While it was being initialised its node was Ready, though the machine was not.
    if (
        found is not None
        and found.status == "False"
        and found.last_transition_time
        and found.reason != INITIALIZING
    ):
        since = datetime.fromisoformat(found.last_transition_time)
    return max(since, machine.record.last_restart) if machine.record.last_restart else since


def is_unhealthy(machine: MachineState, state: ClusterState) -> bool:
    """For the breaker: was a node, and is not Ready now; or its VM is missing, node or not."""
    if machine.presence == "missing" and not machine.is_ready:
        return True
    return machine.record.was_ready and state.guest.is_reachable and not machine.is_ready


def _minutes(span: timedelta) -> str:
    seconds = int(span.total_seconds())
    if seconds % 60 or seconds == 0:
        return f"{seconds} s"
    return f"{seconds // 60} min"
