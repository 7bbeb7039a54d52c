"""A kube-vip that is one small loop, with the manners of the real one."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress

from windrow.apiserver.server import ApiServer
from windrow.emulator.kit.client import AdminClient
from windrow.emulator.kit.informer import Informer
from windrow.emulator.load_balancers import services as vip
from windrow.kubernetes.errors import KubeError
from windrow.kubernetes.objects import Raw, annotations_of, name_of, namespace_of, uid_of
from windrow.kubernetes.resources import SERVICE


class Announcer:
    """kube-vip: announces what a Service's annotations ask for, one Service after the other.

    Announced are addresses by Service; DHCP gives the same address to the same Service again.
    """

    TAKES_S, DHCP_TAKES_S = 0.2, 3.0

    def __init__(self, guest: ApiServer) -> None:
        self._hand = AdminClient(guest.local("system:serviceaccount:kube-system:kube-vip"))
        self.services = Informer(self._hand, SERVICE, 3600)
        self.announced: dict[tuple[str, str], tuple[str, ...]] = {}
        self.works = True
        self.has_macvlan = True
        self.answers_dhcp = True
        self._leases: dict[str, str] = {}
        self._written: dict[tuple[str, str], tuple[str, str]] = {}
        self._failed: dict[tuple[str, str], str] = {}
        self._waiting: dict[tuple[str, str], None] = {}
        self._news = asyncio.Event()

    async def run(self) -> None:
        self.services.add_event_handler(self._add)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self.services.run())
            while True:
                await self._news.wait()
                self._news.clear()
                while self._waiting:
                    key = next(iter(self._waiting))
                    del self._waiting[key]
                    await self._serve(key)

    def _add(self, raw: Raw) -> None:
        self._waiting[namespace_of(raw), name_of(raw)] = None
        self._news.set()

    async def _serve(self, key: tuple[str, str]) -> None:
        raw = self.services.get(key)
        asked = vip.requested_addresses(raw) if raw is not None else ()
        if raw is None or not asked:
            self.announced.pop(key, None)
            self._written.pop(key, None)
            return
        requested = (uid_of(raw), ",".join(asked))
        if self._written.get(key, ("",))[0] != f"{requested}":
            if self._failed.get(key) == raw["metadata"]["resourceVersion"]:
                return
            taken = await self._take(raw, asked)
            if taken is None:
                self._failed[key] = raw["metadata"]["resourceVersion"]
                return
            self.announced[key] = taken
        await self._write_status(key, raw, requested)

    async def _take(self, raw: Raw, asked: Sequence[str]) -> tuple[str, ...] | None:
        dhcp = vip.REQUEST_DHCP in asked
        await asyncio.sleep(self.DHCP_TAKES_S if dhcp else self.TAKES_S)
        if not self.works or (dhcp and not (self.has_macvlan and self.answers_dhcp)):
            return None
        lease = self._leases.setdefault(uid_of(raw), f"192.168.50.{100 + len(self._leases)}") if dhcp else ""
        return tuple(lease if one == vip.REQUEST_DHCP else one for one in asked)

    async def _write_status(self, key: tuple[str, str], raw: Raw, requested: tuple[str, str]) -> None:
        ingress = vip.render_ingress(raw, self.announced[key])
        if self._written.get(key) == (f"{requested}", f"{ingress}"):
            return
        said = {vip.VIP_HOST: "m-1"}
        if vip.REQUEST_DHCP in requested[1]:
            said |= {vip.HARDWARE_ADDRESS: "02:00:00:00:00:01", vip.REQUESTED_ADDRESS: self.announced[key][0]}

        def annotate(found: Raw) -> None:
            if uid_of(found) == requested[0] and found["spec"].get("type") == "LoadBalancer":
                found["metadata"]["annotations"] = {**annotations_of(found), **said}

        def show(found: Raw) -> None:
            if uid_of(found) == requested[0] and found["spec"].get("type") == "LoadBalancer":
                found.setdefault("status", {})["loadBalancer"] = {"ingress": ingress}

        ref = SERVICE.ref(key[1], key[0])
        with suppress(KubeError):
            await self._hand.mutate(ref, annotate)
            await self._hand.mutate(ref, show, "status")
            self._written[key] = (f"{requested}", f"{ingress}")
