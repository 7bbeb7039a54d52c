from __future__ import annotations

import pytest

from windrow.cloudinit.document import BadUserData
from windrow.core.formats.yaml import load
from windrow.nodedriver.config import Configuration
from windrow.nodedriver.user_data import render_user_data

# What real users paste (a Rancher dump): the agent, and the command that starts it.
USERS = """#cloud-config
package_update: true
packages:
  - qemu-guest-agent
  - iptables
runcmd:
  - - systemctl
    - enable
    - --now
    - qemu-guest-agent.service
"""
BOOTSTRAP = """#cloud-config
write_files:
- path: /etc/rancher/rke2/config.yaml
  permissions: '0600'
  content: 'token: t'
runcmd:
- sh /usr/local/install.sh
"""


def test_the_users_commands_come_before_the_installer_and_the_agent_is_not_named_twice() -> None:
    text = render_user_data(Configuration(user_data=USERS), BOOTSTRAP, agent=True)
    data = load(text)
    assert text.startswith("#cloud-config\n")
    assert data["packages"] == ["qemu-guest-agent", "iptables"]
    assert data["runcmd"] == [
        ["systemctl", "enable", "--now", "qemu-guest-agent.service"],
        "sh /usr/local/install.sh",
    ]
    assert data["write_files"][0]["permissions"] == "0600"


def test_without_user_data_the_agent_is_added() -> None:
    data = load(render_user_data(Configuration(), BOOTSTRAP, agent=True))
    assert data["packages"] == ["qemu-guest-agent"]


def test_a_driver_that_adds_no_agent_adds_none() -> None:
    assert render_user_data(Configuration(), "", agent=False) == "#cloud-config\n"


def test_password_and_key_win_over_the_users_document() -> None:
    configuration = Configuration(
        ssh_user="rancher", ssh_password="pw", ssh_public_key="ssh-ed25519 A\n", user_data="password: mine\n"
    )
    assert load(render_user_data(configuration, "", agent=False)) == {
        "user": "rancher",
        "password": "pw",
        "chpasswd": {"expire": False},
        "ssh_pwauth": True,
        "ssh_authorized_keys": ["ssh-ed25519 A"],
    }


def test_the_users_keys_join_the_machines_own() -> None:
    configuration = Configuration(ssh_public_key="ssh-a", user_data="ssh_authorized_keys: [ssh-b]\n")
    assert load(render_user_data(configuration, "", agent=False))["ssh_authorized_keys"] == ["ssh-a", "ssh-b"]


def test_a_template_stays_a_template() -> None:
    configuration = Configuration(user_data="## template: jinja\n#cloud-config\nhostname: x\n")
    assert render_user_data(configuration, BOOTSTRAP, agent=True).startswith(
        "## template: jinja\n#cloud-config\n"
    )


def test_what_cannot_be_merged_is_refused() -> None:
    with pytest.raises(BadUserData, match="a script"):
        render_user_data(Configuration(user_data="#!/bin/sh\n"), BOOTSTRAP, agent=True)


@pytest.mark.parametrize("password", ["a: b' \" #x", "12345", ".inf", "22:22", "no", "- x", "{a", "%", "~"])
def test_any_text_can_be_the_password(password: str) -> None:
    text = render_user_data(Configuration(ssh_user="u", ssh_password=password), "", agent=False)
    assert load(text)["password"] == password
