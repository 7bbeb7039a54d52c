"""One machine as the plugin host keeps it, in memory and in a directory of its own.

The ledger learns of a machine when its order was taken. What a driver has noted before that, or notes later (an
instance's id, an address), stands here: it is written before `Create` begins, so that a host that dies in the middle
finds what it had begun.

A directory can be lost, and another host has none. So its absence proves nothing: a machine whose record says that it
was planned, and of which nothing is noted here, is in doubt, and so is one whose note cannot be read.
"""

from __future__ import annotations

import asyncio
import logging
import os
import re
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from windrow.formats.json import NotJson, dumps, loads
from windrow.machines.plugin_memory import Seal
from windrow.machines.plugins import Plugin
from windrow.machines.port import Memory, driver_of, stand_in

# Below the host's directory: what throw-away plugins are given, and in a machine's own place its document.
CHECKS = "checks"
# Keys of the memory: an order may have been begun by it; the account that the credential opened.
PLANNED, ACCOUNT = "WindrowPlanned", "WindrowAccount"
_DOCUMENT = "user-data"
_NOTE = "memory.json"

log = logging.getLogger(__name__)


class Deed:
    """Something that is being done to a machine. It is taken once the infrastructure shows it, or it has failed."""

    def __init__(self, verb: Literal["create", "power", "remove"], wanted: str = "") -> None:
        self.verb, self.wanted = verb, wanted
        self.task: asyncio.Task[None] | None = None
        self.over = asyncio.Event()
        self._settled = asyncio.Event()
        self._memory: Memory = {}
        self._error: Exception | None = None

    @property
    def is_settled(self) -> bool:
        return self._settled.is_set()

    def take(self, memory: Memory) -> None:
        """The infrastructure has it; what follows is nobody's wait."""
        if not self.is_settled:
            self._memory = memory
            self._settled.set()

    def fail(self, error: Exception) -> bool:
        """It was not taken; False where it was before."""
        if self.is_settled:
            return False
        self._error = error
        self._settled.set()
        return True

    async def outcome(self, within: float) -> Memory | None:
        """What `take` was given; None where that has not happened yet. Raises what `fail` was given."""
        try:
            async with asyncio.timeout(within):
                await self._settled.wait()
        except TimeoutError:
            return None
        if self._error is not None:
            raise self._error
        return self._memory


@dataclass(slots=True)
class Charge:
    """A machine the host looks after. `memory` is sealed: it holds no credential."""

    uid: str
    name: str
    driver: str
    credential: str
    memory: Memory
    folder: Path
    begun: bool = False  # a driver was told to make it: something may exist
    is_in_doubt: bool = False  # it was planned, and nothing here tells whether a driver was told to make it
    ended: bool = False  # its removal was ordered, so its absence is its end
    is_elsewhere: bool = False  # the credential of the day may lead to another account
    trouble: str = ""  # why the last deed failed after it was taken
    deed: Deed | None = None
    plugin: Plugin | None = None  # which a deed has open
    seen_by_deed: bool = False  # the deed looks at the machine through it, and need not be helped
    poked: asyncio.Event = field(default_factory=asyncio.Event)
    watch: asyncio.Task[None] | None = None

    @property
    def was_made(self) -> bool:
        return bool(self.memory.get("WindrowVMUID"))

    @property
    def stand_in(self) -> str:
        """What stands for the VM's uid while the driver has told none."""
        return str(self.memory.get("WindrowVMUID") or stand_in(self.driver, self.uid))

    def is_under(self, verb: str = "") -> bool:
        """Whether something is being done to it, or this in particular."""
        return self.deed is not None and not self.deed.over.is_set() and verb in ("", self.deed.verb)

    @property
    def recorded(self) -> str:
        """The Harvester that it is on."""
        return str(self.memory.get("WindrowHarvesterUID") or "")

    @property
    def account(self) -> str:
        """The account of another driver's credential that it was made with."""
        return str(self.memory.get(ACCOUNT) or "")

    @property
    def user_data(self) -> Path:
        return self.folder / _DOCUMENT

    def seal(self, fields: Mapping[str, str]) -> Seal:
        return Seal(self.driver, fields, self.folder, self.user_data)

    def prepare(self) -> None:
        """The directory, with the place where docker-machine's drivers put their keys."""
        (self.folder / "machines" / self.name).mkdir(parents=True, exist_ok=True, mode=0o700)
        self.folder.chmod(0o700)

    def note(self, memory: Memory, *, begun: bool | None = None) -> None:
        """Remember, here and on disk."""
        self.memory = memory
        self.begun = self.begun if begun is None else begun
        self.is_in_doubt = False
        self.prepare()
        write_private(self.folder / _NOTE, dumps({"begun": self.begun, "memory": dict(memory)}))

    def forget(self) -> None:
        """It is gone, and so is what was kept of it here."""
        self.begun = self.is_in_doubt = False
        shutil.rmtree(self.folder, ignore_errors=True)


def open_charge(state: Path, memory: Memory) -> Charge:
    """The machine of `memory`, with what this host noted of it before, which is newer."""
    uid = str(memory["WindrowMachineUID"])
    folder = state / re.sub(r"[^A-Za-z0-9._-]", "_", uid.lstrip("."))
    charge = Charge(
        uid=uid,
        name=str(memory["MachineName"]),
        driver=driver_of(memory),
        credential=str(memory.get("WindrowCredential") or ""),
        memory=memory,
        folder=folder,
    )
    try:
        kept = _read(folder / _NOTE)
    except (OSError, ValueError) as error:
        log.error(
            "%s cannot be read: %s; whether %s was begun is not known", folder / _NOTE, error, charge.name
        )
        charge.is_in_doubt = not charge.was_made
        return charge
    if kept is None or kept["memory"].get("WindrowMachineUID") != uid:
        charge.is_in_doubt = memory.get(PLANNED) is True and not charge.was_made
        return charge
    if kept["memory"].get("WindrowVMUID") or not charge.was_made:
        charge.memory = kept["memory"]
    charge.begun = kept["begun"]
    return charge


def clear_up(state: Path) -> None:
    """Remove what a host that was killed left behind: bootstrap documents, which hold secrets, and its checks."""
    shutil.rmtree(state / CHECKS, ignore_errors=True)
    for path in state.glob(f"*/{_DOCUMENT}"):
        path.unlink(missing_ok=True)


def _read(path: Path) -> dict[str, Any] | None:
    """The note, None where there is none. Raises OSError, and ValueError where it is not as it was written."""
    try:
        kept = loads(path.read_bytes())
    except FileNotFoundError:
        return None
    except NotJson as error:
        raise ValueError(str(error)) from error
    if (
        not isinstance(kept, dict)
        or not isinstance(kept.get("memory"), dict)
        or type(kept.get("begun")) is not bool
    ):
        raise ValueError("it holds no memory")
    return kept


def write_private(path: Path, data: bytes) -> None:
    """Put `data` there for good, or leave what was there; only the owner may read it."""
    draft = path.with_name(f"{path.name}.new")
    number = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(number, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    os.replace(draft, path)
    for folder in (path.parent, path.parent.parent):  # the machine's own directory may be new, too
        sync_folder(folder)


def sync_folder(path: Path) -> None:
    number = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(number)
    finally:
        os.close(number)
