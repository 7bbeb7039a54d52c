"""JSONPath templates: what each prints. `tests/conformance/test_jsonpath.py` asks the real kubectl for the same."""

from __future__ import annotations

from typing import Any

import pytest

from windrow.core.formats import jsonpath as module
from windrow.core.formats.jsonpath import NotJsonPath, parse_jsonpath, render_jsonpath

OBJECT = {
    "apiVersion": "x.example/v1",
    "kind": "Thing",
    "metadata": {"name": "x", "labels": {"a.b/c": "d", "k": "v"}, "annotations": {"n": "1", "t": "true"}},
    "data": {"one": "1", "two": "two words", "nl": "a\nb"},
    "rows": [
        {"name": "a", "n": 1, "ready": True, "deep": {"name": "aa"}, "list": [1, 2, 3], "nothing": None},
        {"name": "b", "n": 2, "f": 2.5, "ready": False, "deep": {"name": "bb"}, "list": []},
        {"name": "c", "n": 30, "ready": True, "list": [4]},
    ],
}

# Not here: `[*]` of several lists, where kubectl leaves out all that follow the first empty one, and a number that is compared
# with one of another type, which kubectl refuses.
PRINTED: dict[str, str] = {
    "{.metadata.name}": "x",
    "{$.metadata.name}": "x",
    "{@.metadata.name}": "x",
    "{.rows[1].f}": "2.5",
    "{.rows[?(@.f>2.25)].name}": "b",
    "{['metadata']['name']}": "x",
    "text without braces": "text without braces",
    "name: {.metadata.name}!": "name: x!",
    "{.metadata.labels.a\\.b/c}": "d",
    "{.metadata.labels['a\\.b/c']}": "d",
    "{.data}": '{"nl":"a\\nb","one":"1","two":"two words"}',
    "{.data.nl}": "a\nb",
    "{.rows[*].name}": "a b c",
    "{.rows[0].name}": "a",
    "{.rows[-1].name}": "c",
    "{.rows[1:].name}": "b c",
    "{.rows[:-1].name}": "a b",
    "{.rows[0:3:2].name}": "a c",
    "{.rows[0,2].name}": "a c",
    "{.rows[*].n}": "1 2 30",
    "{.rows[*].ready}": "true false true",
    "{.rows[*].list}": "[1,2,3] [] [4]",
    "{.rows[0].list[*]}": "1 2 3",
    "{.rows[*]['name','n']}": "a b c 1 2 30",
    "{.rows[?(@.ready==true)].name}": "a c",
    "{.rows[?(@.name=='b')].n}": "2",
    '{.rows[?(@.name=="b")].n}': "2",
    '{.rows[?(@.name!="b")].name}': "a c",
    "{.rows[?(@.n>2)].name}": "c",
    "{.rows[?(@.n>=2)].name}": "b c",
    "{.rows[?(@.n<30)].name}": "a b",
    "{.rows[?(@.deep)].name}": "a b",
    "{.rows[?(@.deep.name=='bb')].name}": "b",
    "{.rows[?(@.nowhere=='bb')].name}": "",
    '{range .rows[*]}{.name}{"\\n"}{end}': "a\nb\nc\n",
    "{range .rows[*]}{.name}={.n}{'\\t'}{end}after": "a=1\tb=2\tc=30\tafter",
    "{range .rows[*]}[{range .list[*]}{@},{end}]{end}": "[1,2,3,][][4,]",
    "{.nowhere}": "",
    "{.rows[*].nowhere}": "",
    "{.rows[0].nothing}": "null",
    "{.metadata.name}{.kind}": "xThing",
    "{.metadata.name} {.kind}": "x Thing",
    "{'quoted'}": "quoted",
    "{12}": "12",
    "{.metadata..a}": "",
    "{.rows}": '[{"deep":{"name":"aa"},"list":[1,2,3],"n":1,"name":"a","nothing":null,"ready":true},{"deep":{"name":"bb"},"f":2.5,"list":[],"n":2,"name":"b","ready":false},{"list":[4],"n":30,"name":"c","ready":true}]',
    "{.rows[0].deep.*}": "aa",
    "{.apiVersion}\t{.kind}": "x.example/v1\tThing",
}

REFUSED = [
    "{metadata.name}",
    "{.a",
    "{end}",
    "{.rows[}",
    "{.rows[?(@.a==}",
    "{'open}",
    "{.rows[?(@.a]}",
    "{.}}{",
]


def shown(template: str, value: Any = None) -> str:
    return render_jsonpath(parse_jsonpath(template), OBJECT if value is None else value)


@pytest.mark.parametrize(("template", "printed"), PRINTED.items())
def test_a_template_prints_its_text_and_what_its_paths_find(template: str, printed: str):
    assert shown(template) == printed


@pytest.mark.parametrize(
    "template", [*REFUSED, "{range .rows[*]}x", "{.rows[::0]}", "{.rows[12345678901]}", "x" * 4097]
)
def test_what_is_no_template_is_refused(template: str):
    with pytest.raises(NotJsonPath):
        parse_jsonpath(template)


def test_a_template_of_the_largest_size_is_read():
    assert shown("x" * 4096) == "x" * 4096


@pytest.mark.parametrize(
    ("template", "printed"),
    [
        ("{.n[?(@>1)]}", "2 10"),
        ("{.n[?(@=='2')]}", "2"),
        ("{.n[-4]}{.n[3]}", ""),
        ("{.t[?(@.a==true)].b}", "x"),
        ("{.t[?(@.a!=true)].b}", "y"),
        ("{.t[?(@.b>'x')].b}", "y"),
        ("{.t[?(@.b<=$.limit)].b}", "x"),
        ("{.t[?(@.c)].b}", ""),
        ('{"a\\tb\\"c"}', 'a\tb"c'),
        ("{-1} {1.5}", "-1 1.5"),
        ("{.n}", "[1,2,10]"),
        ("{.limit.x}{.limit[0]}{.limit[0:1]}{.limit.*}", ""),
    ],
)
def test_values_of_each_type_are_compared_and_printed(template: str, printed: str):
    value = {"n": [1, 2, 10], "t": [{"a": True, "b": "x"}, {"a": False, "b": "y"}], "limit": "x"}

    assert shown(template, value) == printed


def test_no_more_results_are_found_than_is_bounded(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(module, "MAX_RESULTS", 10)

    for template in ("{..a}", "{[*]}", "{range [*]}{[*]}{end}"):
        with pytest.raises(NotJsonPath, match="more than 10 results"):
            shown(template, [[1, 2, 3]] * 20)
    assert shown("{[*]}", [1, 2]) == "1 2"


def test_a_deep_value_needs_no_stack_of_python():
    value: Any = {"name": "end"}
    for _ in range(5000):
        value = {"a": value}

    assert shown("{..name}", value) == "end"
