"""The import contracts are kept, and `make check` reports a breach of any of them."""

from __future__ import annotations

import configparser
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
LINT = Path(sys.executable).with_name("lint-imports")

# Each contract with breaches that it must notice: a module, and what it may not import.
BREACHES = [
    ("layers", "windrow/core/clock.py", "windrow.kubernetes.resources"),
    ("layers", "windrow/kubernetes/resources.py", "windrow.client.client"),
    ("layers", "windrow/core/formats/json.py", "windrow.protocols"),
    ("layers", "windrow/client/client.py", "windrow.harvester"),
    ("layers", "windrow/harvester/__init__.py", "windrow.nodedriver"),
    ("layers", "windrow/bootstrap/spec.py", "windrow.machines.port"),
    ("layers", "windrow/clusters/__init__.py", "windrow.cloudprovider"),
    ("layers", "windrow/cloudprovider/__init__.py", "windrow.clusters"),
    ("layers", "windrow/plugin/driver.py", "windrow.clusters"),
    ("layers", "windrow/nodedriver/__init__.py", "windrow.plugin"),
    ("layers", "windrow/emulator/kit/network.py", "windrow.clusters"),
    ("layers", "windrow/clusters/__init__.py", "windrow.emulator.kit.network"),
    ("layers", "windrow/app/__init__.py", "windrow.cli"),
    ("layers", "windrow/nodedriver/__init__.py", "windrow.drivers.api"),
    ("layers", "windrow/unplaced/__init__.py", "windrow.core.clock"),
    ("layers", "windrow/probes/endpoints.py", "windrow.client.transport"),
    ("emulator-independent", "windrow/emulator/kit/network.py", "windrow.client.transport"),
    ("emulator-independent", "windrow/emulator/kit/network.py", "windrow.probes.endpoints"),
    ("emulator-independent", "windrow/emulator/kit/network.py", "windrow.cloudinit"),
    ("emulator-independent", "windrow/emulator/kit/network.py", "windrow.bootstrap.spec"),
    ("emulator-independent", "windrow/emulator/kit/network.py", "windrow.harvester"),
    ("emulator-independent", "windrow/emulator/guest_os/hardware.py", "windrow.nodedriver"),
    ("emulator-independent", "windrow/apiserver/context.py", "windrow.client.transport"),
    ("apiserver", "windrow/apiserver/context.py", "windrow.emulator.kit.network"),
    ("apiserver-users", "windrow/clusters/__init__.py", "windrow.apiserver.context"),
    ("machines-port", "windrow/clusters/__init__.py", "windrow.machines.dispatch"),
    ("machines-port", "windrow/drivers/__init__.py", "windrow.machines.dispatch"),
    ("clusters-port", "windrow/clusters/__init__.py", "windrow.nodedriver"),
    ("change-pure", "windrow/clusters/change/fields.py", "windrow.clusters.plan.planner"),
    ("change-pure", "windrow/clusters/change/pending.py", "asyncio"),
    ("composition", "windrow/cli/__init__.py", "windrow.emulator.kit.network"),
    ("plugin-safe", "windrow/core/clock.py", "asyncio"),
    ("plugin-safe", "windrow/kubernetes/resources.py", "windrow.core.formats.fastjson"),
    ("plugin-safe", "windrow/nodedriver/__init__.py", "aiohttp"),
    ("plugin-safe", "windrow/harvester/__init__.py", "windrow.core.pki"),
    ("plugin-safe", "windrow/plugin/http/client.py", "asyncio"),
    ("plugin-safe", "windrow/plugin/driver.py", "windrow.client.transport"),
    ("tests", "windrow/demo/__init__.py", "tests.support"),
    ("layers", "windrow/cli/__init__.py", "windrow.__main__"),
    ("layers", "windrow/app/__init__.py", "windrow.demo"),
    ("adapter-aiohttp", "windrow/client/client.py", "aiohttp"),
    ("adapter-aiohttp", "windrow/drivers/store.py", "aiohttp"),
    ("adapter-aiohttp", "windrow/probes/endpoints.py", "aiohttp"),
    ("adapter-msgspec", "windrow/client/client.py", "msgspec"),
    ("adapter-re2", "windrow/client/client.py", "re2"),
    ("adapter-grpc", "windrow/csi/errors.py", "grpc"),
    ("adapter-grpc", "windrow/client/client.py", "grpc"),
    ("adapter-protobuf", "windrow/cloudprovider/metrics.py", "google.protobuf.message"),
    ("layers", "windrow/csi/errors.py", "windrow.cloudprovider"),
    ("layers", "windrow/clusters/__init__.py", "windrow.csi.errors"),
    ("adapter-cryptography", "windrow/bootstrap/spec.py", "cryptography.x509"),
    ("adapter-prometheus", "windrow/cloudprovider/metrics.py", "prometheus_client"),
    ("adapter-yaml", "windrow/kubernetes/resources.py", "yaml"),
    ("adapter-rich", "windrow/app/__init__.py", "rich.table"),
    ("layers", "windrow/dashboard/__init__.py", "windrow.cli"),
    ("layers", "windrow/app/__init__.py", "windrow.dashboard"),
    ("adapter-jinja2", "windrow/dashboard/site.py", "jinja2"),
    ("dashboard-reads-the-api", "windrow/dashboard/pages/overview.py", "windrow.apiserver.server"),
    ("adapter-uvloop", "windrow/client/client.py", "uvloop"),
    ("adapter-random", "windrow/kubernetes/resources.py", "random"),
    ("adapter-sqlite", "windrow/clusters/__init__.py", "sqlite3"),
]


def contracts() -> set[str]:
    config = configparser.ConfigParser()
    config.read(ROOT / ".importlinter")
    return {name.rpartition(":")[2] for name in config.sections() if ":contract:" in name}


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the sources, to break."""
    copy = tmp_path_factory.mktemp("tree")
    shutil.copytree(ROOT / "src", copy / "src", ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
    shutil.copy(ROOT / ".importlinter", copy)
    return copy


@contextmanager
def breach(tree: Path, module: str, imported: str) -> Iterator[None]:
    path = tree / "src" / module
    before = path.read_text() if path.exists() else None
    path.parent.mkdir(exist_ok=True)
    path.write_text(f"{before or ''}\nimport {imported}\n")
    try:
        yield
    finally:
        if before is None:
            shutil.rmtree(path.parent)
        else:
            path.write_text(before)


def lint(tree: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [LINT, "--no-logo", *arguments],
        cwd=tree,
        env={"PYTHONPATH": str(tree / "src"), "COLUMNS": "200"},
        capture_output=True,
        text=True,
    )


def test_the_tree_as_it_is_keeps_every_contract(tree: Path):
    done = lint(tree)

    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize(("contract", "module", "imported"), BREACHES)
def test_a_breach_is_noticed(tree: Path, contract: str, module: str, imported: str):
    with breach(tree, module, imported):
        done = lint(tree, "--contract", contract)

    assert done.returncode == 1, done.stdout + done.stderr
    assert "1 broken" in done.stdout
    assert module.removesuffix(".py").removesuffix("/__init__").replace("/", ".") in done.stdout


def test_every_contract_has_a_breach_that_proves_it():
    assert {contract for contract, _, _ in BREACHES} == contracts()


def test_make_check_verifies_the_contracts():
    text = (ROOT / "Makefile").read_text()

    assert "check-contracts" in text.partition("CHECKS := ")[2].splitlines()[0]
    assert "check-contracts:\n\t$(BIN)/lint-imports" in text
