"""When a credential expires, and when to warn of it.

A client certificate has a date, and so have tokens that are JWTs. Rancher's tokens and legacy service account tokens have
none. Tokens in files and from exec plugins are renewed by others, so there is no warning about them.

| Left                                          | Warning     |
|-----------------------------------------------|-------------|
| more than a week, or than a third of its life | none        |
| more than a day                               | once a day  |
| less, or none                                 | once an hour |
"""

from __future__ import annotations

import base64
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from windrow.core import pki
from windrow.core.clock import format_time
from windrow.core.formats.json import loads
from windrow.kubernetes.kubeconfig import ClientConfig

FIRST_WARNING = timedelta(days=7)
# An earlier date is a mistake, and arithmetic with the first year of the calendar overflows.
MIN_EXPIRY = datetime(1970, 1, 1, tzinfo=UTC)
DAY, HOUR = timedelta(days=1), timedelta(hours=1)


@dataclass(frozen=True, slots=True)
class Expiry:
    """When a credential expires, and when it was issued (None where it does not say)."""

    expires_at: datetime
    issued_at: datetime | None = None

    @property
    def warns_from(self) -> datetime:
        """The instant of the first warning."""
        if self.issued_at is None:
            return self.expires_at - FIRST_WARNING
        return self.expires_at - min(FIRST_WARNING, (self.expires_at - self.issued_at) / 3)

    def next_warning(self, last: datetime | None) -> datetime:
        """When to warn, after a warning at `last`."""
        if last is None:
            return self.warns_from
        return last + (DAY if self.expires_at - last > DAY else HOUR)


def find_expiry(config: ClientConfig) -> Expiry | None:
    """When the credential expires, or None when it does not say or renews itself. The first of several counts."""
    if config.exec or config.token_file:
        return None
    dates = (_certificate_expiry(config.certificate), _token_expiry(config.token))
    found = [one for one in dates if one is not None and one.expires_at >= MIN_EXPIRY]
    return min(found, key=lambda one: one.expires_at, default=None)


def render_warning(config: ClientConfig, expiry: Expiry, now: datetime) -> str:
    """The warning: what expires when, and what to do."""
    left = expiry.expires_at - now
    when = (
        f"expired at {format_time(expiry.expires_at)}"
        if left <= timedelta(0)
        else f"expires at {format_time(expiry.expires_at)}, in {_format_left(left)}"
    )
    return (
        f"{config.credential} for {config.server} {when}; put a new kubeconfig in its place: "
        "it is reloaded within seconds, without a restart"
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
    """The claims of a JWT, whose signature is not checked."""
    parts = token.split(".")
    if len(parts) != 3:
        return None
    try:
        claims = loads(base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4)))
        ends = datetime.fromtimestamp(claims["exp"], UTC)
        began = datetime.fromtimestamp(claims["iat"], UTC) if "iat" in claims else None
    except (LookupError, TypeError, ValueError, OverflowError, OSError):
        return None
    return Expiry(ends, began)


def _format_left(left: timedelta) -> str:
    if left >= 2 * DAY:
        return f"{left // DAY} days"
    if left >= 2 * HOUR:
        return f"{left // HOUR} hours"
    return f"{max(left // timedelta(minutes=1), 1)} minutes"
