"""Patterns of other people take time linear in the text."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from windrow.core.formats.regex import BadPattern, TextTooLong, matches


@pytest.mark.parametrize("pattern", ["^(a+)+$", "^(a|a)*$", "^(.*a){12}b$", "(x+x+)+y"])
def test_a_pattern_that_would_backtrack_is_matched_at_once(pattern: str) -> None:
    """In a process of its own, since Python's matching cannot be interrupted."""
    code = f"from windrow.core.formats.regex import matches; print(matches({pattern!r}, 'a' * 5000 + '!'))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=20)

    assert (done.stdout, done.stderr) == ("False\n", "")


def test_a_text_that_is_too_long_for_a_large_pattern_is_refused() -> None:
    assert not matches("(?:.{0,100}a){8}b$", "a" * 1000)
    with pytest.raises(TextTooLong, match="131072 characters are too many"):
        matches("(?:.{0,100}a){8}b$", "a" * 131_072)


@pytest.mark.parametrize("pattern", ["a(", "(?=a)", r"a\1", "(((a{100}){100}){100}){10}"])
def test_what_re2_cannot_read_is_a_bad_pattern(pattern: str) -> None:
    with pytest.raises(BadPattern):
        matches(pattern, "a")


def test_patterns_are_searched_and_their_end_is_the_end_of_the_text() -> None:
    assert matches("b", "abc")
    assert matches("^é$", "é")
    assert not matches("^a$", "a\n")


@pytest.mark.parametrize("program", ["emulate", "serve"])
def test_a_server_does_not_start_without_re2_and_names_the_cure(program: str, tmp_path: Path) -> None:
    """Python's own matching would stand in for it without a word, and could be blocked by any pattern."""
    code = (
        "import sys; sys.modules['re2'] = None; from windrow.cli.main import main; "
        f"sys.argv[1:] = [{program!r}, '--state-dir', {str(tmp_path)!r}]; sys.exit(main())"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=20)

    assert done.returncode == 1
    assert "google-re2 is not installed" in done.stderr
    assert "pip install google-re2" in done.stderr
    assert "Traceback" not in done.stderr
