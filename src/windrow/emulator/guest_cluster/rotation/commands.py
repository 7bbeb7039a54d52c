"""`secrets-encrypt`, `token` and `certificate` of `rke2` and `k3s` on a simulated machine."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from windrow.core.formats.json import dumps, loads
from windrow.emulator.guest_cluster.cluster import GuestCluster, ServerInstance
from windrow.emulator.guest_cluster.distribution.distribution import Distribution
from windrow.emulator.guest_cluster.rotation.certificates import UnknownService, rotate_certificates
from windrow.emulator.guest_cluster.rotation.encryption import (
    PREPARE,
    REENCRYPT_ACTIVE,
    ROTATE,
    ROTATE_KEYS,
)
from windrow.emulator.guest_cluster.rotation.encryption_routes import EncryptionRoutes
from windrow.emulator.guest_cluster.rotation.token_routes import TokenRoutes
from windrow.emulator.guest_os.shell.commands import parse_options
from windrow.emulator.guest_os.shell.run import Invocation
from windrow.kubernetes.requests import Reply, Request

_VALUED = ("s", "service", "d", "data-dir", "t", "token", "server", "new-token", "o", "output")
# The stage that a subcommand asks for, and what it prints at the end.
_STAGES: Mapping[str, tuple[str, str]] = {
    "prepare": (PREPARE, "prepare completed successfully"),
    "rotate": (ROTATE, "rotate completed successfully"),
    "reencrypt": (REENCRYPT_ACTIVE, "reencryption started"),
    "rotate-keys": (ROTATE_KEYS, "keys rotated, reencryption finished"),
}


async def run_encryption_command(
    call: Invocation, cluster: GuestCluster, server: ServerInstance, words: list[str]
) -> int:
    options, verbs = parse_options(words, _VALUED)
    verb = verbs[0] if verbs else ""
    routes = EncryptionRoutes(call.guest, cluster, server)
    if verb == "status":
        reply = await routes.status(Request("GET", ""))
        if reply.status == 200:
            _print_status(call, loads(reply.body))
            return 0
        return fail(call, _read_message(reply))
    if verb not in _STAGES:
        return fail(call, f"No help topic for '{verb}'")
    stage, done = _STAGES[verb]
    forced = bool(options.keys() & {"f", "force"})
    reply = await routes.configure(Request("PUT", "", body=dumps({"stage": stage, "force": forced})))
    if reply.status != 200:
        return fail(call, f"see server log for details: {_read_message(reply)}")
    call.print(done)
    return 0


def _print_status(call: Invocation, status: dict[str, Any]) -> None:
    if status.get("enable") is None:
        call.print("Encryption Status: Disabled, no configuration file found")
        return
    hashes = "All hashes match" if status.get("hashmatch") else status.get("hasherror")
    call.print(f"Encryption Status: {'Enabled' if status['enable'] else 'Disabled'}")
    call.print(f"Current Rotation Stage: {status['stage']}")
    call.print(f"Server Encryption Hashes: {hashes}\n")
    call.print("Active  Key Type  Name\n------  --------  ----")
    for mark, key in [("*", status["activekey"]), *((" ", key) for key in status.get("inactivekeys", ()))]:
        if key:
            call.print(f" {mark}      {'   '.join(key.split(' ', 1))}")


async def run_token_command(
    call: Invocation, cluster: GuestCluster, server: ServerInstance, words: list[str]
) -> int:
    options, verbs = parse_options(words, _VALUED)
    if verbs != ["rotate"]:
        return fail(call, f"not simulated: token {' '.join(verbs)}")
    body = dumps({"newToken": options.get("new-token") or ""})
    reply = await TokenRoutes(call.guest, cluster, server).rotate(Request("PUT", "", body=body))
    if reply.status != 200:
        return fail(call, f"see server log for details: {_read_message(reply)}")
    call.print(f"Token rotated, restart {cluster.distribution.name} nodes with new token")
    return 0


def run_certificate_command(call: Invocation, distribution: Distribution, words: list[str]) -> int:
    options, verbs = parse_options(words, _VALUED)
    if verbs != ["rotate"]:
        return fail(call, f"not simulated: certificate {' '.join(verbs)}")
    services = (options.get("service") or options.get("s") or "").split(",")
    directory = options.get("data-dir") or options.get("d") or distribution.data_directory
    try:
        lines = rotate_certificates(
            call.guest, distribution, directory, [one.strip() for one in services if one.strip()]
        )
    except UnknownService as error:
        return fail(call, str(error))
    for line in lines:
        call.print(f'level=info msg="{line}"')
    return 0


def fail(call: Invocation, why: str) -> int:
    """The command ends with this message and 1."""
    call.streams.err += f'level=fatal msg="Error: {why}"\n'.encode()
    return 1


def _read_message(reply: Reply) -> str:
    return str(loads(reply.body).get("message") or "")
