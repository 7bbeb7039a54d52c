"""The life of claims: bound when their class can serve them, kept while an instance uses them, then gone for good."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

from windrow.emulator import names
from windrow.emulator.delays import Delays, Pace
from windrow.emulator.hand import Hand
from windrow.emulator.vms.readings import FINAL, phase_of
from windrow.emulator.world import Key, World
from windrow.kubernetes.conditions import is_true
from windrow.kubernetes.objects import Raw, annotations_of, finalizers_of, is_deleting, nested, uid_of
from windrow.kubernetes.resources import PVC

PROTECTION = "kubernetes.io/pvc-protection"


def default_class(world: World) -> str:
    """The class of claims that name none."""
    for raw in world.classes.values():
        if annotations_of(raw).get(names.DEFAULT_CLASS) == "true":
            return str(raw["metadata"]["name"])
    return ""


def why_unbound(claim: Raw, world: World) -> str:
    """What keeps the claim from being bound; "" when nothing does."""
    wanted = nested(claim, "spec", "storageClassName", default=None)
    name = default_class(world) if wanted is None else wanted
    if ("", name) not in world.classes:
        return (
            f'storageclass.storage.k8s.io "{name}" not found'
            if name
            else "no class, and no volume is offered"
        )
    for image in world.images.values():
        if nested(image, "status", "storageClassName") == name and not is_true(
            nested(image, "status", "conditions"), "Imported"
        ):
            return f"backing image of class {name} is not ready"
    return ""


def users_of(key: Key, world: World) -> list[Raw]:
    """The instances whose pod holds the claim."""
    keys = world.users.get(key, frozenset())
    return [vmi for vmi in map(world.instances.get, keys) if vmi is not None and phase_of(vmi) not in FINAL]


class Volumes:
    """The claim controller."""

    def __init__(
        self, hand: Hand, world: World, pace: Pace, delays: Delays, shred: Callable[[str], None]
    ) -> None:
        self._hand = hand
        self._world = world
        self._pace = pace
        self._delays = delays
        self._shred = shred
        self._since: dict[str, datetime] = {}

    async def reconcile(self, key: Key) -> datetime | None:
        ref = PVC.ref(key[1], key[0])
        claim = await self._hand.find(ref)
        if claim is None:
            return None
        if is_deleting(claim):
            await self._release(claim, key)
            return None
        if nested(claim, "status", "phase") == "Bound":
            await self._hand.change(ref, _grow, "status")
            return None
        if why_unbound(claim, self._world):
            self._since.pop(uid_of(claim), None)
            return None
        now = self._pace.now()
        due = self._pace.after(self._delays.volume_bind, self._since.setdefault(uid_of(claim), now))
        if now < due:
            return due
        self._since.pop(uid_of(claim), None)
        await self._hand.change(ref, _name_volume)
        await self._hand.change(ref, _bind, "status")
        return None

    async def _release(self, claim: Raw, key: Key) -> None:
        if PROTECTION not in finalizers_of(claim) or users_of(key, self._world):
            return
        self._shred(uid_of(claim))
        await self._hand.change(PVC.ref(key[1], key[0]), _unprotect)


def _name_volume(raw: Raw) -> None:
    raw["spec"].setdefault("volumeName", f"pvc-{uid_of(raw)}")


def _bind(raw: Raw) -> None:
    raw["status"] = {
        "phase": "Bound",
        "accessModes": raw["spec"].get("accessModes") or [],
        "capacity": dict(nested(raw, "spec", "resources", "requests", default={})),
    }


def _grow(raw: Raw) -> None:
    wanted = nested(raw, "spec", "resources", "requests", default={})
    if wanted:
        raw["status"]["capacity"] = dict(wanted)


def _unprotect(raw: Raw) -> None:
    raw["metadata"]["finalizers"] = [one for one in finalizers_of(raw) if one != PROTECTION]
