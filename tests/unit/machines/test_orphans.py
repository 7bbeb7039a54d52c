"""The orphans of a killed host are killed by the next one, and nothing else."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from windrow.machines.plugin.process.child import ChildProcess
from windrow.machines.plugin.process.orphans import HOST_ID_ENV, kill_orphans, marked, reap_previous_host

# The processes of a host are found on the whole machine, also those of a test in another worker.
HOST = f"n-{os.getpid()}-1"


@pytest.fixture
def started() -> Iterator[list[subprocess.Popen[bytes]]]:
    processes: list[subprocess.Popen[bytes]] = []
    yield processes
    for process in processes:
        process.kill()
        process.wait()


def a_process(host_id: str, *, session: bool = False) -> subprocess.Popen[bytes]:
    process = subprocess.Popen(
        ["/bin/sleep", "300"], env={HOST_ID_ENV: host_id, "PATH": "/bin"}, start_new_session=session
    )
    # Popen returns during the exec, a moment before the new environment can be read.
    while not Path(f"/proc/{process.pid}/environ").read_bytes():
        time.sleep(0.001)
    return process


def test_every_process_of_this_host_is_killed_in_any_session(
    started: list[subprocess.Popen[bytes]],
) -> None:
    started += [a_process(HOST), a_process(HOST, session=True)]
    assert kill_orphans(HOST) == 2
    assert [process.wait(5) for process in started] == [-9, -9]
    assert kill_orphans(HOST) == 0


def test_processes_of_other_hosts_are_left_alone(started: list[subprocess.Popen[bytes]]) -> None:
    started += [a_process(HOST + "0"), a_process("")]
    assert kill_orphans(HOST) == 0
    assert [process.poll() for process in started] == [None, None]


def test_a_host_kills_the_orphans_of_the_previous_one(
    tmp_path: Path, started: list[subprocess.Popen[bytes]]
) -> None:
    reap_previous_host(tmp_path, HOST)
    started += [a_process(HOST), a_process(HOST.replace("n-", "m-"))]
    reap_previous_host(tmp_path, HOST.replace("n-", "m-"))
    assert started[0].wait(5) == -9
    assert started[1].poll() is None


def test_a_process_that_has_ended_and_waits_for_its_parent_does_not_count() -> None:
    with marked(HOST):
        ended = subprocess.Popen(["/bin/true"])
    os.waitid(os.P_PID, ended.pid, os.WEXITED | os.WNOWAIT)

    try:
        assert kill_orphans(HOST) == 0
    finally:
        ended.wait()


@pytest.mark.parametrize("end", ["by itself", "killed"])
async def test_what_left_the_process_group_of_a_plugin_is_killed_with_it_and_no_other_plugin(
    end: str,
) -> None:
    """It has a session and an environment of its own; another plugin of the same host goes on."""
    code = (
        "import os\n"
        "told, tell = os.pipe()\n"
        "if os.fork() == 0:\n"
        "    os.setsid()\n"
        "    if os.fork() == 0:\n"
        "        print(os.getpid(), flush=True)\n"
        "        os.write(tell, b'.')\n"
        "        os.execve('/bin/sleep', ['sleep', '300'], {})\n"
        "    os._exit(0)\n"
        "os.wait()\n"
        "os.read(told, 1)\n"  # it is killed once this ends, maybe before it has said its pid
    )
    wait = "" if end == "by itself" else "import time; time.sleep(300)"
    lines: asyncio.Queue[str] = asyncio.Queue()
    env = {HOST_ID_ENV: HOST, "PATH": "/bin"}
    other = ChildProcess(["/bin/sleep", "300"], env, lines.put_nowait, lines.put_nowait)
    child = ChildProcess(
        [sys.executable, "-I", "-S", "-c", code + wait], env, lines.put_nowait, lines.put_nowait
    )
    try:
        async with asyncio.timeout(20):
            left = os.pidfd_open(int(await lines.get()))
            if end == "killed":
                child.kill()
            await child.exited.wait()
            ended = asyncio.Event()
            asyncio.get_running_loop().add_reader(left, ended.set)
            await ended.wait()
            asyncio.get_running_loop().remove_reader(left)
            os.close(left)
        assert other.code is None
    finally:
        await child.kill_and_wait()
        await other.kill_and_wait()
