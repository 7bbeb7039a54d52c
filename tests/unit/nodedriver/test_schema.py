from __future__ import annotations

from windrow.nodedriver.options import OPTIONS
from windrow.nodedriver.schema import harvester_config_crd


def test_every_option_is_a_field_at_the_top_and_no_unknown_one_is() -> None:
    [version] = harvester_config_crd()["spec"]["versions"]
    schema = version["schema"]["openAPIV3Schema"]
    assert list(schema["properties"]) == [
        *("common", "providerID", "status"),  # set by Rancher
        "addressPools",  # of the cluster manager, not of the driver
        *(option.field for option in OPTIONS),
    ]
    assert "x-kubernetes-preserve-unknown-fields" not in schema


def test_each_field_is_structural_and_says_its_default() -> None:
    [version] = harvester_config_crd()["spec"]["versions"]
    properties = version["schema"]["openAPIV3Schema"]["properties"]
    for schema in properties.values():
        assert "type" in schema or any(key.startswith("x-kubernetes") for key in schema)
    assert properties["cpuCount"]["description"] == "number of CPUs for machine (default: 2)"


def test_the_definition_is_named_after_its_plural() -> None:
    crd = harvester_config_crd()
    assert crd["metadata"]["name"] == "harvesterconfigs.rke-machine-config.cattle.io"
    assert crd["spec"]["names"]["kind"] == "HarvesterConfig"
