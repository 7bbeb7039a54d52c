"""What Go says of a VirtualMachine that it cannot decode, what it writes of one that it can, and KubeVirt's own schema."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from windrow.emulator.admission.kubevirt.openapi import find_schema_causes
from windrow.emulator.admission.kubevirt.typed import INTEGERS, OWN, SPEC, write_as_go
from windrow.emulator.kit.go_types import decoding_fault, fields_of, is_struct, table
from windrow.kubernetes.objects import Raw

QUANTITY = "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
INNER = "VirtualMachineInstanceTemplateSpec.spec.template.spec"


def a_vm(**spec: Any) -> Raw:
    whole: Raw = {"domain": {"devices": {}}, **spec}
    return {"metadata": {"name": "web"}, "spec": {"runStrategy": "Always", "template": {"spec": whole}}}


def misfit(value: str, field: str, type: str) -> str:
    return f"json: cannot unmarshal {value} into Go struct field {field} of type {type}"


@pytest.mark.parametrize(
    ("vm", "fault"),
    [
        (a_vm(), ""),
        (a_vm(hostname=None, volumes=None, networks=[None]), ""),
        ({"spec": "text"}, misfit("string", "VirtualMachine.spec", "v1.VirtualMachineSpec")),
        ({"metadata": {"labels": {"a": 1}}}, misfit("number", "ObjectMeta.metadata.labels", "string")),
        (
            {"spec": {"runStrategy": []}},
            misfit("array", "VirtualMachineSpec.spec.runStrategy", "v1.VirtualMachineRunStrategy"),
        ),
        # A struct that decodes itself is named by the struct around it.
        ({"spec": {"template": {"spec": 1}}}, misfit("number", INNER, "v1.VMISpecAlias")),
        (a_vm(networks=["a"]), misfit("string", f"{INNER}.networks", "v1.Network")),
        (
            a_vm(networks=[{"multus": []}]),
            misfit("array", f"{INNER}.networks.NetworkSource.multus", "v1.MultusNetwork"),
        ),
        (a_vm(affinity=1), misfit("number", f"{INNER}.affinity", "v1.Affinity")),
        (a_vm(domain={"cpu": {"cores": -1}}), misfit("number -1", f"{INNER}.domain.cpu.cores", "uint32")),
        (a_vm(domain={"cpu": {"cores": 1.5}}), misfit("number 1.5", f"{INNER}.domain.cpu.cores", "uint32")),
        (a_vm(domain={"memory": {"guest": True}}), QUANTITY),
        # Two packages have a DataVolumeSource.
        (
            {"spec": {"dataVolumeTemplates": [{"spec": {"source": {"blank": 1}}}]}},
            misfit(
                "number",
                "DataVolumeSource.spec.dataVolumeTemplates.spec.source.blank",
                "v1beta1.DataVolumeBlankImage",
            ),
        ),
        (
            {"spec": {"template": {"metadata": {"creationTimestamp": "a"}}}},
            'parsing time "a" as "2006-01-02T15:04:05Z07:00": cannot parse "a" as "2006"',
        ),
    ],
)
def test_what_go_says_of_a_value_of_another_type(vm: Raw, fault: str) -> None:
    assert decoding_fault("VirtualMachine", vm) == fault


def test_go_tells_the_first_fault_in_the_order_of_names() -> None:
    vm = a_vm(volumes=1, networks=1)
    assert decoding_fault("VirtualMachine", vm) == misfit("number", f"{INNER}.networks", "[]v1.Network")


def test_a_fault_of_a_type_that_decodes_itself_is_told_before_earlier_ones() -> None:
    vm = a_vm(architecture=1, domain={"memory": {"guest": "much"}})
    assert decoding_fault("VirtualMachine", vm) == QUANTITY


def test_a_struct_that_decodes_itself_ends_the_decoding_of_the_whole() -> None:
    vm = {"metadata": {"labels": 1}, **a_vm(hostname=1)}
    assert decoding_fault("VirtualMachine", vm) == misfit("number", f"{INNER}.hostname", "string")


def test_go_writes_known_fields_in_their_canonical_form() -> None:
    vm = a_vm(
        nonsense=True,
        hostname="",
        networks=[],
        domain={"devices": {"gpus": [{"deviceName": "a"}]}, "memory": {"guest": "1024Mi"}},
    )
    before = copy.deepcopy(vm)

    written = write_as_go(vm["spec"], SPEC)

    assert written["template"]["spec"] == {
        "domain": {
            "devices": {"gpus": [{"deviceName": "a", "name": ""}]},
            "memory": {"guest": "1Gi"},
            "resources": {},
        }
    }
    assert vm == before


def test_what_go_wrote_it_writes_again() -> None:
    written = write_as_go(a_vm(networks=[{"name": "a", "pod": {}}], tolerations=[None])["spec"], SPEC)
    assert write_as_go(written, SPEC) == written


@pytest.mark.parametrize(
    ("vm", "messages"),
    [
        (a_vm(), []),
        ({}, ["spec in body is required", 'spec in body must be of type object: "null"']),
        ({"spec": {}}, ["spec.template in body is required"]),
        ({"spec": {"template": {}}}, []),
        (a_vm(domain={}), ["spec.template.spec.domain.devices in body is required"]),
        (
            a_vm(domain={"devices": {"disks": [{"name": "a", "bootOrder": 2**53}]}}),
            ['spec.template.spec.domain.devices.disks.bootOrder in body must be of type int32: "float64"'],
        ),
        (a_vm(networks=[None]), ['spec.template.spec.networks in body must be of type object: "null"']),
        (
            a_vm(tolerations=[{"operator": "Maybe"}]),
            ["spec.template.spec.tolerations.operator in body should be one of [Equal Exists]"],
        ),
        (
            {"spec": {"template": {"metadata": {"labels": {"a": None}, "b": 1}}}},
            [
                "spec.template.metadata.b in body is a forbidden property",
                'spec.template.metadata.labels.a in body must be of type string: "null"',
            ],
        ),
    ],
)
def test_what_kubevirts_schema_says(vm: Raw, messages: list[str]) -> None:
    assert [cause.message for cause in find_schema_causes(vm)] == messages


def test_every_type_of_a_field_is_in_the_table() -> None:
    plain = {"string", "bool", "bytes", "float64", "microtime", "duration", *INTEGERS, *OWN}
    for struct in table()["types"]:
        for field in fields_of(struct).values():
            kind = field.kind
            while kind.startswith(("[]", "{}")):
                kind = kind[2:]
            assert kind in plain or is_struct(kind), kind
