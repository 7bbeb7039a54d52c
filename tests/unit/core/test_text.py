from hypothesis import given
from hypothesis import strategies as st

from windrow.core.text import one_line


def test_lines_become_one_and_spaces_stay():
    assert one_line(" several \r\n\t lines,\n\nand  two spaces ") == "several lines, and  two spaces"


def test_a_long_text_is_cut_with_a_sign():
    assert one_line("abcdef", 4) == "abc…"
    assert one_line("abcd", 4) == "abcd"


@given(st.text(st.characters()), st.integers(1, 20))
def test_any_text_becomes_one_printable_line_that_is_short_enough(text: str, most: int):
    shown = one_line(text, most)
    assert shown.isprintable()
    assert len(shown) <= most


@given(st.text(st.characters()))
def test_a_line_stays_as_it_is(text: str):
    assert one_line(one_line(text)) == one_line(text)
