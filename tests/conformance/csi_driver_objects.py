"""The same calls to a CSI driver, one after the other, and what each answers and changes on Harvester, in a form that can be compared."""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from google.protobuf.json_format import MessageToDict
from google.protobuf.message import Message
from tests.conformance.cloud_provider_rig import Host, a_host, our_guest
from tests.conformance.csi_driver_rig import Driver, a_driver
from tests.conformance.object_tables import Difference, field_differences, flat

from windrow.core.formats.quantity import NANO, Quantity
from windrow.emulator import kinds
from windrow.emulator.delays import Delays
from windrow.kubernetes.objects import Raw, mappings_at, nested, new_object
from windrow.kubernetes.resources import PVC, STORAGE_CLASS
from windrow.protocols.csi import csi_pb2 as csi

DOCUMENT = Path(__file__).parents[2] / "docs/reference/differences-csi-driver.md"
HEADING = "## The same calls to both"
NAMESPACE = "default"
NODE, OTHER_NODE = "n-1", "n-2"
GIB = 2**30
SETTLED_S = 20.0
# In simulated seconds: what takes a while is never done at the first look, however slow this machine is.
SLOW = Delays(volume_snapshot=30.0, volume_bind=30.0)
CLASS, SHARED_CLASS = "harvester-longhorn", "shared"
# The names that the side-cars give.
VOLUME = "pvc-0b1e6d5a-5f0e-4c57-9d8f-2a54c5a6a001"
RESTORED = "pvc-0b1e6d5a-5f0e-4c57-9d8f-2a54c5a6a002"
FILES = "pvc-0b1e6d5a-5f0e-4c57-9d8f-2a54c5a6a003"
REFUSED = "pvc-0b1e6d5a-5f0e-4c57-9d8f-2a54c5a6a004"
COPY = "pvc-0b1e6d5a-5f0e-4c57-9d8f-2a54c5a6a005"
MISSING = "pvc-0b1e6d5a-5f0e-4c57-9d8f-2a54c5a6a009"
FROM_BACKUP = "pvc-0b1e6d5a-5f0e-4c57-9d8f-2a54c5a6a006"
SHARED = "pvc-0b1e6d5a-5f0e-4c57-9d8f-2a54c5a6a007"
SNAPSHOT = "snapshot-0b1e6d5a-5f0e-4c57-9d8f-2a54c5a6a011"
BACKUP = "snapshot-0b1e6d5a-5f0e-4c57-9d8f-2a54c5a6a012"
BACKUP_HANDLE = f"backup:{NAMESPACE}/{BACKUP}"

_UID = "0b1e6d5a-5f0e-4c57-9d8f-2a54c5a6a0[01][0-9]"
_MODES = csi.VolumeCapability.AccessMode
# What the API server and the emulator write, and what differs from run to run.
NOT_COMPARED = re.compile(
    r"\.metadata\.(uid|resourceVersion|creationTimestamp|generation|managedFields|deletionTimestamp"
    r"|deletionGracePeriodSeconds)\b|\.spec\.volumeName\b|boundVolumeSnapshotContentName|creation_?[tT]ime|guest-uid"
    r"|\.ownerReferences\[\d+\]\.uid|\.status\.handle|vendor_version|\.hotplugVolume\."
    r"|attach\.csi\.windrow\.io"
)


def capability(
    mode: int = _MODES.SINGLE_NODE_WRITER, fs_type: str = "ext4", *, block: bool = False
) -> csi.VolumeCapability:
    access = csi.VolumeCapability.AccessMode(mode=mode)  # type: ignore[arg-type]
    if block:
        return csi.VolumeCapability(block=csi.VolumeCapability.BlockVolume(), access_mode=access)
    return csi.VolumeCapability(mount=csi.VolumeCapability.MountVolume(fs_type=fs_type), access_mode=access)


def shared() -> csi.VolumeCapability:
    return capability(_MODES.MULTI_NODE_MULTI_WRITER)


def create(name: str = VOLUME, size: int = GIB, **more: Any) -> csi.CreateVolumeRequest:
    more.setdefault("volume_capabilities", [capability()])
    return csi.CreateVolumeRequest(name=name, capacity_range=csi.CapacityRange(required_bytes=size), **more)


def publish(volume: str = VOLUME, node: str = NODE, **more: Any) -> csi.ControllerPublishVolumeRequest:
    more.setdefault("volume_capability", capability())
    return csi.ControllerPublishVolumeRequest(volume_id=volume, node_id=node, **more)


def unpublish(volume: str = VOLUME, node: str = NODE) -> csi.ControllerUnpublishVolumeRequest:
    return csi.ControllerUnpublishVolumeRequest(volume_id=volume, node_id=node)


def delete(volume: str = VOLUME) -> csi.DeleteVolumeRequest:
    return csi.DeleteVolumeRequest(volume_id=volume)


def expand(volume: str = VOLUME, size: int = 2 * GIB, **more: Any) -> csi.ControllerExpandVolumeRequest:
    more.setdefault("volume_capability", capability())
    limits = csi.CapacityRange(required_bytes=size)
    return csi.ControllerExpandVolumeRequest(volume_id=volume, capacity_range=limits, **more)


def snapshot(name: str = SNAPSHOT, volume: str = VOLUME, **more: Any) -> csi.CreateSnapshotRequest:
    return csi.CreateSnapshotRequest(name=name, source_volume_id=volume, **more)


def backup() -> csi.CreateSnapshotRequest:
    return snapshot(BACKUP, parameters={"type": "backup"})


def of_snapshot(snapshot_id: str = SNAPSHOT) -> csi.VolumeContentSource:
    source = csi.VolumeContentSource.SnapshotSource(snapshot_id=snapshot_id)
    return csi.VolumeContentSource(snapshot=source)


def of_volume(volume_id: str = VOLUME) -> csi.VolumeContentSource:
    return csi.VolumeContentSource(volume=csi.VolumeContentSource.VolumeSource(volume_id=volume_id))


def is_snapshot_ready(answer: Message) -> bool:
    return not isinstance(answer, csi.CreateSnapshotResponse) or answer.snapshot.ready_to_use


def _validate(volume: str) -> csi.ValidateVolumeCapabilitiesRequest:
    return csi.ValidateVolumeCapabilitiesRequest(volume_id=volume, volume_capabilities=[capability()])


# In this order; each by what it asks for, in the words of the table.
CALLS: Mapping[str, Message] = {
    "plugin info": csi.GetPluginInfoRequest(),
    "plugin capabilities": csi.GetPluginCapabilitiesRequest(),
    "controller capabilities": csi.ControllerGetCapabilitiesRequest(),
    "node capabilities": csi.NodeGetCapabilitiesRequest(),
    "node info": csi.NodeGetInfoRequest(),
    "create": create(),
    "create again": create(),
    "create again, larger": create(size=2 * GIB),
    "create as file system on Harvester": create(
        FILES,
        3 * GIB + 1,
        parameters={"hostStorageClass": CLASS, "hostVolumeMode": "filesystem", "other": "x"},
    ),
    "create of an unknown class": create(REFUSED, parameters={"hostStorageClass": "none"}),
    "create of an unknown mode": create(MISSING, parameters={"hostVolumeMode": "files"}),
    "delete what has an unknown mode": delete(MISSING),
    "create read-only": create(REFUSED, volume_capabilities=[capability(_MODES.SINGLE_NODE_READER_ONLY)]),
    "delete what is read-only": delete(REFUSED),
    "create without a name": create(""),
    "create a copy": create(COPY, volume_content_source=of_volume()),
    "delete the copy": delete(COPY),
    "validate": _validate(VOLUME),
    "validate what is missing": _validate(MISSING),
    "validate without id": _validate(""),
    "list volumes": csi.ListVolumesRequest(),
    "get volume": csi.ControllerGetVolumeRequest(volume_id=VOLUME),
    "attach what is missing": publish(MISSING),
    "attach to what is missing": publish(node="missing"),
    "attach without node": publish(node=""),
    "attach": publish(),
    "attach again": publish(),
    "attach again, read-only": publish(readonly=True),
    "delete while attached": delete(),
    "expand": expand(),
    "shrink": expand(size=GIB),
    "expand without capability": expand(size=2 * GIB, volume_capability=None),
    "expand what is missing": expand(MISSING),
    "snapshot": snapshot(),
    "snapshot again": snapshot(),
    "snapshot again, of another volume": snapshot(volume=FILES),
    "snapshot of what is missing": snapshot("snapshot-other", MISSING),
    "list snapshots": csi.ListSnapshotsRequest(),
    "get snapshot": csi.GetSnapshotRequest(snapshot_id=SNAPSHOT),
    "restore": create(RESTORED, 2 * GIB, volume_content_source=of_snapshot()),
    "restore of what is missing": create(MISSING, 2 * GIB, volume_content_source=of_snapshot("missing")),
    "back up": backup(),
    "back up again": backup(),
    "list snapshots and backups": csi.ListSnapshotsRequest(),
    "list a snapshot": csi.ListSnapshotsRequest(snapshot_id=SNAPSHOT),
    "restore a backup": create(FROM_BACKUP, 3 * GIB, volume_content_source=of_snapshot(BACKUP_HANDLE)),
    "restore what was never backed up": create(
        MISSING, 2 * GIB, volume_content_source=of_snapshot("backup:default/no")
    ),
    "detach": unpublish(),
    "detach again": unpublish(),
    "detach without node": unpublish(node=""),
    "delete snapshot": csi.DeleteSnapshotRequest(snapshot_id=SNAPSHOT),
    "delete snapshot again": csi.DeleteSnapshotRequest(snapshot_id=SNAPSHOT),
    "delete backup": csi.DeleteSnapshotRequest(snapshot_id=BACKUP_HANDLE),
    "delete backup again": csi.DeleteSnapshotRequest(snapshot_id=BACKUP_HANDLE),
    "delete": delete(),
    "delete again": delete(),
    "detach what is gone": unpublish(),
    "delete the restored": delete(RESTORED),
    "delete what was backed up": delete(FROM_BACKUP),
    "delete the file system": delete(FILES),
    "create shared": create(
        SHARED, volume_capabilities=[shared()], parameters={"hostStorageClass": SHARED_CLASS}
    ),
    "attach shared": publish(SHARED, volume_capability=shared()),
    "attach shared to the other node": publish(SHARED, OTHER_NODE, volume_capability=shared()),
    "detach shared": unpublish(SHARED),
    "detach shared from the other node": unpublish(SHARED, OTHER_NODE),
    "delete shared": delete(SHARED),
    "create without access mode": create(
        REFUSED, volume_capabilities=[csi.VolumeCapability(mount=csi.VolumeCapability.MountVolume())]
    ),
}


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a call was answered, and what it changed on Harvester."""

    fields: Mapping[str, str]


def differences(go: Outcome, ours: Outcome) -> Iterator[Difference]:
    """What only one of them answers to a refused call goes without saying."""
    found = list(field_differences(dict(go.fields), dict(ours.fields)))
    whole = {
        field for field, *_ in found if field in ("claim", "disk", "snapshot", "backup", "restore", "export")
    }
    refused = any(field == "codes" for field, *_ in found) and not all(
        one.fields["codes"].endswith("OK") for one in (go, ours)
    )
    for difference in found:
        head = re.split(r"[.\[]", difference[0])[0]
        if head != difference[0] and (head in whole or (refused and head == "answer")):
            continue
        yield difference


class Observed:
    """The host objects of the calls, as they were looked at last."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._seen: dict[str, dict[str, str]] = {}

    async def changes(self, volume: str, snapshot_name: str) -> dict[str, str]:
        """What has changed of these objects, once nothing of them is under way."""
        found = await self._settled(volume, snapshot_name)
        changed: dict[str, str] = {}
        names = dict.fromkeys(("claim", "disk", "restore", "export"), volume) | dict.fromkeys(
            ("snapshot", "backup"), snapshot_name
        )
        for title, name in names.items():
            before, now = self._seen.get(f"{title}/{name}", {}), found[title]
            self._seen[f"{title}/{name}"] = now
            if before and not now:
                changed[title] = "gone"
            elif now:
                if not before:
                    changed[title] = "made"
                for field in {*before, *now}:
                    if before.get(field) != now.get(field):
                        changed[field] = now.get(field, "removed")
        return changed

    async def _settled(self, volume: str, snapshot_name: str) -> dict[str, dict[str, str]]:
        deadline = time.monotonic() + SETTLED_S
        while True:
            raws = await self._read(volume, snapshot_name)
            if _is_settled(raws):
                return {title: _fields(title, raw) for title, raw in raws.items()}
            assert time.monotonic() < deadline, f"never settled: {json.dumps(raws, indent=1)}"
            await asyncio.sleep(0.1)

    async def _read(self, volume: str, snapshot_name: str) -> dict[str, Raw]:
        api = self._host.api
        wanted = {
            "claim": (PVC, volume),
            "restore": (kinds.REMOTE_RESTORE, volume),
            "snapshot": (kinds.SNAPSHOT, snapshot_name),
            "backup": (kinds.REMOTE_BACKUP, snapshot_name),
        }
        found = {
            title: await api.find(kind.ref(name, NAMESPACE)) or {} if name else {}
            for title, (kind, name) in wanted.items()
        }
        # Its name is that of the claim's volume on Harvester.
        name = str(nested(found["claim"], "spec", "volumeName", default=""))
        export = kinds.NETWORK_FILE_SYSTEM.ref(name, "harvester-system")
        found["export"] = await api.find(export) or {} if name else {}
        return {**found, "disk": await self._disk(volume)}

    async def _disk(self, volume: str) -> Raw:
        vm = await self._host.api.get(kinds.VM.ref(NODE, NAMESPACE))
        vmi = await self._host.api.get(kinds.VMI.ref(NODE, NAMESPACE))
        spec = nested(vm, "spec", "template", "spec")
        parts = {
            "volume": _named(mappings_at(spec, "volumes"), volume),
            "disk": _named(mappings_at(spec, "domain", "devices", "disks"), volume),
            "status": _named(mappings_at(vmi, "status", "volumeStatus"), volume),
        }
        return {title: part for title, part in parts.items() if part}


def _named(found: Sequence[Mapping[str, Any]], name: str) -> Mapping[str, Any]:
    return next((one for one in found if one.get("name") == name), {})


def _is_settled(raws: Mapping[str, Raw]) -> bool:
    if any(nested(raw, "metadata", "deletionTimestamp") for raw in raws.values()):
        return False
    claim, disk, shot = raws["claim"], raws["disk"], raws["snapshot"]
    grown = nested(claim, "spec", "resources", "requests", "storage") == nested(
        claim, "status", "capacity", "storage"
    )
    is_plugged = set(disk) in (set(), {"volume", "disk", "status"}) and (
        not disk or disk["status"].get("phase") == "Ready"
    )
    state = nested(raws["export"], "status", "state", default="")
    if state.endswith("ing") or (raws["export"] and not state):
        return False
    is_bound = not claim or (nested(claim, "status", "phase") == "Bound" and grown)
    is_done = all(
        not raws[title] or nested(raws[title], "status", "success") for title in ("backup", "restore")
    )
    return is_bound and is_plugged and is_done and (not shot or bool(nested(shot, "status", "readyToUse")))


def _fields(title: str, raw: Raw) -> dict[str, str]:
    if not raw:
        return {}
    return {path: _general(path, text) for path, text in flat(title, raw) if not NOT_COMPARED.search(path)}


def _general(path: str, text: str) -> str:
    """Without the names of this run, and sizes in bytes, however they are written."""
    if re.search(r"\.(storage|restoreSize)$", path):
        return str(Quantity.parse(text).nanos // NANO)
    if path == "answer.max_volumes_per_node":
        return "<256 less the node's own disks>"
    text = re.sub(rf"snapshot-{_UID}", "<snapshot>", re.sub(rf"pvc-{_UID}", "<volume>", text))
    text = re.sub(_UID, "<uid of the volume>", text)
    return re.sub("pvc-[0-9a-f-]{36}", "<volume on Harvester>", text)


async def ask_all(driver: Driver, host: Host) -> dict[str, Outcome]:
    """Every call, in its order."""
    observed = Observed(host)
    outcomes = {}
    for title, request in CALLS.items():
        codes, answer = await driver.repeat(request, is_snapshot_ready)
        changed = await observed.changes(_volume_of(request), _snapshot_of(request))
        outcomes[title] = Outcome({"codes": ", ".join(codes), **changed, **_answer_fields(answer)})
    return outcomes


def _volume_of(request: Message) -> str:
    if isinstance(request, csi.CreateVolumeRequest):
        return request.name
    return str(getattr(request, "volume_id", "") or getattr(request, "source_volume_id", ""))


def _snapshot_of(request: Message) -> str:
    if isinstance(request, csi.CreateSnapshotRequest):
        return request.name
    return str(getattr(request, "snapshot_id", "")).removeprefix(f"backup:{NAMESPACE}/")


def _answer_fields(answer: Message | None) -> dict[str, str]:
    if answer is None:
        return {}
    found = MessageToDict(answer, preserving_proto_field_name=True)
    found["entries"] = sorted(found.get("entries", []), key=json.dumps)
    offered = {f"offers {_leaf(one)}": "yes" for one in found.pop("capabilities", [])}
    return offered | {
        path: _general(path, text)
        for path, text in flat("answer", found)
        if path != "answer" and not NOT_COMPARED.search(path)
    }


def _leaf(capability_: Any) -> str:
    while isinstance(capability_, Mapping):
        capability_ = next(iter(capability_.values()))
    return str(capability_)


async def run_all(program: Path, folder: Path) -> dict[str, Outcome]:
    """Every call to the program, on a Harvester of its own."""
    folder.mkdir(parents=True, exist_ok=True)  # noqa: ASYNC240
    async with a_host(delays=SLOW) as host, our_guest() as guest:
        for name in (NODE, OTHER_NODE):
            await host.make_vm(name)
            await guest.register(name)
        of_many = {
            "provisioner": "driver.longhorn.io",
            "parameters": {"numberOfReplicas": "3", "nfsOptions": "vers=4.1,noresvport"},
        }
        await host.api.create(STORAGE_CLASS, new_object(STORAGE_CLASS, SHARED_CLASS, **of_many))
        # The Go driver reads from it which claim of the guest uses a shared volume.
        claim = {"kind": "PersistentVolumeClaim", "namespace": "default", "name": "files"}
        source = {"driver": "driver.harvesterhci.io", "volumeHandle": SHARED}
        spec = {
            "claimRef": claim,
            "capacity": {"storage": "1Gi"},
            "accessModes": ["ReadWriteMany"],
            "csi": source,
        }
        await guest.api.create(kinds.PV, new_object(kinds.PV, SHARED, spec=spec))
        async with a_driver(program, folder, host.kubeconfig, guest.kubeconfig, NODE) as driver:
            return await ask_all(driver, host)
