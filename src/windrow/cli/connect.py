"""Connecting to the management API: which kubeconfig, which namespace, which cluster."""

from __future__ import annotations

import argparse
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from windrow.cli import exit_codes
from windrow.cli.context import CliContext
from windrow.cli.errors import CliError, not_utf8
from windrow.cli.paths import read_text_file
from windrow.clusters.api.kinds import CLUSTER, MACHINE
from windrow.core.text import collapse_whitespace
from windrow.kubernetes.errors import Forbidden
from windrow.kubernetes.objects import Raw

# asyncio, YAML and sockets are imported where they are used: `--help` needs none of them.
if TYPE_CHECKING:
    from windrow.client.client import Client
    from windrow.core.clock import Clock
    from windrow.kubernetes.kubeconfig import ClientConfig

T = TypeVar("T")

DEFAULT_KUBECONFIG = Path(".windrow") / "manager.yaml"


@dataclass(frozen=True, slots=True)
class Connection:
    """A connection to the management API. `namespace` is for objects that name none."""

    client: Client
    config: ClientConfig
    namespace: str
    clock: Clock


def names_kubeconfig(args: argparse.Namespace, context: CliContext) -> bool:
    """Whether there is a kubeconfig of a management API where `find_kubeconfig` looks."""
    named = args.kubeconfig or context.env.get("WINDROW_KUBECONFIG")
    return bool(named) or (context.cwd / DEFAULT_KUBECONFIG).exists()


def find_kubeconfig(args: argparse.Namespace, context: CliContext) -> Path:
    """The management API's kubeconfig: from --kubeconfig, WINDROW_KUBECONFIG, or where `windrow serve` writes it."""
    if args.kubeconfig:
        return Path(args.kubeconfig)
    if named := context.env.get("WINDROW_KUBECONFIG"):
        return Path(named)
    usual = context.cwd / DEFAULT_KUBECONFIG
    if usual.exists():
        return usual
    raise CliError(
        f"No kubeconfig of a management API: {DEFAULT_KUBECONFIG} does not exist here, and neither --kubeconfig nor "
        "WINDROW_KUBECONFIG is set.",
        "Start one: windrow serve; or name its kubeconfig with --kubeconfig.",
        exit_codes.UNREACHABLE,
    )


def find_harvester_kubeconfig(args: argparse.Namespace, context: CliContext) -> Path:
    """Harvester's kubeconfig: from --harvester, or where kubectl finds its own."""
    if args.harvester:
        return context.cwd / Path(args.harvester)
    names = [name for name in context.env.get("KUBECONFIG", "").split(os.pathsep) if name]
    if len(names) > 1:
        raise CliError(
            f"KUBECONFIG names {len(names)} files, and which one is Harvester's is not known.",
            "Name Harvester's kubeconfig: --harvester FILE",
            exit_codes.UNREACHABLE,
        )
    if names:
        return context.cwd / names[0]
    usual = Path(context.env.get("HOME", "")) / ".kube" / "config"
    if context.env.get("HOME") and usual.exists():
        return usual
    raise CliError(
        "No kubeconfig of Harvester: --harvester and KUBECONFIG are not set, and ~/.kube/config does not exist.",
        "Name Harvester's kubeconfig: --harvester FILE",
        exit_codes.UNREACHABLE,
    )


def read_client_config(path: Path) -> ClientConfig:
    """The client config of the file's current context. Raises CliError with the file's name, and OSError."""
    from windrow.kubernetes.kubeconfig import parse_kubeconfig

    with _name_file_in_errors(path):
        return parse_kubeconfig(
            read_text_file(path, str(path)), read_file=lambda name: _read_beside(path, name)
        )


def read_kubeconfig(path: Path) -> str:
    """The text of a kubeconfig that refers to no other file. Raises CliError where it does, and OSError."""
    from windrow.kubernetes.kubeconfig import parse_kubeconfig

    with _name_file_in_errors(path):
        text = read_text_file(path, str(path))
        parse_kubeconfig(text)
        return text


def _read_beside(path: Path, name: str) -> str:
    return read_text_file(path.parent / name, name)


@contextmanager
def _name_file_in_errors(path: Path) -> Iterator[None]:
    from windrow.kubernetes.kubeconfig import BadKubeconfig

    try:
        yield
    except BadKubeconfig as bad:
        raise CliError(
            f"{path}: {collapse_whitespace(bad.message)}", bad.hint, exit_codes.UNREACHABLE
        ) from bad
    except UnicodeDecodeError as error:
        raise not_utf8(str(path)) from error


@asynccontextmanager
async def connect(
    args: argparse.Namespace, context: CliContext, kubeconfig: Path | None = None
) -> AsyncIterator[Connection]:
    """The management API, or the server of `kubeconfig`, while the block runs."""
    from windrow.app.clock import SystemClock
    from windrow.client.client import Client
    from windrow.client.http_transport import HttpTransport

    access = read_client_config(kubeconfig or find_kubeconfig(args, context))
    namespace = getattr(args, "namespace", None) or access.namespace or "default"
    clock = SystemClock()
    async with HttpTransport(access, clock, env=context.env, user_agent="windrow-cli") as transport:
        yield Connection(Client(transport), access, namespace, clock)


def run_connected(
    args: argparse.Namespace,
    context: CliContext,
    work: Callable[[Connection], Awaitable[T]],
    kubeconfig: Path | None = None,
) -> T:
    """Run `work` with a connection to the management API, or to the server of `kubeconfig`, and return its result."""
    import asyncio

    async def connected() -> T:
        async with connect(args, context, kubeconfig) as manager:
            return await work(manager)

    return asyncio.run(connected())


async def find_clusters(manager: Connection, name: str = "", namespace: str = "") -> list[Raw]:
    """Clusters by name and namespace, where given; of all namespaces, or of the connection's where listing all is
    forbidden."""
    try:
        found = await manager.client.list(CLUSTER, namespace)
    except Forbidden:
        if namespace:
            raise
        found = await manager.client.list(CLUSTER, manager.namespace)
    return [raw for raw in found if name in ("", raw["metadata"]["name"])]


async def list_machines(manager: Connection, clusters: list[Raw]) -> list[Raw]:
    """The Machine objects in the namespaces of `clusters`."""
    namespaces = sorted({str(raw["metadata"].get("namespace", "")) for raw in clusters})
    lists = [await manager.client.list(MACHINE, namespace) for namespace in namespaces]
    return [raw for one in lists for raw in one]


async def get_cluster(manager: Connection, name: str, namespace: str = "") -> Raw:
    """The one cluster called `name` or `namespace/name`. Raises CliError where there is none, or several."""
    if "/" in name:
        namespace, name = name.split("/", 1)
    found = await find_clusters(manager, name, namespace)
    match found:
        case [one]:
            return one
        case []:
            where = f"namespace {namespace}" if namespace else "any namespace"
            raise CliError(
                f"Cluster {name!r} not found in {where} of {manager.config.server}.",
                "List the clusters: windrow status",
                exit_codes.NOT_FOUND,
            )
    places = ", ".join(f"{raw['metadata']['namespace']}/{name}" for raw in found)
    raise CliError(
        f"Several Clusters are named {name!r}: {places}.",
        "Name one of them as NAMESPACE/NAME.",
        exit_codes.USAGE,
    )


async def get_machine(manager: Connection, name: str, namespace: str = "") -> Raw:
    """The one Machine called `name` or `namespace/name`. Raises CliError where there is none, or several."""
    if "/" in name:
        namespace, name = name.split("/", 1)
    found = await _find_machines(manager, name, namespace)
    if len(found) == 1:
        return found[0]
    if found:
        places = ", ".join(full_name(raw) for raw in found)
        raise CliError(
            f"Several Machines are named {name!r}: {places}.", "Name one as NAMESPACE/NAME.", exit_codes.USAGE
        )
    where = f"namespace {namespace}" if namespace else "any namespace"
    raise CliError(
        f"Machine {name!r} not found in {where} of {manager.config.server}.",
        "List the machines: windrow machine list",
        exit_codes.NOT_FOUND,
    )


async def _find_machines(manager: Connection, name: str, namespace: str) -> list[Raw]:
    """Machines of that name; of all namespaces, or of the connection's where listing all is forbidden."""
    try:
        found = await manager.client.list(MACHINE, namespace)
    except Forbidden:
        if namespace:
            raise
        found = await manager.client.list(MACHINE, manager.namespace)
    return [raw for raw in found if raw["metadata"]["name"] == name]


async def get_cluster_or_machine(
    manager: Connection, name: str, namespace: str = ""
) -> tuple[Raw | None, Raw | None]:
    """The Cluster of that name, else the Machine; one of the two is None. Raises CliError where there is neither."""
    try:
        return await get_cluster(manager, name, namespace), None
    except CliError as error:
        if error.code != exit_codes.NOT_FOUND:
            raise
    try:
        return None, await get_machine(manager, name, namespace)
    except CliError as error:
        if error.code != exit_codes.NOT_FOUND:
            raise
    raise CliError(
        f"No Cluster and no Machine is named {name!r} in {namespace or 'any namespace'} of {manager.config.server}.",
        "List both: windrow status",
        exit_codes.NOT_FOUND,
    )


def full_name(raw: Raw) -> str:
    return f"{raw['metadata'].get('namespace', '')}/{raw['metadata']['name']}"
