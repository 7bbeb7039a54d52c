"""What a machine is like at this moment: one look, no waiting."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from windrow.harvester.instances import read_vmi
from windrow.harvester.kinds import VMI
from windrow.harvester.vms import read_vm
from windrow.kube import requests
from windrow.kube.errors import KubeError, says_gone
from windrow.kube.refs import Ref
from windrow.nodedriver.state import Shown, judge_state
from windrow.nodedriver.steps import Gather, Talk


@dataclass(frozen=True, slots=True)
class Look:
    """A VM that exists: its state, the uid of its instance ("" for none) and its addresses while it runs."""

    shown: Shown
    vmi_uid: str = ""
    addresses: tuple[str, ...] = ()
    raw_vm: Mapping[str, Any] = field(default_factory=dict, compare=False, repr=False)


def look_at(ref: Ref) -> Talk[Look | None]:
    """The VM as it is now; None where Harvester says that there is none. Raises every other answer."""
    vmi_ref = VMI.ref(ref.name, ref.namespace)
    answers = yield Gather((requests.get(ref), requests.get(vmi_ref)), f"look at {ref.name}")
    vm, vmi = answers
    if says_gone(vm, ref.name):
        return None
    if isinstance(vm, KubeError):
        raise vm
    if isinstance(vmi, KubeError) and not says_gone(vmi, ref.name):
        raise vmi
    instance = None if isinstance(vmi, KubeError) else read_vmi(vmi)
    shown = judge_state(read_vm(vm), instance)
    if instance is None:
        return Look(shown, raw_vm=vm)
    is_up = shown.state in ("running", "migrating")
    return Look(shown, instance.uid, instance.addresses if is_up else (), vm)
