"""Observation of a Cluster's guest: its API, its Nodes, the pods of those that are drained, and what is attached to those
that go, with the proof that a machine is shut down.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta

from windrow.client.client import Client
from windrow.clusters.api import names
from windrow.clusters.api.cluster import Cluster
from windrow.clusters.api.guest_volumes import GuestVolumes
from windrow.clusters.api.secrets import CredentialError, read_published_server
from windrow.clusters.context import ReconcileContext
from windrow.clusters.plan.hosts import maintenance
from windrow.clusters.plan.volumes.fencing import is_shutdown_suspected
from windrow.clusters.sources.guest_api import GuestClusterCache
from windrow.clusters.sources.harvesters import HarvesterClients, VmLocation
from windrow.clusters.sources.volumes.node_pods import list_pods_to_evict, list_staying_volumes
from windrow.clusters.sources.volumes.on_harvester import list_guest_volumes
from windrow.clusters.state import ClusterState, GuestState, MachineState, Node
from windrow.clusters.updates.observation import list_drained_for_update
from windrow.harvester.resources import VM, VMI
from windrow.harvester.shutdown import LAUNCHERS, Shutdown, read_shutdown, select_launchers
from windrow.kubernetes.errors import KubeError
from windrow.kubernetes.objects import name_of, nested
from windrow.kubernetes.resources import POD, SECRET, VOLUME_ATTACHMENT
from windrow.machines.port import HARVESTER

# How long after an attempt the uid of a guest that did not report it is read again.
GUEST_UID_RETRY = timedelta(minutes=10)


class GuestObserver:
    """Reads, without side effects."""

    def __init__(
        self, context: ReconcileContext, harvesters: HarvesterClients, guests: GuestClusterCache
    ) -> None:
        self._context, self._harvesters, self._guests = context, harvesters, guests

    def with_guest(self, state: ClusterState) -> ClusterState:
        """With what the informers of the guest show, and each machine with its Node."""
        connection = self._guests.find(state.cluster.uid)
        if connection is None:
            return replace(state, guest=GuestState(published_server=self._published_server(state.cluster)))
        guest = replace(connection.observe(), published_server=self._published_server(state.cluster))
        nodes = _find_nodes(state.machines, guest.nodes)
        if not guest.is_reachable:
            # What the guest said last tells which nodes there are, but not how they are now.
            nodes = {
                uid: replace(node, ready=False, ready_message=guest.because) for uid, node in nodes.items()
            }
        machines = tuple(replace(machine, node=nodes.get(machine.record.uid)) for machine in state.machines)
        return replace(
            state,
            guest=guest,
            machines=machines,
            needs_guest_uid=guest.is_reachable and self._needs_guest_uid(state),
            snapshot_files=connection.snapshots.observe() if guest.is_reachable else None,
        )

    def _needs_guest_uid(self, state: ClusterState) -> bool:
        if not state.recorded.initialized or state.recorded.guest_uid:
            return False
        asked = self._context.process_state.guest_uid_requested.get(state.cluster.uid)
        return asked is None or self._context.clock.monotonic() >= asked + GUEST_UID_RETRY

    def _published_server(self, cluster: Cluster) -> str:
        secret = self._context.secrets.get(SECRET.ref(names.kubeconfig_name(cluster.name), cluster.namespace))
        return read_published_server(secret, cluster, self._context.clock.now())

    async def with_pods(self, state: ClusterState) -> ClusterState:
        """With the pods that are still to be evicted from each Node that is drained."""
        connection = self._guests.find(state.cluster.uid)
        draining = [
            machine
            for machine in state.deleting
            if (state.cluster.deletion_timestamp is None and state.is_drainable(machine))
        ]
        draining += [*list_drained_for_update(state), *maintenance.list_drained(state)]
        if connection is None or not draining:
            return state
        pods = await asyncio.gather(
            *(list_pods_to_evict(connection.client, machine.node_name) for machine in draining)
        )
        found = {machine.name: tuple(some) for machine, some in zip(draining, pods, strict=True)}
        machines = tuple(replace(machine, pods=found.get(machine.name, ())) for machine in state.machines)
        return replace(state, machines=machines)

    async def with_volumes(self, state: ClusterState) -> ClusterState:
        """What is attached to the Nodes of machines that go or were shut down, and the proof that these were."""
        connection = self._guests.find(state.cluster.uid)
        if state.cluster.deletion_timestamp is not None or not state.guest.is_reachable or connection is None:
            return state
        suspected = {one.name: one for one in state.machines if is_shutdown_suspected(one)}
        leaving = {
            one.name for one in state.deleting if one.node is not None and _may_hold_volumes(one, state)
        }
        if not (suspected or leaving):
            return state
        attached = await _attached_by_node(connection.client)
        staying = await _list_staying(
            connection.client,
            [one for one in state.deleting if one.name in leaving and one.presence != "missing"],
            attached,
        )
        # A Machine that is deleted and has nothing attached needs no taint.
        doubted = [
            one for one in suspected.values() if not one.is_deleting or _attached_to(one, attached) != ()
        ]
        proofs = await asyncio.gather(*(self._prove_shutdown(one, state) for one in doubted))
        shutdowns = {one.name: proof for one, proof in zip(doubted, proofs, strict=True)}
        machines = tuple(
            replace(
                machine,
                attached=_attached_to(machine, attached),
                staying=staying.get(machine.name, frozenset()),
                shutdown=shutdowns.get(machine.name),
            )
            if machine.name in leaving or machine.name in suspected
            else machine
            for machine in state.machines
        )
        return replace(state, machines=machines)

    async def _prove_shutdown(self, machine: MachineState, state: ClusterState) -> Shutdown:
        """By live reads of the Harvester that the machine was made on, since a watch may be behind. Of other drivers nothing is
        known but what they say."""
        record = machine.record
        if record.driver != HARVESTER:
            return _prove_by_driver(machine)
        harvester = str((record.driver_config or {}).get("WindrowHarvesterUID") or state.harvester_uid)
        if not harvester:
            return Shutdown(False, "it is not recorded which Harvester it is on")
        location = VmLocation(record.vm_namespace, machine.name, record.credential, harvester)
        try:
            client = await self._harvesters.get_verified_client(location, record.namespace)
            refs = (kind.ref(machine.name, record.vm_namespace) for kind in (VM, VMI))
            raw_vm, raw_vmi = await asyncio.gather(*map(client.find, refs))
            pods = await client.list(POD, record.vm_namespace, LAUNCHERS)
        except (CredentialError, KubeError) as error:
            return Shutdown(False, str(error))
        return read_shutdown(machine.vm_ref, raw_vm, raw_vmi, select_launchers(machine.name, pods))

    async def list_guest_volumes(self, state: ClusterState) -> GuestVolumes | None:
        """None where the guest does not answer."""
        connection = self._guests.find(state.cluster.uid)
        if connection is None or not state.guest.is_reachable:
            return None
        return await list_guest_volumes(connection.client)


def _find_nodes(machines: Sequence[MachineState], found: Iterable[Node]) -> dict[str, Node]:
    """By the uid of its Machine the Node of each machine: of its name, which no kubelet but its own may register or change. Its
    label alone proves nothing, since every kubelet may write any there; one that lost it is the Node that was recorded."""
    by_name = {node.name: node for node in found}
    nodes = {}
    for machine in machines:
        node = by_name.get(machine.name)
        recorded = nested(machine.record.status, "nodeRef", "uid", default="")
        if node is not None and (node.machine_uid == machine.record.uid or node.uid == recorded):
            nodes[machine.record.uid] = node
    return nodes


def _prove_by_driver(machine: MachineState) -> Shutdown:
    """What its driver last said of it; one that is only stopped may be started again, by whom is not known."""
    driver, vm = machine.record.driver, machine.vm
    if machine.presence == "missing":
        return Shutdown(True, f"driver {driver} does not find it")
    return Shutdown(
        False, f"driver {driver} reports it as {vm.state if vm and vm.state else machine.presence}"
    )


def _may_hold_volumes(machine: MachineState, state: ClusterState) -> bool:
    """Whether what is attached to the Node of a machine that is being deleted decides about its next step."""
    return machine.presence == "missing" or (state.is_drainable(machine) and not machine.pods)


def _attached_to(
    machine: MachineState, by_node: Mapping[str, tuple[str, ...]] | None
) -> tuple[str, ...] | None:
    return None if by_node is None else by_node.get(machine.node_name, ())


async def _list_staying(
    client: Client, leaving: list[MachineState], by_node: Mapping[str, tuple[str, ...]] | None
) -> dict[str, frozenset[str]]:
    """By machine, what a drain leaves attached to its Node."""
    found = {}
    for machine in leaving:
        if _attached_to(machine, by_node):
            found[machine.name] = await list_staying_volumes(client, machine.node_name)
    return found


async def _attached_by_node(client: Client) -> dict[str, tuple[str, ...]] | None:
    """The PersistentVolumes that are attached to each Node, or are being; None where that is not known."""
    try:
        found = await client.list(VOLUME_ATTACHMENT)
    except KubeError:
        return None
    attached: dict[str, list[str]] = {}
    for raw in found:
        volume = str(nested(raw, "spec", "source", "persistentVolumeName", default="") or name_of(raw))
        attached.setdefault(str(nested(raw, "spec", "nodeName", default="")), []).append(volume)
    return {node: tuple(sorted(volumes)) for node, volumes in attached.items()}
