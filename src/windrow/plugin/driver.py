"""One machine, as a host of docker-machine speaks of it: its configuration, and who may do what at the same time.

Calls come in threads. Orders (create, remove, power) and changes of the configuration are taken one after the other;
questions never wait for an order. The configuration is a value that is replaced as a whole, so a question sees it as it
was or as it is, and GetConfigRaw has at every moment what is known to be made.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from threading import Lock
from typing import TYPE_CHECKING, Any

from windrow.nodedriver import stored
from windrow.nodedriver.configuration import UNSET, Configuration
from windrow.nodedriver.options import DRIVER, OPTIONS, Option
from windrow.plugin.edge import Edge

if TYPE_CHECKING:
    from windrow.plugin.errands import Checked, Errands


class Driver:
    """The machine that this process was started for. Every method may raise what `go_words` has a text for."""

    def __init__(self, edge: Edge) -> None:
        self._edge = edge
        self._configuration = UNSET
        self._orders = Lock()
        self._changing = Lock()
        self._errands: Errands | None = None
        # What the last check found, and for which machine: of use only while it is the same.
        self._checked: tuple[Configuration, Checked] | None = None

    # --- the configuration

    def set_config_raw(self, text: bytes) -> None:
        with self._orders:
            self._replace(stored.load(text, self._configuration, self._edge.argv, self._edge.env))

    def get_config_raw(self) -> bytes:
        return stored.dump(self._configuration)

    def create_flags(self) -> tuple[Option, ...]:
        return OPTIONS

    def set_config_from_flags(self, values: Mapping[str, Any]) -> None:
        with self._orders:
            self._replace(self._at_harvester().read_flags(values, self._configuration))

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
        return self._at_harvester().state(self._configuration)

    def ip(self) -> str:
        return self._at_harvester().ip(self._configuration)

    def ipv6(self) -> str:
        return self._at_harvester().ipv6(self._configuration)

    def url(self) -> str:
        return self._at_harvester().url(self._configuration)

    def look(self) -> bytes:
        return self._at_harvester().look(self._configuration)

    # --- orders

    def pre_create_check(self) -> None:
        with self._orders:
            machine, self._checked = self._configuration, None
            self._checked = machine, self._at_harvester().check(machine)

    def create(self) -> None:
        with self._orders:
            checked, self._checked = self._checked, None
            found = checked[1] if checked is not None and checked[0] == self._configuration else None
            self._replace(self._at_harvester().create(self._with_login(), found, self._replace))

    def remove(self) -> None:
        with self._orders:
            self._at_harvester().remove(self._configuration)

    def start(self) -> None:
        with self._orders:
            self._replace(self._at_harvester().start(self._configuration))

    def stop(self) -> None:
        with self._orders:
            self._at_harvester().stop(self._configuration)

    def kill(self) -> None:
        with self._orders:
            self._at_harvester().kill(self._configuration)

    def restart(self) -> None:
        with self._orders:
            self._replace(self._at_harvester().restart(self._configuration))

    def rewrite(self, document: bytes) -> bytes:
        """Replace what the machine reads at its next start by the user's document merged with `document`."""
        with self._orders:
            self._at_harvester().rewrite(self._configuration, document)
        return b""

    # --- what may not be told

    def secrets(self) -> list[str]:
        """What no text may hold."""
        machine, errands = self._configuration, self._errands
        found = [machine.kubeconfig_content, machine.ssh_password]
        if errands is not None:
            found += errands.secrets()
        return [each for each in found if each]

    # --- inside

    def _at_harvester(self) -> Errands:
        with self._changing:
            if self._errands is None:
                from windrow.plugin.errands import Errands

                self._errands = Errands(self._edge)
            return self._errands

    def _replace(self, configuration: Configuration) -> None:
        self._change(lambda _: configuration)

    def _change(self, change: Callable[[Configuration], Configuration]) -> Configuration:
        with self._changing:
            self._configuration = change(self._configuration)
            return self._configuration

    def _with_login(self) -> Configuration:
        from windrow.nodedriver.ssh_access import with_login

        return self._change(with_login)
