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

from windrow.kubernetes import messages
from windrow.kubernetes.kubeconfig import BadKubeconfig, ClientConfig
from windrow.nodedriver import flags, ssh_access, ssh_keys, waiting_orders, whereabouts
from windrow.nodedriver.blocking import run
from windrow.nodedriver.configuration import Configuration
from windrow.nodedriver.observe import sight_of
from windrow.nodedriver.problems import Gone, Problem, Refused
from windrow.nodedriver.rewrite import rewrite
from windrow.nodedriver.sights import dump_sight
from windrow.nodedriver.steps import Talk
from windrow.nodedriver.waiting_orders import Checked as Checked
from windrow.nodedriver.waiting_removal import remove_and_wait
from windrow.plugin.edge import Edge
from windrow.plugin.http import Http
from windrow.plugin.links import Surroundings
from windrow.plugin.reach import find_access

R = TypeVar("R")


class Errands:
    """Each method takes the machine as it is, and gives back what has become of it. Threads may share one."""

    def __init__(self, edge: Edge) -> None:
        self._edge = edge
        self._lock = Lock()
        self._https: dict[str, Http] = {}

    # --- before anybody is asked

    def read_flags(self, values: Mapping[str, Any], onto: Configuration) -> Configuration:
        configuration = flags.identify(flags.read_flags(values, onto), self._edge.rng)
        try:
            return whereabouts.with_place(configuration, self._find_access(configuration))
        except (BadKubeconfig, OSError):
            return configuration  # told by the first order that needs it

    def ensure_key(self, configuration: Configuration) -> str:
        """The key files stand; the public key."""
        edge = self._edge
        plan = ssh_access.plan_key(configuration, edge.disk, lambda: ssh_keys.new_key(edge.rng))
        for file in plan.writes:
            edge.disk.write(file)
        return plan.public_key

    # --- questions

    def state(self, configuration: Configuration) -> int:
        return self._talk(configuration, waiting_orders.get_state(configuration))

    def ip(self, configuration: Configuration) -> str:
        return self._talk(configuration, waiting_orders.get_ip(configuration))

    def ipv6(self, configuration: Configuration) -> str:
        return self._talk(configuration, waiting_orders.get_ipv6(configuration))

    def url(self, configuration: Configuration) -> str:
        return self._talk(configuration, waiting_orders.get_url(configuration))

    def look(self, configuration: Configuration) -> bytes:
        return dump_sight(self._talk(configuration, sight_of(configuration)))

    # --- orders

    def check(self, configuration: Configuration) -> Checked:
        return self._talk(
            configuration, waiting_orders.pre_create_check(configuration, self._bootstrap(configuration))
        )

    def create(
        self, configuration: Configuration, checked: Checked | None, keep: Callable[[Configuration], object]
    ) -> Configuration:
        """`keep` is told what is made and known, as soon as it is."""
        bootstrap = self._bootstrap(configuration)
        access = self._http(configuration).access  # without a credential no key is made either
        keyed = replace(configuration, ssh_public_key=self.ensure_key(configuration))
        keyed = whereabouts.with_place(keyed, access)
        keep(keyed)
        return self._talk(keyed, waiting_orders.create_and_wait(keyed, bootstrap, checked, keep=keep))

    def remove(self, configuration: Configuration) -> None:
        self._talk(configuration, remove_and_wait(configuration, self._find_astray(configuration)))

    def start(self, configuration: Configuration) -> Configuration:
        return self._talk(configuration, waiting_orders.start_and_wait(configuration))

    def stop(self, configuration: Configuration) -> None:
        self._talk(configuration, waiting_orders.stop_and_wait(configuration))

    def kill(self, configuration: Configuration) -> None:
        self._talk(configuration, waiting_orders.kill_and_wait(configuration))

    def restart(self, configuration: Configuration) -> Configuration:
        return self._talk(configuration, waiting_orders.restart_and_wait(configuration))

    def rewrite(self, configuration: Configuration, document: bytes) -> None:
        try:
            text = document.decode()
        except UnicodeDecodeError:
            raise Refused(Problem("the document is not text", "write it as UTF-8")) from None
        self._talk(configuration, rewrite(configuration, text, agent=False))

    # --- what may not be told

    def secrets(self) -> list[str]:
        return [
            secret for http in list(self._https.values()) for secret in (http.access.token, http.access.key)
        ]

    # --- inside

    def _talk(self, configuration: Configuration, talk: Talk[R]) -> R:
        http, edge = self._http(configuration), self._edge
        try:
            return run(talk, http.send, http.watch, edge.now, edge.say, pause=edge.sleep)
        except Gone:
            if astray := self._find_astray(configuration):
                raise Refused(astray) from None
            raise

    def _find_astray(self, configuration: Configuration) -> Problem | None:
        if self._edge.env.get(whereabouts.ANY_HARVESTER):
            return None
        return whereabouts.find_astray(configuration, self._http(configuration).access)

    def _bootstrap(self, configuration: Configuration) -> str:
        """What the host wants the machine to do: the document in the file that it names."""
        path = configuration.cloud_config
        if not path:
            return ""
        try:
            return self._edge.read_text(path)
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

    def _http(self, configuration: Configuration) -> Http:
        """The connection of this kubeconfig; kept, so that a check's connection serves the creation."""
        kubeconfig = configuration.kubeconfig_content
        with self._lock:
            if kubeconfig not in self._https:
                self._https = {kubeconfig: self._new_http(self._find_access(configuration), configuration)}
            return self._https[kubeconfig]

    def _find_access(self, configuration: Configuration) -> ClientConfig:
        return find_access(configuration.kubeconfig_content, self._edge.env, self._edge.read_text)

    def _new_http(self, access: ClientConfig, configuration: Configuration) -> Http:
        edge = self._edge
        if access.insecure:
            edge.say(messages.insecure_warning(access))
        folders = [dirname(ssh_access.key_path(configuration)), configuration.store_path]
        folders += [edge.env.get("TMPDIR", ""), "/dev/shm", "/tmp"]
        around = Surroundings(
            monotonic=edge.monotonic,
            sleep=edge.sleep,
            rng=edge.rng,
            env=edge.env,
            read_file=edge.read_text,
            folders=[folder for folder in folders if folder],
        )
        return Http(access, around)
