"""Who makes machines: our node driver directly, docker-machine plugins, and the catalogue that brings those."""

from __future__ import annotations

import asyncio
import platform
import sys
from base64 import b64decode
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from windrow.assembly.drivers import judge_kind
from windrow.catalogue.controller import Catalogue
from windrow.catalogue.platforms import Platform
from windrow.catalogue.store import Store
from windrow.client.client import Client
from windrow.client.downloads import Downloads
from windrow.clusters.reading import JudgeKind, only_harvester
from windrow.kube.errors import NotFound
from windrow.kube.proxies import find_proxy
from windrow.kube.refs import SECRET
from windrow.machines.board import Board
from windrow.machines.by_driver import MachinesByDriver
from windrow.machines.connections import Credentials, Dial
from windrow.machines.direct import DirectMachines
from windrow.machines.plugin_host import Pace, PluginMachines
from windrow.machines.plugins import open_plugin
from windrow.machines.port import HARVESTER, Machines, Sighting
from windrow.values.chance import Chance
from windrow.values.clock import Clock
from windrow.wire.dockermachine import Flag

Service = Callable[[], Coroutine[Any, Any, None]]

# What plugins get to see of our surroundings. Not KUBECONFIG and not HARVESTER_*: drivers fall back on those, and
# would work on whatever Harvester they lead to.
PASSED_ON = frozenset(
    {"PATH", "HOME", "LANG", "TZ", "TMPDIR", "SSL_CERT_FILE", "SSL_CERT_DIR"}
    | {"HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "no_proxy"}
)


@asynccontextmanager
async def running(*services: Service) -> AsyncIterator[None]:
    """Run `services` beside the block. They end with it; one that fails ends the block."""
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(service()) for service in services]
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()


def pass_on(env: Mapping[str, str]) -> dict[str, str]:
    """What of `env` plugins get."""
    return {name: value for name, value in env.items() if name in PASSED_ON}


async def ask_flags(path: Path, driver: str, env: Mapping[str, str]) -> tuple[Flag, ...]:
    """The create flags of the plugin at `path`. `env` is ours; raises what `open_plugin` raises."""
    async with open_plugin(path, driver, env=pass_on(env)) as plugin:
        return await plugin.get_flags()


@dataclass(frozen=True, slots=True)
class PluginHost:
    """What docker-machine plugins need of this computer. `state` is a directory for drivers and bootstrap documents;
    `driver` is the plugin that makes Harvester's machines, None where they are made directly; `pace` says how often
    machines of plugins are looked at. Drivers come from `file:` URLs only where `files_allowed`."""

    state: Path
    env: Mapping[str, str] = field(default_factory=dict)
    driver: Path | None = None
    files_allowed: bool = False
    pace: Pace | None = None

    @property
    def passed_on(self) -> dict[str, str]:
        return pass_on(self.env)


@dataclass(frozen=True, slots=True)
class Machinery:
    """The manager's machines, the drivers that it may name, and what has to run for them."""

    machines: Machines
    services: tuple[Service, ...]
    judge_kind: JudgeKind = only_harvester
    catalogue: Catalogue | None = None

    @asynccontextmanager
    async def at_work(self) -> AsyncIterator[None]:
        """All of it runs beside the block, and the catalogue knows its drivers."""
        async with running(*self.services):
            if self.catalogue is not None:
                await self.catalogue.synced()
            yield


def direct_machinery(credentials: Credentials, dial: Dial, clock: Clock, chance: Chance) -> Machinery:
    """Harvester's machines, made directly, and no others."""
    machines = DirectMachines(credentials, dial, clock, chance)
    return Machinery(machines, (machines.run,))


def whole_machinery(
    api: Client,
    credentials: Credentials,
    dial: Dial,
    clock: Clock,
    chance: Chance,
    host: PluginHost,
    heard: Callable[[str], None],
) -> Machinery:
    """Machines of every driver in the catalogue. `heard` is told machine config kinds that can be used or no more."""
    catalogue = _make_catalogue(api, clock, chance, host, heard)
    board: Board[Sighting] = Board()

    async def fields(driver: str, credential: str) -> Mapping[str, str]:
        return await read_fields(api, driver, credential)

    plugins = PluginMachines(
        catalogue.binary_of,
        credentials,
        fields,
        host.state / "machines",
        clock,
        chance,
        env=host.passed_on,
        dial=dial,
        board=board,
        pace=host.pace,
    )
    own: dict[str, Machines] = {}
    services: list[Service] = [catalogue.run, plugins.run]
    if host.driver is None:
        direct = DirectMachines(credentials, dial, clock, chance, board=board)
        own[HARVESTER] = direct
        services.append(direct.run)

    return Machinery(
        MachinesByDriver(own, plugins, board),
        tuple(services),
        lambda kind: judge_kind(kind, catalogue.drivers),
        catalogue,
    )


def _make_catalogue(
    api: Client, clock: Clock, chance: Chance, host: PluginHost, heard: Callable[[str], None]
) -> Catalogue:
    return Catalogue(
        api,
        Store(host.state / "drivers", Platform(sys.platform, platform.machine())),
        Downloads(proxy=lambda url: find_proxy(url, "", host.env)).fetch,
        lambda path: ask_flags(path, path.name.removeprefix("docker-machine-driver-"), host.env),
        clock,
        chance,
        files_allowed=host.files_allowed,
        programs={HARVESTER: host.driver} if host.driver else {},
        aside=asyncio.to_thread,
        heard=heard,
    )


async def read_fields(api: Client, driver: str, credential: str) -> dict[str, str]:
    """The fields of a cloud credential as Rancher keeps it: `<driver>credentialConfig-<field>` each.

    Raises NotFound where the Secret `namespace:name` is absent or holds none of this driver's.
    """
    namespace, _, name = credential.rpartition(":")
    secret = await api.get(SECRET.ref(name, namespace or "default"))
    mark = f"{driver}credentialConfig-"
    found = {
        key.removeprefix(mark): b64decode(text).decode()
        for key, text in (secret.get("data") or {}).items()
        if key.startswith(mark)
    }
    if not found:
        raise NotFound(f"Secret {namespace}/{name} has no key that begins with {mark}", status=404)
    return found
