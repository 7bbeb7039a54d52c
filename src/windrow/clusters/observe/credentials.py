"""Observation of a Cluster's credentials: those for a Harvester that it names, and the one of its guest."""

from __future__ import annotations

import asyncio
import contextlib
from datetime import datetime

from windrow.bootstrap.guest_account import GuestAccount
from windrow.clusters.api.cluster import Cluster
from windrow.clusters.api.references import parse_secret_reference
from windrow.clusters.api.secrets import (
    CredentialError,
    SecretData,
    read_given_credential,
    read_guest_credential,
)
from windrow.clusters.context import ReconcileContext
from windrow.clusters.sources.credentials import CredentialProber
from windrow.clusters.sources.harvester_objects import HarvesterObjects
from windrow.clusters.sources.harvesters import HarvesterClients
from windrow.clusters.state import ClusterState, CredentialProblem, GuestCredentialState, Place
from windrow.core import pki
from windrow.kubernetes.errors import KubeError
from windrow.kubernetes.objects import is_deleting
from windrow.machines.port import HARVESTER


class CredentialObserver:
    """Reads, without side effects. Which credentials a Cluster's namespace may use is asked of nothing else."""

    def __init__(
        self,
        context: ReconcileContext,
        harvesters: HarvesterClients,
        prober: CredentialProber,
        objects: HarvesterObjects,
    ) -> None:
        self._context, self._harvesters = context, harvesters
        self._prober, self._objects = prober, objects

    def list_allowed(self, cluster: Cluster) -> list[str]:
        """Its credentials for a Harvester that its namespace may use."""
        return [one for one in credentials_of(cluster) if self.find_refusal(one, cluster) is None]

    def list_unprobed(self, cluster: Cluster) -> list[str]:
        """Credentials that lead to a Harvester of which it is not known yet whether it answers."""
        return [one for one in self.list_allowed(cluster) if not self._prober.was_probed(one)]

    def find_refusal(self, credential: str, cluster: Cluster) -> CredentialError | None:
        """Why the Cluster's namespace may not use it; None where it may."""
        try:
            self._context.require_consent(credential, cluster.namespace)
        except CredentialError as error:
            return error
        return None

    def find_problems(self, state: ClusterState) -> tuple[CredentialProblem, ...] | None:
        """None as long as one of them was not tried yet, unless another is refused."""
        cluster, prober = state.cluster, self._prober
        probed = self.list_allowed(cluster)
        refused = [
            CredentialProblem(error.message, error.hint, is_rejected=True, is_allowed=False)
            for credential in sorted({*credentials_of(cluster), *(pool.credential for pool in cluster.pools)})
            if ":" in credential and (error := self.find_refusal(credential, cluster)) is not None
        ]
        if not refused and not all(prober.was_probed(credential) for credential in probed):
            return None
        return (
            *refused,
            *filter(None, (prober.find_problem(credential, state.harvester_uid) for credential in probed)),
        )

    def find_end(self, cluster: Cluster) -> tuple[str, datetime] | None:
        """The client certificate for Harvester that ends first, of those that the kubeconfigs hold."""
        ends = []
        for credential in self.list_allowed(cluster):
            with contextlib.suppress(CredentialError, pki.NotCertificate):
                if held := self._harvesters.get_config(credential, cluster.namespace).certificate:
                    ends.append((pki.read_certificate(held).not_after, credential))
        return min(ends)[::-1] if ends else None

    def find_for_versions(self, cluster: Cluster) -> str:
        """The credential whose Harvester is asked about versions while the cluster runs: all of a cluster lead to one; "" for
        none."""
        if not cluster.recorded.initialized:
            return ""
        allowed = self.list_allowed(cluster)
        named = sorted({pool.credential for pool in cluster.pools if pool.driver == HARVESTER})
        return next((one for one in named if one in allowed), "")

    def read_for_guest(self, cluster: Cluster, kept: SecretData | None) -> GuestCredentialState:
        """The credential of the guest's cloud provider: the one that the spec names, or the one that is `kept` for the Cluster."""
        given_ref = parse_secret_reference(cluster.cloud_config_secret)
        if given_ref is not None:
            try:
                self._context.require_consent(cluster.cloud_config_secret, cluster.namespace)
            except CredentialError as error:
                return GuestCredentialState("refused", because=f"{error.message}; {error.hint}")
            given = read_given_credential(self._context.secrets.get(given_ref), cluster)
            if given is not None:
                return GuestCredentialState("ready", given)
        if cluster.cloud_provider != "harvester" and not cluster.cloud_config_secret:
            return GuestCredentialState("unneeded")
        made = read_guest_credential(kept, cluster)
        if made is not None:
            return GuestCredentialState("ready", made)
        return GuestCredentialState("missing" if cluster.recorded.service_account is None else "pending")

    async def has_lost_account(self, state: ClusterState) -> bool:
        """Whether the ServiceAccount that we created for the guest, or its token, is not on Harvester any more."""
        cluster, recorded = state.cluster, state.recorded.service_account
        if state.guest_credential.state != "ready" or recorded is None or cluster.cloud_config_secret:
            return False
        account = GuestAccount(recorded.name, recorded.namespace, cluster.uid)
        place = Place(recorded.credential, recorded.namespace, cluster.namespace)
        if self._objects.has_account(recorded.name, account.token.name, cluster.uid, place) is not False:
            return False
        try:
            client = await self._harvesters.get_verified_client(recorded, cluster.namespace)
            found = await asyncio.gather(client.find(account.account), client.find(account.token))
        except (CredentialError, KubeError):
            return False
        # One that is there and lacks our annotation, or has another's, is not ours to replace.
        return any(raw is None or is_deleting(raw) for raw in found)


def credentials_of(cluster: Cluster) -> list[str]:
    """Every credential for a Harvester that it names, `namespace:name` each."""
    named = {pool.credential for pool in cluster.pools if pool.driver == HARVESTER}
    if named or not cluster.pools or cluster.cloud_provider == "harvester":
        named.add(cluster.credential)
    return sorted(credential for credential in named if ":" in credential)
