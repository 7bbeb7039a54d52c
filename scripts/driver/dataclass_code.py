"""Compile the methods that `dataclasses` writes, when the driver is built and not each time it starts.

A dataclass gets its methods as text, compiled when the class is made: for the driver that is half of what it does
before it can answer. So the classes are made once here, with the compiling overheard, and the driver's `dataclasses`
looks its texts up. A text that is not there is compiled as ever; the table can be incomplete but not wrong.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import importlib
import marshal
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import CodeType
from typing import Any

NAME = "_dataclass_code"
COMPILES = b"exec(txt, self.globals, ns)"
LOOKS_UP = b"exec(__import__('_dataclass_code').take(txt), self.globals, ns)"

# The two tuples are put in place of the two texts when the module is compiled. Code is marshalled there, because a process
# that only tells its flags makes a few of the classes.
DIGESTS, CODES = "digests", "codes"
MODULE = f"""\
from _sha2 import sha256
from marshal import loads
CODE = dict(zip({DIGESTS!r}, {CODES!r}))
def take(text):
    code = CODE.pop(sha256(text.encode()).digest(), None)
    return text if code is None else loads(code)
"""


def with_lookup(text: bytes) -> bytes:
    """The text of the standard library's `dataclasses`, changed in the one place."""
    if text.count(COMPILES) != 1:
        raise SystemExit("dataclasses compiles its methods in another way now; look at dataclass_code.py")
    return text.replace(COMPILES, LOOKS_UP)


def overheard(modules: Iterable[str], folders: Sequence[str]) -> dict[str, CodeType]:
    """Import the modules, and give what `dataclasses` compiled meanwhile, by its text."""
    texts: set[str] = set()

    def overhear(text: str, *places: Any) -> None:
        texts.add(text)
        exec(text, *places)

    with _first_in_path(folders):
        dataclasses.exec = overhear  # type: ignore[attr-defined]
        for name in modules:
            importlib.import_module(name)
        del dataclasses.exec  # type: ignore[attr-defined]
    return {
        text: compile(text, "<dataclass>", "exec", optimize=2, dont_inherit=True) for text in sorted(texts)
    }


@contextlib.contextmanager
def _first_in_path(folders: Sequence[str]) -> Iterator[None]:
    before = sys.path[:]
    sys.path[:0] = folders
    try:
        yield
    finally:
        sys.path[:] = before


def lookup_module(codes: Mapping[str, CodeType]) -> CodeType:
    """The module that brings the table along."""
    code = compile(MODULE, f"<frozen {NAME}>", "exec", optimize=2, dont_inherit=True)
    tables = {
        DIGESTS: tuple(hashlib.sha256(text.encode()).digest() for text in codes),
        CODES: tuple(stable(without_lines(each)) for each in codes.values()),
    }
    return code.replace(co_consts=tuple(_replaced(constant, tables) for constant in code.co_consts))


def _replaced(constant: Any, tables: Mapping[str, Any]) -> Any:
    return tables.get(constant, constant) if isinstance(constant, str) else constant


def stable(code: object) -> bytes:
    """Marshalled so that equal code gives equal bytes.

    From version 3 on, marshal writes whether a value is referred to more than once in the whole process, which
    depends on what else the process did. What it reads back from its own output is referred to by that alone.
    """
    once = marshal.loads(marshal.dumps(code))
    del code
    return marshal.dumps(once)


def without_lines(code: CodeType) -> CodeType:
    """The same code without its line numbers: of every instruction it says that it stands in no line."""
    inner = (without_lines(each) if isinstance(each, CodeType) else each for each in code.co_consts)
    return code.replace(co_linetable=_nowhere(len(code.co_code) // 2), co_consts=tuple(inner))


def _nowhere(instructions: int) -> bytes:
    """A table of positions (CPython's Objects/locations.md): an entry of kind 15 covers up to eight instructions."""
    entry = 0x80 | 15 << 3
    full, rest = divmod(instructions, 8)
    return bytes([entry | 7]) * full + (bytes([entry | rest - 1]) if rest else b"")
