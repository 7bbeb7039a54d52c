"""A program of this computer as a guest's program; a shell script stands for it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from windrow.app.clock import SystemClock
from windrow.app.guest_programs import GuestProcess, guest_programs
from windrow.core.formats.yaml import load
from windrow.core.rng import Rng
from windrow.emulator.guest_os.hardware import Disk, File, ProgramContext
from windrow.emulator.kit.network import Network
from windrow.kubernetes.kubeconfig import ClientConfig, ExecConfig, render_kubeconfig

PROXY = "http://127.0.0.1:3128"
CONFIG = "/etc/kubernetes/cloud-config"
ARGV = ("harvester-cloud-provider", f"--cloud-config={CONFIG}", "--cluster-name=demo", "--v=3")


def a_kubeconfig(token: str, **rest: object) -> str:
    return render_kubeconfig(ClientConfig("https://192.168.0.1:6443", token=token, **rest), "harvester")  # type: ignore[arg-type]


class Guest:
    """A node's files, and what its program said."""

    def __init__(self, config: str) -> None:
        self.root = Disk({CONFIG: File(config.encode())})
        self.lines: list[str] = []
        self._news = asyncio.Event()

    @property
    def around(self) -> ProgramContext:
        return ProgramContext(
            ARGV,
            {"NODE": "w1"},
            self.root,
            SystemClock(),
            Rng(1),
            Network(),
            self._hear,
            a_kubeconfig("guest"),
        )

    def _hear(self, line: str) -> None:
        self.lines.append(line)
        self._news.set()

    async def until_said(self, words: str) -> None:
        async with asyncio.timeout(10):
            while not any(words in line for line in self.lines):
                self._news.clear()
                await self._news.wait()


@pytest.fixture
def script(tmp_path: Path) -> Callable[[str], GuestProcess]:
    def make(body: str) -> GuestProcess:
        path = tmp_path / "program"
        path.write_text(f"#!/bin/sh\n{body}\n")
        path.chmod(0o755)
        return GuestProcess(path, {"PATH": "/usr/bin:/bin"}, PROXY)

    return make


async def test_it_gets_the_arguments_of_the_chart_and_its_own_ways_through_the_proxy(
    script: Callable[[str], GuestProcess],
) -> None:
    guest = Guest(a_kubeconfig("secret"))
    code = await script('echo "$NODE $*"; cat "$KUBECONFIG"; exit 3')(guest.around)

    said, *kubeconfig = guest.lines
    assert code == 3
    assert said.startswith("w1 --cluster-name=demo --v=3 --cloud-config=/")
    assert said.endswith(" --secure-port=0")
    assert load("\n".join(kubeconfig))["clusters"][0]["cluster"]["proxy-url"] == PROXY


async def test_its_cloud_config_follows_the_one_of_the_node(script: Callable[[str], GuestProcess]) -> None:
    guest = Guest(a_kubeconfig("old"))
    program = script(
        "for it; do case $it in --cloud-config=*) f=${it#*=};; esac; done; while :; do cat $f; sleep 0.1; done"
    )
    task = asyncio.ensure_future(program(guest.around))
    try:
        await guest.until_said("token: old")
        guest.root.files[CONFIG].content = a_kubeconfig("new").encode()
        await guest.until_said("token: new")
    finally:
        task.cancel()
        await asyncio.wait({task})

    assert PROXY in "\n".join(guest.lines)


async def test_it_is_ended_by_sigterm_and_its_last_words_are_heard(
    script: Callable[[str], GuestProcess],
) -> None:
    guest = Guest(a_kubeconfig("x"))
    program = script("trap 'echo bye; exit 0' TERM; echo up; while :; do sleep 0.05; done")
    task = asyncio.ensure_future(program(guest.around))
    await guest.until_said("up")
    task.cancel()
    await asyncio.wait({task})

    assert guest.lines == ["up", "bye"]


async def test_a_simulated_guest_starts_no_program_of_this_computer() -> None:
    guest = Guest(a_kubeconfig("", exec=ExecConfig("/bin/login")))
    env = {"KUBERNETES_SERVICE_HOST": "10.0.0.1", "KUBERNETES_SERVICE_PORT": "443"}
    around = guest.around
    code = await guest_programs()["harvester-cloud-provider"](
        ProgramContext(ARGV, env, around.root, around.clock, around.rng, around.network, around.out)
    )

    assert code == 1
    assert "simulated guests have no programs of this computer" in guest.lines[1]
