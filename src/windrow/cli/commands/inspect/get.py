"""List what a Harvester has for a manifest: images, networks, pools (IPPools), classes (storage classes) or hosts.

It is asked with a kubeconfig, or with a credential of the management API, so that the list is what the credential of a
cluster may see. Names stand as a manifest writes them.

Examples:
  windrow get images --harvester harvester.yaml
  windrow get networks --credential cattle-global-data:cc-harvester -o wide
  windrow get pools --harvester harvester.yaml -o name
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from windrow.cli import connect, exit_codes, options
from windrow.cli.connect import Connection
from windrow.cli.context import CliContext
from windrow.cli.errors import CliError

if TYPE_CHECKING:
    from windrow.client.transport import Transport

NOUNS = ("images", "networks", "pools", "classes", "hosts")
_SINGULAR = {"image": "images", "network": "networks", "pool": "pools", "class": "classes", "host": "hosts"}


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "noun", choices=(*NOUNS, *_SINGULAR), metavar="|".join(NOUNS), help="what of Harvester to list"
    )
    parser.add_argument(
        "name", nargs="?", default="", metavar="NAME", help="only this one: NAME or NAMESPACE/NAME"
    )
    parser.add_argument("--harvester", metavar="FILE", help="kubeconfig of Harvester (default: as kubectl's)")
    parser.add_argument(
        "--credential",
        metavar="SECRET",
        help="Secret of the management API, as NAMESPACE:NAME, to ask with instead",
    )
    options.add_formats(parser, wide=True)
    options.add_connection(parser)


def run(args: argparse.Namespace, context: CliContext) -> int:
    noun = _SINGULAR.get(args.noun, args.noun)
    if args.harvester and args.credential:
        raise CliError(
            "--harvester and --credential exclude each other.", "Remove one of them.", exit_codes.USAGE
        )
    if args.credential:
        return connect.run_connected(
            args, context, lambda manager: _list_with_credential(noun, args, context, manager)
        )
    path = connect.find_harvester_kubeconfig(args, context)
    return connect.run_connected(
        args, context, lambda there: _list(noun, args, context, there.client.transport, there.namespace), path
    )


async def _list_with_credential(
    noun: str, args: argparse.Namespace, context: CliContext, manager: Connection
) -> int:
    from windrow.app.harvester.console import open_credential

    async with open_credential(manager.client, args.credential, context.env) as (harvester, config):
        return await _list(noun, args, context, harvester, config.namespace or "default")


async def _list(
    noun: str, args: argparse.Namespace, context: CliContext, harvester: Transport, own: str
) -> int:
    from windrow.app.harvester.offers import OFFERS, list_offers, rows_of
    from windrow.cli.output.formats import is_table, render_objects
    from windrow.cli.output.tables import render_table
    from windrow.client.client import Client
    from windrow.kubernetes.objects import name_of, namespace_of

    offer = OFFERS[noun]
    namespace, _, name = args.name.rpartition("/")
    raws = await list_offers(Client(harvester), offer, namespace or args.namespace or "", own)
    found = [raw for raw in raws if name in ("", name_of(raw)) and namespace in ("", namespace_of(raw))]
    if name and not found:
        raise CliError(
            f"{offer.kind.kind} {args.name!r} not found on Harvester.",
            f"See what there is: windrow get {noun}",
            exit_codes.NOT_FOUND,
        )
    if not is_table(args.output):
        context.print(render_objects(found, args.output, single=bool(name)))
        return exit_codes.OK
    heads, rows = rows_of(offer, found, wide=args.output == "wide")
    width = max(context.width, 200) if args.output == "wide" else context.width
    for line in render_table(heads, rows, width) if rows else [f"No {noun} on this Harvester."]:
        context.print(line)
    return exit_codes.OK
