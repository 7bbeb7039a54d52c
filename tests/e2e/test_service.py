"""`windrow serve` as systemd starts it."""

from __future__ import annotations

import ctypes
import re
import shutil
import signal
import socket
import ssl
import subprocess
import urllib.error
import urllib.request
from collections.abc import Set
from functools import partial
from pathlib import Path

import pytest
from tests.e2e.processes import ROOT, WINDROW, Shell
from tests.e2e.system_calls import allow_only, expand

from windrow.kubernetes.kubeconfig import parse_kubeconfig

UNIT = ROOT / "deploy" / "systemd" / "windrow.service"
# prctl(2): no program gains privileges, and no memory is both written and executed (the second from Linux 6.3 on).
NO_NEW_PRIVS, MEMORY_DENY_WRITE_EXECUTE = 38, 65


needs_systemd = pytest.mark.skipif(
    shutil.which("systemd-analyze") is None, reason="there is no systemd-analyze here"
)


def unit_s_calls() -> Set[str]:
    """The system calls that deploy/systemd/windrow.service allows."""
    [filter] = re.findall(r"^SystemCallFilter=(.*)$", UNIT.read_text(), re.M)
    return expand(["@default", *filter.split()])


def confine(calls: Set[str]) -> None:
    """What systemd does for NoNewPrivileges, MemoryDenyWriteExecute and SystemCallFilter."""
    prctl = ctypes.CDLL(None).prctl
    prctl(NO_NEW_PRIVS, 1, 0, 0, 0)
    prctl(MEMORY_DENY_WRITE_EXECUTE, 1, 0, 0, 0)
    if calls:
        allow_only(calls)


def answers(kubeconfig: Path) -> bool:
    """Whether the API answers at the very first request."""
    access = parse_kubeconfig(kubeconfig.read_text())
    context = ssl.create_default_context(cadata=access.ca)
    try:
        with urllib.request.urlopen(f"{access.server}/readyz", context=context, timeout=10) as answer:
            return bool(answer.read())
    except urllib.error.HTTPError as refused:  # to a user without a name
        return refused.code in (401, 403)


def test_systemd_is_told_that_it_serves_once_it_does_and_that_it_stops(tmp_path: Path):
    assert_serves(tmp_path, set())


@needs_systemd
def test_it_serves_with_the_system_calls_that_the_unit_allows(tmp_path: Path):
    calls = unit_s_calls()

    assert {"landlock_restrict_self", "openat", "setrlimit"} <= calls
    assert not {"mount", "bpf", "ptrace", "reboot"} & calls
    assert_serves(tmp_path, calls)


def assert_serves(tmp_path: Path, calls: Set[str]) -> None:
    """`windrow serve`, confined to `calls`, tells what it does, and answers."""
    state, log = tmp_path / "state", tmp_path / "log"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd, log.open("wb") as out:
        systemd.bind(str(tmp_path / "notify"))
        systemd.settimeout(60)
        env = {**Shell(tmp_path).env, "NOTIFY_SOCKET": systemd.getsockname(), "WATCHDOG_USEC": "120000000"}
        process = subprocess.Popen(
            [WINDROW, "serve", "--state-dir", str(state)],
            env=env,
            stdout=out,
            stderr=out,
            preexec_fn=partial(confine, calls),
        )
        try:
            said = [systemd.recv(4096).decode() for _ in range(2)]
            answered = answers(state / "manager.yaml")
        finally:
            process.send_signal(signal.SIGTERM)
            code = process.wait(60)
        said.append(systemd.recv(4096).decode())

    assert answered
    assert code == 0, log.read_text()
    assert sorted(message.split("\n")[0] for message in said) == ["READY=1", "STOPPING=1", "WATCHDOG=1"]
    [ready] = [message for message in said if message.startswith("READY")]
    assert "STATUS=serving at https://127.0.0.1:" in ready


@pytest.mark.long
def test_a_manager_over_another_kubernetes_is_ready_while_it_waits_for_its_lease(tmp_path: Path):
    """Of two, the one that waits has to count as started, too."""
    shell = Shell(tmp_path)
    with (
        socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd,
        shell.process("emulate", "--state-dir", "site", until=["site/harvester.yaml"]),
    ):
        systemd.bind(str(tmp_path / "notify"))
        systemd.settimeout(60)
        env = {**shell.env, "NOTIFY_SOCKET": systemd.getsockname()}
        process = subprocess.Popen(
            [WINDROW, "serve", "--kubeconfig", "site/harvester.yaml"], cwd=tmp_path, env=env
        )
        try:
            said = [systemd.recv(4096).decode() for _ in range(2)]
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(60)
        said.append(systemd.recv(4096).decode())

    assert said == [
        "READY=1\nSTATUS=waiting for Lease kube-system/windrow-manager",
        "STATUS=active, holds Lease kube-system/windrow-manager",
        "STOPPING=1\nSTATUS=stopping",
    ]
