"""Birth: from a Cluster that was only asked for to one whose machines are all nodes.

The order matters in three places only: nothing is made before the preflight passed; exactly one machine may start the
cluster, and it is elected before its VM is ordered; the others need its address. All else happens side by side.

Until the guest API has answered once (`initialized`), a lost first server is made anew from nothing, with the same
authorities. Afterwards that would make a second, empty cluster, so it never happens again.
"""

from __future__ import annotations

from windrow.bootstrap.spec import Role
from windrow.clusters.api.names import CANNOT_SCRUB, secrets_name
from windrow.clusters.plan.actions import (
    AddFinalizer,
    CreateMachine,
    CreateSecrets,
    DeleteMachine,
    ElectInitServer,
    LabelNode,
    MarkInitialized,
    ProvisionVM,
    PublishKubeconfig,
    RecordGuestUID,
    ScrubBootstrapData,
    Wait,
)
from windrow.clusters.plan.endpoint import SUPERVISOR_PORT, list_api_servers, url
from windrow.clusters.plan.partial_plan import PartialPlan, PlanBuilder
from windrow.clusters.state import ClusterState, MachineState


def is_prepared(state: ClusterState) -> bool:
    """Whether machines may be recorded: checked, with secrets and, where wanted, the guest's credential."""
    return (
        state.cluster.has_finalizer
        and not state.has_failed_preflight
        and state.secrets is not None
        and state.guest_credential.state in ("ready", "unneeded")
    )


def plan_preparation(state: ClusterState) -> PartialPlan:
    builder = PlanBuilder()
    if state.has_failed_preflight:
        return builder.build()  # the status names every problem; nothing is made before they are solved
    if not state.cluster.has_finalizer:
        builder.actions.append(AddFinalizer("so that nothing stays behind when it is deleted"))
    if state.has_lost_secrets:
        # Its machines trust the authorities that are lost; new ones would lock everybody out for good.
        builder.waits.append(
            Wait(
                f"you to restore Secret {secrets_name(state.cluster.name)}, without which nobody can reach the cluster",
                "its machines are looked after again",
            )
        )
    elif state.secrets is None:
        builder.actions.append(CreateSecrets("its machines will trust each other by them"))
    return builder.build()


def plan(state: ClusterState) -> PartialPlan:
    """Elect the first server, order what is recorded, and finish what has joined."""
    builder = PlanBuilder()
    _elect_init_server(state, builder)
    _provision(state, builder)
    _publish_api(state, builder)
    for machine in state.active:
        _finish_node(machine, builder)
    return builder.build()


def _elect_init_server(state: ClusterState, builder: PlanBuilder) -> None:
    candidates = [machine for machine in state.active if machine.record.is_init_server]
    elected = state.init_server
    if state.recorded.initialized or (elected is not None and not elected.is_deleting):
        builder.actions += [
            DeleteMachine("another machine was elected to start the cluster", machine.name)
            for machine in candidates
            if machine.record.uid != state.recorded.init_server_uid
        ]
        return
    lost = [machine for machine in state.deleting if machine.record.is_init_server]
    if lost:
        # Its VM may still run. Two machines that start a cluster are two clusters.
        builder.waits.append(Wait(f"{lost[0].name} to be gone", "another first server is recorded"))
        return
    if candidates:
        chosen = min(candidates, key=lambda machine: (machine.record.created, machine.name))
        builder.actions.append(
            ElectInitServer(
                "one machine starts the cluster",
                chosen.name,
                chosen.record.uid,
                state.recorded.init_server_uid,
            )
        )
        return
    pool = next(
        (pool for pool in state.cluster.pools if pool.is_etcd and pool.quantity and pool.options is not None),
        None,
    )
    if pool is None:
        builder.waits.append(
            Wait("a pool with the etcd role and a machine config", "the first server is recorded")
        )
        return
    why = "one machine starts the cluster"
    if state.recorded.init_server_name:
        why = f"the first server {state.recorded.init_server_name} was lost before the cluster had started"
    builder.actions.append(CreateMachine(why, pool.name, is_init_server=True))


def _provision(state: ClusterState, builder: PlanBuilder) -> None:
    for machine in state.active:
        if machine.record.was_created:
            continue
        if not machine.record.is_init_server:
            builder.actions.append(
                ProvisionVM(f"it joins through {machine.record.join_server}", machine.name)
            )
        elif machine.record.uid == state.recorded.init_server_uid:
            builder.actions.append(ProvisionVM("it was elected to start the cluster", machine.name))


def _publish_api(state: ClusterState, builder: PlanBuilder) -> None:
    if not state.guest.is_reachable:
        return
    if not state.recorded.initialized:
        builder.actions.append(MarkInitialized("the guest API answers"))
    elif state.needs_guest_uid:
        builder.actions.append(RecordGuestUID("its load balancers are known by it"))
    apis = list_api_servers(state)
    if apis and state.guest.published_server not in apis:
        why = (
            "people reach the cluster with it"
            if not state.guest.published_server
            else f"{state.guest.published_server} is gone"
        )
        builder.actions.append(PublishKubeconfig(why, apis[0]))


def _finish_node(machine: MachineState, builder: PlanBuilder) -> None:
    node = machine.node
    if node is None:
        return
    if not node.applied_revision or (Role.WORKER in machine.record.roles and not node.has_worker_label):
        builder.actions.append(LabelNode("kubelet may not set its own role", machine.name, node.name))
    if node.ready and machine.record.driver_config is not None and not _is_scrubbed(machine):
        builder.actions.append(
            ScrubBootstrapData("the node is Ready; its secrets are no longer needed", machine.name)
        )


def _is_scrubbed(machine: MachineState) -> bool:
    """Whether its secrets are out of what it reads, or stay there for good because its driver cannot take them out."""
    told = machine.record.find_condition("Scrubbed")
    return told is not None and (told.status == "True" or told.reason == CANNOT_SCRUB)


def plan_superseded(state: ClusterState) -> list[DeleteMachine]:
    """Before the cluster has started, machines that wait for a first server which is no longer the one."""
    first = state.init_server
    if state.recorded.initialized:
        return []
    if first is None or first.is_deleting:
        wanted = ""
    elif not first.address:
        return []
    else:
        wanted = url(first.address, SUPERVISOR_PORT)
    return [
        DeleteMachine(
            f"it would join {machine.record.join_server}, which is not the first server any more",
            machine.name,
        )
        for machine in state.active
        if not machine.record.is_init_server and machine.record.join_server != wanted
    ]
