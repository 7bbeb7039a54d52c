from collections.abc import Callable

import pytest

from windrow.bootstrap import rke2
from windrow.bootstrap.cloud_config import File, render_document, scrub
from windrow.bootstrap.spec import BootstrapSpec, Role
from windrow.cloudinit.document import emit, parse
from windrow.cloudinit.merge import merge
from windrow.core.formats import yaml

Make = Callable[..., BootstrapSpec]


def test_a_document_is_read_as_it_was_meant() -> None:
    text = render_document("n", [File("/etc/x", "a: 1\n", "0640")], runcmd=[("systemctl", "start", "x")])

    assert text.startswith("#cloud-config\n")
    assert yaml.load(text) == {
        "hostname": "n",
        "write_files": [{"path": "/etc/x", "owner": "root:root", "permissions": "0640", "content": "a: 1\n"}],
        "runcmd": [["systemctl", "start", "x"]],
    }


# Unquoted, YAML would take 0640 for the number 416, and cloud-init would set mode 416.
def test_permissions_are_quoted() -> None:
    assert "permissions: '0640'\n" in render_document("n", [File("/etc/x", "", "0640")])


USERS_PART = """\
#cloud-config
ssh_authorized_keys: [ssh-ed25519 AAAA me]
users: [{name: me}]
ssh_pwauth: true
password: hunter2
packages: [qemu-guest-agent]
network: {version: 2}
mounts: [[/dev/vdb, /data]]
write_files: [{path: /etc/mine, content: hunter2, permissions: 0644}]
runcmd: [[systemctl, enable, --now, qemu-guest-agent.service]]
"""


def merged(spec: BootstrapSpec) -> str:
    """As the driver leaves it: the user's part first, then ours."""
    return emit(merge(parse(USERS_PART), parse(rke2.render(spec))))


def written(document: str) -> dict[str, tuple[str, str]]:
    return {
        file["path"]: (file["permissions"], file["content"]) for file in yaml.load(document)["write_files"]
    }


def test_files_pass_through_the_drivers_merge_byte_for_byte(a_spec: Make) -> None:
    ours, all_of_them = written(rke2.render(a_spec())), written(merged(a_spec()))

    assert {path: all_of_them[path] for path in ours} == ours
    assert set(all_of_them) - set(ours) == {"/etc/mine"}


def test_our_commands_run_after_the_users(a_spec: Make) -> None:
    commands = yaml.load(merged(a_spec()))["runcmd"]

    assert commands[0] == ["systemctl", "enable", "--now", "qemu-guest-agent.service"]
    assert ["systemctl", "start", "--no-block", "windrow-install.service"] in commands[1:]


def list_secrets(spec: BootstrapSpec) -> list[str]:
    """Every line that must not be read twice: key material line by line, passwords, the credential."""
    kept = spec.secrets
    signers = (kept.server_ca, kept.client_ca, kept.request_header_ca, kept.etcd_peer_ca, kept.etcd_server_ca)
    pems = [line for pem in (*(ca.key for ca in signers), kept.service_key) for line in pem.splitlines()]
    return [line for line in pems if "-----" not in line] + [
        kept.server_password,
        kept.agent_password,
        "hunter2",
    ]


@pytest.mark.parametrize("first", [True, False])
def test_no_secret_is_left_after_scrubbing(a_spec: Make, a_joiner: Make, first: bool) -> None:
    spec = a_spec() if first else a_joiner(Role.WORKER)
    document = merged(spec)

    left = scrub(document)

    assert [secret for secret in list_secrets(spec) if secret in left] == []
    assert [secret for secret in list_secrets(spec) if secret in document] != []
    assert "K10" not in left
    assert "PRIVATE KEY" not in left


def test_what_a_restart_needs_is_left_after_scrubbing(a_spec: Make) -> None:
    left = yaml.load(scrub(merged(a_spec())))
    users = yaml.load(USERS_PART)

    assert left.pop("hostname") == "prod-pool1-abcde-fghij"
    assert left.pop("bootcmd")[0][:3] == ["cloud-init-per", "instance", "windrow-identity"]
    assert left == {
        key: users[key] for key in ("ssh_authorized_keys", "users", "ssh_pwauth", "network", "mounts")
    }


def test_scrubbing_twice_is_scrubbing_once(a_spec: Make) -> None:
    once = scrub(merged(a_spec()))

    assert scrub(once) == once


def test_a_template_stays_a_template() -> None:
    left = scrub("## template: jinja\n#cloud-config\nhostname: n\nruncmd: [x]\n")

    assert left == "## template: jinja\n#cloud-config\nhostname: n\n"


def test_a_document_with_nothing_to_keep_stays_a_document() -> None:
    assert scrub("#cloud-config\nruncmd: [x]\n") == "#cloud-config\n{}\n"


@pytest.mark.parametrize("text", ["#!/bin/sh\necho hi\n", "#cloud-config\n- a\n", ""])
def test_what_is_no_cloud_config_is_not_scrubbed_into_nothing(text: str) -> None:
    with pytest.raises(yaml.NotYaml):
        scrub(text)
