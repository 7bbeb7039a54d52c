"""Where Longhorn has the replicas of volumes."""

from __future__ import annotations

from windrow.emulator.host.longhorn_scheduling import NO_SPACE, ReplicaScheduler


def a_scheduler(percent: int = 100, down: str = "", **sizes: int) -> ReplicaScheduler:
    return ReplicaScheduler(sizes or {"a": 10, "b": 10, "c": 10}, lambda: percent, lambda host: host != down)


def test_replicas_are_on_the_hosts_with_the_least_of_them_by_name_among_equals():
    replicas = a_scheduler()

    assert replicas.place("one", 6, 2).hosts == ("a", "b")
    assert replicas.place("two", 3, 1).hosts == ("c",)
    assert replicas.place("three", 4, 3).hosts == ("c", "a", "b")
    assert replicas.place("one", 6, 2).hosts == ("a", "b"), "it is placed once"


def test_a_volume_with_room_for_one_replica_is_placed_and_degraded():
    found = a_scheduler(a=10, b=5).place("one", 6, 3)

    assert (found.hosts, found.problem, found.is_degraded) == (("a",), "", True)
    assert not a_scheduler().place("one", 6, 3).is_degraded


def test_a_volume_without_room_is_placed_once_there_is_room():
    replicas = a_scheduler(a=10)
    replicas.place("first", 5, 1)

    assert replicas.place("second", 6, 1).problem == NO_SPACE
    replicas.release("first")
    replicas.release("first")
    assert replicas.place("second", 6, 1).hosts == ("a",)
    assert replicas.place("third", 4, 1).hosts == ("a",), "exactly full"
    assert replicas.place("fourth", 1, 1).problem == NO_SPACE


def test_storage_is_committed_over_what_there_is_by_the_percentage():
    assert a_scheduler(200, a=10).place("one", 20, 1).hosts == ("a",)
    assert a_scheduler(199, a=10).place("one", 20, 1).problem == NO_SPACE


def test_a_host_that_is_not_ready_gets_no_replica():
    assert a_scheduler(down="a").place("one", 1, 3).hosts == ("b", "c")


def test_a_volume_grows_where_all_its_hosts_have_room():
    replicas = a_scheduler(a=10, b=6)
    replicas.place("one", 4, 2)

    assert replicas.grow("one", 4) == ""
    assert replicas.grow("unknown", 400) == ""
    assert replicas.grow("one", 6) == ""
    assert replicas.grow("one", 7) == (
        "cannot schedule 1 more bytes to the disk of b for one: insufficient storage"
    )
    assert replicas.place("two", 4, 2).hosts == ("a",), "it has grown to 6"
    replicas.release("one")
    assert replicas.place("three", 6, 2).hosts == ("b", "a")
