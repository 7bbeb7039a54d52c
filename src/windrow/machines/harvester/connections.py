"""One connection per credential, renewed when its kubeconfig changes.

The kubeconfig is read afresh for every operation, so a replaced Secret takes effect everywhere at once: whoever
notices first retires the old connection, and the watches that stand on it end.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeVar

from windrow.client.informer import Cache
from windrow.client.transport import Transport
from windrow.core.clock import Clock
from windrow.harvester.connection import connection_problem
from windrow.harvester.identity import CA_PREFIX, ca_fingerprint, identity_request, read_identity
from windrow.kubernetes.errors import Forbidden, KubeError
from windrow.kubernetes.kubeconfig import BadKubeconfig, ClientConfig, parse_kubeconfig
from windrow.kubernetes.resources import ApiResource
from windrow.machines.harvester.runner import run_operation
from windrow.machines.port import InfrastructureUnknown, MachineRefused, Problem
from windrow.nodedriver.effects import Operation, WaitTimeout, parse_reply
from windrow.nodedriver.errors import Busy, Refused

R = TypeVar("R")

ReadKubeconfig = Callable[[str], Awaitable[str]]  # "namespace:name" -> kubeconfig text
Connect = Callable[[ClientConfig], Transport]

log = logging.getLogger(__name__)


class Connection:
    """One Harvester as one credential sees it. How patient its requests are is for whoever dials to say."""

    def __init__(
        self,
        credential: str,
        kubeconfig: str,
        client_config: ClientConfig,
        transport: Transport,
        clock: Clock,
    ) -> None:
        self.credential = credential
        self.kubeconfig = kubeconfig
        self.client_config = client_config
        self.transport = transport
        self.retired = asyncio.Event()
        self._clock = clock
        self._identity = ""
        self._identity_lock = asyncio.Lock()

    async def identity(self) -> str:
        """The Harvester's identity, asked once. Raises InfrastructureUnknown."""
        async with self._identity_lock:
            if not self._identity:
                self._identity = await self._read_identity()
        return self._identity

    async def verify_identity(self, recorded: str) -> str:
        """The identity, which must be the recorded one where one is recorded. Raises InfrastructureUnknown."""
        if recorded.startswith(CA_PREFIX):
            found = self.fingerprint  # the credential may see more by now; like is compared with like
        else:
            found = await self.identity()
        return self._require_identity(recorded, found)

    async def verify_fingerprint(self, recorded: str) -> str:
        """As `confirm`, and nobody is asked: the CA has to say which Harvester it is."""
        return self._require_identity(recorded, self.fingerprint)

    def _require_identity(self, recorded: str, found: str) -> str:
        if not recorded or found == recorded:
            return found
        if found.startswith(CA_PREFIX):
            raise InfrastructureUnknown(
                f"credential {self.credential} may not read the kube-system namespace of {self.client_config.server}, "
                f"so nobody can tell whether that is Harvester {recorded}, on which the machine was made",
                "give its user the right to get that namespace",
            )
        raise InfrastructureUnknown(
            f"credential {self.credential} leads to {self.client_config.server}, which is Harvester {found}; "
            f"the machine was made on Harvester {recorded}",
            "put the kubeconfig of the right Harvester into the credential Secret",
        )

    async def run(self, operation: Operation[R], caches: Mapping[ApiResource, Cache[Any]] | None = None) -> R:
        """The talk's result. Raises MachineRefused and InfrastructureUnknown, nothing else of Harvester's."""
        try:
            return await run_operation(operation, self.transport, caches or {}, self._clock, log.info)
        except Refused as refused:
            raise MachineRefused([port_problem(problem) for problem in refused.problems]) from refused
        except Busy as busy:
            raise InfrastructureUnknown(busy.message, busy.hint) from busy
        except WaitTimeout as late:
            raise InfrastructureUnknown(str(late), "look at the VM in Harvester") from late
        except KubeError as error:
            raise self.translate_error(error) from error

    def translate_error(self, error: KubeError) -> InfrastructureUnknown:
        """The error in the port's words: which server, which credential, what to do."""
        return InfrastructureUnknown(*connection_problem(error, self.client_config.server, self.credential))

    async def close(self) -> None:
        """Let go of the sockets; watches that stand on them end."""
        self.retired.set()
        await self.transport.aclose()

    async def _read_identity(self) -> str:
        try:
            return read_identity(parse_reply(await self.transport.send(identity_request())))
        except Forbidden:
            return self.fingerprint
        except KubeError as error:
            raise self.translate_error(error) from error

    @property
    def fingerprint(self) -> str:
        """Its identity as far as the kubeconfig alone tells it."""
        return ca_fingerprint(self.client_config)


class Connections:
    """The connections in use, by credential."""

    def __init__(self, read_kubeconfig: ReadKubeconfig, connect: Connect, clock: Clock) -> None:
        self._read_kubeconfig, self._connect, self._clock = read_kubeconfig, connect, clock
        self._connections: dict[str, Connection] = {}

    async def get(self, credential: str) -> Connection:
        """The connection that the credential stands for now. Raises InfrastructureUnknown."""
        kubeconfig = await self._read(credential)
        current = self._connections.get(credential)
        if current is not None and current.kubeconfig == kubeconfig:
            return current
        try:
            client_config = parse_kubeconfig(kubeconfig)
            transport = self._connect(client_config)
        except BadKubeconfig as bad:
            raise InfrastructureUnknown(
                f"credential {credential} holds no usable kubeconfig: {bad.message}", bad.hint
            ) from bad
        except KubeError as error:
            raise InfrastructureUnknown(
                *connection_problem(error, client_config.server, credential)
            ) from error
        connection = Connection(credential, kubeconfig, client_config, transport, self._clock)
        self._connections[credential] = connection
        if current is not None:
            log.info("credential %s has a new kubeconfig; the old connection is closed", credential)
            await current.close()
        return connection

    async def retire(self, connection: Connection) -> None:
        """The credential no longer stands for this connection; the next `get` opens another."""
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
                f"credential {credential} cannot be read: {error}",
                "create that Secret with a Harvester kubeconfig, or name another",
            ) from error


def port_problem(problem: Any) -> Problem:
    """The driver's problem as the port's; they have the same parts, on two sides of a wall."""
    return Problem(problem.message, problem.hint, problem.field, problem.severity)
