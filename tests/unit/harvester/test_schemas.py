"""What builders make is valid for the real schemas, where these lie beside the repository."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.unit.harvester.test_vms import a_plan

from windrow.harvester.identity import owner_annotations
from windrow.harvester.vms import CloudInit, HostDevice, Nic, build_vm
from windrow.harvester.volumes import Disk

SCHEMAS = Path(__file__).parents[4] / "shared" / "crds" / "kubevirt.io_definitions.json"

pytestmark = pytest.mark.skipif(not SCHEMAS.exists(), reason=f"no real schemas at {SCHEMAS}")


def strict(node: Any, definitions: Any) -> Any:
    """KubeVirt's OpenAPI definitions as JSON schema that also refuses unknown fields and knows quantities."""
    if isinstance(node, list):
        return [strict(entry, definitions) for entry in node]
    if not isinstance(node, dict):
        return node
    made = {key: strict(value, definitions) for key, value in node.items()}
    if "properties" in node and "additionalProperties" not in node:
        made["additionalProperties"] = False
    return made


def complaints(raw: dict[str, Any]) -> list[str]:
    from jsonschema import Draft4Validator

    definitions = strict(json.loads(SCHEMAS.read_text())["definitions"], None)
    for name, definition in definitions.items():
        if name.endswith("resource.Quantity"):
            definitions[name] = {"type": ["string", "number"]}
        del definition  # only names decide
    schema = {"$ref": "#/definitions/v1.VirtualMachine", "definitions": definitions}
    return [
        f"{'/'.join(map(str, error.absolute_path))}: {error.message}"
        for error in Draft4Validator(schema).iter_errors(raw)
    ]


FULL = a_plan(
    owner_annotations=owner_annotations("cluster-1", "m-1"),
    disks=(
        Disk("disk-0", "a", 40, "lh", "ns1/image-1", boot_order=1),
        Disk("disk-1", "b", 1, "x", bus="sata", is_cdrom=True, hotpluggable=True),
    ),
    nics=(Nic("nic-0", "ns1/net1"), Nic("nic-1", "ns1/net2", mac="02:00:00:00:00:01")),
    cloud_init=CloudInit(user_data_in_secret=True, network_data_in_secret=True),
    cpu_model="host-model",
    cpus="dedicated and isolated",
    efi=True,
    secure_boot=True,
    tpm=True,
    devices=(HostDevice("gpu-0", "nvidia.com/A2"),),
    reserved_memory="256Mi",
    ssh_names=("ns1/key",),
)


@pytest.mark.parametrize("plan", [a_plan(), FULL], ids=["plain", "full"])
def test_a_built_vm_is_valid_for_kubevirt(plan: Any) -> None:
    assert complaints(build_vm(plan)) == []


def test_the_schema_would_notice_a_misspelt_field() -> None:
    raw = build_vm(a_plan())
    raw["spec"]["template"]["spec"]["domain"]["devices"]["disks"][0]["bootorder"] = 1
    raw["spec"]["runStrategy"] = 7
    assert len(complaints(raw)) == 2
