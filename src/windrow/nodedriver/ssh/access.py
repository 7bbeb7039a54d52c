"""SSH access of a host to a machine: user, port, and which key is in which file.

Planning only reads; the plugin executes the planned writes in order.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from posixpath import join, normpath
from typing import TYPE_CHECKING

from windrow.harvester.problems import Problem
from windrow.nodedriver.config import Configuration
from windrow.nodedriver.errors import Refused

if TYPE_CHECKING:
    from windrow.nodedriver.ssh.keys import SshKeyPair

USER, PORT = "root", 22
PRIVATE_MODE = 0o600


# Content and permission bits of a file, None where there is no such file.
ReadFile = Callable[[str], tuple[bytes, int] | None]


@dataclass(frozen=True, slots=True)
class WriteFile:
    """Write a file, whole or not at all, with this mode from the start."""

    path: str
    content: bytes = field(repr=False)
    mode: int
    because: str


@dataclass(frozen=True, slots=True)
class KeyPlan:
    """`public_key` goes into the machine's authorized keys: "" where it is read from Harvester's KeyPair."""

    writes: tuple[WriteFile, ...]
    public_key: str


def needs_ssh(configuration: Configuration) -> bool:
    """Whether the host logs in to the machine by SSH, as docker-machine's hosts may. Windrow's cluster controller, known
    by the cluster uid that it sets, never does."""
    return not configuration.cluster_uid


def with_ssh_defaults(configuration: Configuration) -> Configuration:
    """The configuration with user, port and key path filled in where they are not set."""
    return replace(
        configuration,
        ssh_user=configuration.ssh_user or USER,
        ssh_port=configuration.ssh_port or PORT,
        ssh_key_path=key_path(configuration),
    )


def key_path(configuration: Configuration) -> str:
    """`<store>/machines/<name>/id_rsa` unless something else is set."""
    return configuration.ssh_key_path or normpath(
        join(configuration.store_path, "machines", configuration.machine_name, "id_rsa")
    )


def plan_key(configuration: Configuration, read: ReadFile, generate: Callable[[], SshKeyPair]) -> KeyPlan:
    """Which key files the machine needs. Raises Refused where a file that is named does not exist.

    An existing key is kept. The public half is written first, so that a private key is never without it.
    """
    target = key_path(configuration)
    if configuration.ssh_private_key_path:
        return _copy_plan(configuration, target, read)
    if read(target) is not None:
        return KeyPlan((), _read_public(f"{target}.pub", read)[0])
    pair = generate()
    writes = (
        WriteFile(f"{target}.pub", pair.public_line.encode(), PRIVATE_MODE, "the machine's new public key"),
        WriteFile(target, pair.private_pem, PRIVATE_MODE, "the machine's new private key"),
    )
    return KeyPlan(writes, pair.public_line)


def _copy_plan(configuration: Configuration, target: str, read: ReadFile) -> KeyPlan:
    source = configuration.ssh_private_key_path
    private = read(source)
    if private is None:
        raise Refused(_missing(source, "sshPrivateKeyPath names"))
    private_copy = WriteFile(target, *private, f"a copy of {source}")
    if configuration.key_pair_name:
        return KeyPlan((private_copy,), configuration.ssh_public_key)
    public, mode = _read_public(f"{source}.pub", read)
    public_copy = WriteFile(f"{target}.pub", public.encode(), mode, f"a copy of {source}.pub")
    return KeyPlan((public_copy, private_copy), public)


def _read_public(path: str, read: ReadFile) -> tuple[str, int]:
    found = read(path)
    if found is None:
        raise Refused(_missing(path, "beside the private key there should be"))
    return found[0].decode("utf-8", "replace"), found[1]


def _missing(path: str, described: str) -> Problem:
    return Problem(
        f"{described} the file {path}, which does not exist where the plugin runs",
        "put it there, or leave sshPrivateKeyPath out",
        "sshPrivateKeyPath",
    )
