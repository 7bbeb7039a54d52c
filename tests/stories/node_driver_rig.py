"""A management API with a NodeDriver controller of node drivers, for stories: what URLs deliver and programs answer is handed in."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.support.clock import LoopClock, run_driven
from tests.unit.drivers.files import DRIVER, HERE, a_driver, sha256

from windrow.apiserver.server import ApiServer
from windrow.apiserver.storage.memory import MemoryStore
from windrow.app.embedded import install_crds, management_api
from windrow.app.loop import running
from windrow.client.client import Client
from windrow.client.downloads import DownloadFailed
from windrow.client.transport import Transport
from windrow.core.rng import Rng
from windrow.drivers.api import NODE_DRIVER, machine_config
from windrow.drivers.controller import NodeDriverController
from windrow.drivers.installer import Fetch, ReadFlags
from windrow.drivers.store import DriverStore
from windrow.kubernetes.conditions import Condition, find_condition
from windrow.kubernetes.objects import Raw, new_object
from windrow.protocols.dockermachine import Flag

NOOP_CONFIG = machine_config("NoopConfig")
URL = "https://drivers.example/docker-machine-driver-noop.tar.gz"
FIRST, SECOND = a_driver(b"1"), a_driver(b"2")


FLAGS = (
    Flag("string", "noop-user-data", "what cloud-init gets", "NOOP_USER_DATA", ""),
    Flag("int", "noop-cpu-count", "number of CPUs", "NOOP_CPU_COUNT", 2),
    Flag("bool", "noop-fast", "whether it is fast", "NOOP_FAST", False),
)


def is_runnable(path: Path) -> bool:
    return path.read_bytes().startswith(b"\x7fELF") and bool(path.stat().st_mode & 0o111)


@dataclass
class NodeDriverRig:
    """A management API with a NodeDriver controller. `files_by_url` are the files behind URLs, `asked` the programs that were run."""

    state: Path
    clock: LoopClock
    api: ApiServer
    files_by_url: dict[str, bytes | Exception] = field(default_factory=dict)
    fetched: list[str] = field(default_factory=list)
    probed: list[Path] = field(default_factory=list)
    probe_result: tuple[Flag, ...] | Exception = FLAGS
    probe_s: float = 0.1
    download_s: float = 0.5
    controller: NodeDriverController | None = None
    url: str = URL
    is_stopped: Callable[[], bool] = lambda: False
    _task: asyncio.Task[None] | None = None
    rng: Rng = field(default_factory=lambda: Rng(1))

    @property
    def client(self) -> Client:
        return Client(self.api.local())

    async def fetch(self, url: str, write: Callable[[bytes], None]) -> None:
        self.fetched.append(url)
        await asyncio.sleep(self.download_s)
        found = self.files_by_url.get(url) or DownloadFailed(f"{url} answered 404", "correct the URL")
        if isinstance(found, Exception):
            raise found
        for place in range(0, len(found), 100):
            write(found[place : place + 100])

    async def read_flags(self, path: Path) -> tuple[Flag, ...]:
        self.probed.append(path)
        assert is_runnable(path)
        await asyncio.sleep(self.probe_s)
        if isinstance(self.probe_result, Exception):
            raise self.probe_result
        return self.probe_result

    def start(
        self,
        transport: Transport | None = None,
        *,
        fetch: Fetch | None = None,
        read_flags: ReadFlags | None = None,
        **options: Any,
    ) -> NodeDriverController:
        assert self._task is None or self._task.done()
        self.controller = NodeDriverController(
            Client(transport or self.api.local()),
            DriverStore(self.state / "drivers", HERE),
            fetch or self.fetch,
            read_flags or self.read_flags,
            self.clock,
            self.rng,
            **options,
        )
        self._task = asyncio.get_running_loop().create_task(self.controller.run())
        return self.controller

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._task = None

    async def wait(self, seconds: float = 3) -> None:
        await asyncio.sleep(seconds)

    async def add(self, name: str = "noop", url: str = URL, checksum: str = "", **spec: Any) -> None:
        found = self.files_by_url.get(url)
        checksum = checksum or (sha256(found) if isinstance(found, bytes) else "0" * 64)
        spec = {"displayName": name, "url": url, "checksum": checksum, "active": True, **spec}
        await self.client.create(NODE_DRIVER, new_object(NODE_DRIVER, name, spec=spec))

    async def change(self, name: str = "noop", **spec: Any) -> None:
        await self.client.patch(NODE_DRIVER.ref(name), {"spec": spec})

    async def get(self, name: str = "noop") -> Raw:
        return await self.client.get(NODE_DRIVER.ref(name))

    async def condition(self, type: str = "Active", name: str = "noop") -> Condition:
        found = find_condition((await self.get(name)).get("status", {}).get("conditions"), type)
        assert found is not None, type
        return found

    async def conditions(self, name: str = "noop") -> dict[str, tuple[str, str]]:
        raw = await self.get(name)
        return {one["type"]: (one["status"], one["reason"]) for one in raw["status"]["conditions"]}

    def files(self) -> list[str]:
        root = self.state / "drivers"
        return sorted(str(path.relative_to(root)) for path in root.rglob("*") if path.is_file())

    def files_of(self, *contents: bytes, name: str = DRIVER) -> list[str]:
        return sorted(f"sha256/{sha256(one)}/{file}" for one in contents for file in (name, "record.json"))


@asynccontextmanager
async def node_driver_rig(state: Path, *, start: bool = True, **options: Any) -> AsyncIterator[NodeDriverRig]:
    clock, rng = LoopClock(), Rng(0)
    api = management_api(MemoryStore(), clock, rng)
    made = NodeDriverRig(state, clock, api)
    made.files_by_url[URL] = FIRST
    async with running(api.run):
        await install_crds(made.client)
        if start:
            await made.start(**options).wait_started()
        try:
            yield made
        finally:
            await made.stop()


def run_story(story: Callable[[], Coroutine[Any, Any, None]]) -> None:
    run_driven(story())
