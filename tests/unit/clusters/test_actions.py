from __future__ import annotations

import pytest

from windrow.clusters.execute.executor import HANDLERS


@pytest.mark.parametrize("kind", HANDLERS)
def test_every_deed_is_told_in_words(kind):
    words = kind.__new__(kind).in_words

    assert " " in words
    assert kind.__name__ not in words
