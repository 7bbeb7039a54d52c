"""How a host logs in to a machine: address rules aside, which user, which port, and which key in which file.

Planning reads through `Files` and writes nothing itself; the plugin carries the writes out, in order.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from posixpath import join, normpath
from typing import Protocol

from windrow.harvester.problems import Problem
from windrow.nodedriver.config import Configuration
from windrow.nodedriver.errors import Refused
from windrow.nodedriver.ssh_keys import SshKeyPair

USER, PORT = "root", 22
PRIVATE_MODE = 0o600


class Files(Protocol):
    """The plugin's own disk."""

    def read(self, path: str) -> bytes | None:
        """The content, None where there is no such file."""
        ...

    def mode(self, path: str) -> int:
        """The permission bits of a file that exists."""
        ...


@dataclass(frozen=True, slots=True)
class WriteFile:
    """Put a file there, as a whole or not at all, with this mode from the start."""

    path: str
    content: bytes = field(repr=False)
    mode: int
    because: str


@dataclass(frozen=True, slots=True)
class KeyPlan:
    """`public_key` is what the machine shall let in: "" where it is read from Harvester's key pair."""

    writes: tuple[WriteFile, ...]
    public_key: str


def needs_ssh(configuration: Configuration) -> bool:
    """Whether the host will log in to the machine, as docker-machine's hosts may. Windrow's manager never does; it is
    known by the cluster that it names."""
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


def plan_key(configuration: Configuration, files: Files, generate: Callable[[], SshKeyPair]) -> KeyPlan:
    """Which key files the machine needs. Raises Refused where a file that is named does not exist.

    A key that is there is kept. The public half is written first, so that a private key never stands alone.
    """
    target = key_path(configuration)
    if configuration.ssh_private_key_path:
        return _copy_plan(configuration, target, files)
    if files.read(target) is not None:
        return KeyPlan((), _public(f"{target}.pub", files))
    pair = generate()
    writes = (
        WriteFile(f"{target}.pub", pair.public_line.encode(), PRIVATE_MODE, "the machine's new public key"),
        WriteFile(target, pair.private_pem, PRIVATE_MODE, "the machine's new private key"),
    )
    return KeyPlan(writes, pair.public_line)


def _copy_plan(configuration: Configuration, target: str, files: Files) -> KeyPlan:
    source = configuration.ssh_private_key_path
    private = files.read(source)
    if private is None:
        raise Refused(_missing(source, "sshPrivateKeyPath names"))
    private_copy = WriteFile(target, private, files.mode(source), f"a copy of {source}")
    if configuration.key_pair_name:
        return KeyPlan((private_copy,), configuration.ssh_public_key)
    public = _public(f"{source}.pub", files)
    public_copy = WriteFile(
        f"{target}.pub", public.encode(), files.mode(f"{source}.pub"), f"a copy of {source}.pub"
    )
    return KeyPlan((public_copy, private_copy), public)


def _public(path: str, files: Files) -> str:
    content = files.read(path)
    if content is None:
        raise Refused(_missing(path, "beside the private key there should be"))
    return content.decode("utf-8", "replace")


def _missing(path: str, described: str) -> Problem:
    return Problem(
        f"{described} the file {path}, which does not exist where the plugin runs",
        "put it there, or leave sshPrivateKeyPath out",
        "sshPrivateKeyPath",
    )
