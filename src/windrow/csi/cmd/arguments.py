"""The command line of `harvester-csi-driver`: the flags of the Go driver, two of our own, and of its environment."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Never

from windrow.core.logs import LOG_FORMATS

PROGRAM = "harvester-csi-driver"
DEFAULT_ENDPOINT = "unix:///csi/csi.sock"
# Where the kubeconfig is looked for as well, as in the Go driver.
FALLBACK_KUBECONFIG = "/etc/kubernetes/cloud-config"
_TRUE = frozenset({"1", "t", "T", "true", "TRUE", "True"})


@dataclass(frozen=True, slots=True)
class Options:
    """The command line, understood. `kubeconfig` "" is a node plugin, which needs no credential for Harvester."""

    endpoint: str = DEFAULT_ENDPOINT
    node_id: str = ""
    kubeconfig: str = ""
    host_storage_class: str = ""
    debug: bool = False
    # Ours. The Go driver does so always, with a role that lets it update every Node.
    fence_nodes: bool = False
    log_format: str = "text"


class _Usage(Exception):
    pass


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> Never:
        raise _Usage(message)


def parse_arguments(
    argv: Sequence[str],
    env: Mapping[str, str],
    version: str,
    error_line: Callable[[str], None],
    out_line: Callable[[str], None],
) -> Options | int:
    """The options; or the exit code, where the command line is wrong or asks for help or version."""
    parser = _parser(env)
    try:
        found = parser.parse_args(list(argv[1:]))
    except _Usage as error:
        error_line(f"{PROGRAM}: {error}; {PROGRAM} --help lists the flags")
        return 1
    if found.help:
        out_line(parser.format_help().rstrip())
        return 0
    if found.version:
        out_line(f"{PROGRAM} {version}")
        return 0
    return Options(
        found.endpoint,
        found.nodeid,
        found.kubeconfig,
        found.host_storage_class,
        _is_true(found.debug),
        found.fence_nodes,
        found.logging_format,
    )


def _parser(env: Mapping[str, str]) -> argparse.ArgumentParser:
    parser = _Parser(
        PROGRAM,
        description="The CSI driver driver.harvesterhci.io: volumes on Harvester for the pods of a guest cluster.",
        allow_abbrev=False,
        add_help=False,
    )
    parser.add_argument(
        "--endpoint", default=DEFAULT_ENDPOINT, help="socket that serves CSI (default %(default)s)"
    )
    parser.add_argument("--nodeid", default="", help="name of this node in its cluster")
    parser.add_argument(
        "--kubeconfig",
        default="",
        help=f"kubeconfig for Harvester, with the VMs' namespace; else {FALLBACK_KUBECONFIG}; "
        "without it no controller is served",
    )
    parser.add_argument(
        "--host-storage-class",
        default=env.get("HOST_STORAGE_CLASS", ""),
        help="StorageClass on Harvester of volumes whose class names none ($HOST_STORAGE_CLASS)",
    )
    parser.add_argument(
        "--debug", nargs="?", const="true", default=env.get("DEBUG", ""), help="log each call ($DEBUG)"
    )
    parser.add_argument(
        "--fence-nodes",
        action="store_true",
        help="taint Nodes whose VM was shut down as out of service, where a volume is attached to them",
    )
    parser.add_argument(
        "--logging-format",
        choices=LOG_FORMATS,
        default="text",
        help="of the log: text, json (default %(default)s)",
    )
    parser.add_argument("--version", action="store_true", help="print the version")
    parser.add_argument("--help", "-h", action="store_true", help="print this")
    return parser


def _is_true(text: str) -> bool:
    return text in _TRUE
