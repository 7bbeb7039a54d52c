"""What `windrow restore NEW SNAPSHOT --from ORIGINAL` writes: the request of a new Cluster to begin with a snapshot of another."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from windrow.cli import connect, exit_codes
from windrow.cli.commands.snapshot import raise_generation
from windrow.cli.connect import Connection
from windrow.cli.errors import CliError
from windrow.clusters.api.kinds import CLUSTER, ETCD_SNAPSHOT
from windrow.clusters.api.names import AUTHORIZED_CLUSTERS, secrets_name
from windrow.clusters.api.operations.generations import next_generation
from windrow.clusters.api.operations.snapshot import without_operations
from windrow.clusters.api.operations.source import S3_TEXTS, drop_s3_keys
from windrow.kubernetes.objects import Raw, annotations_of, is_dns_subdomain, name_of, nested, new_object
from windrow.kubernetes.resources import SECRET, ObjectRef

KEY = "etcdSnapshotRestore"
# Of one cluster alone.
_OWN = ("localClusterAuthEndpoint",)


async def request_copy(
    manager: Connection, name: str, original: Raw, snapshot: str
) -> tuple[ObjectRef, int, bool]:
    """Have the Cluster `name` begin with the snapshot. It is created with the spec of the original where it does not exist.

    Returns the Cluster, the generation, and whether it was created. Raises CliError.
    """
    namespace = original["metadata"]["namespace"]
    request = await _render_request(manager, original, snapshot)
    if not is_dns_subdomain(name) or name == name_of(original):
        raise CliError(
            f"The new Cluster cannot be called {name!r}.",
            f"Give it a name that is not {name_of(original)}: LoadBalancers on Harvester are known by it.",
            exit_codes.USAGE,
        )
    await _allow_use(manager, original, name)
    ref = CLUSTER.ref(name, namespace)
    found = await manager.client.find(ref)
    if found is None:
        await manager.client.create(CLUSTER, render_copy(original, name, request))
        return ref, 1, True
    generation = next_generation(found, KEY)
    await manager.client.json_patch(ref, raise_generation(found, KEY, {**request, "generation": generation}))
    return ref, generation, False


async def _render_request(manager: Connection, original: Raw, snapshot: str) -> dict[str, Any]:
    """The file in S3, and where the original has it. Raises CliError."""
    file = await _find_file(manager, original, snapshot)
    s3 = nested(original, "spec", "rkeConfig", "etcd", "s3", default={}) or {}
    kept = {key: s3[key] for key in (*S3_TEXTS, "skipSSLVerify") if s3.get(key)}
    if not kept.get("cloudCredentialName"):
        raise CliError(
            f"{connect.full_name(original)} has no credential for S3 in spec.rkeConfig.etcd.s3.",
            "A new Cluster reads the snapshot from S3: write bucket and cloudCredentialName there.",
            exit_codes.FAILED,
        )
    return {"name": file, "from": {"clusterName": name_of(original), "s3": kept}}


async def _find_file(manager: Connection, original: Raw, snapshot: str) -> str:
    """The name of the file, by that of the ETCDSnapshot or its own. Raises CliError."""
    listed = await manager.client.list(ETCD_SNAPSHOT, original["metadata"]["namespace"])
    own = [raw for raw in listed if nested(raw, "spec", "clusterName") == name_of(original)]
    named = [raw for raw in own if snapshot in (name_of(raw), nested(raw, "snapshotFile", "name"))]
    if not named:
        raise CliError(
            f"{connect.full_name(original)} has no snapshot {snapshot!r}.",
            f"List them: windrow snapshot list {connect.full_name(original)}",
            exit_codes.NOT_FOUND,
        )
    in_s3 = [raw for raw in named if nested(raw, "snapshotFile", "s3")]
    if not in_s3:
        raise CliError(
            f"Snapshot {snapshot} is on the disk of a server, and a new Cluster reads it from S3.",
            f"Name one with storage s3: windrow snapshot list {connect.full_name(original)}",
            exit_codes.USAGE,
        )
    return str(nested(in_s3[0], "snapshotFile", "name"))


async def _allow_use(manager: Connection, original: Raw, name: str) -> None:
    """The new Cluster may read the authorities and the server token of the original, as far as its user may say so."""
    ref = SECRET.ref(secrets_name(name_of(original)), original["metadata"]["namespace"])
    secret = await manager.client.find(ref)
    if secret is None:
        raise CliError(
            f"{ref} does not exist, and what it held opens the snapshot.",
            "Restore it from a backup of the manager's store.",
            exit_codes.NOT_FOUND,
        )
    allowed = [one.strip() for one in str(annotations_of(secret).get(AUTHORIZED_CLUSTERS) or "").split(",")]
    wanted = ",".join(dict.fromkeys([*filter(None, allowed), name]))
    await manager.client.patch(ref, {"metadata": {"annotations": {AUTHORIZED_CLUSTERS: wanted}}})


def render_copy(original: Raw, name: str, request: Mapping[str, Any]) -> Raw:
    """The new Cluster: the spec of the original without what is that one's alone."""
    spec = {key: value for key, value in without_operations(original["spec"]).items() if key not in _OWN}
    rke = dict(spec.get("rkeConfig") or {})
    etcd = {key: value for key, value in (rke.get("etcd") or {}).items() if key != "s3"}
    charts = {chart: _without_name(values) for chart, values in (rke.get("chartValues") or {}).items()}
    config, selectors = drop_s3_keys(
        rke.get("machineGlobalConfig") or {}, rke.get("machineSelectorConfig") or ()
    )
    rke |= {"machineGlobalConfig": config, "machineSelectorConfig": list(selectors)}
    rke |= {"etcd": etcd, "chartValues": charts, KEY: {**request, "generation": 1}}
    left_out = ("etcd", "chartValues", "machineGlobalConfig", "machineSelectorConfig")
    spec["rkeConfig"] = {key: value for key, value in rke.items() if value or key not in left_out}
    return new_object(CLUSTER, name, original["metadata"]["namespace"], spec=spec)


def _without_name(values: Any) -> Any:
    """Chart values without the name of the cluster, which the manager writes."""
    named = nested(values, "global", "cattle", "clusterName")
    if not named:
        return values
    cattle = {key: one for key, one in values["global"]["cattle"].items() if key != "clusterName"}
    return {**values, "global": {**values["global"], "cattle": cattle}}
