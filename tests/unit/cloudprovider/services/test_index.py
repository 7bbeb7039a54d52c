"""Which services a change concerns, and what the index knows of one from what the two clusters show."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from tests.support.clock import NOON, LoopClock, run_driven
from tests.unit.csi.harvester.test_state import definition

from windrow.apiserver.server import ApiServer
from windrow.apiserver.storage.memory import MemoryStore
from windrow.cloudprovider import names
from windrow.cloudprovider.context import ControllerContext
from windrow.cloudprovider.metrics import Metrics
from windrow.cloudprovider.names import load_balancer_name
from windrow.cloudprovider.options import Options
from windrow.cloudprovider.services.index import Index, ServiceIndex, second_key
from windrow.cloudprovider.services.readings import LoadBalancer, Owner, Service
from windrow.cloudprovider.services.state import ClusterSettings, ServiceState, Unavailable
from windrow.core.logs import line_logger
from windrow.core.rng import Rng
from windrow.harvester.resources import LOAD_BALANCER
from windrow.harvester.unanswered import LATEST
from windrow.kubernetes.errors import Forbidden, KubeError, Unauthorized, Unreachable
from windrow.kubernetes.resources import CRD, SERVICE, ObjectRef

SETTINGS = ClusterSettings("demo", "default")
WEB = Service("default", "web", "uid-1", version="1", is_load_balancer=True)
INNER = Service("default", "inner", "uid-2", version="1")
SECONDARY = replace(WEB, name="second", uid="uid-3", primary="web", primary_label="default.web")
LB = LoadBalancer("default", SETTINGS.name_for(WEB), "lb-1", owner=Owner("demo", "default", "web"))


def ref(name: str) -> ObjectRef:
    return SERVICE.ref(name, "default")


class Rig:
    def __init__(self, index: ServiceIndex, host: ApiServer, guest: ApiServer, clock: LoopClock) -> None:
        self.index, self.host, self.guest, self.clock = index, host, guest, clock

    def change(self, before: Service | None, after: Service | None) -> set[str]:
        """The names of the services that a change of one concerns."""
        return {one.name for one in self.index.on_service_change(before, after)}

    def change_balancer(self, before: LoadBalancer | None, after: LoadBalancer | None) -> set[str]:
        return {one.name for one in self.index.on_load_balancer_change(before, after)}

    def observe(self, service: Service = WEB) -> ServiceState:
        """The state of a service that was observed last as this."""
        self.index.record(service.ref).last = service
        found = self.index.observe(service.ref)
        assert found is not None
        return found


def on_an_index(
    story: Callable[[Rig], Coroutine[Any, Any, None]], *, watching: bool = True, **options: Any
) -> None:
    async def main() -> None:
        clock = LoopClock()
        guest, host = (ApiServer(MemoryStore(), clock, Rng(seed)) for seed in (1, 2))
        await host.prepare()
        await host.local().create(CRD, definition(LOAD_BALANCER))
        options.setdefault("cluster_name", "demo")
        context = ControllerContext(
            guest.local(),
            host.local(),
            "default",
            Options(**options),
            clock,
            Rng(3),
            line_logger("harvester-cloud-provider", lambda line: None),
            Metrics(),
        )
        index = ServiceIndex(context, SETTINGS, lambda error: None, lambda: ("node-9",))
        running = [
            asyncio.ensure_future(one.run())
            for one in ((index._services, index._load_balancers) if watching else ())
        ]
        await asyncio.sleep(1)
        try:
            await story(Rig(index, host, guest, clock))
        finally:
            for one in running:
                one.cancel()
            await asyncio.gather(*running, return_exceptions=True)

    run_driven(main())


# -- which services a change concerns


def test_a_key_of_which_no_object_is_left_has_none() -> None:
    index: Index[Service] = Index(lambda one: [one.primary_label] if one.primary_label else [])
    other = replace(SECONDARY, name="third")
    index.update(None, SECONDARY)
    index.update(None, other)
    assert index.get("default.web") == (ref("second"), ref("third"))

    index.update(SECONDARY, replace(SECONDARY, primary_label="default.other"))
    assert (index.get("default.web"), index.get("default.other")) == ((ref("third"),), (ref("second"),))
    index.update(other, other)
    assert index.get("default.web") == (ref("third"),)
    index.update(other, None)
    assert index.get("default.web") == ()
    assert index._refs.keys() == {"default.other"}


@pytest.mark.parametrize(
    ("service", "concerns"),
    [
        (WEB, {"web"}),
        (INNER, set()),
        (replace(INNER, finalizers=(names.FINALIZER,)), {"inner"}),
        (replace(INNER, awaits_address=True), {"inner"}),
        (replace(INNER, primary_label="default.web"), {"inner", "web"}),
        (SECONDARY, {"second", "web"}),
        (replace(SECONDARY, primary_label=None), {"second", "web"}),
        (replace(SECONDARY, primary="a/b/c", primary_label=None), {"second"}),
    ],
    ids=lambda value: " ".join(sorted(value)) if isinstance(value, set) else value.name,
)
def test_a_service_concerns_itself_where_it_has_to_do_with_load_balancers_and_whose_address_it_shares(
    service: Service, concerns: set[str]
) -> None:
    async def story(rig: Rig) -> None:
        assert rig.change(None, service) == concerns
        assert rig.change(service, None) == concerns

    on_an_index(story)


def test_a_primary_concerns_those_that_share_its_address() -> None:
    async def story(rig: Rig) -> None:
        rig.change(None, SECONDARY)
        assert rig.change(WEB, replace(WEB, version="2")) == {"web", "second"}
        third = replace(SECONDARY, name="third")
        assert rig.change(None, third) == {"web", "second", "third"}

    on_an_index(story)


def test_a_label_that_was_cut_may_be_that_of_any_primary_that_waits_for_its_users() -> None:
    async def story(rig: Rig) -> None:
        rig.index.record(ref("long")).last = replace(WEB, name="long")
        rig.index.record(ref("none"))
        assert rig.change(None, replace(SECONDARY, primary="", primary_label="default.lo_1234abcd")) == {
            "second",
            "lo_1234abcd",
            "long",
        }

    on_an_index(story)


def test_a_service_that_was_one_with_a_load_balancer_still_is_concerned() -> None:
    async def story(rig: Rig) -> None:
        was = replace(WEB, is_load_balancer=False)
        assert rig.change(WEB, was) == {"web"}
        assert rig.change(None, was) == set()
        rig.index.record(WEB.ref).last = WEB
        assert rig.change(None, was) == {"web"}

        other = replace(INNER, uid="x")
        assert rig.change(None, other) == set()
        rig.change_balancer(None, replace(LB, owner=Owner("demo", "default", "inner")))
        assert rig.change(None, other) == {"inner"}

    on_an_index(story)


def test_a_load_balancer_concerns_the_service_of_its_labels_and_those_that_share_its_address() -> None:
    async def story(rig: Rig) -> None:
        rig.change(None, SECONDARY)
        assert rig.change_balancer(None, LB) == {"web", "second"}
        assert rig.change_balancer(LB, None) == {"web", "second"}

        theirs = replace(LB, owner=Owner("other", "default", "web"))
        assert rig.change_balancer(None, theirs) == set()
        rig.index.record(WEB.ref)
        assert rig.change_balancer(None, theirs) == {"web"}
        assert rig.change_balancer(None, replace(LB, owner=Owner())) == set()

    on_an_index(story)


def test_a_load_balancer_of_a_name_that_a_service_had_concerns_it_until_that_is_forgotten() -> None:
    async def story(rig: Rig) -> None:
        state = rig.observe(replace(WEB, finalizers=(names.FINALIZER,)))
        rig.index.remember(state)
        unlabelled = replace(LB, owner=Owner())
        second = replace(unlabelled, name=SETTINGS.second_name_for(WEB))
        assert rig.change_balancer(None, unlabelled) == rig.change_balancer(None, second) == {"web"}

        rig.index.forget(WEB.ref)
        assert rig.change_balancer(None, unlabelled) == set()

    on_an_index(story)


def test_all_services_that_have_or_had_a_load_balancer_are_named_once() -> None:
    async def story(rig: Rig) -> None:
        for name, kind in (("web", "LoadBalancer"), ("inner", "ClusterIP")):
            spec = {"type": kind, "ports": [{"port": 80}], "clusterIP": "None" if kind == "ClusterIP" else ""}
            await rig.guest.local().create(SERVICE, {"metadata": {"name": name}, "spec": spec}, "default")
        await asyncio.sleep(1)
        rig.index.record(ref("gone")).last = replace(WEB, name="gone")
        rig.index.record(ref("never"))
        rig.index.record(ref("web")).last = WEB

        assert sorted(one.name for one in rig.index.relevant_services()) == ["gone", "web"]

    on_an_index(story)


# -- what is known of one


def test_of_a_service_that_is_neither_there_nor_recorded_nothing_is_known() -> None:
    async def story(rig: Rig) -> None:
        assert rig.index.observe(WEB.ref) is None
        assert rig.observe().is_gone

    on_an_index(story)


def test_a_load_balancer_that_was_requested_by_an_earlier_process_may_come() -> None:
    async def story(rig: Rig) -> None:
        began = timedelta()
        assert rig.observe().may_be_made_until == NOON + began + LATEST
        rig.index.record(WEB.ref).seen = WEB.uid
        assert rig.observe().may_be_made_until is None

        dual = replace(WEB, second_pool="six")
        assert rig.observe(dual).may_be_made_until == NOON + LATEST
        rig.index.unanswered.on_unanswered(second_key(WEB.uid), timedelta(minutes=5))
        assert rig.observe(dual).may_be_made_until == NOON + timedelta(minutes=5) + LATEST

        rig.change(dual, replace(dual, uid="another"))
        rig.index.unanswered.begin(timedelta(minutes=9))
        rig.index.record(WEB.ref).seen_second = WEB.uid
        assert rig.observe(dual).may_be_made_until is None

    on_an_index(story)


def test_annotations_and_requests_are_new_once() -> None:
    async def story(rig: Rig) -> None:
        asks = replace(WEB, ignored_annotations=("old/a",), requested_address="10.0.0.9")
        first = rig.observe(asks)
        assert (first.new_ignored_annotations, first.has_new_request) == ((), False)
        rig.index.mark_executed(first)

        more = replace(asks, ignored_annotations=("old/a", "old/b"), requested_address="10.0.0.8")
        second = rig.observe(more)
        assert (second.new_ignored_annotations, second.has_new_request) == (("old/b",), True)
        rig.index.mark_executed(second)
        third = rig.observe(more)
        assert (third.new_ignored_annotations, third.has_new_request) == ((), False)

    on_an_index(story)


def test_a_wait_is_dated_by_its_beginning_however_the_clock_is_set() -> None:
    async def story(rig: Rig) -> None:
        record = rig.index.record(WEB.ref)
        record.waits_for, record.waits_since = "allocation", rig.clock.monotonic()
        began = rig.clock.now()
        await asyncio.sleep(60)
        assert (rig.observe().wait.what, rig.observe().wait.since) == ("allocation", began)
        rig.clock.set_wall(timedelta(hours=1))
        assert rig.observe().wait.since == began + timedelta(hours=1)

    on_an_index(story)


def test_nodes_without_macvlan_concern_a_service_by_dhcp() -> None:
    async def story(rig: Rig) -> None:
        assert rig.observe().without_macvlan == ()
        assert rig.observe(replace(WEB, ipam="dhcp")).without_macvlan == ("node-9",)

    on_an_index(story)


class Broken:
    """The state of an informer that does not watch."""

    is_watching = False

    def __init__(self, error: Any, since: Any) -> None:
        self.error, self.error_since = error, since


@pytest.mark.parametrize(
    ("error", "elapsed", "problem", "reported_in"),
    [
        (None, 0, "", 1),  # it lists again
        (Unreachable("refused"), 0, "", 5),
        (Unreachable("refused"), 4, "", 1),
        (Unreachable("refused"), 5, "it is away: refused", None),
        (Forbidden("no"), 0, "it is away: no", None),
        (Unauthorized("who"), 0, "it is away: who", None),
    ],
    ids=str,
)
def test_a_broken_watch_is_reported_after_five_seconds_and_a_missing_right_at_once(
    error: KubeError | None, elapsed: int, problem: str, reported_in: int | None
) -> None:
    async def story(rig: Rig) -> None:
        since = None if error is None else rig.clock.monotonic() - timedelta(seconds=elapsed)
        now = rig.clock.now()
        broken: Any = Broken(error, since)

        until = None if reported_in is None else now + timedelta(seconds=reported_in)
        found = rig.index._find_outage(broken, now, lambda error: f"it is away: {error.message}")
        assert found == Unavailable(problem, until)
        assert rig.observe().host is None

    on_an_index(story)


def test_a_load_balancer_under_another_cluster_name_is_found_by_the_uid_of_its_service() -> None:
    async def story(rig: Rig) -> None:
        await put(rig, "old", "10.0.0.7")
        await put(rig, "older", "10.0.0.8")
        await put(rig, "strange", "10.0.0.8", uid="another")
        await asyncio.sleep(1)
        for raw in rig.index.load_balancers.values():
            rig.change_balancer(None, raw)

        shown = replace(WEB, ingress=("10.0.0.8",), addresses="10.0.0.8")
        found = rig.observe(shown).other_name
        assert found is not None
        assert found.owner.cluster == "older"
        other = rig.observe(WEB).other_name
        assert other is not None
        assert other.owner.cluster == "old"

    on_an_index(story)


async def put(rig: Rig, cluster: str, address: str, uid: str = WEB.uid) -> None:
    """A LoadBalancer for the service, as a cloud provider of that cluster name makes it."""
    labels = {
        "cloudprovider.harvesterhci.io/cluster": cluster,
        "cloudprovider.harvesterhci.io/serviceNamespace": "default",
        "cloudprovider.harvesterhci.io/serviceName": "web",
    }
    head = {"name": load_balancer_name(cluster, "default", "web", uid), "labels": labels}
    made = await rig.host.local().create(
        LOAD_BALANCER, {"metadata": head, "spec": {"ipam": "pool"}}, "default"
    )
    allocated = {"allocatedAddress": {"ip": address}, "address": address}
    await rig.host.local().patch(
        LOAD_BALANCER.ref(made["metadata"]["name"], "default"), {"status": allocated}
    )
