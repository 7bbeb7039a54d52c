"""Execution of the steps of what a user asks for once. Each is recorded before it is done, and may be repeated.

A request to a supervisor that was not answered may have been carried out, so the try is recorded first, and the next one
begins by looking for what the one before has made.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from typing import Any

from windrow.bootstrap.server_config import render_s3_secret
from windrow.client.mutation_cache import MutationCache
from windrow.clusters.api.kinds import ETCD_SNAPSHOT
from windrow.clusters.api.operations.recorded import MAX_SPECS, MEMBER, RestoreRequest
from windrow.clusters.api.operations.snapshot import (
    SNAPSHOT_FINALIZER,
    SPEC_KEY,
    ETCDSnapshot,
    NoClusterSpec,
    encode_spec,
    find_openable,
    find_other_place,
    keep_metadata,
    metadata_name,
    read_snapshot,
    render_snapshot,
    spec_digest,
)
from windrow.clusters.api.operations.source import STATUS
from windrow.clusters.bootstrap_data import find_layout
from windrow.clusters.bootstrap_secrets import resolve_secrets
from windrow.clusters.context import (
    ReconcileContext,
    StalePlan,
    cluster_ref,
    delete_if_exists,
    get_connection,
    get_machine,
)
from windrow.clusters.execute.copies.separation import Separation
from windrow.clusters.execute.copies.source import CopySource
from windrow.clusters.execute.in_place_restore import (
    InPlaceRestore,
    RenderUserData,
    find_problem_of_file,
)
from windrow.clusters.execute.rotations.certificates import CertificateRenewal
from windrow.clusters.execute.rotations.keys import KeyRotation
from windrow.clusters.execute.rotations.token import TokenRotation
from windrow.clusters.execute.servers.requests import LongRequests, Work
from windrow.clusters.execute.servers.restored_generation import (
    read_restored_generation,
    write_restored_generation,
)
from windrow.clusters.execute.servers.supervisors import Supervisors
from windrow.clusters.plan.actions import OperationAction
from windrow.clusters.plan.operations import actions as do
from windrow.clusters.plan.operations.in_place import find_holder
from windrow.clusters.plan.operations.key_rotation import SNAPSHOT_REQUEST
from windrow.clusters.plan.operations.new_cluster import is_unseparated
from windrow.clusters.plan.operations.restore import check_snapshot, is_under_way, restored_spec
from windrow.clusters.plan.operations.snapshots import (
    MAX_TRIES,
    METADATA,
    RETRY_AFTER,
    S3_SECRET,
    find_runtime,
    list_members,
    request_name,
    spec_of_snapshots,
)
from windrow.clusters.plan.updates.upgrade_snapshot import REQUEST as UPGRADE_REQUEST
from windrow.clusters.sources.guest_api import GuestClusterCache
from windrow.clusters.sources.servers.supervisor import (
    EndpointNotServed,
    ServerUnreachable,
    Supervisor,
    SupervisorError,
    TokenRejected,
    render_s3,
)
from windrow.clusters.state import ClusterState, MachineState
from windrow.core.clock import format_time
from windrow.core.errors import UserError
from windrow.kubernetes.errors import AlreadyExists, Conflict, KubeError, NotFound
from windrow.kubernetes.objects import Raw, name_of, new_object, resource_version_of
from windrow.kubernetes.patches import make_merge_patch
from windrow.kubernetes.resources import CONFIG_MAP, NODE, SECRET
from windrow.machines.port import Machines, Problem

MAX_MESSAGE = 400
# Written side by side; a cluster of many snapshots is recorded within a few reconciles.
MAX_WRITES = 50
FIRST_RETRY, LAST_RETRY = timedelta(seconds=30), timedelta(minutes=30)

ConnectServer = Callable[[], Supervisor]  # opens what its caller closes

log = logging.getLogger(__name__)


class NameTaken(UserError):
    """An object of the name is another's; it is not touched."""


class OtherPlace(UserError):
    """A file in S3 is not where the spec of its Cluster says."""


async def find_or_save(
    action: do.SaveSnapshot, connect: ConnectServer, machine: MachineState, s3: dict[str, Any]
) -> str:
    """The name of the snapshot, which a try before may have made. Raises SupervisorError."""
    supervisor = connect()
    try:
        if action.tries > 1:
            listed = await supervisor.list_snapshots()
            mine = (one for one in listed if one.node == machine.node_name and not one.error)
            made = sorted(one.snapshot for one in mine if one.snapshot.startswith(action.name))
            if made:
                return made[0]
        saved = await supervisor.save_snapshot(action.name, s3)
    finally:
        await supervisor.aclose()
    return saved.created[0] if saved.created else action.name


class OperationActions:
    """One method for each action. None decides anything."""

    def __init__(
        self,
        context: ReconcileContext,
        guests: GuestClusterCache,
        supervisors: Supervisors,
        requests: LongRequests,
        snapshots: MutationCache[ETCDSnapshot],
        machines: Machines,
        render: RenderUserData,
    ) -> None:
        self._context, self._guests = context, guests
        self._supervisors, self._snapshots, self._requests = supervisors, snapshots, requests
        self._rotation = KeyRotation(context, supervisors.open, requests)
        self._token = TokenRotation(context, supervisors.open)
        self._renewal = CertificateRenewal(context)
        self._in_place = InPlaceRestore(context, guests, machines, render)
        self._source, self._separation = CopySource(context), Separation(context, guests)

    async def execute(self, action: OperationAction, state: ClusterState) -> None:
        match action:
            case do.RecordSnapshots():
                await self._record_snapshots(action, state)
            case do.ReleaseSnapshots():
                await asyncio.gather(*map(self._release, action.snapshots[:MAX_WRITES]))
            case do.WriteSnapshotMetadata():
                await self._attempt(METADATA, partial(self._write_metadata, action, state), state)
            case do.WriteS3Secret():
                await self._attempt(S3_SECRET, partial(self._write_s3_secret, action, state), state)
            case do.BeginSnapshot():
                await self._begin_snapshot(action, state)
            case do.SaveSnapshot():
                await self._save_snapshot(action, state)
            case do.FinishSnapshot():
                await self._end_snapshot("Finished", action.generation, "", state)
            case do.FailSnapshot():
                await self._end_snapshot("Failed", action.generation, action.because, state)
            case do.BeginRestore():
                await self._begin_restore(action, state)
            case do.RestoreSpec():
                await self._restore_spec(state)
            case do.StartRestore():
                await self._start_restore(state)
            case do.AdvanceRestore():
                await self._set_restore_phase(action.phase, state)
            case do.SeparateCopy():
                await self._separation.separate(action, state)
            case do.ReleaseCopy():
                await self._separation.release(action, state)
            case do.RequestClusterReset():
                await self._in_place.request(action, state)
            case do.EndClusterReset():
                await self._in_place.end(action, state)
            case do.FailRestore():
                await self._in_place.fail(action, state)
            case do.DeleteStaleNodes():
                await self._delete_stale_nodes(action, state)
            case do.FinishRestore():
                await self._finish_restore(action, state)
            case do.DeleteSnapshot():
                deletion = partial(self._delete_snapshot, action, state)
                await self._attempt(action.snapshot.name, deletion, state)
            case do.BeginKeyRotation():
                await self._rotation.begin(action, state)
            case do.SaveRotationSnapshot():
                await self._save_rotation_snapshot(action, state)
            case do.RotateKeys():
                await self._rotation.rotate(action, state)
            case do.FinishKeyRotation():
                await self._rotation.record.set_phase("Done", state)
            case do.FailKeyRotation():
                await self._rotation.record.fail(action.because, state, action.generation)
            case do.BeginRenewal():
                await self._renewal.begin(action, state)
            case do.WarnOfCertificates():
                await self._renewal.warn(action, state)
            case do.FinishRenewal():
                await self._renewal.finish(action.generation, state)
            case do.BeginTokenRotation():
                await self._token.begin(action, state)
            case do.RecordNextToken():
                await self._token.record_next(state)
            case do.RotateToken():
                await self._token.rotate(action, state)
            case do.FinishTokenRotation():
                await self._token.record.set_phase("Done", state)
            case do.FailTokenRotation():
                await self._token.record.fail(action.because, state, action.generation)
            case do.SaveUpgradeSnapshot():
                await self._save_upgrade_snapshot(action, state)
            case _:
                raise TypeError(f"{action} is no step that is known here")

    async def _read_s3(self, state: ClusterState) -> dict[str, Any]:
        """Where the Cluster wants its snapshots in S3, with the keys; {} where it does not."""
        if not state.cluster.etcd.get("s3"):
            return {}
        context = self._context
        cluster = await resolve_secrets(context.api.find, state.cluster, context.require_consent)
        return render_s3(cluster.etcd.get("s3") or {})

    # -- the objects -------------------------------------------------------------------------------------------------

    async def _record_snapshots(self, action: do.RecordSnapshots, state: ClusterState) -> None:
        if state.secrets is None:
            raise StalePlan
        passwords = state.secrets.server_passwords
        wanted = [
            render_snapshot(state.cluster, file, find_openable(file, *passwords)) for file in action.present
        ]
        await asyncio.gather(
            *(
                self._attempt(name_of(raw), partial(self._write, raw, state), state)
                for raw in wanted[:MAX_WRITES]
            )
        )
        await asyncio.gather(*map(self._remove, action.gone[:MAX_WRITES]))
        if action.forgotten:
            over = {"etcdSnapshotFailures": dict.fromkeys(action.forgotten)}
            await self._context.patch_cluster_status(state, over)

    async def _attempt(self, name: str, attempt: Work, state: ClusterState) -> None:
        """What is refused of one object is recorded, and tried again ever later. Nothing else waits for it."""
        before = state.recorded.operations.failures.get(name)
        try:
            await attempt()
        except (KubeError, UserError) as error:
            tries = before.tries + 1 if before else 1
            due = self._context.clock.now() + min(FIRST_RETRY * 2 ** min(tries - 1, 10), LAST_RETRY)
            message = str(error)[:MAX_MESSAGE]
            log.warning("%s: %s; it is tried again at %s", name, message, format_time(due))
            said: dict[str, Any] = {"message": message, "tries": tries, "retryAt": format_time(due)}
            await self._context.patch_cluster_status(state, {"etcdSnapshotFailures": {name: said}})
            return
        if before:
            await self._context.patch_cluster_status(state, {"etcdSnapshotFailures": {name: None}})

    async def _write(self, raw: Raw, state: ClusterState) -> None:
        ref = ETCD_SNAPSHOT.ref(raw["metadata"]["name"], state.cluster.namespace)
        try:
            made = await self._context.api.create(ETCD_SNAPSHOT, raw)
        except AlreadyExists:
            found = await self._context.api.get(ref)
            if found["metadata"].get("annotations") != raw["metadata"]["annotations"]:
                raise NameTaken(f"{ref} is not of this Cluster", "delete it, or name it otherwise") from None
            # What it said before and says no more is taken out: it would differ for ever.
            said, raw = ("snapshotFile", "status"), keep_metadata(raw, found)
            change = make_merge_patch({key: found.get(key) for key in said}, {key: raw[key] for key in said})
            made = await self._context.api.patch(ref, change) if change else found
        self._snapshots.mutated(made)

    async def _remove(self, snapshot: ETCDSnapshot) -> None:
        await self._release(snapshot)
        with contextlib.suppress(NotFound, Conflict):
            await self._context.api.delete(snapshot.ref, uid=snapshot.uid)
        self._snapshots.deleted(snapshot.ref, snapshot.resource_version)

    async def _release(self, snapshot: ETCDSnapshot) -> None:
        raw = await self._context.patch_finalizers(snapshot.ref, snapshot.uid, drop=SNAPSHOT_FINALIZER)
        if raw is not None:
            self._snapshots.mutated(raw)

    async def _write_metadata(self, action: do.WriteSnapshotMetadata, state: ClusterState) -> None:
        client = get_connection(self._guests, state).client
        name = metadata_name(find_runtime(state))
        carried = spec_of_snapshots(state)
        data, digest = {SPEC_KEY: encode_spec(carried)}, spec_digest(carried)
        others = [one for one in state.recorded.operations.specs if one != digest]
        specs = [*others, digest][-MAX_SPECS:]
        await self._context.patch_cluster_status(state, {"etcdSnapshotSpecs": specs})
        try:
            await client.create(CONFIG_MAP, new_object(CONFIG_MAP, name, "kube-system", data=data))
        except AlreadyExists:
            await client.patch(CONFIG_MAP.ref(name, "kube-system"), {"data": data})
        await self._context.patch_cluster_status(state, {"etcdSnapshotMetadata": {"digest": action.digest}})

    async def _write_s3_secret(self, action: do.WriteS3Secret, state: ClusterState) -> None:
        context, client = self._context, get_connection(self._guests, state).client
        cluster = await resolve_secrets(context.api.find, state.cluster, context.require_consent)
        version = state.recorded.version or state.cluster.version
        wanted = render_s3_secret(cluster.etcd.get("s3") or {}, find_layout(version))
        ref = SECRET.ref(wanted["metadata"]["name"], "kube-system")
        found = await client.find(ref)
        if found is None:
            await client.create(SECRET, wanted)
        elif change := make_merge_patch({"data": found.get("data")}, {"data": wanted["data"]}):
            await client.patch(ref, change)
        await context.patch_cluster_status(state, {"etcdSnapshotS3": {"digest": action.digest}})

    # -- on demand ---------------------------------------------------------------------------------------------------

    async def _begin_snapshot(self, action: do.BeginSnapshot, state: ClusterState) -> None:
        before = {node.machine: None for node in state.recorded.operations.snapshot.nodes}
        # What the generation before has recorded of the same machine is merged with this, so each field is said.
        fresh = {"tries": 0, **dict.fromkeys(("snapshot", "message", "retryAt", "final"))}
        nodes = before | dict.fromkeys(action.machines, fresh)
        change = {
            "etcdSnapshotCreate": {"generation": action.generation},
            "etcdSnapshotCreatePhase": "Started",
            "etcdSnapshotCreateRun": {"name": action.name, "message": None, "nodes": nodes},
        }
        await self._context.patch_observed_cluster(state, change)

    async def _save_snapshot(self, action: do.SaveSnapshot, state: ClusterState) -> None:
        try:
            machine = get_machine(action.machine, state)
        except StalePlan:
            await self._record_try(action, state, message="the Machine is gone", final=True)
            return
        s3 = await self._read_s3(state)
        connect = self._supervisors.prepare(machine, state)
        await self._record_try(action, state, tries=action.tries)
        saving = partial(self._finish_saving, action, connect, machine, s3, state)
        self._requests.begin(state.cluster.uid, request_name(action.machine), saving)

    async def _finish_saving(
        self,
        action: do.SaveSnapshot,
        connect: ConnectServer,
        machine: MachineState,
        s3: dict[str, Any],
        state: ClusterState,
    ) -> None:
        try:
            name = await find_or_save(action, connect, machine, s3)
        except SupervisorError as error:
            final = isinstance(error, EndpointNotServed | TokenRejected) or action.tries >= MAX_TRIES
            due = self._context.clock.now() + RETRY_AFTER[min(action.tries, len(RETRY_AFTER)) - 1]
            await self._record_try(
                action, state, message=str(error)[:MAX_MESSAGE], final=final, retryAt=format_time(due)
            )
            return
        await self._record_try(action, state, snapshot=name, message=None, retryAt=None)

    async def _record_try(self, action: do.SaveSnapshot, state: ClusterState, **said: Any) -> None:
        nodes = {action.machine: said}
        await self._context.patch_cluster_status(state, {"etcdSnapshotCreateRun": {"nodes": nodes}})

    async def _end_snapshot(self, phase: str, generation: int, message: str, state: ClusterState) -> None:
        change = {
            "etcdSnapshotCreate": {"generation": generation},
            "etcdSnapshotCreatePhase": phase,
            "etcdSnapshotCreateRun": {"message": message or None},
        }
        await self._context.patch_observed_cluster(state, change)

    async def _save_upgrade_snapshot(self, action: do.SaveUpgradeSnapshot, state: ClusterState) -> None:
        """Looked for first: an attempt may have been cut off. A release without the endpoint has none, which is recorded."""
        machine, s3 = get_machine(action.member, state), await self._read_s3(state)
        saving = partial(
            self._finish_upgrade_snapshot,
            action,
            self._supervisors.prepare(machine, state),
            machine,
            s3,
            state,
        )
        self._requests.begin(state.cluster.uid, UPGRADE_REQUEST, saving)

    async def _finish_upgrade_snapshot(
        self,
        action: do.SaveUpgradeSnapshot,
        connect: ConnectServer,
        machine: MachineState,
        s3: dict[str, Any],
        state: ClusterState,
    ) -> None:
        said: dict[str, Any] = {"version": action.version, "generation": action.generation}
        said |= {"name": None, "message": None, "retryAt": None}
        try:
            saving = do.SaveSnapshot(action.because, action.member, MAX_TRIES, action.name)
            said["name"] = await find_or_save(saving, connect, machine, s3)
        except EndpointNotServed as error:
            said["message"] = str(error)[:MAX_MESSAGE]
        except SupervisorError as error:
            due = self._context.clock.now() + RETRY_AFTER[-1]
            said |= {"message": str(error)[:MAX_MESSAGE], "retryAt": format_time(due)}
        await self._context.patch_cluster_status(state, {"upgradeSnapshot": said})

    async def _save_rotation_snapshot(self, action: do.SaveRotationSnapshot, state: ClusterState) -> None:
        """Looked for first: an attempt may have been cut off. Without one nothing is rotated."""
        if state.recorded.operations.rotation.snapshot:
            await self._rotation.record.set_phase("Rotate", state)
            return
        machine, s3 = get_machine(action.member, state), await self._read_s3(state)
        saving = partial(
            self._finish_rotation_snapshot,
            action,
            self._supervisors.prepare(machine, state),
            machine,
            s3,
            state,
        )
        self._requests.begin(state.cluster.uid, SNAPSHOT_REQUEST, saving)

    async def _finish_rotation_snapshot(
        self,
        action: do.SaveRotationSnapshot,
        connect: ConnectServer,
        machine: MachineState,
        s3: dict[str, Any],
        state: ClusterState,
    ) -> None:
        saving = do.SaveSnapshot(action.because, action.member, MAX_TRIES, action.name)
        try:
            said: dict[str, Any] = {"snapshot": await find_or_save(saving, connect, machine, s3)}
        except ServerUnreachable as error:
            log.warning("%s: %s", action.name, error)
            said = {"retryAt": format_time(self._context.clock.now() + RETRY_AFTER[0])}
        except SupervisorError as error:
            said = {
                "message": f"no etcd snapshot could be made: {str(error)[:MAX_MESSAGE]}; nothing was touched"
            }
        await self._rotation.record.say(state, **said)

    async def _delete_snapshot(self, action: do.DeleteSnapshot, state: ClusterState) -> None:
        """From S3 with the keys of the Cluster where its own spec says, nowhere else: the guest writes what it lists."""
        file, s3 = action.snapshot.file, None
        if file.s3 is not None:
            s3 = await self._read_s3(state)
            if other := find_other_place(file.s3, s3):
                raise OtherPlace(
                    f"{action.snapshot} is in {other} of S3, which is not where spec.rkeConfig.etcd.s3 has its snapshots; it is not "
                    "deleted",
                    "correct the spec, or delete the file there by other means: its object goes once the guest does not list it",
                )
        supervisor = self._supervisors.open(get_machine(action.machine, state), state)
        try:
            await supervisor.delete_snapshot(file.snapshot, s3)
        finally:
            await supervisor.aclose()

    # -- restore -----------------------------------------------------------------------------------------------------

    async def _begin_restore(self, action: do.BeginRestore, state: ClusterState) -> None:
        request, recorded = action.request, state.recorded.operations.restore
        now = self._context.clock.now()
        asked = {
            "name": request.name,
            "generation": request.generation,
            "restoreRKEConfig": request.config,
            MEMBER: request.member or None,
        }
        run: dict[str, Any] = {"since": format_time(now)}
        run |= dict.fromkeys(("message", "member", "path", "refused"))
        if done := await self._find_carried_out(request, state):
            change = {
                "etcdSnapshotRestorePhase": "Finished",
                "etcdSnapshotRestoreRun": run | {"message": done},
            }
            await self._context.patch_observed_cluster(state, {"etcdSnapshotRestore": asked, **change})
            return
        found = await self._find_source(action, state)
        if isinstance(found, Problem) and is_under_way(state):
            # What was begun before goes on: servers that it has stopped must not run beside one that resets etcd.
            change = {
                "etcdSnapshotRestore": {"generation": request.generation},
                "etcdSnapshotRestoreRun": {"refused": str(found)},
            }
            await self._context.patch_observed_cluster(state, change)
            return
        if isinstance(found, Problem):
            change = {
                "etcdSnapshotRestorePhase": "Failed",
                "etcdSnapshotRestoreRun": run | {"message": str(found)},
            }
            await self._context.patch_observed_cluster(state, {"etcdSnapshotRestore": asked, **change})
            return
        copied = {key: found.pop(key) for key in (STATUS,) if key in found}
        run |= {
            "id": f"{request.generation}-{int(now.timestamp())}",
            "s3": dict.fromkeys(recorded.s3),  # it is read where the spec says
            **found,
        }
        change = {"etcdSnapshotRestorePhase": "Started", "etcdSnapshotRestoreRun": run, **copied}
        await self._context.patch_observed_cluster(state, {"etcdSnapshotRestore": asked, **change})

    async def _find_carried_out(self, request: RestoreRequest, state: ClusterState) -> str:
        """That the guest was restored so before, where its API answers and says so; "" where not. Raises KubeError."""
        if is_under_way(state) or not state.guest.is_reachable:
            return ""
        done = await read_restored_generation(get_connection(self._guests, state).client, state.cluster.uid)
        if done < request.generation:
            return ""
        return (
            f"the cluster was restored by generation {done} before, as Namespace kube-system says, and the record of the manager is "
            f"older, as after a backup was put back: nothing was touched; write generation {done + 1} to restore it once more"
        )

    async def _finish_restore(self, action: do.FinishRestore, state: ClusterState) -> None:
        """Recorded in the guest first, which no backup of the manager takes back. One that does not answer has none."""
        try:
            client = get_connection(self._guests, state).client
            await write_restored_generation(client, state.cluster.uid, action.generation)
        except (KubeError, StalePlan) as error:
            log.warning("the restore of %s is not recorded in the guest: %s", state.cluster.name, error)
        await self._set_restore_phase("Finished", state, action.because)

    async def _find_source(self, action: do.BeginRestore, state: ClusterState) -> dict[str, Any] | Problem:
        """What is recorded of where the data come from, and of the machines that are replaced; or why there is no restore."""
        request = action.request
        if request.source is not None:
            described = await self._source.describe(request, state)
            replaced = list(action.replaced)
            return (
                described
                if isinstance(described, Problem)
                else {"file": request.name, "replaced": replaced, **described}
            )
        if request.member:
            reset = self._in_place.describe_reset(request, state)
            return reset if isinstance(reset, Problem) else {"file": None, **reset}
        raw = await self._context.api.find(ETCD_SNAPSHOT.ref(request.name, state.cluster.namespace))
        if problem := check_snapshot(raw, request, state):
            return problem
        snapshot = read_snapshot(raw or {})
        file = snapshot.file
        if file.s3 is not None and (problem := await self._check_s3(state)):
            return problem
        if problem := await self._find_problem_of_file(snapshot, state):
            return problem
        if file.s3 is not None:
            return {"file": file.snapshot, "replaced": list(action.replaced)}
        return {"file": file.snapshot, **self._in_place.describe_snapshot(file, state)}

    async def _find_problem_of_file(self, snapshot: ETCDSnapshot, state: ClusterState) -> Problem | None:
        """What a server says against the file, where one answers: nothing was deleted or stopped yet."""
        file = snapshot.file
        ready = [one for one in list_members(state) if one.is_ready]
        asked = find_holder(file, state) if file.s3 is None else next(iter(ready), None)
        if asked is None or not asked.address or not state.guest.is_reachable:
            return None
        s3 = None if file.s3 is None else await self._read_s3(state)
        return await find_problem_of_file(
            self._supervisors.open(asked, state), asked.name, file, str(snapshot), s3
        )

    async def _check_s3(self, state: ClusterState) -> Problem | None:
        """Whether the new first server can be given the keys of S3."""
        where = "spec.rkeConfig.etcd.s3"
        try:
            found = await self._read_s3(state)
        except UserError as error:
            return Problem(error.message, f"{error.hint}; nothing was touched", where)
        if found:
            return None
        hint = "write bucket and cloudCredentialName there, with which the first server reads the snapshot; nothing was touched"
        return Problem(f"{where} is not set", hint, where)

    async def _restore_spec(self, state: ClusterState) -> None:
        recorded, cluster = state.recorded.operations.restore, state.cluster
        if is_unseparated(state):
            await self._source.adopt_secrets(state)
        if not recorded.name or is_unseparated(state):
            await self._set_restore_phase("Shutdown", state)
            return
        now = cluster.raw.get("spec") or {}
        try:
            raw = await self._context.api.get(ETCD_SNAPSHOT.ref(recorded.name, cluster.namespace))
            wanted = restored_spec(raw, recorded.config, now, state.recorded.operations.specs)
        except (NotFound, NoClusterSpec) as error:
            if recorded.config != "none":
                message = f"the spec in ETCDSnapshot {cluster.namespace}/{recorded.name} cannot be read: {error}; nothing was touched"
                await self._set_restore_phase("Failed", state, message)
                return
            wanted = now
        if wanted != now:
            version = {"metadata": {"resourceVersion": resource_version_of(cluster.raw)}}
            try:
                changed = await self._context.api.patch(
                    cluster_ref(state), make_merge_patch({"spec": now}, {"spec": wanted}) | version
                )
            except Conflict as error:
                raise StalePlan from error
            self._context.clusters.mutated(changed)
            raise StalePlan  # the next plan sees it as it is now
        await self._set_restore_phase("Shutdown", state)

    async def _start_restore(self, state: ClusterState) -> None:
        recorded = state.recorded.operations.restore
        running = state.recorded.version or state.cluster.version
        raw = await self._context.api.find(ETCD_SNAPSHOT.ref(recorded.name, state.cluster.namespace))
        await self._token.go_back(read_snapshot(raw).file.token_hash if raw else "", state)
        forgotten = dict.fromkeys(
            (
                "initialized",
                "initServer",
                "immutableConfig",
                "creating",
                "etcdSnapshotMetadata",
                "etcdSnapshotS3",
            )
        )
        change = {
            **forgotten,
            "version": running if recorded.config == "none" else state.cluster.version,
            **({"rotateTokenPhase": "Failed"} if state.recorded.operations.token.is_under_way else {}),
            "etcdSnapshotRestorePhase": "Restore",
            "etcdSnapshotRestoreRun": {"since": format_time(self._context.clock.now())},
        }
        await self._context.patch_observed_cluster(state, change)
        # Its servers are gone; what it has read of the guest is not so any more.
        self._guests.close(state.cluster.uid)

    async def _set_restore_phase(self, phase: str, state: ClusterState, message: str = "") -> None:
        run = {"since": format_time(self._context.clock.now()), "message": message or None}
        change = {"etcdSnapshotRestorePhase": phase, "etcdSnapshotRestoreRun": run}
        await self._context.patch_observed_cluster(state, change)

    async def _delete_stale_nodes(self, action: do.DeleteStaleNodes, state: ClusterState) -> None:
        connection = get_connection(self._guests, state)
        layout = find_layout(state.recorded.version or state.cluster.version)
        for name in action.nodes[:MAX_WRITES]:
            node = connection.nodes.get(NODE.ref(name))
            password = SECRET.ref(layout.node_password_secret(name), "kube-system")
            # First what nothing shows once the Node is gone.
            await delete_if_exists(connection.client, password)
            await delete_if_exists(connection.client, NODE.ref(name))
            if node is not None:
                connection.nodes.deleted(NODE.ref(name), node.resource_version)
