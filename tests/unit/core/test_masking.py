"""Texts without the secrets that are known: every form in which a secret may stand, to its last letter."""

from __future__ import annotations

import json
from base64 import b64encode, urlsafe_b64encode

import pytest

from windrow.core.formats.masking import PIECE, Pieces, SecretMask, ValueMask

SECRET = "pä/s?>w\x07rd7"


def base64_of(text: str) -> str:
    return b64encode(text.encode()).decode()


@pytest.mark.parametrize(
    "form",
    [
        SECRET,
        json.dumps(SECRET)[1:-1],
        json.dumps(SECRET, ensure_ascii=False)[1:-1],
        json.dumps(SECRET, ensure_ascii=False)[1:-1].replace("/", "\\/"),
        repr(SECRET)[1:-1],
        base64_of(SECRET),
        urlsafe_b64encode(SECRET.encode()).decode(),
    ],
)
def test_nothing_is_left_of_a_secret_in_any_of_its_forms(form: str) -> None:
    assert ValueMask([SECRET], "***").mask(f"before {form} after") == "before *** after"


@pytest.mark.parametrize("secret", ["0123456789", "0123456789a", "0123456789ab"])
def test_a_secret_that_is_encoded_alone_goes_with_its_padding(secret: str) -> None:
    assert ValueMask([secret], "*").mask(f"-{base64_of(secret)}-") == "-*-"


@pytest.mark.parametrize("secret", ["0123456789", "0123456789a", "0123456789ab"])
@pytest.mark.parametrize("before", ["", "u", "us", "user:"])
def test_what_stands_beside_a_secret_in_base64_changes_only_the_letters_that_both_share(
    secret: str, before: str
) -> None:
    text = base64_of(f"{before}{secret}~~~~")

    masked = ValueMask([secret], "*").mask(text)

    assert masked.count("*") == 1
    assert len(masked) - 1 <= len(text) - 4 * ((len(secret) - 2) // 3)


def test_pieces_of_one_letter_are_found_where_a_text_begins_and_ends() -> None:
    assert Pieces({"x"}, "*").mask("x-x") == "*-*"
    assert Pieces({"x"}, "*").mask("xx") == "*"
    assert SecretMask(["x"]).mask("x") == "***"


def test_a_long_secret_is_found_whole_also_where_another_one_begins_alike() -> None:
    long, other = "a" * PIECE + "b" * 10, "a" * PIECE + "c" * 10

    assert ValueMask([long, other], "*").mask(f"-{long}-{other}-") == "-*-*-"


def test_what_is_no_secret_stays_with_its_white_space() -> None:
    text = "one  two\n\tthree\\n"
    assert ValueMask(["0123456789"], "*").mask(text) == text
    assert ValueMask(["0123456789"], "*").mask(f"{text}0123\n456789{text}") == f"{text}*{text}"
    assert ValueMask(["short"], "*").mask("short") == "short"
