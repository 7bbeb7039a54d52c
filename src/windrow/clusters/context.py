"""What the manager works with: the management API, what is known of it, the infrastructure, the guests."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from windrow.client.client import Client
from windrow.client.transport import Transport
from windrow.clusters.api.kinds import CLUSTER
from windrow.clusters.api.machine import Machine
from windrow.clusters.api.secrets import CredentialError, SecretData, read_credential
from windrow.clusters.api.status import GuestServiceAccount
from windrow.clusters.mutation_cache import MutationCache
from windrow.clusters.sources.credentials import CredentialProber
from windrow.clusters.sources.guest_api import Connect, GuestClusterCache, GuestConnection
from windrow.clusters.sources.machine_configs import MachineConfigs
from windrow.clusters.state import ClusterState, MachineState
from windrow.core.clock import Clock
from windrow.core.rng import Rng
from windrow.harvester.identity import IDENTITY, read_identity
from windrow.kubernetes.errors import NotFound
from windrow.kubernetes.kubeconfig import ClientConfig
from windrow.kubernetes.objects import Raw, finalizers_of, resource_version_of, uid_of
from windrow.kubernetes.resources import NODE, SECRET, ObjectRef
from windrow.machines.port import Machines


class StalePlan(Exception):
    """What the plan was made for is no longer so: somebody else decided meanwhile. The next look shows it."""


class HarvesterClients:
    """Clients of the Harvesters that credentials lead to, each opened once and anew when its Secret changes."""

    def __init__(self, secrets: MutationCache[SecretData], connect: Connect) -> None:
        self._secrets = secrets
        self._connect = connect
        self._clients: dict[str, tuple[ClientConfig, Client]] = {}

    def get_access(self, credential: str) -> ClientConfig:
        """Raises CredentialError."""
        namespace, _, name = credential.partition(":")
        return read_credential(credential, self._secrets.get(SECRET.ref(name, namespace)))

    def get_client(self, credential: str) -> Client:
        """Raises CredentialError."""
        access = self.get_access(credential)
        opened = self._clients.get(credential)
        if opened is None or opened[0] != access:
            transport: Transport = self._connect(access)
            opened = self._clients[credential] = (access, Client(transport))
        return opened[1]

    async def get_verified_client(self, account: GuestServiceAccount) -> Client:
        """The Harvester on which the account is. What another one shows, or does not show, says nothing about it.

        Raises CredentialError.
        """
        client = self.get_client(account.credential)
        if account.harvester and (found := read_identity(await client.get(IDENTITY))) != account.harvester:
            raise CredentialError(
                f"the credential {account.credential} leads to another Harvester ({found}) than the one with "
                f"account {account.namespace}/{account.name} ({account.harvester})",
                "put the kubeconfig of the right Harvester into the credential Secret",
            )
        return client


@dataclass(slots=True)
class ProcessState:
    """What the manager may forget: after a restart it is only asked once more, or ordered once more."""

    preflight_passed: dict[str, int] = field(
        default_factory=dict
    )  # cluster uid -> generation that passed the preflight
    guest_uid_requested: dict[str, datetime] = field(
        default_factory=dict
    )  # cluster uid -> when its guest was asked for its uid
    deletion_requested: dict[str, datetime] = field(
        default_factory=dict
    )  # machine uid -> when its removal was ordered


@dataclass(frozen=True, slots=True)
class ReconcileContext:
    """Everything within reach of a deed. The methods are the writes that several deeds share."""

    api: Client
    clusters: MutationCache[Raw]
    machines: MutationCache[Machine]
    configs: MachineConfigs
    secrets: MutationCache[SecretData]
    infrastructure: Machines
    harvesters: HarvesterClients
    guest_clusters: GuestClusterCache
    prober: CredentialProber
    clock: Clock
    rng: Rng
    proxy: str = ""
    process_state: ProcessState = field(default_factory=ProcessState)

    async def patch_cluster_status(self, state: ClusterState, change: Mapping[str, object]) -> None:
        """Merge `change` into the Cluster's status."""
        if change:
            self.clusters.mutated(await self.api.patch(cluster_ref(state), {"status": change}, "status"))

    async def patch_machine_status(self, machine: Machine, change: Mapping[str, object]) -> None:
        """Merge `change` into the Machine's status. A record that is gone needs none."""
        if not change:
            return
        try:
            raw = await self.api.patch(machine.ref, {"status": change}, "status")
        except NotFound:
            return
        self.machines.mutated(raw)

    async def patch_finalizers(
        self, ref: ObjectRef, uid: str, *, add: str = "", drop: str = ""
    ) -> Raw | None:
        """With the object as it is now, since others may add theirs meanwhile. None when it is gone."""
        raw = await self.api.find(ref)
        if raw is None or uid_of(raw) != uid:
            return None
        before = finalizers_of(raw)
        after = [name for name in before if name != drop] + ([add] if add and add not in before else [])
        if after == before:
            return raw
        change = {"metadata": {"finalizers": after, "resourceVersion": resource_version_of(raw)}}
        return await self.api.patch(ref, change)

    def guest_connection(self, state: ClusterState) -> GuestConnection:
        """The way into the guest. Raises Lost when there is none any more."""
        connection = self.guest_clusters.find(state.cluster.uid)
        if connection is None:
            raise StalePlan
        return connection

    async def patch_node(self, state: ClusterState, node: str, change: Mapping[str, object]) -> None:
        connection = self.guest_connection(state)
        connection.nodes.mutated(await connection.client.patch(NODE.ref(node), change))


def cluster_ref(state: ClusterState) -> ObjectRef:
    return CLUSTER.ref(state.cluster.name, state.cluster.namespace)


def find_machine(name: str, state: ClusterState) -> MachineState | None:
    return next((machine for machine in state.machines if machine.name == name), None)


def get_machine(name: str, state: ClusterState) -> MachineState:
    """Raises Lost."""
    machine = find_machine(name, state)
    if machine is None:
        raise StalePlan
    return machine


async def delete_if_exists(client: Client, ref: ObjectRef, uid: str = "") -> None:
    """With `uid`, only if it still is that one. Raises Conflict: that it is gone has not been said."""
    try:
        await client.delete(ref, uid=uid)
    except NotFound:
        return
