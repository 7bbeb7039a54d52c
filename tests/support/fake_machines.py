"""MemoryMachines: a double of the port Machines with behaviour.

It keeps state, records every call, fails on request, and refuses impossible states (a stopped machine has no address).
Time is the clock's; nothing happens between calls, so tests change machines with `boot`, `stop`, `delete_vm`, …; with
`auto_boot=True` (the default) a created machine runs and has its address at once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from windrow.client.informer import Cache
from windrow.core.clock import Clock
from windrow.core.rng import Rng
from windrow.harvester.connection import describe_credential
from windrow.machines.port import (
    DriverConfig,
    InfrastructureUnknown,
    MachineRefused,
    MachineSpec,
    MachineStatus,
    Power,
    Problem,
    initial_driver_config,
)
from windrow.machines.status_store import StatusStore

Verb = Literal["check", "plan", "ensure", "power", "replace_user_data", "edit", "remove", "read_status"]
HARVESTER = "harvester-in-memory"


class ImpossibleState(AssertionError):
    """The test asked for a state that no Harvester has."""


@dataclass(frozen=True, slots=True)
class RecordedCall:
    """One recorded call."""

    verb: Verb
    machine: str
    detail: str = ""


@dataclass(slots=True)
class _Machine:
    """A VM of the double."""

    spec_name: str
    namespace: str
    machine_uid: str
    cluster_uid: str
    credential: str
    vm_uid: str
    claims: tuple[str, ...]
    cloud_config: str = field(repr=False)
    state: Any = "provisioning"
    addresses: tuple[str, ...] = ()
    host: str = ""
    host_ready: bool | None = None
    agent_connected: bool | None = None
    because: str = ""
    removal_hangs: bool = False
    has_owner_annotations: bool = True
    cpu: int = 2
    memory_gib: int = 4


class MemoryMachines:
    """The port Machines with a dictionary behind it. Promises: those of the port, and `run()` is not needed."""

    def __init__(
        self,
        clock: Clock,
        rng: Rng | None = None,
        *,
        auto_boot: bool = True,
        store: StatusStore | None = None,
    ) -> None:
        self.calls: list[RecordedCall] = []
        self.claims: set[str] = set()  # every "namespace/name" claim that exists
        self.auto_boot = auto_boot
        self._clock = clock
        self._rng = rng or Rng(0)
        self._machines: dict[tuple[str, str], _Machine] = {}
        self._tracked: dict[str, DriverConfig] = {}
        self._store = store if store is not None else StatusStore()
        self._failures: dict[str, list[Exception]] = {}
        self._revoked: dict[str, str] = {}
        self._problems: list[Callable[[MachineSpec], Problem | None]] = []
        self._next_address = 10

    # The port.

    async def check(self, specs: Sequence[MachineSpec]) -> list[Problem]:
        for spec in specs:
            self._record_call("check", spec.name, spec.credential)
        return [problem for spec in specs for problem in self._problems_of(spec)]

    async def plan(self, spec: MachineSpec) -> DriverConfig:
        self._record_call("plan", spec.name, spec.credential)
        self._require_valid(spec)
        self._compare_identity(
            {"WindrowHarvesterUID": spec.harvester_uid, "WindrowCredential": spec.credential}
        )
        return {
            **initial_driver_config(spec),
            "WindrowHarvesterUID": HARVESTER,
            "WindrowClaims": list(_claims_of(spec)),
        }

    async def ensure(self, spec: MachineSpec, config: DriverConfig | None) -> DriverConfig:
        planned = initial_driver_config(spec)
        self._record_call("ensure", spec.name, spec.credential, spec.cloud_config)
        self.track(config or planned)
        if config is not None and config.get("WindrowVMUID"):
            return config
        self._require_valid(spec)
        self._compare_identity(config or planned)
        machine = self._create(spec, planned["VMNamespace"])
        made = {
            **planned,
            "IPAddress": "",
            "WindrowHarvesterUID": HARVESTER,
            "WindrowVMUID": machine.vm_uid,
            "WindrowClaims": list(machine.claims),
        }
        self.track(made)
        return made

    async def power(self, config: DriverConfig, wanted: Power) -> DriverConfig:
        self._record_call("power", config["MachineName"], config["WindrowCredential"], wanted.value)
        machine = self._owned(config)
        if machine is None:
            raise MachineRefused(
                [
                    Problem(
                        f"machine {config['MachineName']} not found",
                        "delete the Machine; its pool creates another",
                    )
                ]
            )
        if not machine.has_owner_annotations:
            raise MachineRefused([_unowned_problem(machine)])
        match wanted, machine.state:
            case (Power.ON, "running") | (Power.OFF, "stopped"):
                pass
            case (Power.OFF, _):
                self.stop(machine.spec_name)
            case (_, _):
                machine.addresses, machine.agent_connected, machine.state = (), None, "starting"
                self._put_present(machine)
                if self.auto_boot:
                    self.boot(machine.spec_name)
        return config

    async def replace_user_data(self, config: DriverConfig, cloud_config: str) -> DriverConfig:
        self._record_call(
            "replace_user_data", config["MachineName"], config["WindrowCredential"], cloud_config
        )
        machine = self._owned(config)
        if machine is None:
            raise MachineRefused(
                [
                    Problem(
                        f"machine {config['MachineName']} not found",
                        "delete the Machine; its pool creates another",
                    )
                ]
            )
        machine.cloud_config = cloud_config
        return config

    async def edit(self, config: DriverConfig, options: Mapping[str, Any]) -> DriverConfig:
        self._record_call("edit", config["MachineName"], config["WindrowCredential"])
        machine = self._owned(config)
        if machine is None:
            raise MachineRefused(
                [
                    Problem(
                        f"machine {config['MachineName']} not found",
                        "delete the Machine; its pool creates another",
                    )
                ]
            )
        machine.cpu, machine.memory_gib = int(options["cpuCount"]), int(options["memorySize"])
        return {**config, "CPU": machine.cpu, "MemorySize": f"{machine.memory_gib}Gi"}

    async def remove(self, config: DriverConfig, volumes: frozenset[str]) -> None:
        self._record_call(
            "remove", config["MachineName"], config["WindrowCredential"], ",".join(sorted(volumes))
        )
        self._compare_identity(config)
        machine = self._machines.get((config["VMNamespace"], config["MachineName"]))
        if machine is None or machine.machine_uid != config["WindrowMachineUID"]:
            left = {*config.get("WindrowClaims", ()), *volumes}
            self.claims -= {f"{config['VMNamespace']}/{claim}" for claim in left}
            return self._put_missing(config["WindrowMachineUID"], config["MachineName"])
        if not machine.has_owner_annotations:
            raise MachineRefused([_unowned_problem(machine)])
        self.claims -= {f"{machine.namespace}/{claim}" for claim in volumes}
        machine.state = "deleting"
        self._put_present(machine)
        if not machine.removal_hangs:
            self._delete(machine)
        return None

    async def read_status(self, config: DriverConfig) -> MachineStatus:
        self._record_call("read_status", config["MachineName"], config["WindrowCredential"])
        self._compare_identity(config)
        if (machine := self._owned(config)) is None:
            return MachineStatus(config["WindrowMachineUID"], config["MachineName"], "missing")
        return _status_of(machine)

    def statuses(self) -> Cache[MachineStatus]:
        return self._store

    def track(self, config: DriverConfig) -> None:
        uid = config["WindrowMachineUID"]
        self._tracked[uid] = config
        self._refresh(uid)

    # Changes by tests.

    def boot(self, name: str, *addresses: str, host: str = "host-1") -> None:
        """The machine runs, its agent is connected, and it has these addresses (or the next free one)."""
        machine = self._get(name)
        self._refuse_taken(machine, addresses)
        machine.state, machine.host, machine.host_ready = "running", host, True
        machine.addresses, machine.agent_connected = addresses or self._lease(), True
        machine.because = ""
        self._put_present(machine)

    def set_state(self, name: str, state: str, because: str = "") -> None:
        """Set any other state of MachineStatus, with the infrastructure's message about it."""
        machine = self._get(name)
        machine.state, machine.because = state, because
        if state in ("stopped", "failed", "provisioning", "starting"):
            machine.addresses, machine.agent_connected = (), None
        self._put_present(machine)

    def stop(self, name: str) -> None:
        """The machine is down; it can be started again."""
        self.set_state(name, "stopped")

    def fail_machine(self, name: str, because: str) -> None:
        """The machine cannot run: `because`."""
        self.set_state(name, "failed", because)

    def set_addresses(self, name: str, *addresses: str) -> None:
        """The agent reports other addresses, or none. Only a running machine has any."""
        machine = self._get(name)
        if addresses and machine.state != "running":
            raise ImpossibleState(f"{name} is {machine.state}: only a running machine has addresses")
        self._refuse_taken(machine, addresses)
        machine.addresses = addresses
        self._put_present(machine)

    def set_host(self, name: str, host: str, ready: bool | None = True) -> None:
        machine = self._get(name)
        machine.host, machine.host_ready = host, ready
        self._put_present(machine)

    def set_agent(self, name: str, connected: bool) -> None:
        machine = self._get(name)
        machine.agent_connected = connected
        self._put_present(machine)

    def delete_vm(self, name: str) -> None:
        """The VM is deleted at the infrastructure; its claims stay, as they do on a Harvester."""
        machine = self._get(name)
        del self._machines[machine.namespace, machine.spec_name]
        self._put_missing(machine.machine_uid, machine.spec_name)

    def hang_removal(self, name: str) -> None:
        """From now on a removal of this machine stays in `deleting` until `finish_removal`."""
        self._get(name).removal_hangs = True

    def finish_removal(self, name: str) -> None:
        machine = self._get(name)
        if machine.state != "deleting":
            raise ImpossibleState(f"the removal of {name} was not requested")
        self._delete(machine)

    def put_foreign(self, namespace: str, name: str) -> None:
        """A VM with another owner has this name."""
        self._machines[namespace, name] = _Machine(
            name, namespace, "", "", "", self._rng.uid(), (), "", state="running"
        )

    def set_owner_annotations(self, name: str, present: bool) -> None:
        """Remove the owner annotations of the VM, or restore them."""
        machine = self._get(name)
        machine.has_owner_annotations = present
        self._put_present(machine)

    def revoke(self, credential: str, because: str = "the Harvester answers 401 Unauthorized") -> None:
        """The credential is rejected from now on: every machine of it is unknown."""
        self._revoked[credential] = because
        self._refresh_all()

    def restore(self, credential: str) -> None:
        self._revoked.pop(credential, None)
        self._refresh_all()

    def fail(self, verb: Verb, error: Exception, times: int = 1) -> None:
        """The next `times` calls of `verb` raise `error`, before they do anything."""
        self._failures.setdefault(verb, []).extend([error] * times)

    def reject(self, wrong: Callable[[MachineSpec], Problem | None]) -> None:
        """`check` and `ensure` report the problems of `wrong`."""
        self._problems.append(wrong)

    # Queries by tests.

    def vm_names(self) -> list[str]:
        """The names of all VMs."""
        return sorted(machine.spec_name for machine in self._machines.values())

    def cloud_config(self, name: str) -> str:
        """The user data that the machine reads at its next start."""
        return self._get(name).cloud_config

    def size(self, name: str) -> tuple[int, str]:
        """The CPUs and the memory that the machine has from its next start."""
        machine = self._get(name)
        return machine.cpu, f"{machine.memory_gib}Gi"

    def calls_of(self, verb: Verb) -> list[str]:
        """The machine names that calls of `verb` came with, in order."""
        return [call.machine for call in self.calls if call.verb == verb]

    # Internals.

    def _record_call(self, verb: Verb, machine: str, credential: str, detail: str = "") -> None:
        self.calls.append(RecordedCall(verb, machine, detail))
        if waiting := self._failures.get(verb):
            raise waiting.pop(0)
        if because := self._revoked.get(credential):
            raise InfrastructureUnknown(
                f"{describe_credential(credential)}: {because}",
                "put a valid kubeconfig into the credential Secret",
            )

    def _problems_of(self, spec: MachineSpec) -> list[Problem]:
        found = (wrong(spec) for wrong in self._problems)
        return [problem for problem in found if problem is not None]

    def _require_valid(self, spec: MachineSpec) -> None:
        if problems := [problem for problem in self._problems_of(spec) if problem.severity == "error"]:
            raise MachineRefused(problems)

    def _create(self, spec: MachineSpec, namespace: str) -> _Machine:
        existing = self._machines.get((namespace, spec.name))
        if existing is not None and existing.machine_uid == spec.machine_uid:
            return existing
        if existing is not None:
            raise MachineRefused(
                [
                    Problem(
                        f"a VM {namespace}/{spec.name} exists and has another owner",
                        "choose another name, or remove that VM",
                    )
                ]
            )
        machine = _Machine(
            spec_name=spec.name,
            namespace=namespace,
            machine_uid=spec.machine_uid,
            cluster_uid=spec.cluster_uid,
            credential=spec.credential,
            vm_uid=self._rng.uid(),
            claims=_claims_of(spec),
            cloud_config=spec.cloud_config,
        )
        self._machines[namespace, spec.name] = machine
        self.claims |= {f"{namespace}/{claim}" for claim in machine.claims}
        self._put_present(machine)
        if self.auto_boot:
            self.boot(spec.name)
        return machine

    def _owned(self, config: DriverConfig) -> _Machine | None:
        self._compare_identity(config)
        machine = self._machines.get((config["VMNamespace"], config["MachineName"]))
        return machine if machine is not None and machine.machine_uid == config["WindrowMachineUID"] else None

    def _compare_identity(self, config: DriverConfig) -> None:
        recorded = config.get("WindrowHarvesterUID") or HARVESTER
        if recorded != HARVESTER:
            raise InfrastructureUnknown(
                f"{describe_credential(config['WindrowCredential'])} leads to Harvester {HARVESTER}, not to {recorded}",
                "put the kubeconfig of the right Harvester into the credential Secret",
            )

    def _get(self, name: str) -> _Machine:
        for machine in self._machines.values():
            if machine.spec_name == name:
                return machine
        raise ImpossibleState(f"no machine {name}; existing are {', '.join(self.vm_names()) or 'none'}")

    def _lease(self) -> tuple[str, ...]:
        self._next_address += 1
        return (f"10.52.0.{self._next_address}",)

    def _refuse_taken(self, machine: _Machine, addresses: tuple[str, ...]) -> None:
        taken = {
            address: other.spec_name
            for other in self._machines.values()
            if other is not machine
            for address in other.addresses
        }
        for address in addresses:
            if address in taken:
                raise ImpossibleState(f"{address} already belongs to {taken[address]}")

    def _delete(self, machine: _Machine) -> None:
        del self._machines[machine.namespace, machine.spec_name]
        self.claims -= {f"{machine.namespace}/{claim}" for claim in machine.claims}
        self._put_missing(machine.machine_uid, machine.spec_name)

    def _refresh_all(self) -> None:
        for uid in self._tracked:
            self._refresh(uid)

    def _refresh(self, uid: str) -> None:
        config = self._tracked[uid]
        if because := self._revoked.get(config["WindrowCredential"]):
            return self._put(
                MachineStatus(
                    uid,
                    config["MachineName"],
                    "unknown",
                    because=f"{describe_credential(config['WindrowCredential'])}: {because}",
                )
            )
        machine = self._machines.get((config["VMNamespace"], config["MachineName"]))
        if machine is not None and machine.machine_uid == uid:
            return self._put_present(machine)
        # A machine that was never created is not missing: it has no status.
        if config.get("WindrowVMUID"):
            return self._put_missing(uid, config["MachineName"])
        return None

    def _put_present(self, machine: _Machine) -> None:
        if machine.machine_uid not in self._tracked or machine.credential in self._revoked:
            return
        self._put(_status_of(machine))

    def _put_missing(self, uid: str, name: str) -> None:
        if uid in self._tracked and self._tracked[uid]["WindrowCredential"] not in self._revoked:
            self._put(MachineStatus(uid, name, "missing", because=f"VirtualMachine {name} not found"))

    def _put(self, status: MachineStatus) -> None:
        self._store.update(status, self._clock.now())


def _unowned_problem(machine: _Machine) -> Problem:
    return Problem(
        f"VirtualMachine {machine.namespace}/{machine.spec_name} lacks the owner annotations of this machine",
        "restore its owner annotations, or delete it",
    )


def _claims_of(spec: MachineSpec) -> tuple[str, ...]:
    return (f"{spec.name}-disk-0-{Rng(spec.machine_uid).name_suffix()}",)


def _status_of(machine: _Machine) -> MachineStatus:
    if not machine.has_owner_annotations:
        because = str(_unowned_problem(machine))
        return MachineStatus(machine.machine_uid, machine.spec_name, "unknown", because=because)
    is_up = machine.state in ("running", "migrating")
    return MachineStatus(
        machine_uid=machine.machine_uid,
        name=machine.spec_name,
        presence="present",
        vm_uid=machine.vm_uid,
        state=machine.state,
        addresses=machine.addresses if is_up else (),
        host=machine.host,
        host_ready=machine.host_ready,
        agent_connected=machine.agent_connected if is_up else None,
        because=machine.because,
    )
