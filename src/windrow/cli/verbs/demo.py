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

from windrow.cli import exits, options
from windrow.cli.complaints import Complaint
from windrow.cli.edge import Edge
from windrow.cli.manifests import read_documents
from windrow.cli.places import find_driver, insist_on_directory, insist_on_file
from windrow.kube.objects import Raw

SPEED = 20.0


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--manifest",
        metavar="FILE",
        action="append",
        default=[],
        help="a cluster of yours (default: 3 servers, 2 workers); may be repeated",
    )
    options.add_speed(parser, SPEED)
    options.add_machines(parser)
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


def run(given: argparse.Namespace, edge: Edge) -> int:
    from windrow.assembly import demo
    from windrow.assembly.loop import run_service
    from windrow.assembly.options import DemoOptions
    from windrow.cli.out import out_for

    documents = _look_first(given, edge)
    wanted = DemoOptions(
        documents=tuple(documents),
        speed=given.speed,
        keep=given.keep,
        plain=given.plain or not edge.terminal,
        report=edge.cwd / given.report if given.report else None,
        state=edge.cwd / given.state if given.state else None,
        driver=find_driver(given.machines, given.driver, edge),
        env=edge.env,
    )
    with out_for(edge, plain=wanted.plain) as out:
        return run_service(demo.run(wanted, out))


def _look_first(given: argparse.Namespace, edge: Edge) -> list[Raw]:
    """The objects to play with. Complains about what can be known before anything starts."""
    documents = read_documents(given.manifest, edge)
    if given.manifest and not any(raw["kind"] == "Cluster" for raw in documents):
        raise Complaint(
            f"There is no Cluster in {', '.join(given.manifest)}.",
            "Name the file that holds it.",
            exits.REFUSED,
        )
    if given.report:
        insist_on_file(edge.cwd / given.report, given.report)
    if given.state:
        insist_on_directory(edge.cwd / given.state, given.state)
    return documents
