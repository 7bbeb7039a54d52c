"""What would not join on a real Harvester does not join here, and the console has the reason.

Each story takes the very documents that the bootstrap renders, damages one thing in one of them, and powers the
machines on. The simulated machines have their own parsers, so whole documents that join are half of the proof.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

import pytest
from tests.support.clock import LoopClock, run_driven

from windrow.bootstrap import DISTRIBUTIONS, rke2
from windrow.bootstrap.cloud_config import HEADER
from windrow.bootstrap.pki import new_cluster_secrets
from windrow.bootstrap.spec import BootstrapSpec, GuestCredential, Role
from windrow.core.clock import sleep
from windrow.core.formats import yaml
from windrow.core.rng import Rng
from windrow.emulator.guest_os.binaries import render_binary
from windrow.emulator.guest_os.hardware import AgentReport, DhcpLease, Disk, Hardware, Nic
from windrow.emulator.guest_os.installers.k3s import SCRIPT as INSTALL_K3S
from windrow.emulator.guest_os.machine import machine_factory
from windrow.emulator.kit.network import Network

START = datetime(2026, 3, 1, 12, tzinfo=UTC)
SECRETS = new_cluster_secrets(START)
LONG_ENOUGH = timedelta(minutes=10)
ADDRESSES = {"first": "10.0.0.11", "server": "10.0.0.12", "worker": "10.0.0.13"}
JOIN = rke2.LAYOUT.join_url(ADDRESSES["first"])
ROLES = {"first": frozenset(Role), "server": frozenset(Role), "worker": frozenset({Role.WORKER})}

Damage = Callable[[str], str]


@dataclass
class ConsoleHost:
    """Host interface of one machine: a fixed lease, and a recorded console."""

    name: str
    clock: LoopClock
    network: Network
    rng: Rng = field(default_factory=lambda: Rng(7))
    time_scale: float = 1.0
    lines: list[str] = field(default_factory=list)

    def autoconfigure(self, nic: Nic) -> str:
        return ""

    def use(self, nic: Nic, address: str) -> str:
        return ""

    async def lease(self, nic: Nic, hostname: str) -> DhcpLease | None:
        return DhcpLease(ADDRESSES[self.name], 24, "10.0.0.1")

    def console(self, line: str) -> None:
        self.lines.append(line)

    def report_agent(self, report: AgentReport | None) -> None:
        return None


VERSIONS = {"rke2": "v1.35.1+rke2r1", "k3s": "v1.35.1+k3s1"}


def user_data(name: str, distribution: str) -> str:
    first, module = name == "first", DISTRIBUTIONS[distribution]
    return module.render(
        BootstrapSpec(
            cluster="prod",
            hostname=name,
            machine_uid=f"uid-{name}",
            version=VERSIONS[distribution],
            roles=ROLES[name],
            secrets=SECRETS,
            init_server=first,
            join_server="" if first else module.LAYOUT.join_url(ADDRESSES["first"]),
            global_config={"cloud-provider-name": "harvester"},
            guest_credential=GuestCredential("kind: Config\n"),
        )
    )


def boot(damaged: str = "", damage: Damage = str, distribution: str = "rke2") -> dict[str, str]:
    """Power all three machines on for a while; the console of each."""

    async def story() -> dict[str, str]:
        clock, network = LoopClock(START), Network()
        power_on = machine_factory()
        hosts = {name: ConsoleHost(name, clock, network) for name in ADDRESSES}
        async with asyncio.TaskGroup() as group:
            tasks = []
            for place, (name, host) in enumerate(hosts.items()):
                text = user_data(name, distribution)
                text = damage(text) if name == damaged else text
                nic = Nic("nic-0", f"02:00:00:00:00:0{place}", "default/vlan")
                hardware = Hardware("default", name, f"vm-{name}", f"vmi-{name}", text, "", (nic,), Disk())
                tasks.append(group.create_task(power_on(hardware, host).run()))
            await sleep(clock, LONG_ENOUGH)
            for task in tasks:
                task.cancel()
        return {name: "\n".join(host.lines) for name, host in hosts.items()}

    return run_driven(story())


def joined(console: str) -> bool:
    return "kubelet: node is Ready" in console


def swap(old: str, new: str) -> Damage:
    """Replace `old`, which must be there, once."""

    def damage(text: str) -> str:
        assert old in text
        return text.replace(old, new, 1)

    return damage


def flip(pattern: str) -> Damage:
    """Flip the lowest bit of the character that `pattern` ends on, so that it stays a digit or a letter."""

    def damage(text: str) -> str:
        found = re.search(pattern, text)
        assert found
        at = found.end() - 1
        return text[:at] + chr(ord(text[at]) ^ 1) + text[at + 1 :]

    return damage


@pytest.mark.parametrize("distribution", DISTRIBUTIONS)
def test_whole_documents_make_a_cluster(distribution: str) -> None:
    consoles = boot(distribution=distribution)

    assert {name: joined(console) for name, console in consoles.items()} == dict.fromkeys(ADDRESSES, True)
    assert "WARNING" not in "".join(consoles.values())
    assert "Unknown flag" not in "".join(consoles.values())


@pytest.mark.parametrize("name", ["server", "worker"])
@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (flip(r"K10\w{20,}?\d"), "CA hash"),
        (flip(r"\n    token: K10\w+::\w+:\w{20,}?\d"), "401 Unauthorized"),
        (swap(JOIN, rke2.LAYOUT.join_url("10.0.0.99")), "https://10.0.0.99:9345"),
        (swap("\n    server: ", "\n    sever: "), "Unknown flag --sever found in config.yaml, skipping"),
        (
            swap("\n    token: ", "\n      token: "),
            "failed to parse /etc/rancher/rke2/config.yaml.d/50-rancher.yaml",
        ),
        (swap("\nwrite_files:\n", "\nwrite_file:\n"), "windrow-install.service"),
    ],
)
def test_a_machine_with_one_thing_wrong_does_not_join_and_says_why(
    name: str, damage: Damage, reason: str
) -> None:
    consoles = boot(name, damage)

    assert not joined(consoles[name])
    assert reason in consoles[name]
    assert joined(consoles["first"])


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (flip(r"server-ca\.crt\n(?:.*\n){4}.{30}.*?[B-Yb-y]"), "server-ca"),
        (flip(r"client-ca\.key\n(?:.*\n){4}.{30}.*?[B-Yb-y]"), "client-ca"),
        (flip(r"etcd/peer-ca\.key\n(?:.*\n){4}.{30}.*?[B-Yb-y]"), "peer-ca"),
        (swap("INSTALL_RKE2_VERSION=v1.35.1+rke2r1", "INSTALL_RKE2_VERSION=v1.35.1+rke2x"), "v1.35.1+rke2x"),
    ],
)
def test_a_first_server_with_one_thing_wrong_starts_no_cluster(damage: Damage, reason: str) -> None:
    consoles = boot("first", damage)

    assert [name for name, console in consoles.items() if joined(console)] == []
    assert reason in consoles["first"]


K3S_JOIN = "https://10.0.0.11:6443"


@pytest.mark.long
@pytest.mark.parametrize(
    ("name", "damage", "reason"),
    [
        ("server", flip(r"K10\w{20,}?\d"), "CA hash"),
        ("worker", flip(r"K10\w{20,}?\d"), "CA hash"),
        ("server", flip(r"\n    token: K10\w+::\w+:\w{20,}?\d"), "401 Unauthorized"),
        ("worker", flip(r"\n    token: K10\w+::\w+:\w{20,}?\d"), "401 Unauthorized"),
        ("worker", swap(K3S_JOIN, "https://10.0.0.11:9345"), "https://10.0.0.11:9345"),
        ("worker", swap("\n    node-name: ", "\n    cni: calico\n    node-name: "), "not defined: -cni"),
        ("server", swap("\n    disable-cloud-controller: true", ""), "critical configuration"),
        ("server", swap("INSTALL_K3S_EXEC=server", "INSTALL_K3S_EXEC=agent"), "k3s.service"),
    ],
)
def test_a_k3s_machine_with_one_thing_wrong_does_not_join_and_says_why(
    name: str, damage: Damage, reason: str
) -> None:
    consoles = boot(name, damage, "k3s")

    assert not joined(consoles[name])
    assert reason in consoles[name]
    assert joined(consoles["first"])


def test_a_k3s_server_without_etcd_is_joined_by_no_other_server() -> None:
    """K3s' default, SQLite: so the first server is always told cluster-init."""
    consoles = boot("first", swap("\n    cluster-init: true", ""), "k3s")

    assert [joined(consoles[name]) for name in ("first", "server", "worker")] == [True, False, True]


def test_a_k3s_machine_without_internet_installs_what_its_image_has() -> None:
    def cut_off(text: str) -> str:
        document = yaml.load(swap("https://get.k3s.io", "https://unreachable.example")(text))
        document["write_files"] += [
            {"path": "/etc/windrow/site.env", "content": "INSTALL_K3S_ARTIFACT_PATH=/opt/k3s\n"},
            {"path": "/opt/k3s/install.sh", "content": INSTALL_K3S},
            {"path": "/opt/k3s/k3s", "content": render_binary("k3s", VERSIONS["k3s"]).decode()},
            {"path": "/opt/k3s/k3s-airgap-images-amd64.tar.zst", "content": "images"},
        ]
        return HEADER + yaml.dump(document)

    consoles = boot("first", cut_off, "k3s")

    assert {name: joined(console) for name, console in consoles.items()} == dict.fromkeys(ADDRESSES, True)
