"""One poll of a machine's status through its plugin; no waiting.

Our own plugin returns the status that the harvester adapter would observe. Any other returns a state and an address,
and error texts: only one that says "not found" of exactly this machine means that it is missing.
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
from windrow.protocols import dockermachine as wire

# The Go driver reports a guest that shut itself down as Stopping for ever (reference/01 D4).
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
    """The status by one poll."""

    status: MachineStatus
    is_windrow: bool

    @property
    def is_accepted(self) -> bool:
        """Whether the infrastructure has accepted the creation. Foreign drivers may report other states of a machine
        that does not exist."""
        if self.status.presence != "present" or not self.status.is_complete:
            return False
        return self.is_windrow or self.status.state in ("starting", "running")

    @property
    def is_stopped(self) -> bool:
        """Whether it is a whole machine that does not run, or soon will not."""
        status = self.status
        return status.presence == "present" and status.is_complete and status.state in ("stopping", "stopped")


async def poll(plugin: Plugin, machine: TrackedMachine) -> PollResult:
    """The machine's current status. Raises DriverError and PluginError where it cannot be determined."""
    if wire.GET_VM_STATUS in await plugin.get_extensions():
        return await _poll_windrow(plugin, machine)
    return PollResult(await _poll_foreign(plugin, machine), False)


async def _poll_windrow(plugin: Plugin, machine: TrackedMachine) -> PollResult:
    try:
        status = load_vm_status(await plugin.call(wire.GET_VM_STATUS), machine.uid, machine.name)
    except InvalidVmStatus as bad:
        raise PluginUnusable(
            f"the plugin of driver {machine.driver} returned an invalid status of machine {machine.name}: {bad}",
            "install the plugin of this release",
        ) from bad
    return PollResult(status, True)


async def _poll_foreign(plugin: Plugin, machine: TrackedMachine) -> MachineStatus:
    status = MachineStatus(
        machine.uid, machine.name, "present", vm_uid=str(machine.config.get("WindrowVMUID") or "")
    )
    try:
        state_number = await plugin.call("GetState")
    except DriverError as error:
        if not says_not_found(error.text, machine.name, machine.driver):
            raise
        return replace(status, presence="missing", because=error.text)
    if state_number not in _STATES:
        name = wire.STATES[state_number] if 0 <= state_number < len(wire.STATES) else str(state_number)
        raise DriverError("GetState", f"its state is {name}, which is not conclusive")
    if state_number != wire.RUNNING:
        return replace(status, state=_STATES[state_number], because=machine.last_error)
    try:
        address = (await plugin.call("GetIP")).strip()
    except DriverError as error:
        return replace(status, state="running", because=error.text)
    if not _ADDRESS.fullmatch(address):
        return replace(status, state="running", because=f"its driver reports the address {address[:80]!r}")
    return replace(status, state="running", addresses=(address,))


def correct_state(
    before: MachineStatus | None,
    status: MachineStatus,
    now: datetime,
    *,
    creating: bool,
    last_error: str = "",
) -> MachineStatus:
    """The status from a foreign plugin, corrected for known faults of such drivers.

    A machine that is being created is reported as stopped before it starts; one whose creation was cancelled is not
    provisioning; one that has been stopping for longer than any guest may take has stopped.
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
        return replace(
            status,
            state="stopped",
            because=f"its driver has reported Stopping for {STOPPING_TIMEOUT.seconds // 60} minutes",
        )
    return status
