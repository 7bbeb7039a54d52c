"""One port Machines for several node drivers: each request goes to the adapter of the machine's driver."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from windrow.client.informer import Cache
from windrow.machines.port import (
    DriverConfig,
    Machines,
    MachineSpec,
    MachineStatus,
    Power,
    Problem,
    driver_of,
)
from windrow.machines.status_store import StatusStore


class DriverDispatch:
    """The port Machines. `adapters` are by driver name; `default` is the adapter of every other driver.

    All of them write to `store`, so there is one view of all machines.
    """

    def __init__(self, adapters: Mapping[str, Machines], default: Machines, store: StatusStore) -> None:
        self._adapters, self._default, self._store = dict(adapters), default, store

    def _adapter_for(self, driver: str) -> Machines:
        return self._adapters.get(driver, self._default)

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
        return await self._adapter_for(spec.driver).ensure(spec, config)

    async def power(self, config: DriverConfig, wanted: Power) -> DriverConfig:
        return await self._adapter_for(driver_of(config)).power(config, wanted)

    async def replace_user_data(self, config: DriverConfig, cloud_config: str) -> DriverConfig:
        return await self._adapter_for(driver_of(config)).replace_user_data(config, cloud_config)

    async def remove(self, config: DriverConfig, volumes: frozenset[str]) -> None:
        await self._adapter_for(driver_of(config)).remove(config, volumes)

    def statuses(self) -> Cache[MachineStatus]:
        return self._store

    def track(self, config: DriverConfig) -> None:
        self._adapter_for(driver_of(config)).track(config)
