"""An embedded Harvester and an embedded manager, each as one context: up on entry, orderly down on exit.

Both write a kubeconfig into `state` before they say that they are up, so that whoever waits for the file can use it.
"""

from __future__ import annotations

from base64 import b64decode
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from windrow.apiserver.http import Listener
from windrow.apiserver.server import ApiServer
from windrow.apiserver.store import Store
from windrow.apiserver.stores.memory import MemoryStore
from windrow.assembly.authority import kept_authority, write_private
from windrow.assembly.console import offer_consoles
from windrow.assembly.guest_process import GuestProcess
from windrow.assembly.machinery import (
    Machinery,
    PluginHost,
    direct_machinery,
    running,
    whole_machinery,
)
from windrow.assembly.network import CountingTransport, Dial
from windrow.assembly.programs import guest_programs
from windrow.assembly.stock import Stock
from windrow.assembly.tenure import tenure
from windrow.bootstrap.minting import USER
from windrow.catalogue import kinds as catalogue_kinds
from windrow.client.client import Client
from windrow.client.limited import LimitedTransport
from windrow.client.retrying import RetryingTransport
from windrow.client.transport import Transport
from windrow.clusters import kinds
from windrow.clusters.manager import Manager
from windrow.clusters.names import CREDENTIAL_KEY
from windrow.emulator.guests.machine import machine_factory
from windrow.emulator.harvester import Harvester
from windrow.emulator.serving import serve
from windrow.kube.errors import NotFound
from windrow.kube.kubeconfig import Access, parse_kubeconfig, render_kubeconfig
from windrow.kube.objects import dig
from windrow.kube.refs import CRD, NAMESPACE, SECRET
from windrow.nodedriver.schema import harvester_config_crd
from windrow.values.chance import Chance
from windrow.values.clock import Clock

HARVESTER_FILE = "harvester.yaml"
MANAGER_FILE = "manager.yaml"
# Where Rancher keeps clusters and cloud credentials: manifests written for it name these.
RANCHER_NAMESPACES = ("fleet-default", "cattle-global-data")


# -- Harvester ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Emulated:
    """An embedded Harvester that answers. `kubeconfig` is its administrator's, as a user would have downloaded it."""

    harvester: Harvester
    version: str
    access: Access
    kubeconfig: str = field(repr=False)
    kubeconfig_path: Path


async def fill_shelves(harvester: Harvester, stock: Stock) -> None:
    """Put everything that `stock` names on the shelves; credentials are the manager's to hold. May be repeated."""
    await harvester.stock(
        images=sorted(stock.images),
        networks=sorted(stock.networks),
        namespaces=sorted(stock.namespaces),
        storage_classes=sorted(stock.storage_classes),
        key_pairs=sorted(stock.key_pairs),
    )


@asynccontextmanager
async def embedded_harvester(
    state: Path,
    stock: Stock,
    clock: Clock,
    chance: Chance,
    *,
    speed: float = 1.0,
    port: int = 0,
    cloud_provider: GuestProcess | None = None,
) -> AsyncIterator[Emulated]:
    """An embedded Harvester with `stock` on its shelves, its kubeconfig in `state`. Raises DirectoryInUse.

    Its guests run `cloud_provider` where one is given, else ours in this process.
    """
    with tenure(state, "harvester", "emulator"):
        async with _harvester(state, stock, clock, chance, speed, port, cloud_provider) as emulated:
            yield emulated


@asynccontextmanager
async def _harvester(
    state: Path,
    stock: Stock,
    clock: Clock,
    chance: Chance,
    speed: float,
    port: int,
    cloud_provider: GuestProcess | None,
) -> AsyncIterator[Emulated]:
    factory = machine_factory(guest_programs(cloud_provider))
    harvester = Harvester(clock, chance, speed=speed, machine_factory=factory)
    offer_consoles(harvester)
    async with running(harvester.run), serve(harvester, port=port) as served:
        if cloud_provider is not None:
            cloud_provider.proxy_url = served.proxy_url
        await fill_shelves(harvester, stock)
        path = state / HARVESTER_FILE
        write_private(path, served.kubeconfig)
        yield Emulated(
            harvester, harvester.version, parse_kubeconfig(served.kubeconfig), served.kubeconfig, path
        )


# -- manager -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Managed:
    """A manager that answers, with its own API server. `calls` counts what it asked of Harvester and guests."""

    access: Access
    kubeconfig_path: Path
    calls: Counter[str]


def our_crds() -> list[dict[str, Any]]:
    """The definitions of every kind of the management API."""
    return [*kinds.crds(), harvester_config_crd(), *catalogue_kinds.crds()]


def management_api(store: Store, clock: Clock, chance: Chance) -> ApiServer:
    """The management API over `store`, with our kinds installed."""
    api = ApiServer(store, clock, chance, name="windrow")
    for crd in our_crds():
        api.install_crd(crd)
    return api


async def install_kinds(api: Client) -> None:
    """Bring our kinds and Rancher's namespaces to a Kubernetes that holds the management API. May be repeated."""
    for crd in our_crds():
        await api.apply(CRD.ref(crd["metadata"]["name"]), crd, "windrow", force=True)
    for name in RANCHER_NAMESPACES:
        raw = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
        await api.apply(NAMESPACE.ref(name), raw, "windrow", force=True)


def make_manager(
    transport: Transport,
    dial: Dial,
    clock: Clock,
    chance: Chance,
    calls: Counter[str] | None = None,
    proxy: str = "",
    plugins: PluginHost | None = None,
) -> tuple[Manager, Machinery]:
    """The manager on the management API behind `transport`, and its machinery; both want to be run.

    Without `plugins` Harvester's machines are made directly, and there are no others.
    """
    api = Client(transport)
    counted = calls if calls is not None else Counter()

    def reach(access: Access) -> Transport:
        # Guests are dialled with the manager's own certificate, Harvester with the user's credential.
        label = "guest" if access.user == USER else "harvester"
        if proxy and not access.proxy_url:
            access = replace(access, proxy_url=proxy)
        return LimitedTransport(CountingTransport(dial(access), counted, label), clock)

    async def credential(name: str) -> str:
        return await read_credential(api, name)

    def patient(access: Access) -> Transport:
        return RetryingTransport(reach(access), clock, chance)

    def heard(kind: str) -> None:
        manager.hear_kind(kind)

    machinery = (
        whole_machinery(api, credential, patient, clock, chance, plugins, heard)
        if plugins is not None
        else direct_machinery(credential, patient, clock, chance)
    )
    manager = Manager(
        api, machinery.machines, reach, clock, chance, proxy=proxy, judge_kind=machinery.judge_kind
    )
    return manager, machinery


async def read_credential(api: Client, name: str) -> str:
    """The kubeconfig in the credential Secret `namespace:name`. Raises NotFound."""
    namespace, _, short = name.rpartition(":")
    ref = SECRET.ref(short, namespace or "default")
    secret = await api.get(ref)
    encoded = dig(secret, "data", CREDENTIAL_KEY)
    if not encoded:
        raise NotFound(f"Secret {namespace}/{short} has no key {CREDENTIAL_KEY}", status=404)
    return b64decode(encoded).decode()


@asynccontextmanager
async def embedded_manager(
    state: Path,
    clock: Clock,
    chance: Chance,
    dial: Dial,
    *,
    store: Store | None = None,
    port: int = 0,
    proxy: str = "",
    plugins: PluginHost | None = None,
) -> AsyncIterator[Managed]:
    """A manager over `store` (in memory when None), its kubeconfig in `state`. Raises DirectoryInUse."""
    with tenure(state, "manager", "manager"):
        async with _manager(
            state, clock, chance, dial, store or MemoryStore(), port, proxy, plugins
        ) as managed:
            yield managed


@asynccontextmanager
async def _manager(
    state: Path,
    clock: Clock,
    chance: Chance,
    dial: Dial,
    store: Store,
    port: int,
    proxy: str,
    plugins: PluginHost | None,
) -> AsyncIterator[Managed]:
    api = management_api(store, clock, chance)
    authority = kept_authority(state / "manager-ca.json", "windrow", clock)
    api.tls = authority.identity(clock, ("localhost",), ("127.0.0.1",))
    api.root_ca = authority.certificate
    calls: Counter[str] = Counter()
    async with running(api.run), Listener(api, port=port) as listener:
        await install_kinds(Client(api.local()))
        manager, machinery = make_manager(api.local(), dial, clock, chance, calls, proxy, plugins)
        async with machinery.at_work(), running(manager.run):
            access = authority.administrator(clock, f"https://127.0.0.1:{listener.port}")
            path = state / MANAGER_FILE
            write_private(path, render_kubeconfig(access, "windrow"))
            yield Managed(access, path, calls)
