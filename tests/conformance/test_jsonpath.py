"""What a JSONPath template prints is what the real kubectl prints."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from windrow.core.formats.jsonpath import NotJsonPath, parse_jsonpath, render_jsonpath

pytestmark = pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not installed")

OBJECT = {
    "apiVersion": "x.example/v1",
    "kind": "Thing",
    "metadata": {"name": "x", "labels": {"a.b/c": "d", "k": "v"}, "annotations": {"n": "1", "t": "true"}},
    "data": {"one": "1", "two": "two words", "nl": "a\nb"},
    "rows": [
        {"name": "a", "n": 1, "ready": True, "deep": {"name": "aa"}, "list": [1, 2, 3], "nothing": None},
        {"name": "b", "n": 2, "f": 2.5, "ready": False, "deep": {"name": "bb"}, "list": []},
        {"name": "c", "n": 30, "ready": True, "list": [4]},
    ],
}

# Not here: `[*]` of several lists, where kubectl leaves out all that follow the first empty one, and a number that is compared
# with one of another type, which kubectl refuses.
TEMPLATES = [
    "{.metadata.name}",
    "{$.metadata.name}",
    "{@.metadata.name}",
    "{.rows[1].f}",
    "{.rows[?(@.f>2.25)].name}",
    "{['metadata']['name']}",
    "text without braces",
    "name: {.metadata.name}!",
    "{.metadata.labels.a\\.b/c}",
    "{.metadata.labels['a\\.b/c']}",
    "{.data}",
    "{.data.nl}",
    "{.rows[*].name}",
    "{.rows[0].name}",
    "{.rows[-1].name}",
    "{.rows[1:].name}",
    "{.rows[:-1].name}",
    "{.rows[0:3:2].name}",
    "{.rows[0,2].name}",
    "{.rows[*].n}",
    "{.rows[*].ready}",
    "{.rows[*].list}",
    "{.rows[0].list[*]}",
    "{.rows[*]['name','n']}",
    "{.rows[?(@.ready==true)].name}",
    "{.rows[?(@.name=='b')].n}",
    '{.rows[?(@.name=="b")].n}',
    "{.rows[?(@.name!=\"b\")].name}",
    "{.rows[?(@.n>2)].name}",
    "{.rows[?(@.n>=2)].name}",
    "{.rows[?(@.n<30)].name}",
    "{.rows[?(@.deep)].name}",
    "{.rows[?(@.deep.name=='bb')].name}",
    "{.rows[?(@.nowhere=='bb')].name}",
    "{range .rows[*]}{.name}{\"\\n\"}{end}",
    "{range .rows[*]}{.name}={.n}{'\\t'}{end}after",
    "{range .rows[*]}[{range .list[*]}{@},{end}]{end}",
    "{.nowhere}",
    "{.rows[*].nowhere}",
    "{.rows[0].nothing}",
    "{.metadata.name}{.kind}",
    "{.metadata.name} {.kind}",
    "{'quoted'}",
    "{12}",
    "{.metadata..a}",
    "{.rows}",
    "{.rows[0].deep.*}",
    "{.apiVersion}\t{.kind}",
]  # fmt: skip


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


@pytest.mark.parametrize("template", TEMPLATES)
def test_a_template_prints_what_kubectl_prints(path: Path, template: str) -> None:
    is_taken, printed = ask_kubectl(path, template)

    assert is_taken
    assert render_jsonpath(parse_jsonpath(template), OBJECT) == printed


def test_all_that_is_below_is_found_though_go_has_no_order_of_keys(path: Path) -> None:
    _, printed = ask_kubectl(path, "{..name}")

    found = render_jsonpath(parse_jsonpath("{..name}"), OBJECT)
    assert sorted(found.split()) == sorted(printed.split())


@pytest.mark.parametrize(
    "template",
    [
        "{.a",
        "{end}",
        "{.rows[}",
        "{.rows[?(@.a==}",
        "{'open}",
        "{.rows[?(@.a]}",
        "{.}}{",
    ],
)
def test_what_kubectl_refuses_is_refused(path: Path, template: str) -> None:
    is_taken, _ = ask_kubectl(path, template)

    assert not is_taken
    with pytest.raises(NotJsonPath):
        parse_jsonpath(template)
