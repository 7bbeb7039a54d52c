"""Which address a pod gets on its node."""

from __future__ import annotations

import ipaddress
from collections import defaultdict
from collections.abc import Set

from windrow.emulator.guest_cluster.workloads.pod_lifecycle import host_address
from windrow.kubernetes.objects import Raw, name_of, nested


class PodAddressAllocator:
    """Given out one after the other, so that an address that has become free is not at once another pod's."""

    def __init__(self) -> None:
        self._last_host: dict[str, int] = defaultdict(lambda: 1)

    def allocate(self, pod: Raw, node: Raw, used: Set[str]) -> str:
        """The next free address of the node's range; its own where the pod shares the node's network."""
        if nested(pod, "spec", "hostNetwork"):
            return host_address(node)
        network = ipaddress.ip_network(nested(node, "spec", "podCIDR", default="10.42.0.0/24"))
        name, size = name_of(node), network.num_addresses
        for _ in range(size):
            self._last_host[name] = self._last_host[name] % (size - 2) + 1
            address = str(network[self._last_host[name]])
            if address not in used and self._last_host[name] > 1:
                return address
        return str(network[1])
