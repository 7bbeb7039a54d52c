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

from windrow.cli import exit_codes, options
from windrow.cli.context import CliContext
from windrow.cli.errors import CliError
from windrow.cli.paths import find_cloud_provider, require_writable_directory


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "action", nargs="*", metavar="console NAMESPACE/NAME", help="print a machine's console instead"
    )
    options.add_state_dir(parser)
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
    options.add_time_scale(parser, 1.0)


def run(args: argparse.Namespace, context: CliContext) -> int:
    match args.action:
        case []:
            return _emulate(args, context)
        case ["console", machine] if machine.count("/") == 1 and all(machine.split("/")):
            return _console(machine, args, context)
    raise CliError(
        f"windrow emulate does not understand {' '.join(args.action)!r}.",
        "It takes nothing, or: console NAMESPACE/NAME",
        exit_codes.USAGE,
    )


def _emulate(args: argparse.Namespace, context: CliContext) -> int:
    from windrow.app import emulate
    from windrow.app.loop import run_service
    from windrow.app.options import EmulateOptions
    from windrow.cli.manifests import read_documents
    from windrow.cli.output.progress import PlainOutput

    require_writable_directory(context.cwd / args.state, args.state)
    wanted = EmulateOptions(
        state_dir=context.cwd / args.state,
        preload=tuple(read_documents(args.stock, context)),
        time_scale=args.speed,
        port=args.port,
        plain=args.plain or not context.terminal,
        cloud_provider=find_cloud_provider(args.cloud_provider, context),
        env=context.env,
    )
    return run_service(emulate.run(wanted, PlainOutput(context)))


def _console(machine: str, args: argparse.Namespace, context: CliContext) -> int:
    import asyncio

    from windrow.cli.connect import read_client_config
    from windrow.client.http_transport import HttpTransport
    from windrow.kubernetes.errors import error_for
    from windrow.kubernetes.requests import Request

    path = Path(args.kubeconfig) if args.kubeconfig else context.cwd / args.state / "harvester.yaml"
    if not path.exists():
        raise CliError(
            f"There is no kubeconfig of an emulator at {path}.",
            "Start one with `windrow emulate`, or name its --state directory.",
            exit_codes.UNREACHABLE,
        )

    async def read() -> str:
        from windrow.app.clock import SystemClock

        async with HttpTransport(read_client_config(path), SystemClock(), env=context.env) as transport:
            reply = await transport.send(Request("GET", f"/windrow/console/{machine}", accept="text/plain"))
            if reply.status == 404:
                raise CliError(
                    f"The emulator has no machine {machine}.",
                    f"See which it has: kubectl --kubeconfig {path} get vm -A",
                    exit_codes.NOT_FOUND,
                )
            if error := error_for(reply):
                raise error
            return reply.body.decode("utf-8", "replace")

    context.print(asyncio.run(read()).rstrip("\n"))
    return exit_codes.OK
