"""Puts the code of a mutant, or of a probe, in the place of the original: in the functions that are there, or at the import.

A probe is the original with one more call before each statement that has a mutant. The call notes the mutant's number, so that a
test that reaches it is known by running, at the speed of the original.
"""

from __future__ import annotations

import ast
import builtins
import gc
import importlib
import importlib.abc
import importlib.machinery
import os
import types
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
SOURCES = ROOT / "src" / "windrow"
# What a probe calls: a builtin, since the functions are of many modules.
PROBE = "__windrow_mutant_reached__"

# Which function gets which code.
Swap = tuple[types.FunctionType, types.CodeType]


@dataclass(frozen=True, slots=True)
class Site:
    """Where a mutant is: the bytes from `start` to `end`, in `function`; "" for what runs when the module is imported."""

    number: int
    path: str
    function: str
    start: int
    end: int


def module_of(path: str) -> str:
    return ".".join(("windrow", *Path(path).with_suffix("").parts)).removesuffix(".__init__")


class _Loader(importlib.abc.SourceLoader):
    """Loads one module from the mutated text, and writes no bytecode."""

    def __init__(self, path: str, text: str) -> None:
        self._path, self._text = path, text

    def get_filename(self, fullname: str) -> str:
        return self._path

    def get_data(self, path: str) -> bytes:
        if path != self._path:
            raise OSError(path)
        return self._text.encode()


class Finder(importlib.abc.MetaPathFinder):
    """Finds one file of Windrow, relative to `SOURCES`, with another text."""

    def __init__(self, path: str, text: str) -> None:
        self._module, self._path = module_of(path), str(SOURCES / path)
        self._loader = _Loader(self._path, text)

    def find_spec(self, fullname: str, path: Any, target: Any = None) -> Any:
        if fullname != self._module:
            return None
        is_package = self._path.endswith("__init__.py")
        spec = importlib.machinery.ModuleSpec(
            fullname, self._loader, origin=self._path, is_package=is_package
        )
        if is_package:
            spec.submodule_search_locations = [os.path.dirname(self._path)]
        spec.has_location = True
        return spec


def list_functions(paths: Iterable[str]) -> dict[str, list[types.FunctionType]]:
    """All functions of these files, which are imported for it."""
    names = {str(SOURCES / path): path for path in paths}
    found: dict[str, list[types.FunctionType]] = {path: [] for path in names.values()}
    for path in found:
        importlib.import_module(module_of(path))
    gc.unfreeze()  # what is frozen is not listed
    for one in gc.get_objects():
        if isinstance(one, types.FunctionType) and one.__code__.co_filename in names:
            found[names[one.__code__.co_filename]].append(one)
    gc.freeze()
    return found


def plan_swap(
    path: str, function: str, text: str | ast.Module, functions: Sequence[types.FunctionType]
) -> list[Swap] | None:
    """What puts the code of `function` as it is in `text` in the place of the original; None where that cannot be done."""
    file = str(SOURCES / path)
    before = _codes(compile((SOURCES / path).read_text(), file, "exec", dont_inherit=True), function)
    after = _codes(compile(text, file, "exec", dont_inherit=True), function)
    swaps: list[Swap] = []
    for old, new in zip(before, after, strict=True):
        if old == new:
            continue
        name = old.co_qualname, old.co_firstlineno
        found = [one for one in functions if (one.__code__.co_qualname, one.__code__.co_firstlineno) == name]
        if not found or any(len(one.__closure__ or ()) != len(new.co_freevars) for one in found):
            return None
        swaps += [(one, new) for one in found]
    return swaps or None


def swap(swaps: Iterable[Swap]) -> None:
    for function, code in swaps:
        function.__code__ = code


def _codes(code: types.CodeType, function: str) -> list[types.CodeType]:
    """The code of all functions of that qualified name: a property may have several."""
    found = []
    for one in code.co_consts:
        if isinstance(one, types.CodeType):
            if one.co_qualname == function:
                found.append(one)
            elif function.startswith(f"{one.co_qualname}."):
                found += _codes(one, function)
    return found


# -- probes


def plan_probes(
    sites: Sequence[Site], functions: Mapping[str, Sequence[types.FunctionType]]
) -> tuple[list[Swap], set[int]]:
    """What puts the probes in place, and the numbers of the sites that have none: no function could be swapped for them."""
    swaps: list[Swap] = []
    probed: set[int] = set()
    for path in sorted({site.path for site in sites}):
        here = [site for site in sites if site.path == path]
        outermost = sorted({one.__code__.co_qualname for one in functions[path]})
        inside: dict[str, list[Site]] = {}
        for site in here:
            for name in [site.function] if site.function else outermost:
                inside.setdefault(name, []).append(site)
        for name, found in inside.items():
            tree = add_probes((SOURCES / path).read_text(), name, found)
            if planned := plan_swap(path, name, tree, functions[path]):
                swaps += planned
                probed |= {site.number for site in found}
    return swaps, {site.number for site in sites} - probed


def add_probes(text: str, function: str, sites: Sequence[Site]) -> ast.Module:
    """The tree of `text` with a probe before the statement of each site, or at the beginning of `function` for one outside it."""
    tree = ast.parse(text)
    starts = [0]
    for line in text.encode().splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    spans = {
        statement: (
            starts[statement.lineno - 1] + statement.col_offset,
            starts[(statement.end_lineno or statement.lineno) - 1] + (statement.end_col_offset or 0),
        )
        for statement in ast.walk(tree)
        if isinstance(statement, ast.stmt)
    }
    before: dict[ast.stmt, list[int]] = {}
    for site in sites:
        if site.function:
            around = [one for one, (start, end) in spans.items() if start <= site.start and site.end <= end]
            innermost = min(around, key=lambda one: spans[one][1] - spans[one][0])
            before.setdefault(innermost, []).append(site.number)
    outside = [site.number for site in sites if not site.function]
    _insert(tree, "", before, (function, outside))
    return ast.fix_missing_locations(tree)


def _insert(
    node: ast.AST, prefix: str, before: Mapping[ast.stmt, list[int]], begin: tuple[str, list[int]]
) -> None:
    for name in ("body", "orelse", "finalbody", "handlers", "cases"):
        children = getattr(node, name, None)
        if not isinstance(children, list):
            continue
        placed: list[ast.AST] = []
        for child in children:
            placed += [_probe(number, child) for number in before.get(child, ())]
            placed.append(child)
            inner = prefix
            if isinstance(child, ast.ClassDef):
                inner = f"{prefix}{child.name}."
            elif isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
                inner = f"{prefix}{child.name}.<locals>."
            _insert(child, inner, before, begin)
            if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef) and begin[0] == prefix + child.name:
                child.body[:0] = [_probe(number, child.body[0]) for number in begin[1]]
        setattr(node, name, placed)


def _probe(number: int, before: ast.AST) -> ast.Expr:
    call = ast.Call(ast.Name(PROBE, ast.Load()), [ast.Constant(number)], [])
    return ast.copy_location(ast.Expr(call), before)


def note_in(reached: set[int]) -> None:
    """From now on probes add their numbers to it."""
    setattr(builtins, PROBE, reached.add)
