"""Our CRDs beside the real ones, where those are at hand; else against their own promises."""

from __future__ import annotations

from pathlib import Path

import pytest

from windrow.apiserver.types.crds import types_from_crd
from windrow.core.formats.yaml import load_all
from windrow.emulator import kinds
from windrow.emulator.definitions import crds

REAL = next(
    (
        parent / "shared" / "crds"
        for parent in Path(__file__).parents
        if (parent / "shared" / "crds").is_dir()
    ),
    None,
)
OURS = {raw["metadata"]["name"]: raw for raw in crds()}


def real_definitions():
    if REAL is None:
        return {}
    found = [raw for path in sorted(REAL.glob("*.yaml")) for raw in load_all(path.read_text())]
    return {raw["metadata"]["name"]: raw for raw in found}


SHARED = sorted(set(OURS) & set(real_definitions()))


def version_of(raw, name):
    return next(one for one in raw["spec"]["versions"] if one["name"] == name)


@pytest.mark.skipif(REAL is None, reason="the real CRDs are not beside this repository")
@pytest.mark.parametrize("name", SHARED)
def test_names_scope_and_status_subresource_are_the_real_ones(name):
    ours, real = OURS[name], real_definitions()[name]

    for field in ("kind", "plural", "singular", "shortNames"):
        assert ours["spec"]["names"].get(field) == real["spec"]["names"].get(field), field
    assert ours["spec"]["scope"] == real["spec"]["scope"]
    for version in ours["spec"]["versions"]:
        theirs = version_of(real, version["name"])
        assert ("status" in version.get("subresources", {})) == (
            "status" in (theirs.get("subresources") or {})
        )


@pytest.mark.skipif(REAL is None, reason="the real CRDs are not beside this repository")
@pytest.mark.parametrize("name", SHARED)
def test_printer_columns_are_the_real_ones(name):
    ours, real = OURS[name], real_definitions()[name]
    storage = next(one for one in ours["spec"]["versions"] if one["storage"])

    def columns(version):
        found = version.get("additionalPrinterColumns") or []
        return [(one["name"], one["jsonPath"], one["type"], one.get("priority", 0)) for one in found]

    assert columns(storage) == columns(version_of(real, storage["name"]))


@pytest.mark.skipif(REAL is None, reason="the real CRDs are not beside this repository")
@pytest.mark.parametrize("name", SHARED)
def test_fields_and_required_fields_of_the_real_schema_are_in_ours(name):
    ours, real = OURS[name], real_definitions()[name]
    storage = next(one for one in ours["spec"]["versions"] if one["storage"])

    faults = list(_narrower(_schema(storage), _schema(version_of(real, storage["name"])), ""))

    assert not faults


def _schema(version):
    return version["schema"]["openAPIV3Schema"]


def _narrower(ours, real, path):
    """Where ours would prune or refuse what the real one keeps, or let pass what it demands or fills in."""
    if ours.get("x-kubernetes-preserve-unknown-fields") and not ours.get("properties"):
        return
    known = ours.get("properties") or {}
    for name, below in (real.get("properties") or {}).items():
        if name in known:
            yield from _narrower(known[name], below, f"{path}.{name}")
        elif not ours.get("x-kubernetes-preserve-unknown-fields"):
            yield f"{path}.{name} is unknown"
    for name in real.get("required") or ():
        if name in known and name not in (ours.get("required") or ()):
            yield f"{path}.{name} is not required"
    for word in ("enum", "default", "minimum", "maximum"):
        if word in real and ours.get(word) != real[word] and ours.get("type") == real.get("type"):
            yield f"{path}: {word} differs"


def test_every_definition_can_be_served():
    served = {one.kind for raw in crds() for one in types_from_crd(raw)}

    assert {kinds.VM, kinds.VMI, kinds.IMAGE, kinds.SETTING, kinds.NAD, kinds.LOAD_BALANCER} <= served


def test_instances_have_no_status_subresource_and_machines_do():
    status = {raw["metadata"]["name"]: raw["spec"]["versions"][0].get("subresources") for raw in crds()}

    assert status[kinds.VMI.group_resource] is None
    assert status[kinds.VM.group_resource] == {"status": {}}
