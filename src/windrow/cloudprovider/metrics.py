"""What the cloud provider counts, under the names that dashboards of the Go program know. In memory, no library.

A `Measures()` that nobody serves is a valid object: controllers count, and nobody looks. The names of the framework
keep their meaning; those that begin with `windrow_` are ours.

| Who calls          | What                                               |
|--------------------|----------------------------------------------------|
| service controller | `service_synced`, `service_failed`, `services_are` |
| node controller    | `node_seen`, `node_initialised`                    |
| both controllers   | `queue`, `queue_added`, `queue_retried`            |
| sweep              | `orphans_are`, `orphan_deleted`                    |
| program            | `leads`, `controller_runs`, `called`               |
| ways               | `credential_ends`, `credential_renewed`            |
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from datetime import datetime

from windrow.probes.metrics import Measure

MANAGER = "cloud-controller-manager"
_SECONDS = tuple(float(2**power) for power in range(15))  # 1 … 16384
_NODE_SECONDS = tuple(float(4**power) for power in range(6))  # 1 … 1024
_CALL_SECONDS = (0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0, 60.0)


class Metrics:
    """Everything that is counted. Iterate over it to see it all, in the order of names."""

    def __init__(self) -> None:
        self._all: dict[str, Measure] = {}
        # The names of Kubernetes' cloud framework.
        self._synced = self._counter(
            "service_controller_loadbalancer_sync_total", "Load balancer syncs, failed ones with them."
        )
        self._histogram(
            "service_controller_nodesync_latency_seconds",
            "How long a change of nodes took; none is brought to services, so none are seen.",
            _SECONDS,
        )
        self._counter(
            "service_controller_nodesync_error_total",
            "Changes of nodes that could not be brought to services; none is.",
        )
        self._histogram(
            "service_controller_update_loadbalancer_host_latency_seconds",
            "How long bringing new nodes to load balancers took; the host is never asked, so none are seen.",
            _SECONDS,
        )
        self._taints = self._histogram(
            "node_controller_cloud_provider_taint_removal_delay_seconds",
            "From the creation of a node until its taint was taken away.",
            _NODE_SECONDS,
        )
        self._first_syncs = self._histogram(
            "node_controller_initial_node_sync_delay_seconds",
            "From the creation of a node until it was first looked at.",
            _NODE_SECONDS,
        )
        self._controllers = self._gauge(
            "running_managed_controllers",
            "1 for each controller that runs in this process.",
            ("name", "manager"),
        )
        self._leads = self._gauge(
            "leader_election_master_status", "1 while this process has the Lease.", ("name",)
        )
        self._depths = self._gauge("workqueue_depth", "What waits in a queue.", ("name",))
        self._added = self._counter("workqueue_adds_total", "What began to wait in a queue.", ("name",))
        self._retried = self._counter(
            "workqueue_retries_total", "What was put in a queue again after a failure.", ("name",)
        )
        self._requests = self._counter(
            "rest_client_requests_total",
            "Requests to both clusters, by method, status code and host.",
            ("host", "method", "code"),
        )
        self._request_seconds = self._histogram(
            "rest_client_request_duration_seconds",
            "How long requests took, by verb and host.",
            _CALL_SECONDS,
            ("host", "verb"),
        )
        # Ours.
        self._failed = self._counter(
            "windrow_service_failures_total",
            "Load balancer syncs that failed, by the reason of their event.",
            ("reason",),
        )
        self._services = self._gauge(
            "windrow_services", "Services of type LoadBalancer, by state.", ("state",)
        )
        self._orphans = self._gauge(
            "windrow_orphans", "Load balancers on the host whose service is gone, as the sweep last saw them."
        )
        self._orphans_deleted = self._counter(
            "windrow_orphans_deleted_total", "Orphans that the sweep deleted."
        )
        self._ends = self._gauge(
            "windrow_credential_expiration_timestamp_seconds",
            "When a credential ends, in seconds since 1970; absent for one that does not say.",
            ("cluster",),
        )
        self._renewals = self._counter(
            "windrow_credential_reloads_total",
            "How often a credential was read anew, by result.",
            ("cluster", "result"),
        )

    def __iter__(self) -> Iterator[Measure]:
        return iter(self._all[name] for name in sorted(self._all))

    def __getitem__(self, name: str) -> Measure:
        return self._all[name]

    # --- services -------------------------------------------------------------------------------------------------

    def count_service_sync(self) -> None:
        """A service was looked at and something was tried for it; call it for failures, too."""
        self._synced.add()

    def count_service_failure(self, reason: str) -> None:
        """`reason` is that of the event: few different ones, never a message."""
        self._failed.add(reason=reason)

    def set_service_states(self, states: Mapping[str, int]) -> None:
        """How many services are in which state now (`ready`, `waiting`, `refused`, …): all of them at once."""
        self._services.replace(states)

    # --- nodes ----------------------------------------------------------------------------------------------------

    def observe_first_node_sync(self, seconds: float) -> None:
        """A node with the taint `uninitialized` was looked at for the first time, so long after its creation."""
        self._first_syncs.observe(seconds)

    def observe_taint_removal(self, seconds: float) -> None:
        """The taint `uninitialized` was taken away, so long after the node's creation."""
        self._taints.observe(seconds)

    # --- sweep ----------------------------------------------------------------------------------------------------

    def set_orphans(self, number: int) -> None:
        self._orphans.set(number)

    def count_deleted_orphan(self) -> None:
        self._orphans_deleted.add()

    # --- queues ---------------------------------------------------------------------------------------------------

    def register_queue(self, name: str, depth: Callable[[], int]) -> None:
        """`depth` is asked how much waits in the queue `service` or `Nodes` whenever somebody looks."""
        self._depths.ask(depth, name=name)

    def count_queue_add(self, name: str) -> None:
        """Something began to wait there, which did not before."""
        self._added.add(name=name)

    def count_queue_retry(self, name: str) -> None:
        """Something failed, and will be put there again."""
        self._retried.add(name=name)

    # --- the process ----------------------------------------------------------------------------------------------

    def register_leader(self, is_leader: Callable[[], bool], lease: str) -> None:
        """Ask `is_leader` whenever somebody looks."""
        self._leads.ask(lambda: int(is_leader()), name=lease)

    def set_controller_running(self, name: str, is_running: bool = True) -> None:
        self._controllers.set(int(is_running), name=name, manager=MANAGER)

    def observe_request(self, host: str, method: str, code: str, seconds: float) -> None:
        """One request to `host` was answered with `code`, or broke (`<error>`)."""
        self._requests.add(host=host, method=method, code=code)
        self._request_seconds.observe(seconds, host=host, verb=method)

    def set_credential_expiry(self, cluster: str, at: datetime | None) -> None:
        """When the credential for `host` or `guest` ends; None when it does not say."""
        if at is None:
            self._ends.forget(cluster=cluster)
        else:
            self._ends.set(at.timestamp(), cluster=cluster)

    def count_credential_reload(self, cluster: str, result: str) -> None:
        self._renewals.add(cluster=cluster, result=result)

    # --- how they are made ----------------------------------------------------------------------------------------

    def _counter(self, name: str, help: str, labels: tuple[str, ...] = ()) -> Measure:
        return self._enter(Measure(name, "counter", help, labels))

    def _gauge(self, name: str, help: str, labels: tuple[str, ...] = ()) -> Measure:
        return self._enter(Measure(name, "gauge", help, labels))

    def _histogram(
        self, name: str, help: str, bounds: tuple[float, ...], labels: tuple[str, ...] = ()
    ) -> Measure:
        return self._enter(Measure(name, "histogram", help, labels, bounds))

    def _enter(self, measure: Measure) -> Measure:
        self._all[measure.name] = measure
        return measure
