"""An emulated Harvester on loopback in a thread of its own, for hosts that block."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from threading import Event, Thread
from typing import Any, TypeVar

from tests.blank_machine import BlankMachine

from windrow.app.clock import SystemClock
from windrow.core.rng import Rng
from windrow.emulator import kinds
from windrow.emulator.faults import Effect, Fault, Slow
from windrow.emulator.harvester import Harvester
from windrow.emulator.kit.inventory import Item, inventory
from windrow.emulator.preload import Image, VmNetwork
from windrow.emulator.proxy import serve
from windrow.kubernetes.errors import NotFound
from windrow.kubernetes.requests import Request
from windrow.kubernetes.resources import SECRET

T = TypeVar("T")

IMAGE, NETWORK = "default/jammy", "default/vlan50"
SPEED = 100.0


@dataclass
class Site:
    harvester: Harvester
    kubeconfig: str
    proxy_url: str
    loop: asyncio.AbstractEventLoop
    requests: list[Request] = field(default_factory=list)

    def do(self, work: Awaitable[T], within: float = 30) -> T:
        """The result of `work`, done where the Harvester lives."""

        async def done() -> T:
            return await work

        return asyncio.run_coroutine_threadsafe(done(), self.loop).result(within)

    def forget(self) -> None:
        self.requests.clear()

    def calls(self) -> list[str]:
        """What was asked since, as `VERB plural`."""
        told = []
        for request in self.requests:
            parts = request.path.strip("/").split("/")
            rest = parts[2:] if parts[0] == "api" else parts[3:]
            if rest[:1] == ["namespaces"] and len(rest) > 2:
                rest = rest[2:]
            verb = "WATCH" if request.query_parameter("watch") else request.method
            told.append(" ".join([verb, rest[0], *rest[2:]]))
        return told

    def inventory(self) -> frozenset[Item]:
        return self.do(inventory(self.harvester.api))

    def settles_to(self, wanted: frozenset[Item], within: float = 10) -> None:
        """Return when just this is there; Harvester deletes in its own time."""
        deadline = time.monotonic() + within
        while (found := self.inventory()) != wanted:
            assert time.monotonic() < deadline, {"left": found - wanted, "gone": wanted - found}
            time.sleep(0.05)

    def fault(self, effect: Effect, **rest: Any) -> Fault:
        return self.harvester.faults.add(Fault(effect, **rest))

    def end(self, *faults: Fault) -> None:
        for fault in faults:
            self.harvester.faults.end(fault)

    def has_vm(self, name: str) -> bool:
        return self.find(kinds.VM.ref(name, "default")) is not None

    def find(self, ref: Any) -> Any:
        try:
            return self.do(self.harvester.api.local().get(ref))
        except NotFound:
            return None

    def secret(self, name: str) -> Any:
        return self.find(SECRET.ref(f"{name}-cloudinit", "default"))

    @contextmanager
    def halt_at(self, number: int, slow_s: float = 0.6) -> Iterator[Event]:
        """The event is set when request `number` (from 0, of all that come from now on) arrives; its answer is slow."""
        reached = Event()
        count = iter(range(1_000_000))

        def where(request: Request) -> bool:
            if next(count) != number:
                return False
            reached.set()
            return True

        fault = self.fault(Slow(slow_s * SPEED), where=where)
        try:
            yield reached
        finally:
            self.end(fault)


@contextmanager
def a_site(
    speed: float = SPEED, machine: Callable[..., Any] | None = None, **harvester_options: Any
) -> Iterator[Site]:
    """A stocked Harvester that answers until the block ends."""
    started: list[Site] = []
    ready = Event()
    loop = asyncio.new_event_loop()
    stop = asyncio.Event()

    async def live() -> None:
        factory = machine or (lambda hardware, wires: BlankMachine(hardware, wires, agent=True))
        harvester = Harvester(
            SystemClock(), Rng(11), machine_factory=factory, time_scale=speed, **harvester_options
        )
        async with asyncio.TaskGroup() as tasks:
            running = tasks.create_task(harvester.run())
            async with serve(harvester) as served:
                await harvester.preload(
                    images=[Image(IMAGE)], networks=[VmNetwork(NETWORK, vlan=50, cidr="192.168.50.0/24")]
                )
                site = Site(harvester, served.kubeconfig, served.proxy_url, loop)

                def note(request: Request) -> bool:
                    site.requests.append(request)
                    return False

                harvester.faults.add(Fault(Slow(0), where=note))
                started.append(site)
                ready.set()
                await stop.wait()
            running.cancel()

    def run() -> None:
        try:
            loop.run_until_complete(live())
        finally:
            ready.set()

    thread = Thread(target=run, daemon=True)
    thread.start()
    assert ready.wait(60)
    assert started, "the Harvester did not start"
    try:
        yield started[0]
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join(30)
