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

from windrow.core.json import NotJson, dumps, loads
from windrow.machines.plugin.process.client import Plugin
from windrow.machines.plugin.sanitizer import SecretSanitizer
from windrow.machines.port import DriverConfig, driver_of, synthetic_uid

# Below the host's directory: what throw-away plugins are given, and in a machine's own place its document.
CHECKS = "checks"
# Keys of the memory: an order may have been begun by it; the account that the credential opened.
PLANNED, ACCOUNT = "WindrowPlanned", "WindrowAccount"
_USER_DATA_FILE = "user-data"
_STATE_FILE = "memory.json"

log = logging.getLogger(__name__)


class PendingOperation:
    """Something that is being done to a machine. It is taken once the infrastructure shows it, or it has failed."""

    def __init__(self, verb: Literal["create", "power", "remove"], wanted: str = "") -> None:
        self.verb, self.wanted = verb, wanted
        self.task: asyncio.Task[None] | None = None
        self.finished = asyncio.Event()
        self._resolved = asyncio.Event()
        self._config: DriverConfig = {}
        self._error: Exception | None = None

    @property
    def is_resolved(self) -> bool:
        return self._resolved.is_set()

    def accept(self, config: DriverConfig) -> None:
        """The infrastructure has it; what follows is nobody's wait."""
        if not self.is_resolved:
            self._config = config
            self._resolved.set()

    def fail(self, error: Exception) -> bool:
        """It was not taken; False where it was before."""
        if self.is_resolved:
            return False
        self._error = error
        self._resolved.set()
        return True

    async def wait_accepted(self, timeout_s: float) -> DriverConfig | None:
        """What `take` was given; None where that has not happened yet. Raises what `fail` was given."""
        try:
            async with asyncio.timeout(timeout_s):
                await self._resolved.wait()
        except TimeoutError:
            return None
        if self._error is not None:
            raise self._error
        return self._config


@dataclass(slots=True)
class TrackedMachine:
    """A machine the host looks after. `memory` is sealed: it holds no credential."""

    uid: str
    name: str
    driver: str
    credential: str
    config: DriverConfig
    folder: Path
    create_started: bool = False  # a driver was told to make it: something may exist
    create_uncertain: bool = (
        False  # it was planned, and nothing here tells whether a driver was told to make it
    )
    removal_requested: bool = False  # its removal was ordered, so its absence is its end
    account_differs: bool = False  # the credential of the day may lead to another account
    last_error: str = ""  # why the last deed failed after it was taken
    operation: PendingOperation | None = None
    plugin: Plugin | None = None  # which a deed has open
    polled_by_operation: bool = False  # the deed looks at the machine through it, and need not be helped
    wake: asyncio.Event = field(default_factory=asyncio.Event)
    poll_task: asyncio.Task[None] | None = None

    @property
    def was_created(self) -> bool:
        return bool(self.config.get("WindrowVMUID"))

    @property
    def vm_uid(self) -> str:
        """What stands for the VM's uid while the driver has told none."""
        return str(self.config.get("WindrowVMUID") or synthetic_uid(self.driver, self.uid))

    def has_operation(self, verb: str = "") -> bool:
        """Whether something is being done to it, or this in particular."""
        return (
            self.operation is not None
            and not self.operation.finished.is_set()
            and verb in ("", self.operation.verb)
        )

    @property
    def harvester_uid(self) -> str:
        """The Harvester that it is on."""
        return str(self.config.get("WindrowHarvesterUID") or "")

    @property
    def account(self) -> str:
        """The account of another driver's credential that it was made with."""
        return str(self.config.get(ACCOUNT) or "")

    @property
    def user_data_path(self) -> Path:
        return self.folder / _USER_DATA_FILE

    def sanitizer(self, fields: Mapping[str, str]) -> SecretSanitizer:
        return SecretSanitizer(self.driver, fields, self.folder, self.user_data_path)

    def make_folder(self) -> None:
        """The directory, with the place where docker-machine's drivers put their keys."""
        (self.folder / "machines" / self.name).mkdir(parents=True, exist_ok=True, mode=0o700)
        self.folder.chmod(0o700)

    def save(self, config: DriverConfig, *, create_started: bool | None = None) -> None:
        """Remember, here and on disk."""
        self.config = config
        self.create_started = self.create_started if create_started is None else create_started
        self.create_uncertain = False
        self.make_folder()
        write_private(
            self.folder / _STATE_FILE, dumps({"begun": self.create_started, "memory": dict(config)})
        )

    def delete_folder(self) -> None:
        """It is gone, and so is what was kept of it here."""
        self.create_started = self.create_uncertain = False
        shutil.rmtree(self.folder, ignore_errors=True)


def load_tracked_machine(state_dir: Path, config: DriverConfig) -> TrackedMachine:
    """The machine of `memory`, with what this host noted of it before, which is newer."""
    uid = str(config["WindrowMachineUID"])
    folder = state_dir / re.sub(r"[^A-Za-z0-9._-]", "_", uid.lstrip("."))
    machine = TrackedMachine(
        uid=uid,
        name=str(config["MachineName"]),
        driver=driver_of(config),
        credential=str(config.get("WindrowCredential") or ""),
        config=config,
        folder=folder,
    )
    try:
        saved = _read_state(folder / _STATE_FILE)
    except (OSError, ValueError) as error:
        log.error(
            "%s cannot be read: %s; whether %s was begun is not known",
            folder / _STATE_FILE,
            error,
            machine.name,
        )
        machine.create_uncertain = not machine.was_created
        return machine
    if saved is None or saved["memory"].get("WindrowMachineUID") != uid:
        machine.create_uncertain = config.get(PLANNED) is True and not machine.was_created
        return machine
    if saved["memory"].get("WindrowVMUID") or not machine.was_created:
        machine.config = saved["memory"]
    machine.create_started = saved["begun"]
    return machine


def clean_state_dir(state_dir: Path) -> None:
    """Remove what a host that was killed left behind: bootstrap documents, which hold secrets, and its checks."""
    shutil.rmtree(state_dir / CHECKS, ignore_errors=True)
    for path in state_dir.glob(f"*/{_USER_DATA_FILE}"):
        path.unlink(missing_ok=True)


def _read_state(path: Path) -> dict[str, Any] | None:
    """The note, None where there is none. Raises OSError, and ValueError where it is not as it was written."""
    try:
        saved = loads(path.read_bytes())
    except FileNotFoundError:
        return None
    except NotJson as error:
        raise ValueError(str(error)) from error
    if (
        not isinstance(saved, dict)
        or not isinstance(saved.get("memory"), dict)
        or type(saved.get("begun")) is not bool
    ):
        raise ValueError("it holds no memory")
    return saved


def write_private(path: Path, data: bytes) -> None:
    """Put `data` there for good, or leave what was there; only the owner may read it."""
    temporary = path.with_name(f"{path.name}.new")
    fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(fd, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    os.replace(temporary, path)
    for folder in (path.parent, path.parent.parent):  # the machine's own directory may be new, too
        sync_folder(folder)


def sync_folder(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
