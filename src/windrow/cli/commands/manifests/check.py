"""Report everything that is wrong with a manifest; change nothing.

The manifest is read as the cluster manager reads it; a field that a kind does not have is an error. The versions of
Kubernetes, of the Harvester charts and of Harvester are compared with the support matrix. Where the management API
has the Cluster already, what a cluster that runs cannot change is compared with it.

Harvester is asked, too, with --harvester or with the credential from the management API: for the image, networks,
storage class, key pair and names of the machines, and for the IPPool of the load balancer. With neither of the two
only the manifest is checked. Pools of another driver's kind are listed: Harvester cannot check them, but their
credential is looked up in the management API.

Exit code 3 means that there is an error.

Examples:
  windrow check -f cluster.yaml
  windrow check -f cluster.yaml --harvester harvester.yaml
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from windrow.cli import connect, exit_codes, options
from windrow.cli.context import CliContext
from windrow.cli.errors import CliError, combine
from windrow.cli.manifests import (
    find_kind,
    place_in_namespace,
    print_notes,
    read_documents,
    unknown_kind_errors,
)
from windrow.cli.output.check_results import render_check_result
from windrow.cli.output.data import list_of, render_data
from windrow.cli.output.terminal import print_lines
from windrow.cli.paths import read_support_matrix
from windrow.clusters.api.rancher_import import strip_server_fields
from windrow.kubernetes.objects import Raw

if TYPE_CHECKING:
    from windrow.app.check import CheckResult


def arguments(parser: argparse.ArgumentParser) -> None:
    options.add_filenames(parser, "a manifest")
    parser.add_argument("--harvester", metavar="FILE", help="kubeconfig of the Harvester to ask")
    options.add_support_matrix(parser)
    options.add_output(parser)
    options.add_connection(parser)


def run(args: argparse.Namespace, context: CliContext) -> int:
    import asyncio

    documents, notes = strip_server_fields(read_documents(args.filename, context))
    print_notes(notes, context)
    unknown_kinds = unknown_kind_errors(documents)
    documents = [raw for raw in documents if find_kind(raw) is not None]
    results = asyncio.run(_check(documents, args, context))
    if not results and not unknown_kinds:
        raise CliError(
            "The manifest contains no Cluster.", "Name the file that contains it.", exit_codes.REFUSED
        )
    if args.output:
        items = [*map(_as_object, results), *map(_unknown_kind, unknown_kinds)]
        context.print(render_data(list_of(items), args.output))
    for one in () if args.output else results:
        print_lines(
            context,
            render_check_result(
                _title(one),
                one.problems,
                one.not_asked,
                context.width,
                one.unchecked_kinds,
                one.compared,
                one.compared_with,
            ),
        )
    if unknown_kinds:
        raise combine(unknown_kinds)
    return exit_codes.REFUSED if any(one.errors for one in results) else exit_codes.OK


def _title(result: CheckResult) -> str:
    place = f"{result.namespace}/{result.name}" if result.namespace else result.name
    return place if result.kind == "Cluster" else f"{result.kind} {place}"


async def _check(documents: list[Raw], args: argparse.Namespace, context: CliContext) -> list[CheckResult]:
    """Check as much as the flags and the management API allow."""
    from windrow.app import check

    manager = None  # without a management API the manifest itself can be checked
    if connect.names_kubeconfig(args, context):
        manager = connect.read_client_config(connect.find_kubeconfig(args, context))
    place_in_namespace(documents, args.namespace, (manager.namespace if manager else "") or "default")
    harvester = connect.read_kubeconfig(context.cwd / args.harvester) if args.harvester else ""
    matrix = read_support_matrix(args.support_matrix, context)
    return await check.run(documents, manager, harvester, matrix)


def _as_object(result: CheckResult) -> dict[str, object]:
    """The result in the form of an object, for `-o`. The kind is not served by any API."""
    problems = [
        {"severity": one.severity, "field": one.field, "message": one.message, "hint": one.hint}
        for one in result.problems
    ]
    return {
        "apiVersion": "windrow.io/v1alpha1",
        "kind": "CheckResult",
        "metadata": {"namespace": result.namespace, "name": result.name},
        "checkedKind": result.kind,
        "passed": not result.errors,
        "problems": problems,
        "checkedOnHarvester": result.harvester_asked,
        "uncheckedKinds": list(result.unchecked_kinds),
        "comparedWith": result.compared_with,
        "compared": [
            {"result": one.result, "message": one.sentence, "hint": one.hint} for one in result.compared
        ],
    }


def _unknown_kind(error: CliError) -> dict[str, object]:
    problem = {"severity": "error", "field": "", "message": error.message, "hint": error.hint}
    return {
        "apiVersion": "windrow.io/v1alpha1",
        "kind": "CheckResult",
        "checkedKind": "",
        "passed": False,
        "problems": [problem],
    }
