"""The separation of a copy from its original, on the API of a guest: what is corrected, what stays, and when pods may run."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import Any

import pytest
from tests.support.clock import LoopClock, run_driven
from tests.unit.clusters.builders import NOON, SERVER, a_cluster, a_pool, look, some

from windrow.apiserver.server import ApiServer
from windrow.apiserver.services.allocation import ServiceRanges
from windrow.apiserver.storage.memory import MemoryStore
from windrow.app.embedded import management_api
from windrow.bootstrap.charts import HELM_CHART_CONFIG
from windrow.bootstrap.spec import GuestCredential
from windrow.client.client import Client
from windrow.clusters.api.kinds import CLUSTER
from windrow.clusters.api.operations.recorded import read_recorded_operations
from windrow.clusters.api.operations.snapshot import SNAPSHOT_FILE
from windrow.clusters.api.operations.source import RecordedSource
from windrow.clusters.bootstrap_data import find_layout
from windrow.clusters.context import ReconcileContext, StalePlan
from windrow.clusters.execute.copies.separation import Separation, _Copy, _send_all
from windrow.clusters.plan.operations import actions as do
from windrow.clusters.state import ClusterState
from windrow.core.clock import format_time
from windrow.core.rng import Rng
from windrow.core.text import encode_base64
from windrow.emulator.definitions import definition
from windrow.emulator.guest_cluster.distribution.helm_crds import HELM_CRDS
from windrow.kubernetes.objects import Raw, annotations_of, name_of, nested, new_object, uid_of
from windrow.kubernetes.resources import (
    DEPLOYMENT,
    NAMESPACE,
    NODE,
    PERSISTENT_VOLUME,
    POD,
    SECRET,
    SERVICE,
    VOLUME_ATTACHMENT,
    ApiResource,
)

DRIVER = "driver.harvesterhci.io"
SERVERS = a_pool("servers", 1, SERVER)
SOURCE = RecordedSource("orchard", "orchard-windrow-secrets", {"bucket": "b"}, guest_uid="unknown")
CONTENT = ApiResource(
    "snapshot.storage.k8s.io", "v1", "VolumeSnapshotContent", "volumesnapshotcontents", namespaced=False
)
PROVIDER = DEPLOYMENT.ref("harvester-cloud-provider", "kube-system")
TAINTS = [
    {"key": "windrow.io/restored-copy", "effect": "NoExecute"},
    {"key": "other", "effect": "NoSchedule"},
]


@dataclass
class Connection:
    client: Client

    async def patch_node(self, name: str, change: dict[str, Any]) -> None:
        await self.client.patch(NODE.ref(name), change)


@dataclass
class Guest:
    """The API of a guest, and the copy that it is."""

    api: Client
    copy: _Copy
    service: Raw

    async def writes(self) -> list[str]:
        """What is found, and corrected."""
        found = await self.copy.list_writes(self.service)
        await _send_all(self.api, found)
        return [one.what for one in found]


def on_a_guest(story: Callable[[Guest], Awaitable[None]], **rest: Any) -> None:
    async def run() -> None:
        server = ApiServer(MemoryStore(), LoopClock(NOON), Rng(1), services=ServiceRanges())
        for crd in (*HELM_CRDS, *(definition(kind) for kind in (SNAPSHOT_FILE, CONTENT))):
            server.install_crd(crd)
        await server.prepare()
        api = Client(server.local())
        service = await api.get(SERVICE.ref("kubernetes", "default"))
        await api.create(NODE, new_object(NODE, "s1", spec={"taints": TAINTS}))
        connection: Any = Connection(api)
        state = a_state(**rest)
        copy = _Copy(connection, state, SOURCE, find_layout("v1.35.1+rke2r1"))
        await story(Guest(api, copy, service))

    run_driven(run())


def a_state(credential: str = "") -> ClusterState:
    state = look(a_cluster(SERVERS), some("s", 1, SERVERS))
    given = GuestCredential(credential) if credential else None
    return replace(state, guest_credential=replace(state.guest_credential, credential=given))


def a_volume(name: str, policy: str = "Delete", driver: str = DRIVER, **spec: Any) -> Raw:
    spec = {
        "capacity": {"storage": "1Gi"},
        "accessModes": ["ReadWriteOnce"],
        "csi": {"driver": driver, "volumeHandle": name},
        "persistentVolumeReclaimPolicy": policy,
        **spec,
    }
    return new_object(PERSISTENT_VOLUME, name, spec=spec)


def a_provider(name: str, replicas: int | None = 1) -> Raw:
    container = {"name": "a", "image": "a", "command": ["provider"], "args": [f"--cluster-name={name}"]}
    labels = {"a": "b"}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [container]}}
    spec = {"selector": {"matchLabels": labels}, "template": template, "replicas": replicas}
    return new_object(DEPLOYMENT, PROVIDER.name, PROVIDER.namespace, spec=spec)


def test_a_guest_with_nothing_of_another_needs_nothing_and_keeps_what_is_its_own() -> None:
    async def story(guest: Guest) -> None:
        api = guest.api
        await api.create(DEPLOYMENT, a_provider("prod"))
        await api.create(PERSISTENT_VOLUME, a_volume("other", driver="another.driver"))
        await api.create(POD, a_pod("mine", "s1"))
        await api.create(POD, a_pod("pending", ""))
        await api.create(VOLUME_ATTACHMENT, an_attachment("mine", "s1"))
        await api.create(SNAPSHOT_FILE, a_file("local", s3=False))
        await api.create(SERVICE, a_service("inner", "ClusterIP", {"kube-vip.io/vipHost": "x"}))
        assert await guest.writes() == []
        assert await guest.copy.find_wait("s1", guest.service) == ""

    on_a_guest(story)


def a_pod(name: str, node: str) -> Raw:
    spec: Raw = {"containers": [{"name": "a", "image": "a"}], **({"nodeName": node} if node else {})}
    return new_object(POD, name, "default", spec=spec)


def an_attachment(name: str, node: str, *finalizers: str) -> Raw:
    spec = {"attacher": DRIVER, "nodeName": node, "source": {"persistentVolumeName": "v"}}
    return new_object(VOLUME_ATTACHMENT, name, finalizers=list(finalizers) or None, spec=spec)


def a_file(name: str, *, s3: bool) -> Raw:
    place = {"s3": {"bucket": "b"}} if s3 else {}
    spec = {"snapshotName": name, "nodeName": "s3" if s3 else "o1", "location": "x", **place}
    return new_object(SNAPSHOT_FILE, name, finalizers=["wrangler.cattle.io/x"], spec=spec)


def a_service(name: str, type: str, annotations: dict[str, str]) -> Raw:
    spec = {"type": type, "ports": [{"port": 80}]}
    return new_object(SERVICE, name, "default", annotations=annotations, spec=spec)


def test_the_pods_of_the_cloud_provider_are_none_until_it_has_the_name_of_the_copy() -> None:
    async def story(guest: Guest) -> None:
        await guest.api.create(DEPLOYMENT, a_provider("orchard"))
        assert [what for what in await guest.writes() if "original's name" in what]
        assert nested(await guest.api.get(PROVIDER), "spec", "replicas") == 0
        assert await guest.writes() == []

    on_a_guest(story)


@pytest.mark.parametrize(
    ("values", "wait"),
    [
        ("global: {cattle: {clusterName: orchard}}", "names cluster orchard"),
        ("global: {cattle: {clusterName: prod}}", ""),
        ("{", ""),
        ("", ""),
    ],
)
def test_pods_wait_for_the_values_of_the_copy(values: str, wait: str) -> None:
    async def story(guest: Guest) -> None:
        raw = new_object(HELM_CHART_CONFIG, PROVIDER.name, "kube-system", spec={"valuesContent": values})
        await guest.api.create(HELM_CHART_CONFIG, raw)
        found = await guest.copy.find_wait("s1", guest.service)
        assert (wait in found) if wait else found == ""

    on_a_guest(story)


def test_pods_wait_for_the_node_and_for_the_service_of_the_api() -> None:
    async def story(guest: Guest) -> None:
        assert await guest.copy.find_wait("s2", guest.service) == "Node s2 to register"
        assert "Service default/kubernetes" in await guest.copy.find_wait("s1", None)

    on_a_guest(story)


def test_the_credential_of_the_original_is_replaced_where_there_is_one() -> None:
    ref = SECRET.ref("harvester-cloud-provider-config", "kube-system")

    async def story(guest: Guest) -> None:
        assert await guest.writes() == []
        data = {"cloud-provider-config": encode_base64("theirs"), "old": encode_base64("x")}
        await guest.api.create(SECRET, new_object(SECRET, ref.name, ref.namespace, data=data))
        assert await guest.writes() == ["the original's credential for Harvester"]
        found = await guest.api.get(ref)
        assert found["data"] == {"cloud-provider-config": encode_base64("ours")}
        assert await guest.writes() == []

    on_a_guest(story, credential="ours")


def test_keys_and_files_of_the_original_in_s3_are_forgotten() -> None:
    async def story(guest: Guest) -> None:
        secret = new_object(SECRET, "rke2-etcd-snapshot-s3-config", "kube-system", data={})
        await guest.api.create(SECRET, secret)
        await guest.api.create(SNAPSHOT_FILE, a_file("in-s3", s3=True))
        await guest.api.create(SNAPSHOT_FILE, a_file("local", s3=False))
        await guest.writes()
        await guest.writes()
        assert await guest.writes() == []
        assert await guest.api.find(SECRET.ref("rke2-etcd-snapshot-s3-config", "kube-system")) is None
        assert [name_of(raw) for raw in await guest.api.list(SNAPSHOT_FILE)] == ["local"]

    on_a_guest(story)


def test_volumes_and_snapshots_of_harvester_are_kept_and_no_node_takes_them() -> None:
    zone = {"required": {"nodeSelectorTerms": [{"matchExpressions": [{"key": "z", "operator": "Exists"}]}]}}

    async def story(guest: Guest) -> None:
        for raw in (a_volume("a"), a_volume("b", "Retain"), a_volume("c", nodeAffinity=zone)):
            await guest.api.create(PERSISTENT_VOLUME, raw)
        for name, driver in (("mine", DRIVER), ("other", "another.driver")):
            spec = {"driver": driver, "deletionPolicy": "Delete"}
            await guest.api.create(CONTENT, new_object(CONTENT, name, spec=spec))
        await guest.writes()
        assert await guest.writes() == []

        volumes = {name_of(raw): raw["spec"] for raw in await guest.api.list(PERSISTENT_VOLUME)}
        assert {one["persistentVolumeReclaimPolicy"] for one in volumes.values()} == {"Retain"}
        wanted = {"key": "windrow.io/volumes-of", "operator": "In", "values": ["orchard"]}
        mark = {"required": {"nodeSelectorTerms": [{"matchExpressions": [wanted]}]}}
        assert [volumes[name]["nodeAffinity"] for name in "abc"] == [mark, mark, zone]
        policies = {name_of(raw): raw["spec"]["deletionPolicy"] for raw in await guest.api.list(CONTENT)}
        assert policies == {"mine": "Retain", "other": "Delete"}

    on_a_guest(story)


def test_services_ask_for_addresses_of_their_own() -> None:
    ref = SERVICE.ref("web", "default")

    async def story(guest: Guest) -> None:
        keys = {
            "kube-vip.io/loadbalancerIPs": "10.0.0.7",
            "kube-vip.io/vipHost": "o1",
            "cloudprovider.harvesterhci.io/ipam": "pool",
        }
        await guest.api.create(SERVICE, a_service("web", "LoadBalancer", keys))
        shown = {"status": {"loadBalancer": {"ingress": [{"ip": "10.0.0.7"}]}}}
        await guest.api.patch(ref, shown, "status")
        await guest.writes()
        assert await guest.writes() == []
        found = await guest.api.get(ref)
        assert annotations_of(found) == {"cloudprovider.harvesterhci.io/ipam": "pool"}
        assert not nested(found, "status", "loadBalancer", "ingress")

    on_a_guest(story)


def test_nodes_of_the_original_go_with_their_pods_and_attachments_and_no_driver_is_asked() -> None:
    async def story(guest: Guest) -> None:
        api = guest.api
        await api.create(NODE, new_object(NODE, "o1"))
        await api.create(SECRET, new_object(SECRET, "o1.node-password.rke2", "kube-system", data={}))
        await api.create(POD, a_pod("theirs", "o1"))
        await api.create(POD, a_pod("mine", "s1"))
        await api.create(VOLUME_ATTACHMENT, an_attachment("theirs", "o1", "external-attacher/x"))
        await api.create(VOLUME_ATTACHMENT, an_attachment("mine", "s1", "external-attacher/x"))
        await guest.writes()
        (kept,) = [raw for raw in await api.list(VOLUME_ATTACHMENT) if name_of(raw) == "theirs"]
        assert not kept["metadata"].get("finalizers")  # first: with one its driver would be asked to detach
        assert not kept["metadata"].get("deletionTimestamp")
        await guest.writes()
        assert await guest.writes() == []
        for kind, left in ((NODE, "s1"), (POD, "mine"), (VOLUME_ATTACHMENT, "mine")):
            assert [name_of(raw) for raw in await api.list(kind)] == [left]
        assert await api.find(SECRET.ref("o1.node-password.rke2", "kube-system")) is None

    on_a_guest(story)


def test_the_service_of_the_api_is_deleted_once_and_by_its_uid() -> None:
    async def story(guest: Guest) -> None:
        source = replace(SOURCE, guest_uid=uid_of(guest.service))
        of_original = Guest(guest.api, replace(guest.copy, source=source), guest.service)
        assert await of_original.writes() == ["the uid of the original's guest"]
        assert await guest.api.find(SERVICE.ref("kubernetes", "default")) is None
        assert await guest.writes() == []

    on_a_guest(story)


def test_the_taint_alone_is_taken_off_the_node() -> None:
    async def story(guest: Guest) -> None:
        await guest.copy.remove_taint("s1")
        assert (await guest.api.get(NODE.ref("s1")))["spec"]["taints"] == TAINTS[1:]
        await guest.copy.remove_taint("s1")

    on_a_guest(story)


def test_a_copy_is_looked_at_once_more_before_its_pods_run() -> None:
    """What a controller has made again since the last look is found, and pods go on waiting."""

    async def story(guest: Guest) -> None:
        server = management_api(MemoryStore(), LoopClock(NOON), Rng(1))
        await server.prepare()
        api = Client(server.local())
        await api.create(NAMESPACE, new_object(NAMESPACE, "fleet-default"))
        raw = await api.create(CLUSTER, new_object(CLUSTER, "prod", "fleet-default", spec={}))
        unused: Any = None
        clusters: Any = type("Cache", (), {"mutated": lambda self, raw: None})()
        context = ReconcileContext(api, clusters, unused, unused, LoopClock(NOON), Rng(2), unused)
        guests: Any = type("Guests", (), {"find": lambda self, uid: guest.copy.connection})()
        separation = Separation(context, guests)

        async def act(action: Any) -> Raw:
            raw = await api.get(CLUSTER.ref("prod", "fleet-default"))
            recorded = read_recorded_operations(raw.get("status") or {})
            assert recorded.source is not None
            status = replace(guest.copy.state.cluster.recorded, operations=recorded)
            cluster = replace(guest.copy.state.cluster, raw=raw, recorded=status)
            await action(do.SeparateCopy("", "s1"), replace(guest.copy.state, cluster=cluster))
            return dict((await api.get(CLUSTER.ref("prod", "fleet-default")))["status"])

        begun = {"restoredFrom": {"clusterName": "orchard"}}
        await api.patch(CLUSTER.ref(name_of(raw), "fleet-default"), {"status": begun}, "status")
        assert (await act(separation.separate))["restoredFrom"]["guestUID"] == uid_of(guest.service)
        assert "uid of the original" in (await act(separation.separate))["etcdSnapshotRestoreRun"]["message"]
        assert "default/kubernetes" in (await act(separation.separate))["etcdSnapshotRestoreRun"]["message"]
        spec = {"clusterIP": "10.43.0.9", "ports": [{"port": 443}]}
        own = await guest.api.create(SERVICE, new_object(SERVICE, "kubernetes", "default", spec=spec))
        assert (await act(separation.separate))["restoredFrom"]["clean"] is True

        await guest.api.create(NODE, new_object(NODE, "o1"))
        with pytest.raises(StalePlan):
            await act(separation.release)
        status = (await api.get(CLUSTER.ref("prod", "fleet-default")))["status"]
        assert "clean" not in status["restoredFrom"]
        assert (await guest.api.get(NODE.ref("s1")))["spec"]["taints"] == TAINTS

        await act(separation.separate)
        await act(separation.separate)
        status = await act(separation.release)
        assert (status["guestUID"], status["etcdSnapshotRestorePhase"]) == (
            uid_of(own),
            "InitialRestartCluster",
        )
        assert status["restoredFrom"]["separated"] == format_time(NOON)
        assert (await guest.api.get(NODE.ref("s1")))["spec"]["taints"] == TAINTS[1:]

    on_a_guest(story)
