"""Refusals of ResourceQuotas, StorageClasses, Secrets and claims, in the words of kube-apiserver 1.33."""

from __future__ import annotations

from typing import Any

import pytest

from windrow.apiserver.loopback import LoopbackClient
from windrow.apiserver.server import ApiServer
from windrow.apiserver.storage import MemoryStore
from windrow.core.rng import Rng
from windrow.core.text import encode_base64
from windrow.kubernetes.errors import KubeError
from windrow.kubernetes.objects import new_object
from windrow.kubernetes.resources import PVC, SECRET, STORAGE_CLASS, ApiResource

from .conftest import FrozenClock

Raw = dict[str, Any]
QUOTA = ApiResource("", "v1", "ResourceQuota", "resourcequotas")
QUANTITY_FORM = "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
HALF = (
    "resource.Quantity{i:resource.int64Amount{value:15, scale:-1}, "
    'd:resource.infDecAmount{Dec:(*inf.Dec)(nil)}, s:"", Format:"DecimalSI"}'
)


def a_client() -> LoopbackClient:
    return ApiServer(MemoryStore(), FrozenClock(), Rng(1)).local()


async def refusal(kind: ApiResource, **fields: Any) -> tuple[int, str]:
    """Code and text, without what names the object."""
    namespace = "default" if kind.namespaced else ""
    with pytest.raises(KubeError) as caught:
        await a_client().create(kind, new_object(kind, "new", namespace, **fields))
    return caught.value.status or 0, caught.value.message.partition(": ")[2]


@pytest.mark.parametrize(
    ("hard", "code", "text"),
    [
        ({"cpu": "-1"}, 422, 'spec.hard[cpu]: Invalid value: "-1": must be greater than or equal to 0'),
        ({"cpu": "much"}, 400, QUANTITY_FORM),
        ({"cpu": "1Q"}, 400, QUANTITY_FORM),
        ({"cpu": "1ii"}, 400, "unable to parse quantity's suffix"),
        ({"pods": "1.5"}, 422, f"spec.hard[pods]: Invalid value: {HALF}: must be an integer"),
        (
            {"nonsense": "1"},
            422,
            "[spec.hard[nonsense]: Invalid value: nonsense: must be a standard resource type or fully qualified, "
            "spec.hard[nonsense]: Invalid value: nonsense: must be a standard resource for quota]",
        ),
        (
            {"storage": "1"},
            422,
            "spec.hard[storage]: Invalid value: storage: must be a standard resource for quota",
        ),
    ],
)
async def test_a_quota_limits_known_resources_by_amounts(hard: Raw, code: int, text: str) -> None:
    assert (code, text) == await refusal(QUOTA, spec={"hard": hard})


@pytest.mark.parametrize(
    ("scopes", "why"),
    [
        (["Lucky"], ['{"Lucky"}: unsupported scope']),
        (["BestEffort"], ['{"BestEffort"}: unsupported scope applied to resource']),
        (
            ["Terminating", "NotTerminating"],
            ['{"Terminating", "NotTerminating"}: conflicting scopes'],
        ),
    ],
)
async def test_the_scopes_of_a_quota_fit_one_another_and_its_resources(
    scopes: list[str], why: list[str]
) -> None:
    text = "".join(f"spec.scopes: Invalid value: []core.ResourceQuotaScope{one}" for one in why)

    assert (422, text) == await refusal(QUOTA, spec={"hard": {"cpu": "1"}, "scopes": scopes})


async def test_the_scopes_of_a_quota_stay() -> None:
    client = a_client()
    quota = await client.create(
        QUOTA, new_object(QUOTA, "q", "default", spec={"hard": {"count/pods": "2", "cpu": "1"}})
    )
    quota["spec"]["scopes"] = ["Terminating"]

    with pytest.raises(KubeError, match="field is immutable"):
        await client.update(QUOTA, quota)


CLASS: Raw = {"provisioner": "driver.longhorn.io"}


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"provisioner": ""}, "provisioner: Required value"),
        (
            {**CLASS, "reclaimPolicy": "Keep"},
            'reclaimPolicy: Unsupported value: "Keep": supported values: "Delete", "Retain"',
        ),
        (
            {**CLASS, "volumeBindingMode": "Never"},
            'volumeBindingMode: Unsupported value: "Never": supported values: "Immediate", "WaitForFirstConsumer"',
        ),
        ({**CLASS, "parameters": {"": "a"}}, 'parameters: Invalid value: "": field can not be empty.'),
        (
            {**CLASS, "parameters": {"a": "b" * 262144}},
            "parameters: Too long: may not be more than 262144 bytes",
        ),
    ],
)
async def test_a_class_has_a_provisioner_and_known_policies(fields: Raw, text: str) -> None:
    assert (422, text) == await refusal(STORAGE_CLASS, **fields)


@pytest.mark.parametrize(
    ("type", "data", "text"),
    [
        (
            "kubernetes.io/dockerconfigjson",
            {".dockerconfigjson": "{"},
            'data[.dockerconfigjson]: Invalid value: "<secret contents redacted>": unexpected end of JSON input',
        ),
        ("kubernetes.io/dockercfg", {}, "data[.dockercfg]: Required value"),
        (
            "kubernetes.io/basic-auth",
            {},
            "[data[username]: Required value, data[password]: Required value]",
        ),
        ("kubernetes.io/ssh-auth", {"ssh-privatekey": ""}, "data[ssh-privatekey]: Required value"),
        ("Opaque", {"a": "b" * 1048577}, "data: Too long: may not be more than 1048576 bytes"),
    ],
)
async def test_a_secret_holds_what_its_type_requires(type: str, data: Raw, text: str) -> None:
    encoded = {key: encode_base64(value) for key, value in data.items()}

    assert (422, text) == await refusal(SECRET, type=type, data=encoded)


async def test_a_secret_may_have_a_mebibyte() -> None:
    secret = new_object(SECRET, "large", "default", data={"a": encode_base64("b" * 1048576)})

    assert await a_client().create(SECRET, secret)


def a_claim(size: Any = "1Gi", **spec: Any) -> Raw:
    plain = {"accessModes": ["ReadWriteMany"], "resources": {"requests": {"storage": size}}}
    return new_object(PVC, "new", "default", spec={**plain, **spec})


async def test_the_size_of_a_claim_is_a_quantity() -> None:
    with pytest.raises(KubeError) as caught:
        await a_client().create(PVC, a_claim("large"))

    start = 'PersistentVolumeClaim in version "v1" cannot be handled as a PersistentVolumeClaim: '
    assert caught.value.message == start + QUANTITY_FORM


@pytest.mark.parametrize(
    ("spec", "text"),
    [
        (
            {"selector": {"matchExpressions": [{"key": "a", "operator": "Near"}]}},
            'spec.selector.matchExpressions[0].operator: Invalid value: "Near": not a valid selector operator',
        ),
        (
            {"dataSource": {"kind": "PersistentVolumeClaim", "name": ""}},
            "[spec.dataSource.name: Required value, spec.dataSourceRef.name: Required value]",
        ),
    ],
)
async def test_a_claim_names_its_source(spec: Raw, text: str) -> None:
    assert (422, text) == await refusal(PVC, spec=a_claim(**spec)["spec"])


CLONED: Raw = {"kind": "PersistentVolumeClaim", "name": "a"}


@pytest.mark.parametrize(
    ("given", "stored"),
    [
        ({"dataSource": CLONED}, {"dataSource": CLONED, "dataSourceRef": CLONED}),
        ({"dataSourceRef": CLONED}, {"dataSource": CLONED, "dataSourceRef": CLONED}),
        ({"dataSource": {"kind": "Pod", "name": "a"}}, {}),
    ],
)
async def test_both_fields_of_a_source_say_the_same(given: Raw, stored: Raw) -> None:
    made = await a_client().create(PVC, a_claim(**given))

    assert stored == {key: value for key, value in made["spec"].items() if key.startswith("dataSource")}


async def test_the_volume_mode_of_a_claim_is_immutable_by_two_rules() -> None:
    client = a_client()
    claim = await client.create(PVC, a_claim(volumeMode="Block"))
    claim["spec"]["volumeMode"] = "Filesystem"

    with pytest.raises(KubeError) as caught:
        await client.update(PVC, claim)

    fields = [cause["field"] for cause in caught.value.details["causes"]]
    assert fields == ["spec", "volumeMode"]
