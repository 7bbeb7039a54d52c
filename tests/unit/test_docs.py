"""The documentation says what is: its links lead somewhere, its lists are those of the code, its examples are good."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tests.conformance.kube_vip_scenes import SCENES

from windrow.cli import exit_codes
from windrow.cli.main import COMMANDS
from windrow.clusters.api.manifest.reading import read_cluster
from windrow.core.formats.yaml import load_all

ROOT = Path(__file__).resolve().parents[2]
PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    ROOT / "CHANGELOG.md",
    *sorted((ROOT / "docs").rglob("*.md")),
]
TUTORIAL = ROOT / "docs" / "tutorial" / "first-cluster.md"


def blocks(page: Path, language: str) -> list[str]:
    return re.findall(rf"^ *```{language}\n(.*?)^ *```", page.read_text(), re.S | re.M)


def _anchor(heading: str) -> str:
    return re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path):
    for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text()):
        if target.startswith("https://"):
            continue
        name, _, anchor = target.partition("#")
        there = (page.parent / name).resolve() if name else page
        assert there.exists(), target
        if anchor:
            headings = re.findall(r"^#+ (.*)$", there.read_text(), re.M)
            assert anchor in {_anchor(heading) for heading in headings}, target


def test_every_page_is_found_from_the_table_of_contents():
    contents = (ROOT / "docs" / "README.md").read_text()
    missing = [
        page.name for page in PAGES if page.is_relative_to(ROOT / "docs") and page.name not in contents
    ]

    assert missing in ([], ["README.md"])


def test_the_demo_s_checks_are_listed_by_the_names_they_have():
    text = "\n".join(source.read_text() for source in (ROOT / "src" / "windrow" / "demo").glob("*.py"))
    used = set(re.findall(r'check\(\s*"([a-z-]+)"', text))
    calls = re.findall(r"(?:_lose|_scale|wait_for_service)\(([^\n]*)", text)
    used |= {name for call in calls for name in re.findall(r'"([a-z]+-[a-z-]+)"', call)}
    listed = set(
        re.findall(r"^\| `([a-z-]+)` \|", (ROOT / "docs" / "reference" / "demo.md").read_text(), re.M)
    )

    assert used == listed


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_commands_in_examples_exist(page: Path):
    for block in blocks(page, "console"):
        for verb in re.findall(r"^ *\$ windrow ([a-z]+)", block, re.M):
            assert verb in COMMANDS
        targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.M))
        for target in re.findall(r"^ *\$ make ([a-z]+)", block, re.M):
            assert target in targets


def test_the_tutorial_s_cluster_is_understood_without_a_fault():
    documents = [raw for text in blocks(TUTORIAL, "yaml") for raw in load_all(text)]
    (cluster,) = [raw for raw in documents if raw["kind"] == "Cluster"]

    assert (
        read_cluster(cluster, [raw for raw in documents if raw["kind"] == "HarvesterConfig"]).problems == ()
    )


def test_every_exit_code_is_explained():
    codes = {value for name, value in vars(exit_codes).items() if name.isupper() and isinstance(value, int)}

    assert codes == set(exit_codes.MEANING)


def test_what_the_real_kube_vip_leaves_undecided_is_told():
    undecided = [name for name, scene in SCENES.items() if scene.undecided]
    assert undecided == ["emptied on the way to its address", "changed, with an election per service"]
    page = (ROOT / "docs" / "reference" / "differences-emulator.md").read_text()
    assert "changed with an election per service" in page
    assert "emptied on the way to its address" in page
