"""Which adapter has a machine while another program is in the place of its driver."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from tests.support.clock import LoopClock, run_driven
from tests.support.fake_machines import MemoryMachines

from windrow.core.rng import Rng
from windrow.machines.dispatch import DriverDispatch
from windrow.machines.port import HARVESTER, DriverConfig, MachineSpec, Power, initial_driver_config
from windrow.machines.status_store import StatusStore


class Releasing(MemoryMachines):
    """Machines in memory that can be given away."""

    def __init__(self, *args: Any, **rest: Any) -> None:
        super().__init__(*args, **rest)
        self.released: list[str] = []
        self.forgotten: list[str] = []
        self.begun: dict[str, DriverConfig] = {}
        self.is_busy = False
        self.waiting: list[Callable[[], None]] = []

    def release(self, uid: str, then: Callable[[], None]) -> None:
        if self.is_busy:
            self.waiting.append(then)
            return
        self.released.append(uid)
        then()

    def find_begun(self, config: DriverConfig) -> DriverConfig | None:
        return self.begun.get(str(config["WindrowMachineUID"]))

    def forget(self, uid: str) -> None:
        self.forgotten.append(uid)


def a_spec(name: str) -> MachineSpec:
    return MachineSpec(name, f"uid-{name}", "c", "cluster-uid", "ns:cc", {}, "")


class Rig:
    """A dispatch over Windrow's own adapter and that of plugins; `overridden` says which makes new machines."""

    def __init__(self) -> None:
        clock, store = LoopClock(), StatusStore()
        self.own = MemoryMachines(clock, Rng(1), store=store)
        self.plugins = Releasing(clock, Rng(2), store=store)
        self.overridden = False
        self.machines = DriverDispatch(
            {HARVESTER: self.own}, self.plugins, store, lambda driver: self.overridden and driver == HARVESTER
        )

    async def make(self, name: str, config: Any = None) -> Any:
        return await self.machines.ensure(a_spec(name), config)

    def calls(self, adapter: MemoryMachines) -> list[tuple[str, str]]:
        return [(one.verb, one.machine) for one in adapter.calls]


def test_new_machines_are_made_by_the_program_in_place_and_others_stay_where_they_are() -> None:
    async def story() -> None:
        rig = Rig()
        before = await rig.make("before")
        rig.overridden = True
        since = await rig.make("since")
        for config in (before, since):
            await rig.machines.power(config, Power.OFF)
        await rig.make("before", before)
        await rig.make("since", since)

        assert rig.calls(rig.own) == [("ensure", "before"), ("power", "before"), ("ensure", "before")]
        assert rig.calls(rig.plugins) == [("ensure", "since"), ("power", "since"), ("ensure", "since")]

    run_driven(story())


def test_a_machine_that_was_begun_is_not_begun_again_by_another_program() -> None:
    async def story() -> None:
        rig = Rig()
        rig.own.fail("ensure", TimeoutError())
        try:
            await rig.make("slow")
        except TimeoutError:
            rig.overridden = True
        await rig.make("slow")

        assert rig.calls(rig.own) == [("ensure", "slow"), ("ensure", "slow")]
        assert rig.calls(rig.plugins) == []

    run_driven(story())


def test_machines_are_given_back_when_the_program_leaves_its_place() -> None:
    async def story() -> None:
        rig = Rig()
        rig.overridden = True
        made = await rig.make("m")
        rig.machines.hand_back(HARVESTER)
        kept = list(rig.plugins.released)
        rig.overridden = False
        rig.machines.hand_back(HARVESTER)
        rig.machines.hand_back("another")

        assert kept == []
        assert rig.plugins.released == ["uid-m"]
        await rig.make("m", made)
        assert rig.calls(rig.own) == [("ensure", "m")]

    run_driven(story())


def test_a_machine_is_given_back_once_no_operation_of_it_runs() -> None:
    async def story() -> None:
        rig = Rig()
        rig.overridden = True
        made = await rig.make("m")
        rig.plugins.is_busy, rig.overridden = True, False
        rig.machines.hand_back(HARVESTER)
        rig.machines.hand_back(HARVESTER)
        await rig.make("m", made)
        rig.plugins.is_busy = False
        for then in rig.plugins.waiting:
            then()
        await rig.make("m", made)

        assert rig.calls(rig.plugins) == [("ensure", "m"), ("ensure", "m")]
        assert rig.calls(rig.own) == [("ensure", "m")]

    run_driven(story())


def test_a_machine_that_is_to_be_given_back_stays_where_the_program_is_in_place_again() -> None:
    async def story() -> None:
        rig = Rig()
        rig.overridden = True
        made = await rig.make("m")
        rig.plugins.is_busy, rig.overridden = True, False
        rig.machines.hand_back(HARVESTER)
        rig.plugins.is_busy, rig.overridden = False, True
        for then in rig.plugins.waiting:
            then()
        await rig.machines.power(made, Power.OFF)

        assert rig.calls(rig.plugins) == [("ensure", "m"), ("power", "m")]

    run_driven(story())


def test_a_machine_is_not_given_back_while_its_program_is_asked_to_make_it() -> None:
    """The program may begin a moment later, and nothing shows it yet."""

    async def story() -> None:
        rig = Rig()
        rig.overridden = True
        asked, answer = asyncio.Event(), asyncio.Event()
        ensure = rig.plugins.ensure

        async def slow(spec: MachineSpec, config: DriverConfig | None) -> DriverConfig:
            asked.set()
            await answer.wait()
            return await ensure(spec, config)

        rig.plugins.ensure = slow  # type: ignore[method-assign]
        making = asyncio.create_task(rig.make("m"))
        await asked.wait()
        rig.overridden = False
        rig.machines.hand_back(HARVESTER)
        assert rig.plugins.released == []
        answer.set()
        made = await making

        assert rig.plugins.released == ["uid-m"]
        await rig.make("m", made)
        assert rig.calls(rig.own) == [("ensure", "m")]

    run_driven(story())


def test_a_machine_that_another_program_has_begun_is_removed_by_it_while_it_is_in_place() -> None:
    async def story() -> None:
        rig = Rig()
        config = initial_driver_config(a_spec("m"))
        rig.plugins.begun["uid-m"] = {**config, "WindrowVMUID": "harvester:uid-m"}
        rig.overridden = True
        await rig.machines.remove(config, frozenset())
        assert rig.calls(rig.plugins) == [("remove", "m")]

        rig = Rig()
        rig.plugins.begun["uid-m"] = {**config, "WindrowVMUID": "harvester:uid-m"}
        await rig.machines.remove(config, frozenset())
        assert rig.calls(rig.own) == [("remove", "m")]
        made = await rig.make("m", config)
        assert made["WindrowVMUID"] == "harvester:uid-m"

    run_driven(story())


def test_a_machine_that_is_removed_before_it_was_made_counts_no_more_as_begun() -> None:
    async def story() -> None:
        rig = Rig()
        rig.own.fail("ensure", TimeoutError())
        with pytest.raises(TimeoutError):
            await rig.make("slow")
        await rig.machines.remove(
            initial_driver_config(a_spec("slow")),
            frozenset(),
        )
        rig.overridden = True
        await rig.make("slow")

        assert rig.calls(rig.plugins) == [("ensure", "slow")]

    run_driven(story())


def test_a_machine_of_an_earlier_run_is_reported_once_it_is_tracked() -> None:
    async def story() -> None:
        rig = Rig()
        assert rig.machines.statuses().get("uid-own") is None
        rig.machines.track({**initial_driver_config(a_spec("own")), "WindrowVMUID": "vm-1"})
        assert rig.machines.statuses().get("uid-own") is not None

    run_driven(story())


def test_what_another_program_has_made_is_not_remembered_when_it_is_removed() -> None:
    async def story() -> None:
        rig = Rig()
        rig.overridden = True
        made = await rig.make("a")
        await rig.machines.remove(made, frozenset())
        rig.machines.statuses()  # it is missing, and was removed
        rig.plugins._store.expire("uid-a")
        await rig.make("b")

        assert rig.machines._lent.keys() == {"uid-b"}

    run_driven(story())
