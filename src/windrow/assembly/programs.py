"""What the simulated guests run: our own programs, in this process, reaching the rack as their node would."""

from __future__ import annotations

from collections.abc import Mapping

from windrow.assembly.network import through_rack
from windrow.cloudprovider import program as cloud_provider
from windrow.emulator.guests.hardware import Program, Surroundings
from windrow.values.clock import Clock

CLOUD_PROVIDER = "harvester-cloud-provider"


def guest_programs(clock: Clock) -> Mapping[str, Program]:
    """Programs by the name under which charts start them."""
    return {CLOUD_PROVIDER: _run_cloud_provider}


async def _run_cloud_provider(around: Surroundings) -> int:
    return await cloud_provider.run(
        around.argv,
        around.env,
        _reader(around),
        through_rack(around.rack, around.clock),
        around.clock,
        around.chance,
        around.out,
    )


def _reader(around: Surroundings):  # type: ignore[no-untyped-def]
    def read_file(path: str) -> str:
        file = around.root.files.get(path)
        if file is None:
            raise FileNotFoundError(path)
        return file.content.decode()

    return read_file
