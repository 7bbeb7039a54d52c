"""What a guest's API says of kinds that it stores while nothing acts on them, so that a quota that limits nothing is no surprise."""

from __future__ import annotations

from windrow.emulator.guest_cluster.csi.kinds import SNAPSHOT_CRDS
from windrow.emulator.guest_cluster.distribution.helm_crds import HELM_CRDS
from windrow.kubernetes.resources import ApiResource

# Of the built-in kinds; every other one is acted on, or is data.
_NOT_ACTED_ON = {
    "resourcequotas": "no quota of a guest cluster is enforced",
    "limitranges": "pods of a guest cluster get no defaults and no limits by it",
}
_ACTED_ON = frozenset(raw["metadata"]["name"] for raw in (*HELM_CRDS, *SNAPSHOT_CRDS))
_GROUPS_OF_DISTRIBUTIONS = ("k3s.cattle.io", "helm.cattle.io")
MAX_KINDS = 100


class UnsimulatedKinds:
    """The warnings of one API. Each kind is told once, and of at most MAX_KINDS."""

    def __init__(self) -> None:
        self._told: set[str] = set()

    def warn(self, kind: ApiResource, *, custom: bool) -> str:
        """The text of the warning for a write, "" where none is due."""
        name = kind.group_resource
        why = _NOT_ACTED_ON.get(name, "")
        if custom and name not in _ACTED_ON and kind.group not in _GROUPS_OF_DISTRIBUTIONS:
            why = "the emulator runs no controller for it"
        if not why or name in self._told or len(self._told) >= MAX_KINDS:
            return ""
        self._told.add(name)
        return f"{kind.kind} is stored but not simulated: {why}"
