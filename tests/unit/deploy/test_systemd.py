"""deploy/systemd: what systemd itself says of the unit, and that the guide has it as it is."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
FOLDER = ROOT / "deploy" / "systemd"
UNIT = FOLDER / "windrow.service"
GUIDE = ROOT / "docs" / "how-to" / "install.md"
FILES = sorted(path.name for path in FOLDER.iterdir())
# Of 0 to 10; systemd calls up to 2 OK. What remains is the network and the user's own files in its directory.
MOST_EXPOSURE = 1.5

needs_systemd = pytest.mark.skipif(
    shutil.which("systemd-analyze") is None, reason="there is no systemd-analyze here"
)


def settings(text: str) -> dict[str, str]:
    return dict(line.split("=", 1) for line in text.splitlines() if "=" in line and not line.startswith("#"))


@pytest.mark.parametrize("name", FILES)
def test_the_guide_has_each_file_as_it_is_for_a_wheel_has_none(name: str):
    assert f"```ini\n{(FOLDER / name).read_text()}```\n" in GUIDE.read_text()


@pytest.mark.parametrize("name", ["windrow.service", "outside-kubernetes.conf"])
def test_it_starts_a_command_that_windrow_takes(name: str):
    """With the state directory that systemd makes for it."""
    from windrow.cli.commands.servers import serve
    from windrow.cli.context import process_context
    from windrow.cli.main import COMMANDS, _parser_for

    program, command, *arguments = shlex.split(settings((FOLDER / name).read_text())["ExecStart"])
    parser = _parser_for(COMMANDS["serve"], serve, process_context())

    given = parser.parse_args(arguments)
    assert (program, command) == ("/opt/windrow/bin/windrow", "serve")
    assert str(given.state_dir) == "/var/lib/windrow"
    assert settings(UNIT.read_text())["StateDirectory"] == "windrow"


def test_its_user_is_the_one_that_sysusers_makes():
    [line] = [line for line in (FOLDER / "windrow.sysusers").read_text().splitlines() if line[0] != "#"]

    kind, name, uid, _, home = shlex.split(line)
    assert (kind, uid, home) == ("u", "-", "/var/lib/windrow")
    assert settings(UNIT.read_text())["User"] == settings(UNIT.read_text())["Group"] == name


def unit_here(tmp_path: Path) -> Path:
    """The unit with a program that exists here."""
    place = tmp_path / "windrow.service"
    place.write_text(UNIT.read_text().replace("/opt/windrow/bin/windrow", "/bin/true"))
    return place


@needs_systemd
def test_systemd_knows_every_setting(tmp_path: Path):
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", "--recursive-errors=no", str(unit_here(tmp_path))],
        capture_output=True,
        text=True,
    )

    said = [line for line in done.stderr.splitlines() if "windrow" in line]
    # Who runs the tests has made no such user.
    assert [line for line in said if "Failed to resolve user" not in line] == []


@needs_systemd
def test_little_of_the_computer_is_exposed_to_it(tmp_path: Path):
    done = subprocess.run(
        ["systemd-analyze", "security", "--offline=true", "--no-pager", str(unit_here(tmp_path))],
        capture_output=True,
        text=True,
    )

    [level] = re.findall(r"Overall exposure level for \S+: ([\d.]+)", done.stdout)
    assert float(level) <= MOST_EXPOSURE, done.stdout
