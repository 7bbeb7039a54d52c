"""Which affinity KubeVirt and the API server refuse, each fault with its path."""

from __future__ import annotations

from typing import Any

import pytest

from windrow.nodedriver.affinity import PREFERRED, REQUIRED
from windrow.nodedriver.validate.affinity import find_affinity_problems

Raw = dict[str, Any]
POD_KINDS = ("podAffinity", "podAntiAffinity")
ZONE = "topology.kubernetes.io/zone"


def required_nodes(*terms: Any) -> Raw:
    return {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": list(terms)}}}


def expression(**requirement: Any) -> Raw:
    return required_nodes({"matchExpressions": [{"key": "disk", "operator": "Exists", **requirement}]})


def match_field(**requirement: Any) -> Raw:
    field = {"key": "metadata.name", "operator": "In", "values": ["node-1"], **requirement}
    return preferred_nodes({"weight": 1, "preference": {"matchFields": [field]}})


def preferred_nodes(*terms: Any) -> Raw:
    return {"nodeAffinity": {PREFERRED: list(terms)}}


def required_pods(**term: Any) -> Raw:
    return {"podAffinity": {REQUIRED: [{"topologyKey": ZONE, **term}]}}


def preferred_pods(**entry: Any) -> Raw:
    return {"podAffinity": {PREFERRED: [{"weight": 1, "podAffinityTerm": {"topologyKey": ZONE}, **entry}]}}


def selecting(**selector: Any) -> Raw:
    return required_pods(labelSelector=selector)


def found(affinity: Raw) -> list[str]:
    """Of each problem its path and what is there; a warning begins with "warning"."""
    texts = []
    for problem in find_affinity_problems(affinity):
        assert problem.field == "vmAffinity"
        is_refused = problem.message.endswith(", which Harvester refuses")
        assert is_refused == (problem.severity == "error")
        text = problem.message.removesuffix(", which Harvester refuses").replace(" of vmAffinity", "")
        texts.append(text if is_refused else f"warning: {text}")
    return texts


def test_an_affinity_with_everything_in_it_is_accepted() -> None:
    expressions = [
        {"key": "disk", "operator": "In", "values": ["ssd", ""]},
        {"key": "disk", "operator": "NotIn", "values": ["hdd"]},
        {"key": "example.com/gpu", "operator": "Exists"},
        {"key": "old", "operator": "DoesNotExist", "values": []},
        {"key": "cores", "operator": "Gt", "values": ["8"]},
        {"key": "cores", "operator": "Lt", "values": ["64"]},
    ]
    node_term = {
        "matchExpressions": expressions,
        "matchFields": [{"key": "metadata.name", "operator": "NotIn", "values": ["node-1.example"]}],
    }
    selector = {"matchLabels": {"app": "db", "example.com/x": ""}, "matchExpressions": expressions[:4]}
    pod_term = {
        "labelSelector": selector,
        "namespaceSelector": selector,
        "namespaces": ["default"],
        "matchLabelKeys": ["app"],
        "mismatchLabelKeys": ["tier"],
        "topologyKey": ZONE,
    }
    pods = {REQUIRED: [pod_term], PREFERRED: [{"weight": 100, "podAffinityTerm": pod_term}]}
    node = {
        REQUIRED: {"nodeSelectorTerms": [node_term]},
        PREFERRED: [{"weight": 1, "preference": node_term}],
    }
    assert found({"nodeAffinity": node, **dict.fromkeys(POD_KINDS, pods)}) == []
    assert found({}) == found({"nodeAffinity": None, "podAffinity": None}) == []


NODE = f"nodeAffinity.{REQUIRED}.nodeSelectorTerms"
FIELD = f"nodeAffinity.{PREFERRED}[0].preference.matchFields[0]"
POD = f"podAffinity.{REQUIRED}[0]"
PREFERRED_POD = f"podAffinity.{PREFERRED}[0]"
ALL_KINDS = "In, NotIn, Exists, DoesNotExist, Gt, Lt"


@pytest.mark.parametrize(
    ("affinity", "problems"),
    [
        ({"nodeAffinity": []}, ["nodeAffinity is not an object"]),
        ({"podAntiAffinity": "x"}, ["podAntiAffinity is not an object"]),
        ({"nodeAffinity": {REQUIRED: []}}, [f"nodeAffinity.{REQUIRED} is not an object"]),
        ({"nodeAffinity": {PREFERRED: {}}}, [f"nodeAffinity.{PREFERRED} is not a list"]),
        ({"nodeAffinity": {REQUIRED: {}}}, [f"warning: {NODE} is empty, and has no effect"]),
        (required_nodes(), [f"warning: {NODE} is empty, and has no effect"]),
        (required_nodes({}), [f"warning: {NODE}[0] has no matchExpressions, and no effect on Harvester"]),
        (required_nodes(None), [f"warning: {NODE}[0] has no matchExpressions, and no effect on Harvester"]),
        (required_nodes(5), [f"{NODE}[0] is not an object"]),
        (
            required_nodes({"matchFields": [{"key": 5, "operator": "Odd"}, 5]}),
            [
                f"warning: {NODE}[0] has no matchExpressions, and no effect on Harvester",
                f"{NODE}[0].matchFields[0].key is not a text",
                f"{NODE}[0].matchFields[1] is not an object",
            ],
        ),
        (preferred_nodes(None), [f"nodeAffinity.{PREFERRED}[0].weight is 0"]),
        (preferred_nodes({"weight": 1, "preference": 5}), [f"nodeAffinity.{PREFERRED}[0].preference is not an object"]),
    ],
)  # fmt: skip
def test_terms_have_their_types_and_an_effect(affinity: Raw, problems: list[str]) -> None:
    assert found(affinity) == problems


@pytest.mark.parametrize(
    ("weight", "what"),
    [(0, "is 0"), (-1, "is -1"), (1, ""), (100, ""), (101, "is 101"), (None, "is 0"), (True, "is not a whole number"),
     ("5", "is not a whole number")],
)  # fmt: skip
def test_a_weight_is_from_1_to_100(weight: object, what: str) -> None:
    assert found(preferred_nodes({"weight": weight})) == (
        [f"nodeAffinity.{PREFERRED}[0].weight {what}"] if what else []
    )
    for kind in POD_KINDS:
        entry = {"weight": weight, "podAffinityTerm": {"topologyKey": ZONE}}
        assert found({kind: {PREFERRED: [entry]}}) == (
            [f"{kind}.{PREFERRED}[0].weight {what}"] if what else []
        )


@pytest.mark.parametrize(
    ("requirement", "problem"),
    [
        ({"key": None}, "key is missing"),
        ({"key": "a b"}, "key is 'a b'"),
        ({"operator": None}, "operator is missing"),
        ({"operator": "Near"}, "operator is 'Near'"),
        ({"operator": "In"}, "values is empty with the operator In"),
        ({"operator": "NotIn", "values": []}, "values is empty with the operator NotIn"),
        ({"values": ["a"]}, "values is given with the operator Exists"),
        ({"operator": "DoesNotExist", "values": ["a"]}, "values is given with the operator DoesNotExist"),
        ({"operator": "Gt"}, "values has 0 entries with Gt"),
        ({"operator": "Lt", "values": ["1", "2"]}, "values has 2 entries with Lt"),
        ({"operator": "In", "values": "a"}, "values is not a list"),
        ({"operator": "In", "values": ["a", 5]}, "values[1] is not a text"),
        ({"operator": "Exists", "values": [True]}, "values[0] is not a text"),
    ],
)
def test_a_requirement_has_a_key_an_operator_and_the_values_of_that(requirement: Raw, problem: str) -> None:
    assert found(expression(**requirement)) == [f"{NODE}[0].matchExpressions[0].{problem}"]


def test_a_value_that_is_missing_is_an_empty_text() -> None:
    assert found(expression(operator="In", values=[None])) == []


@pytest.mark.parametrize(
    ("requirement", "problem"),
    [
        ({"key": "metadata.labels"}, "key is 'metadata.labels'"),
        ({"key": None}, "key is ''"),
        ({"values": ["node-1", "node-2"]}, "values is ['node-1', 'node-2']"),
        ({"values": ["Node 1"]}, "values is ['Node 1']"),
        ({"values": [5]}, "values[0] is not a text"),
    ],
)
def test_a_field_selects_one_node_by_its_name(requirement: Raw, problem: str) -> None:
    assert found(match_field(**requirement)) == [f"{FIELD}.{problem}"]


def test_a_field_has_fewer_operators_than_a_label() -> None:
    assert found(match_field(operator="Exists", values=["node-1"])) == [f"{FIELD}.operator is 'Exists'"]
    (problem,) = find_affinity_problems(match_field(operator="Gt"))
    assert problem.hint == "use one of In, NotIn"
    (problem,) = find_affinity_problems(expression(operator="Near"))
    assert problem.hint == f"use one of {ALL_KINDS}"
    (problem,) = find_affinity_problems(selecting(matchExpressions=[{"key": "a", "operator": "Gt"}]))
    assert problem.hint == "use one of In, NotIn, Exists, DoesNotExist"


@pytest.mark.parametrize(
    ("affinity", "problem"),
    [
        (required_pods(topologyKey=None), f"{POD}.topologyKey is missing"),
        (required_pods(topologyKey="a b"), f"{POD}.topologyKey is 'a b'"),
        (required_pods(topologyKey=5), f"{POD}.topologyKey is not a text"),
        (required_pods(namespaces=["Default"]), f"{POD}.namespaces has 'Default'"),
        (required_pods(namespaces="default"), f"{POD}.namespaces is not a list"),
        (required_pods(matchLabelKeys="app"), f"{POD}.matchLabelKeys is not a list"),
        (required_pods(mismatchLabelKeys=[5]), f"{POD}.mismatchLabelKeys[0] is not a text"),
        (required_pods(labelSelector=5), f"{POD}.labelSelector is not an object"),
        (required_pods(namespaceSelector=5), f"{POD}.namespaceSelector is not an object"),
        (selecting(matchLabels=[]), f"{POD}.labelSelector.matchLabels is not an object"),
        (selecting(matchLabels={"a b": "x"}), f"{POD}.labelSelector.matchLabels has 'a b': 'x'"),
        (selecting(matchLabels={"a": 5}), f"{POD}.labelSelector.matchLabels has 'a': 5"),
        (selecting(matchLabels={"a": "b c"}), f"{POD}.labelSelector.matchLabels has 'a': 'b c'"),
        (
            required_pods(namespaceSelector={"matchLabels": {"a": None}}),
            f"{POD}.namespaceSelector.matchLabels has 'a': None",
        ),
        (
            selecting(matchExpressions=[{"key": "a", "operator": "In", "values": ["b c"]}]),
            f"{POD}.labelSelector.matchExpressions[0].values has 'b c'",
        ),
        (
            selecting(matchExpressions=[{"key": "a", "operator": "In", "values": "b"}]),
            f"{POD}.labelSelector.matchExpressions[0].values is not a list",
        ),
        (preferred_pods(podAffinityTerm=None), f"{PREFERRED_POD}.podAffinityTerm.topologyKey is missing"),
    ],
)
def test_a_term_about_pods_names_what_the_api_server_takes(affinity: Raw, problem: str) -> None:
    assert found(affinity) == [problem]


def test_a_term_of_another_type_lacks_what_it_needs_as_well() -> None:
    assert found(preferred_pods(podAffinityTerm=5)) == [
        f"{PREFERRED_POD}.podAffinityTerm is not an object",
        f"{PREFERRED_POD}.podAffinityTerm.topologyKey is missing",
    ]
