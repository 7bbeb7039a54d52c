"""Observation of machines that are changed in place: their Jobs, and what else the guest says of their turns."""

from __future__ import annotations

import asyncio
from dataclasses import replace

from windrow.clusters.api.updates.turn import MachineUpdate
from windrow.clusters.plan.endpoint import find_api_url
from windrow.clusters.plan.updates.drain import must_drain
from windrow.clusters.sources.guest_api import GuestConnection
from windrow.clusters.state import ClusterState, MachineState
from windrow.clusters.updates.observed import list_outdated_static_pods
from windrow.kubernetes.errors import KubeError
from windrow.kubernetes.resources import POD


def list_drained_for_update(state: ClusterState) -> list[MachineState]:
    """The machines whose pods are evicted before their service is restarted."""
    if state.cluster.deletion_timestamp is not None or not state.guest.is_reachable:
        return []
    in_turn = ((machine, machine.record.update) for machine in state.active)
    return [machine for machine, update in in_turn if update and must_drain(machine, update, state)]


async def with_updates(state: ClusterState, connection: GuestConnection | None) -> ClusterState:
    """The Jobs of machines that are changed in place, and, once one has succeeded, the static pods of its Node; and the charts of
    the release, where they are watched."""
    if connection is not None:
        state = replace(state, charts=connection.charts.observe())
    if connection is None or not any(machine.record.update is not None for machine in state.active):
        return state
    found = await asyncio.gather(*(_with_update(one, connection, state) for one in state.machines))
    return replace(state, machines=tuple(found))


async def _with_api_server(
    machine: MachineState, update: MachineUpdate, connection: GuestConnection, state: ClusterState
) -> MachineState:
    """Whether the API server of a machine is ready whose VM was started: asked once its Node is back."""
    node = machine.node
    is_back = node is not None and node.ready and node.boot_id != update.boot
    if not (is_back and machine.record.is_control_plane and state.guest.is_reachable):
        return machine
    return replace(machine, api_problem=await connection.probe_server(find_api_url(machine)))


async def _with_update(
    machine: MachineState, connection: GuestConnection, state: ClusterState
) -> MachineState:
    update = machine.record.update
    if update is None:
        return machine
    present = "" if update.step == "Withdraw" else update.job
    present = update.preflight_job if update.step == "Preflight" else present
    machine = replace(machine, former_jobs=connection.updates.find_former(machine.record.uid, present))
    if update.step != "Withdraw" and machine.former_jobs:  # the Job that asked in this turn restarts nothing
        left = tuple(one for one in machine.former_jobs if one.name != update.preflight_job)
        machine = replace(machine, former_jobs=left)
    if update.step == "Start":
        return await _with_api_server(machine, update, connection, state)
    if update.step not in ("Preflight", "Apply"):
        return machine
    machine = replace(machine, update_job=connection.updates.observe(present))
    if update.step == "Preflight":
        return machine
    job, node = machine.update_job, machine.node
    is_over = job is not None and job.state == "succeeded" and node is not None and node.ready
    if not (is_over and machine.record.is_control_plane and state.guest.is_reachable):
        return machine
    try:
        pods = await connection.client.list(POD, "kube-system", fields=f"spec.nodeName={machine.node_name}")
    except KubeError:
        return machine
    outdated = list_outdated_static_pods(pods, update.version)
    problem = None if outdated else await connection.probe_server(find_api_url(machine))
    return replace(machine, outdated_static_pods=outdated, api_problem=problem)
