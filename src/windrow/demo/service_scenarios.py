"""The demo's service: two pods behind an address of a pool, asked over the network while machines die under it.

Nothing is remembered between acts: whether there is a service, and at which address, is read from the guest.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from ipaddress import IPv4Address, IPv4Network

from windrow.app.waiting import Objects, WaitTimedOut, wait_for
from windrow.client.client import Client
from windrow.core.clock import sleep
from windrow.core.json import NotJson, loads
from windrow.demo.cluster import DemoCluster
from windrow.harvester.resources import IP_POOL, LOAD_BALANCER, NETWORK, VMI
from windrow.kubernetes.errors import KubeError
from windrow.kubernetes.kubeconfig import ClientConfig, parse_kubeconfig
from windrow.kubernetes.objects import Raw, annotations_of, name_of, nested, new_object
from windrow.kubernetes.requests import Request
from windrow.kubernetes.resources import DEPLOYMENT, EVENT, SERVICE, ApiResource

NAMESPACE, NAME = "default", "web"
PODS = 2
ADDRESSES = 4  # in the pool
ROUTE = "network.harvesterhci.io/route"
VIP_HOST = "kube-vip.io/vipHost"
PROVIDER = "harvester-cloud-provider"
RETRY_INTERVAL = timedelta(seconds=0.2)


@dataclass(frozen=True, slots=True)
class PodReply:
    """Who answered."""

    pod: str
    node: str

    def __str__(self) -> str:
        return f"pod {self.pod} on {self.node}"


# -- the acts ----------------------------------------------------------------------------------------------------


async def create_service(stage: DemoCluster) -> None:
    """A pool on Harvester, pods and a service in the guest; then a request from outside."""
    values = nested(await stage.get_cluster(), "spec", "rkeConfig", "chartValues", PROVIDER, default={})
    if nested(values, "kube-vip", "enabled", default=True) is False:
        stage.report.add("no service is shown: the manifest switches kube-vip off", detail=True)
        return
    network = await _find_network(stage)
    if network is None:
        stage.report.add("no service is shown: the network of the machines states no subnet", detail=True)
        return
    pool = await _create_pool(stage, *network)
    guest = await stage.guest_client()
    begun = stage.clock.now()
    stage.report.add(f"a service with {PODS} pods is asked for, and pool {name_of(pool)} for its address")
    await guest.create(DEPLOYMENT, render_deployment())
    await guest.create(SERVICE, render_service())
    try:
        address = await _wait_for_address(stage, guest)
    except WaitTimedOut as error:
        stage.report.check("service-address", False, f"{error}; {await _last_event(guest)}")
        return
    took = (stage.clock.now() - begun).total_seconds()
    stage.report.check(
        "service-address",
        address in addresses_of_pool(pool),
        f"service {NAME} has the address {address} of pool {name_of(pool)} after {took:.1f} s",
    )
    await _wait_for_pods(stage, guest)
    answer = await wait_for_reply(stage, address)
    stage.report.check("service-answers", True, f"{answer} answers at http://{address}/")


async def delete_service(stage: DemoCluster) -> None:
    """Delete it; the load balancer on Harvester has to go and its address has to be free again."""
    service = await find_service(stage)
    if service is None:
        return
    address, guest = address_of(service), await stage.guest_client()
    pool = await stage.harvester.find(IP_POOL.ref(pool_name(stage)))
    held = str(nested(pool, "status", "allocated", address, default=""))
    stage.report.add(f"service {NAME} is deleted")
    await guest.delete(SERVICE.ref(NAME, NAMESPACE))
    await guest.delete(DEPLOYMENT.ref(NAME, NAMESPACE))
    where, _, name = held.partition("/")
    await _wait_on_harvester(
        stage, LOAD_BALANCER, lambda world: (where, name) not in world, f"load balancer {held} to be gone"
    )
    await _wait_on_harvester(stage, IP_POOL, lambda world: _is_free(world, stage), f"{address} to be free")
    await stage.harvester.delete(IP_POOL.ref(pool_name(stage)))
    stage.report.check(
        "service-gone", bool(held), f"load balancer {held or '(unknown)'} is gone, {address} is free again"
    )


async def check_service_survives(stage: DemoCluster, lost: str, namespace: str, check: str) -> None:
    """Once machine `lost` has no power any more, another one must answer. Nothing where there is no service."""
    service = await find_service(stage)
    if service is None:
        return
    address = address_of(service)
    await _wait_on_harvester(stage, VMI, lambda world: (namespace, lost) not in world, f"{lost} to be off")
    off = stage.clock.now()
    answer = await wait_for_reply(stage, address, without=lost)
    took = (stage.clock.now() - off).total_seconds()
    stage.report.check(
        check,
        True,
        f"{answer} answers at http://{address}/ {took:.1f} s after {lost} was off",
    )


async def wait_for_service(stage: DemoCluster, check: str = "") -> None:
    """Return once all pods are Ready again and one of them answers; `check` says so. Nothing without a service."""
    service = await find_service(stage)
    if service is None:
        return
    await _wait_for_pods(stage, await stage.guest_client())
    answer = await wait_for_reply(stage, address_of(service))
    if check:
        stage.report.check(check, True, f"{answer} answers at http://{address_of(service)}/ again")


# -- who is under it ---------------------------------------------------------------------------------------------


async def pick_machine_under_service(stage: DemoCluster, machines: Sequence[Raw]) -> tuple[Raw, str]:
    """The machine that the service would miss most, and why: that of the pod that answers, else that with the address,
    else the first."""
    service = await find_service(stage)
    by_name = {name_of(raw): raw for raw in machines}
    if service is not None:
        answer = await wait_for_reply(stage, address_of(service))
        if answer.node in by_name:
            return by_name[answer.node], f"pod {answer.pod} runs on it"
        host = annotations_of(service).get(VIP_HOST, "")
        if host in by_name:
            return by_name[host], f"it has the address {address_of(service)}"
    return machines[0], ""


async def find_service(stage: DemoCluster) -> Raw | None:
    """The service, once it has an address."""
    try:
        found = await (await stage.guest_client()).find(SERVICE.ref(NAME, NAMESPACE))
    except KubeError:
        return None
    return found if found is not None and address_of(found) else None


def address_of(service: Mapping[str, object]) -> str:
    return str(nested(service, "status", "loadBalancer", "ingress", 0, "ip", default=""))


# -- asking ------------------------------------------------------------------------------------------------------


async def send_request(stage: DemoCluster, address: str) -> PodReply | None:
    """One request to the address, by the way that the guest's kubeconfig goes. None where nobody answers it."""
    proxy = parse_kubeconfig(await stage.guest_kubeconfig()).proxy_url
    try:
        reply = await stage.connect(ClientConfig(f"http://{address}:80", proxy_url=proxy)).send(
            Request("GET", "/")
        )
        body = loads(reply.body)
    except (KubeError, NotJson):
        return None
    return PodReply(str(body["pod"]), str(body["node"])) if reply.status == 200 else None


async def wait_for_reply(stage: DemoCluster, address: str, *, without: str = "") -> PodReply:
    """The first answer that does not come from machine `without`. Raises NotSeen."""
    deadline = stage.clock.now() + stage.timeout
    while stage.clock.now() < deadline:
        answer = await send_request(stage, address)
        if answer is not None and answer.node != without:
            return answer
        await sleep(stage.clock, RETRY_INTERVAL)
    raise WaitTimedOut(f"an answer from http://{address}/", stage.timeout, {})


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


def pool_name(stage: DemoCluster) -> str:
    return f"{stage.name}-web"


def find_free_block(network: IPv4Network, used: Sequence[str]) -> tuple[str, ...]:
    """The highest addresses of the network that nobody has, side by side; none where there is no such room."""
    broadcast = int(network.broadcast_address)
    taken = {int(IPv4Address(one)) for one in used}
    for first in range(broadcast - ADDRESSES, int(network.network_address) + 1, -ADDRESSES):
        block = range(first, first + ADDRESSES)
        if not taken & set(block):
            return tuple(str(IPv4Address(one)) for one in block)
    return ()


def addresses_of_pool(pool: Raw) -> tuple[str, ...]:
    found = nested(pool, "spec", "ranges", 0, default={})
    first, last = (int(IPv4Address(found[key])) for key in ("rangeStart", "rangeEnd"))
    return tuple(str(IPv4Address(one)) for one in range(first, last + 1))


async def _last_event(guest: Client) -> str:
    """What was said about the service last."""
    about = [
        raw for raw in await guest.list(EVENT, NAMESPACE) if nested(raw, "involvedObject", "name") == NAME
    ]
    return str(about[-1]["message"]) if about else "nobody said why"


async def _find_network(stage: DemoCluster) -> tuple[str, IPv4Network] | None:
    """The network of the machines, and the subnet that it states on Harvester."""
    vm = await stage.get_vm((await stage.list_machines())[0])
    networks = nested(vm, "spec", "template", "spec", "networks", default=[])
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


async def _create_pool(stage: DemoCluster, name: str, network: IPv4Network) -> Raw:
    taken = [
        address
        for instance in await stage.harvester.list(VMI)
        for nic in nested(instance, "status", "interfaces", default=[])
        for address in nic.get("ipAddresses") or ()
        if ":" not in address
    ]
    taken += [address for pool in await stage.harvester.list(IP_POOL) for address in addresses_of_pool(pool)]
    block = find_free_block(network, taken)
    if not block:
        raise WaitTimedOut(f"{ADDRESSES} addresses side by side that are free in {network}", timedelta(), {})
    scope = [{"project": "*", "namespace": "*", "guestCluster": stage.name}]
    ranges = [{"subnet": str(network), "rangeStart": block[0], "rangeEnd": block[-1]}]
    raw = new_object(
        IP_POOL, pool_name(stage), spec={"ranges": ranges, "selector": {"scope": scope, "network": name}}
    )
    return await stage.harvester.create(IP_POOL, raw)


# -- waiting -----------------------------------------------------------------------------------------------------


async def _wait_for_address(stage: DemoCluster, guest: Client) -> str:
    def judge(world: Objects) -> str | None:
        found = world.get((NAMESPACE, NAME))
        return (address_of(found) or None) if found is not None else None

    return await wait_for(
        guest.transport,
        SERVICE,
        judge,
        what=f"service {NAME} to have an address",
        clock=stage.clock,
        namespace=NAMESPACE,
        within=stage.timeout,
    )


async def _wait_for_pods(stage: DemoCluster, guest: Client) -> None:
    def judge(world: Objects) -> bool | None:
        found = world.get((NAMESPACE, NAME))
        return True if nested(found, "status", "availableReplicas", default=0) == PODS else None

    await wait_for(
        guest.transport,
        DEPLOYMENT,
        judge,
        what=f"{PODS} pods to be Ready",
        clock=stage.clock,
        namespace=NAMESPACE,
        within=stage.timeout,
    )


def _is_free(world: Objects, stage: DemoCluster) -> bool:
    found = world.get(("", pool_name(stage)))
    return found is None or not nested(found, "status", "allocated", default={})


async def _wait_on_harvester(
    stage: DemoCluster, kind: ApiResource, holds: Callable[[Objects], bool], what: str
) -> None:
    await wait_for(
        stage.harvester.transport,
        kind,
        lambda world: True if holds(world) else None,
        what=what,
        clock=stage.clock,
        within=stage.timeout,
    )
