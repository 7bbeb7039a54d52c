"""Show why a cluster or a machine is not Ready: the chain of objects to the first cause.

It goes from the Cluster to the Machine that it waits for, to its VirtualMachine, and to the host, quota, disk or image
behind it on Harvester; each with its state, its age, and what to look at next. Of a machine that has not joined it prints
the end of the console. What is on Harvester is read with the cluster's own credential, so it needs the right to read that
Secret; without it, it shows what the management API says.

Examples:
  windrow why prod
  windrow why fleet-default/prod-workers-x7k2p-9k2lp
  windrow why prod -o json
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from windrow.cli import connect, exit_codes, options
from windrow.cli.connect import Connection
from windrow.cli.context import CliContext
from windrow.kubernetes.objects import Raw

if TYPE_CHECKING:
    from windrow.app.describe.causes import HarvesterObjects


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="CLUSTER|MACHINE", help="NAME or NAMESPACE/NAME")
    options.add_output(parser)
    options.add_connection(parser)


def run(args: argparse.Namespace, context: CliContext) -> int:
    return connect.run_connected(args, context, lambda manager: _explain(args, context, manager))


async def _explain(args: argparse.Namespace, context: CliContext, manager: Connection) -> int:
    from windrow.app.describe.causes import explain_cluster, explain_machine, find_waiting_machine
    from windrow.cli.output.causes import chain_data, render_chain, render_console
    from windrow.cli.output.data import render_data
    from windrow.cli.output.terminal import print_lines

    cluster, machine = await connect.get_cluster_or_machine(manager, args.name, args.namespace or "")
    machines = await connect.list_machines(manager, [cluster]) if cluster is not None else []
    if cluster is not None:
        machine = find_waiting_machine(cluster, machines)
    seen, hidden = await _read_harvester(manager, machine, context)
    if cluster is not None:
        links = explain_cluster(cluster, machines, seen)
    else:
        links = explain_machine(machine or {}, seen)
    is_joined = machine is None or bool(machine.get("status", {}).get("nodeRef"))
    console = seen.console if seen is not None and not is_joined and len(links) > 1 else ()
    if args.output:
        context.print(render_data(chain_data(links, console), args.output))
        return exit_codes.OK
    name = f"VirtualMachine {seen.namespace}/{seen.name}" if seen is not None else ""
    print_lines(context, [*render_chain(links, context.now(), context.width), *render_console(name, console)])
    if hidden:
        context.print_note(hidden)
    return exit_codes.OK


async def _read_harvester(
    manager: Connection, machine: Raw | None, context: CliContext
) -> tuple[HarvesterObjects | None, str]:
    """What Harvester says of the machine's VM, and why that is not known; None and "" where it is not asked."""
    from windrow.app.harvester.console import NoConsole, open_harvester
    from windrow.app.harvester.objects import read_harvester_objects
    from windrow.core.errors import UserError
    from windrow.kubernetes.errors import KubeError
    from windrow.kubernetes.objects import nested

    if machine is None or nested(machine, "spec", "driver", default="harvester") != "harvester":
        return None, ""
    try:
        async with open_harvester(manager.client, machine, context.env) as (harvester, server):
            return await read_harvester_objects(harvester, machine, server), ""
    except (NoConsole, UserError, KubeError) as error:
        return None, f"What Harvester says is not known here: {getattr(error, 'message', None) or error}"
