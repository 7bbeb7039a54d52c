"""Show what a manifest, or the spec of a cluster, changes of machines that exist.

Of each machine: whether it stays, changes live, restarts its service or its VM, is replaced, or the change is for new
machines only, or refused; with each field, its old and its new value, the reason, the order of turns, and what a turn
disrupts. The cluster manager carries out this plan; it is in status.pendingChanges, too.

With a FILE, the management API is asked what it would make of it (a server-side dry run); nothing is written. Where
`windrow check` finds an error, every one of them is printed instead. With a CLUSTER, what is pending of it is shown.

What `windrow check` and `windrow apply` warn of is printed beside the plan.

Exit codes are those of `kubectl diff`: 0 there is nothing to do, 1 there are changes, above 1 an error. It is 3 where
something of the manifest, or of the cluster's spec, is refused.

Examples:
  windrow plan cluster.yaml
  windrow plan prod
  windrow plan fleet-default/prod -o json
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from windrow.cli import connect, exit_codes, options
from windrow.cli.connect import Connection
from windrow.cli.context import CliContext
from windrow.cli.errors import CliError, combine, to_cli_error
from windrow.cli.manifests import place_in_namespace, print_notes, read_documents, unknown_kind_errors
from windrow.cli.output.check_results import print_problems, render_problems
from windrow.cli.output.data import list_of, render_data
from windrow.cli.output.lines import to_text
from windrow.cli.output.terminal import print_lines
from windrow.clusters.api.rancher_import import strip_server_fields
from windrow.kubernetes.objects import Raw

if TYPE_CHECKING:
    from windrow.app.plan import ClusterPlan

_SUFFIXES = (".yaml", ".yml", ".json")


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "subject", metavar="FILE|CLUSTER", help="a manifest, - for standard input, or [NAMESPACE/]NAME"
    )
    options.add_output(parser)
    options.add_connection(parser)


def run(args: argparse.Namespace, context: CliContext) -> int:
    try:
        if _is_file(args.subject, context):
            return _run_file(args, context)
        return connect.run_connected(args, context, lambda manager: _plan_cluster(args, context, manager))
    except Exception as error:
        shown = to_cli_error(error)
        if shown.code != exit_codes.FAILED:
            raise
        # 1 says that there are changes.
        raise CliError(shown.message, shown.hint, exit_codes.UNDECIDED, shown.others) from error


def _is_file(subject: str, context: CliContext) -> bool:
    """A cluster is called as no file is: a name that ends as manifests do is one, also where it does not exist."""
    return subject == "-" or Path(subject).suffix in _SUFFIXES or (context.cwd / subject).is_file()


def _run_file(args: argparse.Namespace, context: CliContext) -> int:
    documents, notes = strip_server_fields(read_documents([args.subject], context))
    if strangers := unknown_kind_errors(documents):
        raise combine(strangers)
    print_notes(notes, context)
    return connect.run_connected(
        args, context, lambda manager: _plan_documents(documents, args, context, manager)
    )


async def _plan_documents(
    documents: list[Raw], args: argparse.Namespace, context: CliContext, manager: Connection
) -> int:
    from windrow.app import plan

    place_in_namespace(documents, args.namespace, manager.namespace)
    results = await plan.check_manifest(documents, manager.client)
    if any(one.errors for one in results):
        print_problems([one for one in results if one.errors], context)
        context.print_note("With these errors nothing would be applied.")
        return exit_codes.REFUSED
    plans = await plan.plan_manifest(documents, manager.client, context.now())
    if not plans:
        raise CliError(
            "The manifest contains no Cluster, and no machine config of one.",
            "Name the file that contains it.",
            exit_codes.REFUSED,
        )
    for text in to_text(render_problems(plan.list_warnings(results, plans), context.width)):
        context.print_note(text)
    return _show(plans, args, context)


async def _plan_cluster(args: argparse.Namespace, context: CliContext, manager: Connection) -> int:
    from windrow.app import plan

    raw = await connect.get_cluster(manager, args.subject, args.namespace or "")
    return _show([await plan.plan_existing(raw, manager.client, context.now())], args, context)


def _show(plans: list[ClusterPlan], args: argparse.Namespace, context: CliContext) -> int:
    from windrow.cli.output.plans import as_object, render_plan

    if args.output:
        objects = [as_object(one) for one in plans]
        context.print(render_data(objects[0] if len(objects) == 1 else list_of(objects), args.output))
    else:
        for place, one in enumerate(plans):
            print_lines(context, render_plan(one, context.width, is_first=place == 0))
    if any(one.pending.refused for one in plans):
        return exit_codes.REFUSED
    return exit_codes.DIFFERENCES if any(one.has_changes for one in plans) else exit_codes.OK
