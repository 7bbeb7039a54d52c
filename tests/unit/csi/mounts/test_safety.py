"""Records of formatting, paths that a user could have planted, and programs and calls that never end."""

from __future__ import annotations

import asyncio
import os
import stat
import threading
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from windrow.app.clock import SystemClock
from windrow.csi.mounts import paths
from windrow.csi.mounts.commands import BlockingCalls, Finished, run_command
from windrow.csi.mounts.device_events import wait_for_device
from windrow.csi.mounts.formatting import Formatting, FormattingRecords
from windrow.csi.mounts.port import NotAnswering, ToolFailed, UnsafePath

BEGUN = Formatting("pvc/../1", "sdb", "17", "boot-1")
MOMENT, MINUTE = timedelta(milliseconds=50), timedelta(minutes=1)


def test_a_record_proves_the_mkfs_that_it_names_and_no_other(tmp_path):
    records = FormattingRecords(tmp_path / "formatting")
    assert not records.has(BEGUN)

    records.write(BEGUN)

    assert FormattingRecords(tmp_path / "formatting").has(BEGUN)
    for changed in (
        replace(BEGUN, volume_id="other"),
        replace(BEGUN, device="sdc"),
        replace(BEGUN, sequence="18"),
        replace(BEGUN, boot="boot-2"),
    ):
        assert not records.has(changed)


def test_a_record_without_boot_or_attachment_proves_nothing(tmp_path):
    records = FormattingRecords(tmp_path)
    for unnamed in (replace(BEGUN, sequence=""), replace(BEGUN, boot="")):
        records.write(unnamed)

        assert not records.has(unnamed)


def test_a_record_is_a_private_file_in_a_private_folder_whatever_the_id_is(tmp_path):
    folder = tmp_path / "formatting"
    FormattingRecords(folder).write(BEGUN)

    (record,) = folder.iterdir()

    assert stat.S_IMODE(record.stat().st_mode) == 0o600
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700


def test_a_record_is_removed_once_and_again(tmp_path):
    records = FormattingRecords(tmp_path)
    records.write(BEGUN)

    records.remove(BEGUN.volume_id)
    records.remove(BEGUN.volume_id)

    assert not records.has(BEGUN)


def test_a_record_that_is_no_json_proves_nothing(tmp_path):
    records = FormattingRecords(tmp_path)
    records.write(BEGUN)
    (record,) = tmp_path.iterdir()
    record.write_text("{")

    assert not records.has(BEGUN)


def test_a_path_is_resolved_but_for_its_last_component(tmp_path):
    folder = tmp_path.resolve()
    (folder / "real").mkdir()
    (folder / "link").symlink_to("real")
    (folder / "real/last").symlink_to("/etc")

    assert paths.resolve(f"{folder}/link/../link/./last") == f"{folder}/real/last"
    assert paths.resolve(f"{folder}/none/x") == f"{folder}/none/x"


@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="a file of another user needs root")
def test_a_link_of_another_user_on_the_way_is_refused(tmp_path):
    link = tmp_path / "planted"
    link.symlink_to("/etc")
    os.lchown(link, 1000, 1000)

    with pytest.raises(UnsafePath, match="planted"):
        paths.resolve(f"{link}/target")


def test_as_many_links_are_followed_as_by_the_kernel(tmp_path):
    folder = tmp_path.resolve()
    (folder / "link0").mkdir()
    for number in range(1, 42):
        (folder / f"link{number}").symlink_to(f"link{number - 1}")

    assert paths.resolve(f"{folder}/link40/target") == f"{folder}/link0/target"
    with pytest.raises(UnsafePath):
        paths.resolve(f"{folder}/link41/target")


def test_links_in_a_circle_are_refused(tmp_path):
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")

    with pytest.raises(UnsafePath):
        paths.resolve(f"{tmp_path}/a/target")


def test_a_target_is_made_for_its_owner_and_group_alone(tmp_path):
    paths.ensure_directory(f"{tmp_path}/a/mount")
    paths.ensure_directory(f"{tmp_path}/a/mount")
    paths.ensure_file(f"{tmp_path}/b/device")
    paths.ensure_file(f"{tmp_path}/b/device")

    assert stat.S_IMODE(os.stat(tmp_path / "a/mount").st_mode) == 0o750
    assert stat.S_IMODE(os.stat(tmp_path / "b/device").st_mode) == 0o600


def test_nothing_is_put_over_what_is_there(tmp_path):
    (tmp_path / "full").write_text("text")
    (tmp_path / "folder").mkdir()
    (tmp_path / "link").symlink_to("folder")

    for path in ("full", "link"):
        with pytest.raises(UnsafePath):
            paths.ensure_directory(f"{tmp_path}/{path}")
    for path in ("full", "folder", "link"):
        with pytest.raises(UnsafePath):
            paths.ensure_file(f"{tmp_path}/{path}")


def test_only_what_is_empty_is_removed(tmp_path):
    (tmp_path / "full").write_text("text")
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "empty").touch()
    (tmp_path / "folder").mkdir()
    (tmp_path / "link").symlink_to("folder")

    for path in ("full", "pipe", "link"):
        with pytest.raises(UnsafePath):
            paths.remove_empty(f"{tmp_path}/{path}")
    for path in ("empty", "folder", "none"):
        paths.remove_empty(f"{tmp_path}/{path}")

    assert sorted(os.listdir(tmp_path)) == ["full", "link", "pipe"]


@pytest.mark.parametrize("end", ["a" * 300, "file/x", "file/x/y"])
def test_a_path_that_cannot_be_is_refused_and_has_nothing_to_remove(tmp_path, end):
    (tmp_path / "file").write_text("text")
    path = f"{tmp_path}/{end}"

    for ensure in (paths.ensure_directory, paths.ensure_file):
        with pytest.raises(UnsafePath, match="cannot be made"):
            ensure(paths.resolve(path))
    paths.remove_empty(path)

    assert (tmp_path / "file").read_text() == "text"


def test_a_path_of_very_many_levels_is_refused():
    assert paths.resolve("/d" * 257) == "/d" * 257
    with pytest.raises(UnsafePath, match="levels"):
        paths.resolve("/d" * 258)


def test_an_opened_path_stays_what_it_was(tmp_path):
    (tmp_path / "target").mkdir()
    with paths.opened(f"{tmp_path}/target") as name:
        os.rename(tmp_path / "target", tmp_path / "moved")
        (tmp_path / "target").symlink_to("/etc")

        assert os.path.samefile(name, tmp_path / "moved")

    with pytest.raises(UnsafePath), paths.opened(f"{tmp_path}/target"):
        pass


async def test_a_program_ends_with_its_code_and_the_end_of_its_output():
    finished = await run_command(SystemClock(), ("sh", "-c", "echo out; echo err >&2; exit 3"), MINUTE)

    assert finished == Finished(3, "out\nerr\n")
    assert finished.reason == "exit code 3: out err"


async def test_much_output_is_cut_at_its_beginning():
    finished = await run_command(SystemClock(), ("sh", "-c", "seq 100000; echo end"), MINUTE)

    assert len(finished.output) == 16384
    assert finished.output.endswith("100000\nend\n")


async def test_a_program_gets_nothing_of_the_environment(monkeypatch):
    monkeypatch.setenv("HARVESTER_TOKEN", "s3cret")

    finished = await run_command(SystemClock(), ("env",), MINUTE)

    assert "s3cret" not in finished.output
    assert "LC_ALL=C" in finished.output


async def test_a_program_that_does_not_end_is_killed():
    with pytest.raises(ToolFailed, match="was killed"):
        await run_command(SystemClock(), ("sleep", "600"), MOMENT)


async def test_a_program_that_is_not_there_is_named():
    with pytest.raises(ToolFailed, match=r"mkfs\.nothing"):
        await run_command(SystemClock(), ("mkfs.nothing",), MINUTE)


async def test_a_call_that_is_cancelled_kills_its_program(tmp_path):
    file = tmp_path / "pid"
    os.mkfifo(file)
    running = asyncio.create_task(
        run_command(SystemClock(), ("sh", "-c", f"echo $$ > {file}; exec sleep 600"), MINUTE)
    )
    pid = int(await asyncio.to_thread(file.read_text))

    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running

    await asyncio.to_thread(_wait_until_gone, pid)


def _wait_until_gone(pid: int) -> None:
    """Returns once the kernel has ended the process; a zombie has ended."""
    with suppress(FileNotFoundError, ProcessLookupError):
        while Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z":
            pass


async def test_a_call_that_hangs_is_given_up_and_not_made_again_meanwhile():
    calls, answers = BlockingCalls(SystemClock()), threading.Event()
    with pytest.raises(NotAnswering, match="within"):
        await calls.run("statfs /a", MOMENT, answers.wait)
    with pytest.raises(NotAnswering, match="an earlier call"):
        await calls.run("statfs /a", MINUTE, answers.wait)
    assert await calls.run("statfs /b", MINUTE, lambda: 7) == 7
    (hanging,) = (one for one in threading.enumerate() if one.name == "blocking statfs /a")
    assert hanging.daemon  # it does not keep the process from ending

    answers.set()
    while True:  # until the thread has ended
        try:
            assert await calls.run("statfs /a", MINUTE, lambda: 8) == 8
            break
        except NotAnswering:
            await asyncio.sleep(0)


async def test_readings_of_one_subject_share_one_answer():
    calls, answers, made = BlockingCalls(SystemClock()), threading.Event(), []

    def read() -> int:
        made.append(1)
        answers.wait()
        return 7

    first = asyncio.create_task(calls.read("statfs /a", MINUTE, read))
    others = [asyncio.create_task(calls.read("statfs /a", MINUTE, read)) for _ in range(3)]
    await asyncio.sleep(0)
    first.cancel()  # a caller that goes takes no answer from the others
    answers.set()

    assert await asyncio.gather(*others) == [7, 7, 7]
    assert made == [1]
    assert await calls.read("statfs /a", MINUTE, lambda: 8) == 8


async def test_a_reading_that_is_late_is_not_waited_for_again():
    calls, answers = BlockingCalls(SystemClock()), threading.Event()
    with pytest.raises(NotAnswering, match="within"):
        await calls.read("statfs /a", MOMENT, answers.wait)
    with pytest.raises(NotAnswering, match="an earlier call"):
        await calls.read("statfs /a", MINUTE, answers.wait)
    answers.set()


async def test_an_error_of_a_blocking_call_is_raised():
    with pytest.raises(FileNotFoundError):
        await BlockingCalls(SystemClock()).run("stat", MINUTE, lambda: os.stat("/nowhere"))


async def test_a_device_is_looked_for_until_the_time_is_up():
    looks: list[int] = []

    assert await wait_for_device(SystemClock(), MOMENT, lambda: looks.append(1)) is None
    assert await wait_for_device(SystemClock(), MINUTE, lambda: 7) == 7
    assert len(looks) >= 2
