"""One connection to Harvester per credential, replaced when its kubeconfig changes.

The kubeconfig is read for every operation, so that a changed Secret takes effect at once: the first operation that
reads the new one retires the old connection, which ends the watches over it and closes its transport.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import TypeVar

from windrow.client.client import Client
from windrow.client.transport import Transport
from windrow.core.logs import with_values
from windrow.harvester.connection import connection_problem, describe_credential
from windrow.harvester.identity import CA_PREFIX, IDENTITY, ca_fingerprint, compare_identity, read_identity
from windrow.kubernetes.errors import Forbidden, KubeError
from windrow.kubernetes.kubeconfig import BadKubeconfig, ClientConfig, parse_kubeconfig
from windrow.machines.harvester.runner import run_operation
from windrow.machines.port import InfrastructureUnknown, MachineRefused
from windrow.nodedriver.effects import Operation
from windrow.nodedriver.errors import Busy, Refused

R = TypeVar("R")

ReadKubeconfig = Callable[[str], Awaitable[str]]  # "namespace:name" -> kubeconfig text
Connect = Callable[[ClientConfig], Transport]

log = with_values(logging.getLogger(__name__))


class Connection:
    """The connection of one credential to its Harvester. Time-outs and retries are those of `transport`."""

    def __init__(
        self,
        credential: str,
        kubeconfig: str,
        client_config: ClientConfig,
        transport: Transport,
    ) -> None:
        self.credential = credential
        self.kubeconfig = kubeconfig
        self.client_config = client_config
        self.transport = transport
        self.retired = asyncio.Event()
        self._identity = ""
        self._identity_lock = asyncio.Lock()

    async def identity(self) -> str:
        """The Harvester's identity, read once. Raises InfrastructureUnknown."""
        async with self._identity_lock:
            if not self._identity:
                self._identity = await self._read_identity()
        return self._identity

    async def verify_identity(self, recorded: str) -> str:
        """The identity, which must be the recorded one where one is recorded. Raises InfrastructureUnknown."""
        # Compare like with like, even if the credential may read more by now.
        found = self.fingerprint if recorded.startswith(CA_PREFIX) else await self.identity()
        match = compare_identity(recorded, found, self.fingerprint)
        if match == "same":
            return found
        if match == "unknown":
            raise InfrastructureUnknown(
                f"{describe_credential(self.credential)} may not get Namespace kube-system at {self.client_config.server}, "
                f"which would show whether it is Harvester {recorded}, on which the machines of the cluster are",
                "grant its user `get` on Namespace kube-system",
            )
        raise InfrastructureUnknown(
            f"{describe_credential(self.credential)} leads to {self.client_config.server}, which is Harvester {found}; "
            f"the machines of the cluster are on Harvester {recorded}",
            "put the kubeconfig of the right Harvester into the credential Secret",
        )

    async def run(self, operation: Operation[R], transport: Transport | None = None) -> R:
        """The operation's result, over `transport` where that wraps the connection's own. Raises MachineRefused and
        InfrastructureUnknown, no other error of Harvester."""
        try:
            return await run_operation(operation, transport or self.transport, log.info)
        except Refused as refused:
            raise MachineRefused(refused.problems) from refused
        except Busy as busy:
            raise InfrastructureUnknown(busy.message, busy.hint) from busy
        except KubeError as error:
            raise self.translate_error(error) from error

    def translate_error(self, error: KubeError) -> InfrastructureUnknown:
        """The error as the port's InfrastructureUnknown: which server, which credential, what to do."""
        return InfrastructureUnknown(*connection_problem(error, self.client_config.server, self.credential))

    async def close(self) -> None:
        """Close the transport; watches over it end."""
        self.retired.set()
        await self.transport.aclose()

    async def _read_identity(self) -> str:
        try:
            return read_identity(await Client(self.transport).get(IDENTITY))
        except Forbidden:
            return self.fingerprint
        except KubeError as error:
            raise self.translate_error(error) from error

    @property
    def fingerprint(self) -> str:
        """The identity that follows from the kubeconfig alone: its CA."""
        return ca_fingerprint(self.client_config)


class Connections:
    """The connections in use, by credential."""

    def __init__(self, read_kubeconfig: ReadKubeconfig, connect: Connect) -> None:
        self._read_kubeconfig, self._connect = read_kubeconfig, connect
        self._connections: dict[str, Connection] = {}

    async def get(self, credential: str) -> Connection:
        """The connection for the credential's current kubeconfig. Raises InfrastructureUnknown."""
        kubeconfig = await self._read(credential)
        current = self._connections.get(credential)
        if current is not None and current.kubeconfig == kubeconfig:
            return current
        try:
            client_config = parse_kubeconfig(kubeconfig)
            transport = self._connect(client_config)
        except BadKubeconfig as bad:
            raise InfrastructureUnknown(
                f"{describe_credential(credential)} holds no usable kubeconfig: {bad.message}", bad.hint
            ) from bad
        except KubeError as error:
            raise InfrastructureUnknown(
                *connection_problem(error, client_config.server, credential)
            ) from error
        connection = Connection(credential, kubeconfig, client_config, transport)
        self._connections[credential] = connection
        if current is not None:
            log.info("the credential has a new kubeconfig; closing the old connection", secret=credential)
            await current.close()
        return connection

    async def retire(self, connection: Connection) -> None:
        """Close the connection; the next `get` opens another."""
        if self._connections.get(connection.credential) is connection:
            del self._connections[connection.credential]
        await connection.close()

    async def close(self) -> None:
        while self._connections:
            _, connection = self._connections.popitem()
            await connection.close()

    async def _read(self, credential: str) -> str:
        try:
            return await self._read_kubeconfig(credential)
        except InfrastructureUnknown:
            raise
        except (KubeError, LookupError, ValueError) as error:  # absent, forbidden, or not base64 of text
            raise InfrastructureUnknown(
                f"{describe_credential(credential)} cannot be read: {error}",
                "create that Secret with a Harvester kubeconfig, or name another",
            ) from error
