from __future__ import annotations

import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st

from windrow.nodedriver.options import decode_if_base64


@pytest.mark.parametrize(
    "text", ["null", "true", "none", "#cloud-config\n", "apiVersion: v1", "YWJj=", "YWJ", "", "a b", "äöü"]
)
def test_text_that_only_looks_encoded_stays_as_it_is(text: str) -> None:
    assert decode_if_base64(text) == text


@pytest.mark.parametrize("bytes_", [b"\x00\x01\x02", b"\x7fELF\x02\x01", b"a\x1b[0m", b"\xff\xfe\xfd"])
def test_what_is_no_text_when_decoded_stays_as_it_is(bytes_: bytes) -> None:
    packed = base64.b64encode(bytes_).decode()
    assert decode_if_base64(packed) == packed


def test_line_ends_inside_base64_are_ignored_as_in_go() -> None:
    assert decode_if_base64("I2Nsb3Vk\r\nLWNvbmZp\nZwo=\n") == "#cloud-config\n"


@given(st.text(st.characters(exclude_categories=("C", "Z")) | st.sampled_from(" \n\t"), min_size=1))
def test_encoded_text_is_always_understood(text: str) -> None:
    assert decode_if_base64(base64.b64encode(text.encode()).decode()) == text
