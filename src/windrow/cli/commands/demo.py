"""Watch a cluster come up, lose machines and heal, on this computer alone.

An emulated Harvester and a cluster manager run in this process, with the delays of hardware divided by --time-scale.
A LoadBalancer Service gets an address of an IPPool and answers requests. Then, as the cluster's pools allow, a worker
VM is deleted and replaced, a VM stopped and started, an etcd member deleted and replaced, while the service goes on;
a pool is scaled; every machine goes to the next minor version of Kubernetes, in place; etcd is saved to a bucket, and
restored from there after the service was deleted. In the end the cluster is deleted, and Harvester's objects are
compared with those from before.
Exit code 0 means that every check passed; `windrow docs demo` lists them.

Examples:
  windrow demo
  windrow demo --distro k3s
  windrow demo --harvester-version 1.6
  windrow demo -f cluster.yaml --report report.json
  windrow demo --keep
  windrow demo --dashboard
"""

from __future__ import annotations

import argparse
from copy import deepcopy
from typing import TYPE_CHECKING

from windrow.cli import exit_codes, options
from windrow.cli.context import CliContext
from windrow.cli.errors import CliError, refused_error
from windrow.cli.manifests import place_in_namespace, read_documents
from windrow.cli.output.check_results import print_problems
from windrow.cli.paths import find_driver_program, require_writable_directory, require_writable_file
from windrow.cli.site import read_site
from windrow.clusters.api.rancher_import import strip_server_fields
from windrow.kubernetes.objects import Raw

if TYPE_CHECKING:
    from windrow.app.access.service import DashboardOptions

TIME_SCALE = 20.0
DISTRIBUTIONS = ("rke2", "k3s")


def arguments(parser: argparse.ArgumentParser) -> None:
    options.add_filenames(parser, "a manifest of yours (default: 3 servers and 2 workers)", required=False)
    parser.add_argument(
        "--distro",
        choices=DISTRIBUTIONS,
        help=f"distribution of the manifest that comes with Windrow (default: {DISTRIBUTIONS[0]})",
    )
    options.add_site(parser)
    options.add_time_scale(parser, TIME_SCALE)
    options.add_machine_backend(parser)
    parser.add_argument(
        "--keep", action="store_true", help="keep everything running at the end, until Ctrl-C"
    )
    parser.add_argument(
        "--dashboard",
        action="store_true",
        help="serve the dashboard, print a link to it, and keep all running",
    )
    parser.add_argument("--plain", action="store_true", help="print plain lines at a terminal, too")
    parser.add_argument(
        "--report", metavar="FILE", help="write checks, timeline and request counts there, as JSON"
    )
    parser.add_argument(
        "--state-dir", metavar="DIR", help="directory of the state (default: a temporary one)"
    )


def run(args: argparse.Namespace, context: CliContext) -> int:
    import asyncio

    from windrow.app.loop import run_service
    from windrow.cli.output.progress import open_output
    from windrow.demo import demo
    from windrow.demo.cluster import ClusterRefused
    from windrow.demo.options import DemoOptions

    documents = _read_input(args, context)
    if args.filename and (errors := asyncio.run(_find_errors(documents, context))):
        if args.report:
            demo.write_refusal(context.cwd / args.report, errors)
        return exit_codes.REFUSED
    wanted = DemoOptions(
        documents=tuple(documents),
        distribution=args.distro or DISTRIBUTIONS[0],
        time_scale=args.time_scale,
        keep=args.keep or args.dashboard,
        dashboard=_dashboard(args),
        report=context.cwd / args.report if args.report else None,
        state_dir=context.cwd / args.state_dir if args.state_dir else None,
        driver=find_driver_program(args.machine_backend, args.driver, context),
        env=context.env,
        site=read_site(args, context),
    )
    try:
        with open_output(context, plain=args.plain) as output:
            return run_service(demo.run(wanted, output))
    except ClusterRefused as refused:
        raise refused_error(refused.name, refused.problems) from refused


def _dashboard(args: argparse.Namespace) -> DashboardOptions | None:
    if not args.dashboard:
        return None
    from windrow.app.access.service import DashboardOptions
    from windrow.dashboard.serve import serve_dashboard

    return DashboardOptions(serve_dashboard)


async def _find_errors(documents: list[Raw], context: CliContext) -> list[str]:
    """The errors that the manifest has in itself. Prints every problem, as `windrow apply` does."""
    from windrow.app.check import check

    checked, _ = strip_server_fields(deepcopy(documents))
    place_in_namespace(checked, None, "default")
    results = await check(checked)
    if print_problems(results, context):
        return []
    context.print_note("Nothing was started.")
    return list(dict.fromkeys(problem.message for one in results for problem in one.errors))


def _read_input(args: argparse.Namespace, context: CliContext) -> list[Raw]:
    """The objects to apply. Raises CliError for what can be known before anything starts."""
    if args.filename and args.distro:
        raise CliError(
            "--distro chooses among the manifests that come with Windrow, and -f names one of yours.",
            "Leave one of them out; the distribution of yours is in its kubernetesVersion.",
            exit_codes.USAGE,
        )
    documents = read_documents(args.filename, context)
    if args.filename and not any(raw["kind"] == "Cluster" for raw in documents):
        raise CliError(
            f"No Cluster in {', '.join(args.filename)}.",
            "Name the file that contains it.",
            exit_codes.REFUSED,
        )
    if args.report:
        require_writable_file(context.cwd / args.report, args.report)
    if args.state_dir:
        require_writable_directory(context.cwd / args.state_dir, args.state_dir)
    return documents
