import pytest

from windrow.core.formats.json import loads
from windrow.kubernetes.errors import Unreachable
from windrow.probes.endpoints import Endpoints, HealthChecks, ProbeRequest
from windrow.probes.metrics import Registry

OPEN = ("/healthz", "/readyz", "/open*")


class Site:
    """Pages with one check that can fail, and a gate that lets `friend` in."""

    def __init__(self, open_paths=OPEN):
        self.problem = ""
        self.asked = []
        self.health = HealthChecks("healthz")
        self.health.add("leaderElection", lambda: self.problem)
        registry = Registry()
        registry.gauge("a", "A.")
        self.pages = Endpoints(
            [self.health, HealthChecks("readyz")],
            registry,
            open_paths,
            self.allow,
        )

    async def allow(self, token, verb, path):
        self.asked.append((token, verb, path))
        if token == "cut":
            raise Unreachable("the guest is away")
        return {"friend": (200, ""), "": (403, "forbidden"), "bad": (401, "Unauthorized")}[token]

    async def get(self, path, token="", method="GET", **query):
        answer = await self.pages.respond(ProbeRequest(method, path, query, token))
        return answer.status, answer.body


async def test_health_is_open_to_all_and_says_ok():
    site = Site()

    assert await site.get("/healthz") == (200, "ok")
    assert site.asked == []


async def test_a_failing_check_says_which_and_why():
    site = Site()
    site.problem = "the lease is late"

    assert await site.get("/healthz") == (
        500,
        "[+]ping ok\n[-]leaderElection failed: the lease is late\nhealthz check failed\n",
    )


async def test_verbose_names_every_check_and_excluded_ones_do_not_count():
    site = Site()
    site.problem = "late"

    assert await site.get("/healthz", verbose=[""], exclude=["leaderElection,other"]) == (
        200,
        "[+]ping ok\nhealthz check passed\n",
    )


@pytest.mark.parametrize(
    ("path", "answer"),
    [
        ("/healthz/ping", (200, "ok")),
        ("/healthz/leaderElection", (500, "internal server error: late\n")),
        ("/healthz/nothing", (404, "404 page not found\n")),
        ("/elsewhere", (404, "404 page not found\n")),
    ],
)
async def test_single_checks_have_paths_of_their_own(path, answer):
    site = Site()
    site.problem = "late"

    assert await site.get(path, "friend") == answer


async def test_metrics_are_shown_to_those_who_may_see_them():
    site = Site()

    shown = await site.get("/metrics", "friend")
    refused = [await site.get("/metrics", token) for token in ("", "bad", "cut")]

    assert shown == (200, "# HELP a A.\n# TYPE a gauge\na 0.0\n")
    assert [status for status, _ in refused] == [403, 401, 500]
    assert [loads(body.encode())["reason"] for _, body in refused] == [
        "Forbidden",
        "Unauthorized",
        "InternalError",
    ]
    assert site.asked[0] == ("friend", "get", "/metrics")


async def test_a_guest_that_cannot_review_the_request_is_named():
    site = Site()

    _, body = await site.get("/metrics", "cut")

    message = loads(body.encode())["message"]
    assert message == "the guest API server did not review the request: the guest is away"


async def test_checks_are_numbers_too():
    site = Site()
    site.problem = "late"

    _, text = await site.get("/metrics/slis", "friend")

    assert 'kubernetes_healthcheck{name="leaderElection",type="healthz"} 0.0\n' in text
    assert 'kubernetes_healthcheck{name="ping",type="readyz"} 1.0\n' in text


async def test_a_star_opens_everything_below_and_nothing_else():
    site = Site()

    assert [(await site.get(path))[0] for path in ("/open/door", "/opening", "/ope")] == [404, 404, 403]


async def test_nothing_is_taken_only_given():
    assert (await Site().get("/healthz", method="POST"))[0] == 405
