"""Looking at a machine through its plugin: one look, no waiting.

Our own plugin tells what the direct adapter would see. Of any other there is a state and an address, and errors in
words: only those that say of exactly this machine that it is not there are taken for its absence.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from windrow.harvester.status import InvalidVmStatus, load_vm_status
from windrow.machines.plugin.error_text import says_not_found
from windrow.machines.plugin.process.client import DriverError, Plugin, PluginUnusable
from windrow.machines.plugin.tracked_machine import TrackedMachine
from windrow.machines.port import MachineStatus
from windrow.machines.statuses import machine_status
from windrow.protocols import dockermachine as wire

# The Go driver says for ever that a guest that shut itself down is stopping (reference/01 D4).
STOPPING_TIMEOUT = timedelta(minutes=12)

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
class PollResult:
    """What is shown, and whether our own plugin showed it."""

    status: MachineStatus
    is_windrow: bool
    is_complete: bool = True  # False while something that it needs to start has still to be made

    @property
    def is_accepted(self) -> bool:
        """Whether its order can be seen to have been taken. Other drivers may show states of what does not exist."""
        if self.status.presence != "present" or not self.is_complete:
            return False
        return self.is_windrow or self.status.state in ("starting", "running")


async def poll(plugin: Plugin, machine: TrackedMachine) -> PollResult:
    """The machine as it is now. Raises what says nothing of it: DriverError, PluginError."""
    if wire.GET_VM_STATUS in await plugin.get_extensions():
        return await _poll_windrow(plugin, machine)
    return PollResult(await _poll_foreign(plugin, machine), False)


async def _poll_windrow(plugin: Plugin, machine: TrackedMachine) -> PollResult:
    try:
        sight = load_vm_status(await plugin.call(wire.GET_VM_STATUS))
    except InvalidVmStatus as bad:
        raise PluginUnusable(
            f"what the plugin of driver {machine.driver} shows of {machine.name} makes no sense: {bad}",
            "install the plugin of this release",
        ) from bad
    return PollResult(machine_status(machine.uid, machine.name, sight), True, sight.is_complete)


async def _poll_foreign(plugin: Plugin, machine: TrackedMachine) -> MachineStatus:
    status = MachineStatus(
        machine.uid, machine.name, "present", vm_uid=str(machine.config.get("WindrowVMUID") or "")
    )
    try:
        state_number = await plugin.call("GetState")
    except DriverError as said:
        if not says_not_found(said.text, machine.name, machine.driver):
            raise
        return replace(status, presence="missing", because=said.text)
    if state_number not in _STATES:
        name = wire.STATES[state_number] if 0 <= state_number < len(wire.STATES) else str(state_number)
        raise DriverError("GetState", f"its state is {name}, which says nothing")
    if state_number != wire.RUNNING:
        return replace(status, state=_STATES[state_number], because=machine.last_error)
    try:
        address = (await plugin.call("GetIP")).strip()
    except DriverError as said:
        return replace(status, state="running", because=said.text)
    if not _ADDRESS.fullmatch(address):
        return replace(status, state="running", because=f"its driver gives {address[:80]!r} as its address")
    return replace(status, state="running", addresses=(address,))


def correct_state(
    before: MachineStatus | None,
    status: MachineStatus,
    now: datetime,
    *,
    creating: bool,
    last_error: str = "",
) -> MachineStatus:
    """What another's plugin shows, with what is known of how such drivers err.

    A machine that is being made stands still before it starts, and one whose making broke off is not on its way; one
    that has been stopping for longer than any guest may take has stopped.
    """
    if creating and status.state in ("stopped", "failed"):
        return replace(status, state="provisioning")
    if last_error and not creating and status.state == "provisioning":
        return replace(status, state="failed", because=last_error)
    if (
        status.state == "stopping"
        and before is not None
        and before.state in ("stopping", "stopped")
        and before.since is not None
        and (before.state == "stopped" or now >= before.since + STOPPING_TIMEOUT)
    ):
        return replace(status, state="stopped", because="it says that it is stopping, and does not end")
    return status
