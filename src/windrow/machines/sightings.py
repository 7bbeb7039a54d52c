"""From what the node driver sees to what the port Machines shows; they have the same parts, on two sides of a wall."""

from __future__ import annotations

from windrow.machines.port import Sighting
from windrow.nodedriver.sights import Sight


def sighting_of(machine_uid: str, name: str, sight: Sight) -> Sighting:
    return Sighting(
        machine_uid=machine_uid,
        name=name,
        presence=sight.presence,
        vm_uid=sight.vm_uid,
        state=sight.state,
        addresses=sight.addresses,
        host=sight.host,
        host_ready=sight.host_ready,
        agent_connected=sight.agent_connected,
        zone=sight.zone,
        region=sight.region,
        because=sight.because,
    )
