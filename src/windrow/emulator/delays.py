"""Delays of the simulated Harvester: one number per operation, with its source.

All are seconds on real hardware; the emulator divides each by its `time_scale`. Tests may replace any of them.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from datetime import datetime, timedelta

from windrow.core.clock import Clock, sleep


def _delay(seconds: float, why: str) -> float:
    made: float = field(default=seconds, metadata={"why": why})
    return made


@dataclass(frozen=True, slots=True)
class Delays:
    """Seconds on hardware, before `time_scale` divides them."""

    controller: float = _delay(0.1, "an informer and one reconcile; reference 05 §2.1 (+≈0.1 s per actor)")
    image_import: float = _delay(30.0, "a 600 MB cloud image over 160 Mbit/s; our estimate")
    image_retry: float = _delay(10.0, "failed imports are retried every 10 s; reference 05 §2.8")
    claim_retry: float = _delay(10.0, "a claim that was refused is tried again; our estimate")
    volume_bind: float = _delay(2.0, "Longhorn makes a volume from a backing image; our estimate")
    pod_create: float = _delay(0.5, "virt-controller renders and posts the launcher pod; our estimate")
    pod_start: float = _delay(
        12.0, "volume attach, image present, containers start; with the two below the 15–40 s of 05 §2.5 A"
    )
    domain_define: float = _delay(
        1.0, "virt-handler takes the instance over and defines the domain; our estimate"
    )
    domain_start: float = _delay(2.0, "QEMU starts the domain; our estimate")
    agent_connect: float = _delay(1.0, "virt-handler polls fast right after the agent connects; 05 §2.6")
    agent_poll: float = _delay(
        10.0, "virt-handler's user poll; address changes reach the API with it; 05 §2.6"
    )
    volume_snapshot: float = _delay(1.5, "Longhorn freezes, takes a snapshot and tells; our estimate")
    file_system: float = _delay(3.0, "a share manager's pod starts, or ends; our estimate")
    replica_retry: float = _delay(30.0, "Longhorn places replicas again that had no room; our estimate")
    volume_expand: float = _delay(2.0, "the resizer, Longhorn's replicas and engine; our estimate")
    hotplug_attach: float = _delay(
        2.0, "a hot-plugged volume is attached to the host, and its attachment pod runs; our estimate"
    )
    hotplug_mount: float = _delay(0.5, "virt-handler mounts it in the launcher pod; our estimate")
    hotplug_ready: float = _delay(
        0.5, "QEMU plugs the disk in, and virt-handler sees its target; our estimate"
    )
    hotplug_unplug: float = _delay(
        1.0, "the guest lets the disk go, QEMU unplugs it, and it is unmounted; our estimate"
    )
    hotplug_release: float = _delay(0.5, "its attachment pod ends; our estimate")
    pod_stop: float = _delay(2.0, "launcher exits, volumes are released; our estimate")
    start_backoff: float = _delay(10.0, "KubeVirt: 10 s × n² after early failures; 05 §2.5 E")
    start_backoff_cap: float = _delay(300.0, "KubeVirt's cap of the same; 05 §2.5 E")
    node_unknown: float = _delay(45.0, "node monitor grace 40 s + kubelet interval; 05 §2.5 F")
    node_force_reset: float = _delay(
        300.0, "Harvester 1.6 instead of the two below: vm-force-reset-policy period; 05 §0.2"
    )
    node_draining: float = _delay(15.0, "vm-force-reset-policy period; 05 §2.5 F")
    node_out_of_service: float = _delay(180.0, "vm-force-reset-policy vmMigrationTimeout; 05 §2.5 F")
    pod_force_delete: float = _delay(
        5.0, "pod garbage collection after the out-of-service taint; our estimate"
    )
    migration: float = _delay(
        20.0, "4 GiB over 10 Gbit/s with dirty pages, plus the target pod; our estimate"
    )

    host_pre_drain: float = _delay(
        15.0, "from Pre-draining until VMs of the host are moved: a Job on it starts for that; our estimate"
    )
    host_upgrade: float = _delay(
        300.0, "an empty host gets Harvester's next release and restarts: minutes; our estimate"
    )

    balancer_controller: float = _delay(
        0.02, "from a new load balancer to the controller's finalizer on it; our estimate within 02 §9.3"
    )
    balancer_address: float = _delay(
        0.05, "choose a pool and write it and the load balancer, through webhooks; < 100 ms in all, 02 §9.3"
    )
    balancer_retry: float = _delay(1.0, "no pool matches, or no external address yet; 02 §4.3")
    balancer_removal: float = _delay(0.05, "release the address and drop the finalizer; our estimate")
    pool_controller: float = _delay(0.05, "from a new pool to its allocator; our estimate")
    vip: float = _delay(0.5, "the hosts' kube-vip adds an address and announces it; our estimate")
    vip_dhcp: float = _delay(3.0, "a macvlan, and DHCP's four messages on it; our estimate")

    def reasons(self) -> dict[str, tuple[float, str]]:
        """Each delay by name: seconds and source."""
        return {one.name: (getattr(self, one.name), one.metadata["why"]) for one in fields(self)}


@dataclass(frozen=True, slots=True)
class ScaledClock:
    """A clock whose durations are hardware time divided by `time_scale`."""

    base: Clock
    time_scale: float = 1.0

    def now(self) -> datetime:
        """The wall clock, for stamps on objects."""
        return self.base.now()

    def monotonic(self) -> timedelta:
        """The monotonic clock, by which everything becomes due: setting the wall clock delays and hastens nothing."""
        return self.base.monotonic()

    def after(self, seconds: float, since: timedelta | None = None) -> timedelta:
        """The monotonic instant `seconds` of hardware time after `since` (default: now)."""
        return (self.base.monotonic() if since is None else since) + timedelta(
            seconds=seconds / self.time_scale
        )

    async def sleep(self, seconds: float) -> None:
        """Sleep for `seconds` of hardware time."""
        await sleep(self.base, timedelta(seconds=seconds / self.time_scale))
