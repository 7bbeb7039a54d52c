"""Bodies as Go decodes them: what is refused at decoding, and what remains of what is taken. Texts of kube-apiserver 1.34."""

from __future__ import annotations

from typing import Any

import pytest

from windrow.apiserver.loopback import LoopbackClient
from windrow.apiserver.server import ApiServer
from windrow.emulator.kit.go_types import decoding_fault
from windrow.kubernetes.errors import KubeError
from windrow.kubernetes.resources import CONFIG_MAP, NAMESPACE, POD, PVC, ApiResource

from .conftest import WIDGET

Raw = dict[str, Any]
Client = LoopbackClient
LONG = 2**31
QUANTITY_FORM = "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"


@pytest.fixture
def client(server: ApiServer) -> Client:
    return server.local()


def an_object(kind: ApiResource, metadata: Any = None, **fields: Any) -> Raw:
    head = metadata if metadata is not None else {}
    if isinstance(head, dict):
        head = {"name": "a", **({"namespace": "default"} if kind.namespaced else {}), **head}
    return {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": head, **fields}


def a_claim(**spec: Any) -> Raw:
    usual = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    return an_object(PVC, spec={**usual, **spec})


async def refusal(client: Client, kind: ApiResource, raw: Raw) -> str:
    with pytest.raises(KubeError) as caught:
        await client.create(kind, raw)
    assert caught.value.status == 400
    beginning = f'{kind.kind} in version "{kind.version}" cannot be handled as a {kind.kind}: '
    assert caught.value.message.startswith(beginning)
    return caught.value.message.removeprefix(beginning)


def field(struct: str, found: str, go_type: str) -> str:
    return f"json: cannot unmarshal {found} into Go struct field {struct} of type {go_type}"


@pytest.mark.parametrize(
    ("kind", "raw", "text"),
    [
        (CONFIG_MAP, an_object(CONFIG_MAP, {"labels": "x"}), field("ObjectMeta.metadata.labels", "string", "map[string]string")),
        (CONFIG_MAP, an_object(CONFIG_MAP, {"labels": {"a": -1}}), field("ObjectMeta.metadata.labels", "number", "string")),
        (CONFIG_MAP, an_object(CONFIG_MAP, {"labels": []}), field("ObjectMeta.metadata.labels", "array", "map[string]string")),
        (
            CONFIG_MAP,
            an_object(CONFIG_MAP, {"ownerReferences": [{"apiVersion": 1}]}),
            field("OwnerReference.metadata.ownerReferences.apiVersion", "number", "string"),
        ),
        (NAMESPACE, an_object(NAMESPACE, spec={"finalizers": [{}]}), field("NamespaceSpec.spec.finalizers", "object", "v1.FinalizerName")),
        (PVC, a_claim(accessModes="x"), field("PersistentVolumeClaimSpec.spec.accessModes", "string", "[]v1.PersistentVolumeAccessMode")),
        (PVC, a_claim(accessModes=[1]), field("PersistentVolumeClaimSpec.spec.accessModes", "number", "v1.PersistentVolumeAccessMode")),
        (
            PVC,
            a_claim(resources={"requests": "x"}),
            field("VolumeResourceRequirements.spec.resources.requests", "string", "v1.ResourceList"),
        ),
        (POD, an_object(POD, spec={"priority": LONG}), field("PodSpec.spec.priority", f"number {LONG}", "int32")),
        # A custom resource's metadata is decoded alone.
        (WIDGET, an_object(WIDGET, {"annotations": {"a": 1}}), field("ObjectMeta.annotations", "number", "string")),
        (WIDGET, an_object(WIDGET, {"finalizers": "x"}), field("ObjectMeta.finalizers", "string", "[]string")),
        # Of several the first, but a quantity decodes itself, and its error ends the decoding.
        (PVC, a_claim(accessModes=1, volumeMode=1), field("PersistentVolumeClaimSpec.spec.accessModes", "number", "[]v1.PersistentVolumeAccessMode")),
        (PVC, a_claim(accessModes=1, resources={"requests": {"storage": "much"}}), QUANTITY_FORM),
    ],
)  # fmt: skip
async def test_a_mistyped_field_is_refused_with_go_s_name_of_its_type(
    client: Client, kind: ApiResource, raw: Raw, text: str
) -> None:
    assert await refusal(client, kind, raw) == text


async def test_a_null_leaves_nothing_in_a_struct_and_the_zero_value_in_a_map(client: Client) -> None:
    made = await client.create(
        CONFIG_MAP, an_object(CONFIG_MAP, {"labels": {"a": None}}, data={"k": None}, immutable=None)
    )

    assert made["metadata"]["labels"] == {"a": ""}
    assert made["data"] == {"k": ""}
    assert "immutable" not in made


async def test_what_no_field_of_a_built_in_kind_takes_is_dropped(client: Client) -> None:
    made = await client.create(PVC, a_claim(nonsense=1, selector={"matchLabels": {}, "nonsense": 1}))

    assert "nonsense" not in made["spec"]
    assert "nonsense" not in made["spec"]["selector"]


async def test_a_volume_of_a_cloud_is_kept_as_it_is(client: Client) -> None:
    disk = {"name": "d", "rbd": {"monitors": ["m"], "image": "i"}}
    pod = an_object(POD, spec={"containers": [{"name": "c", "image": "i"}], "volumes": [disk]})

    assert (await client.create(POD, pod))["spec"]["volumes"] == [disk]


@pytest.mark.parametrize(
    ("written", "kept"),
    [("1.5Gi", "1536Mi"), (1073741824, "1073741824"), ("1024Mi", "1Gi"), ("0.5G", "500M")],
)
async def test_a_quantity_is_kept_in_its_canonical_form(client: Client, written: Any, kept: str) -> None:
    made = await client.create(PVC, a_claim(resources={"requests": {"storage": written}}))

    assert made["spec"]["resources"]["requests"]["storage"] == kept


async def test_a_namespace_keeps_the_label_of_its_name_and_its_finalizers(client: Client) -> None:
    made = await client.create(NAMESPACE, an_object(NAMESPACE, spec={"finalizers": ["x/y"]}))
    assert made["spec"] == {"finalizers": ["x/y", "kubernetes"]}

    changed = await client.update(
        NAMESPACE,
        {
            **made,
            "metadata": {**made["metadata"], "labels": {"kubernetes.io/metadata.name": "b"}},
            "spec": {},
        },
    )

    assert changed["metadata"]["labels"] == {"kubernetes.io/metadata.name": "a"}
    assert changed["spec"] == made["spec"]


@pytest.mark.parametrize(
    ("kind", "raw", "text"),
    [
        ("VirtualMachineImage", {"spec": "x"}, field("VirtualMachineImage.spec", "string", "v1beta1.VirtualMachineImageSpec")),
        ("VirtualMachineImage", {"spec": {"url": [], "retry": "x"}}, field("VirtualMachineImageSpec.spec.retry", "string", "int")),
        (
            "VirtualMachineImage",
            {"spec": {"sourceType": []}},
            field("VirtualMachineImageSpec.spec.sourceType", "array", "v1beta1.VirtualMachineImageSourceType"),
        ),
        # The spec of a machine decodes itself: what is in it is told of the struct around, and ends the decoding.
        (
            "VirtualMachineTemplateVersion",
            {"spec": {"vm": {"spec": {"template": {"metadata": [], "spec": {"domain": {"cpu": {"cores": 2**53}}}}}}}},
            field(
                "VirtualMachineInstanceTemplateSpec.spec.vm.spec.template.spec.domain.cpu.cores",
                f"number {2**53}",
                "uint32",
            ),
        ),
        (
            "VirtualMachineTemplateVersion",
            {"spec": {"vm": {"spec": {"template": {"spec": "x"}}}}},
            field("VirtualMachineInstanceTemplateSpec.spec.vm.spec.template.spec", "string", "v1.VMISpecAlias"),
        ),
        (
            "VirtualMachineTemplateVersion",
            {"spec": {"vm": {"spec": {"template": {"spec": {"domain": {"devices": {"disks": [{"disk": {"bus": True}}]}}}}}}}},
            field(
                "VirtualMachineInstanceTemplateSpec.spec.vm.spec.template.spec.domain.devices.disks.DiskDevice.disk.bus",
                "bool",
                "v1.DiskBus",
            ),
        ),
    ],
)  # fmt: skip
def test_a_webhook_s_decoder_tells_the_first_field_by_name(kind: str, raw: Raw, text: str) -> None:
    assert decoding_fault(kind, raw) == text


async def test_a_null_of_a_custom_field_that_is_not_nullable_is_no_value(client: Client) -> None:
    made = await client.create(WIDGET, an_object(WIDGET, spec={"size": 1, "tags": None}))

    assert made["spec"] == {"size": 1, "color": "red"}
