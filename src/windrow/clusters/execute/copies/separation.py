"""The separation of a guest from the Cluster whose etcd it began with; `plan/operations/new_cluster` says from what, and why.

Everything is read first, and what is there is corrected; the next time nothing is found, and then the taint goes. So whatever
is cut off is done by the next attempt, and what a controller of the guest makes once more meanwhile is found once more.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from windrow.bootstrap.charts import (
    CLOUD_PROVIDER_CHART,
    HELM_CHART_CONFIG,
    NAMESPACE,
    credential_secret,
)
from windrow.bootstrap.layout import Layout
from windrow.bootstrap.server_config import s3_secret_name
from windrow.client.client import Client
from windrow.clusters.api.operations.snapshot import SNAPSHOT_FILE
from windrow.clusters.api.operations.source import STATUS, RecordedSource
from windrow.clusters.bootstrap_data import find_layout
from windrow.clusters.context import ReconcileContext, StalePlan, get_connection
from windrow.clusters.plan.operations.actions import ReleaseCopy, SeparateCopy
from windrow.clusters.plan.operations.new_cluster import TAINT_KEY, VOLUMES_OF
from windrow.clusters.sources.guest_api import GuestClusterCache, GuestConnection
from windrow.clusters.state import ClusterState
from windrow.core.clock import format_time
from windrow.core.formats import yaml
from windrow.core.text import join_some
from windrow.harvester.names import CSI_DRIVER
from windrow.kubernetes import requests
from windrow.kubernetes.errors import Conflict, NotFound
from windrow.kubernetes.objects import (
    Raw,
    annotations_of,
    finalizers_of,
    name_of,
    namespace_of,
    nested,
    objects_at,
    resource_version_of,
    secret_texts,
    uid_of,
)
from windrow.kubernetes.resources import (
    DEPLOYMENT,
    NODE,
    PERSISTENT_VOLUME,
    POD,
    SECRET,
    SERVICE,
    VOLUME_ATTACHMENT,
    ApiResource,
)

GUEST_SERVICE = SERVICE.ref("kubernetes", "default")
SNAPSHOT_CONTENT = ApiResource(
    "snapshot.storage.k8s.io", "v1", "VolumeSnapshotContent", "volumesnapshotcontents", namespaced=False
)
# Written by cloud providers and by kube-vip on Services: which addresses they have, and where.
ADDRESS_KEYS = (
    "kube-vip.io/loadbalancerIPs",
    "kube-vip.io/vipHost",
    "kube-vip.io/hwaddr",
    "kube-vip.io/requestedIP",
)
MAX_AT_ONCE = 50


@dataclass(frozen=True, slots=True)
class _Write:
    """One correction: what it is about, and the request. `what` is said in the status while it is not done."""

    what: str
    request: requests.Request


class Separation:
    """Two methods: as often as something is found, and once more before pods may run."""

    def __init__(self, context: ReconcileContext, guests: GuestClusterCache) -> None:
        self._context, self._guests = context, guests

    async def separate(self, action: SeparateCopy, state: ClusterState) -> None:
        source, client = state.recorded.operations.source, get_connection(self._guests, state).client
        if source is None:
            raise StalePlan
        service = await client.find(GUEST_SERVICE)
        if not source.guest_uid:
            # Before anything is done: by it the copy's own mark is told from the original's.
            if service is None:
                await self._wait("Service default/kubernetes of the guest to be created", state)
                return
            await self._context.patch_observed_cluster(state, {STATUS: {"guestUID": uid_of(service)}})
            return
        copy = self._copy(source, state)
        if writes := await copy.list_writes(service):
            await _send_all(client, writes)
            await self._wait(_describe(writes), state)
        elif left := await copy.find_wait(action.member, service):
            await self._wait(left, state)
        else:
            await self._context.patch_observed_cluster(state, {STATUS: {"clean": True}})

    async def release(self, action: ReleaseCopy, state: ClusterState) -> None:
        source, client = state.recorded.operations.source, get_connection(self._guests, state).client
        if source is None:
            raise StalePlan
        copy, service = self._copy(source, state), await client.find(GUEST_SERVICE)
        is_found = await copy.list_writes(service) or await copy.find_wait(action.member, service)
        if is_found or service is None:
            await self._context.patch_observed_cluster(state, {STATUS: {"clean": None}})
            raise StalePlan
        await copy.remove_taint(action.member)
        now = format_time(self._context.clock.now())
        change = {
            STATUS: {"separated": now},
            "guestUID": uid_of(service),
            "etcdSnapshotRestorePhase": "InitialRestartCluster",
            "etcdSnapshotRestoreRun": {"since": now, "message": None},
        }
        await self._context.patch_observed_cluster(state, change)

    def _copy(self, source: RecordedSource, state: ClusterState) -> _Copy:
        layout = find_layout(state.recorded.version or state.cluster.version)
        return _Copy(get_connection(self._guests, state), state, source, layout)

    async def _wait(self, what: str, state: ClusterState) -> None:
        run = {"since": format_time(self._context.clock.now()), "message": what}
        await self._context.patch_observed_cluster(state, {"etcdSnapshotRestoreRun": run})


def _describe(writes: list[_Write]) -> str:
    return f"{join_some(list(dict.fromkeys(one.what for one in writes)))} to be gone"


async def _send_all(client: Client, writes: list[_Write]) -> None:
    """Some at once. What is gone, or was changed meanwhile, is found by the next attempt."""
    for start in range(0, len(writes), MAX_AT_ONCE):
        await asyncio.gather(*(_send(client, one.request) for one in writes[start : start + MAX_AT_ONCE]))


async def _send(client: Client, request: requests.Request) -> None:
    try:
        await client.call(request)
    except (NotFound, Conflict):
        return


@dataclass(frozen=True, slots=True)
class _Copy:
    """The guest, as it is now."""

    connection: GuestConnection
    state: ClusterState
    source: RecordedSource
    layout: Layout

    @property
    def _client(self) -> Client:
        return self.connection.client

    async def list_writes(self, service: Raw | None) -> list[_Write]:
        """What is left to correct, in the order of the danger. `service` is default/kubernetes."""
        writes = await self._stop_cloud_provider()
        writes += await self._replace_credential()
        writes += await self._keep_volumes()
        writes += await self._forget_addresses()
        nodes = {name_of(raw): raw for raw in await self._client.list(NODE)}
        own = {machine.node_name for machine in self.state.machines}
        writes += await self._forget_s3()
        writes += await self._delete_nodes(nodes, own)
        writes += await self._delete_attachments(own)
        if service is not None and uid_of(service) == self.source.guest_uid:
            writes.append(
                _Write(
                    "the uid of the original's guest",
                    requests.delete(GUEST_SERVICE, uid=uid_of(service)),
                )
            )
        return writes

    async def find_wait(self, member: str, service: Raw | None) -> str:
        """What the guest itself has yet to do; "" for nothing."""
        if service is None:
            return "Service default/kubernetes of the guest to be created anew by its API server"
        if await self._client.find(NODE.ref(member)) is None:
            return f"Node {member} to register"
        if named := await self._find_other_name():
            return f"HelmChartConfig {NAMESPACE}/{CLOUD_PROVIDER_CHART}, which names cluster {named}, to be that of this one"
        return ""

    async def remove_taint(self, member: str) -> None:
        node = await self._client.get(NODE.ref(member))
        taints = objects_at(node, "spec", "taints")
        kept = [one for one in taints if one.get("key") != TAINT_KEY]
        if len(kept) != len(taints):
            change = {
                "metadata": {"resourceVersion": resource_version_of(node)},
                "spec": {"taints": kept or None},
            }
            try:
                await self.connection.patch_node(member, change)
            except Conflict as error:
                raise StalePlan from error

    # -- the two programs ------------------------------------------------------------------------------------------

    async def _stop_cloud_provider(self) -> list[_Write]:
        """Its chart is installed anew with the name of this cluster once the taint is gone, and sets its replicas again."""
        found = await self._client.find(DEPLOYMENT.ref(CLOUD_PROVIDER_CHART, NAMESPACE))
        if found is None or not nested(found, "spec", "replicas", default=1):
            return []
        arguments = [
            str(text)
            for one in objects_at(found, "spec", "template", "spec", "containers")
            for key in ("command", "args")
            for text in one.get(key) or ()
        ]
        if f"--cluster-name={self.state.cluster.name}" in arguments:
            return []
        ref = DEPLOYMENT.ref(CLOUD_PROVIDER_CHART, NAMESPACE)
        return [
            _Write(
                f"the pods of {ref} with the original's name",
                requests.merge_patch(ref, {"spec": {"replicas": 0}}),
            )
        ]

    async def _find_other_name(self) -> str:
        """The cluster name in the values of the cloud provider's chart, where it is not that of this one."""
        found = await self._client.find(HELM_CHART_CONFIG.ref(CLOUD_PROVIDER_CHART, NAMESPACE))
        try:
            values = yaml.load(str(nested(found, "spec", "valuesContent", default="")))
        except yaml.NotYaml:
            return ""
        named = str(nested(values, "global", "cattle", "clusterName", default="") or "")
        return "" if named == self.state.cluster.name else named

    async def _replace_credential(self) -> list[_Write]:
        """The one that the manager made for this cluster takes the place of the original's, where that is a Secret."""
        credential = self.state.guest_credential.credential
        if credential is None:
            return []
        wanted = credential_secret(credential)
        ref = SECRET.ref(wanted["metadata"]["name"], NAMESPACE)
        found = await self._client.find(ref)
        if found is None or secret_texts(found) == wanted["stringData"]:
            return []
        change = {"data": dict.fromkeys(found.get("data") or {}), "stringData": wanted["stringData"]}
        return [_Write("the original's credential for Harvester", requests.merge_patch(ref, change))]

    async def _forget_s3(self) -> list[_Write]:
        """With the keys of the original, and the objects that name its files; the files stay."""
        ref = SECRET.ref(s3_secret_name(self.layout), NAMESPACE)
        writes = []
        if await self._client.find(ref) is not None:
            writes.append(_Write("the original's keys of S3", requests.delete(ref)))
        for raw in await self._list(SNAPSHOT_FILE):
            if not nested(raw, "spec", "s3"):
                continue  # the servers forget those on disks that are not theirs
            writes += _delete_without_finalizers(
                raw, SNAPSHOT_FILE, "ETCDSnapshotFiles of the original in S3"
            )
        return writes

    # -- volumes and addresses -------------------------------------------------------------------------------------

    async def _keep_volumes(self) -> list[_Write]:
        writes = []
        for raw in await self._client.list(PERSISTENT_VOLUME):
            if nested(raw, "spec", "csi", "driver") == CSI_DRIVER and (change := self._mark_volume(raw)):
                what = "PersistentVolumes of the original with another policy than Retain"
                writes.append(
                    _Write(what, requests.merge_patch(PERSISTENT_VOLUME.ref(name_of(raw)), {"spec": change}))
                )
        for raw in await self._list(SNAPSHOT_CONTENT):
            is_other = nested(raw, "spec", "driver") == CSI_DRIVER and (
                nested(raw, "spec", "deletionPolicy") != "Retain"
            )
            if is_other:
                change = {"spec": {"deletionPolicy": "Retain"}}
                what = "VolumeSnapshotContents of the original with another policy than Retain"
                writes.append(_Write(what, requests.merge_patch(SNAPSHOT_CONTENT.ref(name_of(raw)), change)))
        return writes

    def _mark_volume(self, raw: Raw) -> dict[str, Any]:
        """A nodeAffinity cannot be changed once it is there."""
        change: dict[str, Any] = {}
        if nested(raw, "spec", "persistentVolumeReclaimPolicy") != "Retain":
            change["persistentVolumeReclaimPolicy"] = "Retain"
        if not nested(raw, "spec", "nodeAffinity"):
            wanted = {"key": VOLUMES_OF, "operator": "In", "values": [self.source.cluster]}
            change["nodeAffinity"] = {"required": {"nodeSelectorTerms": [{"matchExpressions": [wanted]}]}}
        return change

    async def _forget_addresses(self) -> list[_Write]:
        writes = []
        for raw in await self._client.list(SERVICE):
            if nested(raw, "spec", "type") != "LoadBalancer":
                continue
            ref, what = SERVICE.ref(name_of(raw), namespace_of(raw)), "addresses of the original's Services"
            if kept := [key for key in ADDRESS_KEYS if annotations_of(raw).get(key)]:
                change = {"metadata": {"annotations": dict.fromkeys(kept)}}
                writes.append(_Write(what, requests.merge_patch(ref, change)))
            if nested(raw, "status", "loadBalancer", "ingress"):
                shown = {"status": {"loadBalancer": {"ingress": None}}}
                writes.append(_Write(what, requests.merge_patch(ref, shown, "status")))
        return writes

    # -- Nodes, and what is attached to them -----------------------------------------------------------------------

    async def _delete_nodes(self, nodes: Mapping[str, Raw], own: set[str]) -> list[_Write]:
        writes = []
        for name in sorted(nodes.keys() - own):
            password = SECRET.ref(self.layout.node_password_secret(name), NAMESPACE)
            # First what nothing shows once the Node is gone.
            writes.append(_Write("Nodes of the original", requests.delete(password)))
            writes.append(_Write("Nodes of the original", requests.delete(NODE.ref(name))))
        for raw in await self._client.list(POD):
            node = str(nested(raw, "spec", "nodeName", default="") or "")
            if node and node not in own:
                ref = POD.ref(name_of(raw), namespace_of(raw))
                request = requests.delete(ref, uid=uid_of(raw), grace_s=0)
                writes.append(_Write("pods on Nodes of the original", request))
        return writes

    async def _delete_attachments(self, own: set[str]) -> list[_Write]:
        """Without its finalizers one goes at once, and no driver is asked to detach what the original uses."""
        return [
            write
            for raw in await self._client.list(VOLUME_ATTACHMENT)
            if str(nested(raw, "spec", "nodeName", default="")) not in own
            for write in _delete_without_finalizers(raw, VOLUME_ATTACHMENT, "attachments of the original")
        ]

    async def _list(self, kind: ApiResource) -> list[Raw]:
        """Of a kind that the guest may not have."""
        try:
            return await self._client.list(kind)
        except NotFound:
            return []


def _delete_without_finalizers(raw: Raw, kind: ApiResource, what: str) -> Iterable[_Write]:
    """Its finalizers, and with the next attempt the object: what asks for its deletion first would have them carried out."""
    ref = kind.ref(name_of(raw))
    if finalizers_of(raw):
        yield _Write(what, requests.merge_patch(ref, {"metadata": {"finalizers": None}}))
        return
    yield _Write(what, requests.delete(ref, uid=uid_of(raw)))
