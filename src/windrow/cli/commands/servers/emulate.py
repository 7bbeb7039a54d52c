"""Run an emulated Harvester on this computer, until Ctrl-C. Its machines act on their cloud-init.

It writes its kubeconfig to DIR/harvester.yaml; its objects are in memory and end with it. --preload creates the
images, networks, storage classes, key pairs, IP pools, namespaces and buckets that a manifest refers to, and writes
the Secrets with credentials to DIR/credentials.yaml.
`windrow emulate console NAMESPACE/NAME` prints the console of a machine of a running emulator.

Examples:
  windrow emulate --preload cluster.yaml --time-scale 10
  windrow emulate --preload cluster.yaml --bucket backups
  windrow emulate --harvester-version 1.7 --inventory site.yaml
  windrow emulate console default/prod-servers-x5x7z-9k2lp
"""

from __future__ import annotations

import argparse
from pathlib import Path

from windrow.cli import exit_codes, options
from windrow.cli.context import CliContext
from windrow.cli.errors import CliError
from windrow.cli.paths import find_cloud_provider, require_writable_directory
from windrow.cli.site import read_site


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "action",
        nargs="*",
        metavar="console NAMESPACE/NAME",
        help="print the console of this VirtualMachine instead",
    )
    options.add_state_dir(parser)
    parser.add_argument(
        "--preload",
        metavar="FILE",
        action="append",
        default=[],
        help="a manifest; create what it refers to; may be repeated",
    )
    parser.add_argument(
        "--bucket",
        metavar="NAME",
        action="append",
        default=[],
        help="a bucket for snapshots of etcd; its keys are in Secret fleet-default/cc-s3; may be repeated",
    )
    options.add_port(parser)
    parser.add_argument("--plain", action="store_true", help="print plain lines at a terminal, too")
    parser.add_argument(
        "--kubeconfig",
        metavar="FILE",
        help="for console: kubeconfig of the emulator (default: DIR/harvester.yaml)",
    )
    parser.add_argument(
        "--cloud-provider",
        metavar="FILE",
        help="program that guests run as harvester-cloud-provider instead of Windrow's",
    )
    options.add_site(parser)
    options.add_time_scale(parser, 1.0)
    options.add_log_format(parser)


def run(args: argparse.Namespace, context: CliContext) -> int:
    match args.action:
        case []:
            return _emulate(args, context)
        case ["console", machine] if machine.count("/") == 1 and all(machine.split("/")):
            return _console(machine, args, context)
    raise CliError(
        f"Unknown argument of windrow emulate: {' '.join(args.action)!r}.",
        "Use no argument, or: console NAMESPACE/NAME",
        exit_codes.USAGE,
    )


def _emulate(args: argparse.Namespace, context: CliContext) -> int:
    from windrow.app import emulate
    from windrow.app.loop import run_service
    from windrow.cli.manifests import read_documents
    from windrow.cli.output.progress import PlainOutput

    require_writable_directory(context.cwd / args.state_dir, args.state_dir)
    _check_buckets(args.bucket)
    wanted = emulate.EmulateOptions(
        state_dir=context.cwd / args.state_dir,
        preload=tuple(read_documents(args.preload, context)),
        time_scale=args.time_scale,
        port=args.port,
        cloud_provider=find_cloud_provider(args.cloud_provider, context),
        env=context.env,
        site=read_site(args, context),
        buckets=tuple(args.bucket),
    )
    return run_service(emulate.run(wanted, PlainOutput(context)))


def _check_buckets(names: list[str]) -> None:
    from windrow.app.preload.buckets import NotBucket, named_bucket

    for name in names:
        try:
            named_bucket(name)
        except NotBucket as error:
            raise CliError(
                f"--bucket {name[:80]!r}: {error}.", "As in --bucket backups.", exit_codes.USAGE
            ) from error


def _console(machine: str, args: argparse.Namespace, context: CliContext) -> int:
    import asyncio

    from windrow.cli.connect import read_client_config
    from windrow.client.http_transport import HttpTransport
    from windrow.kubernetes.errors import error_for
    from windrow.kubernetes.requests import Request

    path = Path(args.kubeconfig) if args.kubeconfig else context.cwd / args.state_dir / "harvester.yaml"
    if not path.exists():
        raise CliError(
            f"No kubeconfig of an emulator: {path} does not exist.",
            "Start one: windrow emulate; or name its directory with --state-dir.",
            exit_codes.UNREACHABLE,
        )

    async def read() -> str:
        from windrow.app.clock import SystemClock

        async with HttpTransport(read_client_config(path), SystemClock(), env=context.env) as transport:
            reply = await transport.send(Request("GET", f"/windrow/console/{machine}", accept="text/plain"))
            if reply.status == 404:
                raise CliError(
                    f"virtualmachines {machine!r} not found on the emulator.",
                    f"List them: kubectl --kubeconfig {path} get vm -A",
                    exit_codes.NOT_FOUND,
                )
            if error := error_for(reply):
                raise error
            return reply.body.decode("utf-8", "replace")

    context.print(asyncio.run(read()).rstrip("\n"))
    return exit_codes.OK
