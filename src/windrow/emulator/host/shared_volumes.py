"""Shared volumes: NetworkFilesystems, the Services that they are reached at, and Longhorn's share managers behind them.

A NetworkFilesystem follows its desired state: Disabled → Enabling → Enabled → Disabling. While it is Enabled a share manager
runs on one host, the one that the spec prefers or the first that is Ready, and exports the volume over NFS; when its host is
lost, another takes its place. The endpoint is the address of the Service that is labelled for the volume, else of Longhorn's
own Service; where a setting gives such volumes a network of their own, that Service is headless, and the endpoint is the pod's
address, which changes with its host.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from ipaddress import IPv4Address
from zlib import crc32

from windrow.emulator import kinds
from windrow.emulator.delays import Delays, ScaledClock
from windrow.emulator.guest_os.hardware import Disk
from windrow.emulator.host.longhorn_scheduling import SCHEDULING_ERROR
from windrow.emulator.host.nodes import HostController
from windrow.emulator.host.persistent_volumes import LONGHORN, LONGHORN_NAMESPACE, size_of
from windrow.emulator.kit.client import AdminClient
from windrow.emulator.kit.listers import Key, Listers
from windrow.emulator.kit.step_timers import StepTimers
from windrow.emulator.storage.nfs import NfsExport, NfsServers
from windrow.kubernetes.objects import (
    Raw,
    annotations_of,
    is_deleting,
    labels_of,
    name_of,
    nested,
    new_object,
    uid_of,
)
from windrow.kubernetes.resources import SERVICE, ObjectRef

FIRST_ADDRESS = IPv4Address("10.53.200.10")
SERVICE_OF = "harvesterhci.io/rwx-vol-service"  # label of a Service: its volume is reached at this one
NETWORK_SETTINGS = ("rwx-network", "storage-network")
NFS = 2049


def is_shared(volume: Raw) -> bool:
    """Whether Longhorn has a share manager for the volume."""
    spec = volume["spec"]
    return (
        nested(spec, "csi", "driver") == LONGHORN
        and "ReadWriteMany" in (spec.get("accessModes") or ())
        and spec.get("volumeMode") != "Block"
        and nested(spec, "csi", "volumeAttributes", "migratable") != "true"
    )


def address_of(services: list[Raw], name: str, pod_address: str) -> str:
    """Where the volume is reached; "" while nothing says so. A labelled Service that has no address yet prevails, too."""
    labelled = [one for one in services if labels_of(one).get(SERVICE_OF) == name]
    if len(labelled) > 1:
        return ""  # none is chosen among several
    if labelled:
        return str(nested(labelled[0], "spec", "loadBalancerIP", default=""))
    own = next((one for one in services if name_of(one) == name), None)
    address = str(nested(own, "spec", "clusterIP", default=""))
    return pod_address if address == "None" else address


def pod_address(name: str, host: str) -> str:
    """The address of the volume's share manager on a host."""
    number = crc32(f"{name} {host}".encode()) % 0xFFFF
    return str(IPv4Address("10.52.0.0") + max(number, 1))


class FileSystemController:
    """The controller of NetworkFilesystems, and the share managers."""

    def __init__(
        self,
        client: AdminClient,
        listers: Listers,
        hosts: HostController,
        servers: NfsServers,
        disk: Callable[[str], Disk],
        clock: ScaledClock,
        delays: Delays,
    ) -> None:
        self._client, self._listers, self._hosts = client, listers, hosts
        self._servers, self._disk = servers, disk
        self._clock, self._delays = clock, delays
        self._timers = StepTimers(clock)
        self._running_on: dict[str, str] = {}  # share managers: their hosts, by volume

    async def reconcile(self, key: Key) -> timedelta | None:
        ref = kinds.NETWORK_FILE_SYSTEM.ref(key[1], key[0])
        found = await self._client.find(ref)
        if found is None:
            await self._forget(key[1])
            return None
        if is_deleting(found):
            return None
        volume = self._listers.volumes.get(("", key[1]))
        wanted = str(nested(found, "spec", "desiredState", default="Disabled"))
        state = nested(found, "status", "state")
        if state is None:
            await self._write(ref, _status("Disabled", "Unknown"))
            state = "Disabled"
        if wanted == "Enabled":
            return await self._enable(ref, found, volume)
        if state == "Disabled":
            return None
        return await self._disable(ref, found)

    async def _enable(self, ref: ObjectRef, found: Raw, volume: Raw | None) -> timedelta | None:
        name = ref.name
        if volume is None or not is_shared(volume) or SCHEDULING_ERROR in annotations_of(volume):
            return self._clock.after(self._delays.claim_retry)  # there is no share manager to start
        host = self._running_on.get(name, "")
        if host and not self._hosts.health(host)[0].ready:
            del self._running_on[name]
            self._timers.restart(uid_of(found), "Enabled")
            host = ""
        if host and not self._hosts.has_power(host):
            self._servers.stop(f"/{name}")
            return None  # until the loss of the host is noticed
        if not host:
            self._servers.stop(f"/{name}")
            was = nested(found, "status", "state")
            await self._write(
                ref,
                _status("Enabled", "Reconciling") if was == "Enabled" else _status("Enabling", "NotReady"),
            )
            if due := self._timers.due(uid_of(found), "Enabled", self._delays.file_system):
                return due
            host = self._choose_host(str(nested(found, "spec", "perferredNodes", default="")))
            if not host:
                return self._clock.after(self._delays.claim_retry)
            self._running_on[name] = host
        self._timers.forget(uid_of(found))
        await self._serve(ref, volume, host)
        return None

    async def _disable(self, ref: ObjectRef, found: Raw) -> timedelta | None:
        self._servers.stop(f"/{ref.name}")
        self._running_on.pop(ref.name, None)
        self._timers.restart(uid_of(found), "Enabled")
        await self._write(ref, _status("Disabling", "NotReady"))
        if due := self._timers.due(uid_of(found), "Disabled", self._delays.file_system):
            return due
        self._timers.forget(uid_of(found))
        await self._write(ref, _status("Disabled", "NotReady"))
        return None

    async def _serve(self, ref: ObjectRef, volume: Raw, host: str) -> None:
        name = ref.name
        services = await self._ensure_services(name)
        address = address_of(services, name, pod_address(name, host))
        if not address:
            self._servers.stop(f"/{name}")
            await self._write(ref, _status("Enabling", "NotReady"))
            return
        claim = str(nested(volume, "spec", "claimRef", "uid", default=""))
        export = NfsExport(self._disk(claim), lambda: size_of(self._listers.volumes.get(("", name), volume)))
        self._servers.serve(address, f"/{name}", export)
        options = nested(volume, "spec", "csi", "volumeAttributes", "nfsOptions", default="")
        status = _status("Enabled", "Ready", address)
        await self._write(ref, {**status, "mountOpts": options} if options else status)

    def _choose_host(self, preferred: str) -> str:
        """The host that is preferred, else the first; "" where it is not Ready."""
        names = sorted(name for _, name in self._listers.nodes if preferred in ("", name))
        return next(
            (one for one in names if self._hosts.has_power(one) and self._hosts.health(one)[0].ready), ""
        )

    async def _ensure_services(self, name: str) -> list[Raw]:
        """All Services of shared volumes, Longhorn's own of this one among them."""
        found = [one for one in await self._client.list(SERVICE, LONGHORN_NAMESPACE) if not is_deleting(one)]
        if any(name_of(one) == name for one in found):
            return found
        taken = {nested(one, "spec", "clusterIP") for one in found}
        address = FIRST_ADDRESS
        while str(address) in taken:
            address += 1
        headless = any(self._listers.setting(one) for one in NETWORK_SETTINGS)
        spec = {
            "clusterIP": "None" if headless else str(address),
            "ports": [{"name": "nfs", "port": NFS, "protocol": "TCP", "targetPort": NFS}],
        }
        labels = {"longhorn.io/managed-by": "longhorn-manager", "longhorn.io/share-manager": name}
        service = new_object(SERVICE, name, LONGHORN_NAMESPACE, labels=labels, spec=spec)
        return [*found, await self._client.ensure(SERVICE, service)]

    async def _forget(self, name: str) -> None:
        """Longhorn's Service stays as long as the volume."""
        self._servers.stop(f"/{name}")
        self._running_on.pop(name, None)
        if ("", name) not in self._listers.volumes:
            await self.on_volume_gone(name)

    async def on_volume_gone(self, name: str) -> None:
        """The volume is deleted, and its Service with it. May be repeated."""
        self._servers.forget(f"/{name}")
        service = await self._client.find(SERVICE.ref(name, LONGHORN_NAMESPACE))
        if service is not None:
            await self._client.delete(SERVICE, service)

    async def _write(self, ref: ObjectRef, status: Raw) -> None:
        await self._client.mutate(ref, lambda raw: raw.update(status=status), "status")


def _status(state: str, status: str, endpoint: str = "") -> Raw:
    return {"state": state, "status": status, "type": "NFS", "endpoint": endpoint}
