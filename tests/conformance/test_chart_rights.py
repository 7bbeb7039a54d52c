"""The rights that the chart gives to the cloud provider are enough, and none is too many.

The table says for each right what users would miss first without it.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterator

import pytest
from tests.conformance.chart_rig import NAME, ROOT, Helm
from tests.conformance.provider_life import Life, Right, live, rights_of, without

from windrow.assembly.clock import run_story
from windrow.formats.yaml import load_all
from windrow.kube.objects import Raw

pytestmark = pytest.mark.go

LEASES, SYSTEM = "leases.coordination.k8s.io", "kube-system"
LEASE, NETWORKS = "cloud-controller-manager", "harvester-nad-mapping"

NEEDED_FOR = {
    Right("list", "nodes"): "initialises nodes",
    Right("watch", "nodes"): "initialises nodes",
    Right("patch", "nodes"): "initialises nodes",
    Right("delete", "nodes"): "removes nodes that are gone",
    Right("patch", "nodes/status"): "writes addresses",
    Right("get", "services"): "follows a change of type",
    Right("list", "services"): "gives addresses of a pool",
    Right("watch", "services"): "gives addresses of a pool",
    Right("patch", "services"): "gives addresses of DHCP",
    Right("patch", "services/status"): "follows a change of type",
    Right("create", "events"): "tells of services",
    Right("patch", "events"): "counts what it tells again",
    Right("create", "tokenreviews.authentication.k8s.io"): "hides metrics",
    Right("create", "subjectaccessreviews.authorization.k8s.io"): "shows metrics",
    Right("create", LEASES, SYSTEM): "leads",
    Right("get", LEASES, SYSTEM, LEASE): "leads",
    Right("update", LEASES, SYSTEM, LEASE): "keeps the lead",
    Right("create", "configmaps", SYSTEM): "maps networks",
    Right("get", "configmaps", SYSTEM, NETWORKS): "maps networks",
    Right("list", "configmaps", SYSTEM, NETWORKS): "puts services on their network",
    Right("watch", "configmaps", SYSTEM, NETWORKS): "follows networks with services",
    Right("update", "configmaps", SYSTEM, NETWORKS): "follows networks",
}


@pytest.fixture(scope="module")
def objects(witness: Callable[[str], str], tmp_path_factory: pytest.TempPathFactory) -> list[Raw]:
    helm = Helm(witness("helm"), tmp_path_factory.mktemp("helm"))
    return helm.render({"global": {"cattle": {"clusterName": "demo"}}})


@pytest.fixture(scope="module")
def whole(objects: list[Raw]) -> Life:
    return run_story(live(objects))


def test_with_them_all_is_done_and_nothing_refused(whole: Life) -> None:
    assert whole.refused == []
    assert [what for what, came_about in whole.did.items() if not came_about] == []


def test_each_is_asked_for(objects: list[Raw], whole: Life) -> None:
    unused = [right for right in rights_of(objects) if not any(right.covers(one) for one in whole.asked)]

    assert unused == []


def test_the_table_is_complete(objects: list[Raw], whole: Life) -> None:
    assert sorted(rights_of(objects)) == sorted(NEEDED_FOR)
    assert set(NEEDED_FOR.values()) <= set(whole.did)


@pytest.mark.parametrize("right", NEEDED_FOR, ids=str)
def test_without_it_something_is_missed(
    objects: list[Raw], right: Right, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL)  # it complains, again and again

    life = run_story(live(without(objects, right)))

    assert not life.did.get(NEEDED_FOR[right])
    assert set(life.refused) == {str(one) for one in life.asked if right.covers(one)}


def test_no_right_reaches_every_object_of_a_kind_that_it_could_name(objects: list[Raw]) -> None:
    """Of Leases and ConfigMaps there are many, and the provider has one of each."""
    wide = [right for right in rights_of(objects) if right.resource in (LEASES, "configmaps")]

    assert all(right.namespace == SYSTEM for right in wide)
    # Who creates gives the name in the body, which rights do not look at.
    assert all(right.name or right.verb == "create" for right in wide)


def test_secrets_are_nobody_s_business(objects: list[Raw]) -> None:
    rules = [rule for raw in objects if raw["kind"] in ("Role", "ClusterRole") for rule in raw["rules"]]

    assert not [rule for rule in rules if {"secrets", "*"} & set(rule["resources"])]


# --- what the documentation says of them ----------------------------------------------------------------------------


def listed_rights() -> Iterator[Right]:
    page = (ROOT / "docs/reference/cloud-provider.md").read_text()
    table = page.partition("## Rights in the guest")[2].partition("\n## ")[0]
    for verbs, resource, where in re.findall(r"^\| ([a-z, ]+) \| `([^`]+)` \| ([^|]+) \|", table, re.M):
        namespace, _, name = where.partition(", ")
        for verb in verbs.split(", "):
            place = "" if namespace == "everywhere" else namespace
            yield Right(verb, resource, place, name.strip("`"))


def test_the_reference_lists_them() -> None:
    assert sorted(listed_rights()) == sorted(NEEDED_FOR)


ALMOST_ALL = ["get", "watch", "list", "update", "create", "patch"]
# The role of the bundled chart (reference 02 §7.1).
BUNDLED = [
    {"apiGroups": [""], "resources": ["services", "nodes", "events"], "verbs": ALMOST_ALL},
    {"apiGroups": [""], "resources": ["nodes/status", "services/status"], "verbs": ["update", "patch"]},
    {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["get", "update", "create"]},
    {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get", "list", "watch", "create", "update"]},
]


@pytest.fixture(scope="module")
def bundled(objects: list[Raw]) -> list[Raw]:
    """What the bundled chart installs, as far as rights go."""
    roles = [raw for raw in objects if raw["kind"] in ("Role", "RoleBinding")]
    return [
        {**raw, "rules": BUNDLED} if (raw["kind"], raw["metadata"]["name"]) == ("ClusterRole", NAME) else raw
        for raw in objects
        if raw not in roles
    ]


def missed(life: Life) -> list[str]:
    return [what for what, came_about in life.did.items() if not came_about]


def test_the_bundled_chart_s_role_is_enough_for_all_but_two_things(bundled: list[Raw]) -> None:
    life = run_story(live(bundled))

    assert missed(life) == ["removes nodes that are gone", "shows metrics", "hides metrics"]


def test_with_what_the_guide_adds_it_is_enough_for_all(bundled: list[Raw]) -> None:
    page = (ROOT / "docs/how-to/replace-the-go-cloud-provider.md").read_text()
    blocks = re.findall(r"^```yaml\n(.*?)^```", page, re.S | re.M)
    [added] = [load_all(block) for block in blocks if "kind: ClusterRole\n" in block]

    life = run_story(live([*bundled, *added]))

    assert (missed(life), life.refused) == ([], [])
