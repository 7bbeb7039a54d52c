"""Our cloud provider, the real kube-vip and the emulated Harvester in one network: what users see of addresses.

One provider and one Harvester serve all scenes; each has a namespace, pools and nodes with kube-vip of its own. kube-vip
has the capabilities that our chart gives it.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import cache
from pathlib import Path

from tests.conformance.cloud_provider_rig import PREFIX, Guest, Host, a_host, a_provider, our_program
from tests.conformance.kube_vip_cluster import RealRig
from tests.conformance.kube_vip_rig import SUBNET, Lan, Node
from tests.conformance.kube_vip_scenes import (
    ADDRESSES,
    ANOTHER,
    NEW,
    OLD,
    KubeVipRig,
    Observed,
    Scene,
    alike,
)
from tests.conformance.real_cluster import Cluster

from windrow.app.clock import SystemClock
from windrow.client.client import Client
from windrow.client.http_transport import HttpTransport
from windrow.core.formats import yaml
from windrow.emulator import kinds
from windrow.kubernetes.kubeconfig import render_kubeconfig
from windrow.kubernetes.objects import Raw, annotations_of, labels_of, nested, new_object
from windrow.kubernetes.resources import EVENT, SERVICE, ref_of

IP_POOL = "windrow.io/ip-pool"
CHART = Path(__file__).parents[2] / "deploy/charts/harvester-cloud-provider/charts/kube-vip"
ONLY_SERVICES = ("--controllers=service-lb-controller",)  # no node of the scenes has a VM
FAILED = "SyncLoadBalancerFailed"


@cache
def chart_capabilities() -> tuple[str, ...]:
    """What our chart gives kube-vip."""
    values = yaml.load((CHART / "values.yaml").read_text())
    return tuple(values["securityContext"]["capabilities"]["add"])


class ProviderRig(RealRig):
    """A scene's namespace, nodes with kube-vip, and pools on the Harvester that the provider uses."""

    def __init__(self, api: Client, lan: Lan, namespace: str, nodes: list[Node], host: Host) -> None:
        super().__init__(api, lan, namespace, nodes)
        self.host = host
        lan.capabilities = chart_capabilities()
        # Pools of other scenes have other addresses, and so have those of a second try.
        place = int(namespace.rpartition("-")[2])
        self._place = 100 + 10 * place + (5 if "alone" in namespace else 0)

    async def make_pool(self, name: str, size: int = 1) -> str:
        """A pool of these many addresses, for annotations."""
        full, first = f"{self.namespace}-{name}", self._place
        self._place += size
        await self.host.make_pool(full, self.address(first), self.address(first + size - 1), priority=first)
        return full

    async def request(self, name: str, *, endpoints: bool = True, port: int = 80, **annotations: str) -> None:
        """A Service of type LoadBalancer, as a user makes it."""
        keys = {
            "pool": IP_POOL,
            "ipam": f"{PREFIX}/ipam",
            "primary": f"{PREFIX}/primary-service",
        }
        said = {keys[key]: value for key, value in annotations.items()}
        spec = {"type": "LoadBalancer", "ports": [{"name": "http", "port": port, "targetPort": 8080}]}
        await self.create(SERVICE, new_object(SERVICE, name, self.namespace, annotations=said, spec=spec))
        if endpoints:
            await self.back(name)

    async def annotation(self, name: str) -> str:
        return annotations_of(await self.get(self.ref(name))).get(ADDRESSES, "")

    async def address_of(self, name: str) -> str:
        """The address that the provider gives the Service, once it is there."""

        async def given() -> bool:
            return bool(await self.annotation(name))

        assert await self.takes(given, 30) != "never", f"{name} was given no address"
        return await self.annotation(name)

    async def served(self, name: str) -> str:
        """The address of the Service, once kube-vip announces it."""
        address = await self.address_of(name)
        await self.announced(name, address)
        return address

    async def balancer(self, name: str) -> Raw | None:
        """The Service's load balancer on Harvester."""
        for raw in await self.host.api.list(kinds.LOAD_BALANCER, "default"):
            found = labels_of(raw)
            if (found.get(f"{PREFIX}/serviceNamespace"), found.get(f"{PREFIX}/serviceName")) == (
                self.namespace,
                name,
            ):
                return raw
        return None

    async def messages(self, name: str, reason: str) -> list[str]:
        """What the provider's events of that reason say."""
        events = await self.api.list(EVENT, self.namespace)
        return [
            str(one.get("message") or one.get("note"))
            for one in events
            if one["reason"] == reason and nested(one, "involvedObject", "name") == name
        ]

    async def told(self, name: str, reason: str, *words: str, limit_s: float = 20) -> bool:
        """Whether an event of that reason with these words comes in time."""

        async def said() -> bool:
            return any(all(word in one for word in words) for one in await self.messages(name, reason))

        return await self.takes(said, limit_s) != "never"

    async def shows(self, name: str, address: str) -> str:
        """How long until the status shows the address and no other."""

        async def shown() -> bool:
            return [one.get("ip") for one in await self.ingress(name)] == [address]

        return await self.takes(shown)


def _rig(world: KubeVipRig) -> ProviderRig:
    assert isinstance(world, ProviderRig)
    return world


async def withdrawn(world: KubeVipRig) -> Observed:
    """A Service asks for another pool, and the next Service gets the address that it leaves."""
    rig = _rig(world)
    one, other = await rig.make_pool("a"), await rig.make_pool("b")
    await rig.request("web", pool=one)
    address = await rig.served("web")
    await rig.annotate("web", other, IP_POOL)
    off = await rig.off(address, 20)
    await rig.request("next", pool=one)

    async def changed() -> bool:
        return await rig.annotation("web") not in ("", address)

    assert await rig.takes(changed, 30) != "never"
    new = await rig.annotation("web")
    told = await rig.told("web", "AddressChanged", new, "rollout restart daemonset kube-vip")
    found = {
        "off": off,
        "told": told,
        "another": await rig.on(new, 3),
        "the next has it": await rig.served("next") == address,
    }
    await rig.restart()
    found["on after the restart"] = await rig.on(new, 20)
    found["shown after the restart"] = await rig.shows("web", new)
    found["the next still has it"] = await rig.on(address, 20) != "never"
    await rig.delete(rig.ref("web"))
    return found | {"off once deleted": await rig.off(new)}


async def pending(world: KubeVipRig) -> Observed:
    """A Service that gets no address stalls no other."""
    rig = _rig(world)
    small, large = await rig.make_pool("small"), await rig.make_pool("large", 2)
    await rig.request("first", pool=small)
    await rig.served("first")
    await rig.request("pending", pool=small)
    await rig.request("web", pool=large)
    address = await rig.address_of("web")
    found = {"the next": await rig.on(address, 60), "pending": await rig.annotation("pending")}
    await rig.delete(rig.ref("first"))
    return found | {"once it is free": bool(await rig.served("pending"))}


async def another_type(world: KubeVipRig) -> Observed:
    """A Service that is no load balancer any more: its address is not given away while a node answers for it."""
    rig = _rig(world)
    pool = await rig.make_pool("a")
    await rig.request("web", pool=pool)
    address = await rig.served("web")
    await rig.patch(rig.ref("web"), {"spec": {"type": "ClusterIP"}})
    told = await rig.told("web", FAILED, f"{address} stays reserved", "rollout restart daemonset kube-vip")
    await rig.request("next", pool=pool)
    await rig.sleep(3)
    found = {
        "told": told,
        "off": await rig.off(address, 1),
        "reserved": await rig.balancer("web") is not None,
        "the next has it": bool(await rig.annotation("next")),
    }
    # As the event says.
    await rig.restart()
    found["off after the restart"] = await rig.off(address)
    keys = [key for key in annotations_of(await rig.get(rig.ref("web"))) if key.startswith("kube-vip.io/")]
    await rig.patch(rig.ref("web"), {"metadata": {"annotations": dict.fromkeys(keys)}})
    return found | {"the next has it then": await rig.served("next") == address}


async def shared(world: KubeVipRig) -> Observed:
    """Two Services with one address, where kube-vip elects a leader for each Service."""
    rig = _rig(world)
    await rig.request("web", pool=await rig.make_pool("a"))
    address = await rig.served("web")
    await rig.request("second", port=81, primary=f"{rig.namespace}/web")
    same = await rig.served("second") == address
    await rig.sleep(3)
    return {"same": same, "nodes": len(rig.holders(address)), "leases": await rig.leases()}


async def without_pods(world: KubeVipRig) -> Observed:
    """The message after a minute, for a Service without pods; and what becomes of it with one."""
    rig = _rig(world)
    await rig.request("web", pool=await rig.make_pool("a"), endpoints=False)
    address = await rig.address_of("web")
    told = await rig.told(
        "web", FAILED, f"does not announce {address} after 60 s", "no pod behind", limit_s=75
    )
    await rig.back("web")
    found = {"told": told, "on with a pod": await rig.on(address), "shown": await rig.shows("web", address)}
    events = await rig.api.list(EVENT, rig.namespace)
    found["ensured again"] = any(one["reason"] == "EnsuredLoadBalancer" for one in events)
    return found


async def behind_dhcp(world: KubeVipRig) -> Observed:
    """The message after a minute, for a Service that waits because another one waits for a DHCP server."""
    rig = _rig(world)
    await rig.request("leased", ipam="dhcp")
    await rig.address_of("leased")
    await rig.sleep(2)
    await rig.request("web", pool=await rig.make_pool("a"))
    address = await rig.address_of("web")
    words = (f"does not announce {address} after 60 s", "another pending or DHCP service blocks kube-vip")
    told = await rig.told("web", FAILED, *words, limit_s=75)
    leased = await rig.told("leased", FAILED, "either no DHCP server answers", limit_s=15)
    return {"told": told, "told of the other": leased, "on": bool(rig.holders(address))}


async def leased(world: KubeVipRig) -> Observed:
    """A DHCP lease that is renewed, with the capabilities of the chart."""
    rig = _rig(world)
    await rig.request("leased", ipam="dhcp")

    async def shown() -> bool:
        return bool(await rig.ingress("leased"))

    await rig.takes(shown, 30)
    (address,) = [one["ip"] for one in await rig.ingress("leased")]

    async def renewed() -> bool:
        return rig.lan.leases_of(address) >= 2

    return {
        "on": bool(rig.holders(address)),
        "renewed": await rig.takes(renewed, 75) != "never",
        "still on": bool(rig.holders(address)),
    }


async def leased_without_the_capability(world: KubeVipRig) -> Observed:
    rig = _rig(world)
    rig.lan.capabilities = [one for one in chart_capabilities() if one != "NET_BIND_SERVICE"]
    await rig.restart()
    return await leased(rig)


WITHDRAWN = {
    "off": "at once",
    "told": True,
    "another": "never",
    "the next has it": True,
    "on after the restart": "at once",
    "shown after the restart": "at once",
    "the next still has it": True,
    "off once deleted": "at once",
}
WITHOUT_PODS = {"told": True, "on with a pod": "at once", "shown": "at once", "ensured again": True}
PROVIDER_SCENES: dict[str, Scene] = {
    "a DHCP lease is renewed": Scene(
        leased, alike({"on": True, "renewed": True, "still on": True}), has_dhcp=True
    ),
    "a DHCP lease is not renewed without NET_BIND_SERVICE": Scene(
        leased_without_the_capability, alike({"on": True, "renewed": False, "still on": True}), has_dhcp=True
    ),
    "a message names the missing pod": Scene(
        without_pods,
        {OLD: {**WITHOUT_PODS, "told": False}, NEW: WITHOUT_PODS},  # before 1.2 it is announced all the same
    ),
    "a message names the service that blocks": Scene(
        behind_dhcp, alike({"told": True, "told of the other": True, "on": False})
    ),
    # Whether the new address is announced depends on the milliseconds that Harvester takes for it.
    "another pool": Scene(withdrawn, alike(WITHDRAWN), undecided=ANOTHER),
    "a pending service": Scene(
        pending, alike({"the next": "at once", "pending": "", "once it is free": True})
    ),
    "another type": Scene(
        another_type,
        alike(
            {
                "told": True,
                "off": "never",
                "reserved": True,
                "the next has it": False,
                "off after the restart": "at once",
                "the next has it then": True,
            }
        ),
    ),
    "a shared address": Scene(
        shared,
        alike({"same": True, "nodes": 1, "leases": ["kubevip-web"]}),
        election=True,
        nodes=("one", "two"),
    ),
}


async def remove_services(api: Client) -> None:
    """Those that earlier tests left, which would be given addresses."""
    for raw in await api.list(SERVICE):
        if nested(raw, "spec", "type") == "LoadBalancer":
            ref = ref_of(SERVICE, raw)
            await api.patch(ref, {"metadata": {"finalizers": None}})
            await api.delete(ref)


@asynccontextmanager
async def a_provider_and_its_harvester(cluster: Cluster, folder: Path) -> AsyncIterator[Host]:
    """Our provider's process between the cluster and an emulated Harvester, with `svc_election` told."""
    async with a_host(lan=f"{SUBNET}.0/24") as host, HttpTransport(cluster.access(), SystemClock()) as there:
        guest = Guest(Client(there), there, render_kubeconfig(cluster.access(), "guest"))
        await remove_services(Client(there))
        flags = (*ONLY_SERVICES, "--kube-vip-svc-election")
        async with a_provider(our_program(), folder, host, guest, *flags) as provider:
            try:
                yield host
            finally:
                print(provider.log()[-4000:])
