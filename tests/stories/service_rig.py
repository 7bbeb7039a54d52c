"""A guest cluster's API, its kube-vip, Harvester's side, and the cloud provider between them, on a driven clock.

What is real and what is not:

* the cloud provider is the whole program, `cloudprovider.cmd.main.run`, with the arguments that its chart renders and
  the rights that Harvester and the chart give it; each start is a pod, which the rig starts again when it ends;
* Harvester is either the whole emulated cluster (`a_service_rig(whole=True)`) or only its load balancer controller, IPAM and
  webhooks on an API of their own, which starts in a millisecond. VMs are then objects that nothing acts on;
* kube-vip is `Announcer`, one small loop with the manners of the real one; nodes are objects.

Between the program and the two APIs stand, from the inside out: the API's fault door, a `NetworkLink`, and the `Line` of one process, which is cut when that process is killed.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from datetime import timedelta
from functools import cache
from typing import Any, Protocol

from tests.support.clock import NOON, LoopClock
from tests.support.cloud_provider import run as cloud_provider

from windrow.apiserver.server import ApiServer
from windrow.apiserver.storage import MemoryStore
from windrow.app.network import CountingTransport
from windrow.client.in_process import InProcessTransport
from windrow.client.transport import Transport
from windrow.core import pki
from windrow.core.logs import line_logger
from windrow.core.rng import Rng
from windrow.emulator import kinds
from windrow.emulator.delays import ScaledClock
from windrow.emulator.faults import FaultInjector, Faults
from windrow.emulator.guest_cluster.charts import CLOUD_CONFIG, render_arguments
from windrow.emulator.harvester import PORT, VIP, Harvester
from windrow.emulator.host.networks import Lan, render_network
from windrow.emulator.kit.network import Network
from windrow.emulator.load_balancers.controllers import LoadBalancerControllers
from windrow.emulator.preload import Image, VmNetwork
from windrow.kubernetes.errors import NotFound, OutcomeUnknown
from windrow.kubernetes.handler import Handler, Peer, TlsIdentity
from windrow.kubernetes.kubeconfig import ClientConfig, render_kubeconfig
from windrow.kubernetes.objects import Raw, nested, new_object, uid_of
from windrow.kubernetes.requests import Reply, Request, WatchEvent
from windrow.kubernetes.resources import (
    NAMESPACE,
    NODE,
    ROLE_BINDING,
    SECRET,
    SERVICE,
    SERVICE_ACCOUNT,
    ObjectRef,
)

from .announcing import Announcer
from .balancing import Balancing
from .crashes import Fate, Line, Moment, Process, Write
from .harvester_rig import IMAGE, NETWORK, blank

CLUSTER = "demo"
PROVIDER = "cloudprovider.harvesterhci.io"
CLEANUP = "service.kubernetes.io/load-balancer-cleanup"
ADDRESSES = "kube-vip.io/loadbalancerIPs"
INTERFACE = "kube-vip.io/serviceInterface"
IPAM, NETWORK_OF, PRIMARY = f"{PROVIDER}/ipam", f"{PROVIDER}/network", f"{PROVIDER}/primary-service"

GUEST = "10.43.0.1"
US = "system:serviceaccount:kube-system:harvester-cloud-provider"
AT_HOST = "system:serviceaccount:default:demo"
ACCOUNT = "/var/run/secrets/kubernetes.io/serviceaccount"

CA = pki.new_ca("guest", NOON, 3650)
SERVER = TlsIdentity(
    *pki.issue_certificate(
        *CA, common_name="guest", server=True, ips=[GUEST], now=NOON, lifetime=timedelta(days=3650)
    )
)


# --- Harvester ------------------------------------------------------------------------------------------------------


class Host(Protocol):
    """What a story needs of either Harvester."""

    api: ApiServer
    handler: FaultInjector
    faults: Faults
    network: Network
    balancers: LoadBalancerControllers


# --- the way there --------------------------------------------------------------------------------------------------


class NetworkLink:
    """A network cable: shut, no request gets through, and what was connected breaks.

    `delay_s` is what a request takes to get there, and its answer back; `lag_s` how far watches are behind.
    """

    def __init__(self, door: Handler) -> None:
        self._door = door
        self._streams: dict[
            asyncio.Timeout, None
        ] = {}  # in their order, for the story is to be the same each time
        self.is_open = True
        self.delay_s = self.lag_s = 0.0

    def shut(self) -> None:
        self.is_open = False
        self.cut()

    def open(self) -> None:
        self.is_open = True

    def cut(self) -> None:
        """Break every watch, once."""
        for scope in tuple(self._streams):
            scope.reschedule(asyncio.get_running_loop().time())
        self._streams.clear()

    def identity(self) -> TlsIdentity | None:
        return self._door.identity()

    async def send(self, request: Request, peer: Peer) -> Reply:
        if self.delay_s:
            await asyncio.sleep(self.delay_s)
        reply = await self._door.send(request, peer)
        if self.delay_s:
            await asyncio.sleep(self.delay_s)
        if not self.is_open:
            raise OutcomeUnknown("connection reset by peer (the cable was pulled)")
        return reply

    @asynccontextmanager
    async def stream(self, request: Request, peer: Peer) -> AsyncIterator[AsyncIterator[WatchEvent]]:
        scope = asyncio.timeout(None)
        try:
            async with scope, self._door.stream(request, peer) as events:
                self._streams[scope] = None
                yield _lagging(events, self.lag_s) if self.lag_s else events
        except TimeoutError as error:
            raise OutcomeUnknown(
                "connection reset by peer (the cable was pulled, in the middle of a watch)"
            ) from error
        finally:
            self._streams.pop(scope, None)


async def _lagging(events: AsyncIterator[WatchEvent], lag_s: float) -> AsyncIterator[WatchEvent]:
    async for event in events:
        await asyncio.sleep(lag_s)
        yield event


# --- the rig ---------------------------------------------------------------------------------------------------------


@dataclass
class Pod:
    """One pod of the cloud provider, and the process in it."""

    name: str
    argv: tuple[str, ...]
    clock: LoopClock
    process: Process = field(default_factory=Process)
    task: asyncio.Task[None] | None = None
    starts: int = 0
    results: list[int] = field(default_factory=list)


class ServiceRig:
    """The whole stage. Guest objects through `guest`, Harvester's through `at_host`, both as their administrators."""

    def __init__(self, host: Host, clock: LoopClock, rng: Rng, tasks: asyncio.TaskGroup) -> None:
        self.clock, self.rng, self.tasks, self.host = clock, rng, tasks, host
        self.pod_clock = clock  # of the machine that pods are started on
        self.api = ApiServer(MemoryStore(), clock, rng, name="guest", tls=SERVER)
        self.api.tokens["guest-token"] = (US, ("system:serviceaccounts",), None)
        self.faults = Faults()
        self.links = {
            "host": NetworkLink(host.handler),
            "guest": NetworkLink(FaultInjector(self.api, self.faults, ScaledClock(clock), rng)),
        }
        self.guest, self.at_host = self.api.local("user"), host.api.local("administrator")
        self.announcer = Announcer(self.api)
        self.pods: list[Pod] = []
        self.calls: Counter[str] = Counter()
        self.said: list[str] = []
        self.files = {f"{ACCOUNT}/ca.crt": CA[0], f"{ACCOUNT}/token": "guest-token"}
        # What `Line` asks for, and what it tells.
        self.fate: Fate | None = None
        self.writes: list[Write] = []
        self.deaths: list[Moment] = []
        self.sent = 0
        self.posthumous: list[str] = []  # what was made by requests that outlived their sender
        self._under_way: set[asyncio.Task[Reply]] = set()
        self._died = asyncio.Event()

    # -- time

    @property
    def now_s(self) -> float:
        return (self.clock.now() - NOON) / timedelta(seconds=1)

    async def pass_time(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    async def until(self, holds: Callable[[], Coroutine[Any, Any, Any]], within_s: float = 600) -> Any:
        """What `holds` returns as soon as it is something; fails when simulated time runs out."""
        end = self.now_s + within_s
        while not (found := await holds()):
            assert self.now_s < end, f"waited {within_s} s for {holds.__qualname__}"
            await asyncio.sleep(0.05)
        return found

    # -- the program

    def start(self, *extra: str, cluster: str = CLUSTER) -> Pod:
        """Start a pod as the chart does, and again whenever its program ends."""
        values = {"global": {"cattle": {"clusterName": cluster}}, "extraArgs": list(extra)}
        pod = Pod(f"provider-{len(self.pods) + 1}", tuple(render_arguments(values)), self.pod_clock)
        self.pods.append(pod)
        self._go(pod)
        return pod

    def _go(self, pod: Pod) -> None:
        pod.process = Process()
        pod.task = self.tasks.create_task(self._keep(pod, pod.process))

    async def _keep(self, pod: Pod, process: Process) -> None:
        while process.alive:
            pod.starts += 1
            env = {
                "HOSTNAME": pod.name,
                "KUBERNETES_SERVICE_HOST": GUEST,
                "KUBERNETES_SERVICE_PORT": "6443",
            }
            life = cloud_provider(
                pod.argv,
                env,
                self.read,
                lambda access: self._dial(access, process),
                pod.clock,
                Rng(f"{self.rng.bits(64)}"),
                line_logger("harvester-cloud-provider", self.said.append),
            )
            try:
                pod.results.append(await life)
            except BaseExceptionGroup:  # what a cut line leaves behind
                if process.alive:
                    raise
                return
            await asyncio.sleep(1)

    def read(self, path: str) -> str:
        if path not in self.files:
            raise FileNotFoundError(path)
        return self.files[path]

    def _dial(self, access: ClientConfig, process: Process) -> Transport:
        label = "guest" if GUEST in access.server else "host"
        plain = InProcessTransport(access, self.find, self.clock, read_file=self.read)
        lives = _Process(self, process)
        return Line(CountingTransport(plain, self.calls, label), label, process, lives)  # type: ignore[arg-type]

    def find(self, address: str, port: int) -> Handler | None:
        gate = self.links["guest" if address == GUEST else "host"]
        return gate if gate.is_open else None

    async def stop(self, pod: Pod) -> None:
        """SIGTERM."""
        await self._end(pod)

    async def kill(self, pod: Pod) -> None:
        """SIGKILL: what it sent is carried out, nothing more is sent."""
        pod.process.die()
        await self._end(pod)

    async def _end(self, pod: Pod) -> None:
        if pod.task is not None:
            pod.task.cancel()
            await asyncio.gather(pod.task, return_exceptions=True)

    async def restart(self, pod: Pod) -> None:
        process = pod.process
        await self.kill(pod)
        self._revive(pod, process)

    def _revive(self, pod: Pod, dead: Process) -> None:
        """Start it anew, unless it was started already."""
        if pod.process is dead:
            self._go(pod)

    async def follow_deaths(self) -> None:
        """Bring killed pods back a second later, until cancelled."""
        while True:
            await self._died.wait()
            self._died.clear()
            for pod in self.pods:
                if not (process := pod.process).alive:
                    await self._end(pod)
                    await asyncio.sleep(1)
                    self._revive(pod, process)

    # -- for `Line`

    def next_number(self) -> int:
        self.sent += 1
        return self.sent

    def strikes(self, when: Any, number: int = 0, what: str = "") -> bool:
        moment = Moment(when, number, self.now_s, what)
        struck = self.fate is not None and self.fate.strikes(moment)
        if struck:
            self.deaths.append(moment)
            self._died.set()
        return struck

    def deliver(self, sending: Coroutine[Any, Any, Reply]) -> asyncio.Task[Reply]:
        """What was sent is carried out, whether or not its sender lives to hear of it."""
        task = asyncio.get_running_loop().create_task(sending)
        self._under_way.add(task)
        task.add_done_callback(self._delivered)
        return task

    def _delivered(self, task: asyncio.Task[Reply]) -> None:
        self._under_way.discard(task)
        if not task.cancelled():
            task.exception()  # its sender hears of it, if anybody does

    def note(self, number: int, what: str, status: int) -> Write:
        write = Write(number, what, status, self.now_s)
        self.writes.append(write)
        return write

    # -- users

    async def serve(
        self, name: str = "web", namespace: str = "default", *, ipam: str = "pool", **rest: Any
    ) -> Raw:
        """A user creates a service of type LoadBalancer."""
        return await self.guest.create(SERVICE, a_service(name, namespace, ipam=ipam, **rest))

    async def service(self, name: str = "web", namespace: str = "default") -> Raw | None:
        return await self.guest.find(SERVICE.ref(name, namespace))

    async def annotate(self, name: str = "web", namespace: str = "default", **marks: str | None) -> Raw:
        """Set or remove annotations of the cloud provider; `ipam="dhcp"`, `primary_service=None`."""
        said = {f"{PROVIDER}/{key.replace('_', '-')}": value for key, value in marks.items()}
        return await self.guest.patch(SERVICE.ref(name, namespace), {"metadata": {"annotations": said}})

    async def delete(self, name: str = "web", namespace: str = "default") -> None:
        with suppress(NotFound):
            await self.guest.delete(SERVICE.ref(name, namespace))

    async def address(self, name: str = "web", namespace: str = "default") -> str:
        """The first address in a service's status; "" while it has none."""
        raw = await self.service(name, namespace)
        return str(nested(raw, "status", "loadBalancer", "ingress", 0, "ip", default=""))

    async def served(self, name: str = "web", namespace: str = "default", within_s: float = 600) -> str:
        """A service's address, as soon as it has one."""
        return str(await self.until(lambda: self.address(name, namespace), within_s))

    async def gone(self, name: str = "web", namespace: str = "default", within_s: float = 600) -> None:
        async def is_gone() -> bool:
            return await self.service(name, namespace) is None

        await self.until(is_gone, within_s)

    # -- administrators of Harvester

    async def make_pool(self, *ranges: str, name: str = "lan", cluster: str = "*", **rest: Any) -> Raw:
        """A pool of these ranges, each `10.1.0.10-12` or one address."""
        return await self.at_host.create(kinds.IP_POOL, a_pool(*ranges, name=name, cluster=cluster, **rest))

    async def set_ranges(self, *ranges: str, name: str = "lan") -> Raw:
        change = {"spec": {"ranges": [_range(one) for one in ranges]}}
        return await self.at_host.patch(kinds.IP_POOL.ref(name), change)

    async def balancers(self) -> list[Raw]:
        return await self.at_host.list(kinds.LOAD_BALANCER)

    # -- machines, where nothing acts on them

    async def add_machine(self, name: str, zone: str = "z1") -> None:
        labels = {"guestcluster.harvesterhci.io/name": CLUSTER}
        vm = await self.at_host.create(
            kinds.VM, new_object(kinds.VM, name, "default", labels=labels, spec=VM_SPEC)
        )
        await self.at_host.create(
            kinds.VMI,
            new_object(
                kinds.VMI,
                name,
                "default",
                labels=labels,
                annotations={"topology.kubernetes.io/zone": zone, "topology.kubernetes.io/region": "r1"},
                spec={**VM_SPEC["template"]["spec"]},
                status={
                    "phase": "Running",
                    "conditions": [{"type": "AgentConnected", "status": "True"}],
                    "interfaces": [
                        {
                            "name": "nic-0",
                            "interfaceName": "enp1s0",
                            "ipAddress": "192.168.50.2",
                            "ipAddresses": ["192.168.50.2"],
                        }
                    ],
                },
            ),
        )
        await self.join(name, vm_uid=uid_of(vm))

    async def join(self, name: str, vm_uid: str = "") -> None:
        """A Ready node of the guest, as its kubelet registers it."""
        taint = {
            "key": "node.cloudprovider.kubernetes.io/uninitialized",
            "value": "true",
            "effect": "NoSchedule",
        }
        spec: Raw = {"taints": [taint]}
        if vm_uid:
            spec["providerID"] = f"harvester://{vm_uid}"
        await self.guest.create(NODE, new_object(NODE, name, spec=spec))
        await self.be_ready(name, True)

    async def be_ready(self, name: str, ready: bool) -> None:
        condition = {"type": "Ready", "status": "True" if ready else "Unknown"}
        await self.guest.patch(NODE.ref(name), {"status": {"conditions": [condition]}}, "status")

    async def lose_machine(self, name: str) -> None:
        for kind in (kinds.VMI, kinds.VM):
            with suppress(NotFound):
                await self.at_host.delete(kind.ref(name, "default"))
        with suppress(NotFound):
            await self.be_ready(name, False)


class _Process:
    """What a line of one process reports: the rig's own, and what its requests did after its death."""

    def __init__(self, rig: ServiceRig, process: Process) -> None:
        self._process = process
        self._rig = rig
        self.next_number = rig.next_number
        self.strikes = rig.strikes
        self.deliver = rig.deliver

    def note(self, number: int, what: str, status: int) -> None:
        write = self._rig.note(number, what, status)
        if write.made_something and not self._process.alive:
            self._rig.posthumous.append(what)


VM_SPEC: Raw = {
    "runStrategy": "RerunOnFailure",
    "template": {
        "spec": {
            "domain": {"devices": {"interfaces": [{"name": "nic-0", "bridge": {}}]}},
            "networks": [{"name": "nic-0", "multus": {"networkName": NETWORK}}],
        }
    },
}


def a_service(
    name: str = "web",
    namespace: str = "default",
    *,
    ipam: str = "pool",
    network: str = "",
    primary: str | None = None,
    ports: Iterable[int | tuple[str, int]] = (80,),
    type: str = "LoadBalancer",
    annotations: Mapping[str, str] | None = None,
    labels: Mapping[str, str] | None = None,
    finalizers: Sequence[str] = (),
    **spec: Any,
) -> Raw:
    """A service as a user writes one; a port is a number, or (protocol, number)."""
    said = {IPAM: ipam, NETWORK_OF: network}
    said = {key: value for key, value in said.items() if value} | dict(annotations or {})
    if primary is not None:
        said[PRIMARY] = primary
    pairs = [one if isinstance(one, tuple) else ("TCP", one) for one in ports]
    listed = [
        {"name": f"p{number}-{protocol.lower()}", "port": number, "protocol": protocol}
        for protocol, number in pairs
    ]
    spec = {"type": type, "ports": listed, "selector": {"app": name}, **spec}
    return new_object(
        SERVICE, name, namespace, annotations=said, labels=labels, finalizers=finalizers, spec=spec
    )


def a_pool(
    *ranges: str,
    name: str = "lan",
    cluster: str = "*",
    namespace: str = "*",
    network: str = "",
    priority: int = 0,
    project: str = "*",
) -> Raw:
    scope = [{"project": project, "namespace": namespace, "guestCluster": cluster}]
    selector = {"network": network, "scope": scope, "priority": priority}
    spec = {"ranges": [_range(one) for one in ranges or ("10.1.0.10-12",)], "selector": selector}
    return new_object(kinds.IP_POOL, name, spec=spec)


def _range(text: str) -> Raw:
    first, _, last = text.partition("-")
    stem = first.rpartition(".")[0]
    return {
        "subnet": f"{stem}.0/24",
        "rangeStart": first,
        "rangeEnd": f"{stem}.{last}" if last else first,
    }


# --- a rig with either Harvester ------------------------------------------------------------------------------------


@asynccontextmanager
async def a_service_rig(
    seed: int | str = 1, *, whole: bool = False, version: str = "v1.8.2", machines: Sequence[str] = ("m-1",)
) -> AsyncIterator[ServiceRig]:
    """A rig with machines and a credential, in which no cloud provider runs yet."""
    clock, rng = LoopClock(), Rng(seed)
    async with asyncio.TaskGroup() as tasks:
        host: Any = (
            Harvester(clock, rng, machine_factory=blank, version=version)
            if whole
            else Balancing(clock, rng, version)
        )
        rig = ServiceRig(host, clock, rng, tasks)
        running = [
            tasks.create_task(host.run()),
            tasks.create_task(rig.announcer.run()),
            tasks.create_task(rig.follow_deaths()),
        ]
        if whole:
            networks = [VmNetwork(NETWORK, vlan=50, cidr="192.168.50.0/24")]
            await host.preload(images=[Image(IMAGE)], networks=networks)
            rig.files[CLOUD_CONFIG] = await an_account(host)
        else:
            host.api.tokens["host-token"] = (AT_HOST, ("system:serviceaccounts",), None)
            rig.files[CLOUD_CONFIG] = a_cloud_config("host-token")
            lan = render_network("default", "vlan50", 50, Lan("192.168.50.0/24"))
            await rig.at_host.create(kinds.NAD, lan)
            for name in machines:
                await rig.add_machine(name)
        await rig.guest.create(NAMESPACE, new_object(NAMESPACE, "team"))
        # Every cluster has it; its uid tells one guest from another.
        own = a_service("kubernetes", ipam="", ports=[443], type="ClusterIP")
        await rig.guest.create(SERVICE, own)
        try:
            yield rig
        finally:
            rig.fate = None
            for task in running:
                task.cancel()
            for pod in rig.pods:
                await rig.kill(pod)


@cache
def a_cloud_config(token: str, namespace: str = "default") -> str:
    return render_kubeconfig(
        ClientConfig(f"http://{VIP}:{PORT}", token=token, namespace=namespace), "default"
    )


async def an_account(
    harvester: Harvester, name: str = CLUSTER, namespace: str = "default", bound_in: str = "default"
) -> str:
    """What Harvester's `generate` makes for a guest cluster: account, token, role binding; the kubeconfig."""
    line = harvester.api.local()
    account = new_object(SERVICE_ACCOUNT, name, namespace)
    note = {"kubernetes.io/service-account.name": name}
    token = new_object(
        SECRET, f"{name}-token", namespace, annotations=note, type="kubernetes.io/service-account-token"
    )
    binding = new_object(
        ROLE_BINDING,
        f"{namespace}-{name}",
        bound_in,
        roleRef={
            "apiGroup": "rbac.authorization.k8s.io",
            "kind": "ClusterRole",
            "name": "harvesterhci.io:cloudprovider",
        },
        subjects=[{"kind": "ServiceAccount", "name": name, "namespace": namespace}],
    )
    for kind, raw in ((SERVICE_ACCOUNT, account), (SECRET, token), (ROLE_BINDING, binding)):
        await line.create(kind, raw)
    while not nested(raw := await line.get(SECRET.ref(f"{name}-token", namespace)), "data", "token"):
        await harvester.clock.sleep(0.1)
    from windrow.bootstrap.guest_account import find_kubeconfig

    text = find_kubeconfig(raw, harvester.url, namespace)
    assert text is not None
    return text


def service_ref(name: str = "web", namespace: str = "default") -> ObjectRef:
    return SERVICE.ref(name, namespace)
