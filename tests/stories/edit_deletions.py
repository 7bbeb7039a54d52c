"""What each VirtualMachine of a cluster was deleted for while its user edited it; one that had to go for no reason is a fault.

Each deletion has one cause, the first of these that holds of it, and the causes that have a number are used up:

* the run itself deleted the VM;
* the run struck the machine, so that it was remediated; or it is a server, and etcd was restored;
* a plan showed that the machine is replaced, by its name;
* the machine was made in this step, and the server that it was to join through was struck before it was Ready;
* a plan showed that its pool becomes smaller: as many as the plans showed, together.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from urllib.parse import urlsplit

from tests.chaos.inventory import Vm

from windrow.app.plan import ClusterPlan
from windrow.demo.cluster import is_ready
from windrow.kubernetes.objects import Raw, nested


class Cause(Enum):
    """Why a VM was deleted."""

    BY_THE_RUN = "by the run itself"
    STRUCK = "its machine was struck"
    RESTORED = "etcd was restored, and it is a server"
    REPLACED = "a plan showed it as replaced"
    LOST_SERVER = "the server that it was to join through was struck"
    SMALLER_POOL = "its pool became smaller"


@dataclass(frozen=True)
class Causes:
    """What was asked of a step: `asked` are uids of VMs that the run deleted, `struck` names of machines; `machines` has each
    Machine as it was last, and `before` the names of those that the step began with."""

    plans: Sequence[ClusterPlan]
    asked: Collection[str]
    struck: Collection[str]
    machines: Mapping[str, Raw]
    before: Collection[str]
    is_restored: bool = False  # etcd was restored: `struck` are the servers, which are made anew

    @property
    def replaced(self) -> frozenset[str]:
        return frozenset(
            one.machine for plan in self.plans for one in plan.pending.machines if one.change == "replace"
        )

    @property
    def removed(self) -> Counter[str]:
        """By pool, how many machines the plans showed as deleted."""
        removed: Counter[str] = Counter()
        for plan in self.plans:
            removed.update({one.pool: -one.count for one in plan.pools if one.count < 0})
        return removed

    def pool_of(self, name: str) -> str:
        return str(nested(self.machines.get(name, {}), "spec", "pool", default=""))

    def lost_its_server(self, name: str) -> bool:
        machine = self.machines.get(name, {})
        through = urlsplit(str(nested(machine, "spec", "joinServer", default=""))).hostname
        addresses = {one for struck in self.struck for one in self._addresses_of(struck)}
        return name not in self.before and not is_ready(machine) and through in addresses

    def _addresses_of(self, name: str) -> Sequence[str]:
        return tuple(nested(self.machines.get(name, {}), "status", "addresses", default=()))


def explain_deletions(deleted: Iterable[Vm], causes: Causes) -> tuple[dict[str, Cause], list[str]]:
    """The cause of each deletion by the VM's name, and a sentence for each that has none."""
    explained: dict[str, Cause] = {}
    faults, removed, replaced = [], causes.removed, causes.replaced
    for vm in sorted(set(deleted), key=lambda vm: (vm.name, vm.uid)):
        pool = causes.pool_of(vm.name)
        if vm.uid in causes.asked:
            explained[vm.name] = Cause.BY_THE_RUN
        elif vm.name in causes.struck:
            explained[vm.name] = Cause.RESTORED if causes.is_restored else Cause.STRUCK
        elif vm.name in replaced:
            explained[vm.name] = Cause.REPLACED
        elif causes.lost_its_server(vm.name):
            explained[vm.name] = Cause.LOST_SERVER
        elif removed[pool]:
            removed[pool] -= 1
            explained[vm.name] = Cause.SMALLER_POOL
        else:
            age = "was there before" if vm.name in causes.before else "was made in this step"
            faults.append(
                f"VirtualMachine {vm.name} of pool {pool} was deleted, and nothing asked for that; it {age}"
            )
    return explained, faults
