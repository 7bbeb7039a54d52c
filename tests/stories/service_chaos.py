"""One random life of a few services: people, Harvester, the network and the process itself do as they like.

Everything is drawn from the seed: who does what and when, which writes go wrong and how, when watches break, when the
process dies. Then all troubles end, and within a bounded time everything must be as `service_invariants` says. To look
at one seed:

    python -m tests.stories.service_chaos 1234          # what happened, and what is wrong
    python -m tests.stories.service_chaos 1234 0,3,4    # the same with only these deeds: for making a case small
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable, Collection
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

from tests.support.clock import run_driven

from windrow.core.rng import Rng
from windrow.emulator import kinds
from windrow.emulator.faults import (
    CONFLICT,
    INTERNAL_ERROR,
    TOO_MANY_REQUESTS,
    UNAUTHORIZED,
    UNAVAILABLE,
    WRITES,
    CutWatch,
    DropReply,
    ExpireWatch,
    Fault,
    Refuse,
    Reset,
    Slow,
)
from windrow.kubernetes.errors import KubeError
from windrow.kubernetes.objects import (
    Raw,
    annotations_of,
    is_deleting,
    labels_of,
    name_of,
    nested,
    new_object,
)
from windrow.kubernetes.resources import SERVICE

from .crashes import Moment, SomeWrites
from .service_invariants import SOMEBODYS, InvariantChecker, find_faults, look, name_for
from .service_narrator import Narrator
from .service_rig import ADDRESSES, PROVIDER, ServiceRig, a_pool, a_service, a_service_rig, service_ref

NAMES = ("a", "b", "c")
FORBIDDEN = Refuse(
    403, "Forbidden", 'loadbalancers.loadbalancer.harvesterhci.io is forbidden: User "demo" cannot'
)
LATEST_S = 1800.0
PATIENCE_S = 700.0
# An orphan is told, and deleted an hour later, one at each look.
LATEST_SWEPT_S = 4 * 3600.0
POOL = "10.1.0.10-12"

Action = Callable[["Life"], Awaitable[str]]


@dataclass
class Life:
    """One run: what happened (`lines`) and what is wrong with it (`faults`)."""

    rig: ServiceRig
    rng: Rng
    lines: list[str] = field(default_factory=list)
    machines: int = 1
    sweeps: bool = False  # whether orphans are deleted

    def log(self, what: str) -> None:
        self.lines.append(f"{self.rig.now_s:9.3f} s  {what}")

    def pick(self, *options: Any) -> Any:
        return options[self.rng.below(len(options))]

    def name(self) -> str:
        return str(self.pick(*NAMES))

    async def someone(self) -> str:
        """A service that there is, if there is any."""
        known = sorted(name_of(raw) for raw in await self.rig.guest.list(SERVICE, "default"))
        return str(self.pick(*[name for name in known if name in NAMES] or NAMES))


# --- what people do -------------------------------------------------------------------------------------------------


def _random_service(life: Life, name: str) -> Raw:
    other = life.name()
    primary = life.pick(None, None, None, None, other, f"default/{other}")
    return a_service(
        name,
        ipam=life.pick("pool", "pool", "pool", "dhcp", ""),
        primary=primary,
        ports=life.pick((80,), (80, 443), (("UDP", 53),), (("TCP", 53), ("UDP", 53))),
        type=life.pick("LoadBalancer", "LoadBalancer", "LoadBalancer", "ClusterIP"),
        annotations={"example.com/mine": "yes"},
        labels={"app": name},
        finalizers=life.pick((), (), ("example.com/mine",)),
    )


async def create(life: Life) -> str:
    raw = _random_service(life, life.name())
    await life.rig.guest.create(SERVICE, raw)
    return f"{name_of(raw)} is created: {raw['spec']['type']} {annotations_of(raw)} {raw['spec']['ports']}"


async def delete(life: Life) -> str:
    name = await life.someone()
    await life.rig.guest.delete(service_ref(name))
    return f"{name} is deleted"


async def recreate(life: Life) -> str:
    """Delete, wait until it is gone or patience ends, create again."""
    name = await life.someone()
    await life.rig.guest.delete(service_ref(name))
    for _ in range(20):
        if await life.rig.service(name) is None:
            break
        await asyncio.sleep(0.05)
    await life.rig.guest.create(SERVICE, _random_service(life, name))
    return f"{name} is made anew"


async def change_ports(life: Life) -> str:
    name = await life.someone()
    ports = a_service(ports=life.pick((80,), (81,), (80, 443), (("UDP", 53),)))["spec"]["ports"]
    await life.rig.guest.patch(service_ref(name), {"spec": {"ports": ports}})
    return f"{name} has other ports: {ports}"


async def change_type(life: Life) -> str:
    name, kind = await life.someone(), life.pick("ClusterIP", "LoadBalancer")
    await life.rig.guest.patch(service_ref(name), {"spec": {"type": kind}})
    return f"{name} is of type {kind}"


async def change_ipam(life: Life) -> str:
    name, ipam = await life.someone(), life.pick("pool", "dhcp", None, "strange")
    await life.rig.annotate(name, ipam=ipam)
    return f"{name} wants ipam {ipam}"


async def change_network(life: Life) -> str:
    name, network = await life.someone(), life.pick("default/vlan50", "default/nowhere", None, None)
    await life.rig.annotate(name, network=network)
    return f"{name} wants network {network}"


async def change_primary(life: Life) -> str:
    name = await life.someone()
    primary = life.pick(None, None, life.name(), f"default/{life.name()}", "missing")
    await life.rig.annotate(name, primary_service=primary)
    return f"{name} wants to share with {primary}"


async def meddle(life: Life) -> str:
    name = await life.someone()
    value = life.pick(None, *SOMEBODYS)
    await life.rig.guest.patch(service_ref(name), {"metadata": {"annotations": {ADDRESSES: value}}})
    return f"a user writes {ADDRESSES}={value} on {name}"


async def decorate(life: Life) -> str:
    name, mark = await life.someone(), life.rng.name_suffix()
    marks = {"labels": {"mark": mark}, "annotations": {"example.com/mark": mark}}
    await life.rig.guest.patch(service_ref(name), {"metadata": marks})
    return f"{name} is marked"


async def let_go(life: Life) -> str:
    """People take their own finalizers away."""
    name = await life.someone()
    raw = await life.rig.guest.get(service_ref(name))
    kept = [one for one in raw["metadata"].get("finalizers", []) if one != "example.com/mine"]
    change = {"metadata": {"finalizers": kept or None, "resourceVersion": raw["metadata"]["resourceVersion"]}}
    await life.rig.guest.patch(service_ref(name), change)
    return f"{name} loses the finalizer of its user"


async def tear(life: Life) -> str:
    """A user removes every finalizer."""
    name = await life.someone()
    await life.rig.guest.patch(service_ref(name), {"metadata": {"finalizers": None}})
    await life.rig.guest.delete(service_ref(name))
    await life.rig.guest.patch(service_ref(name), {"metadata": {"finalizers": None}})
    return f"{name} is torn away"


# --- what administrators of Harvester do ----------------------------------------------------------------------------


async def change_pool(life: Life) -> str:
    span = life.pick("10.1.0.10", "10.1.0.10-11", "10.1.0.10-12", "10.1.0.10-14")
    await life.rig.set_ranges(span)
    return f"the pool has {span}"


async def delete_pool(life: Life) -> str:
    await life.rig.at_host.delete(kinds.IP_POOL.ref("lan"))
    return "the pool is deleted"


async def delete_balancer(life: Life) -> str:
    ours = [raw for raw in await life.rig.balancers() if labels_of(raw).get(f"{PROVIDER}/cluster") == "demo"]
    if not ours:
        return "no load balancer to delete"
    name = name_of(life.pick(*ours))
    await life.rig.at_host.delete(kinds.LOAD_BALANCER.ref(name, "default"))
    return f"a user deletes load balancer {name}"


async def change_machines(life: Life) -> str:
    if life.machines < 3:
        life.machines += 1
        await life.rig.add_machine(f"m-{life.machines}")
        return f"machine m-{life.machines} joins"
    await life.rig.lose_machine("m-2")
    return "machine m-2 is lost"


# --- what goes wrong ------------------------------------------------------------------------------------------------


async def lose_host(life: Life) -> str:
    gate, span = life.rig.links["host"], life.pick(0.5, 5, 40)
    gate.shut()
    asyncio.get_running_loop().call_later(span, gate.open)
    return f"Harvester is down for {span} s"


async def break_watches(life: Life) -> str:
    side = life.pick("host", "guest")
    faults = life.rig.host.faults if side == "host" else life.rig.faults
    if life.rng.below(2):
        faults.add(Fault(ExpireWatch(), frozenset({"watch"}), times=2))
    life.rig.links[side].cut()
    return f"the watches of the {side} break"


async def refuse_us(life: Life) -> str:
    refusal, span = life.pick(UNAUTHORIZED, FORBIDDEN), life.pick(0.5, 5, 40)
    fault = life.rig.host.faults.add(Fault(refusal))
    asyncio.get_running_loop().call_later(span, life.rig.host.faults.end, fault)
    return f"Harvester answers {refusal.status} for {span} s"


async def lose_lease(life: Life) -> str:
    fault = life.rig.faults.add(Fault(UNAVAILABLE, frozenset({"update", "get"}), frozenset({"leases"})))
    asyncio.get_running_loop().call_later(14, life.rig.faults.end, fault)
    return "leases cannot be renewed for 14 s"


async def kill(life: Life) -> str:
    pod = life.pick(*life.rig.pods)
    await life.rig.restart(pod)
    return f"{pod.name} is killed"


async def kill_soon(life: Life) -> str:
    """At one of the next writes, before or after it."""
    life.rig.fate = Once(SomeWrites(4, life.rng))
    return "a process will die at a write"


class Once:
    """A fate that strikes a single time."""

    ask_at_s: float | None = None

    def __init__(self, inner: SomeWrites) -> None:
        self._inner, self._struck = inner, False

    def strikes(self, moment: Moment) -> bool:
        if self._struck or moment.what.endswith((" leases", " events")):
            return False
        self._struck = self._inner.strikes(moment)
        return self._struck


ACTIONS: tuple[tuple[int, Action], ...] = (
    (5, create),
    (3, delete),
    (2, recreate),
    (1, change_ports),
    (2, change_type),
    (1, change_ipam),
    (1, change_network),
    (2, change_primary),
    (1, meddle),
    (1, decorate),
    (1, let_go),
    (1, tear),
    (1, change_pool),
    (1, delete_pool),
    (1, delete_balancer),
    (1, change_machines),
    (1, lose_host),
    (1, break_watches),
    (1, refuse_us),
    (1, lose_lease),
    (1, kill),
    (2, kill_soon),
)
_TABLE = tuple(action for weight, action in ACTIONS for _ in range(weight))


def _trouble(life: Life) -> list[tuple[str, Fault]]:
    """What befalls writes in this run: side, fault."""
    odds = life.pick(0.0, 0.1, 0.3)
    if not odds:
        return []
    sorts = (
        Fault(CONFLICT, frozenset({"update", "patch"}), probability=odds),
        Fault(INTERNAL_ERROR, WRITES, probability=odds),
        Fault(DropReply(), WRITES, probability=odds),
        Fault(Reset(), WRITES, probability=odds),
        Fault(TOO_MANY_REQUESTS, probability=odds),
        Fault(Slow(life.pick(0.3, 3.0)), probability=odds),
        Fault(CutWatch(1 + life.rng.below(3), clean=bool(life.rng.below(2))), frozenset({"watch"})),
    )
    return [(life.pick("host", "guest"), life.pick(*sorts)) for _ in range(life.pick(1, 2, 3))]


# --- a life ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Outcome:
    """What happened and what is wrong, in sentences."""

    seed: int
    lines: tuple[str, ...]
    faults: tuple[str, ...]


def live(seed: int, only: Collection[int] | None = None, *, narrate: bool = False) -> Outcome:
    """Tell the life of this seed, to its end. `only` names the deeds that are done (by their place); None is all."""
    return run_driven(_live(seed, only, narrate))


async def _live(seed: int, only: Collection[int] | None, narrate: bool) -> Outcome:
    async with a_service_rig(f"rig {seed}") as rig:
        life = Life(rig, Rng(f"services {seed}"))
        checker = InvariantChecker(rig)
        narrator = Narrator(rig, life.lines) if narrate else None
        await rig.at_host.create(kinds.LOAD_BALANCER, THEIRS)
        await rig.make_pool(POOL)
        for gate in rig.links.values():
            gate.delay_s, gate.lag_s = life.pick(0.0, 0.005, 0.03), life.pick(0.0, 0.01, 0.2)
        _start(life)
        await rig.pass_time(1)
        troubles = [(side, _faults_of(rig, side).add(fault)) for side, fault in _trouble(life)]
        for side, fault in troubles:
            life.log(f"{side}: {fault.effect} with odds {fault.probability}")
        for _ in range(life.pick(0, 1, 2)):
            with suppress(KubeError):
                life.log(await create(life))
            await rig.pass_time(1)
        for place in range(4 + life.rng.below(6)):
            # Drawn also where it is left out, so that the others stay as they are.
            action, pause = life.pick(*_TABLE), life.pick(0.0, 0.02, 0.06, 0.1, 0.3, 1.0, 6.0, 20.0)
            rng, life.rng = life.rng, Rng(f"{seed}/{place}")
            if only is None or place in only:
                with suppress(KubeError):  # a refusal is an answer
                    life.log(f"[{place}] {await action(life)}")
                await rig.pass_time(pause)
            life.rng = rng
        _clear_up(life, troubles)
        life.log("all is well from here on")
        await _restore_pool(rig)
        faults = await _settle(life, checker)
        if narrator is not None:
            narrator.close()
        theirs = await rig.at_host.find(kinds.LOAD_BALANCER.ref("theirs", "default"))
        if theirs is None or is_deleting(theirs):
            faults.append("the load balancer of another cluster is gone")
        return Outcome(seed, tuple(life.lines), tuple(faults))


THEIRS = new_object(
    kinds.LOAD_BALANCER,
    "theirs",
    "default",
    labels={
        f"{PROVIDER}/cluster": "other",
        f"{PROVIDER}/serviceNamespace": "default",
        f"{PROVIDER}/serviceName": "a",
    },
    spec={"ipam": "dhcp", "workloadType": "cluster"},
)


def _faults_of(rig: ServiceRig, side: str) -> Any:
    return rig.host.faults if side == "host" else rig.faults


def _start(life: Life) -> None:
    life.sweeps = not life.rng.below(4)
    flags = ["--orphan-sweep=delete"] if life.sweeps else []
    if life.rng.below(4):
        life.rig.start("--leader-elect=false", *flags)
        return
    for _ in range(2):
        life.rig.start(*flags)


def _clear_up(life: Life, troubles: list[tuple[str, Fault]]) -> None:
    rig = life.rig
    for side, fault in troubles:
        _faults_of(rig, side).end(fault)
    rig.host.faults.script.clear()
    rig.faults.script.clear()
    rig.links["host"].open()
    rig.fate = None


async def _restore_pool(rig: ServiceRig) -> None:
    """There is one in the end; one that is on its way out has to go first."""
    for _ in range(3):
        with suppress(KubeError):
            await rig.at_host.create(kinds.IP_POOL, a_pool(POOL))
        await rig.pass_time(0.1)


async def _settle(life: Life, checker: InvariantChecker) -> list[str]:
    """What is wrong once time enough has passed; nothing more may be written after that."""
    rig, wait = life.rig, 5.0
    # An orphan is the sweep's: of a service that was torn away, or made by a request that outlived its sender.
    orphaned = bool(checker.torn or rig.posthumous)

    async def find() -> list[str]:
        scene = await look(rig)
        if orphaned and not life.sweeps and rig.now_s > PATIENCE_S:
            scene = replace(scene, orphans=frozenset(scene.balancers))
        return find_faults(scene)

    while True:
        await rig.pass_time(wait)
        orphaned = bool(checker.torn or rig.posthumous)
        faults = await find()
        if not faults or rig.now_s > (LATEST_SWEPT_S if life.sweeps and orphaned else LATEST_S):
            break
        wait = min(wait * 2, 300)
    # A service that cannot be served is in order with its address and without. It gets it when the watch of Harvester
    # is back, which after an outage may be a while.
    await rig.pass_time(60)
    faults = faults or await find()
    before = _writes(rig)
    await rig.pass_time(60)
    if written := _writes(rig)[len(before) :]:
        faults.append(f"it does not come to rest: {written[:6]}")
    return checker.faults + faults


def _writes(rig: ServiceRig) -> list[str]:
    """What was written for services; nodes have stories of their own."""
    passed_over = ("leases", "events", "nodes", "nodes/status", "configmaps")
    return [write.what for write in rig.writes if not write.what.endswith(passed_over)]


__all__ = ["ACTIONS", "Life", "Outcome", "live", "name_for", "nested"]


if __name__ == "__main__":
    chosen = [int(one) for one in sys.argv[2].split(",")] if len(sys.argv) > 2 else None
    found = live(int(sys.argv[1]), chosen, narrate=True)
    print("\n".join((*found.lines, "", *(found.faults or ("all is well",)))))
