"""Execution of the actions on a Cluster as a whole."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import replace
from datetime import timedelta
from typing import Any

from windrow.bootstrap.guest_account import VIP, GuestAccount, find_kubeconfig, find_vip_server
from windrow.bootstrap.node_config import merge_config
from windrow.bootstrap.pki import issue_client_config, new_cluster_secrets
from windrow.client.client import Client
from windrow.client.middleware.unanswered import UnansweredCreations
from windrow.clusters.api import names
from windrow.clusters.api.cluster import Pool
from windrow.clusters.api.endpoint import render_endpoint
from windrow.clusters.api.guest_volumes import describe_deletion, render_recorded_volumes
from windrow.clusters.api.immutable_config import find_immutable_config, render_immutable_config
from windrow.clusters.api.kinds import MACHINE
from windrow.clusters.api.machine import new_machine_name, render_machine
from windrow.clusters.api.secrets import (
    GUEST_KUBECONFIG,
    render_kubeconfig_secret,
    render_secrets,
)
from windrow.clusters.api.status import GuestServiceAccount
from windrow.clusters.bootstrap_data import find_config_hash, find_layout, sample_bootstrap_spec
from windrow.clusters.change.revisions import list_revisions
from windrow.clusters.context import (
    ReconcileContext,
    StalePlan,
    cluster_ref,
    delete_if_exists,
    get_connection,
    get_machine,
)
from windrow.clusters.execute.cluster_secrets import ensure_secret
from windrow.clusters.orphans import guest_account_of, location_of
from windrow.clusters.plan import actions as do
from windrow.clusters.plan.names import list_reserved
from windrow.clusters.sources.guest_api import GuestClusterCache
from windrow.clusters.sources.harvesters import HarvesterClients, find_harvester_uid
from windrow.clusters.state import ClusterState
from windrow.core.logs import with_values
from windrow.core.text import encode_base64
from windrow.harvester.identity import ca_fingerprint, compare_identity
from windrow.harvester.names import CLUSTER_UID
from windrow.kubernetes.errors import AlreadyExists, KubeError
from windrow.kubernetes.kubeconfig import render_kubeconfig
from windrow.kubernetes.objects import annotations_of, uid_of
from windrow.kubernetes.resources import SECRET, SERVICE

log = with_values(logging.getLogger(__name__))


# The admin kubeconfig, and after what time it is renewed.
KUBECONFIG_LIFETIME = timedelta(days=365)
KUBECONFIG_RENEWAL = timedelta(days=245)
GUEST_SERVICE = SERVICE.ref("kubernetes", "default")


class _AccountTaken(Exception):
    """An object of the guest's ServiceAccount is there and is not this cluster's."""


class ClusterActions:
    """One method for each action on a Cluster as a whole. All may be repeated; none decides anything."""

    def __init__(
        self, context: ReconcileContext, harvesters: HarvesterClients, guests: GuestClusterCache
    ) -> None:
        self._context, self._harvesters, self._guests = context, harvesters, guests

    async def add_finalizer(self, action: do.AddFinalizer, state: ClusterState) -> None:
        raw = await self._context.patch_finalizers(
            cluster_ref(state), state.cluster.uid, add=names.CLUSTER_FINALIZER
        )
        if raw is None:
            raise StalePlan
        self._context.clusters.mutated(raw)

    async def create_secrets(self, action: do.CreateSecrets, state: ClusterState) -> None:
        raw = render_secrets(state.cluster, new_cluster_secrets(self._context.clock.now()))
        await ensure_secret(self._context, raw, state, update=False)

    async def record_service_account(self, action: do.RecordServiceAccount, state: ClusterState) -> None:
        planned = GuestServiceAccount(
            action.namespace, action.service_account, action.credential, state.harvester_uid
        )
        client = await self._harvesters.get_verified_client(planned, state.cluster.namespace)
        identity = state.harvester_uid or await find_harvester_uid(client)
        account = {
            "namespace": action.namespace,
            "serviceAccount": action.service_account,
            "credential": action.credential,
            "harvester": identity,
        }
        change = {"guestServiceAccount": account} | ({"harvesterUID": identity} if identity else {})
        await self._context.patch_cluster_status(state, change)
        self._context.process_state.unanswered.on_recorded(state.cluster.uid)

    async def record_harvester(self, action: do.RecordHarvester, state: ClusterState) -> None:
        client = self._harvesters.get_client(action.credential, state.cluster.namespace)
        config = self._harvesters.get_config(action.credential, state.cluster.namespace)
        identity, fingerprint = await find_harvester_uid(client), ca_fingerprint(config)
        if not identity or compare_identity(state.harvester_uid, identity, fingerprint) != "same":
            raise StalePlan  # the next probe of the credential says so
        await self._context.patch_cluster_status(state, {"harvesterUID": identity})

    async def create_service_account(self, action: do.CreateServiceAccount, state: ClusterState) -> None:
        cluster = state.cluster
        recorded = state.recorded.service_account or GuestServiceAccount(
            cluster.vm_namespace, cluster.name, cluster.credential
        )
        account = GuestAccount(recorded.name, recorded.namespace, cluster.uid)
        client = await self._harvesters.get_verified_client(recorded, state.cluster.namespace)
        # They are created in order, so the last one stands for all, unless others have deleted some.
        found = await asyncio.gather(*(client.find(ref) for ref in account.refs))
        if not all(raw is not None and account.is_owned(raw) for raw in found):
            try:
                await self._create_account_objects(client, account)
            except _AccountTaken as error:
                # Another cluster of this name was as fast; the preflight, which had passed, refuses this one.
                self._context.process_state.account_taken.add(cluster.uid)
                raise StalePlan from error
        server = await self._guest_server(client, recorded.credential, cluster.namespace)
        text = find_kubeconfig(await client.get(account.token), server, recorded.namespace)
        if text is not None:
            ref = SECRET.ref(names.secrets_name(cluster.name), cluster.namespace)
            self._context.secrets.mutated(
                await self._context.api.patch(ref, {"data": {GUEST_KUBECONFIG: encode_base64(text)}})
            )

    async def _create_account_objects(self, client: Client, account: GuestAccount) -> None:
        unanswered = self._context.process_state.unanswered
        unanswered.on_request(account.cluster_uid)
        creations = UnansweredCreations(client.transport)
        try:
            await _create_account_objects(Client(creations), account)
        finally:
            if creations.found:
                unanswered.on_unanswered(account.cluster_uid, self._context.clock.monotonic())

    async def recreate_service_account(self, action: do.RecreateServiceAccount, state: ClusterState) -> None:
        """Its token is void on Harvester; without it in our Secret the account is made as for a new cluster."""
        cluster, recorded = state.cluster, state.recorded.service_account
        if recorded is None:
            raise StalePlan
        account = GuestAccount(recorded.name, recorded.namespace, cluster.uid)
        client = await self._harvesters.get_verified_client(recorded, cluster.namespace)
        token = await client.find(account.token)
        if token is not None and account.is_owned(token):
            await delete_if_exists(client, account.token, uid_of(token))
        await self._context.patch_cluster_status(
            state, {"guestServiceAccount": {"earlierToken": list(action.machines)}}
        )
        # The account was ready, so what an earlier process requested was answered: only our requests may wait.
        self._context.process_state.unanswered.on_recorded(cluster.uid)
        ref = SECRET.ref(names.secrets_name(cluster.name), cluster.namespace)
        self._context.secrets.mutated(await self._context.api.patch(ref, {"data": {GUEST_KUBECONFIG: None}}))

    async def _guest_server(self, client: Client, credential: str, namespace: str) -> str:
        """Harvester as guests reach it: its VIP, else the address that we use ourselves. Never by our proxy."""
        try:
            found = await client.find(VIP)
        except KubeError as error:
            log.info(
                "the VIP of Harvester cannot be read: %s; guests get the credential's address",
                error,
                secret=credential,
            )
            found = None
        return find_vip_server(found) or self._harvesters.get_config(credential, namespace).server

    async def reserve_machine_names(self, action: do.ReserveMachineNames, state: ClusterState) -> None:
        reserved = [{"pool": one.pool, "name": one.name} for one in list_reserved(state)]
        taken = {machine.name for machine in state.machines} | {one["name"] for one in reserved}
        for name, count in action.counts:
            pool = state.cluster.find_pool(name)
            if pool is None:
                raise StalePlan
            for _ in range(count):
                # A short name has few digits that differ.
                new = new_machine_name(state.cluster, pool, self._context.rng)
                while new in taken:
                    new = new_machine_name(state.cluster, pool, self._context.rng)
                taken.add(new)
                reserved.append({"pool": name, "name": new})
        change = {"creating": reserved, "revisions": list_revisions(state)}
        await self._context.patch_observed_cluster(state, change)

    async def create_machine(self, action: do.CreateMachine, state: ClusterState) -> None:
        pool = state.cluster.find_pool(action.pool)
        if pool is None:
            raise StalePlan
        version = state.recorded.version or state.cluster.version
        raw = render_machine(
            state.cluster,
            pool,
            action.name,
            version=version,
            config_hash=_config_hash(state, pool, version),
            join_server=action.join_server,
            is_init_server=action.is_init_server,
        )
        try:
            made = await self._context.api.create(MACHINE, raw)
        except AlreadyExists:
            # Created by an attempt whose answer was lost, or by the manager that led before.
            made = await self._context.api.get(MACHINE.ref(action.name, state.cluster.namespace))
        self._context.machines.mutated(made)

    async def adopt_vm(self, action: do.AdoptVM, state: ClusterState) -> None:
        """The name of the Machine is the VM's, so that of two attempts one creates it."""
        cluster, pool, vm = state.cluster, state.cluster.find_pool(action.pool), action.vm
        if pool is None:
            raise StalePlan
        version = state.recorded.version or cluster.version
        raw = render_machine(
            cluster,
            pool,
            vm.name,
            version=version,
            config_hash=_config_hash(state, pool, version),
            join_server=action.join_server,
            is_init_server=vm.machine_uid == state.recorded.init_server_uid,
            machine_uid=vm.machine_uid,
        )
        try:
            made = await self._context.api.create(MACHINE, raw)
        except AlreadyExists as error:
            raise StalePlan from error  # it is recorded after all, or a Machine with another VM has the name
        self._context.machines.mutated(made)

    async def elect_init_server(self, action: do.ElectInitServer, state: ClusterState) -> None:
        change = {
            "initServer": {"name": action.machine, "uid": action.uid},
            "version": get_machine(action.machine, state).record.version,
            "controlPlaneEndpoint": render_endpoint(state.cluster.control_plane_endpoint),
            "immutableConfig": _immutable_config(get_machine(action.machine, state).pool, state),
        }
        await self._context.patch_observed_cluster(state, change)

    async def record_immutable_config(self, action: do.RecordImmutableConfig, state: ClusterState) -> None:
        change = {"immutableConfig": _immutable_config(action.pool, state)}
        await self._context.patch_observed_cluster(state, change)

    async def mark_initialized(self, action: do.MarkInitialized, state: ClusterState) -> None:
        uid = await self._find_guest_uid(state)
        change = {"initialized": True, "guestUID": uid} if uid else {"initialized": True}
        await self._context.patch_cluster_status(state, change)

    async def record_guest_uid(self, action: do.RecordGuestUID, state: ClusterState) -> None:
        # Also where it fails: it is requested again, but seldom.
        self._context.process_state.guest_uid_requested[state.cluster.uid] = self._context.clock.monotonic()
        if uid := await self._find_guest_uid(state):
            await self._context.patch_cluster_status(state, {"guestUID": uid})

    async def _find_guest_uid(self, state: ClusterState) -> str:
        """What the guest's cloud provider marks its load balancers with, "" where it cannot be read."""
        try:
            raw = await get_connection(self._guests, state).client.find(GUEST_SERVICE)
        except (KubeError, StalePlan) as error:
            cluster = f"{state.cluster.namespace}/{state.cluster.name}"
            log.info("the uid of the guest cluster is not known: %s", error, cluster=cluster)
            return ""
        return uid_of(raw) if raw else ""

    async def publish_kubeconfig(self, action: do.PublishKubeconfig, state: ClusterState) -> None:
        if state.secrets is None:
            raise StalePlan
        proxy = self._harvesters.find_proxy(state.cluster.credential, state.cluster.namespace)
        now = self._context.clock.now()
        access = issue_client_config(
            state.secrets, action.server, now, KUBECONFIG_LIFETIME, proxy, "windrow-admin"
        )
        cluster, also = state.cluster, {}
        if cluster.endpoint_name:
            # A proxy that ends TLS under this name has a certificate of its own.
            address, ca = f"https://{cluster.endpoint_name}", cluster.endpoint_ca or access.ca
            also[f"{cluster.name}-fqdn"] = replace(access, server=address, ca=ca)
        text = render_kubeconfig(access, cluster.name, also=also)
        raw = render_kubeconfig_secret(state.cluster, text, action.server, now + KUBECONFIG_RENEWAL)
        await ensure_secret(self._context, raw, state, update=True)

    async def delete_service_account(self, action: do.DeleteServiceAccount, state: ClusterState) -> None:
        recorded = state.recorded.service_account
        if recorded is None:
            return
        account = GuestAccount(recorded.name, recorded.namespace, state.cluster.uid)
        client = await self._harvesters.get_verified_client(recorded, state.cluster.namespace)
        for ref in reversed(account.refs):
            found = await client.find(ref)
            if found is not None and account.is_owned(found):
                await delete_if_exists(client, ref, uid_of(found))

    async def delete_load_balancers(self, action: do.DeleteLoadBalancers, state: ClusterState) -> None:
        account = guest_account_of(state.cluster)
        if account is None:
            raise StalePlan
        client = await self._harvesters.get_verified_client(account, state.cluster.namespace)
        for ref, uid in action.load_balancers:
            await delete_if_exists(client, ref, uid)

    async def delete_unrecorded_claims(self, action: do.DeleteUnrecordedClaims, state: ClusterState) -> None:
        location = location_of(state.cluster)
        if location is None:
            raise StalePlan
        client = await self._harvesters.get_verified_client(location, state.cluster.namespace)
        for claim in action.claims:
            await delete_if_exists(client, claim.ref, claim.uid)

    async def record_volumes(self, action: do.RecordVolumes, state: ClusterState) -> None:
        deletion = describe_deletion(state.cluster.raw)
        recorded = render_recorded_volumes(action.volumes, deletion, self._context.clock.now())
        await self._context.patch_cluster_status(state, {"volumes": recorded})

    async def delete_volumes(self, action: do.DeleteVolumes, state: ClusterState) -> None:
        location = location_of(state.cluster)
        if location is None:
            raise StalePlan
        client = await self._harvesters.get_verified_client(location, state.cluster.namespace)
        for claim in action.claims:
            await delete_if_exists(client, claim.ref, claim.uid)

    async def delete_secrets(self, action: do.DeleteSecrets, state: ClusterState) -> None:
        for name in (names.kubeconfig_name(state.cluster.name), names.secrets_name(state.cluster.name)):
            ref = SECRET.ref(name, state.cluster.namespace)
            found = await self._context.api.find(ref)
            if found is not None and annotations_of(found).get(CLUSTER_UID) == state.cluster.uid:
                await delete_if_exists(self._context.api, ref, uid_of(found))

    async def remove_finalizer(self, action: do.RemoveFinalizer, state: ClusterState) -> None:
        self._guests.close(state.cluster.uid)
        raw = await self._context.patch_finalizers(
            cluster_ref(state), state.cluster.uid, drop=names.CLUSTER_FINALIZER
        )
        if raw is not None:
            self._context.clusters.mutated(raw)


async def _create_account_objects(client: Client, account: GuestAccount) -> None:
    for kind, raw in account.render_objects():
        try:
            await client.create(kind, raw)
        except AlreadyExists:
            found = await client.get(kind.ref(raw["metadata"]["name"], raw["metadata"].get("namespace", "")))
            if not account.is_owned(found):
                raise _AccountTaken from None


def _immutable_config(name: str, state: ClusterState) -> dict[str, Any]:
    """What the servers of the cluster share, as those of the pool are made now."""
    pool = state.cluster.find_pool(name)
    if pool is None:
        raise StalePlan
    version = state.recorded.version or state.cluster.version
    merged = merge_config(sample_bootstrap_spec(state.cluster, pool, version))
    found = find_immutable_config(find_layout(version).name, merged, state.cluster.data_directory)
    return render_immutable_config(found, state.recorded.immutable_config)


def _config_hash(state: ClusterState, pool: Pool, version: str) -> str:
    """As it was observed; a large configuration is not hashed again for each of its machines."""
    return state.config_hashes.get(pool.name) or find_config_hash(state.cluster, pool, version)
