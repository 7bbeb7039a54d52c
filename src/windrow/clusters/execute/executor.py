"""Execution of a plan: the cluster's actions in their order, then those of its machines side by side.

The promise that all actions keep: what is going to be made outside is recorded before it is made.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable
from typing import assert_never

from windrow.bootstrap.spec import InvalidBootstrapSpec
from windrow.client.events import EventNote, EventRecorder, EventType
from windrow.clusters.api.secrets import CredentialError
from windrow.clusters.bootstrap_secrets import BootstrapSecretError
from windrow.clusters.context import ReconcileContext, StalePlan, WatchBehind, cluster_ref, find_machine
from windrow.clusters.execute.address_actions import AddressActions
from windrow.clusters.execute.cluster_actions import ClusterActions
from windrow.clusters.execute.endpoint_actions import EndpointActions
from windrow.clusters.execute.machine_actions import MachineActions
from windrow.clusters.execute.maintenance_actions import MaintenanceActions
from windrow.clusters.execute.operations import OperationActions
from windrow.clusters.execute.update_actions import UpdateActions
from windrow.clusters.plan import actions as do
from windrow.clusters.plan.actions import Action, HeldDisruption
from windrow.clusters.plan.disruptions import HOLDS_ALL_DATA
from windrow.clusters.plan.planner import Plan, is_permitted
from windrow.clusters.sources.servers.supervisor import SupervisorError, TokenRejected
from windrow.clusters.state import ActionFailure, ClusterState, MachineState, ManagerLease
from windrow.clusters.status import (
    address_condition,
    credential_condition,
    held_sentence,
    lease_condition,
    unrecorded_condition,
)
from windrow.core.logs import FieldLogger, with_values
from windrow.kubernetes.conditions import Condition, find_condition
from windrow.kubernetes.errors import KubeError
from windrow.kubernetes.objects import nested
from windrow.machines.port import InfrastructureUnknown, MachineRefused

log = logging.getLogger(__name__)

COMPONENT = "windrow"
MAX_CONCURRENT = 8
# After so many actions the state is observed again: of 500 machines of a pool, only 1 may be desired by now.
MAX_PER_RECONCILE = 64


class Executor:
    """Executes plans, and records events for the actions that have one."""

    def __init__(
        self,
        context: ReconcileContext,
        cluster_actions: ClusterActions,
        machine_actions: MachineActions,
        address_actions: AddressActions,
        endpoint_actions: EndpointActions,
        update_actions: UpdateActions,
        read_lease: Callable[[ClusterState], ManagerLease],
        operations: OperationActions,
        maintenance_actions: MaintenanceActions,
    ) -> None:
        """`read_lease` is asked before each action: one may take long, and the process may be stopped meanwhile."""
        self._read_lease = read_lease
        self._context = context
        self._on_cluster, self._on_machine = cluster_actions, machine_actions
        self._on_addresses = address_actions
        self._on_endpoint = endpoint_actions
        self._operations = operations
        self._on_update = update_actions
        self._on_maintenance = maintenance_actions
        self._events = EventRecorder(context.api, COMPONENT, context.clock, context.rng)
        # Called with each action, and whether it was executed or has failed.
        self.on_action: Callable[[Action, bool], None] = lambda action, is_done: None

    async def execute(self, plan: Plan, state: ClusterState) -> dict[str, ActionFailure]:
        """Execute the plan; failures are returned by subject. One subject's failure does not stop the others."""
        failures: dict[str, ActionFailure] = {}
        cluster_actions = [action for action in plan.actions if not action.subject]
        executed = await self._run_queue("", cluster_actions, state, failures)
        await self._record_cluster_events(executed, state)
        queues: dict[str, list[Action]] = {}
        for action in plan.actions:
            if action.subject:
                queues.setdefault(action.subject, []).append(action)
        slots = asyncio.Semaphore(MAX_CONCURRENT)
        done = 0

        async def one(subject: str, actions: list[Action]) -> None:
            nonlocal done
            async with slots:
                if done >= MAX_PER_RECONCILE:
                    return
                for action in await self._run_queue(subject, actions, state, failures):
                    await self._record_machine_event(action, state)
                done += subject not in failures  # those that fail must not keep the others from their turn

        async with asyncio.TaskGroup() as group:
            for subject, actions in queues.items():
                group.create_task(one(subject, actions))
        return failures

    async def _run_queue(
        self, subject: str, actions: list[Action], state: ClusterState, failures: dict[str, ActionFailure]
    ) -> list[Action]:
        """The actions that were executed, up to the first that failed."""
        executed: list[Action] = []
        cluster = state.cluster
        about = with_values(log, cluster=f"{cluster.namespace}/{cluster.name}")
        if subject:
            about = with_values(about, machine=f"{cluster.namespace}/{subject}")
        for action in actions[:MAX_PER_RECONCILE]:
            level = logging.WARNING if action.event == "Warning" else logging.INFO
            action_log = with_values(about, reason=action.reason)
            action_log.log(level, "%s", action)
            try:
                await self._execute(action, state)
            except StalePlan:
                break
            except Exception as error:
                failures[subject] = self._describe_failure(action, error, action_log)
                self.on_action(action, False)
                break
            executed.append(action)
            self.on_action(action, True)
        return executed

    async def _execute(self, action: Action, state: ClusterState) -> None:
        if not is_permitted(action, state, self._read_lease(state)):
            raise StalePlan
        match action:
            case do.AddFinalizer():
                await self._on_cluster.add_finalizer(action, state)
            case do.CreateSecrets():
                await self._on_cluster.create_secrets(action, state)
            case do.RecordServiceAccount():
                await self._on_cluster.record_service_account(action, state)
            case do.CreateServiceAccount():
                await self._on_cluster.create_service_account(action, state)
            case do.RecreateServiceAccount():
                await self._on_cluster.recreate_service_account(action, state)
            case do.RecordHarvester():
                await self._on_cluster.record_harvester(action, state)
            case do.ReleaseUnusedAddresses():
                await self._on_addresses.release_unused_addresses(action)
            case do.RecordLoadBalancers():
                await self._on_endpoint.record_load_balancers(action, state)
            case do.CreateLoadBalancer():
                await self._on_endpoint.create_load_balancer(action, state)
            case do.RecordEndpointHost():
                await self._on_endpoint.record_endpoint_host(action, state)
            case do.UpdateLoadBalancer():
                await self._on_endpoint.update_load_balancer(action, state)
            case do.DeleteEndpoint():
                await self._on_endpoint.delete_endpoint(action, state)
            case do.ReserveMachineNames():
                await self._on_cluster.reserve_machine_names(action, state)
            case do.CreateMachine():
                await self._on_cluster.create_machine(action, state)
            case do.AdoptVM():
                await self._on_cluster.adopt_vm(action, state)
            case do.ElectInitServer():
                await self._on_cluster.elect_init_server(action, state)
            case do.MarkInitialized():
                await self._on_cluster.mark_initialized(action, state)
            case do.RecordGuestUID():
                await self._on_cluster.record_guest_uid(action, state)
            case do.RecordImmutableConfig():
                await self._on_cluster.record_immutable_config(action, state)
            case do.PublishKubeconfig():
                await self._on_cluster.publish_kubeconfig(action, state)
            case do.DeleteServiceAccount():
                await self._on_cluster.delete_service_account(action, state)
            case do.DeleteLoadBalancers():
                await self._on_cluster.delete_load_balancers(action, state)
            case do.KeepLoadBalancers() | do.KeepVMs() | do.KeepClaims() | do.KeepVolumes():
                pass  # its event is all
            case do.DeleteUnrecordedVMs():
                await self._on_machine.delete_unrecorded_vms(action, state)
            case do.DeleteUnrecordedClaims():
                await self._on_cluster.delete_unrecorded_claims(action, state)
            case do.RecordVolumes():
                await self._on_cluster.record_volumes(action, state)
            case do.DeleteVolumes():
                await self._on_cluster.delete_volumes(action, state)
            case do.DeleteSecrets():
                await self._on_cluster.delete_secrets(action, state)
            case do.RemoveFinalizer():
                await self._on_cluster.remove_finalizer(action, state)
            case do.ClaimAddresses():
                await self._on_addresses.claim_addresses(action)
            case do.ReleaseAddresses():
                await self._on_addresses.release_addresses(action)
            case do.ProvisionVM():
                await self._on_machine.provision_vm(action, state)
            case do.StartVM():
                await self._on_machine.start_vm(action, state)
            case do.RelaxRollout():
                await self._on_update.relax_rollout(action, state)
            case do.DeleteStalledPod():
                await self._on_update.delete_stalled_pod(action, state)
            case do.LabelNode():
                await self._on_machine.label_node(action, state)
            case do.ScrubBootstrapData():
                await self._on_machine.scrub_bootstrap_data(action, state)
            case do.DeleteMachine():
                await self._on_machine.delete_machine(action, state)
            case do.TaintNode():
                await self._on_machine.taint_node(action, state)
            case do.UntaintNode():
                await self._on_machine.untaint_node(action, state)
            case do.CordonNode():
                await self._on_machine.cordon_node(action, state)
            case do.UncordonNode():
                await self._on_machine.uncordon_node(action, state)
            case do.EvictPods():
                await self._on_machine.evict_pods(action, state)
            case do.RemoveEtcdMember():
                await self._on_machine.remove_etcd_member(action, state)
            case do.DeleteVM():
                await self._on_machine.delete_vm(action, state)
            case do.DeleteNode():
                await self._on_machine.delete_node(action, state)
            case do.DeleteNodePassword():
                await self._on_machine.delete_node_password(action, state)
            case do.RemoveMachineFinalizer():
                await self._on_machine.remove_machine_finalizer(action, state)
            case do.OperationAction():
                await self._operations.execute(action, state)
            case do.RecordVersion():
                await self._on_update.record_version(action, state)
            case do.RecordMaintenance() | do.RecordHostBack() | do.EndMaintenance():
                await self._on_maintenance.execute(action, state)
            case do.BeginUpdate():
                await self._on_update.begin_update(action, state)
            case do.MarkNode():
                await self._on_update.mark_node(action, state)
            case do.RecordUpdateStep():
                await self._on_update.record_update_step(action, state)
            case do.PreflightUpdate():
                await self._on_update.preflight_update(action, state)
            case do.ApplyUpdate():
                await self._on_update.apply_update(action, state)
            case do.PowerVM():
                await self._on_update.power_vm(action, state)
            case do.EditVM():
                await self._on_update.edit_vm(action, state)
            case do.DeleteFormerJobs():
                await self._on_update.delete_former_jobs(action, state)
            case do.FinishUpdate():
                await self._on_update.finish_update(action, state)
            case do.FailUpdate():
                await self._on_update.fail_update(action, state)
            case do.DropUpdate():
                await self._on_update.drop_update(action, state)
            case do.UpdateNode():
                await self._on_update.update_node(action, state)
            case do.RecordRunning():
                await self._on_update.record_running(action, state)
            case _:
                assert_never(action)

    def _describe_failure(self, action: Action, error: Exception, about: FieldLogger) -> ActionFailure:
        match error:
            case BootstrapSecretError():
                return ActionFailure(error.message, error.hint, f"{error.secret} to be corrected")
            case CredentialError():
                return ActionFailure(error.message, error.hint, "a credential that may be used")
            case InvalidBootstrapSpec():
                return ActionFailure(error.message, error.hint, "the spec of the Cluster to be corrected")
            case InfrastructureUnknown():
                return ActionFailure(error.message, error.hint)
            case WatchBehind():
                return ActionFailure(error.message, error.hint, "the watch of Harvester to catch up")
            case MachineRefused():
                first, *rest = error.problems
                more = f" (and {len(rest)} more)" if rest else ""
                return ActionFailure(f"{first.message}{more}", first.hint)
            case TokenRejected():
                waits_for = "server-password in the Secret of the cluster to be corrected"
                return ActionFailure(error.message, error.hint, waits_for)
            case SupervisorError():
                return ActionFailure(error.message, error.hint)
            case KubeError():
                about.warning("%s: %s", action, error)
                return ActionFailure(f"{action.reason} failed: {error}", "it is retried")
            case _:
                about.exception("%s", action)
                hint = "this is a defect; please report it"
                return ActionFailure(f"{action.reason} failed: {error!r}", hint)

    # -- events ----------------------------------------------------------------------------------------------------

    async def _record_cluster_events(self, executed: list[Action], state: ClusterState) -> None:
        """One event for equal actions: 57 machines of a pool are not 57 events."""
        counts = Counter(
            (action.reason, action.message(state.cluster, None), action.event, action.final)
            for action in executed
            if action.done
        )
        for (reason, message, type_, final), count in counts.items():
            times = "" if count == 1 else f" ({count} times)"
            await self._record(state, reason, f"{message}{times}", type_, final=final)

    async def _record_machine_event(self, action: Action, state: ClusterState) -> None:
        machine = find_machine(action.subject, state)
        if action.done and machine is None and isinstance(action, do.RelaxRollout | do.DeleteStalledPod):
            await self._record(state, action.reason, action.message(state.cluster, None), action.event)
        if not action.done or machine is None:
            return
        if isinstance(action, do.DeleteVM) and machine.deletion_requested is not None:
            return  # the request is repeated
        message = action.message(state.cluster, machine)
        await self._record(machine, action.reason, message, action.event)
        if action.on_cluster:
            await self._record(state, action.reason, message, action.event, final=action.final)

    async def record_held(self, plan: Plan, state: ClusterState) -> None:
        """An event for each replacement that is newly held; the condition lists those that were held before. And one for a
        Machine that is deleted and is the last etcd member, with what the user can do."""
        before = find_condition(state.recorded.raw.get("conditions"), "RemediationAllowed")
        for held in plan.held:
            if held.because.startswith(HOLDS_ALL_DATA):
                await self._record_last_member(held, state)
            sentence = held_sentence(held)
            if held.disruption.kind != "replace" or (before is not None and sentence in before.message):
                continue
            message = f"Restricted remediation of Machine {sentence}"
            if machine := find_machine(held.disruption.machine, state):
                await self._record(machine, "RemediationRestricted", message, "Warning")
            await self._record(state, "RemediationRestricted", message, "Warning")

    async def _record_last_member(self, held: HeldDisruption, state: ClusterState) -> None:
        machine = find_machine(held.disruption.machine, state)
        if machine is None or HOLDS_ALL_DATA in str(nested(machine.record.status, "waiting", "for")):
            return
        message = f"Held deletion of Machine {held_sentence(held)}"
        for about in (machine, state):
            await self._record(about, "DeletionHeld", message, "Warning")

    async def record_credential_problem(self, state: ClusterState) -> None:
        """An event when Harvester rejects a credential from now on, or for another reason than before."""
        await self._record_condition(credential_condition(state), "Credential", state)

    async def record_unrecorded_vms(self, state: ClusterState) -> None:
        """An event when other VMs than before carry the uid of the Cluster and no Machine records them, or have addresses of
        other machines."""
        await self._record_condition(unrecorded_condition(state), "", state)
        await self._record_condition(address_condition(state), "", state)

    async def record_lease(self, state: ClusterState) -> None:
        """An event when another manager holds the Lease from now on."""
        await self._record_condition(lease_condition(state), "", state)

    async def _record_condition(self, now: Condition | None, prefix: str, state: ClusterState) -> None:
        """An event for a condition that is not True, where it says another thing than before."""
        before = find_condition(state.recorded.raw.get("conditions"), now.type) if now else None
        if now is None or now.status == "True" or (before and before.message == now.message):
            return
        await self._record(state, f"{prefix}{now.reason}", now.message, "Warning")

    async def _record(
        self,
        about: ClusterState | MachineState,
        reason: str,
        message: str,
        type_: EventType,
        *,
        final: bool = False,
    ) -> None:
        if isinstance(about, ClusterState):
            ref, uid = cluster_ref(about), about.cluster.uid
        else:
            ref, uid = about.record.ref, about.record.object_uid
        await self._events.write(EventNote(ref, uid, reason, message[:1024], type_, final))
