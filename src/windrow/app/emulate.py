"""An emulated Harvester as one async context, and `windrow emulate`: as a process of its own.

It writes its kubeconfig into the state directory before it serves, so that a script can wait for the file. It loads
nothing of the cluster manager.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from windrow.apiserver.request.info import UserInfo
from windrow.app.clock import SystemClock
from windrow.app.guest_programs import GuestProcess, guest_programs
from windrow.app.loop import running
from windrow.app.metrics.emulator import EmulatorMetrics
from windrow.app.metrics.page import serve_metrics
from windrow.app.options import Output
from windrow.app.preload import (
    CPU_MODEL,
    HOST_DEVICE,
    IPV6_NETWORK,
    Preload,
    credential_secrets,
    describe_preload,
    names_of,
    read_preload,
)
from windrow.app.preload.buckets import Bucket, ObjectStores, list_buckets, named_bucket, open_object_stores
from windrow.app.state.directory import (
    CREDENTIALS_FILE,
    HARVESTER_FILE,
    MANAGER_FILE,
    lock_state_dir,
    open_state_directory,
)
from windrow.core.clock import Clock
from windrow.core.files import write_private
from windrow.core.formats.yaml import dump_all
from windrow.core.rng import Rng
from windrow.emulator.guest_os.machine import machine_factory
from windrow.emulator.harvester import Harvester
from windrow.emulator.preload import VmNetwork
from windrow.emulator.proxy import serve
from windrow.emulator.release import find_release
from windrow.emulator.site import DEFAULT_VERSION, parse_inventory
from windrow.emulator.site import BadInventory as BadInventory  # of `read_site`, for its callers
from windrow.emulator.site import Site as Site
from windrow.harvester.resources import IMAGE, IP_POOL, KEY_PAIR, NETWORK
from windrow.kubernetes.kubeconfig import ClientConfig, parse_kubeconfig
from windrow.kubernetes.objects import Raw
from windrow.kubernetes.requests import Reply, Request
from windrow.kubernetes.resources import NAMESPACE, SECRET, STORAGE_CLASS


@dataclass(frozen=True, slots=True)
class EmulateOptions:
    """`state_dir` is for the kubeconfigs, `preload` are the objects whose references shall exist, `time_scale` divides every
    delay, `port` 0 is any free port, `site` is the release, the hosts and the networks. `cloud_provider` is the program that guests start as a process, with `env`.
    `buckets` are names of buckets for snapshots of etcd, beside those of `preload`."""

    state_dir: Path
    preload: tuple[dict[str, Any], ...] = ()
    time_scale: float = 1.0
    port: int = 0
    cloud_provider: Path | None = None
    env: Mapping[str, str] = field(default_factory=dict)
    site: Site = field(default_factory=Site)
    buckets: tuple[str, ...] = ()


def harvester_release(text: str) -> str:
    """The version of an emulated Harvester that `text` stands for. Raises ValueError."""
    return find_release(text)


def read_site(release: str | None, inventory: object = None) -> Site:
    """The site of a release and of the content of an inventory file, either None for the usual. Raises BadInventory."""
    version = release or DEFAULT_VERSION
    return Site(version) if inventory is None else parse_inventory(inventory, version)


async def run(options: EmulateOptions, out: Output) -> int:
    """Serve until cancelled. Writes `harvester.yaml`, and `credentials.yaml` where manifests name credentials."""
    preload = read_preload(options.preload)
    for line in open_state_directory(options.state_dir):
        out.print_line(line)
    cloud_provider = None
    if options.cloud_provider is not None:
        cloud_provider = GuestProcess(options.cloud_provider, options.env)
    async with embedded_harvester(
        options.state_dir,
        preload,
        SystemClock(),
        Rng(),
        time_scale=options.time_scale,
        port=options.port,
        cloud_provider=cloud_provider,
        site=options.site,
        buckets=(*list_buckets(options.preload), *map(named_bucket, options.buckets)),
    ) as emulated:
        out.print_line(f"An emulated Harvester {emulated.version} serves at {emulated.access.server}.")
        out.print_line("Its virtual machines are simulated, and its objects are in memory until it ends.")
        for line in describe_site(options.site):
            out.print_line(line)
        for line in describe_created(preload):
            out.print_line(f"Created because a manifest refers to it: {line}")
        for bucket in emulated.object_stores.buckets:
            out.print_line(f"Bucket for snapshots of etcd: {bucket}")
        out.print_line(f"Kubeconfig: {emulated.kubeconfig_path}")
        if options.cloud_provider is not None:
            out.print_line(
                f"Guests run {options.cloud_provider} as their cloud provider, each in a process of its own."
            )
        secrets = credential_secrets(options.preload, emulated.kubeconfig)
        if secrets := [*secrets, *emulated.object_stores.render_secrets(options.preload)]:
            _write_credentials(options, secrets, out)
        out.print_line(f"Try: kubectl --kubeconfig {emulated.kubeconfig_path} get vms -A")
        await asyncio.Event().wait()
    return 0


def describe_created(preload: Preload) -> list[str]:
    """One line for each kind of which objects are created; Secrets belong to the management API, and are told by themselves."""
    return describe_preload(frozenset(ref for ref in preload if ref.kind != SECRET))


def describe_site(site: Site) -> list[str]:
    """One line for the hosts and one for the networks of an inventory."""
    hosts = f"Hosts: {', '.join(f'{one.name} ({one.cpu} CPUs, {one.memory})' for one in site.hosts)}"
    networks = [f"{one.name} ({one.cidr or 'a /24 of its own'})" for one in site.networks]
    return [hosts, *([f"Networks: {', '.join(networks)}"] if networks else [])]


def _write_credentials(options: EmulateOptions, secrets: list[Raw], out: Output) -> None:
    """Write the credential Secrets as a manifest: they belong to the management API."""
    path = options.state_dir / CREDENTIALS_FILE
    write_private(path, dump_all(secrets))
    out.print_line(f"Secrets with credentials, of manifests and buckets: {path}")
    manager = options.state_dir / MANAGER_FILE
    named = f" --kubeconfig {manager}" if manager.exists() else ""
    out.print_line(f"Apply them to the management API: windrow apply{named} -f {path}")


@dataclass(frozen=True, slots=True)
class EmbeddedHarvester:
    """An emulated Harvester that serves. `kubeconfig` is its administrator's, as a user downloads it."""

    harvester: Harvester
    version: str
    access: ClientConfig
    kubeconfig: str = field(repr=False)
    kubeconfig_path: Path
    object_stores: ObjectStores


# What the router of a network advertises for machines of dual stack that have no range of addresses.
IPV6_PREFIX = "fd00:50::/64"


async def preload_objects(harvester: Harvester, preload: Preload) -> None:
    """Create every object that `preload` names, and give hosts what machines want of them; credentials belong to the
    management API. May be repeated."""
    with_ipv6 = names_of(preload, IPV6_NETWORK)
    await harvester.preload(
        images=names_of(preload, IMAGE),
        networks=[
            VmNetwork(name, ipv6_prefix=IPV6_PREFIX if name in with_ipv6 else "")
            for name in names_of(preload, NETWORK)
        ],
        namespaces=names_of(preload, NAMESPACE),
        storage_classes=names_of(preload, STORAGE_CLASS),
        key_pairs=names_of(preload, KEY_PAIR),
        devices=names_of(preload, HOST_DEVICE),
        cpu_models=names_of(preload, CPU_MODEL),
        ip_pools=names_of(preload, IP_POOL),
    )


@asynccontextmanager
async def embedded_harvester(
    state_dir: Path,
    preload: Preload,
    clock: Clock,
    rng: Rng,
    *,
    time_scale: float = 1.0,
    port: int = 0,
    cloud_provider: GuestProcess | None = None,
    site: Site | None = None,
    buckets: Sequence[Bucket] = (),
) -> AsyncIterator[EmbeddedHarvester]:
    """An emulated Harvester with the objects of `preload`, its kubeconfig in `state_dir`. Raises DirectoryInUse.

    Its guests run `cloud_provider`; where it is None, Windrow's in this process.
    """
    site = site or Site()
    with lock_state_dir(state_dir, "harvester", "emulator"):
        factory = machine_factory(guest_programs(cloud_provider))
        harvester = Harvester(
            clock,
            rng,
            time_scale=time_scale,
            machine_factory=factory,
            version=site.version,
            hosts=site.hosts,
        )
        serve_consoles(harvester)
        serve_metrics(harvester.api, EmulatorMetrics(harvester).registry)
        async with running(harvester.run), serve(harvester, port=port) as served:
            if cloud_provider is not None:
                cloud_provider.proxy_url = served.proxy_url
            await harvester.preload(networks=site.networks)
            await preload_objects(harvester, preload)
            stores = open_object_stores(harvester.network, buckets, clock)
            path = state_dir / HARVESTER_FILE
            write_private(path, served.kubeconfig)
            yield EmbeddedHarvester(
                harvester,
                harvester.version,
                parse_kubeconfig(served.kubeconfig),
                served.kubeconfig,
                path,
                stores,
            )


PREFIX = "/windrow/console/"
TEXT = "text/plain; charset=utf-8"


def serve_consoles(harvester: Harvester) -> None:
    """Serve the consoles of simulated machines: `GET /windrow/console/NAMESPACE/NAME` on the emulator.

    A real Harvester shows consoles through VNC only, so the path is Windrow's and outside of the Kubernetes API.
    """

    async def answer(request: Request, caller: UserInfo) -> Reply:
        namespace, _, name = request.path.removeprefix(PREFIX).partition("/")
        lines = harvester.console(namespace, name)
        if not lines:
            return Reply(404, f"no machine {namespace}/{name} has written anything\n".encode(), TEXT)
        return Reply(200, "".join(f"{line}\n" for line in lines).encode(), TEXT)

    harvester.api.routes[PREFIX] = answer
