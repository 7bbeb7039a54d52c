"""One machine as the plugin host tracks it, in memory and in a directory of its own.

The Machine object gets a driver config when the creation was accepted. What a driver writes into its config before
that, or later (an instance's id, an address), is saved here: before `Create` is called, so that a host that is killed
during it finds what it started.

A directory can be lost, and another host has none. So its absence proves nothing: for a machine whose recorded config
says that it was planned, and for which there is no readable state file here, it is uncertain whether Create was
started.
"""

from __future__ import annotations

import asyncio
import logging
import re
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from windrow.core.files import make_private_directory, sync_directory, write_private
from windrow.core.formats.json import NotJson, dumps, loads
from windrow.core.logs import with_values
from windrow.machines.plugin.process.client import Plugin
from windrow.machines.plugin.sanitizer import SecretSanitizer
from windrow.machines.port import DriverConfig, driver_of, synthetic_uid

# Directories: that of plugins for checks, and in a machine's own the user data.
CHECKS = "checks"
# In a machine's own: what its plugin may write, as docker-machine's store has it, and its home.
STORE_DIRECTORIES, HOME_DIRECTORY = ("machines", "cache"), "home"
# Keys of the config: Create may have been started with it; the account of the credential.
PLANNED, ACCOUNT = "WindrowPlanned", "WindrowAccount"
_USER_DATA_FILE = "user-data"
_STATE_FILE = "machine.json"

log = with_values(logging.getLogger(__name__))


class PendingOperation:
    """An operation on a machine, pending until the infrastructure shows its result (accepted) or it has failed."""

    def __init__(self, verb: Literal["create", "power", "remove"], wanted: str = "") -> None:
        self.verb, self.wanted = verb, wanted
        self.task: asyncio.Task[None] | None = None
        self.is_requested = False  # the driver's Create was called
        self._accepted: asyncio.Future[DriverConfig] = asyncio.get_running_loop().create_future()

    @property
    def is_resolved(self) -> bool:
        return self._accepted.done()

    @property
    def is_running(self) -> bool:
        return self.task is not None and not self.task.done()

    def accept(self, config: DriverConfig) -> None:
        """The infrastructure shows the result; the caller stops waiting."""
        if not self.is_resolved:
            self._accepted.set_result(config)

    def fail(self, error: Exception) -> bool:
        """It failed before it was accepted; False where it was accepted before."""
        if self.is_resolved:
            return False
        self._accepted.set_exception(error)
        self._accepted.exception()  # its caller may have stopped waiting
        return True

    async def wait_accepted(self, timeout_s: float) -> DriverConfig | None:
        """The config given to `accept`; None after a time-out. Raises the error given to `fail`."""
        await asyncio.wait({self._accepted}, timeout=timeout_s)
        return self._accepted.result() if self.is_resolved else None


@dataclass(slots=True)
class TrackedMachine:
    """A tracked machine. `config` is sanitized: it holds no credential."""

    uid: str
    name: str
    driver: str
    credential: str
    config: DriverConfig
    folder: Path
    create_started: bool = False  # the driver's Create was called: something may exist
    create_uncertain: bool = False  # planned, and no state file says whether Create was started
    removal_requested: bool = False  # its absence means that it is removed
    account_differs: bool = False  # the current credential may lead to another account
    last_error: str = ""  # why the last operation failed after it was accepted
    unanswered: bool = False  # a Create has ended without an answer, which no caller was told yet
    operation: PendingOperation | None = None
    plugin: Plugin | None = None  # the plugin of the operation
    polled_by_operation: bool = False  # the operation polls through its own plugin
    wake: asyncio.Event = field(default_factory=asyncio.Event)
    poll_task: asyncio.Task[None] | None = None

    @property
    def was_created(self) -> bool:
        return bool(self.config.get("WindrowVMUID"))

    @property
    def vm_uid(self) -> str:
        """The uid of the VM, synthetic where the driver reports none."""
        return str(self.config.get("WindrowVMUID") or synthetic_uid(self.driver, self.uid))

    def find_operation(self, verb: str = "", wanted: str = "") -> PendingOperation | None:
        """Its running operation, if it is one of this verb and with this wish."""
        operation = self.operation
        if operation is None or not operation.is_running:
            return None
        if verb and verb != operation.verb:
            return None
        if wanted and wanted != operation.wanted:
            return None
        return operation

    @property
    def harvester_uid(self) -> str:
        """The identity of its Harvester."""
        return str(self.config.get("WindrowHarvesterUID") or "")

    @property
    def account(self) -> str:
        """The account digest of the credential that it was created with (foreign drivers)."""
        return str(self.config.get(ACCOUNT) or "")

    @property
    def user_data_path(self) -> Path:
        return self.folder / _USER_DATA_FILE

    def sanitizer(self, fields: Mapping[str, str]) -> SecretSanitizer:
        return SecretSanitizer(self.driver, fields, self.folder, self.user_data_path)

    def make_folder(self) -> None:
        """Make the directory, with the one where docker-machine's drivers put their keys."""
        make_private_directory(self.folder / "machines" / self.name)
        self.folder.chmod(0o700)
        sync_directory(self.folder.parent)

    def make_plugin_directories(self) -> tuple[Path, ...]:
        """Make the directories that a sandboxed plugin may write, its home last. The state file is in none of them."""
        self.make_folder()
        made = tuple(self.folder / name for name in (*STORE_DIRECTORIES, HOME_DIRECTORY))
        for path in made:
            make_private_directory(path)
        return made

    def save(self, config: DriverConfig, *, create_started: bool | None = None) -> None:
        """Set the config, here and on disk."""
        self.config = config
        self.create_started = self.create_started if create_started is None else create_started
        self.create_uncertain = False
        self.make_folder()
        write_private(
            self.folder / _STATE_FILE, dumps({"createStarted": self.create_started, "config": dict(config)})
        )

    def delete_folder(self) -> None:
        """The machine is removed: delete its directory."""
        self.create_started = self.create_uncertain = False
        shutil.rmtree(self.folder, ignore_errors=True)


def folder_of(state_dir: Path, uid: str) -> Path:
    """The machine's own, which is deleted with all that is in it: never that of all machines."""
    return state_dir / (re.sub(r"[^A-Za-z0-9._-]", "_", uid.lstrip(".")) or "_")


def load_tracked_machine(state_dir: Path, config: DriverConfig) -> TrackedMachine:
    """The machine of `config`, with the state that this host saved, which is newer."""
    uid = str(config["WindrowMachineUID"])
    folder = folder_of(state_dir, uid)
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
            "%s cannot be read: %s; whether its Create was started is uncertain",
            folder / _STATE_FILE,
            error,
            machine=machine.name,
        )
        machine.create_uncertain = not machine.was_created
        return machine
    if saved is None or saved["config"].get("WindrowMachineUID") != uid:
        machine.create_uncertain = config.get(PLANNED) is True and not machine.was_created
        return machine
    if saved["config"].get("WindrowVMUID") or not machine.was_created:
        machine.config = saved["config"]
    machine.create_started = saved["createStarted"]
    return machine


def clean_state_dir(state_dir: Path) -> None:
    """Remove what a killed host left: user data, which holds bootstrap secrets, and the directories of checks."""
    shutil.rmtree(state_dir / CHECKS, ignore_errors=True)
    for path in state_dir.glob(f"*/{_USER_DATA_FILE}"):
        path.unlink(missing_ok=True)


def _read_state(path: Path) -> dict[str, Any] | None:
    """The saved state, None where there is none. Raises OSError, and ValueError where it is malformed."""
    try:
        saved = loads(path.read_bytes())
    except FileNotFoundError:
        return None
    except NotJson as error:
        raise ValueError(str(error)) from error
    if (
        not isinstance(saved, dict)
        or not isinstance(saved.get("config"), dict)
        or type(saved.get("createStarted")) is not bool
    ):
        raise ValueError("it is no saved machine state")
    return saved
