from datetime import timedelta

import pytest
from tests.support.clock import LoopClock, run_driven

from windrow.apiserver.server import ApiServer
from windrow.apiserver.storage import MemoryStore
from windrow.client.client import Client
from windrow.client.token_review import TokenReviewer
from windrow.core.rng import Rng
from windrow.kubernetes.errors import KubeError, Unreachable
from windrow.kubernetes.objects import new_object
from windrow.kubernetes.resources import ApiResource

ROLE = ApiResource("rbac.authorization.k8s.io", "v1", "ClusterRole", "clusterroles", namespaced=False)
BINDING = ApiResource(
    "rbac.authorization.k8s.io", "v1", "ClusterRoleBinding", "clusterrolebindings", namespaced=False
)


class Counting:
    def __init__(self, inner):
        self.inner, self.asked = inner, []
        self.is_away = False

    async def send(self, request):
        self.asked.append(request.path.rpartition("/")[2])
        if self.is_away:
            raise Unreachable("away")
        return await self.inner.send(request)


def run_with(story):
    async def whole():
        clock = LoopClock()
        server = ApiServer(MemoryStore(), clock, Rng(1), authorize="rbac", anonymous=True)
        server.tokens.update(scraper=("scraper", (), None), visitor=("visitor", (), None))
        local = server.local()
        await local.create(
            ROLE, new_object(ROLE, "scrape", rules=[{"nonResourceURLs": ["/metrics"], "verbs": ["get"]}])
        )
        bound = {
            "roleRef": {"apiGroup": ROLE.group, "kind": "ClusterRole", "name": "scrape"},
            "subjects": [{"apiGroup": ROLE.group, "kind": "User", "name": "scraper"}],
        }
        await local.create(BINDING, new_object(BINDING, "scrape", **bound))
        transport = Counting(local)
        return await story(TokenReviewer(Client(transport), clock), transport, clock)

    return run_driven(whole())


@pytest.mark.parametrize(
    ("token", "path", "answer"),
    [
        ("scraper", "/metrics", (200, "")),
        ("scraper", "/configz", (403, 'forbidden: User "scraper" cannot get path "/configz"')),
        ("visitor", "/metrics", (403, 'forbidden: User "visitor" cannot get path "/metrics"')),
        ("", "/metrics", (403, 'forbidden: User "system:anonymous" cannot get path "/metrics"')),
        ("unknown", "/metrics", (401, "Unauthorized")),
    ],
)
def test_the_api_server_decides_who_may_read_a_page(token, path, answer):
    async def story(reviews, transport, clock):
        return await reviews.authorize(token, "get", path)

    assert run_with(story) == answer


def test_a_decision_is_cached_for_ten_seconds():
    async def story(reviews, transport, clock):
        for _ in range(5):
            await reviews.authorize("scraper", "get", "/metrics")
        often = list(transport.asked)
        await clock.sleep_until(clock.now() + timedelta(seconds=10))
        await reviews.authorize("scraper", "get", "/metrics")
        return often, len(transport.asked)

    assert run_with(story) == (["tokenreviews", "subjectaccessreviews"], 4)


def test_a_failed_review_is_not_cached():
    async def story(reviews, transport, clock):
        transport.is_away = True
        with pytest.raises(KubeError):
            await reviews.authorize("scraper", "get", "/metrics")
        transport.is_away = False
        return await reviews.authorize("scraper", "get", "/metrics")

    assert run_with(story) == (200, "")
