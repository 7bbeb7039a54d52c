"""A life of the manager under the service account and the rights that its chart renders, on a driven clock.

The right that each request to the management API needed is kept, and each refusal. `run_manager` gives both, and which of the things
that a user relies on came about.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from datetime import timedelta
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from tests.conformance.chart_rights_rig import KINDS, Permission
from tests.stories.cluster_rig import ALL, a_cluster, a_pool, gone, post, scale, stock
from tests.stories.node_driver_rig import FIRST, URL, NodeDriverRig
from tests.stories.test_addresses import RANGE, with_addresses
from tests.support.simulation import Simulation, simulation

from windrow.apiserver.request.info import (
    name_from_field_selector,
    parse_request_info,
    query_options,
    request_verb,
)
from windrow.app.cluster_roles import METRICS_READER, install_cluster_roles
from windrow.app.embedded import LEASE_NAME, RANCHER_NAMESPACES, install_crds, read_identity
from windrow.app.metrics.port import new_endpoints
from windrow.app.serve import refuse_if_rancher_present
from windrow.client.client import Client
from windrow.client.leader_election import LeaderElector
from windrow.client.transport import Transport, TransportMiddleware
from windrow.clusters.api.kinds import CLUSTER, ETCD_SNAPSHOT, IP_ADDRESS, MACHINE
from windrow.core.rng import Rng
from windrow.drivers.api import NODE_DRIVER, machine_config
from windrow.kubernetes.conditions import is_true
from windrow.kubernetes.errors import Forbidden, KubeError
from windrow.kubernetes.objects import Raw, finalizers_of, name_of, nested, new_object
from windrow.kubernetes.requests import APPLY_PATCH, Reply, Request, WatchEvent
from windrow.kubernetes.resources import (
    CLUSTER_ROLE,
    CLUSTER_ROLE_BINDING,
    CONFIG_MAP,
    CRD,
    EVENT,
    LEASE,
    NAMESPACE,
    SECRET,
    SERVICE_ACCOUNT,
    ObjectRef,
)
from windrow.probes.endpoints import ProbeRequest

NAME, PLACE = "windrow", "windrow-system"
ACCOUNT = f"system:serviceaccount:{PLACE}:{NAME}"
VERSION, NEXT = "v1.34.7+rke2r1", "v1.35.4+rke2r1"
PATIENCE = timedelta(minutes=30)


def covers(right: Permission, asked: Permission) -> bool:
    """As `Permission.covers`, where a role may name every kind of a group."""
    return (
        right.verb == asked.verb
        and fnmatchcase(asked.resource, right.resource)
        and right.namespace in ("", asked.namespace)
        and right.name in ("", asked.name)
    )


class RightsTransport(TransportMiddleware):
    """Keeps which right each request needs, and which requests are refused."""

    def __init__(self, inner: Transport) -> None:
        super().__init__(inner)
        self.asked: set[Permission] = set()
        self.refused: set[Permission] = set()

    async def send(self, request: Request) -> Reply:
        right = self._right(request)
        reply = await self._inner.send(request)
        if right is None:
            return reply
        self.asked.add(right)
        if reply.status == 201 and request.content_type == APPLY_PATCH:
            self.asked.add(Permission("create", right.resource, right.namespace, right.name))
        if reply.status == 403:
            self.refused.add(right)
        return reply

    @asynccontextmanager
    async def _streamed(self, request: Request) -> AsyncIterator[AsyncIterator[WatchEvent]]:
        right = self._right(request)
        assert right is not None
        self.asked.add(right)
        try:
            async with self._inner.stream(request) as events:
                yield events
        except Forbidden:
            self.refused.add(right)
            raise

    def stream(self, request: Request) -> Any:
        return self._streamed(request)

    @staticmethod
    def _right(request: Request) -> Permission | None:
        target, options = parse_request_info(request.path), query_options(request)
        if not target.is_resource:
            return None
        plural = f"{target.plural}.{target.group}" if target.group else target.plural
        resource = f"{plural}/{target.subresource}" if target.subresource else plural
        verb = request_verb(request.method, target, options)
        return Permission(verb, resource, target.namespace, target.name or name_from_field_selector(options))


@dataclass
class Life:
    """`did` has each thing that a user relies on, and whether it came about."""

    did: dict[str, bool] = field(default_factory=dict)
    asked: set[Permission] = field(default_factory=set)
    refused: set[Permission] = field(default_factory=set)


@dataclass
class _Rig:
    sim: Simulation
    transport: RightsTransport
    did: dict[str, bool]
    state: Path
    ref: ObjectRef = field(default_factory=lambda: CLUSTER.ref("orchard", RANCHER_NAMESPACES[0]))

    @property
    def admin(self) -> Client:
        return self.sim.management_client

    async def holds(self, what: Callable[[], Awaitable[object]], within: timedelta = PATIENCE) -> bool:
        """Whether it comes about in time."""
        end = self.sim.clock.now() + within
        while not await what():
            if self.sim.clock.now() >= end:
                return False
            await self.sim.advance(seconds=5)
        return True

    async def status(self) -> Raw:
        return dict((await self.admin.get(self.ref)).get("status") or {})

    async def settled(self, version: str, machines: int) -> bool:
        raw = await self.admin.find(self.ref) or {}
        found = [one for one in await self.admin.list(MACHINE) if "deletionTimestamp" not in one["metadata"]]
        ready = [one for one in found if is_true(nested(one, "status", "conditions"), "Ready")]
        versions = {nested(one, "spec", "kubernetesVersion", default=version) for one in found}
        is_ready = is_true(nested(raw, "status", "conditions"), "Ready")
        return is_ready and len(ready) == len(found) == machines and versions == {version}


async def install(sim: Simulation, objects: Sequence[Raw]) -> None:
    """Accounts and roles of the chart."""
    await sim.management_client.create(NAMESPACE, new_object(NAMESPACE, PLACE))
    for raw in objects:
        if raw["kind"] in KINDS:
            await sim.management_client.create(KINDS[raw["kind"]], raw)


async def run_manager(objects: Sequence[Raw], state: Path, *, chapters: int = 99) -> Life:
    """A cluster's life, from the manager's start to the cluster's deletion; only the first `chapters` of it."""
    life = Life()
    async with simulation(seed=3, with_manager=False) as sim:
        await install(sim, objects)
        groups = ("system:serviceaccounts", f"system:serviceaccounts:{PLACE}")
        transport = RightsTransport(sim.api.local(ACCOUNT, groups))
        rig = _Rig(sim, transport, life.did, state)
        for chapter in (_start, _lead, _metrics, _drivers, _create, _scale, _snapshot, _upgrade, _delete)[
            :chapters
        ]:
            try:
                await chapter(rig)
            except KubeError as error:
                life.did[f"{chapter.__name__}: {error}"] = False
                break
        await sim.kill_manager()
        life.asked, life.refused = transport.asked, transport.refused
    return life


async def _start(rig: _Rig) -> None:
    api = Client(rig.transport)
    for name in RANCHER_NAMESPACES:  # as in a Kubernetes in which no manager was yet
        await rig.admin.delete(NAMESPACE.ref(name))
    await rig.holds(lambda: _is_gone(rig, NAMESPACE.ref(RANCHER_NAMESPACES[1])))
    for what, step in {
        "looks for Rancher": lambda: refuse_if_rancher_present(api),
        "applies its definitions": lambda: install_crds(api),
        "compares the roles for people": lambda: install_cluster_roles(api),
        "knows which state it is": lambda: read_identity(api, "", Rng(1)),
    }.items():
        rig.did[what] = False
        with suppress(Forbidden):
            await step()
            rig.did[what] = True


async def _is_gone(rig: _Rig, ref: ObjectRef) -> bool:
    return await rig.admin.find(ref) is None


async def _lead(rig: _Rig) -> None:
    elector = LeaderElector(Client(rig.transport), *LEASE_NAME, "pod-1", rig.sim.clock, rig.sim.rng)

    async def work() -> None:
        await asyncio.Event().wait()

    task = asyncio.create_task(elector.run(work))

    async def renewed() -> str:
        return str(
            nested(
                await rig.admin.find(LEASE.ref(LEASE_NAME[1], LEASE_NAME[0])), "spec", "renewTime", default=""
            )
        )

    rig.did["leads"] = await rig.holds(renewed, timedelta(seconds=30))
    first = await renewed()
    await rig.sim.advance(seconds=20)
    rig.did["keeps the lead"] = await renewed() > first
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def _metrics(rig: _Rig) -> None:
    account = await rig.admin.create(SERVICE_ACCOUNT, new_object(SERVICE_ACCOUNT, "prometheus", PLACE))
    role = {"apiGroup": CLUSTER_ROLE.group, "kind": "ClusterRole", "name": METRICS_READER}
    subject = {"kind": "ServiceAccount", "name": "prometheus", "namespace": PLACE}
    binding = new_object(CLUSTER_ROLE_BINDING, "prometheus", roleRef=role, subjects=[subject])
    await rig.admin.create(CLUSTER_ROLE_BINDING, binding)
    token = await rig.sim.api.service_account_tokens.issue(account)
    registry = rig.sim.new_metrics().registry
    pages = new_endpoints(registry, rig.transport, rig.sim.clock, lambda: True, dict)
    rig.did["shows metrics"] = (await pages.respond(ProbeRequest("GET", "/metrics", {}, token))).status == 200
    rig.did["hides metrics"] = (
        await pages.respond(ProbeRequest("GET", "/metrics", {}, "another"))
    ).status == 401


async def _drivers(rig: _Rig) -> None:
    """A driver comes, with a definition for its machine configs, and goes with it."""
    site = NodeDriverRig(rig.state, rig.sim.clock, rig.sim.api)
    site.files_by_url[URL] = FIRST
    site.start(rig.transport)
    await site.add()
    kind = machine_config("NoopConfig")

    async def is_defined() -> bool:
        return await rig.admin.find(CRD.ref(kind.group_resource)) is not None

    async def is_built_in() -> bool:
        return await rig.admin.find(NODE_DRIVER.ref("harvester")) is not None

    short = timedelta(minutes=2)
    rig.did["brings its own node drivers"] = await rig.holds(is_built_in, short)
    rig.did["defines the machine configs of a node driver"] = await rig.holds(is_defined, short)
    noop = NODE_DRIVER.ref("noop")
    rig.did["holds up the deletion of a node driver"] = bool(finalizers_of(await rig.admin.get(noop)))
    await rig.admin.delete(noop)
    gone_too = await rig.holds(lambda: _is_gone(rig, noop), short)
    rig.did["takes a definition away with its driver"] = gone_too and not await is_defined()
    await site.stop()


async def _create(rig: _Rig) -> None:
    files = [{"fileSources": [_MOTD]}]
    pools = (a_pool("servers", 1, ALL), a_pool("workers", 1))
    documents = with_addresses(a_cluster(*pools, kubernetesVersion=VERSION), RANGE)
    documents[-1]["spec"]["rkeConfig"]["machineSelectorFiles"] = files
    await stock(rig.sim, documents)
    annotations = {"rke.cattle.io/object-authorized-for-clusters": "orchard"}
    motd = new_object(CONFIG_MAP, "motd", RANCHER_NAMESPACES[0], annotations=annotations)
    await rig.admin.create(CONFIG_MAP, {**motd, "data": {"text": "hello"}})
    rig.sim.start_manager(rig.transport)
    await post(rig.sim, documents)
    rig.did["creates a cluster"] = await rig.holds(lambda: rig.settled(VERSION, 2))
    rig.did["gives machines addresses"] = len(await rig.admin.list(IP_ADDRESS)) == 2
    rig.did["tells of it"] = bool(await rig.admin.list(EVENT))
    rig.did["publishes its kubeconfig"] = "value" in (await _secret(rig, "orchard-kubeconfig")).get(
        "data", {}
    )


_MOTD = {"configMap": {"name": "motd", "items": [{"key": "text", "path": "/etc/motd"}]}}


async def _secret(rig: _Rig, name: str) -> Raw:
    return await rig.admin.find(SECRET.ref(name, RANCHER_NAMESPACES[0])) or {}


async def _scale(rig: _Rig) -> None:
    await scale(rig.sim, rig.ref, 1, 2)
    rig.did["adds a machine"] = await rig.holds(lambda: rig.settled(VERSION, 3))
    await scale(rig.sim, rig.ref, 1, 1)
    rig.did["takes a machine away"] = await rig.holds(lambda: rig.settled(VERSION, 2))

    async def are_back() -> bool:
        return len(await rig.admin.list(IP_ADDRESS)) == 2

    rig.did["takes addresses back"] = await rig.holds(are_back)


async def _change(rig: _Rig, **fields: Any) -> None:
    await rig.admin.patch(rig.ref, {"spec": {"rkeConfig": fields}})


async def _snapshot(rig: _Rig) -> None:
    async def is_over(what: str) -> bool:
        return (await rig.status()).get(what) in ("Finished", "Done")

    await _change(rig, etcdSnapshotCreate={"generation": 1})
    rig.did["takes snapshots"] = await rig.holds(lambda: is_over("etcdSnapshotCreatePhase"))
    await rig.sim.advance(minutes=1)
    found = await rig.admin.list(ETCD_SNAPSHOT)
    rig.did["lists snapshots"] = bool(found)
    if found:
        await _change(rig, etcdSnapshotRestore={"name": name_of(found[0]), "generation": 1})
        rig.did["restores snapshots"] = await rig.holds(lambda: is_over("etcdSnapshotRestorePhase"))
        await rig.admin.delete(ETCD_SNAPSHOT.ref(name_of(found[0]), RANCHER_NAMESPACES[0]))
        ref = ETCD_SNAPSHOT.ref(name_of(found[0]), RANCHER_NAMESPACES[0])
        rig.did["deletes snapshots"] = await rig.holds(lambda: _is_gone(rig, ref))
    await _change(rig, rotateToken={"generation": 1})
    rig.did["rotates the token"] = await rig.holds(lambda: is_over("rotateTokenPhase"))


async def _upgrade(rig: _Rig) -> None:
    await rig.admin.patch(rig.ref, {"spec": {"kubernetesVersion": NEXT}})
    rig.did["upgrades a cluster"] = await rig.holds(lambda: rig.settled(NEXT, 2))


async def _delete(rig: _Rig) -> None:
    await rig.admin.delete(rig.ref)
    rig.did["deletes a cluster"] = False
    with suppress(AssertionError):
        await gone(rig.sim, rig.ref)
        rig.did["deletes a cluster"] = await rig.admin.list(MACHINE) == []
