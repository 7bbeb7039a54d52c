"""Hold changes of a cluster: no machine of it is updated, restarted or replaced because of what its spec asks for.

A turn that has begun is finished, and machines that are lost are still replaced. `windrow resume` goes on.

Examples:
  windrow pause prod
"""

from __future__ import annotations

import argparse

from windrow.cli import connect, exit_codes, options
from windrow.cli.connect import Connection
from windrow.cli.context import CliContext
from windrow.clusters.api.kinds import CLUSTER
from windrow.kubernetes.objects import nested
from windrow.kubernetes.resources import ref_of


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="CLUSTER", help="NAME or NAMESPACE/NAME")
    options.add_connection(parser)


def run(args: argparse.Namespace, context: CliContext) -> int:
    return connect.run_connected(args, context, lambda manager: _pause(args, context, manager))


async def _pause(args: argparse.Namespace, context: CliContext, manager: Connection) -> int:
    cluster = await connect.get_cluster(manager, args.name, args.namespace or "")
    name = connect.full_name(cluster)
    if nested(cluster, "spec", "paused", default=False) is True:
        context.print(f"{name} is paused already")
        return exit_codes.OK
    await manager.client.patch(ref_of(CLUSTER, cluster), {"spec": {"paused": True}})
    context.print(f"{name}: paused; windrow resume {name} goes on")
    return exit_codes.OK
