"""The cloud provider's metrics, under the names that dashboards of the Go program know; those with `windrow_` are ours.

Controllers count into a `Metrics()` whether or not `/metrics` is served.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime

from windrow.probes.metrics import Registry

MANAGER = "cloud-controller-manager"
_SECONDS = tuple(float(2**power) for power in range(15))  # 1 … 16384
_NODE_SECONDS = tuple(float(4**power) for power in range(6))  # 1 … 1024
_CALL_SECONDS = (0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0, 60.0)


class Metrics:
    """All metrics of one process. Those that no other module writes have a method here."""

    def __init__(self) -> None:
        registry = self.registry = Registry()
        # The names of Kubernetes' cloud framework.
        self.service_syncs = registry.counter(
            "service_controller_loadbalancer_sync_total", "Load balancer syncs, failed ones with them."
        )
        # The framework's, which always stay at 0: nodes are not brought to load balancers.
        registry.histogram(
            "service_controller_nodesync_latency_seconds",
            "How long a change of nodes took; none is brought to services, so none are seen.",
            _SECONDS,
        )
        registry.counter(
            "service_controller_nodesync_error_total",
            "Changes of nodes that could not be brought to services; none is.",
        )
        registry.histogram(
            "service_controller_update_loadbalancer_host_latency_seconds",
            "How long bringing new nodes to load balancers took; the host is never asked, so none are seen.",
            _SECONDS,
        )
        self.taint_removal_delay = registry.histogram(
            "node_controller_cloud_provider_taint_removal_delay_seconds",
            "From the creation of a node until its taint was taken away.",
            _NODE_SECONDS,
        )
        self.first_sync_delay = registry.histogram(
            "node_controller_initial_node_sync_delay_seconds",
            "From the creation of a node until its first reconcile.",
            _NODE_SECONDS,
        )
        self._controllers = registry.gauge(
            "running_managed_controllers",
            "1 for each controller that runs in this process.",
            ("name", "manager"),
        )
        self._leader = registry.gauge(
            "leader_election_master_status", "1 while this process has the Lease.", ("name",)
        )
        self._depths = registry.gauge("workqueue_depth", "Keys in a work queue.", ("name",))
        self.queue_adds = registry.counter("workqueue_adds_total", "Keys added to a work queue.", ("name",))
        self.queue_retries = registry.counter(
            "workqueue_retries_total", "Keys added to a work queue again after a failure.", ("name",)
        )
        self._requests = registry.counter(
            "rest_client_requests_total",
            "Requests to both clusters, by method, status code and host.",
            ("host", "method", "code"),
        )
        self._request_seconds = registry.histogram(
            "rest_client_request_duration_seconds",
            "How long requests took, by verb and host.",
            _CALL_SECONDS,
            ("host", "verb"),
        )
        # Ours.
        self.service_failures = registry.counter(
            "windrow_service_failures_total",
            "Load balancer syncs that failed, by the reason of their event.",
            ("reason",),
        )
        self._services = registry.gauge(
            "windrow_services", "Services of type LoadBalancer, by state.", ("state",)
        )
        self.orphans = registry.gauge(
            "windrow_orphans", "Load balancers on the host whose service is gone, as the sweep last saw them."
        )
        self.orphans_deleted = registry.counter(
            "windrow_orphans_deleted_total", "Orphans that the sweep deleted."
        )
        self._expirations = registry.gauge(
            "windrow_credential_expiration_timestamp_seconds",
            "When a credential expires, in seconds since 1970; absent for one that does not say.",
            ("cluster",),
        )
        self.credential_reloads = registry.counter(
            "windrow_credential_reloads_total",
            "How often a credential was read again, by result.",
            ("cluster", "result"),
        )

    def value(self, name: str, /, **labels: str) -> float:
        """The present value of a sample, 0 while it has none."""
        return self.registry.value(name, **labels)

    def set_service_states(self, states: Mapping[str, int]) -> None:
        """How many services are in each state now (`ready`, `waiting`, `refused`); a state without any is left out."""
        self._services.clear()
        for state, count in states.items():
            self._services.labels(state).set(count)

    def register_queue(self, name: str, depth: Callable[[], int]) -> None:
        """`depth` is called for the queue `service` or `Nodes` at each scrape."""
        self._depths.labels(name).set_function(depth)

    def register_leader(self, is_leader: Callable[[], bool], lease: str) -> None:
        """`is_leader` is called at each scrape."""
        self._leader.labels(lease).set_function(lambda: int(is_leader()))

    def set_controller_running(self, name: str, is_running: bool = True) -> None:
        self._controllers.labels(name, MANAGER).set(int(is_running))

    def observe_request(self, host: str, method: str, code: str, seconds: float) -> None:
        """A request to `host` that was answered with `code`, or that broke (`<error>`)."""
        self._requests.labels(host, method, code).inc()
        self._request_seconds.labels(host, method).observe(seconds)

    def set_credential_expiry(self, cluster: str, expires_at: datetime | None) -> None:
        """When the credential for `host` or `guest` expires; None when it does not say."""
        if expires_at is not None:
            self._expirations.labels(cluster).set(expires_at.timestamp())
        elif self.value("windrow_credential_expiration_timestamp_seconds", cluster=cluster):
            self._expirations.remove(cluster)
