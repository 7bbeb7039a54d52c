"""Bootstrap: from a new Cluster to one whose machines are all Nodes.

The order matters in three places only: nothing is created before the preflight passed; exactly one machine may start
the cluster, and it is elected before its VM is provisioned; the others need its address. All else happens side by side.

Until the guest API server has answered once (`initialized`), a lost init server is replaced, with the same certificate
authorities. Afterwards that would make a second, empty cluster, so it never happens again.
"""

from __future__ import annotations

from windrow.bootstrap.node_config import manager_labels
from windrow.clusters.api.names import SCRUB_NOT_SUPPORTED, secrets_name
from windrow.clusters.plan.actions import (
    AddFinalizer,
    CreateSecrets,
    DeleteMachine,
    ElectInitServer,
    LabelNode,
    MarkInitialized,
    PartialPlan,
    ProvisionVM,
    PublishKubeconfig,
    RecordGuestUID,
    RecordImmutableConfig,
    ScrubBootstrapData,
)
from windrow.clusters.plan.addresses import Claims, plan_recovery, plan_unused
from windrow.clusters.plan.endpoint import (
    JoinServer,
    find_join_server,
    find_join_server_of,
    find_stable_api_url,
    find_stable_join_url,
    list_api_servers,
    list_join_urls,
)
from windrow.clusters.plan.names import Wanted, plan_creation
from windrow.clusters.plan.operations import token_rotation
from windrow.clusters.state import ClusterState, MachineState
from windrow.core.text import join_some


def is_prepared(state: ClusterState) -> bool:
    """Whether machines may be recorded: checked, with secrets and, where wanted, the guest's credential and an endpoint."""
    return (
        state.cluster.has_finalizer
        and not state.has_failed_preflight
        and state.secrets is not None
        and state.guest_credential.state in ("ready", "unneeded")
        and not state.cluster.control_plane_endpoint.is_pending
    )


def plan_preparation(state: ClusterState) -> PartialPlan:
    partial = PartialPlan()
    if state.has_failed_preflight:
        return partial  # the status names every problem; nothing is made before they are solved
    if not state.cluster.has_finalizer:
        partial.actions.append(AddFinalizer("its VMs are deleted before the Cluster is"))
    if state.has_lost_secrets:
        # Its machines trust the lost authorities only; with new ones the cluster could never be reached again.
        partial.wait(
            f"Secret {state.cluster.namespace}/{secrets_name(state.cluster.name)} to be restored (not found; it holds the "
            "certificate authorities of the cluster)",
            "reconciliation resumes",
        )
    elif state.secrets is None:
        partial.actions.append(CreateSecrets("its machines authenticate each other with them"))
    return partial


def plan(state: ClusterState) -> PartialPlan:
    """Elect the init server, provision the VMs of recorded machines, and label and scrub those that have joined."""
    if outdated := _find_outdated_init_server(state):
        return _replace_init_server(outdated, state)
    partial = PartialPlan()
    if state.recorded.has_lost_servers:
        partial.wait(
            "spec.rkeConfig.etcdSnapshotRestore.generation to be raised (the restore of before has failed after the servers were "
            "deleted, and without one a new first server would begin an empty cluster)",
            "a new first server restores that snapshot",
        )
        _publish_api(state, partial)
        return partial
    _elect_init_server(state, partial)
    _provision(state, partial)
    _publish_api(state, partial)
    for machine in state.active:
        _finish_node(machine, state, partial)
    partial.actions += _list_superseded(state)
    return partial.add(plan_recovery(state)).add(plan_unused(state))


def _find_outdated_init_server(state: ClusterState) -> MachineState | None:
    """The init server of a cluster that has not started, where another configuration is asked for: it has read its own."""
    elected = state.init_server
    if elected is None or elected.is_deleting or not state.cluster.init_server_changes:
        return None
    return elected


def _replace_init_server(first: MachineState, state: ClusterState) -> PartialPlan:
    """Delete it, unless its API server answers, or may: then the cluster keeps what it began with. Nothing else is begun, since
    what joins it is deleted with it."""
    partial = PartialPlan()
    has_no_vm = not first.record.was_requested
    if state.guest.is_reachable:
        _publish_api(state, partial)
    elif has_no_vm or state.guest.state == "unreachable" or not _may_answer(first, state):
        why = f"the cluster has not started, and {' and '.join(state.cluster.init_server_changes)}"
        partial.actions.append(DeleteMachine(why, first.name))
    else:
        partial.wait(
            f"the API server of Machine {first.name} to be probed", "the init server is created anew"
        )
    return partial


def _may_answer(first: MachineState, state: ClusterState) -> bool:
    return first.presence == "unknown" or bool(list_api_servers(state))


def _elect_init_server(state: ClusterState, partial: PartialPlan) -> None:
    candidates = [machine for machine in state.active if machine.record.is_init_server]
    elected = state.init_server
    if state.recorded.initialized or (elected is not None and not elected.is_deleting):
        partial.actions += [
            DeleteMachine("another machine was elected to start the cluster", machine.name)
            for machine in candidates
            if machine.record.uid != state.recorded.init_server_uid
        ]
        return
    lost = [machine for machine in state.deleting if machine.record.is_init_server]
    if lost:
        # Its VM may still run. Two machines that start a cluster are two clusters.
        partial.wait(f"Machine {lost[0].name} to be deleted", "another init server is created")
        return
    if candidates:
        chosen = min(candidates, key=lambda machine: (machine.record.created, machine.name))
        partial.actions.append(
            ElectInitServer(
                "it starts the cluster",
                chosen.name,
                chosen.record.uid,
                state.recorded.init_server_uid,
            )
        )
        return
    if state.unrecorded is None:
        return  # the list of VMs brings the next reconcile
    if state.unrecorded:
        partial.wait(
            f"{join_some(state.unrecorded, 1)} to be deleted, or a later backup to be restored (it carries the uid of this "
            "Cluster and no Machine records it, so the cluster may run already)",
            "the init server is created",
        )
        return
    pools = [
        pool for pool in state.cluster.pools if pool.is_etcd and pool.quantity and pool.options is not None
    ]
    # One with an API server, where there is one: it brings the objects that the guest is given once.
    pool = next((pool for pool in pools if pool.is_control_plane), pools[0] if pools else None)
    if pool is None:
        partial.wait("a machine pool with etcdRole and a machine config", "the init server is created")
        return
    why = "it is going to start the cluster"
    if state.recorded.init_server_name:
        why = f"init server {state.recorded.init_server_name} was lost before the cluster had started"
    partial.actions += plan_creation([Wanted(pool.name, 1, why, is_init_server=True)], state)


def _provision(state: ClusterState, partial: PartialPlan) -> None:
    claims = Claims(state)
    for machine in state.active:
        if machine.record.was_created or not claims.plan(machine, partial):
            continue
        # A machine that boots, or has booted, cannot be told another server any more.
        told = machine.record.was_requested or machine.record.was_adopted
        if machine.record.is_server and not told and token_rotation.holds_turns(state):
            what = "the new server token to be the one of the Secret of the cluster"
            partial.wait(what, "it is made, and joins with that", machine.name)
            continue
        match JoinServer("present") if told else find_join_server_of(machine, state):
            case JoinServer("lost"):
                why = f"it would join through {machine.record.join_server}, an address that no server has any more"
                partial.actions.append(DeleteMachine(why, machine.name))
            case JoinServer("gone", MachineState() as gone):
                partial.wait(
                    f"Machine {gone.name} to be replaced ({gone.vm_ref} not found; it was to join through it)",
                    "it is recorded anew",
                    machine.name,
                )
            case JoinServer("leaving", MachineState() as leaving):
                _join_another(machine, leaving, state, partial)
            case _ if not machine.record.is_init_server:
                why = f"it joins through {machine.record.join_server}"
                partial.actions.append(ProvisionVM(why, machine.name))
            case _ if machine.record.uid == state.recorded.init_server_uid:
                partial.actions.append(ProvisionVM("it was elected to start the cluster", machine.name))


def _join_another(
    machine: MachineState, leaving: MachineState, state: ClusterState, partial: PartialPlan
) -> None:
    """Once it boots nothing can tell it another server, and it would wait for one that is gone until it is replaced."""
    join_server, server = machine.record.join_server, find_join_server(state)
    if server == join_server:  # the last server, which stays until this machine is one
        partial.actions.append(ProvisionVM(f"it joins through {join_server}", machine.name))
    elif server:
        partial.actions.append(
            DeleteMachine(
                f"it would join through {join_server}, and Machine {leaving.name} is being deleted",
                machine.name,
            )
        )
    else:
        what = f"a server to become Ready (Machine {leaving.name}, which it was to join through, is being deleted)"
        partial.wait(what, "it is recorded anew", machine.name)


def _publish_api(state: ClusterState, partial: PartialPlan) -> None:
    if not state.guest.is_reachable:
        return
    elected = state.init_server
    if not state.recorded.initialized and elected is not None and elected.is_deleting:
        return  # all that there is of the cluster is deleted with it, and another init server starts it
    if not state.recorded.initialized:
        partial.actions.append(MarkInitialized("the guest API server answers"))
    elif state.needs_guest_uid:
        partial.actions.append(RecordGuestUID("its LoadBalancers on Harvester carry it"))
    stable = find_stable_api_url(state)
    if state.recorded.initialized and (pool := _find_unrecorded_config(state)):
        partial.actions.append(RecordImmutableConfig("its servers are made with it", pool))
    apis = (stable,) if stable else list_api_servers(state)
    if apis and state.guest.published_server not in apis:
        before = state.guest.published_server
        why = f"{before} does not exist any more" if before else f"guest API server {apis[0]} answers"
        if stable:
            why = f"the guest API server answers, and {stable} is its endpoint"
        partial.actions.append(PublishKubeconfig(why, apis[0]))


def _find_unrecorded_config(state: ClusterState) -> str:
    """A pool of servers, where it is not recorded what they share, and they all have the present configuration; "" for none,
    and where the pools differ: what one of them has would be given to the next machines of the others."""
    servers = [machine for machine in state.active if machine.record.is_server]
    if state.recorded.immutable_config is not None or not servers or not state.cluster.servers_agree:
        return ""
    hashes = state.config_hashes
    is_present = all(
        machine.record.config_hash and machine.record.config_hash == hashes.get(machine.pool)
        for machine in servers
    )
    return servers[0].pool if is_present else ""


def _finish_node(machine: MachineState, state: ClusterState, partial: PartialPlan) -> None:
    node, pool = machine.node, state.cluster.find_pool(machine.pool)
    if node is None:
        return
    labels = manager_labels(pool.labels if pool else {}, machine.record.roles)
    # What is known of the Node of a guest that does not answer is what was seen last; and an action on it would fail, again
    # and again, ahead of the one that starts the only server's VM.
    if state.guest.is_reachable and (not node.applied_revision or labels.keys() - node.labels):
        why = "kubelet may not set these labels of its Node"
        partial.actions.append(LabelNode(why, machine.name, node.name, labels))
    if node.ready and machine.record.driver_config is not None and not _is_scrubbed(machine):
        partial.actions.append(
            ScrubBootstrapData("its Node is Ready, the secrets in it are no longer needed", machine.name)
        )


def _is_scrubbed(machine: MachineState) -> bool:
    """Whether its secrets are out of what it reads, or stay there for good because its driver cannot take them out."""
    condition = machine.record.find_condition("BootstrapDataScrubbed")
    return condition is not None and (condition.status == "True" or condition.reason == SCRUB_NOT_SUPPORTED)


def _list_superseded(state: ClusterState) -> list[DeleteMachine]:
    """Before the cluster has started: machines that would join through a machine that is not the init server any more."""
    first = state.init_server if state.init_server and not state.init_server.is_deleting else None
    stable = find_stable_join_url(state)
    known = list_join_urls(first) if first else []
    if state.recorded.initialized or (first is not None and not known):
        return []
    # Behind an endpoint that stays they may have joined the init server that was lost.
    wanted = [stable] if first and stable else known
    return [
        DeleteMachine(
            f"it would join through {machine.record.join_server}, which is not the init server any more",
            machine.name,
        )
        for machine in state.active
        if not machine.record.is_init_server and machine.record.join_server not in wanted
    ]
