"""The NodeDriver controller dies at every write to the API and at every step on the disk, and the next start makes it good.

`make test` takes every fifth of them, `make test-long` each.
"""

from __future__ import annotations

import asyncio
import builtins
import io
import os
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from tests.unit.drivers.files import sha256

from windrow.client.transport import Transport
from windrow.drivers.api import NODE_DRIVER
from windrow.kubernetes.errors import NotFound
from windrow.kubernetes.requests import Reply, Request, WatchEvent
from windrow.kubernetes.resources import CRD

from .node_driver_rig import FIRST, NOOP_CONFIG, SECOND, URL, NodeDriverRig, node_driver_rig, run_story

STEPS = ("fsync", "rename", "replace", "unlink", "rmdir", "mkdir", "chmod")


class Death(BaseException):
    """Nothing that the process does after this happens any more."""


@dataclass
class Life:
    """Ends at step number `end`: on the disk before the step, at the API before or after a write."""

    end: int
    steps: list[str] = field(default_factory=list)
    over: bool = False

    def step(self, what: str) -> None:
        if self.over:
            raise Death
        self.steps.append(what)
        if len(self.steps) == self.end:
            self.over = True
            raise Death


@dataclass(eq=False)
class MortalTransport:
    """The line of a process to the API; cut when its life is over."""

    inner: Transport
    life: Life

    async def send(self, request: Request) -> Reply:
        if self.life.over:
            await asyncio.Event().wait()
        if request.is_read:
            return await self.inner.send(request)
        self.life.step(f"before {request.method} {request.path}")
        reply = await self.inner.send(request)
        self.life.step(f"after {request.method} {request.path}")
        return reply

    def stream(self, request: Request) -> AbstractAsyncContextManager[AsyncIterator[WatchEvent]]:
        return self.inner.stream(request)

    async def aclose(self) -> None:
        pass


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Callable[[Life], None]:
    """Makes the steps on the disk those of a life."""

    def belong_to(life: Life) -> None:
        def mortal(name: str, real: Callable[..., Any]) -> Callable[..., Any]:
            def step(*args: Any, **rest: Any) -> Any:
                if life.end:
                    life.step(f"{name} {args[0]}")
                return real(*args, **rest)

            return step

        for name in STEPS:
            monkeypatch.setattr(os, name, mortal(name, REAL[name]))

        def mortal_open(file: Any, mode: str = "r", *args: Any, **rest: Any) -> Any:
            if life.end and "w" in mode:
                life.step(f"open {file}")
            return REAL_OPEN(file, mode, *args, **rest)

        monkeypatch.setattr(io, "open", mortal_open)

    return belong_to


REAL = {name: getattr(os, name) for name in STEPS}
REAL_OPEN = builtins.open


async def live(rig: NodeDriverRig, life: Life) -> None:
    """Let time pass, and start the next life where the one before ended; that one never does."""
    await rig.wait(10)
    if life.over and life.end:
        await rig.stop()
        life.end = 0
        rig.start()
        await rig.wait(10)


def told_with_death(end: int, folder: Path, disk: Callable[[Life], None]) -> Life:
    life = Life(end)

    async def story() -> None:
        async with node_driver_rig(folder, start=False) as rig:
            disk(life)
            rig.start(MortalTransport(rig.api.local(), life))
            await rig.add()
            await live(rig, life)
            assert (await rig.condition()).reason == "Active", life.steps[-1]
            assert rig.files() == rig.files_of(FIRST), life.steps[-1]

            rig.files_by_url[URL] = SECOND
            await rig.change(checksum=sha256(SECOND))
            await live(rig, life)
            assert (await rig.condition()).reason == "Active", life.steps[-1]
            assert (await rig.get())["status"]["appliedChecksum"] == sha256(SECOND)
            assert rig.files() == rig.files_of(SECOND), life.steps[-1]
            assert rig.controller is not None
            assert rig.controller.find_binary("noop") is not None

            await rig.client.delete(NODE_DRIVER.ref("noop"))
            await live(rig, life)
            assert rig.files() == [], life.steps[-1]
            with pytest.raises(NotFound):
                await rig.get()
            with pytest.raises(NotFound):
                await rig.client.get(CRD.ref(NOOP_CONFIG.group_resource))

    run_story(story)
    return life


@pytest.mark.parametrize("every", [15, pytest.param(1, marks=pytest.mark.long)])
def test_a_crash_at_any_write_or_rename_is_recovered_at_the_next_start(
    tmp_path: Path, disk: Callable[[Life], None], every: int
):
    whole = told_with_death(10_000, tmp_path / "whole", disk)

    assert not whole.over
    assert len(whole.steps) > 60
    for end in range(1, len(whole.steps) + 1, every):
        life = told_with_death(end, tmp_path / str(end), disk)
        assert life.over
