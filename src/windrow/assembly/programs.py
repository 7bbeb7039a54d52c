"""What the simulated guests run: our own programs, in this process, reaching the rack as their node would."""

from __future__ import annotations

from collections.abc import Mapping

from windrow.assembly.network import through_rack
from windrow.cloudprovider import program as cloud_provider
from windrow.emulator.guests.hardware import Program, Surroundings
from windrow.kube.kubeconfig import ReadFile

CLOUD_PROVIDER = "harvester-cloud-provider"


def guest_programs() -> Mapping[str, Program]:
    """Programs by the name under which charts start them."""
    return {CLOUD_PROVIDER: _run_cloud_provider}


async def _run_cloud_provider(around: Surroundings) -> int:
    read_file = _reader(around)
    return await cloud_provider.run(
        around.argv,
        around.env,
        read_file,
        through_rack(around.rack, around.clock, read_file),
        around.clock,
        around.chance,
        around.out,
    )


def _reader(around: Surroundings) -> ReadFile:
    def read_file(path: str) -> str:
        file = around.root.files.get(path)
        if file is None:
            raise FileNotFoundError(f"no such file on the node: {path}")
        return file.content.decode()

    return read_file
