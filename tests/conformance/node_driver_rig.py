"""Real docker-machine programs against the emulator: a served Harvester that notes every request, a folder to run in.

Nothing leaves this machine: the API is served on loopback, the emulated Harvester's proxy is the hosts' own, `ssh` is a stand-in.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import os
import signal
import sys
import time
from asyncio.subprocess import Process
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from tests.blank_machine import BlankMachine

from windrow.apiserver.request.info import parse_request_info
from windrow.app.clock import SystemClock
from windrow.core.rng import Rng
from windrow.emulator import kinds
from windrow.emulator.harvester import Harvester
from windrow.emulator.preload import Image, KeyPair, VmNetwork
from windrow.emulator.proxy import serve
from windrow.kubernetes.handler import Handler, Peer, TlsIdentity
from windrow.kubernetes.objects import resource_version_of
from windrow.kubernetes.requests import Reply, Request, WatchEvent
from windrow.kubernetes.resources import PVC, SECRET

RANCHER_MACHINE = "WINDROW_RANCHER_MACHINE"
DOCKER_MACHINE = "WINDROW_DOCKER_MACHINE"
GO_DRIVER = "WINDROW_GO_NODE_DRIVER"
OUR_DRIVER = "WINDROW_DRIVER_ELF"

PROGRAM = "docker-machine-driver-harvester"
SPEED = 60
IMAGE, NETWORK, OTHER_NETWORK = "default/ubuntu", "default/vlan50", "default/vlan60"
STORAGE = "fast"
KEY_PAIR = "default/keys"
# What Harvester called the class of this image up to v1.3; drivers before v0.6.9 derive it instead of reading it.
IMAGE_CLASS_OF_OLD = "longhorn-ubuntu"
# What a host asks a guest over SSH, answered as a Debian with Docker would.
SSH = """#!/bin/sh
case "$*" in
  *os-release*) [ ! -e "$HOME/no-system" ] || exit 1; echo 'ID=debian'; echo 'VERSION_ID="13"'; echo 'NAME="Debian"' ;;
  *netstat*) echo 'tcp6 0 0 :::2376 :::* LISTEN' ;;
  *"docker --version"*) echo 'Docker version 27.0.0, build 0' ;;
esac
exit 0
"""


def real_program(variable: str) -> Path:
    """The program that the environment names; the test is skipped, saying what to set, where it names none."""
    named = os.environ.get(variable)
    if not named:
        pytest.skip(f"{variable} is not set: it names a real program to try against")
    path = Path(named)
    assert path.is_file(), f"{variable} names {named}, which is not there"
    return path


def our_program() -> Path:
    """Our plugin: the ELF that the environment names, else the console script."""
    if named := os.environ.get(OUR_DRIVER):
        return Path(named)
    script = Path(sys.executable).with_name(PROGRAM)
    if not script.exists():
        pytest.skip(f"{script} is not installed: pip install -e .")
    return script


@dataclass(frozen=True, slots=True)
class RecordedRequest:
    """One request and what became of it."""

    request: Request
    status: int

    def __str__(self) -> str:
        return f"{self.request.method} {self.request.target} {self.status}"

    @property
    def what(self) -> str:
        """The kind asked for, with its subresource: `virtualmachines/stop`, `secrets`, `virtualmachines (watch)`."""
        parts = parse_request_info(self.request.path)
        named = "/".join(filter(None, (parts.plural, parts.subresource)))
        return named + (" (watch)" if self.request.query_parameter("watch") in ("true", "1") else "")


class RecordingHandler:
    """A door that passes everything on and remembers it."""

    def __init__(self, door: Handler) -> None:
        self._door = door
        self.notes: list[RecordedRequest] = []

    def identity(self) -> TlsIdentity | None:
        return self._door.identity()

    async def send(self, request: Request, peer: Peer) -> Reply:
        reply = await self._door.send(request, peer)
        self.notes.append(RecordedRequest(request, reply.status))
        return reply

    def stream(self, request: Request, peer: Peer) -> AbstractAsyncContextManager[AsyncIterator[WatchEvent]]:
        self.notes.append(RecordedRequest(request, 200))
        return self._door.stream(request, peer)


@dataclass(frozen=True, slots=True)
class CommandResult:
    """How a program ended, and what it wrote."""

    code: int
    out: str
    errors: str

    @property
    def all(self) -> str:
        return f"exit {self.code}\n{self.out}\n{self.errors}"


@dataclass
class HarvesterSite:
    """A served Harvester, and the requests it got."""

    harvester: Harvester
    door: RecordingHandler
    url: str
    proxy_url: str
    kubeconfig: str = field(repr=False)

    def calls(self, name: str = "") -> list[RecordedRequest]:
        """The requests since the last `forget` that name the machine, or all."""
        return [note for note in self.door.notes if name in note.request.path]

    def forget(self) -> None:
        self.door.notes.clear()

    def posted(self, plural: str, name: str) -> dict[str, Any] | None:
        """The body with which an object of that name was created, as the client sent it (JSON only)."""
        for note in self.door.notes:
            if note.request.method == "POST" and note.request.path.endswith(f"/{plural}"):
                raw = json.loads(note.request.body or b"{}")
                if raw["metadata"].get("name") == name:
                    return dict(raw)
        return None

    async def is_ordered(self, name: str) -> bool:
        """Whether all objects of the machine were sent."""
        vm = self.posted(kinds.VM.plural, name)
        if vm is None:
            return False
        names_secret = "ecretRef" in json.dumps(vm["spec"]["template"]["spec"]["volumes"])
        return not names_secret or await self.secret_of(name) is not None

    async def secret_of(self, name: str) -> dict[str, Any] | None:
        """The Secret with the machine's cloud-init documents, as it is stored."""
        return await self.harvester.api.local().find(SECRET.ref(f"{name}-cloudinit", "default"))

    async def document(self, name: str) -> str:
        """The machine's user data, wherever it is."""
        vm = json.dumps(self.posted(kinds.VM.plural, name))
        secret = await self.secret_of(name)
        return vm + (base64.b64decode(secret["data"]["userdata"]).decode() if secret else "")

    async def left_over(self) -> list[str]:
        """What is there that a machine brought along."""
        api = self.harvester.api.local()
        found = []
        for kind in (kinds.VM, kinds.VMI, PVC, SECRET):
            for raw in await api.list(kind):
                if raw["metadata"]["namespace"] == "default" and raw.get("type", "Opaque") == "Opaque":
                    found.append(f"{kind.plural}/{raw['metadata']['name']}")
        return found

    async def nothing_left(self) -> None:
        """Wait until nothing of any machine is left; the emulator takes its time to clear up."""
        await self._until(lambda found: not found)

    async def only_left(self, what: str) -> None:
        """Wait until that is all that is left."""
        await self._until(lambda found: found == [what])

    async def until_gone(self, name: str) -> None:
        """Wait until the VM is no more; its disks may stay."""
        await self._until(lambda found: f"{kinds.VM.plural}/{name}" not in found)

    async def until_settled(self, name: str, within: float = 20) -> None:
        """Wait until the VM's object has not changed for half a second: a program that reads it and writes it back is refused
        where it changes between."""
        api, deadline = self.harvester.api.local(), time.monotonic() + within
        seen: list[str] = []
        while len(seen) < 10 or len(set(seen[-10:])) > 1:
            assert time.monotonic() < deadline, f"still changing after {within} s"
            await asyncio.sleep(0.05)
            seen.append(resource_version_of(await api.get(kinds.VM.ref(name, "default"))))

    async def _until(self, holds: Callable[[list[str]], bool], within: float = 20) -> None:
        deadline = time.monotonic() + within
        while not holds(found := await self.left_over()):
            assert time.monotonic() < deadline, f"still there after {within} s: {found}"
            await asyncio.sleep(0.05)


@asynccontextmanager
async def a_site(*, speed: float = SPEED, key: str = "", seed: int = 1) -> AsyncIterator[HarvesterSite]:
    """A Harvester with something on every shelf. Its guests bring an agent, so that drivers learn their addresses."""
    harvester = Harvester(
        SystemClock(),
        Rng(seed),
        machine_factory=lambda hardware, wires: BlankMachine(hardware, wires, agent=True),
        time_scale=speed,
    )
    harvester.handler = door = RecordingHandler(harvester.handler)  # type: ignore[assignment]
    async with asyncio.TaskGroup() as tasks:
        running = tasks.create_task(harvester.run())
        try:
            async with serve(harvester) as served:
                await harvester.preload(
                    images=[Image(IMAGE)],
                    networks=[VmNetwork(NETWORK, vlan=50), VmNetwork(OTHER_NETWORK, vlan=60)],
                    storage_classes=[STORAGE, IMAGE_CLASS_OF_OLD],
                    key_pairs=[KeyPair(KEY_PAIR, key)] if key else [KEY_PAIR],
                )
                yield HarvesterSite(
                    harvester, door, served.url, served.proxy_url, harvester.admin_kubeconfig(served.url)
                )
        finally:
            running.cancel()


@dataclass(frozen=True)
class MachineHost:
    """A folder in which a host program keeps its machines, with one driver within its reach."""

    folder: Path
    host: Path
    driver: Path
    site: HarvesterSite

    def __post_init__(self) -> None:
        for part in ("home", "bin", "tmp"):
            (self.folder / part).mkdir(parents=True)
        (self.folder / "bin" / PROGRAM).symlink_to(self.driver)
        ssh = self.folder / "bin" / "ssh"
        ssh.write_text(SSH)
        ssh.chmod(0o755)
        (self.folder / "install.sh").write_text("#!/bin/sh\necho installed\n")

    @property
    def env(self) -> dict[str, str]:
        return {
            "PATH": os.pathsep.join((str(self.folder / "bin"), "/usr/bin", "/bin")),
            "HOME": str(self.folder / "home"),
            "TMPDIR": str(self.folder / "tmp"),
            "MACHINE_STORAGE_PATH": str(self.folder / "machines"),
            "LANG": "C.UTF-8",
            "MACHINE_BUGSNAG_API_TOKEN": "no-report",  # docker-machine reports what fails to its makers otherwise
            "HTTP_PROXY": self.site.proxy_url,
            "HTTPS_PROXY": self.site.proxy_url,
        }

    async def run(
        self, *arguments: str, env: Mapping[str, str] | None = None, within: float = 90
    ) -> CommandResult:
        """Run the host with these arguments. It is ended, with everything it started, when it takes too long."""
        process = await asyncio.create_subprocess_exec(
            str(self.host),
            *arguments,
            cwd=self.folder,
            env={**self.env, **(env or {})},
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            start_new_session=True,
        )
        reading = asyncio.ensure_future(process.communicate())
        done, _ = await asyncio.wait([reading], timeout=within)
        if not done:
            os.killpg(process.pid, signal.SIGKILL)
            out, errors = await reading
            raise AssertionError(
                f"{arguments} took longer than {within} s\n{out.decode()}\n{errors.decode()}"
            )
        out, errors = reading.result()
        return CommandResult(process.returncode or 0, out.decode(), errors.decode())

    async def create(self, name: str, *flags: str, script: bool = True, within: float = 90) -> CommandResult:
        """`create` as Rancher calls it, the credential in the environment."""
        install = ("--custom-install-script", str(self.folder / "install.sh")) if script else ()
        return await self.run(
            "create", "--driver", "harvester", *install, *flags, name,
            env={"HARVESTER_KUBECONFIG_CONTENT": self.site.kubeconfig}, within=within,
        )  # fmt: skip

    @asynccontextmanager
    async def ordered(self, name: str, *flags: str, within: float = 60) -> AsyncIterator[Process]:
        """`create` as far as the VM and the Secret that it names, or until the host gave up by itself.

        The host is in a group of its own with its plugin; what is left of the group ends with the block.
        """
        with (self.folder / f"{name}.log").open("wb") as log:
            process = await asyncio.create_subprocess_exec(
                str(self.host), "create", "--driver", "harvester",
                "--custom-install-script", str(self.folder / "install.sh"), *flags, name,
                cwd=self.folder,
                env={**self.env, "HARVESTER_KUBECONFIG_CONTENT": self.site.kubeconfig},
                stdin=asyncio.subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )  # fmt: skip
        try:
            deadline = time.monotonic() + within
            while process.returncode is None and not await self.site.is_ordered(name):
                assert time.monotonic() < deadline, self.log(name)
                await asyncio.sleep(0.02)
            yield process
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            await process.wait()

    def log(self, name: str) -> str:
        """What the host and its plugin wrote while they ordered the machine."""
        return (self.folder / f"{name}.log").read_text()

    def plugins(self) -> list[int]:
        """The plugin processes that run, by id."""
        program, found = str(self.folder / "bin" / PROGRAM).encode(), []
        for entry in Path("/proc").iterdir():
            with contextlib.suppress(OSError):
                if entry.name.isdigit() and program in (entry / "cmdline").read_bytes():
                    found.append(int(entry.name))
        return found

    def exchange(self, driver: Path) -> None:
        """From now on the host finds this driver."""
        link = self.folder / "bin" / PROGRAM
        link.unlink()
        link.symlink_to(driver)

    def config(self, name: str) -> dict[str, Any]:
        """What the host wrote down of the machine."""
        path = self.folder / "machines" / "machines" / name / "config.json"
        return dict(json.loads(path.read_text()))

    def knows(self, name: str) -> bool:
        return (self.folder / "machines" / "machines" / name).exists()


class Docker:
    """What answers as the Docker of a machine, with the certificates that its host has made for it."""

    def __init__(self, folder: Path, authority: Path) -> None:
        self._folder, self._authority = folder, authority

    def identity(self) -> TlsIdentity:
        files = (self._folder / "server.pem", self._folder / "server-key.pem", self._authority / "ca.pem")
        return TlsIdentity(*(path.read_text() for path in files))

    async def send(self, request: Request, peer: Peer) -> Reply:
        body = b'{"Version":"27.0.0","ApiVersion":"1.46","MinAPIVersion":"1.24"}'
        return Reply(200, body, headers={"Api-Version": "1.46"})

    def stream(self, request: Request, peer: Peer) -> AbstractAsyncContextManager[AsyncIterator[WatchEvent]]:
        raise NotImplementedError


@contextlib.contextmanager
def a_docker(desk: MachineHost, name: str, address: str) -> Iterator[None]:
    """Docker answers at the machine's address."""
    store = desk.folder / "machines"
    desk.site.harvester.network.listen(address, 2376, Docker(store / "machines" / name, store / "certs"))
    yield
    desk.site.harvester.network.close(address, 2376)


PLAIN: Sequence[str] = (
    "--harvester-disk-info", json.dumps({"disks": [{"imageName": IMAGE, "size": 10, "bootOrder": 1}]}),
    "--harvester-network-info", json.dumps({"interfaces": [{"networkName": NETWORK}]}),
)  # fmt: skip


def count_requests(notes: Sequence[RecordedRequest]) -> Counter[str]:
    """Requests by method and kind, for a report."""
    return Counter(f"{note.request.method} {note.what}" for note in notes)


__all__ = [
    "PLAIN",
    "CommandResult",
    "HarvesterSite",
    "MachineHost",
    "RecordedRequest",
    "RecordingHandler",
    "a_docker",
    "a_site",
    "count_requests",
    "our_program",
    "real_program",
]
