"""Our NodeDriver against Rancher's own definition of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from windrow.apiserver.types.schema import prune, validate
from windrow.core.formats.yaml import load
from windrow.drivers.api import HARVESTER, NODE_DRIVER, crds, find_changes, fixed_fields, render_builtin

RANCHERS = Path(__file__).parents[4] / "shared" / "crds" / "management.cattle.io_nodedrivers.yaml"
here = pytest.mark.skipif(not RANCHERS.exists(), reason="the real definitions are not here")
OURS = {"driverName", "configKind", "binaryChecksum", "observedGeneration"}


def schema_of(crd: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    return found


def fields(schema: dict[str, Any], part: str) -> set[str]:
    return set(schema["properties"][part]["properties"])


def test_the_definition_is_that_of_our_kind():
    (crd,) = crds()

    assert crd["metadata"]["name"] == NODE_DRIVER.group_resource
    assert crd["spec"]["scope"] == "Cluster"
    assert crd["spec"]["versions"][0]["subresources"] == {"status": {}}


@here
def test_the_fields_are_rancher_s_and_a_few_of_our_own_in_the_status():
    theirs, ours = schema_of(load(RANCHERS.read_text())), schema_of(crds()[0])

    assert fields(ours, "spec") == fields(theirs, "spec")
    assert fields(ours, "status") == fields(theirs, "status") | OURS
    assert ours["properties"]["spec"]["required"] == theirs["properties"]["spec"]["required"]


@here
def test_the_built_in_driver_is_valid_for_rancher():
    theirs = schema_of(load(RANCHERS.read_text()))
    made = render_builtin(HARVESTER)

    assert prune(theirs, made) == []
    assert validate(theirs, made) == []


def test_nothing_is_reset_where_nothing_differs():
    made = render_builtin(HARVESTER)

    assert find_changes(HARVESTER, made) == ()
    bare = {"spec": {key: value for key, value in fixed_fields(HARVESTER).items() if value}}
    assert find_changes(HARVESTER, bare) == ()
    assert find_changes(HARVESTER, {"spec": {**made["spec"], "active": False}}) == ("active",)
    assert find_changes(HARVESTER, {}) == ("url", "builtin", "active", "displayName")
