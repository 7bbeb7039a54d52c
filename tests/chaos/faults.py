"""Faults and operations of a chaos run as values, and the pure plan that draws them from a seed.

`plan_rounds(seed, setup)` is the whole run, decided before anything starts: which operation a user asks for in each
round, and which faults strike meanwhile, when and for how long. Nothing here does anything; `runner` does.

    round    a user's operation (create, scale, roll, delete) and faults beside it; then rest, then the invariants
    at_s     when a fault begins, in seconds after the operation
    for_s    how long it lasts
    pick     which one of those that there are: an index, taken modulo their number when the fault strikes
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields, replace
from itertools import count
from typing import Any, Literal

from windrow.core.rng import Rng

# embedded: one manager with a database of its own. plugins: the same, machines made by plugin processes. replicas: two
# managers that keep their objects in another Kubernetes and compete for its Lease.
Setup = Literal["embedded", "plugins", "replicas"]
SETUPS: tuple[Setup, ...] = ("embedded", "plugins", "replicas")

# -- operations --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Create:
    """The Cluster is created."""

    servers: int
    workers: int


@dataclass(frozen=True, slots=True)
class Scale:
    """The pool of workers gets another quantity."""

    workers: int


@dataclass(frozen=True, slots=True)
class RollOut:
    """The workers get another memory size, so that each is replaced."""

    memory: int


@dataclass(frozen=True, slots=True)
class Delete:
    """The Cluster is deleted."""


@dataclass(frozen=True, slots=True)
class Rest:
    """Nothing is asked for."""


Operation = Create | Scale | RollOut | Delete | Rest

# -- faults ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class KillManager:
    """SIGKILL, and a new start `for_s` later. Of two managers, the one that leads."""

    at_s: float
    for_s: float


@dataclass(frozen=True, slots=True)
class StopManager:
    """SIGSTOP, and SIGCONT `for_s` later. Of two managers, the one that leads."""

    at_s: float
    for_s: float


@dataclass(frozen=True, slots=True)
class StopHarvester:
    """SIGSTOP of the whole Harvester with its guests, and SIGCONT `for_s` later."""

    at_s: float
    for_s: float


@dataclass(frozen=True, slots=True)
class CutConnections:
    """Every connection from the manager to Harvester and the guests is reset; none opens for `for_s`."""

    at_s: float
    for_s: float


@dataclass(frozen=True, slots=True)
class StallConnections:
    """Open connections stay open and carry nothing for `for_s`; new ones are accepted and carry nothing either. Then they
    go on, or are reset."""

    at_s: float
    for_s: float
    resume: bool


@dataclass(frozen=True, slots=True)
class SwallowReplies:
    """Requests arrive and are executed, their answers are lost; after `for_s` the connections are reset."""

    at_s: float
    for_s: float


@dataclass(frozen=True, slots=True)
class LoseVms:
    """VirtualMachines of a pool are deleted on Harvester, without the manager."""

    at_s: float
    pool: str
    number: int
    pick: int


@dataclass(frozen=True, slots=True)
class StopVms:
    """VirtualMachines of a pool are stopped on Harvester, without the manager."""

    at_s: float
    pool: str
    number: int
    pick: int


Fault = (
    KillManager
    | StopManager
    | StopHarvester
    | CutConnections
    | StallConnections
    | SwallowReplies
    | LoseVms
    | StopVms
)

# -- the plan ------------------------------------------------------------------------------------------------------------

WORKERS, SERVERS = "workers", "servers"
MOST_WORKERS = 4
MEMORY = 4


@dataclass(frozen=True, slots=True)
class Model:
    """What a user has asked for so far: 0 servers is no Cluster."""

    servers: int = 0
    workers: int = 0
    memory: int = MEMORY

    @property
    def pools(self) -> dict[str, int]:
        """Quantities by pool; none without a Cluster."""
        return {SERVERS: self.servers, WORKERS: self.workers} if self.servers else {}

    def after(self, operation: Operation) -> Model:
        match operation:
            case Create(servers, workers):
                return Model(servers, workers, self.memory)
            case Scale(workers):
                return replace(self, workers=workers)
            case RollOut(memory):
                return replace(self, memory=memory)
            case Delete():
                return Model(memory=self.memory)
            case Rest():
                return self


@dataclass(frozen=True, slots=True)
class Round:
    """One operation and the faults beside it; `before` is what was asked for until then."""

    number: int
    before: Model
    operation: Operation
    faults: tuple[Fault, ...]

    @property
    def wanted(self) -> Model:
        return self.before.after(self.operation)

    @property
    def limits(self) -> dict[str, int]:
        """How many VMs a pool may have at any instant: what is wanted before or after, and one of surge."""
        before, after = self.before.pools, self.wanted.pools
        return {pool: max(before.get(pool, 0), after.get(pool, 0)) + 1 for pool in (SERVERS, WORKERS)}

    @property
    def deletions(self) -> int:
        """How many VMs the manager has to delete for this operation, at most."""
        match self.operation:
            case Scale(workers):
                return max(0, self.before.workers - workers)
            case RollOut():
                return self.before.workers
            case Delete():
                return sum(self.limits.values()) * 2
            case Create() | Rest():
                return 0


def plan_rounds(seed: int, setup: Setup) -> Iterator[Round]:
    """All rounds of a run, without end. A round depends on the seed, the setup, its number and those before it."""
    model = Model()
    for number in count(1):
        rng = Rng(f"{seed}/{setup}/{number}")
        operation = _draw_operation(model, rng)
        yield (planned := Round(number, model, operation, _draw_faults(model.after(operation), setup, rng)))
        model = planned.wanted


def plan_last(number: int, before: Model) -> Round:
    """The end of a run: the Cluster is deleted, without faults."""
    return Round(number, before, Delete(), ())


def _draw_operation(model: Model, rng: Rng) -> Operation:
    if not model.servers:
        return Create((1, 1, 3)[rng.below(3)], rng.below(3))
    others = [workers for workers in range(MOST_WORKERS + 1) if workers != model.workers]
    match rng.below(10):
        case 0 | 1 | 2 | 3 | 4:
            return Scale(others[rng.below(len(others))])
        case 5 | 6:
            return RollOut(model.memory % 7 + 2)
        case 7:
            return Rest()
        case _:
            return Delete()


Draw = Callable[[Model, Rng], Fault]


def _at(rng: Rng) -> float:
    """Most operations are done within two seconds; a few faults strike at rest."""
    return round(rng.uniform(0, 2.5), 3)


def _for(rng: Rng, least: float = 0.1, most: float = 2.5) -> float:
    return round(rng.uniform(least, most), 3)


DRAWS: dict[str, tuple[int, tuple[Setup, ...], Draw]] = {
    "KillManager": (5, SETUPS, lambda _, rng: KillManager(_at(rng), _for(rng, 0.0, 1.0))),
    "StopManager": (2, SETUPS, lambda _, rng: StopManager(_at(rng), _for(rng))),
    "StopHarvester": (1, SETUPS, lambda _, rng: StopHarvester(_at(rng), _for(rng))),
    "CutConnections": (3, SETUPS, lambda _, rng: CutConnections(_at(rng), _for(rng, 0.0))),
    "StallConnections": (3, SETUPS, lambda _, rng: StallConnections(_at(rng), _for(rng), bool(rng.below(2)))),
    "SwallowReplies": (3, SETUPS, lambda _, rng: SwallowReplies(_at(rng), _for(rng, 0.05, 0.5))),
    "LoseVms": (2, SETUPS, lambda model, rng: LoseVms(_at(rng), WORKERS, 1 + rng.below(2), rng.bits(8))),
    "StopVms": (2, SETUPS, lambda model, rng: StopVms(_at(rng), _any_pool(rng), 1, rng.bits(8))),
}


def _any_pool(rng: Rng) -> str:
    return (SERVERS, WORKERS)[rng.below(2)]


def _draw_faults(model: Model, setup: Setup, rng: Rng) -> tuple[Fault, ...]:
    table = [(weight, draw) for weight, setups, draw in DRAWS.values() if setup in setups]
    found = [_weighted(table, rng)(model, rng) for _ in range(1 + rng.below(3))]
    return tuple(sorted(found, key=lambda fault: fault.at_s))


def _weighted(table: list[tuple[int, Draw]], rng: Rng) -> Draw:
    place = rng.below(sum(weight for weight, _ in table))
    for weight, draw in table:
        if place < weight:
            return draw
        place -= weight
    raise AssertionError("the weights add up")


def describe(value: Any) -> str:
    """`KillManager at 0.4 s for 1.2 s`, `Scale workers=3`."""
    found = {field.name: getattr(value, field.name) for field in fields(value)}
    at, lasts = found.pop("at_s", None), found.pop("for_s", None)
    words = [type(value).__name__, *(f"{name}={one}" for name, one in found.items())]
    words += [f"at {at:g} s"] if at is not None else []
    words += [f"for {lasts:g} s"] if lasts is not None else []
    return " ".join(words)
