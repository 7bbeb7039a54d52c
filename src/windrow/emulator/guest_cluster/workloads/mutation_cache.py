"""Informers whose cache includes the controllers' own writes at once (client-go's MutationCache).

A controller that creates a pod and lists again before the watch event would create a second one. The real controllers
use expectations; here the results of writes enter the cache, and an older watch event does not replace them.
"""

from __future__ import annotations

from windrow.emulator.guest_cluster.workloads.pod_readings import controller_uid
from windrow.emulator.kit.client import AdminClient
from windrow.emulator.kit.informer import Informer
from windrow.emulator.kit.listers import Key, key_of
from windrow.kubernetes.objects import Raw, resource_version_of, uid_of
from windrow.kubernetes.resources import ApiResource

WATCH_TIMEOUT_S = 3600


class MutationCache(Informer):
    """The objects of one kind."""

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
