"""Who is signed in: sessions and the codes of one-time links, in memory. A restart signs everybody out.

Both are bounded in number and time. Times are those of the monotonic clock, so that a wall clock which is set ends no session and
prolongs none. Cookies and codes are kept as digests only: what is read out of this process opens nothing.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from dataclasses import dataclass, field
from datetime import timedelta

from windrow.app.access.management import ApiUser
from windrow.core.clock import Clock
from windrow.core.rng import Rng

CODE_LIFETIME = timedelta(seconds=60)
SESSION_LIFETIME = timedelta(hours=8)
SESSION_IDLE = timedelta(hours=1)
MAX_CODES, MAX_CODES_PER_USER = 200, 5
MAX_SESSIONS, MAX_SESSIONS_PER_USER = 500, 20
SECRET_BITS = 256
# Of wrong tries to sign in from one address: so many at once, then one in so much time.
MAX_WRONG_TRIES = 10
WRONG_TRY_EVERY = timedelta(seconds=6)
MAX_ADDRESSES = 1000


@dataclass(frozen=True, slots=True)
class Session:
    """A user who has signed in. `namespace` is where they began, "" for all; `csrf` stands in each form of theirs."""

    user: ApiUser
    namespace: str
    key: str = field(repr=False)  # the digest of its cookie
    csrf: str = field(repr=False)
    ends: timedelta = timedelta()


@dataclass(frozen=True, slots=True)
class _Code:
    user: ApiUser
    namespace: str
    ends: timedelta


def _digest(secret: str) -> str:
    return hashlib.sha256(secret.encode(errors="surrogatepass")).hexdigest()


class SignInCodes:
    """Codes that sign one user in once, within CODE_LIFETIME. Of more than a user may have, the oldest goes."""

    def __init__(self, clock: Clock, rng: Rng) -> None:
        self._clock, self._rng = clock, rng
        self._codes: OrderedDict[str, _Code] = OrderedDict()

    def issue(self, user: ApiUser, namespace: str) -> str:
        """A new code."""
        self._expire()
        mine = [key for key, code in self._codes.items() if code.user.name == user.name]
        for key in mine[: max(len(mine) - MAX_CODES_PER_USER + 1, 0)]:
            del self._codes[key]
        while len(self._codes) >= MAX_CODES:
            self._codes.popitem(last=False)
        code = f"{self._rng.bits(SECRET_BITS):064x}"
        self._codes[_digest(code)] = _Code(user, namespace, self._clock.monotonic() + CODE_LIFETIME)
        return code

    def redeem(self, code: str) -> tuple[ApiUser, str] | None:
        """User and namespace of a code that is valid; it is not any more."""
        self._expire()
        found = self._codes.pop(_digest(code), None)
        return (found.user, found.namespace) if found is not None else None

    def _expire(self) -> None:
        now = self._clock.monotonic()
        while self._codes and next(iter(self._codes.values())).ends <= now:
            self._codes.popitem(last=False)


class Sessions:
    """The sessions that are open, the longest unused first."""

    def __init__(self, clock: Clock, rng: Rng) -> None:
        self._clock, self._rng = clock, rng
        self._sessions: OrderedDict[str, Session] = OrderedDict()
        self._used: dict[str, timedelta] = {}

    def __len__(self) -> int:
        return len(self._sessions)

    def open(self, user: ApiUser, namespace: str) -> str:
        """The cookie of a new session; where there are too many, the longest unused of the user, or of all, ends."""
        mine = [key for key, one in self._sessions.items() if one.user.name == user.name]
        for key in mine[: max(len(mine) - MAX_SESSIONS_PER_USER + 1, 0)]:
            self.close(key)
        while len(self._sessions) >= MAX_SESSIONS:
            self.close(next(iter(self._sessions)))
        cookie = f"{self._rng.bits(SECRET_BITS):064x}"
        now, key = self._clock.monotonic(), _digest(cookie)
        csrf = f"{self._rng.bits(SECRET_BITS):064x}"
        self._sessions[key] = Session(user, namespace, key, csrf, now + SESSION_LIFETIME)
        self._used[key] = now
        return cookie

    def find(self, cookie: str) -> Session | None:
        """The session of a cookie, which counts as used; None where there is none, or no longer."""
        key = _digest(cookie)
        session = self._sessions.get(key)
        if session is None:
            return None
        if not self.is_open(session):
            self.close(key)
            return None
        self._used[key] = self._clock.monotonic()
        self._sessions.move_to_end(key)
        return session

    def is_open(self, session: Session) -> bool:
        """Whether the session has neither ended nor been unused for too long. Asking does not use it."""
        used = self._used.get(session.key)
        now = self._clock.monotonic()
        return used is not None and now < session.ends and now - used < SESSION_IDLE

    def close(self, key: str) -> None:
        """End a session. May be repeated."""
        self._sessions.pop(key, None)
        self._used.pop(key, None)


class WrongTries:
    """How often an address may be wrong at signing in. Who has a valid code gets in however often others were."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        # Of each address the time at which all its tries are forgotten.
        self._until: OrderedDict[str, timedelta] = OrderedDict()

    def record(self, address: str) -> None:
        """One more wrong try."""
        now = self._clock.monotonic()
        self._until[address] = max(self._until.pop(address, now), now) + WRONG_TRY_EVERY
        while len(self._until) > MAX_ADDRESSES:
            self._until.popitem(last=False)

    def wait_for(self, address: str) -> timedelta:
        """For how long the address has to wait before its next try; zero where it need not."""
        ahead = self._until.get(address, timedelta()) - self._clock.monotonic()
        return max(ahead - (MAX_WRONG_TRIES - 1) * WRONG_TRY_EVERY, timedelta())
