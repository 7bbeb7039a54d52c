"""The comparison of a cluster's versions with the support matrix and with what Harvester says. Pure."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from windrow.bootstrap.charts import CLOUD_PROVIDER_CHART, Charts
from windrow.bootstrap.support_matrix.matrix import CHARTS, Numbers, Pair, SupportMatrix, format_numbers
from windrow.core.formats.bounds import abbreviate
from windrow.core.formats.version import NotVersion, Version
from windrow.harvester.supported_charts import CHART_VERSIONS, HarvesterVersions

Result = Literal["fits", "warning", "refused", "not compared"]

OPTION = "--support-matrix"


@dataclass(frozen=True, slots=True)
class ClusterVersions:
    """What of a cluster is compared. `charts` are the Harvester charts that it gets from its distribution or from Windrow;
    `names_secret`: its values name a Secret with the cloud provider's credential."""

    version: Version
    title: str
    charts: Mapping[str, Numbers]
    uses_harvester: bool
    machines: int
    has_node_affinity: bool = False
    names_secret: bool = False

    @property
    def name(self) -> str:
        return f"{self.title} {self.version}"


@dataclass(frozen=True, slots=True)
class Comparison:
    """One thing that was compared: a sentence with what was wanted and found, the result, and the cure where it does not
    fit."""

    sentence: str
    result: Result = "fits"
    hint: str = ""


def compare(
    matrix: SupportMatrix, cluster: ClusterVersions, harvester: HarvesterVersions | None
) -> list[Comparison]:
    """Everything that is known about the cluster's versions. `harvester` is None where it was not asked."""
    found = [*_compare_release(matrix, cluster), *_compare_charts(matrix, cluster)]
    if harvester is not None:
        found += _compare_harvester(matrix, cluster, harvester)
    return found


def _compare_release(matrix: SupportMatrix, cluster: ClusterVersions) -> Iterator[Comparison]:
    lines = f"v{format_numbers(matrix.maintained[0])} to v{format_numbers(matrix.newest_line)}"
    if cluster.version.line > matrix.newest_line:
        yield Comparison(
            f"{cluster.name} is newer than what the support matrix of {matrix.date} knows ({lines})",
            "warning",
            f"go on if this release is known to work; a newer matrix is read with {OPTION} FILE",
        )
    elif cluster.version.line not in matrix.maintained:
        yield Comparison(
            f"{cluster.name} is of a line that gets no new releases (those that do, on {matrix.date}: {lines})",
            "warning",
            f"choose a release of v{format_numbers(matrix.newest_line)}, or of another of these lines",
        )
    else:
        yield Comparison(f"{cluster.name} is of a line that gets new releases: {lines}")
    yield from _compare_patch(matrix, cluster)
    first = matrix.first.get(cluster.version.distribution)
    if first is None or not cluster.uses_harvester:
        return
    if cluster.version < first:
        yield Comparison(
            f"{cluster.name} brings neither the cloud provider nor the CSI driver of Harvester; {first} is the first that does",
            "refused",
            "choose a later release; or write cloud-provider-name: external, and bring both in additionalManifest",
        )
    elif matrix.find_charts(cluster.version) is None:
        yield Comparison(
            f"{cluster.name} is not in the support matrix: which charts of Harvester it brings is not known",
            "warning",
            f"choose a later release of v{format_numbers(cluster.version.line)}",
        )


def _compare_patch(matrix: SupportMatrix, cluster: ClusterVersions) -> Iterator[Comparison]:
    """A release of a known line that the matrix does not have yet, or that there is none of."""
    newest = matrix.find_newest(cluster.version)
    if newest is None or _patch_of(cluster.version, newest) <= _patch_of(newest, newest):
        return
    yield Comparison(
        f"{cluster.name} is newer than what the support matrix of {matrix.date} knows of its line (up to {newest})",
        "warning",
        f"make sure that this release exists: machines cannot install one that does not; {newest} does. A newer matrix is "
        f"read with {OPTION} FILE",
    )


def _patch_of(version: Version, newest: Version) -> tuple[int, int]:
    """What of a release is compared: its revision only where that of the newest one is known."""
    return version.patch, version.revision if newest.distribution else 0


def _compare_charts(matrix: SupportMatrix, cluster: ClusterVersions) -> Iterator[Comparison]:
    """The charts by themselves: what they lack on every Harvester."""
    for chart, version in cluster.charts.items():
        image = matrix.find_image(chart, version)
        is_assumed = (
            cluster.version.line > matrix.newest_line and cluster.version.distribution in matrix.first
        )
        verb = "is taken to run" if is_assumed else "runs"
        named = f"{cluster.name} {verb} {chart} {format_numbers(version)}" + (
            f" (image {image})" if image else ""
        )
        lacks = [pair for pair in matrix.pairs if _is_lacking(pair, chart, version, cluster)]
        if not lacks:
            yield Comparison(named)
        for pair in lacks:
            yield Comparison(
                _told(f"{named}: {pair.message}", pair), _result_of(pair), _cure(matrix, cluster, pair)
            )
    provider = cluster.charts.get(CLOUD_PROVIDER_CHART)
    if cluster.names_secret and provider and not Charts(provider, (0, 0, 0)).cloud_provider_reads_secret:
        yield Comparison(
            f"chartValues of {CLOUD_PROVIDER_CHART} have cloudConfig.secretName, which its version "
            f"{format_numbers(provider)} does not read",
            "refused",
            "leave it out, so that the credential is read from its file; or choose a release with chart 0.2.12 or later",
        )


def _is_lacking(pair: Pair, chart: str, version: Numbers, cluster: ClusterVersions) -> bool:
    return (
        pair.harvester is None
        and pair.concerns(chart, version)
        and pair.machines in (0, cluster.machines)
        and not (pair.without_node_affinity and cluster.has_node_affinity)
    )


def _compare_harvester(
    matrix: SupportMatrix, cluster: ClusterVersions, harvester: HarvesterVersions
) -> Iterator[Comparison]:
    if not harvester.release:
        yield Comparison(
            f"the release of Harvester is not known: {harvester.unread}",
            "not compared",
            "let the credential's user get settings.harvesterhci.io",
        )
        return
    release = _parse_release(harvester.release)
    newest = f"v{format_numbers(matrix.newest_harvester)}"
    if release is None:
        yield Comparison(
            f"Harvester {abbreviate(harvester.release)} is a build of a branch, taken for the newest"
        )
    elif release.line > matrix.newest_harvester:
        yield Comparison(
            f"Harvester {release} is newer than what the support matrix of {matrix.date} knows (up to {newest})",
            "warning",
            f"go on if this release is known to work; a newer matrix is read with {OPTION} FILE",
        )
    else:
        yield Comparison(f"Harvester {release} is in the support matrix (up to {newest})")
    for chart, version in cluster.charts.items():
        for pair in matrix.pairs:
            if pair.harvester is not None and pair.concerns(chart, version):
                yield _compare_pair(matrix, cluster, pair, version, release)
        yield from _compare_range(cluster, harvester, chart, version)


def _compare_pair(
    matrix: SupportMatrix, cluster: ClusterVersions, pair: Pair, version: Numbers, release: Version | None
) -> Comparison:
    wanted = f"{pair.chart} {format_numbers(version)} wants Harvester {pair.harvester} or later"
    if release is None or pair.harvester is None or release >= pair.harvester:
        return Comparison(wanted)
    return Comparison(
        _told(f"{wanted}, and this is {release}: {pair.message}", pair),
        _result_of(pair),
        f"upgrade Harvester, or {_cure(matrix, cluster, pair)}",
    )


def _told(sentence: str, pair: Pair) -> str:
    return f"{sentence} ({pair.source})" if pair.source else sentence


def _result_of(pair: Pair) -> Result:
    return "refused" if pair.severity == "error" else "warning"


def _cure(matrix: SupportMatrix, cluster: ClusterVersions, pair: Pair) -> str:
    """Which release has another version of the chart: the next one, where there is one, else the last one before."""
    others = [
        release
        for release, charts in matrix.bundled
        if not pair.concerns(
            pair.chart, dict(zip(CHARTS, (charts.cloud_provider, charts.csi_driver), strict=True))[pair.chart]
        )
    ]
    later = [release for release in others if release > cluster.version]
    earlier = [release for release in others if release < cluster.version]
    if cluster.version.distribution != "rke2" or not (later or earlier):
        return f"install another version of {pair.chart} with additionalManifest"
    if later:
        return f"choose {_full(later[0])}, or a later release of its line"
    return f"choose a release before v{format_numbers(cluster.version.line)}, such as {_full(earlier[-1])}"


def _full(release: Version) -> str:
    return f"v{format_numbers(release.numbers)}+rke2r{release.revision or 1}"


def _parse_release(text: str) -> Version | None:
    """None for a build of a branch, such as `master-3d63c2af-head` or `v1.8-head`."""
    try:
        return Version.parse(text)
    except NotVersion:
        return None


# -- what the setting of Harvester accepts ---------------------------------------------------------------------------

_BOUND = re.compile(r"(>=|<=|>|<|=)?v?(\d{1,6})\.(\d{1,6})\.(\d{1,6})")
_OPERATORS: Mapping[str, Callable[[Numbers, Numbers], bool]] = {
    ">=": operator.ge,
    "<=": operator.le,
    ">": operator.gt,
    "<": operator.lt,
    "=": operator.eq,
    "": operator.eq,
}


def _compare_range(
    cluster: ClusterVersions, harvester: HarvesterVersions, chart: str, version: Numbers
) -> Iterator[Comparison]:
    text = harvester.ranges.get(chart, "")
    if not text:
        return
    bounds = [_BOUND.fullmatch(part) for part in text.split()[:10]]
    wanted = f"Harvester {harvester.release} accepts {chart} {text} (its setting {CHART_VERSIONS.name})"
    if not all(bounds):
        sentence = (
            f"setting {CHART_VERSIONS.name} has {abbreviate(text)} for {chart}, which is no range of versions"
        )
        yield Comparison(sentence, "not compared", "write it as >=0.0.1 <0.3.0, on Harvester")
    elif all(
        _OPERATORS[one[1] or ""](version, (int(one[2]), int(one[3]), int(one[4]))) for one in bounds if one
    ):
        yield Comparison(wanted)
    else:
        yield Comparison(
            f"{wanted}, and {cluster.name} runs {format_numbers(version)}",
            "refused",
            f"upgrade Harvester, or choose a release of {cluster.title} with such a chart",
        )
