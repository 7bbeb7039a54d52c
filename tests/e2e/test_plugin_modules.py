"""What the plugin process really loads, and when."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from tests.e2e.plugin_commands import DriverHost
from tests.e2e.plugin_host import ELF, a_plugin
from tests.e2e.plugin_site import a_site

from windrow.plugin import __main__ as entry
from windrow.protocols import dockermachine as wire

pytestmark = pytest.mark.skipif(bool(ELF), reason="the ELF holds what it holds")

# Lists what is loaded when the process ends. PyYAML's compiled half is not in the plugin, so it is hidden here as well.
PROBE = """
import os, sys
out = sys.argv.pop(1)
sys.modules["yaml._yaml"] = None
bare = set(sys.modules)
leave = os._exit
def ending(code):
    with open(out, "a") as file:
        file.write(" ".join(sorted(name for name in set(sys.modules) - bare if sys.modules[name])) + "\\n")
    leave(code)
os._exit = ending
from windrow.plugin.__main__ import main
main()
"""

# The same up to the address line: what serves is a stand-in that ends at once.
AT_ADDRESS = """
import json, os, sys, types
bare = set(sys.modules)
stand_in = types.ModuleType("windrow.plugin.process")
stand_in.serve = lambda *given: os.write(2, json.dumps(sorted(set(sys.modules) - bare)).encode()) and 0
sys.modules["windrow.plugin.process"] = stand_in
bare.add("windrow.plugin.process")
from windrow.plugin.__main__ import main
main()
"""

SRC = Path(entry.__file__).parents[2]
PYYAML = Path(yaml.__file__).parents[1]
# Without `site`, whose path files may load this and that before anybody looks.
BARE = (sys.executable, "-S")

HEAVY = {
    "asyncio",
    "concurrent",
    "logging",
    "http",
    "email",
    "html",
    "xml",
    "subprocess",
    "multiprocessing",
    "tempfile",
    "pathlib",
    "argparse",
    "unittest",
    "importlib.metadata",
    "urllib.request",
    "uuid",
    "encodings.idna",
    "stringprep",
    "yaml._yaml",
}


def test_hardly_anything_is_loaded_when_the_address_line_is_printed():
    env = {wire.TOKEN_ENV: wire.TOKEN, "PYTHONPATH": str(SRC)}
    done = subprocess.run([*BARE, "-c", AT_ADDRESS], env=env, capture_output=True, timeout=20)

    assert done.stdout.startswith(b"127.0.0.1:")
    loaded = set(json.loads(done.stderr))
    assert loaded <= {"__future__", "_socket", "windrow", "windrow.plugin", "windrow.plugin.__main__"}


def test_the_token_is_the_protocols():
    """It stands twice, since the vocabulary of the protocol is loaded after the address line."""
    assert (entry.TOKEN_ENV, entry.TOKEN) == (wire.TOKEN_ENV, wire.TOKEN)


def test_a_whole_life_loads_the_standard_library_and_pyyaml_only(tmp_path: Path):
    out = tmp_path / "modules"
    program = (*BARE, "-c", PROBE, str(out))
    with a_site() as site:
        driver_host = DriverHost(
            site, tmp_path, program=program, env={"PYTHONPATH": os.pathsep.join((str(SRC), str(PYYAML)))}
        )
        driver_host.create()
        driver_host.order("Stop", wire.STOPPED)
        driver_host.order("Start", wire.RUNNING)
        driver_host.list()
        driver_host.remove()

    loaded = set(out.read_text().split())
    assert {"ssl", "yaml", "windrow.nodedriver.operations", "windrow.plugin.http.tls"} <= loaded
    assert {name.partition(".")[0] for name in loaded} - sys.stdlib_module_names == {"windrow", "yaml"}
    assert not {name for name in loaded if name in HEAVY or name.partition(".")[0] in HEAVY}
    packages = {name.split(".")[1] for name in loaded if name.startswith("windrow.")}
    assert packages == {"cloudinit", "core", "harvester", "kubernetes", "nodedriver", "plugin", "protocols"}


def test_who_asks_for_the_flags_alone_waits_for_nothing_else(tmp_path: Path):
    """As Rancher does, which makes the fields of HarvesterConfig of them."""
    out = tmp_path / "modules"
    with a_plugin(program=(*BARE, "-c", PROBE, str(out)), env={"PYTHONPATH": str(SRC)}) as plugin:
        plugin.call("GetVersion")
        assert wire.read_flags(plugin.call("GetCreateFlags"))
        assert plugin.close() == 0

    loaded = set(out.read_text().split())
    assert "windrow.nodedriver.options" in loaded
    assert not loaded & {
        "socket",
        "signal",
        "selectors",
        "json",
        "random",
        "base64",
        "datetime",
        "urllib.parse",
    }
    assert not loaded & {"windrow.plugin.driver", "windrow.nodedriver.config", "windrow.kubernetes.resources"}


def test_who_asks_for_flags_and_names_only_does_not_pay_for_the_driver(tmp_path: Path):
    out = tmp_path / "modules"
    env = {"PYTHONPATH": str(SRC)}  # no PyYAML
    with a_plugin(program=(*BARE, "-c", PROBE, str(out)), env=env) as plugin:
        plugin.call("GetVersion")
        plugin.call("SetConfigRaw", b'{"MachineName": "m"}')
        plugin.call("GetMachineName")
        assert wire.read_flags(plugin.call("GetCreateFlags"))
        plugin.call("GetConfigRaw")
        assert plugin.close() == 0

    loaded = set(out.read_text().split())
    assert not loaded & {"yaml", "ssl", "windrow.plugin.http.client", "windrow.nodedriver.operations"}
