"""DashboardListener over sockets on loopback: headers of every answer, forms, compression, streams."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest

import windrow.dashboard
from windrow.dashboard.assets import asset_path, find_asset
from windrow.dashboard.guard import SECURITY_HEADERS
from windrow.dashboard.http import MAX_BODY_BYTES, BadForm, DashboardListener, read_form
from windrow.dashboard.messages import EventStream, PageRequest, PageResponse

STATIC = Path(windrow.dashboard.__file__).parent / "static"


class Echo:
    """Answers with what it was asked."""

    def __init__(self) -> None:
        self.asked: list[PageRequest] = []
        self.ended = asyncio.Event()

    async def respond(self, request: PageRequest) -> PageResponse | EventStream:
        self.asked.append(request)
        if request.path == "/broken":
            raise RuntimeError("secret detail")
        if request.path == "/stream":
            return EventStream(self._events())
        return PageResponse(200, b"x" * 5000, cookie="a=b; HttpOnly")

    async def _events(self) -> AsyncIterator[bytes]:
        try:
            yield b"event: changed\ndata: {}\n\n"
            await asyncio.Event().wait()
        finally:
            self.ended.set()


@pytest.fixture
async def served() -> AsyncIterator[tuple[Echo, str, aiohttp.ClientSession]]:
    site = Echo()
    async with DashboardListener(site, "127.0.0.1", 0) as listener, aiohttp.ClientSession() as browser:
        yield site, f"http://127.0.0.1:{listener.port}", browser


async def test_every_answer_has_the_headers_that_protect_it(served):
    _, url, browser = served
    for path in ("/", "/broken", "/stream"):
        async with browser.get(url + path) as answer:
            assert {name: answer.headers[name] for name in SECURITY_HEADERS} == SECURITY_HEADERS
            assert answer.headers["Cache-Control"] == "no-store"


async def test_a_page_is_compressed_for_who_takes_that(served):
    _, url, browser = served
    async with browser.get(url, headers={"Accept-Encoding": "gzip"}) as answer:
        assert int(answer.headers["Content-Length"]) < 200
        assert await answer.read() == b"x" * 5000
    async with browser.get(url, headers={"Accept-Encoding": "identity"}) as answer:
        assert answer.headers["Content-Length"] == "5000"


async def test_a_form_arrives_as_fields(served):
    site, url, browser = served
    async with browser.post(f"{url}/sign-in?next=/a", data={"token": "ä&b"}) as answer:
        assert answer.status == 200
    assert (site.asked[0].method, site.asked[0].path) == ("POST", "/sign-in")
    assert (dict(site.asked[0].query), dict(site.asked[0].form)) == ({"next": "/a"}, {"token": "ä&b"})


@pytest.mark.parametrize(
    ("body", "content_type", "status"),
    [
        (b"a=" + b"b" * MAX_BODY_BYTES, "application/x-www-form-urlencoded", 413),
        (b'{"a": 1}', "application/json", 400),
        (b"a=b&" * 200 + b"c=d", "application/x-www-form-urlencoded", 400),
        (b"\xff\xfe", "application/x-www-form-urlencoded", 400),
        (b"abc", "application/x-www-form-urlencoded", 400),
    ],
)
async def test_a_body_that_is_no_form_of_ours_reaches_no_page(
    served, body: bytes, content_type: str, status: int
):
    site, url, browser = served
    async with browser.post(url, data=body, headers={"Content-Type": content_type}) as answer:
        assert answer.status == status
    assert not site.asked


async def test_a_defect_is_in_the_log_and_not_on_the_page(served, caplog: pytest.LogCaptureFixture):
    _, url, browser = served
    async with browser.get(f"{url}/broken?code=s3cret") as answer:
        assert answer.status == 500
        assert "secret detail" not in await answer.text()
    assert "secret detail" in caplog.text
    assert "s3cret" not in caplog.text


async def test_a_stream_ends_with_its_browser(served):
    site, url, browser = served
    async with browser.get(f"{url}/stream") as answer:
        assert answer.content_type == "text/event-stream"
        assert await answer.content.readline() == b"event: changed\n"
    await asyncio.wait_for(site.ended.wait(), 5)


async def test_a_listener_that_ends_waits_for_no_open_page():
    site = Echo()
    async with aiohttp.ClientSession() as browser:
        async with DashboardListener(site, "127.0.0.1", 0) as listener:
            answer = await browser.get(f"http://127.0.0.1:{listener.port}/stream")
            await answer.content.readline()
        await asyncio.wait_for(site.ended.wait(), 5)
        answer.close()


def test_a_form_has_few_fields():
    with pytest.raises(BadForm):
        read_form(b"&".join(b"a%d=1" % number for number in range(101)), "application/x-www-form-urlencoded")


# --- files ------------------------------------------------------------------------------------------------------------


def test_htmx_is_the_release_that_we_have_read():
    """2.0.11, as its authors publish it (0BSD, its licence beside it)."""
    body = (STATIC / "vendor" / "htmx.min.js").read_bytes()

    digest = "d6fdc75f204e6bdefa99b69bf1e6d4ac69b8a364f77929f45c13476b4000f717"
    assert hashlib.sha256(body).hexdigest() == digest
    assert b'version:"2.0.11"' in body
    assert "Zero-Clause BSD" in (STATIC / "vendor" / "htmx.LICENSE").read_text()


@pytest.mark.parametrize("name", ["app.css", "live.js", "vendor/htmx.min.js", "icon.svg"])
def test_a_file_is_found_at_its_path_and_at_no_other(name: str):
    path = asset_path(name)

    assert find_asset(path) is not None
    assert find_asset(path.replace("/static/", "/static/0")) is None


@pytest.mark.parametrize(
    "path",
    ["/static/", "/static/../site.py", "/static/0/../../site.py", "/static/x/app.css", "/static/%2e%2e"],
)
def test_no_other_file_is_served(path: str):
    assert find_asset(path) is None


def test_our_own_files_name_no_other_site():
    for name in ("app.css", "live.js"):
        assert "//" not in (STATIC / name).read_text().replace("// ", "").replace("http://www.w3.org", "")
