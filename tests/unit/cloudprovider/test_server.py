import asyncio
from datetime import timedelta

from tests.support.clock import LoopClock, run_driven

from windrow.cloudprovider.cmd.server import ProcessHealth
from windrow.cloudprovider.metrics import Metrics
from windrow.cloudprovider.options import Options
from windrow.core.formats.json import dumps, loads
from windrow.kubernetes.requests import Reply
from windrow.kubernetes.resources import LEASE
from windrow.probes.endpoints import ProbeRequest


class Clock:
    def __init__(self):
        self.at = timedelta()

    def monotonic(self):
        return self.at


class FakeElector:
    ref = LEASE.ref("cloud-controller-manager", "kube-system")

    def __init__(self, is_leader):
        self.is_leader, self.last_renewed = is_leader, timedelta()


class Process:
    def __init__(self, *, is_leader=True):
        self.clock, self.metrics = Clock(), Metrics()
        self.vitals = ProcessHealth(Options(), self.metrics, self.clock)
        self.candidate = FakeElector(is_leader)
        self.vitals.set_elector(self.candidate)
        self.pages = self.vitals.endpoints(None)

    async def get(self, path):
        answer = await self.pages.respond(ProbeRequest("GET", path, {}))
        return answer.status, answer.body


async def test_a_lease_that_is_twenty_seconds_overdue_is_an_illness():
    process = Process()
    process.clock.at += timedelta(seconds=35)
    in_time = await process.get("/healthz")
    process.clock.at += timedelta(seconds=1)

    status, body = await process.get("/livez")

    assert in_time == (200, "ok")
    assert status == 500
    assert "failed election to renew leadership on lease cloud-controller-manager" in body


async def test_a_standby_is_healthy_and_ready_however_old_the_lease():
    process = Process(is_leader=False)
    process.clock.at += timedelta(days=1)

    assert [await process.get(path) for path in ("/healthz", "/readyz")] == [(200, "ok")] * 2


async def test_the_leader_is_ready_once_it_knows_every_list():
    process, unknown = Process(), ["services"]
    process.vitals.controllers_started(frozenset(["service-lb-controller"]), lambda: ", ".join(unknown))
    early = await process.get("/readyz")
    live = await process.get("/livez")
    unknown.clear()

    assert early[0] == 500
    assert "[-]caches failed: services" in early[1]
    assert live == await process.get("/readyz") == (200, "ok")


async def test_controllers_that_were_started_are_counted_and_checked():
    process, names = Process(), frozenset(["cloud-node-controller"])
    process.vitals.controllers_started(names, lambda: "")
    body = (await process.pages.respond(ProbeRequest("GET", "/healthz", {"verbose": [""]}))).body
    running = "running_managed_controllers"
    label = {"name": "cloud-node-controller", "manager": "cloud-controller-manager"}
    before = process.metrics.value(running, **label)
    process.vitals.controllers_stopped(names)
    counted = process.metrics.value(running, **label)
    ill = await process.get("/livez")
    process.vitals.controllers_started(names, lambda: "")

    assert "[+]cloud-node-controller ok" in body
    assert ill[0] == 500
    assert "[-]cloud-node-controller failed: the controller was started and has stopped" in ill[1]
    assert await process.get("/livez") == (200, "ok")
    assert (before, counted) == (1, 0)
    assert process.metrics.value("leader_election_master_status", name="cloud-controller-manager") == 1


class Guest:
    """Knows one token."""

    asked = 0

    async def send(self, request):
        self.asked += 1
        review = loads(request.body)
        is_good = review["kind"] == "SubjectAccessReview" or review["spec"]["token"] == "prometheus"
        status = {"authenticated": is_good, "allowed": is_good, "user": {"username": "p"}}
        return Reply(201, dumps({**review, "status": status}))


def test_a_crowd_of_made_up_tokens_keeps_no_authorized_client_from_the_metrics():
    async def story():
        clock, guest = LoopClock(), Guest()
        pages = ProcessHealth(Options(), Metrics(), clock).endpoints(guest)

        async def ask(token):
            try:
                async with asyncio.timeout(10):
                    return (await pages.respond(ProbeRequest("GET", "/metrics", {}, token))).status
            except TimeoutError:
                return "late"

        before = await ask("prometheus")
        crowd, meanwhile = [], []
        for second in range(20):
            crowd += [asyncio.create_task(ask(f"{second}-{one}")) for one in range(200)]
            await asyncio.sleep(1)
            meanwhile.append(await ask("prometheus"))
        asked = guest.asked
        statuses = set(await asyncio.gather(*crowd))
        await asyncio.sleep(5)
        return before, set(meanwhile), statuses, asked, await ask("prometheus")

    before, meanwhile, statuses, asked, after = run_driven(story())

    assert (before, meanwhile, after) == (200, {200}, 200)
    assert statuses == {401, 429}
    assert asked < 150
