"""One connection per credential, renewed when its kubeconfig changes.

The kubeconfig is read afresh for every operation, so a replaced Secret takes effect everywhere at once: whoever
notices first retires the old connection, and the watches that stand on it end.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeVar

from windrow.client.cache import Cache
from windrow.client.transport import Transport
from windrow.harvester.access import explain
from windrow.harvester.identity import BY_CA, ask_identity, fingerprint, read_identity
from windrow.kube.errors import Forbidden, KubeError
from windrow.kube.kubeconfig import Access, BadKubeconfig, parse_kubeconfig
from windrow.kube.refs import Kind
from windrow.machines.port import InfrastructureUnknown, MachineRefused, Problem
from windrow.machines.runner import run
from windrow.nodedriver.problems import Busy, Refused
from windrow.nodedriver.steps import NotInTime, Talk, answer
from windrow.values.clock import Clock

R = TypeVar("R")

Credentials = Callable[[str], Awaitable[str]]  # "namespace:name" -> kubeconfig text
Dial = Callable[[Access], Transport]

log = logging.getLogger(__name__)


class Connection:
    """One Harvester as one credential sees it. How patient its requests are is for whoever dials to say."""

    def __init__(
        self,
        credential: str,
        kubeconfig: str,
        access: Access,
        transport: Transport,
        clock: Clock,
    ) -> None:
        self.credential = credential
        self.kubeconfig = kubeconfig
        self.access = access
        self.transport = transport
        self.retired = asyncio.Event()
        self._clock = clock
        self._identity = ""
        self._asking = asyncio.Lock()

    async def identity(self) -> str:
        """The Harvester's identity, asked once. Raises InfrastructureUnknown."""
        async with self._asking:
            if not self._identity:
                self._identity = await self._ask_identity()
        return self._identity

    async def confirm(self, recorded: str) -> str:
        """The identity, which must be the recorded one where one is recorded. Raises InfrastructureUnknown."""
        if recorded.startswith(BY_CA):
            found = self.fingerprint  # the credential may see more by now; like is compared with like
        else:
            found = await self.identity()
        return self._insist(recorded, found)

    async def compare(self, recorded: str) -> str:
        """As `confirm`, and nobody is asked: the CA has to say which Harvester it is."""
        return self._insist(recorded, self.fingerprint)

    def _insist(self, recorded: str, found: str) -> str:
        if not recorded or found == recorded:
            return found
        if found.startswith(BY_CA):
            raise InfrastructureUnknown(
                f"credential {self.credential} may not read the kube-system namespace of {self.access.server}, "
                f"so nobody can tell whether that is Harvester {recorded}, on which the machine was made",
                "give its user the right to get that namespace",
            )
        raise InfrastructureUnknown(
            f"credential {self.credential} leads to {self.access.server}, which is Harvester {found}; "
            f"the machine was made on Harvester {recorded}",
            "put the kubeconfig of the right Harvester into the credential Secret",
        )

    async def run(self, talk: Talk[R], caches: Mapping[Kind, Cache[Any]] | None = None) -> R:
        """The talk's result. Raises MachineRefused and InfrastructureUnknown, nothing else of Harvester's."""
        try:
            return await run(talk, self.transport, caches or {}, self._clock, log.info)
        except Refused as refused:
            raise MachineRefused([port_problem(problem) for problem in refused.problems]) from refused
        except Busy as busy:
            raise InfrastructureUnknown(busy.fact, busy.cure) from busy
        except NotInTime as late:
            raise InfrastructureUnknown(str(late), "look at the VM in Harvester") from late
        except KubeError as error:
            raise self.unknown(error) from error

    def unknown(self, error: KubeError) -> InfrastructureUnknown:
        """The error in the port's words: which server, which credential, what to do."""
        return InfrastructureUnknown(*explain(error, self.access.server, self.credential))

    async def close(self) -> None:
        """Let go of the sockets; watches that stand on them end."""
        self.retired.set()
        if (aclose := getattr(self.transport, "aclose", None)) is not None:
            await aclose()

    async def _ask_identity(self) -> str:
        try:
            return read_identity(answer(await self.transport.send(ask_identity())))
        except Forbidden:
            return self.fingerprint
        except KubeError as error:
            raise self.unknown(error) from error

    @property
    def fingerprint(self) -> str:
        """Its identity as far as the kubeconfig alone tells it."""
        return fingerprint(self.access)


class Connections:
    """The connections in use, by credential."""

    def __init__(self, credentials: Credentials, dial: Dial, clock: Clock) -> None:
        self._credentials, self._dial, self._clock = credentials, dial, clock
        self._open: dict[str, Connection] = {}

    async def get(self, credential: str) -> Connection:
        """The connection that the credential stands for now. Raises InfrastructureUnknown."""
        kubeconfig = await self._read(credential)
        held = self._open.get(credential)
        if held is not None and held.kubeconfig == kubeconfig:
            return held
        try:
            access = parse_kubeconfig(kubeconfig)
            transport = self._dial(access)
        except BadKubeconfig as bad:
            raise InfrastructureUnknown(
                f"credential {credential} holds no usable kubeconfig: {bad.fact}", bad.cure
            ) from bad
        except KubeError as error:
            raise InfrastructureUnknown(*explain(error, access.server, credential)) from error
        opened = Connection(credential, kubeconfig, access, transport, self._clock)
        self._open[credential] = opened
        if held is not None:
            log.info("credential %s has a new kubeconfig; the old connection is closed", credential)
            await held.close()
        return opened

    async def retire(self, connection: Connection) -> None:
        """The credential no longer stands for this connection; the next `get` opens another."""
        if self._open.get(connection.credential) is connection:
            del self._open[connection.credential]
        await connection.close()

    async def close(self) -> None:
        while self._open:
            _, connection = self._open.popitem()
            await connection.close()

    async def _read(self, credential: str) -> str:
        try:
            return await self._credentials(credential)
        except InfrastructureUnknown:
            raise
        except (KubeError, LookupError, ValueError) as error:  # absent, forbidden, or not base64 of text
            raise InfrastructureUnknown(
                f"credential {credential} cannot be read: {error}",
                "create that Secret with a Harvester kubeconfig, or name another",
            ) from error


def port_problem(problem: Any) -> Problem:
    """The driver's problem as the port's; they have the same parts, on two sides of a wall."""
    return Problem(problem.fact, problem.cure, problem.field, problem.severity)
