"""Options that several commands share. Light to import, because every `--help` needs them."""

from __future__ import annotations

import argparse
from datetime import timedelta
from urllib.parse import urlsplit

from windrow.core.formats.duration import NotDuration, parse_duration


def add_output(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "-o", "--output", metavar="FORMAT", choices=("json", "yaml"), help="print json or yaml instead"
    )


class _Formats(tuple[str, ...]):
    """The formats of a list, which an option may have: those of the tuple, and `jsonpath=TEMPLATE`."""

    def __contains__(self, text: object) -> bool:
        return super().__contains__(text) or str(text).startswith("jsonpath=")


def add_formats(parser: argparse.ArgumentParser, *, wide: bool = False, table: bool = False) -> None:
    """`-o` of a command that prints objects, as kubectl has it; `table` is what is printed without it. See `output.formats`."""
    further = [name for name, has in (("wide", wide), ("table", table)) if has]
    names = ("json", "yaml", "name", *further)
    parser.add_argument(
        "-o",
        "--output",
        metavar="FORMAT",
        choices=_Formats(names),
        help=f"print {', '.join(names)} or jsonpath=TEMPLATE instead",
    )


def add_kubeconfig(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--kubeconfig",
        metavar="FILE",
        help="kubeconfig of the management API (default: $WINDROW_KUBECONFIG, else .windrow/manager.yaml)",
    )


def add_connection(parser: argparse.ArgumentParser) -> None:
    """How a command reaches the management API, and the namespace of its objects there."""
    add_kubeconfig(parser)
    parser.add_argument("-n", "--namespace", metavar="NAME", help="use this namespace only")


def add_all_namespaces(parser: argparse.ArgumentParser, what: str) -> None:
    """`-A`, as kubectl has it; see `chosen_namespace`."""
    parser.add_argument("-A", "--all-namespaces", action="store_true", help=f"show {what} of all namespaces")


def chosen_namespace(args: argparse.Namespace) -> str:
    """The one of `-n`, "" for all of them, which `-A` says whatever `-n` says."""
    return "" if args.all_namespaces else args.namespace or ""


def add_filenames(parser: argparse.ArgumentParser, about: str, *, required: bool = True) -> None:
    """`-f FILE`, as kubectl has it: read with `manifests.read_documents`."""
    parser.add_argument(
        "-f",
        "--filename",
        metavar="FILE",
        nargs="+",
        action="extend",
        default=None if required else [],
        required=required,
        help=f"{about}; - is standard input; may be repeated",
    )


def add_support_matrix(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--support-matrix",
        metavar="FILE",
        help="versions that go together, in place of those known to Windrow",
    )


def _duration(text: str) -> timedelta:
    if text.isascii() and text.isdigit():  # seconds, as timeout(1) takes it
        text = f"{text}s"
    try:
        return parse_duration(text)
    except NotDuration as error:
        raise argparse.ArgumentTypeError(str(error)) from error


DEFAULT_TIMEOUT = timedelta(minutes=30)


def add_wait(parser: argparse.ArgumentParser, until: str) -> None:
    """`--wait` and `--timeout`; the second implies the first. See `normalize_wait`."""
    parser.add_argument("--wait", action="store_true", help=f"return when {until}")
    add_timeout(parser, default=None, note="; implies --wait")


def normalize_wait(args: argparse.Namespace) -> None:
    """Bring what `add_wait` read into agreement."""
    args.wait = args.wait or args.timeout is not None
    args.timeout = DEFAULT_TIMEOUT if args.timeout is None else args.timeout


def add_timeout(
    parser: argparse.ArgumentParser, default: timedelta | None = DEFAULT_TIMEOUT, note: str = ""
) -> None:
    parser.add_argument(
        "--timeout",
        metavar="DURATION",
        type=_duration,
        default=default,
        help=f"how long to wait, such as 90s or 20m (default: 30m); exit code 6 when it passes{note}",
    )


def _port(text: str) -> int:
    if not (text.isascii() and text.isdigit()) or int(text) > 65535:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a port; 0 to 65535, where 0 lets the system choose"
        )
    return int(text)


def add_port(parser: argparse.ArgumentParser, default: str = "a free one") -> None:
    parser.add_argument(
        "--port", type=_port, default=0, metavar="PORT", help=f"port of the API (default: {default})"
    )


def _address(text: str) -> str:
    from ipaddress import ip_address

    try:
        return str(ip_address(text))
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text!r} is not an IP address, such as 0.0.0.0") from error


def add_bind(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--bind",
        type=_address,
        default="127.0.0.1",
        metavar="ADDRESS",
        help="address of this computer that the API listens on (default: 127.0.0.1); others reach it there",
    )


def add_dashboard(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--dashboard-port",
        type=_port,
        default=0,
        metavar="PORT",
        help="port of the dashboard (default: that of the last start with this DIR, else a free one)",
    )
    parser.add_argument(
        "--dashboard-bind",
        type=_address,
        default="127.0.0.1",
        metavar="ADDRESS",
        help="address that the dashboard listens on, with TLS where it is not loopback (default: 127.0.0.1)",
    )
    parser.add_argument("--no-dashboard", action="store_true", help="serve no dashboard")


def _proxy(text: str) -> str:
    if not text:  # the default; argparse converts it, too
        return text
    try:
        url = urlsplit(text)
        good = url.scheme == "http" and bool(url.hostname) and url.port != 0
    except ValueError:
        good = False
    if not good:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not the URL of an HTTP proxy; write http://HOST:PORT (TLS is tunnelled through it)"
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
    """For help only: `main.run` takes `--verbose` out before, because it may stand anywhere."""
    parser.add_argument("--verbose", action="store_true", help="print logs and tracebacks")


def add_log_format(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--log-format",
        choices=("text", "json"),
        default="text",
        help="of the log on standard error: text, or json with one object a line (default: text)",
    )


def add_state_dir(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--state-dir", metavar="DIR", default=".windrow", help="directory of the state (default: .windrow)"
    )


def _time_scale(text: str) -> float:
    try:
        scale = float(text)
    except ValueError:
        scale = 0.0
    if not 0 < scale <= 10_000:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a time scale; 1 is real time, 10 ten times as fast"
        )
    return scale


def add_time_scale(parser: argparse.ArgumentParser, default: float) -> None:
    parser.add_argument(
        "--time-scale",
        type=_time_scale,
        default=default,
        metavar="N",
        help=f"run the emulator's delays N times as fast (default: {default:g})",
    )


def _harvester_release(text: str) -> str:
    from windrow.app.emulate import harvester_release

    try:
        return harvester_release(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def add_site(parser: argparse.ArgumentParser) -> None:
    """Which Harvester is emulated. See `site.read_site`."""
    parser.add_argument(
        "--harvester-version",
        type=_harvester_release,
        metavar="VERSION",
        help="release of the emulated Harvester, 1.6 to 1.9 (default: v1.8.2)",
    )
    parser.add_argument(
        "--inventory",
        metavar="FILE",
        help="YAML with its hosts, their sizes, and its networks' subnets (default: three hosts, a /24 for each VLAN)",
    )


def add_machine_backend(parser: argparse.ArgumentParser) -> None:
    """How machines on Harvester are made. See `paths.find_driver_program`."""
    parser.add_argument(
        "--machine-backend",
        choices=("direct", "plugin"),
        default=None,
        help="create machines directly, or through a docker-machine plugin (default: direct)",
    )
    parser.add_argument(
        "--driver",
        metavar="FILE",
        help="program of that plugin, Windrow's or the Go one; implies --machine-backend plugin (default: the one in "
        "PATH, else the one installed with windrow)",
    )
