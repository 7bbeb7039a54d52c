"""Node drivers: docker-machine drivers that machines can be made with.

The manager fetches a driver over https, checks its SHA-256 before anything is unpacked or run, asks it for its create
flags, and makes a machine config kind of them; the pools of a Cluster may then name that kind. The driver for
Harvester is built in; what is changed of it lasts until the manager's next start.

Examples:
  windrow driver list
  windrow driver add vsphere --url URL --checksum SHA256
  windrow driver disable vsphere
"""

from __future__ import annotations

import argparse
from collections.abc import Awaitable, Callable

from windrow.cli import connect, exit_codes, options
from windrow.cli.connect import Connection
from windrow.cli.context import CliContext

Action = Callable[[argparse.Namespace, CliContext, Connection], Awaitable[int]]


def arguments(parser: argparse.ArgumentParser) -> None:
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="VERB")

    listing = verbs.add_parser("list", help="list node drivers, and how each stands")
    _add_output(listing)

    show = verbs.add_parser("show", help="show one node driver")
    _add_name(show)
    _add_output(show)

    add = verbs.add_parser("add", help="add a node driver by its URL")
    _add_name(add)
    source = add.add_mutually_exclusive_group(required=True)
    source.add_argument(
        "--url", metavar="URL", help="where it comes from (https); a tar.gz, tar, zip or the program"
    )
    source.add_argument(
        "--file", metavar="FILE", help="a file of this computer, where the manager allows that"
    )
    add.add_argument(
        "--checksum", metavar="SHA256", help="of what the URL delivers; of --file it is computed"
    )
    add.add_argument("--description", metavar="TEXT", default="", help="what it is for")
    add.add_argument(
        "--replace", action="store_true", help="change the URL and checksum of one that is there"
    )
    _add_waiting(add)

    for name, said in (("enable", "let Clusters use a node driver"), ("disable", "let no Cluster use it")):
        switch = verbs.add_parser(name, help=said)
        _add_name(switch)
        _add_waiting(switch)

    remove = verbs.add_parser("remove", help="remove a node driver, its files and its kind")
    _add_name(remove)
    _add_waiting(remove)

    for one in (listing, show, add, *(verbs.choices[name] for name in ("enable", "disable")), remove):
        _add_kubeconfig(one)
        options.add_verbose(one)


def _add_name(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="NAME", help="of the NodeDriver")


def _add_kubeconfig(parser: argparse.ArgumentParser) -> None:
    """Without a namespace, unlike the other verbs': node drivers have none."""
    parser.add_argument(
        "--kubeconfig",
        metavar="FILE",
        help="the management API's (default: $WINDROW_KUBECONFIG, else .windrow/manager.yaml)",
    )


def _add_output(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "-o",
        "--output",
        metavar="FORMAT",
        choices=("json", "yaml", "table"),
        default="table",
        help="json, yaml or table (default: table)",
    )


def _add_waiting(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--no-wait", action="store_true", help="return when it is ordered")
    options.add_timeout(parser)


def run(args: argparse.Namespace, context: CliContext) -> int:
    from windrow.cli import node_drivers as changes

    actions: dict[str, Action] = {
        "list": _list,
        "show": _show,
        "enable": changes.enable,
        "disable": changes.disable,
        "remove": changes.remove,
    }
    if args.verb == "add":
        source = changes.find_source(args, context)
        return connect.run_connected(
            args, context, lambda manager: changes.add(args, context, manager, source)
        )
    return connect.run_connected(args, context, lambda manager: actions[args.verb](args, context, manager))


async def _list(args: argparse.Namespace, context: CliContext, manager: Connection) -> int:
    from windrow.cli.node_drivers import list_drivers
    from windrow.cli.output.data import render_data
    from windrow.cli.output.drivers import read_view, render_drivers

    raws = await list_drivers(manager)
    if args.output != "table":
        context.print(render_data({"apiVersion": "v1", "kind": "List", "items": raws}, args.output))
        return exit_codes.OK
    views = sorted((read_view(raw) for raw in raws), key=lambda one: one.name)
    for one in render_drivers(views, context.width) if views else ["There are no node drivers."]:
        context.print(one)
    return exit_codes.OK


async def _show(args: argparse.Namespace, context: CliContext, manager: Connection) -> int:
    from windrow.cli.node_drivers import get_driver
    from windrow.cli.output.data import render_data
    from windrow.cli.output.drivers import read_view, render_driver
    from windrow.cli.output.terminal import print_lines

    raw = await get_driver(manager, args.name)
    if args.output != "table":
        context.print(render_data(raw, args.output))
    else:
        print_lines(context, render_driver(read_view(raw), context.width))
    return exit_codes.OK
