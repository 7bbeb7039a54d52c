"""The HTTP proxy to a server: the kubeconfig's, else the environment's, by the rules of Go's programs.

The kubeconfig's `proxy-url` is always used, also for loopback. The environment's is not used for `localhost`, loopback
addresses and the entries of NO_PROXY.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from ipaddress import ip_address, ip_network
from urllib.parse import unquote, urlsplit

from windrow.core.errors import UserError
from windrow.core.text import encode_base64

_DEFAULT_PORTS = {"http": 80, "https": 443}


class BadProxy(UserError):
    """A proxy is named that cannot be used."""

    def __init__(self, message: str, hint: str = "write it as http://HOST:PORT") -> None:
        super().__init__(message, hint)


@dataclass(frozen=True, slots=True)
class Proxy:
    """A plain HTTP proxy. `authorization` is the value of Proxy-Authorization, "" for none."""

    host: str
    port: int
    authorization: str = field(default="", repr=False)


def find_proxy(server: str, proxy_url: str, env: Mapping[str, str]) -> Proxy | None:
    """The proxy to `server` (a URL), None where it is reached directly. Raises BadProxy."""
    if proxy_url:
        return parse_proxy(proxy_url, "proxy-url of the kubeconfig")
    parts = urlsplit(server)
    names = ("HTTPS_PROXY", "https_proxy") if parts.scheme == "https" else ("HTTP_PROXY", "http_proxy")
    name = next((name for name in names if env.get(name)), "")
    if not name:
        return None
    port = parts.port or _DEFAULT_PORTS[parts.scheme]
    if bypasses_proxy(parts.hostname or "", port, env.get("NO_PROXY") or env.get("no_proxy") or ""):
        return None
    return parse_proxy(env[name], name)


def parse_proxy(url: str, where: str) -> Proxy:
    """The proxy that `url` names; without a scheme it is taken as http."""
    try:
        parts = urlsplit(url if "://" in url else f"http://{url}")
        host, port = parts.hostname or "", parts.port or 80
    except ValueError:
        raise BadProxy(f"{where} is no URL") from None
    if parts.scheme != "http" or not host:
        raise BadProxy(
            f"{where} names a proxy of scheme {parts.scheme!r}, and only plain HTTP proxies are supported"
        )
    authorization = ""
    if parts.username is not None:
        pair = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
        authorization = "Basic " + encode_base64(pair)
    return Proxy(host, port, authorization)


def bypasses_proxy(host: str, port: int, no_proxy: str) -> bool:
    """Whether Go would reach `host` without the environment's proxy.

    Entries of NO_PROXY: `*`, an address, a range (CIDR), `name` (it and what is below it), `.name` (below it only),
    each with `:port` where only that port is meant.
    """
    host = host.lower().rstrip(".")
    try:
        address = ip_address(host)
    except ValueError:
        address = None
    if host == "localhost" or (address is not None and address.is_loopback):
        return True
    for entry in no_proxy.lower().split(","):
        pattern, wanted_port = _split_port(entry.strip())
        if not pattern:
            continue
        if pattern == "*":
            return True
        if wanted_port and wanted_port != str(port):
            continue
        if address is not None and _matches_address(pattern, str(address)):
            return True
        if address is None and _matches_name(pattern, host):
            return True
    return False


def _split_port(entry: str) -> tuple[str, str]:
    if entry.startswith("["):
        address, _, rest = entry[1:].partition("]")
        return address, rest.removeprefix(":")
    if entry.count(":") == 1:
        pattern, _, port = entry.partition(":")
        return pattern, port
    return entry, ""


def _matches_address(pattern: str, address: str) -> bool:
    try:
        return ip_address(address) in ip_network(pattern, strict=False)
    except ValueError:
        return False


def _matches_name(pattern: str, host: str) -> bool:
    bare = pattern.removeprefix("*").rstrip(".")
    if bare.startswith("."):
        return host.endswith(bare)
    return host == bare or host.endswith(f".{bare}")
