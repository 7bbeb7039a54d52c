"""The port Machines: how the cluster controller creates, powers and removes machines, with any node driver.

Level-triggered: every verb may be repeated, and continues from what exists. Adapters: `harvester` (the built-in node
driver against the Harvester API) and `plugin` (any docker-machine plugin).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Protocol

from windrow.client.informer import Cache
from windrow.core.errors import UserError
from windrow.harvester.problems import Problem as Problem
from windrow.harvester.status import MachineStatus as MachineStatus

# The built-in node driver, and the key of a DriverConfig that names any other driver.
HARVESTER = "harvester"
DRIVER_KEY = "WindrowDriver"
# Fields of a machine config object that are no driver options: those of Kubernetes, and Rancher's own.
NOT_OPTIONS = frozenset({"apiVersion", "kind", "metadata", "status", "common", "providerID"})


class Power(Enum):
    ON = "on"
    OFF = "off"
    RESTART = "restart"


# docker-machine's config.json (its `Driver` object, reference/01 §3.3) as a dict, the same in every adapter, so a
# machine may change adapters. Keys of our own start with "Windrow"; Go drivers ignore them.
DriverConfig = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class StaticAddress:
    """An address that a machine shall have on one of its networks, `namespace/name` on Harvester."""

    network: str
    address: str
    prefix: int
    gateway: str = ""
    nameservers: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class MachineSpec:
    """Everything that is needed to create one machine.

    `options` are the fields of the driver's machine config object (camelCase names of its flags; strings as Rancher
    writes them, or structured values). `cloud_config` is the bootstrap document, which rancher-machine would pass by
    file; the driver merges it after the user's `userData`.
    """

    name: str
    machine_uid: str
    cluster_name: str
    cluster_uid: str
    credential: str  # "namespace:name" of the credential Secret
    options: Mapping[str, Any]
    cloud_config: str = field(repr=False)
    driver: str = HARVESTER  # the name of the node driver
    harvester_uid: str = ""  # identity of the Harvester that the cluster is on, "" before its first machine
    addresses: tuple[StaticAddress, ...] = ()  # claimed for it; it gets no others on their networks


def initial_driver_config(spec: MachineSpec) -> DriverConfig:
    """The config of a machine that was not created yet: enough for `remove` and `track` if the result of `ensure` is
    lost. A config with a `WindrowVMUID` belongs to a machine that was created; this one has none.
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
    """The name of the node driver that the config belongs to."""
    return str(config.get(DRIVER_KEY) or HARVESTER)


class MachineRefused(Exception):
    """The machine cannot be created or changed as specified; repeating the request unchanged is useless."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        super().__init__("; ".join(str(problem) for problem in problems))
        self.problems = tuple(problems)


class ReplaceUserDataUnsupported(UserError):
    """The machine's driver cannot replace its user data; repeating the request is useless."""


class EditUnsupported(UserError):
    """The machine's driver cannot edit a machine that exists; repeating the request is useless."""


class InfrastructureUnknown(UserError):
    """The state at the infrastructure could not be read (401, 403, time-out, another Harvester).

    `may_be_made`: a request to create the machine was sent, and may be carried out later.
    """

    def __init__(self, message: str, hint: str, *, may_be_made: bool = False) -> None:
        super().__init__(message, hint)
        self.may_be_made = may_be_made


class Machines(Protocol):
    async def check(self, specs: Sequence[MachineSpec]) -> list[Problem]:
        """All problems of all specs; creates nothing. Raises InfrastructureUnknown."""
        ...

    async def plan(self, spec: MachineSpec) -> DriverConfig:
        """The config to record before `ensure`: an `initial_driver_config` with the identity of the Harvester and the
        names of the PersistentVolumeClaims.

        Creates nothing. With it, everything that `ensure` creates can be found and removed, on that Harvester alone.
        Raises MachineRefused, InfrastructureUnknown, the latter also where the credential leads to another Harvester
        than `spec.harvester_uid`.
        """
        ...

    async def ensure(self, spec: MachineSpec, config: DriverConfig | None) -> DriverConfig:
        """Create the machine, and return once the infrastructure has accepted it (it need not run yet).

        With `config` it continues from what exists; a machine that was created once (its config holds a
        `WindrowVMUID`) is never created again for the same Machine, even when it is missing.
        Raises MachineRefused, after which nothing of it is made, and InfrastructureUnknown, which says whether it may be.
        """
        ...

    async def power(self, config: DriverConfig, wanted: Power) -> DriverConfig:
        """Request a power state; does not wait for it."""
        ...

    async def replace_user_data(self, config: DriverConfig, cloud_config: str) -> DriverConfig:
        """Replace the user data that the machine reads at its next start (used to scrub bootstrap secrets).

        Raises MachineRefused, InfrastructureUnknown, ReplaceUserDataUnsupported.
        """
        ...

    async def edit(self, config: DriverConfig, options: Mapping[str, Any]) -> DriverConfig:
        """Give the machine what `options` ask for and can be changed on one that exists: processor, memory, affinity, and
        larger disks (`nodedriver.vm.edit`). It counts from the next start, and may be repeated. Of the other options nothing
        is changed.

        Raises MachineRefused, InfrastructureUnknown, EditUnsupported.
        """
        ...

    async def remove(self, config: DriverConfig, volumes: frozenset[str]) -> None:
        """Request the removal of the machine, of the disks created for it and of the claims named in `volumes`.

        Returns once it is accepted; a machine that does not exist counts as removed, and `statuses` shows when it is
        gone. Takes an `initial_driver_config` too. Raises InfrastructureUnknown, also where the credential leads to
        another Harvester than the config records, and with `may_be_made` where a creation has ended without an answer
        since the last call. A VM of that name with another owner is never touched.
        """
        ...

    async def read_status(self, config: DriverConfig) -> MachineStatus:
        """The status of a machine that was created, read now, for a decision that must not rest on an older one.

        "unknown" where the infrastructure does not say. Raises InfrastructureUnknown.
        """
        ...

    def statuses(self) -> Cache[MachineStatus]:
        """The status of every machine that was given to `ensure` or `track`, by machine uid."""
        ...

    def track(self, config: DriverConfig) -> None:
        """Keep the status of an existing machine current, for example after a restart. May be repeated."""
        ...


def synthetic_uid(driver: str, machine_uid: str) -> str:
    """The `WindrowVMUID` of a machine whose driver reports no uid: it says that the machine was created, and by what."""
    return f"{driver}:{machine_uid}"


def is_synthetic_uid(vm_uid: str) -> bool:
    """Whether this `WindrowVMUID` is a `synthetic_uid`: a plugin without owner annotations created the VM, so that
    their absence proves nothing."""
    return ":" in vm_uid
