"""Watch a cluster come up, lose machines and heal. Needs nothing but this computer.

An embedded Harvester and a cluster manager run in this process; the machines' delays are real ones, divided by
--speed. A service gets an address of a pool and is asked over the network. Then, as far as the cluster's shape
allows: a worker is lost and replaced, a machine stopped and started, an etcd member lost and replaced, and the service
goes on; a pool is scaled, the cluster deleted, and Harvester's inventory compared with before.
Exit code 0 means that every check held; docs/reference/demo.md lists them.

Examples:
  windrow demo
  windrow demo --manifest cluster.yaml --report report.json
  windrow demo --keep
"""

from __future__ import annotations

import argparse

from windrow.cli import exit_codes, options
from windrow.cli.context import CliContext
from windrow.cli.errors import CliError
from windrow.cli.manifests import read_documents
from windrow.cli.paths import find_driver_program, require_writable_directory, require_writable_file
from windrow.kubernetes.objects import Raw

TIME_SCALE = 20.0


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--manifest",
        metavar="FILE",
        action="append",
        default=[],
        help="a cluster of yours (default: 3 servers, 2 workers); may be repeated",
    )
    options.add_time_scale(parser, TIME_SCALE)
    options.add_machine_backend(parser)
    parser.add_argument(
        "--keep", action="store_true", help="leave everything running at the end, until Ctrl-C"
    )
    parser.add_argument("--plain", action="store_true", help="plain lines, also at a terminal")
    parser.add_argument(
        "--report", metavar="FILE", help="write checks, timeline and call counts there, as JSON"
    )
    parser.add_argument(
        "--state", metavar="DIR", help="keep the state there (default: a directory that goes away)"
    )


def run(args: argparse.Namespace, context: CliContext) -> int:
    from windrow.app.loop import run_service
    from windrow.cli.output.progress import open_output
    from windrow.demo import demo
    from windrow.demo.options import DemoOptions

    documents = _read_input(args, context)
    wanted = DemoOptions(
        documents=tuple(documents),
        time_scale=args.speed,
        keep=args.keep,
        plain=args.plain or not context.terminal,
        report=context.cwd / args.report if args.report else None,
        state_dir=context.cwd / args.state if args.state else None,
        driver=find_driver_program(args.machines, args.driver, context),
        env=context.env,
    )
    with open_output(context, plain=wanted.plain) as out:
        return run_service(demo.run(wanted, out))


def _read_input(args: argparse.Namespace, context: CliContext) -> list[Raw]:
    """The objects to play with. Complains about what can be known before anything starts."""
    documents = read_documents(args.manifest, context)
    if args.manifest and not any(raw["kind"] == "Cluster" for raw in documents):
        raise CliError(
            f"There is no Cluster in {', '.join(args.manifest)}.",
            "Name the file that holds it.",
            exit_codes.REFUSED,
        )
    if args.report:
        require_writable_file(context.cwd / args.report, args.report)
    if args.state:
        require_writable_directory(context.cwd / args.state, args.state)
    return documents
