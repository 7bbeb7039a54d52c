"""One user's watches and lists leave room for others: they are counted by user, and system:masters is exempt."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from typing import Any

import pytest

from windrow.apiserver.request.flow_control import MAX_LISTS, MAX_REQUESTS, MAX_WATCHES, FlowControl
from windrow.apiserver.request.info import UserInfo
from windrow.apiserver.server import ApiServer
from windrow.core.formats.fastjson import loads
from windrow.kubernetes.errors import TooManyRequests
from windrow.kubernetes.handler import Peer
from windrow.kubernetes.requests import Reply, Request
from windrow.kubernetes.resources import CONFIG_MAP

PATH = "/api/v1/namespaces/default/configmaps"
ADMIN = ("admin", ("system:masters",), None)


@pytest.fixture
def users(server: ApiServer) -> ApiServer:
    server.tokens.update({"a": ("alice", (), None), "b": ("bob", (), None), "root": ADMIN})
    return server


def a_request(token: str, *query: tuple[str, str]) -> Request:
    return Request("GET", PATH, query, headers=(("Authorization", f"Bearer {token}"),))


def a_watch(token: str, *query: tuple[str, str]) -> Request:
    return a_request(token, ("watch", "true"), *query)


async def is_waiting(task: asyncio.Task[Any]) -> bool:
    for _ in range(20):
        await asyncio.sleep(0)
    return not task.done()


async def test_a_user_has_so_many_watches_and_others_have_theirs(users: ApiServer) -> None:
    async with AsyncExitStack() as stack:
        for _ in range(MAX_WATCHES):
            opened = await stack.enter_async_context(users.stream(a_watch("a"), Peer()))
        with pytest.raises(TooManyRequests, match="alice has 200 watches open") as refused:
            await stack.enter_async_context(users.stream(a_watch("a"), Peer()))
        assert refused.value.retry_after_s == 1

        for token in ("b", "root"):
            await stack.enter_async_context(users.stream(a_watch(token), Peer()))
        assert (await users.send(a_request("a"), Peer())).status == 200
        assert opened is not None

    async with users.stream(a_watch("a"), Peer()):  # the others have ended
        pass


async def test_an_administrator_is_not_counted(users: ApiServer) -> None:
    async with AsyncExitStack() as stack:
        for _ in range(MAX_WATCHES + 1):
            await stack.enter_async_context(users.stream(a_watch("root"), Peer()))


async def test_the_service_accounts_of_a_namespace_count_together() -> None:
    flows = FlowControl()
    names = [f"system:serviceaccount:team:{number}" for number in range(MAX_WATCHES + 1)]
    accounts = [UserInfo(name, ("system:serviceaccounts", "system:serviceaccounts:team")) for name in names]
    async with AsyncExitStack() as stack:
        for account in accounts[:-1]:
            stack.enter_context(flows.watching(account))
        with pytest.raises(TooManyRequests, match="system:serviceaccounts:team has"):
            stack.enter_context(flows.watching(accounts[-1]))


async def test_a_list_waits_until_one_of_the_user_s_answers_is_sent(users: ApiServer) -> None:
    unsent = [await users.send(a_request("a"), Peer()) for _ in range(MAX_LISTS)]
    waiting = asyncio.create_task(users.send(a_request("a"), Peer()))
    assert await is_waiting(waiting)
    for token in ("b", "root"):
        assert (await users.send(a_request(token), Peer())).status == 200
    one = Request("GET", f"{PATH}/absent", headers=a_request("a").headers)
    assert (await users.send(one, Peer())).status == 404

    unsent.pop()

    assert (await waiting).status == 200


async def sent(server: ApiServer, token: str) -> int:
    """The status of a list, whose answer is sent at once."""
    return (await server.send(a_request(token), Peer())).status


async def test_lists_that_wait_hold_no_more_than_the_user_s_share_of_connections(users: ApiServer) -> None:
    unsent = [await users.send(a_request("a"), Peer()) for _ in range(MAX_LISTS)]
    waiting = [asyncio.create_task(sent(users, "a")) for _ in range(MAX_REQUESTS - MAX_LISTS)]
    assert await is_waiting(waiting[-1])

    refused = await users.send(a_request("a"), Peer())

    assert (refused.status, refused.headers["Retry-After"]) == (429, "1")
    assert "alice has 100 requests under way" in loads(refused.body)["message"]
    for token in ("b", "root"):
        assert (await users.send(a_request(token), Peer())).status == 200
    unsent.clear()
    assert {await task for task in waiting} == {200}
    assert await sent(users, "a") == 200


def user_named(name: str, *groups: str) -> UserInfo:
    return UserInfo(name, groups)


async def answer(flows: FlowControl, user: UserInfo, mib: int) -> Reply:
    """A reply that nothing shares."""

    async def table() -> Reply:
        return Reply(200, b"x" * (mib * 2**20))

    return await flows.reply(user, table, is_list=False)


async def test_large_answers_that_a_user_does_not_read_shut_out_that_user_alone() -> None:
    flows = FlowControl()
    alice, bob, root = user_named("alice"), user_named("bob"), user_named("root", "system:masters")
    unread = [await answer(flows, alice, 40)]

    with pytest.raises(TooManyRequests, match="alice reads 40 MiB of large answers already") as refused:
        await answer(flows, alice, 40)
    assert refused.value.retry_after_s == 10
    unread.append(await answer(flows, alice, 20))
    for other in (bob, root):
        assert (await answer(flows, other, 40)).status == 200

    unread.clear()
    assert (await answer(flows, alice, 40)).status == 200


async def test_large_answers_are_bounded_together_but_for_one_of_each_user() -> None:
    flows, root = FlowControl(), user_named("root", "system:masters")
    unread = [await answer(flows, root, 200)]
    assert (await answer(flows, root, 20)).status == 200

    with pytest.raises(TooManyRequests, match="root reads 200 MiB"):
        await answer(flows, root, 60)
    unread.append(await answer(flows, user_named("bob"), 60))
    with pytest.raises(TooManyRequests, match="bob reads 60 MiB"):
        await answer(flows, user_named("bob"), 1)
    unread.clear()
    assert (await answer(flows, root, 60)).status == 200


async def test_what_was_answered_counts_no_more(users: ApiServer) -> None:
    """Also where all have the same answer: a monitor asks for it for ever."""
    for path in ("/livez", "/readyz", "/version", PATH):
        asked = Request("GET", path, headers=a_request("a").headers)
        assert {(await users.send(asked, Peer())).status for _ in range(MAX_REQUESTS + 1)} == {200}


async def test_who_gives_up_waiting_for_a_list_takes_no_place(users: ApiServer) -> None:
    unsent = [await users.send(a_request("a"), Peer()) for _ in range(MAX_LISTS)]
    waiting = [asyncio.create_task(users.send(a_request("a"), Peer())) for _ in range(3)]
    assert await is_waiting(waiting[-1])
    for task in waiting:
        task.cancel()
    await asyncio.wait(waiting)
    unsent.clear()

    again: list[Reply] = [await users.send(a_request("a"), Peer()) for _ in range(MAX_LISTS)]
    assert {reply.status for reply in again} == {200}


async def test_the_initial_events_of_a_user_s_watches_are_sent_in_turn(users: ApiServer) -> None:
    await users.local().create(CONFIG_MAP, {"metadata": {"name": "c"}}, "default")
    async with AsyncExitStack() as stack:

        async def first_event(token: str) -> tuple[AsyncExitStack, str]:
            inner = AsyncExitStack()
            events = await inner.enter_async_context(users.stream(a_watch(token), Peer()))
            stack.push_async_callback(inner.aclose)
            return inner, (await anext(aiter(events))).type

        opened = [await first_event("a") for _ in range(MAX_LISTS)]
        waiting = asyncio.create_task(first_event("a"))
        assert await is_waiting(waiting)
        assert (await first_event("b"))[1] == "ADDED"

        await opened[0][0].aclose()

        assert (await waiting)[1] == "ADDED"
    reply = await users.send(a_request("a"), Peer())
    assert len(loads(reply.body)["items"]) == 1
