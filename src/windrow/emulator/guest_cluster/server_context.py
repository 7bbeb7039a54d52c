"""What the controllers of one server of a guest cluster have in common."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from windrow.emulator.guest_cluster.cluster import GuestCluster
from windrow.emulator.guest_cluster.distribution.distribution import Settings
from windrow.emulator.guest_os.hardware import GuestProgram
from windrow.emulator.guest_os.operating_system import GuestOS


@dataclass(frozen=True, slots=True)
class ServerContext:
    """The machine, its cluster, the settings of its process, and the programs that charts start, by name."""

    guest: GuestOS
    cluster: GuestCluster
    settings: Settings
    programs: Mapping[str, GuestProgram]
