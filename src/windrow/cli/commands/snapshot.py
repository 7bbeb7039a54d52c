"""Create, list, restore and delete snapshots of a cluster's etcd.

Each server with etcd makes a snapshot of its own, on its disk and, where spec.rkeConfig.etcd.s3 says so, in S3. A snapshot
can be restored with the server token that the cluster had when it was made: the column OPENABLE says whether it still has it.

Examples:
  windrow snapshot create prod --wait
  windrow snapshot list prod
  windrow snapshot list prod -o name
  windrow snapshot restore prod prod-s3-on-demand-3-1767268800-s1
  windrow snapshot restore prod --lost-quorum --member prod-servers-x7k2p
  windrow snapshot restore copy prod-s3-on-demand-3-1767268800-s1 --from prod
  windrow snapshot delete prod prod-local-on-demand-3-1767268800-s1
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Any

from windrow.cli import connect, exit_codes, options
from windrow.cli.connect import Connection
from windrow.cli.context import CliContext
from windrow.cli.errors import CliError
from windrow.clusters.api.kinds import CLUSTER, ETCD_SNAPSHOT, MACHINE
from windrow.clusters.api.operations.generations import next_generation
from windrow.kubernetes.objects import Raw, name_of, nested, time_of
from windrow.kubernetes.resources import ObjectRef, ref_of

NO_SNAPSHOTS = "No snapshots."
HEADS = ("CLUSTER", "AGE", "SIZE", "OPENABLE", "STORAGE")
LISTED_WITHIN = timedelta(seconds=30)


def arguments(parser: argparse.ArgumentParser) -> None:
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    create = commands.add_parser("create", help="have each server with etcd make a snapshot")
    create.add_argument("name", metavar="CLUSTER", help="NAME or NAMESPACE/NAME")
    options.add_wait(create, "the snapshots are made")
    listing = commands.add_parser("list", help="list snapshots")
    listing.add_argument(
        "name", nargs="?", default="", metavar="CLUSTER", help="list the snapshots of this cluster only"
    )
    options.add_formats(listing, wide=True)
    delete = commands.add_parser("delete", help="delete a snapshot, with its file")
    delete.add_argument("name", metavar="CLUSTER", help="NAME or NAMESPACE/NAME")
    delete.add_argument("snapshot", metavar="SNAPSHOT", help="a name that windrow snapshot list shows")
    restore = commands.add_parser(
        "restore", help="begin a cluster anew from a snapshot, by new servers or by the one that has the file"
    )
    restore.add_argument("name", metavar="CLUSTER", help="NAME or NAMESPACE/NAME")
    restore.add_argument(
        "snapshot", nargs="?", default="", metavar="SNAPSHOT", help="a name that windrow snapshot list shows"
    )
    add_restore(restore)
    for one in (create, listing, delete, restore):
        options.add_connection(one)
        options.add_verbose(one)


def run(args: argparse.Namespace, context: CliContext) -> int:
    work = {"create": _create, "list": _list, "delete": _delete, "restore": restore_snapshot}[args.command]
    if args.command in ("create", "restore"):
        options.normalize_wait(args)
    return connect.run_connected(args, context, lambda manager: work(args, context, manager))


def add_restore(parser: argparse.ArgumentParser) -> None:
    """The options of a restore."""
    parser.add_argument(
        "--config",
        choices=("none", "kubernetesVersion", "all"),
        default="none",
        help="what of the spec that the snapshot carries is written to the Cluster (default: none)",
    )
    parser.add_argument(
        "--lost-quorum",
        action="store_true",
        help="without SNAPSHOT: go on with the data of one etcd member, after the majority of them was lost",
    )
    parser.add_argument(
        "--member",
        default="",
        metavar="MACHINE",
        help="with --lost-quorum: the Machine with the newest data (default: the only one that is left)",
    )
    parser.add_argument(
        "--from",
        dest="original",
        default="",
        metavar="ORIGINAL",
        help="begin a new cluster with SNAPSHOT of this one, beside it; a cluster that does not exist is created as this one is",
    )
    options.add_wait(parser, "the cluster is restored")


def raise_generation(cluster: Raw, key: str, value: dict[str, Any]) -> list[dict[str, Any]]:
    """The JSON patch that sets `rkeConfig.<key>`; it fails where someone else has set it meanwhile."""
    before = nested(cluster, "spec", "rkeConfig", key)
    path = f"/spec/rkeConfig/{key}"
    guard = [{"op": "test", "path": path, "value": before}] if before is not None else []
    return [*guard, {"op": "add", "path": path, "value": value}]


async def _create(args: argparse.Namespace, context: CliContext, manager: Connection) -> int:
    cluster = await connect.get_cluster(manager, args.name, args.namespace or "")
    ref, key = ref_of(CLUSTER, cluster), "etcdSnapshotCreate"
    generation = next_generation(cluster, key)
    await manager.client.json_patch(ref, raise_generation(cluster, key, {"generation": generation}))
    context.print(f"{connect.full_name(cluster)}: snapshot {generation} is asked for")
    return await _wait_for_snapshot(manager, ref, generation, args, context) if args.wait else exit_codes.OK


async def restore_snapshot(args: argparse.Namespace, context: CliContext, manager: Connection) -> int:
    """Ask for the restore; with --wait until it is over."""
    if bool(args.snapshot) == args.lost_quorum:
        wanted = (
            "A snapshot or --lost-quorum is wanted"
            if not args.snapshot
            else "--lost-quorum takes no snapshot"
        )
        raise CliError(f"{wanted}.", f"List snapshots: windrow snapshot list {args.name}", exit_codes.USAGE)
    if args.original:
        return await _restore_copy(args, context, manager)
    cluster = await connect.get_cluster(manager, args.name, args.namespace or "")
    ref, key = ref_of(CLUSTER, cluster), "etcdSnapshotRestore"
    generation = next_generation(cluster, key)
    if args.lost_quorum:
        member = args.member or await _find_only_member(manager, cluster)
        asked, value = f"to go on with the data of Machine {member}", {"clusterResetMember": member}
    else:
        await get_snapshot(manager, cluster, args.snapshot)
        asked = f"the restore of {args.snapshot}"
        value = {"name": args.snapshot, "restoreRKEConfig": args.config}
    await manager.client.json_patch(ref, raise_generation(cluster, key, {**value, "generation": generation}))
    context.print_wrapped(f"{connect.full_name(cluster)}: {asked} is asked for")
    return await _wait_for_restore(manager, ref, generation, args, context) if args.wait else exit_codes.OK


async def _restore_copy(args: argparse.Namespace, context: CliContext, manager: Connection) -> int:
    from windrow.cli.copies import request_copy

    if args.lost_quorum or args.config != "none":
        raise CliError(
            "--from takes a snapshot, and no --lost-quorum or --config.",
            "The new cluster has a spec of its own.",
            exit_codes.USAGE,
        )
    original = await connect.get_cluster(manager, args.original, args.namespace or "")
    ref, generation, is_created = await request_copy(manager, args.name, original, args.snapshot)
    made = "is created, and begins" if is_created else "is asked to begin"
    context.print_wrapped(f"{ref.namespace}/{ref.name} {made} with {args.snapshot} of {args.original}")
    return await _wait_for_restore(manager, ref, generation, args, context) if args.wait else exit_codes.OK


async def _find_only_member(manager: Connection, cluster: Raw) -> str:
    """The Machine with etcd whose VM is left, where there is one. Raises CliError: of several nothing but etcd knows which has
    the newest data."""
    machines = await manager.client.list(MACHINE, cluster["metadata"]["namespace"])
    own = [raw for raw in machines if nested(raw, "spec", "clusterName") == name_of(cluster)]
    members = [raw for raw in own if "etcd" in (nested(raw, "spec", "roles", default=[]) or [])]
    left = [raw for raw in members if nested(raw, "status", "phase") != "Missing"]
    if len(left) == 1:
        return name_of(left[0])
    named = ", ".join(sorted(map(name_of, left))) or "none"
    raise CliError(
        f"{len(left)} Machines of {connect.full_name(cluster)} may have data of etcd: {named}.",
        "Name the one with the newest data, which is the one that ran last: --member MACHINE",
        exit_codes.USAGE,
    )


async def _wait_for_restore(
    manager: Connection, ref: ObjectRef, generation: int, args: argparse.Namespace, context: CliContext
) -> int:
    from windrow.cli import wait

    status: dict[str, Any] = {}

    told: list[str] = [""]

    async def look() -> bool:
        status.clear()
        status.update((await manager.client.get(ref)).get("status") or {})
        phase = status.get("etcdSnapshotRestorePhase")
        if nested(status, "etcdSnapshotRestore", "generation", default=0) < generation:
            return False
        if nested(status, "etcdSnapshotRestoreRun", "refused", default=""):
            return True
        waits = str(nested(status, "waiting", "for", default=""))
        line = f"{ref}: {phase}" + (f", waits for {waits}" if waits else "")
        if line != told[0]:
            told[0] = line
            context.print_note(line)
        return phase in ("Finished", "Failed")

    await wait.wait_until(look, manager, ref.namespace, args.timeout, f"the restore of {ref}")
    if refused := str(nested(status, "etcdSnapshotRestoreRun", "refused", default="")):
        what, _, hint = refused.partition("; ")
        raise CliError(f"{ref} goes on with the restore of before: {what}.", hint, exit_codes.FAILED)
    message = str(nested(status, "etcdSnapshotRestoreRun", "message", default=""))
    if status["etcdSnapshotRestorePhase"] == "Failed":
        what, _, hint = message.partition("; ")
        raise CliError(f"{ref} was not restored: {what}.", hint, exit_codes.FAILED)
    context.print_wrapped(f"{ref} is restored: {message}")
    return exit_codes.OK


async def _wait_for_snapshot(
    manager: Connection, ref: ObjectRef, generation: int, args: argparse.Namespace, context: CliContext
) -> int:
    from windrow.cli import wait

    status: dict[str, Any] = {}

    async def look() -> bool:
        status.clear()
        status.update((await manager.client.get(ref)).get("status") or {})
        done = nested(status, "etcdSnapshotCreate", "generation", default=0)
        return done >= generation and status.get("etcdSnapshotCreatePhase") in ("Finished", "Failed")

    await wait.wait_until(look, manager, ref.namespace, args.timeout, f"a snapshot of {ref}")
    run = status.get("etcdSnapshotCreateRun") or {}
    if status["etcdSnapshotCreatePhase"] == "Failed":
        message, _, hint = str(run.get("message") or "").rpartition("; ")
        raise CliError(f"Snapshot {generation} of {ref} failed: {message}.", hint, exit_codes.FAILED)
    files = {str(node.get("snapshot")): machine for machine, node in (run.get("nodes") or {}).items()}
    for line in await _name_snapshots(manager, ref, files):
        context.print(line)
    return exit_codes.OK


async def _name_snapshots(manager: Connection, ref: ObjectRef, files: Mapping[str, str]) -> list[str]:
    """The names by which they are restored, which their ETCDSnapshots have, by machine: one on its disk, and one in S3. They are there
    once the guest has listed the files; until LISTED_WITHIN is over that is waited for."""
    import asyncio

    from windrow.cli import wait

    found: list[tuple[str, str]] = []

    async def look() -> bool:
        listed = await manager.client.list(ETCD_SNAPSHOT, ref.namespace)
        own = [raw for raw in listed if nested(raw, "spec", "clusterName") == ref.name]
        named = [(str(nested(raw, "snapshotFile", "name", default="")), name_of(raw)) for raw in own]
        found[:] = sorted((files[file], name) for file, name in named if file in files)
        return {machine for machine, _ in found} >= set(files.values())

    with suppress(TimeoutError):
        async with asyncio.timeout(LISTED_WITHIN.total_seconds()):
            await wait.watch_until(look, manager, namespace=ref.namespace, kinds=(ETCD_SNAPSHOT,))
    missing = sorted(set(files.values()) - {machine for machine, _ in found})
    lines = [f"{machine}: {name}" for machine, name in found]
    return [*lines, *(f"{one}: made; windrow snapshot list names it once it is recorded" for one in missing)]


async def _list(args: argparse.Namespace, context: CliContext, manager: Connection) -> int:
    from windrow.cli.output.formats import render_objects

    namespace, name = args.namespace or "", ""
    if args.name:
        cluster = await connect.get_cluster(manager, args.name, namespace)
        namespace, name = cluster["metadata"]["namespace"], name_of(cluster)
    raws = [
        raw
        for raw in await manager.client.list(ETCD_SNAPSHOT, namespace)
        if name in ("", nested(raw, "spec", "clusterName"))
    ]
    raws.sort(key=_order)
    match args.output:
        case "name":
            lines = list(map(name_of, raws))
        case "wide":
            lines = render_wide(raws, context.now()) or [NO_SNAPSHOTS]
        case None:
            lines = render_snapshots(raws, context.now(), context.width) or [NO_SNAPSHOTS]
        case _:
            lines = [render_objects(raws, args.output)]
    for one in lines:
        context.print(one)
    return exit_codes.OK


def _order(raw: Raw) -> tuple[str, str, str]:
    made = str(nested(raw, "snapshotFile", "createdAt", default=""))
    return raw["metadata"].get("namespace", ""), str(nested(raw, "spec", "clusterName", default="")), made


def render_snapshots(raws: list[Raw], now: datetime, width: int = 80) -> list[str]:
    """A table of snapshots; the name of each, which a person copies and which is never cut, stands below it, and why it failed."""
    from windrow.cli.output.lines import wrap
    from windrow.cli.output.tables import render_table

    if not raws:
        return []
    head, *table = render_table(HEADS, [_cells(raw, now) for raw in raws], width)
    lines = [head, "  SNAPSHOT"]
    for raw, row in zip(raws, table, strict=True):
        failure = _describe_failure(raw)
        lines += [row, f"  {name_of(raw)}", *(wrap(failure, width, "  ", "  ") if failure else [])]
    return lines


def render_wide(raws: list[Raw], now: datetime) -> list[str]:
    """One line for each snapshot, however long."""
    from windrow.cli.output.tables import UNBOUNDED, render_table

    rows = [(*_cells(raw, now), _describe_failure(raw) or "-", name_of(raw)) for raw in raws]
    return render_table((*HEADS, "MESSAGE", "SNAPSHOT"), rows, UNBOUNDED) if rows else []


def _cells(raw: Raw, now: datetime) -> tuple[str, ...]:
    from windrow.core.formats.duration import human_duration

    file = raw.get("snapshotFile") or {}
    made = time_of(raw, "snapshotFile", "createdAt")
    where = nested(file, "s3", "bucket") or file.get("nodeName") or "-"
    return (
        str(nested(raw, "spec", "clusterName", default="")),
        human_duration(now - made) if made else "-",
        describe_size(file.get("size")),
        {"True": "yes", "False": "no"}.get(str(nested(raw, "status", "openable")), "unknown"),
        f"{nested(raw, 'status', 'storage', default='local')}:{where}",
    )


def _describe_failure(raw: Raw) -> str:
    file = raw.get("snapshotFile") or {}
    return f"failed: {file.get('message') or 'no reason given'}" if file.get("status") == "failed" else ""


def describe_size(size: object) -> str:
    """Bytes for people: `12 MiB`."""
    number = float(size) if isinstance(size, int) else 0.0
    for unit in ("B", "KiB", "MiB"):
        if number < 1024:
            return f"{number:.0f} {unit}"
        number /= 1024
    return f"{number:.1f} GiB"


async def _delete(args: argparse.Namespace, context: CliContext, manager: Connection) -> int:
    cluster = await connect.get_cluster(manager, args.name, args.namespace or "")
    raw = await get_snapshot(manager, cluster, args.snapshot)
    await manager.client.delete(ref_of(ETCD_SNAPSHOT, raw), uid=raw["metadata"]["uid"])
    context.print(f"{args.snapshot}: its file is deleted, then the object")
    return exit_codes.OK


async def get_snapshot(manager: Connection, cluster: Raw, name: str) -> Raw:
    """The ETCDSnapshot of this name, of this cluster. Raises CliError."""
    namespace = cluster["metadata"]["namespace"]
    raw = await manager.client.find(ETCD_SNAPSHOT.ref(name, namespace))
    if raw is None or nested(raw, "spec", "clusterName") != name_of(cluster):
        raise CliError(
            f"{connect.full_name(cluster)} has no snapshot {name!r}.",
            f"List them: windrow snapshot list {connect.full_name(cluster)}",
            exit_codes.NOT_FOUND,
        )
    return raw
