"""User data and network data, read as cloud-init reads them."""

from __future__ import annotations

import base64
import gzip
from email.mime.multipart import MIMEMultipart
from email.mime.text import MIMEText

import pytest

from windrow.emulator.guest_os.cloudinit.modules import (
    list_commands,
    list_packages,
    list_user_accounts,
    list_write_files,
    read_hostname,
)
from windrow.emulator.guest_os.cloudinit.network_data import InterfaceConfig, read_network_data
from windrow.emulator.guest_os.cloudinit.user_data import merge_configs, read_user_data


def mime(*parts: tuple[str, str], merge: str = "") -> str:
    message = MIMEMultipart()
    for text, kind in parts:
        part = MIMEText(text, kind)
        if merge:
            part["Merge-Type"] = merge
        message.attach(part)
    return message.as_string()


def test_empty_user_data_has_no_effect():
    assert read_user_data("").config == {}
    assert read_user_data("").warnings == []


def test_a_cloud_config_is_a_mapping():
    assert read_user_data("#cloud-config\nhostname: one\n").config == {"hostname": "one"}


def test_gzip_is_unpacked_wherever_it_comes():
    assert read_user_data(gzip.compress(b"#cloud-config\nhostname: one\n", mtime=0)).config == {
        "hostname": "one"
    }


def test_a_script_is_kept_for_the_end_of_the_boot():
    assert read_user_data("#!/bin/sh\necho hi\n").scripts == ["#!/bin/sh\necho hi\n"]


def test_a_multi_part_message_holds_both():
    data = read_user_data(
        mime(("#cloud-config\nhostname: one\n", "cloud-config"), ("#!/bin/sh\n:\n", "x-shellscript"))
    )

    assert data.config == {"hostname": "one"}
    assert len(data.scripts) == 1


def test_a_later_part_replaces_lists_unless_it_appends():
    first, second = "#cloud-config\nruncmd: [a]\n", "#cloud-config\nruncmd: [b]\n"

    plain = read_user_data(mime((first, "cloud-config"), (second, "cloud-config")))
    asked = read_user_data(
        mime(
            (first, "cloud-config"),
            (second + "merge_how: list(append)+dict(recurse_array)+str()\n", "cloud-config"),
        )
    )

    assert plain.config["runcmd"] == ["b"]
    assert asked.config["runcmd"] == ["a", "b"]


@pytest.mark.parametrize(
    ("how", "merged"),
    [
        ("", {"a": {"y": 2}}),
        ("dict(recurse_dict)+list()", {"a": {"x": 1, "y": 2}}),
        ("dict(no_replace)+list()", {"a": {"x": 1}}),
        ([{"name": "dict", "settings": ["recurse_dict"]}], {"a": {"x": 1, "y": 2}}),
    ],
)
def test_a_part_chooses_how_mappings_merge(how: object, merged: object):
    assert merge_configs({"a": {"x": 1}}, {"a": {"y": 2}}, how) == merged


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("#cloud-config\nhostname: [one\n", "Failed loading yaml blob"),
        ("#cloud-config\nwrite_files:\n- path: /a\n   content: b\n", "nothing of this part is applied"),
        ("#cloud-config\n- a list\n", "but got list instead"),
        ("hostname: one\n", "Unhandled non-multipart (text/x-not-multipart) userdata: 'hostname: one...'"),
        ("\n#cloud-config\nhostname: one\n", "Unhandled non-multipart"),
        ("# cloud-config\nhostname: one\n", "Unhandled non-multipart"),
        ("\ufeff#cloud-config\nhostname: one\n", "Unhandled non-multipart"),
    ],
)
def test_an_unreadable_part_is_a_warning_and_not_applied(text: str, words: str):
    data = read_user_data(text)

    assert data.config == {}
    assert any(words in warning for warning in data.warnings), data.warnings


def test_a_jinja_header_renders_instance_variables():
    text = "## template: jinja\n#cloud-config\nhostname: {{ v1.local_hostname }}-{{ v1.region }}\n"

    data = read_user_data(text, {"v1.local_hostname": "one"})

    assert data.config == {"hostname": "one-CI_MISSING_JINJA_VAR/region"}
    assert "'v1.region' is not known" in data.warnings[0]


CONTENT = b"one\ntwo\n"


@pytest.mark.parametrize(
    ("encoding", "written"),
    [
        ("", CONTENT.decode()),
        ("text/plain", CONTENT.decode()),
        ("b64", base64.b64encode(CONTENT).decode()),
        ("base64", base64.encodebytes(CONTENT).decode()),
        ("gz+b64", base64.b64encode(gzip.compress(CONTENT, mtime=0)).decode()),
        ("gzip+base64", base64.b64encode(gzip.compress(CONTENT, mtime=0)).decode()),
        ("GZ+BASE64", base64.b64encode(gzip.compress(CONTENT, mtime=0)).decode()),
        ("gzip", gzip.compress(CONTENT, mtime=0)),
    ],
)
def test_every_encoding_gives_the_same_file(encoding: str, written: object):
    [file], warnings = list_write_files(
        {"write_files": [{"path": "/a", "content": written, "encoding": encoding, "permissions": "0600"}]}
    )

    assert (file.content, file.mode, warnings) == (CONTENT, 0o600, [])


def test_a_broken_encoding_ends_the_list():
    files, [warning] = list_write_files(
        {
            "write_files": [
                {"path": "/a", "content": "x"},
                {"path": "/b", "content": "!!", "encoding": "b64"},
                {"path": "/c", "content": "x"},
            ]
        }
    )

    assert [file.path for file in files] == ["/a"]
    assert "failed at /b" in warning


def test_an_entry_without_a_path_is_skipped():
    files, [warning] = list_write_files({"write_files": [{"content": "x"}, {"path": "/b", "content": "x"}]})

    assert [file.path for file in files] == ["/b"]
    assert "No path provided" in warning


@pytest.mark.parametrize(("given", "mode"), [("0600", 0o600), (0o644, 0o644), (None, 0o644), ("rw", 0o644)])
def test_permissions_are_octal_text_or_a_number(given: object, mode: int):
    [file], _ = list_write_files({"write_files": [{"path": "/a", "content": "x", "permissions": given}]})

    assert file.mode == mode


def test_write_files_that_is_no_list_writes_nothing():
    files, [warning] = list_write_files({"write_files": {"path": "/a"}})

    assert files == []
    assert "expected a list" in warning


def test_commands_are_strings_or_lists_and_one_bad_entry_spoils_them_all():
    assert list_commands({"runcmd": ["a b", ["c", 1]]}, "runcmd") == (["a b", ["c", "1"]], [])
    commands, [warning] = list_commands({"runcmd": ["a", {"b": "c"}]}, "runcmd")
    assert commands == []
    assert "entry 2 is a dict" in warning


def test_host_name_accounts_and_packages():
    config = {
        "fqdn": "one.example.org",
        "users": ["default", {"name": "ops", "ssh_authorized_keys": ["key-2"]}],
        "ssh_authorized_keys": ["key-1"],
        "packages": ["curl", ["jq", "1.7"], {"apt": ["iptables"]}],
    }

    assert read_hostname(config) == "one"
    assert {account.name: account.keys for account in list_user_accounts(config)} == {
        "default": ("key-1",),
        "ops": ("key-2",),
    }
    assert list_packages(config) == ["curl", "jq", "iptables"]
    assert read_hostname({"hostname": "one", "preserve_hostname": True}) == ""


V1 = """\
version: 1
config:
- type: physical
  name: enp1s0
  mac_address: "52:54:00:AA:00:01"
  subnets:
  - type: static
    address: 10.0.0.5
    netmask: 255.255.255.0
    gateway: 10.0.0.1
    dns_nameservers: [1.1.1.1]
- type: nameserver
  address: [8.8.8.8]
"""
V2 = """\
network:
  version: 2
  ethernets:
    nic-0:
      match: {macaddress: "52:54:00:aa:00:01"}
      addresses: [10.0.0.5/24]
      routes: [{to: default, via: 10.0.0.1}]
      nameservers: {addresses: [1.1.1.1]}
    enp2s0:
      dhcp4: true
"""


def test_both_versions_of_network_data():
    mac = "52:54:00:aa:00:01"

    assert read_network_data(V1).interfaces == (
        InterfaceConfig("enp1s0", mac, False, ("10.0.0.5/24",), "10.0.0.1", ("1.1.1.1", "8.8.8.8")),
    )
    assert read_network_data(V2).interfaces == (
        InterfaceConfig("nic-0", mac, False, ("10.0.0.5/24",), "10.0.0.1", ("1.1.1.1",)),
        InterfaceConfig("enp2s0", "", True),
    )


def test_no_network_data_means_dhcp_on_the_first_card():
    assert read_network_data("").interfaces is None


@pytest.mark.parametrize("text", ["version: [", "- a\n", "version: 3\n"])
def test_network_data_that_cannot_be_read_means_the_same_with_a_warning(text: str):
    network = read_network_data(text)

    assert network.interfaces is None
    assert "using DHCP on the first NIC" in network.warnings[0]
