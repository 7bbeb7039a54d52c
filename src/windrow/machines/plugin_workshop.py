"""What every use of a plugin needs: its binary, the credential of the day, and room among the processes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from pathlib import Path

from windrow.formats.json import dumps
from windrow.machines.plugin_access import KeyRing, Keys
from windrow.machines.plugin_charges import Charge
from windrow.machines.plugin_words import explain
from windrow.machines.plugins import DriverSaid, Patience, Plugin, PluginError, open_plugin
from windrow.machines.port import InfrastructureUnknown, MachineRefused, Memory
from windrow.wire import dockermachine as wire

BinaryOf = Callable[[str], Path | None]  # driver name -> its plugin binary, where one is installed


class Places:
    """Room for so many processes behind each credential: where one leads to nobody who answers, the others go on."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._places: dict[str, asyncio.Semaphore] = {}

    def of(self, charge: Charge) -> asyncio.Semaphore:
        return self._places.setdefault(charge.credential, asyncio.Semaphore(self._count))


@dataclass(frozen=True, slots=True)
class Workshop:
    """Opens plugins. There are places for questions, for orders, and for the making of machines, which takes long and
    must not hold up the others."""

    binary_of: BinaryOf
    keys: KeyRing
    env: Mapping[str, str]
    argv: Sequence[str]
    patience: Patience
    questions: Places
    deeds: Places
    creates: Places

    def get_binary(self, driver: str) -> Path:
        """Raises InfrastructureUnknown."""
        path = self.binary_of(driver)
        if path is None:
            raise InfrastructureUnknown(
                f"node driver {driver} is not installed here", f"enable it: windrow driver enable {driver}"
            )
        return path

    def open(
        self, charge: Charge, keys: Keys, memory: Memory | None, *, secrets: Sequence[str] = ()
    ) -> AbstractAsyncContextManager[Plugin]:
        """A plugin for this machine; with `memory` it knows the machine, without it is as new."""
        config = dumps(charge.seal(keys.fields).open(memory)) if memory is not None else None
        return open_plugin(
            self.get_binary(charge.driver),
            charge.driver,
            env={**self.env, **keys.env},
            argv=self.argv,
            config=config,
            label=charge.name,
            secrets=[*keys.fields.values(), *secrets],
            patience=self.patience,
        )

    async def unlock(self, charge: Charge, memory: Memory | None = None) -> Keys:
        """The credential, which must lead to where `memory` says that the machine is. Raises InfrastructureUnknown."""
        recorded = str((memory or {}).get("WindrowHarvesterUID") or charge.recorded)
        keys = await self.keys.get(charge.driver, charge.credential, recorded)
        charge.is_elsewhere = not keys.opens(charge.account)
        return keys


def explained(error: DriverSaid | PluginError, charge: Charge) -> InfrastructureUnknown | MachineRefused:
    return explain(error, charge.driver, charge.credential, charge.name)


async def is_ours(plugin: Plugin | None) -> bool:
    """Whether it is a plugin of ours, which tells more, continues what was begun, and knows its own by their marks."""
    return plugin is not None and wire.LOOK in await plugin.get_extensions()
