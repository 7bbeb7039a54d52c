"""From what the node driver sees to what the port Machines shows; they have the same parts, on two sides of a wall."""

from __future__ import annotations

from windrow.harvester.status import VmStatus
from windrow.machines.port import MachineStatus


def machine_status(machine_uid: str, name: str, status: VmStatus) -> MachineStatus:
    return MachineStatus(
        machine_uid=machine_uid,
        name=name,
        presence=status.presence,
        vm_uid=status.vm_uid,
        state=status.state,
        addresses=status.addresses,
        host=status.host,
        host_ready=status.host_ready,
        agent_connected=status.agent_connected,
        zone=status.zone,
        region=status.region,
        because=status.because,
    )
