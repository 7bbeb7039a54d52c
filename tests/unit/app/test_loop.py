from __future__ import annotations

import asyncio
import resource
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest

from windrow.app.loop import run_service

DEFAULTS = {
    signal.SIGTERM: signal.SIG_DFL,
    signal.SIGHUP: signal.SIG_DFL,
    signal.SIGINT: signal.default_int_handler,
}


@pytest.fixture(autouse=True)
def default_handlers() -> Iterator[None]:
    """A suite in the background of a script, or under nohup, inherits SIGINT or SIGHUP as ignored."""
    before = {number: signal.signal(number, handler) for number, handler in DEFAULTS.items()}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.parametrize("number", DEFAULTS)
def test_a_signal_cancels_the_service_which_cleans_up(number: signal.Signals):
    cleaned = []

    async def serve() -> None:
        try:
            signal.raise_signal(number)
            async with asyncio.timeout(60):
                await asyncio.Event().wait()
        finally:
            cleaned.append(number)

    with pytest.raises(KeyboardInterrupt):
        run_service(serve())

    assert cleaned == [number]


@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGINT])
def test_a_signal_that_is_ignored_from_the_start_stays_ignored(number: signal.Signals):
    async def serve() -> str:
        signal.raise_signal(number)
        await asyncio.sleep(0)
        return "still serving"

    signal.signal(number, signal.SIG_IGN)

    assert run_service(serve()) == "still serving"


def test_these_tests_pass_in_a_process_that_ignores_the_signals():
    """As `(pytest &)` in a script and `nohup pytest` start it."""
    code = (
        "import pytest, signal, sys\n"
        "signal.signal(signal.SIGINT, signal.SIG_IGN)\n"
        "signal.signal(signal.SIGHUP, signal.SIG_IGN)\n"
        "sys.exit(pytest.main(['-q', '-p', 'no:cacheprovider', '-k', 'a_signal', sys.argv[1]]))\n"
    )
    done = subprocess.run([sys.executable, "-c", code, __file__], capture_output=True, text=True, timeout=100)

    assert done.returncode == 0, done.stdout + done.stderr


def test_a_service_may_open_as_many_files_as_the_hard_limit_allows():
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (256, before[1]))

        async def serve() -> int:
            return resource.getrlimit(resource.RLIMIT_NOFILE)[0]

        assert run_service(serve()) > 256
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


def test_a_service_leaves_no_core_dump():
    before = resource.getrlimit(resource.RLIMIT_CORE)
    try:
        resource.setrlimit(resource.RLIMIT_CORE, (before[1], before[1]))

        async def serve() -> int:
            return resource.getrlimit(resource.RLIMIT_CORE)[0]

        assert run_service(serve()) == 0
    finally:
        resource.setrlimit(resource.RLIMIT_CORE, before)
