"""What a real controller manager makes of a Deployment and a Service, and what ours does: the same objects.

On the real side the test plays the scheduler and the kubelets, with the statuses that ours write.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime
from typing import Any

import pytest
from tests.conformance.cloud_provider_rig import eventually
from tests.conformance.real_cluster import Cluster
from tests.support.clock import run_driven
from tests.unit.emulator.guests.test_workloads import Rig, a_deployment, a_rig, a_service

from windrow.apiserver.server import ApiServer
from windrow.apiserver.storage import MemoryStore
from windrow.app.clock import SystemClock
from windrow.client.client import Client
from windrow.client.http_transport import HttpTransport
from windrow.core.clock import format_micro_time, format_time
from windrow.core.formats.json import dumps, loads
from windrow.core.rng import Rng
from windrow.emulator.guest_cluster.workloads import pod_lifecycle
from windrow.emulator.load_balancers.services import ENDPOINT_SLICE
from windrow.kubernetes import requests
from windrow.kubernetes.conditions import is_true
from windrow.kubernetes.errors import KubeError
from windrow.kubernetes.objects import Raw, is_deleting, name_of, nested, new_object, uid_of
from windrow.kubernetes.resources import (
    DAEMON_SET,
    DEPLOYMENT,
    LEASE,
    NAMESPACE,
    NODE,
    POD,
    REPLICA_SET,
    SERVICE,
    STATEFUL_SET,
    ApiResource,
    ref_of,
)

pytestmark = [pytest.mark.go, pytest.mark.timeout(180)]


@pytest.fixture
def cluster(managed_cluster: Cluster) -> Cluster:
    return managed_cluster


WEB = DEPLOYMENT.ref("web", "default")
Api = Any
Pictures = dict[str, Any]

# What says nothing about the controllers.
_IDLE = ("managedFields", "resourceVersion", "creationTimestamp", "uid", "generation", "selfLink")


async def snapshot(api: Api, *, tell_nodes: bool = False) -> Pictures:
    """All objects of the Deployment and the Service, with made-up names, times and addresses taken out. Which node a pod
    is on matters to some only: another scheduler places otherwise."""
    found = {kind.kind: await api.list(kind, "default") for kind in (DEPLOYMENT, REPLICA_SET, POD)}
    slices = [
        raw for raw in await api.list(ENDPOINT_SLICE, "default") if raw["metadata"]["name"].startswith("web-")
    ]
    service = await api.get(SERVICE.ref("web", "default"))
    nodes = sorted({nested(pod, "spec", "nodeName", default="") for pod in found["Pod"]} - {""})
    names = {uid_of(service): "<service>"} | {
        node: f"<node {place if tell_nodes else ''}>" for place, node in enumerate(nodes)
    }
    for kind, objects in found.items():
        objects.sort(key=lambda raw: (nested(raw, "spec", "nodeName", default=""), name_of(raw)))
        for raw in objects:
            names[uid_of(raw)] = f"<{kind}>"
    for raw in found["ReplicaSet"]:
        names[name_of(raw).removeprefix("web-")] = "<hash>"
    for raw in [*found["Pod"], *slices]:
        names[name_of(raw).rpartition("-")[2]] = "<random>"
    shown = {
        "deployment": [_shown(raw, "metadata", "status") for raw in found["Deployment"]],
        "sets": [_shown(raw, "metadata", "spec", "status") for raw in found["ReplicaSet"]],
        "pods": [
            _shown(raw, "metadata") | {"tolerations": nested(raw, "spec", "tolerations")} | _readiness(raw)
            for raw in found["Pod"]
        ],
        "slices": [_shown(raw, "metadata", "addressType", "ports", "endpoints") for raw in slices],
    }
    return dict(_tidied(_blurred(shown, names)))


def _shown(raw: Raw, *fields: str) -> Raw:
    head = {key: value for key, value in raw["metadata"].items() if key not in _IDLE}
    return {key: raw.get(key) for key in fields} | {"metadata": head}


def _readiness(pod: Raw) -> Raw:
    return {
        "conditions": {
            one["type"]: one["status"]
            for one in nested(pod, "status", "conditions", default=[])
            if one["type"] in ("Ready", "PodScheduled")
        }
    }


def _blurred(value: Any, names: dict[str, str]) -> Any:
    text = dumps(value).decode()
    for name, plain in sorted(names.items(), key=lambda pair: -len(pair[0])):
        text = text.replace(name, plain)
    text = re.sub(r"\d{4}-\d\d-\d\dT[\d:.]+Z", "<time>", text)
    return loads(re.sub(r"10\.42\.\d+\.\d+", "<address>", text))


def _tidied(value: Any) -> Any:
    """Without empty fields, what API servers add by default, and orders that mean nothing."""
    if isinstance(value, dict):
        made = {key: _tidied(one) for key, one in value.items() if key not in _OF_THE_SERVER}
        return {key: one for key, one in made.items() if one not in (None, {}, [], "")}
    if isinstance(value, list):
        return sorted((_tidied(one) for one in value), key=lambda one: dumps(one))
    return value


_OF_THE_SERVER = frozenset(
    {"terminationMessagePath", "terminationMessagePolicy", "imagePullPolicy", "resources", "protocol"}
    | {"serviceAccount", "serviceAccountName", "securityContext", "restartPolicy", "dnsPolicy"}
    | {"schedulerName", "terminationGracePeriodSeconds", "lastUpdateTime", "lastTransitionTime"}
    # Written by either controller at different times; no client relies on it.
    | {"endpoints.kubernetes.io/last-change-trigger-time", "deletionTimestamp", "terminatingReplicas"}
)


# --- scenes: what is done, and when it is time to look ------------------------------------------------------------

Do = Callable[[Api], Awaitable[Any]]


async def begin(api: Api) -> None:
    await api.create(SERVICE, a_service())
    await api.create(DEPLOYMENT, a_deployment(2))


async def grow(api: Api) -> None:
    await api.patch(WEB, {"spec": {"replicas": 3}})


async def roll(api: Api) -> None:
    await api.patch(WEB, {"spec": a_deployment(3, "web:2")["spec"]})


async def shrink(api: Api) -> None:
    await api.patch(WEB, {"spec": {"replicas": 1}})


SCENES: dict[str, tuple[Do, int]] = {
    "begin": (begin, 2),
    "grow": (grow, 3),
    "roll": (roll, 3),
    "shrink": (shrink, 1),
}


async def is_settled(api: Api, count: int) -> bool:
    """Whether everything has come to rest with that many pods."""
    pods, deployment = await api.list(POD, "default"), await api.get(WEB)
    status = deployment.get("status", {})
    ready = [pod for pod in pods if is_true(nested(pod, "status", "conditions"), "Ready")]
    endpoints = [
        one
        for raw in await api.list(ENDPOINT_SLICE, "default")
        if name_of(raw).startswith("web-")
        for one in raw.get("endpoints") or ()
    ]
    return (
        len(pods) == len(ready) == len(endpoints) == count
        and not any(is_deleting(pod) for pod in pods)
        and all(nested(one, "conditions", "ready") for one in endpoints)
        and status.get("observedGeneration") == deployment["metadata"]["generation"]
        and status.get("replicas") == status.get("updatedReplicas") == count
        and status.get("availableReplicas") == count
        and any(
            one["type"] == "Progressing" and one["reason"] == "NewReplicaSetAvailable"
            for one in status.get("conditions") or ()
        )
    )


# --- the real side ------------------------------------------------------------------------------------------------


class Kubelets:
    """A scheduler and two kubelets, played by the test."""

    def __init__(self, api: Client) -> None:
        self.api = api
        self.nodes: dict[str, Raw] = {}
        self.silent: set[str] = set()
        self.number = 1
        self.placed = 0

    async def register(self, *names: str) -> None:
        for name in names:
            ready = {"type": "Ready", "status": "True", "reason": "KubeletReady", "message": ""}
            times = {
                key: format_time(datetime.now(UTC)) for key in ("lastHeartbeatTime", "lastTransitionTime")
            }
            raw = new_object(
                NODE, name, status={"conditions": [ready | times]}, spec={"podCIDR": "10.42.0.0/24"}
            )
            self.nodes[name] = await self.api.create(NODE, raw)
            # A kubelet does not wait for the life cycle controller to take its first taint away.
            await self.api.patch(NODE.ref(name), {"spec": {"taints": None}})

    async def run(self) -> None:
        while True:
            for name in sorted(self.nodes.keys() - self.silent):
                await self._beat(name)
            for pod in await self.api.list(POD, "default"):
                with suppress(KubeError):
                    await self._serve(pod)
            await asyncio.sleep(0.2)

    async def _beat(self, name: str) -> None:
        now = datetime.now(UTC)
        spec = {"holderIdentity": name, "leaseDurationSeconds": 40, "renewTime": format_micro_time(now)}
        lease = new_object(LEASE, name, "kube-node-lease", spec=spec)
        await self.api.apply(LEASE.ref(name, "kube-node-lease"), lease, "kubelet", force=True)

    async def _serve(self, pod: Raw) -> None:
        node, now = nested(pod, "spec", "nodeName", default=""), datetime.now(UTC)
        if not node:
            names = sorted(self.nodes.keys() - self.silent)
            # In turn, so that two pods are on two nodes.
            target = {"kind": "Node", "name": names[self.placed % len(names)]}
            self.placed += 1
            body = {
                "apiVersion": "v1",
                "kind": "Binding",
                "metadata": {"name": name_of(pod)},
                "target": target,
            }
            await self.api.call(requests.create_subresource(ref_of(POD, pod), "binding", body))
        elif node in self.silent:
            return
        elif is_deleting(pod):
            await self.api.call(requests.delete(ref_of(POD, pod), grace_s=0))
        elif nested(pod, "status", "phase") != "Running":
            self.number += 1
            address = f"10.42.0.{self.number}"
            status = pod_lifecycle.render_running(pod, self.nodes[node], address, now)
            status = {key: one for key, one in status.items() if key not in ("hostIP", "hostIPs")}
            status = pod_lifecycle.render_readiness(status, True, now, probed=True)
            await self.api.update(POD, {**pod, "status": status}, "status")


@asynccontextmanager
async def real_side(cluster: Cluster) -> Any:
    async with HttpTransport(cluster.access(), SystemClock()) as transport:
        api = Client(transport)
        kubelets = Kubelets(api)
        await kubelets.register("w1", "w2")
        life = asyncio.create_task(kubelets.run())
        try:
            yield api, kubelets
        finally:
            life.cancel()
            for ref in (WEB, SERVICE.ref("web", "default"), NODE.ref("w1"), NODE.ref("w2")):
                with suppress(KubeError):
                    await api.delete(ref)


# --- our side -----------------------------------------------------------------------------------------------------


class Ours:
    """The client's words on the API of a guest in the emulator."""

    def __init__(self, rig: Rig) -> None:
        self.rig = rig
        self.get, self.patch = rig.kubectl.get, rig.kubectl.patch

    async def list(self, kind: Any, namespace: str) -> list[Raw]:
        return await self.rig.kubectl.list(kind, namespace)

    async def create(self, kind: Any, raw: Raw) -> None:
        await self.rig.create(kind, raw)


# --- comparing ----------------------------------------------------------------------------------------------------


def test_every_scene_of_a_deployment_leaves_the_same_objects(cluster: Cluster) -> None:
    async def real() -> Pictures:
        seen: Pictures = {}
        async with real_side(cluster) as (api, _):
            for name, (do, count) in SCENES.items():
                await do(api)
                await eventually(lambda count=count: is_settled(api, count), name)  # type: ignore[misc]
                seen[name] = await snapshot(api)
        return seen

    async def ours() -> Pictures:
        seen: Pictures = {}
        async with a_rig("w1", "w2") as rig:
            api = Ours(rig)
            for name, (do, count) in SCENES.items():
                await do(api)
                await rig.testbed.wait_for(lambda count=count: is_settled(api, count))  # type: ignore[misc]
                seen[name] = await snapshot(api)
        return seen

    expected, found = asyncio.run(real()), run_driven(ours())

    for name in SCENES:
        for part in ("deployment", "sets", "slices", "pods"):
            assert found[name].get(part) == expected[name].get(part), f"{name}: {part}"


SELECTOR = {"matchLabels": {"app": "a"}}
KINDS = (DEPLOYMENT, REPLICA_SET, DAEMON_SET, STATEFUL_SET)


def a_template(app: str = "a", count: int = 1, **spec: Any) -> Raw:
    containers = [{"name": "c", "image": "i"}][:count]
    return {"metadata": {"labels": {"app": app}}, "spec": {"containers": containers, **spec}}


BAD: dict[str, Raw] = {
    "empty": {},
    "without-selector": {"template": a_template()},
    "empty-selector": {"selector": {}, "template": a_template()},
    "other-labels": {"selector": SELECTOR, "template": a_template("b")},
    "negative": {"selector": SELECTOR, "template": a_template(), "replicas": -1},
    "without-containers": {"selector": SELECTOR, "template": a_template(count=0)},
    "without-template": {"selector": SELECTOR},
    "restarts-never": {"selector": SELECTOR, "template": a_template(restartPolicy="Never")},
    "stands-still": {
        "selector": SELECTOR,
        "template": a_template(),
        "strategy": {"rollingUpdate": {"maxSurge": 0, "maxUnavailable": 0}},
    },
    "recreates-rolling": {
        "selector": SELECTOR,
        "template": a_template(),
        "strategy": {"type": "Recreate", "rollingUpdate": {"maxSurge": 1}},
    },
}


async def test_bad_workloads_get_the_same_refusals(cluster: Cluster) -> None:
    async def told(api: Client) -> dict[str, str]:
        said = {}
        for kind in KINDS:
            for name, spec in BAD.items():
                said[f"{kind.kind} {name}"] = await refusal(api.create(kind, a_workload(kind, name, spec)))
            good = await api.create(
                kind, a_workload(kind, "good", {"selector": SELECTOR, "template": a_template()})
            )
            good["spec"] |= {"selector": {"matchLabels": {"app": "b"}}, "template": a_template("b")}
            # The controller manager writes its status meanwhile; a conflict is not what is asked about.
            del good["metadata"]["resourceVersion"]
            said[f"{kind.kind} other selector"] = await refusal(api.update(kind, good))
            await api.delete(kind.ref("good", "bad"))
        return said

    namespace = {"metadata": {"name": "bad"}}
    ours = ApiServer(MemoryStore(), SystemClock(), Rng(1))
    async with HttpTransport(cluster.access(), SystemClock()) as transport:
        there, here = Client(transport), Client(ours.local())
        for api in (there, here):
            await api.create(NAMESPACE, namespace)
        expected = await told(there)

        assert await told(here) == expected


def a_workload(kind: ApiResource, name: str, spec: Raw) -> Raw:
    # Only a Deployment has a strategy; a real server drops it elsewhere, ours keeps what it does not know.
    kept = {key: value for key, value in spec.items() if key != "strategy" or kind is DEPLOYMENT}
    return new_object(kind, name, "bad", spec=kept)


async def refusal(asking: Awaitable[Raw]) -> str:
    try:
        await asking
    except KubeError as error:
        return f"{error.status} {error.message}"
    return ""


def test_a_silent_node_means_the_same_for_pods_and_endpoints(cluster: Cluster) -> None:
    async def lost(api: Api) -> bool:
        pods = await api.list(POD, "default")
        slices = [raw for raw in await api.list(ENDPOINT_SLICE, "default") if name_of(raw).startswith("web-")]
        ready = [
            one for raw in slices for one in raw["endpoints"] or () if nested(one, "conditions", "ready")
        ]
        return len(pods) == 2 and len(ready) == 1

    async def real() -> Pictures:
        async with real_side(cluster) as (api, kubelets):
            await begin(api)
            await eventually(lambda: is_settled(api, 2), "two pods")
            kubelets.silent.add("w1")
            await eventually(lambda: lost(api), "one endpoint is not ready")
            return await snapshot(api, tell_nodes=True)

    async def ours() -> Pictures:
        async with a_rig("w1", "w2") as rig:
            api = Ours(rig)
            await begin(api)
            await rig.testbed.wait_for(lambda: is_settled(api, 2))
            await rig.testbed.cut_power("w1")
            await rig.testbed.wait_for(lambda: lost(api))
            await rig.testbed.sleep(1)
            return await snapshot(api, tell_nodes=True)

    expected, found = asyncio.run(real()), run_driven(ours())

    for part in ("slices", "pods"):
        assert found[part] == expected[part], part
