"""What storage controllers and side-cars share: informers, events, and the driver that a side-car calls."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import timedelta

from windrow.core.clock import sleep
from windrow.core.wait import run_until
from windrow.emulator.guest_cluster.cluster import GuestCluster
from windrow.emulator.guest_cluster.csi.port import CsiCall, CsiFailed
from windrow.emulator.guest_cluster.workloads.context import ControllerContext
from windrow.emulator.guest_os.operating_system import GuestOS
from windrow.emulator.kit.client import AdminClient
from windrow.emulator.kit.events import EventRecorder
from windrow.emulator.kit.listers import Key
from windrow.kubernetes.objects import Raw, nested, objects_at
from windrow.kubernetes.resources import ApiResource

# The chart's --timeout. The driver is a real program, so no time scale divides it.
TIMEOUT = timedelta(minutes=1, seconds=50)


class StorageContext(ControllerContext):
    """Informers of `kinds`, a client, and the events of one `component`."""

    def __init__(
        self, guest: GuestOS, cluster: GuestCluster, kinds: Iterable[ApiResource], component: str
    ) -> None:
        super().__init__(guest, cluster, kinds)
        self.component = component
        self._recorder = EventRecorder(AdminClient(self.client()), guest.host.clock, guest.host.rng)

    def find(self, kind: ApiResource, name: object, namespace: str = "") -> Raw | None:
        """The object as the informer has it."""
        return self.informers[kind].get((namespace, str(name)))

    def on_change(self, kind: ApiResource, handle: Callable[[Key, Raw | None, Raw], None]) -> None:
        """Call `handle` for each change with the key, the object (None once it is gone) and its last state."""
        informer = self.informers[kind]

        def changed(raw: Raw) -> None:
            key = (raw["metadata"].get("namespace", ""), raw["metadata"]["name"])
            handle(key, informer.get(key), raw)

        informer.add_event_handler(changed)

    async def record(self, about: Raw, reason: str, message: str, type: str = "Normal") -> None:
        await self._recorder.record(about, reason, message, self.component, type)


@dataclass(frozen=True, slots=True)
class Driver:
    """A driver as its side-cars have found it: its name, what its controller can do, and calls with their time-out."""

    name: str
    capabilities: frozenset[str]
    call: CsiCall

    def can(self, capability: str) -> bool:
        return capability in self.capabilities

    @property
    def multi_writer(self) -> bool:
        return self.can("SINGLE_NODE_MULTI_WRITER")


def with_timeout(call: CsiCall, guest: GuestOS) -> CsiCall:
    """The call, given up after the side-cars' time-out as gRPC does."""

    async def limited(method: str, request: Raw) -> Raw:
        late = CsiFailed("DEADLINE_EXCEEDED", "context deadline exceeded")
        return await run_until(call(method, request), sleep(guest.host.clock, TIMEOUT), late)

    return limited


async def connect(call: CsiCall, guest: GuestOS, who: str) -> Driver:
    """Wait for the driver, as every side-car does, and learn what it can do."""
    call = with_timeout(call, guest)
    while True:
        try:
            if nested(await call("Probe", {}), "ready", default=True):
                name = str((await call("GetPluginInfo", {}))["name"])
                found = await call("ControllerGetCapabilities", {})
                listed = objects_at(found, "capabilities")
                return Driver(name, frozenset(str(nested(one, "rpc", "type")) for one in listed), call)
            guest.log(who, "CSI driver is not ready")
        except CsiFailed as error:
            guest.log(who, f"CSI driver probe failed: {error}")
        await guest.sleep(1)
