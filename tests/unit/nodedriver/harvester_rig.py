"""A whole emulated Harvester behind blocking calls: what the plugin's runner sees, on a clock that jumps.

Each call drives the emulator's event loop until it is answered; between calls its clock is stopped.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from contextlib import AsyncExitStack, contextmanager
from dataclasses import replace
from datetime import datetime
from typing import Any

from tests.blank_machine import BlankMachine
from tests.stories.harvester_rig import a_harvester
from tests.support.clock import DrivenLoop

from windrow.core.rng import Rng
from windrow.emulator.guest_os.hardware import Hardware, HostInterface
from windrow.emulator.harvester import Harvester
from windrow.harvester.resources import VM
from windrow.kubernetes.objects import Raw
from windrow.kubernetes.requests import Reply, Request, WatchEvent
from windrow.kubernetes.resources import PVC, SECRET, ObjectRef
from windrow.nodedriver.blocking_runner import run
from windrow.nodedriver.config import UNSET, Configuration
from windrow.nodedriver.effects import Operation
from windrow.nodedriver.flags import read_flags, with_machine_uid

NAME = "c1-pool1-abcde-fghij"
TICK_S = 5

FLAGS: dict[str, Any] = {
    "harvester-vm-namespace": "default",
    "harvester-cluster-name": "c1",
    "harvester-cpu-count": 2,
    "harvester-memory-size": 4,
    "harvester-disk-info": '{"disks":[{"imageName":"default/jammy","size":40,"bootOrder":1}]}',
    "harvester-network-info": '{"interfaces":[{"networkName":"default/vlan50"}]}',
    "harvester-ssh-user": "ubuntu",
    "harvester-ssh-port": 22,
}


def a_machine(name: str = NAME, seed: int = 1, **flags: Any) -> Configuration:
    """A machine as a host configures it; flags are given with underscores and without their prefix."""
    given = {f"harvester-{key.replace('_', '-')}": value for key, value in flags.items()}
    base = replace(UNSET, machine_name=name, store_path="/store")
    return with_machine_uid(read_flags(FLAGS | given, base), Rng(seed))


class Crash(BaseException):
    """The process dies here."""


class HarvesterRig:
    def __init__(self, runner: asyncio.Runner, harvester: Harvester, guests: list[BlankMachine]) -> None:
        self._runner, self.harvester = runner, harvester
        self.guests = guests  # every power-on so far
        self.client = harvester.api.local()
        self.requests: list[str] = []
        self.log_lines: list[str] = []
        # What happens instead of the request of that number, or after it: for tests of crashes and lost answers.
        self.before: dict[int, Callable[[], None]] = {}
        self.after: dict[int, Callable[[], None]] = {}

    def run(self, operation: Operation[Any]) -> Any:
        return run(operation, self.send, self.watch, self.now, self.log_lines.append, sleep=self.pause)

    def run_logged(self, operation: Operation[Any]) -> tuple[Any, list[str]]:
        """The operation's result, and what it asked."""
        begun = len(self.requests)
        return self.run(operation), self.requests[begun:]

    # What the runner is given.

    def send(self, request: Request) -> Reply:
        number = self._note(request.method, request.path)
        reply = self._run(self.client.send(request))
        self.after.pop(number, lambda: None)()
        return reply

    def watch(self, request: Request) -> Iterator[WatchEvent | None]:
        name = (request.query_parameter("fieldSelector") or "").partition("=")[2]
        number = self._note("WATCH", f"{request.path}/{name}")
        stack = AsyncExitStack()
        events = self._run(stack.enter_async_context(self.client.stream(request)))
        coming = self._task(anext(events, None))
        try:
            self.after.pop(number, lambda: None)()
            while True:
                if not self._run(_done(coming)):
                    yield None
                    continue
                event = coming.result()
                if event is None:
                    return
                coming = self._task(anext(events, None))
                yield event
        finally:
            coming.cancel()
            self._run(asyncio.sleep(0))
            self._run(stack.aclose())

    def now(self) -> datetime:
        return self._run(_now(self.harvester))

    def pause(self, seconds: float) -> None:
        self._run(asyncio.sleep(seconds))

    # What tests look at and do.

    def get(self, ref: ObjectRef) -> Raw:
        return self._run(self.client.get(ref))

    def find(self, ref: ObjectRef) -> Raw | None:
        return self._run(self.client.find(ref))

    def names(self, kind: Any) -> list[str]:
        return sorted(raw["metadata"]["name"] for raw in self._run(self.client.list(kind, "default")))

    def patch(self, ref: ObjectRef, change: Raw) -> Raw:
        return self._run(self.client.patch(ref, change))

    def delete(self, ref: ObjectRef) -> None:
        self._run(self.client.delete(ref))

    def create(self, kind: Any, raw: Raw) -> Raw:
        return self._run(self.client.create(kind, raw))

    def orphans(self) -> list[str]:
        """Machines' objects that are there after Harvester has had time to collect them."""
        self.pause(120)
        secrets = [name for name in self.names(SECRET) if name.endswith("-cloudinit")]
        return self.names(VM) + self.names(PVC) + secrets

    def _note(self, method: str, path: str) -> int:
        number = len(self.requests)
        self.before.pop(number, lambda: None)()
        self.requests.append(f"{method} {'/'.join(path.split('/')[-2:])}")
        return number

    def _run(self, work: Coroutine[Any, Any, Any]) -> Any:
        return self._runner.run(work)

    def _task(self, work: Any) -> asyncio.Task[Any]:
        async def waiting() -> Any:
            return await work

        return self._runner.get_loop().create_task(waiting())


@contextmanager
def a_rig(**guest: Any) -> Iterator[HarvesterRig]:
    """`guest` is how guests are: `hangs`, `agent`, …"""
    guests: list[BlankMachine] = []

    def boot(hardware: Hardware, wires: HostInterface) -> BlankMachine:
        guests.append(BlankMachine(hardware, wires, **{"agent": True, **guest}))
        return guests[-1]

    with asyncio.Runner(loop_factory=DrivenLoop) as runner:
        block = a_harvester(machine=boot)
        opened: asyncio.Future[Harvester] = runner.get_loop().create_future()
        closing = asyncio.Event()

        async def living() -> None:
            async with block as harvester:
                opened.set_result(harvester)
                await closing.wait()

        life = runner.get_loop().create_task(living())

        async def either() -> Harvester:
            await asyncio.wait({life, opened}, return_when=asyncio.FIRST_COMPLETED)
            return opened.result() if opened.done() else life.result()

        harvester = runner.run(either())
        yield HarvesterRig(runner, harvester, guests)
        closing.set()

        async def ended() -> None:
            await life

        runner.run(ended())


async def _now(harvester: Harvester) -> datetime:
    return harvester.clock.base.now()


async def _done(task: asyncio.Task[Any]) -> bool:
    done, _ = await asyncio.wait({task}, timeout=TICK_S)
    return bool(done)
