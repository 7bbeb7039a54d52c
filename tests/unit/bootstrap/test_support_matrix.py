from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from windrow.bootstrap.charts import CLOUD_PROVIDER_CHART, CSI_DRIVER_CHART
from windrow.bootstrap.support_matrix.comparison import ClusterVersions, Comparison, compare
from windrow.bootstrap.support_matrix.matrix import CHARTS, InvalidMatrix, read_matrix, shipped_matrix
from windrow.core.formats.version import Version
from windrow.harvester.supported_charts import HarvesterVersions, read_versions

MATRIX = shipped_matrix()
RANGE = ">=0.0.1 <0.3.0"
HARVESTER = HarvesterVersions("v1.8.2", dict.fromkeys(CHARTS, RANGE))


def versions(text: str = "v1.34.7+rke2r1", **changes: Any) -> ClusterVersions:
    """A cluster of three machines with the charts that its release brings."""
    version = Version.parse(text)
    charts = MATRIX.find_charts(version)
    found = (
        {} if charts is None else dict(zip(CHARTS, (charts.cloud_provider, charts.csi_driver), strict=True))
    )
    return replace(ClusterVersions(version, "RKE2", found, uses_harvester=True, machines=3), **changes)


def unfit(cluster: ClusterVersions, harvester: HarvesterVersions | None = HARVESTER) -> list[Comparison]:
    return [one for one in compare(MATRIX, cluster, harvester) if one.result != "fits"]


def test_a_release_of_today_on_a_harvester_of_today_fits_and_is_told_with_its_charts_and_images() -> None:
    found = compare(MATRIX, versions(), HARVESTER)

    assert {one.result for one in found} == {"fits"}
    assert [one.sentence for one in found] == [
        "RKE2 v1.34.7+rke2r1 is of a line that gets new releases: v1.33 to v1.36",
        "RKE2 v1.34.7+rke2r1 runs harvester-cloud-provider 0.2.11 (image v0.2.5)",
        "RKE2 v1.34.7+rke2r1 runs harvester-csi-driver 0.1.28 (image v0.2.8)",
        "Harvester v1.8.2 is in the support matrix (up to v1.9)",
        "harvester-cloud-provider 0.2.11 wants Harvester v1.2.0 or later",
        f"Harvester v1.8.2 accepts harvester-cloud-provider {RANGE} (its setting harvester-csi-ccm-versions)",
        f"Harvester v1.8.2 accepts harvester-csi-driver {RANGE} (its setting harvester-csi-ccm-versions)",
    ]


@pytest.mark.parametrize(
    ("cluster", "harvester", "result", "words", "hint"),
    [
        ("v1.99.0+rke2r1", "v1.8.2", "warning", "v1.99.0+rke2r1 is newer", "--support-matrix FILE"),
        ("v1.21.1+rke2r1", "v1.8.2", "refused", "v1.21.5+rke2r2 is the first that does", "choose a later release"),
        ("v1.22.1+rke2r1", "v1.8.2", "warning", "which charts of Harvester it brings is not known", "v1.22"),
        ("v1.27.3+rke2r1", "v1.8.2", "warning", "of a line that gets no new releases", "choose a release of v1.36"),
        ("v1.33.2+rke2r1", "v1.8.2", "warning", "volumes of a machine that has failed", "v1.33.3+rke2r1"),
        ("v1.24.1+rke2r1", "v1.8.2", "warning", "Nodes get no region and zone labels", "v1.24.3+rke2r1"),
        ("v1.24.3+rke2r1", "v1.8.2", "warning", "keeps its zone label when its VM migrates", "v1.24.15+rke2r1"),
        ("v1.34.7+rke2r1", "v1.1.2", "refused", "wants Harvester v1.2.0 or later, and this is v1.1.2", "upgrade"),
        ("v1.30.6+rke2r1", "v1.3.2", "refused", "harvester/harvester#6849", "upgrade Harvester, or choose v1.30.8"),
        ("v1.34.7+rke2r1", "v1.20.0", "warning", "Harvester v1.20.0 is newer", "--support-matrix FILE"),
    ],
)  # fmt: skip
def test_what_does_not_go_together_has_a_verdict_and_a_cure(
    cluster: str, harvester: str, result: str, words: str, hint: str
) -> None:
    told = unfit(versions(cluster), HarvesterVersions(harvester))

    (found,) = [one for one in told if words in one.sentence]
    assert found.result == result
    assert hint in found.hint


@pytest.mark.parametrize(
    ("release", "newest"),
    [
        ("v1.34.99+rke2r1", "v1.34.10+rke2r1"),
        ("v1.34.10+rke2r2", "v1.34.10+rke2r1"),
        ("v1.31.15+rke2r1", "v1.31.14+rke2r2"),
        ("v1.34.11+k3s1", "v1.34.10"),  # K3s' own revisions are not known
    ],
)
def test_a_patch_release_that_is_not_known_is_a_warning_with_the_newest_one_of_its_line(
    release: str, newest: str
) -> None:
    told = unfit(versions(release, charts={}))

    (found,) = [one for one in told if "knows of its line" in one.sentence]
    assert found.result == "warning"
    assert found.sentence.endswith(
        f"{release} is newer than what the support matrix of {MATRIX.date} knows of its line (up to {newest})"
    )
    assert f"{newest} does" in found.hint


@pytest.mark.parametrize(
    "release", ["v1.34.10+rke2r1", "v1.34.10+k3s7", "v1.33.12+rke2r9", "v1.24.99+rke2r1", "v1.99.9+rke2r1"]
)
def test_up_to_the_newest_release_of_a_line_nothing_is_told_of_it(release: str) -> None:
    assert not [one for one in unfit(versions(release)) if "knows of its line" in one.sentence]


@pytest.mark.parametrize("release", ["v1.2.0", "v1.8-head", "master-3d63c2af-head"])
def test_a_build_of_a_branch_counts_as_the_newest(release: str) -> None:
    assert unfit(versions(), HarvesterVersions(release)) == []


def test_the_csi_driver_of_one_chart_alone_is_refused_on_an_old_harvester() -> None:
    old = HarvesterVersions("v1.3.2")

    for charts in ((0, 1, 19), (0, 1, 21)):
        assert all(one.result != "refused" for one in unfit(versions(charts={CSI_DRIVER_CHART: charts}), old))
    assert any(one.result == "refused" for one in unfit(versions(charts={CSI_DRIVER_CHART: (0, 1, 20)}), old))


def test_one_machine_and_missing_affinity_are_conditions_of_their_warnings() -> None:
    def told(**changes: Any) -> str:
        return " ".join(one.sentence for one in unfit(versions(**changes)))

    provider = {CLOUD_PROVIDER_CHART: (0, 2, 4)}
    assert "with one machine" in told(charts=provider, machines=1)
    assert "with one machine" not in told(charts=provider, machines=2)
    provider = {CLOUD_PROVIDER_CHART: (0, 1, 13)}
    assert "keeps its zone label" in told(charts=provider)
    assert "keeps its zone label" not in told(charts=provider, has_node_affinity=True)


def test_the_name_of_a_secret_that_a_chart_does_not_read_is_refused() -> None:
    (found,) = unfit(versions(names_secret=True))

    assert found.result == "refused"
    assert "cloudConfig.secretName, which its version 0.2.11 does not read" in found.sentence
    assert unfit(versions("v1.34.10+rke2r1", names_secret=True)) == []


def test_a_cluster_without_harvesters_provider_needs_no_chart() -> None:
    found = unfit(versions("v1.21.1+rke2r1", uses_harvester=False, charts={}))

    assert [one.result for one in found] == ["warning"]  # its line alone


@pytest.mark.parametrize(
    ("text", "results"),
    [
        ("<0.2.11", ["refused"]),
        ("<=0.2.11 >0.2.10", []),
        ("=0.2.11", []),
        ("0.2.10", ["refused"]),
        ("~0.2", ["not compared"]),
        ("> = 1", ["not compared"]),
        ("", []),
    ],
)
def test_a_range_of_harvesters_setting_is_kept(text: str, results: list[str]) -> None:
    harvester = HarvesterVersions("v1.8.2", {CLOUD_PROVIDER_CHART: text})

    assert [one.result for one in unfit(versions(), harvester)] == results


def test_what_harvester_does_not_say_is_not_compared() -> None:
    (found,) = unfit(versions(), HarvesterVersions(unread="settings is forbidden"))

    assert (found.result, found.sentence) == (
        "not compared",
        "the release of Harvester is not known: settings is forbidden",
    )


@pytest.mark.parametrize(
    ("value", "ranges"),
    [
        ('{"harvester-csi-provider":">=0.0.1"}', {CSI_DRIVER_CHART: ">=0.0.1"}),
        ('{"harvester-cloud-provider":1,"other":"<1"}', {}),
        ("[]", {}),
        ("nonsense", {}),
    ],
)
def test_the_settings_of_harvester_are_read_as_they_may_be_written(
    value: str, ranges: dict[str, str]
) -> None:
    assert read_versions({"value": "v1.8.2"}, {"value": value}) == HarvesterVersions("v1.8.2", ranges)


def test_settings_that_do_not_exist_leave_the_release_unknown() -> None:
    assert "server-version is empty or does not exist" in read_versions(None, None).unread


# -- a matrix of the user's ------------------------------------------------------------------------------------------


def test_keys_of_the_users_file_replace_ours_and_are_named() -> None:
    matrix = read_matrix('date: 2027-01-01\nmaintained: ["1.98", "1.99"]')

    assert matrix.describe() == "2027-01-01, with your date, maintained"
    assert matrix.newest_line == (1, 99)
    assert matrix.bundled == MATRIX.bundled


def test_the_whole_shipped_file_is_a_file_that_can_be_read() -> None:
    from importlib.resources import files

    text = files("windrow.bootstrap.support_matrix").joinpath("matrix.json").read_text()

    assert replace(read_matrix(text), replaced=()) == MATRIX


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "is no map"),
        ("- a", "is no map"),
        ("a: [", "cannot be read"),
        ("rke3: []", "has the key 'rke3', which has no effect"),
        ("rke2: {}", "rke2 is no list"),
        ("rke2: [{releases: 1.34.1}]", "harvester-cloud-provider is missing"),
        ("newest: 1.34.1", "newest is no list"),
        ("newest: [new]", "newest: wanted a version"),
        ("maintained: []", "maintained names no line"),
        ('maintained: ["1.x"]', "a line: wanted a version"),
        ("pairs: [{chart: other}]", "chart 'other' of pairs is neither"),
        ("pairs: [{chart: harvester-csi-driver, severity: bad}]", "severity 'bad' is neither"),
        ("images: 3", "cannot be read"),
        ("pairs: [{chart: harvester-csi-driver, severity: error, message: m, machines: .inf}]", "infinity"),
        ("maintained: [" + "1," * 1001 + "]", "no list of at most 1000 entries"),
        ("date: " + "x" * 1024 * 1024, "has more than 1048576 characters"),
    ],
)
def test_a_file_that_is_no_matrix_is_refused_with_what_is_wrong(text: str, words: str) -> None:
    with pytest.raises(InvalidMatrix) as caught:
        read_matrix(text)

    assert words in caught.value.message
