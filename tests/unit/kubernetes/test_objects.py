"""Names that DNS takes."""

from __future__ import annotations

import pytest

from windrow.kubernetes.objects import is_dns_label


@pytest.mark.parametrize("text", ["a", "7", "web-1", "a--b", "a" * 63])
def test_small_letters_digits_and_inner_dashes_are_a_label(text: str) -> None:
    assert is_dns_label(text)


@pytest.mark.parametrize("text", ["", "-a", "a-", "A", "a.b", "a_b", "ä", "a\n", "a" * 64])
def test_anything_else_is_no_label(text: str) -> None:
    assert not is_dns_label(text)


def test_the_length_of_a_label_may_be_unlimited() -> None:
    assert is_dns_label("a" * 64, max_length=None)
