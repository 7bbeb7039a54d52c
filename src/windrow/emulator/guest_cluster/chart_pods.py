"""Pods of bundled charts: command, mounted files, tolerations; and the checks of taints and node affinity."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any

from windrow.emulator.guest_os.hardware import File
from windrow.kubernetes.objects import nested
from windrow.kubernetes.selectors import Requirement

if TYPE_CHECKING:
    from windrow.emulator.guest_os.operating_system import GuestOS

Raw = dict[str, Any]


class MountFailed(Exception):
    """A volume of the pod cannot be set up; the message is the kubelet's event text."""


@dataclass(slots=True)
class ChartPod:
    """The one pod of a bundled chart.

    `command` gives the program's arguments and `mount` the files it sees; both are called at every start of the pod.
    """

    name: str
    program: str
    command: Callable[[], Awaitable[Sequence[str]]]
    mount: Callable[[GuestOS], Awaitable[Mapping[str, File]]]
    tolerations: Sequence[Mapping[str, Any]] = ()
    node: str = ""
    lost_since: datetime | None = None  # since when its node's status is Unknown
    env: Mapping[str, str] = field(default_factory=dict)
    generation: int = 0  # incremented when its chart is upgraded


def tolerates(tolerations: Sequence[Mapping[str, Any]], taints: Sequence[Mapping[str, Any]]) -> bool:
    """Whether a pod may be placed on a node with these taints."""
    hard = [taint for taint in taints if taint.get("effect") in ("NoSchedule", "NoExecute")]
    return all(any(_tolerates(one, taint) for one in tolerations) for taint in hard)


def fits_affinity(affinity: Mapping[str, Any], labels: Mapping[str, str]) -> bool:
    """Whether a node with these labels matches the required node affinity. `matchFields` is ignored."""
    required = "requiredDuringSchedulingIgnoredDuringExecution"
    terms = nested(affinity, "nodeAffinity", required, "nodeSelectorTerms", default=[])
    return not terms or any(
        all(_holds(one, labels) for one in term.get("matchExpressions") or ()) for term in terms
    )


def _holds(expression: Mapping[str, Any], labels: Mapping[str, str]) -> bool:
    values = frozenset(expression.get("values") or ())
    operator = expression["operator"]
    known = operator in ("In", "NotIn", "Exists", "DoesNotExist")
    return known and Requirement(expression["key"], operator, values).matches(labels)


def _tolerates(toleration: Mapping[str, Any], taint: Mapping[str, Any]) -> bool:
    if toleration.get("effect") and toleration["effect"] != taint.get("effect"):
        return False
    if not toleration.get("key"):
        return toleration.get("operator") == "Exists"
    if toleration["key"] != taint.get("key"):
        return False
    if toleration.get("operator") == "Exists":
        return True
    return str(toleration.get("value") or "") == str(taint.get("value") or "")
