"""Driver: the docker-machine driver of one machine, with its configuration and its locks.

Hosts start many plugins only to read flags or a name, so what reaches Harvester (rules, YAML, HTTP, TLS) is imported in
the methods that need it. Calls come in threads. Commands (Create, Remove, power) and changes of the configuration run
one after the other; queries never wait for a command. The configuration is a value that is replaced whole, so a query
sees it as it was or as it is, and GetConfigRaw always has what is known to be created.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from posixpath import dirname
from threading import Lock
from typing import TYPE_CHECKING, Any, TypeVar

from windrow.nodedriver import config_json
from windrow.nodedriver.config import UNSET, Configuration
from windrow.nodedriver.ssh.access import key_path, plan_key, with_ssh_defaults
from windrow.plugin.environment import ProcessEnv

if TYPE_CHECKING:
    from windrow.harvester.problems import Problem
    from windrow.kubernetes.kubeconfig import ClientConfig
    from windrow.nodedriver.effects import WaitingOperation
    from windrow.nodedriver.validate.references import ReferencedObjects
    from windrow.plugin.http.client import HttpClient

R = TypeVar("R")


class Driver:
    """The machine that this process was started for. Every method may raise what `go_errors` has a text for."""

    def __init__(self, process: ProcessEnv) -> None:
        self._process = process
        self._configuration = UNSET
        self._command_lock = Lock()
        self._config_lock = Lock()
        self._client_lock = Lock()
        self._clients: dict[str, HttpClient] = {}
        # The result of the last check, and for which configuration: of use only while that is the same.
        self._check_result: tuple[Configuration, ReferencedObjects] | None = None

    # --- configuration

    def set_config_raw(self, text: bytes) -> None:
        with self._command_lock:
            process = self._process
            self._replace(config_json.load(text, self._configuration, process.argv, process.env))

    def get_config_raw(self) -> bytes:
        return config_json.dump(self._configuration)

    def set_config_from_flags(self, values: Mapping[str, Any]) -> None:
        from windrow.kubernetes.kubeconfig import BadKubeconfig
        from windrow.nodedriver.flags import read_flags, with_machine_uid
        from windrow.nodedriver.harvester_location import with_location

        with self._command_lock:
            configuration = with_machine_uid(read_flags(values, self._configuration), self._process.rng)
            with suppress(BadKubeconfig, OSError):  # the first command that needs the kubeconfig reports it
                configuration = with_location(configuration, self._client_config(configuration))
            self._replace(configuration)

    # --- getters that need no request

    def machine_name(self) -> str:
        return self._configuration.machine_name

    def ssh_access(self) -> Configuration:
        """The configuration with SSH user, port and key path."""
        return self._change(with_ssh_defaults)

    # --- queries

    def get_ip(self) -> str:
        from windrow.nodedriver.operations import get_ip

        return self._run(self._configuration, get_ip)

    def get_ipv6(self) -> str:
        from windrow.nodedriver.operations import get_ipv6

        return self._run(self._configuration, get_ipv6)

    def get_url(self) -> str:
        from windrow.nodedriver.operations import get_url

        return self._run(self._configuration, get_url)

    def get_state(self) -> int:
        from windrow.nodedriver.operations import get_state

        return self._run(self._configuration, get_state)

    def vm_status(self) -> bytes:
        from windrow.harvester.status import dump_vm_status
        from windrow.nodedriver.vm.observe import get_status

        return dump_vm_status(self._run(self._configuration, get_status))

    # --- commands

    def pre_create_check(self) -> None:
        from windrow.nodedriver.operations import pre_create_check

        with self._command_lock:
            machine, self._check_result = self._configuration, None
            bootstrap = self._bootstrap(machine)
            self._check_result = machine, self._run(machine, lambda m: pre_create_check(m, bootstrap))

    def create(self) -> None:
        from windrow.nodedriver.harvester_location import with_location
        from windrow.nodedriver.operations import create_and_wait

        with self._command_lock:
            last, self._check_result = self._check_result, None
            result = last[1] if last is not None and last[0] == self._configuration else None
            machine = self._change(with_ssh_defaults)
            bootstrap = self._bootstrap(machine)
            access = self._client(
                machine
            ).access  # before the key is written: without a credential there is none
            machine = with_location(replace(machine, ssh_public_key=self._ensure_key(machine)), access)
            self._replace(machine)
            self._replace(
                self._run(machine, lambda m: create_and_wait(m, bootstrap, result, save=self._replace))
            )

    def remove(self) -> None:
        from windrow.nodedriver.vm.remove import remove_and_wait

        with self._command_lock:
            machine = self._configuration
            self._run(machine, lambda m: remove_and_wait(m, self._find_wrong_harvester(m)))

    def start(self) -> None:
        from windrow.nodedriver.operations import start_and_wait

        with self._command_lock:
            self._replace(self._run(self._configuration, start_and_wait))

    def restart(self) -> None:
        from windrow.nodedriver.operations import restart_and_wait

        with self._command_lock:
            self._replace(self._run(self._configuration, restart_and_wait))

    def stop(self) -> None:
        from windrow.nodedriver.operations import stop_and_wait

        with self._command_lock:
            self._run(self._configuration, stop_and_wait)

    def kill(self) -> None:
        from windrow.nodedriver.operations import kill_and_wait

        with self._command_lock:
            self._run(self._configuration, kill_and_wait)

    def replace_user_data(self, document: bytes) -> bytes:
        """Replace what the machine reads at its next start by the user's document merged with `document`."""
        from windrow.harvester.problems import Problem
        from windrow.nodedriver.errors import Refused
        from windrow.nodedriver.vm.create import replace_user_data

        try:
            text = document.decode()
        except UnicodeDecodeError:
            raise Refused(Problem("the document is not text", "write it as UTF-8")) from None
        with self._command_lock:
            self._run(self._configuration, lambda m: replace_user_data(m, text, agent=False))
        return b""

    # --- what no text may hold

    def secrets(self) -> list[str]:
        """Values that no error text and no log line may hold."""
        machine = self._configuration
        found = [machine.kubeconfig_content, machine.ssh_password]
        for client in list(self._clients.values()):
            found += (client.access.token, client.access.key)
        return [each for each in found if each]

    # --- inside

    def _run(self, machine: Configuration, start: Callable[[Configuration], WaitingOperation[R]]) -> R:
        """The result of the operation on `machine`. A machine that is not found at another Harvester is Refused."""
        from windrow.nodedriver.blocking_runner import run
        from windrow.nodedriver.errors import MachineNotFound, Refused

        client, process = self._client(machine), self._process
        try:
            operation = start(machine)
            return run(operation, client.send, client.watch, process.now, process.log, sleep=process.sleep)
        except MachineNotFound:
            if problem := self._find_wrong_harvester(machine):
                raise Refused(problem) from None
            raise

    def _replace(self, configuration: Configuration) -> None:
        self._change(lambda _: configuration)

    def _change(self, change: Callable[[Configuration], Configuration]) -> Configuration:
        with self._config_lock:
            self._configuration = change(self._configuration)
            return self._configuration

    def _ensure_key(self, machine: Configuration) -> str:
        """Write the key files that are missing; the public key."""
        from windrow.nodedriver.ssh.keys import generate_key_pair

        process = self._process
        plan = plan_key(machine, process.files.read_with_mode, lambda: generate_key_pair(process.rng))
        for file in plan.writes:
            process.files.write(file)
        return plan.public_key

    def _bootstrap(self, machine: Configuration) -> str:
        """The host's cloud-config document, from the file that the configuration names."""
        from windrow.harvester.problems import Problem
        from windrow.nodedriver.errors import Refused

        path = machine.cloud_config
        if not path:
            return ""
        try:
            return self._process.read_text(path)
        except FileNotFoundError:
            raise Refused(
                Problem(
                    f"the cloud-config file {path} does not exist where the plugin runs",
                    "create the machine in one go: rancher-machine writes this file anew each time",
                    "cloudConfig",
                    go=f"open {path}: no such file or directory",
                )
            ) from None
        except UnicodeDecodeError:
            raise Refused(
                Problem(f"the cloud-config file {path} is not text", "write it as UTF-8", "cloudConfig")
            ) from None

    # --- Harvester

    def _find_wrong_harvester(self, machine: Configuration) -> Problem | None:
        from windrow.nodedriver.harvester_location import ANY_HARVESTER, find_wrong_harvester

        if self._process.env.get(ANY_HARVESTER):
            return None
        return find_wrong_harvester(machine, self._client(machine).access)

    def _client_config(self, machine: Configuration) -> ClientConfig:
        from windrow.plugin.credentials import find_client_config

        return find_client_config(machine.kubeconfig_content, self._process.env, self._process.read_text)

    def _client(self, machine: Configuration) -> HttpClient:
        """The client of this kubeconfig; kept, so that a connection of the check serves the creation."""
        kubeconfig = machine.kubeconfig_content
        with self._client_lock:
            if kubeconfig not in self._clients:
                self._clients = {kubeconfig: self._new_client(machine)}
            return self._clients[kubeconfig]

    def _new_client(self, machine: Configuration) -> HttpClient:
        from windrow.kubernetes.answers.messages import insecure_warning
        from windrow.plugin.http.client import HttpClient

        access, process = self._client_config(machine), self._process
        if access.insecure:
            process.log(insecure_warning(access))
        folders = [dirname(key_path(machine)), machine.store_path]
        folders += [process.env.get("TMPDIR", ""), "/dev/shm", "/tmp"]
        return HttpClient(access, process, [folder for folder in folders if folder])
