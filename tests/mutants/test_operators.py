"""Which changes of a text are mutants, and how they are named."""

from __future__ import annotations

import textwrap

import pytest
from tests.mutants.changes import parse_diff
from tests.mutants.operators import Mutant, list_mutants


def mutants(text: str) -> list[Mutant]:
    return list_mutants("m.py", textwrap.dedent(text))


def bodies(expression: str) -> set[str]:
    """What the mutants of `return expression` return."""
    text = f"def f(a, b, c):\n    return {expression}\n"
    return {one.apply(text).splitlines()[1].strip().removeprefix("return ") for one in mutants(text)} - {
        "pass"
    }


@pytest.mark.parametrize(
    ("expression", "mutated"),
    [
        ("a < b", {"a <= b"}),
        ("a not in b", {"a in b"}),
        ("(a) is (b)", {"(a) is not (b)"}),
        ("a <= b < c", {"a < b < c", "a <= b <= c"}),
        ("a and b", {"(a or b)", "(a)", "(b)"}),
        ("(a or b) and c", {"((a or b) or c)", "(a or b)", "(c)", "((a and b)) and c", "((a)) and c", "((b)) and c"}),
        ("not a", {"(a)"}),
        ("a - 1", {"(a + 1)", "a - (2)"}),
        ("a - 300", {"(a + 300)", "a - (600)"}),
        ("f(a, uid=b)", {"(f(a))"}),
        ("any(a)", {"(all(a))"}),
        ("[a, b]", {"([a])", "([b])"}),
        ("{a: b, **c}", {"({**c})", "({a: b})"}),
        ("b if a else c", {"b if (not a) else c"}),
        ("[x for x in a if x]", {"[x for x in a if (not x)]"}),
        ('f"{a + 1} of {b}"', set()),
        ('"ä" < a', {'"ä" <= a'}),
    ],
)  # fmt: skip
def test_an_expression_has_these_mutants(expression: str, mutated: set[str]) -> None:
    assert {text.replace("((a or b) or c)", "(a or b or c)") for text in bodies(expression)} == {
        text.replace("((a or b) or c)", "(a or b or c)") for text in mutated
    }


@pytest.mark.parametrize(
    "statement",
    ["raise a", "a += b", "a.b = c", "del a[b]", "a.run()", "return", "a[b] = c"],
)
def test_a_statement_is_removed(statement: str) -> None:
    text = "def f(a, b, c):\n    if a:\n        {}\n    f(b)\n"
    assert text.format("pass") in {
        one.apply(text.format(statement)) for one in mutants(text.format(statement))
    }


@pytest.mark.parametrize(
    "text",
    [
        '"""a docstring"""',
        "import a",
        "Alias = dict[str, tuple[int, int]] | None",
        "T = TypeVar('T', bound=A)",
        "def f(a: int | None) -> bool | None: ...",
        "@dataclass(frozen=True)\nclass A:\n    b: int | None",
        "def f():\n    _log.warning('a', 1 + 2)",
        "def f():\n    yield Log('a')",
        "class A:\n    def __init__(self):\n        self._log = with_values(_log, a=1 + 2)",
        "def f(a):\n    assert a == 1",
        "def f(a):\n    assert_never(a + 1)",
        "def f(a):\n    for b in zip(a, strict=True):\n        pass",
        "a = group.create_task(b, name='watch')\nc = start_in(group, b, name='watch')",
    ],
)
def test_what_has_no_behaviour_has_no_mutants(text: str) -> None:
    assert mutants(text) == []


@pytest.mark.parametrize(("end", "is_removed"), [('""', False), ("None", False), ("a", True), ("True", True)])
def test_an_empty_value_at_the_end_of_a_function_is_not_removed(end: str, is_removed: bool) -> None:
    text = f"def f(a):\n    return {end}\n"
    assert ("pass" in {one.new for one in mutants(text)}) == is_removed


@pytest.mark.parametrize(
    "branches",
    [
        "    if a:\n        return None\n    else:\n        return",
        "    with a:\n        if a:\n            return False",
        "    match a:\n        case 1:\n            return None",
        "    try:\n        b = a\n    except E:\n        return\n    else:\n        return None",
    ],
)
def test_an_empty_value_at_the_end_of_a_branch_that_ends_a_function_is_not_removed(branches: str) -> None:
    found = {one.new for one in mutants(f"def f(a):\n{branches}\n")}
    assert "pass" not in found
    assert "pass" in {one.new for one in mutants(f"def f(a):\n{branches}\n    f(a)\n")}


def test_a_mutant_names_its_function_and_the_lines_that_a_test_must_reach() -> None:
    found = mutants(
        """
        class A:
            class B:
                @property
                def c(self):
                    def inner():
                        return (
                            1 <
                            self.d
                        )
                    if self.e:
                        pass
            f = 1
        """
    )
    assert {(one.function, one.lines, one.line) for one in found if one.new == "<="} == {
        ("A.B.c", (7, 10), 8)
    }
    assert {(one.function, one.lines) for one in found if one.new.startswith("(not")} == {("A.B.c", (11, 11))}
    assert {one.function for one in found if one.old == "1" and one.statement == "f = 1"} == {""}


def test_a_function_that_makes_a_constant_runs_when_the_module_is_imported() -> None:
    found = mutants("def rows():\n    return 1\n\ndef f():\n    return 2\n\nROWS = rows()\n")
    assert {(one.old, one.function) for one in found if one.old in "12"} == {("1", ""), ("2", "f")}


def test_a_mutant_is_named_by_texts_and_not_by_its_line() -> None:
    text = "def f(a):\n    if a  <   1:\n        return a\n"
    keys = [{one.key for one in mutants(moved)} for moved in (text, f"# a line\n\n{text}")]
    assert keys[0] == keys[1]
    assert ("m.py", "if a < 1", "<", "<=") in keys[0]


def test_the_lines_of_a_diff_are_those_that_are_new_or_changed() -> None:
    diff = """\
--- a/kept.py
+++ b/kept.py
@@ -3 +3,2 @@ def f():
+new
@@ -9,2 +10,0 @@ def g():
-gone
@@ -20 +20 @@
+changed
--- a/removed.py
+++ /dev/null
@@ -1,3 +0,0 @@
-gone
"""
    assert parse_diff(diff) == {"kept.py": frozenset({3, 4, 20})}
