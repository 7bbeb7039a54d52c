"""PersistentVolumes of a Harvester: what the storage drivers of the hosts make for a claim, and where it is attached.

The controller is keyed by the name of the volume. It stands for three programs: the hosts' attach-detach controller with
their drivers (VolumeAttachments), the reclaimer (a volume whose claim is gone is deleted, or Released where its class says
Retain), and Longhorn, whose `volumes.longhorn.io` say the same in its own words. A volume for which no host has room is bound all
the same, and cannot be attached.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from datetime import timedelta

from windrow.emulator import kinds, names
from windrow.emulator.delays import Delays, ScaledClock
from windrow.emulator.host.longhorn_scheduling import SCHEDULING_ERROR, Placement, ReplicaScheduler
from windrow.emulator.kit.client import AdminClient
from windrow.emulator.kit.edits import annotate, remove_finalizer
from windrow.emulator.kit.listers import Key, Listers
from windrow.emulator.kit.vm_readings import fixed_claims_of
from windrow.emulator.quantities import quantity_or_zero
from windrow.kubernetes.objects import (
    Raw,
    annotations_of,
    is_deleting,
    name_of,
    namespace_of,
    nested,
    new_object,
    resource_version_of,
    uid_of,
)
from windrow.kubernetes.resources import VOLUME_ATTACHMENT, ref_of

LONGHORN = "driver.longhorn.io"
LONGHORN_NAMESPACE = "longhorn-system"
PV_PROTECTION = "kubernetes.io/pv-protection"
PROVISIONED_BY = "pv.kubernetes.io/provisioned-by"
ON_HOST = ("Scheduled", "Running")


def volume_name(claim: Raw) -> str:
    """The name of the volume that is made for a claim."""
    return f"pvc-{uid_of(claim)}"


def render_volume(claim: Raw, storage_class: Raw) -> Raw:
    """The volume of a claim, bound to it. A volume of one host says on which."""
    name, driver = volume_name(claim), str(storage_class["provisioner"])
    parameters = {key: str(value) for key, value in (storage_class.get("parameters") or {}).items()}
    spec: Raw = {
        "accessModes": list(nested(claim, "spec", "accessModes", default=[])),
        "capacity": {"storage": nested(claim, "spec", "resources", "requests", "storage")},
        "claimRef": {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "namespace": namespace_of(claim),
            "name": name_of(claim),
            "uid": uid_of(claim),
            "resourceVersion": resource_version_of(claim),
        },
        "csi": {
            "driver": driver,
            "volumeHandle": name,
            "volumeAttributes": {
                **parameters,
                "storage.kubernetes.io/csiProvisionerIdentity": f"emulated-{driver}",
            },
        },
        "persistentVolumeReclaimPolicy": storage_class.get("reclaimPolicy") or "Delete",
        "storageClassName": name_of(storage_class),
        "volumeMode": nested(claim, "spec", "volumeMode", default="Filesystem"),
    }
    host = annotations_of(claim).get(names.SELECTED_NODE)
    if host and driver in names.LOCAL_PROVISIONERS:
        term = {"matchExpressions": [{"key": names.HOSTNAME, "operator": "In", "values": [host]}]}
        spec["nodeAffinity"] = {"required": {"nodeSelectorTerms": [term]}}
    return new_object(
        kinds.PV, name, annotations={PROVISIONED_BY: driver}, finalizers=[PV_PROTECTION], spec=spec
    )


def render_longhorn_volume(volume: Raw, storage_class: Raw) -> Raw:
    """Longhorn's own object of a volume."""
    parameters = storage_class.get("parameters") or {}
    shared = "ReadWriteMany" in nested(volume, "spec", "accessModes", default=[])
    claim = nested(volume, "spec", "claimRef", default={})
    return new_object(
        kinds.LONGHORN_VOLUME,
        name_of(volume),
        LONGHORN_NAMESPACE,
        spec={
            "size": str(size_of(volume)),
            "numberOfReplicas": replicas_of(parameters),
            "dataEngine": parameters.get("dataEngine") or "v1",
            "frontend": "blockdev",
            "accessMode": "rwx" if shared else "rwo",
            "migratable": shared and parameters.get("migratable") == "true",
            **({"backingImage": parameters["backingImage"]} if "backingImage" in parameters else {}),
        },
        status={
            **longhorn_state([]),
            "kubernetesStatus": {
                "pvName": name_of(volume),
                "pvStatus": "Bound",
                "namespace": claim.get("namespace", ""),
                "pvcName": claim.get("name", ""),
            },
        },
    )


def longhorn_state(hosts: list[str], placed: Placement | None = None) -> Raw:
    """Attached where any host has it, else detached, of which Longhorn does not know whether it is healthy."""
    if hosts:
        robustness = "degraded" if placed is not None and placed.is_degraded else "healthy"
        return {"state": "attached", "robustness": robustness, "currentNodeID": hosts[0], "ownerID": hosts[0]}
    return {"state": "detached", "robustness": "unknown", "currentNodeID": ""}


def scheduled_condition(placed: Placement) -> Raw:
    """Whether a host has a replica of the volume, in the status of Longhorn's own object."""
    if not placed.problem:
        return {"type": "Scheduled", "status": "True", "reason": "", "message": ""}
    return {
        "type": "Scheduled",
        "status": "False",
        "reason": "ReplicaSchedulingFailure",
        "message": placed.problem,
    }


def replicas_of(parameters: Mapping[str, object] | None) -> int:
    """How many replicas a class asks for."""
    text = str((parameters or {}).get("numberOfReplicas") or "")
    return int(text) if text.isdecimal() else 3


def attach_problem(claim: Raw, listers: Listers) -> str:
    """Why the volume of a claim cannot be attached to any host, as Longhorn's driver answers; ""."""
    name = str(nested(claim, "spec", "volumeName", default=""))
    if not annotations_of(listers.volumes.get(("", name), {"metadata": {}})).get(SCHEDULING_ERROR):
        return ""
    return (
        f'AttachVolume.Attach failed for volume "{name}" : rpc error: code = Aborted desc = volume {name} is not ready for '
        "workloads"
    )


def size_of(raw: Raw) -> int:
    """Bytes of a volume or, as far as it has them, of a claim."""
    text = nested(raw, "spec", "capacity", "storage") or nested(raw, "status", "capacity", "storage")
    return int(quantity_or_zero(text))


def attachment_name(driver: str, handle: str, node: str) -> str:
    """The name that the attach-detach controller gives."""
    return "csi-" + hashlib.sha256(f"{handle}{driver}{node}".encode()).hexdigest()


def hosts_of(claim: Key, vmis: list[Raw]) -> list[str]:
    """The hosts to which the claim is attached for these instances; two while one of them migrates."""
    hosts: dict[str, None] = {}
    for vmi in vmis:
        if not _holds(claim[1], vmi):
            continue
        hosts[nested(vmi, "status", "nodeName", default="")] = None
        state = nested(vmi, "status", "migrationState", default={})
        if state and not state.get("completed"):
            hosts[state.get("targetNode", "")] = None
    return [host for host in hosts if host]


def _holds(claim: str, vmi: Raw) -> bool:
    if nested(vmi, "status", "phase") not in ON_HOST:
        return False
    plugged = [
        nested(one, "persistentVolumeClaimInfo", "claimName")
        for one in nested(vmi, "status", "volumeStatus", default=[])
        if nested(one, "hotplugVolume", "attachPodName")
    ]
    return claim in plugged or claim in fixed_claims_of(vmi["spec"])


class PersistentVolumeController:
    """The controller. Keys are those of the volumes."""

    def __init__(
        self,
        client: AdminClient,
        listers: Listers,
        replicas: ReplicaScheduler,
        clock: ScaledClock,
        delays: Delays,
    ) -> None:
        self._client = client
        self._listers = listers
        self._replicas = replicas
        self._clock = clock
        self._delays = delays

    async def reconcile(self, key: Key) -> timedelta | None:
        volume = self._listers.volumes.get(key)
        if volume is None:
            self._replicas.release(key[1])
            return None
        claim = self._claim_of(volume)
        hosts = self._hosts_of(volume, claim)
        await self._attach(volume, hosts)
        problem = await self._sync_longhorn_volume(volume, hosts)
        if claim is None and not hosts and not self._listers.attachments_by_volume.get(key):
            await self._reclaim(volume)
        return self._clock.after(self._delays.replica_retry) if problem else None

    def _claim_of(self, volume: Raw) -> Raw | None:
        """The claim that the volume is bound to; None for another one of its name."""
        ref = nested(volume, "spec", "claimRef", default={})
        claim = self._listers.claims.get((ref.get("namespace", ""), ref.get("name", "")))
        return claim if claim is not None and uid_of(claim) == ref.get("uid") else None

    def _hosts_of(self, volume: Raw, claim: Raw | None) -> list[str]:
        if claim is None:
            return []
        key = namespace_of(claim), name_of(claim)
        vmis = (self._listers.instances.get(one) for one in sorted(self._listers.vmis_by_claim.get(key, ())))
        return hosts_of(key, [vmi for vmi in vmis if vmi is not None])

    async def _attach(self, volume: Raw, hosts: list[str]) -> None:
        """A VolumeAttachment for each host, and no others."""
        driver = str(nested(volume, "spec", "csi", "driver", default=""))
        handle = str(nested(volume, "spec", "csi", "volumeHandle", default=""))
        wanted = {attachment_name(driver, handle, host): host for host in hosts}
        held = self._listers.attachments_by_volume.get(("", name_of(volume)), frozenset())
        for key in sorted(key for key in held if key[1] not in wanted):
            await self._client.delete(VOLUME_ATTACHMENT, self._listers.attachments[key])
        for name, host in wanted.items():
            if ("", name) in held:
                continue
            spec = {"attacher": driver, "nodeName": host, "source": {"persistentVolumeName": name_of(volume)}}
            await self._client.ensure(VOLUME_ATTACHMENT, new_object(VOLUME_ATTACHMENT, name, spec=spec))
            ref = VOLUME_ATTACHMENT.ref(name)
            await self._client.mutate(ref, lambda raw: raw.update(status={"attached": True}), "status")

    async def _sync_longhorn_volume(self, volume: Raw, hosts: list[str]) -> str:
        """Place the replicas, and write what became of them; why none is placed."""
        if nested(volume, "spec", "csi", "driver") != LONGHORN:
            return ""
        size = size_of(volume)
        wanted = replicas_of(nested(volume, "spec", "csi", "volumeAttributes"))
        placed = self._replicas.place(name_of(volume), size, wanted)

        def edit(raw: Raw) -> None:
            raw["spec"]["size"] = str(size)
            state = {**longhorn_state(hosts, placed), "conditions": [scheduled_condition(placed)]}
            raw["status"] = {**(raw.get("status") or {}), **state}

        await self._client.mutate(kinds.LONGHORN_VOLUME.ref(name_of(volume), LONGHORN_NAMESPACE), edit)
        if annotations_of(volume).get(SCHEDULING_ERROR, "") != placed.problem:
            mark = {SCHEDULING_ERROR: placed.problem or None}
            await self._client.mutate(ref_of(kinds.PV, volume), lambda raw: annotate(raw, mark))
        return placed.problem

    async def _reclaim(self, volume: Raw) -> None:
        if nested(volume, "spec", "claimRef") is None:
            return  # its administrator offers it again
        ref = ref_of(kinds.PV, volume)
        if nested(volume, "spec", "persistentVolumeReclaimPolicy") != "Delete" and not is_deleting(volume):
            await self._client.mutate(ref, lambda raw: raw["status"].update(phase="Released"), "status")
            return
        found = await self._client.find(kinds.LONGHORN_VOLUME.ref(name_of(volume), LONGHORN_NAMESPACE))
        if found is not None:
            await self._client.delete(kinds.LONGHORN_VOLUME, found)
        await self._client.delete(kinds.PV, volume)
        await self._client.mutate(ref, remove_finalizer(PV_PROTECTION))


async def create_volume(
    client: AdminClient, claim: Raw, storage_class: Raw, replicas: ReplicaScheduler
) -> Raw:
    """Make the volume of a claim, or find it: also one for which no host has room. May be repeated."""
    made = render_volume(claim, storage_class)
    if storage_class["provisioner"] == LONGHORN:
        wanted = replicas_of(storage_class.get("parameters"))
        if problem := replicas.place(name_of(made), size_of(made), wanted).problem:
            annotate(made, {SCHEDULING_ERROR: problem})
    volume = await client.ensure(kinds.PV, made)
    await client.mutate(ref_of(kinds.PV, volume), lambda raw: raw.update(status={"phase": "Bound"}), "status")
    if storage_class["provisioner"] == LONGHORN:
        await client.ensure(kinds.LONGHORN_VOLUME, render_longhorn_volume(volume, storage_class))
    return volume


async def claim_volume(client: AdminClient, name: str, bound_to: Raw) -> None:
    """Bind a volume that was there before to the claim, unless it is another's. May be repeated."""
    await client.mutate(kinds.PV.ref(name), lambda raw: raw["spec"].setdefault("claimRef", bound_to))
    await client.mutate(kinds.PV.ref(name), lambda raw: raw.update(status={"phase": "Bound"}), "status")


async def expand_volume(client: AdminClient, name: str, size: object) -> None:
    """The volume has this capacity. May be repeated."""
    await client.mutate(kinds.PV.ref(name), lambda raw: raw["spec"].update(capacity={"storage": size}))
