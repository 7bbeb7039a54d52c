"""What each controller works with: what is seen, the line of objects to be looked at, and writes that the sights know
at once."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import datetime
from typing import Any

from windrow.apiserver.local import Local
from windrow.emulator.guests.box import Box
from windrow.emulator.guests.cluster import GuestCluster
from windrow.emulator.guests.workloads.line import Line
from windrow.emulator.guests.workloads.sight import Sight
from windrow.emulator.hand import Hand
from windrow.kubernetes.errors import AlreadyExists, KubeError, NotFound
from windrow.kubernetes.objects import Raw, namespace_of, uid_of
from windrow.kubernetes.resources import ApiResource, ref_of

ACCOUNT = ("system:kube-controller-manager", ("system:masters",))


class Bench:
    """Sights of `kinds`, and the deeds of one leadership."""

    def __init__(self, box: Box, cluster: GuestCluster, kinds: Iterable[ApiResource]) -> None:
        self.box = box
        self.cluster = cluster
        self.line = Line(box.wires.clock)
        self._hand = Hand(self.local())
        self.sights = {kind: Sight(self._hand, kind) for kind in kinds}

    def now(self) -> datetime:
        return self.box.now()

    def local(self) -> Local:
        return self.cluster.local(*ACCOUNT)

    def add_owner(self, kind: ApiResource, raw: Raw) -> None:
        """Look at the object of `kind` that controls `raw`."""
        for owner in raw["metadata"].get("ownerReferences") or ():
            if owner.get("controller") and owner.get("kind") == kind.kind:
                self.line.add(kind, (namespace_of(raw), owner["name"]))

    async def make(self, kind: ApiResource, raw: Raw) -> None:
        try:
            self.learn(kind, await self._hand.create(kind, raw))
        except (AlreadyExists, NotFound):
            return  # somebody was quicker, or the namespace is gone

    async def change(
        self, kind: ApiResource, raw: Raw, edit: Callable[[Raw], Any], subresource: str = ""
    ) -> None:
        """Edit what stands there now, if it is still the same object."""
        uid = uid_of(raw)

        def same(found: Raw) -> None:
            if uid_of(found) == uid:
                edit(found)

        self.learn(kind, await self._hand.change(ref_of(kind, raw), same, subresource))

    async def show(self, kind: ApiResource, raw: Raw, status: Raw) -> None:
        if raw.get("status") != status:
            await self.change(kind, raw, lambda found: found.update(status=status), "status")

    async def end(self, kind: ApiResource, raw: Raw, grace_s: int | None = None) -> None:
        """Delete it, if it is still the same object."""
        ref = ref_of(kind, raw)
        try:
            await self.local().delete(ref, uid=uid_of(raw), grace_s=grace_s)
        except KubeError as error:
            if error.status not in (404, 409):
                raise
        found = await self._hand.find(ref)
        if found is None or uid_of(found) != uid_of(raw):
            self.sights[kind].forget(raw)
        else:
            self.learn(kind, found)

    def learn(self, kind: ApiResource, raw: Raw | None) -> None:
        """What the server answered, where it answered with an object."""
        if raw is not None:
            self.sights[kind].learn(raw)
