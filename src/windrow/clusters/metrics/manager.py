"""All metrics of a cluster manager. Names of client-go, controller-runtime and Kubernetes where those have one; `windrow_` are ours.

It counts whether or not its metrics are read. No series has the name of a Machine (`fleet`).
"""

from __future__ import annotations

import platform
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime

from windrow import __version__
from windrow.client.middleware.metrics import OnRequest
from windrow.clusters.api.addresses import IPPool
from windrow.clusters.api.machine import Machine
from windrow.clusters.metrics.fleet import Fleet, Labels
from windrow.clusters.plan.actions import Action, Disruption, HeldDisruption
from windrow.controller.outcomes import Changed, Failed, Outcome, Waiting
from windrow.core.clock import Clock
from windrow.kubernetes.objects import Raw
from windrow.kubernetes.requests import Request
from windrow.kubernetes.resources import ObjectRef
from windrow.probes.metrics import Gauge, Registry

_CALL_SECONDS = (0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0, 60.0)
_RECONCILE_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
MAX_CONDITION_SERIES = 1000
MAX_POOL_SERIES = 2000

Reconcile = Callable[[ObjectRef], Awaitable[Outcome]]


@dataclass(frozen=True, slots=True)
class ObservedPool:
    """An IPPool, and the credential that shows it (`namespace:name`)."""

    credential: str
    pool: IPPool


def _none() -> tuple[()]:
    return ()


@dataclass(slots=True)
class Sources:
    """What is read at each scrape. `watching` says of the resources of the management API whether they are watched,
    `watch_lag_s` for how long, at most, a watch of a Harvester has been seen behind."""

    clusters: Callable[[], Iterable[Raw]] = _none
    machines: Callable[[], Iterable[Machine]] = _none
    ip_pools: Callable[[], Iterable[ObservedPool]] = _none
    watching: Callable[[], Mapping[str, bool]] = dict
    watch_lag_s: Callable[[], float] = float


@dataclass(slots=True)
class _OfCluster:
    """What is remembered of one Cluster between its reconciles."""

    held: frozenset[Labels] = frozenset()  # machine, kind of disruption, reason
    credential: tuple[str, float] | None = None  # and when it expires


class ManagerMetrics:
    """All metrics of one manager. Its `sources` are set by the controller, and read at each scrape."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.sources = Sources()
        self._fleet = Fleet()
        self._of_cluster: dict[ObjectRef, _OfCluster] = {}
        self._due: dict[ObjectRef, float] = {}  # since when a change of a Cluster is not planned for
        self.registry = Registry()
        self._define_client_go()
        self._define_decisions()
        self._define_fleet()
        self.registry.on_scrape(self._read)

    # -- definitions -------------------------------------------------------------------------------------------------

    def _define_client_go(self) -> None:
        registry = self.registry
        self._requests = registry.counter(
            "rest_client_requests_total",
            "Requests by API (harvester, guest, management), method and status code. A watch counts when it is opened.",
            ("host", "method", "code"),
        )
        self._request_seconds = registry.histogram(
            "rest_client_request_duration_seconds",
            "How long requests took until they were answered, by API and verb.",
            _CALL_SECONDS,
            ("host", "verb"),
        )
        self._depth: Gauge = registry.gauge(
            "workqueue_depth", "Objects that wait to be reconciled.", ("name",)
        )
        self._adds = registry.counter(
            "workqueue_adds_total", "Objects that were added to a work queue.", ("name",)
        )
        self._reconciles = registry.counter(
            "controller_runtime_reconcile_total",
            "Reconciles by result: success, requeue (something was done), requeue_after (waits for an instant), error.",
            ("controller", "result"),
        )
        self._reconcile_seconds = registry.histogram(
            "controller_runtime_reconcile_time_seconds",
            "How long reconciles took.",
            _RECONCILE_SECONDS,
            ("controller",),
        )
        self._leader: Gauge = registry.gauge(
            "leader_election_master_status", "1 while this process is the active manager.", ("name",)
        )
        registry.gauge(
            "windrow_build_info", "1, with the versions of Windrow and Python.", ("version", "python")
        ).labels(__version__, platform.python_version()).set(1)

    def _define_decisions(self) -> None:
        registry = self.registry
        self._reaction = registry.histogram(
            "windrow_cluster_reaction_seconds",
            "From a change that concerns a Cluster until it was planned for.",
            _RECONCILE_SECONDS,
        )
        self._actions = registry.counter(
            "windrow_actions_total",
            "Actions that were executed, by the reason of their event and result: done, failed.",
            ("reason", "result"),
        )
        self._disruptions = registry.counter(
            "windrow_disruptions_total",
            "Disruptions (replace, scale-down, roll, remove-member, update) by decision: admitted, or held with the gate that "
            "held them. One that stays held counts once.",
            ("kind", "decision", "reason"),
        )
        self._held = registry.snapshot_gauge(
            "windrow_disruptions_held",
            "Disruptions of each Cluster that are held now.",
            ("namespace", "cluster", "kind", "reason"),
            max_series=MAX_POOL_SERIES,
        )

    def _define_fleet(self) -> None:
        gauge, most = self.registry.snapshot_gauge, MAX_CONDITION_SERIES
        condition, per_cluster = ("condition", "status", "reason"), ("namespace", "cluster")
        self._gauges = {
            "clusters": gauge("windrow_clusters", "Clusters by phase.", ("phase",), max_series=most),
            "machines": gauge("windrow_machines", "Machines by phase.", ("phase",), max_series=most),
            "cluster_conditions": gauge(
                "windrow_cluster_conditions", "Clusters by condition.", condition, max_series=most
            ),
            "machine_conditions": gauge(
                "windrow_machine_conditions", "Machines by condition.", condition, max_series=most
            ),
            "oldest_cluster_conditions": gauge(
                "windrow_cluster_conditions_oldest_timestamp_seconds",
                "Since when the Cluster that has been in it longest has a condition that is not True.",
                condition,
                max_series=most,
            ),
            "oldest_machine_conditions": gauge(
                "windrow_machine_conditions_oldest_timestamp_seconds",
                "Since when the Machine that has been in it longest has a condition that is not True.",
                condition,
                max_series=most,
            ),
            "waits": gauge(
                "windrow_waits",
                "Objects that wait, by kind and the reason of their condition Ready.",
                ("kind", "reason"),
                max_series=most,
            ),
            "oldest_waits": gauge(
                "windrow_waits_oldest_timestamp_seconds",
                "Since when the object that has waited longest waits.",
                ("kind", "reason"),
                max_series=most,
            ),
            "cluster_phase": gauge(
                "windrow_cluster_status_phase", "1 for the phase of each Cluster.", (*per_cluster, "phase")
            ),
            "cluster_machines": gauge(
                "windrow_cluster_machines", "Machines of each Cluster by phase.", (*per_cluster, "phase")
            ),
            "not_true": gauge(
                "windrow_cluster_condition_since_timestamp_seconds",
                "For each condition of a Cluster that is not True, since when; 0 where that is not said.",
                (*per_cluster, *condition),
            ),
            "expirations": gauge(
                "windrow_cluster_certificate_expiration_timestamp_seconds",
                "When the first certificate of the nodes of a Cluster ends, as far as is known.",
                per_cluster,
            ),
            "tripped": gauge(
                "windrow_pool_breaker_tripped",
                "1 for each machine pool whose machines are not replaced because too many are unhealthy at once.",
                (*per_cluster, "pool"),
                max_series=MAX_POOL_SERIES,
            ),
        }
        self._credential_expirations = gauge(
            "windrow_credential_expiration_timestamp_seconds",
            "When the client certificate in a credential for Harvester ends; absent for one that has none.",
            ("namespace", "secret"),
        )
        self._pool_addresses = gauge(
            "windrow_ip_pool_addresses",
            "Addresses of an IPPool that Clusters use: total, and those that its load balancers have.",
            ("namespace", "secret", "pool", "state"),
            max_series=MAX_POOL_SERIES,
        )
        self._watching = gauge(
            "windrow_watching", "1 while a resource of the management API is watched.", ("resource",)
        )
        self._watch_lag = gauge(
            "windrow_watch_lag_seconds",
            "For how long, at most, a watch of a Harvester has not shown what Harvester said when it was asked.",
        )
        self._dropped = gauge(
            "windrow_metrics_dropped_series",
            "Series that the last scrape left out because there were too many.",
        )

    # -- what happens ------------------------------------------------------------------------------------------------

    def on_request(self, host: str) -> OnRequest:
        """What an InstrumentedTransport to `harvester`, `guest` or `management` calls."""

        def observe(request: Request, code: str, seconds: float) -> None:
            verb = "WATCH" if request.query_parameter("watch") else request.method
            self._requests.labels(host, request.method, code).inc()
            self._request_seconds.labels(host, verb).observe(seconds)

        return observe

    def timed(self, controller: str, reconcile: Reconcile) -> Reconcile:
        """`reconcile`, whose durations and results are counted."""

        async def timed(key: ObjectRef) -> Outcome:
            began, result = self._clock.monotonic(), "error"
            try:
                outcome = await reconcile(key)
                result = _result_of(outcome)
                return outcome
            finally:
                took = (self._clock.monotonic() - began).total_seconds()
                self._reconciles.labels(controller, result).inc()
                self._reconcile_seconds.labels(controller).observe(took)

        return timed

    def register_queue(self, name: str, depth: Callable[[], int]) -> None:
        """`depth` is called at each scrape."""
        self._depth.labels(name).set_function(depth)

    def register_leader(self, name: str, is_leader: Callable[[], bool]) -> None:
        """`is_leader` is called at each scrape."""
        self._leader.labels(name).set_function(lambda: int(is_leader()))

    def on_change(self, ref: ObjectRef) -> None:
        """Something that concerns the Cluster has changed; several changes before its plan are counted from the first."""
        self._due.setdefault(ref, self._clock.monotonic().total_seconds())

    def on_added(self, ref: ObjectRef) -> None:
        """The Cluster was added to the work queue."""
        self._adds.labels("clusters").inc()
        self.on_change(ref)

    def on_planned(
        self, ref: ObjectRef, held: Iterable[HeldDisruption], credential: tuple[str, datetime] | None
    ) -> None:
        """There is a plan for the Cluster; `credential` is the one of its own that ends first, and when."""
        due = self._due.pop(ref, None)
        if due is not None:
            self._reaction.observe(max(self._clock.monotonic().total_seconds() - due, 0))
        known = self._of_cluster.setdefault(ref, _OfCluster())
        now_held = frozenset((one.disruption.machine, one.disruption.kind, one.gate) for one in held)
        for _, kind, reason in now_held - known.held:
            self._disruptions.labels(kind, "held", reason).inc()
        known.held = now_held
        known.credential = None if credential is None else (credential[0], credential[1].timestamp())

    def on_admitted(self, disruptions: Iterable[Disruption]) -> None:
        """These were admitted, and carried out."""
        for one in disruptions:
            self._disruptions.labels(one.kind, "admitted", "").inc()

    def on_action(self, action: Action, is_done: bool) -> None:
        """The action was executed, or has failed."""
        self._actions.labels(action.reason, "done" if is_done else "failed").inc()

    def forget(self, ref: ObjectRef) -> None:
        """The Cluster is gone. May be repeated."""
        self._of_cluster.pop(ref, None)
        self._due.pop(ref, None)

    # -- what is read at a scrape ------------------------------------------------------------------------------------

    def _read(self) -> None:
        samples = self._fleet.count(self.sources.clusters(), self.sources.machines())
        for name, gauge in self._gauges.items():
            gauge.set_all(getattr(samples, name))
        held: dict[Labels, float] = {}
        credentials: dict[Labels, float] = {}
        for ref, one in self._of_cluster.items():
            for _, kind, reason in one.held:
                labels = (ref.namespace, ref.name, kind, reason)
                held[labels] = held.get(labels, 0) + 1
            if one.credential is not None:
                credentials[_split(one.credential[0])] = one.credential[1]
        self._held.set_all(held)
        self._credential_expirations.set_all(credentials)
        self._pool_addresses.set_all(_count_addresses(self.sources.ip_pools()))
        self._watching.set_all({(name,): int(is_on) for name, is_on in self.sources.watching().items()})
        self._watch_lag.set_all({(): self.sources.watch_lag_s()})
        self._dropped.set_all({(): self.registry.dropped_series})


def _split(credential: str) -> tuple[str, str]:
    namespace, _, name = credential.partition(":")
    return namespace, name


def _count_addresses(pools: Iterable[ObservedPool]) -> dict[Labels, float]:
    counts: dict[Labels, float] = {}
    for one in pools:
        labels = (*_split(one.credential), one.pool.name)
        counts[*labels, "total"] = float(
            sum(int(part.last) - int(part.first) + 1 for part in one.pool.ranges)
        )
        counts[*labels, "allocated"] = float(len(one.pool.allocated))
    return counts


def _result_of(outcome: Outcome) -> str:
    match outcome:
        case Failed():
            return "error"
        case Changed():
            return "requeue"
        case Waiting(until=until) if until is not None:
            return "requeue_after"
        case _:
            return "success"
