"""The orphan sweep between two API servers in this process, and its plan alone."""

import asyncio
from dataclasses import replace

import pytest
from tests.support.clock import LoopClock, run_driven

from windrow.apiserver.server import ApiServer
from windrow.apiserver.storage import MemoryStore
from windrow.client.informer import Informer
from windrow.cloudprovider.context import ControllerContext
from windrow.cloudprovider.metrics import Metrics
from windrow.cloudprovider.names import load_balancer_name
from windrow.cloudprovider.options import Options
from windrow.cloudprovider.services.readings import Service, load_balancer_reader, read_service
from windrow.cloudprovider.sweep import Sweep, plan_sweep
from windrow.core.formats.json import dumps
from windrow.core.logs import line_logger
from windrow.core.rng import Rng
from windrow.emulator.definitions import crds
from windrow.harvester.resources import LOAD_BALANCER
from windrow.kubernetes.errors import Unreachable
from windrow.kubernetes.objects import new_object
from windrow.kubernetes.requests import Reply
from windrow.kubernetes.resources import NAMESPACE, SERVICE

CLUSTER = "demo"
GUEST_UID = "guest-uid"
MARK = "windrow.io/guest-uid"
GROUP = "cloudprovider.harvesterhci.io"
DEMO = Options(cluster_name=CLUSTER)
KUBERNETES = Service("default", "kubernetes", GUEST_UID)


def a_raw_balancer(uid="old-uid", *, name="", labels=None, annotations=None, mark=GUEST_UID, **spec):
    """What the cloud provider of cluster `demo` has made for service default/web with this uid."""
    labels = {
        f"{GROUP}/cluster": CLUSTER,
        f"{GROUP}/serviceNamespace": "default",
        f"{GROUP}/serviceName": "web",
        **(labels or {}),
    }
    annotations = {"loadbalancer.harvesterhci.io/cluster": CLUSTER, **(annotations or {})}
    if mark:
        annotations[MARK] = mark
    return new_object(
        LOAD_BALANCER,
        name or load_balancer_name(CLUSTER, "default", "web", uid),
        "default",
        labels=labels,
        annotations=annotations,
        spec={"ipam": "pool", "workloadType": "cluster", **spec},
        status={"allocatedAddress": {"ip": "10.0.0.50"}},
    )


def a_balancer(uid="old-uid", *, cluster=CLUSTER, **more):
    raw = a_raw_balancer(uid, **more)
    raw["metadata"]["uid"] = f"lb-{raw['metadata']['name']}"
    return load_balancer_reader(cluster)(raw)


WEB = Service("default", "web", "web-uid", is_load_balancer=True)

# --- the plan -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("cluster", ["", "kubernetes", "other"])
@pytest.mark.parametrize(
    ("services", "words"),
    [
        ([KUBERNETES], "service default/web does not exist"),
        ([KUBERNETES, WEB], "service default/web was recreated"),
        ([KUBERNETES, replace(WEB, uid="old-uid")], "service default/web does not show its address"),
    ],
)
def test_an_orphan_of_this_guest_under_a_former_cluster_name_is_found_and_kept(services, words, cluster):
    (orphan,) = plan_sweep(services, [a_balancer()], Options(cluster_name=cluster))

    assert words in orphan.because
    assert "created under the cluster name 'demo'" in orphan.kept_because


def test_a_load_balancer_under_a_former_cluster_name_whose_address_is_shown_is_no_orphan():
    web = replace(WEB, uid="old-uid", addresses="10.0.0.50")

    assert plan_sweep([KUBERNETES, web], [a_balancer()], Options(cluster_name="other")) == ()


@pytest.mark.parametrize(
    ("services", "words"),
    [
        ([KUBERNETES], "service default/web does not exist"),
        ([KUBERNETES, WEB], "service default/web was recreated"),
        ([KUBERNETES, replace(WEB, namespace="other")], "does not exist"),
    ],
)
def test_a_load_balancer_whose_service_is_gone_or_another_is_an_orphan(services, words):
    (orphan,) = plan_sweep(services, [a_balancer()], DEMO)

    assert words in orphan.because
    assert orphan.kept_because == ""


@pytest.mark.parametrize(
    ("case", "services", "balancer", "options"),
    [
        ("its service is there", [KUBERNETES, replace(WEB, uid="old-uid")], a_balancer(), DEMO),
        (
            "its service is there, but no load balancer any more",
            [KUBERNETES, Service("default", "web", "old-uid")],
            a_balancer(),
            DEMO,
        ),
        ("the guest does not show its own service", [], a_balancer(), DEMO),
        ("the cluster has no name", [KUBERNETES], a_balancer(mark=""), Options()),
        ("the cluster's name is empty", [KUBERNETES], a_balancer(mark=""), Options(cluster_name="")),
        ("another cluster's", [KUBERNETES], a_balancer(mark=""), Options(cluster_name="other")),
        (
            "no service in its labels",
            [KUBERNETES],
            a_balancer(
                name=load_balancer_name(CLUSTER, "default", "", "old-uid"),
                labels={f"{GROUP}/serviceName": ""},
            ),
            DEMO,
        ),
        (
            "no namespace in its labels",
            [KUBERNETES],
            a_balancer(
                name=load_balancer_name(CLUSTER, "", "web", "old-uid"),
                labels={f"{GROUP}/serviceNamespace": ""},
            ),
            DEMO,
        ),
        ("a name of its own", [KUBERNETES], a_balancer(name="my-balancer"), DEMO),
        (
            "the name of another service's",
            [KUBERNETES],
            a_balancer(labels={f"{GROUP}/serviceName": "dns"}),
            DEMO,
        ),
        (
            "another cluster in its annotation",
            [KUBERNETES],
            a_balancer(annotations={"loadbalancer.harvesterhci.io/cluster": "other"}),
            DEMO,
        ),
        ("one for VMs", [KUBERNETES], a_balancer(workloadType="vm"), DEMO),
        ("on its way out", [KUBERNETES], replace(a_balancer(), is_deleting=True), DEMO),
        (
            "under a former cluster name, on its way out",
            [KUBERNETES],
            replace(a_balancer(), is_deleting=True),
            Options(cluster_name="other"),
        ),
        (
            "of no cluster",
            [KUBERNETES],
            a_balancer(
                name=load_balancer_name("", "default", "web", "old-uid"), labels={f"{GROUP}/cluster": ""}
            ),
            DEMO,
        ),
        (
            "of a cluster by the name that all have",
            [KUBERNETES],
            a_balancer(
                cluster="kubernetes",
                name=load_balancer_name("kubernetes", "default", "web", "old-uid"),
                labels={f"{GROUP}/cluster": "kubernetes"},
                annotations={"loadbalancer.harvesterhci.io/cluster": "kubernetes"},
            ),
            Options(),
        ),
    ],
)
def test_what_is_no_orphan_of_ours(case, services, balancer, options):
    assert plan_sweep(services, [balancer], options) == (), case


@pytest.mark.parametrize(
    ("services", "balancer", "words"),
    [
        ([], a_balancer(mark=""), "no annotation windrow.io/guest-uid"),
        ([], a_balancer(mark="another-guest"), "that of another guest cluster of this name"),
        (
            [replace(WEB, name="dns", addresses="10.0.0.50")],
            a_balancer(),
            "service default/dns uses its address",
        ),
        ([replace(WEB, name="dns", ingress=("10.0.0.50",))], a_balancer(), "uses its address 10.0.0.50"),
        (
            [replace(WEB, name="dns", ingress=("10.0.0.60",))],
            replace(a_balancer(), address="10.0.0.60"),
            "uses its address 10.0.0.60",
        ),
    ],
)
def test_orphans_that_are_told_and_left_alone(services, balancer, words):
    (orphan,) = plan_sweep([KUBERNETES, *services], [balancer], DEMO)

    assert words in orphan.kept_because


def test_two_services_by_dhcp_do_not_share_an_address():
    balancer = replace(a_balancer(), allocated=("0.0.0.0",))

    (orphan,) = plan_sweep([KUBERNETES, replace(WEB, name="dns", addresses="0.0.0.0")], [balancer], DEMO)

    assert orphan.kept_because == ""


# --- carried out --------------------------------------------------------------------------------------------------


class SweepRig:
    def __init__(self, mode="delete"):
        self.clock = LoopClock()
        self.lines = []
        self.metrics = Metrics()
        self.options = Options(cluster_name=CLUSTER, orphan_sweep=mode)
        self.guest, self.host = (
            ApiServer(MemoryStore(), self.clock, Rng(name), name=name) for name in ("guest", "host")
        )
        for raw in crds():
            if raw["metadata"]["name"] == LOAD_BALANCER.group_resource:
                self.host.install_crd(raw)
        self.at_guest, self.at_host = self.guest.local(), self.host.local()
        self.calls = []
        self.to_guest, self.to_host = Line(self.at_guest, self.calls), Line(self.at_host, self.calls)
        self.tasks = []

    async def start(self):
        def cache(transport, kind, namespace, read):
            made = Informer(transport, kind, namespace, read, self.clock, Rng(1))
            self.tasks.append(asyncio.create_task(made.run()))
            return made

        services = cache(self.to_guest, SERVICE, "", read_service)
        balancers = cache(self.to_host, LOAD_BALANCER, "default", load_balancer_reader(CLUSTER))
        context = ControllerContext(
            self.to_guest,
            self.to_host,
            "default",
            self.options,
            self.clock,
            Rng(1),
            line_logger("harvester-cloud-provider", self.lines.append),
            self.metrics,
        )
        sweep = Sweep(context, services, balancers)
        self.tasks.append(asyncio.create_task(sweep.run()))
        await asyncio.sleep(61)

    async def make_service(self, name, namespace="default", **more):
        raw = new_object(SERVICE, name, namespace, spec={"ports": [{"port": 443}], **more})
        return (await self.at_guest.create(SERVICE, raw))["metadata"]["uid"]

    async def make_orphan(self, uid="old-uid", **more):
        return (await self.at_host.create(LOAD_BALANCER, a_raw_balancer(uid, **more)))["metadata"]["name"]

    async def balancers(self):
        return [raw["metadata"]["name"] for raw in await self.at_host.list(LOAD_BALANCER, "default")]

    async def stop(self):
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)


class Line:
    """A transport that counts what is sent, and can be told to fail or to lie."""

    def __init__(self, inner, calls):
        self._inner, self._calls = inner, calls
        self.before = None

    async def send(self, request):
        self._calls.append(request)
        answer = await self.before(request) if self.before is not None else None
        return answer or await self._inner.send(request)

    def stream(self, request):
        return self._inner.stream(request)

    async def aclose(self):
        pass


def run_story(story, mode="delete"):
    async def whole():
        stage = SweepRig(mode)
        try:
            return await story(stage)
        finally:
            await stage.stop()

    return run_driven(whole())


HOUR = 3600


async def an_orphan(stage, **more):
    """A guest with its own service, and one load balancer without a service."""
    stage.guest_uid = await stage.make_service("kubernetes")
    return await stage.make_orphan(mark=stage.guest_uid, **more)


def test_an_orphan_is_told_once_and_only_told():
    async def story(stage):
        name = await an_orphan(stage)
        await stage.start()
        first = list(stage.lines)
        await asyncio.sleep(24 * HOUR)
        return name, first, stage.lines, await stage.balancers(), stage.metrics.value("windrow_orphans")

    name, first, lines, left, counted = run_story(story, "report")

    assert lines == first
    assert len(first) == 1
    assert name in first[0]
    assert "10.0.0.50" in first[0]
    assert (
        "kubectl --kubeconfig HARVESTER.yaml -n default delete loadbalancers.loadbalancer.harvesterhci.io"
        in first[0]
    )
    assert (left, counted) == ([name], 1)


@pytest.mark.parametrize("mode", ["report", "delete"])
def test_a_cluster_in_order_costs_no_call(mode):
    async def story(stage):
        await stage.make_service("kubernetes")
        uid = await stage.make_service("web")
        await stage.make_orphan(uid)
        await stage.start()
        lists = len(stage.calls)
        await asyncio.sleep(24 * HOUR)
        return lists, len(stage.calls), stage.lines

    assert run_story(story, mode) == (2, 2, [])


def test_switched_off_it_looks_at_nothing():
    async def story(stage):
        await an_orphan(stage)
        await stage.start()
        await asyncio.sleep(HOUR)
        return stage.lines

    assert run_story(story, "off") == []


def test_an_orphan_is_deleted_an_hour_after_it_was_told():
    async def story(stage):
        name = await an_orphan(stage)
        await stage.start()
        await asyncio.sleep(HOUR - 60)
        early = await stage.balancers()
        await asyncio.sleep(700)
        deletes = [request for request in stage.calls if request.method == "DELETE"]
        counted = stage.metrics.value("windrow_orphans_deleted_total")
        return name, early, await stage.balancers(), deletes, counted, stage.lines

    name, early, late, deletes, counted, lines = run_story(story)

    assert (early, late, counted) == ([name], [], 1)
    assert len(deletes) == 1
    assert b'"uid"' in deletes[0].body
    assert "it is deleted in an hour" in lines[0]
    assert (
        f'info: orphan deleted: service default/web does not exist loadbalancer="default/{name}"' == lines[-1]
    )


def test_one_is_deleted_at_each_look():
    async def story(stage):
        await an_orphan(stage)
        for number in range(3):
            await stage.make_orphan(f"older-{number}", mark=stage.guest_uid)
        await stage.start()
        found = []
        await asyncio.sleep(HOUR + 60)
        for _ in range(4):
            found.append(len(await stage.balancers()))
            await asyncio.sleep(600)
        return found

    assert run_story(story) == [3, 2, 1, 0]


async def ripe(stage, happens):
    """An orphan whose hour is over; then, while it is looked at live, `happens(request)`, which may answer itself."""
    name = await an_orphan(stage)
    await stage.start()
    await asyncio.sleep(HOUR - 60)
    stage.to_guest.before = stage.to_host.before = happens
    await asyncio.sleep(700)
    return [line for line in stage.lines if f'loadbalancer="default/{name}"' in line][1:]


@pytest.mark.parametrize("side", ["services", "loadbalancers"])
def test_the_first_look_is_a_minute_after_both_lists_are_there(side):
    async def story(stage):
        async def happens(request):
            if request.path.endswith(side) and stage.clock.monotonic().total_seconds() < 300:
                raise Unreachable("no answer")

        stage.to_guest.before = stage.to_host.before = happens
        await an_orphan(stage)
        await stage.start()
        await asyncio.sleep(240)
        before = len(stage.lines)
        await asyncio.sleep(120)
        return before, len(stage.lines)

    assert run_story(story, "report") == (0, 1)


def test_an_orphan_without_an_address_says_so():
    async def story(stage):
        stage.guest_uid = await stage.make_service("kubernetes")
        raw = a_raw_balancer(mark=stage.guest_uid)
        await stage.at_host.create(LOAD_BALANCER, {**raw, "status": {}})
        await stage.start()
        return stage.lines

    (line,) = run_story(story, "report")
    assert "orphan with no address: " in line


def test_an_orphan_that_is_kept_is_not_looked_at_again():
    async def story(stage):
        await stage.make_service("kubernetes")
        await stage.make_orphan(mark="another-guest")
        await stage.start()
        stage.calls.clear()
        await asyncio.sleep(3 * HOUR)
        return stage.calls, len(stage.lines)

    assert run_story(story) == ([], 1)


def test_an_orphan_that_is_gone_when_it_is_looked_at_is_no_news():
    async def story(stage):
        async def happens(request):
            if "/loadbalancers/" in request.path and request.method == "GET":
                name = request.path.rpartition("/")[2]
                await stage.at_host.delete(LOAD_BALANCER.ref(name, "default"))
                return not_there(name)
            return None

        return await ripe(stage, happens), stage.lines

    lines, all_lines = run_story(story)

    assert (lines, len(all_lines)) == ([], 1)


def answers(raw):
    return Reply(200, dumps(raw))


def not_there(name):
    status = {"kind": "Status", "code": 404, "reason": "NotFound", "details": {"name": name}}
    return Reply(404, dumps(status))


def test_the_guest_has_the_last_word_on_its_service():
    async def story(stage):
        async def happens(request):
            if request.path.endswith("/services/web"):
                return answers({"metadata": {"name": "web", "namespace": "default", "uid": "old-uid"}})
            return None

        return await ripe(stage, happens), len(await stage.balancers())

    lines, left = run_story(story)

    assert ("orphan not deleted: it is no orphan any more" in lines[0], left) == (True, 1)


@pytest.mark.parametrize(("namespace", "name"), [("default", "dns"), ("other", "web")])
def test_a_service_that_gets_its_address_while_it_is_looked_at_keeps_it(namespace, name):
    async def story(stage):
        async def happens(request):
            if request.path.endswith("/services/kubernetes"):
                addresses = {"kube-vip.io/loadbalancerIPs": "10.0.0.50"}
                secondary = new_object(
                    SERVICE, name, namespace, spec={"ports": [{"port": 53}]}, annotations=addresses
                )
                await stage.at_guest.create(SERVICE, secondary)
                await asyncio.sleep(1)

        await stage.at_guest.create(NAMESPACE, new_object(NAMESPACE, "other"))
        return await ripe(stage, happens), len(await stage.balancers())

    lines, left = run_story(story)

    assert f"orphan not deleted: service {namespace}/{name} uses its address 10.0.0.50" in lines[0]
    assert left == 1


def test_another_guest_behind_the_credential_deletes_nothing():
    async def story(stage):
        async def happens(request):
            if request.path.endswith("/services/kubernetes"):
                return answers(
                    {"metadata": {"name": "kubernetes", "namespace": "default", "uid": "another-guest"}}
                )
            return None

        return await ripe(stage, happens), len(await stage.balancers())

    lines, left = run_story(story)

    assert "is that of another guest cluster of this name" in lines[0]
    assert left == 1


def test_a_guest_that_shows_nothing_deletes_nothing():
    async def story(stage):
        async def happens(request):
            if "/services/" in request.path:
                return not_there(request.path.rpartition("/")[2])
            return None

        return await ripe(stage, happens), len(await stage.balancers())

    lines, left = run_story(story)

    assert "service default/kubernetes of the guest is not found" in lines[0]
    assert left == 1


@pytest.mark.parametrize("side", ["/services/web", "/loadbalancers/"])
def test_an_api_that_fails_deletes_nothing_and_is_asked_again_after_an_hour(side):
    async def story(stage):
        async def happens(request):
            if side in request.path:
                raise Unreachable("no answer")

        lines = await ripe(stage, happens)
        kept = len(await stage.balancers())
        stage.to_guest.before = stage.to_host.before = None
        await asyncio.sleep(HOUR + 700)
        return lines, kept, await stage.balancers()

    lines, kept, left = run_story(story)

    assert "failed to delete orphan: no answer" in lines[0]
    assert (kept, left) == (1, [])


def test_an_orphan_that_cannot_be_deleted_does_not_keep_the_others():
    async def story(stage):
        await an_orphan(stage)
        for number in range(2):
            await stage.make_orphan(f"older-{number}", mark=stage.guest_uid)
        first, *others = sorted(await stage.balancers())

        async def happens(request):
            if request.method == "DELETE" and request.path.endswith(first):
                raise Unreachable("no answer")

        stage.to_host.before = happens
        await stage.start()
        await asyncio.sleep(HOUR + 1200)
        failed = [line for line in stage.lines if "failed to delete orphan" in line]
        return len(others), len(failed), await stage.balancers() == [first]

    assert run_story(story) == (2, 1, True)


def test_what_was_relabelled_meanwhile_is_kept():
    async def story(stage):
        async def happens(request):
            if "/loadbalancers/" in request.path and request.method == "GET":
                (name,) = await stage.balancers()
                labels = {f"{GROUP}/cluster": "other"}
                await stage.at_host.patch(
                    LOAD_BALANCER.ref(name, "default"), {"metadata": {"labels": labels}}
                )

        return await ripe(stage, happens), len(await stage.balancers())

    lines, left = run_story(story)

    assert "it is no orphan any more" in lines[0]
    assert left == 1


def test_an_orphan_that_goes_between_look_and_delete_is_not_said_to_be_deleted():
    async def story(stage):
        async def happens(request):
            if request.method == "DELETE":
                (name,) = await stage.balancers()
                await stage.at_host.delete(LOAD_BALANCER.ref(name, "default"))

        lines = await ripe(stage, happens)
        return lines, await stage.balancers(), stage.metrics.value("windrow_orphans_deleted_total")

    assert run_story(story) == ([], [], 0)


def test_what_was_made_anew_between_look_and_delete_stays():
    async def story(stage):
        async def happens(request):
            if request.method == "DELETE":
                (name,) = await stage.balancers()
                await stage.at_host.delete(LOAD_BALANCER.ref(name, "default"))
                await stage.make_orphan(mark=stage.guest_uid)

        return await ripe(stage, happens), len(await stage.balancers())

    lines, left = run_story(story)

    assert "failed to delete orphan" in lines[0]
    assert left == 1


def test_a_restored_list_without_the_guests_own_service_makes_no_orphans():
    async def story(stage):
        await stage.make_orphan()
        await stage.start()
        await asyncio.sleep(HOUR)
        return stage.lines, len(await stage.balancers())

    assert run_story(story) == ([], 1)


@pytest.mark.parametrize("side", [0, 1], ids=["services", "load balancers"])
def test_what_is_watched_no_longer_proves_nothing(side):
    async def story(stage):
        await stage.make_service("kubernetes")
        uid = await stage.make_service("web")
        await stage.start()
        await (stage.make_orphan() if side == 0 else stage.make_orphan(uid))
        await asyncio.sleep(1)
        stage.tasks[side].cancel()
        await stage.at_guest.delete(SERVICE.ref("web", "default"))
        await asyncio.sleep(24 * HOUR)
        return stage.lines

    assert run_story(story) == []
