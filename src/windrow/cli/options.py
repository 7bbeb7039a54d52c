"""Options that several verbs share. Light to import, because every `--help` needs them."""

from __future__ import annotations

import argparse
from datetime import timedelta

from windrow.values.duration import NotDuration, parse_duration


def add_output(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "-o",
        "--output",
        metavar="FORMAT",
        choices=("json", "yaml"),
        help="print data for programs: json or yaml",
    )


def add_manager(parser: argparse.ArgumentParser) -> None:
    """How a verb reaches the management API."""
    parser.add_argument(
        "--kubeconfig",
        metavar="FILE",
        help="the management API's (default: $WINDROW_KUBECONFIG, else .windrow/manager.yaml)",
    )
    parser.add_argument("-n", "--namespace", metavar="NAME", help="look, or put things, there only")


def _span(text: str) -> timedelta:
    try:
        return parse_duration(text)
    except NotDuration as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def add_timeout(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--timeout",
        metavar="SPAN",
        type=_span,
        default=timedelta(minutes=30),
        help="how long to wait, as 90s or 20m (default: 30m); passing it is exit code 6",
    )


def _port(text: str) -> int:
    if not text.isdigit() or int(text) > 65535:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a port; 0 to 65535, where 0 lets the system choose"
        )
    return int(text)


def add_port(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--port", type=_port, default=0, metavar="PORT", help="of the API (default: one that is free)"
    )


def add_state(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--state", metavar="DIR", default=".windrow", help="where state is kept (default: .windrow)"
    )


def _speed(text: str) -> float:
    try:
        speed = float(text)
    except ValueError:
        speed = 0.0
    if not 0 < speed <= 10_000:
        raise argparse.ArgumentTypeError(f"{text!r} is not a speed; 1 is real time, 10 ten times as fast")
    return speed


def add_speed(parser: argparse.ArgumentParser, default: float) -> None:
    parser.add_argument(
        "--speed",
        type=_speed,
        default=default,
        metavar="N",
        help=f"divide the machines' stated delays by N (default: {default:g})",
    )
