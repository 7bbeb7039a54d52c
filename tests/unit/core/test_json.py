import pytest

from windrow.core.formats import json
from windrow.core.formats.json import MAX_DEPTH, NotJson, check_bounds


@pytest.mark.parametrize("depth", [MAX_DEPTH + 1, 900, 100_000])
def test_a_deep_value_is_refused(depth: int) -> None:
    with pytest.raises(NotJson):
        json.loads("[" * depth + "]" * depth)


def test_a_value_of_the_greatest_depth_is_read() -> None:
    assert json.loads("[" * MAX_DEPTH + "]" * MAX_DEPTH)


def test_values_are_counted_in_lists_and_objects() -> None:
    value = {"a": [1, 2], "b": {"c": 3}}

    check_bounds(value, 6)
    with pytest.raises(NotJson, match="more than 5 values"):
        check_bounds(value, 5)
