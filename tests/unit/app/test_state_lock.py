from __future__ import annotations

import os
from pathlib import Path

import pytest

from windrow.app.clock import SystemClock
from windrow.app.embedded import embedded_harvester
from windrow.app.preload import Preload
from windrow.app.state_lock import DirectoryInUse, lock_state_dir
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
        async with embedded_harvester(tmp_path, Preload(), SystemClock(), Rng(seed)):
            kubeconfig = (tmp_path / "harvester.yaml").read_text()
            if seed == 1:
                with pytest.raises(DirectoryInUse):
                    await emulate(2)
                assert (tmp_path / "harvester.yaml").read_text() == kubeconfig
            return kubeconfig

    assert await emulate(1)
