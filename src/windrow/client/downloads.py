"""Downloads of large files over HTTPS, as a stream, with limits.

Only https, also after each of at most five redirects; the status must be 200; the transfer ends at the size limit; no
cookies, no decompression, no credentials, and only the proxies that the caller names.

A URL may lead into an internal network, where a mirror may be. A redirect may not lead further in than the URL did:
what a public server answers must not make the manager ask its own network (a metadata service, say). The addresses that
are checked are those that are connected to, so a name that changes in between changes nothing. Behind a proxy names are
resolved by the proxy, and only addresses in the URL can be checked here.
"""

from __future__ import annotations

import errno
import os
import socket
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from enum import IntEnum
from functools import partial
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address
from typing import Any
from urllib.parse import urljoin, urlsplit

import aiohttp
from aiohttp.abc import AbstractResolver, ResolveResult
from yarl import URL

from windrow.core.errors import UserError
from windrow.core.formats.cidr import is_address
from windrow.core.text import collapse_whitespace
from windrow.kubernetes.proxies import BadProxy, Proxy

MIB = 2**20
CHUNK = 256 * 1024
REDIRECTS = frozenset({301, 302, 303, 307, 308})


class DownloadFailed(UserError):
    """The download failed. `message` names host and path, never the query of the URL. `is_temporary`: the server, or
    the connection to it, may be back later."""

    def __init__(self, message: str, hint: str, *, is_temporary: bool = False) -> None:
        super().__init__(message, hint)
        self.is_temporary = is_temporary


@dataclass(frozen=True, slots=True)
class DownloadLimits:
    """Limits of one download. `idle_s` is the longest time without a byte."""

    bytes: int = 512 * MIB
    redirects: int = 5
    connect_s: float = 10.0
    idle_s: float = 30.0
    total_s: float = 900.0


DEFAULT_LIMITS = DownloadLimits()


class Reach(IntEnum):
    """How far into a network an address leads; each is further in than the one before."""

    PUBLIC = 0
    PRIVATE = 1
    LOOPBACK = 2
    LINK_LOCAL = 3  # metadata services of clouds


_NAT64 = IPv6Network("64:ff9b::/96")


def reach_of(address: IPv4Address | IPv6Address) -> Reach:
    """How far in the address leads; an IPv4 address within an IPv6 one counts as itself."""
    if isinstance(address, IPv6Address):
        inner = address.ipv4_mapped or address.sixtofour
        if inner is None and address in _NAT64:
            inner = IPv4Address(int(address) & 0xFFFFFFFF)
        if inner is not None:
            return reach_of(inner)
    if address.is_link_local:
        return Reach.LINK_LOCAL
    if address.is_loopback or address.is_unspecified:
        return Reach.LOOPBACK
    return Reach.PUBLIC if address.is_global else Reach.PRIVATE


class _RedirectGuard(AbstractResolver):
    """Resolves names, and refuses those of a redirect that lead further in than the first URL. One for each download."""

    def __init__(self, first_url: str, inner: AbstractResolver) -> None:
        self._first_url, self._inner = first_url, inner
        self._allowed: Reach | None = None
        self.proxy_host = ""

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        found = await self._inner.resolve(host, port, family)
        if host != self.proxy_host:
            self._check(host, [str(one["host"]) for one in found])
        return found

    async def close(self) -> None:
        await self._inner.close()

    def check_literal(self, url: str) -> None:
        """Check an address in the URL itself, which is not resolved. Raises DownloadFailed."""
        host = urlsplit(url).hostname or ""
        if is_address(host):
            self._check(host, [host])

    def end_request(self) -> None:
        """The first URL has been requested: what follows is a redirect. Behind a proxy it counts as public."""
        if self._allowed is None:
            self._allowed = Reach.PUBLIC

    def _check(self, host: str, addresses: list[str]) -> None:
        reached = [reach_of(ip_address(text.partition("%")[0])) for text in addresses]
        if not reached:
            return
        if self._allowed is None:
            self._allowed = min(reached)
        elif max(reached) > self._allowed:
            kind = max(reached).name.lower().replace("_", "-")
            raise DownloadFailed(
                f"{self._first_url} redirects to {host}, a {kind} address, which the URL itself does not lead to",
                "name the URL that it ends at, if that is meant",
            )


def no_proxy(url: str) -> None:
    """No proxy: every server is reached directly."""


class Downloader:
    """Fetches files. Each call is a connection of its own, and ends with it.

    `ca` are certificates in PEM that are trusted beside the system's. `proxy` finds the proxy that leads to a URL,
    None for none, as the environment says; it may raise BadProxy. `resolver` makes the resolver of names.
    """

    def __init__(
        self,
        *,
        ca: str = "",
        proxy: Callable[[str], Proxy | None] = no_proxy,
        limits: DownloadLimits = DEFAULT_LIMITS,
        user_agent: str = "windrow",
        resolver: Callable[[], AbstractResolver] = aiohttp.ThreadedResolver,
    ) -> None:
        self._resolver = resolver
        self._ca, self._proxy, self._limits, self._user_agent = ca, proxy, limits, user_agent

    async def fetch(self, url: str, write: Callable[[bytes], None]) -> None:
        """Hand every byte behind `url` to `write`, in order. Raises DownloadFailed, and what `write` raises."""
        timeout = aiohttp.ClientTimeout(
            total=self._limits.total_s,
            sock_connect=self._limits.connect_s,
            sock_read=self._limits.idle_s,
        )
        guard = _RedirectGuard(_host(url), self._resolver())
        async with aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(
                ssl=self._tls(), force_close=True, resolver=guard, use_dns_cache=False
            ),
            cookie_jar=aiohttp.DummyCookieJar(),
            auto_decompress=False,
            timeout=timeout,
            trust_env=False,
            headers={"Accept": "*/*", "Accept-Encoding": "identity", "User-Agent": self._user_agent},
        ) as session:
            await self._follow(session, guard, url, write)

    async def _follow(
        self,
        session: aiohttp.ClientSession,
        guard: _RedirectGuard,
        url: str,
        write: Callable[[bytes], None],
    ) -> None:
        current, first_url = url, _host(url)
        for _ in range(self._limits.redirects + 1):
            _require_https(current, first_url)
            guard.check_literal(current)
            async with self._get(session, guard, current) as response:
                guard.end_request()
                if response.status not in REDIRECTS:
                    await self._receive(response, current, write)
                    return
                current = _target(current, response, first_url)
        raise DownloadFailed(
            f"{first_url} leads through more than {self._limits.redirects} redirects",
            "name the URL that they end at",
        )

    @asynccontextmanager
    async def _get(
        self, session: aiohttp.ClientSession, guard: _RedirectGuard, url: str
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        try:
            proxy = self._proxy(url)
        except BadProxy as bad:
            raise DownloadFailed(bad.message, bad.hint) from bad
        options: dict[str, Any] = {}
        guard.proxy_host = proxy.host if proxy is not None else ""
        if proxy is not None:
            host = f"[{proxy.host}]" if ":" in proxy.host else proxy.host
            options["proxy"] = f"http://{host}:{proxy.port}"
            if proxy.authorization:
                options["proxy_headers"] = {"Proxy-Authorization": proxy.authorization}
        try:
            async with session.get(URL(url, encoded=True), allow_redirects=False, **options) as response:
                yield response
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as error:
            raise _translate_error(error, url, self._limits) from error

    async def _receive(
        self, response: aiohttp.ClientResponse, url: str, write: Callable[[bytes], None]
    ) -> None:
        if response.status != 200:
            raise DownloadFailed(
                f"{_host(url)} answered {response.status} {response.reason or ''}".rstrip(),
                _STATUS_HINTS.get(response.status, "check the URL in a browser"),
                is_temporary=response.status == 429 or response.status >= 500,
            )
        self._check_size(response.content_length or 0, url)
        received = 0
        async for chunk in response.content.iter_chunked(CHUNK):
            received += len(chunk)
            self._check_size(received, url)
            write(chunk)
        if received == 0:
            raise DownloadFailed(f"{_host(url)} sent nothing", "check the URL in a browser")

    def _check_size(self, size: int, url: str) -> None:
        if size > self._limits.bytes:
            raise DownloadFailed(
                f"{_host(url)} sends more than {self._limits.bytes // MIB} MiB",
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


_STATUS_HINTS = {
    401: "put the file where it can be had without a password",
    403: "put the file where it can be had without a password",
    404: "correct the URL: there is no such file",
    410: "correct the URL: the file is gone",
    429: "wait: the server limits the number of requests",
}


def _host(url: str) -> str:
    """Host and path for messages; a query may hold a signature."""
    parts = urlsplit(url)
    return f"{parts.netloc.rpartition('@')[2]}{parts.path}"


def _target(url: str, response: aiohttp.ClientResponse, first_url: str) -> str:
    target = response.headers.get("Location", "")
    if not target:
        raise DownloadFailed(
            f"{_host(url)} answered {response.status} without a Location",
            "check the URL in a browser",
        )
    try:
        return urljoin(url, target)
    except ValueError as error:
        raise _not_https(first_url) from error


def _not_https(first_url: str) -> DownloadFailed:
    return DownloadFailed(
        f"{first_url} leads to a URL that is not https", "name a URL that is https all the way"
    )


def _require_https(url: str, first_url: str) -> None:
    try:
        parts = urlsplit(url)
        is_valid = parts.scheme == "https" and bool(parts.hostname) and parts.port != 0
    except ValueError:
        is_valid = False
    if is_valid and "@" not in parts.netloc:
        return
    if is_valid:
        raise DownloadFailed(f"{first_url} leads to a URL with a password in it", "name the URL without")
    raise _not_https(first_url)


def _reason(error: OSError) -> str:
    """The system's text for the error number; the event loop's text names a function and a socket."""
    known = error.errno in errno.errorcode
    return os.strerror(error.errno or 0).lower() if known else "connection failed"


def _translate_error(error: Exception, url: str, limits: DownloadLimits) -> DownloadFailed:
    host = _host(url)
    temporary = partial(DownloadFailed, is_temporary=True)
    match error:
        case aiohttp.ClientProxyConnectionError():
            return temporary(f"the proxy to {host} cannot be reached", "check HTTPS_PROXY")
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
            return temporary(
                f"https://{host} cannot be reached: {_reason(error.os_error)}",
                "check the URL, the server and the network",
            )
        case aiohttp.ClientPayloadError() | aiohttp.ServerDisconnectedError():
            return temporary(f"{host} closed the connection in the middle of the file", "check the server")
        case aiohttp.ServerTimeoutError() | TimeoutError():
            return temporary(
                f"{host} was silent for too long, or the file did not come within {limits.total_s:.0f} s",
                "check the network",
            )
        case OSError() if error.strerror:
            return temporary(f"https://{host} cannot be reached: {_reason(error)}", "check the network")
    text = collapse_whitespace(error)[:200] or type(error).__name__
    return DownloadFailed(f"{host} could not be read ({text})", "check the server")
