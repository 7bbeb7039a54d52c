"""Strategic patches and server-side apply (reference/05 §7.10)."""

from __future__ import annotations

from typing import Any

import pytest

from windrow.apiserver.fieldmanager.strategic import apply_strategic_patch
from windrow.apiserver.types.builtins import POD_SPEC
from windrow.kubernetes.requests import APPLY_PATCH, MERGE_PATCH

MAPS = "/api/v1/namespaces/default/configmaps/m"
WIDGET = "/apis/example.io/v1/namespaces/default/widgets/w"
Api = Any

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


def test_strings_are_added_to_and_deleted_from_a_primitive_list() -> None:
    schema = {"properties": {"f": {"type": "array", "x-kubernetes-patch-strategy": "merge"}}}

    added = apply_strategic_patch(schema, {"f": ["a", "b"]}, {"f": ["c"]})
    taken = apply_strategic_patch(schema, {"f": ["a", "b"]}, {"$deleteFromPrimitiveList/f": ["a"]})

    assert (sorted(added["f"]), taken) == (["a", "b", "c"], {"f": ["b"]})


def test_the_patched_object_shares_nothing_that_the_patch_changes() -> None:
    patched(containers=[{"name": "a", "image": "9"}])

    assert BEFORE["containers"][0]["image"] == "1"  # type: ignore[index]


# --- apply --------------------------------------------------------------------------------------------------------------


async def apply(
    api: Api, path: str, who: str, body: dict[str, Any], *, force: bool = False
) -> tuple[int, Any]:
    kinds = {MAPS: ("v1", "ConfigMap"), WIDGET: ("example.io/v1", "Widget")}[path]
    raw = {"apiVersion": kinds[0], "kind": kinds[1], "metadata": {"name": path.rpartition("/")[2]}, **body}
    forced = "&force=true" if force else ""
    answer: tuple[int, Any] = await api.json(
        "PATCH", f"{path}?fieldManager={who}{forced}", raw, media=APPLY_PATCH
    )
    return answer


async def test_apply_creates_and_then_changes(api: Api) -> None:
    first, _ = await apply(api, MAPS, "one", {"data": {"a": "1"}})
    second, after = await apply(api, MAPS, "one", {"data": {"a": "2"}})

    assert (first, second, after["data"]) == (201, 200, {"a": "2"})


async def test_applying_the_same_again_changes_nothing(api: Api) -> None:
    _, first = await apply(api, MAPS, "one", {"data": {"a": "1"}})

    assert (await apply(api, MAPS, "one", {"data": {"a": "1"}}))[1] == first


async def test_a_field_that_its_manager_no_longer_applies_is_removed(api: Api) -> None:
    await apply(api, MAPS, "one", {"data": {"a": "1", "b": "1"}})

    _, after = await apply(api, MAPS, "one", {"data": {"b": "1"}})

    assert after["data"] == {"b": "1"}


async def test_a_field_that_another_manager_applies_too_is_kept(api: Api) -> None:
    await apply(api, MAPS, "one", {"data": {"a": "1", "b": "1"}})
    await apply(api, MAPS, "two", {"data": {"a": "1"}})

    _, after = await apply(api, MAPS, "one", {"data": {"b": "1"}})

    assert after["data"] == {"a": "1", "b": "1"}


async def test_a_value_that_another_manager_owns_conflicts_unless_forced(api: Api) -> None:
    await apply(api, WIDGET, "one", {"spec": {"size": 1, "color": "red"}})

    status, clash = await apply(api, WIDGET, "two", {"spec": {"size": 2}})
    forced, after = await apply(api, WIDGET, "two", {"spec": {"size": 2}}, force=True)
    back, _ = await apply(api, WIDGET, "one", {"spec": {"size": 1, "color": "red"}})

    assert status == 409
    assert clash["message"] == 'Apply failed with 1 conflict: conflict with "one": .spec.size'
    assert clash["details"]["causes"][0]["reason"] == "FieldManagerConflict"
    assert (forced, after["spec"]["size"], back) == (200, 2, 409)


async def test_an_ordinary_write_takes_the_field_over(api: Api) -> None:
    await apply(api, MAPS, "one", {"data": {"a": "1"}})
    await api("PATCH", MAPS, {"data": {"a": "2"}}, media=MERGE_PATCH, User_Agent="editor/1.0 (linux)")

    status, clash = await apply(api, MAPS, "one", {"data": {"a": "1"}})

    assert status == 409
    assert 'conflict with "editor" using v1: .data.a' in clash["message"]


async def test_an_object_never_applied_is_owned_by_before_first_apply(api: Api) -> None:
    await api(
        "POST", "/api/v1/namespaces/default/configmaps", {"metadata": {"name": "m"}, "data": {"a": "1"}}
    )

    same, _ = await apply(api, MAPS, "one", {"data": {"a": "1"}})
    status, clash = await apply(api, MAPS, "two", {"data": {"a": "2"}})

    assert (same, status) == (200, 409)
    assert (
        'conflicts with "before-first-apply"' in clash["message"]
        or '"before-first-apply"' in clash["message"]
    )


async def test_keyed_lists_and_sets_are_shared_between_managers(api: Api) -> None:
    await apply(
        api, WIDGET, "one", {"spec": {"size": 1, "tags": ["a"], "parts": [{"name": "x", "weight": 1}]}}
    )
    await apply(api, WIDGET, "two", {"spec": {"tags": ["b"], "parts": [{"name": "y", "weight": 2}]}})

    _, after = await apply(api, WIDGET, "one", {"spec": {"size": 1}})

    assert after["spec"]["tags"] == ["b"]
    assert after["spec"]["parts"] == [{"name": "y", "weight": 2}]


async def test_a_list_item_with_fields_of_another_manager_keeps_those(api: Api) -> None:
    await apply(api, WIDGET, "one", {"spec": {"size": 1, "parts": [{"name": "x", "weight": 1}]}})
    await apply(api, WIDGET, "two", {"spec": {"parts": [{"name": "x"}]}})

    _, after = await apply(api, WIDGET, "one", {"spec": {"size": 1}})

    assert after["spec"]["parts"] == [{"name": "x"}]


async def test_a_text_that_is_applied_as_a_map_and_a_map_as_a_text_are_what_was_applied(api: Api) -> None:
    for value in ("text", {"a": {"b": "c"}}, "other"):
        _, after = await apply(api, WIDGET, "one", {"spec": {"size": 1, "free": {"config": value}}})

        assert after["spec"]["free"] == {"config": value}


@pytest.mark.parametrize(
    ("path", "body", "code", "message"),
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
    api: Api, path: str, body: dict[str, Any], code: int, message: str
) -> None:
    status, answer = await api.json(
        "PATCH", path, {"apiVersion": "v1", "kind": "ConfigMap", **body}, media=APPLY_PATCH
    )

    assert status == code
    assert message in answer["message"]


async def test_objects_that_never_met_an_apply_carry_no_managers(api: Api) -> None:
    _, made = await api.json("POST", "/api/v1/namespaces/default/configmaps", {"metadata": {"name": "m"}})

    assert "managedFields" not in made["metadata"]
