"""What a real controller manager makes of a StatefulSet, a DaemonSet and a Job, and what ours does: the same objects.

As for Deployments, the test plays the scheduler and the kubelets on the real side.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime
from typing import Any

import pytest
from tests.conformance.cloud_provider_rig import eventually
from tests.conformance.real_cluster import Cluster
from tests.conformance.test_workloads import Api, Kubelets, Ours, Pictures, _blurred, _shown, _tidied
from tests.support.clock import run_driven
from tests.unit.emulator.guests.test_daemon_sets import a_daemon_set
from tests.unit.emulator.guests.test_jobs import a_job
from tests.unit.emulator.guests.test_stateful_sets import a_stateful_set
from tests.unit.emulator.guests.test_workloads import a_rig

from windrow.app.clock import SystemClock
from windrow.client.client import Client
from windrow.client.http_transport import HttpTransport
from windrow.emulator.guest_cluster.containers.runtime import ENDED
from windrow.emulator.guest_cluster.workloads import pod_lifecycle
from windrow.emulator.guest_cluster.workloads.daemon_sets import node_of
from windrow.kubernetes import requests
from windrow.kubernetes.conditions import is_true
from windrow.kubernetes.errors import KubeError
from windrow.kubernetes.objects import Raw, is_deleting, name_of, nested, uid_of
from windrow.kubernetes.resources import (
    CONTROLLER_REVISION,
    DAEMON_SET,
    JOB,
    NODE,
    POD,
    PVC,
    STATEFUL_SET,
    ApiResource,
    ObjectRef,
    ref_of,
)

pytestmark = [pytest.mark.go, pytest.mark.timeout(180)]


@pytest.fixture
def cluster(managed_cluster: Cluster) -> Cluster:
    return managed_cluster


Scene = tuple[str, Callable[[Api], Awaitable[Any]], Callable[[Api], Awaitable[bool]]]
# What API servers add by default, and what says when something was written.
_DEFAULTS = frozenset(
    {"updateStrategy", "revisionHistoryLimit", "podManagementPolicy", "persistentVolumeClaimRetentionPolicy"}
    | {
        "volumeMode",
        "startTime",
        "completionTime",
        "lastProbeTime",
        "deprecated.daemonset.template.generation",
    }
    | {"kubectl.kubernetes.io/last-applied-configuration", "deletionGracePeriodSeconds", "defaultMode"}
)


class Fates(Kubelets):
    """Kubelets that heed the node of a DaemonSet's pod, and whose pods of Jobs succeed."""

    async def _serve(self, pod: Raw) -> None:
        if not nested(pod, "spec", "nodeName") and (node := node_of(pod)):
            target = {"kind": "Node", "name": node}
            body = {
                "apiVersion": "v1",
                "kind": "Binding",
                "metadata": {"name": name_of(pod)},
                "target": target,
            }
            await self.api.call(requests.create_subresource(ref_of(POD, pod), "binding", body))
        elif nested(pod, "spec", "restartPolicy") == "Never" and nested(pod, "status", "phase") == "Running":
            status = pod_lifecycle.render_ended(pod["status"], ENDED, datetime.now(UTC))
            await self.api.update(POD, {**pod, "status": status}, "status")
        elif nested(pod, "status", "phase") not in ("Succeeded", "Failed"):
            await super()._serve(pod)


def shown_pod(raw: Raw) -> Raw:
    spec = raw["spec"]
    volumes = [one for one in spec.get("volumes") or () if "persistentVolumeClaim" in one]
    return _shown(raw, "metadata") | {
        "affinity": spec.get("affinity"),
        "tolerations": spec.get("tolerations"),
        "hostname": [spec.get("hostname"), spec.get("subdomain")],
        "volumes": volumes,
        "phase": nested(raw, "status", "phase"),
    }


async def snapshot(api: Api, owner: ObjectRef) -> Pictures:
    """The owner's status, its pods, revisions and claims, with made-up names and times taken out."""
    raw = await api.get(owner)
    pods = await api.list(POD, "default")
    revisions = [one for one in await api.list(CONTROLLER_REVISION, "default") if is_owned(one, raw)]
    claims = await api.list(PVC, "default")
    names = {uid_of(raw): "<owner>", **{node: f"<{node}>" for node in ("w1", "w2")}}
    for one in sorted(revisions, key=lambda one: int(one["revision"])):
        names[name_of(one).removeprefix(f"{owner.name}-")] = f"<revision {one['revision']}>"
    for one in pods:
        if owner.kind is not STATEFUL_SET:
            names[name_of(one).removeprefix(f"{owner.name}-")] = "<random>"
    shown = {
        "owner": _shown(raw, "status"),
        "labels": nested(raw, "spec", "template", "metadata", "labels"),
        "selector": nested(raw, "spec", "selector"),
        "pods": [shown_pod(one) for one in sorted(pods, key=name_of)],
        "revisions": [_shown(one, "revision") for one in revisions],
        "claims": [_shown(one, "metadata") for one in claims if not is_deleting(one)],
    }
    return dict(_tidied(_without(_blurred(shown, names))))


def is_owned(raw: Raw, owner: Raw) -> bool:
    return any(one["uid"] == uid_of(owner) for one in raw["metadata"].get("ownerReferences") or ())


def _without(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without(one) for key, one in value.items() if key not in _DEFAULTS}
    return [_without(one) for one in value] if isinstance(value, list) else value


async def are_ready(api: Api, owner: ObjectRef, count: int, image: str) -> bool:
    pods, raw = await api.list(POD, "default"), await api.get(owner)
    status = raw.get("status") or {}
    ready = status.get("readyReplicas", status.get("numberReady", 0))
    updated = status.get("updatedReplicas", status.get("updatedNumberScheduled", 0))
    return (
        len(pods) == count
        and all(
            is_true(nested(pod, "status", "conditions"), "Ready") and not is_deleting(pod) for pod in pods
        )
        and all(nested(pod, "spec", "containers", 0, "image") == image for pod in pods)
        and ready == updated == count
        and status.get("observedGeneration") == raw["metadata"]["generation"]
        and status.get("currentRevision") == status.get("updateRevision")
    )


async def is_complete(api: Api, owner: ObjectRef) -> bool:
    return is_true(nested(await api.get(owner), "status", "conditions"), "Complete")


SET, AGENT, WORK = (
    STATEFUL_SET.ref("db", "default"),
    DAEMON_SET.ref("agent", "default"),
    JOB.ref("work", "default"),
)
KEPT = {"whenScaled": "Retain", "whenDeleted": "Delete"}


def stateful_set(replicas: int, image: str = "db:1") -> Raw:
    return a_stateful_set(replicas, image, claims=False, persistentVolumeClaimRetentionPolicy=KEPT)


SCENES: dict[str, tuple[ApiResource, ObjectRef, list[Scene]]] = {
    "StatefulSet": (
        STATEFUL_SET,
        SET,
        [
            (
                "begin",
                lambda api: api.create(STATEFUL_SET, stateful_set(2)),
                lambda api: are_ready(api, SET, 2, "db:1"),
            ),
            (
                "grow",
                lambda api: api.patch(SET, {"spec": {"replicas": 3}}),
                lambda api: are_ready(api, SET, 3, "db:1"),
            ),
            (
                "roll",
                lambda api: api.patch(
                    SET, {"spec": {"template": stateful_set(3, "db:2")["spec"]["template"]}}
                ),
                lambda api: are_ready(api, SET, 3, "db:2"),
            ),
            (
                "shrink",
                lambda api: api.patch(SET, {"spec": {"replicas": 1}}),
                lambda api: are_ready(api, SET, 1, "db:2"),
            ),
        ],
    ),
    "DaemonSet": (
        DAEMON_SET,
        AGENT,
        [
            (
                "begin",
                lambda api: api.create(DAEMON_SET, a_daemon_set()),
                lambda api: are_ready(api, AGENT, 2, "agent:1"),
            ),
            (
                "roll",
                lambda api: api.patch(
                    AGENT, {"spec": {"template": a_daemon_set("agent:2")["spec"]["template"]}}
                ),
                lambda api: are_ready(api, AGENT, 2, "agent:2"),
            ),
        ],
    ),
    "Job": (
        JOB,
        WORK,
        [
            (
                "complete",
                lambda api: api.create(JOB, a_job(completions=3, parallelism=2)),
                lambda api: is_complete(api, WORK),
            )
        ],
    ),
}


@asynccontextmanager
async def real_side(cluster: Cluster, owner: ObjectRef) -> Any:
    async with HttpTransport(cluster.access(), SystemClock()) as transport:
        api = Client(transport)
        kubelets = Fates(api)
        await kubelets.register("w1", "w2")
        life = asyncio.create_task(kubelets.run())
        try:
            yield api
        finally:
            with suppress(KubeError):
                await api.delete(owner)
            for pod in await api.list(POD, "default"):
                with suppress(KubeError):
                    await api.delete(ref_of(POD, pod))
            await eventually(lambda: is_empty(api), "no pods are left")
            life.cancel()
            for node in ("w1", "w2"):
                with suppress(KubeError):
                    await api.delete(NODE.ref(node))


async def is_empty(api: Api) -> bool:
    return not await api.list(POD, "default")


@pytest.mark.parametrize("kind", SCENES)
def test_every_scene_leaves_the_same_objects(cluster: Cluster, kind: str) -> None:
    _, owner, scenes = SCENES[kind]

    async def real() -> Pictures:
        seen: Pictures = {}
        async with real_side(cluster, owner) as api:
            for name, do, is_over in scenes:
                await do(api)
                await eventually(lambda is_over=is_over: is_over(api), name)  # type: ignore[misc]
                seen[name] = await snapshot(api, owner)
        return seen

    async def ours() -> Pictures:
        seen: Pictures = {}
        async with a_rig("w1", "w2") as rig:
            api = Ours(rig)
            for name, do, is_over in scenes:
                await do(api)
                await rig.testbed.wait_for(lambda is_over=is_over: is_over(api))  # type: ignore[misc]
                seen[name] = await snapshot(api, owner)
        return seen

    expected, found = asyncio.run(real()), run_driven(ours())

    for name, _, _ in scenes:
        for part in expected[name]:
            assert found[name].get(part) == expected[name].get(part), f"{name}: {part}"
