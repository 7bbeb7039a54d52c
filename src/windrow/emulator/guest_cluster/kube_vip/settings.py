"""kube-vip's values in the cloud provider's chart: enabled, on which nodes, one leader or one per Service."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from windrow.emulator.kit.scheduling import find_obstacle
from windrow.kubernetes.objects import Raw, labels_of, nested

Values = Mapping[str, Any]

_CONTROL_PLANE = ("node-role.kubernetes.io/controlplane", "node-role.kubernetes.io/control-plane")
_SERVER_AFFINITY: Raw = {
    "nodeAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": {
            "nodeSelectorTerms": [
                {"matchExpressions": [{"key": key, "operator": "Exists"}]} for key in _CONTROL_PLANE
            ]
        }
    }
}
DEFAULTS: Raw = {
    "enabled": True,
    "image": {"tag": "v1.2.3"},
    "tolerations": [
        {"key": "node-role.kubernetes.io/control-plane", "operator": "Exists", "effect": "NoSchedule"},
        {"key": "node-role.kubernetes.io/etcd", "operator": "Exists", "effect": "NoExecute"},
    ],
    "env": {"vip_interface": "", "svc_enable": "true", "svc_election": "false"},
    "affinity": _SERVER_AFFINITY,
    "nodeSelector": {},
}
# Every DaemonSet's pods tolerate these.
_DAEMON_SET_TOLERATIONS: tuple[Values, ...] = (
    {"key": "node.kubernetes.io/not-ready", "operator": "Exists"},
    {"key": "node.kubernetes.io/unreachable", "operator": "Exists"},
    {"key": "node.kubernetes.io/unschedulable", "operator": "Exists"},
)


@dataclass(frozen=True, slots=True)
class KubeVipSettings:
    """The chart's values for kube-vip."""

    enabled: bool = True
    per_service: bool = False  # one leader per Service
    interface: str = ""  # for Services without the annotation
    affinity: Values = field(default_factory=dict)
    node_selector: Values = field(default_factory=dict)
    tolerations: Sequence[Values] = ()
    version: tuple[int, int] = (1, 2)

    @property
    def waits_for_endpoints(self) -> bool:
        """Whether it announces a Service only while that has endpoints, and waits for the address of one without."""
        return self.version >= (1, 2)

    @property
    def is_for_servers_only(self) -> bool:
        """Whether the affinity is the chart's default, which no agent matches."""
        return self.affinity == _SERVER_AFFINITY

    def can_run_on(self, node: Raw) -> bool:
        """Whether the pod may be scheduled on `node`. An uninitialised Node's taint is not tolerated."""
        pod = {
            "nodeSelector": self.node_selector,
            "affinity": self.affinity,
            "tolerations": [*self.tolerations, *_DAEMON_SET_TOLERATIONS],
        }
        return not find_obstacle(pod, labels_of(node), nested(node, "spec", "taints", default=[]))


def read_kube_vip_settings(values: Values) -> KubeVipSettings:
    """The part of the cloud provider's values that is kube-vip's."""
    own = values.get("kube-vip") or {}
    env = own.get("env") or {}
    return KubeVipSettings(
        enabled=own.get("enabled") is True and _is_on(env, "svc_enable", "true"),
        per_service=_is_on(env, "svc_election", "false"),
        interface=str(env.get("vip_interface") or ""),
        affinity=own.get("affinity") or {},
        node_selector=own.get("nodeSelector") or {},
        tolerations=own.get("tolerations") or (),
        version=_read_version(str((own.get("image") or {}).get("tag") or "")),
    )


def _read_version(tag: str) -> tuple[int, int]:
    """Major and minor of the image's tag; the newest known where it is no version."""
    found = re.match(r"v?(\d{1,6})\.(\d{1,6})", tag)
    return (int(found[1]), int(found[2])) if found else (1, 2)


def _is_on(env: Values, name: str, usual: str) -> bool:
    # As Go reads booleans of the environment.
    return str(env.get(name, usual)) in ("1", "t", "T", "TRUE", "true", "True")
