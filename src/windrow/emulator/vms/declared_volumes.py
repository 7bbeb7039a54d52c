"""Volumes of a VirtualMachine that its running instance takes over, as KubeVirt 1.7 does with DeclarativeHotplugVolumes. Pure.

Hot-pluggable ones alone: any other waits for the next start. Before, an instance took over what `addvolume` and
`removevolume` of its VM said, and a change of the template by hand waited.
"""

from __future__ import annotations

from windrow.emulator.kit.vm_readings import FINAL, is_hotpluggable, phase_of
from windrow.kubernetes.objects import Raw, is_deleting, nested


def takes_volumes(vmi: Raw | None) -> bool:
    """Whether there is an instance whose volumes may change."""
    return vmi is not None and phase_of(vmi) not in FINAL and not is_deleting(vmi)


def declare_volumes(vmi: Raw, template: Raw) -> None:
    """Change the volumes and disks of the instance to those of the template. May be repeated."""
    spec = vmi["spec"]
    wanted = {one["name"]: one for one in template.get("volumes") or () if is_hotpluggable(one)}
    held = list(spec.get("volumes") or ())
    removed = {one["name"] for one in held if is_hotpluggable(one) and one["name"] not in wanted}
    names = {one["name"] for one in held}
    added = [one for name, one in wanted.items() if name not in names]
    if not removed and not added:
        return
    spec["volumes"] = [*(one for one in held if one["name"] not in removed), *added]
    devices = spec["domain"].setdefault("devices", {})
    kept = [one for one in devices.get("disks") or () if one["name"] not in removed]
    known = {one["name"] for one in kept}
    disks = nested(template, "domain", "devices", "disks", default=[])
    new = {one["name"] for one in added} - known
    devices["disks"] = [*kept, *(one for one in disks if one["name"] in new)]
