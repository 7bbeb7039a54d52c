"""Methods of dataclasses are compiled when the driver is built."""

from __future__ import annotations

import hashlib
import sys
import traceback
from typing import Any

import pytest
from scripts.driver import dataclass_code

TEXT = "def outer():\n    def inner(x):\n        return [1 // each for each in x]\n    return inner\n"


def test_code_without_lines_does_the_same_and_can_be_told_of() -> None:
    names: dict[str, object] = {}
    exec(dataclass_code.without_lines(compile(TEXT, "<text>", "exec")), names)
    inner = names["outer"]()  # type: ignore[operator]

    assert inner([1, -1]) == [1, -1]
    with pytest.raises(ZeroDivisionError) as raised:
        inner([0])
    told = "".join(traceback.format_exception(raised.value))
    assert 'File "<text>", line None, in inner' in told


def test_every_instruction_of_code_without_lines_stands_in_no_line() -> None:
    code = dataclass_code.without_lines(compile(TEXT * 20, "<text>", "exec"))

    assert len(list(code.co_positions())) == len(code.co_code) // 2
    assert {line for line, *_ in code.co_positions()} == {None}


def test_the_table_gives_each_code_once_and_any_other_text_back(monkeypatch: pytest.MonkeyPatch) -> None:
    code = compile("x = 1", "<text>", "exec")
    names: dict[str, Any] = {}
    # The driver's interpreter has the hash by itself; this one may not.
    if "_sha2" not in sys.builtin_module_names:
        monkeypatch.setitem(sys.modules, "_sha2", hashlib)
    exec(dataclass_code.lookup_module({"x = 1": code}), names)

    made: dict[str, Any] = {}
    exec(names["take"]("x = 1"), made)

    assert made["x"] == 1
    assert names["take"]("x = 1") == "x = 1"
    assert names["take"]("y = 2") == "y = 2"


def test_another_way_of_dataclasses_stops_the_build() -> None:
    with pytest.raises(SystemExit, match="another way"):
        dataclass_code.with_lookup(b"exec(something_else)")
