"""The preflight of a Cluster: everything that is wrong, read and told at once, before anything is made."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from windrow.bootstrap.guest_account import GuestAccount
from windrow.clusters.api.addresses import IPAddress
from windrow.clusters.api.cluster import Cluster
from windrow.clusters.api.secrets import CredentialError
from windrow.clusters.bootstrap_data import check_bootstrap, sample_machine_spec
from windrow.clusters.bootstrap_secrets import check_secrets
from windrow.clusters.context import ReconcileContext
from windrow.clusters.sources.address_scopes import digest_of, select_claims
from windrow.clusters.sources.addresses import AddressBook
from windrow.clusters.sources.credentials import CredentialProber
from windrow.clusters.sources.endpoint_pools import check_address_pools, check_endpoint
from windrow.clusters.sources.harvester_versions import read_harvester_versions
from windrow.clusters.sources.harvesters import HarvesterClients
from windrow.clusters.state import ClusterState
from windrow.clusters.versions import compare_versions, list_problems
from windrow.harvester.connection import describe_credential
from windrow.kubernetes.errors import Forbidden, KubeError
from windrow.machines.port import HARVESTER, InfrastructureUnknown, Machines, Problem


class Preflight:
    """Reads, without side effects."""

    def __init__(
        self,
        context: ReconcileContext,
        infrastructure: Machines,
        harvesters: HarvesterClients,
        prober: CredentialProber,
        addresses: AddressBook,
    ) -> None:
        self._context, self._infrastructure = context, infrastructure
        self._harvesters, self._prober, self._claims = harvesters, prober, addresses

    async def run(self, state: ClusterState) -> tuple[Problem, ...]:
        """Everything that is wrong, all at once, before anything is made."""
        cluster = state.cluster
        problems = check_bootstrap(cluster, state.problems)
        try:
            problems += await check_secrets(self._context.api.find, cluster, self._context.require_consent)
        except Forbidden as error:
            hint = "let the manager get Secrets and ConfigMaps of the Cluster's namespace"
            problems.append(Problem(str(error), hint, "spec.rkeConfig"))
        if state.guest_credential.state == "refused":
            message, _, hint = state.guest_credential.because.partition("; ")
            problems.append(Problem(message, hint, "spec.rkeConfig.machineGlobalConfig"))
        if state.harvester_hidden_from:
            problems += _list_hidden(state.harvester_hidden_from, cluster)
        usable = set()
        on_harvester = {pool.credential for pool in cluster.pools if pool.driver == HARVESTER}
        for credential in sorted({pool.credential for pool in cluster.pools if ":" in pool.credential}):
            try:
                if credential in on_harvester:
                    self._harvesters.get_config(credential, cluster.namespace)
                    if (failure := self._prober.find_failure(credential)) is not None:
                        # One probe asks for all Clusters of a Harvester; its result is what each of them would find.
                        raise CredentialError(failure.message, failure.hint)
                else:
                    self._context.require_consent(credential, cluster.namespace)
                usable.add(credential)
            except CredentialError as error:
                problems.append(Problem(error.message, error.hint, "spec.cloudCredentialSecretName"))
        pools = [
            pool
            for pool in cluster.pools
            if pool.options is not None
            and (pool.credential in usable or (not pool.credential and pool.driver != HARVESTER))
        ]
        # One for each machine, so that an adapter checks their sum.
        specs = [sample_machine_spec(cluster, pool, n) for pool in pools for n in range(pool.quantity)]
        try:
            problems += await self._infrastructure.check(specs)
            problems += await self._check_versions(state, sorted(usable & on_harvester))
            if state.guest_credential.state in ("missing", "pending") and cluster.credential in usable:
                problems += await self._check_service_account(cluster)
            for pool in pools:
                if pool.address_pools and pool.is_on_harvester and pool.credential in usable:
                    client = self._harvesters.get_client(pool.credential, cluster.namespace)
                    problems += await check_address_pools(client, pool, cluster.namespace)
            if cluster.control_plane_endpoint.mode == "loadBalancer" and cluster.credential in usable:
                client = self._harvesters.get_client(cluster.credential, cluster.namespace)
                problems += await check_endpoint(client, cluster, self._list_claims_beside(state))
        except InfrastructureUnknown as error:
            problems.append(Problem(error.message, error.hint, "spec.cloudCredentialSecretName"))
        except KubeError as error:
            hint = "make Harvester reachable, with a credential that may read there"
            problems.append(Problem(str(error), hint, "spec.cloudCredentialSecretName"))
        return tuple(dict.fromkeys(problems))

    def _list_claims_beside(self, state: ClusterState) -> list[IPAddress]:
        """The addresses of machines on the Harvester of the cluster's endpoint."""
        cluster = state.cluster
        identity = self._prober.find_identity(cluster.credential)
        claims = self._claims.with_uid(identity)
        if state.claims_on:
            return [one for one in claims if one.harvester == state.claims_on]
        access = self._harvesters.get_config(cluster.credential, cluster.namespace)
        return select_claims(claims, identity, digest_of(access), cluster.uid)

    async def _check_versions(self, state: ClusterState, credentials: Sequence[str]) -> list[Problem]:
        """What does not go together; all credentials of a cluster lead to one Harvester."""
        harvester = None
        if credentials:
            client = self._harvesters.get_client(credentials[0], state.cluster.namespace)
            harvester = await read_harvester_versions(client)
        compared = compare_versions(state.cluster, state.problems, self._context.matrix, harvester)
        return list_problems(compared)

    async def _check_service_account(self, cluster: Cluster) -> list[Problem]:
        """Whether the name of the guest's account is free, or its objects ours from an earlier attempt."""
        account = GuestAccount(cluster.name, cluster.vm_namespace, cluster.uid)
        client = self._harvesters.get_client(cluster.credential, cluster.namespace)
        found = await asyncio.gather(*(client.find(ref) for ref in account.refs))
        taken = [
            ref for ref, raw in zip(account.refs, found, strict=True) if raw and not account.is_owned(raw)
        ]
        if not taken:
            return []
        message = f"{taken[0]} on Harvester is not this cluster's, perhaps that of another cluster called {cluster.name}"
        hint = (
            "rename the cluster, choose another vmNamespace, or name a Secret with the guest's credential in "
            "cloud-provider-config"
        )
        return [Problem(message, hint, "metadata.name")]


def needs_preflight(state: ClusterState) -> bool:
    """Until the first server is up, after each change of the spec."""
    if state.cluster.deletion_timestamp is not None or state.recorded.initialized:
        return False
    observed = state.recorded.raw.get("observedGeneration") == state.cluster.generation
    return not (state.recorded.preflight_passed and observed)


def _list_hidden(credential: str, cluster: Cluster) -> list[Problem]:
    """Addresses are claimed under the uid of kube-system, since under any other identity two could be given one address."""
    hint = "let the credential's user get Namespace kube-system on Harvester, or leave out addressPools"
    configs = dict.fromkeys(
        f"{pool.kind} {cluster.namespace}/{pool.config_name}" for pool in cluster.pools if pool.address_pools
    )
    return [
        Problem(
            f"{config}: addressPools is set, and {describe_credential(credential)} may not get Namespace kube-system on "
            "Harvester, under whose uid addresses are claimed",
            hint,
            "addressPools",
        )
        for config in configs
    ]
