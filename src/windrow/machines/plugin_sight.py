"""Looking at a machine through its plugin: one look, no waiting.

Our own plugin tells what the direct adapter would see. Of any other there is a state and an address, and errors in
words: only those that say of exactly this machine that it is not there are taken for its absence.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from windrow.machines.plugin_charges import Charge
from windrow.machines.plugin_words import says_gone
from windrow.machines.plugins import DriverSaid, Plugin, PluginUnusable
from windrow.machines.port import Sighting
from windrow.machines.sightings import sighting_of
from windrow.nodedriver.sights import BadSight, load_sight
from windrow.wire import dockermachine as wire

# The Go driver says for ever that a guest that shut itself down is stopping (reference/01 D4).
STOPPING_WITHIN = timedelta(minutes=12)

_STATES: dict[int, Any] = {
    wire.NONE: "provisioning",
    wire.RUNNING: "running",
    wire.PAUSED: "stopped",
    wire.SAVED: "stopped",
    wire.STOPPED: "stopped",
    wire.STOPPING: "stopping",
    wire.STARTING: "starting",
    wire.ERROR: "failed",
}
_ADDRESS = re.compile(r"[0-9A-Za-z.:%_-]{1,253}")


@dataclass(frozen=True, slots=True)
class Glimpse:
    """What is shown, and whether our own plugin showed it."""

    sighting: Sighting
    is_ours: bool
    is_complete: bool = True  # False while something that it needs to start has still to be made

    @property
    def is_taken(self) -> bool:
        """Whether its order can be seen to have been taken. Other drivers may show states of what does not exist."""
        if self.sighting.presence != "present" or not self.is_complete:
            return False
        return self.is_ours or self.sighting.state in ("starting", "running")


async def look(plugin: Plugin, charge: Charge) -> Glimpse:
    """The machine as it is now. Raises what says nothing of it: DriverSaid, PluginError."""
    if wire.LOOK in await plugin.get_extensions():
        return await _look_ours(plugin, charge)
    return Glimpse(await _look_any(plugin, charge), False)


async def _look_ours(plugin: Plugin, charge: Charge) -> Glimpse:
    try:
        sight = load_sight(await plugin.call(wire.LOOK))
    except BadSight as bad:
        raise PluginUnusable(
            f"what the plugin of driver {charge.driver} shows of {charge.name} makes no sense: {bad}",
            "install the plugin of this release",
        ) from bad
    return Glimpse(sighting_of(charge.uid, charge.name, sight), True, sight.is_complete)


async def _look_any(plugin: Plugin, charge: Charge) -> Sighting:
    shown = Sighting(charge.uid, charge.name, "present", vm_uid=str(charge.memory.get("WindrowVMUID") or ""))
    try:
        number = await plugin.call("GetState")
    except DriverSaid as said:
        if not says_gone(said.text, charge.name, charge.driver):
            raise
        return replace(shown, presence="missing", because=said.text)
    if number not in _STATES:
        name = wire.STATES[number] if 0 <= number < len(wire.STATES) else str(number)
        raise DriverSaid("GetState", f"its state is {name}, which says nothing")
    if number != wire.RUNNING:
        return replace(shown, state=_STATES[number], because=charge.trouble)
    try:
        address = (await plugin.call("GetIP")).strip()
    except DriverSaid as said:
        return replace(shown, state="running", because=said.text)
    if not _ADDRESS.fullmatch(address):
        return replace(shown, state="running", because=f"its driver gives {address[:80]!r} as its address")
    return replace(shown, state="running", addresses=(address,))


def mend(
    before: Sighting | None, seen: Sighting, now: datetime, *, creating: bool, trouble: str = ""
) -> Sighting:
    """What another's plugin shows, with what is known of how such drivers err.

    A machine that is being made stands still before it starts, and one whose making broke off is not on its way; one
    that has been stopping for longer than any guest may take has stopped.
    """
    if creating and seen.state in ("stopped", "failed"):
        return replace(seen, state="provisioning")
    if trouble and not creating and seen.state == "provisioning":
        return replace(seen, state="failed", because=trouble)
    if (
        seen.state == "stopping"
        and before is not None
        and before.state in ("stopping", "stopped")
        and before.since is not None
        and (before.state == "stopped" or now >= before.since + STOPPING_WITHIN)
    ):
        return replace(seen, state="stopped", because="it says that it is stopping, and does not end")
    return seen
