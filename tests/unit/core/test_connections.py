"""ConnectionLimits: who gets in, and who gives way."""

from __future__ import annotations

import resource

import pytest

from windrow.core.connections import MAX_CONNECTIONS, Connection, ConnectionLimits, most_connections

LOCAL = "127.0.0.1"


class Site:
    """Limits whose connections are named, and the names of those that were closed."""

    def __init__(self, **limits: int) -> None:
        self.limits = ConnectionLimits(**limits)
        self.closed: list[str] = []

    def open(self, name: str, address: str, *, busy: bool = False) -> Connection | None:
        made = self.limits.admit(address, lambda: self.closed.append(name))
        if made is not None and busy:
            self.limits.set_busy(made, True)
        return made


def test_an_address_at_its_bound_closes_its_own_longest_idle_connection() -> None:
    site = Site(total=10, per_address=2, reserve=1)
    site.open("other", "10.0.0.2")
    first = site.open("first", "10.0.0.1")
    site.open("second", "10.0.0.1")
    assert first is not None
    site.limits.set_busy(first, True)
    site.limits.set_busy(first, False)

    assert site.open("third", "10.0.0.1") is not None
    assert site.closed == ["second"]
    assert len(site.limits) == 3


def test_without_room_the_address_that_has_most_gives_way() -> None:
    site = Site(total=5, per_address=5, reserve=1)
    site.open("one", "10.0.0.1")
    for number in range(3):
        site.open(f"many-{number}", "10.0.0.2")

    assert site.open("new", "10.0.0.3") is not None
    assert site.closed == ["many-0"]


def test_connections_with_a_request_under_way_stay_and_the_reserve_is_for_this_machine() -> None:
    site = Site(total=4, per_address=4, reserve=1)
    for number in range(3):
        site.open(str(number), "10.0.0.1", busy=True)

    assert site.open("other", "10.0.0.2") is None
    assert site.open("admin", LOCAL, busy=True) is not None
    assert site.open("admin", LOCAL) is None
    assert site.closed == []


def test_an_ended_connection_makes_room_also_when_told_twice() -> None:
    site = Site(total=3, per_address=1, reserve=0)
    first = site.open("first", "10.0.0.1", busy=True)
    assert first is not None
    assert site.open("second", "10.0.0.1") is None

    site.limits.remove(first)
    site.limits.remove(first)

    assert site.open("second", "10.0.0.1", busy=True) is not None
    assert site.open("third", "10.0.0.1") is None


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("10.0.0.1", "10.0.0.2", False),
        ("10.0.0.1", "::ffff:10.0.0.1", True),
        ("fd00::1", "fd00::2", True),
        ("fe80::1%eth0", "fe80::2%eth0", True),
        ("fd00:0:0:1::1", "fd00:0:0:2::1", False),
        ("", "", True),
    ],
)
def test_what_counts_as_one_address(one: str, other: str, same: bool) -> None:
    site = Site(total=10, per_address=1, reserve=0)
    site.open("one", one, busy=True)

    assert (site.open("other", other) is None) == same


def test_loopback_has_no_bound_of_its_own() -> None:
    site = Site(total=10, per_address=1, reserve=0)

    assert all(
        site.open("local", address, busy=True) for address in (LOCAL, LOCAL, "::1", "::1", "127.0.0.9")
    )


@pytest.mark.parametrize(
    ("files", "connections"),
    [(1024, 512), (65_536, MAX_CONNECTIONS), (resource.RLIM_INFINITY, MAX_CONNECTIONS)],
)
def test_connections_leave_half_of_the_files_to_the_process_itself(
    files: int, connections: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (files, resource.RLIM_INFINITY))

    assert most_connections() == connections


def test_one_address_may_have_a_quarter_and_a_twentieth_is_for_this_machine() -> None:
    site = Site(total=200)
    admitted = [site.open("one", f"10.0.0.{number // 60}", busy=True) is not None for number in range(4 * 60)]

    assert [sum(admitted[start : start + 60]) for start in range(0, 240, 60)] == [50, 50, 50, 40]
    assert len(site.limits) == 190
    assert site.open("admin", LOCAL) is not None
