"""The snapshots that a guest lists, as its manager holds them: one by one, and no more than it can hold."""

from __future__ import annotations

from typing import Any

from tests.support.clock import LoopClock, run_driven
from tests.unit.clusters.builders import NOON
from tests.unit.clusters.supervisors import a_file

from windrow.apiserver.storage.memory import MemoryStore
from windrow.app.embedded import management_api
from windrow.clusters.sources.servers import snapshots
from windrow.clusters.sources.servers.snapshots import GuestSnapshots
from windrow.core.rng import Rng


def a_guest() -> GuestSnapshots:
    clock = LoopClock(NOON)
    transport: Any = management_api(MemoryStore(), clock, Rng(1)).local()
    return GuestSnapshots(transport, clock, Rng(1), lambda: None)


def carrying(name: str, size: int) -> dict[str, Any]:
    return a_file(name, spec={"metadata": {"k": "x" * (size - 1)}})


def test_of_all_files_together_no_more_metadata_is_held_than_the_bound(monkeypatch: Any) -> None:
    async def story() -> None:
        monkeypatch.setattr(snapshots, "MAX_HELD_METADATA", 100)
        guest = a_guest()
        first, second, third = (guest.read(carrying(name, 50)) for name in ("a", "b", "c"))
        again, smaller = guest.read(carrying("a", 50)), guest.read(carrying("b", 10))
        fits = guest.read(carrying("c", 40))
        for held in (first, second, again, smaller, fits):
            assert held is not None
            assert held.metadata
            assert held.left_out == ""
        assert third is not None
        assert third.metadata == {}
        assert (
            third.left_out == "the snapshots of this cluster carry more than the 100 characters that are kept"
        )
        assert guest.read({"metadata": {"name": "x"}, "spec": {}}) is None

    run_driven(story())


def test_sixteen_mebibytes_of_metadata_are_held_of_one_guest() -> None:
    async def story() -> None:
        guest = a_guest()
        read = [guest.read(carrying(f"f{number}", 2**17)) for number in range(130)]
        assert sum(1 for one in read if one is not None and one.metadata) == 128

    run_driven(story())


def test_no_more_files_are_held_of_one_guest_than_the_bound(monkeypatch: Any) -> None:
    async def story() -> None:
        monkeypatch.setattr(snapshots, "MAX_FILES", 2)
        guest = a_guest()
        read = [guest.read(a_file(name)) for name in ("a", "b", "c", "b")]
        assert [one.name if one else None for one in read] == ["local-a", "local-b", None, "local-b"]

    run_driven(story())
