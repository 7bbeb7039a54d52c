"""When a credential ends, and when to say so.

A client certificate says it itself, and so do tokens that are JWTs. Rancher's tokens and the old tokens of service
accounts do not. Tokens in files and what plugins print are renewed by somebody else, so nobody is warned of them.

| Left                 | Said                       |
|----------------------|----------------------------|
| more than a week, or than a third of its life | nothing |
| more than a day      | once a day                 |
| less, or nothing     | once an hour               |
"""

from __future__ import annotations

import base64
import binascii
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from windrow.core import pki
from windrow.core.clock import format_time
from windrow.core.json import NotJson, loads
from windrow.kubernetes.kubeconfig import ClientConfig

FIRST_WARNING = timedelta(days=7)
# Nobody means an end before this; and an instant at the edge of the calendar cannot be reckoned with.
MIN_EXPIRY = datetime(1970, 1, 1, tzinfo=UTC)
DAY, HOUR = timedelta(days=1), timedelta(hours=1)


@dataclass(frozen=True, slots=True)
class Expiry:
    """When a credential ends, and when it began (None where it does not say)."""

    expires_at: datetime
    issued_at: datetime | None = None

    @property
    def warns_from(self) -> datetime:
        """The instant from which people should know."""
        if self.issued_at is None:
            return self.expires_at - FIRST_WARNING
        return self.expires_at - min(FIRST_WARNING, (self.expires_at - self.issued_at) / 3)

    def next_warning(self, last: datetime | None) -> datetime:
        """When to warn, after a warning at `last`."""
        if last is None:
            return self.warns_from
        return last + (DAY if self.expires_at - last > DAY else HOUR)


def find_expiry(access: ClientConfig) -> Expiry | None:
    """The end of the credential, or None when it says none or renews itself. The first of several counts."""
    if access.exec or access.token_file:
        return None
    said = (_certificate_expiry(access.certificate), _token_expiry(access.token))
    found = [one for one in said if one is not None and one.expires_at >= MIN_EXPIRY]
    return min(found, key=lambda one: one.expires_at, default=None)


def render_warning(access: ClientConfig, expiry: Expiry, now: datetime) -> str:
    """What a person should know and do."""
    left = expiry.expires_at - now
    when = (
        f"ended at {format_time(expiry.expires_at)}"
        if left <= timedelta(0)
        else f"ends at {format_time(expiry.expires_at)}, in {_format_left(left)}"
    )
    return (
        f"{access.credential} for {access.server} {when}; put a new kubeconfig in its place: "
        "it is read within seconds, without a restart"
    )


def _certificate_expiry(pem: str) -> Expiry | None:
    if not pem:
        return None
    try:
        subject = pki.read_certificate(pem)
    except pki.NotCertificate:
        return None
    return Expiry(subject.not_after, subject.not_before)


def _token_expiry(token: str) -> Expiry | None:
    """What the middle part of a JWT says; nobody here checks its signature."""
    parts = token.split(".")
    if len(parts) != 3:
        return None
    try:
        claims = loads(base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4)))
        ends = _parse_seconds(claims["exp"])
        began = _parse_seconds(claims["iat"]) if "iat" in claims else None
    except (
        binascii.Error,
        NotJson,
        UnicodeError,
        LookupError,
        TypeError,
        ValueError,
        OverflowError,
        OSError,
    ):
        return None
    return Expiry(ends, began)


def _parse_seconds(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)


def _format_left(left: timedelta) -> str:
    if left >= 2 * DAY:
        return f"{left // DAY} days"
    if left >= 2 * HOUR:
        return f"{left // HOUR} hours"
    return f"{max(left // timedelta(minutes=1), 1)} minutes"
