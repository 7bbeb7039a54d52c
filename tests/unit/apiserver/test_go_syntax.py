"""The words of Go's encoding/json, as webhooks repeat them."""

from __future__ import annotations

import pytest

from windrow.apiserver.types.go_syntax import syntax_error


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "unexpected end of JSON input"),
        ("[{", "unexpected end of JSON input"),
        ('{"a', "unexpected end of JSON input"),
        ("x", "invalid character 'x' looking for beginning of value"),
        ("[1 2]", "invalid character '2' after array element"),
        ('{"a" 1}', "invalid character '1' after object key"),
        ('{"a":1 "b"}', "invalid character '\"' after object key:value pair"),
        ("{a}", "invalid character 'a' looking for beginning of object key string"),
        ("[1,]", "invalid character ']' looking for beginning of value"),
        ("[] []", "invalid character '[' after top-level value"),
        ("nul!", "invalid character '!' in literal null (expecting 'l')"),
        ("'a'", "invalid character '\\'' looking for beginning of value"),
        ('"\\x"', "invalid character 'x' in string escape code"),
        ("[" * 100_000, "exceeded max depth"),
    ],
)
def test_a_text_that_is_no_json_is_told_as_go_tells_it(text: str, words: str) -> None:
    assert syntax_error(text) == words
