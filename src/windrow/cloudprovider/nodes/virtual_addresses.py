"""Virtual addresses: those of services, which kube-vip binds to an interface of a node, where the guest agent finds them.

They are no addresses of the node. Only what Harvester's load balancers of this cluster hold counts: reserved from a
pool, or got by DHCP and recorded there. Annotations of services do not count: a user who may create a
service could write the address of a node there, and the node would lose it. K3s' own load balancer even writes
the addresses of nodes into their status.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Set

from windrow.cloudprovider import names
from windrow.cloudprovider.services.readings import LoadBalancer

_PLACEHOLDERS = names.DHCP_PLACEHOLDERS | {""}


def virtual_addresses(balancer: LoadBalancer | None, cluster: str) -> Set[str]:
    """The addresses that the load balancer holds, if it is one of `cluster`."""
    if balancer is None or balancer.owner.cluster != cluster:
        return frozenset()
    recorded = {balancer.address} if balancer.mode == "dhcp" else set()
    return frozenset({*balancer.allocated, *recorded} - _PLACEHOLDERS)


class VirtualAddresses:
    """The virtual addresses of all load balancers of `cluster`; its owner calls `update` for each change, and sets
    `is_known` after all were listed."""

    def __init__(self, cluster: str, *, is_known: bool = False) -> None:
        self.is_known = is_known
        self._cluster = cluster
        self._of: dict[str, Set[str]] = {}
        self._uses: Counter[str] = Counter()

    @property
    def all(self) -> Set[str] | None:
        """None while they are not known."""
        return self._uses.keys() if self.is_known else None

    def update(self, name: str, balancer: LoadBalancer | None) -> Collection[str]:
        """Set the state of a load balancer, None when it is deleted; returns the addresses that are new. May be
        repeated."""
        old, new = self._of.pop(name, frozenset()), virtual_addresses(balancer, self._cluster)
        fresh = [one for one in new if one not in self._uses]
        if new:
            self._of[name] = new
        self._uses.update(new)
        self._uses.subtract(old)
        for one in old:
            if not self._uses[one]:
                del self._uses[one]
        return fresh
