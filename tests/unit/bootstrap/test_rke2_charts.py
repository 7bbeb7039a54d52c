import pytest

from windrow.bootstrap.charts import Charts
from windrow.bootstrap.support_matrix.matrix import shipped_matrix
from windrow.core.formats.version import Version


@pytest.mark.parametrize(
    ("version", "provider", "storage"),
    [
        ("v1.35.1+rke2r1", (0, 2, 11), (0, 1, 25)),
        ("v1.35.4+rke2r1", (0, 2, 11), (0, 1, 28)),
        ("v1.35.7+rke2r1", (0, 2, 14), (0, 1, 30)),
        ("v1.33.13+rke2r1", (0, 2, 11), (0, 1, 28)),
        ("v1.33.13+rke2r2", (0, 2, 14), (0, 1, 30)),
        ("v1.31.1+rke2r1", (0, 2, 6), (0, 1, 18)),
        ("v1.31.1+rke2r2", (0, 2, 6), (0, 1, 20)),
        ("v1.99.0+rke2r1", (0, 2, 14), (0, 1, 30)),
    ],
)
def test_a_release_bundles_the_charts_of_the_last_change_on_its_line(
    version: str, provider: tuple[int, int, int], storage: tuple[int, int, int]
) -> None:
    assert shipped_matrix().find_charts(Version.parse(version)) == Charts(provider, storage)


@pytest.mark.parametrize("version", ["v1.20.15+rke2r2", "v1.21.4+rke2r1"])
def test_before_the_table_begins_nothing_is_known(version: str) -> None:
    assert shipped_matrix().find_charts(Version.parse(version)) is None


def test_on_each_line_newer_releases_bundle_newer_charts() -> None:
    for line in {version.line for version, _ in shipped_matrix().bundled}:
        found = [charts for version, charts in shipped_matrix().bundled if version.line == line]
        assert found == sorted(found, key=lambda charts: (charts.cloud_provider, charts.csi_driver))


def test_charts_read_a_secret_from_their_versions_on() -> None:
    assert not Charts((0, 2, 11), (0, 1, 8)).cloud_provider_reads_secret
    assert Charts((0, 2, 12), (0, 1, 8)).cloud_provider_reads_secret
    assert not Charts((0, 2, 12), (0, 1, 8)).csi_driver_reads_secret
    assert Charts((0, 2, 12), (0, 1, 9)).csi_driver_reads_secret
