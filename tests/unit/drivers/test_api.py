from __future__ import annotations

import pytest

from windrow.drivers.api import (
    FieldAnnotations,
    find_checksum_faults,
    find_url_faults,
    read_driver,
    read_field_annotations,
    read_machine_config_kinds,
    read_machine_driver,
    redact_url,
)
from windrow.kubernetes.objects import Raw

SHA256 = "a1" * 32
URL = "https://files.example/docker-machine-driver-noop.tar.gz"


def a_driver(annotations: dict[str, str] | None = None, **spec: object) -> Raw:
    spec = {"url": URL, "checksum": SHA256, "active": True, **spec}
    return {"metadata": {"name": "noop", "uid": "u", "annotations": annotations or {}}, "spec": spec}


def faults_of(**spec: object) -> list[str]:
    return [str(fault) for fault in read_driver(a_driver(**spec)).faults]


def test_a_good_driver_has_no_fault_and_its_checksum_is_in_lower_case():
    driver = read_driver(a_driver(checksum=SHA256.upper()))

    assert driver.faults == ()
    assert driver.checksum == SHA256
    assert driver.is_requested
    assert not driver.is_applied


@pytest.mark.parametrize(
    ("checksum", "sentence"),
    [
        ("", "spec.checksum is empty: drivers are only run after verification; set the SHA-256"),
        ("a" * 32, "spec.checksum is an MD5 digest: its collisions can be computed; set the SHA-256"),
        (
            "a" * 40,
            "spec.checksum is a SHA-1 digest: its collisions can be computed; set the SHA-256",
        ),
        ("a" * 128, "spec.checksum is a SHA-512 digest: Rancher's machine image"),
        ("a" * 63, "spec.checksum has 63 digits, but a SHA-256 has 64; copy all of it"),
        ("x" * 64, "spec.checksum is not hexadecimal"),
    ],
)
def test_only_a_sha256_counts_as_a_checksum(checksum: str, sentence: str):
    (fault,) = find_checksum_faults(checksum)

    assert str(fault).startswith(sentence)
    assert not fault.is_retryable


@pytest.mark.parametrize(
    ("url", "sentence"),
    [
        ("", "spec.url is empty"),
        ("local://", "spec.url is local://, which names a driver inside Rancher's own image"),
        ("http://x.example/y", "spec.url has the scheme http, but only https is supported"),
        ("ftp://x.example/y", "spec.url has the scheme ftp"),
        ("x.example/y", "spec.url has the scheme (none)"),
        ("https:///y", "spec.url has no host"),
        ("https://x.example:port/y", "spec.url is no URL"),
        ("https://[::1/y", "spec.url is no URL"),
        ("https://me:secret@x.example/y", "spec.url contains a user name or password"),
        ("file:///y", "spec.url is a file URL, which is not allowed here"),
    ],
)
def test_only_https_is_fetched(url: str, sentence: str):
    (fault,) = find_url_faults(url, files_allowed=False)

    assert fault.message.startswith(sentence)
    assert "secret" not in str(fault)


def test_files_need_their_whole_path_where_they_are_allowed():
    assert find_url_faults("file:///opt/driver.tar.gz", files_allowed=True) == []
    assert find_url_faults("file://localhost/opt/driver.tar.gz", files_allowed=True) == []
    for url in ("file://elsewhere/driver", "file:driver"):
        (fault,) = find_url_faults(url, files_allowed=True)
        assert fault.message == "spec.url has no absolute path"


def test_all_faults_are_reported():
    assert len(faults_of(url="http://x", checksum="", displayName="n" * 58)) == 3
    assert faults_of(displayName="n" * 57) == []
    assert faults_of(builtin=True)[0].startswith("spec.builtin is true, but only harvester is built in")


def test_an_object_of_any_shape_can_be_read():
    for spec in (None, {}, [], {"url": 5, "checksum": None, "active": "yes"}):
        driver = read_driver({"metadata": {"name": "x"}, "spec": spec})
        assert driver.faults
        assert not driver.active


def test_what_is_built_in_has_no_faults():
    assert read_driver(a_driver(url="local://", checksum=""), built_in_kind="HarvesterConfig").faults == ()


def test_hints_come_from_the_annotations():
    annotations = {
        "publicCredentialFields": "clusterType,clusterId",
        "privateCredentialFields": "kubeconfigContent",
        "optionalCredentialFields": "clusterId,,",
        "passwordFields": "a, b",
        "defaults": "clusterType:imported,broken,port:22",
        "nodedriver.cattle.io/file-to-field-aliases": "sshKeyContents:sshKeypath",
    }

    assert read_field_annotations(annotations) == FieldAnnotations(
        private=frozenset({"kubeconfigContent"}),
        passwords=frozenset({"a", "b"}),
        defaults={"clusterType": "imported", "port": "22"},
    )


def test_messages_show_neither_signatures_nor_passwords():
    assert redact_url("https://me:pw@x.example/y?sig=secret#z") == "https://x.example/y"
    assert redact_url("https://[::1/y") == "the URL"


def test_a_pool_without_a_kind_means_harvester():
    pools = [{"machineConfigRef": {"name": "x"}}, {"machineConfigRef": {"kind": "NoopConfig"}}, {}]

    assert read_machine_config_kinds({"spec": {"rkeConfig": {"machinePools": pools}}}) == {
        "HarvesterConfig",
        "NoopConfig",
    }
    assert read_machine_config_kinds({"spec": {}}) == frozenset()


def test_a_machine_that_names_no_driver_is_of_the_one_that_is_built_in():
    assert read_machine_driver({"spec": {"driver": "noop"}}) == "noop"
    assert read_machine_driver({"spec": {}}) == "harvester"
