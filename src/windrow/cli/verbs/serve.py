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

from windrow.cli import options, reach
from windrow.cli.edge import Edge
from windrow.cli.places import find_driver, insist_on_directory


def arguments(parser: argparse.ArgumentParser) -> None:
    options.add_state(parser)
    options.add_port(parser)
    parser.add_argument(
        "--kubeconfig", metavar="FILE", help="keep the state in this Kubernetes cluster instead"
    )
    options.add_proxy(parser)
    options.add_machines(parser)
    parser.add_argument(
        "--driver-files", action="store_true", help="let node drivers come from files here (file: URLs)"
    )


def run(given: argparse.Namespace, edge: Edge) -> int:
    from windrow.assembly import serve
    from windrow.assembly.loop import run_service
    from windrow.assembly.options import ServeOptions
    from windrow.cli.out import PlainOut

    if given.kubeconfig:
        reach.read_access(edge.cwd / given.kubeconfig)  # so that a fault in it is told by its name
    else:
        insist_on_directory(edge.cwd / given.state, given.state)
    wanted = ServeOptions(
        state=edge.cwd / given.state,
        port=given.port,
        kubeconfig=Path(edge.cwd / given.kubeconfig) if given.kubeconfig else None,
        proxy=given.proxy,
        env=edge.env,
        driver=find_driver(given.machines, given.driver, edge),
        driver_files=given.driver_files,
    )
    return run_service(serve.run(wanted, PlainOut(edge)))
