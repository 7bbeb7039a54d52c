"""Shared volumes: mounted from the NFS server that Harvester has for each of them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from windrow.core.clock import Clock
from windrow.csi.mounts import paths, shares
from windrow.csi.mounts.commands import run_command
from windrow.csi.mounts.linux.table import MountTable, expect_mode, expect_nowhere_else
from windrow.csi.mounts.mountinfo import find_mount
from windrow.csi.mounts.options import MountOptions, options_of
from windrow.csi.mounts.port import FilesystemMount, MountConflict, NetworkShare, ToolFailed

# mount.nfs tries for two minutes where the server does not answer.
_SHARE_TIMEOUT = timedelta(minutes=3)


class Shares:
    """Stages shared volumes. `share_type` is the filesystem that they are mounted with."""

    def __init__(self, clock: Clock, table: MountTable, share_type: str) -> None:
        self._clock, self._table, self._share_type = clock, table, share_type

    async def stage(self, share: NetworkShare, path: str, mount: FilesystemMount) -> None:
        shares.check_share(share)
        path = paths.resolve(path)
        command = shares.mount_command(share, path, mount, self._share_type)
        with self._table.claimed(path):
            await self._stage(share, path, options_of(mount), command)

    async def _stage(
        self, share: NetworkShare, path: str, options: MountOptions, command: Sequence[str]
    ) -> None:
        await self._unmount_moved(share, path)
        if find_mount(self._table.read(), path) is None:
            paths.ensure_directory(path)
            paths.refuse_link(path)
            made = await run_command(self._clock, command, _SHARE_TIMEOUT)
            if made.code != 0:
                raise ToolFailed(
                    f"cannot mount {shares.source_of(share)} at {path}: {made.reason}",
                    "the driver's image needs the NFS client (mount.nfs), its pod the network of the node (hostNetwork), and the "
                    "node a way to this address",
                )
        mounted = find_mount(self._table.read(), path)
        if mounted is None or not self._table.is_share(mounted) or mounted.source != shares.source_of(share):
            raise MountConflict(
                f"{path} has {mounted.source if mounted else 'nothing'} mounted, not {shares.source_of(share)} of volume "
                f"{share.volume_id}",
                "unmount it on the node",
            )
        expect_mode(mounted, options, path)

    async def _unmount_moved(self, share: NetworkShare, path: str) -> None:
        """Harvester may serve the volume at another address by now; from the old one nothing is read any more."""
        mounts = self._table.read()
        mounted = find_mount(mounts, path)
        if mounted is None or not self._table.is_share(mounted) or mounted.source == shares.source_of(share):
            return
        if not shares.is_same_export(mounted, share):
            return
        same = [one for one in mounts if one.device == mounted.device]
        expect_nowhere_else(f"volume {share.volume_id}, served at {share.server} now,", same, path)
        await self._table.unmount_all(path)
