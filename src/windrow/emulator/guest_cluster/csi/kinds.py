"""The kinds of storage in a guest cluster, and the snapshot API that RKE2 brings along."""

from __future__ import annotations

from windrow.emulator import kinds
from windrow.emulator.definitions import crds
from windrow.kubernetes.resources import ApiResource

PV = kinds.PV
CSI_NODE = ApiResource("storage.k8s.io", "v1", "CSINode", "csinodes", namespaced=False)
CSI_DRIVER = ApiResource("storage.k8s.io", "v1", "CSIDriver", "csidrivers", namespaced=False)
SNAPSHOT, SNAPSHOT_CONTENT, SNAPSHOT_CLASS = kinds.SNAPSHOT, kinds.SNAPSHOT_CONTENT, kinds.SNAPSHOT_CLASS
SNAPSHOT_CRDS = tuple(one for one in crds() if one["spec"]["group"] == SNAPSHOT.group)

PROVISIONED_BY = "pv.kubernetes.io/provisioned-by"
PV_PROTECTION = "kubernetes.io/pv-protection"
BIND_COMPLETED = "pv.kubernetes.io/bind-completed"
BOUND_BY_CONTROLLER = "pv.kubernetes.io/bound-by-controller"
