"""Lists of the Kubernetes API whose items are decoded later."""

import pytest

from windrow.core.formats.fastjson import loads, loads_list
from windrow.core.formats.json import NotJson

HEAD = {"kind": "PodList", "metadata": {"resourceVersion": "5"}}


@pytest.mark.parametrize(
    ("items", "wanted"),
    [
        ("", {}),
        (',"items":null', {"items": None}),
        (',"items":[]', {"items": []}),
        (',"items":[{"a":[1]}, 7]', {"items": [{"a": [1]}, 7]}),
        (',"items":{"a":1}', {"items": {}}),
        (',"items":"text"', {"items": {}}),
    ],
)
def test_the_items_of_a_list_are_texts_and_all_else_is_decoded(items, wanted):
    found = loads_list(
        f'{{"kind":"PodList","metadata":{{"resourceVersion":"5"}},"other":{{}}{items}}}'.encode()
    )
    if isinstance(found.get("items"), list):
        found["items"] = [loads(bytes(text)) for text in found["items"]]

    assert found == HEAD | wanted


@pytest.mark.parametrize(
    "text", ["[]", "<html>", '{"items":[}', '{"metadata":nothing}', '{"kind":"a', "[" * 5000]
)
def test_what_is_no_json_object_is_refused(text):
    with pytest.raises(NotJson):
        loads_list(text.encode())


def test_a_list_without_kind_and_metadata_has_neither():
    assert loads_list(b"{}") == {"kind": None, "metadata": None}
