"""The interface between simulated hypervisor and simulated machine.

The Harvester side (`emulator.vms`) powers a machine on with `Hardware` and `HostInterface`; the machine side
(`emulator.guest_os.machine`) acts on its cloud-init and reports through the host interface. Neither imports the other.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, Protocol

from windrow.core.clock import Clock
from windrow.core.rng import Rng
from windrow.emulator.kit.network import Network

if TYPE_CHECKING:
    from windrow.emulator.guest_os.storage import NodeStorage


@dataclass(slots=True)
class File:
    content: bytes
    mode: int = 0o644
    owner: str = "root:root"


@dataclass(slots=True)
class Disk:
    """A root disk: kept over reboots and VMIs, removed with its PVC. `state` is for what is not a file (etcd data)."""

    files: dict[str, File] = field(default_factory=dict)
    state: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Nic:
    name: str
    mac: str
    network: str  # "namespace/name" of the NetworkAttachmentDefinition, "" for the pod network
    model: str = "virtio"


@dataclass(frozen=True, slots=True)
class BlockDevice:
    """A disk as the guest names it ("vda"). `serial` is that of its spec; without one QEMU tells the name of the volume."""

    name: str
    size_bytes: int
    volume: str = ""
    serial: str = ""
    is_virtio: bool = True
    disk: Disk | None = field(default=None, compare=False, repr=False)  # its data, which follows the claim


Firmware = Literal["bios", "efi", "efi with secure boot"]


@dataclass(frozen=True, slots=True)
class Hardware:
    namespace: str
    name: str
    vm_uid: str
    vmi_uid: str
    user_data: str = field(repr=False)
    network_data: str = field(repr=False)
    nics: tuple[Nic, ...]
    root: Disk
    image: str = ""  # "namespace/name" of the image the root disk was made from
    image_has_agent: bool = False
    boots: bool = True  # whether the root disk has an operating system
    missing_modules: tuple[str, ...] = ()  # kernel modules that other images have
    cores: int = 2
    memory_bytes: int = 4 << 30
    cpu_model: str = ""
    disks: tuple[BlockDevice, ...] = ()
    firmware: Firmware = "bios"
    has_tpm: bool = False
    host_devices: tuple[str, ...] = ()  # resource names of GPUs and of other devices of the host
    system_uuid: str = ""  # the firmware's uuid: the VMI's `domain.firmware.uuid`


@dataclass(frozen=True, slots=True)
class DhcpLease:
    """A DHCP lease of one NIC."""

    address: str
    prefix: int
    gateway: str
    nameservers: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class AgentReport:
    """The guest agent's report: hostname, OS and, per NIC name, its addresses."""

    hostname: str
    addresses: Mapping[str, tuple[str, ...]]
    os: Mapping[str, str] = field(default_factory=dict)


class HostInterface(Protocol):
    """What the hypervisor offers to one running machine."""

    clock: Clock
    rng: Rng
    network: Network
    time_scale: float  # divide every simulated delay by it

    async def lease(self, nic: Nic, hostname: str) -> DhcpLease | None:
        """DHCP on the NIC's network; None without an answer. The same MAC gets the same address again.

        The NIC may be one that the guest created on top of another (macvlan), with a MAC of its own.
        """
        ...

    def autoconfigure(self, nic: Nic) -> str:
        """The IPv6 address of the NIC in the prefix that the router of its network advertises; "" without a router of IPv6."""
        ...

    def use(self, nic: Nic, address: str) -> str:
        """The NIC takes a static address; where another one on its network has it, that one's MAC address, else ""."""
        ...

    async def release(self, nic: Nic) -> None:
        """Give the NIC's address back to DHCP. May be repeated."""
        ...

    def console(self, line: str) -> None:
        """Write one line on the serial console."""
        ...

    def report_agent(self, report: AgentReport | None) -> None:
        """The guest agent's latest report; None when the agent has stopped."""
        ...


class Machine(Protocol):
    """One power-on of a machine."""

    async def run(self) -> str:
        """Boot and run until the guest powers itself off ("poweroff") or asks to be reset ("reboot").

        Cancelled when power is cut; then every listener and address is released at once.
        """
        ...

    async def shutdown(self) -> None:
        """ACPI power button: `run` returns soon after, unless the guest hangs."""
        ...

    def change_disks(self, disks: tuple[BlockDevice, ...]) -> None:
        """Disks were plugged in, unplugged or expanded: these are there now."""
        ...


@dataclass(frozen=True, slots=True)
class ProgramContext:
    """The environment of a guest program: arguments, variables, its node's files, storage, network, clock and rng.

    `network.find(address, port)` gives the handler that listens there, as the node would reach it.
    """

    argv: tuple[str, ...]
    env: Mapping[str, str]
    root: Disk
    clock: Clock
    rng: Rng
    network: Network
    out: Callable[[str], None]
    guest_kubeconfig: str = field(default="", repr=False)  # how this program reaches its own cluster's API
    storage: NodeStorage | None = None


# A program that a guest runs (cloud provider, CSI driver); returns its exit code. Cancelled when its node loses power.
GuestProgram = Callable[[ProgramContext], Awaitable[int]]
