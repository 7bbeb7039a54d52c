"""The node drivers that are part of Windrow: present at every start, and reset then, as Rancher does with its own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from windrow.drivers.api import LOCAL_URL
from windrow.drivers.kinds import NODE_DRIVER
from windrow.kubernetes.objects import Raw, new_object


@dataclass(frozen=True, slots=True)
class BuiltIn:
    """One of them. The object is called as the driver is."""

    name: str
    kind: str
    description: str
    annotations: tuple[tuple[str, str], ...] = ()


HARVESTER = BuiltIn(
    "harvester",
    "HarvesterConfig",
    "Machines on Harvester HCI. Part of Windrow.",
    (
        ("publicCredentialFields", "clusterType,clusterId"),
        ("privateCredentialFields", "kubeconfigContent"),
        ("optionalCredentialFields", "clusterId"),
        ("defaults", "clusterType:imported"),
    ),
)


def render_builtin(driver: BuiltIn) -> Raw:
    """Its object, as it is at every start."""
    spec = {"displayName": driver.name, "description": driver.description, "externalId": "", "uiUrl": ""}
    return new_object(
        NODE_DRIVER, driver.name, annotations=dict(driver.annotations), spec={**spec, **fixed_fields(driver)}
    )


def fixed_fields(driver: BuiltIn) -> dict[str, Any]:
    """What every start resets; what a user wrote elsewhere (the description, the UI's URL) stays."""
    return {
        "url": LOCAL_URL,
        "checksum": "",
        "builtin": True,
        "active": True,
        "displayName": driver.name,
        "addCloudCredential": False,
        "whitelistDomains": [],
    }


def find_changes(driver: BuiltIn, raw: Mapping[str, Any]) -> tuple[str, ...]:
    """The fields in which `raw` differs from what every start makes of it."""
    spec = raw.get("spec") or {}
    return tuple(
        key for key, wanted in fixed_fields(driver).items() if (spec.get(key) or _empty(wanted)) != wanted
    )


def _empty(wanted: Any) -> Any:
    """An absent field means the same as an empty one."""
    return type(wanted)()
