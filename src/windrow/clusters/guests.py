"""The manager's way into its guest clusters: one link per cluster, kept open, with the Nodes it shows.

A link asks the API once a second until it answers, then follows the Nodes by a watch. When no server answers any more
it asks again; what it knew until then is kept, but called silent after a moment.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import datetime, timedelta

from windrow.bootstrap.intent import ClusterSecrets
from windrow.bootstrap.minting import mint_access
from windrow.client.client import Client
from windrow.client.transport import Transport
from windrow.client.watching import WatchedCache
from windrow.clusters.ledger import Ledger
from windrow.clusters.seen import Guest, Node, read_node
from windrow.kube.errors import KubeError, Unanswered, Unreachable, error_for
from windrow.kube.kubeconfig import Access
from windrow.kube.refs import NODE
from windrow.kube.requests import Event, Reply, Request
from windrow.values.chance import Chance
from windrow.values.clock import Clock, pause

log = logging.getLogger(__name__)

LIFETIME = timedelta(hours=24)
RENEW_AFTER = timedelta(hours=12)
ASK_EACH = timedelta(seconds=1)
ASK_SELDOM = timedelta(seconds=10)
SOON = timedelta(minutes=10)  # how long it is asked each second before it is asked seldom
ANSWER_WITHIN_S = 5.0
# A watch that breaks is usually back at once. Only after this long the guest counts as silent.
GRACE = timedelta(seconds=4)

Dial = Callable[[Access], Transport]


class AnyServer:
    """A Transport to one guest API through whichever of its servers answers; the last that did is asked first."""

    def __init__(self, mint: Callable[[str], Access], dial: Dial, clock: Clock) -> None:
        self.urls: tuple[str, ...] = ()
        self.used = ""
        self.is_listening = False  # a watch stands
        self.problem = ""  # why the last watch or request broke
        self.bell = asyncio.Event()  # rings when any of this changes
        self._mint = mint
        self._dial = dial
        self._clock = clock
        self._open: dict[str, tuple[datetime, Transport]] = {}

    def lead_to(self, urls: Sequence[str]) -> None:
        self.urls = tuple(urls)
        self._open = {url: entry for url, entry in self._open.items() if url in urls}

    def _order(self) -> list[str]:
        return sorted(self.urls, key=lambda url: url != self.used)

    def _via(self, url: str) -> Transport:
        now = self._clock.now()
        since, transport = self._open.get(url, (now, None))
        if transport is None or now - since > RENEW_AFTER:
            transport = self._dial(self._mint(url))
            self._open[url] = (now, transport)
        return transport

    async def send(self, request: Request) -> Reply:
        problem: KubeError = Unreachable("no server has an address yet")
        for url in self._order():
            try:
                reply = await self._via(url).send(request)
            except Unreachable as error:
                problem = error
            except Unanswered as error:
                problem = error
                if not request.is_read:
                    break
            else:
                self.used = url
                self._heard(request, reply)
                return reply
        self._broke(problem)
        raise problem

    @asynccontextmanager
    async def stream(self, request: Request) -> AsyncIterator[AsyncIterator[Event]]:
        async with AsyncExitStack() as stack:
            events = await self._enter(stack, request)
            self.is_listening, self.problem = True, ""
            self.bell.set()
            try:
                yield events
            except KubeError as error:
                self._broke(error)
                raise
            finally:
                self.is_listening = False
                self.bell.set()

    async def _enter(self, stack: AsyncExitStack, request: Request) -> AsyncIterator[Event]:
        problem: KubeError = Unreachable("no server has an address yet")
        for url in self._order():
            try:
                events = await stack.enter_async_context(self._via(url).stream(request))
            except KubeError as error:
                problem = error
            else:
                self.used = url
                return events
        self._broke(problem)
        raise problem

    def _heard(self, request: Request, reply: Reply) -> None:
        """A server that cannot even be read from (etcd without quorum) is as good as silent."""
        refusal = error_for(reply) if request.is_read and reply.status >= 500 else None
        if refusal is None:
            self.problem = ""
        else:
            self._broke(refusal)

    def _broke(self, problem: KubeError) -> None:
        self.problem = str(problem)
        self.bell.set()


class Link:
    """One guest cluster, as far as it can be reached. `run` is its owner's task; `changed` is told of news."""

    def __init__(
        self,
        secrets: ClusterSecrets,
        dial: Dial,
        clock: Clock,
        chance: Chance,
        changed: Callable[[], None],
        proxy: str,
    ) -> None:
        self._secrets = secrets
        self._clock = clock
        self._changed = changed
        self._proxy = proxy
        self._servers = AnyServer(self._mint, dial, clock)
        self._because = "it has not been asked yet"
        # None while it answers. The grace is for those that did answer, never for one that has yet to begin.
        self._silent_since: datetime | None = clock.now() - GRACE
        self._asked = False
        self._opened = clock.now()
        self._hurry = asyncio.Event()
        self._lost = False
        self._cache: WatchedCache[Node] = WatchedCache(self._servers, NODE, "", read_node, clock, chance)
        self.nodes: Ledger[Node] = Ledger(self._cache, read_node, lambda node: node.version_mark)
        self.client = Client(self._servers)

    def _mint(self, url: str) -> Access:
        return mint_access(self._secrets, url, self._clock.now(), LIFETIME, self._proxy)

    def lead_to(self, urls: Sequence[str]) -> None:
        """The addresses have changed: ask at once."""
        if tuple(urls) == self._servers.urls:
            return
        in_use = self._servers.used
        self._servers.lead_to(urls)
        if in_use and in_use not in urls:
            # Its watch may hang for minutes without saying so.
            self._lose()
        self._hurry.set()

    def _lose(self) -> None:
        self._lost = True
        self._servers.bell.set()

    def look(self) -> Guest:
        if not self._asked:
            return Guest("unasked", self._because)
        since = self._silent_since
        if since is not None and self._clock.now() - since >= GRACE:
            return Guest("silent", self._because, tuple(self.nodes.values()), asked_since=self._opened)
        return Guest("answers", "", tuple(self.nodes.values()))

    @property
    def grace_ends(self) -> datetime | None:
        """When a short silence becomes a real one."""
        since = self._silent_since
        if since is None or not self._asked or self._clock.now() >= since + GRACE:
            return None
        return since + GRACE

    # -- the work ------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Keep the link open until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._forward())
            while True:
                await self._until_it_answers()
                await self._follow()

    async def _forward(self) -> None:
        async for before, after in self._cache.changes():
            node = after or before
            if node is not None:
                self.nodes.noted(NODE.ref(node.name), after)
            self._changed()

    async def _until_it_answers(self) -> None:
        begun = self._clock.now()
        while True:
            self._hurry.clear()
            problem = await self._ask()
            if problem is None:
                return
            self._silence(problem)
            if self._clock.now() - begun < SOON:
                await pause(self._clock, ASK_EACH)
                continue
            await self._wait_seldom()

    async def _wait_seldom(self) -> None:
        try:
            async with asyncio.timeout(ASK_SELDOM.total_seconds()):
                await self._hurry.wait()
        except TimeoutError:
            pass

    async def _ask(self) -> str | None:
        """None when the API is ready, else why not."""
        if not self._servers.urls:
            return "no server has an address yet"
        try:
            async with asyncio.timeout(ANSWER_WITHIN_S):
                reply = await self._servers.send(Request("GET", "/readyz"))
        except KubeError as error:
            return str(error)
        except TimeoutError:
            return f"{', '.join(self._servers.urls)} did not answer within {ANSWER_WITHIN_S:.0f} s"
        refusal = error_for(reply)
        return None if refusal is None else f"{self._servers.used} is not ready: {refusal}"

    def _silence(self, problem: str) -> None:
        news = problem != self._because
        self._because = problem
        if self._silent_since is None:
            self._silent_since, news = self._clock.now(), True
        if self._servers.urls and not self._asked:
            self._asked, news = True, True
        if news:
            self._changed()

    async def _follow(self) -> None:
        """Follow the nodes until no server answers any more."""
        self._lost = False
        watching = asyncio.ensure_future(self._cache.run())
        watching.add_done_callback(lambda _: self._servers.bell.set())
        try:
            while True:
                await self._servers.bell.wait()
                self._servers.bell.clear()
                if watching.done():
                    return watching.result()  # it only ends by a defect, which is raised here
                if self._lost:
                    return self._silence("the connection to its API was lost")
                if self._servers.is_listening:
                    self._answered()
                elif self._servers.problem:
                    return self._silence(self._servers.problem)
        finally:
            watching.cancel()
            await asyncio.gather(watching, return_exceptions=True)

    def _answered(self) -> None:
        if self._silent_since is not None or not self._asked:
            self._silent_since, self._asked, self._because = None, True, ""
            self._changed()


class Guests:
    """All links. They live in the task group of whoever runs the manager."""

    def __init__(self, dial: Dial, clock: Clock, chance: Chance) -> None:
        self._dial = dial
        self._clock = clock
        self._chance = chance
        self._links: dict[str, tuple[Link, asyncio.Task[None]]] = {}

    def find(self, cluster_uid: str) -> Link | None:
        entry = self._links.get(cluster_uid)
        return entry[0] if entry else None

    def open(
        self,
        group: asyncio.TaskGroup,
        cluster_uid: str,
        secrets: ClusterSecrets,
        proxy: str,
        changed: Callable[[], None],
    ) -> Link:
        """The link of this cluster, opened where there is none."""
        if link := self.find(cluster_uid):
            return link
        link = Link(secrets, self._dial, self._clock, self._chance, changed, proxy)
        keeping = self._keep_alive(link)
        try:
            task = group.create_task(keeping, name=f"guest {cluster_uid}")
        except RuntimeError:
            # A group that ends takes no more tasks, and whoever asks is about to be cancelled with it.
            keeping.close()
            raise asyncio.CancelledError("the manager is ending") from None
        self._links[cluster_uid] = (link, task)
        return link

    def close(self, cluster_uid: str) -> None:
        if entry := self._links.pop(cluster_uid, None):
            entry[1].cancel()

    async def _keep_alive(self, link: Link) -> None:
        """A defect in one link must not end the manager."""
        while True:
            try:
                await link.run()
            except Exception:
                log.exception("a link to a guest broke; it is opened anew")
            await pause(self._clock, ASK_SELDOM)
