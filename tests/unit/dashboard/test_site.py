"""Pages: who may see what, what is refused, and that nothing in an object becomes a part of the page."""

from __future__ import annotations

import re
from datetime import timedelta
from html.parser import HTMLParser
from typing import Any

import pytest
from tests.unit.dashboard.conftest import OWN, Dashboard, a_cluster, add_cluster, add_tenant

from windrow.clusters.api.kinds import CLUSTER, MACHINE
from windrow.clusters.api.names import CLUSTER_NAME
from windrow.dashboard.guard import SECURITY_HEADERS
from windrow.dashboard.messages import EventStream, PageRequest
from windrow.kubernetes.resources import EVENT

SCRIPT = "<script>alert(1)</script>\"'><img src=x onerror=alert(2)>{{7*1111111}}"
WAITING = {
    "for": "VirtualMachine default/m-1 to report an IP address",
    "since": "2026-01-01T11:57:00Z",
    "next": "it joins",
}


class Page(HTMLParser):
    """The elements of a page and their attributes."""

    def __init__(self, body: bytes) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(body.decode())

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.text += data


# --- overview ---------------------------------------------------------------------------------------------------------


async def test_the_overview_says_what_each_cluster_runs_and_wants_and_what_it_waits_for(dashboard: Dashboard):
    await add_cluster(
        dashboard.api, a_cluster("prod", version="v1.33.1+rke2r1", phase="Upgrading", waiting=WAITING)
    )
    page = Page((await (await dashboard.signed_in()).get("/clusters")).body)

    text = " ".join(page.text.split())

    assert "prod fleet-default upgrading v1.33.1+rke2r1 →to become v1.34.7+rke2r1" in text
    assert "waits for VirtualMachine default/m-1 to report an IP address, since 3m; then it joins" in text
    assert "kubectl get clusters.provisioning.cattle.io -A" in text


async def test_what_needs_a_person_stands_first_and_is_counted(dashboard: Dashboard):
    ready = [{"type": "Ready", "status": "True"}]
    await add_cluster(dashboard.api, a_cluster("a-good", phase="Ready", conditions=ready))
    await add_cluster(dashboard.api, a_cluster("b-busy", phase="Provisioning"))
    await add_cluster(dashboard.api, a_cluster("c-bad", phase="Failed"))
    browser = await dashboard.signed_in()

    body = (await browser.get("/clusters")).body.decode()
    assert body.index("c-bad") < body.index("b-busy") < body.index("a-good")
    assert re.findall(r"<b>(\d+)</b> (\w+)", body) == [
        ("3", "all"),
        ("1", "wrong"),
        ("1", "under"),
        ("1", "ready"),
    ]

    only = (await browser.get("/clusters?health=bad")).body.decode()
    assert "c-bad" in only
    assert "a-good" not in only


async def test_a_long_list_has_pages_of_a_hundred(dashboard: Dashboard):
    for number in range(101):
        await add_cluster(dashboard.api, a_cluster(f"c-{number:03}", phase="Provisioning"))
    browser = await dashboard.signed_in()

    first = (await browser.get("/clusters")).body.decode()
    last = (await browser.get("/clusters?page=2")).body.decode()
    beyond = (await browser.get("/clusters?page=999999")).body.decode()

    assert ("c-099" in first, "c-100" in first) == (True, False)
    assert ("c-099" in last, "c-100" in last) == (False, True)
    assert "101–101 of 101" in beyond


@pytest.mark.parametrize("page", ["-1", "0", "x", "٣", "9" * 30, ""])
async def test_a_page_that_is_no_number_is_the_first(dashboard: Dashboard, page: str):
    await add_cluster(dashboard.api, a_cluster("prod"))

    assert b"prod" in (await (await dashboard.signed_in()).get(f"/clusters?page={page}")).body


async def test_an_empty_overview_says_how_to_begin(dashboard: Dashboard):
    assert b"windrow apply -f FILE" in (await (await dashboard.signed_in()).get("/clusters")).body


# --- rights -----------------------------------------------------------------------------------------------------------


async def test_a_tenant_sees_their_clusters_and_of_others_not_even_the_name(dashboard: Dashboard):
    for tenant in ("team-a", "team-b"):
        await add_tenant(dashboard.api, tenant, user=f"{tenant}-user")
        await add_cluster(dashboard.api, a_cluster(f"{tenant}-cluster", tenant, phase="Provisioning"))
    browser = await dashboard.signed_in("team-a-user", ())

    every = await browser.get("/clusters")
    assert every.status == 403
    assert b"cannot list resource &#34;clusters&#34;" in every.body
    assert b'name="namespace"' in every.body

    own = await browser.get("/clusters?namespace=team-a")
    assert b"team-a-cluster" in own.body
    assert b"team-b" not in own.body
    assert (await browser.get("/clusters/team-a/team-a-cluster")).status == 200


@pytest.mark.parametrize(
    "path", ["/clusters?namespace=team-b", "/clusters/team-b/theirs", "/clusters/team-b/none"]
)
async def test_another_tenants_cluster_is_refused_as_kubectl_is(dashboard: Dashboard, path: str):
    """Whether it exists or not."""
    await add_tenant(dashboard.api, "team-a", user="ann")
    await add_tenant(dashboard.api, "team-b", user="bob")
    await add_cluster(dashboard.api, a_cluster("theirs", "team-b", phase="Secret-phase"))
    browser = await dashboard.signed_in("ann", ())

    answer = await browser.get(path)

    assert answer.status == 403
    assert b"Secret-phase" not in answer.body


async def test_rights_that_are_taken_away_are_gone_at_the_next_page(dashboard: Dashboard):
    from windrow.kubernetes.resources import ROLE_BINDING

    await add_tenant(dashboard.api, "team-a", user="ann")
    browser = await dashboard.signed_in("ann", ())
    assert (await browser.get("/clusters?namespace=team-a")).status == 200

    await dashboard.api.local().delete(ROLE_BINDING.ref("it", "team-a"))
    assert (await browser.get("/clusters?namespace=team-a")).status == 403


async def test_a_cluster_that_does_not_exist_is_404(dashboard: Dashboard):
    answer = await (await dashboard.signed_in()).get("/clusters/default/none")

    assert answer.status == 404
    assert b"not found" in answer.body


@pytest.mark.parametrize(
    "path",
    [
        "/clusters/..%2f..%2fapi/x",
        "/clusters/a/b%2Fc",
        "/clusters/a/..",
        "/clusters/%00/b",
        "/clusters/a/" + "b" * 300,
        "/nothing",
        "/clusters/a/b/c",
    ],
)
async def test_what_names_no_object_is_404_and_never_asked_of_the_api(dashboard: Dashboard, path: str):
    assert (await (await dashboard.signed_in()).get(path)).status == 404


# --- hostile objects --------------------------------------------------------------------------------------------------


async def add_hostile_objects(dashboard: Dashboard) -> None:
    """A Cluster and a Machine with a script in every text that the API lets anybody write."""
    conditions = [
        {"type": kind, "status": "False", "reason": "Because", "message": SCRIPT}
        for kind in ("Ready", "Accepted", "RemediationAllowed", "Odd" + SCRIPT)
    ]
    raw = a_cluster(
        "prod",
        version=SCRIPT,
        phase=SCRIPT,
        waiting={"for": SCRIPT, "next": SCRIPT, "since": "2026-01-01T11:57:00Z"},
        conditions=conditions,
        warnings=[SCRIPT],
    )
    raw["metadata"]["annotations"] = {"note": SCRIPT}
    raw["spec"]["rkeConfig"]["machinePools"][0]["name"] = SCRIPT
    await add_cluster(dashboard.api, raw)
    machine = {
        "metadata": {
            "name": "prod-servers-a",
            "namespace": "fleet-default",
            "labels": {CLUSTER_NAME: "prod"},
        },
        "spec": {
            "clusterName": "prod",
            "clusterUID": "u",
            "pool": SCRIPT,
            "roles": ["worker"],
            "options": {},
            "credential": "a:b",
            "version": SCRIPT,
        },
        "status": {
            "phase": SCRIPT,
            "addresses": [SCRIPT],
            "version": SCRIPT,
            "conditions": conditions,
            "waiting": {"for": SCRIPT, "next": SCRIPT},
        },
    }
    api = dashboard.api.local()
    await api.create(MACHINE, machine)
    await api.patch(MACHINE.ref("prod-servers-a", "fleet-default"), {"status": machine["status"]}, "status")
    event = {
        "metadata": {"name": "e", "namespace": "fleet-default"},
        "reason": SCRIPT,
        "message": SCRIPT,
        "type": "Warning",
        "lastTimestamp": "2026-01-01T11:57:00Z",
        "involvedObject": {"kind": "Machine", "name": "prod-servers-a", "namespace": "fleet-default"},
    }
    await api.create(EVENT, event)


PAGES = [
    "/clusters",
    "/clusters/fleet-default/prod",
    "/machines/fleet-default/prod-servers-a",
    "/activity",
    "/credentials",
    "/clusters/fleet-default/prod/actions/scale?pool=x&quantity=1",
    "/clusters?q=%3Cscript%3E%22&namespace=*",
    "/clusters?namespace=%3Cscript%3E",
    "/sign-in?next=/%22%3E%3Cscript%3E",
    "/clusters/%3Cscript%3E/b",
]


@pytest.mark.parametrize("path", PAGES)
@pytest.mark.parametrize("hx", ["", "true"])
async def test_a_script_in_an_object_or_an_address_is_text_on_the_page(
    dashboard: Dashboard, path: str, hx: str
):
    await add_hostile_objects(dashboard)
    browser = await dashboard.signed_in()

    body = (await browser.get(path, hx_request=hx)).body
    page = Page(body)

    scripts = [attrs for tag, attrs in page.elements if tag == "script"]
    assert all(str(attrs.get("src", "")).startswith("/static/") for attrs in scripts)
    assert not [tag for tag, _ in page.elements if tag in ("img", "iframe", "object", "style")]
    names = {name for _, attrs in page.elements for name in attrs}
    assert not [name for name in names if name.startswith("on") or name == "style"]
    for _, attrs in page.elements:
        for name in ("href", "src", "action", "hx-get", "data-live"):
            assert name not in attrs or str(attrs[name]).startswith(("/", "#")), attrs
    assert b"7777777" not in body


async def test_the_hostile_objects_are_on_the_pages(dashboard: Dashboard):
    """Else the test above shows nothing."""
    await add_hostile_objects(dashboard)
    browser = await dashboard.signed_in()

    for path in PAGES[:4]:
        assert SCRIPT in Page((await browser.get(path)).body).text


# --- requests that no page of ours has sent ---------------------------------------------------------------------------


@pytest.mark.parametrize("cookie", ["", "0" * 64, "../../etc", "ä", "x" * 5000])
async def test_a_forged_or_empty_cookie_leads_to_the_sign_in(dashboard: Dashboard, cookie: str):
    await dashboard.signed_in()
    browser = dashboard.browser()
    browser.cookies = {"windrow-session": cookie}

    answer = await browser.get("/clusters?q=a")

    assert (answer.status, answer.headers["Location"]) == (303, "/sign-in?next=%2Fclusters%3Fq%3Da")


async def test_an_expired_session_leads_to_the_sign_in_also_from_an_open_page(dashboard: Dashboard):
    browser = await dashboard.signed_in()
    dashboard.clock.advance(timedelta(hours=9))

    assert (await browser.get("/live/overview")).status == 401
    answer = await browser.get("/clusters", hx_request="true")
    assert (answer.status, answer.headers["HX-Redirect"]) == (401, "/sign-in?next=%2Fclusters")


@pytest.mark.parametrize(
    "headers",
    [
        {"origin": "https://evil.example"},
        {"origin": "null"},
        {"origin": ""},
        {"origin": "http://127.0.0.1:9999"},
        {"sec_fetch_site": "cross-site"},
        {"sec_fetch_site": "same-site"},
    ],
)
@pytest.mark.parametrize("path", ["/sign-out", "/sign-in"])
async def test_a_form_of_another_site_is_refused(dashboard: Dashboard, headers: dict[str, str], path: str):
    """Also one on another port of this computer, which is sent the same cookie."""
    browser = await dashboard.signed_in()
    form = {"csrf": await browser.csrf(), "code": await dashboard.code()}

    assert (await browser.post(path, form, **headers)).status == 403
    assert (await browser.get("/clusters")).status == 200


@pytest.mark.parametrize("csrf", ["", "0" * 64, "ä", "\udc80"])
async def test_a_form_without_the_token_of_its_session_is_refused(dashboard: Dashboard, csrf: str):
    browser = await dashboard.signed_in()
    other = await dashboard.signed_in()

    assert (await browser.post("/sign-out", {"csrf": csrf})).status == 403
    assert (await browser.post("/sign-out", {"csrf": await other.csrf()})).status == 403
    assert (await browser.get("/clusters")).status == 200


@pytest.mark.parametrize(
    "host", ["evil.example", "127.0.0.1.evil.example:8640", "", "[", "127.0.0.1@evil.example"]
)
async def test_a_name_of_an_attackers_that_leads_to_this_computer_is_refused(dashboard: Dashboard, host: str):
    browser = await dashboard.signed_in()

    assert (await browser.get("/clusters", host=host)).status == 421


async def test_a_forwarded_port_is_no_other_host(dashboard: Dashboard):
    browser = await dashboard.signed_in()

    assert (await browser.get("/clusters", host="localhost:18640")).status == 200


@pytest.mark.parametrize("method", ["PUT", "DELETE", "PATCH", "OPTIONS", "TRACE"])
async def test_other_methods_are_refused(dashboard: Dashboard, method: str):
    assert (await (await dashboard.signed_in()).ask(method, "/clusters")).status == 405


async def test_a_page_cannot_be_posted_to(dashboard: Dashboard):
    browser = await dashboard.signed_in()

    assert (await browser.post("/clusters", {"csrf": await browser.csrf()})).status == 404


def test_no_script_and_no_style_may_stand_within_a_page():
    policy = dict(
        part.strip().split(" ", 1) for part in SECURITY_HEADERS["Content-Security-Policy"].split(";")
    )

    assert policy["default-src"] == "'none'"
    assert policy["script-src"] == policy["style-src"] == "'self'"
    assert policy["frame-ancestors"] == "'none'"
    others = {name: value for name, value in SECURITY_HEADERS.items() if name != "Content-Security-Policy"}
    assert others == {
        "X-Content-Type-Options": "nosniff",
        "X-Frame-Options": "DENY",
        "Referrer-Policy": "same-origin",
        "Cross-Origin-Opener-Policy": "same-origin",
        "Cross-Origin-Resource-Policy": "same-origin",
        "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
    }


@pytest.mark.parametrize("page", ["overview", "cluster", "activity", "drivers"])
async def test_every_page_is_told_of_changes(dashboard: Dashboard, page: str):
    browser = await dashboard.signed_in()

    assert b"retry" in await anext(await browser.follow(f"/live/{page}?namespace="))


@pytest.mark.parametrize(
    "target", ["/live/none", "/live/overview?namespace=a/b", "/live/overview?namespace=" + "a" * 300]
)
async def test_changes_of_what_is_no_page_are_404(dashboard: Dashboard, target: str):
    assert (await (await dashboard.signed_in()).get(target)).status == 404


@pytest.mark.parametrize("namespace", ["a/b", "..%2f..", "a" * 300, "%00"])
async def test_a_namespace_that_is_none_is_told_so(dashboard: Dashboard, namespace: str):
    assert (await (await dashboard.signed_in()).get(f"/clusters?namespace={namespace}")).status == 400


# --- what is sent again -----------------------------------------------------------------------------------------------


async def test_an_open_page_that_shows_the_same_is_sent_nothing(dashboard: Dashboard):
    await add_cluster(dashboard.api, a_cluster("prod", waiting=WAITING))
    browser = await dashboard.signed_in()

    first = await browser.get("/clusters", hx_request="true")
    dashboard.clock.advance(timedelta(minutes=3))
    shown = first.headers["X-Windrow-Shown"]
    assert (await browser.get("/clusters", hx_request="true", x_windrow_shown=shown)).status == 204

    await dashboard.api.local().patch(
        CLUSTER.ref("prod", "fleet-default"), {"status": {"phase": "Failed"}}, "status"
    )
    assert (await browser.get("/clusters", hx_request="true", x_windrow_shown=shown)).status == 200


async def test_a_fragment_is_the_content_alone(dashboard: Dashboard):
    browser = await dashboard.signed_in()

    assert b"<html" in (await browser.get("/clusters")).body
    assert b"<html" not in (await browser.get("/clusters", hx_request="true")).body


async def test_an_api_that_fails_is_said_with_503(dashboard: Dashboard):
    from windrow.kubernetes.errors import Unreachable

    browser = await dashboard.signed_in()

    async def fail(request: Any, user: Any) -> Any:
        raise Unreachable("the store cannot be read: disk full")

    dashboard.api.send_as = fail  # type: ignore[method-assign]
    answer = await browser.get("/clusters")

    assert answer.status == 503
    assert b"loaded again by itself" in answer.body
    assert b"the store cannot be read: disk full" in answer.body


async def test_an_error_of_the_api_itself_is_503_too(dashboard: Dashboard):
    from windrow.kubernetes.errors import ServerError

    browser = await dashboard.signed_in()

    async def fail(request: Any, user: Any) -> Any:
        raise ServerError("etcd has no leader", status=500)

    dashboard.api.send_as = fail  # type: ignore[method-assign]
    assert (await browser.get("/clusters")).status == 503


# --- what an address asks for -----------------------------------------------------------------------------------------

HOSTILE_NAMES = ("path", "self", "request", "page", "namespace", "q", "health", "next", "code", "version", "")
HOSTILE_VALUES = (
    "x",
    "",
    "\udc80",
    "\x00",
    "٣",
    "-1",
    "9" * 5000,
    "{{7*7}}",
    "<b>",
    "//evil.example",
    "a\r\nb",
    "é",
)
PATHS = ("/", "/clusters", "/activity", "/credentials", "/node-drivers", "/harvesters", "/sign-in", "/live/overview",
         "/clusters/fleet-default/prod", "/clusters/fleet-default/prod/actions/upgrade", "/none")  # fmt: skip


@pytest.mark.parametrize("is_signed_in", [False, True])
@pytest.mark.parametrize("path", PATHS)
async def test_no_query_of_anybody_is_a_defect(dashboard: Dashboard, path: str, is_signed_in: bool):
    await add_cluster(dashboard.api, a_cluster("prod", version="v1.34.7+rke2r1"))
    browser = await dashboard.signed_in() if is_signed_in else dashboard.browser()

    for name in HOSTILE_NAMES:
        for value in HOSTILE_VALUES:
            request = PageRequest("GET", path, {name: value}, {}, browser.cookies, OWN, "127.0.0.1")
            answer = await dashboard.site.respond(request)
            if isinstance(answer, EventStream):
                await answer.events.aclose()  # type: ignore[attr-defined]  # a generator has it
            else:
                assert answer.status in (200, 303, 400, 401, 404, 429)
                assert answer.headers.get("Location", "/").isascii()
