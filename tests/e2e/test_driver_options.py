"""Every option of the node driver through the plugin's process, as rancher-machine gives them: flags of a command line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.e2e.plugin_commands import NAME, DriverHost
from tests.e2e.plugin_site import a_site
from tests.stories.driver_options import HOSTS, KEY_PAIR, NETWORKS, POOLS, list_missing, observe

from windrow.emulator.guest_os.machine import machine_factory
from windrow.emulator.preload import VmNetwork
from windrow.nodedriver.options import BY_FIELD

# Neither is in a pool's HarvesterConfig: hosts fill the first, and the manager has no use for the private half of a key.
FLAGS_OF = {"secure": {"harvester-ssh-private-key-path": "id_me"}}


def flags_of(pool: str, folder: Path) -> dict[str, Any]:
    """The pool's options as rancher-machine sends them; without one of disks, or of networks, the legacy ones are needed."""
    given: dict[str, Any] = {
        "harvester-image-name": "",
        "harvester-disk-size": 0,
        "harvester-network-name": "",
    }
    usual = {
        "diskInfo": '{"disks":[{"imageName":"default/jammy","size":40,"bootOrder":1}]}',
        "networkInfo": '{"interfaces":[{"networkName":"default/vlan-50"}]}',
    }
    for field, value in (usual | dict(POOLS[pool])).items():
        if value is not None:
            option = BY_FIELD[field]
            given[option.flag] = (
                int(value) if isinstance(option.default, int) and isinstance(value, str) else value
            )
    for flag, name in FLAGS_OF.get(pool, {}).items():
        (folder / name).write_text("the private half\n")
        (folder / name).chmod(0o600)
        given[flag] = str(folder / name)
    return given


@pytest.mark.parametrize(
    "pool", [pool if pool == "many" else pytest.param(pool, marks=pytest.mark.long) for pool in POOLS]
)
def test_a_machine_of_the_plugin_has_what_its_flags_ask_for(pool: str, tmp_path: Path):
    with a_site(machine=machine_factory(), hosts=HOSTS) as site:
        networks = [VmNetwork(NETWORKS[0], 50, "192.168.50.0/24"), VmNetwork(NETWORKS[1], 60)]
        site.do(site.harvester.preload(networks=networks, key_pairs=[KEY_PAIR]))
        driver_host = DriverHost(site, tmp_path, flags=flags_of(pool, tmp_path))

        driver_host.create()

        assert list_missing(pool, site.do(observe(site.harvester, NAME))) == []
