"""One port Machines for several node drivers: each request goes to the adapter of the machine's driver."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from typing import Any, Protocol

from windrow.client.informer import Cache
from windrow.machines.port import (
    DriverConfig,
    Machines,
    MachineSpec,
    MachineStatus,
    Power,
    Problem,
    driver_of,
    initial_driver_config,
)
from windrow.machines.status_store import StatusStore


class ReleasingMachines(Machines, Protocol):
    """Machines that can be given to another adapter."""

    def release(self, uid: str, then: Callable[[], None]) -> None:
        """Once no operation of the machine runs, write no status of it any more and call `then`."""
        ...

    def find_begun(self, config: DriverConfig) -> DriverConfig | None:
        """The newest config of a machine whose creation was begun here, in whatever process; None where it was not, or where
        any adapter may continue it. It counts as created, since what it requested may be carried out yet."""
        ...

    def forget(self, uid: str) -> None:
        """Delete what is kept of a released machine: its config is recorded elsewhere."""
        ...


def _was_created(config: DriverConfig | None) -> bool:
    return config is not None and bool(config.get("WindrowVMUID"))


def _never(driver: str) -> bool:
    return False


class DriverDispatch:
    """The port Machines. `adapters` are by driver name; `default` is the adapter of every other driver, and of machines that
    are made while `is_overridden` says so of theirs.

    A machine stays with the adapter that made it, until `hand_back`, and then until no operation of it runs: two programs
    never make one VM. All of them write to `store`, so there is one view of all machines.
    """

    def __init__(
        self,
        adapters: Mapping[str, Machines],
        default: ReleasingMachines,
        store: StatusStore,
        is_overridden: Callable[[str], bool] = _never,
    ) -> None:
        self._adapters, self._default, self._store = dict(adapters), default, store
        self._is_overridden = is_overridden
        self._lent: dict[
            str, DriverConfig
        ] = {}  # by uid: the machines that `default` has in place of an adapter
        self._begun: set[str] = set()  # uids of those whose own adapter has begun to make them
        self._calls: Counter[str] = Counter()  # by uid: of `default`, which may begin an operation yet

    def _adapter_for(self, driver: str, uid: str = "") -> Machines:
        """The adapter of the machine `uid`, or of a new one of this driver."""
        own = self._adapters.get(driver)
        if own is None or (uid in self._lent if uid else self._is_overridden(driver)):
            return self._default
        return own

    def hand_back(self, driver: str) -> None:
        """Another program has taken the place of `driver`, or left it: give back the machines that it has made, once none
        is in its place."""
        own = self._adapters.get(driver)
        if own is None or self._is_overridden(driver):
            return
        for uid, config in list(self._lent.items()):
            if driver_of(config) == driver and not self._calls[uid]:
                self._default.release(uid, partial(self._take_back, own, uid))

    def _take_back(self, own: Machines, uid: str) -> None:
        config = self._lent.get(uid)
        if config is None:
            return
        if self._calls[uid] or self._is_overridden(driver_of(config)):  # since it was to be released
            self._default.track(config)
            return
        del self._lent[uid]
        newest = self._default.find_begun(config) or config
        if _was_created(newest):
            own.track(newest)

    @contextmanager
    def _calling(self, uid: str, driver: str) -> Iterator[Machines]:
        """The adapter of the machine, for a call of it. While that of another program is called nothing is given back."""
        adapter = self._adapter_for(driver, uid)
        if uid not in self._lent:
            yield adapter
            return
        self._calls[uid] += 1
        try:
            yield adapter
        finally:
            self._calls[uid] -= 1
            if not self._calls[uid]:
                del self._calls[uid]
                self.hand_back(driver)

    def _calling_of(self, config: DriverConfig) -> AbstractContextManager[Machines]:
        return self._calling(str(config["WindrowMachineUID"]), driver_of(config))

    def _newest(self, config: DriverConfig) -> DriverConfig:
        """`config`, with what another program has changed where it has begun to make the machine, and none is in its place
        now; else the machine is that program's."""
        driver, uid = driver_of(config), str(config["WindrowMachineUID"])
        if driver not in self._adapters or uid in self._lent:
            return config
        if _was_created(config):
            self._default.forget(uid)
            return config
        begun = self._default.find_begun(config)
        if begun is not None and self._is_overridden(driver):
            self._lent[uid] = config
            return config
        return begun or config

    async def check(self, specs: Sequence[MachineSpec]) -> list[Problem]:
        problems: list[Problem] = []
        for driver in dict.fromkeys(spec.driver for spec in specs):
            problems += await self._adapter_for(driver).check(
                [spec for spec in specs if spec.driver == driver]
            )
        return list(dict.fromkeys(problems))

    async def plan(self, spec: MachineSpec) -> DriverConfig:
        return await self._adapter_for(spec.driver).plan(spec)

    async def ensure(self, spec: MachineSpec, config: DriverConfig | None) -> DriverConfig:
        uid = spec.machine_uid
        if spec.driver in self._adapters and uid not in self._lent:
            if _was_created(config) or uid in self._begun or not self._is_overridden(spec.driver):
                self._begun.add(uid)
            else:
                self._lent = {
                    one: kept for one, kept in self._lent.items() if not self._store.was_removed(one)
                }
                self._lent[uid] = config or initial_driver_config(spec)
            if not self._is_overridden(spec.driver):
                config = self._default.find_begun(config or initial_driver_config(spec)) or config
        with self._calling(uid, spec.driver) as adapter:
            made = await adapter.ensure(spec, config)
            self._begun.discard(uid)
            if uid in self._lent:
                self._lent[uid] = made
        return made

    async def power(self, config: DriverConfig, wanted: Power) -> DriverConfig:
        with self._calling_of(config) as adapter:
            return await adapter.power(config, wanted)

    async def replace_user_data(self, config: DriverConfig, cloud_config: str) -> DriverConfig:
        with self._calling_of(config) as adapter:
            return await adapter.replace_user_data(config, cloud_config)

    async def edit(self, config: DriverConfig, options: Mapping[str, Any]) -> DriverConfig:
        with self._calling_of(config) as adapter:
            return await adapter.edit(config, options)

    async def remove(self, config: DriverConfig, volumes: frozenset[str]) -> None:
        config = self._newest(config)
        with self._calling_of(config) as adapter:
            await adapter.remove(config, volumes)
        self._begun.discard(str(config["WindrowMachineUID"]))

    async def read_status(self, config: DriverConfig) -> MachineStatus:
        with self._calling_of(config) as adapter:
            return await adapter.read_status(config)

    def statuses(self) -> Cache[MachineStatus]:
        return self._store

    def track(self, config: DriverConfig) -> None:
        config = self._newest(config)
        self._adapter_for(driver_of(config), str(config["WindrowMachineUID"])).track(config)
