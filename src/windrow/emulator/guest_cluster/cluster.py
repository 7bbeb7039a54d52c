"""One guest cluster: its API and datastore, its etcd members, and the servers and kubelets that run at the moment.

The objects and the member list represent what etcd keeps on the servers' disks, so they outlive each machine.
The cluster itself runs nothing: each task belongs to a machine and ends with its power.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import defaultdict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from ipaddress import IPv4Network, IPv6Network, ip_network
from typing import TYPE_CHECKING, Any

from windrow.apiserver.loopback import LoopbackClient
from windrow.apiserver.server import ApiServer
from windrow.apiserver.services.allocation import ServiceRanges
from windrow.apiserver.storage import MemoryStore
from windrow.core import pki
from windrow.core.clock import Clock, format_micro_time
from windrow.core.formats.cidr import is_address
from windrow.core.formats.version import Version
from windrow.core.rng import Rng
from windrow.emulator.guest_cluster.admission import StorageAdmission
from windrow.emulator.guest_cluster.components.unsimulated import UnsimulatedKinds
from windrow.emulator.guest_cluster.containers.logs import read_log
from windrow.emulator.guest_cluster.csi.kinds import SNAPSHOT_CRDS
from windrow.emulator.guest_cluster.csi.port import RegisteredDrivers
from windrow.emulator.guest_cluster.datastore.releases import has_snapshot_files
from windrow.emulator.guest_cluster.datastore.snapshot_file import SNAPSHOT_CRD
from windrow.emulator.guest_cluster.distribution.distribution import Settings
from windrow.emulator.guest_cluster.distribution.helm_crds import HELM_CRDS
from windrow.emulator.guest_cluster.distribution.pki import CertificateAuthorities
from windrow.emulator.guest_cluster.etcd import EtcdMembers
from windrow.emulator.guest_cluster.kube_vip.settings import KubeVipSettings
from windrow.emulator.guest_cluster.rotation.encryption import start_encryption
from windrow.emulator.guest_os.hardware import File
from windrow.emulator.guest_os.notifier import Notifier
from windrow.emulator.guest_os.operating_system import GuestOS
from windrow.emulator.kit.client import AdminClient
from windrow.emulator.kit.listers import Key
from windrow.kubernetes.errors import AlreadyExists, Conflict, NotFound
from windrow.kubernetes.handler import TlsIdentity
from windrow.kubernetes.objects import Raw, new_object
from windrow.kubernetes.resources import LEASE, NODE, ApiResource, ObjectRef

if TYPE_CHECKING:
    from windrow.emulator.guest_cluster.containers.runtime import Containers
    from windrow.emulator.guest_cluster.datastore.snapshots import EtcdSnapshots
    from windrow.emulator.guest_cluster.volumes.volume_manager import VolumeManager

_LEAF_DAYS = 365
# Flags that name addresses and names of a server.
SAN_FLAGS = ("tls-san", "node-ip", "node-external-ip", "advertise-address")


@dataclass(slots=True)
class ServerInstance:
    """One running server of the cluster."""

    node: str
    address: str
    settings: Settings
    version: Version
    identity: TlsIdentity = field(repr=False)
    api_up: bool = False
    stopped: asyncio.Event = field(default_factory=asyncio.Event)
    server_password: str = field(default="", repr=False)  # as it was when the process started
    agent_password: str = field(default="", repr=False)
    log: Callable[[str], None] = print  # of its process
    guest: GuestOS | None = None
    snapshots: EtcdSnapshots | None = None  # of a server with embedded etcd


@dataclass(slots=True)
class Heartbeat:
    """The heartbeat of one kubelet: whether it reports, and when it last did. While its machine has power, containers go on
    without it."""

    alive: bool
    last: timedelta  # by the monotonic clock
    has_power: Callable[[], bool] = lambda: False

    @property
    def runs_containers(self) -> bool:
        return self.alive or self.has_power()


class MountFailed(Exception):
    """A volume of the pod cannot be set up; the message is the kubelet's event text."""


EVERY_NODE = "*"


@dataclass(slots=True)
class ChartPod:
    """A pod of a bundled chart, which runs the program that has the chart's name: one, or one on each node (EVERY_NODE). `uid` is that
    of the Pod object for which it runs.

    `command` gives the program's arguments on a node and `mount` the files it sees; both are called at every start of the
    pod. `side_cars` are its other containers.
    """

    name: str
    chart: str
    command: Callable[[str], Awaitable[Sequence[str]]]
    mount: Callable[[GuestOS], Awaitable[Mapping[str, File]]]
    tolerations: Sequence[Mapping[str, Any]] = ()
    node: str = ""
    uid: str = ""
    generation: int = 0  # incremented when another pod takes its place
    side_cars: Callable[[GuestOS, str], Awaitable[None]] | None = None

    def is_on(self, node: str) -> bool:
        return self.node in (node, EVERY_NODE)


@dataclass(frozen=True, slots=True)
class ChartRelease:
    """An installed chart: its HelmChart, and the chart's own values. `ignored` are keys that its version does not know, `number` is
    that version, () for the newest."""

    name: str
    namespace: str
    target_namespace: str
    defaults: Mapping[str, Any]
    ignored: frozenset[str] = frozenset()
    number: tuple[int, ...] = ()


class GuestCluster:
    """State that the machines of one cluster share."""

    def __init__(
        self,
        uid: str,
        version: Version,
        authorities: CertificateAuthorities,
        settings: Settings,
        server_password: str,
        agent_password: str,
        clock: Clock,
        rng: Rng,
    ) -> None:
        self.uid = uid
        self.version = version
        self.last_started = version  # the release of the server that started last: its charts are installed
        self.authorities = authorities
        self.server_password = server_password
        self.agent_password = agent_password
        self.distribution = settings.distribution
        self.critical = settings.critical()
        self.clock = clock
        self.changed = Notifier()
        self.restores = 0  # how often etcd was restored from a snapshot
        self.encryption = start_encryption(settings, Rng(f"encryption of {uid}"))
        self.etcd = EtcdMembers(on_change=self.changed.notify)
        self.etcd.is_embedded = settings.starts_etcd
        self.servers: dict[str, ServerInstance] = {}
        self.heartbeats: dict[str, Heartbeat] = {}
        self.pods: dict[str, ChartPod] = {}
        self.addons: dict[str, str] = {}  # checksum of each applied manifest file
        self.releases: dict[str, ChartRelease] = {}  # by the chart whose program it runs
        self.helm_specs: dict[Key, Raw] = {}  # the spec with which each HelmChart was installed
        self.csi = RegisteredDrivers(on_change=self.changed.notify)
        self.volume_managers: dict[str, VolumeManager] = {}  # of the kubelets that run, by node
        self.containers: dict[str, Containers] = {}  # of the kubelets that run, by node
        self.served_files: dict[Key, Callable[[], str]] = {}  # what pods serve over HTTP of their files
        self.on_pod_volumes: Callable[[Key], None] = (
            _ignore  # called with a pod whose volumes or containers changed
        )
        self.leader_lock = asyncio.Lock()
        self.vip_settings: KubeVipSettings | None = None  # set once its chart is deployed
        self.vip_changed = Notifier()
        # By lease of kube-vip: the lock of its election, and the node that held it last ("" once it is released).
        self.vip_locks: dict[Key, asyncio.Lock] = defaultdict(asyncio.Lock)
        self.vip_leaders: dict[Key, str] = defaultdict(str)
        self.store = MemoryStore()
        self.api = ApiServer(
            self.store,
            clock,
            rng,
            name=f"guest {uid}",
            version=str(version),
            authorize="rbac",
            root_ca=authorities.server_ca,
            services=read_service_ranges(settings),
            graceful_pod_deletion=True,
            protect_claims=True,
        )
        StorageAdmission(self.api)
        self._install_definitions()
        unsimulated = UnsimulatedKinds()
        self.api.warn_of_write = lambda type: unsimulated.warn(type.kind, custom=type.custom)
        self.api.subresource_handlers["pods", "log"] = partial(read_log, self)
        self._pod_ranges = 0

    def _install_definitions(self) -> None:
        for crd in (*HELM_CRDS, *(SNAPSHOT_CRDS if self.distribution.has_snapshot_controller else ())):
            self.api.install_crd(crd)
        if has_snapshot_files(self.version):
            self.api.install_crd(SNAPSHOT_CRD, Rng(f"snapshots of {self.uid}"))

    def pods_of(self, chart: str) -> list[ChartPod]:
        """The pods of a bundled chart that is installed."""
        return [pod for pod in self.pods.values() if pod.chart == chart]

    # -- availability

    def is_usable(self) -> bool:
        """Whether an API server is up and etcd has quorum."""
        return self.etcd.has_quorum() and any(server.api_up for server in self.servers.values())

    async def wait_usable(self) -> None:
        """Return once the API can be used."""
        await self.changed.wait_for(self.is_usable)

    def find_api_server(self, preferred: str = "") -> ServerInstance | None:
        """A server whose API is up: that of node `preferred` if it is, else any."""
        up = {name: server for name, server in self.servers.items() if server.api_up}
        return up.get(preferred) or next(iter(up.values()), None)

    def is_outpaced(self, server: ServerInstance) -> bool:
        """Whether another API server is two minors or more ahead, which nothing forbids and nothing supports."""
        others = (one.version for one in self.servers.values() if one.api_up)
        return any(one.line >= (server.version.major, server.version.minor + 2) for one in others)

    @property
    def oldest_api_version(self) -> Version:
        """The release that kubelets may not be newer than."""
        return min(
            (server.version for server in self.servers.values() if server.settings.runs_api),
            default=self.version,
        )

    # -- data

    def list_stored(self) -> list[tuple[str, bytes]]:
        """Every object of now by its key, encoded."""
        return [(entry.key, entry.data) for entry in self.store.snapshot()[1]]

    def render_bootstrap(self) -> Raw:
        """What the server token opens: the certificate authorities, the agents' password, the keys of Secrets."""
        return {
            "files": dict(self.authorities.files),
            "agentPassword": self.agent_password,
            "encryption": self.encryption.render() if self.encryption is not None else None,
        }

    async def reload(self) -> None:
        """Serve what the store has now: its objects were replaced."""
        self.api.forget_definitions()
        self._install_definitions()
        self.api.root_ca = self.authorities.server_ca
        await self.api.prepare()

    def open_bootstrap(self, authorities: CertificateAuthorities, server: str, agent: str) -> None:
        """The authorities and passwords are those of a snapshot from now on."""
        self.authorities, self.server_password, self.agent_password = authorities, server, agent

    def reserve_pod_ranges(self, count: int) -> None:
        """So many ranges of pods are taken by Nodes that came with the data."""
        self._pod_ranges = max(self._pod_ranges, count)

    # -- access

    def client(
        self, user: str = "system:admin", groups: tuple[str, ...] = ("system:masters",)
    ) -> LoopbackClient:
        return self.api.local(user, groups)

    async def list_nodes(self) -> list[Raw]:
        """All Nodes as they are stored: not copies, and not to be changed. What every change of the cluster asks for would
        otherwise be decoded once for each Node and change."""
        return [entry.raw for entry in await self.api.context.entries(NODE)]

    async def edit(
        self, ref: ObjectRef, change: Callable[[Raw], object], *, subresource: str = ""
    ) -> Raw | None:
        """`AdminClient.mutate` once the API can be used, repeated until there is no conflict."""
        await self.wait_usable()
        while True:
            with contextlib.suppress(Conflict):
                return await AdminClient(self.client()).mutate(ref, change, subresource)

    async def renew_lease(self, namespace: str, name: str, holder: str, seconds: float) -> None:
        spec = {
            "holderIdentity": holder,
            "leaseDurationSeconds": int(seconds),
            "renewTime": format_micro_time(self.clock.now()),
        }
        await self.ensure(LEASE, new_object(LEASE, name, namespace, spec=spec))

    async def ensure(self, kind: ApiResource, raw: Mapping[str, Any], namespace: str = "") -> Raw:
        """Merge `raw` into the object by one patch; create the object when it is missing."""
        await self.wait_usable()
        local = self.client()
        ref = kind.ref(raw["metadata"]["name"], namespace or raw["metadata"].get("namespace", ""))
        while True:
            try:
                return await local.patch(ref, raw)
            except NotFound:
                with contextlib.suppress(AlreadyExists):  # created meanwhile
                    return await local.create(kind, raw, ref.namespace)

    # -- certificates

    def issue_server_identity(self, node: str, addresses: Sequence[str], settings: Settings) -> TlsIdentity:
        """The serving certificate of the API and the supervisor, signed by the server CA for all names of the server."""
        services = settings.list("service-cidr") or ("10.43.0.0/16",)
        ips = ["127.0.0.1", "::1", *map(_first_address, services), *addresses]
        service, domain = "kubernetes.default.svc", settings.text("cluster-domain", "cluster.local")
        names = ["kubernetes", "kubernetes.default", service, f"{service}.{domain}", "localhost", node]
        for flag in SAN_FLAGS:
            for name in settings.list(flag):
                (ips if is_address(name) else names).append(name)
        certificate, key = pki.issue_certificate(
            self.authorities.server_ca,
            self.authorities.server_key,
            common_name=self.distribution.name,
            organizations=(self.distribution.name,),
            dns=tuple(dict.fromkeys(names)),
            ips=tuple(dict.fromkeys(ips)),
            server=True,
            now=self.clock.now(),
            lifetime=timedelta(days=_LEAF_DAYS),
        )
        return TlsIdentity(certificate + self.authorities.server_ca, key, self.authorities.client_ca)

    def allocate_pod_ranges(self) -> list[str]:
        """The next range of each network of pods: a /24, in IPv6 a /64."""
        self._pod_ranges += 1
        return [
            _nth_range(ip_network(text, strict=False), self._pod_ranges - 1)
            for text in self.critical["cluster-cidr"].split(",")
        ]


def _ignore(_: Key) -> None:
    return None


def read_service_ranges(settings: Settings) -> ServiceRanges:
    """The address and port ranges of Services."""
    networks = settings.list("service-cidr") or ("10.43.0.0/16",)
    first, _, last = settings.text("service-node-port-range", "30000-32767").partition("-")
    ports = (int(first), int(last)) if first.isdigit() and last.isdigit() else (30000, 32767)
    return ServiceRanges(tuple(networks), ports)


def _first_address(cidr: str) -> str:
    return str(ip_network(cidr, strict=False).network_address + 1)


def _nth_range(network: IPv4Network | IPv6Network, number: int) -> str:
    prefix = max(network.prefixlen, 24 if network.version == 4 else 64)
    place = number % 2 ** (prefix - network.prefixlen)
    size = network.max_prefixlen - prefix
    return f"{network.network_address + (place << size)}/{prefix}"
