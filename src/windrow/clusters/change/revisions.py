"""Revisions: what a configuration hash stands for, recorded in `status.revisions` of the Cluster before a Machine has it.

A revision holds the user's own fields as they were, by path, so that a later change can be named field by field, with the
value then and the value now. It is bounded: a value of more than 1,000 characters is recorded as its length and digest, a
field with very many values as one. What looks like a credential is never recorded, only a short digest by which a change
shows. Machines of releases that recorded no revisions have hashes that are not there: what differs of those is not known.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from windrow.bootstrap.node_config import merge_config
from windrow.clusters.api.cluster import Cluster, Pool
from windrow.clusters.api.machine import Machine
from windrow.clusters.bootstrap_data import sample_bootstrap_spec
from windrow.clusters.change.fields import GLOBAL_CONFIG
from windrow.clusters.state import ClusterState
from windrow.kubernetes.selectors import read_label_selector

# A revision as it is recorded: values by path, none of which is None.
Revision = Mapping[str, Any]

MAX_VALUE = 1000  # characters of one value
MAX_VALUES = 100  # of one field
MAX_DEPTH = 8
MAX_REVISION = 10_000  # characters
MAX_REVISIONS = 200_000  # characters of all together

ENVIRONMENT = "spec.agentEnvVars"
ENDPOINT = "spec.localClusterAuthEndpoint.fqdn"
ETCD = "spec.rkeConfig.etcd"
FILES = "spec.rkeConfig.machineSelectorFiles"
POD_SECURITY = "spec.defaultPodSecurityAdmissionConfigurationTemplateName"
REGISTRIES = "spec.rkeConfig.registries"
CHART_VALUES = "spec.rkeConfig.chartValues"
MANIFEST = "spec.rkeConfig.additionalManifest"


# -- what is recorded --------------------------------------------------------------------------------------------


def list_fields(cluster: Cluster, pool: Pool) -> dict[str, Any]:
    """The fields that make up the configuration of the pool's machines, whole and as the user wrote them: all that
    `config_hash` is made of, but for version and roles, which a Machine records itself."""
    spec = sample_bootstrap_spec(cluster, pool, cluster.version)
    fields = {
        GLOBAL_CONFIG: merge_config(spec),
        ENVIRONMENT: dict(cluster.environment),
        POD_SECURITY: cluster.pod_security,
        ENDPOINT: sorted(spec.tls_san),
        ETCD: _list_etcd(cluster.etcd),
        REGISTRIES: cluster.registries,
        CHART_VALUES: cluster.chart_values,
        MANIFEST: cluster.additional_manifest,
        FILES: _list_files(spec.selector_files, spec.machine_labels),
    }
    return {path: value for path, value in fields.items() if value not in (None, "", {}, [])}


def _list_etcd(etcd: Mapping[str, Any]) -> dict[str, Any]:
    """Without the credential of S3, and without what says nothing: Rancher writes every field that it knows."""
    s3 = etcd.get("s3")
    kept = _without_unset(s3) if isinstance(s3, Mapping) else {}
    kept = {key: one for key, one in kept.items() if key not in ("accessKey", "secretKey")}
    return _without_unset({**etcd, "s3": kept})


def _without_unset(values: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in values.items() if value not in (None, "", {})}


def _list_files(entries: Sequence[Mapping[str, Any]], labels: Mapping[str, str]) -> list[Any]:
    fitting = (one for one in entries if read_label_selector(one.get("machineLabelSelector")).matches(labels))
    return [source for entry in fitting for source in entry.get("fileSources") or ()]


def render_revision(fields: Mapping[str, Any], *, short: bool = False) -> dict[str, Any]:
    """The revision of these fields; `short` records each of them as one value."""
    return {at: value for path, field in fields.items() for at, value in _record(path, field, short).items()}


def _record(path: str, value: Any, short: bool) -> dict[str, Any]:
    values = {at: record_value(at, one) for at, one in split_field(path, value).items()}
    if len(values) == 1 or not (short or len(values) > MAX_VALUES or _size(values) > MAX_REVISION):
        return values
    return {path: digest_field(value)}


def split_field(path: str, value: Any) -> dict[str, Any]:
    """The values of a field by path: maps are looked into, lists are not."""
    return dict(_split(path, value, MAX_DEPTH))


def _split(path: str, value: Any, depth: int) -> Iterator[tuple[str, Any]]:
    if not isinstance(value, Mapping) or not (value and depth):
        if value is not None:
            yield path, value
        return
    for key, inner in value.items():
        yield from _split(f"{path}.{key}", inner, depth - 1)


def record_value(path: str, value: Any) -> Any:
    """The value as it may be recorded and shown."""
    if is_credential(path, value):
        return {"hidden": _sha256(value)[:8]}
    return digest_field(value) if len(_json(value)) > MAX_VALUE else value


_CREDENTIAL = re.compile(
    r"token|passw|secret|credential|private[-_]?key|access[-_]?key|api[-_]?key|kubeconfig|datastore-endpoint"
    r"|cloud-provider-config",
    re.IGNORECASE,
)
# Names of Secrets and files, and switches, are no credentials.
_NO_CREDENTIAL = re.compile(
    r"name$|-file$|namespace$|^secrets-encryption|^secret$|config-secret$", re.IGNORECASE
)
_IN_TEXT = re.compile(
    r"://[^/\s:@]*:[^/\s@]+@|(token|passw|secret)[a-z-]*[=:]\s*\S|PRIVATE KEY", re.IGNORECASE
)
MAX_SEARCHED = 10_000  # characters of a text


def is_credential(path: str, value: Any) -> bool:
    """Whether the value looks like a credential, by the name of its field or by itself."""
    name = path.rpartition(".")[2]
    if isinstance(value, bool) or value in (None, "", [], {}):
        return False
    if _CREDENTIAL.search(name) and not _NO_CREDENTIAL.search(name):
        return True
    return _IN_TEXT.search(_json(value)[:MAX_SEARCHED]) is not None


def is_digest(value: Any) -> bool:
    """Whether a recorded value stands for another."""
    return isinstance(value, Mapping) and (value.keys() == {"length", "sha256"} or value.keys() == {"hidden"})


def digest_field(value: Any) -> dict[str, Any]:
    """What stands for a value that is too long."""
    return {"length": len(_json(value)), "sha256": _sha256(value)[:16]}


def _sha256(value: Any) -> str:
    return hashlib.sha256(_json(value).encode("utf-8", "surrogatepass")).hexdigest()


def _json(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, sort_keys=True, default=_plain)


def _plain(value: Any) -> Any:
    return dict(value) if isinstance(value, Mapping) else list(value)


def _size(values: Mapping[str, Any]) -> int:
    return sum(len(path) + len(_json(value)) for path, value in values.items())


# -- the status of a Cluster -------------------------------------------------------------------------------------


def is_recorded(pool: str, state: ClusterState) -> bool:
    """Whether the revision is recorded that a machine of the pool would be made with now."""
    wanted = state.config_hashes.get(pool)
    return not wanted or wanted in state.recorded.revisions


def find_present_hash(pool: str, version: str, state: ClusterState) -> str:
    """That of a machine of the pool which has this version and all that is asked for now; "" where it is not known."""
    if version == state.recorded.version:
        return state.config_hashes.get(pool, "")
    hashes = state.wanted_hashes if version == state.cluster.version else state.left_hashes.get(version, {})
    return hashes.get(pool, "")


def list_present_hashes(state: ClusterState) -> dict[str, str]:
    """The pools of which machines have all that is asked for now, by hash, with any of their versions."""
    every = (state.config_hashes, *state.left_hashes.values(), state.wanted_hashes)
    return {digest: name for hashes in every for name, digest in hashes.items() if digest}


def list_revisions(state: ClusterState) -> dict[str, Revision]:
    """`status.revisions` as it is to be: of each hash that a Machine has, is being given, or would be made with now. One
    that is in use and was never recorded is recorded where a pool has it still."""
    pools = list_present_hashes(state)
    used = {one for machine in state.machines for one in _hashes_of(machine.record)}
    used = (used | pools.keys() | {state.recorded.applied_revision}) - {""}
    recorded = state.recorded.revisions
    revisions: dict[str, Revision] = {}
    for digest in sorted(used):
        pool = state.cluster.find_pool(pools.get(digest) or "")
        if digest in recorded:
            revisions[digest] = recorded[digest]
        elif pool is not None:
            revisions[digest] = render_revision(list_fields(state.cluster, pool))
    return _bounded(revisions, state, pools)


def _hashes_of(machine: Machine) -> list[str]:
    """Those that a Machine has, and will have after its turn."""
    update = machine.status.get("update")
    given = update.get("configHash") if isinstance(update, Mapping) else ""
    return [one for one in (machine.config_hash, given) if isinstance(one, str) and one]


def _bounded(
    revisions: dict[str, Revision], state: ClusterState, pools: Mapping[str, str]
) -> dict[str, Revision]:
    """Where all together are too large, those that can be made anew are recorded by one value for each field."""
    left = MAX_REVISIONS
    found: dict[str, Revision] = {}
    for digest, revision in revisions.items():
        pool = state.cluster.find_pool(pools.get(digest) or "")
        if _size(revision) > left and pool is not None and digest not in state.recorded.revisions:
            revision = render_revision(list_fields(state.cluster, pool), short=True)
        left -= _size(revision)
        found[digest] = revision
    return found
