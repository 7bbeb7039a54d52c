from __future__ import annotations

from dataclasses import replace

import pytest
from tests.unit.clusters.builders import SERVER, a_cluster, a_machine, a_pool, look, silent, unknown

from windrow.clusters.plan.planner import plan_cluster
from windrow.clusters.state import CredentialProblem
from windrow.clusters.status import derive_cluster, find_wait

SERVERS = a_pool("servers", 1, SERVER)
REFUSED = CredentialProblem(
    "credential Secret ns/cc: https://vip:6443 does not accept the token", "put a valid one there", True
)
UNREACHED = CredentialProblem(
    "Harvester https://vip:6443 (credential Secret ns/cc) cannot be reached", "check the address", False
)


def told(shut, **rest):
    seen = replace(
        look(a_cluster(SERVERS), [unknown(a_machine("s1", SERVERS))], **rest), credential_problems=shut
    )
    plan = plan_cluster(seen)
    return derive_cluster(seen, plan, find_wait(seen, plan, {}))


@pytest.mark.parametrize("shut", [REFUSED, UNREACHED])
def test_a_closed_harvester_leads_even_when_the_guest_is_silent_too(shut):
    status = told((shut,), guest=silent("the proxy refuses"))

    ready = next(c for c in status["conditions"] if c["type"] == "Ready")
    for sentence in (status["waiting"]["for"], ready["message"]):
        assert str(shut) in sentence
        assert "proxy" not in sentence


def test_without_a_trial_nothing_is_said_of_credentials():
    assert "CredentialValid" not in [c["type"] for c in told(None)["conditions"]]


@pytest.mark.parametrize(("shut", "truth"), [((), "True"), ((REFUSED,), "False"), ((UNREACHED,), "Unknown")])
def test_only_a_credential_that_was_refused_counts_as_invalid(shut, truth):
    [valid] = [c for c in told(shut)["conditions"] if c["type"] == "CredentialValid"]

    assert valid["status"] == truth
