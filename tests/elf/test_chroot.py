"""The one-file driver works wherever Rancher starts it. Needs root, and the file (`make driver`)."""

from __future__ import annotations

import select
import socket
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from scripts.driver.host import TOKENS, USER, Host, Refused, SmallHarvester, a_harvester
from tests.elf.jails import JAILS, Jail, ask, command, furnish, why_not

from windrow.protocols.dockermachine import RUNNING, read_flags

# Rancher's installer ends it after that; a host stops waiting for its address after ten seconds.
RANCHERS_PATIENCE_S = 5

pytestmark = [pytest.mark.root, pytest.mark.skipif(bool(why_not()), reason=why_not() or "-")]

Make = Callable[[Jail], Path]


@pytest.fixture(scope="module")
def make(driver: Path, tmp_path_factory: pytest.TempPathFactory) -> Make:
    """A furnished folder for each jail; made once."""
    made: dict[str, Path] = {}

    def furnished(jail: Jail) -> Path:
        if jail.name not in made:
            made[jail.name] = tmp_path_factory.mktemp("jail")
            made[jail.name].chmod(0o755)
            furnish(jail, driver, made[jail.name])
        return made[jail.name]

    return furnished


every_jail = pytest.mark.parametrize("jail", JAILS, ids=lambda jail: jail.name[0])


@contextmanager
def started(jail: Jail, folder: Path, driver: Path) -> Iterator[tuple[subprocess.Popen[str], Host]]:
    words = command(jail, folder, [f"/{driver.name}"], TOKENS)
    with subprocess.Popen(
        words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            with Host(first_line(process)) as host:
                yield process, host
        finally:
            process.kill()


def first_line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    ready, _, _ = select.select([process.stdout], [], [], RANCHERS_PATIENCE_S)
    assert ready, "no address line"
    return process.stdout.readline()


@every_jail
def test_a_jail_is_what_it_says(jail: Jail, make: Make) -> None:
    folder = make(jail)

    found = {
        "user": ask(jail, folder, "id -u"),
        "proc": ask(jail, folder, "test -e /proc/self && echo yes"),
        "tmp": ask(jail, folder, "(echo '#!/bin/busybox true' >/tmp/x && chmod +x /tmp/x) && echo writable"),
        "executable": ask(jail, folder, "cp /bin/busybox /tmp/busybox && /tmp/busybox echo yes"),
        "libc": ask(jail, folder, "/bin/dynamic && echo yes"),
        "files": ask(jail, folder, "ls -d /dev /usr /etc /root /home /lib/python*"),
        "home": ask(jail, folder, "echo $HOME"),
    }

    assert {
        "user": "1000",
        "proc": "yes" if jail.proc else "",
        "tmp": "" if jail.tmp == "of root" else "writable",
        "executable": "yes" if jail.tmp == "writable" else "",
        "libc": "" if jail.libraries == "none" else "yes",
        "files": "",
        "home": "",
    } == found


def test_the_root_of_a_read_only_jail_cannot_be_written_by_its_owner(make: Make) -> None:
    jail = next(jail for jail in JAILS if jail.read_only)
    folder = make(jail)
    folder.chmod(0o777)

    assert ask(jail, folder, "echo x >/file && echo yes") == ""


@every_jail
def test_the_driver_answers_in_every_jail(jail: Jail, make: Make, driver: Path) -> None:
    with a_harvester() as harvester, started(jail, make(jail), driver) as (process, host):
        version = host.ask("GetVersion")
        flags = read_flags(host.ask("GetCreateFlags"))
        host.ask("SetConfigRaw", harvester.configuration())
        state = host.ask("GetState")
        host.close_plugin()

        assert version == 1
        assert "harvester-kubeconfig-content" in [flag.name for flag in flags]
        assert state == RUNNING
        assert any(line.startswith("GET /") for line in harvester.seen), harvester.seen
        assert process.wait(timeout=15) == 0


@every_jail
def test_started_by_hand_it_says_what_it_is_and_ends(jail: Jail, make: Make, driver: Path) -> None:
    done = subprocess.run(
        command(jail, make(jail), [f"/{driver.name}"]),
        capture_output=True, text=True, check=False, timeout=RANCHERS_PATIENCE_S,
    )  # fmt: skip

    assert done.stdout == ""
    assert "Docker Machine plugin" in done.stderr
    assert done.returncode == 1


@pytest.mark.parametrize(
    "jail", [jail for jail in JAILS if jail.proc or jail.tmp != "of root"], ids=lambda jail: jail.name[0]
)
def test_the_driver_shows_a_client_certificate(jail: Jail, make: Make, driver: Path) -> None:
    """OpenSSL reads a key from a file only, which stands in memory where there is a /proc."""
    with a_harvester() as harvester, started(jail, make(jail), driver) as (_, host):
        host.ask("SetConfigRaw", harvester.configuration(by_certificate=True))

        assert host.ask("GetState") == RUNNING
        assert harvester.callers == {USER}


def test_a_certificate_of_another_authority_is_refused_in_the_jail(make: Make, driver: Path) -> None:
    with (
        a_harvester() as harvester,
        a_harvester() as other,
        started(JAILS[0], make(JAILS[0]), driver) as (_, host),
    ):
        other_host = SmallHarvester(harvester.address, other.authority, other.certificate, other.key)
        host.ask("SetConfigRaw", other_host.configuration())

        with pytest.raises(Refused, match="certificate"):
            host.ask("GetState")

        assert harvester.seen == []


@pytest.mark.skipif(not socket.has_ipv6, reason="no IPv6 here")
def test_a_server_may_be_an_ipv6_literal(make: Make, driver: Path) -> None:
    try:
        with a_harvester("::1") as harvester, started(JAILS[0], make(JAILS[0]), driver) as (_, host):
            host.ask("SetConfigRaw", harvester.configuration())

            assert host.ask("GetState") == RUNNING
            assert "[::1]" in harvester.address
    except OSError as error:
        if "assign" in str(error):
            pytest.skip("the loopback interface has no ::1 here")
        raise
