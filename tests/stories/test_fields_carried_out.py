"""What `windrow plan` shows of a change of each field is what is done: every row of docs/reference/changes.md, carried out.

One cluster lives through all of them, one after the other, as its user applies a file with one more line changed.
"""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass
from datetime import timedelta
from functools import cache
from typing import Any

import pytest
from tests.stories.cluster_rig import SERVERS, a_cluster, a_pool, stock
from tests.stories.observed_changes import (
    NoRest,
    WatchedConsoles,
    apply_documents,
    find_differences,
    find_disorder,
    find_done,
    plan_documents,
    take_inventory,
    until_rest,
    watch_consoles,
)
from tests.stories.test_addresses import RANGE
from tests.support.clock import run_driven
from tests.support.simulation import Simulation, simulation

from windrow.app.plan import ClusterPlan, check_manifest
from windrow.clusters.api.manifest.supported_fields import CLUSTER_FIELDS, HARVESTER_CONFIG_FIELDS
from windrow.clusters.api.names import AUTHORIZED_CLUSTERS
from windrow.clusters.change.fields import POOL, on_change_of_field, on_change_of_option
from windrow.demo.cluster import DemoCluster
from windrow.kubernetes.objects import Raw, name_of, new_object
from windrow.kubernetes.resources import SECRET
from windrow.nodedriver.options import OPTIONS

CERTIFICATE = "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n"
MANIFEST = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: site, namespace: default}\ndata: {a: b}\n"
FILE = {
    "secret": {"name": "site-files", "items": [{"key": "motd", "path": "/etc/motd"}]},
}
DISK = {"imageName": "default/jammy", "size": 40, "bootOrder": 1}
# One story for all of them: one process lives it.
pytestmark = pytest.mark.xdist_group("fields carried out")
GLOBAL = {"cni": "calico", "cloud-provider-name": "harvester"}

# Another value of each field, that a cluster on the emulator can have. Those in `TAKEN_BACK` are set back afterwards.
FIELDS: Mapping[str, Any] = {
    "spec.agentEnvVars": [{"name": "NO_PROXY", "value": "10.0.0.0/8"}],
    "spec.cloudCredentialSecretName": "cattle-global-data:cc-other",
    "spec.defaultPodSecurityAdmissionConfigurationTemplateName": "rancher-privileged",
    "spec.kubernetesVersion": "v1.35.4+rke2r1",
    "spec.localClusterAuthEndpoint": {"enabled": True, "fqdn": "api.example.org"},
    "spec.localClusterAuthEndpoint.caCerts": CERTIFICATE,
    "spec.paused": True,
    "spec.rkeConfig.additionalManifest": MANIFEST,
    "spec.rkeConfig.chartValues": {"harvester-csi-driver": {"replicas": 2}},
    "spec.rkeConfig.dataDirectories.k8sDistro": "/data",
    "spec.rkeConfig.etcd": {"snapshotRetention": 7},
    "spec.rkeConfig.etcdSnapshotCreate": {"generation": 1},
    "spec.rkeConfig.machineGlobalConfig": {**GLOBAL, "kubelet-arg": ["max-pods=99"]},
    "spec.rkeConfig.machineSelectorConfig": [{"config": {"debug": True}}],
    "spec.rkeConfig.machineSelectorFiles": [{"fileSources": [FILE]}],
    "spec.rkeConfig.machinePoolDefaults.hostnameLengthLimit": 40,
    "spec.rkeConfig.networking.stackPreference": "ipv4",
    "spec.rkeConfig.provisionGeneration": 1,
    "spec.rkeConfig.registries": {"mirrors": {"docker.io": {"endpoint": ["https://mirror.example"]}}},
    "spec.rkeConfig.rotateCertificates": {"generation": 1},
    "spec.rkeConfig.rotateEncryptionKeys": {"generation": 1},
    "spec.rkeConfig.rotateToken": {"generation": 1},
    "spec.rkeConfig.upgradeStrategy": {"workerConcurrency": "2"},
    f"{POOL}.cloudCredentialSecretName": "cattle-global-data:cc-third",
    f"{POOL}.controlPlaneRole": True,
    f"{POOL}.etcdRole": True,
    f"{POOL}.workerRole": False,
    f"{POOL}.drainBeforeDelete": True,
    f"{POOL}.drainBeforeDeleteTimeout": "5m",
    f"{POOL}.hostnameLengthLimit": 40,
    f"{POOL}.labels": {"tier": "web"},
    f"{POOL}.machineDeploymentAnnotations": {"a": "b"},
    f"{POOL}.machineDeploymentLabels": {"a": "b"},
    f"{POOL}.maxUnhealthy": "50%",
    f"{POOL}.name": "agents",
    f"{POOL}.nodeStartupTimeout": "20m",
    f"{POOL}.paused": True,
    f"{POOL}.quantity": 2,
    f"{POOL}.rollingUpdate": {"maxSurge": "2"},
    f"{POOL}.taints": [{"key": "a", "value": "b", "effect": "PreferNoSchedule"}],
    f"{POOL}.unhealthyNodeTimeout": "6m",
    f"{POOL}.unhealthyRange": "[1-2]",
}
TAKEN_BACK = {
    "spec.paused",
    "spec.rkeConfig.dataDirectories.k8sDistro",
    f"{POOL}.controlPlaneRole",
    f"{POOL}.etcdRole",
    f"{POOL}.workerRole",
    f"{POOL}.name",
    f"{POOL}.paused",
    f"{POOL}.quantity",
}
# Another value makes other machines, and changes none.
MAKES_MACHINES = {f"{POOL}.name", f"{POOL}.quantity"}
CHANGES = {option.field: option.change for option in OPTIONS}
# Shown elsewhere: a restore stops the cluster, another driver is a program, and of the others no machine can be made.
ELSEWHERE = {
    "spec.rkeConfig.etcdSnapshotRestore",
    f"{POOL}.machineConfigRef.kind",
    f"{POOL}.machineConfigRef.name",
    f"{POOL}.machineConfigRef.namespace",
    f"{POOL}.machineOS",
}

# Of the pools with a machine config of these fields: the lists of disks and cards, or one of each.
OPTION_VALUES: Mapping[str, tuple[str, Any]] = {
    "cpuCount": ("workers", "4"),
    "memorySize": ("workers", "8"),
    "vmAffinity": ("workers", {"nodeAffinity": {}}),
    "cpuPinning": ("workers", True),
    "isolateEmulatorThread": ("workers", True),
    "reservedMemorySize": ("workers", "256"),
    "cpuModel": ("workers", "host-model"),
    "diskInfo": ("workers", {"disks": [{**DISK, "imageName": "default/noble"}]}),
    "networkInfo": ("workers", {"interfaces": [{"networkName": "default/vlan-60"}]}),
    "diskSize": ("plain", "39"),
    "diskBus": ("plain", "sata"),
    "imageName": ("plain", "default/noble"),
    "networkName": ("plain", "default/vlan-60"),
    "networkModel": ("plain", "e1000"),
    "sshUser": ("workers", "opensuse"),
    "sshPassword": ("workers", "hunter2"),
    "keyPairName": ("workers", "default/mine"),
    "userData": ("workers", "#cloud-config\npackages: [vim]\n"),
    "networkData": ("workers", "version: 2\nethernets: {enp1s0: {dhcp4: true}}\n"),
    "enableEfi": ("workers", True),
    "enableSecureBoot": ("workers", True),
    "enableTpm": ("workers", True),
    "vgpuInfo": ("workers", {"vGPURequests": [{"name": "a", "deviceName": "nvidia.com/A2-4Q"}]}),
    "addressPools": ("plain", [{**RANGE, "network": "default/vlan-60"}]),
    "vmNamespace": ("all", "other"),
}


@dataclass(frozen=True, slots=True)
class Row:
    """What became of one row: the classes that the plan showed of it, and where what was done is something else."""

    planned: frozenset[str]
    faults: tuple[str, ...] = ()


@dataclass
class User:
    """Her files, the cluster that they are applied to, and the fields that were pending before."""

    sim: Simulation
    stage: DemoCluster
    consoles: WatchedConsoles
    documents: list[Raw]
    pending: frozenset[str] = frozenset()  # fields with their values, as texts

    async def change(self, documents: list[Raw]) -> Row:
        """Check, plan and apply; wait for rest, and compare."""
        await stock(self.sim, documents)
        checked = await check_manifest(documents, self.sim.management_client)
        plan = await plan_documents(self.sim, documents)
        planned = self._classes(plan)
        before = await take_inventory(self.sim, self.stage, self.consoles)
        await apply_documents(self.sim, documents)
        self.documents = documents
        try:
            await until_rest(self.sim, self.stage, timedelta(hours=1))
        except NoRest as unrest:
            return Row(planned, (f"no rest: {unrest}",))
        done = find_done(before, await take_inventory(self.sim, self.stage, self.consoles), self.consoles)
        faults = [*find_differences(plan, before, done), *find_disorder(plan, done)]
        if "refused" not in planned:
            faults += [f"{one.field}: {one.message}" for result in checked for one in result.errors]
        left = await plan_documents(self.sim, documents)
        self.pending = frozenset(str(field) for one in left.pending.machines for field in one.fields)
        return Row(planned, tuple(faults))

    def _classes(self, plan: ClusterPlan) -> frozenset[str]:
        """Of the fields that were not pending yet."""
        fields = [field for machine in plan.pending.machines for field in machine.fields]
        fields = [field for field in fields if str(field) not in self.pending]
        found = [*fields, *plan.pending.cluster, *plan.settings, *plan.requests]
        refused = ["refused"] if plan.pending.refused else []
        return frozenset([*(field.change for field in found), *refused])


def set_at(documents: list[Raw], path: str, value: Any) -> list[Raw]:
    """Copies with `value` at `path` of the Cluster; `[]` is the pool of workers."""
    made = deepcopy(documents)
    here: Any = made[-1]
    *above, last = path.split(".")
    for step in above:
        here = here["machinePools"][1] if step == "machinePools[]" else here.setdefault(step, {})
    here[last] = value
    return made


def set_option(documents: list[Raw], name: str) -> list[Raw]:
    """Copies with the other value of an option."""
    made = deepcopy(documents)
    pool, value = OPTION_VALUES[name]
    for raw in made[:-1]:
        if pool in ("all", name_of(raw).removeprefix("nc-")):
            raw[name] = value
    return made


def first_documents() -> list[Raw]:
    documents = a_cluster(a_pool("servers", 1, SERVERS), a_pool("workers", 1), a_pool("plain", 1))
    plain = next(raw for raw in documents if name_of(raw) == "nc-plain")
    del plain["diskInfo"], plain["networkInfo"]
    plain |= {"diskSize": "40", "imageName": "default/jammy", "networkName": "default/vlan-50"}
    return documents


@cache
def apply_all() -> Mapping[str, Row]:
    """All rows, by field."""
    return run_driven(_apply_all())


async def _apply_all() -> Mapping[str, Row]:
    documents = first_documents()
    files = new_object(
        SECRET,
        "site-files",
        "fleet-default",
        annotations={AUTHORIZED_CLUSTERS: "orchard"},
        stringData={"motd": "hello"},
    )
    async with simulation(seed=5) as sim:
        consoles = watch_consoles(sim)
        await stock(sim, documents)
        await sim.management_client.create(SECRET, files)
        await apply_documents(sim, documents)
        user = User(sim, sim.cluster("orchard", "fleet-default"), consoles, documents)
        await user.stage.wait_for_settled()
        await until_rest(sim, user.stage, timedelta(hours=1))
        rows: dict[str, Row] = {}
        for path, value in FIELDS.items():
            former = user.documents
            rows[path] = await user.change(set_at(former, path, value))
            if path in TAKEN_BACK:
                back = await user.change(former)
                rows[path] = Row(rows[path].planned, rows[path].faults + back.faults)
        for name in OPTION_VALUES:
            rows[name] = await user.change(set_option(user.documents, name))
        return rows


def test_every_row_is_carried_out_or_shown_elsewhere() -> None:
    works = {option.field for option in OPTIONS if option.field in HARVESTER_CONFIG_FIELDS.works}

    assert CLUSTER_FIELDS.changes.keys() == FIELDS.keys() | ELSEWHERE
    assert works | {"addressPools"} == OPTION_VALUES.keys()


@pytest.mark.long
@pytest.mark.timeout(300)
@pytest.mark.parametrize("path", FIELDS)
def test_what_is_planned_of_a_field_is_done(path: str) -> None:
    row = apply_all()[path]

    assert row.faults == ()
    assert row.planned == (frozenset() if path in MAKES_MACHINES else {on_change_of_field(path).change})


@pytest.mark.long
@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", OPTION_VALUES)
def test_what_is_planned_of_an_option_is_done(name: str) -> None:
    row = apply_all()[name]

    assert row.faults == ()
    assert row.planned == {on_change_of_option(name, CHANGES.get(name)).change}
