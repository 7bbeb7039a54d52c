"""config.json in and out: what the Go driver of any version wrote, and what it reads of ours."""

from __future__ import annotations

import base64
from dataclasses import fields, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.nodedriver.go_keys import GO_KEYS
from tests.unit.nodedriver.harvester_rig import a_machine

from windrow.core.formats.json import dumps, loads
from windrow.nodedriver.config import UNSET, Configuration, InvalidDriverConfig
from windrow.nodedriver.config_json import dump, load
from windrow.nodedriver.devices import DiskSpec, NicSpec
from windrow.nodedriver.validate.rules import find_problems

KUBECONFIG = "apiVersion: v1\nkind: Config\n"
PACKED = base64.b64encode(KUBECONFIG.encode()).decode()
FLAG = "--harvester-kubeconfig-content"
ENV = "HARVESTER_KUBECONFIG_CONTENT"


def loaded(raw: Any, base: Configuration = UNSET) -> Configuration:
    return load(dumps(raw), base)


def renewed(*argv: str, env: dict[str, str] | None = None) -> str:
    old = replace(UNSET, kubeconfig_content="old")
    return load(b"{}", old, ["/usr/bin/driver", *argv], env or {}).kubeconfig_content


def test_every_key_is_written_in_go_s_order_and_ours_follow() -> None:
    keys = list(loads(dump(a_machine())))
    assert keys[: len(GO_KEYS)] == GO_KEYS
    assert all(key.startswith("Windrow") for key in keys[len(GO_KEYS) :])
    assert len(keys) == len(fields(Configuration))


def test_structures_that_are_not_set_are_null() -> None:
    raw = loads(dump(UNSET))
    assert (raw["DiskInfo"], raw["NetworkInfo"], raw["VGPUInfo"]) == (None, None, None)
    assert raw["DiskSize"] == ""


def test_what_was_written_is_read() -> None:
    machine = replace(a_machine(), claims=("a", "b"), vm_uid="u")
    assert load(dump(machine), UNSET) == machine


def test_keys_that_are_missing_keep_their_value_and_match_in_any_case() -> None:
    before = replace(UNSET, cpu=8, disk_info=(DiskSpec("a"),))
    found = loaded({"machinename": "m", "MEMORYSIZE": "8Gi", "Unknown": {"x": 1}}, before)
    assert (found.machine_name, found.memory_size, found.cpu, found.disk_info) == (
        "m",
        "8Gi",
        8,
        (DiskSpec("a"),),
    )


def test_null_changes_no_value_and_takes_a_structure_away() -> None:
    before = replace(UNSET, cpu=8, machine_name="m", disk_info=(DiskSpec("a"),))
    found = loaded({"CPU": None, "MachineName": None, "DiskInfo": None}, before)
    assert (found.cpu, found.machine_name, found.disk_info) == (8, "m", None)


def test_structures_are_read() -> None:
    found = loaded(
        {
            "DiskInfo": {"disks": [{"imageName": "a", "size": 40, "bootOrder": 1, "hotPlugAble": True}]},
            "NetworkInfo": {"interfaces": [{"networkName": "n", "macAddress": "02:00:00:00:00:01"}]},
            "VGPUInfo": {"vGPURequests": []},
        }
    )
    assert found.disk_info == (DiskSpec("a", size_gib=40, boot_order=1, hotpluggable=True),)
    assert found.network_info == (NicSpec("n", "02:00:00:00:00:01"),)
    assert found.vgpu_info == ()


def test_a_disk_size_that_is_a_number_is_understood() -> None:
    assert loaded({"DiskSize": 40}).disk_size == "40"


@pytest.mark.parametrize(
    ("raw", "said"),
    [
        ({"CPU": "2"}, "string into Go struct field targetDriver.CPU of type int"),
        ({"EnableEFI": 1}, "number into Go struct field targetDriver.EnableEFI of type bool"),
        (
            {"MachineName": []},
            "array into Go struct field targetDriver.MachineName of type string",
        ),
        ({"DiskSize": 4.5}, "number into Go struct field targetDriver.DiskSize of type string"),
        ([], "array into Go value of type harvester.targetDriver"),
    ],
)
def test_a_wrong_type_is_told_in_go_s_words(raw: Any, said: str) -> None:
    with pytest.raises(InvalidDriverConfig) as bad:
        loaded(raw)
    assert str(bad.value) == f"error unmarshalling driver config JSON: json: cannot unmarshal {said}"


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b'{"CPU":2',
        b'{"CPU":2}}',
        b"NaN x",
        b"[" * 100_000,
        b'{"CPU":1e400}',
        b'{"CPU":99999999999999999999}',
        b'{"DiskInfo":"x"}',
        b'{"DiskInfo":{"disks":[{"size":1.5}]}}',
        b'{"WindrowClaims":[5]}',
    ],
)
def test_what_cannot_be_read_is_refused(text: bytes) -> None:
    with pytest.raises(InvalidDriverConfig, match=r"^error unmarshalling driver config JSON: "):
        load(text, UNSET)


@pytest.mark.parametrize("text", [b"null", b" {} ", b'{"Unknown":NaN}'])
def test_a_document_without_known_keys_changes_nothing(text: bytes) -> None:
    assert load(text, UNSET) == UNSET


@pytest.mark.parametrize("text", [rb'{"ImageName":"\ud800"}', b'{"ImageName":"\xff"}'])
def test_text_that_is_no_unicode_is_replaced_so_that_it_can_be_written(text: bytes) -> None:
    assert loads(dump(load(text, UNSET)))["ImageName"] == "\ufffd"


def test_sizes_of_any_text_break_nothing() -> None:
    found = loaded({"MemorySize": "lots", "ReservedMemorySize": "some", "DiskSize": "٣"})
    assert (found.memory_gib, found.reserved_mib, found.disks[0].size_gib) == (0, 0, 0)
    assert find_problems(found)


# --- the kubeconfig that the host brings ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    "argv",
    [
        [f"{FLAG}={PACKED}"],
        [FLAG, PACKED],
        [FLAG, KUBECONFIG],
        [f"{FLAG}={KUBECONFIG}"],
        ["-harvester-kubeconfig-content", PACKED],
        ["rancher-machine", "rm", "-y", "--update-config", FLAG, PACKED, "m"],
        [f"{FLAG}=first", FLAG, PACKED],
    ],
)
def test_a_renewed_kubeconfig_comes_from_the_command_line(argv: list[str]) -> None:
    assert renewed(*argv) == KUBECONFIG


def test_a_value_is_everything_behind_the_first_equals_sign() -> None:
    padded = base64.b64encode(b"apiVersion: v1\nx: 12").decode()
    assert padded.endswith("=")
    assert renewed(f"{FLAG}={padded}") == "apiVersion: v1\nx: 12"


def test_a_document_that_begins_with_dashes_is_a_value() -> None:
    document = f"---\n{KUBECONFIG}"
    assert renewed(FLAG, document) == document


@pytest.mark.parametrize(
    "argv", [[FLAG], [FLAG, "--other"], [f"{FLAG}="], ["harvester-kubeconfig-content", PACKED]]
)
def test_a_flag_without_a_value_takes_nothing_away(argv: list[str]) -> None:
    assert renewed(*argv) == "old"


def test_the_environment_counts_where_the_command_line_is_silent() -> None:
    assert renewed("rm", "m", env={ENV: PACKED}) == KUBECONFIG
    assert renewed(FLAG, "argv", env={ENV: PACKED}) == "argv"


def test_an_empty_variable_does_not_wipe_the_stored_kubeconfig() -> None:
    assert renewed(env={ENV: ""}) == "old"


@given(
    st.dictionaries(
        st.sampled_from(GO_KEYS),
        st.none() | st.booleans() | st.integers() | st.text() | st.lists(st.integers()),
    )
)
def test_any_object_is_loaded_or_refused_and_what_is_loaded_can_be_written(raw: Any) -> None:
    try:
        found = loaded(raw)
    except InvalidDriverConfig as bad:
        found = UNSET
        assert "error unmarshalling" in str(bad)  # noqa: PT017 - either outcome is fine
    assert load(dump(found), UNSET) == found
