"""HarvesterConfig (rke-machine-config.cattle.io/v1) as a CRD, from the option table.

Fields stand at the top level, as in Rancher; values are strings as Rancher writes them, or structured YAML. The fields
that Rancher sets beside the options are known, too; any other is an unknown field. Defaults are applied when the object is read, never stored, so that they can change without
touching what users wrote.
"""

from __future__ import annotations

from typing import Any

from windrow.kubernetes.objects import Raw, new_crd
from windrow.kubernetes.resources import ApiResource
from windrow.nodedriver.options import OPTIONS, Option

HARVESTER_CONFIG = ApiResource("rke-machine-config.cattle.io", "v1", "HarvesterConfig", "harvesterconfigs")
_COLUMNS = (
    ("CPU", "string", ".cpuCount"),
    ("Memory", "string", ".memorySize"),
    ("VM namespace", "string", ".vmNamespace"),
    ("Age", "date", ".metadata.creationTimestamp"),
)
_OPEN = {"type": "object", "nullable": True, "x-kubernetes-preserve-unknown-fields": True}
# Set by Rancher, beside the driver's options; without effect here.
_RANCHERS = {"common": _OPEN, "providerID": {"type": "string", "nullable": True}, "status": _OPEN}
_TEXTS = {"type": "array", "nullable": True, "items": {"type": "string"}}
# Windrow's own: the cluster manager reads it, and no driver is given it.
_OWN = {
    "addressPools": {
        "type": "array",
        "nullable": True,
        "description": "addresses for machines, one of each entry for each machine; the first entry is on the node's network",
        "items": {
            "type": "object",
            "required": ["network"],
            "properties": {
                "network": {
                    "type": "string",
                    "description": "networkName of one of the machine's interfaces",
                },
                "addresses": {
                    **_TEXTS,
                    "description": "ranges, networks or single addresses: 192.168.5.10-192.168.5.50",
                },
                "ipPool": {
                    "type": "string",
                    "nullable": True,
                    "description": "an IPPool of Harvester whose ranges, prefix and gateway these are, instead of addresses",
                },
                "excludedAddresses": {**_TEXTS, "description": "those of them that no machine gets"},
                "prefix": {"type": "integer", "description": "prefix length of the subnet"},
                "gateway": {"type": "string", "nullable": True, "description": "default gateway"},
                "nameservers": {**_TEXTS, "description": "addresses of DNS servers"},
            },
        },
    }
}


def harvester_config_crd() -> Raw:
    """The CustomResourceDefinition."""
    schema = {
        "type": "object",
        "properties": {**_RANCHERS, **_OWN, **{option.field: field_schema(option) for option in OPTIONS}},
    }
    return new_crd(HARVESTER_CONFIG, schema, _COLUMNS)


def field_schema(option: Option) -> dict[str, Any]:
    """What an API server admits; the pre-create check reports the exact form, with a hint."""
    described = f"{option.usage} (default: {option.default})" if option.default != "" else option.usage
    match option.form:
        case "text" | "encoded":
            shape: dict[str, Any] = {"type": "string", "nullable": True}
        case "count" | "gib" | "mib":
            shape = {"x-kubernetes-int-or-string": True, "nullable": True}
        case _:
            shape = {"x-kubernetes-preserve-unknown-fields": True, "nullable": True}
    return {"description": described, **shape}
