"""The objects that the Go driver and ours make of the same flags, and every field in which they differ."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
from tests.conformance.node_driver_inputs import INPUTS
from tests.conformance.node_driver_objects import DOCUMENT, HEADING, CreatedObjects, compare
from tests.conformance.node_driver_rig import (
    GO_DRIVER,
    RANCHER_MACHINE,
    MachineHost,
    a_site,
    our_program,
    real_program,
)
from tests.conformance.node_driver_versions import VERSIONS, version_of
from tests.conformance.object_tables import assert_as_documented, read_documented_rows

from windrow.emulator import kinds

pytestmark = pytest.mark.timeout(300)

AT_ONCE = 3


async def what_it_makes(driver: Path, folder: Path, inputs: Sequence[str]) -> Mapping[str, CreatedObjects]:
    """The objects of these inputs, ordered through rancher-machine."""
    made: dict[str, CreatedObjects] = {}
    room = asyncio.Semaphore(AT_ONCE)
    async with a_site() as site:
        desk = MachineHost(folder, real_program(RANCHER_MACHINE), driver, site)

        async def order(place: int, wanted: str) -> None:
            name = f"c1-pool1-abcde-in{place:03}"
            async with room, desk.ordered(name, *INPUTS[wanted]):
                vm = site.posted(kinds.VM.plural, name)
            assert vm is not None, f"no VM for {wanted!r}: {desk.log(name)}"
            made[wanted] = CreatedObjects(name, vm, await site.secret_of(name))

        await asyncio.gather(*(order(place, wanted) for place, wanted in enumerate(inputs)))
    return made


async def test_the_objects_differ_in_what_is_documented_and_nothing_else(tmp_path: Path) -> None:
    version = version_of(real_program(GO_DRIVER))
    inputs = [name for name, flags in INPUTS.items() if version.has_flags(flags)]
    go = await what_it_makes(real_program(GO_DRIVER), tmp_path / "go", inputs)
    ours = await what_it_makes(our_program(), tmp_path / "ours", inputs)

    assert_as_documented(compare(go, ours), DOCUMENT, HEADING, version.name)


@pytest.mark.parametrize("version", VERSIONS)
def test_every_difference_has_a_reason(version: str) -> None:
    told = read_documented_rows(DOCUMENT, HEADING, version)
    assert told
    assert all(told.values())
