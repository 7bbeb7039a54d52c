"""What `windrow plan` shows of a change of each field is what is done: every row of docs/reference/changes.md, carried out.

One cluster lives through all of them, one after the other, as its user applies a file with one more line changed.
"""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass, replace
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
from tests.support.clock import run_driven
from tests.support.field_values import FIELDS, OPTION_VALUES
from tests.support.simulation import Simulation, simulation

from windrow.app.plan import ClusterPlan, check_manifest
from windrow.clusters.api.kinds import ETCD_SNAPSHOT
from windrow.clusters.api.manifest.supported_fields import CLUSTER_FIELDS, HARVESTER_CONFIG_FIELDS
from windrow.clusters.api.names import AUTHORIZED_CLUSTERS
from windrow.clusters.change.fields import POOL, on_change_of_field, on_change_of_option
from windrow.demo.cluster import DemoCluster
from windrow.kubernetes.objects import Raw, name_of, nested, new_object
from windrow.kubernetes.resources import SECRET
from windrow.nodedriver.options import OPTIONS

# One story for all of them: one process lives it.
pytestmark = pytest.mark.xdist_group("fields carried out")
TAKEN_BACK = {  # set back afterwards
    "spec.paused",
    "spec.rkeConfig.dataDirectories.k8sDistro",
    f"{POOL}.controlPlaneRole",
    f"{POOL}.etcdRole",
    f"{POOL}.workerRole",
    f"{POOL}.machineConfigRef.name",
    f"{POOL}.machineConfigRef.namespace",
    f"{POOL}.machineOS",
    f"{POOL}.name",
    f"{POOL}.paused",
    f"{POOL}.quantity",
}
# No machine can be made by another value: the whole Cluster is refused, with what else it changes.
MAKES_NONE = {f"{POOL}.machineConfigRef.namespace", f"{POOL}.machineOS"}
# Another value makes other machines, and changes none.
MAKES_MACHINES = {f"{POOL}.name", f"{POOL}.quantity"}
CHANGES = {option.field: option.change for option in OPTIONS}
# Shown elsewhere: another driver is a program.
ELSEWHERE = {f"{POOL}.machineConfigRef.kind"}
# Carried out by itself: its value is the name of a snapshot.
RESTORE = "spec.rkeConfig.etcdSnapshotRestore"

# Options of the pools with these fields: one disk and one card, not lists; and of all pools.
OF_PLAIN = {"networkModel", "networkName", "diskSize", "addressPools", "imageName", "diskBus"}
OF_ALL = {"vmNamespace"}


@dataclass(frozen=True, slots=True)
class Row:
    """What became of one row: the classes that the plan showed of it, and where what was done is something else."""

    planned: frozenset[str]
    faults: tuple[str, ...] = ()
    errors: tuple[str, ...] = ()  # what the check of the manifest finds, which `apply` stops at


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
        faults = [*find_differences(plan, before, done), *find_disorder(plan, done, before.servers)]
        errors = [f"{one.field}: {one.message}" for result in checked for one in result.errors]
        left = await plan_documents(self.sim, documents)
        self.pending = frozenset(str(field) for one in left.pending.machines for field in one.fields)
        return Row(planned, tuple(faults), tuple(errors))

    async def restore(self) -> Row:
        """A snapshot is made and restored: the server that has it on its disk stops for a while, and nothing becomes of the others."""
        manager = self.sim.management_client
        made = set_at(self.documents, "spec.rkeConfig.etcdSnapshotCreate", {"generation": 2})
        faults = list((await self.change(made)).faults)
        found = [raw["snapshotFile"] | {"object": name_of(raw)} for raw in await manager.list(ETCD_SNAPSHOT)]
        newest = max(found, key=lambda file: str(file["createdAt"]))
        asked = set_at(self.documents, RESTORE, {"name": newest["object"], "generation": 1})
        plan = await plan_documents(self.sim, asked)
        before = await take_inventory(self.sim, self.stage, self.consoles)
        await apply_documents(self.sim, asked)
        self.documents = asked
        await until_rest(self.sim, self.stage, timedelta(hours=1))
        after = await take_inventory(self.sim, self.stage, self.consoles)
        for name, was in find_done(before, after, self.consoles).items():
            is_stopped = was.times["VM restart"] >= 1 and not was.times["replace"]
            if not (is_stopped if name == newest["nodeName"] else was.times.total() == 0):
                faults.append(f"{was} was done to {name}, and {newest['nodeName']} restores its snapshot")
        phase = nested(await self.stage.get_cluster(), "status", "etcdSnapshotRestorePhase")
        return Row(self._classes(plan), (*faults, *([] if phase == "Finished" else [f"it is {phase}"])))

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
    pool = "plain" if name in OF_PLAIN else "workers"
    for raw in made[:-1]:
        if name in OF_ALL or name_of(raw) == f"nc-{pool}":
            raw[name] = OPTION_VALUES[name]
    return made


def first_documents() -> list[Raw]:
    documents = a_cluster(a_pool("servers", 1, SERVERS), a_pool("workers", 1), a_pool("plain", 1))
    workers = next(raw for raw in documents if name_of(raw) == "nc-workers")
    documents.insert(0, workers | {"metadata": {**workers["metadata"], "name": "nc-others"}})
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
                rows[path] = replace(rows[path], faults=rows[path].faults + back.faults)
        rows[RESTORE] = await user.restore()
        for name in OPTION_VALUES:
            rows[name] = await user.change(set_option(user.documents, name))
        return rows


def test_every_row_is_carried_out_or_shown_elsewhere() -> None:
    works = {option.field for option in OPTIONS if option.field in HARVESTER_CONFIG_FIELDS.works}

    assert CLUSTER_FIELDS.changes.keys() == FIELDS.keys() | ELSEWHERE | {RESTORE}
    assert works | {"addressPools"} == OPTION_VALUES.keys()
    assert OPTION_VALUES.keys() >= OF_PLAIN | OF_ALL


@pytest.mark.long
@pytest.mark.timeout(300)
@pytest.mark.parametrize("path", [*FIELDS, RESTORE])
def test_what_is_planned_of_a_field_is_done(path: str) -> None:
    row = apply_all()[path]

    change = on_change_of_field(path).change
    assert row.faults == ()
    assert row.planned == (frozenset() if path in MAKES_MACHINES | MAKES_NONE else {change})
    assert not row.errors or change == "refused"
    assert row.errors or path not in MAKES_NONE


@pytest.mark.long
@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", OPTION_VALUES)
def test_what_is_planned_of_an_option_is_done(name: str) -> None:
    row = apply_all()[name]

    assert row.faults == row.errors == ()
    assert row.planned == {on_change_of_option(name, CHANGES.get(name)).change}
