"""The exports of one guest cluster's shared volumes: turned on for nodes, turned off behind the last, and deleted."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

from windrow.client.client import Client
from windrow.core.clock import Clock, sleep
from windrow.core.formats.json import Raw
from windrow.core.rng import Rng
from windrow.csi.harvester.owners import GuestCluster
from windrow.csi.harvester.refusals import requesting
from windrow.csi.harvester.shared.filesystems import (
    NAMESPACE,
    Filesystem,
    plan_publish,
    plan_unpublish,
    read_filesystem,
    render_filesystem,
)
from windrow.csi.volumes import AttachedDifferently, Unfinished, VolumeInUse
from windrow.csi.waits import waits_for
from windrow.harvester.resources import NETWORK_FILESYSTEM
from windrow.kubernetes.errors import AlreadyExists, Conflict, Forbidden, KubeError, NotFound, names_no_object
from windrow.kubernetes.resources import ObjectRef

# How often a change is planned anew where others change the object in between.
ATTEMPTS = 6
BACKOFF = timedelta(milliseconds=50)


class ShareRequests:
    """Changes NetworkFilesystems, each after a fresh read."""

    def __init__(self, client: Client, guest: GuestCluster, clock: Clock, rng: Rng) -> None:
        self._client, self._guest = client, guest
        self._clock, self._rng = clock, rng

    async def publish(self, name: str, volume_id: str, node: str, *, read_only: bool) -> str:
        """Record that the node has the volume, and turn its export on; the resourceVersion since. Raises AttachedDifferently."""

        def plan(found: Filesystem) -> Raw | None:
            has = found.mode_of(node)
            if has not in ("", "ro" if read_only else "rw"):
                raise AttachedDifferently(volume_id, node, has == "ro")
            return plan_publish(found, volume_id, node, "ro" if read_only else "rw", self._guest.uid)

        nodes = {node: "ro" if read_only else "rw"}
        return await self._change(name, plan, render_filesystem(name, volume_id, nodes, self._guest.uid))

    async def unpublish(self, name: str, node: str) -> None:
        """Record that the node, "" for all, has the volume no more, and turn the export off behind the last."""
        await self._change(name, lambda found: plan_unpublish(found, node), None)

    async def find(self, name: str) -> Filesystem | None:
        """Raises FailedPrecondition where another guest cluster made it."""
        ref = _ref(name)
        waits_for(f"an answer of Harvester about {ref}")
        with requesting(f"read {ref}"):
            raw = await self._client.find(ref)
        if raw is None:
            return None
        found = read_filesystem(raw)
        self._guest.require_own(found.guest_uid, ref)
        return found

    async def find_name(self, volume_id: str) -> str:
        """The export of a volume of this guest cluster whose claim is gone; "" for none, also on a Harvester that has no exports,
        and where the role forbids them: then the driver cannot have made one."""
        what = f"list {NETWORK_FILESYSTEM.plural} in namespace {NAMESPACE}"
        waits_for(f"an answer of Harvester to {what}")
        try:
            found = await self._client.list(NETWORK_FILESYSTEM, NAMESPACE)
        except Forbidden:
            return ""
        except KubeError as error:
            if names_no_object(error):
                return ""
            with requesting(what):
                raise
        exports = [one for one in map(read_filesystem, found) if one.volume_id == volume_id]
        return next((one.name for one in exports if self._guest.owns(one.guest_uid)), "")

    async def delete(self, name: str, volume_id: str) -> None:
        """Order the deletion, where no node has it; what is not there is deleted. Raises VolumeInUse."""
        found = await self.find(name)
        if found is None or found.is_deleting:
            return
        if found.known_nodes:
            raise VolumeInUse(volume_id, found.known_nodes, "deleted")
        ref = _ref(name)
        with requesting(f"delete {ref}"):
            try:
                # A node that gets it in the same moment changes it.
                await self._client.delete(ref, uid=found.uid, resource_version=found.resource_version)
            except NotFound as error:
                if names_no_object(error):
                    raise

    async def _change(
        self, name: str, plan: Callable[[Filesystem], Raw | None], to_create: Raw | None
    ) -> str:
        """The resourceVersion after the change that is planned, "" where there is nothing to change."""
        ref = _ref(name)
        for attempt in range(1, ATTEMPTS + 1):
            found = await self.find(name)
            if found is None and to_create is None:
                return ""
            if found is not None and found.is_deleting:
                raise Unfinished(
                    f"{ref} on Harvester is being deleted", "repeat the same call once it is gone"
                )
            with requesting(f"change {ref}"):
                try:
                    if found is None:
                        raw = await self._client.create(NETWORK_FILESYSTEM, to_create or {}, NAMESPACE)
                    elif (change := plan(found)) is not None:
                        raw = await self._client.patch(ref, change)
                    else:
                        return found.resource_version
                    return read_filesystem(raw).resource_version
                except (AlreadyExists, Conflict, NotFound) as error:
                    if names_no_object(error):
                        raise
            await sleep(self._clock, BACKOFF * attempt * self._rng.uniform(1.0, 2.0))
        raise Unfinished(
            f"{ref} on Harvester was changed by others {ATTEMPTS} times meanwhile", "repeat the same call"
        )


def _ref(name: str) -> ObjectRef:
    return NETWORK_FILESYSTEM.ref(name, NAMESPACE)
