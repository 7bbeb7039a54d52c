"""What a client of Harvester 1.6, 1.7, 1.8 and 1.9 meets: the differences of reference 05 §0.2, release by release."""

from __future__ import annotations

import functools

import pytest
from tests.stories.harvester_rig import (
    NAMESPACE,
    a_harvester,
    boot,
    eventually,
    order,
    post,
    vm_ref,
    vmi_ref,
)
from tests.support.clock import run_driven

from windrow.core.formats.json import loads
from windrow.emulator import kinds
from windrow.emulator.release import UnknownRelease, find_release
from windrow.kubernetes.errors import KubeError
from windrow.kubernetes.objects import annotations_of, nested, new_object, uid_of
from windrow.kubernetes.requests import put_subresource
from windrow.kubernetes.resources import CLUSTER_ROLE, DEPLOYMENT, NODE, SERVICE

RELEASES = ("v1.6.1", "v1.7.1", "v1.8.2", "v1.9.0")
OLD = pytest.mark.parametrize("version", ["v1.6.1", "v1.7.1"])


def driven(story):
    """Run the story on a driven clock."""

    @functools.wraps(story)
    def test(*args, **kwargs):
        run_driven(story(*args, **kwargs))

    return test


async def setting(harvester, name):
    found = await harvester.api.local().find(kinds.SETTING.ref(name))
    return None if found is None else loads(found["default"])


@pytest.mark.parametrize(
    ("version", "overcommit", "reset", "migration"),
    [
        ("v1.6.1", (1600, 200), {"enable": True, "period": 300}, False),
        ("v1.7.1", (1600, 200), {"enable": True, "period": 15, "vmMigrationTimeout": 180}, True),
        ("v1.8.2", (1000, 100), {"enable": True, "period": 15, "vmMigrationTimeout": 180}, True),
        ("v1.9.0", (1000, 100), {"enable": True, "period": 15, "vmMigrationTimeout": 180}, True),
    ],
)
@driven
async def test_settings_have_the_defaults_of_their_release(version, overcommit, reset, migration):
    async with a_harvester(version=version) as harvester:
        ratios = await setting(harvester, "overcommit-config")

        assert (ratios["cpu"], ratios["storage"]) == overcommit
        assert await setting(harvester, "vm-force-reset-policy") == reset
        assert (await setting(harvester, "kubevirt-migration") is not None) is migration


@pytest.mark.parametrize(
    ("version", "kubevirt", "kubelet", "gate"),
    [
        ("v1.6.1", "1.5.0", "v1.33", "HotplugVolumes"),
        ("v1.7.1", "1.6.0", "v1.34", "HotplugVolumes"),
        ("v1.8.2", "1.7.0", "v1.34", "DeclarativeHotplugVolumes"),
        ("v1.9.0", "1.8.3", "v1.34", "DeclarativeHotplugVolumes"),
    ],
)
@driven
async def test_a_release_brings_its_kubevirt_and_its_kubernetes(version, kubevirt, kubelet, gate):
    async with a_harvester(version=version) as harvester:
        line = harvester.api.local()
        found = await line.get(kinds.KUBEVIRT.ref("kubevirt", "harvester-system"))
        node = await line.get(NODE.ref("host-1"))

        assert found["status"]["observedKubeVirtVersion"] == kubevirt
        gates = nested(found, "spec", "configuration", "developerConfiguration", "featureGates")
        assert [one for one in gates if one.endswith("HotplugVolumes")] == [gate]
        assert node["status"]["nodeInfo"]["kubeletVersion"].startswith(kubelet)
        assert node["status"]["nodeInfo"]["osImage"] == f"Harvester {version}"


def has_ingress(service):
    return nested(service, "status", "loadBalancer", "ingress")


@pytest.mark.parametrize(
    ("version", "name", "other"),
    [
        ("v1.6.1", "ingress-expose", "rke2-traefik"),
        ("v1.8.2", "ingress-expose", "rke2-traefik"),
        ("v1.9.0", "rke2-traefik", "ingress-expose"),
    ],
)
@driven
async def test_clients_find_the_address_of_the_api_at_the_service_of_the_ingress(version, name, other):
    async with a_harvester(version=version) as harvester:
        services = harvester.api.local()

        service = await eventually(harvester, SERVICE.ref(name, "kube-system"), has_ingress, 60)

        assert annotations_of(service)["kube-vip.io/loadbalancerIPs"] == harvester.vip
        assert service["status"]["loadBalancer"]["ingress"][0]["ip"] == harvester.vip
        assert await services.find(SERVICE.ref(other, "kube-system")) is None


@driven
async def test_clients_read_from_its_deployment_that_harvester_is_at_work():
    async with a_harvester() as harvester:
        found = await harvester.api.local().get(DEPLOYMENT.ref("harvester", "harvester-system"))

        status = {one["type"]: one["status"] for one in found["status"]["conditions"]}
        assert status == {"Available": "True", "Progressing": "True"}
        assert nested(found, "spec", "replicas") == nested(found, "status", "availableReplicas") == 1


@driven
async def test_a_placeholder_service_gets_cluster_ip_node_port_and_the_address_that_it_asks_for():
    """What Cluster API's provider for Harvester does for its control plane's endpoint before there is a machine."""
    spec = {
        "type": "LoadBalancer",
        "allocateLoadBalancerNodePorts": True,
        "ipFamilies": ["IPv4"],
        "loadBalancerIP": "0.0.0.0",
        "ports": [{"name": "api", "port": 6443, "targetPort": 6443, "protocol": "TCP"}],
    }
    labels = {"loadbalancer.harvesterhci.io/servicelb": "true"}
    async with a_harvester() as harvester:
        services = harvester.api.local()
        made = await services.create(SERVICE, new_object(SERVICE, "lb", NAMESPACE, labels=labels, spec=spec))
        # As a client of Go writes it back that was built without the field.
        await services.update(SERVICE, {**made, "spec": {**spec, "loadBalancerIP": "192.168.100.77"}})

        found = await eventually(harvester, SERVICE.ref("lb", NAMESPACE), has_ingress, 60)

        assert found["status"]["loadBalancer"]["ingress"][0]["ip"] == "192.168.100.77"
        assert found["spec"]["clusterIP"] == made["spec"]["clusterIP"]
        assert found["spec"]["clusterIP"].startswith("10.53.")
        assert 30000 <= found["spec"]["ports"][0]["nodePort"] < 32768


@pytest.mark.parametrize(
    ("version", "settings", "has_snapshots", "may_patch_vms"),
    [
        ("v1.6.1", 1, False, False),
        ("v1.7.1", 2, True, False),
        ("v1.8.2", 2, True, True),
        ("v1.9.0", 2, True, True),
    ],
)
@driven
async def test_the_role_of_csi_drivers_grows(version, settings, has_snapshots, may_patch_vms):
    async with a_harvester(version=version) as harvester:
        role = await harvester.api.local().get(CLUSTER_ROLE.ref("harvesterhci.io:csi-driver"))

        by_group = {(rule["apiGroups"][0], rule["resources"][0]): rule for rule in role["rules"]}
        assert len(by_group["harvesterhci.io", "settings"]["resourceNames"]) == settings
        assert (("snapshot.storage.k8s.io", "volumesnapshots") in by_group) is has_snapshots
        assert (("kubevirt.io", "virtualmachines") in by_group) is may_patch_vms


@pytest.mark.parametrize("version", RELEASES)
@driven
async def test_an_image_s_class_is_named_by_its_name_until_1_8_and_then_by_its_uid(version):
    async with a_harvester(version=version) as harvester:
        image = await harvester.api.local().get(kinds.IMAGE.ref("jammy", NAMESPACE))
        await boot(harvester)

        named = "longhorn-jammy" if version < "v1.8" else f"lh-{uid_of(image)}"
        assert image["status"]["storageClassName"] == named


@driven
async def test_up_to_1_6_the_mac_address_of_the_first_start_is_kept_in_an_annotation():
    async with a_harvester(version="v1.6.1") as harvester:
        first = await boot(harvester)
        vm = await eventually(
            harvester, vm_ref(), lambda raw: "harvesterhci.io/mac-address" in annotations_of(raw)
        )
        assert "macAddress" not in nested(
            vm, "spec", "template", "spec", "domain", "devices", "interfaces", 0
        )
        mac = first["status"]["interfaces"][0]["mac"]
        assert loads(annotations_of(vm)["harvesterhci.io/mac-address"]) == {"nic-0": mac}

        assert await order(harvester, "restart") == 202
        again = await eventually(
            harvester,
            vmi_ref(),
            lambda vmi: (
                vmi and uid_of(vmi) != uid_of(first) and nested(vmi, "status", "interfaces", 0, "ipAddress")
            ),
        )

        assert again["status"]["interfaces"][0]["mac"] == mac
        assert again["status"]["interfaces"][0]["ipAddress"] == first["status"]["interfaces"][0]["ipAddress"]


@OLD
@driven
async def test_from_1_7_the_mac_address_is_in_the_vm_that_the_api_returns(version):
    async with a_harvester(version=version) as harvester:
        vm = await post(harvester)

        interface = nested(vm, "spec", "template", "spec", "domain", "devices", "interfaces", 0)
        assert ("macAddress" in interface) is (version == "v1.7.1")


@pytest.mark.parametrize(("version", "within"), [("v1.6.1", (345, 365)), ("v1.7.1", (240, 260))])
@driven
async def test_a_vm_of_a_lost_host_starts_elsewhere_after_the_delays_of_its_release(version, within):
    async with a_harvester(version=version) as harvester:
        first = await boot(harvester)
        host, clock = first["status"]["nodeName"], harvester.clock.base
        lost = clock.now()
        harvester.fail_host(host)

        await eventually(harvester, vmi_ref(), lambda vmi: vmi is not None and uid_of(vmi) != uid_of(first))

        assert within[0] <= (clock.now() - lost).total_seconds() <= within[1]
        node = await harvester.api.local().get(NODE.ref(host))
        taints = {taint["key"] for taint in node["spec"]["taints"]}
        assert ("kubevirt.io/drain" in taints) is (version == "v1.7.1")
        drained = [one for one in node["status"]["conditions"] if one["type"] == "Drained"]
        assert bool(drained) is (version == "v1.7.1")


@OLD
@driven
async def test_before_1_8_an_instance_takes_a_volume_and_needs_its_vm(version):
    async with a_harvester(version=version) as harvester:
        await boot(harvester)
        line = harvester.api.local()
        volume = {
            "name": "extra",
            "disk": {"name": "extra", "disk": {"bus": "scsi"}},
            "volumeSource": {"persistentVolumeClaim": {"claimName": "free"}},
        }
        on_instance = kinds.VMI_SUBRESOURCES.ref("m-1", NAMESPACE)

        assert (await line.send(put_subresource(on_instance, "addvolume", volume))).status == 202
        held = (await line.get(vmi_ref()))["spec"]["volumes"]
        assert [one["name"] for one in held][-1] == "extra"
        again = await line.send(put_subresource(on_instance, "addvolume", volume))
        assert again.status == 409
        assert b"because volume with that name already exists" in again.body
        assert (
            await line.send(put_subresource(on_instance, "removevolume", {"name": "extra"}))
        ).status == 202

        alone = {**await line.get(vmi_ref()), "metadata": {"name": "alone", "namespace": NAMESPACE}}
        with pytest.raises(KubeError, match=r"alone.* not found"):
            await line.create(kinds.VMI, alone)


@driven
async def test_from_1_8_volumes_are_added_to_the_vm_alone():
    async with a_harvester(version="v1.8.2") as harvester:
        await boot(harvester)
        line = harvester.api.local()

        refused = await line.send(
            put_subresource(kinds.VMI_SUBRESOURCES.ref("m-1", NAMESPACE), "addvolume", {"name": "extra"})
        )

        assert refused.status == 400
        assert b"VMI default/m-1 is owned by a VM" in refused.body


@pytest.mark.parametrize(
    ("text", "found"),
    [("1.6", "v1.6.1"), ("v1.7", "v1.7.1"), ("1.8", "v1.8.2"), ("1.9", "v1.9.0"), ("1.7.3", "v1.7.3")],
)
def test_a_line_stands_for_its_release_that_was_read(text, found):
    assert find_release(text) == found


@pytest.mark.parametrize("text", ["1.5", "2.0", "1.10.0", "", "1", "latest", "1.8.2.1", "v1." + "9" * 100])
def test_another_release_is_refused_with_those_that_there_are(text):
    with pytest.raises(UnknownRelease, match=r"from 1\.6 to 1\.9"):
        find_release(text)
