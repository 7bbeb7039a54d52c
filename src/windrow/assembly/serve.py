"""`windrow serve`: the cluster manager as a process of its own, over its embedded store or an outside Kubernetes."""

from __future__ import annotations

import asyncio
import socket

from windrow.apiserver.stores.sqlite import SqliteStore
from windrow.assembly.clock import SystemClock
from windrow.assembly.driver_file import insist_on_driver
from windrow.assembly.embedded import embedded_manager, install_kinds, make_manager
from windrow.assembly.machinery import PluginHost
from windrow.assembly.network import Sockets
from windrow.assembly.options import Out, ServeOptions
from windrow.client.client import Client
from windrow.client.lease import Candidate
from windrow.clusters.tenancy import refuse_beside_rancher
from windrow.kube.kubeconfig import parse_kubeconfig
from windrow.values.chance import Chance

STORE_FILE = "manager.db"
LEASE = ("kube-system", "windrow-manager")


async def run(options: ServeOptions, out: Out) -> int:
    """Serve until cancelled. Raises BadDriver where the plugin that is named cannot make machines."""
    if options.driver is not None:
        await insist_on_driver(options.driver, options.env, SystemClock())
    if options.kubeconfig is not None:
        return await _serve_outside(options, out)
    options.state.mkdir(parents=True, exist_ok=True)
    store = SqliteStore(options.state / STORE_FILE)
    clock = SystemClock()
    try:
        async with (
            Sockets(clock, options.env) as sockets,
            embedded_manager(
                options.state,
                clock,
                Chance(),
                sockets.dial,
                store=store,
                port=options.port,
                proxy=options.proxy,
                plugins=_plugin_host(options),
            ) as managed,
        ):
            out.say(f"The cluster manager answers at {managed.access.server}.")
            out.say(f"Its kubeconfig: {managed.kubeconfig_path}")
            out.say(f"Try: kubectl --kubeconfig {managed.kubeconfig_path} get clusters,machines -A")
            await asyncio.Event().wait()
    finally:
        store.close()
    return 0


def _plugin_host(options: ServeOptions) -> PluginHost:
    return PluginHost(options.state, options.env, options.driver, options.driver_files)


async def _serve_outside(options: ServeOptions, out: Out) -> int:
    """Manage the clusters in somebody else's Kubernetes; of several managers, the one with the lease works."""
    assert options.kubeconfig is not None
    folder = options.kubeconfig.parent
    access = parse_kubeconfig(
        options.kubeconfig.read_text(), read_file=lambda name: (folder / name).read_text()
    )
    clock, chance = SystemClock(), Chance()
    async with Sockets(clock, options.env) as sockets:
        transport = sockets.dial(access)
        await refuse_beside_rancher(Client(transport))
        await install_kinds(Client(transport))
        manager, machinery = make_manager(
            transport, sockets.dial, clock, chance, proxy=options.proxy, plugins=_plugin_host(options)
        )
        candidate = Candidate(
            Client(transport), *LEASE, f"{socket.gethostname()}_{chance.uid()}", clock, chance
        )
        out.say(
            f"The cluster manager keeps its objects at {access.server}; waiting for the lease {'/'.join(LEASE)}."
        )

        async def lead() -> None:
            out.say("This manager has the lease and works.")
            async with machinery.at_work():
                await manager.run()

        await candidate.lead(lead)
    return 0
