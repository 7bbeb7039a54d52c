"""Credentials are tried when they are new, not only when they are needed: a wrong one is told while all is well.

One cheap read for each credential: at the start, when its Secret holds something else, when a machine can no longer
be seen, and again and again while it opens nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import timedelta

from windrow.client.client import Client
from windrow.clusters.guests import Dial
from windrow.clusters.sealed import CredentialMissing
from windrow.clusters.seen import Shut
from windrow.harvester.access import explain
from windrow.kube.errors import Forbidden, KubeError, NotTrusted, Unauthorized
from windrow.kube.kubeconfig import Access
from windrow.kube.refs import NAMESPACE
from windrow.reconcile.alarm import either
from windrow.values.clock import Clock

AGAIN = timedelta(seconds=10)

# Whom it lets read this, and whom it says no, it knows.
_DOOR = NAMESPACE.ref("kube-system")


class Trials:
    """What came of trying each credential. `tell` is called with the credential whenever that has changed."""

    def __init__(
        self,
        get_access: Callable[[str], Access],
        dial: Dial,
        clock: Clock,
        tell: Callable[[str], None],
    ) -> None:
        self._get_access, self._dial, self._clock, self._tell = get_access, dial, clock, tell
        self._found: dict[str, Shut | None] = {}
        self._wanted: dict[str, asyncio.Event] = {}

    def was_tried(self, credential: str) -> bool:
        return credential in self._found

    def find_shut(self, credential: str) -> Shut | None:
        """Why it opens nothing, as of the last try; None when it opens Harvester, or was not tried yet."""
        return self._found.get(credential)

    def open(self, group: asyncio.TaskGroup, credential: str) -> None:
        """Try it from now on. May be repeated."""
        if credential not in self._wanted:
            self._wanted[credential] = asyncio.Event()
            group.create_task(self._keep_trying(credential), name=f"try {credential}")

    def again(self, credential: str) -> None:
        """Something speaks for trying it anew, if it is tried at all."""
        if wanted := self._wanted.get(credential):
            wanted.set()

    async def _keep_trying(self, credential: str) -> None:
        wanted = self._wanted[credential]
        while True:
            wanted.clear()
            found = await self._try(credential)
            if credential not in self._found or self._found[credential] != found:
                self._found[credential] = found
                self._tell(credential)
            if found is None:
                await wanted.wait()
            else:
                await either(self._clock, AGAIN, wanted)

    async def _try(self, credential: str) -> Shut | None:
        try:
            access = self._get_access(credential)
        except CredentialMissing as missing:
            return Shut(missing.fact, missing.cure, certain=True)
        try:
            transport = self._dial(access)
            try:
                await Client(transport).find(_DOOR)
            finally:
                if (aclose := getattr(transport, "aclose", None)) is not None:
                    await aclose()
        except Forbidden:
            return None  # it knows who asks
        except KubeError as error:
            certain = isinstance(error, Unauthorized | NotTrusted)
            return Shut(*explain(error, access.server, credential), certain=certain)
        return None
