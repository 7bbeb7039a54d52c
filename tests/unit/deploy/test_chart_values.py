"""The charts' lists of their own values agree: defaults, schema, the warning about unknown ones, and the reference."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from windrow.core.formats.yaml import load
from windrow.csi import names

ROOT = Path(__file__).parents[3]
CHARTS = ROOT / "deploy" / "charts"
CHART = CHARTS / "harvester-cloud-provider"
EACH = pytest.mark.parametrize("chart", ["harvester-cloud-provider", "harvester-csi-driver"])


def values(chart: str = CHART.name) -> dict[str, Any]:
    found: dict[str, Any] = load((CHARTS / chart / "values.yaml").read_text())
    return found


@EACH
def test_each_value_has_a_type(chart: str) -> None:
    schema = json.loads((CHARTS / chart / "values.schema.json").read_text())

    assert set(schema["properties"]) == set(values(chart))


def test_classes_have_the_parameters_that_the_csi_driver_reads_and_those_of_its_side_cars() -> None:
    schema = json.loads((CHARTS / "harvester-csi-driver" / "values.schema.json").read_text())
    classes, snapshots = (
        schema["properties"][key]["properties"]["parameters"] for key in ("storageClass", "snapshots")
    )

    assert set(classes["properties"]) == {names.HOST_STORAGE_CLASS, names.HOST_VOLUME_MODE}
    assert tuple(classes["properties"][names.HOST_VOLUME_MODE]["enum"]) == names.HOST_VOLUME_MODES
    assert set(snapshots["properties"]) == {names.SNAPSHOT_TYPE}
    assert tuple(snapshots["properties"][names.SNAPSHOT_TYPE]["enum"]) == names.SNAPSHOT_TYPES
    for parameters in (classes, snapshots):
        assert parameters["additionalProperties"] is False
        (pattern,) = parameters["patternProperties"]
        for prefix in names.SIDECAR_PREFIXES:
            assert re.search(pattern, f"{prefix}fstype")
            assert not re.search(pattern, f"x{prefix}fstype")


@EACH
def test_no_value_of_ours_is_called_unknown(chart: str) -> None:
    notes = (CHARTS / chart / "templates" / "NOTES.txt").read_text()
    [known] = re.findall(r"\$known := list (.*?) }}", notes)

    assert set(re.findall(r'"([^"]+)"', known)) == set(values(chart))


@EACH
def test_what_the_reference_says_that_the_chart_adds_is_there(chart: str) -> None:
    page = (ROOT / "docs" / "reference" / f"{chart.removeprefix('harvester-')}.md").read_text()
    table = page.partition("## Chart")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| (`[^|]+`) \|", table, re.M)
    named = [name for row in rows for name in re.findall(r"`([a-zA-Z][\w.]+)`", row)]

    assert len(named) > 8
    for name in named:
        place = values(chart)
        for step in name.split("."):
            assert step in place, name
            place = place[step]


def test_kube_vip_s_values_here_are_values_of_its_own_chart() -> None:
    own = load((CHART / "charts" / "kube-vip" / "values.yaml").read_text())

    assert set(values()["kube-vip"]) - {"enabled"} <= set(own)
