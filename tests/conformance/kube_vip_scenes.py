"""Scenes in which kube-vip is judged, the real one and the emulator's: what is done, and what is to be observed then.

`EXPECTED` holds what the real program does, by range of versions.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from windrow.kubernetes.objects import Raw, annotations_of, nested, new_object
from windrow.kubernetes.resources import SERVICE, ApiResource, ObjectRef

ENDPOINT_SLICE = ApiResource("discovery.k8s.io", "v1", "EndpointSlice", "endpointslices")
ADDRESSES = "kube-vip.io/loadbalancerIPs"
OLD, NEW = "before 1.2", "1.2 and later"
Range = str
# The words for a time, and its bounds in seconds: wide, for a real program on a busy machine.
TIMES = (("at once", 0, 9), ("after 15 s", 9, 25), ("after 30 s", 25, 60), ("after 2 min", 60, 170))
SOON_S = 8.0
STAYS_S = 4.0


class KubeVipRig(ABC):
    """A guest cluster with kube-vip, of which a scene sees the API and the nodes' addresses."""

    namespace = "default"
    subnet = "10.0.0"

    @abstractmethod
    async def create(self, kind: ApiResource, raw: Raw) -> None: ...
    @abstractmethod
    async def patch(self, ref: ObjectRef, patch: Raw, subresource: str = "") -> None: ...
    @abstractmethod
    async def delete(self, ref: ObjectRef) -> None: ...
    @abstractmethod
    async def get(self, ref: ObjectRef) -> Raw: ...
    @abstractmethod
    async def sleep(self, seconds: float) -> None: ...
    @abstractmethod
    def now(self) -> float: ...
    @abstractmethod
    def holders(self, address: str) -> set[str]:
        """The nodes that have the address."""

    @abstractmethod
    async def end_leader(self) -> None:
        """End the node's kube-vip that leads, so that it cannot release anything."""

    # --- what the scenes say

    def address(self, number: int) -> str:
        return f"{self.subnet}.{number}"

    def ref(self, name: str) -> ObjectRef:
        return SERVICE.ref(name, self.namespace)

    async def serve(self, name: str, annotation: str | None, *, endpoints: bool = True, **spec: Any) -> None:
        annotations = {} if annotation is None else {ADDRESSES: annotation}
        port = {"name": "http", "port": 80, "targetPort": 8080, "protocol": "TCP"}
        given = {"type": "LoadBalancer", "ports": [port], **spec}
        await self.create(
            SERVICE, new_object(SERVICE, name, self.namespace, annotations=annotations, spec=given)
        )
        if endpoints:
            await self.back(name)

    async def back(self, name: str, *, ready: bool = True) -> None:
        """Give the Service an endpoint."""
        await self.create(
            ENDPOINT_SLICE,
            new_object(
                ENDPOINT_SLICE,
                f"{name}-abcde",
                self.namespace,
                labels={"kubernetes.io/service-name": name},
                addressType="IPv4",
                ports=[{"name": "http", "port": 8080, "protocol": "TCP"}],
                endpoints=[an_endpoint(ready)],
            ),
        )

    async def set_endpoints(self, name: str, *endpoints: Raw) -> None:
        ref = ENDPOINT_SLICE.ref(f"{name}-abcde", self.namespace)
        await self.patch(ref, {"endpoints": list(endpoints)})

    async def annotate(self, name: str, value: str | None, key: str = ADDRESSES) -> None:
        await self.patch(self.ref(name), {"metadata": {"annotations": {key: value}}})

    async def clear_status(self, name: str) -> None:
        await self.patch(self.ref(name), {"status": {"loadBalancer": {"ingress": None}}}, "status")

    async def ingress(self, name: str) -> list[Raw]:
        found: list[Raw] = nested(
            await self.get(self.ref(name)), "status", "loadBalancer", "ingress", default=[]
        )
        return found

    async def takes(self, holds: Callable[[], Awaitable[bool]], limit_s: float = SOON_S) -> str:
        """How long until it holds, in words."""
        begun = self.now()
        while self.now() - begun < limit_s:
            if await holds():
                spent = self.now() - begun
                return next(words for words, low, high in TIMES if low <= spent < high)
            await self.sleep(0.1)
        return "never"

    async def on(self, address: str, limit_s: float = SOON_S) -> str:
        async def holds() -> bool:
            return bool(self.holders(address))

        return await self.takes(holds, limit_s)

    async def off(self, address: str, limit_s: float = STAYS_S) -> str:
        async def holds() -> bool:
            return not self.holders(address)

        return await self.takes(holds, limit_s)

    async def announced(self, name: str, address: str) -> None:
        """Wait until the Service is announced, its status written."""

        async def shown() -> bool:
            return any(one.get("ip") == address for one in await self.ingress(name))

        assert await self.on(address, 20) != "never", f"{name} was never announced"
        assert await self.takes(shown, 20) != "never", f"the status of {name} was never written"
        await self.sleep(0.5)


def an_endpoint(ready: bool = True, node: str = "one") -> Raw:
    target = {"kind": "Pod", "name": "web-0", "namespace": "default"}
    return {"addresses": ["10.42.0.7"], "conditions": {"ready": ready}, "nodeName": node, "targetRef": target}


Observed = dict[str, Any]


async def endpoints(world: KubeVipRig) -> Observed:
    address = world.address(200)
    await world.serve("web", address, endpoints=False)
    first = await world.on(address, STAYS_S)
    await world.back("web", ready=False)
    unready = await world.on(address)
    await world.set_endpoints("web")
    none = await world.off(address)
    await world.set_endpoints("web", an_endpoint())
    return {
        "without": first,
        "one that is not Ready": unready,
        "removed: off": none,
        "again": await world.on(address),
    }


async def pending(world: KubeVipRig) -> Observed:
    await world.serve("pending", None)
    await world.serve("web", world.address(200))
    return {"the next": await world.on(world.address(200), 50)}


async def emptied_from_the_start(world: KubeVipRig) -> Observed:
    await world.serve("pending", "")
    await world.serve("web", world.address(200))
    following = await world.on(world.address(200), 50)
    await world.annotate("pending", world.address(201))
    return {"the next": following, "its own": await world.on(world.address(201))}


async def emptied(world: KubeVipRig) -> Observed:
    await world.serve("web", world.address(200))
    await world.announced("web", world.address(200))
    await world.annotate("web", "")
    off = await world.off(world.address(200))
    await world.sleep(1)  # within a few milliseconds it is announced
    await world.annotate("web", world.address(201))
    another = await world.on(world.address(201), STAYS_S)
    await world.set_endpoints("web", an_endpoint(ready=False))
    return {
        "off": off,
        "another": another,
        "another, with a change of its endpoints": await world.on(world.address(201), STAYS_S),
        "shown": (await world.ingress("web"))[0]["ip"] == world.address(200),
    }


async def changed(world: KubeVipRig) -> Observed:
    await world.serve("web", world.address(200))
    await world.announced("web", world.address(200))
    await world.annotate("web", world.address(201))
    return {
        "off": await world.off(world.address(200)),
        "another": await world.on(world.address(201), STAYS_S),
    }


async def addressed_in_steps(world: KubeVipRig, on_the_way: dict[str, str]) -> Observed:
    """A Service is created, gets annotations on the way, and its address: all within the second that kube-vip waits."""
    await world.serve("web", None)
    for change in (
        {"annotations": {ADDRESSES: "", **on_the_way}},
        {"finalizers": ["tests.windrow.io/address"]},
        {"annotations": {ADDRESSES: world.address(200), **dict.fromkeys(on_the_way)}},
    ):
        await world.sleep(0.15)
        await world.patch(world.ref("web"), {"metadata": change})

    async def shown() -> bool:
        return bool(await world.ingress("web"))

    found = {"on": await world.on(world.address(200)), "shown": await world.takes(shown)}
    await world.patch(world.ref("web"), {"metadata": {"finalizers": None}})
    return found


async def emptied_on_the_way(world: KubeVipRig) -> Observed:
    return await addressed_in_steps(world, {})


async def passed_over_on_the_way(world: KubeVipRig) -> Observed:
    return await addressed_in_steps(world, {"kube-vip.io/ignore": "true"})


async def removed(world: KubeVipRig) -> Observed:
    await world.serve("web", world.address(200))
    await world.announced("web", world.address(200))
    await world.clear_status("web")
    await world.annotate("web", None)
    off = await world.off(world.address(200))
    return {"off": off, "shown": bool(await world.ingress("web"))}


async def removed_with_its_status(world: KubeVipRig) -> Observed:
    await world.serve("web", world.address(200))
    await world.announced("web", world.address(200))
    await world.annotate("web", None)
    await world.sleep(2)
    return {"on": bool(world.holders(world.address(200)))}


async def another_type(world: KubeVipRig) -> Observed:
    await world.serve("web", world.address(200))
    await world.announced("web", world.address(200))
    await world.patch(world.ref("web"), {"spec": {"type": "ClusterIP"}})
    kept = await world.off(world.address(200))
    await world.delete(world.ref("web"))
    return {"off": kept, "off once deleted": await world.off(world.address(200))}


async def ignored_later(world: KubeVipRig) -> Observed:
    await world.serve("web", world.address(200))
    await world.announced("web", world.address(200))
    await world.annotate("web", "true", "kube-vip.io/ignore")
    kept = await world.off(world.address(200))
    await world.delete(world.ref("web"))
    return {"off": kept, "off once deleted": await world.off(world.address(200))}


async def deleted(world: KubeVipRig) -> Observed:
    await world.serve("web", world.address(200))
    await world.announced("web", world.address(200))
    await world.delete(world.ref("web"))
    return {"off": await world.off(world.address(200))}


async def not_followed(world: KubeVipRig) -> Observed:
    """Ports, interface and a cleared status."""
    await world.serve("web", world.address(200))
    await world.announced("web", world.address(200))
    port = {"name": "http", "port": 81, "targetPort": 8080, "protocol": "TCP"}
    await world.patch(world.ref("web"), {"spec": {"ports": [port]}})
    await world.annotate("web", "nowhere0", "kube-vip.io/serviceInterface")
    await world.sleep(2)
    ports = [one["port"] for one in (await world.ingress("web"))[0]["ports"]]
    await world.clear_status("web")
    await world.sleep(3)
    return {
        "ports": ports,
        "on": bool(world.holders(world.address(200))),
        "status": await world.ingress("web"),
    }


async def takeover(world: KubeVipRig) -> Observed:
    await world.serve("web", world.address(200))
    await world.announced("web", world.address(200))
    (leader,) = world.holders(world.address(200))
    host = annotations_of(await world.get(world.ref("web"))).get("kube-vip.io/vipHost")
    await world.end_leader()

    async def moved() -> bool:
        return bool(world.holders(world.address(200)) - {leader})

    return {"vipHost": host == leader, "moved": await world.takes(moved, 40)}


async def dhcp(world: KubeVipRig) -> Observed:
    await world.serve("leased", "0.0.0.0")

    async def shown() -> bool:
        return bool(await world.ingress("leased"))

    spent = await world.takes(shown, 25)
    (address,) = [one["ip"] for one in await world.ingress("leased")]
    said = annotations_of(await world.get(world.ref("leased")))
    is_on = bool(world.holders(address))
    await world.annotate("leased", "")
    return {
        "shown": spent in ("at once", "after 15 s"),
        "requestedIP": said["kube-vip.io/requestedIP"] == address,
        "hwaddr": bool(said["kube-vip.io/hwaddr"]),
        "on": is_on,
        "off": await world.off(address),
    }


async def dhcp_without_server(world: KubeVipRig) -> Observed:
    await world.serve("leased", "0.0.0.0")
    await world.serve("web", world.address(200))
    return {"the next": await world.on(world.address(200), 165)}


@dataclass(frozen=True)
class Scene:
    """What is done, and what is observed in both ranges of versions.

    `undecided` is observed now one way and now the other of the real program, with the time at which its endpoints change
    and with the patch release (1.2.2, 1.2.3); the emulator's does what was seen more often.
    """

    act: Callable[[KubeVipRig], Awaitable[Observed]]
    expected: dict[Range, Observed]
    election: bool = False
    nodes: tuple[str, ...] = ("one",)
    has_dhcp: bool = False
    undecided: frozenset[str] = frozenset()

    def differences(self, found: Observed, versions: Range) -> dict[str, tuple[Any, Any]]:
        """What was observed and what was expected, where they differ and the real program decides it."""
        expected = self.expected[versions]
        keys = {*found, *expected} - self.undecided
        both = {key: (found.get(key), expected.get(key)) for key in sorted(keys)}
        return {key: pair for key, pair in both.items() if pair[0] != pair[1]}


ANOTHER = frozenset({"another"})


def alike(observed: Observed) -> dict[Range, Observed]:
    return {OLD: observed, NEW: observed}


EMPTIED = {"off": "at once", "another": "never", "shown": True}
SCENES: dict[str, Scene] = {  # the longest first
    "DHCP without a server": Scene(dhcp_without_server, alike({"the next": "after 2 min"})),
    "pending": Scene(pending, {OLD: {"the next": "at once"}, NEW: {"the next": "after 30 s"}}),
    "endpoints": Scene(
        endpoints,
        {
            OLD: {
                "without": "at once",
                "one that is not Ready": "at once",
                "removed: off": "never",
                "again": "at once",
            },
            NEW: {
                "without": "never",
                "one that is not Ready": "at once",
                "removed: off": "at once",
                "again": "at once",
            },
        },
    ),
    "emptied from the start": Scene(
        emptied_from_the_start, alike({"the next": "at once", "its own": "at once"})
    ),
    "emptied": Scene(
        emptied,
        {
            OLD: {**EMPTIED, "another, with a change of its endpoints": "never"},
            NEW: {**EMPTIED, "another, with a change of its endpoints": "at once"},
        },
    ),
    "emptied on the way to its address": Scene(
        emptied_on_the_way,
        {
            OLD: {"on": "at once", "shown": "at once"},
            NEW: {"on": "at once", "shown": "never"},
        },
        undecided=frozenset({"on"}),
    ),
    "passed over on the way to its address": Scene(
        passed_over_on_the_way, alike({"on": "at once", "shown": "at once"})
    ),
    "changed": Scene(
        changed, {OLD: {"off": "at once", "another": "at once"}, NEW: {"off": "at once", "another": "never"}}
    ),
    "changed, with an election per service": Scene(
        changed,
        {OLD: {"off": "at once", "another": "never"}, NEW: {"off": "at once", "another": "at once"}},
        election=True,
        undecided=ANOTHER,
    ),
    "removed": Scene(removed, alike({"off": "never", "shown": False})),
    "removed with its status": Scene(removed_with_its_status, {OLD: {"on": True}, NEW: {"on": False}}),
    "another type": Scene(another_type, alike({"off": "never", "off once deleted": "never"})),
    "ignored later": Scene(ignored_later, alike({"off": "never", "off once deleted": "never"})),
    "deleted": Scene(deleted, alike({"off": "at once"})),
    "not followed": Scene(not_followed, alike({"ports": [80], "on": True, "status": []})),
    "takeover": Scene(
        takeover, alike({"vipHost": True, "moved": "after 15 s"}), nodes=("one", "two", "three")
    ),
    "DHCP": Scene(
        dhcp,
        alike({"shown": True, "requestedIP": True, "hwaddr": True, "on": True, "off": "at once"}),
        has_dhcp=True,
    ),
}
