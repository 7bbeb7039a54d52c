"""The management API and a cluster manager as one async context: serving inside, stopped in order outside.

It writes its kubeconfig into the state directory before it serves, so that a script can wait for the file. The emulated
Harvester is another one, `app.emulate`: a manager loads nothing of the emulator.
"""

from __future__ import annotations

import socket
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from ipaddress import ip_address
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from windrow.apiserver.http import Listener
from windrow.apiserver.server import ApiServer
from windrow.apiserver.storage.memory import MemoryStore
from windrow.apiserver.storage.port import Store
from windrow.apiserver.storage.sqlite import SqliteStore
from windrow.apiserver.types.builtins import BUILTINS
from windrow.apiserver.types.registry import ResourceType
from windrow.app.access.dashboard import dashboard_beside
from windrow.app.access.service import DashboardOptions
from windrow.app.cluster_roles import install_cluster_roles
from windrow.app.loop import running
from windrow.app.machines import MachineBackend, PluginSettings, direct_backend, full_backend
from windrow.app.manifest_checks.changes import OPTION_RULES
from windrow.app.metrics.api_server import ApiServerMetrics
from windrow.app.metrics.page import serve_metrics
from windrow.app.network import Connect, CountingTransport
from windrow.app.state.backup import database_bytes, open_store, serve_backups
from windrow.app.state.directory import CA_FILE, MANAGER_FILE, lock_state_dir
from windrow.app.state.identity import load_or_create_store_uid
from windrow.app.state.pki import RenewingIdentity, load_or_create_ca, serving_names
from windrow.app.support.debug_pages import serve_debug
from windrow.app.support.log_buffer import recording_logs
from windrow.app.support.log_pages import install_log_role, serve_logs
from windrow.bootstrap.pki import USER
from windrow.bootstrap.support_matrix.matrix import SupportMatrix
from windrow.client.client import Client
from windrow.client.middleware.metrics import InstrumentedTransport
from windrow.client.middleware.rate_limit import RateLimitedTransport
from windrow.client.middleware.retry import RetryingTransport
from windrow.client.transport import Transport
from windrow.clusters.api import kinds
from windrow.clusters.api.names import CREDENTIAL_KEY
from windrow.clusters.api.references import parse_secret_reference
from windrow.clusters.controller import ClusterController
from windrow.clusters.metrics.manager import ManagerMetrics
from windrow.clusters.sources.manager_leases import LeasedTransport, ManagerIdentity
from windrow.core.clock import Clock
from windrow.core.errors import UserError
from windrow.core.files import write_private
from windrow.core.rng import Rng
from windrow.core.text import decode_base64
from windrow.drivers import api as node_drivers
from windrow.kubernetes.errors import NotFound
from windrow.kubernetes.kubeconfig import ClientConfig, parse_kubeconfig, render_kubeconfig
from windrow.kubernetes.objects import nested, uid_of
from windrow.kubernetes.requests import Request
from windrow.kubernetes.resources import CRD, NAMESPACE
from windrow.nodedriver.schema import harvester_config_crd

LOOPBACK = "127.0.0.1"
LEASE_NAME = ("kube-system", "windrow-manager")
# Rancher's namespaces for clusters and cloud credentials, which its manifests name.
RANCHER_NAMESPACES = ("fleet-default", "cattle-global-data")


@dataclass(frozen=True, slots=True)
class EmbeddedManager:
    """A cluster manager that serves its management API. `request_counts` counts requests to Harvester and guests."""

    access: ClientConfig
    kubeconfig_path: Path
    request_counts: Counter[str]
    metrics: ManagerMetrics
    dashboard: str = ""  # the address of its first page; "" for none


def management_crds() -> list[dict[str, Any]]:
    """The CustomResourceDefinitions of the management API."""
    return [*kinds.crds(), harvester_config_crd(), *node_drivers.crds()]


# Beside its own kinds the management API has what clients, controllers and RBAC need; no nodes and no workloads, so that a
# kubeconfig of the wrong cluster is noticed: `no matches for kind "Deployment"`.
_MANAGEMENT_GROUPS = frozenset(
    {
        "apiextensions.k8s.io",
        "authentication.k8s.io",
        "authorization.k8s.io",
        "coordination.k8s.io",
        "events.k8s.io",
        "rbac.authorization.k8s.io",
    }
)
_MANAGEMENT_CORE = frozenset({"namespaces", "secrets", "configmaps", "serviceaccounts", "events"})


def management_types() -> tuple[ResourceType, ...]:
    """The built-in types of the management API."""
    return tuple(
        type
        for type in BUILTINS
        if type.kind.group in _MANAGEMENT_GROUPS
        or (not type.kind.group and type.kind.plural in _MANAGEMENT_CORE)
    )


def management_api(store: Store, clock: Clock, rng: Rng) -> ApiServer:
    """The management API over `store`, with its CustomResourceDefinitions."""
    api = ApiServer(store, clock, rng, name="windrow", types=management_types(), authorize="rbac")
    for crd in management_crds():
        api.install_crd(crd)
    return api


async def install_crds(api: Client) -> None:
    """Apply the CustomResourceDefinitions, and Rancher's namespaces, to a Kubernetes API. May be repeated."""
    for crd in management_crds():
        await api.apply(CRD.ref(crd["metadata"]["name"]), crd, "windrow", force=True)
    for name in RANCHER_NAMESPACES:
        raw = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
        await api.apply(NAMESPACE.ref(name), raw, "windrow", force=True)


def make_manager(
    transport: Transport,
    connect: Connect,
    clock: Clock,
    rng: Rng,
    request_counts: Counter[str] | None = None,
    proxy: str = "",
    plugins: PluginSettings | None = None,
    identity: ManagerIdentity | None = None,
    matrix: SupportMatrix | None = None,
    metrics: ManagerMetrics | None = None,
) -> tuple[ClusterController, MachineBackend]:
    """The cluster controller on the management API behind `transport`, and its machine backend; the caller runs both.

    With `identity` it acts on a Harvester only while it holds its Lease there.

    Without `plugins`, machines on Harvester are created directly, and no other driver exists.
    """
    metrics = metrics or ManagerMetrics(clock)
    api = Client(InstrumentedTransport(transport, clock, metrics.on_request("management")))
    counts = request_counts if request_counts is not None else Counter()

    def connect_counted(access: ClientConfig) -> Transport:
        # A connection with the manager's own certificate leads to a guest; Harvester has the user's credential.
        label = "guest" if access.user == USER else "harvester"
        named = access

        def require_lease(request: Request) -> None:
            manager.require_lease(request, named)

        if proxy and not access.proxy_url:
            access = replace(access, proxy_url=proxy)
        leased = LeasedTransport(
            InstrumentedTransport(connect(access), clock, metrics.on_request(label)), require_lease
        )
        return RateLimitedTransport(CountingTransport(leased, counts, label), clock)

    read_kubeconfig = partial(read_credential, api)

    def connect_retrying(access: ClientConfig) -> Transport:
        return RetryingTransport(connect_counted(access), clock, rng)

    def on_kind_changed(kind: str) -> None:
        manager.on_kind(kind)

    def may_write(credential: str, namespace: str) -> bool:
        return manager.may_write(credential, namespace)

    backend = (
        full_backend(api, read_kubeconfig, connect_retrying, clock, rng, plugins, on_kind_changed, may_write)
        if plugins is not None
        else direct_backend(read_kubeconfig, connect_retrying, clock, rng)
    )
    manager = ClusterController(
        api,
        backend.machines,
        connect_counted,
        clock,
        rng,
        proxy=proxy,
        resolve_driver=backend.driver_for_kind,
        identity=identity,
        matrix=matrix,
        option_rules=OPTION_RULES,
        metrics=metrics,
    )
    return manager, backend


async def read_identity(api: Client, store_uid: str, rng: Rng) -> ManagerIdentity:
    """This process, as a manager with its objects behind `api`. `store_uid` is "" where no copy of the store can be told
    from it; then copies are told apart by which has started last."""
    state = uid_of(await api.get(NAMESPACE.ref("kube-system")))
    return ManagerIdentity(state, store_uid or state, rng.uid(), socket.gethostname())


async def read_credential(api: Client, name: str) -> str:
    """The kubeconfig in the credential Secret `namespace:name`. Raises NotFound."""
    ref = parse_secret_reference(name)
    if ref is None:
        raise NotFound(f"{name!r} names no Secret; write namespace:name", status=404)
    secret = await api.get(ref)
    encoded = nested(secret, "data", CREDENTIAL_KEY)
    if not encoded:
        raise NotFound(f"{ref} has no key {CREDENTIAL_KEY}", status=404)
    return decode_base64(encoded)


@asynccontextmanager
async def embedded_manager(
    state_dir: Path,
    clock: Clock,
    rng: Rng,
    connect: Connect,
    *,
    persistent: bool = False,
    port: int = 0,
    bind: str = LOOPBACK,
    proxy: str = "",
    plugins: PluginSettings | None = None,
    matrix: SupportMatrix | None = None,
    dashboard: DashboardOptions | None = None,
) -> AsyncIterator[EmbeddedManager]:
    """A cluster manager with its kubeconfig in `state_dir`. Raises DirectoryInUse.

    Its objects are in memory, or where `persistent` in a database in `state_dir`. It listens on the address `bind`. Port 0
    is a free one; where `persistent`, that of the kubeconfig which the last manager wrote there, so that copies of it stay
    valid.
    """
    with (
        lock_state_dir(state_dir, "manager", "manager"),
        closing(open_store(state_dir)) if persistent else nullcontext(MemoryStore()) as store,
        recording_logs() as logs,
    ):
        api = management_api(store, clock, rng)
        ca = load_or_create_ca(state_dir / CA_FILE, "windrow", clock)
        api.root_ca = ca.certificate
        if isinstance(store, SqliteStore):
            serve_backups(api, store, state_dir)
        request_counts: Counter[str] = Counter()
        metrics = ManagerMetrics(clock)
        metrics.register_leader(LEASE_NAME[1], lambda: True)
        ApiServerMetrics(metrics.registry, api, partial(database_bytes, state_dir) if persistent else int)
        serve_metrics(api, metrics.registry)
        serve_debug(
            api, metrics, logs, {"persistent": persistent, "bind": bind, "port": port, "proxy": bool(proxy)}
        )
        serve_logs(api, logs)
        path = state_dir / MANAGER_FILE
        port = port or (find_last_port(path) if persistent else 0)

        def write_kubeconfig() -> ClientConfig:
            access = ca.admin_config(clock, _url(bind, listener.port))
            write_private(path, render_kubeconfig(access, "windrow"))
            return access

        served = RenewingIdentity(ca, state_dir / CA_FILE, clock, serving_names(bind), write_kubeconfig)
        async with running(api.run), Listener(api, bind, port, identity=served.current) as listener:
            await install_crds(Client(api.local()))
            await install_cluster_roles(Client(api.local()))
            await install_log_role(Client(api.local()))
            store_uid = load_or_create_store_uid(state_dir, rng) if persistent else ""
            identity = await read_identity(Client(api.local()), store_uid, rng)
            manager, backend = make_manager(
                api.local(), connect, clock, rng, request_counts, proxy, plugins, identity, matrix, metrics
            )
            async with (
                backend.running(),
                running(manager.run),
                dashboard_beside(api, dashboard, ca, state_dir, clock) as address,
            ):
                yield EmbeddedManager(write_kubeconfig(), path, request_counts, metrics, address)


def find_last_port(path: Path) -> int:
    """The port of the server in the kubeconfig at `path`; 0 where there is none."""
    try:
        return urlsplit(parse_kubeconfig(path.read_text()).server).port or 0
    except (OSError, ValueError, UserError):
        return 0


def _url(bind: str, port: int) -> str:
    """Where clients on this computer reach a server that listens on `bind`."""
    address = ip_address(bind)
    if address.is_unspecified:
        return f"https://{LOOPBACK}:{port}"
    return f"https://[{bind}]:{port}" if address.version == 6 else f"https://{bind}:{port}"
