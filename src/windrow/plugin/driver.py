"""One machine, as a host of docker-machine speaks of it: its configuration, and who may do what at the same time.

Calls come in threads. Orders (create, remove, power) and changes of the configuration are taken one after the other;
questions never wait for an order. The configuration is a value that is replaced as a whole, so a question sees it as it
was or as it is, and GetConfigRaw has at every moment what is known to be made.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from threading import Lock
from typing import TYPE_CHECKING, Any

from windrow.nodedriver import config_json
from windrow.nodedriver.config import UNSET, Configuration
from windrow.nodedriver.options import DRIVER, OPTIONS, Option
from windrow.plugin.process_env import ProcessEnv

if TYPE_CHECKING:
    from windrow.plugin.operations import HarvesterOperations, PreCreateResult


class Driver:
    """The machine that this process was started for. Every method may raise what `go_words` has a text for."""

    def __init__(self, process: ProcessEnv) -> None:
        self._process = process
        self._configuration = UNSET
        self._command_lock = Lock()
        self._config_lock = Lock()
        self._operations: HarvesterOperations | None = None
        # What the last check found, and for which machine: of use only while it is the same.
        self._check_result: tuple[Configuration, PreCreateResult] | None = None

    # --- the configuration

    def set_config_raw(self, text: bytes) -> None:
        with self._command_lock:
            self._replace(config_json.load(text, self._configuration, self._process.argv, self._process.env))

    def get_config_raw(self) -> bytes:
        return config_json.dump(self._configuration)

    def create_flags(self) -> tuple[Option, ...]:
        return OPTIONS

    def set_config_from_flags(self, values: Mapping[str, Any]) -> None:
        with self._command_lock:
            self._replace(self._harvester().read_flags(values, self._configuration))

    # --- getters that ask nobody

    def driver_name(self) -> str:
        return DRIVER

    def machine_name(self) -> str:
        return self._configuration.machine_name

    def ssh_key_path(self) -> str:
        return self._with_login().ssh_key_path

    def ssh_user(self) -> str:
        return self._with_login().ssh_user

    def ssh_port(self) -> int:
        return self._with_login().ssh_port

    # --- questions

    def state(self) -> int:
        return self._harvester().state(self._configuration)

    def ip(self) -> str:
        return self._harvester().ip(self._configuration)

    def ipv6(self) -> str:
        return self._harvester().ipv6(self._configuration)

    def url(self) -> str:
        return self._harvester().url(self._configuration)

    def status(self) -> bytes:
        return self._harvester().status(self._configuration)

    # --- orders

    def pre_create_check(self) -> None:
        with self._command_lock:
            machine, self._check_result = self._configuration, None
            self._check_result = machine, self._harvester().check(machine)

    def create(self) -> None:
        with self._command_lock:
            checked, self._check_result = self._check_result, None
            found = checked[1] if checked is not None and checked[0] == self._configuration else None
            self._replace(self._harvester().create(self._with_login(), found, self._replace))

    def remove(self) -> None:
        with self._command_lock:
            self._harvester().remove(self._configuration)

    def start(self) -> None:
        with self._command_lock:
            self._replace(self._harvester().start(self._configuration))

    def stop(self) -> None:
        with self._command_lock:
            self._harvester().stop(self._configuration)

    def kill(self) -> None:
        with self._command_lock:
            self._harvester().kill(self._configuration)

    def restart(self) -> None:
        with self._command_lock:
            self._replace(self._harvester().restart(self._configuration))

    def replace_user_data(self, document: bytes) -> bytes:
        """Replace what the machine reads at its next start by the user's document merged with `document`."""
        with self._command_lock:
            self._harvester().replace_user_data(self._configuration, document)
        return b""

    # --- what may not be told

    def secrets(self) -> list[str]:
        """What no text may hold."""
        machine, operations = self._configuration, self._operations
        found = [machine.kubeconfig_content, machine.ssh_password]
        if operations is not None:
            found += operations.secrets()
        return [each for each in found if each]

    # --- inside

    def _harvester(self) -> HarvesterOperations:
        with self._config_lock:
            if self._operations is None:
                from windrow.plugin.operations import HarvesterOperations

                self._operations = HarvesterOperations(self._process)
            return self._operations

    def _replace(self, configuration: Configuration) -> None:
        self._change(lambda _: configuration)

    def _change(self, change: Callable[[Configuration], Configuration]) -> Configuration:
        with self._config_lock:
            self._configuration = change(self._configuration)
            return self._configuration

    def _with_login(self) -> Configuration:
        from windrow.nodedriver.ssh_access import with_ssh_defaults

        return self._change(with_ssh_defaults)
