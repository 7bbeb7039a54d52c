"""Any user input is read with warnings, never with a crash."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.clock import run_driven

from windrow.core.formats.yaml import dump
from windrow.emulator.guest_os.cloudinit.modules import (
    list_commands,
    list_packages,
    list_user_accounts,
    list_write_files,
    read_hostname,
)
from windrow.emulator.guest_os.cloudinit.network_data import read_network_data
from windrow.emulator.guest_os.cloudinit.user_data import merge_configs, read_user_data
from windrow.emulator.guest_os.shell.parse import BadScript, parse_script
from windrow.emulator.guest_os.systemd import parse_unit

from .testbed import a_testbed

VALUES: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.text("ab/: =.$'\"|#\n{}[]()&;", max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["path", "content", "encoding", "name", "version", "x"]), inner, max_size=3
        )
    ),
    max_leaves=8,
)
KEYS = (
    "write_files",
    "runcmd",
    "bootcmd",
    "users",
    "ssh_authorized_keys",
    "packages",
    "hostname",
    "merge_how",
)
CONFIGS = st.dictionaries(st.sampled_from(KEYS), VALUES, max_size=4)


@given(CONFIGS)
def test_every_module_reads_every_configuration(config: dict[str, Any]):
    list_write_files(config)
    list_commands(config, "runcmd")
    list_user_accounts(config)
    list_packages(config)
    read_hostname(config)


@given(CONFIGS, CONFIGS)
def test_any_two_parts_merge(base: dict[str, Any], more: dict[str, Any]):
    merge_configs(base, more, more.get("merge_how"))


@given(st.text(max_size=60))
def test_any_text_is_user_data(text: str):
    for head in (
        "",
        "#cloud-config\n",
        "## template: jinja\n",
        "Content-Type: multipart/mixed; boundary=a\n\n--a\n",
    ):
        read_user_data(head + text)


@given(VALUES, st.sampled_from([1, 2]))
def test_any_value_is_network_data(value: Any, version: int):
    read_network_data(dump(value))
    read_network_data(dump({"version": version, "config": value, "ethernets": value}))


@given(st.text("ab'\"$(){}|&;<>\n #`\\=if then fi do done case esac in", max_size=40))
def test_any_text_is_a_script_or_a_bad_one(text: str):
    try:
        parse_script(text)
    except BadScript:
        return


@given(st.text("[]=#;\n ab\\", max_size=40))
def test_any_text_is_a_unit(text: str):
    parse_unit("a.service", text)


@settings(max_examples=60)
@given(CONFIGS, st.text("ab'\"$(){}|&;<>\n #`\\=echo[]!", max_size=30))
def test_a_machine_boots_with_any_configuration(config: dict[str, Any], script: str):
    async def scenario() -> None:
        async with a_testbed() as testbed:
            document = {**config, "runcmd": [*_listed(config.get("runcmd")), script]}
            host = testbed.power_on("one", "#cloud-config\n" + dump(document))
            await testbed.wait_for(lambda: host.logged("login:") or testbed.tasks["one"].done())
            assert not testbed.tasks["one"].done()

    run_driven(scenario())


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []
