"""Machines in memory: a double that behaves.

It keeps state, remembers every call, fails when told to, and refuses worlds that cannot be (a running machine
without a disk does not exist here either). Time stands where the clock stands; nothing happens between calls, so
tests move machines with `boot`, `stop`, `lose`, …; with `prompt=True` (the default) an ordered machine runs and has
its address at once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from windrow.client.cache import Cache
from windrow.machines.board import Board, dated
from windrow.machines.port import (
    InfrastructureUnknown,
    MachineRefused,
    MachineSpec,
    Memory,
    Power,
    Problem,
    Sighting,
    planned_memory,
)
from windrow.values.chance import Chance
from windrow.values.clock import Clock

Verb = Literal["check", "plan", "ensure", "power", "rewrite", "remove"]
HARVESTER = "harvester-in-memory"


class ImpossibleWorld(AssertionError):
    """The test asked for something that no Harvester would show."""


@dataclass(frozen=True, slots=True)
class Ordered:
    """One call, as it came in."""

    verb: Verb
    machine: str
    detail: str = ""


@dataclass(slots=True)
class _Machine:
    """A VM as the double keeps it."""

    spec_name: str
    namespace: str
    machine_uid: str
    cluster_uid: str
    credential: str
    vm_uid: str
    claims: tuple[str, ...]
    document: str = field(repr=False)
    state: Any = "provisioning"
    addresses: tuple[str, ...] = ()
    host: str = ""
    host_ready: bool | None = None
    agent_connected: bool | None = None
    because: str = ""
    removal_hangs: bool = False
    is_marked: bool = True


class MemoryMachines:
    """The port Machines with a dictionary behind it. Promises: those of the port, and `run()` is not needed."""

    def __init__(
        self,
        clock: Clock,
        chance: Chance | None = None,
        *,
        prompt: bool = True,
        board: Board[Sighting] | None = None,
    ) -> None:
        self.calls: list[Ordered] = []
        self.claims: set[str] = set()  # every "namespace/name" claim that exists
        self.prompt = prompt
        self._clock = clock
        self._chance = chance or Chance(0)
        self._machines: dict[tuple[str, str], _Machine] = {}
        self._watched: dict[str, Memory] = {}
        self._board: Board[Sighting] = board if board is not None else Board()
        self._failures: dict[str, list[Exception]] = {}
        self._revoked: dict[str, str] = {}
        self._problems: list[Callable[[MachineSpec], Problem | None]] = []
        self._next_address = 10

    # The port.

    async def check(self, specs: Sequence[MachineSpec]) -> list[Problem]:
        for spec in specs:
            self._enter("check", spec.name, spec.credential)
        return [problem for spec in specs for problem in self._wrong_with(spec)]

    async def plan(self, spec: MachineSpec) -> Memory:
        self._enter("plan", spec.name, spec.credential)
        self._accept(spec)
        return {
            **planned_memory(spec),
            "WindrowHarvesterUID": HARVESTER,
            "WindrowClaims": list(_claims_of(spec)),
        }

    async def ensure(self, spec: MachineSpec, memory: Memory | None) -> Memory:
        planned = planned_memory(spec)
        self._enter("ensure", spec.name, spec.credential, spec.cloud_config)
        self.watch_over(memory or planned)
        if memory is not None and memory.get("WindrowVMUID"):
            return memory
        self._accept(spec)
        self._compare_identity(memory or planned)
        machine = self._made(spec, planned["VMNamespace"])
        made = {
            **planned,
            "IPAddress": "",
            "WindrowHarvesterUID": HARVESTER,
            "WindrowVMUID": machine.vm_uid,
            "WindrowClaims": list(machine.claims),
        }
        self.watch_over(made)
        return made

    async def power(self, memory: Memory, wanted: Power) -> Memory:
        self._enter("power", memory["MachineName"], memory["WindrowCredential"], wanted.value)
        machine = self._mine(memory)
        if machine is None:
            raise MachineRefused(
                [
                    Problem(
                        f"machine {memory['MachineName']} is not there", "replace it instead of powering it"
                    )
                ]
            )
        if not machine.is_marked:
            raise MachineRefused([_unmarked(machine)])
        match wanted, machine.state:
            case (Power.ON, "running") | (Power.OFF, "stopped"):
                pass
            case (Power.OFF, _):
                self.stop(machine.spec_name)
            case (_, _):
                machine.addresses, machine.agent_connected, machine.state = (), None, "starting"
                self._show(machine)
                if self.prompt:
                    self.boot(machine.spec_name)
        return memory

    async def rewrite(self, memory: Memory, cloud_config: str) -> Memory:
        self._enter("rewrite", memory["MachineName"], memory["WindrowCredential"], cloud_config)
        machine = self._mine(memory)
        if machine is None:
            raise MachineRefused(
                [Problem(f"machine {memory['MachineName']} is not there", "there is nothing to rewrite")]
            )
        machine.document = cloud_config
        return memory

    async def remove(self, memory: Memory, volumes: frozenset[str]) -> None:
        self._enter("remove", memory["MachineName"], memory["WindrowCredential"], ",".join(sorted(volumes)))
        self._compare_identity(memory)
        machine = self._machines.get((memory["VMNamespace"], memory["MachineName"]))
        if machine is None or machine.machine_uid != memory["WindrowMachineUID"]:
            left = {*memory.get("WindrowClaims", ()), *volumes}
            self.claims -= {f"{memory['VMNamespace']}/{claim}" for claim in left}
            return self._show_missing(memory["WindrowMachineUID"], memory["MachineName"])
        if not machine.is_marked:
            raise MachineRefused([_unmarked(machine)])
        self.claims -= {f"{machine.namespace}/{claim}" for claim in volumes}
        machine.state = "deleting"
        self._show(machine)
        if not machine.removal_hangs:
            self._vanish(machine)
        return None

    def sightings(self) -> Cache[Sighting]:
        return self._board

    def watch_over(self, memory: Memory) -> None:
        uid = memory["WindrowMachineUID"]
        self._watched[uid] = memory
        self._look(uid)

    # What tests do to the world.

    def boot(self, name: str, *addresses: str, host: str = "host-1") -> None:
        """The machine runs, its agent is connected, and it has these addresses (or the next free one)."""
        machine = self._named(name)
        self._refuse_taken(machine, addresses)
        machine.state, machine.host, machine.host_ready = "running", host, True
        machine.addresses, machine.agent_connected = addresses or self._lease(), True
        machine.because = ""
        self._show(machine)

    def set_state(self, name: str, state: str, because: str = "") -> None:
        """Any other state of Sighting, with the infrastructure's words about it."""
        machine = self._named(name)
        machine.state, machine.because = state, because
        if state in ("stopped", "failed", "provisioning", "starting"):
            machine.addresses, machine.agent_connected = (), None
        self._show(machine)

    def stop(self, name: str) -> None:
        """The machine is down; it can be started again."""
        self.set_state(name, "stopped")

    def fail_machine(self, name: str, because: str) -> None:
        """The machine cannot run: `because`."""
        self.set_state(name, "failed", because)

    def set_addresses(self, name: str, *addresses: str) -> None:
        """The agent reports other addresses, or none. Only a running machine has any."""
        machine = self._named(name)
        if addresses and machine.state != "running":
            raise ImpossibleWorld(f"{name} is {machine.state}: only a running machine has addresses")
        self._refuse_taken(machine, addresses)
        machine.addresses = addresses
        self._show(machine)

    def set_host(self, name: str, host: str, ready: bool | None = True) -> None:
        machine = self._named(name)
        machine.host, machine.host_ready = host, ready
        self._show(machine)

    def set_agent(self, name: str, connected: bool) -> None:
        machine = self._named(name)
        machine.agent_connected = connected
        self._show(machine)

    def lose(self, name: str) -> None:
        """Somebody else deleted the VM; its own disks survive, as they do on a Harvester."""
        machine = self._named(name)
        del self._machines[machine.namespace, machine.spec_name]
        self._show_missing(machine.machine_uid, machine.spec_name)

    def hang_removal(self, name: str) -> None:
        """From now on a removal of this machine stays in `deleting` until `finish_removal`."""
        self._named(name).removal_hangs = True

    def finish_removal(self, name: str) -> None:
        machine = self._named(name)
        if machine.state != "deleting":
            raise ImpossibleWorld(f"nobody ordered the removal of {name}")
        self._vanish(machine)

    def put_foreign(self, namespace: str, name: str) -> None:
        """Somebody else's VM stands under this name."""
        self._machines[namespace, name] = _Machine(
            name, namespace, "", "", "", self._chance.uid(), (), "", state="running"
        )

    def set_marks(self, name: str, present: bool) -> None:
        """Somebody takes the marks off the VM that say whose it is, or puts them back."""
        machine = self._named(name)
        machine.is_marked = present
        self._show(machine)

    def revoke(self, credential: str, because: str = "the Harvester answers 401 Unauthorized") -> None:
        """Nothing can be asked with this credential any more: every machine behind it is unknown."""
        self._revoked[credential] = because
        self._look_again()

    def restore(self, credential: str) -> None:
        self._revoked.pop(credential, None)
        self._look_again()

    def fail(self, verb: Verb, error: Exception, times: int = 1) -> None:
        """The next `times` calls of `verb` raise `error`, before they do anything."""
        self._failures.setdefault(verb, []).extend([error] * times)

    def refuse(self, wrong: Callable[[MachineSpec], Problem | None]) -> None:
        """`check` and `ensure` find what `wrong` finds."""
        self._problems.append(wrong)

    # What tests look at.

    def names(self) -> list[str]:
        """Every VM there is."""
        return sorted(machine.spec_name for machine in self._machines.values())

    def document(self, name: str) -> str:
        """The bootstrap document that the machine reads at its next start."""
        return self._named(name).document

    def ordered(self, verb: Verb) -> list[str]:
        """The machine names that calls of `verb` came with, in order."""
        return [call.machine for call in self.calls if call.verb == verb]

    # Inside.

    def _enter(self, verb: Verb, machine: str, credential: str, detail: str = "") -> None:
        self.calls.append(Ordered(verb, machine, detail))
        if waiting := self._failures.get(verb):
            raise waiting.pop(0)
        if because := self._revoked.get(credential):
            raise InfrastructureUnknown(
                f"credential {credential}: {because}", "put a valid kubeconfig into the credential Secret"
            )

    def _wrong_with(self, spec: MachineSpec) -> list[Problem]:
        found = (wrong(spec) for wrong in self._problems)
        return [problem for problem in found if problem is not None]

    def _accept(self, spec: MachineSpec) -> None:
        if problems := [problem for problem in self._wrong_with(spec) if problem.severity == "error"]:
            raise MachineRefused(problems)

    def _made(self, spec: MachineSpec, namespace: str) -> _Machine:
        there = self._machines.get((namespace, spec.name))
        if there is not None and there.machine_uid == spec.machine_uid:
            return there
        if there is not None:
            raise MachineRefused(
                [
                    Problem(
                        f"a VM {namespace}/{spec.name} exists and is not this machine's",
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
            vm_uid=self._chance.uid(),
            claims=_claims_of(spec),
            document=spec.cloud_config,
        )
        self._machines[namespace, spec.name] = machine
        self.claims |= {f"{namespace}/{claim}" for claim in machine.claims}
        self._show(machine)
        if self.prompt:
            self.boot(spec.name)
        return machine

    def _mine(self, memory: Memory) -> _Machine | None:
        self._compare_identity(memory)
        machine = self._machines.get((memory["VMNamespace"], memory["MachineName"]))
        return machine if machine is not None and machine.machine_uid == memory["WindrowMachineUID"] else None

    def _compare_identity(self, memory: Memory) -> None:
        recorded = memory.get("WindrowHarvesterUID") or HARVESTER
        if recorded != HARVESTER:
            raise InfrastructureUnknown(
                f"credential {memory['WindrowCredential']} leads to Harvester {HARVESTER}, not to {recorded}",
                "put the kubeconfig of the right Harvester into the credential Secret",
            )

    def _named(self, name: str) -> _Machine:
        for machine in self._machines.values():
            if machine.spec_name == name:
                return machine
        raise ImpossibleWorld(f"there is no machine {name}; there are {', '.join(self.names()) or 'none'}")

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
                raise ImpossibleWorld(f"{address} already belongs to {taken[address]}")

    def _vanish(self, machine: _Machine) -> None:
        del self._machines[machine.namespace, machine.spec_name]
        self.claims -= {f"{machine.namespace}/{claim}" for claim in machine.claims}
        self._show_missing(machine.machine_uid, machine.spec_name)

    def _look_again(self) -> None:
        for uid in self._watched:
            self._look(uid)

    def _look(self, uid: str) -> None:
        memory = self._watched[uid]
        if because := self._revoked.get(memory["WindrowCredential"]):
            return self._pin(
                Sighting(
                    uid,
                    memory["MachineName"],
                    "unknown",
                    because=f"credential {memory['WindrowCredential']}: {because}",
                )
            )
        machine = self._machines.get((memory["VMNamespace"], memory["MachineName"]))
        if machine is not None and machine.machine_uid == uid:
            return self._show(machine)
        # Before its order came through a machine is not missing, it was never there: nothing is pinned.
        if memory.get("WindrowVMUID"):
            return self._show_missing(uid, memory["MachineName"])
        return None

    def _show(self, machine: _Machine) -> None:
        if machine.machine_uid not in self._watched or machine.credential in self._revoked:
            return
        if not machine.is_marked:
            because = str(_unmarked(machine))
            self._pin(Sighting(machine.machine_uid, machine.spec_name, "unknown", because=because))
            return
        is_up = machine.state in ("running", "migrating")
        self._pin(
            Sighting(
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
        )

    def _show_missing(self, uid: str, name: str) -> None:
        if uid in self._watched and self._watched[uid]["WindrowCredential"] not in self._revoked:
            self._pin(Sighting(uid, name, "missing", because=f"VM {name} is not there"))

    def _pin(self, sighting: Sighting) -> None:
        before = self._board.get(sighting.machine_uid)
        self._board.put(sighting.machine_uid, dated(before, sighting, self._clock.now()))


def _unmarked(machine: _Machine) -> Problem:
    return Problem(
        f"VM {machine.namespace}/{machine.spec_name} does not say any more that it is this machine's",
        "put its marks back, or delete it by hand",
    )


def _claims_of(spec: MachineSpec) -> tuple[str, ...]:
    return (f"{spec.name}-disk-0-{Chance(spec.machine_uid).suffix()}",)
