"""A network of namespaces in which the real kube-vip runs: a bridge, nodes, a client, and a way to a real API server.

Each namespace belongs to one process that waits for the end of its standard input, so that nothing is left however the
test ends. The API server stays on the loopback of the test; what listens for the nodes in their network is a socket of
this process that was opened there.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import selectors
import shutil
import socket
import struct
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.conformance.real_cluster import ENDING_WITH_US, Cluster

from windrow.core.formats import yaml
from windrow.kubernetes.kubeconfig import render_kubeconfig

CLONE_NEWNET = 0x40000000
CAP_NET_ADMIN = 12
SUBNET = "10.77.0"
API = f"{SUBNET}.1"
API_PORT = 6443
LAN_INTERFACE = "eth0"
ECHO_REPLY, ECHO_REQUEST, PING_ID = 0, 8, 0x5744
ARP_REQUEST, ARP_REPLY, ETHERTYPE_ARP = 1, 2, 0x0806

# What the chart gives kube-vip, and how it finds its API server here.
ENVIRONMENT = {
    "vip_arp": "true",
    "lb_enable": "true",
    "lb_port": "6443",
    "vip_subnet": "32",
    "cp_enable": "false",
    "cp_namespace": "kube-system",
    "svc_enable": "true",
    "svc_election": "false",
    "vip_leaderelection": "false",
    "vip_interface": "",
    "prometheus_server": ":2112",
}


def skip_unless_networks_can_be_made() -> None:
    status = Path("/proc/self/status").read_text()
    effective = int(next(one for one in status.splitlines() if one.startswith("CapEff")).split()[1], 16)
    missing = [one for one in ("ip", "nsenter", "setpriv", "unshare") if shutil.which(one) is None]
    if missing:
        pytest.skip(f"kube-vip needs {', '.join(missing)} (iproute2, util-linux)")
    if not effective >> CAP_NET_ADMIN & 1:
        pytest.skip("kube-vip needs network namespaces: run as root with CAP_NET_ADMIN")
    tried = subprocess.run(["unshare", "-n", "true"], capture_output=True, text=True, check=False)
    if tried.returncode:
        pytest.skip(f"kube-vip needs network namespaces: {tried.stderr.strip()}")


class Namespace:
    """One network namespace. It ends with this process at the latest."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._holder = subprocess.Popen(
            ["unshare", "-n", "cat"], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL
        )
        own = os.readlink("/proc/self/ns/net")
        while os.readlink(f"/proc/{self._holder.pid}/ns/net") == own:
            time.sleep(0.002)
        self.run("ip", "link", "set", "lo", "up")

    def argv(self, *argv: str) -> list[str]:
        return ["nsenter", f"--net=/proc/{self._holder.pid}/ns/net", "--", *argv]

    def run(self, *argv: str) -> str:
        return subprocess.run(self.argv(*argv), check=True, capture_output=True, text=True).stdout

    @property
    def pid(self) -> int:
        return self._holder.pid

    def addresses(self) -> dict[str, list[str]]:
        """The IPv4 addresses by interface."""
        links: list[dict[str, Any]] = json.loads(self.run("ip", "-j", "addr"))
        return {
            one["ifname"]: [found["local"] for found in one["addr_info"] if found["family"] == "inet"]
            for one in links
            if "ifname" in one
        }

    def holds(self, address: str) -> bool:
        return any(address in found for found in self.addresses().values())

    def open(self, make: Callable[[], socket.socket]) -> socket.socket:
        """The socket that `make` opens in this namespace; it stays there."""
        made: list[socket.socket] = []

        def enter() -> None:
            libc = ctypes.CDLL(None, use_errno=True)
            with open(f"/proc/{self._holder.pid}/ns/net") as namespace:
                if libc.setns(namespace.fileno(), CLONE_NEWNET) != 0:
                    raise OSError(ctypes.get_errno(), f"setns {self.name}")
            made.append(make())

        thread = threading.Thread(target=enter)
        thread.start()
        thread.join()
        return made[0]

    def close(self) -> None:
        self._holder.kill()
        self._holder.wait()


def _listen() -> socket.socket:
    return socket.create_server((API, API_PORT))


class Relay(threading.Thread):
    """Carries each connection to `listener` to a port of the loopback."""

    def __init__(self, listener: socket.socket, port: int) -> None:
        super().__init__(daemon=True)
        self._listener, self._port = listener, port

    def run(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                near, _ = self._listener.accept()
                threading.Thread(target=self._carry, args=(near,), daemon=True).start()

    def _carry(self, near: socket.socket) -> None:
        with (
            near,
            contextlib.suppress(OSError),
            socket.create_connection(("127.0.0.1", self._port)) as far,
            selectors.DefaultSelector() as selector,
        ):
            selector.register(near, selectors.EVENT_READ, far)
            selector.register(far, selectors.EVENT_READ, near)
            while True:
                for key, _ in selector.select():
                    data = key.fileobj.recv(65536)  # type: ignore[union-attr]
                    if not data:
                        return
                    key.data.sendall(data)


class Pings(threading.Thread):
    """Echo requests to an address, ten a second, from a namespace; `sent` and `answered` count them."""

    def __init__(self, space: Namespace, address: str) -> None:
        super().__init__(daemon=True)
        self._socket = space.open(lambda: socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP))
        self._address, self._ending = address, threading.Event()
        self.sent = 0
        self.answered: set[int] = set()

    def run(self) -> None:
        while not self._ending.is_set():
            self._ping()
        self._read(time.monotonic() + 1)
        self._socket.close()

    def _ping(self) -> None:
        head = struct.pack("!BBHHH", ECHO_REQUEST, 0, 0, PING_ID, self.sent)
        whole = struct.pack("!BBHHH", ECHO_REQUEST, 0, _checksum(head), PING_ID, self.sent)
        with contextlib.suppress(OSError):  # no route just then: it is not answered
            self._socket.sendto(whole, (self._address, 0))
        self.sent += 1
        self._read(time.monotonic() + 0.1)

    def _read(self, deadline: float) -> None:
        while (left := deadline - time.monotonic()) > 0:
            self._socket.settimeout(left)
            with contextlib.suppress(OSError):
                kind, _, _, own, number = struct.unpack("!BBHHH", self._socket.recv(200)[20:28])
                if (kind, own) == (ECHO_REPLY, PING_ID):
                    self.answered.add(number)

    def end(self) -> int:
        """How many were not answered."""
        self._ending.set()
        self.join()
        return self.sent - len(self.answered)


def _checksum(data: bytes) -> int:
    total = sum(struct.unpack(f"!{len(data) // 2}H", data))
    total = (total >> 16) + (total & 0xFFFF)
    return ~(total + (total >> 16)) & 0xFFFF


class Node:
    """A node of the cluster: a namespace in which kube-vip can run."""

    def __init__(self, space: Namespace, lan: Lan) -> None:
        self.space, self.name, self._lan = space, space.name, lan
        self._process: subprocess.Popen[bytes] | None = None
        self.log = lan.directory / f"kube-vip-{space.name}.log"

    def start(self, **environment: str) -> int:
        """Start kube-vip as the chart does, with these variables changed; where its log begins."""
        begun = self.log.stat().st_size if self.log.exists() else 0
        env = ENVIRONMENT | {"vip_nodename": self.name, "vip_interface": LAN_INTERFACE} | environment
        argv = [self._lan.program, "manager", "--k8sConfigPath", str(self._lan.kubeconfig), "--log", "-4"]
        with self.log.open("ab") as out:
            self._process = subprocess.Popen(
                self.space.argv(*self._lan.confine(), *argv),
                env={"PATH": os.environ["PATH"], "HOME": str(self._lan.directory), **env},
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
            )
        return begun

    def stop(self, signal: int = 15) -> None:
        """End kube-vip: gently, or with SIGKILL. What it leaves on the interfaces stays."""
        if self._process is not None:
            self._process.send_signal(signal)
            self._process.wait(30)
            self._process = None


class Lan:
    """The bridge, what hangs on it, and what the nodes need to reach the cluster."""

    def __init__(self, stack: ExitStack, cluster: Cluster, program: str, directory: Path) -> None:
        self._stack, self.program, self.directory = stack, program, directory
        self.capabilities: Sequence[str] | None = None  # of kube-vip; None: those of this process
        self._hub = self._space("hub")
        self._hub.run("ip", "link", "add", "br0", "type", "bridge")
        self._hub.run("ip", "link", "set", "br0", "up")
        self._hub.run("ip", "addr", "add", f"{API}/24", "dev", "br0")
        self._hosts = 1
        listener = self._hub.open(_listen)
        stack.callback(listener.close)
        Relay(listener, int(cluster.url.rpartition(":")[2])).start()
        # Where versions before 1.2 look for it; later ones are told.
        self.kubeconfig = directory / ".kube" / "config"
        self.kubeconfig.parent.mkdir()
        self.kubeconfig.write_text(_kubeconfig(cluster))
        self.client = self._attach("client")

    def confine(self) -> list[str]:
        """The command before another's: it ends with this process, and has these capabilities."""
        if self.capabilities is None:
            return [*ENDING_WITH_US]
        kept = ",".join(f"+{one.lower()}" for one in self.capabilities)
        return [*ENDING_WITH_US[:-1], f"--bounding-set=-all,{kept}", "--"]

    def _space(self, name: str) -> Namespace:
        space = Namespace(name)
        self._stack.callback(space.close)
        return space

    def _attach(self, name: str) -> Namespace:
        space = self._space(name)
        self._hosts += 1
        number = self._hosts
        self._hub.run(
            *("ip", "link", "add", f"v{number}", "type", "veth"),
            *("peer", "name", LAN_INTERFACE, "netns", str(space.pid)),
        )
        self._hub.run("ip", "link", "set", f"v{number}", "master", "br0", "up")
        space.run("ip", "addr", "add", f"{SUBNET}.{10 + number}/24", "dev", LAN_INTERFACE)
        space.run("ip", "link", "set", LAN_INTERFACE, "up")
        space.run("ip", "route", "add", "default", "via", API)
        return space

    def add_node(self, name: str) -> Node:
        node = Node(self._attach(name), self)
        self._stack.callback(node.stop, 9)
        return node

    def serve_dhcp(self) -> subprocess.Popen[bytes]:
        """Lease addresses from .200 on. Skips without dnsmasq."""
        if shutil.which("dnsmasq") is None:
            pytest.skip("DHCP needs dnsmasq (Debian: dnsmasq-base)")
        with (self.directory / "dnsmasq.log").open("wb") as out:
            server = subprocess.Popen(
                self._hub.argv(
                    *ENDING_WITH_US,
                    *("dnsmasq", "--no-daemon", "--conf-file=/dev/null", "--port=0", "--interface=br0"),
                    *(f"--dhcp-range={SUBNET}.200,{SUBNET}.220,2m", "--dhcp-authoritative", "--no-ping"),
                    f"--dhcp-leasefile={self.directory}/leases",
                    "--user=root",
                ),
                stdout=out,
                stderr=subprocess.STDOUT,
            )

        def end() -> None:
            server.kill()
            server.wait()

        self._stack.callback(end)
        return server

    def leases_of(self, address: str) -> int:
        """How often the DHCP server has leased the address, renewals with it."""
        return (self.directory / "dnsmasq.log").read_text().count(f"DHCPACK(br0) {address} ")

    def who_has(self, address: str, patience_s: float = 0.3) -> set[str]:
        """The MAC addresses that answer an ARP request of the client for `address`."""
        with self.client.open(
            lambda: socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETHERTYPE_ARP))
        ) as raw:
            raw.bind((LAN_INTERFACE, ETHERTYPE_ARP))
            mac = raw.getsockname()[4]
            own = socket.inet_aton(self.client.addresses()[LAN_INTERFACE][0])
            head = b"\xff" * 6 + mac + struct.pack("!HHHBBH", ETHERTYPE_ARP, 1, 0x0800, 6, 4, ARP_REQUEST)
            raw.send(head + mac + own + b"\0" * 6 + socket.inet_aton(address))
            found: set[str] = set()
            deadline = time.monotonic() + patience_s
            while (left := deadline - time.monotonic()) > 0:
                raw.settimeout(left)
                try:
                    frame = raw.recv(100)
                except TimeoutError:
                    break
                (operation,) = struct.unpack("!H", frame[20:22])
                if operation == ARP_REPLY and frame[28:32] == socket.inet_aton(address):
                    found.add(frame[22:28].hex(":"))
            return found


def _kubeconfig(cluster: Cluster) -> str:
    """Access through the relay; the certificate is one for localhost."""
    config = yaml.load(render_kubeconfig(cluster.access(), "kube-vip"))
    config["clusters"][0]["cluster"] |= {
        "server": f"https://{API}:{API_PORT}",
        "tls-server-name": "localhost",
    }
    return yaml.dump(config)


@contextmanager
def a_lan(cluster: Cluster, program: str, directory: Path) -> Iterator[Lan]:
    skip_unless_networks_can_be_made()
    with ExitStack() as stack:
        yield Lan(stack, cluster, program, directory)
