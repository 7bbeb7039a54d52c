"""Claims on an emulated Harvester: their class, their quota, and what template versions need, as the API server decides it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.support.clock import run_driven

from windrow.emulator import kinds
from windrow.kubernetes.errors import Forbidden, KubeError
from windrow.kubernetes.objects import Raw, labels_of, nested, new_object
from windrow.kubernetes.resources import PVC, SECRET

from .harvester_rig import a_harvester, a_vm, eventually

QUOTA = kinds.QUOTA.ref("limit", "default")
FAST = "harvester-longhorn.storageclass.storage.k8s.io/persistentvolumeclaims"


def a_claim(name: str, size: str = "5Gi", **spec: Any) -> Raw:
    usual = {"accessModes": ["ReadWriteMany"], "volumeMode": "Block"}
    return new_object(
        PVC, name, "default", spec={**usual, "resources": {"requests": {"storage": size}}, **spec}
    )


async def limit(harvester: Any, **hard: str) -> Raw:
    named = {name.replace("_", "."): value for name, value in hard.items()}
    quota = new_object(kinds.QUOTA, "limit", "default", spec={"hard": {**named, FAST: "9"}})
    await harvester.api.local().create(kinds.QUOTA, quota)
    return await eventually(harvester, QUOTA, lambda raw: bool(nested(raw, "status", "used")))


def test_a_claim_without_a_class_gets_the_default_one_and_one_of_the_empty_class_none():
    async def story():
        async with a_harvester() as harvester:
            client = harvester.api.local()

            made = await client.create(PVC, a_claim("a"))
            empty = await client.create(PVC, a_claim("b", storageClassName=""))

            assert made["spec"]["storageClassName"] == "harvester-longhorn"
            assert empty["spec"]["storageClassName"] == ""

    run_driven(story())


def test_a_claim_beyond_the_quota_is_refused_and_one_within_is_counted():
    async def story():
        async with a_harvester() as harvester:
            client = harvester.api.local()
            quota = await limit(harvester, requests_storage="8Gi")
            assert quota["status"]["used"] == {"requests.storage": "0", FAST: "0"}

            await client.create(PVC, a_claim("a"))
            with pytest.raises(Forbidden) as refused:
                await client.create(PVC, a_claim("b"))

            assert refused.value.message == (
                'persistentvolumeclaims "b" is forbidden: exceeded quota: limit, requested: requests.storage=5Gi, '
                "used: requests.storage=5Gi, limited: requests.storage=8Gi"
            )
            quota = await client.get(QUOTA)
            assert quota["status"]["used"] == {"requests.storage": "5Gi", FAST: "1"}

    run_driven(story())


def test_of_two_claims_at_once_the_quota_admits_what_it_has_left():
    async def story():
        async with a_harvester() as harvester:
            client = harvester.api.local()
            await limit(harvester, requests_storage="8Gi")

            made = await asyncio.gather(
                *(client.create(PVC, a_claim(name)) for name in "abc"), return_exceptions=True
            )

            assert sum(isinstance(one, Forbidden) for one in made) == 2
            assert len(await client.list(PVC)) == 1

    run_driven(story())


def test_a_claim_that_goes_gives_its_share_back():
    async def story():
        async with a_harvester() as harvester:
            client = harvester.api.local()
            await limit(harvester, requests_storage="8Gi")
            await client.create(PVC, a_claim("a"))
            await client.delete(PVC.ref("a", "default"))

            await eventually(harvester, QUOTA, lambda raw: raw["status"]["used"]["requests.storage"] == "0")
            await client.create(PVC, a_claim("b"))

    run_driven(story())


def test_a_quota_counts_other_objects_too():
    """A project's limit of Secrets refuses the cloud-init of a machine."""

    async def story():
        async with a_harvester() as harvester:
            client = harvester.api.local()
            hard = {"secrets": "1", "count/keypairs.harvesterhci.io": "1", "pods": "9", "services": "2"}
            raw = new_object(kinds.QUOTA, "limit", "default", spec={"hard": hard})
            await client.create(kinds.QUOTA, raw)
            await eventually(harvester, QUOTA, lambda raw: bool(nested(raw, "status", "used")))

            await client.create(SECRET, new_object(SECRET, "a", "default"))
            with pytest.raises(Forbidden) as refused:
                await client.create(SECRET, new_object(SECRET, "b", "default"))
            assert refused.value.message == (
                'secrets "b" is forbidden: exceeded quota: limit, requested: secrets=1, used: secrets=1, limited: secrets=1'
            )
            await client.create(kinds.VM, a_vm())
            quota = await eventually(harvester, QUOTA, lambda raw: raw["status"]["used"]["pods"] == "1")
            assert quota["status"]["used"] == {
                "secrets": "1", "count/keypairs.harvesterhci.io": "0", "pods": "1", "services": "0",
            }  # fmt: skip

            await client.delete(SECRET.ref("a", "default"))
            await eventually(harvester, QUOTA, lambda raw: raw["status"]["used"]["secrets"] == "0")
            await client.create(SECRET, new_object(SECRET, "b", "default"))

    run_driven(story())


def test_a_claim_without_a_name_is_refused_by_name():
    async def story():
        async with a_harvester() as harvester:
            claim = a_claim("a")
            del claim["metadata"]["name"]
            with pytest.raises(KubeError, match="name or generateName is required") as refused:
                await harvester.api.local().create(PVC, claim)
            assert refused.value.status == 422

    run_driven(story())


def test_harvester_serves_the_snapshot_classes_of_its_storage():
    async def story():
        async with a_harvester() as harvester:
            found = await harvester.api.local().list(kinds.SNAPSHOT_CLASS)
            assert {raw["metadata"]["name"]: raw["driver"] for raw in found} == {
                "longhorn": "driver.longhorn.io",
                "longhorn-snapshot": "driver.longhorn.io",
            }

    run_driven(story())


def test_the_priority_of_a_pool_is_not_negative():
    async def story():
        async with a_harvester() as harvester:
            spec = {"ranges": [{"subnet": "10.0.0.0/24"}], "selector": {"priority": -1}}
            with pytest.raises(
                KubeError, match=r"number -1 into Go struct field Selector\.spec\.selector\.priority"
            ) as refused:
                await harvester.api.local().create(kinds.IP_POOL, new_object(kinds.IP_POOL, "p", spec=spec))
            assert refused.value.status == 500

    run_driven(story())


@pytest.mark.parametrize(
    ("spec", "missing"),
    [
        ({}, "spec.vm.spec.template"),
        ({"template": {"spec": {}}}, "spec.vm.spec.template.spec.domain"),
        ({"template": {"spec": {"domain": {"devices": {"disks": [{}]}}}}}, "spec.vm.spec.template.spec.domain.devices.disks[0].name"),
    ],
)  # fmt: skip
def test_the_machine_of_a_template_version_has_a_template_a_domain_and_named_disks(spec: Raw, missing: str):
    async def story():
        async with a_harvester() as harvester:
            version = new_object(
                kinds.TEMPLATE_VERSION,
                "v",
                "default",
                spec={"templateId": "default/web", "vm": {"metadata": {}, "spec": spec}},
            )
            with pytest.raises(KubeError) as refused:
                await harvester.api.local().create(kinds.TEMPLATE_VERSION, version)
            assert f"{missing}: Required value" in refused.value.message

    run_driven(story())


def test_a_template_version_keeps_no_field_that_a_virtual_machine_has_not():
    async def story():
        async with a_harvester() as harvester:
            devices = {"disks": [{"name": "disk-0", "nonsense": 1}], "nonsense": {}}
            resources = {"limits": {"cpu": "1", "memory": "1Gi"}}
            domain = {"devices": devices, "resources": resources}
            vm = {"template": {"spec": {"domain": domain}}, "nonsense": 1}
            raw = new_object(
                kinds.TEMPLATE_VERSION,
                "web-1",
                "default",
                spec={"templateId": "default/web", "vm": {"metadata": {"kept": 1}, "spec": vm}},
            )
            await harvester.api.local().create(kinds.TEMPLATE, new_object(kinds.TEMPLATE, "web", "default"))
            await asyncio.sleep(1)  # the webhook's cache follows
            made = (await harvester.api.local().create(kinds.TEMPLATE_VERSION, raw))["spec"]["vm"]

            assert made["metadata"] == {"kept": 1}
            assert "nonsense" not in made["spec"]
            assert made["spec"]["template"]["spec"]["domain"]["devices"] == {"disks": [{"name": "disk-0"}]}

    run_driven(story())


def cloud_init_of(vm: Raw) -> Raw:
    volumes = vm["spec"]["template"]["spec"]["volumes"]
    return next(one["cloudInitNoCloud"] for one in volumes if "cloudInitNoCloud" in one)


def test_defaults_follow_the_mutators():
    """KubeVirt's mutator writes an object without its empty fields, of which the schema has one back."""

    async def story():
        async with a_harvester() as harvester:
            vm = a_vm()
            cloud_init_of(vm)["networkDataSecretRef"] = {}
            made = await harvester.api.local().create(kinds.VM, vm)

            assert cloud_init_of(made)["networkDataSecretRef"] == {"name": ""}

    run_driven(story())


def test_the_network_controller_labels_a_new_network():
    async def story():
        async with a_harvester() as harvester:
            config = '{"type":"bridge","bridge":"mgmt-br","vlan":7}'
            raw = new_object(kinds.NAD, "lab", "default", spec={"config": config})
            made = await harvester.api.local().create(kinds.NAD, raw)
            labelled = await eventually(
                harvester, kinds.NAD.ref("lab", "default"), lambda raw: bool(labels_of(raw))
            )

            assert not labels_of(made)
            assert labels_of(labelled) == {
                "network.harvesterhci.io/clusternetwork": "mgmt",
                "network.harvesterhci.io/type": "L2VlanNetwork",
                "network.harvesterhci.io/vlan-id": "7",
                "network.harvesterhci.io/ready": "true",
            }

    run_driven(story())


@pytest.mark.parametrize(
    ("kind", "spec", "fault"),
    [
        (
            kinds.LOAD_BALANCER,
            {"workloadType": "vm", "healthCheck": {"periodSeconds": -4}},
            "json: cannot unmarshal number -4 into Go struct field HealthCheck.spec.healthCheck.periodSeconds of type uint",
        ),
        (
            kinds.IP_POOL,
            {"ranges": [], "selector": {"priority": "1"}},
            "json: cannot unmarshal string into Go struct field Selector.spec.selector.priority of type uint32",
        ),
        (kinds.IP_POOL, {"ranges": [{}]}, "spec.ranges[0].subnet: Required value"),
        (
            kinds.LOAD_BALANCER,
            {"listeners": [{"backendPort": 80, "protocol": "TCP"}]},
            "spec.listeners[0].port: Required value",
        ),
    ],
)
def test_the_load_balancers_webhook_decodes_before_the_schema_and_validates_after_it(kind, spec, fault):
    async def story():
        async with a_harvester() as harvester:
            with pytest.raises(KubeError) as refused:
                await harvester.api.local().create(kind, new_object(kind, "a", "default", spec=spec))
            assert refused.value.message.endswith(fault)

    run_driven(story())
