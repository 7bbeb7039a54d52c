"""Execution of a restore by a server that stays: its user data, and what is recorded. What `operations.py` says holds here."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from windrow.bootstrap.install.cluster_reset import ClusterReset, add_reset
from windrow.clusters.api.operations.recorded import RestoreRequest
from windrow.clusters.api.operations.snapshot import SnapshotFile
from windrow.clusters.bootstrap_data import find_distribution
from windrow.clusters.context import ReconcileContext, StalePlan, get_machine
from windrow.clusters.plan.operations import actions as do
from windrow.clusters.plan.operations.in_place import (
    check_reset,
    find_holder,
    find_member,
    is_cut_off,
    list_other_servers,
    snapshot_path,
)
from windrow.clusters.sources.guest_api import GuestClusterCache
from windrow.clusters.sources.servers.supervisor import RequestRefused, Supervisor, SupervisorError
from windrow.clusters.state import ClusterState, MachineState
from windrow.core.clock import format_time
from windrow.machines.port import Machines, Problem

# What the manager has recorded of the guest, and the guest may have again as it was.
FORGOTTEN = ("etcdSnapshotMetadata", "etcdSnapshotS3")

UNTOUCHED = "nothing was touched, raise spec.rkeConfig.etcdSnapshotRestore.generation to try again"

RenderUserData = Callable[[MachineState, ClusterState], Awaitable[str]]


async def find_problem_of_file(
    supervisor: Supervisor, machine: str, file: SnapshotFile, where: str, s3: Mapping[str, Any] | None = None
) -> Problem | None:
    """What a server says against a file that is recorded, on its disk or in `s3`: it may be gone or cut off since. One that does not
    answer says nothing."""
    place = "S3" if s3 else f"the disk of Machine {machine}"
    there = f"{'in' if s3 else 'on'} {place}"
    try:
        listed = await supervisor.list_snapshots(s3)
    except RequestRefused as error:
        return Problem(
            f"Machine {machine} cannot read {place}: {error.message}", f"{error.hint}; {UNTOUCHED}"
        )
    except SupervisorError:
        return None
    finally:
        await supervisor.aclose()
    named = (one for one in listed if one.snapshot == file.snapshot)
    found = next((one for one in named if (one.s3 is None) == (file.s3 is None)), None)
    hint = f"name another snapshot; {UNTOUCHED}"
    if found is None:
        return Problem(f"the file of {where} is not {there} any more", hint)
    if is_cut_off(found) or found.size < file.size:
        was = f"has {found.size} bytes, and had {file.size}: it was cut off"
        return Problem(f"the file of {where} {there} {was}", hint)
    return None


class InPlaceRestore:
    """One method for each step. `render` gives the user data of a machine without what was needed once."""

    def __init__(
        self,
        context: ReconcileContext,
        guests: GuestClusterCache,
        infrastructure: Machines,
        render: RenderUserData,
    ) -> None:
        self._context, self._guests, self._infrastructure = context, guests, infrastructure
        self._render = render

    def describe_snapshot(self, file: SnapshotFile, state: ClusterState) -> dict[str, Any]:
        """What is recorded of a restore by the server that has the file."""
        holder = find_holder(file, state)
        if holder is None:
            raise StalePlan
        return self._describe(holder, snapshot_path(file), state)

    def describe_reset(self, request: RestoreRequest, state: ClusterState) -> dict[str, Any] | Problem:
        """What is recorded of a reset without a snapshot, or why there is none."""
        problem = check_reset(request, state)
        return problem or self._describe(get_machine(request.member, state), "", state)

    def _describe(self, member: MachineState, path: str, state: ClusterState) -> dict[str, Any]:
        return {
            "member": member.record.uid,
            "path": path or None,
            "replaced": list(list_other_servers(state, member)),
        }

    async def request(self, action: do.RequestClusterReset, state: ClusterState) -> None:
        recorded = state.recorded.operations.restore
        machine = get_machine(action.machine, state)
        distribution = find_distribution(machine.record.version)
        directory = state.cluster.data_directory or f"/var/lib/rancher/{distribution.LAYOUT.name}"
        reset = ClusterReset(recorded.id, recorded.path, directory)
        service = distribution.INSTALLER.services[0]
        document = add_reset(await self._render(machine, state), reset, distribution.LAYOUT, service)
        await self._replace_user_data(machine, document)
        await self._advance("Restore", state)
        # Its servers do not run; what it has read of the guest is not so any more.
        self._guests.close(state.cluster.uid)

    async def end(self, action: do.EndClusterReset, state: ClusterState) -> None:
        machine = get_machine(action.machine, state)
        await self._replace_user_data(machine, await self._render(machine, state))
        await self._advance("InitialRestartCluster", state, **dict.fromkeys(FORGOTTEN))

    async def fail(self, action: do.FailRestore, state: ClusterState) -> None:
        """The user data of a server that stays no longer ask for the reset."""
        member = find_member(state)
        if member is not None and member.presence == "present":
            await self._replace_user_data(member, await self._render(member, state))
        await self._advance("Failed", state, message=action.because)

    async def _replace_user_data(self, machine: MachineState, document: str) -> None:
        self._context.require_machine_consent(machine.record)
        await self._infrastructure.replace_user_data(machine.record.driver_config or {}, document)

    async def _advance(
        self, phase: str, state: ClusterState, message: str | None = None, **rest: Any
    ) -> None:
        run = {"since": format_time(self._context.clock.now()), "message": message}
        change = {"etcdSnapshotRestorePhase": phase, "etcdSnapshotRestoreRun": run, **rest}
        await self._context.patch_observed_cluster(state, change)
