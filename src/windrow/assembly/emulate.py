"""`windrow emulate`: an embedded Harvester as a process of its own."""

from __future__ import annotations

import asyncio

from windrow.assembly.authority import write_private
from windrow.assembly.clock import SystemClock
from windrow.assembly.embedded import MANAGER_FILE, Emulated, embedded_harvester
from windrow.assembly.guest_process import GuestProcess
from windrow.assembly.options import EmulateOptions, Out
from windrow.assembly.stock import Stock, credential_secrets, read_stock
from windrow.formats.yaml import dump_all
from windrow.values.chance import Chance

CREDENTIALS_FILE = "credentials.yaml"


async def run(options: EmulateOptions, out: Out) -> int:
    """Serve until cancelled. Writes `harvester.yaml`, and `credentials.yaml` where manifests name credentials."""
    stock = read_stock(options.stock)
    options.state.mkdir(parents=True, exist_ok=True)
    cloud_provider = None
    if options.cloud_provider is not None:
        cloud_provider = GuestProcess(options.cloud_provider, options.env)
    async with embedded_harvester(
        options.state,
        stock,
        SystemClock(),
        Chance(),
        speed=options.speed,
        port=options.port,
        cloud_provider=cloud_provider,
    ) as emulated:
        out.say(f"An embedded Harvester {emulated.version} answers at {emulated.access.server}.")
        out.say("It is emulated: nothing is virtualised, and its objects live in memory until it ends.")
        for line in stock.lines():
            out.say(f"On its shelves, since the manifests name them: {line}")
        out.say(f"Its kubeconfig: {emulated.kubeconfig_path}")
        if options.cloud_provider is not None:
            out.say(f"As cloud provider, guests run {options.cloud_provider}, each as a process of its own.")
        if stock.credentials:
            _write_credentials(options, emulated, stock, out)
        out.say(f"Try: kubectl --kubeconfig {emulated.kubeconfig_path} get vms -A")
        await asyncio.Event().wait()
    return 0


def _write_credentials(options: EmulateOptions, emulated: Emulated, stock: Stock, out: Out) -> None:
    """The credential Secrets are the manager's to hold, so they are left as a manifest."""
    path = options.state / CREDENTIALS_FILE
    write_private(path, dump_all(credential_secrets(stock, emulated.kubeconfig)))
    out.say(f"The credentials that the manifests name: {path}")
    manager = options.state / MANAGER_FILE
    named = f" --kubeconfig {manager}" if manager.exists() else ""
    out.say(f"Give them to the manager: windrow apply{named} {path}")
