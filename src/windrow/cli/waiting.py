"""`--wait`: stay until it is done, and say on the way what is waited for."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import timedelta

from windrow.cli import exits
from windrow.cli.complaints import Complaint, together
from windrow.cli.edge import Edge
from windrow.cli.picture import ClusterView, read_picture
from windrow.cli.reach import Reached
from windrow.cli.screens.lines import wrap
from windrow.cli.watching import Look, look_until
from windrow.clusters.actions import KeepBalancers
from windrow.clusters.kinds import MACHINE
from windrow.kube.errors import KubeError, NotFound
from windrow.kube.objects import dig
from windrow.kube.refs import EVENT, Ref


class _Teller:
    """Says what a cluster waits for, once for each new sentence."""

    def __init__(self, edge: Edge) -> None:
        self._edge = edge
        self._said: dict[str, str] = {}

    def tell(self, cluster: ClusterView) -> None:
        name = f"{cluster.namespace}/{cluster.name}"
        what = f"waits for {cluster.wait.what}" if cluster.wait else cluster.problem
        if what and self._said.get(name) != what:
            self._said[name] = what
            for part in wrap(f"{name} {what}", self._edge.width, rest="  "):
                self._edge.note(part)


async def _stay(look: Look, manager: Reached, namespace: str, timeout: timedelta, what: str) -> None:
    try:
        async with asyncio.timeout(timeout.total_seconds()):
            await look_until(look, manager, namespace=namespace)
    except TimeoutError:
        raise Complaint(
            f"Waited {timeout.total_seconds():.0f} s for {what}.",
            "The work goes on. See what it waits for: windrow status",
            exits.TIMED_OUT,
        ) from None


async def _picture(manager: Reached, refs: Sequence[Ref]) -> tuple[ClusterView, ...]:
    clusters = [await manager.client.get(ref) for ref in refs]
    machines = [raw for ref in refs for raw in await manager.client.list(MACHINE, ref.namespace)]
    return read_picture(clusters, machines)


async def wait_for_ready(manager: Reached, refs: Sequence[Ref], timeout: timedelta, edge: Edge) -> int:
    """Return once every cluster is ready. Complains when one is refused, or when the time has passed."""
    teller = _Teller(edge)

    async def look() -> bool:
        picture = await _picture(manager, refs)
        for cluster in picture:
            if cluster.refused and cluster.observed:
                raise _refused(cluster)
            teller.tell(cluster)
        return all(cluster.ready and cluster.observed for cluster in picture)

    await _stay(look, manager, _only_namespace(refs), timeout, "the clusters to be ready")
    for ref in refs:
        edge.say(f"{ref} is ready")
    return exits.OK


async def wait_for_settled(manager: Reached, ref: Ref, timeout: timedelta, edge: Edge) -> int:
    """Return once every pool has the machines that it wants, all ready, and no other."""
    teller = _Teller(edge)

    async def look() -> bool:
        (cluster,) = await _picture(manager, [ref])
        teller.tell(cluster)
        return (
            cluster.ready
            and cluster.observed
            and all(pool.ready == pool.wanted == len(pool.machines) for pool in cluster.pools)
        )

    await _stay(look, manager, ref.namespace, timeout, f"the pools of {ref}")
    edge.say(f"{ref} has the machines that its pools want")
    return exits.OK


async def wait_for_gone(manager: Reached, ref: Ref, uid: str, timeout: timedelta, edge: Edge) -> int:
    """Return once that very cluster is gone."""
    teller = _Teller(edge)

    async def look() -> bool:
        try:
            picture = await _picture(manager, [ref])
            now = await manager.client.get(ref)
        except NotFound:
            return True
        if now["metadata"]["uid"] != uid:
            return True
        teller.tell(picture[0])
        return False

    await _stay(look, manager, ref.namespace, timeout, f"{ref} to be gone")
    kept = await _find_kept(manager, ref, uid)
    for part in (part for one in kept for part in wrap(one, edge.width, rest="  ")):
        edge.note(part)
    edge.say(f"{ref} is gone, with everything made for it{', except for those' if kept else ''}")
    return exits.OK


async def _find_kept(manager: Reached, ref: Ref, uid: str) -> list[str]:
    """What the manager said that it left on Harvester, since it may be somebody else's."""
    try:
        events = await manager.client.list(EVENT, ref.namespace)
    except KubeError:
        return []  # whoever may delete a cluster may be forbidden to read events
    told = [raw for raw in events if raw.get("reason") == KeepBalancers.__name__]
    return sorted({str(raw["message"]) for raw in told if dig(raw, "involvedObject", "uid") == uid})


def _refused(cluster: ClusterView) -> Complaint:
    name = f"{cluster.namespace}/{cluster.name}"
    why = cluster.problem or (cluster.wait.what if cluster.wait else "the manager does not say why")
    parts = why.split("; ")
    if len(parts) % 2:
        return Complaint(
            f"{name} is refused: {why}", "Correct the manifest and apply it again.", exits.REFUSED
        )
    return together(
        [
            Complaint(f"{name} is refused: {fact}", cure, exits.REFUSED)
            for fact, cure in zip(parts[::2], parts[1::2], strict=True)
        ]
    )


def _only_namespace(refs: Sequence[Ref]) -> str:
    namespaces = {ref.namespace for ref in refs}
    return namespaces.pop() if len(namespaces) == 1 else ""
