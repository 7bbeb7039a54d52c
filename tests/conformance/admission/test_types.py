"""The emulator's table of Harvester's and KubeVirt's types is what the code of the newest release says of itself."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable

import pytest
from tests.conformance.admission.suite import RELEASES

from windrow.emulator.kit.go_types import table


@pytest.mark.go
def test_the_table_of_go_types_is_that_of_the_release(reference_program: Callable[[str], str]) -> None:
    shown = subprocess.run(
        [reference_program(f"admission-{RELEASES[0]}"), "--types"], capture_output=True, check=True
    )
    assert json.loads(shown.stdout) == table()
