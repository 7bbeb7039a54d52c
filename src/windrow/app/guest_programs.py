"""What the simulated guests run: our own programs, reaching the rack as their node would.

They run in this process, or each as a process of its own: then it may be any program that takes the same flags, such
as the Go one. The chart's values decide the argv either way, and the cloud config is the node's file.
"""

from __future__ import annotations

from collections.abc import Mapping

from windrow.app.network import in_process_connector
from windrow.client.transport import Transport
from windrow.cloudprovider.cmd import main as cloud_provider
from windrow.cloudprovider.logs import line_logger
from windrow.emulator.guest_os.hardware import GuestProgram, ProgramContext
from windrow.kubernetes.kubeconfig import BadKubeconfig, ClientConfig, ReadFile

CLOUD_PROVIDER = "harvester-cloud-provider"


def guest_programs(cloud_provider: GuestProgram | None = None) -> Mapping[str, GuestProgram]:
    """Programs by the name under which charts start them; ours in this process where no other is given."""
    return {CLOUD_PROVIDER: cloud_provider or _run_cloud_provider}


async def _run_cloud_provider(guest: ProgramContext) -> int:
    read_file = _node_file_reader(guest)
    connect = in_process_connector(guest.network, guest.clock, read_file)

    def connect_from_guest(access: ClientConfig) -> Transport:
        if access.exec:
            # It would run here, on the computer of whoever tries things out.
            raise BadKubeconfig(
                f"the kubeconfig for {access.server} wants the program {access.exec.command!r}, and simulated "
                "guests have no programs of this computer",
                "put a token or a client certificate into it",
            )
        return connect(access)

    return await cloud_provider.run(
        guest.argv,
        guest.env,
        read_file,
        connect_from_guest,
        guest.clock,
        guest.rng,
        line_logger(guest.out),
    )


def _node_file_reader(guest: ProgramContext) -> ReadFile:
    def read_file(path: str) -> str:
        file = guest.root.files.get(path)
        if file is None:
            raise FileNotFoundError(f"no such file on the node: {path}")
        return file.content.decode()

    return read_file
