"""What the port Volumes promises of volumes of kind `shared`, on a Harvester."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from windrow.client.client import Client
from windrow.csi import names
from windrow.csi.errors import FailedPrecondition, InvalidArgument
from windrow.csi.harvester.claims import LONGHORN, Claim
from windrow.csi.harvester.refusals import not_found_as, requesting
from windrow.csi.harvester.shared.filesystems import NAMESPACE, Filesystem
from windrow.csi.harvester.shared.requests import ShareRequests
from windrow.csi.harvester.state import HarvesterState
from windrow.csi.volumes import (
    Attachment,
    NodeNotFound,
    PermissionMissing,
    Unfinished,
    UnknownParameter,
    Volume,
    VolumeInUse,
    VolumeRequest,
)
from windrow.csi.waits import waits_for
from windrow.harvester.resources import NETWORK_FILESYSTEM, VM
from windrow.harvester.volumes import ClaimModes
from windrow.kubernetes.errors import Forbidden
from windrow.kubernetes.objects import annotations_of, name_of, nested
from windrow.kubernetes.resources import PVC, STORAGE_CLASS

MODES = ClaimModes("ReadWriteMany", "Filesystem")
_IS_DEFAULT = "storageclass.kubernetes.io/is-default-class"


class SharedVolumes:
    """Volumes that nodes mount over the network. `state` is run by its owner."""

    def __init__(self, client: Client, state: HarvesterState, requests: ShareRequests) -> None:
        self._client, self.state, self._requests = client, state, requests

    # --- making -----------------------------------------------------------------------------------------------------

    async def require_class(
        self, storage_class: str, unknown: InvalidArgument, wanted: VolumeRequest
    ) -> None:
        """Raises UnknownParameter where the StorageClass on Harvester, "" for the default, cannot have shared volumes, and
        PermissionMissing where the driver could not serve one."""
        if wanted.parameters.get(names.HOST_VOLUME_MODE) == "block":
            raise UnknownParameter(
                f"parameters[{names.HOST_VOLUME_MODE}]", "a shared volume is a filesystem, no block device"
            )
        await self.state.wait_for_filesystems()
        raw = await self._read_class(storage_class, unknown)
        if raw is None:
            return  # the role of older releases cannot read it
        name, field = name_of(raw), f"parameters[{names.HOST_STORAGE_CLASS}]"
        hint = "name a StorageClass of Longhorn on Harvester without parameter migratable"
        if (provisioner := raw.get("provisioner")) != LONGHORN:
            raise UnknownParameter(
                field,
                f"StorageClass {name!r} on Harvester is of {provisioner}, which shares no volumes",
                hint,
            )
        if str(nested(raw, "parameters", "migratable", default="")).lower() == "true":
            raise UnknownParameter(
                field,
                f"StorageClass {name!r} on Harvester has migratable true, so its volumes are not shared",
                hint,
            )

    async def _read_class(self, name: str, unknown: InvalidArgument) -> Mapping[str, Any] | None:
        ref = STORAGE_CLASS.ref(name)
        with requesting(f"read {ref if name else 'StorageClasses'}"):
            try:
                if name:
                    with not_found_as(ref, unknown):
                        return await self._client.get(ref)
                found = await self._client.list(STORAGE_CLASS)
            except Forbidden:
                return None
        return next((one for one in found if annotations_of(one).get(_IS_DEFAULT) == "true"), None)

    # --- nodes ------------------------------------------------------------------------------------------------------

    async def publish(self, claim: Claim, node: str, *, read_only: bool) -> Attachment:
        """Return once the node can mount it."""
        volume_id = claim.volume.id
        await self._require_vm(node)
        await self.state.wait_for_sync()
        if nodes := self.state.nodes_with(volume_id):
            raise VolumeInUse(volume_id, nodes, "shared: it is a disk there")
        await self.state.wait_for_filesystems()
        name = claim.export or await self._wait_until_bound(volume_id)
        version = await self._requests.publish(name, volume_id, node, read_only=read_only)
        await self.state.wait_for_filesystem(name, version)
        found = await self._wait_until_ready(name, volume_id, node)
        return Attachment(read_only, {**found.context(), names.PUBLISH_CAPACITY: str(claim.volume.size)})

    async def _require_vm(self, node: str) -> None:
        ref = VM.ref(node, self.state.namespace)
        waits_for(f"an answer of Harvester about {ref}")
        with requesting(f"read {ref}"):
            if await self._client.find(ref) is None:
                raise NodeNotFound(node, f" in namespace {self.state.namespace} on Harvester")

    async def _wait_until_bound(self, volume_id: str) -> str:
        """The volume on Harvester that the claim is bound to."""
        ref = PVC.ref(volume_id, self.state.namespace)
        found = ""

        def describe_wait() -> str:
            nonlocal found
            claim = self.state.claim(volume_id)
            found = claim.export if claim else ""
            phase = claim.phase if claim else "it is not there"
            return "" if found else f"{ref} on Harvester to be bound (phase: {phase}); then it is exported"

        await self.state.wait_until(describe_wait)
        return found

    async def _wait_until_ready(self, name: str, volume_id: str, node: str) -> Filesystem:
        """The export, once the node can mount it. Raises Unfinished where the node is detached meanwhile."""
        ref = NETWORK_FILESYSTEM.ref(name, NAMESPACE)
        ready: list[Filesystem] = []

        def describe_wait() -> str:
            found = self.state.filesystem(name)
            if found is None or not found.mode_of(node):
                raise Unfinished(
                    f"volume {volume_id!r} was detached from {node} meanwhile", "repeat the same call"
                )
            if not found.is_ready:
                return f"{ref} on Harvester to be Enabled and Ready ({found.describe()})"
            ready.append(found)
            return ""

        await self.state.wait_until(describe_wait)
        return ready[0]

    async def unpublish(self, volume_id: str, claim: Claim | None, node: str) -> None:
        """Return once it is recorded that the node has it no more. Of a volume of the Go driver whose export cannot be read
        none was made."""
        name = claim.export if claim is not None else await self._requests.find_name(volume_id)
        if not name:
            return
        try:
            await self._requests.unpublish(name, node)
        except PermissionMissing:
            if claim is not None and claim.has_record:
                raise

    async def delete_export(self, volume_id: str, claim: Claim | None) -> None:
        """Order the deletion of what exports it. Raises VolumeInUse while a node has it."""
        name = claim.export if claim is not None else await self._requests.find_name(volume_id)
        if not name:
            return
        try:
            await self._requests.delete(name, volume_id)
        except PermissionMissing:
            if claim is not None and claim.has_record:
                raise

    async def require_unshared(self, claim: Claim, what: str) -> None:
        """Raises VolumeInUse while a node has it over the network."""
        if not claim.export:
            return
        try:
            found = await self._requests.find(claim.export)
        except PermissionMissing:
            if claim.has_record:
                raise
            return
        if found is not None and (found.known_nodes or found.desired == "Enabled"):
            raise VolumeInUse(claim.volume.id, found.known_nodes or ["nodes that the Go driver knows"], what)

    # --- reading ----------------------------------------------------------------------------------------------------

    async def wait_until_readable(self) -> str:
        """Return once the nodes of shared volumes are known, or why they cannot be."""
        try:
            await self.state.wait_for_filesystems()
        except FailedPrecondition as error:
            return str(error)
        return ""

    def seen(self, claim: Claim, problem: str = "") -> Volume:
        """The volume, with the nodes that have it."""
        found = self.state.filesystem(claim.export) if claim.export else None
        return replace(claim.volume, nodes=_nodes(found), problem=claim.volume.problem or problem)


def _nodes(found: Filesystem | None) -> tuple[str, ...]:
    """None while the export is not to be on, as after it was turned off by hand: then the attacher attaches it again."""
    return found.known_nodes if found is not None and found.desired == "Enabled" else ()
