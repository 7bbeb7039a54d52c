"""The driver's packages load the standard library and PyYAML only, and no event loop: a plugin starts in an instant."""

from __future__ import annotations

import subprocess
import sys

import pytest

PACKAGES = ("windrow.nodedriver", "windrow.harvester", "windrow.cloudinit")
FOREIGN = ("asyncio", "aiohttp", "msgspec", "cryptography", "rich")

LOAD_ALL = """
import importlib, pkgutil, sys
package = importlib.import_module(sys.argv[1])
for module in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
    importlib.import_module(module.name)
print(*sorted(sys.modules))
"""


@pytest.mark.parametrize("package", PACKAGES)
def test_a_package_of_the_plugin_loads_nothing_heavy(package: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", LOAD_ALL, package], capture_output=True, text=True, check=True
    )
    loaded = {name.partition(".")[0] for name in done.stdout.split()}
    assert package.partition(".")[0] in loaded
    assert loaded & set(FOREIGN) == set()
