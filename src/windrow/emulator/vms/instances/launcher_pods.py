"""The virt-launcher pod of an instance, and the pod that holds its hot-plugged volumes."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from windrow.core.clock import format_time
from windrow.emulator import kinds
from windrow.emulator.kit.vm_readings import fixed_claims_of
from windrow.kubernetes.conditions import Condition, set_condition
from windrow.kubernetes.objects import (
    Raw,
    labels_of,
    name_of,
    namespace_of,
    nested,
    new_object,
    owner_reference,
    uid_of,
)
from windrow.kubernetes.resources import POD

LAUNCHER_IMAGE = "registry.suse.com/suse/sles/15.7/virt-launcher:1.7.0-150700.3.16.2"


def render_pod(vmi: Raw, name: str) -> Raw:
    """The pod as virt-controller creates it, reduced to the fields that clients read."""
    requests = nested(vmi, "spec", "domain", "resources", "requests", default={})
    labels = {**labels_of(vmi), "kubevirt.io": "virt-launcher", "kubevirt.io/created-by": uid_of(vmi)}
    annotations = {"kubevirt.io/domain": name_of(vmi)}
    hostname = str(nested(vmi, "spec", "hostname", default="")) or name_of(vmi).partition(".")[0][:63]
    return new_object(
        POD,
        name,
        namespace_of(vmi),
        labels={**labels, "vm.kubevirt.io/name": hostname},
        annotations=annotations,
        owners=[owner_reference(kinds.VMI, vmi, controller=True, block=True)],
        spec={
            "restartPolicy": "Never",
            "hostname": hostname,
            "containers": [
                {"name": "compute", "image": LAUNCHER_IMAGE, "resources": {"requests": dict(requests)}}
            ],
            "volumes": [
                {"name": f"volume-{place}", "persistentVolumeClaim": {"claimName": claim}}
                for place, claim in enumerate(fixed_claims_of(vmi["spec"]))
            ],
        },
    )


def render_attachment_pod(vmi: Raw, name: str, pod: Raw, host: str, claims: Sequence[str]) -> Raw:
    """A pod that holds the hot-plugged claims on the host, owned by the launcher pod."""
    return new_object(
        POD,
        name,
        namespace_of(vmi),
        labels={"kubevirt.io": "hotplug-disk"},
        owners=[owner_reference(POD, pod, controller=True, block=True)],
        spec={
            "restartPolicy": "Never",
            "nodeName": host,
            "containers": [{"name": "hotplug-disk", "image": LAUNCHER_IMAGE}],
            "volumes": [{"name": claim, "persistentVolumeClaim": {"claimName": claim}} for claim in claims],
        },
    )


def render_running(address: str, now: datetime, container: str = "compute") -> Raw:
    """The pod's status once its containers run."""
    conditions: list[Raw] = []
    for type in ("PodScheduled", "Initialized", "ContainersReady", "Ready"):
        conditions = set_condition(conditions, Condition(type, "True"), now)
    return {
        "phase": "Running",
        "podIP": address,
        "podIPs": [{"ip": address}],
        "startTime": format_time(now),
        "conditions": conditions,
        "containerStatuses": [
            {
                "name": container,
                "image": LAUNCHER_IMAGE,
                "imageID": LAUNCHER_IMAGE,
                "ready": True,
                "restartCount": 0,
                "state": {"running": {"startedAt": format_time(now)}},
            }
        ],
    }
