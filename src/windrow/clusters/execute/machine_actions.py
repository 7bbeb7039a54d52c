"""Execution of the actions on one Machine.

What is going to be made outside is recorded before it is made. What was learned (`later`) is written together with the
status at the end of the same reconcile: lost in a crash before that, it is learned again, since all actions may be
repeated.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import replace
from typing import NoReturn

from windrow.bootstrap.spec import BootstrapSpec
from windrow.clusters.api import names
from windrow.clusters.api.cluster import Cluster
from windrow.clusters.api.kinds import MACHINE
from windrow.clusters.api.machine import Machine
from windrow.clusters.bootstrap_data import (
    build_bootstrap_spec,
    build_machine_spec,
    find_distribution,
    find_layout,
    find_restore,
)
from windrow.clusters.bootstrap_secrets import resolve_s3, resolve_secrets
from windrow.clusters.context import (
    WATCH_LAG,
    ReconcileContext,
    StalePlan,
    StaleWatch,
    WatchBehind,
    delete_if_exists,
    get_connection,
    get_machine,
    patch_observed_node,
)
from windrow.clusters.execute.cordons import render_cordon, render_uncordon
from windrow.clusters.orphans import location_of
from windrow.clusters.plan import actions as do
from windrow.clusters.plan.addresses import list_node_ips
from windrow.clusters.plan.operations.new_cluster import TAINT
from windrow.clusters.sources.guest_api import GuestClusterCache
from windrow.clusters.state import ClusterState, MachineState, read_node
from windrow.clusters.status import WATCH_HINT
from windrow.core.clock import format_time
from windrow.kubernetes import requests
from windrow.kubernetes.conditions import Condition, ConditionStatus, set_condition
from windrow.kubernetes.errors import Conflict, MethodNotAllowed, NotFound, TooManyRequests
from windrow.kubernetes.objects import Raw, name_of, objects_at, resource_version_of, uid_of
from windrow.kubernetes.resources import NODE, POD, SECRET
from windrow.kubernetes.taints import list_out_of_service, render_out_of_service, without_out_of_service
from windrow.machines.port import (
    HARVESTER,
    InfrastructureUnknown,
    Machines,
    MachineStatus,
    Power,
    ReplaceUserDataUnsupported,
)

log = logging.getLogger(__name__)


class MachineActions:
    """One method for each action on one Machine. All may be repeated; none decides anything."""

    def __init__(
        self,
        context: ReconcileContext,
        infrastructure: Machines,
        guests: GuestClusterCache,
    ) -> None:
        self._context, self._infrastructure = context, infrastructure
        self._guests = guests

    async def provision_vm(self, action: do.ProvisionVM, state: ClusterState) -> None:
        found = get_machine(action.machine, state)
        machine = found.record
        self._context.require_machine_consent(machine)
        if given := state.cluster.cloud_config_secret:
            self._context.require_consent(given, state.cluster.namespace)
        cloud_config = await self._render_cloud_config(found, state)
        addresses = tuple(claim.static_address for claim in found.addresses)
        spec = build_machine_spec(state.cluster, machine, cloud_config, state.harvester_uid, addresses)
        recorded, unanswered = machine.driver_config, self._context.process_state.unanswered
        if recorded is None:
            recorded = await self._infrastructure.plan(spec)
            identity = recorded.get("WindrowHarvesterUID") if machine.driver == HARVESTER else ""
            if identity and not state.recorded.harvester_uid:
                await self._context.patch_cluster_status(state, {"harvesterUID": identity})
            # A VM is made by the manager whose view of the Machine is the present one.
            await self._context.patch_observed_machine(machine, {"driverConfig": dict(recorded)})
            unanswered.on_recorded(machine.uid)
        unanswered.on_request(machine.uid)
        try:
            driver_config = await self._infrastructure.ensure(spec, recorded)
        except InfrastructureUnknown as unknown:
            self._on_unknown(machine, unknown)
            raise
        self._context.patch_machine_status_later(machine, {"driverConfig": dict(driver_config)})

    def _on_unknown(self, machine: Machine, unknown: InfrastructureUnknown) -> None:
        if unknown.may_be_made:
            now = self._context.clock.monotonic()
            self._context.process_state.unanswered.on_unanswered(machine.uid, now)

    async def _render_cloud_config(self, found: MachineState, state: ClusterState) -> str:
        machine = found.record
        pool = state.cluster.find_pool(machine.pool)
        if pool is None or state.secrets is None:
            raise StalePlan
        cluster = await resolve_secrets(self._context.api.find, state.cluster, self._context.require_consent)
        intent = build_bootstrap_spec(
            cluster,
            pool,
            machine,
            state.secrets,
            state.guest_credential.credential,
            list_node_ips(found, state.cluster),
        )
        intent = await self._with_restore(intent, machine, cluster)
        return find_distribution(machine.version).render(intent, self._context.matrix)

    async def _with_restore(self, intent: BootstrapSpec, machine: Machine, cluster: Cluster) -> BootstrapSpec:
        """With the snapshot that the machine restores. One of another Cluster is where that has it, and nothing of that runs yet."""
        restore, source = find_restore(machine, cluster), cluster.recorded.operations.source
        if restore is None or source is None or source.separated:
            return replace(intent, restore=restore)
        find, consent = self._context.api.find, self._context.require_consent
        etcd = await resolve_s3(find, cluster.namespace, {"s3": source.s3}, consent)
        restore = replace(restore, s3=etcd["s3"])
        return replace(intent, restore=restore, taints=(*intent.taints, TAINT))

    async def render_scrubbed(self, found: MachineState, state: ClusterState) -> str:
        """What the machine reads at a start after its first: without secrets, and without what was needed once."""
        return find_distribution(found.record.version).scrub(await self._render_cloud_config(found, state))

    async def start_vm(self, action: do.StartVM, state: ClusterState) -> None:
        machine = get_machine(action.machine, state).record
        self._context.require_machine_consent(machine)
        # First the request, which may be repeated: one that was not accepted must not count as a restart.
        await self._infrastructure.power(machine.driver_config or {}, Power.ON)
        change = {
            "restartCount": machine.restart_count + 1,
            "lastRestartTime": format_time(self._context.clock.now()),
        }
        await self._context.patch_machine_status(machine, change)

    async def label_node(self, action: do.LabelNode, state: ClusterState) -> None:
        record = get_machine(action.machine, state).record
        metadata: dict[str, object] = {"labels": dict(action.labels)}
        if record.update is None:  # else the Node is marked, and its turn writes what it has
            metadata["annotations"] = {names.APPLIED_REVISION: record.config_hash or "unknown"}
        change = {"metadata": metadata}
        await get_connection(self._guests, state).patch_node(action.node, change)

    async def scrub_bootstrap_data(self, action: do.ScrubBootstrapData, state: ClusterState) -> None:
        found = get_machine(action.machine, state)
        machine = found.record
        self._context.require_machine_consent(machine)
        cloud_config = await self.render_scrubbed(found, state)
        try:
            scrubbed = await self._infrastructure.replace_user_data(machine.driver_config or {}, cloud_config)
        except ReplaceUserDataUnsupported as cannot:
            self._record_scrubbed(machine, "False", names.SCRUB_NOT_SUPPORTED, str(cannot))
            raise StalePlan from cannot  # nothing was removed, so there is no event
        self._context.patch_machine_status_later(machine, {"driverConfig": dict(scrubbed)})
        self._record_scrubbed(machine, "True", "Scrubbed", "what it reads at its next start holds no secrets")

    def _record_scrubbed(self, machine: Machine, status: ConditionStatus, reason: str, message: str) -> None:
        condition = Condition("BootstrapDataScrubbed", status, reason, message)
        conditions = set_condition(machine.conditions, condition, self._context.clock.now())
        self._context.patch_machine_status_later(machine, {"conditions": conditions})

    async def delete_machine(self, action: do.DeleteMachine, state: ClusterState) -> None:
        machine = get_machine(action.machine, state).record
        await self._require_members(action.counted, state)
        try:
            raw = await self._context.api.delete(
                machine.ref, uid=machine.object_uid, resource_version=machine.resource_version
            )
        except NotFound:
            return
        except Conflict as error:  # it was decided about an earlier state of it
            await self._context.refresh_machine(machine.ref)
            raise StalePlan from error
        if raw.get("kind") == MACHINE.kind:
            self._context.machines.mutated(raw)

    async def taint_node(self, action: do.TaintNode, state: ClusterState) -> None:
        raw = await self._read_node(action.node, action.uid, state)
        planned = get_machine(action.machine, state).node
        if planned is None or read_node(raw).ready != planned.ready:
            raise StalePlan  # a Node that is Ready by now has a machine that was started again
        if list_out_of_service(raw):
            return  # someone else has set it meanwhile
        taint = render_out_of_service(names.OUT_OF_SERVICE_VALUE, self._context.clock.now())
        await self._write_taints(raw, [*objects_at(raw, "spec", "taints"), taint], state)

    async def untaint_node(self, action: do.UntaintNode, state: ClusterState) -> None:
        raw = await self._read_node(action.node, action.uid, state)
        kept = without_out_of_service(raw, names.OUT_OF_SERVICE_VALUE)
        if kept != objects_at(raw, "spec", "taints"):
            await self._write_taints(raw, kept, state)

    async def _read_node(self, name: str, uid: str, state: ClusterState) -> Raw:
        raw = await get_connection(self._guests, state).client.find(NODE.ref(name))
        if raw is None or uid_of(raw) != uid:
            raise StalePlan
        return raw

    async def _write_taints(self, raw: Raw, taints: list[Raw], state: ClusterState) -> None:
        """Write the whole list, which has no keys to merge by, where the Node still is as it was read."""
        metadata = {"uid": uid_of(raw), "resourceVersion": resource_version_of(raw)}
        change = {"metadata": metadata, "spec": {"taints": taints or None}}
        try:
            await get_connection(self._guests, state).patch_node(name_of(raw), change)
        except Conflict as error:  # another controller has changed it
            raise StalePlan from error

    async def cordon_node(self, action: do.CordonNode, state: ClusterState) -> None:
        found = get_machine(action.machine, state)
        await patch_observed_node(self._guests, state, found.node, action.node, render_cordon(found.node))

    async def uncordon_node(self, action: do.UncordonNode, state: ClusterState) -> None:
        found = get_machine(action.machine, state)
        if change := render_uncordon(found.node):
            await patch_observed_node(self._guests, state, found.node, action.node, change)

    async def evict_pods(self, action: do.EvictPods, state: ClusterState) -> None:
        client, seconds = get_connection(self._guests, state).client, action.grace_period
        options = {} if seconds is None else {"deleteOptions": {"gracePeriodSeconds": seconds}}
        for namespace, name in action.pods:
            ref = POD.ref(name, namespace)
            if action.deletes:
                await delete_if_exists(client, ref, grace_s=seconds)
                continue
            metadata = {"name": name, "namespace": namespace}
            body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": metadata, **options}
            try:
                await client.call(requests.create_subresource(ref, "eviction", body))
            except (NotFound, TooManyRequests):
                continue  # gone already, or held by a disruption budget: it is asked again
            except MethodNotAllowed:
                await delete_if_exists(client, ref, grace_s=seconds)

    async def remove_etcd_member(self, action: do.RemoveEtcdMember, state: ClusterState) -> None:
        layout = find_layout(get_machine(action.machine, state).record.version)
        await self._require_members(action.counted, state)
        change = {"metadata": {"annotations": {layout.etcd_remove: "true"}}}
        await get_connection(self._guests, state).patch_node(action.node, change)

    async def _require_members(self, counted: Sequence[str], state: ClusterState) -> None:
        """Raises StalePlan or WatchBehind unless the VMs of these machines still are those of healthy etcd members.

        A watch may be behind, or silent, and a plugin is polled seldom: that one of them is lost would show when another
        one is gone for good.
        """
        members = [get_machine(name, state) for name in counted]
        readings = await asyncio.gather(*(self._read_status(member.record) for member in members))
        for member, vm in zip(members, readings, strict=True):
            if vm.presence == "unknown" or not state.is_healthy_etcd_member(replace(member, vm=vm)):
                self._on_stale_watch(member, vm, state)
        self._context.process_state.stale_watches.pop(state.cluster.uid, None)

    def _on_stale_watch(self, member: MachineState, vm: MachineStatus, state: ClusterState) -> NoReturn:
        """Raises StalePlan, and WatchBehind where the watch has not caught up for WATCH_LAG."""
        known, now = self._context.process_state.stale_watches, self._context.clock.monotonic()
        before = known.get(state.cluster.uid)
        since = before.since if before is not None and before.machine == member.name else now
        driver = member.record.driver
        where, source = (
            ("on Harvester", "watch") if driver == HARVESTER else (f"to driver {driver}", "last poll")
        )
        sentence = (
            f"{member.vm_ref} is {vm.state or vm.presence} {where}, and its {source} does not show that; no other etcd "
            "member is removed"
        )
        known[state.cluster.uid] = StaleWatch(member.name, since, now, sentence)
        log.info("%s", sentence)
        if now - since < WATCH_LAG:
            raise StalePlan
        raise WatchBehind(sentence, WATCH_HINT)

    async def _read_status(self, machine: Machine) -> MachineStatus:
        if machine.driver_config is None:
            raise StalePlan
        return await self._infrastructure.read_status(machine.driver_config)

    async def delete_vm(self, action: do.DeleteVM, state: ClusterState) -> None:
        machine = get_machine(action.machine, state).record
        if machine.driver_config is None:
            return
        self._context.require_machine_consent(machine)
        self._infrastructure.track(machine.driver_config)
        try:
            await self._infrastructure.remove(machine.driver_config, frozenset())
        except InfrastructureUnknown as unknown:
            self._on_unknown(machine, unknown)
            raise
        self._context.process_state.deletion_requested[machine.uid] = self._context.clock.monotonic()

    async def delete_unrecorded_vms(self, action: do.DeleteUnrecordedVMs, state: ClusterState) -> None:
        location = location_of(state.cluster)
        if location is None:
            raise StalePlan
        self._context.require_consent(location.credential, state.cluster.namespace)
        for vm in action.vms:
            config = {
                "MachineName": vm.name,
                "VMNamespace": vm.namespace,
                "ClusterName": state.cluster.name,
                "WindrowMachineUID": vm.machine_uid,
                "WindrowClusterUID": state.cluster.uid,
                "WindrowCredential": location.credential,
                "WindrowHarvesterUID": location.harvester,
            }
            await self._infrastructure.remove(config, frozenset())

    async def delete_node(self, action: do.DeleteNode, state: ClusterState) -> None:
        await delete_if_exists(get_connection(self._guests, state).client, NODE.ref(action.node))
        await self._delete_password_of(action.node, get_machine(action.machine, state).record, state)

    async def delete_node_password(self, action: do.DeleteNodePassword, state: ClusterState) -> None:
        await self._delete_password_of(action.machine, get_machine(action.machine, state).record, state)

    async def _delete_password_of(self, node: str, machine: Machine, state: ClusterState) -> None:
        """The server stores it when the node asks for its certificates, before there is a Node."""
        secret = find_layout(machine.version).node_password_secret(node)
        await delete_if_exists(get_connection(self._guests, state).client, SECRET.ref(secret, "kube-system"))
        self._context.process_state.node_deleted.add(machine.uid)

    async def remove_machine_finalizer(self, action: do.RemoveMachineFinalizer, state: ClusterState) -> None:
        machine = get_machine(action.machine, state).record
        raw = await self._context.patch_finalizers(
            machine.ref, machine.object_uid, drop=names.MACHINE_FINALIZER
        )
        if raw is not None:
            self._context.machines.mutated(raw)
        self._context.process_state.deletion_requested.pop(machine.uid, None)
        self._context.process_state.node_deleted.discard(machine.uid)
