"""Large files over HTTPS, as a stream: the second door to aiohttp's client, for what is no API server.

Beyond what a library does by itself: only https, also after each redirect, of which five at most; the status must be
200; what comes is counted while it comes, and cut off at the limit; no cookies, no decompression, no credentials, and
proxies only as handed in.
"""

from __future__ import annotations

import errno
import os
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any
from urllib.parse import urljoin, urlsplit

import aiohttp
from yarl import URL

from windrow.kube.proxies import BadProxy, Proxy

MIB = 2**20
CHUNK = 256 * 1024
REDIRECTS = frozenset({301, 302, 303, 307, 308})


class DownloadFailed(Exception):
    """The file did not come, or not whole. `fact` names the server, never the query of its URL. `is_away` says that
    the server, or the way there, may be back later."""

    def __init__(self, fact: str, cure: str, *, is_away: bool = False) -> None:
        super().__init__(f"{fact}; {cure}")
        self.fact, self.cure, self.is_away = fact, cure, is_away


@dataclass(frozen=True, slots=True)
class Bounds:
    """What a download may take. `silence_s` is the longest time without a byte."""

    bytes: int = 512 * MIB
    redirects: int = 5
    connect_s: float = 10.0
    silence_s: float = 30.0
    whole_s: float = 900.0


BOUNDS = Bounds()


def no_proxy(url: str) -> None:
    """For where every server is reached directly."""


class Downloads:
    """Fetches files. Each call is a connection of its own, and ends with it.

    `ca` are certificates in PEM that are trusted beside the system's. `proxy` finds the proxy that leads to a URL,
    None for none, as the environment says; it may raise BadProxy.
    """

    def __init__(
        self,
        *,
        ca: str = "",
        proxy: Callable[[str], Proxy | None] = no_proxy,
        bounds: Bounds = BOUNDS,
        agent: str = "windrow",
    ) -> None:
        self._ca, self._proxy, self._bounds, self._agent = ca, proxy, bounds, agent

    async def fetch(self, url: str, write: Callable[[bytes], None]) -> None:
        """Hand every byte behind `url` to `write`, in order. Raises DownloadFailed, and what `write` raises."""
        timeout = aiohttp.ClientTimeout(
            total=self._bounds.whole_s,
            sock_connect=self._bounds.connect_s,
            sock_read=self._bounds.silence_s,
        )
        async with aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(ssl=self._tls(), force_close=True),
            cookie_jar=aiohttp.DummyCookieJar(),
            auto_decompress=False,
            timeout=timeout,
            trust_env=False,
            headers={"Accept": "*/*", "Accept-Encoding": "identity", "User-Agent": self._agent},
        ) as session:
            await self._follow(session, url, write)

    async def _follow(self, session: aiohttp.ClientSession, url: str, write: Callable[[bytes], None]) -> None:
        here, begun_at = url, _host(url)
        for _ in range(self._bounds.redirects + 1):
            _insist_on_https(here, begun_at)
            async with self._answer(session, here) as response:
                if response.status not in REDIRECTS:
                    await self._receive(response, here, write)
                    return
                here = _target(here, response, begun_at)
        raise DownloadFailed(
            f"{begun_at} leads through more than {self._bounds.redirects} redirects",
            "name the URL that they end at",
        )

    @asynccontextmanager
    async def _answer(
        self, session: aiohttp.ClientSession, url: str
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        try:
            proxy = self._proxy(url)
        except BadProxy as bad:
            raise DownloadFailed(bad.fact, bad.cure) from bad
        through: dict[str, Any] = {}
        if proxy is not None:
            host = f"[{proxy.host}]" if ":" in proxy.host else proxy.host
            through["proxy"] = f"http://{host}:{proxy.port}"
            if proxy.authorization:
                through["proxy_headers"] = {"Proxy-Authorization": proxy.authorization}
        try:
            async with session.get(URL(url, encoded=True), allow_redirects=False, **through) as response:
                yield response
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as error:
            raise _explained(error, url, self._bounds) from error

    async def _receive(
        self, response: aiohttp.ClientResponse, url: str, write: Callable[[bytes], None]
    ) -> None:
        if response.status != 200:
            raise DownloadFailed(
                f"{_host(url)} answered {response.status} {response.reason or ''}".rstrip(),
                _STATUS_CURES.get(response.status, "look at the URL in a browser"),
                is_away=response.status == 429 or response.status >= 500,
            )
        self._count(response.content_length or 0, url)
        received = 0
        async for chunk in response.content.iter_chunked(CHUNK):
            received += len(chunk)
            self._count(received, url)
            write(chunk)
        if received == 0:
            raise DownloadFailed(f"{_host(url)} sent nothing", "look at the URL in a browser")

    def _count(self, size: int, url: str) -> None:
        if size > self._bounds.bytes:
            raise DownloadFailed(
                f"{_host(url)} sends more than {self._bounds.bytes // MIB} MiB",
                "name the URL of the file that is meant",
            )

    def _tls(self) -> ssl.SSLContext:
        context = ssl.create_default_context()
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        if self._ca:
            try:
                context.load_verify_locations(cadata=self._ca)
            except (ssl.SSLError, ValueError) as error:
                raise DownloadFailed(
                    f"the CA bundle for downloads is no certificate ({error})", "write it in PEM"
                ) from error
        return context


_STATUS_CURES = {
    401: "put the file where it can be had without a password",
    403: "put the file where it can be had without a password",
    404: "correct the URL: there is no such file",
    410: "correct the URL: the file is gone",
    429: "wait: the server has had enough of us for now",
}


def _host(url: str) -> str:
    """Host and path for sentences; a query may hold a signature."""
    parts = urlsplit(url)
    return f"{parts.netloc.rpartition('@')[2]}{parts.path}"


def _target(here: str, response: aiohttp.ClientResponse, begun_at: str) -> str:
    target = response.headers.get("Location", "")
    if not target:
        raise DownloadFailed(
            f"{_host(here)} answered {response.status} without saying where to go",
            "look at the URL in a browser",
        )
    try:
        return urljoin(here, target)
    except ValueError as error:
        raise _not_https(begun_at) from error


def _not_https(begun_at: str) -> DownloadFailed:
    return DownloadFailed(
        f"{begun_at} leads to a URL that is not https", "name a URL that is https all the way"
    )


def _insist_on_https(url: str, begun_at: str) -> None:
    try:
        parts = urlsplit(url)
        good = parts.scheme == "https" and bool(parts.hostname) and parts.port != 0
    except ValueError:
        good = False
    if good and "@" not in parts.netloc:
        return
    if good:
        raise DownloadFailed(f"{begun_at} leads to a URL with a password in it", "name the URL without")
    raise _not_https(begun_at)


def _reason(error: OSError) -> str:
    """In the system's own words; the event loop's name a function and a socket."""
    known = error.errno in errno.errorcode
    return os.strerror(error.errno or 0).lower() if known else "nothing takes the connection"


def _explained(error: Exception, url: str, bounds: Bounds) -> DownloadFailed:
    host = _host(url)
    away = partial(DownloadFailed, is_away=True)
    match error:
        case aiohttp.ClientProxyConnectionError():
            return away(f"the proxy to {host} cannot be reached", "check HTTPS_PROXY")
        case aiohttp.ClientHttpProxyError():
            return DownloadFailed(
                f"the proxy to {host} answered {error.status} {error.message}",
                "check HTTPS_PROXY, and whether the proxy may lead there",
            )
        case aiohttp.ClientConnectorCertificateError():
            reason = getattr(error.certificate_error, "verify_message", "") or error.certificate_error
            return DownloadFailed(
                f"the certificate of {host} is not trusted ({reason})",
                "add its CA to the system's, or name it in SSL_CERT_FILE",
            )
        case aiohttp.ClientConnectorDNSError():
            return DownloadFailed(f"the name of {host} is not known", "check the URL, and the resolver here")
        case aiohttp.ClientConnectorSSLError():
            return DownloadFailed(f"{host} does not speak TLS as it should", "check the port in the URL")
        case aiohttp.ClientConnectorError():
            return away(
                f"https://{host} cannot be reached: {_reason(error.os_error)}",
                "check the URL, the server and the network",
            )
        case aiohttp.ClientPayloadError() | aiohttp.ServerDisconnectedError():
            return away(f"{host} broke off in the middle of the file", "look at the server")
        case aiohttp.ServerTimeoutError() | TimeoutError():
            return away(
                f"{host} was silent for too long, or the file did not come within {bounds.whole_s:.0f} s",
                "check the network",
            )
        case OSError() if error.strerror:
            return away(f"https://{host} cannot be reached: {_reason(error)}", "check the network")
    said = " ".join(str(error).split())[:200] or type(error).__name__
    return DownloadFailed(f"{host} could not be read ({said})", "look at the server")
