"""Go on with the changes of a cluster that was paused, or whose canary is done.

With --canary so many machines are changed, and the others wait for the next resume.

Examples:
  windrow resume prod
  windrow resume prod --canary 1
"""

from __future__ import annotations

import argparse

from windrow.cli import connect, exit_codes, options
from windrow.cli.connect import Connection
from windrow.cli.context import CliContext
from windrow.clusters.api.kinds import CLUSTER
from windrow.clusters.api.names import CANARY
from windrow.kubernetes.objects import annotations_of, nested
from windrow.kubernetes.resources import ref_of


def read_canary(text: str) -> int:
    """The value of --canary."""
    if not (text.isascii() and text.isdigit() and len(text) < 6 and int(text)):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of machines, as in --canary 1")
    return int(text)


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="CLUSTER", help="NAME or NAMESPACE/NAME")
    parser.add_argument(
        "--canary",
        type=read_canary,
        metavar="N",
        help="change N machines; the others wait for the next resume",
    )
    options.add_connection(parser)


def run(args: argparse.Namespace, context: CliContext) -> int:
    return connect.run_connected(args, context, lambda manager: _resume(args, context, manager))


async def _resume(args: argparse.Namespace, context: CliContext, manager: Connection) -> int:
    cluster = await connect.get_cluster(manager, args.name, args.namespace or "")
    name, canary = connect.full_name(cluster), annotations_of(cluster).get(CANARY)
    wanted = str(args.canary) if args.canary else None
    is_paused = nested(cluster, "spec", "paused", default=False) is True
    if not is_paused and canary == wanted:
        context.print(f"{name} is not paused" if wanted is None else f"{name} has that canary already")
        return exit_codes.OK
    change = {"metadata": {"annotations": {CANARY: wanted}}, "spec": {"paused": False}}
    await manager.client.patch(ref_of(CLUSTER, cluster), change)
    context.print(f"{name}: its machines are changed{f', {wanted} at first' if wanted else ''}")
    if wanted:
        context.print(f"then: windrow resume {name}")
    return exit_codes.OK
