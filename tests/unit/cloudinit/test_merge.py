"""The merge table, case by case, and the two properties people rely on."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from windrow.cloudinit.document import BadUserData, Document, emit, parse
from windrow.cloudinit.merge import RULES, merge

MISSING = object()


def merged(left: Any, right: Any) -> Any:
    a = Document({} if left is MISSING else {"k": left})
    b = Document({} if right is MISSING else {"k": right})
    return merge(a, b).data.get("k", MISSING)


@pytest.mark.parametrize(
    ("left", "right", "result"),
    [
        (MISSING, 1, 1),
        (MISSING, [1], [1]),
        (None, [1], [1]),
        (None, {"a": 1}, {"a": 1}),
        ({"a": 1}, {"a": 2, "b": 3}, {"a": 1, "b": 3}),
        ([1], [2, 1], [1, 2, 1]),
        ([], [1], [1]),
        ("", "x", "x"),
        (0, 5, 5),
        (False, True, True),
        ({}, "x", "x"),
        ([], "x", "x"),
        ([], {"a": 1}, {"a": 1}),
        ("", {"a": 1}, {"a": 1}),
        ("a", "b", "a"),
        (True, False, True),
        ("a", {"b": 1}, "a"),
        ({"a": 1}, "b", {"a": 1}),
        ([1], "b", [1]),
        ([1], {"a": 1}, [1]),
        ("a", None, "a"),
        ("a", MISSING, "a"),
        ({"a": 1}, None, {"a": 1}),
    ],
)
def test_the_table_decides(left: Any, right: Any, result: Any) -> None:
    assert merged(left, right) == result


@pytest.mark.parametrize("left", ["text", "", 0, False, 7, {"a": 1}, {}])
def test_a_list_never_replaces_something_else(left: Any) -> None:
    with pytest.raises(BadUserData, match="k is a list"):
        merged(left, [1])


def test_the_clash_names_its_place() -> None:
    with pytest.raises(BadUserData, match=r"apt\.sources"):
        merge(Document({"apt": {"sources": "x"}}), Document({"apt": {"sources": [1]}}))


def test_every_form_on_the_left_answers_every_form_on_the_right() -> None:
    assert {frozenset(row) for row in RULES.values()} == {frozenset(("nothing", "map", "list", "value"))}


def test_user_commands_run_before_the_installer() -> None:
    user = parse("#cloud-config\nruncmd:\n- echo user\nhostname: mine\n")
    rancher = parse("#cloud-config\nruncmd:\n- sh install.sh\nhostname: theirs\n")
    assert emit(merge(user, rancher)) == (
        "#cloud-config\nhostname: mine\nruncmd:\n- echo user\n- sh install.sh\n"
    )


def test_a_jinja_header_survives_from_either_side() -> None:
    assert merge(Document({}, jinja=True), Document({})).jinja
    assert merge(Document({}), Document({}, jinja=True)).jinja


maps = st.dictionaries(
    st.sampled_from("abc"), st.lists(st.integers(), max_size=3) | st.none() | st.just([]), max_size=3
)


@given(maps, maps, maps)
def test_lists_join_the_same_way_in_any_grouping(a: Any, b: Any, c: Any) -> None:
    left = merge(merge(Document(a), Document(b)), Document(c)).data
    right = merge(Document(a), merge(Document(b), Document(c))).data
    assert {k: v for k, v in left.items() if v is not None} == {
        k: v for k, v in right.items() if v is not None
    }


@given(maps)
def test_an_empty_document_changes_nothing(data: Any) -> None:
    assert merge(Document(data), Document()).data == data
    assert merge(Document(), Document(data)).data == data
