"""Refusals of volumes, images, key pairs and networks: reference 05 §3.3."""

from __future__ import annotations

import pytest

from windrow.emulator import kinds
from windrow.emulator.admission import object_validator as rules
from windrow.emulator.preload import PLACEHOLDER_KEY
from windrow.kubernetes.errors import KubeError
from windrow.kubernetes.objects import new_object

from .objects import a_claim, a_vm, an_image, listers_of

PREFIX = 'admission webhook "validator.harvesterhci.io" denied the request: '


def text_of(check, *arguments):
    """The text of the denial without its prefix, and its code."""
    with pytest.raises(KubeError) as denial:
        check(*arguments)
    refusal = denial.value
    return refusal.message.removeprefix(PREFIX), refusal.status


def test_a_claim_in_use_by_a_vm_cannot_be_deleted():
    claim = a_claim("m-1-disk-0")
    assert rules.check_claim_removal(claim, listers_of(claim)) is None

    text = "can not delete the volume m-1-disk-0 which is currently owned by these VMs: ns/m-1"
    assert (text, 409) == text_of(rules.check_claim_removal, claim, listers_of(claim, a_vm()))

    vmi = new_object(kinds.VMI, "m-1", "ns", spec={})
    text = "can not delete the volume m-1-disk-0 which is currently attached to VM: ns/m-1"
    assert (text, 409) == text_of(rules.check_claim_removal, claim, listers_of(claim, a_vm(), vmi))


def test_a_volume_of_a_vm_that_is_being_deleted_may_go():
    claim, vm = a_claim("m-1-disk-0"), a_vm()
    vm["metadata"]["deletionTimestamp"] = "2026-01-01T12:00:00Z"

    assert rules.check_claim_removal(claim, listers_of(claim, vm)) is None


@pytest.mark.parametrize(
    ("name", "code", "start"),
    [
        ("gone", 500, "failed to get storage class gone"),
        (
            "vmstate-persistence",
            422,
            "can not create volume with the reserved storage class vmstate-persistence",
        ),
    ],
)
def test_a_volume_needs_a_class_that_is_there_and_free(name, code, start):
    claim = a_claim("c")
    claim["spec"]["storageClassName"] = name

    text, found = text_of(rules.check_claim, claim, listers_of())

    assert text.startswith(start)
    assert found == code


@pytest.mark.parametrize(
    ("spec", "text", "code"),
    [
        ({"displayName": ""}, "displayName is required", 422),
        ({"url": ""}, "url is required", 422),
        ({"url": "ftp://x"}, "url is invalid: ftp://x", 422),
        ({"sourceType": "upload"}, 'url should be empty when image source type is "upload"', 422),
    ],
)
def test_an_image_requires_a_valid_source(spec, text, code):
    assert (text, code) == text_of(rules.check_image, an_image("i", **spec), None, listers_of())


def test_display_names_are_labels_unique_and_fixed():
    text, _ = text_of(rules.check_image, an_image("i", displayName="no label!"), None, listers_of())
    assert text.startswith("displayName is not a valid Kubernetes label value: ")

    twin = (an_image("i", displayName="a"), None, listers_of(an_image("a")))
    assert text_of(rules.check_image, *twin) == ("A resource with the same name exists", 409)

    moved = (an_image("i", displayName="b"), an_image("i", displayName="a"), listers_of())
    assert text_of(rules.check_image, *moved) == ("displayName cannot be modified", 422)


def test_an_image_in_use_cannot_be_deleted():
    claim = a_claim("c")
    claim["metadata"]["annotations"] = {"harvesterhci.io/imageId": "ns/jammy"}

    text, code = text_of(rules.check_image_removal, an_image("jammy"), listers_of(claim))

    assert text == "Cannot delete image ns/jammy: being used by volume ns/c"
    assert code == 400


@pytest.mark.parametrize(
    ("key", "text"),
    [
        ("", "public key is required"),
        ("ssh-rsa nonsense", "key is not in valid OpenSSH public key format"),
        ("-----BEGIN PUBLIC KEY-----", "key is not in valid OpenSSH public key format"),
    ],
)
def test_a_key_pair_holds_an_openssh_key(key, text):
    pair = new_object(kinds.KEY_PAIR, "k", "ns", spec={"publicKey": key})

    assert (text, 422) == text_of(rules.check_key_pair, pair)


def test_the_placeholder_key_is_valid():
    pair = new_object(kinds.KEY_PAIR, "k", "ns", spec={"publicKey": PLACEHOLDER_KEY})

    assert rules.check_key_pair(pair) is None


@pytest.mark.parametrize(
    ("config", "why"),
    [("", "config is empty"), ('{"type":"bridge","vlan":5000}', "vlan 5000 is out of range [0..4094]")],
)
def test_a_network_without_sense_is_an_internal_error(config, why):
    nad = new_object(kinds.NAD, "n", "ns", spec={"config": config})

    text, code = text_of(rules.check_network, nad)

    assert text.endswith(f"Internal error occurred: can't create nad ns/n because {why}")
    assert code == 500


def test_a_network_in_use_cannot_be_deleted():
    listers = listers_of(a_vm())

    text, _ = text_of(rules.check_network_removal, listers.networks["ns", "net"], listers)

    assert "can't delete nad ns/net because it's still used by VM(s) ns/m-1" in text
