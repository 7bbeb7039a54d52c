"""The default StorageClass, and which claims may grow: the plugins of kube-apiserver, on the host and in guests."""

from __future__ import annotations

import pytest

from windrow.emulator.storage.classes import check_resize, class_of, find_default, is_default, set_default
from windrow.kubernetes.errors import Forbidden
from windrow.kubernetes.objects import Raw

DEFAULT = "storageclass.kubernetes.io/is-default-class"
BETA = "storageclass.beta.kubernetes.io/is-default-class"


def a_class(name: str, made: str = "2026-01-01T12:00:00Z", **marks: str) -> Raw:
    return {"metadata": {"name": name, "creationTimestamp": made, "annotations": marks}}


def a_claim(size: str = "1Gi", storage_class: str | None = "slow", **marks: str) -> Raw:
    spec = {"resources": {"requests": {"storage": size}}}
    named = {} if storage_class is None else {"storageClassName": storage_class}
    return {"metadata": {"name": "data", "annotations": marks}, "spec": {**spec, **named}}


def test_the_newest_of_several_default_classes_is_the_default_and_of_one_second_the_first_by_name():
    old = a_class("a-old", "2026-01-01T11:00:00Z", **{DEFAULT: "true"})
    new = [a_class(name, **{mark: "true"}) for name, mark in (("z", DEFAULT), ("m", BETA))]
    last = a_class("newest", "2026-01-02T00:00:00Z", **{DEFAULT: "false"})

    assert find_default([old, *new, last]) is new[1]
    assert find_default([old, new[0], last]) is new[0]
    assert find_default([last]) is None
    assert not is_default(last)


def test_a_claim_that_names_no_class_gets_the_default_one():
    classes = [a_class("fast", **{DEFAULT: "true"})]
    unnamed, none, old_way = (
        a_claim(storage_class=None),
        a_claim(storage_class=""),
        a_claim(storage_class=None),
    )
    old_way["metadata"]["annotations"] = {"volume.beta.kubernetes.io/storage-class": "slow"}
    for claim in (unnamed, none, old_way):
        set_default(claim, classes)

    assert [class_of(one) for one in (unnamed, none, old_way)] == ["fast", "", "slow"]
    assert "storageClassName" not in old_way["spec"]


@pytest.mark.parametrize("storage_class", [None, {}, {"allowVolumeExpansion": False}])
def test_a_claim_does_not_grow_where_its_class_does_not_allow_it(storage_class: Raw | None):
    with pytest.raises(Forbidden) as caught:
        check_resize(a_claim("2Gi"), a_claim("1Gi"), storage_class)

    assert caught.value.message == (
        'persistentvolumeclaims "data" is forbidden: only dynamically provisioned pvc can be resized and the storageclass '
        "that provisions the pvc must support resize"
    )


def test_a_claim_grows_where_its_class_allows_it_and_is_otherwise_as_large_as_before():
    check_resize(a_claim("2Gi"), a_claim("1Gi"), {"allowVolumeExpansion": True})
    check_resize(a_claim("1024Mi"), a_claim("1Gi"), None)
