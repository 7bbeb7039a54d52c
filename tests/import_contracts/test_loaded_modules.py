"""What a process really loads: the plugin-safe packages bring the standard library and PyYAML, and no asyncio."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

SRC = Path(__file__).resolve().parents[2] / "src"

PLUGIN_SAFE = [
    "core/formats/cidr.py",
    "core/clock.py",
    "core/formats/duration.py",
    "core/errors.py",
    "core/formats/json.py",
    "core/logs.py",
    "core/formats/quantity.py",
    "core/rng.py",
    "core/text.py",
    "core/formats/version.py",
    "core/formats/yaml.py",
    "protocols/dockermachine.py",
    "protocols/gob",
    "protocols/netrpc.py",
    "kubernetes",
    "cloudinit",
    "harvester",
    "nodedriver",
    "plugin",
]

# PyYAML's compiled half is not in the plugin, so it is hidden here as well.
PROBE = """
import importlib, json, sys
sys.modules["yaml._yaml"] = None
before = set(sys.modules)
for name in sys.argv[1:]:
    importlib.import_module(name)
print(json.dumps(sorted(set(sys.modules) - before)))
"""


def modules_of(place: str) -> list[str]:
    path = SRC / "windrow" / place
    files = [path] if path.suffix else sorted(path.rglob("*.py"))
    names = [".".join(file.relative_to(SRC).with_suffix("").parts) for file in files]
    return [name.removesuffix(".__init__") for name in names]


def loaded_by(*names: str) -> set[str]:
    done = subprocess.run([sys.executable, "-c", PROBE, *names], capture_output=True, text=True, check=True)
    return set(json.loads(done.stdout))


@pytest.mark.parametrize("place", PLUGIN_SAFE)
def test_a_plugin_safe_package_loads_the_standard_library_and_pyyaml_only(place: str):
    loaded = {name.partition(".")[0] for name in loaded_by(*modules_of(place))}

    assert loaded - sys.stdlib_module_names <= {"windrow", "yaml"}
    assert not loaded & {"asyncio", "concurrent"}


HEAVY = {"asyncio", "aiohttp", "cryptography", "msgspec", "prometheus_client", "rich", "yaml", "ssl"}


def test_the_command_line_s_help_loads_nothing_heavy():
    assert not {name.partition(".")[0] for name in loaded_by("windrow.cli.main")} & HEAVY


@pytest.mark.parametrize("verb", modules_of("cli/commands"))
def test_a_verb_s_help_loads_nothing_heavy(verb: str):
    assert not {name.partition(".")[0] for name in loaded_by(verb)} & HEAVY


def test_the_cloud_provider_s_help_loads_nothing_heavy():
    loaded = loaded_by("windrow.app.cloud_provider")

    assert not {name.partition(".")[0] for name in loaded} & HEAVY


def test_the_cloud_provider_loads_neither_emulator_nor_other_products():
    places = (
        "app.cloud_provider",
        "app.loop",
        "client.http_transport",
        "cloudprovider.cmd.main",
        "probes.server",
    )
    loaded = loaded_by(*(f"windrow.{place}" for place in places))

    ours = {name.split(".")[1] for name in loaded if name.startswith("windrow.")}
    assert not ours & {"emulator", "apiserver", "clusters", "machines", "plugin", "nodedriver", "cli"}


@pytest.mark.parametrize(
    ("program", "others"),
    [
        ("app.serve", {"emulator.harvester", "emulator.guest_os", "cloudprovider", "demo"}),
        ("app.emulate", {"clusters.controller", "machines.harvester", "machines.plugin", "demo"}),
    ],
)
def test_a_server_loads_nothing_of_the_other(program: str, others: set[str]):
    assert not loaded_by(f"windrow.{program}") & {f"windrow.{name}" for name in others}
