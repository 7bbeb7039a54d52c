"""Which hosts of a Harvester are in maintenance, and its release, kept current by watches: three for each credential.

Not every credential may watch Nodes and Upgrades, which have no namespace of a tenant's: then nothing is known of hosts, why
is in `hidden`, and all goes on as if no host were ever in maintenance. That is logged once for each credential, and tried again
seldom. A Harvester without the kind Upgrade is one without upgrades.

While the API of Harvester is away, as it is for minutes during its own upgrade, what was read last stays, and is not current.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta

from windrow.client.informer import Informer
from windrow.client.transport import Transport
from windrow.clusters.api.machine import Machine
from windrow.clusters.api.references import parse_secret_reference
from windrow.clusters.api.secrets import CredentialError
from windrow.clusters.sources.harvesters import HarvesterClients
from windrow.clusters.sources.users import UserIndex
from windrow.core.clock import Clock
from windrow.core.crash import handle_crash
from windrow.core.logs import with_values
from windrow.core.rng import Rng
from windrow.core.wait import Stopped, run_until, start_in, wait_first
from windrow.harvester.connection import describe_credential
from windrow.harvester.hosts.maintenance import (
    UPGRADE_NAMESPACE,
    HarvesterUpgrade,
    HostMaintenance,
    HostState,
    list_maintenance,
    read_host_state,
    read_upgrade,
)
from windrow.harvester.references import SERVER_VERSION, Release, read_release
from windrow.harvester.resources import SETTING, UPGRADE
from windrow.kubernetes.errors import Forbidden, KubeError, NotFound
from windrow.kubernetes.objects import Raw
from windrow.kubernetes.resources import NODE, ApiResource, ObjectRef
from windrow.machines.port import MachineStatus

log = with_values(logging.getLogger(__name__))

# After a credential that may not watch: its rights may have been widened.
RETRY_INTERVAL = timedelta(minutes=5)
MAX_REFUSAL = 200  # of what a server says of a refusal
RIGHTS_HINT = "let its user get, list and watch nodes and upgrades.harvesterhci.io"

Reading = HostState | HarvesterUpgrade | Release


@dataclass(frozen=True, slots=True)
class ObservedHosts:
    """What is known of the hosts of one Harvester: those in maintenance by name.

    `is_current`: as of now. `hidden`: why nothing is known, where the credential may not watch them.
    """

    maintenance: Mapping[str, HostMaintenance] = field(default_factory=dict)
    is_current: bool = False
    hidden: str = ""


UNKNOWN = ObservedHosts()


def host_of(machine: Machine, vm: MachineStatus | None) -> str:
    """The host that its VM is on; while it is shut down, the one that it was on last."""
    if vm is not None and vm.host:
        return vm.host
    if vm is not None and vm.presence == "missing":
        return ""
    recorded = machine.maintenance
    return recorded.host if recorded is not None else str(machine.status.get("host") or "")


@dataclass(slots=True)
class _Watched:
    """The watches of one credential, and what follows from them."""

    observed: ObservedHosts = UNKNOWN
    informers: dict[ApiResource, Informer[Reading]] = field(default_factory=dict)
    refused: dict[ApiResource, str] = field(default_factory=dict)
    restart: dict[ApiResource, asyncio.Event] = field(default_factory=dict)
    tasks: list[asyncio.Task[None] | None] = field(default_factory=list)

    def derive(self) -> ObservedHosts:
        """Without the right to watch Upgrades, maintenance mode alone is known."""
        if hidden := self.refused.get(NODE, ""):
            return ObservedHosts(hidden=hidden)
        nodes, upgrades = self.informers.get(NODE), self.informers.get(UPGRADE)
        if nodes is None or not nodes.has_synced:
            return UNKNOWN
        hosts = [one for one in nodes.values() if isinstance(one, HostState)]
        shown = upgrades.values() if upgrades is not None else ()
        found = list_maintenance(hosts, [one for one in shown if isinstance(one, HarvesterUpgrade)])
        is_current = nodes.is_watching and (
            UPGRADE in self.refused or (upgrades is not None and upgrades.is_watching)
        )
        return ObservedHosts(found, is_current, self.refused.get(UPGRADE, ""))


_READINGS: Mapping[ApiResource, Callable[[Raw], Reading]] = {
    NODE: read_host_state,
    UPGRADE: read_upgrade,
    SETTING: read_release,
}


class HarvesterHosts:
    """The hosts of each Harvester, by the credentials that lead there.

    `on_change` is called with a credential of whose hosts something else is known now, `on_release` with one whose Harvester has
    another release.
    """

    def __init__(
        self,
        clients: HarvesterClients,
        clock: Clock,
        on_change: Callable[[str], None],
        on_release: Callable[[str], None],
    ) -> None:
        self._clients, self._clock = clients, clock
        self._on_change, self._on_release = on_change, on_release
        self._watched: dict[str, _Watched] = {}
        self._used: UserIndex[str] = UserIndex()

    def find(self, credential: str) -> ObservedHosts:
        """What is known of the hosts that its Harvester has."""
        watched = self._watched.get(credential)
        return watched.observed if watched is not None else UNKNOWN

    def watch(self, group: asyncio.TaskGroup, cluster: ObjectRef, credentials: Iterable[str]) -> None:
        """Watch for this Cluster, with those that its namespace may use; for all that use one there is one set of watches. May be
        repeated."""
        begun, ended = self._used.update(cluster, credentials)
        for credential in ended:
            for task in filter(None, self._watched.pop(credential).tasks):
                task.cancel()
        for credential in begun:
            watched = self._watched[credential] = _Watched()
            for kind in _READINGS:
                watched.restart[kind] = asyncio.Event()
                work = self._run(credential, kind, watched)
                watched.tasks.append(start_in(group, work, name=f"watch {kind.plural} of {credential}"))

    def restart(self, credential: str) -> None:
        """The credential has changed: watch with what it is now."""
        if (watched := self._watched.get(credential)) is not None:
            for event in watched.restart.values():
                event.set()

    async def _run(self, credential: str, kind: ApiResource, watched: _Watched) -> None:
        restart = watched.restart[kind]
        while True:
            restart.clear()
            with handle_crash(
                log, "watching %s failed; trying again in %s", kind.plural, RETRY_INTERVAL, secret=credential
            ):
                try:
                    informer = self._informer(self._get_transport(credential), credential, kind, watched)
                    watched.informers[kind] = informer
                    await run_until(self._follow(informer, credential, watched), restart.wait())
                except Stopped:
                    continue
                except NotFound:  # a release without it
                    self._on_refused(credential, kind, watched, "")
                except Forbidden as error:
                    self._on_refused(credential, kind, watched, error.message[:MAX_REFUSAL])
                except (CredentialError, KubeError):
                    pass  # the credential's own probe says why
            await wait_first(self._clock, RETRY_INTERVAL, restart)

    def _get_transport(self, credential: str) -> Transport:
        """As a Cluster beside the Secret would have it. Raises CredentialError."""
        ref = parse_secret_reference(credential)
        return self._clients.get_client(credential, ref.namespace if ref is not None else "").transport

    def _informer(
        self, transport: Transport, credential: str, kind: ApiResource, watched: _Watched
    ) -> Informer[Reading]:
        def on_state() -> None:
            if watched.informers.get(kind) is informer and informer.is_watching:
                watched.refused.pop(kind, None)
            self._refresh(credential, watched)

        informer: Informer[Reading] = Informer(
            transport,
            kind,
            UPGRADE_NAMESPACE if kind is UPGRADE else "",
            _READINGS[kind],
            self._clock,
            Rng(f"{credential} {kind.plural}"),
            fields=f"metadata.name={SERVER_VERSION.name}" if kind is SETTING else "",
            raise_refusals=True,
            on_state=on_state,
        )
        return informer

    async def _follow(self, informer: Informer[Reading], credential: str, watched: _Watched) -> None:
        async def report() -> None:
            async for before, after in informer.changes():
                if isinstance(after, Release):
                    if before is not None:
                        self._on_release(credential)
                else:
                    self._refresh(credential, watched)

        await run_until(informer.run(), report())

    def _on_refused(self, credential: str, kind: ApiResource, watched: _Watched, why: str) -> None:
        is_first = kind not in watched.refused
        watched.refused[kind] = why
        watched.informers.pop(kind, None)
        if is_first and why and kind is not SETTING:
            log.info(
                "%s may not watch %s, so what hosts in maintenance do to machines is not foreseen (%s); %s",
                describe_credential(credential),
                kind.group_resource,
                why,
                RIGHTS_HINT,
                secret=credential,
            )
        self._refresh(credential, watched)

    def _refresh(self, credential: str, watched: _Watched) -> None:
        observed = watched.derive()
        if observed != watched.observed:
            watched.observed = observed
            self._on_change(credential)
