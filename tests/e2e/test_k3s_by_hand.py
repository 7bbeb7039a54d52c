"""K3s on VMs that a person makes with kubectl, as Harvester's documentation has it, with what `windrow addon` prints."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.e2e.processes import SMALL, SPEED, Shell, needs_kubectl
from tests.stories.harvester_rig import a_vm
from tests.stories.test_k3s_by_hand import k3s_agent, k3s_server, require_cloud_provider

from windrow.core.formats.yaml import dump_all, load

IMAGE = "default/leap-micro"
HARVESTER = "harvester.yaml"


def boot(shell: Shell, name: str, user_data: str) -> str:
    """Make the VM; its address, once its guest agent reports one."""
    image = next(
        raw
        for raw in shell.objects(HARVESTER, "virtualmachineimages")
        if IMAGE.endswith(raw["metadata"]["name"])
    )
    secret = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": f"{name}-init", "namespace": "default"},
        "stringData": {"userdata": user_data},
    }
    vm = a_vm(
        name,
        storage_class=image["status"]["storageClassName"],
        image=IMAGE,
        network="default/vlan-50",
        secret=f"{name}-init",
    )
    shell.kubectl(HARVESTER, "apply", "-f", "-", given=dump_all([secret, vm]))
    for _ in until(f"VirtualMachineInstance {name} reports no address"):
        for raw in shell.objects(HARVESTER, "virtualmachineinstances"):
            cards = raw.get("status", {}).get("interfaces", [])
            if raw["metadata"]["name"] == name and cards and cards[0].get("ipAddress"):
                return str(cards[0]["ipAddress"])
    raise AssertionError


def until(complaint: str) -> Iterator[None]:
    """Tries, until the patience is over."""
    deadline = time.monotonic() + 150
    while time.monotonic() < deadline:
        yield
        time.sleep(0.5)
    raise AssertionError(complaint)


@needs_kubectl
@pytest.mark.long
@pytest.mark.nightly
@pytest.mark.timeout(300)
def test_a_k3s_cluster_by_hand_has_harvester_s_cloud_provider(tmp_path: Path) -> None:
    shell = Shell(tmp_path)
    (tmp_path / "small.yaml").write_text(SMALL)
    flags = ("--state-dir", ".", "--preload", "small.yaml", "--time-scale", SPEED)
    with shell.process("emulate", *flags, until=[HARVESTER]):
        printed = shell.windrow("addon", "mine", "default", "--k3s", "--harvester", HARVESTER)
        addon = load(printed.partition("########## cloud-init user data ############\n")[2])["write_files"]
        address = boot(shell, "one", k3s_server(addon))
        boot(shell, "two", k3s_agent(addon, address))

        for _ in until("cloud-init has not finished on VirtualMachine one"):
            shown = shell.windrow("emulate", "console", "default/one", "--kubeconfig", HARVESTER)
            if "cloud-init: finished" in shown:
                break

    require_cloud_provider(shown)
