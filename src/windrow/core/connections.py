"""Which connections a server keeps: bounds in all and for each address, so that idle ones lock no client out.

A connection is idle until its first request is complete and between two requests. Where there is no room for a new
one, the connection that has been idle longest is closed: of the same address where that address is at its bound, else
of the address that has most. Loopback has no bound of its own, and a reserve: an administrator on the machine gets in
also while others hold all the rest with requests under way.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from ipaddress import ip_address, ip_network

MAX_CONNECTIONS = 1000


def most_connections() -> int:
    """How many connections a server accepts: half of the files that the process may open is for what it does itself, such as
    connections to guests and Harvesters, plugins and databases."""
    try:
        import resource
    except ImportError:  # Windows
        return MAX_CONNECTIONS
    soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return MAX_CONNECTIONS if soft == resource.RLIM_INFINITY else min(MAX_CONNECTIONS, soft // 2)


class Connection:
    """One connection; `close` ends it, and is called once it has been removed."""

    __slots__ = ("busy", "close", "source", "used")

    def __init__(self, source: str, close: Callable[[], object]) -> None:
        self.source = source
        self.close = close
        self.busy = False
        self.used = False  # a request has begun


class ConnectionLimits:
    """The open connections, the longest idle first. By default they are `most_connections()`, of which one address may
    have a quarter, and a twentieth is in reserve."""

    def __init__(
        self, total: int | None = None, per_address: int | None = None, reserve: int | None = None
    ) -> None:
        self._total = most_connections() if total is None else total
        self._per_address = max(self._total // 4, 1) if per_address is None else per_address
        self._reserve = self._total // 20 if reserve is None else reserve
        self._open: dict[Connection, None] = {}
        self._counts: Counter[str] = Counter()

    def __len__(self) -> int:
        return len(self._open)

    def admit(self, address: str, close: Callable[[], object]) -> Connection | None:
        """A connection from this address, after another was closed where that was needed; None: no room for it."""
        source, is_local = _source_of(address)
        if not is_local and self._counts[source] >= self._per_address:
            has_room = self._close_idle(source)
        elif len(self._open) >= self._total - (0 if is_local else self._reserve):
            has_room = self.close_idle()
        else:
            has_room = True
        if not has_room:
            return None
        made = Connection(source, close)
        self._open[made] = None
        self._counts[source] += 1
        return made

    def set_busy(self, connection: Connection, busy: bool) -> None:
        """A request begins, or has ended."""
        connection.busy = busy
        if connection in self._open:
            del self._open[connection]
            self._open[connection] = None

    def remove(self, connection: Connection) -> None:
        """The connection has ended. May be repeated."""
        if self._open.pop(connection, self) is None:
            self._counts[connection.source] -= 1

    def close_idle(self) -> bool:
        """Close one idle connection of the address that has most connections; False when all are busy."""
        idle = {one.source for one in self._open if not one.busy}
        return bool(idle) and self._close_idle(max(idle, key=lambda source: self._counts[source]))

    def _close_idle(self, source: str) -> bool:
        for one in self._open:
            if one.source == source and not one.busy:
                self.remove(one)
                one.close()
                return True
        return False


def _source_of(address: str) -> tuple[str, bool]:
    """What is counted as one address, and whether it is of this machine; of IPv6 a /64, which one host may have."""
    try:
        found = ip_address(address.partition("%")[0])
    except ValueError:
        return address, False
    found = getattr(found, "ipv4_mapped", None) or found
    if found.version == 6 and not found.is_loopback:
        return str(ip_network(f"{found}/64", strict=False)), False
    return str(found), found.is_loopback
