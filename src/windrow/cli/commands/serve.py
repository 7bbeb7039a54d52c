"""Run the management API and the cluster manager, until Ctrl-C.

The API keeps its state in DIR and its kubeconfig in DIR/manager.yaml; kubectl and the other verbs use that. With
--kubeconfig the state is kept in a Kubernetes cluster of yours instead.

Examples:
  windrow serve
  windrow serve --state /var/lib/windrow --port 6443
"""

from __future__ import annotations

import argparse
from pathlib import Path

from windrow.cli import connect, options
from windrow.cli.context import CliContext
from windrow.cli.paths import find_driver_program, require_writable_directory


def arguments(parser: argparse.ArgumentParser) -> None:
    options.add_state_dir(parser)
    options.add_port(parser)
    parser.add_argument(
        "--kubeconfig", metavar="FILE", help="keep the state in this Kubernetes cluster instead"
    )
    options.add_proxy(parser)
    options.add_machine_backend(parser)
    parser.add_argument(
        "--driver-files", action="store_true", help="let node drivers come from files here (file: URLs)"
    )


def run(args: argparse.Namespace, context: CliContext) -> int:
    from windrow.app import serve
    from windrow.app.loop import run_service
    from windrow.app.options import ServeOptions
    from windrow.cli.output.progress import PlainOutput

    if args.kubeconfig:
        connect.read_client_config(context.cwd / args.kubeconfig)  # so that a fault in it is told by its name
    else:
        require_writable_directory(context.cwd / args.state, args.state)
    wanted = ServeOptions(
        state_dir=context.cwd / args.state,
        port=args.port,
        kubeconfig=Path(context.cwd / args.kubeconfig) if args.kubeconfig else None,
        proxy=args.proxy,
        env=context.env,
        driver=find_driver_program(args.machines, args.driver, context),
        allow_file_urls=args.driver_files,
    )
    return run_service(serve.run(wanted, PlainOutput(context)))
