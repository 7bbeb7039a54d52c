"""Which VMs have a volume at the moment: by their own disks, and by those of their instances."""

from __future__ import annotations

import asyncio
from typing import Any

from tests.support.clock import run_driven

from windrow.csi.harvester.attachments.now import AttachedNow
from windrow.harvester.resources import VM, VMI
from windrow.kubernetes.resources import ApiResource


def a_volume(claim: str) -> dict[str, Any]:
    return {"name": f"disk-{claim}", "persistentVolumeClaim": {"claimName": claim}}


def a_vm(name: str, *claims: str) -> dict[str, Any]:
    disks = [{"name": f"disk-{claim}", "disk": {"bus": "scsi"}} for claim in claims]
    spec = {"domain": {"devices": {"disks": disks}}, "volumes": [a_volume(one) for one in claims]}
    return {
        "metadata": {"name": name, "namespace": "hosts", "uid": f"uid-{name}"},
        "spec": {"template": {"spec": spec}},
    }


def an_instance(name: str, *claims: str, plugged: tuple[str, ...] = ()) -> dict[str, Any]:
    statuses = [{"name": one, "hotplugVolume": {}, "phase": "Ready"} for one in plugged]
    return {
        "metadata": {"name": name, "namespace": "hosts", "uid": f"uid-{name}"},
        "spec": {"volumes": [a_volume(one) for one in claims]},
        "status": {"volumeStatus": statuses},
    }


class Host:
    """A Harvester that takes a second for each list."""

    def __init__(self, vms: list[Any], instances: list[Any]) -> None:
        self.objects = {VM: vms, VMI: instances}
        self.listed = 0

    async def list(self, kind: ApiResource, namespace: str) -> list[Any]:
        assert namespace == "hosts"
        self.listed += kind == VM
        found = list(self.objects[kind])
        await asyncio.sleep(1)
        return found


def test_a_volume_is_with_the_vms_that_have_it_and_those_whose_instance_still_has_it() -> None:
    async def story() -> None:
        host: Any = Host(
            [a_vm("b", "one", "two"), a_vm("a", "one"), a_vm("gone")],
            [an_instance("gone", "three"), an_instance("plugs", plugged=("four",))],
        )
        now = AttachedNow(host, "hosts")

        found = [await now.nodes_with(one) for one in ("one", "two", "three", "four", "none")]
        assert found == [["a", "b"], ["b"], ["gone"], ["plugs"], []]

    run_driven(story())


def test_those_that_ask_while_a_list_is_read_share_the_next() -> None:
    async def story() -> None:
        host: Any = Host([a_vm("a", "one")], [])
        now = AttachedNow(host, "hosts")
        first = asyncio.ensure_future(now.nodes_with("one"))
        await asyncio.sleep(0.5)
        host.objects[VM] = []
        later = [asyncio.ensure_future(now.nodes_with("one")) for _ in range(5)]

        assert await first == ["a"]
        assert await asyncio.gather(*later) == [[]] * 5, "what was read before they asked is not their answer"
        assert host.listed == 2
        await now.nodes_with("one")
        assert host.listed == 3

    run_driven(story())
