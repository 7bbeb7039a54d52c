"""The certificates of the management API: its CA is used only while clients accept it, what it signs is renewed."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from windrow.app.state.pki import CA_LIFETIME_DAYS, BadCa, RenewingIdentity, load_or_create_ca
from windrow.core.pki import read_certificate, verify_server

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)


class ClockAt:
    def __init__(self, days: float) -> None:
        self.set(days)

    def set(self, days: float) -> None:
        self._now = NOW + timedelta(days=days)

    def now(self) -> datetime:
        return self._now

    def monotonic(self) -> timedelta:
        return timedelta()

    async def sleep_until(self, instant: datetime) -> None:
        raise AssertionError("no certificate waits")


@pytest.mark.parametrize("days", [-300, 0, 1, CA_LIFETIME_DAYS - 1])
def test_a_ca_is_used_again_as_long_as_it_is_valid(days: float, tmp_path: Path) -> None:
    path = tmp_path / "ca.json"
    made = load_or_create_ca(path, "windrow", ClockAt(0))

    assert load_or_create_ca(path, "windrow", ClockAt(days)) == made


@pytest.mark.parametrize("days", [-4000, -400, CA_LIFETIME_DAYS + 1])
def test_a_ca_made_with_a_wrong_clock_is_refused_with_its_dates_and_the_cure(
    days: float, tmp_path: Path
) -> None:
    path = tmp_path / "ca.json"
    load_or_create_ca(path, "windrow", ClockAt(0))

    with pytest.raises(BadCa, match="and the clock of this machine says 20") as refused:
        load_or_create_ca(path, "windrow", ClockAt(days))

    assert "remove the file" in refused.value.hint
    path.unlink()
    load_or_create_ca(path, "windrow", ClockAt(days))


class Served:
    """The identity of a server that runs, and how often its kubeconfig was written."""

    def __init__(self, folder: Path) -> None:
        self.clock = ClockAt(0)
        self.ca = load_or_create_ca(folder / "ca.json", "windrow", self.clock)
        self.written, self.is_full = 0, False
        names = (("localhost",), ("127.0.0.1",))
        self.identity = RenewingIdentity(self.ca, folder / "ca.json", self.clock, names, self._write)

    def _write(self) -> None:
        if self.is_full:
            raise OSError("No space left on device")
        self.written += 1

    def chain_at(self, days: float) -> str:
        """The certificate of a connection made then."""
        self.clock.set(days)
        return self.identity.current().chain


@pytest.mark.parametrize("days", [336, 365, 400, 2000])
def test_a_server_that_runs_for_a_year_or_whose_clock_is_set_forward_shows_a_valid_certificate(
    days: float, tmp_path: Path
) -> None:
    served = Served(tmp_path)
    first = served.chain_at(0)
    assert served.chain_at(334) == first

    renewed = served.chain_at(days)

    assert verify_server(renewed, served.ca.certificate, "localhost", served.clock.now()) is None
    assert read_certificate(renewed).not_after == served.clock.now() + timedelta(days=365)
    assert (served.chain_at(days), served.written) == (renewed, 1)
    # Also after the clock is right again.
    assert served.chain_at(1) == renewed
    assert verify_server(renewed, served.ca.certificate, "localhost", served.clock.now()) is None


def test_a_kubeconfig_that_cannot_be_written_is_written_at_a_later_connection(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    served = Served(tmp_path)
    served.is_full = True
    renewed = served.chain_at(340)
    assert [served.chain_at(340) for _ in range(3)] == [renewed] * 3
    assert [record.getMessage() for record in caplog.records] == [
        "the certificates are renewed, but not the kubeconfig: No space left on device; it is tried again"
    ]
    served.is_full = False
    assert (served.chain_at(340), served.chain_at(340), served.written) == (renewed, renewed, 1)


def test_the_end_of_a_ca_is_told_a_year_and_a_month_before_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    served = Served(tmp_path)
    end = CA_LIFETIME_DAYS
    told = []
    for days in (end - 366, end - 364, end - 200, end - 29, end - 1, end + 1, end + 2):
        chain = served.chain_at(days)
        told.append(len(caplog.records))
    assert told == [0, 1, 1, 2, 2, 3, 3]
    assert read_certificate(chain).not_after == read_certificate(served.ca.certificate).not_after
    assert served.chain_at(end + 3) == chain  # another one would end as soon
    texts = [record.getMessage() for record in caplog.records]
    assert f"the CA in {tmp_path / 'ca.json'} ends at 2035-12-30T12:00:00Z" in texts[0]
    assert "has ended at" in texts[-1]
    assert "remove the file and start" in texts[-1]
