"""What has to be done at Harvester for one machine: the talks of `nodedriver`, carried out over `Http`.

This is the heavy half of the plugin, with YAML and all rules. It is loaded when Harvester is first spoken to, since
hosts start many plugins only to read their flags or a name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from os.path import dirname
from threading import Lock
from typing import Any, TypeVar

from windrow.harvester.problems import Problem
from windrow.harvester.status import dump_vm_status
from windrow.kubernetes import messages
from windrow.kubernetes.kubeconfig import BadKubeconfig, ClientConfig
from windrow.nodedriver import flags, harvester_location, operations, ssh_access, ssh_keys
from windrow.nodedriver.blocking_runner import run
from windrow.nodedriver.config import Configuration
from windrow.nodedriver.effects import Operation
from windrow.nodedriver.errors import MachineNotFound, Refused
from windrow.nodedriver.operations import PreCreateResult as PreCreateResult
from windrow.nodedriver.vm.observe import get_status
from windrow.nodedriver.vm.remove_operation import remove_and_wait
from windrow.nodedriver.vm.replace_user_data import replace_user_data
from windrow.plugin.credentials import find_client_config
from windrow.plugin.http.client import HttpClient
from windrow.plugin.http.pool import ConnectionEnv
from windrow.plugin.process_env import ProcessEnv

R = TypeVar("R")


class HarvesterOperations:
    """Each method takes the machine as it is, and gives back what has become of it. Threads may share one."""

    def __init__(self, process: ProcessEnv) -> None:
        self._process = process
        self._lock = Lock()
        self._clients: dict[str, HttpClient] = {}

    # --- before anybody is asked

    def read_flags(self, values: Mapping[str, Any], base: Configuration) -> Configuration:
        configuration = flags.with_machine_uid(flags.read_flags(values, base), self._process.rng)
        try:
            return harvester_location.with_location(configuration, self._client_config(configuration))
        except (BadKubeconfig, OSError):
            return configuration  # told by the first order that needs it

    def ensure_key(self, configuration: Configuration) -> str:
        """The key files stand; the public key."""
        process = self._process
        plan = ssh_access.plan_key(
            configuration, process.files, lambda: ssh_keys.generate_key_pair(process.rng)
        )
        for file in plan.writes:
            process.files.write(file)
        return plan.public_key

    # --- questions

    def state(self, configuration: Configuration) -> int:
        return self._run(configuration, operations.get_state(configuration))

    def ip(self, configuration: Configuration) -> str:
        return self._run(configuration, operations.get_ip(configuration))

    def ipv6(self, configuration: Configuration) -> str:
        return self._run(configuration, operations.get_ipv6(configuration))

    def url(self, configuration: Configuration) -> str:
        return self._run(configuration, operations.get_url(configuration))

    def status(self, configuration: Configuration) -> bytes:
        return dump_vm_status(self._run(configuration, get_status(configuration)))

    # --- orders

    def check(self, configuration: Configuration) -> PreCreateResult:
        return self._run(
            configuration, operations.pre_create_check(configuration, self._bootstrap(configuration))
        )

    def create(
        self,
        configuration: Configuration,
        check_result: PreCreateResult | None,
        save: Callable[[Configuration], object],
    ) -> Configuration:
        """`keep` is told what is made and known, as soon as it is."""
        bootstrap = self._bootstrap(configuration)
        access = self._client(configuration).access  # without a credential no key is made either
        with_key = replace(configuration, ssh_public_key=self.ensure_key(configuration))
        with_key = harvester_location.with_location(with_key, access)
        save(with_key)
        return self._run(with_key, operations.create_and_wait(with_key, bootstrap, check_result, save=save))

    def remove(self, configuration: Configuration) -> None:
        self._run(configuration, remove_and_wait(configuration, self._find_wrong_harvester(configuration)))

    def start(self, configuration: Configuration) -> Configuration:
        return self._run(configuration, operations.start_and_wait(configuration))

    def stop(self, configuration: Configuration) -> None:
        self._run(configuration, operations.stop_and_wait(configuration))

    def kill(self, configuration: Configuration) -> None:
        self._run(configuration, operations.kill_and_wait(configuration))

    def restart(self, configuration: Configuration) -> Configuration:
        return self._run(configuration, operations.restart_and_wait(configuration))

    def replace_user_data(self, configuration: Configuration, document: bytes) -> None:
        try:
            text = document.decode()
        except UnicodeDecodeError:
            raise Refused(Problem("the document is not text", "write it as UTF-8")) from None
        self._run(configuration, replace_user_data(configuration, text, agent=False))

    # --- what may not be told

    def secrets(self) -> list[str]:
        return [
            secret for http in list(self._clients.values()) for secret in (http.access.token, http.access.key)
        ]

    # --- inside

    def _run(self, configuration: Configuration, operation: Operation[R]) -> R:
        client, process = self._client(configuration), self._process
        try:
            return run(operation, client.send, client.watch, process.now, process.log, sleep=process.sleep)
        except MachineNotFound:
            if astray := self._find_wrong_harvester(configuration):
                raise Refused(astray) from None
            raise

    def _find_wrong_harvester(self, configuration: Configuration) -> Problem | None:
        if self._process.env.get(harvester_location.ANY_HARVESTER):
            return None
        return harvester_location.find_wrong_harvester(configuration, self._client(configuration).access)

    def _bootstrap(self, configuration: Configuration) -> str:
        """What the host wants the machine to do: the document in the file that it names."""
        path = configuration.cloud_config
        if not path:
            return ""
        try:
            return self._process.read_text(path)
        except FileNotFoundError:
            raise Refused(
                Problem(
                    f"the cloud-config file {path} does not exist where the plugin runs",
                    "create the machine in one go: rancher-machine makes this file anew each time",
                    "cloudConfig",
                    go=f"open {path}: no such file or directory",
                )
            ) from None
        except UnicodeDecodeError:
            raise Refused(
                Problem(f"the cloud-config file {path} is not text", "write it as UTF-8", "cloudConfig")
            ) from None

    def _client(self, configuration: Configuration) -> HttpClient:
        """The connection of this kubeconfig; kept, so that a check's connection serves the creation."""
        kubeconfig = configuration.kubeconfig_content
        with self._lock:
            if kubeconfig not in self._clients:
                self._clients = {
                    kubeconfig: self._new_client(self._client_config(configuration), configuration)
                }
            return self._clients[kubeconfig]

    def _client_config(self, configuration: Configuration) -> ClientConfig:
        return find_client_config(
            configuration.kubeconfig_content, self._process.env, self._process.read_text
        )

    def _new_client(self, access: ClientConfig, configuration: Configuration) -> HttpClient:
        process = self._process
        if access.insecure:
            process.log(messages.insecure_warning(access))
        folders = [dirname(ssh_access.key_path(configuration)), configuration.store_path]
        folders += [process.env.get("TMPDIR", ""), "/dev/shm", "/tmp"]
        env = ConnectionEnv(
            monotonic=process.monotonic,
            sleep=process.sleep,
            rng=process.rng,
            env=process.env,
            read_file=process.read_text,
            folders=[folder for folder in folders if folder],
        )
        return HttpClient(access, env)
