"""What `make` sets up before it starts a script."""

from __future__ import annotations

import ast
import re
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
RULE = re.compile(r"^([a-z-]+): \$\(RUN\).*\n\t@\$\(BIN\)/python (scripts/\S+)", re.MULTILINE)


def imported(script: Path) -> set[str]:
    """The packages that the script imports."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(script.read_text())):
        match node:
            case ast.Import():
                found |= {one.name.partition(".")[0] for one in node.names}
            case ast.ImportFrom(module=str(module), level=0):
                found.add(module.partition(".")[0])
    return found


def pinned(lock: str) -> set[str]:
    return set(re.findall(r"^([a-z0-9-]+)==", (ROOT / "requirements" / lock).read_text(), re.MULTILINE))


@pytest.mark.parametrize(("target", "script"), RULE.findall((ROOT / "Makefile").read_text()))
def test_a_target_that_sets_up_what_windrow_runs_on_needs_no_package_of_the_tests(
    target: str, script: str
) -> None:
    of_tests = pinned("dev.txt") - pinned("run.txt")
    distributions = packages_distributions()

    needed = {name.lower() for one in imported(ROOT / script) for name in distributions.get(one, ())}

    assert not needed & of_tests, f"make {target} needs {needed & of_tests}: let it depend on $(DEV)"
