"""`windrow serve`: the cluster manager as a process of its own, over its own store or another Kubernetes."""

from __future__ import annotations

import asyncio
import socket
from dataclasses import replace
from datetime import timedelta

from windrow.app.clock import SystemClock
from windrow.app.cluster_roles import install_cluster_roles
from windrow.app.embedded import LEASE_NAME, embedded_manager, install_crds, make_manager, read_identity
from windrow.app.machines import PluginSettings, require_harvester_driver, sandbox_notice
from windrow.app.metrics.port import new_endpoints, serving_metrics
from windrow.app.network import HttpConnector
from windrow.app.options import Output, ServeOptions
from windrow.app.state.directory import open_state_directory
from windrow.app.systemd.notify import notifying
from windrow.bootstrap.support_matrix.matrix import SupportMatrix, read_matrix, shipped_matrix
from windrow.client.client import Client
from windrow.client.leader_election import LeaderElector, LeaderTransport
from windrow.clusters.metrics.manager import ManagerMetrics
from windrow.core.errors import UserError
from windrow.core.files import read_text
from windrow.core.rng import Rng
from windrow.kubernetes.errors import NotFound
from windrow.kubernetes.kubeconfig import ClientConfig, ReadFile, in_cluster_config, parse_kubeconfig
from windrow.kubernetes.objects import nested
from windrow.kubernetes.resources import DEPLOYMENT, LEASE
from windrow.protocols.dockermachine import HEARTBEAT_TIMEOUT_S

# How long a plugin goes on when this process is stopped, and so sends no heartbeat.
PLUGIN_SURVIVAL = timedelta(seconds=HEARTBEAT_TIMEOUT_S)

# A Rancher manages the same kinds: two controllers of one Cluster would create its machines twice.
_RANCHER = DEPLOYMENT.ref("rancher", "cattle-system")
# The lease by which Rancher's controllers elect the one that works.
_RANCHER_LEASE = LEASE.ref("cattle-controllers", "kube-system")


class RancherPresent(UserError):
    """The Kubernetes that was to hold our management API is a Rancher's."""

    def __init__(self, found: str) -> None:
        super().__init__(
            f"a Rancher manages clusters here: {found}",
            "keep the management API elsewhere (windrow serve --state-dir DIR brings its own), "
            "and bring single clusters over with windrow import",
        )


async def refuse_if_rancher_present(api: Client) -> None:
    """Raise RancherPresent where a Rancher works on the kinds that we would work on."""
    for ref, is_active in ((_RANCHER, _has_replicas), (_RANCHER_LEASE, _is_held)):
        try:
            raw = await api.find(ref)
        except NotFound:  # not even the kind is known there
            continue
        if raw is not None and is_active(raw):
            raise RancherPresent(str(ref))


def _has_replicas(raw: object) -> bool:
    return bool(nested(raw, "spec", "replicas", default=1))


def _is_held(raw: object) -> bool:
    return bool(nested(raw, "spec", "holderIdentity"))


async def run(options: ServeOptions, out: Output) -> int:
    """Serve until cancelled. Raises InvalidMatrix, and BadDriver where `driver` is not a docker-machine driver for Harvester."""
    matrix = read_matrix(options.support_matrix) if options.support_matrix else shipped_matrix()
    if options.driver is not None:
        await require_harvester_driver(options.driver, options.env, SystemClock())
    for line in (*open_state_directory(options.state_dir), sandbox_notice()):
        out.print_line(line)
    if options.kubeconfig is not None or options.in_cluster:
        return await _serve_external(options, matrix, out)
    clock = SystemClock()
    async with (
        HttpConnector(clock, options.env) as sockets,
        embedded_manager(
            options.state_dir,
            clock,
            Rng(),
            sockets.connect,
            persistent=True,
            port=options.port,
            bind=options.bind,
            proxy=options.proxy,
            plugins=_plugin_settings(options),
            matrix=matrix,
            dashboard=options.dashboard,
        ) as managed,
        notifying(options.env, clock) as notifier,
    ):
        api = sockets.connect(managed.access)
        endpoints = new_endpoints(
            managed.metrics.registry, api, clock, lambda: True, managed.metrics.sources.watching
        )
        async with serving_metrics(options.metrics_bind_address, endpoints, clock) as metrics_port:
            out.print_line(f"The cluster manager serves at {managed.access.server}.")
            _print_metrics_port(metrics_port, out)
            out.print_line(f"Kubeconfig: {managed.kubeconfig_path}")
            if managed.dashboard:
                out.print_line(
                    f"Dashboard: {managed.dashboard} (a link that signs you in: windrow dashboard)"
                )
            out.print_line(f"Try: kubectl --kubeconfig {managed.kubeconfig_path} get clusters,machines -A")
            notifier.ready(f"serving at {managed.access.server}")
            await asyncio.Event().wait()
    return 0


def _print_metrics_port(port: int | None, out: Output) -> None:
    if port is not None:
        out.print_line(f"Probes and metrics: port {port}, with TLS.")


def _plugin_settings(options: ServeOptions) -> PluginSettings:
    return PluginSettings(options.state_dir, options.env, options.driver, options.allow_file_urls)


def read_outside_access(options: ServeOptions, read_file: ReadFile = read_text) -> ClientConfig:
    """The connection to the Kubernetes that holds the objects: of the kubeconfig, else of the pod's service account. Raises
    BadKubeconfig."""
    if options.kubeconfig is None:
        return in_cluster_config(options.env, read_file)
    folder = options.kubeconfig.parent
    return parse_kubeconfig(
        read_file(str(options.kubeconfig)), read_file=lambda name: read_file(str(folder / name))
    )


async def _serve_external(options: ServeOptions, matrix: SupportMatrix, out: Output) -> int:
    """Keep the objects in another Kubernetes; of several managers, the one that holds the Lease is active."""
    access = read_outside_access(options)
    clock, rng = SystemClock(), Rng()
    async with HttpConnector(clock, options.env) as sockets:
        transport = sockets.connect(access)
        await refuse_if_rancher_present(Client(transport))
        await install_crds(Client(transport))
        await install_cluster_roles(Client(transport))
        elector = LeaderElector(
            Client(transport), *LEASE_NAME, f"{socket.gethostname()}_{rng.uid()}", clock, rng
        )
        metrics = ManagerMetrics(clock)
        metrics.register_leader(LEASE_NAME[1], lambda: elector.is_leader)
        manager, backend = make_manager(
            LeaderTransport(transport, elector),
            lambda access: LeaderTransport(sockets.connect(access), elector),
            clock,
            rng,
            proxy=options.proxy,
            plugins=replace(_plugin_settings(options), may_run=lambda: elector.may_delegate(PLUGIN_SURVIVAL)),
            identity=await read_identity(Client(transport), "", rng),
            matrix=matrix,
            metrics=metrics,
        )
        endpoints = new_endpoints(
            metrics.registry, transport, clock, lambda: elector.is_leader, metrics.sources.watching
        )
        out.print_line(
            f"The cluster manager keeps its objects at {access.server}; waiting for Lease {'/'.join(LEASE_NAME)}."
        )

        async def lead() -> None:
            out.print_line(f"Acquired Lease {'/'.join(LEASE_NAME)}; this manager is active.")
            notifier.status(f"active, holds Lease {'/'.join(LEASE_NAME)}")
            async with backend.running():
                await manager.run()

        async with (
            notifying(options.env, clock) as notifier,
            serving_metrics(options.metrics_bind_address, endpoints, clock) as metrics_port,
        ):
            _print_metrics_port(metrics_port, out)
            notifier.ready(f"waiting for Lease {'/'.join(LEASE_NAME)}")
            await elector.run(lead)
    return 0
