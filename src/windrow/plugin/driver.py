"""One machine, as a host of docker-machine speaks of it: its configuration, and the talks about it.

Calls come in threads. Orders (create, remove, power) and changes of the configuration are taken one after the other;
questions never wait for an order. The configuration is a value that is replaced as a whole, so a question sees it as it
was or as it is, and GetConfigRaw has at every moment what is known to be made.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from os.path import dirname
from threading import Lock
from typing import Any, TypeVar

from windrow.formats.json import dumps
from windrow.kube.kubeconfig import Access
from windrow.nodedriver import flags, ssh_access, ssh_keys, stored, whole
from windrow.nodedriver.blocking import run
from windrow.nodedriver.configuration import UNSET, Configuration
from windrow.nodedriver.options import DRIVER
from windrow.nodedriver.problems import Problem, Refused
from windrow.nodedriver.removal import remove_whole
from windrow.nodedriver.rewrite import rewrite
from windrow.nodedriver.steps import Talk
from windrow.plugin.disk import Disk
from windrow.plugin.http import Http, Surroundings
from windrow.plugin.reach import find_access
from windrow.plugin.sight import look
from windrow.values.chance import Chance

R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class Edge:
    """What the process hands in of the world outside."""

    argv: Sequence[str]
    env: Mapping[str, str]
    now: Callable[[], datetime]
    monotonic: Callable[[], float]
    sleep: Callable[[float], None]
    chance: Chance
    say: Callable[[str], None]
    disk: Disk

    def read_text(self, path: str) -> str:
        """Raises OSError, UnicodeError."""
        content = self.disk.read(path)
        if content is None:
            raise FileNotFoundError(f"{path} does not exist")
        return content.decode()


@dataclass(frozen=True, slots=True)
class _Check:
    """What a check found, for as long as it is the same machine that is asked for."""

    of: Configuration
    checked: whole.Checked


class Driver:
    """The machine that this process was started for. Every method may raise what `go_words` has a text for."""

    def __init__(self, edge: Edge) -> None:
        self._edge = edge
        self._configuration = UNSET
        self._orders = Lock()
        self._changing = Lock()
        self._check: _Check | None = None
        self._https: dict[str, Http] = {}

    # --- the configuration

    def set_config_raw(self, text: bytes) -> None:
        with self._orders:
            self._replace(stored.load(text, self._configuration, self._edge.argv, self._edge.env))

    def get_config_raw(self) -> bytes:
        return stored.dump(self._configuration)

    def set_config_from_flags(self, values: Mapping[str, Any]) -> None:
        with self._orders:
            read = flags.read_flags(values, self._configuration)
            self._replace(flags.identify(read, self._edge.chance))

    def create_flags(self) -> Sequence[Any]:
        return flags.create_flags()

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
        return self._talk(whole.get_state(self._configuration))

    def ip(self) -> str:
        return self._talk(whole.get_ip(self._configuration))

    def ipv6(self) -> str:
        return self._talk(whole.get_ipv6(self._configuration))

    def url(self) -> str:
        return self._talk(whole.get_url(self._configuration))

    def look(self) -> bytes:
        return dumps(self._talk(look(self._configuration)))

    # --- orders

    def pre_create_check(self) -> None:
        with self._orders:
            configuration = self._configuration
            self._check = None
            checked = self._talk(whole.pre_create_check(configuration, self._bootstrap(configuration)))
            self._check = _Check(configuration, checked)

    def create(self) -> None:
        with self._orders:
            check, self._check = self._check, None
            before = self._configuration
            found = check.checked if check is not None and check.of == before else None
            bootstrap = self._bootstrap(before)
            self._http()  # without a credential no key is made either
            keyed = self._ensure_key()
            self._order(whole.create(keyed, bootstrap, found, keep=self._replace))

    def remove(self) -> None:
        with self._orders:
            self._talk(remove_whole(self._configuration))

    def start(self) -> None:
        with self._orders:
            self._order(whole.start_whole(self._configuration))

    def stop(self) -> None:
        with self._orders:
            self._talk(whole.stop_whole(self._configuration))

    def kill(self) -> None:
        with self._orders:
            self._talk(whole.kill_whole(self._configuration))

    def restart(self) -> None:
        with self._orders:
            self._order(whole.restart_whole(self._configuration))

    def rewrite(self, document: bytes) -> bytes:
        """Replace what the machine reads at its next start by the user's document merged with `document`."""
        with self._orders:
            self._talk(rewrite(self._configuration, document.decode(), agent=False))
        return b""

    # --- what may not be told

    def secrets(self) -> list[str]:
        """What no text may hold."""
        configuration = self._configuration
        found = [configuration.kubeconfig_content, configuration.ssh_password]
        for http in list(self._https.values()):
            found += [http.access.token, http.access.key]
        return [each for each in found if each]

    # --- inside

    def _talk(self, talk: Talk[R]) -> R:
        http, edge = self._http(), self._edge
        return run(talk, http.send, http.watch, edge.now, edge.say, pause=edge.sleep)

    def _order(self, talk: Talk[Configuration]) -> None:
        self._replace(self._talk(talk))

    def _replace(self, configuration: Configuration) -> None:
        self._keep(lambda _: configuration)

    def _keep(self, change: Callable[[Configuration], Configuration]) -> Configuration:
        with self._changing:
            self._configuration = change(self._configuration)
            return self._configuration

    def _with_login(self) -> Configuration:
        return self._keep(ssh_access.with_login)

    def _ensure_key(self) -> Configuration:
        """The key files stand, and the configuration knows the public key."""
        edge = self._edge
        plan = ssh_access.plan_key(self._with_login(), edge.disk, lambda: ssh_keys.new_key(edge.chance))
        for file in plan.writes:
            edge.disk.write(file)
        return self._keep(lambda known: replace(known, ssh_public_key=plan.public_key))

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

    def _http(self) -> Http:
        """The connection of the present kubeconfig; kept, so that a check's connection serves the creation."""
        configuration, edge = self._configuration, self._edge
        kubeconfig = configuration.kubeconfig_content
        with self._changing:
            if kubeconfig not in self._https:
                access = find_access(kubeconfig, edge.env, edge.read_text)
                self._https = {kubeconfig: self._new_http(access, configuration)}
            return self._https[kubeconfig]

    def _new_http(self, access: Access, configuration: Configuration) -> Http:
        edge = self._edge
        folders = [dirname(ssh_access.key_path(configuration)), configuration.store_path]
        folders += [edge.env.get("TMPDIR", ""), "/dev/shm", "/tmp"]
        around = Surroundings(
            monotonic=edge.monotonic,
            sleep=edge.sleep,
            chance=edge.chance,
            env=edge.env,
            read_file=edge.read_text,
            folders=[folder for folder in folders if folder],
        )
        return Http(access, around)
