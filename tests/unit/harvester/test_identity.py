from __future__ import annotations

from windrow.harvester.identity import is_owned_by, owner_annotations, provider_id, vm_uid_of


def marked(cluster: str, machine: str) -> dict[str, object]:
    return {"metadata": {"name": "x", "annotations": owner_annotations(cluster, machine)}}


def test_an_object_is_ours_only_with_both_marks() -> None:
    assert is_owned_by(marked("c", "m"), "c", "m")
    assert not is_owned_by(marked("c", "m"), "c", "other")
    assert not is_owned_by(marked("c", "m"), "other", "m")
    assert not is_owned_by({"metadata": {"name": "x"}}, "c", "m")


def test_without_a_machine_uid_nothing_is_ours() -> None:
    assert not is_owned_by({"metadata": {"name": "x"}}, "", "")


def test_a_provider_id_leads_back_to_its_vm() -> None:
    assert provider_id("u-1") == "harvester://u-1"
    assert vm_uid_of("harvester://u-1") == "u-1"
    assert vm_uid_of("rke2://node") == ""


def test_the_case_of_a_provider_id_does_not_make_it_another_vm() -> None:
    assert vm_uid_of("harvester://0A1B-C") == "0a1b-c"
