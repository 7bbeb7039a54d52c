"""Execution of changes in place. All may be repeated; none decides anything."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from windrow.bootstrap.cloud_config import File
from windrow.bootstrap.install.update_job import (
    MACHINE_LABEL,
    NAMESPACE,
    UpdateJob,
    choose_image,
    render_files_secret,
    render_job,
    require_fitting,
)
from windrow.bootstrap.node_config import merge_config
from windrow.bootstrap.spec import BootstrapSpec
from windrow.clusters.api import names
from windrow.clusters.api.machine import Machine
from windrow.clusters.api.updates.turn import LIVE, SERVICE_RESTART, MachineUpdate, render_machine_update
from windrow.clusters.bootstrap_data import build_bootstrap_spec, find_distribution
from windrow.clusters.bootstrap_secrets import resolve_secrets
from windrow.clusters.context import (
    ReconcileContext,
    StalePlan,
    get_connection,
    get_machine,
    patch_observed_node,
)
from windrow.clusters.execute.chart_actions import delete_stalled_pod, relax_rollout
from windrow.clusters.execute.cordons import render_cordon, render_uncordon
from windrow.clusters.execute.servers.supervisors import Supervisors
from windrow.clusters.plan import actions as do
from windrow.clusters.plan.addresses import list_node_ips
from windrow.clusters.plan.endpoint import find_other_join_server, has_lost_join_server
from windrow.clusters.plan.operations import certificates, restarts
from windrow.clusters.plan.updates.evidence import mark_of
from windrow.clusters.plan.updates.live_changes import former_labels, former_taints
from windrow.clusters.sources.guest_api import GuestClusterCache, GuestConnection
from windrow.clusters.state import ClusterState, MachineState
from windrow.core.clock import format_time
from windrow.kubernetes.errors import AlreadyExists, Conflict, NotFound
from windrow.kubernetes.objects import (
    Raw,
    name_of,
    nested,
    objects_at,
    owner_reference,
    resource_version_of,
    uid_of,
)
from windrow.kubernetes.resources import JOB, NODE, SECRET
from windrow.machines.port import EditUnsupported, MachineRefused, Machines, Power


class UpdateActions:
    """One method for each action of a turn."""

    def __init__(
        self,
        context: ReconcileContext,
        guests: GuestClusterCache,
        infrastructure: Machines,
        supervisors: Supervisors,
    ) -> None:
        self._context, self._guests, self._infrastructure = context, guests, infrastructure
        self._supervisors = supervisors

    async def record_version(self, action: do.RecordVersion, state: ClusterState) -> None:
        await self._context.patch_observed_cluster(state, {"version": action.version})

    async def record_running(self, action: do.RecordRunning, state: ClusterState) -> None:
        machine = get_machine(action.machine, state).record
        await self._patch_spec(machine, {"version": action.version})

    async def begin_update(self, action: do.BeginUpdate, state: ClusterState) -> None:
        found = get_machine(action.machine, state)
        machine = found.record
        await self._require_token(found, action.update, state)
        if machine.update is not None and state.guest.is_reachable:
            await self._delete_jobs(found, state)
        await self._record(machine, action.update)
        if machine.retry_update:
            change = {"metadata": {"annotations": {names.RETRY_UPDATE: None}}}
            self._context.machines.mutated(await self._context.api.patch(machine.ref, change))

    async def _require_token(self, found: MachineState, update: MachineUpdate, state: ClusterState) -> None:
        """Raises TokenRejected before a configuration is written with which a server would not start again."""
        if update.change in (SERVICE_RESTART, LIVE) and _writes_files(update, state):
            await self._supervisors.require_present_token(found, state)

    async def _record(self, machine: Machine, update: MachineUpdate) -> None:
        """By compare-and-swap: a turn is begun, and goes on, once."""
        await self._context.patch_observed_machine(machine, {"update": render_machine_update(update)})

    async def record_update_step(self, action: do.RecordUpdateStep, state: ClusterState) -> None:
        await self._record(get_machine(action.machine, state).record, action.update)

    async def mark_node(self, action: do.MarkNode, state: ClusterState) -> None:
        update = self._update_of(action.machine, state)
        node = get_machine(action.machine, state).node
        change = _with_revision(mark_of(update), render_cordon(node) if action.cordons else {})
        await self._patch_node(action.machine, action.node, change, state)

    async def _patch_node(self, machine: str, node: str, change: dict[str, Any], state: ClusterState) -> None:
        await patch_observed_node(self._guests, state, get_machine(machine, state).node, node, change)

    def _update_of(self, name: str, state: ClusterState) -> MachineUpdate:
        """Raises StalePlan."""
        update = get_machine(name, state).record.update
        if update is None:
            raise StalePlan
        return update

    # -- the Job ---------------------------------------------------------------------------------------------------

    async def apply_update(self, action: do.ApplyUpdate, state: ClusterState) -> None:
        """Raises InvalidBootstrapSpec and TokenRejected."""
        found, connection = get_machine(action.machine, state), get_connection(self._guests, state)
        await self._require_token(found, self._update_of(action.machine, state), state)
        job = await self._render_job(found, action, connection, state)
        require_fitting(job)
        await self._create_job(job, connection)

    async def preflight_update(self, action: do.PreflightUpdate, state: ClusterState) -> None:
        """The Job that only asks: it has the script of the turn up to the first file."""
        found, connection = get_machine(action.machine, state), get_connection(self._guests, state)
        job = await self._render_job(found, action, connection, state)
        await self._create_job(replace(job, files=(), only_asks=True), connection)

    async def _create_job(self, job: UpdateJob, connection: GuestConnection) -> None:
        """The Secret first: a Job without it would wait for ever where this process dies in between. Then it gets its owner,
        with which it goes."""
        secret, client = render_files_secret(job), connection.client
        ref = SECRET.ref(job.name, NAMESPACE)
        try:
            await client.create(SECRET, secret)
        except AlreadyExists:  # of an attempt that was cut off; the spec may have changed since
            await client.patch(ref, {"data": secret["data"]})
        try:
            raw = await client.create(JOB, render_job(job))
        except AlreadyExists:  # by an attempt whose answer was lost
            raw = await client.get(JOB.ref(job.name, NAMESPACE))
        await client.patch(ref, {"metadata": {"ownerReferences": [owner_reference(JOB, raw)]}})
        connection.updates.created(raw)

    async def _render_job(
        self,
        found: MachineState,
        action: do.ApplyUpdate | do.PreflightUpdate,
        connection: GuestConnection,
        state: ClusterState,
    ) -> UpdateJob:
        update, machine = self._update_of(action.machine, state), found.record
        spec = await self._build_spec(found, update.version, state)
        distribution, request = find_distribution(update.version), restarts.find_request(state)
        if update.restart != (request.id if request is not None and update.restart else ""):
            raise StalePlan  # the request is over
        request = request if update.restart else None
        node = await connection.client.find(NODE.ref(action.node))
        if node is None:
            raise StalePlan
        registry = str(merge_config(spec).get("system-default-registry") or "")
        server, agent = distribution.INSTALLER.services
        return UpdateJob(
            name=action.job,
            node=action.node,
            machine_uid=machine.uid,
            version=update.version,
            service=server if spec.is_server else agent,
            installer=distribution.INSTALLER,
            files=()
            if not _writes_files(update, state)
            else _list_changeable(list(distribution.list_files(spec, self._context.matrix)), spec),
            applied_directory=distribution.LAYOUT.manifests_directory(spec),
            restarts=update.change == SERVICE_RESTART,
            request=update.restart if update.restarts_by_request else "",
            new_keys=request is not None and request.makes_keys,
            services=request.list_services(found, distribution.LAYOUT.name) if request is not None else (),
            data_directory=spec.data_directory,
            registry=registry,
            image=choose_image(node, registry, state.cluster.update_image),
        )

    async def _build_spec(self, found: MachineState, version: str, state: ClusterState) -> BootstrapSpec:
        machine, pool = found.record, state.cluster.find_pool(found.pool)
        if pool is None or state.secrets is None:
            raise StalePlan
        cluster = await resolve_secrets(self._context.api.find, state.cluster, self._context.require_consent)
        spec = build_bootstrap_spec(
            cluster,
            pool,
            machine,
            state.secrets,
            state.guest_credential.credential,
            list_node_ips(found, state.cluster),
            version=version,
        )
        # A server without etcd asks its join server at every start.
        other = find_other_join_server(found, state) if has_lost_join_server(found, state) else ""
        spec = replace(spec, inherits_charts=inherits_charts(found, state))
        return replace(spec, join_server=other) if other else spec

    # -- the VM ----------------------------------------------------------------------------------------------------

    async def power_vm(self, action: do.PowerVM, state: ClusterState) -> None:
        machine = get_machine(action.machine, state).record
        self._context.require_machine_consent(machine)
        await self._infrastructure.power(machine.driver_config or {}, Power(action.wanted))

    async def edit_vm(self, action: do.EditVM, state: ClusterState) -> None:
        """Repeatable as a whole: what is recorded last says that it is done. A refusal is recorded as the next step, too, since the VM
        is to run again."""
        machine, update = get_machine(action.machine, state).record, self._update_of(action.machine, state)
        pool = state.cluster.find_pool(machine.pool)
        if pool is None or pool.options is None:
            raise StalePlan
        self._context.require_machine_consent(machine)
        changes = state.option_rules.find_changes(machine.options, pool.options)
        restarting = {name for name, change in changes.items() if change == "restart"}
        asked = {name: value for name, value in pool.options.items() if name in restarting}
        options = {key: value for key, value in machine.options.items() if key not in restarting} | asked
        started = replace(update, step="Start", step_since=self._context.clock.now())
        try:
            edited = await self._infrastructure.edit(machine.driver_config or {}, options)
        except (MachineRefused, EditUnsupported) as refused:
            await self._record(machine, replace(started, refused=str(refused)))
            return
        gone = dict.fromkeys(restarting - options.keys())
        await self._patch_spec(machine, {"options": gone | asked})
        change = {"driverConfig": dict(edited), "update": render_machine_update(started)}
        await self._context.patch_machine_status(machine, change)

    # -- the end of a turn -----------------------------------------------------------------------------------------

    async def finish_update(self, action: do.FinishUpdate, state: ClusterState) -> None:
        """First the Node says that it is done, which a restart finds; the turn ends last."""
        update, machine = self._update_of(action.machine, state), get_machine(action.machine, state).record
        await self._release_node(action, update.config_hash or "unknown", state)
        await self._record_present(machine, update)
        await self._delete_jobs(get_machine(action.machine, state), state, spares_running=False)
        writes_files = update.change in (SERVICE_RESTART, LIVE) and _writes_files(update, state)
        ends = self._find_certificates_end(action.machine, state)
        await self._end(machine, update.restart, ends, writes_files=writes_files)

    def _find_certificates_end(self, name: str, state: ClusterState) -> str | None:
        """When its certificates end after its turn, as far as that is known; None where it changes nothing of it."""
        machine, update = get_machine(name, state), self._update_of(name, state)
        end, request = certificates.find_end(machine, state), restarts.find_request(state)
        if end is None or update.change == LIVE:
            return None
        is_new = (
            request is not None
            and request.id == update.restart
            and request.makes_keys
            and not request.services
        )
        return format_time(certificates.find_next_end(machine, end, self._context.clock.now(), is_new=is_new))

    async def _release_node(
        self, action: do.FinishUpdate | do.DropUpdate, revision: str, state: ClusterState
    ) -> None:
        node = get_machine(action.machine, state).node
        change = _with_revision(revision, render_uncordon(node) if action.uncordons else {})
        await self._patch_node(action.machine, action.node, change, state)

    async def _record_present(self, machine: Machine, update: MachineUpdate) -> None:
        """As what the machine runs from now on. Raises StalePlan where it was changed meanwhile."""
        await self._patch_spec(machine, {"version": update.version, "configHash": update.config_hash})

    async def _patch_spec(self, machine: Machine, spec: dict[str, Any]) -> None:
        """Raises StalePlan where the Machine was changed meanwhile."""
        change = {"metadata": {"resourceVersion": machine.resource_version}, "spec": spec}
        try:
            self._context.machines.mutated(await self._context.api.patch(machine.ref, change))
        except (Conflict, NotFound) as error:
            await self._context.refresh_machine(machine.ref)
            raise StalePlan from error

    async def delete_former_jobs(self, action: do.DeleteFormerJobs, state: ClusterState) -> None:
        found = get_machine(action.machine, state)
        await self._delete_jobs(found, state, spared=action.present, with_secret=False)

    async def _delete_jobs(
        self,
        found: MachineState,
        state: ClusterState,
        *,
        spared: str = "",
        with_secret: bool = True,
        spares_running: bool = True,
    ) -> None:
        """All of the machine's Jobs with their Secrets, which nothing else would delete where the guest collects no garbage, but
        for those that run. Of the Job `spared` the Secret alone goes, or nothing."""
        known = () if found.update_job is None else (found.update_job,)
        running = {one.name for one in (*known, *(found.former_jobs or ())) if one.state == "running"}
        kept = running if spares_running else set()
        connection, labels = get_connection(self._guests, state), f"{MACHINE_LABEL}={found.record.uid}"
        for kind in (SECRET, JOB):
            spares = kept | ({spared} if kind is JOB or not with_secret else set())
            for raw in await connection.client.list(kind, NAMESPACE, labels):
                if name_of(raw) in spares:
                    continue
                try:
                    ref = kind.ref(name_of(raw), NAMESPACE)
                    await connection.client.delete(ref, "Background", uid=uid_of(raw))
                except (NotFound, Conflict):
                    continue

    async def _end(
        self,
        machine: Machine,
        restarted: str = "",
        certificates_end: str | None = None,
        *,
        writes_files: bool = False,
    ) -> None:
        change: dict[str, Any] = {"update": None}
        if writes_files and former_labels(machine):
            change["formerLabels"] = None
        if writes_files and former_taints(machine):
            change["formerTaints"] = None
        if certificates_end:
            change["certificatesExpiryDate"] = certificates_end
        if restarted:
            change["restarted"] = restarted
        await self._context.patch_machine_status(machine, change)

    async def fail_update(self, action: do.FailUpdate, state: ClusterState) -> None:
        """The Node takes workloads again where it is Ready, since it runs what it ran or what was asked for."""
        found = get_machine(action.machine, state)
        update, node = action.update, found.node
        is_well = node is not None and node.ready and state.guest.is_reachable
        if update.cordoned and node is not None and is_well and (change := render_uncordon(node)):
            await self._patch_node(action.machine, node.name, change, state)
        job = found.update_job
        if state.guest.is_reachable and job is not None and job.state == "failed":
            # The Job stays for a while, with its log; what is secret does not.
            await self._delete_jobs(found, state, spared=job.name)
        await self._record(found.record, update)

    async def relax_rollout(self, action: do.RelaxRollout, state: ClusterState) -> None:
        await relax_rollout(action, get_connection(self._guests, state))

    async def delete_stalled_pod(self, action: do.DeleteStalledPod, state: ClusterState) -> None:
        await delete_stalled_pod(action, get_connection(self._guests, state))

    async def update_node(self, action: do.UpdateNode, state: ClusterState) -> None:
        """The Node where it still is as it was read, then the record of what it has. What a restart would bring back is recorded first, in
        an execution of its own: raises StalePlan."""
        machine, connection = get_machine(action.machine, state).record, get_connection(self._guests, state)
        raw = await connection.client.find(NODE.ref(action.node))
        if raw is None:
            raise StalePlan
        kept = [
            taint for taint in objects_at(raw, "spec", "taints") if not _is_of(taint, action.removed_taints)
        ]
        kept = [taint for taint in kept if not _is_of(taint, action.taints)]
        taints = [*kept, *map(_read_taint, action.taints)]
        before = former_labels(machine)
        change: dict[str, Any] = {}
        if before != action.former:  # before the Machine no longer says that it had them
            change["formerLabels"] = {**dict.fromkeys(before), **action.former}
        if set(former_taints(machine)) != set(action.former_taints):
            change["formerTaints"] = list(action.former_taints)
        if change:
            await self._context.patch_machine_status(machine, change)
            await self._context.refresh_machine(machine.ref)
            raise StalePlan
        metadata = {"resourceVersion": resource_version_of(raw), "labels": dict(action.labels)}
        try:
            await connection.patch_node(
                action.node, {"metadata": metadata, "spec": {"taints": taints or None}}
            )
        except Conflict as error:
            raise StalePlan from error
        await self._patch_spec(machine, {"labels": dict(action.labels), "taints": list(action.taints)})

    async def drop_update(self, action: do.DropUpdate, state: ClusterState) -> None:
        machine = get_machine(action.machine, state).record
        self._update_of(action.machine, state)
        await self._release_node(action, machine.config_hash or "unknown", state)
        await self._delete_jobs(get_machine(action.machine, state), state)
        await self._end(machine)


def _with_revision(revision: str, change: dict[str, Any]) -> dict[str, Any]:
    """The patch of a Node with the revision whose files it has."""
    annotations = {**nested(change, "metadata", "annotations", default={}), names.APPLIED_REVISION: revision}
    return {**change, "metadata": {"annotations": annotations}}


def _read_taint(text: str) -> Raw:
    """A taint as pools write it, KEY=VALUE:EFFECT."""
    rest, _, effect = text.rpartition(":")
    key, sign, value = rest.partition("=")
    return {"key": key, "effect": effect} | ({"value": value} if sign else {})


def _is_of(taint: Raw, texts: Sequence[str]) -> bool:
    """Whether it is one of these, whatever its value: a Node has one of a key and an effect."""
    return any(
        (one["key"], one["effect"]) == (taint.get("key"), taint.get("effect"))
        for one in map(_read_taint, texts)
    )


def inherits_charts(found: MachineState, state: ClusterState) -> bool:
    """Whether no API server is left that was given the cluster's objects, and this one is the oldest."""
    servers = [one for one in state.active if one.record.is_control_plane and one.record.was_ready]
    if any(one.record.is_init_server or not one.is_etcd for one in servers):
        return False
    oldest = min(servers, key=lambda one: (one.record.created, one.name), default=None)
    return oldest is not None and oldest.name == found.name


def _list_changeable(files: list[File], spec: BootstrapSpec) -> list[File]:
    """Without the authorities of the init server, which are its own since it has started."""
    directory = find_distribution(spec.version).LAYOUT.tls_directory(spec)
    return [file for file in files if not file.path.startswith(f"{directory}/")]


def _writes_files(update: MachineUpdate, state: ClusterState) -> bool:
    """Whether the Job of the turn writes configuration: a restart that was asked for does so where that asks for it."""
    request = restarts.find_request(state) if update.restart else None
    return not update.restart or (
        request is not None and request.id == update.restart and request.writes_files
    )
