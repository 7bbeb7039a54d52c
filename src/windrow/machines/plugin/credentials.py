"""The credential of a plugin, and the Harvester or account that it leads to.

A foreign driver cannot be asked which account it works in, and with another account it answers "not found" for every
machine. So the account is identified by a digest of the credential's fields: of those that are no secrets (an address,
a user, a project) where there are any, else of all. With the latter a renewed token looks like another account; until
a machine is found with it, or its Secret declares the same account, "not found" is not believed.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from windrow.client.client import Client
from windrow.core.formats.json import dumps
from windrow.harvester.connection import describe_credential
from windrow.harvester.resources import VM, VMI
from windrow.harvester.vmis import read_vmi
from windrow.harvester.vms import cloud_init_secrets_of, find_run
from windrow.kubernetes.errors import KubeError
from windrow.kubernetes.objects import is_deleting, uid_of
from windrow.kubernetes.resources import SECRET
from windrow.machines.harvester.connections import Connect, Connections, ReadKubeconfig
from windrow.machines.port import HARVESTER, InfrastructureUnknown

# (driver, "namespace:name") -> fields of the credential (`<driver>credentialConfig-<field>` in the Secret).
ReadCredentialFields = Callable[[str, str], Awaitable[Mapping[str, str]]]

KUBECONFIG = "kubeconfigContent"
# A field that no driver gets: digests of other accounts, comma-separated, that are the same account.
SAME_ACCOUNT = "windrowSameAccountAs"
_SECRET_FIELD = re.compile(r"pass|secret|token|key|pem|cert|credential|content|json", re.IGNORECASE)
# The kernel's limit is MAX_ARG_STRLEN; longer fields reach the driver by a flag or its config.
_MAX_ENV_LENGTH = 120 * 1024


@dataclass(frozen=True, slots=True)
class ResolvedCredential:
    """The current content of a credential. `env` are the environment variables of the plugin."""

    credential: str
    fields: Mapping[str, str] = field(repr=False)
    env: Mapping[str, str] = field(repr=False)
    harvester_uid: str = ""
    account: str = ""
    same_accounts: frozenset[str] = frozenset()

    def is_for_account(self, recorded: str) -> bool:
        """Whether the credential is known to be for the recorded account."""
        return recorded in ("", self.account) or recorded in self.same_accounts


@dataclass(frozen=True, slots=True)
class StartState:
    """Of a VM on Harvester: the cloud-init Secrets that do not exist, and what shows that it has run ("": it never did, or it
    is being deleted)."""

    name: str
    missing_secrets: tuple[str, ...] = ()
    run: str = ""


class CredentialResolver:
    """Reads the credential Secret for each use, so that a rotated one takes effect at once."""

    def __init__(
        self, read_kubeconfig: ReadKubeconfig, read_fields: ReadCredentialFields, connect: Connect
    ) -> None:
        self._read_fields = read_fields
        self._connections = Connections(read_kubeconfig, connect)
        self._accounts: dict[str, tuple[Mapping[str, str], str]] = {}

    async def resolve(self, driver: str, credential: str, recorded: str = "") -> ResolvedCredential:
        """The credential, which must lead to the recorded Harvester. Raises InfrastructureUnknown."""
        if driver == HARVESTER:
            connection = await self._connections.get(credential)
            identity = await connection.verify_identity(recorded)
            return _resolved_credential(driver, credential, {KUBECONFIG: connection.kubeconfig}, identity)
        try:
            fields = dict(await self._read_fields(driver, credential))
        except InfrastructureUnknown:
            raise
        except (KubeError, LookupError, ValueError) as error:
            raise InfrastructureUnknown(
                f"{describe_credential(credential)} cannot be read: {error}",
                f"create that Secret with the fields of driver {driver}, or name another",
            ) from error
        same_accounts = frozenset(text.strip() for text in fields.pop(SAME_ACCOUNT, "").split(","))
        return replace(
            _resolved_credential(driver, credential, fields),
            account=self._account(driver, credential, fields),
            same_accounts=same_accounts - {""},
        )

    def _account(self, driver: str, credential: str, fields: Mapping[str, str]) -> str:
        cached = self._accounts.get(credential)
        if cached is None or cached[0] != fields:
            cached = self._accounts[credential] = (fields, account_digest(driver, fields))
        return cached[1]

    async def find_vm(self, credential: str, name: str, namespace: str) -> Mapping[str, Any] | None:
        """The VM by our own client. Raises InfrastructureUnknown."""
        connection = await self._connections.get(credential)
        try:
            return await Client(connection.transport).find(VM.ref(name, namespace))
        except KubeError as error:
            raise connection.translate_error(error) from error

    async def observe_start(self, credential: str, name: str, namespace: str) -> StartState | None:
        """What the VM starts with, and whether it has. None where there is no VM. Raises InfrastructureUnknown."""
        connection = await self._connections.get(credential)
        client = Client(connection.transport)
        try:
            if (raw_vm := await client.find(VM.ref(name, namespace))) is None:
                return None
            raw_vmi = await client.find(VMI.ref(name, namespace))
            missing = [
                secret
                for secret in sorted(cloud_init_secrets_of(raw_vm))
                if await client.find(SECRET.ref(secret, namespace)) is None
            ]
        except KubeError as error:
            raise connection.translate_error(error) from error
        is_own = raw_vmi is not None and read_vmi(raw_vmi).vm_uid == uid_of(raw_vm)
        run = "" if is_deleting(raw_vm) else find_run(raw_vm, raw_vmi if is_own else None)
        return StartState(f"{namespace}/{name}", tuple(missing), run)

    async def close(self) -> None:
        await self._connections.close()


def _resolved_credential(
    driver: str, credential: str, fields: Mapping[str, str], harvester_uid: str = ""
) -> ResolvedCredential:
    env = {_env_name(driver, name): text for name, text in fields.items() if _fits(text)}
    return ResolvedCredential(credential, dict(fields), env, harvester_uid)


def account_digest(driver: str, fields: Mapping[str, str]) -> str:
    """A digest that is slow to compute, since the fields may hold a password."""
    public = {name: text for name, text in fields.items() if text and not _SECRET_FIELD.search(name)}
    digested = dumps([[name, text] for name, text in sorted((public or fields).items())])
    return hashlib.scrypt(digested, salt=f"windrow:{driver}".encode(), n=4096, r=8, p=1, dklen=16).hex()


def _fits(text: str) -> bool:
    return 0 < len(text.encode()) < _MAX_ENV_LENGTH and "\0" not in text


def _env_name(driver: str, name: str) -> str:
    """`HARVESTER_KUBECONFIG_CONTENT`, as Rancher hands credentials to rancher-machine."""
    kebab = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name)
    return re.sub(r"[^A-Z0-9_]", "_", f"{driver}_{kebab}".upper())
