"""Faults and operations of a chaos run as values, and the pure plan that draws them from a seed.

`plan_rounds(seed, setup)` is the whole run, decided before anything starts: which operation a user asks for in each
round, and which faults strike meanwhile, when and for how long. Nothing here does anything; `runner` does.

    round    a user's operation (create, scale, delete) and faults beside it; then rest, then the invariants
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

# embedded: one manager with a database of its own. plugins: the same, machines made by plugin
# processes, and the guests' cloud providers are processes, too. replicas: two
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
    """A pool gets another quantity."""

    pool: str
    quantity: int


@dataclass(frozen=True, slots=True)
class DeleteMachine:
    """A Machine of the workers is deleted, so that the pool makes another one."""

    pick: int


@dataclass(frozen=True, slots=True)
class Delete:
    """The Cluster is deleted."""


@dataclass(frozen=True, slots=True)
class Rest:
    """Nothing is asked for."""


Operation = Create | Scale | DeleteMachine | Delete | Rest

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


@dataclass(frozen=True, slots=True)
class SilenceConnections:
    """The connections that are open carry nothing any more and stay open; new ones work."""

    at_s: float


@dataclass(frozen=True, slots=True)
class KillPlugins:
    """SIGKILL of every plugin process of the manager, `times` times in a row."""

    at_s: float
    times: int


@dataclass(frozen=True, slots=True)
class KillCloudProvider:
    """SIGKILL of every cloud provider of the guests, `times` times in a row; their kubelet starts them again."""

    at_s: float
    times: int


@dataclass(frozen=True, slots=True)
class RollBack:
    """The manager is killed, its state directory is as it was before the round, and it starts again. With `backup` by
    `windrow backup` and `windrow restore`, else by a copy of the files. Then the user asks again."""

    at_s: float
    backup: bool


@dataclass(frozen=True, slots=True)
class FillDisk:
    """No space is left where the manager keeps its state, for `for_s`."""

    at_s: float
    for_s: float


@dataclass(frozen=True, slots=True)
class ReadOnlyDisk:
    """The manager is killed and started again on a read-only disk, which it must refuse; then on a writable one."""

    at_s: float


@dataclass(frozen=True, slots=True)
class JumpClock:
    """The manager's wall clock is wrong by `by_s` for `for_s`."""

    at_s: float
    for_s: float
    by_s: int


@dataclass(frozen=True, slots=True)
class RotateCredential:
    """The credential is replaced by a new token of the same account, and the old token is revoked."""

    at_s: float


@dataclass(frozen=True, slots=True)
class RevokeCredential:
    """The token of the credential is revoked; `for_s` later the user replaces it."""

    at_s: float
    for_s: float


@dataclass(frozen=True, slots=True)
class AnotherHarvester:
    """For `for_s` the credential is one of another Harvester."""

    at_s: float
    for_s: float


Fault = (
    KillManager
    | StopManager
    | StopHarvester
    | CutConnections
    | StallConnections
    | SwallowReplies
    | SilenceConnections
    | LoseVms
    | StopVms
    | KillPlugins
    | KillCloudProvider
    | RollBack
    | FillDisk
    | ReadOnlyDisk
    | JumpClock
    | RotateCredential
    | RevokeCredential
    | AnotherHarvester
)

# -- the plan ------------------------------------------------------------------------------------------------------------

WORKERS, SERVERS = "workers", "servers"
MOST_WORKERS = 4
# `nodeStartupTimeout` of both pools: longer than a watch may carry nothing without notice.
STARTUP_TIMEOUT_S = 150


@dataclass(frozen=True, slots=True)
class Model:
    """What a user has asked for so far: 0 servers is no Cluster."""

    servers: int = 0
    workers: int = 0
    doomed: bool = False  # its etcd has lost its quorum for good, or may have

    @property
    def pools(self) -> dict[str, int]:
        """Quantities by pool; none without a Cluster."""
        return {SERVERS: self.servers, WORKERS: self.workers} if self.servers else {}

    def after(self, operation: Operation) -> Model:
        match operation:
            case Create(servers, workers):
                return Model(servers, workers)
            case Scale(pool, quantity):
                return replace(self, **{pool: quantity})
            case Delete():
                return Model()
            case DeleteMachine() | Rest():
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
        after = self.before.after(self.operation)
        return replace(after, doomed=bool(after.servers) and (self.before.doomed or self._may_lose_quorum))

    @property
    def limits(self) -> dict[str, int]:
        """How many VMs a pool may have at any instant: what is wanted before or after, and one of surge."""
        if self.rolls_back:
            return {}  # what was made before is unknown to the manager, and it makes others
        before, after = self.before.pools, self.wanted.pools
        return {pool: max(before.get(pool, 0), after.get(pool, 0)) + 1 for pool in (SERVERS, WORKERS)}

    @property
    def deletions(self) -> int:
        """How many VMs the manager has to delete for this operation, at most; one that is asked for twice counts twice."""
        return self._deletions * (2 if self.rolls_back else 1) + self._unfinished

    @property
    def _deletions(self) -> int:
        match self.operation:
            case Scale(pool, quantity):
                return max(0, self.before.pools[pool] - quantity)
            case DeleteMachine():
                return min(1, self.before.workers)
            case Delete():
                return 2 * (self.before.servers + self.before.workers)
            case Create() | Rest():
                return 0

    @property
    def _unfinished(self) -> int:
        """How many machines that boot may have to be replaced, at most. One that is stopped in its first boot may never
        join. And what was told to join through a server that is lost before it could can join nothing."""
        strikes = [fault for fault in self.faults if isinstance(fault, LoseVms | StopVms)]
        if isinstance(self.operation, Create):
            every = self.operation.servers + self.operation.workers
            return sum(every if one.pool == SERVERS else one.number for one in strikes)
        return sum(self._unfinished_by(one) for one in strikes)

    def _unfinished_by(self, strike: LoseVms | StopVms) -> int:
        made = self._made + sum(
            one.number for one in self.faults if isinstance(one, LoseVms) and one is not strike
        )
        if isinstance(strike, LoseVms):
            return made if strike.pool == SERVERS else 0
        return strike.number if made else 0

    @property
    def _made(self) -> int:
        """How many machines the operation itself makes."""
        if isinstance(self.operation, DeleteMachine):
            return 1
        before, after = self.before.pools, self.before.after(self.operation).pools
        return sum(max(0, quantity - before.get(pool, 0)) for pool, quantity in after.items())

    @property
    def rolls_back(self) -> bool:
        return any(isinstance(fault, RollBack) for fault in self.faults)

    @property
    def rest_s(self) -> float:
        """How much longer than otherwise it may take until all is at rest: a watch that carries nothing is opened anew after
        100 s, and a request on a connection that carries nothing ends after 90 s."""
        silent = any(isinstance(fault, SilenceConnections) for fault in self.faults)
        return (300.0 if silent else 0.0) + (2.0 * STARTUP_TIMEOUT_S if self._unfinished else 0.0)

    @property
    def _may_lose_quorum(self) -> bool:
        """Whether more etcd members are lost for good than one of three. What the last one had is gone then; the Cluster
        can only be deleted. While it is being created there may be one member yet, and of three that become one it may be
        the one that stays."""
        lost = sum(
            fault.number for fault in self.faults if isinstance(fault, LoseVms) and fault.pool == SERVERS
        )
        fewest = min(self.before.servers, self.before.after(self.operation).servers)
        return bool(lost) and (lost > 1 or fewest < 3)


def plan_rounds(seed: int, setup: Setup) -> Iterator[Round]:
    """All rounds of a run, without end. A round depends on the seed, the setup, its number and those before it."""
    model = Model()
    for number in count(1):
        rng = Rng(f"{seed}/{setup}/{number}")
        operation = _draw_operation(model, rng)
        yield (planned := Round(number, model, operation, _draw_faults(operation, setup, rng)))
        model = planned.wanted


def plan_last(number: int, before: Model) -> Round:
    """The end of a run: the Cluster is deleted, without faults."""
    return Round(number, before, Delete(), ())


def _draw_operation(model: Model, rng: Rng) -> Operation:
    if not model.servers:
        return Create((1, 1, 3)[rng.below(3)], rng.below(3))
    if model.doomed:
        return Delete()
    others = [workers for workers in range(MOST_WORKERS + 1) if workers != model.workers]
    match rng.below(10):
        case 0 | 1 | 2 | 3:
            return Scale(WORKERS, others[rng.below(len(others))])
        case 4:
            return Scale(SERVERS, 4 - model.servers)
        case 5 | 6:
            return DeleteMachine(rng.bits(8))
        case 7:
            return Rest()
        case _:
            return Delete()


@dataclass(frozen=True, slots=True)
class Draw:
    """How often a kind of fault comes up, in which setups, beside which operations, and its values."""

    weight: int
    make: Callable[[Rng], Fault]
    setups: tuple[Setup, ...] = SETUPS
    beside: tuple[type[Operation], ...] = (Create, Scale, DeleteMachine, Delete, Rest)


def _at(rng: Rng) -> float:
    """Most operations are done within two seconds; a few faults strike at rest."""
    return round(rng.uniform(0, 2.5), 3)


def _for(rng: Rng, least: float = 0.1, most: float = 2.5) -> float:
    return round(rng.uniform(least, most), 3)


# A Lease is lost after ten seconds, and taken by another manager after fifteen.
LEASE_S = (10.0, 20.0)
OWN_STATE: tuple[Setup, ...] = ("embedded", "plugins")
JUMPS_S = (-3600, -300, 300, 3600, 90_000)

DRAWS: dict[str, Draw] = {
    "KillManager": Draw(5, lambda rng: KillManager(_at(rng), _for(rng, 0.0, 1.0))),
    "StopManager": Draw(2, lambda rng: StopManager(_at(rng), _for(rng))),
    "StopManager past its Lease": Draw(
        2, lambda rng: StopManager(_at(rng), _for(rng, *LEASE_S)), ("replicas",)
    ),
    "StopHarvester": Draw(1, lambda rng: StopHarvester(_at(rng), _for(rng))),
    "CutConnections": Draw(3, lambda rng: CutConnections(_at(rng), _for(rng, 0.0))),
    "StallConnections": Draw(3, lambda rng: StallConnections(_at(rng), _for(rng), bool(rng.below(2)))),
    "SwallowReplies": Draw(3, lambda rng: SwallowReplies(_at(rng), _for(rng, 0.05, 0.5))),
    "SilenceConnections": Draw(1, lambda rng: SilenceConnections(_at(rng))),
    "LoseVms of workers": Draw(2, lambda rng: LoseVms(_at(rng), WORKERS, 1 + rng.below(2), rng.bits(8))),
    "LoseVms of servers": Draw(1, lambda rng: LoseVms(_at(rng), SERVERS, 1 + rng.below(2), rng.bits(8))),
    "StopVms of workers": Draw(1, lambda rng: StopVms(_at(rng), WORKERS, 1, rng.bits(8))),
    "StopVms of servers": Draw(2, lambda rng: StopVms(_at(rng), SERVERS, 1 + rng.below(2), rng.bits(8))),
    "KillPlugins": Draw(5, lambda rng: KillPlugins(_at(rng), 1 + rng.below(4)), ("plugins",)),
    "KillCloudProvider": Draw(2, lambda rng: KillCloudProvider(_at(rng), 1 + rng.below(3)), ("plugins",)),
    "FillDisk": Draw(2, lambda rng: FillDisk(_at(rng), _for(rng)), OWN_STATE),
    "RollBack": Draw(
        3, lambda rng: RollBack(_at(rng), bool(rng.below(2))), OWN_STATE, (Scale, DeleteMachine, Rest)
    ),
    "ReadOnlyDisk": Draw(1, lambda rng: ReadOnlyDisk(_at(rng)), OWN_STATE),
    "JumpClock": Draw(
        2, lambda rng: JumpClock(_at(rng), _for(rng), JUMPS_S[rng.below(len(JUMPS_S))]), ("embedded",)
    ),
    "RotateCredential": Draw(2, lambda rng: RotateCredential(_at(rng))),
    "RevokeCredential": Draw(1, lambda rng: RevokeCredential(_at(rng), _for(rng))),
    # Not while it is created: a Cluster is on the Harvester that its credential led to first.
    "AnotherHarvester": Draw(
        2,
        lambda rng: AnotherHarvester(_at(rng), _for(rng)),
        ("replicas",),
        (Scale, DeleteMachine, Delete, Rest),
    ),
}


def _draw_faults(operation: Operation, setup: Setup, rng: Rng) -> tuple[Fault, ...]:
    draws = [draw for draw in DRAWS.values() if setup in draw.setups and isinstance(operation, draw.beside)]
    found = [_weighted(draws, rng).make(rng) for _ in range(1 + rng.below(3))]
    return tuple(sorted(found, key=lambda fault: fault.at_s))


def _weighted(draws: list[Draw], rng: Rng) -> Draw:
    place = rng.below(sum(draw.weight for draw in draws))
    for draw in draws:
        if place < draw.weight:
            return draw
        place -= draw.weight
    raise AssertionError("the weights add up")


def describe(value: Any) -> str:
    """`KillManager at 0.4 s for 1.2 s`, `Scale pool=workers quantity=3`."""
    found = {field.name: getattr(value, field.name) for field in fields(value)}
    at, lasts = found.pop("at_s", None), found.pop("for_s", None)
    words = [type(value).__name__, *(f"{name}={one}" for name, one in found.items())]
    words += [f"at {at:g} s"] if at is not None else []
    words += [f"for {lasts:g} s"] if lasts is not None else []
    return " ".join(words)
