"""The chart's lists of its own values agree: defaults, schema, the warning about unknown ones, and the reference."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from windrow.core.formats.yaml import load

ROOT = Path(__file__).parents[3]
CHART = ROOT / "deploy" / "charts" / "harvester-cloud-provider"


def values() -> dict[str, Any]:
    found: dict[str, Any] = load((CHART / "values.yaml").read_text())
    return found


def test_each_value_has_a_type() -> None:
    schema = json.loads((CHART / "values.schema.json").read_text())

    assert set(schema["properties"]) == set(values())


def test_no_value_of_ours_is_called_unknown() -> None:
    notes = (CHART / "templates" / "NOTES.txt").read_text()
    [known] = re.findall(r"\$known := list (.*?) }}", notes)

    assert set(re.findall(r'"([^"]+)"', known)) == set(values())


def test_what_the_reference_says_that_the_chart_adds_is_there() -> None:
    page = (ROOT / "docs" / "reference" / "cloud-provider.md").read_text().partition("## Chart")[2]
    rows = re.findall(r"^\| (`[^|]+`) \|", page, re.M)
    named = [name for row in rows for name in re.findall(r"`([a-zA-Z][\w.]+)`", row)]

    assert len(named) > 8
    for name in named:
        place = values()
        for step in name.split("."):
            assert step in place, name
            place = place[step]


def test_kube_vip_s_values_here_are_values_of_its_own_chart() -> None:
    own = load((CHART / "charts" / "kube-vip" / "values.yaml").read_text())

    assert set(values()["kube-vip"]) - {"enabled"} <= set(own)
