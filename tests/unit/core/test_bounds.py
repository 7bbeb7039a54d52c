from __future__ import annotations

import pytest

from windrow.core.formats.bounds import abbreviate
from windrow.core.formats.duration import NotDuration, parse_duration
from windrow.core.formats.quantity import NotQuantity, Quantity
from windrow.core.formats.version import NotVersion, Version

DIGITS = "1" * 5000


@pytest.mark.parametrize(
    ("parse", "text", "error"),
    [
        (parse_duration, f"{DIGITS}s", NotDuration),
        (Quantity.parse, DIGITS, NotQuantity),
        (Quantity.parse, 10**4400, NotQuantity),
        (Version.parse, f"v1.2.{DIGITS}", NotVersion),
        (Version.parse, f"v1.2.3-rc{DIGITS}", NotVersion),
    ],
    ids=range(5),
)
def test_a_long_text_is_refused_in_a_short_sentence_by_the_error_of_its_form(parse, text, error):
    with pytest.raises(error, match="64 characters at most") as caught:
        parse(text)
    assert len(str(caught.value)) < 250


def test_a_value_is_shown_whole_only_where_it_is_short():
    assert abbreviate("5m") == "'5m'"
    assert abbreviate("1" * 100) == "'1111111111111111'… (100 characters)"
    assert abbreviate(10**4400) == "a number of 14617 bits"
