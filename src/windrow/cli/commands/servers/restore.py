"""Put a backup in the place of a stopped manager's database and CA. Nothing is lost: the former files are kept aside.

With CLUSTER SNAPSHOT, restore a cluster from a snapshot of its etcd, as windrow snapshot restore does. With CLUSTER --lost-quorum,
have it go on with the data of the etcd member that is left.

It refuses while a manager runs in the directory. Machines that were made after the backup are unknown to the restored
manager.

Examples:
  windrow restore windrow-monday.backup
  windrow restore windrow-monday.backup --state-dir /var/lib/windrow
  windrow restore prod prod-s3-on-demand-3-1767268800-s1 --wait
  windrow restore prod --lost-quorum
  windrow restore rehearsal prod-s3-on-demand-3-1767268800-s1 --from prod
"""

from __future__ import annotations

import argparse

from windrow.cli import exit_codes, options
from windrow.cli.commands.snapshot import add_restore
from windrow.cli.context import CliContext


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", metavar="FILE | CLUSTER", help="a file of windrow backup, or a cluster")
    parser.add_argument(
        "snapshot", nargs="?", default="", metavar="SNAPSHOT", help="a name that windrow snapshot list shows"
    )
    add_restore(parser)
    options.add_connection(parser)
    options.add_state_dir(parser)


def run(args: argparse.Namespace, context: CliContext) -> int:
    is_of_cluster = args.snapshot or args.lost_quorum or args.original
    return _restore_cluster(args, context) if is_of_cluster else _restore_state(args, context)


def _restore_cluster(args: argparse.Namespace, context: CliContext) -> int:
    from windrow.cli import connect
    from windrow.cli.commands.snapshot import restore_snapshot

    options.normalize_wait(args)
    args.name = args.file
    return connect.run_connected(args, context, lambda manager: restore_snapshot(args, context, manager))


def _restore_state(args: argparse.Namespace, context: CliContext) -> int:
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
