"""A pytest plugin that runs mutants instead of tests: `python -m pytest -p tests.mutants.session …`, started by `run_stage`.

The tests are collected once, with all of Windrow imported. A forked child runs them all under coverage, which tells which
tests reach which line, and how long each takes. Then each mutant gets a fork of its own, in which the code of the mutated function is
put in place of the original; the tests that reach it run there, the quickest first, until one fails. What runs at import
is not reached that way: such a mutant gets a new process, into which its module is loaded from the mutated text.
"""

from __future__ import annotations

import functools
import gc
import importlib
import importlib.abc
import importlib.machinery
import json
import os
import resource
import signal
import subprocess
import sys
import time
import types
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import coverage
import pytest

ROOT = Path(__file__).resolve().parents[2]
SOURCES = ROOT / "src" / "windrow"
# In the environment of a process: the file that says what it does.
ORDER = "WINDROW_MUTANTS"
# Tests that take longer together are not run for one mutant: in seconds of the original.
MOST_SECONDS = 30.0
KILLED, SURVIVED = 1, 0


def read_order() -> dict[str, Any]:
    path = os.environ.get(ORDER)
    return json.loads(Path(path).read_text()) if path else {}


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


class _Finder(importlib.abc.MetaPathFinder):
    def __init__(self, module: str, path: str, text: str) -> None:
        self._module, self._loader, self._path = module, _Loader(path, text), path

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


_order = read_order()
if "import" in _order:  # before anything of Windrow is imported
    _wanted = _order["import"]
    sys.meta_path.insert(
        0, _Finder(module_of(_wanted["path"]), str(SOURCES / _wanted["path"]), _wanted["text"])
    )


def list_functions(paths: Iterable[str]) -> dict[str, list[types.FunctionType]]:
    """All functions of these files, which are imported for it."""
    found: dict[str, list[types.FunctionType]] = {}
    for path in paths:
        importlib.import_module(module_of(path))
        found[str(SOURCES / path)] = []
    gc.unfreeze()  # what is frozen is not listed
    for one in gc.get_objects():
        if isinstance(one, types.FunctionType) and one.__code__.co_filename in found:
            found[one.__code__.co_filename].append(one)
    gc.freeze()
    return found


def swap(path: str, function: str, text: str, functions: Sequence[types.FunctionType]) -> bool:
    """Put the code of `function` as it is in `text` in the place of the original; whether that could be done."""
    file = str(SOURCES / path)
    before = _codes(compile((SOURCES / path).read_text(), file, "exec", dont_inherit=True), function)
    after = _codes(compile(text, file, "exec", dont_inherit=True), function)
    done = False
    for old, new in zip(before, after, strict=True):
        if old == new:
            continue
        name = old.co_qualname, old.co_firstlineno
        found = [one for one in functions if (one.__code__.co_qualname, one.__code__.co_firstlineno) == name]
        if not found or any(len(one.__closure__ or ()) != len(new.co_freevars) for one in found):
            return False
        for one in found:
            one.__code__ = new
        done = True
    return done


@functools.cache
def find_spans(path: str, function: str) -> list[tuple[int, int]]:
    """The first and last lines of the functions of that qualified name."""
    text = (SOURCES / path).read_text()
    codes = _codes(compile(text, path, "exec", dont_inherit=True), function) if function else []
    return [(code.co_firstlineno, _last_line(code)) for code in codes]


def _last_line(code: types.CodeType) -> int:
    inner = [_last_line(one) for one in code.co_consts if isinstance(one, types.CodeType)]
    return max([code.co_firstlineno, *inner, *(line for _, _, line in code.co_lines() if line)])


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


class MutantSession:
    """Takes the place of the loop that runs tests."""

    def __init__(self, order: dict[str, Any]) -> None:
        self._order = order
        self._failed = False
        self._items: list[pytest.Item] = []
        self._functions: dict[str, list[types.FunctionType]] = {}
        self._broken: frozenset[int] = frozenset()
        self._knows_reach = True
        self._deadline = time.monotonic() + order["seconds"]

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._failed = self._failed or report.failed

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        if session.testsfailed:
            raise session.Interrupted("the tests cannot be collected")
        self._items = session.items
        self._functions = list_functions({mutant["path"] for mutant in self._order["mutants"]})
        reach, seconds, broken = self._measure()
        self._broken = frozenset(broken)
        results = self._run_all(reach, seconds)
        named = [self._items[index].nodeid for index in broken]
        Path(self._order["results"]).write_text(json.dumps({"mutants": results, "broken": named}))
        return True

    # -- which test reaches which line

    def _measure(self) -> tuple[dict[str, dict[int, list[int]]], list[float], list[int]]:
        """Per file and line the tests that reach it, each test's seconds, and those that fail without any mutant, twice."""
        count = self._order["processes"]
        files: dict[Path, list[int]] = {}
        for index, item in enumerate(self._items):
            files.setdefault(item.path, []).append(index)
        parts: list[list[int]] = [[] for _ in range(count)]
        for indices in sorted(files.values(), key=len, reverse=True):
            min(parts, key=len).extend(indices)
        outputs = [Path(f"{self._order['results']}.{number}") for number in range(count)]
        children = [
            self._fork(lambda part=part, output=output: self._measure_part(part, output))
            for part, output in zip(parts, outputs, strict=True)
        ]
        for child in children:
            os.waitpid(child, 0)
        reach: dict[str, dict[int, list[int]]] = {}
        seconds = [MOST_SECONDS] * len(self._items)
        broken: list[int] = []
        for number, output in enumerate(outputs):
            if not output.exists():
                broken += parts[
                    number
                ]  # one of them ended the process, so it is not known what any of them reaches
                self._knows_reach = False
                continue
            found = json.loads(output.read_text())
            broken += found["broken"]
            for index, took in found["seconds"].items():
                seconds[int(index)] = took
            for path, lines in found["reach"].items():
                for line, indices in lines.items():
                    reach.setdefault(path, {}).setdefault(int(line), []).extend(indices)
        return reach, seconds, broken

    def _measure_part(self, part: Sequence[int], output: Path) -> int:
        paths = sorted({mutant["path"] for mutant in self._order["mutants"]})
        cov = coverage.Coverage(
            data_file=None, include=[str(SOURCES / path) for path in paths], config_file=False
        )
        cov.start()
        seconds, broken = {}, []
        for place, index in enumerate(part):
            cov.switch_context(str(index))
            began = time.process_time()
            self._failed = False
            self._run(index, part[place + 1] if place + 1 < len(part) else None)
            seconds[index] = time.process_time() - began
            if self._failed:  # by chance, on a busy machine, or always
                self._failed = False
                self._run(index, None)
            if self._failed:
                broken.append(index)
            if time.monotonic() > self._deadline:
                break
        cov.stop()
        data, reach = cov.get_data(), {}
        for path in paths:
            lines = data.contexts_by_lineno(str(SOURCES / path))
            reach[path] = {
                line: [int(index) for index in contexts if index] for line, contexts in lines.items()
            }
        output.write_text(json.dumps({"reach": reach, "seconds": seconds, "broken": broken}))
        return 0

    def _run(self, index: int, following: int | None) -> None:
        item = self._items[index]
        after = self._items[following] if following is not None else None
        item.config.hook.pytest_runtest_protocol(item=item, nextitem=after)

    # -- the mutants

    def _run_all(self, reach: dict[str, dict[int, list[int]]], seconds: list[float]) -> list[dict[str, Any]]:
        waiting = list(self._order["mutants"])
        results: list[dict[str, Any]] = []
        running: dict[int, tuple[dict[str, Any], float, dict[str, Any]]] = {}
        while waiting or running:
            while waiting and len(running) < self._order["processes"]:
                mutant = waiting.pop(0)
                result = {"id": mutant["id"], "outcome": "not run", "tests": 0, "of": 0}
                results.append(result)
                if time.monotonic() > self._deadline:
                    continue
                started = self._start(mutant, reach, seconds, result)
                if started is not None:
                    child, limit = started
                    running[child] = (result, time.monotonic() + limit, mutant)
            if running:
                self._collect(running)
        return results

    def _collect(self, running: dict[int, tuple[dict[str, Any], float, dict[str, Any]]]) -> None:
        """Wait until one has ended; kill what takes too long. A mutant that never ends is killed: a test would notice."""
        while True:
            child, status = os.waitpid(-1, os.WNOHANG)
            if child in running:
                result, _, _ = running.pop(child)
                code = os.waitstatus_to_exitcode(status)
                result["outcome"] = result["outcome"] if code == SURVIVED else "killed"
                return
            for one, (_, until, _) in running.items():
                if time.monotonic() > until:
                    os.kill(one, signal.SIGKILL)
            time.sleep(0.01)

    def _start(
        self,
        mutant: dict[str, Any],
        reach: dict[str, dict[int, list[int]]],
        seconds: list[float],
        result: dict[str, Any],
    ) -> tuple[int, float] | None:
        lines = reach.get(mutant["path"], {})
        first, last = mutant["lines"]
        reaching = {index for line in range(first, last + 1) for index in lines.get(line, ())}
        is_import = not mutant["function"]
        if is_import:
            reaching = {index for indices in lines.values() for index in indices}
        # After an exception that was thrown into a generator or a coroutine, Python 3.11 tells a tracer the lines of another
        # frame. So the tests that reach the function are asked, too, after those that are known to reach the line.
        spans = find_spans(mutant["path"], mutant["function"])
        around = {
            index for start, end in spans for line in range(start, end + 1) for index in lines.get(line, ())
        }
        ordered = sorted(
            (reaching | around) - self._broken,
            key=lambda index: (index not in reaching, seconds[index], index),
        )
        chosen: list[int] = []
        total = 0.0
        for index in ordered:
            total += seconds[index]
            if total > MOST_SECONDS and chosen:
                break
            chosen.append(index)
        # What one of the tests that were not asked might have noticed is not said to have survived.
        is_whole = reaching <= set(chosen) and self._knows_reach
        result |= {
            "outcome": "survived" if is_whole else "undecided",
            "tests": len(chosen),
            "of": len(reaching | around),
        }
        if not chosen:
            return None
        limit = 3 + 10 * min(total, MOST_SECONDS)  # of CPU
        if is_import:
            return self._fork(lambda: self._run_imported(mutant, chosen, limit)), 6 * limit + 120
        return self._fork(lambda: self._run_swapped(mutant, chosen, limit)), 6 * limit + 60

    def _run_swapped(self, mutant: dict[str, Any], chosen: list[int], limit: float) -> int:
        functions = self._functions[str(SOURCES / mutant["path"])]
        if not swap(mutant["path"], mutant["function"], mutant["text"], functions):
            return self._run_imported(mutant, chosen, limit)
        limit_cpu(limit)
        self._failed = False
        # Tests of one file follow each other, for the fixtures that they share.
        for index, following in zip(chosen, [*chosen[1:], None], strict=True):
            self._run(index, following)
            if self._failed:
                return KILLED
        return SURVIVED

    def _run_imported(self, mutant: dict[str, Any], chosen: list[int], limit: float) -> int:
        order = Path(f"{self._order['results']}.import-{mutant['id']}")
        order.write_text(json.dumps({"import": {"path": mutant["path"], "text": mutant["text"]}}))
        names = Path(f"{order}.tests")
        names.write_text("\n".join(self._items[index].nodeid for index in chosen))
        command = [sys.executable, "-m", "pytest", "-p", "tests.mutants.session", "-n", "0", "-x", "-q"]
        command += ["-p", "no:cacheprovider", "--no-header", "-m", "long or not long", f"@{names}"]
        limit_cpu(limit + 20)
        done = subprocess.run(
            command, cwd=ROOT, env={**os.environ, ORDER: str(order)}, stdin=subprocess.DEVNULL
        )
        return SURVIVED if done.returncode == 0 else KILLED

    def _fork(self, work: Any) -> int:
        """The id of a child that does `work` and ends with the code that it returns, and prints nothing."""
        sys.stdout.flush()
        child = os.fork()
        if child:
            return child
        code = KILLED
        try:
            if not os.environ.get("WINDROW_MUTANTS_VERBOSE"):
                nowhere = os.open(os.devnull, os.O_RDWR)
                for stream in (1, 2):
                    os.dup2(nowhere, stream)
            code = work()
        except BaseException:
            if os.environ.get("WINDROW_MUTANTS_VERBOSE"):
                import traceback

                traceback.print_exc()
        finally:
            os._exit(code)


def limit_cpu(seconds: float) -> None:
    resource.setrlimit(resource.RLIMIT_CPU, (int(seconds + time.process_time()), resource.RLIM_INFINITY))


@pytest.hookimpl(trylast=True)
def pytest_configure(config: pytest.Config) -> None:
    if "mutants" in _order:
        config.pluginmanager.register(MutantSession(_order))
