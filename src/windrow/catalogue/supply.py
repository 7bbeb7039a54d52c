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

from windrow.catalogue.asking import AskFlags, ask
from windrow.catalogue.faults import Fault, Reason
from windrow.catalogue.kinds import NODE_DRIVER, machine_config
from windrow.catalogue.plan import Download, Install, Offer, Remove, Seen
from windrow.catalogue.reading import FINALIZER, NodeDriver
from windrow.catalogue.schemas import (
    DRIVER_LABEL,
    find_made_from,
    find_origin,
    is_ours,
    kind_of,
    read_fields,
    render_crd,
)
from windrow.catalogue.standing import offered
from windrow.catalogue.store import Store
from windrow.client.client import Client
from windrow.client.downloads import BOUNDS, MIB, DownloadFailed
from windrow.kube.errors import Conflict, NotFound
from windrow.kube.objects import Raw, finalizers_of, is_deleting, labels_of, name_of, uid_of
from windrow.kube.refs import CRD
from windrow.values.clock import Clock

log = logging.getLogger(__name__)

T = TypeVar("T")

MANAGER = "windrow-catalogue"
CHUNK = 1024 * 1024

# Hands every byte behind a URL to the function, in order. windrow.client.downloads has the one over HTTPS.
Fetch = Callable[[str, Callable[[bytes], None]], Awaitable[None]]
# Runs work on files beside the event loop: asyncio.to_thread, or in stories nothing but the call.
Aside = Callable[[Callable[[], Any]], Awaitable[Any]]


async def at_once(work: Callable[[], T]) -> T:
    return work()


class Abandoned(Exception):
    """What is being fetched is not asked for any more."""


@dataclass(slots=True)
class _Errand:
    """A download under way, and the bell that calls it off."""

    asked: tuple[str, str]
    called_off: asyncio.Event = field(default_factory=asyncio.Event)


class Supplier:
    """Carries out actions. Each may be repeated, and raises Fault where it cannot be done now."""

    def __init__(
        self,
        api: Client,
        store: Store,
        fetch: Fetch,
        ask_flags: AskFlags,
        clock: Clock,
        aside: Aside,
        read: Callable[[Raw], NodeDriver],
    ) -> None:
        self._api, self._store, self._fetch, self._ask_flags = api, store, fetch, ask_flags
        self._clock, self._aside, self._read = clock, aside, read
        self._errands: dict[str, _Errand] = {}

    def hear(self, before: NodeDriver | None, after: NodeDriver | None) -> None:
        """End a download that nobody waits for any more: a server may take its time."""
        known = after or before
        errand = self._errands.get(known.name) if known is not None else None
        if errand is None:
            return
        if (
            after is None
            or after.is_deleting
            or not after.is_wanted
            or (after.url, after.checksum) != errand.asked
        ):
            errand.called_off.set()

    async def claim(self, raw: Raw) -> None:
        """Put our finalizer on the object. Raises Conflict where it changed meanwhile."""
        await self._set_finalizers(raw, [*finalizers_of(raw), FINALIZER])

    async def supply(self, seen: Seen, action: Download | Install | Offer) -> None:
        """Raises Abandoned, too, where a download is not asked for any more."""
        match action:
            case Download():
                await self._download(seen.driver, action)
            case Install():
                name = seen.driver.name
                await self._aside(lambda: self._store.install(action.checksum, name, action.url))
            case Offer():
                await self._offer(seen, action)

    async def _download(self, driver: NodeDriver, action: Download) -> None:
        try:
            receipt = self._store.receive(action.checksum, driver.name)
            try:
                await self._bring(driver, action, receipt.write)
                await self._aside(receipt.keep)
            finally:
                receipt.drop()
        except DownloadFailed as error:
            reason: Reason = "ServerAway" if error.is_away else "DownloadFailed"
            raise Fault(error.fact, error.cure, reason) from error
        except OSError as error:
            said = (error.strerror or str(error)).lower()
            raise Fault(
                f"the driver cannot be read ({said})", "check spec.url and the network", "DownloadFailed"
            ) from error

    async def _bring(self, driver: NodeDriver, action: Download, write: Callable[[bytes], None]) -> None:
        """Fetch what the action names. Raises Abandoned when the object asks for something else meanwhile."""
        if action.url.startswith("file:"):
            await self._aside(lambda: copy_file(action.url, write))
            return
        errand = self._errands[driver.name] = _Errand((action.url, action.checksum))
        waits = [
            asyncio.ensure_future(self._fetch(action.url, write)),
            asyncio.ensure_future(errand.called_off.wait()),
        ]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
            if not waits[0].done():
                raise Abandoned
            waits[0].result()
        finally:
            del self._errands[driver.name]
            for wait in waits:
                wait.cancel()
            await asyncio.gather(*waits, return_exceptions=True)

    async def _offer(self, seen: Seen, action: Offer) -> None:
        stored = action.stored
        path = await self._aside(lambda: self._store.proven(stored.digest))
        if path is None:
            raise Fault(
                "its program is not what was installed any more", "look at the state directory", "StoreFailed"
            )
        fields = read_fields(await ask(path, self._ask_flags, self._clock), seen.driver.hints)
        kind = kind_of(stored.name)
        if not seen.keeps_kind:
            origin = find_origin(stored.digest, seen.driver.hints)
            crd = render_crd(stored.name, fields, origin)
            await self._api.apply(CRD.ref(kind.qualified), crd, MANAGER, force=True)
        status = offered(seen, action, kind.kind)
        await self._api.patch(NODE_DRIVER.ref(seen.driver.name), {"status": status}, subresource="status")
        await self.sweep()

    async def remove(self, raw: Raw, driver: NodeDriver, action: Remove) -> None:
        """Take away the kind, if it is ours, then the files, then our finalizer."""
        if action.kind and not action.keep_kind:
            ref = CRD.ref(machine_config(action.kind).qualified)
            crd = await self._api.find(ref)
            if crd is not None and is_ours(crd):
                await self._api.delete(ref, uid=uid_of(crd))
        await self.sweep(without=driver.name)
        log.info("NodeDriver %s: removed: %s", driver.name, action.because)
        try:
            await self._set_finalizers(raw, [one for one in finalizers_of(raw) if one != FINALIZER])
        except (Conflict, NotFound):
            return  # it changed or went meanwhile; the next look sees how

    async def _set_finalizers(self, raw: Raw, wanted: list[str]) -> None:
        change = {"finalizers": wanted, "resourceVersion": raw["metadata"]["resourceVersion"]}
        await self._api.patch(NODE_DRIVER.ref(name_of(raw)), {"metadata": change})

    async def sweep(self, without: str = "") -> None:
        """Remove the files that no NodeDriver names any more, and the kinds."""
        found = await self._api.list(NODE_DRIVER)
        drivers = [self._read(raw) for raw in found if name_of(raw) != without]
        keep = {digest for one in drivers for digest in (one.checksum, one.applied[1])} - {""}
        gone = await self._aside(lambda: self._store.sweep(keep))
        if gone:
            log.info("removed the files of drivers that nobody names: %s", ", ".join(gone))
        await self._sweep_kinds({one.driver_name for one in drivers}, keep)

    async def _sweep_kinds(self, names: Collection[str], digests: Collection[str]) -> None:
        """A kind is defined before its NodeDriver says so, and may be left when that one goes in between."""
        for crd in await self._api.list(CRD, labels=DRIVER_LABEL):
            origin = find_made_from(crd)
            if (
                origin is None
                or is_deleting(crd)
                or labels_of(crd)[DRIVER_LABEL] in names
                or origin in digests
            ):
                continue
            if not await self._api.list(machine_config(crd["spec"]["names"]["kind"])):
                await self._delete_kind(crd)
                log.info("removed the kind %s, whose driver nobody names", name_of(crd))

    async def _delete_kind(self, crd: Raw) -> None:
        with suppress(NotFound, Conflict):
            await self._api.delete(CRD.ref(name_of(crd)), uid=uid_of(crd))


def copy_file(url: str, write: Callable[[bytes], None], most: int = BOUNDS.bytes) -> None:
    """Hand the file that the URL names to `write`. Raises Fault, OSError.

    A pipe or a device could make this wait for ever, or never end; so what was opened is looked at first.
    """
    path = Path(unquote(urlsplit(url).path))
    with open(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK)) as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise Fault(f"{path} is no regular file", "name the driver's own file", "DownloadFailed")
        read = 0
        while chunk := file.read(CHUNK):
            read += len(chunk)
            if read > most:
                fact = f"{path} has more than {most // MIB} MiB"
                raise Fault(fact, "name the file that is meant", "DownloadFailed")
            write(chunk)
