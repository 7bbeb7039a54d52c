"""The addresses that belong to services: kube-vip binds them to a node's card, where the guest agent finds them.

They are no addresses of the node. Only what was announced through kube-vip counts. K3s' own load balancer writes the
addresses of nodes into the status of services, and those must not be taken for anything else.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Set

from windrow.cloudprovider import names
from windrow.cloudprovider.services.service_readings import Service

_BY_DHCP = frozenset({names.ASK_DHCP, "::"})


def virtual_addresses(service: Service | None) -> Set[str]:
    """The addresses that kube-vip announces for the service."""
    if service is None or not service.is_balanced:
        return frozenset()
    told = frozenset(one.strip() for one in (service.addresses or "").split(",")) - {""}
    # Whoever asks DHCP learns the address from kube-vip; so does whoever told kube-vip nothing and is announced.
    learns = told <= _BY_DHCP and bool(told or service.traces)
    return (told - _BY_DHCP) | (frozenset(service.ingress) if learns else frozenset())


class VirtualAddresses:
    """Those of all services, kept current by whoever tells it of changes; `is_known` once it was told of all."""

    def __init__(self, *, is_known: bool = False) -> None:
        self.is_known = is_known
        self._of: dict[tuple[str, str], Set[str]] = {}
        self._uses: Counter[str] = Counter()

    @property
    def all(self) -> Set[str] | None:
        """None while they are not known."""
        return self._uses.keys() if self.is_known else None

    def note(self, namespace: str, name: str, service: Service | None) -> Collection[str]:
        """How the service is now, None when it is gone; tells which addresses nobody had before. May be repeated."""
        key = (namespace, name)
        old, new = self._of.pop(key, frozenset()), virtual_addresses(service)
        fresh = [one for one in new if one not in self._uses]
        if new:
            self._of[key] = new
        self._uses.update(new)
        self._uses.subtract(old)
        for one in old:
            if not self._uses[one]:
                del self._uses[one]
        return fresh
