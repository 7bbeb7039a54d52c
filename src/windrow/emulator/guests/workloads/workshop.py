"""The controllers of workloads in a guest cluster, on the server that leads: Deployments, ReplicaSets, the scheduler,
what kubelets do with pods, eviction, EndpointSlices (just enough of each: design §10).

One object after the other is looked at, planned, carried out. Without workloads nothing is followed but four quiet
kinds, so that a cluster of hundreds of nodes costs no more than before.
"""

from __future__ import annotations

import asyncio
import ipaddress
from collections import defaultdict
from collections.abc import Awaitable, Callable, Mapping
from datetime import datetime, timedelta
from functools import partial
from typing import Any

from windrow.emulator.guests.box import Box
from windrow.emulator.guests.cluster import GuestCluster
from windrow.emulator.guests.workloads import counting, endpoints, pod_life
from windrow.emulator.guests.workloads.names import DEPLOYMENT, REPLICA_SET, SERVICE_NAME, ZONE
from windrow.emulator.guests.workloads.placing import Place, find_place
from windrow.emulator.guests.workloads.sight import Sight
from windrow.emulator.guests.workloads.templates import render_pod, render_replica_set, selects_its_own
from windrow.emulator.hand import Hand
from windrow.emulator.load_balancers.services import ENDPOINT_SLICE
from windrow.emulator.world import Key, key_of
from windrow.kube import requests
from windrow.kube.conditions import find_condition
from windrow.kube.errors import Exists, KubeError, NotFound, error_for
from windrow.kube.objects import (
    Raw,
    annotations_of,
    dig,
    is_deleting,
    labels_of,
    name_of,
    namespace_of,
    uid_of,
)
from windrow.kube.refs import NODE, POD, SERVICE, Kind, ref_of
from windrow.values.clock import stamp

ACCOUNT = ("system:kube-controller-manager", ("system:masters",))
_FOLLOWED = (DEPLOYMENT, REPLICA_SET, POD, SERVICE, ENDPOINT_SLICE, NODE)
_IDLE = (DEPLOYMENT, REPLICA_SET, POD, SERVICE)  # followed even where there is nothing to do
Place_ = tuple[Kind, Key]


class Workloads:
    """Controllers of one leadership. `run` ends by cancellation only."""

    def __init__(self, box: Box, cluster: GuestCluster) -> None:
        self.box = box
        self.cluster = cluster

    async def run(self) -> None:
        while True:
            await self.cluster.usable()
            try:
                await Workshop(self.box, self.cluster).run()
            except* KubeError as errors:
                self.box.say("kube-controller-manager", f"panic: {errors.exceptions[0]}")
                await self.box.pause(self.box.delays.crash_backoff)


class Workshop:
    """What is seen, what is to be looked at, and when."""

    def __init__(self, box: Box, cluster: GuestCluster) -> None:
        self.box = box
        self.cluster = cluster
        delays, speed = box.delays, box.wires.speed
        self.pace = pod_life.Pace(
            timedelta(seconds=delays.pod_start / speed),
            timedelta(seconds=delays.pod_ready / speed),
            timedelta(seconds=delays.pod_stop / speed),
            speed,
        )
        self.hand = Hand(cluster.local(*ACCOUNT))
        self.sights = {kind: Sight(self.hand, kind) for kind in _FOLLOWED}
        pods = self.sights[POD]
        self._sets_of = self.sights[REPLICA_SET].index(_by_controller)
        self._pods_of = pods.index(_by_controller)
        self._pods_on = pods.index(lambda raw: [("", dig(raw, "spec", "nodeName", default=""))])
        self._pods_in = pods.index(_by_namespace)
        self._services_in = self.sights[SERVICE].index(_by_namespace)
        self._slices_of = self.sights[ENDPOINT_SLICE].index(
            lambda raw: [(namespace_of(raw), labels_of(raw).get(SERVICE_NAME, ""))]
        )
        self._waiting: dict[Place_, None] = {}
        self._due: dict[Place_, datetime] = {}
        self._news = asyncio.Event()
        self._needed = asyncio.Event()  # there is something that nodes and slices matter to
        self._stages: dict[Key, tuple[str, str, datetime]] = {}
        self._tainted: dict[str, dict[str, datetime]] = {}
        self._alive: frozenset[str] = frozenset()
        self._last_host: dict[str, int] = defaultdict(lambda: 1)
        self._serve_kind: dict[Kind, Callable[[Key], Awaitable[None]]] = {
            DEPLOYMENT: self._serve_deployment,
            REPLICA_SET: self._serve_replica_set,
            POD: self._serve_pod,
            SERVICE: self._serve_service,
        }
        self._listen()

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            for kind in _IDLE:
                group.create_task(self.sights[kind].run())
            for kind in _IDLE:
                await self.sights[kind].synced.wait()
            await self._needed.wait()
            for kind in (NODE, ENDPOINT_SLICE):
                group.create_task(self.sights[kind].run())
            for kind in (NODE, ENDPOINT_SLICE):
                await self.sights[kind].synced.wait()
            group.create_task(self._follow_beats())
            while True:
                await self._next()

    # -- what is to be looked at

    def _listen(self) -> None:
        for kind in (DEPLOYMENT, REPLICA_SET, POD, SERVICE):
            self.sights[kind].listen(lambda raw, kind=kind: self._add(kind, key_of(raw)))  # type: ignore[misc]
        self.sights[REPLICA_SET].listen(lambda raw: self._add_owner(DEPLOYMENT, raw))
        self.sights[POD].listen(self._pod_changed)
        self.sights[NODE].listen(self._node_changed)
        self.sights[ENDPOINT_SLICE].listen(self._slice_changed)

    def _add(self, kind: Kind, key: Key) -> None:
        self._waiting[kind, key] = None
        self._news.set()
        if kind != SERVICE or self._has_selector(key):
            self._needed.set()

    def _has_selector(self, key: Key) -> bool:
        service = self.sights[SERVICE].get(key)
        return service is not None and endpoints.has_selector(service)

    def _add_owner(self, kind: Kind, raw: Raw) -> None:
        for owner in raw["metadata"].get("ownerReferences") or ():
            if owner.get("controller") and owner.get("kind") == kind.kind:
                self._add(kind, (namespace_of(raw), owner["name"]))

    def _pod_changed(self, pod: Raw) -> None:
        self._add_owner(REPLICA_SET, pod)
        for key in self._services_in.get((namespace_of(pod), ""), ()):
            if endpoints.selects(self.sights[SERVICE][key], pod):
                self._add(SERVICE, key)

    def _slice_changed(self, slice_: Raw) -> None:
        if endpoints.is_ours(slice_):
            self._add(SERVICE, (namespace_of(slice_), labels_of(slice_).get(SERVICE_NAME, "")))

    def _node_changed(self, node: Raw) -> None:
        name = name_of(node)
        before = self._tainted.get(name, {})
        keys = {
            one["key"] for one in dig(node, "spec", "taints", default=[]) if one.get("effect") == "NoExecute"
        }
        self._tainted[name] = {key: before.get(key, self.box.now()) for key in keys}
        self._add_pods_on(name)
        self._add_pods_on("")

    def _add_pods_on(self, node: str) -> None:
        for key in self._pods_on.get(("", node), ()):
            self._add(POD, key)

    async def _follow_beats(self) -> None:
        """Kubelets come and go."""
        while True:
            alive = frozenset(name for name, beat in self.cluster.beats.items() if beat.alive)
            for name in sorted(alive ^ self._alive):
                self._add_pods_on(name)
            self._alive = alive
            await self.cluster.pulse.wait()

    async def _next(self) -> None:
        """Look at one object, or wait until there is one to look at."""
        now = self.box.now()
        for place in [place for place, due in self._due.items() if due <= now]:
            del self._due[place]
            self._waiting[place] = None
        if self._waiting:
            kind, key = next(iter(self._waiting))
            del self._waiting[kind, key]
            await self.cluster.usable()
            await self._serve_kind[kind](key)
            return
        self._news.clear()
        await self._wait()

    async def _wait(self) -> None:
        if not self._due:
            await self._news.wait()
            return
        news = asyncio.ensure_future(self._news.wait())
        timer = asyncio.ensure_future(self.box.wires.clock.until(min(self._due.values())))
        try:
            await asyncio.wait({news, timer}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            news.cancel()
            timer.cancel()

    # -- Deployments and ReplicaSets

    async def _serve_deployment(self, key: Key) -> None:
        deployment = self.sights[DEPLOYMENT].get(key)
        if deployment is None or is_deleting(deployment) or not selects_its_own(deployment):
            return
        for step in counting.plan_deployment(deployment, self._owned(REPLICA_SET, deployment)):
            match step:
                case counting.MakeSet(replicas, marks, _):
                    await self._make(REPLICA_SET, render_replica_set(deployment, replicas, marks))
                case counting.ScaleSet(replica_set, replicas, marks, _):
                    await self._change(REPLICA_SET, replica_set, partial(_scale, replicas, marks))
                case counting.MarkDeployment(marks, _):
                    await self._change(DEPLOYMENT, deployment, partial(_annotate, marks))
                case counting.EndSet(replica_set, _):
                    await self._end(REPLICA_SET, replica_set)
        sets = self._owned(REPLICA_SET, deployment)
        status = counting.render_deployment_status(deployment, sets, self.box.now())
        await self._show(DEPLOYMENT, deployment, status)

    async def _serve_replica_set(self, key: Key) -> None:
        replica_set = self.sights[REPLICA_SET].get(key)
        if replica_set is None or is_deleting(replica_set):
            return
        for step in counting.plan_replica_set(replica_set, self._owned(POD, replica_set)):
            match step:
                case counting.MakePods(count, _):
                    for _ in range(count):
                        await self._make(POD, render_pod(replica_set, int(self.box.delays.eviction)))
                case counting.EndPod(pod, _):
                    await self._end(POD, pod)
        status = counting.render_replica_set_status(replica_set, self._owned(POD, replica_set))
        await self._show(REPLICA_SET, replica_set, status)

    def _owned(self, kind: Kind, owner: Raw) -> list[Raw]:
        places = self._sets_of if kind == REPLICA_SET else self._pods_of
        return [self.sights[kind][key] for key in sorted(places.get(("", uid_of(owner)), ()))]

    # -- pods

    async def _serve_pod(self, key: Key) -> None:
        pod = self.sights[POD].get(key)
        if pod is None:
            self._stages.pop(key, None)
            self._due.pop((POD, key), None)
            return
        node = self.sights[NODE].get(("", dig(pod, "spec", "nodeName", default="")))
        for step in pod_life.plan_pod(pod, self._situation(key, pod, node)):
            match step:
                case pod_life.Bind():
                    await self._place(pod)
                case pod_life.Start() if node is not None:
                    status = pod_life.render_running(pod, node, self._address(pod, node), self.box.now())
                    await self._show(POD, pod, status)
                case pod_life.Show(ready, _):
                    status = pod_life.render_readiness(
                        pod["status"], ready, self.box.now(), probed=self._is_alive(pod)
                    )
                    await self._show(POD, pod, status)
                case pod_life.End(at_once, _):
                    await self._end(POD, pod, 0 if at_once else None)
                case pod_life.Later(until, _):
                    self._due[POD, key] = until

    def _is_alive(self, pod: Raw) -> bool:
        beat = self.cluster.beats.get(dig(pod, "spec", "nodeName", default=""))
        return beat is not None and beat.alive

    def _situation(self, key: Key, pod: Raw, node: Raw | None) -> pod_life.Situation:
        now, alive = self.box.now(), self._is_alive(pod)
        stage = pod_life.stage_of(pod, alive=alive)
        before = self._stages.get(key)
        if before is None or before[:2] != (uid_of(pod), stage):
            before = self._stages[key] = (uid_of(pod), stage, now)
        tainted = self._tainted.get(name_of(node), {}) if node is not None else {}
        return pod_life.Situation(now, before[2], node, alive, tainted, self.pace)

    async def _place(self, pod: Raw) -> None:
        place = find_place(pod, list(self.sights[NODE].values()), self.sights[POD].values())
        if not place.node:
            await self._say_unplaced(pod, place)
            return
        body = {"apiVersion": "v1", "kind": "Binding", "target": {"kind": "Node", "name": place.node}}
        ref = ref_of(POD, pod)
        reply = await self.cluster.local(*ACCOUNT).send(requests.create_sub(ref, "binding", body))
        error = error_for(reply)
        if error is not None and not isinstance(error, NotFound):
            raise error
        self._learn(POD, await self.hand.find(ref))

    async def _say_unplaced(self, pod: Raw, place: Place) -> None:
        said = find_condition(dig(pod, "status", "conditions"), "PodScheduled")
        if said is not None and said.message == place.why_not:
            return
        condition = {
            "type": "PodScheduled",
            "status": "False",
            "lastProbeTime": None,
            "lastTransitionTime": stamp(self.box.now()),
            "reason": "Unschedulable",
            "message": place.why_not,
        }
        rest = [one for one in dig(pod, "status", "conditions", default=[]) if one["type"] != "PodScheduled"]
        await self._show(POD, pod, {**(pod.get("status") or {}), "conditions": [*rest, condition]})

    def _address(self, pod: Raw, node: Raw) -> str:
        """The next free address of the node's range; its own where the pod shares the node's network."""
        if dig(pod, "spec", "hostNetwork"):
            return pod_life.host_address(node)
        network = ipaddress.ip_network(dig(node, "spec", "podCIDR", default="10.42.0.0/24"))
        name, size = name_of(node), network.num_addresses
        used = {dig(self.sights[POD][key], "status", "podIP") for key in self._pods_on.get(("", name), ())}
        for _ in range(size):
            self._last_host[name] = self._last_host[name] % (size - 2) + 1
            address = str(network[self._last_host[name]])
            if address not in used and self._last_host[name] > 1:
                return address
        return str(network[1])

    # -- endpoints

    async def _serve_service(self, key: Key) -> None:
        service = self.sights[SERVICE].get(key)
        if service is None or not endpoints.has_selector(service):
            return  # slices go with their Service, and those of others are others'
        pods = [self.sights[POD][one] for one in self._pods_in.get((key[0], ""), ())]
        own = [pod for pod in pods if endpoints.selects(service, pod)]
        slices = [self.sights[ENDPOINT_SLICE][one] for one in sorted(self._slices_of.get(key, ()))]
        hosts = {dig(pod, "spec", "nodeName", default="") for pod in own}
        zones = {
            host: labels_of(node).get(ZONE, "")
            for host in hosts
            if (node := self.sights[NODE].get(("", host))) is not None
        }
        pages = endpoints.plan_pages(service, own, zones)
        for step in endpoints.plan_slices(service, pages, [one for one in slices if endpoints.is_ours(one)]):
            match step:
                case endpoints.MakeSlice(raw, _):
                    await self._make(ENDPOINT_SLICE, raw)
                case endpoints.FillSlice(slice_, content, _):
                    await self._change(ENDPOINT_SLICE, slice_, lambda raw, new=content: raw.update(new))  # type: ignore[misc]
                case endpoints.DropSlice(slice_, _):
                    await self._end(ENDPOINT_SLICE, slice_)

    # -- deeds

    async def _make(self, kind: Kind, raw: Raw) -> None:
        try:
            self._learn(kind, await self.hand.create(kind, raw))
        except (Exists, NotFound):
            return  # somebody was quicker, or the namespace is gone

    async def _change(self, kind: Kind, raw: Raw, edit: Callable[[Raw], Any], subresource: str = "") -> None:
        uid = uid_of(raw)

        def same(found: Raw) -> None:
            if uid_of(found) == uid:
                edit(found)

        self._learn(kind, await self.hand.change(ref_of(kind, raw), same, subresource))

    async def _show(self, kind: Kind, raw: Raw, status: Raw) -> None:
        if raw.get("status") != status:
            await self._change(kind, raw, lambda found: found.update(status=status), "status")

    async def _end(self, kind: Kind, raw: Raw, grace_s: int | None = None) -> None:
        ref = ref_of(kind, raw)
        try:
            await self.cluster.local(*ACCOUNT).delete(ref, uid=uid_of(raw), grace_s=grace_s)
        except KubeError as error:
            if error.status not in (404, 409):
                raise
        found = await self.hand.find(ref)
        if found is None or uid_of(found) != uid_of(raw):
            self.sights[kind].forget(raw)
        else:
            self._learn(kind, found)

    def _learn(self, kind: Kind, raw: Raw | None) -> None:
        if raw is not None:
            self.sights[kind].learn(raw)


def _scale(replicas: int, marks: Mapping[str, str], raw: Raw) -> None:
    raw["spec"]["replicas"] = replicas
    _annotate(marks, raw)


def _annotate(marks: Mapping[str, str], raw: Raw) -> None:
    raw["metadata"]["annotations"] = {**annotations_of(raw), **marks}


def _by_controller(raw: Raw) -> list[Key]:
    return [("", counting.controller_uid(raw))]


def _by_namespace(raw: Raw) -> list[Key]:
    return [(namespace_of(raw), "")]
