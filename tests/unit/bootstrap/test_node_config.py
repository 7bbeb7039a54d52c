from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from windrow.bootstrap import node_config
from windrow.bootstrap.spec import BootstrapSpec, Role

Make = Callable[..., BootstrapSpec]


def test_entries_that_select_the_machine_are_merged_over_the_global_ones_in_order(a_spec: Make) -> None:
    spec = a_spec(
        global_config={"a": 1, "b": 1, "c": 1},
        selector_config=[
            {"config": {"b": 2}},
            {"machineLabelSelector": {"matchLabels": {"pool": "one"}}, "config": {"c": [3]}},
            {"machineLabelSelector": {"matchLabels": {"pool": "two"}}, "config": {"a": 4}},
            {
                "machineLabelSelector": {"matchExpressions": [{"key": "pool", "operator": "Exists"}]},
                "config": None,
            },
        ],
        machine_labels={"pool": "one"},
    )

    assert node_config.merge_config(spec) == {"a": 1, "b": 2, "c": [3]}


def test_merging_leaves_what_it_was_given_as_it_was(a_spec: Make) -> None:
    given = {"a": 1}

    node_config.merge_config(a_spec(global_config=given, selector_config=[{"config": {"a": 2}}]))

    assert given == {"a": 1}


@pytest.mark.parametrize(
    ("label", "allowed"),
    [
        ("tier", True),
        ("example.org/tier", True),
        ("notkubernetes.io/tier", True),
        ("rke.cattle.io/machine", True),
        ("node.kubernetes.io/pool", True),
        ("gpu.node.kubernetes.io/kind", True),
        ("topology.kubernetes.io/zone", True),
        ("node-role.kubernetes.io/worker", False),
        ("kubernetes.io/role", False),
        ("node-restriction.kubernetes.io/tier", False),
        ("x.k8s.io/y", False),
    ],
)
def test_a_kubelet_sets_only_labels_that_it_is_allowed_to(label: str, allowed: bool) -> None:
    assert node_config.kubelet_may_set(label) is allowed


@given(
    st.dictionaries(
        st.sampled_from(["tier", "x.k8s.io/y", "node-role.kubernetes.io/db", "a.b/c"]), st.text("ab")
    )
)
def test_every_label_is_set_by_exactly_one_of_kubelet_and_manager(labels: dict[str, str]) -> None:
    by_kubelet = {label for label in labels if node_config.kubelet_may_set(label)}
    spec = BootstrapSpec("c", "h", "uid", "v1.35.1+rke2r1", frozenset({Role.ETCD}), None, True, labels=labels)  # type: ignore[arg-type]

    set_by_itself = {text.partition("=")[0] for text in node_config.kubelet_labels(spec)}

    assert set_by_itself - {node_config.MACHINE_LABEL, node_config.OS_LABEL} == by_kubelet
    assert set(node_config.manager_labels(labels, spec.roles)) == set(labels) - by_kubelet


def test_a_node_says_which_machine_it_is_whatever_its_pool_says(a_spec: Make) -> None:
    spec = a_spec(labels={"rke.cattle.io/machine": "another", "tier": "db"})

    assert node_config.kubelet_labels(spec) == [
        "rke.cattle.io/machine=5d0c1a6e-machine",
        "tier=db",
        "cattle.io/os=linux",
    ]


def test_the_worker_label_is_left_to_the_manager() -> None:
    assert node_config.manager_labels({}, frozenset(Role)) == {"node-role.kubernetes.io/worker": "true"}
    assert node_config.manager_labels({}, frozenset({Role.ETCD})) == {}


ETCD, CONTROL = "node-role.kubernetes.io/etcd:NoExecute", "node-role.kubernetes.io/control-plane:NoSchedule"


@pytest.mark.parametrize(
    ("roles", "taints"),
    [
        ({Role.ETCD, Role.CONTROL_PLANE, Role.WORKER}, []),
        ({Role.ETCD, Role.CONTROL_PLANE}, [ETCD, CONTROL]),
        ({Role.ETCD}, [ETCD]),
        ({Role.CONTROL_PLANE}, [CONTROL]),
        ({Role.CONTROL_PLANE, Role.WORKER}, []),
        ({Role.WORKER}, []),
    ],
)
def test_only_servers_without_workload_are_tainted(a_spec: Make, roles: set[Role], taints: list[str]) -> None:
    assert node_config.node_taints(a_spec(roles=frozenset(roles))) == taints


def test_the_pools_taints_come_first(a_spec: Make) -> None:
    spec = a_spec(roles=frozenset({Role.ETCD}), taints=("gpu=yes:NoSchedule", ETCD))

    assert node_config.node_taints(spec) == ["gpu=yes:NoSchedule", ETCD]


@pytest.mark.parametrize(
    ("value", "found"), [(None, []), ("", []), ("a", ["a"]), (["a", "b"], ["a", "b"]), (0, [0])]
)
def test_a_repeatable_key_may_hold_nothing_one_value_or_several(value: object, found: list[object]) -> None:
    assert node_config.list_of(value) == found
