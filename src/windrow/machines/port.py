"""The port Machines: how the cluster manager gets, powers and loses machines, whoever makes them.

Level-triggered: every verb may be repeated, and continues from what exists. Adapters: `memory` (a double),
`direct` (our node driver against the Harvester API), `plugin_host` (any docker-machine plugin).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import Enum
from typing import Any, Literal, Protocol

from windrow.client.informer import Cache
from windrow.core.errors import UserError

# The node driver that is built in, and the key under which the memory of any other driver's machine names it.
HARVESTER = "harvester"
DRIVER_KEY = "WindrowDriver"
# What may stand in a machine config and is not the driver's: Kubernetes' own, and Rancher's.
NOT_OPTIONS = frozenset({"apiVersion", "kind", "metadata", "status", "common", "providerID"})


class Power(Enum):
    ON = "on"
    OFF = "off"
    RESTART = "restart"


# Memory is the driver's config.json (`Driver` object, reference/01 §3.3) as a dict, the same in every adapter,
# so a machine may change adapters. Extra keys start with "Windrow" and are ignored by Go.
DriverConfig = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class MachineSpec:
    """All that is needed to make one machine.

    `options` are the user's own fields of the driver's machine config (camelCase names of its flags, strings as
    Rancher writes them, or structured values), `cloud_config` is the bootstrap's cloud-config document (what rancher-machine
    would pass by file); the driver merges it after the user's `userData`.
    """

    name: str
    machine_uid: str
    cluster_name: str
    cluster_uid: str
    credential: str  # "namespace:name" of the credential Secret
    options: Mapping[str, Any]
    cloud_config: str = field(repr=False)
    driver: str = HARVESTER  # whose machine it is: the node driver's name


def initial_driver_config(spec: MachineSpec) -> DriverConfig:
    """What is known of a machine before it is ordered: enough for `remove` and `watch_over`, should the order's
    own memory be lost. A memory with a `WindrowVMUID` stands for a machine that was made; this one does not.
    """
    config = {
        "MachineName": spec.name,
        "VMNamespace": str(spec.options.get("vmNamespace") or "default"),
        "ClusterName": spec.cluster_name,
        "WindrowMachineUID": spec.machine_uid,
        "WindrowClusterUID": spec.cluster_uid,
        "WindrowCredential": spec.credential,
    }
    return config if spec.driver == HARVESTER else {**config, DRIVER_KEY: spec.driver}


def driver_of(config: DriverConfig) -> str:
    """The node driver whose machine this is."""
    return str(config.get(DRIVER_KEY) or HARVESTER)


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong with a spec, found before anything is made."""

    message: str
    hint: str
    field: str = ""
    severity: Literal["error", "warning"] = "error"

    def __str__(self) -> str:
        return f"{self.message}; {self.hint}"


@dataclass(frozen=True, slots=True)
class MachineStatus:
    """What the infrastructure shows of one machine, by the record's machine uid.

    `presence` is "missing" only where the driver was asked now and says that the machine is not there: ours after a
    live GET answered 404 on the Harvester whose identity the memory holds, any other in its own words.
    Everything that is not certain is "unknown", and unknown never replaces or deletes (design §2.5).
    """

    machine_uid: str
    name: str
    presence: Literal["present", "missing", "unknown"]
    vm_uid: str = ""
    state: Literal[
        "", "provisioning", "starting", "running", "stopping", "stopped", "failed", "migrating", "deleting"
    ] = ""
    addresses: tuple[str, ...] = ()
    host: str = ""
    host_ready: bool | None = None  # None: the host cannot be seen with this credential
    agent_connected: bool | None = None
    zone: str = ""
    region: str = ""
    because: str = ""  # the infrastructure's own words about what it waits for, or why unknown
    since: datetime | None = None


class MachineRefused(Exception):
    """The infrastructure will not make this machine as asked; repeating unchanged is useless."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        super().__init__("; ".join(str(problem) for problem in problems))
        self.problems = tuple(problems)


class ReplaceUserDataUnsupported(UserError):
    """The machine's driver has no means to replace what it reads at its next start; trying again is useless."""


class InfrastructureUnknown(UserError):
    """The infrastructure could not be asked (401, 403, time-out, other identity). Says which and what to do."""


class Machines(Protocol):
    async def check(self, specs: Sequence[MachineSpec]) -> list[Problem]:
        """All problems of all specs at once; makes nothing. Raises InfrastructureUnknown."""
        ...

    async def plan(self, spec: MachineSpec) -> DriverConfig:
        """What is to be written down before the order: a `initial_driver_config` that also names the Harvester and the disks.

        Makes nothing. Whatever `ensure` makes with it can be found and removed by it, on that Harvester alone.
        Raises MachineRefused, InfrastructureUnknown.
        """
        ...

    async def ensure(self, spec: MachineSpec, config: DriverConfig | None) -> DriverConfig:
        """Order the machine and return once the order is recorded at the infrastructure (not: running).

        With `memory` it continues from what exists; a machine that was made once (its memory holds a
        `WindrowVMUID`) is never made again under the same record, also when it is missing.
        Raises MachineRefused, InfrastructureUnknown.
        """
        ...

    async def power(self, config: DriverConfig, wanted: Power) -> DriverConfig:
        """Order a power state; does not wait for it."""
        ...

    async def replace_user_data(self, config: DriverConfig, cloud_config: str) -> DriverConfig:
        """Replace the bootstrap document the machine reads at its next start (used to scrub secrets).

        Raises MachineRefused, InfrastructureUnknown, CannotRewrite.
        """
        ...

    async def remove(self, config: DriverConfig, volumes: frozenset[str]) -> None:
        """Order the machine's removal, with the disks it made itself and the extra claims named in `volumes`.

        Returns once ordered; a machine that is not there counts as removed. Its end shows in `sightings`.
        Takes a `initial_driver_config` too. Raises InfrastructureUnknown, also where another Harvester answers than the
        one the memory names. Somebody else's VM of that name is never touched.
        """
        ...

    def statuses(self) -> Cache[MachineStatus]:
        """What is seen of every machine this port was told about (by `ensure` or `watch_over`), by machine uid."""
        ...

    def track(self, config: DriverConfig) -> None:
        """Start seeing a machine known from the ledger, after a restart. May be repeated."""
        ...


def synthetic_uid(driver: str, machine_uid: str) -> str:
    """What stands for the VM's uid where the driver tells none: that the machine was made, and by whom."""
    return f"{driver}:{machine_uid}"


def is_synthetic_uid(vm_uid: str) -> bool:
    """Whether this `WindrowVMUID` is a stand-in: a plugin made the VM that knows no marks, so its lack of them says
    nothing."""
    return ":" in vm_uid
