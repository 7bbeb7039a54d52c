"""Credentials for Harvester, probed before they are needed: a rejected one is reported while the cluster is Ready.

One read for each credential, of what identifies its Harvester (a 403 proves, too, that Harvester knows the user): at the
start, when its Secret changes, when the state of a machine becomes unknown, when an action has failed, and every
VERIFY_INTERVAL, or RETRY_INTERVAL while it does not work. Of those for which it was asked, what their Harvester says about
versions is read by the same probes, every VERSIONS_INTERVAL, and after one that failed, as during an upgrade of Harvester.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import timedelta

from windrow.client.client import Client
from windrow.clusters.api.references import list_secret_references
from windrow.clusters.api.secrets import CredentialError
from windrow.clusters.sources.guest_api import Connect
from windrow.clusters.sources.harvester_versions import read_harvester_versions
from windrow.clusters.sources.users import UserIndex
from windrow.clusters.state import CredentialProblem
from windrow.core.clock import Clock, sleep
from windrow.core.crash import handle_crash
from windrow.core.logs import with_values
from windrow.core.wait import run_until, start_in, wait_first
from windrow.harvester.connection import connection_problem, describe_credential
from windrow.harvester.identity import IDENTITY, ca_fingerprint, compare_identity, is_certain, read_identity
from windrow.harvester.supported_charts import HarvesterVersions
from windrow.kubernetes.errors import CertificateError, Forbidden, KubeError, OutcomeUnknown, Unauthorized
from windrow.kubernetes.kubeconfig import ClientConfig
from windrow.kubernetes.objects import Raw, uid_of
from windrow.kubernetes.resources import ObjectRef

log = with_values(logging.getLogger(__name__))

RETRY_INTERVAL = timedelta(seconds=10)
# A watch that is open stays open with a credential that is revoked; only a request shows it.
VERIFY_INTERVAL = timedelta(minutes=1)
VERSIONS_INTERVAL = timedelta(minutes=10)
# Longer than a connection may take to open, of which the transport's own sentence says more.
PROBE_TIMEOUT = timedelta(seconds=15)


def _no_answer() -> OutcomeUnknown:
    return OutcomeUnknown(f"no answer within {PROBE_TIMEOUT.total_seconds():.0f} s")


class SecretUsers:
    """Which Clusters use which Secret (`namespace:name`): an index over the references in their specs."""

    def __init__(self) -> None:
        self._index: UserIndex[str] = UserIndex()
        self._uids: dict[ObjectRef, str] = {}

    def update(self, ref: ObjectRef, raw: Raw | None) -> None:
        """The Cluster `ref` is as `raw` now, or deleted."""
        self._index.update(ref, list_secret_references(raw) if raw is not None else ())
        if raw is None:
            self._uids.pop(ref, None)
        else:
            self._uids[ref] = uid_of(raw)

    def find(self, secret: str, owner_uid: str = "") -> list[ObjectRef]:
        """The Clusters that refer to the Secret, and the one with uid `owner_uid`, to which it belongs."""
        users = set(self._index.users_of(secret))
        if owner_uid:
            users |= {ref for ref, uid in self._uids.items() if uid == owner_uid}
        return sorted(users, key=str)


@dataclass(frozen=True, slots=True)
class ProbeResult:
    """What one probe has found: why the credential does not work, else which Harvester it leads to."""

    problem: CredentialProblem | None = None
    server: str = ""
    identity: str = ""  # of the Harvester
    fingerprint: str = ""  # the identity from its CA

    def compare(self, credential: str, recorded: str) -> CredentialProblem | None:
        """Why the credential does not serve a cluster that is on the recorded Harvester."""
        if self.problem is not None or not recorded:
            return self.problem
        about = (
            f"{describe_credential(credential)} leads to {self.server}, which is Harvester {self.identity}"
        )
        match compare_identity(recorded, self.identity, self.fingerprint):
            case "same":
                return None
            case "unknown":
                message = f"{describe_credential(credential)} may not get Namespace kube-system at {self.server}, which "
                return CredentialProblem(
                    f"{message}would show whether it is Harvester {recorded}, on which the cluster is",
                    "grant its user `get` on Namespace kube-system",
                    is_rejected=True,
                    is_for_another_harvester=True,
                )
            case "other":
                return CredentialProblem(
                    f"{about}; the cluster is on Harvester {recorded}, so nothing is created or deleted",
                    f"put the kubeconfig of Harvester {recorded} into the Secret; for a cluster on the other Harvester "
                    "create a new Cluster with a credential Secret of its own",
                    is_rejected=True,
                    is_for_another_harvester=True,
                )


@dataclass(frozen=True, slots=True)
class AskedVersions:
    """What a Harvester said about versions, which it was and when it is asked again; None before its first answer."""

    due: timedelta
    identity: str = ""
    found: HarvesterVersions | None = None


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
        self._results: dict[str, ProbeResult] = {}
        self._last_identities: dict[str, str] = {}
        self._requests: dict[str, asyncio.Event] = {}
        self._tasks: dict[str, asyncio.Task[None] | None] = {}
        self._used: UserIndex[str] = UserIndex()
        # By the credential whose Harvester is asked.
        self._versions: dict[str, AskedVersions] = {}

    def request_versions(self, credential: str) -> None:
        """Ask its Harvester about versions from now on, if it is probed at all. May be repeated."""
        if credential in self._requests and credential not in self._versions:
            self._versions[credential] = AskedVersions(self._clock.monotonic())
            self.probe_again(credential)

    def ask_versions_again(self, credential: str) -> None:
        """Its Harvester has another release than it said, if it was asked at all."""
        if (asked := self._versions.get(credential)) is not None:
            self._versions[credential] = replace(asked, due=self._clock.monotonic())
            self.probe_again(credential)

    def find_versions(self, credential: str) -> HarvesterVersions | None:
        """What its Harvester said about versions when it was last asked; None where it was not."""
        asked = self._versions.get(credential)
        return asked.found if asked else None

    def was_probed(self, credential: str) -> bool:
        return credential in self._results

    def find_failure(self, credential: str) -> CredentialProblem | None:
        """Why the last probe had no answer that shows a Harvester, whichever it is."""
        result = self._results.get(credential)
        return result.problem if result else None

    def hides_identity(self, credential: str) -> bool:
        """Whether the credential works, and may not read which Harvester it leads to, as of the last probe."""
        result = self._results.get(credential)
        return result is not None and result.problem is None and not is_certain(result.identity)

    def find_identity(self, credential: str) -> str:
        """That of the Harvester that it leads to, as of the last probe; "" where that is unknown."""
        result = self._results.get(credential)
        return result.identity if result else ""

    def find_last_identity(self, credential: str) -> str:
        """The same as of the last probe that showed it, also while the credential does not work; "" before the first."""
        return self._last_identities.get(credential, "")

    def find_problem(self, credential: str, harvester_uid: str) -> CredentialProblem | None:
        """Why it does not work on this Harvester, as of the last probe; None where it does, or was not probed yet."""
        result = self._results.get(credential)
        return result.compare(credential, harvester_uid) if result else None

    def watch(self, group: asyncio.TaskGroup, cluster: ObjectRef, credentials: Iterable[str]) -> None:
        """Probe those of this Cluster from now on, and those no more that no Cluster has. May be repeated."""
        begun, ended = self._used.update(cluster, credentials)
        for credential in ended:
            self._stop(credential)
        for credential in begun:
            self._requests[credential] = asyncio.Event()
            self._tasks[credential] = start_in(group, self._run(credential), name=f"probe {credential}")

    def _stop(self, credential: str) -> None:
        del self._requests[credential]
        self._results.pop(credential, None)
        self._last_identities.pop(credential, None)
        self._versions.pop(credential, None)
        if (task := self._tasks.pop(credential)) is not None:
            task.cancel()

    def probe_again(self, credential: str) -> None:
        """Probe it now, if it is probed at all."""
        if request := self._requests.get(credential):
            request.set()

    async def _run(self, credential: str) -> None:
        request = self._requests[credential]
        while True:
            request.clear()
            versions = self.find_versions(credential)
            result = await self._probe(credential)
            if is_certain(result.identity):
                self._last_identities[credential] = result.identity
            if result.problem is not None and (asked := self._versions.get(credential)) is not None:
                self._versions[credential] = replace(asked, due=self._clock.monotonic())
            if self._results.get(credential) != result or self.find_versions(credential) != versions:
                self._results[credential] = result
                self._on_change(credential)
            await wait_first(self._clock, RETRY_INTERVAL if result.problem else VERIFY_INTERVAL, request)

    async def _probe(self, credential: str) -> ProbeResult:
        try:
            access = self._get_access(credential)
        except CredentialError as missing:
            return ProbeResult(CredentialProblem(missing.message, missing.hint, is_rejected=True))
        # A defect met with one Harvester must not end the probes of the others.
        with handle_crash(log, "the probe of a credential failed", secret=credential) as crash:
            return await self._probe_server(credential, access)
        return ProbeResult(
            CredentialProblem(
                f"{describe_credential(credential)} could not be probed at {access.server}: {crash.error!r}",
                "see the manager's log; is that server a Harvester?",
                is_rejected=False,
            )
        )

    async def _probe_server(self, credential: str, access: ClientConfig) -> ProbeResult:
        fingerprint = ca_fingerprint(access)
        try:
            transport = self._connect(access)
            try:
                client = Client(transport)
                identity = await self._read_identity(client, fingerprint)
                await self._read_versions(credential, client, identity)
            finally:
                await transport.aclose()
        except KubeError as error:
            certain = isinstance(error, Unauthorized | CertificateError)
            message, hint = connection_problem(error, access.server, credential)
            return ProbeResult(CredentialProblem(message, hint, is_rejected=certain))
        return ProbeResult(None, access.server, identity, fingerprint)

    async def _read_identity(self, client: Client, fingerprint: str) -> str:
        """The fingerprint where the credential may not read it."""
        try:
            raw = await run_until(client.get(IDENTITY), sleep(self._clock, PROBE_TIMEOUT), _no_answer())
        except Forbidden:
            return fingerprint
        return read_identity(raw)

    async def _read_versions(self, credential: str, client: Client, identity: str) -> None:
        """What is known stays where Harvester does not say it now: the credential is not at fault."""
        asked = self._versions.get(credential)
        if asked is None or (self._clock.monotonic() < asked.due and asked.identity == identity):
            return
        with suppress(KubeError):
            found = await run_until(
                read_harvester_versions(client), sleep(self._clock, PROBE_TIMEOUT), _no_answer()
            )
            if credential in self._versions:
                due = self._clock.monotonic() + VERSIONS_INTERVAL
                self._versions[credential] = AskedVersions(due, identity, found)
