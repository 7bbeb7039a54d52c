from __future__ import annotations

from typing import Any

import pytest

from windrow.cloudinit.document import Document, parse
from windrow.cloudinit.guest_agent import ENABLE, PACKAGE, add_guest_agent, with_guest_agent


def test_the_agent_is_installed_and_started_before_anything_else_runs() -> None:
    made = with_guest_agent(parse("packages: [iptables]\nruncmd:\n- sh install.sh\n")).data
    assert made == {"packages": ["iptables", PACKAGE], "runcmd": [ENABLE, "sh install.sh"]}


def test_an_empty_document_gets_both() -> None:
    assert with_guest_agent(Document()).data == {"packages": [PACKAGE], "runcmd": [ENABLE]}


@pytest.mark.parametrize(
    "data",
    [
        {"packages": ["qemu-guest-agent"], "runcmd": ["systemctl start qemu-guest-agent"]},
        {
            "packages": [["qemu-guest-agent", "1.2"]],
            "runcmd": [["systemctl", "enable", "qemu-guest-agent.service"]],
        },
        {"packages": [{"apt": ["qemu-guest-agent"]}], "runcmd": ["rc-update add qemu-guest-agent"]},
    ],
)
def test_a_document_that_names_the_agent_stays_as_it_is(data: dict[str, Any]) -> None:
    assert with_guest_agent(Document(data)).data == data


def test_adding_twice_is_adding_once() -> None:
    once = with_guest_agent(Document({"runcmd": ["x"]}))
    assert with_guest_agent(once) == once


def test_what_is_no_list_is_left_for_cloud_init_to_complain_about() -> None:
    assert with_guest_agent(Document({"packages": "vim", "runcmd": "x"})).data == {
        "packages": "vim",
        "runcmd": "x",
    }


def test_a_document_is_lent_the_agent_unless_what_it_will_be_merged_with_brings_it() -> None:
    plain = "#cloud-config\nruncmd:\n- echo hello\n"

    assert PACKAGE in add_guest_agent(plain, "")
    beside = (
        "#cloud-config\npackages: [qemu-guest-agent]\nruncmd: [systemctl enable --now qemu-guest-agent]\n"
    )
    assert add_guest_agent(plain, beside) == plain
    assert add_guest_agent("#!/bin/sh\n", "") == "#!/bin/sh\n"
