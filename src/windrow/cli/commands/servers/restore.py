"""Put a backup in the place of a stopped manager's database and CA. Nothing is lost: the former files are kept aside.

It refuses while a manager runs in the directory. Machines that were made after the backup are unknown to the restored
manager.

Examples:
  windrow restore windrow-monday.backup
  windrow restore windrow-monday.backup --state-dir /var/lib/windrow
"""

from __future__ import annotations

import argparse

from windrow.cli import exit_codes, options
from windrow.cli.context import CliContext


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", metavar="FILE", help="a file of windrow backup")
    options.add_state_dir(parser)


def run(args: argparse.Namespace, context: CliContext) -> int:
    from windrow.app.clock import SystemClock
    from windrow.app.state.backup import restore

    restored = restore(context.cwd / args.state_dir, context.cwd / args.file, SystemClock())
    context.print(f"Restored {restored.objects} objects; the store continues at revision {restored.rev}.")
    if restored.former is not None:
        context.print_note(
            f"What it replaced is in {restored.former}. Delete that when you no longer need it."
        )
    context.print_note(f"Start the manager: windrow serve --state-dir {args.state_dir}")
    return exit_codes.OK
