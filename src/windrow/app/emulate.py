"""`windrow emulate`: an embedded Harvester as a process of its own."""

from __future__ import annotations

import asyncio

from windrow.app.clock import SystemClock
from windrow.app.embedded import MANAGER_FILE, EmbeddedHarvester, embedded_harvester
from windrow.app.guest_programs import GuestProcess
from windrow.app.options import EmulateOptions, Output
from windrow.app.pki import write_private
from windrow.app.preload import Preload, credential_secrets, read_preload
from windrow.core.rng import Rng
from windrow.core.yaml import dump_all

CREDENTIALS_FILE = "credentials.yaml"


async def run(options: EmulateOptions, out: Output) -> int:
    """Serve until cancelled. Writes `harvester.yaml`, and `credentials.yaml` where manifests name credentials."""
    stock = read_preload(options.preload)
    options.state_dir.mkdir(parents=True, exist_ok=True)
    cloud_provider = None
    if options.cloud_provider is not None:
        cloud_provider = GuestProcess(options.cloud_provider, options.env)
    async with embedded_harvester(
        options.state_dir,
        stock,
        SystemClock(),
        Rng(),
        time_scale=options.time_scale,
        port=options.port,
        cloud_provider=cloud_provider,
    ) as emulated:
        out.print_line(f"An embedded Harvester {emulated.version} answers at {emulated.access.server}.")
        out.print_line(
            "It is emulated: nothing is virtualised, and its objects live in memory until it ends."
        )
        for line in stock.lines():
            out.print_line(f"On its shelves, since the manifests name them: {line}")
        out.print_line(f"Its kubeconfig: {emulated.kubeconfig_path}")
        if options.cloud_provider is not None:
            out.print_line(
                f"As cloud provider, guests run {options.cloud_provider}, each as a process of its own."
            )
        if stock.credentials:
            _write_credentials(options, emulated, stock, out)
        out.print_line(f"Try: kubectl --kubeconfig {emulated.kubeconfig_path} get vms -A")
        await asyncio.Event().wait()
    return 0


def _write_credentials(
    options: EmulateOptions, emulated: EmbeddedHarvester, stock: Preload, out: Output
) -> None:
    """The credential Secrets are the manager's to hold, so they are left as a manifest."""
    path = options.state_dir / CREDENTIALS_FILE
    write_private(path, dump_all(credential_secrets(stock, emulated.kubeconfig)))
    out.print_line(f"The credentials that the manifests name: {path}")
    manager = options.state_dir / MANAGER_FILE
    named = f" --kubeconfig {manager}" if manager.exists() else ""
    out.print_line(f"Give them to the manager: windrow apply{named} {path}")
