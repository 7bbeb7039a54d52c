"""A real program from a real server: fetched over TLS, proven, unpacked, run. Nothing is handed in but its language."""

from __future__ import annotations

import asyncio
import platform
import shutil
import ssl
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path

import pytest
from tests.unit.drivers.files import a_tar_gz, sha256

from windrow.apiserver.storage.memory import MemoryStore
from windrow.app.clock import SystemClock
from windrow.app.embedded import install_crds, management_api
from windrow.app.loop import running
from windrow.client.client import Client
from windrow.client.downloads import Downloader
from windrow.core import pki
from windrow.core.rng import Rng
from windrow.drivers.api import NODE_DRIVER
from windrow.drivers.archive import Platform
from windrow.drivers.controller import NodeDriverController
from windrow.drivers.store import DriverStore
from windrow.kubernetes.conditions import Condition, find_condition
from windrow.kubernetes.objects import new_object
from windrow.kubernetes.resources import CRD
from windrow.protocols.dockermachine import Flag

pytestmark = pytest.mark.skipif(
    sys.platform != "linux" or shutil.which("cc") is None, reason="needs Linux and a C compiler"
)

DRIVER = "docker-machine-driver-tiny"
SOURCE = '#include <stdio.h>\nint main(void) { puts("tiny-size"); return 0; }\n'


def compiled(folder: Path, *options: str) -> bytes:
    (folder / "tiny.c").write_text(SOURCE)
    program = folder / "tiny"
    subprocess.run(["cc", "-o", program, folder / "tiny.c", *options], check=True, capture_output=True)
    return program.read_bytes()


async def ask_flags(path: Path) -> tuple[Flag, ...]:
    """The tiny driver prints its flags, one a line."""
    process = await asyncio.create_subprocess_exec(path, stdout=asyncio.subprocess.PIPE)
    out, _ = await process.communicate()
    return tuple(Flag("string", name, "", "", "") for name in out.decode().split())


@asynccontextmanager
async def served(data: bytes, folder: Path) -> AsyncIterator[tuple[str, str]]:
    """An https server that delivers `data` everywhere; gives its URL and its CA."""
    now = SystemClock().now()
    authority = pki.new_ca("test", now, 1)
    certificate, key = pki.issue_certificate(
        *authority, common_name="files", server=True, ips=["127.0.0.1"], now=now, lifetime=timedelta(hours=1)
    )
    (folder / "server.pem").write_text(key + certificate)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "server.pem")

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(data) + data)
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0, ssl=context) as listener:
        yield f"https://127.0.0.1:{listener.sockets[0].getsockname()[1]}/{DRIVER}.tar.gz", authority[0]


async def added(data: bytes, folder: Path, checksum: str = "") -> tuple[Condition, Condition, list[str]]:
    """Add the driver; its conditions Active and Installed once the first is settled, and the fields of its kind."""
    clock, rng = SystemClock(), Rng(1)
    api = management_api(MemoryStore(), clock, rng)
    client = Client(api.local())
    store = DriverStore(folder / "drivers", Platform(sys.platform, platform.machine()))
    async with running(api.run), served(data, folder) as (url, ca):
        await install_crds(client)
        fetch = Downloader(ca=ca).fetch
        catalogue = NodeDriverController(
            client, store, fetch, ask_flags, clock, rng, run_blocking=asyncio.to_thread
        )
        async with running(catalogue.run), asyncio.timeout(60):
            spec = {"url": url, "checksum": checksum or sha256(data), "active": True}
            await client.create(NODE_DRIVER, new_object(NODE_DRIVER, "tiny", spec=spec))
            while True:
                raw = await client.get(NODE_DRIVER.ref("tiny"))
                found = [
                    find_condition((raw.get("status") or {}).get("conditions"), type)
                    for type in ("Active", "Installed")
                ]
                active, installed = found
                if active is not None and installed is not None and active.status != "Unknown":
                    break
                await asyncio.sleep(0.05)
            return active, installed, await fields_of(client)


async def fields_of(client: Client) -> list[str]:
    crd = await client.find(CRD.ref("tinyconfigs.rke-machine-config.cattle.io"))
    if crd is None:
        return []
    return sorted(crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"])


async def test_a_real_program_is_downloaded_verified_and_run(tmp_path: Path):
    active, installed, fields = await added(a_tar_gz((DRIVER, compiled(tmp_path))), tmp_path)

    assert active.status == "True", active.message
    assert installed.message.startswith("driver tiny from https://127.0.0.1:")
    # Its flag, and what each machine config of Rancher has beside the flags.
    assert fields == ["common", "providerID", "size", "status"]


async def test_a_real_program_for_another_c_library_is_reported_as_not_executable(tmp_path: Path):
    program = compiled(tmp_path, "-Wl,--dynamic-linker=/lib/ld-elsewhere.so.1")

    active, installed, fields = await added(a_tar_gz((DRIVER, program)), tmp_path)

    assert (active.status, installed.reason) == ("False", "NotExecutable")
    assert f"{DRIVER} needs the loader /lib/ld-elsewhere.so.1, which does not exist here" in installed.message
    assert fields == []


async def test_a_program_with_another_checksum_is_neither_kept_nor_run(tmp_path: Path):
    active, _, fields = await added(a_tar_gz((DRIVER, compiled(tmp_path))), tmp_path, "0" * 64)

    assert active.reason == "ChecksumMismatch"
    assert fields == []
    assert [path for path in (tmp_path / "drivers").rglob("*") if path.is_file()] == []
