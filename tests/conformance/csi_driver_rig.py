"""CSI drivers as processes, the Go driver or ours, between an emulated Harvester and a guest cluster's API, all on loopback.

Both read the guest's API from the files of a pod's service account, so each runs in a mount namespace of its own that has them.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shlex
import shutil
import signal
import sys
import tempfile
import time
from asyncio.subprocess import Process
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar
from urllib.parse import urlsplit

import grpc
import pytest
from google.protobuf.message import Message

from windrow.core.files import read_text
from windrow.kubernetes.kubeconfig import parse_kubeconfig
from windrow.protocols.csi import csi_pb2 as csi
from windrow.protocols.csi.services import CONTROLLER, IDENTITY, NODE, ServiceClient, methods_of

GO_DRIVER = "WINDROW_GO_CSI_DRIVER"
PROGRAM = "harvester-csi-driver"
START_S = 60.0
CALL_S = 110.0  # what the chart gives a side-car's call
REPEAT_S = 0.3
REPEATS = 40
# So often in a row, and a code counts as the answer that every repetition gets.
FINAL = 5

Response = TypeVar("Response", bound=Message)
_ACCOUNT = "/run/secrets/kubernetes.io/serviceaccount"
_SERVICES = {
    method.request: service
    for service in (IDENTITY, CONTROLLER, NODE)
    for method in methods_of(service).values()
}
_RESPONSES = {
    method.request: method.response
    for service in (IDENTITY, CONTROLLER, NODE)
    for method in methods_of(service).values()
}


def our_program() -> Path:
    """Our driver: the console script beside this interpreter."""
    script = Path(sys.executable).with_name(PROGRAM)
    if not script.exists():
        pytest.skip(f"{script} is not installed: pip install -e .[csi]")
    return script


def require_namespaces() -> None:
    """Skips the test where no mount namespace can be made."""
    if os.geteuid() != 0 or shutil.which("unshare") is None:
        pytest.skip("a mount namespace needs root and unshare")


@dataclass
class Driver:
    """A driver that runs: what a side-car says to it."""

    process: Process
    log_path: Path
    clients: dict[str, ServiceClient]

    def log(self) -> str:
        return self.log_path.read_text(errors="replace")

    async def call(self, request: Message, timeout_s: float = CALL_S) -> Message:
        """One call. Raises grpc.aio.AioRpcError."""
        client = self.clients[_SERVICES[type(request)]]
        return await client.call(request, _RESPONSES[type(request)], timeout_s=timeout_s)

    async def repeat(
        self, request: Message, is_done: Callable[[Message], bool] = lambda answer: True
    ) -> tuple[list[str], Message | None]:
        """What side-cars do: again until it is answered as wanted. The codes in their order, each once in a row, and the answer."""
        codes: list[str] = []
        for _ in range(REPEATS):
            try:
                answer = await self.call(request)
            except grpc.aio.AioRpcError as error:
                codes.append(error.code().name)
                if codes[-FINAL:] == [codes[-1]] * FINAL:
                    return _once_in_a_row(codes), None
            else:
                codes.append("OK")
                if is_done(answer):
                    return _once_in_a_row(codes), answer
            await asyncio.sleep(REPEAT_S)
        raise AssertionError(f"never done: {request}: {codes}\n{self.log()[-3000:]}")

    async def done(
        self, request: Message, is_done: Callable[[Message], bool] = lambda answer: True
    ) -> Message:
        """The answer of a call that succeeds in the end."""
        codes, answer = await self.repeat(request, is_done)
        assert answer is not None, f"{type(request).__name__}: {codes}\n{self.log()[-3000:]}"
        return answer


def _once_in_a_row(codes: Sequence[str]) -> list[str]:
    return [one for place, one in enumerate(codes) if place == 0 or codes[place - 1] != one]


@asynccontextmanager
async def a_driver(
    program: Path,
    folder: Path,
    host_kubeconfig: str,
    guest_kubeconfig: str,
    node: str,
    *flags: str,
    socket: Path | None = None,
) -> AsyncIterator[Driver]:
    """The program at work, on loopback alone. It is killed when the block ends. `socket` is a new one without it."""
    require_namespaces()
    folder.mkdir(parents=True, exist_ok=True)  # noqa: ASYNC240
    with tempfile.TemporaryDirectory(prefix="csi-") as short:  # a path of a socket has at most 107 characters
        socket = socket or Path(short) / "csi.sock"
        socket.unlink(missing_ok=True)
        arguments = [
            str(program),
            f"--endpoint=unix://{socket}",
            f"--nodeid={node}",
            f"--kubeconfig={_write(folder / 'host.kubeconfig', host_kubeconfig)}",
            *flags,
        ]
        log = folder / f"driver-{time.monotonic_ns()}.log"
        with log.open("wb") as out:
            process = await asyncio.create_subprocess_exec(
                "unshare", "--mount", "sh", "-ec", _in_a_pod(folder, guest_kubeconfig, arguments),
                env=_environment(guest_kubeconfig, folder), cwd=folder, stdin=asyncio.subprocess.DEVNULL, stdout=out,
                stderr=out, start_new_session=True,
            )  # fmt: skip
        try:
            await _until_served(process, socket, log)
            async with grpc.aio.insecure_channel(f"unix:{socket}") as channel:
                clients = {name: ServiceClient(channel, name) for name in (IDENTITY, CONTROLLER, NODE)}
                driver = Driver(process, log, clients)
                await driver.done(csi.ProbeRequest(), lambda answer: _is_ready(answer))
                yield driver
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            await process.wait()


def _is_ready(answer: Message) -> bool:
    """No answer means ready, by the specification."""
    assert isinstance(answer, csi.ProbeResponse)
    return not answer.HasField("ready") or answer.ready.value


def _write(path: Path, text: str) -> Path:
    path.write_text(text)
    path.chmod(0o600)
    return path


def _in_a_pod(folder: Path, guest_kubeconfig: str, arguments: Sequence[str]) -> str:
    """The commands that give the namespace a service account's files, and then become the program."""
    access = parse_kubeconfig(guest_kubeconfig, read_file=read_text)
    ca, token = _write(folder / "ca.crt", access.ca), _write(folder / "token", access.token)
    return "\n".join(
        [
            "mount -t tmpfs tmpfs /run",
            f"mkdir -p {_ACCOUNT}",
            f"cp {shlex.quote(str(ca))} {_ACCOUNT}/ca.crt",
            f"cp {shlex.quote(str(token))} {_ACCOUNT}/token",
            f"exec {shlex.join(arguments)}",
        ]
    )


def _environment(guest_kubeconfig: str, folder: Path) -> dict[str, str]:
    server = urlsplit(parse_kubeconfig(guest_kubeconfig, read_file=read_text).server)
    return {
        "PATH": "/usr/sbin:/usr/bin:/sbin:/bin",
        "HOME": str(folder),
        "TMPDIR": str(folder),
        "KUBERNETES_SERVICE_HOST": str(server.hostname),
        "KUBERNETES_SERVICE_PORT": str(server.port),
    }


async def _until_served(process: Process, socket: Path, log: Path) -> None:
    deadline = time.monotonic() + START_S
    while not socket.exists():  # noqa: ASYNC240
        if process.returncode is not None or time.monotonic() > deadline:
            text = log.read_text(errors="replace")  # noqa: ASYNC240
            raise AssertionError(f"no socket:\n{text[-3000:]}")
        await asyncio.sleep(0.05)
