"""Making a machine by a plugin.

    blank configuration ──> flags ──> PreCreateCheck ──> noted on disk ──> Create ┄┄ looks beside it
                                                                             │
    the order counts as taken when the machine shows, and Create goes on <───┘

Whatever the driver notes on the way is written down here at once. Our own driver can be told again to make what it has
begun, and continues; with any other, what a broken-off Create left is taken as it is, or cleared away. A Create that was
refused is looked after: where it left nothing, it counts as never begun, so that what others make under the name later
is not taken for this machine's (`plugin_proof`).

Harvester learns the address of a bridged VM from its guest agent alone, and no driver adds that; so the document that a
Harvester driver is handed brings it.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass, replace
from typing import Any

from windrow.cloudinit.agent import lend_agent
from windrow.formats.json import dumps
from windrow.machines.plugin_access import KeyRing, Keys
from windrow.machines.plugin_charges import ACCOUNT, Charge, Deed, write_private
from windrow.machines.plugin_flags import plan_flags
from windrow.machines.plugin_memory import Seal
from windrow.machines.plugin_proof import SEEN_UID, find_standing, stands
from windrow.machines.plugin_sight import Glimpse, look
from windrow.machines.plugin_watch import Watch
from windrow.machines.plugin_words import says_nothing, says_taken
from windrow.machines.plugin_workshop import is_ours
from windrow.machines.plugins import DriverSaid, Plugin, PluginError
from windrow.machines.port import (
    HARVESTER,
    InfrastructureUnknown,
    MachineRefused,
    MachineSpec,
    planned_memory,
)
from windrow.nodedriver.configuration import read_fields
from windrow.nodedriver.plans import planned_claims
from windrow.nodedriver.stored import read_memory

_LAST_NOTE_S = 1.0

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Making:
    """One machine that is to be made with an open plugin, which knows nothing yet."""

    charge: Charge
    spec: MachineSpec
    keys: Keys
    plugin: Plugin
    watch: Watch
    ring: KeyRing

    async def check(self) -> None:
        """Raises MachineRefused, and what the driver says."""
        await self._set_up()
        await self.plugin.call("PreCreateCheck")

    async def create(self, deed: Deed) -> None:
        """Raises MachineRefused, and what the driver says. `deed` is told when the infrastructure has taken it."""
        ours = await is_ours(self.plugin)
        try:
            if not ours and (self.charge.begun or self.charge.is_in_doubt) and await self._take_up(deed):
                return
            await self.check()
            await self._note(begun=True)
            await self._make(deed, ours=ours)
        finally:
            self.charge.user_data.unlink(missing_ok=True)

    async def _set_up(self) -> None:
        charge, spec = self.charge, self.spec
        values, problems = plan_flags(
            spec.driver,
            await self.plugin.get_flags(),
            spec.options,
            self.keys.fields,
            str(charge.user_data),
            cluster_name=spec.cluster_name,
        )
        if problems:
            raise MachineRefused(problems)
        charge.prepare()
        write_private(charge.user_data, _document(spec).encode())
        await self._set_config(_blank(spec, self.keys.identity))
        await self.plugin.set_flags(values)

    async def _set_config(self, memory: Any) -> None:
        await self.plugin.set_config(dumps(self._seal().open(memory)))

    def _seal(self) -> Seal:
        return replace(self.charge.seal(self.keys.fields), document=_document(self.spec))

    async def draft(self) -> dict[str, Any]:
        """What the driver holds of the machine before it makes it. Raises MachineRefused, and what the driver says."""
        await self._set_up()
        return self.charge.seal(self.keys.fields).close(await self.plugin.get_memory())

    async def _take_up(self, deed: Deed) -> bool:
        """An earlier Create was broken off, or may have been. What runs or starts is taken; anything else of it is
        cleared away. Raises InfrastructureUnknown where nobody can tell what is there.

        Nobody was told of that machine yet, so nothing can be lost with it.
        """
        charge = self.charge
        await self._set_config(charge.memory)
        if not await stands(self.ring, charge, self.keys, self.plugin):
            charge.note(charge.memory, begun=False)
            return False
        try:
            glimpse = await look(self.plugin, charge)
        except DriverSaid as said:
            if says_nothing(said.text):
                raise
            glimpse = None
        if glimpse is not None and glimpse.is_taken:
            log.info("%s stands already; it is taken as it is", charge.name)
            await self._note(begun=True, vm_uid=charge.stand_in)
            deed.take(charge.memory)
            self.watch.show(charge, glimpse)
            return True
        try:
            await self.plugin.call("Remove")
        except DriverSaid as said:
            if says_nothing(said.text) or "not found" not in said.text.lower():
                raise
        charge.note(charge.memory, begun=False)
        return False

    async def _settle(self) -> None:
        """Create was refused: see whether it left anything. Where that cannot be seen, it may have."""
        charge = self.charge
        await self._note()
        try:
            standing, _ = await find_standing(self.ring, charge)
            if standing == "unasked" and (await look(self.plugin, charge)).sighting.presence == "missing":
                standing = "absent"
        except (DriverSaid, PluginError, InfrastructureUnknown) as error:
            log.info("whether the refused Create of %s left anything cannot be seen: %s", charge.name, error)
            return
        if standing == "absent":
            charge.note(charge.memory, begun=False)

    async def _make(self, deed: Deed, *, ours: bool) -> None:
        charge = self.charge

        async def seen(glimpse: Glimpse) -> None:
            taken = not deed.is_settled and glimpse.is_taken
            if taken or not ours:  # another driver may have noted something that finds its machine again
                await self._note(vm_uid=(glimpse.sighting.vm_uid or charge.stand_in) if taken else "")
            if taken:
                deed.take(charge.memory)

        try:
            await self.watch.call(charge, self.plugin, "Create", seen)
        except DriverSaid as said:
            if says_taken(said.text, charge.name) and not deed.is_settled:
                # Somebody else's: what was not made here must never be removed from here.
                charge.note(charge.memory, begun=False)
            elif not ours and not deed.is_settled:
                await self._settle()
            elif not ours:
                await self._note()
            raise
        except asyncio.CancelledError:
            if not ours:
                await self._note_at_last()
            raise
        if ours and deed.is_settled:
            return
        await self._note(vm_uid=charge.stand_in)
        deed.take(charge.memory)

    async def _note_at_last(self) -> None:
        """The host ends in the middle of a Create: what the driver has noted by now finds its machine again."""
        try:
            async with asyncio.timeout(_LAST_NOTE_S):
                await self._note()
        except (TimeoutError, DriverSaid, PluginError) as error:
            name = self.charge.name
            log.warning("%s was being made, and what its driver knows of it is lost: %s", name, error)

    async def _note(self, *, begun: bool | None = None, vm_uid: str = "") -> None:
        """Write down what the driver holds of the machine, before and after what it does."""
        charge = self.charge
        memory = self._seal().close(await self.plugin.get_memory())
        known = {
            **_marks(self.spec),
            "MachineName": self.spec.name,
            "WindrowHarvesterUID": self.keys.identity,
            ACCOUNT: self.keys.account,
            SEEN_UID: charge.memory.get(SEEN_UID) or (await self._seen_uid() if vm_uid else ""),
            "WindrowVMUID": memory.get("WindrowVMUID") or vm_uid or charge.memory.get("WindrowVMUID"),
            "WindrowClaims": charge.memory.get("WindrowClaims"),
        }
        memory |= {key: value for key, value in known.items() if value}
        if not await is_ours(self.plugin):
            memory.pop("WindrowClaims", None)  # it names its disks as it likes
        elif not memory.get("WindrowClaims"):
            memory["WindrowClaims"] = list(planned_claims(read_memory(memory)))
        charge.is_elsewhere = False
        charge.note(memory, begun=begun)

    async def _seen_uid(self) -> str:
        if await is_ours(self.plugin):
            return ""
        try:
            return (await find_standing(self.ring, self.charge))[1]
        except InfrastructureUnknown as error:
            log.info("the VM %s cannot be seen, so its uid is not known: %s", self.charge.name, error)
            return ""


def _document(spec: MachineSpec) -> str:
    if spec.driver != HARVESTER:
        return spec.cloud_config
    return lend_agent(spec.cloud_config, read_fields(spec.options)[0].user_data)


def _marks(spec: MachineSpec) -> dict[str, Any]:
    return {key: value for key, value in planned_memory(spec).items() if key.startswith("Windrow")}


def _blank(spec: MachineSpec, identity: str) -> dict[str, Any]:
    """The configuration that a host gives for a new machine: docker-machine's BaseDriver, all but empty.

    Our own driver learns from it whose machine this is, so that the VM bears the marks from its first moment.
    """
    config: dict[str, Any] = {
        "IPAddress": "",
        "MachineName": spec.name,
        "SSHUser": "",
        "SSHPort": 0,
        "SSHKeyPath": "",
        "StorePath": "",
        "SwarmMaster": False,
        "SwarmHost": "",
        "SwarmDiscovery": "",
    }
    if spec.driver == HARVESTER:
        config |= {**_marks(spec), "WindrowHarvesterUID": identity}
    return config
