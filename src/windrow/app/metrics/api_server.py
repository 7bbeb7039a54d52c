"""Metrics of an API server that this process serves, under the names of kube-apiserver."""

from __future__ import annotations

from collections.abc import Callable

from windrow.apiserver.server import ApiServer
from windrow.apiserver.storage.memory import MemoryStore, resource_prefix
from windrow.probes.metrics import Registry

_SECONDS = (0.005, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)


class ApiServerMetrics:
    """Counts the requests of `api` into `registry`. `size` is that of its database in bytes, 0 where it has none."""

    def __init__(self, registry: Registry, api: ApiServer | None, size: Callable[[], int] = int) -> None:
        """Without `api` the metrics are defined and stay as they are, for the reference."""
        self._api, self._size = api, size
        self._requests = registry.counter(
            "apiserver_request_total",
            "Requests by verb, resource (empty for other paths) and status code.",
            ("verb", "resource", "code"),
        )
        self._seconds = registry.histogram(
            "apiserver_request_duration_seconds", "How long requests took, by verb.", _SECONDS, ("verb",)
        )
        self._watches = registry.gauge(
            "apiserver_longrunning_requests", "Watches that are open, by resource.", ("resource",)
        )
        self._objects = registry.snapshot_gauge(
            "apiserver_storage_objects", "Objects in the store, by resource.", ("resource",)
        )
        self._bytes = registry.snapshot_gauge(
            "apiserver_storage_size_bytes", "Size of the database with its log; 0 for a store in memory."
        )
        self._revisions = registry.snapshot_gauge(
            "windrow_store_revision",
            "Revisions of the store: the latest, and the one up to which its history is forgotten.",
            ("revision",),
        )
        if api is not None:
            api.hooks.on_request, api.hooks.on_watch = self._on_request, self._on_watch
            registry.on_scrape(self._read)

    def _on_request(self, verb: str, resource: str, code: int, seconds: float) -> None:
        self._requests.labels(verb.upper(), resource, str(code)).inc()
        self._seconds.labels(verb.upper()).observe(seconds)

    def _on_watch(self, resource: str, change: int) -> None:
        self._watches.labels(resource).inc(change)

    def _read(self) -> None:
        assert self._api is not None
        store = self._api.store
        self._bytes.set_all({(): self._size()})
        if not isinstance(store, MemoryStore):
            return
        counts = store.count_by_resource()
        types = {type.kind.group_resource: resource_prefix(type.prefix()) for type in self._api.registry}
        self._objects.set_all({(name,): counts.get(prefix, 0) for name, prefix in types.items()})
        self._revisions.set_all({("latest",): store.rev, ("compacted",): store.compacted_rev})
