"""Reaching the management API: which kubeconfig, which namespace, and which cluster is meant by a name."""

from __future__ import annotations

import argparse
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from windrow.cli import exits
from windrow.cli.complaints import Complaint, not_text, one_line
from windrow.cli.edge import Edge
from windrow.clusters.kinds import CLUSTER, MACHINE
from windrow.kube.errors import Forbidden
from windrow.kube.objects import Raw

# Asyncio, YAML and sockets are imported when they are used: `--help` needs none of them.
if TYPE_CHECKING:
    from windrow.client.client import Client
    from windrow.kube.kubeconfig import Access
    from windrow.values.clock import Clock

T = TypeVar("T")

MANAGER = Path(".windrow") / "manager.yaml"


@dataclass(frozen=True, slots=True)
class Reached:
    """The management API, opened. `namespace` is for objects that name none."""

    client: Client
    access: Access
    namespace: str
    clock: Clock


def find_kubeconfig(given: argparse.Namespace, edge: Edge) -> Path:
    """The management API's kubeconfig: as told, else from the environment, else where `windrow serve` leaves it."""
    if given.kubeconfig:
        return Path(given.kubeconfig)
    if named := edge.env.get("WINDROW_KUBECONFIG"):
        return Path(named)
    usual = edge.cwd / MANAGER
    if usual.exists():
        return usual
    raise Complaint(
        f"No management API is known: there is no {MANAGER} here, and neither --kubeconfig nor "
        "WINDROW_KUBECONFIG is set.",
        "Start one with `windrow serve`, or name its kubeconfig.",
        exits.UNREACHABLE,
    )


def read_access(path: Path) -> Access:
    """The access that the file's current context stands for. Complains by the file's name; raises OSError."""
    from windrow.kube.kubeconfig import parse_kubeconfig

    with _named_in_complaints(path):
        return parse_kubeconfig(path.read_text(), read_file=lambda name: (path.parent / name).read_text())


def read_kubeconfig(path: Path) -> str:
    """The text of a kubeconfig that is to be used without its files. Complains where it cannot be."""
    from windrow.kube.kubeconfig import parse_kubeconfig

    with _named_in_complaints(path):
        text = path.read_text()
        parse_kubeconfig(text)
        return text


@contextmanager
def _named_in_complaints(path: Path) -> Iterator[None]:
    from windrow.kube.kubeconfig import BadKubeconfig

    try:
        yield
    except BadKubeconfig as bad:
        raise Complaint(f"{path}: {one_line(bad.fact)}", bad.cure, exits.UNREACHABLE) from bad
    except UnicodeDecodeError as error:
        raise not_text(str(path)) from error


@asynccontextmanager
async def reached(given: argparse.Namespace, edge: Edge) -> AsyncIterator[Reached]:
    """The management API, for as long as the verb needs it."""
    from windrow.assembly.clock import SystemClock
    from windrow.client.client import Client
    from windrow.client.sockets import SocketTransport

    access = read_access(find_kubeconfig(given, edge))
    namespace = getattr(given, "namespace", None) or access.namespace or "default"
    clock = SystemClock()
    async with SocketTransport(access, clock, env=edge.env, agent="windrow-cli") as transport:
        yield Reached(Client(transport), access, namespace, clock)


def with_manager(given: argparse.Namespace, edge: Edge, work: Callable[[Reached], Awaitable[T]]) -> T:
    """Run `work` with the management API and return its result."""
    import asyncio

    async def whole() -> T:
        async with reached(given, edge) as manager:
            return await work(manager)

    return asyncio.run(whole())


async def find_clusters(manager: Reached, name: str = "", namespace: str = "") -> list[Raw]:
    """Clusters by name and namespace, where given. Looks in every namespace that the credential may see."""
    try:
        found = await manager.client.list(CLUSTER, namespace)
    except Forbidden:
        if namespace:
            raise
        found = await manager.client.list(CLUSTER, manager.namespace)
    return [raw for raw in found if name in ("", raw["metadata"]["name"])]


async def machines_of(manager: Reached, clusters: list[Raw]) -> list[Raw]:
    """The Machine objects in the namespaces of `clusters`."""
    namespaces = sorted({str(raw["metadata"].get("namespace", "")) for raw in clusters})
    lists = [await manager.client.list(MACHINE, namespace) for namespace in namespaces]
    return [raw for one in lists for raw in one]


async def get_cluster(manager: Reached, name: str, namespace: str = "") -> Raw:
    """The one cluster that `name` (or `namespace/name`) means. Complains where there is none, or several."""
    if "/" in name:
        namespace, name = name.split("/", 1)
    found = await find_clusters(manager, name, namespace)
    match found:
        case [one]:
            return one
        case []:
            where = f"namespace {namespace}" if namespace else "any namespace"
            raise Complaint(
                f"There is no cluster {name!r} in {where} of {manager.access.server}.",
                "See which there are: windrow status",
                exits.NOT_FOUND,
            )
    places = ", ".join(f"{raw['metadata']['namespace']}/{name}" for raw in found)
    raise Complaint(f"Several clusters are called {name!r}: {places}.", "Name one of these.", exits.USAGE)


def named(raw: Raw) -> str:
    return f"{raw['metadata'].get('namespace', '')}/{raw['metadata']['name']}"
