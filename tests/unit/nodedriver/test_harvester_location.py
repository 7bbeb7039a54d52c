"""A credential that leads to another Harvester does not end a machine."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.unit.nodedriver.api_double import ApiDouble
from tests.unit.nodedriver.harvester_rig import NAME, a_machine

from windrow.harvester.identity import ca_fingerprint, owner_annotations
from windrow.kubernetes.kubeconfig import ClientConfig
from windrow.nodedriver.errors import Refused
from windrow.nodedriver.go_errors import error_text
from windrow.nodedriver.harvester_location import ANY_HARVESTER, find_wrong_harvester, with_location
from windrow.nodedriver.vm.remove import remove_and_wait

HERE = ClientConfig("https://10.0.0.1:6443", ca="CA 1", token="t")
PROXIED = ClientConfig("https://rancher.example.org/k8s/clusters/c-m-1", ca="CA of Rancher", token="t")
BARE = ClientConfig("https://rancher.example.org/k8s/clusters/c-m-1", token="t")
MADE = with_location(a_machine(), HERE)


@pytest.mark.parametrize(
    ("made_at", "now"),
    [
        (HERE, HERE),
        (HERE, replace(HERE, token="renewed", ca="CA 1\n")),
        (HERE, replace(HERE, server="https://10.0.0.9:6443")),
        (HERE, replace(HERE, server="https://10.0.0.1:6443/")),
        (HERE, replace(HERE, ca="CA 2")),
        (HERE, replace(HERE, ca="")),
        (PROXIED, replace(PROXIED, ca="CA 2 of Rancher")),
        (PROXIED, replace(PROXIED, server="https://rancher.example.com/k8s/clusters/c-m-1")),
        (BARE, replace(BARE, server="https://RANCHER.example.org/k8s/clusters/c-m-1", token="renewed")),
    ],
)
def test_a_renewed_credential_leads_to_the_same_place(made_at: ClientConfig, now: ClientConfig) -> None:
    assert find_wrong_harvester(with_location(a_machine(), made_at), now) is None


@pytest.mark.parametrize(
    ("made_at", "now"),
    [
        (HERE, ClientConfig("https://10.0.0.2:6443", ca="CA 2")),
        (HERE, ClientConfig("https://10.0.0.2:6443")),
        (PROXIED, replace(PROXIED, server="https://rancher.example.org/k8s/clusters/c-m-2")),
        (BARE, replace(BARE, server="https://rancher.example.org/k8s/clusters/c-m-2")),
        (HERE, PROXIED),
    ],
)
def test_another_place_is_told_with_both_addresses_and_a_way_on(
    made_at: ClientConfig, now: ClientConfig
) -> None:
    problem = find_wrong_harvester(with_location(a_machine(), made_at), now)
    assert problem is not None
    assert made_at.server in problem.message
    assert now.server in problem.message
    assert "WindrowHarvesterUID" in problem.hint
    assert ANY_HARVESTER in problem.hint


@pytest.mark.parametrize("recorded", ["", "0d9e8f7a-1b2c-4d5e-8f90-a1b2c3d4e5f6"])
def test_what_is_not_recorded_or_is_for_a_manager_to_compare_is_no_reason(recorded: str) -> None:
    elsewhere = ClientConfig("https://10.0.0.2:6443", ca="CA 2")
    assert find_wrong_harvester(replace(a_machine(), harvester_uid=recorded), elsewhere) is None


def test_what_a_manager_recorded_of_the_ca_counts_too() -> None:
    machine = replace(a_machine(), harvester_uid=ca_fingerprint(HERE))
    assert find_wrong_harvester(machine, HERE) is None
    assert find_wrong_harvester(machine, replace(HERE, ca="CA 2")) is not None


def test_a_place_is_recorded_once_and_without_secrets() -> None:
    named = with_location(a_machine(), replace(HERE, server="https://me:s3cret@10.0.0.1:6443"))
    assert named.harvester_uid == MADE.harvester_uid == f"{ca_fingerprint(HERE)}@https://10.0.0.1:6443"
    assert with_location(MADE, PROXIED) == MADE


def test_a_harvester_that_is_another_does_not_end_a_machine() -> None:
    api = ApiDouble()
    wrong = find_wrong_harvester(MADE, ClientConfig("https://10.0.0.2:6443", ca="CA 2"))
    with pytest.raises(Refused) as refused:
        api.run(remove_and_wait(MADE, wrong))
    text = error_text(refused.value, "Remove")
    assert "its VM may still run there" in text
    assert "not found" not in text


def test_a_vm_that_is_there_proves_the_place_whatever_was_recorded() -> None:
    mine = {"metadata": {"annotations": owner_annotations("", MADE.machine_uid)}}
    api = ApiDouble((MADE.ref, mine))
    api.run(
        remove_and_wait(MADE, find_wrong_harvester(MADE, ClientConfig("https://10.0.0.2:6443", ca="CA 2")))
    )
    assert api.objects == {}


def test_a_stranger_under_the_name_at_another_harvester_does_not_end_it_either() -> None:
    api = ApiDouble((MADE.ref, {"metadata": {"annotations": owner_annotations("", "another")}}))
    with pytest.raises(Refused, match=f"no VM default/{NAME}"):
        api.run(
            remove_and_wait(
                MADE, find_wrong_harvester(MADE, ClientConfig("https://10.0.0.2:6443", ca="CA 2"))
            )
        )
    assert len(api.objects) == 1
