"""The snapshots that a guest lists, kept current by a watch while its API answers.

A watch of its own transport: that of the Nodes says whether the guest answers at all, and must not end because a release
does not have ETCDSnapshotFiles yet (before v1.26.9, v1.27.6 and v1.28.2).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import timedelta
from typing import Protocol

from windrow.client.informer import Informer
from windrow.client.transport import Transport
from windrow.clusters.api.operations.snapshot import (
    MAX_FILES,
    SNAPSHOT_FILE,
    SnapshotFile,
    read_snapshot_file,
)
from windrow.core.clock import Clock, sleep
from windrow.core.rng import Rng
from windrow.kubernetes.errors import KubeError
from windrow.kubernetes.objects import Raw

# After a refusal: a server defines the kind a moment after its API answers, and an update may bring it later.
FIRST_RETRY, MAX_RETRY = timedelta(minutes=1), timedelta(minutes=30)
MAX_HELD_METADATA = 16 * 2**20  # of all files of one guest


class EndpointTransport(Transport, Protocol):
    """A Transport to whichever of the servers answers."""

    def set_endpoints(self, urls: tuple[str, ...]) -> None: ...


class GuestSnapshots:
    """The ETCDSnapshotFiles of one guest. `run` is its owner's task; `changed` is called at each change."""

    def __init__(
        self, transport: EndpointTransport, clock: Clock, rng: Rng, changed: Callable[[], None]
    ) -> None:
        self._transport, self._clock, self._rng = transport, clock, rng
        self._changed = changed
        self._informer: Informer[SnapshotFile] | None = None
        self._sizes: dict[str, int] = {}  # of what is held of the metadata, by file
        self._total = 0

    def set_endpoints(self, urls: tuple[str, ...]) -> None:
        self._transport.set_endpoints(urls)

    def observe(self) -> tuple[SnapshotFile, ...] | None:
        """Those that there are; None while that is not known. One that cannot be read is as it was, or left out."""
        informer = self._informer
        if informer is None or not informer.is_watching:
            return None
        self._sizes = {one.name: one.metadata_size for one in informer.values()}
        self._total = sum(self._sizes.values())
        return tuple(sorted(informer.values(), key=lambda one: one.name))

    def read(self, raw: Raw) -> SnapshotFile | None:
        """The file, without its metadata where all together would be more than is held of one guest; None beyond MAX_FILES,
        until it is listed again."""
        file = read_snapshot_file(raw)
        if file is None or (len(self._sizes) >= MAX_FILES and file.name not in self._sizes):
            return None
        self._total -= self._sizes.pop(file.name, 0)
        if self._total + file.metadata_size > MAX_HELD_METADATA:
            why = f"the snapshots of this cluster carry more than the {MAX_HELD_METADATA} characters that are kept"
            file = file.without_metadata(why)
        self._sizes[file.name] = file.metadata_size
        self._total += file.metadata_size
        return file

    async def run(self) -> None:
        """Watch until cancelled. What is refused is asked for again, ever later."""
        wait = FIRST_RETRY
        try:
            while True:
                self._informer = Informer(
                    self._transport,
                    SNAPSHOT_FILE,
                    "",
                    self.read,
                    self._clock,
                    self._rng,
                    raise_refusals=True,
                    on_state=self._changed,
                )
                try:
                    await self._follow(self._informer)
                except KubeError:
                    self._informer = None
                await sleep(self._clock, wait)
                wait = min(2 * wait, MAX_RETRY)
        finally:
            self._informer = None

    async def _follow(self, informer: Informer[SnapshotFile]) -> None:
        async def follow() -> None:
            async for _ in informer.changes():
                self._changed()

        following = asyncio.ensure_future(follow())
        try:
            await informer.run()
        finally:
            following.cancel()
            await asyncio.gather(following, return_exceptions=True)
