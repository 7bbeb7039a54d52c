"""Context of the workload controllers: informers, work queue, and writes whose results enter the informers at once."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import datetime, timedelta
from typing import Any

from windrow.apiserver.loopback import LoopbackClient
from windrow.core.work_queue import WorkQueue
from windrow.emulator.guest_cluster.cluster import GuestCluster
from windrow.emulator.guest_os.operating_system import GuestOS
from windrow.emulator.kit.client import AdminClient
from windrow.emulator.kit.events import EventRecorder
from windrow.emulator.kit.informer import WATCH_TIMEOUT_S, Informer
from windrow.emulator.kit.listers import Key, key_of
from windrow.kubernetes.errors import AlreadyExists, KubeError, NotFound
from windrow.kubernetes.objects import Raw, namespace_of, resource_version_of, uid_of
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
        self.events = EventRecorder(self._client, guest.host.clock, guest.host.rng)

    @property
    def toleration_s(self) -> int:
        """For how long new pods tolerate a node that is not ready or unreachable, before the time scale."""
        return int(self.guest.delays.eviction)

    def now(self) -> datetime:
        """The wall clock, for stamps."""
        return self.guest.now()

    def monotonic(self) -> timedelta:
        """The monotonic clock, by which everything becomes due."""
        return self.guest.monotonic()

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
        self.mutated(kind, await self._client.mutate(ref_of(kind, raw), edit, subresource, uid_of(raw)))

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


class MutationCache(Informer):
    """An informer whose cache includes the controllers' own writes at once (client-go's MutationCache).

    A controller that creates a pod and lists again before the watch event would create a second one. The real
    controllers use expectations; here an older watch event does not replace the result of a write.
    """

    def __init__(self, client: AdminClient, kind: ApiResource) -> None:
        super().__init__(client, kind, WATCH_TIMEOUT_S)
        self._removed: set[str] = set()  # uids of own deletions that the watch has not confirmed

    def mutated(self, raw: Raw) -> None:
        """Put the result of an own write into the cache."""
        self._keep(key_of(raw), raw)

    def deleted(self, raw: Raw) -> None:
        """Remove an object that an own request deleted."""
        self._removed.add(uid_of(raw))
        held = self.get(key_of(raw))
        if held is not None and uid_of(held) == uid_of(raw):
            super()._drop(key_of(raw))

    def _keep(self, key: Key, raw: Raw) -> None:
        held = self.get(key)
        is_older = held is not None and int(resource_version_of(raw)) < int(resource_version_of(held))
        if uid_of(raw) not in self._removed and not is_older:
            super()._keep(key, raw)

    def _drop(self, key: Key, last: Raw | None = None) -> None:
        if last is not None and uid_of(last) in self._removed:
            self._removed.discard(uid_of(last))
            return
        super()._drop(key, last)


class OwnerIndex:
    """Index of the objects of one kind by the uid of their controller. Create it before the informer runs."""

    def __init__(self, informer: MutationCache) -> None:
        self._informer = informer
        self._keys = informer.add_index(lambda raw: [("", controller_uid(raw))])

    def owned_by(self, owner: Raw) -> list[Raw]:
        return [self._informer[key] for key in sorted(self._keys.get(("", uid_of(owner)), ()))]


def controller_uid(raw: Mapping[str, Any]) -> str:
    """The uid of the owner that controls a pod, or a ReplicaSet; "" where none does."""
    owners = raw["metadata"].get("ownerReferences") or ()
    return next((str(one["uid"]) for one in owners if one.get("controller")), "")
