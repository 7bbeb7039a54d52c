"""KubeVirt's mutator and validators of VirtualMachineInstanceMigrations (v1.7.0)."""

from __future__ import annotations

from collections.abc import Iterator

from windrow.apiserver.types.go_syntax import kind_of
from windrow.emulator.admission.denials import bad_go_error, refused_by_kubevirt
from windrow.emulator.admission.kubevirt.causes import NOT_SUPPORTED, REQUIRED, Cause, text
from windrow.emulator.kit.listers import Listers
from windrow.emulator.kit.vm_readings import FINAL, phase_of
from windrow.kubernetes.conditions import find_condition
from windrow.kubernetes.objects import Raw, labels_of, namespace_of, nested, uid_of

INSTANCE_LABEL = "kubevirt.io/vmi-name"
FINALIZER = "kubevirt.io/migrationJobFinalize"
MUTATOR = "migrations-mutator.kubevirt.io"
CREATE_VALIDATOR = "migration-create-validator.kubevirt.io"
UPDATE_VALIDATOR = "migration-update-validator.kubevirt.io"


def mutate_migration(migration: Raw) -> None:
    """The label by which the migrations of an instance are found, and KubeVirt's finalizer."""
    spec = migration.get("spec")
    if faults := list(_schema_faults(spec)):
        raise refused_by_kubevirt([Cause(why, reason="") for why in faults], MUTATOR)
    assert isinstance(spec, dict)
    metadata = migration["metadata"]
    metadata["labels"] = {**labels_of(migration), INSTANCE_LABEL: text(spec, "vmiName")}
    metadata["finalizers"] = [*(metadata.get("finalizers") or ()), FINALIZER]


def _schema_faults(spec: object) -> Iterator[str]:
    """What KubeVirt's own schema says, in which every number is one."""
    if spec is None:
        yield "spec in body is required"
    for path, wanted in _TYPES:
        value = spec
        for step in path:
            value = value.get(step) if isinstance(value, dict) else None
        if (value is not None or not path) and kind_of(value) != wanted:
            yield _mistyped(path, wanted, value)
        elif path == _SELECTOR and isinstance(value, dict):
            for key, one in sorted(value.items()):
                if not isinstance(one, str):
                    yield _mistyped((*path, key), "string", one)


def _mistyped(path: tuple[str, ...], wanted: str, value: object) -> str:
    found = {"bool": "boolean"}.get(kind_of(value), kind_of(value))
    return f'{".".join(("spec", *path))} in body must be of type {wanted}: "{found}"'


_SELECTOR = ("addedNodeSelector",)
_TYPES = (((), "object"), (_SELECTOR, "object"), (("vmiName",), "string"))


def check_new_migration(migration: Raw, listers: Listers) -> None:
    """Its instance exists, has not ended, can be migrated, and is not being migrated."""
    name, namespace = text(migration, "spec", "vmiName"), namespace_of(migration)
    if not name:
        raise refused_by_kubevirt([Cause("vmiName is missing", "spec.vmiName", REQUIRED)], CREATE_VALIDATOR)
    if why := _instance_fault(listers.instances.get((namespace, name)), f"{namespace}/{name}"):
        raise bad_go_error(why, CREATE_VALIDATOR)
    for (where, _), other in sorted(listers.migrations.items()):
        if (
            where == namespace
            and labels_of(other).get(INSTANCE_LABEL) == name
            and phase_of(other) not in FINAL
        ):
            job = f"Active migration job ({uid_of(other)}) is currently already in progress for VMI {name}."
            raise bad_go_error(f"in-flight migration detected. {job}", CREATE_VALIDATOR)


def _instance_fault(instance: Raw | None, where: str) -> str:
    if instance is None:
        return f'the VMI "{where}" does not exist'
    if phase_of(instance) in FINAL:
        return "Cannot migrate VMI in finalized state."
    found = find_condition(nested(instance, "status", "conditions"), "LiveMigratable")
    if found is not None and found.status == "False":
        return f"Cannot migrate VMI, Reason: {found.reason}, Message: {found.message}"
    return ""


def check_migration_change(migration: Raw, old: Raw) -> None:
    if migration.get("spec") != old.get("spec"):
        why = "update of Migration object's spec is restricted"
        raise refused_by_kubevirt([Cause(why, reason=NOT_SUPPORTED)], UPDATE_VALIDATOR)
    before = labels_of(old).get(INSTANCE_LABEL)
    if before is None or phase_of(migration) in FINAL or labels_of(migration).get(INSTANCE_LABEL) == before:
        return
    verb = "modified on" if migration["metadata"].get("labels") else "removed from"
    why = f"selector label can't be {verb} an in-flight migration"
    raise refused_by_kubevirt([Cause(why, reason=NOT_SUPPORTED)], UPDATE_VALIDATOR)
