"""Strategic patches and server-side apply (reference/05 §7.10)."""

from __future__ import annotations

from typing import Any

import pytest

from windrow.apiserver.fieldmanager.strategic import apply_strategic_patch
from windrow.apiserver.types.builtins import POD_SPEC
from windrow.kubernetes.requests import APPLY_PATCH, MERGE_PATCH

MAPS = "/api/v1/namespaces/default/configmaps/m"
WIDGET = "/apis/example.io/v1/namespaces/default/widgets/w"
Ask = Any

BEFORE = {
    "containers": [
        {"name": "a", "image": "1", "env": [{"name": "X", "value": "1"}]},
        {"name": "b", "image": "2"},
    ],
    "tolerations": [{"key": "x"}],
    "nodeSelector": {"a": "b"},
}


def patched(**patch: Any) -> Any:
    return apply_strategic_patch(POD_SPEC, BEFORE, patch)


def test_items_merge_by_their_key() -> None:
    after = patched(containers=[{"name": "b", "image": "3"}])

    assert after["containers"] == [BEFORE["containers"][0], {"name": "b", "image": "3"}]  # type: ignore[index]


def test_new_items_come_before_those_the_patch_does_not_name() -> None:
    after = patched(containers=[{"name": "c", "image": "4"}])

    assert [one["name"] for one in after["containers"]] == ["c", "a", "b"]


def test_an_item_may_be_deleted_by_its_key() -> None:
    assert [one["name"] for one in patched(containers=[{"$patch": "delete", "name": "a"}])["containers"]] == [
        "b"
    ]


def test_a_list_may_be_replaced() -> None:
    after = patched(containers=[{"$patch": "replace"}, {"name": "z"}])

    assert after["containers"] == [{"name": "z"}]


def test_lists_without_a_key_are_replaced() -> None:
    assert patched(tolerations=[{"key": "y"}])["tolerations"] == [{"key": "y"}]


def test_an_order_is_kept() -> None:
    order = [{"name": "b"}, {"name": "a"}]

    after = patched(**{"$setElementOrder/containers": order, "containers": [{"name": "a", "image": "9"}]})

    assert [one["name"] for one in after["containers"]] == ["b", "a"]


def test_nested_lists_merge_too_and_null_deletes() -> None:
    after = patched(
        containers=[{"name": "a", "image": None, "env": [{"name": "Y", "value": "2"}]}], nodeSelector=None
    )

    assert "nodeSelector" not in after
    assert after["containers"][0] == {
        "name": "a",
        "env": [{"name": "Y", "value": "2"}, {"name": "X", "value": "1"}],
    }


def test_words_are_added_and_taken_from_a_list_of_words() -> None:
    schema = {"properties": {"f": {"type": "array", "x-kubernetes-patch-strategy": "merge"}}}

    added = apply_strategic_patch(schema, {"f": ["a", "b"]}, {"f": ["c"]})
    taken = apply_strategic_patch(schema, {"f": ["a", "b"]}, {"$deleteFromPrimitiveList/f": ["a"]})

    assert (sorted(added["f"]), taken) == (["a", "b", "c"], {"f": ["b"]})


def test_the_patched_object_shares_nothing_that_the_patch_changes() -> None:
    patched(containers=[{"name": "a", "image": "9"}])

    assert BEFORE["containers"][0]["image"] == "1"  # type: ignore[index]


# --- apply --------------------------------------------------------------------------------------------------------------


async def apply(
    ask: Ask, path: str, who: str, body: dict[str, Any], *, force: bool = False
) -> tuple[int, Any]:
    kinds = {MAPS: ("v1", "ConfigMap"), WIDGET: ("example.io/v1", "Widget")}[path]
    raw = {"apiVersion": kinds[0], "kind": kinds[1], "metadata": {"name": path.rpartition("/")[2]}, **body}
    forced = "&force=true" if force else ""
    answer: tuple[int, Any] = await ask.json(
        "PATCH", f"{path}?fieldManager={who}{forced}", raw, media=APPLY_PATCH
    )
    return answer


async def test_apply_creates_and_then_changes(ask: Ask) -> None:
    first, _ = await apply(ask, MAPS, "one", {"data": {"a": "1"}})
    second, after = await apply(ask, MAPS, "one", {"data": {"a": "2"}})

    assert (first, second, after["data"]) == (201, 200, {"a": "2"})


async def test_applying_the_same_again_changes_nothing(ask: Ask) -> None:
    _, first = await apply(ask, MAPS, "one", {"data": {"a": "1"}})

    assert (await apply(ask, MAPS, "one", {"data": {"a": "1"}}))[1] == first


async def test_what_a_manager_no_longer_wants_goes(ask: Ask) -> None:
    await apply(ask, MAPS, "one", {"data": {"a": "1", "b": "1"}})

    _, after = await apply(ask, MAPS, "one", {"data": {"b": "1"}})

    assert after["data"] == {"b": "1"}


async def test_what_another_manager_also_wants_stays(ask: Ask) -> None:
    await apply(ask, MAPS, "one", {"data": {"a": "1", "b": "1"}})
    await apply(ask, MAPS, "two", {"data": {"a": "1"}})

    _, after = await apply(ask, MAPS, "one", {"data": {"b": "1"}})

    assert after["data"] == {"a": "1", "b": "1"}


async def test_a_value_that_another_manager_owns_conflicts_unless_forced(ask: Ask) -> None:
    await apply(ask, WIDGET, "one", {"spec": {"size": 1, "color": "red"}})

    status, clash = await apply(ask, WIDGET, "two", {"spec": {"size": 2}})
    forced, after = await apply(ask, WIDGET, "two", {"spec": {"size": 2}}, force=True)
    back, _ = await apply(ask, WIDGET, "one", {"spec": {"size": 1, "color": "red"}})

    assert status == 409
    assert clash["message"] == 'Apply failed with 1 conflict: conflict with "one": .spec.size'
    assert clash["details"]["causes"][0]["reason"] == "FieldManagerConflict"
    assert (forced, after["spec"]["size"], back) == (200, 2, 409)


async def test_an_ordinary_write_takes_the_field_over(ask: Ask) -> None:
    await apply(ask, MAPS, "one", {"data": {"a": "1"}})
    await ask("PATCH", MAPS, {"data": {"a": "2"}}, media=MERGE_PATCH, User_Agent="editor/1.0 (linux)")

    status, clash = await apply(ask, MAPS, "one", {"data": {"a": "1"}})

    assert status == 409
    assert 'conflict with "editor" using v1: .data.a' in clash["message"]


async def test_an_object_that_nobody_applied_belongs_to_those_before(ask: Ask) -> None:
    await ask(
        "POST", "/api/v1/namespaces/default/configmaps", {"metadata": {"name": "m"}, "data": {"a": "1"}}
    )

    same, _ = await apply(ask, MAPS, "one", {"data": {"a": "1"}})
    status, clash = await apply(ask, MAPS, "two", {"data": {"a": "2"}})

    assert (same, status) == (200, 409)
    assert (
        'conflicts with "before-first-apply"' in clash["message"]
        or '"before-first-apply"' in clash["message"]
    )


async def test_keyed_lists_and_sets_are_shared_between_managers(ask: Ask) -> None:
    await apply(
        ask, WIDGET, "one", {"spec": {"size": 1, "tags": ["a"], "parts": [{"name": "x", "weight": 1}]}}
    )
    await apply(ask, WIDGET, "two", {"spec": {"tags": ["b"], "parts": [{"name": "y", "weight": 2}]}})

    _, after = await apply(ask, WIDGET, "one", {"spec": {"size": 1}})

    assert after["spec"]["tags"] == ["b"]
    assert after["spec"]["parts"] == [{"name": "y", "weight": 2}]


async def test_an_item_that_another_manager_builds_on_stays_without_ones_fields(ask: Ask) -> None:
    await apply(ask, WIDGET, "one", {"spec": {"size": 1, "parts": [{"name": "x", "weight": 1}]}})
    await apply(ask, WIDGET, "two", {"spec": {"parts": [{"name": "x"}]}})

    _, after = await apply(ask, WIDGET, "one", {"spec": {"size": 1}})

    assert after["spec"]["parts"] == [{"name": "x"}]


@pytest.mark.parametrize(
    ("path", "body", "code", "said"),
    [
        (MAPS, {}, 422, "fieldManager: Required value: is required for apply patch"),
        (MAPS + "?fieldManager=x", {"metadata": {"managedFields": [{"manager": "y"}]}}, 400, "must be nil"),
        (
            MAPS + "?fieldManager=x",
            {"metadata": {"name": "other"}},
            400,
            "does not match the name on the URL",
        ),
    ],
)
async def test_a_wrong_apply_is_refused(
    ask: Ask, path: str, body: dict[str, Any], code: int, said: str
) -> None:
    status, answer = await ask.json(
        "PATCH", path, {"apiVersion": "v1", "kind": "ConfigMap", **body}, media=APPLY_PATCH
    )

    assert status == code
    assert said in answer["message"]


async def test_objects_that_never_met_an_apply_carry_no_managers(ask: Ask) -> None:
    _, made = await ask.json("POST", "/api/v1/namespaces/default/configmaps", {"metadata": {"name": "m"}})

    assert "managedFields" not in made["metadata"]
