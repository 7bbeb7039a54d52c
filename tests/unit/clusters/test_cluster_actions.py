"""What is written of a Cluster as a whole, and what is done in its guest for that."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any

import pytest
from tests.support.clock import LoopClock, run_driven
from tests.unit.clusters.builders import NOON, SERVER, a_cluster, a_machine, a_pool, look, record_of
from tests.unit.clusters.test_cluster import a_raw_cluster

from windrow.apiserver.server import ApiServer
from windrow.apiserver.storage.memory import MemoryStore
from windrow.app.embedded import management_api
from windrow.bootstrap.pki import new_cluster_secrets
from windrow.client.client import Client
from windrow.client.informer import Informer
from windrow.client.mutation_cache import MutationCache
from windrow.clusters.api.cluster import Cluster
from windrow.clusters.api.kinds import CLUSTER
from windrow.clusters.api.names import CLUSTER_FINALIZER
from windrow.clusters.api.secrets import CredentialError
from windrow.clusters.api.status import RecordedStatus
from windrow.clusters.context import ProcessState, ReconcileContext, StalePlan
from windrow.clusters.execute.cluster_actions import GUEST_SERVICE, ClusterActions
from windrow.clusters.plan import actions as do
from windrow.clusters.state import ClusterState
from windrow.core.formats.yaml import load
from windrow.core.rng import Rng
from windrow.harvester.names import CLUSTER_UID
from windrow.kubernetes.errors import KubeError, Unreachable
from windrow.kubernetes.kubeconfig import ClientConfig, parse_kubeconfig
from windrow.kubernetes.objects import Raw, annotations_of, finalizers_of, nested, new_object, secret_texts
from windrow.kubernetes.resources import NAMESPACE, SECRET, ObjectRef

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
    closed: list[str]  # connections to guests

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
        secrets: Any = SimpleNamespace(mutated=lambda one: None, get=lambda ref: None)
        context = ReconcileContext(api, cache, unused, secrets, clock, unused, unused, process_state=process)
        harvesters: Any = SimpleNamespace(find_proxy=lambda credential, namespace: "")
        closed: list[str] = []
        guests: Any = SimpleNamespace(find=lambda uid: guest, close=closed.append)
        cluster = replace(a_cluster(a_pool(), raw=raw), uid=raw["metadata"]["uid"])
        await story(
            Site(ClusterActions(context, harvesters, guests), api, cache, process, look(cluster), closed)
        )

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


def test_the_kubeconfig_leads_to_a_server_and_by_another_context_to_the_name_of_the_endpoint() -> None:
    async def published(site: Site, cluster: Cluster) -> dict[str, ClientConfig]:
        secrets = new_cluster_secrets(NOON)
        state = replace(site.state, cluster=cluster, secrets=secrets)
        await site.actions.publish_kubeconfig(
            do.PublishKubeconfig("it answers", "https://10.0.0.1:6443"), state
        )
        texts = secret_texts(await site.management.get(SECRET.ref("prod-kubeconfig", "fleet-default")))
        assert texts["server"] == "https://10.0.0.1:6443"
        contexts = load(texts["value"])["contexts"]
        return {one["name"]: parse_kubeconfig(texts["value"], one["name"]) for one in contexts}

    async def story(site: Site) -> None:
        cluster = site.state.cluster
        (only,) = (await published(site, cluster)).items()
        assert (only[0], only[1].server) == ("prod", "https://10.0.0.1:6443")

        theirs = new_cluster_secrets(NOON).server_ca.certificate
        named = replace(cluster, endpoint_name="prod.example:8443", endpoint_ca=theirs)
        found = await published(site, named)
        assert {name: one.server for name, one in found.items()} == {
            "prod": "https://10.0.0.1:6443",
            "prod-fqdn": "https://prod.example:8443",
        }
        assert (found["prod-fqdn"].ca, found["prod"].ca != theirs) == (theirs, True)
        own = (await published(site, replace(named, endpoint_ca="")))["prod-fqdn"]
        assert own.ca not in ("", theirs)

    on_a_site(story, None)


def test_a_secret_of_an_earlier_cluster_of_the_name_is_replaced_and_that_of_another_is_not() -> None:
    async def story(site: Site) -> None:
        ref = SECRET.ref("prod-windrow-secrets", "fleet-default")
        create = do.CreateSecrets("it has none")
        theirs: Any = {"annotations": {CLUSTER_UID: "earlier"}, "data": {"x": "eA=="}}
        await site.management.create(SECRET, new_object(SECRET, ref.name, ref.namespace, **theirs))

        await site.actions.create_secrets(create, site.state)
        made = await site.management.get(ref)
        assert annotations_of(made)[CLUSTER_UID] == site.state.cluster.uid
        assert "x" not in made["data"]
        await site.actions.create_secrets(create, site.state)
        assert (await site.management.get(ref))["data"] == made["data"]  # never made twice

        await site.management.delete(ref)
        await site.management.create(SECRET, new_object(SECRET, ref.name, ref.namespace, data={"x": "eA=="}))
        with pytest.raises(CredentialError, match="exists and is not this cluster's"):
            await site.actions.create_secrets(create, site.state)
        assert (await site.management.get(ref))["data"] == {"x": "eA=="}

    on_a_site(story, None)


def test_of_two_managers_that_elect_one_succeeds_and_records_what_the_servers_share() -> None:
    async def story(site: Site) -> None:
        servers = a_pool("servers", 1, SERVER)
        first = record_of(a_machine("s1", servers), version="v1.35.1+rke2r1")
        cluster = replace(site.state.cluster, pools=(servers,), recorded=RecordedStatus())
        state = look(cluster, [first])
        elect = do.ElectInitServer("it starts the cluster", "s1", "uid-s1", "")

        await site.actions.elect_init_server(elect, state)

        status = await site.status()
        assert status["initServer"] == {"name": "s1", "uid": "uid-s1"}
        assert status["version"] == "v1.35.1+rke2r1"
        assert status["controlPlaneEndpoint"]["mode"] == "firstServer"
        assert status["immutableConfig"]["machineGlobalConfig"] is not None
        shown = site.cache.get(REF)
        assert shown is not None
        assert shown["status"] == status
        with pytest.raises(StalePlan):
            await site.actions.elect_init_server(replace(elect, machine="s2", uid="uid-s2"), state)
        assert (await site.status())["initServer"]["name"] == "s1"

    on_a_site(story, None)


def test_at_its_end_a_cluster_takes_its_own_secrets_with_it_and_then_its_finalizer() -> None:
    async def story(site: Site) -> None:
        secrets = {
            name: SECRET.ref(name, "fleet-default") for name in ("prod-kubeconfig", "prod-windrow-secrets")
        }
        for ref, owner in zip(secrets.values(), (site.state.cluster.uid, "another"), strict=True):
            annotations = {CLUSTER_UID: owner}
            raw = new_object(SECRET, ref.name, ref.namespace, annotations=annotations)
            await site.management.create(SECRET, raw)
        await site.actions.add_finalizer(do.AddFinalizer("it has none"), site.state)

        for _ in range(2):  # it may be repeated
            await site.actions.delete_secrets(do.DeleteSecrets("the Cluster is deleted"), site.state)
        assert [await site.management.find(ref) is None for ref in secrets.values()] == [True, False]

        await site.management.delete(REF)
        await site.actions.remove_finalizer(do.RemoveFinalizer("nothing of it is left"), site.state)
        assert await site.management.find(REF) is None
        assert site.cache.get(REF) is None
        assert site.closed == [site.state.cluster.uid]

    on_a_site(story, None)
