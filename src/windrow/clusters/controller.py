"""The cluster controller: watches, and one reconcile per Cluster: observe, plan, execute, patch the status."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any, TypeVar

from windrow.bootstrap.support_matrix.matrix import SupportMatrix, shipped_matrix
from windrow.client.client import Client
from windrow.client.informer import Informer
from windrow.client.middleware.retry import RetryingTransport
from windrow.client.mutation_cache import MutationCache
from windrow.client.transport import Transport
from windrow.clusters.api.addresses import IPAddress, IPPool, read_ip_address
from windrow.clusters.api.kinds import CLUSTER, ETCD_SNAPSHOT, HARVESTER_CONFIG, IP_ADDRESS, MACHINE
from windrow.clusters.api.machine import Machine, read_machine
from windrow.clusters.api.manifest.machine_config import ResolveDriver, harvester_only
from windrow.clusters.api.operations.snapshot import ETCDSnapshot, read_snapshot
from windrow.clusters.api.secrets import CredentialError, SecretData, read_secret_data
from windrow.clusters.change.fields import OptionRules
from windrow.clusters.context import ReconcileContext
from windrow.clusters.endpoint_balancer import ObservedBalancer, key_of_balancers
from windrow.clusters.execute.address_actions import AddressActions
from windrow.clusters.execute.cluster_actions import ClusterActions
from windrow.clusters.execute.endpoint_actions import EndpointActions
from windrow.clusters.execute.executor import Executor
from windrow.clusters.execute.machine_actions import MachineActions
from windrow.clusters.execute.maintenance_actions import MaintenanceActions
from windrow.clusters.execute.operations import OperationActions
from windrow.clusters.execute.servers.requests import LongRequests
from windrow.clusters.execute.servers.supervisors import Supervisors
from windrow.clusters.execute.update_actions import UpdateActions
from windrow.clusters.metrics.manager import ManagerMetrics, ObservedPool, Sources
from windrow.clusters.observer import Observer, clusters_using_config
from windrow.clusters.orphans import MachineClaim, OrphanVm, ReportingVm
from windrow.clusters.plan.actions import CreateServiceAccount, DeleteMachine, EvictPods, Wait
from windrow.clusters.plan.addresses import may_await_address
from windrow.clusters.plan.diagnosis import diagnose_all
from windrow.clusters.plan.endpoint import list_api_servers
from windrow.clusters.plan.operations.in_place import list_apis_to_ask
from windrow.clusters.plan.planner import Plan, plan_cluster
from windrow.clusters.plan.updates.charts import is_upgrading
from windrow.clusters.plan.volumes.reclaim import must_ask
from windrow.clusters.protection import ProtectionController, list_needed, list_needed_by_machine
from windrow.clusters.sources.address_scopes import AddressScopes
from windrow.clusters.sources.addresses import AddressBook
from windrow.clusters.sources.credentials import CredentialProber, SecretUsers
from windrow.clusters.sources.guest_api import Connect, GuestClusterCache, GuestConnection
from windrow.clusters.sources.harvester_objects import AccountObject, HarvesterObjects, Owned
from windrow.clusters.sources.harvesters import HarvesterClients
from windrow.clusters.sources.hosts import HarvesterHosts
from windrow.clusters.sources.machine_configs import MachineConfigs
from windrow.clusters.sources.manager_leases import ManagerIdentity, ManagerLeases
from windrow.clusters.state import ActionFailure, ClusterState, MachineState
from windrow.clusters.status import (
    all_ready,
    derive_cluster,
    derive_machine,
    derive_withdrawal,
    find_wait,
    is_boot_step,
    is_learned,
    list_status_inputs,
)
from windrow.controller.controller import Controller
from windrow.controller.outcomes import SETTLED, Changed, Failed, Outcome, Waiting
from windrow.controller.spacing import Spacing
from windrow.core.clock import Clock
from windrow.core.rng import Rng
from windrow.core.stamps import ObservedStamps
from windrow.core.work_queue import MaxConcurrent
from windrow.drivers.api import read_machine_config_kinds
from windrow.kubernetes.kubeconfig import ClientConfig
from windrow.kubernetes.objects import Raw, finalizers_of, name_of, namespace_of, resource_version_of, uid_of
from windrow.kubernetes.patches import make_merge_patch
from windrow.kubernetes.requests import Request
from windrow.kubernetes.resources import SECRET, ApiResource, ObjectRef
from windrow.machines.port import Machines

V = TypeVar("V")

RECHECK_INTERVAL = timedelta(seconds=30)  # after a refusal: an image may have been imported meanwhile
SYNC_RETRY = timedelta(seconds=1)
# After a start: what is not reachable in this time is reported as unknown.
STARTUP_GRACE = timedelta(seconds=10)
# A namespace is a tenant. One whose Harvester or guests do not answer leaves half of the reconciles to the others.
MAX_CONCURRENT = MaxConcurrent(total=16, per_flow=8, slow_after=timedelta(seconds=5))
BOOT_STATUS_INTERVAL = timedelta(seconds=60)  # for what a booting machine passes through within seconds


class ActionsFailed(Exception):
    """Actions failed; they are retried with backoff."""


class ClusterController:
    """Reconciles every Cluster of one management API."""

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
        identity: ManagerIdentity | None = None,
        matrix: SupportMatrix | None = None,
        option_rules: OptionRules | None = None,
        metrics: ManagerMetrics | None = None,
    ) -> None:
        self._clock = clock
        self._metrics = metrics or ManagerMetrics(clock)
        self._infrastructure = machines
        self._rng = rng
        self._failures: dict[str, dict[str, ActionFailure]] = {}  # by cluster uid, then by subject
        self._boot_changes: dict[str, timedelta] = {}  # machine uid -> since when a change is not written
        self._written: dict[
            str, tuple[object, ...]
        ] = {}  # machine uid -> of what its status is, which is written
        self._with_failure: set[str] = set()  # uids of machines whose status names a failure
        self._tracked: set[str] = set()
        self._cluster_of: dict[str, ObjectRef] = {}  # machine uid -> its Cluster
        self._group: asyncio.TaskGroup | None = None
        self._started_at = clock.monotonic()

        def new_informer(
            kind: ApiResource, read: Callable[[Raw], V | None], index: Callable[[V], str] | None = None
        ) -> Informer[V]:
            return Informer(api.transport, kind, "", read, clock, rng, index=index)

        def connect_with_retries(access: ClientConfig) -> Transport:
            return RetryingTransport(connect(access), clock, rng)

        self._clusters: MutationCache[Raw] = MutationCache(
            new_informer(CLUSTER, _unread, uid_of), resource_version_of, clock
        )
        self._machines: MutationCache[Machine] = MutationCache(
            new_informer(MACHINE, read_machine, lambda machine: machine.cluster_uid),
            lambda machine: machine.resource_version,
            clock,
        )
        self._configs = MachineConfigs(
            api, lambda kind: new_informer(kind, _unread), self._on_configs, resolve_driver
        )
        self._secrets: MutationCache[SecretData] = MutationCache(
            new_informer(SECRET, read_secret_data), lambda secret: secret.resource_version, clock
        )
        self._snapshots: MutationCache[ETCDSnapshot] = MutationCache(
            Informer(
                api.transport,
                ETCD_SNAPSHOT,
                "",
                read_snapshot,
                clock,
                Rng(ETCD_SNAPSHOT.plural),
                index=lambda snapshot: snapshot.cluster_uid,
            ),
            lambda snapshot: snapshot.resource_version,
            clock,
        )
        self._guest_clusters = GuestClusterCache(connect, clock, rng)
        self._credentials: dict[str, str] = {}  # machine uid -> its credential
        self._harvesters = HarvesterClients(self._secrets, connect_with_retries, proxy)
        self._prober = CredentialProber(self._harvesters.read_config, connect, clock, self._on_probe)
        self._objects = HarvesterObjects(
            self._harvesters, clock, rng, self._on_harvester_object, self._enqueue_users
        )
        self._hosts = HarvesterHosts(self._harvesters, clock, self._on_hosts, self._prober.ask_versions_again)
        self._leases = ManagerLeases(self._harvesters, identity, clock, rng, self._enqueue_users)
        self._secret_users = SecretUsers()
        self._addresses = AddressBook(new_informer(IP_ADDRESS, read_ip_address))
        self._scopes = AddressScopes(
            self._harvesters,
            self._addresses,
            clock,
            identity.lease_name if identity else "",
            lambda uid: any(True for _ in self._clusters.by_index(uid)),
        )
        self._awaiting_address: set[ObjectRef] = set()  # Clusters with machines that may wait for one
        self._context = ReconcileContext(
            api=api,
            clusters=self._clusters,
            machines=self._machines,
            secrets=self._secrets,
            clock=clock,
            rng=rng,
            stamps=ObservedStamps(clock),
            matrix=matrix or shipped_matrix(),
            option_rules=option_rules or OptionRules(),
        )
        self._protection = ProtectionController(self._context)
        guests = self._guest_clusters
        self._observer = Observer(
            self._context,
            self._configs,
            machines,
            self._harvesters,
            guests,
            self._prober,
            self._objects,
            self._leases,
            self._addresses,
            self._scopes,
            self._snapshots,
            self._hosts,
        )
        machine_actions = MachineActions(self._context, machines, guests)
        supervisors = Supervisors(self._harvesters, connect)
        self._requests = LongRequests(self._context.process_state.requests, self._enqueue_cluster)
        self._executor = Executor(
            self._context,
            ClusterActions(self._context, self._harvesters, guests),
            machine_actions,
            AddressActions(api, self._addresses),
            EndpointActions(self._context, self._harvesters),
            UpdateActions(self._context, guests, machines, supervisors),
            self._observer.read_lease,
            OperationActions(
                self._context,
                guests,
                supervisors,
                self._requests,
                self._snapshots,
                machines,
                machine_actions.render_scrubbed,
            ),
            MaintenanceActions(self._context, guests),
        )
        self._executor.on_action = self._metrics.on_action
        self._spacing: Spacing[ObjectRef] = Spacing(clock)
        self.controller: Controller[ObjectRef] = Controller(
            "clusters",
            self._metrics.timed("clusters", self.reconcile),
            clock,
            rng,
            max_concurrent=MAX_CONCURRENT,
            flow_of=lambda ref: ref.namespace,
            on_added=self._metrics.on_added,
        )
        self._metrics.sources = self._metric_sources()
        self._metrics.register_queue("clusters", lambda: len(self.controller.queue))

    def _metric_sources(self) -> Sources:
        informers: tuple[Informer[Any], ...] = (
            self._clusters.informer,
            self._machines.informer,
            self._secrets.informer,
            self._addresses.informer,
            self._snapshots.informer,
        )
        return Sources(
            clusters=self._clusters.values,
            machines=self._machines.values,
            ip_pools=lambda: (ObservedPool(*one) for one in self._objects.list_ip_pools()),
            watching=lambda: {one.kind.plural: one.is_watching for one in informers},
            watch_lag_s=lambda: self._context.process_state.longest_lag.total_seconds(),
        )

    async def run(self) -> None:
        """Work until cancelled."""
        self._context.process_state.unanswered.begin(self._clock.monotonic())
        async with asyncio.TaskGroup() as group:
            self._group = group
            informers: tuple[Informer[Any], ...] = (
                self._clusters.informer,
                self._machines.informer,
                self._secrets.informer,
                self._addresses.informer,
                self._snapshots.informer,
            )
            for informer in informers:
                group.create_task(informer.run(), name=f"watch {informer.kind.plural}")
            for informer in informers:
                await informer.wait_for_sync()
            self._addresses.read_all()
            for configs in self._configs.watch(group, [HARVESTER_CONFIG.kind]):
                await configs.wait_for_sync()
            for machine in self._machines.values():
                self._track(machine)
                self._protection.on_user(machine.ref, list_needed_by_machine(machine))
            for raw in self._clusters.values():
                ref = CLUSTER.ref(name_of(raw), namespace_of(raw))
                self._protection.on_user(ref, list_needed(raw))
            group.create_task(self._on_clusters())
            group.create_task(self._on_machines())
            group.create_task(self._on_secrets())
            group.create_task(self._on_snapshots())
            group.create_task(self._on_machine_statuses())
            group.create_task(self._addresses.run(self._on_address), name="follow ipaddresses")
            group.create_task(self._protection.controller.run(), name="protect what Clusters need")
            group.create_task(self._requests.run(), name="long requests to servers")
            group.create_task(self.controller.run(), name="reconcile clusters")

    def require_lease(self, request: Request, access: ClientConfig) -> None:
        """Raises NotLeader where `request`, a write to `access`, would be beside another manager."""
        self._leases.require(request, access)

    def may_write(self, credential: str, namespace: str) -> bool:
        """Whether no other manager acts in this namespace of the credential's Harvester, as far as is known now."""
        return self._leases.may_write(credential, namespace)

    # -- event handlers -------------------------------------------------------------------------------------------

    async def _on_clusters(self) -> None:
        async for before, after in self._clusters.informer.changes():
            raw = after or before
            if raw is None:
                continue
            ref = CLUSTER.ref(name_of(raw), namespace_of(raw))
            self._secret_users.update(ref, after)
            self._protection.on_user(ref, frozenset() if after is None else list_needed(after))
            if after is None:
                self._context.stamps.forget(uid_of(raw))
                self._context.process_state.unanswered.forget(uid_of(raw))
                self._context.process_state.unanswered.forget(key_of_balancers(uid_of(raw)))
            self._enqueue_change(ref)

    async def _on_machines(self) -> None:
        async for before, after in self._machines.informer.changes():
            machine = after or before
            if machine is None:
                continue
            needed = frozenset[ObjectRef]() if after is None else list_needed_by_machine(after)
            self._protection.on_user(machine.ref, needed)
            if after is not None:
                self._track(after)
            else:
                self._cluster_of.pop(machine.uid, None)
                self._credentials.pop(machine.uid, None)
                self._tracked.discard(machine.uid)
                self._boot_changes.pop(machine.uid, None)
                self._written.pop(machine.uid, None)
                self._with_failure.discard(machine.uid)
                self._context.process_state.machine_statuses.pop(machine.uid, None)
                self._context.process_state.readings.pop(machine.uid, None)
                self._context.process_state.unanswered.forget(machine.uid)
                self._context.stamps.forget(machine.uid)
            self._enqueue_change(CLUSTER.ref(machine.cluster, machine.namespace))

    async def _on_configs(self, configs: Informer[Raw]) -> None:
        async for before, after in configs.changes():
            for raw in filter(None, (before, after)):
                for ref in clusters_using_config(configs.kind.kind, raw, list(self._clusters.values())):
                    self.controller.queue.add(ref)
            if after is not None:
                ref = configs.kind.ref(name_of(after), namespace_of(after))
                self._protection.on_object(ref, frozenset(finalizers_of(after)))

    async def _on_secrets(self) -> None:
        async for before, after in self._secrets.informer.changes():
            secret = after or before
            if secret is None:
                continue
            if before is None or after is None or before.allowed_namespaces != after.allowed_namespaces:
                for machine in self._machines.values():
                    self._track(machine)
            if before != after:
                self._prober.probe_again(f"{secret.namespace}:{secret.name}")
                self._objects.restart(f"{secret.namespace}:{secret.name}")
                self._leases.restart(f"{secret.namespace}:{secret.name}")
                self._hosts.restart(f"{secret.namespace}:{secret.name}")
            self._enqueue_users(f"{secret.namespace}:{secret.name}", secret.cluster_uid)
            if after is not None:
                self._protection.on_object(SECRET.ref(after.name, after.namespace), after.finalizers)

    async def _on_snapshots(self) -> None:
        async for before, after in self._snapshots.informer.changes():
            if (snapshot := after or before) is not None:
                self.controller.queue.add(CLUSTER.ref(snapshot.cluster, snapshot.namespace))

    async def _on_machine_statuses(self) -> None:
        async for before, after in self._infrastructure.statuses().changes():
            vm = after or before
            if vm is not None and (ref := self._cluster_of.get(vm.machine_uid)):
                self._enqueue_change(ref)
            if before and after and before.presence != "unknown" == after.presence:
                self._prober.probe_again(self._credentials.get(after.machine_uid, ""))

    def _on_harvester_object(self, before: Owned | None, after: Owned | None) -> None:
        """A VM that no Machine records has come or gone; a claim is gone; an account or its token has come or gone; the
        LoadBalancer of an endpoint has changed.

        A VM that a Machine records is reported with the machine's status. An address that a VM has no more may be what a machine
        of any Cluster waits for.
        """
        if _has_lost_address(before, after):
            self._enqueue_awaiting_address()
        match after or before:
            case OrphanVm(machine_uid=uid, cluster_uid=cluster_uid) if uid not in self._cluster_of:
                self._enqueue_cluster(cluster_uid)
            case MachineClaim(cluster_uid=cluster_uid) | AccountObject(cluster_uid=cluster_uid) if (
                after is None
            ):
                self._enqueue_cluster(cluster_uid)
            case IPPool() if before != after:
                for ref in self._objects.list_ip_pool_users():
                    self.controller.queue.add(ref)
            case ObservedBalancer(cluster_uid=cluster_uid) if before != after:
                self._enqueue_cluster(cluster_uid)
            case _:
                pass

    def _on_address(self, before: IPAddress | None, after: IPAddress | None) -> None:
        """One that was released may be what a machine of another Cluster waits for. One that a user has deleted is claimed
        again for the VM that has it."""
        if after is None:
            self._enqueue_awaiting_address()
            if before is not None:
                self._enqueue_cluster(before.cluster_uid)
        if before is None and after is not None and after.machine_uid not in self._cluster_of:
            self._enqueue_cluster(after.cluster_uid)

    def _on_hosts(self, credential: str) -> None:
        for ref in self._secret_users.find(credential):
            self._enqueue_change(ref)

    def _on_probe(self, credential: str) -> None:
        """The VMs that it shows may be those of another Harvester now, and what they have no more what others wait for."""
        self._enqueue_users(credential)
        self._enqueue_awaiting_address()

    def _enqueue_change(self, ref: ObjectRef) -> None:
        self._metrics.on_change(ref)
        self.controller.queue.add_after(ref, self._spacing.left(ref))

    def _enqueue_awaiting_address(self) -> None:
        for ref in self._awaiting_address:
            self.controller.queue.add(ref)

    def _enqueue_cluster(self, uid: str) -> None:
        for raw in self._clusters.by_index(uid):
            self.controller.queue.add(CLUSTER.ref(name_of(raw), namespace_of(raw)))

    def on_kind(self, kind: str) -> None:
        """A machine config kind can be used now, or no more: the Clusters that name it are reconciled."""
        for raw in self._clusters.values():
            if kind in read_machine_config_kinds(raw):
                self.controller.queue.add(CLUSTER.ref(name_of(raw), namespace_of(raw)))

    def _enqueue_users(self, secret: str, owner_uid: str = "") -> None:
        for ref in self._secret_users.find(secret, owner_uid):
            self.controller.queue.add(ref)

    def _track(self, machine: Machine) -> None:
        self._credentials[machine.uid] = machine.credential
        # Here, because no status arrives before a machine is tracked or requested, and both come after the record.
        self._cluster_of[machine.uid] = CLUSTER.ref(machine.cluster, machine.namespace)
        if machine.driver_config is None or machine.uid in self._tracked:
            return
        if not machine.was_created and machine.deletion_timestamp is None:
            return  # it is tracked once its VM is created
        try:
            self._context.require_machine_consent(machine)
        except CredentialError:
            return  # the status of the Cluster says so; it is tracked once the Secret allows it
        self._tracked.add(machine.uid)
        self._infrastructure.track(machine.driver_config)

    # -- reconcile -----------------------------------------------------------------------------------------------

    async def reconcile(self, key: ObjectRef) -> Outcome:
        if not (self._clusters.informer.is_watching and self._machines.informer.is_watching):
            now = self._clock.now()
            return Waiting("the management API", now, "reconciliation resumes", now + SYNC_RETRY)
        if self._group is not None and (raw := self._clusters.get(key)) is not None:
            self._configs.watch(self._group, read_machine_config_kinds(raw))
        state = await self._observer.observe(key)
        if state is None:
            if self._group is not None:
                self._objects.watch(self._group, key, frozenset())
                self._objects.watch_balancers(self._group, key, frozenset())
                self._objects.watch_addresses(self._group, key, frozenset())
                self._objects.watch_ip_pools(self._group, key, frozenset())
                self._leases.close(key)
                self._scopes.forget(key)
                self._prober.watch(self._group, key, ())
                self._hosts.watch(self._group, key, ())
            self._awaiting_address.discard(key)
            self._spacing.forget(key)
            self._metrics.forget(key)
            return SETTLED
        if self._group is not None:
            self._prober.watch(self._group, key, self._observer.credentials.list_allowed(state.cluster))
            self._prober.request_versions(self._observer.credentials.find_for_versions(state.cluster))
        if state.awaits_probe:
            return Waiting("the first answer of Harvester", state.now, "the preflight")
        if self._group is not None:
            self._objects.watch(self._group, key, state.places)
            self._objects.watch_balancers(self._group, key, self._observer.balancers.list_places(state))
            self._objects.watch_addresses(
                self._group, key, self._observer.addresses.list_credentials(state.cluster)
            )
            self._objects.watch_ip_pools(
                self._group, key, self._observer.addresses.list_ip_pool_credentials(state.cluster)
            )
            self._leases.open(self._group, key, state.places)
            self._hosts.watch(self._group, key, self._observer.credentials.list_allowed(state.cluster))
        connection = self._connect_guest(key, state)
        self._spacing.on_reconciled(key, len(state.machines))
        plan = plan_cluster(state)
        self._metrics.on_planned(key, plan.held, state.credential_end)
        if state.contested or any(
            may_await_address(one, state.cluster.find_pool(one.pool)) for one in state.active
        ):
            self._awaiting_address.add(key)
        else:
            self._awaiting_address.discard(key)
        self._remember_preflight(state)
        is_unexplained = state.has_failed_preflight and not state.credential_problems
        if is_unexplained or (state.orphans and state.orphans.unknown):
            self._probe_credentials(state)
        # Ready is withdrawn before work that may take long; the next reconcile executes the plan.
        withdrawn = self._claims_too_much(state, plan)
        if withdrawn:
            failures = self._failures.get(state.cluster.uid, {})
        else:
            failures = self._failures[state.cluster.uid] = await self._executor.execute(plan, state)
            self._metrics.on_admitted(one for one in plan.admitted if one.machine not in failures)
            if failures:
                self._probe_credentials(state)
            if plan.actions and not failures and not _only_waits(plan):
                await self._write_learned(state)
                return Changed(
                    f"{len(plan.actions)} actions"
                )  # the reconcile that has nothing to do writes the rest
            deadline = self._find_startup_deadline(state)
            if deadline is not None and not failures:
                await self._withdraw_ready(state, plan)
                return Waiting(
                    "Harvester and the guest API server", state.now, "the status is written", deadline
                )
            if plan.actions:
                state = _without_deleted(self._context.refreshed(state), plan, failures)
                plan = replace(plan, diagnoses=diagnose_all(state))
        state = replace(state, stale_watch=self._context.refresh_stale_watch(state))
        wait = find_wait(state, plan, failures)
        due = await self._patch_status(state, plan, failures, wait)
        if withdrawn:
            return Changed("status Ready withdrawn")
        instants = [due, connection.grace_deadline if connection else None]
        instants.append(state.address_scope.retry_at if state.address_scope else None)
        return _outcome(state, plan, failures, wait, instants)

    def _probe_credentials(self, state: ClusterState) -> None:
        """A request has failed: whether it is the credential shows at once, not when a watch ends."""
        for credential in self._observer.credentials.list_allowed(state.cluster):
            self._prober.probe_again(credential)

    def _remember_preflight(self, state: ClusterState) -> None:
        if state.preflight is not None and not state.has_failed_preflight:
            passed = (state.cluster.generation, state.preflight)
            self._context.process_state.preflight_passed[state.cluster.uid] = passed
            self._context.process_state.account_taken.discard(state.cluster.uid)

    def _find_startup_deadline(self, state: ClusterState) -> datetime | None:
        """Until when no status is written because this process has just started and not every source has answered yet.

        What it does not know yet is in the status. Were that overwritten with "unknown", each restart would withdraw
        Ready from healthy clusters, and start all timeouts that count from its date anew.
        """
        left = self._started_at + STARTUP_GRACE - self._clock.monotonic()
        if left <= timedelta() or state.cluster.deletion_timestamp is not None:
            return None
        unknown = state.recorded.initialized and not state.guest.is_reachable
        unknown |= any(
            machine.record.was_created and machine.presence == "unknown" for machine in state.machines
        )
        return state.now + left if unknown else None

    async def _withdraw_ready(self, state: ClusterState, plan: Plan) -> None:
        """Write what Harvester has already shown to be otherwise, and nothing that only another source could say."""
        change = derive_withdrawal(state, plan)
        if not change:
            return
        for machine in state.machines:
            if machine.is_down:
                await self._patch_machine_status(machine, state, plan, {})
        await self._context.patch_cluster_status(state, _status_patch(state.recorded.raw, change))

    def _connect_guest(self, key: ObjectRef, state: ClusterState) -> GuestConnection | None:
        """Keep the connection to the guest cluster open, and pointing to its servers."""
        if state.cluster.deletion_timestamp is not None and not must_ask(state):
            # Nothing is done in it any more, and that its API ends with its machines is no failure.
            self._guest_clusters.close(state.cluster.uid)
            return None
        urls = list_apis_to_ask(state)
        if not (self._group and state.secrets and urls):
            return self._guest_clusters.find(state.cluster.uid)
        proxy = self._harvesters.find_proxy(state.cluster.credential, state.cluster.namespace)
        connection = self._guest_clusters.open(
            self._group, state.cluster.uid, state.secrets, proxy, lambda: self._enqueue_change(key)
        )
        connection.updates.follow(any(machine.record.update is not None for machine in state.active))
        connection.charts.follow(is_upgrading(state))
        stopped = _stopped_urls(state)
        connection.set_endpoints([url for url in urls if url not in stopped] or urls)
        return connection

    def _claims_too_much(self, state: ClusterState, plan: Plan) -> bool:
        """Whether there is work to do while the status still says Ready."""
        claims = state.recorded.raw.get("ready") is True and state.cluster.deletion_timestamp is None
        if not (plan.actions and claims) or all_ready(state):
            return False
        return self._find_startup_deadline(state) is None

    async def _patch_status(
        self, state: ClusterState, plan: Plan, failures: Mapping[str, ActionFailure], wait: Wait | None
    ) -> datetime | None:
        """Write the status of the Cluster and its Machines where it has changed; when to write what is put off."""
        due = [await self._patch_machine_status(machine, state, plan, failures) for machine in state.machines]
        await self._executor.record_held(plan, state)
        await self._executor.record_credential_problem(state)
        await self._executor.record_unrecorded_vms(state)
        await self._executor.record_lease(state)
        wanted = derive_cluster(state, plan, wait)
        if state.cluster.has_finalizer or state.cluster.deletion_timestamp is None:
            await self._context.patch_cluster_status(state, _status_patch(state.recorded.raw, wanted))
        return min(filter(None, due), default=None)

    async def _write_learned(self, state: ClusterState) -> None:
        """Write what actions have just learned, with the status that follows, although the next reconcile comes at once."""
        unwritten = self._context.process_state.machine_statuses
        state = self._context.refreshed(state)
        plan = Plan(diagnoses=diagnose_all(state))
        for machine in state.machines:
            stored = (self._machines.get(machine.record.ref) or machine.record).status
            if is_learned(_status_patch(stored, unwritten.get(machine.record.uid, {}))):
                await self._patch_machine_status(machine, state, plan, {})

    async def _patch_machine_status(
        self, machine: MachineState, state: ClusterState, plan: Plan, failures: Mapping[str, ActionFailure]
    ) -> datetime | None:
        """Write what was derived, and what actions have learned.

        While a machine boots, only what a person waits for is written at once. The rest is overtaken by the next step
        within seconds and waits for BOOT_STATUS_INTERVAL; the return value is when. Readings have it at once. What
        actions have learned never waits.
        """
        uid, unwritten = machine.record.uid, self._context.process_state.machine_statuses
        stored = (self._machines.get(machine.record.ref) or machine.record).status
        inputs = (stored, *list_status_inputs(machine, state, plan, failures))
        if uid not in unwritten and self._written.get(uid) == inputs:
            return None  # it was derived from these before, and nothing was to be written
        wanted = {**unwritten.get(uid, {}), **derive_machine(machine, state, plan, failures)}
        change = _status_patch(stored, wanted)
        if not change:
            self._written[uid] = inputs
        # Neither a failure waits nor that it is over: the sentence would name what is not so any more.
        may_wait = not (machine.name in failures or uid in self._with_failure) and is_boot_step(
            machine, stored, wanted
        )
        if change and may_wait and not is_learned(change):
            elapsed = self._clock.monotonic()
            left = self._boot_changes.setdefault(uid, elapsed) + BOOT_STATUS_INTERVAL - elapsed
            if left > timedelta():
                unwritten[uid] = wanted
                return state.now + left
        await self._context.patch_machine_status(machine.record, change)
        unwritten.pop(uid, None)
        self._boot_changes.pop(uid, None)
        if machine.name in failures:
            self._with_failure.add(uid)
        else:
            self._with_failure.discard(uid)
        return None


def _outcome(
    state: ClusterState,
    plan: Plan,
    failures: dict[str, ActionFailure],
    wait: Wait | None,
    instants: Sequence[datetime | None],
) -> Outcome:
    if failures:
        subject, failure = next(iter(failures.items()))
        return Failed(ActionsFailed(f"{subject or state.cluster.name}: {failure.message}; {failure.hint}"))
    if plan.refused:
        until = state.now + RECHECK_INTERVAL
        return Waiting(str(plan.refused[0]), state.now, "the preflight is repeated", until)
    waits = [wait.until for wait in plan.waits] + [held.until for held in plan.held]
    due = min((instant for instant in (*waits, *instants) if instant is not None), default=None)
    if wait is None and due is None:
        return SETTLED
    return Waiting(wait.what if wait else "", state.now, wait.then if wait else "", due)


def _has_lost_address(before: Owned | None, after: Owned | None) -> bool:
    had = before.addresses if isinstance(before, OrphanVm | ReportingVm) else ()
    has = after.addresses if isinstance(after, OrphanVm | ReportingVm) else ()
    return bool(set(had) - set(has))


def _stopped_urls(state: ClusterState) -> set[str]:
    """Servers that certainly do not answer: a connection to them may hang for minutes without an error."""
    stopped = tuple(machine for machine in state.machines if machine.is_down)
    return set(list_api_servers(replace(state, machines=stopped)))


def _without_deleted(state: ClusterState, plan: Plan, failures: Mapping[str, ActionFailure]) -> ClusterState:
    """The state with the machines that were just deleted marked as such: no status may count on them any more."""
    deleted = {
        action.machine for action in plan.actions if isinstance(action, DeleteMachine)
    } - failures.keys()
    if not deleted:
        return state
    machines = tuple(
        replace(
            machine,
            record=replace(machine.record, deletion_timestamp=machine.record.deletion_timestamp or state.now),
        )
        if machine.name in deleted
        else machine
        for machine in state.machines
    )
    return replace(state, machines=machines)


def _only_waits(plan: Plan) -> bool:
    """Whether all that was done is to ask again for what is waited for: a token that is not issued yet, or the eviction of pods,
    which their PodDisruptionBudgets may refuse for ever. The status says so, and when it is asked for again."""
    asked = all(isinstance(action, CreateServiceAccount | EvictPods) for action in plan.actions)
    return asked and any(wait.until is not None for wait in plan.waits)


def _status_patch(before: Any, wanted: dict[str, Any]) -> dict[str, Any]:
    """The merge patch that brings the fields of `wanted` into `before`, {} when they are there already."""
    had = {key: before[key] for key in wanted if key in before}
    asked = {key: value for key, value in wanted.items() if value is not None}
    return make_merge_patch(had, asked)


def _unread(raw: Raw) -> Raw:
    return raw
