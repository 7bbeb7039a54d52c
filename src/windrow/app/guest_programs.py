"""Programs of the emulator's guests, which connect as their Node would.

They run in this process, or each as a process of its own: any program with the same flags, such as the Go one. The
argv is that of the chart either way, and the cloud config is the file on the Node. A process connects through the
emulator's proxy, which its kubeconfigs name; its cloud config is a copy that follows the Node's file; SIGTERM ends it
when its Node is gone.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from windrow.app.network import in_process_connector
from windrow.client.transport import Transport
from windrow.cloudprovider.cmd import main as cloud_provider
from windrow.cloudprovider.cmd.arguments import parse_arguments
from windrow.core.clock import sleep
from windrow.core.files import write_private
from windrow.core.formats.yaml import NotYaml, dump, load
from windrow.core.logs import line_logger
from windrow.emulator.guest_os.hardware import GuestProgram, ProgramContext
from windrow.kubernetes.kubeconfig import BadKubeconfig, ClientConfig, ReadFile

CLOUD_PROVIDER, CSI_DRIVER = "harvester-cloud-provider", "harvester-csi-driver"


def guest_programs(cloud_provider: GuestProgram | None = None) -> Mapping[str, GuestProgram]:
    """Programs by the name that charts start; `cloud_provider` instead of Windrow's where it is given.

    The CSI driver is among them where the libraries of the extra `csi` are installed.
    """
    programs = {CLOUD_PROVIDER: cloud_provider or _run_cloud_provider}
    return {**programs, CSI_DRIVER: _run_csi_driver} if has_csi_driver() else programs


def has_csi_driver() -> bool:
    """Whether guests can run the CSI driver: the libraries of the extra `csi` are installed."""
    return find_spec("grpc") is not None


async def _run_cloud_provider(guest: ProgramContext) -> int:
    log = line_logger(CLOUD_PROVIDER, guest.out)
    options = parse_arguments(guest.argv, log.error, log.info)
    if isinstance(options, int):
        return options
    read_file, connect = _node_file_reader(guest), _guest_connector(guest)
    return await cloud_provider.run(options, guest.env, read_file, connect, guest.clock, guest.rng, log)


async def _run_csi_driver(guest: ProgramContext) -> int:
    # Loads gRPC, which an emulator without such guests does without.
    from windrow.app.csi.guest_driver import run_driver

    log = line_logger(CSI_DRIVER, guest.out)
    return await run_driver(guest, _guest_connector(guest), _node_file_reader(guest), log)


def _guest_connector(guest: ProgramContext) -> Callable[[ClientConfig], Transport]:
    """Connects as the guest does, within this process."""
    connect = in_process_connector(guest.network, guest.clock, _node_file_reader(guest))

    def connect_from_guest(access: ClientConfig) -> Transport:
        if access.exec:
            # An exec plugin would run on the user's computer.
            raise BadKubeconfig(
                f"the kubeconfig for {access.server} wants the program {access.exec.command!r}, and simulated "
                "guests have no programs of this computer",
                "put a token or a client certificate into it",
            )
        return connect(access)

    return connect_from_guest


def _node_file_reader(guest: ProgramContext) -> ReadFile:
    def read_file(path: str) -> str:
        file = guest.root.files.get(path)
        if file is None:
            raise FileNotFoundError(f"no such file on the node: {path}")
        return file.content.decode()

    return read_file


CLOUD_CONFIG_FLAG = "--cloud-config="
POLL_INTERVAL = timedelta(seconds=1)
# Kubernetes' grace period of a pod.
GRACE_S = 30.0
REAP_S = 5.0


@dataclass(slots=True)
class GuestProcess:
    """A Program that runs as a process of this computer. `proxy_url` is set when the emulator serves."""

    program: Path
    env: Mapping[str, str]
    proxy_url: str = ""

    async def __call__(self, guest: ProgramContext) -> int:
        with tempfile.TemporaryDirectory() as scratch:
            folder = Path(scratch)
            kubeconfig, cloud_config = folder / "guest", folder / "cloud-config"
            write_private(kubeconfig, self._proxied(guest.guest_kubeconfig))
            source = _cloud_config_path(guest)
            arguments = [word for word in guest.argv[1:] if not word.startswith(CLOUD_CONFIG_FLAG)]
            arguments += [
                f"{CLOUD_CONFIG_FLAG}{cloud_config}",
                f"--kubeconfig={kubeconfig}",
                "--secure-port=0",
            ]
            self._copy(guest, source, cloud_config, "")
            process = await asyncio.create_subprocess_exec(
                self.program,
                *arguments,
                env={**self.env, **guest.env, "KUBECONFIG": str(kubeconfig)},
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.STDOUT,
            )
            try:
                return await self._run(guest, process, source, cloud_config)
            finally:
                await _terminate(guest, process)

    async def _run(
        self, guest: ProgramContext, process: asyncio.subprocess.Process, source: str, cloud_config: Path
    ) -> int:
        async with asyncio.TaskGroup() as group:
            following = group.create_task(self._sync_cloud_config(guest, source, cloud_config))
            assert process.stdout is not None
            async for line in process.stdout:
                guest.out(line.decode("utf-8", "replace").rstrip())
            code = await process.wait()
            following.cancel()
        return code

    async def _sync_cloud_config(self, guest: ProgramContext, source: str, cloud_config: Path) -> None:
        text = _read_node_file(guest, source)
        while True:
            await sleep(guest.clock, POLL_INTERVAL)
            text = self._copy(guest, source, cloud_config, text)

    def _copy(self, guest: ProgramContext, source: str, cloud_config: Path, previous: str) -> str:
        """Copy the Node's file to the process's if it differs from `previous`; returns the present text."""
        text = _read_node_file(guest, source)
        if text and text != previous:
            write_private(cloud_config, self._proxied(text))
        return text

    def _proxied(self, kubeconfig: str) -> str:
        """The kubeconfig with the proxy in each cluster that names none; another text unchanged."""
        try:
            raw = load(kubeconfig)
        except NotYaml:
            return kubeconfig
        clusters: list[Any] = raw.get("clusters") or [] if isinstance(raw, dict) else []
        for entry in clusters:
            cluster = entry.get("cluster") if isinstance(entry, dict) else None
            if isinstance(cluster, dict):
                cluster.setdefault("proxy-url", self.proxy_url)
        return dump(raw) if clusters else kubeconfig


def _cloud_config_path(guest: ProgramContext) -> str:
    paths = [word for word in guest.argv if word.startswith(CLOUD_CONFIG_FLAG)]
    return paths[-1].removeprefix(CLOUD_CONFIG_FLAG) if paths else ""


def _read_node_file(guest: ProgramContext, path: str) -> str:
    file = guest.root.files.get(path)
    return file.content.decode("utf-8", "replace") if file is not None else ""


async def _terminate(guest: ProgramContext, process: asyncio.subprocess.Process) -> None:
    """End the process as the kubelet does: SIGTERM, and SIGKILL after the grace period."""
    if process.returncode is not None:
        return
    with suppress(ProcessLookupError):
        process.terminate()
    try:
        async with asyncio.timeout(GRACE_S):
            rest, _ = await process.communicate()
        for line in rest.decode("utf-8", "replace").splitlines():
            guest.out(line)
    except TimeoutError:
        guest.out(f"does not end within {GRACE_S:.0f} s of SIGTERM; killed")
    finally:
        if process.returncode is None:
            with suppress(ProcessLookupError):
                process.kill()
            with suppress(TimeoutError):
                async with asyncio.timeout(REAP_S):
                    await process.wait()
