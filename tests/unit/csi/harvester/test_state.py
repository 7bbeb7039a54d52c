"""What is watched on Harvester: whether it is current, and what a call that waits for it says."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import pytest
from tests.support.clock import LoopClock, run_driven

from windrow.apiserver.server import ApiServer
from windrow.apiserver.storage.memory import MemoryStore
from windrow.client.transport import Transport, TransportMiddleware
from windrow.core.clock import sleep
from windrow.core.rng import Rng
from windrow.csi.harvester.disks import read_instance, read_vm
from windrow.csi.harvester.state import HarvesterState
from windrow.csi.waits import begin_call
from windrow.harvester.resources import VM, VMI
from windrow.kubernetes.errors import Unreachable
from windrow.kubernetes.requests import Reply, Request, WatchEvent
from windrow.kubernetes.resources import CRD, PVC, ApiResource


def definition(kind: ApiResource) -> dict[str, Any]:
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    version = {"name": kind.version, "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    names = {"kind": kind.kind, "plural": kind.plural}
    return {
        "apiVersion": CRD.api_version,
        "kind": CRD.kind,
        "metadata": {"name": kind.group_resource},
        "spec": {"group": kind.group, "scope": "Namespaced", "names": names, "versions": [version]},
    }


class Slow(TransportMiddleware):
    """Answers requests for `plural` after `seconds`; none at all while it is down."""

    def __init__(self, inner: Transport, clock: LoopClock) -> None:
        super().__init__(inner)
        self._clock = clock
        self.plural, self.seconds, self.is_down = "", 0, False

    async def send(self, request: Request) -> Reply:
        if self.is_down:
            raise Unreachable("connection refused")
        if request.path.endswith(f"/{self.plural}"):
            await sleep(self._clock, timedelta(seconds=self.seconds))
        return await self._inner.send(request)

    @asynccontextmanager
    async def stream(self, request: Request) -> AsyncIterator[AsyncIterator[WatchEvent]]:
        async with self._inner.stream(request) as events:
            yield events


Story = Callable[[HarvesterState, Slow, LoopClock], Awaitable[Any]]


def told(story: Story) -> Any:
    async def whole() -> Any:
        clock = LoopClock()
        server = ApiServer(MemoryStore(), clock, Rng(1))
        for kind in (VM, VMI):
            server.install_crd(definition(kind))
        line = Slow(server.local(), clock)
        return await story(HarvesterState(line, "default", clock, Rng(2)), line, clock)

    return run_driven(whole())


def test_what_is_not_read_yet_is_named_and_then_nothing_is() -> None:
    async def story(state: HarvesterState, line: Slow, clock: LoopClock) -> list[str]:
        line.plural, line.seconds = "virtualmachines", 5
        async with asyncio.TaskGroup() as tasks:
            before = state.problem()
            running = tasks.create_task(state.run())
            await sleep(clock, timedelta(seconds=1))
            meanwhile = state.problem()
            await sleep(clock, timedelta(seconds=30))
            after = state.problem()
            running.cancel()
        return [before, meanwhile, after]

    assert told(story) == [
        "persistentvolumeclaims in namespace default on Harvester are not read yet",
        "virtualmachines in namespace default on Harvester are not read yet",
        "",
    ]


def test_a_watch_that_fails_is_named_with_its_error() -> None:
    async def story(state: HarvesterState, line: Slow, clock: LoopClock) -> str:
        line.is_down = True
        async with asyncio.TaskGroup() as tasks:
            running = tasks.create_task(state.run())
            await sleep(clock, timedelta(seconds=1))
            found = state.problem()
            running.cancel()
        return found

    assert told(story) == (
        "cannot watch persistentvolumeclaims in namespace default on Harvester: connection refused"
    )


def test_who_waits_for_the_first_lists_returns_with_the_last_of_them_and_says_which_is_missing() -> None:
    async def story(state: HarvesterState, line: Slow, clock: LoopClock) -> Any:
        line.plural, line.seconds = "virtualmachineinstances", 7
        wait, began = begin_call(), clock.monotonic()
        async with asyncio.TaskGroup() as tasks:
            running = tasks.create_task(state.run())
            await state.wait_for_sync()
            took = clock.monotonic() - began
            said = wait.what
            wait.what = ""
            await state.wait_for_sync()
            running.cancel()
        return took >= timedelta(seconds=7), said, wait.what

    what = "the first list of virtualmachineinstances in namespace default on Harvester"
    assert told(story) == (True, what, "")


def test_a_wait_for_a_version_ends_when_the_watch_has_brought_it() -> None:
    async def story(state: HarvesterState, line: Slow, clock: LoopClock) -> Any:
        client: Any = line._inner
        async with asyncio.TaskGroup() as tasks:
            running = tasks.create_task(state.run())
            await state.wait_for_sync()
            spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
            made = await client.create(PVC, {"metadata": {"name": "c"}, "spec": spec}, "default")
            version = made["metadata"]["resourceVersion"]
            unknown = tasks.create_task(state.wait_for_claim("c", str(int(version) + 1)))
            await state.wait_for_claim("c", version)
            there = state.claim("c") is not None
            await sleep(clock, timedelta(seconds=30))
            is_waiting = not unknown.done()
            await client.create(PVC, {"metadata": {"name": "d"}, "spec": spec}, "default")
            await unknown
            running.cancel()
        return there, is_waiting

    assert told(story) == (True, True)


@pytest.mark.parametrize(
    ("status", "is_ready"),
    [
        ([{"name": "pvc-1", "phase": "Ready", "hotplugVolume": {}}], True),
        ([{"name": "pvc-1", "phase": "MountedToPod", "hotplugVolume": {}}], False),
        ([{"name": "pvc-1", "phase": "Ready"}], False),  # not plugged in: a disk from the start
        ([{"name": "pvc-2", "phase": "Ready", "hotplugVolume": {}}], False),
        ([], False),
        (None, False),
    ],
)
def test_a_guest_has_a_volume_once_its_instance_has_it_ready(status: Any, is_ready: bool) -> None:
    async def story(state: HarvesterState, line: Slow, clock: LoopClock) -> Any:
        disk = {"name": "pvc-1", "persistentVolumeClaim": {"claimName": "pvc-1", "hotpluggable": True}}
        head = {"name": "node-1", "namespace": "default", "resourceVersion": "1"}
        spec = {"template": {"spec": {"volumes": [disk]}}}
        state.vms.put(VM.ref("node-1", "default"), read_vm({"metadata": head, "spec": spec}))
        if status is not None:
            raw = {"metadata": head, "status": {"volumeStatus": status}}
            state.instances.put(VMI.ref("node-1", "default"), read_instance(raw))
        return state.has_ready("node-1", "pvc-1"), state.nodes_ready(), state.nodes_with("pvc-1")

    assert told(story) == (is_ready, {"pvc-1": ("node-1",)} if is_ready else {}, ["node-1"])
