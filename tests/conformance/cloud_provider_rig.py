"""Real cloud providers as processes, between an emulated Harvester and a guest cluster's API, both on loopback.

The test plays what else a cluster has: kubelets (`register`, `heart`), and kube-vip (`PlayedKubeVip`).
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import socket
import sys
import time
from asyncio.subprocess import Process
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Protocol
from zlib import crc32

import pytest
from tests.conformance.node_driver_rig import RecordedRequest, RecordingHandler, count_requests, real_program

from windrow.apiserver.http import Listener
from windrow.apiserver.server import ApiServer
from windrow.apiserver.storage import MemoryStore
from windrow.app.clock import SystemClock
from windrow.client.informer import Informer
from windrow.client.transport import Transport
from windrow.core import pki
from windrow.core.clock import format_micro_time, format_time
from windrow.core.rng import Rng
from windrow.emulator import kinds
from windrow.emulator.guest_os.hardware import AgentReport, BlockDevice, Hardware, HostInterface
from windrow.emulator.harvester import Harvester
from windrow.emulator.load_balancers.services import (
    HARDWARE_ADDRESS,
    REQUEST_DHCP,
    REQUESTED_ADDRESS,
    VIP_HOST,
    render_ingress,
    requested_addresses,
)
from windrow.emulator.preload import Image, VmNetwork
from windrow.emulator.proxy import serve
from windrow.kubernetes.errors import AlreadyExists, Conflict, Invalid, NotFound
from windrow.kubernetes.handler import TlsIdentity
from windrow.kubernetes.kubeconfig import ClientConfig, render_kubeconfig
from windrow.kubernetes.objects import Raw, annotations_of, name_of, namespace_of, nested, new_object
from windrow.kubernetes.requests import put_subresource
from windrow.kubernetes.resources import LEASE, NAMESPACE, NODE, SERVICE, ApiResource, ObjectRef

GO_PROVIDER = "WINDROW_GO_CLOUD_PROVIDER"
PROGRAM = "harvester-cloud-provider"
CLUSTER = "demo"
IMAGE = "default/jammy"
NETWORK, OTHER_NETWORK = "default/vlan50", "default/vlan60"
HOST_NAMESPACE = "default"
SPEED = 60.0

PREFIX = "cloudprovider.harvesterhci.io"
UNINITIALISED = "node.cloudprovider.kubernetes.io/uninitialized"
SHUTDOWN = "node.cloudprovider.kubernetes.io/shutdown"
PROVIDED_IP = "alpha.kubernetes.io/provided-node-ip"
ZONE = "topology.kubernetes.io/zone"
GUEST_CLUSTER = "guestcluster.harvesterhci.io/name"


class Api(Protocol):
    """What both a server in this process and one behind a socket offer."""

    async def get(self, ref: ObjectRef) -> Raw: ...
    async def find(self, ref: ObjectRef) -> Raw | None: ...
    async def list(
        self, kind: ApiResource, namespace: str = "", labels: str = "", fields: str = ""
    ) -> list[Raw]: ...
    async def create(self, kind: ApiResource, raw: Mapping[str, Any], namespace: str = "") -> Raw: ...
    async def update(self, kind: ApiResource, raw: Mapping[str, Any], subresource: str = "") -> Raw: ...
    async def patch(self, ref: ObjectRef, change: Mapping[str, Any], subresource: str = "") -> Raw: ...
    async def delete(self, ref: ObjectRef) -> Raw: ...


def our_program() -> Path:
    """Our program: the console script beside this interpreter."""
    script = Path(sys.executable).with_name(PROGRAM)
    if not script.exists():
        pytest.skip(f"{script} is not installed: pip install -e .")
    return script


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


async def eventually(
    holds: Callable[[], Awaitable[Any]], what: str, within: float = 30, every: float = 0.05
) -> Any:
    """What `holds` gives once it is true."""
    deadline = time.monotonic() + within
    while not (found := await holds()):
        assert time.monotonic() < deadline, f"not within {within:g} s: {what}"
        await asyncio.sleep(every)
    return found


# --- Harvester ----------------------------------------------------------------------------------------------------


class PassiveMachine:
    """A machine whose agent reports what the test says: addresses by card, and how it calls itself."""

    def __init__(self, hardware: Hardware, wires: HostInterface, told: Mapping[str, AgentReport]) -> None:
        self._hardware, self._wires, self._told = hardware, wires, told
        self._ending: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    async def run(self) -> str:
        addresses = {}
        for nic in self._hardware.nics:
            lease = await self._wires.lease(nic, self._hardware.name)
            if lease is not None:
                addresses[nic.name] = (lease.address,)
        name = self._hardware.name
        self._wires.report_agent(self._told.get(name) or AgentReport(name, addresses))
        return await self._ending

    async def shutdown(self) -> None:
        if not self._ending.done():
            self._ending.set_result("poweroff")

    def change_disks(self, disks: tuple[BlockDevice, ...]) -> None:
        """Its disks do not matter."""


@dataclass
class Host:
    """A served Harvester, and the requests it got."""

    harvester: Harvester
    door: RecordingHandler
    kubeconfig: str = field(repr=False)
    reports: dict[str, AgentReport]

    @property
    def api(self) -> Api:
        return self.harvester.api.local()

    async def make_vm(
        self, name: str, *networks: str, report: AgentReport | None = None, cluster: str = CLUSTER
    ) -> Raw:
        """A machine of the guest cluster that runs and has told its addresses; its VM."""
        if report is not None:
            self.reports[name] = report
        image = await self.api.get(kinds.IMAGE.ref(IMAGE.partition("/")[2], "default"))
        vm = a_vm(name, networks or (NETWORK,), cluster, image["status"]["storageClassName"])
        made = await self.api.create(kinds.VM, vm)
        await self.until_told(name)
        return made

    async def until_told(self, name: str) -> None:
        """Wait until the machine runs, has told its addresses, and its zone is known."""

        async def has_told() -> bool:
            vmi = await self.api.find(kinds.VMI.ref(name, HOST_NAMESPACE)) or {}
            return bool(nested(vmi, "status", "interfaces", 0, "ipAddress")) and ZONE in annotations_of(vmi)

        await eventually(has_told, f"{name} runs")

    async def until_stopped(self, name: str) -> None:
        async def stopped() -> bool:
            return await self.api.find(kinds.VMI.ref(name, HOST_NAMESPACE)) is None

        await eventually(stopped, f"{name} stopped")

    async def migrate(self, name: str) -> str:
        """Move the machine to another host, which is in another zone; that zone, once it is there."""
        ref = kinds.VMI.ref(name, HOST_NAMESPACE)
        zone = annotations_of(await self.api.get(ref))[ZONE]
        await self.order("migrate", name)

        async def moved() -> str:
            now = annotations_of(await self.api.get(ref)).get(ZONE, zone)
            return "" if now == zone else now

        found: str = await eventually(moved, f"{name} is in another zone")
        return found

    async def address_of(self, name: str) -> str:
        vmi = await self.api.get(kinds.VMI.ref(name, HOST_NAMESPACE))
        return str(nested(vmi, "status", "interfaces", 0, "ipAddress"))

    async def remove_vm(self, name: str) -> None:
        ref = kinds.VM.ref(name, HOST_NAMESPACE)
        await self.api.delete(ref)

        async def gone() -> bool:
            return await self.api.find(ref) is None

        await eventually(gone, f"VM {name} is gone")

    async def order(self, verb: str, name: str) -> None:
        reply = await self.harvester.api.local().send(
            put_subresource(kinds.VM_SUBRESOURCES.ref(name, HOST_NAMESPACE), verb)
        )
        assert reply.status == 202, reply

    async def make_pool(
        self,
        name: str,
        first: str,
        last: str,
        network: str = "",
        *,
        wide: bool = False,
        priority: int = 0,
    ) -> None:
        subnet = ".".join(first.split(".")[:2]) + ".0.0/16" if wide else first.rpartition(".")[0] + ".0/24"
        scope = [{"project": "*", "namespace": "*", "guestCluster": CLUSTER}]
        spec: Raw = {
            "ranges": [{"subnet": subnet, "rangeStart": first, "rangeEnd": last}],
            "selector": {"network": network, "scope": scope, "priority": priority},
        }
        await self.api.create(kinds.IP_POOL, new_object(kinds.IP_POOL, name, spec=spec))

        async def ready() -> bool:
            found = await self.api.get(kinds.IP_POOL.ref(name))
            return nested(found, "status", "total", default=0) > 0

        await eventually(ready, f"pool {name} is ready")


@asynccontextmanager
async def a_host(
    *,
    speed: float = SPEED,
    seed: int = 1,
    lan: str = "192.168.50.0/24",
    networks: Sequence[str] = (),
    **rest: Any,
) -> AsyncIterator[Host]:
    """A Harvester with an image and two networks, and these, behind TLS on loopback. `rest` is the emulator's."""
    reports: dict[str, AgentReport] = {}
    harvester = Harvester(
        SystemClock(),
        Rng(seed),
        machine_factory=lambda hardware, wires: PassiveMachine(hardware, wires, reports),
        time_scale=speed,
        **rest,
    )
    harvester.handler = door = RecordingHandler(harvester.handler)  # type: ignore[assignment]
    async with asyncio.TaskGroup() as tasks:
        running = tasks.create_task(harvester.run())
        try:
            async with serve(harvester) as served:
                more = [VmNetwork(name, 70 + place) for place, name in enumerate(networks)]
                known = [VmNetwork(NETWORK, 50, lan), VmNetwork(OTHER_NETWORK, 60, "192.168.60.0/24")]
                await harvester.preload(images=[Image(IMAGE)], networks=[*known, *more])
                yield Host(harvester, door, harvester.admin_kubeconfig(served.url), reports)
        finally:
            running.cancel()


def a_vm(name: str, networks: Sequence[str], cluster: str, storage_class: str) -> Raw:
    """A VM as the node driver posts one, a card for each network."""
    labels = {
        "harvesterhci.io/creator": "docker-machine-driver-harvester",
        "harvesterhci.io/vmName": name,
        GUEST_CLUSTER: cluster,
    }
    claim = {
        "metadata": {"name": f"{name}-disk-0-abcde", "annotations": {"harvesterhci.io/imageId": IMAGE}},
        "spec": {
            "accessModes": ["ReadWriteMany"],
            "resources": {"requests": {"storage": "10Gi"}},
            "storageClassName": storage_class,
            "volumeMode": "Block",
        },
    }
    cards = [f"nic-{place}" for place in range(len(networks))]
    spec = {
        "domain": {
            "cpu": {"cores": 1, "sockets": 1, "threads": 1},
            "resources": {"limits": {"cpu": "1", "memory": "1Gi"}},
            "devices": {
                "disks": [{"name": "disk-0", "disk": {"bus": "virtio"}, "bootOrder": 1}],
                "interfaces": [{"name": card, "model": "virtio", "bridge": {}} for card in cards],
            },
        },
        "networks": [
            {"name": card, "multus": {"networkName": one}} for card, one in zip(cards, networks, strict=True)
        ],
        "volumes": [{"name": "disk-0", "persistentVolumeClaim": {"claimName": f"{name}-disk-0-abcde"}}],
    }
    return new_object(
        kinds.VM,
        name,
        HOST_NAMESPACE,
        labels=labels,
        annotations={"harvesterhci.io/volumeClaimTemplates": json.dumps([claim])},
        spec={"runStrategy": "RerunOnFailure", "template": {"metadata": {"labels": labels}, "spec": spec}},
    )


# --- the guest cluster's API --------------------------------------------------------------------------------------


@dataclass
class Guest:
    """The API of a guest cluster: ours in this process, or another's."""

    api: Api
    transport: Transport
    kubeconfig: str = field(repr=False)
    door: RecordingHandler | None = None

    async def make_namespace(self, name: str) -> None:
        with contextlib.suppress(AlreadyExists):
            await self.api.create(NAMESPACE, new_object(NAMESPACE, name))

    async def make_service(self, raw: Raw) -> Raw:
        await self.make_namespace(namespace_of(raw))
        return await self.api.create(SERVICE, raw)

    async def register(
        self,
        name: str,
        address: str = "",
        *,
        ready: bool = True,
        annotations: Mapping[str, str] | None = None,
        labels: Mapping[str, str] | None = None,
    ) -> Raw:
        """What a kubelet with `cloud-provider=external` does first."""
        said = {**({PROVIDED_IP: address} if address else {}), **(annotations or {})}
        known = {"kubernetes.io/hostname": name, "kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64"}
        taint = {"key": UNINITIALISED, "value": "true", "effect": "NoSchedule"}
        raw = new_object(
            NODE, name, labels={**known, **(labels or {})}, annotations=said, spec={"taints": [taint]}
        )
        raw["status"] = {"addresses": [{"type": "Hostname", "address": name}]}
        made = await self.api.create(NODE, raw)
        await self.set_ready(name, "True" if ready else "False")
        return made

    async def set_ready(self, name: str, status: str) -> None:
        """The Ready condition, as a kubelet or the node controller writes it."""
        now = format_time(datetime.now(UTC))
        condition = {
            "type": "Ready",
            "status": status,
            "reason": {"True": "KubeletReady", "False": "KubeletNotReady"}.get(status, "NodeStatusUnknown"),
            "message": "",
            "lastHeartbeatTime": now,
            "lastTransitionTime": now,
        }
        await self.api.patch(NODE.ref(name), {"status": {"conditions": [condition]}}, "status")

    async def node_where(self, name: str, holds: Callable[[Raw], Any], what: str, within: float = 30) -> Raw:
        async def look() -> Raw | None:
            raw = await self.api.find(NODE.ref(name))
            return raw if raw is not None and holds(raw) else None

        found: Raw = await eventually(look, f"node {name}: {what}", within)
        return found

    async def service_where(
        self,
        name: str,
        holds: Callable[[Raw], Any],
        what: str,
        within: float = 30,
        namespace: str = "default",
    ) -> Raw:
        async def look() -> Raw | None:
            raw = await self.api.find(SERVICE.ref(name, namespace))
            return raw if raw is not None and holds(raw) else None

        found: Raw = await eventually(look, f"service {namespace}/{name}: {what}", within)
        return found

    async def delete(self, ref: ObjectRef) -> None:
        await self.api.delete(ref)

    async def until_gone(self, ref: ObjectRef, within: float = 30) -> None:
        async def gone() -> bool:
            return await self.api.find(ref) is None

        await eventually(gone, f"{ref} is gone", within)


@asynccontextmanager
async def our_guest(seed: int = 2) -> AsyncIterator[Guest]:
    """A guest API of our own, behind TLS on loopback; every request is noted."""
    clock = SystemClock()
    ca, ca_key = pki.new_ca("guest", clock.now(), 2)
    chain, key = pki.issue_certificate(
        ca, ca_key, common_name="api", ips=["127.0.0.1"], server=True, now=clock.now(),
        lifetime=timedelta(days=1),
    )  # fmt: skip
    server = ApiServer(MemoryStore(), clock, Rng(seed), tls=TlsIdentity(chain, key, ca), root_ca=ca)
    server.tokens["t"] = ("program", ("system:masters",), None)
    door = RecordingHandler(server)
    async with asyncio.TaskGroup() as tasks:
        running = tasks.create_task(server.run())
        try:
            async with Listener(door) as listener:
                access = ClientConfig(f"https://127.0.0.1:{listener.port}", ca=ca, token="t")
                local = server.local()
                spec = {"ports": [{"name": "https", "port": 443, "targetPort": 6443}]}
                await local.create(SERVICE, new_object(SERVICE, "kubernetes", "default", spec=spec))
                yield Guest(local, local, render_kubeconfig(access, "guest"), door)
        finally:
            running.cancel()


# --- what else a cluster has --------------------------------------------------------------------------------------


class FakeKubeVip:
    """Gives each load balancer service the address that it asks for, and says so as kube-vip does.

    Whom DHCP gives which address is told by the service's name, so that two runs give the same.
    """

    def __init__(self, guest: Guest, node: str = "n-vip") -> None:
        self._guest, self._node = guest, node
        # When a service first asked for its address, and when it was told; time.perf_counter().
        self.asked_at: dict[str, float] = {}
        self.told_at: dict[str, float] = {}

    async def run(self) -> None:
        services = Informer(
            self._guest.transport, SERVICE, "", lambda raw: raw, SystemClock(), Rng(5), on_error=None
        )
        async with asyncio.TaskGroup() as group:
            group.create_task(services.run())
            async for _, raw in services.changes():
                if raw is not None:
                    await self._serve(raw)

    async def _serve(self, raw: Raw) -> None:
        asked = requested_addresses(raw)
        if not asked or nested(raw, "metadata", "deletionTimestamp"):
            return
        self.asked_at.setdefault(name_of(raw), time.perf_counter())
        said = {VIP_HOST: self._node}
        given = []
        for address in asked:
            if address == REQUEST_DHCP:
                address = f"192.168.50.{200 + crc32(name_of(raw).encode()) % 50}"
                said |= {HARDWARE_ADDRESS: "02:00:00:00:00:01", REQUESTED_ADDRESS: address}
            given.append(address)
        await self._change(raw, lambda one: one["metadata"].setdefault("annotations", {}).update(said))
        ingress = render_ingress(raw, given)
        await self._change(
            raw, lambda one: one.setdefault("status", {}).update(loadBalancer={"ingress": ingress}), "status"
        )
        self.told_at.setdefault(name_of(raw), time.perf_counter())

    async def _change(self, raw: Raw, edit: Callable[[Raw], None], subresource: str = "") -> None:
        ref = SERVICE.ref(name_of(raw), namespace_of(raw))
        while True:
            found = await self._guest.api.find(ref)
            if found is None or found["metadata"]["uid"] != raw["metadata"]["uid"]:
                return
            before = json.dumps(found)
            edit(found)
            if json.dumps(found) == before:
                return
            try:
                await self._guest.api.update(SERVICE, found, subresource)
            except Conflict:
                continue
            except (NotFound, Invalid):  # gone, or of another type by now
                pass
            return


async def keep_heartbeat(guest: Guest, name: str, every: float = 1.0) -> None:
    """A kubelet's heartbeat: its Lease, and its Ready condition where the node controller doubted it."""
    ref = LEASE.ref(name, "kube-node-lease")
    await guest.make_namespace("kube-node-lease")
    while True:
        spec = {
            "holderIdentity": name,
            "leaseDurationSeconds": 4,
            "renewTime": format_micro_time(datetime.now(UTC)),
        }
        if await guest.api.find(ref) is None:
            await guest.api.create(LEASE, new_object(LEASE, name, "kube-node-lease", spec=spec))
        else:
            await guest.api.patch(ref, {"spec": spec})
        node = await guest.api.find(NODE.ref(name))
        if node is not None and not is_ready(node):
            await guest.set_ready(name, "True")
        await asyncio.sleep(every)


def is_ready(node: Raw) -> bool:
    conditions = nested(node, "status", "conditions", default=[])
    return any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)


def has_taint(node: Raw, key: str) -> bool:
    return any(one["key"] == key for one in nested(node, "spec", "taints", default=[]))


def addresses_of(service: Raw) -> list[str]:
    return [one["ip"] for one in nested(service, "status", "loadBalancer", "ingress", default=[])]


# --- the programs -------------------------------------------------------------------------------------------------


@dataclass
class Running:
    """A provider that runs."""

    process: Process
    log_path: Path
    port: int

    @property
    def pid(self) -> int:
        return self.process.pid

    def log(self) -> str:
        return self.log_path.read_text()

    async def end(self, within: float = 10) -> int:
        """SIGTERM; its exit code. The Go program does not listen: it is killed after `within`."""
        self.process.send_signal(signal.SIGTERM)
        waiting = asyncio.ensure_future(self.process.wait())
        done, _ = await asyncio.wait([waiting], timeout=within)
        if not done:
            self.process.kill()
        return await waiting


@asynccontextmanager
async def a_provider(
    program: Path, folder: Path, host: Host, guest: Guest, *flags: str, cluster: str = CLUSTER
) -> AsyncIterator[Running]:
    """The program at work, on loopback alone. It is killed when the block ends, if it still runs."""
    folder.mkdir(parents=True, exist_ok=True)  # noqa: ASYNC240
    cloud_config, kubeconfig = folder / "cloud-config", folder / "kubeconfig"
    cloud_config.write_text(host.kubeconfig)
    kubeconfig.write_text(guest.kubeconfig)
    port = free_port()
    log = folder / f"provider-{port}.log"
    arguments = [
        "--cloud-provider=harvester",
        f"--cloud-config={cloud_config}",
        f"--kubeconfig={kubeconfig}",
        f"--cluster-name={cluster}",
        f"--secure-port={port}",
        "--bind-address=127.0.0.1",
        f"--webhook-secure-port={free_port()}",
        "--webhook-bind-address=127.0.0.1",
        f"--authentication-kubeconfig={kubeconfig}",
        f"--authorization-kubeconfig={kubeconfig}",
        *flags,
    ]
    env = {
        "PATH": "/usr/bin:/bin",
        "HOME": str(folder),
        "TMPDIR": str(folder),
        "KUBECONFIG": str(kubeconfig),  # the Go program's second client reads nothing else
        "HOSTNAME": f"pod-{port}",
    }
    with log.open("wb") as out:
        process = await asyncio.create_subprocess_exec(
            str(program), *arguments, env=env, cwd=folder, stdin=asyncio.subprocess.DEVNULL, stdout=out,
            stderr=out, start_new_session=True,
        )  # fmt: skip
    try:
        yield Running(process, log, port)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        await process.wait()


@asynccontextmanager
async def run_beside(*parts: Awaitable[None]) -> AsyncIterator[None]:
    """These run for as long as the block does."""
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(_wait(part)) for part in parts]
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()


async def _wait(part: Awaitable[None]) -> None:
    await part


# --- requests -----------------------------------------------------------------------------------------------------

WRITES = ("POST", "PUT", "PATCH", "DELETE")


def writes(notes: Iterable[RecordedRequest]) -> list[RecordedRequest]:
    """Successful writes that are not the leader's."""
    return [
        one for one in notes if one.request.method in WRITES and one.status < 300 and "lease" not in one.what
    ]


def count_api_requests(notes: Iterable[RecordedRequest]) -> Counter[str]:
    """Requests by method and kind, without the leader's and without discovery."""
    return count_requests(
        [
            one
            for one in notes
            if "lease" not in one.what and not one.what.startswith("namespaces") and one.what
        ]
    )


__all__ = [
    "CLUSTER",
    "GO_PROVIDER",
    "Api",
    "FakeKubeVip",
    "Guest",
    "Host",
    "Running",
    "a_host",
    "a_provider",
    "eventually",
    "our_guest",
    "our_program",
    "real_program",
    "run_beside",
]
