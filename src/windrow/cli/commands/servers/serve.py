"""Run the management API and the cluster manager, until Ctrl-C.

The API keeps its state and its port in DIR and writes its kubeconfig to DIR/manager.yaml, for kubectl and the other commands. With
--kubeconfig the objects are kept in a Kubernetes cluster of yours instead; with --kubeconfig "" in a pod, in the cluster of the pod.

Examples:
  windrow serve
  windrow serve --state-dir /var/lib/windrow --port 6443
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from windrow.cli import connect, exit_codes, options
from windrow.cli.context import CliContext
from windrow.cli.errors import CliError
from windrow.cli.paths import find_driver_program, read_support_matrix, require_writable_directory

if TYPE_CHECKING:
    from windrow.app.access.service import DashboardOptions


def arguments(parser: argparse.ArgumentParser) -> None:
    options.add_state_dir(parser)
    options.add_port(parser, default="that of the last start with this DIR, else a free one")
    options.add_bind(parser)
    parser.add_argument(
        "--kubeconfig",
        metavar="FILE",
        help='keep the objects in this Kubernetes cluster instead; "" in a pod: in its own, as its service account',
    )
    options.add_dashboard(parser)
    options.add_proxy(parser)
    options.add_machine_backend(parser)
    parser.add_argument("--allow-file-urls", action="store_true", help="allow node drivers with a file: URL")
    options.add_support_matrix(parser)
    options.add_log_format(parser)
    parser.add_argument(
        "--metrics-bind-address",
        metavar="HOST:PORT",
        default="",
        help="serve /healthz, /readyz and /metrics on a port of their own, too (default: /metrics of the API only)",
    )


def _dashboard(args: argparse.Namespace) -> DashboardOptions | None:
    from windrow.app.access.service import DashboardOptions
    from windrow.dashboard.serve import serve_dashboard

    if args.no_dashboard:
        return None
    return DashboardOptions(serve_dashboard, args.dashboard_bind, args.dashboard_port)


def run(args: argparse.Namespace, context: CliContext) -> int:
    from windrow.app import serve
    from windrow.app.loop import run_service
    from windrow.app.options import ServeOptions
    from windrow.cli.output.progress import PlainOutput

    if args.kubeconfig:
        connect.read_client_config(
            context.cwd / args.kubeconfig
        )  # an error in it is reported with the file's name
    elif args.kubeconfig is None:
        require_writable_directory(context.cwd / args.state_dir, args.state_dir)
    wanted = ServeOptions(
        state_dir=context.cwd / args.state_dir,
        port=args.port,
        bind=args.bind,
        kubeconfig=Path(context.cwd / args.kubeconfig) if args.kubeconfig else None,
        in_cluster=args.kubeconfig == "",
        proxy=args.proxy,
        env=context.env,
        driver=find_driver_program(args.machine_backend, args.driver, context),
        allow_file_urls=args.allow_file_urls,
        support_matrix=read_support_matrix(args.support_matrix, context),
        metrics_bind_address=_checked_address(args.metrics_bind_address),
        dashboard=_dashboard(args),
    )
    return run_service(serve.run(wanted, PlainOutput(context)))


def _checked_address(text: str) -> str:
    """The address, before anything is started. Raises CliError."""
    from windrow.app.metrics.port import parse_address

    try:
        if text:
            parse_address(text)
    except ValueError as error:
        raise CliError(
            f"--metrics-bind-address: {error}.", "As in --metrics-bind-address :8443.", exit_codes.USAGE
        ) from error
    return text
