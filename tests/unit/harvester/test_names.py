from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from windrow.harvester.names import is_label_value, label_value, machine_set_label, pool_label


def test_the_hash_of_a_name_that_does_not_fit_is_the_drivers() -> None:
    assert label_value("machineSetName" * 12) == "hash_FR_ghQ_z"


@pytest.mark.parametrize(
    ("namespace", "machine", "label"),
    [
        ("ns1", "c1-pool1-abcde-fghij", "ns1-c1-pool1"),
        ("my-ns", "c1-pool1-abcde-fghij", "my-ns-c1-pool1"),
        ("ns1", "c1-abcde-fghij", "ns1-c1"),
        ("ns1", "lonely", "ns1-lonely"),
        ("ns1", "a-b", "ns1-a-b"),
    ],
)
def test_a_machine_set_is_named_after_its_machines(namespace: str, machine: str, label: str) -> None:
    assert machine_set_label(namespace, machine) == label


@pytest.mark.parametrize(
    ("cluster", "machine", "label"),
    [
        ("c1", "c1-pool1-abcde-fghij", "pool1-abcde"),
        ("51", "51-pool1-wfw6m-x2x2x", "pool1-wfw6m"),
        ("c1", "other-abcde-fghij", "other-abcde"),
        ("c1", "lonely", "lonely"),
        ("c1", "c1-fghij", ""),
    ],
)
def test_a_pool_is_named_after_its_machines(cluster: str, machine: str, label: str) -> None:
    assert pool_label(cluster, machine) == label


@given(st.text(max_size=100), st.text(max_size=100))
def test_labels_always_fit(namespace: str, machine: str) -> None:
    assert is_label_value(machine_set_label(namespace, machine))
    assert is_label_value(pool_label(namespace, machine))
