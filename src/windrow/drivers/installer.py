"""What the plan of a NodeDriver orders: fetch, unpack, ask, define, and at the end take all of it away."""

from __future__ import annotations

import asyncio
import logging
import os
import stat
from collections.abc import Awaitable, Callable, Collection
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import unquote, urlsplit

from windrow.client.client import Client
from windrow.client.downloads import DEFAULT_LIMITS, MIB, DownloadFailed
from windrow.core.clock import Clock
from windrow.drivers.api import FINALIZER, NodeDriver
from windrow.drivers.faults import Fault, Reason
from windrow.drivers.kinds import NODE_DRIVER, machine_config
from windrow.drivers.plan import DefineKind, Download, Install, NodeDriverState, Uninstall
from windrow.drivers.probe import ReadFlags, probe_flags
from windrow.drivers.schema import (
    DRIVER_LABEL,
    find_source_checksum,
    is_generated,
    machine_config_kind,
    read_fields,
    render_crd,
    schema_source,
)
from windrow.drivers.status import render_installed
from windrow.drivers.store import DriverStore
from windrow.kubernetes.errors import Conflict, NotFound
from windrow.kubernetes.objects import Raw, finalizers_of, is_deleting, labels_of, name_of, uid_of
from windrow.kubernetes.resources import CRD

log = logging.getLogger(__name__)

T = TypeVar("T")

FIELD_MANAGER = "windrow-catalogue"
READ_SIZE = 1024 * 1024

# Hands every byte behind a URL to the function, in order. windrow.client.downloads has the one over HTTPS.
Fetch = Callable[[str, Callable[[bytes], None]], Awaitable[None]]
# Runs work on files beside the event loop: asyncio.to_thread, or in stories nothing but the call.
RunBlocking = Callable[[Callable[[], Any]], Awaitable[Any]]


async def run_inline(work: Callable[[], T]) -> T:
    return work()


class DownloadCancelled(Exception):
    """What is being fetched is not asked for any more."""


@dataclass(slots=True)
class _ActiveDownload:
    """A download under way, and the bell that calls it off."""

    source: tuple[str, str]
    cancelled: asyncio.Event = field(default_factory=asyncio.Event)


class Installer:
    """Carries out actions. Each may be repeated, and raises Fault where it cannot be done now."""

    def __init__(
        self,
        api: Client,
        store: DriverStore,
        fetch: Fetch,
        read_flags: ReadFlags,
        clock: Clock,
        run_blocking: RunBlocking,
        read: Callable[[Raw], NodeDriver],
    ) -> None:
        self._api, self._store, self._fetch, self._read_flags = api, store, fetch, read_flags
        self._clock, self._run_blocking, self._read = clock, run_blocking, read
        self._downloads: dict[str, _ActiveDownload] = {}

    def on_change(self, before: NodeDriver | None, after: NodeDriver | None) -> None:
        """End a download that nobody waits for any more: a server may take its time."""
        driver = after or before
        download = self._downloads.get(driver.name) if driver is not None else None
        if download is None:
            return
        if (
            after is None
            or after.is_deleting
            or not after.is_requested
            or (after.url, after.checksum) != download.source
        ):
            download.cancelled.set()

    async def add_finalizer(self, raw: Raw) -> None:
        """Put our finalizer on the object. Raises Conflict where it changed meanwhile."""
        await self._set_finalizers(raw, [*finalizers_of(raw), FINALIZER])

    async def execute(self, state: NodeDriverState, action: Download | Install | DefineKind) -> None:
        """Raises Abandoned, too, where a download is not asked for any more."""
        match action:
            case Download():
                await self._download(state.driver, action)
            case Install():
                name = state.driver.name
                await self._run_blocking(lambda: self._store.install(action.checksum, name, action.url))
            case DefineKind():
                await self._define_kind(state, action)

    async def _download(self, driver: NodeDriver, action: Download) -> None:
        try:
            download = self._store.start_download(action.checksum, driver.name)
            try:
                await self._fetch_url(driver, action, download.write)
                await self._run_blocking(download.commit)
            finally:
                download.discard()
        except DownloadFailed as error:
            reason: Reason = "ServerAway" if error.is_temporary else "DownloadFailed"
            raise Fault(error.message, error.hint, reason) from error
        except OSError as error:
            text = (error.strerror or str(error)).lower()
            raise Fault(
                f"the driver cannot be read ({text})", "check spec.url and the network", "DownloadFailed"
            ) from error

    async def _fetch_url(self, driver: NodeDriver, action: Download, write: Callable[[bytes], None]) -> None:
        """Fetch what the action names. Raises Abandoned when the object asks for something else meanwhile."""
        if action.url.startswith("file:"):
            await self._run_blocking(lambda: copy_file(action.url, write))
            return
        download = self._downloads[driver.name] = _ActiveDownload((action.url, action.checksum))
        waits = [
            asyncio.ensure_future(self._fetch(action.url, write)),
            asyncio.ensure_future(download.cancelled.wait()),
        ]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
            if not waits[0].done():
                raise DownloadCancelled
            waits[0].result()
        finally:
            del self._downloads[driver.name]
            for wait in waits:
                wait.cancel()
            await asyncio.gather(*waits, return_exceptions=True)

    async def _define_kind(self, state: NodeDriverState, action: DefineKind) -> None:
        installed = action.installed
        path = await self._run_blocking(lambda: self._store.verified_path(installed.digest))
        if path is None:
            raise Fault(
                "its program is not what was installed any more", "look at the state directory", "StoreFailed"
            )
        fields = read_fields(
            await probe_flags(path, self._read_flags, self._clock), state.driver.field_annotations
        )
        kind = machine_config_kind(installed.name)
        if not state.kind_external:
            origin = schema_source(installed.digest, state.driver.field_annotations)
            crd = render_crd(installed.name, fields, origin)
            await self._api.apply(CRD.ref(kind.group_resource), crd, FIELD_MANAGER, force=True)
        status = render_installed(state, action, kind.kind)
        await self._api.patch(NODE_DRIVER.ref(state.driver.name), {"status": status}, subresource="status")
        await self.sweep()

    async def uninstall(self, raw: Raw, driver: NodeDriver, action: Uninstall) -> None:
        """Take away the kind, if it is ours, then the files, then our finalizer."""
        if action.kind and not action.keep_kind:
            ref = CRD.ref(machine_config(action.kind).group_resource)
            crd = await self._api.find(ref)
            if crd is not None and is_generated(crd):
                await self._api.delete(ref, uid=uid_of(crd))
        await self.sweep(excluded=driver.name)
        log.info("NodeDriver %s: removed: %s", driver.name, action.because)
        try:
            await self._set_finalizers(raw, [one for one in finalizers_of(raw) if one != FINALIZER])
        except (Conflict, NotFound):
            return  # it changed or went meanwhile; the next look sees how

    async def _set_finalizers(self, raw: Raw, wanted: list[str]) -> None:
        change = {"finalizers": wanted, "resourceVersion": raw["metadata"]["resourceVersion"]}
        await self._api.patch(NODE_DRIVER.ref(name_of(raw)), {"metadata": change})

    async def sweep(self, excluded: str = "") -> None:
        """Remove the files that no NodeDriver names any more, and the kinds."""
        found = await self._api.list(NODE_DRIVER)
        drivers = [self._read(raw) for raw in found if name_of(raw) != excluded]
        keep = {digest for one in drivers for digest in (one.checksum, one.applied[1])} - {""}
        removed = await self._run_blocking(lambda: self._store.sweep(keep))
        if removed:
            log.info("removed the files of drivers that nobody names: %s", ", ".join(removed))
        await self._sweep_kinds({one.driver_name for one in drivers}, keep)

    async def _sweep_kinds(self, names: Collection[str], digests: Collection[str]) -> None:
        """A kind is defined before its NodeDriver says so, and may be left when that one goes in between."""
        for crd in await self._api.list(CRD, labels=DRIVER_LABEL):
            checksum = find_source_checksum(crd)
            if (
                checksum is None
                or is_deleting(crd)
                or labels_of(crd)[DRIVER_LABEL] in names
                or checksum in digests
            ):
                continue
            if not await self._api.list(machine_config(crd["spec"]["names"]["kind"])):
                await self._delete_kind(crd)
                log.info("removed the kind %s, whose driver nobody names", name_of(crd))

    async def _delete_kind(self, crd: Raw) -> None:
        with suppress(NotFound, Conflict):
            await self._api.delete(CRD.ref(name_of(crd)), uid=uid_of(crd))


def copy_file(url: str, write: Callable[[bytes], None], limit: int = DEFAULT_LIMITS.bytes) -> None:
    """Hand the file that the URL names to `write`. Raises Fault, OSError.

    A pipe or a device could make this wait for ever, or never end; so what was opened is looked at first.
    """
    path = Path(unquote(urlsplit(url).path))
    with open(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK)) as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise Fault(f"{path} is no regular file", "name the driver's own file", "DownloadFailed")
        read = 0
        while chunk := file.read(READ_SIZE):
            read += len(chunk)
            if read > limit:
                message = f"{path} has more than {limit // MIB} MiB"
                raise Fault(message, "name the file that is meant", "DownloadFailed")
            write(chunk)
