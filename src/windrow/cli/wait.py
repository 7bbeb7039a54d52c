"""Waiting on the management API: conditions checked after each change, and what `--wait` prints meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from datetime import timedelta

from windrow.app.describe.views import ClusterView, read_views
from windrow.cli import exit_codes
from windrow.cli.connect import Connection
from windrow.cli.context import CliContext
from windrow.cli.errors import CliError, refused_error
from windrow.cli.manifests import print_notes
from windrow.client.informer import make_watcher, watching
from windrow.clusters.api.kinds import CLUSTER, MACHINE
from windrow.core.clock import sleep
from windrow.kubernetes.errors import KubeError, NotFound, OutcomeUnknown, Unreachable
from windrow.kubernetes.objects import nested
from windrow.kubernetes.resources import EVENT, ApiResource, ObjectRef

# Changes come in bursts; the condition is checked once for all changes within this time.
SETTLE = timedelta(seconds=0.2)

# The reasons of the events about what stays on Harvester when a Cluster is gone.
KEPT_REASONS = frozenset({"KeepLoadBalancers", "KeepVMs", "KeepClaims", "KeepVolumes", "KeepSnapshots"})

Condition = Callable[[], Awaitable[bool]]


async def watch_until(
    is_done: Condition,
    manager: Connection,
    *,
    namespace: str = "",
    interval_s: float | None = None,
    kinds: Sequence[ApiResource] = (CLUSTER, MACHINE),
) -> None:
    """Check `is_done` now and after each change (with `interval_s`, at least that often) until it returns True."""
    if await is_done():  # a server that cannot be reached at all is an error, not a wait
        return
    transport, clock = manager.client.transport, manager.clock
    informers = [
        make_watcher(transport, kind, lambda raw: raw["metadata"]["resourceVersion"], clock, namespace)
        for kind in kinds
    ]
    async with watching(*informers) as changed:
        while True:
            changed.clear()
            with suppress(
                OutcomeUnknown, Unreachable
            ):  # the server restarts; an informer notices when it is back
                if await is_done():
                    return
            await sleep(manager.clock, SETTLE)
            with suppress(TimeoutError):
                async with asyncio.timeout(interval_s):
                    await changed.wait()


class _WaitPrinter:
    """Prints what a cluster waits for, each sentence once."""

    def __init__(self, context: CliContext) -> None:
        self._context = context
        self._printed: dict[str, str] = {}

    def print_changes(self, cluster: ClusterView) -> None:
        name = f"{cluster.namespace}/{cluster.name}"
        what = f"waits for {cluster.wait.what}" if cluster.wait else cluster.problem
        if what and self._printed.get(name) != what:
            self._printed[name] = what
            print_notes([f"{name} {what}"], self._context)


async def wait_until(
    look: Condition, manager: Connection, namespace: str, timeout: timedelta, what: str
) -> None:
    """Return once `look` returns True. Raises CliError where the timeout passes first."""
    try:
        async with asyncio.timeout(timeout.total_seconds()):
            await watch_until(look, manager, namespace=namespace)
    except TimeoutError:
        raise CliError(
            f"Waited {timeout.total_seconds():.0f} s for {what}.",
            "The manager goes on. See what it waits for: windrow status",
            exit_codes.TIMED_OUT,
        ) from None


async def _read_views(manager: Connection, refs: Sequence[ObjectRef]) -> tuple[ClusterView, ...]:
    clusters = [await manager.client.get(ref) for ref in refs]
    machines = [raw for ref in refs for raw in await manager.client.list(MACHINE, ref.namespace)]
    return read_views(clusters, machines)


async def wait_for_ready(
    manager: Connection, refs: Sequence[ObjectRef], timeout: timedelta, context: CliContext
) -> int:
    """Return once every cluster is Ready. Raises CliError when one is refused, or the timeout passes."""
    printer = _WaitPrinter(context)

    async def look() -> bool:
        views = await _read_views(manager, refs)
        for cluster in views:
            if (cluster.refused or cluster.refused_change) and cluster.is_observed:
                raise _refused_error(cluster)
            printer.print_changes(cluster)
        return all(cluster.ready and cluster.is_observed for cluster in views)

    await wait_until(look, manager, _only_namespace(refs), timeout, "the clusters to be ready")
    for ref in refs:
        context.print(f"{ref} is ready")
    return exit_codes.OK


async def wait_for_settled(
    manager: Connection, ref: ObjectRef, timeout: timedelta, context: CliContext
) -> int:
    """Return once every pool has its quantity of machines, all Ready, and no other."""
    printer = _WaitPrinter(context)

    async def look() -> bool:
        (cluster,) = await _read_views(manager, [ref])
        printer.print_changes(cluster)
        return (
            cluster.ready
            and cluster.is_observed
            and all(pool.ready == pool.wanted == len(pool.machines) for pool in cluster.pools)
        )

    await wait_until(look, manager, ref.namespace, timeout, f"the pools of {ref}")
    context.print(f"{ref}: every pool has its machines")
    return exit_codes.OK


async def wait_for_deletion(
    manager: Connection, ref: ObjectRef, uid: str, timeout: timedelta, context: CliContext
) -> int:
    """Return once the cluster with this uid is gone."""
    printer = _WaitPrinter(context)

    async def look() -> bool:
        try:
            views = await _read_views(manager, [ref])
            now = await manager.client.get(ref)
        except NotFound:
            return True
        if now["metadata"]["uid"] != uid:
            return True
        printer.print_changes(views[0])
        return False

    await wait_until(look, manager, ref.namespace, timeout, f"{ref} to be gone")
    kept = await _find_kept_objects(manager, ref, uid)
    if kept is None:
        unread = f"What was kept on Harvester is not known here: the events of {ref} cannot be read."
        print_notes([unread], context)
        context.print(f"{ref} deleted")
        return exit_codes.OK
    print_notes(kept, context)
    context.print(f"{ref} deleted, with everything created for it{', except for those' if kept else ''}")
    return exit_codes.OK


async def _find_kept_objects(manager: Connection, ref: ObjectRef, uid: str) -> list[str] | None:
    """The messages about objects that the manager kept on Harvester: volumes whose reclaim policy says so, and what may belong
    to another cluster. None when the events cannot be read.
    """
    try:
        events = await manager.client.list(EVENT, ref.namespace)
    except KubeError:
        return None  # deleting a Cluster needs no permission to read events
    kept = [raw for raw in events if raw.get("reason") in KEPT_REASONS]
    return sorted({str(raw["message"]) for raw in kept if nested(raw, "involvedObject", "uid") == uid})


def _refused_error(cluster: ClusterView) -> CliError:
    why = (
        cluster.problem
        or cluster.refused_change
        or (cluster.wait.what if cluster.wait else "no reason in its status")
    )
    return refused_error(f"{cluster.namespace}/{cluster.name}", why)


def _only_namespace(refs: Sequence[ObjectRef]) -> str:
    namespaces = {ref.namespace for ref in refs}
    return namespaces.pop() if len(namespaces) == 1 else ""
