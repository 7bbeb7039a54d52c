"""The kinds that the catalogue deals with, and the definition of the one that is its own."""

from __future__ import annotations

from typing import Any

from windrow.kubernetes.resources import ApiResource

NODE_DRIVER = ApiResource("management.cattle.io", "v3", "NodeDriver", "nodedrivers", namespaced=False)
# Looked at, to know which drivers are in use. The cluster manager defines them.
CLUSTER = ApiResource("provisioning.cattle.io", "v1", "Cluster", "clusters")
MACHINE = ApiResource("windrow.io", "v1alpha1", "Machine", "machines")


def machine_config(kind: str) -> ApiResource:
    """The machine config kind called `kind`, `HarvesterConfig` say."""
    return ApiResource("rke-machine-config.cattle.io", "v1", kind, f"{kind.lower()}s")


def crds() -> list[dict[str, Any]]:
    """The definition of NodeDriver, as an API server takes it."""
    # Imported here, because the command line needs the kinds above and must start fast.
    from importlib.resources import files

    from windrow.core import yaml

    return [yaml.load((files("windrow.drivers") / "crds" / "nodedriver.yaml").read_text("utf-8"))]
