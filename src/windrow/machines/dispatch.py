"""One port Machines for several node drivers: each request goes to the adapter of the machine's driver."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

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

    def release(self, uid: str) -> None:
        """Write no status of the machine any more. An operation of it that runs goes on."""
        ...


def _was_created(config: DriverConfig | None) -> bool:
    return config is not None and bool(config.get("WindrowVMUID"))


def _never(driver: str) -> bool:
    return False


class DriverDispatch:
    """The port Machines. `adapters` are by driver name; `default` is the adapter of every other driver, and of machines that
    are made while `is_overridden` says so of theirs.

    A machine stays with the adapter that made it, until `hand_back`. All of them write to `store`, so there is one view of
    all machines.
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

    def _adapter_for(self, driver: str, uid: str = "") -> Machines:
        """The adapter of the machine `uid`, or of a new one of this driver."""
        own = self._adapters.get(driver)
        if own is None or (uid in self._lent if uid else self._is_overridden(driver)):
            return self._default
        return own

    def _adapter_of(self, config: DriverConfig) -> Machines:
        return self._adapter_for(driver_of(config), str(config["WindrowMachineUID"]))

    def hand_back(self, driver: str) -> None:
        """Another program has taken the place of `driver`, or left it: give back the machines that it has made, once none
        is in its place."""
        own = self._adapters.get(driver)
        if own is None or self._is_overridden(driver):
            return
        for uid, config in self._lent.items():
            self._default.release(uid)
            own.track(config)
        self._lent.clear()

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
        made = await self._adapter_for(spec.driver, uid).ensure(spec, config)
        self._begun.discard(uid)
        if uid in self._lent:
            self._lent[uid] = made
        return made

    async def power(self, config: DriverConfig, wanted: Power) -> DriverConfig:
        return await self._adapter_of(config).power(config, wanted)

    async def replace_user_data(self, config: DriverConfig, cloud_config: str) -> DriverConfig:
        return await self._adapter_of(config).replace_user_data(config, cloud_config)

    async def remove(self, config: DriverConfig, volumes: frozenset[str]) -> None:
        await self._adapter_of(config).remove(config, volumes)

    def statuses(self) -> Cache[MachineStatus]:
        return self._store

    def track(self, config: DriverConfig) -> None:
        self._adapter_of(config).track(config)
