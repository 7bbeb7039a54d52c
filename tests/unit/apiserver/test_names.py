"""What is said of names, keys and labels that are none."""

from __future__ import annotations

import pytest

from windrow.apiserver.types.registry import key_errors


@pytest.mark.parametrize(
    ("key", "begins"),
    [
        ("example.com/a", []),
        ("a/-b", ["name part must consist of"]),
        ("A/b", ["prefix part a lowercase RFC 1123 subdomain must"]),
        ("a/b/c", ["a qualified name must consist of"]),
    ],
)
def test_each_part_of_a_key_is_told_unless_it_has_more_than_two(key: str, begins: list[str]) -> None:
    faults = key_errors(key)
    assert len(faults) == len(begins)
    assert all(fault.startswith(text) for fault, text in zip(faults, begins, strict=True))
