"""The demo's service: two pods behind an address of a pool, asked over the network while machines die under it.

Nothing is remembered between acts: whether there is a service, and at which address, is read from the guest.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from ipaddress import IPv4Address, IPv4Network

from windrow.assembly.stage import Stage
from windrow.assembly.waiting import NotSeen, World, wait_for
from windrow.client.client import Client
from windrow.formats.json import NotJson, loads
from windrow.harvester.kinds import IP_POOL, LOAD_BALANCER, NETWORK, VMI
from windrow.kube.errors import KubeError
from windrow.kube.kubeconfig import Access, parse_kubeconfig
from windrow.kube.objects import Raw, annotations_of, dig, name_of, new_object
from windrow.kube.refs import DEPLOYMENT, EVENT, SERVICE, Kind
from windrow.kube.requests import Request
from windrow.values.clock import pause

NAMESPACE, NAME = "default", "web"
PODS = 2
ADDRESSES = 4  # in the pool
ROUTE = "network.harvesterhci.io/route"
HOST = "kube-vip.io/vipHost"
PROVIDER = "harvester-cloud-provider"
ASK_AGAIN = timedelta(seconds=0.2)


@dataclass(frozen=True, slots=True)
class Answer:
    """Who answered."""

    pod: str
    node: str

    def __str__(self) -> str:
        return f"pod {self.pod} on {self.node}"


# -- the acts ----------------------------------------------------------------------------------------------------


async def begin_service(stage: Stage) -> None:
    """A pool on Harvester, pods and a service in the guest; then a request from outside."""
    values = dig(await stage.cluster(), "spec", "rkeConfig", "chartValues", PROVIDER, default={})
    if dig(values, "kube-vip", "enabled", default=True) is False:
        stage.report.note("no service is shown: the manifest switches kube-vip off", detail=True)
        return
    network = await _network_of(stage)
    if network is None:
        stage.report.note("no service is shown: the network of the machines states no subnet", detail=True)
        return
    pool = await _make_pool(stage, *network)
    guest = await stage.guest()
    begun = stage.clock.now()
    stage.report.note(f"a service with {PODS} pods is asked for, and pool {name_of(pool)} for its address")
    await guest.create(DEPLOYMENT, render_deployment())
    await guest.create(SERVICE, render_service())
    try:
        address = await _address_shown(stage, guest)
    except NotSeen as error:
        stage.report.check("service-address", False, f"{error}; {await _last_word(guest)}")
        return
    took = (stage.clock.now() - begun).total_seconds()
    stage.report.check(
        "service-address",
        address in block_of(pool),
        f"service {NAME} has the address {address} of pool {name_of(pool)} after {took:.1f} s",
    )
    await _pods_ready(stage, guest)
    answer = await first_answer(stage, address)
    stage.report.check("service-answers", True, f"{answer} answers at http://{address}/")


async def end_service(stage: Stage) -> None:
    """Delete it; the load balancer on Harvester has to go and its address has to be free again."""
    service = await find_service(stage)
    if service is None:
        return
    address, guest = address_of(service), await stage.guest()
    pool = await stage.harvester.find(IP_POOL.ref(pool_name(stage)))
    held = str(dig(pool, "status", "allocated", address, default=""))
    stage.report.note(f"service {NAME} is deleted")
    await guest.delete(SERVICE.ref(NAME, NAMESPACE))
    await guest.delete(DEPLOYMENT.ref(NAME, NAMESPACE))
    where, _, name = held.partition("/")
    await _harvester_shows(
        stage, LOAD_BALANCER, lambda world: (where, name) not in world, f"load balancer {held} to be gone"
    )
    await _harvester_shows(stage, IP_POOL, lambda world: _is_free(world, stage), f"{address} to be free")
    await stage.harvester.delete(IP_POOL.ref(pool_name(stage)))
    stage.report.check(
        "service-gone", bool(held), f"load balancer {held or '(unknown)'} is gone, {address} is free again"
    )


async def service_survives(stage: Stage, lost: str, namespace: str, check: str) -> None:
    """Once machine `lost` has no power any more, another one must answer. Nothing where there is no service."""
    service = await find_service(stage)
    if service is None:
        return
    address = address_of(service)
    await _harvester_shows(stage, VMI, lambda world: (namespace, lost) not in world, f"{lost} to be off")
    off = stage.clock.now()
    answer = await first_answer(stage, address, without=lost)
    took = (stage.clock.now() - off).total_seconds()
    stage.report.check(
        check,
        True,
        f"{answer} answers at http://{address}/ {took:.1f} s after {lost} was off",
    )


async def service_is_back(stage: Stage, check: str = "") -> None:
    """Return once all pods are Ready again and one of them answers; `check` says so. Nothing without a service."""
    service = await find_service(stage)
    if service is None:
        return
    await _pods_ready(stage, await stage.guest())
    answer = await first_answer(stage, address_of(service))
    if check:
        stage.report.check(check, True, f"{answer} answers at http://{address_of(service)}/ again")


# -- who is under it ---------------------------------------------------------------------------------------------


async def under_service(stage: Stage, machines: Sequence[Raw]) -> tuple[Raw, str]:
    """The machine that the service would miss most, and why: that of the pod that answers, else that with the address,
    else the first."""
    service = await find_service(stage)
    by_name = {name_of(raw): raw for raw in machines}
    if service is not None:
        answer = await first_answer(stage, address_of(service))
        if answer.node in by_name:
            return by_name[answer.node], f"pod {answer.pod} runs on it"
        host = annotations_of(service).get(HOST, "")
        if host in by_name:
            return by_name[host], f"it has the address {address_of(service)}"
    return machines[0], ""


async def find_service(stage: Stage) -> Raw | None:
    """The service, once it has an address."""
    try:
        found = await (await stage.guest()).find(SERVICE.ref(NAME, NAMESPACE))
    except KubeError:
        return None
    return found if found is not None and address_of(found) else None


def address_of(service: Mapping[str, object]) -> str:
    return str(dig(service, "status", "loadBalancer", "ingress", 0, "ip", default=""))


# -- asking ------------------------------------------------------------------------------------------------------


async def ask(stage: Stage, address: str) -> Answer | None:
    """One request to the address, by the way that the guest's kubeconfig goes. None where nobody answers it."""
    proxy = parse_kubeconfig(await stage.guest_kubeconfig()).proxy_url
    try:
        reply = await stage.dial(Access(f"http://{address}:80", proxy_url=proxy)).send(Request("GET", "/"))
        said = loads(reply.body)
    except (KubeError, NotJson):
        return None
    return Answer(str(said["pod"]), str(said["node"])) if reply.status == 200 else None


async def first_answer(stage: Stage, address: str, *, without: str = "") -> Answer:
    """The first answer that does not come from machine `without`. Raises NotSeen."""
    deadline = stage.clock.now() + stage.patience
    while stage.clock.now() < deadline:
        answer = await ask(stage, address)
        if answer is not None and answer.node != without:
            return answer
        await pause(stage.clock, ASK_AGAIN)
    raise NotSeen(f"an answer from http://{address}/", stage.patience, {})


# -- what is made ------------------------------------------------------------------------------------------------


def render_deployment() -> Raw:
    labels = {"app": NAME}
    container = {"name": NAME, "image": "example/web:1", "ports": [{"containerPort": 8080}]}
    spec = {
        "replicas": PODS,
        "selector": {"matchLabels": labels},
        "template": {"metadata": {"labels": labels}, "spec": {"containers": [container]}},
    }
    return new_object(DEPLOYMENT, NAME, NAMESPACE, spec=spec)


def render_service() -> Raw:
    spec = {
        "type": "LoadBalancer",
        "selector": {"app": NAME},
        "ports": [{"name": "http", "port": 80, "targetPort": 8080}],
    }
    return new_object(SERVICE, NAME, NAMESPACE, spec=spec)


def pool_name(stage: Stage) -> str:
    return f"{stage.name}-web"


def find_block(network: IPv4Network, taken: Sequence[str]) -> tuple[str, ...]:
    """The highest addresses of the network that nobody has, side by side; none where there is no such room."""
    hosts = int(network.broadcast_address)
    used = {int(IPv4Address(one)) for one in taken}
    for first in range(hosts - ADDRESSES, int(network.network_address) + 1, -ADDRESSES):
        block = range(first, first + ADDRESSES)
        if not used & set(block):
            return tuple(str(IPv4Address(one)) for one in block)
    return ()


def block_of(pool: Raw) -> tuple[str, ...]:
    found = dig(pool, "spec", "ranges", 0, default={})
    first, last = (int(IPv4Address(found[key])) for key in ("rangeStart", "rangeEnd"))
    return tuple(str(IPv4Address(one)) for one in range(first, last + 1))


async def _last_word(guest: Client) -> str:
    """What was said about the service last."""
    about = [raw for raw in await guest.list(EVENT, NAMESPACE) if dig(raw, "involvedObject", "name") == NAME]
    return str(about[-1]["message"]) if about else "nobody said why"


async def _network_of(stage: Stage) -> tuple[str, IPv4Network] | None:
    """The network of the machines, and the subnet that it states on Harvester."""
    vm = await stage.vm_of((await stage.machines())[0])
    networks = dig(vm, "spec", "template", "spec", "networks", default=[])
    named = next((one["multus"]["networkName"] for one in networks if one.get("multus")), "")
    namespace, _, name = named.rpartition("/")
    namespace = namespace or vm["metadata"]["namespace"]
    raw = await stage.harvester.find(NETWORK.ref(name, namespace))
    try:
        return f"{namespace}/{name}", IPv4Network(
            loads(annotations_of(raw or {"metadata": {}}).get(ROUTE, "{}"))["cidr"]
        )
    except (NotJson, KeyError, TypeError, ValueError):
        return None


async def _make_pool(stage: Stage, name: str, network: IPv4Network) -> Raw:
    taken = [
        address
        for instance in await stage.harvester.list(VMI)
        for nic in dig(instance, "status", "interfaces", default=[])
        for address in nic.get("ipAddresses") or ()
        if ":" not in address
    ]
    taken += [address for pool in await stage.harvester.list(IP_POOL) for address in block_of(pool)]
    block = find_block(network, taken)
    if not block:
        raise NotSeen(f"{ADDRESSES} addresses side by side that are free in {network}", timedelta(), {})
    scope = [{"project": "*", "namespace": "*", "guestCluster": stage.name}]
    ranges = [{"subnet": str(network), "rangeStart": block[0], "rangeEnd": block[-1]}]
    raw = new_object(
        IP_POOL, pool_name(stage), spec={"ranges": ranges, "selector": {"scope": scope, "network": name}}
    )
    return await stage.harvester.create(IP_POOL, raw)


# -- waiting -----------------------------------------------------------------------------------------------------


async def _address_shown(stage: Stage, guest: Client) -> str:
    def judge(world: World) -> str | None:
        found = world.get((NAMESPACE, NAME))
        return (address_of(found) or None) if found is not None else None

    return await wait_for(
        guest.transport,
        SERVICE,
        judge,
        what=f"service {NAME} to have an address",
        clock=stage.clock,
        namespace=NAMESPACE,
        within=stage.patience,
    )


async def _pods_ready(stage: Stage, guest: Client) -> None:
    def judge(world: World) -> bool | None:
        found = world.get((NAMESPACE, NAME))
        return True if dig(found, "status", "availableReplicas", default=0) == PODS else None

    await wait_for(
        guest.transport,
        DEPLOYMENT,
        judge,
        what=f"{PODS} pods to be Ready",
        clock=stage.clock,
        namespace=NAMESPACE,
        within=stage.patience,
    )


def _is_free(world: World, stage: Stage) -> bool:
    found = world.get(("", pool_name(stage)))
    return found is None or not dig(found, "status", "allocated", default={})


async def _harvester_shows(stage: Stage, kind: Kind, holds: Callable[[World], bool], what: str) -> None:
    await wait_for(
        stage.harvester.transport,
        kind,
        lambda world: True if holds(world) else None,
        what=what,
        clock=stage.clock,
        within=stage.patience,
    )
