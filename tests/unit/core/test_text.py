import pytest
from hypothesis import given
from hypothesis import strategies as st

from windrow.core.text import collapse_whitespace, decode_base64, encode_base64, join_some, one_line


def test_lines_become_one_and_spaces_stay():
    assert one_line(" several \r\n\t lines,\n\nand  two spaces ") == "several lines, and  two spaces"


def test_of_many_texts_the_first_are_named_and_the_others_counted():
    assert join_some(["a", "b", "c"]) == "a, b, c"
    assert join_some(["a", "b", "c", "d"]) == "a, b, c and 1 more"
    assert join_some(["a", "b"], 1) == "a and 1 more"
    assert join_some(["a", "b", "c"], 2, "; ") == "a; b; and 1 more"
    assert join_some([1, 2], 2, "; ") == "1; 2"
    assert join_some([]) == ""


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


def test_the_message_of_a_parser_becomes_a_sentence():
    assert (
        collapse_whitespace(ValueError("could not parse\n  at line 3,\tcolumn 4\n"))
        == "could not parse at line 3, column 4"
    )


@given(st.text())
def test_base64_is_read_back_also_where_it_is_wrapped(text: str):
    encoded = encode_base64(text)
    assert decode_base64("\n".join(encoded[start : start + 4] for start in range(0, len(encoded), 4))) == text


@pytest.mark.parametrize("encoded", ["a", "YQ", "Y Q = = b", "YQ==!", "é", "/w=="])
def test_what_is_no_base64_of_a_text_is_refused(encoded: str):
    with pytest.raises(ValueError):
        decode_base64(encoded)


def test_bytes_that_are_no_text_are_replaced_on_request():
    assert decode_base64("YWL/", "replace") == "ab\ufffd"
