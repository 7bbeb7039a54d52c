"""What a JSONPath template prints is what the real kubectl prints."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest
from tests.unit.core.test_jsonpath import OBJECT, PRINTED, REFUSED

from windrow.core.formats.jsonpath import parse_jsonpath, render_jsonpath

pytestmark = pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not installed")


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("jsonpath") / "object.json"
    path.write_text(json.dumps(OBJECT))
    return path


def ask_kubectl(path: Path, template: str) -> tuple[bool, str]:
    """Whether kubectl takes the template, and what it prints; `--local` needs no server."""
    words = [
        "kubectl",
        "annotate",
        "--local",
        "--overwrite",
        "-f",
        str(path),
        "n=1",
        "-o",
        f"jsonpath={template}",
    ]
    done = subprocess.run(
        words,
        capture_output=True,
        text=True,
        env={"HOME": str(path.parent), "PATH": "/usr/bin:/bin:/usr/local/bin"},
    )
    return done.returncode == 0, done.stdout


@pytest.mark.parametrize(("template", "printed"), PRINTED.items())
def test_a_template_prints_what_kubectl_prints(path: Path, template: str, printed: str) -> None:
    assert ask_kubectl(path, template) == (True, printed)


def test_all_that_is_below_is_found_though_go_has_no_order_of_keys(path: Path) -> None:
    _, printed = ask_kubectl(path, "{..name}")

    found = render_jsonpath(parse_jsonpath("{..name}"), OBJECT)
    assert sorted(found.split()) == sorted(printed.split())


@pytest.mark.parametrize("template", REFUSED)
def test_what_kubectl_refuses_is_refused(path: Path, template: str) -> None:
    is_taken, _ = ask_kubectl(path, template)

    assert not is_taken
