"""What an affinity requires of hosts that there are not."""

from __future__ import annotations

from typing import Any

import pytest

from windrow.core.formats.json import dumps
from windrow.nodedriver.affinity import REQUIRED
from windrow.nodedriver.config import Configuration
from windrow.nodedriver.validate.host_labels import find_label_problems, requires_hosts
from windrow.nodedriver.validate.hosts import find_host_problems, read_offer

HOSTS = {
    "host-1": {"zone": "zone-1", "disk": "hdd", "rank": "7"},
    "host-2": {"zone": "zone-2", "disk": "ssd", "rank": "none"},
}


def expression(key: str, operator: str, *values: str) -> dict[str, Any]:
    return {"key": key, "operator": operator, "values": list(values)}


def affinity(*terms: list[Any], fields: list[Any] | None = None) -> dict[str, Any]:
    rendered: list[dict[str, Any]] = [{"matchExpressions": term} for term in terms]
    if fields is not None:
        rendered.append({"matchFields": fields})
    return {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": rendered}}}


def told(given: Any) -> list[tuple[str, str]]:
    found = list(find_label_problems(given, HOSTS))
    assert {(one.severity, one.field) for one in found} <= {("warning", "vmAffinity")}
    start, end = "vmAffinity requires a host with ", ", so the VM is not started"
    return [(one.message.removeprefix(start).removesuffix(end), one.hint) for one in found]


@pytest.mark.parametrize(
    "term",
    [
        [expression("zone", "In", "zone-9", "zone-2")],
        [expression("zone", "NotIn", "zone-1")],
        [expression("gpu", "NotIn", "a2")],
        [expression("zone", "Exists")],
        [expression("gpu", "DoesNotExist")],
        [expression("rank", "Gt", "6")],
        [expression("rank", "Lt", "8")],
        [expression("zone", "In", "zone-2"), expression("disk", "In", "ssd")],
        [],
    ],
    ids=str,
)
def test_what_a_host_has_is_nothing_to_tell(term: list[Any]) -> None:
    assert told(affinity(term)) == []
    assert told(affinity([expression("zone", "In", "zone-9")], term)) == []


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (affinity([expression("zone", "In", "zone-9")]), "zone in (zone-9) (hosts have zone-1, zone-2)"),
        (affinity([expression("gpu", "In", "a2", "a1")]), "gpu in (a1, a2) (no host has that label)"),
        (affinity([expression("gpu", "Exists")]), "a label gpu (no host has that label)"),
        (affinity([expression("zone", "DoesNotExist")]), "no label zone (hosts have zone-1, zone-2)"),
        (
            affinity([expression("zone", "NotIn", "zone-1", "zone-2")]),
            "zone not in (zone-1, zone-2) (hosts have zone-1, zone-2)",
        ),
        (affinity([expression("rank", "Gt", "7")]), "rank above 7 (hosts have 7, none)"),
        (affinity([expression("rank", "Lt", "7")]), "rank below 7 (hosts have 7, none)"),
        (affinity([expression("gpu", "Lt", "7")]), "gpu below 7 (no host has that label)"),
        (affinity([expression("rank", "Lt")]), "rank below  (hosts have 7, none)"),
        (
            affinity([expression("zone", "In", "zone-1"), expression("disk", "In", "ssd")]),
            "zone in (zone-1) and disk in (ssd) (no host has them together)",
        ),
        (
            affinity([expression("zone", "In", "zone-1"), expression("disk", "In", "nvme")]),
            "disk in (nvme) (hosts have hdd, ssd)",
        ),
        (
            affinity([expression("zone", "In", "z")], fields=[expression("metadata.name", "In", "host-3")]),
            "zone in (z) (hosts have zone-1, zone-2), or metadata.name in (host-3) (the hosts are host-1, host-2)",
        ),
    ],
    ids=str,
)
def test_what_no_host_has_is_told_with_what_hosts_have(given: Any, message: str) -> None:
    assert [one for one, _ in told(given)] == [message]


def test_a_name_of_a_host_is_found_among_the_fields() -> None:
    assert told(affinity(fields=[expression("metadata.name", "In", "host-2")])) == []
    assert len(told(affinity(fields=[expression("zone", "In", "zone-1")]))) == 1
    assert len(told(affinity([expression("metadata.name", "In", "host-2")]))) == 1


def test_a_label_that_is_nearly_written_so_is_named() -> None:
    [(_, hint)] = told(affinity([expression("zones", "In", "zone-1")]))
    assert hint == "label a host so, or correct vmAffinity: hosts have the label zone"
    [(_, hint)] = told(affinity([expression("zone", "In", "zone-9")]))
    assert hint == "label a host so, or correct vmAffinity"


def test_many_values_are_counted() -> None:
    hosts = {f"h{n}": {"zone": f"z{n}"} for n in range(7)}
    [problem] = find_label_problems(affinity([expression("zone", "In", "z9")]), hosts)
    assert "(hosts have z0, z1, z2, z3, z4 and 2 more)" in problem.message


@pytest.mark.parametrize(
    "given",
    [
        None,
        5,
        {},
        {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": "x"}}},
        affinity([{"key": 5, "operator": "In"}]),
        affinity([{"key": "a", "operator": "Within", "values": ["b"]}]),
        affinity([{"key": "a", "operator": "In", "values": "b"}]),
        affinity([]),
    ],
    ids=str,
)
def test_what_cannot_be_read_or_is_met_by_every_host_asks_nothing(given: Any) -> None:
    assert not requires_hosts(given)
    assert told(given) == []


def test_labels_are_read_of_the_nodes() -> None:
    raw = {"metadata": {"name": "host-1", "labels": {"disk": "hdd"}}}
    given = dumps(affinity([expression("disk", "In", "ssd")])).decode()

    [found] = find_host_problems([Configuration(vm_affinity=given)], [read_offer(raw)])

    assert "disk in (ssd) (hosts have hdd)" in found.message
    assert list(find_label_problems(affinity([expression("disk", "In", "ssd")]), {})) == []
