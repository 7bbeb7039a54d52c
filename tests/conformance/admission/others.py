"""Webhook programs of other projects that are served as no module: a variable names one that was built of a checkout.

Built in a checkout of the release, `go build -o FILE ./cmd/webhook`; beside it, in `FILE.definitions`, the definitions of its
kinds. The reference program starts it with the emulator's objects as its cluster, and asks it before Harvester's own webhooks.
"""

from __future__ import annotations

import os
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Other:
    name: str  # of its service, by which its webhooks are called
    path: str
    group: str
    kinds: tuple[str, ...]

    def render(self) -> dict[str, Any]:
        return asdict(self)


LOAD_BALANCER, NETWORK = "WINDROW_GO_LOAD_BALANCER_WEBHOOK", "WINDROW_GO_NETWORK_WEBHOOK"
_KNOWN = {
    LOAD_BALANCER: (
        "harvester-load-balancer-webhook",
        "loadbalancer.harvesterhci.io",
        ("loadbalancers", "ippools"),
    ),
    NETWORK: ("harvester-network-webhook", "k8s.cni.cncf.io", ("network-attachment-definitions",)),
}


def is_given(variable: str) -> bool:
    return bool(os.environ.get(variable))


def others() -> list[Other]:
    return [
        Other(name, os.environ[variable], group, kinds)
        for variable, (name, group, kinds) in _KNOWN.items()
        if is_given(variable)
    ]
