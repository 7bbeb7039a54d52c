"""HarvesterReader: what pages read on Harvesters, each with a credential that its user may read on the management API.

Nothing is kept between two pages: neither a connection nor an answer. A tenant chooses the server of a credential, so a page
waits for one READ_S at most, of one user PER_USER are asked at once, of all AT_ONCE; and a kubeconfig that names programs
or files of this computer is refused.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeVar

from windrow.app.embedded import read_credential
from windrow.app.network import Connect
from windrow.client.client import Client
from windrow.client.transport import Transport
from windrow.core.errors import UserError
from windrow.kubernetes.errors import KubeError
from windrow.kubernetes.kubeconfig import BadKubeconfig, ClientConfig, parse_kubeconfig

T = TypeVar("T")

READ_S = 5.0
AT_ONCE, PER_USER = 8, 2
# Harvester's own are of 3 to 8 KiB; YAML of a megabyte would hold up every other page.
MAX_KUBECONFIG_LENGTH = 64 * 1024


class UnreadableHarvester(UserError):
    """Harvester cannot be read now, or not with this credential."""


@dataclass(frozen=True, slots=True)
class OpenHarvester:
    """A Harvester while it is read: the transport with its credential, and what the kubeconfig says."""

    transport: Transport
    config: ClientConfig


class HarvesterReader:
    """Reads Harvesters for all pages of a dashboard."""

    def __init__(self, connect: Connect) -> None:
        self._connect = connect
        self._reading: Counter[str] = Counter()

    async def read(
        self, api: Client, user: str, reference: str, work: Callable[[OpenHarvester], Awaitable[T]]
    ) -> T:
        """What `work` reads with the credential Secret `NAMESPACE:NAME`, as far as `api`, which asks as `user`, may get it.
        Raises UnreadableHarvester, and KubeError of the management API alone."""
        config = _parse(reference, await _read_secret(api, reference))
        if self._reading.total() >= AT_ONCE or self._reading[user] >= PER_USER:
            raise UnreadableHarvester("Other pages read from Harvesters just now.", "Load the page again.")
        self._reading[user] += 1
        try:
            return await self._read(config, work)
        finally:
            self._reading[user] -= 1
            self._reading += Counter()  # without users who read nothing

    async def _read(self, config: ClientConfig, work: Callable[[OpenHarvester], Awaitable[T]]) -> T:
        transport = self._connect(config)
        try:
            async with asyncio.timeout(READ_S):
                return await work(OpenHarvester(transport, config))
        except TimeoutError as error:
            raise UnreadableHarvester(
                f"Harvester {config.server} has not answered within {READ_S:.0f} s.", "Load the page again."
            ) from error
        except (TypeError, ValueError) as error:
            raise UnreadableHarvester(
                f"{config.server} sends objects of another shape than Harvester's.",
                "Correct the server in the kubeconfig.",
            ) from error
        except KubeError as error:
            raise UnreadableHarvester(
                f"Harvester {config.server} cannot be read: {error.message}",
                "The cluster's condition CredentialValid says what the manager finds.",
            ) from error
        finally:
            await transport.aclose()


async def _read_secret(api: Client, reference: str) -> str:
    try:
        return await read_credential(api, reference)
    except ValueError as error:
        raise UnreadableHarvester(
            f"Secret {reference} holds no kubeconfig: it is not base64 of a text.", "Write it again, whole."
        ) from error


def _parse(reference: str, text: str) -> ClientConfig:
    if len(text) > MAX_KUBECONFIG_LENGTH:
        raise UnreadableHarvester(
            f"Secret {reference}: the kubeconfig has {len(text)} characters, and at most {MAX_KUBECONFIG_LENGTH} are read.",
            "Keep the one context that is used: kubectl config view --minify --raw",
        )
    try:
        return parse_kubeconfig(text)
    except BadKubeconfig as bad:
        raise UnreadableHarvester(f"Secret {reference}: {bad.message}", bad.hint) from bad
