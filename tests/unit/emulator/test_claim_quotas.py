"""What a ResourceQuota counts of claims, and what it admits: as the API server's plugin and the quota controller."""

from __future__ import annotations

import pytest

from windrow.emulator import kinds
from windrow.emulator.vms.claim_quotas import added_usage, find_quota_fault, usage_of
from windrow.kubernetes.objects import Raw, new_object

from .objects import a_claim

FAST = "fast.storageclass.storage.k8s.io/"


def of_size(size: str, storage_class: str = "fast") -> Raw:
    claim = a_claim("data")
    claim["spec"] = {"storageClassName": storage_class, "resources": {"requests": {"storage": size}}}
    return claim


def a_quota(hard: dict[str, str], used: dict[str, str] | None = None) -> Raw:
    quota = new_object(kinds.QUOTA, "q", "ns", spec={"hard": hard})
    return quota if used is None else {**quota, "status": {"hard": hard, "used": used}}


def told(amounts) -> dict[str, str]:
    return {name: str(amount) for name, amount in amounts.items()}


def test_a_claim_counts_as_one_by_its_size_and_for_its_class():
    assert told(usage_of(of_size("5Gi"))) == {
        "persistentvolumeclaims": "1",
        "count/persistentvolumeclaims": "1",
        "requests.storage": "5Gi",
        f"{FAST}persistentvolumeclaims": "1",
        f"{FAST}requests.storage": "5Gi",
    }


def test_a_claim_that_grows_counts_for_what_it_gains():
    assert told(added_usage(of_size("7Gi"), of_size("5Gi"))) == {
        "requests.storage": "2Gi",
        f"{FAST}requests.storage": "2Gi",
    }
    assert added_usage(of_size("5Gi"), of_size("5Gi")) == {}


@pytest.mark.parametrize(
    ("hard", "used", "fault"),
    [
        ({"requests.storage": "10Gi"}, {"requests.storage": "5Gi"}, ""),
        (
            {"requests.storage": "9Gi"},
            {"requests.storage": "5Gi"},
            "exceeded quota: q, requested: requests.storage=5Gi, used: requests.storage=5Gi, limited: requests.storage=9Gi",
        ),
        (
            {"persistentvolumeclaims": "1", f"{FAST}requests.storage": "4Gi"},
            {"persistentvolumeclaims": "1", f"{FAST}requests.storage": "0"},
            f"exceeded quota: q, requested: {FAST}requests.storage=5Gi,persistentvolumeclaims=1, "
            f"used: {FAST}requests.storage=0,persistentvolumeclaims=1, "
            f"limited: {FAST}requests.storage=4Gi,persistentvolumeclaims=1",
        ),
        ({"slow.storageclass.storage.k8s.io/requests.storage": "1Gi"}, {"slow.storageclass.storage.k8s.io/requests.storage": "0"}, ""),
        ({"limits.cpu": "1"}, {}, ""),
        ({"requests.storage": "9Gi"}, {}, "status unknown for quota: q, resources: requests.storage"),
    ],
)  # fmt: skip
def test_a_quota_admits_what_it_has_left(hard: dict[str, str], used: dict[str, str], fault: str):
    assert find_quota_fault(a_quota(hard, used), added_usage(of_size("5Gi"), None)) == fault


def test_a_quota_that_nothing_has_measured_limits_nothing_yet():
    assert find_quota_fault(a_quota({"requests.storage": "1Gi"}), added_usage(of_size("5Gi"), None)) == ""
