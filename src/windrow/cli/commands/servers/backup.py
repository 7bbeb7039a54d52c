"""Write a backup of the manager's database and CA to a file (mode 0600), while it runs or when it is stopped.

The file holds every Secret and the key of the CA: keep it as you keep the credentials themselves. `windrow restore`
reads it. A manager that keeps its objects in a Kubernetes cluster (serve --kubeconfig) has no database of its own.

Examples:
  windrow backup windrow-monday.backup
  windrow backup windrow-monday.backup --state-dir /var/lib/windrow
"""

from __future__ import annotations

import argparse
from pathlib import Path

from windrow.cli import connect, exit_codes, options
from windrow.cli.context import CliContext
from windrow.cli.errors import CliError


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", metavar="FILE", help="the file to write; it must not exist")
    options.add_state_dir(parser)
    parser.add_argument(
        "--kubeconfig", metavar="FILE", help="administrator's kubeconfig of a running manager elsewhere"
    )


def run(args: argparse.Namespace, context: CliContext) -> int:
    from windrow.app.state import backup

    path = context.cwd / args.file
    if path.exists():
        raise CliError(f"{args.file} exists.", "Name a file that does not exist.", exit_codes.USAGE)
    made = backup.write_backup(path, _copy(args, context))
    context.print(f"Wrote {args.file}: {made.objects} objects as of revision {made.rev}.")
    context.print_note("It holds every Secret: keep it as you keep the credentials themselves.")
    return exit_codes.OK


def _copy(args: argparse.Namespace, context: CliContext) -> bytes:
    from windrow.app.state import backup
    from windrow.app.state.directory import MANAGER_FILE, DirectoryInUse

    state_dir = context.cwd / args.state_dir
    if args.kubeconfig:
        return _from_running(context.cwd / args.kubeconfig, context)
    try:
        return backup.backup_stopped(state_dir)
    except DirectoryInUse:
        return _from_running(state_dir / MANAGER_FILE, context)


def _from_running(kubeconfig: Path, context: CliContext) -> bytes:
    import asyncio

    from windrow.app.clock import SystemClock
    from windrow.app.state import backup

    access = connect.read_client_config(kubeconfig)
    return asyncio.run(backup.backup_running(access, SystemClock(), context.env))
