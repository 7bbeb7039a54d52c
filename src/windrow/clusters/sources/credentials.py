"""Credentials for Harvester, probed before they are needed: a rejected one is reported while the cluster is Ready.

One read for each credential: at the start, when its Secret changes, when the state of a machine becomes unknown, and
every RETRY_INTERVAL while it does not work.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import timedelta

from windrow.client.client import Client
from windrow.clusters.api.cluster import list_secret_references
from windrow.clusters.api.secrets import CredentialError
from windrow.clusters.sources.guest_api import Connect
from windrow.clusters.state import CredentialProblem
from windrow.core.clock import Clock
from windrow.core.wait import wait_first
from windrow.harvester.connection import connection_problem
from windrow.kubernetes.errors import CertificateError, Forbidden, KubeError, Unauthorized
from windrow.kubernetes.kubeconfig import ClientConfig
from windrow.kubernetes.objects import Raw, uid_of
from windrow.kubernetes.resources import NAMESPACE, ObjectRef

RETRY_INTERVAL = timedelta(seconds=10)

# An answer and a 403 both prove that Harvester knows the user.
_PROBED = NAMESPACE.ref("kube-system")


class SecretUsers:
    """Which Clusters use which Secret (`namespace:name`): an index over the references in their specs."""

    def __init__(self) -> None:
        self._references: dict[ObjectRef, tuple[str, frozenset[str]]] = {}
        self._users: dict[str, set[ObjectRef]] = {}

    def update(self, ref: ObjectRef, raw: Raw | None) -> None:
        """The Cluster `ref` is as `raw` now, or deleted."""
        for secret in self._references.pop(ref, ("", frozenset[str]()))[1]:
            self._users[secret].discard(ref)
            if not self._users[secret]:
                del self._users[secret]
        if raw is None:
            return
        secrets = list_secret_references(raw)
        self._references[ref] = (uid_of(raw), secrets)
        for secret in secrets:
            self._users.setdefault(secret, set()).add(ref)

    def find(self, secret: str, owner_uid: str = "") -> list[ObjectRef]:
        """The Clusters that refer to the Secret, and the one with uid `owner_uid`, to which it belongs."""
        users = set(self._users.get(secret, ()))
        if owner_uid:
            users |= {ref for ref, (uid, _) in self._references.items() if uid == owner_uid}
        return sorted(users, key=str)


class CredentialProber:
    """The result of the last probe of each credential; `on_change` is called with a credential whose result changed."""

    def __init__(
        self,
        get_access: Callable[[str], ClientConfig],
        connect: Connect,
        clock: Clock,
        on_change: Callable[[str], None],
    ) -> None:
        self._get_access, self._connect, self._clock, self._on_change = get_access, connect, clock, on_change
        self._results: dict[str, CredentialProblem | None] = {}
        self._requests: dict[str, asyncio.Event] = {}

    def was_probed(self, credential: str) -> bool:
        return credential in self._results

    def find_problem(self, credential: str) -> CredentialProblem | None:
        """Why it does not work, as of the last probe; None when Harvester accepts it, or it was not probed yet."""
        return self._results.get(credential)

    def open(self, group: asyncio.TaskGroup, credential: str) -> None:
        """Probe it from now on. May be repeated."""
        if credential not in self._requests:
            self._requests[credential] = asyncio.Event()
            group.create_task(self._run(credential), name=f"probe {credential}")

    def probe_again(self, credential: str) -> None:
        """Probe it now, if it is probed at all."""
        if request := self._requests.get(credential):
            request.set()

    async def _run(self, credential: str) -> None:
        request = self._requests[credential]
        while True:
            request.clear()
            result = await self._probe(credential)
            if credential not in self._results or self._results[credential] != result:
                self._results[credential] = result
                self._on_change(credential)
            if result is None:
                await request.wait()
            else:
                await wait_first(self._clock, RETRY_INTERVAL, request)

    async def _probe(self, credential: str) -> CredentialProblem | None:
        try:
            access = self._get_access(credential)
        except CredentialError as missing:
            return CredentialProblem(missing.message, missing.hint, is_rejected=True)
        try:
            transport = self._connect(access)
            try:
                await Client(transport).find(_PROBED)
            finally:
                await transport.aclose()
        except Forbidden:
            return None
        except KubeError as error:
            certain = isinstance(error, Unauthorized | CertificateError)
            return CredentialProblem(
                *connection_problem(error, access.server, credential), is_rejected=certain
            )
        return None
