"""A guest cluster made by hand on an emulated Harvester, whose nodes run Windrow's CSI driver, and its objects of storage."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

from windrow.apiserver.loopback import LoopbackClient
from windrow.app.guest_programs import guest_programs
from windrow.core.clock import sleep
from windrow.core.formats.yaml import dump
from windrow.emulator import kinds
from windrow.emulator.guest_cluster.cluster import GuestCluster
from windrow.emulator.guest_cluster.csi.kinds import PV, SNAPSHOT, SNAPSHOT_CONTENT
from windrow.emulator.guest_cluster.csi.port import CsiCall
from windrow.emulator.guest_os.machine import machine_factory
from windrow.emulator.harvester import Harvester
from windrow.kubernetes.objects import Raw, annotations_of, is_deleting, name_of, nested, new_object
from windrow.kubernetes.resources import PVC, VOLUME_ATTACHMENT

from .harvester_rig import NAMESPACE, a_harvester
from .test_k3s_by_hand import RKE2_CONFIG, a_document, run_addon, start

DRIVER = "driver.harvesterhci.io"
INSTALL = ["curl -sfL https://get.rke2.io | {} sh -", "systemctl enable --now rke2-{}.service"]
PATIENCE = timedelta(minutes=15)


class GuestStorage:
    """One guest cluster, as the holder of its administrator's credential sees it, and Harvester below."""

    def __init__(self, harvester: Harvester, clusters: dict[str, GuestCluster]) -> None:
        self.harvester, self._clusters = harvester, clusters
        self.clock = harvester.clock.base
        self.host = harvester.api.local()

    @property
    def cluster(self) -> GuestCluster:
        return next(iter(self._clusters.values()))

    @property
    def client(self) -> LoopbackClient:
        return self.cluster.client()

    async def until(self, holds: Callable[[], Any], what: str) -> None:
        """Wait until `holds()`, a function or a coroutine function; fails with all consoles after PATIENCE."""
        end = self.clock.now() + PATIENCE
        while True:
            found = holds()
            if hasattr(found, "__await__"):
                found = await found
            if found:
                return
            assert self.clock.now() < end, f"{what}: not within {PATIENCE}\n{self.consoles()}"
            await sleep(self.clock, timedelta(seconds=0.5))

    def consoles(self) -> str:
        names = ("one", "two")
        return "\n".join(
            f"== {name}\n" + "\n".join(self.harvester.console(NAMESPACE, name)[-60:]) for name in names
        )

    async def boot(
        self, name: str = "one", server: str = "", *, cluster_wide: bool = False, **config: Any
    ) -> str:
        """A machine of the cluster, the first server or an agent; its address. `cluster_wide`: with all rights of a driver,
        also those on shared volumes."""
        addon = await run_addon(self.harvester, "mine", "rke2", cluster_wide=cluster_wide)
        role = "agent" if server else "server"
        settings: Raw = {"token": "s3cret", **config}
        settings |= (
            {"server": f"https://{server}:9345"}
            if server
            else {"cloud-provider-name": "harvester", "cloud-provider-config": RKE2_CONFIG}
        )
        files = {"/etc/rancher/rke2/config.yaml": dump(settings)}
        commands = [INSTALL[0].format(f"INSTALL_RKE2_TYPE={role}"), INSTALL[1].format(role)]
        return await start(self.harvester, name, a_document(name, commands, files, addon))

    async def wait_for_driver(self, *nodes: str) -> None:
        await self.until(lambda: self._clusters, "a cluster")
        await self.until(lambda: all(self.cluster.csi.find(one, DRIVER) for one in nodes), "the driver")
        await self.until(lambda: self.pod_runs(), "the controllers")

    def pod_runs(self) -> bool:
        return any(
            "csi-driver-controllers: info: serving" in line
            for line in self.harvester.console(NAMESPACE, "one")
        )

    def node(self, name: str) -> CsiCall:
        """The driver's socket on a node, as its kubelet calls it."""
        found = self.cluster.csi.find(name, DRIVER)
        assert found is not None, f"{name} has no driver"
        return found

    # -- objects

    async def claim(self, name: str, size: str = "1Gi", **spec: Any) -> None:
        asked: Raw = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": size}}, **spec}
        await self.client.create(PVC, new_object(PVC, name, "default", spec=asked), "default")

    async def volume_of(self, claim: str) -> Raw:
        found = await self.client.get(PVC.ref(claim, "default"))
        return await self.client.get(PV.ref(found["spec"]["volumeName"]))

    async def attach(self, claim: str, node: str) -> None:
        """What the attach-detach controller orders."""
        volume = name_of(await self.volume_of(claim))
        spec = {"attacher": DRIVER, "nodeName": node, "source": {"persistentVolumeName": volume}}
        raw = new_object(VOLUME_ATTACHMENT, f"csi-{claim}-{node}", spec=spec)
        await self.client.create(VOLUME_ATTACHMENT, raw)

    async def detach(self, claim: str, node: str) -> None:
        await self.client.delete(VOLUME_ATTACHMENT.ref(f"csi-{claim}-{node}"))

    async def phase(self, claim: str) -> str:
        found = await self.client.find(PVC.ref(claim, "default"))
        return str(nested(found, "status", "phase", default="absent"))

    async def is_bound(self, claim: str) -> bool:
        return await self.phase(claim) == "Bound"

    async def is_attached(self, claim: str, node: str) -> bool:
        found = await self.client.find(VOLUME_ATTACHMENT.ref(f"csi-{claim}-{node}"))
        return bool(nested(found, "status", "attached", default=False))

    async def observe(self) -> dict[str, str]:
        """What an administrator sees in the guest and on Harvester; volumes by their claim's name."""
        claims = {name_of(raw): raw for raw in await self.client.list(PVC, "default")}
        names = {f"pvc-{raw['metadata']['uid']}": f"<{name}>" for name, raw in claims.items()}
        found: dict[str, str] = {}
        for name, raw in claims.items():
            marks = [one["type"] for one in nested(raw, "status", "conditions", default=[]) or []]
            parts = [_phase(raw), nested(raw, "status", "capacity", "storage", default=""), *marks]
            found[f"claim {name}"] = " ".join(filter(None, parts))
        for raw in await self.client.list(PV):
            names.setdefault(name_of(raw), f"<{nested(raw, 'spec', 'claimRef', 'name')}>")
            found[f"volume {names[name_of(raw)]}"] = f"{_phase(raw)} {raw['spec']['capacity']['storage']}"
        for raw in await self.client.list(VOLUME_ATTACHMENT):
            state = "attached" if nested(raw, "status", "attached") else "not attached"
            error = nested(raw, "status", "attachError", "message", default="")
            found[f"attachment {name_of(raw)}"] = " ".join(filter(None, (state, error)))
        for raw in await self.client.list(SNAPSHOT, "default"):
            found[f"snapshot {name_of(raw)}"] = f"ready {nested(raw, 'status', 'readyToUse', default=False)}"
        found["contents"] = str(len(await self.client.list(SNAPSHOT_CONTENT)))
        for raw in await self.host.list(PVC, NAMESPACE):
            if name_of(raw) in names:
                if volume := nested(raw, "spec", "volumeName", default=""):
                    names[volume] = names[name_of(raw)]
                size = nested(raw, "status", "capacity", "storage", default="")
                found[f"on Harvester {names[name_of(raw)]}"] = f"{_phase(raw)} {size}"
        for raw in await self.host.list(kinds.NETWORK_FILE_SYSTEM, "harvester-system"):
            found[f"export {names.get(name_of(raw), name_of(raw))}"] = " ".join(
                nested(raw, "status", field, default="") for field in ("state", "status", "endpoint")
            ).strip()
        for raw in await self.host.list(kinds.VM, NAMESPACE):
            volumes = nested(raw, "spec", "template", "spec", "volumes", default=[])
            plugged = [nested(one, "persistentVolumeClaim", "claimName", default="") for one in volumes]
            found[f"VM {name_of(raw)}"] = (
                ", ".join(names[one] for one in plugged if one in names) or "no volume"
            )
        return found


def _phase(raw: Raw) -> str:
    phase = str(nested(raw, "status", "phase", default="-"))
    return f"{phase}, deleting" if is_deleting(raw) else phase


@asynccontextmanager
async def a_guest(seed: int = 7) -> AsyncIterator[GuestStorage]:
    clusters: dict[str, GuestCluster] = {}
    async with a_harvester(seed, machine=machine_factory(guest_programs(), clusters=clusters)) as harvester:
        yield GuestStorage(harvester, clusters)


__all__ = ["DRIVER", "GuestStorage", "a_guest", "annotations_of"]
