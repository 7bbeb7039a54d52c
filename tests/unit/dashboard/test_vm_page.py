"""A machine's VM and a cluster's place on Harvester: read with their credential, for who may get its Secret."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from tests.stories.cluster_rig import ALL, a_cluster, a_pool
from tests.support.clock import run_driven
from tests.support.simulation import Simulation, simulation
from tests.unit.dashboard.conftest import Dashboard, a_dashboard
from tests.unit.dashboard.conftest import a_cluster as a_raw_cluster

from windrow.app.describe.causes import HarvesterObjects
from windrow.app.harvester.inventory import Listing, read_hosts
from windrow.clusters.api.kinds import CLUSTER, MACHINE
from windrow.clusters.api.names import CLUSTER_NAME
from windrow.dashboard.pages.placement import group_by_zone, is_balancer_of, place
from windrow.dashboard.pages.vm import MAX_TEXT, describe_vm
from windrow.harvester.names import CLUSTER_UID, IMAGE_ID, LB_OF_CLUSTER
from windrow.kubernetes.objects import Raw, new_object
from windrow.kubernetes.resources import NAMESPACE as NAMESPACE_KIND
from windrow.kubernetes.resources import ROLE_BINDING, SECRET, ref_of

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
NAMESPACE = "fleet-default"


async def copy_into(dashboard: Dashboard, sim: Simulation) -> Raw:
    """The Cluster, its machine and its credential, in the API of a dashboard; gives the Machine."""
    api, there = dashboard.api.local(), sim.management_client
    binding = {
        **new_object(ROLE_BINDING, "ann", NAMESPACE),
        "roleRef": {"apiGroup": ROLE_BINDING.group, "kind": "ClusterRole", "name": "windrow-view"},
        "subjects": [{"apiGroup": ROLE_BINDING.group, "kind": "User", "name": "ann"}],
    }
    await api.create(ROLE_BINDING, binding)
    for kind in (CLUSTER, MACHINE, SECRET):
        for raw in await there.list(kind):
            ref = ref_of(kind, raw)
            kept = {key: raw["metadata"].get(key) for key in ("name", "namespace", "labels", "annotations")}
            if await api.find(NAMESPACE_KIND.ref(ref.namespace)) is None:
                await api.create(NAMESPACE_KIND, {"metadata": {"name": ref.namespace}})
            await api.create(kind, {**raw, "metadata": kept})
            if "status" in raw:
                await api.patch(ref, {"status": raw["status"]}, "status")
    return (await api.list(MACHINE, NAMESPACE))[0]


def test_a_machines_vm_is_shown_with_disks_addresses_and_console_to_who_may_get_its_credential() -> None:
    async def story() -> None:
        async with simulation(seed=3) as sim:
            await sim.apply(a_cluster(a_pool("servers", 1, ALL)))
            await sim.advance(minutes=15)
            async with a_dashboard(sim.connect) as dashboard:
                raw = await copy_into(dashboard, sim)
                name, admin = raw["metadata"]["name"], await dashboard.signed_in()
                at = f"/machines/{NAMESPACE}/{name}"

                assert f'href="{at}/vm"' in (await admin.get(at)).body.decode()
                page = (await admin.get(f"{at}/vm")).body.decode()
                for wanted in (
                    "Running",
                    raw["status"]["addresses"][0],
                    raw["status"]["host"],
                    "jammy",
                ):
                    assert wanted in page, wanted
                assert f"{name}-disk" in page
                # The emulator serves consoles over HTTP only.
                assert "Harvester has no console text of it" in page

                cluster = f"/clusters/{NAMESPACE}/{raw['spec']['clusterName']}"
                assert f'href="{cluster}/harvester"' in (await admin.get(cluster)).body.decode()
                place_page = (await admin.get(f"{cluster}/harvester")).body.decode()
                assert f'href="{at}"' in place_page
                assert "1 etcd member<" in place_page

                viewer = await dashboard.signed_in("ann", ())
                for path in (f"{at}/vm", f"{cluster}/harvester"):
                    page = (await viewer.get(path)).body.decode()
                    assert "cannot get resource &#34;secrets&#34;" in page
                    assert "Running" not in page

    run_driven(story())


async def test_a_machine_that_does_not_exist_has_no_vm(dashboard: Dashboard) -> None:
    browser = await dashboard.signed_in()

    assert (await browser.get(f"/machines/{NAMESPACE}/none/vm")).status == 404
    assert (await browser.get(f"/clusters/{NAMESPACE}/none/harvester")).status == 404


# --- readings -----------------------------------------------------------------------------------------------------------


def a_vm(**objects: Any) -> HarvesterObjects:
    return HarvesterObjects("m", "default", vm={"metadata": {"name": "m"}, "status": {"printableStatus": "Running"}}, **objects)  # fmt: skip


def test_disks_are_named_by_their_images_and_interfaces_have_all_addresses() -> None:
    claim = {
        "metadata": {"name": "m-disk-0", "annotations": {IMAGE_ID: "default/image-x7"}},
        "spec": {"storageClassName": "longhorn", "resources": {"requests": {"storage": "40Gi"}}},
        "status": {"phase": "Bound"},
    }
    image = {"metadata": {"name": "image-x7"}, "spec": {"displayName": "Ubuntu 24.04"}}
    interfaces = [
        {"name": "nic-0", "interfaceName": "eth0", "mac": "52:54", "ipAddresses": ["10.0.0.4", "fd00::4"]},
        {"name": "nic-1", "ipAddress": "10.1.0.4"},
    ]
    vmi = {"status": {"nodeName": "host-1", "phase": "Running", "interfaces": interfaces}}

    shown = describe_vm(a_vm(claims=(claim,), images=(image,), vmi=vmi, console=("one", "two")), NOON)

    assert [(one.name, one.size, one.image, one.phase) for one in shown.disks] == [
        ("m-disk-0", "40Gi", "Ubuntu 24.04", "Bound")
    ]
    assert [(one.name, one.addresses) for one in shown.interfaces] == [
        ("eth0", "10.0.0.4, fd00::4"),
        ("nic-1", "10.1.0.4"),
    ]
    assert ("Host", "host-1") in shown.facts
    assert shown.console == ("one", "two")


def test_a_vm_that_is_not_there_or_may_not_be_read_is_told_so() -> None:
    gone = describe_vm(HarvesterObjects("m", "default"), NOON)
    hidden = describe_vm(HarvesterObjects("m", "default", hidden="forbidden"), NOON)

    assert (gone.is_there, gone.problem) == (False, "")
    assert hidden.problem == "forbidden"


def test_what_is_long_is_cut_and_what_has_another_shape_is_left_out() -> None:
    long = "x" * 10_000
    vmi = {
        "status": {"phase": long, "guestOSInfo": 7, "interfaces": [{"name": long, "ipAddresses": "no"}] * 100}
    }

    shown = describe_vm(a_vm(vmi=vmi), NOON)

    assert dict(shown.facts)["Instance"] == "x" * MAX_TEXT
    assert "Guest" not in dict(shown.facts)
    assert len(shown.interfaces) == 32
    assert len(shown.interfaces[0].name) == MAX_TEXT


def a_machine(name: str, host: str, roles: tuple[str, ...] = ("worker",)) -> Raw:
    return {
        "metadata": {"name": name, "labels": {CLUSTER_NAME: "prod"}},
        "spec": {"roles": list(roles)},
        "status": {"host": host, "driverConfig": {"VMNamespace": "vms"}},
    }


def a_host(name: str, zone: str) -> Raw:
    return {"metadata": {"name": name, "labels": {"topology.kubernetes.io/zone": zone}}}


def test_zones_have_the_hosts_that_machines_run_on() -> None:
    machines = [
        a_machine("b", "host-1", ("etcd",)),
        a_machine("a", "host-1", ("etcd",)),
        a_machine("c", "host-2"),
        a_machine("d", "unknown"),
        a_machine("e", ""),
    ]
    hosts = {one.name: one for one in read_hosts([a_host("host-1", "z1"), a_host("host-2", "z1")], ())}

    none, first = group_by_zone(machines, hosts)

    assert (none.zone, none.hosts) == ("", (("unknown", ("d",)),))
    assert (first.zone, first.etcd) == ("z1", 2)
    assert first.hosts == (("host-1", ("a", "b")), ("host-2", ("c",)))


@pytest.mark.parametrize(
    ("metadata", "is_own"),
    [
        ({"namespace": "vms", "labels": {LB_OF_CLUSTER: "prod"}}, True),
        ({"namespace": "others", "labels": {LB_OF_CLUSTER: "prod"}}, False),
        ({"namespace": "vms", "labels": {LB_OF_CLUSTER: "other"}}, False),
        ({"namespace": "x", "annotations": {CLUSTER_UID: "u-1"}}, True),
        ({"namespace": "vms", "labels": {LB_OF_CLUSTER: "prod"}, "annotations": {CLUSTER_UID: "u-2"}}, False),
        ({"namespace": "vms"}, False),
    ],
)
def test_the_load_balancers_of_a_cluster_are_its_endpoint_and_those_of_its_services(
    metadata: Raw, is_own: bool
) -> None:
    cluster = a_raw_cluster("prod")
    cluster["metadata"]["uid"] = "u-1"

    assert is_balancer_of({"metadata": {"name": "lb", **metadata}}, cluster, [a_machine("m", "h")]) is is_own


def test_what_may_not_be_listed_is_said() -> None:
    shown = place(a_raw_cluster("prod"), [], Listing(hidden="forbidden"), Listing(is_cut=True))

    assert shown.balancers_note == "Not shown: forbidden"
    assert shown.hosts_note == "Only the first 1000 are shown."
