from __future__ import annotations

import asyncio
import signal

import pytest

from windrow.app.loop import run_service


@pytest.mark.parametrize("ending", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_a_service_cleans_up_when_it_is_told_to_end(ending: signal.Signals):
    cleaned = []

    async def serve() -> None:
        try:
            signal.raise_signal(ending)
            await asyncio.Event().wait()
        finally:
            cleaned.append(ending)

    with pytest.raises(KeyboardInterrupt):
        run_service(serve())

    assert cleaned == [ending]
