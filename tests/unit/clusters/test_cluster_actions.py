"""What is written of a Cluster as a whole, and what is done in its guest for that."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any

from tests.support.clock import LoopClock, run_driven
from tests.unit.clusters.builders import NOON, a_cluster, a_pool, look
from tests.unit.clusters.test_cluster import a_raw_cluster

from windrow.apiserver.server import ApiServer
from windrow.apiserver.storage.memory import MemoryStore
from windrow.app.embedded import management_api
from windrow.client.client import Client
from windrow.client.informer import Informer
from windrow.client.mutation_cache import MutationCache
from windrow.clusters.api.kinds import CLUSTER
from windrow.clusters.api.names import CLUSTER_FINALIZER
from windrow.clusters.context import ProcessState, ReconcileContext
from windrow.clusters.execute.cluster_actions import GUEST_SERVICE, ClusterActions
from windrow.clusters.plan import actions as do
from windrow.clusters.state import ClusterState
from windrow.core.rng import Rng
from windrow.kubernetes.errors import KubeError, Unreachable
from windrow.kubernetes.objects import Raw, finalizers_of, nested, new_object
from windrow.kubernetes.resources import NAMESPACE, ObjectRef

REF = CLUSTER.ref("prod", "fleet-default")


@dataclass
class Guest:
    """A guest whose Service `kubernetes` has this uid, or that does not answer."""

    uid: str = ""
    error: KubeError | None = None

    @property
    def client(self) -> Guest:
        return self

    async def find(self, ref: ObjectRef) -> Raw | None:
        assert ref == GUEST_SERVICE
        if self.error:
            raise self.error
        return {"metadata": {"name": ref.name, "uid": self.uid}} if self.uid else None


@dataclass
class Site:
    actions: ClusterActions
    management: Client
    cache: MutationCache[Raw]
    process: ProcessState
    state: ClusterState

    async def status(self) -> Raw:
        return dict(nested(await self.management.get(REF), "status", default={}))


def on_a_site(story: Callable[[Site], Coroutine[Any, Any, None]], guest: Guest | None) -> None:
    async def main() -> None:
        clock = LoopClock(NOON)
        server: ApiServer = management_api(MemoryStore(), clock, Rng(1))
        await server.prepare()
        api = Client(server.local())
        await api.create(NAMESPACE, new_object(NAMESPACE, "fleet-default"))
        raw = await api.create(CLUSTER, a_raw_cluster())
        informer = Informer(server.local(), CLUSTER, "", lambda one: one, clock, Rng(2))
        cache = MutationCache(informer, lambda one: one["metadata"]["resourceVersion"], clock)
        unused: Any = None
        process = ProcessState()
        context = ReconcileContext(api, cache, unused, unused, clock, unused, unused, process_state=process)
        guests: Any = SimpleNamespace(find=lambda uid: guest)
        cluster = replace(a_cluster(a_pool(), raw=raw), uid=raw["metadata"]["uid"])
        await story(Site(ClusterActions(context, unused, guests), api, cache, process, look(cluster)))

    run_driven(main())


def test_a_finalizer_that_was_written_is_seen_before_the_watch_shows_it() -> None:
    async def story(site: Site) -> None:
        await site.actions.add_finalizer(do.AddFinalizer("it has none"), site.state)

        shown = site.cache.get(REF)
        assert shown is not None
        assert finalizers_of(shown) == finalizers_of(await site.management.get(REF)) == [CLUSTER_FINALIZER]

    on_a_site(story, None)


def test_a_guest_that_has_started_is_recorded_with_the_uid_that_its_load_balancers_are_marked_with() -> None:
    async def story(site: Site) -> None:
        await site.actions.mark_initialized(do.MarkInitialized("its API answers"), site.state)

        assert await site.status() == {"initialized": True, "guestUID": "guest-1"}

    on_a_site(story, Guest("guest-1"))


def test_a_guest_has_started_also_where_its_uid_cannot_be_read() -> None:
    async def story(site: Site) -> None:
        await site.actions.mark_initialized(do.MarkInitialized("its API answers"), site.state)
        assert await site.status() == {"initialized": True}
        await site.actions.record_guest_uid(do.RecordGuestUID("it is not known"), site.state)
        assert await site.status() == {"initialized": True}
        assert list(site.process.guest_uid_requested) == [site.state.cluster.uid]

    on_a_site(story, Guest(error=Unreachable("refused")))
    on_a_site(story, Guest())  # it has no such Service yet
    on_a_site(story, None)
