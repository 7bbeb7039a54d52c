"""The order of KubeVirt's rules, and its admitter of VirtualMachines (v1.7.0, as Harvester 1.8 configures it)."""

from __future__ import annotations

from collections.abc import Iterator

from windrow.emulator.admission.kubevirt.affinity import AFFINITY_RULES
from windrow.emulator.admission.kubevirt.causes import (
    NOT_SUPPORTED,
    REQUIRED,
    Cause,
    Rule,
    apply,
    has,
    objects,
    section,
    text,
)
from windrow.emulator.admission.kubevirt.compute import (
    COMPUTE_RULES,
    LATER_COMPUTE_RULES,
    architecture,
    firmware,
    launch_security,
    memory_hotplug,
    sockets_fit,
)
from windrow.emulator.admission.kubevirt.defaults import with_defaults
from windrow.emulator.admission.kubevirt.guest import (
    EARLY_RULES,
    LAST_RULES,
    LATE_RULES,
    RESERVED_LABELS,
    access_credentials,
    closed_gates,
    dns,
    gpus,
    start_strategy,
)
from windrow.emulator.admission.kubevirt.network import NETWORK_RULES, slirp
from windrow.emulator.admission.kubevirt.storage import STORAGE_RULES, boot_orders, disk_causes
from windrow.kubernetes.objects import Raw, is_deleting, nested

RUN_STRATEGIES = ("Halted", "Manual", "Always", "RerunOnFailure", "Once")
TEMPLATE = "spec.template.spec"


def _domain(spec: Raw, at: str) -> Iterator[Cause]:
    domain = section(spec, "domain")
    yield from disk_causes(domain, f"{at}.domain")
    yield from firmware(domain, f"{at}.domain")


SPEC_RULES: tuple[Rule, ...] = (
    *EARLY_RULES,
    *COMPUTE_RULES,
    start_strategy,
    *LATER_COMPUTE_RULES,
    *AFFINITY_RULES,
    architecture,
    *NETWORK_RULES,
    gpus,
    boot_orders,
    *LATE_RULES,
    _domain,
    *STORAGE_RULES,
    access_credentials,
    dns,
    *LAST_RULES,
    launch_security,
    closed_gates,
)


def find_vm_causes(vm: Raw, old: Raw | None) -> list[Cause]:
    """Why KubeVirt refuses the VM: the causes of the first group of rules that finds any."""
    if is_deleting(vm):
        return []
    spec = with_defaults(section(vm, "spec", "template", "spec"))
    if old is None and (causes := list(slirp(spec, "spec"))):
        return causes
    causes = list(_template_metadata(section(vm, "spec", "template", "metadata"), "spec.template.metadata"))
    causes += apply(SPEC_RULES, spec, TEMPLATE)
    causes += _data_volume_templates(section(vm, "spec"))
    causes += _run_strategy(section(vm, "spec"))
    # For the roll-out strategy LiveUpdate, the sockets again.
    causes += [*sockets_fit(spec, TEMPLATE), *memory_hotplug(spec, TEMPLATE)]
    return causes or list(_in_progress(vm, old))


def _template_metadata(metadata: Raw, at: str) -> Iterator[Cause]:
    if has(section(metadata, "labels"), *RESERVED_LABELS):
        why = "creation of the following reserved kubevirt.io/ labels on a VMI object is prohibited"
        yield Cause(why, f"{at}.labels", NOT_SUPPORTED)
    for key, gate in (
        ("kubevirt.io/ignitiondata", "ExperimentalIgnitionSupport"),
        ("hooks.kubevirt.io/hookSidecars", "sidecar"),
    ):
        if text(metadata, "annotations", key):
            why = (
                f"{gate} feature gate is not enabled in kubevirt-config, invalid entry {at}.annotations.{key}"
            )
            yield Cause(why, f"{at}.annotations")


def _data_volume_templates(spec: Raw) -> Iterator[Cause]:
    used = set()
    for volume in objects(spec, "template", "spec", "volumes"):
        used |= {text(volume, "persistentVolumeClaim", "claimName"), text(volume, "dataVolume", "name")}
    for place, one in enumerate(objects(spec, "dataVolumeTemplates")):
        field, name = f"spec.dataVolumeTemplate[{place}]", text(one, "metadata", "name")
        targets = has(section(one, "spec"), "pvc", "storage")
        if not name:
            why = f"'name' field must not be empty for DataVolumeTemplate entry {field}.name."
            yield Cause(why, f"{field}.name", REQUIRED)
        elif not targets:
            yield Cause("Missing Data volume PVC or Storage", f"{field}.PVC.Storage")
        elif len(targets) > 1:
            why = "Duplicate storage definition, both target storage and target pvc defined"
            yield Cause(why, f"{field}.PVC.Storage")
        elif name not in used:
            why = f"DataVolumeTemplate entry {field} must be referenced in the VMI template's 'volumes' list"
            yield Cause(why, field, REQUIRED)


def _run_strategy(spec: Raw) -> Iterator[Cause]:
    strategy, running = spec.get("runStrategy"), spec.get("running")
    if strategy is not None and running is not None:
        why = "Running and RunStrategy are mutually exclusive. Note that Running is deprecated, please use RunStrategy instead"
        yield Cause(why, "spec.running")
    if strategy is None and running is None:
        yield Cause("RunStrategy must be specified", "spec.running")
    if strategy == "WaitAsReceiver":
        gate = "DecentralizedLiveMigration feature gate is not enabled in kubevirt resource"
        yield Cause(f"Invalid RunStrategy ({strategy}), {gate}", "spec.runStrategy")
    elif strategy is not None and strategy not in RUN_STRATEGIES:
        yield Cause(f"Invalid RunStrategy ({strategy})", "spec.runStrategy")


def _in_progress(vm: Raw, old: Raw | None) -> Iterator[Cause]:
    """A snapshot or a restore holds off changes of what it reads."""
    if old is None:
        return
    snapshot, restore = text(vm, "status", "snapshotInProgress"), text(vm, "status", "restoreInProgress")
    volumes = nested(vm, "spec", "template", "spec", "volumes") != nested(
        old, "spec", "template", "spec", "volumes"
    )
    strategy = _strategy_of(vm) != _strategy_of(old)
    if snapshot and volumes:
        why = f'Cannot update vm disks or volumes until snapshot "{snapshot}" completes'
        yield Cause(why, "spec", NOT_SUPPORTED)
    elif snapshot and strategy:
        why = f'Cannot update vm running state until snapshot "{snapshot}" completes'
        yield Cause(why, "spec", NOT_SUPPORTED)
    elif restore and strategy:
        why = f'Cannot update VM runStrategy until restore "{restore}" completes'
        yield Cause(why, "spec", NOT_SUPPORTED)


def _strategy_of(vm: Raw) -> tuple[object, object]:
    return nested(vm, "spec", "running"), nested(vm, "spec", "runStrategy")
