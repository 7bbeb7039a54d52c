"""What may be believed of a machine that a driver of somebody else made.

Such a driver marks nothing. It finds its machine by an id that it noted, or by the name alone, and says "not found" of
whatever it was not told of. So:

* Of a VM on Harvester our own client sees what bears the name: nothing; a VM with another machine's marks, or of
  another uid than was seen at birth; or one with the labels that the Go driver gives. Only the last is touched.
* Of any other machine that a driver was told to make, by a note of this host, its word counts: it knows the id. Not
  where the credential leads to another account by now, whose "not found" says nothing of the first.
* Where a machine is in doubt (planned, and no note tells whether it was begun: another node, a lost directory), a
  driver's "not found" proves nothing, since it may know no id. What it shows under the name is this machine's: a
  Machine's name has two random suffixes and was written down before anything could be made under it, so that somebody
  else's is far less likely than a machine that would run for ever, unrecorded. Where it shows nothing, nobody can
  tell, and that is said; it is never called missing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Literal

from windrow.harvester.identity import is_marked
from windrow.harvester.names import MACHINE_UID
from windrow.kube.objects import annotations_of, uid_of
from windrow.machines.plugin_access import SAME_ACCOUNT, KeyRing, Keys
from windrow.machines.plugin_charges import Charge
from windrow.machines.plugin_sight import look
from windrow.machines.plugins import DriverSaid, Plugin
from windrow.machines.port import HARVESTER, InfrastructureUnknown, bears_no_marks
from windrow.nodedriver.configuration import Configuration
from windrow.nodedriver.ownership import unclear, whose
from windrow.nodedriver.stored import read_memory

# The uid of the VM that the Go driver made.
SEEN_UID = "WindrowSeenUID"
_DEFINITE = frozenset({"starting", "running", "stopping", "stopped"})

Standing = Literal["stands", "absent", "unasked"]


async def find_standing(ring: KeyRing, charge: Charge) -> tuple[Standing, str]:
    """Whether the machine's VM stands on Harvester, and its uid. Raises InfrastructureUnknown, also where a VM stands of
    which nothing tells whose it is."""
    if charge.driver != HARVESTER:
        return "unasked", ""
    own = read_memory(charge.memory)
    found = await ring.find_vm(charge.credential, own.machine_name, own.vm_namespace)
    if found == "unasked":
        return "unasked", ""
    if found is None or (owner := _owner(charge, own, found)) == "another's":
        return "absent", ""
    if owner == "unclear":
        problem = unclear(own if own.vm_uid == uid_of(found) else _unmarked(own), found)
        raise InfrastructureUnknown(problem.fact, problem.cure)
    return "stands", uid_of(found)


def _owner(charge: Charge, own: Configuration, found: Mapping[str, Any]) -> str:
    if own.vm_uid and not bears_no_marks(own.vm_uid):
        return whose(own, found)
    if is_marked(found, own.cluster_uid, own.machine_uid):
        return "mine"
    if MACHINE_UID in annotations_of(found):
        return "another's"
    seen = str(charge.memory.get(SEEN_UID) or "")
    if seen:
        return "mine" if seen == uid_of(found) else "another's"
    owner = whose(_unmarked(own), found)
    # The Go driver makes no VM without its labels; only of one that it made may somebody have taken them.
    return "another's" if owner == "unclear" and not charge.was_made else owner


def _unmarked(own: Configuration) -> Configuration:
    return replace(own, machine_uid="", cluster_uid="", vm_uid="")


async def stands(ring: KeyRing, charge: Charge, keys: Keys, plugin: Plugin) -> bool:
    """Whether there is something to remove or take up, by a plugin that was told of the machine; False is a proof that
    there is nothing. Raises InfrastructureUnknown where nobody can tell, and DriverSaid."""
    standing, _ = await find_standing(ring, charge)
    if standing != "unasked":
        return standing == "stands"
    if keys.opens(charge.account) and not charge.is_in_doubt:
        return True  # the driver knows
    try:
        sighting = (await look(plugin, charge)).sighting
    except DriverSaid:
        if charge.is_in_doubt:
            raise lost_track(charge) from None
        raise
    if charge.is_in_doubt and charge.driver == HARVESTER:
        return sighting.presence != "missing"  # it finds its machines by their names
    if charge.is_in_doubt and sighting.state not in _DEFINITE:
        raise lost_track(charge)
    if sighting.presence == "missing":
        raise other_account(charge)
    return True


def lost_track(charge: Charge) -> InfrastructureUnknown:
    return InfrastructureUnknown(
        f"it is not known whether driver {charge.driver} has begun to make {charge.name}: what was noted of it was on "
        "another node, or is lost, and the driver does not find it by its name",
        f"look for {charge.name} in the account of credential {charge.credential} and remove it there; then delete its "
        "Machine, and take the finalizer off it",
    )


def other_account(charge: Charge) -> InfrastructureUnknown:
    return InfrastructureUnknown(
        f"driver {charge.driver} does not find {charge.name}, but credential {charge.credential} has changed since it "
        "was made, perhaps to another account",
        "put the credential of its account back; or, if it opens the same account, add the field "
        f"{charge.driver}credentialConfig-{SAME_ACCOUNT}: {charge.account} to that Secret",
    )
