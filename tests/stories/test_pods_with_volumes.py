"""Pods with volumes, from their claims to bytes: guests' controllers and kubelets, side-cars, Windrow's CSI driver, Harvester."""

from __future__ import annotations

import pytest
from tests.support.clock import run_driven

from windrow.emulator import kinds
from windrow.emulator.guest_cluster.csi.kinds import PV
from windrow.kubernetes.conditions import is_true
from windrow.kubernetes.objects import Raw, is_deleting, name_of, nested, new_object
from windrow.kubernetes.resources import EVENT, NODE, POD, PVC, STATEFUL_SET, VOLUME_ATTACHMENT

from .guest_storage_rig import GuestStorage, a_guest

POD_0 = POD.ref("db-0", "default")
# A pod writes what is not there yet, so that the bytes say which pod was the first.
SCRIPT = "[ -f /data/first ] || echo written > /data/first; echo $MARK >> /data/starts"


def a_stateful_set(replicas: int = 1, mark: str = "one") -> Raw:
    labels = {"app": "db"}
    container = {
        "name": "db",
        "image": "busybox",
        "command": ["sh", "-c", SCRIPT],
        "env": [{"name": "MARK", "value": mark}, {"name": "SERVE_FILE", "value": "/data/starts"}],
        "volumeMounts": [{"name": "data", "mountPath": "/data"}],
    }
    claim = {
        "metadata": {"name": "data"},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
    }
    tolerations = [{"operator": "Exists", "key": "node.cloudprovider.kubernetes.io/uninitialized"}]
    spec = {
        "replicas": replicas,
        "serviceName": "db",
        "selector": {"matchLabels": labels},
        "template": {
            "metadata": {"labels": labels},
            "spec": {"containers": [container], "tolerations": tolerations},
        },
        "volumeClaimTemplates": [claim],
    }
    return new_object(STATEFUL_SET, "db", "default", spec=spec)


async def runs_on(guest: GuestStorage, node: str, name: str = "db-0") -> bool:
    pod = await guest.client.find(POD.ref(name, "default"))
    return (
        nested(pod, "spec", "nodeName") == node
        and is_true(nested(pod, "status", "conditions"), "Ready")
        and not is_deleting(pod or {"metadata": {}})
    )


async def attached_to(guest: GuestStorage) -> list[str]:
    return [raw["spec"]["nodeName"] for raw in await guest.client.list(VOLUME_ATTACHMENT)]


async def cordon(guest: GuestStorage, node: str, *, cordoned: bool) -> None:
    await guest.client.patch(NODE.ref(node), {"spec": {"unschedulable": cordoned}})


def starts(guest: GuestStorage) -> str:
    """What the pod serves of its volume."""
    return guest.cluster.served_files["default", "db-0"]()


@pytest.mark.long
def test_what_a_pod_wrote_is_read_by_its_replacement_after_its_node_was_lost():
    async def story() -> None:
        async with a_guest() as guest:
            address = await guest.boot("one")
            await guest.boot("two", address)
            await guest.wait_for_driver("one", "two")
            await cordon(guest, "one", cordoned=True)
            await guest.client.create(STATEFUL_SET, a_stateful_set())
            await guest.until(lambda: runs_on(guest, "two"), "the pod runs")
            written = starts(guest)
            await cordon(guest, "one", cordoned=False)
            await guest.host.patch(kinds.VM.ref("two", "default"), {"spec": {"runStrategy": "Halted"}})
            await guest.until(lambda: is_unknown(guest, "two"), "the node is Unknown")
            held = await attached_to(guest)
            taint = {
                "key": "node.kubernetes.io/out-of-service",
                "value": "nodeshutdown",
                "effect": "NoExecute",
            }
            await guest.client.patch(NODE.ref("two"), {"spec": {"taints": [taint]}})
            await guest.client.delete(POD_0, grace_s=0)
            await guest.until(lambda: runs_on(guest, "one"), "the replacement runs")

            assert written == "one\n"
            assert starts(guest) == "one\none\n", "the replacement found what was there"
            assert held == ["two"]
            assert await attached_to(guest) == ["one"]
            (volume,) = await guest.client.list(PV)
            vm = await guest.host.get(kinds.VM.ref("two", "default"))
            assert volume["spec"]["csi"]["volumeHandle"] not in str(vm["spec"])

    run_driven(story())


async def is_unknown(guest: GuestStorage, node: str) -> bool:
    found = await guest.client.get(NODE.ref(node))
    conditions = nested(found, "status", "conditions", default=[])
    return any(one["type"] == "Ready" and one["status"] == "Unknown" for one in conditions)


@pytest.mark.long
def test_a_stateful_set_is_scaled_and_deleted_and_its_claims_keep_their_data():
    async def story() -> None:
        async with a_guest() as guest:
            await guest.boot("one")
            await guest.wait_for_driver("one")
            await guest.client.create(STATEFUL_SET, a_stateful_set(2))
            await guest.until(lambda: runs_on(guest, "one", "db-1"), "both run")
            attached = len(await attached_to(guest))
            await guest.client.delete(STATEFUL_SET.ref("db", "default"))
            await guest.until(lambda: is_detached(guest), "nothing is attached")
            kept = sorted(name_of(raw) for raw in await guest.client.list(PVC, "default"))
            await guest.client.create(STATEFUL_SET, a_stateful_set(mark="two"))
            await guest.until(lambda: runs_on(guest, "one"), "it runs again")

            assert attached == 2
            assert kept == ["data-db-0", "data-db-1"]
            assert starts(guest) == "one\ntwo\n"
            failed = {raw["reason"] for raw in await guest.client.list(EVENT, "default")}
            assert not failed & {"FailedMount", "FailedAttachVolume"}

    run_driven(story())


async def is_detached(guest: GuestStorage) -> bool:
    return not await attached_to(guest) and not await guest.client.list(POD, "default")
