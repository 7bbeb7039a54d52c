"""Print the latest lines of the manager's log that are about a cluster; without a name, all of them.

`windrow serve` keeps the last megabyte of what it logs. Who may get a Cluster reads the lines about it; all lines are for
administrators. Of a manager in a pod, `kubectl logs` has more; of one that systemd runs, journalctl.

Examples:
  windrow logs prod
  windrow logs fleet-default/prod --follow
  windrow logs --tail 1000
"""

from __future__ import annotations

import argparse
from typing import Any

from windrow.cli import connect, exit_codes, options
from windrow.cli.connect import Connection
from windrow.cli.context import CliContext
from windrow.cli.errors import CliError
from windrow.core.text import collapse_whitespace
from windrow.kubernetes.errors import Forbidden, NotFound

DEFAULT_TAIL = 200
# Fields that have a place of their own in a line, or say what another one does.
_PLACED = frozenset({"time", "level", "msg", "error", "logger", "namespace", "stack"})


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", nargs="?", default="", metavar="CLUSTER", help="NAME or NAMESPACE/NAME")
    parser.add_argument("-f", "--follow", action="store_true", help="go on with new lines, until Ctrl-C")
    parser.add_argument(
        "--tail",
        type=_count,
        default=DEFAULT_TAIL,
        metavar="LINES",
        help=f"how many of those that there are (default: {DEFAULT_TAIL})",
    )
    options.add_connection(parser)


def _count(text: str) -> int:
    if not (text.isascii() and text.isdigit()) or not 0 < int(text[:9]) <= 100_000:
        raise argparse.ArgumentTypeError(f"{text[:20]!r} is no number of lines from 1 to 100000")
    return int(text)


def run(args: argparse.Namespace, context: CliContext) -> int:
    return connect.run_connected(args, context, lambda manager: _print(args, context, manager))


async def _print(args: argparse.Namespace, context: CliContext, manager: Connection) -> int:
    from windrow.app.support.log_pages import LOGS_PATH

    path = LOGS_PATH
    if args.name:
        cluster = await connect.get_cluster(manager, args.name, args.namespace or "")
        path = f"{LOGS_PATH}/{connect.full_name(cluster)}"
    lines, position = await _read(manager, path)
    for one in lines[-args.tail :]:
        context.print(format_line(one))
    if not lines and not args.follow:
        context.print("No lines: the manager has logged nothing about it since it started, or not lately.")
    while args.follow:
        lines, position = await _read(manager, path, position)
        for one in lines:
            context.print(format_line(one))
    return exit_codes.OK


async def _read(manager: Connection, path: str, after: int | None = None) -> tuple[list[dict[str, Any]], int]:
    """The lines after a position, and the next position; with a position, once there are some or the server's time is over."""
    from windrow.kubernetes.requests import Request

    query = () if after is None else (("after", str(after)),)
    try:
        found = await manager.client.call(Request("GET", path, query=query))
    except Forbidden as error:
        raise CliError(
            f"{manager.config.server} does not let you get {path}: {error}",
            "Name a cluster that you may get: windrow logs CLUSTER. All lines are for cluster-admin.",
            exit_codes.UNREACHABLE,
        ) from error
    except NotFound as error:
        raise CliError(
            f"{manager.config.server} has no log of a manager.",
            "Read it where the manager runs: kubectl logs of its pod, or journalctl -u windrow.",
            exit_codes.NOT_FOUND,
        ) from error
    lines, position = found.get("lines"), found.get("position")
    if not isinstance(lines, list) or not isinstance(position, int):
        raise CliError(
            f"{manager.config.server} answered GET {path} with no lines.",
            "Ask the API of windrow serve: --kubeconfig .windrow/manager.yaml",
            exit_codes.UNREACHABLE,
        )
    return [one for one in lines if isinstance(one, dict)], position


def format_line(line: dict[str, Any]) -> str:
    """`<time> <level>: <message> key="value" …`, as the manager prints it, with the date."""
    error = f": {line['error']}" if line.get("error") else ""
    fields = "".join(f' {key}="{value}"' for key, value in line.items() if key not in _PLACED)
    return collapse_whitespace(
        f"{line.get('time', '')} {line.get('level', '')}: {line.get('msg', '')}{error}{fields}"
    )
