"""Refusals of migrations, quotas and of objects without a spec: KubeVirt 1.7 and Harvester 1.8."""

from __future__ import annotations

import pytest
from tests.support.clock import LoopClock

from windrow.apiserver.server import ApiServer
from windrow.apiserver.storage import MemoryStore
from windrow.core.formats.json import dumps
from windrow.core.rng import Rng
from windrow.emulator import kinds
from windrow.emulator.admission import migrations, namespaces, storage_classes
from windrow.emulator.definitions import crds
from windrow.kubernetes.errors import KubeError
from windrow.kubernetes.objects import new_object
from windrow.kubernetes.resources import NAMESPACE, STORAGE_CLASS

from .objects import static_listers


def a_migration(name="mig-1", phase="", instance="m-1"):
    raw = new_object(kinds.MIGRATION, name, "ns", spec={"vmiName": instance})
    raw["metadata"]["uid"] = "u-1"
    migrations.mutate_migration(raw)
    return {**raw, "status": {"phase": phase}}


def an_instance(phase="Running", *conditions):
    return new_object(
        kinds.VMI, "m-1", "ns", spec={}, status={"phase": phase, "conditions": list(conditions)}
    )


def refusal_of(check, *arguments):
    """Code, text without its prefix, causes."""
    with pytest.raises(KubeError) as denial:
        check(*arguments)
    found = denial.value
    return found.status, found.message.partition("denied the request: ")[2], found.details.get("causes")


def test_a_migration_bears_its_instance_as_a_label_and_the_finalizer():
    metadata = a_migration()["metadata"]

    assert metadata["labels"] == {"kubevirt.io/vmi-name": "m-1"}
    assert metadata["finalizers"] == ["kubevirt.io/migrationJobFinalize"]


def test_a_migration_without_spec_is_refused_by_its_schema():
    code, text, causes = refusal_of(migrations.mutate_migration, new_object(kinds.MIGRATION, "m", "ns"))

    assert (code, text) == (422, 'spec in body is required, spec in body must be of type object: "null"')
    assert causes[0] == {"message": "spec in body is required"}


STUCK = {"type": "LiveMigratable", "status": "False", "reason": "DisksNotLiveMigratable", "message": "a disk"}


@pytest.mark.parametrize(
    ("objects", "instance", "code", "text"),
    [
        ([], "", 422, "vmiName is missing"),
        ([], "m-1", 400, 'the VMI "ns/m-1" does not exist'),
        ([an_instance("Succeeded")], "m-1", 400, "Cannot migrate VMI in finalized state."),
        (
            [an_instance("Running", STUCK)],
            "m-1",
            400,
            "Cannot migrate VMI, Reason: DisksNotLiveMigratable, Message: a disk",
        ),
        (
            [an_instance(), a_migration(phase="Running")],
            "m-1",
            400,
            "in-flight migration detected. Active migration job (u-1) is currently already in progress for VMI m-1.",
        ),
    ],
)
def test_a_migration_needs_an_instance_that_can_be_moved(objects, instance, code, text):
    wanted = a_migration("mig-2", instance=instance)

    assert refusal_of(migrations.check_new_migration, wanted, static_listers(objects))[:2] == (code, text)


def test_an_instance_may_be_moved_again():
    listers = static_listers([an_instance(), a_migration(phase="Failed")])

    assert migrations.check_new_migration(a_migration("mig-2"), listers) is None


def test_a_migration_keeps_its_spec_and_in_flight_its_label():
    moved, bare, other = a_migration(), a_migration(), a_migration()
    moved["spec"] = {"vmiName": "m-2"}
    bare["metadata"]["labels"] = {}
    other["metadata"]["labels"] = {"kubevirt.io/vmi-name": "m-2"}
    done = {**other, "status": {"phase": "Succeeded"}}

    _, text, _ = refusal_of(migrations.check_migration_change, moved, a_migration())
    assert text == "update of Migration object's spec is restricted"
    _, text, _ = refusal_of(migrations.check_migration_change, bare, a_migration())
    assert text == "selector label can't be removed from an in-flight migration"
    _, text, _ = refusal_of(migrations.check_migration_change, other, a_migration())
    assert text == "selector label can't be modified on an in-flight migration"
    assert migrations.check_migration_change(done, a_migration()) is None


QUOTA = "field.cattle.io/resourceQuota"


@pytest.mark.parametrize(
    ("limit", "why"),
    [
        ({"limitsCpu": "1"}, "new CPU limit 1 is lower than the current used CPU limit 2"),
        ({"limitsMemory": "1Gi"}, "new Memory limit 1Gi is lower than the current used Memory limit 4Gi"),
        ({"limitsCpu": "2", "limitsMemory": "4Gi"}, ""),
        ({}, ""),
    ],
)
def test_a_namespace_keeps_the_quota_that_is_used(limit, why):
    label = {"resourcequota.management.cattle.io/default-resource-quota": "true"}
    used = {"used": {"limits.cpu": "2", "limits.memory": "4Gi"}}
    quota = new_object(kinds.QUOTA, "default", "ns", labels=label, status=used)
    changed = new_object(NAMESPACE, "ns", annotations={QUOTA: dumps({"limit": limit}).decode()})
    arguments = (changed, new_object(NAMESPACE, "ns"), static_listers([quota]))

    if why:
        start = "can't update the resource quota of namespace ns, error: "
        assert refusal_of(namespaces.check_namespace_change, *arguments)[:2] == (500, start + why)
    else:
        assert namespaces.check_namespace_change(*arguments) is None


@pytest.mark.parametrize(
    ("limit", "why"),
    [
        ({"namespaceTotalSnapshotSizeQuota": -1}, "in body should be greater than or equal to 0"),
        ({"namespaceTotalSnapshotSizeQuota": "much"}, 'in body must be of type integer: "string"'),
    ],
)
async def test_a_snapshot_quota_is_a_number_of_bytes(limit, why):
    api = ApiServer(MemoryStore(), LoopClock(), Rng(1))
    for raw in crds():
        api.install_crd(raw)
    quota = new_object(
        kinds.SNAPSHOT_QUOTA, "default-resource-quota", "default", spec={"snapshotLimit": limit}
    )

    with pytest.raises(KubeError, match=why):
        await api.local().create(kinds.SNAPSHOT_QUOTA, quota)


async def test_a_snapshot_quota_needs_no_spec():
    api = ApiServer(MemoryStore(), LoopClock(), Rng(1))
    for raw in crds():
        api.install_crd(raw)
    quota = new_object(kinds.SNAPSHOT_QUOTA, "default-resource-quota", "default")

    assert await api.local().create(kinds.SNAPSHOT_QUOTA, quota)


def test_the_modes_of_a_class_are_json():
    annotation = "cdi.harvesterhci.io/storageProfileVolumeModeAccessModes"
    raw = new_object(STORAGE_CLASS, "new", annotations={annotation: "{"}, provisioner="driver.longhorn.io")

    code, text, _ = refusal_of(storage_classes.check_class, raw, None, static_listers([]))
    assert (code, text.rpartition("error: ")[2]) == (422, "unexpected end of JSON input")
