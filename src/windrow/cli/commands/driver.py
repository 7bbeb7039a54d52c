"""Manage node drivers: docker-machine drivers that create machines.

The manager downloads a driver over https, verifies its SHA-256 before anything is unpacked or run, reads its create
flags, and defines a machine config kind from them, which the pools of a Cluster may then name. The driver for
Harvester is built in; changes to it last until the manager restarts.

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
from windrow.kubernetes.objects import name_of

Action = Callable[[argparse.Namespace, CliContext, Connection], Awaitable[int]]


def arguments(parser: argparse.ArgumentParser) -> None:
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")

    listing = commands.add_parser("list", help="list node drivers and their state")
    options.add_formats(listing, wide=True, table=True)

    show = commands.add_parser("show", help="show one node driver")
    _add_name(show)
    _add_output(show)

    add = commands.add_parser("add", help="add a node driver by its URL")
    _add_name(add)
    source = add.add_mutually_exclusive_group(required=True)
    source.add_argument("--url", metavar="URL", help="https URL of a tar.gz, tar, zip or of the program")
    source.add_argument(
        "--file", metavar="FILE", help="a file of this computer, if the manager runs with --allow-file-urls"
    )
    add.add_argument("--checksum", metavar="SHA256", help="SHA-256 of the download; computed for --file")
    add.add_argument("--description", metavar="TEXT", default="", help="description of the driver")
    add.add_argument(
        "--replace", action="store_true", help="change the URL and checksum of an existing driver"
    )
    _add_waiting(add)

    switches = {
        "enable": "allow Clusters to use a node driver",
        "disable": "forbid Clusters to use a node driver",
    }
    for name, said in switches.items():
        switch = commands.add_parser(name, help=said)
        _add_name(switch)
        _add_waiting(switch)

    remove = commands.add_parser("remove", help="remove a node driver, its files and its kind")
    _add_name(remove)
    _add_waiting(remove)

    for one in (listing, show, add, *(commands.choices[name] for name in switches), remove):
        options.add_kubeconfig(one)  # without --namespace: NodeDrivers are cluster-scoped
        options.add_verbose(one)


def _add_name(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="NAME", help="name of the NodeDriver")


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
    parser.add_argument("--no-wait", action="store_true", help="return once the change is requested")
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
    if args.command == "add":
        source = changes.find_source(args, context)
        return connect.run_connected(
            args, context, lambda manager: changes.add(args, context, manager, source)
        )
    return connect.run_connected(args, context, lambda manager: actions[args.command](args, context, manager))


async def _list(args: argparse.Namespace, context: CliContext, manager: Connection) -> int:
    from windrow.cli.node_drivers import list_drivers
    from windrow.cli.output.drivers import read_view, render_drivers
    from windrow.cli.output.formats import is_table, render_objects
    from windrow.cli.output.tables import UNBOUNDED

    raws = sorted(await list_drivers(manager), key=name_of)
    if not is_table(args.output):
        if text := render_objects(raws, args.output):
            context.print(text)
        return exit_codes.OK
    views, width = list(map(read_view, raws)), UNBOUNDED if args.output == "wide" else context.width
    for one in render_drivers(views, width) if views else ["No node drivers."]:
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
