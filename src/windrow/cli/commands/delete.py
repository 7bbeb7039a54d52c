"""Delete a cluster, its machines and their disks, the load balancers of its services, and every other object that was
created for it.

At a terminal it asks for confirmation; elsewhere it needs --yes. It waits until all of them are gone and prints what
it waits for; --no-wait returns at once.

Volumes of the cluster's PersistentVolumes are deleted on Harvester where their reclaim policy is Delete. They stay where
it is Retain, and where the cluster's API did not answer or another VM uses them; snapshots and backups of volumes always
stay. At the end it names what stays, but for snapshots and backups.

Examples:
  windrow delete prod
  windrow delete fleet-default/prod --yes --no-wait
"""

from __future__ import annotations

import argparse

from windrow.app.describe.views import read_machine
from windrow.cli import connect, exit_codes, options
from windrow.cli.connect import Connection
from windrow.cli.context import CliContext
from windrow.cli.errors import CliError
from windrow.clusters.api.kinds import CLUSTER
from windrow.kubernetes.objects import Raw, uid_of
from windrow.kubernetes.resources import ref_of

VOLUMES = "Volumes of its PersistentVolumes go too, with their data; only Retain keeps one."


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="CLUSTER", help="NAME or NAMESPACE/NAME")
    parser.add_argument("-y", "--yes", action="store_true", help="do not ask for confirmation")
    parser.add_argument("--no-wait", action="store_true", help="return once the deletion is requested")
    options.add_timeout(parser)
    options.add_connection(parser)


def run(args: argparse.Namespace, context: CliContext) -> int:
    seen = ""
    if not args.yes and not (context.terminal and context.stdin.isatty()):
        raise CliError(
            f"Deleting {args.name} also deletes its machines and their disks, and there is no terminal to confirm that. "
            f"{VOLUMES}",
            f"Confirm it: windrow delete {args.name} --yes",
            exit_codes.USAGE,
        )
    if not args.yes:
        # Confirmed outside of the event loop, which would hold Ctrl-C back until the line is read.
        cluster, machines = connect.run_connected(args, context, lambda manager: _read_cluster(args, manager))
        _confirm(cluster, machines, context)
        seen = uid_of(cluster)
    return connect.run_connected(args, context, lambda manager: _delete(args, context, manager, seen))


async def _read_cluster(args: argparse.Namespace, manager: Connection) -> tuple[Raw, int]:
    """The cluster, and how many machines it has."""
    cluster = await connect.get_cluster(manager, args.name, args.namespace or "")
    views = [read_machine(raw) for raw in await connect.list_machines(manager, [cluster])]
    return cluster, sum(one.cluster == cluster["metadata"]["name"] for one in views)


async def _delete(args: argparse.Namespace, context: CliContext, manager: Connection, seen: str) -> int:
    """`seen` is the uid of the cluster that was confirmed; "" without a confirmation."""
    cluster = await connect.get_cluster(manager, args.name, args.namespace or "")
    if seen and uid_of(cluster) != seen:
        raise CliError(
            f"{connect.full_name(cluster)} was created again meanwhile.",
            "Check the new Cluster, then delete it.",
            exit_codes.FAILED,
        )
    ref, uid = ref_of(CLUSTER, cluster), uid_of(cluster)
    await manager.client.delete(ref, uid=uid)
    context.print(f"{ref} is being deleted")
    if args.no_wait:
        return exit_codes.OK
    from windrow.cli import wait

    return await wait.wait_for_deletion(manager, ref, uid, args.timeout, context)


def _confirm(cluster: Raw, count: int, context: CliContext) -> None:
    name = cluster["metadata"]["name"]
    context.out.write(
        f"This deletes {connect.full_name(cluster)}: {count} machine{'s' * (count != 1)}, with their disks.\n"
        f"{VOLUMES}\n"
        f"Type the name of the Cluster to confirm: "
    )
    context.out.flush()
    if context.stdin.readline().strip() not in (name, connect.full_name(cluster)):
        raise CliError(
            "Nothing was deleted.", "Type the name of the Cluster, or use --yes.", exit_codes.FAILED
        )
