"""Which key files a machine needs, and what a host is told about logging in."""

from __future__ import annotations

from dataclasses import replace

import pytest

from windrow.nodedriver.config import UNSET
from windrow.nodedriver.errors import Refused
from windrow.nodedriver.ssh.access import plan_key, with_ssh_defaults
from windrow.nodedriver.ssh.keys import SshKeyPair

MACHINE = replace(UNSET, machine_name="m", store_path="/store")
KEY = "/store/machines/m/id_rsa"
PAIR = SshKeyPair(b"private", "ssh-rsa AAAA\n")


def never() -> SshKeyPair:
    raise AssertionError("no key is to be made")


def test_a_machine_without_a_key_gets_one_the_private_half_last_and_for_its_owner_only() -> None:
    plan = plan_key(MACHINE, {}.get, lambda: PAIR)
    assert [(write.path, write.content, write.mode) for write in plan.writes] == [
        (f"{KEY}.pub", b"ssh-rsa AAAA\n", 0o600),
        (KEY, b"private", 0o600),
    ]
    assert plan.public_key == "ssh-rsa AAAA\n"


def test_a_key_that_is_there_is_kept() -> None:
    files = {KEY: (b"private", 0o600), f"{KEY}.pub": (b"ssh-rsa OLD\n", 0o600)}
    plan = plan_key(MACHINE, files.get, never)
    assert (plan.writes, plan.public_key) == ((), "ssh-rsa OLD\n")


def test_a_named_key_is_copied_with_its_public_half_and_its_mode() -> None:
    files = {"/k": (b"private", 0o400), "/k.pub": (b"ssh-rsa MINE\n", 0o644)}.get
    plan = plan_key(replace(MACHINE, ssh_private_key_path="/k"), files, never)
    assert [(write.path, write.content, write.mode) for write in plan.writes] == [
        (f"{KEY}.pub", b"ssh-rsa MINE\n", 0o644),
        (KEY, b"private", 0o400),
    ]
    assert plan.public_key == "ssh-rsa MINE\n"


def test_with_a_key_pair_of_harvester_only_the_private_half_is_copied() -> None:
    files = {"/k": (b"private", 0o400)}.get
    asked = replace(MACHINE, ssh_private_key_path="/k", key_pair_name="pair", ssh_public_key="ssh-rsa PAIR")
    plan = plan_key(asked, files, never)
    assert [write.path for write in plan.writes] == [KEY]
    assert plan.public_key == "ssh-rsa PAIR"


@pytest.mark.parametrize("files", [{}, {"/k": (b"private", 0o400)}])
def test_a_file_that_is_not_there_is_named(files: dict[str, tuple[bytes, int]]) -> None:
    with pytest.raises(Refused, match=r"/k(\.pub)?, which does not exist where the plugin runs"):
        plan_key(replace(MACHINE, ssh_private_key_path="/k"), files.get, never)


def test_contents_are_not_shown() -> None:
    assert "private'" not in repr(plan_key(MACHINE, {}.get, lambda: PAIR))


def test_what_is_not_set_is_filled_in_as_go_s_getters_do() -> None:
    filled = with_ssh_defaults(MACHINE)
    assert (filled.ssh_user, filled.ssh_port, filled.ssh_key_path) == ("root", 22, KEY)
    own = replace(MACHINE, ssh_user="u", ssh_port=2222, ssh_key_path="/k")
    assert with_ssh_defaults(own) == own
