"""What the manager works with: the management API, what is known of it, the infrastructure, the guests."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from windrow.client.client import Client
from windrow.client.transport import Transport
from windrow.clusters.guests import Dial, Guests, Link
from windrow.clusters.kinds import CLUSTER
from windrow.clusters.ledger import Ledger
from windrow.clusters.machine_configs import MachineConfigs
from windrow.clusters.records import Machine
from windrow.clusters.sealed import CredentialMissing, Sealed, read_credential
from windrow.clusters.seen import MachineSeen, Seen
from windrow.clusters.standing import Account
from windrow.clusters.trials import Trials
from windrow.harvester.identity import IDENTITY, read_identity
from windrow.kube.errors import NotFound
from windrow.kube.kubeconfig import Access
from windrow.kube.objects import Raw, finalizers_of, uid_of, version_of
from windrow.kube.refs import NODE, SECRET, Ref
from windrow.machines.port import Machines
from windrow.values.chance import Chance
from windrow.values.clock import Clock


class Lost(Exception):
    """What the plan was made for is no longer so: somebody else decided meanwhile. The next look shows it."""


class Harvesters:
    """Clients of the Harvesters that credentials lead to, each opened once and anew when its Secret changes."""

    def __init__(self, secrets: Ledger[Sealed], dial: Dial) -> None:
        self._secrets = secrets
        self._dial = dial
        self._open: dict[str, tuple[Access, Client]] = {}

    def get_access(self, credential: str) -> Access:
        """Raises CredentialMissing."""
        namespace, _, name = credential.partition(":")
        return read_credential(credential, self._secrets.get(SECRET.ref(name, namespace)))

    def get_client(self, credential: str) -> Client:
        """Raises CredentialMissing."""
        access = self.get_access(credential)
        opened = self._open.get(credential)
        if opened is None or opened[0] != access:
            transport: Transport = self._dial(access)
            opened = self._open[credential] = (access, Client(transport))
        return opened[1]

    async def reach(self, account: Account) -> Client:
        """The Harvester on which the account is. What another one shows, or does not show, says nothing about it.

        Raises CredentialMissing.
        """
        client = self.get_client(account.credential)
        if account.harvester and (found := read_identity(await client.get(IDENTITY))) != account.harvester:
            raise CredentialMissing(
                f"the credential {account.credential} leads to another Harvester ({found}) than the one with "
                f"account {account.namespace}/{account.name} ({account.harvester})",
                "put the kubeconfig of the right Harvester into the credential Secret",
            )
        return client


@dataclass(slots=True)
class Memo:
    """What the manager may forget: after a restart it is only asked once more, or ordered once more."""

    passed: dict[str, int] = field(
        default_factory=dict
    )  # cluster uid -> generation that passed the preflight
    met: dict[str, datetime] = field(
        default_factory=dict
    )  # cluster uid -> when its guest was asked for its uid
    removals: dict[str, datetime] = field(default_factory=dict)  # machine uid -> when its removal was ordered


@dataclass(frozen=True, slots=True)
class Desk:
    """Everything within reach of a deed. The methods are the writes that several deeds share."""

    api: Client
    clusters: Ledger[Raw]
    machines: Ledger[Machine]
    configs: MachineConfigs
    secrets: Ledger[Sealed]
    infrastructure: Machines
    harvesters: Harvesters
    guests: Guests
    trials: Trials
    clock: Clock
    chance: Chance
    proxy: str = ""
    memo: Memo = field(default_factory=Memo)

    async def write_cluster_status(self, seen: Seen, change: Mapping[str, object]) -> None:
        """Merge `change` into the Cluster's status."""
        if change:
            self.clusters.wrote(await self.api.patch(cluster_ref(seen), {"status": change}, "status"))

    async def write_machine_status(self, machine: Machine, change: Mapping[str, object]) -> None:
        """Merge `change` into the Machine's status. A record that is gone needs none."""
        if not change:
            return
        try:
            raw = await self.api.patch(machine.ref, {"status": change}, "status")
        except NotFound:
            return
        self.machines.wrote(raw)

    async def change_finalizers(self, ref: Ref, uid: str, *, add: str = "", drop: str = "") -> Raw | None:
        """With the object as it is now, since others may add theirs meanwhile. None when it is gone."""
        raw = await self.api.find(ref)
        if raw is None or uid_of(raw) != uid:
            return None
        before = finalizers_of(raw)
        after = [name for name in before if name != drop] + ([add] if add and add not in before else [])
        if after == before:
            return raw
        change = {"metadata": {"finalizers": after, "resourceVersion": version_of(raw)}}
        return await self.api.patch(ref, change)

    def link(self, seen: Seen) -> Link:
        """The way into the guest. Raises Lost when there is none any more."""
        link = self.guests.find(seen.cluster.uid)
        if link is None:
            raise Lost
        return link

    async def change_node(self, seen: Seen, node: str, change: Mapping[str, object]) -> None:
        link = self.link(seen)
        link.nodes.wrote(await link.client.patch(NODE.ref(node), change))


def cluster_ref(seen: Seen) -> Ref:
    return CLUSTER.ref(seen.cluster.name, seen.cluster.namespace)


def find_machine(name: str, seen: Seen) -> MachineSeen | None:
    return next((machine for machine in seen.machines if machine.name == name), None)


def get_machine(name: str, seen: Seen) -> MachineSeen:
    """Raises Lost."""
    machine = find_machine(name, seen)
    if machine is None:
        raise Lost
    return machine


async def delete_if_there(client: Client, ref: Ref, uid: str = "") -> None:
    """With `uid`, only if it still is that one. Raises Conflict: that it is gone has not been said."""
    try:
        await client.delete(ref, uid=uid)
    except NotFound:
        return
