"""The dashboard beside a manager: a link by kubeconfig, an address that stays, and TLS where others reach it."""

from __future__ import annotations

import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from urllib.parse import urlsplit

import aiohttp
import pytest

from windrow.app.access.management import CODE_PATH, ask_for_link, read_code_request
from windrow.app.access.service import DashboardOptions
from windrow.app.clock import SystemClock
from windrow.app.embedded import EmbeddedManager, embedded_manager
from windrow.app.network import HttpConnector
from windrow.client.client import Client
from windrow.core.formats.json import dumps
from windrow.core.rng import Rng
from windrow.dashboard.serve import CannotServe, address_of, find_last_port, host_names, serve_dashboard
from windrow.kubernetes.errors import BadRequest, InvalidReply, MethodNotAllowed, NotFound
from windrow.kubernetes.kubeconfig import parse_kubeconfig
from windrow.kubernetes.requests import JSON, Reply, Request


@asynccontextmanager
async def managed_in(
    folder: Path, dashboard: DashboardOptions | None
) -> AsyncIterator[tuple[EmbeddedManager, Client]]:
    clock = SystemClock()
    async with (
        HttpConnector(clock) as sockets,
        embedded_manager(folder, clock, Rng(1), sockets.connect, dashboard=dashboard) as managed,
    ):
        yield managed, Client(sockets.connect(parse_kubeconfig(managed.kubeconfig_path.read_text())))


def code_request(body: bytes = b"{}") -> Request:
    return Request("POST", CODE_PATH, (), body, JSON)


async def test_the_user_of_a_kubeconfig_gets_a_link_that_opens_the_pages(tmp_path: Path):
    async with (
        managed_in(tmp_path, DashboardOptions(serve_dashboard)) as (managed, api),
        aiohttp.ClientSession(cookie_jar=aiohttp.CookieJar(unsafe=True)) as browser,
    ):
        raw = await api.call(code_request(b'{"namespace": "team-a"}'))
        assert raw["url"].startswith(f"{managed.dashboard}/sign-in?code=")

        async with browser.get(raw["url"], headers={"Sec-Fetch-Site": "none"}) as page:
            text = await page.text()
    assert page.status == 200
    assert "No clusters in namespace team-a" in text
    assert "admin" in text
    assert (tmp_path / "dashboard.url").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(
    "body", [b"[]", b"{", b'{"namespace": 1}', b'{"namespace": "' + b"a" * 64 + b'"}', b" " * 5000]
)
async def test_a_request_for_a_link_that_is_none_is_refused(tmp_path: Path, body: bytes):
    with pytest.raises(ValueError, match="wanted"):
        read_code_request(body)


async def test_refusals_of_the_path_are_statuses(tmp_path: Path):
    async with managed_in(tmp_path, DashboardOptions(serve_dashboard)) as (_, api):
        with pytest.raises(BadRequest, match="wanted JSON"):
            await api.call(code_request(b"[]"))
        with pytest.raises(MethodNotAllowed, match="send a POST"):
            await api.call(Request("GET", CODE_PATH))


async def test_a_manager_without_a_dashboard_answers_404(tmp_path: Path):
    async with managed_in(tmp_path, None) as (managed, api):
        assert managed.dashboard == ""
        with pytest.raises(NotFound):
            await ask_for_link(api)


async def test_a_bookmark_stays_valid_after_a_restart_and_a_port_that_is_taken_gives_another(tmp_path: Path):
    addresses = []
    for _ in range(2):
        async with managed_in(tmp_path, DashboardOptions(serve_dashboard)) as (managed, _api):
            addresses.append(managed.dashboard)
    assert addresses[0] == addresses[1]

    with socket.create_server(("127.0.0.1", urlsplit(addresses[0]).port or 0)):
        async with managed_in(tmp_path, DashboardOptions(serve_dashboard)) as (managed, _api):
            assert managed.dashboard != addresses[0]


async def test_a_port_that_was_asked_for_and_is_taken_is_an_error(tmp_path: Path):
    with socket.create_server(("127.0.0.1", 0)) as taken, pytest.raises(ExceptionGroup) as raised:
        async with managed_in(tmp_path, DashboardOptions(serve_dashboard, port=taken.getsockname()[1])):
            pass
    told = r"for the dashboard, is in use by another process\.; .*--dashboard-port"
    assert raised.group_contains(CannotServe, match=told)


async def test_an_address_that_this_computer_has_not_is_told_so(tmp_path: Path):
    with pytest.raises(ExceptionGroup) as raised:
        async with managed_in(tmp_path, DashboardOptions(serve_dashboard, bind="192.0.2.1", port=8443)):
            pass
    assert raised.group_contains(CannotServe, match=r"has no such address.*--dashboard-bind")


async def test_where_others_reach_it_a_dashboard_speaks_tls_and_its_cookie_is_for_tls_only(tmp_path: Path):
    async with (
        managed_in(tmp_path, DashboardOptions(serve_dashboard, bind="0.0.0.0")) as (managed, api),
        aiohttp.ClientSession(cookie_jar=aiohttp.CookieJar(unsafe=True)) as browser,
    ):
        access = parse_kubeconfig(managed.kubeconfig_path.read_text())
        trusted = ssl.create_default_context(cadata=access.ca)
        url = (await api.call(code_request()))["url"]
        assert url.startswith("https://127.0.0.1:")
        opened = browser.get(url, ssl=trusted, headers={"Sec-Fetch-Site": "none"}, allow_redirects=False)
        async with opened as answer:
            cookie = answer.headers["Set-Cookie"]

    assert cookie.startswith("__Host-windrow-session=")
    assert cookie.endswith("; Path=/; HttpOnly; SameSite=Strict; Secure")


@pytest.mark.parametrize("text", ["", "nonsense", "http://[", "http://127.0.0.1:99999", "http://127.0.0.1"])
def test_a_file_of_the_last_address_that_is_none_gives_a_free_port(tmp_path: Path, text: str):
    file = tmp_path / "dashboard.url"
    file.write_text(text)

    assert find_last_port(file) == 0
    assert find_last_port(tmp_path / "absent") == 0


@pytest.mark.parametrize(
    ("bind", "address"),
    [("127.0.0.1", "http://127.0.0.1:1"), ("::1", "http://[::1]:1"), ("0.0.0.0", "http://127.0.0.1:1")],
)
def test_a_link_begins_with_where_a_browser_on_this_computer_finds_it(bind: str, address: str):
    assert address_of(bind, 1, is_secure=False) == address


def test_on_loopback_only_names_of_loopback_are_its_hosts():
    assert set(host_names("127.0.0.1")) == {"127.0.0.1", "localhost", "::1"}
    assert "192.0.2.1" in host_names("192.0.2.1")


async def test_a_state_directory_that_cannot_be_written_takes_no_page_away(tmp_path: Path, caplog):
    (tmp_path / "dashboard.url").mkdir()
    async with managed_in(tmp_path, DashboardOptions(serve_dashboard)) as (managed, _):
        assert managed.dashboard.startswith("http://127.0.0.1:")
    assert "the dashboard has another port after a restart" in caplog.text


@pytest.mark.parametrize("url", ["javascript:alert(1)", "file:///etc/passwd", 7, None, "http://a\n-x"])
async def test_an_api_that_answers_with_no_link_opens_nothing(url: object):
    class Odd:
        async def send(self, request: Request) -> Reply:
            return Reply(201, dumps({"kind": "X", "url": url}))

    with pytest.raises(InvalidReply, match="wanted a link"):
        await ask_for_link(Client(Odd()))  # type: ignore[arg-type]
