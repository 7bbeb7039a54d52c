from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from windrow.app import serve
from windrow.app.clock import SystemClock
from windrow.app.embedded import DirectoryInUse, embedded_harvester, lock_state_dir
from windrow.app.options import ServeOptions
from windrow.core.rng import Rng


def test_a_directory_has_one_holder_in_each_role(tmp_path: Path):
    with (
        lock_state_dir(tmp_path, "harvester", "emulator"),
        lock_state_dir(tmp_path, "manager", "manager"),
        pytest.raises(DirectoryInUse) as refused,
        lock_state_dir(tmp_path, "harvester", "emulator"),
    ):
        pass

    assert f"process {os.getpid()}" in refused.value.message
    assert "--state-dir" in refused.value.hint


def test_a_directory_that_was_given_back_can_be_held_again(tmp_path: Path):
    for _ in range(2):
        with lock_state_dir(tmp_path, "harvester", "emulator"):
            pass


async def test_a_second_emulator_in_a_directory_leaves_the_first_one_s_kubeconfig_alone(tmp_path: Path):
    async def emulate(seed: int) -> str:
        async with embedded_harvester(tmp_path, frozenset(), SystemClock(), Rng(seed)):
            kubeconfig = (tmp_path / "harvester.yaml").read_text()
            if seed == 1:
                with pytest.raises(DirectoryInUse):
                    await emulate(2)
                assert (tmp_path / "harvester.yaml").read_text() == kubeconfig
            return kubeconfig

    assert await emulate(1)


async def test_a_second_manager_of_a_directory_names_the_process_that_has_it(tmp_path: Path):
    serving = asyncio.Event()

    class Lines:
        def print_line(self, line: str = "") -> None:
            serving.set()

    first = asyncio.create_task(serve.run(ServeOptions(tmp_path), Lines()))
    try:
        async with asyncio.timeout(30):
            await serving.wait()
        with pytest.raises(DirectoryInUse, match=f"in use by another manager .process {os.getpid()}"):
            await serve.run(ServeOptions(tmp_path), Lines())
    finally:
        first.cancel()
        await asyncio.gather(first, return_exceptions=True)
