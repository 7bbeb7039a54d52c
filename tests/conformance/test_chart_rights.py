"""The rights that the chart gives to the cloud provider are enough, and none is too many.

The table says for each right what users would miss first without it.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterator

import pytest
from tests.conformance.chart_rig import NAME, ROOT, Helm
from tests.conformance.chart_rights_rig import Permission, RunResult, rights_of, run_cloud_provider, without
from tests.support.clock import run_driven

from windrow.core.formats.yaml import load_all
from windrow.kubernetes.objects import Raw

pytestmark = pytest.mark.go

LEASES, SYSTEM = "leases.coordination.k8s.io", "kube-system"
LEASE, NETWORKS = "cloud-controller-manager", "harvester-nad-mapping"

NEEDED_FOR = {
    Permission("list", "nodes"): "initialises nodes",
    Permission("watch", "nodes"): "initialises nodes",
    Permission("patch", "nodes"): "initialises nodes",
    Permission("delete", "nodes"): "removes nodes that are gone",
    Permission("patch", "nodes/status"): "writes addresses",
    Permission("get", "services"): "follows a change of type",
    Permission("list", "services"): "gives addresses of a pool",
    Permission("watch", "services"): "gives addresses of a pool",
    Permission("patch", "services"): "gives addresses of DHCP",
    Permission("patch", "services/status"): "follows a change of type",
    Permission("create", "events"): "tells of services",
    Permission("patch", "events"): "counts what it tells again",
    Permission("create", "tokenreviews.authentication.k8s.io"): "hides metrics",
    Permission("create", "subjectaccessreviews.authorization.k8s.io"): "shows metrics",
    Permission("create", LEASES, SYSTEM): "leads",
    Permission("get", LEASES, SYSTEM, LEASE): "leads",
    Permission("update", LEASES, SYSTEM, LEASE): "keeps the lead",
    Permission("create", "configmaps", SYSTEM): "maps networks",
    Permission("get", "configmaps", SYSTEM, NETWORKS): "maps networks",
    Permission("list", "configmaps", SYSTEM, NETWORKS): "puts services on their network",
    Permission("watch", "configmaps", SYSTEM, NETWORKS): "follows networks with services",
    Permission("update", "configmaps", SYSTEM, NETWORKS): "follows networks",
}


@pytest.fixture(scope="module")
def objects(reference_program: Callable[[str], str], tmp_path_factory: pytest.TempPathFactory) -> list[Raw]:
    helm = Helm(reference_program("helm"), tmp_path_factory.mktemp("helm"))
    return helm.render({"global": {"cattle": {"clusterName": "demo"}}})


@pytest.fixture(scope="module")
def whole(objects: list[Raw]) -> RunResult:
    return run_driven(run_cloud_provider(objects))


def test_with_them_all_is_done_and_nothing_refused(whole: RunResult) -> None:
    assert whole.refused == []
    assert [what for what, came_about in whole.did.items() if not came_about] == []


def test_each_is_asked_for(objects: list[Raw], whole: RunResult) -> None:
    unused = [right for right in rights_of(objects) if not any(right.covers(one) for one in whole.asked)]

    assert unused == []


def test_the_table_is_complete(objects: list[Raw], whole: RunResult) -> None:
    assert sorted(rights_of(objects)) == sorted(NEEDED_FOR)
    assert set(NEEDED_FOR.values()) <= set(whole.did)


@pytest.mark.parametrize("right", NEEDED_FOR, ids=str)
def test_without_it_something_is_missed(
    objects: list[Raw], right: Permission, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL)  # it complains, again and again

    life = run_driven(run_cloud_provider(without(objects, right)))

    assert not life.did.get(NEEDED_FOR[right])
    assert set(life.refused) == {str(one) for one in life.asked if right.covers(one)}


def test_no_right_reaches_every_object_of_a_kind_that_it_could_name(objects: list[Raw]) -> None:
    """Of Leases and ConfigMaps there are many, and the provider has one of each."""
    wide = [right for right in rights_of(objects) if right.resource in (LEASES, "configmaps")]

    assert all(right.namespace == SYSTEM for right in wide)
    # Who creates gives the name in the body, which rights do not look at.
    assert all(right.name or right.verb == "create" for right in wide)


def test_no_rule_allows_secrets_but_the_one_of_kube_vip_s_tunnels(objects: list[Raw]) -> None:
    rules = [rule for raw in objects if raw["kind"] in ("Role", "ClusterRole") for rule in raw["rules"]]

    found = [rule for rule in rules if {"secrets", "*"} & set(rule["resources"])]
    assert [(rule["resourceNames"], rule["verbs"]) for rule in found] == [(["wireguard"], ["get"])]


# --- what the documentation says of them ----------------------------------------------------------------------------


def listed_rights() -> Iterator[Permission]:
    page = (ROOT / "docs/reference/cloud-provider.md").read_text()
    table = page.partition("## Rights in the guest")[2].partition("\n## ")[0]
    for verbs, resource, where in re.findall(r"^\| ([a-z, ]+) \| `([^`]+)` \| ([^|]+) \|", table, re.M):
        namespace, _, name = where.partition(", ")
        for verb in verbs.split(", "):
            place = "" if namespace == "everywhere" else namespace
            yield Permission(verb, resource, place, name.strip("`"))


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


def missing_outcomes(life: RunResult) -> list[str]:
    return [what for what, came_about in life.did.items() if not came_about]


def test_the_bundled_chart_s_role_is_enough_for_all_but_two_things(bundled: list[Raw]) -> None:
    life = run_driven(run_cloud_provider(bundled))

    assert missing_outcomes(life) == ["removes nodes that are gone", "shows metrics", "hides metrics"]


def test_with_what_the_guide_adds_it_is_enough_for_all(bundled: list[Raw]) -> None:
    page = (ROOT / "docs/how-to/replace-the-go-cloud-provider.md").read_text()
    blocks = re.findall(r"^```yaml\n(.*?)^```", page, re.S | re.M)
    [added] = [load_all(block) for block in blocks if "kind: ClusterRole\n" in block]

    life = run_driven(run_cloud_provider([*bundled, *added]))

    assert (missing_outcomes(life), life.refused) == ([], [])
