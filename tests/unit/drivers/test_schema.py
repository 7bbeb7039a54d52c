from __future__ import annotations

from typing import Any

import pytest

from windrow.apiserver.types.crds import validate_crd
from windrow.drivers.api import HARVESTER, Fault, FieldAnnotations, read_field_annotations, render_builtin
from windrow.drivers.schema import (
    Field,
    get_field,
    is_current,
    is_generated,
    machine_config_kind,
    read_fields,
    render_crd,
    render_field,
    schema_source,
)
from windrow.nodedriver.options import OPTIONS
from windrow.nodedriver.schema import HARVESTER_CONFIG, harvester_config_crd
from windrow.protocols.dockermachine import Flag


def a_flag(name: str, kind: Any = "string", default: Any = "", usage: str = "") -> Flag:
    return Flag(kind, name, usage, "", default)


def harvester_flags() -> list[Flag]:
    return [Flag(one.type, one.flag, one.usage, one.env, one.default) for one in OPTIONS]


# -- names -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("flag", "field"),
    [
        ("harvester-enable-efi", "enableEfi"),
        ("harvester-vgpu-info", "vgpuInfo"),
        ("amazonec2-vpc-id", "vpcId"),
        ("x-a", "a"),
        ("x-IAM-role", "IAMRole"),
        ("otc-2-disks", "2Disks"),
    ],
)
def test_a_flag_s_field_is_what_follows_the_first_dash_in_camel_case(flag: str, field: str):
    assert get_field(flag) == field


@pytest.mark.parametrize(
    "flag", ["noop", "", "-", "noop-", "noop--x", "noop-x-", "noop-a b", "noop-" + "a" * 300]
)
def test_a_flag_that_can_have_no_field_is_refused_by_its_name(flag: str):
    with pytest.raises(Fault, match="is not of the form DRIVER-NAME"):
        get_field(flag)


def test_kinds_are_called_as_rancher_calls_them():
    assert machine_config_kind("harvester") == HARVESTER_CONFIG
    assert machine_config_kind("digitalocean").kind == "DigitaloceanConfig"
    assert (
        machine_config_kind("digitalocean").group_resource
        == "digitaloceanconfigs.rke-machine-config.cattle.io"
    )


# -- types -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("flag", "field"),
    [
        (a_flag("x-a", default="b", usage="what"), Field("a", "string", "x-a", "what", "b")),
        (a_flag("x-a"), Field("a", "string", "x-a")),
        (a_flag("x-a", "int", 0), Field("a", "string", "x-a", default="0")),
        (a_flag("x-a", "int", -1), Field("a", "string", "x-a", default="-1")),
        (a_flag("x-a", "bool", False), Field("a", "boolean", "x-a")),
        (a_flag("x-a", "strings", ("b", "c")), Field("a", "array[string]", "x-a", default=("b", "c"))),
        (a_flag("x-a", "strings", ()), Field("a", "array[string]", "x-a")),
        (a_flag("x-ssh-key"), Field("sshKey", "password", "x-ssh-key")),
        (a_flag("x-ssh-key-contents"), Field("sshKeyContents", "password", "x-ssh-key-contents")),
        (a_flag("x-private-key-file"), Field("privateKeyFile", "password", "x-private-key-file")),
        (a_flag("x-ssh-password"), Field("sshPassword", "string", "x-ssh-password")),
    ],
)
def test_types_are_rancher_s(flag: Flag, field: Field):
    assert read_fields([flag]) == (field,)


def test_annotations_make_passwords_and_defaults():
    hints = FieldAnnotations(
        private=frozenset({"token"}),
        passwords=frozenset({"pin"}),
        defaults={"region": "eu"},
    )
    flags = [
        a_flag("x-token"),
        a_flag("x-pin", "int", 0),
        a_flag("x-region", default="us"),
    ]

    assert [(one.name, one.type, one.default) for one in read_fields(flags, hints)] == [
        ("token", "password", None),
        ("pin", "password", "0"),
        ("region", "string", "eu"),
    ]


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["x-kind"], "would be the field 'kind', which is reserved"),
        (["x-metadata"], "would be the field 'metadata'"),
        (["x-a-b", "y-a-b"], "its create flags 'x-a-b' and 'y-a-b' would both be the field 'aB'"),
        ([f"x-a{number}" for number in range(1001)], "it has 1001 create flags, more than 1000"),
    ],
)
def test_flags_that_make_no_kind_are_refused(flags: list[str], words: str):
    with pytest.raises(Fault, match="report it") as caught:
        read_fields([a_flag(name) for name in flags])

    assert words in caught.value.message
    assert caught.value.reason == "InvalidCreateFlags"


@pytest.mark.parametrize(
    ("field", "schema"),
    [
        (
            Field("a", "string", "x-a", "what", "b"),
            {"description": "what", "type": "string", "nullable": True, "default": "b"},
        ),
        (Field("a", "boolean", "x-a"), {"type": "boolean", "nullable": True}),
        (Field("a", "password", "x-a"), {"type": "string", "nullable": True, "format": "password"}),
        (
            Field("a", "array[string]", "x-a", "", ("b",)),
            {
                "type": "array",
                "nullable": True,
                "items": {"type": "string", "nullable": True},
                "default": ["b"],
            },
        ),
    ],
)
def test_each_type_has_its_schema(field: Field, schema: dict[str, Any]):
    assert render_field(field) == schema


# -- the definition ----------------------------------------------------------------------------------------------


def test_the_crd_is_valid_and_has_its_source():
    crd = render_crd("noop", read_fields([a_flag("noop-a")]), "d" * 64)

    assert validate_crd(crd, None) == []
    assert crd["metadata"]["labels"] == {"io.cattle.node_driver.name": "noop"}
    assert is_generated(crd)
    assert is_current(crd, "noop", "d" * 64)
    assert not is_current(crd, "noop", "e" * 64)
    assert not is_current(crd, "other", "d" * 64)
    assert not is_current(None, "noop", "d" * 64)
    assert not is_generated(harvester_config_crd())


def test_the_source_of_a_crd_is_the_file_and_the_field_annotations():
    more = FieldAnnotations(defaults={"a": "b"})

    assert schema_source("d" * 64) == "d" * 64
    assert schema_source("d" * 64, more) != schema_source("d" * 64)
    assert schema_source("d" * 64, more) != schema_source("e" * 64, more)
    assert schema_source("d" * 64, FieldAnnotations(defaults={"a": "b"})) == schema_source("d" * 64, more)


def properties(crd: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]
    return found


def test_harvester_s_own_definition_has_the_fields_that_its_flags_would_give():
    hints = read_field_annotations(render_builtin(HARVESTER)["metadata"]["annotations"])
    made = render_crd("harvester", read_fields(harvester_flags(), hints), "d" * 64)

    assert made["metadata"]["name"] == harvester_config_crd()["metadata"]["name"]
    # Beside one that no driver is given.
    own = [name for name in properties(harvester_config_crd()) if name != "addressPools"]
    assert list(properties(made)) == own
    assert {name: one["default"] for name, one in properties(made).items() if "default" in one} == {
        "clusterType": "imported",
        "vmNamespace": "default",
        "cpuCount": "2",
        "memorySize": "4",
        "diskSize": "0",
        "sshUser": "root",
        "sshPort": "22",
        "reservedMemorySize": "-1",
    }
    assert [name for name, one in properties(made).items() if one.get("format") == "password"] == [
        "kubeconfigContent"
    ]
