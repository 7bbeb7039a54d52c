"""`--driver` names a program: whether that is a driver for Harvester is found out before anything is made."""

import sys
from pathlib import Path

import pytest
from tests.e2e.processes import ROOT, Shell

FOREIGN = f"""#!{sys.executable}
import os, sys
os.environ["NOOP_WORLD"] = "world.json"
sys.path.insert(0, {str(ROOT)!r})
from tests.unit.machines.noop_driver import main
main()
"""


@pytest.mark.parametrize(("verb", "program"), [("demo", "/bin/true"), ("serve", "/bin/cat")])
def test_a_program_that_is_no_driver_is_refused_at_once(tmp_path: Path, verb: str, program: str) -> None:
    said = Shell(tmp_path).complaint(verb, "--driver", program)

    assert f"{program} is not a docker-machine driver" in said
    assert "make driver" in said
    assert sorted(path.name for path in tmp_path.iterdir()) == ["home"]


def test_a_driver_for_something_else_is_refused_by_its_flags(tmp_path: Path) -> None:
    program = tmp_path / "docker-machine-driver-noop"
    program.write_text(FOREIGN)
    program.chmod(0o755)

    said = Shell(tmp_path).complaint("demo", "--driver", str(program))

    assert "but not for Harvester" in said
