"""`rke2` and `k3s` as commands on a simulated machine, beside what systemd runs: a reset by hand, snapshots, rotations."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace

from windrow.emulator.guest_cluster.cluster import GuestCluster, ServerInstance
from windrow.emulator.guest_cluster.datastore.snapshots import (
    EtcdSnapshots,
    NoS3,
    SnapshotFailed,
    SnapshotResult,
)
from windrow.emulator.guest_cluster.distribution.distribution import Distribution
from windrow.emulator.guest_cluster.rotation.commands import (
    fail,
    run_certificate_command,
    run_encryption_command,
    run_token_command,
)
from windrow.emulator.guest_os.binaries import read_binary
from windrow.emulator.guest_os.shell.commands import parse_options
from windrow.emulator.guest_os.shell.run import Command, Invocation
from windrow.kubernetes.errors import KubeError

RunProcess = Callable[[Invocation], Awaitable[int]]
_VALUED = (
    "name",
    "dir",
    "snapshot-retention",
    "etcd-snapshot-retention",
    "o",
    "output",
    "data-dir",
    "token",
    "t",
)


def node_command(
    distribution: Distribution, run: RunProcess, clusters: Mapping[str, GuestCluster]
) -> Command:
    """The program of a distribution, called by its path. `run` is the process of `server` and `agent`."""

    async def command(call: Invocation) -> int:
        match call.argv[1:]:
            case ["server" | "agent", *_]:
                return await run(call)
            case ["--version" | "-v", *_]:
                call.print(
                    f"{distribution.name} version {read_binary(call.guest.read(call.argv[0]) or b'')[1]}"
                )
                return 0
            case ["certificate", *words]:
                return run_certificate_command(call, distribution, words)
            case ["etcd-snapshot" | "secrets-encrypt" | "token" as verb, *words]:
                return await _run_on_server(call, clusters, verb, words)
        call.guest.console(f"not simulated: {' '.join(call.argv)}")
        return 0

    return command


async def _run_on_server(
    call: Invocation, clusters: Mapping[str, GuestCluster], verb: str, words: list[str]
) -> int:
    """A command that asks the server on this machine."""
    own = {one for addresses in call.guest.addresses.values() for one in addresses}
    pairs = ((cluster, server) for cluster in clusters.values() for server in cluster.servers.values())
    found = next(((cluster, server) for cluster, server in pairs if server.address in own), None)
    if found is None:
        return fail(call, "dial tcp 127.0.0.1: connect: connection refused")
    if verb == "secrets-encrypt":
        return await run_encryption_command(call, *found, words)
    if verb == "token":
        return await run_token_command(call, *found, words)
    return await _run_snapshot_command(call, found[1], words)


async def _run_snapshot_command(call: Invocation, server: ServerInstance, words: list[str]) -> int:
    options, names = parse_options(words, _VALUED)
    if server.snapshots is None:
        return fail(call, "see server log for details: 404 page not found")
    try:
        return await _snapshot(call, server.snapshots, options, names)
    except (SnapshotFailed, NoS3, KubeError) as error:
        return fail(call, f"see server log for details: {error}")


async def _snapshot(
    call: Invocation, snapshots: EtcdSnapshots, options: Mapping[str, str], words: list[str]
) -> int:
    verb, names = (words[0], words[1:]) if words else ("save", [])
    settings = snapshots.settings
    if name := options.get("name"):
        settings = replace(settings, name=name)
    retention = options.get("snapshot-retention") or options.get("etcd-snapshot-retention") or ""
    if retention.isdigit():
        settings = replace(settings, retention=int(retention))
    match verb:
        case "save":
            _print_result(call, await snapshots.save(settings))
        case "delete":
            _print_result(call, await snapshots.delete(settings, [one for one in names if "/" not in one]))
        case "prune":
            _print_result(call, await snapshots.prune(settings))
        case "list" | "ls" | "l":
            call.print("Name Location Size Created")
            for file in await snapshots.list_all(settings):
                call.print(f"{file.name} {file.location} {file.size} {file.created:%Y-%m-%dT%H:%M:%SZ}")
        case _:
            return fail(call, f"No help topic for '{verb}'")
    return 0


def _print_result(call: Invocation, result: SnapshotResult) -> None:
    for name in result.created:
        call.print(f'level=info msg="Snapshot {name} saved."')
    for name in result.deleted:
        call.print(f'level=info msg="Snapshot {name} deleted."')
