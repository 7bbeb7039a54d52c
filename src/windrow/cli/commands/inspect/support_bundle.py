"""Write what helps others to help: versions, objects, events, metrics, logs and ends of consoles, without secrets.

It reads with your own rights; what you may not read is named in problems.txt. Values of Secrets, passwords, tokens, keys, inline
cloud-init and other texts of several lines are left out everywhere. Look into the file before you send it: names and addresses are
in it.

Examples:
  windrow support-bundle
  windrow support-bundle prod -o prod.tar.gz
  windrow support-bundle prod --no-consoles
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import TYPE_CHECKING

from windrow.cli import connect, exit_codes, options
from windrow.cli.connect import Connection
from windrow.cli.context import CliContext
from windrow.cli.errors import CliError
from windrow.kubernetes.objects import Raw

if TYPE_CHECKING:
    from windrow.app.support.bundle import Bundle


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", nargs="?", default="", metavar="CLUSTER", help="NAME or NAMESPACE/NAME")
    parser.add_argument(
        "-o",
        "--output",
        metavar="FILE",
        default="",
        help="the file to write; it must not exist (default: windrow-support-DATE.tar.gz)",
    )
    parser.add_argument("--no-consoles", action="store_true", help="ask no Harvester for consoles")
    options.add_connection(parser)


def run(args: argparse.Namespace, context: CliContext) -> int:
    from windrow.app.support.bundle import write_bundle

    now = context.now()
    name = args.output or f"windrow-support-{now:%Y%m%d-%H%M%S}.tar.gz"
    path = context.cwd / name
    if path.exists():
        raise CliError(f"{name} exists.", "Name a file that does not exist.", exit_codes.USAGE)
    bundle = connect.run_connected(args, context, lambda manager: _collect(args, context, manager))
    write_bundle(path, bundle, now)
    context.print(f"Wrote {name}: {len(bundle.files)} files, {bundle.size // 1024} KiB, without secrets.")
    for problem in bundle.problems[:5]:
        context.print_note(f"Not in it: {problem}")
    if len(bundle.problems) > 5:
        context.print_note(f"And {len(bundle.problems) - 5} more: see problems.txt in it.")
    return exit_codes.OK


async def _collect(args: argparse.Namespace, context: CliContext, manager: Connection) -> Bundle:
    import windrow
    from windrow.app.harvester.console import read_console
    from windrow.app.plan import plan_existing
    from windrow.app.support.bundle import Wanted, collect
    from windrow.cli.output.plans import as_object

    cluster = await connect.get_cluster(manager, args.name, args.namespace or "") if args.name else None

    async def console(raw: Raw, lines: int) -> Sequence[str]:
        return await read_console(manager.client, raw, lines, context.env)

    async def describe_plan(raw: Raw) -> object:
        return as_object(await plan_existing(raw, manager.client, context.now()))

    versions = {"windrow": windrow.__version__, "commit": windrow.__commit__}
    return await collect(
        manager.client,
        Wanted(cluster, args.namespace or ""),
        versions,
        None if args.no_consoles else console,
        describe_plan,
        context.now(),
    )
