from __future__ import annotations

import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.unit.drivers.files import DRIVER, HERE, a_driver, a_tar_gz, an_elf, sha256

from windrow.drivers.api import Fault
from windrow.drivers.store import DriverStore

URL = "https://files.example/docker-machine-driver-noop.tar.gz"
FILE = a_driver()
DIGEST = sha256(FILE)


@pytest.fixture
def store(tmp_path: Path) -> DriverStore:
    made = DriverStore(tmp_path, HERE)
    made.open()
    return made


def receive(store: DriverStore, data: bytes = FILE, digest: str = "", owner: str = "noop") -> None:
    receipt = store.start_download(digest or sha256(data), owner)
    try:
        for place in range(0, len(data), 50):
            receipt.write(data[place : place + 50])
        receipt.commit()
    finally:
        receipt.discard()


def installed(store: DriverStore, data: bytes = FILE, url: str = URL) -> Path:
    receive(store, data)
    return store.install(sha256(data), "noop", url).path


def files(root: Path) -> list[str]:
    return sorted(str(path.relative_to(root)) for path in root.rglob("*") if path.is_file())


def test_a_download_is_kept_under_its_digest(store: DriverStore, tmp_path: Path):
    receive(store)

    assert store.has_download(DIGEST)
    assert files(tmp_path) == [f"downloads/{DIGEST}"]


def test_a_download_with_another_digest_leaves_nothing(store: DriverStore, tmp_path: Path):
    with pytest.raises(Fault) as caught:
        receive(store, FILE, "0" * 64)

    assert caught.value.message == f"hash does not match, got {DIGEST}, expected {'0' * 64}"
    assert files(tmp_path) == []


def test_a_download_that_breaks_off_leaves_nothing(store: DriverStore, tmp_path: Path):
    receipt = store.start_download(DIGEST, "noop")
    receipt.write(FILE[:10])
    receipt.discard()

    assert files(tmp_path) == []


def test_an_installed_driver_is_executable_and_the_download_is_gone(store: DriverStore, tmp_path: Path):
    path = installed(store)

    assert path == tmp_path / "sha256" / DIGEST / DRIVER
    assert stat.S_IMODE(path.stat().st_mode) == 0o755
    assert path.read_bytes() == an_elf(b"1")
    assert files(tmp_path) == [f"sha256/{DIGEST}/{DRIVER}", f"sha256/{DIGEST}/record.json"]
    assert store.verified_path(DIGEST) == path


def test_each_url_that_delivered_it_is_recorded(store: DriverStore):
    installed(store)
    installed(store, url="https://mirror.example/x.tar.gz")

    stored = store.find(DIGEST)
    assert stored is not None
    assert stored.urls == (URL, "https://mirror.example/x.tar.gz")
    assert stored.name == "noop"


@pytest.mark.parametrize("touched", [lambda path: None, Path.unlink])
def test_a_program_keeps_the_name_it_was_installed_under(
    store: DriverStore, tmp_path: Path, touched: Callable[[Path], None]
):
    program, folder = an_elf(b"1"), "https://files.example/docker-machine-driver-"
    path = installed(store, program, f"{folder}noop")
    touched(path)

    with pytest.raises(Fault) as caught:
        installed(store, program, f"{folder}other-amd64")
    assert str(caught.value) == (
        "the same file is installed as driver noop, but its URL has the name other; "
        "serve it under a name that starts with docker-machine-driver-noop"
    )
    assert not store.has_download(sha256(program))
    assert installed(store, program, f"{folder}noop_v2") == path
    assert store.verified_path(sha256(program)) == path


def test_a_download_that_was_changed_on_disk_is_not_unpacked(store: DriverStore, tmp_path: Path):
    receive(store)
    (tmp_path / "downloads" / DIGEST).write_bytes(a_driver(b"evil"))

    with pytest.raises(Fault, match="hash does not match"):
        store.install(DIGEST, "noop", URL)
    assert files(tmp_path) == []


def test_a_bad_archive_leaves_no_program(store: DriverStore, tmp_path: Path):
    bad = a_tar_gz(("README", b"x"))
    receive(store, bad)

    with pytest.raises(Fault, match="failed to find driver in archive"):
        store.install(sha256(bad), "noop", URL)
    assert files(tmp_path) == [f"downloads/{sha256(bad)}"]


def changed_byte(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1] + b"x")


def changed_byte_in_secret(path: Path) -> None:
    before = path.stat()
    changed_byte(path)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def shortened(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


def replaced(path: Path) -> None:
    other = path.with_name("other")
    other.write_bytes(path.read_bytes()[:-1] + b"x")
    other.chmod(0o755)
    other.replace(path)


def not_executable(path: Path) -> None:
    path.chmod(0o644)


def broken_record(path: Path) -> None:
    path.with_name("record.json").write_text("{")


def strange_record(path: Path) -> None:
    path.with_name("record.json").write_text("[1]")


@pytest.mark.parametrize(
    "touched",
    [
        changed_byte,
        changed_byte_in_secret,
        shortened,
        replaced,
        Path.unlink,
        broken_record,
        strange_record,
    ],
)
def test_a_binary_that_was_changed_is_not_used(store: DriverStore, touched: Callable[[Path], None]):
    path = installed(store)
    assert store.verified_path(DIGEST) == path

    touched(path)

    assert store.verified_path(DIGEST) is None
    assert installed(store) == path
    assert store.verified_path(DIGEST) == path


def test_digests_that_are_none_are_no_paths(store: DriverStore):
    for digest in ("", "..", "../../etc", "A" * 64, "a" * 63):
        assert store.find(digest) is None
        assert store.verified_path(digest) is None
        assert not store.has_download(digest)


def test_partial_files_of_a_crash_are_removed_at_the_next_start(store: DriverStore, tmp_path: Path):
    installed(store)
    (tmp_path / "downloads" / f"{DIGEST}.x.partial").write_bytes(b"x")
    (tmp_path / "downloads" / DIGEST).write_bytes(FILE)
    half = tmp_path / "sha256" / f".{DIGEST}.x.partial"
    half.mkdir()
    (half / "program").write_bytes(b"x")

    again = DriverStore(tmp_path, HERE)
    again.open()

    assert files(tmp_path) == [f"sha256/{DIGEST}/{DRIVER}", f"sha256/{DIGEST}/record.json"]
    assert again.verified_path(DIGEST) is not None


def test_files_of_no_driver_are_swept(store: DriverStore, tmp_path: Path):
    installed(store)
    other = a_driver(b"2")
    installed(store, other)
    receive(store, a_driver(b"3"))
    on_its_way = store.start_download(sha256(a_driver(b"4")), "noop")
    on_its_way.write(a_driver(b"4"))
    gone = store.sweep({DIGEST})
    on_its_way.commit()

    assert gone == sorted([sha256(other), sha256(a_driver(b"3"))])
    assert store.verified_path(DIGEST) is not None
    assert store.has_download(sha256(a_driver(b"4")))


def test_two_owners_may_fetch_the_same_at_once(store: DriverStore):
    both = [store.start_download(DIGEST, owner) for owner in ("a", "b")]
    for one in both:
        one.write(FILE)
    for one in both:
        one.commit()
        one.discard()

    assert store.has_download(DIGEST)


def test_a_disk_error_is_a_fault(tmp_path: Path):
    (tmp_path / "drivers").write_text("a file")

    with pytest.raises(Fault, match="not a directory; check the disk and its permissions") as caught:
        DriverStore(tmp_path / "drivers", HERE).open()
    assert caught.value.reason == "StorageFailed"
    assert caught.value.is_retryable
