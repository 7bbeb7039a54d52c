"""The cluster manager: watches, and one reconcile per Cluster: observe, plan, carry out, say how it stands."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any, TypeVar

from windrow.client.client import Client
from windrow.client.informer import Informer
from windrow.client.middleware.retry import RetryingTransport
from windrow.client.transport import Transport
from windrow.clusters.api.cluster import ResolveDriver, harvester_only
from windrow.clusters.api.kinds import CLUSTER, HARVESTER_CONFIG, MACHINE
from windrow.clusters.api.machine import Machine, read_machine
from windrow.clusters.api.secrets import SecretData, read_any_secret_data, read_secret_data
from windrow.clusters.context import HarvesterClients, ReconcileContext
from windrow.clusters.execute.cluster_actions import find_proxy
from windrow.clusters.execute.executor import Executor, keep_since
from windrow.clusters.mutation_cache import MutationCache
from windrow.clusters.observer import Observer, clusters_using_config, credentials_of, guest_endpoints
from windrow.clusters.plan.actions import CreateServiceAccount, DeleteMachine
from windrow.clusters.plan.planner import Plan, plan_cluster
from windrow.clusters.sources.credentials import CredentialProber
from windrow.clusters.sources.guest_api import Connect, GuestClusterCache, GuestConnection
from windrow.clusters.sources.machine_configs import MachineConfigs
from windrow.clusters.state import ActionFailure, ClusterState
from windrow.clusters.status import all_ready, derive_cluster, derive_machine, find_wait
from windrow.controller.controller import Controller
from windrow.controller.outcomes import SETTLED, Changed, Failed, Outcome, Waiting
from windrow.core.clock import Clock
from windrow.core.rng import Rng
from windrow.drivers.api import read_machine_config_kinds
from windrow.kubernetes.kubeconfig import ClientConfig
from windrow.kubernetes.objects import Raw, name_of, namespace_of, nested, resource_version_of
from windrow.kubernetes.patches import make_merge_patch
from windrow.kubernetes.resources import SECRET, ApiResource, ObjectRef
from windrow.machines.port import Machines, MachineStatus

log = logging.getLogger(__name__)

V = TypeVar("V")

RECHECK_INTERVAL = timedelta(seconds=30)  # after a refusal: an image may have been imported meanwhile
SYNC_RETRY = timedelta(seconds=1)
STARTUP_GRACE = timedelta(
    seconds=10
)  # after a start: what could not be asked in this time is told as unknown


class ActionsFailed(Exception):
    """Something could not be done; it is tried again, later and later."""


class ClusterController:
    """Keeps every Cluster of one management API as it is asked for."""

    def __init__(
        self,
        api: Client,
        machines: Machines,
        connect: Connect,
        clock: Clock,
        rng: Rng,
        *,
        proxy: str = "",
        resolve_driver: ResolveDriver = harvester_only,
    ) -> None:
        self._clock = clock
        self._infrastructure = machines
        self._rng = rng
        self._failures: dict[str, dict[str, ActionFailure]] = {}  # by cluster uid, then by subject
        self._tracked: set[str] = set()
        self._cluster_of: dict[str, ObjectRef] = {}  # machine uid -> its Cluster
        self._group: asyncio.TaskGroup | None = None
        self._started_at = clock.now()

        def cache(kind: ApiResource, read: Callable[[Raw], V | None]) -> Informer[V]:
            return Informer(api.transport, kind, "", read, clock, rng)

        def connect_with_retries(access: ClientConfig) -> Transport:
            return RetryingTransport(connect(access), clock, rng)

        self._clusters: MutationCache[Raw] = MutationCache(
            cache(CLUSTER, _unread), _unread, resource_version_of
        )
        self._machines: MutationCache[Machine] = MutationCache(
            cache(MACHINE, read_machine), read_machine, lambda machine: machine.resource_version
        )
        self._configs = MachineConfigs(
            api, lambda kind: cache(kind, _unread), self._on_configs, resolve_driver
        )
        self._secrets: MutationCache[SecretData] = MutationCache(
            cache(SECRET, read_secret_data), read_any_secret_data, lambda sealed: sealed.resource_version
        )
        self._guest_clusters = GuestClusterCache(connect, clock, rng)
        self._credentials: dict[str, str] = {}  # machine uid -> its credential
        harvesters = HarvesterClients(self._secrets, connect_with_retries)
        self._prober = CredentialProber(harvesters.get_access, connect, clock, self._on_probe)
        self._context = ReconcileContext(
            api=api,
            clusters=self._clusters,
            machines=self._machines,
            configs=self._configs,
            secrets=self._secrets,
            infrastructure=machines,
            harvesters=harvesters,
            guest_clusters=self._guest_clusters,
            prober=self._prober,
            clock=clock,
            rng=rng,
            proxy=proxy,
        )
        self._observer = Observer(self._context)
        self._executor = Executor(self._context)
        self.controller: Controller[ObjectRef] = Controller("clusters", self.reconcile, clock, rng)

    async def run(self) -> None:
        """Work until cancelled."""
        async with asyncio.TaskGroup() as group:
            self._group = group
            caches = (self._clusters.cache, self._machines.cache, self._secrets.cache)
            for cache in caches:
                group.create_task(cache.run(), name=f"watch {cache.kind.plural}")
            for cache in caches:
                await cache.wait_for_sync()
            for configs in self._configs.watch(group, [HARVESTER_CONFIG.kind]):
                await configs.wait_for_sync()
            for machine in self._machines.values():
                self._track(machine)
            group.create_task(self._on_clusters())
            group.create_task(self._on_machines())
            group.create_task(self._on_secrets())
            group.create_task(self._on_machine_statuses())
            group.create_task(self.controller.run(), name="reconcile clusters")

    # -- what wakes us -------------------------------------------------------------------------------------------

    async def _on_clusters(self) -> None:
        async for before, after in self._clusters.cache.changes():
            raw = after or before
            if raw is None:
                continue
            ref = CLUSTER.ref(name_of(raw), namespace_of(raw))
            self._clusters.on_watch_event(ref, after)
            self.controller.queue.add(ref)

    async def _on_machines(self) -> None:
        async for before, after in self._machines.cache.changes():
            machine = after or before
            if machine is None:
                continue
            self._machines.on_watch_event(machine.ref, after)
            if after is not None:
                self._track(after)
            else:
                self._cluster_of.pop(machine.uid, None)
                self._credentials.pop(machine.uid, None)
                self._tracked.discard(machine.uid)
            self.controller.queue.add(CLUSTER.ref(machine.cluster, machine.namespace))

    async def _on_configs(self, configs: Informer[Raw]) -> None:
        async for before, after in configs.changes():
            for raw in filter(None, (before, after)):
                for ref in clusters_using_config(configs.kind.kind, raw, list(self._clusters.values())):
                    self.controller.queue.add(ref)

    async def _on_secrets(self) -> None:
        async for before, after in self._secrets.cache.changes():
            secret = after or before
            if secret is None:
                continue
            self._secrets.on_watch_event(SECRET.ref(secret.name, secret.namespace), after)
            if before != after:
                self._prober.probe_again(f"{secret.namespace}:{secret.name}")
            for raw in self._clusters.values():
                if _uses_secret(secret, raw):
                    self.controller.queue.add(CLUSTER.ref(name_of(raw), namespace_of(raw)))

    async def _on_machine_statuses(self) -> None:
        async for before, after in self._infrastructure.statuses().changes():
            vm = after or before
            if vm is not None:
                self._on_machine_status(vm)
            if before and after and before.presence != "unknown" == after.presence:
                self._prober.probe_again(self._credentials.get(after.machine_uid, ""))

    def on_kind(self, kind: str) -> None:
        """A machine config kind can be used now, or no more: whoever names it is looked at again."""
        for raw in self._clusters.values():
            if kind in read_machine_config_kinds(raw):
                self.controller.queue.add(CLUSTER.ref(name_of(raw), namespace_of(raw)))

    def _on_machine_status(self, vm: MachineStatus) -> None:
        account = self._cluster_of.get(vm.machine_uid)
        if account is not None:
            self.controller.queue.add(account)

    def _on_probe(self, credential: str) -> None:
        for raw in self._clusters.values():
            if credential in str(raw.get("spec")):
                self.controller.queue.add(CLUSTER.ref(name_of(raw), namespace_of(raw)))

    def _track(self, machine: Machine) -> None:
        self._credentials[machine.uid] = machine.credential
        # Here, because nothing is sighted before it is watched over or ordered, and both come after the record.
        self._cluster_of[machine.uid] = CLUSTER.ref(machine.cluster, machine.namespace)
        if machine.driver_config is not None and machine.was_created and machine.uid not in self._tracked:
            self._tracked.add(machine.uid)
            self._infrastructure.track(machine.driver_config)

    # -- reconcile -----------------------------------------------------------------------------------------------

    async def reconcile(self, key: ObjectRef) -> Outcome:
        if not (self._clusters.cache.is_watching and self._machines.cache.is_watching):
            now = self._clock.now()
            return Waiting("the management API", now, "it goes on", now + SYNC_RETRY)
        if self._group is not None and (raw := self._clusters.get(key)) is not None:
            self._configs.watch(self._group, read_machine_config_kinds(raw))
        state = await self._observer.observe(key)
        if state is None:
            return SETTLED
        if self._group is not None:
            for credential in credentials_of(state.cluster):
                self._prober.open(self._group, credential)
        connection = self._connect_guest(key, state)
        plan = plan_cluster(state)
        await self._patch_stale_ready(state, plan)
        failures = await self._executor.execute(plan, state)
        failures = self._keep_failures(state, failures)
        if plan.actions and not failures and not _only_waits_for_token(plan):
            if state.preflight is not None:
                await self._patch_cluster_status(
                    state, plan, failures
                )  # what the preflight found is seen only now
            return Changed(f"{len(plan.actions)} actions")
        listens_until = self._find_startup_deadline(state)
        if listens_until is not None and not failures:
            return Waiting("Harvester and the guest API", state.now, "the status is written", listens_until)
        await self._patch_status(_without_deleted(state, plan, failures), plan, failures)
        return self._outcome(state, plan, failures, connection)

    def _find_startup_deadline(self, state: ClusterState) -> datetime | None:
        """Until when nothing is said because this process has just begun and has not heard from all sides yet.

        What it does not know yet is known to the status. Were that overwritten with "unknown", each restart would
        take Ready from healthy clusters and give all that is counted from its date a new beginning.
        """
        deadline = self._started_at + STARTUP_GRACE
        if state.now >= deadline or state.cluster.deletion_timestamp is not None:
            return None
        unknown = state.recorded.initialized and not state.guest.is_reachable
        unknown |= any(
            machine.record.was_created and machine.presence == "unknown" for machine in state.machines
        )
        return deadline if unknown else None

    def _connect_guest(self, key: ObjectRef, state: ClusterState) -> GuestConnection | None:
        """Keep the way into the guest open, and pointing where its servers are."""
        if self._group is None or state.secrets is None or state.cluster.deletion_timestamp is not None:
            return self._guest_clusters.find(state.cluster.uid)
        urls = guest_endpoints(state)
        if not urls:
            return self._guest_clusters.find(state.cluster.uid)
        proxy = find_proxy(self._context, state)
        connection = self._guest_clusters.open(
            self._group, state.cluster.uid, state.secrets, proxy, lambda: self.controller.queue.add(key)
        )
        running = {url for url in urls if url not in _stopped_urls(state)}
        connection.set_endpoints([url for url in urls if url in running] or urls)
        return connection

    async def _patch_stale_ready(self, state: ClusterState, plan: Plan) -> None:
        """Before work that may take long: a status that claims more than is so is corrected first."""
        claims = state.recorded.raw.get("ready") is True and state.cluster.deletion_timestamp is None
        if not (plan.actions and claims) or all_ready(state) or self._find_startup_deadline(state):
            return
        await self._patch_cluster_status(state, plan, self._failures.get(state.cluster.uid, {}))

    def _keep_failures(
        self, state: ClusterState, failures: dict[str, ActionFailure]
    ) -> dict[str, ActionFailure]:
        before = self._failures.get(state.cluster.uid, {})
        lasting = {subject: keep_since(before.get(subject), failure) for subject, failure in failures.items()}
        self._failures[state.cluster.uid] = lasting
        return lasting

    async def _patch_status(
        self, state: ClusterState, plan: Plan, failures: dict[str, ActionFailure]
    ) -> None:
        """Write how it stands, where that has changed."""
        for machine in state.machines:
            wanted = derive_machine(machine, state, plan, failures)
            await self._context.patch_machine_status(
                machine.record, _status_patch(machine.record.status, wanted)
            )
        await self._patch_cluster_status(state, plan, failures)

    async def _patch_cluster_status(
        self, state: ClusterState, plan: Plan, failures: dict[str, ActionFailure]
    ) -> None:
        await self._executor.record_held(plan, state)
        await self._executor.record_credential_problem(state)
        wanted = derive_cluster(state, plan, failures)
        if state.cluster.has_finalizer or state.cluster.deletion_timestamp is None:
            await self._context.patch_cluster_status(state, _status_patch(state.recorded.raw, wanted))

    def _outcome(
        self,
        state: ClusterState,
        plan: Plan,
        failures: dict[str, ActionFailure],
        connection: GuestConnection | None,
    ) -> Outcome:
        if failures:
            subject, failure = next(iter(failures.items()))
            return Failed(
                ActionsFailed(f"{subject or state.cluster.name}: {failure.message}; {failure.hint}")
            )
        instants = [wait.until for wait in plan.waits] + [held.until for held in plan.held]
        instants.append(connection.grace_deadline if connection else None)
        until = min((instant for instant in instants if instant is not None), default=None)
        if plan.refused:
            return Waiting(
                str(plan.refused[0]), state.now, "it is looked at again", state.now + RECHECK_INTERVAL
            )
        wait = find_wait(state, plan, failures)
        if wait is None and until is None:
            return SETTLED
        return Waiting(wait.what if wait else "", state.now, wait.then if wait else "", until)


def _stopped_urls(state: ClusterState) -> set[str]:
    """Servers that certainly do not answer: a connection to them may hang for minutes without saying so."""
    stopped = [
        machine
        for machine in state.machines
        if machine.presence == "missing" or (machine.vm and machine.vm.state in ("stopped", "failed"))
    ]
    return set(guest_endpoints(replace(state, machines=tuple(stopped))))


def _without_deleted(state: ClusterState, plan: Plan, failures: Mapping[str, ActionFailure]) -> ClusterState:
    """What was seen, as it is now that machines were given up: no status may count on those any more."""
    given_up = {
        action.machine for action in plan.actions if isinstance(action, DeleteMachine)
    } - failures.keys()
    if not given_up:
        return state
    machines = tuple(
        replace(
            machine,
            record=replace(machine.record, deletion_timestamp=machine.record.deletion_timestamp or state.now),
        )
        if machine.name in given_up
        else machine
        for machine in state.machines
    )
    return replace(state, machines=machines)


def _only_waits_for_token(plan: Plan) -> bool:
    """Asking for a token that is not issued yet changes nothing."""
    return all(isinstance(action, CreateServiceAccount) for action in plan.actions) and bool(plan.waits)


def _status_patch(before: Any, wanted: dict[str, Any]) -> dict[str, Any]:
    """The merge patch that brings the fields of `wanted` into `before`, {} when they are there already."""
    had = {key: before[key] for key in wanted if key in before}
    asked = {key: value for key, value in wanted.items() if value is not None}
    return make_merge_patch(had, asked)


def _uses_secret(secret: SecretData, cluster: Raw) -> bool:
    qualified_name = f"{secret.namespace}:{secret.name}"
    if secret.cluster_uid:
        return bool(secret.cluster_uid == nested(cluster, "metadata", "uid"))
    return qualified_name in str(cluster.get("spec"))


def _unread(raw: Raw) -> Raw:
    return raw
