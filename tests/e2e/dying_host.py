"""A host as a process of its own, to be killed: creates a machine and saves as it goes.

python -m tests.e2e.dying_host FOLDER    (FOLDER has `kubeconfig`; `plugin.pid` and `config.json` are written)
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.e2e.plugin_commands import DriverHost

from windrow.core.formats.json import dumps


@dataclass
class Afar:
    """What a host knows of a site: how to reach it."""

    kubeconfig: str


def main(folder: Path) -> None:
    site: Any = Afar((folder / "kubeconfig").read_text())
    driver_host = DriverHost(site, folder)
    with driver_host.plugin(driver_host.first_config(), new=True) as plugin:
        (folder / "plugin.pid").write_text(str(plugin.process.pid))
        driver_host.prepare(plugin)
        (folder / "config.json").write_bytes(dumps(driver_host.saved))
        plugin.call("Create")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
