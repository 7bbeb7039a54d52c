"""The versions of a Cluster compared with the support matrix and with its Harvester: before anything is made, and again when
its version or its Harvester changes."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from windrow.bootstrap.charts import CLOUD_PROVIDER_CHART
from windrow.bootstrap.support_matrix.comparison import ClusterVersions, Comparison, compare
from windrow.bootstrap.support_matrix.matrix import SupportMatrix
from windrow.clusters.api.cluster import Cluster, Pool
from windrow.clusters.bootstrap_data import find_distribution, sample_bootstrap_spec
from windrow.core.formats.json import loads
from windrow.core.formats.version import Version
from windrow.core.text import decode_base64
from windrow.harvester.supported_charts import HarvesterVersions
from windrow.kubernetes.objects import nested
from windrow.machines.port import Problem

FIELD = "spec.kubernetesVersion"
HARVESTER_PROVIDER = "harvester"


def compare_versions(
    cluster: Cluster,
    existing: Iterable[Problem],
    matrix: SupportMatrix,
    harvester: HarvesterVersions | None,
) -> list[Comparison]:
    """Every comparison; none where the version itself is refused, or no machine would be a server. `existing` are the
    problems of the Cluster, `harvester` what its Harvester says, None where it was not asked."""
    server = next((pool for pool in cluster.pools if pool.is_server), None)
    if server is None or any(one.field == FIELD and one.severity == "error" for one in existing):
        return []
    distribution = find_distribution(cluster.version)
    values = cluster.chart_values.get(CLOUD_PROVIDER_CHART)
    spec = sample_bootstrap_spec(cluster, server, cluster.version)
    versions = ClusterVersions(
        version=Version.parse(cluster.version),
        title=distribution.LAYOUT.title,
        charts=distribution.find_harvester_charts(spec, matrix),
        uses_harvester=cluster.cloud_provider == HARVESTER_PROVIDER,
        machines=sum(pool.quantity for pool in cluster.pools),
        has_node_affinity=all(_has_node_affinity(pool) for pool in cluster.pools if pool.is_on_harvester),
        names_secret=bool(nested(values, "cloudConfig", "secretName", default="")),
    )
    return compare(matrix, versions, harvester)


def compare_later_versions(
    cluster: Cluster,
    existing: Iterable[Problem],
    matrix: SupportMatrix,
    harvester: HarvesterVersions | None,
) -> tuple[Problem, ...]:
    """What does not fit of the version that the cluster runs, and of the one that its spec names now; the spec itself may have
    `existing` problems. A Cluster whose spec cannot be read is compared no more."""
    running, problems = cluster.recorded.version or cluster.version, tuple(existing)
    versions = dict.fromkeys((running, cluster.version))
    found: list[Problem] = []
    for version in versions:
        of_spec = problems if version == cluster.version else ()
        found += list_problems(
            compare_versions(replace(cluster, version=version), of_spec, matrix, harvester)
        )
    return tuple(dict.fromkeys(found))


def list_problems(comparisons: Iterable[Comparison]) -> list[Problem]:
    """What does not fit, and what of Harvester could not be compared."""
    return [
        Problem(one.sentence, one.hint, FIELD, "error" if one.result == "refused" else "warning")
        for one in comparisons
        if one.result != "fits"
    ]


def _has_node_affinity(pool: Pool) -> bool:
    """Whether the pool's machines are bound to hosts, as far as its value shows; the node driver reads it in full."""
    given = (pool.options or {}).get("vmAffinity")
    try:
        found = loads(decode_base64(given)) if isinstance(given, str) and given[:1] != "{" else given
        found = loads(found) if isinstance(found, str) else found
    except ValueError:  # neither base64 nor JSON
        return False
    return bool(nested(found, "nodeAffinity"))
