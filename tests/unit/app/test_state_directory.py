from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from windrow.app import serve
from windrow.app.clock import SystemClock
from windrow.app.emulate import embedded_harvester
from windrow.app.options import ServeOptions
from windrow.app.state.directory import (
    DirectoryInUse,
    DirectoryUnusable,
    lock_state_dir,
    open_state_directory,
)
from windrow.client.client import Client
from windrow.client.http_transport import HttpTransport
from windrow.core.rng import Rng
from windrow.core.text import encode_base64
from windrow.kubernetes.kubeconfig import parse_kubeconfig
from windrow.kubernetes.objects import new_object
from windrow.kubernetes.resources import SECRET


class Lines(list[str]):
    def __init__(self) -> None:
        self.arrived = asyncio.Event()

    def print_line(self, line: str = "") -> None:
        self.append(line)
        if "serves at" in line:
            self.arrived.set()


@asynccontextmanager
async def served(state_dir: Path) -> AsyncIterator[Lines]:
    """`windrow serve` on the directory."""
    lines = Lines()
    serving = asyncio.create_task(serve.run(ServeOptions(state_dir), lines))
    try:
        async with asyncio.timeout(30):
            await asyncio.wait(
                [serving, asyncio.create_task(lines.arrived.wait())], return_when=asyncio.FIRST_COMPLETED
            )
        if serving.done():
            serving.result()
        yield lines
    finally:
        serving.cancel()
        await asyncio.gather(serving, return_exceptions=True)


@pytest.fixture
def open_umask() -> Iterator[None]:
    before = os.umask(0)
    yield
    os.umask(before)


def open_to_others(directory: Path) -> list[str]:
    return [
        f"{path.name} {path.stat().st_mode & 0o777:o}"
        for path in (directory, *directory.rglob("*"))
        if path.stat().st_mode & 0o077
    ]


@pytest.mark.usefixtures("open_umask")
async def test_the_state_is_its_owner_s_alone_whatever_the_umask_is(tmp_path: Path):
    async with served(tmp_path / "state"):
        assert (tmp_path / "state" / "manager.db").exists()
        assert open_to_others(tmp_path / "state") == []
    assert open_to_others(tmp_path / "state") == []


async def test_what_an_earlier_version_left_open_is_repaired_at_the_next_start_and_said(tmp_path: Path):
    state = tmp_path / "state"
    async with served(state):
        pass
    state.chmod(0o755)
    for path in state.iterdir():
        path.chmod(0o755 if path.is_dir() else 0o644)

    async with served(state) as lines:
        assert open_to_others(state) == []

    assert any(f"{state} was open to other users (mode 0755)" in line for line in lines)
    assert any("manager.db had mode 0644, now 0600" in line for line in lines)
    assert open_state_directory(state) == []


async def test_no_byte_of_a_deleted_secret_is_in_any_file(tmp_path: Path):
    token, renewed = b"hold-for-ever-" * 3, b"hold-again-" * 300
    state = tmp_path / "state"

    async def places(text: bytes) -> list[str]:
        return [path.name for path in state.rglob("*") if path.is_file() and text in path.read_bytes()]

    async with served(state):
        access = parse_kubeconfig((state / "manager.yaml").read_text())
        async with HttpTransport(access, SystemClock()) as transport:
            api = Client(transport)
            raw = new_object(SECRET, "token", "default")
            await api.create(SECRET, {**raw, "data": {"token": encode_base64(token.decode())}})
            stored = encode_base64(token.decode()).encode()
            assert await places(stored)
            await api.patch(SECRET.ref("token", "default"), {"stringData": {"token": renewed.decode()}})
            assert await places(stored) == []
            await api.delete(SECRET.ref("token", "default"))
            assert await places(encode_base64(renewed.decode()).encode()) == []
    assert await places(stored) == await places(encode_base64(renewed.decode()).encode()) == []


def test_a_directory_of_another_user_is_refused_and_left_as_it_is(tmp_path: Path):
    tmp_path.chmod(0o755)

    with pytest.raises(DirectoryUnusable, match="belongs to another user") as refused:
        open_state_directory(tmp_path, uid=os.geteuid() + 1)

    assert "--state-dir" in refused.value.hint
    assert tmp_path.stat().st_mode & 0o777 == 0o755


def test_a_directory_that_all_users_share_is_refused(tmp_path: Path):
    tmp_path.chmod(0o1777)

    with pytest.raises(DirectoryUnusable, match=r"shared by all users .mode 1777."):
        open_state_directory(tmp_path)

    assert tmp_path.stat().st_mode & 0o7777 == 0o1777


@pytest.mark.parametrize("name", ["drivers", "machines", "manager.db", "harvester.lock"])
def test_a_link_that_leads_nowhere_is_named_with_where_it_leads(tmp_path: Path, name: str):
    (tmp_path / name).symlink_to("/nowhere/at-all")

    with pytest.raises(DirectoryUnusable, match=f"{name} is a link to /nowhere/at-all, which does not exist"):
        open_state_directory(tmp_path)


def test_a_state_directory_that_is_a_link_to_nothing_is_no_full_disk(tmp_path: Path):
    link = tmp_path / "state"
    link.symlink_to(tmp_path / "gone")

    with pytest.raises(DirectoryUnusable) as refused:
        open_state_directory(link)

    assert refused.value.message == f"the directory {link} is a link to {tmp_path}/gone, which does not exist"
    assert refused.value.hint.startswith("Create the directory that it leads to")
    (tmp_path / "gone").mkdir(mode=0o700)
    assert open_state_directory(link) == []


@pytest.mark.parametrize("name", ["manager.db", "manager-ca.json", "manager.lock"])
def test_a_link_in_the_place_of_a_file_of_the_state_is_refused(tmp_path: Path, name: str):
    (tmp_path / name).symlink_to("/etc/passwd")

    with pytest.raises(DirectoryUnusable, match=f"{name} is a link"):
        open_state_directory(tmp_path)


def test_a_file_system_without_locks_is_told_as_that(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def no_locks(*_: object) -> None:
        raise OSError(37, "No locks available")

    monkeypatch.setattr("fcntl.flock", no_locks)

    with (
        pytest.raises(DirectoryUnusable, match="No locks available") as refused,
        lock_state_dir(tmp_path, "manager", "manager"),
    ):
        pass
    assert "local file system" in refused.value.hint


def test_a_directory_that_cannot_be_made_is_told_as_that(tmp_path: Path):
    (tmp_path / "file").touch()

    with pytest.raises(DirectoryUnusable, match=r"the state cannot be kept in .*Not a directory"):
        open_state_directory(tmp_path / "file" / "state")


def test_a_directory_has_one_holder_in_each_role(tmp_path: Path):
    with (
        lock_state_dir(tmp_path, "harvester", "emulator"),
        lock_state_dir(tmp_path, "manager", "manager"),
        pytest.raises(DirectoryInUse) as refused,
        lock_state_dir(tmp_path, "harvester", "emulator"),
    ):
        pass

    assert f"process {os.getpid()}" in refused.value.message
    assert "--state-dir" in refused.value.hint


def test_a_directory_that_was_given_back_can_be_held_again(tmp_path: Path):
    for _ in range(2):
        with lock_state_dir(tmp_path, "harvester", "emulator"):
            pass


async def test_a_second_emulator_in_a_directory_leaves_the_first_one_s_kubeconfig_alone(tmp_path: Path):
    async def emulate(seed: int) -> str:
        async with embedded_harvester(tmp_path, frozenset(), SystemClock(), Rng(seed)):
            kubeconfig = (tmp_path / "harvester.yaml").read_text()
            if seed == 1:
                with pytest.raises(DirectoryInUse):
                    await emulate(2)
                assert (tmp_path / "harvester.yaml").read_text() == kubeconfig
            return kubeconfig

    assert await emulate(1)


async def test_a_second_manager_of_a_directory_names_the_process_that_has_it(tmp_path: Path):
    async with served(tmp_path):
        with pytest.raises(DirectoryInUse, match=f"in use by another manager .process {os.getpid()}"):
            await serve.run(ServeOptions(tmp_path), Lines())
