"""DashboardSite: answers the requests of browsers. Who signs in, what a session may ask for, and which page it is.

A request goes through the same gate whatever it asks for: our host, then a session, then for a write its origin and its token.
What the API refuses, a page shows with the API's own words and status. Nothing here is remembered between two requests but who is
signed in.
"""

from __future__ import annotations

import hashlib
import logging
import re
from collections.abc import AsyncIterator, Collection, Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from http import HTTPStatus
from typing import Any
from urllib.parse import unquote

from windrow.app.access.management import ApiUser, ManagementAccess
from windrow.app.harvester.reader import HarvesterReader
from windrow.client.client import Client
from windrow.clusters.api.kinds import CLUSTER, ETCD_SNAPSHOT, MACHINE
from windrow.core.clock import Clock
from windrow.core.formats.json import dumps
from windrow.dashboard import guard
from windrow.dashboard.assets import PREFIX, find_asset
from windrow.dashboard.changes import Away, ChangeFeed, Scope, TooManyPages
from windrow.dashboard.messages import TEXT, EventStream, PageRequest, PageResponse, redirect
from windrow.dashboard.pages.actions import execute, preview
from windrow.dashboard.pages.cluster import cluster
from windrow.dashboard.pages.harvester import harvester, harvesters
from windrow.dashboard.pages.lists import activity, credentials, node_drivers
from windrow.dashboard.pages.machine import machine
from windrow.dashboard.pages.overview import overview
from windrow.dashboard.pages.page import MAX_NAME_LENGTH, Page, PageContext, ReadPage
from windrow.dashboard.pages.placement import placement
from windrow.dashboard.pages.vm import vm
from windrow.dashboard.rendering import render, with_query
from windrow.dashboard.sessions import Session, Sessions, SignInCodes, WrongTries
from windrow.drivers.api import NODE_DRIVER
from windrow.kubernetes.errors import Forbidden, KubeError, NotFound, Unauthorized
from windrow.kubernetes.resources import EVENT, ApiResource

log = logging.getLogger(__name__)

# A stream ends after so long, and the browser opens another: with a session that is still open.
STREAM_LIFETIME = timedelta(minutes=5)
MAX_TOKEN_LENGTH = 16 * 1024
KEPT_FOREVER = {"Cache-Control": "public, max-age=31536000, immutable"}
# What a page has on the screen when it is asked for again; answered with 204 where nothing but ages differs.
SHOWN_HEADER = "x-windrow-shown"

_ACTION = re.compile(r"/(clusters|machines)/([^/]+)/([^/]+)/actions/([a-z]+)")
_ROUTES: tuple[tuple[re.Pattern[str], ReadPage], ...] = (
    (re.compile(r"/clusters"), overview),
    (re.compile(r"/clusters/([^/]+)/([^/]+)"), cluster),
    (re.compile(r"/machines/([^/]+)/([^/]+)"), machine),
    (re.compile(r"/clusters/([^/]+)/([^/]+)/harvester"), placement),
    (re.compile(r"/machines/([^/]+)/([^/]+)/vm"), vm),
    (_ACTION, preview),
    (re.compile(r"/activity"), activity),
    (re.compile(r"/credentials"), credentials),
    (re.compile(r"/node-drivers"), node_drivers),
    (re.compile(r"/harvesters"), harvesters),
    (re.compile(r"/harvesters/([^/]+)/([^/]+)"), harvester),
)
# The kinds that a page shows.
_LIVE: Mapping[str, tuple[ApiResource, ...]] = {
    "overview": (CLUSTER,),
    "cluster": (CLUSTER, MACHINE, ETCD_SNAPSHOT),
    "activity": (EVENT,),
    "drivers": (NODE_DRIVER,),
}
_AGES = re.compile(rb"(<time[^>]*>)[^<]*")


@dataclass(frozen=True, slots=True)
class Doors:
    """What signs a user in and keeps them so, and what is read beyond the management API."""

    access: ManagementAccess
    codes: SignInCodes
    sessions: Sessions
    tries: WrongTries
    harvesters: HarvesterReader


class DashboardSite:
    """Every page, for those who are signed in. `hosts` are the names by which browsers may reach it."""

    def __init__(self, doors: Doors, feed: ChangeFeed, clock: Clock, hosts: Collection[str]) -> None:
        self._access, self._codes = doors.access, doors.codes
        self._sessions, self._tries = doors.sessions, doors.tries
        self._harvesters = doors.harvesters
        self._feed, self._clock, self._hosts = feed, clock, frozenset(hosts)

    async def respond(self, request: PageRequest) -> PageResponse | EventStream:
        """The answer to a request."""
        if not guard.is_own_host(request, self._hosts):
            return _plain(
                421, "this address is not the dashboard's; open the one that windrow dashboard prints"
            )
        if request.method not in ("GET", "HEAD", "POST"):
            return _plain(405, "pages know GET and POST")
        if request.path.startswith(PREFIX):
            return _respond_asset(request)
        if request.is_write and not guard.is_own_origin(request):
            return self._refuse(
                request, 403, "The form was not sent by a page of this dashboard.", "Open the page again."
            )
        if request.path == "/sign-in":
            return await self._sign_in(request)
        session = self._find_session(request)
        if session is None:
            return _ask_to_sign_in(request)
        if request.is_write and not guard.has_token(request, session):
            text = "The form is of another session."
            return self._refuse(request, 403, text, "Open the page again and repeat.", session)
        return await self._respond_signed_in(request, session)

    def _find_session(self, request: PageRequest) -> Session | None:
        cookie = request.cookies.get(guard.cookie_name(request.secure), "")
        return self._sessions.find(cookie) if cookie else None

    async def _respond_signed_in(self, request: PageRequest, session: Session) -> PageResponse | EventStream:
        if request.path == "/sign-out" and request.is_write:
            return self._sign_out(request, session)
        if request.path == "/":
            return redirect("/clusters")
        if request.path.startswith("/live/"):
            return self._follow(request, session)
        began = self._clock.monotonic()
        try:
            if request.is_write:
                return redirect(await self._execute(request, session))
            page = await self._read_page(request, session)
        except Unauthorized:
            # Its token has ended or was revoked.
            self._sessions.close(session.key)
            return _ask_to_sign_in(request)
        except KubeError as error:
            page = _error_page(error)
        response = self._render(request, session, page)
        if request.is_fragment:
            self._feed.record_cost(self._clock.monotonic() - began)
        return response

    async def _execute(self, request: PageRequest, session: Session) -> str:
        names = _names(_ACTION, request.path)
        if not names:
            raise NotFound("there is no such page", status=404)
        target = await execute(self._context(request, session, names), request.form)
        log.info("%s: %s by the dashboard", request.path, session.user.name)
        return target

    async def _read_page(self, request: PageRequest, session: Session) -> Page:
        for pattern, read in _ROUTES:
            if (names := _names(pattern, request.path)) is not None:
                return await read(self._context(request, session, names))
        raise NotFound("there is no such page", status=404)

    def _context(self, request: PageRequest, session: Session, names: tuple[str, ...]) -> PageContext:
        return PageContext(
            Client(session.user.transport),
            self._clock.now(),
            request.query,
            names,
            session.namespace,
            session.user.name,
            harvesters=self._harvesters,
        )

    # --- signing in ---------------------------------------------------------------------------------------------------

    async def _sign_in(self, request: PageRequest) -> PageResponse:
        target = guard.local_path(request.form.get("next") or request.query.get("next") or "/")
        code = request.form.get("code") or request.query.get("code") or ""
        if not request.is_write and not (code and guard.is_opened_by_hand(request)):
            return self._sign_in_page(request, target, code=code)
        if code:
            found = self._codes.redeem(code)
            if found is not None:
                return self._open(request, *found, target)
            text = "The link has been used, or is older than a minute. Ask for another one: windrow dashboard"
            return self._refuse_sign_in(request, target, text)
        return await self._sign_in_by_token(request, target)

    async def _sign_in_by_token(self, request: PageRequest, target: str) -> PageResponse:
        if self._tries.wait_for(request.address):
            return self._refuse_sign_in(request, target, "")
        token = request.form.get("token", "").strip()
        if not token or len(token) > MAX_TOKEN_LENGTH or not (token.isascii() and token.isprintable()):
            return self._refuse_sign_in(
                request, target, "Paste the token of an account of the management API."
            )
        try:
            user = await self._access.by_token(token, request.address)
        except (Unauthorized, Forbidden):
            return self._refuse_sign_in(request, target, "The management API does not accept this token.")
        except KubeError as error:
            return self._sign_in_page(
                request, target, f"The management API cannot be asked: {error.message}", 503
            )
        return self._open(request, user, "", target)

    def _open(self, request: PageRequest, user: ApiUser, namespace: str, target: str) -> PageResponse:
        cookie = self._sessions.open(user, namespace)
        log.info("%s signed in to the dashboard from %s", user.name, request.address)
        return redirect(target, guard.session_cookie(cookie, secure=request.secure))

    def _refuse_sign_in(self, request: PageRequest, target: str, text: str) -> PageResponse:
        self._tries.record(request.address)
        wait = self._tries.wait_for(request.address)
        if not wait and text:
            return self._sign_in_page(request, target, text, 401)
        seconds = max(int(wait.total_seconds()) + 1, 1)
        log.warning("too many wrong tries to sign in to the dashboard from %s", request.address)
        said = f"Too many wrong tries from {request.address}. Wait {seconds} s. A link of windrow dashboard works at once."
        page = self._sign_in_page(request, target, said, 429)
        return replace(page, headers={**page.headers, "Retry-After": str(seconds)})

    def _sign_in_page(
        self, request: PageRequest, target: str, problem: str = "", status: int = 200, code: str = ""
    ) -> PageResponse:
        values = {"target": target, "problem": problem, "code": code}
        return self._render(request, None, Page("sign_in.html", "Sign in", values, status=status))

    def _sign_out(self, request: PageRequest, session: Session) -> PageResponse:
        self._sessions.close(session.key)
        return redirect("/sign-in", guard.session_cookie("", secure=request.secure, max_age_s=0))

    # --- changes ------------------------------------------------------------------------------------------------------

    def _follow(self, request: PageRequest, session: Session) -> PageResponse | EventStream:
        kinds = _LIVE.get(request.path.removeprefix("/live/"))
        namespace = request.query.get("namespace", "")
        if kinds is None or len(namespace) > MAX_NAME_LENGTH or "/" in namespace:
            return _plain(404, "there is no such page")
        return EventStream(self._events(session, [(kind, namespace) for kind in kinds]))

    async def _events(self, session: Session, scopes: list[Scope]) -> AsyncIterator[bytes]:
        """Server-sent events: that something has changed, and why the API cannot be watched."""
        ends = self._clock.monotonic() + STREAM_LIFETIME
        yield b"retry: 1000\n\n"
        try:
            async for news in self._feed.listen(session.user, scopes):
                if not self._sessions.is_open(session):
                    return
                if isinstance(news, Away):
                    yield b"event: away\ndata: " + dumps({"message": news.message}) + b"\n\n"
                else:
                    yield b"event: changed\ndata: {}\n\n"
                if self._clock.monotonic() >= ends:
                    return
        except TooManyPages as error:
            yield b"event: away\ndata: " + dumps({"message": str(error)}) + b"\n\n"

    # --- answers ------------------------------------------------------------------------------------------------------

    def _render(self, request: PageRequest, session: Session | None, page: Page) -> PageResponse:
        values: dict[str, Any] = {
            **page.values,
            "page": page,
            "now": self._clock.now(),
            "here": with_query(request.path, **request.query) if request.path != "/sign-in" else "/",
            "user": session.user.name if session else "",
            "csrf": session.csrf if session else "",
            "layout": "fragment.html" if request.is_fragment else "layout.html",
            "live": with_query(f"/live/{page.live}", namespace=page.live_namespace) if page.live else "",
        }
        body = render(page.template, values).encode(errors="replace")
        shown = hashlib.sha256(_AGES.sub(rb"\1", body)).hexdigest()[:16]
        if request.is_fragment and request.headers.get(SHOWN_HEADER) == shown:
            return PageResponse(204)
        headers = {"X-Windrow-Shown": shown} if request.is_fragment else {}
        return PageResponse(page.status, body, headers=headers)

    def _refuse(
        self, request: PageRequest, status: int, message: str, hint: str, session: Session | None = None
    ) -> PageResponse:
        values = {"message": message, "hint": hint, "asks_namespace": False}
        return self._render(request, session, Page("error.html", "Refused", values, status=status))


def _plain(status: int, message: str) -> PageResponse:
    return PageResponse(status, f"{message}\n".encode(), TEXT)


def _respond_asset(request: PageRequest) -> PageResponse:
    asset = find_asset(request.path)
    if asset is None:
        return _plain(404, "there is no such file")
    return PageResponse(200, asset.body, asset.content_type, KEPT_FOREVER)


def _ask_to_sign_in(request: PageRequest) -> PageResponse:
    here = with_query(request.path, **request.query) if not request.is_write else "/"
    if request.path.startswith("/live/"):
        return _plain(401, "sign in first")
    target = with_query("/sign-in", next="" if here == "/" else here)
    if request.is_fragment:
        return PageResponse(401, b"sign in first\n", TEXT, {"HX-Redirect": target})
    return redirect(target)


def _names(pattern: re.Pattern[str], path: str) -> tuple[str, ...] | None:
    """The names of objects in a path; None where it is another path, or they name none."""
    match = pattern.fullmatch(path)
    names = tuple(unquote(part) for part in match.groups()) if match else ()
    return names if match and not any(_is_no_name(name) for name in names) else None


def _is_no_name(name: str) -> bool:
    """Whether a part of a path cannot name an object; such a one is not put into a request."""
    return (
        not name
        or len(name) > MAX_NAME_LENGTH
        or "/" in name
        or name in (".", "..")
        or not name.isprintable()
    )


def _error_page(error: KubeError) -> Page:
    """What the API says, with its status; what is not its refusal is 503."""
    status = error.status if 400 <= error.status < 500 else 503
    hint = {
        400: "Go back and correct it.",
        403: "Ask an administrator for a role such as windrow-view in the namespace (windrow-edit to change it), or choose another.",
        409: "The object was changed meanwhile; go back, and look again.",
        422: "The object was changed meanwhile, or the API refuses the value; go back, and look again.",
        404: "It may have been deleted; see the list of clusters.",
        503: "The page is loaded again by itself once the API answers.",
    }.get(status, "")
    values = {"message": error.message, "hint": hint, "asks_namespace": status == 403}
    return Page(
        "error.html", HTTPStatus(status).phrase if status in _STATUSES else "Refused", values, status=status
    )


_STATUSES = frozenset(int(one) for one in HTTPStatus)
