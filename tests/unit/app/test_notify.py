"""What systemd is told, over real sockets."""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from tests.support.clock import LoopClock, run_driven

from windrow.app.systemd.notify import MAX_STATUS, Notifier, notifying
from windrow.core.clock import sleep

PID = 4711


@pytest.fixture
def systemd(tmp_path: Path) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as link:
        link.bind(str(tmp_path / "notify"))
        link.setblocking(False)
        yield link


def env_of(link: socket.socket, **more: str) -> dict[str, str]:
    return {"NOTIFY_SOCKET": link.getsockname(), **more}


def told(link: socket.socket) -> list[str]:
    """The messages until now."""
    found = []
    while True:
        try:
            found.append(link.recv(4096).decode())
        except BlockingIOError:
            return found


def test_it_is_told_that_the_service_serves_what_it_does_and_that_it_ends(systemd: socket.socket):
    notifier = Notifier(env_of(systemd), PID)

    notifier.ready("serving at https://127.0.0.1:6443")
    notifier.status("active")
    notifier.stopping()

    assert told(systemd) == [
        "READY=1\nSTATUS=serving at https://127.0.0.1:6443",
        "STATUS=active",
        "STOPPING=1\nSTATUS=stopping",
    ]


def test_an_abstract_socket_is_reached():
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as link:
        name = f"windrow-test-{os.getpid()}"
        link.bind(f"\0{name}")
        link.setblocking(False)

        Notifier({"NOTIFY_SOCKET": f"@{name}"}, PID).status("here")

        assert told(link) == ["STATUS=here"]


def test_a_status_is_one_short_line_and_so_no_message_of_its_own(systemd: socket.socket):
    Notifier(env_of(systemd), PID).status("a\nMAINPID=1\x1b" + "x" * 10_000)

    [line] = told(systemd)
    assert "\n" not in line
    assert len(line) == len("STATUS=") + MAX_STATUS == 207


@pytest.mark.parametrize("named", ["", "@", "vsock:2:1234", "relative/path"])
def test_where_no_socket_is_named_nothing_is_sent(named: str, caplog: pytest.LogCaptureFixture):
    notifier = Notifier({"NOTIFY_SOCKET": named, "WATCHDOG_USEC": "60000000"}, PID)

    notifier.ready("serving")

    assert notifier.watchdog is None
    assert bool(caplog.records) == bool(named)


def test_a_socket_that_is_gone_is_logged_once(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    notifier = Notifier({"NOTIFY_SOCKET": str(tmp_path / "gone")}, PID)

    with caplog.at_level(logging.WARNING):
        notifier.ready("serving")
        notifier.stopping()

    assert [record.getMessage() for record in caplog.records] == [
        "systemd cannot be told READY=1: No such file or directory"
    ]


def test_a_socket_whose_queue_is_full_blocks_nothing(systemd: socket.socket):
    notifier = Notifier(env_of(systemd), PID)

    for _ in range(5000):
        notifier.status("again")

    assert told(systemd)


@pytest.mark.parametrize(
    ("env", "interval"),
    [
        ({"WATCHDOG_USEC": "120000000"}, timedelta(minutes=2)),
        ({"WATCHDOG_USEC": "120000000", "WATCHDOG_PID": str(PID)}, timedelta(minutes=2)),
        ({"WATCHDOG_USEC": "1000000"}, timedelta(seconds=1)),
        (
            {"WATCHDOG_USEC": "120000000", "WATCHDOG_PID": "1"},
            None,
        ),  # a child has the variables of its parent
        ({"WATCHDOG_USEC": "999999"}, None),
        ({"WATCHDOG_USEC": "0"}, None),
        ({"WATCHDOG_USEC": "-1"}, None),
        ({"WATCHDOG_USEC": "9" * 15}, timedelta(microseconds=10**15 - 1)),
        ({"WATCHDOG_USEC": "9" * 16}, None),
        ({"WATCHDOG_USEC": "²"}, None),
        ({}, None),
    ],
)
def test_the_watchdog_s_interval_is_that_of_this_process(
    systemd: socket.socket, env: dict[str, str], interval: timedelta | None
):
    assert Notifier(env_of(systemd, **env), PID).watchdog == interval


def test_the_watchdog_is_fed_twice_in_each_interval_until_the_end_is_told(systemd: socket.socket):
    async def story() -> None:
        clock = LoopClock()
        env = env_of(systemd, WATCHDOG_USEC="120000000")
        async with notifying(env, clock) as notifier:
            notifier.ready("serving")
            await sleep(clock, timedelta(minutes=5, seconds=30))
        await sleep(clock, timedelta(minutes=10))

    run_driven(story())

    messages = told(systemd)
    assert messages.count("WATCHDOG=1") == 6
    assert messages[-1].startswith("STOPPING=1")


def test_without_a_watchdog_nothing_runs_beside_the_service(systemd: socket.socket):
    async def story() -> None:
        async with notifying(env_of(systemd), LoopClock()) as notifier:
            await notifier.feed_watchdog(LoopClock())

    run_driven(story())

    assert [line.split("=")[0] for line in told(systemd)] == ["STOPPING"]


def test_an_error_of_the_service_stays_what_it_is(systemd: socket.socket):
    async def story() -> None:
        async with notifying(env_of(systemd, WATCHDOG_USEC="120000000"), LoopClock()):
            raise PermissionError("the port")

    with pytest.raises(PermissionError, match="the port"):
        run_driven(story())

    assert told(systemd)[-1].startswith("STOPPING=1")
