"""The Go structs behind the driver's JSON: stored configurations, and the three structures that flags carry."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from windrow.nodedriver.config import Configuration
from windrow.nodedriver.devices import read_devices, read_disks, read_nics
from windrow.nodedriver.go_compat.json import BOOL, INT, TEXT, UINT, Embedded, Scalar, Shape, Slice, Struct

DISK = Struct(
    "harvester.Disk",
    {
        "imageName": TEXT,
        "storageClassName": TEXT,
        "size": INT,
        "bootOrder": UINT,
        "bus": TEXT,
        "type": TEXT,
        "hotPlugAble": BOOL,
    },
)
DISK_INFO = Struct("harvester.DiskInfo", {"disks": Slice(DISK)})
NIC = Struct(
    "harvester.NetworkInterface", {"networkName": TEXT, "macAddress": TEXT, "model": TEXT, "type": TEXT}
)
NETWORK_INFO = Struct("harvester.NetworkInfo", {"interfaces": Slice(NIC)})
DEVICE = Struct("harvester.VGPURequest", {"name": TEXT, "deviceName": TEXT})
VGPU_INFO = Struct("harvester.VGPUInfo", {"vGPURequests": Slice(DEVICE)})

STRUCTURES: Mapping[str, Struct] = {"DiskInfo": DISK_INFO, "NetworkInfo": NETWORK_INFO, "VGPUInfo": VGPU_INFO}

_SCALARS: Mapping[type, Scalar] = {str: TEXT, int: INT, bool: BOOL}
# These stand in an embedded struct of the plugin library.
_OF_BASE_DRIVER = frozenset(
    {
        "IPAddress",
        "IPv6Address",
        "MachineName",
        "SSHUser",
        "SSHPort",
        "SSHKeyPath",
        "StorePath",
        "SwarmMaster",
        "SwarmHost",
        "SwarmDiscovery",
    }
)


def _shape(key: str, default: Any) -> Shape:
    if key in STRUCTURES:
        return STRUCTURES[key]
    if key in ("WindrowClaims", "WindrowVolumes"):
        return Slice(TEXT)
    if key == "DiskSize":
        return Scalar("string", takes_numbers=True)  # driver v0.6.0 wrote it as a number
    scalar = _SCALARS[type(default)]
    return Embedded("BaseDriver", scalar) if key in _OF_BASE_DRIVER else scalar


STORED = Struct(
    "harvester.targetDriver",
    {each.metadata["key"]: _shape(each.metadata["key"], each.default) for each in fields(Configuration)},
)

_READERS = {"DiskInfo": read_disks, "NetworkInfo": read_nics, "VGPUInfo": read_devices}


def read_structure(key: str, found: Mapping[str, Any] | None) -> Any:
    """The wishes in a structure that fits its Go struct. As in Go, a null entry is an empty one."""
    if found is None:
        return None
    entries = {name: [entry or {} for entry in listed or []] for name, listed in found.items()}
    return _READERS[key](entries, [])
