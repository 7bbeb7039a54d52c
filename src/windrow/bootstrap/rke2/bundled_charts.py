"""Which versions of the two Harvester charts a release of RKE2 bundles.

From the `charts/chart_versions.yaml` of the tags, as of August 2026. A chart version such as `0.2.1100` is upstream
0.2.11, build 00.
"""

from __future__ import annotations

from windrow.bootstrap.charts import Charts
from windrow.core.formats.version import Version

# The first releases that bundle each pair, one for each line of RKE2.
_FIRST_RELEASES = {
    "1.21.5": Charts((0, 1, 2), (0, 1, 3)),
    "1.21.7 1.22.4": Charts((0, 1, 3), (0, 1, 4)),
    "1.21.8 1.22.5 1.23.1": Charts((0, 1, 8), (0, 1, 9)),
    "1.21.10 1.22.7 1.23.4": Charts((0, 1, 10), (0, 1, 10)),
    "1.21.12 1.22.9 1.23.6 1.24.1": Charts((0, 1, 11), (0, 1, 11)),
    "1.22.12 1.23.9 1.24.3 1.25.0 1.26.0": Charts((0, 1, 13), (0, 1, 11)),
    "1.23.16 1.24.10 1.25.6 1.26.1": Charts((0, 1, 14), (0, 1, 15)),
    "1.24.12 1.25.8 1.26.3 1.27.1": Charts((0, 1, 14), (0, 1, 16)),
    "1.24.15 1.25.11 1.26.6 1.27.3 1.28.1": Charts((0, 2, 2), (0, 1, 16)),
    "1.26.14 1.27.11 1.28.7 1.29.2": Charts((0, 2, 2), (0, 1, 17)),
    "1.27.13 1.28.9 1.29.4 1.30.0": Charts((0, 2, 3), (0, 1, 17)),
    "1.27.15 1.28.11 1.29.6 1.30.2": Charts((0, 2, 4), (0, 1, 17)),
    "1.27.16+rke2r2 1.28.13 1.29.8 1.30.4": Charts((0, 2, 4), (0, 1, 18)),
    "1.28.14 1.29.9 1.30.5 1.31.0": Charts((0, 2, 6), (0, 1, 18)),
    "1.28.15 1.29.10 1.30.6 1.31.1+rke2r2": Charts((0, 2, 6), (0, 1, 20)),
    "1.29.12 1.30.8 1.31.4 1.32.0": Charts((0, 2, 6), (0, 1, 21)),
    "1.29.13 1.30.9 1.31.5 1.32.1": Charts((0, 2, 9), (0, 1, 22)),
    "1.29.14 1.30.10 1.31.6 1.32.2 1.33.0": Charts((0, 2, 9), (0, 1, 23)),
    "1.30.13 1.31.9 1.32.5 1.33.1": Charts((0, 2, 10), (0, 1, 23)),
    "1.30.14+rke2r2 1.31.11 1.32.7 1.33.3 1.34.1": Charts((0, 2, 10), (0, 1, 24)),
    "1.31.14 1.32.10 1.33.6 1.34.2 1.35.0": Charts((0, 2, 11), (0, 1, 25)),
    "1.33.11 1.34.7 1.35.4 1.36.0": Charts((0, 2, 11), (0, 1, 28)),
    "1.33.13+rke2r2 1.34.10 1.35.7 1.36.3": Charts((0, 2, 14), (0, 1, 30)),
}
BUNDLED = sorted(
    (Version.parse(text), charts) for texts, charts in _FIRST_RELEASES.items() for text in texts.split()
)


def find_charts(version: Version) -> Charts | None:
    """The charts that `version` of RKE2 bundles; None before the table begins.

    A line newer than the table is assumed to bundle what the newest known release does.
    """
    newest = BUNDLED[-1][0].line
    if version.line > newest:
        return BUNDLED[-1][1]
    # A release is written here without its revision where that is the first, which sorts before any revision.
    older = [charts for first, charts in BUNDLED if first.line == version.line and first <= version]
    return older[-1] if older else None
