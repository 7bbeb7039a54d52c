"""Which VM a volume is added to without reading it: as it was last seen, by the watch or in an answer."""

from __future__ import annotations

from typing import Any

from windrow.csi.harvester.attachments.known_vms import KnownVms
from windrow.csi.harvester.disks import VmDisks, read_vm


def raw_vm(version: str, *volumes: str) -> dict[str, Any]:
    entries = [{"name": one, "persistentVolumeClaim": {"claimName": one}} for one in volumes]
    return {
        "metadata": {"name": "node-1", "uid": "u", "resourceVersion": version},
        "spec": {"template": {"spec": {"volumes": entries}}},
    }


class Watch:
    def __init__(self) -> None:
        self.raw: dict[str, Any] | None = None

    def __call__(self, name: str) -> VmDisks | None:
        return read_vm(self.raw) if self.raw and name == "node-1" else None


def found(known: KnownVms) -> tuple[str, int]:
    vm = known.find("node-1")
    return (vm.resource_version, vm.count) if vm else ("", 0)


def test_an_answer_counts_until_the_watch_has_told_of_it() -> None:
    watch = Watch()
    known = KnownVms(watch)
    assert found(known) == ("", 0)

    watch.raw = raw_vm("9")
    assert found(known) == ("9", 0)

    known.on_answer(raw_vm("10", "a"))
    assert found(known) == ("10", 1)

    watch.raw = raw_vm("10", "a")
    assert found(known) == ("10", 1)
    watch.raw = raw_vm("8")  # what was told once is forgotten
    assert found(known) == ("8", 0)


def test_of_a_vm_that_the_watch_no_longer_tells_of_nothing_is_known() -> None:
    watch = Watch()
    known = KnownVms(watch)
    known.on_answer(raw_vm("10", "a"))

    assert found(known) == ("", 0)
    assert known.find("node-2") is None
