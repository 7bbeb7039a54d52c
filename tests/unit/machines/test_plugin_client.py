"""The client of plugins against well-behaved and hostile ones: each case ends in time, and no process stays."""

from __future__ import annotations

import asyncio
import logging
import os
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.unit.machines.binaries import a_binary, noop_driver, our_driver

from windrow.machines.plugin.process.client import (
    LOG_BURST,
    DriverError,
    Plugin,
    PluginDisconnected,
    PluginTimeout,
    PluginUnusable,
    Timeouts,
    open_plugin,
)

HASTY = Timeouts(address=30.0, dial=30.0, close=0.3, term=0.3, heartbeat=0.2, heartbeat_answer=1.0)

SERVE = """
import os, signal, sys, time, threading, subprocess
from tests.unit.machines.driver_server import Refusal, listen, serve
"""


@pytest.fixture
def pids(tmp_path: Path) -> Iterator[Path]:
    """A file into which plugins write their process ids; none of them may be alive afterwards."""
    path = tmp_path / "pids"
    path.touch()
    yield path
    # What was killed is dead when the kernel comes round to it.
    deadline = time.monotonic() + 5
    while alive := [pid for pid in map(int, path.read_text().split()) if _is_alive(pid)]:
        assert time.monotonic() < deadline, f"{alive} still run"
        time.sleep(0.01)


def _is_alive(pid: int) -> bool:
    """Whether it still runs. One whose parent has not reaped it yet counts as dead."""
    try:
        status = Path(f"/proc/{pid}/stat").read_text()
    except FileNotFoundError:
        return False
    return status.rpartition(")")[2].split()[0] != "Z"


class Plugins:
    def __init__(self, folder: Path, pids: Path) -> None:
        self._folder, self._pids = folder, pids

    def write(self, body: str) -> Path:
        note = f"import os\nopen({str(self._pids)!r}, 'a').write(f'{{os.getpid()}}\\n')\n"
        return a_binary(self._folder, "test", f"{note}{SERVE}{body}")

    @asynccontextmanager
    async def open(self, body: str, **rest: Any) -> AsyncIterator[Plugin]:
        rest = {"env": {"PATH": os.environ["PATH"]}, "timeouts": HASTY, **rest}
        async with open_plugin(self.write(body), "test", **rest) as plugin:
            yield plugin


@pytest.fixture
def plugins(tmp_path: Path, pids: Path) -> Plugins:
    return Plugins(tmp_path, pids)


async def test_a_plugin_answers_calls(plugins: Plugins) -> None:
    async with plugins.open("serve({'DriverName': lambda _: 'test', 'GetState': lambda _: 4})") as plugin:
        assert await plugin.call("DriverName") == "test"
        assert await plugin.call("GetState") == 4


async def test_a_plugin_gets_the_protocols_environment_and_no_arguments(plugins: Plugins) -> None:
    body = """serve({'DriverName': lambda _: '|'.join([os.environ['MACHINE_PLUGIN_TOKEN'],
        os.environ['MACHINE_PLUGIN_DRIVER_NAME'], *sys.argv[1:], str('HOME' in os.environ)])})"""
    async with plugins.open(body) as plugin:
        assert await plugin.call("DriverName") == "42|test|False"


async def test_a_plugin_gets_the_hosts_arguments_in_rancher_machines_dialect(plugins: Plugins) -> None:
    body = "serve({'DriverName': lambda _: ' '.join(sys.argv[1:])})"
    async with plugins.open(body, argv=("rancher-machine", "rm", "-y", "m-1")) as plugin:
        assert await plugin.call("DriverName") == "rancher-machine rm -y m-1"


async def test_the_configuration_is_there_before_the_first_call(plugins: Plugins) -> None:
    body = """held = {}
serve({'SetConfigRaw': lambda raw: held.update(it=raw), 'GetConfigRaw': lambda _: held['it']})"""
    async with plugins.open(body, config=b'{"MachineName":"m-1"}') as plugin:
        assert await plugin.get_config() == b'{"MachineName":"m-1"}'


async def test_the_old_service_name_is_understood(plugins: Plugins) -> None:
    async with plugins.open("serve({'DriverName': lambda _: 'old'}, service='RpcServerDriver')") as plugin:
        assert await plugin.call("DriverName") == "old"


async def test_the_drivers_error_text_is_unchanged(plugins: Plugins) -> None:
    body = "def no(_): raise Refusal('Host is not running')\nserve({'GetIP': no})"
    async with plugins.open(body) as plugin:
        with pytest.raises(DriverError, match=r"^Host is not running$") as said:
            await plugin.call("GetIP")
        assert said.value.method == "GetIP"


async def test_a_missing_method_is_an_error_of_the_driver(plugins: Plugins) -> None:
    async with plugins.open("serve({})") as plugin:
        with pytest.raises(DriverError, match=r"^rpc: can't find method"):
            await plugin.call("GetIPv6")
        assert await plugin.get_extensions() == frozenset()


async def test_heartbeats_go_on_during_a_long_call(plugins: Plugins) -> None:
    async with plugins.open("serve({'Create': lambda _: time.sleep(1.5)}, silence=0.6)") as plugin:
        await plugin.call("Create")


async def test_calls_run_side_by_side(plugins: Plugins) -> None:
    body = "serve({'Create': lambda _: time.sleep(1), 'GetState': lambda _: 6})"
    async with plugins.open(body) as plugin, asyncio.TaskGroup() as group:
        creating = group.create_task(plugin.call("Create"))
        assert await plugin.call("GetState") == 6
        assert not creating.done()


@pytest.mark.parametrize(
    ("body", "told"),
    [
        ("sys.stderr.write('no such region\\n'); sys.exit(3)", "ended with exit code 3.*no such region"),
        ("os.close(1); time.sleep(60)", "closed its output"),
        ("print('Usage: test [flags]', flush=True); time.sleep(60)", "'Usage: test"),
        ("print('x' * 10_000_000, flush=True); time.sleep(60)", "where 127.0.0.1:PORT was expected"),
        ("print('192.0.2.1:80', flush=True); time.sleep(60)", "'192.0.2.1:80'"),
        ("print('127.0.0.1:1', flush=True); time.sleep(60)", "cannot be reached at 127.0.0.1:1"),
        ("print('127.0.0.1:99999', flush=True); time.sleep(60)", "127.0.0.1:99999"),
        ("serve({'GetVersion': lambda _: 2})", "speaks version 2"),
        ("serve({}, service='SomethingElse')", "does not answer GetVersion"),
        ("s = listen(); s.accept()[0].sendall(b'\\x00\\xff' * 9000); time.sleep(60)", "greeting|protocol"),
        (
            "c = listen().accept()[0]; c.recv(99); c.sendall(b'HTTP/1.0 200 Connected to Go RPC\\n\\n\\x01\\x07');"
            "time.sleep(60)",
            "not the plugin protocol",
        ),
        ("c = listen().accept()[0]; c.close(); time.sleep(60)", "connection ended|broke"),
    ],
)
async def test_a_program_that_is_no_plugin_is_reported_before_the_time_is_over(
    plugins: Plugins, body: str, told: str
) -> None:
    began = time.monotonic()
    with pytest.raises((PluginUnusable, PluginDisconnected), match=told):
        async with plugins.open(body):
            pytest.fail("it was taken for a plugin")
    assert time.monotonic() - began < HASTY.address


async def test_a_program_that_prints_nothing_times_out(plugins: Plugins) -> None:
    patience = replace(HASTY, address=0.5)
    with pytest.raises(PluginUnusable, match=r"printed no address within 0\.5 s(?!.*last output)"):
        async with plugins.open("time.sleep(60)", timeouts=patience):
            pytest.fail("it was taken for a plugin")


async def test_a_server_that_never_answers_times_out(plugins: Plugins) -> None:
    patience = replace(HASTY, calls={"GetVersion": 0.5})
    with pytest.raises(PluginTimeout, match=r"did not answer GetVersion within 0\.5 s"):
        async with plugins.open("c = listen().accept()[0]; time.sleep(60)", timeouts=patience):
            pytest.fail("it was taken for a plugin")


async def test_a_missing_binary_or_one_that_is_no_program_is_reported(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("hello")
    (tmp_path / "text").chmod(0o755)
    for name, told in (("absent", "No such file"), ("text", "Exec format")):
        with pytest.raises(PluginUnusable, match=told):
            async with open_plugin(tmp_path / name, "test", env={}):
                pytest.fail("it was taken for a plugin")


async def test_a_plugin_that_dies_in_a_call_is_reported_with_its_last_output(plugins: Plugins) -> None:
    body = (
        "def die(_): print('out of cheese', file=sys.stderr, flush=True); os._exit(7)\nserve({'Create': die})"
    )
    with pytest.raises(PluginDisconnected, match=r"disconnected during Create.*exit code 7.*out of cheese"):
        async with plugins.open(body) as plugin:
            await plugin.call("Create")


async def test_every_later_call_of_a_lost_plugin_fails_at_once(plugins: Plugins) -> None:
    async with plugins.open("serve({'GetState': lambda _: os._exit(0)})") as plugin:
        for _ in range(2):
            with pytest.raises(PluginDisconnected):
                await plugin.call("GetState")


async def test_a_call_that_takes_too_long_times_out(plugins: Plugins) -> None:
    patience = replace(HASTY, calls={"GetState": 0.3})
    with pytest.raises(PluginTimeout, match="GetState"):
        async with plugins.open("serve({'GetState': lambda _: time.sleep(60)})", timeouts=patience) as plugin:
            await plugin.call("GetState")


async def test_a_plugin_that_answers_no_heartbeat_times_out(plugins: Plugins) -> None:
    body = "serve({'Heartbeat': lambda _: time.sleep(60), 'Create': lambda _: time.sleep(60)}, silence=60)"
    with pytest.raises(PluginDisconnected, match="no heartbeat"):
        async with plugins.open(body) as plugin:
            await plugin.call("Create")


async def test_an_answer_of_another_type_is_reported(plugins: Plugins) -> None:
    body = """from windrow.protocols import dockermachine as wire
wire.METHODS = {**wire.METHODS, 'GetState': wire.METHODS['GetIP']}
serve({'GetState': lambda _: 'Running'})"""
    with pytest.raises(PluginUnusable, match="GetState"):
        async with plugins.open(body) as plugin:
            await plugin.call("GetState")


@pytest.mark.parametrize("kept", ["b'no json'", "b'[]'", "b'{' + b' ' * 1_000_000 + b'}'"])
async def test_an_invalid_driver_config_is_reported(plugins: Plugins, kept: str) -> None:
    async with plugins.open(f"serve({{'GetConfigRaw': lambda _: {kept}}})") as plugin:
        with pytest.raises(PluginUnusable, match="no JSON object"):
            await plugin.get_driver_config()


async def test_a_plugin_whose_host_is_killed_ends_by_itself(tmp_path: Path) -> None:
    binary = our_driver(tmp_path)
    program = f"""
import asyncio, pathlib
from windrow.machines.plugin.process.client import open_plugin
async def main():
    async with open_plugin(pathlib.Path({str(binary)!r}), "harvester", env={{}}) as plugin:
        print(plugin.pid, flush=True)
        await asyncio.sleep(60)
asyncio.run(main())
"""
    host = await asyncio.create_subprocess_exec(sys.executable, "-c", program, stdout=asyncio.subprocess.PIPE)
    assert host.stdout is not None
    pid = int(await host.stdout.readline())
    assert _is_alive(pid)
    host.kill()
    await host.wait()

    deadline = time.monotonic() + 15
    while _is_alive(pid):
        assert time.monotonic() < deadline
        await asyncio.sleep(0.05)


async def test_a_plugin_that_ignores_close_and_sigterm_is_killed(plugins: Plugins) -> None:
    body = "signal.signal(signal.SIGTERM, signal.SIG_IGN)\nserve({'Close': lambda _: None}, silence=60)"
    began = time.monotonic()
    async with plugins.open(body):
        pass
    assert time.monotonic() - began < 4


async def test_what_a_plugin_started_goes_with_it(plugins: Plugins, pids: Path) -> None:
    body = f"""child = subprocess.Popen(['sleep', '60'])
open({str(pids)!r}, 'a').write(f'{{child.pid}}\\n')
serve({{'GetState': lambda _: 1 if child.poll() is None else 7}})"""
    async with plugins.open(body) as plugin:
        assert await plugin.call("GetState") == 1


@pytest.mark.parametrize("moment", [0.0, 0.05, 0.2, 0.35, 0.6, 1.0])
async def test_a_cancellation_at_any_moment_leaves_no_process(plugins: Plugins, moment: float) -> None:
    async def use() -> None:
        async with plugins.open("serve({'Create': lambda _: time.sleep(60)}, silence=60)") as plugin:
            await plugin.call("Create")

    using = asyncio.create_task(use())
    await asyncio.sleep(moment)
    using.cancel()
    with pytest.raises(asyncio.CancelledError):
        await using


async def test_a_cancellation_during_shutdown_leaves_no_process(plugins: Plugins) -> None:
    leaving = asyncio.Event()

    async def use() -> None:
        patience = replace(HASTY, close=30.0)
        async with plugins.open("serve({'Close': lambda _: None}, silence=60)", timeouts=patience):
            leaving.set()

    using = asyncio.create_task(use())
    await leaving.wait()
    await asyncio.sleep(0.1)
    using.cancel()
    with pytest.raises(asyncio.CancelledError):
        await using


async def test_an_error_in_the_block_is_raised_and_leaves_no_process(plugins: Plugins) -> None:
    with pytest.raises(ZeroDivisionError):
        async with plugins.open("serve({'Create': lambda _: time.sleep(60)}, silence=60)"):
            raise ZeroDivisionError


async def test_lines_of_any_length_are_drained_and_logged_in_part(
    plugins: Plugins, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    body = """def shout(_):
    for _ in range(20):
        sys.stdout.write('a' * 1_000_000 + '\\n'); sys.stderr.write('b' * 300_000 + '\\n')
    print('done', flush=True)
serve({'Create': shout})"""
    async with plugins.open(body, label="m-1") as plugin:
        await plugin.call("Create")
    assert max(len(record.getMessage()) for record in caplog.records) < 3000
    assert "(m-1) done" in caplog.messages


async def test_a_plugin_that_prints_without_end_fills_no_log(
    plugins: Plugins, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    body = """def shout(_):
    sys.stdout.write('noise\\n' * 20_000 + 'the end\\n'); sys.stdout.flush(); os._exit(7)
serve({'Create': shout})"""
    with pytest.raises(PluginDisconnected, match=r"noise \| the end"):
        async with plugins.open(body, label="m-1") as plugin:
            await plugin.call("Create")
    assert LOG_BURST <= caplog.messages.count("(m-1) noise") < 2 * LOG_BURST


async def test_lines_become_log_records_without_secrets(
    plugins: Plugins, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    secret = "apiVersion: v1\nusers:\n- token: abcdefghijklmnopqrstuvwxyz\n"
    body = """def talk(_):
    print('using abcdefghijklmnopqrstuvwxyz', flush=True)
    raise Refusal('401 for abcdefghijklmnopqrstuvwxyz')
serve({'Create': talk})"""
    async with plugins.open(body, label="m-1", secrets=[secret]) as plugin:
        with pytest.raises(DriverError, match="401 for …"):
            await plugin.call("Create")
    assert "(m-1) using …" in caplog.messages
    assert "abcdefghij" not in caplog.text


@pytest.mark.parametrize("before", [1480, 1990, 2990, 4080])
async def test_a_secret_that_lies_across_a_cut_shows_nothing_of_itself(
    plugins: Plugins, caplog: pytest.LogCaptureFixture, before: int
) -> None:
    caplog.set_level(logging.INFO)
    body = f"""text = '.' * {before} + ' abcdefghijklmnopqrstuvwxyz' * 3000
def talk(_):
    print(text, flush=True)
    raise Refusal(text)
serve({{'Create': talk}})"""
    async with plugins.open(body, secrets=["abcdefghijklmnopqrstuvwxyz"]) as plugin:
        with pytest.raises(DriverError) as caught:
            await plugin.call("Create")
    assert "abcd" not in caught.value.text
    assert "abcd" not in caplog.text


async def test_a_closed_standard_output_after_the_address_does_no_harm(plugins: Plugins) -> None:
    body = "def hush(_): os.close(1); return 1\nserve({'GetState': hush, 'DriverName': lambda _: 'x'})"
    async with plugins.open(body) as plugin:
        assert await plugin.call("GetState") == 1
        assert await plugin.call("DriverName") == "x"


async def test_twenty_plugins_at_once_come_and_go(plugins: Plugins) -> None:
    binary = plugins.write("serve({'DriverName': lambda _: 'test'})")

    async def one(number: int) -> str:
        async with open_plugin(binary, "test", env={}, label=str(number)) as plugin:
            return str(await plugin.call("DriverName"))

    assert await asyncio.gather(*(one(number) for number in range(20))) == ["test"] * 20


async def test_the_flags_of_a_driver_are_read_with_their_kinds_and_defaults(
    tmp_path: Path,
) -> None:
    async with open_plugin(
        noop_driver(tmp_path), "noop", env={"NOOP_WORLD": str(tmp_path / "world")}
    ) as plugin:
        flags = await plugin.get_flags()
    assert [(flag.kind, flag.name, flag.default) for flag in flags] == [
        ("string", "noop-region", "north"),
        ("int", "noop-size", 2),
        ("bool", "noop-spot", False),
        ("strings", "noop-tag", ("a", "b")),
        ("string", "noop-token", ""),
        ("string", "noop-userdata", ""),
    ]


async def test_too_long_an_environment_is_reported_with_a_hint(tmp_path: Path) -> None:
    with pytest.raises(PluginUnusable, match="shorten the fields of its credential"):
        async with open_plugin(noop_driver(tmp_path), "noop", env={"K": "x" * 200_000}):
            pass
