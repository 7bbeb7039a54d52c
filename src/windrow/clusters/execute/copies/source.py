"""What a new Cluster takes of another before it begins with a snapshot of that: is it fit, and the original's authorities and token."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from windrow.bootstrap.charts import CLOUD_PROVIDER_CHART, CSI_DRIVER_CHART
from windrow.bootstrap.spec import ClusterSecrets
from windrow.clusters.api.kinds import CLUSTER, ETCD_SNAPSHOT
from windrow.clusters.api.operations.recorded import RestoreRequest
from windrow.clusters.api.operations.snapshot import (
    ETCDSnapshot,
    NoClusterSpec,
    decode_spec,
    find_password,
    read_snapshot,
)
from windrow.clusters.api.operations.source import (
    S3_FIELD,
    S3_TEXTS,
    STATUS,
    RestoreSource,
    is_same_place,
    list_s3_keys,
)
from windrow.clusters.api.secrets import SecretData, read_secrets, render_secrets
from windrow.clusters.bootstrap_secrets import find_fault_of_use, resolve_s3
from windrow.clusters.context import ReconcileContext, StalePlan
from windrow.clusters.execute.cluster_secrets import ensure_secret
from windrow.clusters.plan.operations.new_cluster import FIELD, TAINT_KEY, is_unseparated
from windrow.clusters.plan.operations.restore import check_file, is_under_way
from windrow.clusters.state import ClusterState
from windrow.core.errors import UserError
from windrow.core.formats.version import NotVersion, Version
from windrow.core.text import encode_base64
from windrow.kubernetes.objects import Raw, nested, secret_texts
from windrow.kubernetes.resources import SECRET
from windrow.machines.port import Problem

UNTOUCHED = f"nothing was made; raise {FIELD}.generation to try again"


class NotFit(UserError):
    """The snapshot, or what is needed to open it, is not fit for this Cluster."""


@dataclass(frozen=True, slots=True)
class _Found:
    """The original's secrets, with the token that opens the snapshot as the present one."""

    secrets: ClusterSecrets
    snapshot: ETCDSnapshot | None


class CopySource:
    """Reads what belongs to the original; writes nothing but the Secret of the new Cluster."""

    def __init__(self, context: ReconcileContext) -> None:
        self._context = context

    async def describe(self, request: RestoreRequest, state: ClusterState) -> dict[str, Any] | Problem:
        """What is recorded as `status.restoredFrom`; or why the Cluster does not begin with this snapshot."""
        source = request.source
        if source is None:
            raise StalePlan
        try:
            _check_cluster(source, state)
            _check_keys(state)
            found = await self._find(source, request.name, state)
            await self._check_original(source, found, state)
            await self._check_place(source, state)
        except UserError as error:
            return Problem(error.message, f"{error.hint}; {UNTOUCHED}", FIELD)
        place = dict.fromkeys((*S3_TEXTS, "skipSSLVerify")) | dict(source.s3)
        fresh = dict.fromkeys(("guestUID", "clean", "separated"))
        return {STATUS: {"clusterName": source.cluster, "secretName": source.secret, "s3": place, **fresh}}

    async def adopt_secrets(self, state: ClusterState) -> None:
        """Give the Cluster the authorities and the server token that are in the snapshot. May be repeated. Raises NotFit."""
        recorded, name = state.recorded.operations.source, state.recorded.operations.restore.file
        if recorded is None:
            raise StalePlan
        source = RestoreSource(recorded.cluster, recorded.secret, recorded.s3)
        secrets = (await self._find(source, name, state)).secrets
        raw = render_secrets(state.cluster, secrets)
        if secrets.former_server_passwords:
            raw["data"]["server-passwords-former"] = encode_base64("\n".join(secrets.former_server_passwords))
        await ensure_secret(self._context, raw, state, update=True)

    async def _find(self, source: RestoreSource, file: str, state: ClusterState) -> _Found:
        secrets = await self._read_secrets(source, state)
        snapshot = await self._find_snapshot(source, file, state)
        if snapshot is None or not snapshot.file.token_hash:
            return _Found(secrets, snapshot)
        password = find_password(snapshot.file.token_hash, secrets.server_passwords)
        if not password:
            raise NotFit(
                f"{snapshot} was made with a server token (digest {snapshot.file.token_hash}) that is not in Secret "
                f"{state.cluster.namespace}/{source.secret}",
                "put the server token of then into that Secret as server-password, or name another snapshot",
            )
        former = tuple(one for one in secrets.server_passwords if one != password)
        return _Found(
            replace(
                secrets, server_password=password, next_server_password="", former_server_passwords=former
            ),
            snapshot,
        )

    async def _read_secrets(self, source: RestoreSource, state: ClusterState) -> ClusterSecrets:
        """The original's, or what was kept of it. Its owner has allowed that this Cluster uses it."""
        ref = SECRET.ref(source.secret, state.cluster.namespace)
        raw = await self._context.api.find(ref)
        if fault := find_fault_of_use(raw, ref, state.cluster):
            raise NotFit(*fault)
        held = SecretData(ref.namespace, ref.name, source.secret, data=secret_texts(raw or {}))
        secrets = read_secrets(held, source.secret)
        if secrets is None:
            raise NotFit(
                f"Secret {ref.namespace}/{ref.name} has not all that the Secret <cluster>-windrow-secrets of a Cluster has",
                "restore that Secret of the original: it holds the authorities and the server token, and nothing else opens "
                "the snapshot",
            )
        return secrets

    async def _find_snapshot(
        self, source: RestoreSource, file: str, state: ClusterState
    ) -> ETCDSnapshot | None:
        """The ETCDSnapshot of the file, where the original is still there, or another Cluster lists the same folder."""
        for raw in await self._context.api.list(ETCD_SNAPSHOT, state.cluster.namespace):
            snapshot = read_snapshot(raw)
            if (snapshot.cluster, snapshot.file.snapshot) == (source.cluster, file) and snapshot.file.s3:
                return snapshot
        return None

    async def _check_original(self, source: RestoreSource, found: _Found, state: ClusterState) -> None:
        carried: Mapping[str, Any] = {}
        if found.snapshot is not None:
            if problem := check_file(found.snapshot, str(found.snapshot)):
                raise NotFit(problem.message, problem.hint.partition(";")[0])
            try:
                carried = decode_spec(found.snapshot.metadata)
            except NoClusterSpec:
                carried = {}
        _check_release(str(carried.get("kubernetesVersion") or ""), source, state)
        original = await self._context.api.find(CLUSTER.ref(source.cluster, state.cluster.namespace))
        for spec in (carried, (original or {}).get("spec") or {}):
            _check_tolerations(spec, source)

    async def _check_place(self, source: RestoreSource, state: ClusterState) -> None:
        """That it can be read, and that the new Cluster has its snapshots elsewhere."""
        find, namespace = self._context.api.find, state.cluster.namespace
        consent = self._context.require_consent
        place = (await resolve_s3(find, namespace, {"s3": source.s3}, consent))["s3"]
        if not place.get("bucket"):
            raise NotFit(f"{FIELD}.from.s3 names no bucket", "write the bucket in which the snapshot is")
        own = nested(state.cluster.raw, "spec", "rkeConfig", "etcd", "s3")
        if not isinstance(own, Mapping) or not own:
            return
        resolved = (await resolve_s3(find, namespace, {"s3": own}, consent))["s3"]
        if is_same_place(resolved, place):
            raise NotFit(
                f"{S3_FIELD} is the folder in which Cluster {source.cluster} keeps its snapshots, and each of the two would prune "
                "those of the other",
                "write another folder there",
            )


def _check_cluster(source: RestoreSource, state: ClusterState) -> None:
    cluster = state.cluster
    is_beginning = is_under_way(state) and is_unseparated(state)
    if not is_beginning and (state.recorded.initialized or state.machines):
        raise NotFit(
            f"Cluster {cluster.namespace}/{cluster.name} has {'started' if state.recorded.initialized else 'machines'}, and only a "
            "new one begins with the snapshot of another",
            "create another Cluster for it, or take from out, to restore a snapshot of this one",
        )
    if source.cluster == cluster.name:
        raise NotFit(
            f"the snapshot is of a Cluster {source.cluster}, too, and LoadBalancers on Harvester are known by that name",
            "give the new Cluster another name",
        )
    named = nested(cluster.chart_values, CLOUD_PROVIDER_CHART, "global", "cattle", "clusterName")
    if named not in (None, "", cluster.name):
        raise NotFit(
            f"chartValues give the cloud provider the name {named}, by which it finds LoadBalancers on Harvester",
            "remove clusterName from chartValues",
        )


def _check_keys(state: ClusterState) -> None:
    """Keys of the distribution's own name a folder in S3 past `etcd.s3`, which alone is compared with the original's."""
    if found := list_s3_keys(state.cluster.global_config, state.cluster.selector_config):
        raise NotFit(
            f"machineGlobalConfig or machineSelectorConfig has {', '.join(found)}, by which the copy would have S3 before it is "
            "separated from the original",
            f"remove these keys, and write {S3_FIELD} with a folder of its own",
        )


def _check_release(then: str, source: RestoreSource, state: ClusterState) -> None:
    try:
        was, will = Version.parse(then), Version.parse(state.cluster.version)
    except NotVersion:
        return  # the server says so
    if was.distribution != will.distribution or (was.major, was.minor) > (will.major, will.minor):
        raise NotFit(
            f"the snapshot was made by {then}, and {state.cluster.version} cannot read it",
            f"write kubernetesVersion {then}, or a later release of the same distribution",
        )


# Where the values of the charts have tolerations of pods that act on Harvester or announce addresses.
_TOLERATIONS = (
    (CLOUD_PROVIDER_CHART, "tolerations"),
    (CLOUD_PROVIDER_CHART, "kube-vip", "tolerations"),
    (CSI_DRIVER_CHART, "tolerations"),
)


def _check_tolerations(spec: Mapping[str, Any], source: RestoreSource) -> None:
    """Pods that tolerate everything would act on the original before the copy is separated.

    The CSI chart's `node.tolerations` may: that pod has no credential, and mounts only what a controller attached.
    """
    for path in _TOLERATIONS:
        found = nested(spec, "rkeConfig", "chartValues", *path, default=())
        if any(
            _tolerates(one) for one in (found if isinstance(found, list) else ()) if isinstance(one, dict)
        ):
            raise NotFit(
                f"chartValues of Cluster {source.cluster} have pods of {'.'.join(path[:-1])} tolerate taint {TAINT_KEY}, which keeps "
                "those of the copy from acting on the original",
                "name other keys in these tolerations, and make another snapshot",
            )


def _tolerates(toleration: Raw) -> bool:
    """Whether pods with it run beside the taint, which has no value."""
    if toleration.get("effect") not in (None, "", "NoExecute"):
        return False
    if toleration.get("operator") == "Exists":
        return toleration.get("key") in (None, "", TAINT_KEY)
    return toleration.get("key") == TAINT_KEY and not toleration.get("value")
