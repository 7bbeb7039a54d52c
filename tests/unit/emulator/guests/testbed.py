"""Testbed for simulated machines: one VLAN with DHCP, power, serial consoles; and the user data of an RKE2 cluster,
as an administrator would write it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from tests.support.clock import NOON, LoopClock

from windrow.core import pki
from windrow.core.clock import sleep
from windrow.core.formats.json import loads
from windrow.core.formats.yaml import dump
from windrow.core.rng import Rng
from windrow.emulator.guest_cluster.cluster import GuestCluster
from windrow.emulator.guest_cluster.distribution.tokens import hash_authorities
from windrow.emulator.guest_os.delays import GuestDelays
from windrow.emulator.guest_os.hardware import (
    AgentReport,
    DhcpLease,
    Disk,
    GuestProgram,
    Hardware,
    Machine,
    Nic,
)
from windrow.emulator.guest_os.machine import machine_factory
from windrow.emulator.kit.network import Network
from windrow.kubernetes import requests
from windrow.kubernetes.handler import Peer
from windrow.kubernetes.objects import name_of, nested
from windrow.kubernetes.resources import NODE, ApiResource, ObjectRef

DAY = timedelta(days=1)
VERSION = "v1.35.1+rke2r1"


@dataclass
class FakeHost:
    """The host interface of one machine."""

    testbed: MachineTestbed
    name: str
    lines: list[str] = field(default_factory=list)
    report: AgentReport | None = None

    @property
    def clock(self) -> LoopClock:
        return self.testbed.clock

    @property
    def rng(self) -> Rng:
        return self.testbed.rng

    @property
    def network(self) -> Network:
        return self.testbed.network

    @property
    def time_scale(self) -> float:
        return self.testbed.time_scale

    async def lease(self, nic: Nic, hostname: str) -> DhcpLease | None:
        if not self.testbed.dhcp:
            return None
        taken = set(self.testbed.leases.values())
        free = next(one for number in range(11, 250) if (one := f"10.0.0.{number}") not in taken)
        return DhcpLease(self.testbed.leases.setdefault(nic.mac, free), 24, "10.0.0.1")

    def autoconfigure(self, nic: Nic) -> str:
        return ""

    def use(self, nic: Nic, address: str) -> str:
        owner = self.testbed.static.setdefault(address, nic.mac)
        return "" if owner == nic.mac else owner

    async def release(self, nic: Nic) -> None:
        self.testbed.leases.pop(nic.mac, None)

    def console(self, line: str) -> None:
        self.lines.append(line)

    def report_agent(self, report: AgentReport | None) -> None:
        self.report = report

    def logged(self, words: str) -> bool:
        return any(words in line for line in self.lines)


class MachineTestbed:
    """Machines by name; their disks stay when the power goes."""

    def __init__(
        self,
        programs: Mapping[str, GuestProgram] | None = None,
        delays: GuestDelays | None = None,
        time_scale: float = 1.0,
    ) -> None:
        self.clock = LoopClock()
        self.rng = Rng(7)
        self.network = Network()
        self.time_scale = time_scale
        self.dhcp = True
        self.leases: dict[str, str] = {}
        self.static: dict[str, str] = {}  # MAC address by static address
        self.hosts: dict[str, FakeHost] = {}
        self.disks: dict[str, Disk] = {}
        self.user_data: dict[str, str] = {}
        self.machines: dict[str, Machine] = {}
        self.tasks: dict[str, asyncio.Task[str]] = {}
        self.clusters: dict[str, GuestCluster] = {}
        self._make = machine_factory(programs, delays, self.clusters)
        self.group: asyncio.TaskGroup | None = None

    def power_on(
        self, name: str, user_data: str = "", *, network_data: str = "", agent: bool = False
    ) -> FakeHost:
        assert self.group is not None
        self.user_data[name] = user_data or self.user_data[name]
        number = list(self.user_data).index(name)
        hardware = Hardware(
            "default",
            name,
            f"00000000-0000-4000-8000-{number:012d}",
            self.rng.uid(),
            self.user_data[name],
            network_data,
            (Nic("nic-0", f"52:54:00:00:00:{number:02x}", "default/vlan"),),
            self.disks.setdefault(name, Disk()),
            image_has_agent=agent,
        )
        host = self.hosts[name] = FakeHost(self, name, self.hosts[name].lines if name in self.hosts else [])
        machine = self.machines[name] = self._make(hardware, host)
        self.tasks[name] = self.group.create_task(machine.run(), name=name)
        return host

    def offline_host(self, name: str) -> FakeHost:
        """HostInterface of a machine that is off."""
        return FakeHost(self, name)

    async def cut_power(self, name: str) -> None:
        self.tasks[name].cancel()
        await asyncio.wait([self.tasks[name]])

    def console(self, name: str) -> str:
        return "\n".join(self.hosts[name].lines)

    async def wait_for(self, holds: Callable[[], Any], within: float = 900) -> float:
        """Wait until `holds()`; the seconds it took. Fails with all consoles when it takes too long."""
        start = self.clock.now()
        while True:
            found = holds()
            if asyncio.iscoroutine(found):
                found = await found
            spent = (self.clock.now() - start).total_seconds()
            if found:
                return spent
            if spent > within:
                consoles = "\n".join(f"== {name}\n{self.console(name)}" for name in self.hosts)
                raise AssertionError(f"did not happen within {within} s\n{consoles}")
            await self.sleep(0.5)

    async def sleep(self, seconds: float) -> None:
        await sleep(self.clock, timedelta(seconds=seconds))


@asynccontextmanager
async def a_testbed(**settings: Any) -> AsyncIterator[MachineTestbed]:
    testbed = MachineTestbed(**settings)
    async with asyncio.TaskGroup() as group:
        testbed.group = group
        try:
            yield testbed
        finally:
            for task in testbed.tasks.values():
                task.cancel()


class ClusterFixture:
    """The secrets of a cluster, and the documents of its machines."""

    def __init__(self, name: str = "rke2") -> None:
        self.server_ca = pki.new_ca(f"{name}-server-ca", NOON, 3650)
        self.client_ca = pki.new_ca(f"{name}-client-ca", NOON, 3650)
        self.others = {
            stem: pki.new_ca(f"{name}-{stem}", NOON, 3650)
            for stem in ("request-header-ca", "etcd/peer-ca", "etcd/server-ca")
        }
        self.service_key = pki.new_rsa_signing_key()
        self.server_password, self.agent_password = "s3rver", "4gent"
        self.admin = pki.issue_certificate(
            *self.client_ca,
            common_name="admin",
            organizations=("system:masters",),
            client=True,
            now=NOON,
            lifetime=DAY,
        )

    @property
    def hash(self) -> str:
        return hash_authorities(self.server_ca[0])

    def server_token(self) -> str:
        return f"K10{self.hash}::server:{self.server_password}"

    def agent_token(self) -> str:
        return f"K10{self.hash}::node:{self.agent_password}"

    def authorities(self, directory: str = "/var/lib/rancher/rke2/server/tls") -> dict[str, str]:
        pairs = {"server-ca": self.server_ca, "client-ca": self.client_ca, **self.others}
        files = {f"{directory}/{stem}.crt": pair[0] for stem, pair in pairs.items()}
        files |= {f"{directory}/{stem}.key": pair[1] for stem, pair in pairs.items()}
        return files | {f"{directory}/service.key": self.service_key}

    def first(self, hostname: str = "one", **more: Any) -> str:
        files = self.authorities() | more.pop("files", {})
        config = {"token": self.server_token(), "agent-token": self.agent_password, "cni": "calico"}
        return render_user_data(hostname, "server", {**config, **more}, files)

    def server(self, hostname: str, server: str = "https://10.0.0.11:9345", **more: Any) -> str:
        files = more.pop("files", {})
        config = {"token": self.server_token(), "agent-token": self.agent_password, "cni": "calico"}
        return render_user_data(hostname, "server", {**config, "server": server, **more}, files)

    def worker(self, hostname: str, server: str = "https://10.0.0.11:9345", **more: Any) -> str:
        return render_user_data(hostname, "agent", {"token": self.agent_token(), "server": server, **more})


def render_user_data(
    hostname: str, role: str, config: Mapping[str, Any], files: Mapping[str, str] | None = None
) -> str:
    """A cloud-config by RKE2's quick start."""
    written = {"/etc/rancher/rke2/config.yaml": dump({k.replace("_", "-"): v for k, v in config.items()})}
    entries = [
        {"path": p, "content": c, "permissions": "0600"} for p, c in (written | dict(files or {})).items()
    ]
    return "#cloud-config\n" + dump(
        {
            "hostname": hostname,
            "packages": ["qemu-guest-agent"],
            "write_files": entries,
            "runcmd": [
                ["systemctl", "enable", "--now", "qemu-guest-agent.service"],
                f"curl -sfL https://get.rke2.io | INSTALL_RKE2_VERSION={VERSION} INSTALL_RKE2_TYPE={role} sh -",
                f"systemctl enable --now rke2-{role}.service",
            ],
        }
    )


class Kubectl:
    """The API of a cluster at one server, as the holder of an administrator's certificate sees it."""

    def __init__(self, testbed: MachineTestbed, cluster: ClusterFixture, address: str = "10.0.0.11") -> None:
        self.testbed, self.cluster, self.address = testbed, cluster, address

    async def send(self, request: requests.Request) -> Any:
        door = self.testbed.network.find(self.address, 6443)
        if door is None:
            raise ConnectionRefusedError(self.address)
        identity = door.identity()
        assert identity is not None
        reason = pki.verify_server(
            identity.chain, self.cluster.server_ca[0], self.address, self.testbed.clock.now()
        )
        assert reason is None, reason
        reply = await door.send(request, Peer(self.cluster.admin[0]))
        assert reply.status < 400, reply.body.decode()
        return loads(reply.body)

    async def list(self, kind: ApiResource, namespace: str = "") -> list[Any]:
        return list((await self.send(requests.list_(kind, namespace)))["items"])

    async def get(self, ref: ObjectRef) -> Any:
        return await self.send(requests.get(ref))

    async def patch(self, ref: ObjectRef, change: Mapping[str, Any], subresource: str = "") -> Any:
        return await self.send(requests.merge_patch(ref, change, subresource))

    async def delete(self, ref: ObjectRef) -> Any:
        return await self.send(requests.delete(ref))

    async def node(self, name: str) -> Any:
        return await self.get(NODE.ref(name))

    async def ready(self) -> set[str]:
        """Names of the nodes that are Ready; none while the API is unreachable."""
        if self.testbed.network.find(self.address, 6443) is None:
            return set()
        return {name_of(raw) for raw in await self.list(NODE) if condition(raw, "Ready") == "True"}


def condition(raw: Any, type: str) -> str:
    found = [one for one in nested(raw, "status", "conditions", default=[]) if one["type"] == type]
    return str(found[0]["status"]) if found else ""
