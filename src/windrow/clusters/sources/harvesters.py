"""Clients of the Harvesters that credential Secrets lead to."""

from __future__ import annotations

from dataclasses import dataclass

from windrow.client.client import Client
from windrow.client.mutation_cache import MutationCache
from windrow.client.transport import Transport
from windrow.clusters.api.endpoint import BalancerLocation
from windrow.clusters.api.references import parse_secret_reference
from windrow.clusters.api.secrets import CredentialError, SecretData, read_credential, require_consent
from windrow.clusters.api.status import GuestServiceAccount
from windrow.clusters.sources.guest_api import Connect
from windrow.harvester.connection import describe_credential
from windrow.harvester.identity import (
    CA_PREFIX,
    IDENTITY,
    ca_fingerprint,
    compare_identity,
    read_identity,
)
from windrow.kubernetes.errors import Forbidden
from windrow.kubernetes.kubeconfig import ClientConfig


def server_of(access: ClientConfig) -> ClientConfig:
    """The API server as the kubeconfig names it, without the user: what it says of itself proves nothing."""
    return ClientConfig(
        access.server,
        ca=access.ca,
        proxy_url=access.proxy_url,
        insecure=access.insecure,
        tls_server_name=access.tls_server_name,
    )


@dataclass(frozen=True, slots=True)
class VmLocation:
    """Where the VM of a machine was made, and the credential for it."""

    namespace: str
    name: str
    credential: str
    harvester: str

    def __str__(self) -> str:
        return f"VirtualMachine {self.namespace}/{self.name}"


class HarvesterClients:
    """One client for each credential, replaced when its Secret changes.

    `proxy` is the proxy through which guests are reached, where the credential's own is not to be used.
    """

    def __init__(self, secrets: MutationCache[SecretData], connect: Connect, proxy: str = "") -> None:
        self._secrets = secrets
        self._connect = connect
        self._proxy = proxy
        self._configs: dict[str, tuple[SecretData, ClientConfig]] = {}
        self._clients: dict[str, tuple[ClientConfig, Client]] = {}

    def read_config(self, credential: str) -> ClientConfig:
        """For the probe of the credential itself, which is not the request of any Cluster. Raises CredentialError."""
        return self._read(credential, self._find_secret(credential))

    def get_config(self, credential: str, namespace: str) -> ClientConfig:
        """For Clusters in `namespace`. Raises CredentialError, also where the Secret does not allow that namespace."""
        secret = self._find_secret(credential)
        require_consent(credential, secret, namespace)
        return self._read(credential, secret)

    def _read(self, credential: str, secret: SecretData | None) -> ClientConfig:
        """Each reconcile asks; the kubeconfig is parsed again when its Secret has changed."""
        known = self._configs.get(credential)
        if known is None or known[0] != secret:
            self._configs.pop(credential, None)
            config = read_credential(credential, secret)
            if secret is not None:
                self._configs[credential] = (secret, config)
            return config
        return known[1]

    def _find_secret(self, credential: str) -> SecretData | None:
        ref = parse_secret_reference(credential)
        return self._secrets.get(ref) if ref is not None else None

    def get_client(self, credential: str, namespace: str) -> Client:
        """For Clusters in `namespace`. Raises CredentialError."""
        config = self.get_config(credential, namespace)
        known = self._clients.get(credential)
        if known is None or known[0] != config:
            transport: Transport = self._connect(config)
            known = self._clients[credential] = (config, Client(transport))
        return known[1]

    async def get_verified_client(
        self, account: GuestServiceAccount | BalancerLocation | VmLocation, namespace: str
    ) -> Client:
        """The client of the very Harvester that the ServiceAccount, the endpoint, or the VM is on. Raises CredentialError.

        What another Harvester has, or has not, proves nothing about them.
        """
        client = self.get_client(account.credential, namespace)
        if not account.harvester:
            return client
        fingerprint = ca_fingerprint(self.get_config(account.credential, namespace))
        by_ca = account.harvester.startswith(CA_PREFIX)
        found = fingerprint if by_ca else read_identity(await client.get(IDENTITY))
        if compare_identity(account.harvester, found, fingerprint) != "same":
            raise CredentialError(
                f"the {describe_credential(account.credential)} leads to another Harvester ({found}) than the one with "
                f"{_describe(account)} ({account.harvester})",
                "put the kubeconfig of that Harvester into the credential Secret",
            )
        return client

    def find_proxy(self, credential: str, namespace: str) -> str:
        """The proxy through which machines on the credential's Harvester are reached, "" for none."""
        if self._proxy:
            return self._proxy
        try:
            return self.get_config(credential, namespace).proxy_url
        except CredentialError:
            return ""


def _describe(account: GuestServiceAccount | BalancerLocation | VmLocation) -> str:
    if isinstance(account, BalancerLocation):
        return f"the cluster's LoadBalancer in namespace {account.namespace}"
    if isinstance(account, VmLocation):
        return str(account)
    return f"ServiceAccount {account}"


async def find_harvester_uid(client: Client) -> str:
    """The identity of a Harvester, "" where it may not be read."""
    try:
        return read_identity(await client.get(IDENTITY))
    except Forbidden:
        return ""
