"""`windrow emulate`: an emulated Harvester as a process of its own."""

from __future__ import annotations

import asyncio

from windrow.app.clock import SystemClock
from windrow.app.embedded import embedded_harvester
from windrow.app.guest_programs import GuestProcess
from windrow.app.options import EmulateOptions, Output
from windrow.app.preload import credential_secrets, describe_preload, read_preload
from windrow.app.state.directory import CREDENTIALS_FILE, MANAGER_FILE, open_state_directory
from windrow.core.files import write_private
from windrow.core.formats.yaml import dump_all
from windrow.core.rng import Rng
from windrow.kubernetes.objects import Raw


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
    ) as emulated:
        out.print_line(f"An emulated Harvester {emulated.version} serves at {emulated.access.server}.")
        out.print_line("Its virtual machines are simulated, and its objects are in memory until it ends.")
        for line in describe_preload(preload):
            out.print_line(f"Created because a manifest refers to it: {line}")
        out.print_line(f"Kubeconfig: {emulated.kubeconfig_path}")
        if options.cloud_provider is not None:
            out.print_line(
                f"Guests run {options.cloud_provider} as their cloud provider, each in a process of its own."
            )
        if secrets := credential_secrets(options.preload, emulated.kubeconfig):
            _write_credentials(options, secrets, out)
        out.print_line(f"Try: kubectl --kubeconfig {emulated.kubeconfig_path} get vms -A")
        await asyncio.Event().wait()
    return 0


def _write_credentials(options: EmulateOptions, secrets: list[Raw], out: Output) -> None:
    """Write the credential Secrets as a manifest: they belong to the management API."""
    path = options.state_dir / CREDENTIALS_FILE
    write_private(path, dump_all(secrets))
    out.print_line(f"Credential Secrets that the manifests refer to: {path}")
    manager = options.state_dir / MANAGER_FILE
    named = f" --kubeconfig {manager}" if manager.exists() else ""
    out.print_line(f"Apply them to the management API: windrow apply{named} -f {path}")
