"""Context of the workload controllers: informers, work queue, and writes whose results enter the informers at once."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import datetime
from typing import Any

from windrow.apiserver.loopback import LoopbackClient
from windrow.apiserver.work_queue import WorkQueue
from windrow.emulator.guest_cluster.cluster import GuestCluster
from windrow.emulator.guest_cluster.workloads.mutation_cache import MutationCache
from windrow.emulator.guest_os.operating_system import GuestOS
from windrow.emulator.kit.client import AdminClient
from windrow.emulator.kit.listers import Key
from windrow.kubernetes.errors import AlreadyExists, KubeError, NotFound
from windrow.kubernetes.objects import Raw, namespace_of, uid_of
from windrow.kubernetes.resources import ApiResource, ref_of

USER_AND_GROUPS = ("system:kube-controller-manager", ("system:masters",))


class ControllerContext:
    """Informers of `kinds`, the work queue and a client."""

    def __init__(self, guest: GuestOS, cluster: GuestCluster, kinds: Iterable[ApiResource]) -> None:
        self.guest = guest
        self.cluster = cluster
        self.queue: WorkQueue[tuple[ApiResource, Key]] = WorkQueue(guest.host.clock)
        self._client = AdminClient(self.client())
        self.informers = {kind: MutationCache(self._client, kind) for kind in kinds}

    def now(self) -> datetime:
        return self.guest.now()

    def client(self) -> LoopbackClient:
        return self.cluster.client(*USER_AND_GROUPS)

    def enqueue_owner(self, kind: ApiResource, raw: Raw) -> None:
        """Queue the object of `kind` that controls `raw`."""
        for owner in raw["metadata"].get("ownerReferences") or ():
            if owner.get("controller") and owner.get("kind") == kind.kind:
                self.queue.add((kind, (namespace_of(raw), owner["name"])))

    async def create(self, kind: ApiResource, raw: Raw) -> None:
        try:
            self.mutated(kind, await self._client.create(kind, raw))
        except (AlreadyExists, NotFound):
            return  # created meanwhile, or the namespace is gone

    async def update(
        self, kind: ApiResource, raw: Raw, edit: Callable[[Raw], Any], subresource: str = ""
    ) -> None:
        """Edit the live object, if it has the same uid."""
        uid = uid_of(raw)

        def same(found: Raw) -> None:
            if uid_of(found) == uid:
                edit(found)

        self.mutated(kind, await self._client.mutate(ref_of(kind, raw), same, subresource))

    async def update_status(self, kind: ApiResource, raw: Raw, status: Raw) -> None:
        if raw.get("status") != status:
            await self.update(kind, raw, lambda found: found.update(status=status), "status")

    async def delete(self, kind: ApiResource, raw: Raw, grace_s: int | None = None) -> None:
        """Delete the object, if it has the same uid."""
        ref = ref_of(kind, raw)
        try:
            await self.client().delete(ref, uid=uid_of(raw), grace_s=grace_s)
        except KubeError as error:
            if error.status not in (404, 409):
                raise
        found = await self._client.find(ref)
        if found is None or uid_of(found) != uid_of(raw):
            self.informers[kind].deleted(raw)
        else:
            self.mutated(kind, found)

    def mutated(self, kind: ApiResource, raw: Raw | None) -> None:
        """Put the result of a write into the informer's cache."""
        if raw is not None:
            self.informers[kind].mutated(raw)
