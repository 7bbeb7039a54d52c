"""Which adapter has a machine while another program is in the place of its driver."""

from __future__ import annotations

from typing import Any

from tests.support.clock import LoopClock, run_driven
from tests.support.fake_machines import MemoryMachines

from windrow.core.rng import Rng
from windrow.machines.dispatch import DriverDispatch
from windrow.machines.port import HARVESTER, MachineSpec, Power
from windrow.machines.status_store import StatusStore


class Releasing(MemoryMachines):
    """Machines in memory that can be given away."""

    released: tuple[str, ...] = ()

    def release(self, uid: str) -> None:
        self.released += (uid,)


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
        spec = MachineSpec(name, f"uid-{name}", "c", "cluster-uid", "ns:cc", {}, "")
        return await self.machines.ensure(spec, config)

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
        kept = rig.plugins.released
        rig.overridden = False
        rig.machines.hand_back(HARVESTER)
        rig.machines.hand_back("another")

        assert kept == ()
        assert rig.plugins.released == ("uid-m",)
        await rig.make("m", made)
        assert rig.calls(rig.own) == [("ensure", "m")]

    run_driven(story())
