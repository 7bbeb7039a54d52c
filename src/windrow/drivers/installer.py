"""Executes the plan of a NodeDriver: download, install, probe, define its kind, and uninstall."""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import re
import stat
from collections.abc import Awaitable, Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import unquote, urlsplit

from windrow.client.client import Client
from windrow.client.downloads import DEFAULT_LIMITS, MIB, DownloadFailed
from windrow.core.clock import Clock, sleep
from windrow.core.logs import with_values
from windrow.core.text import one_line
from windrow.core.wait import run_until
from windrow.drivers.api import FINALIZER, NODE_DRIVER, Fault, NodeDriver, Reason, machine_config
from windrow.drivers.archive import find_loader
from windrow.drivers.plan import DefineKind, Download, Install, NodeDriverState, Uninstall
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
from windrow.protocols.dockermachine import Flag

T = TypeVar("T")

# Starts the program as docker-machine's host does, and reads its create flags.
ReadFlags = Callable[[Path], Awaitable[tuple[Flag, ...]]]

PROBE_TIMEOUT = timedelta(seconds=10)
MESSAGE_LIMIT = 500
# Any program may end like this or print something. A driver that cannot start here ends in another way, with a reason.
_NOT_A_DRIVER = re.compile(
    r"ended with exit code (0 |\d+ before it printed its address$)|where 127\.0\.0\.1:PORT was expected"
)
RUN_BY_HAND_HINT = "run it by hand with MACHINE_PLUGIN_TOKEN=42 and read its output"


async def probe_flags(path: Path, read_flags: ReadFlags, clock: Clock) -> tuple[Flag, ...]:
    """The create flags of the driver at `path`. Raises Fault; by then the program has ended, or was told to."""
    try:
        return await run_until(read_flags(path), sleep(clock, PROBE_TIMEOUT), TimeoutError())
    except Fault:
        raise
    except Exception as error:
        raise translate_error(error, path) from error


def translate_error(error: Exception, path: Path) -> Fault:
    """The Fault for an error of `read_flags`."""
    name = path.name
    if isinstance(error, TimeoutError):
        return Fault(
            f"{name} did not answer within {PROBE_TIMEOUT.total_seconds():.0f} s",
            RUN_BY_HAND_HINT,
            "ProbeFailed",
        )
    number = _errno(error) or _errno(error.__cause__)  # the plugin client wraps OSError
    if number == errno.ENOENT:
        loader = find_loader(path)
        missing = f"needs the loader {loader or '(of the C library)'}, which does not exist here"
        return Fault(
            f"{name} {missing if path.exists() else 'does not exist'}",
            "use a build that is linked statically, or for the C library of this system",
            "NotExecutable",
        )
    if number in (errno.EACCES, errno.EPERM):
        return Fault(
            f"{name} is not executable",
            "put the state directory on a file system that is not mounted noexec",
            "NotExecutable",
        )
    if number == errno.ENOEXEC:
        return Fault(
            f"{name} is no executable for this system",
            "set spec.url and spec.checksum of a build for this system",
            "NotExecutable",
        )
    text = str(getattr(error, "message", "")) or str(error) or type(error).__name__
    text = one_line(text, MESSAGE_LIMIT).removeprefix("plugin ")
    if not text.startswith(name):
        text = f"cannot read the create flags of {name}: {text}"
    if _NOT_A_DRIVER.search(text):
        return Fault(text, "use another file: this is no docker-machine driver", "ProbeFailed")
    return Fault(text, f"use a build for this system; for details, {RUN_BY_HAND_HINT}", "ProbeFailed")


def _errno(error: BaseException | None) -> int | None:
    return error.errno if isinstance(error, OSError) else None


log = with_values(logging.getLogger(__name__))


FIELD_MANAGER = "windrow-drivers"
READ_SIZE = 1024 * 1024

# Passes the content of a URL to the function, in order; windrow.client.downloads has the one over HTTPS.
Fetch = Callable[[str, Callable[[bytes], None]], Awaitable[None]]
# Runs blocking file work beside the event loop: asyncio.to_thread, or in simulations a plain call.
RunBlocking = Callable[[Callable[[], Any]], Awaitable[Any]]


async def run_inline(work: Callable[[], T]) -> T:
    return work()


class DownloadCancelled(Exception):
    """The spec changed during the download."""


@dataclass(slots=True)
class _ActiveDownload:
    """A running download, and the event that cancels it."""

    source: tuple[str, str]
    cancelled: asyncio.Event = field(default_factory=asyncio.Event)


class Installer:
    """Executes actions. Each may be repeated, and raises Fault where it fails."""

    def __init__(
        self,
        api: Client,
        store: DriverStore,
        fetch: Fetch,
        read_flags: ReadFlags,
        clock: Clock,
        run_blocking: RunBlocking,
        read: Callable[[Raw], NodeDriver],
        markers: Mapping[str, str] | None = None,
    ) -> None:
        self._api, self._store, self._fetch, self._read_flags = api, store, fetch, read_flags
        self._clock, self._run_blocking, self._read = clock, run_blocking, read
        self._markers = dict(markers or {})  # a create flag that programs of this name must have
        self._downloads: dict[str, _ActiveDownload] = {}

    def on_change(self, before: NodeDriver | None, after: NodeDriver | None) -> None:
        """Cancel a running download that the spec does not ask for any more."""
        driver = after or before
        download = self._downloads.get(driver.name) if driver is not None else None
        if download is None:
            return
        is_wanted = after is not None and after.is_requested and not after.is_deleting
        if after is None or not is_wanted or (after.url, after.checksum) != download.source:
            download.cancelled.set()

    async def add_finalizer(self, raw: Raw) -> None:
        """Add our finalizer. Raises Conflict where the object changed meanwhile."""
        await self._set_finalizers(raw, [*finalizers_of(raw), FINALIZER])

    async def execute(self, state: NodeDriverState, action: Download | Install | DefineKind) -> None:
        """Raises DownloadCancelled, too."""
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
            reason: Reason = "ServerUnreachable" if error.is_temporary else "DownloadFailed"
            raise Fault(error.message, error.hint, reason) from error
        except OSError as error:
            text = (error.strerror or str(error)).lower()
            raise Fault(
                f"cannot read the driver ({text})", "check spec.url and the network", "DownloadFailed"
            ) from error

    async def _fetch_url(self, driver: NodeDriver, action: Download, write: Callable[[bytes], None]) -> None:
        """Fetch the action's URL. Raises DownloadCancelled when the spec changes meanwhile."""
        if action.url.startswith("file:"):
            await self._run_blocking(lambda: copy_file(action.url, write))
            return
        download = self._downloads[driver.name] = _ActiveDownload((action.url, action.checksum))
        try:
            await run_until(self._fetch(action.url, write), download.cancelled.wait(), DownloadCancelled())
        finally:
            del self._downloads[driver.name]

    async def _define_kind(self, state: NodeDriverState, action: DefineKind) -> None:
        installed = action.installed
        path = await self._run_blocking(lambda: self._store.verified_path(installed.digest))
        if path is None:
            raise Fault("its binary was changed on disk", "check the state directory", "StorageFailed")
        flags = await probe_flags(path, self._read_flags, self._clock)
        marker = self._markers.get(installed.name, "")
        if marker and marker not in {flag.name for flag in flags}:
            message = f"{path.name} is not the driver {installed.name}: it has no create flag {marker}"
            raise Fault(message, "use another file", "InvalidCreateFlags")
        fields = read_fields(flags, state.driver.field_annotations)
        kind = machine_config_kind(installed.name)
        if not state.kind_external:
            origin = schema_source(installed.digest, state.driver.field_annotations)
            crd = render_crd(installed.name, fields, origin)
            await self._api.apply(CRD.ref(kind.group_resource), crd, FIELD_MANAGER, force=True)
        status = render_installed(state, action, kind.kind)
        await self._api.patch(NODE_DRIVER.ref(state.driver.name), {"status": status}, subresource="status")
        await self.sweep()

    async def uninstall(self, raw: Raw, driver: NodeDriver, action: Uninstall) -> None:
        """Delete the CRD, if the controller made it, then the files, then our finalizer."""
        if action.kind and not action.keep_kind:
            ref = CRD.ref(machine_config(action.kind).group_resource)
            crd = await self._api.find(ref)
            if crd is not None and is_generated(crd):
                await self._api.delete(ref, uid=uid_of(crd))
        await self.sweep(excluded=driver.name)
        log.info("uninstalled, because %s", action.because, nodedriver=driver.name)
        try:
            await self._set_finalizers(raw, [one for one in finalizers_of(raw) if one != FINALIZER])
        except (Conflict, NotFound):
            return  # it changed or was deleted meanwhile; the next reconcile observes that

    async def _set_finalizers(self, raw: Raw, wanted: list[str]) -> None:
        change = {"finalizers": wanted, "resourceVersion": raw["metadata"]["resourceVersion"]}
        await self._api.patch(NODE_DRIVER.ref(name_of(raw)), {"metadata": change})

    async def sweep(self, excluded: str = "") -> None:
        """Remove files and CRDs that belong to no NodeDriver."""
        found = await self._api.list(NODE_DRIVER)
        drivers = [self._read(raw) for raw in found if name_of(raw) != excluded]
        keep = {digest for one in drivers for digest in (one.checksum, one.applied[1])} - {""}
        removed = await self._run_blocking(lambda: self._store.sweep(keep))
        if removed:
            log.info("removed files of no NodeDriver: %s", ", ".join(removed))
        await self._sweep_kinds({one.driver_name for one in drivers}, keep)

    async def _sweep_kinds(self, names: Collection[str], digests: Collection[str]) -> None:
        """Orphaned CRDs: one is applied before the status of its NodeDriver, which may be deleted in between."""
        for crd in await self._api.list(CRD, labels=DRIVER_LABEL):
            checksum = find_source_checksum(crd)
            is_used = labels_of(crd)[DRIVER_LABEL] in names or checksum in digests
            if checksum is None or is_deleting(crd) or is_used:
                continue
            if not await self._api.list(machine_config(crd["spec"]["names"]["kind"])):
                with suppress(NotFound, Conflict):
                    await self._api.delete(CRD.ref(name_of(crd)), uid=uid_of(crd))
                log.info("deleted an orphaned CRD", customresourcedefinition=name_of(crd))


def copy_file(url: str, write: Callable[[bytes], None], limit: int = DEFAULT_LIMITS.bytes) -> None:
    """Pass the file that the URL names to `write`. Raises Fault, OSError.

    A pipe or a device could block or never end, so the type of the opened file is checked first.
    """
    path = Path(unquote(urlsplit(url).path))
    with open(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK)) as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise Fault(f"{path} is no regular file", "use the path of the driver's file", "DownloadFailed")
        read = 0
        while chunk := file.read(READ_SIZE):
            read += len(chunk)
            if read > limit:
                message = f"{path} is larger than {limit // MIB} MiB"
                raise Fault(message, "use the path of the driver's file", "DownloadFailed")
            write(chunk)
