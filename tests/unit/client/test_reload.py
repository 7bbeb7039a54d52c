from contextlib import asynccontextmanager
from datetime import timedelta

import pytest

from windrow.client.middleware.metrics import InstrumentedTransport
from windrow.client.middleware.reload import ReloadableTransport
from windrow.kubernetes.errors import Unauthorized, Unreachable
from windrow.kubernetes.requests import Reply, Request, WatchEvent

GET = Request("GET", "/api/v1/nodes")


class Server:
    """Knows one token; a way is made with a token."""

    def __init__(self, knows, *, raises=False):
        self.knows, self.raises = knows, raises
        self.asked = []

    def way(self, token):
        return FakeTransport(self, token)


class FakeTransport:
    def __init__(self, server, token):
        self.server, self.token = server, token

    async def send(self, request):
        self.server.asked.append(self.token)
        if self.token == self.server.knows:
            return Reply(200, b"{}")
        if self.server.raises:
            raise Unauthorized("the certificate is refused", status=401)
        return Reply(401, b"{}")

    @asynccontextmanager
    async def stream(self, request):
        self.server.asked.append(self.token)
        if self.token != self.server.knows:
            raise Unauthorized("no", status=401)

        async def events():
            yield WatchEvent("ADDED", {"token": self.token})
            yield WatchEvent("ADDED", {"token": self.token})

        yield events()

    async def aclose(self):
        pass


def renewing(server, token):
    """A transport that learns of `token` at the first 401."""

    def refused():
        transport.replace(server.way(token))
        return True

    transport = ReloadableTransport(server.way("old"), refused)
    return transport


@pytest.mark.parametrize("raises", [False, True])
async def test_a_request_with_401_is_repeated_with_the_newer_credential(raises):
    server = Server("new", raises=raises)

    assert (await renewing(server, "new").send(GET)).status == 200
    assert server.asked == ["old", "new"]


@pytest.mark.parametrize("raises", [False, True])
async def test_a_second_401_is_passed_on(raises):
    server = Server("newest", raises=raises)
    transport = renewing(server, "new")

    if raises:
        with pytest.raises(Unauthorized):
            await transport.send(GET)
    else:
        assert (await transport.send(GET)).status == 401
    assert server.asked == ["old", "new"]


async def test_without_a_newer_credential_a_401_is_passed_on():
    server = Server("new")

    assert (await ReloadableTransport(server.way("old"), lambda: False).send(GET)).status == 401
    assert server.asked == ["old"]


async def test_an_open_watch_goes_on_and_the_next_one_uses_the_new_transport():
    server = Server("old")
    transport = ReloadableTransport(server.way("old"), lambda: False)
    async with transport.stream(GET) as events:
        first = await anext(events)
        server.knows = "new"
        transport.replace(server.way("new"))
        second = await anext(events)
    async with transport.stream(GET) as events:
        third = await anext(events)

    assert [one.object["token"] for one in (first, second, third)] == ["old", "old", "new"]


async def test_a_watch_with_401_is_repeated_with_the_newer_credential():
    server = Server("new")
    async with renewing(server, "new").stream(GET) as events:
        assert (await anext(events)).object == {"token": "new"}


class Ticking:
    """A clock that moves by two seconds each time it is looked at."""

    def __init__(self):
        self.at = timedelta()

    def monotonic(self):
        self.at += timedelta(seconds=2)
        return self.at


async def test_each_request_is_reported_with_status_and_duration():
    heard = []
    server = Server("new")
    measured = InstrumentedTransport(server.way("old"), Ticking(), lambda *told: heard.append(told[1:]))
    await measured.send(GET)
    server.knows = "old"
    async with measured.stream(GET) as events:
        await anext(events)
        assert heard[-1] == ("200", 2.0)  # told when the watch stands, not when it ends

    assert heard == [("401", 2.0), ("200", 2.0)]


async def test_a_request_without_reply_is_reported_too():
    class Broken:
        async def send(self, request):
            raise Unreachable("connection refused")

    heard = []
    with pytest.raises(Unreachable):
        await InstrumentedTransport(Broken(), Ticking(), lambda *told: heard.append(told[1])).send(GET)

    assert heard == ["<error>"]
