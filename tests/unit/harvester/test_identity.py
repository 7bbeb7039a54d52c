from __future__ import annotations

import pytest

from windrow.harvester.identity import (
    ca_fingerprint,
    compare_identity,
    is_certain,
    is_owned_by,
    owner_annotations,
    provider_id,
    read_identity,
    ssh_key_digest,
    vm_uid_of,
)
from windrow.harvester.names import CLUSTER_UID, MACHINE_UID
from windrow.kubernetes.kubeconfig import ClientConfig


def marked(cluster: str, machine: str) -> dict[str, object]:
    return {"metadata": {"name": "x", "annotations": owner_annotations(cluster, machine)}}


def test_an_object_is_ours_only_with_both_marks() -> None:
    assert is_owned_by(marked("c", "m"), "c", "m")
    assert not is_owned_by(marked("c", "m"), "c", "other")
    assert not is_owned_by(marked("c", "m"), "other", "m")
    assert not is_owned_by({"metadata": {"name": "x"}}, "c", "m")


def test_without_a_machine_uid_nothing_is_ours() -> None:
    assert not is_owned_by({"metadata": {"name": "x"}}, "", "")


def test_what_was_made_without_a_cluster_is_ours_without_one_only() -> None:
    assert owner_annotations("", "m") == {MACHINE_UID: "m"}
    assert owner_annotations("c", "m") == {MACHINE_UID: "m", CLUSTER_UID: "c"}
    assert is_owned_by(marked("", "m"), "", "m")
    assert not is_owned_by(marked("c", "m"), "", "m")
    assert not is_owned_by(marked("", "m"), "c", "m")


def test_a_harvester_is_known_by_the_uid_of_kube_system() -> None:
    assert read_identity({"metadata": {"name": "kube-system", "uid": "u-1"}}) == "u-1"


HERE, ELSEWHERE = "ca-here", "ca-elsewhere"


@pytest.mark.parametrize(
    ("recorded", "found", "fingerprint", "result"),
    [
        ("", "u-1", HERE, "same"),  # nothing is recorded
        ("u-1", "u-1", HERE, "same"),
        ("u-1", "u-2", HERE, "other"),
        ("u-1", HERE, HERE, "unknown"),  # kube-system may not be read: a CA tells nothing about a uid
        (HERE, HERE, HERE, "same"),
        (HERE, "u-1", HERE, "same"),  # the credential may read more by now
        (HERE, ELSEWHERE, ELSEWHERE, "other"),
        (HERE, "u-1", ELSEWHERE, "other"),
    ],
)
def test_like_is_compared_with_like(recorded: str, found: str, fingerprint: str, result: str) -> None:
    assert compare_identity(recorded, found, fingerprint) == result


def test_a_fingerprint_is_of_the_ca_and_without_one_of_the_address() -> None:
    def fingerprint(server: str, ca: str) -> str:
        return ca_fingerprint(ClientConfig(server, ca=ca))

    assert (
        fingerprint("https://a", "PEM") == fingerprint("https://b", " PEM\n") != fingerprint("https://a", "")
    )
    assert fingerprint("https://a", "") != fingerprint("https://b", "")
    assert fingerprint("https://a", "PEM").startswith("ca-")
    assert len(fingerprint("https://a", "PEM")) == 35


@pytest.mark.parametrize(
    ("public_key", "digest"),
    [
        # As `ssh-keygen -lf` prints it.
        (
            "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAABAgMEBQYHCAkKCwwNDg8QERITFBUWFxgZGhscHR4f a comment\n",
            "SHA256:ZkAslGjFiUHdGf/WUL8rQvkib4PTvQatUV0OUQSncCA",
        ),
        (
            "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAABAgMEBQYHCAkKCwwNDg8QERITFBUWFxgZGhscHR4f",
            "SHA256:ZkAslGjFiUHdGf/WUL8rQvkib4PTvQatUV0OUQSncCA",
        ),
        (
            "AAAAC3NzaC1lZDI1NTE5AAAAIAABAgMEBQYHCAkKCwwNDg8QERITFBUWFxgZGhscHR4f",
            "SHA256:ZkAslGjFiUHdGf/WUL8rQvkib4PTvQatUV0OUQSncCA",
        ),
        (" \n", ""),
    ],
)
def test_a_key_has_the_fingerprint_that_ssh_prints(public_key: str, digest: str) -> None:
    assert ssh_key_digest(public_key) == digest


def test_a_text_that_is_no_key_has_a_digest_of_its_first_word() -> None:
    assert ssh_key_digest("word abcde") == ssh_key_digest("word fghij") != ssh_key_digest("other abcde")


def test_a_provider_id_leads_back_to_its_vm() -> None:
    assert provider_id("u-1") == "harvester://u-1"
    assert vm_uid_of("harvester://u-1") == "u-1"
    assert vm_uid_of("rke2://node") == ""


def test_the_case_of_a_provider_id_does_not_make_it_another_vm() -> None:
    assert vm_uid_of("harvester://0A1B-C") == "0a1b-c"


@pytest.mark.parametrize(("identity", "certain"), [("5b1c", True), ("ca-5b1c", False), ("", False)])
def test_an_identity_from_a_ca_is_not_certain(identity: str, certain: bool) -> None:
    assert is_certain(identity) is certain
