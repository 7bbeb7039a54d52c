"""The commands of rancher-machine and docker-machine, as the calls that their plugins see (reference/01 §5.2).

Each command is a process of its own for the host: it knows the machine's store, opens plugins, and closes them on
success only. `DriverHost.calls` has, per plugin process, what was called.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from tests.e2e.plugin_host import HOST_ARGV, PLUGIN, Plugin, Said, a_plugin
from tests.e2e.plugin_site import IMAGE, NETWORK, Site

from windrow.core.formats.json import dumps, loads
from windrow.core.rng import SystemRng
from windrow.nodedriver.ssh.keys import SshKeyPair, generate_key_pair
from windrow.protocols import dockermachine as wire

NAME = "c1-pool1-abcde-fghij"
SCRIPT = "#cloud-config\nruncmd:\n- sh /usr/local/custom_script/install.sh\n"

SHARED_FLAGS: Mapping[str, Any] = {
    "driver": "harvester",
    "engine-install-url": "https://get.docker.com",
    "engine-storage-driver": "",
    "swarm": False,
    "swarm-image": "swarm:latest",
    "swarm-master": False,
    "swarm-discovery": "",
    "swarm-strategy": "spread",
    "swarm-host": "tcp://0.0.0.0:3376",
    "swarm-addr": "",
    "swarm-experimental": False,
    "engine-env": ["A=b"],
}


@cache
def _a_key() -> SshKeyPair:
    return generate_key_pair(SystemRng())


@dataclass
class DriverHost:
    """One host with one machine, and what it keeps between commands."""

    site: Site
    folder: Path
    name: str = NAME
    argv: Sequence[str] = HOST_ARGV
    env: Mapping[str, str] = field(default_factory=dict)
    saves: list[dict[str, Any]] = field(default_factory=list)
    calls: list[list[str]] = field(default_factory=list)
    flags: Mapping[str, Any] = field(default_factory=dict)
    program: Sequence[str] = PLUGIN
    has_key: bool = True  # key files stand already: making some takes a while, and one test for it will do

    def __post_init__(self) -> None:
        if self.has_key:
            place = self.folder / "machines" / self.name
            place.mkdir(parents=True)
            pair = _a_key()
            (place / "id_rsa").write_bytes(pair.private_pem)
            (place / "id_rsa.pub").write_text(pair.public_line)

    # --- the store

    @property
    def saved(self) -> dict[str, Any]:
        """The last saved `Driver` object of config.json."""
        return self.saves[-1]

    def first_config(self, name: str = "") -> bytes:
        """What the plugin of a new machine is given: a base driver, all else zero."""
        zero: dict[str, Any] = dict.fromkeys(
            ("IPAddress", "SSHUser", "SSHKeyPath", "SwarmHost", "SwarmDiscovery"), ""
        )
        return dumps(
            zero
            | {
                "MachineName": name or self.name,
                "StorePath": str(self.folder),
                "SSHPort": 0,
                "SwarmMaster": False,
            }
        )

    def save(self, plugin: Plugin) -> None:
        self.saves.append(loads(plugin.call("GetConfigRaw")))

    # --- plugins

    @contextmanager
    def plugin(self, config: bytes | None = None, *, new: bool = False) -> Iterator[Plugin]:
        """A plugin opened as hosts open one; new ones are asked for their names, too."""
        with a_plugin(argv=self.argv, env=self.env, folder=self.folder, program=self.program) as plugin:
            self.calls.append(plugin.calls)
            try:
                assert plugin.call("GetVersion") == wire.API_VERSION
            except Said:
                plugin.service = wire.LEGACY_SERVICE
                assert plugin.call("GetVersion") == wire.API_VERSION
            plugin.beat()
            plugin.call("SetConfigRaw", config if config is not None else dumps(self.saved))
            plugin.call("GetMachineName")
            if new:
                assert plugin.call("GetMachineName")
                assert plugin.call("DriverName") == "harvester"
            yield plugin

    @contextmanager
    def throw_away(self, name: str) -> Iterator[Plugin]:
        """The second process that is opened only to read the flags."""
        with self.plugin(self.first_config(name), new=True) as plugin:
            plugin.call("GetCreateFlags")
            yield plugin

    def options(self, plugin: Plugin, script: str = "") -> Any:
        """Each flag's default, then all flags of the command with their values."""
        defaults = {flag.name: flag.default for flag in wire.read_flags(plugin.call("GetCreateFlags"))}
        given = {
            "harvester-kubeconfig-content": self.site.kubeconfig,
            "harvester-image-name": IMAGE,
            "harvester-disk-size": 10,
            "harvester-network-name": NETWORK,
            "harvester-ssh-user": "ubuntu",
            "harvester-cloud-config": script,
            **self.flags,
        }
        assert set(given) <= set(defaults)
        return wire.write_options({**defaults, **SHARED_FLAGS, **given})

    def script(self) -> str:
        """The file that rancher-machine makes of the custom install script; its path is stale after the command."""
        path = self.folder / f"modified-user-data{len(self.calls)}"
        path.write_text(SCRIPT)
        return str(path)

    # --- commands

    def create(self, *, docker: bool = False) -> None:
        with self.throw_away("flag-lookup" if docker else "temp-driver-loader") as temp:
            with self.plugin(self.first_config(), new=True) as plugin:
                self.prepare(plugin, docker=docker)
                plugin.call("Create")
                self.save(plugin)
                for _ in range(2 if docker else 3):
                    plugin.call("DriverName")
                wait_for_state(plugin, wire.RUNNING)
                if not docker:
                    assert find_user_data_flag(plugin) == "harvester-cloud-config"
                    self.save(plugin)
                assert plugin.close() == 0
            assert temp.close() == 0

    def prepare(self, plugin: Plugin, *, docker: bool = False) -> None:
        """Up to the save before Create."""
        if docker:
            options = self.options(plugin)
        else:
            options = self.options(plugin, self.script())
            assert find_user_data_flag(plugin) == "harvester-cloud-config"
            plugin.call("GetCreateFlags")  # for a flag that names the operating system
        plugin.call("SetConfigFromFlags", options)
        plugin.call("PreCreateCheck")
        self.save(plugin)

    def remove(self, *, update_config: bool = False) -> None:
        """Raises Said where the host would keep the machine: "not found" counts as removed."""
        with ExitStack() as stack:
            others = []
            if update_config:
                others = [
                    stack.enter_context(self.plugin()),
                    stack.enter_context(self.throw_away("temp-driver-loader")),
                ]
            plugin = stack.enter_context(self.plugin())
            try:
                plugin.call("Remove")
            except Said as said:
                if "not found" not in str(said).lower():
                    raise
            for each in (plugin, *others):
                assert each.close() == 0

    def status(self) -> str:
        with self.plugin() as plugin:
            state = wire.STATES[plugin.call("GetState")]
            self.save(plugin)
            assert plugin.close() == 0
        return state

    def ip(self) -> str:
        with self.plugin() as plugin:
            address = plugin.call("GetIP")
            self.save(plugin)
            assert plugin.close() == 0
        return str(address)

    def list(self) -> tuple[str, str]:
        """The machine's line: its state and its URL; a URL means Running."""
        with self.plugin() as plugin:
            url, state = "", "Running"
            try:
                url = plugin.call("GetURL", within=10)
            except Said:
                state = wire.STATES[plugin.call("GetState", within=10)]
            plugin.call("DriverName")
            plugin.close()
        return state, url

    def order(self, verb: str, leads_to: int, looks: int = 1) -> None:
        """start, stop, kill and restart."""
        with self.plugin() as plugin:
            for _ in range(looks):
                plugin.call("GetState")
            plugin.call(verb)
            wait_for_state(plugin, leads_to)
            self.save(plugin)
            assert plugin.close() == 0


def find_user_data_flag(plugin: Plugin) -> str:
    """rancher-machine takes the first that sounds so."""
    names = ("user-data", "userdata", "custom-data", "cloud-config")
    flags = wire.read_flags(plugin.call("GetCreateFlags"))
    return next(flag.name for flag in flags if any(name in flag.name for name in names))


def wait_for_state(plugin: Plugin, wanted: int, pause: float = 0.1, tries: int = 100) -> None:
    found = -1
    for _ in range(tries):
        with suppress(Said):
            found = plugin.call("GetState")
        if found == wanted:
            return
        time.sleep(pause)
    raise AssertionError(f"{wire.STATES[wanted]} was to come, and it stayed {found}")
