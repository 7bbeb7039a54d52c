"""A life of the cloud provider under the service account and the rights that its chart renders, on a driven clock.

Every request that it sends to the guest's API is noted with the right that it needed. `live` gives what was asked,
what was refused, and which of the things that a user relies on came about.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from itertools import product
from typing import Any

from tests.conformance.chart_rig import NAME, NAMESPACE, command_of
from tests.stories.announcing import Announcer
from tests.stories.balancing import Balancing
from tests.stories.harvester_rig import NETWORK
from tests.stories.service_rig import (
    ACCOUNT,
    CA,
    GUEST,
    INTERFACE,
    SERVER,
    NetworkLink,
    ServiceRig,
    a_cloud_config,
)
from tests.support.clock import LoopClock
from tests.support.cloud_provider import run as cloud_provider

from windrow.apiserver.request.info import (
    name_from_field_selector,
    parse_request_info,
    query_options,
    request_verb,
)
from windrow.apiserver.server import ApiServer
from windrow.apiserver.storage import MemoryStore
from windrow.client.client import Client
from windrow.client.in_process import InProcessTransport
from windrow.cloudprovider.options import Options
from windrow.core.logs import line_logger
from windrow.core.rng import Rng
from windrow.emulator import kinds
from windrow.emulator.guest_cluster.charts import CLOUD_CONFIG
from windrow.kubernetes.errors import Forbidden
from windrow.kubernetes.handler import Handler, Peer, TlsIdentity
from windrow.kubernetes.objects import Raw, annotations_of, name_of, nested, new_object
from windrow.kubernetes.requests import Reply, Request, WatchEvent
from windrow.kubernetes.resources import (
    CLUSTER_ROLE,
    CLUSTER_ROLE_BINDING,
    CONFIG_MAP,
    EVENT,
    LEASE,
    NODE,
    ROLE,
    ROLE_BINDING,
    SERVICE,
    SERVICE_ACCOUNT,
    ApiResource,
    ObjectRef,
)
from windrow.kubernetes.resources import NAMESPACE as NAMESPACES
from windrow.probes.endpoints import Endpoints, ProbeRequest

KINDS: dict[str, ApiResource] = {
    kind.kind: kind for kind in (SERVICE_ACCOUNT, CLUSTER_ROLE, CLUSTER_ROLE_BINDING, ROLE, ROLE_BINDING)
}
ZONE = "topology.kubernetes.io/zone"
UNINITIALISED = "node.cloudprovider.kubernetes.io/uninitialized"
LEASE_REF = LEASE.ref("cloud-controller-manager", "kube-system")
NETWORKS = CONFIG_MAP.ref("harvester-nad-mapping", "kube-system")


@dataclass(frozen=True, order=True)
class Permission:
    """One verb on one resource; `namespace` "" is everywhere, `name` "" is any."""

    verb: str
    resource: str  # with group and subresource, as `leases.coordination.k8s.io`, `nodes/status`
    namespace: str = ""
    name: str = ""

    def __str__(self) -> str:
        where = f" in {self.namespace}" if self.namespace else ""
        return f"{self.verb} {self.resource}{where}{f' named {self.name}' if self.name else ''}"

    def covers(self, other: Permission) -> bool:
        return (
            (self.verb, self.resource) == (other.verb, other.resource)
            and self.namespace in ("", other.namespace)
            and self.name in ("", other.name)
        )


def rights_of(objects: Sequence[Raw], name: str = NAME) -> list[Permission]:
    """Every single right of the roles whose names begin so: those of the provider."""
    return [right for raw in _roles(objects, name) for rule in raw["rules"] for right in _rights(raw, rule)]


def without(objects: Sequence[Raw], right: Permission, name: str = NAME) -> list[Raw]:
    """The same objects, but for that right."""
    return [
        {**raw, "rules": [one for rule in raw["rules"] for one in _split(raw, rule, right)]}
        if raw in _roles(objects, name)
        else raw
        for raw in objects
    ]


def _roles(objects: Sequence[Raw], name: str) -> list[Raw]:
    return [
        raw
        for raw in objects
        if raw["kind"] in ("ClusterRole", "Role") and raw["metadata"]["name"].startswith(name)
    ]


def _rights(role: Raw, rule: Raw) -> Iterator[Permission]:
    parts = product(rule["verbs"], rule["resources"], rule["apiGroups"], rule.get("resourceNames") or [""])
    for verb, resource, group, name in parts:
        yield Permission(verb, _resource(resource, group), role["metadata"].get("namespace", ""), name)


def _split(role: Raw, rule: Raw, right: Permission) -> Iterator[Raw]:
    if right not in list(_rights(role, rule)):
        yield rule
        return
    named = [{"resourceNames": [name]} for name in rule.get("resourceNames", ())]
    for resource, verb, name in product(rule["resources"], rule["verbs"], named or [{}]):
        one = {**rule, "resources": [resource], "verbs": [verb], **name}
        if right not in list(_rights(role, one)):
            yield one


def _resource(resource: str, group: str) -> str:
    plural, slash, subresource = resource.partition("/")
    return f"{plural}{f'.{group}' if group else ''}{slash}{subresource}"


# --- the door -------------------------------------------------------------------------------------------------------


class RightsRecorder:
    """A door that notes which right each request needs, and which requests are refused."""

    def __init__(self, door: Handler) -> None:
        self._door = door
        self.asked: set[Permission] = set()
        self.refused: list[str] = []

    def identity(self) -> TlsIdentity | None:
        return self._door.identity()

    async def send(self, request: Request, peer: Peer) -> Reply:
        self._note(request)
        reply = await self._door.send(request, peer)
        if reply.status == 403:
            self.refused.append(str(self._right(request)))
        return reply

    @asynccontextmanager
    async def stream(self, request: Request, peer: Peer) -> AsyncIterator[AsyncIterator[WatchEvent]]:
        self._note(request)
        try:
            async with self._door.stream(request, peer) as events:
                yield events
        except Forbidden:
            self.refused.append(str(self._right(request)))
            raise

    def _note(self, request: Request) -> None:
        right = self._right(request)
        if right is not None:
            self.asked.add(right)

    @staticmethod
    def _right(request: Request) -> Permission | None:
        target, options = parse_request_info(request.path), query_options(request)
        if not target.is_resource:
            return None
        verb = request_verb(request.method, target, options)
        resource = _resource(
            f"{target.plural}/{target.subresource}" if target.subresource else target.plural, target.group
        )
        return Permission(verb, resource, target.namespace, target.name or name_from_field_selector(options))


# --- the stage ------------------------------------------------------------------------------------------------------


class RestrictedRig(ServiceRig):
    """A rig whose guest API asks for rights, of the provider and of kube-vip."""

    def __init__(self, host: Balancing, clock: LoopClock, rng: Rng, tasks: asyncio.TaskGroup) -> None:
        super().__init__(host, clock, rng, tasks)
        self.api = ApiServer(MemoryStore(), clock, rng, name="guest", tls=SERVER, authorize="rbac")
        self.watchman = RightsRecorder(self.api)
        self.links["guest"] = NetworkLink(self.watchman)
        self.guest = self.api.local("user", ("system:masters",))
        self.announcer = Announcer(self.api)
        self.pages: list[Endpoints] = []

    async def install(self, objects: Sequence[Raw]) -> None:
        """Accounts and roles of the chart; the provider's token lies where a pod has it."""
        for raw in objects:
            if raw["kind"] in KINDS:
                await self.guest.create(KINDS[raw["kind"]], raw)
        account = await self.guest.get(SERVICE_ACCOUNT.ref(NAME, NAMESPACE))
        self.files[f"{ACCOUNT}/token"] = await self.api.service_account_tokens.issue(account)
        self.files[f"{ACCOUNT}/ca.crt"] = CA[0]

    async def provide(self, argv: Sequence[str], name: str) -> int:
        """The program, in a pod of that name."""
        env = {"HOSTNAME": name, "KUBERNETES_SERVICE_HOST": GUEST, "KUBERNETES_SERVICE_PORT": "6443"}

        @asynccontextmanager
        async def serve(options: Options, pages: Endpoints, say: Any) -> AsyncIterator[None]:
            self.pages.append(pages)
            yield

        return await cloud_provider(
            argv,
            env,
            self.read,
            lambda access: InProcessTransport(access, self.find, self.clock, read_file=self.read),
            self.clock,
            Rng(name),
            line_logger("harvester-cloud-provider", self.said.append),
            serve=serve,
        )

    async def sees(self, holds: Callable[[], Awaitable[Any]], within_s: float = 30) -> bool:
        """Whether that comes about in time."""
        end = self.now_s + within_s
        while not await holds():
            if self.now_s >= end:
                return False
            await asyncio.sleep(0.25)
        return True


@asynccontextmanager
async def a_restricted_rig(objects: Sequence[Raw]) -> AsyncIterator[RestrictedRig]:
    clock, rng = LoopClock(), Rng(1)
    async with asyncio.TaskGroup() as tasks:
        host = Balancing(clock, rng)
        rig = RestrictedRig(host, clock, rng, tasks)
        running = [tasks.create_task(one) for one in (host.run(), rig.api.run(), rig.announcer.run())]
        host.api.tokens["host-token"] = ("system:serviceaccount:default:demo", (), None)
        rig.files[CLOUD_CONFIG] = a_cloud_config("host-token")
        await rig.guest.create(NAMESPACES, new_object(NAMESPACES, "team"))
        await rig.install(objects)
        program = tasks.create_task(rig.provide(command_of(list(objects)), "pod-1"))
        try:
            yield rig
        finally:
            for task in (program, *running):
                task.cancel()


# --- the life -------------------------------------------------------------------------------------------------------


@dataclass
class RunResult:
    """`did` holds each thing that a user relies on, and whether it came about."""

    did: dict[str, bool] = field(default_factory=dict)
    asked: set[Permission] = field(default_factory=set)
    refused: list[str] = field(default_factory=list)
    said: list[str] = field(default_factory=list)


async def run_cloud_provider(objects: Sequence[Raw]) -> RunResult:
    """A cluster's first hour."""
    life = RunResult()
    async with a_restricted_rig(objects) as rig:
        for chapter in (_lead, _nodes, _services, _metrics, _lead_on):
            await chapter(rig, life.did)
        life.asked, life.refused, life.said = rig.watchman.asked, rig.watchman.refused, rig.said
    return life


async def _lead(rig: RestrictedRig, did: dict[str, bool]) -> None:
    async def holds() -> bool:
        raw = await rig.guest.find(LEASE_REF)
        return str(nested(raw, "spec", "holderIdentity", default="")).startswith("pod-1")

    did["leads"] = await rig.sees(holds)


async def _lead_on(rig: RestrictedRig, did: dict[str, bool]) -> None:
    before = nested(await rig.guest.find(LEASE_REF), "spec", "renewTime", default="")
    await rig.pass_time(30)
    did["keeps the lead"] = nested(await rig.guest.find(LEASE_REF), "spec", "renewTime", default="") > before


async def _nodes(rig: RestrictedRig, did: dict[str, bool]) -> None:
    for name in ("m-1", "m-2"):
        await rig.add_machine(name)

    async def node(name: str = "m-1") -> Raw:
        return await rig.guest.find(NODE.ref(name)) or {}

    async def is_initialised() -> bool:
        keys = [taint["key"] for taint in nested(await node(), "spec", "taints", default=[])]
        return nested(await node(), "metadata", "labels", ZONE) == "z1" and UNINITIALISED not in keys

    async def has_address() -> bool:
        return {"type": "InternalIP", "address": "192.168.50.2"} in nested(
            await node(), "status", "addresses", default=[]
        )

    async def has_moved() -> bool:
        return bool(nested(await node(), "metadata", "labels", ZONE) == "z2")

    async def is_gone() -> bool:
        return await node("m-2") == {}

    async def networks() -> str:
        return str(nested(await rig.guest.find(NETWORKS), "data", default={}))

    did["initialises nodes"] = await rig.sees(is_initialised)
    did["writes addresses"] = await rig.sees(has_address)
    did["tells of nodes"] = await rig.sees(lambda: _has_event(rig, "Node", "m-1"))
    did["maps networks"] = await rig.sees(lambda: _is_in("enp1s0", networks()))
    zone = {"metadata": {"annotations": {ZONE: "z2"}}}
    await rig.at_host.patch(kinds.VMI.ref("m-1", "default"), zone)
    did["follows a migration"] = await rig.sees(has_moved)
    await rig.lose_machine("m-2")
    did["removes nodes that are gone"] = await rig.sees(is_gone, 120)
    await _rename_card(rig, "eth7")
    did["follows networks"] = await rig.sees(lambda: _is_in("eth7", networks()))


async def _rename_card(rig: RestrictedRig, device: str) -> None:
    """The guest says now that its card is this interface."""
    card = {"name": "nic-0", "interfaceName": device, "ipAddresses": ["192.168.50.2"]}
    await rig.at_host.patch(kinds.VMI.ref("m-1", "default"), {"status": {"interfaces": [card]}})


async def _services(rig: RestrictedRig, did: dict[str, bool]) -> None:
    await rig.make_pool("10.1.0.10-12")
    await rig.serve("web", "team")
    did["gives addresses of a pool"] = await rig.sees(lambda: rig.address("web", "team"), 60)
    await rig.serve("asks", "team", ipam="dhcp", ports=(81,))
    did["gives addresses of DHCP"] = await rig.sees(lambda: rig.address("asks", "team"), 60)
    await rig.serve("second", "team", primary="web", ports=(82,))
    did["shares addresses"] = await rig.sees(lambda: rig.address("second", "team"), 60)
    did["tells of services"] = await rig.sees(lambda: _has_event(rig, "Service", "web"))
    await _wire(rig, did)
    await _change_type(rig, did)
    for name in ("second", "web", "asks", "turns", "wired"):
        await rig.delete(name, "team")

    async def are_gone() -> bool:
        services = [await rig.service(name, "team") for name in ("web", "asks", "second", "turns", "wired")]
        return not any(services) and await rig.balancers() == []

    did["gives addresses back"] = await rig.sees(are_gone, 60)


async def _wire(rig: RestrictedRig, did: dict[str, bool]) -> None:
    """A service on a network of its own is announced on the interface that this network is in the guests."""

    async def is_on(device: str) -> bool:
        return annotations_of(await rig.service("wired", "team") or {}).get(INTERFACE) == device

    await rig.serve("wired", "team", network=NETWORK, ports=(84,))
    did["puts services on their network"] = await rig.sees(lambda: is_on("eth7"))
    await _rename_card(rig, "eth8")
    did["follows networks with services"] = await rig.sees(lambda: is_on("eth8"))


async def give_back_address(guest: Client, ref: ObjectRef) -> Raw:
    """The patch by which a user says that kube-vip has let go of the address of a Service of another type."""
    kept = [key for key in annotations_of(await guest.get(ref)) if key.startswith("kube-vip.io/")]
    return {"metadata": {"annotations": dict.fromkeys(kept)}}


async def _change_type(rig: RestrictedRig, did: dict[str, bool]) -> None:
    """To a plain service and back: the second time, the same events are counted on the first ones."""
    ref = SERVICE.ref("turns", "team")

    async def is_plain() -> bool:
        balancers = await rig.balancers()
        return await rig.address("turns", "team") == "" and not any(
            "-turns-" in name_of(one) for one in balancers
        )

    async def is_counted() -> bool:
        told = [raw for raw in await rig.guest.list(EVENT) if raw["involvedObject"]["name"] == "turns"]
        return any(raw["count"] > 1 for raw in told)

    await rig.serve("turns", "team", ports=(83,))
    await rig.sees(lambda: rig.address("turns", "team"))
    await rig.guest.patch(ref, {"spec": {"type": "ClusterIP"}})
    await rig.guest.patch(ref, await give_back_address(rig.guest, ref))
    did["follows a change of type"] = await rig.sees(is_plain)
    await rig.guest.patch(ref, {"spec": {"type": "LoadBalancer"}})
    did["counts what it tells again"] = await rig.sees(is_counted)


async def _metrics(rig: RestrictedRig, did: dict[str, bool]) -> None:
    reader = new_object(SERVICE_ACCOUNT, "prometheus", "team")
    rules = [{"nonResourceURLs": ["/metrics"], "verbs": ["get"]}]
    subject = {"kind": "ServiceAccount", "name": "prometheus", "namespace": "team"}
    role = {"apiGroup": CLUSTER_ROLE.group, "kind": "ClusterRole", "name": "reader"}
    account = await rig.guest.create(SERVICE_ACCOUNT, reader)
    await rig.guest.create(CLUSTER_ROLE, new_object(CLUSTER_ROLE, "reader", rules=rules))
    await rig.guest.create(
        CLUSTER_ROLE_BINDING, new_object(CLUSTER_ROLE_BINDING, "reader", roleRef=role, subjects=[subject])
    )
    token = await rig.api.service_account_tokens.issue(account)
    for pages in rig.pages:
        shown = await pages.respond(ProbeRequest("GET", "/metrics", {}, token))
        did["shows metrics"] = shown.status == 200
        hidden = await pages.respond(ProbeRequest("GET", "/metrics", {}, "another"))
        did["hides metrics"] = hidden.status == 401


async def _has_event(rig: RestrictedRig, kind: str, name: str) -> bool:
    about = [raw["involvedObject"] for raw in await rig.guest.list(EVENT)]
    return any((one["kind"], one["name"]) == (kind, name) for one in about)


async def _is_in(part: str, text: Awaitable[str]) -> bool:
    return part in await text
