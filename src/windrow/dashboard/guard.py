"""What is refused before a page is made: requests for another host, writes from another site, writes without the form's token.

A cookie on loopback is shared by all ports of the computer, and a name of an attacker's may lead to 127.0.0.1. So a request names
one of our own hosts, and a write names us as its origin and holds what only a page of the same session knows.
"""

from __future__ import annotations

import hmac
from collections.abc import Collection, Mapping
from urllib.parse import urlsplit

from windrow.dashboard.messages import PageRequest
from windrow.dashboard.sessions import Session

CSRF_FIELD = "csrf"
SESSION_COOKIE = "windrow-session"
MAX_NEXT_LENGTH = 400

# Scripts, styles and pictures come from this site only, none from within a page; no other site may frame a page.
SECURITY_HEADERS: Mapping[str, str] = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
        "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    # Without any, browsers leave out the Origin of forms too.
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
}


def is_own_host(request: PageRequest, names: Collection[str]) -> bool:
    """Whether the Host of the request is one of `names`, on whatever port: it may have come through a forwarded one."""
    try:
        host = urlsplit(f"//{request.headers.get('host', '')}").hostname
    except ValueError:
        return False
    return host is not None and host in names


def is_own_origin(request: PageRequest) -> bool:
    """Whether a page of this very site sent the request, as far as the browser says."""
    if request.headers.get("sec-fetch-site", "same-origin") != "same-origin":
        return False
    origin = request.headers.get("origin", "")
    scheme = "https" if request.secure else "http"
    return origin == f"{scheme}://{request.headers.get('host', '')}"


def is_opened_by_hand(request: PageRequest) -> bool:
    """Whether a person opened the address, typed or from another program: no other page, and no browser ahead of them."""
    ahead = request.headers.get("sec-purpose") or request.headers.get("purpose")
    return request.headers.get("sec-fetch-site", "") in ("none", "same-origin") and not ahead


def has_token(request: PageRequest, session: Session) -> bool:
    """Whether a form of this session sent the request."""
    given = request.form.get(CSRF_FIELD) or request.headers.get("x-csrf-token", "")
    return hmac.compare_digest(given.encode(errors="surrogatepass"), session.csrf.encode())


def session_cookie(value: str, *, secure: bool, max_age_s: int | None = None) -> str:
    """The Set-Cookie header. Without `max_age_s` the browser forgets it when it is closed."""
    parts = [f"{cookie_name(secure)}={value}", "Path=/", "HttpOnly", "SameSite=Strict"]
    parts += ["Secure"] if secure else []
    parts += [f"Max-Age={max_age_s}"] if max_age_s is not None else []
    return "; ".join(parts)


def cookie_name(secure: bool) -> str:
    """Over TLS, a name that browsers accept from this host only."""
    return f"__Host-{SESSION_COOKIE}" if secure else SESSION_COOKIE


def local_path(text: str) -> str:
    """`text` where it is a path of this site, else the first page: the way after signing in leads to no other site."""
    is_path = text.startswith("/") and not text.startswith("//") and text.isprintable() and text.isascii()
    return text if is_path and "\\" not in text and len(text) <= MAX_NEXT_LENGTH else "/"
