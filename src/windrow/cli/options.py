"""Options that several verbs share. Light to import, because every `--help` needs them."""

from __future__ import annotations

import argparse
from datetime import timedelta
from urllib.parse import urlsplit

from windrow.core.duration import NotDuration, parse_duration


def add_output(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "-o",
        "--output",
        metavar="FORMAT",
        choices=("json", "yaml"),
        help="print data for programs: json or yaml",
    )


def add_connection(parser: argparse.ArgumentParser) -> None:
    """How a verb reaches the management API."""
    parser.add_argument(
        "--kubeconfig",
        metavar="FILE",
        help="the management API's (default: $WINDROW_KUBECONFIG, else .windrow/manager.yaml)",
    )
    parser.add_argument("-n", "--namespace", metavar="NAME", help="look, or put things, there only")


def _duration(text: str) -> timedelta:
    if text.isascii() and text.isdigit():  # as `timeout` and many others take it
        text = f"{text}s"
    try:
        return parse_duration(text)
    except NotDuration as error:
        raise argparse.ArgumentTypeError(str(error)) from error


DEFAULT_TIMEOUT = timedelta(minutes=30)


def add_wait(parser: argparse.ArgumentParser, until: str) -> None:
    """`--wait` and `--timeout`; the second means the first. See `settle_wait`."""
    parser.add_argument("--wait", action="store_true", help=f"return when {until}")
    add_timeout(parser, default=None, note="; means --wait")


def normalize_wait(args: argparse.Namespace) -> None:
    """Bring what `add_wait` read into agreement."""
    args.wait = args.wait or args.timeout is not None
    args.timeout = DEFAULT_TIMEOUT if args.timeout is None else args.timeout


def add_timeout(
    parser: argparse.ArgumentParser, default: timedelta | None = DEFAULT_TIMEOUT, note: str = ""
) -> None:
    parser.add_argument(
        "--timeout",
        metavar="SPAN",
        type=_duration,
        default=default,
        help=f"how long to wait, as 90s or 20m (default: 30m); passing it is exit code 6{note}",
    )


def _port(text: str) -> int:
    if not (text.isascii() and text.isdigit()) or int(text) > 65535:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a port; 0 to 65535, where 0 lets the system choose"
        )
    return int(text)


def add_port(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--port", type=_port, default=0, metavar="PORT", help="of the API (default: one that is free)"
    )


def _proxy(text: str) -> str:
    if not text:  # none; argparse sends the default through here, too
        return text
    try:
        url = urlsplit(text)
        good = url.scheme == "http" and bool(url.hostname) and url.port != 0
    except ValueError:
        good = False
    if not good:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not the URL of an HTTP proxy; write http://HOST:PORT (TLS goes through it untouched)"
        )
    return text


def add_proxy(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--proxy",
        metavar="URL",
        type=_proxy,
        default="",
        help="HTTP proxy to Harvesters and guests whose kubeconfig names none",
    )


def add_verbose(parser: argparse.ArgumentParser) -> None:
    """For help only: `--verbose` is taken out before, because it may stand anywhere."""
    parser.add_argument("--verbose", action="store_true", help="show the trace of an error")


def add_state_dir(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--state", metavar="DIR", default=".windrow", help="where state is kept (default: .windrow)"
    )


def _time_scale(text: str) -> float:
    try:
        scale = float(text)
    except ValueError:
        scale = 0.0
    if not 0 < scale <= 10_000:
        raise argparse.ArgumentTypeError(f"{text!r} is not a speed; 1 is real time, 10 ten times as fast")
    return scale


def add_time_scale(parser: argparse.ArgumentParser, default: float) -> None:
    parser.add_argument(
        "--speed",
        type=_time_scale,
        default=default,
        metavar="N",
        help=f"divide the machines' stated delays by N (default: {default:g})",
    )


def add_machine_backend(parser: argparse.ArgumentParser) -> None:
    """How machines on Harvester are made. See `places.find_driver`."""
    parser.add_argument(
        "--machines",
        choices=("direct", "plugin"),
        default=None,
        help="make machines directly, or through a docker-machine plugin (default: direct)",
    )
    parser.add_argument(
        "--driver",
        metavar="FILE",
        help="the plugin: ours or the Go one; means --machines plugin (default: the one in PATH, else "
        "the one that came with windrow)",
    )
