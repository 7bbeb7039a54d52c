from dataclasses import dataclass

import pytest

from windrow.plugin.watchdog import GRACE_S, Watchdog


@dataclass
class Watch:
    """A clock that a test advances, so nothing here waits."""

    now: float = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def watch() -> Watch:
    return Watch()


@pytest.fixture
def lifetime(watch: Watch) -> Watchdog:
    return Watchdog(watch, 0.0, 10.0)


def test_a_host_that_is_done_is_left_well(lifetime: Watchdog):
    lifetime.connected()
    lifetime.call_started()
    lifetime.stop()

    assert lifetime.wait() == 0


def test_a_host_that_never_came_is_not_waited_for(lifetime: Watchdog, watch: Watch):
    watch.now = 10.0

    assert lifetime.wait() == 1


def test_the_silence_counts_from_the_last_heartbeat(lifetime: Watchdog, watch: Watch):
    lifetime.connected()
    watch.now = 9.0
    lifetime.heartbeat()
    watch.now = 18.9
    lifetime.heartbeat()
    watch.now = 28.95

    assert lifetime.wait() == 1


@pytest.mark.parametrize(("calls", "code"), [(0, 0), (1, 1)])
def test_after_the_last_connection_nothing_is_left_to_do(
    lifetime: Watchdog, watch: Watch, calls: int, code: int
):
    lifetime.connected()
    lifetime.connected()
    for _ in range(calls):
        lifetime.call_started()
    lifetime.disconnected()
    lifetime.disconnected()
    watch.now = GRACE_S

    assert lifetime.wait() == code


def test_a_host_that_dials_again_is_served_on(lifetime: Watchdog, watch: Watch):
    lifetime.connected()
    lifetime.disconnected()
    lifetime.connected()
    lifetime.call_started()
    lifetime.call_ended()
    watch.now = 10.0

    assert lifetime.wait() == 1  # of silence, ten seconds later
