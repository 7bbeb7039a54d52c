"""The rights that the chart gives to the manager are enough for a cluster's life, and each is asked for in it."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.conformance.chart_rig import Helm
from tests.conformance.chart_rights_rig import Permission, rights_of, without
from tests.conformance.manager_rights_rig import NAME, PLACE, Life, covers, run_manager
from tests.conformance.test_manager_chart import CHART
from tests.support.clock import run_driven

from windrow.kubernetes.objects import Raw, name_of

pytestmark = [pytest.mark.go, pytest.mark.long]

# What no life of one manager asks for, and why the chart gives it.
UNSEEN = {
    Permission("update", "clusters.provisioning.cattle.io/finalizers"): (
        "the admission plugin OwnerReferencesPermissionEnforcement, off by default, asks for it"
    ),
    Permission("get", "ipaddresses.windrow.io"): "of an address that another manager has claimed just before",
}
KUBE_SYSTEM = "kube-system"
LEASES = "leases.coordination.k8s.io"
# Of rights that were taken away, what users would miss first: a sample, each in the life's first four chapters, before there is a cluster.
NEEDED_FOR = {
    Permission("get", "deployments.apps", "", "rancher"): "looks for Rancher",
    Permission("get", LEASES, KUBE_SYSTEM, "cattle-controllers"): "looks for Rancher",
    Permission("patch", "customresourcedefinitions.apiextensions.k8s.io"): "applies its definitions",
    Permission("create", "namespaces", "", "cattle-global-data"): "applies its definitions",
    Permission("patch", "namespaces", "", "fleet-default"): "applies its definitions",
    Permission("get", "namespaces"): "knows which state it is",
    Permission("create", LEASES, KUBE_SYSTEM): "leads",
    Permission("get", LEASES, KUBE_SYSTEM, "windrow-manager"): "leads",
    Permission("update", LEASES, KUBE_SYSTEM, "windrow-manager"): "keeps the lead",
    Permission("create", "tokenreviews.authentication.k8s.io"): "hides metrics",
    Permission("create", "subjectaccessreviews.authorization.k8s.io"): "shows metrics",
    Permission("create", "nodedrivers.management.cattle.io"): "brings its own node drivers",
    Permission("create", "customresourcedefinitions.apiextensions.k8s.io"): (
        "defines the machine configs of a node driver"
    ),
    Permission("delete", "customresourcedefinitions.apiextensions.k8s.io"): (
        "takes a definition away with its driver"
    ),
    Permission("patch", "nodedrivers.management.cattle.io"): "holds up the deletion of a node driver",
}


@pytest.fixture(scope="module")
def objects(reference_program: Callable[[str], str], tmp_path_factory: pytest.TempPathFactory) -> list[Raw]:
    helm = Helm(reference_program("helm"), tmp_path_factory.mktemp("helm"), CHART)
    return helm.render({}, namespace=PLACE)


def is_of_manager(raw: Raw) -> bool:
    return name_of(raw) in (NAME, f"{NAME}-lease")


@pytest.fixture(scope="module")
def rights(objects: list[Raw]) -> list[Permission]:
    """Those of the manager; the other roles are for people."""
    return rights_of([raw for raw in objects if is_of_manager(raw)], NAME)


@pytest.fixture(scope="module")
def whole(objects: list[Raw], tmp_path_factory: pytest.TempPathFactory) -> Life:
    return run_driven(run_manager(objects, tmp_path_factory.mktemp("state")))


def test_with_them_all_is_done_and_nothing_refused(whole: Life) -> None:
    assert sorted(map(str, whole.refused)) == []
    assert [what for what, came_about in whole.did.items() if not came_about] == []


def test_each_is_asked_for(rights: list[Permission], whole: Life) -> None:
    unused = {right for right in rights if not any(covers(right, one) for one in whole.asked)}

    assert sorted(map(str, unused)) == sorted(map(str, UNSEEN))


@pytest.mark.parametrize("right", NEEDED_FOR, ids=str)
def test_without_it_something_is_missed(
    objects: list[Raw],
    rights: list[Permission],
    right: Permission,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.CRITICAL)  # it complains, again and again
    assert right in rights

    others = [raw for raw in objects if not is_of_manager(raw)]
    fewer = [*others, *without([raw for raw in objects if is_of_manager(raw)], right, NAME)]

    life = run_driven(run_manager(fewer, tmp_path, chapters=4))

    assert not life.did.get(NEEDED_FOR[right])
    assert all(covers(right, one) or one.verb == "patch" for one in life.refused)
    assert life.refused
