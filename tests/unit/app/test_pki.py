"""The CA of the management API is used only while clients accept it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from windrow.app.state.pki import CA_LIFETIME_DAYS, BadCa, load_or_create_ca

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)


class ClockAt:
    def __init__(self, days: float) -> None:
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
