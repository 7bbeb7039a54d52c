import asyncio
import tracemalloc

import pytest

from windrow.client.client import Client, decode_reply
from windrow.core.formats.json import dumps
from windrow.kubernetes.errors import Conflict, KubeError, NotFound, ServerError
from windrow.kubernetes.requests import Reply
from windrow.kubernetes.resources import POD, SECRET

REF = SECRET.ref("a", "default")


class Answering:
    """Gives one answer after the other and remembers the requests."""

    def __init__(self, *replies):
        self._replies = list(replies)
        self.requests = []

    async def send(self, request):
        self.requests.append(request)
        return self._replies.pop(0)


def status(code, reason, **details):
    return Reply(code, dumps({"kind": "Status", "code": code, "reason": reason, "details": details}))


def page(*names, version="5", continue_=""):
    metadata = {"resourceVersion": version, "continue": continue_}
    return Reply(
        200, dumps({"metadata": metadata, "items": [{"metadata": {"name": name}} for name in names]})
    )


async def test_find_gives_none_only_for_a_404_that_names_the_object():
    missing = Client(Answering(status(404, "NotFound", name="a", kind="secrets")))
    page_of_a_proxy = Client(Answering(Reply(404, b"<html>not here</html>", "text/html")))

    assert await missing.find(REF) is None
    with pytest.raises(NotFound):
        await page_of_a_proxy.find(REF)


async def test_a_list_is_read_to_its_last_page():
    transport = Answering(page("a", continue_="next"), page("b"))

    listing = await Client(transport).list_with_version(POD, "default", labels="x=y")

    assert [raw["metadata"]["name"] for raw in listing.items] == ["a", "b"]
    assert [request.query_parameter("continue") for request in transport.requests] == [None, "next"]
    assert {request.query_parameter("labelSelector") for request in transport.requests} == {"x=y"}


async def test_a_list_that_expires_between_pages_is_read_in_larger_ones_and_whole_only_then():
    first, expired = page("a", continue_="next"), status(410, "Expired")
    transport = Answering(first, expired, first, expired, page("a", "b", version="9"))

    listing = await Client(transport).list_with_version(POD, "default")

    assert ([raw["metadata"]["name"] for raw in listing.items], listing.resource_version) == (["a", "b"], "9")
    limits = [request.query_parameter("limit") for request in transport.requests]
    assert limits == ["500", "500", "2000", "2000", None]


async def test_a_page_is_let_go_before_the_next_is_read():
    """Where pages are as large as an answer may be, one of them is in memory, not two."""
    client = Client(Answering(page("a", continue_="next"), page("b")))
    pages = [one async for one in client.pages(POD, "default")]

    assert [one.items for one in pages] == [[], []]


async def test_while_a_page_of_many_objects_is_read_others_have_their_turns():
    """A server may send more than it was asked for, also a tenant's own."""
    turns = 0

    async def take_turns():
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    other = asyncio.create_task(take_turns())
    found = await Client(Answering(page(*map(str, range(5000))))).list(POD)
    other.cancel()

    assert [raw["metadata"]["name"] for raw in found] == [str(number) for number in range(5000)]
    assert turns >= 9


async def count_turns_of(reply):
    turns = 0

    async def take_turns():
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    other = asyncio.create_task(take_turns())
    found = await Client(Answering(reply)).list(POD)
    other.cancel()
    return turns, len(found)


async def test_while_a_page_of_large_objects_is_read_others_have_their_turns():
    """It is decoded a few objects at a time: a tenant's server may send 64 MiB."""
    items = [{"metadata": {"name": str(number)}, "data": "x" * 2**18} for number in range(20)]
    reply = Reply(200, dumps({"metadata": {}, "items": items}))

    assert await count_turns_of(reply) == (4, 20)


async def read_names(pages, names):
    async for one in pages:
        names += [raw["metadata"]["name"] for raw in one.items]


@pytest.mark.parametrize(
    ("last", "text"),
    [(b"7", "wanted an object in"), (b'{"metadata":{"name":"\xff"}}', "wanted a JSON object in")],
)
async def test_an_object_of_a_list_is_decoded_when_those_ahead_of_it_are_read(last, text):
    ahead = b",".join(b'{"metadata":{"name":"a%d"}}' % number for number in range(500))
    body = b'{"metadata":{},"items":[%s,%s]}' % (ahead, last)
    names: list[str] = []

    with pytest.raises(ServerError, match=rf"{text} items\[500\], found"):
        await read_names(Client(Answering(Reply(200, body))).pages(POD), names)
    assert len(names) == 500


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (b"[]", "wanted a JSON object, found"),
        (b"<html>", "wanted a JSON object, found"),
        (b'{"kind":"Pod","metadata":{}}', "wanted a list, found a Pod without items"),
        (b'{"metadata":{},"items":{}}', "wanted a list, found an object without items"),
        (b'{"items":[]}', "wanted a list, found an object without metadata"),
        (b'{"metadata":{},"items":[7]}', r"wanted an object in items\[0\], found a int"),
        (
            b'{"metadata":{},"items":[{"metadata":{"name":"a"}},7]}',
            r"wanted an object in items\[1\], found a int",
        ),
        (b'{"metadata":{},"items":[{"metadata":{"name":7}}]}', r"wanted text in items\[0\].metadata.name"),
        (b'{"kind":"Pod","metadata":{},"items":[]}', "wanted a list, found a Pod"),
    ],
)
async def test_what_is_no_list_is_refused(body, text):
    with pytest.raises(ServerError, match=text):
        await Client(Answering(Reply(200, body))).list(POD)


async def test_the_items_of_a_list_may_be_null():
    assert await Client(Answering(Reply(200, b'{"metadata":{},"items":null}'))).list(POD) == []


async def test_one_object_of_a_list_has_few_values():
    dense = b'{"metadata":{"name":"a"},"x":[%s0]}' % (b"{}," * 100_001)

    with pytest.raises(
        ServerError, match=r"wanted at most 100000 objects and lists in items\[0\], found more"
    ):
        await Client(Answering(Reply(200, b'{"metadata":{},"items":[%s]}' % dense))).list(POD)


async def test_what_a_tenant_writes_into_an_annotation_hides_no_other_object_of_the_list():
    noisy = {"metadata": {"name": "a", "annotations": {"example.com/note": "[" * 2**18}}}
    reply = Reply(200, dumps({"metadata": {}, "items": [noisy, {"metadata": {"name": "b"}}]}))

    assert [raw["metadata"]["name"] for raw in await Client(Answering(reply)).list(POD)] == ["a", "b"]


async def test_items_of_a_list_get_their_kind_and_api_version():
    [raw] = await Client(Answering(page("a"))).list(POD, "default")

    assert (raw["apiVersion"], raw["kind"]) == ("v1", "Pod")


async def test_a_delete_of_one_very_object_carries_its_uid():
    transport = Answering(status(409, "Conflict"))

    with pytest.raises(Conflict):
        await Client(transport).delete(REF, uid="uid-1")

    assert b'"preconditions":{"uid":"uid-1"}' in transport.requests[0].body


@pytest.mark.parametrize(
    ("reply", "words"),
    [
        (Reply(302, b"", headers={"Location": "https://login"}), "redirect to https://login"),
        (Reply(200, b"<html>"), "is this address an API server"),
        (Reply(200, b"[]"), "found a list"),
        (Reply(200, b" \n"), "is this address an API server"),
    ],
)
def test_a_reply_that_is_not_from_an_api_server_is_an_error(reply, words):
    with pytest.raises(ServerError, match=words):
        decode_reply(reply)


def test_an_empty_body_is_an_empty_object():
    assert decode_reply(Reply(202, b"")) == {}


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b"", "found an object without metadata and items"),
        (b'{"kind":"Pod","metadata":{}}', "found a Pod without items"),
        (b'{"kind":"PodList","items":[]}', "found a PodList without metadata"),
        (b'{"kind":"Table","metadata":{},"items":[]}', "found a Table"),
        (b'{"kind":"PodList","metadata":{},"items":{}}', "found a PodList without items"),
    ],
)
async def test_an_answer_that_is_no_list_is_not_read_as_an_empty_one(body, words):
    with pytest.raises(ServerError, match=words):
        await Client(Answering(Reply(200, body))).list(POD, "default")


async def test_a_list_whose_items_are_null_is_empty():
    reply = Reply(200, b'{"kind":"PodList","metadata":{"resourceVersion":"5"},"items":null}')

    assert await Client(Answering(reply)).list(POD, "default") == []


@pytest.mark.parametrize(
    ("item", "found"),
    [
        ({}, r"wanted an object in items\[0\].metadata, found nothing"),
        (7, r"wanted an object in items\[0\], found a int"),
        ({"metadata": {}}, r"wanted text in items\[0\].metadata.name, found nothing"),
        ({"metadata": {"name": "a", "uid": [1]}}, r"metadata.uid, found a list"),
        ({"metadata": {"name": "a", "namespace": {}}}, r"metadata.namespace, found an object"),
        ({"metadata": {"name": "a", "labels": ["b"]}}, r"wanted a map of texts in .*labels, found a list"),
        ({"metadata": {"name": "a", "annotations": {"b": 1}}}, r"annotations\['b'\], found a int"),
        ({"metadata": {"name": "a", "finalizers": [1]}}, r"a list of texts in .*finalizers"),
    ],
)
async def test_a_list_with_what_is_no_object_is_an_error_of_the_server(item, found):
    answer = Reply(200, dumps({"metadata": {"resourceVersion": "1"}, "items": [item]}))

    with pytest.raises(ServerError, match=found):
        await Client(Answering(answer)).list(POD)


@pytest.mark.parametrize("raw", [{}, {"metadata": []}, {"metadata": {"uid": 3}}])
async def test_an_object_without_metadata_is_an_error_of_the_server(raw):
    with pytest.raises(ServerError, match="is this address an API server"):
        await Client(Answering(Reply(200, dumps(raw)))).get(REF)


async def test_a_list_whose_pages_never_end_is_given_up():
    pages = [page(continue_="more")] * 500

    with pytest.raises(ServerError, match="pages without end"):
        await Client(Answering(*pages)).list(POD)


@pytest.mark.parametrize(
    ("values", "bound"),
    [(b"1," * 2_000_001, "2000000 values"), (b"{}," * 1_000_001, "1000000 objects and lists")],
    ids=["values", "objects"],
)
async def test_an_answer_of_millions_of_values_is_refused_before_they_are_made(values, bound):
    body = b'{"metadata":{},"items":[' + values + b"{}]}"
    tracemalloc.start()
    try:
        with pytest.raises(ServerError, match=f"wanted at most {bound}"):
            await Client(Answering(Reply(200, body))).list(POD)
        assert tracemalloc.get_traced_memory()[1] < 2**20
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("code", ["x", [], 10**400])
def test_a_status_with_a_code_that_is_none_is_an_error_all_the_same(code):
    reply = Reply(503, dumps({"kind": "Status", "code": code}), headers={"Retry-After": "9" * 30})

    with pytest.raises(KubeError) as caught:
        decode_reply(reply)

    assert caught.value.retry_after_s is None


@pytest.mark.parametrize("after", ["x", [1], {}, -1, float("nan")])
def test_a_time_to_wait_that_is_none_is_ignored(after):
    assert KubeError("", details={"retryAfterSeconds": after}).retry_after_s is None
