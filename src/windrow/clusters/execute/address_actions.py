"""Execution of the actions on IPAddresses."""

from __future__ import annotations

from collections.abc import Sequence

from windrow.client.client import Client
from windrow.clusters.api.addresses import IPAddress, read_ip_address, render_ip_address
from windrow.clusters.api.kinds import IP_ADDRESS, MACHINE
from windrow.clusters.api.machine import read_machine
from windrow.clusters.context import StalePlan, delete_if_exists
from windrow.clusters.plan import actions as do
from windrow.clusters.sources.addresses import AddressBook
from windrow.kubernetes.errors import AlreadyExists


class AddressActions:
    """One method for each action on IPAddresses. All may be repeated; none decides anything."""

    def __init__(self, api: Client, addresses: AddressBook) -> None:
        self._api, self._addresses = api, addresses

    async def claim_addresses(self, action: do.ClaimAddresses) -> None:
        """Raises StalePlan where another machine has claimed one of them meanwhile; the next plan knows that."""
        for claim in action.addresses:
            if not await self._claim(claim):
                raise StalePlan

    async def _claim(self, claim: IPAddress) -> bool:
        try:
            raw = await self._api.create(IP_ADDRESS, render_ip_address(claim))
        except AlreadyExists:
            found = await self._api.find(claim.ref)
            if found is None:
                return False  # released meanwhile
            raw = found
        made = read_ip_address(raw)
        if made is None:
            return False
        self._addresses.put(made)
        return made.machine_uid == claim.machine_uid

    async def release_addresses(self, action: do.ReleaseAddresses) -> None:
        await self._release(action.addresses)

    async def release_unused_addresses(self, action: do.ReleaseUnusedAddresses) -> None:
        """Raises StalePlan where the Machine of one exists after all: two watches are never in step."""
        for claim in action.addresses:
            namespace, _, name = claim.machine.partition("/")
            raw = await self._api.find(MACHINE.ref(name, namespace))
            if raw is not None and read_machine(raw).uid == claim.machine_uid:
                raise StalePlan
        await self._release(action.addresses)

    async def _release(self, claims: Sequence[IPAddress]) -> None:
        for claim in claims:
            await delete_if_exists(self._api, claim.ref, claim.uid)
            self._addresses.remove(claim)
