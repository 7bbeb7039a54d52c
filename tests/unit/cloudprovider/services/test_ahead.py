"""Answers of our own writes, until the watch brings them."""

from dataclasses import dataclass
from datetime import timedelta

from windrow.cloudprovider.services.ahead import Ahead
from windrow.kubernetes.resources import SERVICE
from windrow.testing.clock import NOON

WEB = SERVICE.ref("web", "default")


@dataclass(frozen=True)
class Thing:
    version: str


class Still:
    instant = NOON

    def now(self):
        return self.instant


ONE, TWO, THREE, OTHER = (Thing(version) for version in ("1", "2", "3", "9"))


def test_an_answer_counts_as_long_as_the_cache_shows_what_it_replaced():
    ahead = Ahead(Still())
    ahead.wrote(WEB, ONE, TWO)
    ahead.wrote(WEB, TWO, THREE)

    assert [ahead.latest(WEB, cached) for cached in (ONE, TWO)] == [THREE, THREE]


def test_what_the_watch_brings_counts_from_then_on():
    ahead = Ahead(Still())
    ahead.wrote(WEB, ONE, TWO)

    assert ahead.latest(WEB, OTHER) == OTHER
    assert ahead.latest(WEB, ONE) == ONE  # and an older list is believed again


def test_a_creation_and_a_deletion_count_as_well():
    ahead = Ahead(Still())
    ahead.wrote(WEB, None, ONE)
    created = ahead.latest(WEB, None)
    ahead.wrote(WEB, ONE, None)

    assert created == ONE
    assert [ahead.latest(WEB, cached) for cached in (None, ONE)] == [None, None]


def test_an_answer_that_no_watch_confirms_is_not_believed_for_ever():
    clock = Still()
    ahead = Ahead(clock)
    ahead.wrote(WEB, None, ONE)
    until = ahead.until(WEB)
    clock.instant = NOON + timedelta(seconds=5)

    assert until == clock.instant
    assert ahead.latest(WEB, None) is None
    assert ahead.until(WEB) is None


def test_a_write_that_changed_nothing_is_no_news():
    ahead = Ahead(Still())
    ahead.wrote(WEB, ONE, ONE)

    assert ahead.until(WEB) is None
