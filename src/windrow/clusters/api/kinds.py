"""The kinds of the management API, and the CustomResourceDefinitions of those that are ours to define."""

from __future__ import annotations

from copy import deepcopy
from functools import cache
from typing import Any

from windrow.drivers.api import CLUSTER as CLUSTER
from windrow.drivers.api import machine_config as machine_config
from windrow.kubernetes.resources import ApiResource

MACHINE = ApiResource("windrow.io", "v1alpha1", "Machine", "machines")
IP_ADDRESS = ApiResource("windrow.io", "v1alpha1", "IPAddress", "ipaddresses", namespaced=False)
ETCD_SNAPSHOT = ApiResource("windrow.io", "v1alpha1", "ETCDSnapshot", "etcdsnapshots")

# Its definition comes from the option table of the node driver, not from here.
HARVESTER_CONFIG = machine_config("HarvesterConfig")


def crds() -> list[dict[str, Any]]:
    """The definitions of Cluster, Machine, IPAddress and ETCDSnapshot, as an API server takes them. The caller may change them."""
    return deepcopy(_crds())


@cache
def _crds() -> list[dict[str, Any]]:
    # Imported here, because the command line needs the kinds above and must start fast.
    from importlib.resources import files

    from windrow.core.formats import yaml

    folder = files("windrow.clusters.api") / "crds"
    names = ("cluster.yaml", "machine.yaml", "ip_address.yaml", "etcd_snapshot.yaml")
    return [yaml.load((folder / name).read_text("utf-8")) for name in names]
