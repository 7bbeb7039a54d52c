"""The demo's LoadBalancer Service: two pods behind an address of an IPPool, requested while machines are lost.

No state is kept between scenarios: whether the Service exists, and its address, is read from the guest.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from ipaddress import IPv4Address, IPv4Network

from windrow.client.client import Client
from windrow.core.clock import format_time, sleep
from windrow.core.formats.json import NotJson, loads
from windrow.demo.cluster import DemoCluster
from windrow.demo.waiting import Objects, WaitTimedOut
from windrow.harvester.resources import IP_POOL, LOAD_BALANCER, NETWORK, VMI
from windrow.kubernetes.errors import KubeError
from windrow.kubernetes.kubeconfig import ClientConfig, parse_kubeconfig
from windrow.kubernetes.objects import (
    Raw,
    annotations_of,
    is_deleting,
    labels_of,
    name_of,
    nested,
    new_object,
)
from windrow.kubernetes.requests import Request
from windrow.kubernetes.resources import DEPLOYMENT, EVENT, POD, SERVICE, ObjectRef

NAMESPACE, NAME = "default", "web"
SERVICE_REF, DEPLOYMENT_REF = SERVICE.ref(NAME, NAMESPACE), DEPLOYMENT.ref(NAME, NAMESPACE)
PODS = 2
ADDRESSES = 4  # in the pool
ROUTE = "network.harvesterhci.io/route"
VIP_HOST = "kube-vip.io/vipHost"
PROVIDER = "harvester-cloud-provider"
# The checks of every cluster that has a Service.
CHECKS = (
    "service-address",
    "service-answers",
    "service-after-stop",
    "service-survives-worker",
    "service-survives-server",
    "service-gone",
)
WITHOUT_PROVIDER = "the manifest asks for no cloud provider of Harvester"
WITHOUT_IPV4 = (
    "the pods have IPv6 alone, and the demo's IPPool has IPv4, whose addresses lead to none of them"
)
RESTARTED_AT = "kubectl.kubernetes.io/restartedAt"
RETRY_INTERVAL = timedelta(seconds=0.2)


@dataclass(frozen=True, slots=True)
class PodReply:
    """The pod that answered a request, and what it read from its volume, where it serves a file."""

    pod: str
    node: str
    file: str = ""

    def __str__(self) -> str:
        return f"Pod {NAMESPACE}/{self.pod} on Node {self.node}"


# -- scenarios ---------------------------------------------------------------------------------------------------


async def create_service(cluster: DemoCluster) -> None:
    """Create an IPPool on Harvester, a Deployment and a Service in the guest; then send a request."""
    if not await cluster.has_cloud_provider():
        cluster.report.skip(CHECKS, WITHOUT_PROVIDER)
        return
    values = nested(await cluster.get_cluster(), "spec", "rkeConfig", "chartValues", PROVIDER, default={})
    if nested(values, "kube-vip", "enabled", default=True) is False:
        cluster.report.skip(
            CHECKS, "the manifest disables kube-vip, which announces the addresses of services"
        )
        return
    if not await cluster.has_ipv4():
        cluster.report.skip(CHECKS, WITHOUT_IPV4)
        return
    network = await _find_network(cluster)
    if network is None:
        cluster.report.skip(CHECKS, "the network of the machines states no subnet")
        return
    pool = await _create_pool(cluster, *network)
    guest = await cluster.guest_client()
    begun = cluster.clock.now()
    cluster.report.add(
        f"{SERVICE_REF} of the guest with {PODS} pods is created, and IPPool {name_of(pool)} for its address"
    )
    await guest.create(DEPLOYMENT, render_deployment())
    await guest.create(SERVICE, render_service())
    try:
        address = await wait_for_address(cluster, guest, NAME)
    except WaitTimedOut as error:
        cluster.report.check("service-address", False, f"{error}; {await _last_event(guest)}")
        return
    took = (cluster.clock.now() - begun).total_seconds()
    cluster.report.check(
        "service-address",
        address in addresses_of_pool(pool),
        f"{SERVICE_REF} has the address {address} of IPPool {name_of(pool)} after {took:.1f} s",
    )
    await _wait_for_pods(cluster, guest)
    answer = await wait_for_reply(cluster, address)
    cluster.report.check("service-answers", True, f"{answer} answers at http://{address}/")


async def delete_service(cluster: DemoCluster) -> None:
    """Delete the Service: its LoadBalancer on Harvester must go, and its address must be free again."""
    service = await find_service(cluster)
    if service is None:
        return
    address, guest = address_of(service), await cluster.guest_client()
    pool = await cluster.harvester.find(IP_POOL.ref(pool_name(cluster)))
    held = str(nested(pool, "status", "allocated", address, default=""))
    cluster.report.add(f"{SERVICE_REF} of the guest is deleted")
    await guest.delete(SERVICE_REF)
    await guest.delete(DEPLOYMENT_REF)
    where, _, name = held.partition("/")
    what = f"LoadBalancer {held} to be gone"
    await cluster.wait_on(
        cluster.harvester, LOAD_BALANCER, lambda objects: (where, name) not in objects, what
    )
    what = f"{address} to be free in IPPool {pool_name(cluster)}"
    await cluster.wait_on(cluster.harvester, IP_POOL, lambda objects: _is_free(objects, cluster), what)
    await delete_pool(cluster)
    cluster.report.check(
        "service-gone", bool(held), f"LoadBalancer {held or '(unknown)'} is gone, {address} is free again"
    )


async def delete_pool(cluster: DemoCluster) -> None:
    """Delete the IPPool of the Service on Harvester, if there is one. May be repeated."""
    if await cluster.harvester.find(IP_POOL.ref(pool_name(cluster))) is not None:
        await cluster.harvester.delete(IP_POOL.ref(pool_name(cluster)))


async def check_service_survives(
    cluster: DemoCluster, service: Raw | None, lost: str, namespace: str, check: str
) -> None:
    """Once the VM of `lost` is off, a pod elsewhere must answer. Does nothing without a Service, which is found before the VM
    is deleted: the guest API may not answer right after it."""
    if service is None:
        return
    address = address_of(service)
    what = f"VirtualMachineInstance {namespace}/{lost} to be gone"
    await cluster.wait_on(cluster.harvester, VMI, lambda objects: (namespace, lost) not in objects, what)
    off = cluster.clock.now()
    answer = await wait_for_reply(cluster, address, without=lost)
    took = (cluster.clock.now() - off).total_seconds()
    text = (
        f"{answer} answers at http://{address}/ {took:.1f} s after VirtualMachine {namespace}/{lost} was off"
    )
    cluster.report.check(check, True, text)


async def wait_for_service(cluster: DemoCluster, check: str = "", service: Raw | None = None) -> None:
    """Return once all pods are Ready and one answers; recorded as `check` where given. Does nothing without a Service.

    `service` is the Service as it was found before, for a guest API that may not answer at this moment.
    """
    service = service or await find_service(cluster)
    if service is None:
        return
    await _wait_for_pods(cluster, await cluster.guest_client())
    answer = await wait_for_reply(cluster, address_of(service))
    if check:
        cluster.report.check(check, True, f"{answer} answers at http://{address_of(service)}/ again")


async def spread_pods(cluster: DemoCluster) -> tuple[str, ...]:
    """Restart the pods one after the other, as `kubectl rollout restart` does, and return the names of their Nodes: machines
    that were lost have left them on one, and the scheduler spreads new ones."""
    guest = await cluster.guest_client()
    stamp = {RESTARTED_AT: format_time(cluster.clock.now())}
    patch = {"spec": {"template": {"metadata": {"annotations": stamp}}}}
    generation = (await guest.patch(DEPLOYMENT_REF, patch))["metadata"]["generation"]

    def are_restarted(objects: Objects) -> bool:
        status = nested(objects.get((NAMESPACE, NAME)), "status", default={})
        counts = (status.get(key) for key in ("replicas", "updatedReplicas", "availableReplicas"))
        return status.get("observedGeneration", 0) >= generation and all(count == PODS for count in counts)

    what = f"the Pods of {DEPLOYMENT_REF} to be restarted"
    await cluster.wait_on(guest, DEPLOYMENT, are_restarted, what, NAMESPACE)
    pods = [raw for raw in await guest.list(POD, NAMESPACE) if labels_of(raw).get("app") == NAME]
    return tuple(sorted({raw["spec"]["nodeName"] for raw in pods if not is_deleting(raw)}))


# -- reading -----------------------------------------------------------------------------------------------------


async def pick_machine_under_service(cluster: DemoCluster, machines: Sequence[Raw]) -> tuple[Raw, str]:
    """The machine to lose, and why: that of the pod that answers, else that with the address, else the first."""
    service = await find_service(cluster)
    by_name = {name_of(raw): raw for raw in machines}
    if service is not None:
        answer = await wait_for_reply(cluster, address_of(service))
        if answer.node in by_name:
            return by_name[answer.node], f"Pod {NAMESPACE}/{answer.pod} runs on it"
        host = annotations_of(service).get(VIP_HOST, "")
        if host in by_name:
            return by_name[host], f"it has the address {address_of(service)}"
    return machines[0], ""


async def find_service(cluster: DemoCluster, ref: ObjectRef = SERVICE_REF) -> Raw | None:
    """A Service, if it has an address. Asks again while the guest API does not answer. Raises WaitTimedOut."""
    deadline = cluster.clock.now() + cluster.timeout
    while cluster.clock.now() < deadline:
        with suppress(KubeError):
            return await read_service(cluster, ref)
        await sleep(cluster.clock, RETRY_INTERVAL)
    raise WaitTimedOut(f"the guest API of {cluster.ref} to answer", cluster.timeout, {})


async def read_service(cluster: DemoCluster, ref: ObjectRef = SERVICE_REF) -> Raw | None:
    """A Service, if it has an address. Asks once. Raises KubeError."""
    found = await (await cluster.guest_client()).find(ref)
    return found if found is not None and address_of(found) else None


def address_of(service: Mapping[str, object]) -> str:
    return str(nested(service, "status", "loadBalancer", "ingress", 0, "ip", default=""))


# -- requests ----------------------------------------------------------------------------------------------------


async def send_request(cluster: DemoCluster, address: str) -> PodReply | None:
    """Send one request to the address, through the proxy of the guest's kubeconfig. None without an answer."""
    proxy = parse_kubeconfig(await cluster.guest_kubeconfig()).proxy_url
    try:
        reply = await cluster.connect(ClientConfig(f"http://{address}:80", proxy_url=proxy)).send(
            Request("GET", "/")
        )
        body = loads(reply.body)
    except (KubeError, NotJson):
        return None
    if reply.status != 200:
        return None
    return PodReply(str(body["pod"]), str(body["node"]), str(body.get("file") or ""))


async def wait_for_reply(cluster: DemoCluster, address: str, *, without: str = "") -> PodReply:
    """The first answer that does not come from machine `without`. Raises WaitTimedOut."""
    deadline = cluster.clock.now() + cluster.timeout
    while cluster.clock.now() < deadline:
        answer = await send_request(cluster, address)
        if answer is not None and answer.node != without:
            return answer
        await sleep(cluster.clock, RETRY_INTERVAL)
    raise WaitTimedOut(f"an answer from http://{address}/", cluster.timeout, {})


async def wait_for_no_reply(cluster: DemoCluster, address: str) -> None:
    """Return once a request to the address has no answer. Raises WaitTimedOut."""
    deadline = cluster.clock.now() + cluster.timeout
    while cluster.clock.now() < deadline:
        if await send_request(cluster, address) is None:
            return
        await sleep(cluster.clock, RETRY_INTERVAL)
    raise WaitTimedOut(f"no answer from http://{address}/", cluster.timeout, {})


# -- objects -----------------------------------------------------------------------------------------------------


def render_deployment() -> Raw:
    labels = {"app": NAME}
    container = {"name": NAME, "image": "example/web:1", "ports": [{"containerPort": 8080}]}
    spec = {
        "replicas": PODS,
        "selector": {"matchLabels": labels},
        "template": {"metadata": {"labels": labels}, "spec": {"containers": [container]}},
    }
    return new_object(DEPLOYMENT, NAME, NAMESPACE, spec=spec)


def render_service(name: str = NAME) -> Raw:
    spec = {
        "type": "LoadBalancer",
        "selector": {"app": name},
        "ports": [{"name": "http", "port": 80, "targetPort": 8080}],
    }
    return new_object(SERVICE, name, NAMESPACE, spec=spec)


def pool_name(cluster: DemoCluster) -> str:
    return f"{cluster.name}-web"


def find_free_block(network: IPv4Network, used: Sequence[str]) -> tuple[str, ...]:
    """The highest ADDRESSES consecutive free addresses of the network; () where there are none."""
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
    """The message of the Service's last event."""
    about = [
        raw for raw in await guest.list(EVENT, NAMESPACE) if nested(raw, "involvedObject", "name") == NAME
    ]
    return str(about[-1]["message"]) if about else "no event about it"


async def _find_network(cluster: DemoCluster) -> tuple[str, IPv4Network] | None:
    """The network of the machines, and its subnet on Harvester."""
    vm = await cluster.get_vm((await cluster.list_machines())[0])
    networks = nested(vm, "spec", "template", "spec", "networks", default=[])
    named = next((one["multus"]["networkName"] for one in networks if one.get("multus")), "")
    namespace, _, name = named.rpartition("/")
    namespace = namespace or vm["metadata"]["namespace"]
    raw = await cluster.harvester.find(NETWORK.ref(name, namespace))
    try:
        return f"{namespace}/{name}", IPv4Network(
            loads(annotations_of(raw or {"metadata": {}}).get(ROUTE, "{}"))["cidr"]
        )
    except (NotJson, KeyError, TypeError, ValueError):
        return None


async def _create_pool(cluster: DemoCluster, name: str, network: IPv4Network) -> Raw:
    taken = [
        address
        for instance in await cluster.harvester.list(VMI)
        for nic in nested(instance, "status", "interfaces", default=[])
        for address in nic.get("ipAddresses") or ()
        if ":" not in address
    ]
    taken += [
        address for pool in await cluster.harvester.list(IP_POOL) for address in addresses_of_pool(pool)
    ]
    block = find_free_block(network, taken)
    if not block:
        raise WaitTimedOut(f"{ADDRESSES} consecutive free addresses in {network}", timedelta(), {})
    scope = [{"project": "*", "namespace": "*", "guestCluster": cluster.name}]
    ranges = [{"subnet": str(network), "rangeStart": block[0], "rangeEnd": block[-1]}]
    raw = new_object(
        IP_POOL, pool_name(cluster), spec={"ranges": ranges, "selector": {"scope": scope, "network": name}}
    )
    return await cluster.harvester.create(IP_POOL, raw)


# -- waiting -----------------------------------------------------------------------------------------------------


async def wait_for_address(cluster: DemoCluster, guest: Client, name: str) -> str:
    """The address of this Service. Raises WaitTimedOut."""

    def find_address(objects: Objects) -> str:
        found = objects.get((NAMESPACE, name))
        return address_of(found) if found is not None else ""

    what = f"{SERVICE.ref(name, NAMESPACE)} to have an address"
    return await cluster.wait_on(guest, SERVICE, find_address, what, NAMESPACE)


async def _wait_for_pods(cluster: DemoCluster, guest: Client) -> None:
    def are_ready(objects: Objects) -> bool:
        return bool(nested(objects.get((NAMESPACE, NAME)), "status", "availableReplicas", default=0) == PODS)

    what = f"{PODS} Pods of {DEPLOYMENT_REF} to be Ready"
    await cluster.wait_on(guest, DEPLOYMENT, are_ready, what, NAMESPACE)


def _is_free(objects: Objects, cluster: DemoCluster) -> bool:
    found = objects.get(("", pool_name(cluster)))
    return found is None or not nested(found, "status", "allocated", default={})
