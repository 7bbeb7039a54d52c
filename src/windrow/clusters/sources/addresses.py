"""What is known of the IPAddresses of the management API: an index, so that no reconcile goes through all of them.

It may be a moment behind, which makes no address be claimed twice: the API server takes one object of a name. What this
process has created or deleted is in it at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from windrow.client.informer import Informer
from windrow.clusters.api.addresses import IPAddress, address_name, uid_of_scope

OnChange = Callable[[IPAddress | None, IPAddress | None], None]


class AddressBook:
    """The claimed addresses, by machine, by cluster and by network. `run()` follows the informer."""

    def __init__(self, informer: Informer[IPAddress]) -> None:
        self.informer = informer
        self._by_name: dict[str, IPAddress] = {}
        self._by_machine: dict[str, dict[str, IPAddress]] = {}
        self._by_cluster: dict[str, dict[str, IPAddress]] = {}
        self._by_network: dict[str, dict[str, IPAddress]] = {}

    def put(self, claim: IPAddress) -> None:
        """It exists, and no other of its name does."""
        self._drop(claim.name)
        self._by_name[claim.name] = claim
        for index, key in self._indexes(claim):
            index.setdefault(key, {})[claim.name] = claim

    def remove(self, claim: IPAddress) -> None:
        """It does not exist any more; one that was created later under its name stays. May be repeated."""
        known = self._by_name.get(claim.name)
        if known is not None and known.uid == claim.uid:
            self._drop(claim.name)

    def _drop(self, name: str) -> None:
        claim = self._by_name.pop(name, None)
        if claim is None:
            return
        for index, key in self._indexes(claim):
            index[key].pop(name)
            if not index[key]:
                del index[key]

    def _indexes(self, claim: IPAddress) -> Iterable[tuple[dict[str, dict[str, IPAddress]], str]]:
        return (
            (self._by_machine, claim.machine_uid),
            (self._by_cluster, claim.cluster_uid),
            (self._by_network, claim.network),
        )

    def of_machine(self, uid: str) -> tuple[IPAddress, ...]:
        claims = self._by_machine.get(uid)
        return tuple(claims[name] for name in sorted(claims)) if claims else ()

    def of_cluster(self, uid: str) -> tuple[IPAddress, ...]:
        claims = self._by_cluster.get(uid)
        return tuple(claims[name] for name in sorted(claims)) if claims else ()

    def with_uid(self, harvester: str) -> tuple[IPAddress, ...]:
        """Those on whatever server says this uid."""
        return tuple(claim for claim in self._by_name.values() if uid_of_scope(claim.harvester) == harvester)

    def find(self, network: str, scope: str, address: str) -> IPAddress | None:
        return self._by_name.get(address_name(scope, network, address))

    def list_taken(self, network: str, scope: str) -> frozenset[str]:
        """The addresses that are claimed on the network in this scope."""
        claims = self._by_network.get(network, {}).values()
        return frozenset(claim.address for claim in claims if claim.harvester == scope)

    def read_all(self) -> None:
        """Take over what the informer has read by now."""
        for claim in self.informer.values():
            self.put(claim)

    async def run(self, on_change: OnChange) -> None:
        """Follow the informer until cancelled; `on_change` is called with each claim before and after its change."""
        async for before, after in self.informer.changes():
            if after is not None:
                self.put(after)
            elif before is not None:
                self.remove(before)
            on_change(before, after)
