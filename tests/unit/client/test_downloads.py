"""Downloads from servers that behave and servers that do not, over TLS on loopback."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from ipaddress import ip_address
from pathlib import Path

import pytest
from aiohttp.abc import AbstractResolver, ResolveResult

from windrow.app.clock import SystemClock
from windrow.client.downloads import Downloader, DownloadFailed, DownloadLimits, Reach, reach_of
from windrow.core import pki
from windrow.kubernetes.proxies import BadProxy, Proxy

FILE = bytes(range(256)) * 4000


def answer(status: str = "200 OK", body: bytes = b"", **headers: str) -> bytes:
    given = {
        "Content-Length": str(len(body)),
        **{key.replace("_", "-"): value for key, value in headers.items()},
    }
    lines = "".join(f"{key}: {value}\r\n" for key, value in given.items())
    return f"HTTP/1.1 {status}\r\n{lines}\r\n".encode() + body


def redirect(target: str, status: str = "302 Found") -> bytes:
    return answer(status, Location=target)


@dataclass
class Server:
    """Answers each path as told, raw; b"" hangs up, None says nothing at all. `heads` are the requests it saw."""

    answers: dict[str, bytes | None] = field(default_factory=dict)
    heads: list[str] = field(default_factory=list)
    port: int = 0
    scheme: str = "https"

    @property
    def url(self) -> str:
        return f"{self.scheme}://127.0.0.1:{self.port}"

    @property
    def paths(self) -> list[str]:
        return [head.split()[1] for head in self.heads]

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            self.heads.append((await reader.readuntil(b"\r\n\r\n")).decode())
            said = self.answers.get(self.heads[-1].split()[1], answer("404 Not Found"))
            if said is None:
                await reader.read()
                return
            writer.write(said)
            await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()


@pytest.fixture(scope="module")
def authority() -> tuple[str, str]:
    return pki.new_ca("test", SystemClock().now(), 1)


@pytest.fixture
def tls(authority: tuple[str, str], tmp_path: Path) -> ssl.SSLContext:
    certificate, key = pki.issue_certificate(
        *authority,
        common_name="files",
        server=True,
        ips=["127.0.0.1"],
        dns=["files.example"],
        now=SystemClock().now(),
        lifetime=timedelta(hours=1),
    )
    (tmp_path / "server.pem").write_text(key + certificate)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "server.pem")
    return context


@asynccontextmanager
async def serving(tls: ssl.SSLContext | None, **answers: bytes | None) -> AsyncIterator[Server]:
    made = Server({f"/{path}": said for path, said in answers.items()}, scheme="https" if tls else "http")
    listener = await asyncio.start_server(made.serve, "127.0.0.1", 0, ssl=tls)
    made.port = listener.sockets[0].getsockname()[1]
    async with listener:
        yield made


async def fetched(url: str, authority: tuple[str, str], **options: object) -> bytes:
    parts: list[bytes] = []
    await Downloader(ca=authority[0], **options).fetch(url, parts.append)  # type: ignore[arg-type]
    return b"".join(parts)


async def refused(url: str, authority: tuple[str, str], **options: object) -> str:
    with pytest.raises(DownloadFailed) as caught:
        await fetched(url, authority, **options)
    assert caught.value.hint
    return str(caught.value)


Authority = tuple[str, str]
TLS = ssl.SSLContext


# -- what comes ----------------------------------------------------------------------------------------------------


async def test_a_file_comes_whole_and_in_order_as_a_stream(tls: TLS, authority: Authority):
    parts: list[bytes] = []
    async with serving(tls, file=answer(body=FILE)) as server:
        await Downloader(ca=authority[0]).fetch(f"{server.url}/file", parts.append)

    assert b"".join(parts) == FILE
    assert len(parts) > 1
    assert "Accept-Encoding: identity" in server.heads[0]


async def test_what_the_server_calls_encoded_is_left_as_it_is(tls: TLS, authority: Authority):
    async with serving(tls, file=answer(body=b"\x1f\x8bnot really", Content_Encoding="gzip")) as server:
        assert await fetched(f"{server.url}/file", authority) == b"\x1f\x8bnot really"


async def test_a_query_is_sent_unchanged_and_is_in_no_message(tls: TLS, authority: Authority):
    async with serving(tls) as server:
        said = await refused(f"{server.url}/file?sig=a%2Fb%20c&x=1", authority)

    assert server.paths == ["/file?sig=a%2Fb%20c&x=1"]
    assert "sig" not in said


@pytest.mark.parametrize(
    "status", ["301 Moved", "302 Found", "303 See Other", "307 Temporary", "308 Permanent"]
)
async def test_redirects_are_followed(tls: TLS, authority: Authority, status: str):
    async with serving(
        tls, a=redirect("/b", status), b=redirect("c", status), c=answer(body=b"here")
    ) as server:
        assert await fetched(f"{server.url}/a", authority) == b"here"

    assert server.paths == ["/a", "/b", "/c"]


async def test_five_redirects_are_the_most(tls: TLS, authority: Authority):
    hops = {f"a{number}": redirect(f"/a{number + 1}") for number in range(6)}
    async with serving(tls, **hops, a6=answer(body=b"here")) as server:
        assert await fetched(f"{server.url}/a1", authority) == b"here"
        assert "leads through more than 5 redirects; name the URL that they end at" in await refused(
            f"{server.url}/a0", authority
        )


async def test_a_loop_of_redirects_ends(tls: TLS, authority: Authority):
    async with serving(tls, a=redirect("/a")) as server:
        assert "more than 5 redirects" in await refused(f"{server.url}/a", authority)

    assert len(server.heads) == 6


@pytest.mark.parametrize(
    ("target", "words"),
    [
        ("http://127.0.0.1:1/x", "leads to a URL that is not https; name a URL that is https all the way"),
        ("file:///etc/passwd", "leads to a URL that is not https"),
        ("https://me:secret@127.0.0.1:1/x", "leads to a URL with a password in it"),
        ("https://[::1/x", "leads to a URL that is not https"),
        ("", "answered 302 without a Location"),
    ],
)
async def test_redirects_to_elsewhere_than_https_are_not_followed(
    tls: TLS, authority: Authority, target: str, words: str
):
    async with serving(tls, a=redirect(target)) as server:
        said = await refused(f"{server.url}/a", authority)

    assert words in said
    assert "secret" not in said


async def test_plain_http_is_refused(authority: Authority):
    async with serving(None, file=answer(body=FILE)) as server:
        assert "is not https" in await refused(f"{server.url}/file", authority)

    assert server.heads == []


# -- what does not -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("status", "words"),
    [
        ("404 Not Found", "answered 404 Not Found; correct the URL: there is no such file"),
        ("403 Forbidden", "answered 403 Forbidden; put the file where it can be had without a password"),
        ("500 Oops", "answered 500 Oops; check the URL in a browser"),
        ("206 Partial Content", "answered 206 Partial Content"),
    ],
)
async def test_only_status_200_brings_a_file(tls: TLS, authority: Authority, status: str, words: str):
    parts: list[bytes] = []
    async with serving(tls, file=answer(status, b"an error page")) as server:
        with pytest.raises(DownloadFailed) as caught:
            await Downloader(ca=authority[0]).fetch(f"{server.url}/file", parts.append)

    assert words in str(caught.value)
    assert f"127.0.0.1:{server.port}/file" in str(caught.value)
    assert parts == []


async def test_a_file_that_is_too_large_is_refused_whether_or_not_its_length_is_announced(
    tls: TLS, authority: Authority
):
    chunked = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + b"10000\r\n" + bytes(65536) + b"\r\n"
    most = DownloadLimits(bytes=2**20)
    async with serving(tls, said=answer(body=bytes(2**20 + 1)), lied=chunked + chunked[47:] * 30) as server:
        assert "sends more than 1 MiB" in await refused(f"{server.url}/said", authority, limits=most)
        assert "sends more than 1 MiB" in await refused(f"{server.url}/lied", authority, limits=most)


async def test_a_file_cut_short_is_an_error(tls: TLS, authority: Authority):
    async with serving(tls, file=answer(body=FILE)[:-1], none=b"") as server:
        assert "closed the connection in the middle of the file" in await refused(
            f"{server.url}/file", authority
        )
        assert "closed the connection" in await refused(f"{server.url}/none", authority)


async def test_an_empty_file_is_an_error(tls: TLS, authority: Authority):
    async with serving(tls, file=answer()) as server:
        assert "sent nothing" in await refused(f"{server.url}/file", authority)


async def test_a_silent_server_is_a_timeout(tls: TLS, authority: Authority):
    async with serving(tls, file=None) as server:
        said = await refused(f"{server.url}/file", authority, limits=DownloadLimits(idle_s=0.2))

    assert "was silent for too long" in said


async def test_a_server_without_http_is_an_error(tls: TLS, authority: Authority):
    async with serving(tls, file=b"SSH-2.0-OpenSSH\r\n") as server:
        assert "could not be read" in await refused(f"{server.url}/file", authority)


async def test_an_unreachable_server_is_an_error(tls: TLS, authority: Authority):
    async with serving(tls) as server:
        pass

    with pytest.raises(DownloadFailed) as caught:
        await fetched(f"{server.url}/file", authority)

    assert caught.value.message == f"{server.url}/file cannot be reached: connection refused"
    assert caught.value.is_temporary


@pytest.mark.parametrize(("status", "is_away"), [(404, False), (403, False), (429, True), (503, True)])
async def test_429_and_5xx_are_temporary(tls: TLS, authority: Authority, status: int, is_away: bool):
    async with serving(tls, file=answer(f"{status} X")) as server:
        with pytest.raises(DownloadFailed) as caught:
            await fetched(f"{server.url}/file", authority)

    assert caught.value.is_temporary is is_away


async def test_a_server_without_tls_is_an_error(authority: Authority):
    async def greet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"220 files.example ESMTP\r\n")
        await reader.read()
        writer.close()

    async with await asyncio.start_server(greet, "127.0.0.1", 0) as listener:
        port = listener.sockets[0].getsockname()[1]
        assert "does not speak TLS" in await refused(f"https://127.0.0.1:{port}/x", authority)


# -- trust ---------------------------------------------------------------------------------------------------------


async def test_a_server_of_an_unknown_ca_is_not_trusted(tls: TLS):
    async with serving(tls, file=answer(body=FILE)) as server:
        with pytest.raises(
            DownloadFailed,
            match=r"is not trusted .*; add its CA to the system's, or name it in SSL_CERT_FILE",
        ):
            await Downloader().fetch(f"{server.url}/file", lambda data: None)

    assert server.heads == []


async def test_a_certificate_for_another_name_is_not_trusted(tls: TLS, authority: Authority):
    async with serving(tls, file=answer(body=FILE)) as server:
        assert "is not trusted" in await refused(f"https://localhost:{server.port}/file", authority)


async def test_a_malformed_ca_is_an_error():
    with pytest.raises(DownloadFailed, match="the CA bundle for downloads is no certificate"):
        await Downloader(ca="nonsense").fetch("https://127.0.0.1:1/x", lambda data: None)


# -- proxies -------------------------------------------------------------------------------------------------------


def through_port(port: int) -> Proxy:
    return Proxy("127.0.0.1", port, "Basic bWU6cHc=")


async def test_the_proxy_gets_connect_and_its_authorization(tls: TLS, authority: Authority):
    heads: list[str] = []

    async def connect(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heads.append((await reader.readuntil(b"\r\n\r\n")).decode())
        inner = await asyncio.open_connection("127.0.0.1", int(heads[-1].split()[1].rpartition(":")[2]))
        writer.write(b"HTTP/1.1 200 OK\r\n\r\n")

        async def pump(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
            while data := await source.read(65536):
                target.write(data)
            target.close()

        await asyncio.gather(pump(reader, inner[1]), pump(inner[0], writer), return_exceptions=True)

    listener = await asyncio.start_server(connect, "127.0.0.1", 0)
    async with listener, serving(tls, file=answer(body=FILE)) as server:
        through = through_port(listener.sockets[0].getsockname()[1])
        assert await fetched(f"{server.url}/file", authority, proxy=lambda url: through) == FILE

    assert heads[0].startswith(f"CONNECT 127.0.0.1:{server.port} ")
    assert "Proxy-Authorization: Basic bWU6cHc=" in heads[0]


async def test_a_proxy_that_refuses_or_is_unreachable_is_an_error(tls: TLS, authority: Authority):
    async with serving(None) as proxy, serving(tls, file=answer(body=FILE)) as server:
        here = through_port(proxy.port)
        assert "the proxy to" in await refused(f"{server.url}/file", authority, proxy=lambda url: here)
    assert "the proxy to" in await refused(f"{server.url}/file", authority, proxy=lambda url: here)


async def test_an_unusable_proxy_is_an_error(authority: Authority):
    def bad(url: str) -> None:
        raise BadProxy("HTTPS_PROXY is no URL")

    told = await refused("https://127.0.0.1:1/x", authority, proxy=bad)
    assert told == "HTTPS_PROXY is no URL; write it as http://HOST:PORT"


async def test_what_the_receiver_raises_ends_the_download_as_it_is(tls: TLS, authority: Authority):
    def full(data: bytes) -> None:
        raise LookupError("no room")

    async with serving(tls, file=answer(body=FILE)) as server:
        with pytest.raises(LookupError, match="no room"):
            await Downloader(ca=authority[0]).fetch(f"{server.url}/file", full)


# -- redirects into internal networks ---------------------------------------------------------------------------------


class Names(AbstractResolver):
    """A resolver that knows these names; the last address of a name stays when the others were given."""

    def __init__(self, **addresses: list[str]) -> None:
        self._addresses = addresses

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        known = self._addresses[host.partition(".")[0]]
        address = known.pop(0) if len(known) > 1 else known[0]
        return [
            ResolveResult(hostname=host, host=address, port=port, family=socket.AF_INET, proto=0, flags=0)
        ]

    async def close(self) -> None:
        pass


@pytest.mark.parametrize(
    "target",
    [
        "https://169.254.169.254/latest/meta-data/",
        "https://[fe80::1]/",
        "https://[::ffff:169.254.169.254]/",
        "https://metadata.example/",
    ],
)
async def test_a_redirect_that_leads_further_in_than_the_url_is_refused(
    tls: TLS, authority: Authority, target: str
):
    names = Names(metadata=["169.254.169.254"])
    async with serving(tls, a=redirect(target)) as server:
        said = await refused(f"{server.url}/a", authority, resolver=lambda: names)

    assert "a link-local address, which the URL itself does not lead to; name the URL that it ends at" in said
    assert server.paths == ["/a"]


async def test_a_name_that_leads_elsewhere_at_the_redirect_is_checked_where_it_is_connected_to(
    tls: TLS, authority: Authority
):
    names = Names(files=["127.0.0.1", "169.254.169.254"])
    async with serving(tls, a=redirect("/b"), b=answer(body=b"here")) as server:
        url = f"https://files.example:{server.port}"
        said = await refused(f"{url}/a", authority, resolver=lambda: names)
        assert await fetched(f"{server.url}/a", authority) == b"here"

    assert "redirects to files.example, a link-local address" in said
    assert server.paths == ["/a", "/a", "/b"]


@pytest.mark.parametrize(
    ("address", "reach"),
    [
        ("93.184.215.14", Reach.PUBLIC),
        ("2606:4700::1111", Reach.PUBLIC),
        ("10.0.0.5", Reach.PRIVATE),
        ("192.168.1.1", Reach.PRIVATE),
        ("100.64.0.1", Reach.PRIVATE),
        ("fd00::1", Reach.PRIVATE),
        ("64:ff9b::a00:5", Reach.PRIVATE),
        ("2002:a00:5::", Reach.PRIVATE),
        ("127.0.0.1", Reach.LOOPBACK),
        ("::1", Reach.LOOPBACK),
        ("0.0.0.0", Reach.LOOPBACK),
        ("::ffff:127.0.0.1", Reach.LOOPBACK),
        ("169.254.169.254", Reach.LINK_LOCAL),
        ("fe80::1", Reach.LINK_LOCAL),
    ],
)
def test_how_far_in_an_address_leads(address: str, reach: Reach) -> None:
    assert reach_of(ip_address(address)) == reach
