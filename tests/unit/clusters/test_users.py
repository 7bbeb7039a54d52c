"""What Clusters use begins with the first user and ends with the last."""

from __future__ import annotations

from windrow.clusters.api.kinds import CLUSTER
from windrow.clusters.sources.users import UserIndex

ONE, OTHER = CLUSTER.ref("one", "ns"), CLUSTER.ref("other", "ns")


def test_a_thing_begins_with_its_first_user_and_ends_with_its_last() -> None:
    index: UserIndex[str] = UserIndex()

    assert index.update(ONE, {"b", "a"}) == (["a", "b"], [])
    assert index.update(OTHER, {"b"}) == ([], [])
    assert index.users_of("b") == {ONE, OTHER}
    assert index.update(ONE, {"b", "c"}) == (["c"], ["a"])
    assert index.update(ONE, ()) == ([], ["c"])
    assert index.update(OTHER, ()) == ([], ["b"])


def test_nothing_is_kept_of_what_is_not_used_any_more() -> None:
    index: UserIndex[str] = UserIndex()
    index.update(ONE, {"a"})
    assert (set(index.in_use()), index.used_by(ONE), index.used_by(OTHER)) == ({"a"}, {"a"}, frozenset())

    index.update(ONE, ())

    assert (set(index.in_use()), index.used_by(ONE), index.users_of("a")) == (set(), frozenset(), set())
    assert index.update(ONE, ()) == ([], [])
