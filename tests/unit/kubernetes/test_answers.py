"""What an answer, a list and an object of it may be."""

import pytest

from windrow.kubernetes.errors import ServerError, list_items, require_few_values, require_list

NAMED = {"metadata": {"name": "a"}}


@pytest.mark.parametrize(("share", "most"), [(1, 1_000_000), (10, 100_000)])
def test_an_answer_has_so_many_objects_and_lists_and_an_object_a_share(share, most):
    require_few_values(b"{[" * (most // 2), "an answer", share)
    with pytest.raises(ServerError, match=f"at most {most} objects and lists in items.3., found more"):
        require_few_values(b"{[" * (most // 2) + b"{", "items[3]", share)


@pytest.mark.parametrize(("share", "most"), [(1, 2_000_000), (10, 200_000)])
def test_an_answer_has_so_many_values_and_an_object_a_share(share, most):
    require_few_values(b"0" + b"," * most, "an answer", share)
    with pytest.raises(ServerError, match=f"at most {most} values in an answer, found more"):
        require_few_values(b"0," + b"," * most, "an answer", share)


@pytest.mark.parametrize("text", [b"[" * 250_000, b',\\"' * 250_000, b"{\\\\" * 250_000])
def test_what_is_in_the_texts_of_an_object_does_not_count(text):
    """A tenant's annotation of 256 KiB must not hide all other objects of the list."""
    require_few_values(b'{"a":"%s","b":{}}' % text, "items[3]", 10)
    for more in (b"{}," * 100_001, b"0," * 200_001):
        with pytest.raises(ServerError, match=r"in items\[3\], found more"):
            require_few_values(b'{"a":"%s","b":[%s0]}' % (text, more), "items[3]", 10)


def test_beside_a_text_an_object_has_as_many_values_and_lists_as_without_it():
    noise = b"[," * 250_000
    require_few_values(b'{"a":"%s","b":[%s]}' % (noise, b"{}" * 99_998), "items[3]", 10)
    require_few_values(b'{"a":"%s","b":[%s]}' % (noise, b"," * 199_999), "items[3]", 10)
    for more in (b"{}" * 99_999, b"," * 200_000):
        with pytest.raises(ServerError, match="found more"):
            require_few_values(b'{"a":"%s","b":[%s]}' % (noise, more), "items[3]", 10)


@pytest.mark.parametrize("mark", [b"[", b"{", b",,"])
def test_in_a_whole_answer_texts_count(mark):
    """It may be large, and is looked through at once."""
    with pytest.raises(ServerError, match="in an answer, found more"):
        require_few_values(b'{"a":"%s"}' % (mark * 1_000_001))


def test_of_more_texts_than_an_object_can_have_values_those_ahead_are_looked_at():
    """So much is never taken apart: the rest counts with its texts."""
    with pytest.raises(ServerError, match="found more"):
        require_few_values(b'""' * 800_001 + b'"%s"' % (b"," * 200_001), "items[3]", 10)


def test_the_items_of_a_list_are_objects_with_names_where_they_are_decoded():
    assert list_items({"metadata": {}, "items": [NAMED]}) == [NAMED]
    assert require_list({"metadata": {}, "items": [7]}) == [7]
    assert list_items({"metadata": {}, "items": None}) == require_list({"metadata": {}, "items": None}) == []
    with pytest.raises(ServerError, match=r"wanted an object in items\[1\], found a int"):
        list_items({"metadata": {}, "items": [NAMED, 7]})
