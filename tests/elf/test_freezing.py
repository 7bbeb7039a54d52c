"""What a program can import is found by reading it."""

from __future__ import annotations

import ast
import importlib.util
import sys
from collections.abc import Generator
from pathlib import Path
from types import ModuleType

import pytest
from scripts.driver import freeze


def a_package(folder: Path, **texts: str) -> freeze.Finder:
    folder.joinpath("__init__.py").write_text("")
    for name, text in texts.items():
        folder.joinpath(f"{name}.py").write_text(text)
    return freeze.Finder({"ours": folder}, Path(freeze.__file__).parent)


def reached(finder: freeze.Finder, entry: str = "ours.start") -> set[str]:
    return set(freeze.reach(entry, finder))


def test_an_import_in_a_function_is_found(tmp_path: Path) -> None:
    finder = a_package(tmp_path, start="def late():\n    from ours import other\n", other="")

    assert reached(finder) == {"ours", "ours.start", "ours.other"}


def test_relative_imports_and_modules_named_as_attributes_are_found(tmp_path: Path) -> None:
    finder = a_package(tmp_path, start="from . import one\nfrom .two import x\n", one="", two="x = 1\n")

    assert reached(finder) == {"ours", "ours.start", "ours.one", "ours.two"}


def test_what_only_a_type_checker_reads_is_not_reached(tmp_path: Path) -> None:
    text = "TYPE_CHECKING = False\nif TYPE_CHECKING:\n    import ours.types\nelse:\n    import ours.other\n"
    finder = a_package(tmp_path, start=text, types="", other="")

    assert reached(finder) == {"ours", "ours.start", "ours.other"}


def test_an_import_of_ours_that_does_not_exist_stops_the_build(tmp_path: Path) -> None:
    finder = a_package(tmp_path, start="def late():\n    from ours.missing import x\n")

    with pytest.raises(SystemExit, match=r"ours.start imports ours.missing"):
        freeze.reach("ours.start", finder)


def test_an_import_of_ours_that_is_left_out_stops_the_build(tmp_path: Path) -> None:
    finder = a_package(tmp_path, start="import asyncio\n")

    with pytest.raises(SystemExit, match="asyncio"):
        freeze.reach("ours.start", finder)


def test_code_is_the_same_wherever_its_text_lies(tmp_path: Path) -> None:
    text = "NAME = 'a name'\n\ndef f(x):\n    '''Docs.'''\n    assert x\n    return {'a name', NAME}\n"
    blobs = []
    for name in ("one", "another-and-longer"):
        (tmp_path / name).mkdir()
        finder = a_package(tmp_path / name, start=text)
        blobs.append(freeze.compiled(freeze.reach("ours.start", finder)["ours.start"]))

    assert blobs[0] == blobs[1]
    assert b"Docs." not in blobs[0]
    assert str(tmp_path).encode() not in blobs[0]


def lean(name: str) -> ModuleType:
    """A stand-in for a module of the standard library."""
    path = Path(freeze.__file__).parent / "lean" / f"{name}.py"
    spec = importlib.util.spec_from_file_location(f"lean_{name}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def driver_modules() -> dict[str, freeze.Module]:
    """What the driver can reach."""
    source = Path(__file__).resolve().parents[2] / "src/windrow"
    library = Path(sys.modules["os"].__file__ or "").parent
    return freeze.reach("windrow.plugin.__main__", freeze.Finder({"windrow": source}, library))


def test_the_driver_s_typing_has_what_its_modules_import(driver_modules: dict[str, freeze.Module]) -> None:
    wanted = {
        alias.name
        for name, module in driver_modules.items()
        if name.startswith("windrow.")
        for node in freeze.statements(module.tree)
        if isinstance(node, ast.ImportFrom) and node.module == "typing"
        for alias in node.names
    }
    assert wanted
    assert wanted <= set(vars(lean("typing")))


def test_the_driver_s_typing_takes_what_is_written_with_the_real_one() -> None:
    typing = lean("typing")
    result = typing.TypeVar("R", bound=int | typing.Any)
    operation = Generator[str | typing.Any, typing.Any, result]  # type: ignore[valid-type]

    class WaitFor(typing.Generic[result]):  # type: ignore[misc]
        pass

    assert operation[int] is not None
    assert WaitFor[int] | None is not None
    assert typing.get_args(typing.Literal["a", "b"]) == ("a", "b")
    assert issubclass(WaitFor, typing.Generic)


def test_the_driver_itself_reaches_nothing_unknown(driver_modules: dict[str, freeze.Module]) -> None:
    assert {"windrow.plugin.__main__", "encodings.idna", "traceback"} <= driver_modules.keys()
    assert [name for name in driver_modules if name.startswith(("asyncio", "logging", "http"))] == []
