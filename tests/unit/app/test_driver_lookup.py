from __future__ import annotations

from typing import Any

from windrow.app.machines import driver_for_kind
from windrow.drivers.api import NodeDriver
from windrow.machines.port import Problem


def a_driver(**fields: Any) -> NodeDriver:
    status = {"driverName": "noop", "configKind": "NoopConfig"}
    made = {"name": "nd-1", "uid": "u", "url": "", "checksum": "", "active": True, "status": status, **fields}
    return NodeDriver(**made)


def test_a_kind_is_its_driver_s_by_the_driver_s_own_name():
    assert driver_for_kind("NoopConfig", [a_driver()]) == "noop"


def test_a_kind_whose_driver_is_switched_off_is_refused_with_the_command_that_helps():
    found = driver_for_kind("NoopConfig", [a_driver(active=False)])

    assert isinstance(found, Problem)
    assert str(found) == (
        "NodeDriver nd-1, which provides that kind, is not active; activate it: windrow driver enable nd-1"
    )


def test_a_kind_of_no_driver_and_of_one_that_is_going_is_refused():
    for drivers in ([], [a_driver(is_deleting=True)]):
        found = driver_for_kind("NoopConfig", drivers)
        assert isinstance(found, Problem)
        assert found.message == "no NodeDriver provides that kind"


def test_harvester_s_kind_is_given_also_where_no_record_says_so():
    assert driver_for_kind("HarvesterConfig", [a_driver()]) == "harvester"


def test_harvester_s_kind_can_be_switched_off():
    off = a_driver(name="harvester", built_in_kind="HarvesterConfig", active=False, status={})

    assert isinstance(driver_for_kind("HarvesterConfig", [off]), Problem)
