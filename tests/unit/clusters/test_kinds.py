from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from windrow.clusters.api.kinds import CLUSTER, ETCD_SNAPSHOT, IP_ADDRESS, MACHINE, crds
from windrow.core.formats.yaml import load
from windrow.drivers import api as node_drivers

RANCHERS = Path(__file__).parents[4] / "shared" / "crds" / "provisioning.cattle.io_clusters.yaml"


def schema_of(crd: dict[str, Any]) -> dict[str, Any]:
    return crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]


def test_the_definitions_are_those_of_our_kinds():
    assert [
        (crd["spec"]["group"], crd["spec"]["names"]["kind"], crd["spec"]["names"]["plural"]) for crd in crds()
    ] == [(kind.group, kind.kind, kind.plural) for kind in (CLUSTER, MACHINE, IP_ADDRESS, ETCD_SNAPSHOT)]


def test_those_that_wait_have_a_status_of_their_own_and_say_what_they_wait_for():
    for crd in crds()[:2]:
        version = crd["spec"]["versions"][0]
        assert version["subresources"] == {"status": {}}
        assert "Waiting for" in [column["name"] for column in version["additionalPrinterColumns"]]


OPEN = "x-kubernetes-preserve-unknown-fields"


def fields(schema: dict[str, Any], path: str = "") -> set[str]:
    found = set()
    for name, inner in (schema.get("properties") or {}).items():
        found.add(f"{path}.{name}")
        found |= fields(inner, f"{path}.{name}")
        found |= fields(inner.get("items") or {}, f"{path}.{name}[]")
        found |= fields(inner.get("additionalProperties") or {}, f"{path}.{name}.*")
    return found


def open_paths(schema: dict[str, Any], path: str = "") -> set[str]:
    """Where fields are kept that the schema does not have."""
    found = {path} if schema.get(OPEN) else set()
    for name, inner in (schema.get("properties") or {}).items():
        found |= open_paths(inner, f"{path}.{name}") | open_paths(
            inner.get("items") or {}, f"{path}.{name}[]"
        )
    return found


def test_only_what_is_not_a_matter_of_ours_takes_any_field():
    """Elsewhere a misspelt field is an unknown one: strict validation refuses it."""
    pool = ".rkeConfig.machinePools[]"
    assert open_paths(schema_of(crds()[0])["properties"]["spec"]) == {
        *(f".{name}AgentDeploymentCustomization" for name in ("cluster", "fleet")),
        ".webhookDeploymentCustomization",
        *(
            f".rkeConfig.{name}"
            for name in ("chartValues", "machineGlobalConfig", "machineSelectorConfig[].config")
        ),
        *(f"{pool}.{name}" for name in ("labels", "machineDeploymentLabels", "machineDeploymentAnnotations")),
    }


@pytest.mark.skipif(not RANCHERS.exists(), reason="the real definitions are not here")
def test_every_field_that_we_describe_is_one_of_ranchers():
    ranchers = fields(schema_of(load(RANCHERS.read_text()))["properties"]["spec"])
    ours = fields(schema_of(crds()[0])["properties"]["spec"])

    own = {".rkeConfig.rotateToken", ".rkeConfig.rotateToken.generation"}
    own |= {".rkeConfig.etcdSnapshotRestore.clusterResetMember"}
    own |= {one for one in ours if one.startswith(".rkeConfig.etcdSnapshotRestore.from")}
    assert ours - ranchers == {".paused"} | own  # Cluster API's, on its own Cluster, and Windrow's


@pytest.mark.skipif(not RANCHERS.exists(), reason="the real definitions are not here")
def test_every_field_of_ranchers_is_one_of_ours():
    ranchers = fields(schema_of(load(RANCHERS.read_text()))["properties"]["spec"])
    spec = schema_of(crds()[0])["properties"]["spec"]
    elsewhere = tuple(open_paths(spec))

    assert {path for path in ranchers - fields(spec) if not path.startswith(elsewhere)} == set()


@pytest.mark.parametrize("definitions", [crds, node_drivers.crds])
def test_each_caller_gets_a_copy_of_the_definitions(definitions):
    whole = definitions()
    definitions()[0]["spec"].clear()

    assert definitions() == whole
