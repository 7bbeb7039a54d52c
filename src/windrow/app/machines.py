"""The machine backend: Harvester machines directly or by plugin, docker-machine plugins, and their NodeDrivers."""

from __future__ import annotations

import asyncio
import platform
import sys
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from windrow.app.loop import Service, running
from windrow.app.state.directory import DRIVERS_DIRECTORY, MACHINES_DIRECTORY
from windrow.client.client import Client
from windrow.client.downloads import Downloader
from windrow.clusters.api.manifest.machine_config import ResolveDriver, harvester_only
from windrow.clusters.api.references import parse_secret_reference
from windrow.core.clock import Clock
from windrow.core.errors import UserError
from windrow.core.rng import Rng
from windrow.core.text import decode_base64
from windrow.drivers.api import HARVESTER as HARVESTER_DRIVER
from windrow.drivers.api import Fault, NodeDriver, find_driver, find_refusal
from windrow.drivers.archive import Platform
from windrow.drivers.controller import NodeDriverController
from windrow.drivers.installer import probe_flags
from windrow.drivers.store import DriverStore
from windrow.kubernetes.errors import NotFound
from windrow.kubernetes.proxies import find_proxy
from windrow.machines.dispatch import DriverDispatch
from windrow.machines.harvester.connections import Connect, ReadKubeconfig
from windrow.machines.harvester.machines import HarvesterMachines
from windrow.machines.plugin.launcher import FindSandbox, MayWrite
from windrow.machines.plugin.machines import PluginMachines
from windrow.machines.plugin.poller import PollIntervals
from windrow.machines.plugin.process.client import open_plugin
from windrow.machines.plugin.process.orphans import HOST_ID_ENV, new_host_id
from windrow.machines.plugin.process.sandbox import Sandbox, describe_sandbox
from windrow.machines.port import HARVESTER, Machines, Problem
from windrow.machines.status_store import StatusStore
from windrow.protocols.dockermachine import Flag

# The environment variables that plugins get. Neither KUBECONFIG nor HARVESTER_*: drivers fall back on those, and would
# act on the Harvester that they lead to.
PLUGIN_ENV_NAMES = frozenset(
    {"PATH", "HOME", "LANG", "TZ", "TMPDIR", "SSL_CERT_FILE", "SSL_CERT_DIR"}
    | {"HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "no_proxy"}
)


def plugin_env(env: Mapping[str, str]) -> dict[str, str]:
    """The variables of `env` that plugins get."""
    return {name: value for name, value in env.items() if name in PLUGIN_ENV_NAMES}


async def read_create_flags(
    path: Path, driver: str, env: Mapping[str, str], sandbox: Sandbox | None = None
) -> tuple[Flag, ...]:
    """The create flags of the plugin at `path`, with `env` as its environment. Raises what `open_plugin` raises."""
    with tempfile.TemporaryDirectory(prefix="windrow-driver-") as name:
        home, variables = Path(name), dict(env)
        if sandbox is not None:
            sandbox = sandbox.with_paths((), (home,))
            variables |= {"HOME": name, "TMPDIR": name}
        async with open_plugin(path, driver, env=variables, folder=home, sandbox=sandbox) as plugin:
            return await plugin.get_flags()


@dataclass(frozen=True, slots=True)
class PluginSettings:
    """What docker-machine plugins need of this computer. `state_dir` holds drivers and bootstrap documents; `driver` is the
    plugin for machines on Harvester, None to create them directly; `poll_intervals` are those of plugins' machines. Drivers
    with `file:` URLs need `allow_file_urls`. `may_run` is False from when a plugin that is left alone, which then runs for
    HEARTBEAT_TIMEOUT_S, might still run when another manager begins."""

    state_dir: Path
    env: Mapping[str, str] = field(default_factory=dict)
    driver: Path | None = None
    allow_file_urls: bool = False
    poll_intervals: PollIntervals | None = None
    may_run: Callable[[], bool] = lambda: True

    @property
    def plugin_env(self) -> dict[str, str]:
        return plugin_env(self.env)


def sandbox_of_downloaded(settings: PluginSettings) -> FindSandbox:
    """The sandbox of each downloaded driver, where this computer has one. A program of the operator's (`driver`) has none."""
    downloaded = settings.state_dir / DRIVERS_DIRECTORY
    named = (settings.env.get(name, "").split(":") for name in ("SSL_CERT_FILE", "SSL_CERT_DIR"))
    certificates = tuple(Path(name) for names in named for name in names if name and Path(name).exists())

    def find(path: Path) -> Sandbox | None:
        if not describe_sandbox() or not path.is_relative_to(downloaded):
            return None
        return Sandbox((path, *certificates))

    return find


def sandbox_notice() -> str:
    """What downloaded drivers run in, for the start of a manager."""
    if described := describe_sandbox():
        return (
            f"Node drivers from a URL run in a sandbox ({described}), without access to this state directory."
        )
    return (
        "Node drivers from a URL run without a sandbox, because this kernel has no Landlock: they can read this state "
        "directory. Add only drivers that you trust, or run the manager on Linux 5.13 or later."
    )


@dataclass(frozen=True, slots=True)
class MachineBackend:
    """The manager's machines, the drivers that Clusters may name, and the services that run for them."""

    machines: Machines
    services: tuple[Service, ...]
    driver_for_kind: ResolveDriver = harvester_only
    drivers: NodeDriverController | None = None

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """The services run while the block does; the drivers are known when it begins."""
        async with running(*self.services):
            if self.drivers is not None:
                await self.drivers.wait_started()
            yield


def direct_backend(credentials: ReadKubeconfig, connect: Connect, clock: Clock, rng: Rng) -> MachineBackend:
    """Machines on Harvester, created directly, and no other driver."""
    machines = HarvesterMachines(credentials, connect, clock, rng)
    return MachineBackend(machines, (machines.run,))


def full_backend(
    api: Client,
    credentials: ReadKubeconfig,
    connect: Connect,
    clock: Clock,
    rng: Rng,
    settings: PluginSettings,
    on_kind_changed: Callable[[str], None],
    may_write: MayWrite,
) -> MachineBackend:
    """Machines of every NodeDriver. `on_kind_changed` is called with each machine config kind that comes or goes.

    `may_write` is asked while a plugin writes to Harvester: its requests are not ours.
    """
    host_id = new_host_id(rng, settings.state_dir)
    drivers = _make_driver_controller(
        api, clock, rng, settings, host_id, on_kind_changed, lambda driver: machines.hand_back(driver)
    )
    statuses = StatusStore()

    plugins = PluginMachines(
        drivers.find_binary,
        credentials,
        partial(read_credential_fields, api),
        settings.state_dir / MACHINES_DIRECTORY,
        clock,
        rng,
        env=settings.plugin_env,
        host_id=host_id,
        connect=connect,
        store=statuses,
        intervals=settings.poll_intervals,
        may_run=settings.may_run,
        may_write=may_write,
        find_sandbox=sandbox_of_downloaded(settings),
    )
    by_driver: dict[str, Machines] = {}
    services: list[Service] = [drivers.run, plugins.run]
    if settings.driver is None:
        direct = HarvesterMachines(credentials, connect, clock, rng, store=statuses)
        by_driver[HARVESTER] = direct
        services.append(direct.run)
    machines = DriverDispatch(by_driver, plugins, statuses, drivers.is_overridden)

    return MachineBackend(
        machines,
        tuple(services),
        lambda kind: driver_for_kind(kind, drivers.drivers),
        drivers,
    )


def _make_driver_controller(
    api: Client,
    clock: Clock,
    rng: Rng,
    settings: PluginSettings,
    host_id: str,
    on_kind_changed: Callable[[str], None],
    on_override: Callable[[str], None],
) -> NodeDriverController:
    find_sandbox = sandbox_of_downloaded(settings)
    env = {**settings.plugin_env, HOST_ID_ENV: host_id}

    def read_flags(path: Path) -> Awaitable[tuple[Flag, ...]]:
        name = path.name.removeprefix("docker-machine-driver-")
        return read_create_flags(path, name, env, find_sandbox(path))

    return NodeDriverController(
        api,
        DriverStore(settings.state_dir / DRIVERS_DIRECTORY, Platform(sys.platform, platform.machine())),
        Downloader(proxy=lambda url: find_proxy(url, "", settings.env)).fetch,
        read_flags,
        clock,
        rng,
        files_allowed=settings.allow_file_urls,
        programs={HARVESTER: settings.driver} if settings.driver else {},
        run_blocking=asyncio.to_thread,
        on_kind_changed=on_kind_changed,
        on_override=on_override,
        sandbox=describe_sandbox(),
    )


async def read_credential_fields(api: Client, driver: str, credential: str) -> dict[str, str]:
    """The fields of a cloud credential as Rancher keeps it: `<driver>credentialConfig-<field>` each.

    Raises NotFound where the Secret `namespace:name` is absent or has no field of this driver.
    """
    ref = parse_secret_reference(credential)
    if ref is None:
        raise NotFound(f"{credential!r} names no Secret; write namespace:name", status=404)
    secret = await api.get(ref)
    prefix = f"{driver}credentialConfig-"
    found = {
        key.removeprefix(prefix): decode_base64(text)
        for key, text in (secret.get("data") or {}).items()
        if key.startswith(prefix)
    }
    if not found:
        raise NotFound(f"{ref} has no key that begins with {prefix}", status=404)
    return found


def driver_for_kind(kind: str, drivers: Iterable[NodeDriver]) -> str | Problem:
    """The name of the driver that provides the machine config kind, or the problem that it has none now.

    HarvesterConfig has its driver without a NodeDriver, too: a manager that just started has none yet, and creates a
    deleted one again when it restarts.
    """
    known = tuple(drivers)
    driver, fault = find_driver(kind, known), find_refusal(kind, known)
    if driver is None:
        return harvester_only(kind)
    return driver.driver_name if fault is None else Problem(fault.message, fault.hint)


HINT = "name a docker-machine driver for Harvester: Windrow's, which `make driver` builds, or the Go one"


class BadDriver(UserError):
    """The file is not a docker-machine driver for Harvester."""


async def require_harvester_driver(path: Path, env: Mapping[str, str], clock: Clock) -> None:
    """Start the program at `path` and return when it answers as a driver for Harvester. Raises BadDriver."""
    try:
        flags = await probe_flags(
            path, lambda program: read_create_flags(program, HARVESTER, plugin_env(env)), clock
        )
    except Fault as fault:
        raise BadDriver(f"{path} is not a docker-machine driver: {fault.message}", HINT) from fault
    if HARVESTER_DRIVER.marker not in {flag.name for flag in flags}:
        raise BadDriver(
            f"{path} is a docker-machine driver, but not for Harvester: it has no flag {HARVESTER_DRIVER.marker}",
            HINT,
        )
