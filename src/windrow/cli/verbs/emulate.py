"""Run an embedded Harvester on this computer, until Ctrl-C. Its machines act on the cloud-init they are given.

It keeps its kubeconfig (harvester.yaml) and credentials in DIR; its objects live in memory, so stopping it means
starting over. --stock puts the images, networks, storage
classes, key pairs and namespaces that manifests name onto its shelves.
`windrow emulate console NAMESPACE/NAME` prints what a machine of a running emulator wrote on its console.

Examples:
  windrow emulate --stock cluster.yaml --speed 10
  windrow emulate console default/prod-servers-x5x7z-9k2lp
"""

from __future__ import annotations

import argparse
from pathlib import Path

from windrow.cli import exits, options
from windrow.cli.complaints import Complaint
from windrow.cli.edge import Edge
from windrow.cli.places import find_cloud_provider, insist_on_directory


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "action", nargs="*", metavar="console NAMESPACE/NAME", help="print a machine's console instead"
    )
    options.add_state(parser)
    parser.add_argument(
        "--stock",
        metavar="FILE",
        action="append",
        default=[],
        help="a manifest whose needs shall be in stock",
    )
    options.add_port(parser)
    parser.add_argument("--plain", action="store_true", help="plain lines, also at a terminal")
    parser.add_argument(
        "--kubeconfig", metavar="FILE", help="for console: the emulator's (default: DIR/harvester.yaml)"
    )
    parser.add_argument(
        "--cloud-provider",
        metavar="FILE",
        help="a program that guests shall run as their harvester-cloud-provider, in place of ours",
    )
    options.add_speed(parser, 1.0)


def run(given: argparse.Namespace, edge: Edge) -> int:
    match given.action:
        case []:
            return _emulate(given, edge)
        case ["console", machine] if machine.count("/") == 1 and all(machine.split("/")):
            return _console(machine, given, edge)
    raise Complaint(
        f"windrow emulate does not understand {' '.join(given.action)!r}.",
        "It takes nothing, or: console NAMESPACE/NAME",
        exits.USAGE,
    )


def _emulate(given: argparse.Namespace, edge: Edge) -> int:
    from windrow.assembly import emulate
    from windrow.assembly.loop import run_service
    from windrow.assembly.options import EmulateOptions
    from windrow.cli.manifests import read_documents
    from windrow.cli.out import PlainOut

    insist_on_directory(edge.cwd / given.state, given.state)
    wanted = EmulateOptions(
        state=edge.cwd / given.state,
        stock=tuple(read_documents(given.stock, edge)),
        speed=given.speed,
        port=given.port,
        plain=given.plain or not edge.terminal,
        cloud_provider=find_cloud_provider(given.cloud_provider, edge),
        env=edge.env,
    )
    return run_service(emulate.run(wanted, PlainOut(edge)))


def _console(machine: str, given: argparse.Namespace, edge: Edge) -> int:
    import asyncio

    from windrow.cli.reach import read_access
    from windrow.client.sockets import SocketTransport
    from windrow.kube.errors import error_for
    from windrow.kube.requests import Request

    path = Path(given.kubeconfig) if given.kubeconfig else edge.cwd / given.state / "harvester.yaml"
    if not path.exists():
        raise Complaint(
            f"There is no kubeconfig of an emulator at {path}.",
            "Start one with `windrow emulate`, or name its --state directory.",
            exits.UNREACHABLE,
        )

    async def read() -> str:
        from windrow.assembly.clock import SystemClock

        async with SocketTransport(read_access(path), SystemClock(), env=edge.env) as transport:
            reply = await transport.send(Request("GET", f"/windrow/console/{machine}", accept="text/plain"))
            if reply.status == 404:
                raise Complaint(
                    f"The emulator has no machine {machine}.",
                    f"See which it has: kubectl --kubeconfig {path} get vm -A",
                    exits.NOT_FOUND,
                )
            if error := error_for(reply):
                raise error
            return reply.body.decode("utf-8", "replace")

    edge.say(asyncio.run(read()).rstrip("\n"))
    return exits.OK
